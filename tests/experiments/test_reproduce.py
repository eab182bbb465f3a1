"""Experiments through the real command: lists, flags, results, kills, clusters."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import fields
from itertools import takewhile
from pathlib import Path

import pytest

from experiments import EXPERIMENTS, Config, Options
from experiments.__main__ import main
from experiments.estimation.as_published import AS_PUBLISHED
from experiments.estimation.simulation import CORRECT, FAMILIES

pytest.importorskip("tyro", reason="the command line is made by tyro")
pytest.importorskip("joblib", reason="cells run through joblib")

COMMAND = [sys.executable, "-m", "experiments"]
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}
FEW = ["--methods", "club", "vub", "--tasks", "gaussian", "cubic"]


def run(*arguments, code=0):
    result = subprocess.run(
        [*COMMAND, *map(str, arguments)],
        capture_output=True, text=True, check=False, env=ENVIRONMENT,
    )  # fmt: skip
    assert result.returncode == code, result.stderr
    return result


def without_times(text):
    return [line for line in text.splitlines() if "s of computing" not in line]


def refused(capfd, *arguments, code=2):
    assert main([*map(str, arguments)]) == code
    out, err = capfd.readouterr()
    assert out == ""
    (line,) = err.splitlines()
    return line.removeprefix("mibounds: error: ")


def test_alone_it_lists_the_experiments(capfd):
    assert main([]) == 0
    out, err = capfd.readouterr()
    assert err == ""
    for name, experiment in EXPERIMENTS.items():
        (line,) = (line for line in out.splitlines() if line.startswith(f"{name} "))
        assert experiment.makes in line
        assert experiment.costs in line


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_field_is_a_flag_with_help(name, capfd, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    assert main([name, "--help"]) == 0
    out = capfd.readouterr().out
    lines = [line.strip("│ ") for line in out.splitlines()]
    for field in (*fields(EXPERIMENTS[name].config), *fields(Options)):
        flag = f"--{field.name.replace('_', '-')}"
        (i,) = (i for i, line in enumerate(lines) if line.split(" ")[0] == flag)
        own = takewhile(lambda line: not line.startswith(("--", "╰")), lines[i + 1 :])
        text = " ".join([lines[i], *own])
        assert "(default" in text, flag
        assert len(text.split("(default")[0].split()) > 4, f"{flag} has no help: {text}"


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_what_quick_changes_are_fields(name):
    experiment = EXPERIMENTS[name]
    names = {field.name for field in fields(experiment.config)}
    assert set(experiment.quick) <= names
    assert issubclass(experiment.config, Config)


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    """The folder of a quick run of an experiment, made when it is first asked for."""
    made = {}

    def quick(name):
        if name not in made:
            out = tmp_path_factory.mktemp("out")
            made[name] = out / name, run(name, "--quick", "--out", out).stdout
        return made[name]

    return quick


@pytest.mark.parametrize("name", ["estimation-curves", "estimation-quality"])
def test_quick(name, quick):
    folder, shown = quick(name)
    pictures = [
        f"{name}-{mode}.{kind}" for mode in ("as-published", "correct") for kind in PICTURES
    ]
    files = ["rows.jsonl", "summary.json", "table.md", *pictures]
    assert sorted(path.name for path in folder.iterdir()) == sorted(files)
    for picture in pictures:
        assert (folder / picture).read_bytes().startswith(PICTURES[picture[-3:]])
    assert (folder / "table.md").read_text().strip() == shown.strip()
    summary = json.loads((folder / "summary.json").read_text())
    keys = {"mode", "task", "method", "metric", "mean", "sd", "seeds", "paper"}
    assert all(set(each) == keys for each in summary)
    seen = {(each["mode"], each["task"], each["method"], each["metric"]) for each in summary}
    assert seen == {
        (mode, f"{family}-{level}", method, metric)
        for mode, registry in (("as-published", AS_PUBLISHED), ("correct", CORRECT))
        for family in FAMILIES
        for level in (2, 10)
        for method in registry
        for metric in ("mse", "bias", "variance")
    }
    assert all(each["mean"] is not None and each["seeds"] == 2 for each in summary)
    (club,) = (
        each
        for each in summary
        if (each["mode"], each["task"], each["method"], each["metric"])
        == ("as-published", "cubic-10", "club", "mse")
    )
    assert club["paper"] == 6.93
    by_key = {(e["mode"], e["task"], e["method"], e["metric"]): e["mean"] for e in summary}
    for mode, task, method, metric in by_key:
        if metric == "mse":
            rest = [by_key[mode, task, method, m] for m in ("bias", "variance")]
            assert by_key[mode, task, method, "mse"] >= rest[0] ** 2 + rest[1] - 1e-9
    for family in FAMILIES:  # as the authors' code has it, though not as the equation does
        key = (f"{family}-2", "mse")
        values = {
            (mode, m): by_key[mode, key[0], m, "mse"]
            for mode in ("as-published", "correct")
            for m in ("club", "l1out")
        }
        assert values["as-published", "club"] == values["as-published", "l1out"]
        assert values["correct", "club"] != values["correct", "l1out"]


def test_quick_speed(quick):
    folder, shown = quick("estimation-speed")
    files = ["rows.jsonl", "summary.json", "table.md", *(f"estimation-speed.{k}" for k in PICTURES)]
    assert sorted(path.name for path in folder.iterdir()) == sorted(files)
    summary = json.loads((folder / "summary.json").read_text())
    seen = {(each["mode"], each["task"], each["method"], each["metric"]) for each in summary}
    assert seen == {
        (mode, f"batch-{n}", method, "seconds")
        for mode, registry in (("as-published", AS_PUBLISHED), ("correct", CORRECT))
        for n in (32, 64)
        for method in registry
    }
    assert all(each["mean"] > 0 for each in summary)
    assert "Why the order is what it is" in shown


PICTURES = {"png": b"\x89PNG", "svg": b"<?xml"}


def test_curves_are_kept(quick):
    folder, _ = quick("estimation-curves")
    record = json.loads((folder / "rows.jsonl").read_text().splitlines()[0])
    (curve,) = (row for row in record["rows"] if row["metric"] == "curve")
    assert len(curve["value"]) == 12  # 6 steps at 2 levels
    assert record["command"] == "python -m experiments estimation-curves --quick"


def test_a_kill_half_way_and_a_restart_give_the_same_table(tmp_path):
    name = "estimation-quality"
    whole = run(name, "--quick", *FEW, "--jobs", 1, "--out", tmp_path / "whole")
    arguments = [name, "--quick", *FEW, "--jobs", "1", "--out", str(tmp_path / "killed")]
    cells = tmp_path / "killed" / name / "cells"
    process = subprocess.Popen([*COMMAND, *arguments], env=ENVIRONMENT)
    deadline = time.monotonic() + 60
    while len(list(cells.glob("[!.]*"))) < 4 and time.monotonic() < deadline:
        assert process.poll() is None
        time.sleep(0.002)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    kept = {path.name: path.stat().st_mtime_ns for path in cells.glob("[!.]*")}
    assert 4 <= len(kept) < 16
    again = run(*arguments)
    assert without_times(again.stdout) == without_times(whole.stdout)
    assert "16 of 132 cells" in again.stdout
    assert again.stderr == ""
    files = [folder / name / "summary.json" for folder in (tmp_path / "whole", tmp_path / "killed")]
    assert files[0].read_text() == files[1].read_text()


def test_a_corrupt_file_is_named_on_standard_error(tmp_path):
    arguments = ["estimation-quality", "--quick", "--methods", "vub", "--mode", "as-published"]
    arguments += ["--tasks", "cubic", "--jobs", 1, "--out", tmp_path]
    run(*arguments, "--shard", "1/1")
    path = sorted((tmp_path / "estimation-quality" / "cells").iterdir())[0]
    path.write_text(path.read_text()[:100])
    result = run(*arguments)
    assert f"mibounds: {path} cannot be read, its cell is computed again" in result.stderr
    assert "2 of 132 cells" in result.stdout


@pytest.fixture
def cluster(tmp_path):
    """The address of a scheduler with two workers, each a process on this machine."""
    pytest.importorskip("distributed", reason="needs the extra dask")
    file = tmp_path / "scheduler.json"
    common = ["--scheduler-file", str(file), "--no-dashboard"]
    start = {"scheduler": ["--host", "127.0.0.1", "--port", "0"], "worker": ["--nthreads", "1"]}
    processes = []
    for kind in ("scheduler", "worker", "worker"):
        module = f"distributed.cli.dask_{kind}"
        command = [sys.executable, "-m", module, *start[kind], *common]
        if kind == "worker":
            command += ["--no-nanny", "--host", "127.0.0.1", "--local-directory", str(tmp_path)]
        log = (tmp_path / f"{len(processes)}.log").open("w")
        processes.append(subprocess.Popen(command, stdout=log, stderr=log, env=ENVIRONMENT))
        log.close()
        deadline = time.monotonic() + 60
        while not file.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
    yield json.loads(file.read_text())["address"], processes
    for process in reversed(processes):
        process.kill()
        process.wait()


TASKS_SEEN = """
import sys
from distributed import Client
with Client(sys.argv[1]) as client:
    print(client.run_on_scheduler(lambda dask_scheduler: list(dask_scheduler.task_prefixes)))
