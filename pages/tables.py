"""The numbers of `rank` and `matrix`."""

from __future__ import annotations

from typing import Any

from pages.results import read
from pages.texts import table

GROUPS = {
    "smooth": "smooth",
    "rounded": "rounded",
    "heavy": "heavy tails",
    "labels": "labels",
    "all": "all",
}


def truths() -> str:
    """Errors and coverage where the value is known."""
    return table(
        ["columns", "rows", "cells", "rank", "budget=\"fast\"", "scikit-learn", "covered",
         "covered, fast"],
        [
            [GROUPS[g["group"]], g["n"], g["cells"], f"{g['error']:.3f}", f"{g['fast_error']:.3f}",
             f"{g['sklearn_error']:.3f}", f"{g['covered']:.0%}", f"{g['fast_covered']:.0%}"]
            for g in read("measure/tables_truths.json")["groups"]
        ],
    )  # fmt: skip


def times() -> str:
    """Milliseconds of rankings."""
    return table(
        ["table", "scikit-learn", "rank", "budget=\"fast\"", "given=\"selected\"", "rank / "
         "scikit-learn"],
        [
            [row["table"], *(f"{row['ms'][way]:.0f}" for way in
                             ("scikit-learn", "default", "fast", "selected")),
             f"{row['ratio']:.2f}"]
            for row in read("measure/tables_times.json")["rows"]
        ],
    )  # fmt: skip


def ratio(place: str) -> float:
    """Time of a ranking, as a share of scikit-learn's."""
    return read("measure/tables_times.json")["rows"][int(place)]["ratio"]


def chance() -> str:
    """How often independent columns seem dependent."""
    return table(
        ["columns", "rows", "pairs", "p ≤ 0.05", "p ≤ 0.001", "tables with a discovery"],
        [
            [row["columns"], row["n"], row["pairs"], f"{row['at_0.05']:.3f}",
             f"{row['at_0.001']:.4f}", f"{row['tables_with_a_discovery']} of {row['tables']}"]
            for row in read("measure/tables_chance.json")["rows"]
        ],
    )  # fmt: skip


def large() -> str:
    """Time of matrices."""
    return table(
        ["matrix", "pairs", "processes", "s", "processor s", "ms of a pair", "by neighbours",
         "same after a kill"],
        [
            [f"{row['columns']} {'mixed ' * row['mixed']}columns x {row['rows']}", row["pairs"],
             row["processes"], f"{row['seconds']:.0f}", f"{row['cpu_seconds']:.0f}",
             f"{row['ms_of_a_pair']:.2f}", f"{row['neighbours']:.1%}",
             "yes" if row["same_after_the_kill"] and row["symmetric"] else "no"]
            for row in read("measure/tables_large.json")["rows"]
        ],
    )  # fmt: skip


def cancer() -> str:
    """The first columns of the ranking of the breast cancer data."""
    columns: list[dict[str, Any]] = read("measure/tables_cancer.json")["columns"]
    return table(
        ["column", "nats", "interval", "share", "gain", "chosen", "p-value"],
        [
            [c["name"], f"{c['nats']:.3f}", f"{c['low']:.3f} to {c['high']:.3f}",
             f"{c['share']:.0%}", f"{c['gain']:.3f}", c["chosen"] or "", f"{c['p_value']:.1g}"]
            for c in columns[:8]
        ],
    )  # fmt: skip
