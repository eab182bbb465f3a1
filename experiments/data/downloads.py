"""Downloads that resume where they broke off, from one mirror after the other.

pooch compares checksums (a file gets its name once its checksum is right) and calls `Resume` to get
the bytes. The bytes that have arrived stay in NAME.part; the next start, or the next mirror, asks
for the rest.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from experiments.data.archives import unpack
from experiments.data.datasets import RemoteFile, Unavailable, Unreachable

__all__ = ["Resume", "fetch"]

_TIMEOUT = (10.0, 30.0)  # seconds to connect, and without a byte
_TRIES = 10  # per mirror that breaks off, as long as more arrives each time


class _Broken(Exception):
    """A mirror failed; says how, in a few words."""


class Resume:
    """A downloader for pooch that resumes.

    Args:
        part: file of the bytes that have arrived.
        size: bytes of the whole file; 0 if unknown.
        progress: called with the number of bytes that have arrived.

    Example:
        >>> folder = getfixture("tmp_path")
        >>> _ = (folder / "usps.t.part").write_bytes(b"6 1:-1")
        >>> downloader = Resume(folder / "usps.t.part", size=6)
        >>> downloader("https://example.org/usps.t", folder / "usps.t", None)  # nothing is missing
        >>> (folder / "usps.t").read_bytes()
        b'6 1:-1'
    """

    def __init__(self, part: Path, size: int, progress: Callable[[int], None] | None = None):
        self.part, self.size, self.progress = part, size, progress

    def __call__(self, url: str, output_file: Any, pooch: Any, check_only: bool = False) -> None:
        """Download, and move the whole file to where pooch wants it."""
        import requests

        start = _size(self.part)
        if self.size and start > self.size:
            start = 0
        if not self.size or start < self.size:
            try:
                self._get(url, start)
            except requests.exceptions.SSLError:
                raise _Broken("its certificate is not trusted") from None
            except requests.exceptions.Timeout:
                raise _Broken("no answer in time") from None
            except requests.exceptions.ConnectionError:
                raise _Broken("no connection") from None
            except requests.exceptions.RequestException as error:
                raise _Broken(type(error).__name__) from None
        os.replace(self.part, output_file)

    def _get(self, url: str, start: int) -> None:
        import requests

        # Uncompressed in transit, or no length and no range would fit.
        headers = {"Accept-Encoding": "identity"}
        if start:
            headers["Range"] = f"bytes={start}-"
        with requests.get(url, headers=headers, stream=True, timeout=_TIMEOUT) as response:
            if response.status_code == 416:  # no such range: it is another file
                self.part.unlink(missing_ok=True)
                raise _Broken("has no more bytes than had arrived")
            if response.status_code not in (200, 206):
                raise _Broken(f"answered {response.status_code} {response.reason}")
            begun = response.headers.get("Content-Range", "")
            resumed = response.status_code == 206 and begun.startswith(f"bytes {start}-")
            if response.status_code == 206 and not resumed:
                raise _Broken(f"sent other bytes than asked for ({begun})")
            start = start if resumed else 0
            length = response.headers.get("Content-Length", "")
            told = start + int(length) if length.isdecimal() else 0
            if self.size and told and told != self.size:
                raise _Broken(f"has a file of {told} bytes instead of {self.size}")
            total = self.size or told
            there = self._write(response, start, total)
        if total and there != total:
            raise _Broken(f"broke off after {there} of {total} bytes")

    def _write(self, response: Any, there: int, total: int) -> int:
        import requests

        with self.part.open("r+b" if there else "wb") as stream:
            stream.truncate(there)
            stream.seek(there)
            response.raw.enforce_content_length = False  # or the bytes before a break are lost
            chunks = response.iter_content(1 << 18)
            while True:
                try:
                    chunk = next(chunks, b"")
                except requests.exceptions.RequestException:
                    of = f" of {total}" if total else ""
                    raise _Broken(f"broke off after {there}{of} bytes") from None
                if not chunk:
                    return there
                if total and there + len(chunk) > total:
                    raise _Broken(f"sent more than {total} bytes")
                stream.write(chunk)
                there += len(chunk)
                if self.progress:
                    self.progress(there)


def fetch(
    file: RemoteFile,
    folder: Path,
    progress: Callable[[int], None] | None = None,
    read: Callable[[RemoteFile, Path], dict[str, bytes]] = unpack,
) -> dict[str, bytes]:
    """Download a file, unless it is there, and read its contents.

    Args:
        file: which one.
        folder: where to keep it.
        progress: called with the number of bytes that have arrived.
        read: reads the contents; raises ValueError if they are wrong.

    Returns:
        Bytes by the path of the content.

    Raises:
        Unreachable: if no mirror gives the right bytes.
        Unavailable: if they cannot be written.

    Example:
        >>> nowhere = RemoteFile("usps.bz2", (), "", 0, ())
        >>> fetch(nowhere, getfixture("tmp_path"))
        Traceback (most recent call last):
        ...
        experiments.data.datasets.Unreachable: usps.bz2 could not be fetched (no mirror known)
    """
    try:
        import pooch
    except ImportError:
        raise ImportError(
            "downloads need pooch; install it with: pip install -e '.[experiments]'"
        ) from None
    failures = []
    target, part = folder / file.name, folder / f"{file.name}.part"
    resume: Any = Resume(part, file.size, progress)
    for url in file.urls:
        failure, afresh = "", True  # start afresh once: bytes from an earlier start may be wrong
        for _ in range(_TRIES):
            before = _size(part)
            stale = before or target.exists()
            try:
                with _quiet(pooch.get_logger()):
                    pooch.retrieve(url, file.hash or None, file.name, folder, downloader=resume)
                return read(file, target)
            except _Broken as error:
                failure, stale = str(error), before and not part.exists()
                more = _size(part) > before
            except ValueError:
                failure, more = "sent a file with the wrong checksum", False
                target.unlink(missing_ok=True)
            except OSError as error:
                raise Unavailable(
                    f"{file.name} could not be written to {folder}: {error.strerror or error}; "
                    "make room, or choose another folder with --cache or MIBOUNDS_CACHE."
                ) from error
            if not more and not (stale and afresh):
                break
            afresh = afresh and not stale
        failures.append(f"{urlsplit(url).netloc}: {failure}")
    did = "; ".join(failures) or "no mirror known"
    raise Unreachable(f"{file.name} could not be fetched ({did})")


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


@contextlib.contextmanager
def _quiet(logger: logging.Logger) -> Iterator[None]:
    """pooch reports each download on standard error, where the progress bar is."""

    def is_error(record: logging.LogRecord) -> bool:
        return record.levelno >= logging.ERROR

    logger.addFilter(is_error)
    try:
        yield
    finally:
        logger.removeFilter(is_error)
