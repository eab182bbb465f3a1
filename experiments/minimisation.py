"""Algorithm 1 where the truth is known in each step: how far down does every bound bring the MI?

x = sin θ a + cos θ b and y = cos θ a + sin θ b with standard normal a and b: in each of d columns x
and y are standard normal, with correlation sin 2θ. The encoder is the vector θ; the true mutual
information is -1/2 Σ log cos² 2θ. The marginals do not depend on θ, so that shrinking gains
nothing.

"gaussian-10" starts at 10 nats in 20 columns. "demo" is the setting of the authors' notebook on
minimisation (d = 2, 1.58 nats): in mode "as-published" with their network and their loop, in mode
"correct" with `MIPenalty`.
"""

from __future__ import annotations

import math
import statistics
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor, nn

from experiments.runner.base import Cell, Config, Experiment, Record
from experiments.runner.summaries import CellRow, Summary
from experiments.runner.workers import pick_device
from mibounds.conditionals import AsPublishedGaussian
from mibounds.estimators import CLUB, ESTIMATORS, CLUBSample
from mibounds.minimise.penalty import MIPenalty, PenaltyWarning

if TYPE_CHECKING:
    from jaxtyping import Float
    from matplotlib.figure import Figure

DEMO_SEEDS = 3  # at most: the notebook shows one figure
DEMO_ANGLE, DEMO_DIM, DEMO_BATCH, DEMO_RATE, DEMO_INNER = 0.55, 2, 100, 1e-4, 5
EVERY = 10  # steps between two points of a curve
LAST = 200  # steps at the end whose median is the error
COLOURS = {"upper": "tab:red", "lower": "tab:blue", "neither": "tab:gray"}


@dataclass(frozen=True)
class MinimisationConfig(Config):
    """Algorithm 1 on Gaussians.

    Attributes:
        dim: columns of x and of y.
        nats: true mutual information at the start.
        batch: samples per step.
        rate: learning rate of the encoder's Adam.
        inner_steps: steps of q per step of the encoder.
        steps: steps of the encoder.
        demo_steps: steps of the encoder in the authors' demo.
        goal: nats below which the mutual information counts as removed.
    """

    dim: int = 20
    nats: float = 10.0
    batch: int = 256
    rate: float = 1e-2
    inner_steps: int = 3
    steps: int = 1500
    demo_steps: int = 5000
    goal: float = 0.05


