"""Tables of results, as data frames and as JSON."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np

__all__ = ["build", "floats", "open_pandas", "plain"]

T = TypeVar("T")


def open_pandas() -> Any:
    """The package pandas."""
    try:
        import pandas
    except ImportError as error:
        raise ImportError(
            "A frame needs the package pandas, which is not installed; "
            "install it with: pip install 'mibounds[tables]'"
        ) from error
    return pandas


def plain(value: Any) -> Any:
    """The same of types that JSON has; strings in place of NaN and infinity.

    Example:
        >>> plain((np.array([1.0, np.nan]), np.inf))
        [[1.0, 'NaN'], 'Infinity']
    """
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list | tuple) else value


def floats(rows: list[list[Any]]) -> np.ndarray:
    """A table of numbers, some of them as `plain` writes them.

    Example:
        >>> floats([[1.0, "NaN"]])
        array([[ 1., nan]])
    """
    return np.array([[float(value) for value in row] for row in rows]).reshape(len(rows), -1)


def build(cls: type[T], rows: Sequence[dict[str, Any]]) -> tuple[T, ...]:
    """Instances of a dataclass from their fields.

    Example:
        >>> build(complex, [{"real": 1.0, "imag": 2.0}])
        ((1+2j),)
    """
    try:
        return tuple(cls(**row) for row in rows)
    except TypeError as error:
        raise ValueError(
            f"Expected the fields of {cls.__name__} but got others ({error}); "
            "pass the output of to_json."
        ) from error
