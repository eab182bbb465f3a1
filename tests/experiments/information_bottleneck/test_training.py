"""The training of the information bottleneck: side by side, its random numbers, resuming."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from made_up import BOTTLENECK, runs

from experiments.information_bottleneck import experiment as ib
from experiments.information_bottleneck import training
from experiments.information_bottleneck.model import Bottleneck
from experiments.information_bottleneck.training import (
    AveragedStack,
    BottleneckTraining,
    Digits,
    train_runs,
)
from mibounds.estimators.cuda_graphs import restored
from mibounds.estimators.stacked_training import StackedTraining

GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def same(a, b):
    assert a.keys() == b.keys()
    for name in a:
        np.testing.assert_allclose(a[name], b[name], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("mode", "method"),
    [("correct", m) for m in ib.CORRECT]
    + [("recipe", m) for m in ib.RECIPE]
    + [("as-published", m) for m in ib.AS_PUBLISHED],
)
def test_every_bound_trains(mode, method, digits):
    some = runs(method, mode=mode, beta=1e-6)  # few digits, few steps, and I(x; z) is large
    outcomes = train_runs(replace(BOTTLENECK, epochs=8), some, digits, 8)
    for outcome in outcomes:
        assert len(outcome["curve"]) == 8
        assert outcome["curve"][-1] < min(60, outcome["curve"][0])  # chance is 90
        assert outcome["y"][-1] > 0.3
        assert outcome["x_lower"][-1] <= outcome["x_upper"][-1] + 1e-4
    assert outcomes[0]["curve"] != outcomes[1]["curve"]


def test_side_by_side_is_one_at_a_time(digits):
    some = runs("club", "vclub_sample", "nwj")
    together = train_runs(BOTTLENECK, some, digits, 3)
    for run, outcome in zip(some, together, strict=True):
        (alone,) = train_runs(BOTTLENECK, [run], digits, 3)
        same(alone, outcome)


@pytest.mark.parametrize("method", ["club", "mine", "vclub"])
def test_the_recipe_without_its_noise_is_correct(method, digits):
    config = replace(BOTTLENECK, noise=0.0)
    outcomes = [
        train_runs(config, runs(method, mode=mode), digits, 3) for mode in ("correct", "recipe")
    ]
    assert outcomes[0] == outcomes[1]
    with_noise = train_runs(BOTTLENECK, runs(method, mode="recipe"), digits, 3)
    assert with_noise != outcomes[1]


def test_the_estimator_has_a_rate_of_its_own():
    torch.manual_seed(0)
    model = Bottleneck(BOTTLENECK, "correct", "vclub", 0.5)
    stack = AveragedStack([model], [0.01], estimator_rate=3.0)
    before = stack.vector.clone()
    stack.update(torch.ones_like(before))  # the first step of Adam is the rate
    (own, _), (estimator, _) = stack.parts
    assert before[own].shape[0] > 0
    assert before[estimator].shape[0] > 0
    moved = before - stack.vector
    torch.testing.assert_close(moved[own], torch.full_like(moved[own], 0.01), rtol=0, atol=1e-5)
    three = torch.full_like(moved[estimator], 0.03)
    torch.testing.assert_close(moved[estimator], three, rtol=0, atol=1e-5)


def test_every_epoch_and_every_seed_have_an_order_of_their_own(digits):
    def draw(number, seed=0):
        one = BottleneckTraining(BOTTLENECK, runs("none", seeds=(seed,)), digits, 3)
        return torch.cat([v.flatten().double() for b in one.draw(number) for v in b.values()])

    assert torch.equal(draw(0), draw(0))
    assert not torch.equal(draw(0), draw(1))
    assert not torch.equal(draw(0), draw(0, seed=1))


def rehearse(stack, required):
    """What recording does on a GPU: a step that is taken back."""
    with restored(list(stack.tensors().values()), ()):
        stack.step()
    return stack.step


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=GPU)])
def test_interrupted_training_resumes(device, digits, tmp_path, monkeypatch):
    monkeypatch.setattr(training, "EVERY", 2)
    if device == "cpu":
        monkeypatch.setattr(StackedTraining, "record", rehearse)
    arrays = (digits.x, digits.y, digits.x_test, digits.y_test)
    digits = Digits(*(each.to(device) for each in arrays), digits.origin)
    config = replace(BOTTLENECK, checkpoints=str(tmp_path))
    some = runs("club", "mine")
    whole = train_runs(BOTTLENECK, some, digits, 5)
    draw = BottleneckTraining.draw
    started = []

    def break_off(self, number):
        started.append(number)
        if number == 3:
            raise KeyboardInterrupt
        return draw(self, number)

    monkeypatch.setattr(BottleneckTraining, "draw", break_off)
    with pytest.raises(KeyboardInterrupt):
        train_runs(config, some, digits, 5)
    assert started == [0, 0, 1, 1, 2, 2, 3]  # two methods in turn
    assert len(list(tmp_path.iterdir())) == 2
    monkeypatch.setattr(
        BottleneckTraining, "draw", lambda self, n: (started.append(n), draw(self, n))[1]
    )
    started.clear()
    assert train_runs(config, some, digits, 5) == whole
    assert started == [2, 2, 3, 3, 4, 4]
    started.clear()
    assert train_runs(config, some, digits, 5) == whole  # finished: from the last state
    assert started == []


def test_the_plane_does_not_depend_on_how_many_digits_are_measured_at_a_time(digits, monkeypatch):
    found = []
    for part in (training.PART, 7):
        monkeypatch.setattr(training, "PART", part)
        one = BottleneckTraining(BOTTLENECK, runs("club"), digits, 1)
        one.done = 1
        one.test()
        found.append([one.found[name][0] for name in ("x_lower", "x_upper")])
    torch.testing.assert_close(*found)
