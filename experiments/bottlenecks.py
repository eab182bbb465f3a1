"""The information bottleneck: its settings, and the model of encoder, classifier and bound."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.distributions import Independent
from torch.func import functional_call
from torch.nn import functional as F

from experiments.runner.base import Cell, Config
from experiments.trainings import cycle
from mibounds.bounds import from_distributions as functional
from mibounds.conditionals.base import diagonal
from mibounds.estimators import CLUB, MINE, NWJ, CLUBSample, InfoNCE
from mibounds.networks import MLP

PIXELS, CLASSES = 28 * 28, 10
JITTER = 0.3  # noise through which the variational conditional sees its inputs when it learns
LEARNED: dict[str, Any] = {
    "nwj": partial(NWJ, limit=3.0),
    "mine": MINE,
    "infonce": InfoNCE,
    "vclub": CLUB,
    "vclub_sample": CLUBSample,
}
Scale = Literal["shifted", "clipped"]
VARIATIONAL = ("vclub", "vclub_sample")


@dataclass(frozen=True)
class BottleneckConfig(Config):
    """The information bottleneck on MNIST.

    Attributes:
        seeds: number of seeds, which are 0, 1, 2, ...
        epochs: passes over the training digits.
        batch_size: digits a step; twice as many as published.
        lr: rate of Adam.
        decay: factor of the rate, every second epoch.
        average: weight of the old average of the weights in each step.
        betas: weights of I(x; z) to choose from.
        scan_epochs: epochs of the models by which beta is chosen.
        scan_seeds: how many of them for each beta.
        holdout: training digits held out for that choice.
        samples: draws of z over which a prediction is averaged.
        hidden: units of the encoder's hidden layers.
        width: columns of z.
        scale: of p(z|x), softplus of rho within ±1.1 if clipped, softplus(rho - 5) if shifted.
        noise: deviation of the noise on pixels between -1 and 1 from which the recipe learns.
        estimator_hidden: hidden units of critics and of the variational conditional.
        estimator_rate: their rate, in terms of that of the encoder.
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
        """The noise is one of the recipe alone."""
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
        for name in (
            "epochs",
            "scan_epochs",
            "scan_seeds",
            "batch_size",
            "samples",
            "hidden",
            "width",
        ):
            if getattr(self, name) < 1:
                raise ValueError(
                    f"Expected --{name.replace('_', '-')} of at least 1 but got "
                    f"{getattr(self, name)}; leave it out for that of the paper."
                )


def scale_pixels(pixels: Tensor) -> Tensor:
    """From bytes to numbers between -1 and 1.

    Example:
        >>> scale_pixels(torch.tensor([0, 255], dtype=torch.uint8))
        tensor([-1., 1.])
    """
    return pixels.float() / 127.5 - 1


class Bottleneck(nn.Module):
    """Encoder, classifier, and the bound on I(x; z).

    Args:
        mode: "as-published", "correct" or "recipe".
        method: which bound.
        beta: its weight.
        hidden: units of each of the encoder's two hidden layers.
        width: columns of z.
        estimator_hidden: hidden units of a critic or a variational conditional.
        scale: of p(z|x); "clipped" for softplus of rho within ±1.1, which stays between 0.29 and
            1.39 (the authors' code), "shifted" for softplus(rho - 5), which begins small (Alemi et
            al.).
        noise: deviation of the noise on pixels between -1 and 1 from which it learns; what z
            compresses is then a noisy digit.

    Example:
        >>> p = Bottleneck("correct", "club", 1e-3, 8, 4, 4).encode(torch.randn(5, 784))
        >>> p.batch_shape, p.event_shape
        (torch.Size([5]), torch.Size([4]))
    """

    beta: Tensor

    def __init__(
        self,
        mode: str,
        method: str,
        beta: float,
        hidden: int,
        width: int,
        estimator_hidden: int,
        scale: Scale = "clipped",
        noise: float = 0.0,
    ):
        super().__init__()
        self.published, self.method, self.scale = mode == "as-published", method, scale
        self.noise = noise
        self.register_buffer("beta", torch.tensor(beta))
        self.encoder = MLP(PIXELS, (hidden, hidden), 2 * width)
        self.decoder = nn.Linear(width, CLASSES)
        self.estimator = None
        if method in VARIATIONAL:
            q = PaperConditional(PIXELS, width, estimator_hidden)
            self.estimator = LEARNED[method](conditional=q)
        elif method in LEARNED:
            self.estimator = LEARNED[method](PIXELS, width, estimator_hidden)

    def encode(self, x: Tensor) -> Independent:
        """p(z|x)."""
        return diagonal(*self.code(self.encoder(x)))

    def code(self, raw: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and scale of p(z|x), from what the encoder puts out."""
        mean, rho = raw.chunk(2, -1)
        return mean, F.softplus(rho - 5 if self.scale == "shifted" else rho.clamp(-1.1, 1.1))

    def forward(
        self,
        x: Tensor,
        labels: Tensor,
        noise: Tensor,
        uniform: Tensor,
        jitter: Tensor | None = None,
    ) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """Loss of a step, the cross-entropy in it, and the buffers after it."""
        x = scale_pixels(x)
        if self.noise:
            assert jitter is not None
            x, jitter = x + self.noise * jitter, None
        mean, scale = self.code(self.encoder(x))
        z = torch.addcmul(mean, scale, noise)
        entropy = F.cross_entropy(self.decoder(z), labels)
        loss = entropy
        if self.method != "none":
            information = self.information(diagonal(mean, scale), x, z, uniform)
            loss = loss + self.beta * information
        if self.estimator is not None:
            seen = x if jitter is None else x + JITTER * jitter
            loss = loss + self.estimator.learning_loss(seen, z.detach())
        return loss, entropy.detach(), dict(self.named_buffers())

    def information(self, p: Independent, x: Tensor, z: Tensor, uniform: Tensor) -> Tensor:
        """The bound on I(x; z), for the encoder alone to minimise."""
        sampled: dict[str, Any] = {}
        if self.method.endswith("_sample"):
            sampled["index"] = cycle(uniform)[:, None]
        twice = 2.0 if self.published else 1.0  # as published without the 1/2 of the density
        if self.method == "club":
            return twice * functional.club(p, z)
        if self.method == "club_sample":
            return twice * functional.club_sample(p, z, **sampled)
        if self.method == "l1out":
            return functional.l1out(p, z)
        if self.method == "vub":
            return functional.vub(p)
        assert self.estimator is not None
        frozen = {name: w.detach() for name, w in self.estimator.named_parameters()}
        value = functional_call(self.estimator, frozen, (x, z), sampled)
        # Below zero a lower bound says nothing more: to push it on would be to fool the critic.
        return twice * value if self.method in VARIATIONAL else value.clamp_min(0.0)


class PaperConditional(nn.Module):
    """q(z|x) of the variational forms, as the authors have it: ELU units, a log-variance within ±2.

    Args:
        x_dim: columns of x.
        y_dim: columns of y.
        hidden: units of each of the two networks.

    Example:
        >>> q = PaperConditional(6, 2, 4)(torch.zeros(5, 6))
        >>> bool((q.variance.log().abs() <= 2).all())
        True
    """

    def __init__(self, x_dim: int, y_dim: int, hidden: int):
        super().__init__()
        self.mean, self.log_variance = (
            nn.Sequential(nn.Linear(x_dim, hidden), nn.ELU(), nn.Linear(hidden, y_dim))
            for _ in range(2)
        )

    def forward(self, x: Tensor) -> Independent:
        return diagonal(self.mean(x), self.log_variance(x).tanh().exp())
