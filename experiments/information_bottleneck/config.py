"""The settings of the information bottleneck."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from experiments.runner.base import Cell, Config

Scale = Literal["shifted", "clipped"]


@dataclass(frozen=True)
class BottleneckConfig(Config):
    """The information bottleneck on MNIST.

    Attributes:
        seeds: number of seeds, which are 0, 1, 2, ...
        epochs: passes over the training digits.
        batch_size: digits per step; twice as many as published.
        lr: learning rate of Adam.
        decay: factor of the learning rate, every second epoch.
        average: weight of the old average of the weights in each step.
        betas: weights of I(x; z) to choose from.
        scan_epochs: epochs of the models by which beta is chosen.
        scan_seeds: how many of them for each beta.
        holdout: training digits held out for that choice.
        samples: draws of z over which a prediction is averaged.
        hidden: units of the encoder's hidden layers.
        width: columns of z.
        scale: of p(z|x); clipped is softplus of rho within ±1.1, shifted is softplus(rho - 5).
        noise: deviation of the noise that the recipe adds to pixels between -1 and 1 in training.
        estimator_hidden: hidden units of critics and of the variational conditional.
        estimator_rate: their learning rate, as a multiple of the encoder's.
        digits: how many training and test digits to use; 0 for all.
    """

    seeds: int = 3
    epochs: int = 200
    batch_size: int = 100
    lr: float = 1e-4
    decay: float = 0.97
    average: float = 0.999
    betas: tuple[float, ...] = (1e-4, 1e-3, 1e-2)
    scan_epochs: int = 60
    scan_seeds: int = 1
    holdout: int = 10000
    samples: int = 12
    hidden: int = 1024
    width: int = 256
    scale: Scale = "clipped"
    noise: float = 0.6
    estimator_hidden: int = 256
    estimator_rate: float = 10.0
    digits: int = 0

    def settings_of(self, cell: Cell) -> dict[str, Any]:
        """Only the recipe depends on the noise."""
        settings = super().settings_of(cell)
        return {k: v for k, v in settings.items() if k != "noise" or cell.mode == "recipe"}

    def __post_init__(self) -> None:
        if not self.betas:
            raise ValueError("Expected --betas with a number but got none; give --betas 0.001.")
        if not self.noise >= 0:
            raise ValueError(
                f"Expected --noise of at least 0 but got {self.noise}; leave it out for that of "
                "the recipe."
            )
        for name in ("epochs", "scan_epochs", "scan_seeds", "batch_size", "samples", "hidden",
                     "width"):  # fmt: skip
            if getattr(self, name) < 1:
                raise ValueError(
                    f"Expected --{name.replace('_', '-')} of at least 1 but got "
                    f"{getattr(self, name)}; leave it out for that of the paper."
                )
