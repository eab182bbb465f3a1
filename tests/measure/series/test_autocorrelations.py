"""How much rows depend on those before them."""

import numpy as np
import pytest

from mibounds.measure.series.autocorrelations import (
    autocorrelation,
    autocovariances,
    bandwidth,
    block_length,
    flat_top,
    inflation,
    long_run_error,
)


def series(rho, n, seed=0):
    rng = np.random.default_rng(seed)
    z = rng.normal(size=n)
    for t in range(1, n):
        z[t] = rho * z[t - 1] + np.sqrt(1 - rho**2) * z[t]
    return z


def test_autocorrelation_is_the_plain_sum():
    z = series(0.7, 60)
    c = z - z.mean()
    plain = [sum(c[t] * c[t + h] for t in range(60 - h)) / (c @ c) for h in range(60)]
    assert autocorrelation(z) == pytest.approx(plain)
    assert not autocorrelation(np.ones(9)).any()


def test_autocovariances_are_the_plain_sums():
    z = np.random.default_rng(0).normal(size=(20, 3))
    c = z - z.mean(0)
    found = autocovariances(z, 2)
    for h in range(3):
        plain = sum(np.outer(c[t], c[t + h]) for t in range(20 - h)) / 20
        assert found[h] == pytest.approx(plain)


@pytest.mark.parametrize("rho", [0.0, 0.5, 0.9])
def test_inflation_comes_near_the_truth(rho):
    found = [inflation(autocorrelation(series(rho, 5000, s)), 5000) for s in range(10)]
    assert np.mean(found) == pytest.approx((1 + rho) / (1 - rho), rel=0.1)


def test_the_error_of_dependent_rows_is_that_of_their_means():
    means = [series(0.8, 1000, s).mean() for s in range(300)]
    errors = [long_run_error(series(0.8, 1000, s))[0] for s in range(30)]
    assert np.mean(errors) == pytest.approx(np.std(means), rel=0.12)


def test_blocks_are_longer_where_rows_depend_on_each_other_for_longer():
    lengths = [block_length(autocorrelation(series(rho, 2000)), 2000) for rho in (0.0, 0.5, 0.9)]
    assert lengths[0] < 5 < lengths[1] < lengths[2] < 200
    walk = np.cumsum(np.random.default_rng(0).normal(size=900))
    assert block_length(autocorrelation(walk), 900) <= 90  # three roots of the rows
    assert block_length(np.array([1.0, -0.9, 0.8]), 900) == 1


def test_weights_and_bandwidth():
    assert bandwidth(np.eye(1, 50)[0], 100) == 1
    assert bandwidth(np.ones(50), 100) == 49
    assert flat_top(1).tolist() == [1.0, 0.0]
