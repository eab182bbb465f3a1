"""The paper's figures and tables, one file each, and the runner of their cells.

`EXPERIMENTS` names them; ``python -m experiments NAME`` runs one.
"""

from __future__ import annotations

from typing import Any

from experiments.domain_adaptation import DomainAdaptation
from experiments.estimation_curves import EstimationCurves
from experiments.estimation_quality import EstimationQuality
from experiments.estimation_speed import EstimationSpeed
from experiments.information_bottleneck import InformationBottleneck
from experiments.interfaces import Cell, Config, Experiment, Record
from experiments.minimization import Minimization
from experiments.runner import Failed, Options, reproduce

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
    "minimization": Minimization(),
}
