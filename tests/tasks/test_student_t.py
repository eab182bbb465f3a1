import math

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_t
from torch.distributions import StudentT as UnivariateStudentT

from mibounds.tasks import JointGaussian, JointStudentT, MultivariateStudentT

CASES = [
    JointStudentT(JointGaussian.dense(3, 2, 0.5), 1.0),
    JointStudentT(JointGaussian.sparse(2, 4, 0.8, pairs=2), 2.5),
    JointStudentT(JointGaussian.random(4, 2), 10.0),
]


@pytest.mark.parametrize("task", CASES, ids=["dense", "sparse", "random"])
def test_against_scipy(task):
    m, s = (
        task.x_dim,
        np.array(task.gaussian.covariance),
    )
    joint, of_x, of_y = (multivariate_t(shape=c, df=task.df) for c in (s, s[:m, :m], s[m:, m:]))
    assert task.mutual_information == pytest.approx(
        of_x.entropy() + of_y.entropy() - joint.entropy(), rel=1e-6
    )
    x, y = task.sample(200, 0, torch.float64)
    z = torch.cat((x, y), 1)
    given_x = joint.logpdf(z) - of_x.logpdf(x)
    expected = given_x - of_y.logpdf(y)
    np.testing.assert_allclose(task.log_ratio(x, y), expected, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(task.conditional(x).log_prob(y), given_x, rtol=1e-8, atol=1e-8)


def test_uncorrelated_is_not_independent():
    assert JointStudentT(JointGaussian.sparse(3, 2, 0.0), 1.0).mutual_information == pytest.approx(
        0.5
    )
    # two uncorrelated Cauchy variables: f(1) + f(3) - 2 f(2) with digammas written out
    cauchy = JointStudentT(JointGaussian.sparse(1, 1, 0.0), 1.0).mutual_information
    assert cauchy == pytest.approx(math.log(8 * math.pi) - 3, rel=1e-9)


def test_many_degrees_of_freedom_are_gaussian():
    gaussian = JointGaussian.dense(3, 2, 0.5)
    student = JointStudentT(gaussian, 1e6)
    assert student.mutual_information == pytest.approx(gaussian.mutual_information, abs=1e-5)
    x, y = gaussian.sample(100, 0, torch.float64)
    torch.testing.assert_close(
        student.log_ratio(x, y), gaussian.log_ratio(x, y), rtol=1e-3, atol=1e-3
    )


def test_distribution_moments_and_gradient():
    df = torch.tensor([5.0, 8.0], dtype=torch.float64)
    loc = torch.tensor([[1.0, -2.0]], dtype=torch.float64, requires_grad=True)
    tril = torch.tensor([[1.0, 0.0], [0.5, 2.0]], dtype=torch.float64)
    p = MultivariateStudentT(df, loc, tril)
    assert (p.batch_shape, p.event_shape) == ((2,), (2,))
    with torch.random.fork_rng():
        torch.manual_seed(0)
        draws = p.rsample(torch.Size([200_000]))
    torch.testing.assert_close(draws.mean(0), p.mean, rtol=0, atol=0.03)
    torch.testing.assert_close(draws.var(0), p.variance, rtol=0.05, atol=0)
    (gradient,) = torch.autograd.grad(draws.mean(0).sum(), loc)
    torch.testing.assert_close(gradient, torch.full_like(gradient, 2.0))
    with torch.random.fork_rng():
        torch.manual_seed(0)
        assert p.sample().requires_grad is False


def test_distribution_in_one_dimension_is_torchs():
    df = torch.tensor([0.5, 1.5, 3.0], dtype=torch.float64)
    y = torch.linspace(-3, 3, 3, dtype=torch.float64)[:, None]
    p = MultivariateStudentT(df, torch.zeros(3, 1).double(), 2 * torch.eye(1).double())
    torch.testing.assert_close(p.log_prob(y), UnivariateStudentT(df, 0.0, 2.0).log_prob(y[:, 0]))
    assert p.mean.isnan().tolist() == [[True], [False], [False]]
    assert p.variance[0].isnan().all()
    assert p.variance[1].isinf().all()
    assert p.variance[2].item() == pytest.approx(12.0)


def test_distribution_expands_and_validates():
    p = MultivariateStudentT(torch.tensor(3.0), torch.zeros(2), torch.eye(2)).expand((4, 3))
    assert p.batch_shape == (4, 3)
    assert p.log_prob(torch.zeros(5, 1, 1, 2)).shape == (5, 4, 3)
    # Said, since torch's default is global, and zuko switches it off.
    with pytest.raises(ValueError, match="df"):
        MultivariateStudentT(torch.tensor(-1.0), torch.zeros(2), torch.eye(2), validate_args=True)
    q = MultivariateStudentT(torch.tensor(3.0), torch.zeros(2), torch.eye(2), validate_args=True)
    with pytest.raises(ValueError, match="within the support"):
        q.log_prob(torch.full((2,), math.nan))


@pytest.mark.parametrize("df", [0.0, -1.0, math.inf, math.nan])
def test_df_error(df):
    message = f"Expected df to be positive and at most 1e8 but got {df}; for the limit of large df"
    with pytest.raises(ValueError, match=message):
        JointStudentT(JointGaussian.dense(1, 1, 0.5), df)


@pytest.mark.usefixtures("unchecked")
def test_gaussian_error():
    message = "Expected gaussian to be a JointGaussian but got 3; give one whose covariance"
    with pytest.raises(ValueError, match=message):
        JointStudentT(3, 1.0)
