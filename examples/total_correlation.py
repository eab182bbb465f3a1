"""Total correlation of several embeddings, as a sum of bounds, beside its true value.

    python examples/total_correlation.py

Total correlation is what k variables know of each other in all. By the chain rule it is a sum of
mutual informations, each of which takes a penalty,

    TC(z_1, ..., z_k) = sum_i I(z_1 ... z_{i-1}; z_i)

Four views of one hidden cause are embedded, z_i = W_i v_i, so that each tells its own signal and,
but for the penalty, also the cause that they share. As all is Gaussian and linear, every term of
the sum is known.
"""

import argparse
import json
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from torch.nn.functional import mse_loss

import mibounds as mb

VIEWS, CAUSE, SIGNAL, V, Z, NOISE = 4, 2, 2, 8, 3, 0.5
# How each view mixes the cause, which is the same in all, and the signal, which is its own.
MIXING = torch.randn(VIEWS, CAUSE + SIGNAL, V, generator=torch.Generator().manual_seed(0)) / 2
MIXING[:, :CAUSE] *= 2


class TotalCorrelation(nn.Module):
    """A penalty for each term of the chain rule."""

    def __init__(self, dims: list[int]):
        super().__init__()
        self.terms = nn.ModuleList(
            mb.MIPenalty(mb.CLUB(sum(dims[:i]), dims[i])) for i in range(1, len(dims))
        )

    def forward(self, zs: list[Tensor]) -> Tensor:
        """The sum, in nats."""
        return sum(term(torch.cat(zs[:i], 1), zs[i]) for i, term in enumerate(self.terms, 1))


def sample(n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Views, (view, n, V), and the signals of each, (view, n, SIGNAL)."""
    cause = torch.randn(n, CAUSE, generator=generator).expand(VIEWS, -1, -1)
    signals = torch.randn(VIEWS, n, SIGNAL, generator=generator)
    noise = NOISE * torch.randn(VIEWS, n, V, generator=generator)
    return torch.cat([cause, signals], 2) @ MIXING + noise, signals


def embed(encoders: nn.ModuleList, views: Tensor) -> list[Tensor]:
    """Each view by its encoder."""
    return [encoder(view) for encoder, view in zip(encoders, views, strict=True)]


def train(steps: int, weight: float, seed: int) -> tuple[nn.ModuleList, nn.ModuleList, nn.Module]:
    """Encoders and heads that tell the signals; a weight of 0 for no penalty."""
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    encoders = nn.ModuleList(nn.Linear(V, Z) for _ in range(VIEWS))
    heads = nn.ModuleList(nn.Linear(Z, SIGNAL) for _ in range(VIEWS))
    total_correlation = TotalCorrelation([Z] * VIEWS)
    optimizer = torch.optim.Adam([*encoders.parameters(), *heads.parameters()], lr=1e-3)
    for _ in range(steps):
        views, signals = sample(256, generator)
        zs = embed(encoders, views)
        task = mse_loss(torch.stack(embed(heads, zs)), signals)
        loss = task + weight * total_correlation(zs)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return encoders, heads, total_correlation


def true_terms(encoders: nn.ModuleList) -> list[float]:
    """I(z_<i; z_i) = (log det C_<i + log det C_i - log det C_<=i) / 2, for i = 2 ... k."""
    w = torch.stack([encoder.weight.detach() for encoder in encoders]).double()
    mixing = MIXING.double()
    of_cause = (w @ mixing[:, :CAUSE].mT).flatten(0, 1)
    own = w @ (mixing[:, CAUSE:].mT @ mixing[:, CAUSE:] + NOISE**2 * torch.eye(V)) @ w.mT
    c = of_cause @ of_cause.T + torch.block_diag(*own)
    until = [c[: i * Z, : i * Z].logdet() for i in range(VIEWS + 1)]  # of the first i views
    alone = [c[i * Z : (i + 1) * Z, i * Z : (i + 1) * Z].logdet() for i in range(VIEWS)]
    return [0.5 * (until[i] + alone[i] - until[i + 1]).item() for i in range(1, VIEWS)]


def measure(steps: int, weight: float, seed: int, rows: int) -> list[dict]:
    """Train, then look at samples that were not seen: a row for each term, and one for the sum."""
    encoders, heads, total_correlation = train(steps, weight, seed)
    views, signals = sample(rows, torch.Generator().manual_seed(seed + 1))
    with torch.no_grad():
        zs = embed(encoders, views)
        error = mse_loss(torch.stack(embed(heads, zs)), signals).item()
    terms, truths = {}, true_terms(encoders)
    for i, term in enumerate(total_correlation.terms, 1):
        sides = torch.cat(zs[:i], 1), zs[i]
        audit = term.audit(*sides, budget="fast", seed=seed).nats
        values = {"true": truths[i - 1], "audit": audit, "CLUB": term.bound(*sides).item()}
        terms[f"I(z_<{i + 1}; z_{i + 1})"] = values
    terms["TC"] = {key: sum(term[key] for term in terms.values()) for key in values}
    start = {"weight": weight, "error": error}
    return [{**start, "term": name, **values} for name, values in terms.items()]


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--weights", type=float, nargs="+", default=[0.0, 0.03])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="file for the rows")
    parser.add_argument("--quick", action="store_true", help="a run of seconds, for a first look")
    args = parser.parse_args()
    if args.quick:
        args.steps = 150
    torch.set_num_threads(1)  # batches are small: a second thread only waits
    held_out = 600 if args.quick else 4000
    rows = [r for w in args.weights for r in measure(args.steps, w, args.seed, held_out)]
    table = Table(*rows[0], title="Total correlation of four embeddings, in nats")
    for row in rows:
        cells = (f"{v:.3f}" if isinstance(v, float) else v for v in row.values())
        table.add_row(*cells, end_section=row["term"] == "TC")
    Console().print(table)
    if args.json:
        args.json.write_text(json.dumps(rows, indent=2))


if __name__ == "__main__":
    main()
