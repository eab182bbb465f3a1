import copy
import math
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.distributions import Independent, Normal

import mibounds as mb

Z, S, N = 3, 2, 32


def batch(seed=0, n=N, dtype=torch.float32):
    g = torch.Generator().manual_seed(seed)
    v = torch.randn(n, 5, generator=g, dtype=dtype)
    return v, v[:, :S] + 0.5 * torch.randn(n, S, generator=g, dtype=dtype)


def encoder(seed=0):
    torch.manual_seed(seed)
    return nn.Linear(5, Z)


def make(name="club", **options):
    torch.manual_seed(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", mb.PenaltyWarning)
        return mb.MIPenalty(mb.ESTIMATORS[name](Z, S, 8), **options)


def parameters(module):
    return [p.detach().clone() for p in module.parameters()]


def same(a, b):
    return all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


def loss_of(net, penalty, seed):
    v, s = batch(seed)
    z = net(v)
    return z.square().mean() + 0.1 * penalty(z, s)


def train(net, optimizer, penalty, seeds):
    for seed in seeds:
        optimizer.zero_grad()
        loss_of(net, penalty, seed).backward()
        optimizer.step()


# --- what a step is ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", mb.ESTIMATORS)
def test_a_call_is_the_alternation_written_out(name):
    """Inner steps of Adam on detached samples, then the bound with q as it is after them."""
    net, penalty = encoder(), make(name, inner_steps=3, lr=0.01, seed=7)
    torch.manual_seed(1)
    estimator = mb.ESTIMATORS[name](Z, S, 8)
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
        options = {"generator": generator} if name == "club_sample" else {}
        want = estimator(plain, s, **options)
        torch.testing.assert_close(value, want)
        torch.testing.assert_close(gradient, torch.autograd.grad(want, plain)[0])


@pytest.mark.parametrize("name", mb.ESTIMATORS)
def test_nobody_touches_what_is_not_his(name):
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


def test_evaluation_changes_nothing_and_has_gradients():
    penalty = make()
    penalty(*_samples(0))
    penalty.eval()
    state = copy.deepcopy(penalty.state_dict())
    z, s = _samples(1)
    z.requires_grad_()
    value = penalty(z, s)
    value.backward()
    assert z.grad.abs().sum() > 0
    assert str(state) == str(penalty.state_dict())
    assert penalty.calls == 1
    torch.testing.assert_close(value, penalty.bound(z, s))


def _samples(seed, n=N):
    v, s = batch(seed, n)
    return v[:, :Z].clone(), s


def _features(seed, n=N):
    """Samples, of which x is an encoder's."""
    z, s = _samples(seed, n)
    return z.requires_grad_(), s


def test_no_grad_and_inference_mode():
    penalty = make()
    with torch.no_grad():
        assert not penalty(*_samples(0)).requires_grad
    assert penalty.calls == 1
    before = parameters(penalty)
    with torch.inference_mode():
        penalty(*_samples(1))
    assert penalty.calls == 1
    assert same(before, parameters(penalty))


def test_minimising_takes_a_known_dependence_away():
    """x = sin θ a + cos θ b, y = cos θ a + sin θ b: the correlation is sin 2θ."""
    torch.manual_seed(0)
    theta = nn.Parameter(torch.full((3,), 0.5))
    penalty = mb.MIPenalty(mb.CLUB(3, 3), inner_steps=3)
    optimizer = torch.optim.Adam([theta], lr=1e-2)

    def truth():
        return -0.5 * (1 - (2 * theta.detach()).sin() ** 2).log().sum().item()

    start = truth()
    for _ in range(150):
        a, b = torch.randn(2, 128, 3)
        optimizer.zero_grad()
        penalty(theta.sin() * a + theta.cos() * b, theta.cos() * a + theta.sin() * b).backward()
        optimizer.step()
    assert start > 1.5
    assert truth() < 0.05


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


def test_images_with_a_known_conditional_are_no_sequences():
    layer = nn.Linear(12, Z)
    penalty = mb.MIPenalty(
        mb.CLUB(conditional=lambda v: Independent(Normal(layer(v.flatten(1)), 1.0), 1))
    )
    v = torch.randn(6, 3, 4)
    assert penalty(v, torch.randn(6, Z)).shape == ()


# --- options -------------------------------------------------------------------------------------


def test_warmup_and_weight():
    z, s = _samples(0)
    z.requires_grad_()
    penalty = make(warmup=2, weight=lambda call: 0.5 * call)
    for call in range(4):
        z.grad = None
        value = penalty(z, s)
        value.backward()
        assert penalty.fits == 5 * (call + 1)
        if call < 2:
            assert value.item() == 0
            assert z.grad is not None
            assert z.grad.abs().sum() == 0
        else:
            torch.testing.assert_close(value, 0.5 * call * penalty.bound(z, s))
    assert penalty.values.isfinite().sum() == 2
    broken = make(weight=lambda call: float("inf"))
    with pytest.raises(ValueError, match=r"finite number, or a function .* but got inf"):
        broken(z, s)


def test_both_directions_are_the_mean_of_two_bounds():
    torch.manual_seed(0)
    there, back = mb.CLUB(Z, S), mb.CLUB(S, Z)
    penalty = mb.MIPenalty(there, backward=back)
    z, s = _samples(0)
    value = penalty(z, s)
    torch.testing.assert_close(value, (there(z, s) + back(s, z)) / 2)
    assert penalty.estimator is there


@pytest.mark.parametrize("swap", [False, True])
def test_labels(swap):
    z, _ = _samples(0)
    labels = torch.arange(N) % 4
    estimator = mb.CLUB(conditional=mb.Categorical(Z, 4))
    if swap:
        labels = labels[:, None]
    value = mb.MIPenalty(estimator)(z.requires_grad_(), labels)
    value.backward()
    assert z.grad.abs().sum() > 0


def test_sequences_and_padding():
    z, s = torch.randn(4, 6, Z), torch.randn(4, 6, S)
    mask = torch.arange(6) < torch.tensor([6, 3, 1, 4])[:, None]
    a, b, c = make(), make(), make()
    torch.testing.assert_close(a(z, s), b(z.flatten(0, 1), s.flatten(0, 1)))
    z[~mask] = math.nan  # padding may hold anything
    value = a(z.requires_grad_(), s, mask=mask)
    value.backward()
    assert z.grad[mask].isfinite().all()
    assert (z.grad[~mask] == 0).all()
    c.load_state_dict(b.state_dict())
    torch.testing.assert_close(value, c(z.detach()[mask], s[mask]))
    labels = torch.randint(3, (4, 6))
    assert mb.MIPenalty(mb.CLUB(conditional=mb.Categorical(Z, 3)))(z, labels, mask=mask) > -9


def test_replay_fits_on_recent_batches_too():
    penalty = make(replay=2, inner_steps=1, lr=0.01)
    torch.manual_seed(1)
    estimator = mb.CLUB(Z, S, 8)
    optimizer = torch.optim.Adam(estimator.parameters(), lr=0.01, fused=True)
    for seed in range(4):
        z, s = _samples(seed)
        value = penalty(z.requires_grad_(), s)
        pool = [_samples(k) for k in range(max(0, seed - 2), seed + 1)]
        optimizer.zero_grad()
        estimator.learning_loss(*(torch.cat(side) for side in zip(*pool, strict=True))).backward()
        optimizer.step()
        torch.testing.assert_close(value, estimator(z, s))
    assert not any(v.requires_grad for pair in penalty._recent for v in pair)


def test_the_average_of_q_is_calmer_and_follows():
    plain, calm = make(lr=0.05), make(lr=0.05, average=0.95)
    for seed in range(60):
        plain(*_samples(seed))
        calm(*_samples(seed))
    assert same(parameters(plain), parameters(calm))  # the fit itself is the same
    fresh = [_samples(seed, 512) for seed in range(100, 104)]
    a = torch.stack([plain.bound(*pair) for pair in fresh])
    b = torch.stack([calm.bound(*pair) for pair in fresh])
    assert not torch.allclose(a, b)
    assert (a - b).abs().max() < a.abs().max()

    def wobble(penalty):
        values = []
        for seed in range(200, 230):
            penalty(*_samples(seed))
            values.append(penalty.bound(*fresh[0]))
        return torch.stack(values).diff().abs().mean()

    assert wobble(calm) < 0.5 * wobble(plain)


def test_clip_bounds_the_gradient_of_q():
    seen = []

    class Spy(torch.optim.SGD):
        def step(self, closure=None):
            gradients = [p.grad for group in self.param_groups for p in group["params"]]
            seen.append(torch.cat([g.flatten() for g in gradients]))

    for clip in (None, 1e-3):
        penalty = make(clip=clip, optimizer=lambda ps: Spy(ps, lr=0.1), inner_steps=1)
        penalty(*_samples(0))
    assert seen[0].norm() > 1e-3
    torch.testing.assert_close(seen[1].norm(), torch.tensor(1e-3))
    torch.testing.assert_close(seen[1] / seen[1].norm(), seen[0] / seen[0].norm())


def test_clamp_changes_the_value_and_not_the_gradient():
    plain, clamped = make(), make(clamp=True)
    z, s = _samples(0)
    plain(z, s), clamped(z, s)
    plain.eval(), clamped.eval()
    z = -z.requires_grad_()  # the opposite of what q has learnt
    a, b = plain(z, s), clamped(z, s)
    assert a < 0
    assert b == 0
    torch.testing.assert_close(*(torch.autograd.grad(v, z)[0] for v in (a, b)))


# --- resuming ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "options"),
    [
        *((name, {}) for name in mb.ESTIMATORS),
        ("club_sample", {"replay": 3, "average": 0.9, "clip": 1.0, "warmup": 4}),
    ],
)
def test_an_interrupted_run_goes_on_bit_for_bit(name, options, tmp_path):
    def start():
        net = encoder()
        return net, torch.optim.Adam(net.parameters(), lr=0.01), make(name, **options)

    whole = start()
    train(*whole, range(10))
    half = start()
    train(*half, range(6))
    torch.save([part.state_dict() for part in half], tmp_path / "state.pt")
    torch.manual_seed(99)  # the global random numbers are not part of it
    again = start()
    for part, state in zip(again, torch.load(tmp_path / "state.pt"), strict=True):
        part.load_state_dict(state)
    train(*again, range(6, 10))
    assert same(parameters(whole[0]), parameters(again[0]))
    assert same(parameters(whole[2]), parameters(again[2]))
    assert torch.equal(whole[2].values.nan_to_num(), again[2].values.nan_to_num())
    v, s = batch(77)
    assert torch.equal(whole[2].bound(whole[0](v), s), again[2].bound(again[0](v), s))


