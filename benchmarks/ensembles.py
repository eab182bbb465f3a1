"""Fitting many estimators at once: are the numbers those of one by one, and how much faster is it?

    python benchmarks/ensembles.py --device cpu
    python benchmarks/ensembles.py --device cuda

There is one row per method and batch size: the time of m fits one after another (measured for a few
and scaled) and at once, each the best of several runs, and the largest difference between the two
in any parameter, statistic or loss after 50 steps in float64. On the CPU it uses one thread and
counts the time of that thread, so that other work on the machine matters less. "agreement" compares
the plain step, on a GPU the recorded one, and the default with one by one, for every estimator and
every conditional, on small data. Exits with 1 if numbers differ.
"""

import argparse
import copy
import math
import platform
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from measurements import write
from torch import Tensor

import mibounds as mb
from mibounds.estimators import ConditionalEstimator, Estimator

TOLERANCE, GOALS = 1e-8, {"cpu": 8.0, "cuda": 100.0}
HIDDEN, SAMPLES, SEED = 64, 10_000, 0
DIMS = ((20, 20), (20, 5))
CONDITIONALS = (
    mb.Gaussian,
    mb.UnitGaussian,
    mb.FullGaussian,
    mb.LowRankGaussian,
    mb.GaussianMixture,
    mb.StudentT,
    mb.Categorical,
    mb.Bernoulli,
    mb.Flow,
    mb.Copula,
)


def seeds(m: int) -> list[torch.Generator]:
    """A generator for each of m estimators."""
    return [torch.Generator().manual_seed(10 + j) for j in range(m)]


