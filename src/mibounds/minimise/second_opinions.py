"""A second opinion on what is left: models made afresh, on rows that they have not seen.

What fits beside an encoder can be fooled by it, and then reports the zero that it has brought
about. So from time to time two fresh models f(x, y) of another kind learn from the last batches: a
classifier's log-ratio, and that of canonical correlations, for labels with the columns that say
which label it is. The first rows of each batch are held out, and on the newest of those

    I(x; y) >= E_joint f - log E_product exp f

is a lower bound, whatever f is (Donsker and Varadhan 1983). f is clipped, which keeps it one, and
its error small. The opinion is the larger of the two bounds, each less two standard errors.

In many columns an encoder that keeps moving can hide from all that learns: what it leaves lies in
another direction in each batch. Kernels (`mibounds.minimise.dependence`) see it, batch by batch.
Their mean is a third voice, in nats as of Gaussians, and no bound.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from mibounds.estimators.ratio import Ratio, exchange
from mibounds.minimise.dependence import is_labels, kernel_nats
from mibounds.minimise.memory import Memory
from mibounds.minimise.outliers import draw_in
from mibounds.samples.precision import full_precision
from mibounds.samples.seeds import drawing

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Shaped

ROWS, BATCHES, NUMBERS = 32768, 512, 2**23  # that are kept at most
JUDGED = 4096  # newest rows, those of which that are held out judge what is left now
SELDOM = 16  # checks between two opinions, in the long run
HELD_OUT = 0.25  # of each batch
FEWEST = 50  # rows held out from which there is an opinion
WIDEST = 2048  # columns of both sides up to which there is one
STEPS, BATCH, RATE, DECAY, HIDDEN = 1600, 256, 3e-3, 0.01, (128, 128)  # of the classifier
ROUNDS, CHOOSING = 16, 0.15  # how often it is checked, by which share of what it may learn from
CLIP = 6.0  # largest |f|
EXCHANGES = 32  # product pairs per row that is held out
ERRORS = 2  # standard errors below the bound
PART, PARTS, FEWEST_PARTS = 128, 256, 8  # rows that kernels compare; such parts, at most, at least
FLOOR = 1e-5  # added to the correlations of columns before they are whitened


@dataclass(frozen=True)
class SecondOpinion:
    """What fresh models certify.

    Args:
        nats: of mutual information at least; 0 where they find nothing.
        rows: number of rows that were held out.
        kernels: nats that the kernels of batches see, less two standard errors; no bound.

    Example:
        >>> SecondOpinion(nats=0.31, rows=1024, kernels=0.2).nats
        0.31
    """

    nats: float
    rows: int
    kernels: float = 0.0


class Rows(NamedTuple):
    """Samples to learn from, or to judge by; rows of one place may be one sample many times."""

    x: Tensor
    y: Tensor
    given: Tensor | None
    place: Tensor


class SecondOpinions:
    """Keeps the last rows, and asks for an opinion on them: often at first, and then seldom.

    Args:
        every: calls between two health checks; 0 for no opinions.

    Attributes:
        last: the last opinion; None before the first, or where there can be none.

    Example:
        >>> opinions = SecondOpinions(every=100)
        >>> opinions.keep(torch.randn(400, 2), torch.randn(400, 1))
        >>> opinions.refresh(calls=100)
        >>> opinions.last
        SecondOpinion(nats=0.0, rows=100, kernels=0.0)
    """

    def __init__(self, every: int):
        self.every, self.asked = every, 0
        self.memory = Memory()
        self.last: SecondOpinion | None = None

    def keep(self, x: Tensor, y: Tensor, given: Tensor | None = None) -> None:
        """Keep the rows of a batch, if an opinion on them is possible.

        Args:
            x: samples.
            y: samples or labels.
            given: a third variable, if there is one.
        """
        wide = math.prod(x.shape[1:]) + math.prod(y.shape[1:])
        if self.every and x.is_floating_point() and len(x) == len(y) and wide <= WIDEST:
            self.memory.rows = min(ROWS, BATCHES * len(x), NUMBERS // wide)
            place = torch.linspace(0, 1, len(x), device=x.device)
            self.memory.add(x, y, given, place)

    def is_due(self, calls: int) -> bool:
        """Whether the check after so many calls is one with an opinion."""
        checks = calls // self.every if self.every else 0
        return checks > 0 and (checks & (checks - 1) == 0 or checks % SELDOM == 0)

    def judge(self, x: Tensor, y: Tensor, given: Tensor | None, calls: int) -> None:
        """Ask for an opinion on samples of one encoder, in place of those that are kept.

        Args:
            x: samples.
            y: samples or labels.
            given: a third variable, if there is one.
            calls: number of calls so far.
        """
        if x.is_floating_point():
            self.last, self.asked = ask(x, y, given), calls

    def refresh(self, calls: int) -> None:
        """Ask, unless the last opinion is as young as a health check.

        Args:
            calls: number of calls so far.
        """
        if self.memory.sides and calls - self.asked >= self.every:
            ages, order = self.memory.ages().sort(descending=True)  # the newest last
            sides = (None if v is None else v[order] for v in self.memory.all())
            x, y, given, place = sides
            assert x is not None
            assert y is not None
            self.last, self.asked = ask(x, y, given, place, ages < JUDGED), calls


def ask(
    x: Shaped[Tensor, "n *x"],
    y: Shaped[Tensor, "n *y"],
    given: Shaped[Tensor, "n *g"] | None = None,
    place: Float[Tensor, " n"] | None = None,
    recent: Bool[Tensor, " n"] | None = None,
    seed: int = 0,
) -> SecondOpinion | None:
    """Ask for a second opinion on samples.

    Args:
        x: real samples.
        y: real samples, or integer labels.
        given: labels of a third variable: the opinion is on what is shared given it.
        place: where each row stood in its batch, from 0 to 1; the first quarter is held out.
        recent: which of those that are held out judge; all if left out.
        seed: of weights, batches and exchanges.

    Returns:
        None for too few rows, for samples of another kind, or given a real variable.

    Example:
        >>> g = torch.Generator().manual_seed(0)
        >>> x = torch.randn(1000, 2, generator=g)
        >>> y = (x[:, :1] + x[:, 1:]).abs() + 0.5 * torch.randn(1000, 1, generator=g)
        >>> bool(ask(x, y).nats > 0.2), ask(x, torch.randn(1000, 1, generator=g)).nats
        (True, 0.0)
    """
    if is_labels(x) or (given is not None and not is_labels(given)):
        return None
    x, y = (_number(v) if is_labels(v) else draw_in(v.reshape(len(v), -1)) for v in (x, y))
    place = torch.linspace(0, 1, len(x), device=x.device) if place is None else place
    good = x.isfinite().all(1)
    if not is_labels(y):
        good &= y.isfinite().all(1)
    learnt, held = good & (place >= HELD_OUT), good & (place < HELD_OUT)
    if recent is not None:
        held &= recent
    wide = x.shape[1] + (1 if is_labels(y) else y.shape[1])
    if held.sum() < FEWEST or learnt.sum() < FEWEST or wide > WIDEST:
        return None
    third = None if given is None else _number(given)
    kernels = _by_kernels(x[good], y[good], None if third is None else third[good])
    with full_precision(x):
        generator = torch.Generator(x.device).manual_seed(seed)
        x, y = (_prepare(v.detach(), learnt) for v in (x, y))
        places = torch.unique(place, return_inverse=True)[1]
        classifier = _by_classifier(*_split(x, y, third, places, learnt, held), generator, seed)
        columns = [F.one_hot(v).float() if is_labels(v) else v for v in (x, y)]
        if third is not None:
            columns = [v - _group_means(v, third, learnt) for v in columns]
        if third is not None or is_labels(y):
            columns = [_prepare(v, learnt) for v in columns]
        sides = _split(columns[0], columns[1], third, places, learnt, held)
        correlations = _by_correlations(*sides, generator)
    return SecondOpinion(max(0.0, classifier, correlations), int(held.sum()), kernels)


def _by_kernels(x: Tensor, y: Tensor, given: Tensor | None) -> float:
    """What the kernels of parts of the newest rows see, on average, less two standard errors.

    Nothing is learnt, so that it sees what is left in many columns of an encoder that keeps moving:
    in another direction in each batch. Of rows that repeat, such as the one x of a sequence, one
    counts: the others are no new samples.
    """
    new = torch.ones(len(x), dtype=torch.bool, device=x.device)
    for side in (x, y):
        if not is_labels(side):
            new[1:] &= (side[1:] != side[:-1]).any(1)
    sides = [None if v is None else v[new].split(PART)[-PARTS:] for v in (x, y, given)]
    parts = zip(*(side or [None] * PARTS for side in sides), strict=False)
    with torch.no_grad(), full_precision(x):
        whole = [part for part in parts if len(part[0]) == PART]
        if len(whole) < FEWEST_PARTS:
            return 0.0
        found = torch.stack([kernel_nats(*part) for part in whole]).double()
    return max(0.0, (found.mean() - ERRORS * found.std() / math.sqrt(len(found))).item())


def _split(
    x: Tensor, y: Tensor, given: Tensor | None, places: Tensor, learnt: Tensor, held: Tensor
) -> tuple[Rows, Rows]:
    """The rows to learn from, and those to judge by."""
    train, test = (
        Rows(x[rows], y[rows], None if given is None else given[rows], places[rows])
        for rows in (learnt, held)
    )
    return train, test


def _group_means(columns: Tensor, group: Tensor, learnt: Tensor) -> Tensor:
    """The mean of the learnt rows of each row's group."""
    shown = F.one_hot(group).to(columns.dtype)
    counts = shown[learnt].sum(0).clamp_min(1)
    return (shown @ (shown[learnt].T @ columns[learnt] / counts[:, None])).to(columns.dtype)


