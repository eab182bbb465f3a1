"""From rows to the numbers in the tables: mean and spread over seeds, and the paper's value."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

CellRow = dict[str, Any]  # at least task, metric and value
Paper = Mapping[tuple[str, str, str], float]  # by task, method and metric

METRICS = ("mse", "bias", "variance", "error", "accuracy", "accuracy_as_trained", "seconds")
ORACLE = "_oracle"  # ends the name of a metric that was chosen by test or target labels


@dataclass(frozen=True)
class Summary:
    """One number over its seeds.

    Args:
        mode: "as-published", "correct" or "recipe".
        task: name of the task, such as "gaussian-2".
        method: name in the registry.
        metric: one of `METRICS`; ends in "_oracle" if the labels of the test chose it.
        mean: over the seeds; None if some seed gave no finite number.
        sd: sample standard deviation over the seeds; None for a single seed.
        seeds: number of them.
        paper: the published number, if there is one.

    Example:
        >>> Summary("correct", "gaussian-2", "club", "mse", 0.5, 0.125, 10, 0.15).text
        '0.50 ± 0.12 (0.15)'
    """

    mode: str
    task: str
    method: str
    metric: str
    mean: float | None
    sd: float | None
    seeds: int
    paper: float | None

    @property
    def text(self) -> str:
        """Mean, spread, and the paper's value in brackets."""
        if self.mean is None:
            measured = "not finite"
        else:
            shape = ".3g" if self.metric == "seconds" else ".2f"
            measured = f"{self.mean:{shape}}"
            if self.sd is not None:
                measured += f" ± {self.sd:{shape}}"
        return measured if self.paper is None else f"{measured} ({self.paper:.2f})"


def is_summarised(metric: str) -> bool:
    """Whether the values of a metric are numbers that stand in the tables.

    Example:
        >>> is_summarised("accuracy_oracle"), is_summarised("curve")
        (True, False)
    """
    return metric.removesuffix(ORACLE) in METRICS


def summarise(
    values: Iterable[tuple[str, str, int, Sequence[CellRow]]], paper: Paper
) -> list[Summary]:
    """Summarise rows over seeds.

    Args:
        values: mode, method, seed and rows of each cell; only the metrics in `METRICS` count,
            not curves, for example.
        paper: published numbers.

    Returns:
        One for each mode, task, method and metric, in the order of appearance.

    Example:
        >>> rows = [{"task": "cubic-2", "metric": "mse", "value": v} for v in (1.0, 3.0)]
        >>> cells = [("correct", "club", seed, [row]) for seed, row in enumerate(rows)]
        >>> (summary,) = summarise(cells, {("cubic-2", "club", "mse"): 2.22})
        >>> summary.mean, summary.seeds, summary.paper
        (2.0, 2, 2.22)
    """
    found: dict[tuple[str, str, str, str], dict[int, float | None]] = {}
    for mode, method, seed, rows in values:
        for row in rows:
            if is_summarised(row["metric"]):
                key = mode, row["task"], method, row["metric"]
                found.setdefault(key, {})[seed] = row["value"]
    return [
        Summary(*key, *_spread(list(by_seed.values())), len(by_seed), paper.get(key[1:]))
        for key, by_seed in found.items()
    ]


def _spread(values: list[float | None]) -> tuple[float | None, float | None]:
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return None, None
    return statistics.fmean(known), statistics.stdev(known) if len(known) > 1 else None


def tabulate(summary: Sequence[Summary]) -> str:
    """Tables in Markdown: one for each mode, metric and family of tasks.

    Args:
        summary: what to show.

    Returns:
        One row per method, one column per task; "mean ± spread over seeds (paper)".

    Example:
        >>> print(tabulate([Summary("correct", "cubic-2", "club", "mse", 0.5, None, 1, 2.22)]))
        ### correct, mse, cubic (seeds: 1)
        <BLANKLINE>
        | method | cubic-2 |
        |---|---|
        | club | 0.50 (2.22) |
    """
    groups: dict[tuple[str, str, str], list[Summary]] = {}
    for each in summary:
        family = re.sub(r"-\d+(\.\d+)?$", "", each.task)
        groups.setdefault((each.mode, each.metric, family), []).append(each)
    # Tasks that are not levels of a family share one table.
    merged: dict[tuple[str, str, str], list[Summary]] = {}
    for (mode, metric, family), members in groups.items():
        without_levels = all(each.task == family for each in members)
        key = mode, metric, "" if without_levels else family
        merged.setdefault(key, []).extend(members)
    modes = list(dict.fromkeys(each.mode for each in summary))

    def place(key: tuple[str, str, str]) -> tuple[int, int]:
        return modes.index(key[0]), METRICS.index(key[1].removesuffix(ORACLE))

    return "\n\n".join(_table(*key, merged[key]) for key in sorted(merged, key=place))


def _table(mode: str, metric: str, family: str, members: Sequence[Summary]) -> str:
    tasks = list(dict.fromkeys(each.task for each in members))
    methods = list(dict.fromkeys(each.method for each in members))
    texts = {(each.method, each.task): each.text for each in members}
    counts = sorted({each.seeds for each in members})
    seeds = " to ".join(str(n) for n in dict.fromkeys((counts[0], counts[-1])))
    title = ", ".join(part for part in (mode, metric, family) if part)
    lines = [f"### {title} (seeds: {seeds})", "", f"| method | {' | '.join(tasks)} |"]
    lines.append("|---" * (1 + len(tasks)) + "|")
    for method in methods:
        cells = " | ".join(texts.get((method, task), "") for task in tasks)
        lines.append(f"| {method} | {cells} |")
    return "\n".join(lines)
