"""The simulator: x and y, the correlations that learn, and the true mutual information.

    x = Q_x (ρ u + √(1 - ρ²) v)        y = t(Q_y u) / its root mean square

u and v are standard normal, Q_x and Q_y fixed rotations, and t maps one-to-one, so that the mutual
information is -1/2 Σ log(1 - ρ²) whatever t is. ρ is the tanh of what learns. Reference: Yu, Liu,
Hernandez-Lobato, OuYang 2026, appendix C.1.3.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from experiments.mi_control.config import LIMIT
from experiments.mi_control.draws import Draws

if TYPE_CHECKING:
    from jaxtyping import Float

MEASURED = 16384  # samples that give the scale of y
ROTATIONS = 1000  # added to the seed of a cell for what is fixed in it


class Batch(NamedTuple):
    """Samples of all cells.

    Args:
        x: with the gradient.
        y: without any.
        other: x of product pairs (other, y): made from the same v as x, and from another u.
    """

    x: Float[Tensor, "cells n d"]
    y: Float[Tensor, "cells n d"]
    other: Float[Tensor, "cells n d"] | None = None

    def detach(self) -> Batch:
        """The same samples, without a gradient and without product pairs."""
        return Batch(self.x.detach(), self.y)


class World:
    """The simulators of some cells, which have one dimension.

    Args:
        families: of each cell.
        shared: of each cell, whether all its coordinates share one correlation.
        seeds: of each cell.
        dim: columns of x and of y.
        nats: true mutual information at the start.
        device: where to simulate.

    Example:
        >>> world = World(["cubic", "spiral"], [True, False], [0, 0], dim=3, nats=2.0)
        >>> [round(v, 3) for v in world.nats().tolist()]
        [2.0, 2.0]
    """

    def __init__(
        self,
        families: Sequence[str],
        shared: Sequence[bool],
        seeds: Sequence[int],
        dim: int,
        nats: float,
        device: str = "cpu",
    ):
        self.dim, self.device = dim, device
        runs = itertools.groupby(range(len(families)), key=lambda i: families[i])
        self.spans = [(family, len(list(own))) for family, own in runs]
        fixed = [_fix(seed, dim, nats) for seed in seeds]
        self.x_turns, self.y_turns, one, each = (
            torch.stack(parts).to(device) for parts in zip(*fixed, strict=True)
        )
        self.shared = torch.tensor(shared, device=device)[:, None]
        rho = torch.where(self.shared, one, each)
        if rho.abs().max() > LIMIT:
            raise ValueError(
                f"Expected correlations of at most {LIMIT} at the start but got "
                f"{rho.abs().max().item():.5f} for {nats} nats in {dim} columns; "
                "start from fewer nats, or take more columns."
            )
        self.raw = torch.atanh(rho).requires_grad_()
        self.scale = torch.stack([self._measure(c, *facts) for c, facts in
                                  enumerate(zip(families, seeds, strict=True))])  # fmt: skip

    def __len__(self) -> int:
        """How many cells there are."""
        return len(self.raw)

    def rho(self) -> Float[Tensor, "cells d"]:
        """The correlations."""
        raw = torch.where(self.shared, self.raw[:, :1], self.raw)
        return raw.tanh().clamp(-LIMIT, LIMIT)

    @torch.no_grad()
    def nats(self) -> Float[Tensor, " cells"]:
        """The true mutual information."""
        return -0.5 * torch.log1p(-(self.rho().double() ** 2)).sum(1)

    def sample(self, n: int, draws: Draws, coupled: bool = False) -> Batch:
        """Draw samples.

        Args:
            n: how many, for each cell.
            draws: the random numbers.
            coupled: whether to give product pairs too.
        """
        u, v = draws.normal(2, n, self.dim).unbind(1)
        rho = self.rho()[:, None]
        rest = (1 - rho**2).sqrt() * v
        turned = self.x_turns.mT
        other = (rho * u.roll(1, 1) + rest) @ turned if coupled else None
        return Batch((rho * u + rest) @ turned, self._map(u @ self.y_turns.mT), other)

    def _map(self, y: Tensor) -> Tensor:
        parts = y.split([n for _, n in self.spans])
        mapped = [MAPS[family](part) for (family, _), part in zip(self.spans, parts, strict=True)]
        return torch.cat(mapped) / self.scale

    def _measure(self, cell: int, family: str, seed: int) -> Tensor:
        g = torch.Generator(self.device).manual_seed(ROTATIONS + seed)
        u = torch.randn(MEASURED, self.dim, generator=g, device=self.device)
        y = MAPS[family]((u @ self.y_turns[cell].mT)[None])
        return y.square().mean().sqrt()[None, None]


def _fix(seed: int, dim: int, nats: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Two rotations; equal correlations, and unequal ones of alternating signs."""
    g = torch.Generator().manual_seed(ROTATIONS + seed)
    x, y = (torch.linalg.qr(torch.randn(dim, dim, generator=g))[0] for _ in range(2))
    share = torch.rand(dim, generator=g) + 0.1
    share = share / share.sum()
    signs = torch.where(torch.arange(dim) % 2 == 0, 1.0, -1.0)
    one = (-torch.expm1(torch.full((dim,), -2 * nats / dim))).sqrt()
    return x, y, one, signs * (-torch.expm1(-2 * nats * share)).sqrt()


def _spiral(y: Tensor) -> Tensor:
    """Turn the first two columns by the mean square of the row."""
    angle = y.square().mean(-1)
    a, b, cos, sin = y[..., 0], y[..., 1], angle.cos(), angle.sin()
    turned = torch.stack([cos * a - sin * b, sin * a + cos * b], -1)
    return torch.cat([turned, y[..., 2:]], -1)


MAPS: dict[str, Callable[[Tensor], Tensor]] = {
    "gaussian": lambda y: y,
    "cubic": lambda y: y**3,
    "asinh": torch.asinh,
    "power": lambda y: y.sign() * y.abs() ** 1.5,
    "spiral": _spiral,
}