def test_a_copy_and_a_conversion_take_the_optimiser_along():
    penalty = make(replay=2)
    penalty(*_samples(0))
    twin = copy.deepcopy(penalty)
    torch.testing.assert_close(penalty(*_samples(1)), twin(*_samples(1)))
    wide = copy.deepcopy(penalty).double()
    z, s = _samples(2)
    a, b = penalty(z, s), wide(z.double(), s.double())
    torch.testing.assert_close(a.double(), b, rtol=1e-4, atol=1e-5)
    assert b.dtype == torch.float64


# --- surroundings --------------------------------------------------------------------------------


def test_under_autocast_q_is_fitted_in_full_precision():
    a, b = make(), make()
    z, s = _samples(0)
    half = z.bfloat16().requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        value = a(half, s)
    value.backward()
    torch.testing.assert_close(value, b(half.detach().float(), s), rtol=0, atol=0)
    assert value.dtype == torch.float32
    assert half.grad.dtype == torch.bfloat16
    assert same(parameters(a), parameters(b))


def test_one_bad_batch_does_not_spoil_q():
    penalty = make()
    penalty(*_samples(0))
    z, s = _samples(1)
    z[3, 1] = math.inf
    with pytest.warns(mb.PenaltyWarning, match="not-finite: x hold NaN or infinity"):
        penalty(z, s)  # at once, not at the next look
    assert all(p.isfinite().all() for p in penalty.parameters())
    assert penalty(*_samples(2)).isfinite()


