import functools
import math
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from html.parser import HTMLParser

import numpy as np
import pytest
import stand_ins
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib import image
from stand_ins import CEILING

from mibounds.measure.report import write_report
from mibounds.measure.results import Advice, HistoryPoint, MethodResult

BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
in_a_browser = pytest.mark.skipif(
    BROWSER is None,
    reason="no browser to look at reports with; on Debian: apt-get install chromium",
)

BAD = "<script>document.title = 'run'; throw Error('run')</script>"
TIES = Advice("ties", "1200 of 10000 values of y are equal.", "Say that y is discrete.")
CURVES = tuple(
    HistoryPoint(method, fold, step, 2 / (1 + step), 2.1 / (1 + step))
    for method in ("infonce", "club")
    for fold in range(2)
    for step in range(5)
)
example = functools.partial(
    stand_ins.example,
    history=CURVES,
    warnings=(CEILING,),
    p_value=0.05,
    null=tuple(0.01 * i for i in range(19)),
)


def samples(n=5000):
    g = np.random.default_rng(0)
    x = g.normal(size=(n, 3))
    return x, np.stack([g.normal(size=n), x[:, 1] + 0.5 * g.normal(size=n)], 1)


@pytest.fixture
def report(tmp_path):
    """Write a report, and read it."""

    def make(estimate, *args, **kwargs):
        write_report(tmp_path / "report.html", estimate, *args, **kwargs)
        return Page((tmp_path / "report.html").read_text(encoding="utf-8"))

    return make


class Page(HTMLParser):
    """A parsed page, which must be well formed."""

    VOID = ("meta", "br")

    def __init__(self, source):
        super().__init__()
        self.source, self.open, self.words = source, [], []
        self.tags, self.attributes = Counter(), []
        self.feed(source)
        self.close()
        assert self.open == []
        self.text = " ".join(" ".join(self.words).split())

    def handle_starttag(self, tag, attrs):
        self.handle_startendtag(tag, attrs)
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags[tag] += 1
        self.attributes += [(tag, key, value) for key, value in attrs]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" not in self.open:
            self.words.append(data)

    def values(self, key):
        return [value for _, k, value in self.attributes if k == key]


# --- what is in it -------------------------------------------------------------------------------


def test_it_shows_everything(report):
    page = report(example(), *samples(), title="Age and pressure")
    for part in (
        "Age and pressure",
        "10,000 rows, x of ",
        "infonce at least 0.65",
        "Believe it with care: read the warning below.",
        "0.693 nats",
        "95 % interval 0.671 … 0.715 nats",
        "1.000 bits",
        "95 % interval 0.968 … 1.032 bits",
        "Bracket 0.650 (best lower bound) … 0.730 (tightest upper bound) nats",
        "p-value 0.05 for independence, by 19 permutations",
        "its interval by influence values",
        "infonce-ceiling It reads 4.15, near log 64 = 4.16.",
        "What to do: Raise batch_size.",
        "q(y|x) is nearer to p(y|x) than to p(y)",
        "infonce: loss by step",
        "club: loss by step",
        "x[1]",
        "under permutation",
        "seed 37",
        'methods ["copula", "infonce"]',
        "version of torch",
    ):
        assert part in page.text, part
    assert page.tags["svg"] == page.tags["figure"] == 1 + 2 + 1 + 1


def test_warnings_of_one_kind_share_a_card(report):
    same = [Advice("outliers", f"Column {i} has outliers.", "Look at them.") for i in range(3)]
    page = report(example(warnings=(*same, Advice("ties", "Equal values.", "Look at them."))))
    assert page.text.count("outliers Column 0 has outliers.") == 1
    assert page.text.count("What to do: Look at them.") == 2
    assert all(f"Column {i} has outliers." in page.text for i in range(3))


def test_a_label_has_its_share(report):
    page = report(example(nats=0.5, config={"entropy": 1.0, "y_kinds": ["discrete"]}))
    assert "Of the whole 50.0% of 1.000 nats, a label's entropy" in page.text
    assert "y of 1 column of labels" in page.text


@pytest.mark.parametrize(
    ("warnings", "says", "shows"),
    [
        ((), "Believe it: there are no warnings.", "verdict believe"),
        ((CEILING,), "Believe it with care:", "verdict care"),
        ((CEILING, TIES), "Do not believe it: 1 warning concerns the value.", "verdict doubt"),
        ((TIES, TIES), "Do not believe it: 2 warnings concern the value.", "verdict doubt"),
    ],
)
def test_the_headline_says_whether_to_believe_it(report, warnings, says, shows):
    page = report(example(warnings=warnings))
    assert says in page.text
    assert shows in page.values("class")
    assert ("Diagnostics" in page.text) is bool(warnings)
    if len(warnings) == 2:  # the warning about the value comes first
        assert page.text.index("ties") < (page.text + "infonce-ceiling").index("infonce-ceiling")


