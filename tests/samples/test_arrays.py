"""Samples of any container come in unchanged, or are refused in words."""

from decimal import Decimal

import numpy as np
import pytest
import torch

import mibounds as mb
from mibounds.samples.arrays import find_absent, split_columns, to_array
from mibounds.samples.columns import as_columns, check_repeats, find_missing

rng = np.random.default_rng(0)
LARGE = 2**53
V = rng.normal(size=60)
CODES = np.arange(60) % 2
NAN = float("nan")


def hidden(values, every=7):
    return np.ma.MaskedArray(values, np.arange(len(values)) % every == 0)


@pytest.mark.parametrize(
    "make",
    [
        lambda v: LARGE + v,
        lambda v: np.uint64(2**63) + v.astype(np.uint64),
        lambda v: torch.from_numpy(LARGE + v),
        lambda v: [int(LARGE + k) for k in v],
        lambda v: [(int(LARGE + k), 0.5) for k in v],
        lambda v: np.array([int(LARGE + k) for k in v], dtype=object),
        lambda v: [2**63 + int(k) for k in v],
        lambda v: [2**80 + int(k) for k in v],
        lambda v: np.ma.MaskedArray(LARGE + v, False),
    ],
)
@pytest.mark.parametrize("kind", ["discrete", "continuous", None])
def test_large_whole_numbers_stay_apart(make, kind):
    side = as_columns("x", make(CODES), kind)
    assert side.width == 1
    assert (
        side.values[:, 0].argsort(kind="stable").tolist() == CODES.argsort(kind="stable").tolist()
    )
    assert len(np.unique(side.values)) == 2


def test_numbers_that_are_exact_stay_as_they_are():
    times = 1_700_000_000_000_000_000 + 10**12 * np.arange(60)
    side = as_columns("x", times, "continuous")
    assert side.values[:, 0].tolist() == times.astype(float).tolist()
    assert side.ranked == ()
    assert as_columns("x", times[0] + np.arange(60), "continuous").ranked == ("0",)


@pytest.mark.parametrize("scale", [1e300, 1e-300, 1e-310])
def test_numbers_at_the_limits_have_the_same_mutual_information(scale):
    y = V + rng.normal(size=60)
    expected = mb.estimate(V, y, methods="gaussian").nats
    assert mb.estimate(V * scale, y, methods="gaussian").nats == pytest.approx(expected, abs=1e-9)
    assert mb.KSG()(V * scale, y) == pytest.approx(mb.KSG()(V, y), abs=1e-9)


def test_what_is_masked_is_missing():
    for values in (V, CODES, CODES.astype(bool), np.array(["a", "b"] * 30), LARGE + CODES):
        data = hidden(values)
        assert find_missing("x", data).tolist() == data.mask.tolist()
        with pytest.raises(ValueError, match="drop_missing=True"):
            as_columns("x", data)
        kept = as_columns("x", data, rows=~data.mask)
        assert len(np.unique(kept.values)) == len(np.unique(values[~data.mask]))
    rows = [np.ma.MaskedArray([1.0, 2.0], [False, i == 3]) for i in range(6)]
    assert find_missing("x", rows).nonzero()[0].tolist() == [3]
    with pytest.warns(UserWarning, match="MaskedTensors"):
        tensor = torch.masked.masked_tensor(torch.zeros(3), torch.tensor([True, False, True]))
    assert find_missing("x", tensor).tolist() == [False, True, False]


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    "measure",
    [
        lambda x: mb.estimate(x, CODES),
        lambda x: mb.estimate(V, CODES, given=x),
        lambda x: mb.lags(x, CODES, max_lag=1),
        lambda x: mb.entropy(x),
        lambda x: mb.decompose(x, CODES, CODES),
        lambda x: mb.interaction(x, CODES, CODES),
        lambda x: mb.total_correlation(x, CODES),
        lambda x: mb.PlugIn()(x, CODES),
        lambda x: mb.MixedKSG()(CODES, x),
    ],
)
@pytest.mark.parametrize("values", [V, CODES])
def test_masked_values_are_refused_everywhere(measure, values):
    with pytest.raises(ValueError, match=r"(without|finite).*but got"):
        measure(hidden(values))


def test_masked_values_are_left_out_of_pairs():
    table = np.ma.stack([hidden(V), hidden(V + 0.1 * CODES)], axis=1)
    table.data[table.mask] = 1e9
    assert mb.matrix(table).nats[0, 1] == mb.matrix(table.filled(np.nan)).nats[0, 1]
    assert mb.rank(table[:, :1], table[:, 1]).columns[0].rows == (~table.mask[:, 0]).sum()


def test_columns_of_a_list_keep_their_kinds():
    rows = [[float(v), "u" if c else "v"] for v, c in zip(V, CODES, strict=True)]
    side = as_columns("x", rows)
    assert side.kinds == ("continuous", "discrete")
    assert side.values[:, 0].tolist() == V.tolist()


def test_missing_values_of_every_kind():
    pandas = pytest.importorskip("pandas")
    column = np.array([1, None, NAN, pandas.NA, pandas.NaT, np.ma.masked, "a", [2]], dtype=object)
    assert find_absent(column).tolist() == [False, *[True] * 5, False, False]
    assert not find_absent(np.array([np.zeros(2), np.zeros(2), None], dtype=object)[:2]).any()


