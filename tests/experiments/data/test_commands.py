"""python -m experiments data: what it prints, what it caches, and how it fails."""

import json
import re
import shlex
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from experiments.__main__ import main
from experiments.data import DATASETS, load

ROOT = Path(__file__).parents[3]


@pytest.fixture
def data(tmp_path):
    """A folder with two images of every data set."""
    folder = tmp_path / "data"
    folder.mkdir()
    for name, dataset in DATASETS.items():
        images = np.full((2, *dataset.shapes[-1]), len(name), np.uint8)
        labels = np.array([1, 2], np.uint8)
        np.savez(
            folder / f"{name}.npz",
            train_images=images,
            train_labels=labels,
            test_images=images,
            test_labels=labels,
        )
    return folder


def run(capfd, *arguments, code=0):
    """What goes to standard output, and to standard error."""
    assert main(["data", *map(str, arguments)]) == code
    return capfd.readouterr()


def refused(capfd, *arguments, code=2):
    out, err = run(capfd, *arguments, code=code)
    assert out == ""
    assert "Traceback" not in err
    (line,) = err.splitlines()
    return line.removeprefix("mibounds: error: ")


@pytest.mark.parametrize("arguments", [[], ["list"]])
def test_a_list(arguments, capfd, data):
    main(["data", "get", "usps", "--from", str(data)])
    capfd.readouterr()
    out, err = run(capfd, *arguments)
    assert err == ""
    header, *rows = out.splitlines()
    assert header.split()[:4] == ["name", "images", "pixels", "download"]
    assert [row.split()[0] for row in rows] == list(DATASETS)
    place = header.index("cached")
    assert {row.split()[0]: row[place:].split()[0] for row in rows} == {
        name: "yes" if name == "usps" else "no" for name in DATASETS
    }
    assert "non-commercial use only" in out


def test_a_list_as_json(capfd, data, cache):
    main(["data", "get", "usps", "--from", str(data)])
    capfd.readouterr()
    (cache / "svhn.npz").write_bytes(b"no cache")
    rows = {row["name"]: row for row in json.loads(run(capfd, "list", "--json").out)}
    assert list(rows) == list(DATASETS)
    assert rows["usps"]["cached"] == "yes"
    assert rows["usps"]["origin"] == "plain arrays: unknown content"
    assert rows["usps"]["path"] == str(cache / "usps.npz")
    assert rows["svhn"]["cached"] == "damaged"
    assert rows["mnist"] == {
        "name": "mnist",
        "title": "MNIST",
        "train": 60000,
        "test": 10000,
        "pixels": "28 x 28",
        "download": "12 MB",
        "licence": "CC BY-SA 3.0",
        "citation": "LeCun et al. 1998",
        "cached": "no",
        "path": str(cache / "mnist.npz"),
        "origin": "",
    }


def test_get(capfd, data, cache):
    out, err = run(capfd, "get", "usps", "stl10", "usps", "--from", data)
    assert out == "usps: plain arrays: unknown content\nstl10: plain arrays: unknown content\n"
    assert err == ""
    assert sorted(path.name for path in cache.glob("*.npz")) == ["stl10.npz", "usps.npz"]
    assert load("usps").labels.tolist() == [1, 2]


def test_get_all(capfd, data, cache):
    rows = json.loads(run(capfd, "get", "--from", data, "--json").out)
    assert [row["name"] for row in rows] == list(DATASETS)
    assert all(Path(row["path"]).is_file() for row in rows)


def test_get_takes_what_is_in_the_folder_now(capfd, data):
    run(capfd, "get", "usps", "--from", data)
    images = np.zeros((5, 16, 16), np.uint8)
    np.savez(data / "usps.npz", train_images=images, train_labels=np.arange(5))
    run(capfd, "get", "usps", "--from", data)
    assert len(load("usps")) == 5


def test_get_leaves_what_is_cached(capfd, data, cache):
    run(capfd, "get", "usps", "--from", data)
    stamp = (cache / "usps.npz").stat().st_mtime_ns
    assert run(capfd, "get", "usps").out == "usps: plain arrays: unknown content\n"
    assert (cache / "usps.npz").stat().st_mtime_ns == stamp


def test_get_makes_what_is_damaged_again(capfd, data, cache, monkeypatch):
    run(capfd, "get", "usps", "--from", data)
    (cache / "usps.npz").write_bytes(b"")
    monkeypatch.setenv("MIBOUNDS_DATA", str(data))
    out, err = run(capfd, "get", "usps")
    assert out == "usps: plain arrays: unknown content\n"
    told = r"mibounds: .*usps.npz is damaged \(.*\) and is made again; if that recurs, .*\n"
    assert re.fullmatch(told, err)


