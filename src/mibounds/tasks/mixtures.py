"""Gaussian mixtures: several modes, and a mutual information known to high precision."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Categorical, MixtureSameFamily, MultivariateNormal

from mibounds.tasks.base import Task, constant, expect, expect_count, freeze
from mibounds.tasks.gaussians import expect_covariance

if TYPE_CHECKING:
    from jaxtyping import Float

DRAWS = 2**20  # of the Monte Carlo value, in chunks that need little memory
CHUNK = 2**16
GRID = 4096  # points per axis; a finer grid gives way to Monte Carlo


@dataclass(frozen=True)
class JointGaussianMixture(Task):
    """A mixture of Gaussians over (x, y); x is the first x_dim coordinates, y the rest.

        p(x, y) = sum_k w_k N((x, y); mu_k, S_k)
        p(y | x) = sum_k w_k(x) N_k(y | x),    w_k(x) = w_k N_k(x) / sum_l w_l N_l(x)

    The mutual information has no closed form. In 1 + 1 dimensions it is integrated by the trapezoid
    rule, which converges geometrically for smooth integrands that vanish at both ends; otherwise it
    is the mean of the exact pointwise log-ratio over 2^20 draws. An instance computes it once, on
    first use.

    Reference: Czyz et al. 2023 (The Mixtures and the Neural Critics) for tasks of this family.

    Args:
        x_dim: columns of x.
        weights: w_k, positive, with sum 1 within 1e-6.
        means: mu_k, of shape (components, x_dim + y_dim).
        covariances: S_k, of shape (components, x_dim + y_dim, x_dim + y_dim).

    Example:
        >>> task = JointGaussianMixture.cross(correlation=0.9)
        >>> round(task.mutual_information, 4), task.mutual_information_error < 1e-6
        (0.4084, True)
    """

    x_dim: int
    weights: tuple[float, ...]
    means: tuple[tuple[float, ...], ...]
    covariances: tuple[tuple[tuple[float, ...], ...], ...]

    def __post_init__(self) -> None:
        expect_count("x_dim", self.x_dim)
        self.set_derived(
            weights=freeze("weights", self.weights, 1),
            means=freeze("means", self.means, 2),
            covariances=freeze("covariances", self.covariances, 3),
        )
        weights, means, covariances = self._parameters
        components, dim = means.shape
        expect(
            weights.shape == (components,) and covariances.shape == (components, dim, dim),
            f"shapes {(components,)} of weights and {(components, dim, dim)} of covariances",
            f"{weights.shape} and {covariances.shape}",
            "give one weight, one mean and one covariance for each component",
        )
        expect(
            bool((weights > 0).all()) and abs(sum(self.weights) - 1) <= 1e-6,
            "weights to be positive with sum 1 within 1e-6",
            self.weights,
            "drop empty components and divide by the sum",
        )
        expect(
            self.x_dim < dim,
            "x_dim to leave at least one coordinate to y",
            f"x_dim {self.x_dim} of {dim} coordinates",
            "give a smaller x_dim or wider means",
        )
        for covariance in covariances:
            expect_covariance(covariance)
        self.set_derived(y_dim=dim - self.x_dim)

    @classmethod
    def balls(
        cls, x_dim: int, means: tuple[tuple[float, ...], ...], scale: float
    ) -> JointGaussianMixture:
        """Round components of equal size and weight, at the given means."""
        expect(
            0 < scale < math.inf,
            "scale to be positive and finite",
            scale,
            "give the radius of a ball",
        )
        places = np.array(freeze("means", means, 2))
        k, dim = places.shape
        round_ = np.broadcast_to(scale**2 * np.eye(dim), (k, dim, dim))
        return cls(x_dim, (1 / k,) * k, means, freeze("covariances", round_, 3))

    @classmethod
    def cross(cls, correlation: float) -> JointGaussianMixture:
        """The shape of an X: standard normal marginals, uncorrelated and still dependent."""
        r = correlation
        return cls(
            1, (0.5, 0.5), ((0.0, 0.0), (0.0, 0.0)), (((1.0, r), (r, 1.0)), ((1.0, -r), (-r, 1.0)))
        )

    @property
    def mutual_information(self) -> float:
        return self._value_and_error[0]

    @property
    def mutual_information_error(self) -> float:
        """Bound of the quadrature, or standard error of the Monte Carlo mean, in nats."""
        return self._value_and_error[1]

    def conditional(self, x: Float[Tensor, "*batch x_dim"]) -> MixtureSameFamily:
        slopes, factors = (constant(a, x) for a in self._regressions)
        means = constant(self._parameters[1], x)
        m = self.x_dim
        shift = ((x[..., None, :] - means[:, :m])[..., None, :] @ slopes)[..., 0, :]
        weights = Categorical(logits=self._log_components(x, slice(None, m)))
        return MixtureSameFamily(
            weights, MultivariateNormal(means[:, m:] + shift, scale_tril=factors)
        )

    def log_ratio(
        self, x: Float[Tensor, "*#batch x_dim"], y: Float[Tensor, "*#batch y_dim"]
    ) -> Float[Tensor, "*batch"]:
        return self._log_density(x, y) - self._log_marginals(x, y)

    def _log_density(self, x: Tensor, y: Tensor) -> Tensor:
        batch = torch.broadcast_shapes(x.shape[:-1], y.shape[:-1])
        z = torch.cat((x.expand(*batch, -1), y.expand(*batch, -1)), -1)
        return self._log_components(z, slice(None)).logsumexp(-1)

    def _log_marginals(self, x: Tensor, y: Tensor) -> Tensor:
        of_x = self._log_components(x, slice(None, self.x_dim)).logsumexp(-1)
        return of_x + self._log_components(y, slice(self.x_dim, None)).logsumexp(-1)

    def _log_components(self, z: Tensor, columns: slice) -> Tensor:
        """log w_k N(z; mu_k, S_k) in some of the coordinates, of shape (..., components)."""
        weights, means, covariances = (constant(a, z) for a in self._parameters)
        normal = MultivariateNormal(
            means[:, columns], covariances[:, columns, columns], validate_args=False
        )
        return weights.log() + normal.log_prob(z[..., None, :])

    @cached_property
    def _parameters(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        weights = np.array(self.weights)
        return weights / weights.sum(), np.array(self.means), np.array(self.covariances)

    @cached_property
    def _regressions(self) -> tuple[np.ndarray, np.ndarray]:
        m, s = self.x_dim, self._parameters[2]
        slopes = np.linalg.solve(s[:, :m, :m], s[:, :m, m:])
        return slopes, np.linalg.cholesky(s[:, m:, m:] - s[:, m:, :m] @ slopes)

    @cached_property
    def _value_and_error(self) -> tuple[float, float]:
        with torch.no_grad():
            grid = self._axes() if self.x_dim == self.y_dim == 1 else None
            return self._monte_carlo() if grid is None else self._quadrature(*grid)

    def _axes(self) -> tuple[Tensor, Tensor] | None:
        """A grid over 9 standard deviations, in steps of 1/6 of the smallest; None if huge."""
        _, means, covariances = self._parameters
        reach = 9 * np.sqrt(covariances.diagonal(axis1=1, axis2=2))
        low, high = (means - reach).min(0), (means + reach).max(0)
        step = np.sqrt(np.linalg.eigvalsh(covariances).min()) / 6
        counts = np.ceil((high - low) / step).astype(int) + 1
        if counts.max() > GRID:
            return None
        x, y = (
            torch.arange(n, dtype=torch.float64, device="cpu") * step + a
            for a, n in zip(low, counts, strict=True)
        )
        return x, y

    def _quadrature(self, x: Tensor, y: Tensor) -> tuple[float, float]:
        """Trapezoid rule; the change from a grid twice as coarse bounds the error."""
        rows = []
        for block in x.split(max(1, CHUNK // len(y))):
            a, b = block[:, None, None], y[None, :, None]
            log_p = self._log_density(a, b)
            rows.append(log_p.exp() * (log_p - self._log_marginals(a, b)))
        f = torch.cat(rows)
        area = float((x[1] - x[0]) * (y[1] - y[0]))
        fine, coarse = area * f.sum().item(), 4 * area * f[::2, ::2].sum().item()
        return fine, abs(fine - coarse) + 1e-12

    def _monte_carlo(self) -> tuple[float, float]:
        generator = torch.Generator().manual_seed(0)
        values = torch.cat(
            [
                self.log_ratio(*self.sample(CHUNK, generator, torch.float64))
                for _ in range(DRAWS // CHUNK)
            ]
        )
        return values.mean().item(), values.std().item() / math.sqrt(DRAWS)

    def draw(
        self, n: int, generator: torch.Generator | None, dtype: torch.dtype
    ) -> tuple[Tensor, Tensor]:
        weights, means, covariances = self._parameters
        k = torch.multinomial(torch.tensor(weights), n, replacement=True, generator=generator)
        z = torch.randn(n, self.x_dim + self.y_dim, generator=generator, dtype=dtype)
        factors = constant(np.linalg.cholesky(covariances), z)
        z = constant(means, z)[k] + (factors[k] @ z[..., None])[..., 0]
        return z[:, : self.x_dim], z[:, self.x_dim :]
