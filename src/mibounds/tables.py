"""Tables: columns of CSV, TSV, Parquet, NPZ and NPY files, by name.

A file is read in two steps. `read_names` looks at the names alone; `select` picks some of them by
name, range or pattern; `read_table` then reads those columns and no others, so that a file may be
far larger than memory as long as its chosen columns are not. Files come from anywhere: whatever is
wrong with one is said in one line, as a ValueError (or FileNotFoundError), and nothing in it is
ever executed.

Numbers are numbers. Text stands for labels and becomes codes 0, 1, ...; so do true and false. Dates
and times become numbers. Rows are counted from 1, the header not among them.
"""

from __future__ import annotations

import contextlib
import csv
import difflib
import io
import math
import os
import re
import warnings
import zipfile
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["Column", "Table", "check_apart", "read_names", "read_table", "select"]

_BLOCK = 1 << 24  # bytes that pyarrow parses at a time, which no row may exceed


# --- what is read --------------------------------------------------------------------------------


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


@dataclass(frozen=True)
class Table:
    """Columns of equal length, at least two rows.

    It has as much of a data frame's interface as it takes for `mibounds.estimate` to take it for
    one and call the columns by their names.

    Attributes:
        source: name of the file, for messages.
        columns: the columns by name.

    Example:
        >>> table = Table("data.csv", {"a": Column(np.array([1.0, 2.0, np.nan]))})
        >>> table.complete()
        Traceback (most recent call last):
        ...
        ValueError: data.csv: missing values in 1 of 3 rows (column 'a': 1, first in row 3); \
drop those rows (--drop-missing) or fill them in
        >>> table.complete(drop=True).array(["a"])
        array([[1.],
               [2.]])
    """

    source: str
    columns: Mapping[str, Column]

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(next(iter(self.columns.values())))

    @property
    def dtypes(self) -> list[np.dtype]:
        """Of the columns."""
        return [column.dtype for column in self.columns.values()]

    def __getitem__(self, name: str) -> Column:
        return self.columns[name]

    def take(self, names: Sequence[str]) -> Table:
        """The table of the named columns alone."""
        return Table(self.source, {name: self.columns[name] for name in names})

    def complete(self, drop: bool = False) -> Table:
        """The table if every value is there and finite.

        Args:
            drop: whether to leave out the rows with missing values instead of refusing them.

        Returns:
            This table, or one without those rows.
        """
        incomplete = np.zeros(self.rows, bool)
        counts = {}
        for name, column in self.columns.items():
            missing = column.missing
            if missing.any():
                counts[name] = (int(missing.sum()), int(missing.argmax()) + 1)
                incomplete |= missing
            if column.values.dtype.kind == "f" and np.isinf(column.values).any():
                bad = np.isinf(column.values)
                raise ValueError(
                    f"{self.source}: column {_quote(name)} is infinite in {int(bad.sum())} of "
                    f"{self.rows} rows, first in row {int(bad.argmax()) + 1}; "
                    "leave those rows out or clip them"
                )
        if not counts:
            return self
        for name, (count, _) in counts.items():
            if count == self.rows:
                raise ValueError(
                    f"{self.source}: column {_quote(name)} has no value in any of {self.rows} "
                    "rows; choose another one"
                )
        if not drop:
            shown = ", ".join(
                f"column {_quote(name)}: {count}, first in row {first}"
                for name, (count, first) in list(counts.items())[:3]
            )
            more = f", and {len(counts) - 3} more columns" if len(counts) > 3 else ""
            raise ValueError(
                f"{self.source}: missing values in {int(incomplete.sum())} of {self.rows} rows "
                f"({shown}{more}); drop those rows (--drop-missing) or fill them in"
            )
        keep = ~incomplete
        if keep.sum() < 2:
            raise ValueError(
                f"{self.source}: {int(keep.sum())} of {self.rows} rows have no missing value, "
                "which is too few; choose fewer columns or fill the values in"
            )
        return Table(
            self.source,
            {
                name: Column(column.values[keep], column.labels, column.discrete)
                for name, column in self.columns.items()
            },
        )

    def array(self, names: Sequence[str]) -> np.ndarray:
        """The named columns side by side, (n, d): int64 if all are whole numbers, else floats."""
        columns = [self.columns[name].values for name in names]
        dtype = np.result_type(*columns)
        if dtype.kind != "f":
            dtype = np.dtype(np.float64 if dtype == np.uint64 else np.int64)
        array = np.empty((self.rows, len(columns)), dtype)
        for k, values in enumerate(columns):
            array[:, k] = values
        return array

    def kinds(
        self,
        names: Sequence[str],
        discrete: Collection[str] = (),
        continuous: Collection[str] = (),
    ) -> list[str | None] | None:
        """What is known of the named columns without a look at their values.

        Args:
            names: the columns.
            discrete: those that the caller knows to be labels, besides those of text.
            continuous: those that the caller knows to be continuous.

        Returns:
            "discrete", "continuous" or, where nothing is known, None for each; None if nothing is
            known of any.
        """
        kinds: list[str | None] = [
            "continuous"
            if name in continuous
            else "discrete"
            if name in discrete or self.columns[name].discrete
            else None
            for name in names
        ]
        return kinds if any(kinds) else None


