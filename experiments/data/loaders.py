"""From a name to images: from the cache, filled from a folder or from the public sites."""

from __future__ import annotations

import difflib
import os
import re
import warnings
from collections.abc import Callable
from pathlib import Path

from experiments.data import caches, mnist_m
from experiments.data.datasets import (
    Form,
    Images,
    Progress,
    RemoteFile,
    Split,
    Unavailable,
    Unreachable,
)
from experiments.data.downloads import fetch
from experiments.data.folders import find_photographs, parse, read_folder
from experiments.data.locks import holding
from experiments.data.sources import BSDS500, DATASETS
from mibounds.cli.terminal import remark
from mibounds.files import remove_files

__all__ = ["check_name", "load", "provide"]

_SEED = 0  # of the crops of MNIST-M
_TEMPORARY = re.compile(r"tmp[a-z0-9_]{8}")  # as Python's tempfile names them


def load(
    name: str,
    split: Split = "train",
    folder: str | os.PathLike[str] | None = None,
    cache: str | os.PathLike[str] | None = None,
) -> Images:
    """Load a data set; the first time, it is read from a folder or fetched, and cached.

    If a folder is named, the data come from there: a cache from elsewhere is replaced, and nothing
    is fetched. Without a folder, the cache is used, wherever it came from. `origin` says which.

    Args:
        name: of `DATASETS`.
        split: "train" or "test".
        folder: with canonical files or plain arrays; if left out, the one in the environment
            variable MIBOUNDS_DATA, if any.
        cache: folder of the cache; if left out, the one in MIBOUNDS_CACHE, else the platform's
            folder for caches.

    Returns:
        Images and labels.

    Example:
        >>> import numpy as np
        >>> folder = getfixture("tmp_path")
        >>> images = np.zeros((3, 28, 28), np.uint8)
        >>> np.savez(folder / "mnist.npz", train_images=images, train_labels=np.arange(3))
        >>> mnist = load("mnist", folder=folder, cache=folder / "cache")
        >>> mnist.images.shape, mnist.labels, mnist.origin
        ((3, 28, 28), array([0, 1, 2]), 'plain arrays: unknown content')
        >>> load("mnist", "test", folder=folder, cache=folder / "cache")
        Traceback (most recent call last):
        ...
        ValueError: Expected a test split of mnist but it has only train (plain arrays:
        unknown content); get the whole set with: python -m experiments data get mnist
    """
    check_name(name)
    if split not in ("train", "test"):
        raise ValueError(
            f"Expected split to be 'train' or 'test' but got {split!r}; leave it out for 'train'."
        )
    said: list[str] = []
    path, entry = provide(name, folder, cache, say=said.append)
    if split not in entry.digests:
        raise ValueError(
            f"Expected a {split} split of {name} but it has only "
            f"{', '.join(caches.list_splits(entry))} ({entry.origin}); "
            f"get the whole set with: python -m experiments data get {name}"
        )
    try:
        images = caches.read_images(path, split)
    except caches.Damaged as error:
        said.append(_is_made_again(path, error))
        provide(name, folder, cache, again=True)
        images = caches.read_images(path, split)
    for text in said:
        warnings.warn(text, stacklevel=2)
    return images


def check_name(name: str) -> None:
    """Check the name of a data set.

    Example:
        >>> check_name("minst")
        Traceback (most recent call last):
        ...
        ValueError: Expected a data set among mnist, ... but got 'minst'; did you mean 'mnist'?
        If not, see all with: python -m experiments data list
    """
    if name not in DATASETS:
        close = difflib.get_close_matches(name, DATASETS, n=1)
        hint = f"did you mean {close[0]!r}? If not, " if close else ""
        raise ValueError(
            f"Expected a data set among {', '.join(DATASETS)} but got {name[:40]!r}; "
            f"{hint}see all with: python -m experiments data list"
        )


def provide(
    name: str,
    folder: str | os.PathLike[str] | None = None,
    cache: str | os.PathLike[str] | None = None,
    *,
    again: bool = False,
    progress: Progress | None = None,
    say: Callable[[str], None] | None = None,
    wait: Callable[[str], None] = remark,
) -> tuple[Path, caches.Entry]:
    """Cache a data set, unless it is cached.

    Args:
        name: of `DATASETS`.
        folder: as in `load`.
        cache: as in `load`.
        again: replace the cache file if there is one.
        progress: called with the fraction that is done and a short description.
        say: called with one line about a damaged cache file.
        wait: called with one line, at once, if another process is making the data set.

    Returns:
        The cache file, and what it says of its data set.

    Raises:
        Unavailable: if the data cannot be fetched or the cache file not be written.

    Example:
        >>> provide("mnist", "no/such/folder", "cache")
        Traceback (most recent call last):
        ...
        ValueError: Expected a folder of data but there is no 'no/such/folder'; make it, or leave
        --from and MIBOUNDS_DATA out.
    """
    check_name(name)
    root = caches.find_cache(cache)
    path = root / f"{name}.npz"
    caches.check_place(path)
    source = _source(folder)
    entry = None if again else _current(path, source, say)
    if entry is None:
        with holding(root, name, wait):  # another process may have cached it when it is our turn
            entry = None if again else _current(path, source, None)
            if entry is None:
                images = _make(name, source, root, progress)
                caches.write_cache(path, images, str(source or ""))
                _remove_downloads(root, name)
                entry = caches.read_entry(path)
    return path, entry


def _source(folder: str | os.PathLike[str] | None) -> Path | None:
    named = folder or os.environ.get("MIBOUNDS_DATA")
    if not named:
        return None
    source = Path(named).expanduser()
    if not source.is_dir():
        raise ValueError(
            f"Expected a folder of data but there is no {str(source)!r}; make it, or leave --from "
            "and MIBOUNDS_DATA out."
        )
    return source.resolve()


