"""Plots of a measurement: the bracket, training curves, values under permutation.

Each function draws into the axes that it is given, or makes a figure of its own, and returns the
axes. No global state of matplotlib is used: a figure made here is not registered with pyplot, needs
no display, and is freed with the last reference to it. Save it with ``ax.figure.savefig(...)``.

Colours are those of Okabe and Ito, which people with any kind of colour vision can tell apart;
sides also differ by their markers. The extra ``plot`` is needed.

Reference: Okabe and Ito 2008, *Color Universal Design*.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from mibounds.measure.results import Measurement, MethodResult
from mibounds.measure.wording import method_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_estimate", "plot_history", "plot_null"]

BLUE, VERMILLION, GREEN = "#0072B2", "#D55E00", "#009E73"
ORANGE, SKY, PURPLE, YELLOW, GREY = "#E69F00", "#56B4E9", "#CC79A7", "#F0E442", "#999999"
SIDES = {"upper": (VERMILLION, "v"), "lower": (BLUE, "^"), "neither": (GREEN, "o")}
CYCLE = (BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY, GREY)


def plot_estimate(estimate: Measurement, ax: Axes | None = None) -> Axes:
    """The bracket: the value of every method, by its side, and the interval of the point value.

    A value far outside the bracket is marked by an arrow at the edge, so that it hides nothing.

    Args:
        estimate: the measurement to draw.
        ax: where to draw; a new figure if left out.

    Returns:
        The axes, in nats.

    Example:
        >>> rows = (MethodResult("ksg", "neither", "", 0.69, 0.01, 0.5),)
        >>> result = Measurement(0.69, (0.67, 0.71), 0.95, "bootstrap", None, None, "ksg", rows,
        ...                      (), (), None, (), 1000, 1, 1, 0, 0.5, {})
        >>> plot_estimate(result).get_xlabel()
        'mutual information (nats)'
    """
    legend_below = ax is None
    ax = make_axes(ax, height=1.35 + 0.3 * max(3, len(estimate.rows)))
    low, high = _view(estimate)
    ink = _ink()
    start, end = estimate.interval
    if math.isfinite(start) and math.isfinite(end):
        label = f"{100 * estimate.level:.4g} % interval"
        ax.axvspan(start, end, color=SKY, alpha=0.35, lw=0, label=label)
    if math.isfinite(estimate.nats):
        label = f"value, by {_legend_label(estimate.method)}"
        ax.axvline(estimate.nats, color=ink, lw=1.2, label=label)
    for side, (colour, marker) in SIDES.items():
        mine = [(i, row) for i, row in enumerate(estimate.rows) if row.side == side]
        inside = [(i, row) for i, row in mine if low <= row.nats <= high]
        if mine:
            ax.errorbar(
                [row.nats for _, row in inside],
                [i for i, _ in inside],
                xerr=[_error(row) for _, row in inside],
                fmt=marker,
                color=colour,
                markersize=6,
                elinewidth=1.4,
                capsize=3,
                label="estimate" if side == "neither" else f"{side} bound",
            )
        for i, row in mine:
            if not low <= row.nats <= high:
                _mark_outside(ax, i, row, colour, above=not row.nats < low)
    ax.set_xlim(low, high)
    ax.set_ylim(max(1, len(estimate.rows)) - 0.5, -0.5)  # the first row on top
    names = [drawable(method_name(row.method)) for row in estimate.rows]
    ax.set_yticks(range(len(names)), names, parse_math=False)
    ax.set_xlabel("mutual information (nats)")
    ax.grid(axis="x", alpha=0.25)
    _finish(ax, legend_below)
    return ax


def plot_history(estimate: Measurement, ax: Axes | None = None, method: str | None = None) -> Axes:
    """Training curves: the loss on held-out samples, solid, and the training loss, dotted.

    Folds are thin lines; if there are several, their mean is a thick one. A point marks where the
    held-out loss is lowest, whose parameters are kept; the legend says of what was dropped that it
    was.

    Args:
        estimate: the measurement to draw.
        ax: where to draw; a new figure if left out.
        method: the method to draw; all of them if left out.

    Returns:
        The axes.

    Raises:
        ValueError: if there are no such curves.

    Example:
        >>> from mibounds.measure.results import HistoryPoint
        >>> curve = (HistoryPoint("club", 0, 1, 2.0, 2.1), HistoryPoint("club", 0, 2, 1.0, 1.2))
        >>> result = Measurement(0.69, (0.67, 0.71), 0.95, "bootstrap", None, None, "club", (),
        ...                      curve, (), None, (), 1000, 1, 1, 0, 0.5, {})
        >>> ax = plot_history(result)
        >>> ", ".join(str(line.get_label()) for line in ax.lines)
        'club, held out, club, training'
    """
    points = [p for p in estimate.history if method is None or p.method == method]
    if not points:
        which = "training curves" if method is None else f"a training curve of {method!r}"
        raise ValueError(
            f"Expected an estimate with {which} but its history has none; "
            'pass estimate() a method that is trained, such as "infonce".'
        )
    legend_below = ax is None
    ax = make_axes(ax)
    for i, name in enumerate(dict.fromkeys(p.method for p in points)):
        own = [p for p in points if p.method == name]
        folds = sorted({p.fold for p in own})
        fits = [fit for fit in estimate.fits if fit.method == name]
        dropped = fits and not any(fit.used for fit in fits)
        for what, style in (("held_out", "-"), ("loss", ":")):
            label = f"{_legend_label(name)}, {'held out' if what == 'held_out' else 'training'}"
            label += ", dropped" if dropped else ""
            common: dict[str, Any] = {"color": CYCLE[i % len(CYCLE)], "linestyle": style}
            at: dict[int, list[float]] = {}
            for fold in folds:
                curve = sorted((p.step, getattr(p, what)) for p in own if p.fold == fold)
                steps, values = [s for s, _ in curve], [_or_nan(v) for _, v in curve]
                for step, value in zip(steps, values, strict=True):
                    at.setdefault(step, []).append(value)
                thin: dict[str, Any] = {"lw": 0.6, "alpha": 0.45}
                only: dict[str, Any] = {"lw": 1.5, "label": label}
                ax.plot(steps, values, **common, **(only if len(folds) == 1 else thin))
                if what == "held_out" and not np.isnan(values).all():
                    best = int(np.nanargmin(values))
                    ax.scatter(steps[best], values[best], s=9, color=common["color"])
            if len(folds) > 1:  # the mean up to where the first fold stopped
                steps = sorted(step for step, values in at.items() if len(values) == len(folds))
                ax.plot(steps, [np.mean(at[s]) for s in steps], lw=1.8, label=label, **common)
    ax.set_xlabel("step")
    ax.set_ylabel("loss (nats)")
    ax.grid(alpha=0.25)
    _finish(ax, legend_below)
    return ax


def plot_null(estimate: Measurement, ax: Axes | None = None) -> Axes:
    """The values of permuted, hence independent, samples beside the value itself.

    Args:
        estimate: the measurement to draw.
        ax: where to draw; a new figure if left out.

    Returns:
        The axes, in nats.

    Raises:
        ValueError: if there are no values under permutation.

    Example:
        >>> result = Measurement(0.69, (0.67, 0.71), 0.95, "bootstrap", None, None, "ksg", (),
        ...                      (), (), 0.25, (0.01, -0.02, 0.0), 1000, 1, 1, 0, 0.5, {})
        >>> plot_null(result).get_ylabel()
        'permutations'
    """
    null = [value for value in estimate.null if math.isfinite(value)]
    if not null:
        raise ValueError(
            "Expected an estimate with finite values under permutation but it has none; "
            "pass permutations= to estimate()."
        )
    legend_below = ax is None
    ax = make_axes(ax)
    bins = min(30, max(5, round(2 * len(null) ** 0.5)))
    ax.hist(null, bins=bins, color=SKY, label="under permutation")
    if math.isfinite(estimate.nats):
        p = "" if estimate.p_value is None else f", p = {estimate.p_value:.2g}"
        label = f"value {estimate.nats:.3f}{p}"
        ax.axvline(estimate.nats, color=VERMILLION, lw=1.8, label=label)
    ax.set_xlabel("mutual information (nats)")
    ax.set_ylabel("permutations")
    ax.locator_params(axis="y", integer=True)
    _finish(ax, legend_below)
    return ax


# --- axes ----------------------------------------------------------------------------------------


def make_axes(ax: Axes | None, height: float = 3.0) -> Axes:
    """The given axes, or those of a new figure that is not registered with pyplot."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError(
            "Plots need the package matplotlib, which is not installed; "
            "install it with: pip install 'mibounds[plot]'"
        ) from error
    if ax is not None:
        return ax
    return Figure(figsize=(5.2, height), layout="constrained").subplots()


