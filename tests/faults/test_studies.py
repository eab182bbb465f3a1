"""The study of faults, with a small budget; and that it finds what it looks for."""

import json
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = "benchmarks/faults.py"

for package in ("pyarrow", "pandas", "tyro", "matplotlib"):
    pytest.importorskip(package, reason="the study reads and draws")


def test_a_small_study_finds_no_fault(run_script, tmp_path):
    kinds = "files,corpus,pickles,names,arguments,tables,streams,records"
    options = ["--budget", 50, "--seed", 1, "--jobs", 1, "--kinds", kinds, "--out", tmp_path]
    result = run_script(SCRIPT, "run", *options)
    assert result.returncode == 0, result.stderr
    found = json.loads((tmp_path / "faults.json").read_text())
    assert found["failures"] == []
    rows = {row["kind"]: row for row in found["rows"]}
    assert list(rows) == kinds.split(",")
    assert all(row["tried"] == row["held"] == row["number"] + row["warning"] + row["line"] > 1
               for row in rows.values())  # fmt: skip
    assert rows["files"]["tried"] == 50
    for outcome in ("number", "line"):
        assert sum(row[outcome] for row in rows.values()) > 5
    assert [path.name for path in tmp_path.iterdir()] == ["faults.json"]
    assert str(tmp_path) not in (tmp_path / "faults.json").read_text()


FAULTS = """
import json, os, sys, time
from pathlib import Path
sys.path.insert(0, "benchmarks")
import numpy as np
import faults
from faults import Kind, expect

def crash(index, rng, folder):
    if index == 1:
        os.abort()
    return "number"

def hang(index, rng, folder):
    while index == 1:
        pass
    return "line"

def silent(index, rng, folder):
    expect(index != 1, folder / "data.csv")
    return "warning"

def raw(index, rng, folder):
    return {0: "number", 2: "number"}[index]

def greedy(index, rng, folder):
    np.ones(int(6e8 / 8) if index == 1 else 9).sum()
    return "number"

def unknown(index, rng, folder):
    return "fine" if index == 1 else "number"

calls = {"crash": crash, "hang": hang, "silent": silent, "raw": raw, "greedy": greedy,
         "unknown": unknown}
faults.KINDS = {
    name: Kind(name, run, 1.0, None, 0.5 if name == "hang" else 10.0)
    for name, run in calls.items()
}
assert faults.run_case("silent", 1, 0) == ("silent", "FOLDER/data.csv")
out, stop = Path(sys.argv[1]), faults.study

def stopped(todo, seed, jobs, keep):
    stop(todo[:2], seed, jobs, keep)
    raise KeyboardInterrupt

faults.study = stopped
try:
    faults.run(3, 0, 2, list(calls), out)
except KeyboardInterrupt:
    pass
def rest(todo, seed, jobs, keep):
    assert [kind for kind, _ in todo] == list(calls)[2:], todo
    stop(todo, seed, jobs, keep)

faults.study = rest
assert not (out / "faults.json").exists()
faults.run(3, 0, 2, list(calls), out)
"""


def test_every_way_to_fail_is_counted_and_no_other_case_is_lost(run_script, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(FAULTS))
    out = tmp_path / "out"
    result = run_script(script, out)
    assert result.returncode == 0, result.stderr
    found = json.loads((out / "faults.json").read_text())
    assert [(row["tried"], row["held"], row["failed"]) for row in found["rows"]] == 6 * [(3, 2, 1)]
    assert {row["kind"]: list(row["failures"]) for row in found["rows"]} == {
        "crash": ["crash"], "hang": ["time-out"], "silent": ["silent"], "raw": ["traceback"],
        "greedy": ["memory"], "unknown": ["silent"],
    }  # fmt: skip
    assert [each["index"] for each in found["failures"]] == 6 * [1]
    details = {each["kind"]: each["detail"] for each in found["failures"]}
    assert details["silent"] == "FOLDER/data.csv"
    assert found["command"] == "python benchmarks/faults.py run --budget 3 --seed 0"
    assert [path.name for path in out.iterdir()] == ["faults.json"]
