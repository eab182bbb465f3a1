"""Is the information gone? What is left after training loops whose truth is known.

    python benchmarks/outcomes.py cases      # six loops, as users write them
    python benchmarks/outcomes.py sweep      # one loop, whose sizes, rates and encoder vary

The loops of ``cases``, with three seeds each:

    linear    s lies behind x; a linear encoder of (s, noise) with a penalty on I(x; z)
    sequence  the same for one x per sequence of z, as in voice conversion
    deep      a code of two layers, with nothing that normalises it, and two hidden variables s
    colour    digits in one of three colours, and a convolutional code with batch normalisation
    speakers  a code of two layers, and one of 50 speakers, in batches of 64
    larger    the same in batches of 512

``published`` is the class and the loop of the authors' code: their network, one optimiser for it,
a rate of 3e-4, five steps. "left" is the mutual information between s and the code of new samples,
in nats: in closed form for a linear encoder, otherwise the larger of what a linear and a
perceptron's q(s | z) certify, H(s) + E log q(s | z) on samples that neither has seen. "task" is the
error of the task, or its accuracy for digits. A failure is *silent* if more than 0.1 nats are left,
and the report of the penalty has no warning: on the last batches, or when it is asked with samples
of the trained encoder.
"""

import argparse
import itertools
import json
import math
import multiprocessing
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from measurements import write
from torch import Tensor, nn
from torch.nn import functional as F

import mibounds as mb
from experiments.estimation.as_published import AsPublishedCLUB, AsPublishedCLUBSample

FAILED = 0.1  # nats
S, NOISE, SPEAKERS = 4, 0.1, 50
PROBE_STEPS, PROBE_ROWS, TEST_ROWS = 600, 512, 8192
METHODS = ("none", "default", "club", "club_sample", "published", "published_sample")


def make(method: str, x_dim: int, y_dim: int = 0, labels: int = 0, **options: Any):
    """The penalty of a method, with the defaults of the library; None for none.

    Args:
        method: of `METHODS`.
        x_dim: columns of x.
        y_dim: columns of y.
        labels: values of y, if it is a label.
        **options: ``lr`` and ``hidden``.
    """
    hidden, lr = options.get("hidden"), options.get("lr")
    wide: dict[str, Any] = {} if hidden is None else {"hidden": hidden}
    if method == "none":
        return None
    if method == "default":  # with first parameters from torch's generator, as the others have
        wide = {} if hidden is None else {"hidden": (hidden, hidden)}
        return mb.MIPenalty(mb.Ratio(x_dim, y_dim or None, labels=labels or None, **wide), lr=lr)
    if method.startswith("published"):
        kind = AsPublishedCLUBSample if method.endswith("sample") else AsPublishedCLUB
        return mb.MIPenalty(kind(x_dim, y_dim, hidden or 64), lr=lr or 3e-4, adapt=False)
    kind = mb.CLUBSample if method == "club_sample" else mb.CLUB
    if labels:
        return mb.MIPenalty(kind(conditional=mb.Categorical(x_dim, labels, **wide)), lr=lr)
    return mb.MIPenalty(kind(x_dim, y_dim, **wide), lr=lr)


def finish(
    penalty: mb.MIPenalty | None, left: float, task: float, x: Tensor, y: Tensor
) -> dict[str, Any]:
    """A row: what is left, what the penalty says, and whether it is silent about it.

    Args:
        penalty: at the end of the training.
        left: nats.
        task: error or accuracy.
        x: samples of the trained encoder, with which the penalty is asked once more.
        y: samples or labels.
    """
    row = {"left": left, "task": task, "value": None, "warnings": [], "asked": []}
    if penalty is not None:
        report = penalty.report()
        row |= {"value": report.value, "warnings": [a.code for a in report.warnings]}
        row["asked"] = [a.code for a in penalty.report(x.detach(), y.detach()).warnings]
    failed = not left <= FAILED
    silent = {"silent": failed and not row["warnings"], "silent_asked": failed and not row["asked"]}
    return row | silent


def descend(loss: Tensor, optimizer: torch.optim.Optimizer) -> None:
    """A step of the user's optimiser."""
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


