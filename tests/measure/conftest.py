"""Fits that are quick and poor."""

import pytest

from mibounds.measure import estimation
from mibounds.measure.copula_model import Effort


@pytest.fixture
def tiny_effort(monkeypatch):
    """For tests that do not depend on how good a fit is."""
    effort = Effort(
        folds=2, members=1, steps=30, hidden=(16,), components=2, batch_size=32, patience=30
    )
    monkeypatch.setitem(estimation.EFFORTS, "fast", effort)
