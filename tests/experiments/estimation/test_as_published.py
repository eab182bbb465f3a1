"""The published estimators, against the formulas of the authors' code."""

import math

import pytest
import torch

import mibounds as mb
from experiments import Cell
from experiments.estimation.as_published import AS_PUBLISHED, AsPublishedCritic
from experiments.estimation.simulation import (
    SimulationConfig,
    _index,
    _uniform,
    simulate,
)

pytestmark = pytest.mark.usefixtures("double")
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


def test_vub_by_the_equation_is_near_the_truth_on_the_gaussian_task():
    """And as published it is hopeless, as its table says."""
    config = SimulationConfig(dim=3, levels=(2.0,), steps=250, last=100, batch_size=64)
    some = [Cell(mode, "gaussian", "vub", 0) for mode in ("correct", "as-published")]
    correct, published = simulate(some, config)[:, 0, -100:].mean(1).tolist()
    assert abs(correct - 2) < 0.5
    assert published < 1
