"""Scores of all pairs, without the tensor that is larger than they are.

A score of one pair costs H hidden units or D products, so that all pairs at once would need N² H
numbers. Here they are computed for some columns at a time, reduced, forgotten, and computed again
when gradients are asked for: the memory grows with N times the block. A small matrix, or one that
exists already, is one block and is simply kept.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor
from torch._C._functorch import is_batchedtensor
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint

from mibounds.samples.batches import Batch

if TYPE_CHECKING:
    from jaxtyping import Float, Shaped

Negatives = Literal["others", "all", "sequences"]
Map = Callable[..., Tensor]  # of a block of scores, and of vectors with a number for each column

BLOCK = 2**19  # numbers behind a block: few enough for the cache of a core
GPU_BLOCK = 2**26  # the same on a GPU: enough to keep it busy
FEWEST = 8  # rows and columns of a block, however many numbers that are


class Pairs:
    """Scores [i, j] = score(x_i, y_j), given by a function of some x's and some y's.

    Args:
        columns: what the function needs of each y, one row for each column of the scores.
        block: from some of the columns, and that part of ``rows``, to the scores of those pairs.
        diagonal: scores of the given pairs.
        width: numbers behind one score, which decides how many pairs make a block.
        batch: where the samples are; with several processes the x's are those of this one and the
            y's those of all.
        rows: what the function needs of each x. If left out, ``block`` takes only columns, gives
            the scores of *all* x's, and may depend on anything.
        parameters: all else that a gradient may flow to through ``block``, if ``rows`` are given.

    Example:
        >>> a, b = torch.randn(5, 3), torch.randn(5, 3)
        >>> pairs = Pairs(b, lambda b, a: a @ b.T, (a * b).sum(1), rows=[a])
        >>> pairs.log_mean_exp(1, "all").shape
        torch.Size([5])
    """

    def __init__(
        self,
        columns: Shaped[Tensor, "m *s"],
        block: Callable[..., Tensor],
        diagonal: Float[Tensor, " n"],
        width: int = 1,
        batch: Batch | None = None,
        rows: Sequence[Tensor] = (),
        parameters: Sequence[Tensor] = (),
    ):
        self.columns, self.block, self.diagonal = columns, block, diagonal
        self.rows, self.parameters = tuple(rows), tuple(parameters)
        self.batch = batch or Batch(len(diagonal))
        n = len(diagonal)
        numbers = GPU_BLOCK if columns.is_cuda else BLOCK
        pairs = max(1, numbers // max(1, width))
        self.tall = max(FEWEST, math.isqrt(pairs)) if rows else n
        self.wide = max(FEWEST, pairs // max(1, min(self.tall, n)))

    @classmethod
    def of(cls, scores: Float[Tensor, "n n"] | Pairs) -> Pairs:
        """Pairs of a matrix of scores that exists already."""
        if isinstance(scores, Pairs):
            return scores
        if scores.ndim != 2 or scores.shape[0] != scores.shape[1] or len(scores) < 2:
            raise ValueError(
                "Expected a square matrix scores[i, j] of at least 2 samples "
                f"but got shape {tuple(scores.shape)}; "
                "score every x_i with every y_j."
            )
        pairs = cls(scores.T, lambda columns: columns.T, scores.diagonal())
        pairs.wide = len(scores)
        return pairs

    def mean(self, values: Float[Tensor, " n"]) -> Float[Tensor, ""]:
        """Mean over the samples of one value for each."""
        return self.batch.mean(values)

    def log_sum_exp(
        self,
        dim: int | None,
        negatives: Negatives,
        map: Map | None = None,
        extras: Sequence[Tensor] = (),
    ) -> Float[Tensor, "..."]:
        """Logarithm of the sum of exp(scores), over the other side or over all negatives.

        Args:
            dim: 0 for each y over the x's, 1 for each x over the y's, None over all pairs.
            negatives: "others" leaves the given pairs out, "all" keeps them.
            map: applied to a block of scores first, together with its part of the extras.
            extras: vectors with a number for each column.

        Returns:
            For dim 0 one value for each column, for dim 1 one for each row, else a scalar.
        """
        fill = -math.inf if check_negatives(negatives) != "all" else None
        if dim == 0:
            columns = _merge(self._reduce(_log_sum_columns, fill, map, extras, along=True))
            return self.batch.logsumexp(columns)
        rows = _merge(self._reduce(_log_sum_rows, fill, map, extras))
        if dim == 1:
            return rows
        if self.batch.weights is not None:
            rows = rows + self.batch.weights.to(rows.dtype).log()
        return self.batch.logsumexp(rows.logsumexp(0))

    def log_mean_exp(
        self,
        dim: int | None,
        negatives: Negatives,
        map: Map | None = None,
        extras: Sequence[Tensor] = (),
    ) -> Float[Tensor, "..."]:
        """Logarithm of the mean of exp(scores); see `log_sum_exp`."""
        total = self.log_sum_exp(dim, negatives, map, extras)
        if self.batch.plain:
            count = self.batch.size - (negatives != "all")
            return total - math.log(count if dim is not None else count * self.batch.size)
        return total - self._weight_of_negatives(dim, negatives).log()

    def _weight_of_negatives(self, dim: int | None, negatives: Negatives) -> Tensor:
        """How much the negatives weigh: of each y (0), of each x (1), or of all (None)."""
        weights = self.batch.all_weights(self.diagonal)
        every = (
            self.batch.others(weights) if negatives != "all" else weights.sum().expand_as(weights)
        )
        if dim is None:
            return (weights * every).sum()
        return every if dim == 0 else self.batch.local(every)

    def mean_of(
        self, map: Map, negatives: Negatives, extras: Sequence[Tensor] = ()
    ) -> Float[Tensor, ""]:
        """Mean over all negatives of a function of their scores."""
        fill = 0.0 if check_negatives(negatives) != "all" else None
        rows = self._reduce(_sum_rows, fill, map, extras).sum(0)
        if self.batch.plain:
            return self.batch.sum(rows.sum()) / (
                self.batch.size * (self.batch.size - (negatives != "all"))
            )
        if self.batch.weights is not None:
            rows = rows * self.batch.weights.to(rows.dtype)
        return self.batch.sum(rows.sum()) / self._weight_of_negatives(None, negatives)

    def row_means(self, negatives: Negatives = "all") -> Float[Tensor, " n"]:
        """Mean over the y's of the scores of each x; -inf where one of them is."""
        fill = 0.0 if check_negatives(negatives) != "all" else None
        rows = self._reduce(_sum_rows, fill).sum(0)
        if self.batch.plain:
            return rows / (self.batch.size - (negatives != "all"))
        return rows / self._weight_of_negatives(1, negatives)

    def _reduce(
        self,
        reduce: Callable[[Tensor, Tensor | None], Tensor],
        fill: float | None,
        map: Map | None = None,
        extras: Sequence[Tensor] = (),
        along: bool = False,
    ) -> Tensor:
        """Every block reduced, to a number for each of its columns or of its rows.

        Args:
            reduce: from a block of scores, and weights of what it sums over, to a number for each
                of its columns (``along``) or rows.
            fill: what to put in place of the given pairs, if anything.
            map: applied to the scores first.
            extras: further arguments of the map, a number for each column.
            along: whether the numbers stand for columns.

        Returns:
            (blocks, m) if they do, else (blocks, n).
        """

        batch, device = self.batch, self.columns.device
        weights = None if batch.weights is None else batch.all_weights(self.diagonal)
        whose = batch.all_sequences(device)

        def part(
            i: int, j: int, rows: Sequence[Tensor], columns: Tensor, *extras: Tensor
        ) -> Tensor:
            scores = self.block(columns, *rows)
            if map is not None:
                scores = map(scores, *extras)
            x = slice(i + batch.offset, i + batch.offset + scores.shape[0])
            y = slice(j, j + scores.shape[1])
            if fill is not None:
                scores = scores.masked_fill(whose[x, None] == whose[y], fill)
            return reduce(scores, None if weights is None else weights[x if along else y])

        n, m = len(self.diagonal), len(self.columns)
        columns = (self.columns, *extras)
        small = n <= self.tall and m <= self.wide
        if small or is_batchedtensor(self.columns):  # under vmap nothing can be computed again
            return part(0, 0, self.rows, *columns)[None]
        if not self.rows:
            values = [
                checkpoint(part, 0, j, (), *piece, use_reentrant=False, preserve_rng_state=False)
                for j, piece in zip(
                    range(0, m, self.wide),
                    zip(*(t.split(self.wide) for t in columns), strict=True),
                    strict=True,
                )
            ]
            return torch.cat(values)[None] if along else torch.stack(values)
        tiles = (range(0, n, self.tall), range(0, m, self.wide))
        shape = (len(tiles[0]), m) if along else (len(tiles[1]), n)
        out = self.diagonal.new_empty(shape)
        counts = (len(self.rows), len(columns))
        return _Tiles.apply(part, tiles, along, out, counts, *self.rows, *columns, *self.parameters)


