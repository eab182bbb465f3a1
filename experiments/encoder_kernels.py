"""The first convolution of an encoder and what stands between the others, as Triton kernels.

Batch normalisation with a leaky ReLU takes two sweeps over memory forwards and two backwards, and
none for the leaky ReLU; pooling takes one and one; so does a convolution of three channels, for
which there is no good one elsewhere. Rows are the places of all images and columns their channels,
as they lie in memory; a program has a tile of them at a time. Sums are taken in the same order in
every run. This file imports triton and is imported only where it is used.
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

PROGRAMS = 528  # that sum at once, four on each of the processors of an H200
TILE = 4096  # numbers that a program has at a time
LEAST, MOST = 16, 128  # columns of a tile that divides the channels evenly, and of any tile
FINISHED = 8  # channels whose sums are finished at a time
PATCH = 27  # numbers of three by three places of three channels
PLACES = 128  # whose patches a program has at a time
WARPS = 4


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


def pool(x: Tensor) -> Tensor:
    """The largest of each square of two by two places; of equal ones the first has the gradient.

    Args:
        x: (n, c, h, w), with channels last in memory.
    """
    return _Pool.apply(x)  # pyright: ignore[reportReturnType]


def convolve(x: Tensor, weight: Tensor, dtype: torch.dtype) -> Tensor:
    """A convolution of three channels with three by three places; images have no gradient.

    Args:
        x: (n, 3, h, w), with channels last in memory.
        weight: (c, 3, 3, 3).
        dtype: in which is multiplied, and of the result.
    """
    return _Convolve.apply(x, weight, dtype)  # pyright: ignore[reportReturnType]


class _Normalise(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, eps, slope):
        x = x.contiguous(memory_format=torch.channels_last)
        c = x.shape[1]
        m = x.numel() // c
        weight, bias = weight.contiguous(), bias.contiguous()
        mean, deviation = x.new_empty(2, c, dtype=torch.float32)
        down, across, blocks = _tile(c)
        sums, per = _parts(x, m, c)
        _moments[(sums.shape[1], blocks)](x, sums, m, per, c, down, across, num_warps=WARPS)
        rows = triton.next_power_of_2(sums.shape[1])
        finish = (triton.cdiv(c, FINISHED),)
        _finish_moments[finish](sums, mean, deviation, m, c, sums.shape[1], eps, rows, FINISHED)
        out = torch.empty_like(x)
        parameters = mean, deviation, weight, bias
        _normalise[(triton.cdiv(m, down), blocks)](
            x, out, *parameters, m, slope, c, down, across, num_warps=WARPS
        )
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
        down, across, blocks = _tile(c)
        sums, per = _parts(x, m, c)
        _pull_moments[(sums.shape[1], blocks)](
            x, g, sums, *parameters, m, per, ctx.slope, c, down, across, num_warps=2 * WARPS
        )
        of_bias, of_weight = totals = x.new_empty(2, c, dtype=torch.float32)
        rows = triton.next_power_of_2(sums.shape[1])
        finish = (triton.cdiv(c, FINISHED),)
        _finish_sums[finish](sums, totals, c, sums.shape[1], rows, FINISHED)
        dx = torch.empty_like(x)
        _pull_back[(triton.cdiv(m, down), blocks)](
            x, g, dx, totals, *parameters, m, ctx.slope, c, down, across, num_warps=WARPS
        )
        return dx, of_weight, of_bias, None, None


class _Pool(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.contiguous(memory_format=torch.channels_last)
        n, c, h, w = x.shape
        like = {"dtype": x.dtype, "device": x.device, "memory_format": torch.channels_last}
        out = torch.empty(n, c, h // 2, w // 2, **like)
        grid, sizes = _squares(out)
        _pool[grid](x, out, out.numel() // c, h, w, *sizes, num_warps=WARPS)
        ctx.save_for_backward(x)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        (x,) = ctx.saved_tensors
        g = gradients[0].contiguous(memory_format=torch.channels_last)
        h, w = x.shape[2:]
        # Where a side is odd, its last places are in no square.
        dx = torch.zeros_like(x) if h % 2 or w % 2 else torch.empty_like(x)
        grid, sizes = _squares(g)
        _pull_pool[grid](x, g, dx, g.numel() // g.shape[1], h, w, *sizes, num_warps=WARPS)
        return dx


class _Convolve(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, dtype):
        x = x.contiguous(memory_format=torch.channels_last)
        (n, _, h, w), c = x.shape, len(weight)
        like = {"dtype": dtype, "device": x.device, "memory_format": torch.channels_last}
        out = torch.empty(n, c, h, w, **like)
        m = n * h * w
        patches = weight.permute(0, 2, 3, 1).reshape(c, PATCH)
        across = min(triton.next_power_of_2(c), MOST)
        grid = triton.cdiv(m, PLACES), triton.cdiv(c, across)
        _convolve[grid](x, patches, out, m, h, w, c, PLACES, across, num_warps=WARPS)
        ctx.save_for_backward(x)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        (x,) = ctx.saved_tensors
        g = gradients[0].contiguous(memory_format=torch.channels_last)
        (n, _, h, w), c = x.shape, g.shape[1]
        m = n * h * w
        across = min(triton.next_power_of_2(c), MOST)
        per = PLACES * triton.cdiv(m, PROGRAMS * PLACES)
        sums = x.new_empty(triton.cdiv(m, per), PATCH, c, dtype=torch.float32)
        grid = len(sums), triton.cdiv(c, across)
        _pull_patches[grid](
            x, g, sums, m, per, h, w, c, PLACES, across, num_warps=WARPS, num_stages=2
        )
        of_weight = sums.sum(0).T.contiguous()  # channels last, as the weight lies
        return None, of_weight.view(c, 3, 3, 3).permute(0, 3, 1, 2), None


def _tile(c: int) -> tuple[int, int, int]:
    """Rows and columns of a tile, and how many tiles lie side by side."""
    across = c & -c  # the largest power of two that divides it
    if across < LEAST:
        across = triton.next_power_of_2(c)
    across = min(across, MOST)
    return TILE // across, across, triton.cdiv(c, across)


def _parts(x: Tensor, m: int, c: int) -> tuple[Tensor, int]:
    """Where sums over parts of the rows go, and the rows of a part, which are whole tiles."""
    down, _, blocks = _tile(c)
    per = down * triton.cdiv(m, max(1, PROGRAMS // blocks) * down)
    return x.new_empty(2, triton.cdiv(m, per), c, dtype=torch.float32), per


def _squares(out: Tensor) -> tuple[tuple[int, int], tuple[int, int, int]]:
    """The programs that pool, and the channels and sizes of their tiles; four of these are read."""
    c = out.shape[1]
    down, across, blocks = _tile(c)
    down = max(1, down // 4)
    return (triton.cdiv(out.numel() // c, down), blocks), (c, down, across)


# --- tiles ----------------------------------------------------------------------------------------


@triton.jit
def _columns(ACROSS: tl.constexpr):
    """The channels of a program."""
    return tl.program_id(1) * ACROSS + tl.arange(0, ACROSS)


@triton.jit
def _inside(i, k, m, C: tl.constexpr, ACROSS: tl.constexpr):
    """Which rows and columns there are."""
    inside = (i < m)[:, None]
    if C % ACROSS != 0:
        inside = inside & (k < C)[None, :]
    return inside


@triton.jit
def _load(x, places, inside):
    return tl.load(x + places, mask=inside, other=0.0).to(tl.float32)


@triton.jit
def _parameters(mean, deviation, weight, bias, k, C: tl.constexpr):
    """Centre, scale, weight and bias of some channels."""
    centre = tl.load(mean + k, mask=k < C, other=0.0)[None, :]
    scale = 1.0 / tl.load(deviation + k, mask=k < C, other=1.0)[None, :]
    w = tl.load(weight + k, mask=k < C, other=0.0)[None, :]
    b = tl.load(bias + k, mask=k < C, other=0.0)[None, :]
    return centre, scale, w, b


# --- normalisation --------------------------------------------------------------------------------


@triton.jit
def _moments(x, sums, m, per, C: tl.constexpr, DOWN: tl.constexpr, ACROSS: tl.constexpr):
    part, k = tl.program_id(0), _columns(ACROSS)
    total = tl.zeros([DOWN, ACROSS], dtype=tl.float32)
    squares = tl.zeros([DOWN, ACROSS], dtype=tl.float32)
    for start in range(part * per, part * per + per, DOWN):
        i = start + tl.arange(0, DOWN)
        values = _load(x, i[:, None] * C + k[None, :], _inside(i, k, m, C, ACROSS))
        total += values
        squares += values * values
    tl.store(sums + part * C + k, tl.sum(total, 0), mask=k < C)
    tl.store(sums + (tl.num_programs(0) + part) * C + k, tl.sum(squares, 0), mask=k < C)


@triton.jit
def _finish(sums, c, parts, k, ROWS: tl.constexpr):
    """Both sums of some channels over all parts."""
    i = tl.arange(0, ROWS)
    inside = (i < parts)[:, None] & (k < c)[None, :]
    places = i[:, None] * c + k[None, :]
    first = tl.sum(tl.load(sums + places, mask=inside, other=0.0), 0)
    return first, tl.sum(tl.load(sums + parts * c + places, mask=inside, other=0.0), 0)


@triton.jit
def _finish_moments(
    sums, mean, deviation, m, c, parts, eps, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):
    k = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    total, squares = _finish(sums, c, parts, k, ROWS)
    first = total / m
    variance = tl.maximum(squares / m - first * first, 0.0)
    tl.store(mean + k, first, mask=k < c)
    tl.store(deviation + k, tl.sqrt(variance + eps), mask=k < c)


@triton.jit
def _finish_sums(sums, totals, c, parts, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    k = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    first, second = _finish(sums, c, parts, k, ROWS)
    tl.store(totals + k, first, mask=k < c)
    tl.store(totals + c + k, second, mask=k < c)


@triton.jit
def _normalise(
    x, out, mean, deviation, weight, bias, m, slope,
    C: tl.constexpr, DOWN: tl.constexpr, ACROSS: tl.constexpr,
):  # fmt: skip
    i, k = tl.program_id(0) * DOWN + tl.arange(0, DOWN), _columns(ACROSS)
    centre, scale, w, b = _parameters(mean, deviation, weight, bias, k, C)
    places, inside = i[:, None] * C + k[None, :], _inside(i, k, m, C, ACROSS)
    values = (_load(x, places, inside) - centre) * (scale * w) + b
    values = tl.where(values > 0, values, slope * values)
    tl.store(out + places, values.to(out.dtype.element_ty), mask=inside)


@triton.jit
def _pull(x, g, places, inside, centre, scale, w, b, slope):
    """Normalised values, and the gradient before the leaky ReLU."""
    scores = (_load(x, places, inside) - centre) * scale
    pulled = _load(g, places, inside)
    return scores, tl.where(scores * w + b > 0, pulled, slope * pulled)


@triton.jit
def _pull_moments(
    x, g, sums, mean, deviation, weight, bias, m, per, slope,
    C: tl.constexpr, DOWN: tl.constexpr, ACROSS: tl.constexpr,
):  # fmt: skip
    part, k = tl.program_id(0), _columns(ACROSS)
    centre, scale, w, b = _parameters(mean, deviation, weight, bias, k, C)
    of_bias = tl.zeros([DOWN, ACROSS], dtype=tl.float32)
    of_weight = tl.zeros([DOWN, ACROSS], dtype=tl.float32)
    for start in range(part * per, part * per + per, DOWN):
        i = start + tl.arange(0, DOWN)
        places, inside = i[:, None] * C + k[None, :], _inside(i, k, m, C, ACROSS)
        scores, pulled = _pull(x, g, places, inside, centre, scale, w, b, slope)
        of_bias += pulled
        of_weight += pulled * scores
    tl.store(sums + part * C + k, tl.sum(of_bias, 0), mask=k < C)
    tl.store(sums + (tl.num_programs(0) + part) * C + k, tl.sum(of_weight, 0), mask=k < C)


@triton.jit
def _pull_back(
    x, g, dx, totals, mean, deviation, weight, bias, m, slope,
    C: tl.constexpr, DOWN: tl.constexpr, ACROSS: tl.constexpr,
):  # fmt: skip
    i, k = tl.program_id(0) * DOWN + tl.arange(0, DOWN), _columns(ACROSS)
    centre, scale, w, b = _parameters(mean, deviation, weight, bias, k, C)
    of_bias = tl.load(totals + k, mask=k < C, other=0.0)[None, :] / m
    of_weight = tl.load(totals + C + k, mask=k < C, other=0.0)[None, :] / m
    places, inside = i[:, None] * C + k[None, :], _inside(i, k, m, C, ACROSS)
    scores, pulled = _pull(x, g, places, inside, centre, scale, w, b, slope)
    pulled = (pulled - of_bias - scores * of_weight) * (w * scale)
    tl.store(dx + places, pulled.to(dx.dtype.element_ty), mask=inside)


# --- pooling --------------------------------------------------------------------------------------


@triton.jit
def _corner(i, h, w):
    """The row of the first of four places, for rows of what is pooled."""
    across, down = w // 2, h // 2
    image, rest = i // (across * down), i % (across * down)
    return (image * h + 2 * (rest // across)) * w + 2 * (rest % across)


@triton.jit
def _four(x, corner, w, inside, C: tl.constexpr):
    """The four numbers of each square."""
    a, b = _load(x, corner, inside), _load(x, corner + C, inside)
    return a, b, _load(x, corner + w * C, inside), _load(x, corner + w * C + C, inside)


@triton.jit
def _pool(x, out, m, h, w, C: tl.constexpr, DOWN: tl.constexpr, ACROSS: tl.constexpr):
    i, k = tl.program_id(0) * DOWN + tl.arange(0, DOWN), _columns(ACROSS)
    inside = _inside(i, k, m, C, ACROSS)
    a, b, c, d = _four(x, _corner(i, h, w)[:, None] * C + k[None, :], w, inside, C)
    most = tl.maximum(tl.maximum(a, b), tl.maximum(c, d)).to(out.dtype.element_ty)
    tl.store(out + i[:, None] * C + k[None, :], most, mask=inside)


@triton.jit
def _pull_pool(x, g, dx, m, h, w, C: tl.constexpr, DOWN: tl.constexpr, ACROSS: tl.constexpr):
    i, k = tl.program_id(0) * DOWN + tl.arange(0, DOWN), _columns(ACROSS)
    inside = _inside(i, k, m, C, ACROSS)
    corner = _corner(i, h, w)[:, None] * C + k[None, :]
    a, b, c, d = _four(x, corner, w, inside, C)
    pulled = tl.load(g + i[:, None] * C + k[None, :], mask=inside, other=0.0)
    none = tl.zeros_like(pulled)
    lower, right, right_below = tl.maximum(c, d) > tl.maximum(a, b), b > a, d > c
    tl.store(dx + corner, tl.where(lower | right, none, pulled), mask=inside)
    tl.store(dx + corner + C, tl.where(lower | ~right, none, pulled), mask=inside)
    tl.store(dx + corner + w * C, tl.where(lower & ~right_below, pulled, none), mask=inside)
    tl.store(dx + corner + w * C + C, tl.where(lower & right_below, pulled, none), mask=inside)


# --- the first convolution ------------------------------------------------------------------------


@triton.jit
def _patches(x, i, m, h, w):
    """What is around each of some places: 27 numbers, and zeros outside an image."""
    k = tl.arange(0, 32)[None, :]
    down, across = k // 9 - 1, k // 3 % 3 - 1
    row, column = (i // w % h)[:, None] + down, (i % w)[:, None] + across
    inside = (i < m)[:, None] & (k < 27) & (row >= 0) & (row < h) & (column >= 0) & (column < w)
    return _load(x, (i[:, None] + down * w + across) * 3 + k % 3, inside)


@triton.jit
def _convolve(x, weight, out, m, h, w, C: tl.constexpr, PLACES: tl.constexpr, ACROSS: tl.constexpr):
    i, k, j = tl.program_id(0) * PLACES + tl.arange(0, PLACES), _columns(ACROSS), tl.arange(0, 32)
    dtype = out.dtype.element_ty
    inside = (j < 27)[:, None] & (k < C)[None, :]
    weights = _load(weight, k[None, :] * 27 + j[:, None], inside)
    patches = _patches(x, i, m, h, w)
    values = tl.dot(patches.to(dtype), weights.to(dtype), input_precision="ieee")
    inside = (i < m)[:, None] & (k < C)[None, :]
    tl.store(out + i[:, None] * C + k[None, :], values.to(dtype), mask=inside)


@triton.jit
def _pull_patches(
    x, g, sums, m, per, h, w, C: tl.constexpr, PLACES: tl.constexpr, ACROSS: tl.constexpr
):
    part, k, j = tl.program_id(0), _columns(ACROSS), tl.arange(0, 32)
    total = tl.zeros([32, ACROSS], dtype=tl.float32)
    for start in range(part * per, part * per + per, PLACES):
        i = start + tl.arange(0, PLACES)
        inside = (i < m)[:, None] & (k < C)[None, :]
        pulled = tl.load(g + i[:, None] * C + k[None, :], mask=inside, other=0.0)
        patches = _patches(x, i, m, h, w).to(g.dtype.element_ty)
        total += tl.dot(tl.trans(patches), pulled, input_precision="ieee")
    inside = (j < 27)[:, None] & (k < C)[None, :]
    tl.store(sums + (part * 27 + j[:, None]) * C + k[None, :], total, mask=inside)
