"""Two embeddings of one input, content and style, that are to share nothing.

    python examples/disentangle.py

Each input is a pattern, one of five, whose size and tilt are its style, in 20 noisy numbers. The
pattern is to be told from the first embedding, the style from the second. Both are functions of the
same input: nothing keeps the one out of the other but a penalty on I(first; second), the mean of
both directions, as each q is blind to something else. Pattern and style are independent, so that
the penalty need not cost anything. The audit at the end starts from nothing, on new samples.
"""

import argparse
import json
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss

import mibounds as mb

PATTERNS, STYLE, V, NOISE = 5, 2, 20, 0.1
CONTENT_DIM, STYLE_DIM = 4, 3


def sample(n: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Inputs v, with their patterns and styles."""
    shapes = torch.randn(PATTERNS, V, generator=torch.Generator().manual_seed(0))
    pattern = torch.randint(PATTERNS, (n,), generator=generator)
    style = torch.randn(n, STYLE, generator=generator)
    size, tilt = style[:, :1], style[:, 1:]
    v = (1 + 0.3 * size) * shapes[pattern] + tilt * torch.linspace(-1, 1, V)
    return v + NOISE * torch.randn(n, V, generator=generator), pattern, style


def encoder(out: int) -> nn.Module:
    """A small network from the input to an embedding of unit scale."""
    return nn.Sequential(nn.Linear(V, 64), nn.ReLU(), nn.Linear(64, out), nn.BatchNorm1d(out))


class Model(nn.Module):
    """Two embeddings, and what is told from each.

    The noise on them leaves no room to hide what is to go in ever smaller digits.
    """

    def __init__(self):
        super().__init__()
        self.content, self.style = encoder(CONTENT_DIM), encoder(STYLE_DIM)
        self.tell_pattern = nn.Linear(CONTENT_DIM, PATTERNS)
        self.tell_style = nn.Linear(STYLE_DIM, STYLE)

    def forward(self, v: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """First and second embedding, logits of the patterns, style."""
        content, style = (z + NOISE * torch.randn_like(z) for z in (self.content(v), self.style(v)))
        return content, style, self.tell_pattern(content), self.tell_style(style)


def train(steps: int, weight: float, seed: int) -> tuple[Model, mb.MIPenalty]:
    """With a penalty between the embeddings; a weight of 0 for none."""
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    model = Model()
    penalty = mb.MIPenalty(
        mb.CLUB(CONTENT_DIM, STYLE_DIM), backward=mb.CLUB(STYLE_DIM, CONTENT_DIM)
    )
    # Not Adam: when little is left to share, the gradient of the penalty is small and mostly noise
    # of q, and Adam blows it up to full steps. At 1e-3 it left 0.7 nats after 1500 steps with the
    # penalty, and 0.2 without. In `minimise.py`, without BatchNorm and noise, Adam is the safe one.
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for _ in range(steps):
        v, pattern, true_style = sample(256, generator)
        content, style, logits, told = model(v)
        task = cross_entropy(logits, pattern) + mse_loss(told, true_style)
        loss = task + weight * penalty(content, style)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model, penalty


def measure(steps: int, weight: float, seed: int, rows: int) -> dict:
    """Train, then look at samples that were not seen."""
    model, penalty = train(steps, weight, seed)
    v, pattern, style = sample(rows, torch.Generator().manual_seed(seed + 1))
    with torch.no_grad():
        z_content, z_style, logits, told = model.eval()(v)
    options = {"budget": "fast", "seed": seed}
    return {
        "weight": weight,
        "accuracy": (logits.argmax(1) == pattern).float().mean().item(),
        "error of style": mse_loss(told, style).item(),
        "I(content; style)": penalty.audit(z_content, z_style, **options).nats,
        "I(content; true style)": mb.estimate(z_content, style, **options).nats,
        "I(style; pattern)": mb.estimate(z_style, pattern, y_kinds="discrete", **options).nats,
    }


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--weights", type=float, nargs="+", default=[0.0, 0.1])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="file for the rows")
    parser.add_argument("--quick", action="store_true", help="a run of seconds, for a first look")
    args = parser.parse_args()
    if args.quick:
        args.steps = 800
    torch.set_num_threads(1)  # batches are small: a second thread only waits
    held_out = 600 if args.quick else 4000
    rows = [measure(args.steps, weight, args.seed, held_out) for weight in args.weights]
    table = Table(*rows[0], title="Two embeddings, content and style; nats, on held-out samples")
    for row in rows:
        table.add_row(*(f"{value:.3f}" for value in row.values()))
    Console().print(table)
    if args.json:
        args.json.write_text(json.dumps(rows, indent=2))


if __name__ == "__main__":
    main()
