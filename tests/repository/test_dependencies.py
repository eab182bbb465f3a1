"""The versions that are declared, tested and named on the page of dependencies."""

import re
import tomllib
from pathlib import Path

import pytest

from pages.dependencies import declared, licence

ROOT = Path(__file__).parents[2]
TOOLS = {"docs", "dev"}  # of which the tests need some


def pins(name):
    lines = (ROOT / name).read_text().splitlines()
    return dict(line.lower().split("==") for line in lines if line and not line.startswith("#"))


def numbers(version):
    return [int(part) for part in re.findall(r"\d+", version)] + [0, 0, 0]


def test_the_oldest_versions_that_are_declared_are_those_that_are_tested():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    oldest, known = pins("constraints-oldest.txt"), declared()
    wanted = [project["dependencies"]]
    wanted += [v for k, v in project["optional-dependencies"].items() if k not in TOOLS]
    names = {re.match(r"[\w-]+", text)[0].lower() for texts in wanted for text in texts}
    assert names - {"mibounds"} <= set(oldest)
    bounds = {name.lower(): bound for name, (_, bound) in known.items()}
    assert set(oldest) <= set(bounds)
    assert {name: numbers(version)[:3] for name, version in oldest.items() if name != "torch"} == {
        name: numbers(bounds[name])[:3] for name in oldest if name != "torch"
    }
    assert numbers(oldest["torch"]) >= numbers(bounds["torch"])


def test_what_is_declared_is_pinned_above_its_oldest_version():
    tested = pins("constraints.txt")
    for name, (_, bound) in declared().items():
        assert numbers(tested[name.lower()]) >= numbers(bound), name


@pytest.mark.parametrize("name", sorted(declared()))
def test_every_licence_is_known(name):
    assert re.search(r"MIT|BSD|Apache|ISC|MPL|Python Software Foundation", licence(name))
