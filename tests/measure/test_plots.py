import functools
import math
import subprocess
import sys

import numpy as np
import pytest
import stand_ins
import torch
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from mibounds.measure.plots import plot_estimate, plot_history, plot_null
from mibounds.measure.results import FitRecord, HistoryPoint, MethodResult
from mibounds.measure.sample_plots import plot_samples

OKABE_ITO = {
    "#000000", "#e69f00", "#56b4e9", "#009e73", "#f0e442", "#0072b2", "#d55e00", "#cc79a7",
}  # fmt: skip


def curves(method, folds):
    return tuple(
        HistoryPoint(method, fold, step, 5.0 - step, 5.5 - step + fold)
        for fold in range(folds)
        for step in range(4 - (fold == 2))  # the third fold stops early
    )


example = functools.partial(
    stand_ins.example, history=curves("club", 3), level=0.9, p_value=0.25, null=(0.01, 0.02, 0.8)
)


def labels(ax):
    return ax.get_legend_handles_labels()[1]


def texts(ax):
    return [text.get_text() for text in ax.texts]


def drawn(ax):
    """Lay out and paint everything; bad text would raise."""
    ax.figure.canvas.draw()
    return ax


PLOTS = {
    "estimate": lambda ax=None: plot_estimate(example(), ax),
    "history": lambda ax=None: plot_history(example(), ax),
    "null": lambda ax=None: plot_null(example(), ax),
    "samples": lambda ax=None: plot_samples(np.arange(30.0), np.arange(30.0) ** 2, ax),
}


# --- of all --------------------------------------------------------------------------------------


@pytest.mark.parametrize("plot", PLOTS.values(), ids=PLOTS)
def test_each_draws_where_it_is_told_or_makes_a_figure(plot):
    ax = Figure().subplots()
    assert plot(ax) is ax
    assert ax.has_data()
    new = drawn(plot())
    assert new.figure is not ax.figure
    assert new.has_data()


@pytest.mark.parametrize("plot", PLOTS.values(), ids=PLOTS)
def test_each_names_the_extra_that_it_needs(plot, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r"pip install 'mibounds\[plot\]'"):
        plot()


