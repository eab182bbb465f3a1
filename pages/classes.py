"""Tables of what the classes of the library declare."""

from __future__ import annotations

import math

import mibounds as mb
from pages.texts import table


def estimators() -> str:
    """Every estimator with its facts."""
    head = ["name", "class", "side", "condition", "cost of a batch", "in CLUB", "reference"]
    return table(
        head,
        [
            [f"`{name}`", f"`{each.__name__}`", each.side, each.condition, each.cost, each.equation,
             each.reference]
            for name, each in mb.ESTIMATORS.items()
        ],
    )  # fmt: skip


def classical() -> str:
    """Every estimator without a network with its facts."""
    head = ["name", "class", "side", "condition", "data", "cost", "reference"]
    return table(
        head,
        [
            [f"`{name}`", f"`{each.__name__}`", each.side, each.condition, each.handles, each.cost,
             each.reference]
            for name, each in mb.CLASSICAL.items()
        ],
    )  # fmt: skip


def costs() -> str:
    """Estimators by the cost of a batch."""
    found: dict[str, list[str]] = {}
    for each in mb.ESTIMATORS.values():
        found.setdefault(each.cost, []).append(f"`{each.__name__}`")
    return table(["cost", "estimators"], [[k, ", ".join(names)] for k, names in found.items()])


def side(name: str) -> str:
    """On which side a method of `estimate` lies, as it is there: with its default settings."""
    if name in mb.ESTIMATORS:
        return mb.ESTIMATORS[name](2, 2).side
    return mb.METHODS[name].side if name in mb.METHODS else "neither"


def exact_club(nats: str) -> float:
    """CLUB of 20 Gaussian pairs with their exact conditional."""
    return 20 * math.expm1(2 * float(nats) / 20)
