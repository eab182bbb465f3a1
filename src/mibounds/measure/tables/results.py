"""What `rank` and `matrix` found, as data: numbers, names and units. They compute nothing else."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch

from mibounds.measure.results import Advice
from mibounds.measure.tables.frames import build, floats, open_pandas, plain
from mibounds.measure.tables.scales import Unit, convert
from mibounds.measure.tables.values import METHODS

if TYPE_CHECKING:
    from jaxtyping import Float, Int

__all__ = ["MatrixData", "Pair", "RankedColumn", "RankingData"]

M = TypeVar("M", bound="MatrixData")
R = TypeVar("R", bound="RankingData")


@dataclass(frozen=True)
class Pair:
    """One pair of columns.

    Args:
        left: name of a column.
        right: name of another.
        nats: their mutual information.
        low: lower end of its interval.
        high: upper end.
        value: in the unit that was asked for.
        p_value: of independence, corrected for the number of pairs.
        rows: that have a value of both.
        method: "series", "neighbours" or "counts".
    """

    left: str
    right: str
    nats: float
    low: float
    high: float
    value: float
    p_value: float
    rows: int
    method: str


@dataclass(frozen=True, eq=False)
class MatrixData:
    """Mutual information of pairs of columns, as data.

    Args:
        left: names of the rows of the matrix.
        right: names of its columns.
        left_kinds: "continuous" for numbers or "discrete" for labels.
        right_kinds: the same.
        symmetric: whether both are the same columns.
        nats: the values, (left, right). On the diagonal of a symmetric matrix stands the entropy of
            a label, and infinity for numbers.
        below: the lower side of an interval, as a standard deviation in nats.
        above: the upper side.
        p_values: of independence, each by itself.
        corrected: corrected for their number.
        rows: how many have values of both columns.
        methods: behind each value, as an index of ``METHODS``.
        left_entropy: of each column in nats; infinite for numbers.
        right_entropy: the same.
        level: how often an interval covers the truth.
        correction: how p-values are corrected.
        warnings: reasons to distrust some of the values.
        seconds: the time it took.
        config: all settings, of types that JSON has.
    """

    left: tuple[str, ...]
    right: tuple[str, ...]
    left_kinds: tuple[str, ...]
    right_kinds: tuple[str, ...]
    symmetric: bool
    nats: Float[np.ndarray, "L R"]
    below: Float[np.ndarray, "L R"]
    above: Float[np.ndarray, "L R"]
    p_values: Float[np.ndarray, "L R"]
    corrected: Float[np.ndarray, "L R"]
    rows: Int[np.ndarray, "L R"]
    methods: Int[np.ndarray, "L R"]
    left_entropy: Float[np.ndarray, " L"]
    right_entropy: Float[np.ndarray, " R"]
    level: float
    correction: str
    warnings: tuple[Advice, ...]
    seconds: float
    config: dict[str, Any]

    @property
    def entropy(self) -> Float[np.ndarray, "L R"]:
        """The smaller entropy of each pair; infinite for two columns of numbers."""
        return np.minimum(self.left_entropy[:, None], self.right_entropy)

    @property
    def low(self) -> Float[np.ndarray, "L R"]:
        """Lower ends of the intervals, in nats."""
        return np.maximum(self.nats - self._width(self.below), 0.0)

    @property
    def high(self) -> Float[np.ndarray, "L R"]:
        """Upper ends of the intervals, in nats."""
        return np.minimum(self.nats + self._width(self.above), np.maximum(self.entropy, self.nats))

    def values(self, unit: Unit = "nats") -> Float[np.ndarray, "L R"]:
        """The values in a unit: "nats", "bits", or "normalised" to [0, 1].

        Normalised is sqrt(1 - exp(-2 I)) for two columns of numbers, the correlation of normal
        variables that share as much, and I / min(H) where there are labels
        (`mibounds.measure.tables.scales`).
        """
        return convert(self.nats, unit, self.entropy)

    def significant(self, level: float = 0.05) -> np.ndarray:
        """Which pairs are dependent: their corrected p-value is at most the level."""
        return self.corrected <= level

    def pairs(self, unit: Unit = "nats") -> list[Pair]:
        """All pairs, each once, the strongest first; those without a value last."""
        values = self.values(unit)
        low, high = self.low, self.high
        found = [
            Pair(
                left=self.left[i],
                right=self.right[j],
                nats=float(self.nats[i, j]),
                low=float(low[i, j]),
                high=float(high[i, j]),
                value=float(values[i, j]),
                p_value=float(self.corrected[i, j]),
                rows=int(self.rows[i, j]),
                method=METHODS[self.methods[i, j]],
            )
            for i, j in zip(*self.places(), strict=True)
        ]
        return sorted(found, key=lambda pair: -pair.value if pair.value == pair.value else 1.0)

    def to_frame(self, unit: Unit = "nats") -> Any:
        """The matrix as a pandas DataFrame. Needs the extra ``tables``.

        Args:
            unit: "nats", "bits" or "normalised".
        """
        return open_pandas().DataFrame(self.values(unit), index=self.left, columns=self.right)

    def pairs_frame(self, unit: Unit = "nats") -> Any:
        """`pairs` as a pandas DataFrame, a line each. Needs the extra ``tables``."""
        names = list(Pair.__dataclass_fields__)
        return open_pandas().DataFrame([vars(p) for p in self.pairs(unit)], columns=names)

    def to_json(self, indent: int | None = None) -> str:
        """The fields by their names, as JSON; NaN and infinity as strings.

        Args:
            indent: spaces per level; everything on one line if left out.
        """
        fields = {name: getattr(self, name) for name in self.__dataclass_fields__}
        fields["warnings"] = [vars(each) for each in self.warnings]
        return json.dumps(plain(fields), indent=indent, allow_nan=False, ensure_ascii=False)

    @classmethod
    def from_json(cls: type[M], text: str) -> M:
        """Read what `to_json` has written."""
        data = json.loads(text)
        missing = [name for name in cls.__dataclass_fields__ if name not in data]
        if missing:
            raise ValueError(
                f"Expected the fields of a matrix but got none called {missing[0]!r}; "
                "pass the output of to_json."
            )
        fields = {name: data[name] for name in cls.__dataclass_fields__}
        for name in ("nats", "below", "above", "p_values", "corrected"):
            fields[name] = floats(fields[name])
        for name in ("left_entropy", "right_entropy"):
            fields[name] = floats([fields[name]])[0]
        for name in ("rows", "methods"):
            fields[name] = np.array(fields[name], dtype=np.int64)
        for name in ("left", "right", "left_kinds", "right_kinds"):
            fields[name] = tuple(fields[name])
        fields["warnings"] = build(Advice, fields["warnings"])
        return cls(**fields)

    def places(self) -> tuple[np.ndarray, np.ndarray]:
        """Rows and columns of the pairs, each pair once."""
        if self.symmetric:
            return np.triu_indices(len(self.left), 1)
        i, j = np.indices(self.nats.shape)
        return i.ravel(), j.ravel()

    def _width(self, side: np.ndarray) -> np.ndarray:
        quantile = torch.special.ndtri(torch.tensor((1 + self.level) / 2, dtype=torch.float64))
        return float(quantile) * side


@dataclass(frozen=True)
class RankedColumn:
    """What one column tells of the target.

    Args:
        name: of the column.
        kind: "continuous" for numbers or "discrete" for labels.
        nats: mutual information with the target.
        low: lower end of its interval.
        high: upper end.
        p_value: of independence, corrected for the number of columns.
        share: of the entropy of the target; None where the target is a number.
        gain: nats that it adds to the columns chosen before it; None if not asked for.
        chosen: its place among the chosen columns, from 1; None if it is none of them.
        rows: that have a value of both.
        method: "series", "neighbours" or "counts".

    Example:
        >>> column = RankedColumn(
        ...     "a", "continuous", 0.5, 0.4, 0.6, 0.01, 0.7, None, None, 100, "series")
        >>> round(column.bits, 2)
        0.72
    """

    name: str
    kind: str
    nats: float
    low: float
    high: float
    p_value: float
    share: float | None
    gain: float | None
    chosen: int | None
    rows: int
    method: str

    @property
    def bits(self) -> float:
        """The value in bits."""
        return self.nats / math.log(2)


@dataclass(frozen=True)
class RankingData:
    """Columns by what they tell of a target, as data.

    Args:
        target: its name.
        target_kind: "continuous" for numbers or "discrete" for labels.
        entropy: of the target in nats; None for numbers, which have none.
        columns: the chosen ones in their order, then the others, the strongest first.
        given: "selected" if columns were chosen one after the other, else None.
        level: how often an interval covers the truth.
        correction: how p-values are corrected.
        warnings: reasons to distrust some of the values.
        seconds: the time it took.
        config: all settings, of types that JSON has.
    """

    target: str
    target_kind: str
    entropy: float | None
    columns: tuple[RankedColumn, ...]
    given: str | None
    level: float
    correction: str
    warnings: tuple[Advice, ...]
    seconds: float
    config: dict[str, Any]

    @property
    def names(self) -> tuple[str, ...]:
        """The columns in their order."""
        return tuple(c.name for c in self.columns)

    def significant(self, level: float = 0.05) -> tuple[str, ...]:
        """Columns that depend on the target: their corrected p-value is at most the level."""
        return tuple(c.name for c in self.columns if c.p_value <= level)

    def to_frame(self) -> Any:
        """The columns as a pandas DataFrame, a line each. Needs the extra ``tables``."""
        names = list(RankedColumn.__dataclass_fields__)
        frame = open_pandas().DataFrame([asdict(c) for c in self.columns], columns=names)
        frame.insert(names.index("nats") + 1, "bits", [c.bits for c in self.columns])
        return frame

    def to_json(self, indent: int | None = None) -> str:
        """The fields by their names, as JSON; NaN and infinity as strings.

        Args:
            indent: spaces per level; everything on one line if left out.
        """
        return json.dumps(plain(asdict(self)), indent=indent, allow_nan=False, ensure_ascii=False)

    @classmethod
    def from_json(cls: type[R], text: str) -> R:
        """Read what `to_json` has written."""
        data = json.loads(text)
        missing = [name for name in cls.__dataclass_fields__ if name not in data]
        if missing:
            raise ValueError(
                f"Expected the fields of a ranking but got none called {missing[0]!r}; "
                "pass the output of to_json."
            )
        fields = {name: data[name] for name in cls.__dataclass_fields__}
        numbers = ("nats", "low", "high", "p_value")
        rows = [row | {n: float(row[n]) for n in numbers if n in row} for row in fields["columns"]]
        fields["columns"] = build(RankedColumn, rows)
        fields["warnings"] = build(Advice, fields["warnings"])
        return cls(**fields)
