"""What each row contributes to I(x; y | z), by a Gaussian copula, by neighbours and by counts.

All three take the same arrays: z may have no column, and then it is I(x; y). The mean of the shares
is the value, and they are its influence function up to a constant, so that shares of several values
of the same rows give the error of any sum or difference of them.

    gaussian_shares    1/2 log(|S_xz| |S_yz| / (|S_z| |S_xyz|)) of normal scores
    neighbour_shares   ψ(k) - ψ(n_xz + 1) - ψ(n_yz + 1) + ψ(n_z + 1), or with labels
    count_shares       log(n_xyz n_z / (n_xz n_yz)), less the bias of Miller

In a series, rows that are near in time are near in space too, and are no evidence of a relation.
Neighbours leave them out; the Gaussian's bias and error are those of dependent rows: with Γ(h) the
autocovariances and A(h) = S^-1 Γ(h),

    E log|S| - log|Σ| = -1/n sum_h [tr A(h) + (tr A(h))² / 2 + tr A(h)² / 2],

which is the mean of a Wishart determinant, to first order, where A(h) = 0 for h ≠ 0.

References: Ince et al. 2017 (Gaussian copula); Frenzel and Pompe 2007 (neighbours), Mesner and
Shalizi 2020 (with labels), Theiler 1986 (rows that are near in time).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

from mibounds.measure.classical.interfaces import digamma, import_scipy
from mibounds.measure.series.autocorrelations import (
    autocorrelation,
    autocovariances,
    bandwidth,
    flat_top,
    long_run_error,
)

if TYPE_CHECKING:
    from jaxtyping import Float, Int

NEIGHBOUR = 5  # which one
ROUNDING = 1e-10  # distances with a smaller relative difference are equal up to rounding
ALONE = 1e-10  # share of the variance that is left where a column is a function of the others
APART = 100.0  # distance of labels, beyond all numbers
LOCAL = 1.6  # by how much the errors of neighbours are larger than those of sampling
COARSE = 0.25  # nats that neighbours miss, in exp(nats) over the root of the rows
MOST_INDICATORS = 20  # labels whose autocorrelations count, the most frequent ones
LEAST_FREE = 3.0  # degrees of freedom of an error, at least


@dataclass(frozen=True)
class Shares:
    """A value with the contribution of each row, and where the truth is.

    Args:
        values: of each row, in nats; their mean is the value.
        error: standard error of the value.
        block: rows that depend on each other.
        free: degrees of freedom of the error: about how many independent rows there are.
        bent: of one column each, the value before its bias was subtracted, and the error on the
            scale on which the interval is symmetric; None elsewhere.
    """

    values: Float[np.ndarray, " n"]
    error: float
    block: int
    free: float
    bent: tuple[float, float] | None = None

    @property
    def nats(self) -> float:
        """The value."""
        return float(self.values.mean())

    def interval(self, level: float) -> tuple[float, float]:
        """Where the truth is, by Student's t.

        Of one Gaussian column each, I = log cosh(artanh ρ), and artanh ρ is nearly normal (Fisher).
        The bias is known to first order only, so that the interval begins where none is subtracted,
        and ends where it is subtracted twice.
        """
        quantile = t_quantile((1 + level) / 2, self.free)
        if self.bent is None:
            reach = quantile * self.error
            return max(0.0, self.nats - reach), max(0.0, self.nats + reach)
        raw, error = self.bent
        ends = _artanh(raw), _artanh(2 * self.nats - raw)
        low, high = min(ends) - quantile * error, max(ends) + quantile * error
        return _log_cosh(max(low, 0.0)), _log_cosh(high)


def _artanh(nats: float) -> float:
    """The value on Fisher's scale: artanh of the correlation that has so many nats."""
    return math.acosh(math.exp(min(max(nats, 0.0), 300.0)))


def _log_cosh(z: float) -> float:
    return z + math.log1p(math.exp(-2 * z)) - math.log(2)


def t_quantile(probability: float, free: float) -> float:
    """Quantile of Student's t, by the expansion of Cornish and Fisher.

    Reference: Abramowitz and Stegun 1964, 26.7.5.

    Example:
        >>> round(t_quantile(0.975, 10.0), 2), round(t_quantile(0.975, 1e9), 2)  # 2.228, 1.960
        (2.23, 1.96)
    """
    z = NormalDist().inv_cdf(probability)
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
    )
    return z + sum(term / free ** (i + 1) for i, term in enumerate(terms))


# --- by a Gaussian copula ------------------------------------------------------------------------


