import copy
import math
import subprocess
import sys
import warnings
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch.distributions import Gamma, Independent, MultivariateNormal, Normal, Poisson, Uniform
from torch.utils.data import DataLoader, TensorDataset

import mibounds as mb
from mibounds.bounds import densities
from mibounds.estimators.evaluation import Evaluation, evaluate


def normals(n, *dims, dtype=torch.float32, seed=0):
    g = torch.Generator().manual_seed(seed)
    return [torch.randn(n, d, generator=g, dtype=dtype) for d in dims]


def related(n, x_dim, y_dim, dtype=torch.float32, seed=0):
    x, y = normals(n, x_dim, y_dim, dtype=dtype, seed=seed)
    return x, y + x.sum(1, keepdim=True)


def stirred(module, x, y):
    """A module that has seen the data, with all parameters away from their first values."""
    module.to(x.dtype)
    module.observe(x, y)
    with torch.no_grad():
        for p in module.parameters():
            p.add_(0.3 * torch.randn_like(p))
    return module


def known_normal(x):
    return Independent(Normal(x, 0.5 + x.abs()), 1)


CONDITIONALS = {
    "gaussian": lambda: mb.Gaussian(3, 4, 16),
    "unit": lambda: mb.UnitGaussian(3, 4, 16),
    "full": lambda: mb.FullGaussian(3, 4, 16),
    "low rank": lambda: mb.LowRankGaussian(3, 4, 16),
    "categorical": lambda: mb.Categorical(3, 4, 16),
    "bernoulli": lambda: mb.Bernoulli(3, 4, 16),
}


def samples_for(name, n, dtype=torch.float32):
    x, y = normals(n, 3, 4, dtype=dtype)
    y = 0.3 * y + torch.cat([x, x[:, :1] - x[:, 1:2]], 1)
    if name == "categorical":
        return x, y.argmax(1)
    return x, (y > 0).to(dtype) if name == "bernoulli" else y


# --- the exact value of CLUB ---------------------------------------------------------------------