def test_samples_without_a_gradient_are_told_once():
    penalty = make(watch_every=1, lr=0.02)
    z, s = _samples(0, 256)
    with pytest.warns(mb.PenaltyWarning, match="no-gradient: Neither x nor y"):
        penalty(z, s)
    penalty(z, s)  # not again
    assert "no-gradient" in codes(penalty)
    with torch.no_grad():
        penalty(z, s)  # asked for
    assert "no-gradient" not in codes(penalty)
    penalty(*_features(0, 256))
    assert "no-gradient" not in codes(penalty)


def test_labels_as_numbers_are_told():
    g = torch.Generator().manual_seed(0)
    z = torch.randn(200, 3, generator=g)
    labels = (z[:, :1] > 0).float()
    penalty = mb.MIPenalty(mb.CLUB(3, 1, 8))
    assert "labels-as-numbers" in [w.code for w in penalty.report(z, labels).warnings]
    few = penalty.report(z, z[:, :1].round(decimals=1))  # rounded measurements are no labels
    assert "labels-as-numbers" not in [w.code for w in few.warnings]
    as_bits = mb.MIPenalty(mb.CLUB(conditional=mb.Bernoulli(3, 1, 8)))
    assert "labels-as-numbers" not in [w.code for w in as_bits.report(z, labels).warnings]


