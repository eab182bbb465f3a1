"""How several variables share information: interaction, redundancy and synergy, total correlation.

All are sums and differences of mutual informations of the same rows. Each of those is the mean of a
share of each row, so that the error of a sum is that of the sum of the shares: parts that are high
in the same rows do not count as independent.

    interaction          I(x1; y | x2) - I(x1; y) = I(x1, x2; y) - I(x1; y) - I(x2; y)
    decomposition        I(x1, x2; y) = redundancy + unique_x1 + unique_x2 + synergy,
                         I(x1; y) = redundancy + unique_x1,  I(x2; y) = redundancy + unique_x2
    total correlation    sum_j I(g_1, ..., g_{j-1}; g_j)

The interaction is positive where both together say more than the sum of what each says: synergy
exceeds redundancy (McGill 1954). Co-information is the same with the other sign. A decomposition
needs one more equation, the definition of the redundancy:

    mmi    min(I(x1; y), I(x2; y)), for numbers and labels (Barrett 2015, equation 14)
    imin   sum_y p(y) min_i I(x_i; Y = y), for labels (Williams and Beer 2010, equation 3)

mmi is what most definitions agree on for Gaussians with one target. Both call it redundant that two
independent sources say as much (of copies of themselves); compare no values across definitions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from mibounds.measure.conditional_shares import codes_of, count_shares, t_quantile
from mibounds.measure.copula_model import CopulaModel
from mibounds.measure.copula_model.gaussian_regressions import gaussian_information
from mibounds.measure.estimation import EFFORTS
from mibounds.measure.quantities import Decomposition, Quantity
from mibounds.measure.splits import fold_rows, standard_error
from mibounds.samples.checks import check_count, check_level, check_seed
from mibounds.samples.columns import Columns, as_columns, check_repeats, find_missing
from mibounds.samples.precision import undisturbed

if TYPE_CHECKING:
    from jaxtyping import Float

__all__ = ["decompose", "interaction", "total_correlation"]

FEWEST = 50  # rows
LEARNT = 1.3  # by how much the errors of what is learnt are larger than those of sampling


@undisturbed
def interaction(
    x1: Any,
    x2: Any,
    y: Any,
    *,
    method: str = "default",
    level: float = 0.95,
    block: int = 1,
    budget: str = "default",
    seed: int = 0,
) -> Quantity:
    """The interaction information of three variables, I(x1; y | x2) - I(x1; y).

    Positive: together x1 and x2 say more of y than the sum of what each says (synergy). Negative:
    they say the same (redundancy). It does not depend on which of the three is called y.

    Args:
        x1: array, tensor, series or data frame, one sample per row; numbers or labels.
        x2: the same.
        y: the same.
        method: "counts" of labels, "gaussian" (a Gaussian copula), "copula_model"; by default
            counts where all are labels, and else the copula model.
        level: of the interval.
        block: rows that depend on each other, for time series.
        budget: of the copula model, "default" or "fast".
        seed: of folds and fits.

    Returns:
        The value in nats.

    Reference: McGill 1954; Williams and Beer 2010, equation 8, with its sign.

    Example:
        >>> a, b = np.random.default_rng(0).integers(2, size=(2, 1000))
        >>> round(interaction(a, b, a ^ b).bits, 1)
        1.0
    """
    parts = _Parts([x1, x2, y], ("x1", "x2", "y"), method, level, block, budget, seed)
    return parts.say("interaction", parts.both() - parts.one(0) - parts.one(1))


@undisturbed
def decompose(
    x1: Any,
    x2: Any,
    y: Any,
    *,
    definition: str = "mmi",
    method: str = "default",
    level: float = 0.95,
    block: int = 1,
    budget: str = "default",
    seed: int = 0,
) -> Decomposition:
    """Split what two sources say of a target into redundancy, unique parts and synergy.

    Args:
        x1: one source: array, tensor, series or data frame, one sample per row.
        x2: the other source.
        y: the target.
        definition: of the redundancy: "mmi" or, for labels, "imin"; see the module.
        method: as for `interaction`.
        level: of the intervals.
        block: rows that depend on each other, for time series.
        budget: of the copula model, "default" or "fast".
        seed: of folds and fits.

    Returns:
        The four parts and what they were made of, in nats.

    Reference: Williams and Beer 2010 (the lattice, figure 2); Barrett 2015 (mmi).

    Example:
        >>> a, b = np.random.default_rng(0).integers(2, size=(2, 1000))
        >>> found = decompose(a, b, a & b)
        >>> round(found.redundancy.bits, 1), round(found.synergy.bits, 1)
        (0.3, 0.5)
    """
    if definition not in ("mmi", "imin"):
        raise ValueError(
            f'Expected a definition "mmi" or "imin" but got {definition!r}; leave it out for mmi.'
        )
    parts = _Parts([x1, x2, y], ("x1", "x2", "y"), method, level, block, budget, seed)
    if definition == "imin" and parts.method != "counts":
        raise ValueError(
            'Expected labels for "imin" but got numbers; use "mmi", or bin the numbers.'
        )
    one, two, both = parts.one(0), parts.one(1), parts.both()
    if definition == "mmi":
        redundancy = parts.smaller("redundancy", one, two)
        unique = (
            parts.say("unique_x1", one - two, least=0.0),
            parts.say("unique_x2", two - one, least=0.0),
        )
        synergy = parts.smaller("synergy", both - one, both - two)
    else:
        same = parts.specific()
        redundancy = parts.say("redundancy", same, least=0.0)
        unique = (
            parts.say("unique_x1", one - same, least=0.0),
            parts.say("unique_x2", two - same, least=0.0),
        )
        synergy = parts.say("synergy", both - one - two + same, least=0.0)
    return Decomposition(
        redundancy,
        *unique,
        synergy,
        (
            parts.say("I(x1; y)", one, least=0.0),
            parts.say("I(x2; y)", two, least=0.0),
            parts.say("I(x1, x2; y)", both, least=0.0),
        ),
        parts.say("interaction", both - one - two),
        definition,
    )


@undisturbed
def total_correlation(
    *groups: Any,
    method: str = "default",
    level: float = 0.95,
    block: int = 1,
    budget: str = "default",
    kinds: str | None = None,
    seed: int = 0,
) -> Quantity:
    """The total correlation of several groups of columns, sum_j H(g_j) - H(g_1, ..., g_m).

    It is zero if and only if all groups are independent of each other, and the mutual information
    for two of them. `mibounds.TCPenalty` minimises it.

    Args:
        groups: two or more, each an array, tensor, series or data frame.
        method: as for `interaction`.
        level: of the interval.
        block: rows that depend on each other, for time series.
        budget: of the copula model, "default" or "fast".
        kinds: "continuous" or "discrete", of all columns; detected automatically if left out.
        seed: of folds and fits.

    Returns:
        The value in nats.

    Reference: Watanabe 1960.

    Example:
        >>> v = np.random.default_rng(0).normal(size=(1000, 3))
        >>> round(total_correlation(v[:, 0], v[:, 1] + v[:, 0], v[:, 2], budget="fast").nats, 1)
        0.3
    """
    if len(groups) < 2:
        raise ValueError(
            f"Expected at least two groups but got {len(groups)}; pass total_correlation(a, b, c)."
        )
    names = [f"group {j + 1}" for j in range(len(groups))]
    parts = _Parts(groups, names, method, level, block, budget, seed, kinds)
    every = range(len(groups))
    total = sum((parts.shares(every[:j], [j]) for j in every[1:]), np.zeros(parts.n))
    return parts.say("total correlation", total, least=0.0)


class _Parts:
    """Mutual informations of the same rows, as shares of each."""

    def __init__(
        self,
        data: Sequence[Any],
        names: Sequence[str],
        method: str,
        level: float,
        block: int,
        budget: str,
        seed: int,
        declared: str | None = None,
    ):
        check_level(level)
        check_count("block", block, 1)
        check_seed(seed)
        if budget not in EFFORTS:
            raise ValueError(
                f"Expected a budget among {', '.join(EFFORTS)} but got {budget!r}; leave it out."
            )
        self.sides = [_read(name, each, declared) for name, each in zip(names, data, strict=True)]
        self.n, self.level, self.block = len(self.sides[0]), level, block
        self.seed, self.effort, self.floor = seed, EFFORTS[budget], 0.0
        for side in self.sides:
            if len(side) != self.n:
                raise ValueError(
                    f"Expected as many rows of {side.name} as of {self.sides[0].name} but got "
                    f"{len(side)} and {self.n}; pass rows that belong together."
                )
        if self.n < FEWEST:
            raise ValueError(
                f"Expected at least {FEWEST} rows but got {self.n}; collect more of them."
            )
        kinds = {kind for side in self.sides for kind in side.kinds}
        if method == "default":
            method = "copula_model" if "continuous" in kinds else "counts"
        wanted = {"counts": {"discrete"}, "gaussian": {"continuous"}}.get(method, kinds)
        if method not in ("counts", "gaussian", "copula_model") or kinds != wanted:
            raise ValueError(
                "Expected a method among default, gaussian (numbers), counts (labels) and "
                f"copula_model but got {method!r} for {' and '.join(sorted(kinds))} columns; "
                "leave it out."
            )
        self.method = method

    def one(self, source: int) -> Float[np.ndarray, " n"]:
        """Shares of I(x_i; y)."""
        return self.shares([source], [2])

    def both(self) -> Float[np.ndarray, " n"]:
        """Shares of I(x1, x2; y)."""
        return self.shares([0, 1], [2])

    def shares(self, left: Sequence[int], right: Sequence[int]) -> Float[np.ndarray, " n"]:
        """Shares of the mutual information of two groups of sides."""
        x, y = _join(self.sides, left), _join(self.sides, right)
        none = np.empty((self.n, 0))
        if self.method == "counts":
            self.floor = max(self.floor, math.sqrt(x.codes()[1] * y.codes()[1] / 2) / self.n)
            return count_shares(x.values, y.values, none, series=False).values
        if self.method == "gaussian":
            self.floor = max(self.floor, math.sqrt(x.width * y.width / 2) / self.n)
            return gaussian_information(x.values, y.values, none)[1]
        return self._modelled(x, y)

    def _modelled(self, x: Columns, y: Columns) -> Float[np.ndarray, " n"]:
        folds = fold_rows(self.n, self.effort.folds, self.block, self.seed)
        found = CopulaModel(self.effort, self.seed).measure(x, y, None, folds)
        self.floor = max(self.floor, found.floor)
        return found.pointwise

    def specific(self) -> Float[np.ndarray, " n"]:
        """Shares of I_min: for each label of the target, those of the source that says less.

        Of the labels where source i says less, G_i = sum p(x, y) log p(y | x) / p(y) has the
        influence function log p(y | x) / p(y) at these labels less the probability of them given x.
        """
        y = codes_of(self.sides[2].values)
        n, labels = self.n, int(y.max()) + 1
        p_y = np.bincount(y) / n
        ratios, says = [], []
        for side in self.sides[:2]:
            x = codes_of(side.values)
            joint = np.bincount(x * labels + y, minlength=(x.max() + 1) * labels) / n
            joint = joint.reshape(-1, labels)
            ratios.append((x, joint, np.log(joint[x, y] / (joint.sum(1)[x] * p_y[y]))))
            says.append(np.bincount(y, ratios[-1][2]) / np.bincount(y))
        first = says[0] <= says[1]
        total, bias = np.zeros(n), 0.0
        for (x, joint, ratio), at in zip(ratios, (first, ~first), strict=True):
            given = joint[:, at].sum(1) / joint.sum(1)
            total += np.where(at[y], ratio, 0.0) - given[x] + p_y[at].sum()
            cells = np.count_nonzero(joint[:, at])
            bias += (cells - given.sum() - at.sum() + p_y[at].sum()) / (2 * n)
        return total - bias

    def say(self, name: str, shares: Float[np.ndarray, " n"], least: float = -math.inf) -> Quantity:
        """A sum of shares as a number with its interval, none of it below the least possible."""
        nats, error = float(shares.mean()), self._error(shares)
        reach = self._quantile((1 + self.level) / 2, shares) * error
        ends = max(nats - reach, least), max(nats + reach, least)
        nats = max(nats, least)
        return Quantity(name, nats, ends, error, self.level, self.method, self.n)

    def smaller(
        self, name: str, a: Float[np.ndarray, " n"], b: Float[np.ndarray, " n"]
    ) -> Quantity:
        """The smaller one of two values, not below zero.

        Its interval ends at the smaller upper end, where each has half of the chance to be too low.
        """
        found = min(self.say(name, a, 0.0), self.say(name, b, 0.0), key=lambda each: each.nats)
        tail = (1 - self.level) / 2
        low, high = (
            min(s.mean() + sign * self._quantile(p, s) * self._error(s) for s in (a, b))
            for sign, p in ((-1, 1 - tail), (1, 1 - tail / 2))
        )
        return replace(found, interval=(max(float(low), 0.0), max(float(high), 0.0)))

    def _error(self, shares: Float[np.ndarray, " n"]) -> float:
        widened = LEARNT if self.method == "copula_model" else 1.0
        return math.hypot(widened * standard_error(shares, self.block)[0], self.floor)

    def _quantile(self, probability: float, shares: Float[np.ndarray, " n"]) -> float:
        return t_quantile(probability, float(len(shares) // self.block - 1))


def _read(name: str, data: Any, kinds: str | None) -> Columns:
    """One variable as columns that vary, its numbers as normal scores."""
    missing = find_missing(name, data)
    if missing.any():
        raise ValueError(
            f"Expected {name} without missing values but got {missing.sum()}, the first in row "
            f"{missing.argmax()}; leave out these rows, or fill them."
        )
    side = check_repeats(as_columns(name, data, kinds))
    if not side.width:
        raise ValueError(
            f"Expected {name} to vary but got one value in all rows; leave it out, since a "
            "constant shares nothing."
        )
    return side.scored()


def _join(sides: Sequence[Columns], places: Sequence[int]) -> Columns:
    """Several variables as one."""
    own = [sides[j] for j in places]
    return Columns(
        " and ".join(side.name for side in own),
        np.hstack([side.values for side in own]),
        tuple(kind for side in own for kind in side.kinds),
        tuple(label for side in own for label in side.labels),
        np.hstack([side.smooth for side in own]),
        normal=True,
    )
