"""Data sets: every format, made tiny on the spot; folders, caches, and a web that misbehaves."""

import bz2
import dataclasses
import errno
import gzip
import hashlib
import http.server
import io
import os
import pickle
import struct
import sys
import tarfile
import threading
from pathlib import Path

import numpy as np
import pytest

from experiments.data import (
    DATASETS,
    Images,
    Unavailable,
    archives,
    blend,
    caches,
    downloads,
    folders,
    load,
    loaders,
    mnist_m,
    parsers,
    reduce_by_means,
    reduce_by_picking,
    sources,
)

pytest.importorskip("pooch", reason="data are fetched by pooch")
pytest.importorskip("scipy", reason="MAT files are read by scipy")
pytest.importorskip("PIL", reason="photographs are read by Pillow")
import scipy.io
from PIL import Image

pytestmark = pytest.mark.usefixtures("cache")
REAL = os.environ.get("MIBOUNDS_DATA")
RANDOM = np.random.default_rng(0)
CANONICAL = [(name, k) for name, each in DATASETS.items() for k in range(len(each.forms))]


# --- every format, tiny --------------------------------------------------------------------------


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


@pytest.fixture
def tiny(monkeypatch):
    """Puts small forms of a data set in the place of the real ones."""

    def put(name, *ks, server=None):
        made = [make_tiny(name, k) for k in ks or range(len(DATASETS[name].forms))]
        forms = tuple(each.form for each in made)
        if server:
            forms = tuple(
                dataclasses.replace(
                    form,
                    files=tuple(
                        dataclasses.replace(file, urls=(f"{server.url}/{file.name}",))
                        for file in form.files
                    ),
                )
                for form in forms
            )
            server.files |= {n: data for each in made for n, data in each.files.items()}
        new = dataclasses.replace(DATASETS[name], forms=forms)
        monkeypatch.setitem(DATASETS, name, new)
        return made[0]

    return put


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "data"
    path.mkdir()
    return path


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


@pytest.mark.parametrize(("name", "k"), CANONICAL)
def test_canonical_files_of_a_folder(name, k, tiny, folder, cache):
    made = tiny(name, k)
    write(folder, made.files)
    assert_holds(name, made, f"canonical files ({made.form.title})", folder=folder)
    assert names_in(cache) == [f"{name}.npz"]


@pytest.mark.parametrize("name", ["mnist", "cifar10", "stl10"])
@pytest.mark.parametrize("place", ["", "{name}", "{NAME}/raw"])
def test_files_may_be_unpacked_and_in_a_folder_of_their_own(name, place, tiny, folder):
    made = tiny(name)
    place = place.format(name=name, NAME=name.upper())
    write(folder / place, made.contents)
    assert_holds(name, made, f"canonical files ({made.form.title})", folder=folder)


@pytest.mark.parametrize("name", ["mnist", "usps", "cifar10"])
def test_files_may_be_packed_anew(name, tiny, folder):
    made = tiny(name, 0)
    for file in made.form.files:
        inside = {content.path: made.contents[content.path] for content in file.contents}
        data = tar(inside) if ".tar" in file.name else gzip.compress(*inside.values(), 1, mtime=9)
        assert data != made.files[file.name]
        write(folder, {file.name: data})
    assert_holds(name, made, f"canonical files ({made.form.title})", folder=folder)


def test_other_contents_are_refused(tiny, folder, cache):
    made = tiny("mnist")
    write(folder, made.files)
    images = idx(numbers((28, 28), 10)[0])
    write(folder, {"train-images-idx3-ubyte.gz": gzip.compress(images)})
    with pytest.raises(ValueError, match=r"Expected train-images-idx3-ubyte in .* with checksum"):
        load("mnist", folder=folder)
    assert names_in(cache) == []


def test_without_a_checksum_of_the_content_the_file_has_to_be_the_published_one(tiny, folder):
    made = tiny("usps", 1)
    write(folder, made.contents)
    with pytest.raises(ValueError, match=r"Expected usps.bz2 as it is published but got usps,"):
        load("usps", folder=folder)
    write(folder, made.files | {"usps.bz2": bz2.compress(b"6 1:0")})
    with pytest.raises(ValueError, match=r"Expected usps.bz2 with checksum md5:.* but got md5:"):
        load("usps", folder=folder)


