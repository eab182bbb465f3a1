"""Conditionals q(y|x): modules whose forward(x) returns a torch Distribution with batch shape (n,).

A *known* conditional needs none of these: any callable from x to such a Distribution will do. What
stands here is fitted by maximum likelihood. All of them standardise x and y inside, from what they
have observed, and give the Distribution in the units of y: the scale of the data does not matter.

With ``x_dim=0`` a conditional depends on nothing and is a model of the marginal of y.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch import distributions as D
from torch.distributions import Distribution

from mibounds.distributed import Batch
from mibounds.nn import (
    MLP,
    Hidden,
    Standardizer,
    check_size,
    full_precision,
    hidden_widths,
    observe,
)
from mibounds.samples import check_real

if TYPE_CHECKING:
    from jaxtyping import Float, Shaped

__all__ = [
    "AsPublishedGaussian",
    "Bernoulli",
    "Categorical",
    "Flow",
    "FullGaussian",
    "Gaussian",
    "GaussianMixture",
    "LowRankGaussian",
    "StudentT",
    "UnitGaussian",
]

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
        self.x_standard = Standardizer(x_dim)
        self.y_standard = Standardizer(y_dim)

    @abstractmethod
    def forward(self, x: Shaped[Tensor, "n *x"]) -> Distribution:
        """The Distribution of y at each x, with batch shape (n,)."""

    def check_y(self, y: Shaped[Tensor, "n *y"]) -> Shaped[Tensor, "n *event"]:
        """Bring y to the shape and dtype of an event of this conditional."""
        return check_real("y", y, self.y_dim, self.x_standard.mean.dtype)

    def observe(
        self, x: Shaped[Tensor, "n *x"], y: Shaped[Tensor, "n *y"], batch: Batch | None = None
    ) -> None:
        """Take a batch into the statistics by which x and y are standardised."""
        x, y = self._check_x(x), self.check_y(y)
        observe([(self.x_standard, x), (self.y_standard, y)], batch)

    def _check_x(self, x: Tensor) -> Tensor:
        return check_real("x", x, self.x_dim, self.x_standard.mean.dtype)

    def _outputs(self, x: Tensor) -> Tensor:
        return self.net(self.x_standard(self._check_x(x)))

    def _loc(self, raw: Tensor) -> Tensor:
        """A mean, from units in which y is standard."""
        y = self.y_standard
        return torch.addcmul(y.mean, raw, y.scale * y.varies)

    def _loc_and_scale(self, raw_loc: Tensor, raw: Tensor) -> tuple[Tensor, Tensor]:
        """A mean and a standard deviation, from such units and a log-variance without limits."""
        mean, unit, varies = self.y_standard.mean, self.y_standard.scale, self.y_standard.varies
        # A constant column keeps variance 1: it says nothing, and must not run to the limit.
        half_log_variance = (raw / LOG_VARIANCE_LIMIT).tanh() * (0.5 * LOG_VARIANCE_LIMIT * varies)
        return torch.addcmul(mean, raw_loc, unit * varies), unit * half_log_variance.exp()


class Gaussian(Conditional):
    """Diagonal Gaussian, N(μ(x), diag σ²(x)); the default.

    The log-variance is bounded softly to ±15 around that of y itself, which leaves room for 7.5
    nats a dimension. Reference: CLUB, supplement D.

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
        loc, log_variance = self._outputs(x).chunk(2, -1)
        return diagonal(*self._loc_and_scale(loc, log_variance))


class UnitGaussian(Conditional):
    """Gaussian with unit variance *in the units of y*, N(μ(x), I).

    The CLUB that comes of it is a squared distance, hence depends on the scale of y: an upper bound
    for sure if the noise of y given x has variance 1 or more. Reference: CLUB, supplement B.

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
        loc = self._loc(self._outputs(x))
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
        loc, log_variance, lower = self._outputs(x).split([d, d, d * (d - 1) // 2], -1)
        row, column = torch.tril_indices(d, d, -1, device=x.device)
        tril = torch.diag_embed(torch.ones_like(loc))
        tril[:, row, column] = lower * self.y_standard.varies[row]
        # Rows are scaled together, so that what lies below the diagonal is free of units too.
        loc, scale = self._loc_and_scale(loc, log_variance)
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
        loc, log_variance, factor = self._outputs(x).split([d, d, self.rank * d], -1)
        unit = self.y_standard.scale * self.y_standard.varies
        factor = unit.unsqueeze(-1) * factor.unflatten(-1, (d, self.rank))
        loc, scale = self._loc_and_scale(loc, log_variance)
        with full_precision(x):
            return D.LowRankMultivariateNormal(loc, factor, scale.square(), validate_args=False)


class GaussianMixture(Conditional):
    """Mixture of diagonal Gaussians, weights, means and variances all functions of x.

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
        with torch.no_grad():  # spread the means over the data, or all components stay the same
            self.net.offset[components : components * (1 + y_dim)].normal_()

    def forward(self, x: Shaped[Tensor, "n *x"]) -> Distribution:
        k, d = self.components, self.y_dim
        logits, loc, log_variance = self._outputs(x).split([k, k * d, k * d], -1)
        loc, log_variance = loc.unflatten(-1, (k, d)), log_variance.unflatten(-1, (k, d))
        return D.MixtureSameFamily(
            D.Categorical(logits=logits, validate_args=False),
            diagonal(*self._loc_and_scale(loc, log_variance)),
            validate_args=False,
        )


