"""What a normalising layer at the end of an encoder changes when mutual information is minimised.

    python benchmarks/normalise.py

Four hidden variables, two of which are s, are mixed into 20 columns with noise. An encoder of two
layers has a code of 8 columns, from which a head predicts two functions of the other two variables.
There is one row per seed (of mixing, networks and samples) and variant: without the penalty, with
it, and with it and a `BatchNorm1d` without parameters after the encoder. "left" is the `estimate`
between s and the codes of new samples, in nats; "error" is the mean squared error of the task.
"""

import argparse
import sys
import warnings
from pathlib import Path

import torch
from measurements import write
from torch import Tensor, nn

import mibounds as mb

HIDDEN, COLUMNS, CODE, NOISE = 2, 20, 8, 0.3
VARIANTS = ("no penalty", "penalty", "penalty, normalised")


def sample(n: int, mixing: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The observations, the targets of the task, and s."""
    t, s = torch.randn(n, HIDDEN), torch.randn(n, HIDDEN)
    observed = torch.cat([t, s], 1) @ mixing + NOISE * torch.randn(n, COLUMNS)
    return observed, torch.stack([t[:, 0], t.prod(1)], 1), s


def train(variant: str, seed: int, steps: int, weight: float) -> dict[str, object]:
    """Train once, and measure what is left."""
    torch.manual_seed(seed)
    mixing = torch.randn(2 * HIDDEN, COLUMNS)
    layers = [nn.Linear(COLUMNS, 64), nn.ReLU(), nn.Linear(64, CODE)]
    if "normalised" in variant:
        layers.append(nn.BatchNorm1d(CODE, affine=False))
    encoder = nn.Sequential(*layers)
    head = nn.Sequential(nn.Linear(CODE, 32), nn.ReLU(), nn.Linear(32, 2))
    optimizer = torch.optim.Adam([*encoder.parameters(), *head.parameters()], lr=1e-3)
    penalty = mb.MIPenalty(mb.CLUB(CODE, HIDDEN), inner_steps=5)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", mb.PenaltyWarning)
        for _ in range(steps):
            v, wanted, s = sample(128, mixing)
            z = encoder(v)
            loss = (head(z) - wanted).square().mean()
            if variant != "no penalty":
                loss = loss + weight * penalty(z, s)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    encoder.eval()
    v, wanted, s = sample(4000, mixing)
    with torch.no_grad():
        z = encoder(v)
        error = (head(z) - wanted).square().mean().item()
    left = mb.estimate(z, s)
    return {
        "variant": variant,
        "seed": seed,
        "left": left.nats,
        "interval": list(left.interval),
        "error": error,
        "spread": z.std().item(),
        "warnings": sorted({str(w.message).partition(":")[0] for w in caught}),
    }


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--weight", type=float, default=0.1)
    parser.add_argument("--out", type=Path, default=Path("results/bench"))
    args = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for seed in range(args.seeds):
        for variant in VARIANTS:
            rows.append(row := train(variant, seed, args.steps, args.weight))
            print(row, flush=True)
    result = {
        "command": " ".join(["python", "benchmarks/normalise.py", *sys.argv[1:]]),
        "torch": torch.__version__,
        "steps": args.steps,
        "weight": args.weight,
        "rows": rows,
    }
    write(args.out / "normalise.json", result)


if __name__ == "__main__":
    main()
