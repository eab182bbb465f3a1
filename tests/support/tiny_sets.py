"""Small data sets in every published form, and a web that misbehaves."""

import bz2
import dataclasses
import gzip
import hashlib
import http.server
import io
import struct
import tarfile
from pathlib import Path

import numpy as np
import scipy.io

from experiments.data import DATASETS, Images, load, parsers

RANDOM = np.random.default_rng(0)


CANONICAL = [(name, k) for name, each in DATASETS.items() for k in range(len(each.forms))]


def idx(array):
    return b"\0\0\x08" + struct.pack(f">B{array.ndim}I", array.ndim, *array.shape) + array.tobytes()


def text_of(values):
    return " ".join(f"{v:.6f}" for v in values)


def tiny_mnist(images, labels):
    return idx(images), idx(labels.astype(np.uint8))


def tiny_libsvm(images, labels):
    lines = [
        " ".join([str(y + 1), *(f"{k + 1}:{v / 127.5 - 1:.6f}" for k, v in enumerate(x.ravel()))])
        for x, y in zip(images, labels, strict=True)
    ]
    return ("\n".join(lines) + "\n").encode()


def tiny_esl(images, labels):
    lines = [
        f"{y:.4f} {text_of(x.ravel() / 127.5 - 1)} \n" for x, y in zip(images, labels, strict=True)
    ]
    return "".join(lines).encode()


def tiny_mat(images, labels):
    file = io.BytesIO()
    y = np.where(labels == 0, 10, labels).astype(np.uint8)[:, None]
    scipy.io.savemat(file, {"X": images.transpose(1, 2, 3, 0), "y": y}, do_compression=True)
    return file.getvalue()


def tiny_cifar(images, labels):
    return b"".join(
        bytes([y]) + x.transpose(2, 0, 1).tobytes() for x, y in zip(images, labels, strict=True)
    )


def tiny_stl(images, labels):
    return images.transpose(0, 3, 2, 1).tobytes(), (labels + 1).astype(np.uint8).tobytes()


WRITERS = {
    parsers.parse_mnist: tiny_mnist,
    parsers.parse_libsvm: tiny_libsvm,
    parsers.parse_esl: tiny_esl,
    parsers.parse_mat: tiny_mat,
    parsers.parse_cifar: tiny_cifar,
    parsers.parse_stl: tiny_stl,
}


def tar(members, mode="w:gz"):
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode=mode) as archive:
        for name, data in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return file.getvalue()


def pack(file, contents):
    """A file with contents, packed as its name says."""
    if ".tar" in file.name:
        return tar({"./": b"", "README": b"more"} | contents)
    (data,) = contents.values()
    packers = {".gz": gzip.compress, ".bz2": bz2.compress}
    return packers.get(Path(file.name).suffix, bytes)(data)


def checksum(data, algorithm="sha256"):
    return f"{algorithm}:{hashlib.new(algorithm, data).hexdigest()}"


def numbers(shape, n):
    """Images and labels, all labels among them if n is ten or more."""
    return RANDOM.integers(0, 256, (n, *shape), np.uint8), np.arange(n) % 10


@dataclasses.dataclass
class Tiny:
    """A data set of a form, in small: what it holds, its contents, its files."""

    form: object
    pairs: dict
    contents: dict
    files: dict


def make_tiny(name, k=0, sizes=(10, 4)):
    form = DATASETS[name].forms[k]
    writer = WRITERS[form.parse]
    pairs, contents = {}, {}
    for (split, paths), n in zip(form.splits.items(), sizes, strict=True):
        images, labels = pairs[split] = numbers(DATASETS[name].shapes[0], n)
        if form.parse is parsers.parse_cifar:  # several files of the same kind
            parts = np.array_split(np.arange(n), len(paths))
            contents |= {p: writer(images[i], labels[i]) for p, i in zip(paths, parts, strict=True)}
        else:
            written = writer(images, labels)
            written = written if isinstance(written, tuple) else (written,)
            contents |= dict(zip(paths, written, strict=True))
    files = {}
    fields = []
    for file in form.files:
        inside = {content.path: contents[content.path] for content in file.contents}
        data = files[file.name] = pack(file, inside)
        fields.append(
            dataclasses.replace(
                file,
                hash=file.hash and checksum(data, file.hash.partition(":")[0]),
                size=file.size and len(data),
                contents=tuple(
                    dataclasses.replace(c, hash=c.hash and checksum(contents[c.path]))
                    for c in file.contents
                ),
            )
        )
    return Tiny(dataclasses.replace(form, files=tuple(fields)), pairs, contents, files)


def write(folder, files):
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def assert_holds(name, made, origin, **options):
    for split, (images, labels) in made.pairs.items():
        got = load(name, split, **options)
        assert got.images.dtype == np.uint8
        assert got.labels.dtype == np.int64
        np.testing.assert_array_equal(got.images, images)
        np.testing.assert_array_equal(got.labels, labels)
        assert got.origin == origin


def names_in(cache):
    """What is in the cache but locks, which stay."""
    paths = cache.rglob("*") if cache.exists() else ()
    return sorted(str(p.relative_to(cache)) for p in paths if p.is_file() and p.suffix != ".lock")


def save_plain(folder, name, test=True, n=3, **changes):
    images, labels = numbers(DATASETS[name].shapes[-1], n)
    arrays = {"train_images": images, "train_labels": labels.astype(np.uint8)}
    if test:
        arrays |= {"test_images": images[:2], "test_labels": labels[:2].astype(np.uint8)}
    arrays = {key: value for key, value in (arrays | changes).items() if value is not None}
    np.savez(folder / f"{name}.npz", **arrays)
    return Images(images, labels, "")


def damage_arrays(path):
    with np.load(path) as arrays:
        kept = dict(arrays)
    np.savez(path, **kept | {"labels_train": np.zeros(2)})


class Server(http.server.ThreadingHTTPServer):
    """Serves `files`, each in the way that `ways` says; `asked` remembers path and range."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files, self.ways, self.asked = {}, {}, []
        self.url = f"http://127.0.0.1:{self.server_port}"


class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_GET(self):
        name = self.path.removeprefix("/")
        span = self.headers.get("Range", "")
        self.server.asked.append((name, span))
        ways = self.server.ways.get(name, [])
        way = ways.pop(0) if ways else "plain"
        if name not in self.server.files or way == "missing":
            self.send_error(404)
            return
        data = self.server.files[name]
        start = int(span[6:-1]) if span and way != "whole" else 0
        if start >= len(data):
            self.send_error(416)
            return
        if way == "wrong":
            data = bytes(len(data))
        self.send_response(206 if start else 200)
        if start:
            at = 0 if way == "elsewhere" else start
            self.send_header("Content-Range", f"bytes {at}-{len(data) - 1}/{len(data)}")
        rest = data[start:]
        length = len(rest) + {"longer": 10, "shorter": -10}.get(way, 0)
        if way not in ("no length", "breaks without length", "more"):
            self.send_header("Content-Length", str(length))
        self.end_headers()
        half = len(rest) // 2
        if way in ("breaks", "breaks without length"):
            rest = rest[:half]
        self.wfile.write(rest + bytes(10) if way == "more" else rest)
        self.close_connection = True
