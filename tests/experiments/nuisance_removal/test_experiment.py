"""The experiment on the removal of a nuisance: rows, the choice of the weight, tables, command."""

import json
import math

import pytest

from experiments import EXPERIMENTS, Cell
from experiments.nuisance_removal.config import TABLE, WEIGHTS
from experiments.nuisance_removal.experiment import COLUMNS, choose, count_silent, tabulate

pytest.importorskip("pooch")
NAME = "nuisance-removal"


def cell(method, seed=0, task=TABLE):
    return Cell("correct", task, method, seed)


def test_numbers_do_not_depend_on_the_other_cells(small):
    cells = [cell("club_sample-0.1"), cell("adversary-given-1"), cell("none", 1)]
    experiment = EXPERIMENTS[NAME]
    together = experiment.run(small, cells)
    assert together == [experiment.run(small, [each])[0] for each in cells]
    assert together != experiment.run(small, cells[::-1])


def test_the_rows_of_a_cell(small):
    plain, club = EXPERIMENTS[NAME].run(small, [cell("none"), cell("club-0.1")])
    metrics = [[row["metric"] for row in rows] for rows in (plain, club)]
    assert set(COLUMNS) - {"bound"} <= set(metrics[0])
    assert set(metrics[1]) - set(metrics[0]) == {"bound", "faults", "warned", "report"}
    values = {row["metric"]: row["value"] for row in club}
    assert values["report"].startswith("after 0 calls")  # the first check is at the 200th
    assert plain[0]["origin"] == "made up"
    json.dumps([plain, club], allow_nan=False)


def test_the_weight_is_chosen_by_the_mean_validation_of_all_seeds_and_nothing_else():
    def seeds(*validations, accuracy):
        return [{"validation": v, "accuracy": accuracy} for v in validations]

    groups = {
        ("t", "none"): seeds(50.0, 50.0, accuracy=99.0),
        ("t", "club-0.1"): seeds(90.0, 60.0, accuracy=99.0),
        ("t", "club-1"): seeds(80.0, 80.0, accuracy=10.0),
        ("t", "club-10"): seeds(100.0, None, accuracy=99.0),  # a seed without a number
        ("u", "club-0.1"): seeds(70.0, accuracy=1.0),
        ("u", "club-1"): seeds(70.0, accuracy=99.0),
    }
    chosen = {("t", "none"): "none", ("t", "club"): "club-1", ("u", "club"): "club-0.1"}
    assert choose(groups) == chosen


def test_what_counts_as_silent():
    def values(nats, bound, *faults):
        return {"mlp_nats": nats, "bound": bound, "faults": faults}

    cells = [values(0.3, 0.1), values(0.3, 0.5), values(0.3, 0.1, "growing"), values(None, None)]
    assert count_silent("club-0.1", cells) == ("2 of 4", "1 of 4")
    assert count_silent("default-given-0.1", cells) == ("", "")  # the label of other samples
    assert count_silent("none", [{"mlp_nats": 0.3}]) == ("", "")


def test_a_number_that_is_missing_is_told():
    lines = tabulate({"club-1": [{"accuracy": None, "faults": []} | dict.fromkeys(COLUMNS)]})
    assert lines[2].startswith("| club-1 | not finite |")
    assert lines[2].endswith("| 0 of 1 | 0 of 1 |")


def test_quick(run, mnist, tmp_path, unchecked):
    flags = ["--quick", "--device", "cpu", "--jobs", 1, "--probe-steps", 5, "--audited", 20]
    shown, _ = run(NAME, *flags, "--out", tmp_path / "out")
    folder = tmp_path / "out" / NAME
    summary = json.loads((folder / "summary.json").read_text())
    assert {e["task"] for e in summary} == {"coloured-mnist", TABLE}
    assert {e["metric"] for e in summary} == {"accuracy", "accuracy_as_trained"}
    methods = {e["method"].rpartition("-")[0] or e["method"] for e in summary}
    assert methods == {"none", *WEIGHTS}
    assert all(0 <= e["mean"] <= 100 and math.isfinite(e["mean"]) for e in summary)
    assert (folder / f"{NAME}.svg").read_bytes().startswith(b"<?xml")
    for text in ("biased-table: the chosen weights", "biased-table: all weights", "| silent |",
                 "MNIST: plain arrays: unknown content; made up"):  # fmt: skip
        assert text in shown
