"""What a task is: pairs (x, y) to sample, and everything known about their joint distribution.

The mutual information is the mean of the pointwise log-ratio over the joint distribution,

    I(X; Y) = E log p(x, y) / (p(x) p(y)) = E log p(y | x) / p(y),

so a task with known densities offers three truths to check an estimator against: the number itself,
the exact conditional p(y | x) and the exact critic log p(x, y) / (p(x) p(y)).
"""

from __future__ import annotations

import numbers
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from mibounds.samples.seeds import Seed, make_generator

if TYPE_CHECKING:
    from jaxtyping import Float, Shaped
    from torch.distributions import Distribution


@dataclass(frozen=True)
class Task(ABC):
    """A joint distribution of (x, y) whose mutual information is known.

    A task is a description, a frozen dataclass of numbers and tuples: it costs nothing to make,
    compare, hash and print. Tensors are made on request, in the dtype and on the device of the
    caller. A subclass gives `draw`, `mutual_information` and `log_ratio`, `conditional` where it is
    known, and sets x_dim, y_dim and classes with `set_derived`.

    Attributes:
        x_dim: columns of x.
        y_dim: real columns of y; 0 where y is a label, which has none.
        classes: number of labels where y is a label, else None.
    """

    x_dim: int = field(init=False, repr=False)
    y_dim: int = field(init=False, repr=False)
    classes: int | None = field(init=False, repr=False, default=None)

    def sample(
        self,
        n: int,
        seed: Seed = None,
        dtype: torch.dtype | None = None,
    ) -> tuple[Float[Tensor, "n x_dim"], Shaped[Tensor, "n ..."]]:
        """Draw n independent pairs.

        Args:
            n: number of pairs.
            seed: of the draw, see `mibounds.samples.seeds`; a generator also sets the device.
            dtype: of the real columns; torch's default dtype if None.

        Returns:
            x of shape (n, x_dim), and y of shape (n, y_dim) or, where `classes` is set, int64
            labels of shape (n,).
        """
        expect_count("n", n)
        generator = make_generator(seed)
        device = torch.get_default_device() if generator is None else generator.device
        with torch.no_grad(), torch.device(device):
            return self.draw(n, generator, dtype or torch.get_default_dtype())

    @abstractmethod
    def draw(
        self, n: int, generator: torch.Generator | None, dtype: torch.dtype
    ) -> tuple[Tensor, Tensor]:
        """Draw n pairs for `sample`, which has checked n and set the device of new tensors.

        Args:
            n: number of pairs.
            generator: source of randomness; torch's global one if None.
            dtype: of the real columns.

        Returns:
            x and y as `sample` returns them.
        """

    @property
    @abstractmethod
    def mutual_information(self) -> float:
        """I(X; Y) in nats."""

    @property
    def mutual_information_error(self) -> float:
        """Standard error or error bound of `mutual_information` in nats; 0 for a closed form."""
        return 0.0

    def conditional(self, x: Float[Tensor, "*batch x_dim"]) -> Distribution:
        """The exact p(y | x).

        Args:
            x: of shape (n, x_dim).

        Returns:
            A distribution of batch shape (n,) and event shape (y_dim,), or () where y is a label.
        """
        raise NotImplementedError(
            f"{type(self).__name__} does not know its p(y | x); use log_ratio, the exact critic."
        )

    @abstractmethod
    def log_ratio(
        self, x: Float[Tensor, "... x_dim"], y: Shaped[Tensor, "..."]
    ) -> Float[Tensor, "..."]:
        """The exact critic, log p(x, y) / (p(x) p(y)).

        Leading dimensions broadcast: `log_ratio(x[:, None], y[None])` is the (n, n) matrix of all
        pairs. Where a pair is impossible the value is -inf.

        Args:
            x: of shape (..., x_dim).
            y: of shape (..., y_dim), or (...) where y is a label.

        Returns:
            Nats, of the broadcast leading shape.
        """

    def set_derived(self, **values: Any) -> None:
        """Set fields that follow from others, in ``__post_init__``; a frozen dataclass forbids it.

        Args:
            values: by the name of the field.
        """
        for name, value in values.items():
            object.__setattr__(self, name, value)


def expect(condition: bool, expected: str, got: object, advice: str) -> None:
    """Raise the ValueError of every check of this room, unless the condition holds."""
    if not condition:
        raise ValueError(f"Expected {expected} but got {got}; {advice}.")


def expect_count(name: str, value: object) -> None:
    """Check that a value is an integer of at least 1."""
    expect(
        isinstance(value, numbers.Integral) and int(value) >= 1,
        f"{name} to be an integer of at least 1",
        repr(value),
        f"give {name} as a positive whole number",
    )


def freeze(name: str, values: Any, axes: int) -> tuple[Any, ...]:
    """Turn an array-like of finite numbers into nested tuples, which can be hashed."""
    try:
        array = np.array(values, dtype=np.float64)
    except (TypeError, ValueError):
        array = np.array(np.nan)
    expect(
        array.ndim == axes and array.size > 0 and bool(np.isfinite(array).all()),
        f"{name} to be finite numbers nested {axes} deep with rows of equal length",
        values,
        "give nested tuples or an array",
    )

    def tuples(value: Any) -> Any:
        return tuple(map(tuples, value)) if isinstance(value, list) else value

    return tuples(array.tolist())


def constant(values: Any, like: Tensor) -> Tensor:
    """A constant of the task, in the dtype and on the device of the caller's tensor."""
    return torch.as_tensor(np.asarray(values), dtype=like.dtype, device=like.device)


def dot(
    x: Float[Tensor, "*#batch dim"], y: Float[Tensor, "*#batch dim"]
) -> Float[Tensor, "*batch"]:
    """Inner products over the last axis; einsum makes no (n, n, dim) tensor of all pairs."""
    return torch.einsum("...i,...i->...", x, y)
