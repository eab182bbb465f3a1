"""Tiny made-up digits and domains, and trainings on them."""

from dataclasses import replace

import numpy as np
import torch

from experiments import Cell
from experiments.domain_adaptation.config import DomainAdaptationConfig, Transfer, settle
from experiments.domain_adaptation.images import Domain
from experiments.domain_adaptation.methods import StepInputs
from experiments.domain_adaptation.training import AdaptationTraining
from experiments.information_bottleneck.config import BottleneckConfig
from experiments.information_bottleneck.training import BottleneckRun, Digits

SIZES = {"widths": (4, 4, 6), "domain_widths": (4, 4, 7), "q_hidden": (5,), "batch_size": 6}
ADAPTATION = DomainAdaptationConfig(steps=6, points=2, embedded=5, **SIZES)
TINY = settle(DomainAdaptationConfig(**SIZES, mi_weight=0.5))
TRANSFER = Transfer("mnist", "usps", 8, 3)

BOTTLENECK = BottleneckConfig(
    seeds=2, epochs=3, scan_epochs=2, batch_size=20, lr=3e-3, average=0.9, holdout=40, samples=2,
    hidden=16, width=4, estimator_hidden=8,
)  # fmt: skip


def digits():
    """Ten blurred prototypes with noise, as bytes."""
    g = torch.Generator().manual_seed(0)
    prototypes = 255 * (torch.rand(10, 784, generator=g) < 0.2)
    labels = torch.arange(240) % 10
    noise = 60 * torch.randn(240, 784, generator=g)
    images = (prototypes[labels] + noise).clamp(0, 255).to(torch.uint8)
    return Digits(images[:160], labels[:160], images[160:], labels[160:], "made up")


def runs(*methods, mode="correct", seeds=(0, 1), beta=1e-3):
    return [BottleneckRun(Cell(mode, "mnist", m, seed), beta) for m in methods for seed in seeds]


def domain(seed, n=40, side=8, classes=10, colours=1):
    """Noisy prototypes, as bytes; those of two seeds differ in contrast."""
    g = torch.Generator().manual_seed(7)
    prototypes = 255.0 * (torch.rand(classes, side, side, colours, generator=g) < 0.4)
    g = torch.Generator().manual_seed(seed)
    labels = torch.arange(2 * n) % classes
    noise = 30 * torch.randn(2 * n, side, side, colours, generator=g)
    images = ((0.9 - 0.3 * seed) * prototypes[labels] + noise).clamp(0, 255).to(torch.uint8)
    return Domain(images[:n], labels[:n], images[n:], labels[n:], "made up")


def adaptation(domains, method="club_sample", mode="correct", seed=0, **changes):
    cell = Cell(mode, "made-up", method, seed)
    return AdaptationTraining(replace(ADAPTATION, **changes), cell, *domains)


def first_step(training):
    """What the first step is given."""
    return {name: each[0] for name, each in next(training.draw(0)).items()}


def step_inputs(n=6, seed=0, classes=3):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(2 * n, 3, 8, 8, generator=g)
    again = x + 0.1 * torch.randn(x.shape, generator=g)
    labels = torch.arange(n) % classes
    return StepInputs(x, labels, again, torch.tensor(0.7), torch.tensor(0.5))


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
