"""`lags`: how much one series says of another, earlier or later, and beyond that one's own past.

    I(x_t; y_{t+k})                                  for each lag k; x leads where k > 0
    I(x_t; y_{t+k} | y_{t+k-1}, ..., y_{t+k-l})      with a past of l rows; for k < 0 the other way
    T(x -> y) = I(y_{t+1}; x_t, ..., x_{t-p+1} | y_t, ..., y_{t-l+1}),  the transfer entropy

Each value is the mean of a share of each row (`mibounds.measure.conditional_shares`), by a Gaussian
copula unless neighbours find clearly more. Rows depend on each other: errors, biases and tests take
that into account, by the autocorrelations (`mibounds.measure.series.autocorrelations`) and by
surrogates (`mibounds.measure.series.surrogates`).

References: Schreiber 2000 (transfer entropy, equation 4), Wibral et al. 2013 (its lags).
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mibounds.measure.conditional_shares import codes_of
from mibounds.measure.results import Advice
from mibounds.measure.series.autocorrelations import STRETCHES, autocorrelation, inflation
from mibounds.measure.series.pairs import SeriesPair, Window, lag_window, transfer_window
from mibounds.measure.series.results import Lag, Lags, Transfer
from mibounds.measure.series.surrogates import features, p_values
from mibounds.progress import check_progress
from mibounds.samples.checks import check_count, check_level, check_seed
from mibounds.samples.columns import Columns, as_columns, check_repeats, find_missing
from mibounds.samples.precision import undisturbed

__all__ = ["lags"]

FEWEST = 50  # rows at a lag
BLOCKS = 10  # fewest blocks of a trustworthy error
PER_CELL = 5  # rows that a cell of counts needs
METHODS = ("default", "gaussian", "neighbours", "counts")


@undisturbed
def lags(
    x: Any,
    y: Any,
    *,
    max_lag: int = 10,
    given_past: int | str = 0,
    transfer: bool = False,
    method: str = "default",
    x_kinds: Sequence[str | None] | str | None = None,
    y_kinds: Sequence[str | None] | str | None = None,
    level: float = 0.95,
    permutations: int = 199,
    seed: int = 0,
    progress: Callable[[float, str], None] | None = None,
) -> Lags:
    """Measure how much x says of y at each lag, I(x_t; y_{t+k}), with errors made for series.

    Rows are times at equal distances. At a positive lag x leads: x now and y later. Intervals are
    those of dependent rows. P-values are corrected for the number of lags.

    Args:
        x: one row per time: array, tensor, series or data frame, of numbers or labels.
        y: the same, at the same times.
        max_lag: lags from ``-max_lag`` to ``max_lag``.
        given_past: rows of the past of what is led that are given, for what x adds to them; "auto"
            to choose them by the Bayesian information criterion; 0 for none.
        transfer: whether to measure the transfer entropy in both directions, too; the length of
            the source's past is always chosen.
        method: "gaussian" (a Gaussian copula), "neighbours", "counts" (of labels); by "default"
            counts for labels, neighbours for labels and numbers, and for numbers a Gaussian copula
            unless neighbours find clearly more.
        x_kinds: "continuous" or "discrete", for all columns or for each; detected automatically if
            left out.
        y_kinds: the same for y.
        level: of the intervals, and of the significance.
        permutations: surrogates of a series, for the p-values; 0 for none.
        seed: of the surrogates.
        progress: called with the share of the work that is done, and a word about it.

    Returns:
        One row per lag, in nats.

    Raises:
        ValueError: for series or settings that cannot be used, with what to do.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> x = rng.normal(size=500)
        >>> y = np.r_[np.zeros(3), x[:-3]] + rng.normal(size=500)
        >>> found = lags(x, y, max_lag=5)
        >>> found.best.lag, round(found.best.nats, 1), found.best.p_value
        (3, 0.4, 0.005)
    """
    start = time.perf_counter()
    check_progress(progress)
    _check(max_lag, given_past, method, level, permutations, seed)
    unit = find_unit(x, y)
    x, y = _read(x, y, (x_kinds, y_kinds), max_lag)
    pair = SeriesPair(x, y, seed)
    auto = isinstance(given_past, str)
    past = max(pair.past(0), pair.past(1)) if auto else given_past
    if past > len(x) // 2:
        raise ValueError(
            f"Expected given_past of at most half of the {len(x)} rows but got {past}; "
            "pass fewer, or a longer series."
        )
    wanted = [k for k in range(-max_lag, max_lag + 1) if k or not past]
    windows = [lag_window(len(x), k, past) for k in wanted]
    across = [_transfer(pair, ahead, past) for ahead in (True, False)] if transfer else []
    chosen = _method(pair, method, [*windows, *across])
    shares = []
    for done, window in enumerate(windows):
        if progress is not None:
            progress(done / (2 * len(windows)), "values")
        shares.append(pair.shares(chosen, window))
    if progress is not None:
        progress(0.5, "surrogates")
    p, significant = _test(pair, wanted, past, permutations, level)
    rows = tuple(
        Lag(k, max(s.nats, 0.0), s.interval(level), s.error, each, len(s.values), s.block)
        for k, s, each in zip(wanted, shares, p, strict=True)
    )
    return Lags(
        rows=rows,
        transfers=tuple(_measure(pair, chosen, w, permutations, level) for w in across),
        method=chosen,
        given_past=past,
        level=level,
        significant=significant,
        permutations=permutations,
        warnings=tuple(
            [
                *_look_at_series(x, y),
                *_look_at_rows(rows, level, permutations),
                *(_look_at_cells(pair, windows) if chosen == "counts" else []),
            ]
        ),
        unit=unit,
        names=(_name(x), _name(y)),
        n=len(x),
        seed=seed,
        seconds=time.perf_counter() - start,
    )


def _method(pair: SeriesPair, method: str, windows: Sequence[Window]) -> str:
    """The method that is asked for, or the one that is chosen."""
    if method == "gaussian" and not pair.numbers:
        raise ValueError(
            'Expected numbers for "gaussian" but got labels; leave method out, or declare the '
            'columns "continuous".'
        )
    if method == "counts" and not pair.labels:
        raise ValueError(
            'Expected labels for "counts" but got numbers; leave method out, or declare the '
            'columns "discrete".'
        )
    return pair.choose(windows) if method == "default" else method


def _test(
    pair: SeriesPair, wanted: Sequence[int], past: int, permutations: int, level: float
) -> tuple[list[float | None], float | None]:
    """The p-value of each lag, and the nats of a linear relation that is significant."""
    if not permutations:
        return [None] * len(wanted), None
    p, threshold = p_values(*pair.test(wanted, past, permutations), level)
    share = min(threshold / (pair.n - past), 1.0)
    return p.tolist(), -0.5 * math.log1p(-share) if share < 1 else None


def _transfer(pair: SeriesPair, ahead: bool, past: int) -> Window:
    """The rows of the transfer entropy: of the given past, or the best one, and of the source's."""
    own = past or pair.past(int(ahead))
    return transfer_window(pair.n, ahead, pair.source_past(ahead, own), own)


