"""Which of several outcomes gives the value, and what of them is possible at all.

The first outcome counts, unless a lower bound that held-out rows certify contradicts it: then the
method that certifies most takes its place. A larger value is no reason; a larger certificate is.
With many columns only the certificate counts: a model of them is wrong, and its value chance.

Mutual information is not negative, and with a label it is at most the entropy of the label. What a
method says outside of that is moved to the nearer end.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from mibounds.measure.copula_model import CopulaModel
from mibounds.measure.diagnostics import SLACK
from mibounds.measure.results import Advice, MethodResult
from mibounds.measure.runs import Outcome
from mibounds.samples.columns import Columns

ERRORS = 2.0  # standard errors by which a certificate must exceed what it contradicts


def keep_possible(outcome: Outcome, highest: float) -> Outcome:
    """An outcome with all its values between zero and what is possible.

    Args:
        outcome: of any method.
        highest: the smaller entropy of both sides.

    Example:
        >>> row = MethodResult("ksg", "neither", "", -0.02, 0.01, 0.5)
        >>> keep_possible(Outcome([row], 0.01, ""), 0.69).rows[0].nats
        0.0
    """
    rows = [
        replace(row, nats=min(max(row.nats, 0.0), highest)) if row.nats == row.nats else row
        for row in outcome.rows
    ]
    return replace(outcome, rows=rows)


def choose(outcomes: Sequence[Outcome]) -> tuple[Outcome, list[Advice]]:
    """The outcome that gives the value, and what is to be said about the choice.

    Args:
        outcomes: in the order in which they are preferred.

    Example:
        >>> first = MethodResult("copula_model", "neither", "", 0.02, 0.01, 9.0)
        >>> codes = MethodResult("codes", "lower", "", 0.32, 0.01, 2.0)
        >>> head, advice = choose([Outcome([first], 0.01, ""), Outcome([codes], 0.01, "")])
        >>> head.rows[0].method, [a.code for a in advice]
        ('codes', ['copula_model-contradicted'])
    """
    finite = [o for o in outcomes if math.isfinite(o.rows[0].nats)]
    if not finite:
        return outcomes[0], []
    first = finite[0]
    best = max(finite, key=_certified)
    certified = _certified(best)
    own, row = first.rows[0], _lower(best)
    by_certificate = first.wide and certified > _certified(first)
    if row is None or (certified <= own.nats + SLACK and not by_certificate):
        return first, []
    advice = Advice(
        f"{own.method}-contradicted",
        f"{own.method} says {own.nats:.3f} and certifies {max(0.0, _certified(first)):.3f}, but "
        f"{row.method} certifies {certified:.3f} on rows that it has not seen: there is a "
        "dependence that the former does not model.",
        "Read the value as a lower bound; with more rows it comes nearer to the truth.",
    )
    rest = [r for r in best.rows if r is not row]
    said = [advice] if certified > SLACK else []  # to certify nothing contradicts nothing
    return replace(best, rows=[row, *rest], error=row.error), said


def look_at_certificate(outcome: Outcome, x: Columns, y: Columns) -> list[Advice]:
    """Compare a value of the copula model with what the same models certify.

    The mean of a true log-ratio is what it certifies, up to the logarithm of the paired rows.

    Args:
        outcome: that of the value.
        x: one side.
        y: the other side.
    """
    paired = outcome.paired
    own, lower = outcome.rows[0], _lower(outcome)
    if own.method != CopulaModel.name or lower is None or paired < 2:
        return []
    ceiling = math.log(paired)
    if own.nats > ceiling - 1.5:
        return [
            Advice(
                f"{own.method}-uncertified",
                f"{paired} rows that are paired with each other can certify {ceiling:.1f} nats at "
                f"most, and certify {lower.nats:.2f}: the rest of the value rests on the model.",
                "Believe it if the copula of these samples is near a Gaussian one.",
            )
        ]
    lost = x.width * y.width / len(x)  # by the linear part, on rows that it has not seen
    slack = 0.1 + 0.1 * own.nats + 2 * lost + ERRORS * math.hypot(own.error or 0, lower.error or 0)
    if lower.nats >= own.nats - slack:
        return []
    return [
        Advice(
            f"{own.method}-overconfident",
            f"The models behind the value, {own.nats:.3f}, certify {lower.nats:.3f} on rows that "
            "they have not seen: they take chance for dependence.",
            "Believe the best lower bound; use fewer columns, or more rows.",
        )
    ]


def _lower(outcome: Outcome) -> MethodResult | None:
    """The row of the best lower bound."""
    rows = [r for r in outcome.rows if r.side == "lower" and math.isfinite(r.nats)]
    return max(rows, key=lambda r: r.nats, default=None)


def _certified(outcome: Outcome) -> float:
    """What an outcome certifies, less its error."""
    row = _lower(outcome)
    return -math.inf if row is None else row.nats - ERRORS * (row.error or 0.0)
