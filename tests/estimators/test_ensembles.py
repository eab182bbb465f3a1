"""Fitting many at once equals fitting each: the same parameters, buffers and losses, sooner."""

import copy
import importlib.util
import json
import math
import time

import pytest
import torch
from torch import nn
from torch.distributions import Beta, Distribution, Independent

import mibounds as mb
from mibounds.estimators import ensembles, stacked_training
from mibounds.estimators.cuda_graphs import restored
from mibounds.estimators.ensembles import fit_many

M, X, Y, N = 3, 4, 3, 60
CONDITIONALS = {
    "gaussian": mb.Gaussian,
    "unit": mb.UnitGaussian,
    "full": mb.FullGaussian,
    "low_rank": mb.LowRankGaussian,
    "mixture": mb.GaussianMixture,
    "student": mb.StudentT,
    "categorical": mb.Categorical,
    "bernoulli": mb.Bernoulli,
    "flow": mb.Flow,
    "copula": mb.Copula,
    "as_published": mb.AsPublishedGaussian,
}
NEEDS_ZUKO = pytest.mark.skipif(
    importlib.util.find_spec("zuko") is None, reason="needs the extra flows"
)


def samples(*lead, kind="real"):
    x = torch.randn(*lead, N, X, dtype=torch.float64)
    if kind == "labels":
        return x, torch.randint(Y, (*lead, N))
    if kind == "bits":
        return x, torch.randint(2, (*lead, N, Y))
    return x, 3 * x[..., :Y] + torch.randn(*lead, N, Y, dtype=torch.float64)


def make(factory, m=M):
    return [factory().double() for _ in range(m)]


def seeds(m=M):
    return [torch.Generator().manual_seed(10 + j) for j in range(m)]


def assert_same_as_one_by_one(estimators, x, y, *, own_x=False, own_y=False, **kwargs):
    kwargs = {"steps": 12, "batch_size": 16, "lr": 1e-2, **kwargs}
    alone = copy.deepcopy(estimators)
    history = fit_many(estimators, x, y, seeds=seeds(len(alone)), **kwargs)
    kwargs.pop("at_once", None)
    for j, (estimator, g) in enumerate(zip(alone, seeds(len(alone)), strict=True)):
        before = copy.deepcopy(estimator.state_dict())
        data = x[j] if own_x else x, y[j] if own_y else y
        losses = mb.fit(estimator, *data, seed=g, **kwargs)
        torch.testing.assert_close(history[j].tolist(), losses, rtol=0, atol=1e-8)
        state, expected = estimators[j].state_dict(), estimator.state_dict()
        torch.testing.assert_close(state, expected, rtol=0, atol=1e-8)
        moved = [k for k in state if not torch.equal(state[k], before[k])]
        assert any("net" in k or "critic" in k for k in moved)


@pytest.mark.parametrize("name", mb.ESTIMATORS)
def test_every_estimator_is_fitted_as_if_alone(name):
    assert_same_as_one_by_one(make(lambda: mb.ESTIMATORS[name](X, Y, 8)), *samples())


@pytest.mark.parametrize(
    "name", [pytest.param(k, marks=NEEDS_ZUKO) if k == "flow" else k for k in CONDITIONALS]
)
def test_every_conditional_is_fitted_as_if_alone(name):
    kind = {"categorical": "labels", "bernoulli": "bits"}.get(name, "real")
    estimators = make(lambda: mb.CLUB(conditional=CONDITIONALS[name](X, Y, hidden=8)))
    assert_same_as_one_by_one(estimators, *samples(kind=kind))


@pytest.mark.parametrize("critic", [mb.SeparableCritic, mb.BilinearCritic])
def test_every_critic_is_fitted_as_if_alone(critic):
    assert_same_as_one_by_one(make(lambda: mb.MINE(critic=critic(X, Y))), *samples())


