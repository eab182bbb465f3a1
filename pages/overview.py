"""The picture of the README: measure, minimise, scale."""

from __future__ import annotations

import statistics
from pathlib import Path

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.minimisation import EVERY
from mibounds.files import replacing
from pages.results import RESULTS, cells, read, summary

PICTURE = RESULTS / "overview.svg"
COLOURS = {
    "doe_copula": "tab:green", "l1out": "tab:purple", "club": "tab:red", "nwj": "tab:cyan",
    "infonce": "tab:blue",
}  # fmt: skip
NAMES = {
    "doe_copula": "DoE, copula", "l1out": "L1Out", "club": "CLUB", "nwj": "NWJ",
    "infonce": "InfoNCE",
}  # fmt: skip


def measure(ax: Axes) -> None:
    """Mean value against the truth, on the cubic tasks."""
    found = summary("estimation-quality")
    levels = [2, 4, 6, 8, 10]
    ax.plot(levels, levels, color="black", lw=0.8, ls="--")
    for method, colour in COLOURS.items():
        values = [
            level + found["correct", method, f"cubic-{level}", "bias"].mean for level in levels
        ]
        ax.plot(levels, values, "o-", ms=3.5, color=colour, label=NAMES[method])
    ax.set(
        xlabel="true nats", ylabel="value, nats", title="Measure: value and truth", xticks=levels
    )
    ax.legend(fontsize=7, frameon=False)


def minimise(ax: Axes) -> None:
    """Median of the true mutual information over the seeds, while a bound is minimised."""
    for method in ("club", "nwj", "infonce"):
        curves = [
            cell.values["truth"]
            for cell in cells("minimisation")
            if (cell.task, cell.method) == ("gaussian-10", method)
        ]
        truth = [statistics.median(each) for each in zip(*curves, strict=True)]
        steps = [EVERY * i for i in range(len(truth))]
        ax.plot(steps, truth, lw=1, color=COLOURS[method], label=f"by {NAMES[method]}")
    ax.set(yscale="log", xlabel="step", ylabel="true nats left", title="Minimise: what is left")
    ax.legend(fontsize=7, frameon=False)


def scale(ax: Axes) -> None:
    """Time of a step of all-pairs CLUB against the batch."""
    club = [row for row in read("bench/steps_cpu.json")["rows"] if row["method"] == "club"]
    for key, name, colour in (
        ("naive_ms", "pair by pair", "tab:gray"),
        ("ms", "here", COLOURS["club"]),
    ):
        points = [(row["n"], row[key]) for row in club if row.get(key)]
        ax.plot(
            *zip(*points, strict=True), "o-", ms=3, color=colour, label=f"all-pairs CLUB, {name}"
        )
    ax.set(xscale="log", yscale="log", xlabel="samples in a batch", ylabel="ms of a step, one core")
    ax.set_title("Scale: exact in linear time")
    ax.legend(fontsize=7, frameon=False)


def draw(path: Path) -> None:
    """Draw the three panels into an SVG file."""
    figure = Figure(figsize=(11, 3.1), layout="constrained")
    for ax, panel in zip(figure.subplots(1, 3), (measure, minimise, scale), strict=True):
        panel(ax)
        ax.spines[["top", "right"]].set_visible(False)
        ax.title.set_fontsize(10)
    figure.set_facecolor("white")
    with replacing(path) as temporary, rc_context({"svg.hashsalt": "overview"}):
        figure.savefig(temporary, format="svg", metadata={"Date": None})
