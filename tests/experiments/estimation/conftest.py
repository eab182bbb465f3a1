"""Float64, in which rounding that grows from step to step stays out of sight."""

import pytest
import torch


@pytest.fixture
def double():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)
