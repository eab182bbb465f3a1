"""The concat critic's scores of all pairs as Triton kernels, for the GPU.

With one hidden layer a score is s[i, j] = Σ_h w_h relu(a_ih + b_jh) + c.  The N² H hidden units are
never written: the value takes a tile of pairs and walks over h; the gradients of a and w take a
tile of (i, h) and walk over j; the gradient of b swaps the two sides:

    ∂a_ih = w_h Σ_j g_ij [a_ih + b_jh > 0],   ∂w_h = Σ_ij g_ij relu(a_ih + b_jh).

Sums are taken in the same order in every run. This module imports triton, so it is imported only
where it is used.
"""

# pyright: reportArgumentType=false, reportCallIssue=false
# (a kernel takes plain numbers for its constants, and options of the launch besides)

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

# Found by trying on an H200 at N = 8192, H = 256.
TILE = 64  # pairs a side in the value
LEFT, ACROSS, WARPS = 32, 32, 8  # samples and hidden units in the gradient


def concat_scores(a: Tensor, b: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Scores [i, j] of features a_i (n, h) and b_j (m, h) by the last layer."""
    return _Scores.apply(a, b, weight) + bias  # pyright: ignore[reportOperatorIssue]


class _Scores(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, b, weight):
        ctx.save_for_backward(a, b, weight)
        (n, h), m = a.shape, len(b)
        out = a.new_empty(n, m)
        grid = (triton.cdiv(n, TILE), triton.cdiv(m, TILE))
        # Hidden units first, so that neighbours in memory are neighbours in a tile.
        _score[grid](a.T.contiguous(), b.T.contiguous(), weight, out, n, m, h, TILE)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        a, b, weight = ctx.saved_tensors
        g = gradients[0].contiguous()
        for_a, for_b, for_weight = ctx.needs_input_grad
        da = db = dw = None
        if for_a or for_weight:
            sums, dw = _pull(a, b, g.T.contiguous(), units=for_weight)
            da = sums * weight
        if for_b:
            db = _pull(b, a, g, units=False)[0] * weight
        return da, db, dw


def _pull(a: Tensor, b: Tensor, g: Tensor, *, units: bool) -> tuple[Tensor, Tensor | None]:
    """Σ_j g_ji [a_ih + b_jh > 0] for every i and h, and if asked Σ_ij g_ji relu(a_ih + b_jh)."""
    (n, h), m = a.shape, len(b)
    sums = torch.empty_like(a, memory_format=torch.contiguous_format)
    grid = (triton.cdiv(n, LEFT), triton.cdiv(h, ACROSS))
    parts = a.new_empty(grid[0], h) if units else a.new_empty(0)
    a, b, sizes = a.contiguous(), b.contiguous(), (n, m, h)
    _gather[grid](a, b, g, sums, parts, *sizes, units, LEFT, ACROSS, num_warps=WARPS)
    return sums, parts.sum(0) if units else None


@triton.jit
def _score(a, b, w, out, n, m, h, TILE: tl.constexpr):
    i = tl.program_id(0) * TILE + tl.arange(0, TILE)[:, None]
    j = tl.program_id(1) * TILE + tl.arange(0, TILE)[None, :]
    total = tl.zeros([TILE, TILE], dtype=out.dtype.element_ty)
    for k in range(h):
        left = tl.load(a + k * n + i, mask=i < n, other=0.0)
        right = tl.load(b + k * m + j, mask=j < m, other=0.0)
        total += tl.maximum(left + right, 0.0) * tl.load(w + k)
    tl.store(out + i.to(tl.int64) * m + j, total, mask=(i < n) & (j < m))


@triton.jit
def _gather(
    a, b, g, sums, parts, n, m, h, UNITS: tl.constexpr, LEFT: tl.constexpr, ACROSS: tl.constexpr
):
    i = tl.program_id(0) * LEFT + tl.arange(0, LEFT)[:, None]
    k = tl.program_id(1) * ACROSS + tl.arange(0, ACROSS)[None, :]
    inside = (i < n) & (k < h)
    left = tl.load(a + i * h + k, mask=inside, other=0.0)
    total = tl.zeros([LEFT, ACROSS], dtype=sums.dtype.element_ty)
    units = tl.zeros([LEFT, ACROSS], dtype=sums.dtype.element_ty)
    rows = g + i
    for j in range(m):
        weight = tl.load(rows, mask=i < n, other=0.0)
        unit = left + tl.load(b + j * h + k, mask=k < h, other=0.0)
        total += tl.where(unit > 0, weight, 0.0)
        if UNITS:
            units += weight * tl.maximum(unit, 0.0)
        rows += n
    tl.store(sums + i * h + k, total, mask=inside)
    if UNITS:
        first = tl.program_id(0) * h + tl.program_id(1) * ACROSS + tl.arange(0, ACROSS)
        here = tl.program_id(1) * ACROSS + tl.arange(0, ACROSS) < h
        tl.store(parts + first, tl.sum(units, 0), mask=here)
