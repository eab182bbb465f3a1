"""What an experiment is: cells to compute, the rows that they give, tables and figures of them.

    Config -> cells (mode, task, method, seed) -> rows -> summary, tables, figures

One frozen dataclass holds the paper's defaults, the flags of the command line and the record beside
the numbers. The fields of `Config` itself select cells, so that ``--seeds 20`` after ``--seeds 10``
computes ten more. The fields that a subclass adds are settings: the numbers depend on them.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, TypeVar

from experiments.runner.summaries import CellRow, Paper, Summary, is_summarised

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CHECKSUM = "checksum"  # of the rest of a line; lines of before there were any have none
CHECKED = 16  # characters of it

Mode = Literal["both", "as-published", "correct", "recipe"]


@dataclass(frozen=True)
class Config:
    """What to compute of an experiment, and where; a subclass adds the settings.

    Attributes:
        mode: as-published with the errors of the authors' code, correct by the equations, recipe
            with additions beyond the paper, where there are any; both for all of them.
        tasks: some of the tasks; all if left out.
        methods: some of the methods; all if left out.
        seeds: number of seeds, counted from 0.
        device: cpu, cuda, or auto for a GPU where there is one.
        checkpoints: folder for the states from which long cells resume; beside the results if left
            out. They are removed when all cells are finished.

    Example:
        >>> Config(seeds=3).settings_of(Cell("correct", "gaussian", "club", 0))
        {}
    """

    mode: Mode = "both"
    tasks: tuple[str, ...] = ()
    methods: tuple[str, ...] = ()
    seeds: int = 10
    device: str = "auto"
    checkpoints: str = ""

    def settings_of(self, cell: Cell) -> dict[str, Any]:
        """Everything that the numbers of a cell depend on, in the types of JSON."""
        chosen = {f.name for f in dataclasses.fields(Config)}
        own = [f.name for f in dataclasses.fields(self) if f.name not in chosen]
        return json.loads(json.dumps({name: getattr(self, name) for name in own}))


def digest(values: Mapping[str, Any], length: int = 8) -> str:
    """A short name for values of JSON: equal ones have the same name.

    Example:
        >>> digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1})
        True
    """
    text = json.dumps(values, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:length]


@dataclass(frozen=True)
class Cell:
    """The smallest unit that is computed, kept and skipped.

    Args:
        mode: "as-published", "correct" or "recipe".
        task: what it is computed on; the tasks of its rows may be levels of it.
        method: name in the registry.
        seed: seeds everything random in it.

    Example:
        >>> Cell("correct", "gaussian", "club", 3).name
        'correct_gaussian_club_3'
    """

    mode: str
    task: str
    method: str
    seed: int

    @property
    def name(self) -> str:
        """A name for its file."""
        return f"{self.mode}_{self.task}_{self.method}_{self.seed}"


@dataclass(frozen=True)
class Record:
    """A finished cell: its rows, and what is needed to compute them again.

    Args:
        cell: which one.
        config: the settings.
        rows: its results.
        seconds: time that it took; its share if several cells were computed at once.
        command: the command that computed it.
        versions: of the packages that the numbers depend on, and the device.

    Example:
        >>> rows = ({"task": "gaussian-2", "metric": "mse", "value": 0.5},)
        >>> record = Record(Cell("correct", "gaussian", "club", 3), {}, rows, 1.5, "", {})
        >>> Record.from_json(record.to_json()) == record
        True
    """

    cell: Cell
    config: dict[str, Any]
    rows: tuple[CellRow, ...]
    seconds: float
    command: str
    versions: dict[str, str]

    def to_json(self) -> str:
        """One line of JSON with its checksum; numbers that are not finite become null."""
        value = json.loads(json.dumps(_finite(dataclasses.asdict(self)), allow_nan=False))
        return json.dumps(value | {CHECKSUM: digest(value, CHECKED)})

    @classmethod
    def from_json(cls, text: str) -> Record:
        """The record that `to_json` wrote; a ValueError if it wrote another line.

        A line without a checksum, as they were written before there was one, is taken as it is.
        """
        record, fault = None, ""
        try:
            value = {**json.loads(text)}
            checksum = value.pop(CHECKSUM, None)
            if checksum not in (None, digest(value, CHECKED)):
                raise ValueError(
                    "Expected the numbers that were written but their checksum is another; "
                    "restore the line, or remove it to compute its cell again."
                )
            value["cell"] = Cell(**value["cell"])
            value["rows"] = tuple(value["rows"])
            record = cls(**value)
            fault = _find_fault(record)
        except json.JSONDecodeError:
            fault = f"{text!r:.40}"
        except (AttributeError, KeyError, TypeError, RecursionError) as error:
            fault = f"{error!r:.80}"
        if record is None or fault:
            raise ValueError(
                f"Expected the record of a cell but got {fault}; "
                "pass a line that to_json has written."
            )
        if not re.fullmatch(r"[\w+-][\w.+-]{,199}", record.cell.name):
            raise ValueError(
                f"Expected the name of a cell but got {record.cell.name[:80]!r}; remove the line."
            )
        return record


def _find_fault(record: Record) -> str:
    """What of a record is of another type than it should be; "" if nothing."""
    cell = record.cell
    if not _are_texts(cell.mode, cell.task, cell.method) or type(cell.seed) is not int:
        return f"{cell!s:.200}"
    if not isinstance(record.config, dict):
        return f"settings {record.config!r:.80}"
    if not _is_number(record.seconds):
        return f"{record.seconds!r:.80} seconds"
    if not _are_texts(record.command, *record.versions, *record.versions.values()):
        return "a command or versions that are no text"
    for row in record.rows:
        if not _are_texts(row["task"], row["metric"]):
            return f"the row {row!r:.80}"
        right = row["value"] is None or _is_number(row["value"])
        if is_summarised(row["metric"]) and not right:
            return f"{row['metric']} {row['value']!r:.80}"
    return "" if record.rows else "no rows"


def _are_texts(*values: object) -> bool:
    return all(isinstance(value, str) and value.isprintable() for value in values)


def _is_number(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) <= sys.float_info.max  # and so no NaN


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(v) for key, v in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


C = TypeVar("C", bound=Config)


class Experiment(ABC, Generic[C]):
    """A figure or table of the paper: one class, and one line in `EXPERIMENTS`.

    Attributes:
        config: class of the Config; its defaults are the paper's.
        makes: what it produces, for the list of experiments.
        costs: the time and the data that it needs, for the same list.
        quick: fields of the Config for a run of seconds.
        paper: published numbers by task, method and metric.
        notes: Markdown below the tables: what differs from the paper, and why.
        serial: whether cells are computed one after the other because time is measured.
    """

    config: type[C]
    makes: ClassVar[str]
    costs: ClassVar[str]
    quick: ClassVar[Mapping[str, Any]]
    paper: ClassVar[Paper] = {}
    notes: ClassVar[str] = ""
    serial: ClassVar[bool] = False

    @abstractmethod
    def cells(self, config: C) -> list[Cell]:
        """All cells of all modes, tasks and methods, seeds 0 ... config.seeds - 1.

        The runner leaves out the cells that the other fields of `Config` do not select.
        """

    @abstractmethod
    def run(self, config: C, cells: Sequence[Cell]) -> list[list[CellRow]]:
        """Compute the cells of one group.

        Runs in its own process, perhaps on another machine: it depends only on its arguments, and
        seeds everything random by ``cell.seed``.

        Returns:
            The rows of each cell, each with at least task, metric and value.
        """

    def groups(self, config: C, cells: Sequence[Cell]) -> list[list[Cell]]:
        """Which cells to compute together; the numbers may not depend on it."""
        return [[cell] for cell in cells]

    def tables(self, config: C, records: Sequence[Record]) -> str:
        """More tables in Markdown, from the finished cells."""
        return ""

    @abstractmethod
    def draw(
        self, config: C, records: Sequence[Record], summary: Sequence[Summary]
    ) -> dict[str, Figure]:
        """Figures by name, from the finished cells."""
