"""The numbers of `MIPenalty`."""

from __future__ import annotations

import mibounds as mb
from pages.results import cells, read, summary
from pages.texts import spread, table

TASK = "gaussian-10"


def left() -> str:
    """What each bound leaves of a known mutual information."""
    found = summary("minimisation")
    rows = []
    for name in mb.ESTIMATORS:
        ends = [c.values["error"] for c in cells("minimisation")
                if (c.task, c.method) == (TASK, name)]  # fmt: skip
        own = found.get(("correct", name, TASK, "error"))
        if own:  # a new bound is not among the results until the experiment is run again
            failed = f"{sum(end >= goal() for end in ends)} of {len(ends)}"
            side = mb.ESTIMATORS[name](2, 2).side
            rows.append([f"`{name}`", side, spread(own, ".3f"), failed])
    return table(["method", "side", "left, nats", "failed"], rows)


def goal() -> float:
    """Nats below which a seed has not failed."""
    (found,) = {cell.config["goal"] for cell in cells("minimisation")}
    return found


def slowest() -> int:
    """The step in which the last seed of all bounds first gets below the goal."""
    return max(c.values["steps"] for c in cells("minimisation") if c.task == TASK)


def normalised() -> str:
    """What is left, and the error of the task, with and without a normalising layer."""
    found: dict[str, list[tuple[float, float]]] = {}
    for row in read("bench/normalise.json")["rows"]:
        found.setdefault(row["variant"], []).append((max(row["left"], 0.0), row["error"]))
    return table(
        ["", "left, nats", "error of the task"],
        [
            [variant, ", ".join(f"{nats:.2f}" for nats, _ in own),
             ", ".join(f"{error:.3f}" for _, error in own)]
            for variant, own in found.items()
        ],
    )  # fmt: skip


def overhead(device: str, penalty: str) -> str:
    """What a penalty adds to a step of the paper's encoder."""
    (row,) = (r for r in read(f"bench/penalty_{device}.json")["rows"] if r["penalty"] == penalty)
    return f"{100 * (row['over_without'] - 1):.1f} %"


def batch(device: str) -> int:
    """Samples a step, in the same measurement."""
    return read(f"bench/penalty_{device}.json")["batch"]


def soak() -> int:
    """Steps of the soak."""
    return read("bench/penalty_soak.json")["steps"]