class Minimisation(Experiment[MinimisationConfig]):
    """True MI while each bound is minimised."""

    config = MinimisationConfig
    makes = "Algorithm 1: the true MI, known in each step, while every bound is minimised"
    costs = "10 seeds: some minutes on a GPU, three hours of one core"
    quick: ClassVar = {"seeds": 2, "steps": 15, "demo_steps": 15, "batch": 32}
    notes = """
"error" is the true mutual information at the end, in nats: the median over the last 200 steps. The
goal is 0.05. "seconds" is the time until the true value first falls below the goal, over the seeds
that get there. The learning rate of q is 5e-3, and `adapt` is off.

Under the lower bounds the true value swings: the critic loses sight of what is left, finds it when
it has grown, and drives it down again. In the demo the learning rate of the encoder, 1e-4, is the
limit: 5000 steps turn an angle of 0.55 by little more than 0.5 at best. The authors' loop starts
with a q that has learnt nothing, and the true value rises at first; theirs ended at 0.005. The
penalty's q is fitted from the first step on. Its gradient then falls with the mutual information,
and Adam, which remembers larger gradients, takes smaller steps.
"""

    def cells(self, config: MinimisationConfig) -> list[Cell]:
        """Every estimator on the large task; CLUB and sampled CLUB on the authors'."""
        seeds = range(config.seeds)
        main = [
            Cell("correct", f"gaussian-{config.nats:g}", m, s) for m in ESTIMATORS for s in seeds
        ]
        demo = [
            Cell(mode, "demo", method, seed)
            for mode in ("as-published", "correct")
            for method in ("club", "club_sample")
            for seed in seeds[:DEMO_SEEDS]
        ]
        return [*main, *demo]

    def run(self, config: MinimisationConfig, cells: Sequence[Cell]) -> list[list[CellRow]]:
        """Minimise; the rows are curves, the end, and when the goal was reached."""
        return [self._run(config, cell) for cell in cells]

    def _run(self, config: MinimisationConfig, cell: Cell) -> list[CellRow]:
        torch.manual_seed(cell.seed)
        demo = cell.task == "demo"
        if demo:
            steps, encoder = config.demo_steps, AngleEncoder(DEMO_DIM, DEMO_ANGLE, DEMO_BATCH)
        else:
            rho = math.sqrt(1 - math.exp(-2 * config.nats / config.dim))
            angle = math.asin(rho) / 2
            steps, encoder = config.steps, AngleEncoder(config.dim, angle, config.batch)
        encoder.to(pick_device(config.device))
        if cell.mode == "as-published":
            step = published_step(encoder, cell.method)
        else:
            rate, inner = (DEMO_RATE, DEMO_INNER) if demo else (config.rate, config.inner_steps)
            step = penalty_step(encoder, cell.method, rate, inner, cell.seed)
        start = time.perf_counter()
        truths, values = [encoder.nats], []
        reached: tuple[int, float] | None = None
        for number in range(1, steps + 1):
            values.append(step().item())
            truths.append(encoder.nats)
            if reached is None and truths[-1] < config.goal:
                reached = number, time.perf_counter() - start
        last = truths[-min(LAST, steps) :]
        end = statistics.median(last) if all(map(math.isfinite, last)) else math.nan
        found = {
            "error": end,
            **({} if reached is None else {"seconds": reached[1]}),
            "steps": None if reached is None else reached[0],
            "truth": [float(f"{v:.4g}") for v in truths[::EVERY]],
            "bound": [float(f"{v:.4g}") for v in values[::EVERY]],
        }
        return [{"task": cell.task, "metric": key, "value": v} for key, v in found.items()]

    def tables(self, config: MinimisationConfig, records: Sequence[Record]) -> str:
        """Steps to the goal, and how many seeds failed."""
        lines = [
            f"### Steps until the true MI is below {config.goal:g} nats, and failures at the end",
            "",
            "| mode | task | method | side | reached | median steps | failed at the end |",
            "|---|---|---|---|---|---|---|",
        ]
        groups: dict[tuple[str, str, str], list[dict[str, object]]] = {}
        for record in records:
            key = record.cell.mode, record.cell.task, record.cell.method
            groups.setdefault(key, []).append({r["metric"]: r["value"] for r in record.rows})
        for (mode, task, method), members in groups.items():
            steps = sorted(m["steps"] for m in members if m["steps"] is not None)  # pyright: ignore
            failed = sum(not _below(m["error"], config.goal) for m in members)
            side = ESTIMATORS[method](1, 1).side
            median = f"{statistics.median(steps):.0f}" if steps else "-"
            n = len(members)
            lines.append(
                f"| {mode} | {task} | {method} | {side} | {len(steps)} of {n} | {median} "
                f"| {failed} of {n} |"
            )
        return "\n".join(lines)

    def draw(
        self,
        config: MinimisationConfig,
        records: Sequence[Record],
        summary: Sequence[Summary],
    ) -> dict[str, Figure]:
        """True MI and bound against the step, one panel per estimator."""
        from matplotlib.figure import Figure

        panels = list(dict.fromkeys((r.cell.task, r.cell.mode, r.cell.method) for r in records))
        columns = min(6, len(panels))
        figure = Figure(figsize=(2.3 * columns, 2.2 * -(-len(panels) // columns)), layout="tight")
        axes = figure.subplots(-(-len(panels) // columns), columns, squeeze=False).flatten()
        for ax in axes[len(panels) :]:
            ax.set_axis_off()
        for ax, (task, mode, method) in zip(axes, panels, strict=False):
            colour = COLOURS[ESTIMATORS[method](1, 1).side]
            for record in records:
                if (record.cell.task, record.cell.mode, record.cell.method) == (task, mode, method):
                    rows = {row["metric"]: row["value"] for row in record.rows}
                    for key, style in (("bound", {"color": colour, "alpha": 0.25}),
                                       ("truth", {"color": "black", "lw": 0.9})):  # fmt: skip
                        y = [math.nan if v is None else max(v, 1e-4) for v in rows[key]]
                        ax.plot([EVERY * i for i in range(len(y))], y, **style)
            ax.axhline(config.goal, color="tab:green", lw=0.8, ls="--")
            ax.set_yscale("log")
            ax.set_ylim(1e-3, 50)
            ax.set_title(f"{method}, {task}\n{mode}", fontsize=8)
            ax.tick_params(labelsize=7)
        return {"minimisation": figure}


class AngleEncoder(nn.Module):
    """Gaussians whose correlations are sin 2θ, one angle per column.

    Args:
        dim: columns of x and of y.
        angle: initial value of all angles.
        batch: samples to draw.

    Example:
        >>> round(AngleEncoder(2, 0.55, 100).nats, 2)
        1.58
    """

    def __init__(self, dim: int, angle: float, batch: int):
        super().__init__()
        self.angle = nn.Parameter(torch.full((dim,), angle))
        self.batch = batch

    def forward(self) -> tuple[Float[Tensor, "batch dim"], Float[Tensor, "batch dim"]]:
        """Samples, through which gradients reach the angles."""
        a, b = torch.randn(2, self.batch, len(self.angle), device=self.angle.device).unbind(0)
        sin, cos = self.angle.sin(), self.angle.cos()
        return sin * a + cos * b, cos * a + sin * b

    @property
    def nats(self) -> float:
        """The true mutual information."""
        return -(2 * self.angle.detach().double()).cos().abs().log().sum().item()


def penalty_step(
    encoder: AngleEncoder, method: str, rate: float, inner_steps: int, seed: int
) -> Callable[[], Tensor]:
    """A function that takes a step of the encoder down the penalty and returns its value."""
    dim = len(encoder.angle)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PenaltyWarning)  # lower bounds shall fail here
        estimator = ESTIMATORS[method](dim, dim)
        penalty = MIPenalty(
            estimator, lr=5e-3, adapt=False, inner_steps=inner_steps, check_every=0, seed=seed
        )
    penalty.to(encoder.angle.device)
    optimizer = torch.optim.Adam(encoder.parameters(), lr=rate)

    def step() -> Tensor:
        value = penalty(*encoder())
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        return value.detach()

    return step


def published_step(encoder: AngleEncoder, method: str) -> Callable[[], Tensor]:
    """A function that takes a step of the authors' loop: the encoder, then q on five batches."""
    q = AsPublishedGaussian(DEMO_DIM, DEMO_DIM, DEMO_INNER // 2)
    if method == "club":
        estimator = CLUB(conditional=q, negatives="all")
    else:
        estimator = CLUBSample(conditional=q, draw="permutation")
    estimator.to(encoder.angle.device)
    of_encoder = torch.optim.Adam(encoder.parameters(), lr=DEMO_RATE)
    of_q = torch.optim.Adam(estimator.parameters(), lr=DEMO_RATE)

    def step() -> Tensor:
        value = estimator(*encoder())
        of_encoder.zero_grad()
        value.backward()
        of_encoder.step()
        for _ in range(DEMO_INNER):
            loss = estimator.learning_loss(*(v.detach() for v in encoder()))
            of_q.zero_grad()
            loss.backward()
            of_q.step()
        return value.detach()

    return step


def _below(value: object, goal: float) -> bool:
    return isinstance(value, float) and value < goal
