"""One process at a time fetches or makes a data set; the others wait, and say for whom."""

from __future__ import annotations

import contextlib
import json
import os
import socket
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path

from experiments.data.datasets import Unavailable
from mibounds.files import UNREADABLE, replacing

__all__ = ["holding"]


@contextlib.contextmanager
def holding(root: Path, name: str, say: Callable[[str], None]) -> Iterator[None]:
    """Hold the lock of a data set; the system frees it when the process ends, however it ends.

    Args:
        root: folder of the cache; it is made.
        name: of the data set.
        say: called with one line if another process holds the lock.

    Raises:
        Unavailable: if the folder cannot be written to.

    Example:
        >>> with holding(getfixture("tmp_path"), "usps", print):
        ...     pass
    """
    from filelock import FileLock, Timeout

    lock, holder = FileLock(root / f".{name}.lock"), root / f".{name}.holder.json"
    with contextlib.ExitStack() as stack:
        try:
            root.mkdir(parents=True, exist_ok=True)
            try:
                lock.acquire(timeout=0)
            except Timeout:
                say(f"waiting for {name}, which {_tell(holder)} is making; Ctrl-C ends the waiting")
                lock.acquire()
            stack.callback(lock.release)
            mine = {"process": os.getpid(), "host": socket.gethostname(), "since": _now()}
            with replacing(holder) as temporary:
                temporary.write_text(json.dumps(mine), encoding="utf-8")
            stack.callback(holder.unlink, missing_ok=True)
        except OSError as error:
            raise Unavailable(
                f"the cache {root} cannot be written to: {error.strerror or error}; choose "
                "another folder with --cache or MIBOUNDS_CACHE."
            ) from error
        yield


def _now() -> str:
    return datetime.now().astimezone().isoformat(" ", "seconds")


def _tell(holder: Path) -> str:
    """Who holds the lock, and since when."""
    try:
        told = json.loads(holder.read_text(encoding="utf-8"))
        return f"process {told['process']:d} on {told['host']} since {told['since']}"
    except UNREADABLE:  # not written yet
        return "another process"