@pytest.mark.parametrize(("name", "k"), CANONICAL)
def test_a_truncated_file_is_refused(name, k, tiny, folder, cache):
    made = tiny(name, k)
    write(folder, made.files)
    victim = made.form.files[0].name
    write(folder, {victim: made.files[victim][: len(made.files[victim]) // 2]})
    with pytest.raises(ValueError, match=rf"{victim}.*get the file again"):
        load(name, folder=folder)
    assert names_in(cache) == []


def test_a_form_that_is_all_there_comes_first(tiny, folder):
    first = tiny("usps")
    second = make_tiny("usps", 1)
    write(folder, {"zip.train.gz": first.files["zip.train.gz"]})
    assert load("usps", folder=folder).origin == "canonical files (ESL form)"
    DATASETS["usps"] = dataclasses.replace(
        DATASETS["usps"], forms=(first.form, second.form)
    )  # put back by the fixture
    write(folder, second.files)
    loaders.provide("usps", folder, again=True)
    assert load("usps", folder=folder).origin == "canonical files (LIBSVM form, which is smoothed)"


def test_one_split_alone(tiny, folder):
    made = tiny("svhn")
    write(folder, {"train_32x32.mat": made.files["train_32x32.mat"]})
    assert len(load("svhn", folder=folder)) == 10
    with pytest.raises(ValueError, match=r"Expected a test split of svhn but there is none"):
        load("svhn", "test", folder=folder)


def test_labels_are_digits(tiny, folder):
    made = tiny("svhn")
    write(folder, made.files)
    stored = scipy.io.loadmat(folder / "train_32x32.mat")["y"].ravel()
    assert stored[0] == 10
    assert load("svhn", folder=folder).labels[0] == 0


# --- parsers -------------------------------------------------------------------------------------


def test_pixels_stand_where_they_should():
    record = bytes([3, 9, *bytes(1023), *bytes(1024), 0, 8, *bytes(1022)])
    images, labels = parsers.parse_cifar(record)
    assert images[0, 0, 0].tolist() == [9, 0, 0]  # red, first row, first column
    assert images[0, 0, 1].tolist() == [0, 0, 8]  # blue, first row, second column
    assert labels.tolist() == [3]
    images, _ = parsers.parse_stl(bytes([1, 2, *bytes(27646)]), bytes([1]))
    assert images[0, :2, 0, 0].tolist() == [1, 2]  # second value: second row, first column
    images, _ = parsers.parse_esl(b"5 -1 1" + b" 0" * 254)
    assert images[0, 0, :3].tolist() == [0, 255, 128]


@pytest.mark.parametrize(
    ("parser", "contents", "message"),
    [
        (parsers.parse_idx, (b"",), "Expected an IDX header"),
        (parsers.parse_idx, (b"\0\0\x0d\1" + bytes(8),), "Expected an IDX header"),
        (parsers.parse_idx, (b"\0\0\x08\3" + bytes(5),), "Expected an IDX header"),
        (parsers.parse_idx, (b"\0\0\x08\1\xff\xff\xff\xff\0",), "Expected 4294967295 values"),
        (
            parsers.parse_mnist,
            (idx(np.zeros((2, 4, 4), np.uint8)), idx(np.zeros(3, np.uint8))),
            "Expected a label for each of 2 images",
        ),
        (
            parsers.parse_mnist,
            (idx(np.zeros(2, np.uint8)), idx(np.zeros(2, np.uint8))),
            "Expected images as bytes in 3 dimensions",
        ),
        (
            parsers.parse_mnist,
            (idx(np.zeros((1, 4, 4), np.uint8)), idx(np.full(1, 11, np.uint8))),
            "Expected labels from 0 to 9 but got 11 to 11",
        ),
        (parsers.parse_cifar, (bytes(3072),), "Expected whole records of 3073 bytes"),
        (parsers.parse_cifar, (b"",), "Expected whole records of 3073 bytes"),
        (parsers.parse_stl, (bytes(100), b"\1"), "Expected whole images of 27648 bytes"),
        (parsers.parse_stl, (bytes(27648), b"\0"), "Expected labels from 0 to 9 but got -1"),
        (parsers.parse_libsvm, (b"6 1:0 2:x",), "Expected numbers in line 1"),
        (parsers.parse_libsvm, (b"6 1:0\n6 1 0",), "Expected a label and place:value in line 2"),
        (parsers.parse_libsvm, (b"6 1:0 2:0 3",), "Expected a label and place:value in line 1"),
        (parsers.parse_libsvm, (b"6 257:0",), "Expected places from 1 to 256 in line 1"),
        (parsers.parse_libsvm, (b"6 1:1.5",), "Expected values from -1 to 1"),
        (parsers.parse_libsvm, (b"6.5 1:1",), "Expected labels from 0 to 9"),
        (parsers.parse_libsvm, (b"",), "Expected images as bytes in 3 dimensions"),
        (parsers.parse_esl, (b"6 " + b"0 " * 255,), "Expected 257 numbers in line 1 but got 256"),
        (parsers.parse_esl, (b"six",), "Expected lines of numbers"),
        (parsers.parse_esl, (b"6 " + b"nan " * 256,), "Expected values from -1 to 1"),
        (parsers.parse_mat, (b"",), "Expected a MAT file of version 5"),
        (parsers.parse_mat, (bytes(200),), "Expected a MAT file of version 5"),
    ],
)
def test_what_is_wrong_with_bytes(parser, contents, message):
    with pytest.raises(ValueError, match=message):
        parser(*contents)


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"X": np.zeros((32, 32, 3, 1), np.uint8)}, "Expected variables X and y"),
        ({"X": np.zeros((3, 3)), "y": np.ones((3, 1))}, "Expected X of shape"),
        ({"X": np.zeros((32, 32, 3, 1)), "y": np.ones((1, 1))}, "Expected images as bytes"),
        ({"X": np.zeros((32, 32, 3, 1), np.uint8), "y": "one"}, "Expected y of numbers"),
    ],
)
def test_what_is_wrong_with_a_mat_file(variables, message):
    file = io.BytesIO()
    scipy.io.savemat(file, variables)
    with pytest.raises(ValueError, match=message):
        parsers.parse_mat(file.getvalue())


