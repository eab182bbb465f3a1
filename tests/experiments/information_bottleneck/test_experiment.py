"""The experiment of the information bottleneck: cells, the choice of beta, the command."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from made_up import BOTTLENECK, runs

from experiments import EXPERIMENTS, Cell
from experiments.information_bottleneck import experiment as ib

pytest.importorskip("pooch")


@pytest.mark.parametrize("noise", [-0.1, math.nan])
def test_a_negative_noise_is_refused(noise):
    with pytest.raises(ValueError, match=f"--noise of at least 0 but got {noise}; leave it out"):
        replace(BOTTLENECK, noise=noise)


def test_the_noise_makes_other_cells_only_of_the_recipe():
    for mode in ("as-published", "correct", "recipe"):
        cell = Cell(mode, "mnist", "club", 0)
        one, other = (replace(BOTTLENECK, noise=v).settings_of(cell) for v in (0.1, 0.2))
        assert (one == other) == (mode != "recipe")


def test_the_error_is_that_of_the_last_epoch():
    outcome = {"curve": [3.0, 1.0, 2.0], "x_lower": [1.0], "x_upper": [2.0], "y": [1.0]}
    rows = {r["metric"]: r["value"] for r in ib._rows(runs("club")[0], {}, outcome, "made up")}
    assert rows["error"] == 2.0
    assert rows["error_oracle"] == 1.0


def test_beta_is_chosen_without_the_test_digits(digits, monkeypatch):
    seen = []
    # Of four epochs the last counts; by the others or by one seed the choice would be another.
    curves = {
        (1e-2, 0): [0, 0, 0, math.nan],
        (1e-2, 1): [0, 0, 0, 1.0],
        (1e-4, 0): [9, 9, 9, 1.0],
        (1e-4, 1): [9, 9, 9, 4.0],
        (1e-3, 0): [9, 9, 9, 2.0],
        (1e-3, 1): [9, 9, 9, 2.5],
    }

    def train(config, some, given, epochs):
        seen.append((given, epochs))
        return [{"curve": curves[run.beta, run.cell.seed]} for run in some]

    monkeypatch.setattr(ib, "train_runs", train)
    cells = [run.cell for run in runs("none", "club", seeds=(0, 1))]
    cells += [run.cell for run in runs("club", mode="as-published", seeds=(0,))]
    scans = ib.scan_betas(replace(BOTTLENECK, scan_epochs=4, scan_seeds=2), cells, digits)
    assert list(scans) == [("correct", "club")]
    scan = scans["correct", "club"]
    assert scan[1e-4] == 2.5
    assert scan[1e-3] == 2.25
    betas = [ib.choose_beta(c, scans.get((c.mode, c.method), {})) for c in cells]
    assert betas == [0.0, 0.0, 1e-3, 1e-3, 1e-3]
    ((given, epochs),) = seen
    assert epochs == 4
    assert torch.equal(given.x, digits.x[:-40])
    assert torch.equal(given.x_test, digits.x[-40:])


def test_with_one_beta_nothing_is_scanned(digits, monkeypatch):
    monkeypatch.setattr(ib, "train_runs", None)
    (cell,) = (run.cell for run in runs("club", seeds=(0,)))
    scans = ib.scan_betas(replace(BOTTLENECK, betas=(0.5,)), [cell], digits)
    assert ib.choose_beta(cell, scans["correct", "club"]) == 0.5


@pytest.mark.parametrize("holdout", [0, 160])
def test_a_part_to_hold_out_is_needed(digits, holdout):
    with pytest.raises(ValueError, match=f"--holdout between 1 and 159 but got {holdout}"):
        digits.split(holdout)


def test_published_cells_are_those_whose_code_was_public():
    cells = EXPERIMENTS["information-bottleneck"].cells(BOTTLENECK)
    published = {cell.method for cell in cells if cell.mode == "as-published"}
    assert published == {"club", "club_sample", "vclub", "vclub_sample"}
    for mode, count in (("correct", 10), ("recipe", 7)):
        assert len({cell.method for cell in cells if cell.mode == mode}) == count


def test_quick(digits, tmp_path, run, unchecked, monkeypatch):
    images = torch.cat([digits.x, digits.x_test])
    labels = torch.cat([digits.y, digits.y_test])
    arrays = {}
    for split in ("train", "test"):
        arrays[f"{split}_images"] = images.view(-1, 28, 28).repeat(2, 1, 1)[:300].numpy()
        arrays[f"{split}_labels"] = labels.repeat(2)[:300].numpy()
    np.savez(tmp_path / "mnist.npz", **arrays)
    monkeypatch.setenv("MIBOUNDS_DATA", str(tmp_path))
    monkeypatch.setenv("MIBOUNDS_CACHE", str(tmp_path / "cache"))
    name = "information-bottleneck"
    shown, _ = run(name, "--quick", "--device", "cpu", "--jobs", 1, "--out", tmp_path / "out")
    folder = tmp_path / "out" / name
    summary = json.loads((folder / "summary.json").read_text())
    seen = {(e["mode"], e["method"], e["metric"]) for e in summary}
    assert len(seen) == (10 + 7 + 4) * 2
    assert {e["task"] for e in summary} == {"mnist"}
    (club,) = (
        e
        for e in summary
        if (e["mode"], e["method"], e["metric"]) == ("correct", "club", "error_oracle")
    )
    assert club["paper"] == 1.12
    assert club["seeds"] == 2
    assert "plain arrays: unknown content" in shown
    assert not (folder / "checkpoints").exists()
    assert (folder / "information-bottleneck-correct.svg").exists()


@pytest.mark.parametrize("name", ["epochs", "scan_epochs", "scan_seeds", "batch_size", "samples"])
def test_nothing_to_train_is_refused(name):
    flag = name.replace("_", "-")
    with pytest.raises(ValueError, match=f"--{flag} of at least 1 but got 0; leave it out"):
        replace(BOTTLENECK, **{name: 0})
