"""NPZ and NPY files, read by numpy without pickle."""

from __future__ import annotations

import contextlib
import io
import math
import zipfile
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, NoReturn

import numpy as np

from mibounds.cli.formats import Column, File, FormatError, Sample, plain_numbers, quote

PASS = 100_000  # rows that are looked at together
BUFFER = 1 << 24  # bytes of an NPZ file's array that are unpacked together
MOST_COLUMNS = 1_000_000  # each has a name
DEFLATE = 1032  # bytes that one packed byte can hold at most


class Array(NamedTuple):
    """What the header of an array says.

    Attributes:
        shape: one sample per row.
        dtype: of its values.
        by_columns: whether the first values are those of the first column.
    """

    shape: tuple[int, ...]
    dtype: np.dtype
    by_columns: bool

    @property
    def width(self) -> int:
        """Values per row."""
        return math.prod(self.shape[1:])

    @property
    def size(self) -> int:
        """Bytes."""
        return math.prod(self.shape) * self.dtype.itemsize


class NPZ(File):
    """A zip file of arrays; rows of several values become the columns name.0, name.1, ..."""

    title = "an NPZ file"
    magic = b"PK"

    def _names(self) -> list[str]:
        return [name for name, _, _ in self._places()]

    def arrays(self) -> dict[str, str]:
        return {name: array.removesuffix(".npy") for name, array, _ in self._places()}

    def _places(self) -> list[tuple[str, str, int]]:
        """For each column its name, its array, and its place in a row of that array."""
        places: list[tuple[str, str, int]] = []
        with zipfile.ZipFile(self.path) as archive:
            for info in archive.infolist():
                if info.filename.endswith(".npy"):
                    name = info.filename.removesuffix(".npy")
                    with self._open(archive, info) as (array, _):
                        names = _name_columns(self, name, array, len(places))
                    places += ((name, info.filename, k) for k, name in enumerate(names))
        if not places:
            raise FormatError(f"{self.source} holds no arrays; write some with numpy.savez")
        return places

    def _read(self, names: Sequence[str], sample: Sample) -> dict[str, Column]:
        places = {name: (array, k) for name, array, k in self._places()}
        wanted: dict[str, list[str]] = {}
        for name in names:
            wanted.setdefault(places[name][0], []).append(name)
        rows: np.ndarray | None = None
        columns: dict[str, Column] = {}
        with zipfile.ZipFile(self.path) as archive:
            for member, own in wanted.items():
                with self._open(archive, archive.getinfo(member)) as (array, stream):
                    _check_array(self, member.removesuffix(".npy"), array)
                    n = array.shape[0]
                    if rows is None:
                        rows = _choose(sample, n)
                    # Arrays of other lengths stay whole: they are refused.
                    some = rows if sample.total == n > len(rows) else None
                    values = _unpack(self, stream, array, [places[name][1] for name in own], some)
                for name, column in zip(own, values, strict=True):
                    columns[name] = _from_numpy(self, name, column)
        return {name: columns[name] for name in names}

    @contextlib.contextmanager
    def _open(self, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Iterator[tuple[Array, Any]]:
        """An array of the file: what its header says, and its values from there on.

        The size of what is unpacked is checked against that of what is packed: both are claims,
        but only the second cannot be more than the file.
        """
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise FormatError(
                f"{self.source} holds an array that numpy has not packed; write it with numpy.savez"
            )
        packed = min(info.compress_size, self.path.stat().st_size)
        most = packed * (DEFLATE if info.compress_type == zipfile.ZIP_DEFLATED else 1)
        with archive.open(info) as stream:
            array, start = _header(self, stream, min(info.file_size, most))
            stream.seek(start)
            yield array, stream


class NPY(File):
    """One array, whose columns are numbered from 0."""

    title = "an NPY file"
    magic = b"\x93NUMPY"

    def _array(self) -> Array:
        with self.path.open("rb") as stream:
            return _header(self, stream, self.path.stat().st_size)[0]

    def _names(self) -> list[str]:
        names = _name_columns(self, "", self._array())
        return [name.removeprefix(".") or "0" for name in names]

    def _read(self, names: Sequence[str], sample: Sample) -> dict[str, Column]:
        _check_array(self, "", self._array())
        array = np.load(self.path, mmap_mode="r", allow_pickle=False)
        array = array.reshape(len(array), -1)
        rows = _choose(sample, len(array))
        if len(rows) == len(array):
            return {name: _from_numpy(self, name, np.array(array[:, int(name)])) for name in names}
        places = [int(name) for name in names]
        parts = []
        for start in range(0, len(array), PASS):  # pages of the file are let go of on the way
            some = rows[(rows >= start) & (rows < start + PASS)]
            parts.append(array[some[:, None], places])
        values = np.concatenate(parts)
        return {name: _from_numpy(self, name, values[:, k]) for k, name in enumerate(names)}


def _unpack(
    file: File,
    stream: Any,
    array: Array,
    places: Sequence[int],
    rows: np.ndarray | None,
) -> Sequence[np.ndarray]:
    """Some columns of an array, and perhaps only some of its rows, in one pass over its values."""

    def read(shape: tuple[int, ...]) -> np.ndarray:
        size = math.prod(shape) * array.dtype.itemsize
        data = stream.read(size)
        if len(data) < size:
            _refuse_cut(file, array)
        return np.frombuffer(data, array.dtype).reshape(shape)

    n, width = array.shape[0], array.width
    if array.by_columns and len(array.shape) == 2:
        wanted = set(places)
        columns = {}
        for k in range(max(wanted) + 1):
            column = read((n,))
            if k in wanted:
                columns[k] = column if rows is None else column[rows]
        return [columns[k] for k in places]
    if array.by_columns:
        whole = read(array.shape[::-1]).T.reshape(n, width)
        return list((whole if rows is None else whole[rows])[:, places].T)
    each = max(1, BUFFER // (width * array.dtype.itemsize))
    parts = []
    for start in range(0, n, each):
        part = read((min(each, n - start), width))
        if rows is not None:
            part = part[rows[(rows >= start) & (rows < start + each)] - start]
        parts.append(part[:, places])
    return list(np.concatenate(parts).T)


def _choose(sample: Sample, n: int) -> np.ndarray:
    """Rows to keep of n."""
    kept = np.empty(0, int)
    for start in range(0, n, PASS):
        kept = np.concatenate([kept, sample.keep(np.arange(start, min(start + PASS, n)))])
        if sample.full:
            kept = kept[sample.last()]
    return kept[sample.last()]


def _header(file: File, stream: Any, size: int) -> tuple[Array, int]:
    """What the header of an array says, after checking that the file holds all its values.

    Args:
        file: for messages.
        stream: the header and the values.
        size: bytes of both, at most.

    Returns:
        What it says, and where the values begin.
    """
    head = io.BytesIO(stream.read(1 << 16))  # of a longer one, numpy would read all
    version = np.lib.format.read_magic(head)
    if version == (1, 0):
        shape, by_columns, dtype = np.lib.format.read_array_header_1_0(head)
    elif version == (2, 0):
        shape, by_columns, dtype = np.lib.format.read_array_header_2_0(head)
    else:
        raise FormatError(
            f"{file.source} holds an array with named fields; save it as plain numbers"
        )
    array = Array(shape, dtype, by_columns)
    if min(shape, default=0) < 0 or (not dtype.hasobject and array.size > size - head.tell()):
        _refuse_cut(file, array)
    return array, head.tell()


def _refuse_cut(file: File, array: Array) -> NoReturn:
    raise FormatError(
        f"{file.source} is cut off: an array of shape {array.shape} is incomplete; write it again"
    )


def _name_columns(file: File, name: str, array: Array, others: int = 0) -> list[str]:
    """Names for the columns of an array, or one where it is a single one, or cannot be read."""
    if len(array.shape) < 2 or array.dtype.hasobject or array.size == 0:
        return [name]
    if array.width + others > MOST_COLUMNS:
        raise FormatError(
            f"{file.source} holds over {MOST_COLUMNS} columns, of which each would get a name; "
            "save samples as rows, and fewer columns"
        )
    return [f"{name}.{k}" for k in range(array.width)]


def _check_array(file: File, name: str, array: Array) -> None:
    """Check that an array holds numbers or text, with one sample per row."""
    shape, dtype = array.shape, array.dtype
    what = f"{file.source}: {quote(name) if name else 'the array'}"
    if dtype.hasobject:
        raise FormatError(
            f"{what} holds Python objects, which are not read since unpickling could run any code; "
            "save plain numbers or text"
        )
    if dtype.kind not in "biufmMUS":
        kind = {"c": "complex numbers", "V": "named fields or raw bytes"}.get(dtype.kind, dtype)
        raise FormatError(f"{what} holds {kind}; save real numbers or text")
    if not shape:
        raise FormatError(f"{what} is a single value; save one sample per row")
    if array.size == 0:
        raise FormatError(
            f"{what} has shape {shape}, which holds no values; save one sample per row"
        )


def _from_numpy(file: File, name: str, values: np.ndarray) -> Column:
    kind = values.dtype.kind
    if kind == "S":
        try:
            values = np.char.decode(values, "utf-8")
        except UnicodeDecodeError:
            raise FormatError(
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
    return Column(plain_numbers(values))
