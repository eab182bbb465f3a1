"""The methods that remove a nuisance: the gradient that each sends to the encoder."""

import pytest
import torch
from torch.nn import functional as F

import mibounds as mb
from experiments.nuisance_removal.config import WEIGHTS
from experiments.nuisance_removal.methods import (
    Penalty,
    make_penalty,
    make_removal,
    normalised_hsic,
)


def batch(n=24, z_dim=5, classes=4, values=3):
    """Codes that tell the nuisance, the nuisance, and labels that are independent of it."""
    g = torch.Generator().manual_seed(1)
    s = torch.arange(n) % values
    z = 3 * F.one_hot(s, z_dim) + torch.randn(n, z_dim, generator=g)
    return z.requires_grad_(), s, torch.arange(n) % classes


def naive_hsic(z, s):
    """By loops over pairs, with two Gaussian kernels and the centring matrix."""
    n = len(z)
    distances = torch.tensor([[(a - b).square().sum() for a in z] for b in z])
    k = (-distances / (2 * distances.median())).exp()
    ell = torch.tensor([[1.0 if a == b else 0.3 for a in s] for b in s])  # any Gaussian of one-hots
    h = torch.eye(n) - 1 / n
    k, ell = h @ k @ h, h @ ell @ h
    return (k * ell).sum() / (k.norm() * ell.norm())


def test_hsic_is_that_of_its_equation():
    z, s, _ = batch()
    torch.testing.assert_close(normalised_hsic(z, F.one_hot(s).float()), naive_hsic(z.detach(), s))


def test_hsic_does_not_see_scale_and_place():
    z, s, _ = batch()
    value = normalised_hsic(z, F.one_hot(s).float())
    torch.testing.assert_close(normalised_hsic(7 * z + 3, F.one_hot(s).float()), value)
    constant = normalised_hsic(torch.zeros_like(z), F.one_hot(s).float())
    assert constant.item() == 0


def test_an_adversary_learns_and_the_encoder_gets_the_reverse():
    z, s, y = batch()
    adversary = make_removal("adversary", 5, 4, 3, hidden=8)
    plain = F.cross_entropy(adversary.classifier(z), s)
    (forward,) = torch.autograd.grad(plain, z)
    value = adversary.term(z, s, y, 0.25)
    torch.testing.assert_close(value, plain)
    value.backward()
    torch.testing.assert_close(z.grad, -0.25 * forward)
    own = [p.grad.clone() for p in adversary.learnt]
    expected = torch.autograd.grad(F.cross_entropy(adversary.classifier(z), s), adversary.learnt)
    torch.testing.assert_close(own, list(expected))


def test_an_adversary_that_is_given_the_label_sees_it():
    z, s, y = batch()
    adversary = make_removal("adversary-given", 5, 4, 3, hidden=8)
    values = [adversary.term(z, s, labels, 1.0).item() for labels in (y, (y + 1) % 4)]
    assert values[0] != values[1]
    adversary = make_removal("adversary", 5, 4, 3, hidden=8)
    values = [adversary.term(z, s, labels, 1.0).item() for labels in (y, (y + 1) % 4)]
    assert values[0] == values[1]


@pytest.mark.parametrize("method", WEIGHTS)
def test_a_weight_scales_the_gradient(method):
    gradients = []
    for weight in (0.1, 0.2):
        torch.manual_seed(0)
        removal = make_removal(method, 5, 4, 3, hidden=8)
        z, s, y = batch()
        removal.term(z, s, y, weight).backward()
        gradients.append(z.grad)
    assert gradients[0].abs().sum() > 0
    torch.testing.assert_close(2 * gradients[0], gradients[1], rtol=1e-4, atol=1e-7)


def test_without_removal_nothing_is_added():
    z, s, y = batch()
    nothing = make_removal("none", 5, 4, 3)
    assert nothing.term(z, s, y, 1.0).item() == 0
    assert nothing.learnt == []
    assert nothing.penalty is None


def test_penalties_are_those_of_the_library():
    for method, kind in (("club", mb.CLUB), ("club_sample", mb.CLUBSample), ("default", mb.Ratio)):
        penalty = make_penalty(method, 5, 4, 3)
        assert type(penalty.estimator) is kind
        z, s, _ = batch()
        penalty(z, s).backward()
        assert z.grad.abs().sum() > 0


def test_a_conditional_penalty_is_called_with_the_label():
    removal = make_removal("default-given", 5, 4, 3)
    assert isinstance(removal, Penalty)
    seen = {}
    removal.penalty.forward = lambda z, s, **options: seen.update(options) or z.sum()
    z, s, y = batch()
    removal.term(z, s, y, 1.0)
    assert torch.equal(seen["given"], y)
    removal = make_removal("default", 5, 4, 3)
    removal.penalty.forward = lambda z, s: z.sum()
    removal.term(z, s, y, 1.0)
