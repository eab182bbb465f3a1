"""The trainer of the information bottleneck and of domain adaptation.

A training goes in rounds: an epoch of the one, a hundred steps of the other. A round draws all its
random numbers from generators that depend on a seed and on the number of the round only, and its
steps only ever write to tensors that stay where they are. Two things follow: a step can be one CUDA
graph, and an interrupted training resumes from its last state with the same results.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from experiments.runner.states import read_state, write_state

if TYPE_CHECKING:
    from jaxtyping import Float, Int

Block = Mapping[str, Tensor]  # what some steps are given, each (steps, ...)

_DONE = "rounds done"  # where a state keeps their number


class Training(ABC):
    """A training that can be interrupted after any round; `train` runs it.

    Args:
        device: of its tensors.
        rounds: how many.
        path: of its state on disk; None for no state.
        every: rounds between two states.
    """

    def __init__(self, device: torch.device, rounds: int, path: Path | None, every: int):
        self.device, self.rounds, self.path, self.every = device, rounds, path, every
        self.done = 0  # rounds
        self.found: dict[str, list[Any]] = {}  # what the tests found, in their order

    @abstractmethod
    def draw(self, number: int) -> Iterator[Block]:
        """What the steps of a round are given, block by block.

        Args:
            number: of the round; the blocks depend on it and on the seed only.
        """

    @abstractmethod
    def take_steps(self, block: Block) -> None:
        """Take the steps of a block; on a GPU, queue them."""

    @abstractmethod
    def test(self) -> None:
        """Add to `found` what is due; called before the first round and after each round."""

    @abstractmethod
    def tensors(self) -> dict[str, Tensor]:
        """Everything that a step writes and the next step reads."""

    def is_due(self, times: int) -> bool:
        """Whether to do now what is done so many times, evenly over the rounds."""
        before, after = ((self.done - k) * times // self.rounds for k in (1, 0))
        return after > before or self.done == self.rounds

    def keep(self, name: str, value: Any) -> None:
        """Add a value to what was found."""
        self.found.setdefault(name, []).append(value)

    def results(self) -> dict[str, list[Any]]:
        """What was found, as plain numbers and lists."""
        return {
            name: [value.tolist() if isinstance(value, Tensor) else value for value in values]
            for name, values in self.found.items()
        }

    def start(self) -> None:
        """Resume from the state on disk; without one, test the untrained networks."""
        if self.path is not None and self.path.exists():
            self.load(self.path)
        else:
            self.test()

    def finish_round(self) -> None:
        """Count the round, test, and write the state if it is time."""
        self.done += 1
        self.test()
        if self.path is not None and (self.done % self.every == 0 or self.done == self.rounds):
            self.save(self.path)

    def save(self, path: Path) -> None:
        """Write the state."""
        found = {name: np.array(values) for name, values in self.results().items()}
        write_state(path, self.tensors(), {_DONE: np.array(self.done), **found})

    def load(self, path: Path) -> None:
        """Read the state."""
        found = read_state(path, self.tensors())
        self.done = int(found.pop(_DONE))
        self.found = {name: values.tolist() for name, values in found.items()}


def train(trainings: Sequence[Training]) -> None:
    """Run trainings to their end, a block of each in turn; those with a state resume from it.

    Args:
        trainings: on one device. On a GPU, where several share it, each has a stream of its own.
    """
    if not trainings:
        return
    device = trainings[0].device
    on_gpu = device.type == "cuda"
    with torch.random.fork_rng(devices=[device] if on_gpu else []):
        for each in trainings:
            each.start()
        streams = [_open_stream(device) if len(trainings) > 1 else None for _ in trainings]
        for number in range(max(each.rounds for each in trainings)):
            jobs = [
                (each, each.draw(number), stream)
                for each, stream in zip(trainings, streams, strict=True)
                if each.done == number < each.rounds  # a resumed one may be ahead
            ]
            waiting = jobs
            while waiting:
                waiting = [job for job in waiting if _take_block(*job)]
            for each, _, stream in jobs:
                with _on(stream):
                    each.finish_round()
        for stream in streams:
            if stream is not None:
                torch.cuda.current_stream(device).wait_stream(stream)


def _open_stream(device: torch.device) -> torch.cuda.Stream | None:
    """A stream that begins when all work queued so far is done; None off the GPU."""
    if device.type != "cuda":
        return None
    stream = torch.cuda.Stream(device)
    stream.wait_stream(torch.cuda.current_stream(device))
    return stream


def _on(stream: torch.cuda.Stream | None) -> AbstractContextManager[object]:
    return nullcontext() if stream is None else torch.cuda.stream(stream)


def _take_block(
    training: Training, blocks: Iterator[Block], stream: torch.cuda.Stream | None
) -> bool:
    """Draw and take the next block of a round; False if there is none."""
    with _on(stream):
        block = next(blocks, None)
        if block is not None:
            training.take_steps(block)
    return block is not None


def seed_round(seed: int, number: int) -> int:
    """The seed of a round, different for every seed and every round.

    Example:
        >>> seed_round(2, 7) == seed_round(2, 8)
        False
    """
    return 1_000_003 * seed + number


def cycle(uniform: Float[Tensor, " n"]) -> Int[Tensor, " n"]:
    """Negatives along a random cycle: no sample is its own negative.

    Args:
        uniform: numbers in [0, 1), whose order is that of the cycle.

    Example:
        >>> cycle(torch.tensor([0.7, 0.1, 0.4]))
        tensor([1, 2, 0])
    """
    order = uniform.argsort()
    return torch.empty_like(order).scatter(0, order, order.roll(-1))
