"""Means of numbers that come row by row, and how much they scatter: one pass, constant memory.

The sums are kept apart for 64 groups of rows (row i belongs to group i mod 64), so that the value
without each of the groups is known at the end too. How much these scatter gives the standard error
(delete-a-group jackknife); for a sum over pairs the scatter of single terms does not.

Reference: Busing, Meijer and van der Leeden 1999, *Delete-m Jackknife for Unequal m*, equation 5.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from jaxtyping import Float, Shaped

GROUPS = 64  # of the jackknife
KEPT = 2**22  # numbers kept of the data at most, where there is a choice


class Sums:
    """Sums in double precision of some numbers per row, kept apart for groups of rows.

    Rows are dealt out to the groups in turn. An infinite number is counted apart, since a sum that
    it has entered cannot be taken back.

    Args:
        width: numbers per row.
        device: where they are.
        groups: how many; fewer than 64 if they would take too much memory, where left out.
    """

    def __init__(self, width: int, device: torch.device, groups: int | None = None):
        self.groups = groups or max(8, min(GROUPS, KEPT // width))
        self.total = torch.zeros(self.groups, width, dtype=torch.float64, device=device)
        self.below: Tensor | None = None  # how many are -inf

    def add(self, values: Float[Tensor, "n width"], start: int) -> None:
        """Take in some rows; ``start`` is the number of the first one."""
        finite = values.isfinite()
        if not finite.all():
            below = values.isneginf()
            refuse_bad_terms(~(finite | below).all(1), start)
            self.below = self._sum(below, start) + (0.0 if self.below is None else self.below)
            values = torch.where(finite, values, 0.0)
        self.total += self._sum(values, start)

    def _sum(self, values: Tensor, start: int) -> Tensor:
        lead, (n, width) = start % self.groups, values.shape
        turns = -(-(lead + n) // self.groups)
        dealt = self.total.new_zeros(turns * self.groups, width)
        dealt[lead : lead + n] = values
        return dealt.view(turns, self.groups, width).sum(0)

    def means(self, n: int) -> Float[Tensor, "rows width"]:
        """Means over all n rows, and below them the means without each of the groups."""
        means = and_without(self.total) / self.counts(n)[:, None]
        if self.below is not None:
            means.masked_fill_(and_without(self.below) > 0, -math.inf)
        return means

    def counts(self, n: int) -> Float[Tensor, " rows"]:
        """How many rows those are."""
        return and_without(_sizes(n, self.groups)[:, None])[:, 0].to(self.total.device)


class Spread:
    """Mean of numbers with weights, and its standard error."""

    def __init__(self):
        self.count, self.weight, self.mean, self.squares = 0, 0.0, 0.0, 0.0
        self.infinite = 0.0

    def add(self, values: Float[Tensor, " n"], weight: float | int = 1.0) -> None:
        """Take in some numbers, each with the same weight."""
        self.infinite += values[values.isinf()].sum().item()
        values = values[values.isfinite()].double()
        if not len(values):
            return
        mean, new = values.mean().item(), len(values) * weight
        self.count, self.weight = self.count + len(values), self.weight + new
        shift = mean - self.mean
        self.squares += weight * (values - mean).square().sum().item()
        self.squares += shift**2 * new * (1 - new / self.weight)
        self.mean += shift * new / self.weight

    def result(self) -> tuple[float, float]:
        """Mean and standard error."""
        if self.infinite != 0:
            return self.infinite, math.inf
        if self.count < 2:
            return self.mean, math.inf
        return self.mean, math.sqrt(self.squares / self.weight / (self.count - 1))


def and_without(groups: Float[Tensor, "groups s"]) -> Float[Tensor, "rows s"]:
    """The sum over all groups, and below it the sums without each of them."""
    total = groups.sum(0, keepdim=True)
    return torch.cat([total, total - groups])


def without_both(cells: Float[Tensor, "groups groups"]) -> Float[Tensor, " rows"]:
    """Likewise for pairs of groups: without all pairs that a group has a part in."""
    total = cells.sum()
    return torch.cat([total[None], total - cells.sum(0) - cells.sum(1) + cells.diagonal()])


def jackknife(values: Float[Tensor, " rows"], n: int) -> float:
    """Standard error of the first value, from the values without each of the groups."""
    sizes = _sizes(n, len(values) - 1)
    value, without = values[0].cpu(), values[1:].cpu()[sizes > 0]
    sizes = sizes[sizes > 0]
    if not (value.isfinite() and without.isfinite().all()):
        return math.inf
    h = n / sizes
    pseudo = h * value - (h - 1) * without
    centre = len(sizes) * value - ((1 - 1 / h) * without).sum()
    return ((pseudo - centre).square() / (h - 1)).mean().sqrt().item()


def _sizes(n: int, groups: int) -> Float[Tensor, " groups"]:
    """How many of n rows belong to each group."""
    return (n // groups + (torch.arange(groups) < n % groups)).double()


def find_middle(y: Shaped[Tensor, "n *event"]) -> Float[Tensor, "*event"]:
    """A point near the middle of these rows, in double precision."""
    y = y.double()
    return y[0] + (y - y[0]).mean(0)


def columns(parts: list[Tensor]) -> Float[Tensor, "n width"]:
    """All numbers of each row side by side, in double precision."""
    return torch.cat([part.reshape(len(part), -1).double() for part in parts], 1)


def refuse_bad_terms(bad: Tensor, start: int) -> None:
    """Refuse rows whose term is no number, which no bound has at finite parameters."""
    if bad.any():
        raise ValueError(
            "Expected finite log-densities or scores but got NaN or +infinity, "
            f"first in row {start + int(bad.nonzero()[0])}; "
            "look for parameters of the estimator that are not finite."
        )
