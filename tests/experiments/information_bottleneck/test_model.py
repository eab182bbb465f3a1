"""The model of the information bottleneck: its bounds, and who minimises what."""

import math
from dataclasses import replace

import pytest
import torch
from made_up import BOTTLENECK, runs

import mibounds as mb
from experiments.information_bottleneck.model import JITTER, Bottleneck, scale_pixels
from experiments.information_bottleneck.training import BottleneckTraining
from experiments.training import cycle


def model(method, mode="correct", **options):
    torch.manual_seed(0)
    return Bottleneck(replace(BOTTLENECK, **options), mode, method, 0.5)


def test_the_bounds_are_those_of_the_library():
    torch.manual_seed(1)
    x, uniform = torch.randn(12, 784), torch.rand(12)
    for method in ("club", "l1out", "vub", "club_sample"):
        m = model(method)
        p = m.encode(x)
        z = p.sample()
        value = m.information(p, x, z, uniform)
        if method == "vub":
            expected = mb.vub(p)
        elif method == "club_sample":
            expected = mb.club_sample(p, z, index=cycle(uniform)[:, None])
        else:
            expected = getattr(mb, method)(p, z)
        torch.testing.assert_close(value, expected)
        if method == "club":
            published = model(method, "as-published")
            p = published.encode(x)
            twice = published.information(p, x, z, uniform)
            torch.testing.assert_close(twice, 2 * mb.club(p, z))


@pytest.mark.parametrize("method", ["vclub", "mine"])
def test_only_the_encoder_minimises_and_only_the_estimator_learns(method):
    torch.manual_seed(1)
    m = model(method)
    x, noise, uniform = torch.randn(12, 784), torch.randn(12, 4), torch.rand(12)
    p = m.encode(x)
    m.information(p, x, p.mean + p.stddev * noise, uniform).backward()
    assert all(w.grad is None for w in m.estimator.parameters())
    m.zero_grad()
    pixels, labels = (255 * torch.rand(12, 784)).to(torch.uint8), torch.arange(12) % 10
    loss, entropy, _ = m(pixels, labels, noise, uniform)
    loss.backward()
    reached = m.encoder.layers[0].weight.grad.clone()
    learnt = [w.grad.clone() for w in m.estimator.parameters()]
    m.zero_grad()
    x = scale_pixels(pixels)
    z = m.encode(x).mean + m.encode(x).stddev * noise
    m.estimator.learning_loss(x, z.detach()).backward()
    for mine, w in zip(learnt, m.estimator.parameters(), strict=True):
        torch.testing.assert_close(mine, w.grad, rtol=1e-3, atol=1e-5)
    # And the encoder: by the classifier and by beta times the bound, not by what q learns.
    m.zero_grad()
    p = m.encode(x)
    z = p.mean + p.stddev * noise
    own = torch.nn.functional.cross_entropy(m.decoder(z), labels)
    torch.testing.assert_close(entropy, own)
    (own + 0.5 * m.information(p, x, z, uniform)).backward()
    torch.testing.assert_close(reached, m.encoder.layers[0].weight.grad, rtol=1e-3, atol=1e-4)


def test_q_learns_through_noise_on_its_inputs():
    torch.manual_seed(1)
    m = model("vclub")
    pixels, labels = (255 * torch.rand(12, 784)).to(torch.uint8), torch.arange(12) % 10
    noise, uniform, jitter = torch.randn(12, 4), torch.rand(12), torch.randn(12, 784)
    without, _, _ = m(pixels, labels, noise, uniform)
    through, _, _ = m(pixels, labels, noise, uniform, jitter)
    x = scale_pixels(pixels)
    z = (m.encode(x).mean + m.encode(x).stddev * noise).detach()
    learn = m.estimator.learning_loss
    expected = learn(x + JITTER * jitter, z) - learn(x, z)
    assert abs(expected.item()) > 1e-3
    torch.testing.assert_close(through - without, expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("method", ["club", "vclub", "none"])
def test_the_recipe_learns_from_noisy_digits_and_is_tested_with_clean_ones(method, digits):
    torch.manual_seed(1)
    pixels, labels = torch.full((12, 784), 100, dtype=torch.uint8), torch.arange(12) % 10
    given = pixels, labels, torch.randn(12, 4), torch.rand(12), torch.randn(12, 784)
    noisy = model(method, "recipe", noise=0.4)(*given)
    # The same on pixels that have the noise already.
    x = scale_pixels(pixels) + 0.4 * given[-1]
    plain = model(method)
    expected = plain(127.5 * (x + 1), *given[1:4])
    torch.testing.assert_close(noisy[0], expected[0], rtol=1e-4, atol=1e-4)
    # A test has none: before training the averaged weights are the same, whatever the mode.
    plain, other = (
        BottleneckTraining(BOTTLENECK, runs("none", mode=mode), digits, 1)
        for mode in ("correct", "recipe")
    )
    for each in (plain, other):
        each.done = 1
        each.test()
    assert torch.equal(plain.found["curve"][0], other.found["curve"][0])
    assert next(other.draw(0)).keys() == next(plain.draw(0)).keys() | {"pixel_noise"}
    assert (plain.model.noise, other.model.noise) == (0.0, BOTTLENECK.noise)


def test_a_lower_bound_below_zero_pulls_no_more():
    m = model("nwj")
    x = torch.randn(12, 784)
    p = m.encode(x)
    with torch.no_grad():
        m.estimator.critic.head.offset.add_(-50.0)  # scores so low that the bound is below zero
    z = p.rsample()
    z.retain_grad()
    value = m.information(p, x, z, torch.rand(12))
    value.backward()
    assert value.item() == 0
    assert z.grad.abs().max().item() == 0


def test_what_was_published_has_a_clipped_scale():
    assert model("club", scale="shifted").scale == "shifted"
    assert model("club", "as-published", scale="shifted").scale == "clipped"
    rho = torch.cat([torch.zeros(3, 2), torch.full((3, 2), 9.0)], 1)
    for scale, largest in (("shifted", 4.0), ("clipped", 1.1)):
        _, found = model("club", scale=scale).code(rho)
        torch.testing.assert_close(found, torch.full((3, 2), math.log1p(math.exp(largest))))
