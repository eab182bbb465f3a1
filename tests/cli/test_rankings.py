"""``mibounds rank`` and ``mibounds matrix``, as a user runs them."""

import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import mibounds as mb
from mibounds.cli import main

pytest.importorskip("pyarrow", reason="CSV and Parquet files are read by pyarrow")
pytest.importorskip("tyro", reason="the command line is made by tyro")


@pytest.fixture
def frame():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(300, 3)), columns=["a", "b", "c"])
    frame["kind"] = np.where(frame.a + rng.normal(size=300) > 0, "yes", "no")
    frame["y"] = frame.a + 0.5 * frame.b + rng.normal(size=300)
    frame.loc[::9, "kind"] = None
    frame.loc[::11, "b"] = np.nan
    return frame


@pytest.fixture
def file(frame, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    frame.to_csv("data.csv", index=False)
    return "data.csv"


def test_rank_is_that_of_the_library(file, frame, capsys):
    assert main(["rank", file, "--json"]) == 0
    shown = mb.Ranking.from_json(capsys.readouterr().out)
    expected = mb.rank(frame.drop(columns="y"), frame.y)
    assert shown.columns == expected.columns
    assert shown.target == "y"
    rows = {c.name: c for c in shown.columns}
    assert rows["kind"].kind == "discrete"
    assert rows["kind"].rows == 300 - 34


def test_rank_writes_what_it_is_asked_for(file, capsys):
    options = ["--target", "kind", "--given", "selected", "--columns", "a:c", "--most", "2"]
    files = ["--report", "r.html", "--plot", "r.png", "--out", "r.json"]
    assert main(["rank", file, *options, *files]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("data.csv, 300 rows\n\nMutual information with kind, of entropy 0.6")
    assert re.search(r"\na +0\.\d+ .* 0\.\d+ +1 ", shown)
    found = mb.Ranking.from_json(Path("r.json").read_text())
    assert set(found.names) == {"a", "b", "c"}
    assert "<h1>data.csv, 300 rows: what tells of kind</h1>" in Path("r.html").read_text()
    assert Path("r.png").read_bytes().startswith(b"\x89PNG")


def test_matrix_is_that_of_the_library(file, frame, capsys):
    assert main(["matrix", file, "--json", "--jobs", "2"]) == 0
    shown = mb.Matrix.from_json(capsys.readouterr().out)
    assert np.array_equal(shown.nats, mb.matrix(frame).nats, equal_nan=True)
    assert shown.left_kinds[3] == "discrete"


def test_matrix_writes_what_it_is_asked_for(file, capsys):
    command = ["matrix", file, "--columns", "a,b", "--others", "y,kind", "--unit", "bits"]
    files = ["--report", "m.html", "--plot", "m.svg", "--network", "n.svg", "--out", "parts"]
    assert main([*command, *files]) == 0
    shown = capsys.readouterr().out
    assert "Mutual information of 2 and 2 columns, in bits" in shown
    found = mb.Matrix.from_json(Path("parts/matrix.json").read_text())
    assert (found.left, found.right) == (("a", "b"), ("y", "kind"))
    assert "all pairs of columns</h1>" in Path("m.html").read_text()
    assert all(b"<svg" in Path(name).read_bytes() for name in ("m.svg", "n.svg"))
    assert main([*command, "--out", "parts"]) == 0
    assert capsys.readouterr().out == shown


def test_declared_kinds(file, capsys):
    assert main(["rank", file, "--discrete", "a", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["columns"]
    assert {r["name"]: r["kind"] for r in rows}["a"] == "discrete"


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("rank data.csv --target z", "there is no column 'z'"),
        ("rank data.csv --target a,b", "Expected one column for --target but got 2: a, b; name"),
        ("rank data.csv --columns a,y", "column 'y' is in both --columns and --target; leave"),
        ("rank data.csv --discrete y --columns a --target b", "Expected --discrete to name"),
        ("rank data.csv --report r.txt", "Expected --report to end in .html but got 'r.txt'"),
        ("rank data.csv --plot r.xyz", "Expected --plot to end in one of"),
        ("rank data.csv --report no/r.html", "Expected a folder for --report but there is no"),
        ("matrix data.csv --columns a --others a", "column 'a' is in both --columns and --others"),
        ("matrix data.csv --network data.csv", "which is that of the data; name another file"),
        ("matrix data.csv --scheduler x:1", "Expected backend dask or ray with scheduler but got"),
    ],
)
def test_what_cannot_be_used_is_said_in_one_line(file, command, message, capsys):
    assert main(command.split()) == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1
