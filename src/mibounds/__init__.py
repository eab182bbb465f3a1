"""Bounds on mutual information, to measure it and to minimise it.

samples -> (conditional q(y|x) | critic f(x, y)) -> bound -> nats
"""

from mibounds import bounds
from mibounds.conditionals import (
    AsPublishedGaussian,
    Bernoulli,
    Categorical,
    Flow,
    FullGaussian,
    Gaussian,
    GaussianMixture,
    LowRankGaussian,
    StudentT,
    UnitGaussian,
)
from mibounds.critics import BilinearCritic, ConcatCritic, SeparableCritic
from mibounds.estimators import (
    BA, CLUB, DV, ESTIMATORS, FLO, JS, MINE, NWJ, SMILE, TUBA, VUB, CLUBSample, DoE, InfoNCE, L1Out,
)  # fmt: skip
from mibounds.functional import ba, club, club_sample, l1out, vub

__version__ = "0.1.0"
