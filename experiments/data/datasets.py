"""What a data set is: images with labels, and the files that hold them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

if TYPE_CHECKING:
    from jaxtyping import Int64, UInt8

Split = Literal["train", "test"]
Pair = tuple[np.ndarray, np.ndarray]  # images and labels
Progress = Callable[[float, str], None]


class Unavailable(Exception):
    """Data could not be fetched, or the cache not be written; worded for the user."""


class Unreachable(Unavailable):
    """No mirror gave a file; says what each did instead."""


@dataclass(frozen=True, eq=False)
class Images:
    """Images with labels, and where they come from.

    Attributes:
        images: of shape (n, h, w) or (n, h, w, 3), from 0 to 255.
        labels: of shape (n,), from 0 to 9.
        origin: where they come from, to report beside any result: "canonical files", or what else.

    Example:
        >>> some = Images(np.zeros((2, 28, 28), np.uint8), np.array([7, 3]), "made up")
        >>> some.images.shape, len(some)
        ((2, 28, 28), 2)
        >>> Images(np.zeros((2, 28, 28), np.uint8), np.array([7]), "made up")
        Traceback (most recent call last):
        ...
        ValueError: Expected a label for each of 2 images but got 1; give one label per image.
    """

    images: UInt8[np.ndarray, "n h w *c"]
    labels: Int64[np.ndarray, "_"]
    origin: str

    def __post_init__(self) -> None:
        if len(self.images) != len(self.labels):
            raise ValueError(
                f"Expected a label for each of {len(self.images)} images but got "
                f"{len(self.labels)}; give one label per image."
            )

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def digest(self) -> str:
        """SHA-256 of the shape, the images and the labels: equal for equal content."""
        state = hashlib.sha256(repr(tuple(map(int, self.images.shape))).encode())
        state.update(np.ascontiguousarray(self.images).data)
        state.update(np.ascontiguousarray(self.labels, dtype="<i8").data)
        return state.hexdigest()


@dataclass(frozen=True)
class Content:
    """What is inside a file: the file itself once unpacked, or a member of an archive.

    Attributes:
        path: its name, within the archive if it is a member of one.
        hash: checksum of its bytes, "md5:..." or "sha256:..."; "" if unknown.

    Example:
        >>> Content("stl10_binary/train_y.bin", "md5:5a34089d4802c674881badbb80307741").name
        'train_y.bin'
    """

    path: str
    hash: str = ""

    @property
    def name(self) -> str:
        """Without the folder."""
        return self.path.rpartition("/")[2]


@dataclass(frozen=True)
class RemoteFile:
    """A published file.

    Attributes:
        name: its published name; the ending says how it is packed.
        urls: its mirrors, in order of preference.
        hash: checksum, "md5:..." or "sha256:..."; "" if only its contents have checksums.
        size: bytes; 0 if unknown.
        contents: the parts of it that are used.

    Example:
        >>> RemoteFile("usps.bz2", ("https://example.org",), "", 0, (Content("usps"),)).name
        'usps.bz2'
    """

    name: str
    urls: tuple[str, ...]
    hash: str
    size: int
    contents: tuple[Content, ...]


@dataclass(frozen=True)
class Form:
    """A form in which a data set is published.

    Attributes:
        title: its name.
        files: all its files.
        splits: paths of the contents that each split is parsed from.
        parse: turns these contents, in that order, into images and labels.

    Example:
        >>> from experiments.data import DATASETS
        >>> DATASETS["svhn"].forms[0].splits["test"]
        ('test_32x32.mat',)
    """

    title: str
    files: tuple[RemoteFile, ...]
    splits: Mapping[str, tuple[str, ...]]
    parse: Callable[..., Pair]


@dataclass(frozen=True)
class Dataset:
    """A data set: its content, its licence, and the forms in which it is published.

    Attributes:
        title: its name.
        sizes: numbers of images for training and for testing.
        shapes: shapes that an image may have, each (h, w) or (h, w, 3).
        licence: what its authors say about its use.
        citation: what they ask to be cited.
        download: size of the download.
        forms: in order of preference; empty for a data set that is made here.

    Example:
        >>> from experiments.data import DATASETS
        >>> DATASETS["usps"].sizes
        (7291, 2007)
    """

    title: str
    sizes: tuple[int, int]
    shapes: tuple[tuple[int, ...], ...]
    licence: str
    citation: str
    download: str
    forms: tuple[Form, ...] = ()
