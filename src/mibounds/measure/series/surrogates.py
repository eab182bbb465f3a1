"""Tests of independence for series: what chance gives, while each series stays as it is.

One series is cut into a few long pieces, which are put together in another order. That keeps its
own autocorrelation and removes every relation to the other series. At the cuts rows meet that were
apart, so that chance gives slightly less than it would; by how much follows from the
autocorrelations, and is added.

The statistic is that of `mibounds.measure.independence`, the correlation of two kernels, for all
lags at once: with Mehler's kernel, whose features are Hermite polynomials h_i of normal scores with
weights r^i, it is n times the sum of squared covariances of h_i(x_t) and h_j(y_{t+k}). The p-value
of a lag is the share of orders whose largest statistic over all lags exceeds its own. That corrects
for the number of lags, however much they depend on each other (Westfall and Young 1993).

References: Gretton et al. 2005 (the statistic); Künsch 1989 (pieces of a series).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from mibounds.measure.series.autocorrelations import (
    autocorrelation,
    bandwidth,
    block_length,
    flat_top,
    inflation,
)
from mibounds.samples.columns import Columns

if TYPE_CHECKING:
    from jaxtyping import Float, Int

MEHLER = 0.5  # weight of a polynomial of the next degree
DEGREES = {1: 3, 2: 2, 3: 2, 4: 2}  # of polynomials, by columns of numbers; 1 of more columns
INDICATORS = 20  # most frequent labels that a test sees
PIECES = 8, 20  # of a surrogate, at least and at most
MOVED = 0.9  # of the rows a surrogate must move beyond all lags
TRIES = 20

Statistic = Callable[["Int[np.ndarray, ' n']"], "Float[np.ndarray, ' m']"]


def features(side: Columns) -> Float[np.ndarray, "n q"]:
    """Functions of one side whose covariances with those of the other the test looks at.

    Args:
        side: numbers as normal scores, and labels.
    """
    n = len(side)
    found = [np.empty((n, 0))]
    numbers, labels = side.take("continuous").values, side.take("discrete")
    degree = DEGREES.get(numbers.shape[1], 1)
    h = [numbers, (numbers**2 - 1) / math.sqrt(2), (numbers**3 - 3 * numbers) / math.sqrt(6)]
    found += [math.sqrt(MEHLER) ** i * h[i] for i in range(degree)]
    if degree > 1:
        i, j = np.triu_indices(numbers.shape[1], 1)
        found.append(math.sqrt(MEHLER) * numbers[:, i] * numbers[:, j])
    if labels.width:
        codes, _ = labels.codes()
        counts = np.bincount(codes)
        found += [
            (codes == code)[:, None] / math.sqrt(counts[code] / n)
            for code in np.argsort(-counts)[:INDICATORS]
        ]
    together = np.hstack(found)
    return together - together.mean(0)


def lag_statistic(
    x: Float[np.ndarray, "n p"], y: Float[np.ndarray, "n q"], lags: Sequence[int]
) -> Statistic:
    """For an order of the rows of y, the statistic at each lag; positive: x leads.

    Example:
        >>> v = np.random.default_rng(0).normal(size=(200, 1))
        >>> of = lag_statistic(v[5:], v[:-5], [-5, 0, 5])
        >>> int(of(np.arange(195)).argmax())
        2
    """
    n, shift = len(x), np.asarray(lags)
    size = 1 << (n + int(np.abs(shift).max(initial=0))).bit_length()
    left = np.conj(np.fft.rfft(x, size, axis=0))
    rows = n - np.abs(shift)

    def statistic(order: np.ndarray) -> np.ndarray:
        right = np.fft.rfft(y[order], size, axis=0)
        total = np.zeros(len(shift))
        for column in right.T:
            sums = np.fft.irfft(left * column[:, None], size, axis=0)[shift % size]
            total += (sums**2).sum(1)
        return total / rows

    return statistic


def residual_statistic(
    x: Float[np.ndarray, "n p"],
    y: Float[np.ndarray, "m q"],
    z: Float[np.ndarray, "m r"],
    rows: Int[np.ndarray, " m"],
) -> Statistic:
    """The same of x at some rows and y, less what z predicts of both, for an order of x's rows.

    Args:
        x: features of the source.
        y: features of the target at the times that are looked at.
        z: features of what is given there.
        rows: of x at these times.
    """
    basis = _basis(np.hstack([np.ones((len(z), 1)), z]))
    scale = y.std(0)
    rest = y - basis @ (basis.T @ y)
    rest *= scale / np.maximum(rest.std(0), 1e-9 * scale + 1e-300)
    weights = x.std(0)

    def statistic(order: np.ndarray) -> np.ndarray:
        own = x[order][rows]
        own = own - basis @ (basis.T @ own)
        own *= weights / np.maximum(own.std(0), 1e-9 * weights + 1e-300)
        return np.array([((own.T @ rest) ** 2).sum() / len(own)])

    return statistic


def nested_statistic(
    x: Float[np.ndarray, "n p"],
    y: Float[np.ndarray, "m q"],
    z: Float[np.ndarray, "m r"],
    rows: Sequence[Int[np.ndarray, " m"]],
    lines: tuple[int, int],
) -> Statistic:
    """What one, two, ... rows of the past of x explain of y, in units of what they do by chance.

    By chance, k columns of x explain k q / n of the variance of q columns of y, with a variance of
    2 k q / n². The largest excess counts, over the rows of the past, and by lines alone or with
    curves.

    Args:
        x: features of the source.
        y: features of the target.
        z: features of what is given.
        rows: of x, the latest first.
        lines: how many of the features of x, and of y, are lines; these come first.
    """
    n = len(y)
    basis = _basis(np.hstack([np.ones((n, 1)), z]))
    sets = dict.fromkeys([lines, (x.shape[1], y.shape[1])])
    rests = [_basis(y[:, :q] - basis @ (basis.T @ y[:, :q])) for _, q in sets]

    def statistic(order: np.ndarray) -> np.ndarray:
        moved, best = x[order], -math.inf
        for (width, _), rest in zip(sets, rests, strict=True):
            own = np.hstack([moved[each, :width] for each in rows])
            own = own - basis @ (basis.T @ own)
            q, _ = np.linalg.qr(own)
            gains = n * ((q.T @ rest) ** 2).sum(1).reshape(-1, width).sum(1).cumsum()
            chance = width * rest.shape[1] * np.arange(1, len(gains) + 1)
            best = max(best, float(((gains - chance) / np.sqrt(2 * chance)).max()))
        return np.array([best])

    return statistic


def _basis(design: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n k"]:
    """Orthonormal columns that span those of a design, without what is only rounding."""
    u, s, _ = np.linalg.svd(design, full_matrices=False)
    return u[:, s > 1e-9 * s[0]]


class Seams(NamedTuple):
    """What cutting a series costs.

    Args:
        pieces: of a surrogate.
        factor: what its statistic is to be multiplied by.
        given_past: the same where a past is given, which leaves nothing that a cut could lose.
    """

    pieces: int
    factor: float
    given_past: float


def seams(x: Float[np.ndarray, "n p"], y: Float[np.ndarray, "n q"]) -> Seams:
    """Into how many pieces series are cut, and what that costs.

    With ρ the product of both autocorrelations, the statistic's mean is sum_h (1 - |h| / n) ρ(h),
    and with c cuts sum_h (1 - (1 + c) |h| / n) ρ(h). A series of few independent stretches knows
    these only roughly, which widens what chance gives as Student's t does.

    Args:
        x: features of one side.
        y: features of the other.
    """
    n = len(x)
    rho = _common(x) * _common(y)
    block = block_length(rho, n)
    pieces = int(np.clip(n // max(block, 1), *PIECES))
    lags = np.arange(bandwidth(rho, n) + 1)
    weighted = flat_top(len(lags) - 1) * rho[: len(lags)] * np.where(lags, 2, 1)
    whole = float(weighted @ (1 - lags / n))
    cut = float(weighted @ np.maximum(1 - (1 + pieces) * lags / n, 0))
    rough = 1 + 2 * max(whole, 1.0) / n
    return Seams(pieces, rough * max(1.0, whole / cut) if cut > 0 else rough, rough)


def _common(columns: Float[np.ndarray, "n q"]) -> Float[np.ndarray, " m"]:
    """The autocorrelation of several columns, each with the weight of its variance."""
    weights = columns.var(0)
    every = [w * autocorrelation(v) for v, w in zip(columns.T, weights, strict=True)]
    rho = np.sum(every, 0) / weights.sum()
    lost = inflation(rho, len(columns)) / len(columns)  # by the mean that is subtracted
    return (rho + lost) / (1 + lost)


def surrogate_orders(
    n: int, count: int, pieces: int, least: int, rng: np.random.Generator
) -> list[Int[np.ndarray, " n"]]:
    """Orders of the rows that keep long runs together.

    Args:
        n: rows.
        count: of orders.
        pieces: that each order consists of.
        least: most rows must move by more than this, if that is possible.
        rng: draws the cuts.

    Example:
        >>> orders = surrogate_orders(100, 5, 4, 10, np.random.default_rng(0))
        >>> all(sorted(order) == list(range(100)) for order in orders)
        True
    """
    found = []
    for _ in range(count):
        best, moved = np.arange(n), -1.0
        for _ in range(TRIES):
            order = _cut_and_shuffle(n, min(pieces, n), rng)
            share = float((np.abs(order - np.arange(n)) > least).mean())
            if share > moved:
                best, moved = order, share
            if share > MOVED:
                break
        found.append(best)
    return found


def _cut_and_shuffle(n: int, pieces: int, rng: np.random.Generator) -> Int[np.ndarray, " n"]:
    """A circle of rows, cut at random and put together in another order."""
    cuts = np.sort(rng.choice(n, pieces, replace=False))
    first, *rest = np.split(np.arange(n), cuts)
    rest[-1] = np.concatenate([rest[-1], first])
    order = np.concatenate([rest[i] for i in rng.permutation(len(rest))])
    return np.roll(order, rng.integers(n))


def p_values(
    observed: Float[np.ndarray, " m"], null: Float[np.ndarray, "k m"], level: float
) -> tuple[Float[np.ndarray, " m"], float]:
    """The p-value of each lag, corrected for their number, and the statistic that is significant.

    Args:
        observed: the statistic at each lag.
        null: the same for each surrogate.
        level: 1 - level is the size of the test.

    Example:
        >>> p_values(np.array([9.0, 1.0]), np.array([[0.0, 2.0], [3.0, 1.0], [0.0, 4.0]]), 0.75)
        (array([0.25, 1.  ]), 4.0)
    """
    most = np.sort(null.max(1))[::-1]
    p = (1 + (most[:, None] >= observed).sum(0)) / (1 + len(most))
    place = int((1 - level) * (1 + len(most)) + 1e-9)
    return p, float(most[place - 1]) if place else math.inf
