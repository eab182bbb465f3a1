"""Shares of each row against closed forms, plain equations and estimators that are there."""

import itertools
import math

import numpy as np
import pytest
from scipy import special, stats

from mibounds.measure.classical import KSG, PlugIn
from mibounds.measure.conditional_shares import (
    APART,
    Shares,
    codes_of,
    count_shares,
    gaussian_shares,
    neighbour_shares,
    t_quantile,
)
from mibounds.measure.copula_model.gaussian_regressions import gaussian_information


def gaussian(n, seed=0, given=True):
    """x of two columns, y of one, z of one; and I(x; y | z)."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(n, 1))
    x = np.hstack([z, -z]) + rng.normal(size=(n, 2))
    y = x[:, :1] + z + rng.normal(size=(n, 1))
    return x, y, z if given else z[:, :0], 0.5 * math.log(2)


def autoregression(rho, n, seed):
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(n, 2))
    for t in range(1, n):
        z[t] = rho * z[t - 1] + math.sqrt(1 - rho**2) * z[t]
    return z[:, :1], z[:, 1:]


def test_every_estimate_comes_near_the_truth():
    x, y, z, truth = gaussian(4000)
    for of in (gaussian_shares, neighbour_shares):
        found = of(x, y, z)
        assert found.nats == pytest.approx(truth, abs=0.05)
        low, high = found.interval(0.95)
        assert low < truth < high
        assert len(found.values) == 4000


@pytest.mark.parametrize("given", [True, False])
def test_independent_rows_have_the_bias_of_a_wishart_matrix(given):
    x, y, z, _ = gaussian(1500, given=given)
    plain, _ = gaussian_information(x, y, z)
    assert gaussian_shares(x, y, z).nats == pytest.approx(plain, abs=1e-3)


def test_the_bias_of_a_series_is_subtracted():
    pairs = [autoregression(0.9, 400, s) for s in range(150)]
    none = np.empty((400, 0))
    values = [gaussian_shares(x, y, none).nats for x, y in pairs]
    raw = [gaussian_information(x, y, none)[0] for x, y in pairs]
    spread = np.std(values) / math.sqrt(150)
    assert np.mean(raw) > 6 * spread  # what rows that depend on each other share by chance
    assert abs(np.mean(values)) < 3 * spread


def test_the_interval_of_a_series_holds_the_truth():
    none, held = np.empty((600, 0)), []
    for s in range(120):
        x, e = autoregression(0.85, 600, 500 + s)
        y = 0.6 * x + 0.8 * e
        low, high = gaussian_shares(x, y, none).interval(0.95)
        held.append(low <= -0.5 * math.log(1 - 0.36) <= high)
    assert 0.9 <= np.mean(held) <= 1.0


def test_an_interval_is_wider_at_a_higher_level():
    x, y, z, _ = gaussian(300)
    for found in (gaussian_shares(x, y, z), gaussian_shares(x[:, :1], y, z)):
        inner, outer = found.interval(0.5), found.interval(0.99)
        assert outer[0] < inner[0] < found.nats < inner[1] < outer[1]


def test_columns_that_follow_from_others_are_refused():
    x, y, z, _ = gaussian(100)
    with pytest.raises(ValueError, match=r"^Expected columns none of which .* leave those out"):
        gaussian_shares(x, np.hstack([y, x[:, :1] + x[:, 1:]]), z)


def plain_neighbours(x, y, z, k, near):
    """The equation as it stands, with loops."""
    n, total = len(x), []
    digamma = special.digamma

    def distance(parts, i, j):
        return max((abs(p[i] - p[j]).max() for p in parts if p.shape[1]), default=0.0)

    for i in range(n):
        others = [j for j in range(n) if abs(i - j) > near]
        radius = sorted(distance((x, y, z), i, j) for j in others)[k - 1]
        count = [
            sum(distance(parts, i, j) < radius for j in others) + 1
            for parts in ((x, z), (y, z), (z,))
        ]
        total.append(digamma(k) + digamma(count[2]) - digamma(count[0]) - digamma(count[1]))
    return np.array(total)


@pytest.mark.parametrize(("columns", "near"), list(itertools.product((0, 1), (0, 3))))
def test_neighbours_are_those_of_the_plain_equation(columns, near):
    x, y, z, _ = gaussian(60)
    x, y, z = x[:, :1] + z, y, z[:, :columns]
    if columns:  # what z predicts is taken away
        design = np.hstack([np.ones((60, 1)), z])
        rest = [v - design @ np.linalg.lstsq(design, v, rcond=None)[0] for v in (x, y)]
        rest = [v / v.std(0) for v in rest]
    else:
        rest = [x, y]
    found = neighbour_shares(x, y, z, near).values
    assert found == pytest.approx(plain_neighbours(*rest, z, 5, near))


def test_without_a_third_side_neighbours_are_ksg():
    x, y, _, _ = gaussian(300)
    x, y = (v / v.std(0) for v in (x, y))
    assert neighbour_shares(x, y, x[:, :0]).nats == pytest.approx(KSG(k=5)(x, y), abs=1e-9)


def test_neighbours_see_labels():
    rng = np.random.default_rng(0)
    codes = rng.integers(3, size=3000)
    x = codes[:, None] * 10 + rng.normal(size=(3000, 1))
    labels = APART * np.eye(3)[codes]
    found = neighbour_shares(x / x.std(), labels, x[:, :0])
    assert found.nats == pytest.approx(math.log(3), abs=0.01)
    given = neighbour_shares(x / x.std(), rng.normal(size=(3000, 1)), labels)
    assert given.nats == pytest.approx(0, abs=0.02)


def test_counts_are_the_plug_in_estimate():
    rng = np.random.default_rng(0)
    x = rng.integers(3, size=(500, 2)).astype(float)
    y = ((x[:, :1] + rng.integers(2, size=(500, 1))) % 3).astype(float)
    none = np.empty((500, 0))
    found = count_shares(x, y, none, series=False)
    assert found.nats == pytest.approx(PlugIn()(x, y))
    both = count_shares(np.hstack([x, y]), x[:, 1:], none, series=False).nats
    given = count_shares(y, x[:, 1:], x[:, :1], series=False)
    chain = count_shares(np.hstack([x[:, :1], y]), x[:, 1:], none, series=False).nats
    chain -= count_shares(x[:, :1], x[:, 1:], none, series=False).nats
    assert given.nats == pytest.approx(chain)
    assert both > 1


def test_dependent_labels_have_more_bias():
    rng = np.random.default_rng(1)
    stays = np.repeat(rng.integers(3, size=(2, 40)), 10, axis=1).T.astype(float)
    none = np.empty((400, 0))
    alone = count_shares(stays[:, :1], stays[:, 1:], none, series=False)
    found = count_shares(stays[:, :1], stays[:, 1:], none)
    assert alone.nats - found.nats > 0.01
    assert found.error > alone.error


def test_codes_are_equal_where_rows_are():
    rows = np.random.default_rng(0).integers(3, size=(200, 3)).astype(float)
    codes = codes_of(rows)
    assert codes.max() + 1 == len(np.unique(rows, axis=0))
    for i, j in itertools.combinations(range(50), 2):
        assert (codes[i] == codes[j]) == (rows[i] == rows[j]).all()
    assert codes_of(rows[:, :0]).max() == 0


@pytest.mark.parametrize("free", [4.0, 10.0, 100.0])
@pytest.mark.parametrize("probability", [0.9, 0.975, 0.995])
def test_quantiles_of_student(free, probability):
    truth = stats.t.ppf(probability, free)
    assert t_quantile(probability, free) == pytest.approx(truth, rel=0.02)


def test_the_value_is_the_mean_of_the_shares():
    assert Shares(np.array([0.1, 0.3]), 0.1, 1, 10.0).nats == pytest.approx(0.2)
