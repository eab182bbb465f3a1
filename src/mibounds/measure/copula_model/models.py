"""The copula model as a method of `estimate`: its facts, and I(x; y) from its parts."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch

from mibounds.estimators.base import Side
from mibounds.measure.copula_model.cross_fitting import CopulaFit, CrossFitting, Effort
from mibounds.measure.copula_model.gaussian_regressions import cost_of_ranks, gaussian_information
from mibounds.measure.copula_model.label_regressions import enough_rows, log_frequencies
from mibounds.measure.splits import split_rows
from mibounds.samples.columns import CELLS, Columns

if TYPE_CHECKING:
    from jaxtyping import Float, Int

WIDEST = 24  # columns to model beyond which networks learn nothing that a regression does not
WORTH = 0.005  # nats that networks add from which on it is asked how they grow with the rows


@dataclass(frozen=True)
class CopulaModel:
    """A Gaussian copula with learnt corrections; the room's docstring has the equations.

    Attributes:
        name: in the registry `METHODS`.
        side: on which side of the truth it lies.
        condition: under which condition, or why on neither.
        cost: how the work grows with the N samples.
        reference: where it is described.
        has_conditional: whether the value stands or falls with one q(y|x). It does not: where the
            corrections find nothing, the closed form remains.

    Args:
        effort: how much to spend.
        seed: of the fits.
        device: where to fit.

    Example:
        >>> from mibounds.samples.columns import as_columns
        >>> x = np.random.default_rng(0).normal(size=(300, 2))
        >>> y = x[:, :1] + np.random.default_rng(1).normal(size=(300, 1))
        >>> sides = as_columns("x", x).scored(), as_columns("y", y).scored()
        >>> model = CopulaModel(Effort(folds=2, members=1, steps=50))
        >>> fit = model.measure(*sides, None, np.array_split(np.arange(300), 2))
        >>> abs(fit.nats - math.log(2) / 2) < 0.1
        True
    """

    name: ClassVar[str] = "copula_model"
    side: ClassVar[Side] = "neither"
    condition: ClassVar[str] = "the closed form of the Gaussian copula, plus learnt corrections"
    cost: ClassVar[str] = "N"
    reference: ClassVar[str] = "mibounds.measure.copula_model; Ince et al. 2017 (closed form)"
    has_conditional: ClassVar[bool] = False

    effort: Effort = field(default_factory=Effort)
    seed: int = 0
    device: str | torch.device = "cpu"

    def measure(
        self,
        x: Columns,
        y: Columns,
        given: Columns | None,
        folds: Sequence[np.ndarray],
        progress: Callable[[float], None] | None = None,
        groups: Int[np.ndarray, " n"] | None = None,
    ) -> CopulaFit:
        """Measure I(x; y), or I(x; y | given), in nats.

        Args:
            x: one side.
            y: the other side.
            given: conditioning columns, if any.
            folds: rows of each fold.
            progress: called with the share of the work that is done.
            groups: codes of rows that depend on each other; each group is in one fold.
        """

        def report(part: float) -> None:
            if progress is not None:
                progress(part)

        found = self._measure(x, y, given, folds, groups, 1, lambda part: report(0.6 * part))
        if found.learnt > WORTH:  # what learns nothing from all rows learns nothing from half
            half = self._measure(
                x, y, given, folds, groups, 2, lambda part: report(0.6 + 0.4 * part)
            )
            found.growth = max(0.0, found.nats - max(0.0, half.nats))
        report(1.0)
        return found

    def _measure(
        self,
        x: Columns,
        y: Columns,
        given: Columns | None,
        folds: Sequence[np.ndarray],
        groups: Int[np.ndarray, " n"] | None,
        thin: int,
        progress: Callable[[float], None],
    ) -> CopulaFit:
        """The value by models of every row outside of a fold, or of every other one."""
        target, source = choose_target(x, y)
        z = np.empty((len(x), 0)) if given is None else given.inputs()
        s = source.inputs()
        labels, numbers = target.take("discrete"), target.take("continuous")
        found = CopulaFit(0.0, np.zeros(len(x)))
        found.wide = numbers.width > WIDEST
        effort = replace(self.effort, members=0) if found.wide else self.effort
        work = CrossFitting(folds, effort, self.seed, self.device, found, progress, thin=thin)
        work.rounds = 2 * (bool(labels.width) + bool(numbers.width))
        if labels.width:
            codes, classes = labels.codes()
            if len(codes) * classes > CELLS:
                raise ValueError(
                    f"Expected at most {CELLS // len(codes)} labels in {target.name} for "
                    f"{self.name} with {len(codes)} rows but got {classes}; group rare labels, or "
                    f"leave {self.name} out."
                )
            rest = np.hstack([s, z])
            most = work.log_likelihood("q(labels | rest)", rest, codes, classes, pair=True)
            least = (
                work.log_likelihood("q(labels | given)", z, codes, classes)
                if z.shape[1]
                else log_frequencies(codes)
            )
            found.pointwise += most - least
            found.learnt += float(np.mean(most - least))
            train, _ = split_rows(folds, 0)
            found.floor = math.sqrt(s.shape[1] * (classes - 1) / 2) / len(x)
            if not enough_rows(rest.shape[1] * (classes - 1), len(train)):
                found.weights = s.shape[1] * (classes - 1), len(train)
            z = np.hstack([z, labels.inputs()])
        if numbers.width:
            t = numbers.smooth
            both = source.kinds + (() if given is None else given.kinds)
            found.gaussian, pointwise = gaussian_information(s, t, z, groups)
            if target.normal and "discrete" not in (*both, *target.kinds):
                cost = cost_of_ranks(s, t, z, np.random.default_rng([self.seed, 4]))
                found.gaussian, pointwise = found.gaussian + cost, pointwise + cost
            found.pointwise += pointwise
            found.floor = math.hypot(found.floor, math.sqrt(s.shape[1] * t.shape[1] / 2) / len(t))
            scores = numbers.normal and not labels.width and "discrete" not in both
            gains = work.gains("q(y | x)", np.hstack([s, z]), t, pair=True, scores=scores)
            if z.shape[1] or t.shape[1] > 1 or not numbers.normal:  # else q(t) is known: normal
                gains -= work.gains("q(y)", z, t, scores=scores)
            found.pointwise += gains
            found.learnt += abs(float(gains.mean()))
        found.nats = float(found.pointwise.mean())
        found.paired = min(map(len, work.paired), default=0)
        # The bounds are of some rows only: add what those differ by from the average row.
        for values in (found.lower, found.upper, found.club):
            for k, rows in enumerate(work.paired):
                values[k] += found.nats - float(found.pointwise[rows].mean())
        if given is not None or (labels.width and numbers.width):
            found.lower, found.upper, found.club = [], [], []  # they would bound only one term
        return found

    def log_ratios(
        self, x: Columns, y: Columns, halves: Sequence[np.ndarray]
    ) -> Float[np.ndarray, "m m"]:
        """The log-ratio of each x with each y of the first half, by models of the second half."""
        found = CopulaFit(0.0, np.zeros(len(x)))
        work = CrossFitting(halves, self.effort, self.seed, self.device, found, evaluated=1)
        target, source = choose_target(x, y)
        s = source.inputs()
        if "continuous" in target.kinds:
            both = source.kinds + target.kinds
            scores = target.normal and "discrete" not in both
            work.gains("q(y | x)", s, target.inputs(smooth=True), pair=True, scores=scores)
        else:
            work.log_likelihood("q(labels | rest)", s, *target.codes(), pair=True)
        assert work.scores is not None
        scores = work.scores
        ratios = scores - scores.logsumexp(0) + math.log(len(scores))
        return (ratios if target is y else ratios.T).cpu().numpy()


def choose_target(x: Columns, y: Columns) -> tuple[Columns, Columns]:
    """The side to model, and the other: labels rather than numbers, fewer columns rather than more.

    A density of many columns is harder to learn than one of few, however many are given.
    """
    discrete = ["continuous" not in c.kinds for c in (x, y)]
    if discrete[0] != discrete[1]:
        return (x, y) if discrete[0] else (y, x)
    return (x, y) if x.width < y.width else (y, x)
