"""The Gaussian copula with learned corrections, part by part."""

import math

import numpy as np
import pytest
import torch

import mibounds as mb
from mibounds import bridges
from mibounds.bridges import Effort, Mixture, gaussian_information, measure_bridge
from mibounds.columns import as_columns

QUICK = Effort(folds=2, members=1, steps=250, hidden=(32, 32), components=4, patience=100)


def folds(n, k=2):
    return np.array_split(np.random.default_rng(0).permutation(n), k)


def measure(x, y, given=None, effort=QUICK):
    sides = [None if s is None else as_columns("s", s).scored() for s in (x, y, given)]
    return measure_bridge(*sides, folds(len(sides[0]), effort.folds), effort, 0)


def gaussian(n, seed, noise=1.0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 3))
    return x, x[:, :2] + noise * rng.normal(size=(n, 2))


def test_gaussian_information_is_the_closed_form_without_bias():
    """At n = 40 the maximum likelihood estimate is too large by a sixth of a nat."""
    values = [gaussian_information(*gaussian(40, s), np.empty((40, 0)))[0] for s in range(400)]
    error = np.std(values) / math.sqrt(len(values))
    assert abs(np.mean(values) - math.log(2)) < 3 * error < 0.05


def test_gaussian_information_given_something():
    """x and y share z; given z nothing is left."""
    rng = np.random.default_rng(0)
    z, e = rng.normal(size=(5000, 2)), rng.normal(size=(5000, 4))
    x, y = z + e[:, :2], z[:, :1] + e[:, 2:3]
    assert gaussian_information(x, y, z)[0] == pytest.approx(0, abs=0.005)
    assert gaussian_information(x, y, z[:, :0])[0] > 0.1


def test_gaussian_information_needs_rows():
    with pytest.raises(ValueError, match="more rows than the 6 columns"):
        gaussian_information(np.eye(5)[:, :4], np.eye(5)[:, :2], np.empty((5, 0)))


def test_a_gaussian_needs_no_correction_and_gets_the_closed_form():
    found = measure(*gaussian(2000, 1))
    assert found.nats == pytest.approx(math.log(2), abs=0.08)
    assert abs(found.nats - found.gaussian) < 0.01
    assert found.pointwise.mean() == pytest.approx(found.nats)


def test_a_correction_sees_what_the_gaussian_cannot():
    rng = np.random.default_rng(2)
    x = rng.normal(size=(3000, 2))
    y = (x**2).sum(1, keepdims=True) + rng.normal(size=(3000, 1))
    found = measure(x, y)
    assert found.gaussian < 0.02
    assert 0.4 < found.nats < 0.8
    assert found.lower
    assert np.mean(found.lower) <= np.mean(found.upper) <= np.mean(found.club)


def test_labels_by_a_classifier():
    rng = np.random.default_rng(3)
    y = rng.integers(0, 3, 3000)
    x = np.stack([y + 0.05 * rng.normal(size=3000), rng.normal(size=3000)], 1)
    effort = Effort(folds=2, members=1, steps=600, hidden=(32, 32))
    found = measure(x, y, effort=effort)
    assert found.nats == pytest.approx(math.log(3), abs=0.05)
    swapped = measure(y, x, effort=effort)
    assert swapped.nats == pytest.approx(found.nats, abs=0.02)


def test_mixed_columns_by_the_chain_rule():
    """A label worth log 2 and, apart from it, a number worth log(2)/2."""
    rng = np.random.default_rng(4)
    label, x = rng.integers(0, 2, 4000), rng.normal(size=4000)
    left = np.stack([label, x], 1)
    right = np.stack([label, x + rng.normal(size=4000)], 1)
    found = measure(left, right)
    assert found.nats == pytest.approx(1.5 * math.log(2), abs=0.08)
    assert not found.lower


def test_given_removes_what_is_shared():
    rng = np.random.default_rng(5)
    z = rng.normal(size=(3000, 1))
    x, y = z + rng.normal(size=(3000, 1)), z + rng.normal(size=(3000, 1))
    assert measure(x, y).nats > 0.1
    assert measure(x, y, z).nats == pytest.approx(0, abs=0.02)


def test_given_a_label():
    """The xor of two labels shares nothing with either, and one bit given the other."""
    rng = np.random.default_rng(6)
    a, b = rng.integers(0, 2, (2, 2000))
    assert measure(a, a ^ b).nats == pytest.approx(0, abs=0.02)
    assert measure(a, a ^ b, b).nats == pytest.approx(math.log(2), abs=0.1)


def test_no_row_is_evaluated_by_a_model_of_itself(monkeypatch):
    seen = []
    fit = bridges.fit

    def spy(model, x, y, **options):
        seen.append((y, options["held_out"][1]))
        return fit(model, x, y, **options)

    monkeypatch.setattr(bridges, "fit", spy)
    n = 800
    y = np.arange(n)[:, None] + 0.5  # a row is known by its value
    x = np.random.default_rng(0).normal(size=(n, 2))
    columns = as_columns("x", x), as_columns("y", y)
    parts = folds(n)
    measure_bridge(*columns, None, parts, QUICK, 0)
    for fold, (train, check) in enumerate(seen):
        outside = len(parts[1 - fold])
        assert len(train) + len(check) == outside
        assert len(check) == 50


def test_the_same_seed_gives_the_same_number():
    x, y = gaussian(600, 7)
    y = y**3 + x[:, :1] ** 2
    assert measure(x, y).nats == measure(x, y).nats


def test_a_mixture_is_a_density():
    torch.manual_seed(0)
    model = Mixture(2, 1, QUICK)
    for p in model.parameters():
        torch.nn.init.normal_(p, std=0.5)
    grid = torch.linspace(-60, 60, 40001)[:, None]
    a = torch.randn(2).expand(len(grid), 2)
    mass = torch.trapezoid(model.log_prob(a, grid).exp(), grid[:, 0])
    assert mass.item() == pytest.approx(1, abs=1e-3)


def test_all_pairs_are_those_of_one_by_one():
    torch.manual_seed(0)
    models = [Mixture(2, 3, QUICK) for _ in range(2)]
    for model in models:
        for p in model.parameters():
            torch.nn.init.normal_(p, std=0.3)
        model.requires_grad_(False)
    a, t, s = torch.randn(70, 2), torch.randn(70, 3), torch.randn(70, 3)
    scores = bridges._pairs(models, a, t, s)
    for i, j in ((0, 0), (3, 65), (69, 1)):
        e = (t[j] - s[i])[None]
        one = torch.stack([m.log_prob(a[i : i + 1], e) for m in models]).logsumexp(0) - math.log(2)
        assert scores[i, j].item() == pytest.approx(one.item(), abs=1e-4)


def test_which_side_is_modelled():
    rng = np.random.default_rng(0)
    x, y = as_columns("x", rng.normal(size=(50, 3))), as_columns("y", rng.normal(size=(50, 2)))
    label = as_columns("z", np.arange(50) % 2)
    assert bridges.choose_target(x, y) == (y, x)
    assert bridges.choose_target(y, x) == (y, x)
    assert bridges.choose_target(x, label)[0] is label
    assert bridges.choose_target(label, x)[0] is label


@pytest.mark.parametrize("name", ["student-1", "swiss-roll"])
def test_it_comes_near_to_truths_that_are_not_gaussian(name):
    task = mb.TASKS[name]
    x, y = task.sample(4000, generator=0)
    effort = Effort(folds=2, members=1, steps=600)
    found = measure(x, y, effort=effort)
    assert found.nats == pytest.approx(task.mutual_information, abs=0.12)
