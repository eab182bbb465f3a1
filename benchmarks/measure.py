"""How near `estimate` comes to known truths, and how often its interval covers them.

    python benchmarks/measure.py tasks       every task of TASKS by every method, 10000 samples
    python benchmarks/measure.py labels      labels and many columns, 10 seeds each
    python benchmarks/measure.py large       the command line, on a million rows of ten columns

Estimators with a network are cross-fitted in 2 folds there, for time, the default in 4; of the
critics only `dv` gets the default budget, the others the fast one. How often intervals cover the
truth is asked by trust.py. Each finished cell is a line of
results/measure/NAME.jsonl at once; a second start skips those. The summary beside it (NAME.json,
NAME.md) is made of these lines. Of `large` there is only the summary: time, and peak resident
memory (VmHWM, with torch itself in it), of a process with one thread that reads a Parquet file.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import io
import json
import math
import os
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from measurements import complete_rows, in_child, megabytes, resident_mib, write

N = 10_000
LARGE = 1_000_000
HASTY = ("mine", "nwj", "infonce", "tuba", "js", "smile", "flo")  # a minute a cell and more, else


@dataclass(frozen=True)
class Clusters:
    """Labels as likely as each other, each a Gaussian of many columns around a place of its own.

    Args:
        labels: how many.
        columns: of x.
        rows: to measure by.
        distance: of each place from zero; the places are at right angles, two of them opposite.
    """

    labels: int
    columns: int
    rows: int
    distance: float

    def places(self):
        """Where each label is, but for its columns, which are turned at random."""
        import torch

        if self.labels == 2:
            return self.distance * torch.tensor([[1.0], [-1.0]], dtype=torch.float64)
        return self.distance * torch.eye(self.labels, dtype=torch.float64)

    @functools.cached_property
    def mutual_information(self) -> float:
        """By a million samples; other columns than those of the places tell nothing."""
        import torch

        g = torch.Generator().manual_seed(0)
        places = self.places()
        y = torch.randint(self.labels, (1_000_000,), generator=g)
        x = places[y] + torch.randn(len(y), places.shape[1], generator=g, dtype=torch.float64)
        scores = (x @ places.T - 0.5 * places.square().sum(1)).log_softmax(1)
        return math.log(self.labels) + scores.gather(1, y[:, None]).mean().item()

    def sample(self, n: int, seed: int):
        """Rows of x, and their labels."""
        import torch

        g = torch.Generator().manual_seed(seed)
        places = self.places()
        turn = torch.randn(self.columns, self.columns, generator=g, dtype=torch.float64)
        turn = torch.linalg.qr(turn).Q[: places.shape[1]]
        y = torch.randint(self.labels, (n,), generator=g)
        noise = torch.randn(n, self.columns, generator=g, dtype=torch.float64)
        return places[y] @ turn + noise, y


LABELS = {
    f"{task.labels} labels, {task.columns} columns, {task.rows} rows, {task.distance:g}": task
    for task in (
        Clusters(2, 64, 2000, 0.0),
        Clusters(2, 64, 2000, 0.5),
        Clusters(2, 64, 2000, 1.0),
        Clusters(2, 64, 2000, 3.0),
        Clusters(2, 300, 5000, 1.0),
        Clusters(10, 64, 10000, 2.0),
        Clusters(10, 64, 10000, 4.0),
        Clusters(2, 64, 500, 1.0),
        Clusters(10, 300, 5000, 2.0),
    )
}


def measure(task: str, method: str, seed: int, n: int, budget: Any) -> dict:
    """One cell."""
    import torch

    import mibounds as mb

    torch.set_num_threads(1)
    budget = "fast" if method in HASTY else budget
    known = LABELS[task] if task in LABELS else mb.TASKS[task]
    n = min(n, known.rows) if isinstance(known, Clusters) else n
    row = {"task": task, "method": method, "seed": seed, "n": n, "budget": budget}
    truth = known.mutual_information
    x, y = known.sample(n, seed=seed)
    start = time.perf_counter()
    folds = 2 if method in mb.ESTIMATORS else None  # for time: 14 of them
    try:
        result = mb.estimate(x, y, methods=method, budget=budget, folds=folds, seed=seed)
    except ValueError as error:
        return {**row, "truth": truth, "nats": None, "why": str(error)}
    return {
        **row,
        "truth": truth,
        "nats": result.nats,
        "interval": list(result.interval),
        "by": result.method,
        "warnings": [a.code for a in result.warnings],
        "seconds": time.perf_counter() - start,
    }


def cells(name: str, quick: bool) -> list[tuple[str, str, int]]:
    """Task, method and seed of each cell."""
    import mibounds as mb

    if name == "labels":
        tasks = list(LABELS)[:2] if quick else list(LABELS)
        return [(task, "default", s) for s in range(2 if quick else 10) for task in tasks]
    tasks = ["gaussian-dense", "table"] if quick else list(mb.TASKS)
    methods = ["copula_model", "codes", *mb.CLASSICAL, *mb.ESTIMATORS]
    if quick:
        methods = ["copula_model", "club", "gaussian_copula"]
    return [(t, m, 0) for m in ["default", *methods] for t in tasks]


def measure_large(rows: int, budget: str) -> dict:
    """`mibounds estimate` on a file of heavy tails, which a Gaussian copula does not fit."""
    import pyarrow as pa
    from pyarrow import parquet

    from mibounds.tasks import JointGaussian, JointStudentT

    task = JointStudentT(JointGaussian.dense(5, 5, 0.5), df=3.0)
    sides = zip("xy", task.sample(rows, seed=0), strict=True)
    columns = {f"{name}{j}": v.numpy() for name, side in sides for j, v in enumerate(side.T)}
    os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"  # of the child
    with tempfile.TemporaryDirectory(prefix="mibounds-") as folder:
        path = Path(folder, "samples.parquet")
        parquet.write_table(pa.table(columns), path)
        found = in_child(estimate_file, path, budget)
    found = {"rows": rows, "columns": [5, 5], "truth": task.mutual_information, **found}
    acceptance = [
        {
            "what": "seconds, from the file to the number",
            "goal": "< 120",
            "measured": found["seconds"],
            "holds": found["seconds"] < 120,
        },
        {
            "what": "peak resident memory in MB",
            "goal": "< 2000",
            "measured": found["peak_MB"],
            "holds": None if found["peak_MB"] is None else found["peak_MB"] < 2000,
        },
    ]
    return {**found, "acceptance": acceptance}


def estimate_file(path: Path, budget: str) -> dict:
    """What the command line says of a file, to be run in a process of its own."""
    import torch

    from mibounds.cli import main

    torch.set_num_threads(1)
    out = path.with_suffix(".json")
    start, before = time.perf_counter(), resident_mib()
    command = ["estimate", path, "--x", "x*", "--y", "y*", "--budget", budget, "--out", out]
    with contextlib.redirect_stdout(io.StringIO()):
        code = main([str(part) for part in command])
    if code:
        raise RuntimeError(f"mibounds ended with {code}")
    seconds = round(time.perf_counter() - start, 1)
    peak = resident_mib()
    result = json.loads(out.read_text())
    return {
        "nats": result["nats"],
        "interval": result["interval"],
        "seconds": seconds,
        "before_MB": megabytes(before),
        "peak_MB": megabytes(peak),
    }


def summarise_tasks(rows: list[dict]) -> tuple[dict, str]:
    """Errors of each method over the tasks that it can do."""
    methods = list(dict.fromkeys(r["method"] for r in rows))
    tasks = list(dict.fromkeys(r["task"] for r in rows))
    value = {(r["task"], r["method"]): r for r in rows}
    truth = {r["task"]: r["truth"] for r in rows}
    low = [t for t in tasks if truth[t] < 2]
    summary = []
    for m in methods:
        done = [t for t in tasks if (t, m) in value and value[t, m]["nats"] is not None]
        error = {t: abs(value[t, m]["nats"] - truth[t]) for t in done}
        same = {t: abs(value[t, "default"]["nats"] - truth[t]) for t in done}
        summary.append(
            {
                "method": m,
                "budget": value[done[0], m]["budget"] if done else None,
                "tasks": len(done),
                "mae": _mean(error.values()),
                "default_mae_on_these": _mean(same.values()),
                "mae_below_2": _mean([error[t] for t in low if t in error]),
                "seconds": _mean([value[t, m]["seconds"] for t in done]),
            }
        )
    best = min(s["mae"] for s in summary if s["tasks"] == len(tasks))
    head = summary[methods.index("default")]
    acceptance = [
        {
            "what": "default: lowest mean absolute error, against each method on what it can do",
            "goal": "no method lower",
            "measured": max(s["default_mae_on_these"] - s["mae"] for s in summary),
            "holds": head["mae"] <= best
            and all(s["default_mae_on_these"] <= s["mae"] for s in summary),
        },
        {
            "what": "default: mean absolute error over tasks with less than 2 nats",
            "goal": "< 0.05",
            "measured": head["mae_below_2"],
            "holds": head["mae_below_2"] < 0.05,
        },
    ]
    lines = [f"| task | truth | {' | '.join(methods)} |", "|---" * (2 + len(methods)) + "|"]
    for t in tasks:
        shown = [value.get((t, m), {}).get("nats") for m in methods]
        numbers = " | ".join("-" if v is None else f"{v:.3f}" for v in shown)
        lines.append(f"| {t} | {truth[t]:.3f} | {numbers} |")
    for key in ("mae", "mae_below_2", "seconds"):
        numbers = " | ".join("-" if s[key] is None else f"{s[key]:.3f}" for s in summary)
        lines.append(f"| **{key}** | | {numbers} |")
    return {"methods": summary, "acceptance": acceptance}, "\n".join(lines)


def summarise_labels(rows: list[dict]) -> tuple[dict, str]:
    """Error and coverage of each cell, and whether it is warned of too few rows."""
    summary = []
    for some in _by_task(rows):
        warned = _mean(["copula_model-few-rows" in r["warnings"] for r in some])
        summary.append(_describe(some) | {"warned": warned})
    believed = [r for r in rows if "copula_model-few-rows" not in r["warnings"]]
    acceptance = [_cover("where nothing warns of too few rows", believed)]
    lines = [
        "| task | truth | mean | sd | covered | warned | seeds | seconds |",
        "|---" * 8 + "|",
    ]
    for s in summary:
        sd = math.nan if s["sd"] is None else s["sd"]
        lines.append(
            f"| {s['task']} | {s['truth']:.3f} | {s['mean']:.3f} | {sd:.3f} | {s['covered']:.0%} | "
            f"{s['warned']:.0%} | {s['seeds']} | {s['seconds']:.0f} |"
        )
    return {"cells": summary, "acceptance": acceptance}, "\n".join(lines)


def _by_task(rows: list[dict]) -> list[list[dict]]:
    names = dict.fromkeys(r["task"] for r in rows)
    return [[r for r in rows if r["task"] == name] for name in names]


def _describe(rows: list[dict]) -> dict:
    """Mean, spread and coverage of the runs of a task."""
    values = [r["nats"] for r in rows]
    return {
        "task": rows[0]["task"],
        "truth": rows[0]["truth"],
        "mean": statistics.mean(values),
        "sd": statistics.stdev(values) if len(values) > 1 else None,
        "covered": _mean([_covers(r) for r in rows]),
        "seeds": len(rows),
        "seconds": _mean([r["seconds"] for r in rows]),
    }


def _cover(which: str, rows: list[dict]) -> dict:
    """Whether nine of ten intervals cover the truth."""
    pooled = _mean([_covers(r) for r in rows])
    return {
        "what": f"95 % intervals that cover, {which}",
        "goal": ">= 0.9",
        "measured": pooled,
        "holds": pooled is not None and pooled >= 0.9,
    }


def _covers(row: dict) -> bool:
    return row["interval"][0] <= row["truth"] <= row["interval"][1]


def _mean(values) -> float | None:
    values = list(values)
    return statistics.mean(values) if values else None


def measure_cells(args: argparse.Namespace, n: int, budget: str) -> dict:
    """All cells that are not there yet, in several processes, and what they come to."""
    path = args.out / f"{args.name}.jsonl"
    fields = ("task", "method", "seed")
    one = functools.partial(measure, n=n, budget=budget)
    rows = complete_rows(path, fields, cells(args.name, args.quick), one, args.jobs)
    kinds = {
        "tasks": summarise_tasks,
        "labels": summarise_labels,
    }
    summary, table = kinds[args.name](rows)
    write(args.out / f"{args.name}.md", table + "\n")
    return {"n": n, "budget": budget, **summary}


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("name", choices=("tasks", "labels", "large"))
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--out", type=Path, default=Path("results/measure"))
    parser.add_argument("--quick", action="store_true", help="few cells, few samples")
    args = parser.parse_args()
    budget = "fast" if args.quick else "default"
    if args.name == "large":
        result = measure_large(20_000 if args.quick else LARGE, budget)
    else:
        result = measure_cells(args, 300 if args.quick else N, budget)
    import torch

    import mibounds

    about = {
        "command": f"python benchmarks/measure.py {args.name}",
        "mibounds": mibounds.__version__,
        "torch": torch.__version__,
    }
    write(args.out / f"{args.name}.json", about | result)
    print(json.dumps(result["acceptance"], indent=1))


if __name__ == "__main__":
    main()
