"""Bounds on mutual information as pure functions: log-densities or scores in, nats out.

One convention holds throughout. A matrix ``scores`` has

    scores[i, j] = score(x_i, y_j),

where the score is log q(y|x) for the bounds that need a conditional, and f(x, y) for those that
need a critic. The diagonal holds the pairs of the *joint* distribution, everything else pairs of
the *product of the marginals*. ``log_prob`` is that diagonal alone, log q(y_i|x_i).

Two choices are common to most bounds.

*Which axis.* CLUB and InfoNCE contrast y_i with other y's for a fixed x_i (along a row); L1Out,
TUBA and its interpolation contrast x_i with other x's for a fixed y_i (along a column).

*Which negatives.* ``negatives="others"`` leaves the diagonal out: x_i and y_j are then independent
and sample means over them are unbiased. ``negatives="all"`` keeps it. For CLUB this is the paper's
1/N² form, too small by the factor 1 - 1/N. For a critic bound the positive pair then stands in its
own denominator, and the estimate can *never exceed log N* (4.16 nats at N = 64), whatever the
truth: log mean_j exp f(x_i, y_j) >= f(x_i, y_i) - log N. InfoNCE has this ceiling by definition;
SMILE, which clips its denominator, has none in either case.

Wherever a matrix of scores is taken, a `mibounds.pairs.Pairs` may stand in its place: the scores
are then computed in blocks, and may be spread over processes.

Names of equations: "CLUB" is Cheng et al., *CLUB: A Contrastive Log-ratio Upper Bound of Mutual
Information*, ICML 2020; "Poole" is Poole et al., *On Variational Bounds of Mutual Information*,
ICML 2019. A bound is a statement about expectations: the value on one batch scatters around it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from mibounds.distributed import Batch
from mibounds.pairs import Negatives, Pairs, check_negatives

if TYPE_CHECKING:
    from jaxtyping import Float, Int

Draw = Literal["uniform", "permutation", "derangement"]


# --- bounds from a conditional q(y|x) ------------------------------------------------------------


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
    check_negatives(negatives)
    factor = batch.size / (batch.size - 1) if negatives == "others" else 1.0
    return batch.mean(_log_ratio(log_prob, log_prob_mean)) * factor


def club_sample(
    log_prob: Float[Tensor, " n"],
    log_prob_negatives: Float[Tensor, "n k"],
    batch: Batch | None = None,
) -> Float[Tensor, ""]:
    """CLUB with k sampled negatives a sample, instead of all pairs.

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
    return batch.mean(_log_ratio(log_prob, log_prob_negatives.mean(1)))


def draw_negatives(
    n: int,
    k: int = 1,
    draw: Draw = "derangement",
    generator: torch.Generator | None = None,
    device: torch.device | str | None = None,
) -> Int[Tensor, "n k"]:
    """Draw the indices of k negatives for each of n samples.

    "uniform" draws from all N samples, the own one included, as in Algorithm 1 of the paper, and so
    agrees in expectation with the 1/N² form of CLUB; so does "permutation", in which every sample
    is the negative of exactly one other (about one is its own). "derangement" is a permutation
    without fixed points (a random cycle), hence unbiased for the 1/(N(N-1)) form; its k negatives a
    sample are distinct, and with k = N - 1 the sampled value *is* the exact one. Permutations have
    the smaller variance, for whatever depends on x or on y alone cancels in the sum.

    Args:
        n: number of samples, at least 2.
        k: negatives a sample; at most n - 1 with "derangement".
        draw: how to draw.
        generator: source of randomness; torch's global one if left out.
        device: where the indices shall live.

    Returns:
        Indices in 0 ... n - 1.

    Example:
        >>> index = draw_negatives(4, k=3, generator=torch.Generator().manual_seed(0))
        >>> index.sort(1).values.tolist()
        [[1, 2, 3], [0, 2, 3], [0, 1, 3], [0, 1, 2]]
    """
    if n < 2:
        raise ValueError(f"Expected at least 2 samples to draw negatives from but got {n}.")
    if k < 1 or (draw == "derangement" and k > n - 1):
        limit = f"1 <= k <= n - 1 = {n - 1}" if draw == "derangement" else "k >= 1"
        raise ValueError(f'Expected {limit} negatives a sample with draw="{draw}" but got k={k}.')
    where = generator.device if generator is not None else device
    if draw == "uniform":
        index = torch.randint(n, (n, k), generator=generator, device=where)
    elif draw == "permutation":
        rows = [torch.randperm(n, generator=generator, device=where) for _ in range(k)]
        index = torch.stack(rows, 1)
    elif draw == "derangement":
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
            f'Expected draw to be "uniform", "permutation" or "derangement" but got {draw!r}.'
        )
    return index.to(device) if device is not None else index


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
    return s.mean(_log_ratio(s.diagonal, log_marginal))


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
    return batch.mean(_log_ratio(log_prob, log_marginal))


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