def test_frames_series_and_indices_of_pandas():
    pandas = pytest.importorskip("pandas")
    days = pandas.date_range("2020", periods=60, tz="Europe/Berlin")
    for data in (pandas.Series(days), days):
        assert as_columns("x", data).kinds == ("continuous",)
    for kind in ("Int64", "UInt64", "int64[pyarrow]"):
        whole = pandas.Series(LARGE + CODES, dtype=kind)
        assert len(np.unique(as_columns("x", whole).values)) == 2
        gaps = whole.where(CODES + np.arange(60) > 5)
        assert find_missing("x", gaps).sum() == gaps.isna().sum() == 5
        assert len(np.unique(as_columns("x", gaps, rows=~find_missing("x", gaps)).values)) == 2
    pairs = pandas.MultiIndex.from_arrays([CODES, CODES])
    assert as_columns("x", pairs).kinds == ("discrete",)


def test_tables_and_columns_of_arrow():
    pa = pytest.importorskip("pyarrow")
    words = pa.array(["u", "v"] * 30)
    table = pa.table({"a": V, "b": words, "c": words.dictionary_encode(), "d": LARGE + CODES})
    for data in (table, table.to_batches()[0]):
        side = as_columns("x", data)
        assert side.kinds == ("continuous", "discrete", "discrete", "discrete")
        assert side.labels == ("a", "b", "c", "d")
        assert (side.values[:, 1:] == CODES[:, None]).all()
    halves = pa.chunked_array([words[:20], words[20:]])
    assert (as_columns("x", halves).values[:, 0] == CODES).all()
    gaps = pa.array([None, *(LARGE + CODES[1:]).tolist()])
    assert find_missing("x", gaps).tolist() == [True] + [False] * 59
    assert len(np.unique(as_columns("x", gaps, rows=~find_missing("x", gaps)).values)) == 2


def test_other_numbers():
    for data in ([Decimal(str(v)) for v in V], V.astype(np.longdouble), list(torch.tensor(V))):
        assert as_columns("x", data).values[:, 0] == pytest.approx(V)
    low = torch.randn(60).half()
    assert to_array("x", -1 * low).tolist() == (-low.double()).tolist()
    imaginary = torch.complex(low.float(), low.float()).conj().imag
    assert to_array("x", imaginary).tolist() == (-low.double()).tolist()


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("data", "message"),
    [
        (torch.zeros(60, 2).to_sparse(), "dense tensor but got a sparse one; pass .to_dense"),
        (torch.zeros(60, 2, device="meta"), "on the device meta, which has none; make it"),
        ((v for v in V), "one sample per row but got a single generator; pass an array"),
        ({"a": V}, "one sample per row but got a single dict; pass"),
        ({1.0, 2.0}, "got a single set"),
        ("text", "got a single str"),
        (b"bytes", "got a single bytes"),
        (V + 1j, "numbers or labels in column 0 of x but got complex128; convert"),
        (np.zeros(60, dtype=[("a", float)]), "records to columns"),
        (np.array([{"a": 1}] * 60), "but got values such as a dict; give each value a column"),
        (np.array([[0.0, 1.0], None] * 30, dtype=object), "without missing values but got 30"),
        ([10.0**300, 10**400] * 30, "up to 1e308 in column 0 of x but got larger ones; pass their"),
        ([], "rows and columns but got none"),
        (np.zeros((60, 0)), "rows and columns but got none"),
        (np.where(np.arange(60) == 3, np.inf, V), "finite numbers .* got inf in 1 of 60"),
    ],
)
def test_what_holds_no_samples_is_refused(data, message):
    with pytest.raises(ValueError, match=message):
        as_columns("x", data)


def test_sparse_and_nested_samples_are_refused(recwarn):
    scipy = pytest.importorskip("scipy.sparse")
    with pytest.raises(
        ValueError, match=r"dense array but got a sparse csr_array; pass its .toarr"
    ):
        as_columns("x", scipy.csr_array(V[:, None]))
    nested = torch.nested.nested_tensor([torch.zeros(2), torch.zeros(3)], layout=torch.jagged)
    with pytest.raises(ValueError, match=r"got a nested one; pass"):
        as_columns("x", nested)


def test_labels_of_plug_in_can_be_told_apart():
    lists = np.empty(60, dtype=object)
    lists[:] = [[1]] * 60
    with pytest.raises(ValueError, match="labels in x but got values such as a list; give each"):
        mb.PlugIn()(lists, CODES)


def test_columns_are_named():
    assert split_columns("x", np.zeros((3, 2)))[1] == ["0", "1"]


def test_labels_that_name_the_rows_are_told():
    names = np.array([f"row {i}" for i in range(60)])
    with pytest.raises(
        ValueError, match=r"repeat in column 0 of x but got 60 .* in 60 rows; leave"
    ):
        check_repeats(as_columns("x", names))
    names[:7] = "row 0"
    assert check_repeats(as_columns("x", names)).width == 1
    assert check_repeats(as_columns("x", V)).width == 1
