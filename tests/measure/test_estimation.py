"""From samples to an Estimate."""

import json
import math
import re
import warnings

import numpy as np
import pytest
import torch
from torch.distributions import Independent, Normal
from torch.utils.data import TensorDataset

import mibounds as mb
from mibounds.measure import estimation, runs, wording
from mibounds.measure.canonical_codes import CanonicalCodes
from mibounds.measure.copula_model import CopulaFit, CopulaModel, Effort
from mibounds.measure.diagnostics import (
    look_at_copula_model,
    look_at_estimator,
    look_at_results,
    quality_of,
    quality_of_conditional,
)
from mibounds.measure.estimation import Estimate, estimate
from mibounds.measure.methods import METHODS, default_methods
from mibounds.measure.splits import fold_rows, permute_rows, standard_error
from mibounds.samples.columns import as_columns

rng = np.random.default_rng(7)
FAST = {"budget": "fast"}


@pytest.fixture(autouse=True)
def small_effort(monkeypatch):
    effort = Effort(
        folds=2, members=1, steps=150, hidden=(32, 32), components=4, batch_size=64, patience=75
    )
    monkeypatch.setitem(estimation.EFFORTS, "fast", effort)


def normal(*shape):
    return rng.normal(size=shape)


def gaussian(n=600, seed=0, x_dim=3, y_dim=2, noise=1.0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, x_dim))
    return x, x[:, :y_dim] + noise * rng.normal(size=(n, y_dim))


def codes_of(result):
    return {a.code for a in result.warnings}


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.usefixtures("tiny_effort")
def test_every_method_by_name(name):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 2))
    if name == "plug_in":
        y = (x[:, 0] > 0) + 0
        x = np.sign(x[:, :1] + 0.5 * rng.normal(size=(200, 1)))
    else:
        y = x[:, :1] + 0.7 * rng.normal(size=(200, 1))
        x = x[:, :1] if name == "binning" else x
    result = estimate(x, y, methods=name, folds=2, **FAST)
    row = result.rows[0]
    assert row.method == result.method == name
    assert result.nats == row.nats
    assert math.isfinite(row.nats)
    assert row.error > 0
    assert 0 <= result.interval[0] <= result.nats < result.interval[1]
    json.loads(result.to_json())


def test_the_registry_has_every_method_under_the_name_on_its_class():
    own = {CopulaModel.name, CanonicalCodes.name}
    assert set(METHODS) == {*own, *mb.CLASSICAL, *mb.ESTIMATORS}
    for name, method in METHODS.items():
        assert method.name == name
        assert method.side in ("upper", "lower", "neither")
        assert method.condition
        assert method.cost
        assert method.reference
        assert isinstance(method.has_conditional, bool)


def test_the_interval_covers_the_truth_about_as_often_as_it_says():
    hits = 0
    for seed in range(60):
        x, y = gaussian(300, seed)
        result = estimate(x, y, methods="gaussian_copula", level=0.8)
        hits += result.interval[0] < math.log(2) < result.interval[1]
    assert 38 <= hits <= 57  # 48 of 60 in the mean


def test_forms_of_the_same_samples_give_the_same_number():
    x, y = gaussian(200)
    values = {
        round(estimate(a, b, **FAST).nats, 5)
        for a, b in (
            (x, y),
            (torch.tensor(x), torch.tensor(y)),
            (x.tolist(), y.tolist()),
            (TensorDataset(torch.tensor(x), torch.tensor(y)), None),
        )
    }
    assert len(values) == 1


def test_normal_scores_make_monotone_maps_irrelevant():
    x, y = gaussian(400)
    same = estimate(np.exp(x), y**3, **FAST)
    assert same.nats == pytest.approx(estimate(x, y, **FAST).nats, abs=1e-6)
    raw = estimate(np.exp(3 * x), y**3, normal_scores=False, methods="gaussian")
    assert raw.nats < same.nats - 0.1


def test_without_normal_scores_the_density_of_a_single_target_is_learnt_too():
    """A log-normal y is far from the Gaussian of its mean and variance, whatever x is."""
    x, y = gaussian(3000, 0, 2, 1)
    raw = estimate(x, np.exp(y / 2), normal_scores=False, methods="copula_model", **FAST)
    assert raw.nats == pytest.approx(math.log(2) / 2, abs=0.08)


def test_seeds_decide():
    x, y = gaussian(1000)
    y = y + x[:, :2] ** 2
    a, b, c = (estimate(x, y, seed=s, **FAST).nats for s in (0, 0, 1))
    assert a == b != c


@pytest.mark.usefixtures("tiny_effort")
def test_the_global_state_of_random_numbers_is_left_alone():
    x, y = gaussian(300)
    torch.manual_seed(5)
    before = torch.get_rng_state(), np.random.get_state()[1]  # noqa: NPY002
    estimate(x, y, methods=["copula_model", "infonce"], folds=2, **FAST)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert (np.random.get_state()[1] == before[1]).all()  # noqa: NPY002


def three_clouds():
    rng = np.random.default_rng(1)
    y = rng.integers(0, 3, 900)
    return np.eye(3)[y] + 0.05 * rng.normal(size=(900, 3)), y


def test_labels():
    x, y = three_clouds()
    result = estimate(x, y, **FAST)
    assert result.nats == pytest.approx(math.log(3), abs=0.2)
    text = estimate(x, np.array(["a", "b", "c"])[y], **FAST)
    assert text.nats == pytest.approx(result.nats, abs=1e-6)


@pytest.mark.usefixtures("tiny_effort")
def test_every_kind_of_estimator_takes_labels():
    rows = estimate(*three_clouds(), methods=["club", "ba", "infonce", "vub"], **FAST).rows
    assert [row.method for row in rows] == ["club", "ba", "infonce", "vub"]
    assert all(math.isfinite(row.nats) for row in rows)


