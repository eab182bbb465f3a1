"""The simulation: side by side as one at a time, and the published estimators as published."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

import mibounds as mb
from experiments import EXPERIMENTS, Cell
from experiments.estimation.as_published import AS_PUBLISHED, AsPublishedCritic
from experiments.estimation.curves import moving_average
from experiments.estimation.simulation import (
    CORRECT,
    FAMILIES,
    METHODS,
    SimulationConfig,
    _index,
    _uniform,
    make_estimator,
    simulate,
    task_of,
)
from mibounds.bounds import draw_negatives

CONFIG = SimulationConfig(dim=3, levels=(1.0, 2.5), steps=25, last=5, batch_size=12, hidden=6)
ALL = [(mode, name) for mode, registry in METHODS.items() for name in registry]


@pytest.fixture(autouse=True)
def _double():
    """Rounding grows from step to step: in float64 it stays out of sight."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


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
        x, y = task_of(family, config.dim, level).sample(
            config.steps * config.batch_size, generator=g
        )
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
    assert together.shape == (4, 2, 25)
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


@pytest.mark.parametrize("family", FAMILIES)
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


# --- as published --------------------------------------------------------------------------------


N, D, H = 16, 3, 9


@pytest.fixture
def batch():
    g = torch.Generator().manual_seed(1)
    x = torch.randn(N, D, generator=g)
    return x, x + torch.randn(N, D, generator=g)


def gaussian(estimator, x):
    q = estimator.conditional
    return q.net(x), q.net_log_variance(x).tanh()


def test_q_as_published(batch):
    x, y = batch
    for name in ("club", "club_sample", "l1out", "vub"):
        estimator = AS_PUBLISHED[name](D, D, H)
        assert [p.shape[0] for p in estimator.conditional.net.parameters()] == [4, 4, D, D]
        mean, log_variance = gaussian(estimator, x)
        twice = ((y - mean) ** 2 / log_variance.exp() + log_variance).sum(1).mean()
        constant = D * math.log(2 * math.pi)
        assert estimator.learning_loss(x, y).item() == pytest.approx(twice.item() + constant)


def test_club_and_l1out_as_published(batch):
    x, y = batch
    estimator = AS_PUBLISHED["club"](D, D, H)
    mean, log_variance = gaussian(estimator, x)
    log_q = -((y[None] - mean[:, None]) ** 2 / 2 / log_variance.exp()[:, None]).sum(-1)
    value = (log_q.diagonal() - log_q.mean(1)).mean().item()
    assert estimator(x, y).item() == pytest.approx(value)
    # L1Out: the mask of shape (N, N, 1) makes N copies of the same sum, which the logarithm of
    # their mean undoes, but for one part in e^20.
    log_q = log_q - log_variance.sum(1)[:, None] / 2
    mask = -20.0 * torch.eye(N)[..., None]
    marginal = (log_q + mask).logsumexp(0) - math.log(N - 1)
    l1out = (log_q.diagonal() - marginal).mean().item()
    assert l1out == pytest.approx(value, abs=1e-8)
    assert AS_PUBLISHED["l1out"] is AS_PUBLISHED["club"]
    real = mb.L1Out(conditional=estimator.conditional)(x, y).item()
    assert abs(real - value) > 0.01


def test_sampled_club_as_published_draws_a_permutation(batch):
    x, y = batch
    estimator = AS_PUBLISHED["club_sample"](D, D, H)
    index = _index(estimator, torch.rand(N))
    assert sorted(index.tolist()) == list(range(N))
    mean, log_variance = gaussian(estimator, x)
    far = ((y[index] - mean) ** 2 - (y - mean) ** 2) / 2 / log_variance.exp()
    assert estimator(x, y, index=index[:, None]).item() == pytest.approx(far.sum(1).mean().item())


def test_vub_as_published(batch):
    x, y = batch
    estimator = AS_PUBLISHED["vub"](D, D, H)
    mean, log_variance = gaussian(estimator, x)
    value = (mean**2 + log_variance.exp() - 1 - log_variance).mean() / 2
    assert estimator(x, y).item() == pytest.approx(value.item())


def critic(estimator, x, y):
    """A network on x and y side by side, as one layer."""
    f = estimator.critic
    first = torch.cat([f.x_layer.weight, f.y_layer.weight], 1)
    hidden = (torch.cat([x, y], -1) @ first.T + f.x_layer.bias).relu()
    (last,) = f.head.layers
    return last(hidden).squeeze(-1)


def test_critics_as_published(batch):
    x, y = batch
    all_x, all_y = x[None].expand(N, N, D), y[:, None].expand(N, N, D)  # [j, i]: y_j with x_i
    nwj = AS_PUBLISHED["nwj"](D, D, H)
    scores = critic(nwj, all_x, all_y) - 1
    value = critic(nwj, x, y).mean() - scores.exp().mean()
    assert nwj(x, y).item() == pytest.approx(value.item())
    assert nwj.learning_loss(x, y).item() == pytest.approx(-value.item())
    infonce = AS_PUBLISHED["infonce"](D, D, H)
    scores = torch.nn.functional.softplus(critic(infonce, all_x, all_y))
    value = scores.diagonal().mean() - scores.logsumexp(1).mean() + math.log(N)
    assert infonce(x, y).item() == pytest.approx(value.item())
    assert infonce.learning_loss(x, y).item() == pytest.approx(-value.item())
    mine = AS_PUBLISHED["mine"](D, D, H)
    index = _uniform(torch.rand(N))
    value = critic(mine, x, y).mean() - critic(mine, x, y[index]).exp().mean().log()
    assert mine(x, y, index).item() == pytest.approx(value.item())


def test_critics_as_published_start_as_one_layer_does():
    f = AsPublishedCritic(30, 10, 2000)
    limit = 40**-0.5  # of torch's initial values with 40 inputs
    for values in (f.x_layer.weight, f.y_layer.weight, f.x_layer.bias):
        assert 0.95 * limit < values.abs().max() <= limit


def test_negatives_with_repetition():
    index = _uniform(torch.tensor([0.0, 0.3, 0.99, 0.5]))
    assert index.tolist() == [0, 1, 3, 2]


def test_negatives_of_sampled_club_are_a_cycle():
    estimator = mb.CLUBSample(D, D)
    index = _index(estimator, torch.rand(N))
    assert sorted(index.tolist()) == list(range(N))
    i, seen = 0, set()
    while i not in seen:
        seen.add(i)
        i = index[i].item()
    assert len(seen) == N
    assert draw_negatives(N).shape == index[:, None].shape


# --- the experiments -----------------------------------------------------------------------------


def test_errors_of_a_level():
    experiment = EXPERIMENTS["estimation-quality"]
    config = replace(CONFIG, last=2)
    values = torch.full((2, 25), 9.0)
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


def test_the_moving_average_is_that_of_pandas():
    pd = pytest.importorskip("pandas")
    values = np.random.default_rng(0).normal(size=300)
    expected = pd.Series(values).ewm(span=200).mean().to_numpy()
    assert moving_average(values, 200) == pytest.approx(expected)


def test_vub_by_the_equation_is_near_the_truth_on_the_gaussian_task():
    """And as published it is hopeless, as its table says."""
    config = SimulationConfig(dim=3, levels=(2.0,), steps=500, last=100, batch_size=64)
    some = [Cell(mode, "gaussian", "vub", 0) for mode in ("correct", "as-published")]
    correct, published = simulate(some, config)[:, 0, -100:].mean(1).tolist()
    assert abs(correct - 2) < 0.5
    assert published < 1
