"""Bounds with a Distribution at hand: for encoders that have just computed p(y|x).

A VAE or an information bottleneck has the conditional of its code already; these functions take it
as it is, with gradients through it, and need no second pass: ``club(p, z)``. The estimators of the
same stem call them too.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.distributions import Distribution, Normal, kl_divergence

from mibounds import bounds
from mibounds.bounds import Draw, draw_negatives
from mibounds.bounds.densities import (
    all_pairs,
    check_distribution,
    fit_gaussian,
    is_discrete,
    log_prob,
    log_prob_at,
    log_prob_mean,
    must_not_look,
    standard_normal,
)
from mibounds.bounds.exponential_families import club_normal, club_sample_normal, unwrap
from mibounds.bounds.from_conditionals import draw_sequences, leave_out_own, log_ratio
from mibounds.samples.batches import Batch
from mibounds.samples.checks import Group, check_samples
from mibounds.samples.pairs import Negatives
from mibounds.samples.seeds import Seed

if TYPE_CHECKING:
    from jaxtyping import Float, Int, Shaped

__all__ = ["ba", "club", "club_sample", "doe", "l1out", "vub"]


def club(
    p: Distribution,
    y: Shaped[Tensor, "n *event"],
    *,
    negatives: Negatives = "others",
    group: Group = None,
) -> Float[Tensor, ""]:
    """CLUB with the conditional p(y|x_i) as a Distribution; see [`mibounds.bounds.club`][].

    Costs O(N D) for exponential families (closed form), O(N² D) otherwise; exact in both cases.

    Args:
        p: conditional with batch shape (n,).
        y: samples.
        negatives: "others" for the unbiased sum, "all" for the paper's 1/N².
        group: processes whose batches are joined, see `mibounds.samples.batches`.

    Returns:
        The bound in nats; +inf, with a warning, where some y_j is impossible given some x_i.

    Example:
        >>> x = torch.randn(1000, 1, generator=torch.Generator().manual_seed(0))
        >>> p = torch.distributions.Independent(torch.distributions.Normal(x, 1.0), 1)
        >>> club(p, x).item()  # y = x exactly, at the centre of its p: E (x - x')² / 2
        1.0...
    """
    batch = check_samples(y, group)
    base, _ = unwrap(p)
    if not batch.plain:
        mean = log_prob_mean(p, y, batch, negatives)
        value = batch.mean(log_ratio(log_prob(p, y), mean))
    elif type(base) is Normal:  # itself: a subclass may have another density
        check_distribution(p, y)
        value = leave_out_own(club_normal(base, y, batch), batch.size, negatives)
    else:
        value = bounds.club(log_prob(p, y), log_prob_mean(p, y, batch), negatives, batch)
    return warn_if_infinite("CLUB", value)


def club_sample(
    p: Distribution,
    y: Shaped[Tensor, "n *event"],
    *,
    k: int = 1,
    draw: Draw = "derangement",
    seed: Seed = None,
    index: Int[Tensor, "n k"] | None = None,
    group: Group = None,
) -> Float[Tensor, ""]:
    """Sampled CLUB with the conditional as a Distribution; see [`mibounds.bounds.club_sample`][].

    Args:
        p: conditional with batch shape (n,).
        y: samples.
        k: negatives per sample.
        draw: how to draw them, see [`mibounds.bounds.draw_negatives`][].
        seed: of the draw, see `mibounds.samples.seeds`; that of the first process counts.
        index: negatives drawn already, for this process's samples among those of all.
        group: processes whose batches are joined, see `mibounds.samples.batches`.

    Returns:
        The bound in nats.

    Example:
        >>> p = torch.distributions.Normal(torch.tensor([0.0, 2.0]), 1.0)
        >>> club_sample(p, torch.tensor([0.0, 2.0])).item()
        2.0
    """
    batch = check_samples(y, group)
    if index is not None and (index.ndim != 2 or len(index) != len(y)):
        raise ValueError(
            f"Expected index of shape ({len(y)}, k) but got {tuple(index.shape)}; "
            "pass index[:, None] for one negative per sample."
        )
    if index is None:
        if batch.sequences is None:
            drawn = draw_negatives(batch.size, k, draw, seed, y.device)
        else:
            drawn = draw_sequences(batch.all_sequences(y.device), k, draw, seed)
        index = batch.local(batch.from_first(drawn))
    base, _ = unwrap(p)
    if batch.weights is not None:
        each = log_ratio(log_prob(p, y)[:, None], log_prob_at(p, batch.gather(y), index))
        weights = batch.weights[:, None] * batch.all_weights(each)[index]
        value = batch.sum((weights * each).sum()) / batch.sum(weights.sum())
    elif type(base) is Normal:
        check_distribution(p, y)
        others = batch.gather(y)[index.T]
        value = batch.mean(club_sample_normal(base, y, others))
    else:
        negatives = log_prob_at(p, batch.gather(y), index)
        value = bounds.club_sample(log_prob(p, y), negatives, batch)
    return warn_if_infinite("sampled CLUB", value)


def l1out(
    p: Distribution,
    y: Shaped[Tensor, "n *event"],
    *,
    group: Group = None,
) -> Float[Tensor, ""]:
    """L1Out with the conditional as a Distribution; see [`mibounds.bounds.l1out`][].

    Args:
        p: conditional with batch shape (n,).
        y: samples.
        group: processes whose batches are joined, see `mibounds.samples.batches`.

    Returns:
        The bound in nats.

    Example:
        >>> p = torch.distributions.Normal(torch.tensor([0.0, 2.0]), 1.0)
        >>> l1out(p, torch.tensor([0.0, 2.0])).item()
        2.0
    """
    batch = check_samples(y, group)
    return warn_if_infinite("L1Out", bounds.l1out(all_pairs(p, y, batch)))


def vub(
    p: Distribution,
    y: Shaped[Tensor, "n *event"] | None = None,
    r: Distribution | None = None,
    *,
    group: Group = None,
) -> Float[Tensor, ""]:
    """Variational upper bound with the conditional as a Distribution.

    With y the sampled form, [`mibounds.bounds.vub`][]; without, the mean of KL(p(y|x_i) || r(y)),
    [`mibounds.bounds.vub_kl`][], which is what an information bottleneck or a VAE uses.

    Args:
        p: conditional with batch shape (n,).
        y: samples, or None for the divergence.
        r: stand-in for the marginal of y, with batch shape () or (n,); N(0, I) if left out.
        group: processes whose batches are joined, see `mibounds.samples.batches`.

    Returns:
        The bound in nats.

    Example:
        >>> p = torch.distributions.Normal(torch.tensor([1.0, -1.0]), 1.0)
        >>> vub(p).item()
        0.5
    """
    if not isinstance(p, Distribution):
        raise ValueError(
            f"Expected p to be a torch.distributions.Distribution but got {type(p).__name__}; "
            "pass p(y | x), such as Independent(Normal(mean, scale), 1)."
        )
    if len(p.batch_shape) > 1:
        raise ValueError(
            f"Expected p with batch shape (n,) but got {type(p).__name__} with batch shape "
            f"{tuple(p.batch_shape)}; wrap it as Independent(p, {len(p.batch_shape) - 1})."
        )
    if r is None:
        r = standard_normal(p, p.mean if y is None else y)
    if y is not None:
        batch = check_samples(y, group)
        check_distribution(p, y)
        return warn_if_infinite("VUB", bounds.vub(log_prob(p, y), log_marginal(r, y), batch))
    kl = divergence(p, r)
    return bounds.vub_kl(kl, check_samples(kl, group))


def ba(
    p: Distribution,
    y: Shaped[Tensor, "n *event"],
    entropy: Tensor | float | None = None,
    *,
    group: Group = None,
) -> Float[Tensor, ""]:
    """Barber-Agakov bound with the conditional as a Distribution; see [`mibounds.bounds.ba`][].

    Args:
        p: conditional with batch shape (n,).
        y: samples.
        entropy: H(y) in nats, which makes it a lower bound; if left out, that of a Gaussian fitted
            to y (of the frequencies, for labels), which makes it neither.
        group: processes whose batches are joined, see `mibounds.samples.batches`.

    Returns:
        The bound in nats.

    Example:
        >>> p = torch.distributions.Categorical(probs=torch.eye(2))
        >>> ba(p, torch.tensor([0, 1])).item()  # log 2
        0.693...
    """
    batch = check_samples(y, group)
    own = log_prob(p, y)
    return bounds.ba(own, _estimated_entropy(p, y, batch) if entropy is None else entropy, batch)


def doe(
    p: Distribution,
    y: Shaped[Tensor, "n *event"],
    r: Distribution | None = None,
    *,
    group: Group = None,
) -> Float[Tensor, ""]:
    """Difference of entropies with fitted Distributions; see [`mibounds.bounds.doe`][].

    Args:
        p: conditional with batch shape (n,).
        y: samples.
        r: model of the marginal of y, with batch shape () or (n,); a Gaussian fitted to y if left
            out.
        group: processes whose batches are joined, see `mibounds.samples.batches`.

    Returns:
        The estimate in nats.

    Example:
        >>> p = torch.distributions.Normal(torch.tensor([0.0, 2.0]), 1.0)
        >>> r = torch.distributions.Normal(1.0, 2.0)
        >>> doe(p, torch.tensor([0.0, 2.0]), r).item()
        0.818...
    """
    batch = check_samples(y, group)
    own = log_prob(p, y)
    if r is None:
        if is_discrete(p):
            raise ValueError(
                "Expected r, a model of the marginal of the labels y, but got none; pass "
                "Categorical(probs=frequencies), for example."
            )
        flat = y.reshape(len(y), -1)
        return bounds.doe(own, fit_gaussian(flat, batch).log_prob(flat), batch)
    return bounds.doe(own, log_marginal(r, y), batch)


def divergence(p: Distribution, r: Distribution) -> Float[Tensor, " n"]:
    """KL(p(y|x_i) || r(y)) in closed form."""
    try:
        return kl_divergence(p, r)
    except NotImplementedError:
        raise ValueError(
            f"Expected a pair of Distributions whose divergence has a closed form but got "
            f"{type(p).__name__} and {type(r).__name__}; pass samples y for the sampled form."
        ) from None


def log_marginal(r: Distribution, y: Shaped[Tensor, "n *event"]) -> Float[Tensor, " n"]:
    """Log r(y_i) of a model of the marginal, one for all samples or one for each."""
    return log_prob(r, y) if r.batch_shape else log_prob(r.expand((len(y),)), y)


def _estimated_entropy(p: Distribution, y: Tensor, batch: Batch) -> Tensor:
    y = y.reshape(len(y), -1)
    if is_discrete(p):
        _, counts = batch.gather(y).unique(dim=0, return_counts=True)
        return torch.special.entr(counts.float() / batch.size).sum()
    return -batch.mean(fit_gaussian(y, batch).log_prob(y))


def warn_if_infinite(name: str, value: Tensor, stacklevel: int = 3) -> Tensor:
    """Say why an upper bound is infinite; the value itself comes back.

    Args:
        name: of the bound.
        value: nats.
        stacklevel: as for `warnings.warn`; 3 for whoever called the function that calls this one.
    """
    if not must_not_look(value) and value.isposinf():
        warnings.warn(
            f"{name} is +inf: the conditional gives some y_j the probability zero at some x_i. "
            "That is its true value; smooth the conditional if you need a finite one.",
            RuntimeWarning,
            stacklevel=stacklevel,
        )
    return value
