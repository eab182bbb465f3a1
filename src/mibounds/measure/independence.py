"""Statistics of dependence for tests of independence, which fit nothing but regressions on `given`.

The centred kernels of x and y are correlated (the Hilbert-Schmidt independence criterion). Gaussian
kernels as wide as the median distance see lines as well as curves, in any number of columns, and
their power is near that of the best test for a line. A second kernel of whitened columns sees what
lies in small differences between them. Every order of the rows of y is as likely as
another if both are independent, so that a comparison with random orders is exact.

Given z, an order would also break the relation of y and z. Where z is of labels only, the rows of
each label are put into random orders, and the test is exact again. Otherwise what z predicts of the
features of x and of y is taken off by ridge regressions on features of z. If x and y are
independent given z, the products of what is left have mean zero for each z, and random signs of the
rows (one for a block that hangs together) leave their distribution about as it is. What a
regression with ν degrees of freedom of n rows takes off too much, it takes off less often from
random signs, so that these are scaled up by 1 / (1 - ν / n). That test is asymptotic: it holds as
far as the regressions do. Their errors count only as products, that of x times that of y.

References: Gretton et al. 2005 (kernels); Zhang et al. 2011 (given z); Shah and Peters 2020
(products of errors, and why no test can hold for every distribution).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from mibounds.samples.columns import Columns

if TYPE_CHECKING:
    from jaxtyping import Float, Int

Statistic = Callable[[np.ndarray], float]

WAVES = 100  # features of x and of y, cosines and sines together
WAVES_GIVEN = 600  # of z, for each width, or half of the rows
WIDTHS = (0.08, 0.2, 0.5, 1.0)  # of the kernels of z, in median distances
RIDGES = np.geomspace(1e-4, 10, 8)  # added to the covariance of features of mean square 1
ROWS_TO_WHITEN = 10  # for each column that is whitened
FLAT = 1e-8  # variance of a direction, in the largest one, that is rounding
HIGHEST = 0.9  # leverage of a row that is believed


def kernel_statistic(x: Columns, y: Columns, rows: np.ndarray) -> Statistic:
    """The correlation of two kernels, as a function of an order of y's rows.

    Args:
        x: one side.
        y: the other side.
        rows: of both that are compared.

    Example:
        >>> from mibounds.samples.columns import as_columns
        >>> v = np.random.default_rng(0).normal(size=100)
        >>> side = as_columns("x", v).scored()
        >>> of = kernel_statistic(side, side, np.arange(100))
        >>> of(np.arange(100)) > 5 * of(np.random.default_rng(1).permutation(100))
        True
    """
    k, other = (_kernel(side.inputs(rows=rows)) for side in (x, y))
    return lambda order: float(np.vdot(k, other[np.ix_(order, order)]))


def dependence_given(
    x: Columns,
    y: Columns,
    given: Columns,
    rows: Int[np.ndarray, " m"],
    block: int,
    times: int,
    rng: np.random.Generator,
) -> tuple[float, Float[np.ndarray, " times"]]:
    """The statistic of dependence given some columns, and its values if there were none.

    Args:
        x: one side.
        y: the other side.
        given: conditioning columns.
        rows: those that are looked at.
        block: consecutive rows that depend on each other.
        times: how many values without dependence.
        rng: draws these.

    Example:
        >>> from mibounds.samples.columns import as_columns
        >>> z, e, f = np.random.default_rng(0).normal(size=(3, 300))
        >>> x, y, z = (as_columns("v", v).scored() for v in (z**2 + e, z**2 + f, z))
        >>> value, null = dependence_given(x, y, z, np.arange(300), 1, 99, np.random.default_rng(1))
        >>> bool((null >= value).mean() > 0.05)
        True
    """
    if "continuous" not in given.kinds and block == 1:
        return _reorder_within_labels(x, y, given.codes()[0][rows], rows, times, rng)
    block = min(block, len(rows))
    rows = rows[: len(rows) // block * block]
    z = given.inputs(rows=rows)
    z = (z - z.mean(0)) / (z.std(0) + 1e-12)
    scale = _median_distance(z)
    together = _waves(z, WAVES // 2, scale, rng)
    kernel = 1 + together @ together.T / len(together.T)  # also where the sign changes with z
    leverage = np.zeros(len(rows))
    for side in (x, y):
        values = side.inputs(rows=rows)
        features = _waves(values, WAVES, _median_distance(values), rng)
        rest, used = _take_off(features, z, scale, block, rng)
        kernel *= rest @ rest.T
        leverage = np.maximum(leverage, used)
    signs = np.repeat(rng.choice([-1.0, 1.0], (times, len(rows) // block)), block, 1)
    signs /= 1 - leverage
    return float(kernel.sum()), ((signs @ kernel) * signs).sum(1)


def _reorder_within_labels(
    x: Columns,
    y: Columns,
    labels: Int[np.ndarray, " m"],
    rows: Int[np.ndarray, " m"],
    times: int,
    rng: np.random.Generator,
) -> tuple[float, Float[np.ndarray, " times"]]:
    """The same with the rows of y in other orders within each label."""
    same = labels[:, None] == labels
    means = same / same.sum(1)
    kernels = []
    for side in (x, y):
        kernel = _centred_kernel(side.inputs(rows=rows))
        kernel -= means @ kernel
        kernels.append(kernel - kernel @ means.T)
    k, other = kernels[0] * (1 + same), kernels[1]
    places = np.argsort(labels, kind="stable")

    def value(order: np.ndarray) -> float:
        return float(np.vdot(k, other[np.ix_(order, order)]))

    null = []
    for _ in range(times):
        order = np.empty(len(rows), int)
        order[places] = np.lexsort((rng.random(len(rows)), labels))
        null.append(value(order))
    return value(np.arange(len(rows))), np.array(null)


def _take_off(
    features: Float[np.ndarray, "n k"],
    z: Float[np.ndarray, "n d"],
    scale: float,
    block: int,
    rng: np.random.Generator,
) -> tuple[Float[np.ndarray, "n k"], Float[np.ndarray, " n"]]:
    """Features without what z predicts of them, and the leverage of each block in doing so.

    Each feature has the width and the ridge that predict it best, leaving out one block after the
    other. With H the matrix of a ridge regression, that of a block is H_bb, residuals without it
    are those with it divided by 1 - H_bb, and its leverage is its largest eigenvalue.
    """
    n = len(z)
    features = features - features.mean(0)
    best = np.full(features.shape[1], np.inf)
    rest, leverages = features.copy(), np.zeros_like(features)
    for width in WIDTHS:
        g = np.hstack([z, _waves(z, min(WAVES_GIVEN, n // 2), width * scale, rng)])
        g -= g.mean(0)
        g = np.hstack([g / math.sqrt((g**2).mean()), np.ones((n, 1))])
        sizes, axes = np.linalg.eigh(g.T @ g / n)
        g = g @ axes
        slopes, blocks = g.T @ features / n, g.reshape(n // block, block, -1)
        for ridge in RIDGES:
            shrink = 1 / (np.maximum(sizes, 0) + ridge)
            left = features - g @ (shrink[:, None] * slopes)
            hats, turns = np.linalg.eigh((blocks * (shrink / n)) @ blocks.transpose(0, 2, 1))
            hats = np.minimum(hats, HIGHEST)
            outside = turns.transpose(0, 2, 1) @ left.reshape(n // block, block, -1)
            loss = ((outside / (1 - hats)[:, :, None]) ** 2).sum((0, 1)) / n  # turns keep squares
            better = loss < best
            best[better], rest[:, better] = loss[better], left[:, better]
            leverages[:, better] = np.repeat(hats[:, -1], block)[:, None]
    return rest, leverages @ best / (best.sum() or 1.0)


def _waves(
    values: Float[np.ndarray, "n d"], count: int, width: float, rng: np.random.Generator
) -> Float[np.ndarray, "n k"]:
    """Cosines and sines whose products are about a Gaussian kernel of that width."""
    angles = values @ (rng.normal(size=(values.shape[1], count // 2)) / width)
    return np.hstack([np.cos(angles), np.sin(angles)])


def _median_distance(values: Float[np.ndarray, "n d"]) -> float:
    squares = (values[:1000] ** 2).sum(1)
    distances = squares[:, None] + squares - 2 * values[:1000] @ values[:1000].T
    return math.sqrt(max(float(np.median(distances)), 0.0)) or 1.0


def _kernel(values: np.ndarray) -> np.ndarray:
    """The kernel of some columns as they are, and of what differs from row to row in few of them.

    Whitened columns show what lies in small differences of large ones. They need rows for each.
    """
    kernel = _centred_kernel(values)
    n, d = values.shape
    if not 1 < d <= n // ROWS_TO_WHITEN:
        return kernel
    sizes, axes = np.linalg.eigh(np.cov(values.T))
    kept = sizes > FLAT * sizes[-1]
    return kernel + _centred_kernel(values @ (axes[:, kept] / np.sqrt(sizes[kept])))


def _centred_kernel(values: np.ndarray) -> np.ndarray:
    squares = (values**2).sum(1)
    distances = np.maximum(squares[:, None] + squares - 2 * values @ values.T, 0)
    width = float(np.median(distances[np.triu_indices(len(distances), 1)])) or distances.mean()
    kernel = np.exp(-distances / (2 * (width or 1.0)))
    means = kernel.mean(0)
    kernel += means.mean() - means - means[:, None]
    return kernel / (np.linalg.norm(kernel) or 1.0)
