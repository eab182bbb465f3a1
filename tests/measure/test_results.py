import dataclasses
import json
import math
import re
import sys

import hypothesis
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stand_ins import CEILING, example

from mibounds.measure.estimation import Estimate
from mibounds.measure.results import Advice, MethodResult
from mibounds.measure.wording import number

TIES = Advice("ties", "1200 of 10000 values of y are equal.", "Say that y is discrete.")
BAD_Q = Advice("q-no-better-than-marginal", "q gains 0.00 nats.", "Train for longer.")


def test_bits_are_nats_over_log_2():
    estimate = example(nats=math.log(2), interval=(0.0, math.log(4)))
    assert estimate.bits == 1.0
    assert estimate.interval_bits == (0.0, 2.0)
    assert MethodResult("ksg", "neither", "", math.log(8), None, 0.0).bits == pytest.approx(3.0)


def test_nothing_in_it_changes():
    with pytest.raises(dataclasses.FrozenInstanceError):
        example().nats = 1.0
    assert dataclasses.replace(example(), seed=4).seed == 4


# --- whether to believe it -----------------------------------------------------------------------


def test_the_verdict_depends_on_what_the_warnings_concern():
    assert example().verdict == "believe"
    assert example(warnings=(CEILING,)).verdict == "care"
    assert example(warnings=(CEILING, TIES)).verdict == "doubt"
    assert example(warnings=(CEILING,), method="infonce").verdict == "doubt"
    assert example(nats=math.inf).verdict == "doubt"


@pytest.mark.parametrize(
    ("bound", "word", "how"),
    [("upper", "at most", "an upper bound"), ("lower", "at least", "a lower bound")],
)
def test_a_bound_is_not_the_value(bound, word, how):
    e = example(method="one", rows=(MethodResult("one", bound, "q is right", 1.5, 0.1, 1.0),))
    assert e.side == bound
    assert e.verdict == "care"
    lines = str(e).splitlines()
    assert lines[0].startswith(f"I(x; y)  {word} ")
    assert f"Believe it as {how}, not as the value: there are no warnings." in str(e)
    assert example().side == "neither"
    rows = (*e.rows, MethodResult("infonce", "lower", "always", 1.0, 0.1, 1.0))
    other = " ".join(str(dataclasses.replace(e, rows=rows, warnings=(CEILING,))).split())
    assert f"Believe it with care, as {how}, not as the value: read the warning below." in other


def test_a_warning_about_q_concerns_the_methods_that_fit_it():
    assert example(warnings=(BAD_Q,)).verdict == "care"
    assert example(warnings=(BAD_Q,), method="club").verdict == "doubt"


def test_the_longest_name_is_the_one_that_a_warning_is_about():
    rows = tuple(MethodResult(name, "upper", "", 1.0, None, 1.0) for name in ("club", "club-b"))
    variance = Advice("club-b-variance", "It explodes.", "Clip it.")
    assert example(rows=rows, method="club").concerns(variance) is False
    assert example(rows=rows, method="club-b").concerns(variance) is True


# --- plain text ----------------------------------------------------------------------------------


def test_it_prints_the_number_first_then_the_bracket_the_rows_and_the_warnings():
    text = str(example(warnings=(CEILING, TIES), p_value=0.005, null=(0.0,) * 199))
    lines = text.splitlines()
    assert lines[0] == "I(x; y)  0.693 nats, 95 % interval 0.671 ... 0.715"
    assert lines[1] == "         1.000 bits, 95 % interval 0.968 ... 1.032"
    assert lines[2] == "bracket  0.650 (best lower bound) ... 0.730 (tightest upper bound)"
    assert lines[3] == "p-value  0.005 for independence, by 199 permutations"
    assert lines[4] == "verdict  Do not believe it: 1 warning concerns the value."
    places = [text.index(part) for part in ("copula *", "infonce", "club", "! infonce-ceiling")]
    assert places == sorted(places)
    assert "! ties: 1200 of 10000 values of y are equal.\n  -> Say that y is discrete.\n" in text
    assert text.endswith("10,000 rows, x of 20 columns, y of\n1 column, seed 37, 73.2 s.")


