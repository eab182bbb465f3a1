"""What one batch shows of a dependence by itself: a kernel statistic, in nats.

A critic learns what to look for, and lags behind the encoder while it does. Two kernels see every
dependence at once, if faintly, and there is nothing to fit. h is the unbiased correlation of the
kernels of x and y, which is 0 on average where they are independent. A Gaussian pair with r equal
correlations h has

    I = -r/2 log(1 - h)

nats, with r from the effective numbers of columns of x and y. It is a measure and not a bound:
below the truth by a third for Gaussians.

The value is the sum of this for two views of the samples: with columns of variance 1, and with
whitened columns. An encoder without noise can hide what it knows in small differences of its
columns, where only the second view looks; where columns are many and noisy, only the first sees.

References: Gretton et al. 2005 (HSIC); Székely and Rizzo 2014, section 3 (U-centring); Zhang et al.
2011 (kernels that are freed of a third variable).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Shaped

WIDTHS = (0.03, 0.1, 0.3, 1.0)  # of the kernels, in squared median distances
FEWEST = 4  # samples from which the statistic exists
HIGHEST = 0.999  # correlation of kernels from which on the value grows no more
EPS = 1e-6
FLOOR = 1e-3  # added to the correlations of columns before they are whitened
RIDGE = 1e-2  # with which kernels are freed of a third variable, in units of the samples


def kernel_nats(
    x: Float[Tensor, "n x_dim"],
    y: Shaped[Tensor, "n *y"],
    given: Shaped[Tensor, "n *g"] | None = None,
) -> Float[Tensor, ""]:
    """The dependence of x and y that two kernels see, as nats of a Gaussian pair.

    Args:
        x: real samples; the scale of a column does not matter.
        y: real samples, or one integer label each.
        given: a third variable like y, to measure the dependence that is left given it.

    Returns:
        Zero on average where x and y are independent; zero for fewer than four samples.

    Example:
        >>> x = torch.randn(512, 3, generator=torch.Generator().manual_seed(0))
        >>> y = torch.randn(512, 2, generator=torch.Generator().manual_seed(1))
        >>> bool(kernel_nats(x, y).abs() < 0.05), bool(kernel_nats(x, x[:, :2]) > 1)
        (True, True)
    """
    same = None
    if given is not None and is_labels(given):
        same = given.flatten()[:, None] == given.flatten()
    near = None if given is None or same is not None else _kernel(standardise_batch(given))
    pairs = list(zip(_views(x), _views(y), strict=False))
    return sum((_compare(a, b, same, near) for a, b in pairs[1:]), _compare(*pairs[0], same, near))


def _compare(x: Tensor, y: Tensor, same: Tensor | None, near: Tensor | None) -> Tensor:
    """The statistic of one view."""
    k, ell = _kernel(x), _kernel(y)
    if near is not None:
        k, ell = _free(k, near), _free(ell, near)
    if same is None:
        same = torch.ones_like(k, dtype=torch.bool)
    a, b = ucentre(k, same), ucentre(ell, same)
    h = (a * b).sum() / ((a * a).sum() * (b * b).sum() + EPS**2).sqrt()
    with torch.no_grad():
        r = (_effective_columns(x) * _effective_columns(y)).sqrt()
    return -0.5 * r * torch.log1p(-h.clamp(max=HIGHEST))


def ucentre(kernel: Float[Tensor, "n n"], same: Bool[Tensor, "n n"]) -> Float[Tensor, "n n"]:
    """Centre a kernel so that the product of two of them is unbiased, within groups of samples.

    Args:
        kernel: symmetric.
        same: whether two samples are of one group. Groups of fewer than four count as nothing.

    Example:
        >>> a = ucentre(torch.ones(5, 5), torch.ones(5, 5, dtype=torch.bool))
        >>> a.abs().max().item()
        0.0
    """
    others = same & ~torch.eye(len(kernel), dtype=torch.bool, device=kernel.device)
    kernel = torch.where(others, kernel, 0.0)
    count = same.sum(1).to(kernel.dtype)
    sums = kernel.sum(1)
    total = same.to(kernel.dtype) @ sums / ((count - 1) * (count - 2)).clamp_min(1)
    means = sums / (count - 2).clamp_min(1)
    centred = kernel - means[:, None] - means + total[:, None]
    return torch.where(others & (count >= FEWEST)[:, None], centred, 0.0)


def is_labels(values: Tensor) -> bool:
    """Whether samples are labels, and not numbers."""
    return not values.is_floating_point()


def standardise_batch(values: Float[Tensor, "n *d"]) -> Float[Tensor, "n d"]:
    """Columns with mean 0 and variance 1 in the batch; constant ones stay 0.

    Example:
        >>> standardise_batch(torch.tensor([[1.0, 5.0], [3.0, 5.0]])).tolist()
        [[-1.0, 0.0], [1.0, 0.0]]
    """
    values = values.flatten(1) if values.ndim > 1 else values[:, None]
    centred = values - values.mean(0)
    return centred / (centred.square().mean(0) + EPS**2).sqrt()


def whiten(columns: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
    """Standardised columns as uncorrelated ones; no gradient goes through the correlations.

    Example:
        >>> x = torch.randn(100, 1, generator=torch.Generator().manual_seed(0))
        >>> y = torch.randn(100, 1, generator=torch.Generator().manual_seed(1))
        >>> white = whiten(standardise_batch(torch.cat([x, x + 0.1 * y], 1)))
        >>> bool((torch.corrcoef(white.T)[0, 1] < 0.2).all())
        True
    """
    with torch.no_grad():
        correlations = columns.T @ columns / len(columns)
        correlations.diagonal().add_(FLOOR)
        factor = torch.linalg.cholesky_ex(correlations).L
    return torch.linalg.solve_triangular(factor, columns.T, upper=False).T


def _views(values: Tensor) -> tuple[Tensor, ...]:
    """What kernels are made of: labels, or columns as they are and whitened."""
    if is_labels(values):
        return values.flatten(), values.flatten()
    columns = standardise_batch(values)
    return (columns, whiten(columns)) if columns.shape[1] > 1 else (columns, columns)


def _kernel(view: Tensor) -> Tensor:
    """Gaussian kernels of several widths, or the equality of labels."""
    if is_labels(view):
        return (view[:, None] == view).to(torch.get_default_dtype())
    squares = view.square().sum(1)
    distances = (squares[:, None] + squares - 2 * view @ view.T).clamp_min(0)
    with torch.no_grad():
        width = distances.median().clamp_min(EPS)
    kernels = [(-distances / (w * width)).exp() for w in WIDTHS]
    return sum(kernels[1:], kernels[0]) / len(WIDTHS)


def _free(kernel: Tensor, near: Tensor) -> Tensor:
    """A kernel without what can be predicted from a third variable, by its kernel."""
    n = len(kernel)
    centre = torch.eye(n, dtype=kernel.dtype, device=kernel.device) - 1 / n
    ridge = RIDGE * n * torch.eye(n, dtype=kernel.dtype, device=kernel.device)
    residual = RIDGE * n * torch.linalg.solve(centre @ near @ centre + ridge, centre)
    return residual @ kernel @ residual.T


def _effective_columns(view: Tensor) -> Tensor:
    """(tr C)² / |C|² of the covariance: how many equal columns would spread like these."""
    if is_labels(view):
        shown = (view[:, None] == view).to(torch.get_default_dtype())
        view = shown - shown.mean(0)
    columns = view
    covariance = columns.T @ columns
    return covariance.trace().square() / covariance.square().sum().clamp_min(EPS)
