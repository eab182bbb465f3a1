"""Fitting q and evaluating the bound never reach each other's parameters."""

import math
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from penalties import (
    EVERY,
    KINDS,
    N,
    Z,
    batch,
    encoder,
    features,
    make,
    parameters,
    same,
    samples,
)  # fmt: skip
from torch.distributions import Independent, Normal

import mibounds as mb
from mibounds.estimators.ratio import draw_noise
from mibounds.minimise.dependence import standardise_batch, whiten
from mibounds.networks import use_units_that_live


@pytest.mark.parametrize("name", [*KINDS, "doe", "infonce"])
def test_a_call_is_the_alternation_written_out(name):
    """Inner steps of Adam on detached samples, then the bound with q as it is after them."""
    net, penalty = encoder(), make(name, inner_steps=3, lr=0.01, seed=7, adapt=False)
    torch.manual_seed(1)
    estimator = mb.ESTIMATORS[name](Z, 2, 8)
    optimizer = torch.optim.Adam(estimator.parameters(), lr=0.01, fused=True)
    generator = torch.Generator().manual_seed(7)
    for seed in range(3):
        v, s = batch(seed)
        z = net(v)
        value = penalty(z, s)
        (gradient,) = torch.autograd.grad(value, z)
        plain = z.detach().requires_grad_()
        for _ in range(3):
            optimizer.zero_grad()
            estimator.learning_loss(plain.detach(), s).backward()
            optimizer.step()
        options = {"seed": generator} if name == "club_sample" else {}
        want = estimator(plain, s, **options)
        torch.testing.assert_close(value, want)
        torch.testing.assert_close(gradient, torch.autograd.grad(want, plain)[0])


def test_q_sees_what_an_encoder_shows_whitened_and_with_noise():
    net, penalty = encoder(), make(inner_steps=2, lr=0.01, seed=7, spread=0.1)
    assert not any(isinstance(m, torch.nn.ReLU) for m in penalty.modules())
    torch.manual_seed(1)
    estimator = mb.CLUB(Z, 2, 8)
    use_units_that_live(estimator)
    optimizer = torch.optim.Adam(estimator.parameters(), lr=0.01, fused=True)
    generator = torch.Generator().manual_seed(7)
    for seed in range(3):
        v, s = batch(seed)
        z = net(v)
        value = penalty(z, s)
        plain = z.detach().requires_grad_()
        shown = whiten(standardise_batch(plain))
        fitted = shown.detach() + draw_noise(N, shown, 0.1, generator)[0]
        for _ in range(2):
            optimizer.zero_grad()
            estimator.learning_loss(fitted, s).backward()
            optimizer.step()
        want = estimator(shown + draw_noise(N, shown, 0.1, generator)[0], s)
        torch.testing.assert_close(value, want)
        pair = torch.autograd.grad(value, z)[0], torch.autograd.grad(want, plain)[0]
        torch.testing.assert_close(*pair)
    penalty.eval()  # without noise
    torch.testing.assert_close(penalty(z, s), estimator(shown, s))


@pytest.mark.parametrize("moving", [(False, False), (True, False), (False, True), (True, True)])
def test_one_side_is_whitened_if_it_comes_from_an_encoder(moving):
    """Of two the first: the other would get next to no gradient where it varies most."""
    x, y = torch.randn(N, 3), torch.randn(N, 2)
    alternation = make().alternation
    alternation.note_gradients(*(v.requires_grad_(m) for v, m in zip((x, y), moving, strict=True)))
    sides = x.detach(), y.detach()  # as in a health check
    white = (moving[0], moving[1] and not moving[0])
    for value, shown, changed in zip(sides, alternation.show(*sides), white, strict=True):
        torch.testing.assert_close(shown, whiten(standardise_batch(value)) if changed else value)


def test_a_known_q_sees_samples_as_they_are():
    q = mb.Gaussian(Z, 2)
    for p in q.parameters():
        p.requires_grad_(False)
    x, y = torch.randn(N, Z, requires_grad=True), torch.randn(N, 2)
    value = mb.MIPenalty(mb.CLUB(conditional=q))(x, y)
    torch.testing.assert_close(value, mb.club(q(x), y))


@pytest.mark.parametrize("name", EVERY)
def test_each_optimiser_changes_only_its_own_parameters(name):
    net, penalty = encoder(), make(name)
    optimizer = torch.optim.AdamW([*net.parameters(), *penalty.parameters()], lr=0.1)
    before = parameters(net)
    value = penalty(net(batch()[0]), batch()[1])
    assert same(before, parameters(net)), "the fit of q touched the encoder"
    assert all(p.grad is None for p in net.parameters())
    q = parameters(penalty)
    value.backward()
    assert all(p.grad is None for p in penalty.parameters()), "the bound reached q"
    assert all(p.grad.abs().sum() > 0 for p in net.parameters() if p.ndim > 1)
    optimizer.step()
    assert same(q, parameters(penalty)), "the user's optimiser touched q, if only by decay"
    assert not same(before, parameters(net))


def test_any_order_of_calls_and_backward_passes():
    net, penalty = encoder(), make()
    z, other = net(batch(0)[0]), net(batch(1)[0])
    first = penalty(z, batch(0)[1])
    (alone,) = torch.autograd.grad(first, net.weight, retain_graph=True)
    second = penalty(other, batch(1)[1])  # fits q again, while the first graph still stands
    (later,) = torch.autograd.grad(first, net.weight, retain_graph=True)
    torch.testing.assert_close(alone, later, rtol=0, atol=0)
    (first + second).backward()
    assert net.weight.grad.isfinite().all()


