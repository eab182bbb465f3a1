"""The simulation of the paper: estimators that learn while the mutual information rises in levels.

Each step draws a fresh batch. The value on it is recorded *before* the update, so that the model
has not seen the batch. One model goes through all levels of mutual information in turn.

All runs of one estimator are computed side by side (`mibounds.estimators.stacked_training`): seeds,
and on a GPU also tasks and several estimators. They give the same numbers as one run at a time,
because everything random in a run comes from its own generator, including the negatives.

Reference: Cheng et al. 2020, section 4.1 and the authors' code, with 4000 steps per level.
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
from experiments.training import cycle
from mibounds.conditionals.copulas import Copula
from mibounds.estimators import ESTIMATORS, CLUBSample, DoE
from mibounds.estimators.stacked_training import BLOCK, StackedTraining
from mibounds.tasks import CorrelatedGaussian, Mixing, SignedPower, Task, Transformed

if TYPE_CHECKING:
    from jaxtyping import Float, Int

AHEAD = 10  # blocks of steps that are queued on a GPU before waiting for their end
TASK_FAMILIES = ("gaussian", "cubic", "cubic-w")


def _doe_copula(x_dim: int, y_dim: int, hidden: int) -> DoE:
    return DoE(conditional=Copula(x_dim, y_dim, hidden))


# The library's estimators with their defaults, and one that goes beyond the paper.
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
        levels: mutual information in nats, in turn.
        steps: steps per level.
        last: steps at the end of each level that count.
        batch_size: samples per step.
        lr: learning rate of Adam.
        hidden: hidden units of a critic and of a conditional; the authors' q has two networks with
            half as many each.

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
        family: one of `TASK_FAMILIES`: Gaussian pairs; the cube of each column of y, as in the
            authors' code; and (W y)^3 as in the paper's text, with a fixed W of condition 10.
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
    """An estimator of the simulation, initialised from torch's global generator.

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

    The runs of one mode and method are one stack. A single stack leaves a GPU idle most of the
    time, so there each has its own stream, and all run at once.

    Args:
        cells: the mode, method and seed of each run; its task is one of `TASK_FAMILIES`.
        config: the settings.
        device: where to run.
        graph: whether to record the step in a CUDA graph; None to do so where possible.

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
    stacks = [_MethodRuns([cells[i] for i in own], config, device) for own in kinds.values()]
    values: list[list[Tensor]] = []
    ahead: list[_Samples] = []  # which streams may still read
    for samples in _draw(cells, config, device):
        values.append([runs.take_steps(samples, graph) for runs in stacks])
        ahead.append(samples)
        if len(ahead) == AHEAD:
            for runs in stacks:
                runs.wait()
            ahead.clear()
    for runs in stacks:
        runs.wait()
    out = torch.empty(len(cells), len(config.levels), config.steps)
    for own, parts in zip(kinds.values(), zip(*values, strict=True), strict=True):
        out[own] = torch.cat(parts).T.cpu().unflatten(1, out.shape[1:])
    return out


class _MethodRuns:
    """The runs of one method as a stack, on a GPU with its own stream."""

    def __init__(self, cells: Sequence[Cell], config: SimulationConfig, device: str):
        learners = []
        with torch.random.fork_rng(devices=[]):
            for cell in cells:
                torch.manual_seed(cell.seed)
                learners.append(
                    _TrackedLearner(make_estimator(cell.mode, cell.method, config)).to(device)
                )
        self.keys = tuple((cell.task, cell.seed) for cell in cells)
        self.stack = StackedTraining(learners, [config.lr] * (config.steps * len(config.levels)))
        self.stream = torch.cuda.Stream() if torch.device(device).type == "cuda" else None

    def take_steps(self, samples: _Samples, graph: bool | None) -> Tensor:
        batches = samples.batches(self.keys)
        if self.stream is None:
            return self.stack.take_steps(batches, graph).clone()
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            return self.stack.take_steps(batches, graph).clone()

    def wait(self) -> None:
        """Wait for the end of the queued steps."""
        if self.stream is not None:
            self.stream.synchronize()


class _TrackedLearner(nn.Module):
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
    """The negatives of sampled CLUB, from numbers in [0, 1)."""
    return noise.argsort() if estimator.draw == "permutation" else cycle(noise)


class _Samples:
    """Samples and noise of some steps, of each family and seed."""

    def __init__(self, by_key: dict[tuple[str, int], tuple[Tensor, Tensor, Tensor]]):
        self.by_key = by_key
        self.stacked: dict[tuple[tuple[str, int], ...], tuple[Tensor, ...]] = {}

    def batches(self, keys: tuple[tuple[str, int], ...]) -> tuple[Tensor, ...]:
        """The samples of some runs side by side; stacked once for all methods with these runs."""
        if keys not in self.stacked:
            own = zip(*(self.by_key[key] for key in keys), strict=True)
            self.stacked[keys] = tuple(torch.stack(each, 1) for each in own)
        return self.stacked[keys]


def _draw(cells: Sequence[Cell], config: SimulationConfig, device: str) -> Iterator[_Samples]:
    """Fresh batches of each run, and noise for negatives, from one generator per seed.

    The same samples as those of `task_of`; families share the Gaussian pairs of a seed, and methods
    share the batches.
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
                pair = gaussian.sample(shape[0] * shape[1], seed=g)
                noise = torch.rand(shape[0], 2, shape[1], generator=g, device=device)
                pairs[seed] = *(each.unflatten(0, shape) for each in pair), noise
            samples = {}
            for family, seed in keys:
                x, y, noise = pairs[seed]
                for f in maps[family]:
                    y = f(y)
                samples[family, seed] = x, y, noise
            yield _Samples(samples)
