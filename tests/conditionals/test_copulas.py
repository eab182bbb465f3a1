"""Normal scores that are learnt from batches, and the Gaussian in their scale."""

import math

import pytest
import torch

import mibounds as mb
from mibounds.conditionals.copulas import NormalScores, count_below, interpolate

X, Y, N = 3, 2, 500


def cube(y):
    return y**3


def far(y):
    return 1e4 + y.exp()


def test_interpolation_by_hand():
    x = torch.tensor([[0.0, 0.0], [1.0, 10.0], [3.0, 20.0]])
    y = torch.tensor([[0.0, 5.0], [2.0, 6.0], [3.0, 9.0]])
    at = torch.tensor([[-1.0, 5.0], [1.0, 15.0], [5.0, 40.0]])
    value, slope = interpolate(at, x, y)
    torch.testing.assert_close(value, torch.tensor([[-2.0, 5.5], [2.0, 7.5], [4.0, 15.0]]))
    torch.testing.assert_close(slope, torch.tensor([[2.0, 0.1], [2.0, 0.3], [0.5, 0.3]]))


def test_values_at_a_knot_count_by_half():
    x = torch.tensor([[0.0, 1.0], [0.0, 1.0], [1.0, 1.0], [2.0, 5.0]])
    knots = torch.tensor([[0.0, 1.0], [1.5, 2.0]])
    assert count_below(x, knots).tolist() == [[1.0, 1.5], [3.0, 3.0]]


@pytest.mark.parametrize("stretch", [lambda y: y, cube, far])
def test_the_knots_become_quantiles(stretch):
    scores = NormalScores(2).double()
    g = torch.Generator().manual_seed(0)
    for _ in range(600):
        scores.observe(stretch(torch.randn(64, 2, generator=g, dtype=torch.float64)))
    at = torch.linspace(-2.5, 2.5, 21, dtype=torch.float64)[:, None].expand(21, 2)
    found, slope = scores(stretch(at))
    assert (found - at).abs().max() < 0.15
    assert (found.diff(dim=0) > 0).all()
    assert (slope > 0).all()


def test_they_follow_data_that_move():
    scores = NormalScores(1)
    for shift in (0.0, 100.0):
        for _ in range(1000):
            scores.observe(shift + torch.randn(64, 1))
    assert scores(torch.tensor([[100.0]]))[0].abs().item() < 0.2


def test_a_bad_batch_and_ties_do_no_harm():
    scores = NormalScores(2)
    x = torch.randn(50, 2)
    x[:, 1] = x[:, 1].sign()
    for _ in range(300):
        scores.observe(x)
    before = scores.knots
    assert (before.diff(dim=0) > 0).all()
    x[3, 0] = math.nan
    scores.observe(x)
    assert torch.equal(scores.knots[:, 0], before[:, 0])
    assert scores.batches.tolist() == [300, 301]


def test_the_knots_are_replaced():
    q = mb.Copula(X, Y, 8)
    x, y = torch.randn(N, X), torch.randn(N, Y)
    q.observe(x, y)
    loss = -q(x).log_prob(y).mean()
    q.observe(x, y)
    loss.backward()  # would fail if a buffer of its graph had been altered


def test_samples_follow_the_density():
    torch.manual_seed(0)
    q = mb.Copula(X, Y, 8).double()
    x = torch.randn(N, X, dtype=torch.float64)
    q.observe(x, cube(x[:, :Y]) + 1)
    with torch.no_grad():
        q.lower[1, 0] = 0.8
        p = q(x[:1])
        y = p.sample((20_000,))
        grid = torch.linspace(-60, 60, 6001, dtype=torch.float64)
        scores, _ = interpolate(y, p.knots, p.scores)  # in their scale all is Gaussian
        loc, scale = p.base.mean, p.base.stddev
        correlation = torch.corrcoef(scores.squeeze(1).T)[0, 1].item()
        # The second column is -0.8 times the first, and noise.
        a, b = scale.flatten().tolist()
        assert correlation == pytest.approx(-0.8 * a / math.hypot(0.8 * a, b), abs=0.02)
        marginal = [y[:, 0, 0].lt(t).double().mean().item() for t in (-1.0, 1.0, 3.0)]
        fine = torch.stack([grid, torch.zeros_like(grid)], 1)
        scores, slope = interpolate(fine, p.knots, p.scores)
        z = (scores[:, 0] - loc[0, 0]) / scale[0, 0]
        density = (-0.5 * z**2 - 0.5 * math.log(2 * math.pi)).exp() / scale[0, 0]
        density = density * slope[:, 0]
        below = [density[grid < t].sum().item() * 0.02 for t in (-1.0, 1.0, 3.0)]
        assert marginal == pytest.approx(below, abs=0.02)


def test_stretching_a_column_changes_nothing_of_a_difference_of_entropies():
    x = torch.randn(N, X)
    y = x[:, :Y] + torch.randn(N, Y)

    def value(y):
        torch.manual_seed(0)
        estimator = mb.DoE(conditional=mb.Copula(X, Y, 8))
        assert isinstance(estimator.marginal, mb.Copula)
        optimizer = torch.optim.Adam(estimator.parameters(), lr=0.01)
        for _ in range(150):
            optimizer.zero_grad()
            estimator.learning_loss(x, y).backward()
            optimizer.step()
        return estimator(x, y).item()

    plain = value(y)
    assert 0.4 < plain < 1.2
    assert value(cube(y)) == pytest.approx(plain, abs=0.1)
    assert value(y.exp()) == pytest.approx(plain, abs=0.1)


def test_correlated_columns_count_once():
    """Both columns of y are nearly the same: what they share with x must not count twice."""
    torch.manual_seed(0)
    estimator = mb.DoE(conditional=mb.Copula(1, 2, 8))
    optimizer = torch.optim.Adam(estimator.parameters(), lr=0.02)

    def draw(n):
        x = torch.randn(n, 1)
        y = x + torch.randn(n, 1)
        return x, torch.cat([y, y + 0.1 * torch.randn(n, 1)], 1)

    for _ in range(400):
        optimizer.zero_grad()
        estimator.learning_loss(*draw(256)).backward()
        optimizer.step()
    assert estimator(*draw(20_000)).item() == pytest.approx(math.log(2) / 2, abs=0.05)
