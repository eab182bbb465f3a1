"""Estimators: a conditional or a critic, together with a bound.

Each has two verbs. ``estimator(x, y)`` is the bound on a batch of samples, in nats, and can be
differentiated; it changes nothing. ``estimator.learning_loss(x, y)`` is what to minimise to fit the
conditional or critic; in training mode it also lets them see the scale of the data.

Each states facts: ``bound`` is "upper", "lower" or "neither", and ``condition`` says under which
condition; ``cost`` says how the work grows with the N pairs of a batch, ``reference`` where the
bound comes from. For q(y|x) it matters which variable is which: x is what q is given, y what it
predicts. A model of x given y is the same estimator with the arguments swapped.
"""

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
    "DoE",
    "InfoNCE",
    "L1Out",
]

Estimator = ConditionalEstimator | CriticEstimator

ESTIMATORS: dict[str, type[ConditionalEstimator] | type[CriticEstimator]] = {
    "club": CLUB,
    "club_sample": CLUBSample,
    "l1out": L1Out,
    "vub": VUB,
    "ba": BA,
    "dv": DV,
    "mine": MINE,
    "nwj": NWJ,
    "infonce": InfoNCE,
    "tuba": TUBA,
    "js": JS,
    "smile": SMILE,
    "flo": FLO,
    "doe": DoE,
}
