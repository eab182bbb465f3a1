"""Computes the cells of an experiment that are not finished, and publishes those that are.

Each finished cell is on disk at once: a process that is killed loses only the cells in flight, and
the same command goes on from there.
"""

from __future__ import annotations

import dataclasses
import hashlib
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from experiments.runner.base import Cell, Config, Experiment, Record
from experiments.runner.outputs import SUMMARY, TABLE, publish
from experiments.runner.records import COMPRESSED, PLAIN, Records
from experiments.runner.states import remove_states
from experiments.runner.workers import GroupOutcome, compute, set_queues
from mibounds.files import check_folder, check_target

Progress = Callable[[float, str], None]


@dataclass(frozen=True)
class Options:
    """How to run an experiment; nothing here changes a number.

    Attributes:
        quick: a small version that takes seconds; it sets the fields left at their defaults.
        out: folder for the experiment's folder; "results", or "out" for a quick run.
        jobs: number of processes; 0 for one per core, or for a single one on a GPU.
        backend: loky for the cores of this machine, dask or ray for a running cluster.
        scheduler: address of the cluster, as tcp://host:8786.
        shard: i/n for part i of n of the cells, numbered from 1 as the jobs of an array are; the
            same command without --shard then makes the tables.

    Example:
        >>> Options(shard="2/4").part
        (2, 4)
    """

    quick: bool = False
    out: str = ""
    jobs: int = 0
    backend: Literal["loky", "dask", "ray"] = "loky"
    scheduler: str = ""
    shard: str = ""

    @property
    def part(self) -> tuple[int, int]:
        """Which part, and of how many."""
        found = re.fullmatch(r"(\d+)/(\d+)", self.shard or "1/1")
        i, n = map(int, found.groups()) if found else (0, 0)
        if not 1 <= i <= n:
            raise ValueError(
                f"Expected --shard i/n with 1 <= i <= n but got {self.shard!r}; "
                "the second of four parts is --shard 2/4."
            )
        return i, n


class Failed(Exception):
    """Some cells could not be computed; all others are finished and kept."""


def reproduce(
    name: str,
    experiment: Experiment[Any],
    config: Config,
    options: Options,
    progress: Progress | None = None,
    say: Callable[[str], None] = print,
) -> str:
    """Compute the cells that are not finished, and write tables and figures of all that are.

    Args:
        name: of the experiment, and of its folder.
        experiment: what to run.
        config: what to compute.
        options: how to run it.
        progress: called with the fraction that is done and a short description.
        say: called with one line about each event worth knowing.

    Returns:
        The tables, in Markdown; "" for a shard.

    Raises:
        Failed: if a cell could not be computed.

    Example:
        >>> from experiments import EXPERIMENTS
        >>> experiment = EXPERIMENTS["estimation-quality"]
        >>> config = experiment.config(methods=("clubb",))
        >>> reproduce("estimation-quality", experiment, config, Options())
        Traceback (most recent call last):
        ...
        ValueError: Expected --methods among ... but got 'clubb'; ...
    """
    part, parts = options.part
    if options.quick:
        config = _quick(experiment, config)
    wanted = select_cells(experiment, config)
    set_queues(options.jobs)
    folder = _folder(name, options)
    states = _states(config, folder)
    records = Records(folder, say)
    done = records.read(config)
    groups = [
        [cell for cell in group if cell not in done]
        for group in experiment.groups(config, wanted)[part - 1 :: parts]
    ]
    groups = [group for group in groups if group]
    command = write_command(name, experiment, config, options.quick)
    failures = []
    kept = dataclasses.replace(config, checkpoints=str(states))
    outcomes = compute(experiment, kept, groups, options.backend, options.scheduler, options.jobs)
    try:
        for outcome in _follow(outcomes, groups, progress):
            if outcome.error:
                failures.append(outcome.error)
                say(f"{', '.join(cell.name for cell in outcome.cells)} failed: {outcome.error}")
                continue
            try:
                _keep(outcome, records, config, command)
            except KeyboardInterrupt:  # not before all of a group are on disk
                _keep(outcome, records, config, command)
                raise
    except KeyboardInterrupt:
        say("finished cells are kept; the same command goes on from there")
        raise
    text = ""
    if not options.shard:
        if not failures:
            records.join(experiment.cells(config))
            remove_states(states)
        text = publish(folder, name, experiment, config, records.read(config), command)
    if failures:
        raise Failed(
            f"{len(failures)} of {len(groups)} groups of cells failed, the first with "
            f"{failures[0]}; run the same command to try them again, with MIBOUNDS_TRACEBACK=1 "
            "to see where"
        )
    return text


