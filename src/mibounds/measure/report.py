"""An estimate as one self-contained HTML file.

Style and figures are inside the file; there is no script, and nothing is loaded: a policy in its
head forbids both, whatever the names in the data contain. Figures are SVG, drawn in the colour of
the text around them, so that they follow the reader's choice of light or dark, and print in black.
The same estimate gives the same file, byte for byte.
"""

from __future__ import annotations

import io
import json
import os
import platform
import re
import warnings
from collections.abc import Callable, Sequence
from html import escape
from importlib import metadata
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

from mibounds.files import replacing
from mibounds.measure.plots import BLUE, plot_estimate, plot_history, plot_null
from mibounds.measure.results import Advice, Measurement
from mibounds.measure.sample_plots import plot_samples
from mibounds.measure.wording import (
    bracket,
    decimals,
    fits,
    kinds,
    method_name,
    number,
    p_value,
    printable,
    says,
    share,
    verdict,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw_figure", "wrap_page", "write_report"]

INK = "#010203"  # placeholder for the colour of the text, until the figure is in the page


def write_report(
    path: str | os.PathLike[str],
    estimate: Measurement,
    x: Any = None,
    y: Any = None,
    names: tuple[Sequence[str] | None, Sequence[str] | None] | None = None,
    title: str | None = None,
) -> None:
    """Write an estimate as one self-contained HTML file.

    The page shows the number with its interval, whether to believe it, the bracket, the value of
    each method, training curves, the samples, the values under permutation, and the settings that
    reproduce it. The file appears whole: an interruption leaves an existing file unchanged. The
    extra ``plot`` is needed.

    Args:
        path: of the file, in a folder that exists.
        estimate: the measurement to report.
        x: the samples to show, n rows: an array, a tensor or a DataFrame; none if left out.
        y: the same.
        names: of the columns of x and of y.
        title: of the page.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> result = Measurement(0.69, (0.67, 0.71), 0.95, "bootstrap", None, None, "ksg", (),
        ...                      (), (), None, (), 1000, 1, 1, 0, 0.5, {})
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = Path(folder, "report.html")
        ...     write_report(file, result, title="Weight and height")
        ...     "<h1>Weight and height</h1>" in file.read_text(encoding="utf-8")
        True
    """
    if (x is None) != (y is None):
        raise ValueError(
            "Expected both x and y, or neither of them, but got only one; "
            "leave both out for a report without a plot of the samples."
        )
    with replacing(path) as part:
        page = _page(estimate, x, y, names, title or "Mutual information")
        # A surrogate, from a file name that is not Unicode, cannot be encoded.
        part.write_text(page, encoding="utf-8", errors="replace", newline="\n")


# --- the page ------------------------------------------------------------------------------------


def _page(estimate: Measurement, x: Any, y: Any, names: Any, title: str) -> str:
    parts = [
        _headline(estimate, title),
        _diagnostics(estimate),
        _methods(estimate),
        _training(estimate),
        _beside(_samples(x, y, names), _null(estimate)),
        _settings(estimate),
    ]
    return wrap_page("\n".join(part for part in parts if part), title)


def wrap_page(body: str, title: str) -> str:
    """The whole page around the parts of its body: its head, its policy, its style."""
    head = (
        '<meta charset="utf-8">\n'
        '<meta http-equiv="Content-Security-Policy" '
        "content=\"default-src 'none'; style-src 'unsafe-inline'; img-src data:\">\n"
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{_text(title)}</title>\n<style>\n{STYLE}</style>"
    )
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n{head}\n</head>\n'
        f"<body>\n<main>\n{body}\n</main>\n</body>\n</html>\n"
    )


def _beside(*sections: str) -> str:
    """Sections with one figure each, side by side where there is room."""
    inner = "\n".join(section for section in sections if section)
    return inner and f'<div class="grid">\n{inner}\n</div>'


def _text(text: object) -> str:
    """Text for the page, without markup and control characters."""
    return escape(printable(str(text)))


