"""Exponential families: conditionals whose log-density is linear in statistics of y.

    log p(y|x) = Σ_k η_k(x) · T_k(y) + a(x)

Hence the mean of log p(y_j|x_i) over a batch of y's needs only the *mean* of the statistics, and a
matrix of all pairs is a product of two matrices. A batch contributes D numbers (D² for a
full covariance), which is also all that has to be exchanged between processes or kept of a data set
that is larger than memory. CLUB itself, the mean over i of log p(y_i|x_i) less that mean, is a sum
of covariances, Σ_k cov(η_k(x), T_k(y)).

Gaussian statistics are taken relative to a centre near the data, so that nothing is lost when means
are large against the spread.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch import distributions as D
from torch.distributions import Distribution

from mibounds.samples.batches import Batch
from mibounds.samples.checks import weighted_mean
from mibounds.samples.pairs import Negatives
from mibounds.samples.precision import full_precision

if TYPE_CHECKING:
    from jaxtyping import Float, Int, Shaped

LOG_2PI = math.log(2 * math.pi)
SMALL = 2**20  # numbers up to which a GPU spends its time on launching kernels


class Family(ABC):
    """How log p(y|x) of one type of Distribution is linear in statistics of y."""

    centred = False  # whether the statistics are relative to a centre

    @abstractmethod
    def statistics(self, p: Any, y: Tensor, centre: Tensor) -> list[Tensor]:
        """T_k(y_j), each of shape (m, *f_k)."""

    @abstractmethod
    def natural(self, p: Any, centre: Tensor) -> tuple[list[Tensor], Tensor]:
        """η_k(x_i), each of shape (n, *f_k), and a(x_i) of shape (n, ...)."""

    def means(self, p: Any, y: Tensor, centre: Tensor) -> list[Tensor]:
        """Mean of T_k(y_j) over the batch, each of shape f_k."""
        return [t.mean(0) for t in self.statistics(p, y, centre)]

    def expected(self, p: Any, centre: Tensor, means: list[Tensor]) -> Tensor:
        """Mean of log p(y|x_i) over y's whose statistics have these means, (n, ...)."""
        natural, a = self.natural(p, centre)
        for eta, mean in zip(natural, means, strict=True):
            product = weighted(mean, eta)
            a = a + product.flatten(a.ndim).sum(-1) if product.ndim > a.ndim else a + product
        return a


class _Normal(Family):
    centred = True

    def statistics(self, p, y, centre):
        return [y - centre, (y - centre).square()]

    def natural(self, p, centre):
        scale = p.scale.to(centre.dtype)
        precision = scale**-2
        mean = p.loc - centre
        a = -0.5 * ((mean / scale).square() + LOG_2PI) - scale.log()
        return [mean * precision, -0.5 * precision], a

    def expected(self, p, centre, means):
        """In units of the scale, whose square could overflow."""
        first, second = means
        mean = (p.loc - centre) / p.scale
        square = mean.square() - 2 * mean * (first / p.scale) + second / p.scale / p.scale
        return -0.5 * (square + LOG_2PI) - p.scale.log()


class _MultivariateNormal(Family):
    centred = True

    def statistics(self, p, y, centre):
        y = y - centre
        return [y, y.unsqueeze(-1) * y.unsqueeze(-2)]

    def means(self, p, y, centre):
        y = y - centre
        return [y.mean(0), y.T @ y / len(y)]

    def natural(self, p, centre):
        tril = p.scale_tril.to(centre.dtype)
        if p.scale_tril.stride(0) == 0:  # one covariance for all
            tril = tril[:1]
        mean = (p.loc - centre).unsqueeze(-1)
        # by triangular solves: their gradient stays within the triangle
        eye = torch.eye(mean.shape[-2], dtype=tril.dtype, device=tril.device)
        inverse = torch.linalg.solve_triangular(tril, eye.expand_as(tril), upper=False)
        precision = inverse.mT @ inverse
        white = inverse @ mean
        log_det = tril.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        a = -0.5 * (white.square().sum((-2, -1)) + mean.shape[-2] * LOG_2PI) - log_det
        precision = precision.expand(len(mean), -1, -1)
        return [(precision @ mean).squeeze(-1), -0.5 * precision], a


