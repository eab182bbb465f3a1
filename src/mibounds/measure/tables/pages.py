"""Rankings and matrices in words: plain text, tables of HTML, and pages of their own."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Callable, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from mibounds.files import replacing
from mibounds.measure.plots import BLUE
from mibounds.measure.report import draw_figure, wrap_page
from mibounds.measure.results import Advice
from mibounds.measure.tables.plots import plot_matrix, plot_network, plot_ranking
from mibounds.measure.tables.results import MatrixData, RankedColumn, RankingData
from mibounds.measure.tables.scales import Unit
from mibounds.measure.wording import printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = [
    "matrix_html",
    "matrix_table",
    "matrix_text",
    "matrix_title",
    "ranking_html",
    "ranking_table",
    "ranking_text",
    "write_matrix",
    "write_ranking",
]  # fmt: skip

MOST = 200  # lines of a table
CELLS = 20  # columns of a matrix in a table of HTML
SHOWN = 12  # and as plain text
STRONGEST = 10  # pairs that are printed


def ranking_text(ranking: RankingData) -> str:
    """A ranking as aligned columns."""
    rows = [_cells(ranking, c) for c in ranking.columns[:MOST]]
    table = [_head(ranking), *rows]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    left = {"column", "95 % interval", "method"}
    lines = []
    for row in table:
        cells = [
            c.ljust(w) if h in left or "interval" in h else c.rjust(w)
            for h, c, w in zip(table[0], row, widths, strict=True)
        ]
        lines.append("  ".join(cells).rstrip())
    if len(ranking.columns) > MOST:
        lines.append(f"... and {len(ranking.columns) - MOST} more; see to_frame()")
    notes = [f"! {printable(str(each))}" for each in ranking.warnings]
    return "\n".join([_ranked(ranking), "", *lines, "", _origin(ranking), *notes])


def ranking_table(ranking: RankingData) -> str:
    """A ranking as a table of HTML."""
    rows = [_cells(ranking, c) for c in ranking.columns[:MOST]]
    return (
        f"<p><b>{escape(_ranked(ranking))}</b></p>{_table(_head(ranking), rows)}"
        f"<p>{escape(_origin(ranking))}</p>{_notes(ranking.warnings)}"
    )


def matrix_title(matrix: MatrixData) -> str:
    """What a matrix is of, with its size."""
    if matrix.symmetric:
        count = len(matrix.places()[0])
        return f"Mutual information of {len(matrix.left)} columns, {count} pairs"
    return f"Mutual information of {len(matrix.left)} and {len(matrix.right)} columns"


def matrix_text(matrix: MatrixData, unit: Unit = "nats") -> str:
    """The first rows and columns of a matrix, and its strongest pairs."""
    how = unit if unit == "normalised" else f"in {unit}"
    lines = [f"{matrix_title(matrix)}, {how}", "", *_grid(matrix, unit), "", *_strongest(matrix)]
    return "\n".join(map(printable, lines))


def matrix_html(matrix: MatrixData) -> str:
    """The same for notebooks, with the heat map."""
    lines = "<br>".join(map(_text, _strongest(matrix)))
    title = escape(matrix_title(matrix))
    said = f"<p><b>{title}, in nats</b></p>{matrix_table(matrix)}<p>{lines}</p>"
    return said + _beside(lambda: plot_matrix(matrix), matrix.to_json(), "normalised values")


def _grid(matrix: MatrixData, unit: Unit) -> list[str]:
    rows, columns = matrix.left[:SHOWN], matrix.right[:SHOWN]
    cells = [["", *columns]]
    for name, values in zip(rows, matrix.values(unit)[:SHOWN, :SHOWN].tolist(), strict=True):
        cells.append([name, *map(_nats, values)])
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = [
        f"{row[0]:<{widths[0]}}  "
        + "  ".join(f"{c:>{w}}" for c, w in zip(row[1:], widths[1:], strict=True))
        for row in cells
    ]
    left_out = max(len(matrix.left), len(matrix.right)) - SHOWN
    return lines if left_out <= 0 else [*lines, f"... and {left_out} more; see to_frame()"]


def _strongest(matrix: MatrixData) -> list[str]:
    found = [p for p in matrix.pairs("normalised") if p.p_value <= 0.05]
    found.sort(key=lambda p: -p.nats)
    how = f"(p-values corrected by {matrix.correction})"
    if not found:
        lines = [f"No pair is dependent at 0.05 {how}."]
    else:
        are = "pair is" if len(found) == 1 else "pairs are"
        lines = [f"{len(found)} {are} dependent at 0.05 {how}:"]
    lines += [
        f"{p.left} – {p.right}  {_nats(p.nats)} nats, {100 * matrix.level:.4g} % interval "
        f"{_nats(p.low)} ... {_nats(p.high)}, normalised {p.value:.2f}"
        for p in found[:STRONGEST]
    ]
    if len(found) > STRONGEST:
        lines.append(f"... and {len(found) - STRONGEST} more; see pairs()")
    return lines + [f"! {each}" for each in matrix.warnings]


def ranking_html(ranking: RankingData) -> str:
    """A ranking for notebooks, with its bars."""
    caption = "What each column shares with the target"
    return ranking_table(ranking) + _beside(
        lambda: plot_ranking(ranking), ranking.to_json(), caption
    )


def _beside(draw: Callable[[], Axes], content: str, caption: str) -> str:
    """A figure for a notebook, if it can be drawn."""
    name = "f" + hashlib.blake2b(content.encode(), digest_size=6).hexdigest()
    try:
        figure = draw_figure(draw, name, caption, caption)
    except ImportError:
        return ""
    return f'<div style="--lower: {BLUE}; max-width: 46em">{figure}</div>'


def matrix_table(matrix: MatrixData) -> str:
    """The first rows and columns of a matrix as a table of HTML, in nats."""
    head = ["", *matrix.right[:CELLS]]
    rows = [
        [name, *(_nats(value) for value in values)]
        for name, values in zip(
            matrix.left[:CELLS], matrix.nats[:CELLS, :CELLS].tolist(), strict=False
        )
    ]
    return _table(head, rows)


def write_ranking(path: str | os.PathLike[str], ranking: RankingData, title: str) -> None:
    """Write a ranking as one self-contained HTML file.

    Args:
        path: of the file, in a folder that exists.
        ranking: what to write.
        title: of the page.
    """
    figures = [
        _figure(
            lambda: plot_ranking(ranking),
            "ranking",
            "What each column shares with the target; grey where that is not significant",
        )
    ]
    body = [_ranked(ranking)], _table(_head(ranking), [_cells(ranking, c) for c in ranking.columns])
    _write(path, title, body[0], figures, body[1], ranking.warnings, _settings(ranking))


def write_matrix(path: str | os.PathLike[str], matrix: MatrixData, title: str) -> None:
    """Write a matrix as one self-contained HTML file.

    Args:
        path: of the file, in a folder that exists.
        matrix: what to write.
        title: of the page.
    """
    figures = [
        _figure(
            lambda: plot_matrix(matrix),
            "matrix",
            "Normalised mutual information; similar columns are neighbours, and what is not "
            "significant is zero",
        ),
        _figure(lambda: plot_network(matrix), "network", "The strongest pairs that are dependent"),
    ]
    head = ["pair", "nats", "interval", "normalised", "p-value", "rows", "method"]
    pairs = sorted(matrix.pairs("normalised"), key=lambda p: -p.nats if p.nats == p.nats else 1)
    rows = [
        [f"{p.left} – {p.right}", _nats(p.nats), f"{_nats(p.low)} … {_nats(p.high)}",
         f"{p.value:.2f}", _chance(p.p_value), str(p.rows), p.method]
        for p in pairs[:MOST]
    ]  # fmt: skip
    said = [
        f"{int(sum(p.p_value <= 0.05 for p in pairs)):,} of {len(pairs):,} pairs are dependent at "
        f"0.05; p-values are corrected by {matrix.correction}.",
        "Normalised: sqrt(1 − exp(−2 I)) for two columns of numbers, the correlation of normal "
        "variables that share as much; I / min(H) with labels.",
    ]
    if len(pairs) > MOST:
        said.append(f"The table has the {MOST} pairs that share most.")
    _write(path, title, said, figures, _table(head, rows), matrix.warnings, _settings(matrix))


def _write(
    path: str | os.PathLike[str],
    title: str,
    said: Sequence[str],
    figures: Sequence[str],
    table: str,
    warnings: Sequence[Advice],
    settings: str,
) -> None:
    words = "\n".join(f'<p class="quiet">{_text(line)}</p>' for line in said)
    pictures = "\n".join(figures)
    body = f"""<header>
