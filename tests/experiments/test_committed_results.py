"""What is committed in results/ is what today's code makes of the committed rows."""

import re
import shlex
from pathlib import Path

import pytest

from experiments import EXPERIMENTS
from experiments.__main__ import choose
from experiments.runner.outputs import publish
from experiments.runner.records import Records, read_records
from experiments.runner.reproduction import select_cells, write_command
from mibounds import ESTIMATORS
from mibounds.cli.program import parse

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results"
FOLDERS = sorted(str(path.parent.relative_to(ROOT)) for path in RESULTS.rglob("table.md"))


@pytest.fixture(scope="module")
def newer():
    """Bounds that are newer than all results: experiments compute them when they are run again."""
    methods = {r.cell.method for name in FOLDERS for r in read_records(ROOT / name)}
    return set(ESTIMATORS) - methods


@pytest.fixture(params=FOLDERS)
def committed(request, monkeypatch, newer):
    """A folder of results, and the command above its tables, parsed."""
    folder = ROOT / request.param
    (words,) = re.findall(
        r"^    python -m (experiments .*)$", (folder / "table.md").read_text(), re.M
    )
    command = parse(*choose(shlex.split(words)[1:]))
    assert command.name == folder.name
    experiment = EXPERIMENTS[command.name]
    known = [c for c in experiment.cells(command.config) if c.method not in newer]
    monkeypatch.setattr(experiment, "cells", lambda _: known)
    return folder, command


def test_there_are_results_of_every_experiment():
    assert {Path(folder).name for folder in FOLDERS} == set(EXPERIMENTS)


def test_the_command_finds_all_its_cells_finished(committed):
    """A cell is known by its name and settings; another default would compute it again."""
    folder, command = committed
    said = []
    done = Records(folder, said.append).read(command.config)
    wanted = select_cells(EXPERIMENTS[command.name], command.config)
    assert wanted
    assert not set(wanted) - set(done)
    assert len(done) == len(read_records(folder))  # and no row is of other settings
    assert not said


def test_the_command_writes_the_same_tables(committed, tmp_path, monkeypatch):
    """Run it again after a change of notes or tables: it only publishes."""
    folder, command = committed
    experiment = EXPERIMENTS[command.name]
    monkeypatch.setattr(experiment, "draw", lambda *_: {})
    done = Records(folder).read(command.config)
    words = write_command(command.name, experiment, command.config)
    publish(tmp_path, command.name, experiment, command.config, done, words)
    for name in ("table.md", "summary.json"):
        assert (tmp_path / name).read_text() == (folder / name).read_text()