class _LowRankNormal(Family):
    centred = True
    statistics = _MultivariateNormal.statistics
    means = _MultivariateNormal.means

    def natural(self, p, centre):
        scaled, tril, log_det = self._parts(p, centre)
        mean = (p.loc - centre).unsqueeze(-1)
        half = torch.linalg.solve_triangular(tril, scaled.mT, upper=False)
        precision = torch.diag_embed(1 / p.cov_diag.to(centre.dtype)) - half.mT @ half
        eta = precision @ mean
        a = -0.5 * ((mean * eta).sum((-2, -1)) + log_det + mean.shape[-2] * LOG_2PI)
        return [eta.squeeze(-1), -0.5 * precision], a

    def expected(self, p, centre, means):
        """By the Woodbury identity, without a D x D matrix for each x."""
        scaled, tril, log_det = self._parts(p, centre)
        first, second = means
        mean = p.loc - centre
        # E (y-μ)(y-μ)ᵀ = second - first μᵀ - μ firstᵀ + μ μᵀ
        moments = second.diagonal() - 2 * first * mean + mean.square()
        a, b = (scaled.mT @ first), (scaled.mT @ mean.unsqueeze(-1)).squeeze(-1)
        cross = a.unsqueeze(-1) * b.unsqueeze(-2)
        spread = scaled.mT @ second @ scaled - cross - cross.mT
        spread = spread + b.unsqueeze(-1) * b.unsqueeze(-2)
        inner = torch.cholesky_solve(spread, tril).diagonal(dim1=-2, dim2=-1).sum(-1)
        square = (moments / p.cov_diag).sum(-1) - inner
        return -0.5 * (square + log_det + mean.shape[-1] * LOG_2PI)

    def _parts(self, p, centre):
        factor, diagonal = p.cov_factor.to(centre.dtype), p.cov_diag.to(centre.dtype)
        scaled = factor / diagonal.unsqueeze(-1)  # D⁻¹ W
        eye = torch.eye(factor.shape[-1], dtype=factor.dtype, device=factor.device)
        tril = torch.linalg.cholesky(eye + factor.mT @ scaled)
        log_det = diagonal.log().sum(-1) + 2 * tril.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        return scaled, tril, log_det


class _Categorical(Family):
    def statistics(self, p, y, centre):
        return [F.one_hot(y.long(), p.logits.shape[-1]).to(p.logits.dtype)]

    def natural(self, p, centre):
        log_p = categorical_log_probs(p)
        return [log_p], log_p.new_zeros(log_p.shape[:-1])


class _OneHotCategorical(Family):
    def statistics(self, p, y, centre):
        return [y]

    natural = _Categorical.natural


class _Bernoulli(Family):
    def statistics(self, p, y, centre):
        one = (y > 0.5).to(p.logits.dtype)
        return [one, 1 - one]

    def natural(self, p, centre):
        log_one, log_zero = bernoulli_log_probs(p)
        return [log_one, log_zero], torch.zeros_like(log_one)


class _Poisson(Family):
    def statistics(self, p, y, centre):
        return [y, -torch.lgamma(y + 1)]

    def natural(self, p, centre):
        return [p.rate.log(), torch.ones_like(p.rate)], -p.rate


class _Geometric(Family):
    def statistics(self, p, y, centre):
        return [y]

    def natural(self, p, centre):
        return [(-p.probs).log1p()], p.probs.log()


class _Exponential(Family):
    def statistics(self, p, y, centre):
        return [y]

    def natural(self, p, centre):
        return [-p.rate], p.rate.log()


class _Gamma(Family):
    def statistics(self, p, y, centre):
        return [y.log(), y]

    def natural(self, p, centre):
        a = torch.xlogy(p.concentration, p.rate) - torch.lgamma(p.concentration)
        return [p.concentration - 1, -p.rate], a


