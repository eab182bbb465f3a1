"""A measurement in words: as plain text, as HTML for notebooks, and the sentences in both."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from html import escape

from mibounds.estimators import ESTIMATORS
from mibounds.measure.results import FitRecord, Measurement, MethodResult

WIDTH = 100  # characters per line of plain text

# Okabe and Ito's colours, which people with any kind of colour vision can tell apart.
COLOURS = {"upper": "#D55E00", "lower": "#0072B2", "neither": "#009E73", "care": "#E69F00"}


def as_text(found: Measurement) -> str:
    """The number, the bracket, the verdict, a table of the methods, and the warnings."""
    margin = len(found.formula) + 2
    lines = [f"{name:<{margin}}{text}" for name, text in _summary(found)]
    lines = [wrapped for line in lines for wrapped in wrap(line, indent=margin)]
    lines += ["", *_table(found.rows, found.method), ""]
    said = [line for text in fits(found) for line in wrap(text, indent=2)]
    lines += [*said, ""] if said else []
    for warning in found.warnings:
        lines += wrap(f"! {printable(warning.code)}: {printable(warning.message)}", indent=2)
        lines += wrap(f"  -> {printable(warning.remedy)}", indent=5)
    lines += [""] if found.warnings else []
    return "\n".join([*lines, *wrap(_origin(found))])


def as_html(found: Measurement) -> str:
    """The same for notebooks, in the colours around it, light or dark."""
    cell = "padding:.2em .9em .2em 0;text-align:{};color:inherit;background:transparent"
    line = "border-top:1px solid rgba(128,128,128,.4);background:transparent"
    left, right = cell.format("left"), cell.format("right")

    def td(text: str, style: str, tag: str = "td") -> str:
        return f'<{tag} style="{style};vertical-align:top">{text}</{tag}>'

    head = "".join(
        td(name, left if name in ("method", "", "holds if") else right, "th")
        for name in ("method", "", "nats", "± error", "seconds", "holds if")
    )
    body = ""
    for row in found.rows:
        mark = f'<span style="color:{COLOURS.get(row.side, "gray")}">●</span> '
        name = escape(method_name(row.method)) + (" *" if row.method == found.method else "")
        error = "" if row.error is None else number(row.error)
        body += f'<tr style="{line}">' + td(name, left) + td(mark + escape(says(row.side)), left)
        body += td(number(row.nats), right) + td(error, right)
        body += td(f"{row.seconds:.1f}", right) + td(escape(row.condition), left) + "</tr>"
    (_, first), *rest = _summary(found)
    said = "".join(
        f"<div>{escape(name)}{' ' * bool(name)}{escape(text)}</div>" for name, text in rest
    )
    warned = "".join(
        '<div style="margin:.5em 0;padding-left:.7em;border-left:3px solid '
        f'{COLOURS["upper"] if found.concerns(w) else COLOURS["care"]}">'
        f"<strong>{escape(w.code)}</strong>: {escape(w.message)}<br>"
        f"<em>What to do:</em> {escape(w.remedy)}</div>"
        for w in found.warnings
    )
    fitted = "".join(f"<div>{escape(text)}</div>" for text in fits(found))
    return (
        '<div style="color:inherit;line-height:1.45;max-width:60em">'
        f'<div style="font-size:1.25em"><strong>{found.formula} = {escape(first)}</strong></div>'
        f"{said}"
        '<table style="border-collapse:collapse;margin:.6em 0;background:transparent">'
        f'<thead><tr style="background:transparent">{head}</tr></thead>'
        f"<tbody>{body}</tbody></table>{fitted}{warned}"
        f'<div style="opacity:.75;font-size:.9em">{escape(_origin(found))}</div></div>'
    )


# --- the sentences, shared with the report -------------------------------------------------------


def number(value: float, decimals: int = 4) -> str:
    """A value for a table; a large one with four digits."""
    if math.isfinite(value) and abs(value) >= 1e5:
        return f"{value:.4g}"
    text = f"{value:.{decimals}f}"
    return text if text.strip("-0.") else text.lstrip("-")  # no minus sign before a zero


def method_name(method: str) -> str:
    """A method in words: a bound that is computed from the model of another method names both.

    Example:
        >>> method_name("copula_model-infonce"), method_name("ksg")
        ('copula_model, by InfoNCE', 'ksg')
    """
    model, _, bound = method.partition("-")
    return f"{model}, by {ESTIMATORS[bound].__name__}" if bound in ESTIMATORS else method


def says(side: str) -> str:
    """What a value on a side says of the mutual information."""
    return {"upper": "at most", "lower": "at least", "neither": "about"}.get(side, side)


def kinds(found: Measurement) -> str:
    """How many rows there are, and how many columns of which kinds."""
    rows = f"{found.n:,} row{'s' * (found.n != 1)}"
    return f"{rows}, x of {_columns(found, 'x')}, y of {_columns(found, 'y')}"


def decimals(found: Measurement) -> int:
    """How many decimals are meaningful: two digits of the interval's half width."""
    half = (found.interval[1] - found.interval[0]) / 2
    if not 0 < half < math.inf:
        return 4
    return min(4, max(1, 1 - math.floor(math.log10(half) + 1e-9)))


