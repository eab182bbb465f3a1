"""The simulation: side by side as one at a time."""

from dataclasses import replace

import pytest
import torch

import mibounds as mb
from experiments import Cell
from experiments.estimation.simulation import (
    METHODS,
    TASK_FAMILIES,
    SimulationConfig,
    _index,
    _uniform,
    make_estimator,
    simulate,
    task_of,
)
from mibounds.bounds import draw_negatives

pytestmark = pytest.mark.usefixtures("double")
CONFIG = SimulationConfig(dim=3, levels=(1.0, 2.5), steps=8, last=3, batch_size=12, hidden=6)


ALL = [(mode, name) for mode, registry in METHODS.items() for name in registry]


def cells(mode, method, runs):
    return [Cell(mode, family, method, seed) for family, seed in runs]


def one_at_a_time(mode, method, family, seed, config):
    """As a script would do it: a loop, an estimator, torch's Adam."""
    torch.manual_seed(seed)
    estimator = make_estimator(mode, method, config)
    optimizer = torch.optim.Adam(estimator.parameters(), lr=config.lr)
    g = torch.Generator().manual_seed(seed)
    values = []
    for level in config.levels:
        x, y = task_of(family, config.dim, level).sample(config.steps * config.batch_size, seed=g)
        noise = torch.rand(config.steps, 2, config.batch_size, generator=g)
        for step, (for_value, for_loss) in enumerate(noise):
            own = slice(step * config.batch_size, (step + 1) * config.batch_size)
            batch = x[own], y[own]
            with torch.no_grad():
                if (mode, method) == ("as-published", "mine"):
                    value = estimator(*batch, _uniform(for_value))
                elif method == "club_sample":
                    value = estimator(*batch, index=_index(estimator, for_value)[:, None])
                else:
                    value = estimator(*batch)
            values.append(value.item())
            if (mode, method) == ("as-published", "mine"):
                loss = -estimator(*batch, _uniform(for_loss))
            else:
                loss = estimator.learning_loss(*batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return torch.tensor(values).view(len(config.levels), config.steps)


@pytest.mark.parametrize(("mode", "method"), ALL)
def test_all_runs_at_once_are_one_at_a_time(mode, method):
    runs = [("gaussian", 0), ("gaussian", 1), ("cubic", 1), ("cubic-w", 7)]
    together = simulate(cells(mode, method, runs), CONFIG)
    assert together.shape == (4, 2, 8)
    alone = torch.stack([one_at_a_time(mode, method, *run, CONFIG) for run in runs])
    torch.testing.assert_close(together, alone, rtol=1e-8, atol=1e-8)
    assert alone.std(2).min() > 0
    assert not torch.allclose(alone[0], alone[1])


def test_a_level_may_have_more_steps_than_a_block():
    config = replace(CONFIG, steps=130, levels=(1.0, 2.0))
    values = simulate(cells("correct", "club", [("gaussian", 0), ("gaussian", 1)]), config)
    assert values.shape == (2, 2, 130)
    assert values.isfinite().all()
    short = simulate(cells("correct", "club", [("gaussian", 0)]), replace(config, levels=(1.0,)))
    assert torch.equal(short[0, 0], values[0, 0])


def test_the_global_generator_is_left_alone():
    before = torch.get_rng_state()
    simulate(cells("correct", "club_sample", [("gaussian", 3)]), CONFIG)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("family", TASK_FAMILIES)
def test_tasks_are_those_of_the_library(family):
    for level in (2, 10):
        assert task_of(family, 20, float(level)) == mb.TASKS[f"{family}-{level}"]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize(("mode", "method"), ALL)
def test_a_recorded_step_gives_the_same_numbers(mode, method):
    some = cells(mode, method, [("gaussian", 0), ("cubic", 1)])
    plain = simulate(some, CONFIG, "cuda", graph=False)
    recorded = simulate(some, CONFIG, "cuda", graph=True)
    torch.testing.assert_close(plain, recorded, rtol=1e-8, atol=1e-8)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_streams_do_not_mix():
    some = [cell for mode, method in ALL for cell in cells(mode, method, [("cubic", 1)])]
    together = simulate(some, CONFIG, "cuda")
    for cell, each in zip(some, together, strict=True):
        torch.testing.assert_close(each, simulate([cell], CONFIG, "cuda")[0], rtol=1e-8, atol=1e-8)


def test_methods_side_by_side_do_not_mix():
    some = [
        Cell("correct", "gaussian", "club", 0), Cell("as-published", "cubic", "nwj", 1),
        Cell("correct", "cubic", "club", 2), Cell("as-published", "gaussian", "nwj", 0),
    ]  # fmt: skip
    together = simulate(some, CONFIG)
    for cell, each in zip(some, together, strict=True):
        torch.testing.assert_close(each, simulate([cell], CONFIG)[0], rtol=1e-8, atol=1e-8)


N = 16


def test_negatives_with_repetition():
    index = _uniform(torch.tensor([0.0, 0.3, 0.99, 0.5]))
    assert index.tolist() == [0, 1, 3, 2]


def test_negatives_of_sampled_club_are_a_cycle():
    estimator = mb.CLUBSample(3, 3)
    index = _index(estimator, torch.rand(N))
    assert sorted(index.tolist()) == list(range(N))
    i, seen = 0, set()
    while i not in seen:
        seen.add(i)
        i = index[i].item()
    assert len(seen) == N
    assert draw_negatives(N).shape == index[:, None].shape
