"""`rank` and `matrix`: how long they take, how near they come, how often their intervals cover.

    python benchmarks/tables.py truths    pairs of columns whose value is known, beside scikit-learn
    python benchmarks/tables.py times     rankings, beside scikit-learn
    python benchmarks/tables.py chance    columns that depend on nothing: how often one seems to
    python benchmarks/tables.py large     matrices of 1000 columns of numbers and of 100 mixed ones
    python benchmarks/tables.py pictures  the breast cancer data, ranked and as a matrix

Scikit-learn is needed (`pip install 'mibounds[sklearn]'`), and its functions run as they are. The
pairs of `truths` are smooth, rounded, heavy-tailed, or have a label; their values follow from
closed forms or from sums over fine grids. The numbers that widen an interval and choose between
series and neighbours (in mibounds.measure.tables.values) were chosen on pairs of these kinds with
other noise, other steps and other labels, and on the tasks cross, balls and uniform noise, with
seeds from 1000 to 3039; seeds here begin with 6000. Times are those of one thread (`times`) or of
two processes (`large`), whose processor time is noted too, since other work shares the machine.

Each finished cell of `truths` is a line of results/measure/tables_truths.jsonl at once, and a
second start skips those. The others leave results/measure/tables_NAME.json.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from measurements import complete_rows, time_in_turns, write

from mibounds.files import replacing

FIRST_SEED = 6000
ROWS = {300: 20, 1000: 20, 5000: 6}  # seeds by the number of rows
GRID = 4001
Sample = Callable[[int, np.random.Generator], tuple[np.ndarray, np.ndarray]]


# --- pairs whose value is known ------------------------------------------------------------------


@dataclass(frozen=True)
class Known:
    """A pair of columns.

    Args:
        group: "smooth", "rounded", "heavy" or "labels".
        nats: the mutual information.
        sample: draws rows; labels stand second.
    """

    group: str
    nats: float
    sample: Sample


def cdf(z: np.ndarray) -> np.ndarray:
    """Of a standard normal."""
    import torch

    return torch.special.ndtr(torch.as_tensor(z, dtype=torch.float64)).numpy()


def nodes() -> tuple[np.ndarray, np.ndarray]:
    """Places and weights of a standard normal."""
    z = np.linspace(-8, 8, GRID)
    p = np.exp(-(z**2) / 2)
    return z, p / p.sum()


def from_table(joint: np.ndarray) -> float:
    """Of a table of probabilities."""
    joint = joint / joint.sum()
    apart = joint.sum(1, keepdims=True) * joint.sum(0, keepdims=True)
    there = joint > 0
    return float((joint[there] * np.log(joint[there] / apart[there])).sum())


def gaussian(rho: float) -> Known:
    """Two normal columns behind one-to-one maps."""

    def sample(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        x = rng.normal(size=n)
        y = rho * x + math.sqrt(1 - rho**2) * rng.normal(size=n)
        return x, np.exp(y)

    return Known("smooth", -0.5 * math.log(1 - rho**2), sample)


def curve(f: Callable[[np.ndarray], np.ndarray], noise: float, group: str = "smooth") -> Known:
    """y = f(x) + noise, of a normal x: the entropy of y on a grid, less that of the noise."""
    z, p = nodes()
    y = np.linspace(f(z).min() - 8 * noise, f(z).max() + 8 * noise, 6001)
    density = np.zeros_like(y)
    for some in np.array_split(np.arange(GRID), 40):
        kernel = np.exp(-0.5 * ((y[:, None] - f(z[some])) / noise) ** 2)
        density += kernel @ p[some] / (noise * math.sqrt(2 * math.pi))
    step = y[1] - y[0]
    entropy = -float((density * np.log(np.maximum(density, 1e-300))).sum() * step)
    nats = entropy - 0.5 * math.log(2 * math.pi * math.e * noise**2)

    def sample(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        x = rng.normal(size=n)
        return x, f(x) + noise * rng.normal(size=n)

    return Known(group, nats, sample)


def rounded(rho: float, step: float, both: bool) -> Known:
    """Normal columns of which one, or both, are rounded."""
    z, p = nodes()
    edges = np.arange(-9 - step / 2, 9 + step, step)
    inside = np.diff(cdf((edges - rho * z[:, None]) / math.sqrt(1 - rho**2)), axis=1) * p[:, None]
    if both:
        cells = np.zeros((len(edges) + 1, inside.shape[1]))
        np.add.at(cells, np.digitize(z, edges), inside)
        inside = cells

    def sample(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        x = rng.normal(size=n)
        y = rho * x + math.sqrt(1 - rho**2) * rng.normal(size=n)
        return np.round(x / step) * step if both else x, np.round(y / step) * step

    return Known("rounded", from_table(inside), sample)


def student(freedom: float, rho: float) -> Known:
    """A bivariate Student-t (differences of its entropies)."""
    import torch

    def lgamma(v: float) -> float:
        return math.lgamma(v)

    def digamma(v: float) -> float:
        return float(torch.digamma(torch.tensor(v, dtype=torch.float64)))

    def entropy(d: int, logdet: float) -> float:
        v = freedom
        scale = lgamma(v / 2) + d / 2 * math.log(v * math.pi) - lgamma((v + d) / 2)
        return scale + logdet / 2 + (v + d) / 2 * (digamma((v + d) / 2) - digamma(v / 2))

    def sample(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        x = rng.normal(size=n)
        y = rho * x + math.sqrt(1 - rho**2) * rng.normal(size=n)
        c = np.sqrt(rng.chisquare(freedom, size=n) / freedom)
        return x / c, y / c

    return Known("heavy", 2 * entropy(1, 0.0) - entropy(2, math.log(1 - rho**2)), sample)


def clusters(shares: list[float], places: list[float], widths: list[float], step: float) -> Known:
    """Normal columns around a place for each label; rounded if there is a step."""
    low, high = min(places) - 9 * max(widths), max(places) + 9 * max(widths)
    edges = np.arange(low, high, step or 1e-3) if step else np.linspace(low, high, 20_001)
    if step:
        edges = (np.floor(edges / step) + 0.5) * step
    inside = [
        share * np.diff(cdf((edges - place) / width))
        for share, place, width in zip(shares, places, widths, strict=True)
    ]

    def sample(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        y = rng.choice(len(shares), size=n, p=shares)
        x = np.array(places)[y] + np.array(widths)[y] * rng.normal(size=n)
        return np.round(x / step) * step if step else x, y

    return Known("labels", from_table(np.array(inside)), sample)


def threshold(right: float, stripes: int) -> Known:
    """A label that changes from stripe to stripe of a column, and is right as often as said."""
    nats = math.log(2) + right * math.log(right) + (1 - right) * math.log(1 - right)

    def sample(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        u = rng.uniform(size=n)
        label = np.floor(stripes * u).astype(int) % 2
        return np.exp(3 * u), np.where(rng.random(n) < right, label, 1 - label)

    return Known("labels", nats, sample)


def task(name: str, group: str) -> Known:
    """A task of TASKS with one column on each side."""
    import mibounds as mb

    known = mb.TASKS[name]

    def sample(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        x, y = known.sample(n, seed=int(rng.integers(2**31)))
        return x[:, 0].double().numpy(), y.reshape(n).double().numpy()

    return Known(group, known.mutual_information, sample)


@cache
def known() -> dict[str, Known]:
    """All of them by name."""
    pairs: dict[str, Known] = {
        f"normal, {rho}": gaussian(rho) for rho in (0.0, 0.2, 0.5, 0.7, 0.95)
    }
    pairs |= {
        "square": curve(np.square, 0.6),
        "sine": curve(lambda x: np.sin(2.5 * x), 0.5),
        "steep": curve(lambda x: np.tanh(3 * x), 0.5),
        "absolute value": curve(np.abs, 0.4),
        "uniform noise": task("uniform-noise-wide", "smooth"),
        "little uniform noise": task("uniform-noise", "smooth"),
        "half cube": task("half-cube", "smooth"),
        "cross": task("mixture-cross", "smooth"),
        "balls": task("mixture-balls", "smooth"),
        "steps of 0.2": rounded(0.5, 0.2, both=False),
        "steps of 0.5, both": rounded(0.7, 0.5, both=True),
        "steps of 0.8": rounded(0.7, 0.8, both=False),
        "steps of 1, both": rounded(0.9, 1.0, both=True),
        "Cauchy": student(1, 0.0),
        "Student 2": student(2, 0.3),
        "Student 3": student(3, 0.6),
        "exponential of a square": Known(
            "heavy",
            curve(np.square, 0.6).nats,
            lambda n, rng: tuple(np.exp(2 * v) for v in curve(np.square, 0.6).sample(n, rng)),  # pyright: ignore[reportArgumentType]
        ),
        "two labels": clusters([0.6, 0.4], [0, 1.5], [1, 1], 0),
        "two labels, no relation": clusters([0.6, 0.4], [0, 0], [1, 1], 0),
        "two labels, apart": clusters([0.5, 0.5], [0, 3], [1, 0.7], 0),
        "four labels": clusters([0.1, 0.2, 0.3, 0.4], [0, 1, 2.5, 3], [1, 0.5, 1, 2], 0),
        "ten labels": clusters([0.1] * 10, [0.7 * k for k in range(10)], [1] * 10, 0),
        "two labels, steps of 0.5": clusters([0.5, 0.5], [0, 1.2], [1, 1], 0.5),
        "a threshold, 0.95": threshold(0.95, 2),
        "stripes, 0.85": threshold(0.85, 7),
        "labelled uniform": task("labelled-uniform", "labels"),
    }  # fmt: skip
    return pairs


def measure_truth(name: str, n: int, seed: int) -> dict[str, Any]:
    """One pair by each way."""
    import torch
    from sklearn.feature_selection import mutual_info_classif, mutual_info_regression

    import mibounds as mb

    torch.set_num_threads(1)
    pair = known()[name]
    x, y = pair.sample(n, np.random.default_rng(seed))
    labels = pair.group == "labels"
    row: dict[str, Any] = {"pair": name, "group": pair.group, "n": n, "seed": seed}
    row["truth"] = pair.nats
    kind = "discrete" if labels else "continuous"
    for budget in ("default", "fast"):
        start = time.process_time()
        found = mb.rank(x, y, kinds="continuous", target_kind=kind, budget=budget).columns[0]
        row[budget] = {
            "nats": found.nats, "interval": [found.low, found.high], "p": found.p_value,
            "method": found.method, "seconds": round(time.process_time() - start, 5),
        }  # fmt: skip
    theirs = mutual_info_classif if labels else mutual_info_regression
    start = time.process_time()
    row["scikit-learn"] = {"nats": float(theirs(x[:, None], y, random_state=0)[0])}
    row["scikit-learn"]["seconds"] = round(time.process_time() - start, 5)
    return row


def truths(out: Path, jobs: int, quick: bool) -> None:
    """Errors and coverage."""
    names = list(known())[:: 9 if quick else 1]
    rows = {200: 1} if quick else ROWS
    cells = [
        (name, n, FIRST_SEED + s) for n, seeds in rows.items() for name in names
        for s in range(seeds)
    ]  # fmt: skip
    path = out / "tables_truths.jsonl"
    found = complete_rows(path, ("pair", "n", "seed"), cells, measure_truth, jobs)
    groups = [(g, n) for n in rows for g in ("smooth", "rounded", "heavy", "labels", "all")]
    lines = [
        line
        for group, n in groups
        if (own := [r for r in found if r["n"] == n and group in (r["group"], "all")])
        for line in [{"group": group, "n": n, "cells": len(own)} | _summary(own)]
    ]
    write(out / "tables_truths.json", {
        "command": "python benchmarks/tables.py truths",
        "groups": lines,
        "acceptance": [
            {"what": f"error beside scikit-learn's, {line['group']}, {line['n']} rows",
             "goal": "< 1", "measured": round(line["error"] / line["sklearn_error"], 3),
             "holds": line["error"] < line["sklearn_error"]}
            for line in lines
        ],
    })  # fmt: skip
    for line in lines:
        print(json.dumps(line))


def _summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    summary: dict[str, Any] = {}
    for way, prefix in (("default", ""), ("fast", "fast_"), ("scikit-learn", "sklearn_")):
        errors = [r[way]["nats"] - r["truth"] for r in rows]
        summary[f"{prefix}error"] = round(statistics.fmean(map(abs, errors)), 5)
        summary[f"{prefix}bias"] = round(statistics.fmean(errors), 5)
        if way != "scikit-learn":
            held = [
                r[way]["interval"][0] - 1e-9 <= r["truth"] <= r[way]["interval"][1] + 1e-9
                for r in rows
            ]
            summary[f"{prefix}covered"] = round(statistics.fmean(held), 4)
    return summary


# --- times ---------------------------------------------------------------------------------------


def houses(n: int = 20_640) -> tuple[np.ndarray, np.ndarray]:
    """Eight columns of the shape of the California housing data: skewed, rounded, capped."""
    rng = np.random.default_rng(0)
    wealth = rng.normal(size=n)
    x = np.stack(
        [
            np.exp(0.5 * wealth + 0.5 * rng.normal(size=n)),
            np.clip(np.round(28 + 12 * rng.normal(size=n)), 1, 52),
            *(np.exp(a * wealth + rng.standard_t(3, size=n)) for a in (0.1, 0.2)),
            np.round(np.exp(7 + 0.7 * rng.normal(size=n))),
            np.exp(rng.normal(size=n) - 0.3 * wealth),
            *np.round(34 + 2 * np.sign(rng.normal(size=(2, n))) + rng.normal(size=(2, n)), 2),
        ],
        1,
    )
    return x, np.minimum(np.exp(0.5 * wealth + 0.4 * rng.normal(size=n)), 5.0)


def times(out: Path, quick: bool) -> None:
    """Rankings beside scikit-learn, in turns, on one thread."""
    import sklearn
    import torch
    from sklearn.datasets import load_breast_cancer
    from sklearn.feature_selection import mutual_info_classif, mutual_info_regression

    import mibounds as mb

    torch.set_num_threads(1)
    cancer = load_breast_cancer(return_X_y=True)
    sets: dict[str, tuple[Any, Any]] = {
        "breast cancer, 30 columns x 569": (cancer, mutual_info_classif),
        "houses, 8 columns x 20640": (houses(2000 if quick else 20_640), mutual_info_regression),
    }
    rows = []
    for name, ((x, y), theirs) in sets.items():
        calls = {
            "scikit-learn": lambda x=x, y=y, theirs=theirs: theirs(x, y),
            "default": lambda x=x, y=y: mb.rank(x, y),
            "fast": lambda x=x, y=y: mb.rank(x, y, budget="fast"),
            "selected": lambda x=x, y=y: mb.rank(x, y, given="selected"),
        }
        turns = time_in_turns(calls, 0.2 if quick else 6.0, rounds=3, patience=1 if quick else 60)
        ms = {way: round(statistics.median(own), 2) for way, own in turns.items()}
        ratio = round(ms["default"] / ms["scikit-learn"], 3)
        rows.append({"table": name, "ms": ms, "runs": {w: len(t) for w, t in turns.items()},
                     "ratio": ratio})  # fmt: skip
        print(json.dumps(rows[-1]))
    write(out / "tables_times.json", {
        "command": "python benchmarks/tables.py times",
        "scikit-learn": sklearn.__version__,
        "mibounds": mb.__version__,
        "rows": rows,
        "acceptance": [
            {"what": f"time of rank beside scikit-learn's, {row['table']}", "goal": "<= 1.5",
             "measured": row["ratio"], "holds": row["ratio"] <= 1.5}
            for row in rows
        ],
    })  # fmt: skip


# --- chance --------------------------------------------------------------------------------------


def chance(out: Path, quick: bool) -> None:
    """How often independent columns seem dependent, by kind, and false discoveries."""
    import mibounds as mb

    seeds, width = (1, 10) if quick else (20, 60)
    rows = []
    for n in (100, 1000):
        for kind in ("numbers", "ties", "labels and numbers", "labels"):
            p, found = [], 0
            for seed in range(FIRST_SEED, FIRST_SEED + seeds):
                rng = np.random.default_rng([seed, n])
                x, kinds = _independent(kind, n, width, rng)
                table = mb.matrix(x, kinds=kinds)
                p.append(table.p_values[np.triu_indices(width, 1)])
                found += int(table.significant()[np.triu_indices(width, 1)].sum() > 0)
            every = np.concatenate(p)
            rows.append({
                "columns": kind, "n": n, "pairs": len(every), "tables": seeds,
                "at_0.05": round(float((every <= 0.05).mean()), 4),
                "at_0.001": round(float((every <= 0.001).mean()), 5),
                "tables_with_a_discovery": found,
            })  # fmt: skip
            print(json.dumps(rows[-1]))
    worst = max(row["at_0.05"] for row in rows)
    write(out / "tables_chance.json", {
        "command": "python benchmarks/tables.py chance",
        "rows": rows,
        "acceptance": [{"what": "size of the test at 0.05", "goal": "<= 0.05",
                        "measured": worst, "holds": worst <= 0.05}],
    })  # fmt: skip


def _independent(kind: str, n: int, width: int, rng: np.random.Generator) -> tuple[Any, Any]:
    x: np.ndarray = rng.standard_t(3, size=(n, width))
    kinds = ["continuous"] * width
    if kind == "ties":
        x = np.round(x)
    if kind.startswith("labels"):
        half = width if kind == "labels" else width // 2
        x[:, :half] = np.floor(rng.random((n, half)) ** 2 * rng.integers(2, 6, size=half))
        kinds[:half] = ["discrete"] * half
    return x, kinds


# --- large ---------------------------------------------------------------------------------------


def columns(width: int, n: int, mixed: bool) -> tuple[np.ndarray, list[str]]:
    """Groups of ten columns that share a factor, some of them bent; a third are labels if mixed."""
    rng = np.random.default_rng(0)
    factors = np.repeat(rng.normal(size=(n, math.ceil(width / 10))), 10, 1)[:, :width]
    x = factors * rng.uniform(0.2, 1.5, size=width) + rng.normal(size=(n, width))
    x[:, 1::3] **= 3
    x[:, 2::5] = x[:, 2::5] ** 2
    kinds = ["continuous"] * width
    if mixed:
        x[:, ::3] = np.digitize(x[:, ::3], [-1, 0, 1])
        x[:, 4::7] = np.round(x[:, 4::7])
        kinds[::3] = ["discrete"] * len(kinds[::3])
    return x, kinds


CODE = """
import json, resource, sys, time
sys.path.insert(0, {folder!r})
import numpy as np
import mibounds as mb
from tables import columns
width, n, mixed, jobs = {width}, {n}, {mixed}, {jobs}
x, kinds = columns(width, n, mixed)
start = time.perf_counter()
found = mb.matrix(x, kinds=kinds, n_jobs=jobs, out={out!r})
seconds = time.perf_counter() - start
from joblib.externals.loky import get_reusable_executor
get_reusable_executor().shutdown()
used = sum(sum(resource.getrusage(who)[:2])
           for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
np.save({result!r}, found.nats)
way, seen = found.methods[found.places()], found.significant()[found.places()]
print(json.dumps(dict(seconds=seconds, cpu_seconds=used,
    neighbours=float((way == 1).mean()), dependent=float(seen.mean()),
    symmetric=bool(np.array_equal(found.nats, found.nats.T)))))
"""


def large(out: Path, jobs: int, quick: bool) -> None:
    """Matrices in processes of their own; each again, killed on the way and resumed."""
    rows = []
    sizes = ((1000, 1000, False, 120), (100, 10_000, True, 300))
    for width, n, mixed, goal in sizes:
        width = width // 10 if quick else width
        with tempfile.TemporaryDirectory() as folder:

            def run(
                name: str, folder: str = folder, width: int = width, n: int = n, mixed: bool = mixed
            ) -> subprocess.Popen:
                code = CODE.format(
                    folder=str(Path(__file__).parent), width=width, n=n, mixed=mixed, jobs=jobs,
                    out=f"{folder}/{name}", result=f"{folder}/{name}.npy",
                )  # fmt: skip
                return subprocess.Popen(
                    [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True,
                    start_new_session=True, env=os.environ | {"OMP_NUM_THREADS": "1"},
                )  # fmt: skip

            whole = run("once")
            shown, _ = whole.communicate()
            found = json.loads(shown)
            total = len(list(Path(folder, "once").glob("block-*")))
            killed = run("twice")
            while len(list(Path(folder, "twice").glob("block-*"))) < total // 3:
                time.sleep(0.05)
            os.killpg(killed.pid, signal.SIGKILL)
            killed.communicate()
            before = len(list(Path(folder, "twice").glob("block-*")))
            run("twice").communicate()
            once, twice = (np.load(f"{folder}/{name}.npy") for name in ("once", "twice"))
            pairs = width * (width - 1) // 2
            rows.append({
                "columns": width, "rows": n, "mixed": mixed, "pairs": pairs, "processes": jobs,
                "seconds": round(found["seconds"], 1),
                "cpu_seconds": round(found["cpu_seconds"], 1),
                "ms_of_a_pair": round(1e3 * found["cpu_seconds"] / pairs, 4),
                "neighbours": round(found["neighbours"], 4),
                "dependent": round(found["dependent"], 4),
                "symmetric": found["symmetric"], "load": round(os.getloadavg()[0], 1),
                "blocks": total, "blocks_before_the_kill": before,
                "same_after_the_kill": bool(np.array_equal(once, twice)), "goal_seconds": goal,
            })  # fmt: skip
            print(json.dumps(rows[-1]))
    write(out / "tables_large.json", {
        "command": f"python benchmarks/tables.py large --jobs {jobs}",
        "rows": rows,
        "acceptance": [
            {"what": f"{what} for {row['columns']} columns x {row['rows']}",
             "goal": f"<= {row['goal_seconds']}", "measured": value,
             "holds": value <= row["goal_seconds"]}
            for row in rows
            for what, value in (
                ("seconds on the wall, beside other work,", row["seconds"]),
                ("processor seconds of each process", round(row["cpu_seconds"] / jobs, 1)),
            )
        ],
    })  # fmt: skip


# --- pictures ------------------------------------------------------------------------------------


def pictures(out: Path) -> None:
    """Real data: 30 measurements of cell nuclei, and whether the tumour is malignant."""
    import matplotlib
    from sklearn.datasets import load_breast_cancer

    import mibounds as mb

    data: Any = load_breast_cancer(as_frame=True)
    target = data.target.map({0: "malignant", 1: "benign"}).rename("tumour")
    ranking = mb.rank(data.data, target, given="selected")
    table = mb.matrix(data.data.assign(tumour=target))
    drawn = {
        "ranking": lambda: ranking.plot(most=15),
        "matrix": table.plot,
        "network": lambda: table.plot_network(edges=40),
    }
    style: dict[Any, Any] = {"svg.hashsalt": "tables", "svg.fonttype": "none"}
    with matplotlib.rc_context(style):
        for name, draw in drawn.items():
            figure: Any = draw().figure
            with replacing(out / f"tables_{name}.svg") as part:
                figure.savefig(part, metadata={"Date": None})
    kept = dataclasses.replace(ranking, seconds=0.0)  # the same file on every machine
    write(out / "tables_cancer.json", kept.to_json(indent=1) + "\n")


def main() -> None:
    """Run one of them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("name", choices=("truths", "times", "chance", "large", "pictures"))
    parser.add_argument("--out", type=Path, default=Path("results/measure"))
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="few and small cells")
    args = parser.parse_args()
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    if args.name == "truths":
        truths(args.out, args.jobs, args.quick)
    elif args.name == "times":
        times(args.out, args.quick)
    elif args.name == "chance":
        chance(args.out, args.quick)
    elif args.name == "large":
        large(args.out, args.jobs, args.quick)
    else:
        pictures(args.out)


if __name__ == "__main__":
    main()
