"""Finished cells on disk: named and computed again if damaged, joined, compressed."""

import gzip
import json
from dataclasses import dataclass, replace

import pytest

from experiments import Cell, Config, Record
from experiments.runner import records as module
from experiments.runner.base import digest
from experiments.runner.records import Records, read_records


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
    strip = {"seconds": 0, "checksum": ""}
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
    assert len(read_records(path.parent)) == 24


def test_a_file_that_was_being_written_is_no_cell(go, tmp_path):
    go(shard="1/1")
    (tmp_path / "toy" / "cells" / ".1234.part.json").write_text("{")
    go(shard="1/1")
    assert not go.said


def test_numbers_that_were_changed_are_named_and_computed_again(go, toy, tmp_path):
    go()
    path = tmp_path / "toy" / "rows.jsonl"
    text = path.read_text()
    changed = text.replace('"value": 4.0', '"value": 1.0', 1)
    assert changed != text
    path.write_text(changed)
    toy.computed.clear()
    go()
    assert [cell.name for cell in toy.computed] == ["as-published_one_club_2"]
    assert f"{path}, line 3 cannot be read" in go.said[0]
    assert "their checksum is another; restore the line" in go.said[0]
    assert [r.rows for r in read_records(path.parent)] == [
        Record.from_json(line).rows for line in text.splitlines()
    ]


def test_lines_of_before_there_were_checksums_are_read(go, toy, tmp_path):
    go()
    path = tmp_path / "toy" / "rows.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert all(len(line.pop("checksum")) == 16 for line in lines)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    before = path.read_bytes()
    go()
    assert len(toy.computed) == 24
    assert not go.said
    assert path.read_bytes() == before
    go(seeds=4)  # the others get theirs when they are written again
    assert all("checksum" in json.loads(line) for line in path.read_text().splitlines())


BAD = {
    "seconds": ["1", True, None, 1e400, [1.0]],
    "command": [3, None, "a\x1b[31m", "\ud800"],
    "versions": [{"torch": 2}, [], "torch", {"torch": "a\nb"}],
    "config": [[], "none", 3, None],
    "rows": [{}, [3], [["task", "metric", "value"]], "rows", 7]
    + [[{"task": "one-2", "metric": "mse", "value": v}] for v in ("1", True, [1], {}, 1e400)]
    + [[{"task": t, "metric": "mse", "value": 1.0}] for t in (3, None, [], "a\nb")]
    + [[{"task": "one-2", "metric": m, "value": 1.0}] for m in (3, None, {})],
    "cell": [3, [], {}, {"mode": "m", "task": "t", "method": "n", "seed": 1, "more": 2}],
}


@pytest.mark.parametrize(("field", "value"), [(k, v) for k, each in BAD.items() for v in each])
def test_a_record_of_other_types_is_refused(field, value):
    record = Record(Cell("correct", "one", "club", 0), {}, (row(0.5),), 0.0, "", {})
    assert Record.from_json(record.to_json()) == record
    line = json.loads(record.to_json()) | {field: value}
    del line["checksum"]
    with pytest.raises(ValueError, match=r"Expected the record of a cell but got .*; pass a line"):
        Record.from_json(json.dumps(line))


@pytest.mark.parametrize("text", ["[" * 100_000, "3", "null", '"text"', "[[1, 2]]", "{}"])
def test_a_line_that_is_no_record_is_refused(text):
    with pytest.raises(ValueError, match="Expected the record of a cell but got"):
        Record.from_json(text)


def test_a_line_of_another_type_is_named(go, toy, tmp_path):
    go()
    path = tmp_path / "toy" / "rows.jsonl"
    lines = path.read_text().splitlines()
    lines[5] = json.dumps({"cell": {"mode": 1, "task": [], "method": None, "seed": "x"}})
    path.write_text("\n".join(lines))
    with pytest.raises(ValueError, match=r"rows.jsonl, line 6: Expected the record of a cell but"):
        read_records(path.parent)
    toy.computed.clear()
    go()
    assert len(toy.computed) == 1
    assert "rows.jsonl, line 6 cannot be read" in go.said[0]


def test_lines_that_cannot_be_read_are_kept_aside(go, toy, tmp_path):
    """One of other settings is not computed again, and would be lost."""
    go(factor=3.0)
    folder = tmp_path / "toy"
    path = folder / "rows.jsonl"
    path.write_text(path.read_text().replace('"seed": 2', '"seed": 20', 1))
    before = path.read_bytes()
    go(factor=3.0, mode="correct")  # nothing to write: the file stays
    assert path.read_bytes() == before
    go()
    (kept,) = folder.glob("*.damaged")
    assert kept.read_bytes() == before
    assert len(read_records(folder)) == 24 + 23
    assert len(go.said) == 3  # named once for each run that read it, and the new name
    assert f"kept as {kept.name}" in go.said[2]
    go()
    assert len(go.said) == 3


