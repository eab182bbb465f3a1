"""One pass over ten million samples on disk: is it exact, and does the memory stay small?

    python benchmarks/streaming.py

Writes x and y (correlated Gaussians, 20 columns each, float32) to a temporary folder, fits CLUB to
the first rows, and lets `mibounds.evaluate` read the memory maps in a process of its own, whose
peak resident memory counts (VmHWM: torch itself, and the pages of the file that are mapped, are in
it). Another process holds both arrays in memory and computes the same value in two passes, all of
it in float64. The folder is removed again, also if the run is interrupted.

Results go to results/bench/streaming.json.
"""

import argparse
import math
import os
import platform
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from measurements import in_child, megabytes, resident_mib, write
from rich.console import Console
from rich.progress import track
from rich.table import Table

import mibounds as mb

DIM, HIDDEN, BLOCK = 20, 64, 2**17
CORRELATION = 0.7


def make_samples(folder: Path, rows: int) -> None:
    """Two files of samples, written block by block."""
    rng = np.random.default_rng(0)
    x, y = (
        np.lib.format.open_memmap(folder / f"{name}.npy", "w+", np.float32, (rows, DIM))
        for name in "xy"
    )
    blocks = range(0, rows, BLOCK)
    for i in track(blocks, "writing", console=Console(stderr=True), transient=True):
        block = rng.standard_normal((min(BLOCK, rows - i), DIM), np.float32)
        noise = rng.standard_normal(block.shape, np.float32)
        x[i : i + BLOCK] = block
        y[i : i + BLOCK] = CORRELATION * block + math.sqrt(1 - CORRELATION**2) * noise
    x.flush()
    y.flush()


def fit_estimator(folder: Path, steps: int) -> None:
    """CLUB, fitted to the first rows; its parameters go beside the data."""
    torch.manual_seed(0)
    x, y = (
        torch.from_numpy(np.array(np.load(folder / f"{name}.npy", mmap_mode="r")[:BLOCK]))
        for name in "xy"
    )
    estimator = mb.CLUB(DIM, DIM, HIDDEN)
    mb.fit(estimator, x, y, steps=steps)
    torch.save(estimator.state_dict(), folder / "estimator.pt")


def load_estimator(folder: Path) -> mb.CLUB:
    """The fitted estimator, for reading values."""
    estimator = mb.CLUB(DIM, DIM, HIDDEN)
    estimator.load_state_dict(torch.load(folder / "estimator.pt"))
    return estimator.eval()


def stream(folder: Path) -> dict[str, Any]:
    """The value by one pass over the memory maps, to be run in a process of its own."""
    torch.set_num_threads(1)
    estimator = load_estimator(folder)
    start, before = time.perf_counter(), resident_mib()
    x, y = (np.load(folder / f"{name}.npy", mmap_mode="r") for name in "xy")
    result = mb.evaluate(estimator, (x, y))
    return {
        "nats": result.nats,
        "error": result.error,
        "samples": result.samples,
        "exact": result.exact,
        "seconds": round(time.perf_counter() - start, 2),
        "before_MB": megabytes(before),
        "peak_MB": megabytes(resident_mib()),
        "end_MB": megabytes(resident_mib("VmRSS")),
        "end_without_files_MB": megabytes(resident_mib("RssAnon")),
    }


def hold(folder: Path) -> dict[str, Any]:
    """The value with both arrays in memory, in float64: the equation, the sum over j in moments."""
    torch.set_num_threads(1)
    estimator = load_estimator(folder).double()
    start = time.perf_counter()
    x, y = (torch.from_numpy(np.load(folder / f"{name}.npy")) for name in "xy")
    n = len(x)
    first, second = (
        sum(part.double().pow(k).sum(0) for part in y.split(BLOCK)) / n for k in (1, 2)
    )
    total = 0.0
    with torch.no_grad():
        for x_part, y_part in zip(x.split(BLOCK), y.split(BLOCK), strict=True):
            q = estimator.conditional(x_part.double())
            own = (y_part.double() - q.mean).square()
            every = second - 2 * q.mean * first + q.mean.square()
            total += ((every - own) / (2 * q.variance)).sum().item()
    return {
        "nats": total / (n - 1),  # the own pair adds nothing, so n (n - 1) pairs share the sum
        "seconds": round(time.perf_counter() - start, 2),
        "peak_MB": megabytes(resident_mib()),
    }


def acceptance(result: dict[str, Any]) -> list[dict[str, Any]]:
    """The goals, and whether the measurements reach them."""
    peak, difference = result["streaming"]["peak_MB"], result["relative_difference"]
    return [
        {
            "what": "peak resident memory of the process that streams",
            "goal": "< 600 MB",
            "measured": peak,
            "holds": None if peak is None else peak < 600,
        },
        {
            "what": "relative difference to the value in memory",
            "goal": "<= 1e-06",
            "measured": difference,
            "holds": difference <= 1e-6,
        },
    ]


def stop(number: int, frame: object) -> None:
    """End as after Ctrl-C, so that the folder is removed."""
    raise KeyboardInterrupt


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--steps", type=int, default=500, help="of the fit")
    parser.add_argument("--quick", action="store_true", help="few rows and steps, as a check")
    parser.add_argument("--folder", type=Path, help="where the samples go, 160 bytes a row")
    parser.add_argument("--out", type=Path, default=Path("results/bench"))
    args = parser.parse_args()
    command = "python benchmarks/streaming.py"
    if args.quick:
        args.rows, args.steps, command = 200_000, 50, f"{command} --quick"
    else:
        for name in ("rows", "steps"):
            if getattr(args, name) != parser.get_default(name):
                command += f" --{name} {getattr(args, name)}"
    os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"  # of the children
    torch.set_num_threads(1)
    signal.signal(signal.SIGTERM, stop)
    try:
        with tempfile.TemporaryDirectory(prefix="mibounds-", dir=args.folder) as name:
            folder = Path(name)
            make_samples(folder, args.rows)
            fit_estimator(folder, args.steps)
            streaming = in_child(stream, folder)
            memory = in_child(hold, folder)
    except KeyboardInterrupt:
        sys.exit("interrupted; the samples are removed")
    result: dict[str, Any] = {
        "command": command,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "mibounds": mb.__version__,
        "device": "cpu, 1 thread",
        "rows": args.rows,
        "columns": [DIM, DIM],
        "data_MB": round(args.rows * 2 * DIM * 4 / 1e6, 1),
        "streaming": streaming,
        "in_memory": memory,
        "relative_difference": abs(streaming["nats"] - memory["nats"]) / abs(memory["nats"]),
    }
    result["acceptance"] = acceptance(result)
    write(args.out / "streaming.json", result)
    table = Table(title="goals")
    for column in ("what", "goal", "measured", "holds"):
        table.add_column(column)
    for row in result["acceptance"]:
        table.add_row(row["what"], row["goal"], f"{row['measured']:.3g}", str(row["holds"]))
    Console().print(table)


if __name__ == "__main__":
    main()
