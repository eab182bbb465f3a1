"""Finished cells on disk.

While an experiment runs, each finished cell is a file of its own in ``cells/``, written whole or
not at all. When all are finished they become the lines of ``rows.jsonl``, which is compressed to
``rows.jsonl.gz`` where it is large.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from experiments.runner.base import Cell, Config, Record, digest
from mibounds.files import remove_files, remove_leftovers, replacing

PLAIN, COMPRESSED = "rows.jsonl", "rows.jsonl.gz"
LARGE = 1 << 20  # bytes above which the lines are compressed


def read_records(folder: str | os.PathLike[str]) -> list[Record]:
    """The finished cells in the folder of an experiment.

    Args:
        folder: with a file of rows, compressed or not.

    Returns:
        One record per line.

    Raises:
        OSError: if there is no such file.
        ValueError: if a line is not a record; it names the file and the line.

    Example:
        >>> folder = getfixture("tmp_path")
        >>> read_records(folder)
        Traceback (most recent call last):
        ...
        FileNotFoundError: [Errno 2] No such file or directory: '...rows.jsonl'
    """
    path = Path(folder) / COMPRESSED
    path = path if path.exists() else Path(folder) / PLAIN
    records = []
    for number, found in _lines(path):
        if isinstance(found, Exception):
            where = f"{path}, line {number}"
            raise ValueError(f"{where}: {found}") from found
        records.append(found)
    return records


def _lines(path: Path) -> Iterator[tuple[int, Record | Exception]]:
    """The number of each line, and its record or what is wrong with it.

    A ValueError is about the line, any other error about the file, of which no line follows.
    """
    opener = gzip.open if path.suffix == ".gz" else open
    number = 0
    with opener(path, "rt", encoding="utf-8", errors="replace") as stream:
        try:
            for number, line in enumerate(stream, 1):
                try:
                    yield number, Record.from_json(line)
                except ValueError as error:
                    yield number, error
        except (OSError, EOFError, zlib.error) as error:
            yield number, error


class Records:
    """Finished cells in a folder.

    Args:
        folder: where; it is made on the first writing.
        say: called with one line about each file that cannot be read, whose cells count as missing.

    Example:
        >>> records = Records(getfixture("tmp_path"))
        >>> cell = Cell("correct", "gaussian", "club", 0)
        >>> row = {"task": "gaussian-2", "metric": "mse", "value": 0.5}
        >>> records.write(Record(cell, {}, (row,), 1.5, "", {}))
        >>> list(records.read(Config())) == [cell]
        True
    """

    def __init__(self, folder: str | os.PathLike[str], say: Callable[[str], None] = print):
        self.folder, self._say = Path(folder), say
        self._said: set[str] = set()
        self._damaged: set[Path] = set()  # files of rows that are not read whole

    def read(self, config: Config) -> dict[Cell, Record]:
        """The finished cells with these settings."""
        _, found = self._all()
        return {r.cell: r for r in found if digest(r.config) == digest(config.settings_of(r.cell))}

    def write(self, record: Record) -> None:
        """Keep a finished cell, at once."""
        path = self._path(record)
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as temporary:
            temporary.write_text(record.to_json() + "\n", encoding="utf-8")

    def join(self, order: Iterable[Cell]) -> None:
        """Put all records into one file, the given cells first, and remove their own files."""
        joined, found = self._all()
        place = {cell: i for i, cell in enumerate(order)}
        found.sort(key=lambda r: (place.get(r.cell, len(place)), digest(r.config), r.cell.name))
        if found != joined:
            self._write_joined(found)
        cells = self.folder / "cells"
        for folder in (self.folder, cells):
            remove_leftovers(folder)
        remove_files(cells, [self._path(record).name for record in found])

    def _write_joined(self, records: Sequence[Record]) -> None:
        data = "".join(record.to_json() + "\n" for record in records).encode()
        path, other = self.folder / PLAIN, self.folder / COMPRESSED
        if len(data) > LARGE:
            path, other = other, path
            data = gzip.compress(data, mtime=0)  # the same bytes for the same lines
        for damaged in self._damaged:
            self._set_aside(damaged)
        with replacing(path) as temporary:
            temporary.write_bytes(data)
        other.unlink(missing_ok=True)

    def _set_aside(self, path: Path) -> None:
        """Keep a file whose lines are not all read, before it is written again without them."""
        data = path.read_bytes()
        kept = path.with_name(f"{path.name}.{hashlib.sha256(data).hexdigest()[:8]}.damaged")
        with replacing(kept) as temporary:
            temporary.write_bytes(data)
        self.say(f"{path} is written again without what cannot be read, and kept as {kept.name}")

    def say(self, text: str) -> None:
        """Say something once."""
        if text not in self._said:
            self._said.add(text)
            self._say(text)

    def _path(self, record: Record) -> Path:
        return self.folder / "cells" / f"{record.cell.name}_{digest(record.config)}.json"

    def _all(self) -> tuple[list[Record], list[Record]]:
        """The records that are joined, and those with the ones that are not: one per cell."""
        # The cells first: another process may join them meanwhile, and then they are in the file.
        apart = list(self._apart())
        joined = list(self._joined())
        found = {(record.cell, digest(record.config)): record for record in [*joined, *apart]}
        return joined, list(found.values())

    def _apart(self) -> Iterator[Record]:
        for path in sorted((self.folder / "cells").glob("*.json")):
            if not path.name.startswith("."):  # one that is being written, or was when it ended
                try:
                    record = Record.from_json(path.read_text(encoding="utf-8"))
                    if self._path(record) != path:
                        raise ValueError(
                            "Expected the cell of its name but got another; remove the file."
                        )
                    yield record
                except FileNotFoundError:
                    continue
                except (OSError, ValueError) as error:
                    self.say(f"{path} cannot be read, its cell is computed again: {error}")

    def _joined(self) -> Iterator[Record]:
        for path in (self.folder / PLAIN, self.folder / COMPRESSED):
            try:
                for number, found in _lines(path):
                    if isinstance(found, Record):
                        yield found
                    elif isinstance(found, ValueError):
                        self._tell(path, f", line {number} cannot be read, its cell is", found)
                    else:
                        text = f" cannot be read after line {number}, the cells that follow are"
                        self._tell(path, text, found)
            except FileNotFoundError:
                continue
            except OSError as error:
                raise ValueError(
                    f"Expected to read {str(path)!r} but got: {error.strerror}; "
                    "change its permissions, or name another folder with --out."
                ) from None

    def _tell(self, path: Path, what: str, error: Exception) -> None:
        self._damaged.add(path)
        self.say(f"{path}{what} computed again: {error}")
