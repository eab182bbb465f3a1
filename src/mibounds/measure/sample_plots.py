"""A plot of the samples themselves, by the pair of columns that is most related."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from mibounds.measure.plots import BLUE, drawable, make_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_samples"]

POINTS = 3000  # most points that are drawn one by one; more are counted
LOOKED_AT = 2000  # rows that decide which columns to draw
CATEGORIES = 24  # most values of a column that counts as discrete


def plot_samples(
    x: Any,
    y: Any,
    ax: Axes | None = None,
    names: tuple[Sequence[str] | None, Sequence[str] | None] | None = None,
) -> Axes:
    """Draw the samples, by the pair of columns that is most related.

    Continuous columns are drawn as points, or as their density where there are many; discrete
    columns as a heat map of their counts; one of each kind as the distribution within each
    category. Of several columns it draws the pair whose ranks, or the distances of the ranks from
    the middle, are most correlated, which finds most relations. Rows with missing values are left
    out.

    Args:
        x: n rows; an array, a tensor or a DataFrame.
        y: n rows, in the same form.
        ax: where to draw; a new figure if left out.
        names: of the columns of x and of y; from the DataFrames if left out.

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
    ax = make_axes(ax, height=3.4)
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
    ax.set_xlabel(drawable(x_names[i]), parse_math=False)
    ax.set_ylabel(drawable(y_names[j]), parse_math=False)
    return ax


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
                f"Expected {side} to have one sample per row but got a single value; "
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
    """The rows where neither is missing, as numbers if all the rest are numbers."""
    present = ~(_missing(a) | _missing(b))
    both = []
    for column in (a[present], b[present]):
        if column.dtype.kind == "O" and all(isinstance(v, int | float) for v in column):
            column = column.astype(float)
        both.append(column)
    return both


def _is_discrete(column: np.ndarray) -> bool:
    """Whether it does not hold numbers, or only few values, each of them often."""
    if column.dtype.kind not in "iuf":
        return True
    distinct = len(np.unique(column))
    return distinct <= CATEGORIES and distinct * 5 <= len(column)


def _codes(column: np.ndarray) -> tuple[np.ndarray, list[str]]:
    """A number for each category, with the rare ones of many merged, and their names."""
    if column.dtype.kind == "O":
        column = np.array([str(v) for v in column])
    values, codes, counts = np.unique(column, return_inverse=True, return_counts=True)
    labels = [drawable(f"{v:g}" if column.dtype.kind == "f" else v) for v in values]
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
    """Ranks, and their distances from the middle, each with mean 0 and norm 1."""
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
    """Show the middle 99 % where a few distant values would take all the space."""
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
    ax.set_facecolor(drawn.cmap(0.0))  # the colour of no samples, as in the other heat maps
    ax.figure.colorbar(drawn, ax=ax, label="samples")


def _draw_counts(ax: Axes, a: np.ndarray, b: np.ndarray) -> None:
    (i, across), (j, up) = _codes(a), _codes(b)
    counts = np.zeros((len(up), len(across)))
    np.add.at(counts, (j, i), 1)
    _heat(ax, np.arange(len(across) + 1) - 0.5, np.arange(len(up) + 1) - 0.5, counts, "samples")
    _ticks(ax, across)
    _ticks(ax, up, axis="y")


def _draw_within(ax: Axes, a: np.ndarray, b: np.ndarray, upright: bool = True) -> None:
    """Shares of a continuous column within each category; categories on x if upright, else on y."""
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
