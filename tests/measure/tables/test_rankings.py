"""Rankings: order, shares, gains beside closed forms, what they print, draw and write."""

import math

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

import mibounds as mb
from mibounds.measure.tables.conditions import condition
from mibounds.measure.tables.gains import measure_gains
from mibounds.measure.tables.variables import read_variables


@pytest.fixture(scope="module")
def frame():
    rng = np.random.default_rng(0)
    n = 600
    frame = pd.DataFrame(rng.normal(size=(n, 3)), columns=["strong", "weak", "nothing"])
    frame["copy"] = frame.strong + 0.1 * rng.normal(size=n)
    frame["label"] = rng.choice(["u", "v"], n)
    frame["y"] = (2 * frame.strong + frame.weak + rng.normal(size=n) > 0).map({True: 1, False: 0})
    frame.loc[::7, "weak"] = np.nan
    return frame


@pytest.fixture(scope="module")
def found(frame):
    return mb.rank(frame, "y", given="selected")


def test_the_order_and_what_stands_in_it(found):
    assert found.names[:2] == ("strong", "weak")
    assert found.target == "y"
    assert found.target_kind == "discrete"
    strong = found.columns[0]
    assert strong.share == pytest.approx(strong.nats / found.entropy)
    assert found.entropy == pytest.approx(math.log(2), abs=0.01)
    assert 0 < strong.low < strong.nats < strong.high < found.entropy
    assert strong.bits == pytest.approx(strong.nats / math.log(2))
    rows = {c.name: c for c in found.columns}
    assert rows["weak"].rows == 600 - 86
    assert rows["label"].kind == "discrete"
    assert set(found.significant()) == {"strong", "weak", "copy"}


def test_a_copy_of_a_chosen_column_adds_nothing(found):
    rows = {c.name: c for c in found.columns}
    assert rows["strong"].chosen == 1
    assert rows["weak"].chosen == 2
    assert rows["copy"].chosen is None
    assert rows["copy"].nats > 0.2
    assert rows["copy"].gain < 0.02
    plain = mb.rank(rows_of(found), np.arange(30) % 2)
    assert all(c.gain is None and c.chosen is None for c in plain.columns)


def rows_of(found):
    return np.random.default_rng(0).normal(size=(30, len(found.columns)))


def test_p_values_are_corrected_for_the_number_of_columns(frame):
    holm = mb.rank(frame, "y")
    none = mb.rank(frame, "y", correction="none")
    both = {c.name: c.p_value for c in holm.columns}, {c.name: c.p_value for c in none.columns}
    least = min(both[1].values())
    assert both[0][holm.names[0]] == pytest.approx(5 * least)
    assert holm.correction == "holm"


def test_gains_of_normal_variables_are_those_of_partial_correlations():
    rng = np.random.default_rng(1)
    a = rng.normal(size=(4, 4))
    x_cov = a @ a.T + np.eye(4)
    w = np.array([1.0, -0.5, 0.8, 0.0])
    cov = np.block([[x_cov, (x_cov @ w)[:, None]], [w @ x_cov, w @ x_cov @ w + 4]])
    z = rng.multivariate_normal(np.zeros(5), cov, size=6000)
    found = mb.rank(np.exp(z[:, :4]), z[:, 4] ** 3, given="selected", most=3)

    def logdet(places):
        return np.linalg.slogdet(cov[np.ix_(places, places)])[1] if places else 0.0

    given = []
    for column in found.columns[:3]:
        j = int(column.name)
        truth = 0.5 * (
            logdet([j, *given]) + logdet([4, *given]) - logdet(given) - logdet([j, 4, *given])
        )
        assert column.chosen == len(given) + 1
        assert column.gain == pytest.approx(truth, abs=0.03)
        given.append(j)
    total = 0.5 * (logdet(given) + logdet([4]) - logdet([4, *given]))
    assert sum(c.gain for c in found.columns[:3]) == pytest.approx(total, abs=0.06)


def test_gains_of_labels_are_those_of_clusters():
    """Two clusters and independent columns: log-odds add, so the truth is a mean over rows."""
    rng = np.random.default_rng(2)
    n = 8000
    y = rng.integers(2, size=n)
    x = rng.normal(size=(n, 3)) + np.outer(2 * y - 1, [0.6, 0.4, 0.0])

    def entropy_left(columns):
        logits = 2 * x[:, columns] @ np.array([0.6, 0.4, 0.0])[columns]
        return np.logaddexp(0, -(2 * y - 1) * logits).mean()

    vs = read_variables("x", x)
    gains, p = measure_gains(read_variables("y", y)[0], vs[:1], vs[1:])
    assert gains[0] == pytest.approx(entropy_left([0]) - entropy_left([0, 1]), abs=0.015)
    assert gains[1] < 0.002
    assert p[0] < 1e-10 < 0.001 < p[1]


