"""The runner of experiments, by a toy: what is kept, skipped, named and redone."""

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import pytest
import torch

from experiments import Cell, Config, Experiment, Failed, Options, Record, reproduce
from experiments.runner.base import digest
from experiments.runner.records import Records
from experiments.runner.reproduction import write_command
from experiments.runner.summaries import Summary, summarise, tabulate
from experiments.runner.workers import pick_device, set_queues
from experiments.states import write_state

pytest.importorskip("joblib", reason="cells run through joblib")


@dataclass(frozen=True)
class ToyConfig(Config):
    """A toy.

    Attributes:
        factor: what to multiply the seed by.
        levels: finer tasks.
        loud: nothing.
    """

    seeds: int = 3
    factor: float = 2.0
    levels: tuple[int, ...] = (2, 4)
    loud: bool = False


class Toy(Experiment[ToyConfig]):
    """Multiplies the seed."""

    config = ToyConfig
    makes = "Multiples of the seed"
    costs = "nothing"
    quick: ClassVar = {"seeds": 2, "levels": (2,)}
    paper: ClassVar = {("one-2", "club", "mse"): 0.5}
    notes = "A toy."

    def __init__(self):
        self.computed, self.broken = [], set()

    def cells(self, config):
        return [
            Cell(mode, task, method, seed)
            for mode in ("as-published", "correct")
            for task in ("one", "two")
            for method in ("club", "nwj")
            for seed in range(config.seeds)
        ]

    def run(self, config, cells):
        assert config.device == "cpu"
        for cell in cells:
            if cell.name in self.broken:
                raise KeyboardInterrupt if "kill" in self.broken else OverflowError("too much")
            self.computed.append(cell)
        return [
            [
                {
                    "task": f"{cell.task}-{level}",
                    "metric": "mse",
                    "value": config.factor * cell.seed,
                }
                for level in config.levels
            ]
            + [{"task": cell.task, "metric": "curve", "value": [1.0, float("nan")]}]
            for cell in cells
        ]

    def draw(self, config, records, summary):
        from matplotlib.figure import Figure

        figure = Figure()
        figure.subplots().plot([each.mean for each in summary])
        return {"toy": figure}


@pytest.fixture
def toy():
    return Toy()


@pytest.fixture
def go(toy, tmp_path):
    """Runs the toy in this process and gives the table; `said` is what it told on the way."""

    def go(experiment=toy, progress=None, **fields):
        names = {"quick", "out", "jobs", "backend", "scheduler", "shard"}
        options = {k: fields.pop(k) for k in list(fields) if k in names}
        config = ToyConfig(**{"device": "cpu", **fields})
        options = Options(**{"out": str(tmp_path), "jobs": 1, **options})
        return reproduce("toy", experiment, config, options, progress, go.said.append)

    go.said = []
    return go


