"""Files that are written whole or not at all."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import stat
import time
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

__all__ = [
    "UNREADABLE",
    "check_folder",
    "check_target",
    "remove_files",
    "remove_leftovers",
    "replacing",
]

# What numpy raises over a file that is no NPZ file, or a damaged one.
UNREADABLE = (
    OSError,
    ValueError,
    EOFError,
    KeyError,
    TypeError,
    AttributeError,
    NotImplementedError,
    zipfile.BadZipFile,
    zlib.error,
)

_UNUSED = 600.0  # seconds after which nobody writes to a temporary file any more


def check_target(path: str | os.PathLike[str], what: str = "the output") -> Path:
    """Check, before any work is done, that a file can be written.

    Args:
        path: the file to be written; its folder has to exist.
        what: what to call it in a message.

    Returns:
        The path, with links resolved, so that a link is kept and what it points to is written.

    Example:
        >>> check_target("no/such/folder/out.json", "--out")
        Traceback (most recent call last):
        ...
        ValueError: Expected a folder for --out but there is no 'no/such/folder'; make it first.
    """
    there = _look_at(path, what)
    target = Path(os.path.realpath(path))
    if not target.parent.is_dir():
        folder = str(Path(path).parent)
        raise ValueError(f"Expected a folder for {what} but there is no {folder!r}; make it first.")
    if there and stat.S_ISDIR(there.st_mode):
        raise ValueError(
            f"Expected a file for {what} but {str(path)!r} is a folder; name a file in it."
        )
    if there and (not stat.S_ISREG(there.st_mode) or _is_printed_to(path, there)):
        raise ValueError(
            f"Expected a file for {what} but {str(path)!r} is a device, a pipe or where output is "
            "printed; name a separate plain file."
        )
    if there and not os.access(target, os.W_OK):
        raise ValueError(
            f"Expected a file to write {what} to but {str(path)!r} is read-only; "
            "name another file, or make this one writable."
        )
    _check_writable(target.parent, what)
    return target


def check_folder(path: str | os.PathLike[str], what: str = "the output") -> Path:
    """Check, before any work is done, that files can be written to a folder, or the folder made.

    Args:
        path: the folder; it need not exist.
        what: what to call it in a message.

    Returns:
        The path, with links resolved.

    Example:
        >>> check_folder(__file__, "--out")
        Traceback (most recent call last):
        ...
        ValueError: Expected a folder for --out but '...files.py' is a file; name a folder.
    """
    there = _look_at(path, what)
    folder = Path(os.path.realpath(path))
    if there and not stat.S_ISDIR(there.st_mode):
        raise ValueError(
            f"Expected a folder for {what} but {str(path)!r} is a file; name a folder."
        )
    _check_writable(next(each for each in (folder, *folder.parents) if each.exists()), what)
    return folder


def _look_at(path: str | os.PathLike[str], what: str) -> os.stat_result | None:
    """What is at a path; None if nothing is."""
    try:
        return os.stat(os.fspath(path))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError) as error:  # a link to itself, a zero byte in the name
        reason = getattr(error, "strerror", None) or error
        raise ValueError(
            f"Expected a path for {what} but {str(path)!r} cannot be reached: {reason}; "
            "name another file."
        ) from None


def _is_printed_to(path: str | os.PathLike[str], there: os.stat_result) -> bool:
    """Whether a plain file stands behind a name such as /dev/stdout, or is standard output."""
    folder = os.path.realpath(Path(path).absolute().parent)
    if folder in ("/dev", "/dev/fd") or folder.startswith("/proc/"):
        return True
    for number in (1, 2):
        with contextlib.suppress(OSError):
            if os.path.samestat(there, os.fstat(number)):
                return True
    return False


def _check_writable(folder: Path, what: str) -> None:
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ValueError(
            f"Expected a folder to write {what} to but {str(folder)!r} is read-only; "
            "name one that is writable."
        )


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A temporary file beside the one to be written, which takes its place at the end.

    Should the writing fail or be interrupted, the temporary file is removed and what was there
    before stays. Its name ends like that of the target, since writers go by that. A file that is
    replaced leaves its owner and its permissions to the new one.

    Args:
        path: the file to be written.

    Yields:
        The file to write to.

    Example:
        >>> folder = getfixture("tmp_path")
        >>> with replacing(folder / "out.json") as temporary:
        ...     length = temporary.write_text("{}")
        >>> [file.name for file in folder.iterdir()]
        ['out.json']
    """
    target = check_target(path)
    temporary = target.with_name(f".{secrets.token_hex(8)}.part{target.suffix}")
    try:
        yield temporary
        with contextlib.suppress(FileNotFoundError):
            before = target.stat()
            with contextlib.suppress(OSError, AttributeError):  # not everyone may give a file away
                os.chown(temporary, before.st_uid, before.st_gid)
            temporary.chmod(stat.S_IMODE(before.st_mode))
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)


def remove_files(folder: Path, names: Iterable[str]) -> None:
    """Remove these files, and the folder with them if nothing else is in it.

    Args:
        folder: where they are; it need not exist.
        names: of files that this program wrote. No other file is touched.

    Example:
        >>> folder = getfixture("tmp_path") / "states"
        >>> folder.mkdir()
        >>> for name in ("mine.npz", "yours.txt"):
        ...     (folder / name).touch()
        >>> remove_files(folder, ["mine.npz"])
        >>> [file.name for file in folder.iterdir()]
        ['yours.txt']
    """
    for name in names:
        with contextlib.suppress(OSError):
            (folder / name).unlink()
    with contextlib.suppress(OSError):  # not empty, or not there
        folder.rmdir()


def remove_leftovers(folder: Path) -> None:
    """Remove the temporary files of `replacing` that a process left which was killed.

    Args:
        folder: where they may be. One that was written to in the last minutes may be in use, and
            stays.

    Example:
        >>> folder = getfixture("tmp_path")
        >>> leftover = folder / ".0123456789abcdef.part.json"
        >>> for path in (leftover, folder / ".0123456789abcde0.part.json", folder / "a.part.json"):
        ...     path.touch()
        >>> os.utime(leftover, (0, 0))
        >>> remove_leftovers(folder)
        >>> sorted(file.name for file in folder.iterdir())
        ['.0123456789abcde0.part.json', 'a.part.json']
    """
    for path in folder.glob(".*.part*"):
        with contextlib.suppress(OSError):
            unused = time.time() - path.stat().st_mtime > _UNUSED
            if unused and re.fullmatch(r"\.[0-9a-f]{16}\.part(\.\w+)?", path.name):
                path.unlink()