def test_conditional_information():
    rng = np.random.default_rng(2)
    z = rng.normal(size=(1500, 1))
    x, y = z + rng.normal(size=(1500, 2)), z + rng.normal(size=(1500, 1))
    assert estimate(x, y, **FAST).nats > 0.15
    assert estimate(x, y, given=z, **FAST).nats == pytest.approx(0, abs=0.03)
    ba = estimate(x, y, given=z, methods="ba", folds=2, **FAST)
    assert ba.nats == pytest.approx(0, abs=0.12)
    assert ba.rows[0].side == "neither"


def test_the_default_by_kind_and_width():
    def names(x, y, given=None):
        sides = [None if s is None else as_columns("s", s) for s in (x, y, given)]
        return default_methods(*sides)

    rng = np.random.default_rng(0)
    wide, one = rng.normal(size=(400, 4)), rng.normal(size=(400, 1))
    label = np.arange(400) % 3
    assert names(wide, one) == ["copula_model", "codes"]
    assert names(one, one) == ["ksg", "codes"]
    assert names(one, label) == ["ksg_mixed", "codes"]
    assert names(label, label) == ["plug_in", "copula_model", "codes"]
    assert names(one, one, wide) == ["copula_model"]
    sparse = np.arange(400) % 20
    assert names(sparse, np.roll(sparse, 7)) == ["plug_in", "copula_model", "codes"]
    many = names(sparse, rng.permutation(sparse))  # too many cells to count in
    assert many == ["copula_model", "codes"]


def test_bracket():
    x, y = gaussian(1500)
    result = estimate(x, y, **FAST)
    sides = {row.method: row.side for row in result.rows}
    assert sides["copula_model-infonce"] == "lower"
    assert sides["copula_model-l1out"] == sides["copula_model-club"] == "upper"
    assert result.lower <= result.upper
    assert result.lower < result.nats + 0.1


def test_the_bracket_is_the_narrowest_that_may_hold(monkeypatch):
    """An upper bound under the value has lost its condition, unless it is the value."""
    values = {
        "copula_model": ("neither", 1.0),
        "infonce": ("lower", 0.8),
        "ba": ("lower", 0.9),
        "club": ("upper", 0.95),
        "l1out": ("upper", 1.2),
        "vub": ("upper", 1.5),
    }

    def measure(name, problem):
        side, nats = values[name]
        return runs.Outcome([mb.MethodResult(name, side, "", nats, 0.1, 0.0)], 0.1, "said")

    monkeypatch.setattr(runs, "measure", measure)
    result = estimate(*gaussian(200), methods=list(values))
    assert (result.nats, result.lower, result.upper) == (1.0, 0.9, 1.2)
    used = {
        row.method: not row.condition.startswith("not used: below the value") for row in result.rows
    }
    assert used == {**dict.fromkeys(values, True), "club": False}
    assert estimate(*gaussian(200), methods=["club", "vub"]).upper == 0.95
    alone = estimate(*gaussian(200), methods="copula_model", level=0.6826894921)
    assert (alone.lower, alone.upper) == (None, None)
    assert alone.interval == pytest.approx((0.9, 1.1))


def test_bounds_that_contradict_the_value_or_each_other_are_not_used(monkeypatch):
    values = {
        "copula_model": ("neither", 1.0),
        "infonce": ("lower", 1.05),  # by less than its error
        "l1out": ("upper", 1.02),
        "vub": ("upper", 1.5),
    }

    def measure(name, problem):
        side, nats = values[name]
        return runs.Outcome([mb.MethodResult(name, side, "", nats, 0.1, 0.0)], 0.1, "said")

    monkeypatch.setattr(runs, "measure", measure)
    result = estimate(*gaussian(200), methods=list(values))
    assert (result.lower, result.upper) == (1.0, 1.5)
    said = {row.method: row.condition for row in result.rows}
    assert said["infonce"].startswith("not used: above the value, by less than its error")
    assert said["l1out"].startswith("not used: below a lower bound")


def test_every_row_is_shown_once_where_a_method_contradicts_itself(monkeypatch):
    def measure(name, problem):
        own = mb.MethodResult(name, "neither", "", 0.1, 0.01, 0.0)
        low = mb.MethodResult(f"{name}-infonce", "lower", "", 0.5, 0.01, 0.0)
        return runs.Outcome([own, low] if name == "copula_model" else [own], 0.01, "made up")

    monkeypatch.setattr(runs, "measure", measure)
    result = estimate(*gaussian(200))
    assert [row.method for row in result.rows] == ["copula_model-infonce", "copula_model", "codes"]
    assert (result.nats, result.side, result.verdict) == (0.5, "lower", "care")


@pytest.mark.parametrize("permutations", [0, 2])
def test_no_row_is_evaluated_by_an_estimator_of_itself(permutations, monkeypatch):
    """Rows are identified by their first input; at most 60 are evaluated at once."""
    fit, forward = runs.fit, mb.BA.forward
    fitted, evaluated = [], []

    def names(x):
        return set(x[:, 0].tolist())

    def spy_on_fit(estimator, x, y, **options):
        fit(estimator, x, y, **options)
        fitted.append(names(x) | names(options["held_out"][0]))

    def spy_on_forward(estimator, x, y, **options):
        evaluated.append((len(fitted) - 1, names(x)))
        return forward(estimator, x, y, **options)

    monkeypatch.setattr(runs, "PAIRED", 60)
    monkeypatch.setattr(runs, "fit", spy_on_fit)
    monkeypatch.setattr(mb.BA, "forward", spy_on_forward)
    estimate(*gaussian(200), methods="ba", permutations=permutations, **FAST)
    assert len(fitted) == 2 + bool(permutations)
    assert all(rows and not rows & fitted[k] for k, rows in evaluated)
    assert all(len(rows) <= 60 for _, rows in evaluated)
    assert len(set.union(*(rows for k, rows in evaluated if k < 2))) == 200


