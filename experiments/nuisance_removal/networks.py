"""The network of all methods: an encoder to z, and a linear head. There is no noise in z."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from experiments.nuisance_removal.config import TABLE, NuisanceConfig
from experiments.nuisance_removal.samples import MERIT, PROXIES, Part, Samples

if TYPE_CHECKING:
    from jaxtyping import Float

ENCODED = 1000  # samples at a time, where nothing is learnt


class Model(nn.Module):
    """Encoder and head.

    Args:
        task: of `TASKS`.
        config: widths, and whether z is normalised.
        samples: with the number of classes.
    """

    def __init__(self, task: str, config: NuisanceConfig, samples: Samples):
        super().__init__()
        self.z_dim = config.table_z_dim if task == TABLE else config.z_dim
        layers = layers_of_table(config) if task == TABLE else layers_of_images(config)
        if config.normalisation == "batch":  # or else an encoder can escape by spreading z
            layers.append(nn.BatchNorm1d(self.z_dim, affine=False))
        self.encoder = nn.Sequential(*layers)
        self.head = nn.Linear(self.z_dim, samples.classes)

    @torch.no_grad()
    def collect_statistics(self, part: Part) -> None:
        """Normalise from now on by the statistics of all samples, by the weights as they are.

        Those that training keeps lag behind, by much if a method makes the encoder swing.
        """
        norm = self.encoder[-1]
        if isinstance(norm, nn.BatchNorm1d):
            norm.reset_running_stats()
            norm.momentum = None  # the plain mean of all batches
            norm.train()
            for rows in _spans(len(part)):
                self.encoder(part.take(rows)[0])
            norm.eval()

    @torch.no_grad()
    def encode(self, part: Part) -> Float[Tensor, "n z"]:
        """z of all samples, by the network in evaluation mode."""
        self.eval()
        return torch.cat([self.encoder(part.take(rows)[0]) for rows in _spans(len(part))])


def _spans(n: int) -> list[slice]:
    """Parts of all rows, of about the same length."""
    count = -(-n // ENCODED)
    return [slice(i * n // count, (i + 1) * n // count) for i in range(count)]


def layers_of_images(config: NuisanceConfig) -> list[nn.Module]:
    """Three convolutions, each of which halves the sides: 28, 14, 7, 4 pixels.

    Example:
        >>> layers = layers_of_images(NuisanceConfig(width=4))
        >>> nn.Sequential(*layers)(torch.rand(2, 3, 28, 28)).shape
        torch.Size([2, 64])
    """
    widths = (3, config.width, 2 * config.width, 2 * config.width)
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(widths):
        layers += [nn.Conv2d(inputs, outputs, 3, stride=2, padding=1), nn.ReLU()]
    return [*layers, nn.Flatten(), nn.Linear(widths[-1] * 4 * 4, config.z_dim)]


def layers_of_table(config: NuisanceConfig) -> list[nn.Module]:
    """Two hidden layers.

    Example:
        >>> nn.Sequential(*layers_of_table(NuisanceConfig()))(torch.rand(2, 8)).shape
        torch.Size([2, 16])
    """
    widths = (MERIT + PROXIES, config.hidden, config.hidden)
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(widths):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return [*layers, nn.Linear(widths[-1], config.table_z_dim)]
