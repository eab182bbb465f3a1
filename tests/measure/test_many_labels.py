"""Labels of many values take no more memory than the samples, or are told."""

import tracemalloc
from contextlib import contextmanager

import numpy as np
import pytest

import mibounds as mb
from mibounds.measure.tables.variables import read_variables
from mibounds.samples.columns import CELLS, as_columns

N = 6000
rng = np.random.default_rng(0)
NUMBERS = rng.normal(size=N)
NAMES = np.array([f"name {i}" for i in range(N)])
MANY = np.array([f"label {i}" for i in rng.integers(3000, size=N)])  # some twice
FEW = rng.integers(3, size=N)


@contextmanager
def most_bytes(most):
    """The square of the labels would be 72 MB or more."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < most
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "sides", [(NAMES, NUMBERS), (NUMBERS, NAMES), (NAMES, FEW), (NAMES, NAMES)]
)
def test_names_of_rows_are_told_and_not_tried(sides):
    with most_bytes(20e6), pytest.raises(ValueError, match=r"labels that repeat .* 6000 different"):
        mb.estimate(*sides)


@pytest.mark.parametrize("correction", ["none", "miller-madow", "panzeri-treves"])
def test_counts_of_many_labels(correction):
    with most_bytes(20e6):
        assert np.isfinite(mb.PlugIn(correction=correction)(NAMES, MANY))


def test_many_labels_and_numbers():
    with most_bytes(20e6):
        found = mb.estimate(MANY, NUMBERS, methods="ksg_mixed", permutations=2)
    assert found.n == N


@pytest.mark.parametrize("method", ["copula_model", "codes", "infonce"])
def test_what_needs_a_column_for_each_label_says_so(method, monkeypatch):
    monkeypatch.setattr("mibounds.samples.columns.CELLS", 10**6)
    with most_bytes(20e6), pytest.raises(ValueError, match=r"at most \d+ labels .* got \d+; group"):
        mb.estimate(MANY, FEW, methods=method, budget="fast")


def test_a_target_of_many_labels_says_so(monkeypatch):
    monkeypatch.setattr("mibounds.measure.copula_model.models.CELLS", 10**6)
    with pytest.raises(
        ValueError, match=r"at most 166 labels in x for copula_model with 6000 rows"
    ):
        mb.estimate(MANY, NUMBERS, methods="copula_model", budget="fast")


def test_indicators_are_those_of_the_labels():
    side = as_columns("x", np.array([2, 0, 1, 1, 0] * 20), "discrete")
    shown = [[0, 1], [0, 0], [1, 0], [1, 0], [0, 0]]
    assert side.inputs().tolist() == shown * 20
    assert side.inputs(rows=np.array([0, 1, 3])).tolist() == [shown[0], shown[1], shown[3]]
    assert side.inputs(rows=np.array([2, 3])).tolist() == [[1], [1]]
    assert CELLS * 8 < 1e9


def test_rank_and_matrix_leave_out_names_of_rows():
    pandas = pytest.importorskip("pandas")
    columns = {"names": NAMES, "many": MANY, "number": NUMBERS, "few": FEW, "sum": NUMBERS + FEW}
    frame = pandas.DataFrame(columns)
    with most_bytes(40e6):
        found = mb.matrix(frame)
    named = np.isnan(found.nats).any(1) & (np.arange(5) == 0)
    assert named.tolist() == [True] + [False] * 4
    assert np.isfinite(found.nats[1:, 1:][~np.eye(4, dtype=bool)]).all()
    assert [a.code for a in found.warnings] == ["labels-name-rows"]
    assert "4 pairs" in found.warnings[0].message
    with most_bytes(40e6):
        ranked = mb.rank(frame, "sum")
    assert ranked.names[-1] == "names"
    assert ranked.columns[-1].method == "too many labels"
    with pytest.raises(ValueError, match=r"labels that repeat in the target names but got nearly"):
        mb.rank(frame, "names")
    assert [v.names_rows for v in read_variables("x", frame)] == [True] + [False] * 4


def test_columns_are_not_chosen_for_a_target_of_many_labels():
    x = rng.normal(size=(3000, 2))
    y = np.digitize(x[:, 0], np.linspace(-2, 2, 150))
    with pytest.raises(
        ValueError, match=r'at most 100 labels of y for given="selected" but got 15'
    ):
        mb.rank(x, y, given="selected", target_kind="discrete")
