"""Tasks whose y is a label: a table of probabilities, and a label around which x lies.

An impossible pair has a probability of exactly zero. So the conditionals are built from logits of
-inf: torch's `Categorical(probs=...)` clamps a zero to the rounding unit in `log_prob`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Categorical

from mibounds.tasks.base import Task, constant, expect, expect_count, freeze

if TYPE_CHECKING:
    from jaxtyping import Float, Int


@dataclass(frozen=True)
class DiscreteTable(Task):
    """Two discrete variables given by their joint table.

        I(X; Y) = sum_ij p_ij log p_ij / (p_i. p_.j),    0 log 0 = 0

    x is one-hot and floating point, for networks, and y a label. Where a row has no mass the
    conditional is arbitrary; here it is uniform.

    Reference: Cover and Thomas 2006, equation 2.28.

    Args:
        probabilities: p_ij, rows for x and columns for y; normalised if the sum is 1 within 1e-6.

    Example:
        >>> round(DiscreteTable(((0.5, 0.0), (0.0, 0.5))).mutual_information, 4)  # log 2
        0.6931
    """

    probabilities: tuple[tuple[float, ...], ...]

    def __post_init__(self) -> None:
        self.set_derived(probabilities=freeze("probabilities", self.probabilities, 2))
        table = np.array(self.probabilities)
        expect(
            bool((table >= 0).all()),
            "probabilities to be non-negative",
            f"a smallest entry of {table.min():g}",
            "give the joint probability of each pair of row and column",
        )
        expect(
            bool(abs(table.sum() - 1) <= 1e-6),
            "probabilities to sum to 1 within 1e-6",
            f"a sum of {table.sum():g}",
            "divide the table by its sum",
        )
        self.set_derived(x_dim=table.shape[0], y_dim=0, classes=table.shape[1])

    @property
    def mutual_information(self) -> float:
        p, log_ratio = self._table, self._log_ratio
        return float((p[p > 0] * log_ratio[p > 0]).sum())

    def conditional(self, x: Float[Tensor, "*batch x_dim"]) -> Categorical:
        return Categorical(logits=constant(self._logits, x)[x.argmax(-1)])

    def log_ratio(
        self, x: Float[Tensor, "*#batch x_dim"], y: Int[Tensor, "*#batch"]
    ) -> Float[Tensor, "*batch"]:
        return constant(self._log_ratio, x)[x.argmax(-1), y]

    @cached_property
    def _table(self) -> np.ndarray:
        table = np.array(self.probabilities)
        return table / table.sum()

    @cached_property
    def _log_ratio(self) -> np.ndarray:
        p = self._table
        product = p.sum(1, keepdims=True) * p.sum(0, keepdims=True)
        possible = p > 0
        return np.log(np.where(possible, p, 1) / np.where(possible, product, 1)) + _log(possible)

    @cached_property
    def _logits(self) -> np.ndarray:
        return np.where(self._table.sum(1, keepdims=True) > 0, _log(self._table), 0.0)

    def draw(
        self, n: int, generator: torch.Generator | None, dtype: torch.dtype
    ) -> tuple[Tensor, Tensor]:
        p = torch.tensor(self._table.ravel())
        cell = torch.multinomial(p, n, replacement=True, generator=generator)
        columns = self._table.shape[1]
        return torch.eye(self.x_dim, dtype=dtype)[cell // columns], cell % columns


@dataclass(frozen=True)
class LabelledUniform(Task):
    """A uniform label and a real number around it: y uniform on 0 .. m - 1, x ~ U[y, y + 2].

        I(X; Y) = log m - (m - 1) / m log 2

    since each x has one or two possible labels, two with probability (m - 1) / m.

    Reference: Gao et al. 2017, experiment II, with x and y exchanged.

    Args:
        classes: m, the number of labels.

    Example:
        >>> round(LabelledUniform(5).mutual_information, 4)
        1.0549
    """

    classes: int

    def __post_init__(self) -> None:
        expect_count("classes", self.classes)
        self.set_derived(x_dim=1, y_dim=0)

    @property
    def mutual_information(self) -> float:
        m = self.classes
        return math.log(m) - (m - 1) / m * math.log(2)

    def conditional(self, x: Float[Tensor, "*batch x_dim"]) -> Categorical:
        labels = torch.arange(self.classes, device=x.device)
        return Categorical(logits=_possible(x, labels).to(x.dtype).log())

    def log_ratio(
        self, x: Float[Tensor, "*#batch x_dim"], y: Int[Tensor, "*#batch"]
    ) -> Float[Tensor, "*batch"]:
        labels = torch.arange(self.classes, device=x.device)
        choices = _possible(x, labels).to(x.dtype).sum(-1)
        log_ratio = math.log(self.classes) - choices.log()
        return torch.where(_possible(x, y[..., None])[..., 0], log_ratio, -math.inf)

    def draw(
        self, n: int, generator: torch.Generator | None, dtype: torch.dtype
    ) -> tuple[Tensor, Tensor]:
        y = torch.randint(self.classes, (n,), generator=generator)
        return y[:, None] + 2 * torch.rand(n, 1, generator=generator, dtype=dtype), y


def _possible(x: Tensor, y: Tensor) -> Tensor:
    """Whether x may come from label y; both ends count, since rounding may put x there."""
    return (y <= x) & (x <= y + 2)


def _log(p: np.ndarray) -> np.ndarray:
    """Logarithm with log 0 = -inf and no warning."""
    with np.errstate(divide="ignore"):
        return np.log(p)
