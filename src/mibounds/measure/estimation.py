"""Exit 1 of the flow, a number: from samples to nats, with an interval and a word on its worth."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from mibounds.bounds.densities import log_prob
from mibounds.conditionals import Categorical
from mibounds.estimators import ESTIMATORS, VUB, ConditionalEstimator, CriticEstimator, Estimator
from mibounds.estimators.fitting import fit
from mibounds.measure import copula_model as bridges
from mibounds.measure import diagnostics
from mibounds.measure.classical import CLASSICAL
from mibounds.measure.classical.interfaces import has_scipy
from mibounds.measure.copula_model import Effort, measure_bridge
from mibounds.measure.results import Advice, Estimate, Point, Row
from mibounds.samples.columns import Columns, as_columns, split_dataset

if TYPE_CHECKING:
    from jaxtyping import Float

__all__ = ["estimate"]

FEWEST = 20  # rows
MEETING = 2048  # rows that are evaluated together, where all pairs meet
EFFORTS = {
    "default": Effort(),
    "fast": Effort(folds=2, members=1, steps=300, hidden=(64, 64), components=8, patience=100),
}
MOST = {"ksg": 20_000, "ksg_mixed": 20_000, "kde": 5_000, "mlmi": 5_000}  # rows worth the time


@dataclass
class _Outcome:
    """What one method found: rows of the result, and what the interval is made of."""

    rows: list[Row]
    error: float | None
    how: str
    history: list[Point] = field(default_factory=list)
    advice: list[Advice] = field(default_factory=list)


@dataclass
class _Problem:
    """The samples and the settings that every method shares."""

    x: Columns
    y: Columns
    given: Columns | None
    folds: list[np.ndarray]
    effort: Effort
    block: int
    seed: int
    device: torch.device
    report: Callable[[float], None]

    @property
    def n(self) -> int:
        return len(self.x)


@torch.inference_mode(False)  # it fits models, also where the caller only evaluates his
def estimate(
    x: Any,
    y: Any = None,
    *,
    given: Any = None,
    methods: str | Sequence[str] = "default",
    x_kinds: Sequence[str | None] | str | None = None,
    y_kinds: Sequence[str | None] | str | None = None,
    given_kinds: Sequence[str | None] | str | None = None,
    normal_scores: bool = True,
    budget: Literal["default", "fast"] = "default",
    folds: int | None = None,
    level: float = 0.95,
    permutations: int = 0,
    block: int = 1,
    seed: int = 0,
    device: str | torch.device | None = None,
    progress: Callable[[float, str], None] | None = None,
) -> Estimate:
    """Estimate the mutual information of x and y from samples.

    By default the Gaussian copula with learned corrections (`mibounds.measure.copula_model`), or
    neighbours in few columns, or counts of labels; with a lower and an upper side beside it.
    Every row is evaluated by models that have not seen it.

    Args:
        x: one sample a row: array, tensor, data frame, series; or a Dataset of pairs, without y.
        y: likewise.
        given: for the conditional mutual information I(x; y | given).
        methods: "default", or names of `ESTIMATORS`, `CLASSICAL` or "bridge"; the first is the one
            whose value counts.
        x_kinds: "continuous" or "discrete", for all or each of the columns; recognised if left out,
            as are those of columns with None.
        y_kinds: likewise.
        given_kinds: likewise.
        normal_scores: map each continuous column through its ranks to a standard normal, which
            leaves the mutual information as it is.
        budget: "default" for a minute or two, "fast" for seconds.
        folds: parts of the data for cross-fitting.
        level: of the interval.
        permutations: of y, for a p-value of independence; 0 for none.
        block: rows that depend on each other, for time series: folds, errors and permutations
            keep runs of so many rows together.
        seed: of folds, fits and permutations.
        device: where to fit; the CPU if left out.
        progress: called with the part that is done, and a word.

    Returns:
        The estimate, in nats.

    Raises:
        ValueError: for samples or settings that make no sense, with what to do.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> x = rng.normal(size=(500, 3))
        >>> result = estimate(x, x[:, :2] + rng.normal(size=(500, 2)), budget="fast")
        >>> round(result.nats, 1)
        0.7
        >>> result.interval[0] < math.log(2) < result.interval[1]
        True
    """
    start = time.perf_counter()
    if budget not in EFFORTS:
        raise ValueError(
            f'Expected a budget "default" or "fast" but got {budget!r}; leave it out for "default".'
        )
    if not 0 < level < 1:
        raise ValueError(
            f"Expected a level between 0 and 1 but got {level}; leave it out for 0.95."
        )
    for name, value, least in (("permutations", permutations, 0), ("block", block, 1)):
        if value < least:
            raise ValueError(
                f"Expected {name} >= {least} but got {value}; leave {name} out for its default."
            )
    x, y, z = _read(x, y, given, x_kinds, y_kinds, given_kinds)
    effort = EFFORTS[budget]
    if folds is not None:
        if not 2 <= folds <= len(x) // 2:
            raise ValueError(
                f"Expected 2 to {len(x) // 2} folds but got {folds}; "
                "leave folds out for those of the budget."
            )
        effort = replace(effort, folds=folds)
    if permutations and z is not None:
        raise ValueError(
            "Expected no permutations together with given: permuting y would break its relation to "
            "what is given as well; leave permutations or given out."
        )
    scored = x.scored(), y.scored(), None if z is None else z.scored()
    advice = diagnostics.look_at_samples(*scored)
    if normal_scores:
        x, y, z = scored
    names = _choose(methods, x, y, z)
    word, done = names[0], 0

    def report(part: float) -> None:
        if progress is not None:
            progress((done + part) / (len(names) + bool(permutations)), word)

    problem = _Problem(
        x,
        y,
        z,
        _fold(len(x), effort.folds, block, seed),
        effort,
        block,
        seed,
        torch.device(device or "cpu"),
        report,
    )
    outcomes: list[_Outcome] = []
    null: tuple[float, ...] = ()
    p_value = None
    with torch.random.fork_rng(devices=[]):  # the caller's random numbers are left alone
        for word in names:
            report(0.0)
            torch.manual_seed(seed)
            outcomes.append(_measure(word, problem))
            done += 1
        if permutations:
            word = "permutations"
            value, null = _permute(names[0], problem, permutations)
            p_value = (1 + sum(v >= value for v in null)) / (1 + permutations)
    report(0.0 if permutations == 0 else 1.0)
    first = outcomes[0]
    rows = tuple(row for outcome in outcomes for row in outcome.rows)
    lower = max((r.nats for r in rows if r.side == "lower"), default=None)
    # An upper bound that lies under the value has lost its condition, unless it is the value.
    least = -math.inf if rows[0].side == "upper" else rows[0].nats
    upper = min((r.nats for r in rows if r.side == "upper" and r.nats >= least), default=None)
    rows = tuple(
        replace(r, condition=f"not used: below the value ({r.condition})")
        if r.side == "upper" and r.nats < least
        else r
        for r in rows
    )
    advice += [a for outcome in outcomes for a in outcome.advice]
    advice += diagnostics.look_at_rows(rows)
    rows = _with_common_errors(rows)
    quantile = torch.special.ndtri(torch.tensor((1 + level) / 2, dtype=torch.float64)).item()
    nats, error = first.rows[0].nats, first.error
    width = quantile * error if error is not None else math.nan
    return Estimate(
        nats=nats,
        interval=(nats - width, max(nats + width, 0.0)),  # what is shared is never below zero
        level=level,
        interval_method=first.how,
        lower=lower,
        upper=upper,
        method=names[0],
        rows=rows,
        history=tuple(p for outcome in outcomes for p in outcome.history),
        warnings=tuple(dict.fromkeys(advice)),
        p_value=p_value,
        null=null,
        n=len(x),
        x_dim=x.width,
        y_dim=y.width,
        seed=seed,
        seconds=time.perf_counter() - start,
        config={
            "methods": names,
            "budget": budget,
            "normal_scores": normal_scores,
            "block": block,
            "permutations": permutations,
            "given": 0 if z is None else z.width,
            "x_kinds": list(x.kinds),
            "y_kinds": list(y.kinds),
            "given_kinds": [] if z is None else list(z.kinds),
            **asdict(effort),
            "torch": torch.__version__,
        },
    )


def _read(
    x: Any, y: Any, given: Any, x_kinds: Any, y_kinds: Any, given_kinds: Any
) -> tuple[Columns, Columns, Columns | None]:
    """Both sides and what is given as columns with as many rows."""
    if y is None:
        if not isinstance(x, Dataset):
            raise ValueError(
                "Expected y, or a Dataset of pairs in place of x and y, but got x alone; "
                "pass estimate(x, y)."
            )
        x, y = split_dataset(x)
    sides = [as_columns("x", x, x_kinds), as_columns("y", y, y_kinds)]
    if given is not None:
        sides.append(as_columns("given", given, given_kinds))
    n = len(sides[0])
    for side in sides[1:]:
        if len(side) != n:
            raise ValueError(
                f"Expected as many rows of {side.name} as of x but got {len(side)} and {n}; "
                "pass rows that belong together."
            )
    if n < FEWEST:
        raise ValueError(f"Expected at least {FEWEST} rows but got {n}; collect more samples.")
    return sides[0], sides[1], sides[2] if given is not None else None


def _choose(
    methods: str | Sequence[str], x: Columns, y: Columns, given: Columns | None
) -> list[str]:
    """Names of the methods to run, the one that counts first."""
    if isinstance(methods, str):
        methods = [m.strip() for m in methods.split(",")]
    names = list(dict.fromkeys(methods))
    known = ["default", "bridge", *ESTIMATORS, *CLASSICAL]
    for name in names:
        if name not in known:
            raise ValueError(
                f"Expected methods among {', '.join(known)} but got {name!r}; "
                'pass "default" to have them chosen.'
            )
    if not names:
        raise ValueError(
            'Expected at least one method but got none; pass "default" to have them chosen.'
        )
    if "default" in names:
        i = names.index("default")
        names[i : i + 1] = default_methods(x, y, given)
    return list(dict.fromkeys(names))


def default_methods(x: Columns, y: Columns, given: Columns | None) -> list[str]:
    """What to measure by: counts for labels, neighbours in few columns, else the bridge.

    The choice was made by the errors over `TASKS` at 10000 samples, `results/measure/tasks.json`.
    """
    kinds = {"discrete" if "continuous" not in c.kinds else "numbers" for c in (x, y)}
    if given is not None:
        return ["bridge"]
    if kinds == {"discrete"}:
        cells = len(np.unique(np.hstack([x.values, y.values]), axis=0))
        return ["plug_in", "bridge"] if 5 * cells <= len(x) else ["bridge"]
    pure = all(len(set(c.kinds)) == 1 for c in (x, y))
    if x.width + y.width <= diagnostics.NEAR and pure and has_scipy():
        return ["ksg_mixed" if "discrete" in kinds else "ksg", "bridge"]
    return ["bridge"]


def _fold(n: int, folds: int, block: int, seed: int) -> list[np.ndarray]:
    """Rows of each fold, in random order; runs of dependent rows stay together."""
    rng = np.random.default_rng(seed)
    if block == 1:
        return np.array_split(rng.permutation(n), folds)
    return np.array_split(np.arange(n), folds)


def _some_rows(n: int, most: int, block: int, rng: np.random.Generator) -> np.ndarray:
    """So many rows at most, drawn at random; one stretch of them where neighbours depend."""
    if n <= most:
        return np.arange(n)
    if block == 1:
        return np.sort(rng.choice(n, most, replace=False))
    start = rng.integers(n - most + 1)
    return np.arange(start, start + most)


def _measure(name: str, problem: _Problem) -> _Outcome:
    if name == "bridge":
        return _by_bridge(problem)
    if name in CLASSICAL:
        return _without_network(name, problem)
    return _by_estimator(name, problem)


def _by_bridge(p: _Problem) -> _Outcome:
    start = time.perf_counter()
    found = measure_bridge(p.x, p.y, p.given, p.folds, p.effort, p.seed, p.device, p.report)
    seconds = time.perf_counter() - start
    error = math.hypot(_standard_error(found.pointwise, p.block), found.floor)
    rows = [Row("bridge", "neither", "", found.nats, error, seconds)]
    if found.lower:
        condition = "over many repetitions, for any fitted conditional"
        rows.append(_spread("bridge-infonce", "lower", condition, found.lower))
        rows.append(_spread("bridge-l1out", "upper", "if the fitted q(y|x) is p(y|x)", found.upper))
        condition = "if the fitted q(y|x) is nearer to p(x, y) than to p(x) p(y)"
        rows.append(_spread("bridge-club", "upper", condition, found.club))
    outcome = _Outcome(rows, error, "normal, from cross-fitted influence values")
    outcome.history = [Point(f"bridge {name}", *look) for name, look in found.history]
    outcome.advice = diagnostics.look_at_bridge(found, error)
    return outcome


def _spread(name: str, side: str, condition: str, values: list[float]) -> Row:
    """A row of the mean over folds."""
    error = float(np.std(values, ddof=1) / math.sqrt(len(values))) if len(values) > 1 else None
    return Row(name, side, condition, float(np.mean(values)), error, 0.0)


def _with_common_errors(rows: Sequence[Row]) -> tuple[Row, ...]:
    """The bounds of the bridge with the error of its value, which they all have in common.

    Beside each other they differ by less: that of each alone is its spread over folds.
    """
    own = next((row.error for row in rows if row.method == "bridge"), None) or 0.0
    return tuple(
        replace(row, error=math.hypot(row.error or 0.0, own))
        if row.method.startswith("bridge-")
        else row
        for row in rows
    )


def _without_network(name: str, p: _Problem) -> _Outcome:
    start = time.perf_counter()
    kind = CLASSICAL[name]
    if p.given is not None:
        raise ValueError(f'Expected no given for {name}; use "bridge" for a conditional one.')
    advice = []
    rows = _some_rows(p.n, MOST.get(name, p.n), p.block, np.random.default_rng(p.seed))
    if len(rows) < p.n:
        advice.append(diagnostics.subsampled(name, len(rows), p.n))
    values = []
    for side in (p.x, p.y):
        other = {"continuous": "discrete", "discrete": "continuous"}.get(kind.handles)
        if other in side.kinds:
            raise ValueError(
                f"Expected {kind.handles} columns for {name} but {side.name} has {other} ones; "
                'use "ksg_mixed" or "bridge", or say the kinds.'
            )
        values.append(side.values[rows])
    shares = kind().influence(*values)
    error = _standard_error(shares, p.block)
    row = Row(
        name, kind.side, kind.condition, float(shares.mean()), error, time.perf_counter() - start
    )
    advice += diagnostics.look_at_neighbours(row, p.x, p.y)
    return _Outcome([row], error, "normal, from influence values", advice=advice)


def _by_estimator(name: str, p: _Problem) -> _Outcome:
    if p.given is None:
        return _cross_fit(name, p, p.x)
    both = Columns(
        "x and given",
        np.hstack([p.x.values, p.given.values]),
        p.x.kinds + p.given.kinds,
        p.x.labels + p.given.labels,
    )
    more, less = _cross_fit(name, p, both), _cross_fit(name, p, p.given)
    a, b = more.rows[0], less.rows[0]
    row = Row(
        name,
        "neither",
        "a difference I(x, z; y) - I(z; y) of two bounds",
        a.nats - b.nats,
        math.hypot(a.error or 0.0, b.error or 0.0),
        a.seconds + b.seconds,
    )
    return replace(more, rows=[row], error=row.error, advice=more.advice + less.advice)


def _cross_fit(name: str, p: _Problem, side: Columns) -> _Outcome:
    """An estimator on each fold, fitted to the others."""
    start = time.perf_counter()
    make, x, y = _prepare(name, p, side)
    values: list[float] = []
    outcome = _Outcome([], None, "normal, from the spread over folds")
    worth, fitted = [], []
    for fold, rows in enumerate(p.folds):
        estimator = _fit_outside(make, p, fold, name, x, y, outcome.history)
        fitted.append(estimator)
        chunks = np.array_split(rows, math.ceil(len(rows) / MEETING))
        with torch.no_grad():
            values.append(float(np.mean([estimator(x[c], y[c]).item() for c in chunks])))
            worth.append(_worth(estimator, x, y, rows))
        p.report((fold + 1) / len(p.folds))
    error = float(np.std(values, ddof=1) / math.sqrt(len(values)))
    row = Row(
        name,
        fitted[0].side,
        fitted[0].condition,
        float(np.mean(values)),
        error,
        time.perf_counter() - start,
    )
    outcome.rows, outcome.error = [row], error
    meeting = min(MEETING, min(len(f) for f in p.folds))
    outcome.advice = diagnostics.look_at_estimator(row, worth, meeting)
    return outcome


def _fit_outside(
    make: Callable[[], Estimator],
    p: _Problem,
    fold: int,
    name: str,
    x: Tensor,
    y: Tensor,
    history: list[Point],
) -> Estimator:
    """An estimator fitted to the rows of the other folds."""
    train, check = bridges.split_rows(p.folds, fold)
    torch.manual_seed(p.seed + fold)
    estimator = make().to(p.device)
    fit(
        estimator,
        x[train],
        y[train],
        steps=p.effort.steps,
        batch_size=min(128, p.effort.batch_size),
        seed=p.seed + fold,
        held_out=(x[check[:MEETING]], y[check[:MEETING]]),
        patience=p.effort.patience,
        on_check=lambda *look: history.append(Point(name, fold, *look)),
    )
    estimator.eval().requires_grad_(False)
    return estimator


def _prepare(
    name: str, p: _Problem, side: Columns
) -> tuple[Callable[[], Estimator], Tensor, Tensor]:
    """A maker of estimators, and the samples as it wants them."""
    kind = ESTIMATORS[name]
    hidden = p.effort.hidden[0]
    x = torch.as_tensor(side.inputs(), dtype=torch.float32, device=p.device)
    labels = "continuous" not in p.y.kinds
    if issubclass(kind, ConditionalEstimator) and labels:
        codes, classes = p.y.codes()
        y = torch.as_tensor(codes, device=p.device)
        more: dict[str, Any] = {"marginal": "learned"} if kind is VUB else {}
        return lambda: kind(conditional=Categorical(x.shape[1], classes, hidden), **more), x, y
    if issubclass(kind, ConditionalEstimator) and "discrete" in p.y.kinds:
        raise ValueError(
            f"Expected y of one kind for {name} but got both; use a critic such as infonce, or "
            '"bridge".'
        )
    y = torch.as_tensor(p.y.inputs(), dtype=torch.float32, device=p.device)
    return lambda: kind(x.shape[1], y.shape[1], hidden), x, y


def _worth(estimator: Estimator, x: Tensor, y: Tensor, rows: np.ndarray) -> dict[str, float]:
    """What the diagnostics want to know of an estimator on held-out rows."""
    some = rows[:MEETING]
    if not isinstance(estimator, ConditionalEstimator):
        assert isinstance(estimator, CriticEstimator)
        scores = estimator.scores(x[some], y[some])
        total = scores.log_sum_exp(None, "others")
        squares = scores.log_sum_exp(None, "others", lambda s: 2 * s)
        return {"pairs": (2 * total - squares).exp().item()}
    distribution = estimator.conditional(x[some])
    fitted = log_prob(distribution, y[some]).mean().item()
    return diagnostics.worth_of(distribution, y[some], fitted)


def _standard_error(shares: Float[np.ndarray, " n"], block: int) -> float:
    """Of the mean; with runs of dependent rows, from the means of the runs."""
    if block > 1:
        runs = len(shares) // block
        if runs < 2:
            raise ValueError(
                f"Expected at least 2 blocks of {block} rows but got {len(shares)} rows; "
                "pass a smaller block, or more rows."
            )
        shares = shares[: runs * block].reshape(runs, block).mean(1)
    return float(shares.std(ddof=1) / math.sqrt(len(shares)))


def _permute(name: str, p: _Problem, permutations: int) -> tuple[float, tuple[float, ...]]:
    """The statistic, and its values with y permuted.

    Models are fitted to one half of the rows and the other half is permuted, so that the test is
    exact: under independence every order of those rows is as likely as the one that came.
    """
    rng = np.random.default_rng([p.seed, 1])
    halves = _fold(p.n, 2, p.block, p.seed + 1)
    rows = halves[0][:MEETING]
    if name in CLASSICAL:
        rows = _some_rows(p.n, MEETING, p.block, rng)
        classical = CLASSICAL[name]()

        def statistic(order: np.ndarray) -> float:
            return classical(p.x.values[rows], p.y.values[rows[order]])

    elif name == "bridge":
        ratios = bridges.log_ratios(p.x, p.y, halves, p.effort, p.seed, p.device)
        rows = rows[: len(ratios)]

        def statistic(order: np.ndarray) -> float:
            return float(ratios[np.arange(len(order)), order].mean())

    else:
        make, x, y = _prepare(name, p, p.x)
        estimator = _fit_outside(make, replace(p, folds=halves), 0, name, x, y, [])

        def statistic(order: np.ndarray) -> float:
            with torch.no_grad():
                return estimator(x[rows], y[rows[order]]).item()

    values = []
    for k in range(permutations):
        values.append(statistic(_order(len(rows), p.block, rng)))
        p.report(k / permutations)
    return statistic(np.arange(len(rows))), tuple(values)


def _order(n: int, block: int, rng: np.random.Generator) -> np.ndarray:
    """A random order, of blocks where rows depend on each other."""
    if block == 1:
        return rng.permutation(n)
    starts = rng.permutation(math.ceil(n / block)) * block
    return np.concatenate([np.arange(s, min(s + block, n)) for s in starts])
