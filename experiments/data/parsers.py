"""Parsers of the canonical formats: from bytes to images and labels, with nothing executed.

All take the bytes of whole files and return uint8 images (n, h, w) or (n, h, w, 3) with int64
labels from 0 to 9. Bytes come from anywhere: anything wrong with them raises a ValueError.
"""

from __future__ import annotations

import io
import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from jaxtyping import Int64, UInt8

__all__ = [
    "check_pair",
    "parse_cifar",
    "parse_esl",
    "parse_idx",
    "parse_libsvm",
    "parse_mat",
    "parse_mnist",
    "parse_stl",
]


def parse_idx(data: bytes) -> UInt8[np.ndarray, "..."]:
    """An array of bytes in the IDX format of MNIST.

    A header of two zeros, the type (8 for bytes), the number of dimensions and each of them as a
    big-endian integer of four bytes; then the values, row by row.

    Example:
        >>> parse_idx(bytes([0, 0, 8, 2, 0, 0, 0, 1, 0, 0, 0, 3, 7, 8, 9]))
        array([[7, 8, 9]], dtype=uint8)
        >>> parse_idx(bytes([0, 0, 8, 1, 0, 0, 0, 3, 7, 8]))
        Traceback (most recent call last):
        ...
        ValueError: Expected 3 values of shape (3,) after the header but got 2; get
        the file again.
    """
    if len(data) < 4 or data[:3] != b"\0\0\x08" or len(data) < 4 + 4 * data[3]:
        raise ValueError(
            f"Expected an IDX header of bytes but got {data[:4]!r}; get the file again."
        )
    start = 4 + 4 * data[3]
    shape = tuple(int(size) for size in np.frombuffer(data[4:start], ">u4"))
    if len(data) - start != math.prod(shape):
        raise ValueError(
            f"Expected {math.prod(shape)} values of shape {shape} after the header but got "
            f"{len(data) - start}; get the file again."
        )
    return np.frombuffer(data, np.uint8, offset=start).reshape(shape)


def parse_mnist(
    images: bytes, labels: bytes
) -> tuple[UInt8[np.ndarray, "n h w"], Int64[np.ndarray, "n"]]:
    """MNIST: images and labels, each in the IDX format.

    Example:
        >>> header = bytes([0, 0, 8, 3, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 2])
        >>> parse_mnist(header + bytes([0, 255]), bytes([0, 0, 8, 1, 0, 0, 0, 1, 5]))
        (array([[[  0, 255]]], dtype=uint8), array([5]))
    """
    return check_pair(parse_idx(images), parse_idx(labels), 3)


def parse_mat(data: bytes) -> tuple[UInt8[np.ndarray, "n h w 3"], Int64[np.ndarray, "n"]]:
    """SVHN: a MAT file with images X of shape (32, 32, 3, n) and labels y, where 10 stands for 0.

    Example:
        >>> import io, scipy.io
        >>> file = io.BytesIO()
        >>> X = np.zeros((32, 32, 3, 2), np.uint8)
        >>> scipy.io.savemat(file, {"X": X, "y": np.array([[10], [3]], np.uint8)})
        >>> parse_mat(file.getvalue())[1]
        array([0, 3])
    """
    try:
        from scipy.io import loadmat
    except ImportError:
        raise ImportError(
            "MAT files need scipy; install it with: pip install -e '.[experiments]'"
        ) from None
    try:
        if 0 in data[:4]:  # which older versions of scipy read
            raise EOFError("its head is that of version 4")
        found = loadmat(io.BytesIO(data), variable_names=("X", "y"))
    except MemoryError:
        raise
    except Exception as error:  # scipy may raise anything on a file from elsewhere
        text = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ValueError(
            f"Expected a MAT file of version 5 but got one that fails: {text}; get the file again."
        ) from None
    if not {"X", "y"} <= found.keys():
        raise ValueError(
            "Expected variables X and y but one of them is missing; get the file again."
        )
    images, labels = found["X"], found["y"]
    if images.ndim != 4 or images.shape[2] != 3:
        raise ValueError(
            f"Expected X of shape (h, w, 3, n) but got {images.shape}; get the file again."
        )
    if labels.dtype.kind not in "uif":
        raise ValueError(f"Expected y of numbers but got {labels.dtype}; get the file again.")
    labels = labels.reshape(-1).astype(np.int64)
    return check_pair(images.transpose(3, 0, 1, 2), np.where(labels == 10, 0, labels), 4)