def verdict(found: Measurement) -> str:
    """Whether to believe it, as a sentence."""
    if not math.isfinite(found.nats):
        return "Do not believe it: the value is not a finite number."
    own = sum(map(found.concerns, found.warnings))
    if own:
        return f"Do not believe it: {many(own, 'warning concerns', 'warnings concern')} the value."
    bound = "an upper bound" if found.side == "upper" else "a lower bound"
    bound = "" if found.side == "neither" else f" as {bound}, not as the value"
    if found.warnings and found.verdict != "believe":
        other = "read the warning" if len(found.warnings) == 1 else "read the warnings"
        return f"Believe it with care{',' if bound else ''}{bound}: {other} below."
    return f"Believe it{bound}: there are no warnings{' that matter' if found.warnings else ''}."


def bracket(found: Measurement) -> str:
    """The two sides in words; "" if neither was measured."""
    places = decimals(found)
    if found.lower is None and found.upper is None:
        return ""
    lower, upper = "no lower bound", "no upper bound"
    if found.lower is not None:
        lower = f"{number(found.lower, places)} (best lower bound)"
    if found.upper is not None:
        upper = f"{number(found.upper, places)} (tightest upper bound)"
    return f"{lower} ... {upper}"


def share(found: Measurement) -> str:
    """The share of a label's entropy; "" where both sides have numbers."""
    if found.share is None:
        return ""
    return f"{found.share:.1%} of {number(found.config['entropy'], 3)} nats, a label's entropy"


def p_value(found: Measurement) -> str:
    """The p-value in words; "" if there is none."""
    if found.p_value is None:
        return ""
    signs = found.config.get("given") and "continuous" in found.config.get("given_kinds", [])
    by = many(len(found.null), "random sign change" if signs else "permutation")
    given = " given z" if found.config.get("given") else ""
    return f"{found.p_value:.3g} for independence{given}" + (f", by {by}" if found.null else "")


def fits(found: Measurement) -> list[str]:
    """Which models are used and which were dropped, and at which step their fits stopped."""
    said = []
    for method in dict.fromkeys(fit.method for fit in found.fits):
        own = [fit for fit in found.fits if fit.method == method]
        said += [f"{printable(method)}: {_one_fit(own)}"]
    return said


