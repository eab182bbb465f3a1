"""Finished cells on disk.

While an experiment runs, each finished cell is a file of its own below ``cells/``, written whole or
not at all; when all are there they become the lines of ``rows.jsonl``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from experiments.runner.base import Cell, Config, Record, digest
from mibounds.files import replacing

Key = tuple[Cell, str]  # a cell and the digest of its settings


class Records:
    """Finished cells in a folder.

    Args:
        folder: where; it is made on the first writing.
        say: told, in a line, about a file that cannot be read, which then counts as missing.

    Example:
        >>> records = Records(getfixture("tmp_path"))
        >>> cell = Cell("correct", "gaussian", "club", 0)
        >>> row = {"task": "gaussian-2", "metric": "mse", "value": 0.5}
        >>> records.write(Record(cell, {}, (row,), 1.5, "", {}))
        >>> list(records.read(Config())) == [cell]
        True
    """

    def __init__(self, folder: str | os.PathLike[str], say: Callable[[str], None] = print):
        self.folder, self.say = Path(folder), say

    @property
    def joined(self) -> Path:
        """The file of all records."""
        return self.folder / "rows.jsonl"

    def read(self, config: Config) -> dict[Cell, Record]:
        """The finished cells of these settings."""
        return {
            cell: record
            for (cell, name), record in self._all().items()
            if name == digest(config.settings_of(cell))
        }

    def write(self, record: Record) -> None:
        """Keep a finished cell, at once."""
        path = self._path(record)
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as temporary:
            temporary.write_text(record.to_json() + "\n", encoding="utf-8")

    def join(self, order: Iterable[Cell]) -> None:
        """Put all records into one file, those of the given cells first, and remove the others."""
        found = self._all()
        place = {cell: i for i, cell in enumerate(order)}
        keys = sorted(found, key=lambda key: (place.get(key[0], len(place)), key[1], key[0].name))
        with replacing(self.joined) as temporary:
            lines = [found[key].to_json() + "\n" for key in keys]
            temporary.write_text("".join(lines), encoding="utf-8")
        for key in keys:
            self._path(found[key]).unlink(missing_ok=True)
        if (cells := self.folder / "cells").is_dir() and not any(cells.iterdir()):
            cells.rmdir()

    def _path(self, record: Record) -> Path:
        return self.folder / "cells" / f"{record.cell.name}_{digest(record.config)}.json"

    def _all(self) -> dict[Key, Record]:
        # The cells first: another process may join them meanwhile, and then they are in the file.
        apart = list(self._apart())
        return {(record.cell, digest(record.config)): record for record in [*self._lines(), *apart]}

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

    def _lines(self) -> Iterator[Record]:
        try:
            lines = self.joined.read_text(encoding="utf-8", errors="replace").splitlines()
        except FileNotFoundError:
            return
        for number, line in enumerate(lines, 1):
            try:
                yield Record.from_json(line)
            except ValueError as error:
                self.say(
                    f"{self.joined}, line {number} cannot be read, "
                    f"its cell is computed again: {error}"
                )
