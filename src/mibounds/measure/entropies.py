"""Entropies: of labels from their counts, of numbers from neighbours or a copula.

Labels. Frequencies as probabilities come out too low, above all where labels are missing that the
rows have not met. Chao, Wang and Jost's estimate adds what the labels seen once and twice tell of
these:

    sum_i n_i / n (ψ(n) - ψ(n_i)) + f_1 / n (1 - A)^(1 - n) (-log A - sum_{r < n} (1 - A)^r / r),

A = 2 f_2 / ((n - 1) f_1 + 2 f_2), f_k the number of labels seen k times. It was chosen by its error
beside those of Miller, Grassberger, and Chao and Shen: `results/measure/series_entropies.md`.

Numbers. In few columns, from the distance ε_i of each row to its k-th neighbour in the max-norm,

    h = ψ(n) - ψ(k) + d log 2 + d / n sum_i log ε_i;

in more, as the sum of the columns' entropies less their total correlation by a copula model.

References: Chao, Wang and Jost 2013, equation 5; Miller 1955; Grassberger 2003; Chao and Shen 2003;
Kozachenko and Leonenko 1987 as in Kraskov, Stögbauer and Grassberger 2004, equation 20.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from mibounds.measure.classical.interfaces import digamma, import_scipy
from mibounds.measure.conditional_shares import t_quantile
from mibounds.measure.decompositions import total_correlation
from mibounds.measure.quantities import Quantity
from mibounds.measure.splits import standard_error
from mibounds.samples.checks import check_count, check_level, check_seed
from mibounds.samples.columns import LARGEST, Columns, as_columns, find_missing
from mibounds.samples.precision import undisturbed

if TYPE_CHECKING:
    from jaxtyping import Float, Int

__all__ = ["entropy"]

NEIGHBOUR = 4
FEW = 3  # columns in which neighbours are near
FEWEST = 20  # rows
COMMON = 1.2  # times ψ'(k), the variance that neighbours in common add
GROWING = 2.0  # how far the truth may be off, in what the value changed by half of the rows
UNSEEN = 0.5  # share of what is added for labels that were not met, as its error
LABELS = ("chao_wang_jost", "miller", "grassberger", "chao_shen", "plug_in")


@undisturbed
def entropy(
    x: Any,
    *,
    kinds: Any = None,
    method: str = "default",
    level: float = 0.95,
    block: int = 1,
    seed: int = 0,
) -> Quantity:
    """The entropy of labels, or the differential entropy of numbers.

    Several columns of labels are read as one label. A differential entropy depends on the unit of
    the numbers and may be negative; of rounded numbers, it is that of numbers spread within their
    rounding.

    Args:
        x: array, tensor, series or data frame, one sample per row.
        kinds: "continuous" or "discrete", for all columns or for each; detected automatically if
            left out.
        method: of labels; the default has the smallest error, see the module.
        level: of the interval.
        block: rows that depend on each other, for time series.
        seed: of the copula model, of many columns.

    Returns:
        The value in nats.

    Raises:
        ValueError: for samples that cannot be used, with what to do.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> labels, numbers = rng.integers(8, size=1000), rng.random(2000)
        >>> round(entropy(labels).bits, 2), round(abs(entropy(numbers).nats), 1)
        (3.0, 0.0)
    """
    if method not in ("default", *LABELS):
        raise ValueError(
            f"Expected a method among {', '.join(LABELS)} but got {method!r}; leave it out."
        )
    check_level(level)
    check_count("block", block, 1)
    check_seed(seed)
    missing = find_missing("x", x)
    if missing.any():
        raise ValueError(
            f"Expected x without missing values but got {missing.sum()}, the first in row "
            f"{missing.argmax()}; leave out these rows, or fill them."
        )
    side = as_columns("x", x, kinds)
    n = len(side)
    if n < FEWEST:
        raise ValueError(f"Expected at least {FEWEST} rows but got {n}; collect more of them.")
    if len(set(side.kinds)) == 2:
        raise ValueError(
            "Expected labels or numbers but got both; ask for the entropy of each, and subtract "
            "what estimate() says that they share."
        )
    if "continuous" in side.kinds:
        if side.constant:
            raise ValueError(
                f"Expected numbers that vary but got {len(side.constant)} columns with one value; "
                "leave them out: a constant has no density."
            )
        if side.ranked or not (np.abs(side.values).max(0) > 1 / LARGEST).all():
            raise ValueError(
                "Expected numbers whose differences floating point can resolve but got very large "
                "or very small ones; scale or shift them: by a factor c the entropy grows by log c."
            )
        nats, error, by = _of_numbers(side, block, seed)
        least = -math.inf
    else:
        nats, error = _of_labels(side.codes()[0] if side.width else np.zeros(n, int), method, block)
        by, least = ("chao_wang_jost" if method == "default" else method), 0.0
    reach = t_quantile((1 + level) / 2, max(n / block - 1, 1.0)) * error
    ends = max(float(nats - reach), least), max(float(nats + reach), least)
    name = "h(x)" if "continuous" in side.kinds else "H(x)"
    return Quantity(name, max(nats, least), ends, float(error), level, by, n)


# --- labels --------------------------------------------------------------------------------------


def _of_labels(codes: Int[np.ndarray, " n"], method: str, block: int) -> tuple[float, float]:
    """The entropy, and its error: of sampling, and of what was not met."""
    counts = np.bincount(codes)
    n = len(codes)
    name = "chao_wang_jost" if method == "default" else method
    nats = count_entropy(counts, name)
    without = np.zeros(len(counts))
    for count in np.unique(counts):  # one row less of a label that was met so often
        met = np.flatnonzero(counts == count)
        fewer = counts.copy()
        fewer[met[0]] -= 1
        without[met] = count_entropy(fewer, name)
    shares = (n * nats - (n - 1) * without)[codes]  # pseudo-values of the jackknife
    added = nats - count_entropy(counts, "plug_in")
    unseen = _unseen(counts) if name == "chao_wang_jost" else added
    floor = math.sqrt(max(len(counts) - 1, 0) / 2) / n
    return nats, math.hypot(standard_error(shares, block)[0], UNSEEN * unseen, floor)


def count_entropy(counts: Int[np.ndarray, " k"], method: str) -> float:
    """The entropy of labels that were met so often, by a named estimate.

    Example:
        >>> [round(count_entropy(np.array([3, 2, 1, 1]), each), 2) for each in LABELS]
        [1.68, 1.49, 1.79, 1.68, 1.28]
    """
    counts = counts[counts > 0]
    n = counts.sum()
    p = counts / n
    plain = float(-(p * np.log(p)).sum())
    if method == "plug_in":
        return plain
    if method == "miller":
        return plain + float((len(counts) - 1) / (2 * n))
    if method == "grassberger":
        signs = np.where(counts % 2, -1.0, 1.0)
        g = digamma(counts) + 0.5 * signs * (digamma((counts + 1) / 2) - digamma(counts / 2))
        return float(np.log(n) - (p * g).sum())
    if method == "chao_shen":
        seen = 1 - min((counts == 1).sum(), n - 1) / n
        return float(-(seen * p * np.log(seen * p) / (1 - (1 - seen * p) ** n)).sum())
    several = counts[counts < n]
    first = float((several / n * (digamma(n) - digamma(several))).sum())
    return first + _unseen(counts)


def _unseen(counts: Int[np.ndarray, " k"]) -> float:
    """What labels add that were not met, from those met once and twice.

    The series sum_{r >= n} (1 - A)^(r - n + 1) / r is what is left of that of the logarithm.
    """
    n, once, twice = int(counts.sum()), (counts == 1).sum(), (counts == 2).sum()
    if not once or n < 2:
        return 0.0
    a = 2 * twice / ((n - 1) * once + 2 * twice) if twice else 2 / ((n - 1) * (once - 1) + 2)
    if a >= 1:
        return 0.0
    if n * a > 1:
        r = np.arange(math.ceil(40 / a))
        tail = float(((1 - a) ** (r + 1) / (n + r)).sum())
    else:
        r = np.arange(1, n)
        tail = (1 - a) ** (1 - n) * (-math.log(a) - float(((1 - a) ** r / r).sum()))
    return float(once / n * tail)


# --- numbers -------------------------------------------------------------------------------------


def _of_numbers(side: Columns, block: int, seed: int) -> tuple[float, float, str]:
    """The differential entropy, its error, and how it was computed."""
    if side.width <= FEW:
        shares = _neighbour_shares(side.smooth)
        nats, error = float(shares.mean()), _neighbour_error(shares, block)
        if side.width > 1 and len(side) >= 2 * FEWEST:  # what neighbours miss falls with the rows
            order = np.random.default_rng(seed).permutation(len(side))
            halves = [_neighbour_shares(side.smooth[h]).mean() for h in np.array_split(order, 2)]
            error = math.hypot(error, GROWING * (nats - float(np.mean(halves))))
        return nats, error, "neighbours"
    shares = sum(
        (_neighbour_shares(column[:, None]) for column in side.smooth.T), np.zeros(len(side))
    )
    shared = total_correlation(
        *side.smooth.T,
        block=block,
        seed=seed,
        method="copula_model",
        budget="fast",
        kinds="continuous",
    )
    error = math.hypot(_neighbour_error(shares, block), shared.error)
    return float(shares.mean()) - shared.nats, error, "neighbours and copula_model"


def _neighbour_error(shares: Float[np.ndarray, " n"], block: int) -> float:
    """Standard error of their mean: rows have neighbours in common, which adds to it."""
    (trigamma,) = torch.special.polygamma(1, torch.tensor([NEIGHBOUR], dtype=torch.float64))
    return math.hypot(standard_error(shares, block)[0], math.sqrt(COMMON * trigamma / len(shares)))


def _neighbour_shares(values: Float[np.ndarray, "n d"]) -> Float[np.ndarray, " n"]:
    """What each row contributes to the entropy, by the distance to its k-th neighbour."""
    n, d = values.shape
    scale = values.std(0)
    z = values / scale
    tree = import_scipy("spatial", "entropy").cKDTree(z)
    distance = tree.query(z, NEIGHBOUR + 1, p=np.inf)[0][:, -1]
    distance = np.maximum(distance, np.finfo(float).tiny)
    constant = float(digamma(n) - digamma(NEIGHBOUR)) + float(np.log(scale).sum())
    return constant + d * np.log(2 * distance)
