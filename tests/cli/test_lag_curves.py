"""``mibounds lags``."""

import json

import numpy as np
import pandas as pd
import pytest

from mibounds.cli import main

QUICK = ("--max-lag", "3", "--permutations", "19")


@pytest.fixture
def file(tmp_path):
    rng = np.random.default_rng(0)
    rain = rng.normal(size=300)
    flow = np.r_[0.0, 0.0, rain[:-2]] + rng.normal(size=300)
    days = pd.date_range("2024-01-01", periods=300, freq="D")
    frame = pd.DataFrame({"day": days, "rain": rain, "flow": flow, "wet": rain > 0})
    path = tmp_path / "river.csv"
    frame.to_csv(path, index=False)
    return path


def run(capsys, *arguments):
    code = main(["lags", *map(str, arguments)])
    out, err = capsys.readouterr()
    return code, out, err


def test_a_table_a_picture_and_a_page(file, tmp_path, capsys):
    page, picture, kept = (tmp_path / name for name in ("lags.html", "lags.svg", "lags.json"))
    code, out, err = run(
        capsys, file, "--x", "rain", "--y", "flow", "--time", "day", "--transfer", *QUICK,
        "--report", page, "--plot", picture, "--out", kept,
    )  # fmt: skip
    assert (code, err) == (0, "")
    assert out.startswith("river.csv: rain and flow\n\nI(rain at t; flow at t + k)")
    assert "best at k = 2" in out
    assert "T(x -> y)" in out
    assert "river.csv: rain and flow</h1>" in page.read_text()
    assert picture.read_text().startswith("<?xml")
    assert json.loads(kept.read_text())["best"] == 2


def test_json(file, capsys):
    code, out, _ = run(
        capsys, file, "--x", "wet", "--y", "flow", "--given-past", "auto", "--json", *QUICK
    )
    found = json.loads(out)
    assert code == 0
    assert found["x"] == ["wet"]
    assert found["given_past"] >= 1
    assert [row["lag"] for row in found["rows"]] == [-3, -2, -1, 1, 2, 3]
    assert found["method"] == "neighbours"


def test_what_is_refused(file, capsys):
    frame = pd.read_csv(file)
    gap, holes = file.with_name("gap.csv"), file.with_name("holes.csv")
    frame.drop(index=5).to_csv(gap, index=False)
    frame.assign(rain=frame["rain"].where(frame.index != 3)).to_csv(holes, index=False)
    sides = ("--x", "rain", "--y", "flow")
    for arguments, match in (
        (
            (gap, *sides, "--time", "day"),
            "equal distances in 'day' but got a different distance",
        ),
        ((holes, *sides), "missing values in 1 of 300 rows"),
        ((file, "--x", "rain", "--y", "rain"), "both --x and --y"),
        ((file, *sides, "--given-past", "some"), "--given-past as a number of rows or auto"),
        ((file, *sides, "--max-lag", "260"), "at least 50 rows more than max_lag"),
        ((file, *sides, "--out", file), "a separate file for --out"),
        ((file, *sides, "--plot", "a.txt"), "--plot to end in one of"),
        ((file,), "there is no column 'x'"),
    ):
        code, out, err = run(capsys, *arguments)
        assert (code, out) == (2, "")
        assert match in err, err
