"""Estimators side by side: every tensor of their states stacked, one step for all of them.

Most of a step of a small network is the calling of operations, which a stack shares:
``torch.func.vmap`` runs ``learning_loss`` once for all. They stay independent: the sum of their
losses has for each one's parameters the gradient of its own loss, and Adam works element by
element, so that one Adam over the stack is as many Adams.

On a GPU even the shared calls cost more than the work, so the whole step is recorded in a CUDA
graph and replayed. Everything that changes from step to step therefore lives in tensors that stay
where they are, the number of the step among them.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.distributions import Distribution
from torch.func import functional_call, vmap

from mibounds.estimators import Estimator
from mibounds.recordings import record

if TYPE_CHECKING:
    from jaxtyping import Float, Int

BETAS, EPS = (0.9, 0.999), 1e-8  # torch's Adam, as `fit` has it
BLOCK = 100  # steps between two looks at the loss


class Stack:
    """Estimators side by side, and all that a step of their fit reads or writes.

    Args:
        estimators: what to fit, alike.
        x: samples, with a leading dimension of all estimators where each has its own.
        y: samples, likewise.
        own: whether each estimator has its own x, and its own y.
        steps: number of steps, for the rates.
        lr: rate at the start.
        first: number of the first of these estimators among all.
    """

    def __init__(
        self,
        estimators: Sequence[Estimator],
        x: Tensor,
        y: Tensor,
        own: tuple[bool, bool],
        steps: int,
        lr: float,
        first: int = 0,
    ):
        self.x, self.y, self.own, self.first = x, y, own, first
        self.learners = learners = [_Learner(estimator) for estimator in estimators]
        named = [dict(learner.named_parameters()) for learner in learners]
        stacked = {k: torch.stack([each[k].detach() for each in named]) for k in named[0]}
        learnt = [k for k, p in named[0].items() if p.requires_grad]
        # Views of one vector, so that Adam needs a few calls in all and not a few for each of them.
        self.vector = torch.cat([stacked[k].flatten() for k in learnt])
        parts = self.vector.split([stacked[k].numel() for k in learnt])
        self.parameters = {
            k: part.view_as(stacked[k]).detach().requires_grad_()
            for k, part in zip(learnt, parts, strict=True)
        }
        named = [dict(learner.named_buffers()) for learner in learners]
        self.buffers = {k: torch.stack([each[k].detach() for each in named]) for k in named[0]}
        frozen = {k: p for k, p in stacked.items() if k not in self.parameters}
        self.state = self.parameters, frozen, self.buffers
        self.mean, self.square = torch.zeros_like(self.vector), torch.zeros_like(self.vector)
        self.losses = self.vector.new_zeros(BLOCK, len(learners))
        device = self.vector.device
        wide = torch.promote_types(self.vector.dtype, torch.float32)
        self.rates = torch.tensor(_adam_rates(steps, lr), dtype=wide, device=device)
        self.rows = torch.arange(first, first + len(learners), device=device)[:, None]
        self.number = torch.zeros(1, dtype=torch.int64, device=device)
        self.index = torch.zeros(0, dtype=torch.int64, device=device)

    def fit(
        self, blocks: Iterator[Int[Tensor, "block m b"]], graph: bool | None
    ) -> Float[Tensor, "m k"]:
        """Take a step for each batch, and give every estimator what it has learnt.

        Args:
            blocks: the batches as numbers of samples, `BLOCK` steps at a time.
            graph: whether to record the step; None for wherever that is possible.

        Returns:
            The losses every 10 steps.
        """
        history = [torch.empty(len(self.learners), 0, dtype=self.losses.dtype)]
        step: Callable[[], object] | None = None
        try:
            with _no_validation():
                for number, block in enumerate(blocks):
                    if step is None:
                        self.index = block.to(self.vector.device, copy=True)
                        step = self.step if graph is False else self.record(required=graph is True)
                    self.index[: len(block)].copy_(block)
                    for _ in range(len(block)):
                        step()
                    losses = self.losses[: len(block) : 10].T.to("cpu", copy=True)
                    _check_losses(losses, self.first, number * BLOCK)
                    history.append(losses)
        finally:
            self.write_back()
        return torch.cat(history, 1)

    def step(self) -> None:
        """One step of all estimators. Nothing in it depends on a value that the CPU has to see."""
        now = self.number % BLOCK
        i = self.index.index_select(0, now).squeeze(0)
        x, y = (self._take(v, own, i) for v, own in zip((self.x, self.y), self.own, strict=True))
        learn = functools.partial(functional_call, self.learners[0])
        losses, buffers = vmap(learn, randomness="different")(self.state, (x, y))
        gradients = torch.autograd.grad(
            losses.sum(), list(self.parameters.values()), allow_unused=True, materialize_grads=True
        )
        with torch.no_grad():
            gradient = torch.cat([g.flatten() for g in gradients])
            # Of no dimension, so that a wider dtype does not spread.
            rate, spread = self.rates.index_select(0, self.number).flatten().unbind()
            self.mean.lerp_(gradient, 1 - BETAS[0])
            self.square.mul_(BETAS[1]).addcmul_(gradient, gradient, value=1 - BETAS[1])
            scale = self.square.sqrt().div_(spread).add_(EPS)
            self.vector.sub_(torch.div(self.mean, scale, out=scale).mul_(rate))
            for name, buffer in self.buffers.items():  # where they are, for the graph
                buffer.copy_(buffers[name])
            self.losses.index_copy_(0, now, losses.detach().to(self.losses.dtype)[None])
            self.number.add_(1)

    def record(self, required: bool) -> Callable[[], object]:
        """Record the step as a CUDA graph.

        Args:
            required: whether it is an error if that is impossible.

        Returns:
            The replay of the graph; off the GPU, and where it is impossible, the plain step.
        """
        if self.vector.device.type != "cuda":
            return self.step
        state = [self.vector, self.mean, self.square, self.losses, self.number]
        replay = record(self.step, [*state, *self.buffers.values()])
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
        """Give every estimator its parameters and buffers."""
        for j, learner in enumerate(self.learners):
            for name, parameter in learner.named_parameters():
                if name in self.parameters:
                    parameter.copy_(self.parameters[name][j])
            for name, buffer in list(learner.named_buffers()):
                new = self.buffers[name][j]
                if not torch.equal(new, buffer):  # replaced, as in learning_loss
                    owner, _, leaf = name.rpartition(".")
                    setattr(learner.get_submodule(owner), leaf, new.clone())

    def _take(self, value: Tensor, own: bool, i: Tensor) -> Tensor:
        """The samples i of each estimator, (m, b, ...)."""
        if own:
            return value[self.rows, i]
        return value.index_select(0, i.flatten()).unflatten(0, i.shape)


class _Learner(nn.Module):
    """An estimator whose forward is a step of learning: the loss, and the buffers afterwards.

    Statistics are *replaced* in ``learning_loss``, and `functional_call` puts back what was there
    before; so they have to leave as results.
    """

    def __init__(self, estimator: Estimator):
        super().__init__()
        self.estimator = estimator

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        loss = self.estimator.learning_loss(x, y)
        return loss, dict(self.named_buffers())


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


def _adam_rates(steps: int, lr: float) -> list[tuple[float, float]]:
    """Factor of the first moment and divisor of the root of the second, in each step of Adam.

    The rate follows a cosine down to zero; both correct for moments that start at zero.
    """
    return [
        (
            lr * (1 + math.cos(math.pi * t / steps)) / 2 / (1 - BETAS[0] ** (t + 1)),
            math.sqrt(1 - BETAS[1] ** (t + 1)),
        )
        for t in range(steps)
    ]


@contextmanager
def _no_validation() -> Iterator[None]:
    """Without torch's checks of distributions, which look at values: vmap cannot."""
    before = Distribution._validate_args
    Distribution.set_default_validate_args(False)
    try:
        yield
    finally:
        Distribution.set_default_validate_args(before)


def _check_losses(losses: Float[Tensor, "m k"], first: int, step: int) -> None:
    """Refuse losses that are not finite, those every 10 steps from a step on."""
    bad = (~losses.isfinite()).nonzero().tolist()
    if bad:
        j, k = min(bad, key=lambda where: where[1])
        raise FloatingPointError(
            f"Estimator {first + j}: Expected a finite learning loss but got "
            f"{losses[j, k].item()} in step {step + 10 * k}; "
            "lower lr, or look for extreme values in x and y."
        )
