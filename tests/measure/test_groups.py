"""Copies of rows are noticed in columns of every kind, and rows of a group stay together."""

import numpy as np
import pytest
import torch

import mibounds as mb
from mibounds.measure import diagnostics, runs
from mibounds.measure.copula_model import Effort
from mibounds.measure.copula_model.gaussian_regressions import gaussian_information
from mibounds.measure.splits import (
    fold_rows,
    permute_rows,
    some_rows,
    standard_error,
)
from mibounds.samples.columns import as_columns

TIMES = 10
rng = np.random.default_rng(0)
NUMBERS, LABELS = rng.normal(size=(200, 3)), rng.integers(5, size=200)
COLUMNS = {
    "numbers": NUMBERS[:, 0],
    "rounded": NUMBERS[:, 0].round(1),
    "several": NUMBERS,
    "labels": rng.integers(50, size=200),
    "several labels": rng.integers(6, size=(200, 3)),
    "text": np.array([f"label {i}" for i in rng.integers(150, size=200)]),
    "mixed": np.column_stack([NUMBERS[:, 0].round(1), rng.integers(3, size=200)]),
}


def tile(values):
    return np.concatenate([values] * TIMES)


GROUPS = tile(np.arange(200))


def advice(x, y, groups=None):
    x, y = as_columns("x", x).scored(), as_columns("y", y).scored()
    return [a.code for a in diagnostics.look_at_samples(x, y, None, groups)]


@pytest.mark.parametrize("kind", COLUMNS)
def test_copies_are_noticed_in_every_kind_of_column(kind):
    x = COLUMNS[kind]
    assert "duplicated-rows" in advice(tile(x), tile(LABELS))
    assert "duplicated-rows" in advice(tile(LABELS), tile(x))
    assert "duplicated-rows" not in advice(tile(x), tile(LABELS), GROUPS)
    assert "duplicated-rows" in advice(tile(x), tile(LABELS), np.arange(2000))
    assert "duplicated-rows" not in advice(x, LABELS)


