import math

import numpy as np
import pytest
import torch
from scipy.stats import norm

from mibounds.tasks import Asinh, Mixing, NormalCDF, SignedPower, Spiral, SwissRoll

MAPS = [
    SignedPower(3.0),
    SignedPower(1.5),
    Asinh(),
    NormalCDF(),
    Mixing(3),
    Mixing(3, seed=4, condition=2.0),
    Spiral(1.3),
    Spiral(-0.2),
]


def points(dim: int = 3) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(20, dim, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("f", MAPS, ids=repr)
def test_inverse(f):
    x = points()
    torch.testing.assert_close(f.inv(f(x)), x, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(f(f.inv(f(x))), f(x), rtol=1e-9, atol=1e-9)
    assert not torch.allclose(f(x), x, atol=1e-2)
    assert f.inv.inv is f
    assert f.forward_shape(x.shape) == x.shape == f(x).shape


@pytest.mark.parametrize("f", MAPS, ids=repr)
def test_log_determinant_against_the_jacobian(f):
    for x in points():
        jacobian = torch.func.jacrev(f)(x)
        got = f.log_abs_det_jacobian(x, f(x))
        got = got.sum() if f.domain.event_dim == 0 else got
        torch.testing.assert_close(got, torch.linalg.slogdet(jacobian).logabsdet)


def test_maps_are_values():
    assert SignedPower(3.0) == SignedPower(3.0) != SignedPower(1.5)
    assert hash(Mixing(3)) == hash(Mixing(3))
    assert Mixing(3) != Mixing(3, seed=1)
    assert Asinh() == Asinh()
    assert repr(Mixing(3)) == "Mixing(dim=3, seed=0, condition=10.0)"


def test_values():
    t = torch.tensor([-2.0, 0.0, 4.0], dtype=torch.float64)
    torch.testing.assert_close(SignedPower(3.0)(t), t**3)
    expected = torch.tensor([-(2**1.5), 0.0, 8.0], dtype=torch.float64)
    torch.testing.assert_close(SignedPower(1.5)(t), expected)
    np.testing.assert_allclose(Asinh()(t), np.arcsinh(t.numpy()))
    np.testing.assert_allclose(NormalCDF()(t), norm.cdf(t.numpy()))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_normal_cdf_stays_invertible_in_the_tails(dtype):
    t = torch.tensor([-40.0, -6.0, 6.0, 40.0], dtype=dtype)
    u = NormalCDF()(t)
    assert ((u > 0) & (u < 1)).all()
    assert NormalCDF().inv(u).isfinite().all()


@pytest.mark.parametrize("dim", [2, 20])
def test_mixing_matrix(dim):
    w = Mixing(dim).matrix
    assert np.linalg.matrix_rank(w) == dim
    assert np.linalg.cond(w) == pytest.approx(10)
    assert np.mean(np.linalg.svd(w, compute_uv=False) ** 2) == pytest.approx(1)
    np.testing.assert_array_equal(w, Mixing(dim).matrix)
    assert np.abs(w - Mixing(dim, seed=1).matrix).max() > 0.1
    assert np.abs(w - np.diag(np.diag(w))).max() > 0.1  # it does mix
    x = points(dim)
    np.testing.assert_allclose(Mixing(dim)(x)[3], w @ x[3].numpy())


def test_spiral_turns_the_first_plane_alone():
    x = points(4)
    y = Spiral(0.7)(x)
    torch.testing.assert_close(y.norm(dim=-1), x.norm(dim=-1))
    assert torch.equal(y[:, 2:], x[:, 2:])
    turned = torch.atan2(y[:, 1], y[:, 0]) - torch.atan2(x[:, 1], x[:, 0])
    angle = 0.7 * x.square().sum(-1)
    torch.testing.assert_close(turned.cos(), angle.cos())
    torch.testing.assert_close(turned.sin(), angle.sin())


def test_swiss_roll():
    f = SwissRoll()
    u = torch.linspace(0.01, 0.99, 50, dtype=torch.float64)[:, None]
    y = f(u)
    assert y.shape == f.forward_shape(u.shape) == (50, 2)
    assert f.inverse_shape(y.shape) == u.shape
    torch.testing.assert_close(f.inv(y), u)
    for a in u:
        jacobian = torch.func.jacrev(f)(a)
        expected = torch.linalg.slogdet(jacobian.T @ jacobian).logabsdet / 2
        torch.testing.assert_close(f.log_abs_det_jacobian(a, f(a)), expected)


def test_swiss_roll_ends_survive_rounding():
    u = torch.tensor([[0.0], [1e-9], [1 - 2**-24], [1.0]])
    rolled = SwissRoll()(u)
    for y in (rolled, rolled.double()):
        assert NormalCDF().inv(SwissRoll().inv(y)).abs().max() < 9  # and no wild outlier


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: SignedPower(0.0),
            "Expected exponent to be positive and finite but got 0.0; give 3.0",
        ),
        (lambda: SignedPower(math.inf), "Expected exponent to be positive and finite but got inf"),
        (lambda: Mixing(0), "Expected dim to be an integer of at least 1 but got 0"),
        (
            lambda: Mixing(2, condition=0.5),
            "Expected condition to be finite and at least 1 but got 0.5; give the ratio",
        ),
        (lambda: Spiral(math.nan), "Expected speed to be finite but got nan; give radians"),
        (
            lambda: Mixing(2).forward_shape(torch.Size([3])),
            "Expected 2 columns, as W has but got 3; give Mixing the dimension",
        ),
        (
            lambda: Spiral(1.0).forward_shape(torch.Size([1])),
            "Expected at least 2 columns to turn but got 1; map a wider variable",
        ),
        (
            lambda: SwissRoll().forward_shape(torch.Size([2])),
            "Expected 1 column to roll up but got 2; map a variable of dimension 1",
        ),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_errors(make, message):
    with pytest.raises(ValueError, match=message):
        make()
