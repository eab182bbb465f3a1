"""The settings of a penalty: what is chosen where nothing is said, and what is refused."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Integral, Real

import torch
from torch import Tensor

from mibounds.estimators.base import Estimator, check_estimator
from mibounds.estimators.fitting import check_rate
from mibounds.estimators.ratio import Ratio
from mibounds.samples.checks import check_size
from mibounds.samples.seeds import drawing


def make_estimator(
    estimator: object,
    y_dim: int | None,
    labels: int | Sequence[int] | None,
    given_dim: int,
    given_labels: int,
    spread: float | None = None,
    seed: int = 0,
) -> Estimator:
    """The estimator of a penalty that was given one, or dimensions.

    What is made of dimensions has the values of the seed, in torch's default precision and place.

    Example:
        >>> make_estimator(16, None, 3, 0, 0).labels
        3
    """
    if isinstance(estimator, Integral) and not isinstance(estimator, bool):
        sizes = labels if labels is None or isinstance(labels, int) else tuple(labels)
        with drawing(seed):
            made = Ratio(
                int(estimator), y_dim, labels=sizes, given_dim=given_dim,
                given_labels=given_labels, spread=spread,
            )  # fmt: skip
        return made.to(torch.get_default_device(), torch.get_default_dtype())
    if y_dim is not None or labels is not None or given_dim or given_labels:
        raise ValueError(
            "Expected either an estimator or dimensions but got both: "
            f"{type(estimator).__name__}, y_dim={y_dim}, labels={labels}, given_dim={given_dim}, "
            f"given_labels={given_labels}; pass mb.MIPenalty(x_dim, y_dim) without an estimator."
        )
    return check_estimator("estimator", estimator)


def check_seed(seed: object) -> int:
    """Check that a seed is an integer: a penalty keeps it."""
    number = int(seed) if isinstance(seed, Integral) and not isinstance(seed, bool) else 2**64
    if not -(2**63) <= number < 2**64:
        raise ValueError(
            f"Expected seed to be an integer of at most 64 bits but got {seed!r}; "
            "pass seed=0, for example."
        )
    return number


def check_settings(
    lr: float,
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
    for name, value in (("average", average), ("clip", clip), ("spread", spread)):
        if not isinstance(value, Real | None):
            raise ValueError(
                f"Expected {name} to be a number but got {type(value).__name__}; "
                "leave it out for the default."
            )
    check_rate(lr)
    check_size("inner_steps", inner_steps)
    for name, value in (("warmup", warmup), ("replay", replay), ("check_every", check_every)):
        check_size(name, value, at_least=0)
    if not callable(weight):
        check_weight(weight)
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
