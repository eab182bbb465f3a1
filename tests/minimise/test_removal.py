"""The penalty's own way: judged before learnt, silent without evidence, and it removes."""

import copy
import math
import warnings

import pytest
import torch
from penalties import S, Z, angles, features, make, parameters, same, samples
from torch import nn

import mibounds as mb
from mibounds.minimise import removal
from mibounds.minimise.dependence import keep_scale, kernel_nats


def independent(seed, n=128):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(n, Z, generator=g).requires_grad_(), torch.randn(n, S, generator=g)


def labelled(seed, n=128):
    """Features that tell a label, given another one of which they tell nothing."""
    g = torch.Generator().manual_seed(seed)
    third = torch.randint(2, (n,), generator=g)
    y = torch.randint(3, (n,), generator=g)
    x = torch.randn(n, Z, generator=g)
    x[:, 0] += y
    return x.requires_grad_(), y, third


def snapshot(penalty):
    return copy.deepcopy(penalty.state_dict())


# --- a call --------------------------------------------------------------------------------------


def test_two_dimensions_are_enough():
    penalty = mb.MIPenalty(Z, S)
    assert isinstance(penalty.estimator, mb.Ratio)
    assert isinstance(penalty.alternation, removal.Removal)
    assert penalty.alternation.memory.batches == 8
    assert mb.MIPenalty(Z, S, replay=3).alternation.memory.batches == 3
    for options in ({"labels": 3}, {"labels": [3, 2]}, {"y_dim": S, "given_dim": 2},
                    {"labels": 3, "given_labels": 2}):  # fmt: skip
        made = mb.MIPenalty(Z, **options).estimator
        sizes = options.get("labels", ())
        assert made.sizes == ((sizes,) if isinstance(sizes, int) else tuple(sizes))
        assert made.given_dim == options.get("given_dim", 0)
        assert made.given_labels == options.get("given_labels", 0)


@pytest.mark.parametrize("steps", [1, 7])
def test_a_batch_is_judged_before_it_is_learnt(steps):
    """The value does not depend on what is learnt from the batch, and what comes later does."""
    penalties = [make("default", inner_steps=2, lr=0.01) for _ in range(2)]
    for seed in range(5):
        a, b = (penalty(*features(seed, 128)) for penalty in penalties)
        assert a == b
        if seed == 0:
            assert a == 0  # it knows nothing yet
    penalties[1].inner_steps = 2 + steps
    a, b = (penalty(*features(5, 128)) for penalty in penalties)
    assert a == b
    a, b = (penalty(*features(6, 128)) for penalty in penalties)
    assert a != b
    assert penalties[0].fits == 14
    assert penalties[1].fits == 14 + 2 * steps


def test_it_learns_from_the_last_batches_by_steps_of_its_loss():
    """As written out: rows of the memory, spread, and one step of Adam for each."""
    penalty = make("default", inner_steps=3, optimizer=lambda p: torch.optim.SGD(p, lr=0.1))
    plain = copy.deepcopy(penalty.estimator).train()
    for seed in range(3):
        penalty(*features(seed))
    alternation = penalty.alternation
    twin = copy.deepcopy(alternation)
    x, y = features(3)
    alternation.learn(x, y, steps=2)
    plain.load_state_dict(twin.estimator.state_dict())
    for p in plain.parameters():
        p.requires_grad_(True)
    plain.observe(x.detach(), y, None)
    twin.memory.add(x, y, None)
    generator = twin.generator(x.device)
    rows = twin.memory.sample(2 * len(x), generator)
    noisy, y, size = plain.blur(*plain.standardise(*rows)[:2], generator)
    for own in torch.arange(2 * len(x)).chunk(2):
        near = plain.log_ratios(noisy[own], y[own], None, size[own])
        far = plain.log_ratios(noisy[own], y.roll(1, 0)[own], None, size[own])
        loss = (torch.nn.functional.softplus(-near) + torch.nn.functional.softplus(far)).mean()
        gradients = torch.autograd.grad(loss, list(plain.parameters()))
        with torch.no_grad():
            for p, g in zip(plain.parameters(), gradients, strict=True):
                p -= 0.1 * g
    for a, b in zip(plain.parameters(), alternation.estimator.parameters(), strict=True):
        torch.testing.assert_close(a, b.detach(), rtol=1e-4, atol=1e-6)
    assert not same(parameters(twin.estimators), parameters(alternation.estimators))


