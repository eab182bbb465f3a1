"""The numbers of series, decompositions and entropies."""

from __future__ import annotations

from statistics import fmean
from typing import Any

from pages.results import read, section


def rows(name: str) -> str:
    """The table of a command of benchmarks/series.py."""
    return section(f"measure/series_{name}.md")


def covered(part: str) -> float:
    """Share of the intervals that hold the truth, in percent, over all series and rows."""
    held = [
        low - 1e-6 <= truth <= high + 1e-6
        for row in read("measure/series_lags.jsonl")
        for (low, high), truth in zip(row[part]["intervals"], row[part]["truth"], strict=True)
    ]
    return 100 * fmean(held)


def _walks() -> list[dict[str, Any]]:
    return [row for row in read("measure/series_warnings.jsonl") if "verdict" in row]


def walks(key: str) -> float:
    """Of pairs of random walks, the mean of the nats that `estimate` finds."""
    return fmean(row[key] for row in _walks())


def doubted() -> int:
    """How many of these it does not believe."""
    return sum(row["verdict"] == "doubt" for row in _walks())


def walked() -> int:
    """How many there are."""
    return len(_walks())


def significant_walks() -> int:
    """How many have a p-value of independence of at most 5 %."""
    return sum(row["p"] <= 0.05 for row in _walks())
