"""The images of both domains: loaded, normalised, augmented.

Images stay on the device as bytes. A step gathers some of them, shifted, flipped and warped at
random, normalises them, and then changes their colours; a teacher sees another such view of the
same images. All random numbers are drawn before, for many steps at once: the graph of a step could
not draw different ones each time it runs.

The nine classes that CIFAR-10 and STL-10 share leave out frog and monkey, and are numbered in the
order of CIFAR-10.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from experiments.domain_adaptation.config import (
    TRANSFERS,
    Division,
    DomainAdaptationConfig,
    Normalisation,
    Reduction,
    Transfer,
)

if TYPE_CHECKING:
    from jaxtyping import Float, Int, Real, UInt8

CLASSES: dict[str, tuple[str, ...]] = {  # of the data sets whose classes are only partly shared
    "cifar10": ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship",
                "truck"),
    "stl10": ("airplane", "bird", "automobile", "cat", "deer", "dog", "horse", "monkey", "ship",
              "truck"),
}  # fmt: skip
SHARED = tuple(name for name in CLASSES["cifar10"] if name in CLASSES["stl10"])
POOLED = 0.8  # of both parts of USPS, for training; 7438 of 9298 images, as in the paper
HELD_OUT = 10  # without a test part, one in so many training images is not trained on
SMOOTH = 8  # random colours per side, from which a background is made
EPS = 1e-5


@dataclass(frozen=True, eq=False)
class Domain:
    """The source or the target, on a device.

    The labels of a target's training images only serve the choice by an oracle; no loss sees them.

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


def load_domains(
    name: str,
    count: int = 0,
    reduction: Reduction = "means",
    division: Division = "pooled",
    device: str = "cpu",
) -> tuple[Domain, Domain]:
    """Source and target of a transfer.

    Args:
        name: of `TRANSFERS`.
        count: how many images of each part to use; 0 for all.
        reduction: how STL-10 is made smaller, where it has its full size.
        division: of USPS, its own or by `redivide`.
        device: for the images.
    """
    transfer = TRANSFERS[name]
    source, target = (
        load_domain(each, transfer, count, reduction, division, device)
        for each in (transfer.source, transfer.target)
    )
    return source, target


def load_domain(
    name: str, transfer: Transfer, count: int, reduction: Reduction, division: Division, device: str
) -> Domain:
    """One side of a transfer; without a test part, some training images are held out."""
    from experiments.data import load
    from experiments.data.loaders import provide

    _, entry = provide(name)
    splits = ("train", "test") if "test" in entry.digests else ("train",)
    if splits == ("train",) and name == transfer.target:
        load(name, "test")  # says what is missing
    parts: list[tuple[np.ndarray, np.ndarray]] = []
    origin = ""
    for split in splits:
        given = load(name, split)
        origin = given.origin
        images, labels = shape_images(given.images, transfer.side, reduction), given.labels
        if name in CLASSES:
            images, labels = share_classes(images, labels, CLASSES[name])
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
    """Pool both parts of a data set and divide it anew, at random but always in the same way.

    The test part of USPS is harder than its training part. The file that the paper's authors and
    many others read has both pooled and divided anew, 7438 to 1860.

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
    """Images of a given side: larger ones are cropped or reduced, smaller ones enlarged.

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
    """Only the images of the shared classes, with labels in their common order.

    Args:
        images: of all classes.
        labels: from 0 to 9.
        names: what these mean.

    Returns:
        Images and labels from 0 to 8.

    Example:
        >>> images, labels = np.zeros((3, 1, 1, 3), np.uint8), np.array([0, 7, 2])
        >>> share_classes(images, labels, CLASSES["stl10"])[1]  # a plane, a monkey, a car
        array([0, 1])
    """
    numbers = np.array([SHARED.index(name) if name in SHARED else -1 for name in names])
    shared = numbers[labels]
    return images[shared >= 0], shared[shared >= 0]


# --- normalisation and augmentation --------------------------------------------------------------


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


