"""The Gaussian copula as a bridge: its closed form, and learned corrections that are small.

With t the continuous columns of one side, s the other side and z what is given,

    I(s; t | z) = E[log p(t|s, z)] - E[log p(t|z)].

Each density is a Gaussian around a linear regression times a correction. The Gaussian parts give
the closed form of the Gaussian copula (t and the continuous part of s are normal scores), with its
bias taken off. A correction is a mixture of Gaussians of the standardised residual, whose
parameters are functions of what is conditioned on. It is fitted by likelihood, stops by the
likelihood of held-out rows, is dropped where it never beats the Gaussian, and counts only on rows
that it has not seen (cross-fitting). Where the Gaussian copula is the truth, the answer is its
closed form; elsewhere each correction is a density against a Gaussian close to it.

Discrete columns of t come first, by the chain rule I(s; d, c | z) = I(s; d | z) + I(s; c | d, z).
There a logistic regression stands for the Gaussian. To fit its p numbers to n rows costs p / 2n
nats on rows that it has not seen, and wins as much on those that it has: the mean of both has no
bias to that order. The correction is a classifier on top of it, dropped where it does not pay; and
where a classifier on top of nothing says more than both, that one counts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from mibounds import bounds
from mibounds.estimators.fitting import fit
from mibounds.measure.classical.interfaces import digamma
from mibounds.measure.label_regressions import ROWS, enough, regress_labels
from mibounds.samples.columns import Columns

if TYPE_CHECKING:
    from jaxtyping import Float, Int

Look = tuple[int, int, float, float]

FEWEST = 200  # rows to fit a correction to
FEWEST_LABELS = 50  # rows to fit a classifier to
PAIRS = 2000  # rows of a fold that all meet for the lower and the upper bound
MOST = 50_000  # rows to fit a regression to, or twice as many as it needs
LIMIT = 4.0  # of the logarithm of a residual's scale, against the Gaussian's


@dataclass(frozen=True)
class Effort:
    """How much to spend.

    Args:
        folds: parts of the data, each evaluated by models of the others.
        members: models of each fold, whose densities are averaged.
        steps: most steps of a fit.
        hidden: units of each hidden layer.
        components: Gaussians of a mixture.
        batch_size: rows a step.
        lr: rate at the start.
        patience: steps without gain on held-out rows.
    """

    folds: int = 5
    members: int = 2
    steps: int = 1500
    hidden: tuple[int, ...] = (128, 128, 128)
    components: int = 16
    batch_size: int = 256
    lr: float = 2e-3
    patience: int = 300


@dataclass
class Bridge:
    """What the bridge found.

    Args:
        nats: I(x; y), or I(x; y | given).
        pointwise: what each row contributes; its mean is ``nats``.
        gaussian: the part of the closed form.
        lower: InfoNCE with the fitted conditional as critic, for each fold.
        upper: leave-one-out with it, for each fold.
        club: the bound of CLUB with it, for each fold.
        floor: error of the linear part where nothing is shared, and its influence values vanish.
        narrow: part of the rows where the noise of t is at the narrowest that a mixture allows.
        numbers: that even a linear classifier of the labels has to learn, and from how many rows;
            no numbers where the rows are enough to take off what learning them costs.
        history: of each look, the model, and fold, step, loss and held-out loss.
    """

    nats: float
    pointwise: Float[np.ndarray, " n"]
    gaussian: float = 0.0
    lower: list[float] = field(default_factory=list)
    upper: list[float] = field(default_factory=list)
    club: list[float] = field(default_factory=list)
    floor: float = 0.0
    narrow: float = 0.0
    numbers: tuple[int, int] = (0, 1)
    history: list[tuple[str, Look]] = field(default_factory=list)

    @property
    def shortfall(self) -> float:
        """By how much learning alone lowers the value of labels, nats: half a number a row."""
        numbers, rows = self.numbers
        return numbers / (2 * rows)


def measure_bridge(
    x: Columns,
    y: Columns,
    given: Columns | None,
    folds: Sequence[np.ndarray],
    effort: Effort,
    seed: int,
    device: torch.device | None = None,
    progress: Callable[[float], None] | None = None,
) -> Bridge:
    """Measure I(x; y), or I(x; y | given), in nats.

    Args:
        x: one side.
        y: the other.
        given: what is conditioned on.
        folds: rows of each fold.
        effort: how much to spend.
        seed: of the fits.
        device: where to fit.
        progress: called with the part that is done.
    """
    target, source = choose_target(x, y)
    z = np.empty((len(x), 0)) if given is None else given.inputs()
    s = source.inputs()
    labels, numbers = target.take("discrete"), target.take("continuous")
    total = Bridge(0.0, np.zeros(len(x)))
    work = _Work(folds, effort, seed, device or torch.device("cpu"), total, progress)
    work.rounds = 2 * (bool(labels.width) + bool(numbers.width))
    if labels.width:
        codes, classes = labels.codes()
        rest = np.hstack([s, z])
        most = work.log_likelihood("q(labels | rest)", rest, codes, classes, meet=True)
        least = (
            work.log_likelihood("q(labels | given)", z, codes, classes)
            if z.shape[1]
            else _frequencies(codes)
        )
        total.pointwise += most - least
        train, _ = split_rows(folds, 0)
        total.floor = math.sqrt(s.shape[1] * (classes - 1) / 2) / len(x)
        if not enough(rest.shape[1] * (classes - 1), len(train)):
            total.numbers = s.shape[1] * (classes - 1), len(train)
        z = np.hstack([z, labels.inputs()])
    if numbers.width:
        t = numbers.values
        total.gaussian, pointwise = gaussian_information(s, t, z)
        total.pointwise += pointwise
        total.floor = math.hypot(total.floor, math.sqrt(s.shape[1] * t.shape[1] / 2) / len(t))
        total.pointwise += work.gains("q(y | x)", np.hstack([s, z]), t, meet=True)
        if z.shape[1] or t.shape[1] > 1 or not numbers.normal:  # else t alone is normal
            total.pointwise -= work.gains("q(y)", z, t)
    total.nats = float(total.pointwise.mean())
    # The bounds come from some of the rows: what is peculiar to these, the shares know.
    for values in (total.lower, total.upper, total.club):
        for k, rows in enumerate(work.met):
            values[k] += total.nats - float(total.pointwise[rows].mean())
    if given is not None or (labels.width and numbers.width):
        total.lower, total.upper, total.club = [], [], []  # those would be of one term only
    return total


def choose_target(x: Columns, y: Columns) -> tuple[Columns, Columns]:
    """The side to model, and the other: labels rather than numbers, fewer columns than more.

    A density of many columns is harder to learn than one of few, given however many.
    """
    discrete = ["continuous" not in c.kinds for c in (x, y)]
    if discrete[0] != discrete[1]:
        return (x, y) if discrete[0] else (y, x)
    return (x, y) if x.width < y.width else (y, x)


def gaussian_information(
    s: Float[np.ndarray, "n a"], t: Float[np.ndarray, "n d"], z: Float[np.ndarray, "n b"]
) -> tuple[float, Float[np.ndarray, " n"]]:
    """I(s; t | z) if t is a linear regression with normal residuals, and each row's share.

    The logarithm of a Wishart determinant has a known mean, so the bias is taken off exactly.

    Example:
        >>> x = np.random.default_rng(0).normal(size=(1000, 2))
        >>> value, shares = gaussian_information(x[:, :1], x @ [[1.0], [1.0]], x[:, :0])
        >>> abs(value - math.log(2) / 2) < 0.05, np.isclose(shares.mean(), value).item()
        (True, True)
    """
    densities, biases = [], []
    for inputs in (np.hstack([s, z]), z):
        regression = _Regression(inputs, t)
        densities.append(regression.log_density(inputs, t))
        m = len(t) - 1 - regression.rank
        d = t.shape[1]
        if m <= d:
            raise ValueError(
                f"Expected more rows than the {regression.rank + d} columns need but got "
                f"{len(t)}; take fewer columns."
            )
        psi = digamma((m - np.arange(d)) / 2).sum()
        biases.append(psi + d * math.log(2 / len(t)))  # E log|S| - log|Σ| of S = RSS / n
    share = densities[0] - densities[1] + 0.5 * (biases[0] - biases[1])
    return float(share.mean()), share


class _Regression:
    """t = A B + L e: a linear regression, with residuals e that are uncorrelated."""

    def __init__(self, inputs: np.ndarray, t: np.ndarray):
        self.shift = t.mean(0)
        self.centre = inputs.mean(0)
        a = inputs - self.centre
        if a.shape[1]:
            self.slope, _, self.rank, _ = np.linalg.lstsq(a, t - self.shift, rcond=1e-10)
        else:
            self.slope, self.rank = np.zeros((0, t.shape[1])), 0
        rest = t - self.shift - a @ self.slope
        covariance = rest.T @ rest / len(t)
        # A relation without noise has no density; a floor keeps the numbers finite.
        floor = 1e-12 * np.diag(t.var(0) + 1e-300)
        self.root = np.linalg.cholesky(covariance + floor)
        self.log_volume = float(np.log(np.diag(self.root)).sum())

    def whiten(self, t: np.ndarray) -> np.ndarray:
        return np.linalg.solve(self.root, (t - self.shift).T).T

    def prediction(self, inputs: np.ndarray) -> np.ndarray:
        return np.linalg.solve(self.root, ((inputs - self.centre) @ self.slope).T).T

    def residuals(self, inputs: np.ndarray, t: np.ndarray) -> np.ndarray:
        return self.whiten(t) - self.prediction(inputs)

    def log_density(self, inputs: np.ndarray, t: np.ndarray) -> np.ndarray:
        e = self.residuals(inputs, t)
        return -0.5 * (e**2).sum(1) - self.log_volume - 0.5 * e.shape[1] * math.log(2 * math.pi)


class _Net(nn.Module):
    """A perceptron whose outputs do not depend on its inputs at the start; or a constant."""

    def __init__(self, inputs: int, hidden: Sequence[int], start: Tensor):
        super().__init__()
        self.start = nn.Parameter(start)
        self.layers = None
        if not inputs:
            return
        layers: list[nn.Module] = []
        for a, b in zip([inputs, *hidden], hidden, strict=False):
            layers += [nn.Linear(a, b), nn.SiLU()]
        last = nn.Linear(hidden[-1], len(start), bias=False)
        nn.init.zeros_(last.weight)
        self.layers = nn.Sequential(*layers, last)

    def forward(self, x: Tensor) -> Tensor:
        if self.layers is None:
            return self.start.expand(len(x), -1)
        return self.start + self.layers(x)


class Mixture(nn.Module):
    """q(e|a): Gaussians whose weights, means and scales are functions of a."""

    def __init__(self, inputs: int, d: int, effort: Effort):
        super().__init__()
        self.d, self.k = d, effort.components
        start = torch.zeros(self.k, 1 + 2 * d)
        start[:, 1:] = 0.1 * torch.randn(self.k, 2 * d)  # so that they can part
        self.net = _Net(inputs, effort.hidden, start.flatten())

    def parts(self, a: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Logarithms of the weights, means, and logarithms of the scales, (n, k, ...)."""
        raw = self.net(a).unflatten(-1, (self.k, 1 + 2 * self.d))
        scale = LIMIT * torch.tanh(raw[..., 1 + self.d :] / LIMIT)
        return raw[..., 0].log_softmax(-1), raw[..., 1 : 1 + self.d], scale

    def log_prob(self, a: Tensor, e: Tensor) -> Tensor:
        """log q(e|a), row by row."""
        weight, mean, scale = self.parts(a)
        r = (e[:, None] - mean) * (-scale).exp()
        values = weight - 0.5 * r.square().sum(-1) - scale.sum(-1)
        return values.logsumexp(-1) - 0.5 * self.d * math.log(2 * math.pi)

    def narrow(self, a: Tensor) -> float:
        """Part of the rows whose heaviest Gaussian is at the narrowest in some column."""
        weight, _, scale = self.parts(a)
        heaviest = scale[torch.arange(len(a)), weight.argmax(1)]
        return (heaviest.amin(1) < -0.9 * LIMIT).double().mean().item()

    def learning_loss(self, x: Tensor, y: Tensor) -> Tensor:
        """Minus the mean log-likelihood."""
        return -self.log_prob(x, y).mean()


