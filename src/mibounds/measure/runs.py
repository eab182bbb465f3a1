"""Runs one method on the samples: a problem in, an outcome out.

Each kind of method has a `Run` with two verbs: `measure` gives the value with its error, and
`statistic` the function of an order of y's rows that a permutation test compares.
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mibounds.conditionals import Categorical
from mibounds.estimators import ConditionalEstimator, Estimator
from mibounds.estimators.fitting import fit
from mibounds.measure import diagnostics
from mibounds.measure.canonical_codes import CanonicalCodes
from mibounds.measure.classical import ClassicalEstimator
from mibounds.measure.copula_model import CopulaModel, Effort
from mibounds.measure.independence import Statistic, dependence_given, kernel_statistic
from mibounds.measure.methods import FEW_COLUMNS, METHODS
from mibounds.measure.results import Advice, FitRecord, HistoryPoint, MethodResult
from mibounds.measure.splits import (
    fold_rows,
    permute_rows,
    some_rows,
    split_rows,
    standard_error,
)
from mibounds.samples.columns import Columns
from mibounds.samples.seeds import drawing

# By how much the errors of what is learnt, and of neighbours, are larger than those of sampling,
# and the size of what neighbours miss. Chosen by trial; benchmarks/trust.py shows what they cover.
LEARNT, LOCAL, COARSE = 1.3, 1.6, 0.25
PAIRED = 2048  # rows at most that are paired with each other
KERNELS = "kernels"  # the statistic where no method is named
FEWEST_HALVED = 20  # rows of which there is a value by neighbours


@dataclass
class Problem:
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
    groups: np.ndarray | None = None  # a code for each row; rows of a group depend on each other

    @property
    def n(self) -> int:
        """Number of rows."""
        return len(self.x)

    def rng(self) -> np.random.Generator:
        """A source of random rows, the same in every call."""
        return np.random.default_rng(self.seed)

    def groups_of(self, rows: np.ndarray) -> np.ndarray | None:
        """Codes 0, 1, ... of the groups of some rows, if there are groups."""
        if self.groups is None:
            return None
        return np.unique(self.groups[rows], return_inverse=True)[1]

    def error(self, values: np.ndarray, rows: np.ndarray | None = None) -> tuple[float, int]:
        """Standard error of the mean of a value of some rows, and its degrees of freedom."""
        groups = self.groups if rows is None else self.groups_of(rows)
        return standard_error(values, self.block, groups)


@dataclass
class Outcome:
    """What one method found: its results, the first of which counts, and their error."""

    rows: list[MethodResult]
    error: float | None
    interval_method: str
    history: list[HistoryPoint] = field(default_factory=list)
    advice: list[Advice] = field(default_factory=list)
    fits: list[FitRecord] = field(default_factory=list)
    degrees: int | None = None  # of freedom of the error; None for many
    growth: float = 0.0  # how much the value rose from half of the rows to all
    paired: int = 0  # rows of a fold that were paired for its lower bound
    widened: float = 1.0  # by how much errors are larger than those of sampling
    coarse: float = 0.0  # nats that neighbours may miss where they are far apart
    wide: bool = False  # whether there are too many columns for anything but a certificate


def measure(name: str, problem: Problem) -> Outcome:
    """What a method of `METHODS` finds in the samples."""
    return _run(name, problem).measure()


def permute(name: str, problem: Problem, permutations: int) -> tuple[float, tuple[float, ...]]:
    """The statistic of a method, and its values with the rows of y permuted.

    Kernels fit nothing. Models are fitted to one half of the rows and the other half is permuted,
    so that the test is exact: under independence every order of those rows is as likely as the
    observed one. Where something is given, the statistic is that of `dependence_given`, whatever
    the method.
    """
    p = problem
    rng = np.random.default_rng([p.seed, 1])
    if p.given is not None:
        rows = some_rows(p.n, PAIRED, p.block, rng)
        value, null = dependence_given(p.x, p.y, p.given, rows, p.block, permutations, rng)
        return value, tuple(null.tolist())
    if name == KERNELS:
        rows = some_rows(p.n, PAIRED, p.block, rng, p.groups)
        statistic = kernel_statistic(p.x, p.y, rows)
    else:
        halves = fold_rows(p.n, 2, p.block, p.seed + 1, p.groups)
        rows, statistic = _run(name, p).statistic(halves, rng)
    values, groups = [], p.groups_of(rows)
    for k in range(permutations):
        values.append(statistic(permute_rows(len(rows), p.block, rng, groups)))
        p.report(k / permutations)
    return statistic(np.arange(len(rows))), tuple(values)


class Run(ABC):
    """One method on one problem."""

    @abstractmethod
    def measure(self) -> Outcome:
        """The value, its error, and reasons to distrust it."""

    @abstractmethod
    def statistic(
        self, halves: Sequence[np.ndarray], rng: np.random.Generator
    ) -> tuple[np.ndarray, Statistic]:
        """Some rows, and a function of an order of them.

        Args:
            halves: rows to evaluate, and rows to fit to.
            rng: draws rows where no half is needed, since nothing is fitted.
        """


def _run(name: str, problem: Problem) -> Run:
    method = METHODS[name]
    if issubclass(method, CopulaModel):
        return _CopulaRun(method, problem)
    if issubclass(method, CanonicalCodes):
        return _CodesRun(method, problem)
    if issubclass(method, ClassicalEstimator):
        return _ClassicalRun(method, problem)
    return _EstimatorRun(method, problem)


class _CopulaRun(Run):
    """The default method, with the bounds that its conditional gives."""

    def __init__(self, method: type[CopulaModel], problem: Problem):
        self.problem = problem
        self.name = method.name
        self.model = method(problem.effort, problem.seed, problem.device)

    def measure(self) -> Outcome:
        p, name = self.problem, self.name
        start = time.perf_counter()
        found = self.model.measure(p.x, p.y, p.given, p.folds, p.report, p.groups)
        seconds = time.perf_counter() - start
        error, degrees = p.error(found.pointwise)
        error = math.hypot(error, found.floor)
        rows = [MethodResult(name, self.model.side, "", found.nats, error, seconds)]
        if found.lower:
            always = "over many repetitions, for any fitted conditional"
            nearer = "if the fitted q(y|x) is nearer to p(x, y) than to p(x) p(y)"
            for bound, side, condition, values in (
                ("infonce", "lower", always, found.lower),
                ("l1out", "upper", "if the fitted q(y|x) is p(y|x)", found.upper),
                ("club", "upper", nearer, found.club),
            ):
                mean, spread = _over_folds(values)
                rows.append(MethodResult(f"{name}-{bound}", side, condition, mean, spread, 0.0))
        return Outcome(
            rows,
            error,
            "Student's t, from cross-fitted influence values",
            degrees=degrees,
            growth=found.growth,
            paired=found.paired,
            widened=LEARNT,
            wide=found.wide,
            history=[HistoryPoint(f"{name} {model}", *check) for model, check in found.history],
            fits=[FitRecord(f"{name} {f[0]}", f[1], f[2], f[3], f[4]) for f in found.fits],
            advice=diagnostics.look_at_copula_model(found, error),
        )

    def statistic(
        self, halves: Sequence[np.ndarray], rng: np.random.Generator
    ) -> tuple[np.ndarray, Statistic]:
        ratios = self.model.log_ratios(self.problem.x, self.problem.y, halves)
        n = min(PAIRED, len(ratios))
        return halves[0][:n], lambda order: float(ratios[np.arange(n), order].mean())


class _CodesRun(Run):
    """Canonical codes, with what they certify."""

    def __init__(self, method: type[CanonicalCodes], problem: Problem):
        if problem.given is not None:
            raise ValueError(
                f"Expected no given for {method.name} but got some; "
                'use "copula_model" for conditional mutual information.'
            )
        self.problem, self.method = problem, method
        self.model = method(problem.seed, problem.device)

    def measure(self) -> Outcome:
        p, method = self.problem, self.method
        start = time.perf_counter()
        found = self.model.measure(p.x, p.y, p.folds, p.report)
        error, degrees = p.error(found.pointwise, found.rows)
        seconds = time.perf_counter() - start
        row = MethodResult(method.name, method.side, method.condition, found.nats, error, seconds)
        return Outcome(
            [row],
            error,
            "Student's t, from the shares of held-out rows",
            degrees=degrees,
            growth=found.growth,
            advice=diagnostics.look_at_codes(row, found.paired),
        )

    def statistic(
        self, halves: Sequence[np.ndarray], rng: np.random.Generator
    ) -> tuple[np.ndarray, Statistic]:
        rows = halves[0][:PAIRED]
        train, check = split_rows(halves, 0)
        codes = self.model.fit(self.problem.x, self.problem.y, train, check, rows)
        ratios = codes.log_ratios().cpu().numpy()
        n = len(rows)
        return rows, lambda order: float(ratios[np.arange(n), order].mean())


class _ClassicalRun(Run):
    """An estimator without a network."""

    def __init__(self, method: type[ClassicalEstimator], problem: Problem):
        self.method, self.problem = method, problem

    def measure(self) -> Outcome:
        p, method = self.problem, self.method
        start = time.perf_counter()
        if p.given is not None:
            raise ValueError(
                f"Expected no given for {method.name} but got some; "
                'use "copula_model" for conditional mutual information.'
            )
        few = p.x.width + p.y.width <= FEW_COLUMNS
        most = (method.most_rows_of_few if few else None) or method.most_rows or p.n
        rows = some_rows(p.n, most, p.block, p.rng(), p.groups)
        advice = []
        if p.groups is not None:
            advice.append(diagnostics.ungrouped(method.name))
        if len(rows) < p.n:
            advice.append(diagnostics.subsampled(method.name, len(rows), p.n))
        for side in (p.x, p.y):
            other = {"continuous": "discrete", "discrete": "continuous"}.get(method.handles)
            if other in side.kinds:
                raise ValueError(
                    f"Expected {method.handles} columns for {method.name} but {side.name} has "
                    f'{other} ones; use "ksg_mixed" or "copula_model", or declare the kinds.'
                )
        x, y = self._values()
        shares = method().influence(x[rows], y[rows])
        error, degrees = p.error(shares, rows)
        growth = 0.0
        if method.local and len(rows) >= 2 * FEWEST_HALVED:
            ordered = p.block > 1 or p.groups is not None
            halves = np.array_split(rows if ordered else p.rng().permutation(rows), 2)
            fewer = [float(method().influence(x[h], y[h]).mean()) for h in halves]
            growth = max(0.0, float(shares.mean() - np.mean(fewer)))
        seconds = time.perf_counter() - start
        row = MethodResult(
            method.name, method.side, method.condition, float(shares.mean()), error, seconds
        )
        if method.local:
            advice += diagnostics.look_at_neighbours(row, p.x, p.y)
        return Outcome(
            [row],
            error,
            "Student's t, from influence values",
            degrees=degrees,
            advice=advice,
            growth=growth,
            widened=LOCAL if method.local else 1.0,
            coarse=COARSE * math.exp(row.nats) / math.sqrt(len(rows)) if method.local else 0.0,
        )

    def statistic(
        self, halves: Sequence[np.ndarray], rng: np.random.Generator
    ) -> tuple[np.ndarray, Statistic]:
        p, estimate = self.problem, self.method()
        rows = some_rows(p.n, PAIRED, p.block, rng, p.groups)
        x, y = self._values()
        return rows, lambda order: estimate(x[rows], y[rows[order]])

    def _values(self) -> tuple[np.ndarray, np.ndarray]:
        """Both sides; without equal numbers for a method that looks at distances."""
        x, y = self.problem.x, self.problem.y
        return (x.smooth, y.smooth) if self.method.local else (x.values, y.values)


class _EstimatorRun(Run):
    """A bound with a network, cross-fitted."""

    def __init__(self, method: type[Estimator], problem: Problem):
        self.method, self.problem = method, problem

    def measure(self) -> Outcome:
        p = self.problem
        if p.given is None:
            return self._cross_fit(p.x)
        both = Columns(
            "x and given",
            np.hstack([p.x.values, p.given.values]),
            p.x.kinds + p.given.kinds,
            p.x.labels + p.given.labels,
            np.hstack([p.x.smooth, p.given.smooth]),
        )
        more, less = self._cross_fit(both), self._cross_fit(p.given)
        a, b = more.rows[0], less.rows[0]
        row = MethodResult(
            self.method.name,
            "neither",
            "a difference I(x, z; y) - I(z; y) of two bounds",
            a.nats - b.nats,
            math.hypot(a.error or 0.0, b.error or 0.0),
            a.seconds + b.seconds,
        )
        advice, fits = more.advice + less.advice, more.fits + less.fits
        return replace(more, rows=[row], error=row.error, advice=advice, fits=fits)

    def statistic(
        self, halves: Sequence[np.ndarray], rng: np.random.Generator
    ) -> tuple[np.ndarray, Statistic]:
        rows = halves[0][:PAIRED]
        make, x, y = self._prepare(self.problem.x)
        estimator = self._fit_outside(make, halves, 0, x, y, [])

        def statistic(order: np.ndarray) -> float:
            generator = torch.Generator(self.problem.device).manual_seed(self.problem.seed)
            with torch.no_grad(), drawing(generator):
                return estimator(x[rows], y[rows[order]]).item()

        return rows, statistic

    def _cross_fit(self, side: Columns) -> Outcome:
        """The estimator on each fold, fitted to the others."""
        p = self.problem
        start = time.perf_counter()
        make, x, y = self._prepare(side)
        values: list[float] = []
        history: list[HistoryPoint] = []
        qualities, fitted = [], []
        for fold, rows in enumerate(p.folds):
            estimator = self._fit_outside(make, p.folds, fold, x, y, history)
            fitted.append(estimator)
            chunks = np.array_split(rows, math.ceil(len(rows) / PAIRED))
            generator = torch.Generator(p.device).manual_seed(p.seed + fold)
            with torch.no_grad(), drawing(generator):
                values.append(float(np.mean([estimator(x[c], y[c]).item() for c in chunks])))
                some = rows[:PAIRED]
                qualities.append(diagnostics.quality_of(estimator, x[some], y[some]))
            p.report((fold + 1) / len(p.folds))
        mean, error = _over_folds(values)
        seconds = time.perf_counter() - start
        first = fitted[0]
        row = MethodResult(self.method.name, first.side, first.condition, mean, error, seconds)
        paired = min(PAIRED, min(len(f) for f in p.folds))
        advice = diagnostics.look_at_estimator(row, first, qualities, paired)
        last = {point.fold: point.step for point in history}
        fits = [FitRecord(self.method.name, fold, "", step, True) for fold, step in last.items()]
        how = f"Student's t, from the spread over {len(values)} folds"
        return Outcome([row], error, how, history, advice, fits, len(values) - 1)

    def _fit_outside(
        self,
        make: Callable[[], Estimator],
        folds: Sequence[np.ndarray],
        fold: int,
        x: Tensor,
        y: Tensor,
        history: list[HistoryPoint],
    ) -> Estimator:
        """An estimator fitted to the rows of the other folds."""
        p = self.problem
        train, check = split_rows(folds, fold)
        with drawing(p.seed + fold):
            estimator = make().to(p.device)
        fit(
            estimator,
            x[train],
            y[train],
            steps=p.effort.steps,
            batch_size=min(128, p.effort.batch_size),
            seed=p.seed + fold,
            held_out=(x[check[:PAIRED]], y[check[:PAIRED]]),
            patience=p.effort.patience,
            on_check=lambda *check: history.append(HistoryPoint(self.method.name, fold, *check)),
        )
        estimator.eval().requires_grad_(False)
        return estimator

    def _prepare(self, side: Columns) -> tuple[Callable[[], Estimator], Tensor, Tensor]:
        """A function that makes the estimator, and the samples in the form that it needs."""
        p, method = self.problem, self.method
        hidden = p.effort.hidden[0]
        x = torch.as_tensor(side.inputs(), dtype=torch.float32, device=p.device)
        labels = "continuous" not in p.y.kinds
        if issubclass(method, ConditionalEstimator) and labels:
            codes, classes = p.y.codes()
            y = torch.as_tensor(codes, device=p.device)

            def make_for_labels() -> Estimator:
                q = Categorical(x.shape[1], classes, hidden)
                return method(conditional=q, **method.for_any_y)

            return make_for_labels, x, y
        if issubclass(method, ConditionalEstimator) and "discrete" in p.y.kinds:
            raise ValueError(
                f"Expected y of one kind for {method.name} but got both; use a critic such as "
                'infonce, or "copula_model".'
            )
        numbers = p.y.inputs(smooth=issubclass(method, ConditionalEstimator))
        y = torch.as_tensor(numbers, dtype=torch.float32, device=p.device)
        make: Any = method  # conditionals and critics take the same three
        return lambda: make(x.shape[1], y.shape[1], hidden), x, y


def _over_folds(values: Sequence[float]) -> tuple[float, float | None]:
    """The mean over folds, and its standard error where there are several."""
    error = float(np.std(values, ddof=1) / math.sqrt(len(values))) if len(values) > 1 else None
    return float(np.mean(values)), error
