"""What importing mibounds costs and does, and which module may import which."""

import ast
import inspect
import subprocess
import sys
import tomllib
from graphlib import TopologicalSorter
from pathlib import Path
from types import ModuleType

import pytest

import mibounds as mb

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "mibounds"


def run(code):
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


def test_it_needs_torch_and_numpy_alone():
    new = run(
        "import sys, numpy, torch; before = {m.split('.')[0] for m in sys.modules};"
        "import mibounds; [getattr(mibounds, name) for name in mibounds.__all__];"
        "print(*sorted({m.split('.')[0] for m in sys.modules} - before - sys.stdlib_module_names))"
    )
    assert new == "mibounds"


def test_plots_and_reports_import_matplotlib_when_they_are_made():
    code = (
        "import sys, mibounds.measure.plots, mibounds.measure.report;"
        "print('matplotlib' in sys.modules)"
    )
    assert run(code) == "False"


def test_it_takes_no_more_than_a_moment_over_torch():
    code = (
        "import time, torch; start = time.perf_counter(); import mibounds; mibounds.MIPenalty;"
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
[getattr(mibounds, name) for name in mibounds.__all__]
assert state() == before
"""
    run(code)


def test_no_room_imports_from_a_room_that_imports_from_it(hook):
    """Imports inside functions and for type checkers count too."""
    imports = hook("architecture").find_imports()
    order = list(TopologicalSorter(imports).static_order())  # raises CycleError
    assert {path.stem for path in SOURCE.iterdir()} - set(order) <= {
        "__init__",
        "py",
        "__pycache__",
    }
    assert order.index("samples") < order.index("estimators") < order.index("measure")


def find_module_imports():
    """What each module of the package and of the experiments imports of the others."""
    modules = {}
    for folder in (SOURCE, ROOT / "experiments"):
        for path in folder.rglob("*.py"):
            parts = path.relative_to(folder.parent).with_suffix("").parts
            modules[".".join(part for part in parts if part != "__init__")] = path
    modules.pop("mibounds")  # it imports a room when one of its names is first used
    found = {}
    for name, path in modules.items():
        wanted = set()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module:
                names = {f"{node.module}.{alias.name}" for alias in node.names}
                wanted |= {each if each in modules else node.module for each in names}
        found[name] = wanted & modules.keys() - {name}
    return found


def test_no_module_imports_a_module_that_imports_it():
    imports = find_module_imports()
    assert len(imports) > 100
    assert "mibounds.bounds" in imports["mibounds.estimators.from_conditionals"]
    tuple(TopologicalSorter(imports).static_order())  # raises CycleError


def test_every_public_name_says_what_it_is_by_example():
    for name in mb.__all__:
        thing = getattr(mb, name)
        if not callable(thing):
            continue
        doc = thing.__doc__
        assert ">>>" in doc or inspect.isabstract(thing), name  # docs/extend.md derives from those
        assert doc.splitlines()[0].rstrip().endswith((".", "]")), name


def test_the_front_of_the_house_is_short():
    assert len((SOURCE / "__init__.py").read_text().splitlines()) < 50
    assert (SOURCE / "py.typed").exists()


def test_a_star_import_brings_names_and_no_modules():
    names: dict[str, object] = {}
    exec("from mibounds import *", names)
    del names["__builtins__"]
    assert sorted(names) == sorted(mb.__all__)
    assert not any(isinstance(each, ModuleType) for each in names.values())
    assert {name for name in names if name in mb.ESTIMATORS} == set(mb.ESTIMATORS)
    assert all(names[cls.__name__] is cls for cls in mb.ESTIMATORS.values())


def test_help_does_not_wait_for_torch():
    code = "import sys, mibounds.cli; mibounds.cli.main(['--help']); print('torch' in sys.modules)"
    assert run(code).endswith("False")


def test_the_package_declares_what_it_promises():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["requires-python"] == ">=3.11"
    assert {d.split(">")[0] for d in project["dependencies"]} == {"torch", "numpy"}
    constraints = (ROOT / "constraints.txt").read_text()
    assert "\ntorch==" in constraints


def test_the_citation_is_of_this_version_and_the_paper():
    yaml = pytest.importorskip("yaml", reason="comes with the documentation tools")
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    released = f"## [{citation['version']}] - {citation['date-released']}"
    assert citation["version"] == mb.__version__
    assert released in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    citation = citation["preferred-citation"]
    assert citation["title"].startswith("CLUB: A Contrastive Log-ratio Upper Bound")
    assert [a["family-names"] for a in citation["authors"]] == [
        "Cheng", "Hao", "Dai", "Liu", "Gan", "Carin",
    ]  # fmt: skip
