"""The picture of the README: measure, minimise, scale."""

from __future__ import annotations

import statistics
from pathlib import Path

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mibounds.files import replacing
from pages.results import RESULTS, cells, read

PICTURE = RESULTS / "overview.svg"
ROWS, DIM = 1000, 100  # of the panels
# Colours of Okabe and Ito, which readers with any colour vision can tell apart.
BLUE, ORANGE, GREEN, VERMILION, GREY = "#0072b2", "#e69f00", "#009e73", "#d55e00", "#888888"
METHODS = {"default": (BLUE, "MIPenalty"), "club": (VERMILION, "CLUB"),
           "infonce": (ORANGE, "InfoNCE"), "dv": (GREEN, "Donsker-Varadhan")}  # fmt: skip


def measure(ax: Axes) -> None:
    """Each task's value with its interval against the truth, for one seed per task."""
    rows = [row for row in read("measure/trust_tasks.jsonl") if row["n"] == ROWS]
    first = min(row["seed"] for row in rows)
    rows = [row for row in rows if row["seed"] == first]
    most = max(row["truth"] for row in rows)
    ax.plot([0, most], [0, most], color="black", lw=0.8, ls="--", label="the truth")
    for believed, colour in ((True, BLUE), (False, ORANGE)):
        some = [row for row in rows if (row["verdict"] == "believe") == believed]
        low = [row["nats"] - row["interval"][0] for row in some]
        high = [row["interval"][1] - row["nats"] for row in some]
        label = '"believe"' if believed else '"care" or "doubt"'
        x, y = ([row[key] for row in some] for key in ("truth", "nats"))
        ax.errorbar(x, y, (low, high), fmt="o", ms=3, lw=0.9, color=colour, label=label)
    root = {"functions": (lambda v: abs(v) ** 0.5, lambda v: v**2)}  # room for small values
    ax.set_xscale("function", **root)
    ax.set_yscale("function", **root)
    ticks = (0, 0.25, 1, 2, 4, 6, 8, 10)
    ax.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    ax.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    ax.set(xlabel="true nats", ylabel="estimate, 95 % interval, nats", ylim=(0, None))
    ax.set_title(f"Measure: {len(rows)} tasks, {ROWS} rows each")
    ax.legend(fontsize=8, frameon=False)


def minimise(ax: Axes) -> None:
    """Median of the true mutual information over the seeds, while a penalty brings it down."""
    for method, (colour, label) in METHODS.items():
        found = [
            cell.values
            for cell in cells("mi-control")
            if (cell.task, cell.method) == (f"minimise-gaussian-shared-{DIM}", method)
        ]
        middle = [
            statistics.median(each) for each in zip(*(v["curve"] for v in found), strict=True)
        ]
        ax.plot(
            found[0]["steps"], [max(v, 1e-8) for v in middle], lw=1.4, color=colour, label=label
        )
    ax.set(yscale="log", xlabel="update of the encoder", ylabel="true nats left")
    ax.set_title(f"Minimise: what is left of 10 nats in {DIM} columns")
    ax.legend(fontsize=8, frameon=False)


def scale(ax: Axes) -> None:
    """Time of a step of all-pairs CLUB against the batch."""
    club = [row for row in read("bench/steps_cpu.json")["rows"] if row["method"] == "club"]
    for key, name, colour in (("naive_ms", "as its equation stands", GREY), ("ms", "here", BLUE)):
        points = [(row["n"], row[key]) for row in club if row.get(key)]
        ax.plot(*zip(*points, strict=True), "o-", ms=3, color=colour, label=name)
    ax.set(xscale="log", yscale="log", xlabel="samples in a batch", ylabel="ms of a step, one core")
    ax.set_title("Scale: all-pairs CLUB, exact in linear time")
    ax.legend(fontsize=8, frameon=False)


def draw(path: Path) -> None:
    """Draw the three panels into an SVG file."""
    figure = Figure(figsize=(12, 3.6), layout="constrained")
    for ax, panel in zip(figure.subplots(1, 3), (measure, minimise, scale), strict=True):
        panel(ax)
        ax.spines[["top", "right"]].set_visible(False)
        ax.title.set_fontsize(11)
    figure.set_facecolor("white")
    with replacing(path) as temporary, rc_context({"svg.hashsalt": "overview"}):
        figure.savefig(temporary, format="svg", metadata={"Date": None})
