"""A perceptron of x and y side by side, whose first layer is computed once for each sample."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch._C._functorch import is_batchedtensor

from mibounds.critics.base import Critic
from mibounds.networks import MLP, Hidden, hidden_widths
from mibounds.samples.checks import check_size

if TYPE_CHECKING:
    from jaxtyping import Float


class ConcatCritic(Critic):
    """A perceptron on x and y side by side; the default.

    Its first layer is linear in (x, y): a part of x plus a part of y, each computed once per sample
    rather than once per pair.

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
        """`score` of all pairs, in fewer passes; compiled, without the tensor of hidden units."""
        last = self._only_layer
        if last is None or is_batchedtensor(a) or is_batchedtensor(b):
            return super().score_all(a, b)
        if self.compiled:
            return _fused_concat(a.is_cuda)(a, b, last.weight[0], last.bias)
        return score_hidden(a, b, last.weight[0], last.bias)

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


def score_hidden(
    a: Float[Tensor, "n h"],
    b: Float[Tensor, "m h"],
    weight: Float[Tensor, " h"],
    bias: Float[Tensor, " 1"],
) -> Float[Tensor, "n m"]:
    """Scores [i, j] of hidden units relu(a_i + b_j) by a last layer, in few passes.

    Example:
        >>> a, b = torch.ones(2, 3), torch.zeros(4, 3)
        >>> score_hidden(a, b, torch.ones(3), torch.zeros(1)).shape
        torch.Size([2, 4])
    """
    return _ConcatScores.apply(a, b, weight, bias)[0]  # pyright: ignore[reportOptionalSubscript]


class _ConcatScores(torch.autograd.Function):
    """The same as `_concat_scores`, with the gradient written out.

    With g_ij the gradient of the scores and m_ijh = 1 where a hidden unit is on, A = Σ_j g_ij m_ijh
    and B = Σ_i g_ij m_ijh, the gradient of a is A w and that of b is B w. A hidden unit is
    m (a + b), so the gradient of w is Σ_i a_i A_i + Σ_j b_j B_j, in no further pass over pairs.
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
    """`_concat_scores` without the tensor of all hidden units: by Triton or by the compiler."""
    if cuda and triton_builds():
        from mibounds.critics._triton_kernels import concat_scores

        return concat_scores
    return torch.compile(_concat_scores, dynamic=True)


@cache
def triton_builds() -> bool:
    """Whether Triton is installed and builds a kernel for the GPU, which takes a C compiler.

    Where it is installed and fails, a warning says why, and torch's own operations take over.

    Example:
        >>> isinstance(triton_builds(), bool)
        True
    """
    if find_spec("triton") is None or not torch.cuda.is_available():
        return False
    try:
        from mibounds.critics._triton_kernels import concat_scores

        concat_scores(*(torch.ones(1, 1, device="cuda") for _ in range(2)),
                      *(torch.ones(1, device="cuda") for _ in range(2)))  # fmt: skip
    except Exception as error:
        warnings.warn(
            "Triton cannot build kernels here, so torch's own operations are used, which are "
            f"slower: {error}; install a C compiler and the headers of Python, or ignore this.",
            stacklevel=2,
        )
        return False
    return True
