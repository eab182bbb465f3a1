"""A batch that may be spread over processes: sums, means and gathers with gradients.

Every estimator takes ``group=``, a ``torch.distributed`` process group, and then gives the value of
the *joined* batch on each process. Nothing is exchanged without it, so ``if rank == 0`` around a
call cannot wait for the others for ever. All processes of the group have to make the same calls.

Gradients: what is differentiated is the sum over processes of the value that each of them holds, W
times the same number for W processes. So after the averaging of DistributedDataParallel parameter
gradients are exactly those of one process with the joined batch, while the gradient with respect to
a process's own *inputs* is W times that of the joined batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch import Tensor

if TYPE_CHECKING:
    from jaxtyping import Float, Int, Shaped


class Batch:
    """The samples of one step: those of this process, or those of all processes of a group.

    Args:
        n: number of samples on this process.
        group: process group; None for only this process.
        device: where the exchanged numbers live.
        weights: of the samples of this process, in a mean; None if all count the same.
        sequences: which sequence each sample of this process is a part of, 0, 1, ...; its negatives
            are then those of other sequences. None if each sample is on its own.

    Example:
        >>> batch = Batch(3)
        >>> batch.mean(torch.tensor([1.0, 2.0, 6.0])).item()
        3.0
    """

    def __init__(
        self,
        n: int,
        group: dist.ProcessGroup | None = None,
        device: torch.device | str | None = None,
        weights: Float[Tensor, " n"] | None = None,
        sequences: Int[Tensor, " n"] | None = None,
    ):
        self.group, self.n = group, n
        self.weights, self.sequences = weights, sequences
        if group is None:
            self.sizes, self.rank = [n], 0
        else:
            self.rank = dist.get_rank(group)
            sizes = torch.zeros(dist.get_world_size(group), dtype=torch.int64, device=device)
            sizes[self.rank] = n
            dist.all_reduce(sizes, group=group)
            self.sizes = sizes.tolist()
            if min(self.sizes) < 1:
                raise ValueError(
                    "Expected at least 1 sample on every process of the group "
                    f"but got {self.sizes}; "
                    "drop the last batch where some process has none left (drop_last=True)."
                )
        self.size = sum(self.sizes)
        self.offset = sum(self.sizes[: self.rank])
        if self.size < 2:
            raise ValueError(
                f"Expected at least 2 samples (x_i, y_i) but got {self.size}; "
                "pass larger batches, or drop_last=True to a DataLoader."
            )

    def sum(self, value: Float[Tensor, "*s"]) -> Float[Tensor, "*s"]:
        """Sum over processes."""
        return value if self.group is None else _Sum.apply(value, self.group)

    def mean(self, values: Float[Tensor, "n *s"]) -> Float[Tensor, "*s"]:
        """Mean over all samples, of one value for each sample of this process."""
        if self.weights is not None:
            weights = self.weights.to(values.dtype)
            return self.sum(torch.tensordot(weights, values, 1)) / self.sum(weights.sum())
        if self.group is None:
            return values.mean(0)
        return self.sum(values.sum(0)) / self.size

    @property
    def plain(self) -> bool:
        """Whether all samples count the same, each on its own."""
        return self.weights is None and self.sequences is None

    def all_weights(self, like: Tensor) -> Float[Tensor, " size"]:
        """Weights of all samples."""
        if self.weights is None:
            return like.new_ones(self.size)
        return self.gather(self.weights.to(like.dtype))

    def all_sequences(self, device: torch.device) -> Int[Tensor, " size"]:
        """The sequence of each of all samples, numbered over all processes."""
        if self.sequences is None:
            return torch.arange(self.size, device=device)
        own = self.sequences + self.rank * 2**31
        return torch.unique(self.gather(own), return_inverse=True)[1]

    def others(self, values: Float[Tensor, "size *s"]) -> Float[Tensor, "size *s"]:
        """For each of all samples, the sum of a value over those of other sequences."""
        own = self.all_sequences(values.device)
        sums = values.new_zeros(self.size, *values.shape[1:]).index_add(0, own, values)
        return values.sum(0) - sums[own]

    def average(self, mean: Float[Tensor, "*s"]) -> Float[Tensor, "*s"]:
        """Mean over all samples, of the mean over those of this process."""
        return mean if self.group is None else self.sum(mean * (self.n / self.size))

    def logsumexp(self, value: Float[Tensor, "*s"]) -> Float[Tensor, "*s"]:
        """Logarithm of the sum over processes of exp(value)."""
        if self.group is None:
            return value
        top = value.detach().clone()
        dist.all_reduce(top, dist.ReduceOp.MAX, group=self.group)
        top = torch.where(top.isfinite(), top, 0.0)
        return self.sum((value - top).exp()).log() + top

    def gather(self, values: Shaped[Tensor, "n *s"]) -> Shaped[Tensor, "size *s"]:
        """The values of all samples, in the order of the processes."""
        if self.group is None:
            return values
        return _Gather.apply(values, self.group, self.sizes, self.rank)

    def local(self, values: Shaped[Tensor, "size *s"]) -> Shaped[Tensor, "n *s"]:
        """Of values for all samples, those of this process."""
        return values if self.group is None else values[self.offset : self.offset + self.n]

    def from_first(self, value: Shaped[Tensor, "*s"]) -> Shaped[Tensor, "*s"]:
        """The value of the first process, without a gradient."""
        value = value.detach()
        if self.group is not None:
            value = value.clone().contiguous()
            dist.broadcast(value, group=self.group, group_src=0)
        return value

    def from_all(self, value: Shaped[Tensor, "*s"]) -> Shaped[Tensor, "processes *s"]:
        """The values of all processes, in their order, without a gradient."""
        value = value.detach().contiguous()
        if self.group is None:
            return value[None]
        parts = [torch.empty_like(value) for _ in self.sizes]
        dist.all_gather(parts, value, group=self.group)
        return torch.stack(parts)


class _Sum(torch.autograd.Function):
    """All-reduce; each process's copy of the sum sends its gradient back to every summand."""

    @staticmethod
    def forward(ctx, value: Tensor, group: dist.ProcessGroup) -> Tensor:
        ctx.group = group
        value = value.clone().contiguous()
        dist.all_reduce(value, group=group)
        return value

    @staticmethod
    def backward(ctx, *gradients: Tensor) -> tuple[Tensor, None]:
        gradient = gradients[0].clone().contiguous()
        dist.all_reduce(gradient, group=ctx.group)
        return gradient, None


class _Gather(torch.autograd.Function):
    """All-gather of batches that may differ in size."""

    @staticmethod
    def forward(
        ctx, values: Tensor, group: dist.ProcessGroup, sizes: list[int], rank: int
    ) -> Tensor:
        ctx.group, ctx.sizes, ctx.rank = group, sizes, rank
        padded = values.new_zeros(max(sizes), *values.shape[1:])
        padded[: len(values)] = values
        parts = [torch.empty_like(padded) for _ in sizes]
        dist.all_gather(parts, padded, group=group)
        return torch.cat([part[:n] for part, n in zip(parts, sizes, strict=True)])

    @staticmethod
    def backward(ctx, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        gradient = gradients[0].clone().contiguous()
        dist.all_reduce(gradient, group=ctx.group)
        start = sum(ctx.sizes[: ctx.rank])
        return gradient[start : start + ctx.sizes[ctx.rank]], None, None, None
