"""Logistic regressions of labels.

Fitting p weights to n rows costs p / 2n nats on other rows, and gains as much on those rows. With
ten rows per weight, the mean of both is the log-likelihood of the best regression, to that order.
With fewer rows a prior must keep the weights small.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from jaxtyping import Float, Int

ROWS = 10  # per weight, at least
PRIOR = 2.0  # standard deviation of the weights
NARROW = (0.05, 0.1, 0.2, 0.5)  # the same where there are too few rows


def enough_rows(weights: int, rows: int) -> bool:
    """Whether there are enough rows for a logistic regression whose cost of learning is known.

    Example:
        >>> enough_rows(64, 2000), enough_rows(64, 500)
        (True, False)
    """
    return weights * ROWS <= rows


def regress_labels(
    a: Float[np.ndarray, "n k"],
    codes: Int[np.ndarray, " n"],
    classes: int,
    train: Int[np.ndarray, " m"],
    check: Int[np.ndarray, " l"],
    device: str | torch.device = "cpu",
) -> list[tuple[Float[np.ndarray, "n c"], bool]]:
    """Tables of log q, for each row and label: by frequencies only, and by a logistic regression.

    With enough rows the weights have a wide prior, and the regression gains on the fitted rows what
    it loses on others. With fewer rows the prior is the one of `NARROW` that is best on ``check``.

    Args:
        a: conditioning columns.
        codes: labels.
        classes: number of labels.
        train: rows to fit to.
        check: rows that choose the prior.
        device: where to fit.

    Returns:
        Each table, and whether it gains on ``train`` what it loses on others.

    Example:
        >>> x = np.random.default_rng(0).normal(size=(500, 2))
        >>> y = (x[:, 0] > 0).astype(int)
        >>> _, (table, fair) = regress_labels(x, y, 2, np.arange(400), np.arange(400, 450))
        >>> table.shape, bool((table[x[:, 0] > 0.5, 1] > math.log(0.9)).all()), fair
        ((500, 2), True, True)
    """
    counts = np.bincount(codes[train], minlength=classes) + 0.5
    start = np.log(counts / counts.sum())
    constant = np.tile(start, (len(a), 1)), True
    if not a.shape[1]:
        return [constant]
    y = torch.from_numpy(codes).to(device)
    rest = a - a[train].mean(0)
    if enough_rows(a.shape[1] * (classes - 1), len(train)):
        values, axes = np.linalg.eigh(rest[train].T @ rest[train] / len(train))
        kept = values > 1e-10 * max(values[-1], 1e-300)
        white = torch.from_numpy(rest @ (axes[:, kept] / np.sqrt(values[kept]))).to(device)
        (table,) = _regress(white, y, train, start, [PRIOR], 200, 1e-6)
        return [constant, (table, True)]
    best = constant[0]
    scaled = torch.from_numpy(rest / (math.sqrt(rest[train].var(0).mean()) or 1.0)).to(device)
    for table in _regress(scaled, y, train, start, NARROW, 50, 1e-4):
        if table[check, codes[check]].mean() <= best[check, codes[check]].mean():
            break
        best = table
    return [constant, (best, False)]


def _regress(
    x: Tensor,
    y: Tensor,
    train: np.ndarray,
    start: np.ndarray,
    priors: Sequence[float],
    steps: int,
    tolerance: float,
) -> Iterator[np.ndarray]:
    """Logistic regressions under wider and wider priors, each started where the last one ended."""
    weight = x.new_zeros(x.shape[1], len(start)).requires_grad_()
    bias = torch.from_numpy(start.copy()).to(x.device).requires_grad_()
    own, labels = x[train], y[train]
    for prior in priors:
        optimiser = torch.optim.LBFGS(
            [weight, bias], max_iter=steps, history_size=20, tolerance_grad=tolerance,
            tolerance_change=1e-4 * tolerance, line_search_fn="strong_wolfe",
        )  # fmt: skip

        def loss() -> Tensor:
            optimiser.zero_grad()  # noqa: B023
            value = nn.functional.cross_entropy(own @ weight + bias, labels)
            # Without the prior, labels that a plane separates would have infinite weights.
            value = value + weight.square().sum() / (2 * prior**2 * len(own))  # noqa: B023
            value.backward()
            return value

        optimiser.step(loss)
        yield (x @ weight + bias).detach().log_softmax(-1).cpu().numpy()


def log_frequencies(codes: Int[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """log p of each row's label, with the Miller-Madow correction spread over the rows.

    Example:
        >>> round(-log_frequencies(np.array([0, 1, 0, 1])).mean().item(), 4)  # log(2) + 1 / 8
        0.8181
    """
    counts = np.bincount(codes)  # every label occurs
    return np.log(counts / len(codes))[codes] - (len(counts) - 1) / (2 * len(codes))