def _one_fit(records: Sequence[FitRecord]) -> str:
    """What became of the fits of one model, one for each fold."""
    used, dropped = ([r for r in records if r.used == kept] for kept in (True, False))
    steps = [r.steps for r in records if r.steps]
    ends = "" if not steps else f"{min(steps)}" + f" to {max(steps)}" * (min(steps) < max(steps))
    stopped = f"; stopped at step {ends}" if steps else ""
    folds = many(len(records), "fold")
    if not any(r.corrects for r in records):
        return f"fitted in {folds}{stopped}."
    parts = []
    for corrects in dict.fromkeys(r.corrects for r in used):
        same = [r for r in used if r.corrects == corrects]
        nets = "networks correct " if any(r.steps for r in same) else ""
        parts.append(f"{nets}{corrects} in {len(same)} of {folds}")
    if dropped:
        bases = " or ".join(dict.fromkeys(r.corrects for r in dropped))
        where = "" if not used else f" in {len(dropped)} of {folds}"
        parts.append(f"correction dropped{where}, it never beat {bases} on held-out rows")
    return f"{', '.join(parts)}{stopped}."


def printable(text: str) -> str:
    """The text on one line, without characters that could control a terminal."""
    return "".join(c if c.isprintable() else " " for c in text)


# --- plain text ----------------------------------------------------------------------------------


def _summary(found: Measurement) -> list[tuple[str, str]]:
    """The lines above the table: name and text of each."""
    places, level = decimals(found), f"{100 * found.level:.4g} %"

    def line(value: float, ends: tuple[float, float], unit: str) -> str:
        low, high = (number(end, places) for end in ends)
        side = "" if found.side == "neither" else f"{says(found.side)} "
        return f"{side}{number(value, places)} {unit}, {level} interval {low} ... {high}"

    lines = [
        (found.formula, line(found.nats, found.interval, "nats")),
        ("", line(found.bits, found.interval_bits, "bits")),
        ("", share(found)),
        ("bracket", bracket(found)),
        ("p-value", p_value(found)),
        ("verdict", verdict(found)),
    ]
    return [(name, text) for name, text in lines if text]


def _origin(found: Measurement) -> str:
    """How the number was obtained, in a line or two."""
    e, how = found, printable(found.interval_method)
    starred = any(row.method == e.method for row in e.rows)
    return (
        f"* behind the value above, whose interval is by {how}. "
        if starred
        else f"The value is by {printable(e.method)}, its interval by {how}. "
    ) + f"{kinds(e)}, seed {e.seed}, {e.seconds:.1f} s."


def _columns(found: Measurement, side: str) -> str:
    """How many columns of which kinds a side has."""
    kinds = found.config.get(f"{side}_kinds", [])
    text = many(found.x_dim if side == "x" else found.y_dim, "column")
    labels = kinds.count("discrete")
    if not kinds:
        return text
    if labels in (0, len(kinds)):
        return f"{text} of {'labels' if labels else 'numbers'}"
    return f"{text}, {labels} of labels"


def many(count: int, one: str, more: str | None = None) -> str:
    """A number of things, in words."""
    return f"{count} {one if count == 1 else more or one + 's'}"


def wrap(text: str, indent: int = 0) -> list[str]:
    """Lines of plain text, all but the first of them indented."""
    return textwrap.wrap(text, WIDTH, subsequent_indent=" " * indent)


def _table(rows: Sequence[MethodResult], chosen: str) -> list[str]:
    """Aligned columns; the last one continues below itself where it is too long."""
    cells = [("method", "", "nats", "error", "seconds")]
    for row in rows:
        name = textwrap.shorten(printable(method_name(row.method)), 30, placeholder="…")
        cells.append(
            (
                name + (" *" if row.method == chosen else ""),
                printable(says(row.side)),
                number(row.nats),
                "" if row.error is None else f"± {number(row.error)}",
                f"{row.seconds:.1f}",
            )
        )
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    conditions = ["holds if", *(printable(row.condition) for row in rows)]
    left = sum(widths) + 2 * len(widths)
    lines = []
    for line, condition in zip(cells, conditions, strict=True):
        parts = [
            text.ljust(width) if i < 2 else text.rjust(width)
            for i, (text, width) in enumerate(zip(line, widths, strict=True))
        ]
        more = textwrap.wrap(condition, max(20, WIDTH - left)) if any(conditions[1:]) else []
        lines.append("  ".join([*parts, *more[:1]]).rstrip())
        lines += [" " * left + part for part in more[1:]]
    return lines
