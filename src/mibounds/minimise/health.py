"""Health checks: what can go wrong while mutual information is minimised.

A check needs one batch that q has not been fitted to, and the last values of the bound.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.distributions import Distribution

from mibounds.bounds.densities import is_discrete, log_prob
from mibounds.conditionals import AsPublishedGaussian, Conditional
from mibounds.conditionals.base import LOG_VARIANCE_LIMIT
from mibounds.estimators import ConditionalEstimator, Estimator
from mibounds.estimators.ratio import Ratio
from mibounds.measure.results import Advice

if TYPE_CHECKING:
    from jaxtyping import Float, Shaped

__all__ = ["PenaltyReport"]

NOISE = 3  # standard errors beyond which a value is not noise
SLACK = 0.02  # nats too few to report
SHRUNK = 1e-3  # fraction of its first spread below which a variable has collapsed
FLAT = 1e-5  # spread over mean below which a variable is constant
GREW = 4  # multiple of its first spread above which a variable runs away
LABELS = 10  # distinct values up to which numbers look like labels
AT_LIMIT = 0.01  # fraction of the log-variances that may be at their limit

DETACHED = Advice(
    "no-gradient",
    "Neither x nor y has a gradient, though the penalty is in training mode: it has no effect.",
    "Pass the features as the encoder returns them; the penalty detaches them where it must. To "
    "only fit q, call penalty.fit(x, y).",
)


@dataclass(frozen=True)
class PenaltyReport:
    """The result of a health check of a penalty.

    Args:
        calls: calls in training mode before the check.
        value: mean of the bound over the last calls, in nats.
        error: standard error of that mean.
        gain: how much better q predicts a new batch than independent normal columns (or the
            frequencies of labels) do, in nats per sample; None without a q(y|x).
        gain_error: its standard error.
        at_limit: fraction of q's log-variances that are at their limit.
        spread: root mean square of the standard deviations of x's columns, and of y's.
        warnings: faults, each with a remedy.

    Example:
        >>> print(PenaltyReport(calls=200, value=0.31, error=0.02, gain=0.4))
        after 200 calls: bound 0.310 ± 0.020 nats, q gains 0.400 nats over the marginal; no faults
    """

    calls: int = 0
    value: float | None = None
    error: float | None = None
    gain: float | None = None
    gain_error: float | None = None
    at_limit: float | None = None
    spread: tuple[float, float] | None = None
    warnings: tuple[Advice, ...] = ()

    def __str__(self) -> str:
        parts = []
        if self.value is not None:
            parts.append(f"bound {self.value:.3f} ± {self.error or 0.0:.3f} nats")
        if self.gain is not None:
            parts.append(f"q gains {self.gain:.3f} nats over the marginal")
        head = f"after {self.calls} calls: {', '.join(parts) or 'not checked yet'}"
        end = "faults:" if self.warnings else "no faults"
        return "\n".join([f"{head}; {end}", *map(str, self.warnings)])


def check_side(estimators: Iterable[Estimator], maximise: bool = False) -> tuple[Advice, ...]:
    """Whether estimators are fit to be minimised: only upper bounds are, and what is made for it.

    An upper bound is refused where the information is to grow.

    Example:
        >>> import mibounds as mb
        >>> check_side([mb.CLUB(3, 2)]), check_side([mb.InfoNCE(3, 2)])[0].code
        ((), 'wrong-side')
    """
    estimators = [e for e in estimators if not isinstance(e, Ratio)]
    upper = next((e for e in estimators if e.side == "upper"), None)
    if maximise and upper is not None:
        raise ValueError(
            "Expected a lower bound with maximise=True but got an upper one, "
            f"{type(upper).__name__}: it can grow while the information stays; pass "
            "mb.InfoNCE(x_dim, y_dim), or only the two dimensions."
        )
    side = next((e.side for e in estimators if e.side != ("lower" if maximise else "upper")), None)
    if side is None:
        return ()
    kind = "a lower bound" if side == "lower" else "not a bound"
    if maximise:
        return ()
    return (
        Advice(
            "wrong-side",
            f"The estimator is {kind} of the mutual information: it can become small while that "
            "stays large.",
            "To minimise, take an upper bound such as CLUB; audit the result in any case.",
        ),
    )


def check_health(
    estimator: Estimator,
    x: Shaped[Tensor, "n *x"],
    y: Shaped[Tensor, "n *y"],
    values: Float[Tensor, " k"],
    first: Float[Tensor, "2"],
    calls: int,
) -> PenaltyReport:
    """Check a batch that q has not been fitted to, and the last values of the bound.

    Args:
        estimator: of the penalty.
        x: samples.
        y: samples.
        values: last values of the bound, NaN where there are none yet.
        first: spread of x and y at the first check, NaN before it.
        calls: number of calls so far.

    Returns:
        The report, with the faults found.
    """
    known = values[~values.isnan()].double()
    value = known.mean().item() if len(known) else None
    error = known.std().item() / math.sqrt(len(known)) if len(known) > 1 else None
    spread = (_spread(x), _spread(y))
    bad = [name for name, v in (("x", x), ("y", y)) if not v.isfinite().all()]
    gain = gain_error = at_limit = None
    labels = False
    q = getattr(estimator, "conditional", None)
    if isinstance(estimator, ConditionalEstimator) and isinstance(q, Conditional) and not bad:
        p, events = estimator.distribution(x, y)
        gains = (log_prob(p, events) - _log_marginal(p, events)).double()
        gain, gain_error = gains.mean().item(), gains.std().item() / math.sqrt(len(gains))
        at_limit = _at_limit(q, p)
        labels = not is_discrete(p) and _looks_like_labels(y)
    facts = PenaltyReport(calls, value, error, gain, gain_error, at_limit, spread)
    # The marginal is fitted to this very batch, which gains half a nat per parameter in all.
    optimism = y[0].numel() / len(y)
    return replace(
        facts, warnings=_faults(facts, first.tolist(), bad, _flat(x, y), optimism, labels)
    )


def _faults(
    facts: PenaltyReport,
    first: list[float],
    bad: list[str],
    flat: list[str],
    optimism: float,
    labels: bool,
) -> tuple[Advice, ...]:
    """The faults that the facts reveal, each with its remedy."""
    advice = []
    if labels:
        advice.append(
            Advice(
                "labels-as-numbers",
                "y takes only a few values, over and over, and q is a density: it can grow without "
                "limit at each of them, and the bound with it.",
                "Pass labels as integers, with conditional=Categorical(x_dim, classes), or zeros "
                "and ones with Bernoulli.",
            )
        )
    if bad:
        advice.append(
            Advice(
                "not-finite",
                f"There is NaN or infinity in {' and '.join(bad)}: q is not fitted to such a "
                "batch, and the value is not finite.",
                "Find the first layer that produces them; lower the learning rate of the encoder.",
            )
        )
    if facts.gain is not None and facts.gain < -(
        NOISE * (facts.gain_error or 0) + optimism + SLACK
    ):
        advice.append(
            Advice(
                "q-worse-than-marginal",
                f"q(y|x) predicts a new batch worse than the marginal of y does ({facts.gain:.3f} "
                "nats per sample): the value means nothing yet.",
                "Raise inner_steps or lr, keep a replay, or give q a warmup; check that the rows "
                "of x and y belong together.",
            )
        )
    if facts.value is not None and facts.value < -(NOISE * (facts.error or 0) + SLACK):
        advice.append(
            Advice(
                "below-zero",
                f"The bound is {facts.value:.3f} ± {facts.error or 0.0:.3f} nats, below zero "
                "beyond its noise: q lags behind the encoder, whose step may then make the mutual "
                "information larger.",
                "Raise inner_steps or lr; lower the weight, or the learning rate of the encoder.",
            )
        )
    if facts.at_limit is not None and facts.at_limit > AT_LIMIT:
        advice.append(
            Advice(
                "log-variance-limit",
                f"{facts.at_limit:.0%} of the log-variances of q are at their limit: the fit ran "
                "away, or a column of y is a function of x.",
                "Add noise to the features, drop the columns that x determines, or lower lr.",
            )
        )
    shrunk = [
        name
        for name, now, then in zip("xy", facts.spread or (), first, strict=False)
        if now < SHRUNK * then  # False while `then` is NaN
    ]
    collapsed = sorted({*shrunk, *flat})
    if collapsed:
        advice.append(
            Advice(
                "collapsed",
                f"Hardly any variation is left in {' and '.join(collapsed)}: nothing is shared "
                "because nothing is there.",
                "Lower the weight of the penalty, or make the task need the features (a larger "
                "task loss, a normalising layer).",
            )
        )
    grew = [
        (name, now / then)
        for name, now, then in zip("xy", facts.spread or (), first, strict=False)
        if GREW * then < now < math.inf
    ]
    for name, times in grew:
        advice.append(
            Advice(
                "growing",
                f"{name} spreads {times:.0f} times as far as at first: the encoder may be running "
                "away from q, which lowers the bound but not the mutual information.",
                "End the encoder with a normalising layer (BatchNorm1d(dim, affine=False)), or "
                "lower the weight; audit the result.",
            )
        )
    return tuple(advice)


def _looks_like_labels(y: Tensor) -> bool:
    """Whether numbers repeat as labels do: few values, each of them many times."""
    if not y.is_floating_point():
        return False
    counts = torch.unique(y, dim=0, return_counts=True)[1]
    return len(y) >= 5 * LABELS and 1 < len(counts) <= LABELS


def _spread(v: Tensor) -> float:
    v = v.double().flatten(1) if v.ndim > 1 else v.double()[:, None]
    return v.std(0).square().mean().sqrt().item()


def _flat(x: Tensor, y: Tensor) -> list[str]:
    """Which of x and y have only constant columns, up to rounding."""
    names = []
    for name, v in (("x", x), ("y", y)):
        v = v.double().flatten(1) if v.ndim > 1 else v.double()[:, None]
        if (v.std(0) <= FLAT * v.mean(0).abs()).all():
            names.append(name)
    return names


def _log_marginal(p: Distribution, y: Tensor) -> Tensor:
    """Log-density of each y under independent normal columns, or under its frequencies."""
    if is_discrete(p):
        if y.is_floating_point():  # zeros and ones
            ones = y.mean(0)
            return torch.where(y > 0.5, ones, 1 - ones).log().sum(-1)
        counts = torch.bincount(y)
        return (counts[y] / len(y)).log()
    mean, variance = y.mean(0), y.var(0, correction=0)
    variance = torch.where(variance > 0, variance, 1.0)
    return -0.5 * ((y - mean).square() / variance + (2 * math.pi * variance).log()).sum(-1)


def _at_limit(q: Conditional, p: Distribution) -> float | None:
    try:
        variance = p.variance
    except (NotImplementedError, AttributeError):  # flows
        return None
    if is_discrete(p):
        return None
    if isinstance(q, AsPublishedGaussian):
        relative, limit = variance.log(), 1.0
    else:
        relative, limit = (variance / q.y_standard.scale.square()).log(), LOG_VARIANCE_LIMIT
    return (relative.abs() > 0.95 * limit).double().mean().item()
