"""What every estimator is: two verbs, and facts that it declares on its class."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import torch.distributed as dist
from torch import Tensor, nn

from mibounds.samples.checks import check_finite, holds_samples, seems_finite

if TYPE_CHECKING:
    from jaxtyping import Float, Shaped

Side = Literal["upper", "lower", "neither"]


class Estimator(nn.Module, ABC):
    """A bound on mutual information, with the conditional or the critic that it is computed from.

    The attributes are facts, declared once on the class. Tables, diagnostics and the laws that
    tests check read them there. ``side``, ``condition`` and ``linear`` may differ for one instance:
    Barber-Agakov is a lower bound with a known entropy, and neither with an estimated one.

    Attributes:
        name: in the registry `ESTIMATORS`; the pure function of the bound has the same name.
        side: on which side of the truth it lies.
        condition: when that holds, or why it lies on neither.
        cost: how the work grows with the N samples of a batch, D columns of y, H hidden units.
        equation: where it stands in the CLUB paper; "" if it does not.
        reference: who it is due to, with equation or section.
        has_conditional: whether it is computed from q(y|x) rather than from a critic.
        linear: whether it is the mean of `terms`, which do not depend on the batch, or linear in
            log q over all pairs, so that a data set of any size has one exact value.
        exploding: whether it has a mean of exponentials that a few pairs can carry.
        capped: whether `ceiling` holds for it: no value above log N if x_i and y_i are among their
            own negatives.
        for_any_y: options that it needs for a y in any unit, or for labels.
    """

    name: ClassVar[str]
    side: Side
    condition: str
    cost: ClassVar[str]
    equation: ClassVar[str] = ""
    reference: ClassVar[str]
    has_conditional: ClassVar[bool]
    linear: bool = False
    exploding: ClassVar[bool] = False
    capped: ClassVar[bool] = False
    for_any_y: ClassVar[Mapping[str, Any]] = {}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Refuse samples that hold NaN or infinity, on a CPU, then `forward`.

        Neither `learning_loss` nor `MIPenalty` refuses them: training must survive a bad batch.
        """
        for name, value in (*zip("xy", args, strict=False), *kwargs.items()):
            if name in ("x", "y") and not seems_finite(value):
                check_finite(name, value)
        return super().__call__(*args, **kwargs)

    @abstractmethod
    def forward(
        self,
        x: Shaped[Tensor, "n *x"],
        y: Shaped[Tensor, "n *y"],
        *,
        group: dist.ProcessGroup | None = None,
    ) -> Float[Tensor, ""]:
        """The bound on a batch of samples, in nats. Changes nothing."""

    def terms(self, x: Shaped[Tensor, "n *x"], y: Shaped[Tensor, "n *y"]) -> Float[Tensor, " n"]:
        """What a linear estimator is the mean of: one term per sample, which no other changes.

        Whoever defines it need not define `forward` in a `ConditionalEstimator`.
        """
        raise NotImplementedError(
            f"Expected {type(self).__name__} to be a mean of terms, one per sample, but got none; "
            "define terms(x, y) if it is linear, and forward if it is not."
        )

    def ceiling(self, n: int) -> float:
        """What no value on n samples exceeds, in nats."""
        return math.inf

    @abstractmethod
    def learning_loss(
        self,
        x: Shaped[Tensor, "n *x"],
        y: Shaped[Tensor, "n *y"],
        *,
        group: dist.ProcessGroup | None = None,
    ) -> Float[Tensor, ""]:
        """What to minimise to fit the conditional or the critic."""


def dims_or_part(
    owner: str, x_dim: int | None, y_dim: int | None, part: str, value: object
) -> tuple[int, int]:
    """Check that an estimator was given either dimensions or the part to be built from them.

    Args:
        owner: name of the estimator.
        x_dim: columns of x, or None.
        y_dim: columns of y, or None.
        part: name of the part.
        value: the part, or None.

    Returns:
        The dimensions; of no meaning where the part was given.
    """
    if value is None:
        for each in (x_dim, y_dim):
            if holds_samples(each):
                raise ValueError(
                    f"Expected x_dim and y_dim, numbers of columns, but got {type(each).__name__}; "
                    "make the estimator first and give it the samples then, as in "
                    f"{owner}(x.shape[1], y.shape[1])(x, y)."
                )
        if callable(x_dim):
            raise ValueError(
                f"Expected x_dim, a number of columns, but got {type(x_dim).__name__}; "
                f"pass it by name: {owner}({part}=...)."
            )
        if x_dim is None or y_dim is None:
            raise ValueError(
                f"Expected {owner}(x_dim, y_dim) or {owner}({part}=...) "
                f"but got x_dim={x_dim} and y_dim={y_dim}; pass x.shape[1] and y.shape[1]."
            )
        return x_dim, y_dim
    if not callable(value):
        raise ValueError(
            f"Expected {part} to be a module or a callable but got {type(value).__name__}; "
            f"leave {part} out and pass x_dim and y_dim for the default."
        )
    if x_dim is not None or y_dim is not None:
        raise ValueError(
            f"Expected either dimensions or {part}= for {owner} but got both; "
            f"leave the dimensions out, since the {part} has its own."
        )
    return 0, 0
