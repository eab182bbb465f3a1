"""Columns of a table, each by itself: its kind, where it has values, its ranks."""

from __future__ import annotations

import hashlib
import math
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from mibounds.measure.tables.pairs import prepare
from mibounds.samples.arrays import split_columns
from mibounds.samples.checks import check_list
from mibounds.samples.columns import (
    Kind,
    are_names,
    as_columns,
    find_missing,
    normal_scores,
)

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int

__all__ = ["Rows", "Variable", "entropy_of", "pattern_of", "read_variables", "score"]

TINY = 1e-7  # of noise, beside normal scores
KEPT = 2**28  # numbers in memory: ranks of columns, each in some of the rows


@dataclass(frozen=True)
class Variable:
    """A column.

    Args:
        name: of the column.
        kind: "continuous" for numbers, "discrete" for labels.
        values: numbers or codes; 0 where there is none.
        present: rows that have a value.
        noise: what tells equal numbers apart.
        place: which column it is, the same for no other one.
        pattern: the same for columns with values in the same rows.
        tied: share of the rows that have the most common value.
        names_rows: whether it has labels that are nearly all different.
    """

    name: str
    kind: Kind
    values: Float[np.ndarray, " n"]
    present: Bool[np.ndarray, " n"]
    noise: Float[np.ndarray, " n"]
    place: tuple[str | int, ...]
    pattern: bytes = field(repr=False)
    tied: float = 0.0
    names_rows: bool = False

    @property
    def entropy(self) -> float:
        """In nats, with the bias of counts taken off; infinite for numbers."""
        if self.kind == "continuous":
            return math.inf
        counts = np.unique(self.values[self.present], return_counts=True)[1]
        return entropy_of(counts)

    def varies(self, rows: Bool[np.ndarray, " n"]) -> bool:
        """Whether it has more than one value there."""
        own = self.values[rows]
        return bool((own != own[0]).any())


