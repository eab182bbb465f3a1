"""Trainings of the information bottleneck: MNIST on a device, and runs of a method side by side.

All runs of a method are one lane, and on a GPU every lane has a stream. What is random in an epoch
depends on seed and epoch alone, so that an interrupted training goes on as if nothing had happened.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn import functional as F

from experiments.bottlenecks import (
    CLASSES,
    PIXELS,
    VARIATIONAL,
    Bottleneck,
    BottleneckConfig,
    scale_pixels,
)
from experiments.runner.base import Cell, digest
from experiments.states import SUFFIX, read_state, write_state
from experiments.trainings import Training
from mibounds import bounds
from mibounds.bounds.densities import log_prob_pairs
from mibounds.conditionals.base import diagonal
from mibounds.estimators.stacked_training import BLOCK

EVERY = 50  # epochs between two states on disk
PLANE = 2000  # test digits by which the information plane is measured
PART = 100  # of them at a time, whose differences to all others are in memory
POINTS = (1, 2, 5, 10, 20, 50, 100, 150, 200)  # epochs after which that is done


@dataclass(frozen=True)
class Digits:
    """MNIST on a device.

    Args:
        x: images, flat, as bytes.
        y: labels.
        x_test: the same of the test digits.
        y_test: likewise.
        origin: where they come from.
    """

    x: Tensor
    y: Tensor
    x_test: Tensor
    y_test: Tensor
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
    """MNIST, or some of it."""
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
            f"held-out part and a batch but got {len(parts[0])}; give --holdout less."
        )
    x, y, x_test, y_test = parts
    return Digits(x, y, x_test, y_test, images.origin)


@dataclass(frozen=True)
class Run:
    """A cell with a beta."""

    cell: Cell
    beta: float


def train(
    config: BottleneckConfig, runs: Sequence[Run], digits: Digits, epochs: int
) -> list[dict[str, list[float]]]:
    """Train, and test after every epoch.

    Args:
        config: the settings.
        runs: what to train.
        digits: to train on and to test with.
        epochs: passes over the training digits.

    Returns:
        For each run the test error after every epoch in percent, and points of the information
        plane.
    """
    kinds: dict[tuple[str, str], list[int]] = {}
    for i, run in enumerate(runs):
        kinds.setdefault((run.cell.mode, run.cell.method), []).append(i)
    lanes = [Lane(config, [runs[i] for i in own], digits, epochs) for own in kinds.values()]
    for epoch in range(epochs):
        waiting = [lane for lane in lanes if lane.epoch == epoch]  # others went further before
        blocks = [lane.blocks(epoch) for lane in waiting]
        while any([lane.go_on(block) for lane, block in zip(waiting, blocks, strict=True)]):
            pass
        for lane in waiting:
            lane.test()
    outcomes: list[dict[str, list[float]]] = [{} for _ in runs]
    for own, lane in zip(kinds.values(), lanes, strict=True):
        for i, outcome in zip(own, lane.outcomes(), strict=True):
            outcomes[i] = outcome
    return outcomes


class Lane:
    """Runs of one method side by side, and on a GPU a stream for them."""

    def __init__(self, config: BottleneckConfig, runs: Sequence[Run], digits: Digits, epochs: int):
        self.config, self.runs, self.digits = config, runs, digits
        self.device = digits.x.device
        mode, method = runs[0].cell.mode, runs[0].cell.method
        published = mode == "as-published"
        self.batch_size = config.batch_size * (2 if published else 1)
        decay = config.decay if not published else 0.99
        self.steps = len(digits.x) // self.batch_size
        rates = [
            config.lr * decay ** (epoch // 2) for epoch in range(epochs) for _ in range(self.steps)
        ]
        noise = config.noise if mode == "recipe" else 0.0
        models = []
        with torch.random.fork_rng(devices=[]):
            for run in runs:
                torch.manual_seed(run.cell.seed)
                sizes = config.hidden, config.width, config.estimator_hidden
                scale = "clipped" if published else config.scale
                model = Bottleneck(mode, method, run.beta, *sizes, scale, noise)
                models.append(model.to(self.device))
        self.model = models[0]
        self.training = Training(
            models,
            rates,
            self._take,
            betas=(0.5, 0.999),
            average=config.average,
            estimator_rate=1.0 if published else config.estimator_rate,
        )
        self.jittered = noise > 0 or method in VARIATIONAL
        self.points = sorted({min(p, epochs) for p in POINTS})
        self.found: dict[str, list[Tensor]] = {"curve": [], "x_lower": [], "x_upper": [], "y": []}
        self.stream = torch.cuda.Stream() if self.device.type == "cuda" else None
        self.epoch = 0
        self.path = self._path(epochs)
        if self.path is not None and self.path.exists():
            self._resume(self.path)
        if self.stream is not None:
            self.stream.wait_stream(torch.cuda.current_stream())

    def _take(self, index: Tensor, *noise: Tensor) -> tuple[Tensor, ...]:
        return self.digits.x[index], self.digits.y[index], *noise

    def blocks(self, epoch: int) -> Iterator[tuple[Tensor, ...]]:
        """What the steps of an epoch are given; it depends on seed and epoch alone."""
        generators = {
            seed: torch.Generator(self.device).manual_seed(1_000_003 * seed + epoch)
            for seed in dict.fromkeys(run.cell.seed for run in self.runs)
        }
        count = self.steps * self.batch_size
        orders = {
            seed: torch.randperm(len(self.digits.x), generator=g, device=self.device)[:count]
            for seed, g in generators.items()
        }
        for start in range(0, self.steps, BLOCK):
            steps = min(BLOCK, self.steps - start)
            drawn = {}
            for seed, g in generators.items():
                span = slice(start * self.batch_size, (start + steps) * self.batch_size)
                shape = steps, self.batch_size
                noise = torch.randn(*shape, self.config.width, generator=g, device=self.device)
                uniform = torch.rand(shape, generator=g, device=self.device)
                drawn[seed] = orders[seed][span].view(shape), noise, uniform
                if self.jittered:
                    size = *shape, PIXELS
                    drawn[seed] += (torch.randn(size, generator=g, device=self.device),)
            parts = zip(*(drawn[run.cell.seed] for run in self.runs), strict=True)
            yield tuple(torch.stack(part, 1) for part in parts)

    def go_on(self, blocks: Iterator[tuple[Tensor, ...]]) -> bool:
        """Take the steps of one more block; False if there is none."""
        with self._aside():
            block = next(blocks, None)
            if block is None:
                return False
            self.training.take_steps(block, None)
        return True

    @torch.no_grad()
    def test(self) -> None:
        """Errors on the test digits, by averaged weights; and sometimes the information plane."""
        with self._aside():
            self.epoch += 1
            x = scale_pixels(self.digits.x_test)
            raw = self._averaged("encoder.", self.model.encoder, x)
            mean, scale = self.model.code(raw)
            g = torch.Generator(self.device).manual_seed(self.epoch)
            total = torch.zeros((), device=self.device)
            for _ in range(self.config.samples):
                noise = torch.randn(mean.shape[1:], generator=g, device=self.device)
                z = torch.addcmul(mean, scale, noise)
                total = total + self._decode(z).softmax(-1)
            wrong = total.argmax(-1) != self.digits.y_test
            self.found["curve"].append(100 * wrong.float().mean(-1))
            if self.epoch in self.points:
                self._measure(mean, scale, g)
            if self.path is not None and self.epoch % EVERY == 0:
                self._save(self.path)  # on the stream whose values it is to see

    def _measure(self, mean: Tensor, scale: Tensor, g: torch.Generator) -> None:
        count = min(PLANE, len(self.digits.y_test))
        labels = self.digits.y_test[:count]
        frequencies = labels.bincount(minlength=CLASSES) / count
        entropy = torch.special.entr(frequencies).sum()
        means, scales = mean[:, :count], scale[:, :count]
        z = torch.addcmul(
            means,
            scales,
            torch.randn(means.shape[1:], generator=g, device=self.device),
        )
        logits = self._decode(z)
        lower, upper, label = [], [], []
        for one_mean, one_scale, code, each in zip(means, scales, z, logits, strict=True):
            own = diagonal(one_mean, one_scale)
            pairs = torch.cat([log_prob_pairs(own, part) for part in code.split(PART)], 1)
            lower.append(bounds.infonce(pairs.T))
            upper.append(bounds.l1out(pairs))
            label.append(entropy - F.cross_entropy(each, labels))
        for name, values in (("x_lower", lower), ("x_upper", upper), ("y", label)):
            self.found[name].append(torch.stack(values))

    def _averaged(self, prefix: str, module: nn.Module, *args: Tensor) -> Tensor:
        call = functools.partial(functional_call, module)
        return vmap(call, in_dims=(0, None))(self.training.averages(prefix), args)

    def _decode(self, z: Tensor) -> Tensor:
        call = functools.partial(functional_call, self.model.decoder)
        return vmap(call)(self.training.averages("decoder."), (z,))

    def _aside(self) -> AbstractContextManager[object]:
        return nullcontext() if self.stream is None else torch.cuda.stream(self.stream)

    def outcomes(self) -> list[dict[str, list[float]]]:
        """What each run gave."""
        if self.stream is not None:
            self.stream.synchronize()
        columns = {name: torch.stack(values).T.tolist() for name, values in self.found.items()}
        return [
            {name: values[j] for name, values in columns.items()} for j in range(len(self.runs))
        ]

    # --- states

    def _path(self, epochs: int) -> Path | None:
        if not self.config.checkpoints:
            return None
        names = [f"{run.cell.name} {run.beta!r}" for run in self.runs]
        settings = digest(self.config.settings_of(self.runs[0].cell))
        what = f"{settings} {epochs} {len(self.digits.x)} {self.device.type} {names}"
        name = hashlib.sha256(what.encode()).hexdigest()[:16]
        return Path(self.config.checkpoints) / f"{name}{SUFFIX}"

    def _save(self, path: Path) -> None:
        found = {name: torch.stack(v).cpu().numpy() for name, v in self.found.items()}
        write_state(path, self.training.tensors(), {"epoch": np.array(self.epoch), **found})

    def _resume(self, path: Path) -> None:
        found = read_state(path, self.training.tensors())
        self.epoch = int(found.pop("epoch"))
        for name, values in found.items():
            self.found[name] = list(torch.from_numpy(values).to(self.device))
