"""What a Distribution knows of y: its log-density at the own y, at other y's, and on average.

A Distribution p here has batch shape (n,), one element for each x_i, and event shape that of one y.
The mean over j of log p(y_j|x_i), which CLUB needs for every i, has a closed form for exponential
families (`mibounds.bounds.exponential_families`), O(N D) instead of O(N² D); the rest goes block by
block.

Impossible values are part of the mathematics: log 0 is -inf, 0 log 0 is 0, and neither becomes NaN.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor
from torch._C._functorch import is_batchedtensor
from torch.distributions import (
    Bernoulli,
    Categorical,
    Distribution,
    Independent,
    LowRankMultivariateNormal,
    MixtureSameFamily,
    MultivariateNormal,
    Normal,
    OneHotCategorical,
    StudentT,
    TransformedDistribution,
    Uniform,
    constraints,
)
from torch.distributions.transforms import ComposeTransform

from mibounds.bounds.exponential_families import (
    LOG_2PI,
    bernoulli_log_probs,
    categorical_log_probs,
    family_of,
    find_centre,
    log_prob_mean_closed,
    log_prob_pairs_product,
    sum_joined,
    unwrap,
    weighted,
)
from mibounds.samples.batches import Batch
from mibounds.samples.pairs import Negatives, Pairs
from mibounds.samples.precision import full_precision

if TYPE_CHECKING:
    from jaxtyping import Float, Int, Shaped


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


def log_prob_same(p: Distribution, y: Shaped[Tensor, "n *event"]) -> Float[Tensor, " n"]:
    """Log-density of each sample under one Distribution, log p(y_i).

    A mixture of K diagonal Gaussians takes a product of matrices instead of N K D differences.

    Args:
        p: Distribution of batch shape (1,).
        y: samples.

    Returns:
        Nats.

    Example:
        >>> log_prob_same(Normal(torch.zeros(1), 1.0), torch.tensor([0.0, 1.0]))
        tensor([-0.9189, -1.4189])
    """
    check_distribution(p, y, batch_size=1)
    if type(p) is MixtureSameFamily:
        base, joined = unwrap(p.component_distribution)
        if type(base) is Normal and joined == 1:
            normal = Normal(base.loc[0], base.scale[0], validate_args=False)
            p_k = Independent(normal, 1, validate_args=False)
            product = log_prob_pairs_product(p_k, find_centre(y))  # each process has its own centre
            assert product is not None
            parts, rows = product
            log_p = categorical_log_probs(p.mixture_distribution)
            return (log_p.T + parts(y, *rows)).logsumexp(0)
    return log_prob_pairs(p, y).squeeze(0)


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


def log_prob_mean(
    p: Distribution,
    y: Shaped[Tensor, "m *event"],
    batch: Batch | None = None,
    negatives: Negatives = "all",
) -> Float[Tensor, " n"]:
    """Mean over all samples of the log-density under each conditional, mean_j log p(y_j|x_i).

    In closed form for exponential families: Gaussians (diagonal, full, low-rank), categorical,
    Bernoulli, Poisson, geometric, exponential, gamma, beta, log-normal. Block by block for every
    other Distribution.

    Args:
        p: conditional with batch shape (n,).
        y: samples.
        batch: where the samples are, if they are spread over processes.
        negatives: which samples the mean is taken over: "all", or without the own one ("others").

    Returns:
        Nats; -inf where some y_j is impossible given x_i.

    Example:
        >>> p, y = Normal(torch.tensor([0.0, 1.0]), 1.0), torch.tensor([0.0, 2.0])
        >>> torch.allclose(log_prob_mean(p, y), log_prob_pairs(p, y).mean(1))
        True
    """
    batch = batch or Batch(len(y))
    closed = log_prob_mean_closed(p, y, batch, negatives)
    if closed is not None:
        return closed
    everyone = batch.gather(y)
    nothing = torch.zeros(p.batch_shape, device=y.device)  # the diagonal plays no part in a mean
    return _pairs(p, everyone, nothing, batch).row_means(negatives)


def all_pairs(p: Distribution, y: Shaped[Tensor, "n *event"], batch: Batch) -> Pairs:
    """Log-densities of all samples under each conditional, computed when they are needed.

    Args:
        p: conditionals of this process.
        y: samples of this process.
        batch: where the samples are, if they are spread over processes.
    """
    own = log_prob(p, y)
    everyone = batch.gather(y)
    product = log_prob_pairs_product(p, find_centre(y, batch))
    if product is not None:
        block, rows = product
        return Pairs(everyone, block, own, batch=batch, rows=rows)
    return _pairs(p, everyone, own, batch)


def fit_gaussian(y: Float[Tensor, "n d"], batch: Batch | None = None) -> MultivariateNormal:
    """Gaussian of maximum likelihood; a constant column gets variance 1.

    Args:
        y: samples, more than there are columns.
        batch: where the samples are, if they are spread over processes.

    Returns:
        The Gaussian, through which gradients flow to y.

    Example:
        >>> round(fit_gaussian(torch.tensor([[0.0], [2.0]])).covariance_matrix.item(), 3)
        1.0
    """
    batch = batch or Batch(len(y))
    d = y.shape[1]
    if batch.size <= d:
        raise ValueError(
            f"Expected more samples than the {d} columns of y to fit a Gaussian to it "
            f"but got {batch.size}; pass larger batches, or the entropy of y if it is known."
        )
    point = batch.from_first(y[0])
    shifted = y - point
    shift = batch.mean(shifted)
    centred = shifted - shift
    variance = batch.mean(centred.square())
    constant = variance == 0
    scale = torch.where(constant, 1.0, variance).sqrt()
    z = centred / scale
    with full_precision(y):
        correlation = batch.sum(z.T @ z) / batch.size + torch.diag(constant.to(y.dtype))
    # As much as rounding may take from the smallest eigenvalue: collinear columns factorise too.
    jitter = 10 * d * torch.finfo(y.dtype).eps
    tril, _ = torch.linalg.cholesky_ex(
        correlation + jitter * torch.eye(d, dtype=y.dtype, device=y.device)
    )
    return MultivariateNormal(point + shift, scale_tril=scale[:, None] * tril, validate_args=False)


def standard_normal(p: Distribution, like: Tensor) -> Distribution:
    """N(0, I) over the events of p, of a type whose divergence from p torch knows.

    Args:
        p: conditional of a continuous y.
        like: a tensor with the dtype and device of y.

    Example:
        >>> p = Independent(Normal(torch.ones(5, 3), 1.0), 1)
        >>> standard_normal(p, p.mean).event_shape
        torch.Size([3])
    """
    if is_discrete(p):
        raise ValueError(
            f"Expected a continuous y for the marginal N(0, I) but got {_describe(p)}; "
            'pass marginal="learned", or a Distribution of y.'
        )
    zeros = like.new_zeros(p.event_shape)
    if isinstance(p, MultivariateNormal | LowRankMultivariateNormal):
        return MultivariateNormal(zeros, scale_tril=torch.diag(zeros + 1), validate_args=False)
    normal = Normal(zeros, zeros + 1, validate_args=False)
    return Independent(normal, len(p.event_shape), validate_args=False) if zeros.ndim else normal


def is_discrete(p: Distribution) -> bool:
    """Whether p gives probabilities and not densities.

    Example:
        >>> is_discrete(Categorical(logits=torch.zeros(5, 3))), is_discrete(Normal(0.0, 1.0))
        (True, False)
    """
    try:
        support = p.support
    except NotImplementedError:
        return False
    return support is not None and support.is_discrete


def check_distribution(p: Distribution, y: Tensor, batch_size: int | None = None) -> None:
    """Check that p is a conditional for just these samples y, or has the batch size given."""
    if not isinstance(p, Distribution):
        raise ValueError(
            "Expected the conditional to give a torch.distributions.Distribution "
            f"but got {type(p).__name__}; give one, such as Independent(Normal(mean, scale), 1)."
        )
    name = type(p).__name__
    n = len(y) if batch_size is None else batch_size
    if tuple(p.batch_shape) != (n,):
        extra = len(p.batch_shape) - 1
        hint = f"wrap it as Independent(p, {extra}), or " if extra > 0 else ""
        whose = "each sample" if batch_size is None else "all samples"
        raise ValueError(
            f"Expected a Distribution with batch shape ({n},), one element for {whose}, "
            f"but got {name} with batch shape {tuple(p.batch_shape)}; {hint}"
            f"give its parameters the leading shape ({n},)."
        )
    if tuple(y.shape[1:]) != tuple(p.event_shape):
        expected = (len(y), *p.event_shape)
        hint = "pass y.squeeze(1), or " if tuple(y.shape) == (*expected, 1) else ""
        raise ValueError(
            f"Expected y of shape {expected} for {name} but got {tuple(y.shape)}; {hint}"
            f"use a conditional of event shape {tuple(y.shape[1:])}."
        )
    if not y.is_floating_point() and not is_discrete(p):
        raise ValueError(
            f"Expected y to be floating point for {_describe(p)} but got {y.dtype}; "
            "call y.float(), or use a Categorical for labels."
        )
    if not _everywhere(p) and not must_not_look(y):
        inside = _inside(p, y)
        if not inside.all():
            i = int((~inside).nonzero()[0])
            raise ValueError(
                f"Expected every y_i in the support of its {_describe(p)} "
                f"but got y[{i}] = {y[i].tolist()}; "
                "count labels from 0 and give as many classes, or use a Distribution whose support "
                "holds all y."
            )


def repeat(
    p: Distribution, index: Int[Tensor, " m"], shape: tuple[int, int] | None = None
) -> Distribution | None:
    """The conditionals of chosen x's, without a look at x; None for a type that is not known here.

    Args:
        p: conditional with batch shape (n,).
        index: which x for each of m samples.
        shape: (n, times), if the index repeats each x so many times.

    Example:
        >>> p = repeat(Normal(torch.tensor([0.0, 1.0]), 1.0), torch.tensor([0, 0, 1]))
        >>> p.loc
        tensor([0., 0., 1.])
    """
    if type(p) is Independent:
        base = repeat(p.base_dist, index, shape)
        joined = p.reinterpreted_batch_ndims
        return None if base is None else Independent(base, joined, validate_args=False)
    if type(p) is MixtureSameFamily:
        parts = [repeat(part, index, shape) for part in (p.mixture_distribution,
                                                         p.component_distribution)]  # fmt: skip
        if any(part is None for part in parts):
            return None
        return MixtureSameFamily(*parts, validate_args=False)  # pyright: ignore
    names = PARAMETERS.get(type(p))
    if names is None:
        return None
    values = {}
    for name in names:
        value: Tensor = getattr(p, name)
        if shape is None:
            values[name] = value[index]
        else:
            value = value.unsqueeze(1).expand(*shape, *value.shape[1:])
            values[name] = value.reshape(-1, *value.shape[2:])
    return type(p)(**values, validate_args=False)


PARAMETERS: dict[type[Distribution], tuple[str, ...]] = {
    Normal: ("loc", "scale"),
    StudentT: ("df", "loc", "scale"),
    MultivariateNormal: ("loc", "scale_tril"),
    LowRankMultivariateNormal: ("loc", "cov_factor", "cov_diag"),
    Categorical: ("logits",),
    Bernoulli: ("logits",),
}


def _pairs(p: Distribution, y: Tensor, own: Tensor, batch: Batch) -> Pairs:
    return Pairs(y, lambda part: log_prob_pairs(p, part), own, p.event_shape.numel(), batch)


# --- log-densities, with exact zeros -------------------------------------------------------------


def _log_prob(p: Distribution, y: Tensor) -> Tensor:
    """p.log_prob(y), but with log 0 = -inf where torch clamps the probabilities."""
    base, joined = unwrap(p)
    if type(base) is Categorical:
        log_p = categorical_log_probs(base)
        y, _ = torch.broadcast_tensors(y.long(), log_p[..., 0])
        each = log_p.expand(*y.shape, -1).gather(-1, y[..., None]).squeeze(-1)
        return sum_joined(each, joined)
    if type(base) is Bernoulli:
        log_one, log_zero = bernoulli_log_probs(base)
        return sum_joined(torch.where(y > 0.5, log_one, log_zero), joined)
    if type(base) is OneHotCategorical:
        return sum_joined(weighted(y, categorical_log_probs(base)).sum(-1), joined)
    if type(p) is MixtureSameFamily:
        # by its components, some of which may exclude a y that others allow
        parts = _log_prob_anywhere(p.component_distribution, _for_components(p, y))
        return (categorical_log_probs(p.mixture_distribution) + parts).logsumexp(-1)
    with full_precision(y):
        if type(base) is Normal and not (p._validate_args or base._validate_args):
            # as torch's, in fewer operations, and without the square of a small scale
            z = (y - base.loc) / base.scale
            return -sum_joined(0.5 * z.square() + base.scale.log() + 0.5 * LOG_2PI, joined)
        return p.log_prob(y)


def _for_components(p: MixtureSameFamily, y: Tensor) -> Tensor:
    return y.unsqueeze(-1 - len(p.event_shape))


def _log_prob_anywhere(p: Distribution, y: Tensor) -> Tensor:
    """Log-density at y of shape (..., n or 1, *event), -inf outside the support of p."""
    if _everywhere(p) or family_of(p) is not None:
        return _log_prob(p, y)
    inside = _inside(p, y)
    if not must_not_look(y) and inside.all():
        return _log_prob(p, y)
    # Outside, evaluate at some point inside: its value is discarded, and so is its gradient, which
    # at the impossible point itself could be NaN.
    where = inside.reshape(*inside.shape, *[1] * len(p.event_shape))
    return torch.where(inside, _log_prob(p, torch.where(where, y, _point(p))), -math.inf)


def _everywhere(p: Distribution) -> bool:
    """Whether the support is all of the real space, so that no y is impossible."""
    if isinstance(p, Independent):
        return _everywhere(p.base_dist)
    if isinstance(p, MixtureSameFamily):
        return _everywhere(p.component_distribution)
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
    if isinstance(p, MixtureSameFamily):
        return _inside(p.component_distribution, _for_components(p, y)).any(-1)
    support = p.support
    assert support is not None
    inside = support.check(y)
    if isinstance(p, TransformedDistribution):  # the support of the base may be smaller than all
        y = cast(Tensor, ComposeTransform(p.transforms).inv(y))
        inside = inside & _inside(p.base_dist, y)
    return inside


def _describe(p: Distribution) -> str:
    p, _ = unwrap(p)
    labels = f" (labels 0 ... {p.logits.shape[-1] - 1})" if isinstance(p, Categorical) else ""
    return type(p).__name__ + labels


def _point(p: Distribution) -> Tensor:
    """Some value inside the support of each element of p."""
    if isinstance(p, Independent):
        return _point(p.base_dist)
    if isinstance(p, TransformedDistribution):
        return cast(Tensor, ComposeTransform(p.transforms)(_point(p.base_dist)))
    if isinstance(p, MixtureSameFamily):
        return _point(p.component_distribution).select(-1 - len(p.event_shape), 0)
    if isinstance(p, Uniform):
        return p.mean.detach()
    try:
        return p.mode.detach()
    except NotImplementedError:
        return p.sample()


def must_not_look(y: Tensor) -> bool:
    """Whether looking at values would stall a GPU, break a graph, or is impossible under vmap."""
    return y.is_cuda or torch.compiler.is_compiling() or is_batchedtensor(y)
