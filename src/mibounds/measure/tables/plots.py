"""Pictures of rankings and matrices: bars, a heat map, a network.

As those of `mibounds.measure.plots`: each draws into the axes that it is given, or makes a figure
of its own, and returns the axes. The extra ``plot`` is needed.

Reference: Fruchterman and Reingold 1991 for the places of a network.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from mibounds.measure.plots import BLUE, GREY, SKY, drawable, make_axes
from mibounds.measure.tables.results import MatrixData, RankingData
from mibounds.measure.tables.scales import Unit

if TYPE_CHECKING:
    from jaxtyping import Float
    from matplotlib.axes import Axes

__all__ = ["order_of", "plot_matrix", "plot_network", "plot_ranking"]

NAMED = 60  # columns up to which each has its name at the axis
WRITTEN = 12  # columns up to which each cell has its number


def plot_ranking(ranking: RankingData, ax: Axes | None = None, most: int = 30) -> Axes:
    """A bar for each column, with its interval; light where it is not significant.

    What a column adds to those chosen before is a narrow dark bar within.

    Args:
        ranking: what to draw.
        ax: where to draw; a new figure if left out.
        most: columns at most.

    Returns:
        The axes, in nats.

    Example:
        >>> from mibounds.measure.tables.rankings import rank
        >>> x = np.random.default_rng(0).normal(size=(200, 2))
        >>> plot_ranking(rank(x, x[:, 0] ** 3 + x[:, 1])).get_xlabel()
        'mutual information with y (nats)'
    """
    rows = [c for c in ranking.columns if c.nats == c.nats][:most]
    ax = make_axes(ax, height=1.2 + 0.25 * max(len(rows), 3))
    places = np.arange(len(rows))
    nats = np.array([c.nats for c in rows])
    low, high = (np.array([getattr(c, end) for c in rows]) for end in ("low", "high"))
    high = np.where(np.isinf(high), nats, high)
    colours = [BLUE if c.p_value <= 0.05 else GREY for c in rows]
    ax.barh(places, nats, color=colours, alpha=0.55 if ranking.given else 0.8, height=0.7)
    if ranking.given:
        gains = [c.gain or 0.0 for c in rows]
        ax.barh(places, gains, color=BLUE, height=0.35, label="gain given those above")
        ax.legend(frameon=False, fontsize="small", loc="lower right", bbox_to_anchor=(1, 1))
    ax.errorbar(
        nats, places, xerr=[np.maximum(nats - low, 0), np.maximum(high - nats, 0)], fmt="none",
        ecolor=SKY if not ranking.given else GREY, elinewidth=1.4, capsize=2,
    )  # fmt: skip
    ax.set_yticks(places, [drawable(c.name) for c in rows], parse_math=False)
    ax.set_ylim(len(rows) - 0.4, -0.6)
    ax.set_xlim(left=0)
    ax.set_xlabel(f"mutual information with {drawable(ranking.target)} (nats)", parse_math=False)
    ax.grid(axis="x", alpha=0.25)
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def plot_matrix(
    matrix: MatrixData, ax: Axes | None = None, unit: Unit = "normalised", cluster: bool = True
) -> Axes:
    """A heat map; pairs that are not significant are left empty.

    Args:
        matrix: what to draw.
        ax: where to draw; a new figure if left out.
        unit: "nats", "bits" or "normalised".
        cluster: whether to bring similar columns next to each other.

    Returns:
        The axes.

    Example:
        >>> from mibounds.measure.tables.matrices import matrix
        >>> x = np.random.default_rng(0).normal(size=(200, 3))
        >>> [t.get_text() for t in plot_matrix(matrix(x), cluster=False).get_xticklabels()]
        ['0', '1', '2']
    """
    values = matrix.values(unit)
    rows, columns = np.arange(len(matrix.left)), np.arange(len(matrix.right))
    if cluster:
        rows, columns = order_of(matrix)
    shown = np.where(np.isfinite(values), values, np.nan)
    if matrix.symmetric:
        np.fill_diagonal(shown, np.nan)
    shown[~(matrix.corrected <= 0.05) & ~np.isnan(matrix.corrected)] = 0.0
    side = min(max(3.2, 0.28 * max(len(rows), len(columns)) + 1.6), 11.0)
    if ax is None:
        from matplotlib.figure import Figure

        make_axes(None)  # its error, if there is no matplotlib
        height = max(2.4, side * len(rows) / max(len(columns), 1) if not matrix.symmetric else side)
        ax = Figure(figsize=(side + 0.9, min(height, 11.0)), layout="constrained").subplots()
    top = 1.0 if unit == "normalised" else float(np.nanmax(shown, initial=1e-9))
    ax.set_facecolor("#80808030")  # of the diagonal, and of pairs without a value
    image = ax.imshow(shown[np.ix_(rows, columns)], cmap="Blues", vmin=0.0, vmax=top, aspect="auto")
    _name_axes(ax, matrix, rows, columns)
    if max(len(rows), len(columns)) <= WRITTEN:
        for i, j in np.ndindex(len(rows), len(columns)):
            value = shown[rows[i], columns[j]]
            if value > 0:
                colour = "white" if value > 0.55 * top else "black"
                ax.text(j, i, f"{value:.2f}", ha="center", va="center", color=colour, fontsize=7)
    label = unit if unit == "normalised" else f"mutual information ({unit})"
    figure: Any = ax.figure
    figure.colorbar(image, ax=ax, label=label, shrink=0.8)
    return ax


def _name_axes(ax: Axes, matrix: MatrixData, rows: np.ndarray, columns: np.ndarray) -> None:
    style: dict[str, Any] = {"parse_math": False, "fontsize": "small"}
    if len(columns) <= NAMED:
        names = [drawable(matrix.right[j]) for j in columns]
        ax.set_xticks(range(len(names)), names, rotation=90, **style)
    else:
        ax.set_xlabel(f"{len(columns)} columns")
    if len(rows) <= NAMED:
        names = [drawable(matrix.left[i]) for i in rows]
        ax.set_yticks(range(len(names)), names, **style)
    else:
        ax.set_ylabel(f"{len(rows)} columns")


def order_of(matrix: MatrixData) -> tuple[np.ndarray, np.ndarray]:
    """An order of the rows and of the columns in which similar ones are neighbours.

    Hierarchical clustering by average linkage, of the distance 1 - normalised value in a symmetric
    matrix, and of the distance of rows, or columns, in another one.

    Example:
        >>> from mibounds.measure.tables.matrices import matrix
        >>> x = np.random.default_rng(0).normal(size=(300, 4))
        >>> x[:, 3] += x[:, 0]
        >>> rows, _ = order_of(matrix(x))
        >>> abs(rows.tolist().index(3) - rows.tolist().index(0))
        1
    """
    values = np.nan_to_num(matrix.values("normalised"))
    if matrix.symmetric:
        distance = 1 - values
        np.fill_diagonal(distance, 0.0)
        order = _cluster(distance)
        return order, order
    sides = [np.sqrt(np.square(v[:, None] - v[None]).mean(-1)) for v in (values, values.T)]
    return _cluster(sides[0]), _cluster(sides[1])


def _cluster(distance: Float[np.ndarray, "k k"]) -> np.ndarray:
    """Average linkage: the two nearest clusters become one, turned so that similar ends meet."""
    k = len(distance)
    members = {i: [i] for i in range(k)}
    apart = distance.astype(np.float64).copy()
    np.fill_diagonal(apart, np.inf)
    for _ in range(k - 1):
        i, j = np.unravel_index(np.argmin(apart), apart.shape)
        i, j = int(min(i, j)), int(max(i, j))
        a, b = members[i], members.pop(j)
        ways = [(a, b), (a[::-1], b), (a, b[::-1]), (a[::-1], b[::-1])]
        first, second = min(ways, key=lambda way: distance[way[0][-1], way[1][0]])
        weight = len(a) / (len(a) + len(b))
        mean = weight * apart[i] + (1 - weight) * apart[j]
        apart[i], apart[:, i] = mean, mean
        apart[j], apart[:, j], apart[i, i] = np.inf, np.inf, np.inf
        members[i] = first + second
    return np.array(next(iter(members.values()))) if k else np.arange(0)


def plot_network(
    matrix: MatrixData, ax: Axes | None = None, edges: int = 30, level: float = 0.05
) -> Axes:
    """The strongest pairs that are dependent: columns are nodes, widths are normalised values.

    Args:
        matrix: what to draw.
        ax: where to draw; a new figure if left out.
        edges: how many pairs at most.
        level: for their corrected p-values.

    Returns:
        The axes.

    Example:
        >>> from mibounds.measure.tables.matrices import matrix
        >>> x = np.random.default_rng(0).normal(size=(300, 3))
        >>> x[:, 1] += x[:, 0]
        >>> ax = plot_network(matrix(x))
        >>> len(ax.lines), sorted(text.get_text() for text in ax.texts)
        (1, ['0', '1'])
    """
    pairs = [p for p in matrix.pairs("normalised") if p.p_value <= level][:edges]
    if ax is None:
        from matplotlib.figure import Figure

        make_axes(None)  # its error, if there is no matplotlib
        ax = Figure(figsize=(6.4, 5.6), layout="constrained").subplots()
    nodes: dict[tuple[int, str], int] = {}
    sides = (0, 0) if matrix.symmetric else (0, 1)
    ends = [
        tuple(nodes.setdefault((side, name), len(nodes))
              for side, name in zip(sides, (p.left, p.right), strict=True))
        for p in pairs
    ]  # fmt: skip
    values = [p.value for p in pairs]
    places = _arrange(len(nodes), ends, values)
    for (i, j), value in zip(ends, values, strict=True):
        ax.plot(
            *places[[i, j]].T, color=BLUE, lw=0.5 + 5 * value, alpha=0.25 + 0.6 * value,
            solid_capstyle="round", zorder=1,
        )  # fmt: skip
    for (side, name), (x, y) in zip(nodes, places, strict=True):
        ax.scatter([x], [y], s=60, color=SKY if side else BLUE, zorder=2)
        ax.annotate(
            drawable(name), (x, y), xytext=(0, 7), textcoords="offset points", ha="center",
            fontsize="small", parse_math=False, zorder=3,
        )  # fmt: skip
    if not pairs:
        ax.text(0.5, 0.5, "no pair is dependent", ha="center", transform=ax.transAxes)
    ax.margins(0.12)
    ax.set_axis_off()
    return ax


def _arrange(nodes: int, ends: list[Any], values: list[float]) -> Float[np.ndarray, "k 2"]:
    """Places at which connected nodes are near each other, and all others are not."""
    angle = 2 * math.pi * np.arange(nodes) / max(nodes, 1)
    places = np.stack([np.cos(angle), np.sin(angle)], 1)
    if nodes < 3:
        return places
    pull = np.zeros((nodes, nodes))
    for (i, j), value in zip(ends, values, strict=True):
        pull[i, j] = pull[j, i] = 0.3 + value
    many = np.sqrt((pull > 0).sum(1))
    pull /= np.maximum(np.outer(many, many), 1)  # or all of a group would stand in one place
    near = 2.0 / math.sqrt(nodes)
    for heat in np.linspace(0.15, 0.002, 300):
        ways = places[:, None] - places[None]
        apart = np.maximum(np.sqrt((ways**2).sum(-1)), 1e-3)
        force = near**2 / apart**2 - pull * apart / near
        move = (ways * force[..., None]).sum(1) - 0.3 * places  # and all of them to the middle
        size = np.maximum(np.sqrt((move**2).sum(-1, keepdims=True)), 1e-9)
        places = places + move / size * np.minimum(size, heat)
    return places
