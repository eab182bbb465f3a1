import math

import pytest
import torch
from torch import distributions as D

import mibounds as mb
from mibounds.bounds import densities
from mibounds.conditionals.base import LOG_VARIANCE_LIMIT

X, Y, N = 3, 2, 40
REAL = (
    mb.Gaussian,
    mb.UnitGaussian,
    mb.FullGaussian,
    mb.LowRankGaussian,
    mb.GaussianMixture,
    mb.StudentT,
    mb.Flow,
    mb.Copula,
    mb.AsPublishedGaussian,
)
DISCRETE = (mb.Categorical, mb.Bernoulli)
SCALED = tuple(c for c in REAL if c not in (mb.UnitGaussian, mb.AsPublishedGaussian))


def data(family, n=N, dtype=torch.float32):
    x = torch.randn(n, X, dtype=dtype)
    y = x[:, :Y] ** 2 + 0.5 * torch.randn(n, Y, dtype=dtype)
    if family is mb.Categorical:
        return x, (y[:, 0] > 0.5).long()
    return x, (y > 0.5).to(dtype) if family is mb.Bernoulli else y


@pytest.mark.parametrize("family", REAL + DISCRETE)
def test_forward_gives_a_distribution_of_y_for_each_x(family):
    x, y = data(family)
    q = family(X, Y, 8)
    q.observe(x, y)
    p = q(x)
    assert isinstance(p, D.Distribution)
    assert p.batch_shape == (N,)
    assert p.event_shape == y.shape[1:]
    pairs = densities.log_prob_pairs(p, y)
    assert pairs.shape == (N, N)
    torch.testing.assert_close(pairs.diagonal(), densities.log_prob(p, y))


@pytest.mark.parametrize("family", REAL + DISCRETE)
def test_it_is_a_normalised_density(family):
    x, y = data(family, dtype=torch.float64)
    q = family(X, Y, 8).double()
    q.observe(x, y)
    p = q(x[:4])
    if family is mb.Categorical:
        total = sum(densities.log_prob(p, torch.full((4,), c)).exp() for c in range(Y))
    elif family is mb.Bernoulli:
        corners = torch.cartesian_prod(*[torch.arange(2.0).double()] * Y)
        total = sum(densities.log_prob(p, c.expand(4, Y)).exp() for c in corners)
    else:
        n = 801 if family is mb.Copula else 201  # steps instead of a smooth density
        grid = 0.2 * torch.linspace(-6, 6, n, dtype=torch.float64).sinh()  # wide, for the tails
        at = torch.cartesian_prod(grid, grid).view(n, n, 1, Y)
        density = torch.cat([p.log_prob(row).exp() for row in at.split(20)])
        total = torch.trapezoid(torch.trapezoid(density, grid, dim=1), grid, dim=0)
    assert (total - 1).abs().max() < 0.02


