"""The classes of the authors' file beside ours: time, memory, and what is left after a loop.

    python benchmarks/moving.py PATH/TO/mi_estimators.py --sequences PATH/TO/OTHER/mi_estimators.py

The first is the file that accompanies the CLUB paper; the second, which can be left out, a later
copy that has the classes for sequences, ``CLUBSample_group`` and ``CLUBSample_reshape``, as voice
conversion uses them. Both are fetched by whoever runs this; neither is part of the repository.

``theirs`` is their class, ``names`` that of `mibounds.mi_estimators`, ``library`` that of
`mibounds`, with as many hidden units as take the same number of multiplications, for a learning
loss and its gradient: of H units there, 5/8 H.

- ``speed``: a value or a learning loss with its gradient, or the latter with a step of Adam, in
  microseconds of one core: medians of rounds in which all of them take turns.
- ``sequences``: the same for one x with a sequence, and for sequences on both sides.
- ``memory``: peak above that before the call, in a process of its own.
- ``left``: what a linear encoder's code shares with s in the end, in nats in closed form, after a
  loop as users write it: an optimiser of its own at 3e-4 and five steps for the estimator, weight
  0.01.
"""

import argparse
import importlib.util
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from measurements import in_child, resident_mib, write
from torch import Tensor, nn

import mibounds as mb
from mibounds import mi_estimators as names

SIZES = [(d, n) for d in (20, 256) for n in (32, 64, 128)]
HIDDEN = {20: 60, 256: 256}  # units of the authors' file
SEEDS = 3


def load(path: Path) -> ModuleType:
    """A file as a module."""
    spec = importlib.util.spec_from_file_location(f"file_{abs(hash(path))}", path)
    if spec is None or spec.loader is None:
        raise SystemExit(
            f"Expected a Python file but got {path}; pass the authors' mi_estimators.py."
        )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def in_turns(calls: dict[str, Callable[[], object]], rounds: int, inner: int) -> dict[str, Any]:
    """Median microseconds of each call, and its ratio to theirs in the same round."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(rounds + 1):
        for name, call in calls.items():
            start = time.process_time()
            for _ in range(inner):
                call()
            if turn:  # the first warms up
                times[name].append(1e6 * (time.process_time() - start) / inner)
    row: dict[str, Any] = {}
    for name, each in times.items():
        row[f"{name}_us"] = round(statistics.median(each), 1)
        if name != "theirs":
            ratios = [a / b for a, b in zip(each, times["theirs"], strict=True)]
            row[f"{name}_ratio"] = round(statistics.median(ratios), 3)
    return row


def verb(estimator: nn.Module, what: str, x: Tensor, y: Tensor) -> Callable[[], object]:
    """A call with its gradient: the learning loss, or the value as an encoder of x descends it."""
    x = x.clone().requires_grad_(what == "value")
    step = None
    if what == "step":
        step, what = torch.optim.Adam(estimator.parameters(), lr=1e-4).step, "learning_loss"
    method = estimator if what == "value" else getattr(estimator, what)
    sign = -1 if what == "loglikeli" else 1
    leaves = [x, *estimator.parameters()]

    def call() -> None:
        for leaf in leaves:
            leaf.grad = None
        (sign * method(x, y) if sign < 0 else method(x, y)).backward()
        if step is not None:
            step()

    return call


def speed(theirs: ModuleType, rounds: int) -> list[dict[str, Any]]:
    """Small batches on one core."""
    rows = []
    for d, n in SIZES:
        x, y = torch.randn(n, d), torch.randn(n, d)
        hidden = HIDDEN[d]
        for kind in ("CLUBSample", "CLUB"):
            made = {
                "theirs": getattr(theirs, kind)(d, d, hidden),
                "names": getattr(names, kind)(d, d, hidden),
                "library": getattr(mb, kind)(d, d, 5 * hidden // 8),
            }
            for what in ("value", "learning_loss", "step"):
                made["library"].learning_loss(x, y)
                calls = {name: verb(e, what, x, y) for name, e in made.items()}
                row = {"kind": kind, "what": what, "d": d, "n": n}
                rows.append(row | in_turns(calls, rounds, 10))
                print(rows[-1], flush=True)
    return rows


def sequences(theirs: ModuleType, rounds: int) -> list[dict[str, Any]]:
    """One x with a sequence y, and both: B 32, T 64, the shapes of voice conversion."""
    rows, b, t = [], 32, 64
    for kind, x_dim, single in (("CLUBSample_group", 256, True), ("CLUBSample_reshape", 64, False)):
        x = torch.randn(b, x_dim) if single else torch.randn(b, t, x_dim)
        y = torch.randn(b, t, 64)
        # As many products: h (x + 2h + 128) for one net, 512 (x + 512 + 64) for two of 256 units.
        half = (x_dim + 128) / 4
        width = int((half**2 + 256 * (x_dim + 576)) ** 0.5 - half)
        own = mb.CLUBSample(x_dim, 64, (width,) * 3, draw="sequences")
        made = {
            "theirs": getattr(theirs, kind)(x_dim, 64, 512),
            "names": getattr(names, kind)(x_dim, 64, 512),
            "library": own,
        }
        for what in ("value", "loglikeli"):
            own.learning_loss(x, y)
            calls = {
                name: verb(e, "mi_est" if what == "value" and name != "library" else what, x, y)
                for name, e in made.items()
            }
            row = {"kind": kind, "what": what, "b": b, "t": t}
            rows.append(row | in_turns(calls, max(3, rounds // 4), 2))
            print(rows[-1], flush=True)
    return rows


def peak(path: str, kind: str, whose: str, n: int, d: int) -> float:
    """Megabytes above those before, of a value and its gradient."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    source = {"theirs": lambda: load(Path(path)), "names": lambda: names, "library": lambda: mb}
    estimator = getattr(source[whose](), kind)(d, d, 64)
    x, y = torch.randn(8, d), torch.randn(8, d)
    verb(estimator, "value", x, y)()
    x, y = torch.randn(n, d), torch.randn(n, d)
    before = resident_mib("VmHWM") or 0.0
    verb(estimator, "value", x, y)()
    return round(((resident_mib("VmHWM") or 0.0) - before) * 1.048576, 1)