def _measure(
    pair: SeriesPair, method: str, window: Window, permutations: int, level: float
) -> Transfer:
    shares = pair.shares(method, window)
    own = window.past.shape[1]
    p = None
    if permutations:
        (p,), _ = p_values(*pair.test_transfer(window.ahead, own, permutations), level)
        p = float(p)
    source, target = ("x", "y") if window.ahead else ("y", "x")
    return Transfer(
        source,
        target,
        max(shares.nats, 0.0),
        shares.interval(level),
        shares.error,
        p,
        window.source.shape[1],
        own,
        len(shares.values),
    )


# --- what comes in -------------------------------------------------------------------------------


def _check(
    max_lag: int, past: Any, method: str, level: float, permutations: int, seed: int
) -> None:
    check_level(level)
    check_seed(seed)
    check_count("max_lag", max_lag, 1)
    check_count("permutations", permutations, 0)
    if past != "auto" and not (isinstance(past, int) and past >= 0):
        raise ValueError(
            f'Expected given_past as a number of rows or "auto" but got {past!r}; '
            "leave it out for no past."
        )
    if method not in METHODS:
        raise ValueError(
            f"Expected a method among {', '.join(METHODS)} but got {method!r}; leave it out to "
            "have it chosen."
        )


def _read(x: Any, y: Any, kinds: tuple[Any, Any], max_lag: int) -> tuple[Columns, Columns]:
    """Both sides as columns that vary, with as many rows each."""
    sides = []
    for name, data, kind in (("x", x, kinds[0]), ("y", y, kinds[1])):
        missing = find_missing(name, data)
        if missing.any():
            raise ValueError(
                f"Expected {name} without missing values but got {missing.sum()}, the first in row "
                f"{missing.argmax()}; fill them in, since without these rows the others would no "
                "longer be at equal distances."
            )
        side = check_repeats(as_columns(name, data, kind))
        if not side.width:
            raise ValueError(
                f"Expected {name} to vary but got one value in all rows; pass a series that "
                "changes."
            )
        sides.append(side.scored())
    n = len(sides[0])
    if len(sides[1]) != n:
        raise ValueError(
            f"Expected as many rows of y as of x but got {len(sides[1])} and {n}; pass both at the "
            "same times."
        )
    if n < max_lag + FEWEST:
        raise ValueError(
            f"Expected at least {FEWEST} rows more than max_lag, {max_lag}, but got {n}; "
            "pass a smaller max_lag, or a longer series."
        )
    return sides[0], sides[1]


def _name(side: Columns) -> str:
    """The names of the columns, if they have some."""
    numbered = all(label.isdecimal() for label in side.labels)
    return side.name if numbered else ", ".join(side.labels)


