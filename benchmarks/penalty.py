"""What a penalty adds to a training step, and whether it survives a long one.

    python benchmarks/penalty.py overhead --device cpu    -> results/bench/penalty_cpu.json
    python benchmarks/penalty.py overhead --device cuda   -> results/bench/penalty_cuda.json
    python benchmarks/penalty.py soak                     -> results/bench/penalty_soak.json

Overhead: the step of a classifier on the paper's encoder of nine convolutions (28 x 28 images, CLUB
supplement, table of architectures), with and without one penalty, in turns: bounds with one
inner step, and the default as it is. Soak: 100000 steps of an encoder whose data, and the
information they share, keep changing, half of them with CLUBSample and half with the default.

On a GPU also: a whole training step in one graph of the user's own, with ``capturable=True``,
beside a loop whose penalty is recorded and nothing else.
"""

import argparse
import math
import platform
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from measurements import resident_mib, time_in_turns, write
from rich.console import Console
from rich.progress import Progress
from torch import Tensor, nn

import mibounds as mb
from mibounds.estimators.cuda_graphs import record_cuda_graph
from mibounds.minimise.alternation import start_optimizer

FEATURES, ATTRIBUTE, CLASSES = 64, 16, 10
BATCH = {"cpu": 64, "cuda": 512}
KINDS: dict[str, Callable[[int, int], mb.Estimator]] = {
    "CLUB": mb.CLUB, "CLUBSample": mb.CLUBSample,
    "default": mb.Ratio, "default, one step": mb.Ratio,
}  # fmt: skip
INNER = {"CLUB": 1, "CLUBSample": 1, "default": 5, "default, one step": 1}


def make_encoder() -> nn.Sequential:
    """Three blocks of three convolutions with 64 channels, then the mean over the image."""
    layers: list[nn.Module] = []
    channels = 3
    for block in range(3):
        for _ in range(3):
            layers += [nn.Conv2d(channels, FEATURES, 3, padding=1), nn.BatchNorm2d(FEATURES)]
            layers.append(nn.LeakyReLU(0.1, inplace=True))
            channels = FEATURES
        layers += [nn.MaxPool2d(2), nn.Dropout(0.5)] if block < 2 else []
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())


def make_step(penalty: mb.MIPenalty | None, device: str, batch: int) -> Callable[[], object]:
    """One step of training: forward, loss, backward, optimiser."""
    torch.manual_seed(0)
    encoder, head = make_encoder().to(device), nn.Linear(FEATURES, CLASSES, device=device)
    parameters = [*encoder.parameters(), *head.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=1e-3, fused=device == "cuda")
    images = torch.randn(batch, 3, 28, 28, device=device)
    labels = torch.randint(CLASSES, (batch,), device=device)
    attribute = torch.randn(batch, ATTRIBUTE, device=device)

    def step() -> None:
        z = encoder(images)
        loss = F.cross_entropy(head(z), labels)
        if penalty is not None:
            loss = loss + 0.1 * penalty(z, attribute)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def overhead(device: str, seconds: float) -> dict[str, Any]:
    """The step with a penalty over the step without."""
    batch = BATCH[device]
    calls = {"without": make_step(None, device, batch)}
    for name, estimator in KINDS.items():
        penalty = mb.MIPenalty(estimator(FEATURES, ATTRIBUTE), inner_steps=INNER[name]).to(device)
        calls[name] = make_step(penalty, device, batch)
    if device == "cpu":
        times = time_in_turns(calls, seconds, rounds=12, patience=math.inf)
    else:
        times = time_on_gpu(calls, rounds=15)
    rows = [
        {
            "penalty": name,
            "inner_steps": INNER.get(name),
            "ms": statistics.median(values),
            "over_without": statistics.median(
                a / b for a, b in zip(values, times["without"], strict=False)
            ),
            "runs": len(values),
        }
        for name, values in times.items()
    ]
    result: dict[str, Any] = {"device": device_name(device), "batch": batch, "rows": rows}
    if device == "cuda":
        result["recorded_differs"] = {name: recorded_difference(e) for name, e in KINDS.items()}
        result["captured"] = time_captured(128)
    return result


def recorded_difference(estimator: Callable[..., Any]) -> dict[str, float]:
    """Largest difference of parameters and gradients between recorded and plain calls."""
    g = torch.Generator("cuda").manual_seed(0)
    samples = [
        (torch.randn(64, 5, device="cuda", generator=g), torch.randn(64, 3, device="cuda"))
        for _ in range(20)
    ]
    found = []
    for graph in (False, None):
        torch.manual_seed(0)
        penalty = mb.MIPenalty(estimator(5, 3), graph=graph).to("cuda")
        gradients = []
        for x, y in samples:
            x = x.clone().requires_grad_()
            penalty(x, x[:, :3] + y).backward()
            gradients.append(x.grad)
        recorded = len(penalty.recorded_calls)
        found.append((torch.stack(gradients), [*penalty.parameters()], recorded))
    (a, p, _), (b, q, recorded) = found
    worst = max((u - v).abs().max().item() for u, v in zip(p, q, strict=True))
    return {"recordings": recorded, "parameters": worst, "gradients": (a - b).abs().max().item()}


