"""Pairs of columns: the fast sums beside the equations as they stand, and values beside truths."""

import math

import numpy as np
import pytest
import torch

import mibounds as mb
from mibounds.measure.tables import neighbours as near
from mibounds.measure.tables.neighbours import label_neighbours, neighbours
from mibounds.measure.tables.pairs import (
    CHANCE,
    DEGREE,
    FLOOR,
    LABEL_DEGREE,
    TESTED,
    labels_and_labels,
    labels_and_numbers,
    numbers_and_numbers,
    prepare,
)
from mibounds.measure.tables.values import measure_pairs
from mibounds.measure.tables.variables import Rows, read_variables, score

CPU = torch.device("cpu")


def phi(z):
    return 0.5 * (1 + math.erf(z / math.sqrt(2)))


def cosine(k, u):
    return math.sqrt(2) * math.cos(math.pi * k * u) if k else 1.0


def chi(value, free):
    half = torch.tensor([free / 2, value / 2], dtype=torch.float64)
    return float(torch.special.gammaincc(half[0], half[1]))


def naive_numbers(x, y):
    """The equations of `pairs`, with loops."""
    n = len(x)
    x = np.array(x) / math.sqrt(np.mean(np.square(x)))
    y = np.array(y) / math.sqrt(np.mean(np.square(y)))
    rho = sum(a * b for a, b in zip(x, y, strict=True)) / n
    s = [phi((a + b) / math.sqrt(2 * (1 + rho))) for a, b in zip(x, y, strict=True)]
    t = [phi((a - b) / math.sqrt(2 * (1 - rho))) for a, b in zip(x, y, strict=True)]
    theta, keep = {}, {}
    for k in range(DEGREE + 1):
        for m in range(DEGREE + 1):
            theta[k, m] = sum(cosine(k, a) * cosine(m, b) for a, b in zip(s, t, strict=True)) / n
    for shell in range(1, DEGREE + 1):
        mine = [key for key in theta if max(key) == shell]
        total = n * sum(theta[key] ** 2 for key in mine)
        chance = len(mine) + CHANCE * math.sqrt(2 * len(mine))
        share = 1 - len(mine) / total if total > chance else 0.0
        keep |= dict.fromkeys(mine, share)
    correction = 0.0
    for i in range(n):
        products = {key: cosine(key[0], s[i]) * cosine(key[1], t[i]) for key in keep}
        r = 1 + sum(keep[key] * theta[key] * products[key] for key in keep)
        without = 1 + sum(
            keep[key] * (n * theta[key] - products[key]) / (n - 1) * products[key] for key in keep
        )
        correction += 0.5 * (math.log(max(r, FLOOR)) + math.log(max(without, FLOOR))) / n
    tests = [chi(n * rho**2, 1)]
    for degree in TESTED[1:]:
        squares = 0.0
        for k in range(1, degree + 1):
            for m in range(1, degree + 1):
                squares += (
                    sum(
                        cosine(k, phi(a)) * cosine(m, phi(b))
                        for a, b in zip(score(x), score(y), strict=True)
                    )
                    ** 2
                    / n
                )
        tests.append(chi(squares, degree**2))
    nats = -0.5 * math.log(1 - rho**2) - 1 / (2 * n) + correction
    return nats, correction, min(1.0, len(tests) * min(tests))


@pytest.mark.parametrize("relation", ["none", "linear", "square"])
def test_numbers_are_measured_by_the_equations(relation):
    rng = np.random.default_rng(1)
    x = rng.normal(size=80)
    y = {"none": 0 * x, "linear": 2 * x, "square": 2 * x**2}[relation] + rng.normal(size=80)
    a, b = score(x), score(y)
    z = prepare(torch.as_tensor(np.stack([a, b, rng.permutation(b)])))
    found = numbers_and_numbers(z[0], z[1:])
    nats, departure, p = naive_numbers(a, b)
    assert found.nats[0] == pytest.approx(nats, abs=1e-9)
    assert found.departure[0] == pytest.approx(departure, abs=1e-9)
    assert found.p_value[0] == pytest.approx(p, rel=1e-6)
    assert (departure > 0.1) == (relation == "square")  # the series has something to do


