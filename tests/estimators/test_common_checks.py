"""What every estimator and penalty keeps: its numbers in odd surroundings, and clear refusals.

`test_laws.py` has the laws of the values; these are about what is around a call.
"""

import contextlib
import copy
import math
import threading
import warnings

import numpy as np
import pytest
import torch
from torch import nn

import mibounds as mb

X, Y, N = 4, 3, 48
NAMES = tuple(mb.ESTIMATORS)
QS = (mb.FullGaussian, mb.LowRankGaussian, mb.GaussianMixture, mb.StudentT, mb.Copula)
PENALTIES = {
    "default": lambda: mb.MIPenalty(X, Y, check_every=2),
    "labels": lambda: mb.MIPenalty(X, labels=2, given_labels=2),
    "given": lambda: mb.MIPenalty(X, labels=2, given_dim=2),
    "total correlation": lambda: mb.TCPenalty([X, Y]),
    "club_sample": lambda: mb.MIPenalty(mb.CLUBSample(X, Y, 8), check_every=2),
    "categorical": lambda: mb.MIPenalty(mb.CLUB(conditional=mb.Categorical(X, 2, 8))),
    "mine": lambda: mb.MIPenalty(mb.MINE(X, Y, 8), replay=2, average=0.5),
}  # fmt: skip


def samples(n=N):
    g = torch.Generator().manual_seed(0)
    both = torch.randn(n, X + Y, generator=g, dtype=torch.float32, device="cpu")
    return both[:, :X], both[:, :Y] + both[:, X:]


def make(name):
    torch.manual_seed(3)
    return mb.ESTIMATORS[name](X, Y, 8)


