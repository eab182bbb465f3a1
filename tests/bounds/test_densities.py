import math

import naive
import pytest
import torch
from torch import distributions as D

from mibounds.bounds import densities
from mibounds.samples import pairs
from mibounds.samples.batches import Batch
from mibounds.tasks import SignedPower, Transformed, UniformNoise

N, DIM = 9, 3
DOUBLE = {"dtype": torch.float64}


def tril(n=N):
    lower = torch.randn(n, DIM, DIM, **DOUBLE).tril(-1)
    return lower + torch.diag_embed(torch.rand(n, DIM, **DOUBLE) + 0.5)


def families():
    """Conditionals with N elements, each with samples y of its own kind; closed forms first."""
    loc, scale = torch.randn(N, DIM, **DOUBLE), torch.rand(N, DIM, **DOUBLE) + 0.5
    real = torch.randn(N, DIM, **DOUBLE)
    mixture = D.MixtureSameFamily(
        D.Categorical(logits=torch.randn(N, 2, **DOUBLE)),
        D.Independent(D.Normal(torch.randn(N, 2, DIM, **DOUBLE), 1.0), 1),
    )
    return {
        "normal": (D.Normal(loc[:, 0], scale[:, 0]), real[:, 0]),
        "diagonal": (D.Independent(D.Normal(loc, scale), 1), real),
        "full": (D.MultivariateNormal(loc, scale_tril=tril()), real),
        "full, one covariance": (D.MultivariateNormal(loc, scale_tril=tril(1)[0]), real),
        "low rank": (
            D.LowRankMultivariateNormal(loc, torch.randn(N, DIM, 2, **DOUBLE), scale),
            real,
        ),
        "categorical": (D.Categorical(logits=torch.randn(N, 4, **DOUBLE)), torch.arange(N) % 4),
        "bernoulli": (
            D.Independent(D.Bernoulli(logits=loc), 1),
            (real > 0).to(torch.float64),
        ),
        "poisson": (D.Independent(D.Poisson(scale), 1), real.abs().floor()),
        "geometric": (D.Independent(D.Geometric(scale / 3), 1), real.abs().floor()),
        "exponential": (D.Independent(D.Exponential(scale), 1), real.abs()),
        "gamma": (D.Independent(D.Gamma(2 * scale, scale), 1), real.abs()),
        "beta": (D.Independent(D.Beta(scale, 2 * scale), 1), real.sigmoid()),
        "log-normal": (D.Independent(D.LogNormal(loc, scale), 1), real.exp()),
        "mixture": (mixture, real),
        "student": (D.Independent(D.StudentT(5.0, loc, scale), 1), real),
        "laplace": (D.Independent(D.Laplace(loc, scale), 1), real),
        "two event dimensions": (
            D.Independent(D.StudentT(5.0, loc[..., None], 1.0), 2),
            real[..., None],
        ),
    }


CLOSED = tuple(families())[:13]
DISCRETE = ("categorical", "bernoulli", "poisson", "geometric")


@pytest.mark.parametrize("name", families())
def test_every_way_to_ask_agrees_with_log_prob_pair_by_pair(name):
    p, y = families()[name]
    matrix = densities.log_prob_pairs(p, y)
    assert matrix.shape == (N, N)
    for j in range(N):
        repeated = y[j].expand(N, *y.shape[1:])
        torch.testing.assert_close(matrix[:, j], p.log_prob(repeated))
    torch.testing.assert_close(densities.log_prob(p, y), matrix.diagonal())
    torch.testing.assert_close(densities.log_prob_mean(p, y), matrix.mean(1))
    torch.testing.assert_close(densities.log_prob_mean(p, y[:5]), matrix[:, :5].mean(1))
    index = torch.randint(N, (N, 4))
    torch.testing.assert_close(densities.log_prob_at(p, y, index), matrix.gather(1, index))
    every = densities.all_pairs(p, y, Batch(N))
    torch.testing.assert_close(every.block(y, *every.rows), matrix)
    torch.testing.assert_close(every.diagonal, matrix.diagonal())


def test_pairs_are_the_naive_equation():
    p, y = families()["diagonal"]
    expected = naive.log_normal(y, p.mean, p.variance)
    torch.testing.assert_close(densities.log_prob_pairs(p, y), expected)


