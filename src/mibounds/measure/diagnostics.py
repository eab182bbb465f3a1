"""When not to believe a number: each finding in words, with what to do about it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor
from torch.distributions import Distribution

from mibounds.bounds.densities import fit_gaussian, is_discrete
from mibounds.conditionals.base import LOG_VARIANCE_LIMIT
from mibounds.estimators import ESTIMATORS
from mibounds.measure.copula_model import Bridge, gaussian_information
from mibounds.measure.results import Advice, Row
from mibounds.samples.columns import Columns

if TYPE_CHECKING:
    from jaxtyping import Shaped

NOISE = 100  # over n²: part of the variance below which a relation counts as one without noise
LOUD = 0.05  # part of the variance that is noise, however few the rows are
SLACK = 0.01  # nats that are not worth a word
FEW = 2  # columns in which the nearest neighbour is near
NEAR = 3  # columns in all for which neighbours are better than models
FAR = 10  # columns in all for which they are not to be believed
LOCAL = ("ksg", "ksg_mixed", "kde", "mlmi")  # which look around each row
FEW_PAIRS = 50  # that carry the mean of exponentials of a critic
LABEL = 20  # rows of each value, from which on values can be taken for labels
RARE = 5  # rows of each label below which too little is known of it


def subsampled(name: str, used: int, n: int) -> Advice:
    """A method that looked at some of the rows only."""
    return Advice(
        f"{name}-subsampled",
        f"{name} looked at {used} of {n} rows, for time.",
        "Its interval is that of these rows; bridge uses all of them.",
    )


def look_at_samples(x: Columns, y: Columns, given: Columns | None) -> list[Advice]:
    """Findings in the samples themselves, whose continuous columns are normal scores."""
    advice = []
    n, width = len(x), x.width + y.width + (given.width if given else 0)
    if n < 10 * width or n < 100:
        advice.append(
            Advice(
                "few-samples",
                f"{n} rows for {width} columns: too few for a model of their dependence.",
                "Collect more rows, or take fewer columns (the leading principal components).",
            )
        )
    table = np.hstack([x.values, y.values])
    if all(k == "continuous" for k in x.kinds + y.kinds):
        doubles = n - len(np.unique(table, axis=0))
        if doubles > 0.01 * n:
            advice.append(
                Advice(
                    "duplicated-rows",
                    f"{doubles} of {n} rows are copies of others: a model then meets in the "
                    "held-out rows what it was fitted to, and the value comes out too high.",
                    "Drop the copies first.",
                )
            )
    for a, b in ((x, y), (y, x)):
        if _noise(a, b) < max(1e-6, min(LOUD, NOISE / n**2)):
            advice.append(
                Advice(
                    "deterministic",
                    f"{b.name} looks like a function of {a.name}, without noise: between "
                    "continuous variables the mutual information is then infinite, and no estimate "
                    "of it means anything.",
                    "Add the noise of the measurement, or measure another quantity.",
                )
            )
            break
    for side in (x, y):
        for label, kind, v in zip(side.labels, side.kinds, side.values.T, strict=True):
            counts = np.unique(v, return_counts=True)[1]
            most = counts.max() / n
            if kind == "discrete" and RARE * len(counts) > n:
                advice.append(
                    Advice(
                        "rare-labels",
                        f"Column {label} of {side.name} has {len(counts)} labels in {n} rows: of "
                        "labels that hardly ever come twice nothing can be learnt.",
                        f"Group them, or say they are numbers ({side.name}_kinds) if they are.",
                    )
                )
            if kind == "continuous" and most > 0.05:
                few = LABEL * len(counts) <= n
                advice.append(
                    Advice(
                        "ties",
                        f"Column {label} of {side.name} has one value in {most:.0%} of the rows: "
                        "a continuous model of it means nothing.",
                        'Use "ksg_mixed"'
                        + (f", or say it is discrete ({side.name}_kinds)." if few else "."),
                    )
                )
    return advice


def look_at_neighbours(row: Row, x: Columns, y: Columns) -> list[Advice]:
    """Findings in a method that looks around each row: with many columns nothing is near."""
    width = x.width + y.width
    if row.method not in LOCAL or width <= NEAR:
        return []
    least = -math.inf
    if "discrete" not in x.kinds + y.kinds and len(x) > 2 * width:
        least, _ = gaussian_information(x.values, y.values, np.empty((len(x), 0)))
    if width <= FAR and least <= row.nats + 3 * (row.error or 0.0) + SLACK:
        return []
    beside = f", where the Gaussian copula alone has {least:.3f}" if least > row.nats else ""
    return [
        Advice(
            f"{row.method}-many-columns",
            f"{row.method} looks around each row in {width} columns, where little is near: its "
            f"value, {row.nats:.3f}{beside}, is too low if anything is shared, and its interval "
            "does not know it.",
            "Take bridge, or fewer columns (the leading principal components).",
        )
    ]


def look_at_bridge(found: Bridge, error: float) -> list[Advice]:
    """Findings in the bridge, whose value has a standard error."""
    advice = []
    if found.nats <= 2 * error:
        advice.append(
            Advice(
                "q-no-better-than-marginal",
                "No model of y given x predicts held-out rows better than y alone does: either "
                "nothing is shared, or too little to be seen in these rows.",
                "Believe the interval; ask for permutations, or collect more rows.",
            )
        )
    if found.shortfall > max(error, SLACK):
        numbers, rows = found.numbers
        advice.append(
            Advice(
                "bridge-few-rows",
                f"Labels are predicted by models of {rows} rows, and a linear one has {numbers} "
                f"numbers to learn: by that alone the value may be some {found.shortfall:.2f} nats "
                "too low, and more for a richer model. The interval does not know it.",
                "Collect more rows, or take fewer columns (the leading principal components).",
            )
        )
    if found.narrow > 0.05:
        advice.append(
            Advice(
                "bridge-scale-limit",
                f"In {found.narrow:.0%} of the rows the fitted noise of y given x is at the "
                "narrowest that the model allows: the value is too low, and perhaps none is "
                "finite.",
                "See whether y is a function of x; add the noise of the measurement to it.",
            )
        )
    return advice


def look_at_rows(rows: Sequence[Row]) -> list[Advice]:
    """Findings in the values beside each other."""
    advice = []
    lowers = [r for r in rows if r.side == "lower"]
    uppers = [r for r in rows if r.side == "upper"]
    for low in lowers:
        for high in uppers:
            noise = 2 * math.hypot(low.error or 0.0, high.error or 0.0)
            if high.nats < low.nats - noise - SLACK:
                advice.append(
                    Advice(
                        "upper-under-lower",
                        f"The upper bound {high.method} ({high.nats:.3f}) lies under the lower "
                        f"bound {low.method} ({low.nats:.3f}): the condition of one of them fails.",
                        "Believe the lower one; the conditional of the upper one fits badly.",
                    )
                )
    return advice


def look_at_estimator(row: Row, worth: Sequence[dict[str, float]], meeting: int) -> list[Advice]:
    """Findings in one cross-fitted estimator.

    Args:
        row: what it says.
        worth: of its conditional or critic on each fold.
        meeting: rows that met each other.
    """
    advice = []
    if row.method == "infonce" and row.nats > math.log(meeting) - 1:
        advice.append(
            Advice(
                "infonce-ceiling",
                f"InfoNCE says {row.nats:.2f} nats and can never say more than the logarithm of "
                f"the {meeting} rows that met, {math.log(meeting):.2f}.",
                "Read it as a lower bound only; take bridge for a value, or more rows.",
            )
        )
    pairs = min((w["pairs"] for w in worth if "pairs" in w), default=math.inf)
    if ESTIMATORS[row.method].exploding and (pairs < FEW_PAIRS or not math.isfinite(row.nats)):
        advice.append(
            Advice(
                f"{row.method}-variance",
                f"The mean of exponentials in {row.method} rests on {pairs:.0f} of "
                f"{meeting * (meeting - 1)} pairs: its variance explodes, and the value is "
                "what these few happen to be.",
                "Take smile or infonce, which clip or bound it, or bridge.",
            )
        )
    if worth and all("gain" in w for w in worth):
        gain = float(np.mean([w["gain"] for w in worth]))
        if gain <= 0:
            advice.append(
                Advice(
                    "q-no-better-than-marginal",
                    f"The conditional of {row.method} predicts held-out y no better than the "
                    f"marginal does ({gain:.3f} nats a row): its value means nothing.",
                    "Fit longer, with another conditional, or take bridge.",
                )
            )
        at_limit = max(w.get("at_limit", 0.0) for w in worth)
        if at_limit > 0.01:
            advice.append(
                Advice(
                    f"{row.method}-log-variance-limit",
                    f"{at_limit:.0%} of the log-variances of {row.method} are at their limit: the "
                    "fit ran away, or y is a function of x.",
                    "Look for columns of y that x determines; add noise, or leave them out.",
                )
            )
    return advice


def worth_of(
    distribution: Distribution, y: Shaped[Tensor, "n *y"], fitted: float
) -> dict[str, float]:
    """How much better than the marginal a conditional predicts y, and how it is at its limits."""
    if is_discrete(distribution):
        counts = np.bincount(y.cpu().numpy())
        p = counts[counts > 0] / len(y)
        return {"gain": fitted + float(-(p * np.log(p)).sum())}
    marginal = fit_gaussian(y).log_prob(y).mean().item()
    worth = {"gain": fitted - marginal}
    if hasattr(distribution, "variance"):
        spread = (distribution.variance / y.var(0)).log()
        worth["at_limit"] = (spread.abs() > 0.95 * LOG_VARIANCE_LIMIT).double().mean().item()
    return worth


def _noise(a: Columns, b: Columns) -> float:
    """Least part of a column of b that a leaves open, as far as a line or neighbours can tell."""
    if {*a.kinds, *b.kinds} != {"continuous"}:
        return 1.0
    s, t = a.inputs(), b.inputs()
    slope = np.linalg.lstsq(s, t, rcond=None)[0]
    enough = len(s) > 2 * s.shape[1]
    least = float((t - s @ slope).var(0).min()) if enough else 1.0
    if a.width <= FEW:
        some = slice(0, 200)
        distance = sum((s[some, j : j + 1] - s[:, j]) ** 2 for j in range(a.width))
        assert isinstance(distance, np.ndarray)
        for row, to in enumerate(distance):  # itself and its copies are no neighbours
            same = np.flatnonzero(to == 0)
            to[same[(t[same] == t[row]).all(1)]] = np.inf
        nearest = distance.argmin(1)
        least = min(least, float(np.median((t[some] - t[nearest]) ** 2, axis=0).min()))
    return least
