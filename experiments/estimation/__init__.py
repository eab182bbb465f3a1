"""The simulation study of section 4.1: estimators while the mutual information rises in steps."""

from __future__ import annotations

from experiments.estimation.curves import EstimationCurves
from experiments.estimation.quality import EstimationQuality
from experiments.estimation.speed import EstimationSpeed

__all__ = ["EstimationCurves", "EstimationQuality", "EstimationSpeed"]
