"""Networks that are trained side by side.

A `StackedTraining` with what training a model takes beyond fitting an estimator: a rate of its own
for the estimator in it, and weights averaged over the steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from mibounds.estimators.stacked_training import StackedTraining, take_adam_step

if TYPE_CHECKING:
    from jaxtyping import Float, Int

ESTIMATOR = "estimator."  # parameters of this name have their own rate


class Training(StackedTraining):
    """Models side by side, and all that a step of their training reads or writes.

    Args:
        learners: modules alike, as `StackedTraining` takes them; parameters of a submodule
            ``estimator`` are registered last.
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
        super().__init__(learners, rates, take, betas)
        self.average = average
        own = [not name.startswith(ESTIMATOR) for name in self.parameters]
        if own != sorted(own, reverse=True):
            raise ValueError(
                "Expected the estimator to be the last module of a learner but got others after it"
                f"; assign its attribute {ESTIMATOR.rstrip('.')!r} last."
            )
        sizes = [p.numel() for p, mine in zip(self.parameters.values(), own, strict=True) if mine]
        cut = sum(sizes)
        self.parts = [(slice(0, cut), 1.0), (slice(cut, None), estimator_rate)]
        self.averaged = self.vector.clone()

    def update(self, gradient: Float[Tensor, " p"]) -> None:
        """Adam, and the average of the weights."""
        rate, spread = self.rates.index_select(0, self.number).flatten().unbind()
        for part, factor in self.parts:
            state = [each[part] for each in (self.vector, gradient, self.mean, self.square)]
            if len(state[0]):
                take_adam_step(*state, factor * rate, spread, self.betas)
        self.averaged.lerp_(self.vector, 1 - self.average)

    def tensors(self) -> dict[str, Tensor]:
        """All that a step writes and the next one reads."""
        return super().tensors() | {"averaged": self.averaged}

    def averages(self, prefix: str) -> dict[str, Tensor]:
        """The averaged parameters of a submodule, of all learners."""
        return {
            name.removeprefix(prefix): view
            for name, view in self.views(self.averaged).items()
            if name.startswith(prefix)
        }


def cycle(noise: Float[Tensor, " n"]) -> Int[Tensor, " n"]:
    """Negatives along a random cycle, from numbers in [0, 1): none is the own one.

    Example:
        >>> cycle(torch.tensor([0.7, 0.1, 0.4]))
        tensor([1, 2, 0])
    """
    order = noise.argsort()
    return torch.empty_like(order).scatter(0, order, order.roll(-1))
