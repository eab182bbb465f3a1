"""Samples: what the estimators accept, checked where it enters.

Shapes and dtypes are checked on every call, because that is free. Values (NaN, infinity) are
checked only on a CPU, because reading them stalls a GPU.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from numbers import Integral

import torch
import torch.distributed as dist
from torch import Tensor

from mibounds.samples.batches import Batch

_unchecked = ContextVar("without_check", default=False)


def check_pair(x: Tensor, y: Tensor, group: dist.ProcessGroup | None = None) -> Batch:
    """Check that x and y are the two sides of n >= 2 joint samples.

    Args:
        x: one sample per row.
        y: one sample per row, as many rows as x.
        group: processes over which the samples are spread; None if they are all here.

    Returns:
        The batch that they make up.

    Example:
        >>> check_pair(torch.zeros(8, 3), torch.zeros(8, 2)).size
        8
    """
    check_shapes(x, y)
    return Batch(len(x), group, x.device)


def check_samples(y: Tensor, group: dist.ProcessGroup | None = None) -> Batch:
    """Check one side of the samples; see `check_pair`."""
    _check_tensor("y", y)
    return Batch(len(y), group, y.device)


def check_shapes(x: Tensor, y: Tensor) -> None:
    """Check that x and y are tensors of numbers or labels, with the same number of rows."""
    _check_tensor("x", x)
    _check_tensor("y", y)
    if len(x) != len(y):
        raise ValueError(
            f"Expected x and y to hold the same number of samples but got {len(x)} and {len(y)}; "
            "pass rows that belong together."
        )


def _check_tensor(name: str, value: Tensor) -> None:
    if not isinstance(value, Tensor):
        raise ValueError(
            f"Expected {name} to be a torch.Tensor but got {type(value).__name__}; "
            "convert it with torch.as_tensor."
        )
    if value.is_complex():
        raise ValueError(
            f"Expected {name} to be real but got {value.dtype}; "
            "pass torch.view_as_real(...).flatten(1) instead."
        )
    if value.ndim == 0:
        raise ValueError(
            f"Expected {name} to have one sample per row but got a single number; "
            "pass a tensor of shape (n,) or (n, d)."
        )


def check_real(name: str, value: Tensor, dim: int, dtype: torch.dtype) -> Tensor:
    """Check a real-valued variable of known width, and bring it to shape (n, dim) and a dtype.

    A vector of n numbers stands for one column. A narrower float (as autocast produces) is widened;
    a wider one is refused, since narrowing it silently would lose digits.

    Args:
        name: what to call it in a message.
        value: the samples, (n, dim) or, for ``dim=1``, (n,).
        dim: expected number of columns.
        dtype: dtype of the network's parameters.

    Returns:
        The samples, (n, dim).

    Example:
        >>> check_real("x", torch.zeros(8), dim=1, dtype=torch.float32).shape
        torch.Size([8, 1])
    """
    if not value.is_floating_point():
        raise ValueError(
            f"Expected {name} to be floating point but got {value.dtype}; for labels as y use "
            "conditional=Categorical(...), for labels as x one-hot encode them, "
            "for counts or other integers call .float()."
        )
    if value.ndim == 1 and dim == 1:
        value = value[:, None]
    if value.ndim != 2 or value.shape[1] != dim:
        hint = "flatten the leading dimensions into one, and " if value.ndim > 2 else ""
        raise ValueError(
            f"Expected {name} of shape (n, {dim}) but got {tuple(value.shape)}; {hint}"
            f"make the estimator with {name}_dim={value.shape[-1] if value.ndim > 1 else 1}, "
            "or swap x and y where they are in each other's place."
        )
    if dtype in (torch.float16, torch.bfloat16):
        raise ValueError(
            f"Expected an estimator in torch.float32 or torch.float64 but got one in {dtype}; "
            "keep it in full precision and use torch.autocast."
        )
    if torch.promote_types(value.dtype, dtype) != dtype:
        raise ValueError(
            f"Expected {name} in {dtype}, the precision of the estimator, but got {value.dtype}; "
            f"call {name}.to({dtype}), or .to({value.dtype}) on the estimator."
        )
    return value.to(dtype)


def check_finite(name: str, value: Tensor) -> None:
    """Check that no sample holds NaN or infinity. Reads the values: only for the boundary.

    Args:
        name: what to call it in a message.
        value: one sample per row.

    Example:
        >>> check_finite("x", torch.zeros(8, 3))
    """
    bad = ~value.isfinite().flatten(1).all(1) if value.ndim > 1 else ~value.isfinite()
    if bad.any():
        raise ValueError(
            f"Expected finite {name} but got NaN or infinity in {int(bad.sum())} of {len(value)} "
            f"rows, first in row {int(bad.nonzero()[0])}; drop or impute those rows."
        )


@contextmanager
def without_check() -> Iterator[None]:
    """Skip the check for NaN and infinity meanwhile: training must survive a bad batch.

    Example:
        >>> with without_check():
        ...     seems_finite(torch.tensor([torch.nan]))
        True
    """
    token = _unchecked.set(True)
    try:
        yield
    finally:
        _unchecked.reset(token)


def seems_finite(value: object) -> bool:
    """Whether samples are finite, or cannot be checked here; one cheap pass.

    Args:
        value: samples; integers pass, and so does anything on a GPU, under `torch.compile` or vmap.

    Example:
        >>> seems_finite(torch.zeros(8, 3)), seems_finite(torch.full((8, 3), torch.nan))
        (True, False)
    """
    if not isinstance(value, Tensor) or not value.is_floating_point() or not value.is_cpu:
        return True
    if not value.ndim or torch.compiler.is_compiling() or _unchecked.get():
        return True
    value = value.detach()
    try:
        # A finite sum has finite terms; an infinite one may have overflowed, so check each term.
        return bool(value.sum().isfinite()) or bool(value.isfinite().all())
    except RuntimeError:  # under vmap, where no single value can be read
        return True


def lay_out_samples(
    x: Tensor, y: Tensor, mask: Tensor | None = None, sequences: bool = True
) -> tuple[Tensor, Tensor]:
    """One sample per row: sequences are laid end to end, without their padding.

    Args:
        x: samples, (n, x_dim), or sequences of them, (batch, time, x_dim).
        y: samples or labels, of the same leading shape.
        mask: True for the samples that count.
        sequences: whether three dimensions of x are sequences where no mask says so.

    Returns:
        x and y with the same number of rows.

    Example:
        >>> x, y = lay_out_samples(torch.zeros(2, 5, 3), torch.zeros(2, 5))
        >>> x.shape, y.shape
        (torch.Size([10, 3]), torch.Size([10]))
    """
    for name, value in (("x", x), ("y", y)):
        if not isinstance(value, Tensor):
            raise ValueError(
                f"Expected {name} to be a torch.Tensor but got {type(value).__name__}; "
                "convert it with torch.as_tensor."
            )
    if mask is None:
        if x.ndim != 3 or not sequences:
            return x, y
        if y.ndim < 2 or y.shape[:2] != x.shape[:2]:
            raise ValueError(
                f"Expected y of shape ({x.shape[0]}, {x.shape[1]}, ...), a value for each time "
                f"of the sequences x, but got {tuple(y.shape)}; for one value per sequence pass "
                "y[:, None].expand(-1, x.shape[1], -1)."
            )
        return x.flatten(0, 1), y.flatten(0, 1)
    if mask.dtype != torch.bool:
        raise ValueError(
            f"Expected mask to be of torch.bool, True for samples that count, but got "
            f"{mask.dtype}; call mask.bool()."
        )
    if not x.shape[: mask.ndim] == y.shape[: mask.ndim] == mask.shape:
        raise ValueError(
            f"Expected mask of the leading shape of x and y, {tuple(x.shape[:2])} and "
            f"{tuple(y.shape[:2])}, but got {tuple(mask.shape)}; "
            "bring all three to one leading shape."
        )
    return x[mask], y[mask]


def holds_samples(value: object) -> bool:
    """Whether this is an array or a list rather than a number."""
    return bool(getattr(value, "shape", isinstance(value, list | tuple)))


def check_size(name: str, value: int, at_least: int = 1) -> None:
    """Check that a size is an integer, and large enough."""
    if holds_samples(value):
        raise ValueError(
            f"Expected {name} to be an integer >= {at_least} but got {type(value).__name__}; "
            "pass numbers of columns, such as x.shape[1]; the samples come later, in a call."
        )
    if not isinstance(value, Integral) or isinstance(value, bool) or value < at_least:
        raise ValueError(
            f"Expected {name} to be an integer >= {at_least} but got {value!r}; "
            f"pass a whole number, {name}={at_least} or more."
        )
