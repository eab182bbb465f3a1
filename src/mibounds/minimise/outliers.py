"""Single values far out, which would decide the scale of all others.

In a batch with one value a million times as large as the rest, the rest looks constant: to columns
that are standardised, to kernels, and for many batches to running statistics. So such a value is
moved to where the rest ends, and has no gradient. All that is nearer stays as it is, heavy tails
and rare values too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch._C._functorch import is_functorch_wrapped_tensor

if TYPE_CHECKING:
    from jaxtyping import Bool, Shaped

FAR = 1000.0  # root mean squares of the rest, from which on a value is far out
SHARE = 50  # one row of so many may be far out, and one at least
FEWEST = 8  # rows from which on there is a rest


def draw_in(values: Shaped[Tensor, "n *s"]) -> Shaped[Tensor, "n *s"]:
    """The samples, with values far out moved as far out as the rest of their column goes.

    Args:
        values: samples; NaN and infinity stay, and so do labels.

    Returns:
        On a CPU the very same tensor where nothing is far out.

    Example:
        >>> x = torch.linspace(-1, 1, 9)[:, None]
        >>> x[-1] = 1e20
        >>> draw_in(x).max().item()
        1.0
    """
    if not values.is_floating_point() or len(values) < FEWEST:
        return values
    if is_functorch_wrapped_tensor(values):  # such as under vmap, where no value can be read
        return values
    plain = values.detach()
    if plain.is_cpu and not _may_be_far(plain):
        return values
    far, end = _far_out(plain)
    if plain.is_cpu and not far.any():
        return values
    return torch.where(far, end, values)


def is_far_out(values: Shaped[Tensor, "n *s"]) -> bool:
    """Whether values lie far out. Waits for a GPU.

    Example:
        >>> x = torch.linspace(-1, 1, 9)
        >>> is_far_out(x), is_far_out(torch.cat([x, torch.tensor([1e6])]))
        (False, True)
    """
    if not values.is_floating_point() or len(values) < FEWEST:
        return False
    return bool(_far_out(values.detach())[0].any())


def _rows(n: int) -> int:
    """How many of n rows may be far out."""
    return max(1, n // SHARE)


def _may_be_far(values: Tensor) -> bool:
    """Whether the largest value makes up most of the variance of its column: a cheap look."""
    off = values.double()
    square = (off - off.mean(0)).square_()
    return bool((2 * _rows(len(values)) * square.amax(0) > square.sum(0)).any())


def _far_out(values: Tensor) -> tuple[Bool[Tensor, "n *s"], Shaped[Tensor, "n *s"]]:
    """Which values lie far out, and where the rest ends on their side."""
    wide = values.float() if values.element_size() < 4 else values
    centre = wide.sort(0).values[len(wide) // 2]
    off = wide - centre
    size = off.abs()
    end = size.topk(_rows(len(wide)) + 1, 0).values[-1]
    scale = torch.minimum(size, end).square().mean(0).sqrt()
    far = (size > FAR * scale) & (scale > 0) & wide.isfinite()
    return far, (centre + off.sign() * end).to(values.dtype)