@pytest.mark.parametrize(
    ("x", "y"),
    [
        (rng.integers(40, size=4000), rng.integers(5, size=4000)),  # many rows of each cell
        (np.repeat(np.arange(20), 100), np.tile(np.arange(5), 400)),  # a design: every cell
        (np.arange(2000) % 40, np.arange(2000) % 40 // 4),  # a function, of few labels
        (NUMBERS[:, :2].round(), LABELS),
        (rng.normal(size=3000).round(1), rng.integers(2, size=3000)),
        (rng.poisson(40, size=3000), rng.poisson(3, size=3000)),
    ],
)
def test_rows_that_are_alike_by_chance_are_no_copies(x, y):
    assert "duplicated-rows" not in advice(x, y)


@pytest.mark.usefixtures("tiny_effort")
@pytest.mark.parametrize("kind", ["rounded", "labels", "mixed"])
def test_with_groups_copies_share_nothing(kind):
    x = tile(COLUMNS[kind])
    plain = mb.estimate(x, tile(LABELS), methods="copula_model", budget="fast")
    grouped = mb.estimate(x, tile(LABELS), groups=GROUPS, budget="fast")
    assert grouped.interval[0] == 0
    assert grouped.nats < 0.02
    assert grouped.method == "copula_model"
    assert grouped.config["groups"] == 200
    assert "duplicated-rows" in {a.code for a in plain.warnings}
    assert "duplicated-rows" not in {a.code for a in grouped.warnings}


@pytest.mark.usefixtures("tiny_effort")
def test_with_groups_what_is_shared_is_found():
    y = NUMBERS[:, 0] + rng.normal(size=200)
    found = mb.estimate(tile(NUMBERS), tile(y), groups=GROUPS, budget="fast", permutations=19)
    assert found.interval[0] < np.log(2) / 2 < found.interval[1]
    assert found.p_value == 0.05
    once = mb.estimate(NUMBERS, y, methods="copula_model", budget="fast")
    assert found.rows[0].error == pytest.approx(once.rows[0].error, rel=0.3)
    assert found.nats == pytest.approx(once.nats, abs=0.1)


def test_a_linear_fit_to_copies_gains_no_more_than_one_to_each_once():
    x, y = rng.normal(size=(2, 200, 8))
    once, _ = gaussian_information(x, y, x[:, :0])
    copied, _ = gaussian_information(tile(x), tile(y), tile(x[:, :0]))
    grouped, shares = gaussian_information(tile(x), tile(y), tile(x[:, :0]), GROUPS)
    assert copied > once + 0.1
    assert grouped == pytest.approx(once, abs=0.04)
    assert shares.mean() == pytest.approx(grouped)
    z = rng.normal(size=(200, 2))
    once, _ = gaussian_information(x, y, z)
    grouped, _ = gaussian_information(tile(x), tile(y), tile(z), GROUPS)
    assert grouped == pytest.approx(once, abs=0.04)


@pytest.mark.parametrize("name", ["kernels", "gaussian", "codes"])
def test_the_test_permutes_groups(name):
    groups, p_values = np.repeat(np.arange(60), 5), {True: [], False: []}
    for seed in range(20):
        x, y = np.random.default_rng(seed).normal(size=(2, 60))
        sides = [as_columns(n, v[groups]).scored() for n, v in (("x", x), ("y", y))]
        for known, found in p_values.items():
            own = groups if known else None
            folds = fold_rows(300, 2, 1, 0, own)
            problem = runs.Problem(
                *sides, None, folds, Effort(), 1, seed, torch.device("cpu"), lambda part: None, own
            )
            value, null = runs.permute(name, problem, 19)
            found.append((1 + sum(v >= value for v in null)) / 20)
    assert sum(p <= 0.05 for p in p_values[True]) <= 3  # one of twenty by chance
    assert 0.3 < np.mean(p_values[True]) < 0.75
    assert np.mean(p_values[False]) < np.mean(p_values[True]) - 0.1


def test_groups_stay_in_one_fold():
    groups = np.unique(rng.integers(60, size=1000) ** 2 // 60, return_inverse=True)[1]
    folds = fold_rows(1000, 4, 1, 0, groups)
    assert sorted(np.concatenate(folds).tolist()) == list(range(1000))
    seen = [set(groups[fold]) for fold in folds]
    assert sum(map(len, seen)) == groups.max() + 1
    assert max(map(len, folds)) - min(map(len, folds)) < np.bincount(groups).max()
    for fold in folds:  # one group after the other
        assert np.count_nonzero(np.diff(groups[fold])) == len(set(groups[fold])) - 1
    assert [f.tolist() for f in folds] != [f.tolist() for f in fold_rows(1000, 4, 1, 1, groups)]


def test_groups_change_places():
    groups = np.repeat(np.arange(50), 4)
    order = permute_rows(200, 1, np.random.default_rng(0), groups)
    assert sorted(order) == list(range(200))
    assert (order.reshape(50, 4) == order[::4, None] + np.arange(4)).all()
    rows = some_rows(200, 100, 1, np.random.default_rng(0), groups)
    assert len(rows) == 100
    assert len(set(groups[rows])) == 25


def test_errors_are_those_of_groups():
    values = rng.normal(size=200)
    assert standard_error(tile(values), 1, GROUPS) == pytest.approx(standard_error(values, 1))
    sizes = rng.integers(1, 9, size=100)
    means = rng.normal(size=(2000, 100))
    groups = np.repeat(np.arange(100), sizes)
    found = [standard_error(np.repeat(m, sizes), 1, groups)[0] for m in means[:200]]
    spread = (means @ sizes / sizes.sum()).std()
    assert np.mean(found) == pytest.approx(spread, rel=0.1)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"groups": np.arange(199)}, "a label for each row but got 199 in 1 columns; pass"),
        ({"groups": np.zeros((200, 2))}, "a label for each row but got 200 in 2 columns"),
        ({"groups": np.arange(200) % 4}, "at least 5 groups but got 4; pass more"),
        ({"groups": np.zeros(200)}, "at least 5 groups but got 1"),
        ({"groups": np.arange(200) % 6, "folds": 7}, "at least 7 groups but got 6"),
        ({"groups": [None, *range(199)]}, "groups without missing values but got 1"),
        ({"groups": np.arange(200), "block": 2}, "groups without block, .* leave one"),
        (
            {"groups": np.arange(200), "given": NUMBERS[:, 2], "permutations": 9},
            "without a test given z",
        ),
    ],
)
def test_groups_that_cannot_be_used_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        mb.estimate(NUMBERS[:, 0], LABELS, **options)


@pytest.mark.usefixtures("tiny_effort")
def test_groups_follow_the_rows_that_are_kept():
    x, y, groups = tile(NUMBERS[:, 0]), tile(LABELS), GROUPS.astype(str)
    x = np.where(np.arange(2000) % 9 == 0, np.nan, x)
    kept = ~np.isnan(x)
    found = mb.estimate(x, y, groups=groups, drop_missing=True, budget="fast")
    alone = mb.estimate(x[kept], y[kept], groups=groups[kept], budget="fast")
    assert found.nats == alone.nats
    assert found.interval == alone.interval


def test_methods_that_do_not_know_groups_say_so():
    for method in ("gaussian", "ksg"):
        found = mb.estimate(
            NUMBERS[:, 0], NUMBERS[:, 1], groups=np.arange(200) // 2, methods=method
        )
        assert f"{method}-ungrouped" in {a.code for a in found.warnings}
