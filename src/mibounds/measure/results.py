"""What an estimate of mutual information says: a number, how sure, and whether to believe it.

An `Estimate` holds what was measured and nothing that computes. A point value with its interval
comes first; the bracket between the best lower and the tightest upper bound is evidence of another
kind, which holds whatever model is behind the point value; and the warnings say in words where the
data or a fit are outside what the methods can do.

The code of a warning that begins with the name of a method and a hyphen ("infonce-ceiling")
concerns that method, and one that begins with "q-" the methods that fit a conditional q(y|x). If
the point value comes from another one, the warning weakens a side of the bracket and leaves the
number as it is: `Estimate.verdict` tells these two cases apart.
"""

from __future__ import annotations

import dataclasses
import json
import math
import textwrap
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Advice", "Estimate", "Point", "Row"]

WIDTH = 100  # columns of the printed table
WITH_Q = frozenset({"ba", "club", "club_sample", "doe", "l1out", "vub"})  # fit q(y|x)


@dataclass(frozen=True)
class Advice:
    """A diagnostic that speaks: what is the matter, and what to do.

    Args:
        code: a short name to look for; begins with a method's name if it is about that one alone.
        message: what is the matter, with numbers.
        remedy: what to do about it.

    Example:
        >>> print(Advice("few-samples", "30 samples in 40 dimensions.", "Take more samples."))
        few-samples: 30 samples in 40 dimensions. Take more samples.
    """

    code: str
    message: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.code}: {self.message} {self.remedy}"


@dataclass(frozen=True)
class Row:
    """What one method says.

    Args:
        method: its name in the registry.
        side: "upper", "lower" or "neither".
        condition: under which it is that; "" if none.
        nats: the value.
        error: its standard error in nats, if it has one.
        seconds: the time that it took.

    Example:
        >>> Row("infonce", "lower", "", 0.65, 0.01, 2.5).bits > 0.65
        True
    """

    method: str
    side: str
    condition: str
    nats: float
    error: float | None
    seconds: float

    @property
    def bits(self) -> float:
        """The value in bits."""
        return self.nats / math.log(2)


@dataclass(frozen=True)
class Point:
    """One point of a training curve.

    Args:
        method: what was trained.
        fold: on which part of the data, counted from 0.
        step: after how many steps.
        loss: the training loss there.
        held_out: the same loss on samples that are not trained on.

    Example:
        >>> Point("club", fold=0, step=100, loss=1.25, held_out=1.5).held_out
        1.5
    """

    method: str
    fold: int
    step: int
    loss: float
    held_out: float