# --- which columns -------------------------------------------------------------------------------


def select(names: Sequence[str], pattern: str) -> list[str]:
    """The columns that a pattern names, in the order in which it names them, each once.

    A pattern is a list of items with commas between them. Each item is the first of these that
    fits: the name of a column; a range ``a:d`` of columns in the order of the file, both ends
    included, either of which may be left out; ``emb`` for all of ``emb.0``, ``emb.1``, ...; a name
    with ``*`` (any characters) or ``?`` (any one) in it; the number of a column, from 0, which may
    also stand at the end of a range.

    Args:
        names: all columns of the file.
        pattern: what to choose.

    Example:
        >>> select(["age", "emb.0", "emb.1", "emb.2", "label"], "emb.1:emb.2,age")
        ['emb.1', 'emb.2', 'age']
        >>> select(["age", "emb.0", "emb.1", "emb.2", "label"], "emb,l*")
        ['emb.0', 'emb.1', 'emb.2', 'label']
        >>> select(["age", "label"], "lable")
        Traceback (most recent call last):
        ...
        ValueError: there is no column 'lable'; did you mean 'label'? The columns are age, label
    """
    places = {name: i for i, name in reversed(list(enumerate(names)))}
    if pattern in places:  # a name with a comma in it, on its own
        return [pattern]
    chosen: dict[str, None] = {}
    for item in pattern.split(","):
        if not item.strip():
            raise ValueError(
                f"Expected names of columns with commas between them but got {_quote(pattern)}"
            )
        chosen.update(dict.fromkeys(_expand(names, places, item)))
    return list(chosen)


def check_apart(sides: Mapping[str, Sequence[str]]) -> None:
    """Check that no column stands on two sides.

    Args:
        sides: columns by the name of the side.

    Example:
        >>> check_apart({"--x": ["a", "b"], "--y": ["b"]})
        Traceback (most recent call last):
        ...
        ValueError: column 'b' is in both --x and --y; leave it out of one
    """
    seen: dict[str, str] = {}
    for side, names in sides.items():
        for name in names:
            if name in seen:
                raise ValueError(
                    f"column {_quote(name)} is in both {seen[name]} and {side}; leave it out of one"
                )
        seen.update(dict.fromkeys(names, side))


def _expand(names: Sequence[str], places: Mapping[str, int], item: str) -> Sequence[str]:
    for name in (item, item.strip()):
        if name in places:
            return [name]
    item = item.strip()

    def place(end: str, default: int) -> int | None:
        end = end.strip()
        if not end:
            return default
        if end not in places and end.isdecimal() and len(end) < 10 and int(end) < len(names):
            return int(end)
        return places.get(end)

    for i in (i for i, character in enumerate(item) if character == ":"):
        first, last = place(item[:i], 0), place(item[i + 1 :], len(names) - 1)
        if first is not None and last is not None:
            if first > last:
                raise ValueError(
                    f"the range {_quote(item)} runs backwards; turn its ends round ({_list(names)})"
                )
            return names[first : last + 1]
    prefix = item + "."
    group = [n for n in names if n.startswith(prefix) and n[len(prefix) :].isdecimal()]
    if group:
        return group
    if "*" in item or "?" in item:
        special = {"*": ".*", "?": "."}
        shape = re.compile("".join(special.get(c) or re.escape(c) for c in item), re.DOTALL)
        matches = [name for name in names if shape.fullmatch(name)]
        if not matches:
            raise ValueError(f"no column matches {_quote(item)}; {_list(names)}")
        return matches
    alone = None if ":" in item else place(item, 0)
    if alone is not None:
        return [names[alone]]
    raise ValueError(_unknown(names, item))


