"""Uniform pairs: sharp edges, where some pairs are impossible and CLUB is rightly infinite."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.distributions import Independent, Uniform

from mibounds.tasks.base import Task, expect, expect_count

if TYPE_CHECKING:
    from jaxtyping import Float


@dataclass(frozen=True)
class UniformNoise(Task):
    """A uniform number seen through additive uniform noise: x ~ U(0, 1), y = x + U(-eps, eps).

        I(X; Y) = eps - log(2 eps)  if eps <= 1/2,    1 / (4 eps)  otherwise
        log p(y | x) / p(y) = -log(length of [0, 1] within eps of y)  if |y - x| < eps, else -inf

    for each of the independent coordinates.

    Reference: Czyz et al. 2023 (Beyond Normal), the "additive noise" tasks.

    Args:
        epsilon: half the width of the noise.
        dim: independent coordinates of x and of y, one by default.

    Example:
        >>> round(UniformNoise(0.1).mutual_information, 4), UniformNoise(1.0).mutual_information
        (1.7094, 0.25)
    """

    epsilon: float
    dim: int = 1

    def __post_init__(self) -> None:
        expect(
            1e-4 <= self.epsilon < math.inf,
            "epsilon to be finite and at least 1e-4",
            self.epsilon,
            "give 0.1, for example, since finer noise drowns in the rounding of float32",
        )
        expect_count("dim", self.dim)
        self.set_derived(x_dim=self.dim, y_dim=self.dim)

    @property
    def mutual_information(self) -> float:
        eps = self.epsilon
        return self.dim * (eps - math.log(2 * eps) if eps <= 0.5 else 1 / (4 * eps))

    def conditional(self, x: Float[Tensor, "*batch x_dim"]) -> Independent:
        # Without validation, so that an impossible y has log_prob -inf instead of raising
        noise = Uniform(x - self.epsilon, x + self.epsilon, validate_args=False)
        return Independent(noise, 1, validate_args=False)

    def log_ratio(
        self, x: Float[Tensor, "*#batch x_dim"], y: Float[Tensor, "*#batch y_dim"]
    ) -> Float[Tensor, "*batch"]:
        length = (y + self.epsilon).clamp(max=1) - (y - self.epsilon).clamp(min=0)
        possible = (y - x).abs() < self.epsilon
        return torch.where(possible, -length.clamp(min=0).log(), -math.inf).sum(-1)

    def draw(
        self, n: int, generator: torch.Generator | None, dtype: torch.dtype
    ) -> tuple[Tensor, Tensor]:
        x, u = torch.rand(2, n, self.dim, generator=generator, dtype=dtype)
        # Two rounding errors short of the edge, or a y might fall outside the support of its own x
        width = self.epsilon - 2 * torch.finfo(dtype).eps * (1 + self.epsilon)
        return x, x + width * (2 * u - 1)