@dataclass(frozen=True)
class Estimate:
    """Mutual information of two variables, as told by several methods.

    It prints as a table of plain text, and shows itself as one in a notebook.

    Args:
        nats: the point value.
        interval: its lower and upper end in nats.
        level: how often such an interval is to cover the truth.
        interval_method: how it was made, in words.
        lower: the best lower bound measured, if any was.
        upper: the tightest upper bound measured, if any was.
        method: the method behind ``nats``.
        rows: what each method says.
        history: points of the training curves.
        warnings: what is the matter, and what to do.
        p_value: of independence, by permutations; None if that was not asked for.
        null: the values under permutation; () if there are none.
        n: how many samples.
        x_dim: columns of x.
        y_dim: columns of y.
        seed: that repeats it.
        seconds: the time that it took.
        config: all settings, of types that JSON knows.

    Example:
        >>> rows = (Row("ksg", "neither", "", 0.69, 0.01, 0.5),
        ...         Row("infonce", "lower", "", 0.65, 0.02, 2.5))
        >>> result = Estimate(
        ...     nats=0.69, interval=(0.67, 0.71), level=0.95, interval_method="bootstrap",
        ...     lower=0.65, upper=None, method="ksg", rows=rows, history=(), warnings=(),
        ...     p_value=None, null=(), n=10000, x_dim=1, y_dim=2, seed=0, seconds=3.0, config={})
        >>> print(result)
        I(x; y)  0.690 nats, 95 % interval 0.670 ... 0.710
                 0.995 bits, 95 % interval 0.967 ... 1.024
        bracket  0.650 (best lower bound) ... no upper bound
        verdict  Believe it: no diagnostic objects.
        <BLANKLINE>
        method   bound      nats     error  seconds
        ksg *    neither  0.6900  ± 0.0100      0.5
        infonce  lower    0.6500  ± 0.0200      2.5
        <BLANKLINE>
        * behind the value above, whose interval is by bootstrap. 10000 samples, x of 1 column, y of
        2 columns, seed 0, 3.0 s.
        >>> Estimate.from_json(result.to_json()) == result
        True
    """

    nats: float
    interval: tuple[float, float]
    level: float
    interval_method: str
    lower: float | None
    upper: float | None
    method: str
    rows: tuple[Row, ...]
    history: tuple[Point, ...]
    warnings: tuple[Advice, ...]
    p_value: float | None
    null: tuple[float, ...]
    n: int
    x_dim: int
    y_dim: int
    seed: int
    seconds: float
    config: dict[str, Any]

    @property
    def bits(self) -> float:
        """The point value in bits."""
        return self.nats / math.log(2)

    @property
    def interval_bits(self) -> tuple[float, float]:
        """The interval in bits."""
        return self.interval[0] / math.log(2), self.interval[1] / math.log(2)

    @property
    def verdict(self) -> str:
        """Whether to believe the number: "believe", "care" or "doubt".

        Doubt, if a warning concerns the data or the method behind the number, or if that is not
        finite; care, if warnings concern other methods alone, or if the number is a bound.
        """
        if not math.isfinite(self.nats) or any(self.concerns(w) for w in self.warnings):
            return "doubt"
        return "care" if self.warnings or self.side != "neither" else "believe"

    @property
    def side(self) -> str:
        """On which side of the truth the number lies, if the method behind it is a bound."""
        own = next((row.side for row in self.rows if row.method == self.method), "")
        return own if own in ("upper", "lower") else "neither"

    def concerns(self, warning: Advice) -> bool:
        """Whether a warning is about the number itself, not about another method alone."""
        methods = {row.method for row in self.rows} | {self.method}
        about = [m for m in methods if warning.code.startswith(f"{m}-")]
        if warning.code.startswith("q-"):
            return self.method in WITH_Q
        if warning.code.endswith("-subsampled"):
            return False
        return not about or max(about, key=len) == self.method

    # --- to read ---------------------------------------------------------------------------------

    def __str__(self) -> str:
        lines = [f"{name:<9}{text}" for name, text in summary(self)]
        lines = [wrapped for line in lines for wrapped in _wrap(line, indent=9)]
        lines += ["", *_table(self.rows, self.method), ""]
        for warning in self.warnings:
            lines += _wrap(f"! {printable(warning.code)}: {printable(warning.message)}", indent=2)
            lines += _wrap(f"  -> {printable(warning.remedy)}", indent=5)
        lines += [""] if self.warnings else []
        return "\n".join([*lines, *_wrap(facts(self))])

    def _repr_html_(self) -> str:
        """For notebooks: in the colours around it, be they light or dark."""
        cell = "padding:.2em .9em .2em 0;text-align:{};color:inherit;background:transparent"
        line = "border-top:1px solid rgba(128,128,128,.4);background:transparent"
        left, right = cell.format("left"), cell.format("right")

        def td(text: str, style: str, tag: str = "td") -> str:
            return f'<{tag} style="{style};vertical-align:top">{text}</{tag}>'

        head = "".join(
            td(name, left if name in ("method", "bound", "holds if") else right, "th")
            for name in ("method", "bound", "nats", "± error", "seconds", "holds if")
        )
        body = ""
        for row in self.rows:
            mark = f'<span style="color:{COLOURS.get(row.side, "gray")}">●</span> '
            name = escape(row.method) + (" *" if row.method == self.method else "")
            error = "" if row.error is None else number(row.error)
            body += f'<tr style="{line}">' + td(name, left) + td(mark + escape(row.side), left)
            body += td(number(row.nats), right) + td(error, right)
            body += td(f"{row.seconds:.1f}", right) + td(escape(row.condition), left) + "</tr>"
        (_, first), *rest = summary(self)
        said = "".join(
            f"<div>{escape(name)}{' ' * bool(name)}{escape(text)}</div>" for name, text in rest
        )
        warned = "".join(
            '<div style="margin:.5em 0;padding-left:.7em;border-left:3px solid '
            f'{COLOURS["upper"] if self.concerns(w) else COLOURS["care"]}">'
            f"<strong>{escape(w.code)}</strong>: {escape(w.message)}<br>"
            f"<em>What to do:</em> {escape(w.remedy)}</div>"
            for w in self.warnings
        )
        return (
            '<div style="color:inherit;line-height:1.45;max-width:60em">'
            f'<div style="font-size:1.25em"><strong>I(x; y) = {escape(first)}</strong></div>{said}'
            '<table style="border-collapse:collapse;margin:.6em 0;background:transparent">'
            f'<thead><tr style="background:transparent">{head}</tr></thead>'
            f"<tbody>{body}</tbody></table>{warned}"
            f'<div style="opacity:.75;font-size:.9em">{escape(facts(self))}</div></div>'
        )

    def plot(self, ax: Axes | None = None) -> Axes:
        """The bracket: every method's value with its error, and the interval of the point value.

        Args:
            ax: where to draw; a new figure if left out.

        Returns:
            The axes, whose figure is ``.figure``.
        """
        from mibounds.measure.plots import plot_estimate

        return plot_estimate(self, ax)

    # --- to keep ---------------------------------------------------------------------------------

    def to_json(self, indent: int | None = None) -> str:
        """As JSON, with all fields by their names and the value in bits.

        JSON has no infinite numbers: those are the strings "Infinity", "-Infinity" and "NaN", which
        `from_json` reads as numbers again, save those in ``config``, which stay strings.

        Args:
            indent: spaces of a level; everything on one line if left out.
        """
        fields: dict[str, Any] = {"nats": self.nats, "bits": self.bits}
        fields |= dataclasses.asdict(self)
        return json.dumps(_finite(fields), indent=indent, allow_nan=False, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> Estimate:
        """The estimate that `to_json` has written.

        Fields that are not known are passed over, so that later versions may add some.
        """
        data = json.loads(text)  # its error is a ValueError that says where
        rows = _read_all(Row, _of(data, "rows", list), "rows")
        history = _read_all(Point, _of(data, "history", list), "history")
        advice = _read_all(Advice, _of(data, "warnings", list), "warnings")
        ends = _of(data, "interval", list)
        if len(ends) != 2:
            raise ValueError(
                f"Expected interval to have 2 ends but got {len(ends)}; "
                "pass what to_json has written."
            )
        rest = {
            "interval": (_float(ends[0], "interval"), _float(ends[1], "interval")),
            "rows": rows,
            "history": history,
            "warnings": advice,
            "null": tuple(_float(value, "null") for value in _of(data, "null", list)),
            "config": _of(data, "config", dict),
        }
        return _read(cls, data, "", rest)

    def to_frame(self) -> Any:
        """The rows as a pandas DataFrame, one line a method.

        Needs the extra ``tables``.
        """
        try:
            import pandas
        except ImportError as error:
            raise ImportError(
                "to_frame() needs the package pandas, which is not installed; "
                "install it with: pip install 'mibounds[tables]'"
            ) from error
        names = [field.name for field in dataclasses.fields(Row)]
        frame = pandas.DataFrame([dataclasses.asdict(row) for row in self.rows], columns=names)
        frame.insert(names.index("nats") + 1, "bits", [row.bits for row in self.rows])
        return frame.astype({name: float for name in ("nats", "bits", "error", "seconds")})


# --- words for the numbers, shared with the report -----------------------------------------------

# Okabe and Ito's colours, which all kinds of colour vision tell apart.
COLOURS = {"upper": "#D55E00", "lower": "#0072B2", "neither": "#009E73", "care": "#E69F00"}


def number(value: float, decimals: int = 4) -> str:
    """A value for a table; large ones by four digits."""
    if math.isfinite(value) and abs(value) >= 1e5:
        return f"{value:.4g}"
    text = f"{value:.{decimals}f}"
    return text if text.strip("-0.") else text.lstrip("-")  # no minus before a zero


def decimals(estimate: Estimate) -> int:
    """How many decimals the interval gives a meaning to: two digits of its half width."""
    half = (estimate.interval[1] - estimate.interval[0]) / 2
    if not 0 < half < math.inf:
        return 4
    return min(4, max(1, 1 - math.floor(math.log10(half) + 1e-9)))


def verdict(estimate: Estimate) -> str:
    """Whether to believe it, as a sentence."""
    if not math.isfinite(estimate.nats):
        return "Do not believe it: the value is not a finite number."
    own = sum(map(estimate.concerns, estimate.warnings))
    if own:
        return f"Do not believe it: {_many(own, 'diagnostic objects', 'diagnostics object')}."
    bound = "" if estimate.side == "neither" else f" as {_bound(estimate)}, not as the value"
    if estimate.warnings:
        other = _many(len(estimate.warnings), "diagnostic concerns", "diagnostics concern")
        and_so = f",{bound}" if bound else ""
        return f"Believe it with care{and_so}: {other} the bracket, not the value itself."
    return f"Believe it{bound}: no diagnostic objects."


def _bound(estimate: Estimate) -> str:
    return "an upper bound" if estimate.side == "upper" else "a lower bound"


def bracket(estimate: Estimate) -> str:
    """The two sides in words; "" if neither was measured."""
    places = decimals(estimate)
    if estimate.lower is None and estimate.upper is None:
        return ""
    lower, upper = "no lower bound", "no upper bound"
    if estimate.lower is not None:
        lower = f"{number(estimate.lower, places)} (best lower bound)"
    if estimate.upper is not None:
        upper = f"{number(estimate.upper, places)} (tightest upper bound)"
    return f"{lower} ... {upper}"


def p_value(estimate: Estimate) -> str:
    """The p-value in words; "" if there is none."""
    if estimate.p_value is None:
        return ""
    by = f", by {_many(len(estimate.null), 'permutation')}" if estimate.null else ""
    return f"{estimate.p_value:.3g} for independence{by}"


def summary(estimate: Estimate) -> list[tuple[str, str]]:
    """The lines above the table: a name and what to say."""
    places, level = decimals(estimate), f"{100 * estimate.level:.4g} %"

    def line(value: float, ends: tuple[float, float], unit: str) -> str:
        low, high = (number(end, places) for end in ends)
        side = {"upper": "at most ", "lower": "at least ", "neither": ""}[estimate.side]
        return f"{side}{number(value, places)} {unit}, {level} interval {low} ... {high}"

    lines = [
        ("I(x; y)", line(estimate.nats, estimate.interval, "nats")),
        ("", line(estimate.bits, estimate.interval_bits, "bits")),
        ("bracket", bracket(estimate)),
        ("p-value", p_value(estimate)),
        ("verdict", verdict(estimate)),
    ]
    return [(name, text) for name, text in lines if text]


def facts(estimate: Estimate) -> str:
    """How it came about, in a line or two."""
    e, how = estimate, printable(estimate.interval_method)
    starred = any(row.method == e.method for row in e.rows)
    return (
        f"* behind the value above, whose interval is by {how}. "
        if starred
        else f"The value is by {printable(e.method)}, its interval by {how}. "
    ) + (
        f"{_many(e.n, 'sample')}, x of {_many(e.x_dim, 'column')}, y of "
        f"{_many(e.y_dim, 'column')}, seed {e.seed}, {e.seconds:.1f} s."
    )


def printable(text: str) -> str:
    """On one line, and without what could steer a terminal."""
    return "".join(c if c.isprintable() else " " for c in text)


def _many(count: int, one: str, more: str | None = None) -> str:
    return f"{count} {one if count == 1 else more or one + 's'}"


def _wrap(text: str, indent: int = 0) -> list[str]:
    return textwrap.wrap(text, WIDTH, subsequent_indent=" " * indent)


def _table(rows: tuple[Row, ...], chosen: str) -> list[str]:
    """Columns in line; what is too long for the last one goes on below it."""
    cells = [("method", "bound", "nats", "error", "seconds")]
    for row in rows:
        name = textwrap.shorten(printable(row.method), 30, placeholder="…")
        cells.append(
            (
                name + (" *" if row.method == chosen else ""),
                row.side,
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


# --- to and from JSON ----------------------------------------------------------------------------


def _finite(value: Any) -> Any:
    """The same with strings for the numbers that JSON does not have."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list | tuple) else value


def _of(data: Any, name: str, kind: type) -> Any:
    """The field of that name, if it is of that type."""
    if not isinstance(data, dict):
        raise ValueError(
            f"Expected an object of JSON but got {type(data).__name__}; "
            "pass what to_json has written."
        )
    if name not in data:
        raise ValueError(
            f"Expected the field {name!r} of an estimate but it is not there; "
            "pass what to_json has written."
        )
    if not isinstance(data[name], kind) or isinstance(data[name], bool):
        got = type(data[name]).__name__
        raise ValueError(
            f"Expected {name!r} to be of type {kind.__name__} but got {got}; "
            "pass what to_json has written."
        )
    return data[name]


def _float(value: Any, name: str) -> float:
    if isinstance(value, bool) or not (
        isinstance(value, int | float) or value in ("NaN", "Infinity", "-Infinity")
    ):
        raise ValueError(
            f"Expected {name!r} to be a number but got {value!r}; pass what to_json has written."
        )
    return float(value)


def _read(cls: Any, data: Any, where: str, given: dict[str, Any] | None = None) -> Any:
    """An instance of a dataclass from an object of JSON."""
    values = dict(given or {})
    for field in dataclasses.fields(cls):
        name, kind = field.name, str(field.type)
        if name in values:
            continue
        if kind.endswith("| None") and isinstance(data, dict) and data.get(name, 0) is None:
            values[name] = None
        elif kind.startswith("float"):
            values[name] = _float(_of(data, name, object), where + name)
        else:
            values[name] = _of(data, name, {"str": str, "int": int}[kind])
    return cls(**values)


def _read_all(cls: Any, items: list[Any], where: str) -> tuple[Any, ...]:
    return tuple(_read(cls, item, f"{where}.") for item in items)
