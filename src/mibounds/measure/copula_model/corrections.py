"""The networks of the copula model: a density of residuals, and a classifier of labels.

Both start at what they correct: the output of `Perceptron` does not depend on its inputs at first.
The parts of the library that resemble them are `mibounds.networks.MLP` for `Perceptron`,
`mibounds.conditionals.GaussianMixture` for `Mixture`, `mibounds.conditionals.Categorical` for
`Classifier`, and `mibounds.bounds.densities.log_prob_pairs` for `log_prob_of_differences`. They
differ in how they start, in how they limit the scale, and in precision, so that replacing one by
the other changes the values.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from jaxtyping import Float, Int

LIMIT = 4.0  # largest log-scale of a residual, relative to the Gaussian's


class Perceptron(nn.Module):
    """A perceptron whose outputs do not depend on its inputs at the start; or a constant."""

    def __init__(self, inputs: int, hidden: Sequence[int], start: Tensor):
        super().__init__()
        self.start = nn.Parameter(start)
        self.layers = None
        if not inputs:
            return
        layers: list[nn.Module] = []
        for a, b in zip([inputs, *hidden], hidden, strict=False):
            layers += [nn.Linear(a, b), nn.SiLU()]
        last = nn.Linear(hidden[-1], len(start), bias=False)
        nn.init.zeros_(last.weight)
        self.layers = nn.Sequential(*layers, last)

    def forward(self, x: Float[Tensor, "n k"]) -> Float[Tensor, "n out"]:
        if self.layers is None:
            return self.start.expand(len(x), -1)
        return self.start + self.layers(x)


class Mixture(nn.Module):
    """q(e|a): a mixture of Gaussians whose weights, means and scales are functions of a."""

    def __init__(self, inputs: int, d: int, hidden: Sequence[int], components: int):
        super().__init__()
        self.d, self.k = d, components
        start = torch.zeros(self.k, 1 + 2 * d)
        start[:, 1:] = 0.1 * torch.randn(self.k, 2 * d)  # so that the components can separate
        self.net = Perceptron(inputs, hidden, start.flatten())

    def parts(
        self, a: Float[Tensor, "n inputs"]
    ) -> tuple[Float[Tensor, "n k"], Float[Tensor, "n k d"], Float[Tensor, "n k d"]]:
        """Logarithms of the weights, means, and logarithms of the scales."""
        raw = self.net(a).unflatten(-1, (self.k, 1 + 2 * self.d))
        scale = LIMIT * torch.tanh(raw[..., 1 + self.d :] / LIMIT)
        return raw[..., 0].log_softmax(-1), raw[..., 1 : 1 + self.d], scale

    def log_prob(
        self, a: Float[Tensor, "n inputs"], e: Float[Tensor, "n d"]
    ) -> Float[Tensor, " n"]:
        """log q(e|a), row by row."""
        weight, mean, scale = self.parts(a)
        r = (e[:, None] - mean) * (-scale).exp()
        values = weight - 0.5 * r.square().sum(-1) - scale.sum(-1)
        return values.logsumexp(-1) - 0.5 * self.d * math.log(2 * math.pi)

    def narrow(self, a: Float[Tensor, "n inputs"]) -> float:
        """Share of the rows whose heaviest Gaussian is at the lower limit of scale in a column."""
        weight, _, scale = self.parts(a)
        heaviest = scale[torch.arange(len(a), device=a.device), weight.argmax(1)]
        return (heaviest.amin(1) < -0.9 * LIMIT).double().mean().item()

    def learning_loss(
        self, x: Float[Tensor, "n inputs"], y: Float[Tensor, "n d"]
    ) -> Float[Tensor, ""]:
        """The negative mean log-likelihood."""
        return -self.log_prob(x, y).mean()


@torch.no_grad()
def log_prob_of_differences(
    models: Sequence[Mixture],
    a: Float[Tensor, "n k"],
    t: Float[Tensor, "n d"],
    s: Float[Tensor, "n d"],
) -> Float[Tensor, "n n"]:
    """log q(t_j - s_i | a_i) for all pairs i, j, by products of matrices.

    q is the average of the models, or the standard normal if there are none.
    """
    t, s = t.double(), s.double()
    if models:
        parts = [m.parts(a) for m in models]
        weight, mean, scale = (torch.cat(p, 1).double() for p in zip(*parts, strict=True))
        weight = weight - math.log(len(models))
    else:
        weight, mean = t.new_zeros(len(a), 1), t.new_zeros(len(a), 1, t.shape[1])
        scale = mean
    rows = []
    for i in range(0, len(a), 64):
        part = slice(i, i + 64)
        precision, centre = (-2 * scale[part]).exp(), s[part, None] + mean[part]
        square = precision @ t.square().T - 2 * (precision * centre) @ t.T
        square += (precision * centre.square()).sum(-1, keepdim=True)
        values = (weight[part] - scale[part].sum(-1))[..., None] - 0.5 * square
        rows.append(values.logsumexp(1))
    return torch.cat(rows) - 0.5 * t.shape[1] * math.log(2 * math.pi)


class Classifier(nn.Module):
    """q(y|a) of labels: a correction to logits, which are the last columns of its inputs."""

    def __init__(self, inputs: int, classes: int, hidden: Sequence[int]):
        super().__init__()
        self.inputs = inputs
        self.net = Perceptron(inputs, hidden, torch.zeros(classes))

    def table(self, a: Float[Tensor, "n k"]) -> Float[Tensor, "n classes"]:
        """log q of every label, row by row."""
        return (a[:, self.inputs :] + self.net(a[:, : self.inputs])).log_softmax(-1)

    def log_prob(self, a: Float[Tensor, "n k"], y: Int[Tensor, " n"]) -> Float[Tensor, " n"]:
        """log q(y|a), row by row."""
        return self.table(a).gather(-1, y[:, None])[:, 0]

    def learning_loss(self, x: Float[Tensor, "n k"], y: Int[Tensor, " n"]) -> Float[Tensor, ""]:
        """The cross-entropy."""
        return -self.log_prob(x, y).mean()


def log_standard_normal(e: Float[Tensor, "n d"]) -> Float[Tensor, " n"]:
    """log N(e | 0, 1), row by row."""
    return -0.5 * (e.square() + math.log(2 * math.pi)).sum(-1)


def average_densities(log_densities: Sequence[Float[Tensor, "*n"]]) -> Float[Tensor, "*n"]:
    """The logarithm of the mean of densities."""
    return torch.stack(list(log_densities)).logsumexp(0) - math.log(len(log_densities))
