"""Laws that every entry of ESTIMATORS obeys, read from the facts that its class declares.

x_dim and y_dim always differ. A new bound needs its equation in tests/support/naive.py and
nothing here.
"""

import copy
import inspect
import re
from functools import partial

import numpy as np
import pytest
import torch
from naive import equation, fixed_value
from torch import nn

import mibounds as mb
from mibounds import bounds
from mibounds.samples.checks import without_check

X, Y, N = 4, 3, 24
NAMES = tuple(mb.ESTIMATORS)
BASES = ("club", "nwj")  # one with a conditional and one with a critic, for what their bases do


def samples(n=N, dtype=torch.float32):
    x = torch.randn(n, X, dtype=dtype)
    return x, x[:, :Y] + torch.randn(n, Y, dtype=dtype)


def make(name, **options):
    torch.manual_seed(3)
    return mb.ESTIMATORS[name](X, Y, 8, **options)


def takes(function, parameter):
    return parameter in inspect.signature(function).parameters


@pytest.fixture(params=NAMES)
def name(request):
    return request.param


# --- what a class declares -----------------------------------------------------------------------


def test_the_promised_names_are_there_on_their_side():
    promised = {
        "upper": {"club", "club_sample", "l1out", "vub"},
        "lower": {"ba", "dv", "mine", "nwj", "infonce", "tuba", "js", "flo"},
        "neither": {"smile", "doe"},
    }
    for side, names in promised.items():
        assert names <= {name for name, cls in mb.ESTIMATORS.items() if cls.side == side}


def test_class_and_pure_function_are_public(name):
    cls = mb.ESTIMATORS[name]
    assert cls.name == name
    assert getattr(mb, cls.__name__) is cls
    assert inspect.isfunction(getattr(mb, name))
    assert {name, cls.__name__} <= set(mb.__all__)


def test_each_states_its_facts(name):
    cls = mb.ESTIMATORS[name]
    for owner in (cls, make(name)):
        assert owner.side in ("upper", "lower", "neither")
        assert len(owner.condition) > 5
        assert re.search(r"\bN(²| )", owner.cost)
        assert re.search(r"\b(19|20)\d\d\b", owner.reference)


def test_it_takes_a_conditional_or_a_critic_as_declared(name):
    cls = mb.ESTIMATORS[name]
    base = mb.ConditionalEstimator if cls.has_conditional else mb.CriticEstimator
    assert issubclass(cls, base)
    assert takes(cls, "conditional") == cls.has_conditional
    assert takes(cls, "critic") != cls.has_conditional


def options_of(name):
    choices = ("others", "all") if takes(mb.ESTIMATORS[name], "negatives") else ()
    return [{"negatives": choice} for choice in choices] or [{}]


@pytest.mark.parametrize(("name", "options"), [(n, o) for n in NAMES for o in options_of(n)])
def test_the_value_is_the_equation(name, options):
    estimator = make(name, **options).double()
    x, y = samples(7, torch.float64)
    estimator.learning_loss(3 * x, 3 * y)
    torch.testing.assert_close(fixed_value(estimator, x, y), equation(estimator, x, y))


def test_a_linear_one_has_one_value_for_a_data_set_of_any_size(name):
    """Then the mean over all ways to leave one sample out is the value itself."""
    entropy = {"entropy": 3.0} if name == "ba" else {}  # an estimated one depends on the batch
    estimator = make(name, **entropy).double().eval()
    x, y = samples(10, torch.float64)

    def value(x, y):
        """With all other samples as negatives, where some are drawn."""
        n = len(x)
        return fixed_value(estimator, x, y, bounds.draw_negatives(n, n - 1))

    everyone = torch.arange(10)
    without = torch.stack([value(x[everyone != i], y[everyone != i]) for i in range(10)])
    evaluation = mb.evaluate(estimator, (x, y), batch_size=4, batch_size_pairs=5, progress=False)
    assert evaluation.exact == estimator.linear
    if estimator.linear:
        torch.testing.assert_close(without.mean(), value(x, y))
        assert evaluation.nats == pytest.approx(value(x, y).item())