@pytest.mark.parametrize("kind", ["real", "labels", "bits"])
@pytest.mark.parametrize("own_x", [False, True])
@pytest.mark.parametrize("own_y", [False, True])
def test_each_may_have_samples_of_its_own(kind, own_x, own_y):
    conditional = {"real": mb.Gaussian, "labels": mb.Categorical, "bits": mb.Bernoulli}[kind]
    x = samples(*[M] * own_x, kind=kind)[0]
    y = samples(*[M] * own_y, kind=kind)[1]
    estimators = make(lambda: mb.DoE(conditional=conditional(X, Y, 8)))
    assert_same_as_one_by_one(estimators, x, y, own_x=own_x, own_y=own_y)


def test_labels_are_distinguished_from_columns_by_their_shape():
    def own(estimator, x, y, m):
        return ensembles._check_data(estimator, torch.zeros(x), torch.zeros(y).long(), m)

    labels, bits = (
        mb.CLUB(conditional=mb.Categorical(X, 5)),
        mb.CLUB(conditional=mb.Bernoulli(X, 7)),
    )
    assert own(labels, (7, X), (7,), 3) == (7, False, False)
    assert own(labels, (7, X), (7, 1), 3) == (7, False, False)
    assert own(labels, (7, X), (3, 7), 3) == (7, False, True)
    assert own(labels, (7, X), (7, 7), 7) == (7, False, True)
    assert own(labels, (3, 7, X), (7,), 3) == (7, True, False)
    assert own(bits, (7, X), (7, 7), 7) == (7, False, False)
    assert own(bits, (3, 7, X), (3, 7, 7), 3) == (7, True, True)


def test_blocks_groups_and_larger_batches_than_samples_change_nothing(monkeypatch):
    monkeypatch.setattr(stacked_training, "BLOCK", 10)
    x, y = samples(5)
    for kwargs in ({}, {"at_once": 1}, {"at_once": 3}, {"batch_size": 500}):
        estimators = make(lambda: mb.CLUB(X, Y, 8), m=5)
        assert_same_as_one_by_one(estimators, x, y, own_x=True, own_y=True, steps=25, **kwargs)


@pytest.mark.parametrize("critic", [lambda: mb.ConcatCritic(X, Y), lambda: _Product()])
def test_batches_so_large_that_pairs_would_be_scored_in_blocks(critic):
    x = torch.randn(400, X, dtype=torch.float64)
    y = x[:, :Y] + torch.randn(400, Y, dtype=torch.float64)
    estimators = make(lambda: mb.DV(critic=critic()), m=2)
    assert_same_as_one_by_one(estimators, x, y, steps=2, batch_size=400, at_once=2)


class _Product(nn.Module):
    """A critic that is no `Critic`."""

    def __init__(self):
        super().__init__()
        self.net = nn.Linear(X, Y)

    def forward(self, x, y):
        return (self.net(x) * y).sum(1) / 10


@pytest.mark.parametrize("source", ["global", "one"])
def test_a_common_source_is_used_as_one_by_one(source):
    x, y = samples()
    one, many = (make(lambda: mb.CLUB(X, Y, 8)) for _ in range(2))
    for a, b in zip(one, many, strict=True):
        a.load_state_dict(b.state_dict())
    g = None if source == "global" else torch.Generator().manual_seed(1)
    torch.manual_seed(2)
    for estimator in one:
        mb.fit(estimator, x, y, steps=15, batch_size=16, seed=g)
    g = None if source == "global" else torch.Generator().manual_seed(1)
    torch.manual_seed(2)
    fit_many(many, x, y, steps=15, batch_size=16, seeds=g and [g] * M, at_once=2)
    for a, b in zip(one, many, strict=True):
        torch.testing.assert_close(a.state_dict(), b.state_dict(), rtol=0, atol=1e-8)


