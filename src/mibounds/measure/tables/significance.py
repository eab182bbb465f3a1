"""p-values of many tests, corrected for their number.

Of m p-values, sorted, with p_(1) the least:

- "holm": the chance of any false discovery is at most the level, whatever the tests have in common;
  the largest so far of (m - i + 1) p_(i) (Holm 1979);
- "benjamini-yekutieli": so is the share of false ones among the discoveries, in the mean, whatever
  the tests have in common; the least from there on of m c p_(i) / i, c = 1 + 1/2 + ... + 1/m
  (Benjamini and Yekutieli 2001, theorem 1.3);
- "benjamini-hochberg": the same with c = 1, if the tests depend on each other positively (Benjamini
  and Hochberg 1995);
- "none": as they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, get_args

import numpy as np

if TYPE_CHECKING:
    from jaxtyping import Float

__all__ = ["CORRECTIONS", "Correction", "correct"]

Correction = Literal["holm", "benjamini-yekutieli", "benjamini-hochberg", "none"]
CORRECTIONS = get_args(Correction)


def correct(p: Float[np.ndarray, " m"], correction: str) -> Float[np.ndarray, " m"]:
    """Corrected p-values, to be compared with the level itself; NaN stays and is not counted.

    Args:
        p: p-values.
        correction: its name.

    Example:
        >>> p = np.array([0.01, 0.04, 0.03, np.nan])
        >>> correct(p, "holm")
        array([0.03, 0.06, 0.06,  nan])
        >>> correct(p, "benjamini-yekutieli").round(4)
        array([0.055 , 0.0733, 0.0733,    nan])
    """
    if correction not in CORRECTIONS:
        raise ValueError(
            f"Expected correction to be one of {', '.join(CORRECTIONS)} but got {correction!r}; "
            'choose "holm" for few tests and "benjamini-yekutieli" for many.'
        )
    found = np.full(len(p), np.nan)
    known = np.flatnonzero(~np.isnan(p))
    order = known[np.argsort(p[known], kind="stable")]
    m = len(order)
    rank = np.arange(1, m + 1)
    if correction == "none":
        corrected = p[order]
    elif correction == "holm":
        corrected = np.maximum.accumulate((m - rank + 1) * p[order])
    else:
        factor = (1 / rank).sum() if correction == "benjamini-yekutieli" else 1.0
        corrected = np.minimum.accumulate((m * factor * p[order] / rank)[::-1])[::-1]
    found[order] = corrected.clip(max=1.0)
    return found
