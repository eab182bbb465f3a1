"""Shapes and dtypes in the signatures of mibounds are checked at run time in all tests."""

import os
import typing

import beartype  # noqa: F401
import jaxtyping
import matplotlib.figure  # noqa: F401
import pytest
import torch  # these two before mibounds, whose annotations are to be read below

# mibounds needs jaxtyping for annotations alone, so it imports it only while types are checked.
typing.TYPE_CHECKING = True
with jaxtyping.install_import_hook("mibounds", "beartype.beartype"):
    import mibounds
    import mibounds.cli
    import mibounds.datasets
    import mibounds.report
    import mibounds.tasks  # noqa: F401
typing.TYPE_CHECKING = False

# Small tensors: threads only wait for each other, here and in the commands that tests run.
torch.set_num_threads(1)
os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


@pytest.fixture
def unchecked(monkeypatch):
    """As users run it: without the tests' own check of shapes, so that ours is what answers."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
