"""Networks that are trained side by side: averaged weights, and states to go on from.

A `Stack` with what training a model takes beyond fitting an estimator: a rate of its own for the
estimator in it, weights averaged over the steps, and a file from which an interrupted training goes
on as if nothing had happened. The file is a plain archive of arrays: to read it executes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from mibounds.files import replacing
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
            raise ValueError("Expected the estimator to be the last module of a learner.")
        sizes = [p.numel() for p, mine in zip(self.parameters.values(), own, strict=True) if mine]
        cut = sum(sizes)
        self.parts = [slice(0, cut)] + ([slice(cut, None)] if cut < len(self.vector) else [])
        table = torch.tensor(list(rates), dtype=torch.float32, device=self.vector.device)
        self.tables = [table, estimator_rate * table]
        self.averaged = self.vector.clone()
        self.counts = [torch.zeros((), device=self.vector.device) for _ in self.parts]

    def update(self, gradient: Float[Tensor, " p"]) -> None:
        """Adam in one sweep over memory, and the average of the weights."""
        for part, table, count in zip(self.parts, self.tables, self.counts, strict=False):
            count.add_(1)
            torch._fused_adam_(  # pyright: ignore[reportPrivateImportUsage]
                [self.vector[part]],
                [gradient[part]],
                [self.mean[part]],
                [self.square[part]],
                [],
                [count],
                lr=table.index_select(0, self.number).squeeze(0),
                beta1=self.betas[0],
                beta2=self.betas[1],
                weight_decay=0.0,
                eps=EPS,
                amsgrad=False,
                maximize=False,
            )
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

    def save(self, path: Path, **more: np.ndarray) -> None:
        """Write the state, whole or not at all.

        Args:
            path: of the file.
            more: arrays to keep beside it.
        """
        arrays = {name: tensor.cpu().numpy() for name, tensor in self.tensors().items()}
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as temporary, temporary.open("wb") as file:
            arrays |= {f"more {name}": value for name, value in more.items()}
            np.savez(file, allow_pickle=False, **arrays)

    @torch.no_grad()
    def load(self, path: Path) -> dict[str, np.ndarray]:
        """Go on from a state.

        Returns:
            The arrays that were kept beside it.
        """
        with np.load(path, allow_pickle=False) as arrays:
            for name, tensor in self.tensors().items():
                tensor.copy_(torch.from_numpy(arrays[name]))
            more = [name for name in arrays.files if name.startswith("more ")]
            return {name.removeprefix("more "): arrays[name] for name in more}


def cycle(noise: Float[Tensor, " n"]) -> Int[Tensor, " n"]:
    """Negatives along a random cycle, from numbers in [0, 1): none is the own one.

    Example:
        >>> cycle(torch.tensor([0.7, 0.1, 0.4]))
        tensor([1, 2, 0])
    """
    order = noise.argsort()
    return torch.empty_like(order).scatter(0, order, order.roll(-1))
