"""Bounds on mutual information, to measure it and to minimise it.

samples -> (conditional q(y|x) | critic f(x, y)) -> bound -> estimate (nats) | penalty (a loss)
"""

from mibounds.tasks import TASKS as TASKS
from mibounds.classical import *
from mibounds.conditionals import *
from mibounds.copulas import *
from mibounds.critics import *
from mibounds import bounds as bounds
from mibounds.functional import *
from mibounds.estimators import *
from mibounds.fitting import *
from mibounds.ensembles import *
from mibounds.evaluation import *
from mibounds.estimates import *
from mibounds.estimation import *
from mibounds.watches import *
from mibounds.penalty import *

__version__ = "0.1.0"