@pytest.mark.parametrize("name", families())
def test_closed_forms_need_no_pairs(name, monkeypatch):
    """The linear cost is that of never forming the pairs; the others do form them."""
    p, y = families()[name]

    def no_pairs(*_):
        raise AssertionError

    monkeypatch.setattr(densities, "log_prob_pairs", no_pairs)
    if name in CLOSED:
        densities.log_prob_mean(p, y)
    else:
        with pytest.raises(AssertionError):
            densities.log_prob_mean(p, y)


@pytest.mark.parametrize("name", [n for n in CLOSED if n not in DISCRETE])
def test_closed_forms_have_the_gradient_of_the_mean_of_pairs(name):
    p, y = families()[name]
    y = y.clone().requires_grad_()
    weights = torch.randn(N, **DOUBLE)
    closed = torch.autograd.grad(weights @ densities.log_prob_mean(p, y), y)[0]
    plain = torch.autograd.grad(weights @ densities.log_prob_pairs(p, y).mean(1), y)[0]
    torch.testing.assert_close(closed, plain)


def test_a_mean_in_blocks_is_the_mean(monkeypatch):
    p, y = families()["student"]
    whole = densities.log_prob_mean(p, y)
    monkeypatch.setattr(pairs, "BLOCK", 1)
    monkeypatch.setattr(pairs, "FEWEST", 2)
    torch.testing.assert_close(densities.log_prob_mean(p, y), whole)


@pytest.mark.parametrize("name", ["diagonal", "full", "low rank"])
def test_closed_forms_keep_their_digits_at_a_large_offset(name):
    """float32, mean 1e6 and spread of order 1: numbers that float32 holds to 1/16."""
    y = torch.randint(-40, 40, (500, DIM)) / 16
    loc = y[:N] + torch.randint(-8, 8, (N, DIM)) / 16
    scale = torch.rand(N, DIM) + 0.5

    def make(shift, dtype):
        at = (loc + shift).to(dtype)
        if name == "diagonal":
            return D.Independent(D.Normal(at, scale.to(dtype)), 1)
        if name == "full":
            return D.MultivariateNormal(at, scale_tril=torch.diag_embed(scale.to(dtype)))
        return D.LowRankMultivariateNormal(at, torch.ones(N, DIM, 1, dtype=dtype), scale.to(dtype))

    exact = densities.log_prob_pairs(make(0.0, torch.float64), y.double()).mean(1)
    far = densities.log_prob_mean(make(1e6, torch.float32), y + 1e6)
    torch.testing.assert_close(far.double(), exact, rtol=1e-5, atol=1e-4)


# --- zero probabilities --------------------------------------------------------------------------


def test_zero_log_zero_is_zero_and_log_zero_is_minus_infinity():
    p = D.Categorical(probs=torch.tensor([[0.5, 0.5, 0.0], [0.2, 0.3, 0.5], [0.0, 1.0, 0.0]]))
    y = torch.tensor([0, 1, 1])
    mean = densities.log_prob_mean(p, y)
    assert mean.isnan().sum() == 0
    torch.testing.assert_close(mean[0], torch.tensor(0.5).log())  # class 2 never occurs: 0 log 0
    assert mean[2] == -math.inf
    pairs = densities.log_prob_pairs(p, torch.tensor([0, 1, 2]))
    assert (pairs == -math.inf).tolist() == [[0, 0, 1], [0, 0, 0], [1, 0, 1]]


def test_very_small_probabilities_given_as_logits_are_not_zero():
    p = D.Categorical(logits=torch.tensor([[0.0, -300.0], [0.0, 0.0]]))
    assert densities.log_prob_pairs(p, torch.tensor([1, 1]))[0, 0] == -300
    b = D.Bernoulli(logits=torch.tensor([-300.0, 300.0]))
    torch.testing.assert_close(
        densities.log_prob_pairs(b, torch.tensor([1.0, 0.0])),
        torch.tensor([[-300.0, 0.0], [0.0, -300.0]]),
    )


def test_certain_bernoulli():
    p = D.Bernoulli(probs=torch.tensor([0.0, 1.0, 0.5]))
    pairs = densities.log_prob_pairs(p, torch.tensor([0.0, 1.0]))
    assert pairs[0].tolist() == pytest.approx([0.0, -math.inf], abs=1e-6)
    assert pairs[1].tolist() == pytest.approx([-math.inf, 0.0], abs=1e-6)
    assert densities.log_prob_mean(p, torch.zeros(3))[0] == pytest.approx(0.0, abs=1e-6)
    assert densities.log_prob_mean(p, torch.tensor([0.0, 1.0, 1.0]))[:2].tolist() == [-math.inf] * 2


