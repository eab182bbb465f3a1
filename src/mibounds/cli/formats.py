"""The base class of the file formats: a file of named columns, and its errors.

Files are not trusted: every error is reported in one line, and nothing in a file is ever executed.
"""

from __future__ import annotations

import contextlib
import gzip
import re
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

NUMBER = re.compile(r"\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\s*|\s*[-+]?(inf|nan)\s*", re.I)


@dataclass(frozen=True)
class Column:
    """One value per row: numbers, or codes of labels.

    Attributes:
        values: of shape (n,); a missing value is NaN, or -1 among codes.
        labels: the labels of the codes; None if the values are numbers.
        discrete: whether the file declares them labels: text, or true and false.

    Example:
        >>> Column(np.array([0, 1, -1]), ("no", "yes"), discrete=True).missing
        array([False, False,  True])
    """

    values: np.ndarray
    labels: tuple[str, ...] | None = None
    discrete: bool = False

    @property
    def missing(self) -> np.ndarray:
        """A mask of the rows without a value."""
        if self.labels is not None:
            return self.values < 0
        return np.isnan(self.values) if self.values.dtype.kind == "f" else np.zeros(len(self), bool)

    @property
    def dtype(self) -> np.dtype:
        """Data type of the numbers or codes."""
        return self.values.dtype

    def to_numpy(self) -> np.ndarray:
        """The numbers or codes."""
        return self.values

    def __len__(self) -> int:
        return len(self.values)


def short(text: str, most: int = 40) -> str:
    """Text from a file, shortened and escaped for a message of one line."""
    text = text if len(text) <= most else text[:most] + "..."
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def quote(text: str) -> str:
    """The same in quotation marks."""
    return f"'{short(text)}'"


class Sample:
    """Draws rows of a file in one pass, each as likely as the others, and keeps their order.

    Each row, or each block of rows, gets a random number; the rows with the smallest ones stay.

    Args:
        most: rows to keep; None for all.
        block: rows that stay together.
        seed: of the random numbers.

    Example:
        >>> sample = Sample(most=2)
        >>> kept = sample.keep(np.arange(10)), sample.keep(np.arange(10))
        >>> len(np.concatenate(kept)[sample.last()]), sample.total
        (2, 20)
    """

    def __init__(self, most: int | None = None, block: int = 1, seed: int = 0):
        self.most, self.block = most, block
        self.total = 0
        self._rng = np.random.default_rng([seed, 3])
        self._keys = np.empty(0)  # of the rows kept so far
        self._unit = -1, 0.0  # the block that the last row belongs to, and its number
        self._bound = 1.0  # largest number that may stay

    def draw(self, rows: int) -> np.ndarray:
        """Whether to keep each of the next rows; more may stay than are wanted in the end."""
        units = (self.total + np.arange(rows)) // self.block
        self.total += rows
        if self.most is None or not rows:
            return np.ones(rows, bool)
        keys = self._rng.random(int(units[-1]) - int(units[0]) + 1)
        if units[0] == self._unit[0]:
            keys[0] = self._unit[1]
        self._unit = int(units[-1]), float(keys[-1])
        keys = keys[units - units[0]]
        kept = keys <= self._bound
        self._keys = np.concatenate([self._keys, keys[kept]])
        return kept

    def keep(self, rows: np.ndarray) -> np.ndarray:
        """Those of the next rows that may stay."""
        return rows[self.draw(len(rows))]

    @property
    def full(self) -> bool:
        """Whether twice as many rows are kept as are wanted: time for `last`."""
        return self.most is not None and len(self._keys) > 2 * self.most

    def last(self) -> np.ndarray:
        """Places, among the rows kept so far, of those that stay; the others are forgotten."""
        if self.most is None or len(self._keys) <= self.most:
            return np.arange(len(self._keys) if self.most is not None else self.total)
        order = np.argsort(self._keys, kind="stable")[: self.most]
        self._bound = float(self._keys[order[-1]])
        stay = np.sort(order)
        self._keys = self._keys[stay]
        return stay


class FormatError(ValueError):
    """A file that cannot be used; the message is written for the user."""


class File(ABC):
    """A file of one format: the names of its columns, and their values."""

    title: str  # with an article
    magic = b""  # first bytes, if the format fixes them
    typed = True  # whether the file distinguishes text from numbers

    def __init__(self, path: Path, source: str, head: bytes):
        self.path, self.source, self.head = path, source, head

    def names(self) -> list[str]:
        """All columns, in the order of the file."""
        with self._one_line_errors():
            return self._names()

    def read(self, names: Sequence[str], sample: Sample | None = None) -> dict[str, Column]:
        """Some of the columns, each of which exists once.

        Args:
            names: of the columns.
            sample: draws the rows; all are read if left out.
        """
        with self._one_line_errors():
            return self._read(names, sample or Sample())

    def arrays(self) -> dict[str, str]:
        """For each column the array that it is part of, if the file has arrays."""
        return {}

    def stream(self) -> Any:
        """The contents, unpacked if they are packed by gzip."""
        return open_bytes(self.path)

    @abstractmethod
    def _names(self) -> list[str]: ...

    @abstractmethod
    def _read(self, names: Sequence[str], sample: Sample) -> dict[str, Column]: ...

    @contextlib.contextmanager
    def _one_line_errors(self) -> Iterator[None]:
        """Turn every error of a parser into one line."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of parsers, about odd headers
                yield
        except (FormatError, ImportError):
            raise
        except MemoryError:
            raise ValueError(
                f"{self.source}: the columns do not fit into memory; choose fewer of them"
            ) from None
        except Exception as error:  # a parser may raise anything on an untrusted file
            if type(error).__name__ == "ArrowCancelled":  # how pyarrow passes Ctrl-C on
                raise KeyboardInterrupt from None
            text = short((str(error).strip() or type(error).__name__).splitlines()[0], 200)
            raise ValueError(
                f"{self.source} is damaged or not {self.title}: {text}; write it again"
            ) from None


def open_bytes(path: Path) -> Any:
    """The contents of a file, unpacked on the way if its name ends in .gz."""
    return gzip.open(path, "rb") if path.suffix.lower() == ".gz" else path.open("rb")


def plain_numbers(values: np.ndarray) -> np.ndarray:
    """The same in this machine's byte order, and in a precision that other code accepts."""
    if values.dtype.kind == "f":
        return values.astype({2: np.float32, 4: np.float32}.get(values.dtype.itemsize, np.float64))
    return values.astype(values.dtype.newbyteorder("="))
