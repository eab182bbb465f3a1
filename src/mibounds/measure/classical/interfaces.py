"""The base class of the classical estimators, and checks of their samples and settings."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from mibounds.samples.arrays import to_array
from mibounds.samples.checks import check_finite
from mibounds.samples.columns import LARGEST
from mibounds.samples.precision import undisturbed

if TYPE_CHECKING:
    from jaxtyping import Float, Shaped

Side = Literal["upper", "lower", "neither"]
Kind = Literal["continuous", "discrete", "mixed"]
Samples = np.ndarray | Tensor | Sequence[Any]


@dataclass(frozen=True)
class ClassicalEstimator(ABC):
    """An estimate of mutual information computed from samples, with nothing to train.

    The fields of a subclass are its settings, all with defaults; its class attributes are facts.

    Attributes:
        name: in the registries `CLASSICAL` and `METHODS`.
        side: on which side of the truth it lies, "upper", "lower" or "neither".
        condition: under which condition, or why on neither.
        handles: kinds of columns it accepts; "mixed" includes "continuous" and "discrete".
        cost: how the work grows with N samples and D columns.
        reference: who it is due to.
        has_conditional: whether it is computed from a model q(y|x); never.
        local: whether it looks at the neighbourhood of each sample, so that it needs few columns.
        most_rows: `estimate` gives it at most this many rows, for time; None for all of them.
        most_rows_of_few: the same where x and y have three columns at most.
    """

    name: ClassVar[str]
    side: ClassVar[Side]
    condition: ClassVar[str]
    handles: ClassVar[Kind]
    cost: ClassVar[str]
    reference: ClassVar[str]
    has_conditional: ClassVar[bool] = False
    local: ClassVar[bool] = False
    most_rows: ClassVar[int | None] = None
    most_rows_of_few: ClassVar[int | None] = None

    @undisturbed
    def __call__(self, x: Samples, y: Samples) -> float:
        """Estimate I(x; y).

        Args:
            x: one sample per row, (n,) or (n, d); array, tensor or sequence.
            y: the same number of rows, any number of columns.

        Returns:
            Nats. Little information may come out below zero by chance; clipping would add a bias.
        """
        return float(self.influence(x, y).mean())

    @abstractmethod
    def influence(self, x: Samples, y: Samples) -> Float[np.ndarray, " n"]:
        """The contribution of each sample: n values in nats, whose mean is the estimate.

        They estimate the pointwise log p(x, y) / (p(x) p(y)), which up to a constant is the
        influence function of the mutual information. So their standard deviation over the root of n
        is a standard error of the estimate, which does not include its bias.
        """


def check_option(name: str, value: object, options: Sequence[object]) -> None:
    """Check a setting that is one of a few values."""
    if value not in options:
        raise ValueError(
            f"Expected {name} to be one of {list(options)} but got {value!r}; "
            f"leave {name} out for its default."
        )


def check_least(name: str, value: float | int, least: int) -> None:
    """Check a setting that must be neither too small nor NaN."""
    if not isinstance(value, float | int | np.number):
        raise ValueError(
            f"Expected {name} to be a number but got {type(value).__name__}; make the estimator "
            "first, then pass it the samples, as in KSG()(x, y)."
        )
    if not value >= least:
        raise ValueError(
            f"Expected {name} >= {least} but got {value}; leave {name} out for its default."
        )


def as_rows(x: Samples, y: Samples) -> tuple[Shaped[np.ndarray, "n x"], Shaped[np.ndarray, "n y"]]:
    """Both sides of n >= 2 joint samples as arrays of any dtype, with one sample per row."""
    rows = []
    for name, value in (("x", x), ("y", y)):
        if hidden := int(np.ma.getmaskarray(value).sum()) if np.ma.isMaskedArray(value) else 0:
            raise ValueError(
                f"Expected {name} without masked values but got {hidden}; drop or fill them."
            )
        array = to_array(name, value)
        if array.ndim == 1:
            array = array[:, None]
        if array.ndim != 2 or not array.shape[1]:
            raise ValueError(
                f"Expected {name} of shape (n,) or (n, d) but got {array.shape}; "
                "pass one sample per row, with its numbers in columns."
            )
        if array.dtype.kind == "f":
            array = array.astype(np.float64)
            check_finite(name, torch.from_numpy(array))
        rows.append(array)
    n, m = map(len, rows)
    if n != m:
        raise ValueError(
            f"Expected as many samples of x as of y but got {n} and {m}; "
            "pass rows that belong together."
        )
    if n < 2:
        raise ValueError(f"Expected at least 2 samples (x_i, y_i) but got {n}; pass more rows.")
    return rows[0], rows[1]


def as_numbers(
    x: Samples, y: Samples, *, constants: bool = False
) -> tuple[Float[np.ndarray, "n x"], Float[np.ndarray, "n y"]]:
    """The same for numbers, with each column scaled to mean 0 and variance 1.

    Mutual information does not depend on the scale of a column, but distances between samples do.

    Args:
        x: one sample per row.
        y: one sample per row.
        constants: whether a column may be constant; its values are then set to 0.
    """
    columns = []
    for name, array in zip("xy", as_rows(x, y), strict=True):
        if array.dtype.kind not in "biuf":
            raise ValueError(
                f"Expected {name} to hold real numbers but got {array.dtype}; "
                "give labels as integers or one-hot, complex numbers as two columns."
            )
        array = array.astype(np.float64)
        constant = (array == array[0]).all(0)
        if constant.any() and not constants:
            raise ValueError(
                f"Expected every column of {name} to vary but got column {constant.argmax()} with "
                "the same value in every row; drop it, since it carries no information."
            )
        largest = np.abs(array).max(0)
        array = array / np.where(largest > LARGEST, largest, 1)  # so that no sum overflows
        array = array - array.mean(0)
        array[:, constant] = 0  # not the rounding error of the mean
        array /= np.where(constant, 1, np.abs(array).max(0))  # before anything is squared
        columns.append(array / np.where(constant, 1, array.std(0)))
    return columns[0], columns[1]


def whiten(
    what: str, x: Float[np.ndarray, "n d"], reason: str = ""
) -> tuple[Float[np.ndarray, "n d"], float]:
    """Coordinates of centred samples in which their covariance is the identity.

    Args:
        what: their name in a message.
        x: one sample per row, of mean 0.
        reason: added to the message where the covariance cannot be inverted.

    Returns:
        The coordinates, and the log-determinant of the original covariance (with 1/n).
    """
    n, d = x.shape
    u, s, _ = np.linalg.svd(x, full_matrices=False)
    rank = int((s > 4 * n * np.finfo(np.float64).eps * s[0]).sum())
    if rank < d:
        raise ValueError(
            f"Expected {d} independent columns in {what} but got {rank}; "
            f"drop the columns that are linear combinations of others{reason}."
        )
    return u * np.sqrt(n), float(2 * np.log(s).sum() - d * np.log(n))


def check_enough(x: np.ndarray, y: np.ndarray, least: int) -> None:
    """Check that there are more samples than the columns need."""
    if len(x) < least:
        raise ValueError(
            f"Expected at least {least} samples for {x.shape[1]} + {y.shape[1]} columns "
            f"but got {len(x)}; pass more rows, or fewer columns."
        )


def digamma(values: Any) -> np.ndarray:
    """ψ of each value, by torch, so that scipy is not needed for it."""
    return torch.special.digamma(torch.as_tensor(values, dtype=torch.float64)).numpy()


def has_scipy() -> bool:
    """Whether scipy, which searches for neighbours, is installed."""
    return find_spec("scipy") is not None


def import_scipy(part: str, who: str) -> ModuleType:
    """Import a part of scipy, an optional dependency, where it is needed."""
    try:
        return import_module(f"scipy.{part}")
    except ImportError as error:
        raise ImportError(
            f"{who} needs the package scipy, which is not installed; "
            "install it with: pip install 'mibounds[classical]'"
        ) from error
