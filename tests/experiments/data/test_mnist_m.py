"""MNIST-M: blends, and photographs from a folder or the web."""

import dataclasses

import numpy as np
import pytest
from tiny_sets import RANDOM, checksum, damage_arrays, names_in, numbers, tar, write

from experiments.data import Unavailable, blend, load, loaders, mnist_m, sources


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
