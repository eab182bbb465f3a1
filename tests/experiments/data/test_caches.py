"""The cache: used, named when damaged, whole or not there."""

import errno
import os
from pathlib import Path

import numpy as np
import pytest
from tiny_sets import damage_arrays, names_in, save_plain

from experiments.data import Unavailable, caches, load


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