def _unknown(names: Sequence[str], item: str) -> str:
    close = difflib.get_close_matches(item[:200], names[:20_000], n=3)
    hint = f"did you mean {' or '.join(map(_quote, close))}? T" if close else "t"
    return f"there is no column {_quote(item)}; {hint}{_list(names)[1:]}"


def _list(names: Sequence[str], most: int = 8) -> str:
    shown = ", ".join(_short(name) or "''" for name in names[:most])
    more = f", ... ({len(names)} in all)" if len(names) > most else ""
    return f"the columns are {shown}{more}" if names else "the file has no columns"


def _short(text: str, most: int = 40) -> str:
    """Text from a file, fit to stand in a message of one line."""
    text = text if len(text) <= most else text[:most] + "..."
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def _quote(text: str) -> str:
    return f"'{_short(text)}'"


# --- reading -------------------------------------------------------------------------------------


def read_names(path: str | os.PathLike[str]) -> list[str]:
    """The names of a file's columns, in its order, without reading them.

    An array of an NPZ file gives one column of its name or, with more than one dimension, columns
    ``name.0``, ``name.1``, ...; those of an NPY file are numbered from 0.

    Args:
        path: a CSV, TSV, Parquet, NPZ or NPY file, which its name has to end in.

    Example:
        >>> path = getfixture("tmp_path") / "data.npz"
        >>> np.savez(path, x=np.zeros((9, 3)), y=np.zeros(9))
        >>> read_names(path)
        ['x.0', 'x.1', 'x.2', 'y']
    """
    return _open(path).names()


def read_table(
    path: str | os.PathLike[str],
    columns: Sequence[str] | None = None,
    *,
    discrete: Collection[str] = (),
    continuous: Collection[str] = (),
) -> Table:
    """Read columns of a file, and no others.

    Text in a column of numbers is refused: a column counts as one of numbers if more than half of
    its values are.

    Args:
        path: a CSV, TSV, Parquet, NPZ or NPY file, which its name has to end in.
        columns: names of the columns, in the order wanted; all if left out.
        discrete: columns that are labels, whatever they look like.
        continuous: columns that are numbers, so that any text in them is refused.

    Returns:
        The columns; values may be missing, see `Table.complete`.

    Example:
        >>> path = getfixture("tmp_path") / "data.npz"
        >>> np.savez(path, x=np.zeros((9, 3)), y=np.array(["yes", "no", "no"] * 3))
        >>> table = read_table(path, ["x.0", "y"])
        >>> table.rows, table.columns["y"].labels
        (9, ('no', 'yes'))
    """
    file = _open(path)
    names = file.names()
    wanted = list(names if columns is None else columns)
    if not wanted:
        raise ValueError(f"{file.source} has no columns")
    counts = Counter(names)
    for name in wanted:
        if not counts[name]:
            raise ValueError(f"{file.source}: {_unknown(names, name)}")
        if counts[name] > 1:
            raise ValueError(
                f"{file.source} has {counts[name]} columns named {_quote(name)}; "
                "give them different names"
            )
    table = Table(file.source, file.read(wanted))
    lengths = {len(column) for column in table.columns.values()}
    if len(lengths) > 1:
        shown = ", ".join(f"{_short(n)} has {len(c)}" for n, c in list(table.columns.items())[:3])
        raise ValueError(f"{file.source}: the columns differ in their numbers of rows: {shown}")
    if table.rows < 2:
        rows = "no rows" if table.rows == 0 else "one row"
        raise ValueError(f"{file.source} holds {rows}; mutual information takes at least two")
    return Table(
        file.source,
        {
            name: _settle(file, name, column, name in discrete, name in continuous)
            for name, column in table.columns.items()
        },
    )


_NUMBER = re.compile(r"\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\s*|\s*[-+]?(inf|nan)\s*", re.I)
_DECIMAL_COMMA = re.compile(r"\s*[-+]?\d+,\d+\s*")


