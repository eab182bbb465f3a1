"""What importing mibounds costs and does, and which module may import which."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import mibounds as mb

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "mibounds"

# Imports go downwards: from a line to the lines above it, or within a line to what is named in it.
ORDER = [
    {"distributed", "sums", "plots", "eager", "recordings", "gpu_kernels"},
    {"commands", "files", "formats", "terminal"},
    {"samples", "nn", "pairs", "compilers", "columns", "tables", "estimates"},
    {"conditionals", "critics", "families", "bounds", "tasks", "classical", "report"},
    {"datasets"},
    {"densities", "copulas"},
    {"functional"},
    {"estimators"},
    {"fitting", "regressions", "rows", "stacks"},
    {"ensembles", "evaluation", "bridges"},
    {"diagnostics"},
    {"estimation", "watches", "replays"},
    {"penalty"},
    {"experiments"},
    {"cli"},
    {"__main__"},
]


def run(code):
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


def test_it_needs_torch_and_numpy_alone():
    new = run(
        "import sys, numpy, torch; before = {m.split('.')[0] for m in sys.modules};"
        "import mibounds;"
        "print(*sorted({m.split('.')[0] for m in sys.modules} - before - sys.stdlib_module_names))"
    )
    assert new == "mibounds"


def test_plots_and_reports_import_matplotlib_when_they_are_made():
    code = "import sys, mibounds.plots, mibounds.report; print('matplotlib' in sys.modules)"
    assert run(code) == "False"


def test_it_takes_no_more_than_a_moment_over_torch():
    code = (
        "import time, torch; start = time.perf_counter(); import mibounds;"
        "print(time.perf_counter() - start)"
    )
    assert min(float(run(code)) for _ in range(3)) < 0.3


def test_it_has_no_side_effects(tmp_path):
    code = f"""
import os, random, threading
import numpy, torch
os.chdir({str(tmp_path)!r})
def state():
    return (
        torch.random.get_rng_state().tolist(), numpy.random.get_state()[1].tolist(),
        random.getstate(), torch.get_default_dtype(), torch.get_num_threads(),
        torch.is_grad_enabled(), threading.active_count(), dict(os.environ), os.listdir(),
        torch.distributions.Distribution._validate_args,
    )
before = state()
import mibounds
assert state() == before
"""
    run(code)


def test_imports_follow_the_flow(hook):
    level = {name: i for i, names in enumerate(ORDER) for name in names}
    imports = hook("architecture").find_imports()
    assert set(level) == set(imports), "each module has its place in the flow"
    for own, others in imports.items():
        for other in others:
            assert level[other] < level[own], f"{own} imports {other}"


def test_every_public_name_says_what_it_is_by_example():
    for name in dir(mb):
        thing = getattr(mb, name)
        if name.startswith("_") or not callable(thing):
            continue
        doc = thing.__doc__
        assert ">>>" in doc, name
        assert doc.splitlines()[0].rstrip().endswith((".", "]")), name


def test_the_front_of_the_house_is_short():
    assert len((SOURCE / "__init__.py").read_text().splitlines()) < 40
    assert (SOURCE / "py.typed").exists()


def test_the_package_declares_what_it_promises():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["requires-python"] == ">=3.11"
    assert {d.split(">")[0] for d in project["dependencies"]} == {"torch", "numpy"}
    constraints = (ROOT / "constraints.txt").read_text()
    assert "\ntorch==" in constraints


def test_the_citation_is_the_paper():
    yaml = pytest.importorskip("yaml", reason="comes with the documentation tools")
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())["preferred-citation"]
    assert citation["title"].startswith("CLUB: A Contrastive Log-ratio Upper Bound")
    assert [a["family-names"] for a in citation["authors"]] == [
        "Cheng", "Hao", "Dai", "Liu", "Gan", "Carin",
    ]  # fmt: skip
