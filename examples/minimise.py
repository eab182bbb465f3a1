"""A nuisance taken out of an encoder: the penalty as one line of a plain training loop.

    python examples/minimise.py

A measurement v mixes a signal a, which is wanted, with a nuisance s, which is not. An encoder
z = W v is trained to tell a; nothing keeps s out of z but a penalty on I(z; s). As all is Gaussian
and linear, the mutual information that is really left is known. `train` has the penalty,
`train_by_hand` CLUB with two losses and two optimisers, as in the code of the CLUB paper, where
q(s|z) has to keep up with the encoder.
"""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from torch.nn.functional import mse_loss

import mibounds as mb

A, S, V, Z, NOISE = 4, 3, 16, 8, 0.5
MIXING = torch.randn(A + S, V, generator=torch.Generator().manual_seed(0)) / (A + S) ** 0.5


def sample(n: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Measurements v, with the signals a and the nuisances s in them."""
    sources = torch.randn(n, A + S, generator=generator)
    v = sources @ MIXING + NOISE * torch.randn(n, V, generator=generator)
    return v, sources[:, :A], sources[:, A:]


def train(steps: int, weight: float, lr: float, seed: int) -> tuple[nn.Module, nn.Module]:
    """With `MIPenalty`; a weight of 0 for the plain loop."""
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    encoder, head = nn.Linear(V, Z), nn.Linear(Z, A)
    penalty = mb.MIPenalty(Z, S)  # beside the model, with an optimiser of its own
    optimizer = torch.optim.Adam([*encoder.parameters(), *head.parameters()], lr=lr)
    for _ in range(steps):
        v, a, s = sample(256, generator)
        z = encoder(v)
        loss = mse_loss(head(z), a) + weight * penalty(z, s)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return encoder, head


def train_by_hand(steps: int, weight: float, lr: float, seed: int) -> tuple[nn.Module, nn.Module]:
    """With CLUB itself: what a penalty does for you, and what you have to keep in mind."""
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    encoder, head, club = nn.Linear(V, Z), nn.Linear(Z, A), mb.CLUB(Z, S)
    optimizer = torch.optim.Adam([*encoder.parameters(), *head.parameters()], lr=lr)
    q_optimizer = torch.optim.Adam(club.parameters(), lr=5e-3)
    for _ in range(steps):
        v, a, s = sample(256, generator)
        z = encoder(v)
        for _ in range(5):
            q_optimizer.zero_grad()  # also of what the bound below has left in q
            club.learning_loss(z.detach(), s).backward()  # detached: the encoder is not to help q
            q_optimizer.step()
        loss = mse_loss(head(z), a) + weight * club(z, s)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return encoder, head


def true_nats(encoder: nn.Linear) -> float:
    """I(z; s) = (log det C_z - log det C_z|s) / 2, from the known covariances."""
    w, mixing = encoder.weight.detach().double(), MIXING.double()
    noise = NOISE**2 * torch.eye(V, dtype=torch.float64)
    c, c_given_s = (w @ (m.T @ m + noise) @ w.T for m in (mixing, mixing[:A]))
    return 0.5 * (c.logdet() - c_given_s.logdet()).item()


def measure(name: str, loop: Callable, rows: int, *settings: float) -> dict:
    """Train, then look at samples that were not seen."""
    start = time.perf_counter()
    encoder, head = loop(*settings)
    seconds = time.perf_counter() - start
    v, a, s = sample(rows, torch.Generator().manual_seed(settings[-1] + 1))
    with torch.no_grad():
        z = encoder(v)
        error = mse_loss(head(z), a).item()
    return {
        "loop": name,
        "error of a": error,
        "true I(z; s)": true_nats(encoder),
        "estimate": mb.estimate(z, s, budget="fast").nats,
        "seconds": seconds,
    }


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--weight", type=float, default=0.1, help="of the penalty, per nat")
    parser.add_argument("--lr", type=float, default=1e-3, help="rate of the encoder")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="file for the rows")
    parser.add_argument("--quick", action="store_true", help="a run of seconds, for a first look")
    args = parser.parse_args()
    if args.quick:
        args.steps = 200
    torch.set_num_threads(1)  # batches are small: a second thread only waits
    loops = {"no penalty": (train, 0.0), "MIPenalty": (train, args.weight)}
    loops["CLUB by hand"] = (train_by_hand, args.weight)
    held_out = 600 if args.quick else 4000
    rows = [
        measure(name, loop, held_out, args.steps, weight, args.lr, args.seed)
        for name, (loop, weight) in loops.items()
    ]
    table = Table(*rows[0], title="A nuisance s taken out of z, in nats")
    for row in rows:
        table.add_row(*(f"{v:.3f}" if isinstance(v, float) else v for v in row.values()))
    Console().print(table)
    if args.json:
        args.json.write_text(json.dumps(rows, indent=2))


if __name__ == "__main__":
    main()
