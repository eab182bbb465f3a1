"""The value of a fitted estimator over a whole data set: one pass, constant memory."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Any

import torch

from mibounds.bounds.from_distributions import warn_if_infinite
from mibounds.estimators._accumulators import (
    Accumulator,
    Evaluation,
    choose_accumulator,
    is_averaged,
)
from mibounds.estimators.base import Estimator, check_estimator
from mibounds.samples.checks import check_size
from mibounds.samples.precision import undisturbed
from mibounds.samples.seeds import Seed, make_generator
from mibounds.samples.streams import Stream

__all__ = ["Evaluation", "evaluate"]


@undisturbed
def evaluate(
    estimator: Estimator,
    data: Iterable[Any],
    *,
    batch_size: int = 65536,
    batch_size_pairs: int = 1024,
    k: int = 16,
    seed: Seed = None,
    progress: bool | None = None,
) -> Evaluation:
    """The value of an estimator over a whole data set, in one pass and constant memory.

    What is computed depends on the estimator, and the note of the result says it.

    - CLUB with an exponential family (Gaussians, categorical, Bernoulli, ...): *exactly* the value
      over all pairs of rows. CLUBSample gives the value that its draws scatter around.
    - CLUB with any other conditional (mixture, Student-t, flow): k negatives per row, drawn from
      the current batch and from a sample of constant size of the rows before it.
    - A linear estimator with `terms` (VUB, DoE, BA): *exactly* their mean over all rows.
    - L1Out and the bounds with a critic: the average of their values on batches of
      ``batch_size_pairs`` rows, which depends on that size.

    Rows are taken as independent of each other, and, unless the value is exact, as in random order.

    Args:
        estimator: fitted, or with a known conditional; in evaluation mode meanwhile.
        data: a pair (x, y) of arrays of n rows each (numpy, memory maps, tensors or anything with a
            shape that can be sliced), or an iterable of such pairs, such as a DataLoader. Floating
            point is converted, batch by batch, to dtype and device of the estimator.
        batch_size: rows to read at a time.
        batch_size_pairs: rows of a batch for the bounds that are averaged over batches.
        k: negatives per row, where they have to be drawn.
        seed: of those draws, see `mibounds.samples.seeds`.
        progress: whether to show a progress bar, for which the extra ``plot`` is needed; if left
            out, on a terminal where that is installed.

    Returns:
        Value and standard error in nats.

    Example:
        >>> import numpy as np
        >>> from mibounds import CLUB
        >>> from torch.distributions import Independent, Normal
        >>> estimator = CLUB(conditional=lambda x: Independent(Normal(x, 1.0), 1))
        >>> x = np.random.default_rng(0).normal(size=(1000, 2))
        >>> result = evaluate(estimator, (x, x), batch_size=100)
        >>> whole = estimator(torch.tensor(x), torch.tensor(x))
        >>> result.exact, abs(result.nats - whole.item()) < 1e-12
        (True, True)
    """
    for name, value, least in (
        ("batch_size", batch_size, 1),
        ("batch_size_pairs", batch_size_pairs, 2),
        ("k", k, 1),
    ):
        check_size(name, value, least)
    check_estimator("estimator", estimator)
    averaged = is_averaged(estimator)
    parameter = next((p for p in estimator.parameters() if p.is_floating_point()), None)
    where = next(chain(estimator.parameters(), estimator.buffers()), None)
    rows = Stream(
        data,
        batch_size_pairs if averaged else batch_size,
        None if parameter is None else parameter.dtype,
        None if where is None else where.device,
    )
    training = {module: module.training for module in estimator.modules()}
    total: Accumulator | None = None
    generator = make_generator(seed)
    estimator.eval()
    try:
        with torch.no_grad(), _bar(rows.count, progress) as advance:
            for start, x, y in rows:
                if total is None:
                    total = choose_accumulator(estimator, x, y, k, generator)
                size = total.rows or len(x)
                for i in range(0, len(x), size):
                    try:
                        total.add(x[i : i + size], y[i : i + size], start + i)
                    except ValueError as error:
                        end = min(start + i + size, start + len(x)) - 1
                        error.add_note(f"This was among rows {start + i} ... {end} of the data.")
                        raise
                advance(len(x))
    finally:
        for module, mode in training.items():
            module.training = mode
    if total is None or rows.seen < 2:
        raise ValueError(
            f"Expected at least 2 samples (x_i, y_i) but got {rows.seen}; "
            "an iterator gives its rows only once, so pass a new one."
        )
    result = total.result(rows.seen)
    if estimator.side == "upper" and not averaged:
        warn_if_infinite(type(estimator).__name__, torch.tensor(result.nats))
    return result


@contextmanager
def _bar(total: int | None, progress: bool | None) -> Iterator[Callable[[int], object]]:
    """A progress bar, as a function to call with the number of rows done."""
    shown = sys.stderr is not None and sys.stderr.isatty() if progress is None else progress
    bar = None
    if shown:
        try:
            from rich.console import Console
            from rich.progress import Progress

            bar = Progress(console=Console(stderr=True), transient=True)
        except ImportError as error:
            if progress:
                raise ImportError(
                    "progress=True needs the package rich, which is not installed; "
                    "install it with: pip install 'mibounds[plot]'"
                ) from error
    if bar is None:
        yield lambda rows: None
    else:
        with bar:
            task = bar.add_task("rows", total=total)
            yield lambda rows: bar.advance(task, rows)
