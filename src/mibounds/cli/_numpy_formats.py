"""NPZ and NPY files, read by numpy without pickle."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Sequence
from typing import Any

import numpy as np

from mibounds.cli.formats import Column, File, FormatError, Sample, plain_numbers, quote

PASS = 100_000  # rows of an NPY file that are looked at together


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
                    array = info.filename.removesuffix(".npy")
                    with archive.open(info) as stream:
                        width = _width(self, array, _header(self, stream, info.file_size))
                    names = [array] if width is None else [f"{array}.{k}" for k in range(width)]
                    places += ((name, info.filename, k) for k, name in enumerate(names))
        if not places:
            raise FormatError(f"{self.source} holds no arrays; write some with numpy.savez")
        return places

    def _read(self, names: Sequence[str], sample: Sample) -> dict[str, Column]:
        places = {name: (array, k) for name, array, k in self._places()}
        rows: np.ndarray | None = None
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
                    array = array.reshape(len(array), -1)
                    if rows is None:
                        rows = _choose(sample, len(array))
                    # Arrays of other lengths stay whole: they are refused.
                    some = sample.total == len(array) > len(rows)
                    arrays[member] = array[rows] if some else array
                columns[name] = _from_numpy(self, name, arrays[member][:, k])
        return columns


class NPY(File):
    """One array, whose columns are numbered from 0."""

    title = "an NPY file"
    magic = b"\x93NUMPY"

    def _shape(self) -> tuple[tuple[int, ...], np.dtype]:
        with self.path.open("rb") as stream:
            return _header(self, stream, self.path.stat().st_size)

    def _names(self) -> list[str]:
        return [str(k) for k in range(_width(self, "the array", self._shape()) or 1)]

    def _read(self, names: Sequence[str], sample: Sample) -> dict[str, Column]:
        _check_array(self, "the array", *self._shape())
        array = np.load(self.path, mmap_mode="r", allow_pickle=False)
        array = array.reshape(len(array), -1)
        rows = _choose(sample, len(array))
        if len(rows) == len(array):
            return {name: _from_numpy(self, name, np.array(array[:, int(name)])) for name in names}
        places = [int(name) for name in names]
        parts = []
        for start in range(0, len(array), PASS):  # pages of the file are let go of on the way
            some = rows[(rows >= start) & (rows < start + PASS)]
            parts.append(np.array(array[some][:, places]))
        values = np.concatenate(parts)
        return {name: _from_numpy(self, name, values[:, k]) for k, name in enumerate(names)}


def _choose(sample: Sample, n: int) -> np.ndarray:
    """Rows to keep of n."""
    kept = np.empty(0, int)
    for start in range(0, n, PASS):
        kept = np.concatenate([kept, sample.keep(np.arange(start, min(start + PASS, n)))])
        if sample.full:
            kept = kept[sample.last()]
    return kept[sample.last()]


def _header(file: File, stream: Any, size: int) -> tuple[tuple[int, ...], np.dtype]:
    """Shape and dtype of an array, after checking that the file holds all its values."""
    version = np.lib.format.read_magic(stream)
    if version == (1, 0):
        shape, _, dtype = np.lib.format.read_array_header_1_0(stream)
    elif version == (2, 0):
        shape, _, dtype = np.lib.format.read_array_header_2_0(stream)
    else:
        raise FormatError(
            f"{file.source} holds an array with named fields; save it as plain numbers"
        )
    if not dtype.hasobject and math.prod(shape) * dtype.itemsize > size - stream.tell():
        raise FormatError(
            f"{file.source} is cut off: an array of shape {shape} is incomplete; write it again"
        )
    return shape, dtype


def _width(file: File, name: str, header: tuple[tuple[int, ...], np.dtype]) -> int | None:
    """Number of columns of an array; None if it is a single one, or cannot be read anyway."""
    shape, dtype = header
    if len(shape) < 2 or dtype.hasobject or math.prod(shape) * dtype.itemsize == 0:
        return None
    return math.prod(shape[1:])


def _check_array(file: File, name: str, shape: tuple[int, ...], dtype: np.dtype) -> None:
    """Check that an array holds numbers or text, with one sample per row."""
    what = f"{file.source}: {name if name == 'the array' else quote(name)}"
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
    if math.prod(shape) * dtype.itemsize == 0:
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
