"""The faults that the facts of a health check reveal, each with its remedy."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

from mibounds.measure.results import Advice

NOISE = 3  # standard errors beyond which a value is not noise
SLACK = 0.02  # nats too few to report
LEFT = 0.02  # nats left that are worth a word
HIDDEN = (
    0.05  # nats that fresh models find and the value does not show, from which on that is wrong
)
SHRUNK = 1e-3  # fraction of its first spread below which a variable has collapsed
FEW = 4  # rows of a batch per value of a label
GREW = 4  # multiple of its first spread above which a variable runs away
AT_LIMIT = 0.01  # fraction of the log-variances that may be at their limit
DEAD = 0.5  # fraction of the units that may be dead
QUIET = ("left",)  # codes that a report has and nobody is warned of


@dataclass(frozen=True)
class Facts:
    """What a health check measures.

    Args:
        value: mean of the bound over the last calls, in nats.
        error: standard error of that mean.
        settled: whether there have been so many calls that the mean counts.
        latest: value of the last call.
        entropy: of the labels y in the batch, if they are labels.
        gain: how much better q predicts a new batch than the marginal of y does.
        gain_error: its standard error.
        optimism: what the marginal gains by being fitted to that batch.
        at_limit: fraction of q's log-variances that are at their limit.
        dead: fraction of q's ReLU units that are zero for all samples.
        constant: whether q gives the same for all x.
        spread: root mean square of the standard deviations of x's columns, and of y's.
        first: the same at the first check.
        flat: which of x and y are constant.
        detached: whether neither has a gradient, though the penalty trains.
        bad: which of them have NaN or infinity.
        far: which of them have values far out.
        numbers: whether y looks like labels, but q takes it for numbers.
        left: nats that a second opinion certifies.
        kernels: nats that kernels see in the rows of a second opinion, beyond their noise.
        rows: how many rows it was judged on.
        labels: how many values y can have, if it is a label.
        batch: rows of the batch.
        own: whether the penalty is the library's own, and not a bound.
    """

    value: float | None = None
    error: float | None = None
    settled: bool = True
    latest: float | None = None
    entropy: float | None = None
    gain: float | None = None
    gain_error: float | None = None
    optimism: float = 0.0
    at_limit: float | None = None
    dead: float | None = None
    constant: bool = False
    spread: tuple[float, float] | None = None
    first: tuple[float, float] = (math.nan, math.nan)
    flat: list[str] = field(default_factory=list)
    detached: bool = False
    bad: list[str] = field(default_factory=list)
    far: list[str] = field(default_factory=list)
    numbers: bool = False
    left: float | None = None
    kernels: float = 0.0
    rows: int = 0
    labels: int = 0
    batch: int = 0
    own: bool = False


def find_faults(facts: Facts) -> tuple[Advice, ...]:
    """The faults.

    Example:
        >>> [fault.code for fault in find_faults(Facts(value=-0.3, error=0.01))]
        ['below-zero']
    """
    return tuple([*_of_samples(facts), *_of_q(facts), *_of_value(facts)])


def _of_samples(facts: Facts) -> Iterator[Advice]:
    if facts.detached:
        yield Advice(
            "no-gradient",
            "Neither x nor y has a gradient, though the penalty is in training mode: it has no "
            "effect.",
            "Pass the features as the encoder returns them; the penalty detaches them where it "
            "must. To only fit q, call penalty.fit(x, y).",
        )
    if facts.numbers:
        yield Advice(
            "labels-as-numbers",
            "y takes only a few values, over and over, and q is a density: it can grow without "
            "limit at each of them, and the bound with it.",
            "Pass labels as integers, with conditional=Categorical(x_dim, classes), or zeros "
            "and ones with Bernoulli.",
        )
    if 0 < facts.batch < FEW * facts.labels:
        yield Advice(
            "few-rows",
            f"A batch has {facts.batch} rows for {facts.labels} values of y: an encoder without "
            "noise can keep what so few rows do not show.",
            f"Take batches of {FEW * facts.labels} rows or more, or add noise to the code; audit "
            "the result.",
        )
    if facts.bad:
        yield Advice(
            "not-finite",
            f"There is NaN or infinity in {' and '.join(facts.bad)}: q is not fitted to such a "
            "batch, and the value is not finite.",
            "Find the first layer that produces them; lower the learning rate of the encoder.",
        )
    if facts.far:
        yield Advice(
            "far-out",
            f"Single values of {' and '.join(facts.far)} lie a thousand times as far out as the "
            "rest: they are moved to where the rest ends, and have no gradient.",
            "Find the rows that they come from, and drop them; or clip such columns.",
        )
    sizes = list(zip("xy", facts.spread or (), facts.first, strict=False))
    shrunk = [name for name, now, then in sizes if now < SHRUNK * then]  # False while it is NaN
    if collapsed := sorted({*shrunk, *facts.flat}):
        yield Advice(
            "collapsed",
            f"Hardly any variation is left in {' and '.join(collapsed)}: nothing is shared "
            "because nothing is there.",
            "Lower the weight of the penalty, or make the task need the features (a larger "
            "task loss, a normalising layer).",
        )
    for name, now, then in sizes:
        if GREW * then < now < math.inf:
            yield Advice(
                "growing",
                f"{name} spreads {now / then:.0f} times as far as at first: the encoder may be "
                "running away from q, which lowers the bound but not the mutual information.",
                "End the encoder with a normalising layer (BatchNorm1d(dim, affine=False)), or "
                "lower the weight; audit the result.",
            )


def _of_q(facts: Facts) -> Iterator[Advice]:
    if facts.constant and not (facts.bad or facts.flat):
        yield Advice(
            "constant-q",
            "The value is 0 because q no longer depends on x, not because x tells nothing of y.",
            "Lower lr, and make the penalty anew: what has died does not recover. Or take "
            "mb.MIPenalty(x_dim, y_dim).",
        )
    if facts.dead is not None and facts.dead > DEAD:
        yield Advice(
            "dead-units",
            f"{facts.dead:.0%} of the ReLU units of q are zero for every sample, and do not "
            "recover: q sees less of x than it could.",
            "Lower lr, or use units that cannot die, such as SiLU or LeakyReLU.",
        )
    if facts.gain is not None and facts.gain < -(
        NOISE * (facts.gain_error or 0) + facts.optimism + SLACK
    ):
        yield Advice(
            "q-worse-than-marginal",
            f"q(y|x) predicts a new batch worse than the marginal of y does ({facts.gain:.3f} "
            "nats per sample): the value means nothing yet.",
            "Raise inner_steps, keep a replay, or give q a warmup; check that the rows of x and "
            "y belong together.",
        )
    if facts.at_limit is not None and facts.at_limit > AT_LIMIT:
        yield Advice(
            "log-variance-limit",
            f"{facts.at_limit:.0%} of the log-variances of q are at their limit: the fit ran "
            "away, or a column of y is a function of x.",
            "Add noise to the features, drop the columns that x determines, or lower lr.",
        )


def _of_value(facts: Facts) -> Iterator[Advice]:
    value = 0.0 if facts.value is None else facts.value
    if facts.value is not None and value < -(NOISE * (facts.error or 0) + SLACK):
        yield Advice(
            "below-zero",
            f"The bound is {value:.3f} ± {facts.error or 0.0:.3f} nats, below zero beyond its "
            "noise: q lags behind the encoder, whose step may then make the mutual information "
            "larger.",
            "Raise inner_steps; lower the weight, or the learning rate of the encoder.",
        )
    most = facts.entropy
    if most is not None and facts.latest is not None and facts.latest > most + SLACK:
        yield Advice(
            "above-entropy",
            f"The bound reads {facts.latest:.2f} nats, but these labels have only {most:.2f} nats "
            "of entropy to share: such a bound says nothing, and its gradient can throw the "
            "encoder off.",
            "Take mb.MIPenalty(x_dim, labels=k), whose value cannot run away; or lower the weight.",
        )
    if facts.left is None or facts.left <= LEFT:
        if facts.kernels > LEFT:
            yield Advice(
                "left",
                f"Information is left: kernels see about {facts.kernels:.2f} nats in the last "
                "batches, though models learn too little from them to certify it. So it is where "
                "a wide code keeps moving.",
                "Near the end of a training lower the learning rate of the encoder, whose steps "
                "bring it back; ask report(x, y) for samples of the trained encoder.",
            )
        return
    found = f"fresh models certify at least {facts.left:.2f} nats on {facts.rows} rows that they"
    hidden = facts.left > HIDDEN and facts.settled
    if facts.own and value < SLACK and hidden:
        yield Advice(
            "contradicted",
            f"The penalty reads {value:.3f} nats, but {found} have not seen: it does not see what "
            "is left.",
            "Let it learn from more rows (larger batches, or replay=32), or add noise to the code; "
            "audit the result.",
        )
    elif not facts.own and value < facts.left - SLACK and hidden:
        yield Advice(
            "contradicted",
            f"The bound reads {value:.3f} nats, but {found} have not seen: q does not see what is "
            "left.",
            "Take mb.MIPenalty(x_dim, y_dim), which does not rely on q; end the encoder with a "
            "normalising layer; audit the result.",
        )
    else:
        yield Advice(
            "left",
            f"Information is left: {found} have not seen.",
            "Early in training this is as it should be. At its end: train longer, or raise the "
            "weight.",
        )
