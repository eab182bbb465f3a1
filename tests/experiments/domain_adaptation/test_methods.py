"""The methods of domain adaptation: what a step minimises, and which network it reaches."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from made_up import TINY, TRANSFER, step_inputs

from experiments.domain_adaptation import losses
from experiments.domain_adaptation.as_published import PUBLISHED_ESTIMATORS
from experiments.domain_adaptation.config import BOUNDS
from experiments.domain_adaptation.methods import make_adaptation, make_penalty


def model(method, **changes):
    torch.manual_seed(0)
    return make_adaptation(method, replace(TINY, **changes), TRANSFER)


def test_dann_is_the_cross_entropy_and_the_reversed_adversary():
    m, b = model("dann", dropout=0.0, noise=0.0), step_inputs()
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


def test_domain_separation_adds_up():
    m, b = model("dsn", dropout=0.0, noise=0.0), step_inputs()
    ((loss, _),) = m.phases(b)
    z = m.nets["content"](b.x)
    own = m.nets["private_source"](b.x[:6]), m.nets["private_target"](b.x[6:])
    rebuilt = m.nets["decoder"](z + torch.cat(own))
    expected = F.cross_entropy(m.nets["classifier"](z[:6]), b.labels)
    for half, private in zip((slice(0, 6), slice(6, 12)), own, strict=True):
        expected = expected + 0.01 * losses.reconstruction_loss(b.x[half], rebuilt[half])
        expected = expected + 0.075 * losses.difference_loss(z[half], private)
    domain = F.cross_entropy(m.nets["discriminator"](z), torch.arange(12) // 6)
    torch.testing.assert_close(loss, expected + 0.25 * domain)


def test_the_three_steps_of_maximum_discrepancy():
    m, b = model("mcd", dropout=0.0, noise=0.0), step_inputs()

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


def test_virtual_adversarial_training_adds_up():
    m, b = model("source", vat_source=2.0, vat_target=0.5), step_inputs()
    torch.manual_seed(3)
    got = m.additions(b, torch.zeros(12, 3))
    torch.manual_seed(3)
    start = torch.randn_like(b.x)
    m.nets.eval()
    logits = m.logits(b.x).detach()
    change = losses.find_adversary(m.logits, b.x, logits, start, m.config.vat_step, 3.5)
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
    m, b = model("source", dropout=0.0, noise=0.0, **changes), step_inputs()
    with torch.no_grad():
        for p in m.teacher.parameters():
            p.add_(0.05 * torch.randn_like(p))
    ((loss, _),) = m.phases(b)
    logits = m.logits(b.x)
    taught = m.teacher["classifier"](m.teacher["content"](b.again))
    expected = (
        F.cross_entropy(logits[:6], b.labels)
        + 0.2 * losses.conditional_entropy(logits[6:])
        + 0.3 * losses.imbalance(logits[6:])
        + 2.0 * losses.consistency(logits[6:], taught[6:], 0.1)
    )
    torch.testing.assert_close(loss, expected)
    assert all(not p.requires_grad for p in m.teacher.parameters())


def test_the_published_likelihood_lacks_its_log_variance():
    for name in ("club", "club_sample"):
        e = PUBLISHED_ESTIMATORS[name](3, 2, (4,))
        x, y = torch.randn(8, 3), torch.randn(8, 2)
        p = e.conditional(x)
        expected = (((y - p.mean) / p.stddev) ** 2).sum(1).mean()
        torch.testing.assert_close(e.learning_loss(x, y), expected)


@pytest.mark.parametrize("method", BOUNDS)
@pytest.mark.parametrize(
    ("gradient", "reached"),
    [("content", {"content"}), ("domain", {"domain"}), ("both", {"content", "domain"})],
)
def test_mutual_information_reaches_the_encoders_it_should(method, gradient, reached):
    m, b = model(method, mi_gradient=gradient), step_inputs()
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
    m, b = model("club", dropout=0.0, noise=0.0, domain_weight=0.3), step_inputs()
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
    z, z_d = (torch.randn(12, d, requires_grad=True) for d in (6, 7))
    value = m.information(z, z_d)
    value.backward()
    assert value.item() == 0
    assert not z.grad.any()


@pytest.mark.parametrize("q", ["gaussian", "unit", "low-rank", "mixture", "student"])
def test_families_of_q(q):
    penalty = make_penalty("club", replace(TINY, q=q, mi_direction="both"), 0)
    assert len(penalty.estimators) == 2
    assert penalty(torch.randn(12, 6), torch.randn(12, 7)).isfinite()
    assert penalty.capturable


def test_the_direction_of_q():
    z, z_d = torch.randn(12, 6), torch.randn(12, 7)
    forward, backward = model("club"), model("club", mi_direction="backward")
    for m, x, y in ((forward, z, z_d), (backward, z_d, z)):
        conditional = m.penalty.estimator.conditional
        assert (conditional.x_dim, conditional.y_dim) == (x.shape[1], y.shape[1])
        torch.testing.assert_close(m.information(z, z_d), m.penalty.bound(x, y))
