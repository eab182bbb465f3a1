"""Batch normalisation with a leaky ReLU as Triton kernels.

Two sweeps over memory forwards and two backwards, over rows of channels as they lie there, and none
for the leaky ReLU. Sums are taken in the same order in every run. This file imports triton and is
imported only where it is used.
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

PARTS = 264  # of the rows of a batch, two for each of the processors of an H200
TILE_OF_ROWS = 8192  # numbers that are summed at a time
COLUMNS = 8  # channels whose sums are finished at a time
SWEEP = 4096  # numbers that are normalised at a time


def normalise(x: Tensor, weight: Tensor, bias: Tensor, eps: float, slope: float) -> Tensor:
    """Normalise channels by the statistics of a batch, then a leaky ReLU.

    Args:
        x: (n, c, h, w), with channels last in memory.
        weight: of each channel, float32.
        bias: likewise.
        eps: added to a variance.
        slope: of the leaky ReLU below zero.
    """
    return _Normalise.apply(x, weight, bias, eps, slope)  # pyright: ignore[reportReturnType]


class _Normalise(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, eps, slope):
        x = x.contiguous(memory_format=torch.channels_last)
        c = x.shape[1]
        m = x.numel() // c
        weight, bias = weight.contiguous(), bias.contiguous()
        mean, deviation = x.new_empty(2, c, dtype=torch.float32)
        sums, sizes = _parts(x, m, c)
        _moments[(sums.shape[1],)](x, sums, m, c, *sizes, num_warps=8)
        finish = (triton.cdiv(c, COLUMNS),)
        rows = triton.next_power_of_2(sums.shape[1])
        _finish_moments[finish](sums, mean, deviation, m, c, sums.shape[1], eps, rows, COLUMNS)
        out = torch.empty_like(x)
        parameters = mean, deviation, weight, bias
        _normalise[_sweep(x)](x, out, *parameters, x.numel(), c, slope, SWEEP, num_warps=8)
        ctx.save_for_backward(x, *parameters)
        ctx.slope = slope
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        x, *parameters = ctx.saved_tensors
        g = gradients[0].contiguous(memory_format=torch.channels_last)
        c = x.shape[1]
        m = x.numel() // c
        sums, sizes = _parts(x, m, c)
        _pull_moments[(sums.shape[1],)](
            x, g, sums, *parameters, m, c, ctx.slope, *sizes, num_warps=8
        )
        of_bias, of_weight = totals = x.new_empty(2, c, dtype=torch.float32)
        rows = triton.next_power_of_2(sums.shape[1])
        finish = (triton.cdiv(c, COLUMNS),)
        _finish_sums[finish](sums, totals, c, sums.shape[1], rows, COLUMNS)
        dx = torch.empty_like(x)
        _pull_back[_sweep(x)](
            x, g, dx, totals, *parameters, x.numel(), m, c, ctx.slope, SWEEP, num_warps=8
        )
        return dx, of_weight, of_bias, None, None


def _parts(x: Tensor, m: int, c: int) -> tuple[Tensor, tuple[int, int, int]]:
    """Where sums over parts of the rows go; and rows of a part, rows and columns of a tile."""
    across = triton.next_power_of_2(c)
    down = max(1, TILE_OF_ROWS // across)
    per = max(down, triton.cdiv(m, PARTS))
    return x.new_empty(2, triton.cdiv(m, per), c, dtype=torch.float32), (per, down, across)


def _sweep(x: Tensor) -> tuple[int]:
    return (triton.cdiv(x.numel(), SWEEP),)


@triton.jit
def _moments(x, sums, m, c, per, DOWN: tl.constexpr, ACROSS: tl.constexpr):
    part = tl.program_id(0)
    k = tl.arange(0, ACROSS)
    total = tl.zeros([ACROSS], dtype=tl.float32)
    squares = tl.zeros([ACROSS], dtype=tl.float32)
    for start in range(part * per, part * per + per, DOWN):
        i = start + tl.arange(0, DOWN)
        inside = (i < m)[:, None] & (i < part * per + per)[:, None] & (k < c)[None, :]
        values = tl.load(x + i[:, None] * c + k[None, :], mask=inside, other=0.0).to(tl.float32)
        total += tl.sum(values, 0)
        squares += tl.sum(values * values, 0)
    tl.store(sums + part * c + k, total, mask=k < c)
    tl.store(sums + (tl.num_programs(0) + part) * c + k, squares, mask=k < c)


@triton.jit
def _finish_moments(
    sums, mean, deviation, m, c, parts, eps, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):
    i, k = tl.arange(0, ROWS), tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    inside = (i < parts)[:, None] & (k < c)[None, :]
    places = i[:, None] * c + k[None, :]
    first = tl.sum(tl.load(sums + places, mask=inside, other=0.0), 0) / m
    second = tl.sum(tl.load(sums + parts * c + places, mask=inside, other=0.0), 0) / m
    variance = tl.maximum(second - first * first, 0.0)
    tl.store(mean + k, first, mask=k < c)
    tl.store(deviation + k, tl.sqrt(variance + eps), mask=k < c)


@triton.jit
def _finish_sums(sums, totals, c, parts, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    i, k = tl.arange(0, ROWS), tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    inside = (i < parts)[:, None] & (k < c)[None, :]
    places = i[:, None] * c + k[None, :]
    first = tl.sum(tl.load(sums + places, mask=inside, other=0.0), 0)
    second = tl.sum(tl.load(sums + parts * c + places, mask=inside, other=0.0), 0)
    tl.store(totals + k, first, mask=k < c)
    tl.store(totals + c + k, second, mask=k < c)


@triton.jit
def _normalise(x, out, mean, deviation, weight, bias, n, c, slope, SWEEP: tl.constexpr):
    i = tl.program_id(0) * SWEEP + tl.arange(0, SWEEP)
    k = i % c
    values = tl.load(x + i, mask=i < n, other=0.0).to(tl.float32)
    values = (values - tl.load(mean + k)) / tl.load(deviation + k)
    values = values * tl.load(weight + k) + tl.load(bias + k)
    values = tl.where(values > 0, values, slope * values)
    tl.store(out + i, values.to(out.dtype.element_ty), mask=i < n)


@triton.jit
def _pull_moments(
    x, g, sums, mean, deviation, weight, bias, m, c, slope, per,
    DOWN: tl.constexpr, ACROSS: tl.constexpr,
):  # fmt: skip
    part = tl.program_id(0)
    k = tl.arange(0, ACROSS)
    centre = tl.load(mean + k, mask=k < c, other=0.0)[None, :]
    scale = tl.load(deviation + k, mask=k < c, other=1.0)[None, :]
    w = tl.load(weight + k, mask=k < c, other=0.0)[None, :]
    b = tl.load(bias + k, mask=k < c, other=0.0)[None, :]
    of_bias = tl.zeros([ACROSS], dtype=tl.float32)
    of_weight = tl.zeros([ACROSS], dtype=tl.float32)
    for start in range(part * per, part * per + per, DOWN):
        i = start + tl.arange(0, DOWN)
        inside = (i < m)[:, None] & (i < part * per + per)[:, None] & (k < c)[None, :]
        places = i[:, None] * c + k[None, :]
        scores = (tl.load(x + places, mask=inside, other=0.0).to(tl.float32) - centre) / scale
        pulled = tl.load(g + places, mask=inside, other=0.0).to(tl.float32)
        pulled = tl.where(scores * w + b > 0, pulled, slope * pulled)
        of_bias += tl.sum(pulled, 0)
        of_weight += tl.sum(tl.where(inside, pulled * scores, 0.0), 0)
    tl.store(sums + part * c + k, of_bias, mask=k < c)
    tl.store(sums + (tl.num_programs(0) + part) * c + k, of_weight, mask=k < c)


@triton.jit
def _pull_back(
    x, g, dx, totals, mean, deviation, weight, bias, n, m, c, slope, SWEEP: tl.constexpr
):  # fmt: skip
    i = tl.program_id(0) * SWEEP + tl.arange(0, SWEEP)
    k = i % c
    scale, w = tl.load(deviation + k), tl.load(weight + k)
    scores = (tl.load(x + i, mask=i < n, other=0.0).to(tl.float32) - tl.load(mean + k)) / scale
    pulled = tl.load(g + i, mask=i < n, other=0.0).to(tl.float32)
    pulled = tl.where(scores * w + tl.load(bias + k) > 0, pulled, slope * pulled)
    pulled -= (tl.load(totals + k) + scores * tl.load(totals + c + k)) / m
    tl.store(dx + i, (pulled * w / scale).to(dx.dtype.element_ty), mask=i < n)
