"""Full precision where autocast would take digits away, and torch's own settings for a function."""

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

    A fit changes weights, of which autocast keeps casts from before: these are forgotten.

    Example:
        >>> add = in_full_precision(lambda: torch.ones(2, 2) @ torch.ones(2, 2))
        >>> with torch.autocast("cpu", dtype=torch.bfloat16):
        ...     add().dtype
        torch.float32
    """

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            with torch.autocast("cpu", enabled=False), torch.autocast("cuda", enabled=False):
                return function(*args, **kwargs)
        finally:
            torch.clear_autocast_cache()

    return call


def undisturbed(function: Callable[P, R]) -> Callable[P, R]:
    """A function that runs the same wherever it is called, as far as torch's settings go.

    It runs without autocast and inference mode, as it may fit models, and what it makes is on the
    CPU unless it says otherwise, whatever the default device is.

    Example:
        >>> make = undisturbed(lambda: torch.ones(2))
        >>> with torch.inference_mode(), torch.device("meta"):
        ...     made = make()
        >>> made.device.type, made.is_inference()
        ('cpu', False)
    """

    @functools.wraps(function)
    @in_full_precision
    @torch.inference_mode(False)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        if torch.get_default_device().type == "cpu":  # which is faster without the context
            return function(*args, **kwargs)
        with torch.device("cpu"):
            return function(*args, **kwargs)

    return call


def find_device(device: str | torch.device | None) -> torch.device:
    """The device, on which a number was put and read again."""
    try:
        where = torch.device(device or "cpu")
        torch.ones(1, device=where).item()
    except (RuntimeError, AssertionError, NotImplementedError, TypeError) as error:
        reason = str(error).strip().partition("\n")[0].rstrip(".")
        raise ValueError(
            f"Expected a device that is there but got {str(device)!r} ({reason}); leave device out "
            "for the CPU."
        ) from error
    return where
