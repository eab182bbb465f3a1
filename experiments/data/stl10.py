"""STL-10 reduced from 96 x 96 pixels to the 32 x 32 of CIFAR-10, in the two usual ways."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from jaxtyping import UInt8

__all__ = ["reduce_by_means", "reduce_by_picking"]


def reduce_by_means(images: UInt8[np.ndarray, "n h w 3"]) -> UInt8[np.ndarray, "n h3 w3 3"]:
    """The mean of each block of 3 x 3 pixels, rounded.

    Args:
        images: of shape (n, h, w, 3), with h and w multiples of 3.

    Returns:
        Of shape (n, h / 3, w / 3, 3).

    Example:
        >>> reduce_by_means(np.arange(27, dtype=np.uint8).reshape(1, 3, 3, 3))
        array([[[[12, 13, 14]]]], dtype=uint8)
    """
    _check(images)
    total = np.full_like(images[:, ::3, ::3], 4, dtype=np.uint16)  # a half of 9, so as to round
    for i in range(3):
        for j in range(3):
            total += images[:, i::3, j::3]
    return (total // 9).astype(np.uint8)


def reduce_by_picking(images: UInt8[np.ndarray, "n h w 3"]) -> UInt8[np.ndarray, "n h3 w3 3"]:
    """The middle pixel of each block of 3 x 3.

    Resizing to nearest neighbours by the factor 3, as in the authors' code, gives the same; fine
    structure aliases.

    Args:
        images: of shape (n, h, w, 3), with h and w multiples of 3.

    Returns:
        Of shape (n, h / 3, w / 3, 3).

    Example:
        >>> reduce_by_picking(np.arange(27, dtype=np.uint8).reshape(1, 3, 3, 3))
        array([[[[12, 13, 14]]]], dtype=uint8)
    """
    _check(images)
    return np.ascontiguousarray(images[:, 1::3, 1::3])


def _check(images: np.ndarray) -> None:
    if images.shape[1] % 3 or images.shape[2] % 3:
        raise ValueError(
            f"Expected sides that are multiples of 3 but got {images.shape[1]} x "
            f"{images.shape[2]}; crop or pad the images first."
        )