def read(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_rows_summary_table_and_figures(go, toy, tmp_path):
    text = go()
    folder = tmp_path / "toy"
    assert sorted(path.name for path in folder.iterdir()) == [
        "rows.jsonl", "summary.json", "table.md", "toy.svg",
    ]  # fmt: skip
    assert (folder / "table.md").read_text() == text
    assert (folder / "toy.svg").read_bytes().startswith(b"<?xml")
    lines = read(folder / "rows.jsonl")
    assert len(lines) == len(toy.computed) == 24
    first = lines[0]
    assert first["cell"] == {
        "mode": "as-published", "task": "one", "method": "club", "seed": 0,
    }  # fmt: skip
    assert first["config"] == {"factor": 2.0, "levels": [2, 4], "loud": False}
    assert first["command"] == "python -m experiments toy --device cpu"
    assert {"mibounds", "torch", "numpy", "python", "device"} == set(first["versions"])
    assert first["seconds"] >= 0
    assert first["rows"][-1]["value"] == [1.0, None]  # not a number, which JSON does not know
    summary = json.loads((folder / "summary.json").read_text())
    assert summary[0] == {
        "mode": "as-published", "task": "one-2", "method": "club", "metric": "mse",
        "mean": 2.0, "sd": 2.0, "seeds": 3, "paper": 0.5,
    }  # fmt: skip
    assert len(summary) == 2 * 2 * 2 * 2  # without the curves
    assert "| club | 2.00 ± 2.00 (0.50) | 2.00 ± 2.00 |" in text
    assert "python -m experiments toy" in text
    assert "24 of 24 cells" in text
    assert text.endswith("A toy.\n")


def test_the_same_run_writes_the_same_bytes(go, tmp_path):
    go()
    folder = tmp_path / "toy"
    before = {p.name: p.read_bytes() for p in folder.iterdir()}
    go()
    assert {p.name: p.read_bytes() for p in folder.iterdir()} == before


def test_finished_cells_are_skipped(go, toy):
    go(mode="correct", methods=("club",))
    assert len(toy.computed) == 6
    go(mode="correct")
    assert len(toy.computed) == 12
    assert len(set(toy.computed)) == 12
    assert "12 of 24 cells" in go(mode="correct", tasks=("two",))
    go()
    assert len(set(toy.computed)) == len(toy.computed) == 24
    go(seeds=5)
    assert {cell.seed for cell in toy.computed[24:]} == {3, 4}
    go(factor=3.0)  # other settings are other cells ...
    assert len(toy.computed) == 40 + 24
    text = go()  # ... and leave the old ones as they are
    assert len(toy.computed) == 40 + 24
    assert "2.00 ± 2.00" in text


def test_what_was_finished_before_a_kill_is_kept(go, toy, tmp_path):
    toy.broken = {"correct_one_nwj_1", "kill"}
    with pytest.raises(KeyboardInterrupt):
        go()
    assert len(list((tmp_path / "toy" / "cells").iterdir())) == 16
    assert len(toy.computed) == 16
    assert not (tmp_path / "toy" / "summary.json").exists()
    toy.broken = set()
    again = go()
    assert len(set(toy.computed)) == len(toy.computed) == 24
    assert not (tmp_path / "toy" / "cells").exists()
    whole = go(out=str(tmp_path / "other"))
    drop = "s of computing"
    assert [x for x in again.splitlines() if drop not in x] == [
        x for x in whole.splitlines() if drop not in x
    ]


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[: len(text) // 2],
        lambda text: "",
        lambda text: "[1, 2]",
        lambda text: json.dumps(json.loads(text) | {"rows": []}),
        lambda text: json.dumps(json.loads(text) | {"rows": [{"task": "one"}]}),
        lambda text: json.dumps({k: v for k, v in json.loads(text).items() if k != "config"}),
        lambda text: json.dumps(json.loads(text) | {"config": {"factor": 9.0}}),
        lambda text: "\x00\xff" * 20,
    ],
)
def test_a_corrupt_file_is_named_and_redone(go, toy, tmp_path, damage):
    go(shard="1/1")  # leaves the files of the cells apart
    path = sorted((tmp_path / "toy" / "cells").iterdir())[5]
    name = path.name.rsplit("_", 1)[0]
    text = path.read_text()
    path.write_text(damage(text))
    toy.computed.clear()
    go(shard="1/1")
    assert [cell.name for cell in toy.computed] == [name]
    (said,) = go.said
    assert str(path) in said
    assert "is computed again" in said
    strip = {"seconds": 0}
    assert json.loads(path.read_text()) | strip == json.loads(text) | strip


def test_a_corrupt_line_is_named_and_redone(go, toy, tmp_path):
    go()
    path = tmp_path / "toy" / "rows.jsonl"
    lines = path.read_text().splitlines()
    lines[3] = lines[3][:50]
    path.write_text("\n".join(lines))
    toy.computed.clear()
    go()
    assert [cell.name for cell in toy.computed] == ["as-published_one_nwj_0"]
    assert "rows.jsonl, line 4 cannot be read" in go.said[0]
    assert len(read(path)) == 24


def test_a_file_that_was_being_written_is_no_cell(go, tmp_path):
    go(shard="1/1")
    (tmp_path / "toy" / "cells" / ".1234.part.json").write_text("{")
    go(shard="1/1")
    assert not go.said


def test_shards(go, toy, tmp_path):
    seen = []
    for i in (1, 2, 3):
        toy.computed.clear()
        assert go(shard=f"{i}/3") == ""
        seen += toy.computed
        assert len(toy.computed) == 8
    assert len(set(seen)) == 24
    assert [path.name for path in (tmp_path / "toy").iterdir()] == ["cells"]
    toy.computed.clear()
    assert "24 of 24 cells" in go()
    assert not toy.computed


