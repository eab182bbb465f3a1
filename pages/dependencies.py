"""The packages that mibounds needs: for what, from which version on, under which licence."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import metadata

from pages.results import ROOT
from pages.texts import table


def packages() -> str:
    """Every package that pyproject.toml declares."""
    tested = _pins("constraints.txt")
    rows = [
        [name, needed_for, oldest, tested[name.lower()], licence(name)]
        for name, (needed_for, oldest) in declared().items()
    ]
    return table(["package", "needed for", "from version", "tested with", "licence"], rows)


def declared() -> dict[str, tuple[str, str]]:
    """What each package is needed for, which is the name of an extra, and its oldest version.

    Example:
        >>> declared()["torch"][0]
        'everything'
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = {"everything": project["dependencies"], **project["optional-dependencies"]}
    found: dict[str, tuple[str, str]] = {}
    for extra, requirements in extras.items():
        for text in requirements:
            name = re.split(r"[^\w-]", text)[0]
            if name != "mibounds":  # an extra of another extra
                bound = text.partition(">=")[2].partition(";")[0]
                found[name] = extra if extra == "everything" else f"`{extra}`", bound
    return found


def _pins(name: str) -> dict[str, str]:
    """Versions by package in a file of constraints."""
    lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
    pairs = [line.split("#")[0].split("==") for line in lines if "==" in line.split("#")[0]]
    return {package.strip().lower(): version.strip() for package, version in pairs}


def licence(package: str) -> str:
    """What an installed package says of its licence, in a few words.

    Example:
        >>> licence("torch").split()[0]
        'Apache-2.0'
    """
    about = metadata(package)
    for key in ("License-Expression", "License"):
        if key in about and len(about[key]) <= 120:  # the whole text otherwise
            return about[key]
    classifiers = [each for each in about.get_all("Classifier") or [] if "License ::" in each]
    return ", ".join(each.rpartition(" :: ")[2] for each in classifiers)
