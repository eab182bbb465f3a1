"""The losses of domain adaptation by their equations."""

import torch
import torch.nn.functional as F

from experiments.domain_adaptation import losses


def test_the_reversed_gradient():
    net, disc = torch.nn.Linear(3, 4), torch.nn.Linear(4, 2)
    x, weight = torch.randn(6, 3), torch.tensor(0.3)
    losses.domain_loss(disc(losses.reverse(net(x), weight))).backward()
    got = net.weight.grad.clone(), disc.weight.grad.clone()
    net.zero_grad(), disc.zero_grad()
    domains = torch.tensor([0, 0, 0, 1, 1, 1])
    F.cross_entropy(disc(net(x)), domains).backward()
    torch.testing.assert_close(got[0], -0.3 * net.weight.grad)
    torch.testing.assert_close(got[1], disc.weight.grad)


def test_the_losses_of_domain_separation():
    x, y = torch.randn(5, 3, 4, 4), torch.randn(5, 3, 4, 4)
    k, total = 3 * 16, 0.0
    for a, b in zip(x.flatten(1), y.flatten(1), strict=True):
        d = a - b
        total += d.dot(d) / k - d.sum() ** 2 / k**2
    torch.testing.assert_close(losses.reconstruction_loss(x, y), total / 5)
    shared, private = torch.randn(5, 4), torch.randn(5, 4)
    a, b = (h - h.mean(0) for h in (shared, private))
    a, b = (torch.stack([row / row.norm() for row in h]) for h in (a, b))
    norm = sum((a[:, i].dot(b[:, j])) ** 2 for i in range(4) for j in range(4))
    torch.testing.assert_close(losses.difference_loss(shared, private), norm / 16)


def test_entropy_balance_and_consistency():
    logits, teacher = torch.randn(5, 4), 3 * torch.randn(5, 4)
    p, t = logits.softmax(1), teacher.softmax(1)
    entropy = -sum(p[i, j] * p[i, j].log() for i in range(5) for j in range(4)) / 5
    torch.testing.assert_close(losses.conditional_entropy(logits), entropy)
    mean = p.mean(0)
    balance = sum(0.25 * (0.25 / mean[j]).log() for j in range(4))
    torch.testing.assert_close(losses.imbalance(logits), balance)
    kl = [sum(t[i, j] * (t[i, j] / p[i, j]).log() for j in range(4)) for i in range(5)]
    sure = t.amax(1) > 0.8
    assert 0 < sure.sum() < 5
    expected = sum(kl[i] for i in range(5) if sure[i]) / 5
    torch.testing.assert_close(losses.consistency(logits, teacher, 0.8), expected)
    teacher.requires_grad_()
    logits.requires_grad_()
    losses.consistency(logits, teacher, 0.0).backward()
    assert teacher.grad is None
    torch.testing.assert_close(logits.grad, (p - t) / 5)


def test_the_adversary_goes_along_the_curvature():
    w = torch.randn(4, 12, dtype=torch.float64)
    x, start = torch.randn(2, 3, 3, 2, 2, dtype=torch.float64)

    def classify(x):
        return x.flatten(1) @ w.T

    found = losses.find_adversary(classify, x, classify(x), start, 1e-6, 3.5)
    for image, direction, change in zip(x, start, found, strict=True):
        p = (w @ image.flatten()).softmax(0)
        hessian = w.T @ (p.diag() - p.outer(p)) @ w
        expected = hessian @ direction.flatten()
        expected = 3.5 * expected / expected.norm()
        torch.testing.assert_close(change.flatten(), expected, rtol=1e-3, atol=1e-3)
    assert not found.requires_grad
