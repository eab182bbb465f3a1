"""The cells of the control of a known mutual information, their rows, and the tables."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from experiments.mi_control.config import (
    CORRELATIONS,
    GOALS,
    MIControlConfig,
    Task,
    methods_for,
)
from experiments.mi_control.figures import draw_outcomes
from experiments.mi_control.programs import simulate
from experiments.runner.base import Cell, Experiment, Record
from experiments.runner.summaries import CellRow, Summary
from experiments.runner.workers import pick_device

if TYPE_CHECKING:
    from matplotlib.figure import Figure

POINTS = 50  # of a curve
THEIRS = "ratio-coupled-fresh"  # the method here that is nearest to the published one
PUBLISHED_SHARES = {  # of successes; of the best of the other methods at d = 100 and 200
    (THEIRS, 20): "100 %", (THEIRS, 100): "100 %", (THEIRS, 200): "100 %",
    **{(f"{base}-fresh", dim): f"at most {best} %"
       for base in ("club", "infonce", "nwj", "dv") for dim, best in ((100, 50), (200, 48))},
}  # fmt: skip
PUBLISHED_LEFT = {  # nats at the end: Gaussian, one shared correlation, d = 20, 100 and 200
    THEIRS: (1.4e-8, 7.8e-8, 1.0e-6),
    "club-fresh": (1.1e-5, 1.2e-4, 0.97),
    "infonce-fresh": (1.9e-5, 6.3e-5, 6.9e-5),
    "nwj-fresh": (2.4e-5, 6.6e-5, 4.8e-4),
    "dv-fresh": (math.nan, 6.6e-5, 1.0e-4),  # MINE
}
DIMS = (20, 100, 200)  # of the published figures

NOTES = """
x and y are made from normal vectors through fixed rotations, and y is mapped one-to-one (cubic,
asinh, power, spiral), so that the true mutual information is -1/2 Σ log(1 - ρ²), after each update.
The correlations ρ are the tanh of what learns: one number that all coordinates share, or one each,
with unequal shares and alternating signs at the start. A minimisation starts at 10 nats and
succeeds if less than 0.001 are left after each of the last 1000 of 5000 updates; "worst left" is
the most that is left after any of these. A maximisation starts at 0.5 nats and succeeds where it
reaches 50, where it ends.

All networks have two hidden layers of 256 SiLU units and take five steps per update, with the
gradient of each cell clipped to norm 10. Methods that end in "-fresh" take them on fresh samples of
the simulator, with a learning rate of 1e-3, as published. The others learn as in a training loop,
where the encoder's batch is all there is: CLUB (rate 3e-4), InfoNCE, NWJ, Jensen-Shannon (js) and
Donsker-Varadhan (dv) on the batch, the classifiers on rows of the last eight batches.

"default" adds a kernel statistic and the log-ratio of a classifier of joint and product pairs,
behind a gate that closes where neither sees a dependence; to maximise it is the classifier alone.
"ratio" is the classifier behind a gate of its own, "ratio-ungated" without one, "kernel" the
statistic alone. "ratio-coupled" also raises the log-ratio at product pairs made with the noise of
the joint pairs: only a simulator can do that, an encoder of data cannot. InfoNCE has a separable
critic and all pairs of a batch; NWJ, js and dv have a concatenated one and eight random shifts.

