"""Estimators of mutual information without a network: for few dimensions, and as a reference.

Each takes samples and returns nats,

    KSG(k=5)(x, y)

where x and y are arrays, tensors or sequences of n samples, (n,) or (n, d). Each averages over the
samples an estimate of the pointwise log p(x, y) / (p(x) p(y)); ``influence(x, y)`` returns the
terms, from which a standard error follows. They differ in how they estimate it:

- counts of values or bins: `PlugIn`, `Binning`;
- distances to neighbours: `KSG`, `MixedKSG`;
- kernel estimates of the densities, `KDE`, or of their ratio, `MLMI`;
- a Gaussian model of the samples, `CCA`, or of their ranks, `GCMI`.

All but the last two need more samples for more columns, most of them exponentially many. None of
them is differentiable, so none can serve as a penalty. All compute in float64.

`CLASSICAL` collects the classes by name; each declares its facts (`ClassicalEstimator`).
"""

from mibounds.measure.classical.counts import Binning, PlugIn
from mibounds.measure.classical.gaussians import CCA, GCMI
from mibounds.measure.classical.interfaces import ClassicalEstimator
from mibounds.measure.classical.kernels import KDE, MLMI
from mibounds.measure.classical.neighbours import KSG, MixedKSG

__all__ = [
    "CCA",
    "CLASSICAL",
    "GCMI",
    "KDE",
    "KSG",
    "MLMI",
    "Binning",
    "ClassicalEstimator",
    "MixedKSG",
    "PlugIn",
]

CLASSICAL: dict[str, type[ClassicalEstimator]] = {
    each.name: each for each in (PlugIn, Binning, KSG, MixedKSG, KDE, MLMI, CCA, GCMI)
}
