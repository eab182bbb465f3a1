import math

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal

from mibounds.tasks import TASKS, CorrelatedGaussian, JointGaussian

# d = 20: mutual information, CLUB with the exact conditional, variance of the pointwise log-ratio
CLUB_SIMULATION = [
    (2.0, 4.43, 3.63),
    (4.0, 9.84, 6.59),
    (6.0, 16.44, 9.02),
    (8.0, 24.51, 11.01),
    (10.0, 34.37, 12.64),
]


@pytest.mark.parametrize(("nats", "club", "variance"), CLUB_SIMULATION)
def test_closed_forms_of_the_club_simulation(nats, club, variance):
    task = CorrelatedGaussian.from_mutual_information(20, nats)
    assert task.mutual_information == pytest.approx(nats, rel=1e-12)
    assert task.club == pytest.approx(club, abs=0.005)
    assert task.club == pytest.approx(20 * math.expm1(nats / 10), rel=1e-12)
    assert 20 * task.correlation**2 == pytest.approx(variance, abs=0.006)


@pytest.mark.parametrize("name", ["gaussian-2", "gaussian-6", "cubic-4", "cubic-w-4"])
def test_club_and_variance_from_samples(name):
    """Exact CLUB is the mean log-ratio of the joint less that of the product."""
    task = TASKS[name]
    gaussian = task if isinstance(task, CorrelatedGaussian) else task.task
    x, y = (a.double() for a in task.sample(200_000, 0))
    joint, product = task.log_ratio(x, y), task.log_ratio(x, y.roll(1, 0))
    error = ((joint.var() + product.var()) / len(x)).sqrt().item()
    assert error < 0.05
    assert abs((joint.mean() - product.mean()).item() - gaussian.club) < 5 * error
    assert joint.var().item() == pytest.approx(20 * gaussian.correlation**2, rel=0.03)


def test_correlation_and_information_invert_each_other():
    for rho in (0.0, 1e-6, 0.3, 0.999):
        nats = CorrelatedGaussian(3, rho).mutual_information
        again = CorrelatedGaussian.from_mutual_information(3, nats)
        assert again.correlation == pytest.approx(rho, rel=1e-9)
    assert CorrelatedGaussian(3, -0.5).mutual_information == pytest.approx(-1.5 * math.log(0.75))


def test_correlated_is_a_special_case_of_sparse():
    diagonal, general = CorrelatedGaussian(3, 0.7), JointGaussian.sparse(3, 3, 0.7, pairs=3)
    x, y = diagonal.sample(50, 0, torch.float64)
    assert diagonal.mutual_information == pytest.approx(general.mutual_information, rel=1e-12)
    torch.testing.assert_close(diagonal.log_ratio(x, y), general.log_ratio(x, y))
    expected = general.conditional(x).log_prob(y)
    torch.testing.assert_close(diagonal.conditional(x).log_prob(y), expected)


@pytest.mark.parametrize(
    "task",
    [
        JointGaussian.dense(3, 2, 0.5),
        JointGaussian.sparse(2, 4, -0.8, pairs=2),
        JointGaussian.random(4, 2, seed=3),
    ],
    ids=["dense", "sparse", "random"],
)
def test_general_covariance_against_scipy(task):
    m, s = task.x_dim, np.array(task.covariance)
    joint, of_x, of_y = (multivariate_normal(cov=c) for c in (s, s[:m, :m], s[m:, m:]))
    assert task.mutual_information == pytest.approx(
        of_x.entropy() + of_y.entropy() - joint.entropy(), rel=1e-9
    )
    x, y = task.sample(50_000, 0, torch.float64)
    z = torch.cat((x, y), 1)
    np.testing.assert_allclose(np.cov(z.T.numpy()), s, atol=0.03)
    x, y, z = x[:100], y[:100], z[:100]
    expected = joint.logpdf(z) - of_x.logpdf(x) - of_y.logpdf(y).reshape(-1)
    np.testing.assert_allclose(task.log_ratio(x, y), expected, rtol=1e-9, atol=1e-9)
    expected = joint.logpdf(z) - of_x.logpdf(x)
    np.testing.assert_allclose(task.conditional(x).log_prob(y), expected, rtol=1e-9, atol=1e-9)


def test_dense_and_sparse_closed_forms():
    assert JointGaussian.sparse(5, 3, 0.8, pairs=2).mutual_information == pytest.approx(
        -math.log(0.36)
    )
    # the sums over x and over y carry everything, with this squared correlation
    m, n, c = 3, 2, 0.5
    r2 = m * n * c**2 / ((1 + (m - 1) * c) * (1 + (n - 1) * c))
    assert JointGaussian.dense(m, n, c).mutual_information == pytest.approx(-math.log(1 - r2) / 2)


def test_random_is_fixed_by_its_seed():
    assert JointGaussian.random(3, 2, seed=1) == JointGaussian.random(3, 2, seed=1)
    assert JointGaussian.random(3, 2, seed=1) != JointGaussian.random(3, 2, seed=2)
    np.testing.assert_allclose(np.diag(JointGaussian.random(3, 2).covariance), 1)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: CorrelatedGaussian(0, 0.5),
            "Expected dim to be an integer of at least 1 but got 0",
        ),
        (lambda: CorrelatedGaussian(2.5, 0.5), "Expected dim to be an integer .* but got 2.5"),
        (
            lambda: CorrelatedGaussian(2, 1.0),
            "Expected correlation to lie strictly between -1 and 1 but got 1.0; give one",
        ),
        (lambda: CorrelatedGaussian(2, math.nan), "Expected correlation to lie .* but got nan"),
        (
            lambda: CorrelatedGaussian.from_mutual_information(2, -1.0),
            "Expected mutual_information to be finite and not negative but got -1.0; give",
        ),
        (
            lambda: CorrelatedGaussian.from_mutual_information(2, math.inf),
            "Expected mutual_information to be finite and not negative but got inf",
        ),
        (
            lambda: CorrelatedGaussian.from_mutual_information(0, 1.0),
            "Expected dim to be an integer of at least 1 but got 0",
        ),
        (
            lambda: JointGaussian(0, ((1.0,),)),
            "Expected x_dim to be an integer of at least 1 but got 0",
        ),
        (
            lambda: JointGaussian(2, ((1.0, 0.0), (0.0, 1.0))),
            "Expected x_dim to leave at least one coordinate to y but got x_dim 2 of 2 coord",
        ),
        (
            lambda: JointGaussian(1, ((1.0, 0.5), (0.4, 1.0))),
            "Expected covariance to be a symmetric matrix but got .*; give the whole matrix",
        ),
        (
            lambda: JointGaussian(1, ((1.0, 0.5),)),
            "Expected covariance to be a symmetric matrix but got",
        ),
        (
            lambda: JointGaussian.dense(2, 2, -0.5),
            "Expected covariance to be positive definite but got a smallest eigenvalue of -0.5",
        ),
        (
            lambda: JointGaussian.sparse(3, 2, 0.5, pairs=3),
            "Expected pairs to lie between 0 and 2, the smaller dimension but got 3; give fewer",
        ),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_errors(make, message):
    with pytest.raises(ValueError, match=message):
        make()
