"""Can what `estimate` says be trusted? Values, intervals and verdicts where the truth is known.

    python benchmarks/trust.py tasks    every task of TASKS with 200, 1000 and 10000 rows
    python benchmarks/trust.py others   tasks that had no part in choosing how wide intervals are
    python benchmarks/trust.py images   pairs of images that share a label through a noisy channel
    python benchmarks/trust.py high     10 to 50 nats, more than the logarithm of the rows
    python benchmarks/trust.py given    p-values of independence given a common cause
    python benchmarks/trust.py strangers    ages, rounded numbers, labels, digits

The numbers that widen an interval (`LEARNT`, `LOCAL`, `COARSE`, `GROWING` in mibounds.measure) were
chosen on the seeds 0 to 19 of `tasks`; its rows here begin with seed 20.

An image tells its label all but certainly, so that two images share what the channel lets through.
Pairs are made of real images (python -m experiments data get), at several sizes, and of what a
fixed random network makes of them. No image is used twice.

"Of the true log-ratio" is the mean absolute error of the mean of the true log-ratio on the same
rows, of tasks that know it: an error of sampling that no model of the log-ratio escapes.

The p-values are those of 99 random signs or orders; widths and ridges of their regressions were
chosen on other causes and seeds. "Rejected" is the share of p-values of at most 5 %.

Of the digits (scikit-learn) only a lower bound of the truth is known, what cross-validated
predictions of the label from both halves share. "Wrong" are the verdicts "believe" whose interval
does not hold the truth, or that bound.

Each finished cell is a line of results/measure/trust_NAME.jsonl at once; a second start skips
those. The summary, trust_NAME.json and .md, is made of these lines. Every cell runs on one thread.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import time
from dataclasses import asdict, dataclass
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from cases import CONDITIONAL, STRANGERS
from measure import Clusters
from measurements import complete_rows, write

FIRST_SEED = 20
SEEDS = {200: 10, 1000: 10, 10_000: 3}  # by the number of rows
SEEDS_GIVEN = {200: 200, 1000: 100}


@dataclass(frozen=True)
class Pairs:
    """Pairs of images, or of codes of them, whose labels went through a noisy channel.

    Args:
        data: name of the data set.
        side: pixels in a row and in a column, after averaging.
        labels: how many, the first of the data set.
        nats: that the channel lets through.
        code: columns of a fixed random network's output; 0 for the pixels themselves.
        rows: how many pairs.
    """

    data: str
    side: int
    labels: int
    nats: float
    code: int = 0
    rows: int = 4000

    @property
    def mutual_information(self) -> float:
        """What two labels share; the images hardly less."""
        return self.nats

    def sample(self, n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """Rows of pixels, or of codes."""
        rng = np.random.default_rng(seed)
        images, labels = _images(self.data, self.side)
        places = [rng.permutation(np.flatnonzero(labels == k)) for k in range(self.labels)]
        right = _keep_probability(self.labels, self.nats)
        first = rng.integers(self.labels, size=n)
        other = (first + 1 + rng.integers(max(1, self.labels - 1), size=n)) % self.labels
        second = np.where(rng.random(n) < right, first, other)
        used = [0] * self.labels

        def take(wanted: np.ndarray) -> np.ndarray:
            rows = []
            for label in wanted:
                rows.append(places[label][used[label]])
                used[label] += 1
            values = images[rows]
            return _encode(values, self.code) if self.code else values

        return take(first), take(second)


@dataclass(frozen=True)
class Factor:
    """Many columns on both sides that share one normal factor.

    Args:
        columns: of x, and of y.
        loading: of the factor in each column, whose noise has variance 1.
        rows: how many.
    """

    columns: int
    loading: float
    rows: int = 2000

    @property
    def mutual_information(self) -> float:
        """Of the two projections on the loadings."""
        signal = self.columns * self.loading**2
        return -0.5 * math.log(1 - (signal / (1 + signal)) ** 2)

    def sample(self, n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """Rows."""
        rng = np.random.default_rng(seed)
        z = self.loading * rng.normal(size=(n, 1))
        x, y = (z + rng.normal(size=(n, self.columns)) for _ in range(2))
        return x, y


IMAGES = {
    "MNIST 49 + 49, 2 labels": Pairs("mnist", 7, 2, 0.36),
    "MNIST 196 + 196, 2 labels": Pairs("mnist", 14, 2, 0.36),
    "MNIST 196 + 196, 5 labels": Pairs("mnist", 14, 5, 0.8),
    "MNIST 196 + 196, 10 labels": Pairs("mnist", 14, 10, 1.2),
    "MNIST 784 + 784, 2 labels": Pairs("mnist", 28, 2, 0.36),
    "MNIST 196 + 196, independent": Pairs("mnist", 14, 2, 0.0),
    "MNIST codes of 64, 2 labels": Pairs("mnist", 14, 2, 0.36, code=64),
    "MNIST codes of 1024, 2 labels": Pairs("mnist", 14, 2, 0.36, code=1024),
    "SVHN 256 + 256, 2 labels": Pairs("svhn", 16, 2, 0.36),
    "CIFAR-10 256 + 256, 2 labels": Pairs("cifar10", 16, 2, 0.36),
    "one factor in 5000 columns": Factor(5000, 0.08),
}


def others() -> dict:
    """Tasks with a known value that are not among TASKS."""
    from mibounds.tasks import (
        Asinh,
        CorrelatedGaussian,
        DiscreteTable,
        JointGaussian,
        JointGaussianMixture,
        JointStudentT,
        LabelledUniform,
        NormalCDF,
        SignedPower,
        Spiral,
        Transformed,
        UniformNoise,
    )

    nats = CorrelatedGaussian.from_mutual_information
    return {
        "independent, 1 + 1": CorrelatedGaussian(1, 0.0),
        "independent, 6 + 6": CorrelatedGaussian(6, 0.0),
        "pairs, 6 + 6, 3 nats": nats(6, 3.0),
        "one pair, 0.1 nats": nats(1, 0.1),
        "dense, 2 + 7": JointGaussian.dense(2, 7, correlation=0.3),
        "squashed, 4 + 4": Transformed(nats(4, 1.5), (NormalCDF(),), (SignedPower(0.5),)),
        "student, 3 + 2, df 4": JointStudentT(JointGaussian.dense(3, 2, 0.3), df=4.0),
        "student, 1 + 1, df 2": JointStudentT(JointGaussian.dense(1, 1, 0.0), df=2.0),
        "student asinh, 4 + 2, df 2": Transformed(
            JointStudentT(JointGaussian.dense(4, 2, 0.4), df=2.0), (Asinh(),)
        ),
        "noise of 0.3": UniformNoise(0.3),
        "spiral of y, 1 + 2": Transformed(JointGaussian.dense(1, 2, 0.6), (), (Spiral(0.7),)),
        "three balls": JointGaussianMixture.balls(
            1, ((1.5, 1.5), (-1.5, 1.0), (0.5, -2.0)), scale=0.6
        ),
        "cross of 0.7": JointGaussianMixture.cross(correlation=0.7),
        "table, 3 x 4": DiscreteTable(
            ((0.10, 0.05, 0.05, 0.10), (0.05, 0.20, 0.05, 0.05), (0.05, 0.05, 0.20, 0.05))
        ),
        "uniform by 3 labels": LabelledUniform(3),
        "3 labels, 5 columns": Clusters(3, 5, 10_000, 1.5),
        "2 labels, 12 columns": Clusters(2, 12, 10_000, 0.8),
    }


def high() -> dict:
    """Tasks that share more nats than the logarithm of their rows."""
    from mibounds.tasks import (
        CorrelatedGaussian,
        JointGaussian,
        JointStudentT,
        SignedPower,
        Spiral,
        Transformed,
    )

    nats = CorrelatedGaussian.from_mutual_information
    return {
        "Gaussian, 1 + 1": nats(1, 10.0),
        "Gaussian, 20 + 20": nats(20, 20.0),
        "Gaussian, 20 + 20, more": nats(20, 50.0),
        "Gaussian, 160 + 160": nats(160, 50.0),
        "cube, 20 + 20": Transformed(nats(20, 20.0), y_maps=(SignedPower(3.0),)),
        "Student-t of df 3, 20 + 20": JointStudentT(
            JointGaussian.sparse(20, 20, correlation=0.8, pairs=20), df=3.0
        ),
        "spiral, 3 + 3": Transformed(nats(3, 10.0), (Spiral(1.0),), (Spiral(0.5),)),
        "spiral, 20 + 20": Transformed(nats(20, 20.0), (Spiral(0.2),), (Spiral(0.1),)),
    }


@cache
def known(name: str) -> dict:
    """The tasks of a command, by their names."""
    if name == "tasks":
        import mibounds as mb

        return dict(mb.TASKS)
    made = {"others": others, "high": high}
    if name in made:
        return made[name]()
    return {"images": IMAGES, "given": CONDITIONAL, "strangers": STRANGERS}[name]


@cache
def _images(data: str, side: int) -> tuple[np.ndarray, np.ndarray]:
    """Grey images of so many pixels, as rows of numbers in [0, 1], and their labels."""
    import sys

    sys.path.insert(0, str(Path(__file__).parents[1]))
    from experiments.data import load

    loaded = load(data, "train")
    images = np.asarray(loaded.images, dtype=np.float32) / 255
    if images.ndim == 4:
        images = images.mean(3) if images.shape[3] == 3 else images.mean(1)
    by = images.shape[1] // side
    images = images.reshape(len(images), side, by, side, by).mean((2, 4))
    return images.reshape(len(images), -1), np.asarray(loaded.labels)


def _encode(pixels: np.ndarray, columns: int) -> np.ndarray:
    """What a fixed random network of two layers makes of images."""
    rng = np.random.default_rng(0)
    width = pixels.shape[1]
    hidden = np.maximum(pixels @ rng.normal(size=(width, 512)) / math.sqrt(width), 0)
    return hidden @ rng.normal(size=(512, columns)) / math.sqrt(512)


def _keep_probability(labels: int, nats: float) -> float:
    """How often a channel has to keep a label, to let so much through."""

    def through(p: float) -> float:
        wrong = (1 - p) / (labels - 1)
        parts = [p] + [wrong] * (labels - 1)
        return math.log(labels) + sum(q * math.log(q) for q in parts if q)

    low, high = 1 / labels, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if through(middle) < nats else (low, middle)
    return low


def measure(name: str, task: str, n: int, seed: int, budget: str) -> dict:
    """One cell."""
    import torch

    import mibounds as mb

    torch.set_num_threads(1)
    one = known(name)[task]
    x, y = one.sample(n, seed=seed)
    start = time.perf_counter()
    result = mb.estimate(x, y, seed=seed, budget=budget)  # pyright: ignore[reportArgumentType]
    return {
        "task": task,
        "n": n,
        "seed": seed,
        "truth": one.mutual_information,
        "nats": result.nats,
        "interval": list(result.interval),
        "floor": floor_of(one, x, y),
        "lower": result.lower,
        "verdict": result.verdict,
        "method": result.method,
        "warnings": [a.code for a in result.warnings],
        "seconds": time.perf_counter() - start,
    }


def floor_of(task, x, y) -> float | None:
    """The mean of the true log-ratio on these rows, if the task knows it.

    No estimate of a log-ratio is nearer to the truth than by its error of sampling, on average.
    """
    if not hasattr(task, "log_ratio"):
        return None
    return float(task.log_ratio(x.double(), y if task.classes else y.double()).mean())


def measure_given(task: str, n: int, seed: int) -> dict:
    """One p-value given a common cause, without the estimate that comes with it."""
    from mibounds.measure.independence import dependence_given
    from mibounds.samples.columns import as_columns

    one = CONDITIONAL[task]
    rng = np.random.default_rng(seed)
    sides = zip(("x", "y", "given"), one.draw(n, rng), strict=True)
    x, y, z = (as_columns(*side).scored() for side in sides)
    start = time.perf_counter()
    value, null = dependence_given(x, y, z, np.arange(n), 1, 99, rng)
    return {
        "task": task,
        "n": n,
        "seed": seed,
        "dependent": one.dependent,
        "p": float((1 + (null >= value).sum()) / 100),
        "seconds": time.perf_counter() - start,
    }


def measure_stranger(task: str, n: int, seed: int) -> dict:
    """One estimate with its p-value."""
    import torch

    import mibounds as mb

    torch.set_num_threads(1)
    one = STRANGERS[task]
    x, y = one.draw(n, np.random.default_rng(seed))
    start = time.perf_counter()
    budget = "fast" if one.budget == "fast" else "default"
    result = mb.estimate(x, y, seed=seed, budget=budget, permutations=99)
    return {
        "task": task,
        "n": n,
        "seed": seed,
        "truth": one.nats,
        "known": one.known,
        "nats": result.nats,
        "interval": list(result.interval),
        "lower": result.lower,
        "upper": result.upper,
        "entropy": result.config["entropy"],
        "p": result.p_value,
        "verdict": result.verdict,
        "method": result.method,
        "warnings": [a.code for a in result.warnings],
        "seconds": time.perf_counter() - start,
    }


def is_wrong(row: dict) -> bool:
    """Whether a number is believed whose interval misses what is known, or is impossible."""
    low, high = row["interval"]
    impossible = not 0 <= low <= row["nats"] <= high < math.inf
    if row["entropy"] is not None and row["upper"] is not None:
        impossible |= row["upper"] > row["entropy"] + 1e-9
    holds = high >= row["truth"] and (low <= row["truth"] or not row["known"])
    return impossible or (row["verdict"] == "believe" and not holds)


def summarise_strangers(rows: list[dict]) -> dict:
    """How many are believed and wrong, or impossible, and how often the p-value is below 5 %."""
    tasks = dict.fromkeys(r["task"] for r in rows)
    return {
        "cells": len(rows),
        "wrong": sum(map(is_wrong, rows)),
        "rejected": {t: share_rejected([r for r in rows if r["task"] == t]) for t in tasks},
    }


def tabulate_strangers(rows: list[dict]) -> str:
    """By case."""
    lines = ["| data | truth | values | intervals | upper bound | p < 5 % | verdicts | wrong | s |"]
    lines.append("|---" * 9 + "|")
    for task in dict.fromkeys(r["task"] for r in rows):
        own = [r for r in rows if r["task"] == task]
        values = [r["nats"] for r in own]
        ends = [min(r["interval"][0] for r in own), max(r["interval"][1] for r in own)]
        upper = [r["upper"] for r in own if r["upper"] is not None]
        verdicts = ", ".join(dict.fromkeys(r["verdict"] for r in own))
        truth = f"{own[0]['truth']:.2f}" if own[0]["known"] else f"at least {own[0]['truth']:.2f}"
        lines.append(
            f"| {task} | {truth} | {min(values):.2f} to {max(values):.2f} | "
            f"within {ends[0]:.2f} to {ends[1]:.2f} | {f'{max(upper):.2f}' if upper else ''} | "
            f"{share_rejected(own):.0%} | {verdicts} | {sum(map(is_wrong, own))} of {len(own)} | "
            f"{statistics.mean(r['seconds'] for r in own):.1f} |"
        )
    return "\n".join(lines)


def cells(name: str, quick: bool) -> list[tuple[str, int, int]]:
    """Task, rows and seed of each cell."""
    tasks = known(name)
    if name == "strangers":
        here = [t for t in tasks if "digits" not in t or find_spec("sklearn")]
        some = here[:1] if quick else here
        seeds = {t: 1 if quick else 2 if "digits" in t else 10 for t in some}
        return [(t, 100 if quick else tasks[t].rows, s) for t in some for s in range(seeds[t])]
    if name == "images":
        some = list(tasks)[:1] if quick else list(tasks)
        return [
            (t, 400 if quick else tasks[t].rows, s) for s in range(1 if quick else 3) for t in some
        ]
    if name == "high":
        some = list(tasks)[:1] if quick else list(tasks)
        return [(t, 400 if quick else 10_000, s) for s in range(1 if quick else 3) for t in some]
    some = list(tasks)[:3] if quick else list(tasks)
    sizes = {100: 1} if quick else SEEDS_GIVEN if name == "given" else SEEDS
    return [(t, n, FIRST_SEED + s) for n in sizes for s in range(sizes[n]) for t in some]


def summarise(rows: list[dict]) -> dict:
    """Coverage, errors and verdicts of some rows."""
    errors = [abs(r["nats"] - r["truth"]) for r in rows]
    believed = [r for r in rows if r["verdict"] == "believe"]
    known = [r for r in rows if r.get("floor") is not None]
    return {
        "cells": len(rows),
        "mae": statistics.mean(errors),
        "floor": statistics.mean(abs(r["floor"] - r["truth"]) for r in known) if known else None,
        "covered": statistics.mean(map(covers, rows)),
        "believed": len(believed) / len(rows),
        "believed_covered": statistics.mean(map(covers, believed)) if believed else None,
        "below_zero": sum(r["nats"] < 0 for r in rows),
        "seconds": statistics.mean(r["seconds"] for r in rows),
    }


def covers(row: dict) -> bool:
    """Whether the interval holds the truth."""
    return row["interval"][0] <= row["truth"] <= row["interval"][1]


def tabulate_given(rows: list[dict]) -> str:
    """The share of p-values of at most 5 %, for each task and number of rows."""
    sizes = sorted({r["n"] for r in rows})
    heads = [f"rejected of {n} rows" for n in sizes]
    lines = [f"| common cause | dependent | {' | '.join(heads)} | s |"]
    lines.append("|---" * (3 + len(sizes)) + "|")
    for task in dict.fromkeys(r["task"] for r in rows):
        own = [r for r in rows if r["task"] == task]
        shares = [f"{share_rejected([r for r in own if r['n'] == n]):.1%}" for n in sizes]
        seconds = statistics.mean(r["seconds"] for r in own if r["n"] == sizes[-1])
        yes = "yes" if own[0]["dependent"] else "no"
        lines.append(f"| {task} | {yes} | {' | '.join(shares)} | {seconds:.1f} |")
    return "\n".join(lines)


def share_rejected(rows: list[dict]) -> float:
    """How often a p-value is at most 5 %."""
    return statistics.mean(r["p"] <= 0.05 for r in rows)


def summarise_given(rows: list[dict]) -> dict:
    """Size and power of the test, over all tasks of a kind."""
    kinds = {"size": False, "power": True}
    return {
        name: share_rejected([r for r in rows if r["dependent"] == kind])
        for name, kind in kinds.items()
        if any(r["dependent"] == kind for r in rows)
    }


def tabulate(name: str, rows: list[dict]) -> str:
    """By rows for tasks, by task for images."""
    if name == "given":
        return tabulate_given(rows)
    if name == "strangers":
        return tabulate_strangers(rows)
    if name not in ("images", "high"):
        head = "| rows | cells | mean absolute error | of the true log-ratio | covered | believed "
        lines = [head + "| covered of these | s |", "|---" * 8 + "|"]
        for n in sorted({r["n"] for r in rows}):
            s = summarise([r for r in rows if r["n"] == n])
            of_these = "" if s["believed_covered"] is None else f"{s['believed_covered']:.0%}"
            floor = "" if s["floor"] is None else f"{s['floor']:.3f}"
            lines.append(
                f"| {n} | {s['cells']} | {s['mae']:.3f} | {floor} | {s['covered']:.0%} | "
                f"{s['believed']:.0%} | {of_these} | {s['seconds']:.1f} |"
            )
        return "\n".join(lines)
    what = "pairs" if name == "images" else "task"
    lines = [f"| {what} | truth | values | certified | intervals | verdicts | s |"]
    lines.append("|---" * 7 + "|")
    for task in dict.fromkeys(r["task"] for r in rows):
        own = [r for r in rows if r["task"] == task]
        values = ", ".join(f"{r['nats']:.2f}" for r in own)
        lower = ", ".join("" if r["lower"] is None else f"{r['lower']:.2f}" for r in own)
        ends = ", ".join("{:.2f} to {:.2f}".format(*r["interval"]) for r in own)
        verdicts = ", ".join(dict.fromkeys(r["verdict"] for r in own))
        seconds = statistics.mean(r["seconds"] for r in own)
        lines.append(
            f"| {task} | {own[0]['truth']:.2f} | {values} | {lower} | {ends} | {verdicts} | "
            f"{seconds:.1f} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("name", choices=("tasks", "others", "images", "high", "given", "strangers"))
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--out", type=Path, default=Path("results/measure"))
    parser.add_argument("--quick", action="store_true", help="few cells, few samples")
    args = parser.parse_args()
    path = args.out / f"trust_{args.name}.jsonl"
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[name] = "1"  # of the processes
    one = partial(measure, args.name, budget="fast" if args.quick else "default")
    summary = summarise
    if args.name == "given":
        one, summary = measure_given, summarise_given
    if args.name == "strangers":
        one, summary = measure_stranger, summarise_strangers
    wanted = cells(args.name, args.quick)
    rows = complete_rows(path, ("task", "n", "seed"), wanted, one, args.jobs)
    table = tabulate(args.name, rows)
    write(path.with_suffix(".md"), table + "\n")
    import torch

    import mibounds

    about = {
        "command": f"python benchmarks/trust.py {args.name}",
        "mibounds": mibounds.__version__,
        "torch": torch.__version__,
    }
    sizes = {
        str(n): summary([r for r in rows if r["n"] == n]) for n in sorted({r["n"] for r in rows})
    }
    tasks = {k: asdict(v) for k, v in IMAGES.items()} if args.name == "images" else {}
    write(path.with_suffix(".json"), about | {"rows": sizes, "all": summary(rows)} | tasks)
    print(table)


if __name__ == "__main__":
    main()
