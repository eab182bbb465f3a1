"""Figure 1: the value of every estimator in each step while the mutual information rises."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from experiments.estimation.quality import Simulation, styles
from experiments.estimation.simulation import SimulationConfig
from experiments.runner.base import Cell, Record
from experiments.runner.summaries import CellRow, Summary

if TYPE_CHECKING:
    from jaxtyping import Float
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SPAN = 200  # steps of the exponential moving average, as in the authors' figure
POINTS = 80  # of each curve, per level
MOST = 8  # panels side by side


class EstimationCurves(Simulation):
    """Figure 1: curves, smoothed as the authors do."""

    makes = "Figure 1: the value of every estimator in each step while the MI rises"
    costs = "10 seeds: a minute of an H200, three hours of one core"

    def rows(
        self, cell: Cell, config: SimulationConfig, values: Float[torch.Tensor, "levels steps"]
    ) -> list[CellRow]:
        """The errors, and the smoothed curve at some steps."""
        smooth = moving_average(values.flatten().numpy(), SPAN)
        every = max(1, config.steps // POINTS)
        curve = [float(f"{value:.5g}") for value in smooth[every - 1 :: every]]
        row = {"task": cell.task, "metric": "curve", "value": curve, "every": every}
        return [*super().rows(cell, config, values), row]

    def draw(
        self, config: SimulationConfig, records: Sequence[Record], summary: Sequence[Summary]
    ) -> dict[str, Figure]:
        """One figure per mode: one panel per estimator, one line of panels per family."""
        modes = dict.fromkeys(record.cell.mode for record in records)
        return {
            f"estimation-curves-{mode}": _draw(config, [r for r in records if r.cell.mode == mode])
            for mode in modes
        }


def moving_average(values: Float[np.ndarray, " n"], span: int) -> Float[np.ndarray, " n"]:
    """Exponential moving average; its weights sum to 1 from the first value on.

    Args:
        values: one per step.
        span: s; the newest value has the weight 2 / (s + 1) in the long run.

    Returns:
        One average per value.

    Example:
        >>> moving_average(np.array([1.0, 1.0, 4.0]), span=1).tolist()
        [1.0, 1.0, 4.0]
    """
    keep = 1 - 2 / (span + 1)
    out = np.empty(len(values))
    total = weight = 0.0
    for i, value in enumerate(values):
        total, weight = keep * total + value, keep * weight + 1
        out[i] = total / weight
    return out


def _draw(config: SimulationConfig, records: Sequence[Record]) -> Figure:
    from matplotlib.figure import Figure

    methods = list(dict.fromkeys(record.cell.method for record in records))
    tasks = list(dict.fromkeys(record.cell.task for record in records))
    columns = -(-len(methods) // -(-len(methods) // MOST))
    blocks = [methods[i : i + columns] for i in range(0, len(methods), columns)]
    lines = len(tasks) * len(blocks)
    width, height = 1.9 * columns + 0.9, 2.0 * lines + 0.9
    figure = Figure(figsize=(width, height))  # laid out by hand: faster with many panels
    axes = figure.subplots(lines, columns, squeeze=False, sharex=True, sharey=True)
    figure.subplots_adjust(
        0.75 / width, 0.55 / height, 1 - 0.15 / width, 1 - 0.35 / height, 0.1, 0.22
    )
    for ax in axes.flat:
        ax.set_axis_off()
    for i, (block, task) in enumerate((b, t) for b in blocks for t in tasks):
        axes[i, 0].set_ylabel(f"{task}\nnats")
        for ax, method in zip(axes[i], block, strict=False):
            own = [r for r in records if (r.cell.task, r.cell.method) == (task, method)]
            _draw_panel(ax, config, method, own)
            if task == tasks[0]:
                ax.set_title(method)
            if i == lines - 1:
                ax.set_xlabel("step")
    return figure


def _draw_panel(ax: Axes, config: SimulationConfig, method: str, records: Sequence[Record]) -> None:
    ax.set_axis_on()
    colour = styles([method])[method]["color"]
    for record in records:
        (row,) = (row for row in record.rows if row["metric"] == "curve")
        steps = row["every"] * (1 + np.arange(len(row["value"])))
        values = np.array(row["value"], float)
        ax.plot(steps, values, color=colour, lw=0.8, alpha=0.6, rasterized=True)
    ends = config.steps * np.arange(len(config.levels) + 1)
    ax.stairs(config.levels, ends, color="black", lw=1.0, baseline=None)
    ax.set_ylim(-1.0, 1.6 * max(config.levels))
    ax.grid(alpha=0.25)
