"""Known tasks after maps of x and of y.

Mutual information is invariant under injective maps of each variable (Kraskov et al. 2004,
appendix), so every map turns a known task into a harder one: heavier or lighter tails, skewed
scales, curved supports. With y' = f(y) and x' = g(x),

    p(y' | x') = p(y | x) / |det df/dy|,    log_ratio(x', y') = log_ratio(x, y).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.distributions import Distribution, TransformedDistribution
from torch.distributions.transforms import Transform

from mibounds.tasks.base import Task, expect

if TYPE_CHECKING:
    from jaxtyping import Float, Shaped


@dataclass(frozen=True)
class Transformed(Task):
    """A known task after injective maps: the same information in a harder shape.

    The formulas are those of the module.

    Reference: Kraskov et al. 2004, appendix; Cheng et al. 2020 (CLUB), section 4.1, for the cubic.

    Args:
        task: the known one.
        x_maps: Transforms of x, applied from left to right; () leaves x as it is.
        y_maps: the same for y, which must not be a label.

    Example:
        >>> from mibounds.tasks import CorrelatedGaussian, Mixing, SignedPower
        >>> gaussian = CorrelatedGaussian.from_mutual_information(20, 2.0)
        >>> task = Transformed(gaussian, y_maps=(Mixing(20), SignedPower(3.0)))
        >>> round(task.mutual_information, 4)
        2.0
    """

    task: Task
    x_maps: tuple[Transform, ...] = ()
    y_maps: tuple[Transform, ...] = ()

    def __post_init__(self) -> None:
        for name, maps in (("x_maps", self.x_maps), ("y_maps", self.y_maps)):
            expect(
                isinstance(maps, tuple) and all(isinstance(f, Transform) for f in maps),
                f"{name} to be a tuple of Transforms",
                repr(maps),
                "write (SignedPower(3.0),) for a single map",
            )
            expect(
                all(f.bijective for f in maps),
                f"{name} to be one-to-one, which leaves mutual information as it is",
                repr(maps),
                "leave out the map that is not",
            )
        expect(
            self.task.classes is None or not self.y_maps,
            "no y_maps where y is a label",
            repr(self.y_maps),
            "map only x, or relabel the task itself",
        )
        x_shape, y_shape = torch.Size((self.task.x_dim,)), torch.Size((self.task.y_dim,))
        for f in self.x_maps:
            x_shape = f.forward_shape(x_shape)
        for f in self.y_maps:
            y_shape = f.forward_shape(y_shape)
        self.set_derived(x_dim=x_shape[0], y_dim=y_shape[0], classes=self.task.classes)

    @property
    def mutual_information(self) -> float:
        return self.task.mutual_information

    @property
    def mutual_information_error(self) -> float:
        return self.task.mutual_information_error

    def conditional(self, x: Float[Tensor, "*batch x_dim"]) -> Distribution:
        base = self.task.conditional(_undo(self.x_maps, x))
        return TransformedDistribution(base, list(self.y_maps)) if self.y_maps else base

    def log_ratio(
        self, x: Float[Tensor, "... x_dim"], y: Shaped[Tensor, "..."]
    ) -> Float[Tensor, "..."]:
        return self.task.log_ratio(_undo(self.x_maps, x), _undo(self.y_maps, y))

    def draw(
        self, n: int, generator: torch.Generator | None, dtype: torch.dtype
    ) -> tuple[Tensor, Tensor]:
        x, y = self.task.draw(n, generator, dtype)
        return _apply(self.x_maps, x), _apply(self.y_maps, y)


def _apply(maps: Iterable[Any], value: Tensor) -> Tensor:
    for f in maps:
        value = f(value)
    return value


def _undo(maps: tuple[Transform, ...], value: Tensor) -> Tensor:
    return _apply((f.inv for f in reversed(maps)), value)