# --- the loops -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Loop:
    """Sizes and rates of a loop whose encoder sees s and noise; the code is not to tell s.

    Args:
        method: of `METHODS`.
        seed: of everything random.
        x_dim: columns of x, a linear map of s; 0 for s itself.
        z_dim: columns of the code.
        batch: samples per step; sequences of ``frames`` of them with frames above 1.
        frames: codes per x.
        hidden: units of q or of the classifier; None for the library's default.
        lr: rate of q or the classifier; None for the library's default.
        layers: of the encoder; 1 is a linear map.
        normalised: whether the encoder ends with batch normalisation without parameters.
        weight: of the penalty.
        encoder_lr: rate of the encoder.
        steps: of the training.
    """

    method: str = "default"
    seed: int = 0
    x_dim: int = 64
    z_dim: int = 16
    batch: int = 128
    frames: int = 1
    hidden: int | None = None
    lr: float | None = None
    layers: int = 1
    normalised: bool = False
    weight: float = 0.01
    encoder_lr: float = 1e-3
    steps: int = 1200


def run_loop(loop: Loop) -> dict[str, Any]:
    """Train a loop, and say what is left."""
    torch.manual_seed(loop.seed)
    mixing = torch.randn(S, loop.x_dim) / 2
    shown = torch.linalg.svd(mixing, full_matrices=False).U  # the part of s that x tells
    widths = [S + 12, *[64] * (loop.layers - 1), loop.z_dim]
    parts: list[nn.Module] = []
    for a, b in itertools.pairwise(widths):
        parts += [nn.Linear(a, b, bias=loop.layers > 1), nn.ReLU()]
    parts[-1] = nn.BatchNorm1d(loop.z_dim, affine=False) if loop.normalised else nn.Identity()
    encoder, decoder = nn.Sequential(*parts), nn.Linear(loop.z_dim + loop.x_dim, S + 12)
    optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=loop.encoder_lr)
    penalty = make(loop.method, loop.x_dim, loop.z_dim, hidden=loop.hidden, lr=loop.lr)
    frames = loop.frames
    count = max(1, loop.batch // frames)

    def draw(n: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        s = torch.randn(n, 1, S).expand(-1, frames, -1).reshape(-1, S)
        v = torch.cat([s, torch.randn(n * frames, 12)], -1)
        z = encoder(v)
        return s, s @ mixing, v, z + NOISE * torch.randn_like(z)

    error = torch.zeros(())
    for _ in range(loop.steps):
        _, x, v, z = draw(count)
        error = (decoder(torch.cat([z, x], -1)) - v).square().mean()
        loss = error
        if penalty is not None:
            if frames > 1:
                x, z = x.unflatten(0, (count, frames)), z.unflatten(0, (count, frames))
            loss = loss + loop.weight * penalty(x, z)
        descend(loss, optimizer)
    encoder.eval()
    frames = 1
    if loop.layers == 1:  # batch normalisation is a linear map too, after training
        with torch.no_grad():
            a = (encoder(torch.eye(S + 12)) - encoder(torch.zeros(1, S + 12))).double().T
        total = a @ a.T + NOISE**2 * torch.eye(loop.z_dim, dtype=a.dtype)
        told = a[:, :S] @ shown.double()
        left = 0.5 * (torch.logdet(total) - torch.logdet(total - told @ told.T)).item()
    else:

        def draw_shown(n: int) -> tuple[Tensor, Tensor]:
            s, _, _, z = draw(n)
            return s @ shown, z

        left = certify(draw_shown, shown.shape[1])
    _, x, _, z = draw(2 * TEST_ROWS)
    return finish(penalty, left, error.item(), x, z)


def run_linear(method: str, seed: int) -> dict[str, Any]:
    """The loop with a linear encoder and the sizes of `Loop`."""
    return run_loop(Loop(method, seed))


def run_sequence(method: str, seed: int) -> dict[str, Any]:
    """The same for sequences of 32 codes per x."""
    return run_loop(Loop(method, seed, batch=512, frames=32))


def run_deep(method: str, seed: int, weight: float = 0.1, steps: int = 3000) -> dict[str, Any]:
    """Two hidden variables t for the task, two (s) to remove, and an encoder of two layers."""
    torch.manual_seed(seed)
    mixing = torch.randn(4, 20)
    encoder = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 8))
    head = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 2))
    optimizer = torch.optim.Adam([*encoder.parameters(), *head.parameters()], lr=1e-3)
    penalty = make(method, 8, 2)

    def draw(n: int) -> tuple[Tensor, Tensor, Tensor]:
        t, s = torch.randn(n, 2), torch.randn(n, 2)
        v = torch.cat([t, s], 1) @ mixing + 0.3 * torch.randn(n, 20)
        return s, torch.stack([t[:, 0], t.prod(1)], 1), encoder(v)

    def error(wanted: Tensor, z: Tensor) -> Tensor:
        return (head(z) - wanted).square().mean()

    for _ in range(steps):
        s, wanted, z = draw(128)
        loss = error(wanted, z)
        descend(loss if penalty is None else loss + weight * penalty(z, s), optimizer)
    with torch.no_grad():
        task = error(*draw(TEST_ROWS)[1:]).item()
    s, _, z = draw(2 * TEST_ROWS)
    return finish(penalty, certify(lambda n: draw(n)[::2], 2), task, z, s)


