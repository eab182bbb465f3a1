"""The samples of the removal of a nuisance: what agrees with what, where, and how they look."""

from dataclasses import replace

import pytest
import torch

from experiments.nuisance_removal.config import IMAGES, NuisanceConfig
from experiments.nuisance_removal.samples import (
    DARK,
    backgrounds,
    make_samples,
    palette,
)


def agreement(part):
    return (part.y == part.s).double().mean().item()


@pytest.mark.parametrize("task", IMAGES)
def test_the_nuisance_agrees_in_training_and_not_in_the_test(task, mnist):
    samples = make_samples(task, NuisanceConfig(agreement=0.8), 0)
    assert [len(p) for p in (samples.train, samples.validation, samples.test)] == [500, 100, 300]
    for part in (samples.train, samples.validation, samples.as_trained):
        assert agreement(part) == pytest.approx(0.82, abs=0.09)
    assert agreement(samples.test) == pytest.approx(0.1, abs=0.06)
    assert torch.equal(samples.test.y, samples.as_trained.y)
    assert set(samples.test.s.tolist()) == set(range(10))
    assert samples.origin == "MNIST: plain arrays: unknown content"


def test_a_digit_has_its_colour(mnist):
    samples = make_samples("coloured-mnist", NuisanceConfig(), 0)
    x, y, s = samples.test.take(torch.arange(300))
    digits = torch.from_numpy(mnist["test_images"]) / 255
    expected = digits[:, None] * palette()[s]
    torch.testing.assert_close(x, expected, atol=0.5 / 255 + 1e-6, rtol=0)
    assert torch.equal(y, torch.from_numpy(mnist["test_labels"]).long())
    assert len({tuple(colour.flatten().tolist()) for colour in palette()}) == 10


def test_a_digit_stands_on_its_background(mnist):
    samples = make_samples("cluttered-mnist", NuisanceConfig(), 0)
    x, _, s = samples.train.take(slice(100))
    digits = torch.from_numpy(mnist["train_images"][:100])[:, None].expand(-1, 3, -1, -1)
    behind = backgrounds()[s]
    assert (x[digits == 255] == 1).all()
    torch.testing.assert_close(x[digits == 0], behind[digits == 0], atol=0.5 / 255 + 1e-6, rtol=0)
    apart = torch.cdist(backgrounds().flatten(1), backgrounds().flatten(1))
    assert (apart + 99 * torch.eye(10)).min() > 3
    assert backgrounds().max() <= DARK + 1e-6


@pytest.mark.parametrize("task", [*IMAGES, "biased-table"])
def test_the_seed_decides(task, mnist):
    config = NuisanceConfig(rows=100)
    one, same, other = (make_samples(task, config, seed) for seed in (0, 0, 1))
    for name in ("train", "validation", "test", "as_trained"):
        a, b, c = (getattr(each, name) for each in (one, same, other))
        assert torch.equal(a.x, b.x)
        assert torch.equal(a.s, b.s)
        assert not torch.equal(a.s, c.s)


def test_fewer_images(mnist):
    samples = make_samples("coloured-mnist", NuisanceConfig(images=120, holdout=0.25), 0)
    parts = (samples.train, samples.validation, samples.test, samples.as_trained)
    assert [len(part) for part in parts] == [90, 30, 120, 120]


def test_decisions_by_merit_do_not_depend_on_the_attribute():
    samples = make_samples("biased-table", NuisanceConfig(rows=40_000), 0)
    assert torch.equal(samples.test.x, samples.as_trained.x)
    assert torch.equal(samples.test.s, samples.as_trained.s)
    assert samples.test.y.double().mean().item() == pytest.approx(0.5, abs=0.02)
    for part, gap in ((samples.test, 0.0), (samples.as_trained, 0.63), (samples.train, 0.63)):
        y, one = part.y.double(), part.s == 1
        # Past decisions: the score has variance 5 and a mean of ±2.
        assert (y[one].mean() - y[~one].mean()).item() == pytest.approx(gap, abs=0.02)
    side = 2.0 * samples.train.s - 1
    proxies = samples.train.x[:, 4:]
    torch.testing.assert_close(
        (side[:, None] * proxies).mean(0), 0.8 * torch.ones(4), atol=0.02, rtol=0
    )


def test_an_unknown_task_is_refused():
    with pytest.raises(ValueError, match=r"Expected a task among coloured-mnist, .* but got 'x'"):
        make_samples("x", NuisanceConfig(), 0)


def test_they_move_to_a_device():
    samples = make_samples("biased-table", NuisanceConfig(rows=40), 0)
    moved = samples.to("meta")
    assert moved.train.x.device.type == moved.as_trained.s.device.type == "meta"
    assert replace(moved, train=samples.train).classes == 2