@pytest.mark.parametrize("kind", ["real", "s of an encoder", "labels", "given labels"])
def test_value_and_gradient_are_what_they_are_said_to_be(kind):
    """What the classifier certifies, with the gradient of the gated sum."""
    penalty = make("default", lr=0.01)
    if "labels" in kind:
        estimator = mb.Ratio(Z, labels=3, hidden=8, given_labels=2 if "given" in kind else 0)
        penalty = mb.MIPenalty(estimator, lr=0.01)
    for seed in range(12):
        x, y, third = labelled(seed) if "labels" in kind else (*features(seed, 128), None)
        third = third if "given" in kind else None
        if kind == "s of an encoder":
            x, y = x.detach(), y.requires_grad_()
        twin = copy.deepcopy(penalty.alternation)
        value = penalty(x, y, given=third)
    moving = y if kind == "s of an encoder" else x
    (gradient,) = torch.autograd.grad(value, moving)

    q, generator = twin.estimator, twin.generator(x.device)
    q.noisy = int(kind == "s of an encoder")
    sides = q.standardise(x, y, third)
    kept = [keep_scale(v) if v is moving or v.requires_grad else v for v in sides[:2]]
    spread = q.blur(*kept, generator)
    own = q.log_ratios(*spread[:2], third, spread[2])
    certified, known = q.judge(own.detach(), *(v.detach() for v in spread), third, generator)
    kernels = kernel_nats(x, y, third)
    opened = twin.gate(torch.stack([kernels.detach(), known]))
    assert 0 < opened < 1
    descent = q.descent(*spread[:2], third, spread[2])
    want = opened * (removal.KERNELS * kernels + descent.mean())
    torch.testing.assert_close(value.detach(), certified)
    torch.testing.assert_close(gradient, torch.autograd.grad(want, moving)[0])
    assert value > 0.05
    if "labels" in kind:
        torch.testing.assert_close(certified, own.mean().detach())
    assert torch.equal(twin.gate.means, penalty.alternation.gate.means)


def test_the_kernels_compare_no_more_samples_than_so_many(monkeypatch):
    seen = []

    def spy(x, y, given):
        seen.append([None if v is None else len(v) for v in (x, y, given)])
        return kernel_nats(x, y, given)

    monkeypatch.setattr(removal, "kernel_nats", spy)
    monkeypatch.setattr(removal, "MOST", 50)
    penalty = mb.MIPenalty(mb.Ratio(Z, labels=3, hidden=4, given_labels=2))
    x, y, third = labelled(0)
    penalty(x, y, given=third).backward()
    assert seen == [[50, 50, 50]]
    assert x.grad[:50].abs().sum() > 0


# --- what it removes, and what it leaves ---------------------------------------------------------


def test_without_a_dependence_it_is_silent():
    penalty = make("default", inner_steps=2)
    loud, values = [], []
    for seed in range(150):
        x, y = independent(seed)
        value = penalty(x, y)
        value.backward()
        loud.append(bool(x.grad.abs().sum() > 0))
        values.append(value.item())
    assert sum(loud[75:]) < 10
    assert abs(sum(values) / len(values)) < 0.02
    for seed in range(20):  # and it awakes
        x, y = features(seed, 128)
        penalty(x, y).backward()
    assert x.grad.abs().sum() > 0


@pytest.mark.parametrize("size", [1e6, 1e20])
@pytest.mark.parametrize("call", [0, 12])
def test_one_outlier_does_not_silence_it(size, call):
    """Neither what standardises nor the classifier loses sight of the other rows."""
    penalty, plain = make("default", lr=0.01), make("default", lr=0.01)
    for seed in range(25):
        x, y = features(seed, 128)
        plain(x, y)
        if seed == call:
            x, y = x.detach().clone(), y.clone()
            x[3, 1], y[5, 0] = size, -size
            with pytest.warns(mb.PenaltyWarning, match="far-out: Single values of x and y lie"):
                penalty(x.requires_grad_(), y)
        else:
            penalty(x, y)
    x, y = features(25, 128)
    want, value = plain(x, y), penalty(x, y)
    value.backward()
    assert want > 0.1
    assert value > 0.5 * want
    assert x.grad.isfinite().all()
    assert x.grad.abs().sum() > 0
    for standard, other in zip(penalty.estimator.standards, plain.estimator.standards, strict=True):
        torch.testing.assert_close(standard.mean, other.mean, rtol=0, atol=0.1)
        torch.testing.assert_close(standard.scale, other.scale, rtol=0.1, atol=0)


