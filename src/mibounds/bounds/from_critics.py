"""Bounds from a critic f(x, y)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from mibounds.samples.pairs import Negatives, Pairs

if TYPE_CHECKING:
    from jaxtyping import Float

LIMIT = 40.0  # logarithm from which on the gradient of an exponential grows no more


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
        raise ValueError(f"Expected 0 < rate <= 1 but got {rate}; pass 1 to use only the batch.")
    s = Pairs.of(scores)
    log_mean = s.log_mean_exp(None, negatives)
    now, old = log_mean.detach(), log_average.detach().to(log_mean.dtype)
    if rate < 1:
        moved = torch.logaddexp(old + math.log1p(-rate), now + math.log(rate))
        now = torch.where(old.isneginf(), now, moved)
    joint = s.mean(s.diagonal)
    corrected = joint - (log_mean - now).clamp_max(80.0).exp()
    return (joint - log_mean).detach() + (corrected - corrected.detach()), now


def check_limit(limit: float) -> None:
    """Check where a gradient is to be held: above the logarithm of 1, where the bound is best."""
    if not limit > 0:
        raise ValueError(f"Expected limit > 0 but got {limit}; leave it out for {LIMIT:g}.")


def _exp(log: Float[Tensor, ""], limit: float) -> Float[Tensor, ""]:
    """The exponential, with a gradient that stays at its limit from there on."""
    held = log.clamp_max(limit).exp() * (1 + (log - limit).clamp(0.0, 1e6))
    return log.detach().exp() + (held - held.detach())


def nwj(
    scores: Float[Tensor, "n n"] | Pairs, negatives: Negatives = "others", limit: float = LIMIT
) -> Float[Tensor, ""]:
    """Nguyen-Wainwright-Jordan lower bound.

        E_joint[f] - E_product[exp(f - 1)]

    A lower bound for every f, tight at f = 1 + log p(x,y)/(p(x)p(y)), and unbiased with
    ``negatives="others"``; its variance grows like exp(MI). ``negatives="all"`` caps it at log N.

    Where f is best, E_product[exp(f - 1)] is 1. A critic that is far off takes one step so large
    that all later ones are lost in it: the value is always exact, but its gradient grows no more
    where the logarithm of that mean is above a limit.

    Reference: CLUB, equation 4.

    Args:
        scores: f(x_i, y_j).
        negatives: whether the diagonal stands among the negatives.
        limit: of that logarithm. The default only keeps gradients finite; 3 makes learning calmer.

    Returns:
        The bound in nats.

    Example:
        >>> nwj(torch.tensor([[2.0, 1.0], [1.0, 2.0]])).item()
        1.0
    """
    check_limit(limit)
    s = Pairs.of(scores)
    return s.mean(s.diagonal) - _exp(s.log_mean_exp(None, negatives) - 1, limit)


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
        raise ValueError(
            f"Expected 0 <= alpha <= 1 but got {alpha}; pass 0 for TUBA, 1 for InfoNCE."
        )
    if alpha > 0 and n < 3:
        raise ValueError(
            f"Expected at least 3 samples for the interpolated bound but got {n}; take a larger "
            "batch, or alpha=0."
        )
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
        raise ValueError(f"Expected clip > 0 but got {clip}; pass math.inf to clip nothing.")
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


def _check_vector(name: str, value: Tensor, n: int) -> None:
    if value.shape != (n,):
        raise ValueError(
            f"Expected {name} of shape ({n},) but got {tuple(value.shape)}; give one number for "
            "each sample of the batch."
        )
