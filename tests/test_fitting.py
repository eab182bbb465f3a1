import pytest
import torch

import mibounds as mb
from mibounds.tasks import Gaussian

TASK = Gaussian.dense(x_dim=3, y_dim=2, correlation=0.6)


def test_a_fitted_estimator_measures_held_out_samples():
    x, y = TASK.sample(6000, generator=0)
    estimator = mb.DoE(conditional=mb.FullGaussian(3, 2), marginal=mb.FullGaussian(0, 2))
    g = torch.Generator().manual_seed(0)
    history = mb.fit(estimator, x[:3000], y[:3000], steps=500, generator=g)
    assert len(history) == 50
    assert history[-1] < history[0]
    value = estimator(x[3000:], y[3000:]).item()
    assert value == pytest.approx(TASK.mutual_information, abs=0.05)


def test_the_same_seed_gives_the_same_fit():
    x, y = TASK.sample(500, generator=0)

    def value():
        torch.manual_seed(1)
        estimator = mb.NWJ(3, 2)
        mb.fit(estimator, x, y, steps=20, generator=torch.Generator().manual_seed(2))
        return estimator(x, y)

    assert value() == value()


def test_the_mode_is_put_back_and_every_step_is_reported():
    x, y = TASK.sample(50, generator=0)
    estimator = mb.CLUB(3, 2).eval()
    seen = []
    mb.fit(estimator, x, y, steps=7, on_step=lambda step, loss: seen.append((step, loss)))
    assert not estimator.training
    assert [step for step, _ in seen] == list(range(7))
    assert all(isinstance(loss, float) for _, loss in seen)


def test_values_that_are_no_numbers_are_refused_before_anything_is_fitted():
    x, y = TASK.sample(50, generator=0)
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
    x, y = TASK.sample(500, generator=0)
    with pytest.raises(FloatingPointError, match=r"finite learning loss but got .* lower lr"):
        mb.fit(mb.NWJ(3, 2), x, y, steps=200, lr=1e4)
