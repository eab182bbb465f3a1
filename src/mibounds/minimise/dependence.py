"""What one batch shows of a dependence by itself: a kernel statistic, in nats.

A critic learns what to look for, and lags behind the encoder while it does. Two kernels see every
dependence at once, if faintly, and there is nothing to fit. h is the unbiased correlation of the
kernels of x and y, which is 0 on average where they are independent. A Gaussian pair with r equal
correlations h has

    I = -r/2 log(1 - h)

nats, with r from the effective numbers of columns of x and y. It is a measure and not a bound:
below the truth by a third for Gaussians.

The value is the mean of this for two views of the samples: with columns of variance 1, and with
whitened columns. An encoder without noise can hide what it knows in small differences of its
columns, where only the second view looks. Where the batch does not show that columns are
correlated, both views are the same.

All functions take batches side by side, too: leading dimensions before the samples.

References: Gretton et al. 2005 (HSIC); Székely and Rizzo 2014, section 3 (U-centring); Zhang et al.
2011 (kernels that are freed of a third variable); Chen et al. 2010, equation 23 (shrinkage).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from mibounds.estimators.cuda_graphs import Branch
from mibounds.samples.batches import Batch

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Shaped

WIDTHS = (0.03, 0.1, 0.3, 1.0)  # of the kernels, in medians of the samples' median squared distance
MEASURED = 128  # samples whose distances count
FEWEST = 4  # samples from which the statistic exists
HIGHEST = 0.999  # correlation of kernels from which on the value grows no more
EPS = 1e-6
FLOOR = 1e-4  # added to the correlations of columns before they are whitened
FEWEST_FREED = 256  # samples from which on freeing them of a third variable is not biased
RIDGE = 1e-2  # with which kernels are freed of a third variable, in units of the samples


def kernel_nats(
    x: Shaped[Tensor, "*c n x_dim"],
    y: Shaped[Tensor, "*c n *y"],
    given: Shaped[Tensor, "n *g"] | None = None,
) -> Float[Tensor, "*c"]:
    """The dependence of x and y that two kernels see, as nats of a Gaussian pair.

    Args:
        x: real samples; the scale of a column does not matter.
        y: real samples, or one integer label each.
        given: a third variable like y, to measure the dependence that is left given it.

    Returns:
        Zero on average where x and y are independent; zero for fewer than four samples, or for
        fewer than 256 given a real variable.

    Example:
        >>> x = torch.randn(512, 3, generator=torch.Generator().manual_seed(0))
        >>> y = torch.randn(512, 2, generator=torch.Generator().manual_seed(1))
        >>> bool(kernel_nats(x, y).abs() < 0.05), bool(kernel_nats(x, x[:, :2]) > 1)
        (True, True)
    """
    same = residual = None
    if given is not None and is_labels(given):
        same = given.flatten()[:, None] == given.flatten()
    elif given is not None and len(given) < FEWEST_FREED:
        return 0 * (x.sum() + (0 if is_labels(y) else y.sum()))
    elif given is not None:
        residual = _residual(_kernel(standardise_batch(given), x.dtype)[0])
    branch = Branch(x.device)
    x_views, x_columns = _views(x, x.dtype)
    with branch:
        y_views, y_columns = _views(y, x.dtype)
    branch.join()
    h: Any = _Correlation.apply(x_views, y_views, same, residual)
    r = (x_columns * y_columns).sqrt()
    return (-0.5 * r * torch.log1p(-h.clamp(max=HIGHEST))).mean(0)


class _Correlation(torch.autograd.Function):
    """The unbiased correlation of the kernels of x and y.

    Its gradient in closed form takes half as many passes over n² numbers as autograd's.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, y: Tensor, same: Tensor | None, residual: Tensor | None
    ) -> Tensor:
        branch = Branch(x.device)
        a, of_x = _centred_kernel(x, same, residual, x.dtype)
        with branch:
            b, of_y = _centred_kernel(y, same, residual, x.dtype)
        branch.join()
        ab, aa, bb = ((p * q).sum((-2, -1)) for p, q in ((a, b), (a, a), (b, b)))
        scale = (aa * bb + EPS**2).rsqrt()
        h = ab * scale
        back = (h / (own + EPS**2) for own in (aa, bb))
        ctx.save_for_backward(x, y, a, b, of_x, of_y, residual, scale, *back)
        return h

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        x, y, a, b, of_x, of_y, residual, scale, back_x, back_y = ctx.saved_tensors
        sides = ((x, of_x, a, b, back_x), (y, of_y, b, a, back_y))
        found = []
        for needed, (v, slope, own, other, back) in zip(ctx.needs_input_grad, sides, strict=False):
            if not needed:
                found.append(None)
                continue
            # Centring is a projection, and both kernels are centred: so is the gradient.
            pull = other * (g * scale)[..., None, None] - own * (g * back)[..., None, None]
            if residual is not None:
                pull = residual.mT @ pull @ residual
            pull = pull * slope
            found.append(4 * (pull.sum(-1, keepdim=True) * v - pull @ v))
        return *found, None, None


