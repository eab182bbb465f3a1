"""Time of one step of each estimator against the equation as it is written.

    python benchmarks/steps.py --out results/bench

A step is the value and its gradient with respect to x, y and the parameters. "naive" is the same
value by the N x N x D tensor of all pairs (conditionals) or by repeating the samples N times
(critics). Both are timed in one run on one core; the ratio is what counts, for machines differ.
"""

import argparse
import json
import math
import os
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
from rich.progress import track
from torch import Tensor

import mibounds as mb
from mibounds import bounds
from mibounds.critics import score_pairs

DIM = 20
NAIVE = ("club", "l1out", "dv", "mine", "nwj", "infonce", "js", "smile")


def naive_value(name: str, estimator, x: Tensor, y: Tensor) -> Tensor:
    """The value by way of every pair, one by one."""
    if name in ("club", "l1out"):
        q = estimator.conditional(x)
        mean, variance = q.mean[:, None], q.variance[:, None]
        square = (y[None] - mean) ** 2 / variance
        scores = -0.5 * (square + variance.log() + math.log(2 * math.pi)).sum(-1)
        if name == "l1out":
            return bounds.l1out(scores)
        return bounds.club(scores.diagonal(), scores.mean(1))
    scores = score_pairs(lambda a, b: estimator.critic(a, b), x, y)
    if name == "infonce":
        return bounds.infonce(scores)
    if name == "smile":
        return bounds.smile(scores, estimator.clip)
    if name == "js":
        return bounds.tuba(scores, torch.zeros(len(x)))
    return {"dv": bounds.dv, "mine": bounds.dv, "nwj": bounds.nwj}[name](scores)


def milliseconds(value: Callable[[], Tensor], seconds: float) -> float:
    """Median time of value and gradient, over as many repetitions as the time allows."""
    value().backward()
    times, end = [], time.perf_counter() + seconds
    while len(times) < 3 or time.perf_counter() < end:
        start = time.perf_counter()
        value().backward()
        times.append(1e3 * (time.perf_counter() - start))
    return statistics.median(times)


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[32, 64, 128, 256, 512])
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=0.3, help="time for each measurement")
    parser.add_argument("--out", type=Path, default=Path("results/bench"))
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    rows = []
    cells = [(name, n) for name in mb.ESTIMATORS for n in args.sizes]
    for name, n in track(cells, description="timing"):
        estimator = mb.ESTIMATORS[name](DIM, DIM, args.hidden)
        x = torch.randn(n, DIM, requires_grad=True)
        y = torch.randn(n, DIM, requires_grad=True)
        if name == "ba" and n <= DIM:
            continue
        fast = milliseconds(lambda e=estimator, x=x, y=y: e(x, y), args.seconds)
        row = {"method": name, "n": n, "ms": fast, "naive_ms": None}
        if name in NAIVE:
            row["naive_ms"] = milliseconds(
                lambda m=name, e=estimator, x=x, y=y: naive_value(m, e, x, y), args.seconds
            )
        rows.append(row)
    result = {
        "command": "python benchmarks/steps.py",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "device": "cpu, 1 thread",
        "dim": DIM,
        "hidden": args.hidden,
        "rows": rows,
    }
    args.out.mkdir(parents=True, exist_ok=True)
    path = args.out / "steps.json"
    part = path.with_suffix(".part")
    part.write_text(json.dumps(result, indent=1) + "\n")
    os.replace(part, path)
    for row in rows:
        if row["naive_ms"] and row["n"] == max(args.sizes):
            print(f"{row['method']:8} N={row['n']}: {row['naive_ms'] / row['ms']:.1f} x naive")
    print(f"rows: {path}")


if __name__ == "__main__":
    main()
