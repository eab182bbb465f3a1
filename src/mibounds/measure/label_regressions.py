"""Logistic regressions of labels, for the bridge.

To fit p numbers to n rows costs p / 2n nats on rows that were not there, and wins as much on those
that were. With ten rows for a number the mean of both is the log-likelihood of the best regression,
to that order. With fewer rows a prior has to keep the weights small.
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

ROWS = 10  # for each number, at least
PRIOR = 2.0  # deviation of the weights
NARROW = (0.05, 0.1, 0.2, 0.5)  # likewise, where the rows are too few


def enough(numbers: int, rows: int) -> bool:
    """Whether a logistic regression can be fitted, and what that costs is known.

    Example:
        >>> enough(64, 2000), enough(64, 500)
        (True, False)
    """
    return numbers * ROWS <= rows


def regress_labels(
    a: Float[np.ndarray, "n k"],
    codes: Int[np.ndarray, " n"],
    classes: int,
    train: Int[np.ndarray, " m"],
    check: Int[np.ndarray, " l"],
) -> list[tuple[Float[np.ndarray, "n c"], bool]]:
    """log q of every label for every row: of all rows alike, and by a logistic regression.

    With enough rows the weights of the regression have a wide prior, and it is as good on these
    rows as it is worse on others. With fewer, the narrower one of `NARROW` that is best on the rows
    ``check``.

    Args:
        a: what is conditioned on.
        codes: labels.
        classes: number of labels.
        train: rows to fit to.
        check: rows to choose by.

    Returns:
        Each table, and whether it is as good on ``train`` as it is worse on others.

    Example:
        >>> x = np.random.default_rng(0).normal(size=(500, 2))
        >>> y = (x[:, 0] > 0).astype(int)
        >>> _, (table, fair) = regress_labels(x, y, 2, np.arange(400), np.arange(400, 450))
        >>> table.shape, bool((table[x[:, 0] > 0.5, 1] > math.log(0.9)).all()), fair
        ((500, 2), True, True)
    """
    counts = np.bincount(codes[train], minlength=classes) + 0.5
    start = np.log(counts / counts.sum())
    alike = np.tile(start, (len(a), 1)), True
    if not a.shape[1]:
        return [alike]
    y = torch.from_numpy(codes)
    rest = a - a[train].mean(0)
    if enough(a.shape[1] * (classes - 1), len(train)):
        values, axes = np.linalg.eigh(rest[train].T @ rest[train] / len(train))
        kept = values > 1e-10 * max(values[-1], 1e-300)
        white = torch.from_numpy(rest @ (axes[:, kept] / np.sqrt(values[kept])))
        (table,) = _regress(white, y, train, start, [PRIOR], 200, 1e-6)
        return [alike, (table, True)]
    best = alike[0]
    scaled = torch.from_numpy(rest / (math.sqrt(rest[train].var(0).mean()) or 1.0))
    for table in _regress(scaled, y, train, start, NARROW, 50, 1e-4):
        if table[check, codes[check]].mean() <= best[check, codes[check]].mean():
            break
        best = table
    return [alike, (best, False)]


def _regress(
    x: Tensor,
    y: Tensor,
    train: np.ndarray,
    start: np.ndarray,
    priors: Sequence[float],
    steps: int,
    tolerance: float,
) -> Iterator[np.ndarray]:
    """Logistic regressions under priors that get wider, each from where the last one ended."""
    weight = x.new_zeros(x.shape[1], len(start)).requires_grad_()
    bias = torch.from_numpy(start.copy()).requires_grad_()
    own, labels = x[train], y[train]
    for prior in priors:
        optimiser = torch.optim.LBFGS(
            [weight, bias], max_iter=steps, history_size=20, tolerance_grad=tolerance,
            tolerance_change=1e-4 * tolerance, line_search_fn="strong_wolfe",
        )  # fmt: skip

        def loss() -> Tensor:
            optimiser.zero_grad()  # noqa: B023
            value = nn.functional.cross_entropy(own @ weight + bias, labels)
            # Where a plane parts the labels, no finite weights are the best but for the prior.
            value = value + weight.square().sum() / (2 * prior**2 * len(own))  # noqa: B023
            value.backward()
            return value

        optimiser.step(loss)
        yield (x @ weight + bias).detach().log_softmax(-1).numpy()
