"""`estimate`: from samples to nats, with an interval and reasons to distrust the number."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch.utils.data import Dataset

from mibounds.measure import diagnostics, runs
from mibounds.measure.copula_model import CopulaModel, Effort
from mibounds.measure.methods import choose_methods
from mibounds.measure.plots import plot_estimate
from mibounds.measure.results import Measurement, MethodResult
from mibounds.measure.runs import Outcome, Problem
from mibounds.measure.splits import fold_rows
from mibounds.measure.wording import as_html, as_text
from mibounds.samples.columns import Columns, as_columns, split_dataset

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Estimate", "estimate"]

FEWEST = 20  # rows
EFFORTS = {
    "default": Effort(),
    "fast": Effort(folds=2, members=1, steps=300, hidden=(64, 64), components=8, patience=100),
}


class Estimate(Measurement):
    """Mutual information of two variables by several methods, as `estimate` returns it.

    It prints as a table of plain text and displays itself as one in a notebook. The fields are
    those of `Measurement`.

    Example:
        >>> from mibounds import MethodResult
        >>> rows = (MethodResult("ksg", "neither", "", 0.69, 0.01, 0.5),
        ...         MethodResult("infonce", "lower", "", 0.65, 0.02, 2.5))
        >>> result = Estimate(
        ...     nats=0.69, interval=(0.67, 0.71), level=0.95, interval_method="bootstrap",
        ...     lower=0.65, upper=None, method="ksg", rows=rows, history=(), warnings=(),
        ...     p_value=None, null=(), n=10000, x_dim=1, y_dim=2, seed=0, seconds=3.0, config={})
        >>> print(result)
        I(x; y)  0.690 nats, 95 % interval 0.670 ... 0.710
                 0.995 bits, 95 % interval 0.967 ... 1.024
        bracket  0.650 (best lower bound) ... no upper bound
        verdict  Believe it: there are no warnings.
        <BLANKLINE>
        method   side       nats     error  seconds
        ksg *    neither  0.6900  ± 0.0100      0.5
        infonce  lower    0.6500  ± 0.0200      2.5
        <BLANKLINE>
        * behind the value above, whose interval is by bootstrap. 10000 samples, x of 1 column, y of
        2 columns, seed 0, 3.0 s.
        >>> Estimate.from_json(result.to_json()) == result
        True
    """

    def __str__(self) -> str:
        return as_text(self)

    def _repr_html_(self) -> str:
        return as_html(self)

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw every method's value with its error, and the interval of the point value.

        Args:
            ax: where to draw; a new figure if left out.

        Returns:
            The axes, whose figure is ``.figure``.
        """
        return plot_estimate(self, ax)


