"""The settings of domain adaptation: which mode, flag and ablation decides."""

from dataclasses import fields

import pytest

from experiments import EXPERIMENTS, Cell
from experiments.domain_adaptation.config import (
    ABLATIONS,
    BOUNDS,
    DEFAULTS,
    MODES,
    OBJECTS,
    DomainAdaptationConfig,
    settle,
    split_method,
)


def settled(mode, task="", method="club", **flags):
    config = settle(DomainAdaptationConfig(**flags), Cell(mode, task, method, 0))
    return {name: getattr(config, name) for name in DEFAULTS}


def test_settings_are_those_of_the_mode_unless_a_flag_is_given():
    given = {"mi_weight": 7.0, "noise": 0.0}
    for mode, changes in MODES.items():
        assert settled(mode) == {**DEFAULTS, **changes}
        assert settled(mode, **given) == {**DEFAULTS, **changes, **given}
    recipe = {**DEFAULTS, **MODES["recipe"]}
    for change, changed in ABLATIONS.items():
        method = f"club_sample-{change}"
        assert settled("recipe", method=method) == {**recipe, **changed}
        for name in changed:  # an ablation changes what a flag says
            flag = {name: (4, 4, 4) if name == "domain_widths" else recipe[name]}
            assert settled("recipe", method=method, **flag) == {**recipe, **changed}
    objects = {**recipe, **OBJECTS["recipe"]}
    assert settled("recipe", "stl10-cifar10") == objects
    assert settled("recipe", "stl10-cifar10", batch_size=7) == {**objects, "batch_size": 7}
    published = settled("as-published")
    assert (published["q"], published["mi_gradient"], published["normalisation"]) == (
        "published", "content", "raw",
    )  # fmt: skip


def test_a_flag_counts_even_where_it_is_the_default():
    assert settled("recipe")["steps"] != DEFAULTS["steps"]
    assert settled("recipe", steps=DEFAULTS["steps"])["steps"] == DEFAULTS["steps"]


def test_every_setting_of_a_mode_has_a_field():
    for changes in (*MODES.values(), *OBJECTS.values(), *ABLATIONS.values()):
        assert changes.keys() <= DEFAULTS.keys()
    flags = [f.name for f in fields(DomainAdaptationConfig) if f.default is None]
    assert flags == list(DEFAULTS)
    assert [name for name, value in DEFAULTS.items() if value is None] == ["domain_widths"]


def test_an_ablation_has_a_cell_where_it_changes_something():
    cells = EXPERIMENTS["domain-adaptation"].cells(DomainAdaptationConfig(seeds=1))
    seen = {(cell.task, split_method(cell.method)[1]) for cell in cells if cell.mode == "recipe"}
    assert {change for _, change in seen} == {"", *ABLATIONS}
    methods = {cell.method for cell in cells if cell.mode == "recipe"}
    assert methods >= {"source", "source-without-teacher"}
    assert methods >= {f"{bound}-both-gradients" for bound in BOUNDS}
    assert ("mnist-usps", "without-inversion") in seen
    assert ("stl10-cifar10", "without-inversion") not in seen  # where nothing is inverted
    assert ("stl10-cifar10", "without-warps") in seen
    assert ("stl10-cifar10", "equal-encoders") in seen
    assert ("mnist-usps", "equal-encoders") not in seen  # where they are
    still = EXPERIMENTS["domain-adaptation"].cells(DomainAdaptationConfig(seeds=1, warp=0.0))
    assert not any(cell.method.endswith("-without-warps") for cell in still)


def test_other_settings_of_a_mode_make_other_cells(monkeypatch):
    def settings(mode, **changes):
        config = DomainAdaptationConfig(**changes)
        return config.settings_of(Cell(mode, "mnist-usps", "club", 0))

    before = {mode: settings(mode) for mode in MODES}
    assert before["recipe"] == settings("recipe", seeds=7)
    monkeypatch.setitem(MODES, "recipe", {**MODES["recipe"], "teacher": 1.0})
    assert settings("recipe") != before["recipe"]
    assert settings("correct") == before["correct"]
    assert settings("correct", steps=7) != before["correct"]
    assert settings("correct", steps=before["correct"]["steps"]) == before["correct"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"widths": (64, 64)}, "--widths of three blocks, each at least 1, but got 64 64; give"),
        ({"domain_widths": (4, 0, 4)}, "--domain-widths of three blocks, .* but got 4 0 4; give"),
        ({"steps": 0}, "--steps of at least 1 but got 0"),
        ({"warp": -0.1}, "--warp of at least 0 but got -0.1"),
        ({"inversion": -0.5}, "--inversion of at least 0 but got -0.5"),
        ({"background": -1.0}, "--background of at least 0 but got -1.0"),
        ({"background": float("nan")}, "--background of at least 0 but got nan"),
        ({"batch_size": 1}, "--batch-size of at least 2 but got 1"),
    ],
)
def test_settings_that_make_no_sense(changes, message):
    with pytest.raises(ValueError, match=message):
        DomainAdaptationConfig(**changes)