class Rows:
    """Ranks and codes of columns in some of the rows, kept for the next pair."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Any, np.ndarray] = OrderedDict()
        self._stacked: OrderedDict[Any, torch.Tensor] = OrderedDict()

    def scores(self, v: Variable, rows: Bool[np.ndarray, " n"]) -> Float[np.ndarray, " m"]:
        """Normal scores of a column of numbers."""
        return self._keep(v, rows, lambda: score(v.values[rows], v.noise[rows]))

    def places(self, v: Variable, rows: Bool[np.ndarray, " n"]) -> Float[np.ndarray, " m"]:
        """Normal scores of mean ranks, with hardly any noise between equal numbers."""
        return normal_scores(v.values[rows]) + TINY * v.noise[rows]

    def codes(self, v: Variable, rows: Bool[np.ndarray, " n"]) -> Int[np.ndarray, " m"]:
        """Codes of a column of labels, 0, 1, ... without gaps."""
        return self._keep(v, rows, lambda: np.unique(v.values[rows], return_inverse=True)[1])

    def prepared(
        self, vs: Sequence[Variable], rows: Bool[np.ndarray, " n"], device: torch.device
    ) -> Float[torch.Tensor, "J R m"]:
        """Columns of numbers as `mibounds.measure.tables.pairs` needs them."""
        key = (tuple(v.place for v in vs), pattern_of(rows))
        if key not in self._stacked:
            while len(self._stacked) > 1:
                self._stacked.popitem(last=False)
            scores = np.stack([self.scores(v, rows) for v in vs])
            z = torch.as_tensor(scores, dtype=torch.float32, device=device)
            self._stacked[key] = prepare(z)
        return self._stacked[key]

    def _keep(self, v: Variable, rows: np.ndarray, compute: Any) -> np.ndarray:
        key = (v.place, pattern_of(rows))
        if key not in self._kept:
            self._kept[key] = compute()
            if len(self._kept) * len(rows) > KEPT:
                self._kept.popitem(last=False)
        return self._kept[key]


def pattern_of(present: Bool[np.ndarray, " n"]) -> bytes:
    """The same for columns with values in the same rows; empty where all have one."""
    return b"" if present.all() else _digest(present)


def _digest(rows: np.ndarray) -> bytes:
    return hashlib.blake2b(np.packbits(rows).tobytes(), digest_size=16).digest()


def score(
    values: Float[np.ndarray, " n"], noise: Float[np.ndarray, " n"] | None = None
) -> Float[np.ndarray, " n"]:
    """Quantiles of a standard normal at the ranks; noise tells equal numbers apart.

    Example:
        >>> score(np.array([10.0, 3.0, 1000.0])).round(3)
        array([ 0.   , -0.967,  0.967])
    """
    n = len(values)
    if noise is None:
        noise = np.random.default_rng(0).random(n)
    ranks = np.empty(n)
    ranks[np.lexsort((noise, values))] = np.arange(n)
    return torch.special.ndtri(torch.from_numpy((ranks + 0.5) / n)).numpy()


def entropy_of(counts: Int[np.ndarray, " k"]) -> float:
    """Entropy of labels in nats from how often each occurs, with the bias of counts taken off.

    Reference: Miller 1955.

    Example:
        >>> round(entropy_of(np.array([500, 500])), 4), round(math.log(2), 4)
        (0.6936, 0.6931)
    """
    counts = counts[counts > 0]
    n = max(int(counts.sum()), 1)  # where there are none
    p = counts / n
    return float(-(p * np.log(p)).sum()) + max(len(p) - 1, 0) / (2 * n)


def read_variables(
    what: str,
    table: Any,
    kinds: Sequence[str | None] | str | None = None,
    seed: int = 0,
    names: Sequence[str] | None = None,
) -> list[Variable]:
    """The columns of a table, each with its own rows.

    Args:
        what: to call it in messages.
        table: data frame, array, tensor or series; one sample per row.
        kinds: "continuous" or "discrete", for all columns or for each; recognised if left out.
        seed: of the noise that tells equal numbers apart.
        names: of the columns; those of the table if left out.

    Returns:
        A variable for each column. One without two different values varies in no rows.

    Example:
        >>> found = read_variables("table", [[0.5, 1], [0.25, 0], [float("nan"), 1]])
        >>> [v.kind for v in found], found[0].present.tolist()
        (['continuous', 'discrete'], [True, True, False])
    """
    raw, found = split_columns(what, table)
    for word, value in (("names", names), ("kinds", kinds)):
        if value is not None:
            check_list(word, value)
    names = found if names is None else [str(name) for name in names]
    if len(names) != len(found):
        raise ValueError(
            f"Expected a name for each of {len(found)} columns of {what} but got {len(names)}; "
            "leave them out to number the columns."
        )
    if not raw or not len(raw[0]):
        raise ValueError(
            f"Expected {what} to have rows and columns but got none; pass one sample per row."
        )
    given = [kinds] * len(raw) if kinds is None or isinstance(kinds, str) else list(kinds)
    if len(given) != len(raw):
        raise ValueError(
            f"Expected a kind for each of {len(raw)} columns of {what} but got {len(given)}; "
            "pass None for those to detect."
        )
    if len(set(names)) < len(names):
        twice = next(name for i, name in enumerate(names) if name in names[:i])
        raise ValueError(
            f"Expected different names of the columns of {what} but got {twice!r} twice; "
            "rename one."
        )
    return [
        _read(what, j, name, column, kind, seed)
        for j, (name, column, kind) in enumerate(zip(names, raw, given, strict=True))
    ]


def _read(
    what: str, j: int, name: str, column: np.ndarray, kind: str | None, seed: int
) -> Variable:
    present = ~find_missing(what, column)
    values = np.zeros(len(column))
    found: Kind = "discrete"  # a constant, or nothing at all
    tied, names_rows = 1.0, False
    if present.any():
        own = as_columns(f"{name} in {what}", column, kind, present)
        if own.width:
            found = own.kinds[0]
            values[present] = own.values[:, 0]
            tied = float(np.unique(own.values, return_counts=True)[1].max() / len(own))
            names_rows = found == "discrete" and are_names(own.values[:, 0])
    # By its values, so that a column has the same noise in every table, and no other one has it.
    content = hashlib.blake2b(values.tobytes(), digest_size=8).digest()
    noise = np.random.default_rng([seed, *content]).random(len(column))
    pattern = pattern_of(present)
    return Variable(name, found, values, present, noise, (what, j), pattern, tied, names_rows)
