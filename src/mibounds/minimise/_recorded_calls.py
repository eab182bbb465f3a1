"""Whole calls of a penalty as CUDA graphs: many small operations at the cost of one launch.

The gradient of the bound with respect to x and y is recorded too. It is known at once, since the
loss that the bound becomes part of only multiplies it by a number.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor

from mibounds.estimators.cuda_graphs import record_cuda_graph
from mibounds.minimise.alternation import Alternation, put_back

if TYPE_CHECKING:
    from jaxtyping import Float, Shaped

MOST = 8  # kinds of batches to record


class RecordedCalls:
    """The recorded calls of a penalty, one for each kind of batch.

    Args:
        alternation: what is recorded.
        graph: whether to record: False for never, True if it is an error where that is impossible.
        plain: whether the penalty has no setting that rules it out, such as a replay.

    Example:
        >>> import mibounds as mb
        >>> len(mb.MIPenalty(mb.CLUB(3, 2)).recorded_calls)
        0
    """

    def __init__(self, alternation: Alternation, graph: bool | None, plain: bool):
        self.alternation, self.graph, self.plain = alternation, graph, plain
        self._seen: set[tuple[object, ...]] = set()
        self._calls: dict[tuple[object, ...], RecordedCall | None] = {}  # None: not possible

    def find(
        self,
        x: Shaped[Tensor, "n *x"],
        y: Shaped[Tensor, "n *y"],
        steps: int,
        group: dist.ProcessGroup | None = None,
        given: Shaped[Tensor, "n *g"] | None = None,
    ) -> RecordedCall | None:
        """The recorded call for a batch; None if this batch has to be called as usual.

        Args:
            x: samples.
            y: samples.
            steps: steps of q.
            group: processes whose batches are joined, which rules a recording out.
            given: a third variable, if there is one.
        """
        optimizer = self.alternation.optimizer
        possible = _on_gpu(x) and self.plain and group is None
        if optimizer is None or not possible or self.graph is False:
            if self.graph:
                raise ValueError(
                    "Expected samples on a GPU, q to fit, and no group, replay, average or "
                    "optimizer of your own with graph=True but got samples on "
                    f"{x.device} and group={group}; leave graph out."
                )
            return None
        sides = (x, y, given)
        kinds = tuple(None if v is None else (v.shape, v.dtype, v.requires_grad) for v in sides)
        rates = tuple(options["lr"] for options in optimizer.param_groups)
        kind = (kinds, steps, torch.is_grad_enabled(), rates)
        if kind in self._seen and kind not in self._calls:
            self._calls[kind] = self._record(x, y, steps, given)
        elif len(self._seen) < MOST:  # otherwise the shapes change all the time
            self._seen.add(kind)  # the first of its kind may be the only one
        return self._calls.get(kind)

    def clear(self) -> None:
        """Forget all of them, since what they were recorded with has moved."""
        self._seen.clear()
        self._calls.clear()

    def _record(
        self, x: Tensor, y: Tensor, steps: int, given: Tensor | None
    ) -> RecordedCall | None:
        call = RecordedCall(self.alternation, x, y, steps, given)
        reason = call.record()
        if reason is None:
            return call
        if self.graph:
            raise ValueError(
                "Expected a call that never waits for the GPU, to record it in a graph, but got "
                f"{type(reason).__name__}: {reason}; leave graph out."
            ) from reason
        return None

    def __len__(self) -> int:
        """How many calls are recorded."""
        return sum(call is not None for call in self._calls.values())

    def __getstate__(self) -> dict[str, Any]:
        """For copies and pickles: graphs cannot be copied."""
        return {**self.__dict__, "_seen": set(), "_calls": {}}


class RecordedCall:
    """One call as a CUDA graph: the fit, the bound, and its gradient with respect to x and y.

    Args:
        alternation: what is recorded; it has been called with a batch like this before.
        x: samples of the kind that it will be called with.
        y: samples of that kind.
        steps: steps of q.
        given: a third variable of that kind, if there is one.
    """

    def __init__(
        self,
        alternation: Alternation,
        x: Shaped[Tensor, "n *x"],
        y: Shaped[Tensor, "n *y"],
        steps: int,
        given: Shaped[Tensor, "n *g"] | None = None,
    ):
        self.alternation, self.steps = alternation, steps
        self.sides = [v.detach().clone() for v in (x, y)]
        self.given = None if given is None else given.detach().clone()
        needed = [torch.is_grad_enabled() and v.requires_grad for v in (x, y)]
        self.gradients = [
            torch.zeros_like(v) if need else None
            for v, need in zip(self.sides, needed, strict=True)
        ]
        self.value = torch.zeros((), dtype=alternation.learnt[0].dtype, device=x.device)
        self.recorded: Callable[[], object] = self._call
        self.statistics = alternation.statistics()

    def record(self) -> RuntimeError | None:
        """Record the call, without making it.

        Returns:
            Why it cannot be recorded, if so.
        """
        alternation = self.alternation
        state = [*alternation.written(), self.value]
        state += [g for g in self.gradients if g is not None]
        generators = [alternation.generator(self.value.device)] if alternation.draws else []
        recorded = record_cuda_graph(self._call, state, generators)
        if isinstance(recorded, RuntimeError):
            return recorded
        self.recorded = recorded
        return None

    def __call__(
        self,
        x: Shaped[Tensor, "n *x"],
        y: Shaped[Tensor, "n *y"],
        given: Shaped[Tensor, "n *g"] | None = None,
    ) -> Float[Tensor, ""]:
        """Fit q to the samples, and give the bound."""
        with torch.no_grad():
            put_back(self.statistics)  # a call that is not recorded may have come between
            for own, new in zip((*self.sides, self.given), (x, y, given), strict=True):
                if own is not None and new is not None:
                    own.copy_(new)
            self.recorded()
        self.alternation.count_recorded(self.steps)
        # Copies: the next call overwrites the tensors of this one.
        gradients = [None if g is None else g.clone() for g in self.gradients]
        return _KnownGradient.apply(x, y, self.value.clone(), *gradients)

    def _call(self) -> None:
        """What is recorded."""
        x, y = sides = [
            v.detach().requires_grad_(g is not None)
            for v, g in zip(self.sides, self.gradients, strict=True)
        ]
        value = self.alternation.recordable(x, y, self.steps, self.given)
        wanted = [v for v in sides if v.requires_grad]
        gradients = torch.autograd.grad(value, wanted) if wanted else ()
        with torch.no_grad():
            self.value.copy_(value)
            own = (g for g in self.gradients if g is not None)
            for mine, new in zip(own, gradients, strict=True):
                mine.copy_(new)


class _KnownGradient(torch.autograd.Function):
    """A value whose gradient with respect to x and y is already known."""

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


def _on_gpu(x: Tensor) -> bool:
    return x.is_cuda
