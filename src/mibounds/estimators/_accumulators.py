"""What is kept of the rows of a data set, so that one pass gives an estimator's value over them.

The all-pairs CLUB of N samples is not the average of its values on batches, but for exponential
families (`mibounds.bounds.exponential_families`) it is a sum of covariances, for which sums over
rows suffice, however many rows there are (`mibounds.estimators._jackknife`). Other conditionals
take drawn negatives; bounds that are means of terms need these; bounds over pairs are averaged over
batches.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.distributions import Distribution

from mibounds.bounds.densities import is_discrete, log_prob, log_prob_at
from mibounds.bounds.exponential_families import (
    LOG_2PI,
    club_of_means,
    family_of,
    unwrap,
)
from mibounds.bounds.from_conditionals import leave_out_own, log_ratio
from mibounds.estimators import BA, CLUB, CLUBSample, Estimator
from mibounds.estimators._jackknife import (
    KEPT,
    Spread,
    Sums,
    and_without,
    columns,
    find_middle,
    jackknife,
    refuse_bad_terms,
    without_both,
)
from mibounds.samples.pairs import Negatives

if TYPE_CHECKING:
    from jaxtyping import Float

NUMBERS = 2**18  # worked on at a time: few enough for the cache of a core


@dataclass(frozen=True)
class Evaluation:
    """The value of an estimator over a data set, with its standard error.

    The error tells how the value scatters between data sets of this size while the estimator stays
    as it is; it takes rows as independent, and knows nothing of how well the estimator was fitted.

    Args:
        nats: the value; +inf where an upper bound met an impossible pair.
        error: its standard error in nats; inf where it cannot be told.
        samples: how many rows the value is made of.
        exact: whether the value is that of the estimator on all rows at once.
        note: what was computed.

    Example:
        >>> print(Evaluation(0.6931, 0.0012, 1000, exact=True, note="CLUB over all pairs"))
        0.6931 ± 0.0012 nats (1000 samples; CLUB over all pairs)
    """

    nats: float
    error: float
    samples: int
    exact: bool
    note: str

    @property
    def bits(self) -> float:
        """The value in bits."""
        return self.nats / math.log(2)

    def __str__(self) -> str:
        value = f"{self.nats:.4f} ± {self.error:.2g} nats"
        return f"{value} ({self.samples} samples; {self.note})"


class Accumulator(ABC):
    """What one way to compute a value keeps of the rows seen."""

    rows: int | None = None  # at most so many at a time

    @abstractmethod
    def add(self, x: Tensor, y: Tensor, start: int) -> None:
        """Take in some rows; ``start`` is the number of the first one."""

    @abstractmethod
    def result(self, n: int) -> Evaluation:
        """The value over n rows."""


def choose_accumulator(
    estimator: Estimator, x: Tensor, y: Tensor, k: int, generator: torch.Generator | None
) -> Accumulator:
    """The way to compute an estimator's value, chosen by it and by the first rows."""
    if isinstance(estimator, CLUB | CLUBSample) and computes(estimator, CLUB, CLUBSample):
        p, events = estimator.distribution(x[:64], y[:64])
        if family_of(p) is None:
            return SampledCLUB(estimator, events, k, generator)
        return ExactCLUB(estimator, p, find_middle(events))
    if isinstance(estimator, BA) and computes(estimator, BA) and estimator.entropy is None:
        p, y = estimator.distribution(x[:64], y[:64])
        return FrequencyBA(estimator, y) if is_discrete(p) else GaussianBA(estimator, y)
    return RowTerms(estimator.terms) if has_terms(estimator) else BatchAverage(estimator)


def is_averaged(estimator: Estimator) -> bool:
    """Whether its value over many rows is an average of those on batches."""
    return not (computes(estimator, CLUB, CLUBSample, BA) or has_terms(estimator))


def computes(estimator: Estimator, *kinds: type[Estimator]) -> bool:
    """Whether the value is that of one of these classes: a subclass may have its own."""
    return any(type(estimator).forward is kind.forward for kind in kinds)


def has_terms(estimator: Estimator) -> bool:
    """Whether the value is the mean of `terms`: a subclass may have a `forward` of its own."""
    for each in type(estimator).__mro__:
        if "terms" in vars(each):
            return estimator.linear
        if "forward" in vars(each):
            return False
    return False


