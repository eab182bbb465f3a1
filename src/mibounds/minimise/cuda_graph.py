"""A penalty's whole call, recorded: on a GPU its many small operations cost one launch.

The gradient of the bound with respect to x and y is recorded with it, since it can be had at once:
the loss that it will be part of only multiplies it by a number.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from mibounds.estimators import CLUBSample
from mibounds.estimators.cuda_graphs import record


class Replay:
    """A whole call, as a CUDA graph: the fit, the bound, and its gradient with respect to x and y.

    Args:
        penalty: the `MIPenalty` whose call it is; it has been called like this before.
        x: samples of the kind that the calls will be made with.
        y: samples, likewise.
    """

    def __init__(self, penalty: Any, x: Tensor, y: Tensor):
        self.penalty = penalty
        self.sides = [v.detach().clone() for v in (x, y)]
        needs = [torch.is_grad_enabled() and v.requires_grad for v in (x, y)]
        self.gradients = [
            torch.zeros_like(v) if need else None for v, need in zip(self.sides, needs, strict=True)
        ]
        self.value = torch.zeros_like(penalty.values[0])
        self.buffers = dict(penalty.estimators.named_buffers())
        self.replay: Callable[[], None] = self._step

    @classmethod
    def of(cls, penalty: Any, x: Tensor, y: Tensor) -> Replay | None:
        """The recording of a call; None where one is impossible and not required."""
        recording = cls(penalty, x, y)
        optimizer = penalty.optimizer
        assert optimizer is not None
        moments = [v for state in optimizer.state.values() for v in state.values()]
        state = [*penalty._learnt, *recording.buffers.values(), *moments, recording.value]
        state += [g for g in recording.gradients if g is not None]
        sampled = any(isinstance(e, CLUBSample) for e in penalty.estimators)
        generators = [penalty._randomness(x.device)] if sampled else []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a step of a capturable optimiser outside a graph
            try:
                for group in optimizer.param_groups:
                    group["capturable"] = True
                replay = record(recording._step, state, generators)
            finally:
                for group in optimizer.param_groups:
                    group["capturable"] = False
        if isinstance(replay, RuntimeError):
            if penalty.graph:
                raise ValueError(
                    "Expected a call that never waits for the GPU, to record it in a graph, but "
                    f"got {type(replay).__name__}: {replay}; leave graph out."
                ) from replay
            return None
        recording.replay = replay
        return recording

    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        """Fit q on the samples, and give the bound."""
        with torch.no_grad():
            for name, buffer in self.buffers.items():
                now = self._buffer(name)
                if now is not buffer:  # a call that was not recorded came between
                    buffer.copy_(now)
                    self._buffer(name, buffer)
            for mine, given in zip(self.sides, (x, y), strict=True):
                mine.copy_(given)
            self.replay()
        self.penalty._frozen = None
        self.penalty.fits += self.penalty.inner_steps
        # Copies: the next replay writes where these are.
        kept = [None if g is None else g.clone() for g in self.gradients]
        return _Replayed.apply(x, y, self.value.clone(), *kept)

    def _step(self) -> None:
        """What is recorded."""
        penalty = self.penalty
        sides = [
            v.detach().requires_grad_(g is not None)
            for v, g in zip(self.sides, self.gradients, strict=True)
        ]
        x, y = sides
        penalty._learn(x.detach(), y.detach(), penalty.inner_steps, None)
        with torch.enable_grad():
            value = penalty._evaluate(x, y, [{} for _ in penalty.estimators], None)
            wanted = [v for v in sides if v.requires_grad]
            gradients = torch.autograd.grad(value, wanted) if wanted else ()
        with torch.no_grad():
            self.value.copy_(value)
            for mine, new in zip(
                (g for g in self.gradients if g is not None), gradients, strict=True
            ):
                mine.copy_(new)
            for name, buffer in self.buffers.items():  # statistics are replaced: put them back
                buffer.copy_(self._buffer(name))
                self._buffer(name, buffer)

    def _buffer(self, name: str, value: Tensor | None = None) -> Tensor:
        """A buffer of the estimators by its name; with a value, that from now on."""
        owner, _, leaf = name.rpartition(".")
        module = self.penalty.estimators.get_submodule(owner)
        if value is not None:
            setattr(module, leaf, value)
        return getattr(module, leaf)


class _Replayed(torch.autograd.Function):
    """A value whose gradient with respect to x and y is known already."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor, value: Tensor, *gradients: Tensor | None) -> Tensor:
        ctx.save_for_backward(*gradients)
        return value.view_as(value)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        if torch.is_grad_enabled():
            raise RuntimeError(
                "Expected no second derivative of a penalty whose calls are recorded but got a "
                "backward pass with create_graph=True; pass graph=False to MIPenalty."
            )
        parts = [None if known is None else g * known for known in ctx.saved_tensors]
        return *parts, None, None, None


def start_optimizer(optimizer: Optimizer) -> None:
    """Have an optimiser make its state now, as it is before the first step, for a graph to find.

    Example:
        >>> p = torch.nn.Parameter(torch.ones(2))
        >>> adam = torch.optim.Adam([p])
        >>> start_optimizer(adam)
        >>> adam.state[p].get("exp_avg"), adam.state[p].get("step")
        (tensor([0., 0.]), tensor(0.))
        >>> p.tolist()
        [1.0, 1.0]
    """
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    before = [p.detach().clone() for p in parameters]
    for p in parameters:
        p.grad = torch.zeros_like(p)
    optimizer.step()
    with torch.no_grad():
        for p, old in zip(parameters, before, strict=True):
            p.copy_(old)
            p.grad = None
            for value in optimizer.state[p].values():
                if isinstance(value, Tensor):
                    value.zero_()