class _Beta(Family):
    def statistics(self, p, y, centre):
        return [y.log(), (-y).log1p()]

    def natural(self, p, centre):
        alpha, beta = p.concentration1, p.concentration0
        a = torch.lgamma(alpha + beta) - torch.lgamma(alpha) - torch.lgamma(beta)
        return [alpha - 1, beta - 1], a


class _LogNormal(Family):
    def statistics(self, p, y, centre):
        return [y.log(), y.log().square()]

    def natural(self, p, centre):
        precision = p.scale**-2
        a = -0.5 * (p.loc.square() * precision + LOG_2PI) - p.scale.log()
        return [p.loc * precision - 1, -0.5 * precision], a


# by the type itself: a subclass may have another density
FAMILIES: dict[type[Distribution], Family] = {
    D.Normal: _Normal(),
    D.MultivariateNormal: _MultivariateNormal(),
    D.LowRankMultivariateNormal: _LowRankNormal(),
    D.Categorical: _Categorical(),
    D.OneHotCategorical: _OneHotCategorical(),
    D.Bernoulli: _Bernoulli(),
    D.Poisson: _Poisson(),
    D.Geometric: _Geometric(),
    D.Exponential: _Exponential(),
    D.Gamma: _Gamma(),
    D.Beta: _Beta(),
    D.LogNormal: _LogNormal(),
}


def unwrap(p: Distribution) -> tuple[Distribution, int]:
    """The Distribution inside all ``Independent``, and how many of its dimensions they join.

    Example:
        >>> unwrap(D.Independent(D.Normal(torch.zeros(5, 3), 1.0), 1))
        (Normal(loc: torch.Size([5, 3]), scale: torch.Size([5, 3])), 1)
    """
    joined = 0
    while isinstance(p, D.Independent):
        joined += p.reinterpreted_batch_ndims
        p = p.base_dist
    return p, joined


def family_of(p: Distribution) -> Family | None:
    """The exponential family of p, or None if it is in none that is known here.

    Example:
        >>> family_of(D.StudentT(torch.ones(5))) is None
        True
    """
    base, _ = unwrap(p)
    if base.event_shape and len(base.batch_shape) != 1:
        return None  # several vectors make up one y
    return FAMILIES.get(type(base))


def find_centre(
    y: Shaped[Tensor, "m *event"], batch: Batch | None = None
) -> Shaped[Tensor, "*event"]:
    """A point near the data, the same on all processes of a batch; no gradient flows to it.

    It has to be near, not in the middle: the mean of the first few samples saves a pass over all of
    them. Taken relative to a sample, so that the centre of a constant column is that constant.
    """
    head = y[:256].detach()
    if not y.is_floating_point():
        return head[0]
    centre = head[0] + (head - head[0]).mean(0)
    return centre if batch is None else batch.from_first(centre)


def log_prob_mean_closed(
    p: Distribution, y: Shaped[Tensor, "m *event"], batch: Batch, negatives: Negatives = "all"
) -> Float[Tensor, " n"] | None:
    """Mean over the negatives of log p(y_j|x_i), from mean statistics; None without a family."""
    family = family_of(p)
    if family is None:
        return None
    base, joined = unwrap(p)
    with full_precision(y):
        centre = find_centre(y, batch) if family.centred else y[0]
        if batch.plain and negatives == "all":
            means = [batch.average(mean) for mean in family.means(base, y, centre)]
            return sum_joined(family.expected(base, centre, means), joined)
        statistics = family.statistics(base, y, centre)
        if negatives == "all":
            means = [batch.mean(t) for t in statistics]
            return sum_joined(family.expected(base, centre, means), joined)
        weights = batch.all_weights(statistics[0])
        total = batch.local(batch.others(weights))
        means = []
        for t in statistics:
            rows = (len(weights), *[1] * (t.ndim - 1))
            others = batch.local(batch.others(weights.view(rows) * batch.gather(t)))
            means.append(others / total.view(-1, *rows[1:]))
        return sum_joined(Family.expected(family, base, centre, means), joined)


