"""The figure: shares of successes as bars, and the median of the true mutual information."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from experiments.mi_control.config import BASES, FRESH, GOALS, Task, base_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LEAST = 1e-8  # nats, the bottom of the axis


def draw_outcomes(
    cells: Sequence[tuple[str, Task, Mapping[str, Any]]], goal: float, target: float
) -> Figure:
    """A row per goal: bars over the methods, then a panel of curves per dimension.

    Args:
        cells: method, task and values.
        goal: nats below which a minimisation has succeeded.
        target: nats at which a maximisation has.
    """
    from matplotlib.figure import Figure

    goals = [g for g in GOALS if any(task.goal == g for _, task, _ in cells)]
    dims = sorted({task.dim for _, task, _ in cells})
    figure = Figure(figsize=(5 + 3 * len(dims), 3.6 * len(goals) + 0.8), layout="constrained")
    ratios = [1.7, *[1] * len(dims)]
    axes = figure.subplots(len(goals), 1 + len(dims), squeeze=False, width_ratios=ratios)
    handles: dict[str, Any] = {}
    for row, name in zip(axes, goals, strict=True):
        own = [each for each in cells if each[1].goal == name]
        draw_bars(row[0], name, own, dims)
        for ax, dim in zip(row[1:], dims, strict=True):
            handles |= draw_curves(ax, [each for each in own if each[1].dim == dim])
            ax.axhline(goal if name == "minimise" else target, color="black", lw=0.8, ls=":")
            ax.set_yscale("log")
            ax.set_title(f"{name}, d = {dim}: median", fontsize=9)
            ax.set(xlabel="update", ylabel="true mutual information, nats")
            ax.tick_params(labelsize=7)
    figure.legend(
        list(handles.values()), list(handles), loc="outside lower center", ncols=6, fontsize=7
    )
    return figure


def draw_bars(
    ax: Axes, goal: str, cells: Sequence[tuple[str, Task, Mapping[str, Any]]], dims: Sequence[int]
) -> None:
    """The share of runs that succeed, a bar per method and dimension."""
    methods = list(dict.fromkeys(method for method, *_ in cells))
    height = 0.8 / len(dims)
    for i, dim in enumerate(dims):
        places, shares = [], []
        for k, method in enumerate(methods):
            found = [v["success"] for m, task, v in cells if m == method and task.dim == dim]
            if found:
                places.append(k + (i - (len(dims) - 1) / 2) * height)
                shares.append(100 * sum(found) / len(found))
        ax.barh(places, shares, height, color=f"C{i}", label=f"d = {dim}")
    ax.set_yticks(range(len(methods)), methods, fontsize=7)
    ax.invert_yaxis()
    ax.set_xlim(0, 100)
    ax.set_title(f"{goal}: runs that succeed", fontsize=9)
    ax.set_xlabel("%")
    ax.tick_params(axis="x", labelsize=7)
    ax.legend(fontsize=7)


def draw_curves(ax: Axes, cells: Sequence[tuple[str, Task, Mapping[str, Any]]]) -> dict[str, Any]:
    """The median over all runs of a method; dashed where it is fitted on fresh samples."""
    handles = {}
    for method in dict.fromkeys(method for method, *_ in cells):
        own = [values for m, _, values in cells if m == method]
        points = zip(*(values["curve"] for values in own), strict=True)
        y = [max(_median(each), LEAST) for each in points]
        style = "--" if method.endswith(FRESH) else "-"
        colour = f"C{BASES.index(base_of(method)) % 10}"
        lw = 2.0 if BASES.index(base_of(method)) >= 10 else 1.0
        (handles[method],) = ax.plot(own[0]["steps"], y, style, color=colour, lw=lw)
    return handles


def _median(values: Sequence[float | None]) -> float:
    """The median; what is not finite is larger than all others."""
    found = statistics.median(math.inf if v is None else v for v in values)
    return found if math.isfinite(found) else math.nan