def memory(path: Path, n: int, d: int = 64) -> list[dict[str, Any]]:
    """Peak of what compares all pairs."""
    rows = []
    for kind in ("CLUB", "NWJ", "InfoNCE"):
        row: dict[str, Any] = {"kind": kind, "n": n, "d": d}
        for whose in ("theirs", "names", "library"):
            row[f"{whose}_mb"] = in_child(peak, str(path), kind, whose, n, d)
        rows.append(row)
        print(row, flush=True)
    return rows


def left(estimator: nn.Module | None, seed: int, steps: int, weight: float = 0.01) -> float:
    """Nats that the code of a linear encoder shares with s, after a loop as users write it."""
    g = torch.Generator().manual_seed(1000 + seed)
    mix = torch.randn(4, 64, generator=g) / 2
    encoder, decoder = nn.Linear(16, 16, bias=False), nn.Linear(16 + 64, 16)
    optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=1e-3)
    own = None if estimator is None else torch.optim.Adam(estimator.parameters(), lr=3e-4)
    for _ in range(steps):
        v = torch.randn(128, 16, generator=g)
        x = v[:, :4] @ mix
        z = encoder(v) + 0.1 * torch.randn(128, 16, generator=g)
        for _ in range(5 if own else 0):
            loss = estimator.learning_loss(x, z.detach())  # pyright: ignore
            own.zero_grad()  # pyright: ignore
            loss.backward()
            own.step()  # pyright: ignore
        loss = (decoder(torch.cat([z, x], 1)) - v).square().mean()
        if estimator is not None:
            loss = loss + weight * estimator(x, z)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    a = encoder.weight.detach().double()
    total = a @ a.T + 0.01 * torch.eye(16)
    return 0.5 * (torch.logdet(total) - torch.logdet(total - a[:, :4] @ a[:, :4].T)).item()


def outcomes(theirs: ModuleType, steps: int) -> list[dict[str, Any]]:
    """What is left with each class, three seeds."""
    rows = []
    for kind in ("CLUB", "CLUBSample"):
        for whose, source in (("theirs", theirs), ("names", names), ("library", mb)):
            for seed in range(SEEDS):
                torch.manual_seed(seed)
                estimator = getattr(source, kind)(64, 16, 64)
                rows.append({"kind": kind, "whose": whose, "seed": seed,
                             "left": left(estimator, seed, steps)})  # fmt: skip
                print(rows[-1], flush=True)
    for seed in range(SEEDS):
        torch.manual_seed(seed)
        rows.append({"kind": "none", "whose": "none", "seed": seed,
                     "left": left(None, seed, steps)})  # fmt: skip
    return rows


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("file", type=Path, help="the authors' mi_estimators.py")
    parser.add_argument("--sequences", type=Path, help="a copy with classes for sequences")
    parser.add_argument("--quick", action="store_true", help="a smoke test")
    parser.add_argument("--out", type=Path, default=Path("results/bench"))
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    theirs, rounds = load(args.file), 2 if args.quick else 60
    result: dict[str, Any] = {
        "command": "python benchmarks/moving.py mi_estimators.py"
        + (" --sequences other/mi_estimators.py" if args.sequences else "")
        + (" --quick" if args.quick else ""),
        "torch": torch.__version__,
        "machine": platform.machine(),
        "clock": "CPU time of one thread",
        "rounds": rounds,
        "speed": speed(theirs, rounds),
        "sequences": sequences(load(args.sequences), rounds) if args.sequences else [],
        "memory": memory(args.file, 64 if args.quick else 1024),
        "left": outcomes(theirs, 5 if args.quick else 1200),
    }
    write(args.out / "moving.json", result)


if __name__ == "__main__":
    main()
