"""A mixture of Gaussians as a conditional."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch import distributions as D
from torch.distributions import Distribution

from mibounds.conditionals.base import Conditional, diagonal
from mibounds.networks import MLP, Hidden
from mibounds.samples.checks import check_size

if TYPE_CHECKING:
    from jaxtyping import Shaped


class GaussianMixture(Conditional):
    """Mixture of diagonal Gaussians; weights, means and variances are functions of x.

    Args:
        x_dim: columns of x.
        y_dim: columns of y.
        hidden: hidden units.
        components: number of Gaussians.

    Example:
        >>> GaussianMixture(3, 2, components=4)(torch.zeros(5, 3)).batch_shape
        torch.Size([5])
    """

    def __init__(self, x_dim: int, y_dim: int, hidden: Hidden = 64, components: int = 8):
        check_size("components", components)
        super().__init__(x_dim, y_dim)
        self.net = MLP(x_dim, hidden, components * (1 + 2 * y_dim))
        self.components = components
        with torch.no_grad():  # spread the means over the data, or the components stay equal
            self.net.offset[components : components * (1 + y_dim)].normal_()

    def forward(self, x: Shaped[Tensor, "n *x"]) -> Distribution:
        k, d = self.components, self.y_dim
        logits, loc, log_variance = self.outputs(x).split([k, k * d, k * d], -1)
        loc, log_variance = loc.unflatten(-1, (k, d)), log_variance.unflatten(-1, (k, d))
        return D.MixtureSameFamily(
            D.Categorical(logits=logits, validate_args=False),
            diagonal(*self.loc_and_scale(loc, log_variance)),
            validate_args=False,
        )
