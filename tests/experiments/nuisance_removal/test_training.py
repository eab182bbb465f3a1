"""The training of a removal: what the seed decides, and the statistics of z."""

import pytest
import torch

from experiments import Cell
from experiments.nuisance_removal import training
from experiments.nuisance_removal.config import TABLE
from experiments.nuisance_removal.networks import Model
from experiments.nuisance_removal.samples import make_samples
from mibounds.measure.results import Advice
from mibounds.minimise.health import PenaltyReport


def cell(method, seed=0, task=TABLE):
    return Cell("correct", task, method, seed)


@pytest.fixture
def samples(small):
    return make_samples(TABLE, small, 0)


@pytest.mark.parametrize("method", ["none", "adversary-1", "club_sample-0.1"])
def test_the_seed_decides(method, small, samples):
    before = torch.get_rng_state()
    first = training.train(small, cell(method), samples)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(99)
    second, other = (training.train(small, cell(method, seed), samples) for seed in (0, 1))
    states = [t.model.state_dict() for t in (first, second, other)]
    assert all(torch.equal(states[0][k], states[1][k]) for k in states[0])
    assert not torch.equal(states[0]["head.weight"], states[2]["head.weight"])


def test_all_methods_begin_with_the_same_network_and_see_the_same_batches(
    small, samples, monkeypatch
):
    """With a weight of 0 all the time they end with the same network, too."""
    monkeypatch.setattr(training, "ramp", lambda _: 0.0)
    methods = ("none", "adversary-given-1", "hsic-1", "club-1")
    ends = [training.train(small, cell(m), samples).model.state_dict() for m in methods]
    for end in ends[1:]:
        for name, value in ends[0].items():
            torch.testing.assert_close(end[name], value)


def test_it_learns_the_label(small, mnist):
    task = "coloured-mnist"
    config = type(small)(**{**vars(small), "steps": 60, "lr": 1e-2, "batch_size": 64})
    samples = make_samples(task, config, 0)
    trained = training.train(config, cell("none", task=task), samples)
    assert not trained.model.training
    with torch.no_grad():
        z = trained.model.encode(samples.as_trained)
        right = trained.model.head(z).argmax(1) == samples.as_trained.y
    assert right.double().mean() > 0.8


def test_z_is_normalised_by_the_training_samples(small, samples, monkeypatch):
    monkeypatch.setattr("experiments.nuisance_removal.networks.ENCODED", 64)  # 4 parts of 50
    trained = training.train(small, cell("hsic-1"), samples)
    z = trained.model.encode(samples.train)
    torch.testing.assert_close(z.mean(0), torch.zeros(4), atol=1e-4, rtol=0)
    torch.testing.assert_close(z.std(0), torch.ones(4), atol=0.1, rtol=0)


def test_the_normalisation_can_be_left_out(small, samples):
    config = type(small)(**{**vars(small), "normalisation": "none"})
    model = training.train(config, cell("none"), samples).model
    assert not any(isinstance(m, torch.nn.BatchNorm1d) for m in model.modules())
    assert Model(TABLE, config, samples).encode(samples.test).shape == (120, 4)


def test_warnings_on_the_way_are_kept(small, samples, monkeypatch):
    reports = iter(
        PenaltyReport(warnings=tuple(Advice(code, "", "") for code in codes))
        for codes in [(), ("growing",), ("growing", "below-zero"), *8 * [()]]
    )
    monkeypatch.setattr("mibounds.MIPenalty.report", lambda _: next(reports))
    trained = training.train(small, cell("club-0.1"), samples)
    assert trained.warned == ("growing", "below-zero")