def ucentre(
    kernel: Float[Tensor, "*c n n"], same: Bool[Tensor, "n n"] | None = None
) -> Float[Tensor, "*c n n"]:
    """Centre a kernel so that the product of two of them is unbiased, within groups of samples.

    Args:
        kernel: symmetric.
        same: whether two samples are of one group, if there are several. Groups of fewer than four
            count as nothing.

    Example:
        >>> a = ucentre(torch.ones(5, 5))
        >>> a.abs().max().item()
        0.0
    """
    n = kernel.shape[-1]
    if same is None:
        if n < FEWEST:
            return torch.zeros_like(kernel)
        kernel = kernel.clone()
        kernel.diagonal(dim1=-2, dim2=-1).zero_()
        means = kernel.sum(-1) / (n - 2)
        total = means.sum(-1)[..., None, None] / (n - 1)
        kernel -= means[..., None, :]
        kernel -= means[..., None] - total
        kernel.diagonal(dim1=-2, dim2=-1).zero_()
        return kernel
    itself = torch.eye(n, dtype=torch.bool, device=kernel.device)
    others = same & ~itself
    kernel = torch.where(others, kernel, 0.0)
    count = same.sum(-1).to(kernel.dtype)
    sums = kernel.sum(-1)
    total = sums @ same.to(kernel.dtype) / ((count - 1) * (count - 2)).clamp_min(1)
    means = sums / (count - 2).clamp_min(1)
    centred = kernel - means[..., None] - means[..., None, :] + total[..., None]
    return torch.where(others & (count >= FEWEST)[:, None], centred, 0.0)


class _KeepScale(torch.autograd.Function):
    """Samples, whose gradient will neither shift a column nor stretch it."""

    @staticmethod
    def forward(ctx: Any, values: Tensor) -> Tensor:
        ctx.save_for_backward(values)
        return values.view_as(values)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        (values,) = ctx.saved_tensors
        columns = standardise_batch(values)
        g = g - g.mean(-2, keepdim=True)
        return g - columns * (g * columns).mean(-2, keepdim=True)


def keep_scale(values: Float[Tensor, "*c n d"]) -> Float[Tensor, "*c n d"]:
    """The same samples, whose gradient will neither shift a column nor stretch it.

    Both change what a critic sees, and no information.

    Example:
        >>> x = torch.randn(9, 2, requires_grad=True)
        >>> (keep_scale(x) * 3).sum().backward()
        >>> bool(x.grad.abs().max() < 1e-5)
        True
    """
    return _KeepScale.apply(values)  # pyright: ignore[reportReturnType]


def is_labels(values: Tensor) -> bool:
    """Whether samples are labels, and not numbers."""
    return not values.is_floating_point()


def standardise_batch(
    values: Float[Tensor, "*c n d"], batch: Batch | None = None
) -> Float[Tensor, "*c n d"]:
    """Columns with mean 0 and variance 1 in the batch; constant ones stay 0.

    Args:
        values: samples.
        batch: where they are, if they are spread over processes.

    Example:
        >>> standardise_batch(torch.tensor([[1.0, 5.0], [3.0, 5.0]])).tolist()
        [[-1.0, 0.0], [1.0, 0.0]]
    """
    centred = values - _average(values.mean(-2, keepdim=True), batch)
    return centred / (_average(centred.square().mean(-2, keepdim=True), batch) + EPS**2).sqrt()


def _average(mean: Tensor, batch: Batch | None) -> Tensor:
    """The mean over all processes."""
    return mean if batch is None else batch.average(mean)


