"""Downloads: resumed, checked, from the next mirror; servers that misbehave."""

import dataclasses
import errno
import io
import os
import threading
from pathlib import Path

import pytest
from tiny_sets import CANONICAL, Handler, assert_holds, names_in, write

from experiments.data import DATASETS, Unavailable, downloads, load, loaders

MAT = "train_32x32.mat"


@pytest.mark.parametrize(("name", "k"), CANONICAL)
def test_canonical_files_of_the_web(name, k, tiny, server, cache):
    made = tiny(name, k, server=server)
    shares = []
    loaders.provide(name, progress=lambda share, what: shares.append((share, what)))
    assert_holds(name, made, f"canonical files ({made.form.title})")
    assert names_in(cache) == [f"{name}.npz"]  # and no downloads
    yours = cache / "mibounds-downloads" / name / "yours.txt"
    write(yours.parent, {yours.name: b"yours", "tmp1a2b3c_4": b"of a process that was killed"})
    loaders.provide(name, again=True)
    assert set(names_in(cache)) == {f"mibounds-downloads/{name}/yours.txt", f"{name}.npz"}
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
    assert names_in(cache) == ["mibounds-downloads/svhn/train_32x32.mat.part"]
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
    part = cache / "mibounds-downloads" / "svhn" / f"{MAT}.part"
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
    folder = cache / "mibounds-downloads" / "usps"
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
