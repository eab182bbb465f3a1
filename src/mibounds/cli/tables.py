"""Tables: columns of CSV, TSV, JSON, Parquet, Arrow, NPZ and NPY files, by name.

A file is read in three steps: `read_names` reads only the names; `select` picks columns by name,
range or pattern; `read_table` then reads only those columns, so that a file may be far larger than
memory; so may its rows, of which some are then drawn at random in one pass. Files are not trusted:
every error is reported in one line, as a ValueError (or FileNotFoundError), and nothing in a file
is ever executed.

Text is read as labels, with codes 0, 1, ...; so are true and false. Dates and times become numbers.
Rows are counted from 1, without the header.
"""

from __future__ import annotations

import difflib
import math
import os
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from mibounds.cli._detection import open_file
from mibounds.cli.formats import NUMBER, Column, File, Sample, quote, short

__all__ = ["Column", "Table", "check_apart", "read_names", "read_table", "select"]


# --- what is read --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Table:
    """Columns of equal length, at least two rows.

    It has enough of a data frame's interface for `mibounds.estimate` to treat it as one and use the
    names of its columns.

    Attributes:
        source: name of the file, for messages.
        columns: the columns by name.
        total: rows of the file, of which those of the table may be some.

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
    total: int | None = None

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(next(iter(self.columns.values())))

    @property
    def dtypes(self) -> list[np.dtype]:
        """Data types of the columns."""
        return [column.dtype for column in self.columns.values()]

    def __getitem__(self, name: str) -> Column:
        return self.columns[name]

    def take(self, names: Sequence[str]) -> Table:
        """A table of only the named columns."""
        return Table(self.source, {name: self.columns[name] for name in names}, self.total)

    def complete(self, drop: bool = False) -> Table:
        """Check that no value is missing or infinite.

        Args:
            drop: whether to drop the rows with missing values instead of raising an error.

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
                    f"{self.source}: column {quote(name)} is infinite in {int(bad.sum())} of "
                    f"{self.rows} rows, first in row {int(bad.argmax()) + 1}; "
                    "leave those rows out or clip them"
                )
        if not counts:
            return self
        for name, (count, _) in counts.items():
            if count == self.rows:
                raise ValueError(
                    f"{self.source}: column {quote(name)} has no value in any of {self.rows} "
                    "rows; choose another one"
                )
        if not drop:
            shown = ", ".join(
                f"column {quote(name)}: {count}, first in row {first}"
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
            self.total,
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
        """The kinds of the named columns, as far as they are declared.

        Args:
            names: the columns.
            discrete: those that the caller declares labels, in addition to columns of text.
            continuous: those that the caller declares continuous.

        Returns:
            "discrete", "continuous" or None (unknown) for each; None if all are unknown.
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
    """The columns that a pattern names, in its order, each once.

    A pattern is a list of items separated by commas. Each item is the first of these that matches:
    the name of a column; a range ``a:d`` of columns in the order of the file, both ends included,
    either of which may be left out; ``emb`` for all of ``emb.0``, ``emb.1``, ...; a name with ``*``
    (any characters) or ``?`` (any one) in it; the number of a column, from 0, which may also be an
    end of a range. Numbers are not accepted if the names look like a row of data, since that row
    would be missing.

    Args:
        names: all columns of the file.
        pattern: the columns to choose.

    Example:
        >>> select(["age", "emb.0", "emb.1", "emb.2", "label"], "emb.1:emb.2,age")
        ['emb.1', 'emb.2', 'age']
        >>> select(["age", "emb.0", "emb.1", "emb.2", "label"], "emb,l*")
        ['emb.0', 'emb.1', 'emb.2', 'label']
        >>> select(["age", "label"], "lable")
        Traceback (most recent call last):
        ...
        ValueError: there is no column 'lable'; did you mean 'label'? Otherwise, the columns
        are age, label
    """
    places = {name: i for i, name in reversed(list(enumerate(names)))}
    if pattern in places:  # a name with a comma in it, on its own
        return [pattern]
    chosen: dict[str, None] = {}
    for item in pattern.split(","):
        if not item.strip():
            raise ValueError(
                f"Expected names of columns with commas between them but got {quote(pattern)}; "
                "write a,b,c, without an empty name"
            )
        chosen.update(dict.fromkeys(_expand(names, places, item)))
    return list(chosen)


def check_apart(sides: Mapping[str, Sequence[str]]) -> None:
    """Check that no column is on two sides.

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
                    f"column {quote(name)} is in both {seen[name]} and {side}; leave it out of one"
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
            if _look_like_data(names):
                raise ValueError(
                    f"column {end} was chosen by its number, but the names of the columns look "
                    f"like a row of data: {_list(names)}; put a line of names above it, or choose "
                    "by those names if they are names"
                )
            return int(end)
        return places.get(end)

    for i in (i for i, character in enumerate(item) if character == ":"):
        first, last = place(item[:i], 0), place(item[i + 1 :], len(names) - 1)
        if first is not None and last is not None:
            if first > last:
                raise ValueError(
                    f"the range {quote(item)} runs backwards; turn its ends round (the columns are "
                    f"{_list(names)})"
                )
            return names[first : last + 1]
    prefix = item + "."
    group = [n for n in names if n.startswith(prefix) and n[len(prefix) :].isdecimal()]
    if group and (not item.isdecimal() or group == [f"{prefix}{k}" for k in range(len(group))]):
        return group  # but not numbers such as 0.5 and 0.7, chosen by 0
    if "*" in item or "?" in item:
        special = {"*": ".*", "?": "."}
        shape = re.compile("".join(special.get(c) or re.escape(c) for c in item), re.DOTALL)
        matches = [name for name in names if shape.fullmatch(name)]
        if not matches:
            raise ValueError(f"no column matches {quote(item)}; the columns are {_list(names)}")
        return matches
    alone = None if ":" in item else place(item, 0)
    if alone is not None:
        return [names[alone]]
    raise ValueError(_unknown(names, item))


def _unknown(names: Sequence[str], item: str) -> str:
    close = difflib.get_close_matches(item[:200], names[:20_000], n=3)
    hint = f"did you mean {' or '.join(map(quote, close))}? Otherwise, " if close else ""
    numbered = list(names) == [str(i) for i in range(len(names))]  # the names of an array's columns
    if not (close or numbered) and _look_like_data(names):
        hint = "give the file a first line of names, if it has none: "
    return f"there is no column {quote(item)}; {hint}the columns are {_list(names)}"


def _look_like_data(names: Sequence[str]) -> bool:
    """Whether most names are numbers, as in a file without a line of names."""
    return sum(map(_is_number, names)) > len(names) / 2


def _is_number(name: str) -> bool:
    try:
        float(name)
    except ValueError:
        return False
    return True


def _list(names: Sequence[str], most: int = 8) -> str:
    shown = ", ".join(short(name) or "''" for name in names[:most])
    more = f", ... ({len(names)} in all)" if len(names) > most else ""
    return f"{shown}{more}" if names else "none"


# --- reading -------------------------------------------------------------------------------------


def read_names(path: str | os.PathLike[str]) -> list[str]:
    """The names of a file's columns, in its order, without reading the columns.

    An array of an NPZ file is one column of that name or, with more than one dimension, columns
    ``name.0``, ``name.1``, ...; the columns of an NPY file are numbered from 0.

    Args:
        path: of a file whose name ends in .csv, .tsv, .jsonl, .parquet, .arrow, .npz or .npy; the
            first three may be packed, .csv.gz for example.

    Example:
        >>> path = getfixture("tmp_path") / "data.npz"
        >>> np.savez(path, x=np.zeros((9, 3)), y=np.zeros(9))
        >>> read_names(path)
        ['x.0', 'x.1', 'x.2', 'y']
    """
    return open_file(path).names()


def read_table(
    path: str | os.PathLike[str],
    columns: Sequence[str] | None = None,
    *,
    discrete: Collection[str] = (),
    continuous: Collection[str] = (),
    most: int | None = None,
    block: int = 1,
    seed: int = 0,
) -> Table:
    """Read only the given columns of a file, and perhaps only some of the rows.

    Text in a column of numbers is an error; a column holds numbers if more than half of its values
    are numbers.

    Args:
        path: of a file whose name ends in .csv, .tsv, .jsonl, .parquet, .arrow, .npz or .npy; the
            first three may be packed, .csv.gz for example.
        columns: names of the columns, in the wanted order; all if left out.
        discrete: columns of labels, whatever their values.
        continuous: columns of numbers, in which any text is an error.
        most: rows to read, drawn at random where there are more; all if left out.
        block: rows that stay together.
        seed: of the rows.

    Returns:
        The columns; values may be missing, see `Table.complete`.

    Example:
        >>> path = getfixture("tmp_path") / "data.npz"
        >>> np.savez(path, x=np.zeros((9, 3)), y=np.array(["yes", "no", "no"] * 3))
        >>> table = read_table(path, ["x.0", "y"])
        >>> table.rows, table.columns["y"].labels
        (9, ('no', 'yes'))
    """
    file = open_file(path)
    names = file.names()
    wanted = list(names if columns is None else columns)
    if not wanted:
        raise ValueError(f"{file.source} has no columns; save some in it")
    counts = Counter(names)
    for name in wanted:
        if not counts[name]:
            raise ValueError(f"{file.source}: {_unknown(names, name)}")
        if counts[name] > 1:
            raise ValueError(
                f"{file.source} has {counts[name]} columns named {quote(name)}; "
                "give them different names"
            )
    sample = Sample(most, block, seed)
    table = Table(file.source, file.read(wanted, sample), sample.total)
    if len({len(column) for column in table.columns.values()}) > 1:
        raise ValueError(
            f"{file.source}: the arrays differ in their numbers of rows: "
            f"{_lengths(file, table)}; choose arrays of one length"
        )
    if table.rows < 2:
        rows = "no rows" if table.rows == 0 else "one row"
        raise ValueError(f"{file.source} holds {rows}; add some, at least two are needed")
    return Table(
        file.source,
        {
            name: _settle(file, name, column, name in discrete, name in continuous)
            for name, column in table.columns.items()
        },
        table.total,
    )


def _lengths(file: File, table: Table, most: int = 4) -> str:
    """The length of each array, with one of every length among the first."""
    arrays = file.arrays()
    lengths = {arrays.get(name, name): len(column) for name, column in table.columns.items()}
    first = {length: array for array, length in reversed(lengths.items())}
    order = sorted(lengths, key=lambda array: first[lengths[array]] != array)
    shown = ", ".join(f"{short(array)} has {lengths[array]}" for array in order[:most])
    return f"{shown}, ... ({len(order)} in all)" if len(order) > most else shown


# Numbers and dates that are read as text, and how to write them.
_SPELLINGS = (
    (
        re.compile(r"\s*[-+(]?\s*[$€£¥]?\s*[-+]?(\d{1,3}(,\d{3})+|\d+)(\.\d+)?\s*[%$€£¥]?\)?\s*"),
        "numbers",
        "write plain numbers such as 1234.5",
    ),
    (re.compile(r"\s*[-+]?\d+,\d+\s*"), "numbers", "write a decimal point instead of the comma"),
    (
        re.compile(
            r"\s*(\d{1,2}/\d{1,2}/(\d{4}|\d{2})|\d{1,2}([.-])\d{1,2}\3\d{4}|\d{4}/\d{1,2}/\d{1,2})"
            r"(\s.*)?"
        ),
        "dates",
        "write dates as 2020-12-31",
    ),
)


def _settle(file: File, name: str, column: Column, discrete: bool, continuous: bool) -> Column:
    """Decide whether a column of text holds labels, or numbers with a mistake among them."""
    if column.labels is None or discrete:
        return column
    numeric = np.array([bool(NUMBER.fullmatch(label)) for label in column.labels] + [True])
    alike = np.array([_spelling(label) is not None for label in column.labels] + [True]) | numeric
    there = ~column.missing
    bad = ~numeric[column.values]
    if continuous or 2 * (alike[column.values] & there).sum() > there.sum():
        if bad.any():
            row = int(bad.argmax())
            value = column.labels[column.values[row]]
            kind, advice = _spelling(value) or ("numbers", "")
            ways = [advice] if advice else []
            if continuous and not advice:
                ways.append("do not declare the column continuous")
            if not continuous:
                ways.append(f"take the column as labels (--discrete {short(name)})")
            raise ValueError(
                f"{file.source}: column {quote(name)} holds {kind} but row {row + 1} holds "
                f"{quote(value)}; {', or '.join(ways)}, or correct that row"
            )
        if continuous or not file.typed:
            numbers = np.array([float(label) for label in column.labels] + [math.nan])
            return Column(numbers[column.values])
    return column


def _spelling(text: str) -> tuple[str, str] | None:
    """What a text stands for that is no plain number, and how to write it."""
    for shape, kind, advice in _SPELLINGS:
        if shape.fullmatch(text) and not NUMBER.fullmatch(text):
            return kind, advice
    return None
