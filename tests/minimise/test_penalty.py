"""The penalty as a term of a loss: its settings, its checkpoints, and what surrounds it."""

import copy
import math

import pytest
import torch
from penalties import (
    EVERY,
    N,
    S,
    Z,
    batch,
    encoder,
    loss_of,
    make,
    parameters,
    same,
    samples,
    train,
)  # fmt: skip
from torch import nn
from torch.distributions import Independent, Normal

import mibounds as mb


def test_evaluation_changes_nothing_and_has_gradients():
    penalty = make()
    penalty(*samples(0))
    penalty.eval()
    state = copy.deepcopy(penalty.state_dict())
    z, s = samples(1)
    z.requires_grad_()
    value = penalty(z, s)
    value.backward()
    assert z.grad.abs().sum() > 0
    assert str(state) == str(penalty.state_dict())
    assert penalty.calls == 1
    torch.testing.assert_close(value, penalty.bound(z, s))


def test_no_grad_and_inference_mode():
    penalty = make()
    with torch.no_grad():
        assert not penalty(*samples(0)).requires_grad
    assert penalty.calls == 1
    before = parameters(penalty)
    with torch.inference_mode():
        penalty(*samples(1))
    assert penalty.calls == 1
    assert same(before, parameters(penalty))


def test_minimising_takes_a_known_dependence_away():
    """x = sin θ a + cos θ b, y = cos θ a + sin θ b: the correlation is sin 2θ."""
    torch.manual_seed(0)
    theta = nn.Parameter(torch.full((3,), 0.5))
    penalty = mb.MIPenalty(mb.CLUB(3, 3), inner_steps=3, lr=5e-3)
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


def test_images_with_a_known_conditional_are_not_sequences():
    layer = nn.Linear(12, Z)
    penalty = mb.MIPenalty(
        mb.CLUB(conditional=lambda v: Independent(Normal(layer(v.flatten(1)), 1.0), 1))
    )
    v = torch.randn(6, 3, 4)
    assert penalty(v, torch.randn(6, Z)).shape == ()


def test_warmup_and_weight():
    z, s = samples(0)
    z.requires_grad_()
    penalty = make(warmup=2, weight=lambda call: 0.5 * call, spread=None)
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


@pytest.mark.parametrize("swap", [False, True])
def test_labels(swap):
    z, _ = samples(0)
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
    z.requires_grad_()
    torch.testing.assert_close(a(z, s), b(z.flatten(0, 1), s.flatten(0, 1)))
    z = z.detach()
    z[~mask] = math.nan  # padding may hold anything
    value = a(z.requires_grad_(), s, mask=mask)
    value.backward()
    assert z.grad[mask].isfinite().all()
    assert (z.grad[~mask] == 0).all()
    c.load_state_dict(b.state_dict())
    torch.testing.assert_close(value, c(z[mask], s[mask]))
    labels = torch.randint(3, (4, 6))
    assert mb.MIPenalty(mb.CLUB(conditional=mb.Categorical(Z, 3)))(z, labels, mask=mask) > -9


def test_replay_fits_to_earlier_batches_too():
    penalty = make(replay=2, inner_steps=1, lr=0.01, adapt=False)
    torch.manual_seed(1)
    estimator = mb.CLUB(Z, S, 8)
    optimizer = torch.optim.Adam(estimator.parameters(), lr=0.01, fused=True)
    for seed in range(4):
        z, s = samples(seed)
        value = penalty(z.requires_grad_(), s)
        pool = [samples(k) for k in range(max(0, seed - 2), seed + 1)]
        optimizer.zero_grad()
        estimator.learning_loss(*(torch.cat(side) for side in zip(*pool, strict=True))).backward()
        optimizer.step()
        torch.testing.assert_close(value, estimator(z, s))
    assert not any(v.requires_grad for pair in penalty.get_extra_state()["recent"] for v in pair)


