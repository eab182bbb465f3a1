"""Pictures of an estimate and of the samples behind it.

Each function draws into the axes that it is given, or makes a figure of its own, and returns the
axes. No global state of matplotlib is used: a figure made here is not known to pyplot, needs no
display, and is freed with the last reference to it. Save it by ``ax.figure.savefig(...)``.

Colours are those of Okabe and Ito, which all kinds of colour vision tell apart; a side is told by
its marker too. The extra ``plot`` is needed.

Reference: Okabe and Ito 2008, *Color Universal Design*.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from mibounds.measure.results import Estimate, Row

__all__ = ["plot_estimate", "plot_history", "plot_null", "plot_samples"]

BLUE, VERMILLION, GREEN = "#0072B2", "#D55E00", "#009E73"
ORANGE, SKY, PURPLE, YELLOW, GREY = "#E69F00", "#56B4E9", "#CC79A7", "#F0E442", "#999999"
SIDES = {"upper": (VERMILLION, "v"), "lower": (BLUE, "^"), "neither": (GREEN, "o")}
METHODS = (BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY, GREY)

POINTS = 3000  # up to so many are drawn one by one, more are counted
LOOKED_AT = 2000  # rows that decide which columns to draw
CATEGORIES = 24  # values at most of a column that counts as discrete


def plot_estimate(estimate: Estimate, ax: Axes | None = None) -> Axes:
    """The bracket: what every method says, by its side, and the interval of the point value.

    A value far outside of the bracket is marked by an arrow at the edge, lest it hide the rest.

    Args:
        estimate: what to draw.
        ax: where; a new figure if left out.

    Returns:
        The axes, in nats.

    Example:
        >>> from mibounds.measure.results import Estimate, Row
        >>> rows = (Row("ksg", "neither", "", 0.69, 0.01, 0.5),)
        >>> result = Estimate(0.69, (0.67, 0.71), 0.95, "bootstrap", None, None, "ksg", rows,
        ...                   (), (), None, (), 1000, 1, 1, 0, 0.5, {})
        >>> plot_estimate(result).get_xlabel()
        'mutual information (nats)'
    """
    legend_below = ax is None
    ax = _axes(ax, height=1.35 + 0.3 * max(3, len(estimate.rows)))
    low, high = _view(estimate)
    ink = _ink()
    start, end = estimate.interval
    if math.isfinite(start) and math.isfinite(end):
        label = f"{100 * estimate.level:.4g} % interval"
        ax.axvspan(start, end, color=SKY, alpha=0.35, lw=0, label=label)
    if math.isfinite(estimate.nats):
        ax.axvline(estimate.nats, color=ink, lw=1.2, label=f"value, by {_label(estimate.method)}")
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
                label=side if side == "neither" else f"{side} bound",
            )
        for i, row in mine:
            if not low <= row.nats <= high:
                _mark_outside(ax, i, row, colour, above=not row.nats < low)
    ax.set_xlim(low, high)
    ax.set_ylim(max(1, len(estimate.rows)) - 0.5, -0.5)  # the first row on top
    names = [_name(row.method) for row in estimate.rows]
    ax.set_yticks(range(len(names)), names, parse_math=False)
    ax.set_xlabel("mutual information (nats)")
    ax.grid(axis="x", alpha=0.25)
    _finish(ax, legend_below)
    return ax


def plot_history(estimate: Estimate, ax: Axes | None = None, method: str | None = None) -> Axes:
    """Training curves: the loss on samples held out, solid, and the training loss, dotted.

    Folds are thin lines; where there are several, their mean is a thick one.

    Args:
        estimate: what to draw.
        ax: where; a new figure if left out.
        method: the one to draw; all of them if left out.

    Returns:
        The axes.

    Raises:
        ValueError: if there are no such curves.

    Example:
        >>> from mibounds.measure.results import Estimate, Point
        >>> curve = (Point("club", 0, 1, 2.0, 2.1), Point("club", 0, 2, 1.0, 1.2))
        >>> result = Estimate(0.69, (0.67, 0.71), 0.95, "bootstrap", None, None, "club", (),
        ...                   curve, (), None, (), 1000, 1, 1, 0, 0.5, {})
        >>> ax = plot_history(result)
        >>> ", ".join(str(line.get_label()) for line in ax.lines)
        'club, held out, club, training'
    """
    points = [p for p in estimate.history if method is None or p.method == method]
    if not points:
        which = "training curves" if method is None else f"a training curve of {method!r}"
        raise ValueError(
            f"Expected an estimate with {which} but its history has none; "
            'ask estimate() for a method that is trained, such as "infonce".'
        )
    legend_below = ax is None
    ax = _axes(ax)
    for i, name in enumerate(dict.fromkeys(p.method for p in points)):
        own = [p for p in points if p.method == name]
        folds = sorted({p.fold for p in own})
        for what, style in (("held_out", "-"), ("loss", ":")):
            label = f"{_label(name)}, {'held out' if what == 'held_out' else 'training'}"
            common: dict[str, Any] = {"color": METHODS[i % len(METHODS)], "linestyle": style}
            at: dict[int, list[float]] = {}
            for fold in folds:
                curve = sorted((p.step, getattr(p, what)) for p in own if p.fold == fold)
                steps, values = [s for s, _ in curve], [_or_nan(v) for _, v in curve]
                for step, value in zip(steps, values, strict=True):
                    at.setdefault(step, []).append(value)
                thin: dict[str, Any] = {"lw": 0.6, "alpha": 0.45}
                only: dict[str, Any] = {"lw": 1.5, "label": label}
                ax.plot(steps, values, **common, **(only if len(folds) == 1 else thin))
            if len(folds) > 1:  # the mean where no fold has stopped yet
                steps = sorted(step for step, values in at.items() if len(values) == len(folds))
                ax.plot(steps, [np.mean(at[s]) for s in steps], lw=1.8, label=label, **common)
    ax.set_xlabel("step")
    ax.set_ylabel("loss (nats)")
    ax.grid(alpha=0.25)
    _finish(ax, legend_below)
    return ax


def plot_null(estimate: Estimate, ax: Axes | None = None) -> Axes:
    """What permuted samples give, which are independent, beside the value itself.

    Args:
        estimate: what to draw.
        ax: where; a new figure if left out.

    Returns:
        The axes, in nats.

    Raises:
        ValueError: if there are no values under permutation.

    Example:
        >>> from mibounds.measure.results import Estimate
        >>> result = Estimate(0.69, (0.67, 0.71), 0.95, "bootstrap", None, None, "ksg", (),
        ...                   (), (), 0.25, (0.01, -0.02, 0.0), 1000, 1, 1, 0, 0.5, {})
        >>> plot_null(result).get_ylabel()
        'permutations'
    """
    null = [value for value in estimate.null if math.isfinite(value)]
    if not null:
        raise ValueError(
            "Expected an estimate with finite values under permutation but it has none; "
            "ask estimate() for permutations."
        )
    legend_below = ax is None
    ax = _axes(ax)
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


def plot_samples(
    x: Any,
    y: Any,
    ax: Axes | None = None,
    names: tuple[Sequence[str] | None, Sequence[str] | None] | None = None,
) -> Axes:
    """The samples, by the pair of columns that is most related.

    Points for continuous columns, or their density where there are many; a heat map of the counts
    for discrete ones; the distribution within each category for one of each kind. Of several
    columns the pair is drawn whose ranks, or the distances of these from the middle, are most
    correlated: that sees most relations, though not all. Rows with missing values are left out.

    Args:
        x: n rows; an array, a tensor or a DataFrame.
        y: n rows likewise.
        ax: where; a new figure if left out.
        names: of the columns of x and of those of y; from the DataFrames if left out.

    Returns:
        The axes, whose labels are the names of the two columns.

    Example:
        >>> x = np.random.default_rng(0).normal(size=(500, 3))
        >>> ax = plot_samples(x, x[:, 1] ** 2)
        >>> ax.get_xlabel(), ax.get_ylabel()
        ('x[1]', 'y')
    """
    given = names or (None, None)
    xs, x_names = _columns(x, "x", given[0])
    ys, y_names = _columns(y, "y", given[1])
    if len(xs[0]) != len(ys[0]):
        raise ValueError(
            "Expected x and y to hold the same number of samples "
            f"but got {len(xs[0])} and {len(ys[0])}; pass rows that belong together."
        )
    i, j = _most_related(xs, ys)
    a, b = _present(xs[i], ys[j])
    if not len(a):
        raise ValueError(
            "Expected samples to draw but got none without a missing value; "
            "fill the values in, or choose other columns."
        )
    ax = _axes(ax, height=3.4)
    kinds = _is_discrete(a), _is_discrete(b)
    if all(kinds):
        _draw_counts(ax, a, b)
    elif kinds[0]:
        _draw_within(ax, a, b.astype(float))
    elif kinds[1]:
        _draw_within(ax, b, a.astype(float), upright=False)
    elif len(a) > POINTS:
        _draw_density(ax, a.astype(float), b.astype(float))
    else:
        ax.scatter(a.astype(float), b.astype(float), s=9, color=BLUE, alpha=0.45, lw=0)
        _frame(ax, a.astype(float), b.astype(float))
    ax.set_xlabel(_name(x_names[i]), parse_math=False)
    ax.set_ylabel(_name(y_names[j]), parse_math=False)
    return ax


# --- axes ----------------------------------------------------------------------------------------


def _axes(ax: Axes | None, height: float = 3.0) -> Axes:
    """The axes that are given, or those of a new figure that pyplot does not know."""
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
    """The colour of text, which is light on a dark style."""
    from matplotlib import rcParams

    return rcParams["text.color"]


def _finish(ax: Axes, legend_below: bool) -> None:
    ax.spines[["top", "right"]].set_visible(False)
    handles, labels = ax.get_legend_handles_labels()
    if handles and legend_below:  # where it hides nothing
        style: dict[str, Any] = {"ncols": 3, "frameon": False, "fontsize": "small"}
        ax.figure.legend(handles, labels, loc="outside lower center", **style)
    elif handles:
        ax.legend(fontsize="small")


def _name(name: object) -> str:
    """A name as it can be drawn: on one line, and not too long."""
    text = "".join(c if c.isprintable() else " " for c in str(name))
    return text if len(text) <= 32 else text[:31] + "…"


def _label(name: object) -> str:
    """A name for a legend, which would take what is between dollars for mathematics."""
    return _name(name).replace("$", r"\$")


def _or_nan(value: float) -> float:
    return value if math.isfinite(value) else math.nan


# --- the bracket ---------------------------------------------------------------------------------


def _error(row: Row) -> float:
    return row.error if row.error is not None and math.isfinite(row.error) else 0.0


def _view(estimate: Estimate) -> tuple[float, float]:
    """The part of the axis to show: the interval and the bracket, and as much again around them."""
    core = [estimate.nats, *estimate.interval]
    core += [side for side in (estimate.lower, estimate.upper) if side is not None]
    core = [value for value in core if math.isfinite(value)]
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


def _mark_outside(ax: Axes, i: int, row: Row, colour: str, above: bool) -> None:
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


# --- samples -------------------------------------------------------------------------------------


def _columns(
    values: Any, side: str, names: Sequence[str] | None
) -> tuple[list[np.ndarray], list[str]]:
    """The columns of an array, a tensor or a DataFrame, with their names."""
    if hasattr(values, "columns") and hasattr(values, "iloc"):
        columns = [np.asarray(values.iloc[:, i]) for i in range(len(values.columns))]
        own = [str(name) for name in values.columns]
    else:
        if hasattr(values, "detach"):
            values = values.detach().cpu()
            values = (values.float() if values.is_floating_point() else values).numpy()
        array = np.asarray(values)
        if array.ndim == 0:
            raise ValueError(
                f"Expected {side} to have one sample a row but got a single value; "
                "pass an array of shape (n,) or (n, d)."
            )
        flat = array.reshape(len(array), math.prod(array.shape[1:]))
        columns = list(flat.T)
        own = [side] if len(columns) == 1 else [f"{side}[{i}]" for i in range(len(columns))]
    if not columns:
        raise ValueError(
            f"Expected {side} to have a column but got none; pass an array of shape (n,) or (n, d)."
        )
    if names is not None and len(names) != len(columns):
        raise ValueError(
            f"Expected {len(columns)} names for the columns of {side} but got {len(names)}; "
            "name each column, or leave names out."
        )
    return columns, own if names is None else [str(name) for name in names]


def _missing(column: np.ndarray) -> np.ndarray:
    if column.dtype.kind in "fc":
        return ~np.isfinite(column)
    if column.dtype.kind in "mM":
        return np.isnat(column)
    if column.dtype.kind == "O":
        return np.array([_is_missing(v) for v in column], dtype=bool)
    return np.zeros(len(column), dtype=bool)


def _is_missing(value: Any) -> bool:
    """None, NaN, or pandas's NA, which is neither equal nor unequal to itself."""
    try:
        return value is None or bool(value != value)
    except TypeError:
        return True


