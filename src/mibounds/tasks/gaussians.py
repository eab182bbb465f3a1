"""Gaussian pairs, where everything is known in closed form.

With S the covariance of z = (x, y), in blocks S_xx, S_xy, S_yy,

    I(X; Y) = 1/2 log det S_xx det S_yy / det S
    p(y | x) = N(S_yx S_xx^-1 x, S_yy - S_yx S_xx^-1 S_xy)
    log p(x, y) / (p(x) p(y)) = I(X; Y) - 1/2 (z' S^-1 z - x' S_xx^-1 x - y' S_yy^-1 y)

(Cover and Thomas 2006, theorem 8.4.1 and example 8.5.1).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Independent, MultivariateNormal, Normal

from mibounds.tasks.base import Task, constant, dot, expect, expect_count, freeze

if TYPE_CHECKING:
    from jaxtyping import Float


@dataclass(frozen=True)
class CorrelatedGaussian(Task):
    """d independent pairs of standard normals with one correlation.

        I(X; Y) = -(d / 2) log(1 - rho^2),    y | x ~ N(rho x, (1 - rho^2) I)

    Reference: Poole et al. 2019, section 3; Cheng et al. 2020 (CLUB), section 4.1, with d = 20.

    Args:
        dim: d, the columns of x and of y.
        correlation: rho of each pair (x_k, y_k).

    Example:
        >>> task = CorrelatedGaussian.from_mutual_information(20, 2.0)
        >>> round(task.correlation, 4), round(task.mutual_information, 4), round(task.club, 2)
        (0.4258, 2.0, 4.43)
    """

    dim: int
    correlation: float

    def __post_init__(self) -> None:
        expect_count("dim", self.dim)
        expect(
            abs(self.correlation) < 1,
            "correlation to lie strictly between -1 and 1",
            self.correlation,
            "give one nearer to 0, since at -1 or 1 the mutual information is infinite",
        )
        self.set_derived(x_dim=self.dim, y_dim=self.dim)

    @classmethod
    def from_mutual_information(cls, dim: int, mutual_information: float) -> CorrelatedGaussian:
        """The task whose d pairs share that many nats in total, with rho > 0."""
        expect_count("dim", dim)
        expect(
            0 <= mutual_information < math.inf,
            "mutual_information to be finite and not negative",
            mutual_information,
            "give it in nats",
        )
        return cls(dim, math.sqrt(-math.expm1(-2 * mutual_information / dim)))

    @property
    def mutual_information(self) -> float:
        return -self.dim / 2 * math.log1p(-(self.correlation**2))

    @property
    def club(self) -> float:
        """CLUB with the exact conditional, in nats: far above I where I is large.

        d rho^2 / (1 - rho^2) = d (exp(2 I / d) - 1)
        """
        return self.dim * self.correlation**2 / (1 - self.correlation**2)

    def conditional(self, x: Float[Tensor, "*batch x_dim"]) -> Independent:
        scale = math.sqrt(1 - self.correlation**2)
        return Independent(Normal(self.correlation * x, scale), 1)

    def log_ratio(
        self, x: Float[Tensor, "*#batch x_dim"], y: Float[Tensor, "*#batch y_dim"]
    ) -> Float[Tensor, "*batch"]:
        rho = self.correlation
        quadratic = rho * dot(x, y) - rho**2 / 2 * (dot(x, x) + dot(y, y))
        return self.mutual_information + quadratic / (1 - rho**2)

    def draw(
        self, n: int, generator: torch.Generator | None, dtype: torch.dtype
    ) -> tuple[Tensor, Tensor]:
        x, noise = torch.randn(2, n, self.dim, generator=generator, dtype=dtype)
        return x, self.correlation * x + math.sqrt(1 - self.correlation**2) * noise


@dataclass(frozen=True)
class JointGaussian(Task):
    """A centred Gaussian of any covariance; x is its first x_dim coordinates, y the rest.

    The formulas are those of the module.

    Reference: Czyz et al. 2023 (Beyond Normal), whose "dense" and "2-pair" tasks are `dense` and
    `sparse` here.

    Args:
        x_dim: columns of x.
        covariance: symmetric positive definite, of shape (x_dim + y_dim, x_dim + y_dim).

    Example:
        >>> task = JointGaussian.dense(x_dim=3, y_dim=2, correlation=0.5)
        >>> task.y_dim, round(task.mutual_information, 4)
        (2, 0.3466)
    """

    x_dim: int
    covariance: tuple[tuple[float, ...], ...]

    def __post_init__(self) -> None:
        expect_count("x_dim", self.x_dim)
        self.set_derived(covariance=freeze("covariance", self.covariance, 2))
        s = np.array(self.covariance)
        expect_covariance(s)
        expect(
            self.x_dim < len(s),
            "x_dim to leave at least one coordinate to y",
            f"x_dim {self.x_dim} of {len(s)} coordinates",
            "give a smaller x_dim or a larger covariance",
        )
        self.set_derived(y_dim=len(s) - self.x_dim)

    @classmethod
    def dense(cls, x_dim: int, y_dim: int, correlation: float) -> JointGaussian:
        """The same correlation between any two coordinates: all of them share information."""
        s = np.full((x_dim + y_dim, x_dim + y_dim), correlation)
        np.fill_diagonal(s, 1.0)
        return cls(x_dim, freeze("covariance", s, 2))

    @classmethod
    def sparse(cls, x_dim: int, y_dim: int, correlation: float, pairs: int = 1) -> JointGaussian:
        """Only the first pairs (x_k, y_k) are correlated; the other coordinates distract."""
        expect(
            0 <= pairs <= min(x_dim, y_dim),
            f"pairs to lie between 0 and {min(x_dim, y_dim)}, the smaller dimension",
            pairs,
            "give fewer, since a coordinate belongs to one pair at most",
        )
        s = np.eye(x_dim + y_dim)
        k = np.arange(pairs)
        s[k, x_dim + k] = s[x_dim + k, k] = correlation
        return cls(x_dim, freeze("covariance", s, 2))

    @classmethod
    def random(cls, x_dim: int, y_dim: int, seed: int = 0) -> JointGaussian:
        """Unit variances and random correlations, those of 2 d random points in d dimensions."""
        dim = x_dim + y_dim
        z = np.random.default_rng(seed).standard_normal((dim, 2 * dim))
        z /= np.linalg.norm(z, axis=1, keepdims=True)
        return cls(x_dim, freeze("covariance", z @ z.T, 2))

    @property
    def mutual_information(self) -> float:
        m, s = self.x_dim, np.array(self.covariance)
        log_det = [np.linalg.slogdet(block)[1] for block in (s[:m, :m], s[m:, m:], s)]
        return float(log_det[0] + log_det[1] - log_det[2]) / 2

    def conditional(self, x: Float[Tensor, "*batch x_dim"]) -> MultivariateNormal:
        loc, scale_tril = self.regress(x)
        return MultivariateNormal(loc, scale_tril=scale_tril)

    def log_ratio(
        self, x: Float[Tensor, "*#batch x_dim"], y: Float[Tensor, "*#batch y_dim"]
    ) -> Float[Tensor, "*batch"]:
        of_pair, of_x, of_y = self.squared_norms(x, y)
        return self.mutual_information - (of_pair - of_x - of_y) / 2

    def regress(
        self, x: Float[Tensor, "*batch x_dim"]
    ) -> tuple[Float[Tensor, "*batch y_dim"], Float[Tensor, "y_dim y_dim"]]:
        """Mean of y given x, and the Cholesky factor of what x leaves of the covariance of y."""
        slope, factor = self._regression
        return x @ constant(slope, x), constant(factor, x)

    def squared_norms(
        self, x: Float[Tensor, "*#batch x_dim"], y: Float[Tensor, "*#batch y_dim"]
    ) -> tuple[Float[Tensor, "*batch"], Float[Tensor, "..."], Float[Tensor, "..."]]:
        """Squared Mahalanobis norms of (x, y), of x and of y, each under its own distribution."""
        m = self.x_dim
        p, p_x, p_y = (constant(a, x) for a in self._precisions)
        of_pair = dot(x @ p[:m, :m], x) + dot(y @ p[m:, m:], y) + 2 * dot(x @ p[:m, m:], y)
        return of_pair, dot(x @ p_x, x), dot(y @ p_y, y)

    @cached_property
    def _regression(self) -> tuple[np.ndarray, np.ndarray]:
        m, s = self.x_dim, np.array(self.covariance)
        slope = np.linalg.solve(s[:m, :m], s[:m, m:])
        return slope, np.linalg.cholesky(s[m:, m:] - s[m:, :m] @ slope)

    @cached_property
    def _precisions(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        m, s = self.x_dim, np.array(self.covariance)
        return np.linalg.inv(s), np.linalg.inv(s[:m, :m]), np.linalg.inv(s[m:, m:])

    @cached_property
    def _factor(self) -> np.ndarray:
        return np.linalg.cholesky(np.array(self.covariance))

    def draw(
        self, n: int, generator: torch.Generator | None, dtype: torch.dtype
    ) -> tuple[Tensor, Tensor]:
        z = torch.randn(n, self.x_dim + self.y_dim, generator=generator, dtype=dtype)
        z = z @ constant(self._factor, z).T
        return z[:, : self.x_dim], z[:, self.x_dim :]


def expect_covariance(s: np.ndarray) -> None:
    """Check that a matrix is symmetric and has a Cholesky factor."""
    square = s.ndim == 2 and s.shape[0] == s.shape[1]
    expect(
        square and np.allclose(s, s.T),
        "covariance to be a symmetric matrix",
        s.tolist(),
        "give the whole matrix, both triangles",
    )
    smallest = float(np.linalg.eigvalsh(s)[0])
    expect(
        smallest > 1e-12,
        "covariance to be positive definite",
        f"a smallest eigenvalue of {smallest:.3g}",
        "give smaller correlations, or drop coordinates that repeat others",
    )