The published figures are those of Yu et al. 2026; beside ratio-coupled-fresh, which is nearest to
it, those of their method. They give the success of their method, and that of the best other one at
d = 100 (50 %) and 200 (48 %). Their networks and negatives differ in details from those here. On a
GPU the random numbers of a cell depend on which cells were computed with it.
"""


class MIControl(Experiment[MIControlConfig]):
    """How far down, and how far up, each method brings a known mutual information."""

    config = MIControlConfig
    makes = "Minimisation and maximisation of a known mutual information, by the gradient of each"
    costs = "300 cells per method and goal: some minutes on a large GPU; days on a core"
    quick: ClassVar[Mapping[str, Any]] = {
        "dims": (3,),
        "families": ("gaussian", "spiral"),
        "seeds": 2,
        "steps": 20,
        "last": 5,
        "batch_size": 16,
        "hidden": 8,
        "high": 2.0,
        "target": 4.0,
    }
    notes = NOTES

    def cells(self, config: MIControlConfig) -> list[Cell]:
        """Each task with each method."""
        return [
            Cell("correct", Task(goal, family, correlation, dim).name, method, seed)
            for goal in GOALS
            if goal in config.goals
            for method in methods_for(goal)
            for dim in dict.fromkeys(config.dims)
            for family in dict.fromkeys(config.families)
            for correlation in CORRELATIONS
            if correlation in config.correlations
            for seed in range(config.seeds)
        ]

    def groups(self, config: MIControlConfig, cells: Sequence[Cell]) -> list[list[Cell]]:
        """Cells of one goal, method and dimension: their networks are of one shape."""
        found: dict[tuple[str, str, int], list[Cell]] = {}
        for cell in cells:
            task = Task.of(cell.task)
            found.setdefault((task.goal, cell.method, task.dim), []).append(cell)
        size = config.together
        return [own[i : i + size] for own in found.values() for i in range(0, len(own), size)]

    def run(self, config: MIControlConfig, cells: Sequence[Cell]) -> list[list[CellRow]]:
        """Take all steps; the rows are what is left, when the goal was met, and a curve."""
        traces = simulate(cells, config, pick_device(config.device))
        return [
            make_rows(cell, config, nats, traces.seconds)
            for cell, nats in zip(cells, traces.nats, strict=True)
        ]

    def tables(self, config: MIControlConfig, records: Sequence[Record]) -> str:
        """Shares of successes, and what is left of Gaussians."""
        cells = [(record.cell, Task.of(record.cell.task), values_of(record)) for record in records]
        lines: list[str] = []
        for goal in GOALS:
            own = [(cell.method, task, v) for cell, task, v in cells if task.goal == goal]
            if own:
                lines += [f"### {goal}: runs that succeed", "", *list_outcomes(goal, own), ""]
        down = [(cell.method, task, v) for cell, task, v in cells if task.goal == "minimise"]
        simple = [each for each in down if each[1][1:3] == ("gaussian", "shared")]
        if simple:
            lines += ["### minimise: nats at the end, Gaussian, shared correlation", ""]
            lines += list_left(simple)
        return "\n".join(lines).strip()

    def draw(
        self, config: MIControlConfig, records: Sequence[Record], summary: Sequence[Summary]
    ) -> dict[str, Figure]:
        """Outcomes as bars, and median curves."""
        found = [(r.cell.method, Task.of(r.cell.task), values_of(r)) for r in records]
        return {"mi-control": draw_outcomes(found, config.goal, config.target)}


# --- rows and tables -----------------------------------------------------------------------------

Values = Mapping[str, Any]  # of a cell, by metric
Found = tuple[str, Task, Values]  # method, task and values of a cell


def make_rows(cell: Cell, config: MIControlConfig, nats: Tensor, seconds: float) -> list[CellRow]:
    """What is kept of a cell.

    Args:
        cell: which one.
        config: the settings.
        nats: the true mutual information after each update.
        seconds: time of its group.

    Returns:
        One row per metric; the first names the parts of the task. "success" is that of the goal;
        "first_below" and "reached" are numbers of updates, or None.
    """
    task, last = Task.of(cell.task), nats[-config.last :]
    worst, reached = last.max().item(), _first(nats >= config.target)
    below = bool((last < config.goal).all())
    points = torch.linspace(0, len(nats) - 1, min(POINTS, len(nats))).round().long()
    found = {
        "worst": worst,
        "mean": last.mean().item(),
        "first_below": _first(nats < config.goal),
        "final": nats[-1].item(),
        "reached": reached,
        "success": below if task.goal == "minimise" else reached is not None,
        "seconds_together": round(seconds, 1),
        "steps": (points + 1).tolist(),
        "curve": [float(f"{v:.4g}") for v in nats[points].tolist()],
    }
    rows: list[CellRow] = [{"task": cell.task, "metric": k, "value": v} for k, v in found.items()]
    rows[0] |= task._asdict() | {"method": cell.method, "seed": cell.seed}
    return rows


def values_of(record: Record) -> Values:
    """The values of a cell, by metric."""
    return {row["metric"]: row["value"] for row in record.rows}


def list_outcomes(goal: str, cells: Iterable[Found]) -> list[str]:
    """A line per method, dimension and kind of correlation, and one for both kinds.

    Example:
        >>> task = Task("minimise", "cubic", "shared", 20)
        >>> cells = [("club", task, {"success": s, "worst": w, "first_below": f, "final": w})
        ...          for s, w, f in ((True, 1e-5, 900), (False, None, None))]
        >>> for line in list_outcomes("minimise", cells)[2:]:
        ...     print(line)
        | club | 20 | shared | 1 of 2 | not finite | not finite | 900 | |
    """
    groups: dict[tuple[str, int, str], list[Values]] = {}
    for method, task, values in cells:
        groups.setdefault((method, task.dim, task.correlation), []).append(values)
    for method, dim in dict.fromkeys(key[:2] for key in groups):
        kinds = [groups[method, dim, c] for c in CORRELATIONS if (method, dim, c) in groups]
        if len(kinds) > 1:
            groups[method, dim, "both"] = [values for kind in kinds for values in kind]
    names = list(dict.fromkeys(key[0] for key in groups))
    kinds = (*CORRELATIONS, "both")
    down = goal == "minimise"
    titles = ["method", "d", "correlation", "success"]
    titles += ["median worst left"] if down else []
    titles += ["median at the end", "median updates", "published"]
    lines = [f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
    for key in sorted(groups, key=lambda k: (names.index(k[0]), k[1], kinds.index(k[2]))):
        own, (method, dim, kind) = groups[key], key
        when = [v["first_below" if down else "reached"] for v in own]
        updates = [v for v in when if v is not None]
        published = PUBLISHED_SHARES.get((method, dim), "") if down and kind == "both" else ""
        texts = [method, str(dim), kind, f"{sum(v['success'] for v in own)} of {len(own)}"]
        texts += [median(v["worst"] for v in own)] if down else []
        texts += [median((v["final"] for v in own), ".2g" if down else ".3g")]
        texts += [f"{statistics.median(updates):.0f}" if updates else "-", published]
        lines.append("|" + "".join(f" {text} |" if text else " |" for text in texts))
    return lines


def list_left(cells: Iterable[Found]) -> list[str]:
    """A line per method: the median at the end for each dimension, the published value in brackets.

    Example:
        >>> task = Task("minimise", "gaussian", "shared", 200)
        >>> print(list_left([("club-fresh", task, {"final": 0.5})])[2])
        | club-fresh | 0.5 (0.97) |
    """
    groups: dict[tuple[str, int], list[float | None]] = {}
    for method, task, values in cells:
        groups.setdefault((method, task.dim), []).append(values["final"])
    dims = sorted({dim for _, dim in groups})
    lines = [f"| method | {' | '.join(f'd = {dim} (published)' for dim in dims)} |"]
    lines.append("|---" * (1 + len(dims)) + "|")
    for method in dict.fromkeys(method for method, _ in groups):
        texts = [_with_published(method, dim, groups.get((method, dim), [])) for dim in dims]
        lines.append(f"| {method} | {' | '.join(texts)} |")
    return lines


def _with_published(method: str, dim: int, values: Sequence[float | None]) -> str:
    text = median(values) if values else ""
    if dim not in DIMS or method not in PUBLISHED_LEFT:
        return text
    published = PUBLISHED_LEFT[method][DIMS.index(dim)]
    return f"{text} ({'fails' if math.isnan(published) else f'{published:.2g}'})".strip()


def median(values: Iterable[float | None], shape: str = ".2g") -> str:
    """The median, where a value that is not finite is larger than all others.

    Example:
        >>> median([1e-5, 0.25, None]), median([None])
        ('0.25', 'not finite')
    """
    known = [math.inf if v is None or not math.isfinite(v) else v for v in values]
    found = statistics.median(known)
    return f"{found:{shape}}" if math.isfinite(found) else "not finite"


def _first(true: Tensor) -> int | None:
    """The number of the first update that is true, from 1."""
    places = true.nonzero()
    return int(places[0]) + 1 if len(places) else None
