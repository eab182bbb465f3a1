"""Train many small learners side by side: their tensors stacked, one step for all of them.

Most of a step of a small network is overhead of calling operations. Stacked learners share it:
``torch.func.vmap`` runs their forward once for all. They stay independent: for each one's
parameters the sum of the losses has the gradient of its own loss, and Adam works element by
element, so that one Adam over the stack equals an Adam for each.

On a GPU even the shared calls cost more than the work, so the whole step is recorded as a CUDA
graph. Everything that changes from step to step therefore lives in tensors that stay where they
are, including the number of the step.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.distributions import Distribution
from torch.func import functional_call, vmap

from mibounds.estimators.cuda_graphs import record_cuda_graph

if TYPE_CHECKING:
    from jaxtyping import Float, Int, Shaped

BETAS, EPS = (0.9, 0.999), 1e-8  # defaults of torch's Adam, which `fit` uses
BLOCK = 100  # steps between two checks of the loss


class StackedTraining:
    """Learners side by side, and all that a step of their training reads or writes.

    Args:
        learners: modules of one architecture. Their forward takes a batch and returns the loss, a
            number to monitor, and the buffers: ``learning_loss`` *replaces* statistics, and
            `functional_call` restores the old ones, so the new ones have to be returned.
        rates: learning rate of each step.
        gather: from the inputs of a step to the batches of all learners, each (m, ...); if left
            out, the inputs are the batches.
        betas: of Adam.

    Attributes:
        number: of the step, from the start.
        number_in_block: of the step, in its block.
    """

    def __init__(
        self,
        learners: Sequence[nn.Module],
        rates: Iterable[float],
        gather: Callable[..., tuple[Tensor, ...]] | None = None,
        betas: tuple[float, float] = BETAS,
    ):
        self.learners, self.gather, self.betas = list(learners), gather, betas
        named = [dict(learner.named_parameters()) for learner in learners]
        stacked = {k: torch.stack([each[k].detach() for each in named]) for k in named[0]}
        learnt = [k for k, p in named[0].items() if p.requires_grad]
        # Views of one vector, so that Adam needs a few calls in all, not a few per parameter.
        self.vector = torch.cat([_transpose_matrices(stacked[k]).flatten() for k in learnt])
        self.shapes = {k: _transpose_matrices(stacked[k]).shape for k in learnt}  # in the vector
        self.parameters = {
            k: view.detach().requires_grad_() for k, view in self.views(self.vector).items()
        }
        named = [dict(learner.named_buffers()) for learner in learners]
        self.buffers = {k: torch.stack([each[k].detach() for each in named]) for k in named[0]}
        frozen = {k: p for k, p in stacked.items() if k not in self.parameters}
        self.state = self.parameters, frozen, self.buffers
        self.mean, self.square = torch.zeros_like(self.vector), torch.zeros_like(self.vector)
        self.monitored = self.vector.new_zeros(BLOCK, len(learners))
        device = self.vector.device
        wide = torch.promote_types(self.vector.dtype, torch.float32)
        self.rates = torch.tensor(_adam_rates(rates, betas), dtype=wide, device=device)
        self.number = torch.zeros(1, dtype=torch.int64, device=device)
        self.number_in_block = self.number.clone()
        self.inputs: tuple[Tensor, ...] = ()
        self.recorded: Callable[[], object] | None = None

    def fit(
        self,
        blocks: Iterable[tuple[Shaped[Tensor, "block ..."], ...]],
        graph: bool | None,
        on_block: Callable[[Float[Tensor, "m block"]], None],
    ) -> None:
        """Take steps, and give every learner what it has learnt.

        Args:
            blocks: inputs of the steps, at most `BLOCK` of them at a time, and in no block more
                than in the first.
            graph: whether to record the step; None for wherever that is possible.
            on_block: called after each block with the monitored number of each step, on the CPU.
        """
        try:
            for block in blocks:
                on_block(self.take_steps(block, graph).T.to("cpu", copy=True))
        finally:
            self.write_back()

    def take_steps(
        self, block: tuple[Shaped[Tensor, "block ..."], ...], graph: bool | None
    ) -> Float[Tensor, "block m"]:
        """Take the steps of one block; on a GPU, queue them.

        Args:
            block: inputs of the steps, no more of them than in the first block.
            graph: whether to record the step; counts in the first block.

        Returns:
            The monitored number of each step, in memory that the next block overwrites.
        """
        with _no_validation():
            self.number_in_block.zero_()
            if self.recorded is None:
                device = self.vector.device
                self.inputs = tuple(each.to(device, copy=True) for each in block)
                self.recorded = self.step if graph is False else self.record(graph is True)
            count = len(block[0])
            for own, each in zip(self.inputs, block, strict=True):
                own[:count].copy_(each)
            for _ in range(count):
                self.recorded()
        return self.monitored[:count]

    @torch.enable_grad()
    def step(self) -> None:
        """One step of all learners. Nothing in it depends on a value that the CPU has to read."""
        batch = tuple(v.index_select(0, self.number_in_block).squeeze(0) for v in self.inputs)
        if self.gather is not None:
            batch = self.gather(*batch)
        learn = functools.partial(functional_call, self.learners[0])
        losses, monitored, buffers = vmap(learn, randomness="different")(self.state, batch)
        gradients = torch.autograd.grad(
            losses.sum(), list(self.parameters.values()), allow_unused=True, materialize_grads=True
        )
        with torch.no_grad():
            self.update(torch.cat([_transpose_matrices(g).flatten() for g in gradients]))
            for name, buffer in self.buffers.items():  # in place, for the graph
                buffer.copy_(buffers[name])
            monitored = monitored.detach().to(self.monitored.dtype)
            self.monitored.index_copy_(0, self.number_in_block, monitored[None])
            self.number.add_(1)
            self.number_in_block.add_(1)

    def update(self, gradient: Float[Tensor, " p"]) -> None:
        """Adam, for all learners at once."""
        # Zero-dimensional, so that their wider dtype does not spread to the results.
        rate, correction = self.rates.index_select(0, self.number).flatten().unbind()
        state = self.vector, gradient, self.mean, self.square
        take_adam_step(*state, rate, correction, self.betas)

    def views(self, vector: Float[Tensor, " p"]) -> dict[str, Tensor]:
        """The parts of a vector in the shapes of the stacked parameters."""
        parts = vector.split([shape.numel() for shape in self.shapes.values()])
        return {
            name: _transpose_matrices(part.view(shape))
            for (name, shape), part in zip(self.shapes.items(), parts, strict=True)
        }

    def tensors(self) -> dict[str, Tensor]:
        """All that a step writes and the next one reads."""
        own = ("vector", "mean", "square", "monitored", "number", "number_in_block")
        buffers = {f"buffer {name}": buffer for name, buffer in self.buffers.items()}
        return {name: getattr(self, name) for name in own} | buffers

    def record(self, required: bool) -> Callable[[], object]:
        """Record the step as a CUDA graph.

        Args:
            required: whether it is an error if that is impossible.

        Returns:
            The recorded step; on a CPU, and where recording is impossible, the plain one.
        """
        if self.vector.device.type != "cuda":
            return self.step
        recorded = record_cuda_graph(self.step, list(self.tensors().values()))
        if isinstance(recorded, RuntimeError):
            if required:
                raise ValueError(
                    "Expected a step that never waits for the GPU, to record it in a graph, "
                    f"but got {type(recorded).__name__}: {recorded}; pass graph=False."
                ) from recorded
            return self.step
        return recorded

    @torch.no_grad()
    def write_back(self) -> None:
        """Give every learner its parameters and buffers."""
        for j, learner in enumerate(self.learners):
            for name, parameter in learner.named_parameters():
                if name in self.parameters:
                    parameter.copy_(self.parameters[name][j])
            for name, buffer in list(learner.named_buffers()):
                new = self.buffers[name][j]
                if not torch.equal(new, buffer):  # replace it, as learning_loss does
                    owner, _, leaf = name.rpartition(".")
                    setattr(learner.get_submodule(owner), leaf, new.clone())


def draw_batches(
    n: int,
    batch_size: int,
    steps: int,
    generators: Sequence[torch.Generator | None],
    device: torch.device,
) -> Iterator[Int[Tensor, "block m b"]]:
    """The batches that `fit` would draw for each estimator, `BLOCK` steps at a time."""

    def draw(count: int, generator: torch.Generator | None) -> Tensor:
        where = generator.device if generator is not None else device
        if where.type == "cpu":  # draws number by number: one call gives the same as many
            return torch.randint(n, (count, batch_size), generator=generator).to(device)
        each = [
            torch.randint(n, (batch_size,), generator=generator, device=where) for _ in range(count)
        ]
        return torch.stack(each).to(device)

    if len(set(map(id, generators))) == len(generators):
        for start in range(0, steps, BLOCK):
            count = min(BLOCK, steps - start)
            yield torch.stack([draw(count, g) for g in generators], 1)
    elif steps:  # from a common generator each takes all its batches before the next one
        yield from torch.stack([draw(steps, g) for g in generators], 1).split(BLOCK)


def cosine(steps: int, lr: float) -> Iterator[float]:
    """Learning rates that fall to zero along a cosine."""
    return (lr * (1 + math.cos(math.pi * t / steps)) / 2 for t in range(steps))


def take_adam_step(
    vector: Float[Tensor, " p"],
    gradient: Float[Tensor, " p"],
    mean: Float[Tensor, " p"],
    square: Float[Tensor, " p"],
    rate: Float[Tensor, ""],
    correction: Float[Tensor, ""],
    betas: tuple[float, float],
) -> None:
    """Adam on a vector, with numbers that a CUDA graph reads anew in each run.

    Args:
        vector: of parameters, changed in place.
        gradient: of the loss.
        mean: first moment, changed in place.
        square: second moment, changed in place.
        rate: factor of the first moment.
        correction: divisor of the root of the second moment.
        betas: weights of the past in the moments.
    """
    mean.lerp_(gradient, 1 - betas[0])
    square.mul_(betas[1]).addcmul_(gradient, gradient, value=1 - betas[1])
    scale = square.sqrt().div_(correction).add_(EPS)
    vector.sub_(torch.div(mean, scale, out=scale).mul_(rate))


def _adam_rates(rates: Iterable[float], betas: tuple[float, float]) -> list[tuple[float, float]]:
    """Factor of the first moment and divisor of the root of the second, for each step of Adam.

    Both correct for moments that start at zero.
    """
    return [
        (rate / (1 - betas[0] ** (t + 1)), math.sqrt(1 - betas[1] ** (t + 1)))
        for t, rate in enumerate(rates)
    ]


def _transpose_matrices(stacked: Tensor) -> Tensor:
    """Each matrix of a stack transposed: matrix products leave gradients in that layout."""
    return stacked.mT if stacked.ndim == 3 else stacked


@contextmanager
def _no_validation() -> Iterator[None]:
    """Switch off torch's checks of distributions: they read values, which vmap cannot."""
    before = Distribution._validate_args
    Distribution.set_default_validate_args(False)
    try:
        yield
    finally:
        Distribution.set_default_validate_args(before)