def test_frozen_parameters_stay_and_own_modules_are_welcome():
    class OwnCritic(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Sequential(nn.Linear(X + Y, 8), nn.BatchNorm1d(8), nn.Linear(8, 1))
            self.unused = nn.Parameter(torch.ones(2))

        def forward(self, x, y):
            return self.net(torch.cat([x, y], 1)).squeeze(1)

    estimators = make(lambda: mb.DV(critic=OwnCritic()))
    for estimator in estimators:
        estimator.critic.net[0].requires_grad_(False)
    frozen = [copy.deepcopy(e.critic.net[0]) for e in estimators]
    assert_same_as_one_by_one(estimators, *samples())
    for estimator, layer in zip(estimators, frozen, strict=True):
        assert torch.equal(estimator.critic.net[0].weight, layer.weight)
        assert torch.equal(estimator.critic.unused, torch.ones(2, dtype=torch.float64))
        assert estimator.critic.net[1].num_batches_tracked > 0


def test_distributions_that_validate_are_welcome_and_validate_again_afterwards():
    class OwnConditional(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Linear(X, 2 * Y)

        def forward(self, x):
            a, b = self.net(x).exp().chunk(2, 1)
            return Independent(Beta(a, b), 1)

    before = Distribution._validate_args
    x, y = samples()
    assert_same_as_one_by_one(make(lambda: mb.CLUB(conditional=OwnConditional())), x, y.sigmoid())
    assert Distribution._validate_args == before


def test_modes_are_restored_and_buffers_replaced():
    x, y = samples()
    estimators = make(lambda: mb.CLUB(X, Y, 8))
    estimators[1].eval()
    mean = estimators[0].conditional.x_standard.mean
    weight = next(estimators[0].parameters())
    history = fit_many(estimators, x, y, steps=11)
    assert history.shape == (M, 2)
    assert [e.training for e in estimators] == [True, False, True]
    assert not mean.any()
    assert estimators[0].conditional.x_standard.mean.any()
    assert next(estimators[0].parameters()) is weight
    assert fit_many(estimators, x, y, steps=0).shape == (M, 0)


def test_nothing_to_learn():
    x, y = samples()
    known = [mb.CLUB(conditional=lambda x, s=s: mb.Gaussian(X, Y)(x * s)) for s in (1, 2)]
    assert fit_many(known, x, y).shape == (2, 0)


def test_facts_about_the_value_may_differ():
    x, y = samples()
    estimators = [mb.BA(X, Y, entropy=h).double() for h in (1.0, 2.0, None)]
    assert_same_as_one_by_one(estimators, x, y, steps=3)
    assert [e.entropy for e in estimators] == [1.0, 2.0, None]


@pytest.mark.parametrize(
    ("pair", "message"),
    [
        ((mb.CLUB(X, Y), mb.NWJ(X, Y)), r"got type CLUB in estimator 0 and NWJ in estimator 1"),
        (
            (mb.CLUB(X, Y), mb.CLUB(X, Y, 8)),
            r"got conditional.net.layers.0.out_features 64 .* and 8",
        ),
        (
            (mb.MINE(X, Y), mb.MINE(X, Y, rate=0.5)),
            r"got rate 0.01 .* 0.5 .*; fit those separately",
        ),
        (
            (mb.CLUB(X, Y), mb.CLUB(X, Y).double()),
            r"got .*torch.float32.* in estimator 0 .*torch.float64",
        ),
        ((mb.CLUB(X, Y), mb.CLUB(X, Y, (64, 64))), r"got .*layers.2.out_features 6 "),
        (
            (mb.CLUB(X, Y), mb.CLUB(X, Y).requires_grad_(False)),
            r"got .* requires_grad True .* False",
        ),
        ((mb.NWJ(X, Y), mb.NWJ(X, Y, negatives="all")), r"got negatives 'others' .* and 'all'"),
    ],
)
def test_estimators_that_are_not_alike_are_refused(pair, message):
    x, y = (v.float() for v in samples())
    with pytest.raises(ValueError, match=r"Expected estimators of one architecture but " + message):
        fit_many(pair, x, y)


def test_settings_are_compared_by_value():
    same = ensembles._same
    partial = ensembles.functools.partial
    a, b = torch.ones(2), torch.ones(2)
    assert same([a, (1, {"k": a})], [b, (1, {"k": b})])
    assert same(partial(max, 1, key=a), partial(max, 1, key=b))
    assert not same(partial(max, 1), partial(max, 2))
    assert not same({"k": a}, {"k": a + 1})
    assert not same([1], [1, 2])
    assert not same(1, 1.0)
    array = pytest.importorskip("numpy").ones
    assert not same(array(2), array(2))  # ambiguous: refused to be safe


def test_parameters_in_common_are_refused():
    x, y = samples()
    critic = mb.SeparableCritic(X, Y).double()
    for pair in (
        [mb.NWJ(critic=critic), mb.NWJ(critic=critic)],
        make(lambda: mb.CLUB(X, Y), 1) * 2,
    ):
        with pytest.raises(
            ValueError, match=r"Expected independent .* in estimators 0 and 1; make"
        ):
            fit_many(pair, x, y)


def test_wrong_arguments_are_refused(unchecked):
    x, y = samples()
    many = make(lambda: mb.CLUB(X, Y, 8))
    before = copy.deepcopy([e.state_dict() for e in many])
    with pytest.raises(ValueError, match="Expected at least one estimator but got none"):
        fit_many([], x, y)
    with pytest.raises(ValueError, match=r"a seed for each of 3 estimators but got 2; leave"):
        fit_many(many, x, y, seeds=seeds(2))
    with pytest.raises(ValueError, match=r"Expected steps to be an integer >= 0 but got -1"):
        fit_many(many, x, y, steps=-1)
    with pytest.raises(ValueError, match=r"Expected batch_size to be .* but got 0"):
        fit_many(many, x, y, batch_size=0)
    with pytest.raises(ValueError, match=r"Expected at_once to be .* but got 0"):
        fit_many(many, x, y, at_once=0)
    for data in ((x.expand(2, N, X), y), (x, y.expand(4, N, Y))):
        with pytest.raises(
            ValueError, match=r"Expected . of shape .* of m = 3 estimators, but got"
        ):
            fit_many(many, *data)
    with pytest.raises(ValueError, match=r"x and y to hold the same number of samples but got 60"):
        fit_many(many, x, y[1:])
    with pytest.raises(ValueError, match=r"Expected x to be a torch.Tensor but got ndarray"):
        fit_many(many, x.numpy(), y)
    with pytest.raises(ValueError, match=r"estimators on a GPU with graph=True but got cpu"):
        fit_many(many, x, y, graph=True)
    with pytest.raises(ValueError, match=r"Expected y on cpu, .* got meta; call y.to\('cpu'\)"):
        ensembles._check_placement(many[0], x, y.to("meta"), None)
    with pytest.raises(ValueError, match=r"Expected x of shape \(n, 4\) but got"):
        fit_many(many, x[:, :2], y)
    mixed = make(lambda: mb.FLO(X, Y, 8))
    for estimator in mixed:
        estimator.potential.float()
    with pytest.raises(ValueError, match=r"of one dtype .*float32 on cpu', 'torch.float64 on cpu"):
        fit_many(mixed, x, y)
    torch.testing.assert_close([e.state_dict() for e in many], before, rtol=0, atol=0)


def test_values_that_are_not_finite_are_refused():
    x, y = samples(M)
    x[1, 7, 0] = math.nan
    y[2, 3, 1] = math.inf
    many = make(lambda: mb.CLUB(X, Y, 8))
    with pytest.raises(ValueError, match=r"finite x\[1\] but got NaN .* 1 of 60 rows, .* row 7"):
        fit_many(many, x, y)
    with pytest.raises(ValueError, match=r"finite y\[2\] but got NaN .* first in row 3; drop"):
        fit_many(many, x.nan_to_num(), y)
    with pytest.raises(ValueError, match=r"finite y but got NaN .* first in row 3; drop"):
        fit_many(many, x.nan_to_num(), y[2])


@pytest.mark.parametrize("own", [False, True])
def test_impossible_labels_are_refused(own):
    x, y = samples(M, kind="labels")
    y[:, 5] = Y
    many = make(lambda: mb.CLUB(conditional=mb.Categorical(X, Y)))
    with pytest.raises(
        ValueError, match=r"support of its Categorical \(labels 0 ... 2\) .* y\[5\]"
    ):
        fit_many(many, x[0], y if own else y[0])


@pytest.mark.parametrize("at_once", [1, 2, 5])
def test_an_explosion_is_named_and_the_others_keep_what_they_learnt(at_once):
    x, y = samples()
    many = make(lambda: mb.CLUB(X, Y, 8), m=5)
    before = copy.deepcopy(many[0].state_dict())
    next(many[3].parameters()).data.fill_(math.nan)
    with pytest.raises(
        FloatingPointError, match=r"Estimator 3: Expected .* but got nan in step 0; lower"
    ):
        fit_many(many, x, y, steps=20, at_once=at_once)
    assert any(not torch.equal(v, before[k]) for k, v in many[0].state_dict().items())
    assert all(v.isfinite().all() for v in many[2].state_dict().values())


def test_a_trial_step_leaves_no_trace():
    x, y = samples()
    learners = [ensembles._Learner(each) for each in make(lambda: mb.MINE(X, Y, 8).train())]
    rates = stacked_training.cosine(2, 1e-2)
    training = stacked_training.StackedTraining(learners, rates, lambda i: (x[i], y[i]))
    training.inputs = (torch.randint(N, (2, M, 16)),)
    state = list(training.tensors().values())
    assert {"number", "buffer estimator.log_average"} <= set(training.tensors())
    before = [v.clone() for v in state]
    for _ in range(3):  # more than there are steps
        with restored(state):
            training.step()
            assert not any(map(torch.equal, state, before))
        assert all(map(torch.equal, state, before))


def test_a_cpu_fits_no_more_at_once_than_its_cache_holds():
    size = ensembles._group_size
    assert size(mb.CLUB(20, 20, 64), 64) >= 64
    assert size(mb.NWJ(20, 20, 64), 32) == 16
    assert size(mb.NWJ(20, 20, 64), 128) == 1
    assert size(mb.NWJ(critic=mb.SeparableCritic(20, 20)), 64) >= 64


def test_many_at_once_take_less_time(unchecked):
    m, steps = 64, 30
    x = torch.randn(2000, 20)
    y = x + torch.randn(2000, 20)
    many = [mb.CLUB(20, 20, 64) for _ in range(m)]

    def clock(action):
        start = time.perf_counter()
        action()
        return time.perf_counter() - start

    kwargs = {"steps": steps, "batch_size": 64}
    alone, together = [], []
    for _ in range(3):
        alone.append(clock(lambda: [mb.fit(e, x, y, **kwargs) for e in many[:4]]) * m / 4)
        together.append(clock(lambda: fit_many(many, x, y, **kwargs)))
    assert min(alone) / min(together) >= 4  # 10 on an idle core


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_recorded_step_gives_the_same_numbers():
    x, y = (v.cuda() for v in samples())
    plain = [e.cuda() for e in make(lambda: mb.MINE(X, Y, 8))]
    recorded = copy.deepcopy(plain)
    fit_many(plain, x, y, steps=50, seeds=seeds(), graph=False)
    fit_many(recorded, x, y, steps=50, seeds=seeds(), graph=True)
    for a, b in zip(plain, recorded, strict=True):
        torch.testing.assert_close(a.state_dict(), b.state_dict(), rtol=0, atol=1e-8)


def test_bench(run_script, tmp_path):
    """The benchmark, as a user runs it."""
    shown = run_script("benchmarks/ensembles.py", "--device", "cpu", "--quick", "--out", tmp_path)
    assert shown.returncode == 0, shown.stderr
    (path,) = tmp_path.iterdir()
    result = json.loads(path.read_text())
    assert path.name == "ensembles_cpu.json"
    assert result["command"] == "python benchmarks/ensembles.py --device cpu --quick"
    assert all(row["ratio"] > 0 and row["deviation"] <= 1e-8 for row in result["rows"])
    assert result["acceptance"][-1]["holds"]
    assert str(tmp_path) not in path.read_text()
