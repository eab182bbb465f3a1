"""Odd columns side by side: a result that can be, the same each time, or one clear line."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from odd_values import CALLS, COLUMNS, USABLE, Broken, check_table, check_value, frame

TABLES = st.builds(
    frame,
    st.lists(st.sampled_from(USABLE), min_size=2, max_size=4),
    st.lists(st.integers(0, 3), max_size=1),
    st.sampled_from([3, 20, 21, 40]),
    st.integers(0, 2**32 - 1),
)


def quick(examples):
    return settings(max_examples=examples, deadline=None, derandomize=True)


@quick(10)
@given(TABLES)
def test_an_estimate_of_any_columns(table):
    assert check_table(table, CALLS["estimate"]) in ("number", "warning", "line")


@quick(40)
@given(TABLES, st.sampled_from(["rank", "matrix"]))
def test_tables_of_any_columns(table, call):
    assert check_table(table, CALLS[call]) in ("number", "warning", "line")


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("kind", COLUMNS)
def test_every_kind_of_column_beside_numbers(call, kind):
    table = frame([kind, "normal"], [], 40, 0)
    found = check_table(table, CALLS[call])
    assert found in ("number", "warning", "line")
    if kind in ("infinite", "complex", "lists"):
        assert found == "line"


@pytest.mark.parametrize(
    "odd",
    [
        lambda table: (_ for _ in ()).throw(TypeError("unhashable")),
        lambda table: check_value(np.nan, 0.0, 1.0),
        lambda table: check_value(-0.1, -0.2, 1.0),
        lambda table: check_value(0.8, 0.2, 1.0, 0.7),
        lambda table: check_value(0.8, 0.9, 1.0),
        lambda table: np.float64(1) / np.float64(0),
    ],
)
def test_what_cannot_be_is_found(odd):
    with pytest.raises(Broken):
        check_table(pd.DataFrame(), odd)
