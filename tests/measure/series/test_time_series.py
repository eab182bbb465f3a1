"""How much one series says of another, earlier or later."""

import json
import math

import numpy as np
import pandas as pd
import pytest

import mibounds as mb
from mibounds.measure.series.pairs import choose_past, lag_window, transfer_window
from mibounds.measure.series.reports import write_lag_report

QUICK = {"max_lag": 4, "permutations": 39}


def lagged(n=600, lag=3, rho=0.6, seed=0, weight=1.0):
    """x, and y that follows it after some rows."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=n + lag)
    for t in range(1, n + lag):
        x[t] = rho * x[t - 1] + math.sqrt(1 - rho**2) * x[t]
    y = weight * x[:n] + rng.normal(size=n)
    return x[lag:], y


def codes_of(found):
    return {w.code for w in found.warnings}


def test_the_lag_and_the_value():
    x, y = lagged(2000)
    found = mb.lags(x, y, max_lag=5)
    assert [row.lag for row in found.rows] == list(range(-5, 6))
    assert found.best.lag == 3
    low, high = found.best.interval
    assert low < 0.5 * math.log(2) < high
    assert found.best.p_value == 1 / 200
    assert found.at(-5).p_value > 0.05
    back = mb.lags(y, x, max_lag=5)
    assert back.best.lag == -3
    assert back.best.nats == pytest.approx(found.best.nats)
    assert [row.n for row in found.rows] == [2000 - abs(k) for k in range(-5, 6)]
    with pytest.raises(ValueError, match=r"^Expected a lag from -5 to 5 but got 6;"):
        found.at(6)


def test_what_the_past_knows_is_taken_away():
    x, y = lagged(1500, rho=0.9)
    plain = mb.lags(x, y, **QUICK)
    given = mb.lags(x, y, given_past=2, **QUICK)
    assert [row.lag for row in given.rows] == [-4, -3, -2, -1, 1, 2, 3, 4]
    assert plain.at(1).nats > 0.2
    assert given.at(3).nats < plain.at(3).nats
    assert given.best.lag == 3
    assert given.given_past == 2
    assert given.at(-2).p_value > 0.05


def test_transfer_entropies_have_a_direction():
    x, y = lagged(1500, lag=2)
    ahead, back = mb.lags(x, y, transfer=True, **QUICK).transfers
    assert (ahead.source, ahead.target, back.source, back.target) == ("x", "y", "y", "x")
    assert ahead.source_past >= 2
    assert ahead.p_value == 1 / 40
    assert ahead.interval[0] > 0.1
    assert back.p_value > 0.05
    assert back.interval[0] == 0
    given = mb.lags(x, y, transfer=True, given_past=3, **QUICK).transfers
    assert [t.target_past for t in given] == [3, 3]
    assert given[0].source_past >= 2


def test_curves_are_seen_where_the_gaussian_copula_is_blind():
    x, _ = lagged(1000, rho=0.5)
    y = np.r_[np.zeros(2), x[:-2] ** 2] + 0.5 * np.random.default_rng(1).normal(size=1000)
    found = mb.lags(x, y, **QUICK)
    assert found.method == "neighbours"
    assert found.best.lag == 2
    assert found.best.nats > 0.3
    assert mb.lags(x, y, method="gaussian", **QUICK).at(2).nats < 0.1
    assert mb.lags(*lagged(1000, rho=0.9), **QUICK).method == "gaussian"


def test_labels_are_counted():
    rng = np.random.default_rng(0)
    x = rng.choice(["rain", "sun"], 800)
    y = np.where(rng.random(800) < 0.1, "other", np.roll(x, 2))
    found = mb.lags(x, y, given_past=1, transfer=True, **QUICK)
    assert found.method == "counts"
    assert found.best.lag == 2
    assert found.transfers[0].p_value == 1 / 40
    many = mb.lags(rng.integers(40, size=(200, 1)), rng.integers(3, size=200), x_kinds="discrete",
                   y_kinds="discrete", given_past=3, **QUICK)  # fmt: skip
    assert "few-counts" in codes_of(many)


def test_labels_and_numbers():
    x, y = lagged(900, lag=1)
    found = mb.lags(np.c_[x, x**2], (y > 0).astype(int), **QUICK)
    assert found.method == "neighbours"
    assert found.best.lag == 1
    assert found.best.p_value == 1 / 40


def test_several_columns():
    x, y = lagged(900, lag=2)
    noise = np.random.default_rng(1).normal(size=(900, 3))
    found = mb.lags(np.c_[x, noise[:, :2]], np.c_[noise[:, 2], y], given_past=1, **QUICK)
    assert found.best.lag == 2
    assert found.method == "gaussian"


def test_dates_are_shown_in_their_units():
    x, y = lagged(200)
    hours = pd.date_range("2024-01-01", periods=200, freq="6h")
    found = mb.lags(pd.Series(x, hours, name="rain"), pd.Series(y, hours, name="flow"), **QUICK)
    assert found.unit == "6h"
    assert found.names == ("rain", "flow")
    assert "steps of 6h; rain leads" in str(found)
    months = pd.period_range("2000-01", periods=200, freq="M")
    assert mb.lags(pd.Series(x, months), pd.Series(y, months), **QUICK).unit == "M"
    assert mb.lags(pd.Series(x), y, **QUICK).unit == "rows"
    names = pd.Index([f"row {i}" for i in range(200)])
    assert mb.lags(pd.Series(x, names), y, **QUICK).unit == "rows"
    seconds = pd.DatetimeIndex(pd.to_datetime(np.arange(200) * 7, unit="s"))
    assert "7" in mb.lags(pd.Series(x, seconds), y, **QUICK).unit


def test_what_is_refused():
    x, y = lagged(200)
    days = pd.date_range("2024-01-01", periods=201, freq="D")
    gap = pd.Series(x, days.delete(7))
    levels = pd.Series(x, pd.MultiIndex.from_product([range(2), range(100)]))
    holes = x.copy()
    holes[[5, 9]] = np.nan
    for bad, other, settings, match in (
        (gap, y, {}, r"equal distances but the index of x .* after row 6; resample it"),
        (pd.Series(x, np.delete(np.arange(201), 7)), y, {}, "after row 6; resample it"),
        (levels, y, {}, "index of times for x but got one of several levels"),
        (gap, pd.Series(y, days[1:]), {}, "same times but their indices differ; align"),
        (holes, y, {}, "x without missing values but got 2, the first in row 5; fill them in"),
        (np.ones(200), y, {}, "x to vary but got one value"),
        (x, y[1:], {}, "as many rows of y as of x but got 199 and 200"),
        (x[:60], y[:60], {"max_lag": 11}, "at least 50 rows more than max_lag, 11, but got 60"),
        (x, y, {"max_lag": 0}, "max_lag to be a whole number >= 1 but got 0"),
        (x, y, {"permutations": -1}, "permutations to be a whole number >= 0 but got -1"),
        (x, y, {"level": 1.0}, "level between 0 and 1"),
        (x, y, {"given_past": "all"}, "given_past as a number of rows"),
        (x, y, {"method": "copula"}, "method among default, gaussian"),
        (x > 0, y, {"method": "gaussian"}, 'numbers for "gaussian" but got labels'),
        (x, y, {"method": "counts"}, 'labels for "counts" but got numbers'),
        (x, np.roll(x, 1), {"max_lag": 2, "method": "gaussian"}, "linear function of the others"),
    ):
        with pytest.raises(ValueError, match=match) as error:
            mb.lags(bad, other, **settings)
        assert str(error.value).startswith("Expected ")


def test_series_that_wander_are_not_believed():
    walks = np.cumsum(np.random.default_rng(0).normal(size=(2, 600)), 1)
    found = mb.lags(*walks, **QUICK)
    assert "not-stationary" in codes_of(found)
    assert codes_of(mb.lags(*np.diff(walks), **QUICK)) == set()
    few = mb.lags(*lagged(60, rho=0.95, seed=1), max_lag=2, permutations=9)
    assert "few-permutations" in codes_of(few)
    slow = np.repeat(np.random.default_rng(2).normal(size=(2, 8)), 12, axis=1)
    assert "few-blocks" in codes_of(mb.lags(*slow, **QUICK))


def test_without_a_test_there_are_no_p_values():
    found = mb.lags(*lagged(200), max_lag=2, permutations=0, transfer=True)
    assert {row.p_value for row in found.rows} == {None}
    assert {each.p_value for each in found.transfers} == {None}
    assert found.significant is None
    assert "surrogates" not in str(found)
    found.plot()


def test_it_is_the_same_with_the_same_seed_and_reports_progress():
    done = []
    first, again = (
        mb.lags(*lagged(200), seed=3, progress=lambda *each: done.append(each), **QUICK)
        for _ in range(2)
    )
    assert first.rows == again.rows
    assert first.significant == again.significant
    assert [share for share, _ in done] == sorted(share for share, _ in done[: len(done) // 2]) * 2


def test_the_auto_past_is_the_order_of_the_series():
    rng = np.random.default_rng(0)
    z = np.zeros((2, 800))
    for t in range(3, 800):
        z[:, t] = 0.5 * z[:, t - 3] + rng.normal(size=2)
    assert mb.lags(*z, given_past="auto", **QUICK).given_past == 3
    white = rng.normal(size=(400, 1))
    assert choose_past(white, white, 0) == 0


def test_windows_hold_rows_that_belong_together():
    window = lag_window(10, 2, 3)
    assert (window.target - window.source[:, 0] == 2).all()
    assert (window.past == window.target[:, None] - [1, 2, 3]).all()
    assert window.past.min() == 0
    assert not lag_window(10, -2, 0).ahead
    assert window.last(2).target.tolist() == [8, 9]
    both = transfer_window(10, False, 2, 3)
    assert both.source[0].tolist() == [2, 1]
    assert both.past[0].tolist() == [2, 1, 0]


def test_it_is_kept_as_json_and_as_a_frame(tmp_path):
    found = mb.lags(*lagged(200), transfer=True, **QUICK)
    assert mb.Lags.from_json(found.to_json()) == found
    assert json.loads(found.to_json())["best"] == found.best.lag
    frame = found.to_frame()
    assert list(frame["lag"]) == list(range(-4, 5))
    assert frame["bits"][0] == pytest.approx(found.rows[0].nats / math.log(2))
    ax = found.plot()
    assert ax.get_xlabel() == "lag (rows); x leads on the right, y on the left"
    assert found.plot(ax) is ax
    page = found._repr_html_()
    assert page.count("<tr>") == 10
    write_lag_report(tmp_path / "lags.html", found, "a < b")
    text = (tmp_path / "lags.html").read_text()
    assert "<h1>a &lt; b</h1>" in text
    assert text.count('<th scope="row">') == 9
    assert "<script" not in text


def test_names_are_shown_as_text():
    x, y = lagged(200)
    walk = pd.Series(np.cumsum(x), name="<b>$a$</b>")
    found = mb.lags(walk, y, **QUICK)
    assert "&lt;b&gt;" in found._repr_html_()
    assert "not-stationary" in found._repr_html_()
    found.plot().figure.savefig("/dev/null", format="svg")
    wide = mb.lags(x, y, max_lag=30, permutations=0)
    assert "and 20 lags with less" in str(wide)
