"""What networks are worth: predictions, batch statistics of a test, what embeddings tell."""

import pytest
import torch
from made_up import adaptation

from experiments.domain_adaptation.evaluation import NetworkEvaluation, project, read_labels
from experiments.domain_adaptation.experiment import _worst
from experiments.domain_adaptation.training import MEASURED
from experiments.training import train


def test_a_prediction_does_not_depend_on_its_batch_unless_published(domains):
    images = domains[1].test_images
    plain, published = adaptation(domains), adaptation(domains, mode="as-published")
    for each, alike in ((plain, True), (published, False)):
        now = each.evaluate()
        z = now.embed("content", images, True)
        some = now.embed("content", images[:5], True)
        assert torch.allclose(z[:5], some, atol=1e-4) is alike


@pytest.mark.parametrize(
    ("changes", "apart"),
    [
        ({"test_statistics": "joined"}, {"content": False, "domain": False}),
        ({"test_statistics": "joined", "statistics": "split"}, {"content": True, "domain": False}),
        ({"test_statistics": "split"}, {"content": True, "domain": False}),
        ({"domain_statistics": "split"}, {"content": True, "domain": True}),
    ],
)
def test_statistics_for_a_test(changes, apart, domains):
    c = adaptation(domains, **changes)
    c.normalisers = [c.normalisers[0]] * 2  # so that nothing but the statistics differs
    now = c.evaluate()
    for kind, differs in apart.items():
        source, target = (now.embed(kind, domains[1].test_images, side) for side in (False, True))
        assert torch.allclose(source, target, atol=1e-5) is not differs
        batch = torch.cat([c.normalisers[0](d.images) for d in domains])
        net = c.model.nets[kind].eval()
        layer = c.averaged[kind].layers[1]
        expected = net.layers[0](batch[40:] if differs else batch)
        torch.testing.assert_close(layer.collected[0], expected.mean((0, 2, 3)))
    trained = [now.embed("content", domains[1].test_images, side, True) for side in (False, True)]
    assert torch.allclose(*trained, atol=1e-5) is not ("statistics" in changes)


def test_labels_are_read_from_embeddings_that_hold_them():
    torch.manual_seed(0)
    labels = torch.randint(4, (400,))
    told, silent = torch.eye(4)[labels] @ torch.randn(4, 6), torch.randn(400, 6)
    assert read_labels(told + 0.1 * silent, labels) > 95
    assert read_labels(silent, labels) < 45  # chance is 25
    half = torch.where((labels < 2)[:, None], told, silent)
    assert read_labels(half, labels) < read_labels(told, labels)


def test_what_is_taken_for_what(domains):
    c = adaptation(domains, "source")
    train([c])
    target = c.domains[1]
    (found,) = c.found["confusion"]
    counts = torch.tensor(found)
    assert torch.equal(counts.sum(1), target.test_labels.bincount(minlength=10))
    predicted = c.evaluate().predict(target.test_images, True)
    assert torch.equal(counts.sum(0), predicted.bincount(minlength=10))
    right = 100 * counts.diagonal().sum() / len(predicted)
    assert right.item() == pytest.approx(c.found["curve"][-1], abs=1e-3)
    taken = (target.test_labels == 3) & (predicted == 5)
    assert counts[3, 5] == taken.sum()
    assert _worst({"confusion": [[8, 2], [1, 3]]}) == 75.0


def test_domains_are_read_from_contents_that_hold_them(domains, monkeypatch):
    c = adaptation(domains, "source", embedded=0)  # constant contents have no plane to show
    assert c.evaluate().sides(3).tolist() == [0, 0, 0, 1, 1, 1]
    told = torch.eye(2)[c.evaluate().sides(MEASURED)].repeat(1, 3)
    for z, right in ((told, 100.0), (torch.zeros_like(told), 50.0)):
        monkeypatch.setattr(NetworkEvaluation, "embed_both", lambda *_, z=z, **__: [z])
        c.done = c.rounds
        c.test()
        assert c.found["domain_in_content"][-1] == right


def test_points_in_a_plane():
    torch.manual_seed(0)
    z = torch.randn(50, 1) @ torch.randn(1, 6) + 0.01 * torch.randn(50, 6)
    points = project(z)
    assert points.shape == (50, 2)
    assert points.isfinite().all()