@pytest.mark.parametrize("negatives", ["others", "all"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["32", "64"])
@pytest.mark.parametrize("name", CONDITIONALS)
def test_it_is_the_value_over_all_pairs_in_memory(name, dtype, negatives):
    x, y = samples_for(name, 3001, dtype)
    estimator = mb.CLUB(conditional=CONDITIONALS[name](), negatives=negatives).to(dtype)
    mb.fit(estimator, x, y, steps=50)  # for a value that is not near zero
    results = [evaluate(estimator, (x, y), batch_size=size) for size in (3001, 700, 29)]
    whole = estimator(x, y).item()
    wide = y if name == "categorical" else y.double()
    exact = copy.deepcopy(estimator).double()(x.double(), wide).item()
    for result in results:
        if dtype == torch.float64:
            assert result.nats == pytest.approx(whole, rel=1e-10)
        else:
            assert result.nats == pytest.approx(exact, rel=1e-6)
            # in single precision covariances cost the value in memory some digits
            loss = 5e-6 if name in ("full", "low rank") else 1e-6
            assert result.nats == pytest.approx(whole, rel=loss)
        assert result.exact
        assert result.samples == 3001
        assert 0 < result.error < 0.05
        assert result.error == pytest.approx(results[0].error, rel=1e-3)


@pytest.mark.parametrize(
    ("conditional", "y"),
    [
        (lambda x: Independent(Poisson(x.exp()), 1), lambda x: x.exp().round()),
        (lambda x: Independent(Gamma(1 + x.square(), x.exp()), 1), lambda x: x.exp()),
        (known_normal, lambda x: x + 0.1),
        (lambda x: MultivariateNormal(x, torch.eye(3, dtype=x.dtype)), lambda x: x.flip(1)),
    ],
    ids=["poisson", "gamma", "normal", "one covariance"],
)
def test_it_is_exact_for_known_conditionals_of_exponential_families(conditional, y):
    (x,) = normals(1000, 3, dtype=torch.float64)
    y = y(x)
    estimator = mb.CLUB(conditional=conditional)
    result = evaluate(estimator, (x, y), batch_size=64)
    assert result.nats == pytest.approx(estimator(x, y).item(), rel=1e-10)
    assert result.exact


def memory_maps(x, y, folder):
    np.save(folder / "x.npy", x.numpy())
    np.save(folder / "y.npy", y.numpy())
    return [np.load(folder / f"{name}.npy", mmap_mode="r") for name in "xy"]


def test_every_form_of_the_data_gives_the_same_value_and_error(tmp_path):
    x, y = related(2000, 3, 2)
    estimator = mb.CLUB(conditional=stirred(mb.Gaussian(3, 2), x, y))
    maps = memory_maps(x, y, tmp_path)
    uneven = [0, 1, 1, 30, 900, 2000]
    forms = {
        "numpy": (x.numpy(), y.numpy()),
        "big-endian": [x.numpy().astype(">f4"), y.numpy().astype(">f8")],
        "longdouble": (x.numpy().astype(np.longdouble), y.numpy()),
        "memory map": tuple(maps),
        "view of a memory map": tuple(np.asarray(m)[:] for m in maps),
        "loader": DataLoader(TensorDataset(x, y), batch_size=128),
        "generator": ((x[i:j], y[i:j].numpy()) for i, j in pairwise(uneven)),
        "list of two": [(x[:500], y[:500]), (x[500:], y[500:])],
        "parts of memory maps": ((m[i : i + 99], y[i : i + 99]) for m in maps[:1]
                                 for i in range(0, 2000, 99)),
    }  # fmt: skip
    expected = evaluate(estimator, (x, y), batch_size=333)
    for name, data in forms.items():
        assert evaluate(estimator, data, batch_size=333) == expected, name


def test_a_loader_may_use_its_memory_again():
    x, y = related(100, 3, 2)
    estimator = mb.CLUB(conditional=known_normal_of_two)

    def batches():
        a, b = torch.empty(10, 3), torch.empty(10, 2)
        for i in range(0, 100, 10):
            a.copy_(x[i : i + 10])
            b.copy_(y[i : i + 10])
            yield a, b

    assert evaluate(estimator, batches()) == evaluate(estimator, (x, y))


def known_normal_of_two(x):
    return Independent(Normal(x[:, :2], 1.0), 1)


def test_other_floats_are_read_in_the_dtype_of_the_estimator():
    x, y = related(500, 3, 2)
    estimator = mb.CLUB(conditional=stirred(mb.Gaussian(3, 2), x, y))
    expected = estimator(x, y).item()
    result = evaluate(estimator, (x.double().numpy(), y.double()))
    assert result.nats == pytest.approx(expected, rel=1e-6)
    half = evaluate(estimator, (x.half().numpy(), y.half()))
    assert half.nats == pytest.approx(expected, rel=1e-2)


@pytest.mark.parametrize("kind", [mb.Gaussian, mb.FullGaussian, mb.LowRankGaussian])
def test_large_offsets_cost_no_digits(kind):
    x, y = related(2000, 3, 2)
    x, y = (x * 8).round() / 8, (y * 8).round() / 8  # still the same numbers when shifted
    q = stirred(kind(3, 2, 8), x, y)
    near = evaluate(mb.CLUB(conditional=q), (x, y))
    q.y_standard.mean = q.y_standard.mean + 2.0**20
    far = evaluate(mb.CLUB(conditional=q), (x, y + 2.0**20), batch_size=300)
    assert far.nats == pytest.approx(mb.club(q(x), y + 2.0**20).item(), rel=1e-6)
    assert far.nats == pytest.approx(near.nats, rel=0.02)  # the means are rounded to 1/16
    assert far.error == pytest.approx(near.error, rel=0.05)


def test_sorted_rows_far_from_the_first_ones_cost_no_digits():
    x, y = related(5000, 3, 2)
    order = y[:, 0].argsort()
    x, y = x[order], y[order]
    y[:, 0] += torch.linspace(0, 1000, 5000)
    estimator = mb.CLUB(conditional=lambda x: Independent(Normal(x[:, :2], 1.0), 1))
    exact = estimator(x.double(), y.double()).item()
    assert evaluate(estimator, (x, y), batch_size=100).nats == pytest.approx(exact, rel=1e-6)


def test_an_impossible_pair_makes_it_infinite_and_0_log_0_does_not():
    table = torch.tensor([[0.5, 0.5, 0.0], [0.25, 0.75, 0.0], [0.0, 0.5, 0.5]])
    estimator = mb.CLUB(
        conditional=lambda x: torch.distributions.Categorical(probs=table[x]), negatives="all"
    )
    x, y = torch.tensor([0, 1, 0, 1] * 50), torch.tensor([0, 1, 1, 1] * 50)
    result = evaluate(estimator, (x, y), batch_size=17)
    assert result.nats == pytest.approx(estimator(x, y).item(), rel=1e-6)
    assert 0 < result.error < 1
    x[100], y[100] = 2, 1
    with pytest.warns(RuntimeWarning, match=r"CLUB is \+inf: .* smooth the conditional"):
        result = evaluate(estimator, (x, y), batch_size=17)
    assert (result.nats, result.error) == (math.inf, math.inf)


def test_leaving_out_the_one_group_with_an_impossible_value_is_no_nan():
    # only row 5 gives class 2 no chance, and only row 70, of the same group, has class 3
    table = torch.tensor([[0.4, 0.4, 0.1, 0.1], [0.5, 0.4, 0.0, 0.1]]).double()
    estimator = mb.CLUB(conditional=lambda x: torch.distributions.Categorical(probs=table[x]))
    x, y = torch.zeros(200, dtype=torch.int64), torch.arange(200) % 2
    x[5], y[69] = 1, 3
    result = evaluate(estimator, (x, y))
    assert result.nats == pytest.approx(estimator(x, y).item(), rel=1e-8)
    assert 0 < result.error < 1


def test_gamma_at_zero_is_no_nan():
    estimator = mb.CLUB(conditional=lambda x: Gamma(x, 1.0, validate_args=False))
    x, y = torch.tensor([1.0, 1.0, 1.0, 1.0]), torch.tensor([0.0, 1.0, 2.0, 3.0])
    assert evaluate(estimator, (x, y)).nats == pytest.approx(0.0, abs=1e-6)


def test_the_sampled_club_is_evaluated_as_its_limit():
    x, y = related(500, 3, 2)
    q = stirred(mb.Gaussian(3, 2), x, y)
    for draw, negatives in (("derangement", "others"), ("uniform", "all"), ("permutation", "all")):
        result = evaluate(mb.CLUBSample(conditional=q, draw=draw), (x, y))
        whole = mb.CLUB(conditional=q, negatives=negatives)(x, y).item()
        assert result.nats == pytest.approx(whole, rel=1e-6)
        assert "scatters around" in result.note


# --- the standard error, of so many data sets that the check of shapes would take half the time ---


def spread(estimator, n, sets, sample, **options):
    results = [evaluate(estimator, sample(n, seed), **options) for seed in range(sets)]
    values = torch.tensor([r.nats for r in results])
    return values.std().item(), torch.tensor([r.error for r in results]).mean().item()


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("n", [40, 100, 1000])
def test_the_error_of_club_is_the_spread_between_data_sets(n):
    def sample(n, seed):
        x, y = related(n, 2, 2, torch.float64, seed=seed)
        return x, y + 3  # a mean that q misses: the scatter of single terms would be wrong

    estimator = mb.CLUB(conditional=lambda x: Independent(Normal(x, 1.0), 1))
    actual, stated = spread(estimator, n, 300, sample)
    assert stated == pytest.approx(actual, rel=0.2)
    p = estimator.conditional(sample(n, 0)[0])
    terms = densities.log_prob(p, sample(n, 0)[1]) - densities.log_prob_mean(p, sample(n, 0)[1])
    assert abs(terms.std().item() / n**0.5 - actual) > 0.3 * actual


@pytest.mark.usefixtures("unchecked")
def test_the_error_with_drawn_negatives_is_the_spread_between_data_sets():
    estimator = mb.CLUB(
        conditional=lambda x: Independent(
            torch.distributions.StudentT(torch.tensor(5.0, dtype=x.dtype), x, 1.0), 1
        )
    )
    actual, stated = spread(
        estimator, 500, 200, lambda n, seed: related(n, 2, 2, torch.float64, seed), batch_size=200
    )
    assert stated == pytest.approx(actual, rel=0.3)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("kind", ["vub", "ba", "doe", "labels", "infonce"])
def test_the_error_of_the_others_is_the_spread_between_data_sets(kind):
    def sample(n, seed):
        x, y = related(n, 2, 2, torch.float64, seed=seed)
        return (x, y.argmax(1)) if kind == "labels" else (x, y)

    marginal = mb.FullGaussian(0, 2).double()
    estimator = {
        "vub": lambda: mb.VUB(conditional=known_normal),
        "ba": lambda: mb.BA(conditional=known_normal),
        "doe": lambda: mb.DoE(conditional=known_normal, marginal=marginal),
        "labels": lambda: mb.BA(
            conditional=lambda x: torch.distributions.Categorical(logits=x, validate_args=False)
        ),
        "infonce": lambda: mb.InfoNCE(critic=lambda x, y: (x * y).sum(-1)),
    }[kind]()
    actual, stated = spread(estimator, 120, 120, sample, batch_size_pairs=10)
    assert stated == pytest.approx(actual, rel=0.25)


def test_too_few_rows_for_an_error():
    x, y = related(2, 2, 2)
    estimator = mb.CLUB(conditional=known_normal)
    result = evaluate(estimator, (x, y))
    assert result.nats == pytest.approx(estimator(x, y).item(), rel=1e-5)
    assert result.error == math.inf
    assert evaluate(mb.NWJ(2, 2), related(100, 2, 2)).error == math.inf  # one batch


# --- the other estimators ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "conditional",
    [
        lambda: mb.GaussianMixture(3, 2, 8, components=3),
        lambda: mb.StudentT(3, 2, 8),
        lambda: mb.Flow(3, 2, 8, transforms=1),
    ],
    ids=["mixture", "student", "flow"],
)
@pytest.mark.parametrize("negatives", ["others", "all"])
def test_other_conditionals_take_drawn_negatives(conditional, negatives):
    x, y = related(1000, 3, 2)
    estimator = mb.CLUB(conditional=stirred(conditional(), x, y), negatives=negatives)
    whole = estimator(x, y).item()
    g = torch.Generator().manual_seed(0)
    result = evaluate(estimator, (x, y), batch_size=250, k=8, seed=g)
    assert not result.exact
    assert "8 drawn negatives" in result.note
    assert abs(result.nats - whole) < 4 * result.error
    assert 0 < result.error < 0.1
    again = evaluate(estimator, (x, y), batch_size=250, k=8, seed=g.manual_seed(0))
    assert again == result