def test_a_part_stays_the_same_part_when_cells_are_finished(go, toy):
    go(shard="1/2")
    first = list(toy.computed)
    toy.computed.clear()
    go(shard="1/2")
    assert not toy.computed
    go(shard="2/2")
    assert not set(toy.computed) & set(first)


@pytest.mark.parametrize("shard", ["0/2", "3/2", "1", "a/b", "1/0", "-1/2"])
def test_a_shard_that_is_none(go, shard):
    with pytest.raises(ValueError, match=r"Expected --shard i/n .* but got .*; the second of four"):
        go(shard=shard)


def test_a_group_is_computed_at_once(go, toy, tmp_path, monkeypatch):
    calls = []

    def run(config, cells):
        calls.append(len(cells))
        return Toy.run(toy, config, cells)

    monkeypatch.setattr(toy, "run", run)
    monkeypatch.setattr(toy, "groups", lambda config, cells: [list(cells[:20]), list(cells[20:])])
    go()
    assert calls == [20, 4]
    assert len(read(tmp_path / "toy" / "rows.jsonl")) == 24


def test_a_cell_that_fails_stops_no_other(go, toy, tmp_path):
    toy.broken = {"correct_one_nwj_1"}
    with pytest.raises(
        Failed, match=r"1 of 24 groups .* OverflowError: too much; run the same command"
    ):
        go()
    assert len(toy.computed) == 23
    assert go.said == ["correct_one_nwj_1 failed: OverflowError: too much"]
    assert "23 of 24 cells" in (tmp_path / "toy" / "table.md").read_text()
    toy.broken = set()
    assert "24 of 24 cells" in go()
    assert len(toy.computed) == 24


def test_states_are_kept_until_all_is_done(go, toy, tmp_path, monkeypatch):
    run = toy.run

    def leave_a_state(config, cells):
        states = Path(config.checkpoints)
        states.mkdir(parents=True, exist_ok=True)
        (states / f"{cells[0].name}.state.npz").touch()
        return run(config, cells)

    monkeypatch.setattr(toy, "run", leave_a_state)
    toy.broken = {"correct_two_nwj_1"}
    with pytest.raises(Failed):
        go()
    assert (tmp_path / "toy" / "checkpoints" / "correct_two_nwj_1.state.npz").exists()
    toy.broken = set()
    go()
    assert not (tmp_path / "toy" / "checkpoints").exists()


def test_a_folder_of_states_keeps_what_else_it_holds(go, toy, tmp_path, monkeypatch):
    run, mine = toy.run, tmp_path / "mine"
    seen = set()

    def leave_a_state(config, cells):
        states = Path(config.checkpoints)
        write_state(states / f"{cells[0].name}.state.npz", {}, {})
        (states / ".0123456789abcdef.part.npz").touch()  # of a process that was killed
        seen.add(states)
        return run(config, cells)

    monkeypatch.setattr(toy, "run", leave_a_state)
    (mine / "thesis").mkdir(parents=True)
    for name in ("thesis/chapter.tex", "weights.npz", "other.state.npz"):
        (mine / name).write_text("years of work")
    kept = sorted(mine.rglob("*"))
    go(checkpoints=str(mine))
    assert sorted(mine.rglob("*")) == kept
    (states,) = seen
    assert states.parent == mine
    (states / "yours").mkdir(parents=True)
    (states / "yours.txt").touch()
    go(checkpoints=str(mine), factor=3.0)
    assert {path.name for path in states.iterdir()} == {"yours", "yours.txt"}


@pytest.mark.parametrize("mode", ["../../x", "/x", ".x", "a/b", "a\nb"])
def test_a_record_cannot_name_files_elsewhere(mode, go, tmp_path):
    go()
    rows = tmp_path / "toy" / "rows.jsonl"
    first, *rest = rows.read_text().splitlines()
    record = json.loads(first)
    record["cell"]["mode"] = mode
    yours = tmp_path / f"x_one_club_0_{digest(record['config'])}.json"
    yours.write_text("years of work")
    rows.write_text("\n".join([json.dumps(record), *rest]) + "\n")
    go()
    assert "Expected the name of a cell" in go.said[0]
    assert yours.exists()
    assert len(rows.read_text().splitlines()) == 24