def _number(labels: Tensor) -> Tensor:
    """One label from 0 on for each row, which may have several."""
    return torch.unique(labels.reshape(len(labels), -1), dim=0, return_inverse=True)[1]


def _prepare(values: Tensor, learnt: Tensor) -> Tensor:
    """Labels; or whitened columns, without those that do not vary."""
    if is_labels(values):
        return values
    rows = values[learnt].double()
    mean, scale = rows.mean(0), rows.std(0)
    varies = scale > FLOOR * mean.abs()
    if not varies.any():
        return torch.zeros(len(values), 1, dtype=torch.float32, device=values.device)
    columns = ((values.double() - mean) / scale)[:, varies]
    correlations = columns[learnt].T @ columns[learnt] / len(rows)
    sizes, turn = torch.linalg.eigh(correlations)
    kept = sizes > FLOOR * sizes[-1]
    white = columns @ turn[:, kept] / sizes[kept].sqrt()
    return white.clamp(-10, 10).float()  # one outlier must not decide


@torch.no_grad()
def _bound(joint: Tensor, products: Tensor, places: Tensor) -> float:
    """The bound of Donsker and Varadhan for clipped f, less its error."""
    joint, weights = joint.clamp(-CLIP, CLIP).double(), products.clamp(-CLIP, CLIP).double().exp()
    mean = weights.mean()
    # The exchanges of a row share it: its mean counts as one number.
    variance = _variance(joint, places) + _variance(weights.mean(0) / mean, places)
    return (joint.mean() - mean.log() - ERRORS * variance.sqrt()).item()