def club_of_means(
    joint: Float[Tensor, "*r k"], product: Float[Tensor, "*r k"]
) -> Float[Tensor, "*r"]:
    """CLUB in its 1/N² form from means over the samples, a sum of covariances.

        Σ_k mean_i[η_k(x_i) T_k(y_i)] - mean_i[η_k(x_i)] mean_j[T_k(y_j)]

    Whatever brought the means together, a batch, its pieces, several processes or a stream, this is
    where they become a bound. The part a(x) of the log-density cancels.

    Args:
        joint: means of η_k T_k.
        product: products of the means of η_k and of T_k.

    Returns:
        Nats; +inf where some y_j is impossible at some x_i, or where the squares overflow.

    Example:
        >>> club_of_means(torch.tensor([3.0, 2.0]), torch.tensor([1.0, 1.0])).item()
        3.0
    """
    impossible = (joint.isneginf() | product.isinf()).any(-1)
    return torch.where(impossible, math.inf, (joint - product).sum(-1))


def club_normal(p: D.Normal, y: Shaped[Tensor, "n *event"], batch: Batch) -> Float[Tensor, ""]:
    """CLUB of independent normal columns in its 1/N² form.

    One look at p and y for the value, and one for the gradient.

    Args:
        p: inside all ``Independent``.
        y: samples, of the same shape as its parameters.
        batch: where the samples are, if they are spread over processes.

    Returns:
        Nats; +inf where the squares overflow.
    """
    dtype = torch.promote_types(torch.promote_types(p.loc.dtype, p.scale.dtype), y.dtype)
    if y.is_cuda and y.numel() <= SMALL and batch.group is None:
        return club_normal_small(p, y).to(dtype)
    return club_of_sums(sum_normal(p, y, find_centre(y, batch)), len(y), batch).to(dtype)


def club_normal_small(p: D.Normal, y: Shaped[Tensor, "n *event"]) -> Float[Tensor, ""]:
    """The same with half the operations and one more look at y, for a GPU with little to do.

        mean_i Σ_k η_k(x_i) (T_k(y_i) - mean_j T_k(y_j))

    which for the mean m and the variance v of each column of y is

        mean_i Σ_d [ (μ_i - m) (y_i - m) + (v - (y_i - m)²) / 2 ] / σ_i²
    """
    work = torch.promote_types(torch.promote_types(p.loc.dtype, y.dtype), torch.float32)
    with full_precision(y):
        variance, mean = torch.var_mean(y.to(work), 0, correction=0)
        first = y - mean
        each = torch.addcmul(0.5 * (variance - first.square()), p.loc - mean, first)
        value = (each * p.scale.to(work).reciprocal().square()).sum() / len(y)
        return torch.where(variance.amax() == math.inf, math.inf, value)


def club_columns(
    loc: Float[Tensor, "n *t d"],
    precision: Float[Tensor, "*p"],
    y: Float[Tensor, "n *s d"],
    weights: Float[Tensor, "n *s"] | None = None,
) -> Float[Tensor, ""]:
    """CLUB of independent normal columns in its 1/N² form, by `club_normal_small`'s equation.

    Of sequences, y (n, T, d), the negatives are the y of other sequences at the same time, which
    for one x for each sequence, loc (n, d), comes to all their frames.

    Args:
        loc: means of q(y|x).
        precision: 1/σ², of the shape of the means, or one number.
        y: samples, or sequences of them.
        weights: of the samples, or of the frames.

    Returns:
        Nats.

    Example:
        >>> y = torch.tensor([[0.0], [2.0]])
        >>> club_columns(y, torch.ones(2, 1), y).item()
        1.0
    """
    if weights is not None:
        return _club_columns_weighted(*_with_time(loc, precision, y), y, weights)
    if y.ndim > loc.ndim:
        mean = y.mean((0, 1))
        first = y - mean
        first, second = first.mean(1), first.square().mean(1)
        variance = second.mean(0)
    else:
        mean = y.mean(0)
        first = y - mean
        second = first.square()
        variance = second.mean(0)
    each = torch.addcmul(0.5 * (variance - second), loc - mean, first) * precision
    return each.sum() * (each.shape[-1] / each.numel())


