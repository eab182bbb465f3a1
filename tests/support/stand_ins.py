"""An estimate that was not computed, for the tests of how estimates are shown."""

import dataclasses

from mibounds.measure.estimation import Estimate
from mibounds.measure.results import Advice, HistoryPoint, MethodResult

CEILING = Advice("infonce-ceiling", "It reads 4.15, near log 64 = 4.16.", "Raise batch_size.")


def example(**changes):
    rows = (
        MethodResult("copula", "neither", "", 0.6931, 0.011, 3.1),
        MethodResult("infonce", "lower", "", 0.65, 0.012, 22.5),
        MethodResult("club", "upper", "q(y|x) is nearer to p(y|x) than to p(y)", 0.73, None, 12.25),
    )
    history = (HistoryPoint("club", 0, 10, 2.0, 2.1), HistoryPoint("club", 0, 20, 1.5, 1.75))
    estimate = Estimate(
        nats=0.6931, interval=(0.6711, 0.7152), level=0.95, interval_method="influence values",
        lower=0.65, upper=0.73, method="copula", rows=rows, history=history, warnings=(),
        p_value=None, null=(), n=10000, x_dim=20, y_dim=1, seed=37, seconds=73.25,
        config={"folds": 5, "methods": ["copula", "infonce"]},
    )  # fmt: skip
    return dataclasses.replace(estimate, **changes)
