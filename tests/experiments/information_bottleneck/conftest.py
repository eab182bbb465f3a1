"""Made-up digits."""

import made_up
import pytest


@pytest.fixture
def digits():
    """Ten blurred prototypes with noise, as bytes."""
    return made_up.digits()
