"""What networks are worth: accuracies, and what their embeddings tell."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from experiments.domain_adaptation.images import Domain, Normaliser
from experiments.domain_adaptation.methods import Adaptation
from experiments.domain_adaptation.networks import (
    BatchNorm,
    ConvEncoder,
    collecting,
    forget_statistics,
)
from mibounds.measure.estimation import estimate

CALIBRATION = 500  # training images of a domain that give the batch statistics of a test
TEST_BATCH = 500
RIDGE = 1e-3  # of the classifier that reads labels from embeddings
EPS = 1e-8


class NetworkEvaluation:
    """Networks as they are now, on images of both domains; make a new one after a step.

    Args:
        model: the method.
        nets: its networks, with averaged weights.
        domains: source and target.
        normalisers: of each.
    """

    def __init__(
        self,
        model: Adaptation,
        nets: nn.ModuleDict,
        domains: Sequence[Domain],
        normalisers: Sequence[Normaliser],
    ):
        self.model, self.nets = model, nets
        self.domains, self.normalisers = domains, normalisers
        self.device = domains[0].images.device
        self.layers = [layer for layer in nets.modules() if isinstance(layer, BatchNorm)]
        self.statistics: dict[tuple[str, bool | None], list[Any]] = {}  # of each layer

    def accuracy(
        self, images: Tensor, labels: Tensor, target: bool, as_trained: bool = False
    ) -> float:
        """Percentage of images that are classified rightly; arguments as those of `embed`."""
        right = self.predict(images, target, as_trained) == labels
        return 100 * right.float().mean().item()

    def confuse(self, images: Tensor, labels: Tensor, target: bool) -> Tensor:
        """How many images of each class, in rows, are taken for which class, in columns."""
        classes = self.model.transfer.classes
        places = labels * classes + self.predict(images, target)
        return places.bincount(minlength=classes**2).view(classes, classes)

    def predict(self, images: Tensor, target: bool, as_trained: bool = False) -> Tensor:
        """The likeliest classes; arguments as those of `embed`."""
        z = self.embed("content", images, target, as_trained)
        return self.nets["classifier"](z).argmax(1)

    @torch.no_grad()
    def embed(self, kind: str, images: Tensor, target: bool, as_trained: bool = False) -> Tensor:
        """Content or domain embeddings of images of one domain.

        Args:
            kind: "content" or "domain".
            images: as bytes.
            target: whether they are of the target.
            as_trained: whether to use the batch statistics of training rather than of a test.
        """
        normalise = self.normalisers[int(target)]

        def encode(x: Tensor) -> Tensor:
            if kind == "content":
                return self.nets["content"](x)
            return self.model.embed_domain(self.nets, x, target)

        self._use_statistics(target, as_trained)
        return torch.cat([encode(normalise(part)) for part in images.split(TEST_BATCH)])

    def embed_both(
        self, kinds: Sequence[str], count: int, as_trained: bool = False
    ) -> list[Tensor]:
        """Embeddings of each kind of so many held-out images, of the source and then the target."""
        sides = [
            [self.embed(kind, each.test_images[:count], bool(i), as_trained) for kind in kinds]
            for i, each in enumerate(self.domains)
        ]
        return [torch.cat(parts) for parts in zip(*sides, strict=True)]

    def sides(self, count: int) -> Tensor:
        """The domain of each row that `embed_both` gives."""
        counts = [min(count, len(domain.test_images)) for domain in self.domains]
        return torch.arange(2).repeat_interleave(torch.tensor(counts))

    def measure(self, count: int) -> float:
        """Mutual information of the two embeddings on held-out images, by a Gaussian copula."""
        if not self.model.domain_embedding:
            return math.nan
        content, domain = self.embed_both(("content", "domain"), count, as_trained=True)
        try:
            result = estimate(content.cpu(), domain.cpu(), methods="gaussian_copula", budget="fast")
        except ValueError:  # too few images for so many columns, or values that are not finite
            return math.nan
        return result.nats

    def project(self, count: int) -> dict[str, list[float]]:
        """The embeddings of so many held-out images in two dimensions."""
        kinds = ["content", *(["domain"] if self.model.domain_embedding else [])]
        found = {}
        for kind, z in zip(kinds, self.embed_both(kinds, count), strict=True):
            points = project(z.cpu())
            points = 100 * points / points.abs().max().clamp_min(EPS)  # few digits are enough
            found[f"plane_{kind}"] = [round(v, 1) for v in points.flatten().tolist()]
        return found

    def _use_statistics(self, target: bool, as_trained: bool) -> None:
        """Normalise by batch statistics of training images, or as published of the tested batch."""
        c = self.model.config
        how = c.statistics if as_trained or c.test_statistics == "joined" else c.test_statistics
        kinds = {"content": how, "domain": c.domain_statistics}
        key = how, target if "split" in kinds.values() else None
        if key not in self.statistics:
            self._collect_statistics(kinds, target)
            self.statistics[key] = [layer.collected for layer in self.layers]
        for layer, statistics in zip(self.layers, self.statistics[key], strict=True):
            layer.collected = statistics

    def _collect_statistics(self, kinds: Mapping[str, str], target: bool) -> None:
        x = [
            normalise(domain.images[spread(len(domain.images), CALIBRATION, self.device)])
            for domain, normalise in zip(self.domains, self.normalisers, strict=True)
        ]
        for name, net in self.nets.items():
            if isinstance(net, ConvEncoder):
                forget_statistics(net)
                kind = kinds.get(name, "split")
                side = int(name == "private_target") if name.startswith("private") else int(target)
                if kind != "batch":
                    with collecting(net):
                        net(x[side] if kind == "split" else torch.cat(x))


def spread(n: int, count: int, device: torch.device) -> Tensor:
    """So many row numbers, evenly over all n rows."""
    return torch.linspace(0, n - 1, min(n, count), device=device).round().long()


def read_labels(z: Tensor, labels: Tensor) -> float:
    """Percentage of labels that a linear classifier reads rightly from embeddings.

    It is fitted to every other row by least squares, and tested on the rest.

    Example:
        >>> labels = torch.arange(60) % 3
        >>> read_labels(torch.eye(3)[labels] + 0.1 * torch.randn(60, 3), labels)
        100.0
    """
    z, labels = z.double().cpu(), labels.cpu()
    z = F.pad((z - z.mean(0)) / (z.std(0) + EPS), (0, 1), value=1.0)
    known, wanted = z[::2], F.one_hot(labels)[::2].double()
    ridge = RIDGE * len(known) * torch.eye(z.shape[1], dtype=z.dtype)
    weights = torch.linalg.solve(known.T @ known + ridge, known.T @ wanted)
    right = (z[1::2] @ weights).argmax(1) == labels[1::2]
    return 100 * right.double().mean().item()


def project(z: Tensor) -> Tensor:
    """Points in two dimensions: by t-SNE where scikit-learn is installed, else by PCA.

    Example:
        >>> project(torch.randn(20, 5)).shape
        torch.Size([20, 2])
    """
    z = torch.nan_to_num(z.double())
    try:
        from sklearn.manifold import TSNE  # pyright: ignore[reportMissingImports]
    except ImportError:
        centred = z - z.mean(0)
        _, _, directions = torch.linalg.svd(centred, full_matrices=False)
        return centred @ directions[:2].T
    perplexity = min(30.0, (len(z) - 1) / 3)
    points = TSNE(init="pca", perplexity=perplexity, random_state=0).fit_transform(z.numpy())
    return torch.from_numpy(np.asarray(points))