def _club_columns_weighted(loc: Tensor, precision: Tensor, y: Tensor, weights: Tensor) -> Tensor:
    total = weights.sum(0).unsqueeze(-1)
    share = weights.unsqueeze(-1) / torch.where(total == 0, 1.0, total)
    mean = (share * y).sum(0)
    first = y - mean
    variance = (share * first.square()).sum(0)
    each = torch.addcmul(0.5 * (variance - first.square()), loc - mean, first) * precision
    return weighted_mean(each.sum(-1).flatten(), weights.flatten())


def club_sample_columns(
    loc: Float[Tensor, "n *t d"],
    precision: Float[Tensor, "*p"],
    y: Float[Tensor, "n *s d"],
    index: Int[Tensor, " n"],
    weights: Float[Tensor, "n *s"] | None = None,
) -> Float[Tensor, ""]:
    """CLUB of independent normal columns with one drawn negative each; see `club_columns`.

    As a product, (y' - y) (y' + y - 2μ) / 2σ²: two large squares would cancel. With weights it is
    the mean over the pairs, which weigh the product of both.

    Args:
        loc: means of q(y|x).
        precision: 1/σ², of the shape of the means, or one number.
        y: samples, or sequences of them.
        index: which sample, or sequence, is the negative of each.
        weights: of the samples, or of the frames.

    Returns:
        Nats.

    Example:
        >>> y = torch.tensor([[0.0], [2.0]])
        >>> club_sample_columns(y, torch.ones(2, 1), y, torch.tensor([1, 0])).item()
        2.0
    """
    if weights is None and y.ndim > loc.ndim:
        centre = y.detach().mean((0, 1))
        y = y - centre
        first, second = y.mean(1), y.square().mean(1)
        step = first[index] - first
        each = torch.addcmul(second[index] - second, loc - centre, step, value=-2) * precision
        return each.sum() * (0.5 * each.shape[-1] / each.numel())
    loc, precision = _with_time(loc, precision, y)
    other = y[index]
    each = (other - y) * torch.add(other + y, loc, alpha=-2) * precision
    if weights is None:
        return each.sum() * (0.5 * each.shape[-1] / each.numel())
    return 0.5 * weighted_mean(each.sum(-1).flatten(), (weights * weights[index]).flatten())


