"""Conditionals q(y|x): modules whose forward(x) returns a torch Distribution with batch shape (n,).

A *known* conditional needs none of these: any callable from x to such a Distribution will do. The
ones here are fitted by maximum likelihood. They standardise x and y themselves, by what they have
observed, and give the Distribution in the units of y: the scale of the data does not matter.

With ``x_dim=0`` a conditional depends on nothing and is a model of the marginal of y.
"""

from mibounds.conditionals.base import Conditional
from mibounds.conditionals.copulas import Copula
from mibounds.conditionals.flows import Flow
from mibounds.conditionals.gaussians import (
    AsPublishedGaussian,
    FullGaussian,
    Gaussian,
    LowRankGaussian,
    UnitGaussian,
)
from mibounds.conditionals.labels import Bernoulli, Categorical
from mibounds.conditionals.mixtures import GaussianMixture
from mibounds.conditionals.student_t import StudentT

__all__ = [
    "AsPublishedGaussian",
    "Bernoulli",
    "Categorical",
    "Conditional",
    "Copula",
    "Flow",
    "FullGaussian",
    "Gaussian",
    "GaussianMixture",
    "LowRankGaussian",
    "StudentT",
    "UnitGaussian",
]
