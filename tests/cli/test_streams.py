"""Standard files that are closed, full or broken; results that are printed and written anyway."""

import json
import subprocess
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from mibounds.cli import main
from mibounds.cli.commands import Command, Failure
from mibounds.cli.outputs import deliver
from mibounds.cli.program import run
from mibounds.cli.terminal import as_json, printable, say, say_table

pytest.importorskip("pyarrow", reason="CSV and Parquet files are read by pyarrow")
pytest.importorskip("tyro", reason="the command line is made by tyro")

# A command that needs no torch, run as a program of its own.
PROGRAM = """
import sys
from dataclasses import dataclass
from mibounds.cli.commands import Command
from mibounds.cli.outputs import as_text, check_targets, deliver
from mibounds.cli.program import run

@dataclass(frozen=True)
class Greet(Command):
    '''Say hello.'''
    out: str = ""
    lines: int = 1
    def run(self):
        if self.lines < 0:
            raise ValueError("too few lines")
        check_targets("data.csv", {"--out": self.out})
        deliver("\\n".join(["hello"] * self.lines), {self.out: as_text("hello")})

@dataclass(frozen=True)
class Other(Command):
    '''Do nothing.'''
    def run(self):
        pass

sys.exit(run("prog", {"greet": Greet, "other": Other}))
"""


def shell(tmp_path, line):
    """Run a line of sh, in which $P is the program: exit code, output, errors, other files."""
    (tmp_path / "program.py").write_text(PROGRAM)
    result = subprocess.run(
        ["sh", "-c", line], env={"P": f"{sys.executable} program.py"}, cwd=tmp_path,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    (tmp_path / "program.py").unlink()
    files = {path.name: path.read_text() for path in tmp_path.iterdir()}
    return result.returncode, result.stdout, result.stderr, files


FULL = "mibounds: error: the output could not be printed: No space left on device; make room, or "
CLOSED = "mibounds: error: standard output is closed; send it to a file, or to /dev/null\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
@pytest.mark.parametrize(
    ("line", "code", "out", "err", "written"),
    [
        ("$P greet --out o <&-", 0, "hello\n", "", {"o": "hello\n"}),
        ("$P greet --out o 2>&-", 0, "hello\n", "", {"o": "hello\n"}),
        ("$P greet --lines -1 2>&-", 2, "", "", {}),
        ("$P greet --out o >&-", 1, "", CLOSED, {}),
        ("$P greet --out o >&- 2>&- <&-", 1, "", "", {}),
        ("$P greet --out o > /dev/full", 1, "", FULL, {"o": "hello\n"}),
        ("$P --help > /dev/full", 1, "", "mibounds: error: ", {}),
        ("$P greet --lines -1 2> /dev/full", 2, "", "", {}),
        ("{ $P greet --lines 99999 --out o; echo $? >&2; } | head -n 1", 0, "hello\n", "141\n",
         {"o": "hello\n"}),
        ("{ $P --help; echo $? >&2; } | :", 0, "", "141\n", {}),
        ("echo old > o; $P greet --out /dev/stdout >> o", 2, "", "mibounds: error: Expected a file",
         {"o": "old\n"}),
    ],
)  # fmt: skip
def test_standard_files_that_are_closed_full_or_broken(tmp_path, line, code, out, err, written):
    found = shell(tmp_path, line)
    assert found[:2] == (code, out)
    assert found[2].startswith(err)
    assert len(found[2].splitlines()) == bool(err)
    assert found[3] == written


# --- what is printed -----------------------------------------------------------------------------

EVIL = "a\x1b[31mRED\x1b]0;title\x07\r\u202eb\x9b2J"
SHOWN = r"a\x1b[31mRED\x1b]0;title\x07\r\u202eb\x9b2J"


def test_a_terminal_is_not_told_what_to_do(capfd):
    assert printable(EVIL) == SHOWN
    assert printable("λ = 1 ± 0.1 ≤ 三 🙂\nnext") == "λ = 1 ± 0.1 ≤ 三 🙂\nnext"
    say(EVIL)
    say_table(("name",), [(EVIL,)])
    out, _ = capfd.readouterr()
    assert out.splitlines() == [SHOWN, "name", SHOWN]


@pytest.fixture
def evil(tmp_path, monkeypatch):
    """A file, one of whose columns has such a name."""
    monkeypatch.chdir(tmp_path)
    rows = np.random.default_rng(0).normal(size=(120, 2))
    lines = [f'"{EVIL}",y', *(f"{a},{a + b}" for a, b in rows)]
    Path("evil.csv").write_text("\n".join(lines), newline="")
    return "evil.csv"


COMMANDS = {
    "estimate": ["--x", "0", "--y", "y", "--budget", "fast", "--method", "gaussian"],
    "rank": [],
    "matrix": [],
    "lags": ["--x", "0", "--y", "y", "--max-lag", "2", "--permutations", "19"],
}


@pytest.mark.parametrize("command", COMMANDS)
def test_names_of_columns_are_printed_as_they_are_written(evil, command, capfd):
    for flags in ([], ["--json"]):
        assert main([command, evil, *COMMANDS[command], *flags, "--out", f"{command}.out"]) == 0
        out, err = capfd.readouterr()
        assert all(c.isprintable() or c == "\n" for c in out + err)
        if command in ("estimate", "lags") and not flags:  # the tables have spaces there
            assert SHOWN in out
    assert out.isascii()
    assert json.dumps(EVIL) in out

    def refuse(name):
        raise AssertionError(name)

    found = json.loads(out, parse_constant=refuse)  # of NaN and infinity
    path = Path("matrix.out/matrix.json" if command == "matrix" else f"{command}.out")
    assert json.loads(path.read_text(encoding="ascii")) == found


def test_errors_and_warnings_are_one_line_each(evil, capfd):
    @dataclass(frozen=True)
    class Warn(Command):
        """Warn.

        Attributes:
            name: of what.
        """

        name: str = ""

        def run(self):
            with warnings.catch_warnings():
                warnings.simplefilter("always")
                warnings.warn(f"odd:\n{self.name}", stacklevel=1)
            raise ValueError(f"bad:\n{self.name}")

    assert run("prog", {"warn": Warn, "other": Warn}, ["warn", "--name", EVIL]) == 2
    out, err = capfd.readouterr()
    shown = SHOWN.replace("\\r", " ")
    assert (out, err) == ("", f"mibounds: odd: {shown}\nmibounds: error: bad: {shown}\n")
    assert main(["estimate", evil, "--x", f"{EVIL[:-1]}"]) == 2
    assert main(["estimate", evil, f"--{EVIL}"]) == 2
    assert main([EVIL]) == 2
    out, err = capfd.readouterr()
    assert len(err.splitlines()) == 3
    assert all(c.isprintable() or c == "\n" for c in out + err)


@pytest.mark.parametrize("command", ["tasks", "methods"])
def test_json_is_ascii(command, capfd):
    assert main([command, "--json"]) == 0
    out = capfd.readouterr().out
    assert out.isascii()
    assert "NaN" not in out
    assert json.loads(out)
    with pytest.raises(ValueError, match="JSON"):
        as_json([float("nan")])


# --- all of it, or as much as can be -------------------------------------------------------------


def test_what_can_be_printed_and_written_is(tmp_path, capfd):
    def fail(path):
        path.write_text("half")
        raise OSError(28, "No space left on device")

    good, bad, worse = (str(tmp_path / name) for name in ("good", "bad", "worse"))
    with pytest.raises(Failure, match=r"worse could not be written: .*No space.*; make room"):
        deliver("result", {bad: fail, "": fail, good: lambda p: p.write_text("whole"), worse: fail})
    out, err = capfd.readouterr()
    assert out == "result\n"
    (line,) = err.splitlines()
    assert "bad could not be written: [Errno 28] No space left on device; make room" in line
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("good", "whole")]


