"""One way to say randomness: whatever draws random numbers takes ``seed``.

An integer stands for a new generator, a `torch.Generator` is drawn from and moves on, and None
stands for torch's global generator. What keeps its seed, to be repeated later (`estimate`,
`MIPenalty`, a task, the command line), takes an integer only.
"""

from __future__ import annotations

from numbers import Integral

import torch

Seed = int | torch.Generator | None


def make_generator(seed: Seed) -> torch.Generator | None:
    """The generator that a seed stands for; None for torch's global one.

    Args:
        seed: an integer, for a new generator on the CPU; a generator, for itself; or None.

    Example:
        >>> torch.rand(1, generator=make_generator(0)) == torch.rand(1, generator=make_generator(0))
        tensor([True])
    """
    if seed is None or isinstance(seed, torch.Generator):
        return seed
    if not isinstance(seed, Integral):
        raise ValueError(
            "Expected seed to be an integer, a torch.Generator or None but got "
            f"{type(seed).__name__}; pass seed=0, for example."
        )
    return torch.Generator().manual_seed(int(seed))