def test_rows_that_may_not_be_read_stop_before_the_first_cell(go, toy, tmp_path):
    (tmp_path / "toy" / "rows.jsonl").mkdir(parents=True)
    with pytest.raises(ValueError, match=r"rows.jsonl' .*; name"):
        go()
    with pytest.raises(ValueError, match=r"Expected to read '.*rows.jsonl' but got: .*; change"):
        Records(tmp_path / "toy").read(toy.config())
    assert not toy.computed


@pytest.mark.parametrize("mode", ["../../x", "/x", ".x", "a/b"])
def test_a_record_cannot_name_files_elsewhere(mode, go, tmp_path):
    go()
    folder = tmp_path / "toy"
    first, *rest = (folder / "rows.jsonl").read_text().splitlines()
    record = json.loads(first)
    del record["checksum"]
    record["cell"]["mode"] = mode
    line = json.dumps(record)
    yours = tmp_path / f"x_one_club_0_{digest(record['config'])}.json"
    yours.write_text("years of work")
    (folder / "rows.jsonl").write_text("\n".join([line, *rest]) + "\n")
    (folder / "cells").mkdir()
    (folder / "cells" / "theirs.json").write_text(line)
    go()
    assert len([text for text in go.said if "Expected the name of a cell" in text]) == 2
    assert yours.exists()
    assert [path.name for path in (folder / "cells").iterdir()] == ["theirs.json"]
    assert len(read_records(folder)) == 24


@pytest.mark.parametrize("field", ["mode", "task", "method"])
@pytest.mark.parametrize("name", ["../../x", "/x", "a/b", "a\\b", "x" * 300])
def test_the_name_of_a_cell_is_no_path(field, name):
    cell = replace(Cell("correct", "one", "club", 0), **{field: name})
    record = Record(cell, {}, (row(0.5),), 0.0, "", {})
    with pytest.raises(ValueError, match=r"Expected the name of a cell but got .*; remove the"):
        Record.from_json(record.to_json())


def row(value, metric="mse", task="one-2"):
    return {"task": task, "metric": metric, "value": value}


def test_joining_keeps_records_of_other_settings(tmp_path):
    records = Records(tmp_path)
    cell = Cell("correct", "one", "club", 0)
    for factor in (1.0, 2.0):
        records.write(Record(cell, {"factor": factor}, (row(factor),), 0.0, "", {}))
    assert len(list((tmp_path / "cells").iterdir())) == 2
    records.join([cell])
    assert len(read_records(tmp_path)) == 2
    assert not (tmp_path / "cells").exists()
    newer = Record(cell, {"factor": 2.0}, (row(5.0),), 0.0, "", {})
    records.write(newer)
    records.join([cell])
    assert len(read_records(tmp_path)) == 2
    assert "5.0" in (tmp_path / "rows.jsonl").read_text()


@pytest.fixture
def small(monkeypatch):
    """Lines of more than 100 bytes are compressed."""
    monkeypatch.setattr(module, "LARGE", 100)


def fill(folder, count=3):
    """Records that are joined, of as many seeds."""
    records = Records(folder)
    cells = [Cell("correct", "one", "club", seed) for seed in range(count)]
    for cell in cells:
        records.write(Record(cell, {}, (row(cell.seed),), 0.0, "", {}))
    records.join(cells)
    return cells


def test_many_lines_are_compressed(small, tmp_path):
    cells = fill(tmp_path)
    (path,) = tmp_path.iterdir()
    assert path.name == "rows.jsonl.gz"
    data = path.read_bytes()
    assert [record.cell for record in read_records(tmp_path)] == cells
    assert list(Records(tmp_path).read(Config())) == cells
    path.unlink()
    fill(tmp_path)
    assert path.read_bytes() == data
    assert data[4:8] == bytes(4)  # no time in it


def test_lines_are_compressed_once_they_are_many(tmp_path, monkeypatch):
    fill(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["rows.jsonl"]
    monkeypatch.setattr(module, "LARGE", 100)
    more = fill(tmp_path, 5)
    assert [path.name for path in tmp_path.iterdir()] == ["rows.jsonl.gz"]
    assert [record.cell for record in read_records(tmp_path)] == more


def test_lines_that_stay_are_not_written_again(small, tmp_path):
    """Another machine may compress the same lines to other bytes."""
    cells = fill(tmp_path)
    path = tmp_path / "rows.jsonl.gz"
    path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes()), 1, mtime=1))
    data = path.read_bytes()
    Records(tmp_path).join(cells)
    assert path.read_bytes() == data


def test_a_damaged_compressed_file_is_named(small, tmp_path):
    fill(tmp_path)
    path = tmp_path / "rows.jsonl.gz"
    path.write_bytes(path.read_bytes()[:-20])
    said = []
    Records(tmp_path, said.append).read(Config())
    (text,) = said
    assert text.startswith(f"{path} cannot be read after line ")
    path.write_bytes(b"no archive")
    assert not Records(tmp_path, said.append).read(Config())
    assert "after line 0, the cells that follow are computed again" in said[1]


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