def _settle(file: _File, name: str, column: Column, discrete: bool, continuous: bool) -> Column:
    """Decide for a column of text whether it holds labels, or numbers and a mistake."""
    if column.labels is None or discrete:
        return column
    numeric = np.array([bool(_NUMBER.fullmatch(label)) for label in column.labels] + [True])
    alike = numeric | np.array(
        [bool(_DECIMAL_COMMA.fullmatch(label)) for label in column.labels] + [True]
    )
    there = ~column.missing
    bad = ~numeric[column.values]
    if continuous or 2 * (alike[column.values] & there).sum() > there.sum():
        if bad.any():
            row = int(bad.argmax())
            value = column.labels[column.values[row]]
            advice = (
                "write a decimal point instead of the comma"
                if _DECIMAL_COMMA.fullmatch(value)
                else f"correct it, or take the column as labels (--discrete {_short(name)})"
                if not continuous
                else "correct it, or do not declare the column continuous"
            )
            raise ValueError(
                f"{file.source}: column {_quote(name)} holds numbers but row {row + 1} holds "
                f"{_quote(value)}; {advice}"
            )
        if continuous or not file.typed:
            numbers = np.array([float(label) for label in column.labels] + [math.nan])
            return Column(numbers[column.values])
    return column


# What a file that is not what its name says looks like: its first bytes, and what they mean.
_MAGIC = {
    b"PAR1": ("a Parquet file", ".parquet"),
    b"PK\x03\x04": ("an NPZ or another zip file", ".npz"),
    b"\x93NUMPY": ("an NPY file", ".npy"),
    b"\x1f\x8b": ("a gzip file; unpack it first", None),
    b"BZh": ("a bzip2 file; unpack it first", None),
    b"\xfd7zXZ": ("an xz file; unpack it first", None),
    b"\x28\xb5\x2f\xfd": ("a zstd file; unpack it first", None),
    b"ARROW1": ("an Arrow file; save it as Parquet", None),
    b"\x89HDF": ("an HDF5 file; save it as NPZ", None),
    b"\xd0\xcf\x11\xe0": ("an Excel file; save it as CSV", None),
    b"SQLite format 3": ("an SQLite database; save the table as CSV", None),
    b"%PDF": ("a PDF", None),
    b"\x89PNG": ("an image", None),
}


def _open(path: str | os.PathLike[str]) -> _File:
    """The file, after all that can be said from its name and first bytes."""
    path = Path(path)
    source = _short(path.name) or str(path)
    try:
        if path.is_dir():
            raise ValueError(f"{source} is a folder; expected a file")
        if not path.exists():
            raise FileNotFoundError(f"there is no file {str(path)!r}")
        if not path.is_file():
            raise ValueError(f"{source} is a device or a pipe; expected a file")
        with path.open("rb") as stream:
            head = stream.read(1 << 16)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise ValueError(f"{source} cannot be read: {error.strerror}") from None
    suffix = path.suffix.lower()
    if suffix not in _FORMATS:
        raise ValueError(
            f"{source} ends in {_quote(suffix)}; expected one of {', '.join(_FORMATS)}"
        )
    if not head:
        raise ValueError(f"{source} is empty")
    kind = _FORMATS[suffix]
    if not kind.magic or not head.startswith(kind.magic):
        for magic, (what, right) in _MAGIC.items():
            if head.startswith(magic):
                advice = f"; rename it to {path.stem[:40]}{right}" if right else ""
                raise ValueError(f"{source} looks like {what}{advice}")
    if kind.magic and not head.startswith(kind.magic):
        text = b"\0" not in head and _is_text(head)
        hint = "; it looks like text, perhaps a CSV file" if text else ""
        raise ValueError(f"{source} is not {kind.title}{hint}")
    return kind(path, source, head)


def _is_text(head: bytes) -> bool:
    try:
        head[:-3].decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


class _Message(ValueError):
    """An error that is worded for the user already."""


class _File(ABC):
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
            raise ValueError(f"{self.source}: the columns do not fit into memory") from None
        except Exception as error:  # a parser may raise anything over a file made by anyone
            if type(error).__name__ == "ArrowCancelled":  # how pyarrow passes Ctrl-C on
                raise KeyboardInterrupt from None
            text = _short((str(error).strip() or type(error).__name__).splitlines()[0], 200)
            raise ValueError(f"{self.source} is damaged or not {self.title}: {text}") from None