def run_colour(method: str, seed: int, weight: float = 0.1, steps: int = 1500) -> dict[str, Any]:
    """Digits in a random colour, and a code that predicts the digit but not the colour."""
    from experiments.data import load

    torch.manual_seed(seed)
    train, test = (
        [torch.from_numpy(v.copy()) for v in (d.images, d.labels)]
        for d in (load("mnist", "train"), load("mnist", "test"))
    )
    encoder = nn.Sequential(
        nn.Conv2d(3, 16, 3, stride=2, padding=1), nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.ReLU(), nn.Flatten(),
        nn.Linear(32 * 49, 32), nn.BatchNorm1d(32, affine=False),
    )  # fmt: skip
    head = nn.Linear(32, 10)
    optimizer = torch.optim.Adam([*encoder.parameters(), *head.parameters()], lr=1e-3)
    penalty = None if method.startswith("published") else make(method, 32, labels=3)

    def paint(images: Tensor) -> tuple[Tensor, Tensor]:
        s = torch.randint(3, (len(images),))
        return (images[:, None] / 255) * (0.2 + 0.8 * torch.eye(3)[s])[:, :, None, None], s

    for _ in range(steps):
        rows = torch.randint(len(train[0]), (128,))
        v, s = paint(train[0][rows])
        z = encoder(v)
        loss = F.cross_entropy(head(z), train[1][rows].long())
        descend(loss if penalty is None else loss + weight * penalty(z, s), optimizer)
    encoder.eval()
    with torch.no_grad():
        v, s = paint(test[0])
        z = torch.cat([encoder(part) for part in v.split(1000)])
        accuracy = (head(z).argmax(1) == test[1]).float().mean().item()
    half = len(z) // 2
    pools = [(s[:half], z[:half]), (s[half:], z[half:])]

    def draw(n: int) -> tuple[Tensor, Tensor]:
        own_s, own_z = pools[n == TEST_ROWS]
        rows = torch.randint(half, (n,))
        return own_s[rows], own_z[rows]

    return finish(penalty, certify(draw, 3, labels=True), accuracy, z, s)


def run_speakers(method: str, seed: int, batch: int = 64) -> dict[str, Any]:
    """Two hidden variables for the task, and a voice that tells which of 50 speakers it is."""
    torch.manual_seed(seed)
    mixing, voices = torch.randn(8, 40), 1.5 * torch.randn(SPEAKERS, 4)
    encoder = nn.Sequential(nn.Linear(40, 64), nn.ReLU(), nn.Linear(64, 8))
    head = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 1))
    optimizer = torch.optim.Adam([*encoder.parameters(), *head.parameters()], lr=1e-3)
    penalty = make(method, 8, labels=SPEAKERS)

    def draw(n: int) -> tuple[Tensor, Tensor, Tensor]:
        s, t = torch.randint(SPEAKERS, (n,)), torch.randn(n, 4)
        v = torch.cat([t, voices[s] + 0.3 * torch.randn(n, 4)], 1) @ mixing
        return s, t[:, :1] * t[:, 1:2] + t[:, 2:3], encoder(v + NOISE * torch.randn_like(v))

    error = torch.zeros(())
    for _ in range(1500):
        s, wanted, z = draw(batch)
        error = (head(z) - wanted).square().mean()
        descend(error if penalty is None else error + 0.1 * penalty(z, s), optimizer)
    left = certify(lambda n: draw(n)[::2], SPEAKERS, labels=True)
    s, _, z = draw(2 * TEST_ROWS)
    return finish(penalty, left, error.item(), z, s)


def run_larger(method: str, seed: int) -> dict[str, Any]:
    """The same in batches of 512."""
    return run_speakers(method, seed, batch=512)


