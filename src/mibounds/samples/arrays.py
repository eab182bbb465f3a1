"""Samples of any container as numpy arrays, without a change of any value.

Whole numbers stay whole, since as floating-point numbers those above 2^53 would be merged. What a
mask hides is missing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

if TYPE_CHECKING:
    from jaxtyping import Bool

EXACT = 2**53  # whole numbers beyond are merged as floating-point numbers
BITS = ("8", "16", "32", "64")
# Kinds of columns of pandas whose missing values compare with nothing.
NULLABLE = {"boolean", "Float32", "Float64", *(f"{u}Int{b}" for u in ("", "U") for b in BITS)}


def split_columns(name: str, data: Any) -> tuple[list[np.ndarray], list[str]]:
    """Each column apart, with its name; a missing value is None, NaN, NaT or NA.

    Args:
        name: what to call the samples in messages.
        data: array, tensor, data frame, series, Arrow table or sequence; one sample per row. More
            than two dimensions are flattened.

    Example:
        >>> columns, names = split_columns("x", [[2**60 + 1, 0.5], [2**60, 1.5]])
        >>> [column.tolist() for column in columns], names
        ([[1152921504606846977, 1152921504606846976], [0.5, 1.5]], ['0', '1'])
    """
    if hasattr(data, "columns") and hasattr(data, "dtypes"):  # a data frame
        names = [str(c) for c in data.columns]
        columns = [data[c] for c in data.columns]
        if any(getattr(c, "ndim", 1) != 1 for c in columns):
            raise ValueError(
                f"Expected {name} with different names of columns but got {names}; "
                f"rename them, or pass {name}.to_numpy()."
            )
        return [_from_series(c) for c in columns], names
    if hasattr(data, "column_names") and hasattr(data, "column"):  # an Arrow table
        names = [str(c) for c in data.column_names]
        return [_from_series(data.column(j)) for j in range(len(names))], names
    if hasattr(data, "to_numpy") and getattr(data, "ndim", 1) == 1:  # a series
        return [_from_series(data)], [str(getattr(data, "name", None) or 0)]
    array = to_array(name, data)
    array = array.reshape(len(array), math.prod(array.shape[1:]))
    return list(array.T), [str(j) for j in range(array.shape[1])]


def to_array(name: str, data: Any) -> np.ndarray:
    """An array with one sample per row; what is masked is NaN, NaT or None in it."""
    if isinstance(data, Tensor):
        data = _from_tensor(name, data)
    elif hasattr(data, "toarray") and hasattr(data, "nnz"):
        raise ValueError(
            f"Expected {name} as a dense array but got a sparse {type(data).__name__}; "
            "pass its .toarray(), if that fits into memory."
        )
    elif isinstance(data, list | tuple):
        data = [_from_part(name, part) for part in data]
    if isinstance(data, np.ma.MaskedArray):
        data = _fill(data)
    try:
        array = np.asarray(data)
    except ValueError as error:
        raise ValueError(
            f"Expected {name} as a table with rows of one length but got {type(data).__name__} "
            "with rows that differ; pad or cut them to one length."
        ) from error
    if array.ndim == 0:
        raise ValueError(
            f"Expected {name} with one sample per row but got a single {type(data).__name__}; "
            "pass an array of shape (n,) or (n, d), a data frame or a list."
        )
    if isinstance(data, list) and _changed(array, data):
        return np.array(data, dtype=object)
    return array


def find_absent(column: np.ndarray) -> Bool[np.ndarray, " n"]:
    """Where a column has no value: None, NaN, NaT or NA.

    Example:
        >>> find_absent(np.array(["", None])).tolist()
        [False, True]
    """
    if column.dtype.kind == "O":
        return np.array([_is_absent(v) for v in column], bool)
    if column.dtype.kind in "fcmM":
        return np.isnat(column) if column.dtype.kind in "mM" else np.isnan(column)
    return np.zeros(len(column), bool)


def _is_absent(value: Any) -> bool:
    if value is None or value is np.ma.masked:
        return True
    try:
        return bool(value != value)
    except (TypeError, ValueError):  # NA of pandas compares with nothing; arrays with arrays
        return type(value).__name__ == "NAType"


def _from_tensor(name: str, data: Tensor) -> np.ndarray:
    if data.is_nested or data.layout is not torch.strided:
        kind = "nested" if data.is_nested else "sparse"
        raise ValueError(
            f"Expected {name} as a dense tensor but got a {kind} one; pass .to_dense() of a sparse "
            "tensor, or torch.cat(x.unbind()) of a nested one."
        )
    if data.is_meta:
        raise ValueError(
            f"Expected {name} with values but got a tensor on the device meta, which has none; "
            "make it on the CPU."
        )
    if torch.masked.is_masked_tensor(data):
        masked: Any = data
        hidden = ~masked.get_mask().cpu().numpy()
        return np.ma.MaskedArray(_from_tensor(name, masked.get_data()), hidden)
    data = data.detach().cpu().resolve_conj().resolve_neg()
    if data.is_quantized:
        data = data.dequantize()
    # numpy has no bfloat16
    return (data.double() if data.is_floating_point() else data).numpy()


def _from_part(name: str, part: Any) -> Any:
    """One row of a list."""
    if isinstance(part, Tensor):
        part = _from_tensor(name, part)
    return _fill(part) if isinstance(part, np.ma.MaskedArray) else part


def _changed(array: np.ndarray, data: Any) -> bool:
    """Whether numpy changed values of a list: numbers beside text, and large whole numbers."""
    if array.dtype.kind in "US":
        return array.ndim > 1
    return array.dtype.kind == "f" and bool(
        any(type(v) is int for v in np.array(data, dtype=object)[np.abs(array) >= EXACT])
    )


def _fill(data: np.ma.MaskedArray) -> np.ndarray:
    """What is masked is missing."""
    if not np.ma.getmaskarray(data).any():
        return data.data
    if data.dtype.kind == "f":
        return np.ma.filled(data, np.nan)
    filled = data.data.astype(object)
    filled[np.ma.getmaskarray(data)] = None
    return filled


def _from_series(series: Any) -> np.ndarray:
    """One column: of pandas, polars or Arrow."""
    if hasattr(series, "to_pylist"):  # of Arrow
        if hasattr(series, "combine_chunks"):
            series = series.combine_chunks()
        if hasattr(series, "dictionary_decode"):
            series = series.dictionary_decode()
        if series.null_count:
            return _as_objects(series.to_pylist())
        return series.to_numpy(zero_copy_only=False)
    kind = str(series.dtype)
    if kind.lower().startswith("categor"):
        return _as_objects([None if _is_absent(v) else str(v) for v in series.to_numpy()])
    if kind.endswith("[pyarrow]") and hasattr(series, "array"):
        return _from_series(series.array.__arrow_array__())
    if getattr(series.dtype, "tz", None) is not None:  # times of a zone are times
        return series.to_numpy(dtype="datetime64[ns]")
    if kind in NULLABLE and hasattr(series, "isna"):
        if series.isna().any():
            return series.to_numpy(dtype=object, na_value=None)
        return series.to_numpy(dtype=kind.lower().replace("boolean", "bool"))
    return series.to_numpy()


def _as_objects(values: Sequence[Any]) -> np.ndarray:
    found = np.empty(len(values), dtype=object)
    found[:] = values
    return found