def naive_labels(x, y):
    """The same for labels."""
    n, labels = len(x), sorted(set(x))
    u = [phi(z) for z in y]
    free = len(labels) - 1
    share = {a: sum(b == a for b in x) / n for a in labels}
    mean = {
        (k, a): sum(cosine(k, v) for v, b in zip(u, x, strict=True) if b == a) / (n * share[a])
        for k in range(1, LABEL_DEGREE + 1)
        for a in labels
    }
    keep = {}
    for k in range(1, LABEL_DEGREE + 1):
        total = n * sum(share[a] * mean[k, a] ** 2 for a in labels)
        keep[k] = 1 - free / total if total > free + CHANCE * math.sqrt(2 * free) else 0.0
    value = 0.0
    for v, a in zip(u, x, strict=True):
        series = sum(keep[k] * mean[k, a] * cosine(k, v) for k in keep)
        own = sum(keep[k] * cosine(k, v) ** 2 for k in keep) * (1 / share[a] - 1)
        without = (n * series - own) / (n - 1)
        value += 0.5 * (math.log(max(1 + series, FLOOR)) + math.log(max(1 + without, FLOOR))) / n
    return value


def test_labels_are_measured_by_the_equations():
    rng = np.random.default_rng(2)
    x = rng.integers(3, size=150)
    y = score(x + rng.normal(size=150))
    found = labels_and_numbers(x, torch.as_tensor(np.stack([y, rng.permutation(y)])))
    assert found.nats[0] == pytest.approx(naive_labels(x.tolist(), y.tolist()), abs=1e-9)
    assert found.nats[0] > 0.1
    assert found.p_value[0] < 1e-6 < found.p_value[1]


def test_two_labels_are_pearsons_test():
    scipy = pytest.importorskip("scipy.stats")
    rng = np.random.default_rng(3)
    x = rng.integers(3, size=400)
    y = np.where(rng.random(400) < 0.2, x, rng.integers(4, size=400))
    found = labels_and_labels(x, [y])
    table = np.histogram2d(x, y, bins=(3, 4))[0]
    assert found.p_value[0] == pytest.approx(scipy.chi2_contingency(table).pvalue, rel=1e-9)
    plug_in = mb.PlugIn()(x, y)
    assert found.nats[0] == pytest.approx(plug_in, abs=0.02)


def test_neighbours_are_measured_by_the_equation():
    pytest.importorskip("scipy")
    rng = np.random.default_rng(4)
    x = rng.normal(size=60)
    a, b = score(x), score(x**2 + rng.normal(size=60))
    n, k = 60, near.K
    total = 0.0
    for i in range(n):
        d = sorted(max(abs(a[i] - a[j]), abs(b[i] - b[j])) for j in range(n) if j != i)[k - 1]
        mass = [phi(v[i] + d) - phi(v[i] - d) for v in (a, b)]
        more = sum(1 / (n * m) for m in mass) * k / (2 * (k - 1))
        psi = torch.digamma(torch.tensor([k, n], dtype=torch.float64))
        total += float(psi[0] - psi[1]) - math.log(mass[0] * mass[1]) + more
    assert neighbours(a, b)[0] == pytest.approx(total / n, abs=1e-9)


def test_neighbours_of_labels_are_those_of_ross():
    """Ross 2014, equation 2, with loops."""
    rng = np.random.default_rng(5)
    x = rng.integers(2, size=60)
    y = rng.normal(size=60) + x
    psi = torch.digamma(torch.arange(61, dtype=torch.float64)).tolist()
    total = 0.0
    for i in range(60):
        same = [abs(y[i] - y[j]) for j in range(60) if j != i and x[j] == x[i]]
        d = sorted(same)[near.K - 1]
        m = sum(abs(y[i] - v) < d for v in y)  # with the row itself
        total += psi[60] - psi[int((x == x[i]).sum())] + psi[near.K] - psi[m]
    assert label_neighbours(x, y)[0] == pytest.approx(total / 60, abs=1e-9)


def test_neighbours_of_independent_columns_find_nothing():
    """Ranks are more regular than a sample; without the correction it would be 0.02 too low."""
    pytest.importorskip("scipy")
    found = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        found.append(neighbours(score(rng.normal(size=1000)), score(rng.normal(size=1000)))[0])
    assert abs(np.mean(found)) < 0.008


# --- truths --------------------------------------------------------------------------------------


def value(x, y, *, fast=False, kinds=("continuous", "continuous")):
    a, b = (read_variables(w, v, k)[0] for w, v, k in zip("xy", (x, y), kinds, strict=True))
    found = measure_pairs(a, [b], Rows(), fast, CPU)[:, 0]
    return found[0], found[0] - 1.96 * found[1], found[0] + 1.96 * found[2]


@pytest.mark.parametrize("rho", [0.0, 0.3, 0.6, 0.9, 0.99])
@pytest.mark.parametrize("fast", [True, False])
def test_gaussians_of_any_margins(rho, fast):
    truth = -0.5 * math.log(1 - rho**2)
    rng = np.random.default_rng(6)
    x = rng.normal(size=4000)
    y = rho * x + math.sqrt(1 - rho**2) * rng.normal(size=4000)
    found, low, high = value(np.sinh(3 * x), y**3, fast=fast)
    assert found == pytest.approx(truth, abs=0.05)
    assert low <= truth <= high


