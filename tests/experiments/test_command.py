"""Experiments through the real command: lists, flags, results, kills, clusters."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import fields
from itertools import takewhile
from pathlib import Path

import pytest

from experiments import EXPERIMENTS, Config, Options
from experiments.runner import workers

COMMAND = [sys.executable, "-m", "experiments"]
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}
NAME = "estimation-quality"
FEW = ["--methods", "club", "vub", "--tasks", "gaussian", "cubic"]


def without_times(text):
    return [line for line in text.splitlines() if "s of computing" not in line]


def refused(run, *arguments, code=2):
    out, err = run(*arguments, code=code)
    assert out == ""
    (line,) = err.splitlines()
    return line.removeprefix("mibounds: error: ")


def test_alone_it_lists_the_experiments(run):
    out, err = run()
    assert err == ""
    for name, experiment in EXPERIMENTS.items():
        (line,) = (line for line in out.splitlines() if line.startswith(f"{name} "))
        assert experiment.makes in line
        assert experiment.costs in line


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_field_is_a_flag_with_help(name, run, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    out, _ = run(name, "--help")
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


@pytest.fixture
def whole(run, tmp_path):
    """What the command prints and writes where nothing comes between."""
    out, _ = run(NAME, "--quick", *FEW, "--jobs", 1, "--out", tmp_path / "whole")
    assert re.search(r"\b16 of \d+ cells", out)
    return without_times(out), (tmp_path / "whole" / NAME / "summary.json").read_text()


def test_a_kill_half_way_and_a_restart_give_the_same_table(run, whole, tmp_path):
    arguments = [NAME, "--quick", *FEW, "--jobs", "1", "--out", str(tmp_path / "killed")]
    folder = tmp_path / "killed" / NAME
    process = subprocess.Popen([*COMMAND, *arguments], env=ENVIRONMENT)
    deadline = time.monotonic() + 60
    while len(list(folder.glob("cells/[!.]*"))) < 4 and time.monotonic() < deadline:
        assert process.poll() is None
        time.sleep(0.002)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert 4 <= len(list(folder.glob("cells/[!.]*"))) < 16
    out, err = run(*arguments)
    assert without_times(out) == whole[0]
    assert err == ""
    assert (folder / "summary.json").read_text() == whole[1]


def test_an_interruption_keeps_what_is_finished(tmp_path):
    arguments = [NAME, "--quick", "--methods", "club", "--jobs", "1", "--out", str(tmp_path)]
    pipe = subprocess.PIPE
    process = subprocess.Popen([*COMMAND, *arguments], env=ENVIRONMENT, stderr=pipe, text=True)
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob("*/cells/[!.]*")) and time.monotonic() < deadline:
        assert process.poll() is None
        time.sleep(0.002)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate()
    assert process.returncode == 130
    assert said.splitlines() == [
        "mibounds: finished cells are kept; the same command goes on from there",
        "mibounds: interrupted",
    ]
    assert list(tmp_path.glob("*/cells/[!.]*.json"))


def test_a_corrupt_file_is_named_on_standard_error(run, tmp_path):
    arguments = [NAME, "--quick", "--methods", "vub", "--mode", "as-published"]
    arguments += ["--tasks", "cubic", "--jobs", 1, "--out", tmp_path]
    run(*arguments, "--shard", "1/1")
    path = sorted((tmp_path / NAME / "cells").iterdir())[0]
    path.write_text(path.read_text()[:100])
    out, err = run(*arguments)
    assert f"mibounds: {path} cannot be read, its cell is computed again" in err
    assert re.search(r"\b2 of \d+ cells", out)


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


def test_on_a_cluster_of_dask(run, cluster, whole, tmp_path):
    from distributed import Client

    address, processes = cluster
    flags = ["--quick", *FEW, "--backend", "dask", "--scheduler", address]
    out, _ = run(NAME, *flags, "--out", tmp_path / "there")
    assert without_times(out) == whole[0]
    with Client(address, set_as_default=False) as client:  # computed there, not here
        seen = client.run_on_scheduler(lambda dask_scheduler: list(dask_scheduler.task_prefixes))
    assert any("_work" in name for name in seen)
    processes[2].kill()  # with a single thread joblib would compute in the command itself
    processes[2].wait()
    time.sleep(0.5)
    line = refused(run, NAME, *flags, "--out", tmp_path / "less")
    assert line.startswith("Expected workers with at least 2 threads in all")
    assert "start more with: dask worker" in line


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
def test_refusals_in_one_line(arguments, message, run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert message in refused(run, *arguments)
    assert not list(tmp_path.iterdir())


def test_without_the_extra(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "tyro", None)
    line = refused(run, code=1)
    assert line == "the experiments need tyro; install it with: pip install -e '.[experiments]'"


def test_a_scheduler_that_is_not_there(run, tmp_path, monkeypatch):
    pytest.importorskip("distributed", reason="needs the extra dask")
    monkeypatch.setattr(workers, "PATIENCE", 0.2)
    flags = ["--quick", "--backend", "dask", "--scheduler", "tcp://127.0.0.1:9", "--out", tmp_path]
    line = refused(run, NAME, *flags)
    assert line.startswith("Expected a dask scheduler at --scheduler tcp://127.0.0.1:9 but got")


def test_a_failure_is_told_and_named(run, tmp_path, monkeypatch):
    def fail(config, cells):
        raise OverflowError("too much")

    monkeypatch.setattr(EXPERIMENTS[NAME], "run", fail)
    flags = ["--quick", "--jobs", "1", "--methods", "club", "--out", tmp_path]
    lines = run(NAME, *flags, code=1).err.splitlines()
    assert lines[0] == (
        "mibounds: as-published_gaussian_club_0, as-published_gaussian_club_1 failed: "
        "OverflowError: too much"
    )
    assert lines[-1].startswith("mibounds: error: 6 of 6 groups of cells failed, the first with")
    assert not list(Path(tmp_path).rglob("*.json"))


def test_a_bar_over_the_cells(run, tmp_path, monkeypatch):
    pytest.importorskip("rich", reason="the bar is made by rich")
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    monkeypatch.setenv("FORCE_COLOR", "1")
    flags = ["--quick", "--jobs", "1", "--methods", "vub", "--tasks", "gaussian"]
    _, err = run(NAME, *flags, "--out", tmp_path)
    assert "4 of 4 cells" in err
    assert "100%" in err


def test_the_documentation_names_what_there_is():
    text = (Path(__file__).parents[2] / "docs" / "reproduce.md").read_text()
    for name in ("rows.jsonl", "summary.json", "table.md", "cells/", "--shard", "--backend ray"):
        assert name in text
    names = set(re.findall(r"python -m experiments ([a-z-]+)", text))
    assert names == {*EXPERIMENTS, "data"}
