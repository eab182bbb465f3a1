import numpy as np
import pytest
import torch

import mibounds as mb
from mibounds.tasks import JointGaussian

TASK = JointGaussian.dense(x_dim=3, y_dim=2, correlation=0.6)


def test_a_fitted_estimator_measures_held_out_samples():
    x, y = TASK.sample(6000, seed=0)
    estimator = mb.DoE(conditional=mb.FullGaussian(3, 2), marginal=mb.FullGaussian(0, 2))
    g = torch.Generator().manual_seed(0)
    history = mb.fit(estimator, x[:3000], y[:3000], steps=500, seed=g)
    assert len(history) == 50
    assert history[-1] < history[0]
    value = estimator(x[3000:], y[3000:]).item()
    assert value == pytest.approx(TASK.mutual_information, abs=0.05)


def test_the_same_seed_gives_the_same_fit():
    x, y = TASK.sample(500, seed=0)

    def value():
        torch.manual_seed(1)
        estimator = mb.NWJ(3, 2)
        mb.fit(estimator, x, y, steps=20, seed=2)
        return estimator(x, y)

    assert value() == value()


def test_the_mode_is_restored_and_every_step_is_reported():
    x, y = TASK.sample(50, seed=0)
    estimator = mb.CLUB(3, 2).eval()
    seen = []
    mb.fit(estimator, x, y, steps=7, on_step=lambda step, loss: seen.append((step, loss)))
    assert not estimator.training
    assert [step for step, _ in seen] == list(range(7))
    assert all(isinstance(loss, float) for _, loss in seen)


def test_values_that_are_not_finite_are_refused_before_anything_is_fitted():
    x, y = TASK.sample(50, seed=0)
    x[7, 1] = float("nan")
    y[3] = float("inf")
    estimator = mb.CLUB(3, 2)
    before = {k: v.clone() for k, v in estimator.state_dict().items()}
    with pytest.raises(ValueError, match=r"finite x but got NaN .* 1 of 50 rows, first in row 7"):
        mb.fit(estimator, x, y)
    with pytest.raises(ValueError, match=r"finite y but got NaN .* first in row 3; drop or impute"):
        mb.fit(estimator, x.nan_to_num(), y)
    assert all((v == before[k]).all() for k, v in estimator.state_dict().items())


def test_a_fit_that_explodes_says_so():
    x, y = TASK.sample(500, seed=0)
    with pytest.raises(FloatingPointError, match=r"finite learning loss but got .* lower lr"):
        mb.fit(mb.NWJ(3, 2), x, y, steps=200, lr=1e4)


# Held-out samples: when to stop, and which parameters to keep.


class Walker(torch.nn.Module):
    """Training drives w up for ever; the held-out loss, where x is 1, is lowest at w = 1."""

    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter(torch.zeros(()))
        self.register_buffer("steps", torch.zeros(()))

    def learning_loss(self, x, y):
        if self.training:
            self.steps = self.steps + 1
            return -self.w
        assert (x == 1).all()
        return (self.w - 1).square()


def walk(steps=400, **options):
    """A fitted walker, its checks on held-out samples, and w after every step."""
    walker, checks, path = Walker(), [], []
    mb.fit(
        walker,
        torch.zeros(8, 1),
        torch.zeros(8, 1),
        steps=steps,
        lr=0.01,
        on_step=lambda step, loss: path.append(-loss),
        held_out=(torch.ones(4, 1), torch.zeros(4, 1)),
        on_check=lambda *check: checks.append(check),
        **options,
    )
    return walker, checks, path


def test_the_best_parameters_on_held_out_samples_remain():
    walker, checks, path = walk(patience=1000)
    assert path[-1] > 2  # without held-out samples training would have gone on
    step, _, best = min(checks, key=lambda check: check[2])
    assert 24 < step < 399
    assert (walker.w.item() - 1) ** 2 == pytest.approx(best, abs=1e-7)


def test_statistics_are_those_of_the_best_parameters_and_no_check_changes_them():
    walker, checks, path = walk(patience=1000)
    step = min(checks, key=lambda check: check[2])[0]
    assert len(path) == 400
    assert walker.steps.item() == step + 1


def test_averages_are_what_is_checked():
    """They lag behind parameters that go one way."""
    walker, checks, path = walk(patience=1000)
    step = min(checks, key=lambda check: check[2])[0]
    assert 0.5 * path[step] < walker.w.item() < path[step] - 0.05


def test_checks_are_every_25_steps_and_at_the_end():
    _, checks, path = walk(steps=60)
    assert [step for step, _, _ in checks] == [24, 49, 59]
    for step, loss, held_out in checks:
        assert loss == -path[step]
        assert held_out < 1


def test_without_held_out_samples_there_are_no_checks():
    checks = []
    x, y = TASK.sample(50, seed=0)
    mb.fit(mb.CLUB(3, 2), x, y, steps=30, on_check=lambda *check: checks.append(check))
    assert checks == []


def test_the_rate_falls_to_zero():
    _, _, path = walk(patience=1000)
    moves = np.diff(path)
    assert moves[0] == pytest.approx(0.01, rel=1e-3)
    assert moves[199] == pytest.approx(0.005, rel=0.02)
    assert 0 <= moves[-1] < 1e-6


@pytest.mark.parametrize("patience", [30, 100])
def test_it_stops_after_as_many_steps_without_gain(patience):
    _, checks, path = walk(steps=1000, patience=patience)
    best = min(checks, key=lambda check: check[2])[0]
    assert best + patience <= len(path) - 1 < best + patience + 25


def test_what_must_be_beaten_is_given_half_the_patience():
    """w = 1 has loss 0, so 0.2 is beaten in the end; at the check after 50 steps it is not yet."""
    _, checks, path = walk(patience=60, to_beat=0.2)
    assert len(path) == 50
    assert min(held_out for _, _, held_out in checks) >= 0.2
    _, checks, path = walk(patience=200, to_beat=0.2)
    assert len(path) > 200
    _, _, path = walk(patience=200, to_beat=-1.0)  # never beaten
    assert len(path) == 125


def test_held_out_samples_are_checked_like_the_others():
    x, y = TASK.sample(50, seed=0)
    bad = x.clone()
    bad[3, 0] = float("inf")
    with pytest.raises(ValueError, match="finite held-out x but got"):
        mb.fit(mb.CLUB(3, 2), x, y, held_out=(bad, y))
    with pytest.raises(ValueError, match="finite held-out y but got"):
        mb.fit(mb.CLUB(3, 2), x, y, held_out=(x, y * float("nan")))
    with pytest.raises(ValueError, match="Expected"):
        mb.fit(mb.CLUB(3, 2), x, y, held_out=(x, y[:-1]))
