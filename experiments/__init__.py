"""The figures and tables of the paper: ``python -m experiments NAME`` makes one of `EXPERIMENTS`.

    runner/                  what an experiment is; its cells computed, kept, and put into tables
    data/                    the data sets
    training.py              the trainer of the last two
    estimation/              section 4.1: curves, quality and speed of the estimators
    minimisation.py          Algorithm 1 where the truth is known
    mi_control/              beyond the paper: a newer protocol for minimisation and maximisation
    information_bottleneck/  section 4.2
    domain_adaptation/       section 4.4
    nuisance_removal/        beyond the paper: a nuisance that agrees with the label in training

The rooms of the experiments import the first three, never the other way round.
"""

from __future__ import annotations

from typing import Any

from experiments.domain_adaptation import DomainAdaptation
from experiments.estimation import EstimationCurves, EstimationQuality, EstimationSpeed
from experiments.information_bottleneck import InformationBottleneck
from experiments.mi_control import MIControl
from experiments.minimisation import Minimisation
from experiments.nuisance_removal import NuisanceRemoval
from experiments.runner import Cell, Config, Experiment, Failed, Options, Record, reproduce

__all__ = [
    "EXPERIMENTS",
    "Cell",
    "Config",
    "Experiment",
    "Failed",
    "Options",
    "Record",
    "reproduce",
]

EXPERIMENTS: dict[str, Experiment[Any]] = {
    "domain-adaptation": DomainAdaptation(),
    "estimation-curves": EstimationCurves(),
    "estimation-quality": EstimationQuality(),
    "estimation-speed": EstimationSpeed(),
    "information-bottleneck": InformationBottleneck(),
    "mi-control": MIControl(),
    "minimisation": Minimisation(),
    "nuisance-removal": NuisanceRemoval(),
}
