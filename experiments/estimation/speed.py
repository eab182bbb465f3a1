"""Figure 3: time of a step of every estimator against the batch size.

A step is that of the simulation: the value on a batch, then the update of the estimator on it; the
samples are drawn before. `as-published` computes the values as the authors' code does, through a
tensor with one entry per pair and column. `correct` is this library, which computes the exact
values faster.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from experiments.estimation.quality import styles
from experiments.estimation.simulation import METHODS, SimulationConfig, task_of
from experiments.runner.base import Cell, Config, Experiment, Record
from experiments.runner.summaries import CellRow, Summary
from experiments.runner.workers import pick_device

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CRITICS = ("nwj", "mine", "infonce")

NOTES = """
## Why the order is what it is

The paper finds MINE and sampled CLUB fastest, then CLUB, the critics over all pairs, and L1Out
slowest by far. `as-published` has the same order, once the batch is so large that the arithmetic
takes longer than the calls. There

- MINE, VUB and sampled CLUB handle N samples;
- CLUB makes N x N x D numbers for its negatives, but its *update* needs none of them;
- NWJ and InfoNCE put N² pairs through their critic, in the value and again in the update;
- L1Out makes N x N x D numbers too, and N x N x N where its mask has a dimension too many.

In `correct` the order differs, because a bound costs only its mathematics: the exact CLUB needs a
few sums over the batch, so that sampling negatives saves nothing; L1Out is a product of matrices,
and critics score all pairs from their halves.
"""


@dataclass(frozen=True)
class SpeedConfig(Config):
    """Batches of growing size.

    Attributes:
        seeds: number of repetitions, each with its own seed.
        dim: columns of x and of y.
        sizes: samples per step; the paper's end at 512.
        lr: learning rate of Adam.
        hidden: hidden units of a critic and of a conditional, as in the simulation.
        budget: seconds to spend on each size.
        limit: leave out sizes whose step would take more seconds.
        memory: leave out sizes that would need more GiB.
    """

    seeds: int = 3
    dim: int = SimulationConfig.dim
    sizes: tuple[int, ...] = tuple(2**k for k in range(5, 15))
    lr: float = SimulationConfig.lr
    hidden: int = SimulationConfig.hidden
    budget: float = 0.3
    limit: float = 5.0
    memory: float = 8.0

    def __post_init__(self) -> None:
        if not self.sizes or min(self.sizes) <= self.dim:
            raise ValueError(
                f"Expected --sizes above the {self.dim} columns of y but got {self.sizes}; "
                "give larger ones, since some estimators fit a Gaussian to a batch."
            )


class EstimationSpeed(Experiment[SpeedConfig]):
    """Figure 3."""

    config = SpeedConfig
    makes = "Figure 3: time of a step of every estimator, batches of 32 to 16384"
    costs = "3 repetitions: a quarter of an hour of the whole machine"
    quick: ClassVar[Mapping[str, Any]] = {"seeds": 1, "sizes": (32, 64), "budget": 0.01}
    notes = NOTES
    serial = True

    def cells(self, config: SpeedConfig) -> list[Cell]:
        """Every estimator of each mode."""
        return [
            Cell(mode, "batch", method, seed)
            for seed in range(config.seeds)
            for mode, registry in METHODS.items()
            for method in registry
        ]

    def run(self, config: SpeedConfig, cells: Sequence[Cell]) -> list[list[CellRow]]:
        """The time of a step at each size."""
        device = pick_device(config.device)
        return [time_sizes(config, cell, device) for cell in cells]

    def draw(
        self, config: SpeedConfig, records: Sequence[Record], summary: Sequence[Summary]
    ) -> dict[str, Figure]:
        """Time against size, one panel per mode."""
        from matplotlib.figure import Figure

        modes = list(dict.fromkeys(each.mode for each in summary))
        figure = Figure(figsize=(4.2 * len(modes) + 1, 4.2), layout="constrained")
        axes = figure.subplots(1, len(modes), squeeze=False, sharey=True)[0]
        for ax, mode in zip(axes, modes, strict=True):
            own = [each for each in summary if each.mode == mode and each.mean is not None]
            for method, style in styles(each.method for each in own).items():
                points = [
                    (int(each.task.rpartition("-")[2]), each.mean)
                    for each in own
                    if each.method == method
                ]
                ax.plot(*zip(*sorted(points), strict=True), **style, label=method)
            ax.set(xscale="log", yscale="log", xlabel="batch size", title=mode)
            ax.grid(alpha=0.25)
            ax.legend(fontsize=7, ncols=2, frameon=False)
        axes[0].set_ylabel("seconds a step")
        return {"estimation-speed": figure}


def time_sizes(config: SpeedConfig, cell: Cell, device: str) -> list[CellRow]:
    """Time a step at each size, up to the one that takes too long or too much memory.

    Args:
        config: the settings.
        cell: mode, method and seed.
        device: where to run.

    Returns:
        The median time at each size, in seconds.

    Example:
        >>> config = SpeedConfig(sizes=(32,), budget=0.0)
        >>> (row,) = time_sizes(config, Cell("correct", "batch", "club", 0), "cpu")
        >>> row["task"], row["metric"], row["value"] > 0
        ('batch-32', 'seconds', True)
    """
    rows: list[CellRow] = []
    for n in sorted(config.sizes):
        if rows and rows[-1]["value"] * (n / int(rows[-1]["task"][6:])) ** 2 > config.limit:
            break
        if cell.mode == "as-published" and published_gib(cell.method, n, config) > config.memory:
            break
        try:
            times = _time(make_step(config, cell, n, device), config.budget, device)
        except torch.OutOfMemoryError:
            break
        rows.append({"task": f"batch-{n}", "metric": "seconds", "value": statistics.median(times)})
    return rows


def make_step(
    config: SpeedConfig, cell: Cell, n: int, device: str, fast: bool = False
) -> Callable[[], Tensor]:
    """A function that takes a step of an estimator and returns the value before it.

    Args:
        config: the settings.
        cell: mode, method and seed.
        n: samples per step.
        device: where to run.
        fast: whether to compute published estimators, too, in this library's form.
    """
    torch.manual_seed(cell.seed)
    g = torch.Generator(device).manual_seed(cell.seed)
    x, y = task_of("gaussian", config.dim, 4.0).sample(n, seed=g)
    estimator: Any = METHODS[cell.mode][cell.method](config.dim, config.dim, config.hidden)
    estimator = estimator.to(device)
    optimizer = torch.optim.Adam(estimator.parameters(), lr=config.lr)
    published = cell.mode == "as-published" and not fast
    shuffled = cell.mode == "as-published" and cell.method == "mine"

    def value() -> Tensor:
        if published or shuffled:
            return published_value(cell.method, estimator, x, y)
        return estimator(x, y)

    by_value = shuffled or (
        published and cell.method in CRITICS
    )  # q learns by its likelihood instead

    def step() -> Tensor:
        with torch.no_grad():
            before = value()
        loss = -value() if by_value else estimator.learning_loss(x, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return before

    return step


def _time(step: Callable[[], object], budget: float, device: str) -> list[float]:
    """Seconds per step, after a warm-up; short steps are timed several at a time."""
    wait = torch.cuda.synchronize if device.startswith("cuda") else lambda: None

    def several(count: int) -> float:
        wait()
        start = time.perf_counter()
        for _ in range(count):
            step()
        wait()
        return (time.perf_counter() - start) / count

    first = several(1)
    if first > max(budget, 1.0):
        return [first]
    once = several(1)
    count = max(1, min(20, int(0.01 / once)))
    end = time.perf_counter() + budget
    times = [several(count)]
    while time.perf_counter() < end:
        times.append(several(count))
    return times


# --- the forms of the authors' code --------------------------------------------------------------


def published_value(method: str, estimator: Any, x: Tensor, y: Tensor) -> Tensor:
    """The value of a published estimator, computed the long way of the authors' code."""
    n = len(x)
    if method == "mine":
        return estimator(x, y, torch.randint(n, (n,), device=x.device))
    if method in ("nwj", "infonce"):
        critic = estimator.critic
        pairs = torch.cat([x[None].expand(n, n, -1), y[:, None].expand(n, n, -1)], -1)  # [j, i]
        weight = torch.cat([critic.x_layer.weight, critic.y_layer.weight], 1)
        scores = critic.head(F.linear(pairs, weight, critic.x_layer.bias).relu()).squeeze(-1)
        if method == "nwj":
            return scores.diagonal().mean() - (scores - 1).exp().mean()
        scores = F.softplus(scores)
        return (scores.diagonal() - scores.logsumexp(1)).mean() + math.log(n)
    q = estimator.conditional
    mean, log_variance = q.net(x), q.net_log_variance(x).tanh()
    if method == "vub":
        return (mean**2 + log_variance.exp() - 1 - log_variance).mean() / 2
    positive = -((mean - y) ** 2) / 2 / log_variance.exp()
    if method == "club_sample":
        index = torch.randperm(n, device=x.device)
        negative = -((mean - y[index]) ** 2) / 2 / log_variance.exp()
        return (positive.sum(-1) - negative.sum(-1)).mean()
    if method == "club":
        negative = -((y[None] - mean[:, None]) ** 2).mean(1) / 2 / log_variance.exp()
        return (positive.sum(-1) - negative.sum(-1)).mean()
    positive = (positive - log_variance / 2).sum(-1)
    every = -((y[None] - mean[:, None]) ** 2) / 2 / log_variance.exp()[:, None]
    every = (every - log_variance[:, None] / 2).sum(-1)
    mask = -20.0 * torch.eye(n, device=x.device).unsqueeze(-1)  # a dimension too many: N x N x N
    negative = (every + mask).logsumexp(0) - math.log(n - 1.0)
    return (positive - negative).mean()


def published_gib(method: str, n: int, config: SpeedConfig) -> float:
    """Memory of such a step, approximately.

    Example:
        >>> round(published_gib("l1out", 512, SpeedConfig()), 1)
        1.6
    """
    per_pair = {
        "club": 3 * config.dim,
        "l1out": 3 * config.dim + 3 * n,
        "nwj": 4 * config.dim + 4 * config.hidden,
        "infonce": 4 * config.dim + 4 * config.hidden,
    }
    return 4 * per_pair.get(method, 0) * n**2 / 2**30
