"""Samples of any form as columns of a kind."""

import numpy as np
import pytest
import torch
from torch.utils.data import IterableDataset, TensorDataset

from mibounds.samples.columns import (
    as_columns,
    break_ties,
    find_missing,
    normal_scores,
    split_dataset,
)

rng = np.random.default_rng(0)


class Frame:
    """As much of a data frame as is used."""

    def __init__(self, **columns):
        self.data = columns
        self.columns = list(columns)
        self.dtypes = [c.dtype for c in columns.values()]

    def __getitem__(self, name):
        return Series(name, self.data[name])


class Series:
    def __init__(self, name, values, dtype=None):
        self.name, self.values, self.dtype = name, values, dtype or values.dtype

    def to_numpy(self):
        return self.values


@pytest.mark.parametrize(
    ("data", "kinds"),
    [
        (rng.normal(size=(100, 2)), ("continuous", "continuous")),
        (rng.integers(0, 5, 100), ("discrete",)),
        (rng.integers(0, 5, 100).astype(float), ("discrete",)),
        (np.arange(100), ("continuous",)),
        (np.arange(100) % 5, ("discrete",)),  # 20 rows of each
        (np.arange(100) % 6, ("continuous",)),
        (np.arange(2000) % 50, ("discrete",)),
        (np.arange(2000) % 51, ("continuous",)),
        (np.arange(10) % 2, ("discrete",)),  # two values are always labels
        (np.arange(10) % 2 / 2, ("continuous",)),
        (np.repeat([True, False], 50), ("discrete",)),
        (np.repeat(["a", "b"], 50), ("discrete",)),
        (np.array(["a", "b", "c"] * 30, dtype=object), ("discrete",)),
        (np.array([0.5, 1.5, 2.5] * 30, dtype=object), ("continuous",)),
        (torch.randn(100, 3, dtype=torch.bfloat16), ("continuous",) * 3),
        (torch.randn(100, 2, 2), ("continuous",) * 4),
        ([[0.5, 1.25], [2.5, 3.5], [0.1, 0.2]], ("continuous", "continuous")),
        (Frame(a=rng.normal(size=90), b=np.repeat(["u", "v"], 45)), ("continuous", "discrete")),
        (Series("s", rng.normal(size=90)), ("continuous",)),
        (Series("s", rng.normal(size=90), "category"), ("discrete",)),
    ],
)
def test_kinds_are_recognised(data, kinds):
    assert as_columns("x", data).kinds == kinds


def test_kinds_can_be_said():
    values = rng.integers(0, 3, (60, 2))
    assert as_columns("x", values, "continuous").kinds == ("continuous", "continuous")
    assert as_columns("x", values, ["continuous", "discrete"]).kinds == ("continuous", "discrete")


def test_names_are_those_of_the_frame_and_constants_are_left_out():
    columns = as_columns("x", Frame(a=rng.normal(size=30), b=np.ones(30), c=rng.normal(size=30)))
    assert columns.labels == ("a", "c")
    assert columns.width == 2


def test_inputs_are_standardised_numbers_and_indicators():
    columns = as_columns("x", Frame(a=1e200 * rng.normal(size=60) + 5e200, b=np.arange(60) % 3))
    inputs = columns.inputs()
    assert inputs.shape == (60, 3)
    np.testing.assert_allclose(inputs[:, 0].mean(), 0, atol=1e-9)
    np.testing.assert_allclose(inputs[:, 0].std(), 1)
    np.testing.assert_array_equal(inputs[:, 1:], np.eye(3)[np.arange(60) % 3][:, 1:])


def test_codes_join_all_columns():
    codes, count = as_columns("x", [[0, 0], [0, 1], [1, 1], [0, 0]] * 10, "discrete").codes()
    assert count == 3
    assert codes[0] == codes[3] != codes[1]


def test_normal_scores_are_quantiles_at_the_ranks_whatever_the_scale():
    values = rng.normal(size=1000)
    scores = normal_scores(values)
    np.testing.assert_allclose(scores, normal_scores(np.exp(5 * values)), atol=1e-12)
    np.testing.assert_allclose(
        np.sort(scores)[[0, 499, 999]], [-3.2905, -0.00125, 3.2905], atol=1e-4
    )
    assert (np.argsort(scores) == np.argsort(values)).all()
    tied = normal_scores(np.array([1.0, 2.0, 2.0, 3.0]))
    assert tied[1] == tied[2] == pytest.approx(0, abs=1e-12)


def test_columns_know_whether_they_are_normal_scores():
    columns = as_columns("x", Frame(a=rng.normal(size=60), b=np.arange(60) % 3))
    assert not columns.normal
    assert not columns.take("continuous").normal
    scored = columns.scored()
    assert scored.normal
    part = scored.take("continuous")
    assert part.normal
    assert (part.name, part.kinds, part.labels) == ("x", ("continuous",), ("a",))
    np.testing.assert_array_equal(part.values[:, 0], normal_scores(columns.values[:, 0]))
    np.testing.assert_array_equal(scored.values[:, 1], columns.values[:, 1])


