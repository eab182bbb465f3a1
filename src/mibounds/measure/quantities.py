"""Single numbers with an interval, and the parts of a decomposition."""

from __future__ import annotations

import dataclasses
import json
import math
from dataclasses import dataclass
from html import escape
from typing import Any

from mibounds.measure.wording import many, number, printable

__all__ = ["Decomposition", "Quantity"]


@dataclass(frozen=True)
class Quantity:
    """A number with its interval.

    Args:
        name: what it is, as a formula.
        nats: the value.
        interval: its lower and upper end.
        error: its standard error.
        level: how often such an interval covers the truth.
        method: how it was computed.
        n: rows.

    Example:
        >>> print(Quantity("H(x)", 0.693, (0.65, 0.71), 0.02, 0.95, "counts", 100))
        H(x)  0.6930 nats, 95 % interval 0.6500 ... 0.7100  (0.9998 bits)
              by counts, 100 rows
    """

    name: str
    nats: float
    interval: tuple[float, float]
    error: float
    level: float
    method: str
    n: int

    @property
    def bits(self) -> float:
        """The value in bits."""
        return self.nats / math.log(2)

    def __str__(self) -> str:
        name, low, high = printable(self.name), *map(number, self.interval)
        return (
            f"{name}  {number(self.nats)} nats, {100 * self.level:.4g} % interval {low} ... {high}"
            f"  ({number(self.bits)} bits)\n"
            f"{' ' * len(name)}  by {printable(self.method)}, {many(self.n, 'row')}"
        )

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"

    def to_json(self, indent: int | None = None) -> str:
        """The fields by their names and the value in bits, as JSON.

        Args:
            indent: spaces per level; everything on one line if left out.
        """
        fields = {**dataclasses.asdict(self), "bits": self.bits}
        return json.dumps(fields, indent=indent, ensure_ascii=False)


@dataclass(frozen=True)
class Decomposition:
    """What two sources say of a target: alone, both the same, only together.

    Args:
        redundancy: what either says.
        unique_x1: what only the first says.
        unique_x2: what only the second says.
        synergy: what only both together say.
        information: I(x1; y), I(x2; y) and I(x1, x2; y).
        interaction: synergy less redundancy.
        definition: of the redundancy, from which the other parts follow.

    Example:
        >>> part = Quantity("redundancy", 0.1, (0.0, 0.2), 0.05, 0.95, "counts", 100)
        >>> found = Decomposition(part, part, part, part, (part, part, part), part, "mmi")
        >>> print(found).__class__
        redundancy  0.1000 nats, 0.0000 ... 0.2000
        redundancy  0.1000 nats, 0.0000 ... 0.2000
        redundancy  0.1000 nats, 0.0000 ... 0.2000
        redundancy  0.1000 nats, 0.0000 ... 0.2000
        redundancy  0.1000 nats, 0.0000 ... 0.2000
        redundancy  0.1000 nats, 0.0000 ... 0.2000
        redundancy  0.1000 nats, 0.0000 ... 0.2000
        redundancy  0.1000 nats, 0.0000 ... 0.2000
        redundancy by mmi; 95 % intervals, by counts, 100 rows
        <class 'NoneType'>
    """

    redundancy: Quantity
    unique_x1: Quantity
    unique_x2: Quantity
    synergy: Quantity
    information: tuple[Quantity, Quantity, Quantity]
    interaction: Quantity
    definition: str

    @property
    def rows(self) -> tuple[Quantity, ...]:
        """All numbers, the four parts first."""
        parts = self.redundancy, self.unique_x1, self.unique_x2, self.synergy
        return *parts, *self.information, self.interaction

    def __str__(self) -> str:
        width = max(len(row.name) for row in self.rows)
        lines = [
            f"{row.name:<{width}}  {number(row.nats)} nats, "
            f"{number(row.interval[0])} ... {number(row.interval[1])}"
            for row in self.rows
        ]
        first = self.redundancy
        return "\n".join(
            [
                *lines,
                f"redundancy by {self.definition}; {100 * first.level:.4g} % intervals, by "
                f"{first.method}, {many(first.n, 'row')}",
            ]
        )

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"

    def to_json(self, indent: int | None = None) -> str:
        """All numbers by their names, as JSON.

        Args:
            indent: spaces per level; everything on one line if left out.
        """
        return json.dumps(dataclasses.asdict(self), indent=indent, ensure_ascii=False)

    def to_frame(self) -> Any:
        """The numbers as a pandas DataFrame, one line each. Needs the extra ``tables``."""
        try:
            import pandas
        except ImportError as error:
            raise ImportError(
                "to_frame() needs the package pandas, which is not installed; "
                "install it with: pip install 'mibounds[tables]'"
            ) from error
        return pandas.DataFrame(
            [
                {"name": r.name, "nats": r.nats, "bits": r.bits, "low": r.interval[0],
                 "high": r.interval[1], "error": r.error}
                for r in self.rows
            ]
        )  # fmt: skip
