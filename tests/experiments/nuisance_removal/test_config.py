"""The settings of the removal of a nuisance: weights in the names of cells, what is refused."""

import math

import pytest

from experiments import Cell
from experiments.nuisance_removal.config import (
    TASKS,
    WEIGHTS,
    NuisanceConfig,
    name_method,
    split_method,
)
from experiments.nuisance_removal.experiment import NuisanceRemoval


def test_a_cell_of_every_task_method_weight_and_seed():
    config = NuisanceConfig(seeds=2, hsic_weights=(0.5,))
    cells = NuisanceRemoval().cells(config)
    assert len(cells) == len({cell.name for cell in cells}) == 3 * (1 + 6 * 3 + 1) * 2
    assert {cell.task for cell in cells} == set(TASKS)
    assert {split_method(cell.method)[0] for cell in cells} == {"none", *WEIGHTS}
    for task, method in zip(TASKS, ("hsic-0.5", "hsic-0.5", "hsic-5"), strict=True):
        own = {cell.method for cell in cells if cell.task == task and "hsic" in cell.method}
        assert own == {method}


@pytest.mark.parametrize("method", WEIGHTS)
@pytest.mark.parametrize("weight", [0.1, 1.0, 30.0, 1e-5])
def test_a_name_tells_method_and_weight(method, weight):
    assert split_method(name_method(method, weight)) == (method, weight)


def test_another_weight_is_another_cell_and_leaves_the_others():
    cell = Cell("correct", TASKS[0], "club-0.1", 0)
    other = NuisanceConfig(penalty_weights=(0.1, 7.0), table_factor=2.0)
    settings = [config.settings_of(cell) for config in (NuisanceConfig(), other)]
    assert settings[0] == settings[1]
    assert settings[0] != NuisanceConfig(steps=7).settings_of(cell)


@pytest.mark.parametrize("weights", [(), (0.1, 0.0), (-1.0,), (math.nan,), (math.inf,)])
def test_weights_are_positive(weights):
    with pytest.raises(ValueError, match="--hsic-weights of positive numbers but"):
        NuisanceConfig(hsic_weights=weights)


@pytest.mark.parametrize("factor", [0.0, -1.0, math.nan, math.inf])
def test_the_factor_of_the_table_is_positive(factor):
    with pytest.raises(ValueError, match=f"--table-factor above 0 but got {factor}; leave it out"):
        NuisanceConfig(table_factor=factor)


@pytest.mark.parametrize(
    ("name", "value"), [("steps", 0), ("batch_size", 1), ("probe_steps", 0), ("audited", 19)]
)
def test_nothing_to_compute_is_refused(name, value):
    flag = name.replace("_", "-")
    with pytest.raises(ValueError, match=f"--{flag} of at least {value + 1} but got {value}"):
        NuisanceConfig(**{name: value})


@pytest.mark.parametrize("name", ["agreement", "holdout"])
@pytest.mark.parametrize("value", [0.0, 1.0, math.nan])
def test_shares_are_between_0_and_1(name, value):
    with pytest.raises(ValueError, match=f"--{name} between 0 and 1 but got {value}; leave it"):
        NuisanceConfig(**{name: value})
