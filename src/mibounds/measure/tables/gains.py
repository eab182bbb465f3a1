"""What columns add to labels that others tell already: Rao's score in a logistic model.

Let p_i be the probabilities of the labels in row i by a logistic model of the chosen columns,
additive in smooth functions of their ranks. A further column with the functions f(x) would change
the model; how much likelier it would make the labels is told, without a fit, by the score

    U = sum_i f(x_i) (y_i - p_i),   T = U' V^-1 U,

with V the variance of U beyond what the chosen columns explain. T is chi-squared with as many
degrees of freedom as there are coefficients if the column adds nothing, and

    I(x; y | chosen) = (T - freedom) / 2n

to second order. It counts what a column adds for itself, not what it only tells together with one
of the others.

References: Rao 1948 for the score; Hastie and Tibshirani 1986 for additive models.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from mibounds.measure.tables.pairs import cosines
from mibounds.measure.tables.variables import Variable, score

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int

__all__ = ["measure_gains"]

DEGREE = 4  # of the cosines of a number, beside its normal score
CLASSES = 100  # most labels of the target, whose model grows with their square
LABELS = 20  # most labels of a column that has an indicator for each
RIDGE = 1e-2  # rows' worth of shrinkage, so that labels that are told apart have a fit
STEPS = 15  # of Newton's method


def measure_gains(
    y: Variable, chosen: Sequence[Variable], others: Sequence[Variable]
) -> tuple[Float[np.ndarray, " J"], Float[np.ndarray, " J"]]:
    """What each column adds to the chosen ones.

    Args:
        y: labels. Rows in which it or a chosen column has no value are left out.
        chosen: columns that are known.
        others: columns to ask for; where one has no value it says nothing.

    Returns:
        Nats, not below zero, and p-values.

    Example:
        >>> from mibounds.measure.tables.variables import read_variables
        >>> rng = np.random.default_rng(0)
        >>> x = rng.normal(size=(2000, 3))
        >>> y = (x[:, 0] + x[:, 1] + 0.5 * rng.normal(size=2000) > 0).astype(int)
        >>> a, b, c = read_variables("x", x)
        >>> gains, p = measure_gains(read_variables("y", y)[0], [a], [b, c])
        >>> gains.round(1), p < 0.01
        (array([0.2, 0. ]), array([ True, False]))
    """
    rows = np.logical_and.reduce([v.present for v in (y, *chosen)])
    codes = np.unique(y.values[rows], return_inverse=True)[1]
    n, classes = len(codes), int(codes.max()) + 1
    if classes > CLASSES:
        raise ValueError(
            f'Expected at most {CLASSES} labels of {y.name} for given="selected" but got '
            f"{classes}; group rare ones, or leave given out."
        )
    known = np.concatenate([np.ones((n, 1)), *(_functions(v, rows) for v in chosen)], 1)
    p = _fit(known, codes, classes)
    most = -float(np.log(np.maximum(p[np.arange(n), codes], 1e-300)).mean())
    wrong = np.eye(classes)[codes] - p
    free = range(classes - 1)
    within = _information(known, known, p, free) + RIDGE * np.eye(known.shape[1] * len(free))
    found = []
    for v in others:
        f = _functions(v, rows)
        across = _information(f, known, p, free)
        variance = _information(f, f, p, free) - across @ np.linalg.solve(within, across.T)
        u = (f.T @ wrong[:, :-1]).T.ravel()
        value, rank = _norm(u, variance)
        chance = torch.special.gammaincc(
            torch.tensor(max(rank, 1) / 2, dtype=torch.float64),
            torch.tensor(value / 2, dtype=torch.float64),
        )
        found.append((min(max(value - rank, 0.0) / (2 * n), most), float(chance)))
    gains, p_values = np.array(found).reshape(-1, 2).T
    return gains, p_values


def _functions(v: Variable, rows: Bool[np.ndarray, " n"]) -> Float[np.ndarray, "m k"]:
    """Functions of a column with mean zero, which are zero where it has no value."""
    there = v.present[rows]
    own = v.values[rows][there]
    if len(own) < 2 or not (own != own[0]).any():
        return np.zeros((len(there), 1))
    if v.kind == "discrete":
        _, codes, counts = np.unique(own, return_inverse=True, return_counts=True)
        common = np.argsort(-counts, kind="stable")[1:LABELS]
        f = (codes[:, None] == common).astype(np.float64)
    else:
        z = torch.from_numpy(score(own, v.noise[rows][there]))
        f = torch.cat([z[None], cosines(torch.special.ndtr(z), DEGREE)[2:]]).T.numpy()
    found = np.zeros((len(there), f.shape[1]))
    found[there] = f - f.mean(0)
    return found


def _fit(
    x: Float[np.ndarray, "n k"], codes: Int[np.ndarray, " n"], classes: int
) -> Float[np.ndarray, "n c"]:
    """Probabilities of the labels by logistic regression, Newton's method with halved steps."""
    n, k = x.shape
    free = range(classes - 1)
    weight = np.zeros((classes - 1, k))

    def predict(w: np.ndarray) -> np.ndarray:
        logits = np.concatenate([x @ w.T, np.zeros((n, 1))], 1)
        logits -= logits.max(1, keepdims=True)
        p = np.exp(logits)
        return p / p.sum(1, keepdims=True)

    def loss(w: np.ndarray, p: np.ndarray) -> float:
        own = np.maximum(p[np.arange(n), codes], 1e-300)
        return float(-np.log(own).sum() + RIDGE / 2 * (w**2).sum())

    p = predict(weight)
    now = loss(weight, p)
    for _ in range(STEPS):
        slope = ((np.eye(classes)[codes] - p)[:, :-1].T @ x - RIDGE * weight).ravel()
        curve = _information(x, x, p, free) + RIDGE * np.eye(k * len(free))
        step = np.linalg.solve(curve, slope).reshape(weight.shape)
        for _ in range(8):
            tried = weight + step
            q = predict(tried)
            then = loss(tried, q)
            if then <= now:
                break
            step = step / 2
        else:
            break
        weight, p, gained, now = tried, q, now - then, then
        if gained < 1e-6 * n:
            break
    return p


def _information(
    a: Float[np.ndarray, "n k"], b: Float[np.ndarray, "n m"], p: np.ndarray, free: Sequence[int]
) -> np.ndarray:
    """Fisher's information between the coefficients of two sets of functions, label by label."""
    blocks = [[a.T @ (b * (p[:, c] * ((c == d) - p[:, d]))[:, None]) for d in free] for c in free]
    return np.block(blocks)


def _norm(u: Float[np.ndarray, " k"], variance: Float[np.ndarray, "k k"]) -> tuple[float, int]:
    """u' V^-1 u and the rank of V, without the directions that the chosen columns have."""
    values, vectors = np.linalg.eigh((variance + variance.T) / 2)
    keep = values > max(1e-6 * float(values.max(initial=0)), 1e-9)
    along = vectors[:, keep].T @ u
    return float((along**2 / values[keep]).sum()), int(keep.sum())
