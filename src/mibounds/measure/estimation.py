"""`estimate`: from samples to nats, with an interval and reasons to distrust the number."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch.utils.data import Dataset

from mibounds.measure import diagnostics, runs
from mibounds.measure.choice import choose, keep_possible, look_at_certificate
from mibounds.measure.copula_model import CopulaModel, Effort
from mibounds.measure.copula_model.student_copulas import to_student
from mibounds.measure.methods import choose_methods
from mibounds.measure.plots import plot_estimate
from mibounds.measure.results import Advice, Measurement, MethodResult
from mibounds.measure.runs import Outcome, Problem
from mibounds.measure.splits import FEWEST_BLOCKS, fold_rows
from mibounds.measure.wording import as_html, as_text
from mibounds.progress import check_progress
from mibounds.samples.arrays import split_columns
from mibounds.samples.checks import check_count, check_level, check_seed
from mibounds.samples.columns import (
    Columns,
    as_columns,
    check_repeats,
    find_missing,
    split_dataset,
)
from mibounds.samples.precision import find_device, undisturbed

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Estimate", "estimate"]

FEWEST = 20  # rows
EFFORTS = {
    "default": Effort(),
    "fast": Effort(folds=2, members=1, steps=300, hidden=(64, 64), components=8, patience=100),
}
NORMAL = 1000  # degrees of freedom from which on Student's t is as good as normal
GROWING = 2.0  # how far the truth may be off, in what the value gained by half of the rows


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
        method               nats     error  seconds
        ksg *    about     0.6900  ± 0.0100      0.5
        infonce  at least  0.6500  ± 0.0200      2.5
        <BLANKLINE>
        * behind the value above, whose interval is by bootstrap. 10,000 rows, x of 1 column, y of
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


@undisturbed
def estimate(
    samples: Any = None,
    y: Any = None,
    *,
    x: Any = None,
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
    drop_missing: bool = False,
    block: int = 1,
    groups: Any = None,
    seed: int = 0,
    device: str | torch.device | None = None,
    progress: Callable[[float, str], None] | None = None,
) -> Estimate:
    """Estimate the mutual information of x and y from samples.

    The default method is the Gaussian copula with learnt corrections
    (`mibounds.measure.copula_model`), or neighbours in few columns, or counts of labels. Beside it
    stand canonical codes (`mibounds.measure.canonical_codes`), and where they certify more than it
    says, the value is theirs (`mibounds.measure.choice`). Every row is evaluated by models that
    have not seen it.

    Args:
        samples: x, one sample per row: array, tensor, data frame, series; or a Dataset of pairs,
            without y; or a data frame of which x, y and given are names of columns.
        y: the same, with as many rows.
        x: names of columns; or x itself, if ``samples`` is left out.
        given: conditioning columns, for the conditional mutual information I(x; y | given).
        methods: "default", or names in `METHODS`; the value of the first one counts.
        x_kinds: "continuous" or "discrete", for all columns or for each; detected automatically if
            left out, and for columns with None.
        y_kinds: the same for y.
        given_kinds: the same for the conditioning columns.
        normal_scores: map each continuous column through its ranks to a standard normal, which
            does not change the mutual information.
        budget: "default" for seconds, up to half a minute for many rows and columns; "fast" for
            less.
        folds: parts of the data for cross-fitting.
        level: of the interval.
        permutations: number of permutations of y, for a p-value of independence; 0 for none. The
            test is exact. With ``given`` of numbers it is asymptotic: random signs take the place
            of permutations, after regressions on ``given``; with ``given`` of labels only, y is
            permuted within each label, which is exact.
        drop_missing: leave out rows in which a value is missing.
        block: rows that depend on each other, for time series: folds, errors and permutations
            keep runs of this many rows together.
        groups: a label for each row; rows with the same one depend on each other, such as those of
            one patient: they stay in one fold, errors are those of groups, and permutations permute
            groups (which is exact if these have one size). By default, with groups, only methods
            are used that are evaluated on rows that they have not seen.
        seed: of folds, fits and permutations.
        device: where networks, label regressions and canonical codes are computed; the CPU if left
            out. Neighbours, counts, closed forms and kernels are always computed on the CPU.
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
    check_progress(progress)
    if not isinstance(budget, str) or budget not in EFFORTS:
        raise ValueError(
            f'Expected a budget "default" or "fast" but got {budget!r}; leave it out for "default".'
        )
    check_level(level)
    check_seed(seed)
    check_count("permutations", permutations, 0)
    check_count("block", block, 1)
    where = find_device(device)
    sides = _find_sides(samples, x, y, given)
    x, y, z, units, dropped = _read(sides, (x_kinds, y_kinds, given_kinds), drop_missing, groups)
    advice = diagnostics.look_at_columns([s for s in (x, y, z) if s is not None])
    z = z if z is None or z.width else None
    if not (x.width and y.width):
        return _nothing_shared(x, y, level, seed, advice, bool(permutations))
    effort = EFFORTS[budget]
    if folds is not None:
        check_count("folds", folds, 2)
        if folds > len(x) // 2:
            raise ValueError(
                f"Expected 2 to {len(x) // 2} folds but got {folds}; "
                "leave folds out for those of the budget."
            )
        effort = replace(effort, folds=folds)
    if units is not None:
        _check_groups(units, effort.folds, block, z is not None and permutations > 0)
    scored = x.scored(), y.scored(), None if z is None else z.scored()
    advice += diagnostics.look_at_samples(*scored, units)
    if units is None:
        advice += diagnostics.look_at_order(*scored[:2], block)
    if normal_scores:
        x, y, z = scored
    names = choose_methods(methods, x, y, z, units is not None)
    word, done = names[0], 0

    def report(part: float) -> None:
        if progress is not None:
            progress((done + part) / (len(names) + bool(permutations)), word)

    problem = Problem(
        x,
        y,
        z,
        fold_rows(len(x), effort.folds, block, seed, units),
        effort,
        block,
        seed,
        where,
        report,
        units,
    )
    outcomes: list[Outcome] = []
    null: tuple[float, ...] = ()
    p_value = None
    # Where none is named, a method that cannot be used leaves its place to the next.
    chosen = methods in ("default", ["default"])
    entropy = min(x.entropy, y.entropy)  # with its error
    for word in names:
        report(0.0)
        try:
            outcomes.append(keep_possible(runs.measure(word, problem), entropy[0]))
        except (ValueError, np.linalg.LinAlgError) as error:
            if not chosen or (word == names[-1] and not outcomes):
                raise
            advice.append(diagnostics.not_used(word, error))
        done += 1
    if permutations:
        word = "permutations"
        value, null = runs.permute(runs.KERNELS if chosen else names[0], problem, permutations)
        p_value = (1 + sum(v >= value for v in null)) / (1 + permutations)
    report(0.0 if permutations == 0 else 1.0)
    head = outcomes[0]
    if chosen:
        head, said = choose(outcomes)
        advice += said
        shown = {row.method for row in head.rows}
        outcomes = [head, *(o for o in outcomes if o.rows[0].method not in shown)]
    advice += look_at_certificate(head, x, y)
    rows, lower, upper = _bracket([row for outcome in outcomes for row in outcome.rows])
    advice += [a for outcome in outcomes for a in outcome.advice]
    advice += diagnostics.look_at_results(rows)
    advice += diagnostics.look_at_growth(
        head.rows[0].method, head.rows[0].nats, head.growth, head.error
    )
    nats = head.rows[0].nats
    return Estimate(
        nats=nats,
        interval=_interval(head, level, entropy),
        level=level,
        interval_method=head.interval_method + (", widened by its growth" if head.growth else ""),
        lower=lower,
        upper=upper,
        method=head.rows[0].method,
        rows=_with_common_errors(rows),
        history=tuple(p for outcome in outcomes for p in outcome.history),
        fits=tuple(fit for outcome in outcomes for fit in outcome.fits),
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
            "groups": 0 if units is None else int(units.max()) + 1,
            "permutations": permutations,
            "entropy": entropy[0] if math.isfinite(entropy[0]) else None,
            "growth": head.growth,
            "dropped": dropped,
            "given": 0 if z is None else z.width,
            "x_kinds": list(x.kinds),
            "y_kinds": list(y.kinds),
            "given_kinds": [] if z is None else list(z.kinds),
            **asdict(effort),
            "torch": torch.__version__,
        },
    )


