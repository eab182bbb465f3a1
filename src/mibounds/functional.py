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
from torch.distributions import Distribution, kl_divergence

from mibounds import bounds
from mibounds.bounds import Draw, Negatives, draw_negatives
from mibounds.densities import (
    check_distribution,
    fit_gaussian,
    log_prob,
    log_prob_at,
    log_prob_mean,
    log_prob_pairs,
    standard_normal,
)
from mibounds.samples import check_pair

if TYPE_CHECKING:
    from jaxtyping import Float, Int, Shaped

__all__ = ["ba", "club", "club_sample", "l1out", "vub"]


def club(
    p: Distribution, y: Shaped[Tensor, "n *event"], *, negatives: Negatives = "others"
) -> Float[Tensor, ""]:
    """CLUB with the conditional p(y|x_i) as a Distribution; see [`mibounds.bounds.club`][].

    Costs O(N D) for exponential families (closed form), O(N² D) otherwise; exact in both cases.

    Args:
        p: conditional with batch shape (n,).
        y: samples.
        negatives: "others" for the unbiased sum, "all" for the paper's 1/N².

    Returns:
        The bound in nats; +inf, with a warning, where some y_j is impossible given some x_i.

    Example:
        >>> x = torch.randn(1000, 1, generator=torch.Generator().manual_seed(0))
        >>> p = torch.distributions.Independent(torch.distributions.Normal(x, 1.0), 1)
        >>> club(p, x).item()  # y = x exactly, at the centre of its p: E (x - x')² / 2
        1.0...
    """
    check_pair(y, y)
    value = bounds.club(log_prob(p, y), log_prob_mean(p, y), negatives)
    return _warn_if_infinite("CLUB", value)


def club_sample(
    p: Distribution,
    y: Shaped[Tensor, "n *event"],
    *,
    k: int = 1,
    draw: Draw = "derangement",
    generator: torch.Generator | None = None,
    index: Int[Tensor, "n k"] | None = None,
) -> Float[Tensor, ""]:
    """Sampled CLUB with the conditional as a Distribution; see [`mibounds.bounds.club_sample`][].

    Args:
        p: conditional with batch shape (n,).
        y: samples.
        k: negatives a sample.
        draw: how to draw them, see [`mibounds.bounds.draw_negatives`][].
        generator: source of randomness.
        index: negatives drawn already.

    Returns:
        The bound in nats.

    Example:
        >>> p = torch.distributions.Normal(torch.tensor([0.0, 2.0]), 1.0)
        >>> club_sample(p, torch.tensor([0.0, 2.0])).item()
        2.0
    """
    check_pair(y, y)
    if index is None:
        index = draw_negatives(len(y), k, draw, generator, y.device)
    value = bounds.club_sample(log_prob(p, y), log_prob_at(p, y, index))
    return _warn_if_infinite("sampled CLUB", value)


def l1out(p: Distribution, y: Shaped[Tensor, "n *event"]) -> Float[Tensor, ""]:
    """L1Out with the conditional as a Distribution; see [`mibounds.bounds.l1out`][].

    Args:
        p: conditional with batch shape (n,).
        y: samples.

    Returns:
        The bound in nats.

    Example:
        >>> p = torch.distributions.Normal(torch.tensor([0.0, 2.0]), 1.0)
        >>> l1out(p, torch.tensor([0.0, 2.0])).item()
        2.0
    """
    check_pair(y, y)
    check_distribution(p, y)
    return _warn_if_infinite("L1Out", bounds.l1out(log_prob_pairs(p, y)))


def vub(
    p: Distribution,
    y: Shaped[Tensor, "n *event"] | None = None,
    r: Distribution | None = None,
) -> Float[Tensor, ""]:
    """Variational upper bound with the conditional as a Distribution.

    With y the sampled form, [`mibounds.bounds.vub`][]; without, the mean of KL(p(y|x_i) || r(y)),
    [`mibounds.bounds.vub_kl`][], which is what an information bottleneck or a VAE uses.

    Args:
        p: conditional with batch shape (n,).
        y: samples, or None for the divergence.
        r: stand-in for the marginal of y, with batch shape () or (n,); N(0, I) if left out.

    Returns:
        The bound in nats.

    Example:
        >>> p = torch.distributions.Normal(torch.tensor([1.0, -1.0]), 1.0)
        >>> vub(p).item()
        0.5
    """
    r = standard_normal(p) if r is None else r
    if y is not None:
        check_pair(y, y)
        check_distribution(p, y)
        log_r = log_prob(r, y) if r.batch_shape else log_prob(r.expand((len(y),)), y)
        return _warn_if_infinite("VUB", bounds.vub(log_prob(p, y), log_r))
    try:
        return bounds.vub_kl(kl_divergence(p, r))
    except NotImplementedError:
        raise ValueError(
            f"Expected a pair of Distributions whose divergence has a closed form but got "
            f"{type(p).__name__} and {type(r).__name__}; pass samples y for the sampled form."
        ) from None


def ba(
    p: Distribution, y: Shaped[Tensor, "n *event"], entropy: Tensor | float | None = None
) -> Float[Tensor, ""]:
    """Barber-Agakov bound with the conditional as a Distribution; see [`mibounds.bounds.ba`][].

    Args:
        p: conditional with batch shape (n,).
        y: samples.
        entropy: H(y) in nats, which makes it a lower bound; if left out, that of a Gaussian fitted
            to y (of the frequencies, for labels), which makes it neither.

    Returns:
        The bound in nats.

    Example:
        >>> p = torch.distributions.Categorical(probs=torch.eye(2))
        >>> ba(p, torch.tensor([0, 1])).item()  # log 2
        0.693...
    """
    check_pair(y, y)
    own = log_prob(p, y)
    return bounds.ba(own, _estimated_entropy(y, own.dtype) if entropy is None else entropy)


def _estimated_entropy(y: Tensor, dtype: torch.dtype) -> Tensor:
    if y.ndim == 1 and not y.is_floating_point():
        _, counts = y.unique(return_counts=True)
        return torch.special.entr(counts.to(dtype) / len(y)).sum()
    y = y[:, None] if y.ndim == 1 else y
    return -fit_gaussian(y).log_prob(y).mean()


def _warn_if_infinite(name: str, value: Tensor) -> Tensor:
    # A look at the value would stall a GPU or break a graph.
    if not (value.is_cuda or torch.compiler.is_compiling()) and value.isposinf():
        warnings.warn(
            f"{name} is +inf: the conditional gives some y_j the probability zero at some x_i. "
            "That is its true value; smooth the conditional if you need a finite one.",
            RuntimeWarning,
            stacklevel=3,
        )
    return value