@pytest.mark.parametrize(
    ("data", "kinds", "message"),
    [
        ([1.0, float("nan"), 2.0], None, "finite numbers in column 0 of x but got nan in 1 of 3"),
        ([1.0, 2.0, float("inf")], None, "inf in 1 of 3 rows, the first in row 2"),
        (["a", None, "b"], None, "without missing values but got 1, the first in row 1"),
        (
            Series("s", np.array(["a", "b", float("nan")], dtype=object), "category"),
            None,
            "column s of x without missing values but got 1, the first in row 2",
        ),
        (np.array(["a", "b"]), "continuous", "Expected numbers in column 0 of x but got text"),
        (np.array(["2020-01-01", "NaT"], dtype="datetime64[D]"), None, "without missing values"),
        (np.array([1j, 2j]), None, "Expected numbers or labels"),
        (np.empty((0, 3)), None, "rows and columns but got none"),
        (np.empty((3, 0)), None, "rows and columns but got none"),
        (3.0, None, "one sample per row but got a single float"),
        ([[1.0, 2.0], [3.0]], None, "rows of one length"),
        ([[1.0, 2.0], [3.0, 5.0]], ["continuous"], "kind for each of 2 columns but got 1"),
        ([1.0, 2.0], "ordinal", "a kind .* but got 'ordinal'"),
    ],
)
def test_what_is_no_table_is_refused(data, kinds, message):
    with pytest.raises(ValueError, match=message):
        as_columns("x", data, kinds)


def test_data_sets_of_pairs():
    x, y = split_dataset(TensorDataset(torch.randn(6, 3), torch.arange(6)))
    assert x.shape == (6, 3)
    assert y.tolist() == list(range(6))
    with pytest.raises(ValueError, match="pairs"):
        split_dataset(TensorDataset(torch.randn(6, 3)))

    class Stream(IterableDataset):
        def __iter__(self):
            yield from range(3)

    with pytest.raises(ValueError, match="known length"):
        split_dataset(Stream())


def test_ties_are_broken_within_their_cell():
    """The noise is smaller than half the way to the next value: rounding removes it."""
    v = np.random.default_rng(1).integers(0, 20, 500) / 4
    smooth = break_ties(v, np.random.default_rng(2))
    assert len(set(smooth)) == 500
    assert (np.round(smooth * 4) / 4 == v).all()
    alone = np.random.default_rng(3).normal(size=50)
    assert (break_ties(alone, np.random.default_rng(2)) == alone).all()


def test_both_sides_of_the_same_rounded_column_get_noise_of_their_own():
    v = np.random.default_rng(1).normal(size=400).round(1)
    x, y = as_columns("x", v), as_columns("y", v)
    assert (x.values == y.values).all()
    noise = [side.smooth[:, 0] - v for side in (x, y)]
    assert abs(np.corrcoef(noise)[0, 1]) < 0.15
    scored = x.scored()
    assert len(np.unique(scored.smooth)) == 400 > len(np.unique(scored.values))


def test_many_columns_of_whole_numbers_are_numbers():
    pixels = np.random.default_rng(0).integers(0, 17, (400, 12))
    assert as_columns("x", pixels).kinds == ("continuous",) * 12
    assert as_columns("x", pixels[:, :9]).kinds == ("discrete",) * 9
    assert as_columns("x", pixels, "discrete").kinds == ("discrete",) * 12
    assert as_columns("x", pixels.astype(str)).kinds == ("discrete",) * 12


def test_columns_of_pandas_of_every_kind():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(
        {
            "count": pandas.array([1, None, 3], dtype="Int64"),
            "flag": pandas.array([True, False, None], dtype="boolean"),
            "name": pandas.array(["a", "b", "c"], dtype="string"),
            "day": pandas.to_datetime(["2020-01-01", "2020-01-03", "2020-01-09"]),
        }
    )
    missing = find_missing("x", frame)
    assert missing.tolist() == [False, True, True]
    kept = as_columns("x", frame[["name", "day"]])
    assert kept.kinds == ("discrete", "continuous")
    days = kept.values[:, 1]
    assert (days[2] - days[1]) == 3 * (days[1] - days[0])
    with pytest.raises(ValueError, match=r"column count of x .* drop_missing=True"):
        as_columns("x", frame)


def test_constant_columns_are_left_out_by_name():
    side = as_columns("x", [[1.0, 2.0], [1.0, 3.0], [1.0, 5.0]])
    assert (side.width, side.labels, side.constant) == (1, ("1",), ("0",))
    assert as_columns("x", [3.0, 3.0, 3.0]).width == 0


def test_the_entropy_of_labels():
    fair = as_columns("y", np.arange(1000) % 4)
    assert fair.entropy == pytest.approx((np.log(4) + 3 / 2000, 0), abs=1e-9)
    value, error = as_columns("y", np.arange(1000) % 5 == 0).entropy
    spread = np.std(np.log([0.2] * 200 + [0.8] * 800))
    assert (value, error) == pytest.approx((0.5004 + 0.0005, spread / 1000**0.5), abs=1e-4)
    assert as_columns("x", rng.normal(size=20)).entropy == (float("inf"), 0.0)


def test_masked_values_are_missing():
    data = np.ma.MaskedArray([1.5, 2.5, 3.5], mask=[False, True, False])
    assert find_missing("x", data).tolist() == [False, True, False]
    with pytest.raises(ValueError, match="nan in 1 of 3 rows"):
        as_columns("x", data)


def test_labels_of_large_integers_stay_apart():
    """As floating-point numbers they are equal."""
    ids = 2**53 + np.arange(100) % 2
    side = as_columns("y", ids)
    assert side.kinds == ("discrete",)
    assert side.values[:, 0].tolist() == (np.arange(100) % 2).tolist()
