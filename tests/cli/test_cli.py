"""The command line: what it passes on, what it prints and writes, and how it fails."""

import inspect
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import mibounds as mb
from mibounds import cli
from mibounds.cli import COMMANDS, Command, main
from mibounds.cli.estimation import EstimateCommand
from mibounds.cli.terminal import progress_bar
from mibounds.measure.estimation import Estimate

pytest.importorskip("pyarrow", reason="CSV and Parquet files are read by pyarrow")
pytest.importorskip("tyro", reason="the command line is made by tyro")

CSV = "id,a,b,c,label,z\n1,0.1,0.2,0.3,yes,1.5\n2,0.4,0.5,0.6,no,2.5\n3,0.7,0.8,0.9,yes,3.5\n"

DEFAULTS = inspect.signature(mb.estimate).parameters  # before `calls` replaces it


@dataclass(frozen=True)
class Result:
    """As much of an Estimate as the command line needs."""

    nats: float = 1.25

    def __str__(self):
        return f"{self.nats} nats ± λ"

    def to_json(self):
        return json.dumps({"nats": self.nats, "warnings": []})

    def plot(self, ax):
        ax.plot([0, 1], [0, self.nats])


@pytest.fixture
def calls(monkeypatch):
    """Calls of `estimate` and `write_report`, which compute nothing here."""
    seen = []

    def estimate(x, y, given=None, **options):
        sides = {"x": x, "y": y, "given": given}
        arrays = {k: None if v is None else v.array(list(v.columns)) for k, v in sides.items()}
        seen.append(arrays | options)
        return Result()

    def write_report(path, estimate, x, y, **options):
        seen.append({"path": path, "estimate": estimate, "x": x, "y": y, **options})
        Path(path).write_text("<html></html>")

    monkeypatch.setattr("mibounds.measure.estimation.estimate", estimate)
    monkeypatch.setattr("mibounds.measure.report.write_report", write_report)
    return seen


@pytest.fixture
def data(tmp_path, monkeypatch):
    """The folder with the file, as the working directory."""
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "data.csv").write_text(CSV)
    monkeypatch.chdir(folder)
    return folder


def run(command):
    return main(command.split())


def refused(capfd, *arguments, code=2):
    """The one line on standard error, with nothing else printed."""
    assert main([str(argument) for argument in arguments]) == code
    out, err = capfd.readouterr()
    assert out == ""
    assert "Traceback" not in err
    (line,) = err.splitlines()
    assert line.startswith("mibounds: ")
    return line.removeprefix("mibounds: error: ")


# --- estimate ------------------------------------------------------------------------------------


def test_the_columns_reach_the_estimate(calls, data, capfd):
    assert main(["estimate", "data.csv", "--x", "a:c", "--y", "label", "--given", "z"]) == 0
    (call,) = calls
    assert call["x"].tolist() == [[0.1, 0.2, 0.3], [0.4, 0.5, 0.6], [0.7, 0.8, 0.9]]
    assert call["y"].tolist() == [[0], [1], [0]]
    assert call["y"].dtype == np.int64
    assert call["given"].tolist() == [[1.5], [2.5], [3.5]]
    assert call["x_kinds"] is None
    assert call["y_kinds"] == ["discrete"]
    assert call["given_kinds"] is None
    out, err = capfd.readouterr()
    assert err == ""
    assert out == "data.csv, 3 rows: I(a, b, c; label | z)\n\n1.25 nats ± λ\n"


def test_defaults_are_those_of_estimate(calls, data):
    assert main(["estimate", "data.csv", "--x", "a", "--y", "b"]) == 0
    (call,) = calls
    del call["x"], call["y"]
    assert call == {name: DEFAULTS[name].default for name in call}
    assert len(call) == 13


def test_options_reach_the_estimate(calls, data):
    command = (
        "estimate data.csv --x a,id --y label,b --method club,ksg --budget fast --discrete id "
        "--continuous b --permutations 99 --level 0.9 --seed 7 --block 5"
    )
    assert run(command) == 0
    (call,) = calls
    assert call["methods"] == ["club", "ksg"]
    assert call["budget"] == "fast"
    assert call["x_kinds"] == [None, "discrete"]
    assert call["y_kinds"] == ["discrete", "continuous"]
    assert (call["permutations"], call["level"], call["seed"], call["block"]) == (99, 0.9, 7, 5)


