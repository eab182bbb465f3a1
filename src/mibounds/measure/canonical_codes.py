"""Codes of few columns that share what two sides of many columns share, and what they certify.

Where x and y have many columns, a density of them is hopeless, but what they share is often simple:
a label, a factor, a smooth map. Kernel canonical correlations find it in closed form. Each side
becomes features (random Fourier features and the leading components; labels are indicators), and a
ridge keeps the directions that few rows cannot support from the lead. The first pairs of directions
are the codes u and v, with correlations ρ. Two forms of a log-ratio r need nothing else:

    log(1 + Σ ρ u v)                the expansion of p(x, y) / p(x) p(y), cut after so many codes
    that of Gaussian codes          where they share more than a nat

Ridge, number of codes and form are chosen on rows that the codes were not fitted to, and the value
is what r certifies on rows that chose nothing either: InfoNCE over all pairs of a fold, a lower
bound for any r, which ends at the logarithm of the rows of a fold.

References: Bach and Jordan 2002 (kernel canonical correlations); Rahimi and Recht 2007 (random
features); Lancaster 1958 (the expansion).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch
from torch import Tensor

from mibounds.estimators.base import Side
from mibounds.measure.splits import split_rows
from mibounds.samples.columns import Columns

if TYPE_CHECKING:
    from jaxtyping import Float, Int

COMPONENTS = 64  # leading components of a side that features are made of
FEATURES = 400  # of each side, or a quarter of the rows, or as many as few columns need
FEATURES_EACH = 64  # of one column, four times as many of two
RIDGES = (0.03, 0.3, 3.0)  # added to the covariance of features, in mean variances
CODES = (1, 2, 4, 8, 16)  # numbers of pairs of codes to choose from
ITERATIONS = 8  # that find the leading directions
WIDE_ITERATIONS = 2  # the same of the components of many columns, which need not be exact
SHRINKS = (0.5, 0.7, 0.85, 1.0)  # factors of the correlations of Gaussian codes
MOST = 20_000  # rows that codes are fitted to
LABELS = 1000  # of a side at most, each of which becomes a column
CHOOSING = 400  # rows that choose ridge, number and form
PAIRS = 2000  # rows of a fold that are all paired
LEAST = 0.05  # smallest ratio of the expansion, which is negative where it is cut too early
HIGHEST = 0.995  # correlation of Gaussian codes


@dataclass
class CodesFit:
    """What canonical codes certify.

    Args:
        nats: the mean over the folds.
        pointwise: contribution of each row that was paired.
        growth: how much the value rose when the codes were fitted to all rows instead of half.
        paired: the fewest rows of a fold that were paired.
        rows: the rows that were paired.
    """

    nats: float
    pointwise: Float[np.ndarray, " m"]
    growth: float
    paired: int
    rows: Int[np.ndarray, " m"]


@dataclass(frozen=True)
class CanonicalCodes:
    """Kernel canonical codes of two sides, and the lower bound that they certify.

    Attributes:
        name: in the registry `METHODS`.
        side: on which side of the truth it lies.
        condition: under which condition.
        cost: how the work grows with the N samples.
        reference: where it is described.
        has_conditional: whether it has a q(y|x).

    Args:
        seed: of the random features.
        device: where to compute.

    Example:
        >>> from mibounds.samples.columns import as_columns
        >>> x = np.random.default_rng(0).normal(size=(1000, 30))
        >>> y = np.abs(x[:, :1]) + 0.3 * np.random.default_rng(1).normal(size=(1000, 1))
        >>> sides = as_columns("x", x[:, :3]).scored(), as_columns("y", y).scored()
        >>> fit = CanonicalCodes().measure(*sides, np.array_split(np.arange(1000), 2))
        >>> bool(0.4 < fit.nats < 1)
        True
    """

    name: ClassVar[str] = "codes"
    side: ClassVar[Side] = "lower"
    condition: ClassVar[str] = "over many repetitions, for any codes"
    cost: ClassVar[str] = "N"
    reference: ClassVar[str] = "mibounds.measure.canonical_codes; Bach and Jordan 2002"
    has_conditional: ClassVar[bool] = False

    seed: int = 0
    device: str | torch.device = "cpu"

    def measure(
        self,
        x: Columns,
        y: Columns,
        folds: Sequence[np.ndarray],
        progress: Callable[[float], None] | None = None,
    ) -> CodesFit:
        """Measure I(x; y) from below, in nats.

        Args:
            x: one side.
            y: the other side.
            folds: rows of each fold.
            progress: called with the share of the work that is done.
        """
        for side in (x, y):
            labels = int((side.take("discrete").values.max(0, initial=0) + 1).sum())
            if labels > LABELS:
                raise ValueError(
                    f"Expected at most {LABELS} labels in {side.name} for {self.name} but got "
                    f"{labels}; group them, or leave {self.name} out."
                )
        shares, halves = [], []
        for k in range(len(folds)):
            train, check = split_rows(folds, k)
            some = folds[k][:PAIRS]
            for share, into in ((1, shares), (2, halves)):
                fitted = self.fit(x, y, train[::share], check[::share], some)
                into.append(row_shares(fitted.log_ratios()).cpu().numpy())
            if progress is not None:
                progress((k + 1) / len(folds))
        value, half = (float(np.mean([v.mean() for v in each])) for each in (shares, halves))
        rows = [fold[:PAIRS] for fold in folds]
        paired = min(map(len, rows))
        growth = max(0.0, value - half)
        return CodesFit(value, np.concatenate(shares), growth, paired, np.concatenate(rows))

    def fit(
        self,
        x: Columns,
        y: Columns,
        train: Int[np.ndarray, " m"],
        check: Int[np.ndarray, " l"],
        rows: Int[np.ndarray, " n"],
    ) -> Codes:
        """Codes of some rows, chosen by others.

        Args:
            x: one side.
            y: the other side.
            train: rows that they are fitted to.
            check: rows that choose among them.
            rows: rows to be coded.
        """
        rng = np.random.default_rng([self.seed, 2])
        train = train[:: math.ceil(len(train) / MOST)]
        kept = np.concatenate([train, check, rows])  # of many rows features would fill the memory
        places = torch.arange(len(kept), device=self.device)
        fitted, choosing, coded = places.split([len(train), len(check), len(rows)])
        a, b = (_features(side.at(kept), fitted, rng, self.device) for side in (x, y))
        best: Codes | None = None
        for left, right in _directions(a[fitted], b[fitted]):
            for codes in _candidates(a, b, left, right, choosing):
                if best is None or codes.quality > best.quality:
                    best = codes
        assert best is not None
        return replace(best, u=best.u[coded], v=best.v[coded])


@dataclass
class Codes:
    """Standardised codes of some rows, and their log-ratio.

    Args:
        u: of x.
        v: of y.
        correlations: of each pair.
        gaussian: the form of the log-ratio.
        quality: what they certify on the rows that choose.
    """

    u: Float[Tensor, "n k"]
    v: Float[Tensor, "n k"]
    correlations: Float[Tensor, " k"]
    gaussian: bool
    quality: float = -math.inf

    def log_ratios(self, rows: Int[Tensor, " m"] | None = None) -> Float[Tensor, "m m"]:
        """The log-ratio of each x with each y of some of the rows; of all if left out."""
        some = slice(None) if rows is None else rows
        u, v, rho = self.u[some], self.v[some], self.correlations
        if not self.gaussian:
            return (1 + (u * rho) @ v.T).clamp(min=LEAST).log()
        rest = 1 - rho**2
        cross = (u * (rho / rest)) @ v.T
        own, other = ((0.5 * rho**2 / rest * w**2).sum(1) for w in (u, v))
        return cross - own[:, None] - other[None] - 0.5 * rest.log().sum()


def row_shares(scores: Float[Tensor, "m m"]) -> Float[Tensor, " m"]:
    """What each row contributes to InfoNCE.

    Example:
        >>> row_shares(torch.zeros(3, 3)).tolist()
        [0.0, 0.0, 0.0]
    """
    return scores.diagonal() - scores.logsumexp(1) + math.log(len(scores))


def _features(
    side: Columns, train: Tensor, rng: np.random.Generator, device: str | torch.device
) -> Tensor:
    """Columns to correlate: labels as indicators, numbers as components and waves of them."""
    parts = []
    labels, numbers = side.take("discrete"), side.take("continuous")
    if labels.width:
        shown = torch.from_numpy(labels.inputs()).to(device)
        parts.append(shown - shown[train].mean(0))
    if numbers.width:
        table = numbers.values if numbers.normal else numbers.inputs()
        values = torch.from_numpy(np.ascontiguousarray(table)).to(device)
        values = values - values[train].mean(0)
        scale = values[train].var(0, correction=0).mean().sqrt()
        values = values / torch.where(scale > 0, scale, 1.0)
        if values.shape[1] > COMPONENTS:
            values = values @ _leading(values[train], COMPONENTS, WIDE_ITERATIONS)[1]
        one, two = torch.from_numpy(rng.integers(len(train), size=(2, 1000))).to(device)
        apart = (values[train[one]] - values[train[two]]).square().sum(1)
        width = apart.quantile(0.5).sqrt()
        enough = FEATURES_EACH * values.shape[1] ** 2
        count = min(FEATURES, enough, len(train) // 4) // 2
        waves = torch.from_numpy(rng.normal(size=(values.shape[1], count))).to(device)
        angles = values @ (waves / torch.where(width > 0, width, 1.0))
        parts += [angles.cos(), angles.sin(), values / math.sqrt(values.shape[1])]
    features = torch.hstack(parts)
    if not features.shape[1]:  # a single label is left in these rows
        return features.new_zeros(len(features), 1)
    return features - features[train].mean(0)


def _directions(
    a: Float[Tensor, "m p"], b: Float[Tensor, "m q"]
) -> Iterator[tuple[Tensor, Tensor]]:
    """The leading canonical directions of two tables of features, for each ridge."""
    cross = a.T @ b / len(a)
    spectra = [torch.linalg.eigh(v.T @ v / len(v)) for v in (a, b)]
    for ridge in RIDGES:
        roots = [
            axes / (sizes.clamp(min=0) + ridge * sizes.mean() + 1e-12).sqrt()
            for sizes, axes in spectra
        ]
        left, right = _leading(roots[0].T @ cross @ roots[1], CODES[-1], ITERATIONS)
        yield roots[0] @ left, roots[1] @ right


def _leading(matrix: Tensor, count: int, iterations: int) -> tuple[Tensor, Tensor]:
    """The leading singular vectors of both sides, by subspace iteration."""
    rng = np.random.default_rng(0)
    start = rng.normal(size=(matrix.shape[1], min(2 * count, *matrix.shape)))
    right = torch.from_numpy(start).to(matrix.device)
    for _ in range(iterations):
        left = torch.linalg.qr(matrix @ right)[0]
        right = torch.linalg.qr(matrix.T @ left)[0]
    turn, _, back = torch.linalg.svd(matrix @ right, full_matrices=False)
    return turn[:, :count], right @ back[:count].T


def _candidates(
    a: Tensor, b: Tensor, left: Tensor, right: Tensor, check: Tensor
) -> Iterator[Codes]:
    """Both forms with several numbers of codes; their quality is that of one half of the rows.

    The correlations are those of the other half, of which chance is taken off.
    """
    rows, rest = check[::2][:CHOOSING], check[1::2] if len(check) > 1 else check
    u, v = (_standardised(features @ to, rest) for features, to in ((a, left), (b, right)))
    rho = (u[rest] * v[rest]).mean(0).clamp(0, HIGHEST)
    rho = torch.where(rho**2 * len(rest) > 2, rho, 0.0)
    for count in CODES:
        if count > u.shape[1]:
            break
        kept = u[:, :count], v[:, :count], rho[:count]
        for gaussian, shrink in ((False, 1.0), *((True, s) for s in SHRINKS)):
            codes = Codes(*kept[:2], shrink * kept[2], gaussian)
            codes.quality = float(row_shares(codes.log_ratios(rows)).mean())
            yield codes


def _standardised(codes: Tensor, rows: Tensor) -> Tensor:
    """Codes with the mean and the variance that some rows have, cut where they are far out."""
    codes = codes - codes[rows].mean(0)
    return (codes / (codes[rows].std(0, correction=0) + 1e-12)).clamp(-8, 8)
