"""From what training loops hold, sequences, masks and weights, to one sample per row.

Estimators see rows only. Sequences are laid end to end, without their padding; an x that belongs to
a whole sequence of y is repeated, but a conditional is evaluated once for it (`once_per_x`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from mibounds.samples.batches import Batch
from mibounds.samples.checks import Group, check_tensor

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int, Shaped


class Layout(NamedTuple):
    """Samples, one per row, and the batch that they make up.

    Attributes:
        x: samples.
        y: samples.
        group: whose batches are joined; or the batch, if it has weights or sequences.
        samples: how many rows there are; of whole sequences, where negatives are parts of others.
    """

    x: Tensor
    y: Tensor
    group: Group
    samples: int


def lay_out(
    x: Shaped[Tensor, "b *x"],
    y: Shaped[Tensor, "b *y"],
    mask: Bool[Tensor, "b *t"] | None = None,
    weights: Float[Tensor, "b *w"] | None = None,
    group: Group = None,
    *,
    flat: bool = True,
    apart: bool = False,
    x_dim: int | None = None,
) -> Layout:
    """Lay out samples one per row.

    Args:
        x: samples (n, x_dim); sequences (B, T, x_dim); or one x (B, x_dim) for each sequence of y.
        y: samples or labels.
        mask: True for the samples that count, (n,) or (B, T).
        weights: of samples, (n,), of sequences, (B,), or of their parts, (B, T).
        group: processes whose batches are joined.
        flat: whether three dimensions are sequences where no mask says so.
        apart: whether the negatives of sequences are those of other sequences.
        x_dim: columns of x, where they are known.

    Returns:
        The rows.

    Example:
        >>> mask = torch.tensor([[True, True, False], [True, True, True]])
        >>> rows = lay_out(torch.randn(2, 4), torch.randn(2, 3, 5), mask)
        >>> rows.x.shape, rows.y.shape, rows.group.sequences
        (torch.Size([5, 4]), torch.Size([5, 5]), tensor([0, 0, 1, 1, 1]))
    """
    named = ("x", x), ("y", y), ("mask", mask), ("weights", weights)
    for name, value in named:
        if value is not None or name in ("x", "y"):
            check_tensor(name, value)
    if not _sequences(x, y, mask, flat):
        if mask is None and weights is None:
            return Layout(x, y, group, len(y) if y.ndim else 1)
        return _rows(x, y, mask, weights, group)
    shape = tuple(y.shape[:2])
    _check("mask", mask, shape, (torch.bool,))
    single = x.ndim == 2 and (y.ndim == 3 or x.shape != shape) and not (
        x_dim == 1 and x.shape == shape
    )  # fmt: skip
    if len(shape) < 2 or len(x) != shape[0] or (not single and x.shape[:2] != shape):
        raise ValueError(
            f"Expected y of shape ({x.shape[0]}, {x.shape[1]}, ...), a value for each time of the "
            "sequences x, or one x for each sequence y, but got x of shape "
            f"{tuple(x.shape)} and y of shape {tuple(y.shape)}; for one value per sequence pass "
            "y[:, None].expand(-1, x.shape[1], -1)."
        )
    own = torch.arange(shape[0], device=y.device)[:, None].expand(shape)
    if weights is not None:
        _check("weights", weights, shape[: weights.ndim])
        weights = weights.reshape(*weights.shape, *[1] * (2 - weights.ndim)).expand(shape)
        counts = weights > 0
        mask = counts if mask is None else mask & counts
    if mask is None:
        own, y, weights = own.flatten(), y.flatten(0, 1), None
        rows = x[:, None].expand(-1, shape[1], -1).flatten(0, 1) if single else x.flatten(0, 1)
    else:
        own, y, weights = own[mask], y[mask], None if weights is None else weights[mask]
        rows = x[own] if single else x[mask]
    if single:
        rows.once = (x, own, shape if mask is None else None)  # pyright: ignore[reportAttributeAccessIssue]
    apart = apart or single
    return _batch(rows, y, group, weights, own if apart else None)


def once_per_x(
    rows: Tensor,
) -> tuple[Tensor, Int[Tensor, " m"], tuple[int, int] | None] | None:
    """Of rows that repeat each x: the x's, which of them each row is, and the shape if regular.

    Args:
        rows: from `lay_out`.
    """
    return getattr(rows, "once", None)


def _sequences(x: Tensor, y: Tensor, mask: Tensor | None, flat: bool) -> bool:
    if mask is not None:
        return mask.ndim == 2
    return flat and (y.ndim == 3 or (x.ndim == 3 and y.ndim == 2 and x.shape[:2] == y.shape)
                     or (x.ndim == 3 and y.ndim != x.ndim))  # fmt: skip


def _rows(
    x: Tensor, y: Tensor, mask: Tensor | None, weights: Tensor | None, group: Group
) -> Layout:
    _check("mask", mask, (len(y),), (torch.bool,))
    _check("weights", weights, (len(y),))
    if weights is not None:
        mask = weights > 0 if mask is None else mask & (weights > 0)
    assert mask is not None
    return _batch(x[mask], y[mask], group, None if weights is None else weights[mask], None)


def _batch(
    x: Tensor, y: Tensor, group: Group, weights: Tensor | None, sequences: Tensor | None
) -> Layout:
    samples = len(y)
    if sequences is not None and samples:  # ascending
        samples = 1 + int((sequences[1:] != sequences[:-1]).sum())
    if weights is None and sequences is None:
        return Layout(x, y, group, samples)
    assert not isinstance(group, Batch)
    if group is None and samples < 2:
        return Layout(x, y, None, samples)
    return Layout(x, y, Batch(len(y), group, y.device, weights, sequences), samples)


def _check(
    name: str, value: Tensor | None, shape: tuple[int, ...], dtypes: tuple[torch.dtype, ...] = ()
) -> None:
    """Check a mask or weights."""
    if value is None:
        return
    if dtypes and value.dtype not in dtypes:
        raise ValueError(
            f"Expected mask to be of torch.bool, True for samples that count, but got "
            f"{value.dtype}; call mask.bool()."
        )
    if not dtypes and not value.is_floating_point():
        raise ValueError(
            f"Expected weights to be floating point but got {value.dtype}; call weights.float(), "
            "or pass mask= if they say which samples count."
        )
    if tuple(value.shape) != shape:
        raise ValueError(
            f"Expected {name} of the leading shape of x and y, {shape}, but got "
            f"{tuple(value.shape)}; give all three the same leading shape."
        )
    if not dtypes and value.is_cpu and bool((~(value >= 0)).any() | value.isinf().any()):
        raise ValueError(
            f"Expected finite weights of 0 or more but got {value.min().item():g} to "
            f"{value.max().item():g}; pass how often each sample is to count."
        )
