import math

import numpy as np
import pytest
import torch
from scipy.integrate import simpson
from scipy.special import logsumexp
from scipy.stats import multivariate_normal

from mibounds.tasks import TASKS, JointGaussian, JointGaussianMixture

# unequal weights, full covariances, x_dim != y_dim
WIDE = JointGaussianMixture(
    2,
    (0.2, 0.5, 0.3),
    ((0.0, 1.0, -1.0), (2.0, 0.0, 1.0), (-1.0, -1.0, 0.5)),
    (
        JointGaussian.dense(2, 1, 0.6).covariance,
        JointGaussian.random(2, 1).covariance,
        JointGaussian.sparse(2, 1, -0.9).covariance,
    ),
)


def log_density(task: JointGaussianMixture, z, columns: slice) -> np.ndarray:
    parts = [
        math.log(w)
        + multivariate_normal(np.array(m)[columns], np.array(s)[columns, columns]).logpdf(z)
        for w, m, s in zip(task.weights, task.means, task.covariances, strict=True)
    ]
    return logsumexp(np.array(parts), axis=0)


def test_densities_against_scipy():
    x, y = WIDE.sample(200, 0, torch.float64)
    z = torch.cat((x, y), 1).numpy()
    joint, of_x = log_density(WIDE, z, slice(None)), log_density(WIDE, x.numpy(), slice(0, 2))
    of_y = log_density(WIDE, y.numpy()[:, 0], slice(2, 3))
    np.testing.assert_allclose(WIDE.log_ratio(x, y), joint - of_x - of_y, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(WIDE.conditional(x).log_prob(y), joint - of_x, rtol=1e-9, atol=1e-9)


def test_samples_have_the_moments_of_the_mixture():
    x, y = WIDE.sample(200_000, 0, torch.float64)
    w, m, s = np.array(WIDE.weights), np.array(WIDE.means), np.array(WIDE.covariances)
    mean = w @ m
    covariance = np.einsum("k,kij->ij", w, s + np.einsum("ki,kj->kij", m - mean, m - mean))
    z = torch.cat((x, y), 1).numpy()
    np.testing.assert_allclose(z.mean(0), mean, atol=0.02)
    np.testing.assert_allclose(np.cov(z.T), covariance, atol=0.04)


@pytest.mark.parametrize("name", ["mixture-cross", "mixture-balls"])
def test_quadrature_against_scipy_and_monte_carlo(name):
    task = TASKS[name]
    axis = np.linspace(-7, 7, 1401)
    a, b = np.meshgrid(axis, axis, indexing="ij")
    joint = log_density(task, np.stack((a, b), -1), slice(None))
    of_x, of_y = log_density(task, axis, slice(0, 1)), log_density(task, axis, slice(1, 2))
    integrand = np.exp(joint) * (joint - of_x[:, None] - of_y)
    expected = simpson(simpson(integrand, x=axis), x=axis)
    assert task.mutual_information_error < 1e-7
    assert task.mutual_information == pytest.approx(expected, abs=1e-7)
    value, error = task._monte_carlo()
    assert 0 < error < 1e-3
    assert abs(value - task.mutual_information) < 5 * error


@pytest.mark.parametrize("task", [JointGaussian.dense(1, 1, 0.7), JointGaussian.dense(2, 1, 0.5)])
def test_one_component_is_a_gaussian(task):
    mixture = JointGaussianMixture(
        task.x_dim, (1.0,), ((3.0,) * len(task.covariance),), (task.covariance,)
    )
    assert abs(mixture.mutual_information - task.mutual_information) < (
        5 * mixture.mutual_information_error + 1e-9
    )
    assert (mixture.mutual_information_error > 1e-5) == (task.x_dim == 2)  # Monte Carlo or not


def test_weights_are_normalised():
    gaussian = JointGaussian.dense(1, 1, 0.7)
    mixture = JointGaussianMixture(1, (1 + 5e-7,), ((0.0, 0.0),), (gaussian.covariance,))
    x, y = gaussian.sample(10, 0, torch.float64)
    torch.testing.assert_close(mixture.log_ratio(x, y), gaussian.log_ratio(x, y), rtol=0, atol=1e-9)


def test_distant_balls_share_their_label():
    task = JointGaussianMixture.balls(1, ((0.0, 0.0), (9.0, 9.0), (18.0, 18.0)), scale=0.5)
    assert task.mutual_information == pytest.approx(math.log(3), abs=1e-9)
    corners = JointGaussianMixture.balls(
        1, ((1.0, 1.0), (1.0, -1.0), (-1.0, 1.0), (-1.0, -1.0)), 0.5
    )
    assert corners.mutual_information == pytest.approx(0, abs=1e-9)  # a product


def test_cross_is_uncorrelated_with_normal_marginals():
    x, y = TASKS["mixture-cross"].sample(200_000, 0, torch.float64)
    np.testing.assert_allclose(np.cov(x[:, 0], y[:, 0]), np.eye(2), atol=0.02)
    assert (x.abs().flatten() * y.abs().flatten()).mean() > 2 / math.pi + 0.1  # yet dependent


def test_narrow_components_fall_back_to_monte_carlo():
    task = JointGaussianMixture.cross(1 - 1e-6)
    assert task.mutual_information_error > 1e-5
    # two Gaussians less the label that tells them apart, which is known but near the centre
    single = -math.log(1 - (1 - 1e-6) ** 2) / 2
    assert single - math.log(2) < task.mutual_information < single


def test_value_is_cached_by_instance(monkeypatch):
    task = JointGaussianMixture.balls(2, ((0.0, 0.0, 0.0), (1.0, 1.0, 1.0)), 0.5)
    first = task.mutual_information
    monkeypatch.setattr(JointGaussianMixture, "_monte_carlo", None)
    assert task.mutual_information == first


ONE, EYE = ((0.0, 0.0),), (((1.0, 0.0), (0.0, 1.0)),)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: JointGaussianMixture(0, (1.0,), ONE, EYE),
            "Expected x_dim to be an integer of at least 1",
        ),
        (
            lambda: JointGaussianMixture(2, (1.0,), ONE, EYE),
            "Expected x_dim to leave at least one coordinate to y but got x_dim 2 of 2 coordinates",
        ),
        (
            lambda: JointGaussianMixture(1, (0.5, 0.5), ONE, EYE),
            r"Expected shapes \(1,\) of weights and \(1, 2, 2\) of covariances but got \(2,\) and",
        ),
        (
            lambda: JointGaussianMixture(1, (0.9,), ONE, EYE),
            r"Expected weights to be positive with sum 1 within 1e-6 but got \(0.9,\); drop empty",
        ),
        (
            lambda: JointGaussianMixture(1, (1.0, 0.0), ONE * 2, EYE * 2),
            "Expected weights to be positive with sum 1 within 1e-6 but got",
        ),
        (
            lambda: JointGaussianMixture(1, ((1.0,),), ONE, EYE),
            "Expected weights to be finite numbers",
        ),
        (
            lambda: JointGaussianMixture(1, (1.0,), (0.0,), EYE),
            "Expected means to be finite numbers",
        ),
        (
            lambda: JointGaussianMixture(1, (1.0,), ONE, ONE),
            "Expected covariances to be finite numbers",
        ),
        (
            lambda: JointGaussianMixture.cross(1.0),
            "Expected covariance to be positive definite but got",
        ),
        (
            lambda: JointGaussianMixture.balls(1, ONE, 0.0),
            "Expected scale to be positive and finite but got 0.0; give the radius",
        ),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_errors(make, message):
    with pytest.raises(ValueError, match=message):
        make()
