"""An experiment that only multiplies, and a way to run it."""

from dataclasses import dataclass
from typing import ClassVar

import pytest

from experiments import Cell, Config, Experiment, Options, reproduce


@dataclass(frozen=True)
class ToyConfig(Config):
    """A toy.

    Attributes:
        factor: what to multiply the seed by.
        levels: finer tasks.
        loud: nothing.
    """

    seeds: int = 3
    factor: float = 2.0
    levels: tuple[int, ...] = (2, 4)
    loud: bool = False


class Toy(Experiment[ToyConfig]):
    """Multiplies the seed."""

    config = ToyConfig
    makes = "Multiples of the seed"
    costs = "nothing"
    quick: ClassVar = {"seeds": 2, "levels": (2,)}
    paper: ClassVar = {("one-2", "club", "mse"): 0.5}
    notes = "A toy."

    def __init__(self):
        self.computed, self.broken = [], set()

    def cells(self, config):
        return [
            Cell(mode, task, method, seed)
            for mode in ("as-published", "correct")
            for task in ("one", "two")
            for method in ("club", "nwj")
            for seed in range(config.seeds)
        ]

    def run(self, config, cells):
        assert config.device == "cpu"
        for cell in cells:
            if cell.name in self.broken:
                raise KeyboardInterrupt if "kill" in self.broken else OverflowError("too much")
            self.computed.append(cell)
        return [
            [
                {
                    "task": f"{cell.task}-{level}",
                    "metric": "mse",
                    "value": config.factor * cell.seed,
                }
                for level in config.levels
            ]
            + [{"task": cell.task, "metric": "curve", "value": [1.0, float("nan")]}]
            for cell in cells
        ]

    def draw(self, config, records, summary):
        from matplotlib.figure import Figure

        figure = Figure()
        figure.subplots().plot([each.mean for each in summary])
        return {"toy": figure}


@pytest.fixture
def toy():
    return Toy()


@pytest.fixture
def go(toy, tmp_path):
    """Runs the toy in this process and gives the table; `said` is what it told on the way."""

    def go(experiment=toy, progress=None, **fields):
        names = {"quick", "out", "jobs", "backend", "scheduler", "shard"}
        options = {k: fields.pop(k) for k in list(fields) if k in names}
        config = ToyConfig(**{"device": "cpu", **fields})
        options = Options(**{"out": str(tmp_path), "jobs": 1, **options})
        return reproduce("toy", experiment, config, options, progress, go.said.append)

    go.said = []
    return go
