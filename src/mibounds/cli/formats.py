"""Formats of files: columns of CSV, TSV, Parquet, NPZ and NPY, read by name.

One class a format, with two verbs: the names of the columns, and some of the columns. Files come
from anywhere: whatever is wrong with one is said in one line, and nothing in it is ever executed.
"""

from __future__ import annotations

import contextlib
import csv
import io
import math
import os
import re
import warnings
import zipfile
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

_BLOCK = 1 << 24  # bytes that pyarrow parses at a time, which no row may exceed
NUMBER = re.compile(r"\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\s*|\s*[-+]?(inf|nan)\s*", re.I)


@dataclass(frozen=True)
class Column:
    """One value a row: numbers, or labels by their codes.

    Attributes:
        values: of shape (n,); missing ones are NaN, or -1 among codes.
        labels: what the codes stand for; None where the values are numbers.
        discrete: whether the file itself says that these are labels: text, or true and false.

    Example:
        >>> Column(np.array([0, 1, -1]), ("no", "yes"), discrete=True).missing
        array([False, False,  True])
    """

    values: np.ndarray
    labels: tuple[str, ...] | None = None
    discrete: bool = False

    @property
    def missing(self) -> np.ndarray:
        """Which rows have no value."""
        if self.labels is not None:
            return self.values < 0
        return np.isnan(self.values) if self.values.dtype.kind == "f" else np.zeros(len(self), bool)

    @property
    def dtype(self) -> np.dtype:
        """Of the numbers or codes."""
        return self.values.dtype

    def to_numpy(self) -> np.ndarray:
        """The numbers or codes."""
        return self.values

    def __len__(self) -> int:
        return len(self.values)


def short(text: str, most: int = 40) -> str:
    """Text from a file, fit to stand in a message of one line."""
    text = text if len(text) <= most else text[:most] + "..."
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def quote(text: str) -> str:
    """Likewise, in quotation marks."""
    return f"'{short(text)}'"


# What a file that is not what its name says looks like: its first bytes, what they mean, and its
# right ending, or the format to save it in, or "" where it is packed.
_MAGIC = {
    b"PAR1": ("a Parquet file", ".parquet"),
    b"PK\x03\x04": ("an NPZ or another zip file", ".npz"),
    b"\x93NUMPY": ("an NPY file", ".npy"),
    b"\x1f\x8b": ("a gzip file", ""),
    b"BZh": ("a bzip2 file", ""),
    b"\xfd7zXZ": ("an xz file", ""),
    b"\x28\xb5\x2f\xfd": ("a zstd file", ""),
    b"ARROW1": ("an Arrow file", "Parquet"),
    b"\x89HDF": ("an HDF5 file", "NPZ"),
    b"\xd0\xcf\x11\xe0": ("an Excel file", "CSV"),
    b"SQLite format 3": ("an SQLite database", "CSV"),
    b"%PDF": ("a PDF", "CSV"),
    b"\x89PNG": ("an image", "NPY"),
}


def open_file(path: str | os.PathLike[str]) -> File:
    """The file, after all that can be said from its name and first bytes."""
    path = Path(path)
    source = short(path.name) or str(path)
    try:
        if path.is_dir():
            raise ValueError(f"{source} is a folder; name a file in it")
        if not path.exists():
            raise FileNotFoundError(
                f"there is no file {str(path)!r}; "
                "give its path from the current folder, or all of it"
            )
        if not path.is_file():
            raise ValueError(f"{source} is a device or a pipe; save it to a file first")
        with path.open("rb") as stream:
            head = stream.read(1 << 16)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise ValueError(
            f"{source} cannot be read: {error.strerror}; change its permissions, or copy it"
        ) from None
    suffix = path.suffix.lower()
    if suffix not in _FORMATS:
        raise ValueError(
            f"{source} ends in {quote(suffix)}; save it as one of {', '.join(_FORMATS)}"
        )
    if not head:
        raise ValueError(f"{source} is empty; write it again")
    kind = _FORMATS[suffix]
    if not kind.magic or not head.startswith(kind.magic):
        for magic, (what, right) in _MAGIC.items():
            if head.startswith(magic):
                if not right:
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


class _Message(ValueError):
    """An error that is worded for the user already."""