def uniforms():
    task = UniformNoise(0.25)
    x, y = task.sample(40, 0)
    cubed = Transformed(task, y_maps=(SignedPower(3.0),))
    x3, y3 = cubed.sample(40, 0)
    return {
        "uniform": (task.conditional(x), y, (y.T - x).abs() <= 0.25),
        "cubed": (cubed.conditional(x3), y3, (y.T - x).abs() <= 0.25),
    }


@pytest.mark.parametrize("name", ["uniform", "cubed"])
def test_outside_a_bounded_support_the_density_is_zero_and_the_gradient_is_not_nan(name):
    p, y, inside = uniforms()[name]
    y = y.clone().requires_grad_()
    pairs = densities.log_prob_pairs(p, y)
    assert (pairs.isfinite() == inside).all()
    assert (pairs[~inside] == -math.inf).all()
    if name == "cubed":  # the density of a uniform has no gradient
        pairs[inside].sum().backward()
        assert y.grad.isfinite().all()
        assert (y.grad != 0).all()
    assert (densities.log_prob_mean(p, y.detach()) == -math.inf).any()
    index = torch.randint(len(y), (len(y), 3))
    at = densities.log_prob_at(p, y.detach(), index)
    assert (at.isfinite() == inside.gather(1, index)).all()


# --- helpers -------------------------------------------------------------------------------------


def test_fit_gaussian_is_maximum_likelihood_and_survives_degenerate_columns():
    y = torch.randn(50, DIM, **DOUBLE) @ torch.randn(DIM, DIM, **DOUBLE)
    fitted = densities.fit_gaussian(y)
    torch.testing.assert_close(fitted.covariance_matrix, torch.cov(y.T, correction=0))
    torch.testing.assert_close(fitted.mean, y.mean(0))
    broken = torch.cat([y, y[:, :1], torch.full((50, 1), 0.1, **DOUBLE)], 1)
    fitted = densities.fit_gaussian(broken)
    assert fitted.log_prob(broken).isfinite().all()
    torch.testing.assert_close(fitted.variance[-1], torch.tensor(1.0, **DOUBLE))
    with pytest.raises(ValueError, match=r"more samples than the 3 columns .* got 3"):
        densities.fit_gaussian(y[:3])


@pytest.mark.parametrize("name", ["normal", "diagonal", "full", "low rank"])
def test_standard_normal_has_a_divergence_from_p(name):
    p, _ = families()[name]
    r = densities.standard_normal(p, p.mean)
    kl = D.kl_divergence(p, r)
    samples = p.sample((40_000,))
    difference = p.log_prob(samples) - r.log_prob(samples)
    error = difference.std(0) / 200
    assert ((difference.mean(0) - kl).abs() < 5 * error).all()


@pytest.mark.parametrize(
    ("p", "y", "message"),
    [
        (torch.zeros(3), torch.zeros(3), r"torch.distributions.Distribution but got Tensor"),
        (
            D.Normal(torch.zeros(3, 2), 1.0),
            torch.zeros(3, 2),
            r"batch shape \(3,\), .* batch shape \(3, 2\); wrap it as Independent\(p, 1\)",
        ),
        (
            D.Normal(torch.zeros(4), 1.0),
            torch.zeros(3),
            r" shape \(4,\); give its .* shape \(3,\)\.$",
        ),
        (
            D.Normal(torch.zeros(3), 1.0),
            torch.zeros(3, 1),
            r"y of shape \(3,\) for Normal but got \(3, 1\); pass y.squeeze\(1\)",
        ),
        (
            D.Categorical(logits=torch.zeros(3, 2)),
            torch.tensor([0, 1, 2]),
            r"support of its Categorical \(labels 0 ... 1\) but got y\[2\] = 2",
        ),
        (
            D.Independent(D.Bernoulli(logits=torch.zeros(2, 2)), 1),
            torch.tensor([[0.0, 1.0], [0.5, 0.0]]),
            r"but got y\[1\] = \[0.5, 0.0\]",
        ),
        (
            D.Independent(D.Uniform(torch.zeros(2, 1), 1.0), 1),
            torch.tensor([[0.5], [1.5]]),
            r"support of its Uniform but got y\[1\] = \[1.5\]",
        ),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_a_distribution_that_does_not_fit_the_samples_is_refused(p, y, message):
    with pytest.raises(ValueError, match=message):
        densities.log_prob(p, y)
