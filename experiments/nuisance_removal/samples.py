"""The three tasks: a label y, a nuisance s that agrees with it in training, and where s is random.

coloured-mnist   the digit has one of ten colours
cluttered-mnist  the digit stands on one of ten backgrounds, smooth random fields of colour
biased-table     applicants with columns of merit and proxies of an attribute s, and decisions

The images are made from MNIST. In a share of the training images the number of the colour or of the
background is the label, in the others it is random. Test digits appear twice: with a random
nuisance, independent of the label ("broken"), and with one drawn as in training ("as trained").

In the table past decisions go by merit and, unfairly, by s. The test applicants are decided on
twice: by merit only, which is independent of s ("broken"), and as in the past ("as trained").

In the broken parts all values of s are equally likely, whatever the label is.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from experiments.domain_adaptation.images import smoothing
from experiments.nuisance_removal.config import TABLE, TASKS, NuisanceConfig

if TYPE_CHECKING:
    from jaxtyping import Float, Int, Shaped, UInt8

DIGITS = 10
SIDE = 28  # pixels
PALETTE = (  # red, green and blue of each colour
    (1.0, 0.1, 0.1), (0.1, 0.9, 0.1), (0.2, 0.3, 1.0), (1.0, 1.0, 0.1), (1.0, 0.1, 1.0),
    (0.1, 1.0, 1.0), (1.0, 0.55, 0.0), (0.6, 0.3, 0.9), (0.6, 0.4, 0.2), (1.0, 1.0, 1.0),
)  # fmt: skip
COARSE = 6  # random colours per side of a background
DARK = 0.7  # the brightest that a background can be: digits are white
BACKGROUNDS = 0  # their seed, the same for all cells
PAINTED = 5000  # images at a time
MERIT, PROXIES, READABLE = 4, 4, 0.8  # columns of the table, and the share of s in a proxy


@dataclass(frozen=True, eq=False)
class Part:
    """Samples, on a device.

    Args:
        x: what the encoder reads: images as bytes, or columns.
        y: labels.
        s: values of the nuisance.

    Example:
        >>> white = torch.full((4, 3, 2, 2), 255, dtype=torch.uint8)
        >>> x, y, s = Part(white, torch.arange(4), torch.zeros(4).long()).take(torch.tensor([2, 0]))
        >>> x.unique(), y, s
        (tensor([1.]), tensor([2, 0]), tensor([0, 0]))
    """

    x: Shaped[Tensor, "n *x"]
    y: Int[Tensor, " n"]
    s: Int[Tensor, " n"]

    def take(
        self, rows: Int[Tensor, " b"] | slice
    ) -> tuple[Float[Tensor, "b *x"], Int[Tensor, " b"], Int[Tensor, " b"]]:
        """Some samples; pixels are from 0 to 1."""
        x = self.x[rows]
        return x / 255 if x.dtype == torch.uint8 else x, self.y[rows], self.s[rows]

    def to(self, device: str | torch.device) -> Part:
        """The same on a device."""
        return Part(self.x.to(device), self.y.to(device), self.s.to(device))

    def __len__(self) -> int:
        return len(self.y)


@dataclass(frozen=True, eq=False)
class Samples:
    """A task.

    Args:
        train: to train with; label and nuisance agree.
        validation: drawn in the same way.
        test: label and nuisance are independent.
        as_trained: the same test samples with a label and a nuisance that agree as in training.
        classes: of the label.
        values: of the nuisance.
        origin: where they come from.
    """

    train: Part
    validation: Part
    test: Part
    as_trained: Part
    classes: int
    values: int
    origin: str

    def to(self, device: str | torch.device) -> Samples:
        """The same on a device."""
        names = "train", "validation", "test", "as_trained"
        return replace(self, **{name: getattr(self, name).to(device) for name in names})


def make_samples(task: str, config: NuisanceConfig, seed: int) -> Samples:
    """The samples of a task, drawn by a seed.

    Args:
        task: of `TASKS`.
        config: how many, and how far the nuisance agrees with the label.
        seed: of everything random but the backgrounds.

    Example:
        >>> samples = make_samples("biased-table", NuisanceConfig(rows=600), 0)
        >>> len(samples.train), len(samples.validation), samples.test.x.shape
        (500, 100, torch.Size([300, 8]))
    """
    if task not in TASKS:
        raise ValueError(f"Expected a task among {', '.join(TASKS)} but got {task!r}; name one.")
    g = torch.Generator().manual_seed(seed)
    return draw_table(config, g) if task == TABLE else paint_digits(task, config, g)


# --- images --------------------------------------------------------------------------------------


def paint_digits(task: str, config: NuisanceConfig, g: torch.Generator) -> Samples:
    """MNIST with a colour or a background per image; the last training digits are held out."""
    from experiments.data import load

    paint, looks = (colour, palette()) if task == "coloured-mnist" else (clutter, backgrounds())
    read = {}
    for split in ("train", "test"):
        images = load("mnist", split)
        count = config.images or len(images.images)
        read[split] = [torch.from_numpy(v[:count].copy()) for v in (images.images, images.labels)]
    made = []
    for split, agreement in (("train", config.agreement), ("test", 0), ("test", config.agreement)):
        digits, y = read[split]
        s = draw_nuisance(y, agreement, g)
        made.append(Part(_paint_all(paint, looks, digits, s), y, s))
    train, test, as_trained = made
    both = hold_out(train, config.holdout)
    return Samples(*both, test, as_trained, DIGITS, DIGITS, f"MNIST: {images.origin}")


def draw_nuisance(
    y: Int[Tensor, " n"], agreement: float, generator: torch.Generator
) -> Int[Tensor, " n"]:
    """The label in a share of the samples, a random digit in the others.

    Example:
        >>> y = torch.arange(10).repeat(1000)
        >>> s = draw_nuisance(y, 0.9, torch.Generator().manual_seed(0))
        >>> round((s == y).double().mean().item(), 2)  # 0.9 + 0.1 / 10
        0.91
    """
    random = torch.randint(DIGITS, y.shape, generator=generator)
    return torch.where(torch.rand(y.shape, generator=generator) < agreement, y, random)


def palette() -> Float[Tensor, "10 3 1 1"]:
    """The ten colours."""
    return torch.tensor(PALETTE)[:, :, None, None]


def backgrounds() -> Float[Tensor, "10 3 28 28"]:
    """The ten backgrounds: random colours on a coarse grid, with cubic interpolation.

    Example:
        >>> bool((backgrounds() >= 0).all()), round(backgrounds().max().item(), 2)
        (True, 0.7)
    """
    g = torch.Generator().manual_seed(BACKGROUNDS)
    coarse = torch.rand(DIGITS, 3, COARSE, COARSE, generator=g)
    smooth = smoothing(SIDE, COARSE)
    return DARK * (smooth @ coarse @ smooth.T).clamp(0, 1)


def colour(
    digits: Float[Tensor, "n 1 28 28"], look: Float[Tensor, "n 3 1 1"]
) -> Float[Tensor, "n 3 28 28"]:
    """Digits in their colour, on black."""
    return digits * look


def clutter(
    digits: Float[Tensor, "n 1 28 28"], look: Float[Tensor, "n 3 28 28"]
) -> Float[Tensor, "n 3 28 28"]:
    """White digits on their background.

    Example:
        >>> half = torch.full((1, 1, 28, 28), 0.5)
        >>> clutter(half, torch.zeros(1, 3, 28, 28)).unique()
        tensor([0.5000])
    """
    return torch.lerp(look, torch.ones(()), digits)


def _paint_all(paint, looks: Tensor, digits: Tensor, s: Tensor) -> UInt8[Tensor, "n 3 28 28"]:
    """All images as bytes, some at a time."""
    parts = [
        paint(some[:, None] / 255, looks[own]).mul(255).round().to(torch.uint8)
        for some, own in zip(digits.split(PAINTED), s.split(PAINTED), strict=True)
    ]
    return torch.cat(parts)


# --- the table -----------------------------------------------------------------------------------


def draw_table(config: NuisanceConfig, g: torch.Generator) -> Samples:
    """Applicants; those that were not used for training are decided on in both ways."""

    def draw(n: int) -> tuple[Part, Part]:
        s = torch.randint(2, (n,), generator=g)
        side = 2.0 * s - 1  # -1 or 1
        merit = torch.randn(n, MERIT, generator=g)
        proxies = READABLE * side[:, None] + torch.randn(n, PROXIES, generator=g)
        score = merit.sum(1) + torch.randn(n, generator=g)
        x = torch.cat([merit, proxies], 1)
        fair, past = score > 0, score + config.bias * side > 0
        return Part(x, fair.long(), s), Part(x, past.long(), s)

    _, past = draw(config.rows)
    test, as_trained = draw(config.rows // 2)
    both = hold_out(past, config.holdout)
    return Samples(*both, test, as_trained, 2, 2, "made up")


def hold_out(part: Part, share: float) -> tuple[Part, Part]:
    """All but the last samples, and those.

    Example:
        >>> rows = torch.arange(12)
        >>> [len(each) for each in hold_out(Part(rows, rows, rows), 1 / 4)]
        [9, 3]
    """
    cut = len(part) - max(1, round(share * len(part)))
    first, last = slice(cut), slice(cut, None)
    return (
        Part(part.x[first], part.y[first], part.s[first]),
        Part(part.x[last], part.y[last], part.s[last]),
    )