def test_runs_of_dependent_rows_stay_together():
    folds = fold_rows(100, 3, 10, 0)
    assert np.concatenate(folds).tolist() == list(range(100))
    runs = np.random.default_rng(0).normal(size=30)
    error = standard_error(np.repeat(runs, 5), 5)
    assert error == (pytest.approx(runs.std(ddof=1) / math.sqrt(30)), 29)
    order = permute_rows(95, 10, np.random.default_rng(0))
    assert sorted(order) == list(range(95))
    starts = [i for i in range(95) if i == 0 or order[i] != order[i - 1] + 1]
    assert all(order[i] % 10 == 0 for i in starts)
    assert len(starts) > 5


@pytest.mark.parametrize("block", [1, 20])
def test_the_error_of_the_copula_model_has_a_floor_and_knows_the_runs(block, monkeypatch):
    shares = np.repeat(np.random.default_rng(0).normal(size=10), 20)
    found = CopulaFit(shares.mean(), shares, floor=0.5)
    monkeypatch.setattr(CopulaModel, "measure", lambda *_: found)
    result = estimate(*gaussian(200), block=block, methods="copula_model")
    rows = shares if block == 1 else shares[::20]
    spread = rows.std(ddof=1) / math.sqrt(len(rows))
    assert result.rows[0].error == pytest.approx(math.hypot(spread, 0.5))


def test_blocks_widen_the_interval_of_dependent_rows():
    rng = np.random.default_rng(3)
    noise = rng.normal(size=(2, 4000))
    for t in range(1, 4000):
        noise[:, t] += 0.95 * noise[:, t - 1]
    x, y = noise[0], noise[0] + noise[1]
    alone = estimate(x, y, methods="gaussian_copula")
    blocks = estimate(x, y, methods="gaussian_copula", block=100)
    assert blocks.nats == alone.nats
    width = [np.diff(r.interval)[0] for r in (alone, blocks)]
    assert width[1] > 2 * width[0]
    with pytest.raises(ValueError, match="at least 5 blocks"):
        estimate(x, y, methods="gaussian_copula", block=3000)


@pytest.mark.parametrize("method", ["copula_model", "ksg", "club"])
def test_permutations_tell_dependence_from_none(method):
    x, y = gaussian(400, 4, 1, 1)
    result = estimate(x, y, methods=method, folds=2, permutations=39, **FAST)
    assert result.p_value == 1 / 40
    assert len(result.null) == 39
    none = estimate(
        x,
        np.random.default_rng(9).normal(size=400),
        methods=method,
        folds=2,
        permutations=19,
        **FAST,
    )
    assert none.p_value > 1 / 20


@pytest.mark.parametrize("labels", [False, True])
def test_p_values_given_a_common_cause(labels):
    z, *noise = np.random.default_rng(0).normal(size=(4, 300))
    z = (z > 0).astype(int) if labels else z
    x = np.stack([z + noise[0], noise[1]], 1)
    for effect in (0, 1):
        y = z + effect * noise[0] + noise[2]
        result = estimate(x, y, given=z, permutations=19, **FAST)
        assert (result.p_value == 1 / 20) == (effect == 1)
        by = "19 permutations" if labels else "19 random sign changes"
        assert f"for independence given z, by {by}" in str(result)


def test_p_values_of_independent_variables_are_uniform():
    """200 seeds; the largest distance to the uniform distribution function, 1 % level.

    The statistic is of a model that is fitted to the other half of the rows.
    """
    p = []
    for seed in range(200):
        rng = np.random.default_rng(seed)
        x, y = rng.normal(size=(60, 2)), rng.normal(size=(60, 1))
        result = estimate(x, y, methods="copula_model", permutations=39, seed=seed, **FAST)
        p.append(result.p_value)
    p = np.sort(p)
    grid = np.arange(1, 41) / 40
    distance = np.abs(np.searchsorted(p, grid, side="right") / len(p) - grid).max()
    assert distance < 1.63 / math.sqrt(200)


def test_intervals_of_independent_variables_cover_zero():
    hits = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        result = estimate(rng.normal(size=(200, 3)), rng.normal(size=(200, 2)), **FAST)
        hits += result.interval[0] <= 0 <= result.interval[1]
    assert hits >= 35


@pytest.mark.usefixtures("tiny_effort")
def test_progress_goes_from_start_to_end():
    seen = []
    x, y = gaussian(300)
    estimate(
        x,
        y,
        methods=["copula_model", "club"],
        folds=2,
        permutations=3,
        progress=lambda part, word: seen.append((part, word)),
        **FAST,
    )
    parts = [p for p, _ in seen]
    assert parts == sorted(parts)
    assert parts[0] == 0
    assert parts[-1] == 1
    assert {w for _, w in seen} == {"copula_model", "club", "permutations"}


