"""Conditionals for labels, and for zeros and ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor
from torch import distributions as D
from torch.distributions import Distribution

from mibounds.conditionals.base import Conditional
from mibounds.networks import MLP, Hidden
from mibounds.samples.batches import Batch
from mibounds.samples.checks import check_real, check_size

if TYPE_CHECKING:
    from jaxtyping import Shaped


class Categorical(Conditional):
    """Probabilities of classes, for labels y = 0, 1, ..., of shape (n,).

    Args:
        x_dim: columns of x.
        classes: number of classes.
        hidden: hidden units.

    Example:
        >>> import torch
        >>> Categorical(3, 10)(torch.zeros(5, 3)).probs.shape
        torch.Size([5, 10])
    """

    def __init__(self, x_dim: int, classes: int, hidden: Hidden = 64):
        check_size("classes", classes, at_least=2)
        super().__init__(x_dim, classes)
        self.net = MLP(x_dim, hidden, classes)

    def forward(self, x: Shaped[Tensor, "n *x"]) -> Distribution:
        return D.Categorical(logits=self.outputs(x), validate_args=False)

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
        """Update the statistics of x; labels have no scale."""
        self.x_standard.observe(self.check_x(x), batch)


class Bernoulli(Conditional):
    """Independent yes-or-no columns, y in {0, 1} of any dtype and shape (n, y_dim).

    Args:
        x_dim: columns of x.
        y_dim: columns of y.
        hidden: hidden units.

    Example:
        >>> import torch
        >>> Bernoulli(3, 4)(torch.zeros(5, 3)).event_shape
        torch.Size([4])
    """

    def __init__(self, x_dim: int, y_dim: int, hidden: Hidden = 64):
        super().__init__(x_dim, y_dim)
        self.net = MLP(x_dim, hidden, y_dim)

    def forward(self, x: Shaped[Tensor, "n *x"]) -> Distribution:
        logits = self.outputs(x)
        return D.Independent(
            D.Bernoulli(logits=logits, validate_args=False), 1, validate_args=False
        )

    def check_y(self, y: Shaped[Tensor, "n *y"]) -> Shaped[Tensor, "n *event"]:
        """Zeros and ones as floating point, of shape (n, y_dim)."""
        like = self.x_standard.mean
        y = y if y.is_floating_point() else y.to(like.dtype)
        return check_real("y", y, self.y_dim, like)

    def observe(
        self, x: Shaped[Tensor, "n *x"], y: Shaped[Tensor, "n *y"], batch: Batch | None = None
    ) -> None:
        """Update the statistics of x; zeros and ones have no scale."""
        self.x_standard.observe(self.check_x(x), batch)
