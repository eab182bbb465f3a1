"""The cells of the removal of a nuisance, the choice of the weight, tables and the figure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from experiments.nuisance_removal.config import (
    GIVEN,
    TASKS,
    WEIGHTS,
    NuisanceConfig,
    name_method,
    split_method,
)
from experiments.nuisance_removal.evaluation import evaluate
from experiments.nuisance_removal.samples import make_samples
from experiments.nuisance_removal.training import train
from experiments.runner.base import Cell, Experiment, Record
from experiments.runner.summaries import CellRow, Summary
from experiments.runner.workers import pick_device

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LEAK = 0.05  # nats that a probe reads, from which on something is left
COLUMNS = {  # of the tables, and how many decimals
    "accuracy": ("accuracy", 1),
    "worst_group": ("worst group", 1),
    "accuracy_as_trained": ("as trained", 1),
    "validation": ("validation", 1),
    "linear_points": ("linear, points", 1),
    "mlp_points": ("MLP, points", 1),
    "linear_nats": ("linear, nats", 2),
    "mlp_nats": ("MLP, nats", 2),
    "linear_nats_given": ("linear given y", 2),
    "mlp_nats_given": ("MLP given y", 2),
    "estimate": ("estimate", 2),
    "bound": ("bound", 2),
}
Values = Mapping[str, Any]  # of a cell, by metric
Key = tuple[str, str]  # a task, and a method with or without its weight

NOTES = """
A label and a nuisance agree in training. "accuracy" is that of the label, in percent, on test
samples where they are independent; "worst group" is the same in the worst group, where a group is a
class with the nuisance that it has in training, or the same class with another one. "as trained" is
the accuracy on test samples where label and nuisance agree as in training. In the table of
applicants accuracy is judged by decisions that go by merit only, "as trained" by decisions of the
past.

What is left of the nuisance is read from z of the test samples whose nuisance is independent of the
label, by fresh probes, linear and with two hidden layers: fitted to one half, tested on the other.
"points" are those of their accuracy above chance. "nats" are log k less their cross-entropy, a
lower bound of I(z; s) up to the noise of the test half; "given y" the same for probes that see the
label too, a lower bound of I(z; s | y). "estimate" is `mibounds.estimate` with its fast budget on
at most 2000 of these samples.

Each method has three weights, and all are shown. The weight that is "chosen" has the highest
"validation", the mean over the seeds of the accuracy on held-out training samples, each weighted by
P(y) P(s) / P(y, s) of these samples: as if label and nuisance were independent. The choice uses the
labels and the nuisance of training samples only, and no test sample. Few held-out samples have a
nuisance that disagrees with the label, so that the choice is noisy. In the table of applicants
their labels are decisions of the past.

"bound" is the mean value of a penalty over its last calls, in nats. "no warning" counts the seeds
in which the last report of the penalty has no warning though the MLP reads more than 0.05 nats from
z. "silent" counts those of them in which the bound, too, says less than the MLP reads. The penalty
sees training samples, where label and nuisance agree, and the probe sees others. A penalty that is
given the label of a training sample is not counted: what z tells beyond that label is not what it
tells beyond the label of a test sample.