# --- bounds from a critic f(x, y) ----------------------------------------------------------------


def dv(scores: Float[Tensor, "n n"] | Pairs, negatives: Negatives = "others") -> Float[Tensor, ""]:
    """Donsker-Varadhan lower bound.

        E_joint[f] - log E_product[exp f]

    The logarithm of a sample mean is biased downwards, so the sample value is biased *upwards*: a
    lower bound only as the number of negatives grows. ``negatives="all"`` caps it at log N.

    Reference: CLUB, equation 3; Poole, section 2.2.

    Args:
        scores: f(x_i, y_j).
        negatives: whether the diagonal stands among the negatives.

    Returns:
        The bound in nats.

    Example:
        >>> dv(torch.tensor([[2.0, 0.0], [0.0, 2.0]])).item()
        2.0
    """
    s = Pairs.of(scores)
    return s.mean(s.diagonal) - s.log_mean_exp(None, negatives)


def mine(
    scores: Float[Tensor, "n n"] | Pairs,
    log_average: Float[Tensor, ""],
    rate: float = 0.01,
    negatives: Negatives = "others",
) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """Donsker-Varadhan bound with the bias-corrected gradient of MINE.

        value     E_joint[f] - log E_product[exp f]
        gradient  E_joint[∇f] - E_product[exp(f) ∇f] / average

    The gradient of the batch's own logarithm is biased; dividing by a moving average of
    E_product[exp f] over many batches removes most of that. The value is that of `dv`.

    Reference: CLUB, equation 3; Belghazi et al. 2018, equation 12 and section 3.2.

    Args:
        scores: f(x_i, y_j).
        log_average: logarithm of the moving average before this batch; -inf if this is the first.
        rate: weight of this batch in the moving average.
        negatives: whether the diagonal stands among the negatives.

    Returns:
        The bound in nats, with that gradient, and the logarithm of the average moved on.

    Example:
        >>> scores = torch.tensor([[2.0, 0.0], [0.0, 2.0]])
        >>> value, log_average = mine(scores, log_average=torch.tensor(-math.inf))
        >>> value.item(), log_average.item()
        (2.0, 0.0)
    """
    if not 0 < rate <= 1:
        raise ValueError(f"Expected 0 < rate <= 1 but got {rate}.")
    s = Pairs.of(scores)
    log_mean = s.log_mean_exp(None, negatives)
    now, old = log_mean.detach(), log_average.detach().to(log_mean.dtype)
    if rate < 1:
        moved = torch.logaddexp(old + math.log1p(-rate), now + math.log(rate))
        now = torch.where(old.isneginf(), now, moved)
    joint = s.mean(s.diagonal)
    corrected = joint - (log_mean - now).clamp_max(80.0).exp()
    return (joint - log_mean).detach() + (corrected - corrected.detach()), now


def nwj(scores: Float[Tensor, "n n"] | Pairs, negatives: Negatives = "others") -> Float[Tensor, ""]:
    """Nguyen-Wainwright-Jordan lower bound.

        E_joint[f] - E_product[exp(f - 1)]

    A lower bound for every f, tight at f = 1 + log p(x,y)/(p(x)p(y)), and unbiased with
    ``negatives="others"``; its variance grows like exp(MI). ``negatives="all"`` caps it at log N.

    Reference: CLUB, equation 4.

    Args:
        scores: f(x_i, y_j).
        negatives: whether the diagonal stands among the negatives.

    Returns:
        The bound in nats.

    Example:
        >>> nwj(torch.tensor([[2.0, 1.0], [1.0, 2.0]])).item()
        1.0
    """
    s = Pairs.of(scores)
    return s.mean(s.diagonal) - (s.log_mean_exp(None, negatives) - 1).exp()


def infonce(scores: Float[Tensor, "n n"] | Pairs) -> Float[Tensor, ""]:
    """InfoNCE lower bound, a classification of the right y among N.

        1/N Σ_i log [ exp f(x_i, y_i) / mean_j exp f(x_i, y_j) ]

    The positive stands in its own denominator: the value never exceeds log N, and the bound holds
    because of that. Adding any function of x to f changes nothing.

    Reference: CLUB, equation 5.

    Args:
        scores: f(x_i, y_j).

    Returns:
        The bound in nats.

    Example:
        >>> infonce(torch.tensor([[100.0, 0.0], [0.0, 100.0]])).item()  # log 2
        0.693...
    """
    s = Pairs.of(scores)
    # at most 0 each, which large scores would lose to rounding
    contrast = (s.diagonal - s.log_sum_exp(1, "all")).clamp_max(0.0)
    return s.mean(contrast) + math.log(s.batch.size)


