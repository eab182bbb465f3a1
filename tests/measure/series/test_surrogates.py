"""Tests of independence for series."""

import numpy as np
import pytest

from mibounds.measure.series.surrogates import (
    features,
    lag_statistic,
    nested_statistic,
    p_values,
    residual_statistic,
    seams,
    surrogate_orders,
)
from mibounds.samples.columns import as_columns


def series(rho, n, seed, d=1):
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(n, d))
    for t in range(1, n):
        z[t] = rho * z[t - 1] + np.sqrt(1 - rho**2) * z[t]
    return z


def test_the_statistic_of_all_lags_is_the_plain_sum():
    x, y = series(0.5, 70, 0, 2), series(0.5, 70, 1, 3)
    lags = [-4, 0, 7]
    order = np.random.default_rng(0).permutation(70)
    found = lag_statistic(x, y, lags)(order)
    moved = y[order]
    for lag, value in zip(lags, found, strict=True):
        first = [(t, t + lag) for t in range(70) if 0 <= t + lag < 70]
        sums = sum(np.outer(x[s], moved[t]) for s, t in first)
        assert value == pytest.approx((sums**2).sum() / len(first))


def test_features_are_uncorrelated_functions_of_a_side():
    rng = np.random.default_rng(0)
    numbers = features(as_columns("x", rng.normal(size=20_000)).scored())
    assert np.cov(numbers.T) == pytest.approx(np.diag([1, 0.5, 0.25]), abs=0.02)
    two = features(as_columns("x", rng.normal(size=(100, 2))).scored())
    assert two.shape == (100, 5)  # both, their squares, their product
    many = features(as_columns("x", rng.normal(size=(100, 9))).scored())
    assert many.shape == (100, 9)
    labels = features(as_columns("x", rng.choice(["a", "b", "c"], 900)))
    assert labels.var(0).sum() == pytest.approx(2, abs=0.01)
    mixed = features(as_columns("x", np.c_[rng.normal(size=99), rng.integers(2, size=99)]).scored())
    assert mixed.shape == (99, 5)


def test_orders_keep_runs_together_and_move_rows():
    orders = surrogate_orders(300, 40, 8, 10, np.random.default_rng(0))
    for order in orders:
        assert sorted(order) == list(range(300))
        assert (np.diff(order) != 1).sum() <= 9
        assert (np.abs(order - np.arange(300)) > 10).mean() > 0.5


def test_a_residual_statistic_does_not_see_what_is_given():
    z = series(0.5, 400, 0)
    x, y = z + 0.1 * series(0.0, 400, 1), z + 0.1 * series(0.0, 400, 2)
    rows, same = np.arange(400), np.arange(400)
    none = z[:, :0]
    plain = residual_statistic(x, y, none, rows)(same)[0]
    given = residual_statistic(x, y, z, rows)(same)[0]
    assert plain > 300
    assert given < 15


def test_a_nested_statistic_finds_how_far_back():
    x = series(0.0, 500, 0)
    y = np.r_[np.zeros((3, 1)), x[:-3]] + series(0.0, 500, 1)
    target = np.arange(10, 500)
    rows = [target - j for j in range(1, 6)]
    given = y[target - 1]
    same = np.arange(500)
    near = nested_statistic(x, y[target], given, rows[:2], (1, 1))(same)[0]
    far = nested_statistic(x, y[target], given, rows, (1, 1))(same)[0]
    assert near < 5 < 50 < far
    bent = np.hstack([x, (x**2 - 1) / 2**0.5])
    z = np.r_[np.zeros((3, 1)), x[:-3] ** 2]
    curves = nested_statistic(bent, z[target], given, rows, (1, 1))(same)[0]
    assert nested_statistic(x, z[target], given, rows, (1, 1))(same)[0] < 8 < 50 < curves


@pytest.mark.parametrize("n", [200, 400])
def test_the_size_holds_under_strong_autocorrelation(n):
    lags, rejected, naive = range(-5, 6), [], []
    for s in range(120):
        x, y = series(0.9, n, 2 * s), series(0.9, n, 2 * s + 1)
        sides = [features(as_columns("x", v).scored()) for v in (x, y)]
        pieces, factor, _ = seams(*sides)
        orders = surrogate_orders(n, 39, pieces, 5, np.random.default_rng(s))
        of = lag_statistic(*sides, list(lags))
        null = np.array([of(order) for order in orders]) * factor
        rejected.append(p_values(of(np.arange(n)), null, 0.95)[0].min() <= 0.05)
        if s < 20:  # single rows, put anywhere
            anywhere = np.array([of(np.random.default_rng(k).permutation(n)) for k in range(19)])
            naive.append(p_values(of(np.arange(n)), anywhere, 0.95)[0].min() <= 0.05)
    assert np.mean(naive) > 0.3
    assert np.mean(rejected) <= 0.05 + 2.5 * np.sqrt(0.05 * 0.95 / 120)


def test_seams_cost_more_where_rows_depend_on_each_other_for_longer():
    white, slow = (seams(series(r, 500, 0), series(r, 500, 1)) for r in (0.0, 0.95))
    assert white.pieces > slow.pieces
    assert 1 < white.factor < 1.02 < slow.factor < 2
    assert 1 < white.given_past < 1.02 < slow.given_past < slow.factor


def test_p_values_know_how_many_lags_there_are():
    null = np.random.default_rng(0).random((99, 20))
    p, threshold = p_values(np.r_[np.full(19, 0.5), 0.96], null, 0.95)
    single, _ = p_values(np.array([0.96]), null[:, :1], 0.95)
    assert single[0] < 0.1 < p[-1]
    assert 0.99 < threshold < 1
    assert p_values(np.ones(1), null[:3, :1], 0.95)[1] == np.inf