def time_captured(batch: int) -> dict[str, Any]:
    """Milliseconds of a step whose penalty is recorded, and of one that is captured as a whole."""
    steps: dict[str, Callable[[], object]] = {}
    for name, own in (("penalty recorded", False), ("whole step captured", True)):
        torch.manual_seed(0)
        encoder, head = make_encoder().to("cuda"), nn.Linear(FEATURES, CLASSES, device="cuda")
        parameters = [*encoder.parameters(), *head.parameters()]
        optimizer = torch.optim.Adam(parameters, lr=1e-3, fused=True, capturable=own)
        estimator = mb.CLUBSample(FEATURES, ATTRIBUTE)
        penalty = mb.MIPenalty(estimator, inner_steps=1, adapt=False, capturable=own).to("cuda")
        images = torch.randn(batch, 3, 28, 28, device="cuda")
        labels = torch.randint(CLASSES, (batch,), device="cuda")
        attribute = torch.randn(batch, ATTRIBUTE, device="cuda")

        def step(
            encoder=encoder, head=head, optimizer=optimizer, penalty=penalty,
            images=images, labels=labels, attribute=attribute, parameters=parameters,
        ) -> None:  # fmt: skip
            z = encoder(images)
            loss = F.cross_entropy(head(z), labels) + 0.1 * penalty(z, attribute)
            gradients = torch.autograd.grad(loss, parameters)
            for p, g in zip(parameters, gradients, strict=True):
                p.grad = g
            optimizer.step()

        steps[name] = step
        if own:
            start_optimizer(optimizer)
            state = [*parameters, *encoder.buffers(), *penalty.tensors().values()]
            state += [v for s in optimizer.state.values() for v in s.values()]
            recorded = record_cuda_graph(step, state, [penalty.generator])
            if isinstance(recorded, RuntimeError):
                return {"error": str(recorded)}
            steps[name] = recorded
    times = time_on_gpu(steps, rounds=12)
    ms = {name: statistics.median(values) for name, values in times.items()}
    return {
        "batch": batch,
        "ms": ms,
        "times_as_fast": ms["penalty recorded"] / ms["whole step captured"],
    }


def time_on_gpu(calls: dict[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """Milliseconds per step, averaged over twenty in a row, in turns."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(rounds + 2):
        for name, call in calls.items():
            torch.cuda.synchronize()
            start = time.perf_counter()
            for _ in range(20):
                call()
            torch.cuda.synchronize()
            if turn >= 2:
                times[name].append(1e3 * (time.perf_counter() - start) / 20)
    return times


def soak(steps: int) -> dict[str, Any]:
    """Train on data whose scale, offset and dependence change; record values and memory."""
    torch.manual_seed(0)
    encoder = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 4))
    head = nn.Linear(4, 8)
    penalty = mb.MIPenalty(mb.CLUBSample(4, 3, 32), inner_steps=2, replay=2, average=0.9)
    optimizer = torch.optim.Adam([*encoder.parameters(), *head.parameters()], lr=1e-3)
    rows: list[dict[str, float]] = []
    bad = 0
    with Progress(console=Console(stderr=True)) as progress:
        for step in progress.track(range(steps), description="soak"):
            if step == steps // 2:
                penalty = mb.MIPenalty(4, 3, inner_steps=2)
            v, s = changing(step)
            z = encoder(v)
            value = penalty(z, s)
            loss = (head(z) - v).square().mean() / v.var() + 0.1 * value
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            bad += not loss.isfinite()
            if (step + 1) % (steps // 20) == 0:
                rows.append(
                    {
                        "step": step + 1,
                        "bound_nats": value.item(),
                        "loss": loss.item(),
                        "resident_mib": resident_mib("VmRSS") or math.nan,
                    }
                )
    finite = all(p.isfinite().all() for m in (encoder, head, penalty) for p in m.parameters())
    return {"steps": steps, "steps_not_finite": bad, "parameters_finite": finite, "rows": rows}


def changing(step: int) -> tuple[Tensor, Tensor]:
    """Samples whose scale, offset and shared part drift, with a jump every 10000 steps."""
    t = step / 1000
    scale = 10 ** (math.sin(t / 7) + (step // 10_000) % 3)
    v = torch.randn(64, 8)
    share = 0.5 + 0.5 * math.sin(t)
    s = share * v[:, :3] + (1.01 - share) * torch.randn(64, 3)
    return scale * v + 5 * scale * math.cos(t / 3), s


def device_name(device: str) -> str:
    """The machine, in words."""
    if device == "cuda":
        return torch.cuda.get_device_name()
    return f"{platform.machine()}, one core"


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["overhead", "soak"])
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--seconds", type=float, default=60, help="of each of the three steps")
    parser.add_argument("--steps", type=int, default=100_000, help="of the soak")
    parser.add_argument("--out", type=Path, default=Path("results/bench"))
    args = parser.parse_args()
    torch.set_num_threads(1)
    name = f"penalty_{'soak' if args.what == 'soak' else args.device}.json"
    result = soak(args.steps) if args.what == "soak" else overhead(args.device, args.seconds)
    command = f"python benchmarks/penalty.py {' '.join(sys.argv[1:])}"
    write(args.out / name, {"command": command, "torch": torch.__version__, **result})
    print(args.out / name)
    for row in result["rows"]:
        print(row)
    print(result.get("recorded_differs", ""))


if __name__ == "__main__":
    main()