def _with_time(loc: Tensor, precision: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Parameters of one x for each sequence with a dimension for the time."""
    if y.ndim == loc.ndim:
        return loc, precision
    return loc.unsqueeze(1), precision.unsqueeze(1) if precision.ndim else precision


def sum_normal(
    p: D.Normal, y: Shaped[Tensor, "n *event"], centre: Shaped[Tensor, " *event"]
) -> Float[Tensor, "6 *event"]:
    """All that CLUB needs of independent normal columns, summed over these samples.

    The statistics of a column are y - c and (y - c)², its natural parameters (μ - c) / σ² and
    -1/2σ². Sums of several pieces of a batch add up.

    Args:
        p: inside all ``Independent``.
        y: samples.
        centre: c, a point near the data, the same for all pieces.

    Returns:
        For each of the two statistics the sums of η T, η and T; those with 1/σ² lack the -1/2.
    """
    dtype = torch.promote_types(torch.promote_types(p.loc.dtype, p.scale.dtype), y.dtype)
    work = torch.promote_types(dtype, torch.float32)  # a difference of means needs the digits
    with full_precision(y):
        centre = centre.to(work)
        first = y.to(work) - centre
        precision = p.scale.to(work).reciprocal().square()
        eta, second = (p.loc.to(work) - centre) * precision, first.square()
        parts = (eta * first, precision * second, eta, precision, first, second)
        return torch.stack([part.sum(0) for part in parts])


def club_of_sums(sums: Float[Tensor, "6 *event"], n: int, batch: Batch) -> Float[Tensor, ""]:
    """CLUB in its 1/N² form from the sums over n samples here, and those of other processes."""
    with full_precision(sums):
        first, second, eta, precision, t, square = batch.average(sums / n).reshape(6, -1)
        joint = torch.cat([first, -0.5 * second])
        return club_of_means(joint, torch.cat([eta * t, -0.5 * precision * square]))


def club_sample_normal(
    p: D.Normal, y: Shaped[Tensor, "n *event"], others: Shaped[Tensor, "k n *event"]
) -> Float[Tensor, " n"]:
    """Log p(y_i|x_i) less the mean of log p(y|x_i) over the negatives, for normal columns.

    As a product, (y' - y) (y' + y - 2μ) / 2σ²: two large squares would cancel.
    """
    with full_precision(y):
        each = (others - y) * torch.add(others + y, p.loc, alpha=-2)
        return (each * (0.5 * p.scale.reciprocal().square())).mean(0).reshape(len(y), -1).sum(1)


def log_prob_pairs_product(
    p: Distribution, centre: Tensor
) -> tuple[Callable[..., Tensor], list[Tensor]] | None:
    """Log p(y_j|x_i), [i, j], as a product of matrices; None if p is no Gaussian.

    In double precision: far from its mean a Gaussian of small variance is a difference of large
    numbers.

    Returns:
        A function of some y's and of some rows of the two tensors that come with it.
    """
    family = family_of(p)
    if family is None or not family.centred:
        return None
    base, joined = unwrap(p)
    dtype, centre = centre.dtype, centre.double()
    natural, a = family.natural(base, centre)
    eta = torch.cat([e.reshape(len(e), -1) for e in natural], 1)
    a = sum_joined(a, joined)

    def block(y: Tensor, eta: Tensor, a: Tensor) -> Tensor:
        statistics = family.statistics(base, y.double(), centre)
        t = torch.cat([s.reshape(len(s), -1) for s in statistics], 1)
        return torch.addmm(a.unsqueeze(1), eta, t.T).to(dtype)

    return block, [eta, a]


def sum_joined(each: Float[Tensor, "*s"], joined: int) -> Float[Tensor, "..."]:
    """Sum over the last dimensions, those that ``Independent`` joins into one event."""
    return each.flatten(-joined).sum(-1) if joined else each


def categorical_log_probs(p: D.Categorical | D.OneHotCategorical) -> Float[Tensor, "*s c"]:
    """Log-probabilities, exact where p was given tiny or zero probabilities (torch clamps)."""
    return _unclamped(p.logits, p.probs, p.logits)


def bernoulli_log_probs(p: D.Bernoulli) -> tuple[Float[Tensor, "*s"], Float[Tensor, "*s"]]:
    """Log-probabilities of one and of zero, exact in the same way."""
    logits = p.logits
    log_one = _unclamped(F.logsigmoid(logits), p.probs, logits)
    log_zero = _unclamped(F.logsigmoid(-logits), 1 - p.probs, -logits)
    return log_one, log_zero


def _unclamped(log_p: Tensor, p: Tensor, logits: Tensor) -> Tensor:
    """log_p, but log(p) where torch has clamped p to eps before it took the logarithm.

    A logit that was *given* is below the clamp wherever p is that small.
    """
    eps = torch.finfo(p.dtype).eps
    clamped = (p < eps) & (logits > math.log(eps) - 0.01)
    return torch.where(clamped, torch.where(clamped, p, 1.0).log(), log_p)


def weighted(weight: Float[Tensor, "..."], value: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """weight * value, with 0 log 0 = 0, and without NaN in the gradient there."""
    zero = weight == 0
    return torch.where(zero, 0.0, weight * value.masked_fill(zero & value.isinf(), 0.0))