<h1>{_text(title)}</h1>
{words}
</header>
{_notes(warnings)}
<section>
<div class="grid">
{pictures}
</div>
</section>
<section>
<h2>Values</h2>
<div class="wide" tabindex="0" role="region" aria-label="Table of values">
{table}
</div>
</section>
<section>
<h2>Settings</h2>
<p class="quiet">{_text(settings)}</p>
</section>"""
    with replacing(path) as part:
        page = wrap_page(body, title)
        part.write_text(page, encoding="utf-8", errors="replace", newline="\n")


def _figure(draw: Callable[[], Axes], name: str, caption: str) -> str:
    return draw_figure(draw, name, caption, caption)


# --- words ---------------------------------------------------------------------------------------


def _ranked(ranking: RankingData) -> str:
    entropy = "" if ranking.entropy is None else f", of entropy {ranking.entropy:.3f} nats"
    return f"Mutual information with {printable(ranking.target)}{entropy}"


def _origin(ranking: RankingData) -> str:
    rows = ranking.config.get("rows")
    chosen = " Columns were chosen one after the other." if ranking.given else ""
    return f"p-values are corrected by {ranking.correction}. {rows} rows.{chosen}"


def _head(ranking: RankingData) -> list[str]:
    head = ["column", "nats", f"{100 * ranking.level:.4g} % interval"]
    head += ["share"] if ranking.entropy else []
    head += ["gain", "chosen"] if ranking.given else []
    return [*head, "p-value", "method"]


def _cells(ranking: RankingData, c: RankedColumn) -> list[str]:
    cells = [printable(c.name), _nats(c.nats), f"{_nats(c.low)} ... {_nats(c.high)}"]
    if ranking.entropy:
        cells.append("–" if c.share is None or math.isnan(c.share) else f"{100 * c.share:.0f} %")
    if ranking.given:
        cells += ["–" if c.gain is None else _nats(c.gain), str(c.chosen or "")]
    return [*cells, _chance(c.p_value), c.method]


def _nats(value: float) -> str:
    return "–" if math.isnan(value) else "∞" if math.isinf(value) else f"{value:.3f}"


def _chance(p: float) -> str:
    return "–" if math.isnan(p) else f"{p:.2g}" if p > 1e-300 else "< 1e-300"


def _settings(found: RankingData | MatrixData) -> str:
    settings: dict[str, Any] = found.config | {
        "level": found.level,
        "correction": found.correction,
        "seconds": float(np.round(found.seconds, 1)),
    }
    return ", ".join(f"{name} {value}" for name, value in settings.items())


def _notes(warnings: Sequence[Advice]) -> str:
    items = "".join(
        f'<li class="doubt"><p><code>{_text(w.code)}</code> {_text(w.message)}</p>'
        f"<p><b>What to do:</b> {_text(w.remedy)}</p></li>"
        for w in warnings
    )
    return f'<section><ul class="advice">{items}</ul></section>' if items else ""


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    top = "".join(f'<th scope="col">{_text(cell)}</th>' for cell in head)
    body = "\n".join(
        f'<tr><th scope="row">{_text(row[0])}</th>'
        + "".join(f'<td class="n">{_text(cell)}</td>' for cell in row[1:])
        + "</tr>"
        for row in rows
    )
    return f"<table>\n<thead><tr>{top}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>"


def _text(text: object) -> str:
    return escape(printable(str(text)))