def test_a_damaged_content_is_named(tiny, folder):
    made = tiny("cifar10")
    bad = {path: data[:-1] for path, data in made.contents.items()}
    with pytest.raises(ValueError, match=r"data_batch_1.bin, .*Expected whole records"):
        folders.parse(made.form, bad)


# --- archives ------------------------------------------------------------------------------------


def test_nothing_of_an_archive_is_written_or_followed(tiny, folder, tmp_path):
    made = tiny("stl10")
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as archive:
        for path, data in made.contents.items():
            if path.endswith("train_y.bin"):
                member = tarfile.TarInfo(path)
                member.type, member.linkname = tarfile.SYMTYPE, "/etc/hostname"
                archive.addfile(member)
                continue
            member = tarfile.TarInfo(path)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
        member = tarfile.TarInfo("../../evil")
        member.size = 1
        archive.addfile(member, io.BytesIO(b"x"))
    write(folder, {"stl10_binary.tar.gz": file.getvalue()})
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(ValueError, match=r"Expected stl10_binary/train_y.bin in stl10_binary"):
        archives.unpack(made.form.files[0], folder / "stl10_binary.tar.gz")
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("name", ["mnist", "stl10"])
def test_a_file_that_unpacks_to_too_much(name, tiny, folder, monkeypatch):
    made = tiny(name)
    write(folder, made.files)
    monkeypatch.setattr(archives, "_MOST", 1000)
    with pytest.raises(ValueError, match="unpacks to more than"):
        load(name, folder=folder)


# --- plain arrays --------------------------------------------------------------------------------


def save_plain(folder, name, test=True, n=3, **changes):
    images, labels = numbers(DATASETS[name].shapes[-1], n)
    arrays = {"train_images": images, "train_labels": labels.astype(np.uint8)}
    if test:
        arrays |= {"test_images": images[:2], "test_labels": labels[:2].astype(np.uint8)}
    arrays = {key: value for key, value in (arrays | changes).items() if value is not None}
    np.savez(folder / f"{name}.npz", **arrays)
    return Images(images, labels, "")


@pytest.mark.parametrize("name", DATASETS)
def test_plain_arrays(name, folder):
    made = save_plain(folder, name)
    got = load(name, folder=folder)
    np.testing.assert_array_equal(got.images, made.images)
    np.testing.assert_array_equal(got.labels, made.labels)
    assert got.origin == "plain arrays: unknown content"
    assert len(load(name, "test", folder=folder)) == 2


def test_the_environment_names_a_folder(folder, monkeypatch):
    save_plain(folder, "usps")
    monkeypatch.setenv("MIBOUNDS_DATA", str(folder))
    assert len(load("usps")) == 3
    monkeypatch.setenv("MIBOUNDS_DATA", str(folder / "none"))
    with pytest.raises(ValueError, match="Expected a folder of data but there is no"):
        load("usps")


def test_a_substitute_is_called_one(folder, monkeypatch):
    made = save_plain(folder, "svhn", test=False)
    monkeypatch.setitem(sources.KNOWN, made.digest, "regenerated crops")
    assert load("svhn", folder=folder).origin == "plain arrays: regenerated crops"
    with pytest.raises(
        ValueError, match=r"no.* \(plain arrays: regenerated crops\); get the whole"
    ):
        load("svhn", "test", folder=folder)


def test_splits_of_different_origin(folder, monkeypatch):
    made = save_plain(folder, "cifar10")
    monkeypatch.setitem(sources.KNOWN, made.digest, "canonical")
    assert load("cifar10", folder=folder).origin == (
        "train: plain arrays: canonical; test: plain arrays: unknown content"
    )


