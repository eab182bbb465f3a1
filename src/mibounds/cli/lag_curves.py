"""``mibounds lags``: how much one column of a file says of another, earlier or later."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from mibounds.cli.commands import Command, check_numbers
from mibounds.cli.estimation import computing_with
from mibounds.cli.outputs import as_picture, as_text, check_targets, deliver
from mibounds.cli.tables import Table, check_apart, read_names, read_table, select
from mibounds.cli.terminal import as_json, progress_bar


@dataclass(frozen=True)
class LagsCommand(Command):
    """Measure how much one series of a file says of another at each lag, with intervals.

    Rows are times at equal distances, in their order. At a positive lag x leads. Columns are named
    as for "mibounds estimate".

    Attributes:
        file: CSV, TSV, JSON lines, Parquet, Arrow, NPZ or NPY.
        x: columns of x; if left out, those named x.
        y: columns of y; if left out, those named y.
        max_lag: lags from minus this to this.
        given_past: rows of the past that are given, or auto; 0 for none.
        transfer: measure the transfer entropy in both directions, too.
        time: column of times or numbers, whose rows must be at equal distances.
        method: Gaussian copula, neighbours, counts of labels, or what fits the columns.
        discrete: columns that are labels although they hold numbers.
        continuous: columns that are measurements although they look like labels.
        permutations: surrogates for p-values; 0 for none.
        level: how often an interval covers the truth.
        seed: seed of all random numbers.
        threads: processor threads.
        json: print JSON instead of a table.
        plot: picture to write; its ending (.png, .svg, .pdf) decides the format.
        report: HTML page to write.
        out: JSON file to write.
    """

    unknown_flag = "put commas between the names of columns, or "

    file: str
    x: str = ""
    y: str = ""
    max_lag: int = 10
    given_past: str = "0"
    transfer: bool = False
    time: str = ""
    method: Literal["default", "gaussian", "neighbours", "counts"] = "default"
    discrete: str = ""
    continuous: str = ""
    permutations: int = 199
    level: float = 0.95
    seed: int = 0
    threads: int = 1
    json: bool = False
    plot: str = ""
    report: str = ""
    out: str = ""

    def run(self) -> None:
        """Read, measure, print, write."""
        check_targets(self.file, {"--out": self.out, "--plot": self.plot, "--report": self.report})
        check_numbers(self)
        past = self._past()
        names = read_names(self.file)
        sides = {f"--{side}": self._side(names, side) for side in ("x", "y")}
        check_apart(sides)
        at = select(names, self.time) if self.time else []
        used = [name for side in sides.values() for name in side]
        discrete, continuous = (
            frozenset(select(names, pattern) if pattern else [])
            for pattern in (self.discrete, self.continuous)
        )
        wanted = list(dict.fromkeys([*used, *at]))
        table = read_table(self.file, wanted, discrete=discrete, continuous=continuous).complete()
        _check_times(table, at)

        from mibounds.measure.series.time_series import lags

        x, y = sides.values()
        with computing_with(self.threads), progress_bar("lags") as progress:
            found = lags(
                table.take(x),
                table.take(y),
                max_lag=self.max_lag,
                given_past=past,
                transfer=self.transfer,
                method=self.method,
                x_kinds=table.kinds(x, discrete, continuous),
                y_kinds=table.kinds(y, discrete, continuous),
                level=self.level,
                permutations=self.permutations,
                seed=self.seed,
                progress=progress,
            )
        record = {"file": self.file, "x": x, "y": y, **json.loads(found.to_json())}
        text = as_json(record)
        title = f"{Path(self.file).name}: {', '.join(x)} and {', '.join(y)}"

        def write_page(path: Path) -> None:
            from mibounds.measure.series.reports import write_lag_report

            write_lag_report(path, found, title)

        deliver(
            text if self.json else f"{title}\n\n{found}",
            {
                self.out: as_text(text),
                self.plot: as_picture(found.plot),
                self.report: write_page,
            },
        )

    def _past(self) -> int | str:
        if self.given_past == "auto" or self.given_past.isdecimal():
            return "auto" if self.given_past == "auto" else int(self.given_past)
        raise ValueError(
            f"Expected --given-past as a number of rows or auto but got {self.given_past!r}; "
            "leave it out for no past."
        )

    def _side(self, names: Sequence[str], side: str) -> list[str]:
        return select(names, getattr(self, side) or side)


def _check_times(table: Table, at: Sequence[str]) -> None:
    """Check that the rows are at equal distances."""
    for name in at:
        column = table[name]
        steps = np.diff(np.asarray(column.values, dtype=np.float64))
        equal = column.labels is None and steps[0] > 0
        if not (equal and np.allclose(steps, steps[0], rtol=1e-6)):
            far = int(np.abs(steps - np.median(steps)).argmax()) + 1
            raise ValueError(
                f"Expected rows at equal distances in {name!r} but got a different distance after "
                f"row {far}; sort and resample the rows, or leave out --time if they are equally "
                "far apart."
            )
