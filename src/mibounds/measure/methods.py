"""METHODS, the registry of everything that `estimate` can measure by, and the choice among it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mibounds.estimators import ESTIMATORS, Estimator
from mibounds.measure.canonical_codes import CanonicalCodes
from mibounds.measure.classical import CLASSICAL, KSG, ClassicalEstimator, MixedKSG, PlugIn
from mibounds.measure.classical.interfaces import has_scipy
from mibounds.measure.copula_model import CopulaModel
from mibounds.samples.checks import check_list
from mibounds.samples.columns import Columns

__all__ = ["METHODS", "Method"]

Method = type[CopulaModel] | type[CanonicalCodes] | type[ClassicalEstimator] | type[Estimator]

# Each class declares its facts: name, side, condition, cost, reference, has_conditional.
METHODS: dict[str, Method] = {
    CopulaModel.name: CopulaModel,
    CanonicalCodes.name: CanonicalCodes,
    **CLASSICAL,
    **ESTIMATORS,
}

FEWEST_PER_COLUMN = 5  # rows below which only codes are left
FEW_COLUMNS = 3  # x and y together, up to which neighbours are better than models


def choose_methods(
    methods: str | Sequence[str],
    x: Columns,
    y: Columns,
    given: Columns | None,
    grouped: bool = False,
) -> list[str]:
    """Names of the methods to run; the value of the first one counts.

    Args:
        methods: "default", or names with commas between them, or a list of either.
        x: one side.
        y: the other side.
        given: conditioning columns, if any.
        grouped: whether rows belong to groups, which counts and neighbours do not know.
    """
    if isinstance(methods, str):
        methods = [m.strip() for m in methods.split(",")]
    check_list("methods", methods)
    names = list(dict.fromkeys(methods))
    known = ["default", *METHODS]
    for name in names:
        if name not in known:
            raise ValueError(
                f"Expected methods among {', '.join(known)} but got {name!r}; "
                'pass "default" to have them chosen.'
            )
    if not names:
        raise ValueError(
            'Expected at least one method but got none; pass "default" to have them chosen.'
        )
    if "default" in names:
        i = names.index("default")
        names[i : i + 1] = default_methods(x, y, given, grouped)
    return list(dict.fromkeys(names))


def default_methods(
    x: Columns, y: Columns, given: Columns | None, grouped: bool = False
) -> list[str]:
    """The default: counts for labels, neighbours in few columns, else the copula model.

    Canonical codes stand beside each of them, and take its place if they certify more than it says.
    Chosen by the errors over `TASKS` at 10000 samples, `results/measure/tasks.json`.
    """
    if FEWEST_PER_COLUMN * (x.width + y.width) > len(x) and given is None:
        return [CanonicalCodes.name]
    kinds = {"discrete" if "continuous" not in c.kinds else "numbers" for c in (x, y)}
    if given is not None:
        return [CopulaModel.name]
    if grouped:
        return [CopulaModel.name, CanonicalCodes.name]
    if kinds == {"discrete"}:
        cells = len(np.unique(np.hstack([x.values, y.values]), axis=0))
        counts = [PlugIn.name] if 5 * cells <= len(x) else []
        return [*counts, CopulaModel.name, CanonicalCodes.name]
    pure = all(len(set(c.kinds)) == 1 for c in (x, y))
    if x.width + y.width <= FEW_COLUMNS and pure and has_scipy():
        neighbours = MixedKSG.name if "discrete" in kinds else KSG.name
        return [neighbours, CanonicalCodes.name]
    return [CopulaModel.name, CanonicalCodes.name]
