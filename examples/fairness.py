"""A classifier whose representation is not to know an attribute: what fairness costs, in a table.

    python examples/fairness.py

A table of applicants is made on the spot: merit in some columns, a binary attribute s behind others
(proxies), and past decisions y that went by merit and, unfairly, by s. A network is trained to
predict y from the columns, s not among them, with several weights of a penalty on I(z; s), where z
is its last layer and q(s|z) is categorical. On rows that were not used: accuracy, the gap between
the groups in how many are accepted, and the mutual information that is left, estimated from nothing
by ``penalty.audit``. As y itself depends on s, less of it costs accuracy.
"""

import argparse
import json
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

import mibounds as mb

MERIT, PROXIES, Z, NOISE = 4, 4, 4, 0.3
COLUMNS = MERIT + PROXIES


def sample(n: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Columns v, decisions y and attribute s."""
    s = torch.randint(2, (n,), generator=generator)
    side = (2.0 * s - 1)[:, None]  # -1 or 1
    merit = torch.randn(n, MERIT, generator=generator)
    proxies = 0.8 * side + torch.randn(n, PROXIES, generator=generator)
    score = merit.sum(1) + 1.5 * side[:, 0] + torch.randn(n, generator=generator)
    return torch.cat([merit, proxies], 1), (score > 0).float(), s


class Encoder(nn.Sequential):
    """Columns -> z, of unit scale, with noise: no room to hide s in its smaller digits."""

    def __init__(self):
        super().__init__(
            nn.Linear(COLUMNS, 64), nn.ReLU(), nn.Linear(64, Z), nn.BatchNorm1d(Z, affine=False)
        )

    def forward(self, v: Tensor) -> Tensor:
        """z; random in use too, as the audit is of what is used."""
        z = super().forward(v)
        return z + NOISE * torch.randn_like(z)


def train(
    data: tuple[Tensor, ...], steps: int, weight: float, seed: int
) -> tuple[nn.Module, nn.Module, mb.MIPenalty]:
    """A classifier of y with a penalty on I(z; s); a weight of 0 for none."""
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    body, head = Encoder(), nn.Linear(Z, 1)
    penalty = mb.MIPenalty(mb.CLUB(conditional=mb.Categorical(Z, classes=2)))
    optimizer = torch.optim.Adam([*body.parameters(), *head.parameters()], lr=1e-3)
    for _ in range(steps):
        rows = torch.randint(len(data[0]), (256,), generator=generator)
        v, y, s = (column[rows] for column in data)
        z = body(v)
        loss = binary_cross_entropy_with_logits(head(z)[:, 0], y) + weight * penalty(z, s)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return body.eval(), head, penalty


def measure(data, held_out, steps: int, weight: float, seed: int, budget: str) -> dict:
    """Train, then look at the rows that were not used."""
    body, head, penalty = train(data, steps, weight, seed)
    v, y, s = held_out
    with torch.no_grad():
        z = body(v)
        accepted = head(z)[:, 0] > 0
        bound = penalty.bound(z, s).item()
    audit = penalty.audit(z, s, budget=budget, seed=seed)
    return {
        "weight": weight,
        "accuracy": (accepted == y.bool()).float().mean().item(),
        "gap": (accepted[s == 1].float().mean() - accepted[s == 0].float().mean()).item(),
        "CLUB": bound,
        "I(z; s)": audit.nats,
        "from": audit.interval[0],
        "to": audit.interval[1],
    }


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--weights", type=float, nargs="+", default=[0.0, 0.3, 1.0, 3.0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="file for the rows")
    parser.add_argument("--quick", action="store_true", help="a run of seconds, for a first look")
    args = parser.parse_args()
    size, budget = 20_000, "default"
    if args.quick:
        args.steps, args.weights, size, budget = 200, [0.0, 1.0], 2400, "fast"
    torch.set_num_threads(1)  # batches are small: a second thread only waits
    generator = torch.Generator().manual_seed(args.seed)
    data, held_out = sample(size, generator), sample(size // 4, generator)
    rows = [
        measure(data, held_out, args.steps, weight, args.seed, budget) for weight in args.weights
    ]
    table = Table(*rows[0], title="Accuracy against what z knows of s (of 0.693 nats)")
    for row in rows:
        table.add_row(*(f"{value:.3f}" for value in row.values()))
    Console().print(table)
    if args.json:
        args.json.write_text(json.dumps(rows, indent=2))


if __name__ == "__main__":
    main()