def test_some_rows_of_a_file_and_the_result_says_so(calls, data, capfd):
    (data / "many.csv").write_text("a,b\n" + "".join(f"{k},{k % 9}\n" for k in range(200)))
    assert run("estimate many.csv --x a --y b --rows 50 --out out.json") == 0
    assert capfd.readouterr().out.startswith("many.csv, 50 of 200 rows, drawn at random: I(a; b)")
    (call,) = calls
    assert call["x"].shape == (50, 1)
    record = json.loads(Path("out.json").read_text())
    assert (record["rows_in_file"], record["rows_read"], record["dropped"]) == (200, 50, 0)
    assert run("estimate many.csv --x a --y b --rows 50 --seed 1") == 0
    assert calls[1]["x"].tolist() != call["x"].tolist()
    assert run("estimate many.csv --x a --y b --rows 50 --block 10") == 0
    assert (calls[2]["x"].reshape(5, 10) % 10 == np.arange(10)).all()
    capfd.readouterr()
    assert run("estimate many.csv --x a --y b --rows -1") == 2
    assert "Expected --rows of at least 1 but got -1; leave it out" in capfd.readouterr().err


def test_rows_are_drawn_where_all_would_be_too_many(calls, data, capfd, monkeypatch):
    monkeypatch.setattr("mibounds.cli.estimation.MOST_VALUES", 4)
    assert run("estimate data.csv --x a --y b") == 0
    assert capfd.readouterr().out.startswith("data.csv, 2 of 3 rows, drawn at random")


def test_x_and_y_need_no_flags_where_the_file_names_them(calls, data):
    x, y = np.arange(8.0).reshape(4, 2), np.arange(4)
    np.savez("data.npz", x=x, y=y, other=np.zeros(3))
    assert main(["estimate", "data.npz"]) == 0
    assert np.array_equal(calls[0]["x"], x)
    assert np.array_equal(calls[0]["y"], y[:, None])


def test_only_json_on_standard_output(calls, data, capfd):
    assert main(["estimate", "data.csv", "--x", "a", "--y", "b", "--json"]) == 0
    record = json.loads(capfd.readouterr().out)
    assert record == {
        "file": "data.csv", "x": ["a"], "y": ["b"], "given": [], "rows_in_file": 3,
        "rows_read": 3, "dropped": 0, "nats": 1.25, "warnings": [],
    }  # fmt: skip


def test_missing_values(calls, data, capfd):
    Path("holes.csv").write_text("a,b\n1,2\n,3\n4,5\n")
    line = refused(capfd, "estimate", "holes.csv", "--x", "a", "--y", "b")
    assert "missing values in 1 of 3 rows" in line
    assert "--drop-missing" in line
    assert not calls
    assert run("estimate holes.csv --x a --y b --drop-missing") == 0
    assert calls[0]["x"].tolist() == [[1], [4]]
    assert "2 rows: I(a; b) (1 with missing values left out)" in capfd.readouterr().out


def test_a_constant_shares_nothing(data, capfd):
    rows = "".join(f"{i},5,{i % 7}\n" for i in range(30))
    (data / "constant.csv").write_text("a,b,c\n" + rows)
    assert run("estimate constant.csv --x b --y c") == 0
    printed = capfd.readouterr()
    assert printed.err == ""
    assert printed.out.startswith("constant.csv, 30 rows: I(b; c)\n\nI(x; y)  0.0000 nats")
    assert "Left out 1 column with one value in all rows: b of x" in printed.out


def test_results_are_written(calls, data):
    targets = "--out out.json --plot plot.PNG --report report.html"
    assert run(f"estimate data.csv --x a --y b {targets}") == 0
    assert json.loads(Path("out.json").read_text())["nats"] == 1.25
    assert Path("plot.PNG").read_bytes().startswith(b"\x89PNG")
    assert Path("report.html").read_text() == "<html></html>"
    report = calls[1]
    assert report["estimate"] == Result()
    assert report["names"] == (["a"], ["b"])
    assert report["x"].shape == report["y"].shape == (3, 1)
    assert report["title"] == "data.csv, 3 rows: I(a; b)"
    assert len(list(data.iterdir())) == 4


