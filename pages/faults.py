"""The numbers of the study of faults."""

from __future__ import annotations

from typing import Any

from pages.results import read
from pages.texts import table


def _rows() -> list[dict[str, Any]]:
    return read("bench/faults.json")["rows"]


def kinds() -> str:
    """Tried, held and failed by kind."""
    columns = "tried", "number", "warning", "line", "held", "failed"
    return table(
        ["what goes wrong", *columns],
        [[row["title"], *(row[name] for name in columns)] for row in _rows()],
    )


def tried() -> int:
    """Cases of all kinds."""
    return sum(row["tried"] for row in _rows())


def failed() -> int:
    """Those that failed."""
    return sum(row["failed"] for row in _rows())


def command() -> str:
    """What made the numbers."""
    return read("bench/faults.json")["command"]


def minutes() -> float:
    """How long it took."""
    return read("bench/faults.json")["seconds"] / 60