def test_the_real_substitute_is_known():
    assert any("regenerated crops" in text for text in sources.KNOWN.values())
    assert all(len(digest) == 64 for digest in sources.KNOWN)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"train_images": np.zeros((3, 8, 8), np.uint8)},
            r"Expected train_images of shape \(n, 16,",
        ),
        ({"train_images": np.zeros((3, 16, 16))}, r"usps.npz, train: Expected images as bytes"),
        ({"train_labels": np.full(3, 12)}, r"usps.npz, train: Expected labels from 0 to 9"),
        ({"train_labels": None}, r"usps.npz is damaged or not of plain arrays"),
        (
            {"train_images": None, "test_images": None},
            r"Expected arrays train_images and train_labels in usps.npz",
        ),
    ],
)
def test_plain_arrays_that_are_not(changes, message, folder, cache):
    save_plain(folder, "usps", **changes)
    with pytest.raises(ValueError, match=message):
        load("usps", folder=folder)
    assert names_in(cache) == []


class Trap:
    """Runs code where it is unpickled."""

    def __reduce__(self):
        return (sys.exit, ("executed",))


def test_nothing_in_an_array_file_is_executed(folder):
    trap = np.array([Trap()], dtype=object)
    for arrays in ({"train_images": trap, "train_labels": trap}, {"train_images": trap}):
        np.savez(folder / "usps.npz", allow_pickle=True, **arrays)
        with pytest.raises(ValueError, match=r"usps.npz is damaged or not of plain arrays"):
            load("usps", folder=folder)
    (folder / "usps.npz").write_bytes(pickle.dumps(Trap()))
    with pytest.raises(ValueError, match=r"usps.npz is damaged or not of plain arrays"):
        load("usps", folder=folder)


def test_what_is_not_in_a_folder(folder, cache):
    with pytest.raises(
        ValueError,
        match=r"Expected zip.train.gz, zip.test.gz or usps.bz2, usps.t.bz2 or usps.npz in",
    ):
        load("usps", folder=folder)
    with pytest.raises(ValueError, match=r"or mnist and BSR_bsds500.tgz to make it from"):
        load("mnist-m", folder=folder)
    assert names_in(cache) == []


def test_names():
    with pytest.raises(ValueError, match="but got 'minst'; did you mean 'mnist'"):
        load("minst")
    with pytest.raises(ValueError, match=r"Expected a data set among mnist, usps.* but got 'x'"):
        load("x")


def test_splits(unchecked):
    with pytest.raises(ValueError, match="Expected split to be 'train' or 'test' but got 'val'"):
        load("mnist", "val")


# --- the cache -----------------------------------------------------------------------------------


def test_the_cache_is_used(folder, cache):
    save_plain(folder, "usps")
    first = load("usps", folder=folder)
    stamp = (cache / "usps.npz").stat().st_mtime_ns
    (folder / "usps.npz").unlink()
    for options in ({"folder": folder}, {}):
        again = load("usps", **options)
        np.testing.assert_array_equal(again.images, first.images)
        assert again.origin == first.origin
    assert (cache / "usps.npz").stat().st_mtime_ns == stamp


def test_a_folder_that_is_named_is_where_data_come_from(folder, tmp_path):
    save_plain(folder, "usps")
    load("usps", folder=folder)
    other = tmp_path / "other"
    other.mkdir()
    made = save_plain(other, "usps", n=7)
    np.testing.assert_array_equal(load("usps", folder=other).images, made.images)
    assert len(load("usps")) == 7


def test_what_the_cache_holds(folder, cache):
    made = save_plain(folder, "usps")
    load("usps", folder=folder)
    with np.load(cache / "usps.npz", allow_pickle=False) as arrays:
        assert set(arrays) == {
            "about", "origin", "images_train", "labels_train", "images_test", "labels_test",
        }  # fmt: skip
        assert str(arrays["origin"]) == "plain arrays: unknown content"
    entry = caches.read_entry(cache / "usps.npz")
    assert entry.digests["train"] == made.digest
    assert entry.source == str(folder.resolve())


def damage_head(path):
    path.write_bytes(b"no cache")


def damage_end(path):
    path.write_bytes(path.read_bytes()[:-100])


def damage_pixel(path):
    data = bytearray(path.read_bytes())
    at = data.index(b"images_train.npy") + 300
    data[at] ^= 1
    path.write_bytes(bytes(data))


def damage_version(path):
    with np.load(path) as arrays:
        kept = dict(arrays)
    np.savez(path, **kept | {"about": np.array('{"version": 0}')})


def damage_about(path):
    with np.load(path) as arrays:
        kept = dict(arrays)
    np.savez(path, **kept | {"about": np.array("[]")})


def damage_arrays(path):
    with np.load(path) as arrays:
        kept = dict(arrays)
    np.savez(path, **kept | {"labels_train": np.zeros(2)})


@pytest.mark.parametrize(
    "damage",
    [damage_head, damage_end, damage_pixel, damage_version, damage_about, damage_arrays],
)
def test_a_damaged_cache_is_named_and_made_again(damage, folder, cache):
    made = save_plain(folder, "usps")
    load("usps", folder=folder)
    damage(cache / "usps.npz")
    with pytest.warns(UserWarning, match=r"usps.npz is damaged \(.*\) and is made again"):
        got = load("usps", folder=folder)
    np.testing.assert_array_equal(got.images, made.images)
    np.testing.assert_array_equal(load("usps").images, made.images)


