"""Methods with a classifier that tells joint from product pairs, whose logit is log p(x|y) / p(x).

The classifier sees x with noise of a random size σ, and log σ. What is lowered is its mean logit at
the joint pairs of a batch, through the pairs and not through the classifier: it is evaluated on a
batch before it is fitted on it. Its gain over chance on batches that it has not seen, and a kernel
statistic, open a gate: without evidence of a dependence, the noise of the classifier does no harm.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from experiments.mi_control.config import MIControlConfig
from experiments.mi_control.draws import Draws
from experiments.mi_control.networks import Learner, Networks
from experiments.mi_control.worlds import Batch
from mibounds.minimise.dependence import keep_scale, kernel_nats
from mibounds.minimise.gates import RATE, Gate

if TYPE_CHECKING:
    from jaxtyping import Float

LEARNING_RATE, DECAY = 1e-3, 0.1  # of the classifiers' AdamW
LEAST_NOISE = 0.01  # standard deviation; the largest is 1
Fresh = Callable[[], Batch]  # draws samples of the simulator as it is now


class Noise(NamedTuple):
    """The spreading of x: a standard normal tensor, and the logarithm of its size per row."""

    normal: Float[Tensor, "cells n d"]
    log_size: Float[Tensor, "cells n 1"]


class Scales:
    """Running means and variances of the columns of a side.

    Args:
        cells: how many.
        dim: columns.
        device: where.
    """

    def __init__(self, cells: int, dim: int, device: str):
        self.count = torch.zeros((), device=device)
        self.mean, self.variance = torch.zeros(2, cells, 1, dim, device=device).unbind(0)

    def add(self, x: Float[Tensor, "cells n d"]) -> None:
        """Count a batch in."""
        self.count += 1
        weight = self.count.reciprocal().clamp_min(RATE)
        variance, mean = torch.var_mean(x, 1, correction=0, keepdim=True)
        change = mean - self.mean
        self.mean += weight * change
        self.variance.lerp_(variance + (1 - weight) * change**2, weight)

    def __call__(self, x: Float[Tensor, "cells n d"]) -> Float[Tensor, "cells n d"]:
        """Standardise by them."""
        return (x - self.mean) / self.variance.sqrt()


class Memory:
    """The last batches of both sides, and random rows of them.

    Args:
        shape: cells, batches, rows of a batch, columns of a side.
        device: where.
    """

    def __init__(self, shape: tuple[int, int, int, int], device: str):
        cells, self.batches, self.n, self.dim = shape
        self.rows = torch.zeros(cells, self.batches, self.n, 2 * self.dim, device=device)
        self.count = torch.zeros(1, dtype=torch.long, device=device)

    def add(self, batch: Batch) -> None:
        """Keep a batch in place of the oldest."""
        both = torch.cat([batch.x, batch.y], 2)
        self.rows.index_copy_(1, self.count % self.batches, both[:, None])
        self.count += 1

    def sample(self, draws: Draws) -> Batch:
        """As many rows as a batch has, with repetition."""
        known = self.count.clamp_max(self.batches) * self.n
        index = torch.minimum((draws.uniform(self.n) * known).long(), known - 1)
        return Batch(*_take(self.rows.flatten(1, 2), index).split(self.dim, 2))


class Ratio:
    """The classifiers of all cells.

    Args:
        seeds: of the cells.
        dim: columns of x and of y.
        config: the settings.
        device: where.
        gated: whether a gate opens by what the classifier knows about new batches.
        coupled: whether product pairs with the noise of the joint pairs are raised, too: their mean
            logit does not depend on ρ, and takes noise away.
    """

    def __init__(
        self,
        seeds: Sequence[int],
        dim: int,
        config: MIControlConfig,
        device: str,
        gated: bool = False,
        coupled: bool = False,
    ):
        cells, self.dim = len(seeds), dim
        self.coupled, self.inner = coupled, config.inner_steps
        self.gate = make_gate(1, cells, config, device) if gated else None
        self.net = Networks(seeds, (dim + 1, dim), config.hidden, 1, zero=True, device=device)
        self.learner = Learner([self.net], LEARNING_RATE, DECAY)
        self.scales = Scales(cells, dim, device), Scales(cells, dim, device)
        self.gain = torch.zeros(cells, device=device)  # of the last batch that was new
        self.memory = Memory((cells, config.memory, config.batch_size, dim), device)

    def step(self, batch: Batch, draws: Draws, fresh: Fresh | None) -> Float[Tensor, " cells"]:
        """The mean logit of the joint pairs, in nats; fits the classifier."""
        seen = batch.detach()
        with torch.no_grad():
            for scale, side in zip(self.scales, seen[:2], strict=True):
                scale.add(side)
        if fresh is not None:
            self._fit(fresh, draws)
        value = self._judge(batch, draws)
        if fresh is None:
            self.memory.add(seen)
            self._fit(lambda: self.memory.sample(draws), draws)
        return value if self.gate is None else self.gate(self.gain[None]) * value

    def _judge(self, batch: Batch, draws: Draws) -> Tensor:
        """The mean logit, and the gain, on a batch that is new to the classifier."""
        net, noise = self.net.frozen(), self._noise(draws)
        of_y = net.part(1, self.scales[1](batch.y))

        def see(x: Tensor) -> Tensor:
            return net.part(0, spread(keep_scale(self.scales[0](x)), noise))

        of_x = see(batch.x)
        own = net.rest(of_x + of_y)[..., 0]
        with torch.no_grad():
            product = net.rest(of_x + of_y.roll(1, 1))[..., 0]
            self.gain.copy_(4 * (2 * math.log(2) - classify(own, product)))
        if not self.coupled:
            return own.mean(1)
        assert batch.other is not None
        return own.mean(1) - net.rest(see(batch.other) + of_y).mean((1, 2))

    def _fit(self, draw: Fresh, draws: Draws) -> None:
        """Take steps. The rows are in random order, so that the next one is any other one."""
        for _ in range(self.inner):
            rows = draw()
            of_x = self.net.part(0, spread(self.scales[0](rows.x), self._noise(draws)))
            of_y = self.net.part(1, self.scales[1](rows.y))
            pairs = torch.cat([of_x + of_y, of_x + of_y.roll(1, 1)], 1)
            self.learner.take_step(classify(*self.net.rest(pairs)[..., 0].chunk(2, 1)))

    def _noise(self, draws: Draws) -> Noise:
        n, least = self.memory.n, math.log(LEAST_NOISE)
        log_size = draws.uniform(n, 1) * least
        return Noise(draws.normal(n, self.dim), log_size)


class Gated:
    """The default: kernel statistic and classifier, behind one gate that both can open.

    Args:
        seeds: of the cells.
        dim: columns of x and of y.
        config: the settings.
        device: where.
    """

    def __init__(self, seeds: Sequence[int], dim: int, config: MIControlConfig, device: str):
        self.ratio = Ratio(seeds, dim, config, device)
        self.gate = make_gate(2, len(seeds), config, device)
        self.weight = config.kernel_weight

    def step(self, batch: Batch, draws: Draws, fresh: Fresh | None) -> Float[Tensor, " cells"]:
        """The weighted sum of both."""
        kernels = kernel_nats(batch.x, batch.y)
        value = self.weight * kernels + self.ratio.step(batch, draws, fresh)
        return self.gate(torch.stack([kernels.detach(), self.ratio.gain])) * value


def make_gate(witnesses: int, cells: int, config: MIControlConfig, device: str) -> Gate:
    """The gate of the library, for cells side by side."""
    options = {name: getattr(config, name) for name in ("opens", "shuts", "half", "fades")}
    return Gate(witnesses, cells, device=device, **options)


def spread(x: Float[Tensor, "cells n d"], noise: Noise) -> Float[Tensor, "cells n e"]:
    """What a classifier sees of x: x with noise, and the size of the noise in [-1, 1]."""
    size = 1 - 2 * noise.log_size / math.log(LEAST_NOISE)
    return torch.cat([x + noise.log_size.exp() * noise.normal, size], 2)


def classify(
    joint: Float[Tensor, "cells n"], product: Float[Tensor, "cells n"]
) -> Float[Tensor, " cells"]:
    """The loss of a classifier: 2 log 2 for one that knows nothing.

    Example:
        >>> classify(torch.zeros(1, 3), torch.zeros(1, 3)).item()
        1.386...
    """
    return (F.softplus(-joint) + F.softplus(product)).mean(1)


def _take(rows: Float[Tensor, "cells m d"], index: Tensor) -> Float[Tensor, "cells n d"]:
    """Rows of each cell."""
    return rows.gather(1, index[:, :, None].expand(-1, -1, rows.shape[2]))
