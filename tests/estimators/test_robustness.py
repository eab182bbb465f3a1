"""Corners where a value was wrong once, or an error obscure."""

import math
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import distributions as D

import mibounds as mb
from mibounds import bounds
from mibounds.bounds import densities
from mibounds.networks import Standardiser
from mibounds.tasks import TASKS

N, X, Y = 24, 3, 2


def samples(scale=1.0):
    x = torch.randn(N, X)
    return x, scale * (x[:, :Y] + torch.randn(N, Y))


def test_the_tests_do_check_shapes():
    assert hasattr(bounds.club, "__wrapped__")
    with pytest.raises(TypeError):
        bounds.club(torch.zeros(3), torch.zeros(4))


def test_building_a_flow_leaves_the_validation_of_distributions_as_it_was():
    code = "import mibounds, torch; mibounds.Flow(3, 2); torch.distributions.Normal(0.0, -1.0)"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert "to satisfy the constraint" in result.stderr


def test_vub_needs_no_mean_of_the_conditional():
    x, y = samples()
    assert mb.VUB(conditional=mb.Flow(X, Y))(x, y).isfinite()
    task = TASKS["cubic-2"]
    x, y = task.sample(N, 0)
    assert mb.VUB(conditional=task.conditional)(x, y).isfinite()


def test_a_normal_marginal_is_refused_for_labels():
    x = torch.randn(N, X)
    estimator = mb.VUB(conditional=mb.Categorical(X, 3))
    with pytest.raises(ValueError, match=r'continuous y .* got Categorical .* marginal="learned"'):
        estimator(x, torch.arange(N) % 3)


def test_the_kl_form_is_a_bound_only_for_the_known_conditional():
    assert mb.VUB(X, Y, form="kl").side == "neither"
    assert mb.VUB(conditional=lambda x: D.Normal(x, 1.0), form="kl").side == "upper"


@pytest.mark.parametrize("dtype", [torch.int64, torch.float32])
def test_the_estimated_entropy_of_discrete_y_is_that_of_its_frequencies(dtype):
    y = (torch.rand(4000, 2) < 0.01).to(dtype)
    p = D.Independent(D.Bernoulli(probs=torch.full((4000, 2), 0.01)), 1)
    assert mb.ba(p, y).abs() < 0.01  # independent of x: nothing to know


def test_a_mixture_of_bounded_components_is_possible_where_one_of_them_is():
    parts = D.Uniform(torch.tensor([[0.0, 2.0]] * 3), torch.tensor([[1.0, 3.0]] * 3))
    p = D.MixtureSameFamily(D.Categorical(probs=torch.tensor([[0.5, 0.5]] * 3)), parts)
    y = torch.tensor([0.5, 2.5, 0.1])
    torch.testing.assert_close(densities.log_prob(p, y), torch.full((3,), math.log(0.5)))
    assert densities.log_prob_pairs(p, torch.tensor([1.5]))[0, 0] == -math.inf
    with pytest.raises(ValueError, match="support"):
        densities.log_prob(p, torch.tensor([0.5, 1.5, 0.1]))


def test_a_component_of_weight_zero_counts_for_nothing():
    parts = D.Normal(torch.tensor([[0.0, 30.0]] * 2), 1.0)
    p = D.MixtureSameFamily(D.Categorical(probs=torch.tensor([[1.0, 0.0]] * 2)), parts)
    expected = D.Normal(0.0, 1.0).log_prob(torch.tensor(30.0))
    torch.testing.assert_close(densities.log_prob(p, torch.full((2,), 30.0))[0], expected)


def test_distributions_without_a_mode_have_pairs():
    p = D.ContinuousBernoulli(torch.full((3,), 0.3))
    assert densities.log_prob_pairs(p, torch.tensor([0.1, 0.5, 0.9])).isfinite().all()