def test_from_a_file_to_a_number(data, capfd):
    """Without a stub: labels and numbers from a file, by the names of the columns."""
    g = np.random.default_rng(0)
    labels = g.integers(0, 2, 800)
    lines = ["noise,ties,label,z"]
    for i, label in enumerate(labels):
        word = "yes" if label else "no"
        lines.append(f"{label + 0.01 * g.normal()},{i // 80 + 0.5},{word},{label}")
    Path("true.csv").write_text("\n".join(lines))
    command = "estimate true.csv --x noise,ties --y label --budget fast --out out.json"
    assert run(f"{command} --continuous ties --plot out.svg --report out.html --json") == 0
    record = json.loads(capfd.readouterr().out)
    assert record["nats"] == pytest.approx(np.log(2), abs=0.05)
    assert record["config"]["x_kinds"] == ["continuous", "continuous"]
    assert record["config"]["y_kinds"] == ["discrete"]
    assert Estimate.from_json(Path("out.json").read_text()).nats == record["nats"]
    assert "noise" in Path("out.html").read_text()
    assert "<svg" in Path("out.svg").read_text()
    assert run("estimate true.csv --x noise --y label --given z --discrete z --budget fast") == 0
    assert "I(noise; label | z)" in capfd.readouterr().out


def test_long_lists_of_columns_are_shortened(calls, data, capfd):
    assert main(["estimate", "data.csv", "--x", "0:4", "--y", "z"]) == 0
    assert "I(id, a, ..., label; z)" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--out missing/out.json", "for --out but there is no 'missing'; make it first"),
        ("--plot missing/out.png", "for --plot but there is no 'missing'"),
        ("--report missing/out.html", "for --report but there is no 'missing'"),
        ("--out .", "for --out but '.' is a folder"),
        ("--out /dev/null", "for --out but '/dev/null' is a device"),
        ("--out data.csv", "separate file for --out but got 'data.csv', which is that of the data"),
        ("--out a.png --plot ./a.png", "for --plot but got './a.png', which is that of --out"),
        ("--plot a.xyz", "--plot to end in one of"),
        ("--plot a", "--plot to end in one of"),
        ("--report a.pdf", "--report to end in .html but got 'a.pdf'"),
    ],
)
def test_targets_are_checked_before_anything_is_computed(calls, data, capfd, arguments, message):
    line = refused(capfd, *f"estimate data.csv --x a --y b {arguments}".split())
    assert message in line
    assert not calls
    assert [path.name for path in data.iterdir()] == ["data.csv"]
    assert (data / "data.csv").read_text() == CSV


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("estimate", "Missing from mibounds estimate: FILE"),
        ("estimate missing.csv", "there is no file 'missing.csv'"),
        ("estimate .", "is a folder"),
        ("estimate data.csv", "Expected --x, the columns of x: there is no column 'x'"),
        ("estimate data.csv --x a", "Expected --y, the columns of y: there is no column 'y'"),
        ("estimate data.csv --x a,lable --y b", "no column 'lable'; did you mean 'label'"),
        ("estimate data.csv --x a,b --y b", "column 'b' is in both --x and --y"),
        ("estimate data.csv --x a --y b --given a:b", "in both --x and --given"),
        ("estimate data.csv --x a --y b --given q", "no column 'q'"),
        ("estimate data.csv --x a --y b --discrete q", "no column 'q'"),
        ("estimate data.csv --x a --y b --discrete c", "columns that are used but got 'c'"),
        ("estimate data.csv --x a --y b --discrete a --continuous a", "in both --discrete and"),
        ("estimate data.csv --x a --y label --continuous label", "row 1 holds 'yes'"),
        ("estimate data.csv --x a --y b --level", "--level"),
        (
            "estimate data.csv --x a --y b --level high",
            "--level: expected a number, got 'high'",
        ),
        ("estimate data.csv --x a --y b --seed x", "--seed: expected a whole number, got 'x'; see"),
        ("estimate data.csv -x a --y b", "options: -x, a; write --x, with two dashes, or see"),
        ("estimate data.csv --x a --y b -drop-missing", "; write --drop-missing, with two"),
        ("estimate data.csv --x a --y b -level=0.9", "; write --level, with two dashes, or see"),
        ("estimate data.csv --x a --y b --budget huge", "invalid choice 'huge'"),
        ("estimate data.csv --x a --y b --sed 3", "Unrecognized options: --sed, 3; Perhaps you"),
        ("estimat data.csv", "Available subcommands: estimate, rank, matrix, lags, tasks, methods"),
        ("tasks --josn", "Unrecognized options: --josn"),
    ],
)
def test_bad_input_gets_one_line(calls, data, capfd, arguments, message):
    assert message in refused(capfd, *arguments.split())
    assert not calls