def test_with_a_gradient_scaler():
    """An overflow in the user's half precision skips the user's step and leaves q alone."""
    net, penalty = encoder(), make()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    for seed in range(3):
        before = parameters(net)
        loss = loss_of(net, penalty, seed) * (math.inf if seed == 1 else 1)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        assert same(before, parameters(net)) == (seed == 1)
    assert all(p.isfinite().all() for p in penalty.parameters())


def test_gradient_accumulation():
    net, penalty = encoder(), make()
    losses = [loss_of(net, penalty, seed) for seed in range(3)]
    gradients = [torch.autograd.grad(x, net.weight, retain_graph=True)[0] for x in losses]
    for loss in losses:  # all of them after the last call
        loss.backward()
    torch.testing.assert_close(net.weight.grad, sum(gradients))


COMPILED = """
import torch, mibounds as mb
def run(wrap):
    torch.manual_seed(0)
    net, penalty = torch.nn.Linear(5, 3), mb.MIPenalty(mb.CLUB(3, 2))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    loss = wrap(lambda v, s: net(v).square().mean() + penalty(net(v), s))
    for _ in range(3):
        v = torch.randn(32, 5)
        optimizer.zero_grad()
        loss(v, v[:, :2]).backward()
        optimizer.step()
    return [*net.parameters(), *penalty.parameters()]
for a, b in zip(run(lambda f: f), run(torch.compile), strict=True):
    torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
print("same")
"""


def test_inside_a_compiled_loss():
    assert python("-c", COMPILED).strip() == "same"


def python(*command):
    result = subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, check=False, timeout=300
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.mark.parametrize("name", ["club", "club_sample", "mine", "vub"])
def test_a_recorded_call_is_a_call(name, monkeypatch):
    """With a stand-in for the GPU, which takes the recorded step each time it is replayed."""
    recorded = []

    def record(step, state, generators):
        recorded.append(len(state))
        return step

    plain, fast = make(name), make(name)
    for seed in range(8):
        if seed == 1:
            monkeypatch.setattr("mibounds.minimise.cuda_graph.record", record)
            monkeypatch.setattr("mibounds.minimise.penalty._on_gpu", lambda x: True)
        n = 16 if seed == 5 else N  # another size comes between
        z, s = (v.requires_grad_() for v in _samples(seed, n))
        with monkeypatch.context() as eager:
            eager.setattr("mibounds.minimise.penalty._on_gpu", lambda x: False)
            a = plain(z, s)
        b = fast(z, s)
        again = fast.calls
        torch.testing.assert_close(a, b, rtol=0, atol=0)
        for want, got in zip(*(torch.autograd.grad(3 * v, (z, s)) for v in (a, b)), strict=True):
            torch.testing.assert_close(want, got)
        assert again == seed + 1
        assert same(parameters(plain), parameters(fast))
        assert plain.fits == fast.fits
        fast.eval()
        torch.testing.assert_close(
            fast.bound(z, s), plain.bound(z, s)
        ) if name != "club_sample" else 0
        fast.train()
    assert len(recorded) == 1
    twin = copy.deepcopy(fast)  # without the recording, which cannot be copied
    assert twin._recordings == {}
    fast.load_state_dict(plain.state_dict())
    assert fast._recordings == {}