def _present(a: np.ndarray, b: np.ndarray) -> list[np.ndarray]:
    """The rows where neither is missing, as numbers where all that is left are some."""
    present = ~(_missing(a) | _missing(b))
    both = []
    for column in (a[present], b[present]):
        if column.dtype.kind == "O" and all(isinstance(v, int | float) for v in column):
            column = column.astype(float)
        both.append(column)
    return both


def _is_discrete(column: np.ndarray) -> bool:
    """Whether it is not of numbers, or takes few values, each of them often."""
    if column.dtype.kind not in "iuf":
        return True
    distinct = len(np.unique(column))
    return distinct <= CATEGORIES and distinct * 5 <= len(column)


def _codes(column: np.ndarray) -> tuple[np.ndarray, list[str]]:
    """A number for each category, the rare ones of many together, and what they are called."""
    if column.dtype.kind == "O":
        column = np.array([str(v) for v in column])
    values, codes, counts = np.unique(column, return_inverse=True, return_counts=True)
    labels = [_name(f"{v:g}" if column.dtype.kind == "f" else v) for v in values]
    if len(values) <= CATEGORIES:
        return codes, labels
    kept = np.sort(np.argsort(-counts, kind="stable")[: CATEGORIES - 1])
    place = np.full(len(values), CATEGORIES - 1)
    place[kept] = np.arange(len(kept))
    return place[codes], [*(labels[i] for i in kept), f"{len(values) - len(kept)} others"]