def _find_sides(samples: Any, x: Any, y: Any, given: Any) -> list[tuple[str, Any]]:
    """x, y and given with their names, wherever they come from."""
    if samples is None:
        samples, x = x, None
    if x is not None:
        if not hasattr(samples, "columns"):
            raise ValueError(
                "Expected a data frame before x=, which names its columns, but got "
                f"{type(samples).__name__}; pass estimate(x, y)."
            )
        frame, samples = samples, _take(samples, x)
        y, given = (None if v is None else _take(frame, v) for v in (y, given))
    if y is None:
        if not isinstance(samples, Dataset):
            raise ValueError(
                "Expected y, or a Dataset of pairs in place of x and y, but got only x; "
                "pass estimate(x, y)."
            )
        samples, y = split_dataset(samples)
    sides = [("x", samples), ("y", y)]
    return sides if given is None else [*sides, ("given", given)]


def _take(frame: Any, names: Any) -> Any:
    """Columns of a data frame by their names; anything else is samples itself."""
    if isinstance(names, str):
        names = [names]
    if not (isinstance(names, list | tuple) and all(isinstance(v, str) for v in names)):
        return names
    unknown = [v for v in names if v not in frame.columns]
    if unknown:
        raise ValueError(
            f"Expected names among {', '.join(map(str, frame.columns))} but got "
            f"{', '.join(unknown)}; correct them."
        )
    return frame[list(names)]


