"""What a trained network is worth: accuracies, and how much of the nuisance is left in z.

What is left is read from z of the test samples whose nuisance is independent of the label, by fresh
probes with the encoder frozen. A probe q(s|z) learns from one half and is tested on the other. As
all values of s are equally likely, log k less its cross-entropy is a lower bound of I(z; s). If the
probe is given the label too, the same difference is a lower bound of I(z; s | y), the mean over the
classes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import mibounds as mb
from experiments.nuisance_removal.config import NuisanceConfig
from experiments.nuisance_removal.networks import Model
from experiments.nuisance_removal.samples import Part, Samples

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int

LINEAR_RATE, MLP_RATE, DECAY, BATCH = 1e-2, 3e-3, 1e-2, 256  # of a probe's AdamW
EVERY = 25  # steps between two looks at the samples that decide when a probe stops
STOPPING = 0.2  # share of a probe's samples that decide it
EPS = 1e-6


def evaluate(config: NuisanceConfig, model: Model, samples: Samples, seed: int) -> dict[str, Any]:
    """All measurements of a network.

    Args:
        config: the settings.
        model: trained.
        samples: of its task.
        seed: of the probes and the estimate.

    Returns:
        By metric; accuracies in percent, those of probes in points above chance, the rest in nats.
    """
    z = model.encode(samples.test)
    right, y, s = _is_right(model, samples.test), samples.test.y, samples.test.s
    agrees = y == s
    held_out = samples.validation
    weights = balance(held_out.y, held_out.s, samples.classes, samples.values)
    found: dict[str, Any] = {
        "accuracy": percent(right),
        "worst_group": worst(right, 2 * y + agrees),
        "worst_class": worst(right, y),
        "accuracy_agreeing": percent(right[agrees]),
        "accuracy_disagreeing": percent(right[~agrees]),
        "accuracy_as_trained": percent(_is_right(model, samples.as_trained)),
        "validation": percent(_is_right(model, held_out), weights),
    }
    for given, end in ((None, ""), (F.one_hot(y, samples.classes), "_given")):
        for name, hidden in (("linear", 0), ("mlp", config.hidden)):
            left = probe(z, s, samples.values, hidden, config.probe_steps, seed, given)
            found |= {f"{name}_points{end}": left.points, f"{name}_nats{end}": left.nats}
    return {**found, "estimate": estimate_left(z, s, config.audited, seed)}


def _is_right(model: Model, part: Part) -> Tensor:
    with torch.no_grad():
        return model.head(model.encode(part)).argmax(1) == part.y


# --- accuracies ----------------------------------------------------------------------------------


def percent(right: Bool[Tensor, " n"], weights: Float[Tensor, " n"] | None = None) -> float:
    """Accuracy in percent; NaN for no samples.

    Example:
        >>> percent(torch.tensor([True, False]), torch.tensor([3.0, 1.0]))
        75.0
    """
    if weights is None:
        return 100 * right.double().mean().item()
    return 100 * ((weights * right).sum() / weights.sum()).item()


def worst(right: Bool[Tensor, " n"], groups: Int[Tensor, " n"]) -> float:
    """Accuracy in percent of the group that has the lowest.

    Example:
        >>> worst(torch.tensor([True, False, True]), torch.tensor([0, 0, 3]))
        50.0
    """
    counts = groups.bincount()
    rights = groups.bincount(right.double())
    return 100 * (rights / counts)[counts > 0].min().item()


def balance(
    y: Int[Tensor, " n"], s: Int[Tensor, " n"], classes: int, values: int
) -> Float[Tensor, " n"]:
    """Weights P(y) P(s) / P(y, s) of samples, with which label and nuisance are independent.

    Example:
        >>> y, s = torch.tensor([0, 0, 0, 1, 1, 1]), torch.tensor([0, 0, 1, 0, 1, 1])
        >>> weights = balance(y, s, 2, 2)
        >>> [weights[(y == i) & (s == j)].sum().item() for i in range(2) for j in range(2)]
        [1.5, 1.5, 1.5, 1.5]
    """
    pairs = values * y + s
    joint = pairs.bincount(minlength=classes * values).view(classes, values) / len(y)
    product = joint.sum(1, keepdim=True) * joint.sum(0)
    return (product / joint).flatten()[pairs]


# --- what is left --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Left:
    """What a probe reads of the nuisance.

    Args:
        points: its accuracy above chance, in points.
        nats: log k less its cross-entropy.
    """

    points: float
    nats: float


def probe(
    z: Float[Tensor, "n z"],
    s: Int[Tensor, " n"],
    values: int,
    hidden: int,
    steps: int,
    seed: int,
    given: Int[Tensor, "n c"] | None = None,
) -> Left:
    """Read the nuisance from z by a fresh classifier, fitted to one half and tested on the other.

    A part of the first half decides at which step it is tested. Before its first step it predicts
    equal probabilities, so that one that finds nothing reads 0 nats.

    Args:
        z: codes, whose s is uniform.
        s: values of the nuisance.
        values: how many there are.
        hidden: units of each of two hidden layers; 0 for a linear probe.
        steps: at most.
        seed: of halves, weights and batches.
        given: what the probe sees besides z.

    Example:
        >>> s = torch.arange(400) % 2
        >>> left = probe(torch.eye(2)[s], s, 2, 0, 200, 0)
        >>> left.points, round(left.nats, 1)  # of 0.69
        (50.0, 0.7)
    """
    g = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(z), generator=g).to(z.device)
    half = len(z) // 2
    cut = round((1 - STOPPING) * half)
    fitted, stopping, tested = order[:cut], order[cut:half], order[half:]
    mean, deviation = z[fitted].mean(0), z[fitted].std(0)
    x = (z - mean) / (deviation + EPS)
    x = x if given is None else torch.cat([x, given.to(x.dtype)], 1)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        net = _make_probe(x.shape[1], hidden, values).to(z.device)
    rate = MLP_RATE if hidden else LINEAR_RATE
    optimizer = torch.optim.AdamW(net.parameters(), lr=rate, weight_decay=DECAY, fused=True)
    batches = fitted[torch.randint(cut, (steps, BATCH), generator=g).to(z.device)]
    looks = [_look(net, x, s, stopping, tested)]
    for step, rows in enumerate(batches, 1):
        loss = F.cross_entropy(net(x[rows]), s[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % EVERY == 0 or step == steps:
            looks.append(_look(net, x, s, stopping, tested))
    _, entropy, accuracy = min(torch.stack(looks).tolist())
    return Left(100 * (accuracy - 1 / values), math.log(values) - entropy)


def _make_probe(inputs: int, hidden: int, values: int) -> nn.Module:
    widths = (inputs, hidden, hidden) if hidden else (inputs,)
    layers: list[nn.Module] = []
    for a, b in pairwise(widths):
        layers += [nn.Linear(a, b), nn.ReLU()]
    last = nn.Linear(widths[-1], values)
    nn.init.zeros_(last.weight)
    nn.init.zeros_(last.bias)
    return nn.Sequential(*layers, last)


@torch.no_grad()
def _look(net: nn.Module, x: Tensor, s: Tensor, stopping: Tensor, tested: Tensor) -> Tensor:
    """Cross-entropy on the samples that decide; cross-entropy and accuracy on those of the test."""
    decides = F.cross_entropy(net(x[stopping]), s[stopping])
    logits = net(x[tested])
    right = (logits.argmax(1) == s[tested]).float().mean()
    return torch.stack([decides, F.cross_entropy(logits, s[tested]), right]).double()


def estimate_left(z: Float[Tensor, "n z"], s: Int[Tensor, " n"], rows: int, seed: int) -> float:
    """I(z; s) by the library's fast estimate, of so many samples at most.

    A constant shares 0 nats with anything; what has no estimate for another reason gives NaN.
    """
    order = torch.randperm(len(z), generator=torch.Generator().manual_seed(seed))[:rows]
    z, s = z[order.to(z.device)].cpu(), s[order.to(s.device)].cpu()
    if (z == z[0]).all():
        return 0.0
    try:
        return mb.estimate(z, s, y_kinds="discrete", budget="fast", seed=seed).nats
    except ValueError:  # values that are not finite, or too few samples
        return math.nan
