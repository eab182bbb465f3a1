"""The numbers of `estimate`."""

from __future__ import annotations

from collections import defaultdict
from statistics import fmean
from typing import Any

import mibounds as mb
from pages.classes import side
from pages.results import read, section
from pages.texts import table

GROUPS = {"1 or 2 columns": 2, "3 to 5 columns": 5, "20 columns": 20}  # at most so many


def methods() -> str:
    """Errors of every method over the tasks that it can do."""
    return table(
        ["method", "tasks", "mean absolute error", "below 2 nats", "budget", "seconds"],
        [
            [f"`{m['method']}`", m["tasks"], f"{m['mae']:.3f}", f"{m['mae_below_2']:.3f}",
             m["budget"], f"{m['seconds']:.0f}"]
            for m in sorted(read("measure/tasks.json")["methods"], key=_tasks_and_error)
        ],
    )  # fmt: skip


def _tasks_and_error(method: dict[str, Any]) -> tuple[int, float]:
    return -method["tasks"], method["mae"]


def by_columns() -> str:
    """Mean absolute errors of every method by the columns of the wider side."""
    errors: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in read("measure/tasks.jsonl"):
        columns = max(mb.TASKS[row["task"]].x_dim, mb.TASKS[row["task"]].y_dim)
        group = next(name for name, most in GROUPS.items() if columns <= most)
        if row["nats"] is not None:
            errors[row["method"]][group].append(abs(row["nats"] - row["truth"]))
    order = [*mb.ESTIMATORS, *mb.CLASSICAL]
    names = sorted(errors, key=lambda name: order.index(name) if name in order else -1)
    return table(
        ["method", "side", *GROUPS],
        [
            [f"`{name}`", side(name)] + [f"{fmean(own[g]):.3f}" if g in own else "" for g in GROUPS]
            for name, own in ((name, errors[name]) for name in names)
        ],
    )


def trust(name: str) -> str:
    """Values, intervals and verdicts where the truth is known."""
    return section(f"measure/trust_{name}.md")


def peers() -> str:
    """Other packages on the same samples."""
    return section("measure/peers.md")


def labels() -> str:
    """The same for labels and many columns."""
    return section("measure/labels.md")


def large(key: str) -> float:
    """One number of the large file; the two ends of its interval are low and high."""
    found = read("measure/large.json")
    return (found | dict(zip(("low", "high"), found["interval"], strict=True)))[key]


def large_gigabytes() -> float:
    """Peak memory with the large file."""
    return large("peak_MB") / 1000


def missed(task: str) -> float:
    """How far below the truth the default lies on a task."""
    (own,) = (
        row
        for row in read("measure/tasks.jsonl")
        if (row["task"], row["method"]) == (task, "default")
    )
    return own["truth"] - own["nats"]