def _read(
    sides: Sequence[tuple[str, Any]], kinds: Sequence[Any], drop_missing: bool, groups: Any
) -> tuple[Columns, Columns, Columns | None, np.ndarray | None, int]:
    """Both sides, conditioning columns and groups, of as many rows each; and the rows left out."""
    rows, dropped = None, 0
    if drop_missing:
        missing = [find_missing(name, data) for name, data in sides]
        if len({len(each) for each in missing}) == 1:  # otherwise the lengths are refused below
            rows = ~np.any(missing, axis=0)
            dropped = int((~rows).sum())
    read = [as_columns(*side, kind, rows) for side, kind in zip(sides, kinds, strict=False)]
    n = len(read[0])
    for side in read[1:]:
        if len(side) != n:
            raise ValueError(
                f"Expected as many rows of {side.name} as of x but got {len(side)} and {n}; "
                "pass rows that belong together."
            )
    if n < FEWEST:
        without = f" ({dropped} without all values)" if dropped else ""
        raise ValueError(
            f"Expected at least {FEWEST} rows but got {n}{without}; give one sample per row, or "
            "collect more of them."
        )
    for side in read:
        check_repeats(side)
    units = None if groups is None else _read_groups(groups, n, rows)
    return read[0], read[1], read[2] if len(read) > 2 else None, units, dropped


def _read_groups(groups: Any, n: int, rows: np.ndarray | None) -> np.ndarray:
    """Codes 0, 1, ... of the groups."""
    columns, _ = split_columns("groups", groups)
    if len(columns) != 1 or len(columns[0]) != (n if rows is None else len(rows)):
        got = f"{len(columns[0]) if columns else 0} in {len(columns)} columns"
        raise ValueError(
            f"Expected groups as one column with a label for each row but got {got}; pass "
            "a label for each row of x."
        )
    codes = as_columns("groups", groups, "discrete", rows).codes()[0]
    return codes if len(codes) else np.zeros(n, int)


def _check_groups(groups: np.ndarray, folds: int, block: int, conditional_test: bool) -> None:
    least, count = max(FEWEST_BLOCKS, folds), int(groups.max()) + 1
    if count < least:
        raise ValueError(
            f"Expected at least {least} groups but got {count}; pass more groups, or fewer folds."
        )
    if block > 1 or conditional_test:
        raise ValueError(
            "Expected groups without block, and without a test given z, but got both; leave one "
            "of them out."
        )


def _nothing_shared(
    x: Columns, y: Columns, level: float, seed: int, advice: Sequence[Advice], tested: bool
) -> Estimate:
    """The estimate where a side is constant: exactly zero."""
    row = MethodResult("constant", "neither", "a constant shares nothing", 0.0, 0.0, 0.0)
    return Estimate(
        nats=0.0, interval=(0.0, 0.0), level=level, interval_method="definition", lower=None,
        upper=None, method=row.method, rows=(row,), history=(), warnings=tuple(advice),
        p_value=1.0 if tested else None, null=(), n=len(x), x_dim=x.width, y_dim=y.width,
        seed=seed, seconds=0.0,
        config={"x_kinds": list(x.kinds), "y_kinds": list(y.kinds)},
    )  # fmt: skip


def _interval(head: Outcome, level: float, entropy: tuple[float, float]) -> tuple[float, float]:
    """Where the truth is: by the error of sampling, and above by how the value grows with the rows.

    What grows is too low, so that its lower end is that of sampling. Neighbours
    need a number of rows that is exponential in the value (Gao, Ver Steeg and Galstyan 2015).
    """
    if head.error is None:
        return math.nan, math.nan
    quantile = torch.special.ndtri(torch.tensor((1 + level) / 2, dtype=torch.float64)).item()
    nats, growth = head.rows[0].nats, GROWING * head.growth
    student = quantile
    if (
        head.degrees is not None and head.degrees < NORMAL
    ):  # errors of few values are themselves uncertain
        student = to_student(np.array([quantile]), float(head.degrees)).item()
    sampling = student / quantile * math.hypot(head.widened * head.error, head.coarse)
    down = quantile * sampling
    up = quantile * math.hypot(sampling, growth)
    highest = entropy[0] + quantile * entropy[1]  # counted in the same rows as the value
    return max(nats - down, 0.0), min(nats + up, highest)


def _bracket(
    rows: Sequence[MethodResult],
) -> tuple[list[MethodResult], float | None, float | None]:
    """The best lower and the tightest upper bound, and the rows with those not used marked.

    A lower bound above the value is so by less than its error, if at all, and certifies no more
    than the value. An upper bound under the value, or under a lower bound, has lost its condition,
    unless it is the value itself.
    """
    value = rows[0].nats
    above = value if rows[0].side == "neither" else math.inf
    best = max((r.nats for r in rows if r.side == "lower"), default=None)
    lower = None if best is None else min(best, above)
    least = -math.inf if rows[0].side == "upper" else max(value, best or value)
    upper = min((r.nats for r in rows if r.side == "upper" and r.nats >= least), default=None)

    def mark(row: MethodResult) -> MethodResult:
        why = ""
        if row.side == "lower" and row.nats > above:
            why = "above the value, by less than its error"
        if row.side == "upper" and row.nats < least:
            why = "below the value" if row.nats < value else "below a lower bound"
        return replace(row, condition=f"not used: {why} ({row.condition})") if why else row

    return [mark(row) for row in rows], lower, upper


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
