"""Files that are written whole or not at all."""

from __future__ import annotations

import contextlib
import os
import secrets
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

__all__ = ["UNREADABLE", "check_target", "remove_files", "replacing"]

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
    target = Path(os.path.realpath(path))
    if not target.parent.is_dir():
        folder = str(Path(path).parent)
        raise ValueError(f"Expected a folder for {what} but there is no {folder!r}; make it first.")
    if target.is_dir():
        raise ValueError(
            f"Expected a file for {what} but {str(path)!r} is a folder; name a file in it."
        )
    if target.exists() and not target.is_file():
        raise ValueError(
            f"Expected a file for {what} but {str(path)!r} is a device or a pipe; "
            "name a plain file."
        )
    if not os.access(target.parent, os.W_OK | os.X_OK):
        raise ValueError(
            f"Expected a folder to write {what} to but {str(target.parent)!r} is read-only; "
            "name a file in another folder."
        )
    return target


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A temporary file beside the one to be written, which takes its place at the end.

    Should the writing fail or be interrupted, the temporary file is removed and what was there
    before stays. Its name ends like that of the target, since writers go by that.

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
