"""What every conditional q(y|x) shares: standardised inputs, and outputs in the units of y."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch import distributions as D
from torch.distributions import Distribution

from mibounds.networks import Standardiser, observe
from mibounds.samples.batches import Batch
from mibounds.samples.checks import check_real, check_size

if TYPE_CHECKING:
    from jaxtyping import Float, Shaped


LOG_VARIANCE_LIMIT = 15.0  # in units of y's own variance: standard deviations from e^-7.5 to e^7.5


class Conditional(nn.Module, ABC):
    """A learnable q(y|x): from x to a Distribution of y.

    Args:
        x_dim: columns of x; 0 for a model of the marginal of y.
        y_dim: columns of y, or number of classes.
    """

    net: nn.Module

    def __init__(self, x_dim: int, y_dim: int):
        super().__init__()
        check_size("x_dim", x_dim, at_least=0)
        check_size("y_dim", y_dim)
        self.x_dim, self.y_dim = x_dim, y_dim
        self.x_standard = Standardiser(x_dim)
        self.y_standard = Standardiser(y_dim)

    @abstractmethod
    def forward(self, x: Shaped[Tensor, "n *x"]) -> Distribution:
        """The Distribution of y at each x, with batch shape (n,)."""

    def check_y(self, y: Shaped[Tensor, "n *y"]) -> Shaped[Tensor, "n *event"]:
        """Bring y to the shape and dtype of an event of this conditional."""
        return check_real("y", y, self.y_dim, self.x_standard.mean)

    def observe(
        self, x: Shaped[Tensor, "n *x"], y: Shaped[Tensor, "n *y"], batch: Batch | None = None
    ) -> None:
        """Update the statistics that standardise x and y."""
        x, y = self.check_x(x), self.check_y(y)
        observe([(self.x_standard, x), (self.y_standard, y)], batch)

    def check_x(self, x: Shaped[Tensor, "n *x"]) -> Float[Tensor, "n x_dim"]:
        """Bring x to shape (n, x_dim) and the dtype of the parameters."""
        return check_real("x", x, self.x_dim, self.x_standard.mean)

    def outputs(self, x: Shaped[Tensor, "n *x"]) -> Float[Tensor, "n out"]:
        """The outputs of ``net`` at standardised x, which `forward` turns into parameters.

        Args:
            x: samples, as `forward` takes them.
        """
        return self.net(self.x_standard(self.check_x(x)))

    def loc(self, loc: Float[Tensor, "*s y_dim"]) -> Float[Tensor, "*s y_dim"]:
        """A location in the units of y.

        Args:
            loc: the location in standardised units.
        """
        y = self.y_standard
        return torch.addcmul(y.mean, loc, y.scale * y.varies)

    def loc_and_scale(
        self, loc: Float[Tensor, "*s y_dim"], log_variance: Float[Tensor, "*s y_dim"]
    ) -> tuple[Float[Tensor, "*s y_dim"], Float[Tensor, "*s y_dim"]]:
        """A location and a scale in the units of y.

        Args:
            loc: the location in standardised units.
            log_variance: twice the logarithm of the scale, in standardised units; any number, since
                a tanh bounds it softly to ±15.
        """
        mean, unit, varies = self.y_standard.mean, self.y_standard.scale, self.y_standard.varies
        # A constant column keeps variance 1: it tells nothing, and must not run to the limit.
        bounded = (log_variance / LOG_VARIANCE_LIMIT).tanh()
        half_log_variance = bounded * (0.5 * LOG_VARIANCE_LIMIT * varies.to(unit.dtype))
        return torch.addcmul(mean, loc, unit * varies), unit * half_log_variance.exp()


def diagonal(loc: Float[Tensor, "*s d"], scale: Float[Tensor, "*s d"]) -> D.Independent:
    """Independent normal columns. No validation: it looks at values, which stalls a GPU.

    Example:
        >>> diagonal(torch.zeros(5, 2), torch.ones(5, 2)).event_shape
        torch.Size([2])
    """
    return D.Independent(D.Normal(loc, scale, validate_args=False), 1, validate_args=False)
