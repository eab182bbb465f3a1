"""Estimators from the distances to nearest neighbours.

Around a sample, count those that are as near as its k-th neighbour in x and y together (k), in x
only (n_x) and in y only (n_y). If the densities were constant there, each count would be a density
times a volume, the volumes would cancel, and log k N / (n_x n_y) would be the log-ratio. Digammas
replace the logarithms since they are unbiased for counts. Distances are in the max-norm over
columns, each scaled to variance 1.

Near samples must be near in all columns, so many columns need many samples. High mutual information
does too: the number of samples needed grows exponentially with it (Gao, Ver Steeg and Galstyan
2015).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from mibounds.measure.classical.interfaces import (
    ClassicalEstimator,
    Samples,
    as_numbers,
    check_least,
    check_option,
    digamma,
    import_scipy,
)

if TYPE_CHECKING:
    from jaxtyping import Float, Int


ROUNDING = 1e-10  # distances with a smaller relative difference are equal up to rounding


@dataclass(frozen=True)
class KSG(ClassicalEstimator):
    """Kraskov, Stögbauer and Grassberger's estimator for continuous variables.

        form 1:  ψ(k) + ψ(N) - mean of ψ(n_x + 1) + ψ(n_y + 1)
        form 2:  ψ(k) - 1/k + ψ(N) - mean of ψ(n_x) + ψ(n_y)

    In form 1, n_x counts the other samples *strictly* nearer in x than the k-th neighbour is in
    (x, y). In form 2, it counts those no farther in x than the farthest of the k neighbours is in
    x. Form 1 has less variance, form 2 less bias in many dimensions.

    The equations assume no ties. A column with repeated values gets noise, the same in every call,
    just large enough to break them.

    Reference: Kraskov, Stögbauer and Grassberger 2004, equation 8 (form 1) and 9 (form 2).

    Args:
        k: which neighbour; a larger k has less variance and more bias.
        form: 1 or 2.
        jitter: standard deviation of that noise, relative to the column's; 0 for no noise.
        workers: threads of the search; -1 for all cores.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> x = rng.normal(size=1000)
        >>> y = 0.8 * x + 0.6 * rng.normal(size=1000)
        >>> round(KSG(k=5)(x, y), 2)  # the truth is 0.51
        0.5
    """

    name = "ksg"
    side = "neither"
    condition = "too low where information is large or rows are few"
    handles = "continuous"
    cost = "N log N in few columns, N^2 D in many"
    reference = "Kraskov, Stögbauer and Grassberger 2004, equations 8 and 9"
    local = True
    most_rows = 20_000
    most_rows_of_few = 200_000

    k: int = 3
    form: Literal[1, 2] = 1
    jitter: float | int = 1e-10
    workers: int = 1

    def __post_init__(self) -> None:
        check_least("k", self.k, 1)
        check_option("form", self.form, (1, 2))
        check_least("jitter", self.jitter, 0)

    def influence(self, x: Samples, y: Samples) -> Float[np.ndarray, " n"]:
        x, y = as_numbers(x, y)
        _check_k(self.k, len(x))
        rng = np.random.default_rng(0)
        x, y = (_break_ties(a, self.jitter, rng) for a in (x, y))
        search = _Search(x, y, self.workers, type(self).__name__)
        radius, index = search.nearest(self.k)
        if not radius.all():
            raise ValueError(
                f"Expected fewer than {self.k + 1} equal samples but got more, "
                f"first in row {radius.argmin()}; use MixedKSG, or jitter > 0."
            )
        if self.form == 1:
            counts = search.nearer_x(radius) + 1, search.nearer_y(radius) + 1
            constant = digamma(self.k)
        else:
            counts = (
                search.within_x(np.abs(x[index] - x[:, None]).max((1, 2))),
                search.within_y(np.abs(y[index] - y[:, None]).max((1, 2))),
            )
            constant = digamma(self.k) - 1 / self.k
        return constant + digamma(len(x)) - digamma(counts[0]) - digamma(counts[1])


@dataclass(frozen=True)
class MixedKSG(ClassicalEstimator):
    """Gao's estimator for variables that are continuous, discrete, or a mixture of both.

        mean of ψ(k_i) + log N - ψ(n_x + 1) - ψ(n_y + 1)

    If the distance to the k-th neighbour is positive, k_i is k and n_x counts the other samples
    strictly nearer in x: the terms of KSG, form 1. If it is zero, since more than k samples are
    equal, k_i is their number and n_x counts the others that are equal in x: the terms of the
    plug-in estimate. For a label and a real vector this is close to the estimator of Ross (2014).

    Counts are strict and in digammas, so that continuous samples give the value of KSG. The paper
    counts up to and including the distance, in logarithms; in the limit of large k that is the
    same, but with k = 5 it is too small by 0.2 nats for a label and a number around it.

    Labels are numbers here, integers or one-hot. One-hot keeps them at least two standard
    deviations apart; many integers are closer. Values that repeat fewer than k times count as
    neither kind; use a smaller k for them.

    Reference: Gao, Kannan, Oh and Viswanath 2017, algorithm 1.

    Args:
        k: which neighbour; a larger k has less variance and more bias.
        workers: threads of the search; -1 for all cores.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> label = rng.integers(5, size=2000)
        >>> x = label + rng.uniform(0, 2, size=2000)
        >>> round(MixedKSG()(x, label), 2)  # the truth is 1.05
        1.06
    """

    name = "ksg_mixed"
    side = "neither"
    condition = "too low where information is large or rows are few"
    handles = "mixed"
    cost = "N log N in few columns, N^2 D in many"
    reference = "Gao, Kannan, Oh and Viswanath 2017, algorithm 1"
    local = True
    most_rows = 20_000
    most_rows_of_few = 200_000

    k: int = 5
    workers: int = 1

    def __post_init__(self) -> None:
        check_least("k", self.k, 1)

    def influence(self, x: Samples, y: Samples) -> Float[np.ndarray, " n"]:
        x, y = as_numbers(x, y, constants=True)
        _check_k(self.k, len(x))
        search = _Search(x, y, self.workers, type(self).__name__)
        radius, _ = search.nearest(self.k)
        k = np.full(len(x), self.k)
        equal = radius == 0
        if equal.any():
            k[equal] = search.equal()[equal] + 1
        counts = search.nearer_x(radius) + 1, search.nearer_y(radius) + 1  # or equal, where it is 0
        return digamma(k) + np.log(len(x)) - digamma(counts[0]) - digamma(counts[1])


class _Search:
    """Search for neighbours among n samples, in the max-norm."""

    def __init__(self, x: np.ndarray, y: np.ndarray, workers: int, who: str):
        self.make = import_scipy("spatial", who).cKDTree
        self.x, self.y, self.xy = x, y, np.hstack([x, y])
        self.workers = workers

    def nearest(self, k: int) -> tuple[Float[np.ndarray, " n"], Int[np.ndarray, "n k1"]]:
        """Distance to the k-th neighbour, and the indices of the sample itself and the first k."""
        tree = self.make(self.xy)
        distance, index = tree.query(self.xy, k + 1, p=np.inf, workers=self.workers)
        return distance[:, k], index

    def equal(self) -> Int[np.ndarray, " n"]:
        """How many others are equal in x and in y."""
        return self._count(self.xy, np.zeros(len(self.xy)))

    def nearer_x(self, radius: Float[np.ndarray, " n"]) -> Int[np.ndarray, " n"]:
        """How many others are strictly nearer than the radius in x, or equal in x where it is 0."""
        return self._count(self.x, radius * (1 - ROUNDING))

    def nearer_y(self, radius: Float[np.ndarray, " n"]) -> Int[np.ndarray, " n"]:
        """The same in y."""
        return self._count(self.y, radius * (1 - ROUNDING))

    def within_x(self, radius: Float[np.ndarray, " n"]) -> Int[np.ndarray, " n"]:
        """How many others are no farther than the radius in x."""
        return self._count(self.x, radius * (1 + ROUNDING))

    def within_y(self, radius: Float[np.ndarray, " n"]) -> Int[np.ndarray, " n"]:
        """The same in y."""
        return self._count(self.y, radius * (1 + ROUNDING))

    def _count(self, points: np.ndarray, radius: np.ndarray) -> np.ndarray:
        counts = self.make(points).query_ball_point(
            points, radius, p=np.inf, workers=self.workers, return_length=True
        )
        return counts - 1


def _check_k(k: int, n: int) -> None:
    if k >= n:
        raise ValueError(
            f"Expected k < n, the number of samples, but got k = {k} and n = {n}; "
            "pass a smaller k, or more rows."
        )


def _break_ties(
    x: Float[np.ndarray, "n d"], jitter: float | int, rng: np.random.Generator
) -> Float[np.ndarray, "n d"]:
    """Add noise to the columns that repeat a value."""
    noise = rng.normal(size=x.shape)
    ties = (np.diff(np.sort(x, axis=0), axis=0) == 0).any(0)
    return x + jitter * noise * ties
