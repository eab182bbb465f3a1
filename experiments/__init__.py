"""The paper's figures and tables: one room per experiment, the runner of their cells, the data.

`EXPERIMENTS` names them; ``python -m experiments NAME`` runs one.
"""

from __future__ import annotations

from typing import Any

from experiments.domain_adaptation import DomainAdaptation
from experiments.estimation import EstimationCurves, EstimationQuality, EstimationSpeed
from experiments.information_bottleneck import InformationBottleneck
from experiments.minimisation import Minimisation
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
    "minimisation": Minimisation(),
}