def _headline(estimate: Measurement, title: str) -> str:
    e, places = estimate, decimals(estimate)
    level = f"{100 * e.level:.4g} %"

    def interval(ends: tuple[float, float], unit: str) -> str:
        return f"{level} interval {number(ends[0], places)} … {number(ends[1], places)} {unit}"

    sides, p = bracket(e), p_value(e)
    more = f"<p><b>Of the whole</b> {_text(share(e))}</p>" if share(e) else ""
    more += f"<p><b>Bracket</b> {_text(sides.replace('...', '…'))} nats</p>" if sides else ""
    more += f"<p><b>p-value</b> {_text(p)}</p>" if p else ""
    alt = (
        f"Values of {len(e.rows)} methods on one axis, with the interval of the point value, "
        f"{number(e.nats, places)} nats."
    )
    figure = draw_figure(lambda: plot_estimate(e), "bracket", "Each method by its side", alt)
    return f"""<header>
<h1>{_text(title)}</h1>
<p class="quiet">{_text(kinds(e))}, {e.seconds:.1f} s</p>
</header>
<section class="verdict {e.verdict}" aria-label="Verdict">
<h2>{_text(verdict(e))}</h2>
</section>
<section class="two" aria-label="Result">
<div>
<p class="number">{number(e.nats, places)} <small>nats</small></p>
<p>{interval(e.interval, "nats")}</p>
<p class="bits"><strong>{number(e.bits, places)} bits</strong><br>
{interval(e.interval_bits, "bits")}</p>
{more}
<p class="quiet">The value is by {_text(method_name(e.method))}, its interval by
{_text(e.interval_method)}.</p>
</div>
{figure}
</section>"""


def _diagnostics(estimate: Measurement) -> str:
    if not estimate.warnings:
        return ""
    cards: dict[tuple[str, str], list[Advice]] = {}
    for warning in sorted(estimate.warnings, key=lambda w: not estimate.concerns(w)):
        cards.setdefault((warning.code, warning.remedy), []).append(warning)
    items = "\n".join(
        f'<li class="{"doubt" if any(map(estimate.concerns, same)) else "care"}">'
        f"<p><code>{_text(code)}</code> {'<br>'.join(_text(w.message) for w in same)}</p>"
        f"<p><b>What to do:</b> {_text(remedy)}</p></li>"
        for (code, remedy), same in cards.items()
    )
    return f'<section>\n<h2>Diagnostics</h2>\n<ul class="advice">\n{items}\n</ul>\n</section>'


def _methods(estimate: Measurement) -> str:
    rows = []
    for row in estimate.rows:
        own = row.method == estimate.method
        error = "" if row.error is None else f"± {number(row.error)}"
        rows.append(
            ('<tr class="own">' if own else "<tr>")
            + f'<th scope="row">{_text(method_name(row.method))}{" ★" if own else ""}</th>'
            f'<td><span class="side {_text(row.side)}">{_text(says(row.side))}</span></td>'
            f'<td class="n">{number(row.nats)}</td><td class="n">{error}</td>'
            f'<td class="n">{number(row.bits)}</td><td class="n">{row.seconds:.1f}</td>'
            f"<td>{_text(row.condition)}</td></tr>"
        )
    if not rows:
        return ""
    return f"""<section>
<h2>The value of each method</h2>
<div class="wide" tabindex="0" role="region" aria-label="Table of methods">
<table>
<thead><tr><th scope="col">Method</th><th scope="col">It says</th>
<th scope="col" class="n">Nats</th><th scope="col" class="n">Error</th>
<th scope="col" class="n">Bits</th><th scope="col" class="n">Seconds</th>
<th scope="col">Holds if</th></tr></thead>
<tbody>
{chr(10).join(rows)}
</tbody>
</table>
</div>
<p class="quiet">"At least" is a lower bound of the mutual information and "at most" an upper
bound, each up to its error and under its condition. ★ is the method behind the value.</p>
</section>"""


def _training(estimate: Measurement) -> str:
    methods = dict.fromkeys(point.method for point in estimate.history)
    figures = []
    for i, method in enumerate(methods):
        figures.append(
            draw_figure(
                lambda method=method: plot_history(estimate, method=method),
                f"training{i}",
                f"{method}: loss by step",
                f"Training curves of {method}: loss on held-out samples, solid, and training loss, "
                "dotted, by step.",
            )
        )
    if not figures:
        return ""
    return (
        "<section>\n<h2>Training</h2>\n"
        '<p class="quiet">The loss on held-out samples (solid) and on training samples '
        "(dotted); a thin line is one fold, a thick line their mean. A fit is good if both end "
        "flat and close to each other. The point is where the held-out loss is lowest, whose "
        f"parameters are kept.</p>\n{_fits(estimate)}"
        f'<div class="grid">\n{chr(10).join(figures)}\n</div>\n</section>'
    )


def _fits(estimate: Measurement) -> str:
    """Which models are used, and which were dropped."""
    items = "".join(f"<li>{_text(line)}</li>\n" for line in fits(estimate))
    return items and f'<ul class="quiet">\n{items}</ul>\n'


