"""`estimate` beside other packages on the same samples: error, coverage, seconds.

They need an environment of their own:

    python3 -m venv .venv-peers
    .venv-peers/bin/pip install torch==2.13.0 latentmi npeet-plus infomeasure scikit-learn rich
    PYTHONPATH=src .venv-peers/bin/python benchmarks/peers.py

The tasks are those of benchmarks/trust.py that had no part in choosing settings, with 1000 rows,
and two of its pairs of images with 4000. Each package runs as its documentation shows it:
latentmi and KSG as they are, scikit-learn where both sides have one column. Labels are given to
those that take them. npeet-plus is asked for its interval too, by 100 bootstraps, up to 20 columns.
Times are those of one thread, one after the other.

Each finished cell is a line of results/measure/peers.jsonl at once; a second start skips those.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import math
import os
import statistics
import time
import warnings
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

import numpy as np
from measurements import read_rows, write, write_rows
from rich.progress import track
from trust import FIRST_SEED, IMAGES, others

MOST = 20  # columns up to which a bootstrap takes seconds
SHOWN = ("MNIST 49 + 49, 2 labels", "MNIST 196 + 196, 2 labels")  # of the images
ROWS, SEEDS = 1000, 1
Value = tuple[float, list[float] | None]


def by_mibounds(x: np.ndarray, y: np.ndarray) -> Value:
    """The default."""
    import mibounds as mb

    found = mb.estimate(x, y)
    return found.nats, list(found.interval)


def by_latentmi(x: np.ndarray, y: np.ndarray) -> Value:
    """Learnt codes of 8 columns and KSG on them; its values are in bits."""
    lmi = import_module("latentmi.lmi")
    values, *_ = lmi.estimate(x, y)
    return float(np.nanmean(values)) * math.log(2), None


def by_npeet_plus(x: np.ndarray, y: np.ndarray) -> Value:
    """KSG, or its form for labels, with a bootstrap interval."""
    npeet = import_module("npeet_plus.estimators")
    if y.dtype.kind in "iu":
        return float(npeet.micd(x, y.reshape(-1, 1), base=math.e, warning=False)), None
    if x.shape[1] > MOST:
        return float(npeet.mi(x, y, base=math.e)), None
    value, low, high, _ = npeet.mi_confidence_interval(x, y, base=math.e, n_bootstraps=100)
    return float(value), [float(low), float(high)]


def by_infomeasure(x: np.ndarray, y: np.ndarray) -> Value:
    """KSG."""
    infomeasure = import_module("infomeasure")
    return float(infomeasure.mutual_information(x, y, approach="metric", base="e")), None


def by_scikit_learn(x: np.ndarray, y: np.ndarray) -> Value:
    """KSG of single columns, or its form for a label."""
    selection = import_module("sklearn.feature_selection")
    labels = y.dtype.kind in "iu"
    one = selection.mutual_info_classif if labels else selection.mutual_info_regression
    return float(one(x, y.ravel(), random_state=0)[0]), None


METHODS: dict[str, Callable[[np.ndarray, np.ndarray], Value]] = {
    "mibounds": by_mibounds,
    "latentmi": by_latentmi,
    "npeet-plus": by_npeet_plus,
    "infomeasure": by_infomeasure,
    "scikit-learn": by_scikit_learn,
}


def can(method: str, x: np.ndarray, y: np.ndarray) -> bool:
    """Whether a package takes such samples."""
    labels = y.dtype.kind in "iu"
    if x.dtype.kind in "iu" and labels:
        return method == "mibounds"
    if method == "scikit-learn":
        return x.shape[1] == 1 and y.shape[1] == 1
    return not labels or method in ("mibounds", "npeet-plus")


def measure(method: str, x: np.ndarray, y: np.ndarray) -> dict:
    """One value, or why there is none."""
    start = time.perf_counter()
    silent = contextlib.redirect_stdout(io.StringIO())  # some print every epoch
    with warnings.catch_warnings(), silent:
        warnings.simplefilter("ignore")
        try:
            nats, interval = METHODS[method](x, y)
        except Exception as error:  # of any package; the reason stands in its row
            return {"nats": None, "why": f"{type(error).__name__}: {error}"}
    return {"nats": nats, "interval": interval, "seconds": time.perf_counter() - start}


def summarise(rows: list[dict]) -> str:
    """A line for each package, over the tasks and over the images."""
    lines = [
        "| package | on | cells | mean absolute error | mibounds on these | largest error | "
        "covered | s |",
        "|---" * 8 + "|",
    ]
    ours = {(r["task"], r["seed"]): r for r in rows if r["method"] == "mibounds"}
    for on in ("tasks", "images"):
        for method in METHODS:
            own = [
                r
                for r in rows
                if r["method"] == method and (r["task"] in IMAGES) == (on == "images")
            ]
            own = [r for r in own if r["nats"] is not None]
            if not own:
                continue
            errors = [abs(r["nats"] - r["truth"]) for r in own]
            same = [ours[r["task"], r["seed"]] for r in own if (r["task"], r["seed"]) in ours]
            beside = statistics.mean(abs(r["nats"] - r["truth"]) for r in same)
            held = [
                r["interval"][0] <= r["truth"] <= r["interval"][1] for r in own if r["interval"]
            ]
            covered = f"{statistics.mean(held):.0%}" if held else ""
            seconds = statistics.mean(r["seconds"] for r in own)
            lines.append(
                f"| {method} | {on} | {len(own)} | {statistics.mean(errors):.3f} | {beside:.3f} | "
                f"{max(errors):.3f} | {covered} | {seconds:.1f} |"
            )
    return "\n".join(lines)


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("results/measure"))
    parser.add_argument("--methods", nargs="+", choices=list(METHODS), default=list(METHODS))
    parser.add_argument("--quick", action="store_true", help="two tasks, few rows")
    args = parser.parse_args()
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    import torch

    torch.set_num_threads(1)
    path = args.out / "peers.jsonl"
    rows = read_rows(path)
    write_rows(path, rows)
    done = {(r["task"], r["method"], r["seed"]) for r in rows}
    tasks = others()
    cells = [(t, FIRST_SEED + s) for s in range(1 if args.quick else SEEDS) for t in tasks]
    cells = cells[:2] if args.quick else [*cells, *((t, 0) for t in SHOWN)]
    with path.open("a") as file:
        for task, seed in track(cells, description="peers"):
            known = (tasks | IMAGES)[task]
            missing = [m for m in args.methods if (task, m, seed) not in done]
            if not missing:
                continue
            n = known.rows if task in IMAGES else 200 if args.quick else ROWS
            x, y = (np.asarray(v) for v in known.sample(n, seed=seed))
            x, y = (v.reshape(len(v), -1) for v in (x, y))
            for method in missing:
                if can(method, x, y):
                    row = {"task": task, "method": method, "seed": seed, "n": n}
                    row |= {"truth": known.mutual_information, **measure(method, x, y)}
                    rows.append(row)
                    file.write(json.dumps(row) + "\n")
                    file.flush()
    table = summarise(rows)
    write(path.with_suffix(".md"), table + "\n")
    about = {"command": "python benchmarks/peers.py", "rows": len(rows)}
    there = dict.fromkeys(r["method"] for r in rows if r["nats"] is not None)
    found = {m: version(m) for m in there if m != "mibounds"}
    write(path.with_suffix(".json"), about | {"versions": found})
    print(table)


if __name__ == "__main__":
    main()