"""


def test_on_a_cluster_of_dask(cluster, tmp_path):
    address, processes = cluster
    name = "estimation-quality"
    here = run(name, "--quick", *FEW, "--jobs", 1, "--out", tmp_path / "here")
    flags = ["--quick", *FEW, "--backend", "dask", "--scheduler", address]
    result = run(name, *flags, "--out", tmp_path / "there")
    assert without_times(result.stdout) == without_times(here.stdout)
    assert "16 of 132 cells" in result.stdout
    assert (
        "_work"
        in subprocess.run(  # computed there, not here
            [sys.executable, "-c", TASKS_SEEN, address], capture_output=True, text=True, check=True
        ).stdout
    )
    processes[2].kill()  # with a single thread joblib would compute in the command itself
    processes[2].wait()
    time.sleep(0.5)
    left = run(name, *flags, "--out", tmp_path / "less", code=2).stderr
    assert "Expected workers with at least 2 threads in all" in left
    assert "start more with: dask worker" in left


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["estimation-qualty"], "Unrecognized options: estimation-qualty; Available subcommands: "),
        (["estimation-quality", "--step", "3"], "Perhaps you meant: --steps INT"),
        (["estimation-quality", "--seeds", "many"], "--seeds: expected a whole number, got 'many'"),
        (["estimation-quality", "--mode", "wrong"], "as-published"),
        (["estimation-quality", "--methods", "mlp"], "Expected --methods among vub, nwj, "),
        (["estimation-quality", "--shard", "5/4"], "Expected --shard i/n with 1 <= i <= n"),
        (["estimation-quality", "--steps", "0"], "Expected --steps of at least 1 but got 0"),
        (["estimation-quality", "--batch-size", "20"], "Expected --batch-size above the 20 col"),
        (["estimation-quality", "--levels"], "Expected --levels with a number of nats"),
        (["estimation-quality", "--levels", "0"], "Expected --levels above 0 nats but got 0"),
        (["estimation-quality", "--last", "5000"], "Expected --last of at most the 4000 steps"),
        (["estimation-quality", "--lr", "0"], "Expected --lr above 0 but got 0"),
    ],
)
def test_refusals_in_one_line(arguments, message, capfd, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert message in refused(capfd, *arguments)
    assert not list(tmp_path.iterdir())


def test_a_scheduler_that_is_not_there(capfd, tmp_path, monkeypatch):
    pytest.importorskip("distributed", reason="needs the extra dask")
    flags = ["--quick", "--backend", "dask", "--scheduler", "tcp://127.0.0.1:9", "--out", tmp_path]
    result = run("estimation-quality", *flags, code=2)
    assert "Expected a dask scheduler at --scheduler tcp://127.0.0.1:9 but got" in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_a_failure_is_told_and_named(capfd, tmp_path, monkeypatch):
    experiment = EXPERIMENTS["estimation-quality"]

    def run(config, cells):
        raise OverflowError("too much")

    monkeypatch.setattr(experiment, "run", run)
    flags = ["--quick", "--jobs", "1", "--methods", "club", "--out", str(tmp_path)]
    assert main(["estimation-quality", *flags]) == 1
    lines = capfd.readouterr().err.splitlines()
    assert lines[0] == (
        "mibounds: as-published_gaussian_club_0, as-published_gaussian_club_1 failed: "
        "OverflowError: too much"
    )
    assert lines[-1].startswith("mibounds: error: 6 of 6 groups of cells failed, the first with")
    assert not list(Path(tmp_path).rglob("*.json"))


def test_a_bar_over_the_cells(capfd, tmp_path, monkeypatch):
    pytest.importorskip("rich", reason="the bar is made by rich")
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    monkeypatch.setenv("FORCE_COLOR", "1")
    flags = ["--quick", "--jobs", "1", "--methods", "vub", "--tasks", "gaussian"]
    assert main(["estimation-quality", *flags, "--out", str(tmp_path)]) == 0
    err = capfd.readouterr().err
    assert "4 of 4 cells" in err
    assert "100%" in err


def test_the_documentation_names_what_there_is():
    text = (Path(__file__).parents[2] / "docs" / "reproduce.md").read_text()
    for name in ("rows.jsonl", "summary.json", "table.md", "cells/", "--shard", "--backend ray"):
        assert name in text
    commands = [line.split("#")[0].split() for line in text.splitlines() if "mibounds rep" in line]
    assert {words[2] for words in commands if len(words) > 2 and words[0] == "mibounds"} <= set(
        EXPERIMENTS
    )