def test_another_cache(capfd, data, cache, tmp_path):
    other = tmp_path / "other"
    run(capfd, "get", "usps", "--from", data, "--cache", other)
    assert run(capfd, "where", "usps", "--cache", other).out == f"{other / 'usps.npz'}\n"
    run(capfd, "check", "usps", "--cache", other)
    rows = json.loads(run(capfd, "list", "--json", "--cache", other).out)
    assert [row["name"] for row in rows if row["cached"] == "yes"] == ["usps"]
    assert not cache.exists()


def test_where(capfd, data, cache):
    out, err = run(capfd, "where")
    assert out == ""
    assert "nothing is cached in" in err
    assert "python -m experiments data get mnist" in err
    run(capfd, "get", "usps", "mnist", "--from", data)
    assert run(capfd, "where", "usps").out == f"{cache / 'usps.npz'}\n"
    assert run(capfd, "where").out == f"{cache / 'mnist.npz'}\n{cache / 'usps.npz'}\n"
    assert json.loads(run(capfd, "where", "usps", "--json").out) == [
        {"name": "usps", "path": str(cache / "usps.npz")}
    ]
    line = refused(capfd, "where", "svhn")
    assert re.match(r"Expected a cached data set but svhn is not in '.*cache'; get it with: ", line)


def test_check(capfd, data, cache):
    run(capfd, "get", "usps", "mnist", "--from", data)
    assert run(capfd, "check").out == "mnist: as it was cached\nusps: as it was cached\n"
    content = bytearray((cache / "usps.npz").read_bytes())
    content[content.index(b"images_test.npy") + 300] ^= 1
    (cache / "usps.npz").write_bytes(content)
    out, err = run(capfd, "check", code=1)
    assert re.search(r"^mnist: as it was cached\nusps: damaged \(.*CRC", out)
    assert re.match(r"mibounds: error: the cache of usps is damaged; remove it \(.*usps.npz\)", err)
    rows = json.loads(run(capfd, "check", "--json", code=1).out)
    assert [bool(row["error"]) for row in rows] == [False, True]


def test_check_of_arrays_that_were_replaced(capfd, data, cache):
    run(capfd, "get", "usps", "--from", data)
    with np.load(cache / "usps.npz") as arrays:
        kept = dict(arrays)
    kept["labels_train"] = kept["labels_train"][::-1]
    np.savez(cache / "usps.npz", **kept)
    out, _ = run(capfd, "check", code=1)
    assert out == ("usps: damaged (the train split has another checksum than when it was cached)\n")


def test_what_is_refused(capfd, data, tmp_path):
    assert "but got 'minst'; did you mean 'mnist'?" in refused(capfd, "get", "minst")
    assert "but got 'minst'" in refused(capfd, "where", "minst")
    assert "there is no" in refused(capfd, "get", "mnist", "--from", tmp_path / "none")
    (data / "mnist.npz").unlink()
    line = refused(capfd, "get", "mnist", "--from", data)
    assert line.startswith("Expected train-images-idx3-ubyte.gz, ")
    (data / "mnist.npz").write_bytes(b"no arrays")
    assert refused(capfd, "get", "mnist", "--from", data).startswith("mnist.npz is damaged or")
    assert "mend" in refused(capfd, "mend")


def test_failures_are_not_the_input_s(capfd, data, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    line = refused(capfd, "get", "usps", "--from", data, "--cache", tmp_path / "file", code=1)
    assert "cannot be written to" in line
    (form,) = DATASETS["svhn"].forms
    files = tuple(replace(file, urls=("http://127.0.0.1:9/",)) for file in form.files)  # nobody's
    form = replace(form, files=files)
    monkeypatch.setitem(DATASETS, "svhn", replace(DATASETS["svhn"], forms=(form,)))
    line = refused(capfd, "get", "svhn", code=1)
    why = "train_32x32.mat could not be fetched (127.0.0.1:9: no connection)"
    assert line.startswith(f"svhn is out of reach: {why}; get the files by other means")


def test_the_commands_of_the_documentation(capfd, data, monkeypatch):
    """Each runs as it stands on the page, with the data in the user's home."""
    monkeypatch.setenv("HOME", str(data.parent))
    monkeypatch.setenv("MIBOUNDS_DATA", str(data))
    text = (ROOT / "docs" / "datasets.md").read_text()
    commands = re.findall(r"^python -m experiments (.*)$", text, re.MULTILINE)
    assert len(commands) > 4
    for command in commands:
        assert main(shlex.split(command, comments=True)) == 0, command


def test_the_documentation_names_every_data_set():
    text = (ROOT / "docs" / "datasets.md").read_text()
    for name, dataset in DATASETS.items():
        train, test = dataset.sizes
        assert f"| `{name}` | {train} + {test} |" in text
