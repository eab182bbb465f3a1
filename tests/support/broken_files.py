"""Broken files: small whole ones, and what bit rot, bad tools and bad intentions make of them.

    python tests/support/broken_files.py FOLDER     write the corpus

Everything follows from the seed of the generator that is passed. `read_plainly` reads the same
bytes with other people's readers, so that a number from a damaged file can be compared.
"""

import csv
import gzip
import io
import json
import pickle
import re
import sys
import zipfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

ROWS = 80
TEXTS = (
    b'"', b"'", b"\x00", b"\x1b[2J", b"\n", b"\r", b",", b"\t", b";", b"\\", b"\xff", b"nan",
    b"\xef\xbb\xbf", b"NA", b"-inf", b"1e400", b"1e-400", b"1_000", b"0x1f", b"true", b'"a\n',
    b'""', b"{", b"[", b"\xe2\x80\xae", b"=1+1", b"<script>alert(1)</script>",
)  # fmt: skip
LIMITS = (0, 1, 0x7F, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF, 2**40, 2**62, 2**63 - 1)


# --- whole files ---------------------------------------------------------------------------------


@cache
def whole_files() -> dict[str, bytes]:
    """A file of each format by its name, with columns x, y and label; 0 and 1 in a NPY file."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=ROWS).round(6)
    y = (x + rng.normal(size=ROWS)).round(6)
    label = np.where(x + rng.normal(size=ROWS) > 0, "yes", "no")
    columns = {"x": x.tolist(), "y": y.tolist(), "label": label.tolist()}
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    quoted = ["x,y,label", *(f'{r["x"]},{r["y"]},"{r["label"]}, ""so"""' for r in rows)]
    text = "\n".join(["x,y,label", *(",".join(map(str, row.values())) for row in rows)]) + "\n"
    lines = "".join(json.dumps(row) + "\n" for row in rows).encode()
    table = pa.table(columns)
    found = {
        "data.csv": text.encode(),
        "quoted.csv": ("\r\n".join(quoted) + "\r\n").encode(),
        "data.tsv": text.replace(",", "\t").encode(),
        "data.csv.gz": gzip.compress(text.encode(), mtime=0),
        "data.jsonl": lines,
        "data.jsonl.gz": gzip.compress(lines, mtime=0),
    }
    for name, write in {
        "data.parquet": lambda stream: pq.write_table(table, stream),
        "plain.parquet": lambda stream: pq.write_table(table, stream, compression="none"),
        "data.arrow": lambda stream: _write_arrow(table, stream),
        "data.feather": lambda stream: _write_arrow(table, stream, "lz4"),
        "data.npz": lambda stream: np.savez(stream, x=x, y=y, label=label),
        "packed.npz": lambda stream: np.savez_compressed(stream, x=x, y=y, label=label),
        "data.npy": lambda stream: np.save(stream, np.column_stack([x, y])),
    }.items():
        stream = io.BytesIO()
        write(stream)
        found[name] = stream.getvalue()
    return found


def _write_arrow(table: pa.Table, stream: io.BytesIO, compression: str | None = None) -> None:
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_file(stream, table.schema, options=options) as file:
        file.write_table(table)


# --- damage --------------------------------------------------------------------------------------


def _span(data: bytes, rng: np.random.Generator, most: int = 64) -> tuple[int, int]:
    start = int(rng.integers(len(data) + 1))
    return start, min(len(data), start + int(rng.integers(1, most + 1)))


def flip(data: bytes, rng: np.random.Generator) -> bytes:
    """Change bits of a few bytes."""
    changed = bytearray(data)
    for _ in range(int(rng.integers(1, 9)) if data else 0):
        changed[int(rng.integers(len(changed)))] ^= 1 << int(rng.integers(8))
    return bytes(changed)


def cut(data: bytes, rng: np.random.Generator) -> bytes:
    """Keep the beginning, as a full disk does."""
    return data[: int(rng.integers(len(data) + 1))]


def drop(data: bytes, rng: np.random.Generator) -> bytes:
    """Leave out a part."""
    start, end = _span(data, rng)
    return data[:start] + data[end:]


def double(data: bytes, rng: np.random.Generator) -> bytes:
    """Repeat a part, or all."""
    start, end = (0, len(data)) if rng.random() < 0.2 else _span(data, rng, 400)
    return data[:end] + data[start:end] + data[end:]


def swap(data: bytes, rng: np.random.Generator) -> bytes:
    """Exchange two parts that follow each other."""
    start, end = _span(data, rng, 200)
    middle = (start + end) // 2
    return data[:start] + data[middle:end] + data[start:middle] + data[end:]


