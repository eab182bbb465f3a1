"""How much consecutive rows depend on each other, and what that does to errors and tests.

The mean of n dependent values has the variance of n / τ independent ones, with

    τ = 1 + 2 sum_h w(h) ρ(h),

ρ the autocorrelation. Far autocorrelations are noise: they count up to twice the last one that
stands out, with the flat-top weights w of Politis and Romano, and the same rule gives the length of
blocks of rows that may be taken as independent.

References: Politis and White 2004 (the rule, equations 9 and 10), Patton, Politis and White 2009
(the constant of it).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from jaxtyping import Float

STANDS_OUT = 2.0  # times sqrt(log10(n) / n), from which on an autocorrelation is no noise
RUN = 5  # autocorrelations in a row that must be noise
MOST_LAGS = 1000  # of an autocorrelation
ROOTS = 3.0  # a block has at most so many times the root of n rows, as Politis and White have it
THIRD = 3  # and at most this part of the rows
STRETCHES = 8  # rows over τ, below which a series looks like a random walk


def autocovariances(values: Float[np.ndarray, "n d"], most: int) -> Float[np.ndarray, "m d d"]:
    """Covariances of a row with the h-th row after it, for h = 0 ... ``most``.

    Args:
        values: one row per time, of any mean.
        most: the last h.

    Example:
        >>> alternating = np.tile([[1.0], [-1.0]], (50, 1))
        >>> autocovariances(alternating, 2)[:, 0, 0].round(2)
        array([ 1.  , -0.99,  0.98])
    """
    z = values - values.mean(0)
    n = len(z)
    return np.stack([z[: n - h].T @ z[h:] / n for h in range(min(most, n - 1) + 1)])


def autocorrelation(values: Float[np.ndarray, " n"]) -> Float[np.ndarray, " m"]:
    """Autocorrelation of one column, by a Fourier transform; zero where it does not vary."""
    n = len(values)
    most = min(n - 1, MOST_LAGS)
    z = values - values.mean()
    spectrum = np.abs(np.fft.rfft(z, 2 * n)) ** 2
    sums = np.fft.irfft(spectrum, 2 * n)[: most + 1]
    return sums / sums[0] if sums[0] > 0 else np.zeros(most + 1)


def bandwidth(rho: Float[np.ndarray, " m"], n: int) -> int:
    """Twice the last lag at which an autocorrelation stands out of the noise of n rows.

    Example:
        >>> bandwidth(0.5 ** np.arange(100), 1000)
        6
    """
    loud = np.abs(rho[1:]) >= STANDS_OUT * math.sqrt(math.log10(max(n, 10)) / n)
    noise = np.convolve(loud, np.ones(RUN), "valid") == 0
    last = int(noise.argmax()) if noise.any() else len(rho) - 1
    return min(max(1, 2 * last), len(rho) - 1)


def flat_top(most: int) -> Float[np.ndarray, " m"]:
    """Weights of the lags 0 ... ``most``: 1 up to the half, then falling to zero.

    Example:
        >>> flat_top(4)
        array([1. , 1. , 1. , 0.5, 0. ])
    """
    return np.clip(2 - 2 * np.arange(most + 1) / max(most, 1), 0, 1)


def inflation(rho: Float[np.ndarray, " m"], n: int) -> float:
    """τ: by how much the variance of a mean is larger than for independent rows; at least 1.

    Example:
        >>> round(inflation(0.5 ** np.arange(100), 10**6), 2)  # the truth is (1 + 0.5) / (1 - 0.5)
        3.0
    """
    most = bandwidth(rho, n)
    return max(1.0, float(1 + 2 * flat_top(most)[1:] @ rho[1 : most + 1]))


def block_length(rho: Float[np.ndarray, " m"], n: int) -> int:
    """Rows of a block, by the rule of Politis and White for a circular bootstrap; 1 for no blocks.

    Example:
        >>> block_length(np.eye(1, 100)[0], 1000), block_length(0.9 ** np.arange(200), 1000)
        (1, 46)
    """
    most = bandwidth(rho, n)
    weights, lags = flat_top(most), np.arange(most + 1)
    level = 2 * float((weights * rho[: most + 1])[1:].sum()) + rho[0]
    slope = 2 * float((weights * lags * rho[: most + 1]).sum())
    if slope <= 0 or level <= 0:
        return 1
    found = (1.5 * (slope / level) ** 2 * n) ** (1 / 3)
    return max(1, min(math.ceil(found), math.ceil(ROOTS * math.sqrt(n)), max(1, n // THIRD)))


def long_run_error(shares: Float[np.ndarray, " n"]) -> tuple[float, int]:
    """Standard error of the mean of dependent values, and the length of their blocks.

    Example:
        >>> independent = np.random.default_rng(0).normal(size=10_000)
        >>> error, block = long_run_error(independent)
        >>> round(error, 3), block
        (0.01, 1)
    """
    n = len(shares)
    rho = autocorrelation(shares)
    variance = float(shares.var(ddof=1)) * inflation(rho, n)
    return math.sqrt(variance / n), block_length(rho, n)
