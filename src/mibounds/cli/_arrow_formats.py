"""CSV, TSV and Parquet files, read by pyarrow."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from mibounds.cli.formats import NUMBER, Column, File, FormatError, plain_numbers, quote, short

BLOCK = 1 << 24  # bytes that pyarrow parses at a time; no row may be longer


class CSV(File):
    """Columns separated by commas, semicolons or tabs, below a line of names."""

    title = "a CSV file"
    delimiters = ",;\t"  # the first that splits the header
    typed = False

    def _names(self) -> list[str]:
        return self._layout()[0]

    def _layout(self) -> tuple[list[str], str, int]:
        """Names, delimiter, and number of rows before the data."""
        if self.head.startswith((b"\xff\xfe", b"\xfe\xff")):
            raise FormatError(f"{self.source} is in UTF-16; save it as UTF-8")
        if b"\0" in self.head:
            raise FormatError(
                f"{self.source} holds zero bytes, so it is not text; "
                f"save it as {self.title} in UTF-8"
            )
        with self.path.open("rb") as stream:
            blank, line = _first_record(stream)
        if not line.strip():
            raise FormatError(
                f"{self.source} is empty, or begins with an empty line; "
                "put a line with the names of the columns first"
            )
        if b"\n" in line:  # inside quotes, which may never close
            self._check_quotes()
        if len(line) > BLOCK - 8:
            raise FormatError(
                f"{self.source} begins with a line of over {BLOCK >> 20} MiB; save it as Parquet"
            )
        try:
            header = line.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise FormatError(
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
            raise FormatError(
                f"{self.source} begins with numbers ({short(', '.join(names[:3]))}); "
                "put a line with the names of the columns above them"
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
                        block_size=BLOCK,
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
                data = parse(threads=False)  # again, since only this tells the row
        except pa.ArrowInvalid as error:
            ragged = re.search(r"Row #(\d+): Expected (\d+) columns, got (\d+)", str(error))
            if ragged:
                row, expected, got = map(int, ragged.groups())
                raise FormatError(
                    f"{self.source}: row {row - skip} has {got} values but the header has "
                    f"{expected} columns; correct that row"
                ) from None
            if "straddl" in str(error):
                raise FormatError(
                    f"{self.source} has a row of over {BLOCK >> 20} MiB; save it as Parquet"
                ) from None
            raise
        return {name: _from_arrow(self, name, data.column(places[name])) for name in names}

    def _check_quotes(self) -> None:
        """Check that every quote is closed: an open one would swallow the rows after it."""
        count = 0
        with self.path.open("rb") as stream:
            while chunk := stream.read(1 << 20):
                count += chunk.count(b'"')
        if count % 2:
            raise FormatError(
                f"{self.source} has an odd number of quotes; close the one that is open"
            )


class TSV(CSV):
    """The same, separated only by tabs."""

    title = "a TSV file"
    delimiters = "\t"


class Parquet(File):
    """An Apache Parquet file, of which only the chosen columns are read."""

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
                    raise FormatError(
                        f"{self.source}: column {quote(name)} holds {short(str(kind))}; "
                        "save one number or text per row"
                    )
            data = file.read(columns=list(names))
        return {name: _from_arrow(self, name, data.column(name)) for name in names}


def _first_record(stream: io.BufferedIOBase) -> tuple[int, bytes]:
    """The number of blank lines at the start, and the record after them, of at most `BLOCK` bytes.

    A record continues on the next line while a quote is open.
    """
    head = stream.read(BLOCK)
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
            raise FormatError(
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
        raise FormatError(
            f"{file.source}: column {quote(name)} holds {short(str(kind))}; save numbers or text"
        )
    return Column(plain_numbers(data.to_numpy()))
