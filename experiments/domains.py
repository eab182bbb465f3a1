"""The two sides of a domain adaptation: images of a source with labels, and of a target.

Images stay on the device as bytes; batches of them are views (`views`), normalised as here.

The nine classes that CIFAR-10 and STL-10 share leave out frog and monkey, and are numbered in the
order of CIFAR-10.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

if TYPE_CHECKING:
    from jaxtyping import Float, Int, Real, UInt8

Normalisation = Literal["raw", "domain", "instance"]
Reduction = Literal["means", "picked"]
Division = Literal["pooled", "own"]

CIFAR10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship",
           "truck")  # fmt: skip
STL10 = ("airplane", "bird", "automobile", "cat", "deer", "dog", "horse", "monkey", "ship",
         "truck")  # fmt: skip
SHARED = tuple(name for name in CIFAR10 if name in STL10)
POOLED = 0.8  # of both parts of USPS, for training; 7438 of 9298 images, as in the paper
HELD_OUT = 10  # without a test part, one in so many training images is not trained on
EPS = 1e-5


@dataclass(frozen=True)
class Task:
    """Which data set is adapted to which.

    Args:
        source: name of the data set with labels.
        target: name of that without.
        side: pixels of a side.
        classes: how many.
        flips: whether an image may be mirrored, which turns digits into none.
    """

    source: str
    target: str
    side: int = 28
    classes: int = 10
    flips: bool = False


TASKS: dict[str, Task] = {
    "mnist-mnistm": Task("mnist", "mnist-m"),
    "mnist-usps": Task("mnist", "usps"),
    "usps-mnist": Task("usps", "mnist"),
    "svhn-mnist": Task("svhn", "mnist"),
    "cifar10-stl10": Task("cifar10", "stl10", 32, len(SHARED), True),
    "stl10-cifar10": Task("stl10", "cifar10", 32, len(SHARED), True),
}


@dataclass(frozen=True, eq=False)
class Domain:
    """One side on a device.

    The labels of a target's training images are for the choice by an oracle alone: no loss is
    given them.

    Args:
        images: for training, of shape (n, side, side, 1 or 3).
        labels: of those.
        test_images: held out.
        test_labels: of those.
        origin: where they come from.

    Example:
        >>> images, labels = torch.full((4, 2, 2, 1), 51, dtype=torch.uint8), torch.arange(4)
        >>> mean, deviation = Domain(images, labels, images, labels, "made up").moments()
        >>> round(mean.item(), 3), round(deviation.item(), 3)
        (0.2, 0.003)
    """

    images: UInt8[Tensor, "n h w c"]
    labels: Int[Tensor, " n"]
    test_images: UInt8[Tensor, "m h w c"]
    test_labels: Int[Tensor, " m"]
    origin: str

    def moments(self) -> tuple[Float[Tensor, " c"], Float[Tensor, " c"]]:
        """Mean and standard deviation of the channels of the training images, from 0 to 1."""
        sums = torch.zeros(2, self.images.shape[-1], dtype=torch.float64, device=self.images.device)
        for part in self.images.split(4096):
            pixels = part.flatten(0, 2).double() / 255
            sums += torch.stack([pixels.sum(0), pixels.square().sum(0)])
        mean, square = sums / self.images[..., 0].numel()
        return mean.float(), (square - mean.square()).clamp_min(EPS).sqrt().float()


def load_task(
    name: str,
    count: int = 0,
    reduction: Reduction = "means",
    division: Division = "pooled",
    device: str = "cpu",
) -> tuple[Domain, Domain]:
    """Both sides of a task.

    Args:
        name: of `TASKS`.
        count: how many images of each part to use; 0 for all.
        reduction: how STL-10 is made smaller, where it has its full size.
        division: of USPS, its own or by `redivide`.
        device: where the images shall be.

    Returns:
        Source and target.
    """
    task = TASKS[name]
    return (
        load_domain(task.source, task, count, reduction, division, device),
        load_domain(task.target, task, count, reduction, division, device),
    )


def load_domain(
    name: str, task: Task, count: int, reduction: Reduction, division: Division, device: str
) -> Domain:
    """One side of a task; without a test part, some training images are held out."""
    from experiments.data import load
    from experiments.data.loaders import provide

    _, entry = provide(name)
    splits = ("train", "test") if "test" in entry.digests else ("train",)
    if splits == ("train",) and name == task.target:
        load(name, "test")  # says what is missing
    parts: list[tuple[np.ndarray, np.ndarray]] = []
    origin = ""
    for split in splits:
        given = load(name, split)
        origin = given.origin
        images, labels = shape_images(given.images, task.side, reduction), given.labels
        if task.classes == len(SHARED):
            images, labels = share_classes(images, labels, CIFAR10 if name == "cifar10" else STL10)
        parts.append((images, labels))
    if len(parts) == 1:
        ((images, labels),) = parts
        cut = len(images) - max(1, len(images) // HELD_OUT)
        parts = [(images[:cut], labels[:cut]), (images[cut:], labels[cut:])]
    if name == "usps" and division == "pooled":
        parts = redivide(parts)
    if count:
        parts = [(images[:count], labels[:count]) for images, labels in parts]
    x, y, x_test, y_test = (
        torch.from_numpy(np.ascontiguousarray(v)).to(device) for pair in parts for v in pair
    )
    return Domain(x, y, x_test, y_test, origin)


def redivide(
    parts: Sequence[tuple[np.ndarray, np.ndarray]],
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Pool both parts of a set and divide it anew, at random but always the same.

    The test part of USPS is harder than its training part; in the file that the paper's authors and
    many others read, both are pooled and divided anew, 7438 to 1860.

    Args:
        parts: images and labels for training, then for tests.

    Example:
        >>> parts = [(np.zeros((7, 2, 2)), np.arange(7)), (np.ones((3, 2, 2)), np.arange(7, 10))]
        >>> (images, _), (test_images, _) = redivide(parts)
        >>> len(images), len(test_images)
        (8, 2)
    """
    images, labels = (np.concatenate(each) for each in zip(*parts, strict=True))
    order = np.random.default_rng(0).permutation(len(images))
    cut = round(POOLED * len(images))
    return [(images[own], labels[own]) for own in (order[:cut], order[cut:])]