@pytest.mark.parametrize("name", [n for n in NAMES if not mb.ESTIMATORS[n].has_conditional])
def test_a_single_pair_carries_the_value_of_an_exploding_one_only(name):
    table = torch.randn(8, 8)

    def value():
        estimator = mb.ESTIMATORS[name](critic=lambda x, y: table[x.long(), y.long()])
        return estimator(torch.arange(8.0), torch.arange(8.0))

    before = value()
    table[2, 5] += 30
    assert (before - value() > 15) == mb.ESTIMATORS[name].exploding


@pytest.mark.parametrize("name", [n for n in NAMES if not mb.ESTIMATORS[n].has_conditional])
def test_a_capped_one_never_exceeds_log_n_with_the_given_pairs_among_its_negatives(name):
    samples = torch.arange(8.0)
    for options in options_of(name):
        values = []
        for scale in (3.0, 10.0, 30.0, 100.0):
            scores = scale * torch.eye(8)
            critic = partial(score_of, scores)
            estimator = mb.ESTIMATORS[name](critic=critic, **options)
            values.append(estimator(samples, samples))
        expected = np.log(8) if estimator.capped and estimator.negatives == "all" else np.inf
        assert estimator.ceiling(8) == pytest.approx(expected)
        if estimator.negatives == "all":
            assert (max(values) <= np.log(8) + 1e-5) == estimator.capped


def score_of(scores, x, y):
    """The scores of pairs of row numbers."""
    return scores[x.long(), y.long()]


# --- values and gradients ------------------------------------------------------------------------


def test_value_and_loss_are_finite_numbers(name):
    estimator = make(name)
    x, y = samples()
    for value in (estimator(x, y), estimator.learning_loss(x, y), estimator(x, y)):
        assert value.shape == ()
        assert value.isfinite()


def test_positional_and_keyword_construction_agree(name):
    x, y = samples()
    torch.manual_seed(3)
    keyword = mb.ESTIMATORS[name](x_dim=X, y_dim=Y, hidden=8)
    torch.testing.assert_close(fixed_value(make(name), x, y), fixed_value(keyword, x, y))


def test_the_value_changes_nothing_and_the_loss_only_in_training(name):
    estimator = make(name)
    x, y = samples()
    estimator.learning_loss(x, y)
    before = copy.deepcopy(estimator.state_dict())
    assert estimator(x * 10, y * 10).isfinite()
    assert estimator.eval().learning_loss(x * 10, y * 10).isfinite()
    for key, value in estimator.state_dict().items():
        torch.testing.assert_close(value, before[key], rtol=0, atol=0, equal_nan=True)
    estimator.train().learning_loss(x * 10, y * 10)
    assert any((value != before[key]).any() for key, value in estimator.state_dict().items())


def test_the_order_of_the_samples_does_not_matter(name):
    estimator = make(name).double()
    x, y = samples(dtype=torch.float64)
    estimator.learning_loss(x, y)
    order = torch.randperm(N)
    index = bounds.draw_negatives(N, 2)
    moved = order.argsort()[index[order]]  # the same negatives under their new numbers
    permuted = fixed_value(estimator, x[order], y[order], moved)
    torch.testing.assert_close(permuted, fixed_value(estimator, x, y, index))


