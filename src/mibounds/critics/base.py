"""What every critic shares, and all pairs scored by any of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING

from torch import Tensor, nn

from mibounds.networks import Standardiser, observe
from mibounds.samples.batches import Batch
from mibounds.samples.checks import check_real, check_size
from mibounds.samples.pairs import Pairs

if TYPE_CHECKING:
    from jaxtyping import Float, Shaped


class Critic(nn.Module, ABC):
    """A learnable score of pairs: features of x, features of y, and one score for two of them.

    Args:
        x_dim: columns of x.
        y_dim: columns of y.
    """

    def __init__(self, x_dim: int, y_dim: int):
        super().__init__()
        check_size("x_dim", x_dim)
        check_size("y_dim", y_dim)
        self.x_dim, self.y_dim = x_dim, y_dim
        self.x_standard = Standardiser(x_dim)
        self.y_standard = Standardiser(y_dim)

    @abstractmethod
    def features(
        self, x: Float[Tensor, "n x_dim"], y: Float[Tensor, "m y_dim"]
    ) -> tuple[Float[Tensor, "n h"], Float[Tensor, "m h"]]:
        """What the score needs of each x and of each y, computed once per sample."""

    @abstractmethod
    def score(self, a: Float[Tensor, "*#s h"], b: Float[Tensor, "*#s h"]) -> Float[Tensor, "..."]:
        """The score of features a of x and b of y, broadcast over leading dimensions."""

    def forward(self, x: Shaped[Tensor, "n *x"], y: Shaped[Tensor, "n *y"]) -> Float[Tensor, " n"]:
        """Scores of the given pairs, f(x_i, y_i)."""
        return self.score(*self.features(*self.standardise(x, y)))

    def pairs(self, x: Shaped[Tensor, "n *x"], y: Shaped[Tensor, "m *y"]) -> Float[Tensor, "n m"]:
        """Scores of all pairs as one matrix, [i, j] = f(x_i, y_j)."""
        a, b = self.features(*self.standardise(x, y))
        return self.score_all(a, b)

    def score_all(self, a: Float[Tensor, "n h"], b: Float[Tensor, "m h"]) -> Float[Tensor, "n m"]:
        """The scores of all features a of x with all features b of y."""
        return self.score(a[:, None], b[None])

    def width(self, a: Float[Tensor, "n h"]) -> int:
        """How many numbers `score_all` keeps per score."""
        return a.shape[1]

    def compile(self, *args: object, **kwargs: object) -> None:
        """Compile the scoring of all pairs where that pays; values stay the same.

        A critic whose pairs are a matrix product gains nothing.
        """

    def observe(
        self, x: Shaped[Tensor, "n *x"], y: Shaped[Tensor, "n *y"], batch: Batch | None = None
    ) -> None:
        """Update the statistics that standardise x and y."""
        x, y = self.check(x, y)
        observe([(self.x_standard, x), (self.y_standard, y)], batch)

    def check(
        self, x: Shaped[Tensor, "n *x"], y: Shaped[Tensor, "m *y"]
    ) -> tuple[Float[Tensor, "n x_dim"], Float[Tensor, "m y_dim"]]:
        """Bring both sides to their shapes, and to the dtype of the parameters."""
        like = self.x_standard.mean
        return check_real("x", x, self.x_dim, like), check_real("y", y, self.y_dim, like)

    def standardise(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Check both sides and standardise them, ready for `features`."""
        x, y = self.check(x, y)
        return self.x_standard(x), self.y_standard(y)


def score_pairs(
    critic: Callable[[Tensor, Tensor], Tensor],
    x: Shaped[Tensor, "n *x"],
    y: Shaped[Tensor, "n *y"],
    batch: Batch | None = None,
) -> Pairs:
    """All pairs with any critic: by the features of a `Critic`, else by repeating the samples.

    Args:
        critic: scores given pairs.
        x: samples of this process.
        y: samples of this process.
        batch: where the samples are, if they are spread over processes.

    Returns:
        [i, j] = f(x_i, y_j), for the x's of this process and all y's.

    Example:
        >>> import torch
        >>> pairs = score_pairs(lambda x, y: (x * y).sum(-1), torch.eye(2), torch.eye(2))
        >>> pairs.diagonal
        tensor([1., 1.])
    """
    batch = batch or Batch(len(x))
    if isinstance(critic, Critic):
        a, b = critic.features(*critic.standardise(x, y))
        own = critic.score(a, b)
        return Pairs(
            batch.gather(b),
            lambda b, a: critic.score_all(a, b),
            own,
            critic.width(a),
            batch,
            rows=[a],
            parameters=list(critic.parameters()),
        )

    def scores(x: Tensor, y: Tensor) -> Tensor:
        values = critic(x, y)
        if not isinstance(values, Tensor) or values.shape not in ((len(x),), (len(x), 1)):
            got = tuple(values.shape) if isinstance(values, Tensor) else type(values).__name__
            raise ValueError(
                f"Expected the critic to give one score for each of {len(x)} pairs, "
                f"shape ({len(x)},), but got {got}; "
                "return a tensor with one number per row."
            )
        return values.flatten()

    def block(part: Tensor) -> Tensor:
        n, m = len(x), len(part)
        every_x = x.repeat_interleave(m, 0)
        return scores(every_x, part.repeat(n, *[1] * (part.ndim - 1))).view(n, m)

    width = x[0].numel() + y[0].numel()
    return Pairs(batch.gather(y), block, scores(x, y), width, batch)
