"""Samples as columns, each of a kind: what `estimate` is given, checked and brought into one form.

A column is "continuous" (numbers, rounded or not) or "discrete" (labels, counts of few values).
Mutual information does not change when a column is mapped one to one. So labels become codes, and a
continuous column may be replaced by its normal scores, the quantiles of a standard normal at its
ranks: they look at one column at a time, hence see no dependence, and may use all rows.

Nor does it change when equal numbers get noise that is smaller than the distance to the next
number: rounding would remove it again, and it depends on nothing. Densities and distances need
numbers that do not repeat, so they look at `Columns.smooth`, which has such noise.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from mibounds.samples.arrays import EXACT, find_absent, split_columns
from mibounds.samples.checks import check_list

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int

Kind = Literal["continuous", "discrete"]
FEW = 50  # whole numbers of so many values at most are labels, if each has about 20 rows
CELLS = 50_000_000  # numbers at most that stand for one column of labels
LARGEST = 1e150  # whose square is a number
NAMES = 0.9  # labels per row above which they name the rows
WIDE = 10  # columns of whole numbers from which on they are numbers: pixels and counts, not labels


@dataclass(frozen=True)
class Columns:
    """One side of the samples.

    Args:
        name: what to call it in messages, "x", "y" or "given".
        values: numbers, or codes 0, 1, ... of labels, one sample per row.
        kinds: of each column.
        labels: name of each column.
        smooth: the same values, but noise tells those apart that are equal in a continuous column.
        constant: names of the columns that were left out, since they do not vary.
        normal: whether the continuous columns are normal scores.
        ranked: names of the columns of numbers whose ranks take their place.
    """

    name: str
    values: Float[np.ndarray, "n d"]
    kinds: tuple[Kind, ...]
    labels: tuple[str, ...]
    smooth: Float[np.ndarray, "n d"]
    constant: tuple[str, ...] = ()
    normal: bool = False
    ranked: tuple[str, ...] = ()

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
            smooth=self.smooth[:, keep],
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
        if not self.kinds:
            return self
        tables = [self.values] if self.smooth is self.values else [self.values, self.smooth]
        scored = [
            np.stack(
                [
                    normal_scores(v) if k == "continuous" else v
                    for v, k in zip(table.T, self.kinds, strict=True)
                ],
                1,
            )
            for table in tables
        ]
        return replace(self, values=scored[0], smooth=scored[-1], normal=True)

    def at(self, rows: Int[np.ndarray, " m"]) -> Columns:
        """Some of the rows."""
        return replace(self, values=self.values[rows], smooth=self.smooth[rows])

    @property
    def entropy(self) -> tuple[float, float]:
        """Of all columns as one label, in nats, and its standard error; infinite with numbers.

        Counted frequencies of k labels come out (k - 1) / 2n too low, which is added.
        """
        if "continuous" in self.kinds:
            return math.inf, 0.0
        codes, labels = self.codes()
        p = np.bincount(codes) / len(codes)
        shares = -np.log(p)[codes]
        error = float(shares.std()) / math.sqrt(len(codes))
        return float(shares.mean()) + (labels - 1) / (2 * len(codes)), error

    def inputs(
        self, smooth: bool = False, rows: Int[np.ndarray, " m"] | None = None
    ) -> Float[np.ndarray, "m k"]:
        """Numbers for a network: continuous columns standardised, labels as indicators.

        Args:
            smooth: without equal numbers in continuous columns, as a density needs them.
            rows: some of the rows, in which labels that do not occur have no indicator; all rows if
                left out.
        """
        some = slice(None) if rows is None else rows
        parts = [np.empty((len(self) if rows is None else len(rows), 0))]
        for v, k in zip((self.smooth if smooth else self.values).T, self.kinds, strict=True):
            if k == "continuous":
                scale = np.abs(v - v.mean()).max() or 1.0  # before anything is squared
                v = (v - v.mean()) / scale
                parts.append((v / (v.std() or 1.0))[some, None])
            else:
                shown = np.arange(int(v.max()) + 1) if rows is None else np.unique(v[some])
                self._check_cells(len(parts[0]), len(shown))
                parts.append((v[some, None] == shown[shown > 0]).astype(np.float64))
        return np.concatenate(parts, 1)

    def _check_cells(self, rows: int, labels: int) -> None:
        if rows * labels > CELLS:
            raise ValueError(
                f"Expected at most {CELLS // rows} labels in a column of {self.name} with {rows} "
                f"rows, each of which becomes a column, but got {labels}; group rare labels, or "
                'use "plug_in" for labels on both sides.'
            )


def normal_scores(values: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """Quantiles of a standard normal at the ranks; equal values have their mean rank.

    Example:
        >>> normal_scores(np.array([10.0, 3.0, 1000.0])).round(3)
        array([ 0.   , -0.967,  0.967])
    """
    _, where, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[where.reshape(-1)]
    return torch.special.ndtri(torch.from_numpy((ranks - 0.5) / len(values))).numpy()


def break_ties(
    values: Float[np.ndarray, " n"], rng: np.random.Generator
) -> Float[np.ndarray, " n"]:
    """Add noise to the values that occur several times, less than half the way to the next value.

    Example:
        >>> v = break_ties(np.array([0.5, 2.0, 0.5, 1.0]), np.random.default_rng(0))
        >>> v[1], v[3], len(set(v)), bool((abs(v[[0, 2]] - 0.5) < 0.25).all())
        (np.float64(2.0), np.float64(1.0), 4, True)
    """
    levels, where, counts = np.unique(values, return_inverse=True, return_counts=True)
    if len(levels) in (1, len(values)):
        return values
    gaps = np.diff(levels)
    below, above = np.concatenate([gaps[:1], gaps]), np.concatenate([gaps, gaps[-1:]])
    where = where.reshape(-1)
    noise = rng.uniform(-0.4999, 0.4999, len(values))
    step = np.where(noise < 0, below[where], above[where])
    return np.where(counts[where] > 1, values + noise * step, values)


def find_missing(name: str, data: Any) -> Bool[np.ndarray, " n"]:
    """Rows in which a column has no value: None, NaN, NaT or NA.

    Example:
        >>> find_missing("x", [[1.0, 2.0], [float("nan"), 1.0]]).tolist()
        [False, True]
    """
    raw, _ = split_columns(name, data)
    missing = np.zeros(len(raw[0]) if raw else 0, bool)
    for column in raw:
        missing |= find_absent(column)
    return missing


def as_columns(
    name: str,
    data: Any,
    kinds: Sequence[str | None] | str | None = None,
    rows: Bool[np.ndarray, " n"] | None = None,
) -> Columns:
    """Bring samples of any form to columns, and recognise the kind of each.

    Args:
        name: what to call them in messages.
        data: array, tensor, data frame, series or sequence; one sample per row. More than two
            dimensions are flattened.
        kinds: "continuous" or "discrete", for all columns or for each; recognised if left out, as
            are those of columns with None.
        rows: those to keep; all if left out.

    Returns:
        The columns that vary; none if all are constant.

    Raises:
        ValueError: if it is not a table of numbers and labels.

    Example:
        >>> as_columns("x", [[0.5, 1], [0.25, 0], [0.125, 1]], ["continuous", "discrete"]).kinds
        ('continuous', 'discrete')
    """
    raw, labels = split_columns(name, data)
    if rows is not None:
        raw = [column[rows] for column in raw]
    if not raw or not len(raw[0]):
        raise ValueError(
            f"Expected {name} to have rows and columns but got none; pass one sample per row."
        )
    if kinds is None:
        given: list[str | None] = [None] * len(raw)
    else:
        check_list("kinds", kinds)
        given = [kinds] * len(raw) if isinstance(kinds, str) else list(kinds)
    if len(given) != len(raw):
        raise ValueError(
            f"Expected a kind for each of {len(raw)} columns but got {len(given)}; "
            "pass None for those to detect."
        )
    read: list[tuple[np.ndarray, Kind, bool]] = [
        _read(f"column {label} of {name}", column, kind)
        for label, column, kind in zip(labels, raw, given, strict=True)
    ]
    counted = [
        j
        for j, (column, kind) in enumerate(zip(raw, given, strict=True))
        if kind is None and read[j][1] == "discrete" and column.dtype.kind in "iuf"
    ]
    if len(counted) >= WIDE:
        for j in counted:
            read[j] = _read(f"column {labels[j]} of {name}", raw[j], "continuous")
    values, found, ranked = zip(*read, strict=True)
    varies = [j for j, v in enumerate(values) if (v != v[0]).any()]
    rng = np.random.default_rng([len(name), *name.encode()])  # other noise for x than for y
    smooth = [break_ties(values[j], rng) if found[j] == "continuous" else values[j] for j in varies]
    table = np.stack([values[j] for j in varies], 1) if varies else np.empty((len(raw[0]), 0))
    ties = any(v is not values[j] for v, j in zip(smooth, varies, strict=True))
    return Columns(
        name,
        table,
        tuple(found[j] for j in varies),
        tuple(labels[j] for j in varies),
        np.stack(smooth, 1) if ties else table,  # the same where nothing is equal, for memory
        tuple(label for j, label in enumerate(labels) if j not in varies),
        ranked=tuple(label for label, is_rank in zip(labels, ranked, strict=True) if is_rank),
    )


def check_repeats(side: Columns) -> Columns:
    """Check that labels do not just name the rows: nothing can be learnt about those.

    Example:
        >>> check_repeats(as_columns("x", ["a", "b", "b", "b"])).width
        1
    """
    for label, kind, values in zip(side.labels, side.kinds, side.values.T, strict=True):
        if kind == "discrete" and are_names(values):
            raise ValueError(
                f"Expected labels that repeat in column {label} of {side.name} but got "
                f"{len(np.unique(values))} different ones in {len(values)} rows; leave out what "
                "only names the rows, group the labels, or declare the column continuous."
            )
    return side


def are_names(codes: Float[np.ndarray, " n"]) -> bool:
    """Whether labels are nearly all different."""
    return len(codes) > FEW and len(np.unique(codes)) > NAMES * len(codes)


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


def _read(where: str, column: np.ndarray, kind: str | None) -> tuple[np.ndarray, Kind, bool]:
    """One column as numbers or codes, its kind, and whether ranks take the place of numbers."""
    if kind not in (None, "continuous", "discrete"):
        raise ValueError(
            f'Expected a kind "continuous" or "discrete" for {where} but got {kind!r}; '
            "pass None to have it detected."
        )
    absent = find_absent(column)
    if absent.any() and column.dtype.kind not in "fc":
        raise ValueError(
            f"Expected {where} without missing values but got {absent.sum()}, the first in row "
            f"{absent.argmax()}; pass drop_missing=True to leave out these rows, or fill them."
        )
    if column.dtype.kind == "O":
        column = _from_objects(where, column)
    if column.dtype.kind in "US":
        if kind == "continuous":
            raise ValueError(
                f"Expected numbers in {where} but got text such as {str(column[0])[:30]!r}; "
                'convert it to numbers, or say that it is "discrete".'
            )
        return _encode(column), "discrete", False
    if column.dtype.kind in "mM":
        column = column.astype(np.int64)  # a time is a number
    if column.dtype.kind not in "biuf":
        raise ValueError(
            f"Expected numbers or labels in {where} but got {column.dtype}; "
            "convert complex numbers to real ones, and records to columns."
        )
    numbers = column.astype(np.float64)
    bad = ~np.isfinite(numbers)
    if bad.any():
        raise ValueError(
            f"Expected finite numbers in {where} but got {numbers[bad.argmax()]} in {bad.sum()} of "
            f"{len(numbers)} rows, the first in row {bad.argmax()}; fill them, or pass "
            "drop_missing=True to leave out rows without a value."
        )
    if kind is None:
        whole = (numbers == np.floor(numbers)).all()
        few = len(np.unique(column)) <= max(2, min(FEW, len(numbers) // 20))
        kind = "discrete" if whole and few else "continuous"
    if kind == "discrete":
        return _encode(column), "discrete", False
    merged = _merged(column, numbers)
    return _encode(column) if merged else numbers, "continuous", merged


def _merged(column: np.ndarray, numbers: np.ndarray) -> bool:
    """Whether the ranks of numbers, which share what those share, take their place.

    As floating-point numbers some would be equal that are not, or their squares overflow.
    """
    largest = np.abs(numbers).max()
    if column.dtype.kind in "iu" and largest >= EXACT:
        return len(np.unique(numbers)) < len(np.unique(column))
    return bool(largest > LARGEST)


def _from_objects(where: str, column: np.ndarray) -> np.ndarray:
    """Objects as numbers where all are, else as text; large whole numbers stay exact."""
    if all(isinstance(v, Integral | np.bool_) for v in column):
        values = [int(v) for v in column]
        if max(map(abs, values)) < 2**63:
            return np.array(values, dtype=np.int64)
        if min(values) >= 0 and max(values) < 2**64:
            return np.array(values, dtype=np.uint64)
        places = {v: place for place, v in enumerate(sorted(set(values)))}
        return np.array([places[v] for v in values])  # what is shared depends on their order
    if all(isinstance(v, Real | Decimal | np.bool_) for v in column):
        try:
            return column.astype(np.float64)
        except OverflowError as error:
            raise ValueError(
                f"Expected numbers up to 1e308 in {where} but got larger ones; "
                "pass their logarithms."
            ) from error
    odd = next((v for v in column if not isinstance(v, Hashable) or hasattr(v, "__array__")), None)
    if odd is not None and not isinstance(odd, np.generic):
        raise ValueError(
            f"Expected numbers or labels in {where} but got values such as a {type(odd).__name__}; "
            "give each value a column of its own."
        )
    return np.array([str(v) for v in column])


def _encode(column: np.ndarray) -> np.ndarray:
    return np.unique(column, return_inverse=True)[1].reshape(-1).astype(np.float64)
