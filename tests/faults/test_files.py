"""Broken files are refused in one line, or read as others read them; these checks can fail."""

import importlib
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("pyarrow", reason="CSV and Parquet files are read by pyarrow")
pytest.importorskip("pandas", reason="odd columns are made by pandas")
pytest.importorskip("tyro", reason="the command line is made by tyro")

from broken_files import broken_files, damaged, pickled_files, read_plainly, whole_files
from odd_values import Broken

from mibounds.cli.tables import Column, Table

ROOT = Path(__file__).parents[2]


@pytest.fixture
def faults(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("faults")


@pytest.mark.parametrize("name", whole_files())
def test_whole_files_are_read_as_others_do(name, faults, tmp_path):
    assert faults.run_file(name, whole_files()[name], "matrix", tmp_path) in ("number", "warning")


@pytest.mark.parametrize("name", broken_files())
def test_the_corpus(name, faults, tmp_path):
    assert faults.run_file(name, broken_files()[name], "matrix", tmp_path) in faults.HELD


def test_the_corpus_can_be_written(tmp_path):
    script = ROOT / "tests" / "support" / "broken_files.py"
    subprocess.run([sys.executable, script, tmp_path], check=True, capture_output=True)
    files = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert files == {**whole_files(), **broken_files()}
    assert sum(map(len, files.values())) < 1_000_000


def test_damages_follow_from_the_seed_and_reach_inside():
    for name, data in whole_files().items():
        first, again = (damaged(name, data, np.random.default_rng(3)) for _ in range(2))
        assert first == again
        if name.endswith((".gz", ".npz")):
            several = [damaged(name, data, np.random.default_rng(seed)) for seed in range(20)]
            assert any(what.startswith("inside") for _, what in several)


def test_pickles_would_be_loaded_by_who_loads_them(tmp_path):
    marker = tmp_path / "executed"
    found = pickled_files(marker)
    (tmp_path / "a.npy").write_bytes(found["objects.npy"])
    np.load(tmp_path / "a.npy", allow_pickle=True)
    assert marker.exists()
    assert len(found) > 100


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x: x + (np.arange(80) == 7), "x, row 7: "),
        (lambda x: x[:-1], "79 rows of 80"),
        (lambda x: np.where(np.arange(80) == 7, np.nan, x), "x, row 7: nan for "),
    ],
)
def test_other_numbers_are_a_failure(change, message, faults, tmp_path, monkeypatch):
    read = faults.read_table

    def changed(*arguments):
        table = read(*arguments)
        return Table("", {"x": Column(change(table["x"].values)), "y": table["y"]})

    monkeypatch.setattr(faults, "read_table", changed)
    with pytest.raises(Broken, match=message):
        faults.run_file("data.csv", whole_files()["data.csv"], "rank", tmp_path)


@pytest.mark.parametrize(
    ("code", "err", "what"),
    [
        (1, "Traceback (most recent call last):\n  ...\n", "traceback"),
        (1, "mibounds: error: KeyError: 3\n", "traceback"),
        (2, "mibounds: error: one\nmibounds: error: two\n", "silent"),
        (2, "", "silent"),
        (0, "mibounds: error: Expected a but got b; do c\n", "silent"),
        (2, "mibounds: error: \x1b[2J; do c\n", "silent"),
        (3, "mibounds: error: Expected a but got b; do c\n", "traceback"),
    ],
)
def test_what_is_no_clear_line(code, err, what, faults):
    faults.check_printed(2, "mibounds: error: Expected a but got b; do c\n")
    with pytest.raises(Broken) as broken:
        faults.check_printed(code, err)
    assert broken.value.what == what


def test_records_are_read_plainly():
    for name, data in whole_files().items():
        columns = read_plainly(name, data)
        assert {len(values) for values in columns.values()} == {80}