def _samples(x: Any, y: Any, names: Any) -> str:
    if x is None:
        return ""
    about = "The pair of columns that is most related"
    figure = draw_figure(
        lambda: plot_samples(x, y, names=names),
        "samples",
        about,
        lambda ax: f"{about}: {ax.get_ylabel()} against {ax.get_xlabel()}.",
    )
    return f"<section>\n<h2>Samples</h2>\n{figure}\n</section>"


def _null(estimate: Measurement) -> str:
    if not any(abs(value) < float("inf") for value in estimate.null):
        return ""
    figure = draw_figure(
        lambda: plot_null(estimate),
        "null",
        "The value beside those of permuted samples",
        f"Histogram of {len(estimate.null)} values under permutation, with the value "
        f"{number(estimate.nats)} nats marked.",
    )
    return (
        '<section>\n<h2>If x and y were independent</h2>\n<p class="quiet">Permuting the rows of y '
        "removes every relation. A value in the range of these is no evidence of a relation."
        f"</p>\n{figure}\n</section>"
    )


def _settings(estimate: Measurement) -> str:
    facts: list[tuple[str, Any]] = [
        ("seed", estimate.seed),
        ("level", estimate.level),
        *estimate.config.items(),
    ]
    rows = "\n".join(
        f'<tr><th scope="row">{_text(name)}</th><td>{_text(_setting(value))}</td></tr>'
        for name, value in [*facts, *_versions()]
    )
    return (
        '<section>\n<h2>Settings and versions</h2>\n<div class="wide" tabindex="0" role="region" '
        f'aria-label="Settings"><table class="settings"><tbody>\n{rows}\n</tbody></table></div>\n'
        "</section>"
    )


