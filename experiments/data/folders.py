"""Data sets in a user's folder: as canonical files, or as plain arrays.

Canonical files are in the folder itself or in one named like the data set (also in MNIST/raw, where
torchvision puts them), packed as published or unpacked. Plain arrays are NAME.npz with
train_images, train_labels, test_images and test_labels; one split may be missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from experiments.data.archives import unpack
from experiments.data.datasets import Content, Dataset, Form, Images, Pair, RemoteFile
from experiments.data.mnist_m import FOLDER
from experiments.data.parsers import check_pair
from experiments.data.sources import KNOWN
from mibounds.files import UNREADABLE

__all__ = ["find_photographs", "parse", "read_folder", "read_plain"]


def read_folder(name: str, dataset: Dataset, folder: Path) -> dict[str, Images] | None:
    """A data set from a folder.

    Args:
        name: of the data set.
        dataset: its description.
        folder: where to look.

    Returns:
        Images by split; None if there is neither a canonical file nor an array of it.

    Example:
        >>> from experiments.data import DATASETS
        >>> folder = getfixture("tmp_path")
        >>> read_folder("svhn", DATASETS["svhn"], folder) is None
        True
        >>> _ = (folder / "train_32x32.mat").write_bytes(b"...")
        >>> read_folder("svhn", DATASETS["svhn"], folder)
        Traceback (most recent call last):
        ...
        ValueError: Expected train_32x32.mat with checksum sha256:435... but got sha256:ab5...; ...
    """
    places = _places(name, folder)
    for complete in (True, False):  # complete forms first
        for form in dataset.forms:
            found = _find(form, places)
            splits = [
                split
                for split, paths in form.splits.items()
                if all(path in found for path in paths)
            ]
            if len(splits) == len(form.splits) if complete else splits:
                used = {path for split in splits for path in form.splits[split]}
                return parse(form, _unpack({path: found[path] for path in used}))
    for place in places:
        path = place / f"{name}.npz"
        if path.is_file():
            return read_plain(path, dataset)
    return None


def parse(form: Form, contents: Mapping[str, bytes]) -> dict[str, Images]:
    """Images by split, from contents of canonical files.

    Example:
        >>> from experiments.data import DATASETS
        >>> form = DATASETS["cifar10"].forms[0]
        >>> batch = bytes([6]) + bytes(3072)
        >>> parse(form, {"cifar-10-batches-bin/test_batch.bin": batch})["test"].origin
        'canonical files (binary)'
    """
    images = {}
    for split, paths in form.splits.items():
        if all(path in contents for path in paths):
            try:
                pair = form.parse(*(contents[path] for path in paths))
            except ValueError as error:
                raise ValueError(f"{', '.join(paths)}: {error}") from None
            images[split] = Images(*pair, f"canonical files ({form.title})")
    return images


def _places(name: str, folder: Path) -> list[Path]:
    plain = name.replace("-", "")
    named = [
        path
        for path in sorted(folder.iterdir())
        if path.is_dir() and path.name.lower().replace("-", "").replace("_", "") == plain
    ]
    return [folder, *named, *(path / "raw" for path in named)]


def _find(form: Form, places: list[Path]) -> dict[str, tuple[RemoteFile, Content, Path]]:
    """Where each content is, by its path; packed files come before unpacked ones."""
    found = {}
    for file in form.files:
        for content in file.contents:
            names = (file.name, file.name.removesuffix(".gz"), content.path, content.name)
            for path in (place / name for name in names for place in places):
                if path.is_file():
                    found[content.path] = (file, content, path)
                    break
    return found


def _unpack(found: Mapping[str, tuple[RemoteFile, Content, Path]]) -> dict[str, bytes]:
    """All contents, each file read once."""
    contents: dict[str, bytes] = {}
    for path in dict.fromkeys(path for _, _, path in found.values()):
        mine = [(file, content) for file, content, other in found.values() if other == path]
        contents |= unpack(mine[0][0], path, [content for _, content in mine])
    return contents


def read_plain(path: Path, dataset: Dataset) -> dict[str, Images]:
    """Images by split, from an NPZ file of plain arrays.

    Args:
        path: the file.
        dataset: its description.

    Example:
        >>> from experiments.data import DATASETS
        >>> path = getfixture("tmp_path") / "usps.npz"
        >>> images = np.zeros((1, 16, 16), np.uint8)
        >>> np.savez(path, test_images=images, test_labels=np.array([3]))
        >>> read_plain(path, DATASETS["usps"])["test"].origin
        'plain arrays: unknown content'
    """
    pairs: dict[str, Pair] = {}
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as arrays:
            for split in ("train", "test"):
                if f"{split}_images" in arrays:
                    pairs[split] = arrays[f"{split}_images"], arrays[f"{split}_labels"]
    except UNREADABLE as error:
        text = str(error).strip() or type(error).__name__
        raise ValueError(
            f"{path.name} is damaged or not of plain arrays: {text}; write it with numpy.savez."
        ) from None
    if not pairs:
        raise ValueError(
            f"Expected arrays train_images and train_labels in {path.name} but they are missing; "
            "write them with numpy.savez."
        )
    splits = {}
    for split, (images, labels) in pairs.items():
        if images.shape[1:] not in dataset.shapes:
            shapes = " or ".join(str(("n", *shape)).replace("'", "") for shape in dataset.shapes)
            raise ValueError(
                f"Expected {split}_images of shape {shapes} in {path.name} but got {images.shape}; "
                "reshape or resize them."
            )
        try:
            images, labels = check_pair(images, labels, images.ndim)
        except ValueError as error:
            raise ValueError(f"{path.name}, {split}: {error}") from None
        known = KNOWN.get(Images(images, labels, "").digest, "unknown content")
        splits[split] = Images(images, labels, f"plain arrays: {known}")
    return splits


def find_photographs(folder: Path) -> Path | None:
    """BSDS500 in a folder: its archive, or a folder of its training photographs.

    Example:
        >>> folder = getfixture("tmp_path")
        >>> find_photographs(folder) is None
        True
        >>> (folder / "bsds500").mkdir()
        >>> _ = (folder / "bsds500" / "1.jpg").write_bytes(b"...")
        >>> find_photographs(folder).name
        'bsds500'
    """
    for place in _places("bsds500", folder):
        archive = place / "BSR_bsds500.tgz"
        if archive.is_file():
            return archive
        for photographs in (place / FOLDER, place / "train", place):
            if photographs != folder and any(photographs.glob("*.jpg")):
                return photographs
    return None
