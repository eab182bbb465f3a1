"""Data sets in a folder: canonical files, packed or not, and plain arrays."""

import bz2
import dataclasses
import gzip
import pickle
import sys

import numpy as np
import pytest
import scipy.io
from tiny_sets import (
    CANONICAL,
    assert_holds,
    idx,
    make_tiny,
    names_in,
    numbers,
    save_plain,
    tar,
    write,
)

from experiments.data import DATASETS, load, loaders, sources


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
    with pytest.raises(ValueError, match=r"Expected usps.bz2 with checksum sha256:.* but got"):
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
    with pytest.raises(ValueError, match=r"Expected a test split of svhn but it has only train"):
        load("svhn", "test", folder=folder)


def test_labels_are_digits(tiny, folder):
    made = tiny("svhn")
    write(folder, made.files)
    stored = scipy.io.loadmat(folder / "train_32x32.mat")["y"].ravel()
    assert stored[0] == 10
    assert load("svhn", folder=folder).labels[0] == 0


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
        ValueError, match=r"only train \(plain arrays: regenerated crops\); get the whole"
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
