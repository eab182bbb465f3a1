"""Every estimator on samples of known mutual information: a table and a figure.

    python examples/demo.py --out out/demo

draws x and y from Gaussians that share a known number of nats, fits every estimator on one half of
the samples and evaluates it on the other; the upper bounds also with the known conditional.
"""

import argparse
import math
import time
from functools import partial
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

import mibounds as mb
from mibounds.tasks import CorrelatedGaussian, Task

COLOURS = {"upper": "tab:red", "lower": "tab:blue", "neither": "tab:gray"}


def measure(task: Task, samples: int, steps: int, seed: int) -> list[dict]:
    """One row for each estimator: value on held-out samples, its standard error, side, seconds."""
    x, y = task.sample(2 * samples, seed=seed)
    train, test = (x[:samples], y[:samples]), (x[samples:], y[samples:])
    names = {name: partial(cls, task.x_dim, task.y_dim) for name, cls in mb.ESTIMATORS.items()}
    for cls in (mb.CLUB, mb.CLUBSample, mb.L1Out, mb.VUB):
        names[f"{cls.__name__}, p(y|x) known"] = partial(cls, conditional=task.conditional)
    rows = []
    with Progress(console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task("fitting", total=len(names))
        for name, make in names.items():
            progress.update(bar, description=f"fitting {name}")
            torch.manual_seed(seed)
            start = time.perf_counter()
            estimator = make()
            mb.fit(estimator, *train, steps=steps, seed=seed)
            estimator.eval()
            with torch.no_grad():
                batches = zip(test[0].split(500), test[1].split(500), strict=True)
                values = torch.stack([estimator(a, b) for a, b in batches])
            rows.append(
                {
                    "method": name,
                    "estimate": values.mean().item(),
                    "error": values.std().item() / math.sqrt(len(values)),
                    "bound": estimator.side,
                    "seconds": time.perf_counter() - start,
                }
            )
            progress.advance(bar)
    return rows


def show(task: CorrelatedGaussian, rows: list[dict]) -> None:
    """Print the table."""
    truth = task.mutual_information
    table = Table(title=f"{task.dim} Gaussian pairs that share {truth:.3g} nats")
    for column, justify in (
        ("method", "left"),
        ("truth", "right"),
        ("estimate", "right"),
        ("side", "left"),
        ("seconds", "right"),
    ):
        table.add_column(column, justify=justify)
    for row in rows:
        table.add_row(
            row["method"],
            f"{truth:.2f}",
            f"{row['estimate']:.2f} ± {row['error']:.2f}",
            row["bound"],
            f"{row['seconds']:.1f}",
        )
    console = Console()
    console.print(table)
    console.print(
        f"CLUB is there to be minimised: with the exact conditional it is {task.club:.2f} here, "
        "and that is no error. VUB takes y for N(0, I), which in this task it is. A side holds "
        "under a condition (estimator.condition); for upper bounds, that q(y|x) is known or fitted "
        "well.",
        soft_wrap=True,
    )


def plot(task: Task, rows: list[dict], path: Path) -> None:
    """Draw the estimates around the truth."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4.5), layout="constrained")
    for i, row in enumerate(rows):
        axes.errorbar(
            row["estimate"], i, xerr=2 * row["error"], fmt="o", color=COLOURS[row["bound"]]
        )
    for side, colour in COLOURS.items():
        axes.plot([], [], "o", color=colour, label=side)
    axes.axvline(task.mutual_information, color="black", lw=1, label="truth")
    axes.set_yticks(range(len(rows)), [row["method"] for row in rows])
    axes.invert_yaxis()
    axes.set_xlabel("mutual information in nats, held-out samples (± 2 standard errors)")
    axes.legend(title="bound")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    plt.close(figure)


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nats", type=float, default=1.5, help="true mutual information")
    parser.add_argument("--dim", type=int, default=5, help="number of Gaussian pairs")
    parser.add_argument("--samples", type=int, default=5000, help="samples to fit, and to evaluate")
    parser.add_argument("--steps", type=int, default=1000, help="steps of each fit")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("out/demo"), help="folder of the figure")
    parser.add_argument("--quick", action="store_true", help="a run of seconds, for a first look")
    args = parser.parse_args()
    if args.quick:
        args.samples, args.steps = 1000, 20
    torch.set_num_threads(1)  # batches are small: a second thread only waits
    task = CorrelatedGaussian.from_mutual_information(args.dim, args.nats)
    rows = measure(task, args.samples, args.steps, args.seed)
    show(task, rows)
    plot(task, rows, args.out / "demo.png")
    print(f"figure: {args.out / 'demo.png'}")


if __name__ == "__main__":
    main()
