"""Cross-fitting of the corrections: every row is evaluated by models that have not seen it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from mibounds import bounds
from mibounds.estimators.fitting import fit
from mibounds.measure.copula_model.corrections import (
    Classifier,
    Mixture,
    average_densities,
    log_prob_of_differences,
    log_standard_normal,
)
from mibounds.measure.copula_model.gaussian_regressions import GaussianRegression
from mibounds.measure.copula_model.label_regressions import ROWS, regress_labels
from mibounds.measure.copula_model.student_copulas import StudentCopula
from mibounds.measure.splits import split_rows
from mibounds.samples.seeds import drawing

if TYPE_CHECKING:
    from jaxtyping import Float, Int

Check = tuple[int, int, float, float]  # fold, step, loss, held-out loss
Fitted = tuple[str, int, str, int, bool]  # model, fold, what it corrects, last step, if it is used

FEWEST = 200  # rows to fit a correction to
FEWEST_LABELS = 50  # rows to fit a classifier to
LIKELIER = 4.0  # nats by which a Student-t copula must be likelier than the Gaussian one
PAIRS = 2000  # rows of a fold that are all paired for the lower and the upper bound
MOST = 50_000  # rows to fit a label regression to, or twice as many as it needs


@dataclass(frozen=True)
class Effort:
    """How much to spend on a fit.

    Args:
        folds: parts of the data, each evaluated by models of the others.
        members: models per fold, whose densities are averaged; 0 for the linear part only.
        steps: most steps of a fit.
        hidden: units of each hidden layer.
        components: Gaussians of a mixture.
        batch_size: rows per step.
        lr: learning rate at the start.
        patience: steps without improvement on held-out rows after which a fit stops.
    """

    folds: int = 4
    members: int = 1
    steps: int = 1000
    hidden: tuple[int, ...] = (128, 128)
    components: int = 16
    batch_size: int = 256
    lr: float = 3e-3
    patience: int = 150


@dataclass
class CopulaFit:
    """What the copula model found.

    Args:
        nats: I(x; y), or I(x; y | given).
        pointwise: contribution of each row; its mean is ``nats``.
        gaussian: the part of the closed form.
        lower: InfoNCE with the fitted conditional as critic, one value per fold.
        upper: leave-one-out with the fitted conditional, one value per fold.
        club: CLUB with the fitted conditional, one value per fold.
        floor: error of the linear part where nothing is shared and its influence values vanish.
        learnt: what the networks add to the linear part.
        growth: how much the value rose when the networks saw all rows instead of half of them.
        linear: whether there were too few rows, or too many columns, for networks.
        wide: whether it was too many columns.
        paired: the fewest rows of a fold that were paired for the bounds.
        narrow: share of the rows whose noise is at the lower limit of a mixture's scales.
        weights: weights of a linear classifier of the labels, and the rows it is fitted to; no
            weights if there are enough rows to subtract what learning them costs.
        history: for each check of a fit, the model, and fold, step, loss and held-out loss.
        fits: for each fit, the model, the fold, what it corrects, after how many steps it stopped
            (0 for no networks), and whether it is used.
    """

    nats: float
    pointwise: Float[np.ndarray, " n"]
    gaussian: float = 0.0
    lower: list[float] = field(default_factory=list)
    upper: list[float] = field(default_factory=list)
    club: list[float] = field(default_factory=list)
    floor: float = 0.0
    learnt: float = 0.0
    growth: float = 0.0
    linear: bool = False
    wide: bool = False
    paired: int = 0
    narrow: float = 0.0
    weights: tuple[int, int] = (0, 1)
    history: list[tuple[str, Check]] = field(default_factory=list)
    fits: list[Fitted] = field(default_factory=list)

    @property
    def shortfall(self) -> float:
        """How far learning lowers the value of labels, in nats: half a weight per row."""
        weights, rows = self.weights
        return weights / (2 * rows)


@dataclass
class CrossFitting:
    """Fits corrections fold by fold, and collects what they find.

    Args:
        folds: rows of each fold.
        effort: how much to spend.
        seed: of the fits.
        device: where to fit.
        found: collects bounds, training curves and the share of narrow rows.
        progress: called with the share of the work that is done.
        evaluated: how many of the folds to evaluate, from the first; all if left out.
        rounds: how often the folds are gone through.
        thin: 2 to fit to every other row only.
    """

    folds: Sequence[np.ndarray]
    effort: Effort
    seed: int
    device: str | torch.device
    found: CopulaFit
    progress: Callable[[float], None] | None = None
    evaluated: int | None = None
    rounds: int = 2
    thin: int = 1
    done: int = 0
    scores: Tensor | None = None  # of the rows that were paired last
    paired: list[np.ndarray] = field(default_factory=list)
    students: dict[int, StudentCopula] = field(
        default_factory=dict
    )  # of the folds with heavy tails

    def gains(
        self,
        name: str,
        a: Float[np.ndarray, "n k"],
        t: Float[np.ndarray, "n d"],
        pair: bool = False,
        scores: bool = False,
    ) -> Float[np.ndarray, " n"]:
        """log q(t|a) of the corrected density minus the Gaussian's, for each row.

        The correction is that of a Student-t copula, if held-out rows prefer it to the Gaussian
        one, or that of networks, if they prefer these to both.

        Args:
            name: of the models, for the training curves.
            a: conditioning columns.
            t: target columns.
            pair: whether to pair the rows of a fold with each other for the bounds, for the density
                given everything. That given less comes after it, and takes its heavy tails from it:
                if only one of two densities had them, their ratio would be biased.
            scores: whether all columns are normal scores, which a Student-t copula needs.
        """
        gain = np.zeros(len(t))
        for fold, rows in enumerate(self.folds[: self.evaluated]):
            train, check = self._split(fold)
            regression = GaussianRegression(a[train], t[train])
            e = self._tensor(regression.residuals(a, t))
            inputs = self._tensor(a)
            models = []
            plain = log_standard_normal(e).cpu().double().numpy()
            student = None
            if scores and pair:
                student = self._heavy_tails(a, t, train, check, regression)
            elif fold in self.students:  # of fewer columns, but of the same joint density
                student = self.students[fold].of_last(a.shape[1], t.shape[1])
            start, corrected = plain.copy(), "the Gaussian"
            if student is not None:
                corrected = f"a Student-t copula of {student.df:g} degrees of freedom"
                self.students.setdefault(fold, student)
                start = student.log_prob(a, t) + regression.log_volume
            self.found.linear |= pair and (len(train) < FEWEST or not self.effort.members)
            if len(train) >= FEWEST and self.effort.members:

                def make() -> Mixture:
                    return Mixture(
                        a.shape[1], t.shape[1], self.effort.hidden, self.effort.components
                    )

                base = float(start[check].mean())
                models = self._fit(name, fold, make, inputs, e, train, check, base, corrected)
            elif student is not None:
                self.found.fits.append((name, fold, corrected, 0, True))
            if models:
                density = average_densities([m.log_prob(inputs[rows], e[rows]) for m in models])
                start[rows] = density.cpu().double().numpy()
            gain[rows] = start[rows] - plain[rows]
            if pair:
                narrow = sum(m.narrow(inputs[check]) for m in models) / max(1, len(models))
                self.found.narrow += narrow / len(self.folds)
                some = rows[:PAIRS]
                if student and not models:
                    pairs = torch.from_numpy(student.log_prob_pairs(a[some], t[some]))
                else:
                    whitened = self._tensor(regression.whiten(t[some]))
                    predicted = self._tensor(regression.predict(a[some]))
                    pairs = log_prob_of_differences(models, inputs[some], whitened, predicted)
                self._add_bounds(pairs, some)
            self._tick()
        return gain

    def _heavy_tails(
        self,
        a: np.ndarray,
        t: np.ndarray,
        train: np.ndarray,
        check: np.ndarray,
        regression: GaussianRegression,
    ) -> StudentCopula | None:
        """A Student-t copula, if it is likelier than the regression.

        It has one number more, so that the rows that both were fitted to can tell, which are many
        more than the others.
        """
        student = StudentCopula.fit(a[train], t[train])
        if student is None:
            return None
        seen, others = (
            float((student.log_prob(a[r], t[r]) - regression.log_prob(a[r], t[r])).sum())
            for r in (train, check)
        )
        return student if seen > LIKELIER and others > 0 else None

    def log_likelihood(
        self,
        name: str,
        a: Float[np.ndarray, "n k"],
        codes: Int[np.ndarray, " n"],
        classes: int,
        pair: bool = False,
    ) -> Float[np.ndarray, " n"]:
        """log q(label|a), each row by models of other rows.

        A regression counts half by the rows that it has seen, half by the others.

        Args:
            name: of the models, for the training curves.
            a: conditioning columns.
            codes: labels.
            classes: number of labels.
            pair: whether to pair the rows of a fold with each other for the bounds.
        """
        y = torch.from_numpy(codes).to(self.device)
        models_of_labels: list[LabelLikelihood] = []
        for fold, rows in enumerate(self.folds[: self.evaluated]):
            train, check = self._split(fold)
            most = max(MOST, 2 * ROWS * a.shape[1] * (classes - 1))
            some = train[:: math.ceil(len(train) / most)]
            bases = regress_labels(a, codes, classes, some, check, self.device)
            models_of_labels = models_of_labels or [LabelLikelihood(len(codes)) for _ in bases]
            names = name, f"{name}, a regression corrected"
            corrected_ones = "frequencies", "a logistic regression"
            for labels, (base, fair), title, corrects in zip(
                models_of_labels, bases, names, corrected_ones, strict=False
            ):
                own = base[np.arange(len(codes)), codes]
                labels.add(own, rows, some if fair else some[:0])
                inputs = self._tensor(np.hstack([a, base]))
                paired = rows[:PAIRS]
                table = inputs[paired, a.shape[1] :]
                corrected = table
                if len(train) >= FEWEST_LABELS and self.effort.members:

                    def make() -> Classifier:
                        return Classifier(a.shape[1], classes, self.effort.hidden)

                    known = float(own[check].mean())
                    if models := self._fit(
                        title, fold, make, inputs, y, train, check, known, corrects
                    ):
                        density = average_densities(
                            [m.log_prob(inputs[rows], y[rows]) for m in models]
                        )
                        labels.gain[rows] = density.cpu().double().numpy() - own[rows]
                        corrected = average_densities([m.table(inputs[paired]) for m in models])
                labels.tables.append((paired, table, corrected))
            self._tick()
        best = max(models_of_labels, key=lambda labels: labels.values().sum())
        self._drop_others(name, regression=best is not models_of_labels[0], used=best.pays_off)
        if pair:
            for paired, *tables in best.tables:
                self._add_bounds(tables[best.pays_off].double()[:, y[paired]], paired)
        return best.values()

    def _drop_others(self, name: str, regression: bool, used: bool) -> None:
        """Mark the fits of labels that are not used, of which some may have beaten what they had.

        Args:
            name: of the models.
            regression: whether a regression, corrected or not, is better than networks alone.
            used: whether the correction of the better one pays off.
        """
        better = "a logistic regression" if regression else "networks without it"
        for i, (model, fold, corrects, steps, kept) in enumerate(self.found.fits):
            if not model.startswith(name):
                continue
            if (model == name) == regression:
                self.found.fits[i] = model, fold, better, steps, False
            else:
                self.found.fits[i] = model, fold, corrects, steps, kept and used

    def _fit(self, name, fold, make, a, e, train, check, base, corrected) -> list:
        """Models of the rows ``train`` that beat the log-likelihood ``base`` on ``check``."""
        models, steps = [], 0
        for member in range(self.effort.members):
            with drawing(self.seed + 1000 * fold + member):
                model = make().to(self.device)
            checks: list[tuple[str, Check]] = []
            fit(
                model,
                a[train],
                e[train],
                steps=self.effort.steps,
                batch_size=self.effort.batch_size,
                lr=self.effort.lr if a.shape[1] else 10 * self.effort.lr,
                seed=self.seed + 1000 * fold + member,
                held_out=(a[check], e[check]),
                patience=self.effort.patience,
                to_beat=-base,
                on_check=lambda *each: checks.append((name, (fold, *each))),  # noqa: B023
            )
            model.eval().requires_grad_(False)
            if not member:
                self.found.history += checks
                steps = checks[-1][1][1] if checks else self.effort.steps
            if -model.learning_loss(a[check], e[check]).item() <= base:
                break  # there is nothing to learn, so the other members would not find it either
            models.append(model)
        self.found.fits.append((name, fold, corrected, steps, bool(models)))
        return models

    def _split(self, fold: int) -> tuple[np.ndarray, np.ndarray]:
        """Rows to fit to and rows that stop the fit, for a fold."""
        train, check = split_rows(self.folds, fold)
        return train[:: self.thin], check[:: self.thin]

    def _add_bounds(self, scores: Tensor, rows: np.ndarray) -> None:
        self.scores = scores
        if len(scores) > 1:
            self.paired.append(rows)
            self.found.lower.append(bounds.infonce(scores.T).item())
            self.found.upper.append(bounds.l1out(scores).item())
            self.found.club.append(bounds.club(scores.diagonal(), scores.mean(1)).item())

    def _tensor(self, values: np.ndarray) -> Tensor:
        return torch.as_tensor(values, dtype=torch.float32, device=self.device)

    def _tick(self) -> None:
        self.done += 1
        if self.progress is not None:
            self.progress(min(1.0, self.done / (self.rounds * len(self.folds))))


class LabelLikelihood:
    """The log-likelihood of each row's label by one model and its corrections, fold by fold."""

    def __init__(self, n: int):
        self.plain, self.gain, self.seen, self.times = np.zeros((4, n))
        self.done = np.zeros(n, bool)
        self.tables: list[tuple[np.ndarray, Tensor, Tensor]] = []

    def add(self, own: np.ndarray, rows: np.ndarray, fitted: np.ndarray) -> None:
        """Add log-likelihoods ``own`` of held-out rows and of rows that the model was fitted to."""
        self.plain[rows], self.done[rows] = own[rows], True
        self.seen[fitted] += own[fitted]
        self.times[fitted] += 1

    @property
    def pays_off(self) -> bool:
        """Whether the corrections improve the likelihood, over all folds."""
        return bool(self.gain[self.done].mean() > 0)

    def values(self) -> Float[np.ndarray, " n"]:
        """Log-likelihoods, with half of the difference between fitted and held-out rows added."""
        known = self.done & (self.times > 0)
        half = np.zeros(len(known))
        if known.any():
            half[known] = 0.5 * (self.seen[known] / self.times[known] - self.plain[known])
            half[self.done & ~known] = half[known].mean()
        return self.plain + half + (self.gain if self.pays_off else 0.0)
