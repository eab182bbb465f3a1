"""The smoothed curves of Figure 1."""

import numpy as np
import pytest

from experiments.estimation.curves import moving_average
from experiments.runner.records import read_records


def test_the_moving_average_is_that_of_pandas():
    pd = pytest.importorskip("pandas")
    values = np.random.default_rng(0).normal(size=300)
    expected = pd.Series(values).ewm(span=200).mean().to_numpy()
    assert moving_average(values, 200) == pytest.approx(expected)


def test_quick(run, tmp_path, unchecked):
    """All that differs from the experiment on quality, by some of the methods."""
    name = "estimation-curves"
    few = ["--methods", "vub", "doe_copula", "--tasks", "gaussian", "cubic-w"]
    run(name, "--quick", *few, "--jobs", 1, "--out", tmp_path)
    records = read_records(tmp_path / name)
    assert len(records) == (1 + 2) * 2 * 2
    for record in records:
        (curve,) = (row for row in record.rows if row["metric"] == "curve")
        assert len(curve["value"]) == 12  # 6 steps at 2 levels
        assert {row["metric"] for row in record.rows} == {"curve", "mse", "bias", "variance"}
        assert record.command.startswith("python -m experiments estimation-curves --quick")
    for mode in ("as-published", "correct"):
        assert (tmp_path / name / f"{name}-{mode}.svg").read_bytes().startswith(b"<?xml")
