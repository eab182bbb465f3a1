"""Injective maps of x or of y, as torch Transforms: none of them changes the mutual information.

Each has an inverse and a log-determinant, so that a known conditional stays known. `forward_shape`
refuses a variable of the wrong dimension.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor
from torch.distributions import constraints
from torch.distributions.transforms import Transform

from mibounds.tasks.base import constant, expect, expect_count


class Map(Transform):
    """A Transform that is a dataclass, so that it can be compared, hashed and printed.

    It cannot be frozen as tasks are, because torch keeps the inverse on the instance.
    """

    bijective = True

    def __post_init__(self) -> None:
        super().__init__()


@dataclass(unsafe_hash=True)
class SignedPower(Map):
    """Element-wise power that keeps the sign, t -> sign(t) |t|^p.

    p = 3 is the cube of the "cubic" task of the CLUB authors' code, p = 1.5 the "half-cube" of Czyz
    et al. 2023 (Beyond Normal).

    Args:
        exponent: p > 0.

    Example:
        >>> SignedPower(3.0)(torch.tensor([-2.0, 1.0]))
        tensor([-8.,  1.])
    """

    exponent: float

    domain = codomain = constraints.real

    def __post_init__(self) -> None:
        super().__post_init__()
        expect(
            0 < self.exponent < math.inf,
            "exponent to be positive and finite",
            self.exponent,
            "give 3.0, for example, since other powers are not bijections of the real line",
        )

    def _call(self, x: Tensor) -> Tensor:
        return x.sign() * x.abs() ** self.exponent

    def _inverse(self, y: Tensor) -> Tensor:
        return y.sign() * y.abs() ** (1 / self.exponent)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return math.log(self.exponent) + (self.exponent - 1) * x.abs().log()


@dataclass(unsafe_hash=True)
class Asinh(Map):
    """Element-wise asinh, which shortens heavy tails.

    Reference: Czyz et al. 2023 (Beyond Normal), the "asinh" tasks.

    Example:
        >>> Asinh()(torch.tensor([1e6]))
        tensor([14.5087])
    """

    domain = codomain = constraints.real

    def _call(self, x: Tensor) -> Tensor:
        return x.asinh()

    def _inverse(self, y: Tensor) -> Tensor:
        return y.sinh()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return -torch.log1p(x**2) / 2


@dataclass(unsafe_hash=True)
class NormalCDF(Map):
    """Element-wise distribution function of N(0, 1): a Gaussian becomes its copula.

    Reference: Czyz et al. 2023 (Beyond Normal), the "normal CDF" tasks.

    Example:
        >>> NormalCDF()(torch.tensor([0.0]))
        tensor([0.5000])
    """

    domain = constraints.real
    codomain = constraints.unit_interval

    def _call(self, x: Tensor) -> Tensor:
        return self._inside(torch.special.ndtr(x))

    def _inverse(self, y: Tensor) -> Tensor:
        return torch.special.ndtri(self._inside(y))

    @staticmethod
    def _inside(u: Tensor) -> Tensor:
        """Keep u off 0 and 1, where rounding may put it and the inverse is infinite."""
        return u.clamp(torch.finfo(u.dtype).tiny, 1 - torch.finfo(u.dtype).eps)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return -(x**2) / 2 - math.log(2 * math.pi) / 2


@dataclass(unsafe_hash=True)
class Mixing(Map):
    """A fixed full-rank matrix, y -> W y; `(Mixing(d), SignedPower(3.0))` is (W y)^3.

    W = U diag(s) V' with random orthogonal U and V, and s in even steps from 1 to the condition
    number, scaled to a mean square of 1 so that white y keep their mean variance.

    Reference: Cheng et al. 2020 (CLUB), section 4.1, which asks for full rank and leaves W open.

    Args:
        dim: rows and columns of W.
        seed: of the rotations.
        condition: largest over smallest singular value.

    Example:
        >>> Mixing(20)(torch.ones(5, 20)).shape
        torch.Size([5, 20])
    """

    dim: int
    seed: int = 0
    condition: float = 10.0

    domain = codomain = constraints.real_vector

    def __post_init__(self) -> None:
        super().__post_init__()
        expect_count("dim", self.dim)
        expect(
            1 <= self.condition < math.inf,
            "condition to be finite and at least 1",
            self.condition,
            "give the ratio of the largest to the smallest singular value",
        )

    @cached_property
    def matrix(self) -> np.ndarray:
        """W, in float64."""
        generator = np.random.default_rng(self.seed)
        u, v = np.linalg.qr(generator.standard_normal((2, self.dim, self.dim)))[0]
        return (u * self._singular_values) @ v.T

    @property
    def _singular_values(self) -> np.ndarray:
        s = np.linspace(1.0, self.condition, self.dim)
        return s / np.sqrt(np.mean(s**2))

    def _call(self, x: Tensor) -> Tensor:
        return x @ constant(self.matrix.T, x)

    def _inverse(self, y: Tensor) -> Tensor:
        return y @ constant(np.linalg.inv(self.matrix).T, y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return x.new_full(x.shape[:-1], float(np.log(self._singular_values).sum()))

    def forward_shape(self, shape):
        expect(
            shape[-1] == self.dim,
            f"{self.dim} columns, as W has",
            shape[-1],
            "give Mixing the dimension of the variable it maps",
        )
        return shape


@dataclass(unsafe_hash=True)
class Spiral(Map):
    """Turn the first two coordinates by an angle in proportion to the squared norm, v |x|^2.

    Norms and volumes stay: the determinant is 1.

    Reference: Czyz et al. 2023 (Beyond Normal), the "spiral" diffeomorphism.

    Args:
        speed: v, in radians for each unit of squared norm.

    Example:
        >>> Spiral(math.pi / 2)(torch.tensor([1.0, 0.0])).round(decimals=4).abs()
        tensor([0., 1.])
    """

    speed: float

    domain = codomain = constraints.real_vector

    def __post_init__(self) -> None:
        super().__post_init__()
        expect(math.isfinite(self.speed), "speed to be finite", self.speed, "give radians per unit")

    def _turn(self, x: Tensor, speed: float) -> Tensor:
        angle = speed * x.square().sum(-1)
        sin, cos = angle.sin(), angle.cos()
        a, b = x[..., 0], x[..., 1]
        turned = torch.stack((cos * a - sin * b, sin * a + cos * b), -1)
        return torch.cat((turned, x[..., 2:]), -1)

    def _call(self, x: Tensor) -> Tensor:
        return self._turn(x, self.speed)

    def _inverse(self, y: Tensor) -> Tensor:
        return self._turn(y, -self.speed)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return x.new_zeros(x.shape[:-1])

    def forward_shape(self, shape):
        expect(shape[-1] >= 2, "at least 2 columns to turn", shape[-1], "map a wider variable")
        return shape


@dataclass(unsafe_hash=True)
class SwissRoll(Map):
    """Roll up the unit interval in the plane.

        u -> t (cos t, sin t) / 21,    t = 3/2 pi (1 + 2 u)

    Injective but not onto: the inverse reads u off the radius and is valid on the image only. The
    log-determinant is 1/2 log det J'J, which gives densities per unit of length along the roll.

    Reference: Czyz et al. 2023 (Beyond Normal), the "Swiss roll" embedding.

    Example:
        >>> SwissRoll()(torch.tensor([[0.0], [0.5]])).shape
        torch.Size([2, 2])
    """

    domain = constraints.independent(constraints.unit_interval, 1)
    codomain = constraints.real_vector

    def _call(self, x: Tensor) -> Tensor:
        t = 1.5 * math.pi * (1 + 2 * x)
        return t / 21 * torch.cat((t.cos(), t.sin()), -1)

    def _inverse(self, y: Tensor) -> Tensor:
        t = 21 * torch.linalg.vector_norm(y, dim=-1, keepdim=True)
        eps = torch.finfo(y.dtype).eps  # rounded, a radius may lie past either end
        return ((t / (1.5 * math.pi) - 1) / 2).clamp(eps, 1 - eps)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        t = 1.5 * math.pi * (1 + 2 * x[..., 0])
        return math.log(3 * math.pi / 21) + torch.log1p(t**2) / 2

    def forward_shape(self, shape):
        expect(shape[-1] == 1, "1 column to roll up", shape[-1], "map a variable of dimension 1")
        return torch.Size((*shape[:-1], 2))

    def inverse_shape(self, shape):
        return torch.Size((*shape[:-1], 1))
