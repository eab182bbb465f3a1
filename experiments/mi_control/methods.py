"""The methods: what each lowers or raises, and how it fits its network.

All have ``step(batch, draws, fresh)``: nats of each cell, whose gradient goes to the batch's x. It
fits the network too, on samples that ``fresh`` draws or, if that is None, on what it has seen.

CLUB and its sampled form have q(x | y), a diagonal Gaussian. InfoNCE has a separable critic and all
pairs of a batch. NWJ, Jensen-Shannon and Donsker-Varadhan have a critic of the concatenated pair;
all pairs would be too many for hundreds of cells, so that their product pairs are a batch and eight
random shifts of it.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from experiments.mi_control.config import MIControlConfig, base_of
from experiments.mi_control.draws import Draws
from experiments.mi_control.networks import Learner, Networks
from experiments.mi_control.ratios import Fresh, Gated, Ratio
from experiments.mi_control.worlds import Batch
from mibounds.minimise.dependence import kernel_nats

if TYPE_CHECKING:
    from jaxtyping import Float

CLUB_RATE, PUBLISHED_RATE = 3e-4, 1e-3  # learning rates; CLUB's of most users' code
LOG_VARIANCE_LIMIT = 15.0
FEATURES = 128  # that the two sides of a separable critic give
SHIFTS = 8  # product pairs per sample
LIMIT = 40.0  # logarithm from which on an exponential grows no more


class Method(Protocol):
    """A method on cells side by side."""

    def step(self, batch: Batch, draws: Draws, fresh: Fresh | None) -> Float[Tensor, " cells"]:
        """What to lower or raise, in nats; its gradient goes to x. Fits what there is to fit."""
        ...


class Kernel:
    """The kernel statistic alone, which has nothing to fit."""

    def step(self, batch: Batch, draws: Draws, fresh: Fresh | None) -> Float[Tensor, " cells"]:
        """The statistic."""
        return kernel_nats(batch.x, batch.y)


class Bound(ABC):
    """A bound whose network is fitted to the batch, or to fresh samples, and then evaluated.

    Args:
        nets: the networks.
        rate: learning rate.
        config: the settings.
    """

    def __init__(self, nets: Sequence[Networks], rate: float, config: MIControlConfig):
        self.nets, self.inner = list(nets), config.inner_steps
        self.learner = Learner(self.nets, rate)

    def step(self, batch: Batch, draws: Draws, fresh: Fresh | None) -> Float[Tensor, " cells"]:
        """Fit, then evaluate."""
        seen = batch.detach()
        for _ in range(self.inner):
            self.learner.take_step(self.loss(self.nets, fresh() if fresh else seen, draws))
        return self.value([net.frozen() for net in self.nets], batch, draws)

    @abstractmethod
    def value(self, nets: Sequence[Networks], batch: Batch, draws: Draws) -> Tensor:
        """The bound."""

    def loss(self, nets: Sequence[Networks], batch: Batch, draws: Draws) -> Tensor:
        """What the networks are fitted by: the bound is raised, unless a class says otherwise."""
        return -self.value(nets, batch, draws)


class Club(Bound):
    """CLUB with all pairs, by the means of x and x², or with one product pair per sample.

    Args:
        seeds: of the cells.
        dim: columns of x and of y.
        config: the settings.
        device: where.
        rate: learning rate.
        sampled: whether to draw one product pair per sample.
    """

    def __init__(
        self,
        seeds: Sequence[int],
        dim: int,
        config: MIControlConfig,
        device: str,
        rate: float,
        sampled: bool = False,
    ):
        net = Networks(seeds, (dim,), config.hidden, 2 * dim, device=device)
        super().__init__([net], rate, config)
        self.sampled = sampled

    def value(self, nets: Sequence[Networks], batch: Batch, draws: Draws) -> Tensor:
        """The bound, over the pairs of different samples."""
        mean, log_variance = _condition(nets[0], batch.y)
        if self.sampled:
            order = draws.permutation(batch.x.shape[1])[:, :, None].expand_as(batch.x)
            return _of_pairs(batch.x, batch.x.gather(1, order), mean, log_variance)
        return club(batch.x, mean, log_variance)

    def loss(self, nets: Sequence[Networks], batch: Batch, draws: Draws) -> Tensor:
        """The negative log-likelihood."""
        mean, log_variance = _condition(nets[0], batch.y)
        square = (batch.x - mean) ** 2
        return 0.5 * (log_variance + square * (-log_variance).exp()).sum(2).mean(1)


def _condition(net: Networks, y: Tensor) -> tuple[Tensor, Tensor]:
    mean, log_variance = net(y).chunk(2, 2)
    return mean, LOG_VARIANCE_LIMIT * (log_variance / LOG_VARIANCE_LIMIT).tanh()


def _of_pairs(x: Tensor, other: Tensor, mean: Tensor, log_variance: Tensor) -> Tensor:
    """The mean log-likelihood of x less that of others."""
    more = (other - mean) ** 2 - (x - mean) ** 2
    return 0.5 * (more * (-log_variance).exp()).sum(2).mean(1)


def club(
    x: Float[Tensor, "cells n d"],
    mean: Float[Tensor, "cells n d"],
    log_variance: Float[Tensor, "cells n d"],
) -> Float[Tensor, " cells"]:
    """CLUB over all pairs of different samples, for diagonal Gaussians q(x | y).

    Args:
        x: samples.
        mean: of q, for each y.
        log_variance: of q.

    Example:
        >>> x = torch.tensor([[[1.0], [-1.0]]])
        >>> club(x, x, torch.zeros(1, 2, 1)).item()  # ((1 - -1)² - 0) / 2
        2.0
    """
    n = x.shape[1]
    centre, square = x.mean(1, keepdim=True), x.square().mean(1, keepdim=True)
    others = square - 2 * centre * mean + mean**2  # the mean of (x_j - mean_i)² over all j
    more = (others - (x - mean) ** 2) * (-log_variance).exp()
    return 0.5 * n / (n - 1) * more.sum(2).mean(1)


class InfoNCE(Bound):
    """InfoNCE with a separable critic: a product of features of x and features of y.

    Args:
        seeds: of the cells.
        dim: columns of x and of y.
        config: the settings.
        device: where.
    """

    def __init__(self, seeds: Sequence[int], dim: int, config: MIControlConfig, device: str):
        of_x = Networks(seeds, (dim,), config.hidden, FEATURES, device=device)
        apart = [seed + 1_000_000 for seed in seeds]  # the two sides start with other weights
        of_y = Networks(apart, (dim,), config.hidden, FEATURES, device=device)
        super().__init__([of_x, of_y], PUBLISHED_RATE, config)

    def value(self, nets: Sequence[Networks], batch: Batch, draws: Draws) -> Tensor:
        """The bound, at most the logarithm of the batch."""
        scores = nets[0](batch.x) @ nets[1](batch.y).mT
        own = scores.diagonal(dim1=1, dim2=2)
        return (own - scores.logsumexp(2)).mean(1) + math.log(scores.shape[2])


class Concatenated(Bound):
    """A bound with a critic of the concatenated pair, on a batch and shifts of it.

    Args:
        kind: "nwj", "js" or "dv".
        seeds: of the cells.
        dim: columns of x and of y.
        config: the settings.
        device: where.
    """

    def __init__(
        self, kind: str, seeds: Sequence[int], dim: int, config: MIControlConfig, device: str
    ):
        net = Networks(seeds, (dim, dim), config.hidden, 1, device=device)
        super().__init__([net], PUBLISHED_RATE, config)
        self.kind = kind

    def value(self, nets: Sequence[Networks], batch: Batch, draws: Draws) -> Tensor:
        """The bound; for "js" that of twice the Jensen-Shannon divergence."""
        (net,), n = nets, batch.x.shape[1]
        a, b = net.part(0, batch.x), net.part(1, batch.y)
        shifts = 1 + (draws.uniform(SHIFTS, 1) * (n - 1)).long().clamp_max(n - 2)
        rows = (torch.arange(n, device=b.device) + shifts).remainder(n).flatten(1)
        others = b.gather(1, rows[:, :, None].expand(-1, -1, b.shape[2])).unflatten(1, (SHIFTS, n))
        pairs = torch.cat([b[:, None], others], 1) + a[:, None]
        scores = net.rest(pairs.flatten(1, 2))[..., 0]
        return bound(self.kind, scores[:, :n], scores[:, n:])


def bound(
    kind: str, joint: Float[Tensor, "cells n"], product: Float[Tensor, "cells m"]
) -> Float[Tensor, " cells"]:
    """NWJ, Jensen-Shannon or Donsker-Varadhan, from scores.

    Args:
        kind: "nwj", "js" or "dv".
        joint: scores of joint pairs.
        product: scores of product pairs.

    Example:
        >>> one, zero = torch.ones(1, 4), torch.zeros(1, 8)
        >>> bound("nwj", one, zero + 1).item(), bound("dv", one, zero).item()
        (0.0, 1.0)
        >>> bound("js", zero, zero).item()
        0.0
    """
    if kind == "js":
        gain = -F.softplus(-joint).mean(1) - F.softplus(product).mean(1)
        return gain + 2 * math.log(2)
    log_mean = product.logsumexp(1) - math.log(product.shape[1])
    if kind == "dv":
        return joint.mean(1) - log_mean
    return joint.mean(1) - (log_mean - 1).clamp_max(LIMIT).exp()


def make_method(
    name: str, goal: str, seeds: Sequence[int], dim: int, config: MIControlConfig, device: str
) -> Method:
    """A method for cells side by side.

    Args:
        name: with or without the suffix of those on fresh samples.
        goal: "minimise" or "maximise"; upwards, the default is its classifier without the gate.
        seeds: of the cells.
        dim: columns of x and of y.
        config: the settings.
        device: where.

    Example:
        >>> config = MIControlConfig(hidden=4)
        >>> type(make_method("js-fresh", "minimise", [0], 3, config, "cpu")).__name__
        'Concatenated'
    """
    base = base_of(name)
    sizes = seeds, dim, config, device
    match base:
        case "default":
            return Gated(*sizes) if goal == "minimise" else Ratio(*sizes)
        case "ratio" | "ratio-ungated" | "ratio-coupled":
            gated = base == "ratio" and goal == "minimise"
            return Ratio(*sizes, gated=gated, coupled=base == "ratio-coupled")
        case "kernel":
            return Kernel()
        case "club" | "club_sample":
            rate = CLUB_RATE if name == base else PUBLISHED_RATE
            return Club(*sizes, rate=rate, sampled=base == "club_sample")
        case "infonce":
            return InfoNCE(*sizes)
        case _:
            return Concatenated(base, *sizes)
