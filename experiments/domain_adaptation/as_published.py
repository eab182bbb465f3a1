"""The estimators of the CLUB authors' code of domain adaptation, errors included.

The loss of q lacks the log-variance, so that the variance goes to its limit; MINE and InfoNCE are
the Jensen-Shannon objective. What else differs is in `experiments.estimation.as_published`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from experiments.estimation.as_published import AsPublishedCritic
from mibounds import bounds
from mibounds.conditionals import AsPublishedGaussian
from mibounds.estimators import CLUB, JS, CLUBSample, Estimator
from mibounds.networks import Hidden, hidden_widths
from mibounds.samples.pairs import Pairs


class _Squares:
    """The loss of q without its log-variance: a larger variance is always better."""

    def learning_loss(self, x: Tensor, y: Tensor, **kwargs: Any) -> Tensor:
        """Mean of the squares that the density has in its exponent."""
        p, y = self.distribution(x, y)  # pyright: ignore[reportAttributeAccessIssue]
        return ((y - p.mean).square() / p.variance).sum(1).mean()


class AdaptationCLUB(_Squares, CLUB):
    """CLUB over all pairs, including i = j.

    Args:
        x_dim: columns of x.
        y_dim: columns of y.
        hidden: hidden units of each network.

    Example:
        >>> import torch
        >>> x, y = torch.randn(8, 3), torch.randn(8, 2)
        >>> bool(AdaptationCLUB(3, 2, 4).learning_loss(x, y) > 0)
        True
    """

    def __init__(self, x_dim: int, y_dim: int, hidden: Hidden):
        super().__init__(conditional=AsPublishedGaussian(x_dim, y_dim, hidden), negatives="all")


class AdaptationCLUBSample(_Squares, CLUBSample):
    """Sampled CLUB, with the same loss of q.

    Args:
        x_dim: columns of x.
        y_dim: columns of y.
        hidden: hidden units of each network.

    Example:
        >>> AdaptationCLUBSample(3, 2, 4).draw
        'permutation'
    """

    def __init__(self, x_dim: int, y_dim: int, hidden: Hidden):
        q = AsPublishedGaussian(x_dim, y_dim, hidden)
        super().__init__(conditional=q, draw="permutation")


class AdaptationJS(JS):
    """The Jensen-Shannon objective, also as the value; that code calls it MINE and NCE.

    Args:
        x_dim: columns of x.
        y_dim: columns of y.
        hidden: hidden units of the critic.

    Example:
        >>> import torch
        >>> x, y = torch.randn(8, 3), torch.randn(8, 2)
        >>> js = AdaptationJS(3, 2, (4,))
        >>> bool(js(x, y) == -js.learning_loss(x, y))
        True
    """

    def __init__(self, x_dim: int, y_dim: int, hidden: Hidden):
        (units,) = hidden_widths(hidden)
        super().__init__(critic=AsPublishedCritic(x_dim, y_dim, units))

    def from_scores(self, scores: Pairs, x: Tensor, y: Tensor) -> Tensor:
        return bounds.js(scores, self.negatives)


PUBLISHED_ESTIMATORS: dict[str, Callable[[int, int, Hidden], Estimator]] = {
    "mine": AdaptationJS,
    "infonce": AdaptationJS,
    "club": AdaptationCLUB,
    "club_sample": AdaptationCLUBSample,
}
