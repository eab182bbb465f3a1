"""Estimators with Gaussian kernels: of the densities, or directly of their ratio."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch

from mibounds.measure.classical.interfaces import (
    ClassicalEstimator,
    Samples,
    as_numbers,
    check_enough,
    check_least,
    check_option,
    whiten,
)

if TYPE_CHECKING:
    from jaxtyping import Float

NUMBERS = 2**20  # in a block of pairs, so that it stays in the cache
STEPS = 1000  # most steps of the fit of a ratio
TOLERANCE = 1e-3  # nats that a fit may fall short of the maximum
ROUGHLY = 1e-2  # the same while the width is chosen


@dataclass(frozen=True)
class KDE(ClassicalEstimator):
    """Kernel estimates of three densities, each sample left out of its own estimate.

        mean of log p(x_i, y_i) - log p(x_i) - log p(y_i),
        p(z_i) = mean over j ≠ i of N(z_i | z_j, h² S),   S the covariance of z.

    The width h is the one that suits a Gaussian of d columns, with d that of the density:
    (4 / (d + 2))^(1 / (d + 4)) n^(-1 / (d + 4)) for "silverman", without the first factor for
    "scott". Both are too wide for densities with finer structure than a Gaussian. Kernels of the
    shape of S make the value invariant to linear maps of x and of y; they do not work where tails
    are so heavy that the variance is infinite.

    Reference: Moon, Rajagopalan and Lall 1995; Silverman 1986, section 4.3.2 (the width); Härdle et
    al. 2004.

    Args:
        width: "silverman", "scott", or a number h for all three densities.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> x = rng.normal(size=1000)
        >>> y = 0.8 * x + 0.6 * rng.normal(size=1000)
        >>> round(KDE()(x, y), 2)  # the truth is 0.51
        0.5
    """

    name = "kde"
    side = "neither"
    condition = "smoothing the joint lowers it, smoothing the marginals raises it"
    handles = "continuous"
    cost = "N^2 D, in memory N D"
    reference = "Moon, Rajagopalan and Lall 1995; Silverman 1986, section 4.3.2"
    local = True
    most_rows = 5_000

    width: Literal["silverman", "scott"] | float | int = "silverman"

    def __post_init__(self) -> None:
        if isinstance(self.width, str):
            check_option("width", self.width, ("silverman", "scott"))
        elif not 0 < self.width < math.inf:
            raise ValueError(
                f"Expected width > 0 but got {self.width}; "
                'leave it out for "silverman", or pass "scott".'
            )

    def influence(self, x: Samples, y: Samples) -> Float[np.ndarray, " n"]:
        x, y = as_numbers(x, y)
        check_enough(x, y, x.shape[1] + y.shape[1] + 1)
        p_x, p_y = (self._log_density(name, z) for name, z in (("x", x), ("y", y)))
        reason = ", since with them the mutual information is infinite"
        return self._log_density("x and y", np.hstack([x, y]), reason) - p_x - p_y

    def _log_density(
        self, name: str, z: Float[np.ndarray, "n d"], reason: str = ""
    ) -> Float[np.ndarray, " n"]:
        """log p(z_i), estimated from the other samples."""
        n, d = z.shape
        z, log_det = whiten(name, z, reason)
        if isinstance(self.width, str):
            first = 4 / (d + 2) if self.width == "silverman" else 1.0
            h = (first / n) ** (1 / (d + 4))
        else:
            h = self.width
        points = torch.from_numpy(z / h)
        half = 0.5 * points.square().sum(1)
        sums = []
        for rows in torch.arange(n).split(max(1, NUMBERS // n)):
            exponents = points[rows] @ points.T - half - half[rows, None]
            exponents[torch.arange(len(rows)), rows] = -math.inf
            sums.append(exponents.logsumexp(1))
        constant = math.log(n - 1) + d * math.log(h) + d / 2 * math.log(2 * math.pi) + log_det / 2
        return torch.cat(sums).numpy() - constant


@dataclass(frozen=True)
class MLMI(ClassicalEstimator):
    """Maximum likelihood mutual information: the density ratio as a sum of kernels.

        r(x, y) = sum_l a_l exp(-|x - u_l|² / 2 s_x²) exp(-|y - v_l|² / 2 s_y²),    a_l ≥ 0,

    with some of the samples as centres (u_l, v_l), is fitted to p(x, y) / (p(x) p(y)): it maximises
    the mean of log r over the samples, with the mean of r over all N² pairs (x_i, y_j) fixed at 1.
    The maximum is the estimate, in nats. (LSMI, its successor, fits the same r by least squares and
    estimates another quantity, the squared-loss mutual information.)

    The problem is convex and solved as one of mixture weights: with h_l the mean of the l-th
    product of kernels over all pairs, a_l h_l sum to 1, and the steps of expectation-maximisation
    increase the likelihood until it is within 1e-3 nats of its maximum. The width is chosen by
    cross-validation: the largest likelihood of the fold left out. Centres and folds are drawn by
    row, so the order of the rows has a small effect on the value.

    Reference: Suzuki, Sugiyama, Sese and Kanamori 2008.

    Args:
        centres: most samples that are centres of kernels.
        widths: candidates, s_x and s_y in units of the root mean square distance between two
            samples of x, and of y.
        folds: of the cross-validation.
        seed: of the random centres and folds.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> x = rng.normal(size=500)
        >>> y = 0.8 * x + 0.6 * rng.normal(size=500)
        >>> round(MLMI()(x, y), 2)  # the truth is 0.51
        0.56
    """

    name = "mlmi"
    side = "neither"
    condition = "a lower bound (Donsker-Varadhan) but for its maximum over the very same samples"
    handles = "mixed"
    cost = "N D centres"
    reference = "Suzuki, Sugiyama, Sese and Kanamori 2008"
    local = True
    most_rows = 5_000

    centres: int = 200
    widths: tuple[float | int, ...] = (0.1, 0.15, 0.2, 0.3, 0.5, 0.7, 1.0, 2.0)
    folds: int = 5
    seed: int = 0

    def __post_init__(self) -> None:
        check_least("centres", self.centres, 1)
        check_least("folds", self.folds, 2)
        if not self.widths or not all(0 < width < math.inf for width in self.widths):
            raise ValueError(
                f"Expected widths, all > 0, but got {self.widths}; leave widths out for 0.1 to 2."
            )

    def influence(self, x: Samples, y: Samples) -> Float[np.ndarray, " n"]:
        x, y = as_numbers(x, y, constants=True)
        if len(x) < 2 * self.folds:
            raise ValueError(
                f"Expected at least 2 samples per fold, {2 * self.folds}, but got {len(x)}; "
                "pass more rows, or fewer folds."
            )
        n = len(x)
        order = np.random.default_rng(self.seed).permutation(n)
        x, y = x[order], y[order]
        scores = np.zeros(len(self.widths))
        for fold in range(self.folds):
            held = np.arange(n) % self.folds == fold
            u, v = x[~held][: self.centres], y[~held][: self.centres]
            rest, part = _exponents(x[~held], y[~held], u, v), _exponents(x[held], y[held], u, v)
            for i, width in enumerate(self.widths):
                scores[i] += _fit_ratio(*rest, width, ROUGHLY).log(*part).sum() / n
        if scores.max() < -1:  # far worse than r = 1, which needs no kernels
            raise ValueError(
                f"Expected widths at which kernels reach all samples but got {self.widths}; "
                "add wider ones, or shorten the tails of the samples."
            )
        width = self.widths[scores.argmax()]
        exponents = _exponents(x, y, x[: self.centres], y[: self.centres])
        values = np.empty(n)
        values[order] = _fit_ratio(*exponents, width, TOLERANCE).log(*exponents)
        return values


@dataclass(frozen=True)
class _Ratio:
    """r(x, y) = sum_l w_l exp(exponent of x + exponent of y) / h_l, whose mean is sum_l w_l = 1."""

    width: float | int
    log_h: np.ndarray
    weights: np.ndarray

    def log(
        self, x: Float[np.ndarray, "n centres"], y: Float[np.ndarray, "n centres"]
    ) -> Float[np.ndarray, " n"]:
        """log r of each pair."""
        kernels, log_scale = _scale_rows((x + y) / self.width**2 - self.log_h)
        return np.log(kernels @ self.weights) + log_scale


def _exponents(
    x: Float[np.ndarray, "n x"],
    y: Float[np.ndarray, "n y"],
    u: Float[np.ndarray, "centres x"],
    v: Float[np.ndarray, "centres y"],
) -> tuple[Float[np.ndarray, "n centres"], Float[np.ndarray, "n centres"]]:
    """-|x - u|² / 2 s² at width 1, where s² is the mean of |x - x'|²: 2 d, as variances are 1."""

    def exponents(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        square = (a**2).sum(1)[:, None] + (b**2).sum(1) - 2 * a @ b.T
        return -np.maximum(square, 0) / (4 * a.shape[1])

    return exponents(x, u), exponents(y, v)


def _fit_ratio(
    x: Float[np.ndarray, "n centres"],
    y: Float[np.ndarray, "n centres"],
    width: float | int,
    tolerance: float,
) -> _Ratio:
    """The r of largest likelihood, by expectation-maximisation for the weights of a mixture.

    The gradient g of the mean log-likelihood gives the step, w <- w g, and by concavity a bound on
    the gain that is left, max g - 1.
    """
    mean_x, mean_y = (np.exp(a / width**2).mean(0) for a in (x, y))
    log_h = np.log(mean_x) + np.log(mean_y)
    kernels, _ = _scale_rows((x + y) / width**2 - log_h)  # g does not depend on the scale of a row
    weights = np.full(len(log_h), 1 / len(log_h))
    for _ in range(STEPS):
        gradient = (1 / (kernels @ weights)) @ kernels / len(kernels)
        if gradient.max() - 1 < tolerance:
            break
        weights = weights * gradient
    return _Ratio(width, log_h, weights)


def _scale_rows(
    logs: Float[np.ndarray, "n centres"],
) -> tuple[Float[np.ndarray, "n centres"], Float[np.ndarray, " n"]]:
    """Exponentials over the largest in their row, and its logarithm, so that nothing underflows."""
    largest = logs.max(1)
    return np.exp(logs - largest[:, None]), largest
