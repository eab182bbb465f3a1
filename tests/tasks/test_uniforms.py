import math

import pytest
import torch
from scipy.integrate import quad

from mibounds.tasks import UniformNoise


@pytest.mark.parametrize("eps", [0.01, 0.1, 0.5, 0.75, 3.0])
def test_against_quadrature(eps):
    """I = h(y) - h(noise), with the trapezium that is the density of y."""

    def density(y: float) -> float:
        return max(0.0, min(1.0, y + eps) - max(0.0, y - eps)) / (2 * eps)

    def integrand(y: float) -> float:
        p = density(y)
        return -p * math.log(p) if p > 0 else 0.0

    kinks = [eps, 1 - eps]
    entropy, _ = quad(integrand, -eps, 1 + eps, points=kinks, epsabs=1e-11, limit=200)
    expected = entropy - math.log(2 * eps)
    assert UniformNoise(eps).mutual_information == pytest.approx(expected, abs=1e-8)
    assert UniformNoise(eps, dim=3).mutual_information == pytest.approx(3 * expected, abs=1e-7)
    y = torch.linspace(-eps, 1 + eps, 41, dtype=torch.float64)[1:-1, None]
    ratio = UniformNoise(eps).log_ratio(y.clamp(0, 1), y)
    expected = torch.tensor([-math.log(2 * eps * density(v)) for v in y[:, 0].tolist()])
    torch.testing.assert_close(ratio, expected.double(), rtol=1e-6, atol=1e-6)


def test_impossible_pairs():
    task = UniformNoise(0.1, dim=2)
    x = torch.tensor([[0.5, 0.5]])
    y = torch.tensor([[0.55, 0.45], [0.55, 0.7], [0.35, 0.5]])
    possible = torch.tensor([True, False, False])
    assert torch.equal(task.log_ratio(x, y).isfinite(), possible)
    assert torch.equal(task.conditional(x).log_prob(y).isfinite(), possible)
    assert torch.equal(task.log_ratio(x, y)[1:], torch.full((2,), -math.inf))


@pytest.mark.parametrize("eps", [1e-4, 0.1, 0.75, 100.0])
def test_rounding_never_makes_a_drawn_pair_impossible(eps, monkeypatch):
    ends = torch.tensor([0.0, 1 - 2**-24])  # of torch.rand in float32
    x, u = torch.cartesian_prod(torch.cat((ends, torch.rand(500))), ends)[..., None].unbind(1)
    monkeypatch.setattr(torch, "rand", lambda *_, **__: torch.stack((x, u)))
    task = UniformNoise(eps)
    x, y = task.sample(len(x))
    for dtype in (torch.float32, torch.float64):
        a, b = x.to(dtype), y.to(dtype)
        assert task.log_ratio(a, b).isfinite().all()
        assert task.conditional(a).log_prob(b).isfinite().all()


@pytest.mark.parametrize("eps", [0.0, -1.0, 1e-5, math.inf, math.nan])
def test_epsilon_error(eps):
    message = f"Expected epsilon to be finite and at least 1e-4 but got {eps}; give 0.1"
    with pytest.raises(ValueError, match=message):
        UniformNoise(eps)


def test_dim_error():
    with pytest.raises(ValueError, match="Expected dim to be an integer of at least 1 but got 0"):
        UniformNoise(0.1, dim=0)
