"""Random views of images: what is drawn for a block of steps, and what it makes of an image.

Images are gathered as bytes, shifted, flipped and warped, normalised, and then changed in colour.
A teacher has a view of its own. All that is random is drawn before and given, since a step
that is recorded can draw nothing anew.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional as F

from experiments.ingredients import Settings

if TYPE_CHECKING:
    from jaxtyping import Float, Int, UInt8

SMOOTH = 8  # random colours a side, from which a background is made


class Views:
    """The views that some settings ask for.

    Args:
        settings: how much of each change.
        flips: whether shifted images are mirrored too.
        side: pixels of a side.
        device: of the images.

    Example:
        >>> views = Views(Settings(shift=2, batch_size=5), flips=False, side=8)
        >>> given = views.draw(10, torch.Generator().manual_seed(0))
        >>> given["shifts"].shape  # steps, views, domains, images, down and across
        torch.Size([10, 1, 2, 5, 2])
        >>> images = torch.zeros(7, 8, 8, 1, dtype=torch.uint8)
        >>> now = {name: each[0] for name, each in given.items()}
        >>> index = torch.tensor([0, 1, 2, 3, 4])
        >>> views.make(images, index, lambda x: x.permute(0, 3, 1, 2) / 255, now, 0, 0).shape
        torch.Size([5, 1, 8, 8])
    """

    def __init__(
        self, settings: Settings, flips: bool, side: int, device: str | torch.device = "cpu"
    ):
        self.settings, self.flips = settings, flips
        self.count = 1 + settings.two_views
        self.smoothing = smoothing(side, SMOOTH).to(device)

    def draw(self, steps: int, generator: torch.Generator) -> dict[str, Tensor]:
        """What the views of so many steps are made by, each (steps, views, 2 domains, images, ...).

        Args:
            steps: how many.
            generator: on the device of the images.
        """
        s, g, device = self.settings, generator, generator.device
        shape = steps, self.count, 2, s.batch_size
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

    def make(
        self,
        images: UInt8[Tensor, "n h w c"],
        index: Int[Tensor, " b"],
        normalise: Callable[[Tensor], Tensor],
        given: Mapping[str, Tensor],
        view: int,
        domain: int,
    ) -> Float[Tensor, "b c h w"]:
        """One view of some images.

        Args:
            images: to choose from.
            index: which.
            normalise: from bytes to what an encoder reads.
            given: what was drawn for this step.
            view: 0 for what is learnt from, 1 for what the teacher sees.
            domain: 0 for the source, 1 for the target.
        """
        own = {name: each[view, domain] for name, each in given.items()}
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
    """What makes a longer column of a coarse one, by cubic interpolation.

    From both sides of a coarse image it makes a smooth one, in two products of matrices; torch's
    own interpolation of small images is much slower on a GPU.

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
    """Gather images, shifted and flipped, in one sweep over memory.

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
        matrices: from a place in the new image to one in the old, both measured from the middle,
            first across and then down; at the edges the last pixel is repeated.

    Returns:
        The new images, which are no bytes any more.

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
