"""How long one training of the two real tasks takes, with a device to itself.

    python benchmarks/trainings.py --device cuda

A row is a method of the information bottleneck (200 epochs of MNIST) or of domain adaptation
(15000 steps of MNIST to USPS), by the equations and with one seed. CLUB and sampled CLUB have a
goal: for them the whole training is timed, with its tests and with reading the images from the
cache. For the others it is the difference between two short trainings, scaled to the whole. Exits
with 1 if a goal is missed on a GPU.
"""

import argparse
import platform
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from measurements import write

from experiments import EXPERIMENTS, Cell
from experiments.domain_adaptation.config import DomainAdaptationConfig
from experiments.information_bottleneck.config import BottleneckConfig
from experiments.runner.workers import pick_device

GOAL = 60.0  # seconds
EPOCHS, SHORT_EPOCHS = 200, (2, 6)
STEPS, SHORT_STEPS = 15000, (200, 600)
WHOLE = {"information-bottleneck": "club", "domain-adaptation": "club_sample"}
DATA = {"information-bottleneck": "mnist", "domain-adaptation": "mnist-usps"}


def configure(name: str, length: int, device: str, quick: bool) -> Any:
    """The settings of a training of so many epochs or steps."""
    if name == "information-bottleneck":
        config = BottleneckConfig(device=device, betas=(1e-3,), epochs=length)
        small = {"hidden": 16, "width": 4, "estimator_hidden": 8, "digits": 50, "holdout": 10,
                 "batch_size": 10, "samples": 2}  # fmt: skip
    else:
        config = DomainAdaptationConfig(device=device, steps=length, embedded=0)
        small = {"widths": (4, 4, 4), "q_hidden": (4,), "images": 40, "batch_size": 4, "points": 1}
    return replace(config, **small) if quick else config


def measure(name: str, method: str, args: argparse.Namespace) -> dict[str, Any]:
    """A row of the result."""

    def train(length: int) -> float:
        config = configure(name, length, args.device, args.quick)
        cell = Cell("correct", DATA[name], method, 0)
        start = time.perf_counter()
        EXPERIMENTS[name].run(config, [cell])
        return time.perf_counter() - start

    whole, short = (
        (EPOCHS, SHORT_EPOCHS) if name == "information-bottleneck" else (STEPS, SHORT_STEPS)
    )
    if args.quick:
        whole, short = 3, (1, 2)
    train(short[0])  # what happens once in a process is not counted
    row = {"experiment": name, "method": method, "length": whole}
    if method == WHOLE[name]:
        return {**row, "seconds": train(whole), "from": "the whole training"}
    first, second = map(train, short)
    scaled = (second - first) / (short[1] - short[0]) * whole
    return {**row, "seconds": scaled, "from": f"{short[1]} less {short[0]}, scaled"}


def accept(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The goals, what was measured, and whether they hold."""
    return [
        {
            "what": f"{row['experiment']}, {row['method']}: seconds of a training",
            "goal": GOAL,
            "measured": row["seconds"],
            "holds": row["seconds"] <= GOAL,
        }
        for row in rows
        if row["method"] == WHOLE[row["experiment"]]
    ]


def methods_of(name: str) -> list[str]:
    """All methods of an experiment, by the equations."""
    config = configure(name, 1, "cpu", quick=True)
    cells = EXPERIMENTS[name].cells(config)
    return list(dict.fromkeys(cell.method for cell in cells if cell.mode == "correct"))


def main() -> None:
    """Measure, print, and write results/bench/trainings_DEVICE.json."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--device", default=pick_device("auto"), choices=["cpu", "cuda"])
    parser.add_argument("--methods", nargs="*", help="some of them; all if left out")
    parser.add_argument("--quick", action="store_true", help="tiny networks, for a test")
    parser.add_argument("--out", type=Path, default=Path("results/bench"))
    args = parser.parse_args()
    known = {method for name in WHOLE for method in methods_of(name)}
    if unknown := set(args.methods or ()) - known:
        parser.error(
            f"Expected --methods among {', '.join(sorted(known))} but got "
            f"{', '.join(sorted(unknown))}; leave it out for all."
        )
    command = f"python benchmarks/trainings.py --device {args.device}"
    command += f" --methods {' '.join(args.methods)}" if args.methods else ""
    torch.set_num_threads(1)
    on_gpu = args.device == "cuda"
    about = {
        "command": command + (" --quick" if args.quick else ""),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name() if on_gpu else "cpu, 1 thread",
    }
    path = args.out / f"trainings_{args.device}.json"
    rows: list[dict[str, Any]] = []
    for name in WHOLE:
        for method in methods_of(name):
            if not args.methods or method in args.methods:
                rows.append(row := measure(name, method, args))
                print(f"{name}, {method}: {row['seconds']:.1f} s ({row['from']})", flush=True)
                write(path, {**about, "acceptance": accept(rows), "rows": rows})
    print(f"rows: {path}")
    sys.exit(on_gpu and not all(each["holds"] for each in accept(rows)))


if __name__ == "__main__":
    main()
