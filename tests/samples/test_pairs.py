"""Blocks against the matrix: the same values and the same gradients, without keeping the scores."""

import math
import shutil

import pytest
import torch

import mibounds as mb
from mibounds import bounds
from mibounds.samples import pairs
from mibounds.samples.pairs import Pairs

N, H = 23, 4


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(pairs, "BLOCK", 1)
    monkeypatch.setattr(pairs, "FEWEST", 5)


def inputs():
    a, b = torch.randn(2, N, H, dtype=torch.float64)
    return a.requires_grad_(), b.requires_grad_()


EXTRA = torch.linspace(-1, 1, N, dtype=torch.float64)
BOUNDS = {
    "l1out": bounds.l1out,
    "dv": bounds.dv,
    "dv, all": lambda s: bounds.dv(s, "all"),
    "mine": lambda s: bounds.mine(s, torch.tensor(0.5, dtype=torch.float64))[0],
    "nwj": bounds.nwj,
    "infonce": bounds.infonce,
    "tuba": lambda s: bounds.tuba(s, EXTRA),
    "interpolated": lambda s: bounds.tuba_interpolated(s, EXTRA, 0.4),
    "js": bounds.js,
    "js, all": lambda s: bounds.js(s, "all"),
    "smile": lambda s: bounds.smile(s, 1.0),
    "flo": lambda s: bounds.flo(s, EXTRA),
}


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("name", BOUNDS)
def test_every_bound_is_the_same_in_blocks(name, known):
    a, b = inputs()
    whole = BOUNDS[name](a @ b.T)
    expected = torch.autograd.grad(whole, (a, b))
    if known:
        in_blocks = Pairs(b, lambda b, a: a @ b.T, (a * b).sum(1), rows=[a])
    else:
        in_blocks = Pairs(b, lambda b: a @ b.T, (a * b).sum(1))
    assert in_blocks.wide < N / 4
    value = BOUNDS[name](in_blocks)
    torch.testing.assert_close(value, whole)
    for got, want in zip(torch.autograd.grad(value, (a, b)), expected, strict=True):
        torch.testing.assert_close(got, want)


@pytest.mark.usefixtures("small_blocks")
def test_blocks_are_computed_again_and_not_kept():
    a, b = inputs()
    calls = []

    def block(b, a):
        calls.append(b.shape)
        return a @ b.T

    value = bounds.infonce(Pairs(b, block, (a * b).sum(1), rows=[a]))
    forwards = len(calls)
    assert forwards == math.ceil(N / 5) ** 2
    value.backward()
    assert len(calls) == 2 * forwards


@pytest.mark.parametrize("name", ["l1out", "dv", "nwj", "infonce", "tuba", "js", "smile", "flo"])
def test_estimators_give_the_same_in_blocks(name, small_blocks, monkeypatch):
    x, y = torch.randn(N, 3).double(), torch.randn(N, 2).double()
    torch.manual_seed(1)
    estimator = mb.ESTIMATORS[name](3, 2, 8).double()
    in_blocks = estimator(x, y)
    gradients = torch.autograd.grad(in_blocks, list(estimator.parameters()))
    monkeypatch.undo()
    whole = estimator(x, y)
    torch.testing.assert_close(in_blocks, whole)
    for got, want in zip(
        gradients, torch.autograd.grad(whole, list(estimator.parameters())), strict=True
    ):
        torch.testing.assert_close(got, want)


def test_memory_grows_with_the_block_and_not_with_all_hidden_units():
    """Largest tensor that is ever made: far below N² H."""
    n, h = 1024, 128
    critic = mb.ConcatCritic(3, 2, h)
    largest = 0

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            nonlocal largest
            out = func(*args, **(kwargs or {}))
            if isinstance(out, torch.Tensor):
                largest = max(largest, out.numel())
            return out

    estimator = mb.InfoNCE(critic=critic)
    x, y = torch.randn(n, 3), torch.randn(n, 2)
    with Watch():
        estimator(x, y).backward()
    assert largest <= 2 * max(pairs.BLOCK, n * h) < n * n * h / 20


@pytest.mark.skipif(
    not any(shutil.which(c) for c in ("c++", "g++", "clang++")), reason="needs a C++ compiler"
)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("hidden", [8, (8, 8)])
def test_compiled_critics_give_the_same_value_and_gradient(hidden):
    x, y = torch.randn(64, 3), torch.randn(64, 2)
    torch.manual_seed(1)
    estimator = mb.NWJ(3, 2, hidden)
    plain = estimator(x, y)
    want = torch.autograd.grad(plain, list(estimator.parameters()))
    estimator.compile()
    value = estimator(x, y)
    got = torch.autograd.grad(value, list(estimator.parameters()))
    torch.testing.assert_close(value, plain, rtol=1e-4, atol=1e-5)
    for g, w in zip(got, want, strict=True):
        torch.testing.assert_close(g, w, rtol=1e-3, atol=1e-5)
    estimator.state_dict()  # the switch is no part of the state


@pytest.mark.parametrize("scale", [1e-3, 1e-6])
def test_products_of_matrices_keep_their_digits_when_the_variance_is_small(scale):
    """A Gaussian far narrower than the data is a difference of large numbers."""
    mu = torch.randn(64, 5)
    y = mu + scale * torch.randn(64, 5)
    p = torch.distributions.Independent(torch.distributions.Normal(mu, scale), 1)
    exact = bounds.l1out(p.log_prob(y[:, None]).T)
    torch.testing.assert_close(mb.l1out(p, y), exact, rtol=1e-4, atol=1e-3)
