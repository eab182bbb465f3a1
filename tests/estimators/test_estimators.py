"""Laws that every entry of ESTIMATORS obeys. x_dim and y_dim always differ."""

import copy
import math
import re
import shutil
import warnings

import numpy as np
import pytest
import torch
from torch import nn

import mibounds as mb
from mibounds import bounds
from mibounds.estimators.from_conditionals import ConditionalEstimator
from mibounds.samples.checks import seems_finite, without_check
from mibounds.samples.pairs import Pairs

X, Y, N = 4, 3, 24
NAMES = tuple(mb.ESTIMATORS)
# what changes with the unit of y by definition: the density of a fixed marginal N(0, I)
UNIT_BOUND = {"vub"}


def samples(n=N, dtype=torch.float32):
    x = torch.randn(n, X, dtype=dtype)
    return x, x[:, :Y] + torch.randn(n, Y, dtype=dtype)


def make(name, **kwargs):
    torch.manual_seed(3)
    return mb.ESTIMATORS[name](X, Y, 8, **kwargs)


def value_of(estimator, x, y):
    """The value, with the negatives fixed where some are drawn."""
    if isinstance(estimator, mb.CLUBSample):
        index = (torch.arange(len(y)) + 1) % len(y)
        return estimator(x, y, index=index[:, None])
    return estimator(x, y)


@pytest.fixture(params=NAMES)
def name(request):
    return request.param


def test_the_names_are_those_promised():
    assert set(NAMES) == {
        "club", "club_sample", "l1out", "vub", "ba", "dv", "mine", "nwj", "infonce", "tuba", "js",
        "smile", "flo", "doe",
    }  # fmt: skip
    assert all(getattr(mb, c.__name__) is c for c in mb.ESTIMATORS.values())


def test_each_states_its_side_on_the_class_and_under_which_condition(name):
    cls = mb.ESTIMATORS[name]
    for owner in (cls, make(name)):
        assert owner.side in ("upper", "lower", "neither")
        assert len(owner.condition) > 5
        assert owner.cost.startswith("N")
        assert re.search(r"\b(19|20)\d\d\b", owner.reference)
    upper = {"club", "club_sample", "l1out", "vub"}
    neither = {"smile", "doe"}
    expected = "upper" if name in upper else "neither" if name in neither else "lower"
    assert cls.side == expected


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
    torch.testing.assert_close(value_of(make(name), x, y), value_of(keyword, x, y))


def test_forward_changes_nothing(name):
    estimator = make(name)
    x, y = samples()
    estimator.learning_loss(x, y)
    before = copy.deepcopy(estimator.state_dict())
    estimator(x * 10, y * 10)
    for key, value in estimator.state_dict().items():
        torch.testing.assert_close(value, before[key], rtol=0, atol=0, equal_nan=True)


def test_in_evaluation_the_loss_changes_nothing_either(name):
    estimator = make(name).eval()
    x, y = samples()
    before = copy.deepcopy(estimator.state_dict())
    assert estimator.learning_loss(x * 10, y * 10).isfinite()
    for key, value in estimator.state_dict().items():
        torch.testing.assert_close(value, before[key], rtol=0, atol=0)


def test_the_order_of_the_samples_does_not_matter(name):
    estimator = make(name).double()
    x, y = samples(dtype=torch.float64)
    estimator.learning_loss(x, y)
    order = torch.randperm(N)
    if name == "club_sample":  # something is drawn: carry the draw along
        index = bounds.draw_negatives(N, 2)
        inverse = order.argsort()
        permuted = estimator(x[order], y[order], index=inverse[index[order]])
        torch.testing.assert_close(permuted, estimator(x, y, index=index))
    else:
        torch.testing.assert_close(estimator(x[order], y[order]), estimator(x, y))