BROKEN = {
    "ragged.csv": b"a,b\n1,2\n3\n",
    "text.csv": b"a,b\n1,2\n2,3\nx,4\n",
    "one.csv": b"a,b\n1,2\n",
    "nothing.csv": b"a,b\n",
    "empty.csv": b"",
    "nan.csv": b"a,b\nnan,1\nnan,2\n",
    "latin.csv": "a,b\nü,1\nö,2\n".encode("latin-1"),
    "twice.csv": b"a,b,a\n1,2,3\n4,5,6\n",
    "garbage.csv": bytes(range(256)),
    "really.parquet": b"a,b\n1,2\n3,4\n",
    "cut.parquet": b"PAR1" + bytes(20),
    "cut.npz": b"PK\x03\x04" + bytes(20),
    "cut.npy": b"\x93NUMPY\x01\x00",
    "escape\x1b[31m\nnewline.csv": b"a,b\n1,2\n",
}


def test_links_that_lead_nowhere(data, capfd):
    Path("loop.csv").symlink_to("loop.csv")
    Path("gone.csv").symlink_to("missing.csv")
    columns = ("--x", "a", "--y", "b")
    assert "loop.csv cannot be read: " in refused(capfd, "estimate", "loop.csv", *columns)
    assert "there is no file 'gone.csv'" in refused(capfd, "estimate", "gone.csv", *columns)
    line = refused(capfd, "estimate", "data.csv", *columns, "--out", "loop.csv")
    assert "for --out but 'loop.csv' cannot be reached: " in line
    assert Path("loop.csv").is_symlink()
    Path("link.csv").symlink_to("data.csv")
    line = refused(capfd, "estimate", "data.csv", *columns, "--out", "link.csv")
    assert "which is that of the data; name another file" in line
    line = refused(capfd, "matrix", "data.csv", "--out", "data.csv")
    assert "Expected a folder for --out but 'data.csv' is a file; name a folder" in line
    Path("parts/matrix.json").mkdir(parents=True)
    line = refused(capfd, "matrix", "data.csv", "--out", "parts")
    assert "Expected a file for --out but 'parts/matrix.json' is a folder" in line


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (
            "estimate data.csv --x a --y b --method club,clubb",
            "Expected --method among default, ",
        ),
        ("estimate data.csv --x a --y b --method=", "but got ''; see mibounds methods"),
        (
            "estimate data.csv --x a --y b --level 1.5",
            "Expected --level between 0 and 1 but",
        ),
        (
            "estimate data.csv --x a --y b --level nan",
            "Expected --level between 0 and 1 but",
        ),
        (
            "estimate data.csv --x a --y b --seed -1",
            "Expected --seed of at least 0 but",
        ),
        (
            "estimate data.csv --x a --y b --block 0",
            "Expected --block of at least 1 but",
        ),
        (
            "estimate data.csv --x a --y b --permutations -1",
            "Expected --permutations of at",
        ),
        ("rank data.csv --target a --seed -1", "Expected --seed of at least 0 but got -1"),
        ("rank data.csv --target a --most 0", "Expected --most of at least 1 but got 0"),
        ("matrix data.csv --level 0", "Expected --level between 0 and 1 but got 0.0"),
        ("lags data.csv --x a --y b --max-lag 0", "Expected --max-lag of at least 1 but got 0"),
    ],
)
def test_flags_are_checked_before_the_file_is_read(data, capfd, monkeypatch, command, message):
    def refuse(*_, **__):
        raise AssertionError("the file was read")

    for module in ("estimation", "rankings", "lag_curves"):
        monkeypatch.setattr(f"mibounds.cli.{module}.read_table", refuse)
    assert message in refused(capfd, *command.split())


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize("command", ["estimate many.csv --x a --y b", "matrix many.csv"])
def test_no_gpu(data, capfd, command):
    Path("many.csv").write_text("a,b\n" + "".join(f"{k},{k % 9}.5\n" for k in range(40)))
    line = refused(capfd, *command.split(), "--device", "cuda")
    assert "'cuda'" in line
    assert "leave device out" in line


