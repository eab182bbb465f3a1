"""The rows of the last batches, in tensors that stay where they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

Sides = tuple[Tensor | None, ...]


class Memory:
    """The last rows of samples with several sides, such as x, y and a third variable.

    It is written in place and never waits for a GPU, so that a CUDA graph can record its use.

    Args:
        batches: number of batches of the largest size so far that it holds.
        rows: number of rows that it holds, instead of ``batches``.

    Example:
        >>> memory = Memory(rows=3)
        >>> memory.add(torch.arange(2.0), None)
        >>> memory.add(torch.arange(2.0, 4.0), None)
        >>> memory.sides[0].sort().values, memory.all()[1]
        (tensor([1., 2., 3.]), None)
    """

    def __init__(self, batches: int = 1, rows: int = 0):
        self.batches, self.rows = batches, rows
        self.sides: Sides = ()
        self.next, self.filled = torch.zeros(2, dtype=torch.long, device="cpu").unbind()

    @torch.no_grad()
    def add(self, *sides: Tensor | None) -> None:
        """Keep rows, in place of the oldest.

        Args:
            *sides: with equal numbers of rows; None for a side that there is not.
        """
        if not len(_first(sides)):
            return
        size = self.rows or self.batches * len(_first(sides))
        kept = tuple(None if v is None else v.detach()[-size:] for v in sides)
        if not self._has_place(kept, size):
            self._start(kept, size)
        self._write(kept)

    def sample(self, n: int, generator: torch.Generator | None = None) -> Sides:
        """So many rows, each of them drawn from all, with repetition."""
        device = _first(self.sides).device
        drawn = torch.rand(n, dtype=torch.float64, generator=generator, device=device)
        rows = (drawn * self.filled).long()
        return tuple(None if v is None else v[rows] for v in self.sides)

    def all(self) -> Sides:
        """All rows that there are. Waits for a GPU."""
        n = int(self.filled)
        return tuple(None if v is None else v[:n] for v in self.sides)

    def ages(self) -> Tensor:
        """How many rows were added after each row that `all` gives. Waits for a GPU."""
        n = int(self.filled)
        return (self.next - 1 - torch.arange(n, device=self.next.device)) % max(n, 1)

    def tensors(self) -> list[Tensor]:
        """All that `add` writes."""
        return [*(v for v in self.sides if v is not None), self.next, self.filled]

    def state(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {"sides": self.sides, "next": self.next, "filled": self.filled}

    @staticmethod
    def fits(state: object) -> bool:
        """Whether `load_state` can continue from this."""
        if not isinstance(state, dict) or not {"sides", "next", "filled"} <= state.keys():
            return False
        sides, *counts = (state[name] for name in ("sides", "next", "filled"))
        whole = isinstance(sides, tuple | list) and all(isinstance(v, Tensor | None) for v in sides)
        rows = {len(v) for v in sides if v is not None} if whole else ()
        return (
            whole
            and len(rows) == bool(sides)
            and all(isinstance(v, Tensor) and v.ndim == 0 for v in counts)
            and all(0 <= int(v) <= max(rows, default=0) for v in counts)
        )

    def load_state(self, state: dict[str, Any], device: torch.device) -> None:
        """Continue from a `state`, on a device."""
        self.sides = tuple(
            None if v is None else v.detach().to(device, copy=True) for v in state["sides"]
        )
        self.next, self.filled = (state[name].to(device, copy=True) for name in ("next", "filled"))

    def move(self, convert: Callable[[Tensor], Tensor]) -> None:
        """Move or convert all rows; labels keep their dtype."""
        self.sides = tuple(None if v is None else _converted(v, convert) for v in self.sides)
        device = _first(self.sides).device if self.sides else convert(self.next.float()).device
        self.next, self.filled = self.next.to(device), self.filled.to(device)

    def _has_place(self, sides: Sides, size: int) -> bool:
        """Whether rows like these fit into the tensors that there are."""
        if len(sides) != len(self.sides) or size > len(_first(self.sides)):
            return False
        pairs = list(zip(self.sides, sides, strict=True))
        if any((own is None) != (new is None) for own, new in pairs):
            return False
        return all(
            own.shape[1:] == new.shape[1:] and own.device == new.device
            for own, new in pairs
            if own is not None and new is not None
        )

    def _start(self, sides: Sides, size: int) -> None:
        """New tensors, with the old rows if these are of the same kind."""
        old = self.all() if self.sides else ()
        device = _first(sides).device
        self.sides = tuple(None if v is None else v.new_zeros(size, *v.shape[1:]) for v in sides)
        self.next, self.filled = torch.zeros(2, dtype=torch.long, device=device).unbind()
        if old and self._has_place(old, len(_first(old))):
            self._write(old)

    def _write(self, sides: Sides) -> None:
        n, size = len(_first(sides)), len(_first(self.sides))
        where = (self.next + torch.arange(n, device=self.next.device)) % size
        for own, new in zip(self.sides, sides, strict=True):
            if own is not None and new is not None:
                own.index_copy_(0, where, new.to(own.dtype))
        self.next.copy_((self.next + n) % size)
        self.filled.copy_((self.filled + n).clamp_max(size))


def _first(sides: Sides) -> Tensor:
    return next(v for v in sides if v is not None)


def _converted(values: Tensor, convert: Callable[[Tensor], Tensor]) -> Tensor:
    new = convert(values)
    return new if values.is_floating_point() else values.to(new.device)
