"""The simulation of ten seeds at once against one seed after the other, on the CPU.

    python benchmarks/seeds.py

Both take the same steps with the same numbers (tests/experiments/estimation/test_simulation.py):
the value on a fresh batch, then the update, at the settings of the paper. One thread works, and
times are its CPU time.
"""

import argparse
import sys
import time
from pathlib import Path

import torch
from measurements import write

from experiments import Cell
from experiments.estimation.simulation import METHODS, SimulationConfig, simulate
from experiments.estimation.speed import SpeedConfig, make_step

SEEDS = 10


def at_once(mode: str, method: str, steps: int) -> float:
    """Milliseconds of a step of one seed, ten at once."""
    cells = [Cell(mode, "gaussian", method, seed) for seed in range(SEEDS)]
    config = SimulationConfig(levels=(2.0,), steps=steps, last=1)
    simulate(cells, SimulationConfig(levels=(2.0,), steps=3, last=1))
    start = time.process_time()
    simulate(cells, config)
    return 1e3 * (time.process_time() - start) / steps / SEEDS


def one_at_a_time(mode: str, method: str, steps: int) -> float:
    """The same of one seed, as a loop with torch's Adam takes it."""
    config = SimulationConfig()
    settings = SpeedConfig(dim=config.dim, lr=config.lr, hidden=config.hidden)
    step = make_step(settings, Cell(mode, "batch", method, 0), config.batch_size, "cpu", fast=True)
    for _ in range(3):
        step()
    start = time.process_time()
    for _ in range(steps):
        step()
    return 1e3 * (time.process_time() - start) / steps


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3, help="turns of each; the best counts")
    parser.add_argument("--out", type=Path, default=Path("results/bench"))
    args = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for mode, registry in METHODS.items():
        for method in registry:
            turns = [
                (one_at_a_time(mode, method, args.steps), at_once(mode, method, args.steps))
                for _ in range(args.rounds)
            ]
            alone, together = map(min, zip(*turns, strict=True))
            ratio = alone / together
            rows.append(
                {"mode": mode, "method": method, "one_at_a_time_ms": alone,
                 "at_once_ms": together, "ratio": ratio}
            )  # fmt: skip
            print(f"{mode:12} {method:12} {ratio:5.1f} x", flush=True)
    result = {
        "command": " ".join(["python", "benchmarks/seeds.py", *sys.argv[1:]]),
        "torch": torch.__version__,
        "clock": "CPU time of one thread",
        "seeds": SEEDS,
        "steps": args.steps,
        "rows": rows,
    }
    write(args.out / "seeds_cpu.json", result)


if __name__ == "__main__":
    main()
