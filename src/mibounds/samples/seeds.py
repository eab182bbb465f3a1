"""One way to say randomness: whatever draws random numbers takes ``seed``.

An integer stands for a new generator, a `torch.Generator` is drawn from and moves on, and None
stands for torch's global generator. What keeps its seed, to be repeated later (`estimate`,
`MIPenalty`, a task, the command line), takes an integer only.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from numbers import Integral
from typing import Any

import torch
from torch import Tensor
from torch.nn import init
from torch.overrides import TorchFunctionMode

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
    return torch.Generator("cpu").manual_seed(int(seed))


DRAWS: set[Any] = {
    torch.rand, torch.randn, torch.randint, torch.randperm, torch.bernoulli, torch.normal,
    torch.multinomial, Tensor.normal_, Tensor.uniform_, Tensor.random_, Tensor.bernoulli_,
    Tensor.exponential_, init.uniform_, init.normal_, init.kaiming_uniform_,
}  # fmt: skip
MAKES: set[Any] = {torch.empty, torch.zeros, torch.ones, torch.rand, torch.randn, torch.eye}
GUESSES: set[Any] = {torch.tensor, torch.full, torch.linspace}  # by the values that they are given


class _Drawing(TorchFunctionMode):
    """Gives a generator to what draws without one, and single precision to what is made."""

    def __init__(self, generator: torch.Generator):
        self.generator = generator

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        if func in DRAWS and kwargs.get("generator") is None:
            kwargs["generator"] = self.generator
        default = kwargs.get("dtype") is None
        if func in MAKES and default:
            kwargs["dtype"] = torch.float32
        made = func(*args, **kwargs)
        if func in GUESSES and default and made.dtype == torch.get_default_dtype():
            made = made.float()
        return made


@contextmanager
def drawing(seed: int | torch.Generator) -> Iterator[None]:
    """Make modules whose initial values come from a seed, in this thread only.

    They are made on the CPU, in single precision, whatever torch's defaults are. The values are
    those after `torch.manual_seed`, but torch's global generator is left as it is, which other
    threads draw from, too.

    Args:
        seed: an integer, for a new generator; or a generator.

    Example:
        >>> with drawing(0):
        ...     layer = torch.nn.Linear(3, 2)
        >>> with drawing(0):
        ...     bool((torch.nn.Linear(3, 2).weight == layer.weight).all())
        True
    """
    generator = make_generator(seed)
    assert generator is not None
    with torch.device("cpu"), _Drawing(generator):
        yield