@pytest.mark.usefixtures("tiny_effort")
def test_history_has_both_curves():
    x, y = gaussian(200)
    result = estimate(x, y, methods="infonce", folds=2, **FAST)
    assert {p.fold for p in result.history} == {0, 1}
    assert all(math.isfinite(p.held_out) and math.isfinite(p.loss) for p in result.history)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"methods": "guess"}, "methods among .* but got 'guess'"),
        ({"methods": []}, "at least one method"),
        ({"budget": "huge"}, 'budget "default" or "fast"'),
        ({"level": 1.5}, "level between 0 and 1"),
        ({"folds": 1}, "folds to be a whole number >= 2 but got 1"),
        ({"permutations": -1}, "permutations to be a whole number >= 0 but got -1"),
        ({"block": 0}, "block to be a whole number >= 1 but got 0"),
        ({"level": "0.95"}, "level between 0 and 1 but got '0.95'; leave"),
        ({"level": float("nan")}, "level between 0 and 1 but got nan"),
        ({"permutations": 2.5}, "permutations to be a whole number >= 0 but got 2.5; leave"),
        ({"permutations": True}, "permutations to be a whole number >= 0 but got True"),
        ({"folds": 2.5}, "folds to be a whole number >= 2 but got 2.5"),
        ({"folds": 51}, "2 to 50 folds but got 51"),
        ({"seed": -1}, "seed to be a whole number >= 0 but got -1; pass seed=0"),
        ({"seed": None}, "seed to be a whole number >= 0 but got None"),
        ({"seed": 2**63}, "seed to be a whole number >= 0 but got 9223372036854775808"),
        ({"device": 2.5}, "a device that is there but got '2.5'"),
        ({"device": "meta"}, "a device that is there but got 'meta'"),
        ({"device": "nowhere"}, "a device that is there but got 'nowhere'"),
        ({"y": None}, "Expected y, or a Dataset"),
        ({"y": normal(99, 2)}, "as many rows of y as of x but got 99 and 100"),
        ({"x": normal(10, 2), "y": normal(10)}, "at least 20 rows but got 10"),
        ({"given": normal(100), "methods": "ksg"}, "no given for ksg"),
        ({"y": np.arange(100) % 2, "methods": "ksg"}, "continuous columns for ksg"),
        ({"methods": "plug_in"}, "discrete columns for plug_in"),
        (
            {"y": np.stack([np.arange(100) % 2, normal(100)], 1), "methods": "club"},
            "y of one kind for club",
        ),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_invalid_input_is_refused(change, message):
    options = {"x": normal(100, 2), "y": normal(100), **change}
    x, y = options.pop("x"), options.pop("y")
    with pytest.raises(ValueError, match=message):
        estimate(x, y, **options)


# Diagnostics: each is triggered, and silent where all is well.


def test_good_samples_cause_no_warnings():
    x, y = gaussian(2000)
    assert codes_of(estimate(x, y, **FAST)) == set()


def test_advice_few_samples():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 5))
    assert "few-samples" in codes_of(estimate(x, x[:, :2] + rng.normal(size=(60, 2)), **FAST))
    x, y = rng.normal(size=(150, 12)), rng.normal(size=(150, 4))
    assert "few-samples" in codes_of(estimate(x, y, methods="gaussian"))
    assert "few-samples" not in codes_of(estimate(x[:, :11], y, methods="gaussian"))


@pytest.mark.parametrize("method", ["ksg", "ksg_mixed", "kde", "mlmi"])
def test_advice_neighbours_that_are_far(method):
    rng = np.random.default_rng(0)
    x, noise = rng.normal(size=(2, 1000, 10))
    code = f"{method}-many-columns"
    assert code not in codes_of(estimate(x[:, :1], x[:, :2] + noise[:, :2], methods=method))
    weak = estimate(x[:, :2], 0.1 * x[:, :3] + noise[:, :3], methods=method)
    assert (code in codes_of(weak)) == (method == "kde")  # which has less than the Gaussian copula
    low = estimate(x[:, :5], x[:, :5] + 0.3 * noise[:, :5], methods=method)
    (advice,) = [a for a in low.warnings if a.code == code]
    assert f"its value, {low.nats:.3f}, where the Gaussian copula has 6." in advice.message
    assert low.verdict == "doubt"
    if method == "ksg_mixed":
        y = (x[:, 0] + noise[:, 0] > 0).astype(int)
        far = estimate(x, y, methods=method)
        (advice,) = [a for a in far.warnings if a.code == code]
        assert "Gaussian" not in advice.message
        assert code not in codes_of(estimate(x[:, :4], y, methods=method))


def test_advice_labels_of_many_columns():
    rng = np.random.default_rng(0)
    y = rng.integers(4, size=800)
    x = rng.normal(size=(4, 40))[y] + 3 * rng.normal(size=(800, 40))
    few = estimate(x, y, **FAST)
    (advice,) = [a for a in few.warnings if a.code == "copula_model-few-rows"]
    assert "models of 350 rows, and a linear one has 120 weights" in advice.message
    assert f"some {120 / 700:.2f} nats" in advice.message
    assert few.verdict == "doubt"
    assert "copula_model-few-rows" not in codes_of(estimate(x[:, :3], y % 2, **FAST))
    numbers = estimate(x, x[:, :1] + rng.normal(size=(800, 1)), **FAST)
    assert "copula_model-few-rows" not in codes_of(numbers)


def test_nothing_is_said_below_zero(monkeypatch):
    def measure(name, problem):
        row = mb.MethodResult(name, "neither", "", nats, 0.01, 0.0)
        return runs.Outcome([row], 0.01, "made up")

    monkeypatch.setattr(runs, "measure", measure)
    for nats, low, high in ((-0.05, 0.0, 0.0196), (0.01, 0.0, 0.0296), (0.3, 0.2804, 0.3196)):
        result = estimate(normal(50, 2), normal(50), methods="ksg")
        assert result.nats == result.rows[0].nats == max(nats, 0)
        assert result.interval == pytest.approx((low, high), abs=1e-4)


def test_bounds_have_the_error_of_the_value_too():
    values = []
    for seed in range(12):
        rows = {r.method: r for r in estimate(*gaussian(400, seed), **FAST).rows}
        values.append([rows[f"copula_model-{name}"] for name in ("infonce", "l1out")])
        assert all(row.error >= rows["copula_model"].error for row in values[-1])
    for rows in zip(*values, strict=True):
        spread = np.std([row.nats for row in rows], ddof=1)
        assert 0.5 < np.mean([row.error for row in rows]) / spread < 2


