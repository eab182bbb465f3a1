"""What is trained: on which task, by which method, with which weight, with which settings.

A cell's method names its weight too: "club-0.1" is the method "club" with the weight 0.1.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal

from experiments.runner.base import Cell, Config

IMAGES = ("coloured-mnist", "cluttered-mnist")
TABLE = "biased-table"
TASKS = (*IMAGES, TABLE)
GIVEN = "-given"  # ends the name of a method that removes I(z; s | y) rather than I(z; s)

WEIGHTS = {  # the methods of the cells, and the field with their weights
    "adversary": "adversary_weights",
    "hsic": "hsic_weights",
    "club": "penalty_weights",
    "club_sample": "penalty_weights",
    "default": "penalty_weights",
    "adversary-given": "adversary_weights",
    "default-given": "penalty_weights",
}


@dataclass(frozen=True)
class NuisanceConfig(Config):
    """Removal of a nuisance from a representation.

    Attributes:
        seeds: number of seeds, which are 0, 1, 2, ...
        adversary_weights: weights of the reversed gradient.
        hsic_weights: weights of the normalised HSIC.
        penalty_weights: weights of the penalties of the library.
        table_factor: how many times larger the weights are on the table, where the nuisance and the
            label share less.
        steps: steps of a training.
        batch_size: samples per step.
        lr: learning rate of Adam.
        z_dim: columns of z on the tasks with images.
        table_z_dim: columns of z on the table.
        width: channels of the first convolution; the other two have twice as many.
        hidden: hidden units of the table's encoder, of the adversary and of the MLP probe.
        normalisation: of z at the end of the encoder, without parameters: batch, or none.
        agreement: share of the training images whose nuisance is that of their label; that of the
            others is random.
        bias: weight of the attribute in the past decisions of the table, where merit has 4 columns
            of weight 1.
        images: how many training and test images to use; 0 for all.
        rows: how many training rows the table has; its test parts have half as many.
        holdout: share of the training samples that are held out for the choice of the weight.
        probe_steps: steps of a probe at most.
        audited: test samples by which mutual information is estimated, at most.

    Example:
        >>> NuisanceConfig().weights_of("club", "biased-table")
        (0.1, 1.0, 10.0)
    """

    seeds: int = 3
    adversary_weights: tuple[float, ...] = (0.1, 0.3, 1.0)
    hsic_weights: tuple[float, ...] = (1.0, 10.0, 100.0)
    penalty_weights: tuple[float, ...] = (0.01, 0.1, 1.0)
    table_factor: float = 10.0
    steps: int = 3000
    batch_size: int = 256
    lr: float = 1e-3
    z_dim: int = 64
    table_z_dim: int = 16
    width: int = 32
    hidden: int = 128
    normalisation: Literal["batch", "none"] = "batch"
    agreement: float = 0.95
    bias: float = 2.0
    images: int = 0
    rows: int = 20000
    holdout: float = 1 / 6
    probe_steps: int = 1000
    audited: int = 2000

    def weights_of(self, method: str, task: str) -> tuple[float, ...]:
        """The weights of a method on a task."""
        factor = self.table_factor if task == TABLE else 1.0
        return tuple(factor * weight for weight in getattr(self, WEIGHTS[method]))

    def settings_of(self, cell: Cell) -> dict[str, Any]:
        """All but the weights: a cell has one of them, in its name."""
        settings = super().settings_of(cell)
        return {k: v for k, v in settings.items() if k not in ("table_factor", *WEIGHTS.values())}

    def __post_init__(self) -> None:
        for name in dict.fromkeys(WEIGHTS.values()):
            weights = getattr(self, name)
            if not weights or not all(0 < weight < float("inf") for weight in weights):
                raise ValueError(
                    f"Expected --{name.replace('_', '-')} of positive numbers but got "
                    f"{' '.join(map(str, weights)) or 'none'}; give three, such as 0.1 1 10."
                )
        if not 0 < self.table_factor < float("inf"):
            raise ValueError(
                f"Expected --table-factor above 0 but got {self.table_factor}; "
                "leave it out for that of the experiment."
            )
        for name, least in (("steps", 1), ("batch_size", 2), ("probe_steps", 1), ("audited", 20),
                            ("rows", 20), ("images", 0)):  # fmt: skip
            if getattr(self, name) < least:
                raise ValueError(
                    f"Expected --{name.replace('_', '-')} of at least {least} but got "
                    f"{getattr(self, name)}; leave it out for that of the experiment."
                )
        for name in ("agreement", "holdout"):
            value = getattr(self, name)
            if not 0 < value < 1:
                raise ValueError(
                    f"Expected --{name} between 0 and 1 but got {value}; "
                    "leave it out for that of the experiment."
                )


def name_method(method: str, weight: float) -> str:
    """The method of a cell.

    Example:
        >>> name_method("club", 0.1), name_method("none", 0.0)
        ('club-0.1', 'none')
    """
    return f"{method}-{weight:g}" if method in WEIGHTS else method


def split_method(name: str) -> tuple[str, float]:
    """The method and the weight in the name of a cell's method.

    Example:
        >>> split_method("adversary-given-1e-05"), split_method("none")
        (('adversary-given', 1e-05), ('none', 0.0))
    """
    found = re.fullmatch(rf"(\w+(?:{GIVEN})?)(?:-(.+))?", name)
    assert found is not None
    return found[1], float(found[2] or 0.0)