def _ink() -> str:
    """The colour of text: light in a dark style."""
    from matplotlib import rcParams

    return rcParams["text.color"]


def _finish(ax: Axes, legend_below: bool) -> None:
    ax.spines[["top", "right"]].set_visible(False)
    handles, labels = ax.get_legend_handles_labels()
    if handles and legend_below:  # there it hides nothing
        style: dict[str, Any] = {"ncols": 3, "frameon": False, "fontsize": "small"}
        ax.figure.legend(handles, labels, loc="outside lower center", **style)
    elif handles:
        ax.legend(fontsize="small")


def drawable(name: object) -> str:
    """A name that can be drawn: on one line, and not too long."""
    text = "".join(c if c.isprintable() else " " for c in str(name))
    return text if len(text) <= 32 else text[:31] + "…"


def _legend_label(name: object) -> str:
    """A name for a legend, which would read text between dollars as mathematics."""
    return drawable(name).replace("$", r"\$")


def _or_nan(value: float) -> float:
    return value if math.isfinite(value) else math.nan


# --- the bracket ---------------------------------------------------------------------------------


def _error(row: MethodResult) -> float:
    return row.error if row.error is not None and math.isfinite(row.error) else 0.0


def _view(estimate: Measurement) -> tuple[float, float]:
    """The part of the axis to show: the value and its interval, and what lies near them."""
    core = [value for value in (estimate.nats, *estimate.interval) if math.isfinite(value)]
    values = [row.nats for row in estimate.rows if math.isfinite(row.nats)]
    if not core:
        core = values or [0.0]
    reach = max(max(core) - min(core), 0.2, 0.2 * max(map(abs, core)))
    seen = [v for v in values if min(core) - 2 * reach <= v <= max(core) + 2 * reach]
    errors = [e for row in estimate.rows if row.nats in seen for e in (-_error(row), _error(row))]
    spread = min(reach, max(errors, default=0.0))
    low, high = min([*core, *seen]) - spread, max([*core, *seen]) + spread
    margin = 0.06 * (high - low) or 0.1
    return low - margin, high + margin


def _mark_outside(ax: Axes, i: int, row: MethodResult, colour: str, above: bool) -> None:
    """An arrow at the edge with the value beside it."""
    text = f"{row.nats:.4g} →" if above else f"← {row.nats:.4g}"
    ax.annotate(
        "no number" if math.isnan(row.nats) else text.replace("inf", "∞"),
        (0.985 if above else 0.015, i),
        xycoords=ax.get_yaxis_transform(),
        ha="right" if above else "left",
        va="center",
        color=colour,
        fontsize="small",
        fontweight="bold",
    )
