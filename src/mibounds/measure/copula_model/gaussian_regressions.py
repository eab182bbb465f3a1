"""Linear regressions with Gaussian residuals, and the mutual information that they imply."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from mibounds.measure.classical.interfaces import digamma
from mibounds.samples.columns import normal_scores

if TYPE_CHECKING:
    from jaxtyping import Float, Int

RANKS_MATTER = 20_000  # rows from which on they hide nothing that an interval would show
SIMULATED = 4000  # rows in all


class GaussianRegression:
    """t = a B + L e: a linear regression on a, with uncorrelated standardised residuals e."""

    def __init__(self, a: Float[np.ndarray, "n k"], t: Float[np.ndarray, "n d"]):
        self.shift = t.mean(0)
        self.centre = a.mean(0)
        centred = a - self.centre
        if a.shape[1]:
            self.slope, _, self.rank, _ = np.linalg.lstsq(centred, t - self.shift, rcond=1e-10)
        else:
            self.slope, self.rank = np.zeros((0, t.shape[1])), 0
        rest = t - self.shift - centred @ self.slope
        covariance = rest.T @ rest / len(t)
        # A relation without noise has no density; a floor keeps the numbers finite.
        floor = 1e-12 * np.diag(t.var(0) + 1e-300)
        self.root = np.linalg.cholesky(covariance + floor)
        self.log_volume = float(np.log(np.diag(self.root)).sum())

    def whiten(self, t: Float[np.ndarray, "m d"]) -> Float[np.ndarray, "m d"]:
        """t, centred and in units of the residuals."""
        return np.linalg.solve(self.root, (t - self.shift).T).T

    def predict(self, a: Float[np.ndarray, "m k"]) -> Float[np.ndarray, "m d"]:
        """The prediction of t from a, in the same units."""
        return np.linalg.solve(self.root, ((a - self.centre) @ self.slope).T).T

    def residuals(
        self, a: Float[np.ndarray, "m k"], t: Float[np.ndarray, "m d"]
    ) -> Float[np.ndarray, "m d"]:
        """The standardised residuals e."""
        return self.whiten(t) - self.predict(a)

    def log_prob(
        self, a: Float[np.ndarray, "m k"], t: Float[np.ndarray, "m d"]
    ) -> Float[np.ndarray, " m"]:
        """log q(t|a), row by row."""
        e = self.residuals(a, t)
        return -0.5 * (e**2).sum(1) - self.log_volume - 0.5 * e.shape[1] * math.log(2 * math.pi)

    def cost_of_groups(
        self,
        a: Float[np.ndarray, "n k"],
        t: Float[np.ndarray, "n d"],
        groups: Int[np.ndarray, " n"],
    ) -> float:
        """Twice the nats per row that the fit gains, beyond those of independent rows."""
        if not a.shape[1]:
            return 0.0
        e = self.residuals(a, t)
        centred = a - self.centre
        sizes, axes = np.linalg.eigh(centred.T @ centred / len(a))
        kept = sizes > 1e-10 * sizes[-1]
        white = centred @ (axes[:, kept] / np.sqrt(sizes[kept]))
        order = np.argsort(groups, kind="stable")
        ends = np.cumsum(np.bincount(groups))[:-1]
        together = sum(
            float(((white[rows].T @ e[rows]) ** 2).sum()) for rows in np.split(order, ends)
        )
        apart = float((white**2).sum(1) @ (e**2).sum(1))
        return (together - apart) / len(a) ** 2


def gaussian_information(
    s: Float[np.ndarray, "n a"],
    t: Float[np.ndarray, "n d"],
    z: Float[np.ndarray, "n b"],
    groups: Int[np.ndarray, " n"] | None = None,
) -> tuple[float, Float[np.ndarray, " n"]]:
    """I(s; t | z) if t is a linear regression with Gaussian residuals, and each row's share.

    The logarithm of a Wishart determinant has a known mean, so the bias is subtracted exactly.
    Where rows of a group depend on each other, what they add to it is that of Takeuchi's criterion.

    Args:
        s: one side.
        t: the other side.
        z: given columns.
        groups: a code 0, 1, ... for each row; every row is independent if left out.

    Example:
        >>> x = np.random.default_rng(0).normal(size=(1000, 2))
        >>> value, shares = gaussian_information(x[:, :1], x @ [[1.0], [1.0]], x[:, :0])
        >>> abs(value - math.log(2) / 2) < 0.05, np.isclose(shares.mean(), value).item()
        (True, True)
    """
    densities, biases = [], []
    for a in (np.hstack([s, z]), z):
        regression = GaussianRegression(a, t)
        densities.append(regression.log_prob(a, t))
        m = len(t) - 1 - regression.rank
        d = t.shape[1]
        if m <= d:
            raise ValueError(
                f"Expected more rows than the {regression.rank + d} columns need but got "
                f"{len(t)}; pass fewer columns."
            )
        psi = digamma((m - np.arange(d)) / 2).sum()
        bias = psi + d * math.log(2 / len(t))  # E log|S| - log|Σ| of S = RSS / n
        if groups is not None:
            bias -= regression.cost_of_groups(a, t, groups)
        biases.append(bias)
    shares = densities[0] - densities[1] + 0.5 * (biases[0] - biases[1])
    return float(shares.mean()), shares


def cost_of_ranks(
    s: Float[np.ndarray, "n a"],
    t: Float[np.ndarray, "n d"],
    z: Float[np.ndarray, "n b"],
    rng: np.random.Generator,
) -> float:
    """How far normal scores lower `gaussian_information`, in nats.

    They know a column only by its ranks, and blur what several columns know together. So they do in
    Gaussian samples of the same covariance, whose columns are measured before and after.

    Args:
        s: normal scores of one side.
        t: those of the other side.
        z: those of given columns.
        rng: draws the Gaussian samples.

    Example:
        >>> x = np.random.default_rng(0).normal(size=(100, 10))
        >>> y = 0.1 * np.random.default_rng(1).normal(size=(100, 10)) + x
        >>> scores = (np.stack([normal_scores(v) for v in side.T], 1) for side in (x, y))
        >>> cost_of_ranks(*scores, x[:, :0], np.random.default_rng(2)) > 1
        True
    """
    joint = np.hstack([s, t, z])
    if len(joint) > RANKS_MATTER:
        return 0.0
    sizes, axes = np.linalg.eigh(joint.T @ joint / len(joint))
    root = (axes * np.sqrt(np.maximum(sizes, 0))).T
    ends = np.cumsum([s.shape[1], t.shape[1]])
    costs = []
    for _ in range(math.ceil(SIMULATED / len(joint))):
        sample = rng.normal(size=joint.shape) @ root
        scores = np.stack([normal_scores(column) for column in sample.T], 1)
        (before, _), (after, _) = (
            gaussian_information(*np.split(table, ends, 1)) for table in (sample, scores)
        )
        costs.append(before - after)
    return float(np.mean(costs))