@pytest.mark.parametrize("name", ["club", "club_sample", "mine", "infonce", "vub"])
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
            z, s = (v.requires_grad_() for v in _samples(seed))
            value = held(z, s)
            values.append((value.detach(), *torch.autograd.grad(3 * value, (z, s))))
        z, s = (v.requires_grad_() for v in _samples(seed))
        value = plain(z, s)
        expected = (value.detach(), *torch.autograd.grad(3 * value, (z, s)))
        for got in values:
            assert same(got, expected)
        assert same(parameters(plain), parameters(held))
        assert {k: v.data_ptr() for k, v in held.tensors().items()} == places
    assert not same(before.values(), held.tensors().values())


@pytest.mark.parametrize(
    "options",
    [{"warmup": 1}, {"replay": 1}, {"average": 0.5}, {"graph": True}, {"weight": lambda t: 0.5}],
)
def test_what_python_counts_cannot_stand_in_a_graph(options):
    with pytest.raises(ValueError, match="multiply the penalty by a tensor"):
        make(capturable=True, **options)


def test_a_recording_has_the_gradients_that_are_asked_for(monkeypatch):
    monkeypatch.setattr("mibounds.minimise.cuda_graph.record", lambda step, state, generators: step)
    monkeypatch.setattr("mibounds.minimise.penalty._on_gpu", lambda x: True)
    penalty = make()
    z, s = _samples(0)
    for _ in range(3):
        assert not penalty(z, s).requires_grad
    z.requires_grad_()
    for _ in range(3):
        first, second = penalty(z, s), penalty(2 * z, s)  # before the first goes backwards
    (a,) = torch.autograd.grad(first, z, retain_graph=True)
    (b,) = torch.autograd.grad(second, z)
    assert not torch.allclose(a, b)
    with pytest.raises(RuntimeError, match="pass graph=False to MIPenalty"):
        torch.autograd.grad(first, z, create_graph=True)


def test_where_nothing_can_be_recorded(monkeypatch):
    with pytest.raises(ValueError, match=r"Expected samples on a GPU.*leave graph out"):
        make(graph=True)(*_samples(0))
    monkeypatch.setattr("mibounds.minimise.penalty._on_gpu", lambda x: True)
    monkeypatch.setattr("mibounds.minimise.cuda_graph.record", lambda *_: RuntimeError("waits"))
    penalty, required = make(), make(graph=True)
    for seed in range(3):
        assert penalty(*_samples(seed)).isfinite()
    assert list(penalty._recordings.values()) == [False]
    required(*_samples(0))
    with pytest.raises(ValueError, match=r"Expected a call that never waits.*got RuntimeError"):
        required(*_samples(1))
    changing = make()
    for n in range(10, 40):
        changing(*_samples(0, n))
    assert len(changing._recordings) == 8


def test_two_processes_are_one_on_the_joined_batch():
    script = Path(__file__).parents[1] / "penalty_processes.py"
    launch = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
    assert "worst difference" in python(*launch, str(script))


# --- audit and report ----------------------------------------------------------------------------


def test_audit_sees_what_a_gaussian_q_does_not():
    g = torch.Generator().manual_seed(0)
    z = torch.randn(600, 2, generator=g)
    s = z.square().sum(1, keepdim=True) + 0.3 * torch.randn(600, 1, generator=g)
    penalty = mb.MIPenalty(mb.CLUB(2, 1, ()), lr=0.01, watch_every=0)  # a linear q
    for _ in range(30):
        penalty(z, s)
    assert penalty.bound(z, s) < 0.1
    result = penalty.audit(z.requires_grad_(), s, budget="fast")
    assert isinstance(result, mb.Estimate)
    assert result.interval[0] > 0.5


def test_audit_of_labels_and_sequences():
    z = torch.randn(10, 40, 2)
    labels = (z[..., 0] > 0).long() + 2 * (z[..., 1] > 0).long()
    penalty = mb.MIPenalty(mb.CLUB(conditional=mb.Categorical(2, 4)))
    mask = torch.rand(10, 40) < 0.9
    result = penalty.audit(z, labels, mask=mask, budget="fast")
    assert result.config["y_kinds"] == ["discrete"]
    assert result.n == mask.sum()
    assert 0.9 < result.nats < 1.6  # log 4