def test_many_columns_can_be_declared():
    names = [f"c{k}" for k in range(30_000)]
    start = time.perf_counter()
    command = EstimateCommand("data.csv", discrete="*")
    assert command._declared(names, names[::2], "discrete") == names[::2]
    assert time.perf_counter() - start < 5  # half a minute with a set for each of them


@pytest.mark.parametrize("name", BROKEN)
def test_broken_files_get_one_line(calls, data, capfd, name):
    Path(name).write_bytes(BROKEN[name])
    refused(capfd, "estimate", name, "--x", "a", "--y", "b")
    assert not calls


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.sampled_from(["csv", "tsv", "parquet", "npz", "npy"]),
    st.binary(max_size=60) | st.text('ab01,."\n', max_size=30).map(str.encode),
    st.text("ab01:*?,-. x", max_size=6),
)
def test_no_file_and_no_column_crashes_it(calls, data, capfd, ending, contents, pattern):
    calls.clear()
    Path(f"any.{ending}").write_bytes(contents)
    code = main(["estimate", f"any.{ending}", f"--x={pattern}", "--y", "b", "--drop-missing"])
    err = capfd.readouterr().err
    assert (code, len(err.splitlines()), len(calls)) in ((0, 0, 1), (2, 1, 0))
    assert "Traceback" not in err


# --- failures ------------------------------------------------------------------------------------


def failing(error):
    def estimate(*_, **__):
        raise error

    return estimate


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (ValueError("Expected n > 10\nbut got 3."), 2, "error: Expected n > 10 but got 3."),
        (FloatingPointError("loss is nan"), 1, "error: FloatingPointError: loss is nan"),
        (MemoryError(), 1, "error: MemoryError:"),
        (OSError(28, "No space left"), 1, "error: OSError: [Errno 28] No space left"),
        (ImportError("needs zuko"), 1, "error: needs zuko"),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
)
def test_failures_of_the_computation(calls, data, capfd, monkeypatch, error, code, message):
    monkeypatch.setattr("mibounds.measure.estimation.estimate", failing(error))
    assert run("estimate data.csv --x a --y b --out out.json") == code
    assert capfd.readouterr().err.strip() == f"mibounds: {message}"
    assert [path.name for path in data.iterdir()] == ["data.csv"]


def test_a_traceback_on_request(calls, data, monkeypatch):
    monkeypatch.setenv("MIBOUNDS_TRACEBACK", "1")
    monkeypatch.setattr("mibounds.measure.estimation.estimate", failing(RuntimeError("why")))
    with pytest.raises(RuntimeError, match="why"):
        run("estimate data.csv --x a --y b")


@pytest.mark.parametrize(
    ("error", "code"), [(KeyboardInterrupt(), 130), (ValueError("bug"), 1), (OSError("full"), 1)]
)
def test_half_a_report_loses_nothing_else(calls, data, capfd, monkeypatch, error, code):
    def write_half(path, *_, **__):
        Path(path).write_text("<html>")
        raise error

    monkeypatch.setattr("mibounds.measure.report.write_report", write_half)
    Path("report.html").write_text("old")
    command = "estimate data.csv --x a --y b --out out.json --report report.html"
    assert run(command) == code
    out, err = capfd.readouterr()
    assert "1.25 nats" in out
    assert len(err.splitlines()) == 1
    assert Path("report.html").read_text() == "old"
    assert json.loads(Path("out.json").read_text())["nats"] == 1.25
    assert sorted(path.name for path in data.iterdir()) == ["data.csv", "out.json", "report.html"]


SLOW = """
import signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # some shells start jobs that ignore it
import mibounds.measure.estimation
from mibounds.cli import main

def estimate(*_, **__):
    open("started", "w").close()
    time.sleep(60)

mibounds.measure.estimation.estimate = estimate
sys.exit(main(sys.argv[1:]))
"""


def test_ctrl_c(data):
    command = "estimate data.csv --x a --y b --out out.json --plot out.png --report out.html"
    process = subprocess.Popen(
        [sys.executable, "-c", SLOW, *command.split()],
        cwd=data, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    deadline = time.monotonic() + 60
    while not (data / "started").exists() and time.monotonic() < deadline:
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert (out, err) == ("", "mibounds: interrupted\n")
    assert sorted(path.name for path in data.iterdir()) == ["data.csv", "started"]


INTERRUPTED = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)

