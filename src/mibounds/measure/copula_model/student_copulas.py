"""The Student-t copula: what a Gaussian one becomes where extremes come together.

Returns, errors and whatever shares a scale that varies have it. Networks learn it slowly, from
extremes, which are rare; here it is one number more than a Gaussian copula has, the degrees of
freedom. Columns are normal scores, and a density of them is that of Student-t columns times
derivatives. The conditional of t given a is a Student-t whose scale grows with the distance of a.

Reference: Demarta and McNeil 2005; the scatter matrix by EM: Liu and Rubin 1995.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

if TYPE_CHECKING:
    from jaxtyping import Float

DEGREES = (20.0, 12.0, 8.0, 6.0, 4.0, 3.0, 2.0, 1.5, 1.0)  # of freedom, to choose from
ITERATIONS = 15  # of the scatter matrix
ROWS = 8  # per column, at least
MOST = 20_000  # rows that it is fitted to
POINTS, END = 8001, 40.0  # of the table of quantiles, in asinh of the value


@dataclass(frozen=True)
class StudentCopula:
    """A Student-t copula of conditioning columns and target columns, which are normal scores.

    Args:
        df: degrees of freedom.
        scatter: correlation matrix of the Student-t columns, conditioning columns first.
        k: number of conditioning columns.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> z = rng.normal(size=(2000, 2)) / rng.gamma(1.0, size=(2000, 1)) ** 0.5
        >>> ranks = z.argsort(0).argsort(0)
        >>> scores = torch.special.ndtri(torch.from_numpy((ranks + 0.5) / 2000)).numpy()
        >>> StudentCopula.fit(scores[:, :1], scores[:, 1:]).df
        2.0
    """

    df: float
    scatter: Float[np.ndarray, "d d"]
    k: int

    @classmethod
    def fit(cls, a: Float[np.ndarray, "n k"], t: Float[np.ndarray, "n d"]) -> StudentCopula | None:
        """The likeliest copula of the joint columns; None for too few rows.

        Args:
            a: conditioning columns.
            t: target columns.
        """
        z = np.hstack([a, t])[:: math.ceil(len(t) / MOST)]
        if len(z) < ROWS * z.shape[1]:
            return None
        best, highest = None, -math.inf
        for df in DEGREES:  # the likelihood has one maximum
            copula = cls(df, _scatter(to_student(z, df), df), a.shape[1])
            value = float(copula._joint(z).mean())
            if value < highest:
                break
            best, highest = copula, value
        return best

    def of_last(self, k: int, d: int) -> StudentCopula:
        """The copula of only the last columns.

        Args:
            k: conditioning columns among them.
            d: target columns.
        """
        return StudentCopula(self.df, self.scatter[-k - d :, -k - d :], k)

    def log_prob(
        self, a: Float[np.ndarray, "n k"], t: Float[np.ndarray, "n d"]
    ) -> Float[np.ndarray, " n"]:
        """log q(t|a), row by row."""
        joint = self._joint(np.hstack([a, t]))
        if not self.k:
            return joint
        part = StudentCopula(self.df, self.scatter[: self.k, : self.k], 0)
        return joint - part._joint(a)

    def log_prob_pairs(
        self, a: Float[np.ndarray, "n k"], t: Float[np.ndarray, "n d"]
    ) -> Float[np.ndarray, "n n"]:
        """log q(t_j | a_i) for all pairs i, j."""
        k, df = self.k, self.df
        s, u = to_student(a, df), to_student(t, df)
        given, cross = self.scatter[:k, :k], self.scatter[:k, k:]
        slope = np.linalg.solve(given, cross)
        root = np.linalg.cholesky(self.scatter[k:, k:] - cross.T @ slope)
        centre = np.linalg.solve(root, (s @ slope).T).T
        white = np.linalg.solve(root, u.T).T
        squares = (centre**2).sum(1)[:, None] + (white**2).sum(1) - 2 * centre @ white.T
        of_a = (np.linalg.solve(np.linalg.cholesky(given), s.T) ** 2).sum(0)
        d = t.shape[1]
        value = math.lgamma((df + k + d) / 2) - math.lgamma((df + k) / 2)
        value -= 0.5 * d * math.log(math.pi) + float(np.log(np.diag(root)).sum())
        spread = (df + of_a)[:, None]
        tails = -0.5 * (df + k + d) * np.log1p(np.maximum(squares, 0) / spread)
        return value + tails - 0.5 * d * np.log(spread) + _log_derivatives(t, u, df)

    def _joint(self, z: np.ndarray) -> np.ndarray:
        """The joint log-density of normal scores."""
        u, d, df = to_student(z, self.df), z.shape[1], self.df
        root = np.linalg.cholesky(self.scatter)
        squares = (np.linalg.solve(root, u.T) ** 2).sum(0)
        value = math.lgamma((df + d) / 2) - math.lgamma(df / 2)
        value -= 0.5 * d * math.log(df * math.pi) + float(np.log(np.diag(root)).sum())
        return value - 0.5 * (df + d) * np.log1p(squares / df) + _log_derivatives(z, u, df)


def _scatter(u: np.ndarray, df: float) -> np.ndarray:
    """The likeliest correlation matrix of Student-t columns."""
    scatter = np.eye(u.shape[1])
    for _ in range(ITERATIONS):
        squares = (np.linalg.solve(np.linalg.cholesky(scatter), u.T) ** 2).sum(0)
        weights = (df + u.shape[1]) / (df + squares)
        scatter = (u * weights[:, None]).T @ u / len(u)
        scale = np.sqrt(np.diag(scatter))
        scatter = scatter / scale / scale[:, None] + 1e-9 * np.eye(u.shape[1])
    return scatter


def to_student(z: np.ndarray, df: float) -> np.ndarray:
    """The Student-t quantiles that belong to normal ones.

    Example:
        >>> to_student(np.array([1.959964]), 3.0).round(3)  # 95 % of four values' means
        array([3.182])
    """
    normal, student = _quantiles(df)
    return np.sign(z) * np.interp(np.abs(z), normal, student)


def _log_derivatives(z: np.ndarray, u: np.ndarray, df: float) -> np.ndarray:
    """The sum over columns of log dΦ(z)/dz - log dT(u)/du."""
    constant = math.lgamma((df + 1) / 2) - math.lgamma(df / 2) - 0.5 * math.log(df * math.pi)
    student = constant - 0.5 * (df + 1) * np.log1p(u**2 / df)
    return (-0.5 * z**2 - 0.5 * math.log(2 * math.pi) - student).sum(1)


@functools.lru_cache(maxsize=2 * len(DEGREES))
def _quantiles(df: float) -> tuple[np.ndarray, np.ndarray]:
    """Normal quantiles from zero on, and the Student-t quantiles of the same probabilities."""
    grid = np.linspace(0, END, POINTS)
    constant = math.lgamma((df + 1) / 2) - math.lgamma(df / 2) - 0.5 * math.log(df * math.pi)
    log_cosh = np.logaddexp(grid, -grid) - math.log(2)
    values = np.sinh(grid)
    log_square = 2 * np.log(np.maximum(values, 1e-300)) - math.log(df)
    density = np.exp(constant - 0.5 * (df + 1) * np.logaddexp(0, log_square) + log_cosh)
    slices = 0.5 * (density[1:] + density[:-1]) * (grid[1] - grid[0])
    above = np.append(np.cumsum(slices[::-1])[::-1], 0.0)
    above *= 0.5 / above[0]
    normal = -torch.special.ndtri(torch.from_numpy(above)).numpy()
    kept = np.isfinite(normal) & (above > 1e-15)
    return normal[kept], values[kept]
