"""CSV, TSV, JSON lines, Parquet and Arrow files, read by pyarrow."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from mibounds.cli._quotes import find_cells
from mibounds.cli.formats import (
    NUMBER,
    Column,
    File,
    FormatError,
    Sample,
    plain_numbers,
    quote,
    short,
)

BLOCK = 1 << 24  # bytes that pyarrow parses at a time; no row may be longer
SMALL = 1 << 28  # bytes of a text file that is read as a whole
BATCH = 1 << 16  # rows of a batch
VIEWS = {"string_view": "large_string", "binary_view": "large_binary"}  # text, in its usual form


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
        with self.stream() as stream:
            blank, line = _first_record(stream, self.delimiters.encode())
        if not line.strip():
            raise FormatError(
                f"{self.source} is empty, or begins with an empty line; "
                "put a line with the names of the columns first"
            )
        if b"\n" in line:  # inside quotes, which may never close
            self._check_quotes(self.delimiters)
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

    def _read(self, names: Sequence[str], sample: Sample) -> dict[str, Column]:
        pa = _import_arrow()
        header, delimiter, skip = self._layout()
        places = {name: str(i) for i, name in enumerate(header)}
        wanted = [places[name] for name in names]
        self._check_quotes(delimiter, len(header))

        def parse(read: Any, stream: Any, threads: bool, fresh: bool = True, **types: Any) -> Any:
            columns = [str(i) for i in range(len(header))] if fresh else wanted
            return read(
                stream,
                pa.csv.ReadOptions(
                    use_threads=threads,
                    block_size=BLOCK,
                    column_names=columns,
                    skip_rows_after_names=skip if fresh else 0,
                ),
                pa.csv.ParseOptions(delimiter=delimiter if fresh else ",", newlines_in_values=True),
                pa.csv.ConvertOptions(
                    include_columns=wanted,
                    strings_can_be_null=True,
                    quoted_strings_can_be_null=False,
                    **types,
                ),
            )

        def parse_all() -> Any:
            with self.stream() as stream:
                try:
                    data = parse(pa.csv.read_csv, stream, True)
                except pa.ArrowInvalid as error:
                    if "columns, got" not in str(error):
                        raise
                    stream.seek(0)
                    data = parse(pa.csv.read_csv, stream, False)  # only this tells the row
            return _keep(data.to_batches(), data.schema, sample)

        def parse_some() -> Any:
            """A part of the rows as text, which is then read as if it were the file."""
            text = dict.fromkeys(wanted, pa.string())
            with self.stream() as stream:
                reader = parse(pa.csv.open_csv, stream, False, column_types=text)
                data = _keep(reader, reader.schema, sample)
            buffer = io.BytesIO()
            # Of what is written, only missing values are not in quotes, and so stay missing.
            style = pa.csv.WriteOptions(include_header=False, quoting_style="all_valid")
            pa.csv.write_csv(data, buffer, style)
            buffer.seek(0)
            return parse(pa.csv.read_csv, buffer, True, fresh=False)

        try:
            packed = self.path.suffix.lower() == ".gz"  # its size says little about its contents
            whole = sample.most is None or (not packed and self.path.stat().st_size <= SMALL)
            data = parse_all() if whole else parse_some()
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

    def _check_quotes(self, delimiters: str, columns: int = 0) -> None:
        """Check that quotes are closed where they should be: a stray one swallows rows after it.

        Args:
            delimiters: any of which ends a cell.
            columns: of a row; 0 if that is not known yet.
        """
        text, line = b"", 1
        with self.stream() as stream:
            while part := stream.read(BLOCK):
                text += part
                more = len(part) == BLOCK
                cells = find_cells(text, delimiters.encode())

                def line_of(place: int, text: bytes = text, line: int = line) -> int:
                    return line + _count_lines(text[:place])

                swallowing = cells.swallowing(text, delimiters.encode(), columns)
                if cells.bad >= 0:
                    raise FormatError(
                        f"{self.source}: the quote in line {line_of(int(cells.starts[-1]))} is "
                        f"closed in line {line_of(cells.bad)} before more text; "
                        "double quotes inside of a cell, and remove stray ones"
                    )
                if swallowing is not None:
                    first, last = (int(each[swallowing]) for each in (cells.starts, cells.ends))
                    raise FormatError(
                        f"{self.source}: the quotes in lines {line_of(first)} and {line_of(last)} "
                        "take the rows between them for one cell; "
                        "remove them, or close the first in its own line"
                    )
                if not more and len(cells.ends) and cells.ends[-1] == len(text):
                    raise FormatError(
                        f"{self.source}: the quote in line {line_of(int(cells.starts[-1]))} is "
                        "never closed; close it, or remove it"
                    )
                if more and not len(cells.line_ends):
                    raise FormatError(
                        f"{self.source} has a row of over {BLOCK >> 20} MiB; save it as Parquet"
                    )
                end = int(cells.line_ends[-1]) + 1 if more else len(text)
                line, text = line_of(end), text[end:]
        if columns and line == 1:  # pyarrow takes no text without an end of line
            raise FormatError(f"{self.source} holds no rows; add some, at least two are needed")


class TSV(CSV):
    """The same, separated only by tabs."""

    title = "a TSV file"
    delimiters = "\t"


class JSONLines(File):
    """One object per line, whose keys are the names of the columns."""

    title = "a file of JSON lines"

    def _table(self) -> Any:
        pa = _import_arrow()
        with self.stream() as stream:
            return pa.json.read_json(stream, pa.json.ReadOptions(block_size=BLOCK))

    def _names(self) -> list[str]:
        return self._table().column_names

    def _read(self, names: Sequence[str], sample: Sample) -> dict[str, Column]:
        data = self._table()
        _refuse_nested(self, data.schema, names)
        data = data.select(list(names))
        data = _keep(data.to_batches(), data.schema, sample)
        return {name: _from_arrow(self, name, data.column(name)) for name in names}


class Parquet(File):
    """An Apache Parquet file, of which only the chosen columns are read."""

    title = "a Parquet file"
    magic = b"PAR1"

    def _names(self) -> list[str]:
        pa = _import_arrow()
        with self.path.open("rb") as stream:
            return list(pa.parquet.ParquetFile(stream).schema_arrow.names)

    def _read(self, names: Sequence[str], sample: Sample) -> dict[str, Column]:
        pa = _import_arrow()
        with self.path.open("rb") as stream:
            file = pa.parquet.ParquetFile(stream, buffer_size=1 << 20, pre_buffer=False)
            _refuse_nested(self, file.schema_arrow, names)
            if sample.most is None or file.metadata.num_rows <= sample.most:
                data = file.read(columns=list(names))
                sample.draw(len(data))
            else:
                batches = file.iter_batches(BATCH, columns=list(names), use_threads=False)
                kinds = [file.schema_arrow.field(name) for name in names]
                data = _keep((b.select(list(names)) for b in batches), pa.schema(kinds), sample)
        return {name: _from_arrow(self, name, data.column(name)) for name in names}


class Arrow(File):
    """An Apache Arrow (IPC, Feather 2) file, of which only the chosen columns are read."""

    title = "an Arrow file"
    magic = b"ARROW1"

    def _names(self) -> list[str]:
        pa = _import_arrow()
        with pa.memory_map(str(self.path)) as stream:
            return list(pa.ipc.open_file(stream).schema.names)

    def _read(self, names: Sequence[str], sample: Sample) -> dict[str, Column]:
        pa = _import_arrow()
        with pa.memory_map(str(self.path)) as stream:
            whole = pa.ipc.open_file(stream).schema
            _refuse_nested(self, whole, names)
            places = [whole.get_field_index(name) for name in names]
            only = pa.ipc.IpcReadOptions(included_fields=places, use_threads=False)
            file = pa.ipc.open_file(stream, options=only)
            data = _keep(_valid_batches(file), file.schema, sample)
            return {name: _from_arrow(self, name, data.column(name)) for name in names}


def _valid_batches(file: Any) -> Iterator[Any]:
    """The batches of an Arrow file, checked: pyarrow follows whatever places they claim."""
    for i in range(file.num_record_batches):
        batch = file.get_batch(i)
        batch.validate(full=True)
        yield batch


def _keep(batches: Iterable[Any], schema: Any, sample: Sample) -> Any:
    """A table of those rows that the sample keeps."""
    pa = _import_arrow()
    parts = [_without_views(pa.Table.from_batches([], schema))]
    for batch in batches:
        rows = sample.draw(len(batch))
        part = _without_views(pa.Table.from_batches([batch]))
        parts.append(part if rows.all() else part.filter(rows))
        if sample.full:
            parts = [pa.concat_tables(parts).take(sample.last())]
    table = pa.concat_tables(parts)
    return table if sample.most is None else table.take(sample.last())


def _without_views(table: Any) -> Any:
    """The same with text in its usual form, since pyarrow takes no rows of views."""
    for k, field in enumerate(table.schema):
        if str(field.type) in VIEWS:
            table = table.set_column(k, field.name, table[k].cast(VIEWS[str(field.type)]))
    return table


def _refuse_nested(file: File, schema: Any, names: Sequence[str]) -> None:
    pa = _import_arrow()
    for name in names:
        kind = schema.field(name).type
        if pa.types.is_nested(kind):
            raise FormatError(
                f"{file.source}: column {quote(name)} holds {short(str(kind))}; "
                "save one number or text per row"
            )


def _first_record(stream: io.BufferedIOBase, delimiters: bytes) -> tuple[int, bytes]:
    """The number of blank lines at the start, and the record after them, of at most `BLOCK` bytes.

    A record goes on in the next line while a quote is open.
    """
    head = stream.read(BLOCK)
    body = head.removeprefix(b"\xef\xbb\xbf").lstrip(b"\r\n")
    blank = _count_lines(head[: len(head) - len(body)])
    for size in (1 << 16, len(body)):
        line_ends = find_cells(body[:size], delimiters).line_ends
        if len(line_ends):
            return blank, body[: line_ends[0]]
    return blank, body.rstrip(b"\r\n")


def _count_lines(text: bytes) -> int:
    return text.count(b"\n") or text.count(b"\r")


def _import_arrow() -> Any:
    try:
        import pyarrow
        import pyarrow.csv
        import pyarrow.ipc
        import pyarrow.json
        import pyarrow.parquet
    except ImportError:
        raise ImportError(
            "CSV, TSV, JSON, Parquet and Arrow files are read by pyarrow; "
            "install it with: pip install 'mibounds[tables]'"
        ) from None
    return pyarrow


def _from_arrow(file: File, name: str, data: Any) -> Column:
    pa = _import_arrow()
    kind = data.type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
        data = data.cast(kind)
    if str(kind) in VIEWS:
        data = data.cast(VIEWS[str(kind)])
        kind = data.type
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
    if pa.types.is_temporal(kind) and not pa.types.is_interval(kind):
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
