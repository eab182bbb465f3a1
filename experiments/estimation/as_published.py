"""The estimators of the CLUB authors' code, errors included; only to reproduce their numbers.

They differ from the equations:

- q has two networks of half the hidden units, the log-variance goes through tanh, and nothing is
  standardised (`AsPublishedGaussian`); its log-likelihood is twice the real one, less a constant.
- CLUB is the 1/N² sum, which contains i = j; sampled CLUB uses a random permutation, with about
  one fixed point, instead of the paper's uniform draw.
- L1Out *is* CLUB: its mask has one dimension too many, so that the sum that should leave x_i out
  runs over copies of the same number.
- VUB, the divergence from N(0, I), is averaged over the dimensions too: too small by the factor d.
- MINE has one shuffled negative per sample and the plain gradient of its logarithm, which is
  biased; NWJ keeps the pairs (x_i, y_i) among its negatives, which caps it at log N.
- The critic of InfoNCE ends in a softplus, and its negatives are the x's for a fixed y.

The formulas are those of the public code; the classes are the library's, changed to repeat its
errors.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mibounds import bounds
from mibounds.conditionals import AsPublishedGaussian
from mibounds.critics import ConcatCritic
from mibounds.estimators import CLUB, NWJ, VUB, CLUBSample, Estimator, InfoNCE
from mibounds.samples.batches import Batch

if TYPE_CHECKING:
    from jaxtyping import Float, Shaped


class _Twice:
    """The loss of q is twice the negative log-likelihood."""

    def learning_loss(self, x: Tensor, y: Tensor, **kwargs: Any) -> Tensor:
        """Twice the negative log-likelihood."""
        return 2 * super().learning_loss(x, y, **kwargs)  # pyright: ignore[reportAttributeAccessIssue]


class AsPublishedCLUB(_Twice, CLUB):
    """CLUB over all pairs, including i = j; L1Out as published gives the same.

    Args:
        x_dim: columns of x.
        y_dim: columns of y.
        hidden: twice the hidden units of each network.

    Example:
        >>> AsPublishedCLUB(3, 2, 15).conditional.net.layers[0].out_features
        7
    """

    def __init__(self, x_dim: int, y_dim: int, hidden: int):
        q = AsPublishedGaussian(x_dim, y_dim, hidden // 2)
        super().__init__(conditional=q, negatives="all")


class AsPublishedCLUBSample(_Twice, CLUBSample):
    """Sampled CLUB, with a permutation.

    Args:
        x_dim: columns of x.
        y_dim: columns of y.
        hidden: twice the hidden units of each network.

    Example:
        >>> AsPublishedCLUBSample(3, 2, 15).draw
        'permutation'
    """

    def __init__(self, x_dim: int, y_dim: int, hidden: int):
        q = AsPublishedGaussian(x_dim, y_dim, hidden // 2)
        super().__init__(conditional=q, draw="permutation")


class AsPublishedVUB(_Twice, VUB):
    """The divergence from N(0, I), averaged over the dimensions instead of summed.

    Args:
        x_dim: columns of x.
        y_dim: columns of y.
        hidden: twice the hidden units of each network.

    Example:
        >>> bool(AsPublishedVUB(3, 2, 15)(torch.randn(8, 3), torch.randn(8, 2)) > 0)
        True
    """

    def __init__(self, x_dim: int, y_dim: int, hidden: int):
        q = AsPublishedGaussian(x_dim, y_dim, hidden // 2)
        super().__init__(conditional=q, form="kl")

    def forward(
        self, x: Shaped[Tensor, "n *x"], y: Shaped[Tensor, "n *y"], **kwargs: Any
    ) -> Float[Tensor, ""]:
        """The mean over samples and dimensions, in nats per dimension."""
        return super().forward(x, y, **kwargs) / y.shape[1]


class AsPublishedCritic(ConcatCritic):
    """A perceptron with one hidden layer on (x, y); nothing is standardised.

    Args:
        x_dim: columns of x.
        y_dim: columns of y.
        hidden: hidden units.
        softplus: whether the output goes through softplus.

    Example:
        >>> critic = AsPublishedCritic(3, 2, 15, softplus=True)
        >>> bool((critic(torch.randn(8, 3), torch.randn(8, 2)) > 0).all())
        True
    """

    def __init__(self, x_dim: int, y_dim: int, hidden: int, softplus: bool = False):
        super().__init__(x_dim, y_dim, hidden)
        self.softplus = softplus
        both = nn.Linear(x_dim + y_dim, hidden)  # initial values depend on the number of inputs
        with torch.no_grad():
            self.x_layer.weight.copy_(both.weight[:, :x_dim])
            self.y_layer.weight.copy_(both.weight[:, x_dim:])
            self.x_layer.bias.copy_(both.bias)

    def score(self, a: Float[Tensor, "*#s h"], b: Float[Tensor, "*#s h"]) -> Float[Tensor, "..."]:
        """The output layer."""
        scores = super().score(a, b)
        return F.softplus(scores) if self.softplus else scores

    def score_all(self, a: Float[Tensor, "n h"], b: Float[Tensor, "m h"]) -> Float[Tensor, "n m"]:
        """The output layer, of all pairs."""
        return self.score(a[:, None], b[None])

    def observe(
        self, x: Shaped[Tensor, "n *x"], y: Shaped[Tensor, "n *y"], batch: Batch | None = None
    ) -> None:
        """Nothing: the published critic does not standardise."""


class AsPublishedNWJ(NWJ):
    """NWJ with the pairs (x_i, y_i) among the negatives.

    Args:
        x_dim: columns of x.
        y_dim: columns of y.
        hidden: hidden units.

    Example:
        >>> AsPublishedNWJ(3, 2, 15).negatives
        'all'
    """

    def __init__(self, x_dim: int, y_dim: int, hidden: int):
        super().__init__(critic=AsPublishedCritic(x_dim, y_dim, hidden), negatives="all")


class AsPublishedInfoNCE(InfoNCE):
    """InfoNCE over the x's for a fixed y, with positive scores.

    Args:
        x_dim: columns of x.
        y_dim: columns of y.
        hidden: hidden units.

    Example:
        >>> nats = AsPublishedInfoNCE(3, 2, 15)(torch.randn(8, 3), torch.randn(8, 2))
    """

    critic: AsPublishedCritic

    def __init__(self, x_dim: int, y_dim: int, hidden: int):
        super().__init__(critic=AsPublishedCritic(x_dim, y_dim, hidden, softplus=True))

    def forward(
        self, x: Shaped[Tensor, "n *x"], y: Shaped[Tensor, "n *y"], **kwargs: Any
    ) -> Float[Tensor, ""]:
        """The bound on a batch of samples, in nats."""
        return bounds.infonce(self.critic.pairs(x, y).T)


class AsPublishedMINE(nn.Module):
    """Donsker-Varadhan with one shuffled negative per sample, drawn in every call.

    Args:
        x_dim: columns of x.
        y_dim: columns of y.
        hidden: hidden units.

    Example:
        >>> index = torch.randint(8, (8,))
        >>> nats = AsPublishedMINE(3, 2, 15)(torch.randn(8, 3), torch.randn(8, 2), index)
    """

    def __init__(self, x_dim: int, y_dim: int, hidden: int):
        super().__init__()
        self.critic = AsPublishedCritic(x_dim, y_dim, hidden)

    def forward(
        self,
        x: Shaped[Tensor, "n *x"],
        y: Shaped[Tensor, "n *y"],
        index: Shaped[Tensor, " n"],
    ) -> Float[Tensor, ""]:
        """The value on a batch of samples, in nats, with y[index] as negatives."""
        negatives = self.critic(x, y[index])
        return self.critic(x, y).mean() - (negatives.logsumexp(0) - math.log(len(x)))


AS_PUBLISHED: dict[str, Callable[[int, int, int], Estimator | AsPublishedMINE]] = {
    "vub": AsPublishedVUB,
    "nwj": AsPublishedNWJ,
    "mine": AsPublishedMINE,
    "infonce": AsPublishedInfoNCE,
    "l1out": AsPublishedCLUB,
    "club": AsPublishedCLUB,
    "club_sample": AsPublishedCLUBSample,
}