@pytest.mark.parametrize("name", ["mixture-cross", "mixture-balls", "uniform-noise-wide"])
def test_tasks_of_one_column_a_side(name):
    pytest.importorskip("scipy")
    task = mb.TASKS[name]
    x, y = task.sample(4000, seed=7)
    found, low, high = value(x.numpy(), y.numpy())
    assert found == pytest.approx(task.mutual_information, abs=0.05)
    assert low <= task.mutual_information <= high


def test_labels_with_known_value():
    task = mb.TASKS["labelled-uniform"]
    x, y = task.sample(4000, seed=8)
    found, low, high = value(x.numpy(), y.numpy(), kinds=("continuous", "discrete"))
    assert found == pytest.approx(task.mutual_information, abs=0.05)
    assert low <= task.mutual_information <= high
    stripes = np.random.default_rng(0).uniform(size=3000)
    assert value((8 * stripes).astype(int) % 2, stripes, kinds=("discrete", "continuous"))[
        0
    ] == pytest.approx(math.log(2), abs=0.02)


def test_a_rounded_column_has_the_value_of_the_rounded_column():
    """One standard normal, and another rounded to whole numbers: the value falls from 0.511."""
    pytest.importorskip("scipy")
    rng = np.random.default_rng(9)
    x = rng.normal(size=20_000)
    y = np.round(0.8 * x + 0.6 * rng.normal(size=20_000))
    grid = np.linspace(-8, 8, 4001)
    p = np.exp(-(grid**2) / 2)
    p /= p.sum()
    edges = np.arange(-8.5, 9)
    cdf = 0.5 * (1 + torch.erf(torch.tensor((edges - 0.8 * grid[:, None]) / 0.6 / 2**0.5))).numpy()
    q = np.diff(cdf, axis=1)
    truth = (p[:, None] * q * np.log(np.maximum(q, 1e-300) / (p @ q))).sum()
    assert truth == pytest.approx(0.447, abs=0.001)
    for kind in ("continuous", "discrete"):
        found, low, high = value(x, y, kinds=("continuous", kind))
        assert found == pytest.approx(truth, abs=0.03)
        assert low <= truth <= high


def test_a_copy_is_near_the_ceiling():
    x = np.random.default_rng(10).normal(size=500)
    found, _, high = value(x, 3 * x)
    assert found > 3
    assert math.isinf(high)


def test_p_values_are_uniform_without_dependence():
    """Numbers, heavy ties and labels; over 2000 pairs each."""
    rng = np.random.default_rng(11)
    n = 300
    numbers = rng.standard_cauchy(size=(n, 64))
    numbers[:, ::4] = np.round(rng.normal(size=(n, 16)))
    for kind in ("continuous", "discrete"):
        other = rng.normal(size=(n, 32)) if kind == "continuous" else rng.integers(4, size=(n, 32))
        p = mb.matrix(numbers, other, kinds="continuous", right_kinds=kind, correction="none")
        assert (p.p_values <= 0.05).mean() < 0.06
        assert (p.p_values <= 0.05).mean() > 0.02  # the three tests share the level
        assert (p.p_values <= 0.001).mean() < 0.004


def test_missing_values_are_left_out_pair_by_pair():
    rng = np.random.default_rng(12)
    x = rng.normal(size=(300, 3))
    x[:, 1] += x[:, 0]
    holes = x.copy()
    holes[:50, 0] = np.nan
    holes[40:90, 1] = np.nan
    found = mb.matrix(holes)
    assert found.rows.tolist() == [[250, 210, 250], [210, 250, 250], [250, 250, 300]]
    whole = mb.matrix(x[90:])
    assert found.nats[0, 1] == whole.nats[0, 1]


def test_a_pair_with_too_few_rows_has_no_value_and_says_so():
    x = np.random.default_rng(13).normal(size=(40, 3))
    x[:35, 0] = np.nan
    found = mb.matrix(x)
    assert np.isnan(found.nats[0, 1:]).all()
    assert np.isfinite(found.nats[1, 2])
    assert [w.code for w in found.warnings] == ["few-rows"]
    assert "2 pairs have fewer than 10 rows" in str(found)
    assert np.isnan(found.corrected[0, 1])


def test_constants_share_nothing():
    x = np.random.default_rng(14).normal(size=(50, 3))
    x[:, 1] = 2.5
    found = mb.matrix(x)
    assert found.nats[1].tolist() == [0, 0, 0]
    assert found.p_values[1, 0] == 1
    assert found.values("normalised")[0, 1] == 0
