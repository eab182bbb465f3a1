"""A gate that evidence of a dependence opens.

Where nothing is left, the gradient of an estimate is noise, and an optimiser such as Adam, which
divides by the size of recent gradients, turns any noise into steps: it is the noise that brings the
information back. So the gate stays shut without evidence. It has two thresholds, or chance would
open it every few steps: much evidence opens it, and then it stays open until none is left.

It closes slowly, over some hundred calls. Adam divides by the size of the gradients of the last
thousand steps: a gradient that fades faster than Adam forgets makes smaller and smaller steps, and
these come nearer to nothing left than the steps at which the evidence ended.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from jaxtyping import Float

RATE = 0.02  # weight of the newest value in a running mean
OPENS, SHUTS = 5.0, -1.0  # standard errors above zero
HALF = 5.0  # standard errors at which an open gate lets half of a gradient through
FADES = 300.0  # calls in which it closes to 1/e at most
EPS = 1e-6  # nats that are nothing
LEAST = 1e-3  # of a gradient that it still lets through


class Gate:
    """Watches running means of what witnesses find, in nats.

    Args:
        *shape: number of witnesses, and then of whatever runs side by side.
        device: where.
        opens: standard errors above zero at which it opens.
        shuts: standard errors above zero at which it shuts again.
        half: standard errors of evidence at which it lets half of a gradient through.
        fades: calls in which it closes to 1/e at most; 0 to close at once.

    Example:
        >>> gate = Gate(2)
        >>> for nats in (0.5, 0.4, 0.6):
        ...     opened = gate(torch.tensor([nats, 0.0]))
        >>> bool(opened > 0.5)
        True
        >>> for nats in 2500 * [-0.01]:  # as if independent, or less
        ...     opened = gate(torch.tensor([nats, nats]))
        >>> opened.item()
        0.0
    """

    def __init__(
        self,
        *shape: int,
        device: str | torch.device = "cpu",
        opens: float = OPENS,
        shuts: float = SHUTS,
        half: float = HALF,
        fades: float = FADES,
    ):
        self.opens, self.shuts, self.half, self.fades = opens, shuts, half, fades
        self.means, self.variances = torch.zeros(2, *shape, device=device).unbind()
        self.seen = torch.zeros((), device=device)
        self.opened = torch.ones(shape[1:], dtype=torch.bool, device=device)
        self.last = torch.zeros(shape[1:], device=device)

    @torch.no_grad()
    def __call__(self, found: Float[Tensor, "witnesses *c"]) -> Float[Tensor, "*c"]:
        """Take in what the witnesses find in a batch, and say how far the gate is open.

        Args:
            found: nats, in which 0 is what independent samples give on average.
        """
        share = (self.seen + 1).reciprocal().clamp_min(RATE)
        off = found - self.means
        good = off - off == 0  # one bad batch must not open or shut it for ever
        weight, off = torch.where(good, share, 0.0), torch.where(good, off, 0.0)
        self.variances.copy_((1 - weight) * (self.variances + weight * off.square()))
        self.means.add_(weight * off)
        self.seen.add_(1)
        error = (self.variances * share / (2 - share)).sqrt()
        threshold = torch.where(self.opened, self.shuts, self.opens)
        evidence = (self.means - threshold * error).clamp_min(0)
        self.opened.copy_((evidence > EPS).any(0))
        now = (evidence / (evidence + self.half * error + EPS)).amax(0)
        if self.fades:
            now = torch.maximum(now, self.last * math.exp(-1 / self.fades))
        self.last.copy_(torch.where(now < LEAST, 0.0, now))
        return self.last.clone()

    def tensors(self) -> list[Tensor]:
        """All that a call writes."""
        return [self.means, self.variances, self.seen, self.opened, self.last]

    def state(self) -> dict[str, Tensor]:
        """For a checkpoint."""
        names = ("means", "variances", "seen", "opened", "last")
        return dict(zip(names, self.tensors(), strict=True))

    def fits(self, state: object) -> bool:
        """Whether `load_state` can continue from this."""
        if not isinstance(state, dict) or self.state().keys() - state.keys() - {"last"}:
            return False
        known = ((state[name], own) for name, own in self.state().items() if name in state)
        return all(
            isinstance(value, Tensor) and value.shape == own.shape and bool(value.isfinite().all())
            for value, own in known
        )

    def load_state(self, state: dict[str, Any], device: torch.device) -> None:
        """Continue from a `state`, on a device. One from before gates faded has no ``last``."""
        for name, own in self.state().items():
            setattr(self, name, state.get(name, own).to(device, copy=True))

    def move(self, convert: Callable[[Tensor], Tensor]) -> None:
        """Move or convert it."""
        for name, value in self.state().items():
            new = convert(value)
            setattr(self, name, new if value.is_floating_point() else value.to(new.device))
