"""Steps of torch-mist beside those of mibounds, in one process, in turns.

torch-mist needs numpy 1 and an environment of its own (pandas it needs but does not ask for):

    python3 -m venv .venv-mist
    .venv-mist/bin/pip install torch==2.13.0 torch-mist pandas rich 'numpy<2'
    PYTHONPATH=src .venv-mist/bin/python benchmarks/rivals.py

A step is the value and its gradient with respect to x, y and the parameters, on a new batch each
time (torch-mist keeps the results for the last one). Both have x and y of 20 columns, one hidden
layer of 64 units, all pairs of the batch, and for the critics the perceptron on x and y side by
side (``critic_type="joint"``). Times are CPU times of one thread. Memory is the peak of resident
memory above what there was before the step, in a process of its own for each row.

Results go to results/bench/torch_mist.json; benchmarks/steps.py draws them into its figure.
"""

import argparse
import math
import os
import platform
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from measurements import KeptRows, in_child, resident_mib, summary, time_in_turns
from rich.console import Console
from rich.progress import track
from torch import Tensor, nn

import mibounds as mb

DIM, HIDDEN = 20, 64
METHODS = ("club", "l1out", "nwj", "infonce")
SIZES = (64, 512, 1024, 2048, 4096)


def theirs(name: str) -> tuple[nn.Module, Callable[[Tensor, Tensor], Tensor]]:
    """The estimator of torch-mist, and its value."""
    from torch_mist import estimators  # pyright: ignore[reportMissingImports]

    options: dict[str, Any] = {"x_dim": DIM, "y_dim": DIM, "hidden_dims": [HIDDEN]}
    if name in ("nwj", "infonce"):  # all others, and all, are the negatives of mibounds too
        options |= {"critic_type": "joint", "neg_samples": -1 if name == "nwj" else 0}
    estimator = getattr(estimators, name)(**options)
    return estimator, estimator.mutual_information


def ours(name: str) -> tuple[nn.Module, Callable[[Tensor, Tensor], Tensor]]:
    """The estimator of mibounds, and its value."""
    estimator = mb.ESTIMATORS[name](DIM, DIM, HIDDEN)
    return estimator, estimator


def stepper(made: tuple[nn.Module, Callable[[Tensor, Tensor], Tensor]], n: int) -> Callable:
    """Value and gradients on a new batch; drawing it is a small part of the time."""
    module, value = made

    def step() -> None:
        x, y = (torch.randn(n, DIM, requires_grad=True) for _ in range(2))
        torch.autograd.grad(value(x, y), [x, y, *module.parameters()], allow_unused=True)

    return step


def measure(name: str, n: int, seconds: float) -> dict[str, Any]:
    """One row, to be run in a process of its own."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    calls, row = {}, {}
    for label, make in (("", ours), ("torch_mist_", theirs)):  # the larger one last
        made = make(name)
        stepper(made, 32)()
        calls[label] = stepper(made, n)
        before = resident_mib()
        calls[label]()
        after = resident_mib()
        if before is not None and after is not None:
            row[f"{label}MiB"] = round(after - before, 2)
    times = time_in_turns(calls, seconds, patience=20)
    for label, values in times.items():
        row |= summary(values, label)
    row["ratio"] = round(row["torch_mist_ms"] / row["ms"], 3)
    return row


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--memory", type=float, default=10, help="most GiB a step may take")
    parser.add_argument("--seconds", type=float, default=1.0, help="for each measurement")
    parser.add_argument("--quick", action="store_true", help="the smallest size, as a check")
    parser.add_argument("--out", type=Path, default=Path("results/bench"))
    args = parser.parse_args()
    try:
        mist = version("torch-mist")
    except ImportError:
        sys.exit("torch-mist is not installed; the beginning of this file says how.")
    os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"  # of the children
    settings = {
        "command": "python benchmarks/rivals.py" + " --quick" * args.quick,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "mibounds": mb.__version__,
        "torch_mist": mist,
        "device": "cpu, 1 thread",
        "dim": DIM,
        "hidden": HIDDEN,
    }
    record = KeptRows(args.out / "torch_mist.json", settings)
    cells = [(name, n) for name in METHODS for n in (SIZES[:1] if args.quick else SIZES)]
    seconds = 0.01 if args.quick else args.seconds
    console = Console(stderr=True)
    for name, n in track(cells, "timing", console=console):
        if record.find("rows", method=name, n=n):
            continue
        row: dict[str, Any] = {"method": name, "n": n}
        before = [r for r in record.rows("rows") if r["method"] == name and "torch_mist_MiB" in r]
        gib = max((r["torch_mist_MiB"] / 1024 * (n / r["n"]) ** 2 for r in before[-1:]), default=0)
        if gib > args.memory:
            row |= {"ms": None, "torch_mist_ms": None, "skipped": f"predicted {math.ceil(gib)} GiB"}
        else:
            row |= in_child(measure, name, n, seconds)
        record.add("rows", row)
    record.finish(settings | {"rows": record.rows("rows")})
    for row in record.rows("rows"):
        ratio = f"{row['ratio']:.1f} x mibounds" if "ratio" in row else row["skipped"]
        print(f"{row['method']:8} N = {row['n']:5}: {ratio}")


if __name__ == "__main__":
    main()