def test_advice_duplicated_rows():
    x, y = gaussian(300)
    result = estimate(np.tile(x, (2, 1)), np.tile(y, (2, 1)), methods="gaussian")
    assert "duplicated-rows" in codes_of(result)
    label = np.random.default_rng(0).integers(0, 2, 200)
    copied = estimate(np.tile(normal(200), 10), np.tile(label, 10), **FAST)  # in folds of its own
    assert "duplicated-rows" in codes_of(copied)
    assert copied.verdict == "doubt"
    few = estimate(np.vstack([x, x[:20]]), np.vstack([y, y[:20]]), methods="gaussian")
    assert "20 of 320 rows are copies" in str(few.warnings[0])


def test_rounded_rows_are_not_copies():
    x, y = gaussian(2000, 1, 1, 1)
    result = estimate(x.round(1), y.round(1), methods="gaussian")
    assert len(np.unique(np.hstack([x, y]).round(1), axis=0)) < 1500
    assert codes_of(result) == set()


@pytest.mark.usefixtures("tiny_effort")
def test_no_warning_is_repeated(monkeypatch):
    """With given columns an estimator is fitted twice, and checked each time."""
    advice = mb.Advice("ba-odd", "It is odd.", "Take another.")
    monkeypatch.setattr(runs.diagnostics, "look_at_estimator", lambda *_: [advice])
    x, y, z = np.random.default_rng(0).normal(size=(3, 400, 1))
    assert estimate(x, y, given=z, methods="ba", folds=2, **FAST).warnings == (advice,)


@pytest.mark.parametrize("function", [lambda x: 2 * x + 1, np.square, lambda x: np.sin(2 * x)])
def test_advice_deterministic(function):
    x = np.random.default_rng(0).normal(size=(5000, 1))
    assert "deterministic" in codes_of(estimate(x, function(x), methods="binning"))
    assert "deterministic" in codes_of(estimate(function(x), x, methods="binning"))
    noisy = function(x) + 0.1 * np.random.default_rng(1).normal(size=x.shape)
    assert "deterministic" not in codes_of(estimate(x, noisy, methods="binning"))


def test_copies_and_few_rows_are_not_taken_for_a_function():
    x, y = gaussian(500, x_dim=1, y_dim=1)
    twice = estimate(np.tile(x, (2, 1)), np.tile(y, (2, 1)), methods="gaussian")
    assert codes_of(twice) == {"duplicated-rows"}
    for seed in range(30):
        few = estimate(*gaussian(20, seed, x_dim=1, y_dim=1), methods="gaussian")
        assert codes_of(few) == {"few-samples"}
    x, _ = gaussian(100, x_dim=1, y_dim=1)
    assert "deterministic" in codes_of(estimate(x, x**2, methods="gaussian"))


def test_advice_rare_labels():
    rng = np.random.default_rng(0)
    x, names = rng.normal(size=(300, 2)), np.array([f"person {i % 250}" for i in range(300)])
    (advice,) = [a for a in estimate(x, names, **FAST).warnings if a.code == "rare-labels"]
    assert "In 300 rows, labels in 1 column of y rarely" in advice.message
    assert "0 (250 labels)" in advice.message
    assert "rare-labels" not in codes_of(
        estimate(x, np.arange(300) % 60, y_kinds="discrete", **FAST)
    )
    assert "rare-labels" in codes_of(estimate(x, np.arange(300) % 61, y_kinds="discrete", **FAST))


def test_advice_nothing_is_predicted():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(800, 3)), rng.normal(size=(800, 2))
    for method in ("copula_model", "club"):
        result = estimate(x, y, methods=method, folds=2, **FAST)
        assert "q-no-better-than-marginal" in codes_of(result), method


def test_advice_infonce_ceiling(monkeypatch):
    effort = Effort(folds=2, steps=400, hidden=(64,), batch_size=64, patience=400)
    monkeypatch.setitem(estimation.EFFORTS, "fast", effort)
    x = normal(40, 2)
    result = estimate(x, x + 1e-3 * normal(40, 2), methods="infonce", **FAST)
    assert "infonce-ceiling" in codes_of(result)
    low = mb.MethodResult("infonce", "lower", "", 2.0, 0.1, 0.0)
    assert look_at_estimator(low, mb.InfoNCE(2, 2), [{}], 1000) == []


def test_advice_variance_exploding():
    """With the true log-ratio of 10 nats the mean of exponentials rests on few pairs."""
    found = {}
    for name in ("gaussian-10", "gaussian-dense"):
        task = mb.TASKS[name]
        x, y = task.sample(500, seed=0)
        quality = quality_of(mb.NWJ(critic=task.log_ratio), x, y)
        row = mb.MethodResult("nwj", "lower", "", 1.0, 0.1, 0.0)
        found[name] = [a.code for a in look_at_estimator(row, mb.NWJ(2, 2), [quality], 500)]
    assert found == {"gaussian-10": ["nwj-variance"], "gaussian-dense": []}


def test_advice_log_variance_limit():
    x = np.random.default_rng(0).normal(size=(400, 2))
    row = mb.MethodResult("club", "upper", "", 1.0, 0.1, 0.0)
    y = torch.tensor(x, dtype=torch.float32)
    stuck = Independent(Normal(y, math.exp(-7.4)), 1)
    quality = quality_of_conditional(stuck, y, stuck.log_prob(y).mean().item())
    assert quality["at_limit"] == 1
    codes = {a.code for a in look_at_estimator(row, mb.CLUB(2, 2), [quality], 100)}
    assert "club-log-variance-limit" in codes


