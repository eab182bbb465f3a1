"""What `lags` found: rows, and the same as a table, a frame, a curve."""

from __future__ import annotations

import dataclasses
import json
import math
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

from mibounds.measure.plots import BLUE, SKY, VERMILLION, drawable, make_axes
from mibounds.measure.results import Advice
from mibounds.measure.wording import many, number, printable, wrap

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Lag", "Lags", "Transfer"]

MOST_SHOWN = 41  # lags in a printed table


@dataclass(frozen=True)
class Lag:
    """The value at one lag.

    Args:
        lag: rows by which x is ahead of y.
        nats: the value.
        interval: its lower and upper end.
        error: its standard error.
        p_value: of independence, corrected for the number of lags; None if not asked for.
        n: rows at this lag.
        block: rows that depend on each other.

    Example:
        >>> Lag(3, 0.2, (0.1, 0.3), 0.05, 0.01, 497, 12).bits > 0.2
        True
    """

    lag: int
    nats: float
    interval: tuple[float, float]
    error: float
    p_value: float | None
    n: int
    block: int

    @property
    def bits(self) -> float:
        """The value in bits."""
        return self.nats / math.log(2)


@dataclass(frozen=True)
class Transfer:
    """The transfer entropy in one direction.

    Args:
        source: which series the past is of, "x" or "y".
        target: which series is predicted.
        nats: what the source's past adds to the target's own.
        interval: its lower and upper end.
        error: its standard error.
        p_value: of no transfer; None if not asked for.
        source_past: rows of the source's past.
        target_past: rows of the target's past.
        n: rows.

    Example:
        >>> print(Transfer("x", "y", 0.2, (0.1, 0.3), 0.05, 0.01, 3, 1, 497))
        T(x -> y)  0.2000 nats, 0.1000 ... 0.3000, p = 0.01, given 1 row of y, by 3 rows of x
    """

    source: str
    target: str
    nats: float
    interval: tuple[float, float]
    error: float
    p_value: float | None
    source_past: int
    target_past: int
    n: int

    @property
    def bits(self) -> float:
        """The value in bits."""
        return self.nats / math.log(2)

    def __str__(self) -> str:
        p = "" if self.p_value is None else f", p = {self.p_value:.3g}"
        return (
            f"T({self.source} -> {self.target})  {number(self.nats)} nats, "
            f"{number(self.interval[0])} ... {number(self.interval[1])}{p}, given "
            f"{many(self.target_past, 'row')} of {self.target}, by "
            f"{many(self.source_past, 'row')} of {self.source}"
        )


