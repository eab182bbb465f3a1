"""What `lags` found as one self-contained HTML file, in the style of the report of an estimate."""

from __future__ import annotations

import os

from mibounds.files import replacing
from mibounds.measure.report import _text, draw_figure, wrap_page
from mibounds.measure.series.results import Lags
from mibounds.measure.wording import number

__all__ = ["write_lag_report"]


def write_lag_report(
    path: str | os.PathLike[str], found: Lags, title: str = "Mutual information by lag"
) -> None:
    """Write the curve, its table and its warnings as one file, whole or not at all.

    The extra ``plot`` is needed.

    Args:
        path: of the file, in a folder that exists.
        found: what `lags` returned.
        title: of the page.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> import numpy as np, mibounds as mb
        >>> x, y = np.random.default_rng(0).normal(size=(2, 200))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = Path(folder, "lags.html")
        ...     write_lag_report(file, mb.lags(x, y, max_lag=2, permutations=19), "Rain and flow")
        ...     "<h1>Rain and flow</h1>" in file.read_text(encoding="utf-8")
        True
    """
    parts = [_headline(found, title), _curve(found), _warnings(found), _table(found)]
    page = wrap_page("\n".join(part for part in parts if part), title)
    with replacing(path) as part:
        part.write_text(page, encoding="utf-8", errors="replace", newline="\n")


def _headline(found: Lags, title: str) -> str:
    best = found.best
    p = "" if best.p_value is None else f"<p><b>p-value</b> {best.p_value:.3g}, corrected</p>"
    transfers = "".join(f"<p>{_text(each)}</p>" for each in found.transfers)
    verdict = "doubt" if found.warnings else "believe"
    said = (
        "Do not believe it: there are warnings."
        if found.warnings
        else "Believe it: there are no warnings."
    )
    return f"""<header>
<h1>{_text(title)}</h1>
<p class="quiet">{_text(found.formula)} · k in {_text(found.unit)} · {found.n:,} rows ·
by {_text(found.method)} · {found.seconds:.1f} s</p>
</header>
<section class="verdict {verdict}" aria-label="Verdict"><h2>{said}</h2></section>
<section aria-label="Result">
<p class="number">{number(best.nats)} <small>nats at lag {best.lag}</small></p>
<p>{100 * found.level:.4g} % interval {number(best.interval[0])} … {number(best.interval[1])}</p>
{p}{transfers}
</section>"""


def _curve(found: Lags) -> str:
    alt = (
        f"Mutual information at lags {found.rows[0].lag} to {found.rows[-1].lag} with its "
        f"interval; the largest value is {number(found.best.nats)} nats at lag {found.best.lag}."
    )
    return "<section>" + draw_figure(found.plot, "lags", "By lag", alt) + "</section>"


def _warnings(found: Lags) -> str:
    if not found.warnings:
        return ""
    items = "\n".join(
        f'<li class="doubt"><p><code>{_text(w.code)}</code> {_text(w.message)}</p>'
        f"<p><b>What to do:</b> {_text(w.remedy)}</p></li>"
        for w in found.warnings
    )
    return f'<section>\n<h2>Diagnostics</h2>\n<ul class="advice">\n{items}\n</ul>\n</section>'


def _table(found: Lags) -> str:
    rows = []
    for row in found.rows:
        p = "" if row.p_value is None else f"{row.p_value:.3g}"
        ends = f"{number(row.interval[0])} … {number(row.interval[1])}"
        cells = (number(row.nats), number(row.bits), ends, p, row.n, row.block)
        own = ' class="own"' if row is found.best else ""
        inner = "".join(f'<td class="n">{cell}</td>' for cell in cells)
        rows.append(f'<tr{own}><th scope="row">{row.lag}</th>{inner}</tr>')
    names = "Nats", "Bits", "Interval", "p", "Rows", "Block"
    head = "".join(f'<th scope="col" class="n">{name}</th>' for name in names)
    return f"""<section>
<h2>Every lag</h2>
<div class="wide" tabindex="0" role="region" aria-label="Table of lags">
<table><thead><tr><th scope="col">Lag</th>{head}</tr></thead>
<tbody>
{chr(10).join(rows)}
</tbody></table></div>
<p class="quiet">{_text(found.names[0])} leads at positive lags. A block is how many rows depend on
each other. Seed {found.seed}, {found.permutations} surrogates.</p>
</section>"""
