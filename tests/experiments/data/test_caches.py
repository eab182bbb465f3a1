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
    path.write_bytes(path.read_bytes()[:100])


def damage_by_power(path):
    path.write_bytes(bytes(1000))


def empty(path):
    path.write_bytes(b"")


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


def tamper(path, **arrays):
    """As a program does that replaces arrays: the file is whole, and so are its zip checksums."""
    with np.load(path) as there:
        kept = dict(there)
    np.savez(path, **kept | {name: change(kept[name]) for name, change in arrays.items()})


def tamper_images(path):
    tamper(path, images_train=lambda images: images ^ 1)


def tamper_labels(path):
    tamper(path, labels_train=lambda labels: labels[::-1].copy())


def tamper_digests(path):
    about = '{"version": 1, "source": "%s", "digests": {"train": "", "test": ""}}'
    tamper(path, about=lambda _: np.array(about % (path.parents[1] / "data")))


@pytest.mark.parametrize(
    "damage",
    [
        *(damage_head, damage_by_power, empty, damage_end, damage_pixel, damage_version),
        *(damage_about, damage_arrays, tamper_images, tamper_labels, tamper_digests),
    ],
)
def test_a_damaged_cache_is_named_and_made_again(damage, folder, cache):
    made = save_plain(folder, "usps")
    load("usps", folder=folder)
    damage(cache / "usps.npz")
    with pytest.warns(UserWarning, match=r"usps.npz is damaged \(.*\) and is made again"):
        got = load("usps", folder=folder)
    np.testing.assert_array_equal(got.images, made.images)
    np.testing.assert_array_equal(load("usps").images, made.images)


def test_a_file_of_somebody_else_is_not_written_over(folder):
    """Plain arrays have the name of a cache file, and --from and --cache may be one folder."""
    made = save_plain(folder, "usps")
    before = (folder / "usps.npz").read_bytes()
    for options in ({}, {"folder": folder}):
        with pytest.raises(ValueError, match=r"Expected the cache of usps in .* another file; mov"):
            load("usps", cache=folder, **options)
    assert (folder / "usps.npz").read_bytes() == before
    assert names_in(folder) == ["usps.npz"]
    np.testing.assert_array_equal(load("usps", folder=folder).images, made.images)


def test_what_a_killed_process_left_is_removed(folder, cache):
    save_plain(folder, "usps")
    cache.mkdir()
    for name in (".0123456789abcdef.part.npz", "yours.part.npz"):
        (cache / name).write_bytes(b"half")
        os.utime(cache / name, (0, 0))
    load("usps", folder=folder)
    assert set(names_in(cache)) == {"usps.npz", "yours.part.npz"}


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