def test_clamp_changes_the_value_and_not_the_gradient():
    plain, clamped = make(), make(clamp=True)
    z, s = samples(0)
    plain(z, s), clamped(z, s)
    plain.eval(), clamped.eval()
    z = -z.requires_grad_()  # the opposite of what q has learnt
    a, b = plain(z, s), clamped(z, s)
    assert a < 0
    assert b == 0
    torch.testing.assert_close(*(torch.autograd.grad(v, z)[0] for v in (a, b)))


@pytest.mark.parametrize(
    ("name", "options"),
    [
        *((name, {}) for name in EVERY),
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


def test_a_checkpoint_with_averages_as_buffers_is_read():
    penalty, again, other = (make(average=0.9) for _ in range(3))
    penalty(*samples(0))
    new = copy.deepcopy(penalty.state_dict())  # an optimiser shares what it loads
    extra = dict(new.pop("_extra_state"))
    old = {**new, **{f"average_{i}": a for i, a in enumerate(extra.pop("averages"))}}
    again.load_state_dict({**old, "_extra_state": extra})
    for seed in range(1, 4):
        torch.testing.assert_close(again(*samples(seed)), penalty(*samples(seed)), rtol=0, atol=0)
    with pytest.raises(ValueError, match=r"checkpoint with 4 averages .* got 0; pass the average="):
        other.load_state_dict(make().state_dict())


def test_a_copy_and_a_conversion_take_the_optimiser_along():
    penalty = make(replay=2)
    penalty(*samples(0))
    twin = copy.deepcopy(penalty)
    torch.testing.assert_close(penalty(*samples(1)), twin(*samples(1)))
    wide = copy.deepcopy(penalty).double()
    z, s = samples(2)
    a, b = penalty(z, s), wide(z.double(), s.double())
    torch.testing.assert_close(a.double(), b, rtol=1e-4, atol=1e-5)
    assert b.dtype == torch.float64


def test_under_autocast_q_is_fitted_in_full_precision():
    a, b = make(), make()
    z, s = samples(0)
    half = z.bfloat16().requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        value = a(half, s)
    value.backward()
    wide = half.detach().float().requires_grad_()
    torch.testing.assert_close(value, b(wide, s), rtol=0, atol=0)
    assert value.dtype == torch.float32
    assert half.grad.dtype == torch.bfloat16
    assert same(parameters(a), parameters(b))


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


PLAIN = """
import torch, mibounds as mb
penalty = mb.MIPenalty(mb.CLUB(2, 3), check_every=1)
penalty(torch.full((16, 2), torch.nan), torch.randn(16, 3))
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
compiled = lambda f: torch.compile(f, backend="aot_eager")
for a, b in zip(run(lambda f: f), run(compiled), strict=True):
    torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
print("same")
"""


def test_without_the_check_of_shapes(run_script, tmp_path):
    """What that check disturbs, in a process without it: the line of a warning, and compilation."""
    script = tmp_path / "script.py"
    script.write_text(PLAIN)
    result = run_script(script)
    assert result.stdout == "same\n", result.stderr
    assert f"{script}:4: PenaltyWarning: not-finite" in result.stderr


@pytest.mark.parametrize(
    "options",
    [{"warmup": 1}, {"replay": 1}, {"average": 0.5}, {"graph": True}, {"weight": lambda t: 0.5}],
)
def test_what_python_counts_cannot_be_captured(options):
    with pytest.raises(ValueError, match="multiply the penalty by a tensor"):
        make(capturable=True, **options)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"inner_steps": 0}, "Expected inner_steps to be an integer >= 1 but got 0"),
        ({"warmup": -1}, "Expected warmup to be an integer >= 0 but got -1"),
        ({"replay": 1.5}, "Expected replay to be an integer >= 0 but got 1.5"),
        ({"check_every": -1}, "Expected check_every to be an integer >= 0"),
        *(
            ({"lr": bad}, f"Expected lr to be a finite number > 0 but got {bad!r}; leave it out")
            for bad in (0.0, -1.0, math.inf, math.nan, "a")
        ),
        ({"inner_steps": 2.5}, "Expected inner_steps to be an integer >= 1 but got 2.5"),
        ({"clip": math.nan}, "Expected clip > 0, or None for no limit, but got nan"),
        ({"clip": "a"}, "Expected clip to be a number but got str; leave it out"),
        ({"weight": 1j}, "Expected weight to be a finite number, .* but got 1j; pass weight=0.1"),
        *(
            ({"seed": bad}, "Expected seed to be an integer of at most 64 bits but got .*; pass")
            for bad in (None, 0.5, True, 2**64)
        ),
        ({"weight": "a"}, "Expected weight to be a finite number, .* but got 'a'; pass weight=0.1"),
        ({"weight": float("nan")}, "Expected weight to be a finite number, .* but got nan"),
        ({"average": 1.0}, r"Expected average in \[0, 1\) but got 1"),
        ({"spread": 1.0}, r"Expected spread in \(0, 1\), or None for no noise, but got 1"),
        ({"clip": 0.0}, "Expected clip > 0, or None for no limit, but got 0"),
        ({"backward": nn.Linear(1, 1)}, "Expected backward to be an estimator"),
    ],
)
def test_invalid_settings_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        mb.MIPenalty(mb.CLUB(Z, S), **options)


