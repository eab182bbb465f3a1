"""Domain adaptation: each loss by its equation, what may see which labels, resumed training."""

import json
import os
import subprocess
import sys
from dataclasses import fields, replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from mibounds.experiments import EXPERIMENTS, Cell, courses, objectives
from mibounds.experiments.adaptations import Batch, make_adaptation, make_penalty
from mibounds.experiments.as_published import ADAPTATION
from mibounds.experiments.courses import Course, project
from mibounds.experiments.domains import (
    CIFAR10,
    SHARED,
    STL10,
    TASKS,
    Domain,
    Normaliser,
    Task,
    load_task,
    shape_images,
    share_classes,
    take_images,
)
from mibounds.experiments.encoders import BatchNorm, Encoder, Noise, collecting, forget_statistics
from mibounds.experiments.ingredients import (
    ABLATIONS,
    BOUNDS,
    METHODS,
    PRESETS,
    DomainAdaptationConfig,
    Settings,
    ramp,
    settle,
)
from mibounds.recordings import _unchanged

pytest.importorskip("pooch")

TINY = Settings(widths=(4, 4, 6), q_hidden=(5,), batch_size=6, mi_weight=0.5)
TASK = Task("mnist", "usps", 8, 3)
CONFIG = DomainAdaptationConfig(
    steps=6, points=2, embedded=5, widths=(4, 4, 6), q_hidden=(5,), batch_size=6
)


def domain(seed, n=40, side=8, classes=10, colours=1):
    """Noisy prototypes, as bytes; those of two seeds differ in contrast."""
    g = torch.Generator().manual_seed(7)
    prototypes = 255.0 * (torch.rand(classes, side, side, colours, generator=g) < 0.4)
    g = torch.Generator().manual_seed(seed)
    labels = torch.arange(2 * n) % classes
    noise = 30 * torch.randn(2 * n, side, side, colours, generator=g)
    images = ((0.9 - 0.3 * seed) * prototypes[labels] + noise).clamp(0, 255).to(torch.uint8)
    return Domain(images[:n], labels[:n], images[n:], labels[n:], "made up")


@pytest.fixture
def domains(monkeypatch):
    monkeypatch.setitem(TASKS, "made-up", replace(TASK, classes=10))
    return domain(0), domain(1)


def course(domains, method="club_sample", mode="correct", seed=0, **changes):
    cell = Cell(mode, "made-up", method, seed)
    return Course(replace(CONFIG, **changes), cell, *domains)


def batch(n=6, seed=0, classes=3):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(2 * n, 3, 8, 8, generator=g)
    again = x + 0.1 * torch.randn(x.shape, generator=g)
    labels = torch.arange(n) % classes
    return Batch(x, labels, again, torch.tensor(0.7), torch.tensor(0.5))


def model(method, **changes):
    torch.manual_seed(0)
    return make_adaptation(method, replace(TINY, **changes), TASK)


def values(course):
    return {
        name: tensor.detach().clone()
        for name, tensor in course.tensors().items()
        if name not in ("penalty values", "penalty spread")  # for reports alone
    }


def same(a, b):
    assert a.keys() == b.keys()
    for name in a:
        assert torch.equal(a[name], b[name]), name


# --- losses by their equations -------------------------------------------------------------------


def test_the_reversed_gradient():
    net, disc = torch.nn.Linear(3, 4), torch.nn.Linear(4, 2)
    x, weight = torch.randn(6, 3), torch.tensor(0.3)
    objectives.domain_loss(disc(objectives.reverse(net(x), weight))).backward()
    got = net.weight.grad.clone(), disc.weight.grad.clone()
    net.zero_grad(), disc.zero_grad()
    domains = torch.tensor([0, 0, 0, 1, 1, 1])
    F.cross_entropy(disc(net(x)), domains).backward()
    torch.testing.assert_close(got[0], -0.3 * net.weight.grad)
    torch.testing.assert_close(got[1], disc.weight.grad)


def test_dann_is_the_cross_entropy_and_the_reversed_adversary():
    m, b = model("dann", dropout=0.0, noise=0.0), batch()
    ((loss, names),) = m.phases(b)
    assert set(names) == set(m.nets)
    z = m.nets["content"](b.x)
    source = F.cross_entropy(m.nets["classifier"](z[:6]), b.labels)
    domain = F.cross_entropy(m.nets["discriminator"](z), torch.arange(12) // 6)
    torch.testing.assert_close(loss, source + domain)
    w = m.nets["content"].layers[0].weight
    (got,) = torch.autograd.grad(loss, w)
    (expected,) = torch.autograd.grad(source - 0.7 * domain, w)
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-6)