def _current(
    path: Path, source: Path | None, say: Callable[[str], None] | None
) -> caches.Entry | None:
    """The entry in the cache, if it can be read and has the right source."""
    try:
        entry = caches.read_entry(path)
    except FileNotFoundError:
        return None
    except caches.Damaged as error:
        if say:
            say(_is_made_again(path, error))
        return None
    return entry if source is None or entry.source == str(source) else None


def _is_made_again(path: Path, error: caches.Damaged) -> str:
    return (
        f"{path} is damaged ({error}) and is made again; if that recurs, choose another folder "
        "with --cache or MIBOUNDS_CACHE."
    )


def _downloads(root: Path, name: str) -> Path:
    return root / "mibounds-downloads" / name


def _remove_downloads(root: Path, name: str) -> None:
    """Remove the downloaded files, and no other file in that folder.

    A name such as tmp1a2b3c4d is pooch's, of a process that was killed: we hold the lock.
    """
    folder = _downloads(root, name)
    unfinished = [path.name for path in folder.glob("tmp*") if _TEMPORARY.fullmatch(path.name)]
    files = [file.name for form in DATASETS[name].forms for file in form.files]
    files += [BSDS500.name] if name == "mnist-m" else []
    remove_files(folder, [*unfinished, *(n + end for n in files for end in ("", ".part"))])


# --- making --------------------------------------------------------------------------------------


def _make(
    name: str, source: Path | None, root: Path, progress: Progress | None
) -> dict[str, Images]:
    if source:
        images = read_folder(name, DATASETS[name], source)
        if images is None and name == "mnist-m":
            images = _blend_folder(source)
        if images is None:
            raise ValueError(_absent(name, source))
        return images
    failures = []
    for form in DATASETS[name].forms or (None,):
        try:
            if form is None:
                return _blend_fetched(root, progress)
            return parse(form, _fetch(name, form.files, root, progress))
        except Unreachable as error:
            failures.append(str(error))
    raise Unavailable(
        f"{name} is out of reach: {'; '.join(failures)}; get the files by other means and "
        "name their folder with --from or MIBOUNDS_DATA."
    )


def _fetch(
    name: str, files: tuple[RemoteFile, ...], root: Path, progress: Progress | None
) -> dict[str, bytes]:
    weights = [file.size or 1 << 21 for file in files]  # a guess, only for the progress bar
    contents: dict[str, bytes] = {}
    for i, file in enumerate(files):

        def tell(there: int, i: int = i, file: RemoteFile = file) -> None:
            if progress:
                done = sum(weights[:i]) + min(there, weights[i])
                progress(min(done / sum(weights), 1.0), f"{name}: {file.name}")

        contents |= fetch(file, _folder(root, name), tell)
    return contents


def _folder(root: Path, name: str) -> Path:
    folder = _downloads(root, name)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Unavailable(
            f"{folder} could not be made: {error.strerror}; choose another folder with --cache or "
            "MIBOUNDS_CACHE."
        ) from error
    return folder


def _absent(name: str, source: Path) -> str:
    def names(form: Form) -> str:
        return ", ".join(file.name for file in form.files)

    forms = [names(form) for form in DATASETS[name].forms]
    wanted = " or ".join([*forms, f"{name}.npz"])
    if name == "mnist-m":
        wanted = f"{name}.npz, or mnist and {BSDS500.name} to make it from,"
    return (
        f"Expected {wanted} in {str(source)!r} but there is none; leave --from out, or unset "
        "MIBOUNDS_DATA, to fetch it from its public site."
    )


def _blend_folder(source: Path) -> dict[str, Images] | None:
    digits = read_folder("mnist", DATASETS["mnist"], source)
    place = find_photographs(source)
    if digits is None or place is None:
        return None
    files = mnist_m.read_photographs(place)
    if place.name == BSDS500.name and mnist_m.digest_photographs(files) != mnist_m.BSDS500_DIGEST:
        raise ValueError(
            f"Expected the training part of BSDS500 in {place.name} but got {len(files)} other "
            "photographs; get the file again."
        )
    return _blend(digits, files)


def _blend_fetched(root: Path, progress: Progress | None) -> dict[str, Images]:
    path, entry = provide("mnist", None, root, progress=progress)
    try:
        digits = {split: caches.read_images(path, split) for split in caches.list_splits(entry)}
    except caches.Damaged as error:
        raise Unavailable(
            f"{path} is damaged ({error}); remove it, and make it again with: "
            "python -m experiments data get mnist"
        ) from None

    def tell(there: int) -> None:
        if progress:
            progress(min(there / BSDS500.size, 1.0), f"mnist-m: {BSDS500.name}")

    folder = _folder(root, "mnist-m")
    files = fetch(BSDS500, folder, tell, lambda _, path: mnist_m.read_photographs(path))
    return _blend(digits, files)


def _blend(digits: dict[str, Images], files: dict[str, bytes]) -> dict[str, Images]:
    photographs = mnist_m.decode_photographs(files)
    right = mnist_m.digest_photographs(files) == mnist_m.BSDS500_DIGEST
    what = "BSDS500's training part" if right else f"{len(files)} other photographs"
    return {
        split: Images(
            mnist_m.blend(each.images, photographs, [_SEED, k]),
            each.labels,
            f"made from MNIST ({each.origin}) and {what} with seed {_SEED}",
        )
        for k, (split, each) in enumerate(sorted(digits.items(), reverse=True))
    }
