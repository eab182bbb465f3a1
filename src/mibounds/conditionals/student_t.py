"""Student's t as a conditional, for heavy tails."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor
from torch import distributions as D
from torch.distributions import Distribution

from mibounds.conditionals.base import Conditional
from mibounds.networks import MLP, Hidden

if TYPE_CHECKING:
    from jaxtyping import Shaped


class StudentT(Conditional):
    """Independent Student-t columns, for heavy tails and outliers; more than 1 degree of freedom.

    Args:
        x_dim: columns of x.
        y_dim: columns of y.
        hidden: hidden units.

    Example:
        >>> StudentT(3, 2)(torch.zeros(5, 3)).event_shape
        torch.Size([2])
    """

    def __init__(self, x_dim: int, y_dim: int, hidden: Hidden = 64):
        super().__init__(x_dim, y_dim)
        self.net = MLP(x_dim, hidden, 3 * y_dim)
        with torch.no_grad():  # start near the Gaussian
            self.net.offset[2 * y_dim :] += 10.0

    def forward(self, x: Shaped[Tensor, "n *x"]) -> Distribution:
        loc, log_variance, degrees = self.outputs(x).chunk(3, -1)
        loc, scale = self.loc_and_scale(loc, log_variance)
        t = D.StudentT(1 + F.softplus(degrees), loc, scale, validate_args=False)
        return D.Independent(t, 1, validate_args=False)
