"""``mibounds estimate``: the mutual information of columns of a file."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from mibounds.cli.commands import Command, check_numbers
from mibounds.cli.outputs import as_picture, as_text, check_targets, deliver
from mibounds.cli.tables import check_apart, read_names, read_table, select
from mibounds.cli.terminal import as_json, progress_bar

MOST_ROWS = 1_000_000  # the error of sampling is then about a thousandth of a nat
MOST_VALUES = 100_000_000


@dataclass(frozen=True)
class EstimateCommand(Command):
    """Estimate the mutual information of columns of a file, with an interval.

    Columns are names, ranges (a:d, in the order of the file), arrays of an NPZ file (emb) or
    patterns (pixel_*), separated by commas.

    Attributes:
        file: CSV, TSV, JSON lines, Parquet, Arrow, NPZ or NPY.
        x: columns of x; if left out, those named x.
        y: columns of y; if left out, those named y.
        given: columns z, for the mutual information of x and y given z.
        method: names of methods, separated by commas; see "mibounds methods".
        budget: seconds (fast), or a minute or two (default).
        discrete: columns that are labels although they hold numbers.
        continuous: columns that are measurements although they look like labels.
        permutations: shuffles of y for a p-value; 0 for none.
        level: how often the interval covers the truth.
        rows: rows to read at most, drawn at random from a file that has more; if left out, a
            million, or as many as hold a hundred million values.
        seed: seed of all random numbers.
        block: consecutive rows that depend on each other, for time series.
        groups: column with the same value in rows that depend on each other, such as a patient.
        threads: processor threads; more than one gains little, and loses much on a busy machine.
        device: where to compute, such as cuda; the CPU if left out.
        drop_missing: leave out rows with missing values.
        json: print JSON instead of a table.
        plot: picture to write; its ending (.png, .svg, .pdf) decides the format.
        report: HTML page to write.
        out: JSON file to write.
    """

    unknown_flag = "put commas between the names of columns, or "

    file: str
    x: str = ""
    y: str = ""
    given: str = ""
    method: str = "default"
    budget: Literal["fast", "default"] = "default"
    discrete: str = ""
    continuous: str = ""
    permutations: int = 0
    level: float = 0.95
    rows: int = 0
    seed: int = 0
    block: int = 1
    groups: str = ""
    threads: int = 1
    device: str = ""
    drop_missing: bool = False
    json: bool = False
    plot: str = ""
    report: str = ""
    out: str = ""

    def run(self) -> None:
        """Read, estimate, print, write."""
        targets = {"--out": self.out, "--plot": self.plot, "--report": self.report}
        check_targets(self.file, targets)
        check_numbers(self)
        names = read_names(self.file)
        methods = self._methods()
        sides = {"--x": self._side(names, "x"), "--y": self._side(names, "y")}
        if self.given:
            sides["--given"] = select(names, self.given)
        if self.groups:
            sides["--groups"] = select(names, self.groups)
        check_apart(sides)
        used = [name for side in sides.values() for name in side]
        declared = {
            "--discrete": self._declared(names, used, "discrete"),
            "--continuous": self._declared(names, used, "continuous"),
        }
        check_apart(declared)
        discrete, continuous = map(frozenset, declared.values())
        whole = read_table(
            self.file,
            used,
            discrete=discrete,
            continuous=continuous,
            most=self.rows or max(2, min(MOST_ROWS, MOST_VALUES // len(used))),
            block=max(1, self.block),
            seed=self.seed,
        )
        table = whole.complete(drop=self.drop_missing)

        from mibounds.measure.estimation import estimate

        x, y, given = (sides.get(flag, []) for flag in ("--x", "--y", "--given"))
        with computing_with(self.threads), progress_bar() as progress:
            result = estimate(
                table.take(x),
                table.take(y),
                given=table.take(given) if given else None,
                methods=methods,
                x_kinds=table.kinds(x, discrete, continuous),
                y_kinds=table.kinds(y, discrete, continuous),
                given_kinds=table.kinds(given, discrete, continuous),
                budget=self.budget,
                level=self.level,
                permutations=self.permutations,
                block=self.block,
                groups=table.take(sides["--groups"]) if self.groups else None,
                seed=self.seed,
                device=self.device or None,
                progress=progress,
            )
        record = {
            "file": self.file,
            "x": x,
            "y": y,
            "given": given,
            "rows_in_file": whole.total,
            "rows_read": whole.rows,
            "dropped": whole.rows - table.rows,
            **json.loads(result.to_json()),
        }
        text = as_json(record)
        drawn = whole.rows != whole.total
        of = f" of {whole.total} rows, drawn at random" if drawn else " rows"
        title = f"{Path(self.file).name}, {table.rows}{of}: {_formula(sides)}"
        dropped = (
            f" ({record['dropped']} with missing values left out)" if record["dropped"] else ""
        )

        def write_page(path: Path) -> None:
            from mibounds.measure.report import write_report

            write_report(path, result, table.array(x), table.array(y), names=(x, y), title=title)

        deliver(
            text if self.json else f"{title}{dropped}\n\n{result}",
            {
                self.out: as_text(text),
                self.plot: as_picture(result.plot),
                self.report: write_page,
            },
        )

    def _side(self, names: Sequence[str], side: str) -> list[str]:
        pattern = getattr(self, side)
        try:
            return select(names, pattern or side)
        except ValueError as error:
            if pattern:
                raise
            raise ValueError(
                f"Expected --{side}, the columns of {side}: {error}; "
                f"name some with --{side} NAME,NAME"
            ) from None

    def _declared(self, names: Sequence[str], used: Sequence[str], kind: str) -> list[str]:
        pattern = getattr(self, kind)
        chosen = select(names, pattern) if pattern else []
        there = set(used)
        kept = [name for name in chosen if name in there]
        if pattern and not kept:
            raise ValueError(
                f"Expected --{kind} to name columns that are used but got {pattern!r}; "
                "choose among those of --x, --y and --given."
            )
        return kept

    def _methods(self) -> str | list[str]:
        from mibounds.measure.methods import METHODS

        names = [name.strip() for name in self.method.split(",")]
        for name in names:
            if name not in ("default", *METHODS):
                raise ValueError(
                    f"Expected --method among default, {', '.join(METHODS)} but got {name!r}; "
                    "see mibounds methods."
                )
        return "default" if names == ["default"] else names


@contextlib.contextmanager
def computing_with(threads: int) -> Iterator[None]:
    """Set torch's threads for now. Those of small networks mostly wait for each other."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _formula(sides: dict[str, list[str]]) -> str:
    given = f" | {_shown(sides['--given'])}" if "--given" in sides else ""
    return f"I({_shown(sides['--x'])}; {_shown(sides['--y'])}{given})"


def _shown(names: list[str]) -> str:
    return ", ".join(names if len(names) <= 4 else [*names[:2], "...", names[-1]])
