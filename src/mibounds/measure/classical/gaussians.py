"""Estimators from canonical correlations: exact for Gaussians.

Canonical correlations ρ_1 ≥ ρ_2 ≥ ... are those between the linear combinations of x and of y that
correlate most, each uncorrelated with the ones before. If x and y are jointly Gaussian,

    I(X; Y) = -1/2 sum_i log(1 - ρ_i²) = 1/2 log(|S_x| |S_y| / |S_xy|),

which needs only covariances, so that few samples suffice even in many dimensions. Its bias for
Gaussian samples is known exactly. As (n - 1) S is Wishart distributed in d dimensions,

    E log|S| = log|Σ| + sum_{i=1}^d ψ((n - i) / 2) + d log(2 / (n - 1)),

whose last term cancels between S_x, S_y and S_xy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from mibounds.measure.classical.interfaces import (
    ClassicalEstimator,
    Samples,
    as_numbers,
    check_enough,
    digamma,
    whiten,
)
from mibounds.samples.columns import normal_scores

if TYPE_CHECKING:
    from jaxtyping import Float

NEAREST = 1e-13  # 1 - ρ² below which it differs from 0 only by rounding


@dataclass(frozen=True)
class CCA(ClassicalEstimator):
    """Mutual information of Gaussians with the covariance of the samples.

    The pointwise values are log-ratios of the fitted Gaussians, which are exactly the influence
    function of this estimate.

    Reference: Gelfand and Yaglom 1957 (canonical correlations); Goodman 1963 (the determinant of a
    Wishart matrix).

    Args:
        unbiased: whether to subtract the bias that Gaussian samples have; see the module.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> x = rng.normal(size=(1000, 3))
        >>> y = 0.8 * x[:, :2] + 0.6 * rng.normal(size=(1000, 2))
        >>> round(CCA()(x, y), 2)  # the truth is 1.02
        1.02
    """

    name = "gaussian"
    side = "lower"
    condition = "x Gaussian and y Gaussian; equal where (x, y) is; up to the error of the sample"
    handles = "continuous"
    cost = "N D^2"
    reference = "Gelfand and Yaglom 1957; Goodman 1963"

    unbiased: bool = True

    def influence(self, x: Samples, y: Samples) -> Float[np.ndarray, " n"]:
        x, y = as_numbers(x, y)
        return _log_ratios(x, y, self.unbiased)


@dataclass(frozen=True)
class GCMI(ClassicalEstimator):
    """The same for normal scores: the mutual information of a Gaussian copula.

    Each column is first made Gaussian: a number of rank r becomes the (r - 1/2) / n quantile of the
    normal distribution, and equal numbers share their mean rank; the reference has r / (n + 1),
    which pulls the outermost numbers in. Increasing maps of a column change nothing, so outliers
    and heavy tails do no harm. It does not see dependence that is not monotone.

    Reference: Ince et al. 2017.

    Args:
        unbiased: whether to subtract the bias that Gaussian samples have. The bias of the ranks is
            unknown and remains.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> x = rng.normal(size=1000)
        >>> y = np.exp(3 * (0.8 * x + 0.6 * rng.normal(size=1000)))
        >>> round(GCMI()(x, y), 2), round(CCA()(x, y), 2)
        (0.5, 0.01)
    """

    name = "gaussian_copula"
    side = "lower"
    condition = (
        "one column each, or columns of x, and of y, whose scores are jointly Gaussian; "
        "up to the error of the sample"
    )
    handles = "continuous"
    cost = "N log N + N D^2"
    reference = "Ince et al. 2017"

    unbiased: bool = True

    def influence(self, x: Samples, y: Samples) -> Float[np.ndarray, " n"]:
        x, y = as_numbers(x, y)
        x, y = as_numbers(*(np.apply_along_axis(normal_scores, 0, side) for side in (x, y)))
        return _log_ratios(x, y, self.unbiased)


def _log_ratios(
    x: Float[np.ndarray, "n x"], y: Float[np.ndarray, "n y"], unbiased: bool
) -> Float[np.ndarray, " n"]:
    """log p(x, y) / (p(x) p(y)) of each sample by the fitted Gaussians, minus the bias."""
    check_enough(x, y, x.shape[1] + y.shape[1] + 1)
    u, v = whiten("x", x)[0], whiten("y", y)[0]
    a, rho, b = np.linalg.svd(u.T @ v / len(u), full_matrices=False)
    rest = (1 - rho) * (1 + rho)  # = 1 - ρ², without cancellation
    if rest.min() < NEAREST:
        raise ValueError(
            "Expected no exact linear relation between x and y but got a canonical correlation "
            f"of 1 to within {NEAREST}; drop the columns that repeat the "
            "other side, since with them the mutual information is infinite."
        )
    u, v = u @ a, v @ b.T
    square = rho**2 * (u**2 + v**2) - 2 * rho * u * v
    return -0.5 * (np.log(rest) + square / rest).sum(1) - unbiased * _bias(
        len(x), x.shape[1], y.shape[1]
    )


def _bias(n: int, x_dim: int, y_dim: int) -> float:
    """By how much the estimate exceeds the truth, on average over n Gaussian samples."""
    psi = digamma((n - np.arange(1, x_dim + y_dim + 1)) / 2)
    return float(0.5 * (psi[:x_dim].sum() + psi[:y_dim].sum() - psi.sum()))
