"""Networks side by side: each weight leads with the cells, and products are batched."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional as F

if TYPE_CHECKING:
    from jaxtyping import Float

CLIP = 10.0  # norm of the gradient of a cell's network


class Networks:
    """One network for each cell: two hidden layers, SiLU.

    The first layer takes several inputs, so that pairs that share one of them share its product.

    Args:
        seeds: of the cells.
        inputs: columns of each input.
        hidden: units of each hidden layer.
        outputs: columns of the output.
        zero: whether the outputs start at zero.
        device: where.

    Example:
        >>> net = Networks([0, 1], (3, 2), 8, 1, zero=True)
        >>> net(torch.ones(2, 5, 3), torch.ones(2, 5, 2)).shape
        torch.Size([2, 5, 1])
    """

    def __init__(
        self,
        seeds: Sequence[int],
        inputs: Sequence[int],
        hidden: int,
        outputs: int,
        zero: bool = False,
        device: str = "cpu",
    ):
        drawn = [_draw(seed, inputs, hidden, outputs) for seed in seeds]
        self.parameters = [torch.stack(each).to(device) for each in zip(*drawn, strict=True)]
        for p in self.parameters[-2:] if zero else ():
            p.zero_()
        for p in self.parameters:
            p.requires_grad_()

    def frozen(self) -> Networks:
        """Copies through whose weights no gradient goes; they stay when these are fitted."""
        other = object.__new__(Networks)
        other.parameters = [p.detach().clone() for p in self.parameters]
        return other

    def part(self, i: int, x: Float[Tensor, "cells n d"]) -> Float[Tensor, "cells n h"]:
        """What an input gives to the first layer; the first of them with the bias."""
        return torch.baddbmm(self.parameters[-5], x, self.parameters[0]) if i == 0 else (
            torch.bmm(x, self.parameters[i]))  # fmt: skip

    def rest(self, first: Float[Tensor, "cells n h"]) -> Float[Tensor, "cells n k"]:
        """The output, from the sum of the parts."""
        w2, b2, w3, b3 = self.parameters[-4:]
        second = torch.baddbmm(b2, F.silu(first), w2)
        return torch.baddbmm(b3, F.silu(second), w3)

    def __call__(self, *inputs: Float[Tensor, "cells n d"]) -> Float[Tensor, "cells n k"]:
        """The output."""
        first = self.part(0, inputs[0])
        for i, x in enumerate(inputs[1:], 1):
            first = first + self.part(i, x)
        return self.rest(first)


def _draw(seed: int, inputs: Sequence[int], hidden: int, outputs: int) -> list[Tensor]:
    """Weights (in, out) and biases (1, out) in the distribution of `nn.Linear`."""
    g = torch.Generator().manual_seed(seed)
    ends = (1 / math.sqrt(sum(inputs)), 1 / math.sqrt(hidden), 1 / math.sqrt(hidden))
    shapes = [
        *(((n, hidden), ends[0]) for n in (*inputs, 1)),
        *(((n, hidden), ends[1]) for n in (hidden, 1)),
        *(((n, outputs), ends[2]) for n in (hidden, 1)),
    ]
    return [(2 * torch.rand(shape, generator=g) - 1) * end for shape, end in shapes]


class Learner:
    """Adam, or AdamW, on networks side by side. Clips the gradient of each cell's by itself.

    Args:
        networks: what to fit.
        rate: learning rate.
        decay: of the weights.
    """

    def __init__(self, networks: Sequence[Networks], rate: float, decay: float = 0.0):
        self.parameters = [p for net in networks for p in net.parameters]
        on_gpu = self.parameters[0].is_cuda
        self.optimizer = torch.optim.AdamW(
            self.parameters, lr=rate, weight_decay=decay, fused=on_gpu, capturable=on_gpu
        )

    def take_step(self, loss: Float[Tensor, " cells"]) -> None:
        """Lower the loss of each cell."""
        gradients = torch.autograd.grad(loss.sum(), self.parameters)
        norms = torch.stack([torch.linalg.vector_norm(g, dim=(1, 2)) for g in gradients])
        factor = (CLIP / (torch.linalg.vector_norm(norms, dim=0) + 1e-6)).clamp_max(1.0)
        for p, g in zip(self.parameters, gradients, strict=True):
            p.grad = g * factor[:, None, None]
        with quiet_steps():
            self.optimizer.step()


@contextmanager
def quiet_steps() -> Iterator[None]:
    """Without torch's warning that the first steps of an optimiser are not recorded."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*capturable.*")
        yield
