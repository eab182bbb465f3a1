"""The experiment on minimisation: its truth, its two loops, and what it shows."""

import json
import math

import pytest
import torch

import mibounds as mb
from experiments import EXPERIMENTS
from experiments.minimisation import AngleEncoder, MinimisationConfig, published_step
from experiments.runner.base import Cell


def test_the_truth_is_that_of_the_samples():
    encoder = AngleEncoder(3, 0.3, 200_000)
    with torch.no_grad():
        encoder.angle.copy_(torch.tensor([0.1, 0.4, 0.7]))
    torch.manual_seed(0)
    x, y = (v.detach() for v in encoder())
    rho = (x * y).mean(0)
    torch.testing.assert_close(rho, (2 * encoder.angle.detach()).sin(), atol=0.01, rtol=0)
    torch.testing.assert_close(x.var(0), torch.ones(3), atol=0.02, rtol=0)
    assert encoder.nats == pytest.approx(-0.5 * (1 - rho**2).log().sum().item(), rel=0.05)


def test_it_begins_where_it_says_and_comes_down():
    experiment = EXPERIMENTS["minimisation"]
    config = MinimisationConfig(steps=80, batch=128, dim=4, nats=2.0, device="cpu")
    cell = Cell("correct", "gaussian-2", "club", 0)
    ((rows,),) = [experiment.run(config, [cell])]
    found = {row["metric"]: row["value"] for row in rows}
    assert found["truth"][0] == pytest.approx(2.0, rel=1e-3)
    assert found["truth"][-1] < 0.2
    assert found["steps"] is not None
    assert len(found["bound"]) == 8
    again = experiment.run(config, [cell])[0]
    assert again[0] == rows[0]  # the seed decides


@pytest.mark.parametrize("method", ["club", "club_sample"])
def test_the_authors_loop_fits_q_and_turns_the_angles(method):
    torch.manual_seed(0)
    encoder = AngleEncoder(2, 0.55, 100)
    step = published_step(encoder, method)
    (q,) = (
        c.cell_contents
        for c in step.__closure__
        if isinstance(c.cell_contents, mb.CLUB | mb.CLUBSample)
    )
    before = [p.detach().clone() for p in q.parameters()]
    assert encoder.nats == pytest.approx(1.58, abs=0.01)
    step()
    assert not torch.equal(encoder.angle.detach(), torch.full((2,), 0.55))
    assert all(not torch.equal(a, b) for a, b in zip(before, q.parameters(), strict=True))


def test_quick(run, tmp_path, monkeypatch, unchecked):
    draw = EXPERIMENTS["minimisation"].draw

    def draw_some(config, records, summary):  # many panels take seconds
        some = [record for record in records if record.cell.method in ("club", "nwj")]
        return draw(config, some, summary)

    monkeypatch.setattr(EXPERIMENTS["minimisation"], "draw", draw_some)
    flags = ["--quick", "--seeds", 1, "--steps", 5, "--demo-steps", 5, "--jobs", 1]
    shown, _ = run("minimisation", *flags, "--out", tmp_path)
    folder = tmp_path / "minimisation"
    assert (folder / "minimisation.svg").read_bytes().startswith(b"<?xml")
    summary = json.loads((folder / "summary.json").read_text())
    seen = {(e["mode"], e["task"], e["method"]) for e in summary if e["metric"] == "error"}
    demo = {(m, "demo", c) for m in ("as-published", "correct") for c in ("club", "club_sample")}
    assert seen == demo | {("correct", "gaussian-10", name) for name in mb.ESTIMATORS}
    assert all(math.isfinite(e["mean"]) for e in summary)
    for name, cls in mb.ESTIMATORS.items():
        assert f"| correct | gaussian-10 | {name} | {cls(1, 1).side} |" in shown