def drive(penalty, learnt, draw, steps, rate=0.03):
    """Minimise the penalty of samples that depend on what is learnt."""
    optimizer = torch.optim.Adam(learnt, lr=rate)
    generator = torch.Generator().manual_seed(0)
    for _ in range(steps):
        x, y, third = draw(generator)
        optimizer.zero_grad()
        penalty(x, y, given=third).backward()
        optimizer.step()


def test_it_removes_a_known_dependence():
    theta, draw, truth = angles()
    assert truth() > 0.5
    penalty = make("default", inner_steps=3)
    drive(penalty, [theta], draw, 60)
    assert truth() < 0.02
    drive(penalty, [theta], draw, 60)
    assert truth() < 0.01  # and it stays away


def test_to_maximise_it_makes_it_grow():
    theta, draw, truth = angles(0.3)
    before = truth()
    penalty = make("default", maximise=True, lr=3e-3)
    drive(penalty, [theta], draw, 80)
    assert truth() > 5 * before
    x, y, _ = draw(torch.Generator().manual_seed(1))
    state = penalty.alternation.gate.state()
    assert (state["means"] == 0).all()  # nothing watches
    value = penalty(x, y)
    assert value < -0.1
    penalty.eval()
    torch.testing.assert_close(penalty(x, y), -penalty.bound(x, y))


def mixture():
    """z = a y + b e, beside noise, where s = y + e: of s given y it knows e alone."""
    a, b = (nn.Parameter(torch.tensor(v)) for v in (1.5, 1.0))

    def draw(generator):
        y = torch.randint(2, (256,), generator=generator)
        e = torch.randn(256, 1, generator=generator)
        noise = 0.5 * torch.randn(256, Z, generator=generator)
        s = torch.cat([2 * y[:, None] + e, torch.randn(256, 1, generator=generator)], 1)
        z = torch.cat([a * (2 * y[:, None] - 1) + b * e, noise[:, 1:]], 1)
        z = z + torch.cat([noise[:, :1], torch.zeros(256, 2)], 1)
        return z, s, y

    return a, b, draw


@pytest.mark.parametrize("labels", [False, True])
def test_given_a_label_it_removes_what_that_does_not_explain(labels):
    a, b, draw = mixture()

    def drawn(generator):
        z, s, y = draw(generator)
        return z, (s[:, 0] > 1).long() if labels else s, y

    kind = {"labels": 2} if labels else {"y_dim": S}
    penalty = mb.MIPenalty(mb.Ratio(Z, hidden=(8, 8), given_labels=2, **kind), inner_steps=3)
    drive(penalty, [a, b], drawn, 80)
    assert b.abs() < 0.15
    assert a > 1  # what z tells of s, since it tells y, stays
    z, s, _ = drawn(torch.Generator().manual_seed(1))
    assert kernel_nats(z, s) > 0.1


def test_without_the_label_it_removes_all():
    a, b, draw = mixture()
    penalty = make("default", inner_steps=3)
    drive(penalty, [a, b], lambda generator: (*draw(generator)[:2], None), 80, rate=0.05)
    z, s, _ = draw(torch.Generator().manual_seed(1))
    assert kernel_nats(z, s) < 0.05


def test_it_removes_a_label():
    weight = nn.Parameter(torch.tensor([1.0, -1.0, 0.5]))

    def draw(generator):
        y = torch.randint(3, (128,), generator=generator)
        noise = torch.randn(128, Z, generator=generator)
        return noise + weight * y[:, None], y, None

    penalty = mb.MIPenalty(mb.Ratio(Z, labels=3, hidden=(8,)))
    drive(penalty, [weight], draw, 80)
    assert weight.norm() < 0.2


# --- what surrounds it ---------------------------------------------------------------------------


def test_evaluation_changes_nothing():
    penalty = make("default")
    for seed in range(3):
        penalty(*features(seed))
    penalty.eval()
    state = snapshot(penalty)
    x, y = features(3)
    value = penalty(x, y)
    value.backward()
    assert x.grad.abs().sum() > 0
    assert str(snapshot(penalty)) == str(state)
    torch.testing.assert_close(value, penalty.estimator(x, y))
    torch.testing.assert_close(value, penalty.bound(x, y))


def test_to_only_fit_is_to_learn():
    penalty = make("default", lr=0.01)
    for seed in range(30):
        penalty.fit(*features(seed, 128), steps=3)
    assert penalty.fits == 90
    assert penalty.calls == 0
    assert penalty.alternation.gate.seen == 0
    assert penalty.bound(*features(99, 512)) > 0.3