def test_the_losses_of_domain_separation():
    x, y = torch.randn(5, 3, 4, 4), torch.randn(5, 3, 4, 4)
    k, total = 3 * 16, 0.0
    for a, b in zip(x.flatten(1), y.flatten(1), strict=True):
        d = a - b
        total += d.dot(d) / k - d.sum() ** 2 / k**2
    torch.testing.assert_close(objectives.reconstruction_loss(x, y), total / 5)
    shared, private = torch.randn(5, 4), torch.randn(5, 4)
    a, b = (h - h.mean(0) for h in (shared, private))
    a, b = (torch.stack([row / row.norm() for row in h]) for h in (a, b))
    norm = sum((a[:, i].dot(b[:, j])) ** 2 for i in range(4) for j in range(4))
    torch.testing.assert_close(objectives.difference_loss(shared, private), norm / 16)


def test_domain_separation_adds_up():
    m, b = model("dsn", dropout=0.0, noise=0.0), batch()
    ((loss, _),) = m.phases(b)
    z = m.nets["content"](b.x)
    own = m.nets["private_source"](b.x[:6]), m.nets["private_target"](b.x[6:])
    rebuilt = m.nets["decoder"](z + torch.cat(own))
    expected = F.cross_entropy(m.nets["classifier"](z[:6]), b.labels)
    for half, private in zip((slice(0, 6), slice(6, 12)), own, strict=True):
        expected = expected + 0.01 * objectives.reconstruction_loss(b.x[half], rebuilt[half])
        expected = expected + 0.075 * objectives.difference_loss(z[half], private)
    domain = F.cross_entropy(m.nets["discriminator"](z), torch.arange(12) // 6)
    torch.testing.assert_close(loss, expected + 0.25 * domain)


def test_the_three_steps_of_maximum_discrepancy():
    m, b = model("mcd", dropout=0.0, noise=0.0), batch()

    def plain():
        z = m.nets["content"](b.x)
        first, second = m.nets["classifier"].first(z), m.nets["classifier"].second(z)
        loss = F.cross_entropy(first[:6], b.labels) + F.cross_entropy(second[:6], b.labels)
        p, q = first[6:].softmax(1), second[6:].softmax(1)
        return loss, sum(abs(p[i, j] - q[i, j]) for i in range(6) for j in range(3)) / 18

    seen = []
    for loss, names in m.phases(b):
        source, disagreement = plain()
        expected = [source, source - disagreement][len(seen)] if len(seen) < 2 else disagreement
        torch.testing.assert_close(loss, expected)
        seen.append(tuple(names))
        with torch.no_grad():  # the next loss must see what this one changed
            for name in names:
                for p in m.nets[name].parameters():
                    p.add_(0.01 * torch.randn_like(p))
    assert seen == [("content", "classifier"), ("classifier",), *[("content",)] * 4]


def test_a_step_changes_the_networks_of_its_phase_alone(domains):
    c = course(domains, "mcd")
    c.given = {k: v[:1] for k, v in c.draw(0).items()}
    before = values(c)
    z = c.model.nets["content"](torch.randn(4, 3, 8, 8))
    c.update(c.model.nets["classifier"](z).square().mean(), ("classifier",), torch.tensor(0.1))
    after = values(c)
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed
    assert all("classifier" in name for name in changed)


def test_entropy_balance_and_consistency():
    logits, teacher = torch.randn(5, 4), 3 * torch.randn(5, 4)
    p, t = logits.softmax(1), teacher.softmax(1)
    entropy = -sum(p[i, j] * p[i, j].log() for i in range(5) for j in range(4)) / 5
    torch.testing.assert_close(objectives.conditional_entropy(logits), entropy)
    mean = p.mean(0)
    balance = sum(mean[j] * (mean[j] * 4).log() for j in range(4))
    torch.testing.assert_close(objectives.imbalance(logits), balance)
    kl = [sum(t[i, j] * (t[i, j] / p[i, j]).log() for j in range(4)) for i in range(5)]
    sure = t.amax(1) > 0.8
    assert 0 < sure.sum() < 5
    expected = sum(kl[i] for i in range(5) if sure[i]) / 5
    torch.testing.assert_close(objectives.consistency(logits, teacher, 0.8), expected)
    teacher.requires_grad_()
    logits.requires_grad_()
    objectives.consistency(logits, teacher, 0.0).backward()
    assert teacher.grad is None
    torch.testing.assert_close(logits.grad, (p - t) / 5)


def test_the_adversary_goes_along_the_curvature():
    w = torch.randn(4, 12, dtype=torch.float64)
    x, start = torch.randn(2, 3, 3, 2, 2, dtype=torch.float64)

    def classify(x):
        return x.flatten(1) @ w.T

    found = objectives.find_adversary(classify, x, classify(x), start, 1e-6, 3.5)
    for image, direction, change in zip(x, start, found, strict=True):
        p = (w @ image.flatten()).softmax(0)
        hessian = w.T @ (p.diag() - p.outer(p)) @ w
        expected = hessian @ direction.flatten()
        expected = 3.5 * expected / expected.norm()
        torch.testing.assert_close(change.flatten(), expected, rtol=1e-3, atol=1e-3)
    assert not found.requires_grad


def test_virtual_adversarial_training_adds_up():
    m, b = model("source", vat_source=2.0, vat_target=0.5), batch()
    torch.manual_seed(3)
    got = m.resist(b.x)
    torch.manual_seed(3)
    start = torch.randn_like(b.x)
    m.nets.eval()
    logits = m.logits(b.x).detach()
    change = objectives.find_adversary(m.logits, b.x, logits, start, 0.1, 3.5)
    q = m.logits(b.x + change).log_softmax(1)
    kl = F.kl_div(q, logits.softmax(1), reduction="none").sum(1)
    torch.testing.assert_close(got, 2.0 * kl[:6].mean() + 0.5 * kl[6:].mean())
    assert got.item() > 0
    assert got.requires_grad
    m.nets.train()
    m.resist(b.x)
    assert m.nets.training


def test_what_is_added_is_the_sum_of_its_parts():
    changes = {"entropy": 0.2, "balance": 0.3, "teacher": 2.0, "teacher_threshold": 0.1}
    m, b = model("source", dropout=0.0, noise=0.0, **changes), batch()
    with torch.no_grad():
        for p in m.teacher.parameters():
            p.add_(0.05 * torch.randn_like(p))
    ((loss, _),) = m.phases(b)
    logits = m.logits(b.x)
    taught = m.teacher["classifier"](m.teacher["content"](b.again))
    expected = (
        F.cross_entropy(logits[:6], b.labels)
        + 0.2 * objectives.conditional_entropy(logits[6:])
        + 0.3 * objectives.imbalance(logits[6:])
        + 2.0 * objectives.consistency(logits[6:], taught[6:], 0.1)
    )
    torch.testing.assert_close(loss, expected)
    assert all(not p.requires_grad for p in m.teacher.parameters())


def test_the_published_likelihood_lacks_its_log_variance():
    for name in ("club", "club_sample"):
        e = ADAPTATION[name](3, 2, (4,))
        x, y = torch.randn(8, 3), torch.randn(8, 2)
        p = e.conditional(x)
        expected = (((y - p.mean) / p.stddev) ** 2).sum(1).mean()
        torch.testing.assert_close(e.learning_loss(x, y), expected)


# --- the framework of the paper ------------------------------------------------------------------


@pytest.mark.parametrize("method", BOUNDS)
@pytest.mark.parametrize(
    ("gradient", "reached"),
    [("content", {"content"}), ("domain", {"domain"}), ("both", {"content", "domain"})],
)
def test_mutual_information_reaches_the_encoders_it_should(method, gradient, reached):
    m, b = model(method, mi_gradient=gradient), batch()
    z, z_d = m.nets["content"](b.x), m.nets["domain"](b.x)
    before = [p.clone() for p in m.penalty.parameters()]
    value = m.information(z, z_d)
    if value.item() == 0:  # a lower bound below zero pulls no more
        value = m.penalty.bound(
            z.detach() if gradient == "domain" else z,
            z_d.detach() if gradient == "content" else z_d,
        )
    assert value.isfinite()
    weights = {name: m.nets[name].layers[0].weight for name in ("content", "domain")}
    found = torch.autograd.grad(value, list(weights.values()), allow_unused=True)
    assert {n for n, g in zip(weights, found, strict=True) if g is not None and g.any()} == reached
    changed = [not torch.equal(a, p) for a, p in zip(before, m.penalty.parameters(), strict=True)]
    assert any(changed)  # it was fitted
    assert all(p.grad is None for p in m.penalty.parameters())


def test_the_framework_adds_up():
    m, b = model("club", dropout=0.0, noise=0.0, domain_weight=0.3), batch()
    ((loss, names),) = m.phases(b)
    assert set(names) == {"content", "classifier", "domain", "discriminator"}
    z, z_d = m.nets["content"](b.x), m.nets["domain"](b.x)
    expected = F.cross_entropy(m.nets["classifier"](z[:6]), b.labels)
    domain = F.cross_entropy(m.nets["discriminator"](z_d), torch.arange(12) // 6)
    expected = expected + 0.3 * domain + 0.5 * m.penalty.bound(z, z_d)
    torch.testing.assert_close(loss, expected)


def test_a_lower_bound_below_zero_pulls_no_more():
    m = model("nwj")
    with torch.no_grad():
        m.penalty.estimator.critic.head.offset.add_(-50.0)
    z, z_d = (torch.randn(12, 6, requires_grad=True) for _ in range(2))
    value = m.information(z, z_d)
    value.backward()
    assert value.item() == 0
    assert not z.grad.any()


@pytest.mark.parametrize("q", ["gaussian", "unit", "low-rank", "mixture", "student"])
def test_families_of_q(q):
    penalty = make_penalty("club", replace(TINY, q=q, mi_direction="both"), 0)
    assert len(penalty.estimators) == 2
    assert penalty(torch.randn(12, 6), torch.randn(12, 6)).isfinite()
    assert penalty.capturable


def test_the_direction_of_q():
    z, z_d = torch.randn(12, 6), torch.randn(12, 6)
    forward, backward = model("club"), model("club", mi_direction="backward")
    torch.testing.assert_close(forward.information(z, z_d), backward.information(z_d, z))
    again = model("club").information(z_d, z)
    assert not torch.allclose(again, model("club").information(z, z_d))


# --- training ------------------------------------------------------------------------------------

ALL = [("correct", m) for m in METHODS]
ALL += [("recipe", m) for m in ("source", "club_sample", "mcd")]
ALL += [("as-published", m) for m in ("mine", "club_sample")]
ALL += [("recipe", "club_sample-with-entropy-and-vat")]


@pytest.mark.parametrize(("mode", "method"), ALL)
def test_a_step_can_be_taken_back(mode, method, domains):
    """All that a step writes is known, and stays where it is: else no graph could hold it."""
    c = course(domains, method, mode)
    c.given = c.draw(0)
    places = {name: tensor.data_ptr() for name, tensor in c.tensors().items()}
    before, taken = values(c), []
    for _ in range(2):
        with torch.no_grad():
            for name, tensor in c.tensors().items():
                if name in before:
                    tensor.copy_(before[name])
        torch.manual_seed(1)
        if c.model.penalty is not None:
            c.model.penalty.generator.manual_seed(1)
        c.step()
        taken.append(values(c))
    same(*taken)
    assert {name: tensor.data_ptr() for name, tensor in c.tensors().items()} == places
    assert c.number.item() == c.place.item() == 1
    for name in c.model.nets:
        assert any(not torch.equal(before[k], taken[0][k]) for k in before if k.startswith(name))
    assert all(tensor.isfinite().all() for tensor in taken[0].values() if tensor.ndim)


def test_recording_a_step_does_not_take_it(domains, monkeypatch):
    """With a stand-in for the GPU, which takes the step twice and back, as for a real graph."""
    plain = course(domains)
    expected = plain.run()
    recorded = []

    def record(step, state, generators):
        for _ in range(2):
            with _unchanged(state, generators):
                step()
        recorded.append(len(generators))
        return step

    monkeypatch.setattr(courses, "record", record)
    monkeypatch.setattr(courses, "_on_gpu", lambda device: True)
    c = course(domains)
    found = c.run()
    assert recorded == [1]
    assert c.captured
    same(values(plain), values(c))
    assert found == expected
    monkeypatch.setattr(courses, "record", lambda *_: RuntimeError("waits"))
    c = course(domains)
    with pytest.warns(UserWarning, match="not recorded, which is slow: waits"):
        c.run()
    same(values(plain), values(c))
    assert not c.captured


@pytest.mark.parametrize(("mode", "method"), ALL)
def test_target_labels_change_no_weight(mode, method, domains):
    source, target = domains
    other = replace(
        target, labels=(target.labels + 3) % 10, test_labels=(target.test_labels + 5) % 10
    )
    found = []
    for each in (target, other):
        c = course((source, each), method, mode)
        c.run()
        found.append((values(c), c.found["mi"]))
    same(found[0][0], found[1][0])
    np.testing.assert_array_equal(found[0][1], found[1][1])


@pytest.mark.parametrize(("mode", "method"), ALL)
def test_interrupted_training_goes_on(mode, method, domains, tmp_path, monkeypatch):
    monkeypatch.setattr(courses, "BLOCK", 2)
    monkeypatch.setattr(courses, "EVERY", 1)
    whole = course(domains, method, mode)
    expected = whole.run()
    broken = course(domains, method, mode, checkpoints=str(tmp_path))
    take_block = broken.take_block

    def break_off():
        if broken.done == 2:
            raise KeyboardInterrupt
        take_block()

    monkeypatch.setattr(broken, "take_block", break_off)
    with pytest.raises(KeyboardInterrupt):
        broken.run()
    assert len(list(tmp_path.iterdir())) == 1
    torch.manual_seed(99)
    resumed = course(domains, method, mode, checkpoints=str(tmp_path))
    monkeypatch.setattr(resumed, "draw", lambda block: (seen.append(block), draw(block))[1])
    seen, draw = [], Course.draw.__get__(resumed)
    found = resumed.run()
    assert seen == [2]
    same(values(whole), values(resumed))
    assert found.keys() == expected.keys()
    for name in found:
        np.testing.assert_array_equal(found[name], expected[name])
    assert not list(tmp_path.iterdir())  # states of what is finished are of no use


def test_states_are_read_without_executing_them(domains, tmp_path):
    c = course(domains)
    c.test()
    c.save(tmp_path / "state.npz")
    arrays = dict(np.load(tmp_path / "state.npz"))
    arrays["number"] = np.array([{"a": 1}], object)
    np.savez(tmp_path / "state.npz", **arrays)
    with pytest.raises(ValueError, match="allow_pickle"):
        course(domains).load(tmp_path / "state.npz")


def test_random_numbers_depend_on_seed_and_block_alone(domains):
    c = course(domains, mode="recipe")
    a, b = c.draw(0), c.draw(0)
    same(a, b)
    assert a["shifts"].shape == (6, 2, 2, 6, 2)  # two views of both domains
    assert a["shifts"].abs().max() <= 4
    assert not a["flips"].any()  # of digits
    assert not torch.equal(a["source"], course(domains, mode="recipe", seed=1).draw(0)["source"])
    before = torch.get_rng_state()
    c.run()
    assert torch.equal(before, torch.get_rng_state())


def test_the_update_is_adam(domains):
    c = course(domains, "source", average=0.9)
    twin = Course(c.config, c.cell, *domains)
    optimizer = torch.optim.Adam(twin.model.nets.parameters(), lr=1e-3, betas=(0.5, 0.999))
    x = torch.randn(4, 3, 8, 8)
    for _ in range(3):
        for each in (c, twin):
            each.model.nets.eval()
        c.update(c.model.logits(x).square().mean(), tuple(c.model.nets), torch.tensor(1e-3))
        optimizer.zero_grad()
        twin.model.logits(x).square().mean().backward()
        optimizer.step()
    for a, b in zip(c.model.nets.parameters(), twin.model.nets.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def test_weights_are_averaged_and_the_plain_mean_comes_first(domains):
    c = course(domains, "source", average=0.9, steps=30)
    torch.testing.assert_close(c.tables["average"][[0, 29]], torch.tensor([0.9, 0.23076922]))
    c = course(domains, "source", average=0.9, steps=300)
    assert c.tables["average"][-1].item() == pytest.approx(0.1)
    plain = course(domains, "source", average=0.0)
    plain.run()
    for a, b in zip(plain.averaged.parameters(), plain.model.nets.parameters(), strict=True):
        torch.testing.assert_close(a, b)
    c.given = c.draw(0)
    old, before = c.averaged["classifier"].weight.clone(), c.model.nets["classifier"].weight.clone()
    assert torch.equal(old, before)
    c.step()
    new = c.model.nets["classifier"].weight
    torch.testing.assert_close(c.averaged["classifier"].weight, old + 0.9 * (new - old))


def test_schedules(domains):
    c = course(domains, mi_schedule="ramp", mi_weight=0.2, rates="cosine", lr=0.5, steps=10)
    torch.testing.assert_close(c.tables["mi_weight"][5].item(), 0.2 * ramp(0.5))
    assert c.tables["rate"][0] == 0.5
    torch.testing.assert_close(c.tables["rate"][5].item(), 0.25)
    flat = course(domains, mi_weight=0.2, steps=10)
    assert (flat.tables["mi_weight"] == flat.tables["mi_weight"][0]).all()
    assert flat.tables["ramp"][0] == 0


@pytest.mark.parametrize("method", ["source", "club_sample", "dann"])
def test_it_learns(method, domains):
    easy = {"noise": 0.0, "dropout": 0.0, "average": 0.9, "lr": 5e-3, "mi_weight": 0.01}
    c = course(domains, method, steps=120, points=1, batch_size=16, widths=(8, 8, 8), **easy)
    found = c.run()
    assert found["steps"][-1] == 120
    assert found["source_curve"][-1] > 80 > 40 > found["source_curve"][0]
    assert found["curve"][-1] > 50


# --- networks ------------------------------------------------------------------------------------


def test_the_encoder_has_nine_convolutions():
    encoder = Encoder((64, 64, 64))
    convolutions = [m for m in encoder.modules() if isinstance(m, torch.nn.Conv2d)]
    assert [c.out_channels for c in convolutions] == [64] * 9
    assert all(c.weight.is_contiguous(memory_format=torch.channels_last) for c in convolutions)
    kinds = [type(m).__name__ for m in encoder.layers]
    assert kinds.count("MaxPool2d") == kinds.count("Noise") == 2
    wide = [m for m in Encoder((96, 192, 192)).modules() if isinstance(m, torch.nn.Conv2d)]
    assert [c.out_channels for c in wide] == [96] * 3 + [192] * 6
    x = torch.randn(2, 3, 32, 32)
    assert Encoder((4, 4, 4), bf16=True)(x).dtype == torch.float32


def test_batch_statistics_joined_split_and_collected():
    x = torch.cat([torch.randn(8, 2, 4, 4), 5 + 2 * torch.randn(8, 2, 4, 4)])
    plain = torch.nn.BatchNorm2d(2)
    torch.testing.assert_close(BatchNorm(2)(x), plain(x))
    halves = torch.cat([plain(x[:8]), plain(x[8:])])
    torch.testing.assert_close(BatchNorm(2, split=True)(x), halves)
    encoder = Encoder((4, 4, 4)).eval()
    x = torch.randn(10, 3, 8, 8)
    with collecting(encoder):
        together = encoder(x)
    torch.testing.assert_close(encoder(x[3:4]), together[3:4])
    forget_statistics(encoder)
    assert not torch.allclose(encoder(x[3:5]), together[3:5])


def test_a_prediction_does_not_depend_on_its_batch_unless_published(domains):
    images = domains[1].test_images
    c, published = course(domains), course(domains, mode="as-published")
    for each, alike in ((c, True), (published, False)):
        z = each.embed("content", images, True)
        some = each.embed("content", images[:5], True)
        assert torch.allclose(z[:5], some, atol=1e-4) is alike
    split = course(domains, statistics="split")
    source, target = (split.embed("content", images, side) for side in (False, True))
    assert not torch.allclose(source, target)


def test_noise():
    torch.manual_seed(0)
    x = torch.ones(20000)
    noisy = Noise(0.5, 1.0)(x)
    assert noisy.mean().item() == pytest.approx(1, abs=0.05)
    assert noisy.var().item() == pytest.approx(2, abs=0.1)
    assert torch.equal(Noise(0.5, 1.0).eval()(x), x)


# --- images --------------------------------------------------------------------------------------


def test_classes_of_cifar_and_stl_are_aligned():
    assert SHARED == (
        "airplane", "automobile", "bird", "cat", "deer", "dog", "horse", "ship", "truck",
    )  # fmt: skip
    labels = np.arange(10)
    images = np.arange(10, dtype=np.uint8).reshape(10, 1, 1, 1)
    for names, left_out in ((CIFAR10, "frog"), (STL10, "monkey")):
        kept, numbers = share_classes(images, labels, names)
        assert [names[i] for i in kept.flatten()] == [SHARED[k] for k in numbers]
        assert sorted(numbers) == list(range(9))
        assert names.index(left_out) not in kept
    assert CIFAR10.index("automobile") == 1
    assert STL10.index("automobile") == 2  # called car there


def test_images_are_gathered_shifted_and_flipped():
    images = torch.randint(256, (5, 6, 6, 3)).to(torch.uint8)
    index = torch.tensor([3, 0, 3])
    shifts = torch.tensor([[0, 0], [2, -1], [-6, 0]])
    flips = torch.tensor([1, 0, 0])
    assert torch.equal(take_images(images, index), images[index])
    first, second, third = take_images(images, index, shifts, flips)
    assert torch.equal(first, images[3].flip(1))
    assert torch.equal(second[2:, :5], images[0][:4, 1:])
    assert torch.equal(second[0], second[1])  # the edge, repeated
    assert torch.equal(third, images[3][5:].expand(6, 6, 3))


def test_shapes_of_images():
    g = np.random.default_rng(0)
    large = g.integers(256, size=(2, 96, 96, 3)).astype(np.uint8)
    picked, means = (shape_images(large, 32, kind) for kind in ("picked", "means"))
    assert np.array_equal(picked, large[:, 1::3, 1::3])
    assert abs(int(means[0, 0, 0, 0]) - large[0, :3, :3, 0].mean()) <= 0.5
    crop = shape_images(large[:, :32, :32], 28)
    assert np.array_equal(crop, large[:, 2:30, 2:30])
    flat = np.full((1, 16, 16), 77, np.uint8)
    assert np.array_equal(shape_images(flat, 28), np.full((1, 28, 28, 1), 77))


def test_normalisation(domains):
    source, _ = domains
    x = Normaliser(source, "domain")(source.images)
    torch.testing.assert_close(x.mean((0, 2, 3)), torch.zeros(3), atol=1e-4, rtol=0)
    torch.testing.assert_close(x.std((0, 2, 3)), torch.ones(3), atol=1e-2, rtol=0)
    assert x.is_contiguous(memory_format=torch.channels_last)
    raw = Normaliser(source, "raw")(source.images)
    assert raw.max().item() == source.images.max().item()
    one = Normaliser(source, "instance")(source.images)
    torch.testing.assert_close(one.var((2, 3), correction=0), torch.ones(40, 3), atol=1e-2, rtol=0)


def write_sets(folder, n=60):
    g = np.random.default_rng(0)
    shapes = {"mnist": (28, 28), "mnist-m": (28, 28, 3), "usps": (16, 16), "svhn": (32, 32, 3),
              "cifar10": (32, 32, 3), "stl10": (96, 96, 3)}  # fmt: skip
    for name, shape in shapes.items():
        arrays = {}
        for split in ("train", "test"):
            if (name, split) != ("svhn", "test"):
                arrays[f"{split}_images"] = g.integers(256, size=(n, *shape)).astype(np.uint8)
                arrays[f"{split}_labels"] = np.arange(n) % 10
        np.savez(folder / f"{name}.npz", **arrays)


@pytest.fixture
def sets(tmp_path, monkeypatch):
    write_sets(tmp_path)
    monkeypatch.setenv("MIBOUNDS_DATA", str(tmp_path))
    monkeypatch.setenv("MIBOUNDS_CACHE", str(tmp_path / "cache"))
    return tmp_path


@pytest.mark.parametrize("name", TASKS)
def test_tasks(name, sets):
    task = TASKS[name]
    source, target = load_task(name)
    for each in (source, target):
        assert each.images.shape[1:3] == each.test_images.shape[1:3] == (task.side, task.side)
        assert each.labels.unique().tolist() == list(range(task.classes))
        assert len(each.test_images) == len(each.test_labels) > 0
    assert len(source.images) == {"svhn": 54}.get(task.source, 60 if task.classes == 10 else 54)
    few, _ = load_task(name, 20)
    assert len(few.images) <= 20
    config = replace(CONFIG, steps=2, points=1, batch_size=4)
    found = Course(config, Cell("recipe", name, "club_sample", 0), few, few).run()
    assert len(found["curve"]) == 2


def test_a_target_needs_a_test_part(sets, monkeypatch):
    monkeypatch.setitem(TASKS, "mnist-svhn", Task("mnist", "svhn"))
    with pytest.raises(ValueError, match="Expected a test split of svhn"):
        load_task("mnist-svhn")


# --- the experiment ------------------------------------------------------------------------------


def test_settings_are_those_of_the_mode_unless_a_flag_is_given():
    names = {field.name for field in fields(Settings)}
    assert names <= {field.name for field in fields(DomainAdaptationConfig)}
    for mode, preset in PRESETS.items():
        assert settle(DomainAdaptationConfig(), Cell(mode, "", "club", 0)) == preset
        given = settle(DomainAdaptationConfig(mi_weight=7.0, noise=0.0), Cell(mode, "", "club", 0))
        assert given == replace(preset, mi_weight=7.0, noise=0.0)
    for change, changed in ABLATIONS.items():
        cell = Cell("recipe", "", f"club_sample-{change}", 0)
        assert settle(DomainAdaptationConfig(), cell) == replace(PRESETS["recipe"], **changed)
        assert replace(PRESETS["recipe"], **changed) != PRESETS["recipe"]
    published = PRESETS["as-published"]
    assert (published.q, published.mi_gradient, published.normalisation) == (
        "published", "content", "raw",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"widths": (64, 64)}, "three blocks but got 2"),
        ({"steps": -1}, "--steps of at least 0 but got -1"),
        ({"batch_size": 1}, "--batch-size of at least 2 but got 1"),
    ],
)
def test_settings_that_make_no_sense(changes, message):
    with pytest.raises(ValueError, match=message):
        DomainAdaptationConfig(**changes)


