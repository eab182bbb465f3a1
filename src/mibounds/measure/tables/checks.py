"""What can be wrong with a table, its settings, or the values of its pairs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from mibounds.measure.results import Advice
from mibounds.measure.tables.significance import correct
from mibounds.measure.tables.values import FEWEST, METHODS, can_look
from mibounds.measure.tables.variables import Variable
from mibounds.samples.checks import check_level, check_seed

if TYPE_CHECKING:
    from jaxtyping import Float

__all__ = ["check_rows", "check_settings", "look_at"]


def look_at(found: Float[np.ndarray, "6 m"]) -> tuple[Advice, ...]:
    """What to know of the values of some pairs.

    Example:
        >>> look_at(np.array([[np.nan], [np.nan], [np.nan], [np.nan], [3], [4]]))[0].code
        'few-rows'
    """
    advice = []
    few = int((found[4] < FEWEST).sum())
    if few:
        advice.append(
            Advice(
                "few-rows",
                f"{few} pairs have fewer than {FEWEST} rows with both values, and no value.",
                "Collect more rows, or fill in what is missing.",
            )
        )
    named = int((found[5] == METHODS.index("too many labels")).sum())
    if named:
        advice.append(
            Advice(
                "labels-name-rows",
                f"{named} pairs have a column of labels that are nearly all different, such as the "
                "names of the rows, and no value.",
                "Leave that column out, group its labels, or declare it continuous.",
            )
        )
    high = int(np.isinf(found[2]).sum())
    if high:
        advice.append(
            Advice(
                "near-ceiling",
                f"{high} pairs share about as much as so many rows can tell: the logarithm of "
                "their number.",
                "Look whether one column is a function of the other; else collect more rows.",
            )
        )
    if not can_look():
        advice.append(
            Advice(
                "no-neighbours",
                "The package scipy is not installed: all values of numbers are by smooth series.",
                "Install it with: pip install 'mibounds[classical]'.",
            )
        )
    return tuple(advice)


def check_settings(budget: str, level: float, correction: str, seed: int) -> None:
    """Check what does not depend on the table."""
    correct(np.empty(0), correction)
    if budget not in ("default", "fast"):
        raise ValueError(
            f'Expected budget to be "default" or "fast" but got {budget!r}; leave it out.'
        )
    check_level(level)
    check_seed(seed)


def check_rows(sides: Mapping[str, Sequence[Variable]]) -> None:
    """Check that two sides have as many rows, and enough of them.

    Args:
        sides: their columns, by the name of the side.
    """
    (one, columns), (other, others) = sides.items()
    n, m = len(columns[0].values), len(others[0].values)
    if n != m:
        raise ValueError(
            f"Expected as many rows of {other} as of {one} but got {m} and {n}; "
            "pass rows that belong together."
        )
    if n < FEWEST:
        raise ValueError(
            f"Expected at least {FEWEST} rows but got {n}; give one sample per row, or collect "
            "more of them."
        )
