import math

import naive
import pytest
import torch

from mibounds import bounds

N = 7
NEGATIVES = ("others", "all")


@pytest.fixture
def scores():
    return torch.randn(N, N, dtype=torch.float64) + 2 * torch.eye(N, dtype=torch.float64)


@pytest.fixture
def extra():
    return torch.randn(N, dtype=torch.float64)


CRITIC_BOUNDS = {
    "dv": (bounds.dv, naive.dv),
    "nwj": (bounds.nwj, naive.nwj),
    "js": (bounds.js, naive.js),
    "smile": (
        lambda s, n: bounds.smile(s, 1.0, n),
        lambda s, n: naive.smile(s, 1.0, n),
    ),
    "mine": (lambda s, n: bounds.mine(s, s.new_tensor(0.3), negatives=n)[0], naive.dv),
}


@pytest.mark.parametrize("negatives", NEGATIVES)
@pytest.mark.parametrize("name", CRITIC_BOUNDS)
def test_critic_bounds_are_the_equations(name, negatives, scores):
    fast, plain = CRITIC_BOUNDS[name]
    torch.testing.assert_close(fast(scores, negatives), plain(scores, negatives))


@pytest.mark.parametrize("negatives", NEGATIVES)
def test_club_is_the_equation(negatives, scores):
    value = bounds.club(scores.diagonal(), scores.mean(1), negatives)
    torch.testing.assert_close(value, naive.club(scores, negatives))


@pytest.mark.parametrize("draw", ["uniform", "permutation", "derangement"])
def test_club_sample_is_the_equation(draw, scores):
    index = bounds.draw_negatives(N, 3, draw)
    value = bounds.club_sample(scores.diagonal(), scores.gather(1, index))
    torch.testing.assert_close(value, naive.club_sample(scores, index))


def test_l1out_and_infonce_are_the_equations_along_their_own_axes(scores):
    torch.testing.assert_close(bounds.l1out(scores), naive.l1out(scores))
    torch.testing.assert_close(bounds.infonce(scores), naive.infonce(scores))
    assert not torch.isclose(bounds.l1out(scores), bounds.l1out(scores.T))
    assert not torch.isclose(bounds.infonce(scores), bounds.infonce(scores.T))


@pytest.mark.parametrize("negatives", NEGATIVES)
def test_tuba_and_flo_are_the_equations(negatives, scores, extra):
    torch.testing.assert_close(
        bounds.tuba(scores, extra, negatives), naive.tuba(scores, extra, negatives)
    )
    torch.testing.assert_close(
        bounds.flo(scores, extra, negatives), naive.flo(scores, extra, negatives)
    )


@pytest.mark.parametrize("alpha", [0.0, 0.01, 0.5, 0.99, 1.0])
def test_interpolation_is_the_equation(alpha, scores, extra):
    value = bounds.tuba_interpolated(scores, extra, alpha)
    torch.testing.assert_close(value, naive.tuba_interpolated(scores, extra, alpha))
    if alpha == 0:
        torch.testing.assert_close(value, bounds.tuba(scores, extra))


@pytest.mark.parametrize("shift", [-500.0, 500.0])
def test_interpolation_neither_overflows_nor_vanishes(shift, scores, extra):
    """A shift of f and of log a together cancels."""
    value = bounds.tuba_interpolated(scores, extra, 0.3)
    shifted = bounds.tuba_interpolated((scores + shift).float(), (extra + shift).float(), 0.3)
    torch.testing.assert_close(shifted.double(), value, rtol=1e-3, atol=1e-3)


def test_ba_vub_doe_and_kl_are_means(extra):
    other = torch.randn(N, dtype=torch.float64)
    torch.testing.assert_close(bounds.ba(extra, 1.5), extra.sum() / N + 1.5)
    torch.testing.assert_close(bounds.vub(extra, other), (extra - other).sum() / N)
    torch.testing.assert_close(bounds.doe(extra, other), (extra - other).sum() / N)
    torch.testing.assert_close(bounds.vub_kl(extra.abs()), extra.abs().sum() / N)


