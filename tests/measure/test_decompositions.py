"""What several variables share, against closed forms."""

import json
import math

import numpy as np
import pandas as pd
import pytest

import mibounds as mb

LN2 = math.log(2)
H = 0.25 * math.log(4) + 0.75 * math.log(4 / 3)  # entropy of a and b
ALONE = H - 0.5 * LN2


def bits(n=1500, seed=0):
    return np.random.default_rng(seed).integers(2, size=(2, n))


def values(found):
    parts = found.redundancy, found.unique_x1, found.unique_x2, found.synergy
    return [part.nats for part in parts]


GATES = {
    "xor": (lambda a, b: (a, b, a ^ b), (0, 0, 0, LN2)),
    "and": (lambda a, b: (a, b, a & b), (ALONE, 0, 0, H - ALONE)),
    "copy": (lambda a, b: (a, b, 2 * a + b), (LN2, 0, 0, LN2)),
    "redundant": (lambda a, _: (a, a, a), (LN2, 0, 0, 0)),
    "unique": (lambda a, b: (a, b, a), (0, LN2, 0, 0)),
}


@pytest.mark.parametrize("gate", GATES)
def test_gates(gate):
    make, truth = GATES[gate]
    found = mb.decompose(*make(*bits()))
    assert values(found) == pytest.approx(truth, abs=0.03)
    one, two, both = found.information
    assert found.redundancy.nats + found.unique_x1.nats == pytest.approx(one.nats, abs=2e-3)
    assert found.redundancy.nats + found.unique_x2.nats == pytest.approx(two.nats, abs=2e-3)
    assert sum(values(found)) == pytest.approx(both.nats, abs=1e-2)
    assert found.interaction.nats == pytest.approx(truth[3] - truth[0], abs=0.03)
    for part, exact in zip(found.rows, truth, strict=False):
        assert part.interval[0] - 1e-9 <= exact <= part.interval[1] + 1e-9


@pytest.mark.parametrize("method", ["gaussian", "copula_model"])
def test_gaussians(method):
    rng = np.random.default_rng(1)
    x1 = rng.normal(size=(1200, 2))
    x2 = 0.5 * x1[:, :1] + rng.normal(size=(1200, 1))
    y = x1.sum(1, keepdims=True) + x2 + rng.normal(size=(1200, 1))
    s = np.cov(np.hstack([x1, x2, y]).T)  # of the samples, so that only the estimates err

    def information(left):
        det = lambda rows: np.linalg.slogdet(s[np.ix_(rows, rows)])[1]  # noqa: E731
        return 0.5 * (det(left) + det([3]) - det([*left, 3]))

    one, two, both = information([0, 1]), information([2]), information([0, 1, 2])
    found = mb.decompose(x1, x2, y, method=method, budget="fast")
    truth = min(one, two), max(one - two, 0), max(two - one, 0), both - max(one, two)
    assert values(found) == pytest.approx(truth, abs=0.04)
    assert found.redundancy.method == method
    again = mb.interaction(x1, x2, y, method=method, budget="fast")
    assert again.nats == pytest.approx(both - one - two, abs=0.06)
    total = mb.total_correlation(x1, x2, y, method=method, budget="fast")
    independent = 0.5 * (
        np.linalg.slogdet(s[:2, :2])[1] + np.log(s[2, 2] * s[3, 3]) - np.linalg.slogdet(s)[1]
    )
    assert total.nats == pytest.approx(independent, abs=0.06)


def test_the_interaction_is_the_same_whichever_is_the_target():
    a, b = bits()
    c = (a & b) ^ (np.random.default_rng(3).random(1500) < 0.2)
    found = [mb.interaction(*order).nats for order in ((a, b, c), (a, c, b), (c, b, a))]
    assert found == pytest.approx([found[0]] * 3)
    assert mb.interaction(a, b, a ^ b).nats > 0 > mb.interaction(a, a, a).nats


def test_errors_of_differences_know_that_parts_rise_together():
    a, b = bits(400)
    noisy = np.where(np.random.default_rng(1).random(400) < 0.2, b, a)
    found = mb.decompose(a, a, noisy)
    one = found.information[0]
    assert found.unique_x1.interval[1] < one.error  # not the root of two errors
    assert found.unique_x1.nats == 0


def plain_imin(joint):
    """I_min of p(x1, x2, y), with loops."""
    p_y = joint.sum((0, 1))
    total = 0.0
    for y, p in enumerate(p_y):
        says = []
        for axis in (1, 0):
            p_xy = joint.sum(axis)
            says.append(
                sum(
                    p_xy[x, y] / p * math.log(p_xy[x, y] / p_xy[x].sum() / p)
                    for x in range(len(p_xy))
                    if p_xy[x, y]
                )
            )
        total += p * min(says)
    return total


