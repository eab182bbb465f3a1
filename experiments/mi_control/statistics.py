"""An unbiased kernel statistic of dependence, and running averages; of all cells side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from jaxtyping import Float

WIDTHS = (0.03, 0.1, 0.3, 1.0)  # of the kernels, times the median squared distance
NEAR_ONE = 0.999  # largest correlation of two kernels
RATE = 0.02  # least weight of the newest value in an average
TINY = 1e-6


class Average:
    """The running mean and variance of a value, and the standard error of that mean.

    The newest value counts 1/n at first and `RATE` later.

    Args:
        cells: how many.
        device: where.

    Example:
        >>> average = Average(2)
        >>> for value in ([1.0, 4.0], [3.0, 4.0]):
        ...     average.add(torch.tensor(value))
        >>> average.mean.tolist(), average.variance.tolist()
        ([2.0, 4.0], [1.0, 0.0])
        >>> average.above(1.0).tolist()
        [1.422..., 4.0]
    """

    def __init__(self, cells: int, device: str = "cpu"):
        self.count, self.weight = torch.zeros(2, device=device).unbind()
        self.mean = torch.zeros(cells, device=device)
        self.variance = torch.zeros(cells, device=device)

    @torch.no_grad()
    def add(self, value: Float[Tensor, " cells"]) -> None:
        """Count a value in."""
        self.count += 1
        weight = self.weight.copy_(self.count.reciprocal().clamp_min(RATE))
        change = value - self.mean
        self.variance.copy_((1 - weight) * (self.variance + weight * change**2))
        self.mean += weight * change

    def above(self, errors: float) -> Float[Tensor, " cells"]:
        """The mean less some standard errors, or 0 if that is larger."""
        error = (self.variance * self.weight / (2 - self.weight)).sqrt()
        return (self.mean - errors * error).clamp_min(0)


def open_gate(evidence: Float[Tensor, " cells"], half: float) -> Float[Tensor, " cells"]:
    """From 0 without evidence of a dependence to 1: e / (e + half)."""
    return evidence / (evidence + half)


class KernelStatistic:
    """A kernel statistic of dependence in nats: -1/2 r log(1 - h).

    h is the correlation of the two U-centred kernel matrices, which is unbiased around 0 where x
    and y are independent. r is how many independent pairs of columns there are: the geometric mean
    of the effective ranks of the two covariances, through which no gradient goes. For r pairs of
    Gaussians with squared correlation h this is the mutual information.

    Args:
        cells: how many.
        device: where.
    """

    def __init__(self, cells: int, device: str = "cpu"):
        self.average = Average(cells, device)

    def __call__(
        self, x: Float[Tensor, "cells n d"], y: Float[Tensor, "cells n d"]
    ) -> Float[Tensor, " cells"]:
        """The statistic, which is counted in the average."""
        value = kernel_statistic(x, y)
        self.average.add(value.detach())
        return value


def kernel_statistic(
    x: Float[Tensor, "cells n dx"], y: Float[Tensor, "cells n dy"]
) -> Float[Tensor, " cells"]:
    """The statistic of `KernelStatistic`.

    Example:
        >>> x = torch.randn(3, 50, 2)
        >>> bool((kernel_statistic(x, x) > kernel_statistic(x, torch.randn(3, 50, 4))).all())
        True
    """
    x, y = standardise(x), standardise(y)
    with torch.no_grad():
        other = centre(mix_kernels(y)[0])
        r = (effective_rank(x) * effective_rank(y)).sqrt()
    h = _Correlation.apply(x, other)
    return -0.5 * r * torch.log1p(-h.clamp(max=NEAR_ONE))  # pyright: ignore


def standardise(x: Float[Tensor, "cells n d"]) -> Float[Tensor, "cells n d"]:
    """Columns with mean 0 and variance 1 in each batch."""
    return (x - x.mean(1, keepdim=True)) / (x.std(1, correction=0, keepdim=True) + TINY)


def mix_kernels(
    x: Float[Tensor, "cells n d"],
) -> tuple[Float[Tensor, "cells n n"], Float[Tensor, "cells n n"]]:
    """The mean of Gaussian kernels of several widths, and its derivative by squared distances."""
    square = x.square().sum(-1)
    distance = torch.baddbmm(square[:, :, None] + square[:, None], x, x.mT, alpha=-2).clamp_min_(0)
    median = distance.flatten(1).median(1).values.clamp_min(TINY)[:, None, None]
    distance /= -median
    kernel, slope = torch.zeros_like(distance), torch.zeros_like(distance)
    for width in WIDTHS:
        part = (distance / width).exp_()
        kernel += part
        slope.add_(part, alpha=-1 / width)
    return kernel / len(WIDTHS), slope / (len(WIDTHS) * median)


def centre(kernel: Float[Tensor, "cells n n"]) -> Float[Tensor, "cells n n"]:
    """U-centring: then Σ A∘B / (n (n - 3)) is the unbiased covariance of two kernels.

    Reference: Szekely and Rizzo 2014, equation 2.

    Example:
        >>> centred = centre(torch.rand(2, 6, 6))
        >>> bool(centred.diagonal(dim1=1, dim2=2).any()), bool(centred.sum(1).abs().max() < 1e-5)
        (False, False)
    """
    n = kernel.shape[-1]
    kernel = kernel.clone()
    kernel.diagonal(dim1=1, dim2=2).zero_()
    rows = kernel.sum(2) / (n - 2)
    mean = rows.sum(1)[:, None, None] / (n - 1)
    kernel -= rows[:, :, None] - mean
    kernel -= rows[:, None]
    kernel.diagonal(dim1=1, dim2=2).zero_()
    return kernel


class _Correlation(torch.autograd.Function):
    """The correlation of the centred kernel of x with another centred one.

    Its gradient in closed form takes half as many passes over n² numbers as autograd's.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, other: Tensor) -> Tensor:
        kernel, slope = mix_kernels(x)
        own = centre(kernel)
        ab, aa, bb = ((p * q).sum((1, 2), keepdim=True)
                      for p, q in ((own, other), (own, own), (other, other)))  # fmt: skip
        h = ab / (aa * bb).sqrt()
        ctx.save_for_backward(x, slope, own, other, h / aa, (aa * bb).rsqrt())
        return h.flatten()

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:  # pyright: ignore
        x, slope, own, other, back, scale = ctx.saved_tensors
        pull = other * scale  # centring is a projection: the gradient of centred kernels is centred
        pull -= own * back
        pull *= slope
        pull *= g[:, None, None]
        return 4 * (pull.sum(2, keepdim=True) * x - pull @ x), None


def effective_rank(x: Float[Tensor, "cells n d"]) -> Float[Tensor, " cells"]:
    """(Σ λ)² / Σ λ² of the covariance of standardised columns."""
    covariance = x.mT @ x
    trace = covariance.diagonal(dim1=1, dim2=2).sum(1)
    return trace**2 / covariance.square().sum((1, 2))


class _Project(torch.autograd.Function):
    """Keeps a gradient from moving the mean and the scale of the columns of a batch."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x.clone()

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        (x,) = ctx.saved_tensors
        h = x - x.mean(1, keepdim=True)
        h = h / (h.std(1, correction=0, keepdim=True) + TINY)
        g = g - g.mean(1, keepdim=True)
        return g - h * (g * h).mean(1, keepdim=True)


def project(x: Float[Tensor, "cells n d"]) -> Float[Tensor, "cells n d"]:
    """The same x; its gradient loses what would move or scale a column as a whole.

    Example:
        >>> x = torch.randn(1, 9, 2, requires_grad=True)
        >>> (project(x) * 3).sum().backward()
        >>> bool(x.grad.abs().max() < 1e-5)
        True
    """
    return _Project.apply(x)  # pyright: ignore[reportReturnType]
