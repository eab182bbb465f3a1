"""The value of each pair, by whichever of two ways sees more, with its interval and its p-value.

The series of `mibounds.measure.tables.pairs` is exact to the point of chance where the copula is
Gaussian or nearly so, and costs little. Neighbours (`mibounds.measure.tables.neighbours`) see any
dependence, with more noise. Neighbours take the series' place

- where it departs from the Gaussian copula by more than `DEPARTURE` / sqrt(n) nats,
- where a value of either column is in `COMMON` of the rows, and they share more than `TIED`,
- where they see more than it, by `BEYOND` times the noise of neighbours, `NOISE` / sqrt(n), and
  sqrt(labels - 1) times as much where there are labels.

The last needs both for every pair; with budget="fast", pairs of numbers do without. The fewer
neighbours, the smaller the squares that are taken for uniform: where fewer see more, the value is
extrapolated.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from mibounds.measure.tables import neighbours, pairs
from mibounds.measure.tables.pairs import PairValues
from mibounds.measure.tables.variables import Rows, Variable, entropy_of

if TYPE_CHECKING:
    from jaxtyping import Float

__all__ = ["FEWEST", "FIELDS", "METHODS", "can_look", "measure_pairs"]

FEWEST = 10  # rows
METHODS = ("series", "neighbours", "counts", "definition", "too few rows", "too many labels")
# How the rows of the result are called. Below and above are the two sides of an interval as
# standard deviations.
FIELDS = ("nats", "below", "above", "p_value", "rows", "method")
# Chosen for small errors and intervals that cover, on other samples than those that are reported.
DEPARTURE = 0.4
COMMON = 0.05  # share of the rows
TIED = 0.05
BEYOND = 2.5
LABELS_BEYOND = 1.0
NOISE = 0.55
EXTRAPOLATED = 0.7  # of what fewer neighbours see more,
CERTAIN = 0.6  # beyond this much of the noise
SERIES = 1.2  # times the standard error of a series
LOCAL = 1.4  # times that of neighbours
GROWING = 2.5  # times what fewer neighbours see more
COUNTED = 1.1  # times that of counts
CEILING = 2.0  # nats below the logarithm of the rows, from which on more cannot be told apart
ELEMENTS = 600_000  # rows times columns at once


def measure_pairs(
    x: Variable, ys: Sequence[Variable], rows: Rows, fast: bool, device: torch.device
) -> Float[np.ndarray, "6 J"]:
    """One column with J others.

    Args:
        x: the column.
        ys: the others.
        rows: where ranks are kept that were computed before.
        fast: whether to look at neighbours only where the series asks for it.
        device: where the series are computed.

    Returns:
        A column of `FIELDS` for each pair; the method is an index of `METHODS`.
    """
    found = np.empty((len(FIELDS), len(ys)))
    groups: dict[tuple[str, bytes], list[int]] = {}
    for j, y in enumerate(ys):
        if x.names_rows or y.names_rows:
            both = (x.present & y.present).sum()
            found[:, j] = math.nan, math.nan, math.nan, math.nan, both, 5
            continue
        groups.setdefault((y.kind, y.pattern), []).append(j)
    for (kind, _), mine in groups.items():
        complete = x.present & ys[mine[0]].present
        n = int(complete.sum())
        if n < FEWEST:
            found[:, mine] = np.array([math.nan] * 3 + [math.nan, n, 4])[:, None]
            continue
        found[4, mine] = n
        size = max(1, ELEMENTS // n) if kind == "continuous" else len(mine)
        for start in range(0, len(mine), size):
            some = mine[start : start + size]
            part = _measure(x, [ys[j] for j in some], rows, complete, fast, device)
            found[np.ix_([0, 1, 2, 3, 5], some)] = part
    found[0] = np.maximum(found[0], 0.0)  # NaN stays
    found[2, found[0] > np.log(np.maximum(found[4], 1)) - CEILING] = math.inf
    return found


def _measure(
    x: Variable,
    ys: Sequence[Variable],
    rows: Rows,
    complete: np.ndarray,
    fast: bool,
    device: torch.device,
) -> np.ndarray:
    """The same for others of one kind with values in the same rows."""
    if not x.varies(complete) or not all(y.varies(complete) for y in ys):
        if len(ys) == 1:
            return np.array([[0.0], [0.0], [0.0], [1.0], [3]])
        return np.concatenate([_measure(x, [y], rows, complete, fast, device) for y in ys], 1)
    if x.kind == ys[0].kind == "discrete":
        a, others = rows.codes(x, complete), [rows.codes(y, complete) for y in ys]
        found = pairs.labels_and_labels(a, others)
        most = [min(entropy_of(np.bincount(a)), entropy_of(np.bincount(b))) for b in others]
        error = COUNTED * found.error
        nats = np.clip(found.nats, 0.0, most)
        return np.stack([nats, error, error, found.p_value, np.full(len(ys), 2.0)])
    if x.kind == ys[0].kind:
        return _numbers(x, ys, rows, complete, fast, device)
    if x.kind == "discrete":
        return _labels(x, ys, rows, complete, device)
    return np.concatenate([_labels(y, [x], rows, complete, device) for y in ys], 1)


def _numbers(
    x: Variable,
    ys: Sequence[Variable],
    rows: Rows,
    complete: np.ndarray,
    fast: bool,
    device: torch.device,
) -> np.ndarray:
    n = int(complete.sum())
    found = pairs.numbers_and_numbers(
        rows.prepared([x], complete, device)[0], rows.prepared(ys, complete, device)
    )
    noise = NOISE / math.sqrt(n)
    table = _of_series(found)
    table[2] = np.hypot(table[1], found.departure.clip(0) + found.unseen)
    if not can_look():
        return table
    coarse = np.array([max(x.tied, y.tied) >= COMMON for y in ys])
    asked = (found.departure > DEPARTURE / math.sqrt(n)) | (coarse & (found.nats > TIED))
    for j in np.flatnonzero(asked).tolist() if fast else range(len(ys)):
        look = rows.places if coarse[j] else rows.scores
        nats, error, growth = neighbours.neighbours(
            look(x, complete), look(ys[j], complete), counted=bool(coarse[j])
        )
        if not coarse[j]:
            nats += EXTRAPOLATED * max(growth - CERTAIN * noise, 0.0)
        if asked[j] or nats > found.nats[j] + BEYOND * noise:
            error *= LOCAL
            table[:3, j] = nats, error, math.hypot(error, GROWING * max(growth, 0.0))
            table[4, j] = 1
        else:
            table[2, j] = math.hypot(table[2, j], max(nats - found.nats[j], 0.0))
    return table


def _labels(
    x: Variable, ys: Sequence[Variable], rows: Rows, complete: np.ndarray, device: torch.device
) -> np.ndarray:
    """Labels x and numbers ys."""
    a = rows.codes(x, complete)
    others = [rows.scores(y, complete) for y in ys]
    tensor = torch.as_tensor(np.stack(others), dtype=torch.float32, device=device)
    found = pairs.labels_and_numbers(a, tensor)
    noise = NOISE * math.sqrt(max(int(a.max()), 1) / len(a))
    table = _of_series(found)
    for j, b in enumerate(others):
        nats, error = neighbours.label_neighbours(a, b)
        apart = nats - found.nats[j]
        if apart > LABELS_BEYOND * noise:
            table[:3, j] = nats, math.hypot(LOCAL * error, apart / 3), LOCAL * error
            table[4, j] = 1
        else:
            table[2, j] = math.hypot(table[1, j], found.unseen[j] + max(apart, 0))
    table[0] = np.minimum(table[0], entropy_of(np.bincount(a)))
    return table


def can_look() -> bool:
    """Whether scipy is here, whose trees find neighbours."""
    return importlib.util.find_spec("scipy") is not None


def _of_series(found: PairValues) -> np.ndarray:
    """Value, both sides, p-value and method."""
    error = SERIES * found.error
    return np.stack([found.nats, error, error, found.p_value, np.zeros_like(error)])