def _keep(outcome: GroupOutcome, records: Records, config: Config, command: str) -> None:
    for cell, rows in zip(outcome.cells, outcome.rows, strict=True):
        told = tuple(rows), outcome.seconds, command, outcome.versions
        records.write(Record(cell, config.settings_of(cell), *told))


def _quick(experiment: Experiment[Any], config: Config) -> Config:
    """The small version, in the fields that were left at their defaults."""
    defaults = experiment.config()
    left = {k: v for k, v in experiment.quick.items() if getattr(config, k) == getattr(defaults, k)}
    return dataclasses.replace(config, **left)


def select_cells(experiment: Experiment[Any], config: Config) -> list[Cell]:
    """The cells that the config asks for."""
    if config.seeds < 1:
        raise ValueError(
            f"Expected --seeds of at least 1 but got {config.seeds}; give --seeds 1 for one."
        )
    if not re.fullmatch(r"auto|cpu|cuda(:\d+)?", config.device):
        raise ValueError(
            f"Expected --device to be auto, cpu, cuda or cuda:1 but got {config.device!r}; "
            "leave it out for a GPU where there is one."
        )
    cells = experiment.cells(config)
    for flag, asked, known in (
        ("--tasks", config.tasks, [cell.task for cell in cells]),
        ("--methods", config.methods, [cell.method for cell in cells]),
    ):
        names = list(dict.fromkeys(known))
        for each in asked:
            if each not in names:
                raise ValueError(
                    f"Expected {flag} among {', '.join(names)} but got {each!r}; "
                    f"leave {flag} out for all of them."
                )
    chosen = [
        cell
        for cell in cells
        if config.mode in ("both", cell.mode)
        and (not config.tasks or cell.task in config.tasks)
        and (not config.methods or cell.method in config.methods)
    ]
    if not chosen:
        raise ValueError(
            f"Expected a choice of mode, tasks and methods that has cells but got --mode "
            f"{config.mode} with {', '.join((*config.tasks, *config.methods)) or 'all'}; "
            "leave one of them out."
        )
    return chosen


def _folder(name: str, options: Options) -> Path:
    """The folder of the results; checked now, not when the first cell is finished."""
    out = Path(options.out or ("out" if options.quick else "results"))
    folder = out / name
    for path in (out, folder, folder / "cells"):
        check_folder(path, "--out")
    if folder.is_dir():
        for file in (PLAIN, COMPRESSED, SUMMARY, TABLE):
            check_target(folder / file, "--out")
    return folder


def _states(config: Config, folder: Path) -> Path:
    """A folder that only holds the states of these results, whatever else --checkpoints holds."""
    if not config.checkpoints:
        return check_folder(folder / "checkpoints", "--out")
    check_folder(config.checkpoints, "--checkpoints")
    whose = hashlib.sha256(str(folder.absolute()).encode()).hexdigest()[:8]
    states = Path(config.checkpoints) / f"{folder.name}-states-{whose}"
    return check_folder(states, "--checkpoints")


def write_command(
    name: str, experiment: Experiment[Any], config: Config, quick: bool = False
) -> str:
    """The command that computes a config, with the flags that differ from the defaults.

    Example:
        >>> from experiments import EXPERIMENTS
        >>> experiment = EXPERIMENTS["estimation-quality"]
        >>> write_command("estimation-quality", experiment, experiment.config(seeds=3))
        'python -m experiments estimation-quality --seeds 3'
    """
    words = ["python", "-m", "experiments", name, *(["--quick"] if quick else [])]
    usual = experiment.config()
    if quick:
        usual = _quick(experiment, usual)
    for each in dataclasses.fields(config):
        value = getattr(config, each.name)
        if value != getattr(usual, each.name):
            flag = f"--{each.name.replace('_', '-')}"
            values = [] if value is True else value if isinstance(value, tuple) else [value]
            words += [flag, *map(str, values)]
    return shlex.join(words)


def _follow(
    outcomes: Iterable[GroupOutcome], groups: Sequence[Sequence[Cell]], progress: Progress | None
) -> Iterator[GroupOutcome]:
    """Report the progress over the cells."""
    total, done = sum(map(len, groups)), 0
    if progress and total:
        progress(0.0, f"0 of {total} cells")
    for outcome in outcomes:
        yield outcome
        done += len(outcome.cells)
        if progress:
            progress(done / total, f"{done} of {total} cells")