def test_what_takes_time_is_measured_alone(go, toy, monkeypatch):
    monkeypatch.setattr(toy, "alone", True)
    go(jobs=0)
    assert len(toy.computed) == 24  # in this process, one after the other


def test_rows_for_every_cell(go, toy, monkeypatch):
    monkeypatch.setattr(toy, "run", lambda config, cells: [])
    with pytest.raises(Failed, match="Expected rows for each of 1 cells but got 0"):
        go()


def test_quick_changes_what_was_left_at_its_default(go, toy):
    text = go(quick=True)
    assert {cell.seed for cell in toy.computed} == {0, 1}
    assert "python -m experiments toy --quick --device cpu" in text
    assert "one-4" not in text
    toy.computed.clear()
    go(quick=True, seeds=1, levels=(4,))
    assert {cell.seed for cell in toy.computed} == {0}


def test_quick_runs_do_not_touch_the_results(go, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    go(quick=True, out="")
    assert (tmp_path / "out" / "toy" / "table.md").exists()
    go(out="", seeds=1)
    assert (tmp_path / "results" / "toy" / "table.md").exists()


def test_the_command_names_what_differs(toy):
    config = ToyConfig(mode="correct", tasks=("one", "two"), loud=True, levels=(6,), factor=0.5)
    assert write_command("toy", toy, config) == (
        "python -m experiments toy --mode correct --tasks one two --factor 0.5 --levels 6 --loud"
    )
    assert write_command("toy", toy, ToyConfig(seeds=2, levels=(2,)), quick=True) == (
        "python -m experiments toy --quick"
    )


def test_progress(go):
    told = []
    go(progress=lambda share, what: told.append((share, what)))
    assert told[0] == (0.0, "0 of 24 cells")
    assert told[-1] == (1.0, "24 of 24 cells")
    assert len(told) == 25
    told.clear()
    go(progress=lambda *what: told.append(what))
    assert not told


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"seeds": 0}, r"Expected --seeds of at least 1 but got 0; "),
        ({"tasks": ("three",)}, r"Expected --tasks among one, two but got 'three'; leave --tasks"),
        ({"methods": ("vub",)}, r"Expected --methods among club, nwj but got 'vub'; leave"),
        ({"device": "gpu"}, r"Expected --device to be auto, cpu, cuda or cuda:1 but got 'gpu'; "),
        ({"scheduler": "tcp://a:1"}, r"Expected --backend dask or ray .* but got loky; add"),
        ({"backend": "dask"}, r"Expected --scheduler ADDRESS .* but got none; start one with"),
    ],
)
def test_refusals(go, fields, message):
    with pytest.raises(ValueError, match=message):
        go(**fields)


def test_a_choice_without_cells(go, toy, monkeypatch):
    cells = [cell for cell in toy.cells(ToyConfig()) if cell.mode == "correct"]
    monkeypatch.setattr(toy, "cells", lambda config: cells)
    with pytest.raises(
        ValueError, match=r"Expected a choice .* --mode as-published with all; leave"
    ):
        go(mode="as-published")


def test_a_file_where_the_folder_should_be(go, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match=r"Expected a folder for --out but '.*file' is a file"):
        go(out=str(tmp_path / "file"))


def test_without_the_extras(go, monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ImportError, match=r"pip install -e '\.\[dask\]'"):
        go(backend="dask", scheduler="tcp://127.0.0.1:1")
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ImportError, match=r"--backend ray needs ray; install it with"):
        go(backend="ray")
    monkeypatch.setitem(sys.modules, "joblib", None)
    with pytest.raises(ImportError, match=r"pip install -e '\.\[experiments\]'"):
        go()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there(go):
    with pytest.raises(
        ValueError, match=r"Expected a GPU for --device cuda but .* none here; leave"
    ):
        go(device="cuda")


