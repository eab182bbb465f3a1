"""The numbers of `MIPenalty`."""

from __future__ import annotations

from statistics import fmean, median
from typing import Any

import mibounds as mb
from mibounds.minimise.gates import FADES
from pages.results import cells, read, section, summary
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


CASES = {
    "linear": "linear encoder", "sequence": "one x, a sequence of codes",
    "deep": "two layers, not normalised", "colour": "colour of digits (a label)",
    "speakers": "50 speakers, batches of 64", "larger": "batches of 512",
}  # fmt: skip
METHODS = {
    "none": "no penalty", "default": "`MIPenalty(x_dim, y_dim)`", "club": "`CLUB`",
    "club_sample": "`CLUBSample`", "published": "the authors' `CLUB`",
    "published_sample": "the authors' `CLUBSample`",
}  # fmt: skip


def cases() -> str:
    """What each method leaves in loops whose truth is known, seed by seed."""
    found: dict[tuple[str, str], list[float]] = {}
    for row in read("bench/outcomes_cases.json")["rows"]:
        found.setdefault((row["method"], row["case"]), []).append(max(row["left"], 0.0))
    return table(
        ["nats left", *CASES.values()],
        [
            [METHODS[m], *(", ".join(f"{v:.2f}" for v in found.get((m, c), [])) for c in CASES)]
            for m in METHODS
        ],
    )


def mean_left(case: str, method: str = "default") -> float:
    """What a method leaves in a loop, the mean over its seeds."""
    rows = read("bench/outcomes_cases.json")["rows"]
    return fmean(max(r["left"], 0.0) for r in rows if (r["case"], r["method"]) == (case, method))


def case_tasks() -> str:
    """Accuracy of the digits' task, and error of the others', without and with a penalty."""
    found: dict[tuple[str, str], list[float]] = {}
    for row in read("bench/outcomes_cases.json")["rows"]:
        found.setdefault((row["method"], row["case"]), []).append(row["task"])
    return table(
        ["task", *CASES.values()],
        [
            [METHODS[m], *(", ".join(f"{v:.3f}" for v in found.get((m, c), [])) for c in CASES)]
            for m in ("none", "default", "club")
        ],
    )


def sweep() -> str:
    """How many loops of the sweep end with little left, and how many fail without a word."""
    found: dict[str, list[Any]] = {}
    for row in read("bench/outcomes_sweep.json")["rows"]:
        found.setdefault(row["method"], []).append(row)
    return table(
        ["method", "loops", "at most 0.05 left", "at most 0.1", "median", "most",
         "more, no warning", "more, no warning when asked"],
        [
            [METHODS[m], len(own), sum(r["left"] <= 0.05 for r in own),
             sum(r["left"] <= 0.1 for r in own), f"{median(r['left'] for r in own):.3f}",
             f"{max(r['left'] for r in own):.2f}", sum(r["silent"] for r in own),
             sum(r.get("silent_asked", False) for r in own)]
            for m, own in ((m, found[m]) for m in METHODS if m in found)
        ],
    )  # fmt: skip


SHOWN = ("method", "accuracy", "worst group", "as trained", "MLP, nats", "estimate", "silent")


def nuisance(task: str) -> str:
    """What each method costs and leaves of a nuisance, with each of its weights."""
    found = section("nuisance-removal/table.md", f"{task}: all weights")
    titles, _, *rows = ([text.strip() for text in line.split("|")[1:-1]]
                        for line in found.splitlines())  # fmt: skip
    places = [titles.index(name) for name in SHOWN]
    return table(list(SHOWN), [[row[i] for i in places] for row in rows])


def control() -> str:
    """How often the default brings a known mutual information to the goal, and keeps it there."""
    found: dict[tuple[str, int, str], list[dict[str, Any]]] = {}
    for cell in cells("mi-control"):
        goal, _, kind, dim = cell.task.split("-")
        if cell.method == "default":
            found.setdefault((goal, int(dim), kind), []).append(cell.values)
    rows = []
    for goal, dim, kind in sorted(found, key=lambda key: (key[0] != "minimise", *key[1:])):
        own = found[goal, dim, kind]
        passed = f"{sum(v['success'] for v in own)} of {len(own)}"
        ends = [v["worst"] for v in own]
        left = f"{median(ends):.1e}, {max(ends):.1e}" if goal == "minimise" else ""
        rows.append([goal, dim, kind, passed, left])
    return table(["goal", "d", "correlation", "passed", "worst left: median, largest"], rows)


def fading() -> float:
    """How many times as much is left where a gate closes at once, with a correlation per pair."""
    rows = read("mi-control-trials/rows.jsonl")
    own = [r for r in rows if r["correlation"] == "pairs" and r["dim"] >= 100 and "shuts" not in r]
    left = {f: median(r["worst"] for r in own if r["fades"] == f) for f in (0.0, FADES)}
    return left[0.0] / left[FADES]


def rivals() -> str:
    """How many minimisations of each method succeed, and the median of the most that they leave."""
    found: dict[str, dict[int, list[dict[str, Any]]]] = {}
    for cell in cells("mi-control"):
        goal, *_, dim = cell.task.split("-")
        if goal == "minimise":
            found.setdefault(cell.method, {}).setdefault(int(dim), []).append(cell.values)
    dims = sorted({dim for own in found.values() for dim in own})
    rows = [
        [f"`{method}`", *(_outcome(own[dim]) if dim in own else "" for dim in dims)]
        for method, own in found.items()
    ]
    return table(["method", *(f"d = {dim}" for dim in dims)], rows)


def _outcome(own: list[dict[str, Any]]) -> str:
    passed = sum(v["success"] for v in own)
    return f"{passed} of {len(own)}, {median(v['worst'] for v in own):.1e}"