def splice(data: bytes, rng: np.random.Generator) -> bytes:
    """Go on with another file."""
    other = list(whole_files().values())[int(rng.integers(len(whole_files())))]
    return data[: int(rng.integers(len(data) + 1))] + other[int(rng.integers(len(other))) :]


def insert(data: bytes, rng: np.random.Generator) -> bytes:
    """Put quotes, escapes, zero bytes, odd numbers or markup in."""
    for _ in range(int(rng.integers(1, 4))):
        start = int(rng.integers(len(data) + 1))
        data = data[:start] + TEXTS[int(rng.integers(len(TEXTS)))] + data[start:]
    return data


def edit_head(data: bytes, rng: np.random.Generator) -> bytes:
    """Put such texts into the first bytes, in place of some."""
    start = int(rng.integers(min(len(data), 100) + 1))
    end = start + int(rng.integers(4))
    return data[:start] + TEXTS[int(rng.integers(len(TEXTS)))] + data[end:]


def zero(data: bytes, rng: np.random.Generator) -> bytes:
    """Overwrite a part with zero bytes, as a crash of the machine does."""
    start, end = _span(data, rng, 200)
    return data[:start] + bytes(end - start) + data[end:]


def claim(data: bytes, rng: np.random.Generator) -> bytes:
    """Claim other lengths: in a shape that is written out, or in four or eight bytes anywhere."""
    shapes = list(re.finditer(rb"\(\d+,[ \d]*\)", data))
    if shapes and rng.random() < 0.7:
        shape = shapes[int(rng.integers(len(shapes)))]
        sizes = [str(LIMITS[int(k)]) for k in rng.integers(len(LIMITS), size=rng.integers(1, 4))]
        new = f"({', '.join(sizes)},)".encode()
        end = shape.end() + (len(new) - len(shape[0]))  # over the spaces that follow
        return data[: shape.start()] + new + data[max(end, shape.start()) :]
    size = 4 if rng.random() < 0.5 else 8
    start = int(rng.integers(max(1, len(data) - size)))
    value = LIMITS[int(rng.integers(len(LIMITS)))] & (256**size - 1)
    return data[:start] + value.to_bytes(size, "little") + data[start + size :]