class File(ABC):
    """A file of one format: what its columns are called, and their values."""

    title: str  # with its article
    magic = b""  # first bytes, where the format has some
    typed = True  # whether the file says what is text and what a number

    def __init__(self, path: Path, source: str, head: bytes):
        self.path, self.source, self.head = path, source, head

    def names(self) -> list[str]:
        """All columns, in the order of the file."""
        with self._worded():
            return self._names()

    def read(self, names: Sequence[str]) -> dict[str, Column]:
        """Some of them, each of which is known to be there, once."""
        with self._worded():
            return self._read(names)

    def arrays(self) -> dict[str, str]:
        """Of each column the array that it is a part of, where the file has arrays."""
        return {}

    @abstractmethod
    def _names(self) -> list[str]: ...

    @abstractmethod
    def _read(self, names: Sequence[str]) -> dict[str, Column]: ...

    @contextlib.contextmanager
    def _worded(self) -> Iterator[None]:
        """Turns whatever a parser makes of a broken file into one line."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # parsers', about odd headers; what matters raises
                yield
        except (_Message, ImportError):
            raise
        except MemoryError:
            raise ValueError(
                f"{self.source}: the columns do not fit into memory; choose fewer of them"
            ) from None
        except Exception as error:  # a parser may raise anything over a file made by anyone
            if type(error).__name__ == "ArrowCancelled":  # how pyarrow passes Ctrl-C on
                raise KeyboardInterrupt from None
            text = short((str(error).strip() or type(error).__name__).splitlines()[0], 200)
            raise ValueError(
                f"{self.source} is damaged or not {self.title}: {text}; write it again"
            ) from None


class _CSV(File):
    title = "a CSV file"
    delimiters = ",;\t"  # the first of them that separates anything in the header
    typed = False

    def _names(self) -> list[str]:
        return self._layout()[0]

    def _layout(self) -> tuple[list[str], str, int]:
        """Names, delimiter, and how many rows come before the data."""
        if self.head.startswith((b"\xff\xfe", b"\xfe\xff")):
            raise _Message(f"{self.source} is in UTF-16; save it as UTF-8")
        if b"\0" in self.head:
            raise _Message(
                f"{self.source} holds bytes that no text has; save it as {self.title} in UTF-8"
            )
        with self.path.open("rb") as stream:
            blank, line = _first_record(stream)
        if not line.strip():
            raise _Message(
                f"{self.source} is empty, or begins with an empty line; "
                "put a line with the names of the columns first"
            )
        if b"\n" in line:  # between quotes, which perhaps never close
            self._check_quotes()
        if len(line) > _BLOCK - 8:
            raise _Message(
                f"{self.source} begins with a line of over {_BLOCK >> 20} MiB; save it as Parquet"
            )
        try:
            header = line.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise _Message(
                f"{self.source} is not in UTF-8 (byte {line[error.start]:#04x} in the names of its "
                "columns); save it as UTF-8"
            ) from None
        names: list[str] = []
        delimiter = self.delimiters[0]
        for candidate in self.delimiters:
            row = next(csv.reader(io.StringIO(header, newline=""), delimiter=candidate), [])
            if len(row) > max(1, len(names)):
                names, delimiter = row, candidate
                break
            names = names or row
        if all(map(NUMBER.fullmatch, names)) and any("." in name for name in names):
            raise _Message(
                f"{self.source} begins with numbers ({short(', '.join(names[:3]))}); "
                "put a line with the names of the columns before them"
            )
        return names, delimiter, blank + 1

    def _read(self, names: Sequence[str]) -> dict[str, Column]:
        pa = _import_arrow()
        header, delimiter, skip = self._layout()
        places = {name: str(i) for i, name in enumerate(header)}
        self._check_quotes()

        def parse(threads: bool) -> Any:
            with self.path.open("rb") as stream:
                return pa.csv.read_csv(
                    stream,
                    pa.csv.ReadOptions(
                        use_threads=threads,
                        block_size=_BLOCK,
                        column_names=[str(i) for i in range(len(header))],
                        skip_rows_after_names=skip,
                    ),
                    pa.csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
                    pa.csv.ConvertOptions(
                        include_columns=[places[name] for name in names],
                        strings_can_be_null=True,
                        quoted_strings_can_be_null=False,
                    ),
                )

        try:
            try:
                data = parse(threads=True)
            except pa.ArrowInvalid as error:
                if "columns, got" not in str(error):
                    raise
                data = parse(threads=False)  # once more, to be told which row it is
        except pa.ArrowInvalid as error:
            ragged = re.search(r"Row #(\d+): Expected (\d+) columns, got (\d+)", str(error))
            if ragged:
                row, expected, got = map(int, ragged.groups())
                raise _Message(
                    f"{self.source}: row {row - skip} has {got} values but the header has "
                    f"{expected} columns; correct that row"
                ) from None
            if "straddl" in str(error):
                raise _Message(
                    f"{self.source} has a row of over {_BLOCK >> 20} MiB; save it as Parquet"
                ) from None
            raise
        return {name: _from_arrow(self, name, data.column(places[name])) for name in names}

    def _check_quotes(self) -> None:
        """A quote that is never closed would swallow the rows after it in silence."""
        count = 0
        with self.path.open("rb") as stream:
            while chunk := stream.read(1 << 20):
                count += chunk.count(b'"')
        if count % 2:
            raise _Message(f"{self.source} has an odd number of quotes; close the one that is open")


class _TSV(_CSV):
    title = "a TSV file"
    delimiters = "\t"


class _Parquet(File):
    title = "a Parquet file"
    magic = b"PAR1"

    def _names(self) -> list[str]:
        pa = _import_arrow()
        with self.path.open("rb") as stream:
            return list(pa.parquet.ParquetFile(stream).schema_arrow.names)

    def _read(self, names: Sequence[str]) -> dict[str, Column]:
        pa = _import_arrow()
        with self.path.open("rb") as stream:
            file = pa.parquet.ParquetFile(stream)
            for name in names:
                kind = file.schema_arrow.field(name).type
                if pa.types.is_nested(kind):
                    raise _Message(
                        f"{self.source}: column {quote(name)} holds {short(str(kind))}; "
                        "save one number or text a row"
                    )
            data = file.read(columns=list(names))
        return {name: _from_arrow(self, name, data.column(name)) for name in names}


class _NPZ(File):
    title = "an NPZ file"
    magic = b"PK"

    def _names(self) -> list[str]:
        return [name for name, _, _ in self._places()]

    def arrays(self) -> dict[str, str]:
        return {name: array.removesuffix(".npy") for name, array, _ in self._places()}

    def _places(self) -> list[tuple[str, str, int]]:
        """Of each column its name, its array, and its place in a row of that."""
        places: list[tuple[str, str, int]] = []
        with zipfile.ZipFile(self.path) as archive:
            for info in archive.infolist():
                if info.filename.endswith(".npy"):
                    array = info.filename.removesuffix(".npy")
                    with archive.open(info) as stream:
                        width = _width(self, array, _header(self, stream, info.file_size))
                    names = [array] if width is None else [f"{array}.{k}" for k in range(width)]
                    places += ((name, info.filename, k) for k, name in enumerate(names))
        if not places:
            raise _Message(f"{self.source} holds no arrays; write some with numpy.savez")
        return places

    def _read(self, names: Sequence[str]) -> dict[str, Column]:
        places = {name: (array, k) for name, array, k in self._places()}
        arrays: dict[str, np.ndarray] = {}
        columns: dict[str, Column] = {}
        with zipfile.ZipFile(self.path) as archive:
            for name in names:
                member, k = places[name]
                if member not in arrays:
                    with archive.open(member) as stream:
                        shape, dtype = _header(self, stream, archive.getinfo(member).file_size)
                        _check_array(self, member.removesuffix(".npy"), shape, dtype)
                    with archive.open(member) as stream:
                        array = np.lib.format.read_array(stream, allow_pickle=False)
                    arrays[member] = array.reshape(len(array), -1)
                columns[name] = _from_numpy(self, name, arrays[member][:, k])
        return columns


class _NPY(File):
    title = "an NPY file"
    magic = b"\x93NUMPY"

    def _shape(self) -> tuple[tuple[int, ...], np.dtype]:
        with self.path.open("rb") as stream:
            return _header(self, stream, self.path.stat().st_size)

    def _names(self) -> list[str]:
        return [str(k) for k in range(_width(self, "the array", self._shape()) or 1)]

    def _read(self, names: Sequence[str]) -> dict[str, Column]:
        _check_array(self, "the array", *self._shape())
        array = np.load(self.path, mmap_mode="r", allow_pickle=False)
        array = array.reshape(len(array), -1)
        return {name: _from_numpy(self, name, np.array(array[:, int(name)])) for name in names}


_FORMATS: dict[str, type[File]] = {
    ".csv": _CSV,
    ".tsv": _TSV,
    ".parquet": _Parquet,
    ".npz": _NPZ,
    ".npy": _NPY,
}


def _first_record(stream: io.BufferedIOBase) -> tuple[int, bytes]:
    """The number of blank lines at the start, and the line after them: on, while a quote is open.

    It ends after `_BLOCK` bytes at the latest.
    """
    head = stream.read(_BLOCK)
    body = head.removeprefix(b"\xef\xbb\xbf").lstrip(b"\r\n")
    before = head[: len(head) - len(body)]
    blank = before.count(b"\n") or before.count(b"\r")
    end, open_quote = 0, False
    for line in body.splitlines(keepends=True):
        end += len(line)
        open_quote ^= line.count(b'"') % 2 == 1
        if not open_quote:
            break
    return blank, body[:end].rstrip(b"\r\n")


def _header(file: File, stream: Any, size: int) -> tuple[tuple[int, ...], np.dtype]:
    """Shape and dtype of an array, whose values have to be there in full."""
    version = np.lib.format.read_magic(stream)
    if version == (1, 0):
        shape, _, dtype = np.lib.format.read_array_header_1_0(stream)
    elif version == (2, 0):
        shape, _, dtype = np.lib.format.read_array_header_2_0(stream)
    else:
        raise _Message(f"{file.source} holds an array with named fields; save it as plain numbers")
    if not dtype.hasobject and math.prod(shape) * dtype.itemsize > size - stream.tell():
        raise _Message(
            f"{file.source} is cut off: an array of shape {shape} is not all there; write it again"
        )
    return shape, dtype


def _width(file: File, name: str, header: tuple[tuple[int, ...], np.dtype]) -> int | None:
    """Columns of an array; None where it is itself one, or cannot be read anyway."""
    shape, dtype = header
    if len(shape) < 2 or dtype.hasobject or math.prod(shape) * dtype.itemsize == 0:
        return None
    return math.prod(shape[1:])


def _check_array(file: File, name: str, shape: tuple[int, ...], dtype: np.dtype) -> None:
    """Refuse arrays of anything but numbers and text, one sample a row."""
    what = f"{file.source}: {name if name == 'the array' else quote(name)}"
    if dtype.hasobject:
        raise _Message(
            f"{what} holds Python objects, which are not read since unpickling them could run "
            "anything; save plain numbers or text"
        )
    if dtype.kind not in "biufmMUS":
        kind = {"c": "complex numbers", "V": "named fields or raw bytes"}.get(dtype.kind, dtype)
        raise _Message(f"{what} holds {kind}; save real numbers or text")
    if not shape:
        raise _Message(f"{what} is a single value; save one sample a row")
    if math.prod(shape) * dtype.itemsize == 0:
        raise _Message(f"{what} has shape {shape}, which holds no values; save one sample a row")


# --- from the parsers' columns to ours -----------------------------------------------------------


def _import_arrow() -> Any:
    try:
        import pyarrow
        import pyarrow.csv
        import pyarrow.parquet
    except ImportError:
        raise ImportError(
            "CSV, TSV and Parquet files are read by pyarrow; "
            "install it with: pip install 'mibounds[tables]'"
        ) from None
    return pyarrow


def _from_arrow(file: File, name: str, data: Any) -> Column:
    pa = _import_arrow()
    kind = data.type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
        data = data.cast(kind)
    if pa.types.is_null(kind):
        return Column(np.full(len(data), np.nan))
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        try:
            data, kind = data.cast(pa.string()), pa.string()
        except pa.ArrowInvalid:
            raise _Message(
                f"{file.source}: column {quote(name)} is not in UTF-8; save the file as UTF-8"
            ) from None
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        codes = data.dictionary_encode().unify_dictionaries()
        labels = tuple(codes.chunk(0).dictionary.to_pylist()) if codes.num_chunks else ()
        indices = [chunk.indices.fill_null(-1).to_numpy() for chunk in codes.chunks]
        values = np.concatenate([*indices, np.empty(0, np.int64)]).astype(np.int64)
        return Column(values, labels, discrete=True)
    if pa.types.is_boolean(kind):
        return Column(data.cast(pa.int8()).to_numpy(), discrete=True)
    if pa.types.is_temporal(kind):
        if kind.bit_width == 32:
            data = data.cast(pa.int32())
        return Column(data.cast(pa.int64()).to_numpy())
    if pa.types.is_decimal(kind):
        data = data.cast(pa.float64())
    elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        raise _Message(
            f"{file.source}: column {quote(name)} holds {short(str(kind))}; save numbers or text"
        )
    return Column(_plain(data.to_numpy()))


def _from_numpy(file: File, name: str, values: np.ndarray) -> Column:
    kind = values.dtype.kind
    if kind == "S":
        try:
            values = np.char.decode(values, "utf-8")
        except UnicodeDecodeError:
            raise _Message(
                f"{file.source}: column {quote(name)} is not in UTF-8; save it as UTF-8"
            ) from None
    if kind in "US":
        labels, codes = np.unique(values, return_inverse=True)
        return Column(codes.astype(np.int64), tuple(labels.tolist()), discrete=True)
    if kind in "mM":
        missing = np.isnat(values)
        values = values.astype(np.int64)
        return Column(np.where(missing, np.nan, values) if missing.any() else values)
    if kind == "b":
        return Column(values.astype(np.int8), discrete=True)
    return Column(_plain(values))


def _plain(values: np.ndarray) -> np.ndarray:
    """In this machine's byte order, and in a precision that others take too."""
    if values.dtype.kind == "f":
        return values.astype({2: np.float32, 4: np.float32}.get(values.dtype.itemsize, np.float64))
    return values.astype(values.dtype.newbyteorder("="))
