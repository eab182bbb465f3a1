"""Two made-up domains."""

from dataclasses import replace

import pytest
from made_up import TRANSFER, domain

from experiments.domain_adaptation.config import TRANSFERS


@pytest.fixture
def domains(monkeypatch):
    """A made-up source and target, registered as a transfer."""
    monkeypatch.setitem(TRANSFERS, "made-up", replace(TRANSFER, classes=10))
    return domain(0), domain(1)
