"""A statistic of dependence for permutation tests, which fits nothing.

The centred kernels of x and y are correlated (the Hilbert-Schmidt independence criterion). Gaussian
kernels as wide as the median distance see lines as well as curves, in any number of columns, and
their power is near that of the best test for a line.

Reference: Gretton et al. 2005.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mibounds.samples.columns import Columns

Statistic = Callable[[np.ndarray], float]


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
    k, other = (_centred_kernel(side.inputs()[rows]) for side in (x, y))
    return lambda order: float(np.vdot(k, other[np.ix_(order, order)]))


def _centred_kernel(values: np.ndarray) -> np.ndarray:
    squares = (values**2).sum(1)
    distances = np.maximum(squares[:, None] + squares - 2 * values @ values.T, 0)
    width = float(np.median(distances[np.triu_indices(len(distances), 1)])) or distances.mean()
    kernel = np.exp(-distances / (2 * (width or 1.0)))
    means = kernel.mean(0)
    kernel += means.mean() - means - means[:, None]
    return kernel / (np.linalg.norm(kernel) or 1.0)