def test_advice_scale_limit():
    shares = rng.normal(3, 1, 3000)
    (advice,) = look_at_copula_model(CopulaFit(3.0, shares, narrow=0.5), 0.02)
    assert advice.code == "copula_model-scale-limit"
    assert look_at_copula_model(CopulaFit(3.0, shares), 0.02) == []


def test_advice_nothing_is_shared_goes_by_the_error_of_the_value():
    found = CopulaFit(0.3, np.full(100, 0.3), gaussian=0.3)
    (advice,) = look_at_copula_model(found, 0.16)
    assert advice.code == "q-no-better-than-marginal"
    assert look_at_copula_model(found, 0.14) == []


def test_advice_upper_under_lower():
    low = mb.MethodResult("infonce", "lower", "", 2.0, 0.01, 0.0)
    high = mb.MethodResult("l1out", "upper", "", 1.0, 0.01, 0.0)
    assert [a.code for a in look_at_results([low, high])] == ["upper-under-lower"]
    assert look_at_results([high, mb.MethodResult("infonce", "lower", "", 1.01, 0.01, 0.0)]) == []
    assert look_at_results([high, mb.MethodResult("infonce", "lower", "", 1.2, 0.1, 0.0)]) == []


def test_advice_subsampled(monkeypatch):
    monkeypatch.setattr(mb.KSG, "most_rows_of_few", 200)
    x, y = gaussian(500, 0, 1, 1)
    assert "ksg-subsampled" in codes_of(estimate(x, y, methods="ksg"))
    x, y = gaussian(500, 0, 3, 2)
    assert "ksg-subsampled" not in codes_of(estimate(x, y, methods="ksg"))
    monkeypatch.setattr(mb.KSG, "most_rows", 200)
    assert "ksg-subsampled" in codes_of(estimate(x, y, methods="ksg"))


@pytest.mark.parametrize("block", [1, 10])
def test_some_rows_of_a_time_series_are_neighbours(block, monkeypatch):
    """Rows drawn from all over a series would be treated as dependent, which they are not."""
    monkeypatch.setattr(mb.KSG, "most_rows_of_few", 200)
    monkeypatch.setattr(runs, "PAIRED", 100)
    seen = []
    influence = mb.KSG.influence

    def spy(self, x, y):
        seen.append((x[:, 0], y[:, 0]))
        return influence(self, x, y)

    monkeypatch.setattr(mb.KSG, "influence", spy)
    t = np.arange(500.0)  # rows are identified by their values
    result = estimate(
        t, -t, methods="ksg", normal_scores=False, block=block, permutations=1, seed=1
    )
    assert "ksg-subsampled" in codes_of(result)
    (x, y), _, _, *permuted = seen  # after all rows come two halves, for the growth
    assert len(x) == 200
    assert (y == -x).all()
    assert (np.diff(x) == 1).all() == (block > 1)
    assert x[0] > 0
    for x, y in permuted:
        assert len(x) == 100
        assert (np.diff(x) == 1).all() == (block > 1)
        assert sorted(-y) == list(x)


def test_rounding_changes_nothing():
    """Ages and a coin share nothing; a rounded column shares what the column itself does."""
    for seed in range(3):
        rng = np.random.default_rng(seed)
        coin, age = rng.integers(0, 2, 500), rng.integers(18, 90, 500)
        assert estimate(age, coin).interval[0] <= 0.02
        label = rng.integers(0, 2, 569)
        x = 1.5 * label + rng.normal(size=569)
        exact, rounded = estimate(x, label), estimate(x.round(1), label)
        assert rounded.nats == pytest.approx(exact.nats, abs=1.5 * exact.rows[0].error)
        assert rounded.interval[0] < 0.221 < rounded.interval[1]


def test_no_value_exceeds_the_entropy_of_a_label():
    rng = np.random.default_rng(0)
    y = (rng.random(300) < 0.3).astype(int)
    x = y[:, None] + 0.1 * rng.normal(size=(300, 2))
    result = estimate(x, y, methods=["club", "infonce", "copula_model"], folds=2, **FAST)
    entropy = result.config["entropy"]
    p = np.bincount(y) / len(y)
    assert entropy == pytest.approx(-(p * np.log(p)).sum() + 1 / 600)
    assert all(0 <= row.nats <= entropy for row in result.rows)
    assert result.interval[1] <= entropy + 0.06  # which has an error itself
    assert result.share == result.nats / entropy
    assert f"of {entropy:.3f} nats, a label's entropy" in str(result)
    assert estimate(x, x[:, :1] + rng.normal(size=(300, 1)), methods="gaussian").share is None


def test_a_constant_shares_nothing():
    x, y = gaussian(100)
    result = estimate(np.ones((100, 2)), y, permutations=9)
    assert result.p_value == 1
    assert (result.nats, result.interval, result.verdict) == (0.0, (0.0, 0.0), "believe")
    assert codes_of(result) == {"constant-columns"}
    assert "Left out 2 columns with one value in all rows: 0, 1 of x" in str(result.warnings[0])
    some = estimate(np.column_stack([x, np.ones(100)]), y, methods="gaussian")
    assert codes_of(some) == {"constant-columns"}
    assert some.nats == estimate(x, y, methods="gaussian").nats


def test_rows_with_missing_values_are_left_out_if_asked():
    x, y = gaussian(200)
    x[::10, 1] = np.nan
    with pytest.raises(ValueError, match="drop_missing=True"):
        estimate(x, y)
    result = estimate(x, y, methods="gaussian", drop_missing=True)
    assert (result.n, result.config["dropped"]) == (180, 20)
    kept = ~np.isnan(x[:, 1])
    assert result.nats == estimate(x[kept], y[kept], methods="gaussian").nats
    with pytest.raises(ValueError, match=r"got 10 \(190 without all values\)"):
        estimate(np.where(np.arange(200) < 190, np.nan, 1.0), y, drop_missing=True)


