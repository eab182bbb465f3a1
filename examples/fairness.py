"""A classifier whose representation is not to know an attribute: what fairness costs, in a table.

    python examples/fairness.py

A table of applicants is made on the spot: merit in some columns, a binary attribute s behind others
(proxies), and past decisions y that went by merit and, unfairly, by s. A network is trained to
predict y from the columns, s not among them, with several weights of a penalty on I(z; s), where z
is its last layer, or on I(z; s | y), what z tells of s beyond what the decision tells. On rows that
were not used: accuracy; the gap between the groups in how many are accepted, also among those with
the same decision (equalised odds); and the mutual information that is left, estimated from scratch
by ``penalty.audit``. As y itself depends on s, less of I(z; s) costs accuracy.
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
    data: tuple[Tensor, ...], steps: int, weight: float, given: bool, seed: int
) -> tuple[nn.Module, nn.Module, mb.MIPenalty]:
    """A classifier of y with a penalty on I(z; s), or given y; a weight of 0 for none."""
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    body, head = Encoder(), nn.Linear(Z, 1)
    penalty = mb.MIPenalty(Z, labels=2, given_labels=2 if given else 0)
    optimizer = torch.optim.Adam([*body.parameters(), *head.parameters()], lr=1e-3)
    for _ in range(steps):
        rows = torch.randint(len(data[0]), (256,), generator=generator)
        v, y, s = (column[rows] for column in data)
        z = body(v)
        loss = binary_cross_entropy_with_logits(head(z)[:, 0], y)
        loss = loss + weight * penalty(z, s, given=y.long() if given else None)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return body.eval(), head, penalty


def measure(
    data: tuple[Tensor, ...],
    held_out: tuple[Tensor, ...],
    steps: int,
    weight: float,
    given: bool,
    seed: int,
    budget: str,
) -> dict[str, object]:
    """Train, then look at the rows that were not used."""
    body, head, penalty = train(data, steps, weight, given, seed)
    v, y, s = held_out
    with torch.no_grad():
        z = body(v)
        accepted = head(z)[:, 0] > 0
    audits = [
        penalty.audit(z, s, budget=budget, seed=seed),
        penalty.audit(z, s, given=y.long(), budget=budget, seed=seed),
    ]
    return {
        "penalty on": "nothing" if weight == 0 else "I(z; s | y)" if given else "I(z; s)",
        "weight": weight,
        "accuracy": (accepted == y.bool()).float().mean().item(),
        "gap": between_groups(accepted, s),
        "gap given y": max(between_groups(accepted[y == k], s[y == k]) for k in (0, 1)),
        "I(z; s)": audits[0].nats,
        "I(z; s | y)": audits[1].nats,
    }


def between_groups(accepted: Tensor, s: Tensor) -> float:
    """How much more often one group is accepted than the other."""
    shares = [accepted[s == group].float().mean().item() for group in (0, 1)]
    return abs(shares[1] - shares[0])


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
    settings = [(w, given) for w in args.weights for given in ((False, True) if w else (False,))]
    rows = [
        measure(data, held_out, args.steps, *setting, args.seed, budget) for setting in settings
    ]
    table = Table(*rows[0], title="Accuracy against what z knows of s (of 0.693 nats)")
    for row in rows:
        table.add_row(*(f"{v:.3f}" if isinstance(v, float) else v for v in row.values()))
    Console().print(table)
    if args.json:
        args.json.write_text(json.dumps(rows, indent=2))


if __name__ == "__main__":
    main()
