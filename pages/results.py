"""Read `results/`."""

from __future__ import annotations

import json
from dataclasses import asdict
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from experiments.runner import read_records

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results"


@cache
def read(path: str) -> Any:
    """A JSON file of `results/`, or a list of the lines of a JSON Lines file."""
    text = (RESULTS / path).read_text(encoding="utf-8")
    if path.endswith(".jsonl"):
        return [json.loads(line) for line in text.splitlines()]
    return json.loads(text)


@cache
def summary(experiment: str) -> dict[tuple[str, str, str, str], SimpleNamespace]:
    """Mean, sd, seeds and the paper's value, by mode, method, task and metric."""
    return {
        (each["mode"], each["method"], each["task"], each["metric"]): SimpleNamespace(**each)
        for each in read(f"{experiment}/summary.json")
    }


@cache
def cells(folder: str) -> list[SimpleNamespace]:
    """Mode, task, method, seed, config and values by metric of each cell."""
    return [
        SimpleNamespace(
            **asdict(record.cell),
            config=record.config,
            values={row["metric"]: row["value"] for row in record.rows},
        )
        for record in read_records(RESULTS / folder)
    ]


def section(path: str, title: str = "") -> str:
    """The first table of a Markdown file of `results/` after a heading that begins with a title."""
    text = (RESULTS / path).read_text(encoding="utf-8")
    lines = text[text.index(f"### {title}") if title else 0 :].splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith("|"))
    last = next((i for i in range(first, len(lines)) if not lines[i]), len(lines))
    return "\n".join(lines[first:last])


@cache
def seconds(experiment: str) -> float:
    """How long a whole training takes on a GPU."""
    (found,) = (
        row["seconds"]
        for row in read("bench/trainings_cuda.json")["rows"]
        if row["experiment"] == experiment and row["from"] == "the whole training"
    )
    return found
