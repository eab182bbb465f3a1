"""Samples as columns, each of a kind: what `estimate` is given, checked and brought into one form.

A column is "continuous" (numbers that hardly ever repeat) or "discrete" (labels, counts of
few values). Mutual information does not change when a column is mapped one to one. So labels become
codes, and a continuous column may be replaced by its normal scores, the quantiles of a standard
normal at its ranks: they look at one column at a time, hence see no dependence, and may use all
rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

if TYPE_CHECKING:
    from jaxtyping import Float, Int

Kind = Literal["continuous", "discrete"]
FEW = 50  # whole numbers of so many values at most are labels, if each has about 20 rows


@dataclass(frozen=True)
class Columns:
    """One side of the samples.

    Args:
        name: what to call it in messages, "x", "y" or "given".
        values: numbers, or codes 0, 1, ... of labels, one sample per row.
        kinds: of each column.
        labels: name of each column.
        normal: whether the continuous columns are normal scores.
    """

    name: str
    values: Float[np.ndarray, "n d"]
    kinds: tuple[Kind, ...]
    labels: tuple[str, ...]
    normal: bool = False

    def __len__(self) -> int:
        return len(self.values)

    @property
    def width(self) -> int:
        """Number of columns."""
        return len(self.kinds)

    def take(self, kind: Kind) -> Columns:
        """The columns of one kind."""
        keep = [j for j, k in enumerate(self.kinds) if k == kind]
        return replace(
            self,
            values=self.values[:, keep],
            kinds=tuple(self.kinds[j] for j in keep),
            labels=tuple(self.labels[j] for j in keep),
        )

    def codes(self) -> tuple[Int[np.ndarray, " n"], int]:
        """All columns as one label, and the number of labels that occur."""
        _, codes = np.unique(self.values, axis=0, return_inverse=True)
        codes = codes.reshape(-1)
        return codes, int(codes.max()) + 1 if len(codes) else 0

    def scored(self) -> Columns:
        """Continuous columns replaced by their normal scores."""
        columns = [
            normal_scores(v) if k == "continuous" else v
            for v, k in zip(self.values.T, self.kinds, strict=True)
        ]
        return replace(self, values=np.stack(columns, 1), normal=True) if columns else self

    def inputs(self) -> Float[np.ndarray, "n k"]:
        """Numbers for a network: continuous columns standardised, labels as indicators."""
        parts = [np.empty((len(self), 0))]
        for v, k in zip(self.values.T, self.kinds, strict=True):
            if k == "continuous":
                scale = np.abs(v - v.mean()).max() or 1.0  # before anything is squared
                v = (v - v.mean()) / scale
                parts.append((v / (v.std() or 1.0))[:, None])
            else:
                parts.append(np.eye(int(v.max()) + 1)[v.astype(int)][:, 1:])
        return np.concatenate(parts, 1)


def normal_scores(values: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """Quantiles of a standard normal at the ranks; equal values have their mean rank.

    Example:
        >>> normal_scores(np.array([10.0, 3.0, 1000.0])).round(3)
        array([ 0.   , -0.967,  0.967])
    """
    _, where, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[where.reshape(-1)]
    return torch.special.ndtri(torch.from_numpy((ranks - 0.5) / len(values))).numpy()


def as_columns(name: str, data: Any, kinds: Sequence[str | None] | str | None = None) -> Columns:
    """Bring samples of any form to columns, and recognise the kind of each.

    Args:
        name: what to call them in messages.
        data: array, tensor, data frame, series or sequence; one sample per row. More than two
            dimensions are flattened.
        kinds: "continuous" or "discrete", for all columns or for each; recognised if left out, as
            are those of columns with None.

    Returns:
        The columns that vary.

    Raises:
        ValueError: if it is not a table of numbers and labels.

    Example:
        >>> as_columns("x", [[0.5, 1], [0.25, 0], [0.125, 1]], ["continuous", "discrete"]).kinds
        ('continuous', 'discrete')
    """
    raw, labels = _split(name, data)
    if not raw or not len(raw[0]):
        raise ValueError(
            f"Expected {name} to have rows and columns but got none; pass one sample per row."
        )
    if kinds is None:
        given: list[str | None] = [None] * len(raw)
    else:
        given = [kinds] * len(raw) if isinstance(kinds, str) else list(kinds)
    if len(given) != len(raw):
        raise ValueError(
            f"Expected a kind for each of {len(raw)} columns but got {len(given)}; "
            "pass None for those to be recognised."
        )
    values, found = [], []
    for label, column, kind in zip(labels, raw, given, strict=True):
        v, k = _read(f"column {label} of {name}", column, kind)
        values.append(v)
        found.append(k)
    varies = [j for j, v in enumerate(values) if (v != v[0]).any()]
    if not varies:
        raise ValueError(
            f"Expected {name} to vary but got {len(values[0])} equal rows; "
            "give one sample per row, or leave it out, because a constant shares 0 nats with "
            "anything."
        )
    return Columns(
        name,
        np.stack([values[j] for j in varies], 1),
        tuple(found[j] for j in varies),
        tuple(labels[j] for j in varies),
    )


def split_dataset(data: Dataset) -> tuple[Tensor, Tensor]:
    """The x's and y's of a data set whose items are pairs.

    Example:
        >>> from torch.utils.data import TensorDataset
        >>> x, y = split_dataset(TensorDataset(torch.zeros(4, 3), torch.zeros(4)))
        >>> x.shape, y.shape
        (torch.Size([4, 3]), torch.Size([4]))
    """
    if not hasattr(data, "__len__"):
        raise ValueError(
            "Expected a data set of known length but got an iterable one; "
            "use evaluate for samples that come one by one."
        )
    items = [data[i] for i in range(len(data))]  # pyright: ignore[reportArgumentType]
    if not items or any(not isinstance(item, tuple | list) or len(item) != 2 for item in items):
        raise ValueError(
            "Expected a data set of pairs (x, y), or x and y apart, but got other items; "
            "pass TensorDataset(x, y), for example."
        )
    return torch.stack([torch.as_tensor(x) for x, _ in items]), torch.stack(
        [torch.as_tensor(y) for _, y in items]
    )


def _split(name: str, data: Any) -> tuple[list[np.ndarray], list[str]]:
    """Each column apart, with its name."""
    if isinstance(data, Tensor):
        data = data.detach().cpu()
        data = (data.double() if data.is_floating_point() else data).numpy()
    elif hasattr(data, "columns") and hasattr(data, "dtypes"):  # a data frame
        names = [str(c) for c in data.columns]
        columns = [data[c] for c in data.columns]
        if any(getattr(c, "ndim", 1) != 1 for c in columns):
            raise ValueError(
                f"Expected {name} with different names of columns but got {names}; "
                f"rename them, or pass {name}.to_numpy()."
            )
        return [_series(c) for c in columns], names
    elif hasattr(data, "to_numpy"):  # a series
        return [_series(data)], [str(getattr(data, "name", None) or 0)]
    try:
        array = np.asarray(data)
    except ValueError as error:
        raise ValueError(
            f"Expected {name} as a table with rows of one length but got {type(data).__name__} "
            "with rows that differ; pad or cut them to one length."
        ) from error
    if array.ndim == 0:
        raise ValueError(
            f"Expected {name} with one sample per row but got a single value; "
            "pass an array of shape (n,) or (n, d)."
        )
    array = array.reshape(len(array), math.prod(array.shape[1:]))
    return list(array.T), [str(j) for j in range(array.shape[1])]


def _series(series: Any) -> np.ndarray:
    values = series.to_numpy()
    if str(series.dtype).lower().startswith("categor"):
        return np.array([None if v != v else str(v) for v in values], dtype=object)
    return values


def _read(where: str, column: np.ndarray, kind: str | None) -> tuple[np.ndarray, Kind]:
    """One column as numbers or codes."""
    if kind not in (None, "continuous", "discrete"):
        raise ValueError(
            f'Expected a kind "continuous" or "discrete" for {where} but got {kind!r}; '
            "pass None to have it recognised."
        )
    if column.dtype.kind == "O":
        missing = np.array([v is None or v != v for v in column])
        if missing.any():
            raise ValueError(
                f"Expected {where} without missing values but got {missing.sum()}, the first in "
                f"row {missing.argmax()}; drop these rows or fill them."
            )
        if all(isinstance(v, int | float | np.number) for v in column):
            column = column.astype(np.float64)
        else:
            column = column.astype(str)
    if column.dtype.kind in "US":
        if kind == "continuous":
            raise ValueError(
                f"Expected numbers in {where} but got text such as {str(column[0])[:30]!r}; "
                'convert it to numbers, or say that it is "discrete".'
            )
        return _encode(column), "discrete"
    if column.dtype.kind not in "biuf":
        raise ValueError(
            f"Expected numbers or labels in {where} but got {column.dtype}; "
            "bring dates and complex numbers to real ones first."
        )
    numbers = column.astype(np.float64)
    bad = ~np.isfinite(numbers)
    if bad.any():
        raise ValueError(
            f"Expected finite numbers in {where} but got {numbers[bad.argmax()]} in {bad.sum()} of "
            f"{len(numbers)} rows, the first in row {bad.argmax()}; drop these rows or fill them."
        )
    if kind is None:
        whole = (numbers == np.floor(numbers)).all()
        few = len(np.unique(numbers)) <= max(2, min(FEW, len(numbers) // 20))
        kind = "discrete" if whole and few else "continuous"
    return (_encode(numbers), "discrete") if kind == "discrete" else (numbers, "continuous")


def _encode(column: np.ndarray) -> np.ndarray:
    return np.unique(column, return_inverse=True)[1].reshape(-1).astype(np.float64)
