"""What is controlled: which goal, family, correlations and dimension, by which method.

A cell's task is "goal-family-correlation-dimension", as in "minimise-cubic-pairs-100". A method
that ends in "-fresh" fits its network on fresh samples of the simulator, as published; the others
on rows of the batches seen so far, or on the batch itself, as a training loop must.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

from experiments.runner.base import Cell, Config
from mibounds.minimise.gates import FADES, HALF, OPENS, SHUTS
from mibounds.minimise.removal import KERNELS

GOALS = ("minimise", "maximise")
FAMILIES = ("gaussian", "cubic", "asinh", "power", "spiral")
CORRELATIONS = ("shared", "pairs")
LIMIT = 0.9995  # of a correlation
FRESH = "-fresh"  # ends the name of a method that is fitted on fresh samples
BASES = (
    "default", "ratio", "ratio-ungated", "ratio-coupled", "kernel", "club", "club_sample",
    "infonce", "nwj", "js", "dv",
)  # fmt: skip
NOT_FITTED = ("kernel",)
SAME_UPWARDS = ("ratio", "ratio-ungated")  # without kernel and gate they are "default"
SELECTS = ("dims", "families", "correlations", "goals", "together")  # fields that change no cell


OWN = {  # settings that only some methods have
    "kernel_weight": ("default",),
    "opens": ("default", "ratio"),
    "shuts": ("default", "ratio"),
    "half": ("default", "ratio"),
    "fades": ("default", "ratio"),
}


class Task(NamedTuple):
    """A cell's task, in its parts.

    Example:
        >>> Task.of("minimise-cubic-pairs-100")
        Task(goal='minimise', family='cubic', correlation='pairs', dim=100)
        >>> Task("maximise", "gaussian", "shared", 20).name
        'maximise-gaussian-shared-20'
    """

    goal: str
    family: str
    correlation: str
    dim: int

    @classmethod
    def of(cls, name: str) -> Task:
        """From its name."""
        goal, family, correlation, dim = name.split("-")
        return cls(goal, family, correlation, int(dim))

    @property
    def name(self) -> str:
        """As in a cell."""
        return "-".join(map(str, self))


@dataclass(frozen=True)
class MIControlConfig(Config):
    """Control of a known mutual information.

    Attributes:
        dims: columns of x and of y; some of 20, 100 and 200, or others.
        families: what y is made of: gaussian, cubic, asinh, power, spiral.
        correlations: shared for one that all coordinates share, pairs for one each.
        goals: minimise, maximise or both.
        together: cells in one program at most; each takes some 30 MB on a GPU.
        steps: updates of the correlations.
        last: updates at the end throughout which the goal has to be kept.
        batch_size: samples per update.
        rate: learning rate of Adam for the correlations.
        high: nats from which to minimise.
        low: nats from which to maximise.
        target: nats that end a maximisation.
        goal: nats below which a minimisation has succeeded.
        hidden: hidden units of each of the two layers of all networks.
        inner_steps: steps of the network per update.
        memory: how many batches the classifiers learn from.
        kernel_weight: of the kernel statistic beside the classifier.
        opens: standard errors above zero at which a gate opens.
        shuts: standard errors above zero at which it shuts again.
        half: standard errors at which it lets half of a gradient through.
        fades: updates in which it closes to 1/e at most; 0 to close at once.

    Example:
        >>> MIControlConfig(dims=(20,)).settings_of(
        ...     Cell("correct", "minimise-cubic-pairs-20", "club", 0)
        ... )["steps"]
        5000
    """

    dims: tuple[int, ...] = (20, 100, 200)
    families: tuple[str, ...] = FAMILIES
    correlations: tuple[str, ...] = CORRELATIONS
    goals: tuple[str, ...] = GOALS
    together: int = 100
    steps: int = 5000
    last: int = 1000
    batch_size: int = 256
    rate: float = 5e-3
    high: float = 10.0
    low: float = 0.5
    target: float = 50.0
    goal: float = 1e-3
    hidden: int = 256
    inner_steps: int = 5
    memory: int = 8
    kernel_weight: float = KERNELS
    opens: float = OPENS
    shuts: float = SHUTS
    half: float = HALF
    fades: float = FADES

    def settings_of(self, cell: Cell) -> dict[str, Any]:
        """Without the choice of cells, and without the settings of other methods."""
        base, goal = base_of(cell.method), Task.of(cell.task).goal
        others = [k for k, methods in OWN.items() if base not in methods or goal == "maximise"]
        settings = super().settings_of(cell)
        return {k: v for k, v in settings.items() if k not in (*SELECTS, *others)}

    def __post_init__(self) -> None:
        for flag, chosen, known in (
            ("--families", self.families, FAMILIES),
            ("--correlations", self.correlations, CORRELATIONS),
            ("--goals", self.goals, GOALS),
        ):
            if not chosen or not set(chosen) <= set(known):
                raise ValueError(
                    f"Expected {flag} among {', '.join(known)} but got "
                    f"{' '.join(chosen) or 'none'}; leave it out for all of them."
                )
        if not self.dims or min(self.dims) < 2:
            raise ValueError(
                f"Expected --dims of at least 2 but got {' '.join(map(str, self.dims)) or 'none'}; "
                "the first two columns of a spiral turn."
            )
        most = -0.5 * math.log1p(-(LIMIT**2)) * min(self.dims)
        if "maximise" in self.goals and self.target > most:
            raise ValueError(
                f"Expected --target of at most {most:.1f} nats in {min(self.dims)} columns but got "
                f"{self.target}; give a lower one, larger --dims, or --goals minimise."
            )
        for name, least in (("steps", 1), ("last", 1), ("batch_size", 10), ("together", 1),
                            ("hidden", 1), ("inner_steps", 1), ("memory", 1)):  # fmt: skip
            if getattr(self, name) < least:
                raise ValueError(
                    f"Expected --{name.replace('_', '-')} of at least {least} but got "
                    f"{getattr(self, name)}; leave it out for that of the experiment."
                )
        if self.last > self.steps:
            raise ValueError(
                f"Expected --last of at most the {self.steps} steps but got {self.last}; "
                "give both, such as --steps 500 --last 100."
            )
        for name in ("rate", "high", "low", "target", "goal"):
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(
                    f"Expected --{name.replace('_', '-')} above 0 but got {getattr(self, name)}; "
                    "leave it out for that of the experiment."
                )
        for below, above in (("goal", "high"), ("low", "target")):
            if getattr(self, below) >= getattr(self, above):
                raise ValueError(
                    f"Expected --{below} below --{above} but got {getattr(self, below)} and "
                    f"{getattr(self, above)}; leave both out for those of the experiment."
                )


def base_of(method: str) -> str:
    """The method without the suffix that says what it is fitted on.

    Example:
        >>> base_of("ratio-coupled-fresh"), base_of("club")
        ('ratio-coupled', 'club')
    """
    return method.removesuffix(FRESH)


def methods_for(goal: str) -> list[str]:
    """The names of all methods that there are for a goal.

    Example:
        >>> [name for name in methods_for("maximise") if name.startswith("ratio")]
        ['ratio-coupled', 'ratio-coupled-fresh']
    """
    bases = [b for b in BASES if goal == "minimise" or b not in SAME_UPWARDS]
    fresh = [f"{b}{FRESH}" for b in bases if b not in NOT_FITTED]
    return [name for b in bases for name in (b, f"{b}{FRESH}") if name in (*bases, *fresh)]
