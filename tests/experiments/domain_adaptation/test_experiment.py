"""The experiment of domain adaptation: cells, the choice of the oracle, tables, the command."""

import json
from dataclasses import replace

import pytest
from made_up import ADAPTATION

from experiments import EXPERIMENTS, Cell
from experiments.domain_adaptation.config import (
    BOUNDS,
    METHODS,
    TRANSFERS,
    DomainAdaptationConfig,
)
from experiments.domain_adaptation.experiment import _difference
from experiments.domain_adaptation.training import AdaptationTraining

pytest.importorskip("pooch")


def test_cells_and_published_numbers():
    experiment = EXPERIMENTS["domain-adaptation"]
    cells = experiment.cells(DomainAdaptationConfig(seeds=1))
    assert {c.task for c in cells} == set(TRANSFERS)
    for mode, methods in (("correct", METHODS), ("as-published", METHODS[:1])):
        assert set(methods) <= {c.method for c in cells if c.mode == mode}
    assert "dann" not in {c.method for c in cells if c.mode == "as-published"}
    assert len({c.name for c in cells}) == len(cells)
    paper = experiment.paper
    assert paper["mnist-mnistm", "club_sample", "accuracy"] == 94.6
    assert paper["stl10-cifar10", "mcd", "accuracy_oracle"] == 69.2
    assert ("cifar10-stl10", "vub", "accuracy") not in paper
    assert len(paper) == 2 * (66 - 2 - 2 - 1 - 2 - 3)


def test_the_oracle_picks_by_labels_of_the_target(sets, monkeypatch):
    found = {"picking": [10.0, 60.0, 50.0], "curve": [1.0, 55.0, 70.0], "source_curve": [0.0] * 3,
             "as_trained": [3.0], "steps": [0, 1, 2], "mi": [0.0],
             "mi_steps": [0]}  # fmt: skip
    monkeypatch.setattr(AdaptationTraining, "results", lambda _: found)
    monkeypatch.setattr("experiments.domain_adaptation.experiment.train", lambda _: None)
    experiment = EXPERIMENTS["domain-adaptation"]
    config = replace(ADAPTATION, device="cpu")
    (rows,) = experiment.run(config, [Cell("correct", "mnist-usps", "source", 0)])
    values = {row["metric"]: row["value"] for row in rows}
    assert values["accuracy"] == 70.0
    assert values["accuracy_oracle"] == 55.0
    assert values["accuracy_as_trained"] == 3.0
    assert rows[0]["origin"] == ["plain arrays: unknown content"] * 2


def test_an_ingredient_is_judged_by_the_seeds_that_have_it():
    """A seed that happens to be a good one is no gain of what was changed."""
    full = {0: 90.0, 1: 80.0, 2: 70.0}
    assert _difference({1: 80.5}, full) == "+0.50"
    assert _difference({0: 88.0, 2: 69.0}, full) == "-1.50"
    assert _difference({0: None, 1: 79.0, 7: 5.0}, full) == "-1.00"
    assert _difference({}, full) == _difference({3: 1.0}, full) == ""


def test_quick(run, sets, unchecked):
    name = "domain-adaptation"
    shown, _ = run(name, "--quick", "--device", "cpu", "--jobs", 1, "--out", sets / "out")
    folder = sets / "out" / name
    summary = json.loads((folder / "summary.json").read_text())
    seen = {(e["mode"], e["method"]) for e in summary}
    assert {m for mode, m in seen if mode == "correct"} == set(METHODS)
    assert {m for mode, m in seen if mode == "recipe"} >= {"source", *BOUNDS}
    assert {m for mode, m in seen if mode == "as-published"} == {
        "source", "mine", "infonce", "club", "club_sample",
    }  # fmt: skip
    kinds = {"accuracy", "accuracy_oracle", "accuracy_as_trained"}
    assert {e["metric"] for e in summary} == kinds
    assert all(0 <= e["mean"] <= 100 for e in summary)
    for stem in ("correct", "correct-mi", "correct-mnist-usps", "recipe"):
        assert (folder / f"domain-adaptation-{stem}.svg").exists(), stem
    assert "What each ingredient gives club_sample" in shown
    assert "Labels that can be read from the domain embedding" in shown
    assert "| correct | club |" in shown
    _, _, rest = shown.partition("Labels that can")
    labels, _, domains = rest.partition("Domains that can")
    assert "| correct | dann |" not in labels  # has no such embedding
    assert "| correct | dann |" in domains
    assert "The class that is recognised worst" in shown
    assert "usps: plain arrays: unknown content" in shown
    assert not (folder / "checkpoints").exists()
