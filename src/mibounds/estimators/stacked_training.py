"""Learners side by side: every tensor of their states stacked, one step for all of them.

Most of a step of a small network is the calling of operations, which a stack shares:
``torch.func.vmap`` runs their forward once for all. They stay independent: the sum of their
losses has for each one's parameters the gradient of its own loss, and Adam works element by
element, so that one Adam over the stack is as many Adams.

On a GPU even the shared calls cost more than the work, so the whole step is recorded in a CUDA
graph and replayed. Everything that changes from step to step therefore lives in tensors that stay
where they are, the number of the step among them.
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

BETAS, EPS = (0.9, 0.999), 1e-8  # torch's Adam, as `fit` has it
BLOCK = 100  # steps between two looks at the loss


class Stack:
    """Learners side by side, and all that a step of their fit reads or writes.

    Args:
        learners: modules alike. Their forward takes a batch and gives the loss, a number to look
            at, and the buffers afterwards: statistics are *replaced* in ``learning_loss``, and
            `functional_call` puts back what was there before, so they have to leave as results.
        rates: rate of each step.
        take: from what a step is given to the batches of all learners, each (m, ...); if left out,
            it is given the batches themselves.
        betas: of Adam.
    """

    def __init__(
        self,
        learners: Sequence[nn.Module],
        rates: Iterable[float],
        take: Callable[..., tuple[Tensor, ...]] | None = None,
        betas: tuple[float, float] = BETAS,
    ):
        self.learners, self.take, self.betas = list(learners), take, betas
        named = [dict(learner.named_parameters()) for learner in learners]
        stacked = {k: torch.stack([each[k].detach() for each in named]) for k in named[0]}
        learnt = [k for k, p in named[0].items() if p.requires_grad]
        # Views of one vector, so that Adam needs a few calls in all and not a few for each of them.
        self.vector = torch.cat([_turn(stacked[k]).flatten() for k in learnt])
        self.shapes = {k: _turn(stacked[k]).shape for k in learnt}  # as they lie in it
        self.parameters = {
            k: view.detach().requires_grad_() for k, view in self.views(self.vector).items()
        }
        named = [dict(learner.named_buffers()) for learner in learners]
        self.buffers = {k: torch.stack([each[k].detach() for each in named]) for k in named[0]}
        frozen = {k: p for k, p in stacked.items() if k not in self.parameters}
        self.state = self.parameters, frozen, self.buffers
        self.mean, self.square = torch.zeros_like(self.vector), torch.zeros_like(self.vector)
        self.shown = self.vector.new_zeros(BLOCK, len(learners))
        device = self.vector.device
        wide = torch.promote_types(self.vector.dtype, torch.float32)
        self.rates = torch.tensor(_adam_rates(rates, betas), dtype=wide, device=device)
        self.number = torch.zeros(1, dtype=torch.int64, device=device)  # of the step, of all
        self.place = self.number.clone()  # of the step, in its block
        self.given: tuple[Tensor, ...] = ()
        self.replay: Callable[[], object] | None = None

    def fit(
        self,
        blocks: Iterable[tuple[Shaped[Tensor, "block ..."], ...]],
        graph: bool | None,
        look: Callable[[Float[Tensor, "m block"]], None],
    ) -> None:
        """Take steps, and give every learner what it has learnt.

        Args:
            blocks: what the steps are given, at most `BLOCK` of them at a time, and in no block
                more than in the first.
            graph: whether to record the step; None for wherever that is possible.
            look: called after each block with the number to look at of each step, on the CPU.
        """
        try:
            for block in blocks:
                look(self.take_steps(block, graph).T.to("cpu", copy=True))
        finally:
            self.write_back()

    def take_steps(
        self, block: tuple[Shaped[Tensor, "block ..."], ...], graph: bool | None
    ) -> Float[Tensor, "block m"]:
        """Take the steps of one block; on a GPU, order them to be taken.

        Args:
            block: what the steps are given, no more of them than in the first block.
            graph: whether to record the step, in the first block.

        Returns:
            The number to look at of each step, in memory that the next block overwrites.
        """
        with _no_validation():
            self.place.zero_()
            if self.replay is None:
                device = self.vector.device
                self.given = tuple(each.to(device, copy=True) for each in block)
                self.replay = self.step if graph is False else self.record(required=graph is True)
            count = len(block[0])
            for mine, each in zip(self.given, block, strict=True):
                mine[:count].copy_(each)
            for _ in range(count):
                self.replay()
        return self.shown[:count]

    @torch.enable_grad()
    def step(self) -> None:
        """One step of all learners. Nothing in it depends on a value that the CPU has to see."""
        given = tuple(each.index_select(0, self.place).squeeze(0) for each in self.given)
        batch = given if self.take is None else self.take(*given)
        learn = functools.partial(functional_call, self.learners[0])
        losses, shown, buffers = vmap(learn, randomness="different")(self.state, batch)
        gradients = torch.autograd.grad(
            losses.sum(), list(self.parameters.values()), allow_unused=True, materialize_grads=True
        )
        with torch.no_grad():
            self.update(torch.cat([_turn(g).flatten() for g in gradients]))
            for name, buffer in self.buffers.items():  # where they are, for the graph
                buffer.copy_(buffers[name])
            self.shown.index_copy_(0, self.place, shown.detach().to(self.shown.dtype)[None])
            self.number.add_(1)
            self.place.add_(1)

    def update(self, gradient: Float[Tensor, " p"]) -> None:
        """Adam, for all learners at once."""
        # Of no dimension, so that a wider dtype does not spread.
        rate, spread = self.rates.index_select(0, self.number).flatten().unbind()
        state = self.vector, gradient, self.mean, self.square
        take_adam_step(*state, rate, spread, self.betas)

    def views(self, vector: Float[Tensor, " p"]) -> dict[str, Tensor]:
        """The parts of a vector in the shapes of the stacked parameters."""
        parts = vector.split([shape.numel() for shape in self.shapes.values()])
        return {
            name: _turn(part.view(shape))
            for (name, shape), part in zip(self.shapes.items(), parts, strict=True)
        }

    def tensors(self) -> dict[str, Tensor]:
        """All that a step writes and the next one reads."""
        own = ("vector", "mean", "square", "shown", "number", "place")
        buffers = {f"buffer {name}": buffer for name, buffer in self.buffers.items()}
        return {name: getattr(self, name) for name in own} | buffers

    def record(self, required: bool) -> Callable[[], object]:
        """Record the step as a CUDA graph.

        Args:
            required: whether it is an error if that is impossible.

        Returns:
            The replay of the graph; off the GPU, and where it is impossible, the plain step.
        """
        if self.vector.device.type != "cuda":
            return self.step
        replay = record_cuda_graph(self.step, list(self.tensors().values()))
        if isinstance(replay, RuntimeError):
            if required:
                raise ValueError(
                    "Expected a step that never waits for the GPU, to record it in a graph, "
                    f"but got {type(replay).__name__}: {replay}; pass graph=False."
                ) from replay
            return self.step
        return replay

    @torch.no_grad()
    def write_back(self) -> None:
        """Give every learner its parameters and buffers."""
        for j, learner in enumerate(self.learners):
            for name, parameter in learner.named_parameters():
                if name in self.parameters:
                    parameter.copy_(self.parameters[name][j])
            for name, buffer in list(learner.named_buffers()):
                new = self.buffers[name][j]
                if not torch.equal(new, buffer):  # replaced, as in learning_loss
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
        if where.type == "cpu":  # draws one number after the other: one call or many are the same
            return torch.randint(n, (count, batch_size), generator=generator).to(device)
        each = [
            torch.randint(n, (batch_size,), generator=generator, device=where) for _ in range(count)
        ]
        return torch.stack(each).to(device)

    if len(set(map(id, generators))) == len(generators):
        for start in range(0, steps, BLOCK):
            count = min(BLOCK, steps - start)
            yield torch.stack([draw(count, g) for g in generators], 1)
    elif steps:  # from a common source each takes all its batches before the next one
        yield from torch.stack([draw(steps, g) for g in generators], 1).split(BLOCK)


def cosine(steps: int, lr: float) -> Iterator[float]:
    """Rates that fall to zero along a cosine."""
    return (lr * (1 + math.cos(math.pi * t / steps)) / 2 for t in range(steps))


def take_adam_step(
    vector: Float[Tensor, " p"],
    gradient: Float[Tensor, " p"],
    mean: Float[Tensor, " p"],
    square: Float[Tensor, " p"],
    rate: Float[Tensor, ""],
    spread: Float[Tensor, ""],
    betas: tuple[float, float],
) -> None:
    """Adam on a vector, by numbers that a graph can read anew in each replay.

    Args:
        vector: of parameters, to change.
        gradient: of the loss.
        mean: first moment, changed too.
        square: second moment, changed too.
        rate: factor of the first moment.
        spread: divisor of the root of the second.
        betas: how long the moments last.
    """
    mean.lerp_(gradient, 1 - betas[0])
    square.mul_(betas[1]).addcmul_(gradient, gradient, value=1 - betas[1])
    scale = square.sqrt().div_(spread).add_(EPS)
    vector.sub_(torch.div(mean, scale, out=scale).mul_(rate))


def _adam_rates(rates: Iterable[float], betas: tuple[float, float]) -> list[tuple[float, float]]:
    """Factor of the first moment and divisor of the root of the second, in each step of Adam.

    Both correct for moments that start at zero.
    """
    return [
        (rate / (1 - betas[0] ** (t + 1)), math.sqrt(1 - betas[1] ** (t + 1)))
        for t, rate in enumerate(rates)
    ]


def _turn(stacked: Tensor) -> Tensor:
    """Matrices transposed, which is how a product leaves their gradients in memory."""
    return stacked.mT if stacked.ndim == 3 else stacked


@contextmanager
def _no_validation() -> Iterator[None]:
    """Without torch's checks of distributions, which look at values: vmap cannot."""
    before = Distribution._validate_args
    Distribution.set_default_validate_args(False)
    try:
        yield
    finally:
        Distribution.set_default_validate_args(before)
