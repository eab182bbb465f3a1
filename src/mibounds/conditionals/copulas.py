"""Densities in the scale of normal scores, where the shape of a single column no longer matters.

Mutual information does not change when an increasing function stretches a column, but a Gaussian
model of it does. Here each column first becomes a standard normal by its own distribution function,
learnt from the batches; a Gaussian then models how the columns depend on each other. The result is
a proper density of y, for any estimator. Where q(y|x) and r(y) both have it, as in the difference
of entropies, the contribution of the stretching cancels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch._C._functorch import is_batchedtensor
from torch.distributions import Distribution, constraints
from torch.types import _size

from mibounds.conditionals.base import LOG_VARIANCE_LIMIT, Conditional, diagonal
from mibounds.networks import MLP, Hidden
from mibounds.samples.batches import Batch

if TYPE_CHECKING:
    from jaxtyping import Float, Shaped

__all__ = ["Copula"]

KNOTS, REACH = 33, 3.0  # scores from -3 to 3; the last slope continues beyond
NARROWEST = 1e-6  # gap between knots, as part of their range: ties keep a finite density


class NormalScores(nn.Module):
    """Make each column a standard normal by an increasing, piecewise linear function.

    Its knots are the quantiles of the column, by stochastic approximation: a batch moves each knot
    by the part of it that lies below, against the part that should. As in
    `mibounds.networks.Standardiser`, all batches count the same at first, and after
    ``1 / momentum`` of them old ones fade; the knots are replaced, never altered in place.

    Args:
        dim: number of columns.
        momentum: weight of a new batch in the long run.

    Example:
        >>> scores = NormalScores(1)
        >>> for _ in range(100):
        ...     scores.observe(torch.randn(200, 1).exp())
        >>> values, slopes = scores(torch.tensor([[1.0], [2.0], [4.0]]))
        >>> (values.flatten() - torch.tensor([1.0, 2.0, 4.0]).log()).abs().max() < 0.3
        tensor(True)
    """

    knots: Tensor
    scores: Tensor
    batches: Tensor

    def __init__(self, dim: int, momentum: float = 0.01):
        super().__init__()
        self.momentum = momentum
        scores = torch.linspace(-REACH, REACH, KNOTS)[:, None].repeat(1, dim)
        self.register_buffer("knots", scores)
        self.register_buffer("scores", scores.clone(), persistent=False)
        self.register_buffer("batches", torch.zeros(dim))

    @torch.no_grad()
    def observe(self, x: Float[Tensor, "n dim"], batch: Batch | None = None) -> None:
        """Update the quantiles."""
        if not x.shape[1]:
            return
        batch = batch or Batch(len(x))
        mean = batch.mean(x)
        spread = batch.mean((x - mean).square()).sqrt()
        guess = mean + (spread + (spread == 0)) * self.scores
        knots = torch.where(self.batches == 0, guess, self.knots)
        below = batch.sum(count_below(x, knots)) / batch.size
        weight = (self.batches + 2).reciprocal().clamp_min(self.momentum)
        part = torch.lerp(torch.special.ndtr(self.scores), below, weight)
        now = torch.special.ndtri(part)  # the scores that the knots have by now
        moved, _ = interpolate(self.scores, now, knots)
        least = NARROWEST * (moved[-1] - moved[0])
        moved = torch.cat([moved[:1], moved.diff(dim=0).clamp_min(least)]).cumsum(0)
        finite = (moved.sum(0) + mean).isfinite()  # one bad batch must not spoil the module
        self.knots = torch.where(finite, moved, self.knots)
        self.batches = self.batches + finite

    def forward(self, x: Float[Tensor, "*n dim"]) -> tuple[Tensor, Tensor]:
        """The scores of x, and the slope at each."""
        return interpolate(x, self.knots, self.scores)


def count_below(x: Float[Tensor, "n dim"], knots: Float[Tensor, "k dim"]) -> Tensor:
    """How many lie below each knot; those at it count half."""
    ordered = x.T.sort(-1).values
    left, right = (_search(ordered, knots.T, right) for right in (False, True))
    return (left + right).T.to(x.dtype) / 2


def _search(ordered: Tensor, values: Tensor, right: bool = False) -> Tensor:
    """torch.searchsorted, which needs contiguous memory; under vmap it needs both sides mapped."""
    if is_batchedtensor(ordered) != is_batchedtensor(values):
        ordered = ordered + torch.zeros_like(values[..., :1])
        values = values + torch.zeros_like(ordered[..., :1])
    return torch.searchsorted(ordered.contiguous(), values.contiguous(), right=right)


def interpolate(
    at: Float[Tensor, "*n dim"], x: Float[Tensor, "k dim"], y: Float[Tensor, "k dim"]
) -> tuple[Float[Tensor, "*n dim"], Float[Tensor, "*n dim"]]:
    """The increasing function through the points (x, y) of each column, linear between them.

    Args:
        at: where to interpolate.
        x: increasing down each column.
        y: increasing down each column.

    Returns:
        The values, and the slope there.

    Example:
        >>> x, y = torch.tensor([[0.0], [1.0], [2.0]]), torch.tensor([[0.0], [1.0], [3.0]])
        >>> interpolate(torch.tensor([[-1.0], [1.5]]), x, y)[0].flatten()
        tensor([-1., 2.])
    """
    flat = at.flatten(0, -2)
    left = _search(x[1:-1].T, flat.detach().T).T
    slope = y.diff(dim=0) / x.diff(dim=0)
    x, y, slope = (each.gather(0, left) for each in (x, y, slope))
    value = torch.addcmul(y, flat - x, slope)
    return value.view(at.shape), slope.view(at.shape)


class Copula(Conditional):
    """Gaussian in the scale of normal scores, for columns of any shape.

    A linear regression of the scores of y on those of x, a perceptron that bends its mean and
    scales its noise, and a noise with the same correlations everywhere.

    Args:
        x_dim: columns of x.
        y_dim: columns of y.
        hidden: hidden units.

    Example:
        >>> q = Copula(3, 2)(torch.zeros(5, 3))
        >>> q.batch_shape, q.event_shape
        (torch.Size([5]), torch.Size([2]))
    """

    def __init__(self, x_dim: int, y_dim: int, hidden: Hidden = 64):
        super().__init__(x_dim, y_dim)
        self.scores = NormalScores(x_dim + y_dim)
        self.net = MLP(x_dim, hidden, 2 * y_dim)
        self.linear = MLP(x_dim, (), y_dim)
        self.lower = nn.Parameter(torch.zeros(y_dim, y_dim))  # counts below its diagonal

    def observe(
        self, x: Shaped[Tensor, "n *x"], y: Shaped[Tensor, "n *y"], batch: Batch | None = None
    ) -> None:
        """Update the quantiles of x and y."""
        self.scores.observe(torch.cat([self.check_x(x), self.check_y(y)], 1), batch)

    def forward(self, x: Shaped[Tensor, "n *x"]) -> Distribution:
        knots = self.scores.knots.split([self.x_dim, self.y_dim], 1)
        known = self.scores.scores.split([self.x_dim, self.y_dim], 1)
        scores, _ = interpolate(self.check_x(x), knots[0], known[0])
        bend, log_variance = self.net(scores).chunk(2, -1)
        half = (log_variance / LOG_VARIANCE_LIMIT).tanh() * (0.5 * LOG_VARIANCE_LIMIT)
        base = diagonal(self.linear(scores) + bend, half.exp())
        return _Stretched(base, self.lower.tril(-1), knots[1], known[1])


class _Stretched(Distribution):
    """The y whose scores u have u + L u from a base, L strictly lower triangular.

    Each column is then regressed on those before it, and the density solves no system.
    """

    has_rsample = True

    def __init__(self, base: Distribution, lower: Tensor, knots: Tensor, scores: Tensor):
        super().__init__(base.batch_shape, base.event_shape, validate_args=False)
        self.base, self.lower = base, lower
        self.knots, self.scores = knots, scores

    @property
    def support(self) -> constraints.Constraint:
        return constraints.real_vector

    def log_prob(self, value: Tensor) -> Tensor:
        scores, slope = interpolate(value, self.knots, self.scores)
        return self.base.log_prob(scores + scores @ self.lower.T) + slope.log().sum(-1)

    def rsample(self, sample_shape: _size = ()) -> Tensor:
        matrix = self.lower + torch.eye(len(self.lower)).to(self.lower)
        sample = self.base.rsample(torch.Size(sample_shape)).unsqueeze(-1)
        scores = torch.linalg.solve_triangular(matrix, sample, upper=False, unitriangular=True)
        return interpolate(scores.squeeze(-1), self.scores, self.knots)[0]
