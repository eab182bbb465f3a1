"""The settings of a penalty: what is chosen where nothing is said, and what is refused."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Integral, Real

from torch import Tensor

from mibounds.estimators import Estimator
from mibounds.estimators.ratio import Ratio
from mibounds.samples.checks import check_size


def make_estimator(
    estimator: object,
    y_dim: int | None,
    labels: int | Sequence[int] | None,
    given_dim: int,
    given_labels: int,
    spread: float | None = None,
) -> Estimator:
    """The estimator of a penalty that was given one, or dimensions.

    Example:
        >>> make_estimator(16, None, 3, 0, 0).labels
        3
    """
    if isinstance(estimator, Integral) and not isinstance(estimator, bool):
        sizes = labels if labels is None or isinstance(labels, int) else tuple(labels)
        return Ratio(
            int(estimator), y_dim, labels=sizes, given_dim=given_dim, given_labels=given_labels,
            spread=spread,
        )  # fmt: skip
    if y_dim is not None or labels is not None or given_dim or given_labels:
        raise ValueError(
            "Expected either an estimator or dimensions but got both: "
            f"{type(estimator).__name__}, y_dim={y_dim}, labels={labels}, given_dim={given_dim}, "
            f"given_labels={given_labels}; pass mb.MIPenalty(x_dim, y_dim) without an estimator."
        )
    return check_estimator("estimator", estimator)


def check_estimator(name: str, value: object) -> Estimator:
    """Check that a value is an estimator."""
    if isinstance(value, Estimator):
        return value
    raise ValueError(
        f"Expected {name} to be an estimator such as mb.CLUB(x_dim, y_dim) "
        f"but got {value if isinstance(value, type) else type(value).__name__}; "
        "pass mb.CLUB(x.shape[1], y.shape[1]), or only the two dimensions."
    )


def check_settings(
    lr: float | None,
    inner_steps: int,
    warmup: int,
    weight: object,
    replay: int,
    average: float,
    clip: float | None,
    check_every: int,
    spread: float | None,
) -> None:
    """Check the settings of a penalty, one by one."""
    check_size("inner_steps", inner_steps)
    for name, value in (("warmup", warmup), ("replay", replay), ("check_every", check_every)):
        check_size(name, value, at_least=0)
    if not callable(weight):
        check_weight(weight)
    if lr is not None and not lr > 0:
        raise ValueError(f"Expected lr > 0 but got {lr}; leave it out for the default.")
    if not 0 <= average < 1:
        raise ValueError(
            f"Expected average in [0, 1) but got {average}; leave it out for no average."
        )
    if spread is not None and not 0 < spread < 1:
        raise ValueError(
            f"Expected spread in (0, 1), or None for no noise, but got {spread}; "
            "leave it out for the default."
        )
    if clip is not None and not clip > 0:
        raise ValueError(
            f"Expected clip > 0, or None for no limit, but got {clip}; leave it out for no limit."
        )


def check_capturable(
    warmup: int, replay: int, average: float, graph: bool | None, weight: object
) -> None:
    """Refuse what depends on numbers that Python counts: a captured graph repeats the first."""
    if warmup or replay or average or graph or callable(weight):
        raise ValueError(
            "Expected no warmup, replay, average, graph or function as weight with "
            "capturable=True, since a graph of your own repeats what it did when it was "
            f"captured, but got warmup={warmup}, replay={replay}, average={average}, "
            f"graph={graph} and weight={weight}; multiply the penalty by a tensor that changes."
        )


def check_weight(weight: object) -> None:
    """Check that a weight is a finite number. A tensor passes: reading it may stall a GPU."""
    if not (isinstance(weight, Tensor) or (isinstance(weight, Real) and math.isfinite(weight))):
        raise ValueError(
            "Expected weight to be a finite number, or a function from the number of the call to "
            f"one, but got {weight!r}; pass weight=0.1, for example."
        )


def check_removal(backward: object, average: float, capturable: bool) -> None:
    """Refuse what a `Ratio` has no use for."""
    if backward is not None or average or capturable:
        raise ValueError(
            "Expected no backward, average or capturable with a Ratio, which stands for both "
            f"directions and averages itself, but got backward={type(backward).__name__}, "
            f"average={average}, capturable={capturable}; leave them out."
        )
