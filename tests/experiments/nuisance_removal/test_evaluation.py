"""What is measured after a removal: probes where the truth is known, and accuracies."""

import math

import pytest
import torch

from experiments.nuisance_removal.config import TABLE
from experiments.nuisance_removal.evaluation import (
    balance,
    estimate_left,
    evaluate,
    percent,
    probe,
    worst,
)
from experiments.nuisance_removal.networks import Model
from experiments.nuisance_removal.samples import make_samples

N = 4000


def draw(values=4):
    g = torch.Generator().manual_seed(3)
    return torch.randint(values, (N,), generator=g), torch.randn(N, 3, generator=g), g


@pytest.mark.parametrize("hidden", [0, 16])
def test_a_probe_reads_what_is_there(hidden):
    """Half of the samples tell s, the others nothing."""
    s, noise, g = draw()
    shown = torch.rand(N, generator=g) < 0.5
    z = torch.cat([torch.eye(4)[s] * shown[:, None], 0.01 * noise], 1)
    left = probe(z, s, 4, hidden, 300, 0)
    assert left.nats == pytest.approx(0.5 * math.log(4), abs=0.08)
    assert left.points == pytest.approx(100 * (0.5 + 0.5 / 4 - 1 / 4), abs=4)


@pytest.mark.parametrize("hidden", [0, 16])
def test_a_probe_reads_nothing_where_nothing_is(hidden):
    s, noise, _ = draw()
    left = probe(noise, s, 4, hidden, 300, 0)
    assert abs(left.nats) < 0.01
    assert abs(left.points) < 4


def test_an_mlp_reads_what_a_linear_probe_does_not():
    s, noise, _ = draw(2)
    z = torch.where(s[:, None] == 1, 2.0, 0.5) * noise  # another scale, the same mean
    linear, mlp = (probe(z, s, 2, hidden, 600, 0).nats for hidden in (0, 32))
    assert linear < 0.02
    assert mlp > 0.25


def test_a_probe_that_is_given_the_label_reads_what_is_left_given_it():
    """z is the exclusive or of s and y: independent of s, but not given y."""
    s, _, g = draw(2)
    y = torch.randint(2, (N,), generator=g)
    z = (s ^ y)[:, None].float()
    assert abs(probe(z, s, 2, 16, 400, 0).nats) < 0.01
    given = probe(z, s, 2, 16, 400, 0, torch.eye(2)[y])
    assert given.nats == pytest.approx(math.log(2), abs=0.02)


def test_a_probe_is_the_same_every_time_and_takes_no_gradient():
    s, noise, _ = draw()
    z = (torch.eye(4)[s, :3] + noise).requires_grad_()
    before = torch.get_rng_state()
    first = probe(z.detach(), s, 4, 8, 30, 0)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(5)
    assert probe(z.detach(), s, 4, 8, 30, 0) == first
    assert probe(z.detach(), s, 4, 8, 30, 1) != first


def test_codes_that_are_not_finite_give_no_number():
    s, noise, _ = draw()
    noise[:, 1] = math.nan
    assert math.isnan(probe(noise, s, 4, 8, 5, 0).nats)
    assert math.isnan(estimate_left(noise, s, 100, 0))
    assert estimate_left(torch.ones(N, 3), s, 100, 0) == 0
    assert probe(torch.ones(N, 3), s, 4, 8, 5, 0).nats == pytest.approx(0, abs=0.01)


def test_the_estimate_is_of_some_rows():
    s, noise, _ = draw(2)
    z = torch.eye(2)[s] + 0.1 * noise[:, :2]
    assert estimate_left(z, s, 400, 0) == pytest.approx(math.log(2), abs=0.1)


def test_balanced_weights_make_label_and_nuisance_independent():
    g = torch.Generator().manual_seed(0)
    y = torch.randint(3, (900,), generator=g)
    s = torch.where(torch.rand(900, generator=g) < 0.6, y, torch.randint(3, (900,), generator=g))
    weights = balance(y, s, 3, 3).double()
    table = torch.zeros(9).double().index_add(0, 3 * y + s, weights).view(3, 3) / 900
    marginals = torch.eye(3)[y].mean(0).double(), torch.eye(3)[s].mean(0).double()
    torch.testing.assert_close(table, torch.outer(*marginals), atol=1e-6, rtol=1e-6)


def test_accuracies():
    right = torch.tensor([True, True, False, True])
    assert percent(right) == 75
    assert worst(right, torch.tensor([5, 0, 0, 5])) == 50
    assert math.isnan(percent(right[:0]))


def test_groups_and_parts(small):
    """A model that predicts the nuisance, where accuracies are known."""
    samples = make_samples(TABLE, small, 0)
    model = Model(TABLE, small, samples).eval()
    model.encode = lambda part: torch.eye(4)[part.s]
    with torch.no_grad():
        model.head.weight.zero_()
        model.head.weight[[0, 1], [0, 1]] = 1.0
    found = evaluate(small, model, samples, 0)
    agrees = (samples.test.y == samples.test.s).double().mean().item()
    assert found["accuracy"] == pytest.approx(100 * agrees)
    assert (found["accuracy_agreeing"], found["accuracy_disagreeing"]) == (100, 0)
    assert found["worst_group"] == 0
    past = samples.as_trained
    agrees = (past.y == past.s).double().mean().item()
    assert found["accuracy_as_trained"] == pytest.approx(100 * agrees)
    # Re-weighted, label and nuisance are independent: of two labels each is right half the time.
    y, s = (v.double().mean().item() for v in (samples.validation.y, samples.validation.s))
    assert found["validation"] == pytest.approx(100 * (y * s + (1 - y) * (1 - s)))
    assert found["mlp_nats_given"] > 0.01