def test_drawn_negatives_are_never_the_own_and_come_from_all_rows():
    class Told(Normal):
        """A density that tells which y it was asked about."""

        def log_prob(self, value):
            asked.append(value.clone())
            return super().log_prob(value)

    asked = []
    n = 400
    x = torch.arange(n, dtype=torch.float64)
    result = evaluate(mb.CLUB(conditional=lambda x: Told(x, 1.0)), (x, x), batch_size=20, k=50)
    assert math.isfinite(result.nats)
    rows = []
    for values in asked:  # the first of each batch is the own y
        values = values.flatten()
        if (values.diff() == 1).all():
            own = values
        else:
            assert (values != own).all()
            rows.append((own, values))
    late = torch.cat([values for own, values in rows if own[0] == n - 20])
    counts = torch.bincount(late.long(), minlength=n).double()
    assert len(late) == 20 * 50
    assert (counts[: n // 2].sum() / len(late)).item() == pytest.approx(0.5, abs=0.07)


def test_the_sample_of_the_past_has_constant_size_and_is_uniform(monkeypatch):
    monkeypatch.setattr("mibounds.estimators._accumulators.KEPT", 1024)
    from mibounds.estimators._accumulators import SampledCLUB

    estimator = mb.CLUB(conditional=lambda x: torch.distributions.StudentT(5.0, x))
    x = torch.arange(20000.0)
    total = SampledCLUB(estimator, x[:5], 1, torch.Generator().manual_seed(0))
    for i in range(0, 20000, 500):
        total.add(x[i : i + 500], x[i : i + 500], i)
    assert total.past.shape == (1024,)
    assert total.past.mean().item() == pytest.approx(10000, abs=4 * 5774 / 32)
    assert (total.past_group == total.past.long() % 64).all()


def test_uniform_conditionals_with_impossible_pairs_are_infinite():
    x = torch.rand(300, 2)
    estimator = mb.CLUB(
        conditional=lambda x: Independent(Uniform(x - 0.1, x + 0.1, validate_args=False), 1)
    )
    with pytest.warns(RuntimeWarning, match=r"CLUB is \+inf"):
        assert estimator(x, x) == math.inf
    with pytest.warns(RuntimeWarning, match=r"CLUB is \+inf"):
        result = evaluate(estimator, (x, x), batch_size=50)
    assert (result.nats, result.error, result.exact) == (math.inf, math.inf, False)


@pytest.mark.parametrize(
    "make",
    [
        lambda q: mb.VUB(conditional=q),
        lambda q: mb.VUB(conditional=q, form="kl"),
        lambda q: mb.VUB(conditional=q, marginal="learned"),
        lambda q: mb.VUB(
            conditional=q,
            marginal=Independent(Normal(torch.zeros(2, dtype=torch.float64), 2.0), 1),
        ),
        lambda q: mb.BA(conditional=q),
        lambda q: mb.BA(conditional=q, entropy=2.0),
        lambda q: mb.DoE(conditional=q),
    ],
    ids=["vub", "kl", "learned", "fixed", "ba", "ba known", "doe"],
)
def test_means_of_terms_are_exact(make):
    x, y = related(1000, 3, 2, torch.float64)
    estimator = make(stirred(mb.Gaussian(3, 2), x, y)).double()
    for size in (1000, 130):
        result = evaluate(estimator, (x, y), batch_size=size)
        assert result.nats == pytest.approx(estimator(x, y).item(), rel=1e-10)
        assert result.exact
        assert result.samples == 1000


def test_the_entropy_of_labels_and_of_degenerate_columns():
    x, y = related(500, 3, 4, torch.float64)
    labels = y.argmax(1) + 1
    q = mb.Categorical(3, 6).double()
    estimator = mb.BA(conditional=q)
    result = evaluate(estimator, (x, labels), batch_size=70)
    assert result.nats == pytest.approx(estimator(x, labels).item(), rel=1e-6)
    assert "frequencies" in result.note
    y = torch.stack([y[:, 0] + 1e6, torch.full((500,), 7.0), y[:, 1]], 1)
    estimator = mb.BA(conditional=stirred(mb.Gaussian(3, 3), x, y))
    result = evaluate(estimator, (x, y), batch_size=70)
    assert result.nats == pytest.approx(estimator(x, y).item(), rel=1e-8)


def test_a_marginal_that_excludes_a_row_makes_vub_infinite():
    (x,) = normals(50, 1)
    estimator = mb.VUB(
        conditional=known_normal, marginal=Independent(Uniform(-torch.ones(1), torch.ones(1)), 1)
    )
    with pytest.raises(ValueError, match="support") as caught:
        evaluate(estimator, (x, x), batch_size=10)
    assert any("among rows 0 ... 9 of the data" in note for note in caught.value.__notes__)
    table = torch.tensor([1.0, 0.0])
    marginal = torch.distributions.Categorical(probs=table)
    q = lambda x: torch.distributions.Categorical(logits=torch.zeros(len(x), 2))  # noqa: E731
    labels = torch.tensor([0, 1] * 25)
    with pytest.warns(RuntimeWarning, match=r"VUB is \+inf"):
        result = evaluate(mb.VUB(conditional=q, marginal=marginal), (x, labels))
    assert (result.nats, result.error) == (math.inf, math.inf)


def test_bounds_over_pairs_are_averaged_over_batches():
    x, y = related(1000, 3, 2)
    for name in ("l1out", "dv", "mine", "nwj", "infonce", "tuba", "js", "smile", "flo"):
        estimator = mb.ESTIMATORS[name](3, 2, 8)
        with torch.no_grad():
            for p in estimator.parameters():
                p.add_(0.3 * torch.randn_like(p))
        result = evaluate(estimator, (x, y), batch_size_pairs=300)
        parts = [estimator(a, b).item() for a, b in zip(x.split(300), y.split(300), strict=True)]
        mean = (300 * sum(parts[:3]) + 100 * parts[3]) / 1000
        assert result.nats == pytest.approx(mean, rel=1e-5)
        assert not result.exact
        assert result.error > 0
        assert "4 batches of 300" in result.note
        assert ("none above log 300 = 5.70 nats" in result.note) == (name == "infonce")


@pytest.mark.parametrize(("name", "capped"), [("nwj", True), ("smile", False)])
def test_the_ceiling_is_named_where_there_is_one(name, capped):
    estimator = mb.ESTIMATORS[name](3, 2, 8, negatives="all")
    note = evaluate(estimator, related(600, 3, 2), batch_size_pairs=300).note
    assert ("none above log 300" in note) == capped


def test_a_few_rows_left_over_are_left_out():
    x, y = related(102, 3, 2)
    result = evaluate(mb.TUBA(3, 2, alpha=0.5), (x, y), batch_size_pairs=50)
    assert result.samples == 100


class LogLikelihood(mb.ConditionalEstimator):
    """A linear estimator as a user writes one: its class says all that `evaluate` needs."""

    name = "log_likelihood"
    side = "neither"
    condition = "it lacks the entropy"
    cost = "N D"
    reference = "none"
    linear = True

    def terms(self, x, y):
        return densities.log_prob(*self.distribution(x, y))


def test_a_linear_estimator_needs_its_terms_and_nothing_else():
    x, y = related(1001, 3, 2, torch.float64)
    estimator = LogLikelihood(3, 2).double().eval()
    assert estimator(x, y) == estimator.loglikeli(x, y)
    terms = estimator.terms(x, y)
    for size in (1001, 100, 10):  # a last batch of a single row too
        result = evaluate(estimator, (x, y), batch_size=size)
        assert result.exact
        assert result.samples == 1001
        assert result.nats == pytest.approx(estimator(x, y).item(), rel=1e-12)
        assert result.error == pytest.approx(terms.std(correction=1).item() / 1001**0.5, rel=1e-9)


@pytest.mark.parametrize("estimator", [mb.CLUB(3, 2), mb.NWJ(3, 2), mb.BA(3, 2)])
def test_an_estimator_without_terms_says_so(estimator):
    with pytest.raises(NotImplementedError, match=r"a mean of terms, .* define terms\(x, y\) if"):
        estimator.terms(*related(10, 3, 2))


@pytest.mark.parametrize("kind", [mb.CLUB, mb.VUB, LogLikelihood])
def test_a_subclass_with_a_value_of_its_own_is_averaged(kind):
    class Twice(kind):
        linear = True  # of which its terms know nothing

        def forward(self, x, y, *, group=None):
            return 2 * super().forward(x, y, group=group)

    x, y = related(90, 3, 2)
    estimator = Twice(3, 2)
    result = evaluate(estimator, (x, y), batch_size_pairs=30)
    parts = [estimator(a, b).item() for a, b in zip(x.split(30), y.split(30), strict=True)]
    assert result.nats == pytest.approx(sum(parts) / 3, rel=1e-5)
    assert not result.exact


# --- manners -------------------------------------------------------------------------------------


def test_modes_are_put_back_and_nothing_is_learnt():
    x, y = related(100, 3, 2)
    estimator = mb.CLUB(3, 2)
    estimator.conditional.net.eval()
    seen = []
    estimator.conditional.register_forward_hook(
        lambda module, *_: seen.append((module.training, torch.is_grad_enabled()))
    )
    before = {k: v.clone() for k, v in estimator.state_dict().items()}
    evaluate(estimator, (x, y))
    x[3, 1] = math.nan
    with pytest.raises(ValueError, match="finite"):
        evaluate(estimator, (x, y))
    assert set(seen) == {(False, False)}
    assert estimator.training
    assert estimator.conditional.training
    assert not estimator.conditional.net.training
    assert all((v == before[k]).all() for k, v in estimator.state_dict().items())


def test_values_that_are_no_numbers_are_refused_by_their_row():
    x, y = related(100, 3, 2)
    x[57, 1] = math.nan
    y[83] = -math.inf
    estimator = mb.CLUB(3, 2)
    with pytest.raises(ValueError, match=r"finite x but got NaN .* first in row 57, .* drop or"):
        evaluate(estimator, (x, y), batch_size=10)
    with pytest.raises(ValueError, match=r"finite y .* first in row 83"):
        evaluate(estimator, ((a, b) for a, b in zip(x.nan_to_num().split(9), y.split(9))))  # noqa: B905
    huge = y.double().nan_to_num(neginf=1e300)
    with pytest.raises(ValueError, match=r"finite y .* row 83, read as torch.float32"):
        evaluate(estimator, (x.nan_to_num(), huge))


def test_parameters_that_are_no_numbers_are_refused():
    x, y = related(100, 3, 2)
    for estimator in (mb.CLUB(3, 2), mb.VUB(3, 2), mb.NWJ(3, 2)):
        with torch.no_grad():
            for p in estimator.parameters():
                p.fill_(math.nan)
        with pytest.raises(ValueError, match=r"Expected finite log-densities or scores .* row 0"):
            evaluate(estimator, (x, y))


def test_data_that_are_no_pairs_of_rows_are_refused(unchecked):
    x, y = related(20, 3, 2)
    estimator = mb.CLUB(3, 2)
    with pytest.raises(ValueError, match=r"same number of samples but got 20 and 19"):
        evaluate(estimator, (x, y[1:]))
    with pytest.raises(ValueError, match=r"20 and 19 in the batch from row 20"):
        evaluate(estimator, iter([(x, y), (x, y[1:])]))
    for data in ((x[:0], y[:0]), []):
        with pytest.raises(ValueError, match=r"at least 2 samples \(x_i, y_i\) but got 0"):
            evaluate(estimator, data)
    for kind in (mb.CLUB, mb.VUB, mb.BA, mb.NWJ):
        with pytest.raises(ValueError, match=r"at least 2 samples .* but got 1"):
            evaluate(kind(3, 2), (x[:1], y[:1]))
    with pytest.raises(ValueError, match=r"pairs \(x, y\) but got Tensor"):
        evaluate(estimator, x)
    with pytest.raises(ValueError, match=r"pairs \(x, y\) but got tuple of length 3"):
        evaluate(estimator, [(x, y, y)])
    with pytest.raises(ValueError, match=r"pairs \(x, y\) but got dict"):
        evaluate(estimator, [{"x": x, "y": y}])
    with pytest.raises(ValueError, match=r"pair \(x, y\) of arrays, .* but got int"):
        evaluate(estimator, 3)
    with pytest.raises(ValueError, match=r"x to have one sample per row but got a single number"):
        evaluate(estimator, [(x[0, 0], y[0, 0])])
    with pytest.raises(ValueError, match=r"x to hold numbers but got <U"):
        evaluate(estimator, [(["a", "b"], y[:2])])
    with pytest.raises(ValueError, match=r"rows of y to have shape \(2,\) but got \(1,\) from row"):
        evaluate(estimator, [(x, y), (x, y[:, :1])])
    with pytest.raises(ValueError, match=r"Expected x of shape \(n, 3\) but got \(20, 2\)"):
        evaluate(estimator, (y, y))
    with pytest.raises(ValueError, match=r"more samples than the 2 columns of y"):
        evaluate(mb.BA(3, 2), (x[:2], y[:2]))


@pytest.mark.parametrize("option", ["batch_size", "batch_size_pairs", "k"])
def test_sizes_are_checked(option):
    with pytest.raises(ValueError, match=rf"Expected {option} to be an integer >= \d but got 0"):
        evaluate(mb.CLUB(3, 2), related(20, 3, 2), **{option: 0})


def test_a_divergence_without_a_closed_form_says_so():
    estimator = mb.VUB(conditional=mb.StudentT(3, 2), form="kl")
    with pytest.raises(ValueError, match="divergence has a closed form"):
        evaluate(estimator, related(20, 3, 2))


def test_the_result_reads_well():
    result = Evaluation(math.log(2), 0.01234, 500, exact=True, note="CLUB over all pairs")
    assert result.bits == pytest.approx(1.0)
    assert str(result) == "0.6931 ± 0.012 nats (500 samples; CLUB over all pairs)"
    with pytest.raises(AttributeError):
        result.nats = 0.0


def test_the_progress_bar_is_drawn_when_asked_for(capsys, monkeypatch):
    pytest.importorskip("rich")
    data = related(100, 3, 2)
    monkeypatch.setenv("FORCE_COLOR", "1")
    quiet = evaluate(mb.CLUB(3, 2), data, batch_size=10)
    assert capsys.readouterr().err == ""
    torch.manual_seed(0)
    estimator = mb.CLUB(3, 2)
    loud = evaluate(estimator, data, batch_size=10, progress=True)
    assert "rows" in capsys.readouterr().err
    assert loud == evaluate(estimator, data, batch_size=10)
    assert quiet.samples == loud.samples


def test_the_progress_bar_names_what_it_needs(monkeypatch):
    monkeypatch.setitem(sys.modules, "rich.console", None)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    data = related(100, 3, 2)
    with pytest.raises(ImportError, match=r"pip install 'mibounds\[plot\]'"):
        evaluate(mb.CLUB(3, 2), data, progress=True)
    assert evaluate(mb.CLUB(3, 2), data).samples == 100  # a terminal alone asks for nothing


def test_private_changes_of_a_memory_map_survive(tmp_path):
    x, y = related(100, 3, 2)
    memory_maps(x, y, tmp_path)
    private = np.load(tmp_path / "x.npy", mmap_mode="c")
    private[:] = 1.0
    evaluate(mb.CLUB(3, 2), (private, y))
    assert (private == 1.0).all()
    shared = np.load(tmp_path / "x.npy", mmap_mode="r+")
    shared[:] = 2.0
    evaluate(mb.CLUB(3, 2), (shared, y))
    assert (shared == 2.0).all()


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_memory_stays_constant_over_a_large_memory_map(tmp_path):
    code = f"""
import re
import numpy as np, torch
import mibounds as mb
from mibounds.estimators.evaluation import evaluate
torch.set_num_threads(1)

def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]) / 1024

def data(rows):
    maps = []
    for name in "xy":
        path = f"{tmp_path}/{{name}}{{rows}}.npy"
        array = np.lib.format.open_memmap(path, "w+", np.float32, (rows, 20))
        for i in range(0, rows, 50000):
            array[i : i + 50000] = np.random.default_rng(i).standard_normal((50000, 20))
            array._mmap.madvise(4)
        maps.append(np.load(path, mmap_mode="r"))
    return maps

estimator = mb.CLUB(20, 20)
evaluate(estimator, data(100_000))
before = peak()
large = data(800_000)
evaluate(estimator, large)
print(before, peak() - before)
"""
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    before, grown = map(float, result.stdout.split())
    assert before < 600
    assert grown < 30  # the two files have 122 MB


def test_nothing_but_infinity_is_warned_of():
    x, y = related(100, 3, 2)
    x.numpy().flags.writeable = False
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        evaluate(mb.CLUB(3, 2), (x.numpy(), y))
