"""Mean and spread over seeds, and the tables that show them."""

import pytest

from experiments.runner.summaries import Summary, summarise, tabulate


def row(value, metric="mse", task="one-2"):
    return {"task": task, "metric": metric, "value": value}


def test_spread_over_seeds():
    cells = [("correct", "club", seed, [row(value)]) for seed, value in enumerate((1.0, 2.0, 6.0))]
    assert summarise(cells, {}) == [
        Summary("correct", "one-2", "club", "mse", 3.0, pytest.approx(7**0.5), 3, None)
    ]
    (alone,) = summarise(cells[:1], {})
    assert (alone.mean, alone.sd) == (1.0, None)
    (broken,) = summarise([*cells, ("correct", "club", 3, [row(None)])], {})
    assert (broken.mean, broken.sd, broken.seeds) == (None, None, 4)
    assert broken.text == "not finite"


def test_metrics_of_oracles_are_shown_and_others_are_not():
    rows = [row(1.0, "accuracy_oracle"), row(1.0, "curve"), row(0.5, "seconds")]
    metrics = [each.metric for each in summarise([("recipe", "club", 0, rows)], {})]
    assert metrics == ["accuracy_oracle", "seconds"]


def test_levels_of_a_family_make_a_table():
    tasks = ("cubic-2", "cubic-10", "cubic-w-2", "mnist-usps", "usps-mnist")
    summary = [Summary("correct", task, "club", "mse", 1.0, 0.5, 2, None) for task in tasks]
    text = tabulate(summary)
    assert "| method | cubic-2 | cubic-10 |" in text
    assert "| method | cubic-w-2 |" in text
    assert "| method | mnist-usps | usps-mnist |" in text
    assert text.count("| club | 1.00 ± 0.50 |") == 3