class Classifier(nn.Module):
    """q(y|a) of labels: a correction of logits, which are the last columns of its inputs."""

    def __init__(self, inputs: int, classes: int, effort: Effort):
        super().__init__()
        self.inputs = inputs
        self.net = _Net(inputs, effort.hidden, torch.zeros(classes))

    def table(self, a: Tensor) -> Tensor:
        """log q of every label, row by row."""
        return (a[:, self.inputs :] + self.net(a[:, : self.inputs])).log_softmax(-1)

    def log_prob(self, a: Tensor, y: Tensor) -> Tensor:
        """log q(y|a), row by row."""
        return self.table(a).gather(-1, y[:, None])[:, 0]

    def learning_loss(self, x: Tensor, y: Tensor) -> Tensor:
        """The cross-entropy."""
        return -self.log_prob(x, y).mean()


class _Labels:
    """What a model of labels and its corrections say of each row, fold by fold."""

    def __init__(self, n: int):
        self.plain, self.gain, self.seen, self.times = np.zeros((4, n))
        self.done = np.zeros(n, bool)
        self.tables: list[tuple[np.ndarray, Tensor, Tensor]] = []

    def add(self, own: np.ndarray, rows: np.ndarray, fitted: np.ndarray) -> None:
        """Log-likelihoods of a model: of rows that it has not seen, and of those it has."""
        self.plain[rows], self.done[rows] = own[rows], True
        self.seen[fitted] += own[fitted]
        self.times[fitted] += 1

    @property
    def pays(self) -> bool:
        """Whether the corrections are worth it, over all folds."""
        return bool(self.gain[self.done].mean() > 0)

    def values(self) -> Float[np.ndarray, " n"]:
        """What numbers cost on rows that they were not fitted to, they win on those they were."""
        known = self.done & (self.times > 0)
        half = np.zeros(len(known))
        if known.any():
            half[known] = 0.5 * (self.seen[known] / self.times[known] - self.plain[known])
            half[self.done & ~known] = half[known].mean()
        return self.plain + half + (self.gain if self.pays else 0.0)