class _CSV(_File):
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
            raise _Message(f"{self.source} holds bytes that no text has; is it {self.title}?")
        with self.path.open("rb") as stream:
            blank, line = _first_record(stream)
        if not line.strip():
            raise _Message(f"{self.source} is empty, or begins with an empty line")
        if b"\n" in line:  # between quotes, which perhaps never close
            self._check_quotes()
        if len(line) > _BLOCK - 8:
            raise _Message(f"{self.source} begins with a line of over {_BLOCK >> 20} MiB")
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
        if all(map(_NUMBER.fullmatch, names)) and any("." in name for name in names):
            raise _Message(
                f"{self.source} begins with numbers ({_short(', '.join(names[:3]))}); "
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
            raise _Message(f"{self.source} has an odd number of quotes; one of them never closes")


class _TSV(_CSV):
    title = "a TSV file"
    delimiters = "\t"


class _Parquet(_File):
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
                        f"{self.source}: column {_quote(name)} holds {_short(str(kind))}; "
                        "expected one number or text a row"
                    )
            data = file.read(columns=list(names))
        return {name: _from_arrow(self, name, data.column(name)) for name in names}


class _NPZ(_File):
    title = "an NPZ file"
    magic = b"PK"

    def _names(self) -> list[str]:
        return [name for name, _, _ in self._places()]

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
            raise _Message(f"{self.source} holds no arrays")
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


class _NPY(_File):
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


_FORMATS: dict[str, type[_File]] = {
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


def _header(file: _File, stream: Any, size: int) -> tuple[tuple[int, ...], np.dtype]:
    """Shape and dtype of an array, whose values have to be there in full."""
    version = np.lib.format.read_magic(stream)
    if version == (1, 0):
        shape, _, dtype = np.lib.format.read_array_header_1_0(stream)
    elif version == (2, 0):
        shape, _, dtype = np.lib.format.read_array_header_2_0(stream)
    else:
        raise _Message(f"{file.source} holds an array with named fields; save it as plain numbers")
    if not dtype.hasobject and math.prod(shape) * dtype.itemsize > size - stream.tell():
        raise _Message(f"{file.source} is cut off: an array of shape {shape} is not all there")
    return shape, dtype


def _width(file: _File, name: str, header: tuple[tuple[int, ...], np.dtype]) -> int | None:
    """Columns of an array; None where it is itself one, or cannot be read anyway."""
    shape, dtype = header
    if len(shape) < 2 or dtype.hasobject or math.prod(shape) * dtype.itemsize == 0:
        return None
    return math.prod(shape[1:])


def _check_array(file: _File, name: str, shape: tuple[int, ...], dtype: np.dtype) -> None:
    """Refuse arrays of anything but numbers and text, one sample a row."""
    what = f"{file.source}: {name if name == 'the array' else _quote(name)}"
    if dtype.hasobject:
        raise _Message(
            f"{what} holds Python objects, which are not read since unpickling them could run "
            "anything; save plain numbers or text"
        )
    if dtype.kind not in "biufmMUS":
        kind = {"c": "complex numbers", "V": "named fields or raw bytes"}.get(dtype.kind, dtype)
        raise _Message(f"{what} holds {kind}; expected real numbers or text")
    if not shape:
        raise _Message(f"{what} is a single value; expected one sample a row")
    if math.prod(shape) * dtype.itemsize == 0:
        raise _Message(f"{what} has shape {shape}, which holds no values")


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


def _from_arrow(file: _File, name: str, data: Any) -> Column:
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
                f"{file.source}: column {_quote(name)} is not in UTF-8; save the file as UTF-8"
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
            f"{file.source}: column {_quote(name)} holds {_short(str(kind))}; "
            "expected numbers or text"
        )
    return Column(_plain(data.to_numpy()))


def _from_numpy(file: _File, name: str, values: np.ndarray) -> Column:
    kind = values.dtype.kind
    if kind == "S":
        try:
            values = np.char.decode(values, "utf-8")
        except UnicodeDecodeError:
            raise _Message(f"{file.source}: column {_quote(name)} is not in UTF-8") from None
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
