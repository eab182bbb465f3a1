"""Adam on a vector as a Triton kernel: one sweep over memory.

torch's own fused one gives 65536 numbers to a block, so that a network of two million keeps a
quarter of an H200 busy. This file imports triton and is imported only where it is used.
"""

# pyright: reportArgumentType=false, reportCallIssue=false
# (a kernel takes plain numbers for its constants)

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from mibounds.estimators.stacked_training import EPS

SPAN = 1024  # parameters a block


def take_adam_step(
    vector: Tensor,
    gradient: Tensor,
    mean: Tensor,
    square: Tensor,
    rate: Tensor,
    spread: Tensor,
    betas: tuple[float, float],
) -> None:
    """As `stacks.take_adam_step`, in one sweep over memory."""
    n = len(vector)
    tensors = vector, gradient, mean, square, rate, spread
    _adam[(triton.cdiv(n, SPAN),)](*tensors, n, 1 - betas[0], betas[1], 1 - betas[1], EPS, SPAN)


@triton.jit
def _adam(vector, gradient, mean, square, rate, spread, n, w1, b2, w2, eps, SPAN: tl.constexpr):
    i = tl.program_id(0) * SPAN + tl.arange(0, SPAN)
    inside = i < n
    g = tl.load(gradient + i, mask=inside, other=0.0)
    m = tl.load(mean + i, mask=inside, other=0.0)
    s = tl.load(square + i, mask=inside, other=0.0)
    p = tl.load(vector + i, mask=inside, other=0.0)
    m += w1 * (g - m)
    s = b2 * s + w2 * g * g
    p -= tl.load(rate) * (m / (tl.sqrt(s) / tl.load(spread) + eps))
    tl.store(mean + i, m, mask=inside)
    tl.store(square + i, s, mask=inside)
    tl.store(vector + i, p, mask=inside)