def _variance(values: Tensor, places: Tensor) -> Tensor:
    """The variance of a mean, of independent rows or of rows that repeat in their places."""
    centred = values - values.mean()
    sums = centred.new_zeros(int(places.max()) + 1).index_add(0, places, centred)
    count = len(places.unique())
    by_place = sums.square().sum() * count / max(1, count - 1)
    by_row = centred.square().sum() * len(values) / (len(values) - 1)
    return torch.maximum(by_place, by_row) / len(values) ** 2


def _by_classifier(train: Rows, test: Rows, generator: torch.Generator, seed: int) -> float:
    """By the log-ratio of a classifier."""
    x, y, given, _ = train
    labels = int(max(y.max(), test.y.max())) + 1 if is_labels(y) else None
    if labels == 1:
        return 0.0
    groups = 0
    if given is not None and test.given is not None:
        groups = int(max(given.max(), test.given.max())) + 1
    with drawing(seed):
        model = Ratio(
            x.shape[1], None if labels else y.shape[1], HIDDEN, labels=labels, given_labels=groups,
            spread=None,
        ).to(x.device)  # fmt: skip
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=DECAY, fused=True)
    rates = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    model.observe(x, y, given)
    first = round((1 - CHOOSING) * len(x))  # the rows after these are of other calls

    def loss(rows: Tensor) -> Tensor:
        near = None if given is None else given[rows]
        return model.losses(x[rows], y[rows], None, near, generator).mean()

    least, best = math.inf, model.state_dict()
    choosing = torch.arange(first, len(x), device=x.device)
    for step in range(1, STEPS + 1):
        rows = torch.randint(first, (BATCH,), generator=generator, device=x.device)
        with torch.enable_grad():
            optimizer.zero_grad()
            loss(rows).backward()
        optimizer.step()
        rates.step()
        if step % (STEPS // ROUNDS) == 0:  # what many steps learn of few rows is those rows
            with torch.no_grad():
                now = loss(choosing).item()
            if now < least:
                least, best = now, copy.deepcopy(model.state_dict())
    model.load_state_dict(best)
    with torch.no_grad():
        x, y, given, places = test
        products = [exchange(y, given, generator) for _ in range(EXCHANGES)]
        return _bound(
            model.log_ratios(x, y, given),
            torch.stack([model.log_ratios(x, other, given) for other in products]),
            places,
        )


def _by_correlations(train: Rows, test: Rows, generator: torch.Generator) -> float:
    """By the log-ratio of Gaussians with the canonical correlations that stand out of the noise."""
    x, y, *_ = train
    left, sizes, right = torch.linalg.svd((x.T @ y).double() / len(x), full_matrices=False)
    noise = (math.sqrt(x.shape[1]) + math.sqrt(y.shape[1])) / math.sqrt(len(x))
    rho = sizes[sizes > noise].clamp(max=0.999)
    if not len(rho):
        return 0.0
    rho = rho - noise**2 / rho  # as large as on rows that did not choose the directions
    u = test.x.double() @ left[:, : len(rho)]
    v = test.y.double() @ right.T[:, : len(rho)]

    def log_ratio(v: Tensor) -> Tensor:
        rest = 1 - rho**2
        square = (rho**2 * (u**2 + v**2) - 2 * rho * u * v) / rest
        return -0.5 * (rest.log() + square).sum(1)

    others = [exchange(v, test.given, generator) for _ in range(EXCHANGES)]
    return _bound(log_ratio(v), torch.stack([log_ratio(other) for other in others]), test.place)
