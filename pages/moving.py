"""The numbers of the authors' classes beside ours."""

from __future__ import annotations

from statistics import fmean
from typing import Any

from pages.results import read
from pages.texts import table

WHAT = {"value": "value", "learning_loss": "learning loss", "step": "the same with Adam's step",
        "loglikeli": "likelihood"}  # fmt: skip


def _bench() -> Any:
    return read("bench/moving.json")


def beside() -> str:
    """Time and memory beside the authors' class."""
    found, rows = _bench(), []
    for kind in ("CLUB", "CLUBSample"):
        for what in ("value", "learning_loss", "step"):
            some = [r for r in found["speed"] if (r["kind"], r["what"]) == (kind, what)]
            rows.append([f"`{kind}`, {WHAT[what]}", "time, 32 to 128 samples",
                         *(_range([r[f"{who}_ratio"] for r in some]) for who in OURS)])  # fmt: skip
    for row in found["sequences"]:
        rows.append([f"`{row['kind']}`, {WHAT[row['what']]}", "time, 32 sequences of 64",
                     *(f"{row[f'{who}_ratio']:.2f}" for who in OURS)])  # fmt: skip
    for row in found["memory"]:
        shares = (f"{row[f'{who}_mb'] / row['theirs_mb']:.3f}" for who in OURS)
        rows.append([f"`{row['kind']}`, value", f"memory, {row['n']} samples", *shares])
    return table(["what", "theirs = 1", "`mibounds.mi_estimators`", "`mibounds`"], rows)


def left() -> str:
    """What a loop leaves with each class, mean and range of the seeds."""
    rows = []
    for kind in ("CLUB", "CLUBSample"):
        cells = [f"`{kind}`"]
        for whose in ("theirs", *OURS):
            ends = [r["left"] for r in _bench()["left"] if (r["kind"], r["whose"]) == (kind, whose)]
            cells.append(f"{fmean(ends):.3f} ({min(ends):.3f} to {max(ends):.3f})")
        rows.append(cells)
    return table(["nats left", "theirs", "`mibounds.mi_estimators`", "`mibounds`"], rows)


def without() -> float:
    """Nats that the same loop leaves without a penalty."""
    return fmean(r["left"] for r in _bench()["left"] if r["kind"] == "none")


def slowest() -> float:
    """The largest time of a value or learning loss of `mibounds.mi_estimators`, theirs being 1."""
    return max(r["names_ratio"] for r in _bench()["speed"])


OURS = ("names", "library")


def _range(values: list[float]) -> str:
    return f"{min(values):.2f} to {max(values):.2f}"