def test_under_autocast_it_is_what_it_is_without():
    a, b = make("default"), make("default")
    for seed in range(4):
        x, y = features(seed)
        half = x.detach().bfloat16().requires_grad_()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            value = a(half, y)
        value.backward()
        plain = half.detach().float().requires_grad_()
        want = b(plain, y)
        want.backward()
        torch.testing.assert_close(value, want, rtol=0, atol=0)
        torch.testing.assert_close(half.grad, plain.grad.bfloat16(), rtol=0, atol=0)
        assert value.dtype == torch.float32
    assert same(parameters(a), parameters(b))


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_bad_batch_does_not_spoil_it(bad):
    penalty = make("default")
    for seed in range(20):
        penalty(*features(seed, 128))
    before = penalty.alternation.gate.means.clone()
    x, y = features(20, 128)
    with torch.no_grad():
        x[3, 1] = bad
        y[5, 0] = bad
    with pytest.warns(mb.PenaltyWarning, match="not-finite: There is NaN or infinity in x and y:"):
        assert not penalty(x, y).isfinite()
    assert torch.equal(penalty.alternation.gate.means, before)
    assert all(v.isfinite().all() for v in penalty.alternation.written())
    x, y = features(21, 128)
    value = penalty(x, y)
    value.backward()
    assert value.isfinite()
    assert 0 < x.grad.abs().max() < 1


def test_sequences_with_a_third_variable():
    x, y, third = labelled(0, 120)
    mask = torch.rand(4, 30) < 0.7
    laid_out = [v.unflatten(0, (4, 30)) for v in (x.detach(), y, third)]
    a, b = (copy.deepcopy(p) for p in 2 * [mb.MIPenalty(mb.Ratio(Z, labels=3, given_labels=2))])
    for _ in range(3):
        got = a(laid_out[0], laid_out[1], given=laid_out[2], mask=mask)
        rows = mask.flatten()
        assert got == b(x.detach()[rows], y[rows], given=third[rows])
    b.fit(x, y, given=third)
    a.fit(laid_out[0], laid_out[1], given=laid_out[2])
    assert same(parameters(a), parameters(b))
    torch.testing.assert_close(
        b.bound(x, y, given=third), a.bound(*laid_out[:2], given=laid_out[2])
    )


def test_it_can_be_audited_and_is_no_bound():
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # of a wrong side
        penalty = mb.MIPenalty(Z, S)
    x, y = samples(0, 300)
    assert penalty.audit(x, y, budget="fast").nats > 0.3
    assert penalty.estimator.side == "neither"


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("make_one", "message"),
    [
        (
            lambda: mb.MIPenalty(mb.CLUB(Z, S), maximise=True),
            "a lower bound with maximise=True but got an upper one, CLUB: it can grow while",
        ),
        (
            lambda: mb.MIPenalty(mb.InfoNCE(Z, S), backward=mb.CLUB(S, Z), maximise=True),
            "an upper one, CLUB: .*; pass mb.InfoNCE",
        ),
        (lambda: mb.MIPenalty(mb.CLUB(Z, S), S), "an estimator or dimensions .* CLUB, y_dim=2"),
        (
            lambda: mb.MIPenalty(mb.CLUB(Z, S), given_labels=3),
            r"given_labels=3; pass mb.MIPenalty\(x_dim, y_dim\) without",
        ),
        (
            lambda: mb.MIPenalty(Z, S, backward=mb.CLUB(S, Z)),
            "no backward, average or capturable with a Ratio, .* got backward=CLUB, average=0.0",
        ),
        (lambda: mb.MIPenalty(Z, S, average=0.5), "average=0.5, capturable=False; leave them out"),
        (lambda: mb.MIPenalty(Z), "Expected either y_dim or labels but got y_dim=None"),
        (lambda: mb.MIPenalty(True, S), "Expected either an estimator or dimensions .* bool"),
        (lambda: mb.MIPenalty(0, S), "Expected x_dim to be an integer >= 1 but got 0"),
        (lambda: make()(*samples(0), given=samples(0)[1]), "third variable but got CLUB; make"),
        (lambda: make().fit(*samples(0), given=samples(0)[1]), "a third variable but got CLUB"),
        (lambda: make("default")(*samples(0), given=samples(0)[1]), "and a given; make the two"),
    ],
)  # fmt: skip
def test_what_does_not_fit_together_is_refused(make_one, message):
    with pytest.raises(ValueError, match=message):
        make_one()


def test_what_grows_may_be_a_lower_bound():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        penalty = mb.MIPenalty(mb.InfoNCE(Z, S, 8), maximise=True)
    x, y = features(0)
    value = penalty(x, y)
    torch.testing.assert_close(value, -penalty.bound(x, y))