@pytest.mark.parametrize("name", ["dv", "nwj", "infonce", "tuba", "flo", "nwj-of-js"])
def test_with_the_positive_among_its_negatives_nothing_exceeds_log_n(name):
    """Best f for the ceiling, found by ascent: log N is reached, and not passed."""
    n = 16
    f = torch.zeros(n, n, dtype=torch.float64, requires_grad=True)
    u = torch.zeros(n, dtype=torch.float64, requires_grad=True)
    values = {
        "dv": lambda: bounds.dv(f, "all"),
        "nwj": lambda: bounds.nwj(f, "all"),
        "infonce": lambda: bounds.infonce(f),
        "tuba": lambda: bounds.tuba(f, u, "all"),
        "flo": lambda: bounds.flo(f, u, "all"),
        "nwj-of-js": lambda: bounds.nwj(1 + f, "all"),
    }
    optimizer = torch.optim.Adam([f, u], lr=0.3)
    for _ in range(150):
        optimizer.zero_grad()
        (-values[name]()).backward()
        optimizer.step()
    value = values[name]().item()
    assert math.log(n) - 0.05 < value <= math.log(n) + 1e-9


@pytest.mark.parametrize("name", ["dv", "nwj", "tuba", "flo"])
def test_without_it_they_do_exceed_log_n(name):
    n = 16
    f = 20.0 * torch.eye(n)
    u = torch.full((n,), -20.0)
    value = {
        "dv": bounds.dv(f),
        "nwj": bounds.nwj(f),
        "tuba": bounds.tuba(f, torch.zeros(n)),
        "flo": bounds.flo(f, u),
    }[name]
    assert value > 2 * math.log(n)


def test_mine_divides_the_gradient_by_the_moving_average(scores):
    f = scores.clone().requires_grad_()
    log_average = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    value, moved = bounds.mine(f, log_average, rate=0.1)
    value.backward()
    batch = naive.pool(scores, "others").exp().mean()
    torch.testing.assert_close(moved.exp(), 0.9 * math.exp(0.7) + 0.1 * batch)
    n = len(f)
    mask = ~torch.eye(n, dtype=torch.bool)
    expected = torch.eye(n, dtype=torch.float64) / n
    expected = expected - mask * scores.exp() / (n * (n - 1)) / moved.exp()
    torch.testing.assert_close(f.grad, expected)
    torch.testing.assert_close(value, bounds.dv(scores))
    assert log_average.grad is None


def test_infonce_does_not_see_functions_of_x_and_l1out_not_of_y(scores, extra):
    torch.testing.assert_close(bounds.infonce(scores + extra[:, None]), bounds.infonce(scores))
    torch.testing.assert_close(bounds.l1out(scores + extra[None, :]), bounds.l1out(scores))
    torch.testing.assert_close(bounds.dv(scores + 3.0), bounds.dv(scores))


def test_club_with_an_impossible_negative_is_infinite_and_never_nan():
    log_prob = torch.tensor([-1.0, -math.inf, -1.0, -math.inf])
    other = torch.tensor([-2.0, -math.inf, -math.inf, -2.0])
    assert bounds.club(log_prob, other).item() == math.inf
    assert bounds.club_sample(log_prob, other[:, None]).item() == math.inf
    assert bounds.vub(log_prob, other).item() == math.inf
    s = torch.tensor([[0.0, -math.inf], [-math.inf, 0.0]])
    assert bounds.l1out(s).item() == math.inf


# --- drawing negatives ---------------------------------------------------------------------------


def test_uniform_draw_takes_every_sample_as_often_also_the_own():
    n, k = 5, 20_000
    index = bounds.draw_negatives(n, k, "uniform")
    frequency = torch.stack([(index == j).double().mean(1) for j in range(n)], 1)
    assert (frequency - 1 / n).abs().max() < 5 * (1 / n / k) ** 0.5


def test_permutation_uses_every_sample_once():
    index = bounds.draw_negatives(50, 4, "permutation")
    assert (index.sort(0).values == torch.arange(50)[:, None]).all()


