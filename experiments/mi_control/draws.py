"""Random numbers for cells side by side: all tensors lead with the cells.

On the CPU each cell has a generator of its own, seeded by its seed, so that its numbers do not
depend on the other cells. On a GPU one generator draws for all cells at once: the numbers of a cell
then depend on which others share its program, and their distribution does not.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from jaxtyping import Float, Int

SAMPLES = 2000  # added to the seed of a cell: its network draws from the seed itself


class Draws(ABC):
    """A source of random numbers."""

    @abstractmethod
    def normal(self, *shape: int) -> Float[Tensor, "cells ..."]:
        """Standard normal numbers, for each cell of this shape."""

    @abstractmethod
    def uniform(self, *shape: int) -> Float[Tensor, "cells ..."]:
        """Numbers in [0, 1), for each cell of this shape."""

    def permutation(self, n: int) -> Int[Tensor, "cells n"]:
        """A random order of n rows for each cell."""
        return self.uniform(n).argsort(-1)


class JointDraws(Draws):
    """From torch's global generator, which a CUDA graph can record.

    Args:
        cells: how many.
        device: where.
    """

    def __init__(self, cells: int, device: str):
        self.cells, self.device = cells, device

    def normal(self, *shape: int) -> Float[Tensor, "cells ..."]:
        """For all cells at once."""
        return torch.randn(self.cells, *shape, device=self.device)

    def uniform(self, *shape: int) -> Float[Tensor, "cells ..."]:
        """For all cells at once."""
        return torch.rand(self.cells, *shape, device=self.device)


class CellDraws(Draws):
    """From one generator per cell.

    Args:
        seeds: of the cells.

    Example:
        >>> both, second = CellDraws([3, 4]), CellDraws([4])
        >>> both.normal(2)[1].equal(second.normal(2)[0])
        True
    """

    def __init__(self, seeds: Sequence[int]):
        self.generators = [torch.Generator().manual_seed(SAMPLES + seed) for seed in seeds]

    def normal(self, *shape: int) -> Float[Tensor, "cells ..."]:
        """Cell by cell."""
        return torch.stack([torch.randn(shape, generator=g) for g in self.generators])

    def uniform(self, *shape: int) -> Float[Tensor, "cells ..."]:
        """Cell by cell."""
        return torch.stack([torch.rand(shape, generator=g) for g in self.generators])
