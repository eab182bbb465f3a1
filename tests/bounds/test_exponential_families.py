import math

import pytest
import torch
from torch.distributions import Independent, Normal

import mibounds as mb
from mibounds import bounds
from mibounds.bounds.densities import log_prob, log_prob_mean
from mibounds.bounds.exponential_families import (
    club_normal,
    club_normal_small,
    club_of_sums,
    sum_normal,
)
from mibounds.samples.batches import Batch

N = 24


def parameters(event, dtype=torch.float64):
    torch.manual_seed(0)
    y = torch.randn(N, *event, dtype=dtype)
    loc, scale = 0.8 * y + torch.randn_like(y), (0.5 * torch.randn_like(y)).exp()
    return [t.requires_grad_() for t in (loc, scale, y)]


def club(loc, scale, y, negatives="others"):
    return mb.club(Independent(Normal(loc, scale), y.ndim - 1), y, negatives=negatives)


@pytest.mark.parametrize("negatives", ["others", "all"])
@pytest.mark.parametrize("event", [(), (3,), (3, 2)])
def test_club_of_normal_columns_is_own_less_mean(event, negatives):
    inputs = parameters(event)
    value = club(*inputs, negatives)
    p = Independent(Normal(*inputs[:2]), len(event))
    plain = bounds.club(log_prob(p, inputs[2]), log_prob_mean(p, inputs[2]), negatives)
    torch.testing.assert_close(value, plain)
    torch.testing.assert_close(
        torch.autograd.grad(value, inputs), torch.autograd.grad(plain, inputs)
    )


def test_club_of_normal_columns_has_two_derivatives():
    inputs = [t.detach()[:5].requires_grad_() for t in parameters((2,))]
    assert torch.autograd.gradcheck(club, inputs)
    assert torch.autograd.gradgradcheck(club, inputs)


def test_club_of_normal_columns_loses_nothing_far_from_zero():
    loc, scale, y = (t.detach().float() for t in parameters((3,)))
    loc, y = (8 * loc).round() / 8, (8 * y).round() / 8  # which a float can hold at the offset too
    torch.testing.assert_close(
        club(loc + 1e6, scale, y + 1e6), club(loc, scale, y), rtol=1e-5, atol=1e-5
    )


@pytest.mark.parametrize("unit", [1e-18, 1e18])
def test_club_of_normal_columns_has_no_unit(unit):
    loc, scale, y = (t.detach().float() for t in parameters((3,)))
    torch.testing.assert_close(
        club(unit * loc, unit * scale, unit * y), club(loc, scale, y), rtol=1e-4, atol=1e-4
    )


def test_club_of_normal_columns_is_infinite_where_it_overflows_and_nan_where_the_input_is():
    loc, scale, y = (t.detach().float() for t in parameters((3,)))
    scale[3, 1] = 1e-25
    with pytest.warns(RuntimeWarning, match="CLUB is \\+inf"):
        assert club(loc, scale, y).item() == math.inf
    scale[3, 1], loc[3, 1] = 1.0, math.nan
    p = Independent(Normal(loc, scale, validate_args=False), 1, validate_args=False)
    assert mb.club(p, y).isnan()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_club_of_normal_columns_is_computed_in_full_precision(dtype):
    half = [t.detach().to(dtype) for t in parameters((3,))]
    half[1] *= 0.01  # whose inverse square a half float cannot hold
    value, exact = club(*half), club(*(t.double() for t in half))
    assert value.dtype == dtype
    assert value.item() == pytest.approx(exact.item(), rel=torch.finfo(dtype).eps)


def test_club_of_normal_columns_can_be_mapped():
    def value(loc, scale, y):
        return club_normal(Normal(loc, scale, validate_args=False), y, Batch(N))

    many = [torch.stack([t, t + 1]) for t in parameters((3,))]
    expected = torch.stack([value(*one) for one in zip(*many, strict=True)])
    torch.testing.assert_close(torch.func.vmap(value)(*many), expected)


@pytest.mark.parametrize("event", [(), (3,)])
def test_pieces_of_a_batch_add_up_to_it(event):
    loc, raw, y = torch.randn(3, 8, *event, dtype=torch.float64).unbind(0)
    scale, centre = 0.1 + raw.square(), y[0]
    parts = [
        sum_normal(Normal(*part[:2]), part[2], centre)
        for part in zip(loc.split(3), scale.split(3), y.split(3), strict=True)
    ]
    value = club_of_sums(torch.stack(parts).sum(0), 8, Batch(8))
    torch.testing.assert_close(value, club_normal(Normal(loc, scale), y, Batch(8)))


@pytest.mark.parametrize("offset", [0.0, 1e4])
@pytest.mark.parametrize("event", [(), (3,)])
def test_the_form_of_club_for_a_small_batch_on_a_gpu(offset, event):
    g = torch.Generator().manual_seed(0)
    loc, raw, y = torch.randn(3, 7, *event, generator=g, dtype=torch.float64).unbind(0)
    inputs = [v.clone().requires_grad_() for v in (loc + offset, 0.1 + raw.square(), y + offset)]
    p = Normal(inputs[0], inputs[1])
    fast = club_normal_small(p, inputs[2])
    pairs = p.log_prob(inputs[2][:, None])  # [j, i] = log p(y_j | x_i)
    pairs = pairs.flatten(2).sum(-1) if event else pairs
    plain = pairs.diagonal().mean() - pairs.mean()
    torch.testing.assert_close(fast, plain, rtol=1e-6, atol=1e-8)
    for a, b in zip(*(torch.autograd.grad(v, inputs) for v in (fast, plain)), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-7)
    huge = torch.tensor([[1e30, 0.0], [-1e30, 1.0]])
    assert club_normal_small(Normal(torch.zeros(2, 2), 1.0), huge).item() == math.inf