def samples(
    n: int, dims: tuple[int, int], device: str, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Dependent Gaussian x and y."""
    g = torch.Generator().manual_seed(SEED)
    x, noise = (torch.randn(n, d, generator=g, dtype=dtype) for d in dims)
    y = x @ torch.randn(*dims, generator=g, dtype=dtype) / dims[0] ** 0.5 + noise
    return x.to(device), y.to(device)


def fit_alone(estimators: Sequence[Estimator], x: Tensor, y: Tensor, **kwargs) -> Tensor:
    """Fit one after another; returns the losses, (m, k)."""
    each = zip(estimators, seeds(len(estimators)), strict=True)
    losses = [mb.fit(e, x, y, seed=g, **kwargs) for e, g in each]
    return torch.tensor(losses, dtype=torch.float64)


def fit_at_once(estimators: Sequence[Estimator], x: Tensor, y: Tensor, **kwargs) -> Tensor:
    """Fit at once; returns the losses, (m, k)."""
    return mb.fit_many(estimators, x, y, seeds=seeds(len(estimators)), **kwargs)


def largest_difference(a: Sequence[Estimator], b: Sequence[Estimator]) -> float:
    """Between the parameters and statistics of two lists of estimators."""
    worst = 0.0
    for one, other in zip(a, b, strict=True):
        for name, value in one.state_dict().items():
            same = other.state_dict()[name]
            difference = (value.double() - same.double()).abs()
            difference[value == same] = 0.0  # infinities too
            if value.numel():
                worst = max(worst, difference.nan_to_num(nan=math.inf).max().item())
    return worst


def deviation(
    make: Callable[[], Estimator],
    x: Tensor,
    y: Tensor,
    m: int,
    alone: int,
    batch_size: int,
    graph: bool | None = None,
) -> float:
    """Largest difference between m fits at once and the first few of them one by one.

    Infinite if there was nothing to compare, because nothing was learnt.
    """
    torch.manual_seed(SEED)
    many = [make().to(x.device, torch.float64) for _ in range(m)]
    start, one = copy.deepcopy(many[:alone]), copy.deepcopy(many[:alone])
    together = fit_at_once(many, x, y, steps=50, batch_size=batch_size, graph=graph)
    losses = together[:alone] - fit_alone(one, x, y, steps=50, batch_size=batch_size)
    if largest_difference(start, one) < 1e-2:
        return math.inf
    return max(largest_difference(one, many[:alone]), losses.abs().max().item())


def agreement(make: Callable[[], Estimator], x: Tensor, y: Tensor) -> dict[str, float | str]:
    """Deviations of the plain step, the recorded step and the default from one by one."""
    result: dict[str, float | str] = {}
    for name, graph in (("plain", False), ("graph", True), ("default", None)):
        if graph and not x.is_cuda:
            continue
        try:
            result[name] = deviation(make, x, y, 3, 3, 16, graph)
        except ImportError:
            return {"skipped": "needs a package that is not installed"}
        except ValueError as error:
            if "never waits" not in str(error):
                raise
            result[name] = "not possible: the step waits for the GPU"
    return result


def seconds(action: Callable[[], object], device: str) -> float:
    """Time of an action: of this thread on the CPU, on the clock on a GPU."""
    clock = time.thread_time if device == "cpu" else time.perf_counter
    wait = torch.cuda.synchronize if device == "cuda" else (lambda: None)
    wait()
    start = clock()
    action()
    wait()
    return clock() - start


def measure(name: str, dims: tuple[int, int], batch_size: int, args: argparse.Namespace) -> dict:
    """A row of the result."""

    def make() -> Estimator:
        return mb.ESTIMATORS[name](*dims, HIDDEN)

    torch.manual_seed(SEED)
    many = [make().to(args.device) for _ in range(args.m)]
    few = many[: args.alone]
    x, y = samples(SAMPLES, dims, args.device, torch.float32)
    kwargs = {"steps": args.steps, "batch_size": batch_size}
    once = {"steps": min(args.steps, 20), "batch_size": batch_size}
    fit_alone(few[:1], x, y, **once)  # not counted: what happens once per process
    fit_at_once(many, x, y, **once)
    alone, together = [], []
    for _ in range(args.repeats):  # in turns, under the same conditions
        alone.append(seconds(lambda: fit_alone(few, x, y, **kwargs), args.device))
        together.append(seconds(lambda: fit_at_once(many, x, y, **kwargs), args.device))
    one_by_one, at_once = min(alone) * args.m / len(few), min(together)
    wide = samples(SAMPLES, dims, args.device, torch.float64)
    return {
        "method": name,
        "m": args.m,
        "x_dim": dims[0],
        "y_dim": dims[1],
        "batch_size": batch_size,
        "one_by_one_s": one_by_one,
        "one_by_one_from": f"{len(few)} of {args.m}, scaled",
        "at_once_s": at_once,
        "ratio": one_by_one / at_once,
        "deviation": deviation(make, *wide, args.m, len(few), batch_size),
    }


def compare(
    device: str, methods: Sequence[str], conditionals: Sequence[type]
) -> dict[str, dict[str, float | str]]:
    """Agreement of every estimator and every conditional, on small data."""
    x, y = samples(200, (4, 3), device, torch.float64)
    g = torch.Generator().manual_seed(SEED)
    labels = torch.randint(3, (200,), generator=g).to(device)
    bits = torch.randint(2, (200, 3), generator=g).to(device)
    kinds = {mb.Categorical: labels, mb.Bernoulli: bits}
    result = {name: agreement(lambda n=name: mb.ESTIMATORS[n](4, 3, 8), x, y) for name in methods}
    for q in conditionals:
        result[q.__name__] = agreement(
            lambda q=q: mb.CLUB(conditional=q(4, 3, hidden=8)), x, kinds.get(q, y)
        )
    return result


def accept(rows: list[dict], agreements: dict[str, dict], device: str) -> list[dict]:
    """The goals, what was measured, and whether they hold."""
    result = []
    which = "conditional-based estimators" if device == "cpu" else "estimators"
    goal = GOALS[device]
    for b in sorted({row["batch_size"] for row in rows}):
        kind = [r for r in rows if r["batch_size"] == b]
        if device == "cpu":
            kind = [r for r in kind if issubclass(mb.ESTIMATORS[r["method"]], ConditionalEstimator)]
        slowest = min(kind, key=lambda r: r["ratio"], default=None)
        if slowest is not None:
            result.append(
                {
                    "what": f"{slowest['m']} {which} at once on the {device}, "
                    f"batch size {b}: times faster than one by one, the least of all methods "
                    f"({slowest['method']}, {slowest['x_dim']} and {slowest['y_dim']} columns)",
                    "goal": f">= {goal:g}",
                    "measured": slowest["ratio"],
                    "holds": slowest["ratio"] >= goal,
                }
            )
    values = [row["deviation"] for row in rows]
    values += [v for each in agreements.values() for v in each.values() if isinstance(v, float)]
    # Every estimator's step has to be recorded.
    refused = any(isinstance(agreements.get(k, {}).get("graph"), str) for k in mb.ESTIMATORS)
    worst = max(values)
    result.append(
        {
            "what": "largest difference to the one-by-one fit after 50 steps in float64",
            "goal": f"<= {TOLERANCE:g}",
            "measured": worst,
            "holds": worst <= TOLERANCE and not refused,
        }
    )
    return result


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--device", choices=["cpu", "cuda"], required=True)
    parser.add_argument("--methods", nargs="+", choices=list(mb.ESTIMATORS))
    parser.add_argument("--quick", action="store_true", help="a few seconds, to see it run")
    parser.add_argument("--out", type=Path, default=Path("results/bench"))
    args = parser.parse_args()
    args.m, args.alone, args.steps, args.repeats = 64, 4, 200, 3
    batch_sizes, dims, conditionals = [64, 128], DIMS, CONDITIONALS
    if args.device == "cuda":
        args.alone, args.steps, batch_sizes, dims = 2, 1000, [64], DIMS[:1]
    command = f"python benchmarks/ensembles.py --device {args.device}"
    if args.methods is not None:
        command += f" --methods {' '.join(args.methods)}"
    else:  # on a CPU critics, busy with all pairs, gain little
        args.methods = [
            name
            for name, method in mb.ESTIMATORS.items()
            if args.device == "cuda" or issubclass(method, ConditionalEstimator)
        ]
    if args.quick:
        command += " --quick"
        args.methods, args.m, args.alone, args.steps, args.repeats = args.methods[:1], 4, 2, 10, 1
        batch_sizes, dims, conditionals = batch_sizes[:1], dims[-1:], conditionals[:1]
    torch.set_num_threads(1)
    agreements = compare(args.device, args.methods, conditionals)
    rows = []
    for name in args.methods:
        for each in dims:
            for b in batch_sizes:
                rows.append(row := measure(name, each, b, args))
                print(f"{name:12} {each} batch {b}: {row['ratio']:.1f} x", flush=True)
    on_gpu = args.device == "cuda"
    result = {
        "command": command,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name() if on_gpu else "cpu, 1 thread",
        "clock": "wall" if on_gpu else "time of the thread",
        "hidden": HIDDEN,
        "steps": args.steps,
        "acceptance": accept(rows, agreements, args.device),
        "rows": rows,
        "agreement": agreements,
    }
    path = args.out / f"ensembles_{'gpu' if on_gpu else 'cpu'}.json"
    write(path, result)
    for each in result["acceptance"]:
        print(f"{each['what']}: {each['measured']:.3g}, goal {each['goal']}")
    print(f"rows: {path}")
    sys.exit(not result["acceptance"][-1]["holds"])


if __name__ == "__main__":
    main()
