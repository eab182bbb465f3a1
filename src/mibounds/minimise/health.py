"""Whether the value of a penalty means anything: what can go wrong while MI is minimised.

Each fault is found by a look at one batch that q has not seen, and at the last values of the bound.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.distributions import Distribution

from mibounds.bounds.densities import is_discrete, log_prob
from mibounds.conditionals import AsPublishedGaussian, Conditional
from mibounds.conditionals.base import LOG_VARIANCE_LIMIT
from mibounds.estimators import ConditionalEstimator, Estimator
from mibounds.measure.results import Advice

if TYPE_CHECKING:
    from jaxtyping import Float, Shaped

__all__ = ["PenaltyReport"]

NOISE = 3  # standard errors
SLACK = 0.02  # nats that are not worth a word
SHRUNK = 1e-3  # part of its first spread at which a side counts as collapsed
FLAT = 1e-5  # spread over mean, likewise
GREW = 4  # times its first spread at which a side counts as running away
LABELS = 10  # values that numbers may take and be taken for labels
AT_LIMIT = 0.01  # part of the log-variances that may be at their limit

DETACHED = Advice(
    "no-gradient",
    "Neither x nor y has a gradient, though the penalty is in training mode: nothing becomes "
    "smaller by it.",
    "Pass the features as the encoder gives them; the penalty detaches where it must. To fit q "
    "alone call penalty.fit(x, y).",
)


@dataclass(frozen=True)
class PenaltyReport:
    """What a penalty has seen of itself.

    Args:
        calls: calls in training mode up to the look.
        value: mean of the bound over the last calls, nats.
        error: standard error of that mean.
        gain: how much better q predicts a new batch than independent normal columns (or the
            frequencies of labels) do, nats a sample; None without a q.
        gain_error: its standard error.
        at_limit: part of q's log-variances that are at their limit.
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
        head = f"after {self.calls} calls: {', '.join(parts) or 'nothing looked at yet'}"
        end = "faults:" if self.warnings else "no faults"
        return "\n".join([f"{head}; {end}", *map(str, self.warnings)])


def look_at_sides(sides: Sequence[str]) -> tuple[Advice, ...]:
    """Whether bounds are fit to be minimised, by the side on which they lie."""
    side = next((side for side in sides if side != "upper"), None)
    if side is None:
        return ()
    word = "a lower bound" if side == "lower" else "no bound"
    return (
        Advice(
            "wrong-side",
            f"The estimator is {word} of the mutual information: it can become small while that "
            "stays large.",
            "To minimise take an upper bound, such as CLUB; audit the result in any case.",
        ),
    )


def look_at_penalty(
    estimator: Estimator,
    x: Shaped[Tensor, "n *x"],
    y: Shaped[Tensor, "n *y"],
    values: Float[Tensor, " k"],
    first: Float[Tensor, "2"],
    calls: int,
) -> PenaltyReport:
    """Look at a batch that q has not seen, and at the last values.

    Args:
        estimator: of the penalty.
        x: samples.
        y: samples.
        values: last values of the bound, NaN where there are none yet.
        first: spread of x and y at the first look, NaN before.
        calls: number of calls so far.

    Returns:
        What was found.
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
    # The marginal is fitted to this very batch, worth half a nat a parameter over all its samples.
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
    """The faults that the facts show, each with its remedy."""
    advice = []
    if labels:
        advice.append(
            Advice(
                "labels-as-numbers",
                "y takes few values, again and again, and q is a density: it can become as high as "
                "it likes at each of them, and the bound with it.",
                "Pass labels as integers, with conditional=Categorical(x_dim, classes), or zeros "
                "and ones with Bernoulli.",
            )
        )
    if bad:
        advice.append(
            Advice(
                "not-finite",
                f"{' and '.join(bad)} hold NaN or infinity: q is not fitted on such a batch, and "
                "the value is not finite.",
                "Look for the first layer that produces them; lower the rate of the encoder.",
            )
        )
    if facts.gain is not None and facts.gain < -(
        NOISE * (facts.gain_error or 0) + optimism + SLACK
    ):
        advice.append(
            Advice(
                "q-worse-than-marginal",
                f"q(y|x) predicts a new batch worse than y alone does ({facts.gain:.3f} nats a "
                "sample): the value means nothing yet.",
                "Raise inner_steps or lr, keep a replay, or give q a warmup; check that x and y "
                "belong together row by row.",
            )
        )
    if facts.value is not None and facts.value < -(NOISE * (facts.error or 0) + SLACK):
        advice.append(
            Advice(
                "below-zero",
                f"The bound is {facts.value:.3f} ± {facts.error or 0.0:.3f} nats, below zero "
                "beyond its noise: q lags behind the encoder, whose step may then make the mutual "
                "information larger.",
                "Raise inner_steps or lr, lower the weight or the rate of the encoder.",
            )
        )
    if facts.at_limit is not None and facts.at_limit > AT_LIMIT:
        advice.append(
            Advice(
                "log-variance-limit",
                f"{facts.at_limit:.0%} of the log-variances of q are at their limit: the fit ran "
                "away, or some column of y is a function of x.",
                "Add noise to the features, leave out columns that x determines, or lower lr.",
            )
        )
    shrunk = [
        name
        for name, now, then in zip("xy", facts.spread or (), first, strict=False)
        if now < SHRUNK * then  # False before there is a first look
    ]
    collapsed = sorted({*shrunk, *flat})
    if collapsed:
        advice.append(
            Advice(
                "collapsed",
                f"{' and '.join(collapsed)} hardly vary any more: nothing is shared because "
                "nothing is left.",
                "Lower the weight of the penalty, or give the features a task that needs them "
                "(a larger task loss, a normalising layer).",
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
                "away from q, which makes the bound small and leaves what is shared.",
                "End the encoder with a normalising layer (BatchNorm1d(dim, affine=False)), or "
                "lower the weight; audit the result.",
            )
        )
    return tuple(advice)


def _looks_like_labels(y: Tensor) -> bool:
    """Whether numbers repeat as those of labels do: each value many times, none of them rare."""
    if not y.is_floating_point():
        return False
    counts = torch.unique(y, dim=0, return_counts=True)[1]
    return len(y) >= 5 * LABELS and 1 < len(counts) <= LABELS


def _spread(v: Tensor) -> float:
    v = v.double().flatten(1) if v.ndim > 1 else v.double()[:, None]
    return v.std(0).square().mean().sqrt().item()


def _flat(x: Tensor, y: Tensor) -> list[str]:
    """The sides whose columns are all constant, but for rounding."""
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
