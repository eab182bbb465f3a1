"""Penalties and batches for the tests of `mibounds.minimise`."""

import warnings

import torch
from torch import nn

import mibounds as mb

Z, S, N = 3, 2, 32

# What a penalty does lives in its own classes, not in the estimators. One of each kind stands for
# the rest: a conditional; one that draws negatives; a learnt marginal beside it; a critic whose
# fit keeps statistics. The penalty's own way, which judges a batch before it learns from it, comes
# besides.
KINDS = ("club", "club_sample", "vub", "mine")
EVERY = (*KINDS, "default")


def batch(seed=0, n=N):
    """What an encoder gets, and the s that it depends on."""
    g = torch.Generator().manual_seed(seed)
    v = torch.randn(n, 5, generator=g)
    return v, v[:, :S] + 0.5 * torch.randn(n, S, generator=g)


def samples(seed, n=N):
    v, s = batch(seed, n)
    return v[:, :Z].clone(), s


def features(seed, n=N):
    """Samples with a gradient for x, as from an encoder."""
    z, s = samples(seed, n)
    return z.requires_grad_(), s


def encoder(seed=0):
    torch.manual_seed(seed)
    return nn.Linear(5, Z)


def make(name="club", **options):
    torch.manual_seed(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", mb.PenaltyWarning)
        if name == "default":
            return mb.MIPenalty(mb.Ratio(Z, S, (8, 8)), **options)
        return mb.MIPenalty(mb.ESTIMATORS[name](Z, S, 8), **options)


def parameters(module):
    return [p.detach().clone() for p in module.parameters()]


def same(a, b):
    return all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


def loss_of(net, penalty, seed):
    v, s = batch(seed)
    z = net(v)
    return z.square().mean() + 0.1 * penalty(z, s)


def train(net, optimizer, penalty, seeds):
    for seed in seeds:
        optimizer.zero_grad()
        loss_of(net, penalty, seed).backward()
        optimizer.step()


def angles(start=0.7):
    """x = sin θ a + cos θ b: its first two columns have the correlation sin θ with y."""
    theta = nn.Parameter(torch.full((S,), start))

    def draw(generator):
        a = torch.randn(128, S, generator=generator)
        b = torch.randn(128, Z, generator=generator)
        tilted = theta.sin() * a + theta.cos() * b[:, :S]
        return torch.cat([tilted, b[:, S:]], 1), a, None

    def truth():
        return -theta.detach().cos().abs().log().sum().item()

    return theta, draw, truth