def test_a_healthy_penalty_has_nothing_to_report():
    penalty = make(watch_every=10, lr=0.02)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for seed in range(40):
            penalty(*_features(seed, 256))
    report = penalty.report()
    assert report.calls == 39
    assert report.warnings == ()
    assert report.value > 0
    assert report.gain > 0.1
    assert report.at_limit == 0
    assert report.spread == pytest.approx((1, math.sqrt(1.25)), rel=0.1)
    assert "no faults" in str(report)
    assert "bound" in str(report)
    assert str(make().report()) == "after 0 calls: nothing looked at yet; no faults"


def codes(penalty):
    return [advice.code for advice in penalty.report().warnings]


def test_q_worse_than_the_marginal_is_reported_once():
    penalty = make(watch_every=1, inner_steps=1, lr=1e-9)
    penalty(*_features(0, 256))
    with torch.no_grad():
        penalty.estimator.conditional.net.offset[0] += 5  # a q that is sure of the wrong thing
    with pytest.warns(mb.PenaltyWarning, match="predicts a new batch worse than y alone"):
        penalty(*_features(1, 256))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        penalty(*_features(2, 256))  # the same fault is not told again
    assert codes(penalty) == ["q-worse-than-marginal"]
    assert "Raise inner_steps" in str(penalty.report())


def test_labels_have_a_marginal_too():
    z = torch.randn(300, Z)
    labels = (z[:, 0] > 0).long()
    for conditional, y in (
        (mb.Categorical(Z, 2), labels),
        (mb.Bernoulli(Z, 2), torch.stack([labels, 1 - labels], 1)),
    ):
        penalty = mb.MIPenalty(mb.CLUB(conditional=conditional), lr=0.02, watch_every=0)
        for _ in range(20):
            penalty(z, y)
        report = penalty.report(z, y)
        assert report.gain > 0.3
        assert report.at_limit is None
        with torch.no_grad():
            conditional.net.layers[-1].weight.neg_().mul_(3)
        assert penalty.report(z, y).warnings[0].code == "q-worse-than-marginal"


def test_a_value_below_zero_beyond_noise_is_reported():
    penalty = make(watch_every=0)
    penalty(*_samples(0))
    penalty.values[:] = -0.5 + 0.01 * torch.randn(100)
    report = penalty.report(*_samples(1))
    assert "below-zero" in [advice.code for advice in report.warnings]
    penalty.values[:] = -0.5 + 10 * torch.linspace(-1, 1, 100)  # within the noise
    assert "below-zero" not in [a.code for a in penalty.report(*_samples(1)).warnings]


@pytest.mark.parametrize("published", [False, True])
def test_a_log_variance_at_its_limit_is_reported(published):
    kind = mb.AsPublishedGaussian if published else mb.Gaussian
    penalty = mb.MIPenalty(mb.CLUB(conditional=kind(Z, S)), watch_every=0)
    penalty(*_samples(0))
    assert penalty.report(*_samples(0)).at_limit == 0
    q = penalty.estimator.conditional
    with torch.no_grad():
        if published:
            q.net_log_variance.offset.fill_(9.0)
        else:
            q.net.offset[S:] = 100.0
    assert penalty.report(*_samples(0)).at_limit == 1
    assert "log-variance-limit" in codes(penalty)


def test_collapsed_features_are_reported():
    penalty = make(watch_every=0)
    z, s = _samples(0)
    penalty.report(z, s)
    assert codes(penalty) == []
    assert "collapsed" in [a.code for a in penalty.report(1e-4 * z, s).warnings]
    constant = make(watch_every=0)
    report = constant.report(5 + 1e-6 * z, s)
    (advice,) = [a for a in report.warnings if a.code == "collapsed"]
    assert advice.message.startswith("x hardly")


def test_features_that_run_away_are_reported():
    penalty = make(watch_every=0)
    z, s = _samples(0)
    penalty.report(z, s)
    assert "growing" not in [a.code for a in penalty.report(3 * z, s).warnings]
    (advice,) = [a for a in penalty.report(9 * z, s).warnings if a.code == "growing"]
    assert advice.message.startswith("x spreads 9 times as far")
    (advice,) = [a for a in penalty.report(z, 6 * s).warnings if a.code == "growing"]
    assert advice.message.startswith("y spreads 6 times as far")


