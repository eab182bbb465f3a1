"""``mibounds estimate``: the mutual information of columns of a file."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from mibounds.cli.commands import Command, Failure
from mibounds.cli.tables import check_apart, read_names, read_table, select
from mibounds.cli.terminal import progress_bar, say
from mibounds.files import check_target, replacing


@dataclass(frozen=True)
class EstimateCommand(Command):
    """Estimate the mutual information of columns of a file, with an interval.

    Columns are names, ranges (a:d, in the order of the file), arrays of an NPZ file (emb) or
    patterns (pixel_*), separated by commas.

    Attributes:
        file: CSV, TSV, Parquet, NPZ or NPY file.
        x: columns of x; if left out, those named x.
        y: columns of y; if left out, those named y.
        given: columns z, for the mutual information of x and y given z.
        method: names of methods, separated by commas; see "mibounds methods".
        budget: seconds (fast), or a minute or two (default).
        discrete: columns that are labels although they hold numbers.
        continuous: columns that are measurements although they look like labels.
        permutations: shuffles of y for a p-value; 0 for none.
        level: how often the interval covers the truth.
        seed: seed of all random numbers.
        block: consecutive rows that depend on each other, for time series.
        threads: processor threads; more than one gains little, and loses much on a busy machine.
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
    seed: int = 0
    block: int = 1
    threads: int = 1
    drop_missing: bool = False
    json: bool = False
    plot: str = ""
    report: str = ""
    out: str = ""

    def run(self) -> None:
        """Read, estimate, print, write."""
        self._check_targets()
        if self.threads < 1:
            raise ValueError(
                f"Expected --threads of at least 1 but got {self.threads}; leave it out for 1."
            )
        names = read_names(self.file)
        sides = {"--x": self._side(names, "x"), "--y": self._side(names, "y")}
        if self.given:
            sides["--given"] = select(names, self.given)
        check_apart(sides)
        used = [name for side in sides.values() for name in side]
        declared = {
            "--discrete": self._declared(names, used, "discrete"),
            "--continuous": self._declared(names, used, "continuous"),
        }
        check_apart(declared)
        discrete, continuous = map(frozenset, declared.values())
        whole = read_table(self.file, used, discrete=discrete, continuous=continuous)
        table = whole.complete(drop=self.drop_missing)

        from mibounds.measure.estimation import estimate

        x, y, given = (sides.get(flag, []) for flag in ("--x", "--y", "--given"))
        with _computing_with(self.threads), progress_bar() as progress:
            result = estimate(
                table.take(x),
                table.take(y),
                given=table.take(given) if given else None,
                methods=self._methods(),
                x_kinds=table.kinds(x, discrete, continuous),
                y_kinds=table.kinds(y, discrete, continuous),
                given_kinds=table.kinds(given, discrete, continuous),
                budget=self.budget,
                level=self.level,
                permutations=self.permutations,
                block=self.block,
                seed=self.seed,
                progress=progress,
            )
        record = {
            "file": self.file,
            "x": x,
            "y": y,
            "given": given,
            "dropped": whole.rows - table.rows,
            **json.loads(result.to_json()),
        }
        text = json.dumps(record, indent=2, ensure_ascii=False)
        if self.out:
            with _writing(self.out) as path:
                path.write_text(text + "\n", encoding="utf-8")
        title = f"{Path(self.file).name}, {table.rows} rows: {_formula(sides)}"
        dropped = (
            f" ({record['dropped']} with missing values left out)" if record["dropped"] else ""
        )
        try:
            say(text if self.json else f"{title}{dropped}\n\n{result}")
        finally:  # write the files even if the reader of the output has stopped
            self._draw(result, table, x, y, title)

    def _draw(self, result: Any, table: Any, x: list[str], y: list[str], title: str) -> None:
        if self.plot:
            with _writing(self.plot) as path:
                _save_plot(result, path)
        if self.report:
            from mibounds.measure.report import write_report

            with _writing(self.report) as path:
                write_report(
                    path, result, table.array(x), table.array(y), names=(x, y), title=title
                )

    def _check_targets(self) -> None:
        """Check the files to write before anything is computed."""
        seen = {Path(self.file).resolve(): "the data"}
        for flag, path in (("--out", self.out), ("--plot", self.plot), ("--report", self.report)):
            if path:
                target = check_target(path, flag)
                if target in seen:
                    raise ValueError(
                        f"Expected a file of its own for {flag} but got {path!r}, "
                        f"which is that of {seen[target]}; name another file."
                    )
                seen[target] = flag
        if self.plot:
            _check_plot(self.plot)
        if self.report and Path(self.report).suffix.lower() not in (".html", ".htm"):
            raise ValueError(
                f"Expected --report to end in .html but got {self.report!r}; "
                "name it report.html, for example."
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
        kept = [name for name in chosen if name in set(used)]
        if pattern and not kept:
            raise ValueError(
                f"Expected --{kind} to name columns that are used but got {pattern!r}; "
                "choose among those of --x, --y and --given."
            )
        return kept

    def _methods(self) -> str | list[str]:
        names = [name.strip() for name in self.method.split(",")]
        return "default" if names == ["default"] else names


@contextlib.contextmanager
def _computing_with(threads: int) -> Iterator[None]:
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


@contextlib.contextmanager
def _writing(path: str) -> Iterator[Path]:
    """Write a file whole or not at all; a failure is not reported as bad input."""
    try:
        with replacing(path) as temporary:
            yield temporary
    except Exception as error:
        if isinstance(error, ImportError):
            raise
        raise Failure(
            f"{path} could not be written: {error}; make room, or name a file in another folder"
        ) from error


def _check_plot(path: str) -> None:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ImportError(
            "--plot needs matplotlib; install it with: pip install 'mibounds[plot]'"
        ) from None
    known = Figure().canvas.get_supported_filetypes()
    if Path(path).suffix[1:].lower() not in known:
        raise ValueError(
            f"Expected --plot to end in one of .{', .'.join(sorted(known))} but got {path!r}; "
            "name it plot.png, for example."
        )


def _save_plot(result: Any, path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    result.plot(figure.subplots())
    figure.savefig(path, dpi=150)