def parse_cifar(*batches: bytes) -> tuple[UInt8[np.ndarray, "n 32 32 3"], Int64[np.ndarray, "n"]]:
    """CIFAR-10 in its binary form: records of a label and 3 x 32 x 32 values, channel by channel.

    Example:
        >>> images, labels = parse_cifar(bytes([6]) + bytes(3072), bytes([9]) + bytes(3072))
        >>> images.shape, labels
        ((2, 32, 32, 3), array([6, 9]))
    """
    for batch in batches:
        if not batch or len(batch) % 3073:
            raise ValueError(
                f"Expected whole records of 3073 bytes but got {len(batch)} bytes; "
                "get the file again."
            )
    records = np.concatenate(
        [np.frombuffer(batch, np.uint8).reshape(-1, 3073) for batch in batches]
    )
    images = records[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return check_pair(images, records[:, 0], 4)


def parse_stl(
    images: bytes, labels: bytes
) -> tuple[UInt8[np.ndarray, "n 96 96 3"], Int64[np.ndarray, "n"]]:
    """STL-10: images of 3 x 96 x 96 values, column by column, and labels from 1 to 10.

    Example:
        >>> images, labels = parse_stl(bytes(27648), bytes([10]))
        >>> images.shape, labels
        ((1, 96, 96, 3), array([9]))
    """
    if not images or len(images) % 27648:
        raise ValueError(
            f"Expected whole images of 27648 bytes but got {len(images)} bytes; get the file again."
        )
    pixels = np.frombuffer(images, np.uint8).reshape(-1, 3, 96, 96).transpose(0, 3, 2, 1)
    return check_pair(pixels, np.frombuffer(labels, np.uint8).astype(np.int64) - 1, 4)


def parse_libsvm(data: bytes) -> tuple[UInt8[np.ndarray, "n 16 16"], Int64[np.ndarray, "n"]]:
    """USPS in the LIBSVM form: lines ``label 1:value ... 256:value``.

    Labels are from 1 to 10, values from -1 to 1, and missing values are 0. This is the ESL form,
    smoothed with a Gaussian.

    Example:
        >>> images, labels = parse_libsvm(b"10 1:-1 2:1 256:-0.5\\n")
        >>> images[0, 0, :3], labels
        (array([  0, 255, 128], dtype=uint8), array([9]))
    """
    rows, labels = [], []
    for number, line in enumerate(data.splitlines(), 1):
        try:
            fields = np.array(line.replace(b":", b" ").split(), dtype=np.float64)
        except ValueError:
            raise ValueError(
                f"Expected numbers in line {number} but got text; get the file again."
            ) from None
        places = fields[1::2].astype(np.int64) - 1
        if len(fields) % 2 == 0 or line.count(b":") != len(places):
            raise ValueError(
                f"Expected a label and place:value in line {number}; get the file again."
            )
        if len(places) and (places.min() < 0 or places.max() > 255):
            raise ValueError(f"Expected places from 1 to 256 in line {number}; get the file again.")
        row = np.zeros(256)
        row[places] = fields[2::2]
        rows.append(row)
        labels.append(fields[0] - 1)
    return check_pair(_from_unit(np.array(rows)), np.array(labels), 3)


def parse_esl(data: bytes) -> tuple[UInt8[np.ndarray, "n 16 16"], Int64[np.ndarray, "n"]]:
    """USPS in the form of "The Elements of Statistical Learning": lines of a label and 256 values.

    Example:
        >>> images, labels = parse_esl(b"6.0000 " + b"-1.0000 " * 255 + b"1.0000\\n")
        >>> images[0, 15, 14:], labels
        (array([  0, 255], dtype=uint8), array([6]))
    """
    lines = data.split(b"\n")
    try:
        rows = [np.array(line.split(), dtype=np.float64) for line in lines if line.strip()]
    except ValueError:
        raise ValueError("Expected lines of numbers but got text; get the file again.") from None
    for number, row in enumerate(rows, 1):
        if len(row) != 257:
            raise ValueError(
                f"Expected 257 numbers in line {number} but got {len(row)}; get the file again."
            )
    table = np.array(rows).reshape(-1, 257)
    return check_pair(_from_unit(table[:, 1:]), table[:, 0], 3)


def _from_unit(values: np.ndarray) -> np.ndarray:
    """From -1..1 to 0..255."""
    if not (np.abs(values) <= 1).all():  # also where NaN
        raise ValueError("Expected values from -1 to 1 but got others; get the file again.")
    return np.rint((values + 1) * 127.5).astype(np.uint8).reshape(-1, 16, 16)


def check_pair(
    images: np.ndarray, labels: np.ndarray, dims: int
) -> tuple[UInt8[np.ndarray, "n h w *c"], Int64[np.ndarray, "n"]]:
    """Check images and their labels.

    Args:
        images: n images, uint8.
        labels: whole numbers from 0 to 9, of any type.
        dims: dimensions of the array of images: 3 if they are grey, 4 if they have colours.

    Returns:
        The images as a contiguous array, and the labels as int64.

    Example:
        >>> check_pair(np.zeros((2, 28, 28), np.uint8), np.array([3, 10]), 3)
        Traceback (most recent call last):
        ...
        ValueError: Expected labels from 0 to 9 but got 3 to 10; count classes from 0.
    """
    if images.dtype != np.uint8 or images.ndim != dims or not images.size:
        raise ValueError(
            f"Expected images as bytes in {dims} dimensions but got {images.dtype} of shape "
            f"{images.shape}; give them as uint8, of shape (n, h, w) or (n, h, w, 3)."
        )
    if labels.dtype.kind not in "uif" or labels.shape != images.shape[:1]:
        raise ValueError(
            f"Expected a label for each of {len(images)} images but got {labels.dtype} of shape "
            f"{labels.shape}; give one number per image."
        )
    whole = labels.astype(np.int64)
    if (whole != labels).any() or whole.min() < 0 or whole.max() > 9:
        raise ValueError(
            f"Expected labels from 0 to 9 but got {labels.min()} to {labels.max()}; "
            "count classes from 0."
        )
    return np.ascontiguousarray(images), whole