@pytest.mark.parametrize("family", [*SCALED, *DISCRETE])
@pytest.mark.parametrize(("a", "b"), [(1e12, 1e-12), (1e-12, 1e12)])
def test_the_scale_of_x_and_y_does_not_matter(family, a, b):
    x, y = data(family)
    shift = 3.0

    def log_density(x, y):
        torch.manual_seed(1)
        q = family(X, Y, 8)
        q.observe(x, y)
        return densities.log_prob(q(x), y)

    there = log_density(x, y)
    if family in DISCRETE:
        torch.testing.assert_close(log_density(a * (x + shift), y), there, rtol=1e-3, atol=1e-3)
    else:
        scaled = log_density(a * (x + shift), b * (y + shift)) + Y * math.log(b)
        torch.testing.assert_close(scaled, there, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("family", REAL + DISCRETE)
def test_a_constant_column_works(family):
    x, y = data(family)
    x[:, 0] = 0.1
    if family in REAL:
        y[:, 0] = 1e6 + 0.1
    q = family(X, Y, 8)
    q.observe(x, y)
    value = densities.log_prob(q(x), y)
    assert value.isfinite().all()
    if family in (mb.Gaussian, mb.FullGaussian, mb.LowRankGaussian):
        assert q(x).mean[:, 0].unique().tolist() == [y[0, 0].item()]


@pytest.mark.parametrize("family", REAL + DISCRETE)
def test_the_likelihood_rises_when_it_is_fitted(family):
    x, y = data(family, n=400)
    q = family(X, Y, 16)
    q.observe(x, y)
    before = densities.log_prob(q(x), y).mean().item()
    optimizer = torch.optim.Adam(q.parameters(), lr=0.01)
    for _ in range(100):
        optimizer.zero_grad()
        (-densities.log_prob(q(x), y).mean()).backward()
        optimizer.step()
    assert densities.log_prob(q(x), y).mean().item() > before + 0.1


@pytest.mark.parametrize("family", [*SCALED, *DISCRETE])
def test_a_conditional_on_nothing_is_a_marginal(family):
    _, y = data(family)
    q = family(0, Y)
    q.observe(torch.zeros(N, 0), y)
    p = q(torch.zeros(N, 0))
    assert p.batch_shape == (N,)
    pairs = densities.log_prob_pairs(p, y)
    torch.testing.assert_close(pairs, pairs[:1].expand(N, N))
    loss = -densities.log_prob(p, y).mean()
    loss.backward()
    assert all(w.grad is not None for w in q.parameters())


def test_full_covariances_are_what_the_factors_say():
    x, y = data(mb.FullGaussian)
    full = mb.FullGaussian(X, Y, 8)
    full.observe(x, y * torch.tensor([1.0, 100.0]))
    covariance = full(x).covariance_matrix
    assert (covariance[:, 0, 1] != 0).all()
    assert (torch.linalg.eigvalsh(covariance) > 0).all()
    low = mb.LowRankGaussian(X, 4, 8, rank=1)(x)
    rest = low.covariance_matrix - torch.diag_embed(low.cov_diag)
    assert (torch.linalg.matrix_rank(rest, rtol=1e-4) == 1).all()


def test_the_log_variance_has_room_and_no_hard_wall():
    q = mb.Gaussian(1, 1, ())
    x = torch.zeros(2, 1)
    for raw, expected in ((3.0, 3.0), (-10.0, -8.7), (-1e4, -LOG_VARIANCE_LIMIT)):
        with torch.no_grad():
            q.net.offset[1] = raw
        assert q(x).variance.log()[0].item() == pytest.approx(expected, abs=0.1)


def test_as_published_keeps_its_limits_and_its_size():
    q = mb.AsPublishedGaussian(20, 20)
    assert sum(w.numel() for w in q.parameters()) == 2 * (20 * 7 + 7 + 7 * 20 + 20)
    x = 1e3 * torch.randn(100, 20)
    q.observe(x, x)
    log_variance = q(x).variance.log()
    assert -1.001 < log_variance.min() < -0.9
    assert 0.9 < log_variance.max() < 1.001
    torch.testing.assert_close(q(x).mean, q.net(x))


def test_mixture_components_start_apart():
    p = mb.GaussianMixture(X, Y, components=5)(torch.zeros(2, X))
    assert torch.pdist(p.component_distribution.mean[0]).min() > 0.05


def test_flow_says_which_extra_it_needs(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "zuko", None)
    with pytest.raises(ImportError, match=r"pip install 'mibounds\[flows\]'"):
        mb.Flow(X, Y)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: mb.Gaussian(X, 0), r"y_dim to be an integer >= 1 but got 0"),
        (lambda: mb.Gaussian(-1, 2), r"x_dim to be an integer >= 0 but got -1"),
        (lambda: mb.Gaussian(X, Y, 0), r"hidden to be an integer >= 1 but got 0"),
        (
            lambda: mb.Gaussian(torch.zeros(9, 2), torch.zeros(9, 3)),
            r"x_dim to be an integer >= 0 but got Tensor; pass numbers of columns, .* in a call",
        ),
        (lambda: mb.Gaussian(2.5, 2), r"x_dim to be an integer >= 0 but got 2.5"),
        (lambda: mb.Categorical(X, 1), r"classes to be an integer >= 2 but got 1"),
        (lambda: mb.LowRankGaussian(X, Y, rank=0), r"rank to be an integer >= 1"),
        (lambda: mb.GaussianMixture(X, Y, components=0), r"components to be an integer >= 1"),
        (lambda: mb.Flow(X, Y, transforms=0), r"transforms to be an integer >= 1"),
        (lambda: mb.Gaussian(X, Y)(torch.zeros(5, 4)), r"x of shape \(n, 3\) but got \(5, 4\)"),
        (
            lambda: mb.Gaussian(X, Y)(torch.zeros(5, 7, X)),
            r"got \(5, 7, 3\); flatten the leading dimensions",
        ),
        (
            lambda: mb.Gaussian(X, Y)(torch.zeros(5, X, dtype=torch.long)),
            r"x to be floating point but got torch.int64; .* one-hot",
        ),
        (
            lambda: mb.Gaussian(X, Y)(torch.zeros(5, X).double()),
            r"x in torch.float32, .* but got torch.float64; call x.to\(torch.float32\)",
        ),
        (
            lambda: mb.Categorical(X, 4).check_y(torch.zeros(5)),
            r"integer labels 0 ... 3 as y but got torch.float32",
        ),
        (
            lambda: mb.Categorical(X, 4).check_y(torch.zeros(5, 3)),
            r"integer labels 0 ... 3 as y but got torch.float32; .* Gaussian for a continuous y",
        ),
        (
            lambda: mb.Categorical(X, 4).check_y(torch.eye(4)),
            r"labels y of shape \(n,\) but got \(4, 4\); call y.argmax\(1\)",
        ),
        (
            lambda: mb.Categorical(X, 4).check_y(torch.zeros(5, 4).long()),
            r"labels y of shape \(n,\) but got \(5, 4\); call y.argmax\(1\)",
        ),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_shapes_that_are_meant_well_are_taken():
    assert mb.Categorical(X, 4).check_y(torch.zeros(5, 1, dtype=torch.int32)).shape == (5,)
    assert mb.Bernoulli(X, Y).check_y(torch.ones(5, Y, dtype=torch.bool)).dtype == torch.float32
    assert mb.Gaussian(1, 1)(torch.zeros(5)).batch_shape == (5,)
    assert mb.Gaussian(1, 1)(torch.zeros(5, 1, dtype=torch.bfloat16)).mean.dtype == torch.float32