def _setting(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _versions() -> list[tuple[str, str]]:
    found = [("Python", platform.python_version())]
    for name in ("mibounds", "torch", "numpy", "scipy", "scikit-learn", "zuko", "matplotlib"):
        try:
            found.append((name, metadata.version(name)))
        except metadata.PackageNotFoundError:
            continue
    return [(f"version of {name}", version) for name, version in found]


# --- figures -------------------------------------------------------------------------------------


def draw_figure(
    draw: Callable[[], Axes], name: str, caption: str, alt: str | Callable[[Axes], str]
) -> str:
    """A figure as part of a page.

    Args:
        draw: returns the axes.
        name: of the figure, unique on the page.
        caption: below it.
        alt: what it shows, for readers who do not see it.

    Returns:
        HTML with the figure as SVG.
    """
    try:
        import matplotlib
    except ImportError as error:
        raise ImportError(
            "A report needs the package matplotlib, which is not installed; "
            "install it with: pip install 'mibounds[plot]'"
        ) from error
    inks = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")
    style: dict[Any, Any] = dict.fromkeys(inks, INK) | {
        "svg.fonttype": "none",  # text stays text
        "svg.hashsalt": name,
        "font.size": 10.5,
        "axes.facecolor": "none",
        "grid.color": "#808080",
        "font.family": ["DejaVu Sans"],  # comes with matplotlib, and is wider than the page's
    }
    buffer = io.BytesIO()
    with matplotlib.rc_context(style), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # the browser has more characters
        ax = draw()
        figure: Any = ax.figure
        figure.savefig(buffer, format="svg", facecolor="none")
        alt = alt if isinstance(alt, str) else alt(ax)
    svg = _inline(buffer.getvalue(), name, alt)
    return f"<figure>\n{svg}\n<figcaption>{_text(caption)}</figcaption>\n</figure>"


def _inline(svg: bytes, name: str, alt: str) -> str:
    """An SVG to be part of a page: unique ids, the page's colours and font, no style sheet.

    A style sheet in it would apply to the whole page.
    """
    root = ElementTree.fromstring(svg)
    for parent in list(root.iter()):
        for child in list(parent):
            if _plain(child.tag) in ("metadata", "style"):
                parent.remove(child)
    for element in root.iter():
        element.tag = _plain(element.tag)
        attributes = {_plain(key): value for key, value in element.attrib.items()}
        element.attrib.clear()
        for key, value in attributes.items():
            if key == "id":
                value = f"{name}-{value}"
            elif key == "href":
                value = re.sub("^#", f"#{name}-", value)
            elif key != "d":
                value = value.replace("url(#", f"url(#{name}-")
                value = value.replace(INK, "currentColor").replace(BLUE.lower(), "var(--lower)")
                value = re.sub(r"font-family:[^;]*;?", "", value)
            element.set(key, value)
    for key in ("width", "height", "version"):
        root.attrib.pop(key, None)
    root.set("role", "img")
    root.set("aria-labelledby", f"{name}-title")
    root.set("style", "stroke-linejoin: round; stroke-linecap: butt")
    title = ElementTree.Element("title", id=f"{name}-title")
    title.text = printable(alt)
    root.insert(0, title)
    return ElementTree.tostring(root, encoding="unicode")


def _plain(name: str) -> str:
    """The name without its namespace, which a page does not need: xlink:href is href there."""
    return name.split("}")[-1]


STYLE = """\
:root {
  color-scheme: light dark;
  --paper: #ffffff; --card: #f6f7f9; --ink: #1c1f24; --quiet: #5a616c; --line: #dde1e7;
  --upper: #D55E00; --lower: #0072B2; --neither: #009E73; --care: #E69F00;
}
@media (prefers-color-scheme: dark) {
  :root { --paper: #14161a; --card: #1d2026; --ink: #e8eaed; --quiet: #a3abb8; --line: #363b44;
    --lower: #56B4E9; }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 16px/1.5 system-ui, "Segoe UI", Roboto, "Liberation Sans", Arial, sans-serif; }
main { max-width: 62rem; margin: 0 auto; padding: 1.5rem 1.25rem 3rem; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0; overflow-wrap: anywhere; }
h2 { font-size: 1.15rem; margin: 0 0 .6rem; }
section { margin-top: 2rem; }
p { margin: .4rem 0; overflow-wrap: anywhere; }
.quiet { color: var(--quiet); font-size: .9rem; }
.verdict { margin-top: 1.2rem; padding: .7rem 1rem; border-left: .4rem solid var(--neither);
  background: var(--card); border-radius: .3rem; }
.verdict h2 { margin: 0; }
.verdict.care { border-color: var(--care); }
.verdict.doubt { border-color: var(--upper); }
.two { display: grid; grid-template-columns: minmax(0, 1fr) minmax(0, 1.25fr); gap: 1.5rem;
  align-items: center; }
.grid { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 26rem), 1fr));
  gap: 1rem; }
.number { font-size: 3.2rem; font-weight: 650; line-height: 1.1; margin: 0;
  font-variant-numeric: tabular-nums; }
.number small { font-size: 1.3rem; font-weight: 400; color: var(--quiet); }
.bits { margin: .8rem 0; }
figure { margin: 0; padding: .8rem; border: 1px solid var(--line); border-radius: .5rem;
  max-width: 36rem; min-width: 0; }
figure svg { display: block; width: 100%; height: auto; color: var(--ink); }
figcaption { margin-top: .4rem; color: var(--quiet); font-size: .85rem; text-align: center;
  overflow-wrap: anywhere; }
.advice { list-style: none; margin: 0; padding: 0; display: grid; gap: .7rem; }
.advice li { padding: .4rem .9rem; border-left: .25rem solid var(--care); background: var(--card);
  border-radius: .3rem; }
.advice li.doubt { border-color: var(--upper); }
code { font-size: .85em; padding: .1em .35em; border: 1px solid var(--line); border-radius: .25em; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .93rem; }
th, td { text-align: left; padding: .4rem .8rem .4rem 0; border-bottom: 1px solid var(--line);
  vertical-align: top; }
thead th { color: var(--quiet); font-weight: 500; }
tbody th { font-weight: 500; white-space: nowrap; }
td:last-child:not(:nth-child(2)) { min-width: 12rem; }
.own th, .own td { font-weight: 700; }
.n { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
.side { white-space: nowrap; }
.side::before { content: "●"; margin-right: .4em; color: var(--quiet); }
.side.upper::before { content: "▼"; color: var(--upper); }
.side.lower::before { content: "▲"; color: var(--lower); }
.side.neither::before { color: var(--neither); }
.settings td { overflow-wrap: anywhere; font-family: ui-monospace, monospace; font-size: .85rem; }
.settings th { white-space: normal; width: 14rem; }
@media (max-width: 44rem) {
  .two { grid-template-columns: minmax(0, 1fr); }
  .number { font-size: 2.6rem; }
  figure { padding: .4rem; }
  td:last-child:not(:nth-child(2)) { min-width: 20rem; }
  .settings th { width: 9rem; }
}
@media print {
  :root { --paper: #fff; --card: #fff; --ink: #000; --quiet: #444; --line: #bbb; --lower: #0072B2; }
  body { font-size: 11pt; }
  main { padding: 0; max-width: none; }
  figure, li, tr, .verdict { break-inside: avoid; }
  h2 { break-after: avoid; }
  .wide { overflow: visible; }
  * { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
}
"""