def test_cells_and_published_numbers():
    experiment = EXPERIMENTS["domain-adaptation"]
    cells = experiment.cells(DomainAdaptationConfig(seeds=1))
    assert {c.task for c in cells} == set(TASKS)
    for mode, methods in (("correct", METHODS), ("as-published", METHODS[:1])):
        assert set(methods) <= {c.method for c in cells if c.mode == mode}
    assert "dann" not in {c.method for c in cells if c.mode == "as-published"}
    assert len({c.name for c in cells}) == len(cells)
    paper = experiment.paper
    assert paper["mnist-mnistm", "club_sample", "accuracy"] == 94.6
    assert paper["stl10-cifar10", "mcd", "accuracy_oracle"] == 69.2
    assert ("cifar10-stl10", "vub", "accuracy") not in paper
    assert len(paper) == 2 * (66 - 2 - 2 - 1 - 2 - 3)


def test_the_oracle_picks_by_labels_of_the_target(sets, monkeypatch):
    found = {"picking": [10.0, 60.0, 50.0], "curve": [1.0, 55.0, 70.0], "source_curve": [0.0] * 3,
             "steps": [0, 1, 2], "mi": [0.0], "mi_steps": [0]}  # fmt: skip
    monkeypatch.setattr(Course, "run", lambda course: found)
    experiment = EXPERIMENTS["domain-adaptation"]
    config = replace(CONFIG, device="cpu")
    (rows,) = experiment.run(config, [Cell("correct", "mnist-usps", "source", 0)])
    values = {row["metric"]: row["value"] for row in rows}
    assert values["accuracy"] == 70.0
    assert values["accuracy_oracle"] == 55.0
    assert rows[0]["origin"] == ["plain arrays: unknown content"] * 2


