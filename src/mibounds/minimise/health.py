"""Health checks: what can go wrong while mutual information is minimised.

A check needs one batch that q has not been fitted to, and the last values of the bound.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.distributions import Distribution

from mibounds.bounds.densities import is_discrete, log_prob
from mibounds.conditionals import AsPublishedGaussian, Categorical, Conditional
from mibounds.conditionals.base import LOG_VARIANCE_LIMIT
from mibounds.estimators import ConditionalEstimator, Estimator
from mibounds.estimators.ratio import Ratio
from mibounds.measure.results import Advice
from mibounds.minimise._faults import Facts, find_faults
from mibounds.minimise.outliers import draw_in, is_far_out
from mibounds.minimise.second_opinions import SecondOpinion

if TYPE_CHECKING:
    from jaxtyping import Float, Shaped

__all__ = ["PenaltyReport"]

FLAT = 1e-5  # spread over mean below which a variable is constant
LABELS = 10  # distinct values up to which numbers look like labels
SAME = 1e-5  # nats by which the predictions of a q that ignores x differ


@dataclass(frozen=True)
class PenaltyReport:
    """The result of a health check of a penalty.

    Args:
        calls: calls in training mode before the check.
        value: mean of the bound over the last calls, in nats; without a bound what the classifier
            certifies, which is not below 0.
        error: standard error of that mean.
        gain: how much better q predicts a new batch than independent normal columns (or the
            frequencies of labels) do, in nats per sample; None without a q(y|x).
        gain_error: its standard error.
        at_limit: fraction of q's log-variances that are at their limit.
        spread: root mean square of the standard deviations of x's columns, and of y's.
        left: what fresh models certify on rows of the last batches that they have not seen, in
            nats at least; None if that was not looked at.
        warnings: faults, each with a remedy.

    Example:
        >>> print(PenaltyReport(calls=200, value=0.31, error=0.02, gain=0.4))
        after 200 calls: value 0.310 ± 0.020 nats, q gains 0.400 nats over the marginal; no faults
    """

    calls: int = 0
    value: float | None = None
    error: float | None = None
    gain: float | None = None
    gain_error: float | None = None
    at_limit: float | None = None
    spread: tuple[float, float] | None = None
    left: float | None = None
    warnings: tuple[Advice, ...] = ()

    def __str__(self) -> str:
        parts = []
        if self.value is not None:
            parts.append(f"value {self.value:.3f} ± {self.error or 0.0:.3f} nats")
        if self.gain is not None:
            parts.append(f"q gains {self.gain:.3f} nats over the marginal")
        if self.left is not None:
            parts.append(f"fresh models find {self.left:.3f} nats")
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


@torch.no_grad()
def collect_facts(
    estimator: Estimator,
    x: Shaped[Tensor, "n *x"],
    y: Shaped[Tensor, "n *y"],
    shown: tuple[Shaped[Tensor, "n *x"], Shaped[Tensor, "n *y"]],
    first: Float[Tensor, "2"],
) -> Facts:
    """Check a batch that q has not been fitted to.

    Args:
        estimator: of the penalty.
        x: samples.
        y: samples.
        shown: both as q sees them.
        first: spread of x and y at the first check, NaN before it.
    """
    bad = [name for name, v in (("x", x), ("y", y)) if not v.isfinite().all()]
    far = [name for name, v in (("x", x), ("y", y)) if is_far_out(v)]
    x, y = draw_in(x), draw_in(y)
    found: dict[str, Any] = {} if bad else _examine(estimator, *shown)
    labels = count_labels(estimator)
    entropy = _entropy(y) if labels and not bad else None
    return Facts(
        labels=labels, batch=len(y), entropy=entropy, spread=(_spread(x), _spread(y)),
        first=tuple(first.tolist()), flat=_flat(x, y), bad=bad, far=far,
        own=isinstance(estimator, Ratio),
        # The marginal is fitted to this very batch, which gains half a nat per parameter in all.
        optimism=y[0].numel() / len(y), **found,
    )  # fmt: skip


def summarise(
    facts: Facts,
    values: Float[Tensor, " k"],
    latest: float,
    calls: int,
    opinion: SecondOpinion | None = None,
) -> PenaltyReport:
    """The report on a batch, on the last values of the bound, and on what is left.

    Args:
        facts: of the batch.
        values: last values of the bound, NaN where there are none yet.
        latest: the last of them.
        calls: number of calls so far.
        opinion: the last second opinion on what is left.
    """
    known = values[~values.isnan()].double()
    value = known.mean().item() if len(known) else None
    error = known.std().item() / math.sqrt(len(known)) if len(known) > 1 else None
    if facts.own and value is not None:
        value = max(0.0, value)  # a classifier that is too sure certifies nothing, which is 0
    facts = replace(
        facts, value=value, error=error, settled=len(known) == len(values),
        latest=None if math.isnan(latest) else latest,
    )  # fmt: skip
    if opinion is not None:
        facts = replace(
            facts, left=opinion.nats, rows=opinion.rows, kernels=opinion.kernels
        )  # fmt: skip
    return PenaltyReport(
        calls, value, error, facts.gain, facts.gain_error, facts.at_limit, facts.spread,
        facts.left, find_faults(facts),
    )  # fmt: skip


def count_labels(estimator: Estimator) -> int:
    """How many values y can have; 0 if it is no label.

    Example:
        >>> import mibounds as mb
        >>> count_labels(mb.CLUB(conditional=mb.Categorical(4, 3))), count_labels(mb.CLUB(4, 3))
        (3, 0)
    """
    if isinstance(estimator, Ratio):
        return estimator.labels
    q = getattr(estimator, "conditional", None)
    return q.y_dim if isinstance(q, Categorical) else 0


def _examine(estimator: Estimator, x: Tensor, y: Tensor) -> dict[str, Any]:
    """What q makes of a batch."""
    q = getattr(estimator, "conditional", None)
    if not (isinstance(estimator, ConditionalEstimator) and isinstance(q, Conditional)):
        return {}
    with _counting_dead_units(q) as dead:
        p, events = estimator.distribution(x, y)
    own = log_prob(p, events)
    gains = (own - _log_marginal(p, events)).double()
    moved = log_prob(estimator.distribution(x.roll(1, 0), y)[0], events)
    return {
        "gain": gains.mean().item(),
        "gain_error": gains.std().item() / math.sqrt(len(gains)),
        "at_limit": _at_limit(q, p),
        "numbers": not is_discrete(p) and _looks_like_labels(y),
        "dead": sum(dead) / len(dead) if dead else None,
        "constant": bool((own - moved).abs().max() < SAME),
    }


@contextmanager
def _counting_dead_units(q: nn.Module) -> Iterator[list[bool]]:
    """Meanwhile, list for each ReLU unit whether it is zero for every sample."""
    dead: list[bool] = []

    def count(module: nn.Module, inputs: object, output: Tensor) -> None:
        dead.extend((output.flatten(0, -2) <= 0).all(0).tolist())

    hooks = [m.register_forward_hook(count) for m in q.modules() if isinstance(m, nn.ReLU)]
    try:
        yield dead
    finally:
        for hook in hooks:
            hook.remove()


def _entropy(labels: Tensor) -> float:
    """Of the frequencies of labels in a batch; a row of several labels is one."""
    counts = torch.unique(labels.flatten(1) if labels.ndim > 1 else labels, dim=0,
                          return_counts=True)[1].double()  # fmt: skip
    return torch.special.entr(counts / counts.sum()).sum().item()


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
        return (counts[y].float() / len(y)).log()
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
