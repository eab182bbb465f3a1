"""The paper's figures and tables, one file each, and the runner of their cells.

`EXPERIMENTS` names them; ``mibounds reproduce NAME`` runs one.
"""

from __future__ import annotations

from typing import Any

from mibounds.experiments.domain_adaptation import DomainAdaptation
from mibounds.experiments.estimation_curves import EstimationCurves
from mibounds.experiments.estimation_quality import EstimationQuality
from mibounds.experiments.estimation_speed import EstimationSpeed
from mibounds.experiments.information_bottleneck import InformationBottleneck
from mibounds.experiments.interfaces import Cell, Config, Experiment, Record
from mibounds.experiments.minimization import Minimization
from mibounds.experiments.runner import Failed, Options, reproduce

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