def test_a_data_frame_with_names_of_columns():
    pandas = pytest.importorskip("pandas")
    x, y = gaussian(200, y_dim=1)
    frame = pandas.DataFrame({"a": x[:, 0], "b": x[:, 1], "c": x[:, 2], "y": y[:, 0]})
    result = estimate(frame, x=["a", "b"], y="y", methods="gaussian")
    assert result.nats == estimate(x[:, :2], y, methods="gaussian").nats
    assert estimate(x=x[:, :2], y=y, methods="gaussian").nats == result.nats
    given = estimate(frame, x="a", y="y", given=["b"], budget="fast")
    assert str(given).startswith("I(x; y | z)  ")
    with pytest.raises(ValueError, match="names among a, b, c, y but got d"):
        estimate(frame, x="d", y="y")
    with pytest.raises(ValueError, match="data frame before x="):
        estimate(x, x="a", y="y")


def test_more_columns_than_rows():
    """A regression is impossible, codes are not."""
    rng = np.random.default_rng(0)
    z = rng.normal(size=(150, 1))
    x, y = (z + rng.normal(size=(150, 120)) for _ in range(2))
    result = estimate(x, y)
    assert result.method == "codes"
    assert result.nats > 0.5
    assert result.verdict == "care"
    with pytest.raises(ValueError, match="more rows"):
        estimate(x, y, methods="copula_model")


def test_what_cannot_be_used_leaves_its_place_to_the_next(monkeypatch):
    def refuse(*_):
        raise ValueError("Expected other samples.")

    monkeypatch.setattr(CopulaModel, "measure", refuse)
    result = estimate(*gaussian(300))
    assert result.method == "codes"
    (advice,) = [a for a in result.warnings if a.code == "copula_model-not-used"]
    assert "Expected other samples." in advice.message
    with pytest.raises(ValueError, match="Expected other samples"):
        estimate(*gaussian(300), methods="copula_model")


def test_intervals_know_how_the_value_grows():
    """On a spiral the value is far too low, and says so."""
    task = mb.TASKS["spiral"]
    result = estimate(*task.sample(1500, seed=0))
    assert result.config["growth"] > 0.03
    assert any(code.endswith("-growing") for code in codes_of(result))
    assert result.verdict == "care"
    first = result.rows[0]
    assert result.interval[1] - result.nats > 2 * first.error


def test_the_default_p_value_has_power_and_size():
    power = size = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        x, noise = rng.normal(size=(2, 300))
        options = {"permutations": 39, "seed": seed, **FAST}
        power += estimate(x, 0.3 * x + noise, **options).p_value <= 0.05
        size += estimate(x, noise, **options).p_value <= 0.05
    assert power >= 54
    assert size <= 8  # 3 in the mean; 8 or fewer in 99 % of such tests


def test_every_advice_says_what_to_do():
    rng = np.random.default_rng(0)
    with warnings.catch_warnings():
        result = estimate(rng.normal(size=(50, 6)), rng.normal(size=(50, 3)), **FAST)
    assert result.warnings
    assert all(a.message and a.remedy for a in result.warnings)


@pytest.mark.usefixtures("tiny_effort")
def test_the_kinds_of_some_columns():
    x, y = gaussian(200)
    z = np.arange(len(x)) % 40
    mixed = np.column_stack([x, z])
    result = estimate(
        mixed, y, given=z, x_kinds=[None, None, "continuous", "discrete"],
        given_kinds=["discrete"], methods="copula_model", **FAST,
    )  # fmt: skip
    assert result.config["x_kinds"] == ["continuous"] * 3 + ["discrete"]
    assert result.config["given_kinds"] == ["discrete"]


@pytest.mark.usefixtures("tiny_effort")
def test_estimate_fits_where_gradients_are_off():
    """The corrections are fitted too: 600 rows are enough for them."""
    x, y = mb.TASKS["mixture-cross"].sample(600, seed=0)
    options = {"methods": ["doe", "copula_model"], "folds": 2, **FAST}
    on = estimate(x, y, **options)
    assert {point.method for point in on.history} >= {"doe", "copula_model q(y | x)"}
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            off = estimate(x + 0, y + 0, **options)
            assert torch.is_grad_enabled() is False
        assert [row.nats for row in off.rows] == [row.nats for row in on.rows]


def test_autocast_takes_no_digits_away():
    """Inside of it, casts of old weights would be kept while a fit changes the weights."""
    x, y = mb.TASKS["gaussian-dense"].sample(500, seed=0)
    values = []
    for on in (False, True):
        estimators = [mb.CLUB(5, 3, 8) for _ in range(3)]
        for k, estimator in enumerate(estimators):
            torch.manual_seed(k)
            for p in estimator.parameters():
                torch.nn.init.normal_(p, std=0.2)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=on):
            mb.fit(estimators[0], x, y, steps=30, seed=0)
            mb.fit_many(estimators[1:], x, y, steps=30, seeds=[1, 2])
            found = estimate(x, y, methods=["copula_model", "doe"], folds=2, **FAST)
        with torch.no_grad():
            fitted = [e.eval()(x, y).item() for e in estimators]
        values.append([*fitted, *(row.nats for row in found.rows)])
    assert values[0] == values[1]


def test_fit_works_where_gradients_are_off():
    x, y = mb.TASKS["gaussian-2"].sample(200, seed=0)
    with torch.no_grad():
        one, many = mb.CLUB(20, 20, 8), [mb.CLUB(20, 20, 8) for _ in range(2)]
        assert mb.fit(one, x, y, steps=11)[-1] < mb.fit(mb.CLUB(20, 20, 8), x, y, steps=1)[0]
        mb.fit_many(many, x, y, steps=5)


