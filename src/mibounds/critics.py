"""Critics f(x, y): modules that score pairs.

``critic(x, y)`` scores given pairs, row by row; ``critic.pairs(x, y)`` scores every x against every
y, [i, j] = f(x_i, y_j). Any callable of the first kind can stand in for a critic, such as a known
log-ratio. All of these standardise x and y inside, from what they have observed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch._C._functorch import is_batchedtensor

from mibounds.compilers import triton_builds
from mibounds.distributed import Batch
from mibounds.nn import MLP, Hidden, Standardizer, check_size, hidden_widths, observe
from mibounds.pairs import Pairs
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
        """Scores of all pairs as one matrix, [i, j] = f(x_i, y_j)."""
        a, b = self.features(*self._standard(x, y))
        return self.score_all(a, b)

    def score_all(self, a: Float[Tensor, "n h"], b: Float[Tensor, "m h"]) -> Float[Tensor, "n m"]:
        """The scores of all features a of x with all features b of y."""
        return self.score(a[:, None], b[None])

    def width(self, a: Float[Tensor, "n h"]) -> int:
        """Numbers that `score_all` needs for one score."""
        return a.shape[1]

    def compile(self, *args: object, **kwargs: object) -> None:
        """Fuse the scoring of all pairs into compiled code, where that pays; values stay the same.

        The critics whose pairs are a matrix product have nothing to gain.
        """

    def observe(
        self, x: Shaped[Tensor, "n *x"], y: Shaped[Tensor, "n *y"], batch: Batch | None = None
    ) -> None:
        """Take a batch into the statistics by which x and y are standardised."""
        x, y = self._check(x, y)
        observe([(self.x_standard, x), (self.y_standard, y)], batch)

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
        self.compiled = False

    def features(
        self, x: Float[Tensor, "n x_dim"], y: Float[Tensor, "m y_dim"]
    ) -> tuple[Float[Tensor, "n h"], Float[Tensor, "m h"]]:
        """The two parts of the first layer."""
        return self.x_layer(x).to(x.dtype), self.y_layer(y).to(y.dtype)

    def score(self, a: Float[Tensor, "*#s h"], b: Float[Tensor, "*#s h"]) -> Float[Tensor, "..."]:
        """The remaining layers."""
        return self.head((a + b).relu()).squeeze(-1)

    def score_all(self, a: Float[Tensor, "n h"], b: Float[Tensor, "m h"]) -> Float[Tensor, "n m"]:
        """As `score`, in fewer passes; compiled, the tensor of all hidden units never exists."""
        last = self._only_layer
        if last is None or is_batchedtensor(a) or is_batchedtensor(b):
            return super().score_all(a, b)
        if self.compiled:
            return _fused_concat(a.is_cuda)(a, b, last.weight[0], last.bias)
        return _ConcatScores.apply(a, b, last.weight[0], last.bias)[0]

    def width(self, a: Float[Tensor, "n h"]) -> int:
        """Numbers that `score_all` needs for one score."""
        return 1 if self.compiled and self._only_layer is not None else a.shape[1]

    def compile(self, *args: object, **kwargs: object) -> None:
        """Fuse the scoring of all pairs into compiled code (with one hidden layer)."""
        self.compiled = True

    @property
    def _only_layer(self) -> nn.Linear | None:
        layers = self.head.layers
        if layers is None or len(layers) > 1:
            return None
        last = layers[0]
        assert isinstance(last, nn.Linear)
        return last


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
        return (a * b).sum(-1)

    def score_all(self, a: Float[Tensor, "n h"], b: Float[Tensor, "m h"]) -> Float[Tensor, "n m"]:
        """A product of two matrices."""
        return (a @ b.T).to(a.dtype)

    def width(self, a: Float[Tensor, "n h"]) -> int:
        """Numbers that `score_all` needs for one score."""
        return 1


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
        return (a * b).sum(-1) + self.offset

    def score_all(self, a: Float[Tensor, "n h"], b: Float[Tensor, "m h"]) -> Float[Tensor, "n m"]:
        """A product of two matrices."""
        return (a @ b.T).to(a.dtype) + self.offset

    width = SeparableCritic.width


def score_pairs(
    critic: Callable[[Tensor, Tensor], Tensor],
    x: Shaped[Tensor, "n *x"],
    y: Shaped[Tensor, "n *y"],
    batch: Batch | None = None,
) -> Pairs:
    """All pairs with any critic: by its features if it has them, else by repeating the samples.

    Args:
        critic: scores given pairs.
        x: samples of this process.
        y: samples of this process.
        batch: where the samples are, if they are spread over processes.

    Returns:
        [i, j] = f(x_i, y_j), for the x's of this process and all y's.

    Example:
        >>> pairs = score_pairs(lambda x, y: (x * y).sum(-1), torch.eye(2), torch.eye(2))
        >>> pairs.diagonal
        tensor([1., 1.])
    """
    batch = batch or Batch(len(x))
    if isinstance(critic, Critic):
        a, b = critic.features(*critic._standard(x, y))
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
                "return a tensor with one number a row."
            )
        return values.flatten()

    def block(part: Tensor) -> Tensor:
        n, m = len(x), len(part)
        every_x = x.repeat_interleave(m, 0)
        return scores(every_x, part.repeat(n, *[1] * (part.ndim - 1))).view(n, m)

    width = x[0].numel() + y[0].numel()
    return Pairs(batch.gather(y), block, scores(x, y), width, batch)


class _ConcatScores(torch.autograd.Function):
    """As `_concat_scores`, with the gradient written out.

    With g_ij the gradient of the scores and m_ijh = 1 where a hidden unit is on, A = Σ_j g_ij m_ijh
    and B = Σ_i g_ij m_ijh, the gradient of a is A w and that of b is B w. A hidden unit is
    m (a + b), so that of w is Σ_i a_i A_i + Σ_j b_j B_j, without another look at all pairs.
    """

    @staticmethod
    def forward(a: Tensor, b: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
        hidden = (a[:, None] + b[None]).relu_()
        return (hidden @ weight + bias).to(a.dtype), hidden.sign_()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, Tensor]) -> None:
        ctx.mark_non_differentiable(output[1])
        ctx.set_materialize_grads(False)  # not a gradient of zeros for it, either
        ctx.save_for_backward(*inputs[:3], output[1])

    @staticmethod
    def backward(ctx: Any, g: Tensor | None, _: None) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        if g is None:
            return None, None, None, None
        a, b, weight, on = ctx.saved_tensors
        of_a = (g[:, None] @ on)[:, 0]
        of_b = (g.T.contiguous()[:, None] @ on.transpose(0, 1))[:, 0]
        of_weight = (a * of_a).sum(0) + (b * of_b).sum(0)
        return of_a * weight, of_b * weight, of_weight, g.sum().reshape(1)


def _concat_scores(
    a: Float[Tensor, "n h"],
    b: Float[Tensor, "m h"],
    weight: Float[Tensor, " h"],
    bias: Float[Tensor, " 1"],
) -> Float[Tensor, "n m"]:
    """The last layer as a sum and not as a matrix product, which a compiler can fuse."""
    return ((a[:, None] + b[None]).relu() * weight).sum(-1) + bias


@cache
def _fused_concat(cuda: bool) -> Callable[..., Tensor]:
    """As `_concat_scores`, without the tensor of all hidden units: by Triton or by the compiler."""
    if cuda and triton_builds():
        from mibounds.gpu_kernels import concat_scores

        return concat_scores
    return torch.compile(_concat_scores, dynamic=True)
