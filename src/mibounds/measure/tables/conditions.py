"""What a column adds to others: ranks given columns that were chosen before.

A column v is replaced by where it lies among the rows that are alike in a column s, that is by an
estimate of its conditional distribution F(v | s), which is independent of s. Of both x and y that
leaves

    I(x; y | s) >= I(F(x|s); F(y|s)),

with equality where the copula of x and y given s is the same for every s: the simplifying
assumption of vine copulas. Column after column, each chosen one in the form that it has by then,
this is Gram and Schmidt's procedure in ranks: for normal variables it gives partial correlations,
and the gains add up to what all chosen columns tell of the target.

Numbers lose a straight line in the normal scores of s, then take their place among `WINDOW` rows
that are nearest in s. Labels lie at random within the share of rows that their label has there, as
rounded numbers do.

References: Rosenblatt 1952 for F; Aas, Czado, Frigessi and Bakken 2009 for vines, equation 6.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from mibounds.measure.tables.variables import Variable, pattern_of, score

if TYPE_CHECKING:
    from jaxtyping import Float

__all__ = ["condition"]

WINDOW = 4.0  # times the square root of the rows, but at most a fifth of them


def condition(v: Variable, s: Variable) -> Variable:
    """A column given another: numbers that are independent of it, as far as they can tell.

    Args:
        v: numbers, or labels in the order of their codes.
        s: the column that is given. Rows without its value are left out.

    Returns:
        Numbers in place of v.

    Example:
        >>> from mibounds.measure.tables.variables import read_variables
        >>> rng = np.random.default_rng(0)
        >>> s = rng.normal(size=(2000, 1))
        >>> v, s = read_variables("x", np.hstack([s**3 + rng.normal(size=(2000, 1)), s]))
        >>> left = condition(v, s)
        >>> bool(abs(np.corrcoef(left.values, s.values)[0, 1]) < 0.1)
        True
    """
    present = v.present & s.present
    if not present.any() or not (s.varies(present) and v.varies(present)):
        return replace(v, present=present, pattern=pattern_of(present))
    values = np.zeros_like(v.values)
    own = v.values[present], v.noise[present]
    if s.kind == "discrete":
        values[present] = _within_labels(s.values[present], *own)
    else:
        values[present] = _within_windows(
            score(s.values[present], s.noise[present]), *own, numbers=v.kind == "continuous"
        )
    return replace(
        v, kind="continuous", values=values, present=present, tied=0.0, place=(*v.place, s.name),
        pattern=pattern_of(present),
    )  # fmt: skip


def _within_labels(
    s: Float[np.ndarray, " n"], values: Float[np.ndarray, " n"], noise: Float[np.ndarray, " n"]
) -> Float[np.ndarray, " n"]:
    found = np.empty(len(s))
    for label in np.unique(s):
        mine = s == label
        found[mine] = score(values[mine], noise[mine])
    return found


def _within_windows(
    s: Float[np.ndarray, " n"],
    values: Float[np.ndarray, " n"],
    noise: Float[np.ndarray, " n"],
    numbers: bool,
) -> Float[np.ndarray, " n"]:
    n = len(s)
    half = max(4, int(min(WINDOW * math.sqrt(n), n / 5) / 2))
    z = score(values, noise)
    if numbers:
        rho = (z @ s) / (s @ s)
        z = z - rho * s
    order = np.argsort(s)
    v = z[order]
    start = np.clip(np.arange(n) - half, 0, max(n - 2 * half - 1, 0))
    below, equal = np.zeros((2, n))
    inside = min(2 * half + 1, n)
    for shift in range(inside):
        other = v[start + shift]
        below += other < v
        equal += other == v
    found = np.empty(n)
    found[order] = (below + noise[order] * equal) / inside
    return found