def tuba(
    scores: Float[Tensor, "n n"] | Pairs,
    log_baseline: Float[Tensor, " n"],
    negatives: Negatives = "others",
) -> Float[Tensor, ""]:
    """Tractable unnormalised Barber-Agakov lower bound with a baseline a(y).

        1 + E_joint[f - log a(y)] - E_product[exp(f) / a(y)]

    A lower bound for every f and a > 0; a = e is NWJ. A good baseline is E_x[exp f(x, y)].

    Reference: Poole, section 2.2 (I_TUBA).

    Args:
        scores: f(x_i, y_j).
        log_baseline: log a(y_j).
        negatives: whether the diagonal stands among the negatives.

    Returns:
        The bound in nats.

    Example:
        >>> scores = torch.tensor([[2.0, 1.0], [1.0, 2.0]])
        >>> bool(tuba(scores, log_baseline=torch.ones(2)) == nwj(scores))
        True
    """
    s = Pairs.of(scores)
    _check_vector("log_baseline", log_baseline, s.batch.size)
    log_mean = s.log_mean_exp(None, negatives, lambda f, b: f - b, [log_baseline])
    return 1 + s.mean(s.diagonal - s.batch.local(log_baseline)) - log_mean.exp()


def tuba_interpolated(
    scores: Float[Tensor, "n n"] | Pairs, log_baseline: Float[Tensor, " n"], alpha: float
) -> Float[Tensor, ""]:
    """Interpolation between TUBA (alpha = 0) and InfoNCE (alpha = 1).

        1 + E_joint[log exp(f) / b(y)] - E_product[exp(f) / b(y)],
        b(y) = alpha · 1/K Σ_k exp f(x_k, y) + (1 - alpha) · a(y),

    where x_1 ... x_K contain the x in the numerator. Less variance than TUBA, and a ceiling of 1 +
    log(K / alpha) instead of log K. Both expectations must use the same K for the bound to hold: a
    batch has K = N - 1 x's that are independent of a given y_j, so in the joint term one of the
    other x's is left out, and the mean is taken over which.

    Reference: Poole, section 2.4 (I_α).

    Args:
        scores: f(x_i, y_j).
        log_baseline: log a(y_j).
        alpha: weight of the batch's own mean, between 0 and 1.

    Returns:
        The bound in nats.

    Example:
        >>> scores = torch.eye(8) * 9
        >>> tuba_interpolated(scores, torch.zeros(8), alpha=1.0).item()  # log 7: InfoNCE's ceiling
        1.945...
    """
    s = Pairs.of(scores)
    n = s.batch.size
    if not 0 <= alpha <= 1:
        raise ValueError(f"Expected 0 <= alpha <= 1 but got {alpha}.")
    if alpha > 0 and n < 3:
        raise ValueError(f"Expected at least 3 samples for the interpolated bound but got {n}.")
    _check_vector("log_baseline", log_baseline, n)
    if alpha == 0:
        return tuba(scores, log_baseline)
    # In double precision, for a difference of sums is to come.
    log_baseline = log_baseline.double()
    log_sum = s.log_sum_exp(0, "all").double()
    log_others = s.log_mean_exp(0, "others").double()
    # Scale each column, so that the sums below neither overflow nor vanish.
    top = (torch.maximum(log_sum, log_baseline) if alpha < 1 else log_sum).detach()
    own = (1 - alpha) * (log_baseline - top).exp() if alpha < 1 else torch.zeros_like(top)
    total = (log_sum - top).exp()
    positive = (s.batch.gather(s.diagonal).double() - top).exp()
    tiny = torch.finfo(top.dtype).tiny

    def log_joint(f: Tensor, top: Tensor, total: Tensor, own: Tensor, positive: Tensor) -> Tensor:
        # Leave x_k out of the sum over all N, for each k != j. What is left contains x_j, which
        # bounds it from below where the subtraction cancels.
        rest = torch.maximum(total - (f.double() - top).exp(), positive).clamp_min(tiny)
        return ((alpha * rest / (n - 1) + own).log() + top).to(f.dtype)

    mean = (log_others - top).exp()
    product = (mean / (alpha * mean + own).clamp_min(tiny)).mean()
    joint = s.mean(s.diagonal) - s.mean_of(log_joint, "others", [top, total, own, positive])
    return joint + (1 - product).to(joint.dtype)