def test_empty_sections_are_left_out(report):
    page = report(example(history=(), null=(), p_value=None, warnings=(), rows=()))
    for part in ("Training", "Samples", "independent", "Diagnostics", "p-value", "each method"):
        assert part not in page.text.replace("Each method by its side", "")
    assert page.tags["svg"] == 1


def test_odd_numbers_are_shown(report):
    row = MethodResult("vub", "upper", "", math.inf, math.nan, 1.0)
    page = report(
        example(nats=math.nan, interval=(-math.inf, math.nan), rows=(row,), null=(math.nan,))
    )
    assert "Do not believe it: the value is not a finite number." in page.text


def test_the_same_estimate_gives_the_same_file(report):
    assert report(example(), *samples()).source == report(example(), *samples()).source


# --- nothing but itself --------------------------------------------------------------------------


def test_it_needs_nothing_else(report):
    page = report(example(), *samples())
    assert not set(page.tags) & {"script", "link", "iframe", "object", "embed", "img", "base"}
    assert not [key for _, key, _ in page.attributes if key.startswith("on")]
    assert all(value.startswith("#") or value.startswith("data:") for value in page.values("href"))
    assert page.values("src") == []
    assert not re.search(r"https?:|url\((?!#)|@import", page.source)
    assert page.tags["style"] == 1  # none of matplotlib's, which would hold for the whole page
    assert "default-src 'none'; style-src 'unsafe-inline'; img-src data:" in page.values("content")


def test_ids_are_unique_and_references_resolve(report):
    page = report(example(), *samples())
    ids = page.values("id")
    assert len(ids) == len(set(ids)) > 50
    pointed = [value[1:] for value in page.values("href") if value.startswith("#")]
    pointed += re.findall(r"url\(#([^)]*)\)", page.source)
    assert len(pointed) > 50
    assert set(pointed + page.values("aria-labelledby")) <= set(ids)


def test_it_can_be_read_aloud(report):
    page = report(example(), *samples(), names=(["a", "b", "c"], ["d", "e"]))
    assert page.values("lang") == ["en"]
    assert page.tags["h1"] == page.tags["main"] == page.tags["title"] - page.tags["svg"] == 1
    assert page.values("role").count("img") == page.tags["svg"] == page.tags["figcaption"]
    assert "The pair of columns that is most related: e against b." in page.text
    assert page.values("scope").count("col") == 7


def test_figures_have_the_colour_and_the_font_of_the_page(report):
    svg = re.findall("<svg.*?</svg>", report(example(), *samples()).source, re.DOTALL)
    for figure in svg:
        assert "currentColor" in figure
        assert "#010203" not in figure
        assert "font-family" not in figure
        assert "font-size" in figure


def test_all_input_is_escaped(report):
    x, y = samples(300)
    page = report(
        example(
            rows=(MethodResult(BAD, BAD, BAD, 0.7, 0.1, 1.0),),
            history=(HistoryPoint(BAD, 0, 0, 1.0, 1.0), HistoryPoint(BAD, 0, 1, 0.5, 0.5)),
            warnings=(Advice(BAD, BAD, BAD),),
            method=BAD,
            interval_method=BAD,
            config={BAD: BAD, "nested": {BAD: [BAD]}},
        ),
        x,
        y,
        names=([BAD] * 3, [BAD, BAD]),
        title=BAD,
    )
    assert page.tags["script"] == 0
    assert page.text.count("<script>document.title") > 15


@settings(max_examples=15, deadline=None)
@given(st.text(), st.text(min_size=1))
def test_any_name_can_be_written(tmp_path_factory, title, name):
    path = tmp_path_factory.mktemp("names") / "report.html"
    rows = (MethodResult(name, "upper", title, 0.7, 0.1, 1.0),)
    estimate = example(rows=rows, history=(), null=(), config={name: title}, method=name)
    write_report(path, estimate, np.arange(9.0), np.arange(9.0), ([name], [title]), title)
    page = Page(path.read_text(encoding="utf-8"))
    assert page.tags["svg"] == 2
    assert page.tags["h1"] == 1


# --- the file ------------------------------------------------------------------------------------