class ExactCLUB(Accumulator):
    """CLUB over all pairs, from the means of the statistics and of the natural parameters."""

    def __init__(self, estimator: CLUB | CLUBSample, p: Distribution, centre: Tensor):
        self.estimator, self.centre = estimator, centre
        family = family_of(p)
        assert family is not None
        self.family = family
        natural, a = family.natural(unwrap(p)[0], centre)
        width = sum(eta[0].numel() for eta in natural)
        self.rows = max(16, NUMBERS // width)
        self.given_x = Sums(1 + width, a.device)  # Σ η(x_i) T(y_i), η(x_i)
        self.of_y = Sums(width, a.device, self.given_x.groups)  # T(y_i)

    def add(self, x: Tensor, y: Tensor, start: int) -> None:
        p, y = self.estimator.distribution(x, y)
        base, _ = unwrap(p)
        eta = columns(self.family.natural(base, self.centre)[0])
        t = columns(self.family.statistics(base, y.double(), self.centre))
        self.given_x.add(columns([_product(eta, t), eta]), start)
        self.of_y.add(t, start)

    def result(self, n: int) -> Evaluation:
        (joint, eta), t = self.given_x.means(n).tensor_split([1], 1), self.of_y.means(n)
        values = club_of_means(joint, _product(eta, t)[:, None])
        negatives, note = _limit(self.estimator)
        values = leave_out_own(values, self.given_x.counts(n), negatives)
        return Evaluation(values[0].item(), jackknife(values, n), n, True, note)


def _product(eta: Tensor, t: Tensor) -> Tensor:
    """Σ_k η_k T_k of each row, with 0 log 0 = 0 on either side."""
    return torch.where((eta == 0) | (t == 0), 0.0, eta * t).sum(1)


class SampledCLUB(Accumulator):
    """CLUB with k drawn negatives per row.

    They come from all rows seen so far with equal probability: from those at hand, or from a sample
    of the ones before. Sums are kept for each pair of groups, that of the row and that of its
    negative, so that a group can be left out on both sides.
    """

    def __init__(
        self,
        estimator: CLUB | CLUBSample,
        y: Tensor,
        k: int,
        generator: torch.Generator | None,
    ):
        self.estimator, self.k, self.generator = estimator, k, generator
        width = max(1, y[0].numel())
        self.rows = max(1024, NUMBERS // width)
        self.own = Sums(1, y.device)
        shape = (self.own.groups, self.own.groups)
        self.total = torch.zeros(shape, dtype=torch.float64, device=y.device)
        self.pairs = torch.zeros_like(self.total)
        self.impossible = False
        self.past = y.new_empty(max(1024, min(2**16, KEPT // width)), *y.shape[1:])
        self.past_group = torch.empty(len(self.past), dtype=torch.int64, device=y.device)

    def add(self, x: Tensor, y: Tensor, start: int) -> None:
        p, y = self.estimator.distribution(x, y)
        own, groups = log_prob(p, y), self.own.groups
        self.own.add(own[:, None], start)
        n, kept = len(y), min(start, len(self.past))
        here = torch.arange(n, device=y.device)
        group = (start + here) % groups
        if start + n > 1:
            pool = torch.cat([y, self.past[:kept]])
            pool_group = torch.cat([group, self.past_group[:kept]])
            for _ in range(self.k):
                other = (here + 1 + (self._draw(y) * (n - 1)).long()) % n
                before = n + (self._draw(y) * kept).long().clamp_max(max(0, kept - 1))
                index = torch.where(self._draw(y) * (start + n - 1) < start, before, other)
                scores = log_prob_at(p, pool[index], here[:, None])[:, 0].double()
                refuse_bad_terms(scores.isnan() | scores.isposinf(), start)
                below = scores.isneginf()
                self.impossible = self.impossible or bool(below.any())
                cell = group * groups + pool_group[index]
                scores = scores.masked_fill(below, 0.0)
                self.total += torch.bincount(cell, scores, groups**2).view_as(self.total)
                self.pairs += torch.bincount(cell, None, groups**2).view_as(self.pairs)
        self._keep(y, group, start)

    def _draw(self, y: Tensor) -> Float[Tensor, " n"]:
        """Uniform numbers in [0, 1), one per row."""
        where = y.device if self.generator is None else self.generator.device
        u = torch.rand(len(y), generator=self.generator, dtype=torch.float64, device=where)
        return u.to(y.device)

    def _keep(self, y: Tensor, group: Tensor, start: int) -> None:
        """Put rows into the sample of the past, such that it stays one of equal probability."""
        number = start + torch.arange(len(y), device=y.device)
        slot = (self._draw(y) * (number + 1)).long()
        slot = torch.where(number < len(self.past), number, slot)
        chosen = (slot < len(self.past)).nonzero()[:, 0]
        # the last of several rows for one place, on a GPU too
        last = torch.full_like(self.past_group, -1)
        last.scatter_reduce_(0, slot[chosen], chosen, "amax")
        place = (last >= 0).nonzero()[:, 0]
        self.past[place] = y[last[place]]
        self.past_group[place] = group[last[place]]

    def result(self, n: int) -> Evaluation:
        own = self.own.means(n)[:, 0]
        others = without_both(self.total) / without_both(self.pairs)
        if self.impossible:
            others = torch.full_like(others, -math.inf)
        negatives, note = _limit(self.estimator)
        everyone = own / n + others * (1 - 1 / n)  # the mean over all j, i among them
        values = leave_out_own(log_ratio(own, everyone), n, negatives)
        note = f"{note}, estimated with {self.k} drawn negatives per row"
        return Evaluation(values[0].item(), jackknife(values, n), n, False, note)


def _limit(estimator: CLUB | CLUBSample) -> tuple[Negatives, str]:
    """Which negatives the value has, or those that its draws scatter around."""
    if isinstance(estimator, CLUB):
        return estimator.negatives, "CLUB over all pairs"
    negatives = "others" if estimator.draw == "derangement" else "all"
    return negatives, "CLUB over all pairs, which the sampled one scatters around"


class RowTerms(Accumulator):
    """Mean of a term for each row."""

    def __init__(self, terms: Callable[[Tensor, Tensor], Tensor]):
        self.terms, self.spread = terms, Spread()

    def add(self, x: Tensor, y: Tensor, start: int) -> None:
        values = self.terms(x, y)
        refuse_bad_terms(values.isnan(), start)
        self.spread.add(values)

    def result(self, n: int) -> Evaluation:
        return Evaluation(*self.spread.result(), n, True, "mean over all rows")


class GaussianBA(Accumulator):
    """Barber-Agakov with the entropy of the Gaussian that has the moments of all rows."""

    def __init__(self, estimator: BA, y: Tensor):
        self.estimator, self.dtype = estimator, y.dtype
        self.centre = find_middle(y.reshape(len(y), -1))
        self.d = len(self.centre)
        width = 1 + self.d + self.d**2
        self.rows = max(16, NUMBERS // width)
        self.sums = Sums(width, y.device)

    def add(self, x: Tensor, y: Tensor, start: int) -> None:
        p, y = self.estimator.distribution(x, y)
        own = log_prob(p, y)
        y = y.reshape(len(y), -1).double() - self.centre
        self.sums.add(columns([own, y, y.unsqueeze(-1) * y.unsqueeze(-2)]), start)

    def result(self, n: int) -> Evaluation:
        if n <= self.d:
            raise ValueError(
                f"Expected more samples than the {self.d} columns of y to fit a Gaussian to it "
                f"but got {n}; pass more rows, or the entropy of y if it is known."
            )
        means = self.sums.means(n)
        values = torch.stack([row[0] + self._entropy(row[1:]) for row in means])
        note = "mean over all rows, with the entropy of the Gaussian fitted to them"
        return Evaluation(values[0].item(), jackknife(values, n), n, True, note)

    def _entropy(self, moments: Tensor) -> Tensor:
        """As `mibounds.bounds.densities.fit_gaussian` computes it, but from moments."""
        first, second = moments[: self.d], moments[self.d :].view(self.d, self.d)
        covariance = second - first.outer(first)
        variance = covariance.diagonal()
        constant = variance <= 0
        scale = torch.where(constant, 1.0, variance).sqrt()
        correlation = covariance / scale.outer(scale)
        jitter = 10 * self.d * torch.finfo(self.dtype).eps
        tril, _ = torch.linalg.cholesky_ex(correlation + torch.diag(constant + jitter))
        square = torch.cholesky_solve(correlation, tril).trace()
        log_det = 2 * (tril.diagonal().log() + scale.log()).sum()
        return 0.5 * (square + log_det + self.d * LOG_2PI)


class FrequencyBA(Accumulator):
    """Barber-Agakov with the entropy of the frequencies of all rows, for labels."""

    def __init__(self, estimator: BA, y: Tensor):
        self.estimator = estimator
        self.own = Sums(1, y.device)
        self.counts: dict[tuple[float, ...], Tensor] = {}

    def add(self, x: Tensor, y: Tensor, start: int) -> None:
        p, y = self.estimator.distribution(x, y)
        self.own.add(log_prob(p, y)[:, None], start)
        groups = self.own.groups
        labels, index = y.reshape(len(y), -1).unique(dim=0, return_inverse=True)
        group = (start + torch.arange(len(y), device=y.device)) % groups
        counts = torch.bincount(index * groups + group, None, len(labels) * groups)
        for label, count in zip(labels.tolist(), counts.view(-1, groups).double(), strict=True):
            key = tuple(label)
            self.counts[key] = self.counts[key] + count if key in self.counts else count

    def result(self, n: int) -> Evaluation:
        counts = and_without(torch.stack(list(self.counts.values()), 1))
        entropy = torch.special.entr(counts / self.own.counts(n)[:, None]).sum(1)
        values = self.own.means(n)[:, 0] + entropy
        note = "mean over all rows, with the entropy of their frequencies"
        return Evaluation(values[0].item(), jackknife(values, n), n, True, note)


class BatchAverage(Accumulator):
    """Average of the values on batches, for bounds over pairs that are not linear in them."""

    def __init__(self, estimator: Estimator):
        self.estimator, self.spread = estimator, Spread()
        self.batches, self.most, self.samples = 0, 0, 0

    def add(self, x: Tensor, y: Tensor, start: int) -> None:
        if self.batches and len(x) < 3:  # too few for some bounds, and of no weight
            return
        value = self.estimator(x, y)
        refuse_bad_terms(value.isnan()[None], start)
        self.spread.add(value[None], weight=len(x))
        self.batches, self.samples = self.batches + 1, self.samples + len(x)
        self.most = max(self.most, len(x))

    def result(self, n: int) -> Evaluation:
        note = f"average of the values on {self.batches} batches of {self.most}"
        ceiling = self.estimator.ceiling(self.most)
        if ceiling < math.inf:
            note += f", none above log {self.most} = {ceiling:.2f} nats"
        return Evaluation(*self.spread.result(), self.samples, False, note)
