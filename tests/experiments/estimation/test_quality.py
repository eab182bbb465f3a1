"""The errors of each level, and Figure 2."""

import json

import torch

from experiments import EXPERIMENTS, Cell
from experiments.estimation.as_published import AS_PUBLISHED
from experiments.estimation.simulation import (
    CORRECT,
    TASK_FAMILIES,
    SimulationConfig,
)


def test_errors_of_a_level():
    experiment = EXPERIMENTS["estimation-quality"]
    config = SimulationConfig(levels=(1.0, 2.5), steps=8, last=2)
    values = torch.full((2, 8), 9.0)
    values[0, -2:] = torch.tensor([1.0, 3.0])
    values[1, -2:] = torch.tensor([2.5, 2.5])
    rows = experiment.rows(Cell("correct", "cubic", "club", 0), config, values)
    assert [(row["task"], row["metric"], row["value"]) for row in rows] == [
        ("cubic-1", "mse", 2.0), ("cubic-1", "bias", 1.0), ("cubic-1", "variance", 1.0),
        ("cubic-2.5", "mse", 0.0), ("cubic-2.5", "bias", 0.0), ("cubic-2.5", "variance", 0.0),
    ]  # fmt: skip


def test_cells_and_groups():
    experiment = EXPERIMENTS["estimation-quality"]
    everything = experiment.cells(SimulationConfig(seeds=4))
    count = (len(AS_PUBLISHED) + len(CORRECT)) * 3 * 4
    assert len(everything) == len(set(everything)) == count
    for device, number in (("cpu", count // 4), ("cuda", 1)):
        groups = experiment.groups(SimulationConfig(seeds=4, device=device), everything)
        assert sorted(cell.name for group in groups for cell in group) == sorted(
            cell.name for cell in everything
        )
        assert len(groups) == number


def test_quick(run, tmp_path, unchecked):
    name = "estimation-quality"
    shown, _ = run(name, "--quick", "--jobs", 1, "--out", tmp_path)
    folder = tmp_path / name
    figures = [f"{name}-{mode}.svg" for mode in ("as-published", "correct")]
    files = ["rows.jsonl", "summary.json", "table.md", *figures]
    assert sorted(path.name for path in folder.iterdir()) == sorted(files)
    for figure in figures:
        assert (folder / figure).read_bytes().startswith(b"<?xml")
    assert (folder / "table.md").read_text().strip() == shown.strip()
    summary = json.loads((folder / "summary.json").read_text())
    keys = {"mode", "task", "method", "metric", "mean", "sd", "seeds", "paper"}
    assert all(set(each) == keys for each in summary)
    by_key = {(e["mode"], e["task"], e["method"], e["metric"]): e["mean"] for e in summary}
    assert set(by_key) == {
        (mode, f"{family}-{level}", method, metric)
        for mode, registry in (("as-published", AS_PUBLISHED), ("correct", CORRECT))
        for family in TASK_FAMILIES
        for level in (2, 10)
        for method in registry
        for metric in ("mse", "bias", "variance")
    }
    assert all(each["mean"] is not None and each["seeds"] == 2 for each in summary)
    paper = {
        each["paper"]
        for each in summary
        if (each["task"], each["method"], each["metric"]) == ("cubic-10", "club", "mse")
    }
    assert paper == {6.93}
    for mode, task, method, metric in by_key:
        if metric == "mse":
            rest = [by_key[mode, task, method, m] for m in ("bias", "variance")]
            assert by_key[mode, task, method, "mse"] >= rest[0] ** 2 + rest[1] - 1e-9
    for family in TASK_FAMILIES:  # as the authors' code has it, though not as the equation does
        club, l1out = (
            [by_key[mode, f"{family}-2", m, "mse"] for mode in ("as-published", "correct")]
            for m in ("club", "l1out")
        )
        assert club[0] == l1out[0]
        assert club[1] != l1out[1]