@dataclass
class _Work:
    """Cross-fitting of corrections: what every fit shares, and the record of what it found."""

    folds: Sequence[np.ndarray]
    effort: Effort
    seed: int
    device: torch.device
    total: Bridge
    progress: Callable[[float], None] | None = None
    evaluated: int | None = None  # so many of the folds, the first ones; all if left out
    rounds: int = 2
    done: int = 0
    scores: Tensor | None = None  # of the rows that met last
    met: list[np.ndarray] = field(default_factory=list)

    def gains(
        self,
        name: str,
        a: Float[np.ndarray, "n k"],
        t: Float[np.ndarray, "n d"],
        meet: bool = False,
    ) -> Float[np.ndarray, " n"]:
        """log q(t|a) of a correction over the Gaussian's, each row by models of others.

        Where a has the other side, rows of a fold are to ``meet``, for the bounds.
        """
        gain = np.zeros(len(t))
        for fold, rows in enumerate(self.folds[: self.evaluated]):
            train, check = split_rows(self.folds, fold)
            regression = _Regression(a[train], t[train])
            e = self._tensor(regression.residuals(a, t))
            inputs = self._tensor(a)
            models = []
            if len(train) >= FEWEST:
                make = lambda: Mixture(a.shape[1], t.shape[1], self.effort)  # noqa: E731
                base = _standard(e[check]).mean().item()
                models = self._fit(name, fold, make, inputs, e, train, check, base)
            if models:
                density = _average([m.log_prob(inputs[rows], e[rows]) for m in models])
                gain[rows] = (density - _standard(e[rows])).cpu().double().numpy()
            if meet:
                narrow = sum(m.narrow(inputs[check]) for m in models) / max(1, len(models))
                self.total.narrow += narrow / len(self.folds)
                some = rows[:PAIRS]
                where = [self._tensor(regression.whiten(t[some]))]
                where.append(self._tensor(regression.prediction(a[some])))
                self._bounds(_pairs(models, inputs[some], *where), some)
            self._tick()
        return gain

    def log_likelihood(
        self,
        name: str,
        a: Float[np.ndarray, "n k"],
        codes: Int[np.ndarray, " n"],
        classes: int,
        meet: bool = False,
    ) -> Float[np.ndarray, " n"]:
        """log q(label|a), each row by models of other rows, which may ``meet`` as above.

        A regression is believed half on rows that it has seen, half on others.
        """
        y = torch.from_numpy(codes).to(self.device)
        found: list[_Labels] = []
        for fold, rows in enumerate(self.folds[: self.evaluated]):
            train, check = split_rows(self.folds, fold)
            most = max(MOST, 2 * ROWS * a.shape[1] * (classes - 1))
            some = train[:: math.ceil(len(train) / most)]
            bases = regress_labels(a, codes, classes, some, check)
            found = found or [_Labels(len(codes)) for _ in bases]
            names = name, f"{name}, a regression corrected"
            for labels, (base, fair), title in zip(found, bases, names, strict=False):
                own = base[np.arange(len(codes)), codes]
                labels.add(own, rows, some if fair else some[:0])
                inputs = self._tensor(np.hstack([a, base]))
                met = rows[:PAIRS]
                table = inputs[met, a.shape[1] :]
                corrected = table
                if len(train) >= FEWEST_LABELS:
                    make = lambda: Classifier(a.shape[1], classes, self.effort)  # noqa: E731
                    known = float(own[check].mean())
                    if models := self._fit(title, fold, make, inputs, y, train, check, known):
                        density = _average([m.log_prob(inputs[rows], y[rows]) for m in models])
                        labels.gain[rows] = density.cpu().double().numpy() - own[rows]
                        corrected = _average([m.table(inputs[met]) for m in models])
                labels.tables.append((met, table, corrected))
            self._tick()
        best = max(found, key=lambda labels: labels.values().sum())
        if meet:
            for met, *tables in best.tables:
                self._bounds(tables[best.pays].double()[:, y[met]], met)
        return best.values()

    def _fit(self, name, fold, make, a, e, train, check, base) -> list:
        """Models of the rows ``train`` that beat the log-likelihood ``base`` on ``check``."""
        models = []
        for member in range(self.effort.members):
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(self.seed + 1000 * fold + member)
                model = make().to(self.device)
            looks: list[tuple[str, Look]] = []
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
                on_check=lambda *look: looks.append((name, (fold, *look))),  # noqa: B023
            )
            model.eval().requires_grad_(False)
            if not member:
                self.total.history += looks
            if -model.learning_loss(a[check], e[check]).item() <= base:
                break  # nothing to be learnt: the others would not find it either
            models.append(model)
        return models

    def _bounds(self, scores: Tensor, rows: np.ndarray) -> None:
        self.scores = scores
        if len(scores) > 1:
            self.met.append(rows)
            self.total.lower.append(bounds.infonce(scores.T).item())
            self.total.upper.append(bounds.l1out(scores).item())
            self.total.club.append(bounds.club(scores.diagonal(), scores.mean(1)).item())

    def _tensor(self, values: np.ndarray) -> Tensor:
        return torch.as_tensor(values, dtype=torch.float32, device=self.device)

    def _tick(self) -> None:
        self.done += 1
        if self.progress is not None:
            self.progress(min(1.0, self.done / (self.rounds * len(self.folds))))


