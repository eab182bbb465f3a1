"""What every estimator is: two verbs, and facts that it declares on its class."""

from __future__ import annotations

import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from torch import Tensor, nn

from mibounds.samples.batches import Batch
from mibounds.samples.checks import Group, check_finite, holds_samples, seems_finite, zero_of
from mibounds.samples.layouts import Layout, lay_out

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Shaped

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
        weighted: whether it takes weights of the samples.

    Both verbs take sequences, (B, T, x_dim) with (B, T, y_dim), or one x (B, x_dim) with a sequence
    y (B, T, y_dim), which is the sample then: its negatives are those of other sequences. Where
    both are sequences, ``negatives="sequences"`` (of `CLUBSample` ``draw=``) says the same, and
    otherwise all other parts are negatives. ``mask=`` is True for the samples that count, and
    ``weights=`` says how much each does. While training, a batch with less than two samples tells
    nothing: both verbs are 0, with a gradient of 0.
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
    weighted: bool = False
    warned: bool = False  # that a batch was too small

    def __call__(
        self,
        x: Tensor,
        y: Tensor,
        *args: Any,
        mask: Bool[Tensor, "b *t"] | None = None,
        weights: Float[Tensor, "b *w"] | None = None,
        **kwargs: Any,
    ) -> Any:
        """Refuse samples that hold NaN or infinity, on a CPU, lay out sequences, then `forward`.

        Neither `learning_loss` nor `MIPenalty` refuses them: training must survive a bad batch.
        """
        if mask is None:  # padding may hold anything
            self._check_finite(x, y)
        rows = self._lay_out(x, y, mask, weights, kwargs.pop("group", None))
        if mask is not None:
            self._check_finite(rows.x, rows.y)
        if rows.samples < 2:
            if self._passes_over(rows):
                return self.pass_over(rows)
            self._refuse_one_sequence(rows)
        if rows.y is not y:  # so a third variable
            args = tuple(self._lay_out(x, each, mask, None, None).y for each in args)
            if kwargs.get("given") is not None:
                kwargs["given"] = self._lay_out(x, kwargs["given"], mask, None, None).y
        if rows.group is not None:
            kwargs["group"] = rows.group
        return super().__call__(rows.x, rows.y, *args, **kwargs)

    @property
    def apart(self) -> bool:
        """Whether the negatives of sequences are those of other sequences."""
        return "sequences" in (getattr(self, "negatives", None), getattr(self, "draw", None))

    def _check_finite(self, x: Tensor, y: Tensor) -> None:
        for name, value in (("x", x), ("y", y)):
            if not seems_finite(value):
                check_finite(name, value)

    def _lay_out(
        self,
        x: Tensor,
        y: Tensor,
        mask: Tensor | None,
        weights: Tensor | None,
        group: Group,
        learning: bool = False,
    ) -> Layout:
        """One sample per row."""
        plain = mask is None and weights is None and getattr(x, "ndim", 0) != 3
        if (plain and getattr(y, "ndim", 0) < 3) or isinstance(group, Batch):
            return Layout(x, y, group, len(y) if getattr(y, "ndim", 0) else 2)
        if weights is not None and not (self.weighted or (learning and self.has_conditional)):
            raise ValueError(
                f"Expected no weights for {type(self).__name__}, whose value is not a weighted "
                "mean, but got some; draw rows in proportion to them, as torch.multinomial does."
            )
        part = getattr(self, "conditional", None) or getattr(self, "critic", self)
        flat, x_dim = hasattr(part, "x_standard") or part is self, getattr(part, "x_dim", None)
        return lay_out(x, y, mask, weights, group, flat=flat, apart=self.apart, x_dim=x_dim)

    def _refuse_one_sequence(self, rows: Layout) -> None:
        if len(rows.y) > 1 and not isinstance(rows.group, Batch):
            raise ValueError(
                "Expected at least 2 sequences, to draw negatives from others, but got "
                f"{rows.samples}; pass larger batches, or take negatives from all parts."
            )

    def _passes_over(self, rows: Layout) -> bool:
        """Whether a batch that is too small is passed over: only while training, and here."""
        return self.training and rows.group is None and isinstance(rows.y, Tensor)

    def pass_over(self, rows: Layout) -> Float[Tensor, ""]:
        """Zero with a gradient of zero, for a batch without a pair to compare; it warns once.

        Args:
            rows: the batch.
        """
        if not self.warned:
            self.warned = True
            warnings.warn(
                f"{type(self).__name__} got a batch of {rows.samples} samples, which tells "
                "nothing: its value is 0, with a gradient of 0; pass drop_last=True to the "
                "DataLoader, or ignore this where groups can be empty.",
                RuntimeWarning,
                stacklevel=3,
            )
        return zero_of(rows.x, rows.y, *self.parameters())

    @abstractmethod
    def forward(
        self,
        x: Shaped[Tensor, "n *x"],
        y: Shaped[Tensor, "n *y"],
        *,
        group: Group = None,
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

    def learning_loss(
        self,
        x: Shaped[Tensor, "b *x"],
        y: Shaped[Tensor, "b *y"],
        *,
        mask: Bool[Tensor, "b *t"] | None = None,
        weights: Float[Tensor, "b *w"] | None = None,
        group: Group = None,
    ) -> Float[Tensor, ""]:
        """What to minimise to fit the conditional or the critic.

        Args:
            x: samples, or sequences of them.
            y: samples or labels.
            mask: True for the samples that count.
            weights: how much each sample counts.
            group: processes whose batches are joined.
        """
        rows = self._lay_out(x, y, mask, weights, group, learning=True)
        single = not getattr(rows.y, "ndim", 0)
        few = (rows.samples if single or not self.has_conditional else len(rows.y)) < 2
        if few and self._passes_over(rows):
            return self.pass_over(rows)
        if few and not self.has_conditional:
            self._refuse_one_sequence(rows)
        return self.loss(rows.x, rows.y, group=rows.group)

    def loss(
        self, x: Shaped[Tensor, "n *x"], y: Shaped[Tensor, "n *y"], *, group: Group = None
    ) -> Float[Tensor, ""]:
        """`learning_loss` of one sample per row, which an estimator defines.

        Args:
            x: samples.
            y: samples or labels.
            group: processes whose batches are joined, or the batch.
        """
        raise NotImplementedError(
            f"Expected {type(self).__name__} to have a loss to be fitted with but got none; "
            "define loss(x, y, *, group=None)."
        )


def check_estimator(name: str, value: object) -> Estimator:
    """Check that a value is an estimator."""
    if isinstance(value, Estimator):
        return value
    raise ValueError(
        f"Expected {name} to be an estimator such as mb.CLUB(x_dim, y_dim) "
        f"but got {value if isinstance(value, type) else type(value).__name__}; "
        "pass mb.CLUB(x.shape[1], y.shape[1])."
    )


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