def certify(draw: Callable[[int], Sequence[Tensor]], columns: int, labels: bool = False) -> float:
    """What a fresh q(s | z) certifies of I(s; z); s is standard normal, or a uniform label.

    Args:
        draw: from a number to so many pairs (s, z).
        columns: of s, or the number of its values.
        labels: whether s is a label.
    """
    with torch.no_grad():
        _, z = draw(PROBE_ROWS * 16)
    mean, scale = z.mean(0), z.std(0) + 1e-6
    outputs = columns if labels else 2 * columns
    best = 0.0
    for hidden in ((), (128, 128)):
        layers = [z.shape[1], *hidden, outputs]
        net = nn.Sequential(*[
            m for a, b in itertools.pairwise(layers) for m in (nn.Linear(a, b), nn.SiLU())
        ][:-1])  # fmt: skip
        nn.init.zeros_(net[-1].weight)  # pyright: ignore[reportArgumentType]
        optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
        rates = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, PROBE_STEPS)

        def gain(pair: Sequence[Tensor], net: nn.Module = net) -> Tensor:
            s, out = pair[0], net((pair[1] - mean) / scale)
            if labels:
                return math.log(columns) - F.cross_entropy(out, s)
            at, log_scale = out.chunk(2, -1)
            log_q = -0.5 * ((s - at) * (-log_scale).exp()).square() - log_scale
            return (log_q + 0.5).sum(-1).mean()  # H(s) of each column is 1/2 + log √2π

        for _ in range(PROBE_STEPS):
            with torch.no_grad():
                pair = draw(PROBE_ROWS)
            descend(-gain(pair), optimizer)
            rates.step()
        with torch.no_grad():
            best = max(best, gain(draw(TEST_ROWS)).item())
    return best


# --- the table -----------------------------------------------------------------------------------

CASES: dict[str, Callable[[str, int], dict[str, Any]]] = {
    "linear": run_linear,
    "sequence": run_sequence,
    "deep": run_deep,
    "colour": run_colour,
    "speakers": run_speakers,
    "larger": run_larger,
}
LABELS = ("colour", "speakers", "larger")  # whose s is a label, which the authors' CLUB cannot take
ONE_BY_ONE: dict[str, tuple[Any, ...]] = {
    "hidden": (16, 64, 512), "x_dim": (1, 512), "z_dim": (1, 128, 512), "batch": (16, 1024, 4096),
    "lr": (1e-4, 3e-4, 1e-3, 1e-2), "layers": (2, 3, 4), "normalised": (True,),
    "weight": (0.1, 1.0),
}  # fmt: skip


def sweep(mixed: int) -> list[Loop]:
    """The loop itself, with one setting changed at a time, and with several at once."""
    base = Loop()
    loops = [base]
    loops += [replace(base, **{name: v}) for name, values in ONE_BY_ONE.items() for v in values]
    g = torch.Generator().manual_seed(0)
    for _ in range(mixed):
        picks = {}
        for name, values in ONE_BY_ONE.items():
            at = int(torch.randint(len(values) + 1, (), generator=g))
            picks[name] = (*values, getattr(base, name))[at]
        if picks["batch"] * max(picks["z_dim"], picks["x_dim"], picks["hidden"] or 1) > 2**20:
            picks["batch"] = 128  # what takes minutes is left out
        loops.append(replace(base, **picks))
    return loops


def train(arguments: tuple[dict[str, Any], Callable[..., dict[str, Any]], tuple[Any, ...]]):
    """One row: the facts of a training, and its outcome."""
    facts, run, settings = arguments
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", mb.PenaltyWarning)
    start = time.perf_counter()
    outcome = run(*settings)
    return {**facts, **outcome, "seconds": round(time.perf_counter() - start, 1)}


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("part", choices=("cases", "sweep"))
    parser.add_argument("--cases", nargs="+", default=list(CASES), choices=list(CASES))
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=METHODS)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--mixed", type=int, default=16, help="loops with several changes")
    parser.add_argument("--jobs", type=int, default=1, help="trainings side by side")
    parser.add_argument("--out", type=Path, default=Path("results/bench"))
    args = parser.parse_args()
    if args.part == "cases":
        jobs = [
            ({"case": case, "method": method, "seed": seed}, CASES[case], (method, seed))
            for case in args.cases for seed in range(args.seeds) for method in args.methods
            if not (case in LABELS and method.startswith("published"))
        ]  # fmt: skip
    else:
        loops = [
            replace(loop, method=method, seed=seed)
            for seed in range(args.seeds) for loop in sweep(args.mixed) for method in args.methods
        ]  # fmt: skip
        jobs = [(asdict(loop), run_loop, (loop,)) for loop in loops]
    path = args.out / f"outcomes_{args.part}.json"
    rows = json.loads(path.read_text())["rows"] if path.exists() else []
    wanted = [job for job in jobs if not any(job[0].items() <= row.items() for row in rows)]
    command = " ".join(["python", "benchmarks/outcomes.py", *sys.argv[1:]])
    with multiprocessing.get_context("spawn").Pool(args.jobs) as pool:
        for row in pool.imap_unordered(train, wanted):
            print(row, flush=True)
            rows.append(row)  # at once: an interrupted run goes on here
            write(path, {"command": command, "torch": torch.__version__, "rows": rows})


if __name__ == "__main__":
    main()