def test_pyplot_is_left_alone():
    code = """
import sys, numpy as np
from mibounds.measure.sample_plots import plot_samples
plot_samples(np.arange(5000.0), np.arange(5000.0) ** 2).figure.canvas.draw()
print("matplotlib.pyplot" in sys.modules)
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stdout.strip() == "False", result.stderr


# --- the bracket ---------------------------------------------------------------------------------


def test_every_method_has_its_value_its_error_and_the_colour_of_its_side():
    ax = plot_estimate(example())
    assert [text.get_text() for text in ax.get_yticklabels()] == ["copula", "infonce", "club"]
    bars = {bar.get_label(): bar for bar in ax.containers}
    colours = set()
    for side, i, value, error in (
        ("estimate", 0, 0.6931, 0.011),
        ("lower bound", 1, 0.65, 0.012),
        ("upper bound", 2, 0.73, 0.0),
    ):
        line, _, (stem,) = bars[side].lines
        assert (line.get_xdata().tolist(), line.get_ydata().tolist()) == ([value], [i])
        ((start, _), (end, _)) = stem.get_segments()[0]
        assert (start, end) == pytest.approx((value - error, value + error))
        colours.add((to_hex(line.get_color()), line.get_marker()))
    assert len({colour for colour, _ in colours}) == len({marker for _, marker in colours}) == 3
    assert {colour for colour, _ in colours} <= OKABE_ITO


def test_the_interval_is_a_band_around_the_value():
    ax = plot_estimate(example())
    (band,) = ax.patches
    assert (band.get_x(), band.get_x() + band.get_width()) == pytest.approx((0.6711, 0.7152))
    assert "90 % interval" in labels(ax)
    value = next(line for line in ax.lines if line.get_label() == "value, by copula")
    assert list(value.get_xdata()) == [0.6931, 0.6931]


def test_a_loose_bound_does_not_stretch_the_axis():
    rows = (*example().rows, MethodResult("vub", "upper", "", 4.5, 0.1, 1.0))
    ax = drawn(plot_estimate(example(rows=rows, upper=4.5)))
    assert texts(ax) == ["4.5 →"]
    assert ax.get_xlim()[1] < 2


@pytest.mark.parametrize(
    ("value", "shown"),
    [(math.inf, "∞ →"), (1234.5, "1234 →"), (-math.inf, "← -∞"), (math.nan, "no number")],
)
def test_a_value_far_outside_is_marked_and_hides_nothing(value, shown):
    rows = (*example().rows, MethodResult("vub", "upper", "", value, math.inf, 1.0))
    ax = drawn(plot_estimate(example(rows=rows)))
    assert texts(ax) == [shown]
    low, high = ax.get_xlim()
    assert 0 < low < 0.638
    assert 0.73 < high < 2


@pytest.mark.parametrize(
    "changes",
    [
        {"rows": ()},
        {"nats": math.nan, "interval": (math.nan, math.nan), "lower": None, "upper": None},
        {"nats": math.inf, "interval": (-math.inf, math.inf), "rows": ()},
        {"nats": 0.0, "interval": (0.0, 0.0), "lower": 0.0, "upper": 0.0},
        {"rows": (MethodResult("$\\frac$\x00" * 20, "upper", "", 0.7, None, 1.0),)},
        {"method": "$\\frac$"},
    ],
)
def test_the_bracket_of_odd_estimates_can_be_drawn(changes):
    ax = drawn(plot_estimate(example(**changes)))
    low, high = ax.get_xlim()
    assert low < high


# --- training curves -----------------------------------------------------------------------------


def test_folds_are_thin_and_their_mean_is_thick():
    ax = plot_history(example())
    assert labels(ax) == ["club, held out", "club, training"]
    thick = {line.get_label(): line for line in ax.lines if line.get_linewidth() > 1}
    thin = [line for line in ax.lines if line.get_linewidth() < 1]
    assert len(thin) == 2 * 3
    mean = thick["club, held out"]
    assert mean.get_xdata().tolist() == [0, 1, 2]  # as far as all folds went
    assert mean.get_ydata().tolist() == [6.5, 5.5, 4.5]
    assert thick["club, training"].get_ydata().tolist() == [5.0, 4.0, 3.0]
    assert mean.get_linestyle() != thick["club, training"].get_linestyle()


def test_a_model_that_was_dropped_is_called_so_and_the_best_step_is_marked():
    records = [FitRecord("club", fold, "the Gaussian", 3, False) for fold in range(3)]
    ax = plot_history(example(fits=tuple(records)))
    assert labels(ax) == ["club, held out, dropped", "club, training, dropped"]
    assert [mark.get_offsets().tolist() for mark in ax.collections] == [
        [[3, 2.5]], [[3, 3.5]], [[2, 5.5]],
    ]  # fmt: skip
    ax = plot_history(example(fits=(*records[:2], FitRecord("club", 2, "the Gaussian", 3, True))))
    assert labels(ax) == ["club, held out", "club, training"]


def test_each_method_has_its_colour_or_is_drawn_alone():
    history = curves("club", 1) + curves("infonce", 1)
    ax = plot_history(example(history=history))
    assert len(ax.lines) == 4
    colours = {line.get_label().split(",")[0]: to_hex(line.get_color()) for line in ax.lines}
    assert set(colours) == {"club", "infonce"}
    assert len(set(colours.values())) == 2
    assert set(colours.values()) <= OKABE_ITO
    assert labels(plot_history(example(history=history), method="infonce")) == [
        "infonce, held out", "infonce, training",
    ]  # fmt: skip


def test_a_loss_that_is_not_finite_leaves_a_gap():
    history = (HistoryPoint("a", 0, 0, 1.0, math.inf), HistoryPoint("a", 0, 1, math.nan, 2.0))
    ax = drawn(plot_history(example(history=history)))
    np.testing.assert_array_equal(ax.lines[0].get_ydata(), [math.nan, 2.0])


def test_the_name_of_a_method_is_not_read_as_mathematics():
    drawn(plot_history(example(history=curves("$\\frac$", 1))))


def test_without_curves_there_is_an_error():
    with pytest.raises(ValueError, match="Expected an estimate with training curves"):
        plot_history(example(history=()))
    with pytest.raises(ValueError, match="a training curve of 'mine'"):
        plot_history(example(), method="mine")


# --- the null ------------------------------------------------------------------------------------


def test_the_null_is_a_histogram_beside_the_value():
    ax = plot_null(example(null=(0.01, 0.02, 0.03, 0.8, math.nan)))
    assert sum(bar.get_height() for bar in ax.patches) == 4
    assert list(ax.lines[0].get_xdata()) == [0.6931, 0.6931]
    assert labels(ax) == ["under permutation", "value 0.693, p = 0.25"]


@pytest.mark.parametrize("null", [(), (math.nan, math.inf)])
def test_without_a_null_there_is_an_error(null):
    with pytest.raises(ValueError, match="pass permutations="):
        plot_null(example(null=null))


def test_a_null_of_one_value_can_be_drawn():
    drawn(plot_null(example(null=(0.0, 0.0, 0.0), nats=math.inf, p_value=None)))


# --- samples -------------------------------------------------------------------------------------


def normals(n, d, seed=0):
    return np.random.default_rng(seed).normal(size=(n, d))


def test_few_samples_are_points():
    x, y = normals(500, 1), normals(500, 1, seed=1)
    ax = plot_samples(x, y)
    (points,) = ax.collections
    np.testing.assert_array_equal(points.get_offsets(), np.hstack([x, y]))
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("x", "y")


def test_many_samples_are_counted():
    x = normals(20000, 2)
    ax = plot_samples(x[:, 0], x[:, 1])
    (cells,) = ax.collections
    assert 100 < len(cells.get_offsets()) < 3000
    assert cells.get_array().sum() == 20000


@pytest.mark.parametrize(
    "relation", [lambda u: -u, lambda u: u**2, np.exp, lambda u: u > 0, lambda u: u.round()]
)
def test_the_pair_that_is_most_related_is_drawn(relation):
    x, y = normals(2000, 4), normals(2000, 3, seed=1)
    y[:, 2] = relation(x[:, 1]) + 0.1 * y[:, 0]
    ax = plot_samples(x, torch.tensor(y), names=(None, ["a", "b", "c"]))
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("x[1]", "c")


def test_words_are_related_too():
    words = np.array(["a", "b", "c"] * 100)
    x = np.stack([np.roll(np.repeat(["u", "v", "w"], 100), 7), words], 1)
    assert plot_samples(x, words).get_xlabel() == "x[1]"


def test_a_constant_column_is_not_the_most_related():
    x = np.hstack([np.ones((200, 1)), normals(200, 1)])
    assert plot_samples(x, x[:, 1]).get_xlabel() == "x[1]"


def test_categories_are_counted_in_a_table():
    x = np.array(["cat", "dog", "cat", "cow"] * 25)
    y = torch.tensor([0, 1, 1, 1] * 25)
    ax = plot_samples(x, y)
    (mesh,) = ax.collections
    np.testing.assert_array_equal(mesh.get_array().reshape(2, 3), [[25, 0, 0], [25, 25, 25]])
    assert [text.get_text() for text in ax.get_xticklabels()] == ["cat", "cow", "dog"]
    assert [text.get_text() for text in ax.get_yticklabels()] == ["0", "1"]


@pytest.mark.parametrize("upright", [True, False])
def test_numbers_within_categories_are_shares(upright):
    y = np.array([0.0, 1.0, 1.0, 1.0] * 25)
    values = normals(100, 1)[:, 0]
    ax = plot_samples(y, values) if upright else plot_samples(values, y)
    shares = ax.collections[0].get_array()
    assert shares.shape == ((40, 2) if upright else (2, 40))
    np.testing.assert_allclose(shares.sum(0 if upright else 1), [1.0, 1.0])
    ticks = ax.get_xticklabels() if upright else ax.get_yticklabels()
    assert [text.get_text() for text in ticks] == ["0", "1"]


def test_rare_categories_are_merged():
    x = np.array([f"name {i // 2}" for i in range(100)])
    ax = drawn(plot_samples(x, x))
    names = [text.get_text() for text in ax.get_xticklabels()]
    assert len(names) == 24
    assert names[-1] == "27 others"
    assert ax.collections[0].get_array().sum() == 100


def test_rows_with_a_missing_value_are_left_out():
    x = np.array([1.0, math.nan, 3.0, math.inf, 5.0])
    ax = plot_samples(x, np.array([1.0, 2.0, math.nan, 4.0, 5.5]))
    np.testing.assert_array_equal(ax.collections[0].get_offsets(), [[1.0, 1.0], [5.0, 5.5]])
    words = np.array(["a", None, "b", math.nan, "a"], dtype=object)
    assert plot_samples(words, words).collections[0].get_array().sum() == 3

    class NA:  # as in pandas: neither equal nor unequal to itself
        def __ne__(self, other):
            raise TypeError

    mixed = np.array([1, 2.5, NA(), None], dtype=object)
    points = plot_samples(mixed, mixed).collections[0].get_offsets()
    np.testing.assert_array_equal(points, [[1.0, 1.0], [2.5, 2.5]])
    days = np.array(["2020-01-01", "NaT"] * 3, dtype="datetime64[D]")
    assert plot_samples(days, days).collections[0].get_array().sum() == 3


@pytest.mark.parametrize("n", [1000, 10000])
def test_a_few_distant_values_do_not_take_all_the_space(n):
    x = normals(n, 2)
    x[0] = 1e6
    ax = drawn(plot_samples(x[:, 0], x[:, 1]))
    assert max(*ax.get_xlim(), *ax.get_ylim()) < 10


@pytest.mark.parametrize("n", [3, 5000])
def test_a_constant_can_be_drawn(n):
    drawn(plot_samples(np.full(n, 2.5), normals(n, 1)))
    drawn(plot_samples(normals(n, 1), np.full(n, 2.5)))
    drawn(plot_samples(np.full(n, 2.5), np.full(n, 2.5)))


@pytest.mark.parametrize(
    "values",
    [
        torch.randn(40, 2, 3).to(torch.bfloat16),
        torch.randn(40, requires_grad=True),
        torch.randn(40) > 0,
        np.arange(40, dtype=np.uint8),
        list(range(40)),
    ],
)
def test_it_takes_everything_that_holds_numbers(values):
    assert plot_samples(values, np.arange(40.0)).has_data()


def test_a_frame_brings_its_names():
    pandas = pytest.importorskip("pandas", reason="comes with the extra 'tables'")
    frame = pandas.DataFrame({"age": [31, 42, None], "kind": ["a", "b", "c"]})
    frame["age"] = frame["age"].astype("Int64")
    ax = plot_samples(frame[["age"]], frame[["kind"]])
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("age", "kind")
    assert plot_samples(frame["age"], frame["age"]).collections[0].get_offsets().shape == (2, 2)


def test_names_are_not_read_as_mathematics():
    names = (["$\\frac$"], ["y\n" + "long" * 20])
    ax = drawn(plot_samples(normals(10, 1), normals(10, 1), names=names))
    assert ax.get_xlabel() == "$\\frac$"
    assert len(ax.get_ylabel()) == 32
    assert "\n" not in ax.get_ylabel()
    words = np.array(["$\\frac$", "$x_$"] * 10)
    drawn(plot_samples(words, words))


@pytest.mark.parametrize(
    ("x", "y", "names", "message"),
    [
        (np.ones(3), np.ones(4), None, "same number of samples but got 3 and 4"),
        (np.ones((3, 0)), np.ones(3), None, "Expected x to have a column but got none"),
        (np.ones(3), 1.0, None, "Expected y to have one sample per row but got a single value"),
        (np.ones(3), np.ones((3, 2)), (None, ["a"]), "Expected 2 names for the columns of y"),
        (np.full(3, math.nan), np.ones(3), None, "got none without a missing value"),
        (np.ones((0, 2)), np.ones((0, 2)), None, "got none without a missing value"),
    ],
)
def test_what_cannot_be_drawn_is_refused(x, y, names, message):
    with pytest.raises(ValueError, match=message):
        plot_samples(x, y, names=names)
