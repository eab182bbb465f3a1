"""MNIST-M: digits blended with photographs by the difference of colours.

Ganin et al. 2016 ("Domain-adversarial training of neural networks", JMLR 17, section 5.2.4) blend
each digit of MNIST with a patch from a random place of a random photograph of BSDS500,

    out[i, j, k] = |patch[i, j, k] - digit[i, j]|,

where the digit is black and white: its pixels invert those of the photograph. The original files
were made like this, with crops that were not recorded. Public scripts that make it again use the
200 training photographs for the digits of both splits and treat every pixel above 0 as white. So
does this module, with crops from a seed. Photographs are JPEG files, and decoders may differ by one
grey level.
"""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from jaxtyping import UInt8

__all__ = [
    "BSDS500_DIGEST",
    "blend",
    "decode_photographs",
    "digest_photographs",
    "read_photographs",
]

FOLDER = "BSR/BSDS500/data/images/train"  # of the photographs in the archive
BSDS500_DIGEST = "e83930965270f23326171f68f45910225d7527dca4429c962175645397e81f11"


def read_photographs(path: Path) -> dict[str, bytes]:
    """The JPEG files of a folder, or of the training part of BSDS500's archive, by name.

    Nothing of the archive is written to disk.

    Args:
        path: a folder, or BSR_bsds500.tgz.

    Returns:
        The files, in the order of their names.

    Example:
        >>> folder = getfixture("tmp_path")
        >>> _ = (folder / "1.jpg").write_bytes(b"...")
        >>> read_photographs(folder)
        {'1.jpg': b'...'}
    """
    if path.is_dir():
        return {file.name: file.read_bytes() for file in sorted(path.glob("*.jpg"))}
    found: dict[str, bytes] = {}
    try:
        with tarfile.open(path, "r|*") as archive:
            for member in archive:
                folder, _, name = member.name.removeprefix("./").rpartition("/")
                if folder == FOLDER and name.endswith(".jpg") and member.isfile():
                    stream = archive.extractfile(member)
                    assert stream is not None  # it is a file
                    found[name] = stream.read()
    except (tarfile.TarError, OSError, EOFError) as error:
        raise ValueError(
            f"{path.name} is damaged or not an archive: {error}; get the file again."
        ) from None
    return dict(sorted(found.items()))


def digest_photographs(files: Mapping[str, bytes]) -> str:
    """SHA-256 of the names and the bytes; `BSDS500_DIGEST` for BSDS500's training part.

    Example:
        >>> digest_photographs({"1.jpg": b"..."}) == BSDS500_DIGEST
        False
    """
    state = hashlib.sha256()
    for name, data in sorted(files.items()):
        state.update(name.encode())
        state.update(hashlib.sha256(data).digest())
    return state.hexdigest()


def decode_photographs(files: Mapping[str, bytes]) -> list[np.ndarray]:
    """Decode JPEG files to arrays of shape (h, w, 3).

    Example:
        >>> decode_photographs({"1.jpg": b"..."})
        Traceback (most recent call last):
        ...
        ValueError: 1.jpg is damaged or not a JPEG file; get the photographs again.
    """
    try:
        from PIL import Image
    except ImportError:
        raise ImportError(
            "JPEG files need Pillow; install it with: pip install -e '.[experiments]'"
        ) from None
    photographs = []
    for name, data in files.items():
        try:
            with Image.open(io.BytesIO(data), formats=("JPEG",)) as image:
                photographs.append(np.asarray(image.convert("RGB")))
        except Exception:  # Pillow may raise anything on a file from elsewhere
            raise ValueError(
                f"{name} is damaged or not a JPEG file; get the photographs again."
            ) from None
    return photographs


def blend(
    digits: UInt8[np.ndarray, "n h w"],
    photographs: Sequence[np.ndarray],
    seed: int | Sequence[int] = 0,
) -> UInt8[np.ndarray, "n h w 3"]:
    """Blend each digit with a random crop of a random photograph.

    Args:
        digits: of shape (n, h, w); every pixel above 0 belongs to the digit.
        photographs: of shapes (H, W, 3), no smaller than a digit.
        seed: of the crops.

    Returns:
        Of shape (n, h, w, 3).

    Example:
        >>> photograph = np.full((5, 4, 3), 10, np.uint8)
        >>> blend(np.array([[[0, 255]]], np.uint8), [photograph]).tolist()
        [[[[10, 10, 10], [245, 245, 245]]]]
    """
    n, *sides = digits.shape
    for each in photographs:
        if each.ndim != 3 or each.shape[2] != 3 or any(np.less(each.shape[:2], sides)):
            raise ValueError(
                f"Expected photographs of at least {sides[0]} x {sides[1]} x 3 but got one of "
                f"shape {each.shape}; leave it out, or enlarge it."
            )
    if not photographs:
        raise ValueError("Expected photographs but got none; pass arrays of shape (H, W, 3).")
    generator = np.random.default_rng(seed)
    which = generator.integers(len(photographs), size=n)
    room = np.array([each.shape[:2] for each in photographs])[which] - sides + 1
    rows, columns = generator.integers(room.T)
    blended = np.empty((n, *sides, 3), np.uint8)
    for k, photograph in enumerate(photographs):  # all crops of one at a time
        mine = np.flatnonzero(which == k)
        windows = np.lib.stride_tricks.sliding_window_view(photograph, (*sides, 3))[:, :, 0]
        patches = windows[rows[mine], columns[mine]]
        blended[mine] = np.where(digits[mine, :, :, None] > 0, 255 - patches, patches)
    return blended
