"""Contents of canonical files, in memory: nothing is unpacked to disk.

A file is canonical if its checksum is right, or if the checksums of all its contents are. So a file
that was packed again, or not packed at all, is accepted too.
"""

from __future__ import annotations

import bz2
import gzip
import hashlib
import lzma
import tarfile
import zlib
from collections.abc import Iterable
from pathlib import Path

from experiments.data.datasets import Content, RemoteFile

__all__ = ["hash_file", "matches", "unpack"]

_MOST = 1 << 30  # bytes of one content: some files unpack to more than any memory holds


def unpack(
    file: RemoteFile, path: Path, contents: Iterable[Content] | None = None
) -> dict[str, bytes]:
    """Contents of a file, after its checksum was compared.

    Args:
        file: the file that is expected.
        path: where it is.
        contents: the contents to read; all if left out.

    Returns:
        Bytes by the path of the content.

    Example:
        >>> path = getfixture("tmp_path") / "usps.bz2"
        >>> _ = path.write_bytes(bz2.compress(b"6 1:-1"))
        >>> file = RemoteFile("usps.bz2", (), hash_file(path, "md5"), 0, (Content("usps"),))
        >>> unpack(file, path)
        {'usps': b'6 1:-1'}
        >>> _ = path.write_bytes(b"no such file")
        >>> unpack(file, path)
        Traceback (most recent call last):
        ...
        ValueError: Expected usps.bz2 with checksum md5:... but got md5:...; get the file again.
    """
    wanted = list(file.contents if contents is None else contents)
    whole = file.hash if path.name == file.name else ""
    got = hash_file(path, whole.partition(":")[0]) if whole else ""
    trusted = bool(whole) and got == whole
    if not trusted and not all(content.hash for content in wanted):
        if not whole:
            raise ValueError(
                f"Expected {file.name} as it is published but got {path.name}, which has no known "
                "checksum; get the file again."
            )
        raise ValueError(
            f"Expected {path.name} with checksum {whole} but got {got}; get the file again."
        )
    try:
        found = _read_archive(path, wanted) if ".tar" in path.name else _read(path, wanted)
    except (OSError, EOFError, zlib.error, lzma.LZMAError, tarfile.TarError) as error:
        raise ValueError(f"{path.name} is damaged: {error}; get the file again.") from None
    for content in wanted:
        if content.path not in found:
            raise ValueError(
                f"Expected {content.path} in {path.name} but it is missing; get the file again."
            )
        if not trusted and not matches(found[content.path], content.hash):
            raise ValueError(
                f"Expected {content.name} in {path.name} with checksum {content.hash} but got "
                "another; get the file again."
            )
    return found


def _read(path: Path, wanted: list[Content]) -> dict[str, bytes]:
    (content,) = wanted
    with path.open("rb") as stream:
        magic = stream.read(3)
    opener = gzip.open if magic[:2] == b"\x1f\x8b" else bz2.open if magic == b"BZh" else open
    with opener(path, "rb") as stream:
        data = stream.read(_MOST + 1)
    if len(data) > _MOST:
        raise EOFError(f"it unpacks to more than {_MOST >> 20} MiB")
    return {content.path: data}


def _read_archive(path: Path, wanted: list[Content]) -> dict[str, bytes]:
    paths = {content.path for content in wanted}
    found: dict[str, bytes] = {}
    with tarfile.open(path, "r|*") as archive:
        for member in archive:
            name = member.name.removeprefix("./")
            if name in paths and member.isfile():
                if member.size > _MOST:
                    raise EOFError(f"{name} unpacks to more than {_MOST >> 20} MiB")
                stream = archive.extractfile(member)
                assert stream is not None  # it is a file
                found[name] = stream.read()
                if len(found) == len(paths):  # the rest may be large
                    break
    return found


def hash_file(path: Path, algorithm: str = "sha256") -> str:
    """Checksum of a file, with the name of the algorithm.

    Example:
        >>> path = getfixture("tmp_path") / "empty"
        >>> path.touch()
        >>> hash_file(path, "md5")
        'md5:d41d8cd98f00b204e9800998ecf8427e'
    """
    with path.open("rb") as stream:
        state = hashlib.file_digest(stream, lambda: hashlib.new(algorithm, usedforsecurity=False))
    return f"{algorithm}:{state.hexdigest()}"


def matches(data: bytes, hash: str) -> bool:
    """Whether bytes have a checksum.

    Example:
        >>> matches(b"", "md5:d41d8cd98f00b204e9800998ecf8427e")
        True
    """
    algorithm, _, value = hash.partition(":")
    return hashlib.new(algorithm, data, usedforsecurity=False).hexdigest() == value
