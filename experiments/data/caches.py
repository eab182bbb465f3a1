"""The cache: one NPZ file per data set, written whole or not at all, and fast to read.

Nothing in it can be executed (pickling is off). It keeps the digest of every split, which is
compared at each reading.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from experiments.data.datasets import Images, Split, Unavailable
from mibounds.files import UNREADABLE, remove_leftovers, replacing

__all__ = [
    "Damaged",
    "Entry",
    "check_place",
    "find_cache",
    "list_splits",
    "read_entry",
    "read_images",
    "write_cache",
]

VERSION = 1
_HEAD = b"PK\3\4"  # of a zip file, whose first member has its name at this place:
_FIRST = slice(30, 39), b"about.npy"


class Damaged(Exception):
    """A cache file cannot be read, and why."""


@dataclass(frozen=True)
class Entry:
    """What a cache file says of its data set, without its images.

    Attributes:
        origin: where the images come from.
        source: the folder that they were read from; "" if they were fetched.
        digests: of the splits that it has.

    Example:
        >>> Entry("canonical files (IDX)", "", {"train": "c41b..."}).source
        ''
    """

    origin: str
    source: str
    digests: Mapping[str, str]


def list_splits(entry: Entry) -> list[Split]:
    """The splits that a cached data set has.

    Example:
        >>> list_splits(Entry("canonical files (IDX)", "", {"test": "f514..."}))
        ['test']
    """
    known: tuple[Split, ...] = ("train", "test")
    return [split for split in known if split in entry.digests]


def find_cache(cache: str | os.PathLike[str] | None = None) -> Path:
    """The folder of the cache, which need not exist.

    Args:
        cache: the folder; if left out, the one in the environment variable MIBOUNDS_CACHE, else
            the platform's folder for caches.

    Example:
        >>> find_cache("folder").name
        'folder'
    """
    chosen = cache or os.environ.get("MIBOUNDS_CACHE")
    if chosen:
        return Path(chosen).expanduser()
    try:
        import pooch
    except ImportError:
        raise ImportError(
            "the platform's folder for caches needs pooch; install it with: pip install -e "
            "'.[experiments]', or name a folder in MIBOUNDS_CACHE"
        ) from None
    return Path(pooch.os_cache("mibounds"))


def check_place(path: Path) -> None:
    """Check that no file of somebody else is where a cache file will be written.

    A cache file is known by its first bytes, also if the rest is damaged. An empty one, or one of
    zeros, is what a machine without power leaves.

    Example:
        >>> path = getfixture("tmp_path") / "usps.npz"
        >>> np.savez(path, train_images=np.zeros((1, 16, 16), np.uint8))
        >>> check_place(path)
        Traceback (most recent call last):
        ...
        ValueError: Expected the cache of usps in '...usps.npz' but it is another file; move it, or
        choose another folder with --cache or MIBOUNDS_CACHE.
    """
    try:
        with path.open("rb") as stream:
            head = stream.read(64)
    except OSError:  # not there, or not readable: writing will tell
        return
    place, name = _FIRST
    if any(head) and not (head.startswith(_HEAD) and head[place] == name):
        raise ValueError(
            f"Expected the cache of {path.stem} in {str(path)!r} but it is another file; move it, "
            "or choose another folder with --cache or MIBOUNDS_CACHE."
        )


def write_cache(path: Path, images: Mapping[str, Images], source: str) -> None:
    """Write a data set to its cache file, whole or not at all.

    Args:
        path: the file; its folder is made.
        images: by split.
        source: the folder that they were read from; "" if they were fetched.

    Raises:
        Unavailable: if it cannot be written.

    Example:
        >>> path = getfixture("tmp_path") / "usps.npz"
        >>> some = Images(np.zeros((1, 16, 16), np.uint8), np.array([3]), "made up")
        >>> write_cache(path, {"test": some}, "")
        >>> read_entry(path).origin, read_images(path, "test").labels
        ('made up', array([3]))
    """
    about = {
        "version": VERSION,
        "source": source,
        "digests": {split: each.digest for split, each in images.items()},
    }
    arrays = {
        "about": np.array(json.dumps(about)),
        "origin": np.array(_join({split: each.origin for split, each in images.items()})),
    }
    for split, each in images.items():
        arrays |= {f"images_{split}": each.images, f"labels_{split}": each.labels}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        remove_leftovers(path.parent)
        with replacing(path) as temporary:
            np.savez(temporary, **arrays)  # pyright: ignore[reportArgumentType]
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise Unavailable(
            f"{path} could not be written: {reason}; make room, or choose another folder with "
            "--cache or MIBOUNDS_CACHE."
        ) from error


def _join(origins: Mapping[str, str]) -> str:
    """One origin if the splits agree, else one per split."""
    if len(set(origins.values())) == 1:
        return next(iter(origins.values()))
    return "; ".join(f"{split}: {origin}" for split, origin in origins.items())


def read_entry(path: Path) -> Entry:
    """What a cache file says of its data set.

    Raises:
        Damaged: if it cannot be read.

    Example:
        >>> path = getfixture("tmp_path") / "usps.npz"
        >>> _ = path.write_bytes(b"...")
        >>> read_entry(path)
        Traceback (most recent call last):
        ...
        experiments.data.caches.Damaged: ...
    """
    return _enter(_read(path, ("about", "origin")))


def _enter(arrays: Mapping[str, np.ndarray]) -> Entry:
    try:
        about = json.loads(str(arrays["about"]))
        if about["version"] != VERSION:
            raise Damaged(f"of version {about['version']} instead of {VERSION}")
        return Entry(str(arrays["origin"]), str(about["source"]), dict(about["digests"]))
    except (ValueError, KeyError, TypeError) as error:
        raise Damaged(f"not a cache: {error}") from None


def read_images(path: Path, split: Split) -> Images:
    """A split from a cache file that has it.

    Raises:
        Damaged: if it cannot be read, or is not what was written.

    Example:
        >>> path = getfixture("tmp_path") / "usps.npz"
        >>> np.savez(path, origin=np.array("made up"))
        >>> read_images(path, "test")
        Traceback (most recent call last):
        ...
        experiments.data.caches.Damaged: ...images_test...
    """
    arrays = _read(path, (f"images_{split}", f"labels_{split}", "about", "origin"))
    images, labels = arrays[f"images_{split}"], arrays[f"labels_{split}"]
    if images.dtype != np.uint8 or labels.dtype != np.int64 or images.shape[:1] != labels.shape:
        raise Damaged("arrays of the wrong type or length")
    entry = _enter(arrays)
    found = Images(images, labels, entry.origin)
    if found.digest != entry.digests.get(split):
        raise Damaged(f"the {split} split has another checksum than when it was cached")
    return found


def _read(path: Path, names: tuple[str, ...]) -> dict[str, np.ndarray]:
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as arrays:
            return {name: arrays[name] for name in names}
    except (FileNotFoundError, NotADirectoryError):
        raise FileNotFoundError(
            f"there is no file {str(path)!r}; make it with: "
            f"python -m experiments data get {path.stem}"
        ) from None
    except PermissionError as error:
        raise Unavailable(
            f"{path} cannot be read: {error.strerror}; change its permissions, or choose another "
            "folder with --cache or MIBOUNDS_CACHE."
        ) from None
    except UNREADABLE as error:
        raise Damaged(str(error).strip("'\"").strip() or type(error).__name__) from None
