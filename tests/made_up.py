"""Tiny domains that nobody had to photograph, and models on them."""

from dataclasses import replace

import numpy as np
import torch

from experiments import Cell
from experiments.adaptations import Batch
from experiments.courses import Course
from experiments.domains import Domain, Task
from experiments.ingredients import DomainAdaptationConfig, Settings

SIZES = {"widths": (4, 4, 6), "domain_widths": (4, 4, 7), "q_hidden": (5,), "batch_size": 6}
TINY = Settings(**SIZES, mi_weight=0.5)
TASK = Task("mnist", "usps", 8, 3)
CONFIG = DomainAdaptationConfig(steps=6, points=2, embedded=5, **SIZES)


def domain(seed, n=40, side=8, classes=10, colours=1):
    """Noisy prototypes, as bytes; those of two seeds differ in contrast."""
    g = torch.Generator().manual_seed(7)
    prototypes = 255.0 * (torch.rand(classes, side, side, colours, generator=g) < 0.4)
    g = torch.Generator().manual_seed(seed)
    labels = torch.arange(2 * n) % classes
    noise = 30 * torch.randn(2 * n, side, side, colours, generator=g)
    images = ((0.9 - 0.3 * seed) * prototypes[labels] + noise).clamp(0, 255).to(torch.uint8)
    return Domain(images[:n], labels[:n], images[n:], labels[n:], "made up")


def course(domains, method="club_sample", mode="correct", seed=0, **changes):
    cell = Cell(mode, "made-up", method, seed)
    return Course(replace(CONFIG, **changes), cell, *domains)


def batch(n=6, seed=0, classes=3):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(2 * n, 3, 8, 8, generator=g)
    again = x + 0.1 * torch.randn(x.shape, generator=g)
    labels = torch.arange(n) % classes
    return Batch(x, labels, again, torch.tensor(0.7), torch.tensor(0.5))


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
