"""Estimators from counts: of values where variables are discrete, of bins where they are not.

With n_ij of n samples in cell (i, j), the plug-in estimate uses frequencies as probabilities,

    sum_ij n_ij / n log(n n_ij / (n_i. n_.j)).

Chance makes independent cells look dependent, so it is too large by about 1 / 2n for each degree of
freedom (Miller 1955). The corrections differ in how many degrees they count:

- "none": none.
- "miller-madow": from the occupied cells, (K_xy - K_x - K_y + 1) / 2n.
- "panzeri-treves": from the cells that could have been occupied, for each value of x the number R_x
  of values of y, (sum_x (R_x - 1) - (R - 1)) / 2n. R_x is chosen so that the expected number of
  occupied cells is the observed one. It conditions on x, so it is not symmetric.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np

from mibounds.measure.classical.interfaces import (
    ClassicalEstimator,
    Samples,
    as_numbers,
    as_rows,
    check_least,
    check_option,
)

if TYPE_CHECKING:
    from jaxtyping import Float, Int, Shaped

Correction = Literal["none", "miller-madow", "panzeri-treves"]

FULL = 5  # samples per cell, on average, that a chi-squared test needs (Cochran 1954)


@dataclass(frozen=True)
class PlugIn(ClassicalEstimator):
    """Frequencies in place of probabilities, for discrete variables.

    The columns of a variable are read together: a value is a whole row. Values only need to be
    distinguishable: integers, strings, one-hot rows.

    Reference: Miller 1955, Panzeri and Treves 1996 (the corrections).

    Args:
        correction: of the bias; see the module.

    Example:
        >>> smokes = ["no"] * 50 + ["yes"] * 50
        >>> coughs = [0] * 40 + [1] * 10 + [0] * 20 + [1] * 30
        >>> round(PlugIn(correction="none")(smokes, coughs), 4)
        0.0863
    """

    name = "plug_in"
    side = "neither"
    condition = "too large by counting, too small where the correction counts too much"
    handles = "discrete"
    cost = "N log N"
    reference = "Miller 1955; Panzeri and Treves 1996"

    correction: Correction = "miller-madow"

    def __post_init__(self) -> None:
        check_option("correction", self.correction, get_args(Correction))

    def influence(self, x: Samples, y: Samples) -> Float[np.ndarray, " n"]:
        x, y = as_rows(x, y)
        return _log_ratios(_codes("x", x), _codes("y", y), self.correction)


@dataclass(frozen=True)
class Binning(ClassicalEstimator):
    """The plug-in estimate of continuous variables, put into bins of equal mass.

    Each column has its own bins, and the cells are all their combinations, so it suits few columns.
    Binning loses information, so with many samples the value converges to one below the truth.
    Only ranks decide the bins, so increasing maps of a column change nothing.

    Reference: Darbellay and Vajda 1999, whose bins are adaptive; Panzeri et al. 2007
    (the corrections).

    Args:
        bins: number per column; if None, as many as leave 5 samples per cell on average.
        correction: of the bias; see the module.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> x = rng.normal(size=1000)
        >>> y = 0.8 * x + 0.6 * rng.normal(size=1000)
        >>> round(Binning(bins=8)(x, y), 2)  # the truth is 0.51
        0.41
    """

    name = "binning"
    side = "neither"
    condition = "below the truth by binning, but above or below that by counting"
    handles = "continuous"
    cost = "N log N"
    reference = "Panzeri et al. 2007"

    bins: int | None = None
    correction: Correction = "miller-madow"

    def __post_init__(self) -> None:
        if self.bins is not None:
            check_least("bins", self.bins, 2)
        check_option("correction", self.correction, get_args(Correction))

    def influence(self, x: Samples, y: Samples) -> Float[np.ndarray, " n"]:
        x, y = as_numbers(x, y)
        bins = _check_bins(self.bins, len(x), x.shape[1] + y.shape[1])
        x, y = (_codes("", _bin(a, bins)) for a in (x, y))
        return _log_ratios(x, y, self.correction)


def _check_bins(bins: int | None, n: int, columns: int) -> int:
    if bins is None:
        bins = int((n / FULL) ** (1 / columns) + 1e-9)
        if bins < 2:
            raise ValueError(
                f"Expected at least {FULL * 2**columns} samples for two bins in each of "
                f"{columns} columns but got {n}; use KSG, GCMI or fewer columns."
            )
    if bins**columns > n:
        raise ValueError(
            f"Expected at most one cell per sample, {n}, but got {bins} bins in each of {columns} "
            f"columns, {bins**columns} cells; use fewer bins, or KSG or GCMI."
        )
    return bins


def _bin(x: Float[np.ndarray, "n d"], bins: int) -> Int[np.ndarray, "n d"]:
    """The bin of each number, by its rank; equal numbers share the lowest of their ranks."""
    ranks = [np.searchsorted(np.sort(column), column) for column in x.T]
    return np.stack(ranks, axis=1) * bins // len(x)


def _codes(name: str, x: Shaped[np.ndarray, "n d"]) -> Int[np.ndarray, " n"]:
    """Rows as integers 0 .. K - 1, equal where the rows are."""
    if x.dtype == object:  # values may not be sortable
        seen: dict[tuple, int] = {}
        try:
            return np.array([seen.setdefault(tuple(row), len(seen)) for row in x])
        except TypeError as error:
            raise ValueError(
                f"Expected labels in {name} but got values such as a {type(x[0, 0]).__name__}; "
                "give each value a column of its own."
            ) from error
    values, codes = np.unique(x, axis=0, return_inverse=True)
    if x.dtype.kind == "f" and len(values) == len(x):
        raise ValueError(
            f"Expected discrete {name}, whose values repeat, but got {len(x)} different ones; "
            "use KSG or Binning for continuous variables, MixedKSG for one of each."
        )
    return codes.reshape(-1)


def _log_ratios(
    x: Int[np.ndarray, " n"], y: Int[np.ndarray, " n"], correction: Correction
) -> Float[np.ndarray, " n"]:
    """log p(x, y) / (p(x) p(y)) of each sample, from frequencies, minus the bias of their mean."""
    n = len(x)
    n_x, n_y = np.bincount(x), np.bincount(y)
    cells, cell, n_xy = np.unique(x * len(n_y) + y, return_inverse=True, return_counts=True)
    ratios = np.log(n * n_xy[cell] / (n_x[x] * n_y[y]))
    if correction == "none":
        return ratios
    if correction == "miller-madow":
        degrees = len(n_xy) - len(n_x) - len(n_y) + 1
    else:
        rows = np.split(n_xy, np.searchsorted(cells, np.arange(1, len(n_x)) * len(n_y)))
        degrees = sum(_relevant(row, len(n_y)) - 1 for row in rows) - (len(n_y) - 1)
    return ratios - degrees / (2 * n)


def _relevant(counts: Int[np.ndarray, " k"], most: int) -> int:
    """How many cells, at most ``most``, could be occupied, from the counts in those that are.

    Suppose m cells are empty by chance. Bayes' rule with a uniform prior gives the k occupied ones
    (n_j + 1) / (n + k) each, shrunk to leave each empty one 1 - (n / (n + k))^(1/n). That predicts
    how many of the k + m cells n samples occupy; m is the number for which that comes closest to k.
    Panzeri and Treves 1996.
    """
    n, k = counts.sum(), len(counts)
    sizes, times = np.unique(counts, return_counts=True)  # few, however many labels there are
    empty = np.arange(most - k + 1)
    each = 1 - (n / (n + k)) ** (1 / n)
    full = (1 - each * empty)[:, None] * (sizes + 1) / (n + k)
    full[0] = sizes / n  # no empty cells: plain frequencies
    expected = (1 - (1 - full) ** n) @ times + empty * (1 - (1 - each) ** n)
    return k + int(np.abs(expected - k).argmin())
