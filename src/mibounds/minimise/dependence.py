"""What one batch shows of a dependence by itself: a kernel statistic, in nats.

A critic learns what to look for, and lags behind the encoder while it does. Two kernels see every
dependence at once, if faintly, and there is nothing to fit. h is the unbiased correlation of the
kernels of x and y, which is 0 on average where they are independent. A Gaussian pair with r equal
correlations h has

    I = -r/2 log(1 - h)

nats, and that is the value here, with r from the effective numbers of columns of x and y. It is a
measure and no bound: below the truth by a third for Gaussians.

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
    x, k = _kernel(x)
    y, ell = _kernel(y)
    same = torch.ones_like(k, dtype=torch.bool)
    if given is not None and _is_labels(given):
        same = given[:, None] == given
    elif given is not None:
        near = _kernel(given)[1]
        k, ell = _free(k, near), _free(ell, near)
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


def _is_labels(values: Tensor) -> bool:
    return not values.is_floating_point()


def _kernel(values: Tensor) -> tuple[Tensor, Tensor]:
    """The columns that a kernel is made of, standardised in the batch, and the kernel."""
    if _is_labels(values):
        labels = values.flatten()
        kernel = (labels[:, None] == labels).to(torch.get_default_dtype())
        return kernel - kernel.mean(0), kernel
    values = values.flatten(1) if values.ndim > 1 else values[:, None]
    centred = values - values.mean(0)
    columns = centred / (centred.square().mean(0) + EPS**2).sqrt()
    squares = columns.square().sum(1)
    distances = (squares[:, None] + squares - 2 * columns @ columns.T).clamp_min(0)
    with torch.no_grad():
        width = distances.median().clamp_min(EPS)
    kernels = [(-distances / (w * width)).exp() for w in WIDTHS]
    return columns, sum(kernels[1:], kernels[0]) / len(WIDTHS)


def _free(kernel: Tensor, near: Tensor) -> Tensor:
    """A kernel without what can be predicted from a third variable, by its kernel."""
    n = len(kernel)
    centre = torch.eye(n, dtype=kernel.dtype, device=kernel.device) - 1 / n
    ridge = RIDGE * n * torch.eye(n, dtype=kernel.dtype, device=kernel.device)
    residual = RIDGE * n * torch.linalg.solve(centre @ near @ centre + ridge, centre)
    return residual @ kernel @ residual.T


def _effective_columns(columns: Tensor) -> Tensor:
    """(tr C)² / |C|² of the covariance: how many equal columns would spread like these."""
    covariance = columns.T @ columns
    return covariance.trace().square() / covariance.square().sum().clamp_min(EPS)