def js(scores: Float[Tensor, "n n"] | Pairs, negatives: Negatives = "others") -> Float[Tensor, ""]:
    """Jensen-Shannon objective: logistic regression between the joint and the product.

        E_joint[-softplus(-f)] - E_product[softplus(f)]

    It bounds twice the Jensen-Shannon divergence less 2 log 2, not MI: something to *learn* f with,
    stably. At the optimum f is log p(x,y)/(p(x)p(y)), which then goes into NWJ (1 + f) or SMILE.

    Reference: Nowozin et al. 2016 (f-GAN), table 6; Hjelm et al. 2019, equation 4.

    Args:
        scores: f(x_i, y_j).
        negatives: whether the diagonal stands among the negatives.

    Returns:
        The objective, to be maximised; not a number of nats of MI.

    Example:
        >>> js(torch.zeros(3, 3)).item()  # -2 log 2
        -1.386...
    """
    s = Pairs.of(scores)
    product = s.mean_of(lambda f: F.softplus(f), negatives)
    return s.mean(-F.softplus(-s.diagonal)) - product


def smile(
    scores: Float[Tensor, "n n"] | Pairs, clip: float = 5.0, negatives: Negatives = "others"
) -> Float[Tensor, ""]:
    """Smoothed lower-bound estimator: Donsker-Varadhan with a clipped partition function.

        E_joint[f] - log E_product[exp clip(f, -c, c)]

    Clipping trades variance for bias; with it the value is no bound on either side, and has no
    ceiling. To be fed with a critic that was learnt by `js`. c = inf gives `dv`.

    Reference: Song and Ermon 2020, *Understanding the Limitations of Variational Mutual Information
    Estimators*, section 5.

    Args:
        scores: f(x_i, y_j).
        clip: c, positive.
        negatives: whether the diagonal stands among the negatives.

    Returns:
        The estimate in nats.

    Example:
        >>> smile(torch.tensor([[9.0, 0.0], [0.0, 9.0]]), clip=5.0).item()
        9.0
    """
    if not clip > 0:
        raise ValueError(f"Expected clip > 0 but got {clip}.")
    s = Pairs.of(scores)
    log_mean = s.log_mean_exp(None, negatives, lambda f: f.clamp(-clip, clip))
    return s.mean(s.diagonal) - log_mean


def flo(
    scores: Float[Tensor, "n n"] | Pairs,
    potential: Float[Tensor, " n"],
    negatives: Negatives = "others",
) -> Float[Tensor, ""]:
    """Fenchel-Legendre lower bound with a second function u(x, y).

        1 - 1/N Σ_i [ u_i + exp(-u_i) · mean_j exp(f(x_i, y_j) - f(x_i, y_i)) ]

    A lower bound for every f and u, and tight without many negatives. The best u is the logarithm
    of the *expected* exp(f(x, y') - f(x, y)), which is minus the pointwise MI at the best f; with
    the batch's own mean in its place the value would be InfoNCE ("all").

    Reference: Guo et al. 2022, *Tight Mutual Information Estimation with Contrastive
    Fenchel-Legendre Optimization*, section 3.

    Args:
        scores: f(x_i, y_j).
        potential: u(x_i, y_i).
        negatives: whether the diagonal stands among the negatives.

    Returns:
        The bound in nats.

    Example:
        >>> flo(torch.tensor([[2.0, 0.0], [0.0, 2.0]]), potential=torch.tensor([-2.0, -2.0])).item()
        2.0
    """
    s = Pairs.of(scores)
    _check_vector("potential", potential, len(s.diagonal))
    contrast = s.log_mean_exp(1, negatives) - s.diagonal
    return s.mean(1 - potential - (contrast - potential).exp())


# --- shared --------------------------------------------------------------------------------------


def _log_ratio(log_p: Tensor, log_q: Tensor) -> Tensor:
    """log p/q for an upper bound: +inf where either is zero, and never -inf - (-inf) = NaN."""
    return torch.where(log_p.isneginf() | log_q.isneginf(), math.inf, log_p - log_q)


def _check_vector(name: str, value: Tensor, n: int) -> None:
    if value.shape != (n,):
        raise ValueError(f"Expected {name} of shape ({n},) but got {tuple(value.shape)}.")


def _check_batch(log_prob: Tensor, batch: Batch | None) -> Batch:
    if log_prob.ndim != 1 or (batch is None and len(log_prob) < 2):
        raise ValueError(
            f"Expected a vector of at least 2 log-densities but got shape {tuple(log_prob.shape)}."
        )
    return batch or Batch(len(log_prob))