def gaussian_shares(
    x: Float[np.ndarray, "n a"], y: Float[np.ndarray, "n b"], z: Float[np.ndarray, "n c"]
) -> Shares:
    """I(x; y | z) of Gaussians whose rows are a series, without its bias.

    Example:
        >>> v = np.random.default_rng(0).normal(size=(2000, 2))
        >>> found = gaussian_shares(v[:, :1], v.sum(1, keepdims=True), v[:, :0])
        >>> abs(found.nats - math.log(2) / 2) < 2 * found.error < 0.07
        True
    """
    w = np.hstack([x, y, z])
    w = w - w.mean(0)
    n, a, b = len(w), x.shape[1], y.shape[1]
    every = np.arange(w.shape[1])
    parts = [(every, -1), (np.r_[every[:a], every[a + b :]], 1), (every[a:], 1)]
    if z.shape[1]:
        parts.append((every[a + b :], -1))
    most = max(bandwidth(autocorrelation(column), n) for column in w.T)
    gamma = autocovariances(w, most)
    lags = np.arange(len(gamma))
    weights = flat_top(most)[: len(gamma)] * (1 - lags / n) * np.where(lags, 2, 1)
    values, bias, precision = np.zeros(n), 0.0, np.zeros_like(gamma[0])
    for columns, sign in parts:
        at = np.ix_(columns, columns)
        inverse, log_det = _invert(gamma[0][at])
        own = w[:, columns]
        values += 0.5 * sign * (log_det + ((own @ inverse) * own).sum(1))
        ratio = inverse @ gamma[:, at[0], at[1]]
        traces = np.trace(ratio, axis1=1, axis2=2)
        squares = np.einsum("hij,hji->h", ratio, ratio)
        bias -= sign * float(weights @ (traces + 0.5 * (traces**2 + squares))) / (2 * n)
        precision[at] += sign * inverse
    spread = np.einsum("hij,hij->h", precision @ gamma @ precision, gamma)
    by_shares, block = long_run_error(values)
    error = math.sqrt(max(float(weights @ spread) / (2 * n), by_shares**2))
    raw = max(float(values.mean()), 0.0)
    one = a == b == 1
    if one and raw > 0:
        bent = error / math.sqrt(-math.expm1(-2 * raw))
        free = max(1 / bent**2 - 3, LEAST_FREE)
        bent = raw, bent * math.sqrt(1 + 4 / free)  # of a mean that is subtracted, too
    else:
        bent, free = None, max(float(values.var()) / error**2 - 3, LEAST_FREE)
    floor = max(bias, 0.0) * math.sqrt(2 / (a * b))
    return Shares(values - bias, math.hypot(error, floor), block, free, bent)


def _invert(s: Float[np.ndarray, "d d"]) -> tuple[Float[np.ndarray, "d d"], float]:
    """The inverse of a covariance, and the logarithm of its determinant."""
    scale = np.sqrt(np.diag(s))
    root = np.linalg.cholesky(s / np.outer(scale, scale) + 1e-14 * np.eye(len(s)))
    if (np.diag(root) ** 2 < ALONE).any():
        raise ValueError(
            "Expected columns none of which is a linear function of the others, at any lag, but "
            "got some; leave those out, since with them the mutual information is infinite."
        )
    return np.linalg.inv(s), 2 * float(np.log(np.diag(root) * scale).sum())


# --- by neighbours -------------------------------------------------------------------------------


def neighbour_shares(
    x: Float[np.ndarray, "n a"],
    y: Float[np.ndarray, "n b"],
    z: Float[np.ndarray, "n c"],
    near: int = 0,
) -> Shares:
    """I(x; y | z) by neighbours in the max-norm, for numbers and labels.

    What z predicts linearly is subtracted from the numbers of x and y, which leaves I(x; y | z) as
    it is and brings neighbours nearer.

    Args:
        x: numbers, each column of variance 1; or indicators of labels, times `APART`.
        y: the same.
        z: the same, or no column.
        near: rows before and after each that are no neighbours of it.

    Example:
        >>> v = np.random.default_rng(0).normal(size=(2000, 2))
        >>> found = neighbour_shares(v[:, :1], v.sum(1, keepdims=True) / 2**0.5, v[:, :0])
        >>> abs(found.nats - math.log(2) / 2) < 0.05
        True
    """
    n = len(x)
    if z.shape[1]:
        x, y = (_without(side, z) for side in (x, y))
    every = np.hstack([x, y, z])
    tree = import_scipy("spatial", "neighbours").cKDTree(every)
    k = NEIGHBOUR
    distance, index = tree.query(every, min(n, k + 2 * near + 1), p=np.inf)
    far = np.abs(index - np.arange(n)[:, None]) > near
    order = np.argsort(~far, axis=1, kind="stable")[:, k - 1 : k]
    radius = np.take_along_axis(distance, order, 1)[:, 0]
    at = np.arange(n)
    others = n - 1 - np.minimum(at, near) - np.minimum(at[::-1], near)
    sizes = np.full(n, k)
    equal = radius == 0
    if equal.any():
        sizes[equal] = _count(every, radius, near)[equal]
    counts = [_count(np.hstack([side, z]), radius, near) + 1 for side in (x, y)]
    whole = _count(z, radius, near) + 1 if z.shape[1] else others + 1
    values = digamma(sizes) + digamma(whole) - digamma(counts[0]) - digamma(counts[1])
    error, block = long_run_error(values)
    nats = max(float(values.mean()), 0.0)
    coarse = COARSE * math.exp(min(nats, 10.0)) / math.sqrt(n / (1 + near))
    free = max(n / (1 + near) - 3, LEAST_FREE)
    return Shares(values, math.hypot(LOCAL * error, coarse), block, free)