@pytest.mark.parametrize("samples", [1, N])  # a process may have a single one
@pytest.mark.parametrize("family", REAL + DISCRETE)
def test_one_marginal_for_all_samples_is_a_marginal_for_each(family, samples):
    _, y = data(family, dtype=torch.float64)
    q = family(0, Y).double()
    q.observe(torch.zeros(N, 0, dtype=torch.float64), y)
    y = y[:samples]
    weights = torch.randn(samples, dtype=torch.float64)

    def value_and_gradient(log_prob, n):
        value = log_prob(q(torch.zeros(n, 0, dtype=torch.float64)), y)
        return value, torch.autograd.grad(weights @ value, list(q.parameters()))

    one = value_and_gradient(densities.log_prob_same, 1)
    each = value_and_gradient(densities.log_prob, samples)
    torch.testing.assert_close(one, each, rtol=0, atol=1e-10)


@pytest.mark.parametrize("shift", [0.0, 100.0])
def test_a_mixture_of_narrow_components_loses_no_digits_by_products(shift):
    q = mb.GaussianMixture(0, Y)
    _, y = data(mb.GaussianMixture)
    q.observe(torch.zeros(N, 0), y + shift)
    with torch.no_grad():
        q.net.constant[q.components * (1 + Y) :] = -8.0
        y = q(torch.zeros(N, 0)).sample()
        plain = densities.log_prob(q(torch.zeros(N, 0)), y)
        products = densities.log_prob_same(q(torch.zeros(1, 0)), y)
        exact = densities.log_prob(q(torch.zeros(N, 0)), y.double())
    error = (products - exact).abs().max()
    assert error <= 2 * (plain - exact).abs().max() + 1e-5


def test_one_distribution_for_all_has_to_be_one():
    p = mb.Gaussian(X, Y)(torch.zeros(5, X))
    with pytest.raises(ValueError, match=r"shape \(1,\), one .* for all .* batch shape \(5,\)"):
        densities.log_prob_same(p, torch.zeros(5, Y))
    with pytest.raises(ValueError, match=r"labels 0 ... 1\) but got y\[2\] = 7"):
        densities.log_prob_same(mb.Categorical(0, 2)(torch.zeros(1, 0)), torch.tensor([0, 1, 7]))


def test_the_log_variance_is_flat_nowhere_within_its_limit():
    q = mb.Gaussian(X, 1, ()).double()
    raw = torch.linspace(-14, 14, 57, dtype=torch.float64, requires_grad=True)[:, None]
    _, scale = q.loc_and_scale(torch.zeros_like(raw), raw)
    (slope,) = torch.autograd.grad(scale.log().sum(), raw)
    assert slope.min() > 0.1
    torch.testing.assert_close(slope[28], torch.tensor([0.5]).double())  # half the log-variance
    _, ends = q.loc_and_scale(torch.zeros(2, 1).double(), torch.tensor([[-1e9], [1e9]]).double())
    torch.testing.assert_close(ends.log().flatten(), torch.tensor([-7.5, 7.5]).double())