def test_derangement_has_no_fixed_point_distinct_negatives_and_no_preference():
    n, k, repeats = 5, 2, 4000
    counts = torch.zeros(n, n)
    for _ in range(repeats):
        index = bounds.draw_negatives(n, k, "derangement")
        assert (index != torch.arange(n)[:, None]).all()
        assert (index[:, 0] != index[:, 1]).all()
        assert (index.sort(0).values == torch.arange(n)[:, None]).all()
        counts.scatter_add_(1, index, torch.ones(n, k))
    off = counts[~torch.eye(n, dtype=torch.bool)] / repeats
    assert (off - k / (n - 1)).abs().max() < 5 * (0.5 * 0.5 / repeats) ** 0.5


def test_all_other_samples_as_negatives_is_the_exact_club(scores):
    index = bounds.draw_negatives(N, N - 1)
    value = bounds.club_sample(scores.diagonal(), scores.gather(1, index))
    torch.testing.assert_close(value, naive.club(scores, "others"))


def test_the_generator_decides_the_draw():
    a, b, c = (
        bounds.draw_negatives(64, 2, seed=torch.Generator().manual_seed(s)) for s in (1, 1, 2)
    )
    assert (a == b).all()
    assert (a != c).any()


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: bounds.dv(torch.zeros(3, 4)), r"square matrix .* got shape \(3, 4\)"),
        (lambda: bounds.infonce(torch.zeros(1, 1)), r"at least 2 samples .* \(1, 1\)"),
        (lambda: bounds.js(torch.zeros(4)), r"square matrix"),
        (lambda: bounds.vub(torch.zeros(1), torch.zeros(1)), r"at least 2 log-densities"),
        (lambda: bounds.club(torch.zeros(2, 2), torch.zeros(2)), r"at least 2 log-densities"),
        (lambda: bounds.dv(torch.zeros(3, 3), "none"), r'"others" or "all" but got \'none\''),
        (lambda: bounds.club(torch.zeros(2), torch.zeros(2), "x"), r'"others" or "all"'),
        (lambda: bounds.smile(torch.zeros(3, 3), clip=0.0), r"clip > 0 but got 0.0"),
        (
            lambda: bounds.tuba_interpolated(torch.zeros(3, 3), torch.zeros(3), 2.0),
            r"0 <= alpha <= 1 but got 2.0",
        ),
        (
            lambda: bounds.tuba_interpolated(torch.zeros(2, 2), torch.zeros(2), 0.5),
            r"at least 3 samples",
        ),
        (lambda: bounds.draw_negatives(1), r"at least 2 samples .* got 1"),
        (lambda: bounds.draw_negatives(4, 4), r"k <= n - 1 = 3 .* got k=4"),
        (lambda: bounds.draw_negatives(4, 0, "uniform"), r"k >= 1 .* got k=0"),
        (lambda: bounds.draw_negatives(4, 1, "shuffle"), r"but got 'shuffle'"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_the_gradient_of_nwj_grows_no_more_than_its_limit():
    f = torch.tensor([[2.0, 5.0], [4.0, 1.0]], requires_grad=True)
    plain = naive.nwj(f, "others")
    for limit, slope in ((40.0, None), (2.0, math.exp(2.0))):
        value = bounds.nwj(f, limit=limit)
        torch.testing.assert_close(value, plain)
        (gradient,) = torch.autograd.grad(value, f, retain_graph=True)
        if slope is None:
            torch.testing.assert_close(gradient, torch.autograd.grad(plain, f)[0])
        else:  # of the mean over negatives, of which there are two
            torch.testing.assert_close(gradient[[0, 1], [1, 0]].sum(), torch.tensor(-slope))
    far = torch.tensor([[2.0, 500.0], [4.0, 1.0]], requires_grad=True)
    value = bounds.nwj(far)
    assert value == -math.inf
    (gradient,) = torch.autograd.grad(value.clamp_min(0.0), far, retain_graph=True)
    assert (gradient == 0).all()
    (gradient,) = torch.autograd.grad(value, far)
    assert gradient.isfinite().all()
    assert gradient[0, 1] < -1e17


@pytest.mark.parametrize("limit", [0.0, -1.0, math.nan])
def test_a_limit_at_or_below_the_best_value_is_refused(limit):
    with pytest.raises(ValueError, match=f"Expected limit > 0 but got {limit}; leave it out"):
        bounds.nwj(torch.zeros(3, 3), limit=limit)
