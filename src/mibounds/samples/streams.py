"""The rows of a data set, piece by piece: from arrays, memory maps, loaders or any iterable.

What is read is checked here, and a message names the first row that is not as it should be.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mibounds.samples.checks import check_finite, check_tensor


class Stream:
    """The data in pieces of equal size, whatever form they have, as tensors.

    Args:
        data: a pair of arrays, or an iterable of such pairs.
        size: rows per piece; the last piece may have fewer.
        dtype: of the floating-point tensors; that of the data if left out.
        device: of the tensors; that of the data if left out.
    """

    def __init__(
        self,
        data: Iterable[Any],
        size: int,
        dtype: torch.dtype | None = None,
        device: torch.device | None = None,
    ):
        self.dtype, self.device = dtype, device
        self.size, self.seen = size, 0
        self.count: int | None = None
        self.shapes: dict[str, tuple[int, ...]] = {}
        for name, value in zip("xy", data if isinstance(data, tuple | list) else (), strict=False):
            if isinstance(value, Tensor):  # before it is asked for its shape
                check_tensor(name, value)
        if isinstance(data, tuple | list) and len(data) == 2 and all(map(_is_array, data)):
            x, y = data
            _check_lengths(len(x), len(y))
            self.count = len(x)
            self.pieces = ((x[i : i + size], y[i : i + size]) for i in range(0, len(x), size))
        elif isinstance(data, Iterable):
            self.pieces = iter(data)
        else:
            raise ValueError(
                "Expected data to be a pair (x, y) of arrays, or an iterable of such pairs, "
                f"but got {type(data).__name__}; pass (x, y), or a DataLoader of such pairs."
            )

    def __iter__(self) -> Iterator[tuple[int, Tensor, Tensor]]:
        """Pieces of x and y, each with the number of its first row."""
        held: list[tuple[Tensor, Tensor]] = []
        start = waiting = 0
        for piece in self.pieces:
            x, y = self._convert(piece)
            while len(x):
                take = min(self.size - waiting, len(x))
                held.append((x[:take], y[:take]))
                waiting += take
                x, y = x[take:], y[take:]
                if waiting == self.size:
                    yield start, *_join(held)
                    start, waiting, held = start + waiting, 0, []
        if held:
            yield start, *_join(held)

    def _convert(self, piece: Any) -> tuple[Tensor, Tensor]:
        if not isinstance(piece, tuple | list) or len(piece) != 2:
            length = f" of length {len(piece)}" if isinstance(piece, tuple | list) else ""
            raise ValueError(
                "Expected data to give batches that are pairs (x, y) "
                f"but got {type(piece).__name__}{length}; "
                "pass (x, y), or a DataLoader of such pairs."
            )
        x, y = (self._tensor(name, value) for name, value in zip("xy", piece, strict=True))
        _check_lengths(len(x), len(y), f" in the batch from row {self.seen}")
        self.seen += len(x)
        return x, y

    def _tensor(self, name: str, value: Any) -> Tensor:
        """One side of a piece, with a memory of its own."""
        if isinstance(value, Tensor):
            check_tensor(name, value)
            # a loader may fill the same memory again before the piece is used
            t = value.detach().clone() if self.count is None else value.detach()
        else:
            array = np.asarray(value)
            if array.dtype.kind not in "biufc":
                raise ValueError(
                    f"Expected {name} to hold numbers but got {array.dtype}; encode it as numbers."
                )
            kind = np.dtype(np.float64) if array.dtype == np.longdouble else array.dtype
            t = torch.from_numpy(np.array(array, dtype=kind.newbyteorder("=")))
            _release(value)
        if t.ndim == 0:
            raise ValueError(
                f"Expected {name} to have one sample per row but got a single number; "
                "pass batches of shape (n,) or (n, d)."
            )
        if self.shapes.setdefault(name, tuple(t.shape[1:])) != tuple(t.shape[1:]):
            raise ValueError(
                f"Expected all rows of {name} to have shape {self.shapes[name]} "
                f"but got {tuple(t.shape[1:])} from row {self.seen} on; "
                "give all batches the same shape."
            )
        if t.is_meta:
            check_finite(name, t)  # which says that there are no values
        if t.is_floating_point():
            t = t.to(self.device, self.dtype)
            bad = ~t.isfinite().flatten(1).all(1) if t.ndim > 1 else ~t.isfinite()
            if bad.any():
                raise ValueError(
                    f"Expected finite {name} but got NaN or infinity, first in row "
                    f"{self.seen + int(bad.nonzero()[0])}, read as {t.dtype}; "
                    "drop or impute such rows."
                )
        return t.to(self.device)


def _is_array(value: object) -> bool:
    plain = hasattr(value, "__array__") and hasattr(value, "__getitem__")  # not so if sparse
    return plain and len(getattr(value, "shape", ())) > 0


def _check_lengths(x: int, y: int, where: str = "") -> None:
    if x != y:
        raise ValueError(
            f"Expected x and y to hold the same number of samples but got {x} and {y}{where}; "
            "pass rows that belong together."
        )


def _join(held: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    if len(held) == 1:
        return held[0]
    return torch.cat([x for x, _ in held]), torch.cat([y for _, y in held])


def _release(array: Any) -> None:
    """Let the pages of a memory map go that have been read, else they all count as resident.

    Not those of a private copy (mode "c"), where it would undo what was written.
    """
    while isinstance(array, np.ndarray) and not isinstance(array, np.memmap):
        array = array.base
    mapped, advice = getattr(array, "_mmap", None), getattr(mmap, "MADV_DONTNEED", None)
    if isinstance(mapped, mmap.mmap) and advice is not None and array.mode in ("r", "r+", "w+"):
        with suppress(OSError, ValueError):  # only a courtesy
            mapped.madvise(advice)
