"""Single values far out neither silence a penalty nor stay unsaid; all else is left as it is."""

import math
import warnings

import pytest
import torch
from penalties import S, Z, angles, make, same

import mibounds as mb
from mibounds.minimise.outliers import draw_in, is_far_out
from mibounds.minimise.second_opinions import ask

KINDS = {
    "default": lambda: mb.MIPenalty(Z, S, inner_steps=3),
    "given": lambda: mb.MIPenalty(Z, S, given_labels=2, inner_steps=3),
    "total correlation": lambda: mb.TCPenalty([Z, S], inner_steps=3),
    "club": lambda: make("club", lr=5e-3),
    "club_sample": lambda: make("club_sample", lr=5e-3),
}  # fmt: skip


@pytest.mark.parametrize(("size", "side"), [(1e6, "x"), (3e38, "x"), (-1e6, "y"), (1e20, "y")])
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_shared_goes_and_one_warning_comes(kind, size, side):
    theta, draw, truth = angles()
    penalty, generator = KINDS[kind](), torch.Generator().manual_seed(0)
    optimizer, said = torch.optim.Adam([theta], lr=0.03), []
    options = {"given": torch.arange(128) % 2} if kind == "given" else {}
    for step in range(70):
        x, y, _ = draw(generator)
        far = torch.zeros_like(x if side == "x" else y)
        if step == 20:
            far[3] = size
        x, y = (x + far, y) if side == "x" else (x, y + far)
        optimizer.zero_grad()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            penalty(x, y, **options).backward()
        said += [(step, str(each.message)) for each in caught]
        optimizer.step()
    assert truth() < 0.03
    assert [step for step, _ in said] == [20]
    assert said[0][1].startswith(f"far-out: Single values of {side} lie a thousand times")


@pytest.mark.parametrize("size", [1e4, -1e20, 3e38])
def test_only_what_is_far_out_is_moved(size):
    x = torch.randn(64, 3)
    bad = x.clone()
    bad[5, 1] = size
    assert draw_in(x) is x
    assert is_far_out(bad)
    near = draw_in(bad.requires_grad_())
    near.sum().backward()
    moved = torch.zeros(64, 3, dtype=torch.bool)
    moved[5, 1] = True
    assert torch.equal(near[~moved], x[~moved])
    assert near[5, 1].abs() < 5
    assert near[5, 1].sign() == math.copysign(1, size)
    assert torch.equal(bad.grad == 0, moved)


def test_heavy_tails_rare_values_and_what_is_no_number_stay():
    cauchy = torch.distributions.Cauchy(0.0, 1.0).sample((512, 4)).clamp(-300, 300)
    rare = (torch.rand(512, 4) < 0.02).float()
    single = torch.zeros(512, 4)
    single[7] = 1.0
    bad = torch.randn(512, 4)
    bad[3, 1], bad[4, 2] = math.nan, math.inf
    for values in (cauchy, rare, single, torch.ones(512, 4), torch.arange(512), cauchy[:5]):
        assert torch.equal(draw_in(values), values)
        assert not is_far_out(values)
    assert torch.equal(draw_in(bad).nan_to_num(), bad.nan_to_num())


def test_a_second_opinion_sees_the_rest():
    x = torch.randn(1000, 2)
    y = x[:, :1] + torch.randn(1000, 1)
    want = ask(x, y).nats
    x[7], y[9] = 1e8, -1e20
    assert ask(x, y).nats > 0.7 * want > 0.1


def test_a_known_conditional_sees_what_there_is():
    def known(v):
        return torch.distributions.Independent(torch.distributions.Normal(v, 1.0), 1)

    x = torch.randn(32, Z)
    y = x + torch.randn(32, Z)
    y[3] = 1e6
    value = mb.MIPenalty(mb.CLUB(conditional=known), check_every=0)(x, y.requires_grad_())
    torch.testing.assert_close(value, mb.club(known(x), y))


def test_without_outliers_nothing_changes():
    one, other = make("default"), make("default")
    other.alternation.draw_in = lambda *sides: list(sides)
    for seed in range(3):
        g = torch.Generator().manual_seed(seed)
        x, y = torch.randn(64, Z, generator=g), torch.randn(64, S, generator=g)
        assert one(x.requires_grad_(), y) == other(x, y)
    assert same(one.parameters(), other.parameters())