def test_an_interruption_leaves_the_file_as_it_was(tmp_path, monkeypatch):
    path = tmp_path / "report.html"
    path.write_text("before")

    def interrupt(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", interrupt)
        with pytest.raises(KeyboardInterrupt):
            write_report(path, example())
    assert os.listdir(tmp_path) == ["report.html"]
    assert path.read_text() == "before"
    write_report(str(path), example())
    assert path.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert os.listdir(tmp_path) == ["report.html"]


def test_it_has_the_rights_of_any_new_file_and_goes_through_links(tmp_path):
    (tmp_path / "plain").write_text("")
    (tmp_path / "link.html").symlink_to(tmp_path / "report.html")
    write_report(tmp_path / "link.html", example())
    assert (tmp_path / "link.html").is_symlink()
    assert (tmp_path / "report.html").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_a_missing_folder_is_reported(tmp_path):
    with pytest.raises(ValueError, match="Expected a folder for the output but there is no"):
        write_report(tmp_path / "none" / "report.html", example())
    with pytest.raises(ValueError, match=r"Expected a file for the output but .* is a folder"):
        write_report(tmp_path, example())
    assert os.listdir(tmp_path) == []


def test_x_without_y_is_refused(tmp_path):
    with pytest.raises(ValueError, match="both x and y"):
        write_report(tmp_path / "report.html", example(), x=np.arange(3.0))


def test_it_names_the_extra_that_it_needs(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r"pip install 'mibounds\[plot\]'"):
        write_report(tmp_path / "report.html", example())
    assert os.listdir(tmp_path) == []


# --- in a browser --------------------------------------------------------------------------------


def browse(path, *flags):
    """Console output and picture of a browser that opens a page."""
    profile = f"--user-data-dir={path.parent / 'profile'}"
    command = [
        BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
        "--hide-scrollbars", "--enable-logging=stderr", profile, *flags, path.as_uri(),
    ]  # fmt: skip
    result = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    console = [line for line in result.stderr.splitlines() if "CONSOLE" in line]
    return console, result.stdout


def photograph(path, width, *flags):
    shot = path.with_suffix(".png")
    size = f"--window-size={width},2600"
    console, _ = browse(path, f"--screenshot={shot}", size, *flags)
    pixels = (image.imread(shot)[..., :3] * 255).round().astype(int)
    assert pixels.shape == (2600, width, 3)
    return console, pixels


def share(pixels, colour, tolerance=3):
    """The part of a picture that has a colour."""
    rgb = [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
    return (np.abs(pixels - rgb).max(2) <= tolerance).mean()


@in_a_browser
def test_the_browser_reports_errors(tmp_path):
    page = tmp_path / "page.html"
    page.write_text(f"<!DOCTYPE html><title>-</title><p>words</p>{BAD}")
    console, dom = browse(page, "--dump-dom")
    assert "Uncaught Error: run" in "".join(console)
    assert "<title>run</title>" in dom


@in_a_browser
@pytest.mark.parametrize("width", [1000, 400])
def test_a_browser_shows_it_without_an_error(tmp_path, width):
    path = tmp_path / "report.html"
    names = ([BAD, "$x$", "age"], ["blood & <b>pressure</b>", BAD])
    write_report(path, example(), *samples(), names=names, title=BAD)
    console, dom = browse(path, "--dump-dom")
    assert console == []
    assert "0.693 <small>nats</small>" in dom
    assert "<title>run</title>" not in dom
    assert dom.count("<svg") == 5
    console, pixels = photograph(path, width)
    assert console == []
    assert len(np.unique(pixels.reshape(-1, 3), axis=0)) > 500
    assert 0.5 < share(pixels, "#ffffff") < 0.95
    assert share(pixels, "#1c1f24", 40) > 0.003  # text
    assert share(pixels, "#c4e5f7", 8) > 0.003  # the band of the interval
    assert share(pixels, "#00224e", 8) > 0.01  # where there are no samples
    assert share(pixels, "#56b4e9", 8) > 0.0005  # the null
    assert share(pixels[:, -12:], "#ffffff") == 1  # nothing is cut off, nor reaches the edge


@in_a_browser
def test_it_follows_the_dark_colour_scheme(tmp_path):
    path = tmp_path / "report.html"
    write_report(path, example(), *samples())
    console, pixels = photograph(path, 1000, "--blink-settings=preferredColorScheme=0")
    assert console == []
    assert share(pixels, "#14161a") > 0.5
    assert share(pixels, "#ffffff") < 0.01
    assert share(pixels, "#e8eaed", 20) > 0.003  # text, that of figures too
