"""``mibounds rank`` and ``mibounds matrix``: pairs of single columns of a file."""

from __future__ import annotations

import dataclasses
import json
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np

from mibounds.cli.commands import Command, check_numbers
from mibounds.cli.estimation import computing_with
from mibounds.cli.outputs import as_picture, as_text, check_targets, deliver
from mibounds.cli.tables import Column, Table, check_apart, read_names, read_table, select
from mibounds.cli.terminal import as_json, progress_bar
from mibounds.files import check_folder


@dataclass(frozen=True)
class _PairsCommand(Command):
    """What both commands have in common."""

    unknown_flag = "put commas between the names of columns, or "

    def _read(
        self, file: str, used: Sequence[str], discrete: str, continuous: str
    ) -> tuple[Table, dict[str, str | None]]:
        """The columns that are used, with values missing, and the kind of each."""
        names = read_names(file)
        there = set(used)
        declared = {
            flag: [name for name in select(names, pattern) if name in there] if pattern else []
            for flag, pattern in (("--discrete", discrete), ("--continuous", continuous))
        }
        for flag, pattern in (("--discrete", discrete), ("--continuous", continuous)):
            if pattern and not declared[flag]:
                raise ValueError(
                    f"Expected {flag} to name columns that are used but got {pattern!r}; "
                    "choose among those that the command reads."
                )
        check_apart(declared)
        labels, numbers = (frozenset(each) for each in declared.values())
        table = read_table(file, used, discrete=labels, continuous=numbers)
        kinds = table.kinds(used, labels, numbers) or [None] * len(used)
        columns = {name: _with_nan(column) for name, column in table.columns.items()}
        return Table(table.source, columns), dict(zip(used, kinds, strict=True))

    @abstractmethod
    def run(self) -> None:
        """Read, compute, print, write."""


@dataclass(frozen=True)
class RankCommand(_PairsCommand):
    """Rank the columns of a file by their mutual information with a target.

    Columns are names, ranges (a:d, in the order of the file), arrays of an NPZ file (emb) or
    patterns (pixel_*), separated by commas. Values may be missing.

    Attributes:
        file: CSV, TSV, JSON lines, Parquet, Arrow, NPZ or NPY.
        target: the column to tell something of.
        columns: those to rank; all others if left out.
        given: "selected" to also choose columns one after the other, each by what it adds.
        most: columns to choose at most.
        budget: neighbours of every pair (default), or where the series asks for it (fast).
        discrete: columns that are labels although they hold numbers.
        continuous: columns that are measurements although they look like labels.
        correction: of the p-values for the number of columns.
        level: how often the intervals cover the truth.
        seed: of the noise that tells equal numbers apart.
        jobs: processes; -1 for one per core.
        json: print JSON instead of a table.
        plot: picture to write; its ending (.png, .svg, .pdf) decides the format.
        report: HTML page to write.
        out: JSON file to write.
    """

    file: str
    target: str = "y"
    columns: str = ""
    given: Literal["", "selected"] = ""
    most: int = 10
    budget: Literal["fast", "default"] = "default"
    discrete: str = ""
    continuous: str = ""
    correction: Literal["holm", "benjamini-yekutieli", "benjamini-hochberg", "none"] = "holm"
    level: float = 0.95
    seed: int = 0
    jobs: int = 1
    json: bool = False
    plot: str = ""
    report: str = ""
    out: str = ""

    def run(self) -> None:
        """Read, rank, print, write."""
        targets = {"--out": self.out, "--plot": self.plot, "--report": self.report}
        check_targets(self.file, targets)
        check_numbers(self)
        names = read_names(self.file)
        chosen = select(names, self.target)
        if len(chosen) != 1:
            raise ValueError(
                f"Expected one column for --target but got {len(chosen)}: {', '.join(chosen)}; "
                "name one of them."
            )
        target = chosen[0]
        columns = select(names, self.columns) if self.columns else names
        columns = [name for name in columns if name != target or self.columns]
        check_apart({"--columns": columns, "--target": [target]})
        used = [*columns, target]
        table, kinds = self._read(self.file, used, self.discrete, self.continuous)

        from mibounds.measure.tables.rankings import rank

        with computing_with(1), progress_bar("ranking") as progress:
            result = rank(
                table.take(columns),
                table.columns[target],
                given=self.given or None,
                most=self.most,
                kinds=[kinds[name] for name in columns],
                target_kind=kinds[target],
                budget=self.budget,
                level=self.level,
                correction=self.correction,
                n_jobs=self.jobs,
                seed=self.seed,
                progress=progress or False,
            )
        result = dataclasses.replace(result, target=target)
        title = f"{Path(self.file).name}, {table.rows} rows"
        text = as_json(json.loads(result.to_json()))
        heading = f"{title}: what tells of {target}"
        deliver(
            text if self.json else f"{title}\n\n{result}",
            {
                self.out: as_text(text),
                self.plot: as_picture(result.plot, size=None),
                self.report: lambda path: result.write_report(path, heading),
            },
        )