@pytest.mark.parametrize("scale", [1e-12, 1e12])
def test_units_do_not_matter_to_value_loss_or_gradient(name, scale):
    """After one look at the data: nats have no unit, nor have the parameters."""
    x, y = samples()

    def numbers(a, b):
        estimator = make(name, **mb.ESTIMATORS[name].for_any_y)
        a, b = a * x + a, b * y - b
        estimator.learning_loss(a, b)
        loss, value = estimator.learning_loss(a, b), fixed_value(estimator, a, b)
        gradients = torch.autograd.grad(loss, list(estimator.parameters()), retain_graph=True)
        return value, *gradients

    here = numbers(1.0, 1.0)
    torch.testing.assert_close(numbers(scale, 1 / scale), here, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(numbers(1 / scale, scale), here, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", BASES)
def test_a_fit_finds_the_same_value_in_any_unit(name):
    x, y = samples(400)

    def value(unit):
        estimator = make(name)
        mb.fit(estimator, unit * x, unit * y, steps=50, batch_size=64, seed=0)
        return fixed_value(estimator, unit * x, unit * y).item()

    assert value(1e12) == pytest.approx(value(1.0), rel=0.02, abs=0.02)


def test_gradients_reach_every_parameter_and_both_inputs(name):
    """Through value and loss together; what shifts all scores cancels in some bounds."""
    estimator = make(name)
    x, y = samples()
    x.requires_grad_()
    y.requires_grad_()
    (fixed_value(estimator, x, y) + estimator.learning_loss(x, y)).backward()
    assert x.grad.abs().sum() > 0
    assert y.grad.abs().sum() > 0
    for key, parameter in estimator.named_parameters():
        assert parameter.grad is not None, key
        assert parameter.grad.isfinite().all(), key
    learning = make(name)
    learning.learning_loss(x.detach(), y.detach()).backward()
    for key, parameter in learning.named_parameters():
        if not key.endswith("head.layers.0.bias"):
            assert parameter.grad.abs().sum() > 0, key


def test_gradcheck(name):
    estimator = make(name).double()
    x, y = samples(4, dtype=torch.float64)
    estimator.learning_loss(x, y)
    estimator.eval()
    inputs = (x.requires_grad_(), y.requires_grad_())
    assert torch.autograd.gradcheck(lambda x, y: fixed_value(estimator, x, y), inputs)


def test_the_loss_may_come_between_a_value_and_its_backward(name):
    """Two losses, two optimisers, in the order that users write them."""
    estimator = make(name)
    encoder = nn.Linear(X, X)
    x, y = samples()
    z = encoder(x)
    value = fixed_value(estimator, z, y)
    estimator.learning_loss(z.detach(), y).backward()
    value.backward()
    assert encoder.weight.grad.abs().sum() > 0


def test_save_and_load(name, tmp_path):
    estimator = make(name)
    x, y = samples()
    for _ in range(3):
        estimator.learning_loss(5 * x, y)
    torch.save(estimator.state_dict(), tmp_path / "state.pt")
    other = mb.ESTIMATORS[name](X, Y, 8)
    other.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    for twin in (other, copy.deepcopy(estimator)):
        torch.testing.assert_close(
            fixed_value(twin, x, y), fixed_value(estimator, x, y), rtol=0, atol=0
        )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_under_autocast_is_finite(name, dtype):
    estimator = make(name)
    x, y = samples(64)
    with torch.autocast("cpu", dtype=dtype):
        loss = estimator.learning_loss(100 * x, 100 * y)
        value = fixed_value(estimator, (100 * x).to(dtype), 100 * y)
    (loss + value).backward()
    assert loss.isfinite()
    assert value.isfinite()
    assert value.dtype == torch.float32
    assert all(p.grad.isfinite().all() for p in estimator.parameters())
    full = fixed_value(estimator, 100 * x, 100 * y)
    torch.testing.assert_close(value, full, rtol=0.1, atol=0.1)


def test_compiled_gives_the_same_value_and_gradient(run_script):
    result = run_script("tests/support/compiled.py")
    assert result.stdout == f"{len(NAMES)} estimators\n", result.stderr


def test_fitting_finds_the_dependence_beside_a_constant_column(name):
    """Fitted to dependent samples, the value is larger there than on shuffled ones."""
    x = torch.randn(1000, X)
    y = x[:, :Y] + 0.5 * torch.randn(1000, Y)
    x[:, -1], y[:, -1] = 7.7, -0.1
    estimator = make(name)
    mb.fit(estimator, x, y, steps=150, batch_size=64, lr=1e-2)
    with torch.no_grad():
        dependent = fixed_value(estimator, x[:256], y[:256])
        shuffled = fixed_value(estimator, x[:256], y[torch.randperm(1000)[:256]])
    assert 0.5 < dependent < 10
    assert dependent > shuffled + 0.5


# --- bad input -----------------------------------------------------------------------------------


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("verb", ["forward", "learning_loss"])
@pytest.mark.parametrize("name", BASES)
@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (torch.zeros(8, X), torch.zeros(7, Y), r"same number of samples but got 8 and 7"),
        (torch.zeros(1, X), torch.zeros(1, Y), r"at least 2 samples .* but got 1"),
        (torch.zeros(0, X), torch.zeros(0, Y), r"at least 2 samples .* but got 0"),
        (torch.zeros(8, Y), torch.zeros(8, Y), r"x of shape \(n, 4\) but got \(8, 3\)"),
        (torch.zeros(8, X), torch.zeros(8, X), r"y of shape \(n, 3\) but got \(8, 4\)"),
        (torch.zeros(8, X), torch.zeros(8), r"y of shape \(n, 3\) but got \(8,\)"),
        (torch.zeros(8, 5, X), torch.zeros(7, 5, Y), r"one x for each sequence y|same number of"),
        (torch.zeros(8, 2, 5, X), torch.zeros(8, Y), r"flatten the leading dimensions"),
        (torch.zeros(8, X), torch.zeros(8, Y).long(), r"y to be floating point but got torch.int"),
        (torch.zeros(8, X).int(), torch.zeros(8, Y), r"x to be floating point but got torch.int"),
        (torch.zeros(8, X), torch.zeros(8, Y).cfloat(), r"y to be real but got torch.complex64"),
        (torch.zeros(8, X).cfloat(), torch.zeros(8, Y), r"x to be real but got torch.complex64"),
        (torch.zeros(8, X).double(), torch.zeros(8, Y), r"x in torch.float32, .* torch.float64"),
        ([[0.0] * X] * 8, torch.zeros(8, Y), r"x to be a torch.Tensor but got list"),
        (torch.tensor(1.0), torch.tensor(1.0), r"one sample per row but got a single number"),
    ],
)
def test_bad_samples_are_named(name, verb, x, y, message):
    with pytest.raises(ValueError, match=message):
        getattr(make(name).eval(), verb)(x, y)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("verb", ["forward", "learning_loss"])
