"""Fitting many at once on a GPU: do graph, plain step and one by one agree, and what is gained?

    python benchmarks/ensembles.py --out results/bench/ensembles_gpu.json

A script for a machine with a GPU, which the tests do not have. Exits with 1 where numbers differ.
"""

from __future__ import annotations

import argparse
import copy
import json
import sys
import time
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

import mibounds as mb
from mibounds.ensembles import fit_many

TOLERANCE = 1e-8
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
)


def seeds(m):
    """A generator for each of m estimators."""
    return [torch.Generator().manual_seed(10 + j) for j in range(m)]


def deviation(one, other, *, parameters=False):
    """Largest difference between the states of two lists of estimators, and where it is."""
    worst, where = 0.0, ""
    for a, b in zip(one, other, strict=True):
        values = dict(a.named_parameters()) if parameters else a.state_dict()
        for name, value in values.items():
            same = b.state_dict()[name]
            difference = (value.detach().double() - same.double()).abs()
            difference[value == same] = 0.0  # infinities too
            largest = difference.nan_to_num(nan=float("inf")).max().item() if value.numel() else 0.0
            if largest > worst:
                worst, where = largest, name
    return worst, where


def agreement(make, x, y, steps):
    """Deviations from one by one of the plain and the recorded step, in float64."""
    torch.manual_seed(0)
    start = [make().to(x.device, torch.float64) for _ in range(3)]
    alone = copy.deepcopy(start)
    kwargs = {"steps": steps, "batch_size": 16}
    history = [mb.fit(e, x, y, generator=g, **kwargs) for e, g in zip(alone, seeds(3), strict=True)]
    result = {"moved": deviation(start, alone, parameters=True)[0]}
    for name, graph in (("plain", False), ("graph", True), ("default", None)):
        many = copy.deepcopy(start)
        try:
            losses = fit_many(many, x, y, generators=seeds(3), graph=graph, **kwargs)
        except ValueError as error:
            result[name] = str(error)
            continue
        result[name], result[f"{name}_where"] = deviation(alone, many)
        difference = losses - torch.tensor(history, dtype=torch.float64)
        result[f"{name}_loss"] = difference.abs().max().item()
    return result


def speed(make, x, y, *, m, alone, steps):
    """Seconds for m estimators one after another, extrapolated, and at once."""

    def clock(action):
        if x.is_cuda:
            torch.cuda.synchronize()
        start = time.perf_counter()
        action()
        if x.is_cuda:
            torch.cuda.synchronize()
        return time.perf_counter() - start

    def one_by_one(steps):
        for e, g in zip(many[:alone], seeds(alone), strict=True):
            mb.fit(e, x, y, steps=steps, batch_size=64, generator=g)

    def at_once(steps, graph):
        fit_many(many, x, y, steps=steps, batch_size=64, generators=seeds(m), graph=graph)

    many = [make().to(x.device) for _ in range(m)]
    one_by_one(20)  # what happens once in a process is not counted
    at_once(5, None)
    one = clock(lambda: one_by_one(steps)) / alone * m
    graph = min(clock(lambda: at_once(steps, None)) for _ in range(2))
    setup = clock(lambda: at_once(1, None))
    plain = clock(lambda: at_once(max(1, steps // 10), False)) * steps / max(1, steps // 10)
    return {
        "one_by_one_s": one,
        "at_once_s": graph,
        "of_it_setup_s": setup,
        "at_once_plain_s": plain,
        "ratio": one / graph,
        "ratio_plain": one / plain,
        "ms_a_step": 1e3 * graph / steps,
        "ms_a_step_of_one": 1e3 * one / steps / m,
    }


def main():
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="JSON file to write")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--estimators", type=int, default=64, help="for the times")
    parser.add_argument("--alone", type=int, default=2, help="how many of them one by one")
    parser.add_argument("--steps", type=int, default=1000, help="for the times")
    parser.add_argument("--only", nargs="*", default=list(mb.ESTIMATORS))
    args = parser.parse_args()
    device = torch.device(args.device)
    on_gpu = device.type == "cuda"
    report = {
        "command": "python benchmarks/ensembles.py --out results/bench/ensembles_gpu.json",
        "device": torch.cuda.get_device_name() if on_gpu else "cpu",
        "torch": torch.__version__,
        "settings": {k: v for k, v in vars(args).items() if k != "out"},
        "agreement": {},
        "speed": {},
    }

    def save():
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(json.dumps(report, indent=1))

    g = torch.Generator().manual_seed(0)
    x = torch.randn(200, 4, generator=g, dtype=torch.float64).to(device)
    y = x[:, :3] + torch.randn(200, 3, generator=g, dtype=torch.float64).to(device)
    cases = {name: (lambda c=mb.ESTIMATORS[name]: c(4, 3, 8), y) for name in args.only}
    for q in CONDITIONALS:
        target = {
            mb.Categorical: torch.randint(3, (200,), generator=g).to(device),
            mb.Bernoulli: torch.randint(2, (200, 3), generator=g).to(device),
        }.get(q, y)
        cases[q.__name__] = (lambda q=q: mb.CLUB(conditional=q(4, 3, hidden=8)), target)
    failed = []
    for name, (make, target) in cases.items():
        try:
            result = agreement(make, x, target, steps=50)
        except ImportError as error:
            result = {"skipped": str(error)}
        except Exception as error:
            result = {"error": f"{type(error).__name__}: {error}"}
            traceback.print_exc()
        report["agreement"][name] = result
        kinds = ["plain", "default"]
        if on_gpu and name in mb.ESTIMATORS:
            kinds.append("graph")  # every one of these has to be recorded
        values = [v for k in kinds for v in (result.get(k), result.get(f"{k}_loss"))]
        fine = all(isinstance(v, float) and v <= TOLERANCE for v in values)
        if "skipped" not in result and not (fine and result["moved"] > 1e-2):
            failed.append(name)
        print("agreement", name, result, "" if name not in failed else "FAILED", flush=True)
        save()

    x = torch.randn(10_000, 20, generator=g).to(device)
    y = x + torch.randn(10_000, 20, generator=g).to(device)
    for name in args.only:
        try:
            report["speed"][name] = speed(
                lambda name=name: mb.ESTIMATORS[name](20, 20, 64),
                x,
                y,
                m=args.estimators,
                alone=args.alone,
                steps=args.steps,
            )
        except Exception as error:
            report["speed"][name] = {"error": f"{type(error).__name__}: {error}"}
            traceback.print_exc()
            failed.append(f"speed of {name}")
        print("speed", name, report["speed"][name], flush=True)
        save()
    report["failed"] = failed
    save()
    print("failed:", failed or "none")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