class Slow:  # a module that is interrupted while it is imported, and takes that for its own failure
    def find_spec(self, name, path=None, target=None):
        if name == "mibounds.cli.estimation":
            try:
                os.kill(os.getpid(), signal.SIGINT)
                sum(range(10_000_000))
            except BaseException:
                raise ImportError("half of it") from None

sys.meta_path.insert(0, Slow())
from mibounds.__main__ import main
sys.exit(main())
"""


def test_ctrl_c_while_modules_are_imported():
    result = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, "tasks"], capture_output=True, text=True, check=False
    )
    found = result.returncode, result.stdout, result.stderr
    assert found == (130, "", "mibounds: interrupted\n")


@pytest.mark.parametrize(("flags", "expected"), [("", 1), (" --threads 2", 2)])
def test_threads_are_set_by_the_flag_and_restored(flags, expected, data, monkeypatch):
    seen = []

    def estimate(*_, **__):
        seen.append(torch.get_num_threads())
        return Result()

    monkeypatch.setattr("mibounds.measure.estimation.estimate", estimate)
    torch.set_num_threads(3)
    try:
        assert run("estimate data.csv --x a --y b" + flags) == 0
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(1)
    assert seen == [expected]


def test_columns_without_commas_between_them(data, capfd):
    assert run("estimate data.csv --x a b --y c") == 2
    err = capfd.readouterr().err
    assert "put commas between the names of columns, or see mibounds estimate --help" in err


def test_a_file_without_a_line_of_names(data, capfd):
    Path("bare.csv").write_text("35.3,1.5,u\n36.1,3.5,v\n" * 20)
    assert run("estimate bare.csv --x age --y group") == 2
    assert "give the file a first line of names, if it has none" in capfd.readouterr().err
    assert run("estimate bare.csv --x 0 --y 2") == 2
    assert "look like a row of data: 35.3, 1.5, u; put a line of names" in capfd.readouterr().err


def test_zero_threads_are_refused(data, capfd):
    assert run("estimate data.csv --x a --y b --threads 0") == 2
    assert "--threads of at least 1 but got 0; leave it out for its" in capfd.readouterr().err


# --- the other commands --------------------------------------------------------------------------


def test_tasks(capfd):
    assert main(["tasks", "--json"]) == 0
    rows = json.loads(capfd.readouterr().out)
    assert [row["name"] for row in rows] == list(mb.TASKS)
    assert {row["name"]: row["nats"] for row in rows}["gaussian-4"] == pytest.approx(4)
    assert main(["tasks"]) == 0
    lines = capfd.readouterr().out.splitlines()
    assert len(lines) == len(mb.TASKS) + 1
    assert lines[0].split() == ["name", "x", "y", "nats"]
    assert lines[3].split() == ["gaussian-4", "20", "20", "4.0000"]
    assert lines[-1].split() == ["labelled-uniform", "1", "5", "labels", f"{rows[-1]['nats']:.4f}"]


def test_methods(capfd):
    assert main(["methods", "--json"]) == 0
    rows = json.loads(capfd.readouterr().out)
    assert [row["name"] for row in rows] == list(mb.METHODS)
    assert all(row["cost"] and row["reference"] and row["condition"] for row in rows)
    kinds = {row["name"]: (row["kind"], row["side"]) for row in rows}
    assert kinds["copula_model"] == ("network", "neither")
    assert kinds["gaussian"] == ("classical", "lower")
    assert kinds["club"] == ("network", "upper")
    assert main(["methods"]) == 0
    lines = capfd.readouterr().out.splitlines()
    assert len(lines) == len(rows) + 1
    assert lines[0].split() == ["name", "kind", "side", "cost", "reference"]
    assert all(row["reference"] in line for row, line in zip(rows, lines[1:], strict=True))


def test_help_and_version(capfd):
    assert main(["--version"]) == 0
    assert capfd.readouterr().out == f"mibounds {mb.__version__}\n"
    for arguments, word in (
        (["--help"], "methods"),
        ([], "methods"),
        (["estimate", "--help"], "--drop-missing"),
        (["tasks", "--help"], "--json"),
    ):
        assert main(arguments) == 0
        out, err = capfd.readouterr()
        assert word in out
        assert err == ""


def test_a_new_command_is_one_class_and_one_line(capfd, monkeypatch):
    @dataclass(frozen=True)
    class Greet(Command):
        """Say hello.

        Attributes:
            name: whom to greet.
        """

        name: str = "you"

        def run(self):
            print(f"hello {self.name}")

    monkeypatch.setitem(COMMANDS, "greet", Greet)
    assert main(["greet", "--name", "her"]) == 0
    assert capfd.readouterr().out == "hello her\n"


def test_as_a_program():
    result = subprocess.run(
        [sys.executable, "-m", "mibounds", "estimate", "missing.csv"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert result.returncode == 2
    told = "there is no file 'missing.csv'; give its path from the current folder, or its full path"
    assert result.stderr == f"mibounds: error: {told}\n"


def test_a_reader_that_stops_early():
    command = f"{sys.executable} -m mibounds methods | head -n 1"
    result = subprocess.run(command, shell=True, capture_output=True, text=True, check=True)
    assert result.stdout.startswith("name")
    assert result.stderr == ""


def test_a_terminal_without_the_characters():
    result = subprocess.run(
        [sys.executable, "-m", "mibounds", "methods"],
        capture_output=True, text=True, check=True, env={**os.environ, "PYTHONIOENCODING": "ascii"},
    )  # fmt: skip
    assert "St\\xf6gbauer" in result.stdout


def test_without_the_extras(calls, data, capfd, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    command = ["estimate", "data.csv", "--x", "a", "--y", "b", "--plot", "a.png"]
    line = refused(capfd, *command, code=1)
    assert line == "--plot needs matplotlib; install it with: pip install 'mibounds[plot]'"
    assert not calls
    monkeypatch.setitem(sys.modules, "tyro", None)
    assert "pip install 'mibounds[cli]'" in refused(capfd, "tasks", code=1)


ROOT = Path(__file__).parents[2]


def test_the_commands_of_the_documentation(calls, data, monkeypatch):
    """Each runs as it stands on the page, over files that hold such columns."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    g = np.random.default_rng(0)
    people = {
        name: g.normal(size=30) for name in ("age", "height", "weight", "city_a", "city_b", "month")
    } | {"group": list("uvw") * 10}
    pq.write_table(pa.table(people), "people.parquet")
    rows = zip(*people.values(), strict=True)
    Path("people.csv").write_text(
        "\n".join([",".join(people), *(",".join(map(str, row)) for row in rows)])
    )
    river = "\n".join(f"{day},{g.random()},{g.random()}" for day in range(120))
    Path("river.csv").write_text(f"day,rain,flow\n{river}\n")
    np.savez(
        "pairs.npz", x=g.normal(size=(30, 3)), y=g.normal(size=30), emb=g.normal(size=(30, 64))
    )
    np.save("matrix.npy", g.normal(size=(30, 20)))
    np.save("emb.npy", g.normal(size=(30, 64)))
    np.save("label.npy", np.arange(30) % 3)
    text = (ROOT / "docs" / "measure-cli.md").read_text()
    (both,) = re.findall(r"^python -c '(.*)'$", text, re.MULTILINE)
    exec(both, {})
    commands = re.findall(r"^mibounds (.*)$", text, re.MULTILINE)
    assert len(commands) > 8
    for command in commands:
        assert main(shlex.split(command)) == 0, command
    estimates = [command for command in commands if command.startswith("estimate")]
    assert len([call for call in calls if "seed" in call]) == len(estimates)


def test_the_documentation_names_every_flag():
    text = (ROOT / "docs" / "measure-cli.md").read_text()
    for field in fields(cli.EstimateCommand):
        if field.name != "file":
            assert f"`--{field.name.replace('_', '-')}" in text, field.name


# --- progress ------------------------------------------------------------------------------------


def test_a_bar_only_on_a_terminal(calls, data, capfd, monkeypatch):
    pytest.importorskip("rich", reason="the bar is made by rich")

    def estimate(x, y, progress, **_):
        progress(0.5, "fold [1]")
        return Result()

    monkeypatch.setattr("mibounds.measure.estimation.estimate", estimate)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert run("estimate data.csv --x a --y b --json") == 0
    out, err = capfd.readouterr()
    assert "fold [1]" in err
    assert "50%" in err
    assert json.loads(out)["nats"] == 1.25
    monkeypatch.setitem(sys.modules, "rich.progress", None)
    with progress_bar() as progress:
        assert progress is None