def test_a_ray_cluster_that_is_not_there(go, monkeypatch):
    def init(address, **_):
        raise ConnectionError(f"nobody at {address}")

    ray = SimpleNamespace(init=init)
    names = ("ray", "ray.util", "ray.util.joblib")
    for name, module in zip(names, (ray, ray, SimpleNamespace(register_ray=None)), strict=True):
        monkeypatch.setitem(sys.modules, name, module)
    with pytest.raises(ValueError, match=r"Expected a ray cluster at .* auto .* nobody at"):
        go(backend="ray")


def test_auto_is_the_gpu_where_there_is_one(monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    assert pick_device("auto") == "cuda"
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert pick_device("auto") == "cpu"
    assert pick_device("cuda:1") == "cuda:1"


# --- summaries -----------------------------------------------------------------------------------


def row(value, metric="mse", task="one-2"):
    return {"task": task, "metric": metric, "value": value}


def test_spread_over_seeds():
    cells = [("correct", "club", seed, [row(value)]) for seed, value in enumerate((1.0, 2.0, 6.0))]
    assert summarise(cells, {}) == [
        Summary("correct", "one-2", "club", "mse", 3.0, pytest.approx(7**0.5), 3, None)
    ]
    (alone,) = summarise(cells[:1], {})
    assert (alone.mean, alone.sd) == (1.0, None)
    (broken,) = summarise([*cells, ("correct", "club", 3, [row(None)])], {})
    assert (broken.mean, broken.sd, broken.seeds) == (None, None, 4)
    assert broken.text == "not finite"


def test_metrics_of_oracles_are_shown_and_others_are_not():
    rows = [row(1.0, "accuracy_oracle"), row(1.0, "curve"), row(0.5, "seconds")]
    metrics = [each.metric for each in summarise([("recipe", "club", 0, rows)], {})]
    assert metrics == ["accuracy_oracle", "seconds"]


def test_levels_of_a_family_make_a_table():
    tasks = ("cubic-2", "cubic-10", "cubic-w-2", "mnist-usps", "usps-mnist")
    summary = [Summary("correct", task, "club", "mse", 1.0, 0.5, 2, None) for task in tasks]
    text = tabulate(summary)
    assert "| method | cubic-2 | cubic-10 |" in text
    assert "| method | cubic-w-2 |" in text
    assert "| method | mnist-usps | usps-mnist |" in text
    assert text.count("| club | 1.00 ± 0.50 |") == 3


# --- records -------------------------------------------------------------------------------------


def test_joining_keeps_records_of_other_settings(tmp_path):
    records = Records(tmp_path)
    cell = Cell("correct", "one", "club", 0)
    for factor in (1.0, 2.0):
        records.write(Record(cell, {"factor": factor}, (row(factor),), 0.0, "", {}))
    assert len(list((tmp_path / "cells").iterdir())) == 2
    records.join([cell])
    assert len(read(tmp_path / "rows.jsonl")) == 2
    assert not (tmp_path / "cells").exists()
    newer = Record(cell, {"factor": 2.0}, (row(5.0),), 0.0, "", {})
    records.write(newer)
    records.join([cell])
    assert len(read(tmp_path / "rows.jsonl")) == 2
    assert "5.0" in Path(tmp_path / "rows.jsonl").read_text()


def test_processes_that_share_a_gpu_take_fewer_queues(monkeypatch):
    name = "CUDA_DEVICE_MAX_CONNECTIONS"
    for jobs, queues in ((0, "32"), (1, "32"), (4, "4")):
        monkeypatch.delenv(name, raising=False)
        set_queues(jobs)
        assert os.environ[name] == queues
    monkeypatch.setenv(name, "7")  # who sets it knows why
    set_queues(4)
    assert os.environ[name] == "7"


def test_a_cell_is_known_by_the_settings_of_its_own(tmp_path):
    @dataclass(frozen=True)
    class ByMode(Config):
        recipe: int = 1

        def settings_of(self, cell):
            return {"recipe": self.recipe} if cell.mode == "recipe" else {}

    cells = [Cell(mode, "gaussian", "club", 0) for mode in ("correct", "recipe")]
    records = Records(tmp_path)
    for cell in cells:
        rows = ({"task": "gaussian", "metric": "mse", "value": 0.5},)
        records.write(Record(cell, ByMode().settings_of(cell), rows, 1.0, "", {}))
    assert list(records.read(ByMode())) == cells
    assert list(records.read(ByMode(recipe=2))) == cells[:1]
