"""Shapes and dtypes in the signatures of mibounds are checked at run time in all tests."""

import importlib
import importlib.util
import json
import os
import pkgutil
import subprocess
import sys
import typing
from pathlib import Path

import beartype  # noqa: F401
import jaxtyping
import matplotlib.figure  # noqa: F401
import pytest
import torch  # these two before mibounds, whose annotations are to be read below

# mibounds needs jaxtyping for annotations alone, so it imports it only while types are checked.
typing.TYPE_CHECKING = True
with jaxtyping.install_import_hook("mibounds", "beartype.beartype"):
    import mibounds

    for module in pkgutil.walk_packages(mibounds.__path__, "mibounds."):
        # mibounds.sklearn needs scikit-learn while types are checked.
        if (
            not module.name.endswith(("__main__", "triton_kernels"))
            and "sklearn" not in module.name
        ):
            importlib.import_module(module.name)
typing.TYPE_CHECKING = False

ROOT = Path(__file__).parents[1]

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


@pytest.fixture(scope="session")
def launcher():
    """The process of `launcher.py`, for all tests."""
    process = subprocess.Popen(
        [sys.executable, ROOT / "tests" / "support" / "launcher.py"],
        cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    with process:
        yield process


@pytest.fixture(scope="session")
def run_script(launcher, tmp_path_factory):
    """Run a script of the repository in a process of its own, as a user would, but sooner."""

    def run(*command):
        folder = tmp_path_factory.mktemp("streams")
        files = [folder / name for name in ("out", "err")]
        request = [*map(str, command)], dict(os.environ), [*map(str, files)]
        print(json.dumps(request), file=launcher.stdin, flush=True)
        status = int(launcher.stdout.readline())
        return subprocess.CompletedProcess(command, status, *(file.read_text() for file in files))

    return run


@pytest.fixture(scope="session")
def hook():
    """Load a hook of the documentation by its name."""

    def load(name):
        path = ROOT / "docs" / "hooks" / f"{name}.py"
        spec = importlib.util.spec_from_file_location(name, path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return load


@pytest.fixture
def sets(tmp_path, monkeypatch):
    """The folder of this test, with a few made-up images of every data set."""
    from made_up import write_sets

    write_sets(tmp_path)
    monkeypatch.setenv("MIBOUNDS_DATA", str(tmp_path))
    monkeypatch.setenv("MIBOUNDS_CACHE", str(tmp_path / "cache"))
    return tmp_path


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A cache of data of this test's own, and no folder of data."""
    monkeypatch.delenv("MIBOUNDS_DATA", raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("MIBOUNDS_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"
