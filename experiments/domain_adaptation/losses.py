"""The losses of domain adaptation, as pure functions of logits, embeddings and images.

| loss | reference |
|---|---|
| reversed gradient | Ganin et al. 2016, section 4.2 |
| reconstruction, difference | Bousmalis et al. 2016, section 3.1 |
| discrepancy | Saito et al. 2018, section 3.2 |
| conditional entropy | Grandvalet and Bengio 2005 |
| virtual adversary | Miyato et al. 2018, section 3; both as Shu et al. 2018 use them |
| consistency with an averaged teacher | Tarvainen and Valpola 2017; French et al. 2018 |
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional as F

if TYPE_CHECKING:
    from jaxtyping import Float

TINY = 1e-12


class _Reversal(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(weight)
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        (weight,) = ctx.saved_tensors
        return -weight * g, None


def reverse(x: Float[Tensor, "n d"], weight: Float[Tensor, ""]) -> Float[Tensor, "n d"]:
    """The identity, whose gradient is multiplied by -weight.

    Example:
        >>> x = torch.ones(1, 2, requires_grad=True)
        >>> reverse(x, torch.tensor(0.5)).sum().backward()
        >>> x.grad.tolist()
        [[-0.5, -0.5]]
    """
    return _Reversal.apply(x, weight)  # pyright: ignore[reportReturnType]


def domain_loss(logits: Float[Tensor, "n 2"]) -> Float[Tensor, ""]:
    """Cross-entropy of a discriminator on a joined batch: first half source, second half target.

    Example:
        >>> round(domain_loss(torch.tensor([[9.0, 0.0], [0.0, 9.0]])).item(), 3)
        0.0
    """
    source, target = F.log_softmax(logits, 1).chunk(2)
    return -(source[:, 0].mean() + target[:, 1].mean()) / 2


def conditional_entropy(logits: Float[Tensor, "n k"]) -> Float[Tensor, ""]:
    """Mean entropy of the predictions, in nats.

    Example:
        >>> round(conditional_entropy(torch.zeros(3, 10)).item(), 2)  # log 10
        2.3
    """
    logs = F.log_softmax(logits, 1)
    return -(logs.exp() * logs).sum(1).mean()


def imbalance(logits: Float[Tensor, "n k"]) -> Float[Tensor, ""]:
    """Divergence of equal shares from the mean prediction, in nats.

    In this direction a class that is never predicted costs without limit, while random differences
    between the classes of a batch cost little.

    Example:
        >>> round(imbalance(torch.tensor([[20.0, 0.0], [0.0, 20.0]])).item(), 3)
        0.0
        >>> round(imbalance(torch.tensor([[20.0, 0.0], [20.0, 0.0]])).item(), 3)  # 20 / 2 - log 2
        9.307
    """
    logs = F.log_softmax(logits, 1)
    mean = logs.logsumexp(0) - math.log(len(logs))
    return -mean.mean() - math.log(logits.shape[1])


def divergence(constant: Float[Tensor, "n k"], logits: Float[Tensor, "n k"]) -> Float[Tensor, " n"]:
    """KL(p || q) of each prediction q from a constant p, with gradients to q only.

    Example:
        >>> divergence(torch.zeros(1, 2), torch.zeros(1, 2)).item()
        0.0
    """
    p = F.log_softmax(constant.detach(), 1)
    return (p.exp() * (p - F.log_softmax(logits, 1))).sum(1)


def consistency(
    logits: Float[Tensor, "n k"], teacher: Float[Tensor, "n k"], threshold: float
) -> Float[Tensor, ""]:
    """Divergence from a teacher's predictions, where the teacher is sure enough.

    Args:
        logits: of the student.
        teacher: logits of the teacher.
        threshold: probability of the likeliest class below which an image does not count.

    Returns:
        Mean over all images, those that do not count as 0.

    Example:
        >>> sure, unsure = torch.tensor([[9.0, 0.0]]), torch.zeros(1, 2)
        >>> consistency(unsure, sure, 0.9) > 0.6, consistency(sure, unsure, 0.9).item()
        (tensor(True), 0.0)
    """
    sure = F.softmax(teacher.detach(), 1).amax(1) > threshold
    return torch.where(sure, divergence(teacher, logits), 0.0).mean()


def _unit(x: Tensor) -> Tensor:
    """Each image as a vector of length 1; scaled first, so that no square underflows."""
    flat = x.flatten(1)
    flat = flat / (flat.abs().amax(1, keepdim=True) + TINY)
    return (flat / (flat.norm(dim=1, keepdim=True) + TINY)).view_as(x)


def find_adversary(
    classify: Callable[[Tensor], Tensor],
    x: Float[Tensor, "n c h w"],
    logits: Float[Tensor, "n k"],
    start: Float[Tensor, "n c h w"],
    step: float,
    radius: float,
) -> Float[Tensor, "n c h w"]:
    """The change of each image that alters its prediction most, by one step of power iteration.

    The divergence is zero without a change, so that its gradient a small step away is the curvature
    times the direction of that step.

    Args:
        classify: from images to logits, without noise.
        x: images.
        logits: of x.
        start: random directions, of any length.
        step: how far from x the gradient is taken.
        radius: length of the change.

    Returns:
        The change, for x + change; without gradients.

    Example:
        >>> x, start = torch.randn(2, 1, 2, 2), torch.randn(2, 1, 2, 2)
        >>> def classify(x):
        ...     return x.flatten(1)[:, :2]
        >>> change = find_adversary(classify, x, classify(x), start, 0.1, 3.5)
        >>> change.flatten(1).norm(dim=1)
        tensor([3.5000, 3.5000])
    """
    with torch.enable_grad():
        change = (step * _unit(start)).requires_grad_()
        total = divergence(logits, classify(x.detach() + change)).sum()
        (gradient,) = torch.autograd.grad(total, change)
    return radius * _unit(gradient)


# --- domain separation ---------------------------------------------------------------------------


def reconstruction_loss(
    x: Float[Tensor, "n c h w"], rebuilt: Float[Tensor, "n c h w"]
) -> Float[Tensor, ""]:
    """Squared error up to a constant, 1/k |d|² - 1/k² (d · 1)², d = x - rebuilt.

    Example:
        >>> x = torch.randn(2, 3, 4, 4)
        >>> round(reconstruction_loss(x, x + 5).item(), 4)
        0.0
    """
    return (x - rebuilt).flatten(1).var(1, correction=0).mean()


def difference_loss(
    shared: Float[Tensor, "n d"], private: Float[Tensor, "n d"]
) -> Float[Tensor, ""]:
    """Squared Frobenius norm of sharedᵀ private, over d²: zero where their columns are orthogonal.

    The rows are centred and scaled to length 1, or else the networks would shrink them instead.

    Example:
        >>> shared = torch.randn(8, 3)
        >>> bool(difference_loss(shared, shared) > difference_loss(shared, torch.randn(8, 3)))
        True
    """
    a, b = (F.normalize(h - h.mean(0), dim=1) for h in (shared, private))
    return (a.T @ b).square().mean()


# --- two classifiers -----------------------------------------------------------------------------


def discrepancy(first: Float[Tensor, "n k"], second: Float[Tensor, "n k"]) -> Float[Tensor, ""]:
    """Mean absolute difference of the probabilities of two classifiers.

    Example:
        >>> discrepancy(torch.tensor([[40.0, 0.0]]), torch.tensor([[0.0, 40.0]])).item()
        1.0
    """
    return (F.softmax(first, 1) - F.softmax(second, 1)).abs().mean()