def test_gains_of_more_labels_and_of_columns_of_labels():
    rng = np.random.default_rng(3)
    y = rng.integers(3, size=3000)
    known = (y + rng.integers(2, size=3000)) % 3  # one of two
    tells = np.where(rng.random(3000) < 0.5, y, rng.integers(3, size=3000))
    noise = rng.choice(list("abcd"), 3000)
    frame = pd.DataFrame({"known": known, "tells": tells, "noise": noise})
    vs = read_variables("x", frame, "discrete")
    gains, p = measure_gains(read_variables("y", y, "discrete")[0], vs[:1], vs[1:])
    joint = mb.estimate(frame.tells, y, given=frame.known, x_kinds="discrete", y_kinds="discrete",
                        given_kinds="discrete", budget="fast")  # fmt: skip
    assert gains[0] == pytest.approx(joint.nats, abs=0.08)
    assert p[0] < 1e-10 < 0.001 < p[1]


def test_labels_that_are_told_apart_leave_nothing_to_add():
    rng = np.random.default_rng(4)
    x = rng.normal(size=(500, 2))
    vs = read_variables("x", x)
    gains, p = measure_gains(read_variables("y", (x[:, 0] > 0).astype(int))[0], vs[:1], vs[1:])
    assert gains[0] < 0.02
    assert np.isfinite(p[0])


@pytest.mark.parametrize("kind", ["continuous", "discrete"])
def test_what_is_left_of_a_column_is_independent_of_what_is_given(kind):
    rng = np.random.default_rng(5)
    s = rng.normal(size=2000)
    given = s if kind == "continuous" else np.digitize(s, [-1, 0, 1])
    v = np.exp(s + 0.3 * np.exp(0.3 * s) * rng.normal(size=2000))
    a, b = read_variables("v", v)[0], read_variables("s", given, kind)[0]
    before = mb.matrix(v, given, right_kinds=kind)
    left = condition(a, b)
    after = mb.matrix(left.values, given, right_kinds=kind)
    assert before.nats[0, 0] > 0.5
    assert after.nats[0, 0] < 0.02
    assert left.kind == "continuous"


def test_missing_values_of_what_is_given_are_left_out():
    x = np.random.default_rng(6).normal(size=(100, 2))
    x[:30, 1] = np.nan
    a, b = read_variables("x", x)
    left = condition(a, b)
    assert left.present.tolist() == [False] * 30 + [True] * 70
    constant = read_variables("c", np.ones(100))[0]
    assert condition(a, constant).values is a.values


def test_a_ranking_goes_on_where_it_stopped(frame, found, tmp_path):
    for _ in range(2):
        assert mb.rank(frame, "y", given="selected", out=tmp_path / "out").columns == found.columns
    assert len(list((tmp_path / "out").glob("block-*"))) == 1


def test_json_frames_text_and_pictures(found, tmp_path):
    assert mb.Ranking.from_json(found.to_json()) == found
    with pytest.raises(ValueError, match=r"^Expected the fields of a ranking but got none called"):
        mb.Ranking.from_json("{}")
    text = found.to_json().replace('"kind"', '"sort"')
    with pytest.raises(
        ValueError, match=r"^Expected the fields of RankedColumn but got others .*;"
    ):
        mb.Ranking.from_json(text)
    frame = found.to_frame()
    assert list(frame.name) == list(found.names)
    assert frame.bits[0] == pytest.approx(found.columns[0].bits)
    text = str(found)
    assert "of entropy 0.69" in text
    assert "Columns were chosen one after the other." in text
    html = found._repr_html_()
    assert html.count("<tr>") == 6
    assert html.count("<svg") == 1
    ax = found.plot(Figure().subplots(), most=3)
    assert [t.get_text() for t in ax.get_yticklabels()] == list(found.names[:3])
    assert ax.get_legend() is not None
    path = tmp_path / "report.html"
    found.write_report(path)
    page = path.read_text()
    assert "<h1>What tells of y</h1>" in page
    assert page.count("<svg") == 1
    assert "<script" not in page


def test_a_target_of_numbers_has_no_share(frame):
    found = mb.rank(frame[["weak", "nothing", "label"]], frame.strong.rename("t"))
    assert found.entropy is None
    assert found.target == "t"
    assert all(c.share is None for c in found.columns)
    assert "share" not in str(found)
    assert mb.rank(frame, "strong").names[0] == "copy"


def test_a_target_in_the_frame_may_have_its_kind_said(frame):
    by_name = mb.rank(frame, "y", target_kind="continuous")
    assert by_name.target_kind == "continuous"
    assert by_name.entropy is None
    assert len(by_name.columns) == 5


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"given": "x"}, r'Expected given to be None or "selected" but got \'x\''),
        ({"target": "z"}, r"Expected target to be one of strong, weak, .* but got 'z'"),
        ({"target": np.zeros((600, 2))}, r"Expected target to be one column but got 2"),
        ({"target": np.zeros(3)}, r"Expected as many rows of target as of the frame but got 3"),
        ({"frame": np.zeros((600, 2))}, r"Expected a data frame where target is the name of a"),
        ({"budget": "x"}, r'Expected budget to be "default" or "fast" but got'),
    ],
)
def test_what_cannot_be_used_is_said(frame, settings, message, unchecked):
    with pytest.raises(ValueError, match=f"^{message}.*;"):
        mb.rank(**({"frame": frame, "target": "y"} | settings))