@dataclass(frozen=True)
class Lags:
    """How much one series says of another at each lag, as `lags` returns it.

    It prints as a table of plain text and displays itself as one in a notebook.

    Args:
        rows: one per lag, in their order.
        transfers: the transfer entropies, if asked for.
        method: behind the values.
        given_past: rows of the past of what is led that are given.
        level: of the intervals.
        significant: the nats of a linear relation that would be significant at this level, over all
            lags; None without a test.
        permutations: surrogates of the test.
        warnings: reasons to distrust the numbers.
        unit: what a lag counts.
        names: of both series.
        n: rows of both.
        seed: reproduces it.
        seconds: the time it took.

    Example:
        >>> rows = tuple(Lag(k, 0.1 * k, (0.0, 0.4), 0.1, 0.2 / k, 100, 5) for k in (1, 2))
        >>> found = Lags(rows, (), "gaussian", 0, 0.95, 0.15, 99, (), "D", ("rain", "flow"), 100,
        ...              0, 0.1)
        >>> print(found)
        I(rain at t; flow at t + k), k in steps of D; rain leads where k > 0
        best at k = 2: 0.2000 nats, 95 % interval 0.0000 ... 0.4000, p = 0.1
        <BLANKLINE>
         k    nats        interval        p
         1  0.1000  0.0000 ... 0.4000  0.2
         2  0.2000  0.0000 ... 0.4000  0.1    <- best
        <BLANKLINE>
        By gaussian. P-values are corrected for 2 lags, by 99 surrogates. 100 rows, seed 0, 0.1 s.
        >>> found.best.lag, found.at(1).nats
        (2, 0.1)
    """

    rows: tuple[Lag, ...]
    transfers: tuple[Transfer, ...]
    method: str
    given_past: int
    level: float
    significant: float | None
    permutations: int
    warnings: tuple[Advice, ...]
    unit: str
    names: tuple[str, str]
    n: int
    seed: int
    seconds: float

    @property
    def best(self) -> Lag:
        """The lag with the largest value."""
        return max(self.rows, key=lambda row: row.nats)

    def at(self, lag: int) -> Lag:
        """The row of a lag."""
        for row in self.rows:
            if row.lag == lag:
                return row
        raise ValueError(
            f"Expected a lag from {self.rows[0].lag} to {self.rows[-1].lag} but got {lag}; "
            "pass a larger max_lag to lags()."
        )

    @property
    def formula(self) -> str:
        """What was measured, with the names of both series."""
        x, y = map(printable, self.names)
        if not self.given_past:
            return f"I({x} at t; {y} at t + k)"
        past = f"{many(self.given_past, 'row')} of the latter's past"
        return f"I({x} at t; {y} at t + k | {past})"

    def __str__(self) -> str:
        best, level = self.best, f"{100 * self.level:.4g} %"
        first = printable(self.names[0])
        steps = "rows" if self.unit == "rows" else f"steps of {self.unit}"
        p = "" if best.p_value is None else f", p = {best.p_value:.3g}"
        lines = [
            f"{self.formula}, k in {steps}; {first} leads where k > 0",
            f"best at k = {best.lag}: {number(best.nats)} nats, {level} interval "
            f"{number(best.interval[0])} ... {number(best.interval[1])}{p}",
            *map(str, self.transfers),
            "",
            *self._table(),
            "",
        ]
        for warning in self.warnings:
            lines += wrap(f"! {printable(warning.code)}: {printable(warning.message)}", indent=2)
            lines += wrap(f"  -> {printable(warning.remedy)}", indent=5)
        lines += [""] if self.warnings else []
        return "\n".join([*lines, *wrap(self._origin())])

    def _shown(self) -> tuple[Lag, ...]:
        """The lags of a table: all, or those with the largest values."""
        largest = sorted(self.rows, key=lambda row: -row.nats)[:MOST_SHOWN]
        return tuple(row for row in self.rows if row in largest)

    def _table(self) -> list[str]:
        cells = [("k", "nats", "interval", "p")]
        for row in self._shown():
            ends = f"{number(row.interval[0])} ... {number(row.interval[1])}"
            p = "" if row.p_value is None else f"{row.p_value:.3g}"
            cells.append((str(row.lag), number(row.nats), ends, p))
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines = []
        for i, (k, nats, ends, p) in enumerate(cells):
            parts = k.rjust(widths[0] + 1), nats.rjust(widths[1]), ends.center(widths[2])
            mark = "    <- best" if i and k == str(self.best.lag) else ""
            lines.append(("  ".join([*parts, p.ljust(widths[3])]) + mark).rstrip())
        left = len(self.rows) - len(cells) + 1
        return lines + ([f"and {many(left, 'lag')} with less"] if left else [])

    def _origin(self) -> str:
        tested = (
            f"P-values are corrected for {many(len(self.rows), 'lag')}, by "
            f"{many(self.permutations, 'surrogate')}. "
            if self.permutations
            else ""
        )
        return (
            f"By {self.method}. {tested}{many(self.n, 'row')}, seed {self.seed}, "
            f"{self.seconds:.1f} s."
        )

    def _repr_html_(self) -> str:
        cell = "padding:.2em .9em .2em 0;text-align:right;color:inherit;background:transparent"
        body = ""
        for row in self._shown():
            bold = ";font-weight:bold" if row is self.best else ""
            p = "" if row.p_value is None else f"{row.p_value:.3g}"
            ends = f"{number(row.interval[0])} … {number(row.interval[1])}"
            values = row.lag, number(row.nats), ends, p
            body += "<tr>" + "".join(f'<td style="{cell}{bold}">{v}</td>' for v in values) + "</tr>"
        head = "".join(f'<th style="{cell}">{v}</th>' for v in ("lag", "nats", "interval", "p"))
        said = "".join(f"<div>{escape(str(each))}</div>" for each in self.transfers)
        warned = "".join(
            '<div style="margin:.5em 0;padding-left:.7em;border-left:3px solid #D55E00">'
            f"<strong>{escape(w.code)}</strong>: {escape(w.message)}<br>"
            f"<em>What to do:</em> {escape(w.remedy)}</div>"
            for w in self.warnings
        )
        return (
            f'<div style="color:inherit"><strong>{escape(self.formula)}</strong>{said}'
            f'<table style="border-collapse:collapse"><thead><tr>{head}</tr></thead>'
            f"<tbody>{body}</tbody></table>{warned}"
            f'<div style="opacity:.75;font-size:.9em">{escape(self._origin())}</div></div>'
        )

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the curve with its band, and what would be significant.

        Args:
            ax: where to draw; a new figure if left out.

        Returns:
            The axes, whose figure is ``.figure``.
        """
        legend_below = ax is None
        ax = make_axes(ax)
        at = [row.lag for row in self.rows]
        low, high = ([row.interval[i] for row in self.rows] for i in (0, 1))
        label = f"{100 * self.level:.4g} % interval"
        ax.fill_between(at, low, high, color=SKY, alpha=0.35, lw=0, label=label)
        ax.plot(
            at, [row.nats for row in self.rows], "o-", color=BLUE, ms=3.5, lw=1.2, label="value"
        )
        ax.axhline(0, color="#808080", lw=0.8)
        ax.axvline(0, color="#808080", lw=0.8, ls=":")
        if self.significant is not None and self.significant < float("inf"):
            size = f"significant at {100 * (1 - self.level):.2g} %, if linear"
            ax.axhline(self.significant, color=VERMILLION, lw=1, ls="--", label=size)
        ax.plot([self.best.lag], [self.best.nats], "o", color=VERMILLION, ms=6, label="best")
        unit = "rows" if self.unit == "rows" else drawable(self.unit)
        first, second = map(drawable, self.names)
        ax.set_xlabel(
            f"lag ({unit}); {first} leads on the right, {second} on the left".replace("$", r"\$")
        )
        ax.set_ylabel("mutual information (nats)")
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(alpha=0.25)
        handles, labels = ax.get_legend_handles_labels()
        style: dict[str, Any] = {"fontsize": "small", "frameon": False}
        if legend_below:
            ax.figure.legend(handles, labels, loc="outside lower center", ncols=4, **style)
        else:
            ax.legend(**style)
        return ax

    def to_json(self, indent: int | None = None) -> str:
        """The fields by their names, as JSON.

        Args:
            indent: spaces per level; everything on one line if left out.
        """
        fields: dict[str, Any] = dataclasses.asdict(self)
        fields = {"best": self.best.lag, **fields}
        return json.dumps(fields, indent=indent, allow_nan=False, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> Lags:
        """Read what `to_json` has written."""
        data = json.loads(text)
        data.pop("best", None)
        for name, kind in (("rows", Lag), ("transfers", Transfer), ("warnings", Advice)):
            rows: list[dict[str, Any]] = [
                {key: tuple(v) if isinstance(v, list) else v for key, v in row.items()}
                for row in data[name]
            ]
            data[name] = tuple(kind(**row) for row in rows)
        return cls(**{**data, "names": tuple(data["names"])})

    def to_frame(self) -> Any:
        """The rows as a pandas DataFrame, one line per lag. Needs the extra ``tables``."""
        try:
            import pandas
        except ImportError as error:
            raise ImportError(
                "to_frame() needs the package pandas, which is not installed; "
                "install it with: pip install 'mibounds[tables]'"
            ) from error
        return pandas.DataFrame(
            [
                {
                    "lag": row.lag,
                    "nats": row.nats,
                    "bits": row.bits,
                    "low": row.interval[0],
                    "high": row.interval[1],
                    "error": row.error,
                    "p_value": row.p_value,
                    "n": row.n,
                    "block": row.block,
                }
                for row in self.rows
            ]
        )
