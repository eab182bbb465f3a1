"""Entropies of labels and of numbers."""

import math

import numpy as np
import pytest
from scipy import stats

import mibounds as mb
from mibounds.measure.entropies import LABELS, count_entropy

rng = np.random.default_rng(0)


def plain_chao_wang_jost(counts):
    """The equation as it stands, with loops."""
    n = sum(counts)
    once, twice = counts.count(1), counts.count(2)
    total = sum(c / n * sum(1 / k for k in range(c, n)) for c in counts)
    if not once:
        return total
    a = 2 * twice / ((n - 1) * once + 2 * twice) if twice else 2 / ((n - 1) * (once - 1) + 2)
    if a == 1:
        return total
    tail = -math.log(a) - sum((1 - a) ** r / r for r in range(1, n))
    return total + once / n * (1 - a) ** (1 - n) * tail


@pytest.mark.parametrize(
    "counts", [[5, 3, 2, 1, 1], [4, 4], [1, 9], [1, 1, 1, 1, 1, 7], [2, 2, 2, 1], [12, 1, 1, 1]]
)
def test_the_estimate_of_labels_is_the_plain_equation(counts):
    found = count_entropy(np.array(counts), "chao_wang_jost")
    assert found == pytest.approx(plain_chao_wang_jost(counts))


def test_both_sums_of_the_tail_are_the_same():
    found = [count_entropy(np.array([1] * k + [2] * 3 + [30]), LABELS[0]) for k in (2, 40)]
    assert found == pytest.approx([plain_chao_wang_jost([1] * k + [2] * 3 + [30]) for k in (2, 40)])


@pytest.mark.parametrize("method", LABELS)
def test_every_estimate_of_labels_comes_to_the_truth(method):
    found = mb.entropy(rng.choice(["a", "b", "c"], 6000, p=[0.5, 0.25, 0.25]), method=method)
    assert found.bits == pytest.approx(1.5, abs=0.03)
    assert found.method == method
    assert found.name == "H(x)"


def test_labels_that_were_not_met_are_accounted_for():
    truth, held = math.log(100), []
    for s in range(60):
        labels = np.random.default_rng(s).integers(100, size=150)
        found = mb.entropy(labels, kinds="discrete")
        held.append(found.interval[0] < truth < found.interval[1])
        plain = mb.entropy(labels, kinds="discrete", method="plug_in")
        assert plain.nats < found.nats
    assert np.mean(held) > 0.9


def test_several_columns_are_one_label_and_one_value_has_no_entropy():
    a, b = rng.integers(2, size=(2, 3000))
    assert mb.entropy(np.stack([a, b, a], 1)).bits == pytest.approx(2, abs=0.02)
    none = mb.entropy(np.zeros(100), kinds="discrete")
    assert (none.nats, none.interval) == (0.0, (0.0, 0.0))


@pytest.mark.parametrize(
    ("law", "abs"),
    [(stats.norm(3, 10), 0.1), (stats.expon(), 0.1), (stats.t(3), 0.1), (stats.uniform(), 0.1)],
)
def test_numbers(law, abs):
    found = mb.entropy(law.rvs(2000, random_state=1))
    assert found.nats == pytest.approx(law.entropy(), abs=abs)
    assert found.interval[0] < law.entropy() < found.interval[1]
    assert found.name == "h(x)"


@pytest.mark.parametrize("columns", [2, 3, 4])
def test_several_columns_of_numbers(columns):
    mixing = np.eye(columns) + 0.5 * np.tri(columns)
    x = rng.normal(size=(800, columns)) @ mixing.T
    truth = columns / 2 * math.log(2 * math.pi * math.e) + np.linalg.slogdet(mixing)[1]
    found = mb.entropy(x)
    assert found.nats == pytest.approx(truth, abs=0.25)
    assert found.method == ("neighbours" if columns < 4 else "neighbours and copula_model")
    assert mb.entropy(10 * x).nats == pytest.approx(found.nats + columns * math.log(10), abs=1e-6)


def test_rounded_numbers_have_noise_within_their_rounding():
    x = rng.normal(size=2000)
    truth = stats.norm().entropy()
    assert mb.entropy(x.round(1)).nats == pytest.approx(truth, abs=0.1)


def test_intervals_hold_the_truth():
    held = []
    for s in range(100):
        found = mb.entropy(np.random.default_rng(s).exponential(size=300))
        held.append(found.interval[0] < 1 < found.interval[1])
    assert np.mean(held) >= 0.9


def test_blocks_widen_the_interval():
    x = np.repeat(rng.integers(4, size=50), 20)
    one, many = (mb.entropy(x, block=each).error for each in (1, 50))
    assert many > one


def test_what_is_refused():
    x = rng.normal(size=50)
    for data, settings, match in (
        (x, {"method": "nsb"}, "method among chao_wang_jost, .* but got 'nsb'"),
        (x, {"level": 0.0}, "level between 0 and 1"),
        (np.where(x > 1, np.nan, x), {}, "x without missing values"),
        (x[:19], {}, "at least 20 rows but got 19"),
        (np.c_[x, x > 0], {"kinds": ["continuous", "discrete"]}, "labels or numbers but got both"),
        (np.c_[x, np.ones(50)], {"kinds": "continuous"}, "numbers that vary but got 1 columns"),
    ):
        with pytest.raises(ValueError, match=match) as error:
            mb.entropy(data, **settings)
        assert str(error.value).startswith("Expected ")
