"""What a Distribution knows of y: its log-density at the own y, at other y's, and on average.

A Distribution p here has batch shape (n,), one element for each x_i, and event shape that of one y.
The mean over j of log p(y_j|x_i), which CLUB needs for every i, is the heart of this module. For an
exponential family log p is linear in sufficient statistics of y, so the batch enters through the
*mean* of those statistics alone: O(N D) instead of O(N² D), and exact.

Impossible values are part of the mathematics: log 0 is -inf, 0 log 0 is 0, and neither becomes NaN.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.distributions import (
    Bernoulli,
    Categorical,
    Distribution,
    Independent,
    LowRankMultivariateNormal,
    MultivariateNormal,
    Normal,
    TransformedDistribution,
    Uniform,
    constraints,
)
from torch.distributions.transforms import ComposeTransform

if TYPE_CHECKING:
    from jaxtyping import Float, Int, Shaped

BLOCK = 2**22  # numbers of one block of pairs, where no closed form exists


def log_prob(p: Distribution, y: Shaped[Tensor, "n *event"]) -> Float[Tensor, " n"]:
    """Log-density of each sample under its own conditional, log p(y_i|x_i).

    Args:
        p: conditional with batch shape (n,).
        y: samples.

    Returns:
        Nats.

    Example:
        >>> p = Categorical(probs=torch.tensor([[0.5, 0.5], [1.0, 0.0]]))
        >>> log_prob(p, torch.tensor([0, 1]))
        tensor([-0.6931,    -inf])
    """
    check_distribution(p, y)
    return _log_prob(p, y)


def log_prob_pairs(p: Distribution, y: Shaped[Tensor, "m *event"]) -> Float[Tensor, "n m"]:
    """Log-density of every sample under every conditional, [i, j] = log p(y_j|x_i).

    Args:
        p: conditional with batch shape (n,).
        y: samples.

    Returns:
        Nats; -inf where y_j lies outside the support of p(y|x_i).

    Example:
        >>> p = Normal(torch.tensor([0.0, 1.0]), 1.0)
        >>> log_prob_pairs(p, torch.tensor([0.0, 1.0, 2.0])).shape
        torch.Size([2, 3])
    """
    return _log_prob_anywhere(p, y.unsqueeze(1)).T


def log_prob_at(
    p: Distribution, y: Shaped[Tensor, "n *event"], index: Int[Tensor, "n k"]
) -> Float[Tensor, "n k"]:
    """Log-density of chosen samples under each conditional, [i, j] = log p(y_{index_ij}|x_i).

    Args:
        p: conditional with batch shape (n,).
        y: samples.
        index: which samples, a row for each conditional.

    Returns:
        Nats; -inf outside the support.

    Example:
        >>> p = Normal(torch.tensor([0.0, 1.0]), 1.0)
        >>> log_prob_at(p, torch.tensor([0.0, 1.0]), torch.tensor([[1], [0]])).shape
        torch.Size([2, 1])
    """
    return _log_prob_anywhere(p, y[index.T]).T


def log_prob_mean(p: Distribution, y: Shaped[Tensor, "m *event"]) -> Float[Tensor, " n"]:
    """Mean over all samples of the log-density under each conditional, mean_j log p(y_j|x_i).

    Closed form for Gaussians (diagonal, full, low-rank), categorical and Bernoulli; block by block
    for every other Distribution.

    Args:
        p: conditional with batch shape (n,).
        y: samples.

    Returns:
        Nats; -inf where some y_j is impossible given x_i.

    Example:
        >>> p, y = Normal(torch.tensor([0.0, 1.0]), 1.0), torch.tensor([0.0, 2.0])
        >>> torch.allclose(log_prob_mean(p, y), log_prob_pairs(p, y).mean(1))
        True
    """
    closed_form = _closed_form(p)
    if closed_form is not None:
        return closed_form(p, y)
    block = max(1, BLOCK // max(1, p.batch_shape.numel() * p.event_shape.numel()))
    sums = [log_prob_pairs(p, part).sum(1) for part in y.split(block)]
    return torch.stack(sums).sum(0) / len(y)


def fit_gaussian(y: Float[Tensor, "n d"]) -> MultivariateNormal:
    """Gaussian of maximum likelihood; a constant column gets variance 1.

    Args:
        y: samples, more than there are columns.

    Returns:
        The Gaussian, through which gradients flow to y.

    Example:
        >>> round(fit_gaussian(torch.tensor([[0.0], [2.0]])).covariance_matrix.item(), 3)
        1.0
    """
    n, d = y.shape
    if n <= d:
        raise ValueError(
            f"Expected more samples than the {d} columns of y to fit a Gaussian to it but got {n}; "
            "pass larger batches, or the entropy of y if it is known."
        )
    centred = y - y.mean(0)
    variance = centred.square().mean(0)
    constant = (y == y[0]).all(0)
    scale = torch.where(constant, 1.0, variance).sqrt()
    z = torch.where(constant, 0.0, centred) / scale
    correlation = z.T @ z / n + torch.diag(constant.to(y.dtype))
    # As much as rounding may take from the smallest eigenvalue: collinear columns factorise too.
    jitter = 10 * d * torch.finfo(y.dtype).eps
    tril, _ = torch.linalg.cholesky_ex(
        correlation + jitter * torch.eye(d, dtype=y.dtype, device=y.device)
    )
    return MultivariateNormal(y.mean(0), scale_tril=scale[:, None] * tril, validate_args=False)


def standard_normal(p: Distribution) -> Distribution:
    """N(0, I) over the events of p, of a type whose divergence from p torch knows.

    Example:
        >>> p = Independent(Normal(torch.ones(5, 3), 1.0), 1)
        >>> standard_normal(p).event_shape
        torch.Size([3])
    """
    mean = p.mean
    zeros = mean.new_zeros(p.event_shape)
    if isinstance(p, MultivariateNormal | LowRankMultivariateNormal):
        return MultivariateNormal(zeros, scale_tril=torch.diag(zeros + 1), validate_args=False)
    normal = Normal(zeros, zeros + 1, validate_args=False)
    return Independent(normal, len(p.event_shape), validate_args=False) if zeros.ndim else normal


def check_distribution(p: Distribution, y: Tensor) -> None:
    """Check that p is a conditional for just these samples y."""
    if not isinstance(p, Distribution):
        raise ValueError(
            "Expected the conditional to give a torch.distributions.Distribution "
            f"but got {type(p).__name__}."
        )
    name = type(p).__name__
    if tuple(p.batch_shape) != (len(y),):
        extra = len(p.batch_shape) - 1
        hint = f"; wrap it as Independent(p, {extra})" if extra > 0 else ""
        raise ValueError(
            f"Expected a Distribution with batch shape ({len(y)},), one element for each sample, "
            f"but got {name} with batch shape {tuple(p.batch_shape)}{hint}."
        )
    if tuple(y.shape[1:]) != tuple(p.event_shape):
        expected = (len(y), *p.event_shape)
        hint = "; pass y.squeeze(1)" if tuple(y.shape) == (*expected, 1) else ""
        raise ValueError(
            f"Expected y of shape {expected} for {name} but got {tuple(y.shape)}{hint}."
        )
    if not _everywhere(p) and not _must_not_look(y):
        inside = _inside(p, y)
        if not inside.all():
            i = int((~inside).nonzero()[0])
            raise ValueError(
                f"Expected every y_i in the support of its {_describe(p)} "
                f"but got y[{i}] = {y[i].tolist()}."
            )


# --- log-densities, with exact zeros -------------------------------------------------------------


def _log_prob(p: Distribution, y: Tensor) -> Tensor:
    """p.log_prob(y), but with log 0 = -inf where torch clamps the probabilities."""
    if isinstance(p, Independent):
        each = _log_prob(p.base_dist, y)
        k = p.reinterpreted_batch_ndims
        return each.flatten(-k).sum(-1) if k else each
    if type(p) is Categorical:
        log_p = _categorical(p)
        y, _ = torch.broadcast_tensors(y.long(), log_p[..., 0])
        return log_p.expand(*y.shape, -1).gather(-1, y[..., None]).squeeze(-1)
    if type(p) is Bernoulli:
        log_one, log_zero = _bernoulli(p)
        return torch.where(y > 0.5, log_one, log_zero)
    return p.log_prob(y)


def _log_prob_anywhere(p: Distribution, y: Tensor) -> Tensor:
    """Log-density at y of shape (..., n or 1, *event), -inf outside the support of p."""
    if _everywhere(p) or _closed_form(p) is not None:
        return _log_prob(p, y)
    inside = _inside(p, y)
    # Outside, evaluate at some point inside: its value is discarded, and so is its gradient, which
    # at the impossible point itself could be NaN.
    where = inside.reshape(*inside.shape, *[1] * len(p.event_shape))
    return torch.where(inside, _log_prob(p, torch.where(where, y, _point(p))), -math.inf)


def _categorical(p: Categorical) -> Tensor:
    """Log-probabilities, exactly -inf where p was given a probability of zero (torch clamps)."""
    eps = torch.finfo(p.logits.dtype).eps
    clamped = (p.probs == 0) & (p.logits > 2 * math.log(eps))
    return p.logits.masked_fill(clamped, -math.inf)


def _bernoulli(p: Bernoulli) -> tuple[Tensor, Tensor]:
    """Log-probabilities of one and of zero, likewise."""
    logits = p.logits
    most = -2 * math.log(torch.finfo(logits.dtype).eps)
    log_one = F.logsigmoid(logits).masked_fill((p.probs == 0) & (logits > -most), -math.inf)
    log_zero = F.logsigmoid(-logits).masked_fill((p.probs == 1) & (logits < most), -math.inf)
    return log_one, log_zero


def _everywhere(p: Distribution) -> bool:
    """Whether the support is all of the real space, so that no y is impossible."""
    if isinstance(p, Independent):
        return _everywhere(p.base_dist)
    if isinstance(p, TransformedDistribution) and not _everywhere(p.base_dist):
        return False
    try:
        support = p.support
    except NotImplementedError:  # unknown, as for some flows: taken to be everywhere
        return True
    while (inner := getattr(support, "base_constraint", None)) is not None:
        support = inner
    return support is constraints.real


def _inside(p: Distribution, y: Tensor) -> Tensor:
    """Whether y has a density under p other than zero, as far as the support tells."""
    if isinstance(p, Independent):
        each = _inside(p.base_dist, y)
        k = p.reinterpreted_batch_ndims
        return each.flatten(-k).all(-1) if k else each
    support = p.support
    assert support is not None
    inside = support.check(y)
    if isinstance(p, TransformedDistribution):  # the support of the base may be smaller than all
        y = cast(Tensor, ComposeTransform(p.transforms).inv(y))
        inside = inside & _inside(p.base_dist, y)
    return inside


def _describe(p: Distribution) -> str:
    while isinstance(p, Independent):
        p = p.base_dist
    labels = f" (labels 0 ... {p.logits.shape[-1] - 1})" if isinstance(p, Categorical) else ""
    return type(p).__name__ + labels


def _point(p: Distribution) -> Tensor:
    """Some value inside the support of each element of p."""
    if isinstance(p, Independent):
        return _point(p.base_dist)
    if isinstance(p, TransformedDistribution):
        return cast(Tensor, ComposeTransform(p.transforms)(_point(p.base_dist)))
    return (p.mean if isinstance(p, Uniform) else p.mode).detach()


def _must_not_look(y: Tensor) -> bool:
    """Whether looking at values would stall a GPU or break a graph."""
    return y.is_cuda or torch.compiler.is_compiling()


# --- mean log-densities of exponential families --------------------------------------------------


def _closed_form(p: Distribution) -> Callable[..., Tensor] | None:
    if isinstance(p, Independent) and _closed_form(p.base_dist) is not None:
        return _mean_independent
    # the type itself: a subclass may have another density
    return _CLOSED_FORMS.get(type(p))


def _mean_independent(p: Independent, y: Tensor) -> Tensor:
    closed_form = _closed_form(p.base_dist)
    assert closed_form is not None
    each = closed_form(p.base_dist, y)
    k = p.reinterpreted_batch_ndims
    return each.flatten(-k).sum(-1) if k else each


def _centred(y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """A point near the data, the mean relative to it, and the deviations from the mean.

    Relative to a point of the data nothing is lost in single precision when the mean is large
    against the spread.
    """
    point = y[0].detach()
    shifted = y - point
    mean = shifted.mean(0)
    return point, mean, shifted - mean


def _mean_normal(p: Normal, y: Tensor) -> Tensor:
    point, mean, deviation = _centred(y)
    square = ((point - p.loc) + mean).square() + deviation.square().mean(0)
    return -0.5 * (square / p.scale.square() + math.log(2 * math.pi)) - p.scale.log()


def _mean_multivariate_normal(p: MultivariateNormal, y: Tensor) -> Tensor:
    point, mean, deviation = _centred(y)
    tril = p.scale_tril
    if tril.ndim > 2 and tril.stride(0) == 0:  # one covariance for all
        tril = tril[:1]
    offset = ((point - p.loc) + mean).unsqueeze(-1)
    covariance = deviation.T @ deviation / len(y)
    square = torch.linalg.solve_triangular(tril, offset, upper=False).square().sum((-2, -1))
    trace = torch.cholesky_solve(covariance.expand_as(tril), tril)
    trace = trace.diagonal(dim1=-2, dim2=-1).sum(-1)
    log_det = tril.diagonal(dim1=-2, dim2=-1).log().sum(-1)
    return -0.5 * (square + trace + y.shape[-1] * math.log(2 * math.pi)) - log_det


def _mean_low_rank_normal(p: LowRankMultivariateNormal, y: Tensor) -> Tensor:
    point, mean, deviation = _centred(y)
    factor, diagonal = p.cov_factor, p.cov_diag
    scaled = factor / diagonal.unsqueeze(-1)  # D⁻¹ W
    rank = factor.shape[-1]
    capacitance = torch.eye(rank, dtype=y.dtype, device=y.device) + factor.mT @ scaled
    tril = torch.linalg.cholesky(capacitance)
    offset = (point - p.loc) + mean
    # E (y-μ)ᵀ Σ⁻¹ (y-μ) over the batch, by the Woodbury identity
    moments = offset.square() + deviation.square().mean(0)
    along = (scaled.mT @ offset.unsqueeze(-1)).squeeze(-1)
    spread = scaled.mT @ (deviation.T @ deviation / len(y)) @ scaled
    inner = torch.cholesky_solve(spread + along.unsqueeze(-1) * along.unsqueeze(-2), tril)
    square = (moments / diagonal).sum(-1) - inner.diagonal(dim1=-2, dim2=-1).sum(-1)
    log_det = diagonal.log().sum(-1) + 2 * tril.diagonal(dim1=-2, dim2=-1).log().sum(-1)
    return -0.5 * (square + log_det + y.shape[-1] * math.log(2 * math.pi))


def _mean_categorical(p: Categorical, y: Tensor) -> Tensor:
    log_p = _categorical(p)
    frequency = F.one_hot(y.long(), log_p.shape[-1]).to(log_p.dtype).mean(0)
    return _weighted(frequency, log_p).sum(-1)


def _mean_bernoulli(p: Bernoulli, y: Tensor) -> Tensor:
    log_one, log_zero = _bernoulli(p)
    frequency = (y > 0.5).to(log_one.dtype).mean(0)
    return _weighted(frequency, log_one) + _weighted(1 - frequency, log_zero)


def _weighted(weight: Tensor, log_p: Tensor) -> Tensor:
    """weight * log_p, with 0 log 0 = 0."""
    return torch.where(weight == 0, 0.0, weight * log_p.masked_fill(weight == 0, 0.0))


_CLOSED_FORMS: dict[type[Distribution], Callable[..., Tensor]] = {
    Normal: _mean_normal,
    MultivariateNormal: _mean_multivariate_normal,
    LowRankMultivariateNormal: _mean_low_rank_normal,
    Categorical: _mean_categorical,
    Bernoulli: _mean_bernoulli,
}
