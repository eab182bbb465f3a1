"""Gaussian conditionals: diagonal, of unit variance, of full and of low-rank covariance."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch import distributions as D
from torch.distributions import Distribution

from mibounds.conditionals.base import Conditional, diagonal
from mibounds.networks import MLP, Hidden
from mibounds.samples.batches import Batch
from mibounds.samples.checks import check_size
from mibounds.samples.precision import full_precision

if TYPE_CHECKING:
    from jaxtyping import Shaped


class Gaussian(Conditional):
    """Diagonal Gaussian, N(μ(x), diag σ²(x)); the default.

    The log-variance is bounded softly to ±15 around that of y itself, which leaves room for 7.5
    nats per dimension. Reference: CLUB, supplement D.

    Args:
        x_dim: columns of x.
        y_dim: columns of y.
        hidden: hidden units.

    Example:
        >>> q = Gaussian(3, 2)(torch.zeros(5, 3))
        >>> q.batch_shape, q.event_shape
        (torch.Size([5]), torch.Size([2]))
    """

    def __init__(self, x_dim: int, y_dim: int, hidden: Hidden = 64):
        super().__init__(x_dim, y_dim)
        self.net = MLP(x_dim, hidden, 2 * y_dim)

    def forward(self, x: Shaped[Tensor, "n *x"]) -> Distribution:
        loc, log_variance = self.outputs(x).chunk(2, -1)
        return diagonal(*self.loc_and_scale(loc, log_variance))


class UnitGaussian(Conditional):
    """Gaussian with unit variance *in the units of y*, N(μ(x), I).

    Its CLUB is a squared distance, so it depends on the scale of y: certainly an upper bound if the
    noise of y given x has variance 1 or more. Reference: CLUB, supplement B.

    Args:
        x_dim: columns of x.
        y_dim: columns of y.
        hidden: hidden units.

    Example:
        >>> UnitGaussian(3, 2)(torch.zeros(5, 3)).variance.unique().item()
        1.0
    """

    def __init__(self, x_dim: int, y_dim: int, hidden: Hidden = 64):
        super().__init__(x_dim, y_dim)
        self.net = MLP(x_dim, hidden, y_dim)

    def forward(self, x: Shaped[Tensor, "n *x"]) -> Distribution:
        loc = self.loc(self.outputs(x))
        return diagonal(loc, torch.ones_like(loc))


class FullGaussian(Conditional):
    """Gaussian with a full covariance matrix that depends on x.

    Args:
        x_dim: columns of x.
        y_dim: columns of y.
        hidden: hidden units.

    Example:
        >>> FullGaussian(3, 2)(torch.zeros(5, 3)).covariance_matrix.shape
        torch.Size([5, 2, 2])
    """

    def __init__(self, x_dim: int, y_dim: int, hidden: Hidden = 64):
        super().__init__(x_dim, y_dim)
        self.net = MLP(x_dim, hidden, 2 * y_dim + y_dim * (y_dim - 1) // 2)

    def forward(self, x: Shaped[Tensor, "n *x"]) -> Distribution:
        d = self.y_dim
        loc, log_variance, lower = self.outputs(x).split([d, d, d * (d - 1) // 2], -1)
        row, column = torch.tril_indices(d, d, -1, device=x.device)
        tril = torch.diag_embed(torch.ones_like(loc))
        tril[:, row, column] = lower * self.y_standard.varies[row]
        # Rows are scaled as a whole, so that the part below the diagonal has no unit either.
        loc, scale = self.loc_and_scale(loc, log_variance)
        return D.MultivariateNormal(loc, scale_tril=scale.unsqueeze(-1) * tril, validate_args=False)


class LowRankGaussian(Conditional):
    """Gaussian with covariance W(x) W(x)ᵀ + diag σ²(x), W of few columns.

    Args:
        x_dim: columns of x.
        y_dim: columns of y.
        hidden: hidden units.
        rank: columns of W.

    Example:
        >>> LowRankGaussian(3, 4, rank=2)(torch.zeros(5, 3)).cov_factor.shape
        torch.Size([5, 4, 2])
    """

    def __init__(self, x_dim: int, y_dim: int, hidden: Hidden = 64, rank: int = 2):
        check_size("rank", rank)
        super().__init__(x_dim, y_dim)
        self.net = MLP(x_dim, hidden, (2 + rank) * y_dim)
        self.rank = rank

    def forward(self, x: Shaped[Tensor, "n *x"]) -> Distribution:
        d = self.y_dim
        loc, log_variance, factor = self.outputs(x).split([d, d, self.rank * d], -1)
        unit = self.y_standard.scale * self.y_standard.varies
        factor = unit.unsqueeze(-1) * factor.unflatten(-1, (d, self.rank))
        loc, scale = self.loc_and_scale(loc, log_variance)
        with full_precision(x):
            return D.LowRankMultivariateNormal(loc, factor, scale.square(), validate_args=False)


class AsPublishedGaussian(Conditional):
    """The Gaussian of the CLUB authors' code, with its limits; for reproduction only.

    Two separate networks of 7 hidden units for mean and log-variance, the latter through tanh: the
    variance cannot leave [e⁻¹, e]. Nothing is standardised, so the scale of the data matters.

    Args:
        x_dim: columns of x.
        y_dim: columns of y.
        hidden: hidden units of each network.

    Example:
        >>> q = AsPublishedGaussian(3, 2)(torch.randn(5, 3) * 1e6)
        >>> bool((q.variance > 0.36).all())
        True
    """

    def __init__(self, x_dim: int, y_dim: int, hidden: Hidden = 7):
        super().__init__(x_dim, y_dim)
        self.net = MLP(x_dim, hidden, y_dim)
        self.net_log_variance = MLP(x_dim, hidden, y_dim)

    def forward(self, x: Shaped[Tensor, "n *x"]) -> Distribution:
        x = self.check_x(x)
        scale = (0.5 * self.net_log_variance(x).tanh()).exp()
        return diagonal(self.net(x), scale)

    def observe(
        self, x: Shaped[Tensor, "n *x"], y: Shaped[Tensor, "n *y"], batch: Batch | None = None
    ) -> None:
        """Do nothing: the published model does not standardise."""
