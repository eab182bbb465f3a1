"""The runner, by a toy experiment: what is computed, kept, skipped and published."""

import json
import os
from pathlib import Path

import pytest

from experiments import Failed
from experiments.runner.records import Records, read_records
from experiments.runner.reproduction import write_command
from experiments.runner.states import write_state


def test_rows_summary_table_and_figures(go, toy, tmp_path):
    text = go()
    folder = tmp_path / "toy"
    assert sorted(path.name for path in folder.iterdir()) == [
        "rows.jsonl", "summary.json", "table.md", "toy.svg",
    ]  # fmt: skip
    assert (folder / "table.md").read_text() == text
    assert (folder / "toy.svg").read_bytes().startswith(b"<?xml")
    lines = list(map(json.loads, (folder / "rows.jsonl").read_text().splitlines()))
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
    assert go.said == ["finished cells are kept; the same command goes on from there"]
    toy.broken = set()
    again = go()
    assert len(set(toy.computed)) == len(toy.computed) == 24
    assert not (tmp_path / "toy" / "cells").exists()
    whole = go(out=str(tmp_path / "other"))
    drop = "s of computing"
    assert [x for x in again.splitlines() if drop not in x] == [
        x for x in whole.splitlines() if drop not in x
    ]


def test_an_interruption_waits_for_the_cells_of_a_group(go, toy, tmp_path, monkeypatch):
    monkeypatch.setattr(toy, "groups", lambda config, cells: [list(cells[:20]), list(cells[20:])])
    write, calls = Records.write, []

    def interrupted(records, record):
        calls.append(record)
        if len(calls) == 5:
            raise KeyboardInterrupt
        write(records, record)

    monkeypatch.setattr(Records, "write", interrupted)
    with pytest.raises(KeyboardInterrupt):
        go()
    assert len(list((tmp_path / "toy" / "cells").iterdir())) == 20


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
        return type(toy).run(toy, config, cells)

    monkeypatch.setattr(toy, "run", run)
    monkeypatch.setattr(toy, "groups", lambda config, cells: [list(cells[:20]), list(cells[20:])])
    go()
    assert calls == [20, 4]
    assert len(read_records(tmp_path / "toy")) == 24


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
        killed = states / ".0123456789abcdef.part.npz"
        killed.touch()
        os.utime(killed, (0, 0))  # nobody writes to it any more
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
    names = {"yours", "yours.txt", "yours.part.npz", ".0123456789abcde0.part.npz"}
    for name in names - {"yours"}:  # the last is being written by another process
        (states / name).touch()
    go(checkpoints=str(mine), factor=3.0)
    assert {path.name for path in states.iterdir()} == names


def test_what_a_killed_process_left_is_removed(go, tmp_path):
    folder = tmp_path / "toy"
    (folder / "cells").mkdir(parents=True)
    for name in ("cells/.0123456789abcdef.part.json", ".0123456789abcdef.part.jsonl"):
        (folder / name).write_text("{")
        os.utime(folder / name, (0, 0))
    for name in (".mine.part.json", "mine.part"):
        (folder / name).write_text("years of work")
        os.utime(folder / name, (0, 0))
    go()
    assert {path.name for path in folder.iterdir()} == {
        "rows.jsonl", "summary.json", "table.md", "toy.svg", ".mine.part.json", "mine.part",
    }  # fmt: skip


@pytest.mark.parametrize("place", ["", "toy", "toy/cells", "toy/checkpoints", "states"])
def test_a_folder_without_permission_is_noticed_before_the_first_cell(
    place, go, toy, tmp_path, monkeypatch
):
    closed = tmp_path / "out" / place
    closed.mkdir(parents=True)
    allow = os.access
    monkeypatch.setattr(
        os, "access", lambda path, mode: Path(path) != closed and allow(path, mode)
    )  # as the system says to everybody but root
    flag = "--checkpoints" if place == "states" else "--out"
    states = str(tmp_path / "out" / "states") if place == "states" else ""
    with pytest.raises(ValueError, match=rf"Expected a folder to write {flag} to but .* read-only"):
        go(out=str(tmp_path / "out"), checkpoints=states)
    assert not toy.computed


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.jsonl.gz", "summary.json", "table.md"])
def test_a_folder_where_a_file_should_be_is_noticed_before_the_first_cell(name, go, toy, tmp_path):
    (tmp_path / "toy" / name).mkdir(parents=True)
    with pytest.raises(ValueError, match=rf"{name}' is a folder; name"):
        go()
    assert not toy.computed


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
    config = toy.config(mode="correct", tasks=("one", "two"), loud=True, levels=(6,), factor=0.5)
    assert write_command("toy", toy, config) == (
        "python -m experiments toy --mode correct --tasks one two --factor 0.5 --levels 6 --loud"
    )
    assert write_command("toy", toy, toy.config(seeds=2, levels=(2,)), quick=True) == (
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
        ({"backend": "dask"}, r"Expected --scheduler ADDRESS .* but got no address; start"),
    ],
)
def test_refusals(go, fields, message):
    with pytest.raises(ValueError, match=message):
        go(**fields)


def test_a_choice_without_cells(go, toy, monkeypatch):
    cells = [cell for cell in toy.cells(toy.config()) if cell.mode == "correct"]
    monkeypatch.setattr(toy, "cells", lambda config: cells)
    with pytest.raises(
        ValueError, match=r"Expected a choice .* --mode as-published with all; leave"
    ):
        go(mode="as-published")


def test_a_file_where_the_folder_should_be(go, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match=r"Expected a folder for --out but '.*file' is a file"):
        go(out=str(tmp_path / "file"))
