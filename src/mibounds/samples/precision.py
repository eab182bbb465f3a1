"""Full precision where autocast would take digits away."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import torch
from torch import Tensor

P = ParamSpec("P")
R = TypeVar("R")


def full_precision(x: Tensor) -> torch.autocast:
    """A context in which autocast is off: for densities, whose terms are large and cancel."""
    return torch.autocast(x.device.type, enabled=False)


def in_full_precision(function: Callable[P, R]) -> Callable[P, R]:
    """A function that runs without autocast, wherever it is called.

    A fit changes weights, of which autocast keeps casts from before.

    Example:
        >>> add = in_full_precision(lambda: torch.ones(2, 2) @ torch.ones(2, 2))
        >>> with torch.autocast("cpu", dtype=torch.bfloat16):
        ...     add().dtype
        torch.float32
    """

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        with torch.autocast("cpu", enabled=False), torch.autocast("cuda", enabled=False):
            return function(*args, **kwargs)

    return call
