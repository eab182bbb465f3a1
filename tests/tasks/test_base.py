import re

import numpy as np
import pytest
import torch

from mibounds.tasks import CorrelatedGaussian, Task
from mibounds.tasks.base import dot, freeze


@pytest.mark.parametrize("n", [0, -1, 2.0, "3"])
@pytest.mark.usefixtures("unchecked")
def test_sample_size(n):
    message = f"Expected n to be an integer of at least 1 but got {n!r}; give n as a positive"
    with pytest.raises(ValueError, match=re.escape(message)):
        CorrelatedGaussian(2, 0.5).sample(n, 0)


@pytest.mark.usefixtures("unchecked")
def test_numpy_integers_are_integers():
    task = CorrelatedGaussian(2, 0.5)
    x, _ = task.sample(np.int64(3), np.int64(7))
    assert torch.equal(x, task.sample(3, 7)[0])


def test_default_dtype_is_followed():
    torch.set_default_dtype(torch.float64)
    try:
        x, y = CorrelatedGaussian(2, 0.5).sample(3, 0)
    finally:
        torch.set_default_dtype(torch.float32)
    assert x.dtype == y.dtype == torch.float64


def test_conditional_is_optional():
    class Critic(Task):
        mutual_information = 0.0

        def log_ratio(self, x, y):
            return x[..., 0]

        def draw(self, n, generator, dtype):
            return torch.zeros(n, 1), torch.zeros(n, 1)

    with pytest.raises(NotImplementedError, match=r"Critic does not know its .*; use log_ratio"):
        Critic().conditional(torch.zeros(1, 1))


@pytest.mark.parametrize("values", [((1.0, 2.0), (3.0,)), (1.0, 2.0), (("a",),), ((np.nan,),), ()])
def test_freeze_refuses(values):
    message = "Expected table to be finite numbers nested 2 deep with rows of equal length but got"
    with pytest.raises(ValueError, match=message):
        freeze("table", values, 2)


def test_freeze_makes_tuples():
    assert freeze("table", np.eye(2), 2) == ((1.0, 0.0), (0.0, 1.0))
    assert freeze("table", [[1, 2]], 2) == ((1.0, 2.0),)


def test_dot_of_all_pairs():
    x, y = torch.randn(3, 4, dtype=torch.float64), torch.randn(5, 4, dtype=torch.float64)
    torch.testing.assert_close(dot(x[:, None], y[None]), x @ y.T)