def whiten(columns: Float[Tensor, "*c n d"], batch: Batch | None = None) -> Float[Tensor, "*c n d"]:
    """Standardised columns as uncorrelated ones; no gradient goes through the correlations.

    Correlations that are no larger than those of so many independent samples are left alone.

    Args:
        columns: samples.
        batch: where they are, if they are spread over processes.

    Example:
        >>> x = torch.randn(100, 1, generator=torch.Generator().manual_seed(0))
        >>> y = torch.randn(100, 1, generator=torch.Generator().manual_seed(1))
        >>> white = whiten(standardise_batch(torch.cat([x, x + 0.1 * y], 1)))
        >>> bool((torch.corrcoef(white.T)[0, 1] < 0.2).all())
        True
    """
    n, d = columns.shape[-2:]
    if d == 1:
        return columns
    with torch.no_grad():
        correlations = _average(columns.mT @ columns / n, batch)
        n = n if batch is None else batch.size
        square = correlations.square().sum((-2, -1))
        trace = correlations.diagonal(dim1=-2, dim2=-1).sum(-1)
        excess = (square - trace**2 / d).clamp_min(EPS)
        shrink = ((1 - 2 / d) * square + trace**2) / ((n + 1 - 2 / d) * excess)
        shrink = shrink.clamp(0, 1).square()[..., None, None]  # little where it is not near 1
        correlations = (1 - shrink) * correlations
        correlations.diagonal(dim1=-2, dim2=-1).add_(shrink[..., 0] + FLOOR)
        factor = torch.linalg.cholesky_ex(correlations).L
    return torch.linalg.solve_triangular(factor, columns.mT, upper=False).mT


def _views(values: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """What kernels are made of: labels, or two views of columns, as they are and whitened.

    And how many columns each view effectively has, in a dtype for that of labels.
    """
    if is_labels(values):
        views = values.flatten()
    else:
        columns = standardise_batch(values)
        views = torch.stack([columns, whiten(columns)])
    with torch.no_grad():
        return views, _effective_columns(views, dtype)


def _centred_kernel(
    view: Tensor, same: Tensor | None, residual: Tensor | None, dtype: torch.dtype
) -> tuple[Tensor, Tensor | None]:
    """A kernel, freed of a third variable and centred; and the derivative of the kernel itself."""
    kernel, slope = _kernel(view, dtype)
    if residual is not None:
        kernel = residual @ kernel @ residual.mT
    return ucentre(kernel, same), slope


def _kernel(view: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor | None]:
    """The mean of Gaussian kernels of several widths, and its derivative by squared distances.

    For labels their equality, in a dtype, which has no derivative.
    """
    if is_labels(view):
        return (view[:, None] == view).to(dtype), None
    squares = view.square().sum(-1)
    distances = squares[..., None] + squares[..., None, :] - 2 * view @ view.mT
    distances = distances.clamp_min_(0)
    some = (
        distances[..., :MEASURED, :MEASURED].median(-1).values
    )  # one long median is slow on a GPU
    width = some.median(-1).values.clamp_min(EPS)[..., None, None]
    distances /= -width
    kernel, slope = torch.zeros_like(distances), torch.zeros_like(distances)
    for each in WIDTHS:
        part = (distances / each).exp_()
        kernel += part
        slope.add_(part, alpha=-1 / each)
    return kernel / len(WIDTHS), slope / (len(WIDTHS) * width)


def _residual(near: Tensor) -> Tensor:
    """What frees a kernel, from both sides, of what another kernel can predict."""
    n = len(near)
    identity = torch.eye(n, dtype=near.dtype, device=near.device)
    centre = identity - 1 / n
    return RIDGE * n * torch.linalg.solve(centre @ near @ centre + RIDGE * n * identity, centre)


def _effective_columns(view: Tensor, dtype: torch.dtype) -> Tensor:
    """(tr C)² / |C|² of the covariance: how many equal columns would spread like these."""
    if is_labels(view):
        shown = (view[:, None] == view).to(dtype)
        view = shown - shown.mean(0)
    covariance = view.mT @ view
    trace = covariance.diagonal(dim1=-2, dim2=-1).sum(-1)
    return trace.square() / covariance.square().sum((-2, -1)).clamp_min(EPS)