def test_columns_are_in_line():
    lines = str(example()).splitlines()
    (start,) = (i for i, line in enumerate(lines) if line.startswith("method"))
    head, *rows = lines[start : start + 4]
    for row in rows:
        assert re.match(r"\S+( \*)? +(at most|at least|about) ", row)
        assert row[head.index("nats") + 3].isdigit()
        assert row[head.index("seconds") + 6].isdigit()
    assert rows[2][head.index("holds if") :] == "q(y|x) is nearer to p(y|x) than to p(y)"


def test_a_side_that_was_not_measured_is_mentioned():
    assert "no lower bound ... 0.730" in str(example(lower=None))
    assert "(best lower bound) ... no upper bound" in str(example(upper=None))
    assert "bracket" not in str(example(lower=None, upper=None))


def test_a_value_of_no_row_is_named():
    assert "The value is by a mixture, its interval by" in str(example(method="a mixture"))


@pytest.mark.parametrize(
    ("interval", "shown"),
    [
        ((0.0, 2.0), "0.7"),
        ((0.6, 0.8), "0.69"),
        ((0.6931, 0.6931), "0.6931"),
        ((0.69305, 0.69315), "0.6931"),
    ],
)
def test_it_shows_the_decimals_that_the_interval_makes_meaningful(interval, shown):
    assert str(example(interval=interval)).startswith(f"I(x; y)  {shown} nats")


def test_a_zero_has_no_sign():
    assert number(-0.00001) == "0.0000"
    assert number(-0.01, 2) == "-0.01"
    assert number(-10.0, 1) == "-10.0"


def test_nan_and_infinity_are_shown():
    row = MethodResult("vub", "upper", "", math.inf, math.nan, 1.0)
    text = str(example(nats=math.nan, interval=(-math.inf, math.inf), rows=(row,), upper=2e7))
    assert "nan nats, 95 % interval -inf ... inf" in text
    assert "Do not believe it: the value is not a finite number." in text
    assert "2e+07 (tightest" in text


@settings(max_examples=60, deadline=None)
@given(st.text(), st.text(max_size=300), st.floats(), st.integers(0, 2**40))
def test_it_fits_a_terminal_and_does_not_control_it(name, words, value, n):
    row = MethodResult(name, "upper", words, value, abs(value), 1.0)
    text = str(example(rows=(row,), warnings=(Advice(name, words, words),), nats=value, n=n))
    assert all(len(line) <= 100 for line in text.splitlines())
    assert all(line.isprintable() for line in text.split("\n"))


# --- notebooks -----------------------------------------------------------------------------------


def test_a_notebook_shows_the_same_and_keeps_its_colours():
    html = example(warnings=(CEILING,))._repr_html_()
    for part in ("0.693 nats", "1.000 bits", "infonce", "Raise batch_size.", "0.7300", "copula *"):
        assert part in html
    assert html.count("<tr") == html.count("</tr>") == 4
    assert html.count("<div") == html.count("</div>")
    assert "color:black" not in html
    assert "color:white" not in html
    assert "http" not in html


def test_a_notebook_runs_nothing_that_is_in_a_name():
    bad = "<script>alert(1)</script>"
    html = example(
        rows=(MethodResult(bad, bad, bad, 1.0, 0.1, 1.0),),
        warnings=(Advice(bad, bad, bad),),
        interval_method=bad,
        method=bad,
    )._repr_html_()
    assert "<script" not in html
    assert html.count("&lt;script&gt;") == 7


# --- JSON and tables -----------------------------------------------------------------------------


