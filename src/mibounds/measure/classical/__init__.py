"""Estimators of mutual information without a network: for few dimensions, and to compare with.

Each takes samples and returns nats,

    KSG(k=5)(x, y)

where x and y are arrays, tensors or sequences of n samples, (n,) or (n, d). Each is an average over
the samples of an estimate of the pointwise log p(x, y) / (p(x) p(y)), and ``influence(x, y)`` gives
the terms, from which a standard error follows. They differ in how they come by it:

- counts of values or bins: `PlugIn`, `Binning`;
- distances to neighbours: `KSG`, `MixedKSG`;
- kernel estimates of the densities, `KDE`, or of their ratio, `MLMI`;
- a Gaussian model of the samples, `CCA`, or of their ranks, `GCMI`.

All but the last two need the more samples the more columns there are, most of them exponentially
many. None can be differentiated, so none is to be minimised. Computations are in float64.

`CLASSICAL` names them all, and their class attributes state facts: `bound` and `condition`,
`handles`, `cost`, `reference`.
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
    "MixedKSG",
    "PlugIn",
]

CLASSICAL: dict[str, type[ClassicalEstimator]] = {
    "plug_in": PlugIn,
    "binning": Binning,
    "ksg": KSG,
    "ksg_mixed": MixedKSG,
    "kde": KDE,
    "mlmi": MLMI,
    "gaussian": CCA,
    "gaussian_copula": GCMI,
}