def test_imin_is_the_plain_equation():
    rng = np.random.default_rng(0)
    joint = rng.dirichlet(np.full(18, 0.7)).reshape(2, 3, 3)
    cells = rng.choice(18, size=20_000, p=joint.ravel())
    x1, x2, y = np.unravel_index(cells, joint.shape)
    found = mb.decompose(x1, x2, y, definition="imin")
    counts = np.bincount(cells, minlength=18).reshape(joint.shape) / 20_000
    assert found.redundancy.nats == pytest.approx(plain_imin(counts), abs=1e-3)  # less its bias
    assert found.redundancy.interval[0] < plain_imin(joint) < found.redundancy.interval[1]
    assert found.redundancy.nats <= mb.decompose(x1, x2, y).redundancy.nats + 1e-9
    assert found.definition == "imin"


def test_the_error_of_imin_is_that_of_many_repetitions():
    found = []
    for s in range(200):
        a, _ = bits(300, s)
        noise = np.random.default_rng([s, 1]).random((2, 300)) < 0.15
        found.append(mb.decompose(a, a ^ noise[0], a ^ noise[1], definition="imin").redundancy)
    spread = np.std([part.nats for part in found])
    assert np.mean([part.error for part in found]) == pytest.approx(spread, rel=0.2)


def test_total_correlation_of_labels():
    a, b = bits()
    assert mb.total_correlation(a, a, a).nats == pytest.approx(2 * LN2, abs=0.01)
    assert mb.total_correlation(a, b, a ^ b).nats == pytest.approx(LN2, abs=0.01)
    none = mb.total_correlation(a, b, np.roll(a, 7))
    assert none.interval[0] == 0
    assert mb.total_correlation(a, a ^ b).nats == pytest.approx(0, abs=0.01)


def test_blocks_widen_the_intervals():
    a, b = np.repeat(bits(100), 10, axis=1)
    noisy = np.where(np.random.default_rng(0).random(1000) < 0.3, b, a)
    alone, blocks = (mb.decompose(a, b, noisy, block=each) for each in (1, 50))
    assert blocks.synergy.error != alone.synergy.error
    assert blocks.synergy.nats == alone.synergy.nats


def test_what_is_refused():
    a, b = bits(100)
    x = np.random.default_rng(0).normal(size=100)
    holes = np.where(np.arange(100) < 3, np.nan, x)
    for arguments, settings, match in (
        ((a, b, a ^ b), {"definition": "ince"}, 'definition "mmi" or "imin" but got \'ince\''),
        ((a, b, x), {"definition": "imin"}, 'labels for "imin" but got numbers'),
        ((a, b, x), {"method": "counts"}, "counts .labels.* but got 'counts' for continuous and"),
        ((a, b, a), {"method": "ksg"}, "but got 'ksg' for discrete columns"),
        ((a, b, x[:70]), {}, "as many rows of y as of x1 but got 70 and 100"),
        ((a[:40], b[:40], a[:40]), {}, "at least 50 rows but got 40"),
        ((a, b, holes), {}, "y without missing values but got 3"),
        ((a, np.ones(100), b), {}, "x2 to vary but got one value"),
        ((a, b, a), {"level": 2.0}, "level between 0 and 1 but got 2.0"),
        ((a, b, a), {"budget": "huge"}, "budget among default, fast but got 'huge'"),
    ):
        with pytest.raises(ValueError, match=match) as error:
            mb.decompose(*arguments, **settings)
        assert str(error.value).startswith("Expected ")
    with pytest.raises(ValueError, match="at least two groups but got 1"):
        mb.total_correlation(a)


def test_results_are_shown_and_kept():
    a, b = bits(200)
    found = mb.decompose(a, pd.Series(b, name="b"), a & b)
    text = str(found)
    assert text.splitlines()[0].startswith("redundancy    ")
    assert "redundancy by mmi; 95 % intervals, by counts, 200 rows" in text
    assert "I(x1, x2; y)" in found._repr_html_()
    frame = found.to_frame()
    assert list(frame["name"])[:2] == ["redundancy", "unique_x1"]
    assert json.loads(found.to_json())["synergy"]["nats"] == found.synergy.nats
    total = mb.total_correlation(a, b)
    assert json.loads(total.to_json())["bits"] == pytest.approx(total.nats / LN2)
    assert "total correlation" in total._repr_html_()