def test_a_known_conditional_bears_a_bad_batch():
    def known(x):
        return Independent(Normal(x, 1.0, validate_args=False), 1, validate_args=False)

    penalty = mb.MIPenalty(mb.CLUB(conditional=known))
    x, y = torch.randn(16, 3), torch.randn(16, 3, requires_grad=True)
    x[2, 1] = math.nan
    with pytest.warns(mb.PenaltyWarning, match="not-finite"):
        assert penalty(x, y).isnan()


def test_samples_that_are_not_finite_are_reported():
    penalty = make(watch_every=1)
    z, s = _samples(0)
    z[0, 0] = math.nan
    with pytest.warns(mb.PenaltyWarning, match="x hold NaN"):
        penalty(z.requires_grad_(), s)
    assert codes(penalty) == ["not-finite"]


@pytest.mark.parametrize("name", mb.ESTIMATORS)
def test_a_bound_of_the_wrong_side_is_told_at_once(name):
    estimator = mb.ESTIMATORS[name](Z, S)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        penalty = mb.MIPenalty(estimator, watch_every=1)
        penalty(*_samples(0))  # and not again
    assert ("wrong-side" in codes(penalty)) == (estimator.side != "upper")
    said = [str(w.message) for w in caught if "wrong-side" in str(w.message)]
    assert len(said) == (estimator.side != "upper")
    for text in said:
        assert "take an upper bound" in text


def test_a_flow_has_no_limit_to_look_at():
    penalty = mb.MIPenalty(mb.CLUBSample(conditional=mb.Flow(Z, S, 8)), inner_steps=1)
    penalty(*_samples(0))
    assert penalty.report(*_samples(0)).at_limit is None


# --- what is refused -----------------------------------------------------------------------------


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"inner_steps": 0}, "Expected inner_steps to be an integer >= 1 but got 0"),
        ({"warmup": -1}, "Expected warmup to be an integer >= 0 but got -1"),
        ({"replay": 1.5}, "Expected replay to be an integer >= 0 but got 1.5"),
        ({"watch_every": -1}, "Expected watch_every to be an integer >= 0"),
        ({"lr": 0.0}, "Expected lr > 0 but got 0"),
        ({"weight": "a"}, "Expected weight to be a finite number, .* but got 'a'; pass weight=0.1"),
        ({"weight": float("nan")}, "Expected weight to be a finite number, .* but got nan"),
        ({"average": 1.0}, r"Expected average in \[0, 1\) but got 1"),
        ({"clip": 0.0}, "Expected clip > 0, or None for no clipping, but got 0"),
        ({"backward": nn.Linear(1, 1)}, "Expected backward to be an estimator"),
    ],
)
def test_options_that_make_no_sense(options, message):
    with pytest.raises(ValueError, match=message):
        mb.MIPenalty(mb.CLUB(Z, S), **options)


@pytest.mark.usefixtures("unchecked")
def test_estimators_that_are_none():
    with pytest.raises(ValueError, match=r"Expected estimator to be an estimator such as mb.CLUB"):
        mb.MIPenalty(mb.CLUB)


@pytest.mark.usefixtures("unchecked")
def test_samples_that_make_no_sense():
    penalty = make()
    z, s = torch.randn(4, 6, Z), torch.randn(4, 6, S)
    with pytest.raises(ValueError, match=r"Expected y of shape \(4, 6, ...\).*expand"):
        penalty(z, s[:, 0])
    with pytest.raises(ValueError, match=r"Expected mask to be of torch.bool.*mask.bool\(\)"):
        penalty(z, s, mask=torch.ones(4, 6))
    with pytest.raises(ValueError, match=r"Expected mask of the leading shape.*got \(4, 5\)"):
        penalty(z, s, mask=torch.ones(4, 5, dtype=torch.bool))
    with pytest.raises(ValueError, match="at least 2 samples"):
        penalty(z, s, mask=torch.zeros(4, 6, dtype=torch.bool))
    with pytest.raises(ValueError, match=r"Expected x to be a torch.Tensor but got list"):
        penalty([1.0], s)