class Augmentation:
    """Random changes of images.

    Args:
        config: how much of each change.
        transfer: size of the images, and whether they may be mirrored.
        device: of the images.

    Example:
        >>> from experiments.domain_adaptation.config import settle
        >>> config = settle(DomainAdaptationConfig(shift=2, batch_size=5))
        >>> augment = Augmentation(config, Transfer("mnist", "usps", side=8))
        >>> drawn = augment.draw(10, torch.Generator().manual_seed(0))
        >>> drawn["shifts"].shape  # steps, views, domains, images, down and across
        torch.Size([10, 1, 2, 5, 2])
        >>> images = torch.zeros(7, 8, 8, 1, dtype=torch.uint8)
        >>> now = {name: each[0] for name, each in drawn.items()}
        >>> index = torch.tensor([0, 1, 2, 3, 4])
        >>> augment.apply(images, index, lambda x: x.permute(0, 3, 1, 2) / 255, now, 0, 0).shape
        torch.Size([5, 1, 8, 8])
    """

    def __init__(
        self,
        config: DomainAdaptationConfig,
        transfer: Transfer,
        device: str | torch.device = "cpu",
    ):
        self.config, self.flips = config, transfer.objects
        self.views = 1 + config.two_views
        self.smoothing = smoothing(transfer.side, SMOOTH).to(device)

    def draw(self, steps: int, generator: torch.Generator) -> dict[str, Tensor]:
        """Random numbers for so many steps, each (steps, views, 2 domains, images, ...).

        Args:
            steps: how many.
            generator: on the device of the images.
        """
        s, g, device = self.config, generator, generator.device
        shape = steps, self.views, 2, s.batch_size
        drawn: dict[str, Tensor] = {}
        if s.shift:
            drawn["shifts"] = torch.randint(
                -s.shift, s.shift + 1, (*shape, 2), generator=g, device=device
            )
            high = 2 if self.flips else 1
            drawn["flips"] = torch.randint(high, shape, generator=g, device=device)
        if s.warp:
            noise = torch.randn(*shape, 2, 2, generator=g, device=device)
            drawn["matrices"] = torch.eye(2, device=device) + s.warp * noise
        if s.inversion:
            channels = 3 if s.inverted == "channels" else 1
            draws = torch.rand(*shape, channels, 1, 1, generator=g, device=device)
            drawn["signs"] = 1.0 - 2.0 * (draws < s.inversion)
        if s.background:
            sizes = *shape, 3, SMOOTH, SMOOTH
            drawn["backgrounds"] = s.background * torch.randn(sizes, generator=g, device=device)
        return drawn

    def apply(
        self,
        images: UInt8[Tensor, "n h w c"],
        index: Int[Tensor, " b"],
        normalise: Callable[[Tensor], Tensor],
        drawn: Mapping[str, Tensor],
        view: int,
        domain: int,
    ) -> Float[Tensor, "b c h w"]:
        """One view of some images.

        Args:
            images: to choose from.
            index: which.
            normalise: from bytes to what an encoder reads.
            drawn: the random numbers of this step.
            view: 0 for the networks, 1 for the teacher.
            domain: 0 for the source, 1 for the target.
        """
        own = {name: each[view, domain] for name, each in drawn.items()}
        taken = take_images(images, index, own.get("shifts"), own.get("flips"))
        if "matrices" in own:
            taken = warp_images(taken, own["matrices"])
        x = normalise(taken)
        if "signs" in own:
            x = x * own["signs"]
        if "backgrounds" in own:
            x = x + self.smoothing @ own["backgrounds"] @ self.smoothing.T
        return x


def smoothing(side: int, coarse: int) -> Float[Tensor, "side coarse"]:
    """The matrix of cubic interpolation, from a coarse column to a longer one.

    Applied from both sides it makes a coarse image smooth, in two products of matrices; torch's own
    interpolation of small images is much slower on a GPU.

    Example:
        >>> smoothing(28, 8).sum(1).allclose(torch.ones(28))
        True
    """
    columns = torch.eye(coarse)[None, :, :, None]
    return F.interpolate(columns, size=(side, 1), mode="bicubic")[0, :, :, 0].T.contiguous()


def take_images(
    images: UInt8[Tensor, "n h w c"],
    index: Int[Tensor, " b"],
    shifts: Int[Tensor, "b 2"] | None = None,
    flips: Int[Tensor, " b"] | None = None,
) -> UInt8[Tensor, "b h w c"]:
    """Gather images, shifted and flipped, in one pass over memory.

    Args:
        images: to choose from.
        index: which.
        shifts: pixels down and to the right; at the edges the last pixel is repeated.
        flips: 1 for images to mirror, else 0.

    Returns:
        The chosen images.

    Example:
        >>> image = torch.arange(4, dtype=torch.uint8).view(1, 1, 4, 1)
        >>> moved = take_images(image, torch.tensor([0]), torch.tensor([[0, 1]]), torch.tensor([1]))
        >>> moved.flatten().tolist()
        [2, 1, 0, 0]
    """
    if shifts is None or flips is None:
        return images.index_select(0, index)
    _, height, width, _ = images.shape
    rows = torch.arange(height, device=images.device)
    columns = torch.arange(width, device=images.device)
    columns = torch.where(flips[:, None] > 0, width - 1 - columns, columns)
    columns = (columns - shifts[:, 1:]).clamp(0, width - 1)
    rows = (rows - shifts[:, :1]).clamp(0, height - 1)
    return images[index[:, None, None], rows[:, :, None], columns[:, None, :]]


def warp_images(
    images: UInt8[Tensor, "b h w c"], matrices: Float[Tensor, "b 2 2"]
) -> Float[Tensor, "b h w c"]:
    """Turn, stretch and shear images about their middle.

    Args:
        images: to warp.
        matrices: from a place in the new image to a place in the old one, both measured from the
            middle, first across and then down; at the edges the last pixel is repeated.

    Returns:
        The new images, as floating-point numbers.

    Example:
        >>> image = torch.arange(9, dtype=torch.uint8).view(1, 3, 3, 1)
        >>> turn = torch.tensor([[[0.0, -1.0], [1.0, 0.0]]])
        >>> warp_images(image, turn).round().int().view(3, 3).tolist()
        [[2, 5, 8], [1, 4, 7], [0, 3, 6]]
    """
    x = images.permute(0, 3, 1, 2).float()
    grid = F.affine_grid(F.pad(matrices, (0, 1)), list(x.shape), align_corners=False)
    warped = F.grid_sample(x, grid, padding_mode="border", align_corners=False)
    return warped.permute(0, 2, 3, 1)