def test_no_estimator_comes_without_the_checks_of_its_base(name, verb):
    with pytest.raises(ValueError, match=r"at least 2 samples .* but got 1"):
        getattr(make(name).eval(), verb)(torch.zeros(1, X), torch.zeros(1, Y))
    with pytest.raises(ValueError, match="same number of samples but got 8 and 7"):
        getattr(make(name), verb)(torch.zeros(8, X), torch.zeros(7, Y))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", BASES)
def test_samples_that_are_not_finite_are_refused(name, bad):
    estimator = make(name)
    x, y = samples()
    a, b = x.clone(), y.clone()
    a[5, 1], b[7, 0] = bad, bad
    with pytest.raises(ValueError, match=r"finite x .* in 1 of 24 rows, first in row 5; drop or"):
        estimator(a, y)
    with pytest.raises(ValueError, match=r"finite y .* in 1 of 24 rows, first in row 7; drop or"):
        estimator(x, y=b)


def test_only_a_value_refuses_samples_that_are_not_finite(name):
    estimator = make(name)
    x, y = samples()
    y[7, 0] = np.nan
    with pytest.raises(ValueError, match=r"finite y but got NaN"):
        estimator(x, y)
    estimator.learning_loss(x, y)  # training survives one bad batch
    with without_check():
        estimator(x, y)  # also when it minimises the value


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("kind", [torch.tensor, np.array, list])
@pytest.mark.parametrize("name", BASES)
def test_samples_in_the_place_of_dimensions(name, kind):
    owner, x = mb.ESTIMATORS[name], kind([[1.25, 2.5], [3.75, 5.0]])
    for arguments in ((x, x), (x,), (x, 2), (2, x)):
        with pytest.raises(ValueError, match=r"numbers of columns, but got (T|nd|l)\w+; ") as error:
            owner(*arguments)
        call = f"as in {owner.__name__}(x.shape[1], y.shape[1])(x, y)."
        assert str(error.value).endswith(call)
        assert "1.25" not in str(error.value)
