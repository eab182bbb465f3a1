"""Pairs of single columns by neighbours, where the distribution of each column is known.

Among the ranks of a column all is known of its distribution, so that the product of both marginals
has a known mass Q in the square around a row that reaches to its k-th neighbour. The joint
distribution has a mass there whose logarithm is psi(k) - psi(n) in the mean, so that

    I(x; y) = mean of psi(k) - psi(n) - log Q + c,   c = k / (2 (k - 1)) (1 / m_x + 1 / m_y).

Nothing is assumed but a ratio of densities that is constant in the square; its form, and the edges
of the distribution, cost nothing. c is there because ranks are more regular than a sample: with m
rows in the strip of a column, counts in the square vary less by the share k / m of it.

Where a column is rounded so coarsely that many rows are equal, those rows stand together instead,
told apart by next to nothing, and the marginals are counted: psi(k) + psi(n) - psi(m_x) - psi(m_y).
For labels the squares are intervals, and the marginal is counted too (Ross 2014, equation 2).

References: Kraskov, Stögbauer and Grassberger 2004, whose first estimator counts the marginals;
Kozachenko and Leonenko 1987; Ross 2014.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import torch

if TYPE_CHECKING:
    from jaxtyping import Float, Int

__all__ = ["label_neighbours", "neighbours"]

NEAR, K, FAR = 3, 5, 8  # the value is by the second; the others tell how it depends on them
MOST = 200_000  # rows


def neighbours(
    x: Float[np.ndarray, " n"], y: Float[np.ndarray, " n"], counted: bool = False
) -> tuple[float, float, float]:
    """Mutual information of two columns of normal scores.

    Args:
        x: normal scores without ties.
        y: the same.
        counted: whether to count the rows in each strip, as Kraskov's first estimator does, since
            the distribution is not that of normal scores.

    Returns:
        Nats, their standard error, and how much more fewer neighbours see.

    Example:
        >>> from mibounds.measure.tables.variables import score
        >>> rng = np.random.default_rng(0)
        >>> x = rng.normal(size=2000)
        >>> y = x**2 + rng.normal(size=2000)
        >>> nats, error, _ = neighbours(score(x), score(y))  # the truth is 0.430
        >>> abs(nats - 0.430) < 3 * error
        True
    """
    from scipy.spatial import KDTree

    n = len(x)
    points = np.stack([x, y], 1)
    rows = np.random.default_rng(0).permutation(n)[:MOST] if n > MOST else slice(None)
    tree = KDTree(points, leafsize=12, balanced_tree=False)
    distances, _ = tree.query(points[rows], k=FAR + 1, p=math.inf)
    reach = np.ascontiguousarray(distances[:, [NEAR, K, FAR]].T)
    k = torch.tensor([NEAR, K, FAR], dtype=torch.float64)[:, None]
    each = torch.digamma(k).expand(reach.shape).clone()
    for v in points.T:
        if counted:
            inside = _within(np.sort(v), v[rows], reach * (1 - 1e-9))
            each += 0.5 * _digamma(n) - torch.digamma(torch.from_numpy(inside))
        else:
            at, wide = torch.from_numpy(v[rows].copy()), torch.from_numpy(reach)
            mass = torch.special.ndtr(at + wide) - torch.special.ndtr(at - wide)
            each += k / (k - 1) / (2 * n * mass) - torch.log(mass) - 0.5 * _digamma(n)
    near, nats, far = each.mean(1).tolist()
    error = float(each[1].std()) / math.sqrt(each.shape[1])
    return nats, error, near - far


def label_neighbours(x: Int[np.ndarray, " n"], y: Float[np.ndarray, " n"]) -> tuple[float, float]:
    """Mutual information of labels and one column of numbers without ties.

    Args:
        x: codes 0, 1, ...
        y: numbers.

    Returns:
        Nats and their standard error.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> y = rng.uniform(size=2000)
        >>> nats, error = label_neighbours((8 * y).astype(int) % 2, y)  # the truth is log 2
        >>> abs(nats - math.log(2)) < 0.03
        True
    """
    n = len(y)
    order = np.argsort(y)
    ordered = y[order]
    each = np.full(n, _digamma(n))
    by_label = np.argsort(x[order], kind="stable")  # places in the order of y, label by label
    for places in np.split(by_label, np.cumsum(np.bincount(x))[:-1]):
        m = len(places)
        k = min(K, m - 1)
        if k < 1:
            each[places] = 0.0
            continue
        v = ordered[places]
        padded = np.concatenate([np.full(k, -np.inf), v, np.full(k, np.inf)])
        reach = np.full(m, np.inf)
        for j in range(k + 1):
            low, high = padded[k - j : k - j + m], padded[2 * k - j : 2 * k - j + m]
            reach = np.minimum(reach, np.maximum(v - low, high - v))
        reach *= 1 - 1e-9  # without the neighbour itself
        counted = torch.digamma(torch.from_numpy(_within(ordered, v, reach))).numpy()
        each[places] += _digamma(k) - _digamma(m) - counted
    return float(each.mean()), float(each.std()) / math.sqrt(n)


def _within(
    ordered: Float[np.ndarray, " n"], v: Float[np.ndarray, " m"], reach: Float[np.ndarray, "*k m"]
) -> Float[np.ndarray, "*k m"]:
    """How many of the ordered values are nearer to each v."""
    inside = np.searchsorted(ordered, v + reach) - np.searchsorted(ordered, v - reach)
    return np.maximum(inside, 1).astype(np.float64)


def _digamma(k: int) -> float:
    return float(torch.digamma(torch.tensor(float(k), dtype=torch.float64)))