def shape_images(images: np.ndarray, side: int, reduction: Reduction = "means") -> np.ndarray:
    """Images of a given side: larger ones cut or reduced, smaller ones enlarged.

    Example:
        >>> shape_images(np.zeros((5, 16, 16), np.uint8), 28).shape
        (5, 28, 28, 1)
        >>> shape_images(np.zeros((5, 32, 32, 3), np.uint8), 28).shape
        (5, 28, 28, 3)
    """
    from experiments.data import reduce_by_means, reduce_by_picking

    if images.ndim == 3:
        images = images[..., None]
    now = images.shape[1]
    if now == 3 * side:
        return (reduce_by_means if reduction == "means" else reduce_by_picking)(images)
    if now > side:  # the middle
        edge = (now - side) // 2
        return images[:, edge : edge + side, edge : edge + side]
    if now < side:
        pixels = torch.from_numpy(np.ascontiguousarray(images)).permute(0, 3, 1, 2).float()
        larger = F.interpolate(pixels, size=(side, side), mode="bilinear")
        return larger.round().clamp(0, 255).to(torch.uint8).permute(0, 2, 3, 1).numpy()
    return images


def share_classes(
    images: np.ndarray, labels: np.ndarray, names: tuple[str, ...]
) -> tuple[np.ndarray, np.ndarray]:
    """Images of the shared classes alone, with labels in their common order.

    Args:
        images: of all classes.
        labels: from 0 to 9.
        names: what these mean.

    Returns:
        Images and labels from 0 to 8.

    Example:
        >>> images, labels = np.zeros((3, 1, 1, 3), np.uint8), np.array([0, 7, 2])
        >>> share_classes(images, labels, STL10)[1]  # a plane, a monkey, a car
        array([0, 1])
    """
    numbers = np.array([SHARED.index(name) if name in SHARED else -1 for name in names])
    shared = numbers[labels]
    return images[shared >= 0], shared[shared >= 0]


# --- what an encoder reads ------------------------------------------------------------------------


class Normaliser:
    """From bytes to what an encoder reads.

    Args:
        domain: whose images they are.
        kind: "raw" leaves 0 to 255; "domain" subtracts the mean of the domain's channels and
            divides by their deviation; "instance" does so with those of each image.

    Example:
        >>> images = torch.randint(256, (4, 8, 8, 1)).to(torch.uint8)
        >>> domain = Domain(images, torch.arange(4), images, torch.arange(4), "made up")
        >>> x = Normaliser(domain, "instance")(images)
        >>> x.shape, bool(x.mean((2, 3)).abs().max() < 1e-5)
        (torch.Size([4, 3, 8, 8]), True)
    """

    def __init__(self, domain: Domain, kind: Normalisation):
        self.kind = kind
        self.mean, self.deviation = domain.moments()

    def __call__(self, images: Real[Tensor, "b h w c"]) -> Float[Tensor, "b 3 h w"]:
        """Three channels, last in memory."""
        x = images.float()
        if self.kind == "domain":
            x = (x / 255 - self.mean) / self.deviation
        elif self.kind == "instance":
            variance, mean = torch.var_mean(x / 255, (1, 2), correction=0, keepdim=True)
            x = (x / 255 - mean) * (variance + EPS).rsqrt()
        x = x.permute(0, 3, 1, 2)
        if x.shape[1] == 1:
            x = x.expand(-1, 3, -1, -1).contiguous(memory_format=torch.channels_last)
        return x