class StudentT(Conditional):
    """Independent Student-t for each column, for heavy tails and outliers; more than 1 degree.

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
        loc, log_variance, degrees = self._outputs(x).chunk(3, -1)
        loc, scale = self._loc_and_scale(loc, log_variance)
        t = D.StudentT(1 + F.softplus(degrees), loc, scale, validate_args=False)
        return D.Independent(t, 1, validate_args=False)


class Categorical(Conditional):
    """Probabilities of classes, for labels y = 0, 1, ..., of shape (n,).

    Args:
        x_dim: columns of x.
        classes: number of classes.
        hidden: hidden units.

    Example:
        >>> Categorical(3, 10)(torch.zeros(5, 3)).probs.shape
        torch.Size([5, 10])
    """

    def __init__(self, x_dim: int, classes: int, hidden: Hidden = 64):
        check_size("classes", classes, at_least=2)
        super().__init__(x_dim, classes)
        self.net = MLP(x_dim, hidden, classes)

    def forward(self, x: Shaped[Tensor, "n *x"]) -> Distribution:
        return D.Categorical(logits=self._outputs(x), validate_args=False)

    def check_y(self, y: Shaped[Tensor, "n *y"]) -> Shaped[Tensor, "n *event"]:
        """Labels as int64 of shape (n,)."""
        one_hot = y.ndim == 2 and y.shape[1] == self.y_dim
        if y.is_floating_point() and not one_hot:
            raise ValueError(
                f"Expected integer labels 0 ... {self.y_dim - 1} as y but got {y.dtype}; "
                "call y.long(), or use Gaussian for a continuous y."
            )
        if y.ndim == 2 and y.shape[1] == 1:
            y = y.squeeze(1)
        if y.ndim != 1:
            raise ValueError(
                f"Expected labels y of shape (n,) but got {tuple(y.shape)}; "
                "call y.argmax(1) if they are one-hot."
            )
        return y.long()

    def observe(
        self, x: Shaped[Tensor, "n *x"], y: Shaped[Tensor, "n *y"], batch: Batch | None = None
    ) -> None:
        """Take a batch of x into the statistics; labels have no scale."""
        self.x_standard.observe(self._check_x(x), batch)


class Bernoulli(Conditional):
    """Independent yes-or-no columns, y in {0, 1} of any dtype and shape (n, y_dim).

    Args:
        x_dim: columns of x.
        y_dim: columns of y.
        hidden: hidden units.

    Example:
        >>> Bernoulli(3, 4)(torch.zeros(5, 3)).event_shape
        torch.Size([4])
    """

    def __init__(self, x_dim: int, y_dim: int, hidden: Hidden = 64):
        super().__init__(x_dim, y_dim)
        self.net = MLP(x_dim, hidden, y_dim)

    def forward(self, x: Shaped[Tensor, "n *x"]) -> Distribution:
        logits = self._outputs(x)
        return D.Independent(
            D.Bernoulli(logits=logits, validate_args=False), 1, validate_args=False
        )

    def check_y(self, y: Shaped[Tensor, "n *y"]) -> Shaped[Tensor, "n *event"]:
        """Zeros and ones as floating point, of shape (n, y_dim)."""
        dtype = self.x_standard.mean.dtype
        return check_real("y", y if y.is_floating_point() else y.to(dtype), self.y_dim, dtype)

    def observe(
        self, x: Shaped[Tensor, "n *x"], y: Shaped[Tensor, "n *y"], batch: Batch | None = None
    ) -> None:
        """Take a batch of x into the statistics; zeros and ones have no scale."""
        self.x_standard.observe(self._check_x(x), batch)


class Flow(Conditional):
    """Normalising flow of neural splines, conditioned on x; needs the extra ``flows``.

    Reference: Durkan et al. 2019, *Neural Spline Flows*; the implementation is zuko's.

    Args:
        x_dim: columns of x.
        y_dim: columns of y.
        hidden: hidden units of each transform's network.
        transforms: how many transforms follow each other.

    Example:
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
        x = self.x_standard(self._check_x(x))
        base = self.net(x) if self.x_dim else self.net().expand((len(x),))
        units = D.AffineTransform(self.y_standard.mean, self.y_standard.scale, event_dim=1)
        return D.TransformedDistribution(base, units, validate_args=False)


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
        x = self._check_x(x)
        scale = (0.5 * self.net_log_variance(x).tanh()).exp()
        return diagonal(self.net(x), scale)

    def observe(
        self, x: Shaped[Tensor, "n *x"], y: Shaped[Tensor, "n *y"], batch: Batch | None = None
    ) -> None:
        """Nothing: the published model does not standardise."""


def diagonal(loc: Float[Tensor, "*s d"], scale: Float[Tensor, "*s d"]) -> D.Independent:
    """Independent normal columns. No validation: it looks at values, which stalls a GPU.

    Example:
        >>> diagonal(torch.zeros(5, 2), torch.ones(5, 2)).event_shape
        torch.Size([2])
    """
    return D.Independent(D.Normal(loc, scale, validate_args=False), 1, validate_args=False)
