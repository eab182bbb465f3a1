"""Samples: what the estimators accept, checked where it enters.

Shapes and dtypes are checked on every call, because that is free. Values (NaN, infinity) are
checked only on a CPU, because reading them stalls a GPU.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from numbers import Integral, Real
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch import Tensor

from mibounds.samples.batches import Batch

if TYPE_CHECKING:
    from jaxtyping import Float

_unchecked = ContextVar("without_check", default=False)


Group = dist.ProcessGroup | Batch | None  # whose batches are joined, or the batch itself


def check_pair(x: Tensor, y: Tensor, group: Group = None) -> Batch:
    """Check that x and y are the two sides of n >= 2 joint samples.

    Args:
        x: one sample per row.
        y: one sample per row, as many rows as x.
        group: processes over which the samples are spread; None if they are all here. Or the batch
            that they make up, if that has weights or sequences.

    Returns:
        The batch that they make up.

    Example:
        >>> check_pair(torch.zeros(8, 3), torch.zeros(8, 2)).size
        8
    """
    check_shapes(x, y)
    return group if isinstance(group, Batch) else Batch(len(x), group, x.device)


def check_samples(y: Tensor, group: Group = None) -> Batch:
    """Check one side of the samples; see `check_pair`."""
    check_tensor("y", y)
    return group if isinstance(group, Batch) else Batch(len(y), group, y.device)


def check_shapes(x: Tensor, y: Tensor) -> None:
    """Check that x and y are tensors of numbers or labels, with the same number of rows."""
    check_tensor("x", x)
    check_tensor("y", y)
    if len(x) != len(y):
        raise ValueError(
            f"Expected x and y to hold the same number of samples but got {len(x)} and {len(y)}; "
            "pass rows that belong together."
        )
    if x.device != y.device:
        raise ValueError(
            f"Expected x and y on one device but got {x.device} and {y.device}; "
            f"call y.to({str(x.device)!r})."
        )


def check_tensor(name: str, value: object) -> None:
    """Check that samples are a tensor with one number or label after the other, in rows.

    Example:
        >>> check_tensor("x", torch.eye(3).to_sparse())
        Traceback (most recent call last):
        ...
        ValueError: Expected x to be dense but got torch.sparse_coo; call x.to_dense().
    """
    if not isinstance(value, Tensor):
        raise ValueError(
            f"Expected {name} to be a torch.Tensor but got {type(value).__name__}; "
            "convert it with torch.as_tensor."
        )
    if value.is_nested:
        raise ValueError(
            f"Expected {name} to be one dense tensor but got a nested one; call "
            f"{name}.to_padded_tensor(0.0), and say by mask= which parts count."
        )
    if value.layout is not torch.strided:
        raise ValueError(
            f"Expected {name} to be dense but got {value.layout}; call {name}.to_dense()."
        )
    if value.is_quantized:
        raise ValueError(
            f"Expected {name} to be plain numbers but got {value.dtype}; call {name}.dequantize()."
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


def check_real(name: str, value: Tensor, dim: int, like: Tensor) -> Tensor:
    """Check a real-valued variable of known width, and bring it to shape (n, dim) and a dtype.

    A vector of n numbers stands for one column. The precision is that of the estimator, which has
    torch's default when it is made. A narrower float (as autocast produces) is widened; a wider one
    is refused, since narrowing it silently would lose digits.

    Args:
        name: what to call it in a message.
        value: the samples, (n, dim) or, for ``dim=1``, (n,).
        dim: expected number of columns.
        like: a tensor of the estimator, for its dtype and device.

    Returns:
        The samples, (n, dim).

    Example:
        >>> check_real("x", torch.zeros(8), dim=1, like=torch.zeros(1)).shape
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
            "or swap x and y if they are interchanged."
        )
    dtype = like.dtype
    if value.device != like.device:
        raise ValueError(
            f"Expected {name} on {like.device}, where the estimator is, but got {value.device}; "
            f"call {name}.to({str(like.device)!r}), or .to({str(value.device)!r}) on the estimator."
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
    if value.is_meta:
        raise ValueError(
            f"Expected {name} to hold values but got a tensor on the device meta, which has none; "
            f"pass device= where {name} is made."
        )
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
    if value.is_nested or value.layout is not torch.strided:
        return True
    if not value.ndim or torch.compiler.is_compiling() or _unchecked.get():
        return True
    value = value.detach()
    try:
        # A finite sum has finite terms; an infinite one may have overflowed, so check each term.
        return math.isfinite(value.sum().item()) or bool(value.isfinite().all())
    except RuntimeError:  # under vmap, where no single value can be read
        return True


def zero_of(*values: Tensor) -> Tensor:
    """Zero that depends on tensors, so that each of them gets a gradient: of zeros, even for NaN.

    Example:
        >>> x = torch.full((1, 3), torch.nan, requires_grad=True)
        >>> zero_of(x).backward()
        >>> x.grad
        tensor([[0., 0., 0.]])
    """
    parts = [v.flatten()[:0].sum() for v in values if v.is_floating_point()]
    return sum(parts[1:], parts[0])


def weighted_mean(
    values: Float[Tensor, "n *s"], weights: Float[Tensor, " n"] | None = None
) -> Float[Tensor, "*s"]:
    """Mean over the samples, each with its weight; 0 where nothing has any.

    Example:
        >>> weighted_mean(torch.tensor([1.0, 3.0]), torch.tensor([3.0, 1.0])).item()
        1.5
    """
    if weights is None:
        return values.mean(0)
    total = weights.sum()
    return torch.tensordot(weights, values, 1) / torch.where(total == 0, 1.0, total)


def check_level(level: object) -> None:
    """Check how often an interval is to cover the truth."""
    if not isinstance(level, Real) or not 0 < float(level) < 1:
        raise ValueError(
            f"Expected a level between 0 and 1 but got {level!r}; leave it out for 0.95."
        )


def check_count(name: str, value: object, least: int) -> None:
    """Check a setting that is a whole number.

    Example:
        >>> check_count("permutations", 199, 0)
    """
    if not isinstance(value, Integral) or isinstance(value, bool) or value < least:
        raise ValueError(
            f"Expected {name} to be a whole number >= {least} but got {value!r}; "
            f"leave {name} out for its default."
        )


def check_list(name: str, value: object) -> None:
    """Check a setting that has an entry for each of several things.

    Example:
        >>> check_list("kinds", 3)
        Traceback (most recent call last):
        ...
        ValueError: Expected kinds to be a list but got 3; put it into brackets, or leave it out.
    """
    if not isinstance(value, Iterable):
        raise ValueError(
            f"Expected {name} to be a list but got {value!r}; "
            "put it into brackets, or leave it out."
        )


def check_jobs(value: object) -> None:
    """Check a number of processes."""
    if not isinstance(value, Integral) or isinstance(value, bool):
        raise ValueError(
            f"Expected n_jobs to be a whole number but got {value!r}; "
            "pass 1, or -1 for one per core."
        )


def check_seed(seed: object) -> None:
    """Check a seed that is kept, of numpy's and of torch's generators."""
    if not isinstance(seed, Integral) or isinstance(seed, bool) or not 0 <= int(seed) < 2**63:
        raise ValueError(
            f"Expected seed to be a whole number >= 0 but got {seed!r}; pass seed=0, for example."
        )


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
