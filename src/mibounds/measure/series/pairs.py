"""Two series, the rows of them that belong together at a lag, and what is measured on those.

A window says which rows are the source, the target and the target's past; from it come the value by
one of three methods, and the test.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from mibounds.measure.classical.interfaces import has_scipy
from mibounds.measure.conditional_shares import (
    APART,
    Shares,
    count_shares,
    gaussian_shares,
    neighbour_shares,
)
from mibounds.measure.series.autocorrelations import autocorrelation, bandwidth
from mibounds.measure.series.surrogates import (
    Statistic,
    features,
    lag_statistic,
    nested_statistic,
    residual_statistic,
    seams,
    surrogate_orders,
)
from mibounds.samples.columns import Columns

if TYPE_CHECKING:
    from jaxtyping import Float, Int

LONGEST = 10  # rows of a past that is chosen
ROWS_PER_PAST = 50  # rows that each row of it needs
SCREENED = 2000  # rows by which neighbours are compared with the Gaussian copula
SEARCHED = 20_000  # rows at most among which neighbours are searched
CLEARLY = 3.0  # standard errors by which neighbours must find more
WIDEST = 6  # columns of a window up to which neighbours are asked
NEAREST = 50  # rows at most, before and after, that are left out of neighbours


@dataclass(frozen=True)
class Window:
    """Rows that belong together.

    Args:
        ahead: whether x is the source; otherwise y is.
        source: rows of the source, several where its past counts.
        target: rows of the other series.
        past: rows of the target's past; no column for none.
    """

    ahead: bool
    source: Int[np.ndarray, "m s"]
    target: Int[np.ndarray, " m"]
    past: Int[np.ndarray, "m l"]

    def last(self, rows: int) -> Window:
        """At most that many rows, from the end."""
        some = slice(-rows, None)
        return Window(self.ahead, self.source[some], self.target[some], self.past[some])


def lag_window(n: int, lag: int, past: int) -> Window:
    """The rows of I(x_t; y_{t+k} | past of y), and of the other direction where k < 0.

    Example:
        >>> lag_window(6, -2, 1).target, lag_window(6, 1, 3).past[0]
        (array([2, 3, 4, 5]), array([2, 1, 0]))
    """
    k = abs(lag)
    source = np.arange(max(0, past - k), n - k)
    target = source + k
    return Window(lag >= 0, source[:, None], target, target[:, None] - np.arange(1, past + 1))


def transfer_window(n: int, ahead: bool, source: int, past: int) -> Window:
    """The rows of the transfer entropy, with so many rows of either past.

    Example:
        >>> transfer_window(6, True, 2, 1).source[0]
        array([1, 0])
    """
    target = np.arange(max(source, past), n)
    return Window(
        ahead,
        target[:, None] - np.arange(1, source + 1),
        target,
        target[:, None] - np.arange(1, past + 1),
    )


class SeriesPair:
    """Two series whose values are measured and tested.

    Args:
        x: one series, its numbers as normal scores.
        y: the other one.
        seed: of the surrogates.
    """

    def __init__(self, x: Columns, y: Columns, seed: int):
        self.sides, self.seed, self.n = (x, y), seed, len(x)
        kinds = set(x.kinds + y.kinds)
        self.labels, self.numbers = kinds == {"discrete"}, kinds == {"continuous"}
        values = x.values, y.values
        distances = _distances(x), _distances(y)
        self.arrays = {"gaussian": values, "counts": values, "neighbours": distances}
        self.features = features(x), features(y)
        self.near = min(NEAREST, *(_memory(f) for f in self.features))

    def shares(self, method: str, window: Window) -> Shares:
        """The value on a window, by "gaussian", "neighbours" or "counts"."""
        if method == "neighbours":
            window = window.last(SEARCHED)
        source, target = self.arrays[method][:: 1 if window.ahead else -1]
        parts = _stack(source, window.source), target[window.target], _stack(target, window.past)
        if method == "neighbours":
            return neighbour_shares(*parts, near=self.near)
        return (gaussian_shares if method == "gaussian" else count_shares)(*parts)

    def choose(self, windows: Sequence[Window]) -> str:
        """The method: a Gaussian copula for numbers, unless neighbours find clearly more."""
        if self.labels:
            return "counts"
        if not self.numbers:
            return "neighbours"
        for window in windows if has_scipy() else ():
            some = window.last(SCREENED)
            width = self.sides[0].width * (window.source.shape[1] if window.ahead else 1)
            width += self.sides[1].width * (1 if window.ahead else window.source.shape[1])
            width += self.sides[window.ahead].width * window.past.shape[1]
            if width > WIDEST:
                continue
            more = self.shares("neighbours", some)
            if more.nats - self.shares("gaussian", some).nats > CLEARLY * more.error:
                return "neighbours"
        return "gaussian"

    def past(self, side: int) -> int:
        """Rows of its past by which a series is predicted best; at least one."""
        values = self.sides[side].inputs()
        return max(1, choose_past(values, values, 0))

    def source_past(self, ahead: bool, past: int) -> int:
        """Rows of the source's past that predict the target best, beside its own; at least one.

        The longer of two choices: by lines, which need few rows, and by curves.
        """
        lines = [side.inputs() for side in self.sides]
        pasts = (
            choose_past(target, source, past)
            for source, target in (pair[:: 1 if ahead else -1] for pair in (lines, self.features))
        )
        return max(1, *pasts)

    def test(
        self, lags: Sequence[int], past: int, permutations: int
    ) -> tuple[Float[np.ndarray, " m"], Float[np.ndarray, "k m"]]:
        """The statistic at each lag, and under surrogates.

        Without a past, y is put into other orders; with one it is the source at each lag, so that
        the target keeps its own past.
        """
        x, y = self.features
        if not past:
            of = lag_statistic(x, y, lags)
            return self._compare([of], permutations, max(map(abs, lags)), past)
        statistics = [self._residual(lag_window(self.n, lag, past)) for lag in lags]
        return self._compare(statistics, permutations, max(map(abs, lags)) + past, past)

    def test_transfer(
        self, ahead: bool, past: int, permutations: int
    ) -> tuple[Float[np.ndarray, " 1"], Float[np.ndarray, "k 1"]]:
        """The same for the transfer entropy, over all lengths of the source's past."""
        longest = max(1, min(LONGEST, self.n // ROWS_PER_PAST))
        window = transfer_window(self.n, ahead, longest, past)
        source, target = self.features[:: 1 if ahead else -1]
        given = _stack(target, window.past)
        lines = [
            side.kinds.count("continuous") if "discrete" not in side.kinds else columns.shape[1]
            for side, columns in zip(self.sides, self.features, strict=True)
        ]
        of = nested_statistic(
            source,
            target[window.target],
            given,
            list(window.source.T),
            (lines[not ahead], lines[ahead]),
        )
        return self._compare([of], permutations, LONGEST + past, past)

    def _residual(self, window: Window) -> Statistic:
        source, target = self.features[:: 1 if window.ahead else -1]
        given = _stack(target, window.past)
        return residual_statistic(source, target[window.target], given, window.source[:, 0])

    def _compare(
        self, statistics: Sequence[Statistic], permutations: int, least: int, past: int
    ) -> tuple[np.ndarray, np.ndarray]:
        cuts = seams(*self.features)
        rng = np.random.default_rng([self.seed, 2])
        orders = surrogate_orders(self.n, permutations, cuts.pieces, least, rng)
        rows = [np.concatenate([of(o) for of in statistics]) for o in [np.arange(self.n), *orders]]
        return rows[0], np.array(rows[1:]) * (cuts.given_past if past else cuts.factor)


def choose_past(
    target: Float[np.ndarray, "n d"], source: Float[np.ndarray, "n k"], past: int
) -> int:
    """How many rows of the source's past predict the target, by BIC of linear regressions.

    Args:
        target: what is predicted.
        source: whose past predicts it.
        past: rows of the target's own past that are used in any case.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> z = np.zeros((500, 1))
        >>> for t in range(2, 500):
        ...     z[t] = 0.5 * z[t - 2] + rng.normal()
        >>> choose_past(z, z, 0)
        2
    """
    most = max(1, min(LONGEST, len(target) // (ROWS_PER_PAST * source.shape[1])))
    first = max(most, past)
    rows = np.arange(first, len(target))
    n, d = len(rows), target.shape[1]
    y = target[rows] - target[rows].mean(0)
    own = [target[rows - j] for j in range(1, past + 1)]
    best, found = math.inf, 0
    for p in range(most + 1):
        blocks = [*own, *(source[rows - j] for j in range(1, p + 1))]
        rest = y
        if blocks:
            design = np.hstack(blocks)
            design = design - design.mean(0)
            rest = y - design @ np.linalg.lstsq(design, y, rcond=1e-10)[0]
        covariance = rest.T @ rest / n + 1e-12 * np.eye(d)
        price = p * source.shape[1] * d * math.log(n)
        score = n * np.linalg.slogdet(covariance)[1] + price
        if score < best - 1e-9:
            best, found = score, p
    return found


def _memory(columns: Float[np.ndarray, "n q"]) -> int:
    """Rows after which a series has forgotten itself."""
    return max(bandwidth(autocorrelation(column), len(columns)) // 2 for column in columns.T)


def _stack(values: Float[np.ndarray, "n d"], rows: Int[np.ndarray, "m s"]) -> np.ndarray:
    """Several rows as one, with all their columns."""
    return values[rows].reshape(len(rows), -1)


def _distances(side: Columns) -> Float[np.ndarray, "n d"]:
    """Columns for a search of neighbours: numbers of variance 1, labels far apart."""
    numbers, labels = side.take("continuous").smooth, side.take("discrete")
    if not labels.width:
        return numbers
    codes, count = labels.codes()
    return np.hstack([numbers, APART * np.eye(count)[codes]])