def test_one_bad_batch_does_not_spoil_q():
    penalty = make()
    penalty(*samples(0))
    z, s = samples(1)
    z[3, 1] = math.inf
    with pytest.warns(mb.PenaltyWarning, match="not-finite: There is NaN or infinity in x:"):
        penalty(z, s)  # at once, not at the next check
    assert all(p.isfinite().all() for p in penalty.parameters())
    assert penalty(*samples(2)).isfinite()


def test_both_directions_are_the_mean_of_two_bounds():
    torch.manual_seed(0)
    there, back = mb.CLUB(Z, 2), mb.CLUB(2, Z)
    penalty = mb.MIPenalty(there, backward=back)
    z, s = samples(0)
    value = penalty(z, s)
    torch.testing.assert_close(value, (there(z, s) + back(s, z)) / 2)
    assert penalty.estimator is there


def test_clip_limits_the_gradient_of_q():
    seen = []

    class Spy(torch.optim.SGD):
        def step(self, closure=None):
            gradients = [p.grad for group in self.param_groups for p in group["params"]]
            seen.append(torch.cat([g.flatten() for g in gradients]))

    for clip in (None, 1e-3):
        penalty = make(clip=clip, optimizer=lambda ps: Spy(ps, lr=0.1), inner_steps=1)
        penalty(*samples(0))
    assert seen[0].norm() > 1e-3
    torch.testing.assert_close(seen[1].norm(), torch.tensor(1e-3))
    torch.testing.assert_close(seen[1] / seen[1].norm(), seen[0] / seen[0].norm())


def test_the_bound_is_that_of_averaged_parameters():
    penalty, s = make(average=0.9, lr=0.05), samples(1)
    names = [name for name, _ in penalty.estimator.named_parameters()]
    average = parameters(penalty)
    for step in range(1, 100):
        penalty.fit(*samples(step), steps=1)
        kept = min(0.9, step / (10 + step))
        pairs = zip(average, penalty.parameters(), strict=True)
        average = [kept * a + (1 - kept) * p for a, p in pairs]
        if step in (1, 2, 99):
            q = dict(zip(names, average, strict=True))
            want = torch.func.functional_call(penalty.estimator, q, s)
            torch.testing.assert_close(penalty.bound(*s), want)
            assert not torch.allclose(penalty.estimator(*s), want)


def test_the_average_of_q_is_calmer_and_follows():
    plain, calm = make(lr=0.05), make(lr=0.05, average=0.95)
    for seed in range(60):
        plain(*samples(seed))
        calm(*samples(seed))
    assert same(parameters(plain), parameters(calm))  # the fit itself is the same
    fresh = [samples(seed, 512) for seed in range(100, 104)]
    a = torch.stack([plain.bound(*pair) for pair in fresh])
    b = torch.stack([calm.bound(*pair) for pair in fresh])
    assert not torch.allclose(a, b)
    assert (a - b).abs().max() < a.abs().max()

    def wobble(penalty):
        values = []
        for seed in range(200, 230):
            penalty(*samples(seed))
            values.append(penalty.bound(*fresh[0]))
        return torch.stack(values).diff().abs().mean()

    assert wobble(calm) < 0.5 * wobble(plain)


# --- known conditionals --------------------------------------------------------------------------


def test_a_known_conditional_keeps_its_gradients():
    net = encoder()

    def known(v):
        return Independent(Normal(net(v), 1.0), 1)

    penalty = mb.MIPenalty(mb.CLUB(conditional=known))
    assert penalty.optimizer is None
    assert list(penalty.parameters()) == []
    v, _ = batch()
    z = known(v).rsample()
    value = penalty(v, z)
    want = mb.club(known(v), z)
    torch.testing.assert_close(value, want)
    got = torch.autograd.grad(value, net.weight, retain_graph=True)[0]
    torch.testing.assert_close(got, torch.autograd.grad(want, net.weight)[0])
    assert got.abs().sum() > 0


def test_beside_a_known_conditional_a_learnt_marginal_is_fitted():
    net = encoder()
    estimator = mb.VUB(
        conditional=lambda v: Independent(Normal(net(v), 1.0), 1), marginal=mb.Gaussian(0, Z)
    )
    penalty = mb.MIPenalty(estimator)
    v, _ = batch()
    before = parameters(penalty)
    penalty(v, net(v) + torch.randn(N, Z)).backward()
    assert not same(before, parameters(penalty))
    assert net.weight.grad.abs().sum() > 0


# --- several processes, a graph of one's own -----------------------------------------------------


def test_two_processes_are_one_on_the_joined_batch():
    script = Path(__file__).parents[1] / "support" / "penalty_processes.py"
    launch = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
    result = subprocess.run(
        [sys.executable, *launch, str(script)],
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert "worst difference" in result.stdout


@pytest.mark.parametrize("name", KINDS)
def test_within_a_graph_of_ones_own(name):
    """What a call writes stays in its place and can be put back, so that a graph can hold it."""
    plain, held = make(name), make(name, capturable=True)
    places = {k: v.data_ptr() for k, v in held.tensors().items()}
    assert any(k.startswith("moment") for k in places)
    for seed in range(4):
        before = {k: v.clone() for k, v in held.tensors().items()}
        state = held.generator.get_state()
        values = []
        for _ in range(2):  # as a trial run before the capture: taken back, and taken again
            for k, v in held.tensors().items():
                v.copy_(before[k])
            held.generator.set_state(state)
            z, s = features(seed)
            value = held(z, s)
            values.append((value.detach(), *torch.autograd.grad(3 * value, z)))
        z, s = features(seed)
        value = plain(z, s)
        expected = (value.detach(), *torch.autograd.grad(3 * value, z))
        for got in values:
            assert same(got, expected)
        assert same(parameters(plain), parameters(held))
        assert {k: v.data_ptr() for k, v in held.tensors().items()} == places
    assert not same(before.values(), held.tensors().values())