@torch.inference_mode(False)  # it fits models, even where the caller only evaluates
def estimate(
    x: Any,
    y: Any = None,
    *,
    given: Any = None,
    methods: str | Sequence[str] = "default",
    x_kinds: Sequence[str | None] | str | None = None,
    y_kinds: Sequence[str | None] | str | None = None,
    given_kinds: Sequence[str | None] | str | None = None,
    normal_scores: bool = True,
    budget: Literal["default", "fast"] = "default",
    folds: int | None = None,
    level: float = 0.95,
    permutations: int = 0,
    block: int = 1,
    seed: int = 0,
    device: str | torch.device | None = None,
    progress: Callable[[float, str], None] | None = None,
) -> Estimate:
    """Estimate the mutual information of x and y from samples.

    The default method is the Gaussian copula with learnt corrections
    (`mibounds.measure.copula_model`), or neighbours in few columns, or counts of labels, together
    with a lower and an upper bound. Every row is evaluated by models that have not seen it.

    Args:
        x: one sample per row: array, tensor, data frame, series; or a Dataset of pairs, without y.
        y: the same, with as many rows.
        given: conditioning columns, for the conditional mutual information I(x; y | given).
        methods: "default", or names in `METHODS`; the value of the first one counts.
        x_kinds: "continuous" or "discrete", for all columns or for each; detected automatically if
            left out, and for columns with None.
        y_kinds: the same for y.
        given_kinds: the same for the conditioning columns.
        normal_scores: map each continuous column through its ranks to a standard normal, which
            does not change the mutual information.
        budget: "default" for a minute or two, "fast" for seconds.
        folds: parts of the data for cross-fitting.
        level: of the interval.
        permutations: number of permutations of y, for a p-value of independence; 0 for none.
        block: rows that depend on each other, for time series: folds, errors and permutations
            keep runs of this many rows together.
        seed: of folds, fits and permutations.
        device: where to fit; the CPU if left out.
        progress: called with the share of the work that is done, and a word about it.

    Returns:
        The estimate, in nats.

    Raises:
        ValueError: for samples or settings that cannot be used, with what to do.

    Example:
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> x = rng.normal(size=(500, 3))
        >>> result = estimate(x, x[:, :2] + rng.normal(size=(500, 2)), budget="fast")
        >>> round(result.nats, 1)
        0.7
        >>> result.interval[0] < math.log(2) < result.interval[1]
        True
    """
    start = time.perf_counter()
    if budget not in EFFORTS:
        raise ValueError(
            f'Expected a budget "default" or "fast" but got {budget!r}; leave it out for "default".'
        )
    if not 0 < level < 1:
        raise ValueError(
            f"Expected a level between 0 and 1 but got {level}; leave it out for 0.95."
        )
    for name, value, least in (("permutations", permutations, 0), ("block", block, 1)):
        if value < least:
            raise ValueError(
                f"Expected {name} >= {least} but got {value}; leave {name} out for its default."
            )
    x, y, z = _read(x, y, given, x_kinds, y_kinds, given_kinds)
    effort = EFFORTS[budget]
    if folds is not None:
        if not 2 <= folds <= len(x) // 2:
            raise ValueError(
                f"Expected 2 to {len(x) // 2} folds but got {folds}; "
                "leave folds out for those of the budget."
            )
        effort = replace(effort, folds=folds)
    if permutations and z is not None:
        raise ValueError(
            "Expected no permutations together with given but got both: permuting y would also "
            "break its relation to the given columns; leave permutations or given out."
        )
    scored = x.scored(), y.scored(), None if z is None else z.scored()
    advice = diagnostics.look_at_samples(*scored)
    if normal_scores:
        x, y, z = scored
    names = choose_methods(methods, x, y, z)
    word, done = names[0], 0

    def report(part: float) -> None:
        if progress is not None:
            progress((done + part) / (len(names) + bool(permutations)), word)

    problem = Problem(
        x,
        y,
        z,
        fold_rows(len(x), effort.folds, block, seed),
        effort,
        block,
        seed,
        torch.device(device or "cpu"),
        report,
    )
    outcomes: list[Outcome] = []
    null: tuple[float, ...] = ()
    p_value = None
    with torch.random.fork_rng(devices=[]):  # keeps the caller's random state
        for word in names:
            report(0.0)
            torch.manual_seed(seed)
            outcomes.append(runs.measure(word, problem))
            done += 1
        if permutations:
            word = "permutations"
            value, null = runs.permute(names[0], problem, permutations)
            p_value = (1 + sum(v >= value for v in null)) / (1 + permutations)
    report(0.0 if permutations == 0 else 1.0)
    first = outcomes[0]
    rows, lower, upper = _bracket([row for outcome in outcomes for row in outcome.rows])
    advice += [a for outcome in outcomes for a in outcome.advice]
    advice += diagnostics.look_at_results(rows)
    quantile = torch.special.ndtri(torch.tensor((1 + level) / 2, dtype=torch.float64)).item()
    nats, error = first.rows[0].nats, first.error
    width = quantile * error if error is not None else math.nan
    return Estimate(
        nats=nats,
        interval=(nats - width, max(nats + width, 0.0)),  # mutual information is never negative
        level=level,
        interval_method=first.interval_method,
        lower=lower,
        upper=upper,
        method=names[0],
        rows=_with_common_errors(rows),
        history=tuple(p for outcome in outcomes for p in outcome.history),
        warnings=tuple(dict.fromkeys(advice)),
        p_value=p_value,
        null=null,
        n=len(x),
        x_dim=x.width,
        y_dim=y.width,
        seed=seed,
        seconds=time.perf_counter() - start,
        config={
            "methods": names,
            "budget": budget,
            "normal_scores": normal_scores,
            "block": block,
            "permutations": permutations,
            "given": 0 if z is None else z.width,
            "x_kinds": list(x.kinds),
            "y_kinds": list(y.kinds),
            "given_kinds": [] if z is None else list(z.kinds),
            **asdict(effort),
            "torch": torch.__version__,
        },
    )


def _read(
    x: Any, y: Any, given: Any, x_kinds: Any, y_kinds: Any, given_kinds: Any
) -> tuple[Columns, Columns, Columns | None]:
    """Both sides and the conditioning columns, with as many rows each."""
    if y is None:
        if not isinstance(x, Dataset):
            raise ValueError(
                "Expected y, or a Dataset of pairs in place of x and y, but got only x; "
                "pass estimate(x, y)."
            )
        x, y = split_dataset(x)
    sides = [as_columns("x", x, x_kinds), as_columns("y", y, y_kinds)]
    if given is not None:
        sides.append(as_columns("given", given, given_kinds))
    n = len(sides[0])
    for side in sides[1:]:
        if len(side) != n:
            raise ValueError(
                f"Expected as many rows of {side.name} as of x but got {len(side)} and {n}; "
                "pass rows that belong together."
            )
    if n < FEWEST:
        raise ValueError(f"Expected at least {FEWEST} rows but got {n}; collect more samples.")
    return sides[0], sides[1], sides[2] if given is not None else None


def _bracket(
    rows: Sequence[MethodResult],
) -> tuple[list[MethodResult], float | None, float | None]:
    """The best lower and the tightest upper bound, and the rows with those not used marked.

    An upper bound under the value has lost its condition, unless it is the value itself.
    """
    lower = max((r.nats for r in rows if r.side == "lower"), default=None)
    least = -math.inf if rows[0].side == "upper" else rows[0].nats
    upper = min((r.nats for r in rows if r.side == "upper" and r.nats >= least), default=None)
    marked = [
        replace(r, condition=f"not used: below the value ({r.condition})")
        if r.side == "upper" and r.nats < least
        else r
        for r in rows
    ]
    return marked, lower, upper


def _with_common_errors(rows: Sequence[MethodResult]) -> tuple[MethodResult, ...]:
    """Add the error of the copula model's value to those of its bounds, which share it.

    Among each other the bounds differ by less: each has as its own error its spread over folds.
    """
    name = CopulaModel.name
    own = next((row.error for row in rows if row.method == name), None) or 0.0
    return tuple(
        replace(row, error=math.hypot(row.error or 0.0, own))
        if row.method.startswith(f"{name}-")
        else row
        for row in rows
    )
