"""The steps of a training: the cross-entropy of the label, and the term of a method.

The weight of the term rises from 0 along the ramp of DANN, for all methods. Everything random comes
from the seed; nothing in a step waits for a GPU.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import torch
from torch.nn import functional as F

import mibounds as mb
from experiments.domain_adaptation.training import ramp
from experiments.nuisance_removal.config import NuisanceConfig, split_method
from experiments.nuisance_removal.methods import Removal, make_removal
from experiments.nuisance_removal.networks import Model
from experiments.nuisance_removal.samples import Samples
from experiments.runner.base import Cell


@dataclass(frozen=True, eq=False)
class Trained:
    """The outcome of a training.

    Args:
        model: in evaluation mode.
        removal: the method, with its penalty if it has one.
        warned: codes of all warnings of the penalty during the training.
    """

    model: Model
    removal: Removal
    warned: tuple[str, ...]


def train(config: NuisanceConfig, cell: Cell, samples: Samples) -> Trained:
    """Train a cell's network.

    Args:
        config: the settings.
        cell: with its task, method and seed.
        samples: of its task, on the device to train on.
    """
    device = samples.train.y.device
    method, weight = split_method(cell.method)
    with (
        torch.random.fork_rng(devices=[device] if device.type == "cuda" else []),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore", mb.PenaltyWarning)  # they are kept in `warned`
        torch.manual_seed(cell.seed)
        model = Model(cell.task, config, samples).to(device)  # the same for all methods
        removal = make_removal(
            method, model.z_dim, samples.classes, samples.values, config.hidden, cell.seed
        ).to(device)
        learnt = [*model.parameters(), *removal.learnt]
        optimizer = torch.optim.Adam(learnt, lr=config.lr, fused=True)
        g = torch.Generator(device).manual_seed(cell.seed)
        size = config.steps, config.batch_size
        batches = torch.randint(len(samples.train), size, generator=g, device=device)
        warned: dict[str, None] = {}
        for step, rows in enumerate(batches):
            x, y, s = samples.train.take(rows)
            z = model.encoder(x)
            loss = F.cross_entropy(model.head(z), y)
            loss = loss + removal.term(z, s, y, weight * ramp(step / config.steps))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if removal.penalty is not None:
                warned |= dict.fromkeys(a.code for a in removal.penalty.report().warnings)
    model.collect_statistics(samples.train)
    return Trained(model.eval(), removal, tuple(warned))