All methods have the same encoder, whose z ends with batch normalisation without parameters and has
no noise (`--normalisation none` leaves the normalisation out), the same batches, and a weight that
rises along the ramp of DANN. The adversary learns with the encoder, one step each; its weight is
that of the reversed gradient. The weights span what trials with one seed showed to matter; these
looked at test samples. A penalty on I(z; s) also removes what label and nuisance share in training,
which is most of the label: it costs accuracy by its nature, however well it works.
"""


class NuisanceRemoval(Experiment[NuisanceConfig]):
    """What is left of a nuisance, and what its removal costs."""

    config = NuisanceConfig
    makes = "Removing a nuisance from a representation: what is left of it, and what that costs"
    costs = "198 cells: less than a minute each on a GPU, some minutes on a core; needs MNIST"
    quick: ClassVar[Mapping[str, Any]] = {
        "tasks": ("coloured-mnist", "biased-table"),
        "seeds": 1,
        "adversary_weights": (1.0,),
        "hsic_weights": (1.0,),
        "penalty_weights": (0.1,),
        "steps": 10,
        "batch_size": 32,
        "z_dim": 8,
        "table_z_dim": 4,
        "width": 4,
        "hidden": 16,
        "images": 600,
        "rows": 600,
        "probe_steps": 50,
        "audited": 100,
    }
    notes = NOTES

    def cells(self, config: NuisanceConfig) -> list[Cell]:
        """Every task with no removal, and with every method and weight."""
        methods = {
            task: [name_method(m, w) for m in WEIGHTS for w in config.weights_of(m, task)]
            for task in TASKS
        }
        return [
            Cell("correct", task, method, seed)
            for task in TASKS
            for method in ("none", *methods[task])
            for seed in range(config.seeds)
        ]

    def run(self, config: NuisanceConfig, cells: Sequence[Cell]) -> list[list[CellRow]]:
        """Train, then measure."""
        return [self._run(config, cell) for cell in cells]

    def _run(self, config: NuisanceConfig, cell: Cell) -> list[CellRow]:
        samples = make_samples(cell.task, config, cell.seed).to(pick_device(config.device))
        with torch.backends.cudnn.flags(enabled=True, deterministic=True):
            trained = train(config, cell, samples)
            found = evaluate(config, trained.model, samples, cell.seed)
        penalty = trained.removal.penalty
        if penalty is not None:
            report = penalty.report()
            found |= {
                "bound": report.value,
                "faults": [advice.code for advice in report.warnings],
                "warned": list(trained.warned),
                "report": str(report),
            }
        rows = [{"task": cell.task, "metric": name, "value": v} for name, v in found.items()]
        rows[0]["origin"] = samples.origin
        return rows

    def tables(self, config: NuisanceConfig, records: Sequence[Record]) -> str:
        """The chosen weights, and all of them."""
        groups = group(records)
        chosen = choose(groups)
        lines: list[str] = []
        for task in dict.fromkeys(task for task, _ in groups):
            own = {name: cells for (t, name), cells in groups.items() if t == task}
            best = {name: own[name] for (t, _), name in chosen.items() if t == task}
            lines += [f"### {task}: the chosen weights", "", *tabulate(best), ""]
            lines += [f"### {task}: all weights", "", *tabulate(own), ""]
        faults = [line for key, cells in groups.items() for line in list_faults(key, cells)]
        if faults:
            lines += ["### Warnings of the penalties", "", "In how many seeds, at any check.", ""]
            lines += [*faults, ""]
        origins = sorted({str(record.rows[0].get("origin", "")) for record in records})
        return "\n".join([*lines, f"Samples: {'; '.join(origins)}."])

    def draw(
        self, config: NuisanceConfig, records: Sequence[Record], summary: Sequence[Summary]
    ) -> dict[str, Figure]:
        """Accuracy against what the MLP reads: a panel per task, a line per method."""
        from matplotlib.figure import Figure

        groups = group(records)
        chosen = {(task, name) for (task, _), name in choose(groups).items()}
        tasks = list(dict.fromkeys(task for task, _ in groups))
        figure = Figure(figsize=(4.2 * len(tasks), 4.2), layout="constrained")
        axes = figure.subplots(1, len(tasks), squeeze=False)[0]
        colours = {method: f"C{i}" for i, method in enumerate(WEIGHTS)}
        handles = {}
        for ax, task in zip(axes, tasks, strict=True):
            lines: dict[str, list[tuple[float, float, bool]]] = {}
            for (own, name), cells in groups.items():
                if own == task:
                    point = _mean(cells, "mlp_nats"), _mean(cells, "accuracy")
                    picked = (task, name) in chosen
                    lines.setdefault(split_method(name)[0], []).append((*point, picked))
            for method, points in lines.items():
                style = {"color": colours.get(method, "black"), "lw": 1.2, "alpha": 0.8}
                x, y, _ = zip(*points, strict=True)
                (handles[method],) = ax.plot(x, y, marker="o", ms=4, **style)
                best = [(x, y) for x, y, picked in points if picked and method in WEIGHTS]
                if best:
                    ax.plot(*zip(*best, strict=True), "o", ms=9, mfc="none", **style)
            ax.set_title(task, fontsize=9)
            ax.set(xlabel="left of the nuisance, nats (MLP probe)", ylabel="test accuracy, %")
            ax.set_xlim(left=-LEAK)  # from 0 on, so that small differences look small
            ax.grid(alpha=0.25)
        figure.legend(
            list(handles.values()), list(handles), loc="outside lower center", ncols=4, fontsize=8
        )
        return {"nuisance-removal": figure}


# --- tables --------------------------------------------------------------------------------------


def group(records: Sequence[Record]) -> dict[Key, list[Values]]:
    """The measurements of the seeds, by task and method with its weight."""
    groups: dict[Key, list[Values]] = {}
    for record in records:
        values = {row["metric"]: row["value"] for row in record.rows}
        groups.setdefault((record.cell.task, record.cell.method), []).append(values)
    return groups


def choose(groups: Mapping[Key, Sequence[Values]]) -> dict[Key, str]:
    """The weight of each task and method with the highest validation accuracy, mean over seeds.

    Returns:
        By task and method, the method with its weight; of equal ones the first.

    Example:
        >>> names = {"club-0.1": 80.0, "club-1": 90.0, "none": 70.0}
        >>> choose({("table", name): [{"validation": v}] for name, v in names.items()})
        {('table', 'club'): 'club-1', ('table', 'none'): 'none'}
    """
    best: dict[Key, tuple[float, str]] = {}
    for (task, name), cells in groups.items():
        key, value = (task, split_method(name)[0]), _mean(cells, "validation")
        value = -math.inf if math.isnan(value) else value
        if key not in best or value > best[key][0]:
            best[key] = value, name
    return {key: name for key, (_, name) in best.items()}


def tabulate(groups: Mapping[str, Sequence[Values]]) -> list[str]:
    """A line per method with its weight: mean ± spread over the seeds.

    Example:
        >>> print(tabulate({"none": [{"accuracy": 90.0}, {"accuracy": 92.0}]})[2])
        | none | 91.0 ± 1.4 | | | | | | | | | | | | | |
    """
    titles = ["method", *(title for title, _ in COLUMNS.values()), "no warning", "silent"]
    lines = [f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
    for name, cells in groups.items():
        texts = [_text(cells, key, digits) for key, (_, digits) in COLUMNS.items()]
        texts = [name, *texts, *count_silent(name, cells)]
        lines.append("|" + "".join(f" {text} |" if text else " |" for text in texts))
    return lines


def count_silent(name: str, cells: Sequence[Values]) -> tuple[str, str]:
    """In how many seeds a penalty left something and did not warn, or not by its value either.

    Args:
        name: of the method, with its weight.
        cells: of all seeds.

    Returns:
        Both counts; "" without a penalty, and for one that is given the label of the training.

    Example:
        >>> left = {"mlp_nats": 0.5, "faults": [], "bound": 0.1}
        >>> warned, said = {**left, "faults": ["below-zero"]}, {**left, "bound": 0.8}
        >>> count_silent("club-1", [left, warned, said, {**left, "mlp_nats": 0.01}])
        ('2 of 4', '1 of 4')
    """
    if split_method(name)[0].endswith(GIVEN) or not all("faults" in values for values in cells):
        return "", ""
    left = [v for v in cells if not v["faults"] and (v["mlp_nats"] or 0) > LEAK]
    silent = [v for v in left if v["bound"] is not None and v["bound"] < v["mlp_nats"]]
    return f"{len(left)} of {len(cells)}", f"{len(silent)} of {len(cells)}"


def list_faults(key: Key, cells: Sequence[Values]) -> list[str]:
    """The codes of a penalty's warnings, each with the number of seeds that had it.

    Example:
        >>> list_faults(("table", "club-1"), [{"warned": ["below-zero"]}, {"warned": []}])
        ['- table, club-1: below-zero in 1 of 2']
    """
    codes = [code for values in cells for code in values.get("warned", ())]
    counts = [f"{c} in {codes.count(c)} of {len(cells)}" for c in dict.fromkeys(codes)]
    return [f"- {', '.join(key)}: {', '.join(counts)}"] if counts else []


def _known(cells: Sequence[Values], key: str) -> list[float]:
    """The values of a metric; none if a seed has no finite number."""
    values = [values.get(key) for values in cells]
    return [v for v in values if v is not None] if None not in values else []


def _mean(cells: Sequence[Values], key: str) -> float:
    values = _known(cells, key)
    return statistics.fmean(values) if values else math.nan


def _text(cells: Sequence[Values], key: str, digits: int) -> str:
    values = _known(cells, key)
    if not values:
        return "not finite" if any(key in each for each in cells) else ""
    text = f"{statistics.fmean(values):.{digits}f}"
    return f"{text} ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else text