def test_an_interruption_while_printing_loses_no_file(tmp_path, monkeypatch):
    def interrupt(_):
        raise KeyboardInterrupt

    monkeypatch.setattr("mibounds.cli.outputs.say", interrupt)
    with pytest.raises(KeyboardInterrupt):
        deliver("result", {str(tmp_path / "out"): lambda path: path.write_text("whole")})
    assert (tmp_path / "out").read_text() == "whole"


@pytest.mark.parametrize("command", COMMANDS)
def test_results_of_a_folder_that_fills_up_are_printed(evil, command, capfd, monkeypatch):
    """Checked before, and still full in the end."""

    def refuse(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.write_text", refuse)
    if command == "matrix":
        monkeypatch.setattr("mibounds.measure.tables.blocks._Store.__init__", lambda *_: None)
        monkeypatch.setattr("mibounds.measure.tables.blocks._Store.read", lambda *_: None)
        monkeypatch.setattr("mibounds.measure.tables.blocks._Store.write", lambda *_: None)
        Path("out").mkdir()
    assert main([command, evil, *COMMANDS[command], "--out", "out"]) == 1
    out, err = capfd.readouterr()
    assert "evil.csv" in out
    assert "could not be written: [Errno 28] No space left on device; make room" in err
    assert len(err.splitlines()) == 1
