"""Which format a file has, by the ending of its name and its first bytes."""

from __future__ import annotations

import gzip
import os
import stat
import zlib
from pathlib import Path

from mibounds.cli._arrow_formats import CSV, TSV, Arrow, JSONLines, Parquet
from mibounds.cli._numpy_formats import NPY, NPZ
from mibounds.cli.formats import File, open_bytes, quote, short

FORMATS: dict[str, type[File]] = {
    ".csv": CSV,
    ".tsv": TSV,
    ".csv.gz": CSV,
    ".tsv.gz": TSV,
    ".jsonl": JSONLines,
    ".jsonl.gz": JSONLines,
    ".parquet": Parquet,
    ".arrow": Arrow,
    ".feather": Arrow,
    ".npz": NPZ,
    ".npy": NPY,
}

# Contents that the name may contradict: first bytes, what they mean, and the right ending, or the
# format to save it in, or "" if it is compressed.
_MAGIC = {
    b"PAR1": ("a Parquet file", ".parquet"),
    b"PK\x03\x04": ("an NPZ or another zip file", ".npz"),
    b"\x93NUMPY": ("an NPY file", ".npy"),
    b"\x1f\x8b": ("a gzip file", ""),
    b"BZh": ("a bzip2 file", ""),
    b"\xfd7zXZ": ("an xz file", ""),
    b"\x28\xb5\x2f\xfd": ("a zstd file", ""),
    b"ARROW1": ("an Arrow file", ".arrow"),
    b"\x89HDF": ("an HDF5 file", "NPZ"),
    b"\xd0\xcf\x11\xe0": ("an Excel file", "CSV"),
    b"SQLite format 3": ("an SQLite database", "CSV"),
    b"%PDF": ("a PDF", "CSV"),
    b"\x89PNG": ("an image", "NPY"),
}


def open_file(path: str | os.PathLike[str]) -> File:
    """Open a file in the format that its name and first bytes agree on."""
    path = Path(path)
    source = short(path.name) or str(path)
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            raise ValueError(f"{source} is a folder; name a file in it")
        if not stat.S_ISREG(mode):
            raise ValueError(f"{source} is a device or a pipe; save it to a file first")
        with open_bytes(path) as stream:
            head = stream.read(1 << 16)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(
            f"{source} is damaged or not a gzip file: {short(str(error))}; write it again"
        ) from None
    except FileNotFoundError:
        raise FileNotFoundError(
            f"there is no file {str(path)!r}; "
            "give its path from the current folder, or its full path"
        ) from None
    except OSError as error:  # also a link to itself
        raise ValueError(
            f"{source} cannot be read: {error.strerror}; change its permissions, or copy it"
        ) from None
    suffix = path.suffix.lower()
    if suffix == ".gz":
        suffix = path.with_suffix("").suffix.lower() + suffix
    if suffix not in FORMATS:
        raise ValueError(
            f"{source} ends in {quote(suffix)}; save it as one of {', '.join(FORMATS)}"
        )
    if not head:
        raise ValueError(f"{source} is empty; write it again")
    kind = FORMATS[suffix]
    if not kind.magic or not head.startswith(kind.magic):
        for magic, (what, right) in _MAGIC.items():
            if head.startswith(magic):
                if not right or suffix.endswith(".gz"):
                    raise ValueError(f"{source} looks like {what}; unpack it first")
                if right.startswith("."):
                    raise ValueError(
                        f"{source} looks like {what}; rename it to {path.stem[:40]}{right}"
                    )
                raise ValueError(f"{source} looks like {what}; save it as {right} instead")
    if kind.magic and not head.startswith(kind.magic):
        text = b"\0" not in head and _is_text(head)
        hint = "it looks like text, so rename it to .csv, or " if text else ""
        raise ValueError(f"{source} is not {kind.title}; {hint}write it again as one")
    return kind(path, source, head)


def _is_text(head: bytes) -> bool:
    try:
        head[:-3].decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True
