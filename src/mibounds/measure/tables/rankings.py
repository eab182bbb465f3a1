"""`rank`: what each column of a table tells of a target."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch

from mibounds.measure.tables.blocks import measure_blocks
from mibounds.measure.tables.checks import check_rows, check_settings, look_at
from mibounds.measure.tables.conditions import condition
from mibounds.measure.tables.gains import measure_gains
from mibounds.measure.tables.pages import ranking_html, ranking_text, write_ranking
from mibounds.measure.tables.plots import plot_ranking
from mibounds.measure.tables.results import RankedColumn, RankingData
from mibounds.measure.tables.significance import Correction, correct
from mibounds.measure.tables.values import METHODS, measure_pairs
from mibounds.measure.tables.variables import Rows, Variable, read_variables
from mibounds.progress import showing
from mibounds.samples.precision import undisturbed

if TYPE_CHECKING:
    from jaxtyping import Float
    from matplotlib.axes import Axes

__all__ = ["Ranking", "rank"]

CHANCE = 0.05  # p-value, corrected by Holm, above which a column is not chosen


@dataclass(frozen=True)
class Ranking(RankingData):
    """Columns by what they tell of a target, as `rank` returns it.

    It prints as a table of plain text and displays itself as one in a notebook. The fields are
    those of `RankingData`.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> x = rng.normal(size=(1000, 3))
        >>> y = (x[:, 0] + x[:, 1] ** 2 + 0.5 * rng.normal(size=1000) > 1).astype(int)
        >>> found = rank(x, y, names=["a", "b", "c"])
        >>> print(found)
        Mutual information with y, of entropy 0.676 nats
        <BLANKLINE>
        column   nats  95 % interval    share  p-value  method
        b       0.160  0.125 ... 0.201   24 %  1.1e-60  series
        a       0.149  0.115 ... 0.183   22 %    1e-56  series
        c       0.002  0.000 ... 0.011    0 %     0.43  series
        <BLANKLINE>
        p-values are corrected by holm. 1000 rows.
        >>> found.names[:2]
        ('b', 'a')
    """

    def __str__(self) -> str:
        return ranking_text(self)

    def _repr_html_(self) -> str:
        return ranking_html(self)

    def plot(self, ax: Axes | None = None, most: int = 30) -> Axes:
        """Draw a bar for each column, with its interval; what it adds in a darker shade.

        Args:
            ax: where to draw; a new figure if left out.
            most: columns at most.
        """
        return plot_ranking(self, ax, most)

    def write_report(self, path: str | os.PathLike[str], title: str = "") -> None:
        """Write the ranking as one self-contained HTML file.

        Args:
            path: of the file, in a folder that exists.
            title: of the page.
        """
        write_ranking(path, self, title or f"What tells of {self.target}")


@undisturbed
def rank(
    frame: Any,
    target: Any,
    *,
    given: Literal["selected"] | None = None,
    most: int = 10,
    kinds: Sequence[str | None] | str | None = None,
    target_kind: str | None = None,
    names: Sequence[str] | None = None,
    budget: Literal["default", "fast"] = "default",
    level: float = 0.95,
    correction: Correction = "holm",
    n_jobs: int = 1,
    backend: str = "loky",
    scheduler: str = "",
    device: str | torch.device | None = None,
    out: str | os.PathLike[str] | None = None,
    seed: int = 0,
    progress: bool | Callable[[float, str], None] = False,
) -> Ranking:
    """Rank columns by their mutual information with a target.

    Each column stands for itself, with an interval and a p-value. With ``given="selected"`` columns
    are also chosen one after the other: next comes the one that adds most to those chosen before,
    I(column; target | chosen). A copy of a chosen column adds nothing. For a target of numbers
    that is measured by ranks given the chosen columns (`mibounds.measure.tables.conditions`), for
    labels by Rao's score in a logistic model of them (`mibounds.measure.tables.gains`).

    Args:
        frame: data frame, array or tensor; one sample per row. Values may be missing: each column
            has the rows that are complete in it and in the target.
        target: name of a column of the frame; or labels or numbers, one for each row.
        given: "selected" to choose columns one after the other.
        most: columns to choose at most; it ends earlier where nothing significant is left.
        kinds: "continuous" or "discrete" for the columns; recognised if left out.
        target_kind: the same for the target.
        names: of the columns, where they have none.
        budget: "default", or "fast" to look at neighbours only where the series asks for it.
        level: of the intervals.
        correction: of the p-values for the number of columns; see `matrix`.
        n_jobs: processes, for which the extra ``parallel`` is needed; -1 for one per core.
        backend: "loky" for processes of this machine, "threading", "dask" or "ray".
        scheduler: address of a dask or ray cluster, if none is connected.
        device: of the smooth series, such as "cuda"; neighbours stay on the CPU.
        out: folder for finished blocks; a later call with the same table goes on from there.
        seed: of the noise that tells equal numbers apart.
        progress: True for a progress bar, for which the extra ``plot`` is needed; or a function of
            the share that is done and a word.

    Returns:
        The ranking, in nats.

    Raises:
        ValueError: for a table or settings that cannot be used, with what to do.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> x = rng.normal(size=(1000, 2))
        >>> table = np.hstack([x, x[:, :1] + 0.1 * rng.normal(size=(1000, 1))])  # 0 and 2 agree
        >>> found = rank(table, x @ [2.0, 1.0] + rng.normal(size=1000), given="selected")
        >>> found.names
        ('0', '1', '2')
        >>> [c.chosen for c in found.columns], found.columns[2].gain < 0.05
        ([1, 2, None], True)
    """
    start = time.perf_counter()
    check_settings(budget, level, correction, seed)
    if given not in (None, "selected"):
        raise ValueError(
            f'Expected given to be None or "selected" but got {given!r}; for conditioning columns '
            "of your own, use estimate(x, y, given=z)."
        )
    columns, y = _read(frame, target, kinds, target_kind, seed, names)
    check_rows({"the frame": columns, "target": [y]})
    if y.names_rows:
        raise ValueError(
            f"Expected labels that repeat in the target {y.name} but got nearly as many as rows; "
            'name another column, group the labels, or pass target_kind="continuous".'
        )
    with showing(progress) as report:
        found = measure_blocks(
            [y], columns, fast=budget == "fast", device=device, n_jobs=n_jobs, backend=backend,
            scheduler=scheduler, out=out, progress=report,
        )[:, 0]  # fmt: skip
        rows = _rows(found, columns, y, level, correction)
        rows.sort(key=_strength)
        if given:
            rows = _choose(rows, columns, y, most, budget == "fast", device, report)
    return Ranking(
        target=y.name,
        target_kind=y.kind,
        entropy=None if math.isinf(y.entropy) else y.entropy,
        columns=tuple(rows),
        given=given,
        level=level,
        correction=correction,
        warnings=look_at(found),
        seconds=time.perf_counter() - start,
        config={"budget": budget, "seed": seed, "most": most, "rows": len(y.values),
                "torch": torch.__version__},
    )  # fmt: skip


def _read(
    frame: Any, target: Any, kinds: Any, target_kind: str | None, seed: int, names: Any
) -> tuple[list[Variable], Variable]:
    if isinstance(target, str):
        if not hasattr(frame, "columns"):
            raise ValueError(
                "Expected a data frame where target is the name of a column but got "
                f"{type(frame).__name__}; pass the target itself, one value for each row."
            )
        all_names = [str(name) for name in frame.columns]
        if target not in all_names:
            raise ValueError(
                f"Expected target to be one of {', '.join(all_names)} but got {target!r}; "
                "correct it."
            )
        if kinds is not None and not isinstance(kinds, str) and len(kinds) == len(all_names) - 1:
            kinds = list(kinds)
            kinds.insert(all_names.index(target), target_kind)
        read = read_variables("frame", frame, kinds, seed, names)
        place = all_names.index(target)
        if target_kind is not None:
            read[place] = read_variables("target", frame[target], target_kind, seed, [target])[0]
        return read[:place] + read[place + 1 :], read[place]
    columns = read_variables("frame", frame, kinds, seed, names)
    name = str(getattr(target, "name", None) or "y")
    own = read_variables("target", target, target_kind, seed)
    if len(own) != 1:
        raise ValueError(
            f"Expected target to be one column but got {len(own)}; for several, use matrix or "
            "estimate."
        )
    return columns, replace(own[0], name=name)


def _rows(
    found: Float[np.ndarray, "6 m"],
    columns: Sequence[Variable],
    y: Variable,
    level: float,
    correction: str,
) -> list[RankedColumn]:
    quantile = float(torch.special.ndtri(torch.tensor((1 + level) / 2, dtype=torch.float64)))
    nats, below, above, p, n, method = found
    corrected = correct(p, correction)
    most = np.array([max(min(v.entropy, y.entropy), 0.0) for v in columns])
    low = np.maximum(nats - quantile * below, 0)
    high = np.minimum(nats + quantile * above, np.maximum(most, nats))
    finite = 0 < y.entropy < math.inf
    return [
        RankedColumn(
            v.name, v.kind, float(nats[j]), float(low[j]), float(high[j]), float(corrected[j]),
            float(nats[j] / y.entropy) if finite else None, None, None, int(n[j]),
            METHODS[int(method[j])],
        )
        for j, v in enumerate(columns)
    ]  # fmt: skip


def _strength(row: RankedColumn) -> tuple[bool, float]:
    """The strongest first, those without a value last."""
    return math.isnan(row.nats), -row.nats


def _choose(
    rows: Sequence[RankedColumn],
    columns: Sequence[Variable],
    y: Variable,
    most: int,
    fast: bool,
    device: str | torch.device | None,
    report: Callable[[float, str], None] | None,
) -> list[RankedColumn]:
    """One column after the other, each by what it adds to those before; then the others."""
    left = {v.name: v for v in columns}
    found = {row.name: replace(row, gain=row.nats) for row in rows}
    able = {row.name for row in rows if row.p_value <= CHANCE}
    chosen: list[str] = []
    known: list[Variable] = []
    z = y
    while able and len(chosen) < most:
        best = max(able, key=lambda name: found[name].gain or 0.0)
        chosen.append(best)
        found[best] = replace(found[best], chosen=len(chosen))
        given = left.pop(best)
        if not left:
            break
        if y.kind == "discrete":
            known.append(given)
            gains, p_values = measure_gains(y, known, list(left.values()))
        else:
            z = condition(z, given)
            left = {name: condition(v, given) for name, v in left.items()}
            with torch.inference_mode():
                gains, _, _, p_values = measure_pairs(
                    z, list(left.values()), Rows(), fast, torch.device(device or "cpu")
                )[:4]
        able = {n for n, p in zip(left, correct(p_values, "holm"), strict=True) if p <= CHANCE}
        for name, value in zip(left, gains, strict=True):
            found[name] = replace(found[name], gain=float(value))
        if report is not None:
            report(len(chosen) / min(most, len(columns)), "choosing")
    others = sorted(
        (found[name] for name in left if name not in chosen),
        key=lambda row: (-(row.gain or 0.0) if row.name in able else 0.0, _strength(row)),
    )
    return [*(found[name] for name in chosen), *others]
