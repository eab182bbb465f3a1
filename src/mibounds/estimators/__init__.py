"""Estimators: a conditional or a critic, together with a bound.

Each has two verbs. ``estimator(x, y)`` is the bound on a batch of samples, in nats, and can be
differentiated; it changes nothing. ``estimator.learning_loss(x, y)`` is what to minimise to fit the
conditional or critic; in training mode it also lets them see the scale of the data.

Each declares facts on its class (`Estimator`): ``side`` is "upper", "lower" or "neither",
``condition`` says under which condition. `ESTIMATORS` collects the classes by name. For q(y|x) it
matters which variable is which: x is what q is given, y what it predicts. A model of x given y is
the same estimator with the arguments swapped.
"""

from mibounds.estimators.base import Estimator, Side
from mibounds.estimators.from_conditionals import (
    BA,
    CLUB,
    VUB,
    CLUBSample,
    ConditionalEstimator,
    DoE,
    L1Out,
)
from mibounds.estimators.from_critics import (
    DV,
    FLO,
    JS,
    MINE,
    NWJ,
    SMILE,
    TUBA,
    CriticEstimator,
    InfoNCE,
)

__all__ = [
    "BA",
    "CLUB",
    "DV",
    "ESTIMATORS",
    "FLO",
    "JS",
    "MINE",
    "NWJ",
    "SMILE",
    "TUBA",
    "VUB",
    "CLUBSample",
    "ConditionalEstimator",
    "CriticEstimator",
    "DoE",
    "Estimator",
    "InfoNCE",
    "L1Out",
    "Side",
]

_CONDITIONAL = (CLUB, CLUBSample, L1Out, VUB, BA)
_CRITIC = (DV, MINE, NWJ, InfoNCE, TUBA, JS, SMILE, FLO)

ESTIMATORS: dict[str, type[ConditionalEstimator] | type[CriticEstimator]] = {
    each.name: each for each in (*_CONDITIONAL, *_CRITIC, DoE)
}