@dataclass(frozen=True)
class MatrixCommand(_PairsCommand):
    """Measure the mutual information of all pairs of columns of a file.

    Columns are names, ranges (a:d, in the order of the file), arrays of an NPZ file (emb) or
    patterns (pixel_*), separated by commas. Values may be missing: each pair has the rows that are
    complete in it. Ends with the same table after an interruption, if --out was given.

    Attributes:
        file: CSV, TSV, JSON lines, Parquet, Arrow, NPZ or NPY.
        columns: those to pair; all if left out.
        others: columns to pair them with; themselves if left out.
        unit: of what is printed and drawn.
        budget: neighbours of every pair (default), or where the series asks for it (fast).
        discrete: columns that are labels although they hold numbers.
        continuous: columns that are measurements although they look like labels.
        correction: of the p-values for the number of pairs.
        level: how often the intervals cover the truth.
        seed: of the noise that tells equal numbers apart.
        jobs: processes; -1 for one per core.
        backend: what runs them: processes of this machine (loky), or a cluster.
        scheduler: address of the cluster.
        device: of the series, such as cuda.
        json: print JSON instead of a table.
        plot: picture of the heat map to write.
        network: picture of the strongest pairs to write.
        report: HTML page to write.
        out: folder for finished parts, to go on from after an interruption, and for matrix.json.
    """

    file: str
    columns: str = ""
    others: str = ""
    unit: Literal["nats", "bits", "normalised"] = "normalised"
    budget: Literal["fast", "default"] = "fast"
    discrete: str = ""
    continuous: str = ""
    correction: Literal["holm", "benjamini-yekutieli", "benjamini-hochberg", "none"] = (
        "benjamini-yekutieli"
    )
    level: float = 0.95
    seed: int = 0
    jobs: int = 1
    backend: Literal["loky", "threading", "dask", "ray"] = "loky"
    scheduler: str = ""
    device: str = ""
    json: bool = False
    plot: str = ""
    network: str = ""
    report: str = ""
    out: str = ""

    def run(self) -> None:
        """Read, measure, print, write."""
        targets = {"--plot": self.plot, "--network": self.network, "--report": self.report}
        record = str(Path(self.out, "matrix.json")) if self.out else ""
        if self.out and check_folder(self.out, "--out").is_dir():
            targets["--out"] = record
        check_targets(self.file, targets)
        check_numbers(self)
        names = read_names(self.file)
        columns = select(names, self.columns) if self.columns else names
        others = select(names, self.others) if self.others else []
        if self.others and not self.columns:
            columns = [name for name in columns if name not in others]
        check_apart({"--columns": columns, "--others": others})
        used = [*columns, *others]
        table, kinds = self._read(self.file, used, self.discrete, self.continuous)

        from mibounds.measure.tables.matrices import matrix
        from mibounds.measure.tables.pages import matrix_text

        with computing_with(1), progress_bar("pairs") as progress:
            result = matrix(
                table.take(columns),
                table.take(others) if others else None,
                kinds=[kinds[name] for name in columns],
                right_kinds=[kinds[name] for name in others] if others else None,
                budget=self.budget,
                level=self.level,
                correction=self.correction,
                n_jobs=self.jobs,
                backend=self.backend,
                scheduler=self.scheduler,
                device=self.device or None,
                out=self.out or None,
                seed=self.seed,
                progress=progress or False,
            )
        title = f"{Path(self.file).name}, {table.rows} rows"
        text = as_json(json.loads(result.to_json()))
        heading = f"{title}: all pairs of columns"
        deliver(
            text if self.json else f"{title}\n\n{matrix_text(result, self.unit)}",
            {
                record: as_text(text),
                self.plot: as_picture(partial(result.plot, unit=self.unit), size=None),
                self.network: as_picture(result.plot_network, size=None),
                self.report: lambda path: result.write_report(path, heading),
            },
        )


def _with_nan(column: Column) -> Column:
    """A column of labels whose missing codes are NaN, as those of numbers are."""
    if column.labels is None:
        return column
    values = np.where(column.missing, np.nan, column.values.astype(np.float64))
    return Column(values, None, discrete=True)