def _most_related(xs: list[np.ndarray], ys: list[np.ndarray]) -> tuple[int, int]:
    if len(xs) == len(ys) == 1 or not len(xs[0]):
        return 0, 0
    step = -(-len(xs[0]) // LOOKED_AT)
    u, v = (np.stack([_features(c[::step]) for c in side[:1000]]) for side in (xs, ys))
    related = np.abs(np.einsum("ikn,jln->ijkl", u, v, optimize=True)).max((2, 3))
    i, j = np.unravel_index(int(related.argmax()), related.shape)
    return int(i), int(j)


def _features(column: np.ndarray) -> np.ndarray:
    """Ranks, and how far these are from the middle, each with mean 0 and norm 1."""
    if column.dtype.kind not in "biuf":
        column = np.unique([str(v) for v in column], return_inverse=True)[1]
    column = np.where(_missing(column), 0, column)
    _, codes, counts = np.unique(column, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - counts / 2)[codes]
    features = np.stack([ranks, np.abs(ranks - len(ranks) / 2)])
    features -= features.mean(1, keepdims=True)
    norm = np.linalg.norm(features, axis=1, keepdims=True)
    return features / np.where(norm > 1e-9 * len(ranks), norm, np.inf)


def _frame(ax: Axes, a: np.ndarray, b: np.ndarray) -> None:
    """Show the middle 99 % where a few far values would take all the room."""
    for values, limit in ((a, ax.set_xlim), (b, ax.set_ylim)):
        low, high = _middle(values)
        if (low, high) != (values.min(), values.max()):
            limit(low, high)


def _middle(values: np.ndarray) -> tuple[float, float]:
    low, high = np.quantile(values, [0.005, 0.995])
    least, most = float(values.min()), float(values.max())
    if most - least > 3 * (high - low) > 0:
        return float(low), float(high)
    return least, most


def _draw_density(ax: Axes, a: np.ndarray, b: np.ndarray) -> None:
    (left, right), (low, high) = _middle(a), _middle(b)
    inside = (a >= left) & (a <= right) & (b >= low) & (b <= high)
    drawn = ax.hexbin(
        a[inside], b[inside], gridsize=36, bins="log", mincnt=1, cmap="cividis", lw=0.2
    )
    ax.set_facecolor(drawn.cmap(0.0))  # no samples, as in the other heat maps
    ax.figure.colorbar(drawn, ax=ax, label="samples")


def _draw_counts(ax: Axes, a: np.ndarray, b: np.ndarray) -> None:
    (i, across), (j, up) = _codes(a), _codes(b)
    counts = np.zeros((len(up), len(across)))
    np.add.at(counts, (j, i), 1)
    _heat(ax, np.arange(len(across) + 1) - 0.5, np.arange(len(up) + 1) - 0.5, counts, "samples")
    _ticks(ax, across)
    _ticks(ax, up, axis="y")


def _draw_within(ax: Axes, a: np.ndarray, b: np.ndarray, upright: bool = True) -> None:
    """Shares of a continuous column within each category; categories across, or up."""
    codes, labels = _codes(a)
    low, high = _middle(b)
    edges = np.linspace(low, high if high > low else low + 1.0, 41)
    shares = np.stack([np.histogram(b[codes == i], edges)[0] for i in range(len(labels))], 1)
    shares = shares / np.maximum(1, np.bincount(codes, minlength=len(labels)))
    across = np.arange(len(labels) + 1) - 0.5
    x, y, values = (across, edges, shares) if upright else (edges, across, shares.T)
    _heat(ax, x, y, values, "share within category")
    _ticks(ax, labels, axis="x" if upright else "y")


def _heat(ax: Axes, x: np.ndarray, y: np.ndarray, values: np.ndarray, label: str) -> None:
    drawn = ax.pcolormesh(x, y, values, cmap="cividis", vmin=0)
    ax.figure.colorbar(drawn, ax=ax, label=label)


def _ticks(ax: Axes, labels: list[str], axis: str = "x") -> None:
    long = axis == "x" and sum(map(len, labels)) > 40
    style: dict[str, Any] = {"rotation": 90} if long else {}
    ax.set(**{f"{axis}ticks": range(len(labels))})
    texts = ax.set_xticklabels(labels, **style) if axis == "x" else ax.set_yticklabels(labels)
    for text in texts:
        text.set_parse_math(False)
