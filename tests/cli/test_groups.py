"""A column that says which rows belong together."""

import json

import numpy as np
import pytest

from mibounds.cli import main


@pytest.fixture
def data(tmp_path, monkeypatch):
    """Three copies of each of 60 rows."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=60), rng.integers(3, size=60)
    lines = [f"{x[i]},{y[i]},patient {i},{i % 7}" for i in range(60)] * 3
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data.csv").write_text("\n".join(["x,y,who,where", *lines]))


def test_rows_of_a_group_stay_together(data, capfd):
    main(["estimate", "data.csv", "--groups", "who", "--budget", "fast", "--json"])
    found = json.loads(capfd.readouterr().out)
    assert found["config"]["groups"] == 60
    assert found["x"] == ["x"]
    assert found["interval"][0] == 0
    assert "duplicated-rows" not in [w["code"] for w in found["warnings"]]


def test_groups_are_one_column_of_their_own(data, capfd):
    for flag, message in (
        ("who,where", "groups as one column"),
        ("x", "--groups"),
        ("whose", "whose"),
    ):
        assert main(["estimate", "data.csv", "--groups", flag, "--budget", "fast"]) == 2
        assert message in capfd.readouterr().err
