"""Which rows: folds, subsets and orders that keep runs of dependent rows together.

In a time series, neighbouring rows depend on each other. ``block`` rows in a row count as one unit
there; with ``block=1`` every row is its own unit. Elsewhere rows of one group do, such as those of
one patient: ``groups`` has a code 0, 1, ... for each row, and a group is a unit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from jaxtyping import Float, Int

FEWEST_BLOCKS = 5  # of rows that depend on each other, for an error


def fold_rows(
    n: int, folds: int, block: int, seed: int, groups: Int[np.ndarray, " n"] | None = None
) -> list[np.ndarray]:
    """Rows of each fold: at random, or contiguous or whole groups where rows depend on each other.

    The largest groups come first, each into the fold that is smallest by then.

    Example:
        >>> fold_rows(6, 2, block=3, seed=0)
        [array([0, 1, 2]), array([3, 4, 5])]
        >>> fold_rows(6, 2, block=1, seed=0, groups=np.array([0, 1, 0, 2, 0, 1]))
        [array([4, 2, 0]), array([3, 1, 5])]
    """
    rng = np.random.default_rng(seed)
    if groups is not None:
        members = _members(groups)
        found: list[list[np.ndarray]] = [[] for _ in range(folds)]
        sizes = [0] * folds
        order = rng.permutation(len(members))
        for group in sorted(order, key=lambda g: -len(members[g])):
            smallest = sizes.index(min(sizes))
            found[smallest].append(rng.permutation(members[group]))
            sizes[smallest] += len(members[group])
        return [np.concatenate([each[i] for i in rng.permutation(len(each))]) for each in found]
    if block == 1:
        return np.array_split(rng.permutation(n), folds)
    return np.array_split(np.arange(n), folds)


def split_rows(
    folds: Sequence[np.ndarray], fold: int
) -> tuple[Int[np.ndarray, " a"], Int[np.ndarray, " b"]]:
    """Rows to fit to and rows that stop the fit, all from the other folds.

    Example:
        >>> train, check = split_rows([np.arange(8), np.arange(8, 1000)], 0)
        >>> len(train), len(check)
        (868, 124)
    """
    rest = np.concatenate([folds[(fold + j) % len(folds)] for j in range(1, len(folds))])
    size = min(max(len(rest) // 8, min(50, len(rest) // 3)), 5000)
    return rest[size:], rest[:size]


def _members(groups: Int[np.ndarray, " n"]) -> list[np.ndarray]:
    """The rows of each group."""
    order = np.argsort(groups, kind="stable")
    return np.split(order, np.cumsum(np.bincount(groups))[:-1])


def some_rows(
    n: int,
    most: int,
    block: int,
    rng: np.random.Generator,
    groups: Int[np.ndarray, " n"] | None = None,
) -> np.ndarray:
    """At most that many rows: a random subset, one stretch, or some groups, one after the other.

    Example:
        >>> np.diff(some_rows(100, 4, block=2, rng=np.random.default_rng(0)))
        array([1, 1, 1])
    """
    if groups is not None:
        members = _members(groups)
        return np.concatenate([members[g] for g in rng.permutation(len(members))])[:most]
    if n <= most:
        return np.arange(n)
    if block == 1:
        return np.sort(rng.choice(n, most, replace=False))
    start = rng.integers(n - most + 1)
    return np.arange(start, start + most)


def permute_rows(
    n: int, block: int, rng: np.random.Generator, groups: Int[np.ndarray, " n"] | None = None
) -> np.ndarray:
    """A random order of the rows, or of their blocks or groups where rows depend on each other.

    Example:
        >>> sorted(permute_rows(5, block=2, rng=np.random.default_rng(0)).tolist())
        [0, 1, 2, 3, 4]
    """
    if groups is not None:
        members = _members(groups)
        return np.concatenate([members[g] for g in rng.permutation(len(members))])
    if block == 1:
        return rng.permutation(n)
    starts = rng.permutation(math.ceil(n / block)) * block
    return np.concatenate([np.arange(s, min(s + block, n)) for s in starts])


def standard_error(
    values: Float[np.ndarray, " n"], block: int, groups: Int[np.ndarray, " n"] | None = None
) -> tuple[float, int]:
    """Standard error of the mean, and its degrees of freedom.

    Where rows depend on each other, it comes from the sums of blocks or groups, of which there must
    be some: the error of an error from k of them is one part in the square root of 2 (k - 1).

    Example:
        >>> standard_error(np.array([0.0, 1.0, 0.0, 1.0]), block=1)
        (0.28867513459481287, 3)
    """
    if groups is not None:
        sums = np.bincount(groups, values - values.mean())
        units = len(sums)
        return float(np.sqrt((sums**2).sum() * units / (units - 1)) / len(values)), units - 1
    if block > 1:
        runs = len(values) // block
        if runs < FEWEST_BLOCKS:
            raise ValueError(
                f"Expected at least {FEWEST_BLOCKS} blocks of {block} rows but got {len(values)} "
                "rows; pass a smaller block, or more rows."
            )
        values = values[: runs * block].reshape(runs, block).mean(1)
    return float(values.std(ddof=1) / math.sqrt(len(values))), len(values) - 1
