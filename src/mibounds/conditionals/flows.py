"""A normalising flow as a conditional."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor
from torch import distributions as D
from torch.distributions import Distribution

from mibounds.conditionals.base import Conditional
from mibounds.networks import Hidden, hidden_widths
from mibounds.samples.checks import check_size

if TYPE_CHECKING:
    from jaxtyping import Shaped


class Flow(Conditional):
    """Normalising flow of neural splines, conditioned on x; needs the extra ``flows``.

    Reference: Durkan et al. 2019, *Neural Spline Flows*; the implementation is zuko's.

    Args:
        x_dim: columns of x.
        y_dim: columns of y.
        hidden: hidden units of each transform's network.
        transforms: how many transforms, one after the other.

    Example:
        >>> import torch
        >>> Flow(3, 2)(torch.zeros(5, 3)).batch_shape
        torch.Size([5])
    """

    def __init__(self, x_dim: int, y_dim: int, hidden: Hidden = 64, transforms: int = 3):
        check_size("transforms", transforms)
        super().__init__(x_dim, y_dim)
        validate = Distribution._validate_args
        try:
            import zuko
        except ImportError as error:
            raise ImportError(
                "Flow needs the package zuko, which is not installed; "
                "install it with: pip install 'mibounds[flows]'"
            ) from error
        finally:  # zuko turns off the validation of all Distributions when it is imported
            Distribution.set_default_validate_args(validate)
        self.net = zuko.flows.NSF(
            y_dim, x_dim, transforms=transforms, hidden_features=hidden_widths(hidden)
        )

    def forward(self, x: Shaped[Tensor, "n *x"]) -> Distribution:
        x = self.x_standard(self.check_x(x))
        base = self.net(x) if self.x_dim else self.net().expand((len(x),))
        units = D.AffineTransform(self.y_standard.mean, self.y_standard.scale, event_dim=1)
        return D.TransformedDistribution(base, units, validate_args=False)
