"""Pairs of single columns: one column with many others at once.

A column of numbers enters as its normal scores, the quantiles z of a standard normal at its ranks,
and equal numbers are told apart by noise, which changes no mutual information. A column of labels
enters as codes. There are three kinds of pairs.

**Numbers and numbers.** The Gaussian copula has the closed form -1/2 log(1 - rho²). What the true
copula is beyond that is a density on the unit square: in the whitened coordinates

    a = (z_x + z_y) / sqrt(2 (1 + rho)),   b = (z_x - z_y) / sqrt(2 (1 - rho)),

a Gaussian copula has independent standard normal a and b, so that s = Phi(a), t = Phi(b) have the
density r(s, t) = 1, and in general log p(x, y) / p(x) p(y) = log c_rho(x, y) + log r(s, t). r is a
series of cosines, whose coefficients are means over the rows: two matrix products for each pair.
Coefficients of one degree are kept if they are more than chance, and shrunk by what chance adds
(James and Stein). Of a series, the value without a row is known in closed form: the mean of log r
with and without each row has a bias of opposite sign, and half of each is taken.

**Labels and numbers.** The same series in the rank of the number, one for each label.

**Labels and labels.** Counts, with the bias of Miller and Madow taken off.

A series is smooth. Where it departs from the Gaussian copula by more than `DEPARTURE`, neighbours
take its place (`mibounds.measure.tables.neighbours`).

Independence is tested by means of products of orthonormal functions of both columns: n times the
sum of their squares is chi-squared if the columns are independent. Three sets, of degree 1, 2 and
4, share the level among each other (Bonferroni); with labels these are the tests of van der Waerden
and of Neyman (smooth), and between labels it is Pearson's.

References: Miller 1955; James and Stein 1961; Neyman 1937; Joe 1989 for the Gaussian copula.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

if TYPE_CHECKING:
    from jaxtyping import Float, Int

__all__ = ["PairValues", "labels_and_labels", "labels_and_numbers", "numbers_and_numbers"]

DEGREE = 8  # of the cosines of a pair of numbers
LABEL_DEGREE = 12  # of those of a number, one series for each label
TESTED = (1, 2, 4)  # degrees of the tests of independence
FLOOR = 0.05  # smallest ratio of densities
CHANCE = 2.0  # standard deviations of chance above which coefficients are kept
RARE = 10  # rows of a label below which it is tested together with other such labels


@dataclass(frozen=True)
class PairValues:
    """One column with J others.

    Args:
        nats: the mutual information.
        error: standard error of the value.
        departure: of the value, what is not the Gaussian copula's; 0 for counts.
        unseen: how much the coefficients that were left out may hold, as a standard deviation.
        p_value: of independence.
    """

    nats: Float[np.ndarray, " J"]
    error: Float[np.ndarray, " J"]
    departure: Float[np.ndarray, " J"]
    unseen: Float[np.ndarray, " J"]
    p_value: Float[np.ndarray, " J"]


def cosines(u: Float[Tensor, "*batch n"], degree: int) -> Float[Tensor, "*batch K n"]:
    """1, sqrt(2) cos(pi u), ..., sqrt(2) cos(degree pi u), by Chebyshev's recurrence.

    Example:
        >>> u = (torch.arange(1000) + 0.5) / 1000
        >>> c = cosines(u, 3)
        >>> bool((c @ c.T / 1000 - torch.eye(4)).abs().max() < 1e-5)
        True
    """
    basis = u.new_empty(*u.shape[:-1], degree + 1, u.shape[-1])
    rows = basis.unbind(-2)
    rows[0].fill_(math.sqrt(0.5))
    torch.cos(math.pi * u, out=rows[1])
    twice = 2 * rows[1]
    rows[1].mul_(math.sqrt(2))
    for k in range(2, degree + 1):
        torch.mul(twice, rows[k - 1], out=rows[k])
        rows[k].sub_(rows[k - 2], alpha=2 if k == 2 else 1)
    rows[0].fill_(1.0)
    return basis


def prepare(z: Float[Tensor, "*J n"]) -> Float[Tensor, "*J R n"]:
    """What a column of numbers brings to all its pairs: its scores with variance 1, and cosines.

    Args:
        z: normal scores.
    """
    scale = z.square().mean(-1, keepdim=True).sqrt()
    tested = cosines(torch.special.ndtr(z), max(TESTED))
    tested[..., 0, :] = z / scale
    return tested


def numbers_and_numbers(x: Float[Tensor, "R n"], y: Float[Tensor, "J R n"]) -> PairValues:
    """Mutual information of a column of numbers with J others.

    Args:
        x: normal scores, as `prepare` returns them.
        y: the same of the others.

    Returns:
        Nats.

    Example:
        >>> from mibounds.measure.tables.variables import score
        >>> rng = np.random.default_rng(0)
        >>> v = rng.normal(size=(3, 1000))
        >>> v[1] += v[0]
        >>> z = prepare(torch.as_tensor(np.stack([score(each) for each in v])))
        >>> found = numbers_and_numbers(z[0], z[1:])  # the truth is 0.347 and 0
        >>> found.nats.round(2), found.p_value < 0.01
        (array([0.35, 0.  ]), array([ True, False]))
    """
    n = x.shape[-1]
    a, b = x[0], y[:, 0]
    rho = (b @ a / n).double().clamp(-1 + 1e-7, 1 - 1e-7)
    gaussian = -0.5 * torch.log1p(-rho.square())
    plus, minus = ((2 * (1 + sign * rho)).rsqrt().to(a.dtype)[:, None] for sign in (1, -1))
    s, t = (cosines(torch.special.ndtr(v), DEGREE) for v in ((a + b) * plus, (a - b) * minus))
    means = s @ t.transpose(1, 2) / n
    keep, kept, left = _keep(means.double().square(), _shells(DEGREE, x.device), n)
    some = kept.nonzero()[:, 0]
    r, u, v = (c.to(a.dtype)[:, None] for c in (rho, rho.square(), 1 - rho.square()))
    each = (r * (a * b) - (0.5 * u) * (a.square() + b.square())) / v
    departure = torch.zeros_like(rho)
    if len(some):
        correction = _correct(s[some], t[some], means[some], keep[some].to(a.dtype))
        departure[some] = correction.double().mean(1)
        each[some] += correction
    error = torch.sqrt(each.var(1).double() / n + (1 + kept) / (2 * n * n))
    unseen = torch.sqrt(left / 2) / n
    nats = gaussian - 1 / (2 * n) + departure
    squares = n * (y[:, 1:] @ x[1:].T / n).double().square()
    tests = [(squares[:, :k, :k].sum((1, 2)), k * k) for k in TESTED[1:]]
    p_value = _least_of([(n * rho.square(), 1), *tests])
    found = (nats, error, departure, unseen, p_value)
    return PairValues(*(c.cpu().numpy() for c in found))


def _correct(s: Tensor, t: Tensor, means: Tensor, keep: Tensor) -> Tensor:
    """log r of each row, from the coefficients that are kept."""
    series = (((keep * means).transpose(1, 2) @ s) * t).sum(1)
    own = ((keep.transpose(1, 2) @ s.square()) * t.square()).sum(1)
    return _half_of_each(series, own, s.shape[-1])


def labels_and_numbers(x: Int[np.ndarray, " n"], y: Float[Tensor, "J n"]) -> PairValues:
    """Mutual information of a column of labels with J columns of numbers.

    Args:
        x: codes 0, 1, ...
        y: normal scores, one column in each row.

    Returns:
        Nats.

    Example:
        >>> from mibounds.measure.tables.variables import score
        >>> rng = np.random.default_rng(0)
        >>> x = rng.integers(3, size=2000)
        >>> y = torch.as_tensor(score(x + rng.normal(size=2000)))
        >>> labels_and_numbers(x, y[None]).nats.round(2)  # the truth is 0.25
        array([0.26])
    """
    n, device = y.shape[-1], y.device
    counts = np.bincount(x)
    share = torch.as_tensor(counts / n, device=device, dtype=y.dtype)
    codes = torch.as_tensor(x, device=device)
    basis = cosines(torch.special.ndtr(y), LABEL_DEGREE)[:, 1:]
    means = _sums(basis, codes, len(counts)) / (n * share)  # of the functions, (J, K, labels)
    energy = (means.double().square() * share).sum(-1)
    free = len(counts) - 1
    shells = 1 + torch.arange(LABEL_DEGREE, device=device)[:, None]
    keep, kept, left = _keep(energy[:, :, None], shells, n, free)
    keep = keep.to(y.dtype)
    series = ((keep * means)[:, :, codes] * basis).sum(1)
    own = (keep * basis.square()).sum(1) * (1 / share - 1)[codes]
    each = _half_of_each(series, own, n).double()
    error = torch.sqrt(each.var(1) / n + (1 + kept) / (2 * n * n))
    tested, weight = _lumped(x)
    codes = torch.as_tensor(tested, device=device)
    means = _sums(basis[:, : max(TESTED)], codes, len(weight)).double() / n
    squares = (means.square() / torch.as_tensor(weight, device=device)).sum(-1)
    free = max(len(weight) - 1, 1)
    p_value = _least_of([(n * squares[:, :k].sum(1), free * k) for k in TESTED])
    nats = each.mean(1)
    found = (nats, error, nats, torch.sqrt(left / 2) / n, p_value)
    return PairValues(*(a.cpu().numpy() for a in found))


def _sums(
    basis: Float[Tensor, "J K n"], codes: Int[Tensor, " n"], labels: int
) -> Float[Tensor, "J K labels"]:
    """Sums of functions over the rows of each label."""
    return basis.new_zeros(*basis.shape[:-1], labels).index_add_(2, codes, basis)


def labels_and_labels(
    x: Int[np.ndarray, " n"], others: Sequence[Int[np.ndarray, " n"]]
) -> PairValues:
    """Mutual information of a column of labels with others.

    Args:
        x: codes 0, 1, ...
        others: the same.

    Returns:
        Nats.

    Example:
        >>> x = np.arange(1000) % 4
        >>> found = labels_and_labels(x, [x // 2, x % 2])
        >>> found.nats.round(2), np.log(2).round(2)
        (array([0.69, 0.69]), np.float64(0.69))
    """
    rows = [_count(x, y) for y in others]
    nats, error, p_value = np.array(rows, np.float64).reshape(-1, 3).T
    none = np.zeros_like(nats)
    return PairValues(nats, error, none, none, p_value)


def _count(x: np.ndarray, y: np.ndarray) -> tuple[float, float, float]:
    n = len(x)
    px, py = np.bincount(x) / n, np.bincount(y) / n
    joint, independent = _cells(x, y, px, py)
    ratio = np.log(joint / independent)
    plain = float(joint @ ratio)
    free = (px > 0).sum() + (py > 0).sum() - len(joint) - 1
    nats = plain + free / (2 * n)
    error = math.sqrt(max(float(joint @ ratio**2) - plain**2, 0) / n + abs(free) / (2 * n * n))
    (a, pa), (b, pb) = _lumped(x), _lumped(y)
    joint, independent = _cells(a, b, pa, pb)
    chi = n * ((joint**2 / independent).sum() - 1)
    freedom = max((len(pa) - 1) * (len(pb) - 1), 1)
    p = _chance(torch.tensor([max(chi, 0.0)], dtype=torch.float64), freedom)
    return max(nats, 0.0) if plain < 1e-12 else nats, error, float(p)


def _cells(
    x: np.ndarray, y: np.ndarray, px: np.ndarray, py: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Shares of the cells that occur, which are few of many, and their shares if independent."""
    cells, counts = np.unique(x * len(py) + y, return_counts=True)
    return counts / len(x), px[cells // len(py)] * py[cells % len(py)]


def _lumped(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Codes with all rare labels as one, and their shares."""
    counts = np.bincount(x)
    rare = counts < RARE
    new = np.where(rare, 0, np.cumsum(~rare) - 1 + bool(rare.any()))
    codes = new[x]
    return codes, np.bincount(codes) / len(x)


# --- parts of a series ---------------------------------------------------------------------------


def _shells(degree: int, device: torch.device) -> Tensor:
    """The larger of the two degrees of each coefficient."""
    k = torch.arange(degree + 1, device=device)
    return torch.maximum(k[:, None], k)


def _keep(energy: Tensor, shells: Tensor, n: int, each: int = 1) -> tuple[Tensor, Tensor, Tensor]:
    """The share that is kept of each coefficient, and how many are kept and left out.

    Args:
        energy: squares of coefficients, (J, ...); of ``each`` of them together.
        shells: 1, 2, ... for those that are judged together; 0 for one that is none.
        n: rows.
        each: how many coefficients an entry stands for.
    """
    keep = torch.zeros_like(energy)
    kept, left = torch.zeros(2, len(energy), dtype=energy.dtype, device=energy.device)
    for shell in range(1, int(shells.max()) + 1):
        mine = shells == shell
        free = int(mine.sum()) * each
        sums = n * energy[:, mine].sum(1)
        strong = sums > free + CHANCE * math.sqrt(2 * free)
        keep += torch.where(strong, 1 - free / sums, 0.0)[:, None, None] * mine
        kept, left = kept + strong * free, left + ~strong * free
    return keep, kept, left


def _half_of_each(series: Tensor, own: Tensor, n: int) -> Tensor:
    """log(1 + series), half with and half without the row itself."""
    without = (n * series - own) / (n - 1)
    both = (1 + series).clamp(min=FLOOR) * (1 + without).clamp(min=FLOOR)
    return 0.5 * torch.log(both)


# --- tests ---------------------------------------------------------------------------------------


def _least_of(tests: Sequence[tuple[Tensor, int]]) -> Tensor:
    """The least of several p-values, times their number."""
    p = torch.stack([_chance(value, free) for value, free in tests]).amin(0)
    return (len(tests) * p).clamp(max=1.0)


def _chance(value: Tensor, free: int) -> Tensor:
    """How often chi-squared is larger."""
    half = torch.full_like(value, free / 2)
    return torch.special.gammaincc(half, value / 2)