def _without(side: Float[np.ndarray, "n d"], z: Float[np.ndarray, "n c"]) -> np.ndarray:
    """Numbers less what z predicts of them; labels as they are."""
    if not len(side) or np.isin(side, (0.0, APART)).all():
        return side
    design = np.hstack([np.ones((len(z), 1)), z])
    rest = side - design @ np.linalg.lstsq(design, side, rcond=1e-10)[0]
    return rest / np.maximum(rest.std(0), 1e-12)


def _count(
    points: Float[np.ndarray, "n d"], radius: Float[np.ndarray, " n"], near: int
) -> Int[np.ndarray, " n"]:
    """How many others are strictly nearer than the radius, or equal where it is 0; none in time."""
    n = len(points)
    if points.shape[1] == 1:
        line = points[:, 0]
        ordered = np.sort(line)
        reach = radius * (1 - ROUNDING)
        counts = np.searchsorted(ordered, line + reach, "right")
        counts = counts - np.searchsorted(ordered, line - reach, "left") - 1
    else:
        reach = radius * (1 - ROUNDING)
        tree = import_scipy("spatial", "neighbours").cKDTree(points)
        counts = tree.query_ball_point(points, reach, p=np.inf, return_length=True) - 1
    for h in range(1, min(near, n - 1) + 1):
        between = np.abs(points[h:] - points[:-h]).max(1)
        counts[h:] -= between <= reach[h:]
        counts[:-h] -= between <= reach[:-h]
    return np.maximum(counts, 0)


# --- by counts -----------------------------------------------------------------------------------


def count_shares(
    x: Float[np.ndarray, "n a"],
    y: Float[np.ndarray, "n b"],
    z: Float[np.ndarray, "n c"],
    series: bool = True,
) -> Shares:
    """I(x; y | z) of labels, from frequencies, less the bias of Miller.

    Dependent rows make it larger, by as much as chance correlates both sides.

    Reference: Miller 1955.

    Args:
        x: labels, as numbers.
        y: the same.
        z: the same, or no column.
        series: whether rows depend on each other.

    Example:
        >>> labels = np.random.default_rng(0).integers(2, size=(1000, 1)).astype(float)
        >>> round(count_shares(labels, labels, labels[:, :0]).nats, 2)
        0.69
    """
    n = len(x)
    values, degrees = np.zeros(n), 0
    for parts, sign in (((x, y, z), 1), ((z,), 1), ((x, z), -1), ((y, z), -1)):
        codes = codes_of(np.hstack(parts))
        sizes = np.bincount(codes)
        values += sign * np.log(sizes[codes] / n)
        degrees += sign * len(sizes)
    tau = 1.0
    if series and not z.shape[1]:
        common = label_autocorrelation(codes_of(x)) * label_autocorrelation(codes_of(y))
        most = bandwidth(common, n)
        tau = max(1.0, float(1 + 2 * flat_top(most)[1:] @ common[1 : most + 1]))
    error, block = long_run_error(values)
    floor = math.sqrt(max(degrees, 1) / 2) * tau / n
    free = max(n / tau - 3, LEAST_FREE)
    return Shares(values - degrees * tau / (2 * n), math.hypot(error, floor), block, free)


def codes_of(values: Float[np.ndarray, "n d"]) -> Int[np.ndarray, " n"]:
    """Rows as integers 0, 1, ..., equal where the rows are."""
    codes = np.zeros(len(values), int)
    for column in values.T:  # one by one, which is faster than whole rows
        own = np.unique(column, return_inverse=True)[1].reshape(-1)
        codes = np.unique(codes * (own.max() + 1) + own, return_inverse=True)[1].reshape(-1)
    return codes


def label_autocorrelation(codes: Int[np.ndarray, " n"]) -> Float[np.ndarray, " m"]:
    """Autocorrelation of a label: of its indicators, each over its share."""
    counts = np.bincount(codes)
    rho = [
        autocorrelation((codes == code).astype(float)) * (1 - counts[code] / len(codes))
        for code in np.argsort(-counts)[:MOST_INDICATORS]
    ]
    total = np.sum(rho, 0)
    return total / total[0] if total[0] > 0 else total