def split_rows(
    folds: Sequence[np.ndarray], fold: int
) -> tuple[Int[np.ndarray, " a"], Int[np.ndarray, " b"]]:
    """Rows to fit to and rows to stop by, from the other folds.

    Example:
        >>> train, check = split_rows([np.arange(8), np.arange(8, 1000)], 0)
        >>> len(train), len(check)
        (868, 124)
    """
    rest = np.concatenate([folds[(fold + j) % len(folds)] for j in range(1, len(folds))])
    size = min(max(len(rest) // 8, min(50, len(rest) // 3)), 5000)
    return rest[size:], rest[:size]


def log_ratios(
    x: Columns,
    y: Columns,
    halves: Sequence[np.ndarray],
    effort: Effort,
    seed: int,
    device: torch.device,
) -> Float[np.ndarray, "m m"]:
    """The log-ratio of every x with every y of the first half, by models of the second."""
    total = Bridge(0.0, np.zeros(len(x)))
    work = _Work(halves, effort, seed, device, total, evaluated=1)
    target, source = choose_target(x, y)
    s = source.inputs()
    if "continuous" in target.kinds:
        work.gains("q(y | x)", s, target.inputs(), meet=True)
    else:
        work.log_likelihood("q(labels | rest)", s, *target.codes(), meet=True)
    assert work.scores is not None
    scores = work.scores
    ratios = scores - scores.logsumexp(0) + math.log(len(scores))
    return (ratios if target is y else ratios.T).cpu().numpy()


def _standard(e: Tensor) -> Tensor:
    return -0.5 * (e.square() + math.log(2 * math.pi)).sum(-1)


def _average(log_densities: list[Tensor]) -> Tensor:
    return torch.stack(log_densities).logsumexp(0) - math.log(len(log_densities))


@torch.no_grad()
def _pairs(
    models: Sequence[Mixture],
    a: Float[Tensor, "n k"],
    t: Float[Tensor, "n d"],
    s: Float[Tensor, "n d"],
) -> Float[Tensor, "n n"]:
    """log q of every residual t_j - s_i given a_i, by products of matrices."""
    t, s = t.double(), s.double()
    if models:
        parts = [m.parts(a) for m in models]
        weight, mean, scale = (torch.cat(p, 1).double() for p in zip(*parts, strict=True))
        weight = weight - math.log(len(models))
    else:
        weight, mean = t.new_zeros(len(a), 1), t.new_zeros(len(a), 1, t.shape[1])
        scale = mean
    rows = []
    for i in range(0, len(a), 64):
        part = slice(i, i + 64)
        precision, centre = (-2 * scale[part]).exp(), s[part, None] + mean[part]
        square = precision @ t.square().T - 2 * (precision * centre) @ t.T
        square += (precision * centre.square()).sum(-1, keepdim=True)
        values = (weight[part] - scale[part].sum(-1))[..., None] - 0.5 * square
        rows.append(values.logsumexp(1))
    return torch.cat(rows) - 0.5 * t.shape[1] * math.log(2 * math.pi)


def _frequencies(codes: Int[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """log p of each label, with the Miller-Madow correction of the entropy spread over the rows."""
    counts = np.bincount(codes)  # every label occurs
    return np.log(counts / len(codes))[codes] - (len(counts) - 1) / (2 * len(codes))
