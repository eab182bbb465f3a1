"""What conditionals and critics share: a multilayer perceptron and a standardiser."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from mibounds.samples.batches import Batch
from mibounds.samples.checks import check_size

if TYPE_CHECKING:
    from jaxtyping import Bool, Float

Hidden = int | Sequence[int]


class MLP(nn.Module):
    """A perceptron; without inputs, a vector of parameters.

    So a conditional without x, which is a marginal, is an ordinary conditional.

    Args:
        in_dim: inputs; 0 for a learnt constant.
        hidden: units of the hidden layer, or of each of several; () for a linear map.
        out_dim: outputs.
        unit: of the hidden layers.

    Example:
        >>> MLP(3, 16, 2)(torch.zeros(5, 3)).shape
        torch.Size([5, 2])
        >>> MLP(0, 16, 2)(torch.zeros(5, 0)).shape
        torch.Size([5, 2])
    """

    def __init__(self, in_dim: int, hidden: Hidden, out_dim: int, unit: type[nn.Module] = nn.ReLU):
        super().__init__()
        check_size("out_dim", out_dim)
        if in_dim == 0:
            self.constant = nn.Parameter(torch.zeros(out_dim))
            self.layers = None
            return
        widths = [in_dim, *hidden_widths(hidden), out_dim]
        layers = []
        for a, b in pairwise(widths):
            layers += [nn.Linear(a, b), unit()]
        self.layers = nn.Sequential(*layers[:-1])

    @property
    def offset(self) -> Float[Tensor, " out_dim"]:
        """The parameter that shifts the output, for an initial value."""
        if self.layers is None:
            return self.constant
        last = self.layers[-1]
        assert isinstance(last, nn.Linear)
        return last.bias

    def forward(self, x: Float[Tensor, "*n in_dim"]) -> Float[Tensor, "*n out_dim"]:
        """Map each row of x; the result has the dtype of x, under autocast too."""
        if self.layers is None:
            return self.constant.expand(*x.shape[:-1], -1)
        return self.layers(x).to(x.dtype)


def use_units_that_live(module: nn.Module) -> None:
    """Put SiLU units in the place of ReLU in all perceptrons of a module.

    While what they see moves, ReLU units can end up at zero for every sample, for good.

    Example:
        >>> net = MLP(3, 16, 2)
        >>> use_units_that_live(net)
        >>> net.layers[1]
        SiLU()
    """
    for part in module.modules():
        if isinstance(part, MLP) and part.layers is not None:
            for i, layer in enumerate(part.layers):
                if isinstance(layer, nn.ReLU):
                    part.layers[i] = nn.SiLU()


class Standardiser(nn.Module):
    """Shift and scale each column to mean 0 and variance 1, from running statistics.

    The units of x and y then do not matter to the networks. At first the statistics average all
    batches; after ``1 / momentum`` of them they follow slow changes of the data. They are
    *replaced* on every observation, never altered in place, so that a graph built earlier can still
    go backwards. A constant column is shifted but not scaled.

    Args:
        dim: number of columns.
        momentum: weight of a new batch in the long run.

    Example:
        >>> s = Standardiser(1)
        >>> s.observe(torch.tensor([[1e12], [3e12]]))
        >>> round(s(torch.tensor([[5e12]])).item(), 3)
        3.0
    """

    mean: Tensor
    variance: Tensor
    batches: Tensor

    def __init__(self, dim: int, momentum: float = 0.01):
        super().__init__()
        self.momentum = momentum
        self.register_buffer("mean", torch.zeros(dim))
        self.register_buffer("variance", torch.ones(dim))
        self.register_buffer("batches", torch.zeros(dim))

    @property
    def scale(self) -> Float[Tensor, " dim"]:
        """Standard deviation of each column, 1 where it is constant."""
        return (self.variance + (self.variance == 0)).sqrt()

    @property
    def varies(self) -> Bool[Tensor, " dim"]:
        """Which columns are not constant."""
        return self.variance > 0

    def observe(self, x: Float[Tensor, "n dim"], batch: Batch | None = None) -> None:
        """Update the statistics."""
        observe([(self, x)], batch)

    def forward(self, x: Float[Tensor, "*n dim"]) -> Float[Tensor, "*n dim"]:
        """Standardise x."""
        return (x - self.mean) / self.scale


@torch.no_grad()
def observe(sides: Sequence[tuple[Standardiser, Tensor]], batch: Batch | None = None) -> None:
    """Update the statistics of several sides at once: few operations on a GPU.

    Args:
        sides: standardisers of one momentum, each with its samples.
        batch: where the samples are, if they are spread over processes.
    """
    sides = [(s, x) for s, x in sides if x.shape[1]]  # a marginal has no x
    if not sides:
        return
    batch = batch or Batch(len(sides[0][1]))
    if batch.group is None:
        moments = [_moments(x) for _, x in sides]
        variance, mean = (torch.cat(part) for part in zip(*moments, strict=True))
    else:
        mean, variance = _joined_moments([x for _, x in sides], batch)
    owners = [s for s, _ in sides]
    old_mean = torch.cat([s.mean for s in owners])
    old_variance = torch.cat([s.variance for s in owners])
    batches = torch.cat([s.batches for s in owners])
    delta = mean - old_mean
    weight = (batches + 1).reciprocal().clamp_min(owners[0].momentum)
    mean = torch.addcmul(old_mean, weight, delta)
    # The spread between batches counts too, unless earlier ones have no weight.
    variance = torch.addcmul(variance, 1 - weight, delta.square())
    variance = torch.lerp(old_variance, variance, weight)
    both = mean + variance
    finite = both - both == 0  # one bad batch must not spoil the module
    mean = torch.where(finite, mean, old_mean)
    variance = torch.where(finite, variance, old_variance)
    sizes = [len(s.mean) for s in owners]
    parts = zip(*(v.split(sizes) for v in (mean, variance, batches + finite)), strict=True)
    for owner, part in zip(owners, parts, strict=True):
        owner.mean, owner.variance, owner.batches = part


def _moments(x: Tensor) -> tuple[Tensor, Tensor]:
    """Variance and mean of each column; of a constant one exactly 0 and the constant."""
    if x.is_cuda:
        return torch.var_mean(x, 0, correction=0)
    first = x[0]  # on a CPU torch.var_mean over rows takes longer than all of this
    rest = x - first
    shift = rest.mean(0)
    return (rest - shift).square().mean(0), first + shift


def _joined_moments(sides: Sequence[Tensor], batch: Batch) -> tuple[Tensor, Tensor]:
    """Mean and variance of all columns over all processes, in one exchange.

    Each process sends its first row and the moments of the distances to it, which keep their digits
    at a large offset; the variance of a constant column is exactly 0.
    """
    first = torch.cat([x[0] for x in sides])
    moments = [torch.var_mean(x - x[0], 0, correction=0) for x in sides]
    variance, shift = (torch.cat(part) for part in zip(*moments, strict=True))
    firsts, shifts, variances = batch.from_all(torch.stack([first, shift, variance])).unbind(1)
    weight = (shifts.new_tensor(batch.sizes) / batch.size)[:, None]
    shifts = shifts + (firsts - firsts[0])
    shift = (weight * shifts).sum(0)
    return firsts[0] + shift, (weight * (variances + (shifts - shift).square())).sum(0)


def hidden_widths(hidden: Hidden) -> tuple[int, ...]:
    """Widths of the hidden layers, from one number or several.

    Example:
        >>> hidden_widths(64), hidden_widths([64, 32])
        ((64,), (64, 32))
    """
    widths = tuple(hidden) if isinstance(hidden, Iterable) else (hidden,)
    for width in widths:
        check_size("hidden", width)
    return widths