def _sum_rows(scores: Tensor, weights: Tensor | None) -> Tensor:
    return scores.sum(1) if weights is None else scores.masked_fill(weights == 0, 0.0) @ weights


def _log_sum_rows(scores: Tensor, weights: Tensor | None) -> Tensor:
    return (scores if weights is None else scores + weights.log()).logsumexp(1)


def _log_sum_columns(scores: Tensor, weights: Tensor | None) -> Tensor:
    return (scores if weights is None else scores + weights.log()[:, None]).logsumexp(0)


def _merge(values: Float[Tensor, "blocks n"]) -> Float[Tensor, " n"]:
    return values[0] if len(values) == 1 else values.logsumexp(0)


class _Tiles(torch.autograd.Function):
    """Reduce tile by tile, twice: for the value, and again for the gradient.

    Results go into memory that is set apart beforehand. Many small pieces between large ones that
    come and go would fragment the heap until it is as large as all tiles together.
    """

    @staticmethod
    def forward(ctx, part, tiles, along, out, counts, *tensors):
        ctx.part, ctx.tiles, ctx.along, ctx.counts = part, tiles, along, counts
        ctx.save_for_backward(*tensors)
        for k, i, j, where in _walk(tiles, along):
            rows, columns = _cut(tensors, counts, i, j)
            out[k, where] = part(i.start, j.start, rows, *columns)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        gradient = gradients[0]
        tensors, counts = ctx.saved_tensors, ctx.counts
        needed = ctx.needs_input_grad[5:]
        totals: list[Any] = [
            torch.zeros_like(t) if need else None for t, need in zip(tensors, needed, strict=True)
        ]
        wanted = [index for index, need in enumerate(needed) if need]
        for k, i, j, where in _walk(ctx.tiles, ctx.along):
            rows, columns = _cut(tensors, counts, i, j)
            leaves = [
                t.detach().requires_grad_(need)
                for t, need in zip((*rows, *columns), needed, strict=False)
            ]
            sources = [*leaves, *tensors[sum(counts) :]]
            with torch.enable_grad():
                value = ctx.part(i.start, j.start, leaves[: counts[0]], *leaves[counts[0] :])
                parts = torch.autograd.grad(
                    value,
                    [sources[index] for index in wanted],
                    gradient[k, where],
                    allow_unused=True,
                )
            for index, g in zip(wanted, parts, strict=True):
                if g is not None:
                    total = totals[index]
                    if index < sum(counts):
                        total = total[i if index < counts[0] else j]
                    total += g
        return None, None, None, None, None, *totals


def _walk(tiles: tuple[range, range], along: bool) -> Iterator[tuple[int, slice, slice, slice]]:
    """Each tile: the block it belongs to, its rows, its columns, and what it reduces to."""
    for a, i in enumerate(tiles[0]):
        rows = slice(i, min(i + tiles[0].step, tiles[0].stop))
        for b, j in enumerate(tiles[1]):
            columns = slice(j, min(j + tiles[1].step, tiles[1].stop))
            yield (a, rows, columns, columns) if along else (b, rows, columns, rows)


def _cut(
    tensors: Sequence[Tensor], counts: tuple[int, int], i: slice, j: slice
) -> tuple[list[Tensor], list[Tensor]]:
    rows, columns = tensors[: counts[0]], tensors[counts[0] : sum(counts)]
    return [t[i] for t in rows], [t[j] for t in columns]


def check_negatives(negatives: Negatives) -> Negatives:
    """Validate `negatives`."""
    if negatives not in ("others", "all", "sequences"):
        raise ValueError(
            f'Expected negatives to be "sequences", "others" or "all" but got {negatives!r}; '
            'leave it out for "others".'
        )
    return negatives
