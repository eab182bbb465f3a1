"""Critics that are inner products: of learnt features, or of x and y themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from mibounds.critics.base import Critic
from mibounds.networks import MLP, Hidden

if TYPE_CHECKING:
    from jaxtyping import Float


class SeparableCritic(Critic):
    """Inner product of an embedding of x and one of y, g(x) · h(y).

    All pairs are one matrix product: the cheapest critic for large batches.

    Args:
        x_dim: columns of x.
        y_dim: columns of y.
        hidden: hidden units of each embedding.
        embedding: dimension of the embedding.

    Example:
        >>> SeparableCritic(3, 2).pairs(torch.zeros(5, 3), torch.zeros(4, 2)).shape
        torch.Size([5, 4])
    """

    def __init__(self, x_dim: int, y_dim: int, hidden: Hidden = 64, embedding: int = 32):
        super().__init__(x_dim, y_dim)
        self.x_net = MLP(x_dim, hidden, embedding)
        self.y_net = MLP(y_dim, hidden, embedding)

    def features(
        self, x: Float[Tensor, "n x_dim"], y: Float[Tensor, "m y_dim"]
    ) -> tuple[Float[Tensor, "n h"], Float[Tensor, "m h"]]:
        """The two embeddings."""
        return self.x_net(x), self.y_net(y)

    def score(self, a: Float[Tensor, "*#s h"], b: Float[Tensor, "*#s h"]) -> Float[Tensor, "..."]:
        """The inner product."""
        return (a * b).sum(-1)

    def score_all(self, a: Float[Tensor, "n h"], b: Float[Tensor, "m h"]) -> Float[Tensor, "n m"]:
        """A product of two matrices."""
        return (a @ b.T).to(a.dtype)

    def width(self, a: Float[Tensor, "n h"]) -> int:
        """How many numbers `score_all` keeps per score."""
        return 1


class BilinearCritic(Critic):
    """Bilinear form xᵀ W y + b: no hidden units, and the least to fit.

    Args:
        x_dim: columns of x.
        y_dim: columns of y.

    Example:
        >>> BilinearCritic(3, 2).pairs(torch.zeros(5, 3), torch.zeros(4, 2)).shape
        torch.Size([5, 4])
    """

    def __init__(self, x_dim: int, y_dim: int):
        super().__init__(x_dim, y_dim)
        self.layer = nn.Linear(x_dim, y_dim, bias=False)
        self.offset = nn.Parameter(torch.zeros(()))

    def features(
        self, x: Float[Tensor, "n x_dim"], y: Float[Tensor, "m y_dim"]
    ) -> tuple[Float[Tensor, "n h"], Float[Tensor, "m h"]]:
        """W x, and y itself."""
        return self.layer(x).to(x.dtype), y

    def score(self, a: Float[Tensor, "*#s h"], b: Float[Tensor, "*#s h"]) -> Float[Tensor, "..."]:
        """The inner product, shifted."""
        return (a * b).sum(-1) + self.offset

    def score_all(self, a: Float[Tensor, "n h"], b: Float[Tensor, "m h"]) -> Float[Tensor, "n m"]:
        """A product of two matrices."""
        return (a @ b.T).to(a.dtype) + self.offset

    width = SeparableCritic.width
