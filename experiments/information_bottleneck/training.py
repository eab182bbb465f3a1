"""The training of the information bottleneck: MNIST on a device, runs of one method side by side.

All runs of a method are one stack of networks, and on a GPU a step of a stack is one CUDA graph;
stacks of several methods then run in streams of their own. A round of the trainer is an epoch.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn import functional as F

from experiments.information_bottleneck.config import BottleneckConfig
from experiments.information_bottleneck.model import CLASSES, PIXELS, Bottleneck, scale_pixels
from experiments.runner.base import Cell, digest
from experiments.runner.states import name_state
from experiments.training import Block, Training, seed_round, train
from mibounds import bounds
from mibounds.bounds.densities import log_prob_pairs
from mibounds.conditionals.base import diagonal
from mibounds.estimators.stacked_training import BLOCK, StackedTraining, take_adam_step

if TYPE_CHECKING:
    from jaxtyping import Float, Int, UInt8

BETAS = (0.5, 0.999)  # of Adam
EVERY = 50  # epochs between two states on disk
PLANE = 2000  # test digits by which the information plane is measured
PART = 100  # of them at a time, whose differences to all others are in memory
POINTS = (1, 2, 5, 10, 20, 50, 100, 150, 200)  # epochs after which it is measured
ESTIMATOR = "estimator."  # parameters of this name have a learning rate of their own


@dataclass(frozen=True)
class Digits:
    """MNIST on a device.

    Args:
        x: training images, flat, as bytes.
        y: their labels.
        x_test: test images.
        y_test: their labels.
        origin: where they come from.
    """

    x: UInt8[Tensor, "n pixels"]
    y: Int[Tensor, " n"]
    x_test: UInt8[Tensor, "m pixels"]
    y_test: Int[Tensor, " m"]
    origin: str

    def split(self, holdout: int) -> Digits:
        """The last training digits as test digits."""
        if not 0 < holdout < len(self.x):
            raise ValueError(
                f"Expected --holdout between 1 and {len(self.x) - 1} but got {holdout}; "
                "leave it out for that of the experiment."
            )
        return Digits(
            self.x[:-holdout], self.y[:-holdout], self.x[-holdout:], self.y[-holdout:], self.origin
        )


def load_digits(config: BottleneckConfig, device: str) -> Digits:
    """MNIST, or the first digits of it."""
    from experiments.data import load

    parts: list[Tensor] = []
    for split in ("train", "test"):
        images = load("mnist", split)
        count = config.digits or len(images.images)
        flat = torch.from_numpy(images.images[:count].reshape(-1, PIXELS).copy())
        parts += [flat.to(device), torch.from_numpy(images.labels[:count].copy()).to(device)]
    if len(parts[0]) - config.holdout < config.batch_size:
        raise ValueError(
            f"Expected more than {config.holdout} + {config.batch_size} training digits for a "
            f"held-out part and a batch but got {len(parts[0])}; give a smaller --holdout."
        )
    x, y, x_test, y_test = parts
    return Digits(x, y, x_test, y_test, images.origin)


@dataclass(frozen=True)
class BottleneckRun:
    """A cell with its beta."""

    cell: Cell
    beta: float


def train_runs(
    config: BottleneckConfig, runs: Sequence[BottleneckRun], digits: Digits, epochs: int
) -> list[dict[str, list[float]]]:
    """Train, and test after every epoch.

    Args:
        config: the settings.
        runs: what to train.
        digits: to train and to test with.
        epochs: passes over the training digits.

    Returns:
        For each run the test error after every epoch in percent, "curve", and points of the
        information plane: I(x; z) at least and at most, "x_lower" and "x_upper", and I(y; z), "y".
    """
    kinds: dict[tuple[str, str], list[int]] = {}
    for i, run in enumerate(runs):
        kinds.setdefault((run.cell.mode, run.cell.method), []).append(i)
    trainings = [
        BottleneckTraining(config, [runs[i] for i in own], digits, epochs) for own in kinds.values()
    ]
    train(trainings)
    outcomes: list[dict[str, list[float]]] = [{} for _ in runs]
    for own, each in zip(kinds.values(), trainings, strict=True):
        found = each.results()
        for place, i in enumerate(own):
            outcomes[i] = {name: [row[place] for row in rows] for name, rows in found.items()}
    return outcomes


class BottleneckTraining(Training):
    """Runs of one mode and method, trained side by side.

    Args:
        config: the settings.
        runs: with their seeds and betas.
        digits: to train and to test with.
        epochs: passes over the training digits.
    """

    def __init__(
        self, config: BottleneckConfig, runs: Sequence[BottleneckRun], digits: Digits, epochs: int
    ):
        mode, method = runs[0].cell.mode, runs[0].cell.method
        names = [f"{run.cell.name} {run.beta!r}" for run in runs]
        facts = digest(config.settings_of(runs[0].cell)), epochs, len(digits.x), names
        device = digits.x.device
        path = name_state(config.checkpoints, f"{mode}_{method}", (*facts, device.type))
        super().__init__(device, epochs, path, EVERY)
        self.config, self.runs, self.digits = config, runs, digits
        published = mode == "as-published"
        self.batch_size = config.batch_size * (2 if published else 1)
        self.steps = len(digits.x) // self.batch_size  # of an epoch
        decay = 0.99 if published else config.decay
        rates = [
            config.lr * decay ** (epoch // 2) for epoch in range(epochs) for _ in range(self.steps)
        ]
        models = []
        with torch.random.fork_rng(devices=[]):
            for run in runs:
                torch.manual_seed(run.cell.seed)
                models.append(Bottleneck(config, mode, method, run.beta).to(device))
        self.model = models[0]
        estimator_rate = 1.0 if published else config.estimator_rate
        self.stack = AveragedStack(models, rates, self._gather, config.average, estimator_rate)
        self.points = {min(point, epochs) for point in POINTS}

    def _gather(self, index: Tensor, *noise: Tensor) -> tuple[Tensor, ...]:
        return self.digits.x[index], self.digits.y[index], *noise

    def draw(self, number: int) -> Iterator[Block]:
        """Digits and noise for the steps of an epoch, alike for all runs of a seed."""
        generators = {
            seed: torch.Generator(self.device).manual_seed(seed_round(seed, number))
            for seed in dict.fromkeys(run.cell.seed for run in self.runs)
        }
        count = self.steps * self.batch_size
        orders = {
            seed: torch.randperm(len(self.digits.x), generator=g, device=self.device)[:count]
            for seed, g in generators.items()
        }
        for start in range(0, self.steps, BLOCK):
            shape = min(BLOCK, self.steps - start), self.batch_size
            span = slice(start * self.batch_size, start * self.batch_size + math.prod(shape))
            drawn = {}
            for seed, g in generators.items():
                own = {"generator": g, "device": self.device}
                drawn[seed] = {
                    "index": orders[seed][span].view(shape),
                    "noise": torch.randn(*shape, self.config.width, **own),
                    "uniform": torch.rand(shape, **own),
                }
                if self.model.needs_pixel_noise:
                    drawn[seed]["pixel_noise"] = torch.randn(*shape, PIXELS, **own)
            yield {
                name: torch.stack([drawn[run.cell.seed][name] for run in self.runs], 1)
                for name in next(iter(drawn.values()))
            }

    def take_steps(self, block: Block) -> None:
        """Take the steps of a block; the stack captures its step itself."""
        self.stack.take_steps(tuple(block.values()), None)

    def tensors(self) -> dict[str, Tensor]:
        """Those of the stack."""
        return self.stack.tensors()

    # --- tests

    @torch.no_grad()
    def test(self) -> None:
        """After each epoch the error on the test digits, by averaged weights; at times the plane.

        In the information plane I(x; z) lies between InfoNCE and leave-one-out, both with the known
        p(z|x); I(y; z) is the Barber-Agakov bound.
        """
        if not self.done:
            return
        x = scale_pixels(self.digits.x_test)
        mean, scale = self.model.code(self._call_averaged("encoder.", self.model.encoder, x))
        g = torch.Generator(self.device).manual_seed(self.done)
        total = torch.zeros((), device=self.device)
        for _ in range(self.config.samples):
            noise = torch.randn(mean.shape[1:], generator=g, device=self.device)
            total = total + self._decode(torch.addcmul(mean, scale, noise)).softmax(-1)
        wrong = total.argmax(-1) != self.digits.y_test
        self.keep("curve", 100 * wrong.float().mean(-1))
        if self.done in self.points:
            self._measure_plane(mean, scale, g)

    def _measure_plane(self, mean: Tensor, scale: Tensor, g: torch.Generator) -> None:
        count = min(PLANE, len(self.digits.y_test))
        labels = self.digits.y_test[:count]
        frequencies = labels.bincount(minlength=CLASSES) / count
        entropy = torch.special.entr(frequencies).sum()
        means, scales = mean[:, :count], scale[:, :count]
        noise = torch.randn(means.shape[1:], generator=g, device=self.device)
        z = torch.addcmul(means, scales, noise)
        logits = self._decode(z)
        lower, upper, label = [], [], []
        for one_mean, one_scale, code, each in zip(means, scales, z, logits, strict=True):
            p = diagonal(one_mean, one_scale)
            pairs = torch.cat([log_prob_pairs(p, part) for part in code.split(PART)], 1)
            lower.append(bounds.infonce(pairs.T))
            upper.append(bounds.l1out(pairs))
            label.append(entropy - F.cross_entropy(each, labels))
        for name, values in (("x_lower", lower), ("x_upper", upper), ("y", label)):
            self.keep(name, torch.stack(values))

    def _call_averaged(self, prefix: str, module: nn.Module, x: Tensor) -> Tensor:
        call = functools.partial(functional_call, module)
        return vmap(call, in_dims=(0, None))(self.stack.averages(prefix), (x,))

    def _decode(self, z: Tensor) -> Tensor:
        call = functools.partial(functional_call, self.model.decoder)
        return vmap(call)(self.stack.averages("decoder."), (z,))


class AveragedStack(StackedTraining):
    """Networks side by side, with averaged weights and a learning rate for the estimator in them.

    Args:
        learners: modules of one architecture; a submodule ``estimator`` comes last.
        rates: learning rate of each step.
        gather: from the inputs of a step to the batches of all learners.
        average: weight of the old average in each step.
        estimator_rate: learning rate of the estimator, as a multiple of the others'.
    """

    def __init__(
        self,
        learners: Sequence[nn.Module],
        rates: Sequence[float],
        gather: Callable[..., tuple[Tensor, ...]] | None = None,
        average: float = 0.999,
        estimator_rate: float = 1.0,
    ):
        super().__init__(learners, rates, gather, BETAS)
        self.average = average
        own = [not name.startswith(ESTIMATOR) for name in self.parameters]
        if own != sorted(own, reverse=True):
            raise ValueError(
                "Expected the estimator to be the last module of a learner but got others after it"
                f"; assign its attribute {ESTIMATOR.rstrip('.')!r} last."
            )
        sizes = [p.numel() for p, mine in zip(self.parameters.values(), own, strict=True) if mine]
        cut = sum(sizes)
        self.parts = [(slice(0, cut), 1.0), (slice(cut, None), estimator_rate)]
        self.averaged = self.vector.clone()

    def update(self, gradient: Float[Tensor, " p"]) -> None:
        """A step of Adam, and of the averages."""
        rate, spread = self.rates.index_select(0, self.number).flatten().unbind()
        for part, factor in self.parts:
            p, g, mean, square = (
                each[part] for each in (self.vector, gradient, self.mean, self.square)
            )
            if len(p):
                take_adam_step(p, g, mean, square, factor * rate, spread, self.betas)
        self.averaged.lerp_(self.vector, 1 - self.average)

    def tensors(self) -> dict[str, Tensor]:
        """All that a step writes and the next one reads."""
        return super().tensors() | {"averaged": self.averaged}

    def averages(self, prefix: str) -> dict[str, Tensor]:
        """The averaged parameters of a submodule, of all learners."""
        return {
            name.removeprefix(prefix): view
            for name, view in self.views(self.averaged).items()
            if name.startswith(prefix)
        }
