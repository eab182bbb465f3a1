"""Bounds from a conditional q(y|x)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from mibounds.samples.batches import Batch
from mibounds.samples.pairs import Negatives, Pairs, check_negatives
from mibounds.samples.seeds import Seed, make_generator

if TYPE_CHECKING:
    from jaxtyping import Float, Int

Draw = Literal["uniform", "permutation", "derangement", "sequences"]


def club(
    log_prob: Float[Tensor, " n"],
    log_prob_mean: Float[Tensor, " n"],
    negatives: Negatives = "others",
    batch: Batch | None = None,
) -> Float[Tensor, ""]:
    """Contrastive log-ratio upper bound over all pairs.

        1/N Σ_i [ log q(y_i|x_i) - mean_j log q(y_j|x_i) ]

    An upper bound if q is the true conditional (Theorem 3.1), or is nearer to p(x, y) than to p(x)
    p(y) (Theorem 3.2). It is not tight, not even with the true conditional. Because the sum is
    linear in log q, leaving out i = j is the same as a factor N / (N - 1), which makes the sample
    value unbiased. It is +inf where q(y_j|x_i) = 0 for some pair.

    Reference: CLUB, equations 13 (known conditional) and 15 (variational).

    Args:
        log_prob: log q(y_i|x_i).
        log_prob_mean: mean over *all* j of log q(y_j|x_i).
        negatives: "others" for the unbiased 1/(N(N-1)) sum, "all" for the paper's 1/N² sum.
        batch: where the samples are, if they are spread over processes.

    Returns:
        The bound in nats.

    Example:
        >>> scores = torch.tensor([[0.0, -1.0], [-3.0, 0.0]])
        >>> club(scores.diag(), scores.mean(1)).item()
        2.0
        >>> club(scores.diag(), scores.mean(1), negatives="all").item()
        1.0
    """
    batch = _check_batch(log_prob, batch)
    return leave_out_own(batch.mean(log_ratio(log_prob, log_prob_mean)), batch.size, negatives)


def leave_out_own(value: Tensor, n: Tensor | int, negatives: Negatives) -> Tensor:
    """CLUB without the pairs i = j, from its 1/N² form; that form itself for "all".

    The sum is linear in log q, and the pairs i = j contribute nothing to it.

    Args:
        value: in the 1/N² form.
        n: number of samples.
        negatives: "others" for the unbiased form.

    Returns:
        Nats.

    Example:
        >>> leave_out_own(torch.tensor(1.0), 2, "others").item()
        2.0
    """
    return value * (n / (n - 1)) if check_negatives(negatives) != "all" else value


def club_sample(
    log_prob: Float[Tensor, " n"],
    log_prob_negatives: Float[Tensor, "n k"],
    batch: Batch | None = None,
) -> Float[Tensor, ""]:
    """CLUB with k sampled negatives per sample, instead of all pairs.

        1/N Σ_i [ log q(y_i|x_i) - 1/k Σ_j log q(y_{c_ij}|x_i) ]

    Unbiased for the all-pairs value, because the sum is linear in log q (a sampled L1Out is not).

    Reference: CLUB, section 3.3 (vCLUB-S).

    Args:
        log_prob: log q(y_i|x_i).
        log_prob_negatives: log q(y_{c_ij}|x_i), with the indices c that `draw_negatives` gives.
        batch: where the samples are, if they are spread over processes.

    Returns:
        The bound in nats.

    Example:
        >>> club_sample(torch.tensor([0.0, 0.0]), torch.tensor([[-1.0], [-3.0]])).item()
        2.0
    """
    batch = _check_batch(log_prob, batch)
    return batch.mean(log_ratio(log_prob, log_prob_negatives.mean(1)))


def draw_negatives(
    n: int,
    k: int = 1,
    draw: Draw = "derangement",
    seed: Seed = None,
    device: torch.device | str | None = None,
) -> Int[Tensor, "n k"]:
    """Draw the indices of k negatives for each of n samples.

    "uniform" draws from all N samples, the own one included, as in Algorithm 1 of the paper, and so
    agrees in expectation with the 1/N² form of CLUB; so does "permutation", in which every sample
    is the negative of exactly one other (about one is its own). "derangement" is a permutation
    without fixed points (a random cycle), hence unbiased for the 1/(N(N-1)) form; its k negatives a
    sample are distinct, and with k = N - 1 the sampled value *is* the exact one. Permutations have
    the smaller variance, because terms that depend only on x or only on y cancel in the sum.
    "sequences" is a derangement of whole sequences, where samples are parts of them.

    Args:
        n: number of samples, at least 2.
        k: negatives per sample; at most n - 1 with "derangement".
        draw: how to draw.
        seed: of the draw, see `mibounds.samples.seeds`.
        device: device of the indices.

    Returns:
        Indices in 0 ... n - 1.

    Example:
        >>> index = draw_negatives(4, k=3, seed=0)
        >>> index.sort(1).values.tolist()
        [[1, 2, 3], [0, 2, 3], [0, 1, 3], [0, 1, 2]]
    """
    if n < 2:
        raise ValueError(
            f"Expected at least 2 samples to draw negatives from but got {n}; leave such a batch "
            "out, or join it to another."
        )
    apart = draw in ("derangement", "sequences")
    if k < 1 or (apart and k > n - 1):
        limit = f"1 <= k <= n - 1 = {n - 1}" if apart else "k >= 1"
        raise ValueError(
            f'Expected {limit} negatives per sample with draw="{draw}" but got k={k}; '
            'take another k, or draw="uniform", which draws with replacement.'
        )
    generator = make_generator(seed)
    where = generator.device if generator is not None else device
    if draw == "uniform":
        index = torch.randint(n, (n, k), generator=generator, device=where)
    elif draw == "permutation":
        rows = [torch.randperm(n, generator=generator, device=where) for _ in range(k)]
        index = torch.stack(rows, 1)
    elif apart:
        # Put the samples on a circle in random order; the negatives lie k distinct steps ahead.
        circle = torch.randperm(n, generator=generator, device=where)
        if k == 1:
            steps = torch.randint(1, n, (1,), generator=generator, device=where)
        else:
            steps = 1 + torch.randperm(n - 1, generator=generator, device=where)[:k]
        ahead = (torch.arange(n, device=where)[:, None] + steps) % n
        index = torch.empty_like(ahead).index_copy_(0, circle, circle[ahead])
    else:
        raise ValueError(
            'Expected draw to be "sequences", "uniform", "permutation" or "derangement" but got '
            f"{draw!r}; "
            "leave it out for the default, which pairs no sample with itself."
        )
    return index.to(device) if device is not None else index


def draw_sequences(
    sequences: Int[Tensor, " m"], k: int = 1, draw: Draw = "sequences", seed: Seed = None
) -> Int[Tensor, "m k"]:
    """Draw k negatives for each part of sequences: the parts of other sequences at the same time.

    Those of a shorter sequence are repeated.

    Args:
        sequences: which sequence each sample is a part of, in ascending order.
        k: negatives per sample.
        draw: how to draw the sequences, see `draw_negatives`.
        seed: of the draw.

    Returns:
        Indices of samples.

    Example:
        >>> draw_sequences(torch.tensor([0, 0, 0, 1, 1])).flatten()
        tensor([3, 4, 3, 0, 1])
    """
    _, own, lengths = sequences.unique_consecutive(return_inverse=True, return_counts=True)
    starts = lengths.cumsum(0) - lengths
    times = torch.arange(len(own), device=own.device) - starts[own]
    other = draw_negatives(len(lengths), k, draw, seed, own.device)[own]
    return starts[other] + times[:, None] % lengths[other]


def l1out(scores: Float[Tensor, "n n"] | Pairs) -> Float[Tensor, ""]:
    """Leave-one-out upper bound.

        1/N Σ_i [ log q(y_i|x_i) - log 1/(N-1) Σ_{j≠i} q(y_i|x_j) ]

    The marginal of y_i is a mixture of the conditionals at the *other* x's: a mean down a column,
    with a true -inf on the diagonal. An upper bound if q is the true conditional, or good enough
    (Theorem C.2). The mixture is poor in high dimension, so the bound rises far above the truth.

    Reference: CLUB, equations 7 (known conditional) and 9 (variational); Poole, section 2.5.

    Args:
        scores: log q(y_j|x_i).

    Returns:
        The bound in nats.

    Example:
        >>> l1out(torch.tensor([[0.0, -1.0], [-3.0, 0.0]])).item()
        2.0
    """
    s = Pairs.of(scores)
    log_marginal = s.batch.local(s.log_mean_exp(0, "others"))
    return s.mean(log_ratio(s.diagonal, log_marginal))


def vub(
    log_prob: Float[Tensor, " n"],
    log_marginal: Float[Tensor, " n"],
    batch: Batch | None = None,
) -> Float[Tensor, ""]:
    """Variational upper bound with a stand-in r(y) for the marginal, sampled form.

        1/N Σ_i log [ q(y_i|x_i) / r(y_i) ]

    An upper bound if q is the true conditional, or is nearer to it than r is to p(y) (Theorem C.1).
    Its gap is KL(p(y) || r(y)). With r(y) = N(0, I) it depends on the scale of y.

    Reference: CLUB, equations 6 (known conditional) and 8 (variational).

    Args:
        log_prob: log q(y_i|x_i).
        log_marginal: log r(y_i).
        batch: where the samples are, if they are spread over processes.

    Returns:
        The bound in nats.

    Example:
        >>> vub(torch.tensor([0.0, -1.0]), torch.tensor([-2.0, -2.0])).item()
        1.5
    """
    batch = _check_batch(log_prob, batch)
    return batch.mean(log_ratio(log_prob, log_marginal))


def vub_kl(kl: Float[Tensor, " n"], batch: Batch | None = None) -> Float[Tensor, ""]:
    """Variational upper bound in the form of a Kullback-Leibler divergence.

        1/N Σ_i KL( p(y|x_i) || r(y) )

    The expectation over y is taken in closed form, so the value scatters less than the sampled one:
    the penalty of the deep variational information bottleneck and of the VAE. The divergence is
    *summed* over the dimensions of y. It needs the known p(y|x): with a fitted q it says nothing of
    the samples y, only of q.

    Reference: CLUB, equation 6 (right-hand side); Alemi et al. 2017, equation 14.

    Args:
        kl: KL(p(y|x_i) || r(y)).
        batch: where the samples are, if they are spread over processes.

    Returns:
        The bound in nats.

    Example:
        >>> vub_kl(torch.tensor([1.0, 3.0])).item()
        2.0
    """
    return _check_batch(kl, batch).mean(kl)


def ba(
    log_prob: Float[Tensor, " n"],
    entropy: Float[Tensor, ""] | float,
    batch: Batch | None = None,
) -> Float[Tensor, ""]:
    """Barber-Agakov bound.

        H(y) + 1/N Σ_i log q(y_i|x_i)

    A lower bound for any q if the entropy is the true one, and *neither* if it was estimated. The
    paper writes it with x and y in each other's place, H(x) + E log q(x|y): swap the arguments.

    Reference: CLUB, equation 2.

    Args:
        log_prob: log q(y_i|x_i).
        entropy: H(y) in nats (differential, for continuous y).
        batch: where the samples are, if they are spread over processes.

    Returns:
        The bound in nats.

    Example:
        >>> ba(torch.tensor([-1.0, -2.0]), entropy=2.0).item()
        0.5
    """
    return _check_batch(log_prob, batch).mean(log_prob) + entropy


def doe(
    log_prob: Float[Tensor, " n"],
    log_marginal: Float[Tensor, " n"],
    batch: Batch | None = None,
) -> Float[Tensor, ""]:
    """Difference of entropies, each bounded from above by a cross-entropy.

        -1/N Σ_i log r(y_i) + 1/N Σ_i log q(y_i|x_i)

    The same arithmetic as `vub`, but with *both* densities fitted: a difference of two upper
    bounds is a bound on neither side, yet its variance does not grow exponentially with the truth.

    Reference: McAllester and Stratos 2020, *Formal Limitations on the Measurement of Mutual
    Information*, section 5.

    Args:
        log_prob: log q(y_i|x_i).
        log_marginal: log r(y_i).
        batch: where the samples are, if they are spread over processes.

    Returns:
        The estimate in nats.

    Example:
        >>> doe(torch.tensor([0.0, -1.0]), torch.tensor([-2.0, -2.0])).item()
        1.5
    """
    return _check_batch(log_prob, batch).mean(log_prob - log_marginal)


def log_ratio(log_p: Float[Tensor, "*s"], log_q: Float[Tensor, "*s"]) -> Float[Tensor, "*s"]:
    """Log p/q for an upper bound: +inf where either is zero, and never -inf - (-inf) = NaN.

    Example:
        >>> log_ratio(torch.tensor([0.0, -math.inf]), torch.tensor([-1.0, -math.inf]))
        tensor([1., inf])
    """
    return torch.where(log_p.isneginf() | log_q.isneginf(), math.inf, log_p - log_q)


def _check_batch(log_prob: Tensor, batch: Batch | None) -> Batch:
    if log_prob.ndim != 1 or (batch is None and len(log_prob) < 2):
        raise ValueError(
            "Expected a vector of at least 2 log-densities but got shape "
            f"{tuple(log_prob.shape)}; give log q(y_i|x_i) of each sample of the batch."
        )
    return batch or Batch(len(log_prob))
