"""The short way for small batches gives what the long way gives."""

import copy

import pytest
import torch
from torch import nn

import mibounds as mb
from mibounds.bounds.densities import log_prob
from mibounds.conditionals import _small_batches as small_batches
from mibounds.networks import use_units_that_live

N, X, Y = 24, 4, 3


def samples(n=N, offset=0.0):
    x = torch.randn(n, X, dtype=torch.float64) * 3 + offset
    return x, (x[:, :Y] + torch.randn(n, Y, dtype=torch.float64)) * 100 - 50


def make(smooth=False):
    estimator = mb.CLUB(X, Y, 8).double()
    if smooth:
        use_units_that_live(estimator)
    for p in estimator.parameters():
        nn.init.normal_(p, std=0.5)
    return estimator


@pytest.fixture
def long_way(monkeypatch):
    def choose():
        monkeypatch.setattr(small_batches, "works", lambda *_: False)

    return choose


@pytest.mark.parametrize("smooth", [False, True])
def test_fits_are_the_same(smooth, long_way):
    short = make(smooth)
    long = copy.deepcopy(short)
    batches = [samples(offset=10.0 * i) for i in range(6)]
    found = []
    for estimator in (short, long):
        if estimator is long:
            long_way()
        optimizer = torch.optim.SGD(estimator.parameters(), lr=1e-3)
        losses = []
        for x, y in batches:
            optimizer.zero_grad()
            losses.append(estimator.learning_loss(x, y))
            losses[-1].backward()
            optimizer.step()
        found.append((torch.stack(losses), *estimator.state_dict().values()))
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("smooth", [False, True])
def test_the_gradient_is_right_and_can_be_differentiated(smooth):
    estimator = make(smooth)
    x, y = samples(6)
    estimator.learning_loss(x, y)
    estimator.eval()
    x, y = x.requires_grad_(), y.requires_grad_()
    weights = [p.detach().clone().requires_grad_() for p in estimator.parameters()]

    def loss(x, y, *weights):
        return torch.func.functional_call(
            _Loss(estimator), dict(zip(_names(estimator), weights, strict=True)), (x, y)
        )

    assert torch.autograd.gradcheck(loss, (x, y, *weights))
    assert torch.autograd.gradgradcheck(loss, (x, y, *weights))


class _Loss(nn.Module):
    def __init__(self, estimator):
        super().__init__()
        self.estimator = estimator

    def forward(self, x, y):
        assert small_batches.works(self.estimator.conditional, x, y)
        return self.estimator.learning_loss(x, y)


def _names(estimator):
    return [f"estimator.{name}" for name, _ in estimator.named_parameters()]


def test_values_are_the_same(long_way):
    x, y = samples()
    club, drawn = make(), mb.CLUBSample(X, Y, 8).double()
    for estimator in (club, drawn):
        estimator.learning_loss(x, y)
    index = torch.randperm(N)
    values = [club(x, y), drawn(x, y, seed=3), -club.loglikeli(x, y)]
    likelihood = log_prob(club.conditional(x), y).mean()
    torch.testing.assert_close(values[2], -likelihood)
    long_way()
    torch.testing.assert_close(values[0], club(x, y))
    torch.testing.assert_close(values[1], drawn(x, y, seed=3))
    assert index.numel() == N


def test_loglikeli_as_a_loss_standardises():
    x, y = samples()
    trained = []
    for verb, sign in (("learning_loss", 1), ("loglikeli", -1)):
        torch.manual_seed(0)
        estimator = make()
        optimizer = torch.optim.Adam(estimator.parameters(), lr=1e-2)
        for _ in range(20):
            optimizer.zero_grad()
            (sign * getattr(estimator, verb)(x, y)).backward()
            optimizer.step()
        trained.append(estimator(x, y))
    assert trained[0] == trained[1]
    before = {k: v.clone() for k, v in estimator.state_dict().items()}
    with torch.no_grad():
        estimator.loglikeli(x + 1, y)  # only a look
    estimator.eval().loglikeli(x + 1, y)
    assert all(torch.equal(v, before[k]) for k, v in estimator.state_dict().items())


def test_statistics_that_are_written_into_are_seen():
    x, y = samples()
    estimator = make()
    for _ in range(3):
        estimator.learning_loss(x, y)
    other = make()
    other.load_state_dict(estimator.state_dict())  # writes into the buffers
    twin = copy.deepcopy(estimator)
    torch.testing.assert_close(other(x, y), estimator(x, y))
    torch.testing.assert_close(twin(x, y), estimator(x, y))
    fresh = make()
    fresh.learning_loss(x, y)
    fresh(x, y)
    fresh.load_state_dict(estimator.state_dict())
    torch.testing.assert_close(fresh(x, y), estimator(x, y))
    fresh.conditional.y_standard.mean = fresh.conditional.y_standard.mean + 5
    torch.testing.assert_close(fresh(x, y), mb.club(fresh.conditional(x), y))
    assert (fresh(x, y) - estimator(x, y)).abs() > 1e-6


@pytest.mark.parametrize("what", ["constant", "nan"])
def test_what_it_cannot_do_goes_the_long_way(what, long_way):
    x, y = samples()
    if what == "constant":
        y[:, 1] = 7.0
    else:
        x[3, 1] = torch.nan
    short = make()
    long = copy.deepcopy(short)
    losses = [[short.learning_loss(x, y) for _ in range(3)]]
    long_way()
    losses.append([long.learning_loss(x, y) for _ in range(3)])
    torch.testing.assert_close(*map(torch.stack, losses), equal_nan=True)
    for a, b in zip(short.state_dict().values(), long.state_dict().values(), strict=True):
        torch.testing.assert_close(a, b)
