"""The forms of the authors' code that are timed, and when a size is left out."""

import json
from dataclasses import replace

import pytest
import torch

from experiments import EXPERIMENTS, Cell
from experiments.estimation import speed
from experiments.estimation.as_published import AS_PUBLISHED
from experiments.estimation.simulation import CORRECT

CONFIG = speed.SpeedConfig(dim=3, hidden=6, sizes=(16, 32), budget=0.0)


@pytest.mark.parametrize("method", AS_PUBLISHED)
def test_they_give_the_published_values(method, monkeypatch):
    torch.manual_seed(0)
    x = torch.randn(16, 3)
    y = x + torch.randn(16, 3)
    estimator = AS_PUBLISHED[method](3, 3, 6)
    index = torch.randperm(16)
    monkeypatch.setattr(torch, "randperm", lambda *_, **__: index)
    monkeypatch.setattr(torch, "randint", lambda *_, **__: index)
    if method == "mine":
        expected = estimator(x, y, index)
    elif method == "club_sample":
        expected = estimator(x, y, index=index[:, None])
    else:
        expected = estimator(x, y)
    found = speed.published_value(method, estimator, x, y)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("mode", ["as-published", "correct"])
@pytest.mark.parametrize("method", ["club", "nwj", "mine"])
def test_a_step_learns(mode, method):
    config = replace(CONFIG, lr=0.01)
    step = speed.make_step(config, Cell(mode, "batch", method, 0), 64, "cpu")
    first = step()
    for _ in range(100):
        last = step()
    assert last > first + 0.1


def test_sizes_that_take_too_long_are_left_out():
    cell = Cell("correct", "batch", "club", 0)
    assert len(speed.time_sizes(CONFIG, cell, "cpu")) == 2
    assert len(speed.time_sizes(replace(CONFIG, limit=1e-9), cell, "cpu")) == 1


def test_sizes_that_take_too_much_memory_are_left_out(monkeypatch):
    cell = Cell("as-published", "batch", "l1out", 0)
    small = replace(CONFIG, memory=1.2 * speed.published_gib("l1out", 16, CONFIG))
    assert [row["task"] for row in speed.time_sizes(small, cell, "cpu")] == ["batch-16"]
    make = speed.make_step

    def full(config, cell, n, device):
        if n == 32:
            raise torch.OutOfMemoryError
        return make(config, cell, n, device)

    monkeypatch.setattr(speed, "make_step", full)
    assert [row["task"] for row in speed.time_sizes(CONFIG, cell, "cpu")] == ["batch-16"]


def test_it_has_the_machine_for_itself():
    assert EXPERIMENTS["estimation-speed"].serial
    assert not EXPERIMENTS["estimation-quality"].serial


def test_small_batches_are_refused():
    with pytest.raises(ValueError, match=r"--sizes above the 20 columns of y but got \(8, 64\)"):
        speed.SpeedConfig(sizes=(8, 64))


def test_quick(run, tmp_path, unchecked):
    shown, _ = run("estimation-speed", "--quick", "--out", tmp_path)
    folder = tmp_path / "estimation-speed"
    assert (folder / "estimation-speed.svg").read_bytes().startswith(b"<?xml")
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
