"""The simulation of the paper: estimators that learn while the mutual information rises in steps.

Each step draws a fresh batch; the value on it is noted *before* the update, so that it is made by a
model that has not seen the batch. One model goes through all levels of mutual information, one
after the other.

All runs of one estimator are computed side by side (`mibounds.estimators.stacked_training`): seeds,
and on a GPU the tasks and several estimators too. Their numbers are those of one at a time, because
all that is random in a run comes from its own generator, also the negatives an estimator draws.

Reference: Cheng et al. 2020, section 4.1 and the authors' code, with 4000 steps a level.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.distributions.transforms import Transform

from experiments.estimation.as_published import AS_PUBLISHED, AsPublishedMINE
from experiments.runner.base import Cell, Config
from experiments.trainings import cycle
from mibounds.conditionals.copulas import Copula
from mibounds.estimators import ESTIMATORS, CLUBSample, DoE
from mibounds.estimators.stacked_training import BLOCK, StackedTraining
from mibounds.tasks import CorrelatedGaussian, Mixing, SignedPower, Task, Transformed

if TYPE_CHECKING:
    from jaxtyping import Float, Int

AHEAD = 10  # blocks of steps that are ordered from a GPU before their end is awaited
FAMILIES = ("gaussian", "cubic", "cubic-w")


def _doe_copula(x_dim: int, y_dim: int, hidden: int) -> DoE:
    return DoE(conditional=Copula(x_dim, y_dim, hidden))


# What the library has, as it comes; and what goes past the paper.
CORRECT: dict[str, Callable[[int, int, int], nn.Module]] = {**ESTIMATORS, "doe_copula": _doe_copula}
METHODS: dict[str, Mapping[str, Callable[[int, int, int], nn.Module]]] = {
    "as-published": AS_PUBLISHED,
    "correct": CORRECT,
}


@dataclass(frozen=True)
class SimulationConfig(Config):
    """The simulation of the paper.

    Attributes:
        dim: columns of x and of y.
        levels: mutual information in nats, one after the other.
        steps: steps a level.
        last: of these, so many at the end of a level count.
        batch_size: samples a step.
        lr: rate of Adam.
        hidden: hidden units of a critic and of a conditional; the authors' q has two networks of
            half as many.

    Example:
        >>> len(SimulationConfig().levels) * SimulationConfig().steps
        20000
    """

    dim: int = 20
    levels: tuple[float, ...] = (2.0, 4.0, 6.0, 8.0, 10.0)
    steps: int = 4000
    last: int = 500
    batch_size: int = 64
    lr: float = 5e-3
    hidden: int = 15

    def __post_init__(self) -> None:
        for name in ("dim", "steps", "last", "hidden"):
            value = getattr(self, name)
            if value < 1:
                raise ValueError(
                    f"Expected --{name} of at least 1 but got {value}; "
                    "leave it out for its default."
                )
        if self.last > self.steps:
            raise ValueError(
                f"Expected --last of at most the {self.steps} steps of a level "
                f"but got {self.last}; give --steps more, or --last less."
            )
        if self.batch_size <= self.dim:
            raise ValueError(
                f"Expected --batch-size above the {self.dim} columns of y but got "
                f"{self.batch_size}; give it more, since some estimators fit a Gaussian to a batch."
            )
        if not self.levels:
            raise ValueError(
                "Expected --levels with a number of nats but got none; give --levels 2 4 6."
            )
        if min(self.levels) <= 0:
            raise ValueError(
                f"Expected --levels above 0 nats but got {min(self.levels):g}; give --levels 2 4 6."
            )
        if self.lr <= 0:
            raise ValueError(
                f"Expected --lr above 0 but got {self.lr:g}; give --lr 0.005 as the paper."
            )


def task_of(family: str, dim: int, nats: float) -> Task:
    """The task of a family at a level.

    Args:
        family: one of `FAMILIES`: Gaussian pairs; the cube of each column of y, as in the authors'
            code; and (W y)^3 as in the paper's text, with a fixed W of condition 10.
        dim: columns of x and of y.
        nats: mutual information.

    Returns:
        The task.

    Example:
        >>> round(task_of("cubic-w", 20, 4.0).mutual_information, 6)
        4.0
    """
    gaussian = CorrelatedGaussian.from_mutual_information(dim, nats)
    maps = _maps(family, dim)
    return Transformed(gaussian, y_maps=maps) if maps else gaussian


def _maps(family: str, dim: int) -> tuple[Transform, ...]:
    if family == "gaussian":
        return ()
    mixing = (Mixing(dim),) if family == "cubic-w" else ()
    return (*mixing, SignedPower(3.0))


def make_estimator(mode: str, method: str, config: SimulationConfig) -> nn.Module:
    """An estimator with the sizes of the simulation, initialised from torch's global generator.

    Example:
        >>> type(make_estimator("as-published", "l1out", SimulationConfig())).__name__
        'AsPublishedCLUB'
    """
    return METHODS[mode][method](config.dim, config.dim, config.hidden)


def simulate(
    cells: Sequence[Cell],
    config: SimulationConfig,
    device: str = "cpu",
    graph: bool | None = None,
) -> Float[Tensor, "cells levels steps"]:
    """Run estimators through all levels, side by side.

    Those of one mode and method are one stack. On a GPU, which a stack leaves idle most of the
    time, each has a stream of its own, and all run at once.

    Args:
        cells: the mode, method and seed of each run; its task is one of `FAMILIES`.
        config: the settings.
        device: where.
        graph: whether to record the step in a CUDA graph; None for wherever that is possible.

    Returns:
        The value of each step in nats, before its update; on the CPU.

    Example:
        >>> config = SimulationConfig(dim=3, steps=2, last=1, batch_size=8, levels=(1.0, 2.0))
        >>> cells = [Cell("correct", "gaussian", name, seed=0) for name in ("club", "nwj")]
        >>> simulate(cells, config).shape
        torch.Size([2, 2, 2])
    """
    kinds: dict[tuple[str, str], list[int]] = {}
    for i, cell in enumerate(cells):
        kinds.setdefault((cell.mode, cell.method), []).append(i)
    lanes = [_Lane([cells[i] for i in own], config, device) for own in kinds.values()]
    values: list[list[Tensor]] = []
    ahead: list[_Drawn] = []  # what streams may still read
    for drawn in _draw(cells, config, device):
        values.append([lane.take_steps(drawn, graph) for lane in lanes])
        ahead.append(drawn)
        if len(ahead) == AHEAD:
            for lane in lanes:
                lane.wait()
            ahead.clear()
    for lane in lanes:
        lane.wait()
    out = torch.empty(len(cells), len(config.levels), config.steps)
    for own, parts in zip(kinds.values(), zip(*values, strict=True), strict=True):
        out[own] = torch.cat(parts).T.cpu().unflatten(1, out.shape[1:])
    return out


class _Lane:
    """A stack of runs of one method, and on a GPU a stream for it."""

    def __init__(self, cells: Sequence[Cell], config: SimulationConfig, device: str):
        learners = []
        with torch.random.fork_rng(devices=[]):
            for cell in cells:
                torch.manual_seed(cell.seed)
                learners.append(_Learner(make_estimator(cell.mode, cell.method, config)).to(device))
        self.keys = tuple((cell.task, cell.seed) for cell in cells)
        self.stack = StackedTraining(learners, [config.lr] * (config.steps * len(config.levels)))
        self.stream = torch.cuda.Stream() if torch.device(device).type == "cuda" else None

    def take_steps(self, drawn: _Drawn, graph: bool | None) -> Tensor:
        batches = drawn.batches(self.keys)
        if self.stream is None:
            return self.stack.take_steps(batches, graph).clone()
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            return self.stack.take_steps(batches, graph).clone()

    def wait(self) -> None:
        """Wait until the steps that were ordered are taken."""
        if self.stream is not None:
            self.stream.synchronize()


class _Learner(nn.Module):
    """An estimator whose forward is a step: the loss, and the value before it."""

    def __init__(self, estimator: nn.Module):
        super().__init__()
        self.estimator = estimator

    def forward(
        self, x: Tensor, y: Tensor, noise: Tensor
    ) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        estimator: Any = self.estimator
        for_value, for_loss = noise
        with torch.no_grad():
            if isinstance(estimator, AsPublishedMINE):
                value = estimator(x, y, _uniform(for_value))
            elif isinstance(estimator, CLUBSample):
                value = estimator(x, y, index=_index(estimator, for_value)[:, None])
            else:
                value = estimator(x, y)
        if isinstance(estimator, AsPublishedMINE):
            loss = -estimator(x, y, _uniform(for_loss))
        else:
            loss = estimator.learning_loss(x, y)
        return loss, value, dict(self.named_buffers())


def _uniform(noise: Float[Tensor, " n"]) -> Int[Tensor, " n"]:
    """Indices with repetition, from numbers in [0, 1)."""
    return (noise * len(noise)).long()


def _index(estimator: CLUBSample, noise: Float[Tensor, " n"]) -> Int[Tensor, " n"]:
    """The negatives that sampled CLUB would draw, from numbers in [0, 1)."""
    return noise.argsort() if estimator.draw == "permutation" else cycle(noise)


class _Drawn:
    """Samples and noise of some steps, of each family and seed."""

    def __init__(self, samples: dict[tuple[str, int], tuple[Tensor, Tensor, Tensor]]):
        self.samples = samples
        self.stacked: dict[tuple[tuple[str, int], ...], tuple[Tensor, ...]] = {}

    def batches(self, keys: tuple[tuple[str, int], ...]) -> tuple[Tensor, ...]:
        """Those of some runs side by side; stacked once for all methods that want the same."""
        if keys not in self.stacked:
            own = zip(*(self.samples[key] for key in keys), strict=True)
            self.stacked[keys] = tuple(torch.stack(each, 1) for each in own)
        return self.stacked[keys]


def _draw(cells: Sequence[Cell], config: SimulationConfig, device: str) -> Iterator[_Drawn]:
    """Fresh batches of each run, and noise for negatives, from a generator for each seed.

    As `task_of` samples them; but families share the Gaussian pairs of a seed, and methods both.
    """
    keys = dict.fromkeys((cell.task, cell.seed) for cell in cells)
    generators = {seed: torch.Generator(device).manual_seed(seed) for _, seed in keys}
    maps = {family: _maps(family, config.dim) for family, _ in keys}
    for level in config.levels:
        gaussian = CorrelatedGaussian.from_mutual_information(config.dim, level)
        for start in range(0, config.steps, BLOCK):
            shape = min(BLOCK, config.steps - start), config.batch_size
            pairs = {}
            for seed, g in generators.items():
                pair = gaussian.sample(shape[0] * shape[1], generator=g)
                noise = torch.rand(shape[0], 2, shape[1], generator=g, device=device)
                pairs[seed] = *(each.unflatten(0, shape) for each in pair), noise
            samples = {}
            for family, seed in keys:
                x, y, noise = pairs[seed]
                for f in maps[family]:
                    y = f(y)
                samples[family, seed] = x, y, noise
            yield _Drawn(samples)
