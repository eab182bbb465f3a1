"""Writes what readers look at: summary.json, table.md and the figures of the finished cells."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.runner.base import Cell, Config, Experiment, Record
from experiments.runner.summaries import Summary, summarise, tabulate
from mibounds.files import replacing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SUMMARY, TABLE = "summary.json", "table.md"


def publish(
    folder: Path,
    name: str,
    experiment: Experiment[Any],
    config: Config,
    done: Mapping[Cell, Record],
    command: str,
) -> str:
    """Write the summary, the tables and the figures of the finished cells.

    Args:
        folder: where to write them.
        name: of the experiment.
        experiment: which draws the figures and adds tables.
        config: the settings.
        done: finished cells with these settings.
        command: the command to name above the tables.

    Returns:
        The tables, in Markdown; "" if nothing is finished.
    """
    cells = experiment.cells(config)
    finished = [done[cell] for cell in cells if cell in done]
    if not finished:
        return ""
    values = [(r.cell.mode, r.cell.method, r.cell.seed, r.rows) for r in finished]
    summary = summarise(values, experiment.paper)
    more = experiment.tables(config, finished)
    text = _describe(name, experiment, finished, len(cells), summary, more, command)
    _write(folder / SUMMARY, _dump(summary))
    _write(folder / TABLE, text)
    for stem, figure in experiment.draw(config, finished, summary).items():
        _save(figure, folder / f"{stem}.svg")
    return text


def _save(figure: Figure, path: Path) -> None:
    """As SVG, with the same bytes for the same figure."""
    from matplotlib import rc_context

    with rc_context({"svg.hashsalt": path.stem}), replacing(path) as temporary:
        figure.savefig(temporary, metadata={"Date": None})


def _dump(summary: Sequence[Summary]) -> str:
    lines = [json.dumps(dataclasses.asdict(each)) for each in summary]
    return "[\n" + ",\n".join(lines) + "\n]\n"


def _describe(
    name: str,
    experiment: Experiment[Any],
    finished: Sequence[Record],
    cells: int,
    summary: Sequence[Summary],
    more: str,
    command: str,
) -> str:
    versions = sorted({json.dumps(record.versions, sort_keys=True) for record in finished})
    seconds = sum(record.seconds for record in finished)
    lines = [f"# {name}", "", f"{experiment.makes}.", "", f"    {command}", ""]
    lines += [f"{len(finished)} of {cells} cells, {seconds:.0f} s of computing, by"]
    for text in versions:
        lines += [", ".join(f"{key} {value}" for key, value in json.loads(text).items())]
    lines += ["", "Mean ± standard deviation over seeds, and the paper's value in brackets.", ""]
    lines += [tabulate(summary)]
    if more:
        lines += ["", more]
    if experiment.notes:
        lines += ["", experiment.notes.strip()]
    return "\n".join(lines) + "\n"


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