def lines(data: bytes, rng: np.random.Generator) -> bytes:
    """Leave lines out, repeat them, or join them."""
    found = data.splitlines(keepends=True)
    if not found:
        return data
    k = int(rng.integers(len(found)))
    way = int(rng.integers(3))
    if way == 2:
        found[k] = found[k].rstrip(b"\r\n")
    return b"".join([*found[:k], *found[k : k + 1] * (2 * (way == 1) or way // 2), *found[k + 1 :]])


DAMAGES: dict[str, Callable[[bytes, np.random.Generator], bytes]] = {
    f.__name__: f
    for f in (flip, cut, drop, double, swap, splice, insert, edit_head, zero, claim, lines)
}


def damaged(name: str, data: bytes, rng: np.random.Generator) -> tuple[bytes, str]:
    """A file after one to three damages, and their names.

    What is packed is damaged as it is, or inside and packed again, so that its checksums agree.
    """
    names = [list(DAMAGES)[int(k)] for k in rng.integers(len(DAMAGES), size=rng.integers(1, 4))]

    def damage(part: bytes) -> bytes:
        for each in names:
            part = DAMAGES[each](part, rng)
        return part

    what = "+".join(names)
    if rng.random() < 0.5:
        if name.endswith(".gz"):
            return gzip.compress(damage(gzip.decompress(data)), mtime=0), f"inside {what}"
        if name.endswith(".npz"):
            return _repack(data, damage, rng), f"inside {what}"
    return damage(data), what


def _repack(data: bytes, damage: Callable[[bytes], bytes], rng: np.random.Generator) -> bytes:
    """An NPZ file of which one array is damaged."""
    stream = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(stream, "w") as new:
        chosen = int(rng.integers(len(old.infolist())))
        for k, info in enumerate(old.infolist()):
            part = old.read(info)
            way = zipfile.ZIP_DEFLATED if "packed" in info.filename else info.compress_type
            new.writestr(info.filename, damage(part) if k == chosen else part, way)
    return stream.getvalue()


# --- pickles -------------------------------------------------------------------------------------


class Bomb:
    """Makes a file as soon as it is unpickled.

    Args:
        marker: the file.
    """

    def __init__(self, marker: Path):
        self.marker = str(marker)

    def __reduce__(self):
        return Path.touch, (Path(self.marker),)


def pickled_files(marker: Path) -> dict[str, bytes]:
    """Files that hold a pickle which makes the marker, by name."""
    bomb = Bomb(marker)
    array = np.array([bomb] * ROWS, object)
    head = b"\x93NUMPY\x01\x00"
    streams = {name: io.BytesIO() for name in ("objects.npy", "objects.npz", "packed.npz")}
    np.save(streams["objects.npy"], array, allow_pickle=True)
    np.savez(streams["objects.npz"], x=array, y=np.arange(ROWS), label=np.arange(ROWS))
    np.savez_compressed(streams["packed.npz"], x=np.arange(ROWS), y=array, label=array)
    found = {name: stream.getvalue() for name, stream in streams.items()}
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        data = pickle.dumps(bomb, protocol)
        for ending in (".csv", ".tsv", ".jsonl", ".parquet", ".arrow", ".npz", ".npy", ".pkl"):
            found[f"protocol-{protocol}{ending}"] = data
        for name, whole in whole_files().items():
            found[f"behind-{protocol}-{name}"] = whole + data
        found[f"head-{protocol}.npy"] = head + data
        found[f"list-{protocol}.jsonl"] = b'{"x": 1, "y": 2}\n' + data
    for name in ("x.npy", "y.npy", "x", "../x.npy", "x.pkl", "__reduce__.npy"):
        for whole in ("data.npz", "packed.npz"):
            stream = io.BytesIO(whole_files()[whole])
            with zipfile.ZipFile(stream, "a") as archive:
                if name not in archive.namelist():
                    archive.writestr(name, pickle.dumps(bomb))
            found[f"member-{name.replace('/', '_')}-{whole}"] = stream.getvalue()
    metadata = {b"pandas": pickle.dumps(bomb), b"ARROW:extension:name": b"arrow.py_extension_type",
                b"ARROW:extension:metadata": pickle.dumps(bomb)}  # fmt: skip
    field = pa.field("x", pa.float64(), metadata=metadata)
    schema = pa.schema([field, pa.field("y", pa.float64())], metadata=metadata)
    table = pa.table({"x": np.arange(9.0), "y": np.arange(9.0)}).cast(schema)
    for name, write in {"meta.parquet": pq.write_table, "meta.arrow": _write_arrow}.items():
        stream = io.BytesIO()
        write(table, stream)
        found[name] = stream.getvalue()
    return found


# --- the corpus ----------------------------------------------------------------------------------


@cache
def broken_files() -> dict[str, bytes]:
    """The corpus: each whole file after each of a fixed list of damages."""
    found = {}
    for name, data in whole_files().items():
        half = len(data) // 2
        changes = {
            "half": data[:half],
            "short": data[:-1],
            "tail": data[half:],
            "head": data[:12],
            "doubled": data + data,
            "zeros": data[:half] + bytes(len(data) - half),
            "bit": data[:half] + bytes([data[half] ^ 16]) + data[half + 1 :],
            "late-bit": data[:-9] + bytes([data[-9] ^ 1]) + data[-8:],
            "limit": data[:half] + b"\xff" * 8 + data[half + 8 :],
            "quote": data[:half] + b'"' + data[half:],
            "escape": b"\x1b[2J" + data,
            "packed": gzip.compress(data, mtime=0),
            "backwards": data[::-1],
        }
        found |= {f"{what}-{name}": each for what, each in changes.items()}
    return found


# --- what others read ----------------------------------------------------------------------------


def read_plainly(name: str, data: bytes) -> dict[str, list]:
    """The columns as other readers read them, without our rules; any exception if they do not."""
    if name.endswith(".gz"):
        name, data = name.removesuffix(".gz"), gzip.decompress(data)
    if name.endswith((".csv", ".tsv")):
        stream = io.StringIO(data.decode("utf-8-sig"), newline="")
        mark = "\t" if name.endswith(".tsv") else ","
        rows = [row for row in csv.reader(stream, delimiter=mark) if row]
        return dict(zip(rows[0], zip(*rows[1:], strict=True), strict=True))
    if name.endswith(".jsonl"):
        rows = [json.loads(line) for line in data.decode().split("\n") if line.strip()]
        return {key: [row.get(key) for row in rows] for row in rows for key in row}
    if name.endswith(".npz"):
        with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
            return {key: arrays[key].tolist() for key in arrays.files if arrays[key].ndim == 1}
    if name.endswith(".npy"):
        array = np.load(io.BytesIO(data), allow_pickle=False)
        return {str(k): column.tolist() for k, column in enumerate(array.reshape(len(array), -1).T)}
    stream = io.BytesIO(data)
    parquet = name.endswith(".parquet")
    table = pq.read_table(stream) if parquet else pa.ipc.open_file(stream).read_all()
    table.validate(full=True)  # else pyarrow may end the process
    return table.to_pydict()


def main() -> None:
    """Write the corpus into a folder."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in {**whole_files(), **broken_files()}.items():
        (folder / name).write_bytes(data)
    print(f"wrote {len(whole_files())} whole files and {len(broken_files())} broken ones")


if __name__ == "__main__":
    main()