@pytest.mark.parametrize("scale", [1e-12, 1e12])
def test_units_do_not_matter_to_value_or_loss(name, scale):
    """After one look at the data, the value is the same in any unit: nats have none."""
    if name in UNIT_BOUND:
        pytest.skip("N(0, I) as marginal is a statement about the unit of y")
    x, y = samples()

    def value(a, b):
        estimator = make(name)
        estimator.learning_loss(a * x + a, b * y - b)
        return value_of(estimator, a * x + a, b * y - b)

    here = value(1.0, 1.0)
    torch.testing.assert_close(value(scale, 1 / scale), here, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(value(1 / scale, scale), here, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("scale", [1e-12, 1e12])
def test_a_fit_finds_the_same_mi_in_any_unit(name, scale):
    if name in UNIT_BOUND:
        pytest.skip("N(0, I) as marginal is a statement about the unit of y")
    x, y = samples(400)

    def value(unit):
        estimator = make(name)
        g = torch.Generator().manual_seed(0)
        mb.fit(estimator, unit * x, unit * y, steps=100, batch_size=64, seed=g)
        return value_of(estimator, unit * x, unit * y).item()

    assert value(scale) == pytest.approx(value(1.0), rel=0.02, abs=0.02)


def test_gradients_reach_every_parameter_and_both_inputs(name):
    """Through value and loss together; what shifts all scores cancels in some bounds."""
    estimator = make(name)
    x, y = samples()
    x.requires_grad_()
    y.requires_grad_()
    (value_of(estimator, x, y) + estimator.learning_loss(x, y)).backward()
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
    x, y = samples(5, dtype=torch.float64)
    estimator.learning_loss(x, y)
    estimator.eval()
    inputs = (x.requires_grad_(), y.requires_grad_())
    assert torch.autograd.gradcheck(lambda x, y: value_of(estimator, x, y), inputs)


def test_the_loss_may_come_between_a_value_and_its_backward(name):
    """Two losses, two optimisers, in the order that users write them."""
    estimator = make(name)
    encoder = nn.Linear(X, X)
    x, y = samples()
    z = encoder(x)
    value = value_of(estimator, z, y)
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
    torch.testing.assert_close(value_of(other, x, y), value_of(estimator, x, y), rtol=0, atol=0)
    twin = copy.deepcopy(estimator)
    torch.testing.assert_close(value_of(twin, x, y), value_of(estimator, x, y), rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_under_autocast_is_finite(name, dtype):
    estimator = make(name)
    x, y = samples(64)
    with torch.autocast("cpu", dtype=dtype):
        loss = estimator.learning_loss(100 * x, 100 * y)
        value = value_of(estimator, (100 * x).to(dtype), 100 * y)
    (loss + value).backward()
    assert loss.isfinite()
    assert value.isfinite()
    assert value.dtype == torch.float32
    assert all(p.grad.isfinite().all() for p in estimator.parameters())
    full = value_of(estimator, 100 * x, 100 * y)
    torch.testing.assert_close(value, full, rtol=0.1, atol=0.1)


@pytest.mark.usefixtures("unchecked")
def test_compiled_gives_the_same_value(name):
    has_compiler = any(shutil.which(c) for c in ("c++", "g++", "clang++"))
    backend = "inductor" if has_compiler and name in ("club", "infonce") else "aot_eager"
    estimator = make(name)
    x, y = samples()
    estimator.learning_loss(x, y)
    torch.compiler.reset()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compiled = torch.compile(lambda x, y: value_of(estimator, x, y), backend=backend)
        value = compiled(x, y)
    torch.testing.assert_close(value, value_of(estimator, x, y), rtol=1e-4, atol=1e-5)


def test_a_constant_column_works(name):
    x, y = samples(200)
    x[:, 0], y[:, 0] = 7.7, -0.1
    estimator = make(name)
    mb.fit(estimator, x, y, steps=50, batch_size=64)
    assert value_of(estimator, x, y).isfinite()
    assert abs(value_of(estimator, x, y).item()) < 10


def test_fitting_finds_the_dependence(name):
    """Fitted on dependent samples, the value is larger there than on shuffled ones."""
    x, y = samples(1000)
    y = x[:, :Y] + 0.5 * torch.randn(1000, Y)
    estimator = make(name)
    mb.fit(estimator, x, y, steps=300, batch_size=64)
    with torch.no_grad():
        dependent = value_of(estimator, x[:256], y[:256])
        shuffled = value_of(estimator, x[:256], y[torch.randperm(1000)[:256]])
    assert dependent > shuffled + 0.5
    assert dependent > 0.5


# --- what single estimators promise --------------------------------------------------------------


def test_ba_is_a_lower_bound_only_with_the_true_entropy():
    assert (mb.BA.side, mb.BA(X, Y, entropy=1.0).side, mb.BA(X, Y).side) == (
        "lower",
        "lower",
        "neither",
    )
    x, y = samples(500)
    q = mb.Gaussian(X, Y)
    given, estimated = mb.BA(conditional=q, entropy=2.0), mb.BA(conditional=q)
    torch.testing.assert_close(given(x, y), given.loglikeli(x, y) + 2.0)
    d, log_det = Y, torch.cov(y.T, correction=0).logdet()
    entropy = 0.5 * (d * (1 + math.log(2 * math.pi)) + log_det)
    torch.testing.assert_close(
        estimated(x, y), given.loglikeli(x, y) + entropy, rtol=1e-4, atol=1e-4
    )


def test_mine_keeps_an_average_of_the_partition_function():
    estimator = mb.MINE(X, Y, 8, rate=0.25)
    averages = []
    for step in range(3):
        x, y = samples()
        estimator.learning_loss(x, y)
        with torch.no_grad():
            scores = estimator.critic.pairs(x, y)
        now = Pairs.of(scores).log_mean_exp(None, "others").exp()
        averages.append(now if step == 0 else 0.75 * averages[-1] + 0.25 * now)
        torch.testing.assert_close(estimator.log_average.exp(), averages[-1])


def test_learned_marginals_learn_and_fixed_ones_do_not():
    x, y = samples(300)
    y = 5 * y + 10
    fixed = mb.VUB(X, Y, 8)
    learned = mb.VUB(X, Y, 8, marginal="learned")
    mixture = mb.VUB(X, Y, 8, marginal=mb.GaussianMixture(0, Y))
    given = mb.VUB(X, Y, 8, marginal=torch.distributions.Independent(
        torch.distributions.Normal(torch.full((Y,), 10.0), torch.full((Y,), 7.0)), 1
    ))  # fmt: skip
    for estimator in (fixed, learned, mixture, given):
        mb.fit(estimator, x, y, steps=200, batch_size=64)
    assert fixed(x, y) > 100  # N(0, I) is a poor stand-in for this marginal
    for estimator in (learned, mixture, given):
        assert 0 < estimator(x, y) < 4


def test_vub_in_kl_form_is_the_expectation_of_the_sampled_form():
    x = torch.randn(400, X)
    q = mb.Gaussian(X, Y, 8)
    for family in (q, mb.FullGaussian(X, Y, 8), mb.LowRankGaussian(X, Y, 8)):
        kl = mb.VUB(conditional=family, form="kl")(x, torch.zeros(400, Y))
        draws = [mb.VUB(conditional=family)(x, family(x).sample()) for _ in range(200)]
        draws = torch.stack(draws)
        assert (draws.mean() - kl).abs() < 5 * draws.std() / 200**0.5


def test_doe_learns_its_marginal_and_takes_discrete_y():
    x = torch.randn(500, X)
    y = (x[:, 0] > 0).long() + (x[:, 1] > 1).long()
    estimator = mb.DoE(conditional=mb.Categorical(X, 3))
    assert isinstance(estimator.marginal, mb.Categorical)
    mb.fit(estimator, x, y, steps=300)
    frequencies = torch.bincount(y) / 500
    entropy = -(frequencies * frequencies.log()).sum()
    assert 0.6 * entropy < estimator(x, y) < 1.1 * entropy


@pytest.mark.parametrize("name", ["club", "club_sample", "l1out", "ba", "doe", "vub"])
def test_discrete_y(name):
    x = torch.randn(500, X)
    y = (x[:, 0] > 0).long()
    kwargs = {"marginal": "learned"} if name == "vub" else {}
    estimator = mb.ESTIMATORS[name](conditional=mb.Categorical(X, 2), **kwargs)
    mb.fit(estimator, x, y, steps=300)
    assert estimator(x, y) > 0.4  # log 2 is the truth; the upper bounds lie above it
    assert estimator(x, y[torch.randperm(500)]) < 0.3


def test_with_a_known_conditional_nothing_is_learnt_and_gradients_flow_through_it():
    encoder = nn.Linear(X, 2 * Y)

    def posterior(x):
        loc, raw = encoder(x).chunk(2, -1)
        normal = torch.distributions.Normal(loc, raw.exp())
        return torch.distributions.Independent(normal, 1)

    x, _ = samples()
    for cls in (mb.CLUB, mb.CLUBSample, mb.L1Out, mb.VUB, mb.BA):
        estimator = cls(conditional=posterior)
        assert list(estimator.parameters()) == []
        y = posterior(x).rsample()
        assert not estimator.learning_loss(x, y).requires_grad
        encoder.zero_grad()
        estimator(x, y).backward()
        assert encoder.weight.grad.abs().sum() > 0
        assert mb.fit(estimator, x, y.detach()) == []


def test_functions_take_the_distribution_itself():
    x, y = samples()
    q = mb.Gaussian(X, Y)
    p = q(x)
    pairs = (
        (mb.club(p, y), mb.CLUB(conditional=q)),
        (mb.club(p, y, negatives="all"), mb.CLUB(conditional=q, negatives="all")),
        (mb.l1out(p, y), mb.L1Out(conditional=q)),
        (mb.vub(p, y), mb.VUB(conditional=q)),
        (mb.vub(p), mb.VUB(conditional=q, form="kl")),
        (mb.ba(p, y), mb.BA(conditional=q)),
        (mb.ba(p, y, entropy=1.0), mb.BA(conditional=q, entropy=1.0)),
    )
    for value, estimator in pairs:
        torch.testing.assert_close(value, estimator(x, y))
    draws = [torch.Generator().manual_seed(5) for _ in range(2)]
    torch.testing.assert_close(
        mb.club_sample(p, y, k=2, seed=draws[0]),
        mb.CLUBSample(conditional=q, k=2)(x, y, seed=draws[1]),
    )


def test_the_authors_pattern_works_as_it_stands():
    """Two losses and two optimisers by hand, positional sizes, the authors' method names."""
    for cls in (mb.CLUB, mb.CLUBSample, mb.L1Out, mb.VUB, mb.MINE, mb.NWJ, mb.InfoNCE):
        estimator = cls(X, Y, 16)
        optimizer = torch.optim.Adam(estimator.parameters(), lr=1e-3)
        x, y = samples()
        estimator.train()
        loss = estimator.learning_loss(x, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        estimator.eval()
        assert isinstance(estimator(x, y).item(), float)
        if isinstance(estimator, ConditionalEstimator):
            loglikeli = estimator.loglikeli(x, y)
            torch.testing.assert_close(
                mb.CLUB(conditional=estimator.conditional).eval().learning_loss(x, y), -loglikeli
            )


# --- bad input -----------------------------------------------------------------------------------


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("verb", ["forward", "learning_loss"])
@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (torch.zeros(8, X), torch.zeros(7, Y), r"same number of samples but got 8 and 7"),
        (torch.zeros(1, X), torch.zeros(1, Y), r"at least 2 samples .* but got 1"),
        (torch.zeros(0, X), torch.zeros(0, Y), r"at least 2 samples .* but got 0"),
        (torch.zeros(8, Y), torch.zeros(8, Y), r"x of shape \(n, 4\) but got \(8, 3\)"),
        (torch.zeros(8, X), torch.zeros(8, X), r"y of shape \(n, 3\) but got \(8, 4\)"),
        (torch.zeros(8, X), torch.zeros(8), r"y of shape \(n, 3\) but got \(8,\)"),
        (torch.zeros(8, 5, X), torch.zeros(8, 5, Y), r"flatten the leading dimensions"),
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
        getattr(make(name), verb)(x, y)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_samples_that_are_not_finite_are_refused(name, bad):
    estimator = make(name)
    x, y = samples()
    a, b = x.clone(), y.clone()
    a[5, 1], b[7, 0] = bad, bad
    with pytest.raises(ValueError, match=r"finite x .* in 1 of 24 rows, first in row 5; drop or"):
        estimator(a, y)
    with pytest.raises(ValueError, match=r"finite y .* in 1 of 24 rows, first in row 7; drop or"):
        estimator(x, y=b)
    estimator.learning_loss(a, y)  # one bad batch is borne
    with without_check():
        estimator(a, y)  # as it is by who trains with the value


def test_what_is_looked_at():
    largest = torch.full((4, 2), torch.finfo(torch.float32).max)
    assert seems_finite(largest)  # whose sum is not finite
    for value in (torch.tensor(math.nan), torch.zeros(3).long(), [math.nan], None):
        assert seems_finite(value)  # others speak of those
    bad = torch.full((4, 2), math.nan)
    assert not seems_finite(bad)
    assert not seems_finite(bad.half())
    assert seems_finite(bad.to("meta"))  # as on a GPU, which must not wait
    assert torch.vmap(lambda v: torch.tensor(seems_finite(v)))(bad).all()
    torch.compiler.reset()
    seen = torch.compile(lambda v: v if seems_finite(v) else v + 1, backend="eager", fullgraph=True)
    assert seen(bad).isnan().all()


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("kind", [torch.tensor, np.array, list])
def test_samples_in_the_place_of_dimensions(name, kind):
    owner, x = mb.ESTIMATORS[name], kind([[1.25, 2.5], [3.75, 5.0]])
    for arguments in ((x, x), (x,), (x, 2), (2, x)):
        with pytest.raises(ValueError, match=r"numbers of columns, but got (T|nd|l)\w+; ") as error:
            owner(*arguments)
        call = f"as in {owner.__name__}(x.shape[1], y.shape[1])(x, y)."
        assert str(error.value).endswith(call)
        assert "1.25" not in str(error.value)


@pytest.mark.usefixtures("unchecked")
def test_labels_out_of_range_are_named():
    estimator = mb.CLUB(conditional=mb.Categorical(X, 3))
    for bad in (3, -1):
        with pytest.raises(ValueError, match=rf"labels 0 ... 2\) but got y\[1\] = {bad}"):
            estimator(torch.zeros(3, X), torch.tensor([0, bad, 1]))
        with pytest.raises(ValueError, match=rf"labels 0 ... 2\) but got y\[1\] = {bad}"):
            estimator.learning_loss(torch.zeros(3, X), torch.tensor([0, bad, 1]))


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: mb.CLUB(), r"CLUB\(x_dim, y_dim\) or CLUB\(conditional=...\) but got x_dim=None"),
        (lambda: mb.NWJ(3), r"NWJ\(x_dim, y_dim\) or NWJ\(critic=...\) .* y_dim=None"),
        (lambda: mb.CLUB(3, 2, conditional=mb.Gaussian(3, 2)), r"dimensions or conditional="),
        (lambda: mb.CLUB(conditional=3), r"conditional to be a module or a callable but got int"),
        (lambda: mb.DV(3, 2, critic=lambda x, y: x), r"either dimensions or critic= for DV"),
        (lambda: mb.VUB(3, 2, form="exact"), r'form to be "sampled" or "kl" but got \'exact\''),
        (lambda: mb.VUB(3, 2, marginal="gauss"), r"conditional on nothing but got 'gauss'"),
        (lambda: mb.MINE(3, 2, rate=0.0), r"0 < rate <= 1 but got 0.0"),
        (lambda: mb.TUBA(3, 2, alpha=1.5), r"0 <= alpha <= 1 but got 1.5"),
        (lambda: mb.TUBA(3, 2, alpha=0.5, negatives="all"), r'negatives="others" with alpha > 0'),
        (lambda: mb.DoE(conditional=lambda x: None), r"Expected marginal= beside a conditional"),
        (
            lambda: mb.CLUB(conditional=lambda x: x)(torch.zeros(4, 3), torch.zeros(4, 2)),
            r"torch.distributions.Distribution but got Tensor",
        ),
        (
            lambda: mb.vub(mb.StudentT(3, 2)(torch.zeros(4, 3))),
            r"closed form but got Independent and Independent; pass samples y",
        ),
    ],
)
def test_bad_construction_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("negatives", ["others", "all"])
def test_club_in_pieces_is_club(negatives, monkeypatch):
    estimator = mb.CLUB(3, 2, negatives=negatives).double()
    x, y = torch.randn(100, 3).double() + 5, torch.randn(100, 2).double() - 7
    estimator.learning_loss(x, y)
    x.requires_grad_()
    y.requires_grad_()
    leaves = [x, y, *estimator.parameters()]
    whole = estimator(x, y)
    want = torch.autograd.grad(whole, leaves)
    monkeypatch.setattr("mibounds.estimators.from_conditionals.PIECE", 16)
    pieces = estimator(x, y)
    torch.testing.assert_close(pieces, whole, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(torch.autograd.grad(pieces, leaves), want, rtol=1e-10, atol=1e-12)
    with torch.no_grad():
        torch.testing.assert_close(estimator(x, y), whole, rtol=1e-12, atol=1e-12)