@pytest.mark.usefixtures("unchecked")
def test_only_estimators_are_accepted():
    with pytest.raises(ValueError, match=r"Expected estimator to be an estimator such as mb.CLUB"):
        mb.MIPenalty(mb.CLUB)


@pytest.mark.parametrize("shape", [(0,), (1,), (3, 0)])
def test_a_batch_with_nothing_to_compare_is_passed_over(shape):
    penalty = make()
    before = [p.clone() for p in penalty.parameters()]
    z = torch.randn(*shape, Z, requires_grad=True)
    with pytest.warns(RuntimeWarning, match="tells nothing.*drop_last=True"):
        value = penalty(z, torch.randn(*shape, S))
    value.backward()
    assert value == 0
    assert (z.grad == 0).all()
    assert all(map(torch.equal, before, penalty.parameters()))
    penalty(z, torch.randn(*shape, S))  # it warns once


@pytest.mark.parametrize("estimator", [mb.CLUB, mb.CLUBSample])
def test_one_x_for_a_sequence_is_as_if_repeated(estimator):
    option = {"draw" if estimator is mb.CLUBSample else "negatives": "sequences"}
    z, s = torch.randn(5, Z, requires_grad=True), torch.randn(5, 6, S)
    values = []
    for x in (z, z[:, None].expand(-1, 6, -1)):
        torch.manual_seed(0)
        penalty = mb.MIPenalty(estimator(Z, S, **option), check_every=0)
        values.append(penalty(x, s))
    torch.testing.assert_close(*values)
    plain = mb.MIPenalty(mb.CLUB(Z, S), check_every=0)
    assert plain(z, s).isfinite()


@pytest.mark.usefixtures("unchecked")
def test_invalid_samples_are_refused():
    penalty = make()
    z, s = torch.randn(4, 6, Z), torch.randn(4, 6, S)
    with pytest.raises(ValueError, match=r"Expected y of shape \(4, 6, ...\).*expand"):
        penalty(z, s[:, 0])
    with pytest.raises(ValueError, match=r"Expected mask to be of torch.bool.*mask.bool\(\)"):
        penalty(z, s, mask=torch.ones(4, 6))
    with pytest.raises(ValueError, match=r"Expected mask of the leading shape.*got \(4, 5\)"):
        penalty(z, s, mask=torch.ones(4, 5, dtype=torch.bool))
    with pytest.raises(ValueError, match="at least 2 samples"):
        penalty.eval()(z, s, mask=torch.zeros(4, 6, dtype=torch.bool))
    with pytest.raises(ValueError, match=r"Expected x to be a torch.Tensor but got list"):
        penalty([1.0], s)
