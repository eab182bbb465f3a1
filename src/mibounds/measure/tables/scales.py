"""Units of a value: nats, bits, and normalised to [0, 1].

Normalised, 0 says independent, and 1 that one column determines the other. There is no one scale
for all columns, since the mutual information of numbers has no largest value:

- two columns of numbers: sqrt(1 - exp(-2 I)), the size of the correlation of two normal variables
  that share I nats (Linfoot 1957; Joe 1989, equation 1);
- with labels: I / min(H(x), H(y)), the share of the entropy of the label that is easier to tell;
  numbers have no entropy, so that with one column of labels it is the share of theirs.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np

if TYPE_CHECKING:
    from jaxtyping import Float

__all__ = ["UNITS", "Unit", "convert"]

Unit = Literal["nats", "bits", "normalised"]
UNITS = get_args(Unit)


def convert(
    nats: Float[np.ndarray, "*any"], unit: str, entropy: Float[np.ndarray, "*any"]
) -> Float[np.ndarray, "*any"]:
    """Nats in another unit.

    Args:
        nats: values, or ends of their intervals.
        unit: "nats", "bits" or "normalised".
        entropy: the smaller one of both columns; infinite for two columns of numbers.

    Example:
        >>> nats = np.array([0.0, 0.2231, 0.3466])
        >>> convert(nats, "normalised", np.array([np.inf, np.inf, 0.6931])).round(2)
        array([0. , 0.6, 0.5])
    """
    if unit not in UNITS:
        raise ValueError(
            f"Expected unit to be one of {', '.join(UNITS)} but got {unit!r}; "
            "leave it out for nats."
        )
    if unit == "nats":
        return nats
    if unit == "bits":
        return nats / math.log(2)
    numbers = np.isinf(entropy)
    share = nats / np.where(numbers | (entropy <= 0), 1.0, entropy)
    correlation = np.sqrt(-np.expm1(-2 * np.maximum(nats, 0)))
    return np.where(numbers, correlation, share.clip(0, 1))
