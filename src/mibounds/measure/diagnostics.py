"""Reasons to distrust a number, each in words and with what to do about it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Distribution

from mibounds.bounds.densities import fit_gaussian, is_discrete, log_prob
from mibounds.conditionals.base import LOG_VARIANCE_LIMIT
from mibounds.estimators import ConditionalEstimator, CriticEstimator, Estimator
from mibounds.measure.conditional_shares import codes_of
from mibounds.measure.copula_model import CopulaFit
from mibounds.measure.copula_model.gaussian_regressions import gaussian_information
from mibounds.measure.methods import FEW_COLUMNS
from mibounds.measure.results import Advice, MethodResult
from mibounds.measure.series.autocorrelations import (
    STRETCHES,
    autocorrelation,
    block_length,
    inflation,
)
from mibounds.measure.wording import many
from mibounds.samples.columns import Columns

if TYPE_CHECKING:
    from jaxtyping import Int, Shaped

NOISE = 100  # over n²: share of the variance below which a relation counts as noiseless
LOUD = 0.05  # share of the variance that is noise, however few the rows are
RISING = 0.05  # share of a value by which it may rise with the second half of the rows
MOST_SHOWN = 100  # characters of a list of names
SLACK = 0.01  # nats, a difference too small to mention
ALIKE = 1.05  # times as many distinct rows as distinct values of a column: the rows were copied
MANY = 50  # distinct rows whose numbers of copies are no chance
MULTIPLES = 0.9  # share of the rows that occur a multiple of some times, if all were copied
ENOUGH = 10  # rows per column from which a line is not one by chance
FEW = 2  # columns in which the nearest neighbour is near
FAR = 10  # columns of x and y above which neighbours are never believed
FEW_PAIRS = 50  # pairs below which a mean of exponentials is not believed
RARE = 5  # rows per label below which too little is known of it
SURE = 0.001  # p-value below which a column is no random order of its rows
LAGS = 10  # at which it is compared with itself
NARROW = 1.2  # times the variance of independent rows: errors are then ten percent too small
SEEN_ROWS, SEEN_COLUMNS = 20_000, 20  # of each side, at most, that are looked at for an order
BLOCKS = 10  # blocks below which their spread is hardly known


def subsampled(name: str, used: int, n: int) -> Advice:
    """A method looked at only some of the rows."""
    return Advice(
        f"{name}-subsampled",
        f"{name} looked at {used} of {n} rows, for time.",
        "Its interval is that of these rows; copula_model uses all of them.",
    )


def ungrouped(name: str) -> Advice:
    """A method that does not know of groups."""
    return Advice(
        f"{name}-ungrouped",
        f"The error of {name} is that of groups, but its value takes all rows as independent: "
        "where rows of a group are alike it comes out too high.",
        "Use copula_model or codes, which are evaluated on groups that they have not seen.",
    )


def look_at_columns(sides: Sequence[Columns]) -> list[Advice]:
    """Columns that do not vary."""
    found = [(side.name, side.constant) for side in sides if side.constant]
    if not found:
        return []
    count = sum(len(names) for _, names in found)
    shown = "; ".join(f"{_cut(', '.join(names))} of {name}" for name, names in found)
    return [
        Advice(
            "constant-columns",
            f"Left out {many(count, 'column')} with one value in all rows: {shown}.",
            "Nothing: a constant shares 0 nats with anything.",
        )
    ]


def look_at_samples(
    x: Columns, y: Columns, given: Columns | None, groups: Int[np.ndarray, " n"] | None = None
) -> list[Advice]:
    """Reasons in the samples, whose continuous columns are normal scores."""
    advice = []
    n, width = len(x), x.width + y.width + (given.width if given else 0)
    if n < 10 * width or n < 100:
        advice.append(
            Advice(
                "few-samples",
                f"{n} rows for {width} columns: too few for a model of their dependence.",
                "Collect more rows, or use fewer columns (the leading principal components).",
            )
        )
    copies = _copies(x, y, groups)
    if copies > 0.01 * n:
        advice.append(
            Advice(
                "duplicated-rows",
                f"{copies} of {n} rows are copies of others: held-out rows then contain what "
                "a model was fitted to, and the value comes out too high.",
                "Drop the copies, or pass the same groups= for rows that belong together, unless "
                "these rows were really observed several times.",
            )
        )
    for a, b in ((x, y), (y, x)):
        if _noise(a, b) < max(1e-6, min(LOUD, NOISE / n**2)):
            advice.append(
                Advice(
                    "deterministic",
                    f"{b.name} looks like a function of {a.name}, without noise: the mutual "
                    "information of continuous variables is then infinite, and no estimate of it "
                    "means anything.",
                    "Add the noise of the measurement, or measure another quantity.",
                )
            )
            break
    for side in (x, y):
        rare = {
            label: len(np.unique(v))
            for label, kind, v in zip(side.labels, side.kinds, side.values.T, strict=True)
            if kind == "discrete" and RARE * len(np.unique(v)) > n
        }
        if rare:
            shown = ", ".join(f"{label} ({count} labels)" for label, count in rare.items())
            advice.append(
                Advice(
                    "rare-labels",
                    f"In {n} rows, labels in {many(len(rare), 'column')} of {side.name} rarely "
                    f"occur twice, so that nothing can be learnt about them: {_cut(shown)}.",
                    f"Group them, or declare them numbers ({side.name}_kinds) if they are.",
                )
            )
    return advice


def look_at_order(x: Columns, y: Columns, block: int) -> list[Advice]:
    """Rows that depend on the rows before them, on both sides, while they count as independent.

    Rows that were sorted by a column are independent all the same.

    Args:
        x: one side.
        y: the other side.
        block: rows that count as one.
    """
    n = len(x)
    advice = []
    if block > 1 and 2 <= n // block < BLOCKS:
        advice.append(
            Advice(
                "few-blocks",
                f"{n} rows are only {n // block} blocks of {block}: the spread of so few says "
                "little, and the interval may be too narrow.",
                f"Pass a longer series, or a shorter block if it is longer than needed: {BLOCKS} "
                "blocks and more are good.",
            )
        )
    if any(map(_is_sorted, (x, y))):
        return advice
    rho = [_serial(side) for side in (x, y)]
    if rho[0] is None or rho[1] is None:
        return advice
    common, seen = rho[0] * rho[1], min(n, SEEN_ROWS)
    tau, needed = inflation(common, seen), max(2, block_length(common, n))
    if tau < NARROW or 2 * block >= needed:
        return advice
    counted = "every row counts as independent" if block == 1 else f"only {block} rows count as one"
    by = f"about {math.sqrt(tau):.1f} times " if block == 1 else ""
    first = "Use lags(x, y), whose errors and tests are made for series"
    if n / max(inflation(each, seen) for each in rho if each is not None) < STRETCHES:
        first = "Take differences: two series that wander look related whatever they are"
    advice.append(
        Advice(
            "serial-rows",
            "The rows look like a series: on both sides a row resembles those before it, but "
            f"{counted}. The error is {by}too small, and so is a p-value.",
            f"{first}; or pass block={needed}.",
        )
    )
    return advice


def look_at_neighbours(row: MethodResult, x: Columns, y: Columns) -> list[Advice]:
    """Reasons in the value of a local method: with many columns no row is near another."""
    width = x.width + y.width
    if width <= FEW_COLUMNS:
        return []
    least = -math.inf
    if "discrete" not in x.kinds + y.kinds and len(x) > 2 * width:
        least, _ = gaussian_information(x.values, y.values, np.empty((len(x), 0)))
    if width <= FAR and least <= row.nats + 3 * (row.error or 0.0) + SLACK:
        return []
    beside = f", where the Gaussian copula has {least:.3f}" if least > row.nats else ""
    return [
        Advice(
            f"{row.method}-many-columns",
            f"{row.method} looks at the neighbours of each row in {width} columns, where few rows "
            f"are near: its value, {row.nats:.3f}{beside}, is too low if anything is shared, and "
            "its interval does not include that error.",
            "Use copula_model, or fewer columns (the leading principal components).",
        )
    ]


def look_at_copula_model(found: CopulaFit, error: float) -> list[Advice]:
    """Reasons in the fit of the copula model, whose value has a standard error."""
    advice = []
    if found.nats <= 2 * error:
        advice.append(
            Advice(
                "q-no-better-than-marginal",
                "No model of y given x predicts held-out rows better than a model of y without x "
                "does: either nothing is shared, or too little to be seen in these rows.",
                "Believe the interval; ask for permutations, or collect more rows.",
            )
        )
    if found.shortfall > max(error, SLACK):
        weights, rows = found.weights
        advice.append(
            Advice(
                "copula_model-few-rows",
                f"Labels are predicted by models of {rows} rows, and a linear one has {weights} "
                "weights to learn: that by itself may lower the value by some "
                f"{found.shortfall:.2f} nats, and a richer model costs more. The interval does "
                "not include that error.",
                "Collect more rows, or use fewer columns (the leading principal components).",
            )
        )
    if found.linear:
        advice.append(
            Advice(
                "copula_model-linear",
                "There are too few rows, or too many columns, for networks: its value is that of a "
                "Gaussian copula, and misses every dependence of another kind.",
                "Collect more rows, or use fewer columns.",
            )
        )
    if found.narrow > 0.05:
        advice.append(
            Advice(
                "copula_model-scale-limit",
                f"In {found.narrow:.0%} of the rows the fitted noise of y given x is the smallest "
                "that the model allows: the value is too low, and the truth may be infinite.",
                "Check whether y is a function of x; add the noise of the measurement to it.",
            )
        )
    return advice


def look_at_codes(row: MethodResult, paired: int) -> list[Advice]:
    """Reasons in the value of canonical codes.

    Args:
        row: its value.
        paired: rows that were paired with each other.
    """
    ceiling = math.log(paired)
    if row.nats <= ceiling - 1:
        return []
    return [
        Advice(
            f"{row.method}-ceiling",
            f"{row.method} certifies {row.nats:.2f} nats and cannot certify more than the "
            f"logarithm of the {paired} rows that were paired with each other, {ceiling:.2f}.",
            "Read it only as a lower bound, or collect more rows.",
        )
    ]


def not_used(name: str, reason: Exception) -> Advice:
    """A method of the default that cannot be used on these samples."""
    return Advice(
        f"{name}-not-used",
        f"{name} cannot be used on these samples: {reason}",
        "Nothing, if the value comes from another method.",
    )


def look_at_growth(name: str, nats: float, growth: float, error: float | None) -> list[Advice]:
    """A value that is still rising with the rows.

    Args:
        name: of its method.
        nats: the value.
        growth: how much it gained by the second half of the rows.
        error: its standard error.
    """
    if growth <= max(RISING * nats, 2 * (error or 0.0), SLACK):
        return []
    return [
        Advice(
            f"{name}-growing",
            f"With half of the rows the value is {nats - growth:.3f}, with all {nats:.3f}: it has "
            "not come to its end, and the truth is higher.",
            "The interval takes it into account; collect more rows for a narrower one.",
        )
    ]


def look_at_results(rows: Sequence[MethodResult]) -> list[Advice]:
    """Reasons in the values of several methods, compared."""
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
                        "Believe the lower bound; the conditional of the upper one fits badly.",
                    )
                )
    return advice


def look_at_estimator(
    row: MethodResult, estimator: Estimator, qualities: Sequence[dict[str, float]], paired: int
) -> list[Advice]:
    """Reasons in the value of one cross-fitted estimator.

    Args:
        row: its value.
        estimator: that of any of the folds, for the facts that it declares.
        qualities: of its conditional or critic on each fold, by `quality_of`.
        paired: rows that were paired with each other.
    """
    advice = []
    ceiling = estimator.ceiling(paired)
    if row.nats > ceiling - 1:
        advice.append(
            Advice(
                f"{row.method}-ceiling",
                f"{row.method} reads {row.nats:.2f} nats and cannot exceed the logarithm of the "
                f"{paired} rows that were paired with each other, {ceiling:.2f}.",
                "Read it only as a lower bound; use copula_model for a value, or more rows.",
            )
        )
    pairs = min((q["pairs"] for q in qualities if "pairs" in q), default=math.inf)
    if estimator.exploding and (pairs < FEW_PAIRS or not math.isfinite(row.nats)):
        advice.append(
            Advice(
                f"{row.method}-variance",
                f"The mean of exponentials in {row.method} rests on {pairs:.0f} of "
                f"{paired * (paired - 1)} pairs: its variance explodes, and the value depends "
                "on those few by chance.",
                "Use smile or infonce, which clip or bound it, or copula_model.",
            )
        )
    if qualities and all("gain" in q for q in qualities):
        gain = float(np.mean([q["gain"] for q in qualities]))
        if gain <= 0:
            advice.append(
                Advice(
                    "q-no-better-than-marginal",
                    f"The conditional of {row.method} predicts held-out y no better than the "
                    f"marginal does ({gain:.3f} nats per row): its value means nothing.",
                    "Fit longer, with another conditional, or use copula_model.",
                )
            )
        at_limit = max(q.get("at_limit", 0.0) for q in qualities)
        if at_limit > 0.01:
            advice.append(
                Advice(
                    f"{row.method}-log-variance-limit",
                    f"{at_limit:.0%} of the log-variances of {row.method} are at their limit: the "
                    "fit diverged, or y is a function of x.",
                    "Look for columns of y that x determines; add noise, or leave them out.",
                )
            )
    return advice


def quality_of(
    estimator: Estimator, x: Shaped[Tensor, "n *x"], y: Shaped[Tensor, "n *y"]
) -> dict[str, float]:
    """How well an estimator fits held-out rows.

    Returns:
        Of a critic, "pairs": the effective number of pairs behind a mean of exponentials. Of a
        conditional, see `quality_of_conditional`.
    """
    if not isinstance(estimator, ConditionalEstimator):
        assert isinstance(estimator, CriticEstimator)
        scores = estimator.scores(x, y)
        total = scores.log_sum_exp(None, "others")
        squares = scores.log_sum_exp(None, "others", lambda s: 2 * s)
        return {"pairs": (2 * total - squares).exp().item()}
    distribution = estimator.conditional(x)
    return quality_of_conditional(distribution, y, log_prob(distribution, y).mean().item())


def quality_of_conditional(
    distribution: Distribution, y: Shaped[Tensor, "n *y"], fitted: float
) -> dict[str, float]:
    """How well a conditional predicts y.

    Args:
        distribution: q(y|x) of each row.
        y: the rows.
        fitted: their mean log-likelihood under q.

    Returns:
        "gain": nats per row over a model of the marginal; "at_limit": share of the log-variances
        at their limit, if q has variances.
    """
    if is_discrete(distribution):
        counts = np.bincount(y.cpu().numpy())
        p = counts[counts > 0] / len(y)
        return {"gain": fitted + float(-(p * np.log(p)).sum())}
    marginal = fit_gaussian(y).log_prob(y).mean().item()
    quality = {"gain": fitted - marginal}
    if hasattr(distribution, "variance"):
        spread = (distribution.variance / y.var(0)).log()
        quality["at_limit"] = (spread.abs() > 0.95 * LOG_VARIANCE_LIMIT).double().mean().item()
    return quality


def _cut(text: str) -> str:
    """A list of names, of which the first are enough."""
    return text if len(text) <= MOST_SHOWN else text[:MOST_SHOWN].rsplit(", ", 1)[0] + ", ..."


def _copies(x: Columns, y: Columns, groups: Int[np.ndarray, " n"] | None = None) -> int:
    """Rows that are copies of others, and not alike by chance; those within a group are no matter.

    Rounded rows are alike in one column more often than in all. Of rows that were copied, some
    column tells as many apart as all columns together. Or, whatever the columns are, nearly all
    rows occur a multiple of some times.
    """
    both = np.hstack([x.values, y.values])
    where = codes_of(both)
    if groups is not None:
        where = np.unique(np.stack([where, groups]), axis=1)[0]
    times = np.bincount(where)
    distinct = len(times)
    numbers = [v for v, k in zip(both.T, x.kinds + y.kinds, strict=True) if k == "continuous"]
    most = max((len(np.unique(v)) for v in numbers), default=0)
    if distinct <= ALIKE * most:
        return len(where) - distinct
    common = int(np.bincount(times).argmax())
    grid = len(np.unique(codes_of(x.values))) * len(np.unique(codes_of(y.values)))
    if common == 1 or distinct < MANY or distinct == grid:  # a design of experiments has all cells
        return 0
    return len(where) - len(where) // common if (times % common == 0).mean() > MULTIPLES else 0


def _noise(a: Columns, b: Columns) -> float:
    """Smallest share of a column of b that neither a line nor neighbours in a can predict."""
    if {*a.kinds, *b.kinds} != {"continuous"}:
        return 1.0
    s, t = a.inputs(), b.inputs()
    least = 1.0
    if len(s) > ENOUGH * s.shape[1]:
        slope = np.linalg.lstsq(s, t, rcond=None)[0]
        least = float((t - s @ slope).var(0).min())
    if a.width <= FEW:
        some = slice(0, 200)
        distance = sum((s[some, j : j + 1] - s[:, j]) ** 2 for j in range(a.width))
        assert isinstance(distance, np.ndarray)
        for row, to in enumerate(distance):  # a row and its copies are not neighbours
            same = np.flatnonzero(to == 0)
            to[same[(t[same] == t[row]).all(1)]] = np.inf
        nearest = distance.argmin(1)
        least = min(least, float(np.median((t[some] - t[nearest]) ** 2, axis=0).min()))
    return least


def _is_sorted(side: Columns) -> bool:
    """Whether the rows are in the order of one of the columns."""
    for values, kind in zip(side.values.T, side.kinds, strict=True):
        steps = np.diff(values)
        if kind == "discrete" and np.count_nonzero(steps) == len(np.unique(values)) - 1:
            return True  # one run for each label
        if kind == "continuous" and ((steps >= 0).all() or (steps <= 0).all()):
            return True
    return False


def _serial(side: Columns) -> np.ndarray | None:
    """The autocorrelation of the column that is most like a series; None if it may be chance.

    Reference: Ljung and Box 1978.
    """
    columns: list[np.ndarray] = []
    for values, kind in list(zip(side.values.T, side.kinds, strict=True))[:SEEN_COLUMNS]:
        seen = values[:SEEN_ROWS]
        labels = np.unique(seen)[:SEEN_COLUMNS]
        columns += [seen] if kind == "continuous" else [seen == label for label in labels]
    found = [autocorrelation(np.asarray(column, float)) for column in columns]
    n = min(len(side), SEEN_ROWS)
    lags = min(LAGS, n // 5)
    weights = n * (n + 2) / (n - np.arange(1, lags + 1))
    sums = torch.from_numpy(np.array([weights @ rho[1 : lags + 1] ** 2 for rho in found]))
    chance = torch.special.gammaincc(torch.full_like(sums, lags / 2), sums / 2) * len(found)
    best = int(sums.argmax())
    return found[best] if chance[best] < SURE else None