def test_tiny_and_zero_probabilities_are_kept():
    table = torch.tensor([[1 - 1e-10, 1e-10], [0.0, 1.0]])
    log_p = densities.log_prob_pairs(D.Categorical(probs=table), torch.tensor([0, 1]))
    assert log_p[0, 1].item() == pytest.approx(math.log(1e-10), rel=1e-4)
    assert log_p[1, 0] == -math.inf
    hot = D.OneHotCategorical(probs=table)
    torch.testing.assert_close(densities.log_prob_pairs(hot, torch.eye(2)), log_p)
    certain = D.Bernoulli(logits=torch.tensor([20.0, -20.0]))  # rounds to 1, and is not
    expected = torch.tensor([[-20.0, 0.0], [0.0, -20.0]])
    got = densities.log_prob_pairs(certain, torch.tensor([0.0, 1.0]))
    torch.testing.assert_close(got, expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("q", [mb.FullGaussian, mb.LowRankGaussian, mb.Gaussian])
@pytest.mark.parametrize("name", ["club", "l1out", "ba"])
def test_densities_stay_in_full_precision_under_autocast(name, q):
    x, y = samples(1e4)
    torch.manual_seed(1)
    estimator = mb.ESTIMATORS[name](conditional=q(X, Y, 8))
    estimator.learning_loss(x, y)
    with torch.autocast("cpu", dtype=torch.float16):
        half = estimator(x, y)
    half.backward()
    torch.testing.assert_close(half, estimator(x, y), rtol=0.05, atol=0.05)
    assert all(p.grad.isfinite().all() for p in estimator.parameters())


def test_events_of_several_vectors_take_the_general_way():
    p = D.Independent(D.MultivariateNormal(torch.randn(5, 2, 3), torch.eye(3)), 1)
    y = torch.randn(5, 2, 3)
    matrix = torch.stack([p.log_prob(y[j].expand(5, 2, 3)) for j in range(5)], 1)
    torch.testing.assert_close(densities.log_prob_mean(p, y), matrix.mean(1))


def test_the_gradient_of_a_triangular_factor_stays_within_its_triangle():
    tril = (torch.eye(3) + 0.1).tril().expand(5, 3, 3).clone().double().requires_grad_()
    p = D.MultivariateNormal(torch.randn(5, 3).double(), scale_tril=tril, validate_args=False)
    y = torch.randn(5, 3).double()
    got = torch.autograd.grad(densities.log_prob_mean(p, y).sum(), tril)[0]
    want = torch.autograd.grad(densities.log_prob_pairs(p, y).mean(1).sum(), tril)[0]
    torch.testing.assert_close(got, want.tril())


def test_very_small_and_large_scales_are_finite():
    for scale in (1e-18, 1e18):
        x, y = samples(scale)
        estimator = mb.CLUB(X, Y)
        estimator.learning_loss(x, y)
        assert estimator(x, y).isfinite()


def test_the_value_of_mine_is_dv_however_far_the_average_lags():
    scores = 30 + 2 * torch.eye(4)
    for log_average in (-60.0, 10.0, 90.0):
        value, _ = bounds.mine(scores, torch.tensor(log_average))
        assert value.item() == pytest.approx(bounds.dv(scores).item())


def test_one_bad_batch_does_not_spoil_mine():
    x, y = samples()
    estimator = mb.MINE(X, Y, 8)
    estimator.learning_loss(x, y)
    estimator.learning_loss(x * math.nan, y)
    assert estimator.learning_loss(x, y).isfinite()


def test_a_bad_first_batch_is_not_counted():
    s = Standardiser(1)
    s.observe(torch.full((4, 1), math.nan))
    for _ in range(5):
        s.observe(1e-6 * torch.randn(64, 1))
    assert s.scale.item() == pytest.approx(1e-6, rel=0.2)


def test_columns_of_numbers_are_taken_as_vectors():
    x, y = samples()
    column, vector = torch.nn.Linear(Y, 1), None
    vector = lambda y: column(y).squeeze(1)  # noqa: E731
    for cls, key in ((mb.TUBA, "log_baseline"), (mb.FLO, "potential")):
        one, other = (
            (lambda *a, f=f: f(a[-1])) if key == "potential" else f for f in (column, vector)
        )
        torch.manual_seed(1)
        a = cls(X, Y, 8, **{key: one})(x, y)
        torch.manual_seed(1)
        torch.testing.assert_close(a, cls(X, Y, 8, **{key: other})(x, y))


def test_a_known_scalar_conditional_goes_with_a_learnt_marginal():
    x = torch.randn(N, X)
    y = x[:, 0] + torch.randn(N)
    for cls in (mb.DoE, mb.VUB):
        estimator = cls(
            conditional=lambda x: D.Normal(x[:, 0], 1.0), marginal=mb.GaussianMixture(0, 1)
        )
        assert (estimator.learning_loss(x, y) + estimator(x, y)).isfinite()


@pytest.mark.parametrize("scale", [1e3, 1e6, 1e8])
def test_infonce_keeps_below_log_n_in_single_precision(scale):
    for n in (64, 100):
        value = bounds.infonce(scale * (1 + torch.eye(n)))
        assert value <= math.log(n) * (1 + 1e-6)
        assert value > math.log(n) - 1e-3 or scale == 1e8


def test_a_nan_in_the_last_steps_is_seen():
    x, y = samples()
    estimator = mb.CLUB(X, Y)
    calls = iter(range(100))
    loss = estimator.learning_loss
    estimator.learning_loss = lambda x, y: loss(x, y) * (math.nan if next(calls) >= 15 else 1)
    with pytest.raises(FloatingPointError):
        mb.fit(estimator, x, y, steps=19)


def test_the_published_leave_one_out_is_club():
    """Its mask of shape (N, N, 1) on a matrix broadcasts, and the logarithms cancel."""
    n = 16
    s = torch.randn(n, n, dtype=torch.float64)
    mask = -20.0 * torch.eye(n, dtype=torch.float64).unsqueeze(-1)
    published = (s.diagonal()[:, None] - ((s + mask).logsumexp(0) - math.log(n - 1))).mean()
    club = bounds.club(s.diagonal(), s.mean(1), "all")
    torch.testing.assert_close(published, club, rtol=1e-6, atol=1e-6)
    assert (published - bounds.l1out(s)).abs() > 0.05


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x, y: mb.club(D.Normal(x[:, 0], 1.0), torch.arange(N)), "y to be floating point"),
        (lambda x, y: mb.club(mb.Gaussian(X, Y)(x), np.zeros((N, Y))), "Expected y to be a torch"),
        (
            lambda x, y: mb.CLUBSample(X, Y)(x, y, index=torch.arange(N)),
            "shape \\(24, k\\)",
        ),
        (lambda x, y: mb.CLUBSample(X, Y)(x, y, index=torch.ones(1, 1).long()), "index of shape"),
        (lambda x, y: mb.DoE(X, Y, marginal=D.Normal(0.0, 1.0)), "conditional without x, such"),
        (lambda x, y: mb.VUB(X, Y, marginal=lambda y: y), "conditional without x, such as"),
        (lambda x, y: mb.vub(x), "p to be a torch.distributions.Distribution but got Tensor"),
        (lambda x, y: mb.CLUB(X, Y, 64.0), "hidden to be an integer >= 1 but got 64.0"),
        (lambda x, y: mb.CLUB(X, Y, None), "hidden to be an integer >= 1 but got None"),
        (lambda x, y: mb.CLUB(X, Y, negatives="none"), "negatives to be"),
        (lambda x, y: mb.NWJ(X, Y, negatives="none"), "negatives to be"),
        (lambda x, y: mb.CLUBSample(X, Y, draw="no"), "draw to be"),
        (lambda x, y: mb.CLUBSample(X, Y, k=0), "k to be an integer >= 1 but got 0"),
        (lambda x, y: mb.SMILE(X, Y, clip=-1.0), "clip > 0"),
        (
            lambda x, y: mb.BA(X, Y, entropy="1"),
            "entropy to be a number of nats or None but got '1'",
        ),
        (lambda x, y: mb.CLUB(X, Y).half()(x.half(), y.half()), "float32 or torch.float64 but got"),
        (lambda x, y: mb.FLO(X, Y, potential=lambda x, y: x)(x, y), "potential to give one number"),
        (lambda x, y: bounds.tuba(torch.zeros(3, 3), torch.zeros(3, 1)), "log_baseline of shape"),
        (lambda x, y: bounds.mine(torch.zeros(3, 3), torch.tensor(0.0), rate=0.0), "rate <= 1"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call(*samples())


@pytest.mark.usefixtures("unchecked")
def test_sizes_of_numpy_are_sizes():
    assert mb.CLUB(np.int64(X), np.int64(Y), np.int64(8))(*samples()).isfinite()


def test_messages_for_what_newcomers_do(unchecked):
    x, y = torch.randn(8, 5), torch.randn(8, 2)
    with pytest.raises(ValueError, match="or swap x and y if they are interchanged"):
        mb.CLUB(5, 2)(y, x)
    with pytest.raises(ValueError, match=r"pass it by name: CLUB\(conditional=...\)"):
        mb.CLUB(mb.Categorical(5, 3))
    with pytest.raises(ValueError, match="count labels from 0 and give as many classes"):
        mb.CLUB(conditional=mb.Categorical(5, 3))(x, torch.arange(8) % 4)
    with pytest.raises(ValueError, match="drop_last=True to a DataLoader"):
        mb.CLUB(5, 2).eval()(x[:1], y[:1])
    with pytest.raises(ValueError, match="give one sample per row, or collect more"):
        mb.estimate(x[:1], y[:1])
    with pytest.raises(ValueError, match=r"as in KSG\(\)\(x, y\)"):
        mb.KSG(x.numpy(), y.numpy())
    with pytest.raises(ValueError, match=r"wrap it as Independent\(p, 1\)"):
        mb.vub(torch.distributions.Normal(x, 1.0))
    with pytest.raises(ValueError, match=r"give one, such as Independent"):
        mb.club(x, y)