def test_it_says_which_models_are_used_and_which_were_dropped():
    x, y = gaussian(600)
    none = estimate(x, np.random.default_rng(7).normal(size=600), methods="copula_model", **FAST)
    (line,) = wording.fits(none)
    assert re.fullmatch(
        r"copula_model q\(y \| x\): correction dropped, it never beat the Gaussian on held-out "
        r"rows; stopped at step \d+( to \d+)?\.", line
    )  # fmt: skip
    assert line[:60] in str(none)
    assert "never beat the Gaussian" in none._repr_html_()
    last = {p.fold: p.step for p in none.history}
    assert [(f.fold, f.steps, f.used) for f in none.fits] == [(k, last[k], False) for k in (0, 1)]
    curve = estimate(x, x[:, :2] ** 2 + 0.1 * y, methods="copula_model,infonce", **FAST)
    lines = wording.fits(curve)
    assert re.match(r"copula_model q\(y \| x\): networks correct .* in \d of 2 folds", lines[0])
    assert lines[-1].startswith("infonce: fitted in 2 folds; stopped at step ")
    assert Estimate.from_json(curve.to_json()).fits == curve.fits
    old = json.loads(curve.to_json())
    del old["fits"]
    assert Estimate.from_json(json.dumps(old)).fits == ()
    old["fits"] = [{"method": "a", "fold": 0, "corrects": "", "steps": 1, "used": 1}]
    with pytest.raises(ValueError, match="'used' to be of type bool but got int"):
        Estimate.from_json(json.dumps(old))


def test_of_labels_the_better_of_two_models_is_used():
    x, _ = gaussian(800)
    line = x[:, 0] + 0.5 * np.random.default_rng(1).normal(size=800) > 0
    result = estimate(x, line.astype(int), methods="copula_model", **FAST)
    used = {fit.method for fit in result.fits if fit.used}
    assert used <= {"copula_model q(labels | rest), a regression corrected"}
    (alone,) = {f.corrects for f in result.fits if f.method == "copula_model q(labels | rest)"}
    assert alone == "a logistic regression"


def test_a_student_copula_without_networks_is_a_model_that_is_used():
    x, y = mb.TASKS["student-1"].sample(600, seed=0)
    result = estimate(x, y, methods="copula_model", **FAST)
    assert any("Student-t copula of" in line for line in wording.fits(result))


def test_every_part_is_told_the_device(monkeypatch):
    seen = set()
    for kind in (CopulaModel, CanonicalCodes):
        whole = kind.measure

        def measure(self, *args, whole=whole):
            seen.add((self.name, self.device))
            return whole(self, *args)

        monkeypatch.setattr(kind, "measure", measure)
    estimate(*gaussian(100), device="cpu:0", **FAST)
    assert seen == {(name, torch.device("cpu:0")) for name in ("copula_model", "codes")}


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("methods", ["default", "copula_model", "codes", "infonce", "club"])
def test_a_gpu_gives_about_the_same(methods):
    x, y = gaussian(800)
    labels = (y[:, 0] > 0).astype(int)
    for side in (y, labels, np.column_stack([y[:, 0], labels])):
        if methods == "club" and side.ndim == 2 and side is not y:
            continue
        kinds = ["continuous", "discrete"] if side.ndim == 2 and side is not y else None
        here, there = (
            estimate(x, side, y_kinds=kinds, methods=methods, device=device, **FAST)
            for device in ("cpu", "cuda")
        )
        assert there.nats == pytest.approx(here.nats, abs=0.05)


@pytest.mark.parametrize(("folds", "block", "n"), [(2, 1, 0), (4, 1, 0), (0, 40, 200), (0, 1, 60)])
def test_intervals_from_few_values_cover(folds, block, n):
    """4000 normal samples at 95 %, within 4 standard errors; two folds were covered 70 % before."""
    rng = np.random.default_rng(0)
    covered = []
    for _ in range(4000):
        if folds:
            values = (5 + rng.normal(size=folds)).tolist()
            (nats, error), degrees = runs._over_folds(values), folds - 1
        else:
            values = 5 + np.repeat(rng.normal(size=n // block), block)
            nats, (error, degrees) = float(values.mean()), standard_error(values, block)
        row = mb.MethodResult("infonce", "neither", "", nats, error, 0.0)
        head = runs.Outcome([row], error, "", degrees=degrees)
        low, high = estimation._interval(head, 0.95, (math.inf, 0.0))
        covered.append(low <= 5 <= high)
    # An interval ends at zero, which is below the truth.
    assert np.mean(covered) == pytest.approx(0.95, abs=4 * math.sqrt(0.05 * 0.95 / 4000))


def test_folds_have_their_degrees_of_freedom():
    x, y = gaussian(200)
    result = estimate(x, y, methods="infonce", folds=3, **FAST)
    row = result.rows[0]
    assert result.interval[1] - row.nats == pytest.approx(4.3027 * row.error, rel=1e-3)
    given = estimate(x, y, given=x[:, :1], methods="infonce", **FAST)
    width = given.interval[1] - given.nats
    assert width == pytest.approx(12.7062 * given.rows[0].error, rel=1e-3)
    assert given.interval_method == "Student's t, from the spread over 2 folds"


def test_what_grows_widens_only_the_upper_end():
    row = mb.MethodResult("copula_model", "neither", "", 1.0, 0.1, 0.0)
    low, high = estimation._interval(runs.Outcome([row], 0.1, "", growth=0.5), 0.95, (9.0, 0.0))
    assert low == pytest.approx(1 - 1.96 * 0.1, abs=1e-3)
    assert high == pytest.approx(1 + 1.96 * math.hypot(0.1, 1.0), abs=1e-3)
