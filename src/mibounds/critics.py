"""Critics f(x, y): modules that score pairs.

``critic(x, y)`` scores given pairs, row by row; ``critic.pairs(x, y)`` scores every x against every
y, [i, j] = f(x_i, y_j). Any callable of the first kind can stand in for a critic, such as a known
log-ratio. All of these standardise x and y inside, from what they have observed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from mibounds.nn import MLP, Hidden, Standardizer, check_size, hidden_widths
from mibounds.samples import check_real

if TYPE_CHECKING:
    from jaxtyping import Float, Shaped

__all__ = ["BilinearCritic", "ConcatCritic", "SeparableCritic"]


class Critic(nn.Module, ABC):
    """A learnable score of pairs: features of x and of y apart, then one score of two features.

    Args:
        x_dim: columns of x.
        y_dim: columns of y.
    """

    def __init__(self, x_dim: int, y_dim: int):
        super().__init__()
        check_size("x_dim", x_dim)
        check_size("y_dim", y_dim)
        self.x_dim, self.y_dim = x_dim, y_dim
        self.x_standard = Standardizer(x_dim)
        self.y_standard = Standardizer(y_dim)

    @abstractmethod
    def features(
        self, x: Float[Tensor, "n x_dim"], y: Float[Tensor, "m y_dim"]
    ) -> tuple[Float[Tensor, "n h"], Float[Tensor, "m h"]]:
        """What the score needs of each x and of each y, computed once for each sample."""

    @abstractmethod
    def score(self, a: Float[Tensor, "*#s h"], b: Float[Tensor, "*#s h"]) -> Float[Tensor, "..."]:
        """The score of features a of x and b of y, broadcast over leading dimensions."""

    def forward(self, x: Shaped[Tensor, "n *x"], y: Shaped[Tensor, "n *y"]) -> Float[Tensor, " n"]:
        """Scores of the given pairs, f(x_i, y_i)."""
        return self.score(*self.features(*self._standard(x, y)))

    def pairs(self, x: Shaped[Tensor, "n *x"], y: Shaped[Tensor, "m *y"]) -> Float[Tensor, "n m"]:
        """Scores of all pairs, [i, j] = f(x_i, y_j)."""
        a, b = self.features(*self._standard(x, y))
        return self.score(a[:, None], b[None])

    def observe(self, x: Shaped[Tensor, "n *x"], y: Shaped[Tensor, "n *y"]) -> None:
        """Take a batch into the statistics by which x and y are standardised."""
        x, y = self._check(x, y)
        self.x_standard.observe(x)
        self.y_standard.observe(y)

    def _check(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        dtype = self.x_standard.mean.dtype
        return check_real("x", x, self.x_dim, dtype), check_real("y", y, self.y_dim, dtype)

    def _standard(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        x, y = self._check(x, y)
        return self.x_standard(x), self.y_standard(y)


class ConcatCritic(Critic):
    """A perceptron on x and y side by side; the default.

    Its first layer is linear in (x, y), hence a sum of a part of x and a part of y, each computed
    once a sample and not once a pair.

    Args:
        x_dim: columns of x.
        y_dim: columns of y.
        hidden: hidden units, or a sequence with those of each layer (at least one).

    Example:
        >>> critic = ConcatCritic(3, 2)
        >>> x, y = torch.randn(5, 3), torch.randn(5, 2)
        >>> torch.allclose(critic(x, y), critic.pairs(x, y).diagonal(), atol=1e-6)
        True
    """

    def __init__(self, x_dim: int, y_dim: int, hidden: Hidden = 64):
        super().__init__(x_dim, y_dim)
        first, *rest = hidden_widths(hidden) or (0,)
        check_size("hidden", first)
        self.x_layer = nn.Linear(x_dim, first)
        self.y_layer = nn.Linear(y_dim, first, bias=False)
        self.head = MLP(first, rest, 1)

    def features(
        self, x: Float[Tensor, "n x_dim"], y: Float[Tensor, "m y_dim"]
    ) -> tuple[Float[Tensor, "n h"], Float[Tensor, "m h"]]:
        """The two parts of the first layer."""
        return self.x_layer(x).to(x.dtype), self.y_layer(y).to(y.dtype)

    def score(self, a: Float[Tensor, "*#s h"], b: Float[Tensor, "*#s h"]) -> Float[Tensor, "..."]:
        """The remaining layers."""
        return self.head((a + b).relu()).squeeze(-1)


class SeparableCritic(Critic):
    """Inner product of an embedding of x and one of y, g(x) · h(y).

    All pairs are one matrix product, so this is the cheap one for large batches.

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
        return _inner(a, b)


class BilinearCritic(Critic):
    """Bilinear form xᵀ W y + b: no hidden units, the least to fit.

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
        return _inner(a, b) + self.offset


def score_pairs(
    critic: Callable[[Tensor, Tensor], Tensor],
    x: Shaped[Tensor, "n *x"],
    y: Shaped[Tensor, "m *y"],
) -> Float[Tensor, "n m"]:
    """All pairs with any critic: by its own ``pairs`` if it has one, else by repeating the samples.

    Args:
        critic: scores given pairs.
        x: samples.
        y: samples.

    Returns:
        [i, j] = f(x_i, y_j).

    Example:
        >>> score_pairs(lambda x, y: (x * y).sum(-1), torch.eye(2), torch.eye(2))
        tensor([[1., 0.], [0., 1.]])
    """
    if isinstance(critic, Critic):
        return critic.pairs(x, y)
    n, m = len(x), len(y)
    scores = critic(x.repeat_interleave(m, 0), y.repeat(n, *[1] * (y.ndim - 1)))
    if not isinstance(scores, Tensor) or scores.shape not in ((n * m,), (n * m, 1)):
        got = tuple(scores.shape) if isinstance(scores, Tensor) else type(scores).__name__
        raise ValueError(
            f"Expected the critic to give one score for each of {n * m} pairs, "
            f"shape ({n * m},), but got {got}."
        )
    return scores.reshape(n, m)


def _inner(a: Tensor, b: Tensor) -> Tensor:
    if a.ndim == 3:  # all pairs: a matrix product, without the tensor of all products
        return (a[:, 0] @ b[0].T).to(a.dtype)
    return (a * b).sum(-1)
