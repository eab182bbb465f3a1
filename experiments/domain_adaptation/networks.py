"""The networks of domain adaptation: nine convolutions, and what stands on top of them.

Batch statistics get special treatment. In training they are those of the batch, of both domains
joined or of each; they are not averaged over steps, because dropout and noise make them differ from
those of a test. For a test they are collected once, from training images passed through the network
as it is then (`collecting`), so that a prediction does not depend on the other images in its batch;
as published they are those of the test batch.

Reference: Cheng et al. 2020, supplement; the wider network has the widths of the authors' code.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional as F

if TYPE_CHECKING:
    from jaxtyping import Float

SLOPE = 0.1  # of the leaky ReLU below zero
EPS = 1e-5
DEPTH = 3  # convolutions of a block


class BatchNorm(nn.Module):
    """Normalise channels by statistics of the batch, of its halves, or collected ones; leaky ReLU.

    Args:
        channels: how many.
        split: whether the halves of a batch, which are two domains, are normalised separately.
        slope: of the leaky ReLU below zero; 1 for none.

    Example:
        >>> x = torch.cat([torch.randn(8, 2, 4, 4), 5 + torch.randn(8, 2, 4, 4)])
        >>> joined, split = BatchNorm(2)(x), BatchNorm(2, split=True)(x)
        >>> bool(joined[:8].mean() < -0.5), bool(split[:8].mean().abs() < 1e-5)
        (True, True)
    """

    def __init__(self, channels: int, split: bool = False, slope: float = 1.0):
        super().__init__()
        self.split, self.slope = split, slope
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))
        self.collecting = False
        self.collected: tuple[Tensor, Tensor] | None = None

    def forward(self, x: Float[Tensor, "n c h w"]) -> Float[Tensor, "n c h w"]:
        if self.collecting:
            variance, mean = torch.var_mean(x.float(), (0, 2, 3), correction=0)
            self.collected = mean.detach(), variance.detach()
        if self.collected is not None:
            x = F.batch_norm(x, *self.collected, self.weight, self.bias, eps=EPS)
        elif self.split:
            x = torch.cat([self._normalise(half) for half in x.chunk(2)])
        else:
            x = self._normalise(x)
        return F.leaky_relu(x, self.slope)

    def _normalise(self, x: Tensor) -> Tensor:
        return F.batch_norm(x, None, None, self.weight, self.bias, training=True, eps=EPS)


class Noise(nn.Module):
    """Dropout and additive Gaussian noise, in training mode.

    Args:
        dropout: share of the values that are dropped.
        deviation: standard deviation of the noise.

    Example:
        >>> Noise(0.5, 1.0).eval()(torch.ones(3)).tolist()
        [1.0, 1.0, 1.0]
    """

    def __init__(self, dropout: float, deviation: float):
        super().__init__()
        self.dropout, self.deviation = dropout, deviation

    def forward(self, x: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        if not self.training:
            return x
        if self.dropout:
            x = F.dropout(x, self.dropout)
        return x + self.deviation * torch.randn_like(x) if self.deviation else x


class ConvEncoder(nn.Module):
    """Three blocks of three convolutions with pooling between them, then the mean over all places.

    Args:
        widths: channels of each block.
        dropout: share of the values dropped between the blocks.
        noise: standard deviation of the noise there.
        split: whether each domain has its own batch statistics.
        bf16: whether to compute in bfloat16.

    Example:
        >>> ConvEncoder((4, 6, 8))(torch.randn(2, 3, 28, 28)).shape
        torch.Size([2, 8])
    """

    def __init__(
        self,
        widths: Sequence[int],
        dropout: float = 0.5,
        noise: float = 1.0,
        split: bool = False,
        bf16: bool = False,
    ):
        super().__init__()
        self.bf16 = bf16
        layers: list[nn.Module] = []
        before = 3
        for block, width in enumerate(widths):
            if block:
                layers += [nn.MaxPool2d(2), Noise(dropout, noise)]
            for _ in range(DEPTH):
                layers += [nn.Conv2d(before, width, 3, padding=1, bias=False)]
                layers += [BatchNorm(width, split, SLOPE)]
                before = width
        self.layers = nn.Sequential(*layers)
        self.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]

    def forward(self, x: Float[Tensor, "n 3 h w"]) -> Float[Tensor, "n d"]:
        # No cache: weights cast without gradients would be reused where gradients are needed.
        with torch.autocast(x.device.type, torch.bfloat16, enabled=self.bf16, cache_enabled=False):
            return self.layers(x).float().mean((2, 3))


@contextmanager
def collecting(encoder: nn.Module) -> Iterator[None]:
    """Keep the batch statistics of what passes through an encoder, for all later batches.

    Example:
        >>> encoder = ConvEncoder((4, 4, 4)).eval()
        >>> x = torch.randn(6, 3, 8, 8)
        >>> with collecting(encoder):
        ...     together = encoder(x)
        >>> torch.allclose(encoder(x[:1]), together[:1], atol=1e-5)
        True
    """
    layers = [layer for layer in encoder.modules() if isinstance(layer, BatchNorm)]
    for layer in layers:
        layer.collecting = True
    try:
        yield
    finally:
        for layer in layers:
            layer.collecting = False


def forget_statistics(encoder: nn.Module) -> None:
    """Return to the statistics of the batch.

    Example:
        >>> encoder = ConvEncoder((4, 4, 4))
        >>> forget_statistics(encoder)
        >>> encoder.layers[1].collected is None
        True
    """
    for layer in encoder.modules():
        if isinstance(layer, BatchNorm):
            layer.collected = None


def head(inputs: int, outputs: int, hidden: int = 0) -> nn.Module:
    """A linear layer, or a perceptron of one hidden layer.

    Example:
        >>> len(head(8, 2)._modules), len(head(8, 2, 4)._modules)
        (0, 3)
    """
    if not hidden:
        return nn.Linear(inputs, outputs)
    return nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, outputs))


class Decoder(nn.Module):
    """From an embedding back to an image, for domain separation networks.

    Args:
        inputs: columns of the embedding.
        side: pixels of a side, a multiple of 4.
        channels: of the convolutions.

    Example:
        >>> Decoder(8, 28, 4)(torch.randn(2, 8)).shape
        torch.Size([2, 3, 28, 28])
    """

    def __init__(self, inputs: int, side: int, channels: int):
        super().__init__()
        self.start = side // 4
        self.first = nn.Linear(inputs, channels * self.start**2)
        self.convolutions = nn.ModuleList(
            nn.Conv2d(channels, out, 3, padding=1) for out in (channels, channels, 3)
        )

    def forward(self, z: Float[Tensor, "n d"]) -> Float[Tensor, "n 3 h w"]:
        x = F.relu(self.first(z)).unflatten(1, (-1, self.start, self.start))
        for i, convolution in enumerate(self.convolutions):
            x = convolution(x)
            if i < 2:
                x = F.interpolate(F.relu(x), scale_factor=2.0, mode="nearest")
        return x