def test_json_has_every_field_and_comes_back():
    estimate = example(warnings=(TIES,), p_value=0.25, null=(0.5, -0.25))
    data = json.loads(estimate.to_json(indent=2))
    assert set(data) == {field.name for field in dataclasses.fields(Estimate)} | {"bits"}
    assert data["bits"] == estimate.bits
    assert data["rows"][2]["error"] is None
    assert Estimate.from_json(estimate.to_json()) == estimate
    assert "\n" not in estimate.to_json()


def test_a_later_version_may_add_fields():
    data = json.loads(example().to_json()) | {"colour": "green"}
    assert Estimate.from_json(json.dumps(data)) == example()


def test_whole_numbers_come_back_as_floats():
    data = json.loads(example().to_json()) | {"nats": 1, "lower": 0}
    estimate = Estimate.from_json(json.dumps(data))
    assert (type(estimate.nats), type(estimate.lower)) == (float, float)


@settings(max_examples=60, deadline=None)
@given(st.floats(), st.floats(), st.floats() | st.none(), st.lists(st.floats(), max_size=3))
@hypothesis.example(math.inf, -math.inf, math.nan, [math.inf, math.nan])
@hypothesis.example(-math.inf, math.nan, None, [])
def test_numbers_that_json_does_not_have_are_strings(nats, end, lower, null):
    estimate = example(nats=nats, interval=(nats, end), lower=lower, null=tuple(null))
    text = dataclasses.replace(estimate, config={"limit": nats}).to_json()

    def refuse(constant):
        raise AssertionError(constant)

    data = json.loads(text, parse_constant=refuse)
    if math.isinf(nats):
        assert data["nats"] == data["config"]["limit"] == ("Infinity" if nats > 0 else "-Infinity")
    back = Estimate.from_json(text)
    assert back.to_json() == text
    assert repr(back.interval) == repr(estimate.interval)
    assert repr(back.null) == repr(estimate.null)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"nats": "high"}, "Expected 'nats' to be a number but got 'high'"),
        ({"nats": None}, "Expected 'nats' to be a number but got None"),
        ({"n": "many"}, "Expected 'n' to be of type int but got str"),
        ({"n": True}, "Expected 'n' to be of type int but got bool"),
        ({"interval": [1.0]}, "Expected interval to have 2 ends but got 1"),
        ({"rows": {}}, "Expected 'rows' to be of type list but got dict"),
        ({"rows": [3]}, "Expected a JSON object but got int"),
        ({"rows": [{"method": "ksg"}]}, "Expected the field 'side'"),
        ({"null": [[]]}, r"Expected 'null' to be a number but got \[\]"),
        ({"config": []}, "Expected 'config' to be of type dict but got list"),
    ],
)
def test_invalid_json_is_refused(change, message):
    data = json.loads(example().to_json()) | change
    with pytest.raises(ValueError, match=message):
        Estimate.from_json(json.dumps(data))


@pytest.mark.parametrize("text", ["", "[]", "{}", "3", '{"nats": 1.0}'])
def test_other_text_is_refused(text):
    with pytest.raises(ValueError, match="Expect"):
        Estimate.from_json(text)


def test_a_frame_has_a_line_for_each_method():
    pytest.importorskip("pandas", reason="comes with the extra 'tables'")
    frame = example().to_frame()
    assert list(frame.columns) == [
        "method", "side", "condition", "nats", "bits", "error", "seconds",
    ]  # fmt: skip
    assert list(frame["method"]) == ["copula", "infonce", "club"]
    assert frame["bits"][0] == example().bits
    assert math.isnan(frame["error"][2])
    assert example(rows=()).to_frame().shape == (0, 7)


def test_a_frame_names_the_extra_that_it_needs(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match=r"pip install 'mibounds\[tables\]'"):
        example().to_frame()


def test_its_plot_is_the_bracket():
    ax = example().plot()
    assert [text.get_text() for text in ax.get_yticklabels()] == ["copula", "infonce", "club"]
    assert example().plot(ax) is ax