def find_unit(x: Any, y: Any) -> str:
    """What a lag counts: the distance of rows by the index of pandas, or "rows".

    Example:
        >>> import pandas
        >>> days = pandas.date_range("2024-01-01", periods=5, freq="D")
        >>> series = pandas.Series(range(5), index=days)
        >>> find_unit(series, series), find_unit([1, 2], [3, 4])
        ('D', 'rows')
    """
    units = {}
    for name, data in (("x", x), ("y", y)):
        index = getattr(data, "index", None)
        if index is None or callable(index):
            continue
        if getattr(index, "nlevels", 1) > 1 or not hasattr(index, "to_numpy"):
            raise ValueError(
                f"Expected an index of times for {name} but got one of several levels; select one "
                "series, and use lags on it."
            )
        units[name] = index
    if len(units) == 2 and not units["x"].equals(units["y"]):
        raise ValueError(
            "Expected x and y at the same times but their indices differ; align them first, with "
            "x.align(y, join='inner') for example."
        )
    return _step(*next(iter(units.items()))) if units else "rows"


def _step(name: str, index: Any) -> str:
    """The distance of the rows of an index."""
    kind = index.dtype.kind if hasattr(index.dtype, "kind") else "O"
    dates = hasattr(index, "freqstr") and hasattr(index, "asi8")
    if not dates and kind not in "iuf":
        return "rows"  # names say nothing of time
    freq = getattr(index, "freqstr", None) if dates else None
    if dates and freq is None:
        freq = _infer(index)
    places = np.asarray(index.asi8 if dates else index.to_numpy(), dtype=np.float64)
    steps = np.diff(places)
    equal = len(steps) and steps[0] > 0 and np.allclose(steps, steps[0], rtol=1e-6)
    if not (equal or freq) or (freq and (steps <= 0).any()):
        far = int(np.abs(steps - np.median(steps)).argmax()) if len(steps) else 0
        raise ValueError(
            f"Expected rows at equal distances but the index of {name} has a different distance "
            f"after row {far}; resample it, or pass {name}.to_numpy() if the rows are equally far "
            "apart."
        )
    if freq:
        return str(freq)
    return f"{index[1] - index[0]}" if dates else "rows"


def _infer(index: Any) -> str | None:
    """The unit of dates, as pandas names it; None if they have none."""
    import pandas

    if len(index) < 3:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what it will return one day
        freq = pandas.infer_freq(index)
    return None if freq is None else str(getattr(freq, "freqstr", freq))


# --- reasons to distrust ------------------------------------------------------------------------


def _look_at_series(*sides: Columns) -> list[Advice]:
    """Series that wander or have a trend."""
    found = []
    for side in sides:
        n = len(side)
        tau = max(inflation(autocorrelation(column), n) for column in features(side).T)
        if n / tau < STRETCHES:
            found.append(
                Advice(
                    "not-stationary",
                    f"{side.name} changes so slowly that its {n} rows are as few as "
                    f"{max(1, round(n / tau))} independent ones: it has a trend, or wanders like a "
                    "random walk, and two of those look related whatever they are.",
                    f"Take differences of {side.name}, or subtract its trend; or pass a much "
                    "longer series.",
                )
            )
    return found


def _look_at_rows(rows: Sequence[Lag], level: float, permutations: int) -> list[Advice]:
    """Too few blocks for an error, too few surrogates for a p-value."""
    found = []
    fewest = min(row.n // row.block for row in rows)
    if fewest < BLOCKS:
        found.append(
            Advice(
                "few-blocks",
                f"{rows[0].n} rows are no more than {fewest} blocks that are independent of each "
                "other: the intervals are less certain than they look.",
                "Pass a longer series.",
            )
        )
    if permutations and 1 / (1 + permutations) > 1 - level + 1e-12:
        found.append(
            Advice(
                "few-permutations",
                f"With {permutations} surrogates no p-value can be below "
                f"{1 / (1 + permutations):.2g}.",
                f"Pass permutations={math.ceil(1 / (1 - level)) - 1} or more.",
            )
        )
    return found


def _look_at_cells(pair: SeriesPair, windows: Sequence[Window]) -> list[Advice]:
    """Counts of so many combinations of labels that most are rare."""
    most = 0
    for window in windows[:: max(1, len(windows) - 1)]:
        source, target = pair.arrays["counts"][:: 1 if window.ahead else -1]
        parts = [source[window.source[:, 0]], target[window.target]]
        parts += [target[row] for row in window.past.T]
        most = max(most, int(codes_of(np.hstack(parts)).max()) + 1)
    if PER_CELL * most <= pair.n:
        return []
    return [
        Advice(
            "few-counts",
            f"{pair.n} rows have {most} combinations of labels, most of them rare: what is "
            "subtracted for chance is only roughly right.",
            "Group labels, give a shorter past, or pass a longer series.",
        )
    ]
