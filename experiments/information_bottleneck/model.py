"""The model of the information bottleneck: encoder, classifier, and the bound on I(x; z)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.distributions import Independent
from torch.func import functional_call
from torch.nn import functional as F

from experiments.information_bottleneck.config import BottleneckConfig
from experiments.training import cycle
from mibounds.bounds import from_distributions
from mibounds.conditionals.base import diagonal
from mibounds.estimators import CLUB, MINE, NWJ, CLUBSample, InfoNCE
from mibounds.networks import MLP

if TYPE_CHECKING:
    from jaxtyping import Float, Int, Real

PIXELS, CLASSES = 28 * 28, 10
JITTER = 0.3  # deviation of the noise on the inputs from which q learns
LEARNT: dict[str, Any] = {
    "nwj": partial(NWJ, limit=3.0),
    "mine": MINE,
    "infonce": InfoNCE,
    "vclub": CLUB,
    "vclub_sample": CLUBSample,
}
VARIATIONAL = ("vclub", "vclub_sample")


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
        config: sizes, scale of p(z|x), noise.
        mode: "as-published", "correct" or "recipe".
        method: which bound.
        beta: its weight.

    Example:
        >>> small = BottleneckConfig(hidden=8, width=4, estimator_hidden=4)
        >>> p = Bottleneck(small, "correct", "club", 1e-3).encode(torch.randn(5, 784))
        >>> p.batch_shape, p.event_shape
        (torch.Size([5]), torch.Size([4]))
    """

    beta: Tensor

    def __init__(self, config: BottleneckConfig, mode: str, method: str, beta: float):
        super().__init__()
        self.method, self.published = method, mode == "as-published"
        self.scale = "clipped" if self.published else config.scale
        self.noise = config.noise if mode == "recipe" else 0.0
        hidden, width = config.hidden, config.width
        self.register_buffer("beta", torch.tensor(beta))
        self.encoder = MLP(PIXELS, (hidden, hidden), 2 * width)
        self.decoder = nn.Linear(width, CLASSES)
        self.estimator = None  # the last module, which trains at a rate of its own
        if method in VARIATIONAL:
            q = PaperConditional(PIXELS, width, config.estimator_hidden)
            self.estimator = LEARNT[method](conditional=q)
        elif method in LEARNT:
            self.estimator = LEARNT[method](PIXELS, width, config.estimator_hidden)

    @property
    def needs_pixel_noise(self) -> bool:
        """Whether `forward` is given noise on the pixels, for the encoder or for q."""
        return self.noise > 0 or self.method in VARIATIONAL

    def encode(self, x: Float[Tensor, "n pixels"]) -> Independent:
        """p(z|x)."""
        return diagonal(*self.code(self.encoder(x)))

    def code(self, raw: Float[Tensor, "*m n d2"]) -> tuple[Tensor, Tensor]:
        """Mean and scale of p(z|x), from the output of the encoder.

        The clipped scale (the authors' code) stays between 0.29 and 1.39; the shifted one starts
        small (Alemi et al.).
        """
        mean, rho = raw.chunk(2, -1)
        return mean, F.softplus(rho - 5 if self.scale == "shifted" else rho.clamp(-1.1, 1.1))

    def forward(
        self,
        x: Real[Tensor, "n pixels"],
        labels: Int[Tensor, " n"],
        noise: Float[Tensor, "n d"],
        uniform: Float[Tensor, " n"],
        pixel_noise: Float[Tensor, "n pixels"] | None = None,
    ) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """The loss of a step, the cross-entropy in it, and the buffers after it.

        Args:
            x: images as bytes.
            labels: of the images.
            noise: standard normal numbers, by which z is drawn.
            uniform: numbers in [0, 1), by which negatives are drawn.
            pixel_noise: standard normal numbers. In the recipe they are added to what the encoder
                reads, and z compresses a noisy digit; else to what q reads while it learns.
        """
        x = scale_pixels(x)
        if self.noise:
            assert pixel_noise is not None
            x, pixel_noise = x + self.noise * pixel_noise, None
        mean, scale = self.code(self.encoder(x))
        z = torch.addcmul(mean, scale, noise)
        entropy = F.cross_entropy(self.decoder(z), labels)
        loss = entropy
        if self.method != "none":
            information = self.information(diagonal(mean, scale), x, z, uniform)
            loss = loss + self.beta * information
        if self.estimator is not None:
            seen = x if pixel_noise is None else x + JITTER * pixel_noise
            loss = loss + self.estimator.learning_loss(seen, z.detach())
        return loss, entropy.detach(), dict(self.named_buffers())

    def information(
        self,
        p: Independent,
        x: Float[Tensor, "n pixels"],
        z: Float[Tensor, "n d"],
        uniform: Float[Tensor, " n"],
    ) -> Float[Tensor, ""]:
        """The bound on I(x; z), with gradients to the encoder only."""
        sampled: dict[str, Any] = {}
        if self.method.endswith("_sample"):
            sampled["index"] = cycle(uniform)[:, None]
        twice = 2.0 if self.published else 1.0  # as published without the 1/2 of the density
        if self.method == "club":
            return twice * from_distributions.club(p, z)
        if self.method == "club_sample":
            return twice * from_distributions.club_sample(p, z, **sampled)
        if self.method == "l1out":
            return from_distributions.l1out(p, z)
        if self.method == "vub":
            return from_distributions.vub(p)
        assert self.estimator is not None
        frozen = {name: w.detach() for name, w in self.estimator.named_parameters()}
        value = functional_call(self.estimator, frozen, (x, z), sampled)
        # Below zero a lower bound says nothing: pushing it further down only fools the critic.
        return twice * value if self.method in VARIATIONAL else value.clamp_min(0.0)


class PaperConditional(nn.Module):
    """q(z|x) of the variational forms as in the authors' code: ELU units, log-variance within ±2.

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
