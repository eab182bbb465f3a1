"""Canonical codes: never above the truth, and near it where x and y have many columns."""

import math

import numpy as np
import pytest
import torch

import mibounds as mb
from mibounds.bounds import infonce
from mibounds.measure import canonical_codes
from mibounds.measure.canonical_codes import CanonicalCodes, Codes, row_shares
from mibounds.measure.splits import fold_rows, split_rows
from mibounds.samples.columns import as_columns


def measure(x, y, folds=3, seed=0):
    sides = as_columns("x", x).scored(), as_columns("y", y).scored()
    return CanonicalCodes(seed).measure(*sides, fold_rows(len(x), folds, 1, seed))


def shared_label(n, nats_of, seed, columns=60):
    """Two sides of many columns around places that belong to a label."""
    rng = np.random.default_rng(seed)
    label = rng.integers(2, size=n)
    other = np.where(rng.random(n) < nats_of, label, 1 - label)
    places = 0.6 * rng.normal(size=(2, 2, columns))
    x = places[0, label] + rng.normal(size=(n, columns))
    y = places[1, other, : columns // 2] + rng.normal(size=(n, columns // 2))
    return x, y


def test_shares_of_rows_are_those_of_infonce():
    scores = np.random.default_rng(0).normal(size=(7, 7))
    scores = torch.from_numpy(scores)
    assert row_shares(scores).mean().item() == pytest.approx(infonce(scores).item())


@pytest.mark.parametrize("gaussian", [True, False])
def test_the_log_ratio_of_codes_is_the_plain_equation(gaussian):
    rng = np.random.default_rng(1)
    u, v, rho = rng.normal(size=(5, 2)), rng.normal(size=(5, 2)), np.array([0.6, 0.2])
    found = Codes(*map(torch.from_numpy, (u, v, rho)), gaussian).log_ratios().numpy()
    for i in range(5):
        for j in range(5):
            if gaussian:
                rest = 1 - rho**2
                square = (u[i] - rho * v[j]) ** 2 / rest - u[i] ** 2
                want = (-0.5 * np.log(rest) - 0.5 * square).sum()
            else:
                want = math.log(max(0.05, 1 + (rho * u[i] * v[j]).sum()))
            assert found[i, j] == pytest.approx(want)


def test_many_columns_that_share_a_label():
    """The label of either side is all but certain, so that the channel is what they share."""
    right = 0.9
    truth = math.log(2) + right * math.log(right) + (1 - right) * math.log(1 - right)
    found = measure(*shared_label(2000, right, 0))
    error = found.pointwise.std() / math.sqrt(2000)
    assert truth - 0.12 < found.nats < truth + 3 * error


def test_independent_sides_share_nothing():
    values = []
    for seed in range(5):
        x, y = shared_label(600, 0.5, seed)
        values.append(measure(x, y, seed=seed).nats)
    assert max(values) < 0.02


@pytest.mark.parametrize("name", ["gaussian-dense", "swiss-roll", "student-3", "labelled-uniform"])
def test_it_is_a_lower_bound(name):
    task = mb.TASKS[name]
    x, y = task.sample(1500, seed=3)
    found = measure(x, y)
    error = found.pointwise.std() / math.sqrt(1500)
    assert 0.3 * task.mutual_information < found.nats < task.mutual_information + 3 * error


@pytest.mark.parametrize("n", [6, 9, 12])
def test_a_single_row_that_chooses_leaves_no_numbers_out(n):
    x = np.random.default_rng(0).normal(size=(n, 1))
    assert measure(x, x + 0.1).nats == 0  # and no warning


def test_a_label_of_one_row_may_be_missing_where_codes_are_fitted():
    label = np.array(["no"] * 39 + ["yes"])
    for seed in range(4):
        y = np.random.default_rng(seed).normal(size=(40, 1))
        assert measure(label, y, seed=seed).nats <= 0.2


def test_codes_do_not_see_the_rows_that_they_are_judged_by():
    x, y = shared_label(400, 0.9, 0)
    folds = fold_rows(400, 2, 1, 0)
    train, check = split_rows(folds, 0)
    values = []
    for order in (1, -1):  # other partners, but the same marginals, which all rows may shape
        changed = y.copy()
        changed[folds[0]] = y[folds[0]][::order]
        sides = as_columns("x", x), as_columns("y", changed)
        codes = CanonicalCodes().fit(*sides, train, check, folds[1][:1])
        values.append((codes.quality, *codes.correlations.tolist(), *codes.u[0].tolist()))
    assert values[0] == pytest.approx(values[1], rel=1e-6)


def test_too_many_labels_are_refused_before_memory_is_taken():
    names = np.array([f"person {i}" for i in range(1001)])
    with pytest.raises(ValueError, match="at most 1000 labels in x for codes but got 1001"):
        measure(names, np.random.default_rng(0).normal(size=1001))


def test_everything_is_computed_on_the_device_that_is_asked_for():
    """The meta device holds no numbers, and refuses to be mixed with another."""
    rng = np.random.default_rng(0)
    x = as_columns("x", np.hstack([rng.normal(size=(90, 70)), rng.integers(2, size=(90, 1))]))
    train = torch.arange(60, device="meta")
    a = canonical_codes._features(x, train, rng, "meta")
    left, right = next(canonical_codes._directions(a[train], a[train, :9]))
    assert (left.device.type, right.shape) == ("meta", (9, 9))
    u = canonical_codes._standardised(a @ left[:, :9], train)
    for gaussian in (True, False):
        codes = Codes(u, u, torch.ones(9, device="meta", dtype=torch.float64), gaussian)
        assert row_shares(codes.log_ratios(train)).device.type == "meta"