def test_a_full_disk_leaves_no_cache(folder, cache, monkeypatch):
    save_plain(folder, "usps")

    def full(path, **arrays):
        Path(path).write_bytes(b"half")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(np, "savez", full)
    with pytest.raises(
        Unavailable, match=r"usps.npz could not be written: No space left on device"
    ):
        load("usps", folder=folder)
    assert names_in(cache) == []


def test_a_cache_that_cannot_be_made(folder, tmp_path):
    save_plain(folder, "usps")
    (tmp_path / "file").touch()
    with pytest.raises(Unavailable, match=r"the cache .* cannot be written to: .*choose another"):
        load("usps", folder=folder, cache=tmp_path / "file" / "cache")


def test_where_the_cache_is(monkeypatch, tmp_path):
    assert caches.find_cache("here") == Path("here")
    assert caches.find_cache() == tmp_path / "cache"
    monkeypatch.delenv("MIBOUNDS_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert caches.find_cache().name == "mibounds"


# --- MNIST-M -------------------------------------------------------------------------------------


def jpeg(array):
    file = io.BytesIO()
    Image.fromarray(array).save(file, "JPEG")
    return file.getvalue()


@pytest.fixture
def photographs():
    shapes = [(40, 60, 3), (60, 40, 3), (28, 28, 3)]
    return {f"{k}.jpg": jpeg(RANDOM.integers(0, 256, s, np.uint8)) for k, s in enumerate(shapes)}


def test_a_blend_is_the_difference_with_a_crop():
    digits = (numbers((28, 28), 20)[0] > 128).astype(np.uint8) * 255
    photograph = RANDOM.integers(0, 256, (31, 30, 3), np.uint8)
    blended = blend(digits, [photograph], seed=3)
    crops = [photograph[r : r + 28, c : c + 28] for r in range(4) for c in range(3)]
    used = set()
    for digit, image in zip(digits.astype(int), blended, strict=True):
        same = [np.array_equal(abs(crop.astype(int) - digit[:, :, None]), image) for crop in crops]
        assert sum(same) == 1
        used.add(same.index(True))
    assert len(used) > 6  # of the twelve places


def test_a_digit_is_all_that_is_not_black():
    photograph = np.full((28, 28, 3), 10, np.uint8)
    digit = np.zeros((1, 28, 28), np.uint8)
    digit[0, 5, 6] = 1
    blended = blend(digit, [photograph])
    assert blended[0, 5, 6].tolist() == [245, 245, 245]
    assert (blended == 10).sum() == (28 * 28 - 1) * 3


def test_blends_follow_the_seed_and_use_all_photographs():
    digits = np.zeros((200, 4, 4), np.uint8)
    grey = [np.full((6 + k, 5, 3), k, np.uint8) for k in range(5)]
    first = blend(digits, grey, seed=1)
    np.testing.assert_array_equal(first, blend(digits, grey, seed=1))
    assert (first != blend(digits, grey, seed=2)).any()
    counts = np.bincount(first[:, 0, 0, 0], minlength=5)
    assert counts.min() > 20


def test_photographs_that_do_not_fit():
    digits = np.zeros((1, 28, 28), np.uint8)
    with pytest.raises(
        ValueError, match="Expected photographs of at least 28 x 28 x 3 but got one"
    ):
        blend(digits, [np.zeros((28, 27, 3), np.uint8)])
    with pytest.raises(ValueError, match="Expected photographs but got none"):
        blend(digits, [])


@pytest.mark.parametrize("form", ["folder", "archive"])
def test_mnist_m_from_a_folder(form, tiny, folder, photographs, monkeypatch):
    made = tiny("mnist")
    write(folder, made.files)
    if form == "folder":
        write(folder / "bsds500", photographs)
        what = "3 other photographs"
    else:
        members = {f"{mnist_m.FOLDER}/{name}": data for name, data in photographs.items()}
        others = {"BSR/BSDS500/data/images/test/9.jpg": b"", f"{mnist_m.FOLDER}/Thumbs.db": b""}
        write(folder, {"BSR_bsds500.tgz": tar(members | others)})
        with pytest.raises(
            ValueError, match="Expected the training part of BSDS500 in BSR_bsds500"
        ):
            load("mnist-m", folder=folder)
        digest = mnist_m.digest_photographs(photographs)
        monkeypatch.setattr(mnist_m, "BSDS500_DIGEST", digest)
        what = "BSDS500's training part"
    got = load("mnist-m", "test", folder=folder)
    images, labels = made.pairs["test"]
    arrays = mnist_m.decode_photographs(photographs)
    np.testing.assert_array_equal(got.images, blend(images, arrays, [0, 1]))
    np.testing.assert_array_equal(got.labels, labels)
    assert got.origin == f"made from MNIST (canonical files (IDX)) and {what} with seed 0"
    assert load("mnist-m", folder=folder).images.shape == (10, 28, 28, 3)


def test_mnist_m_that_is_fetched(tiny, server, photographs, monkeypatch, cache):
    made = tiny("mnist", server=server)
    members = {f"{mnist_m.FOLDER}/{name}": data for name, data in photographs.items()}
    data = server.files["BSR_bsds500.tgz"] = tar(members)
    file = dataclasses.replace(
        sources.BSDS500,
        urls=(f"{server.url}/BSR_bsds500.tgz",),
        hash=checksum(data),
        size=len(data),
    )
    monkeypatch.setattr(loaders, "BSDS500", file)
    got = load("mnist-m")
    expected = blend(made.pairs["train"][0], mnist_m.decode_photographs(photographs), [0, 0])
    np.testing.assert_array_equal(got.images, expected)
    assert names_in(cache) == ["mnist-m.npz", "mnist.npz"]


def test_mnist_m_of_a_damaged_cache(tiny, server, cache):
    tiny("mnist", server=server)
    load("mnist")
    damage_arrays(cache / "mnist.npz")
    with pytest.raises(
        Unavailable, match=r"mnist.npz is damaged \(arrays .*\); remove it, and make"
    ):
        load("mnist-m")


def test_a_damaged_archive_of_photographs(folder):
    write(folder, {"BSR_bsds500.tgz": tar({"a": bytes(9999)})[:-30]})
    with pytest.raises(ValueError, match=r"BSR_bsds500.tgz is damaged or not an archive"):
        mnist_m.read_photographs(folder / "BSR_bsds500.tgz")


# --- reductions ----------------------------------------------------------------------------------


def test_reductions_against_the_plain_mean():
    images = RANDOM.integers(0, 256, (5, 9, 12, 3), np.uint8)
    images[0] = 255
    blocks = images.reshape(5, 3, 3, 4, 3, 3).astype(np.float64)
    np.testing.assert_array_equal(reduce_by_means(images), np.rint(blocks.mean((2, 4))))
    np.testing.assert_array_equal(reduce_by_picking(images), blocks[:, :, 1, :, 1])


@pytest.mark.parametrize("reduce", [reduce_by_means, reduce_by_picking])
def test_sides_that_cannot_be_reduced(reduce):
    with pytest.raises(ValueError, match="Expected sides that are multiples of 3 but got 32 x 33"):
        reduce(np.zeros((1, 32, 33, 3), np.uint8))


# --- the web -------------------------------------------------------------------------------------


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


@pytest.fixture
def server():
    server = Server()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


MAT = "train_32x32.mat"


@pytest.mark.parametrize(("name", "k"), CANONICAL)
def test_canonical_files_of_the_web(name, k, tiny, server, cache):
    made = tiny(name, k, server=server)
    shares = []
    loaders.provide(name, progress=lambda share, what: shares.append((share, what)))
    assert_holds(name, made, f"canonical files ({made.form.title})")
    assert names_in(cache) == [f"{name}.npz"]  # and no downloads
    yours = cache / "downloads" / name / "yours.txt"
    write(yours.parent, {yours.name: b"yours"})
    loaders.provide(name, again=True)
    assert set(names_in(cache)) == {f"downloads/{name}/yours.txt", f"{name}.npz"}
    yours.unlink()
    server.asked.clear()
    shares.clear()
    loaders.provide(name, again=True, progress=lambda share, what: shares.append((share, what)))
    assert sorted(asked for asked, _ in server.asked) == sorted(made.files)
    assert [share for share, _ in shares] == sorted(share for share, _ in shares)
    assert all(0 <= share <= 1 for share, _ in shares)
    assert shares[-1][1] == f"{name}: {made.form.files[-1].name}"


def test_a_download_that_breaks_off_is_resumed(tiny, server):
    made = tiny("svhn", server=server)
    server.ways[MAT] = ["breaks", "breaks"]
    assert_holds("svhn", made, "canonical files (MAT)")
    n = len(made.files[MAT])
    half = n // 2
    more = half + (n - half) // 2
    assert [span for name, span in server.asked if name == MAT] == [
        "", f"bytes={half}-", f"bytes={more}-",
    ]  # fmt: skip


def test_a_download_that_breaks_off_is_resumed_at_the_next_start(tiny, server, cache):
    made = tiny("svhn", server=server)
    server.ways[MAT] = ["breaks", "missing"]
    with pytest.raises(Unavailable, match=r"train_32x32.mat could not be fetched \(127.*404"):
        load("svhn")
    assert names_in(cache) == ["downloads/svhn/train_32x32.mat.part"]
    assert_holds("svhn", made, "canonical files (MAT)")
    assert server.asked[2] == (MAT, f"bytes={len(made.files[MAT]) // 2}-")


def test_a_server_that_knows_no_ranges(tiny, server):
    made = tiny("svhn", server=server)
    server.ways[MAT] = ["breaks", "whole"]
    assert_holds("svhn", made, "canonical files (MAT)")
    assert len(server.asked) == 3


def test_what_was_there_before_may_be_wrong(tiny, server, cache):
    """A half of another file, or all of it, does not stand in the way."""
    made = tiny("svhn", server=server)
    part = cache / "downloads" / "svhn" / f"{MAT}.part"
    for there in (b"other", bytes(len(made.files[MAT])), bytes(len(made.files[MAT]) + 5)):
        write(part.parent, {part.name: there})
        loaders.provide("svhn", again=True)
        assert_holds("svhn", made, "canonical files (MAT)")
    write(part.parent, {MAT: b"other"})
    loaders.provide("svhn", again=True)
    assert_holds("svhn", made, "canonical files (MAT)")


def test_what_was_there_before_may_be_wrong_without_a_known_size(tiny, server, cache):
    made = tiny("usps", 0, server=server)
    name = "zip.train.gz"
    folder = cache / "downloads" / "usps"
    for there in (b"other", made.files[name], made.files[name] + b"more"):
        write(folder, {f"{name}.part": there})
        loaders.provide("usps", again=True)
        assert_holds("usps", made, "canonical files (ESL form)")
    write(folder, {name: b"other"})
    loaders.provide("usps", again=True)
    assert_holds("usps", made, "canonical files (ESL form)")


@pytest.mark.parametrize(
    ("ways", "message"),
    [
        (["missing"], "answered 404 Not Found"),
        (["wrong"], "sent a file with the wrong checksum"),
        (["shorter"], r"has a file of \d+ bytes instead of \d+"),
        (["longer"], r"has a file of \d+ bytes instead of \d+"),
        (["more"], r"sent more than \d+ bytes"),
        (["breaks without length"] * 10, r"broke off after \d+ of \d+ bytes"),
        (["breaks"] * 10, r"broke off after \d+ of \d+ bytes"),
        (["breaks", "elsewhere"], r"sent other bytes than asked for \(bytes 0-"),
    ],
)
def test_a_server_that_misbehaves(ways, message, tiny, server, cache):
    tiny("svhn", server=server)
    server.ways[MAT] = ways
    with pytest.raises(
        Unavailable, match=rf"{MAT} could not be fetched \(127.0.0.1:\d+: {message}"
    ):
        load("svhn")
    assert "svhn.npz" not in names_in(cache)


@pytest.mark.parametrize(
    ("ways", "message"),
    [
        (["wrong"], "sent a file with the wrong checksum"),
        (["shorter"], "sent a file with the wrong checksum"),
        (["longer"] * 10, "has no more bytes than had arrived"),
        (["breaks without length"], "sent a file with the wrong checksum"),
    ],
)
def test_a_server_that_misbehaves_over_a_file_of_unknown_size(ways, message, tiny, server, cache):
    tiny("usps", 0, server=server)
    server.ways["zip.train.gz"] = ways
    with pytest.raises(Unavailable, match=rf"zip.train.gz could not be .*: {message}"):
        load("usps")
    assert len(server.asked) <= 4
    assert "usps.npz" not in names_in(cache)


def test_a_server_that_does_not_say_how_long_a_file_is(tiny, server):
    made = tiny("usps", 0, server=server)
    server.ways["zip.train.gz"] = ["no length"]
    assert_holds("usps", made, "canonical files (ESL form)")


def test_no_network(tiny, server, cache):
    made = tiny("svhn", server=server)
    server.url = "http://127.0.0.1:9"  # nobody listens there
    file = dataclasses.replace(made.form.files[0], urls=(f"{server.url}/{MAT}",) * 2)
    form = dataclasses.replace(made.form, files=(file,))
    DATASETS["svhn"] = dataclasses.replace(DATASETS["svhn"], forms=(form,))
    with pytest.raises(
        Unavailable,
        match=r"^svhn is out of reach: train_32x32.mat could not be fetched "
        r"\(127.0.0.1:9: no connection; 127.0.0.1:9: no connection\); "
        r"get the files by other means and name their folder",
    ):
        load("svhn")
    assert names_in(cache) == []


def test_a_server_that_does_not_answer(tiny, server, monkeypatch):
    tiny("svhn", server=server)
    monkeypatch.setattr(downloads, "_TIMEOUT", (0.2, 0.2))
    held = threading.Event()
    monkeypatch.setattr(Handler, "do_GET", lambda self: held.wait(10))
    try:
        with pytest.raises(Unavailable, match="no answer in time"):
            load("svhn")
    finally:
        held.set()


@pytest.mark.parametrize("way", ["missing", "wrong", "shorter", "breaks"])
def test_the_next_mirror_is_tried(way, tiny, server):
    made = tiny("svhn", server=server)
    server.files |= {f"mirror/{name}": data for name, data in made.files.items()}
    server.ways[MAT] = [way, "missing"]
    first = DATASETS["svhn"].forms[0].files[0]
    file = dataclasses.replace(first, urls=(*first.urls, f"{server.url}/mirror/{MAT}"))
    form = dataclasses.replace(made.form, files=(file, *DATASETS["svhn"].forms[0].files[1:]))
    DATASETS["svhn"] = dataclasses.replace(DATASETS["svhn"], forms=(form,))
    assert_holds("svhn", made, "canonical files (MAT)")
    mirrored = [span for name, span in server.asked if name.startswith("mirror")]
    assert mirrored == [f"bytes={len(made.files[MAT]) // 2}-" if way == "breaks" else ""]


def test_the_other_form_of_usps_is_tried(tiny, server):
    tiny("usps", server=server)
    server.ways["zip.test.gz"] = ["missing"]
    assert load("usps").origin == "canonical files (LIBSVM form, which is smoothed)"


def test_a_full_disk_while_fetching(tiny, server, cache, monkeypatch):
    tiny("usps", server=server)
    real = Path.open

    class Full(io.FileIO):
        def write(self, data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def open_(self, mode="r", *args, **options):
        full = self.suffix == ".part" and "b" in mode
        return Full(self, "w") if full else real(self, mode, *args, **options)

    monkeypatch.setattr(Path, "open", open_)
    with pytest.raises(Unavailable, match=r"zip.train.gz could not be written to .*No space left"):
        load("usps")
    assert len(server.asked) == 1  # no mirror and no other form helps
    assert "usps.npz" not in names_in(cache)


def test_processes_that_start_together_fetch_once(tiny, server):
    made = tiny("svhn", server=server)
    got = []
    threads = [threading.Thread(target=lambda: got.append(load("svhn"))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(got) == 4
    assert sorted(name for name, _ in server.asked) == sorted(made.files)


def test_pooch_keeps_its_voice(tiny, server, capfd):
    import pooch

    tiny("svhn", server=server)
    load("svhn")
    assert capfd.readouterr() == ("", "")
    assert pooch.get_logger().filters == []


# --- without the extra ---------------------------------------------------------------------------


def test_without_the_extra(tiny, folder, photographs, monkeypatch):
    monkeypatch.setitem(sys.modules, "pooch", None)
    with pytest.raises(ImportError, match=r"by pooch; .*pip install -e '\.\[experiments\]'"):
        load("usps")
    monkeypatch.delenv("MIBOUNDS_CACHE")
    with pytest.raises(ImportError, match=r"by pooch; .*pip install -e '\.\[experiments\]'"):
        caches.find_cache()
    monkeypatch.setitem(sys.modules, "scipy.io", None)
    with pytest.raises(ImportError, match=r"by scipy; .*pip install -e '\.\[experiments\]'"):
        parsers.parse_mat(b"")
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(ImportError, match=r"by Pillow; .*pip install -e '\.\[experiments\]'"):
        mnist_m.decode_photographs(photographs)


# --- the table of sources ------------------------------------------------------------------------


def test_every_file_can_be_checked():
    for name, dataset in DATASETS.items():
        assert len(dataset.sizes) == 2
        for form in dataset.forms:
            contents = [content for file in form.files for content in file.contents]
            assert {p for paths in form.splits.values() for p in paths} == {
                content.path for content in contents
            }, name
            for file in (*form.files, sources.BSDS500):
                assert file.hash or all(content.hash for content in file.contents), file.name
                assert all(url.endswith(f"/{file.name}") for url in file.urls)
                for hash in (file.hash, *(content.hash for content in file.contents)):
                    algorithm, _, value = hash.partition(":")
                    assert len(value) == {"md5": 32, "sha256": 64, "": 0}[algorithm], file.name


# --- the real ones -------------------------------------------------------------------------------


@pytest.mark.skipif(not REAL, reason="MIBOUNDS_DATA names no folder of real data")
@pytest.mark.parametrize("name", DATASETS)
def test_real_data(name):
    try:
        _, entry = loaders.provide(name, REAL)
    except ValueError as error:
        if "but there is none" not in str(error):
            raise
        pytest.skip(str(error))
    for split in caches.list_splits(entry):
        got = load(name, split, REAL)
        assert len(got) == DATASETS[name].sizes[split == "test"]
        assert got.images.shape[1:] in DATASETS[name].shapes
        counts = np.bincount(got.labels, minlength=10)
        assert counts.min() > 0.5 * len(got) / 10 * (0.9 if name == "usps" else 1.2)
        assert "unknown" not in got.origin
        assert got.digest == entry.digests[split]
    if name == "svhn" and "test" not in entry.digests:
        assert "regenerated" in entry.origin
