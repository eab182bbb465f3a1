"""Networks that are trained side by side.

A `Stack` with what training a model takes beyond fitting an estimator: a rate of its own for the
estimator in it, and weights averaged over the steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from mibounds.stacks import EPS, Stack

if TYPE_CHECKING:
    from jaxtyping import Float, Int

ESTIMATOR = "estimator."  # parameters of this name have their own rate


class Training(Stack):
    """Models side by side, and all that a step of their training reads or writes.

    Args:
        learners: modules alike, as `Stack` takes them; parameters of a submodule ``estimator`` are
            registered last.
        rates: rate of each step.
        take: from what a step is given to the batches of all learners.
        betas: of Adam.
        average: weight of the old average in each step.
        estimator_rate: rate of the estimator's parameters, in terms of that of the others.
    """

    def __init__(
        self,
        learners: Sequence[nn.Module],
        rates: Sequence[float],
        take: Callable[..., tuple[Tensor, ...]] | None = None,
        betas: tuple[float, float] = (0.9, 0.999),
        average: float = 0.999,
        estimator_rate: float = 1.0,
    ):
        super().__init__(learners, rates, take)
        self.betas, self.average = betas, average
        own = [not name.startswith(ESTIMATOR) for name in self.parameters]
        if own != sorted(own, reverse=True):
            raise ValueError(
                "Expected the estimator to be the last module of a learner but got others after it"
                f"; assign its attribute {ESTIMATOR.rstrip('.')!r} last."
            )
        sizes = [p.numel() for p, mine in zip(self.parameters.values(), own, strict=True) if mine]
        cut = sum(sizes)
        self.parts = [slice(0, cut)] + ([slice(cut, None)] if cut < len(self.vector) else [])
        table = torch.tensor(list(rates), dtype=torch.float32, device=self.vector.device)
        self.tables = [table, estimator_rate * table]
        self.averaged = self.vector.clone()
        self.counts = [torch.zeros((), device=self.vector.device) for _ in self.parts]

    def update(self, gradient: Float[Tensor, " p"]) -> None:
        """Adam, and the average of the weights."""
        for part, table, count in zip(self.parts, self.tables, self.counts, strict=False):
            rate = table.index_select(0, self.number).squeeze(0)
            moments = self.mean[part], self.square[part], count
            take_adam_step([self.vector[part]], [gradient[part]], [moments], rate, self.betas)
        self.averaged.lerp_(self.vector, 1 - self.average)

    def tensors(self) -> dict[str, Tensor]:
        """All that a step writes and the next one reads."""
        counts = {f"count {i}": count for i, count in enumerate(self.counts)}
        return super().tensors() | counts | {"averaged": self.averaged}

    def averages(self, prefix: str) -> dict[str, Tensor]:
        """The averaged parameters of a submodule, of all learners."""
        parts = self.averaged.split([p.numel() for p in self.parameters.values()])
        return {
            name.removeprefix(prefix): part.view_as(p)
            for (name, p), part in zip(self.parameters.items(), parts, strict=True)
            if name.startswith(prefix)
        }


def take_adam_step(
    parameters: list[Tensor],
    gradients: list[Tensor],
    moments: Sequence[tuple[Tensor, Tensor, Tensor]],
    rate: Float[Tensor, ""],
    betas: tuple[float, float],
) -> None:
    """Adam in one sweep over memory, by a rate that a graph can read anew in each replay.

    Args:
        parameters: to change.
        gradients: of each.
        moments: mean, mean square and number of steps of each, changed too.
        rate: of this step.
        betas: how long the moments last.

    Example:
        >>> p, moments = torch.zeros(2), (torch.zeros(2), torch.zeros(2), torch.zeros(()))
        >>> gradient, rate = torch.tensor([3.0, -1.0]), torch.tensor(0.1)
        >>> take_adam_step([p], [gradient], [moments], rate, (0.9, 0.9))
        >>> p
        tensor([-0.1000,  0.1000])
    """
    means, squares, counts = (list(each) for each in zip(*moments, strict=True))
    torch._foreach_add_(counts, 1)  # pyright: ignore[reportPrivateImportUsage]
    torch._fused_adam_(  # pyright: ignore[reportPrivateImportUsage]
        parameters,
        gradients,
        means,
        squares,
        [],
        counts,
        lr=rate,
        beta1=betas[0],
        beta2=betas[1],
        weight_decay=0.0,
        eps=EPS,
        amsgrad=False,
        maximize=False,
    )


def cycle(noise: Float[Tensor, " n"]) -> Int[Tensor, " n"]:
    """Negatives along a random cycle, from numbers in [0, 1): none is the own one.

    Example:
        >>> cycle(torch.tensor([0.7, 0.1, 0.4]))
        tensor([1, 2, 0])
    """
    order = noise.argsort()
    return torch.empty_like(order).scatter(0, order, order.roll(-1))