def test_points_in_a_plane():
    torch.manual_seed(0)
    z = torch.randn(50, 1) @ torch.randn(1, 6) + 0.01 * torch.randn(50, 6)
    points = project(z)
    assert points.shape == (50, 2)
    assert points.isfinite().all()


def test_quick_through_the_command(tmp_path):
    write_sets(tmp_path)
    command = [sys.executable, "-m", "mibounds", "reproduce", "domain-adaptation", "--quick",
               "--jobs", "1", "--out", str(tmp_path / "out")]  # fmt: skip
    environment = {
        **os.environ,
        "MIBOUNDS_DATA": str(tmp_path),
        "MIBOUNDS_CACHE": str(tmp_path / "cache"),
    }
    result = subprocess.run(
        command, capture_output=True, text=True, check=False, env=environment, timeout=180
    )
    assert result.returncode == 0, result.stderr
    folder = tmp_path / "out" / "domain-adaptation"
    summary = json.loads((folder / "summary.json").read_text())
    seen = {(e["mode"], e["method"]) for e in summary}
    assert {m for mode, m in seen if mode == "correct"} == set(METHODS)
    assert {m for mode, m in seen if mode == "recipe"} >= set(METHODS)
    assert {m for mode, m in seen if mode == "as-published"} == {
        "source", "mine", "infonce", "club", "club_sample",
    }  # fmt: skip
    assert {e["metric"] for e in summary} == {"accuracy", "accuracy_oracle"}
    assert all(0 <= e["mean"] <= 100 for e in summary)
    for stem in ("correct", "correct-mi", "correct-mnist-usps", "recipe"):
        assert (folder / f"domain-adaptation-{stem}.svg").exists(), stem
    assert "What each ingredient gives club_sample" in result.stdout
    assert "usps: plain arrays: unknown content" in result.stdout
    assert not (folder / "checkpoints").exists()