def make_penalty(name):
    torch.manual_seed(3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", mb.PenaltyWarning)
        return PENALTIES[name]()


def make_all():
    """What `numbers` runs, made in the same surroundings each time."""
    torch.manual_seed(3)
    made = [make(name) for name in NAMES]
    made += [mb.DoE(conditional=q(X, Y, 8)) for q in QS]
    return [*made, mb.BA(conditional=mb.Categorical(X, 2, 8)), mb.Ratio(X, Y, 8)]


def numbers(estimator):
    """What comes of a fit, of many, of an evaluation and of both verbs, with their dtypes."""
    x, y = samples()
    if isinstance(getattr(estimator, "conditional", None), mb.Categorical):
        y = (y[:, 0] > 0).long()
    several = [copy.deepcopy(estimator) for _ in range(2)]
    history = mb.fit(estimator, x, y, steps=3, batch_size=16, seed=0, held_out=(x[:9], y[:9]))
    together = mb.fit_many(several, x, y, steps=3, batch_size=16, seeds=[0, 1], at_once=2)
    found = [*history, *together.flatten().tolist()]
    if not isinstance(estimator, mb.Ratio):
        found.append(mb.evaluate(estimator, (x, y), seed=0, progress=False))
    torch.manual_seed(5)  # the negatives of a value come from torch's generator
    with torch.no_grad():
        value, loss = estimator(x, y), estimator.learning_loss(x, y)
    return [*found, value.item(), value.dtype, loss.item(), loss.dtype]


def penalty_numbers(name, penalty, calls=3):
    x, y = samples()
    label = (y[:, 0] > 0).long()
    options = {"labels": {"given": label}, "given": {"given": x[:, :2]}}.get(name, {})
    y = label if name in ("labels", "given", "categorical") else y
    found = []
    for _ in range(calls):
        z = x.clone().requires_grad_()
        value = penalty(z, y, **options)
        value.backward()
        found += [value.item(), value.dtype, z.grad.sum().item()]
    return found


@contextlib.contextmanager
def double():
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


@contextlib.contextmanager
def elsewhere():
    """A default device on which nothing has values: what is made there by mistake is useless."""
    torch.set_default_device("meta")
    try:
        yield
    finally:
        torch.set_default_device(None)


@contextlib.contextmanager
def deterministic():
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


SURROUNDINGS = {
    "float64 by default": double,
    "another device by default": elsewhere,
    "deterministic": deterministic,
    "anomaly detection": lambda: torch.autograd.set_detect_anomaly(True),
}


@pytest.fixture(scope="module")
def plain():
    """The numbers without anything around."""
    known = [numbers(estimator) for estimator in make_all()]
    return known, {name: penalty_numbers(name, make_penalty(name)) for name in PENALTIES}


@pytest.mark.parametrize("surroundings", SURROUNDINGS)
def test_what_surrounds_a_call_changes_no_number(surroundings, plain):
    estimators = make_all()
    penalties = {name: make_penalty(name) for name in PENALTIES}
    with SURROUNDINGS[surroundings]():
        found = [numbers(estimator) for estimator in estimators]
        values = {name: penalty_numbers(name, p) for name, p in penalties.items()}
    for estimator, got, want in zip(estimators, found, plain[0], strict=True):
        assert got == want, type(estimator).__name__
    assert values == plain[1]


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("name", NAMES)
def test_a_fit_learns_the_same_where_gradients_are_off(name, mode):
    x, y = samples()
    plain, other = make(name), make(name)
    mb.fit(plain, x, y, steps=3, seed=0)
    with mode():
        mb.fit(other, x * 1, y * 1, steps=3, seed=0)
    for a, b in zip(plain.parameters(), other.parameters(), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", NAMES)
def test_a_fit_within_autocast_leaves_no_old_weights(name, dtype):
    """Autocast keeps casts of weights: a value before the fit must not decide the one after it."""
    x, y = samples()
    plain, other = make(name), make(name)
    mb.fit(plain, x, y, steps=20, lr=0.02, seed=0)
    with torch.autocast("cpu", dtype=dtype):
        other(x, y)
        history = mb.fit(other, x, y, steps=20, lr=0.02, seed=0)
        torch.manual_seed(5)
        value = other(x, y)
        result = mb.evaluate(other, (x, y), seed=0, progress=False)
    assert history == mb.fit(make(name), x, y, steps=20, lr=0.02, seed=0)
    assert result == mb.evaluate(plain, (x, y), seed=0, progress=False)
    torch.manual_seed(5)
    torch.testing.assert_close(value, plain(x, y), rtol=0.05, atol=0.05)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_samples_are_widened(dtype):
    x, y = (v.to(dtype) for v in samples())
    wide, narrow = make("club"), make("club")
    mb.fit(wide, x.float(), y.float(), steps=3, seed=0)
    mb.fit(narrow, x, y, steps=3, seed=0)
    torch.testing.assert_close(wide(x.float(), y.float()), narrow(x, y))
    one, other = (make_penalty("default") for _ in range(2))
    torch.testing.assert_close(one(x.float(), y.float()), other(x, y))


def test_the_precision_is_that_of_the_estimator():
    """Torch's default when it is made; samples of less are widened, of more refused."""
    x, y = samples()
    with double():
        made = [mb.CLUB(X, Y, 8), mb.MIPenalty(X, Y)]
    for each in made:
        assert {p.dtype for p in each.parameters()} == {torch.float64}
        assert each(x, y).dtype == torch.float64
        assert each(x.double(), y.double()).isfinite()
    with pytest.raises(ValueError, match=r"in torch.float32, .* got torch.float64; call .*\.to"):
        make("club")(x.double(), y.double())


def test_what_a_penalty_makes_comes_from_its_seed():
    before = torch.get_rng_state()
    with double():
        wide = mb.MIPenalty(X, Y, seed=7)
    one, same, other = (mb.MIPenalty(X, Y, seed=seed) for seed in (7, 7, 8))
    assert torch.equal(torch.get_rng_state(), before)
    for a, b, c in zip(*(p.parameters() for p in (one, same, wide)), strict=True):
        assert torch.equal(a, b)
        assert torch.equal(a.double(), c)
    assert not all(map(torch.equal, one.parameters(), other.parameters()))


def test_threads_with_one_seed_find_one_number():
    x, y = samples()
    bases = [make("club"), make("nwj"), mb.Ratio(X, Y, 8)]

    def work():
        found = []
        for base in copy.deepcopy(bases):
            mb.fit(base, x, y, steps=5, batch_size=16, seed=0)
            found.append(base(x, y).item())
        many = mb.fit_many(copy.deepcopy(bases[:1]), x, y, steps=5, batch_size=16, seeds=[1])
        found.append(mb.evaluate(heavy, (x, y), seed=0, progress=False).nats)
        penalties = [mb.MIPenalty(X, Y, seed=1, check_every=2), mb.TCPenalty([X, Y], seed=1)]
        values = [penalty_numbers("default", penalty) for penalty in penalties]
        return found, many.tolist(), values, mb.TASKS["table"].sample(9, seed=0)[1].tolist()

    heavy = mb.CLUB(conditional=mb.StudentT(X, Y, 8)).eval()
    found = []

    def keep():
        with warnings.catch_warnings():
            found.append(work())

    before = torch.get_rng_state()
    threads = [threading.Thread(target=keep) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert torch.equal(torch.get_rng_state(), before)
    assert found == 4 * [found[0]]


def test_learning_within_inference_mode_is_refused_where_it_cannot_be():
    with torch.inference_mode():
        made = mb.CLUB(X, Y, 8)
    x, y = samples()
    with torch.no_grad():
        assert made(x, y).isfinite()
    for call in (lambda: mb.fit(made, x, y), lambda: mb.fit_many([made], x, y)):
        with pytest.raises(ValueError, match=r"made in torch.inference_mode\(\); make the estim"):
            call()
    with pytest.raises(ValueError, match=r"parameters that can be learnt but got some that were"):
        mb.MIPenalty(made)


@pytest.mark.parametrize("name", PENALTIES)
def test_a_penalty_learns_outside_of_torch_func(name):
    penalty = make_penalty(name)
    x, y = samples()
    parts = getattr(penalty, "penalties", [penalty])
    before = [copy.deepcopy(p.state_dict()) for p in parts]
    transforms = (
        torch.func.grad(lambda a: penalty(a, y)),
        lambda a: torch.func.vmap(penalty)(a.view(2, -1, X), y.view(2, -1, Y)),
    )
    for transform in transforms:
        with pytest.raises(ValueError, match=r"outside of torch.func while a penalty learns .*bac"):
            transform(x)
    assert str(before) == str([p.state_dict() for p in parts])


# --- bad input -----------------------------------------------------------------------------------

X0, Y0 = samples()
with warnings.catch_warnings():  # of prototypes of torch
    warnings.simplefilter("ignore")
    COMPRESSED, NESTED = X0.to_sparse_csr(), torch.nested.nested_tensor(list(X0.split(24)))
BAD = {
    "sparse": (X0.to_sparse(), "x to be dense but got torch.sparse_coo; call x.to_dense"),
    "sparse rows": (COMPRESSED, "x to be dense but got torch.sparse_csr; call x.to_d"),
    "nested": (
        NESTED,
        r"x to be one dense tensor but got a nested one; call x.to_padded_tensor\(0.0\), and",
    ),
    "meta": (X0.to("meta"), r"on one device but got meta|to hold values but got a tensor on the"),
    "complex": (X0.cfloat(), r"x to be real but got torch.complex64; pass torch.view_as_real"),
    "whole": (X0.long(), r"x to be floating point but got torch.int64; for labels as y use"),
    "array": (X0.numpy(), r"x to be a torch.Tensor but got ndarray; convert it with torch.as_te"),
    "list": (X0.tolist(), r"x to be a torch.Tensor but got list; convert it with torch.as_te"),
    "none": (None, r"x to be a torch.Tensor but got NoneType; convert it with torch.as_te"),
}


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("kind", BAD)
@pytest.mark.parametrize("name", NAMES)
def test_bad_samples_have_one_clear_message(name, kind):
    bad, message = BAD[kind]
    estimator = make(name)
    state = copy.deepcopy(estimator.state_dict())
    calls = [
        lambda: estimator(bad, Y0),
        lambda: estimator.learning_loss(bad, Y0),
        lambda: mb.fit(estimator, bad, Y0, steps=2),
        lambda: mb.fit_many([estimator], bad, Y0, steps=2),
    ]
    for call in calls:
        with pytest.raises(ValueError, match=message):
            call()
    if kind not in ("array", "list", "none"):
        with pytest.raises(ValueError, match=message):
            mb.evaluate(estimator, (bad, Y0), progress=False)
    for key, value in estimator.state_dict().items():
        assert torch.equal(value, state[key])


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("kind", BAD)
@pytest.mark.parametrize("name", ["default", "club_sample", "mine"])
def test_bad_samples_leave_a_penalty_as_it_was(name, kind):
    bad, message = BAD[kind]
    penalty = make_penalty(name)
    penalty_numbers(name, penalty)
    state = str(penalty.state_dict())
    for call in (penalty, penalty.bound, penalty.fit):
        with pytest.raises(ValueError, match=message):
            call(bad, Y0)
    assert str(penalty.state_dict()) == state


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("value", [[1], np.zeros(N), X0.to_sparse(), X0[:-1]])
def test_a_bad_third_variable_is_named(value):
    penalty = mb.MIPenalty(X, Y, given_dim=X)
    with pytest.raises(ValueError, match=r"given to be (a torch|dense)|as many rows of given as"):
        penalty(X0, Y0, given=value)
    with pytest.raises(ValueError, match=r"given to be (a torch|dense)|as many rows of given as"):
        mb.Ratio(X, Y, 8, given_dim=X)(X0, Y0, value)


@pytest.mark.usefixtures("unchecked")
def test_what_lies_on_another_device_is_named():
    estimator = make("club").to("meta")
    with pytest.raises(ValueError, match=r"on meta, where the estimator is, but got cpu; call"):
        estimator(X0, Y0)
    with pytest.raises(ValueError, match=r"on one device but got cpu and meta; call y.to\('cpu'\)"):
        make("nwj")(X0, Y0.to("meta"))


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        *(
            ({"lr": lr}, f"lr to be a finite number > 0 but got {lr!r}; leave it out")
            for lr in (0.0, -1.0, math.inf, math.nan, "a", None)
        ),
        ({"steps": -1}, "steps to be an integer >= 0 but got -1; pass a whole number"),
        ({"steps": 2.5}, "steps to be an integer >= 0 but got 2.5; pass a whole number"),
        ({"batch_size": 0}, "batch_size to be an integer >= 1 but got 0; pass a whole number"),
        ({"batch_size": 2.5}, "batch_size to be an integer >= 1 but got 2.5; pass a whole"),
    ],
)
def test_odd_settings_of_a_fit_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        mb.fit(make("club"), X0, Y0, **options)
    with pytest.raises(ValueError, match=message):
        mb.fit_many([make("club")], X0, Y0, **options)


@pytest.mark.usefixtures("unchecked")
def test_other_odd_settings_are_refused():
    with pytest.raises(ValueError, match=r"patience to be an integer >= 1 but got 0"):
        mb.fit(make("club"), X0, Y0, patience=0)
    for name in ("batch_size", "k"):
        with pytest.raises(ValueError, match=f"{name} to be an integer >= 1 but got 2.5; pass"):
            mb.evaluate(make("club"), (X0, Y0), **{name: 2.5})
    for value in (None, mb.CLUB, nn.Linear(2, 2)):
        with pytest.raises(ValueError, match=r"Expected an estimator such as mb.CLUB.* but got"):
            mb.fit(value, X0, Y0)
        with pytest.raises(ValueError, match=r"estimators\[0\] to be an estimator such as mb.CLUB"):
            mb.fit_many([value], X0, Y0)
        with pytest.raises(ValueError, match=r"Expected estimator to be an estimator such as mb"):
            mb.evaluate(value, (X0, Y0))


def test_no_steps_change_nothing():
    estimator = make("club")
    state = copy.deepcopy(estimator.state_dict())
    assert mb.fit(estimator, X0, Y0, steps=0) == []
    assert all(torch.equal(v, state[k]) for k, v in estimator.state_dict().items())
