"""Runs the cells of an experiment and writes what comes of them.

Each finished cell is on disk at once, so that a second start goes on where the first one ended: a
process that is killed loses the cells in flight and nothing else. Cells go through joblib: to the
cores of this machine, or with another backend to a cluster that is up already. What computes a cell
sends its rows back, and this process alone writes, so that nothing but this machine needs the disk.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import os
import platform
import re
import shlex
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from mibounds.experiments.interfaces import Cell, Config, Experiment, Record
from mibounds.experiments.records import Records
from mibounds.experiments.summaries import Row, Summary, summarise, tabulate
from mibounds.files import replacing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Progress = Callable[[float, str], None]


@dataclass(frozen=True)
class Options:
    """How to run an experiment; nothing here changes a number.

    Attributes:
        quick: a small version that takes seconds, of the fields that are left at their defaults.
        out: folder for the folder of the experiment; "results", or "out" for a quick run.
        jobs: how many processes compute; 0 for one a core, or one in all where there is a GPU.
        backend: loky for the cores of this machine, dask or ray for a cluster that is running.
        scheduler: address of the cluster, as tcp://host:8786.
        shard: i/n for the i-th of n parts of the cells, as the jobs of an array are numbered from
            1 to n; the tables are then made by the same command without --shard.

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
        """Which of how many parts."""
        found = re.fullmatch(r"(\d+)/(\d+)", self.shard or "1/1")
        i, n = map(int, found.groups()) if found else (0, 0)
        if not 1 <= i <= n:
            raise ValueError(
                f"Expected --shard i/n with 1 <= i <= n but got {self.shard!r}; "
                "the second of four parts is 2/4."
            )
        return i, n


class Failed(Exception):
    """Cells that could not be computed; all others are finished and kept."""


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
        options: how.
        progress: called with the share that is done and a word about it.
        say: told, in a line, what is worth knowing on the way.

    Returns:
        The tables, in Markdown; "" for a part of an array.

    Raises:
        Failed: if a cell could not be computed.

    Example:
        >>> from mibounds.experiments import EXPERIMENTS
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
    wanted = _select(experiment, config)
    folder = _folder(name, options)
    records = Records(folder, say)
    done = records.read(config)
    groups = [
        [cell for cell in group if cell not in done]
        for group in experiment.groups(config, wanted)[part - 1 :: parts]
    ]
    groups = [group for group in groups if group]
    command = write_command(name, experiment, config, options.quick)
    failures = []
    for outcome in _follow(_compute(experiment, config, groups, options), groups, progress):
        if isinstance(outcome, _Failure):
            failures.append(outcome)
            say(f"{outcome.cells} failed: {outcome.error}")
        for cell, rows, seconds, versions in outcome.finished:
            records.write(Record(cell, config.settings, tuple(rows), seconds, command, versions))
    text = ""
    if not options.shard:
        if not failures:
            records.join(experiment.cells(config))
        text = _publish(name, experiment, config, records, command)
    if failures:
        raise Failed(
            f"{len(failures)} of {len(groups)} groups of cells failed, the first with "
            f"{failures[0].error}; the same command tries them again, and says where with "
            "MIBOUNDS_TRACEBACK=1"
        )
    return text


def _quick(experiment: Experiment[Any], config: Config) -> Config:
    """The small version, in the fields that were left at their defaults."""
    defaults = experiment.config()
    left = {k: v for k, v in experiment.quick.items() if getattr(config, k) == getattr(defaults, k)}
    return dataclasses.replace(config, **left)


def _select(experiment: Experiment[Any], config: Config) -> list[Cell]:
    """The cells that the config asks for."""
    if config.seeds < 1:
        raise ValueError(f"Expected --seeds of at least 1 but got {config.seeds}; 0 is the first.")
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
    folder = Path(options.out or ("out" if options.quick else "results")) / name
    for path in (folder, *folder.parents):
        if path.exists():
            if not path.is_dir():
                raise ValueError(f"Expected a folder for --out but {str(path)!r} is a file.")
            break
    return folder


def write_command(
    name: str, experiment: Experiment[Any], config: Config, quick: bool = False
) -> str:
    """The command that makes the numbers of a config, with the flags that it takes.

    Example:
        >>> from mibounds.experiments import EXPERIMENTS
        >>> experiment = EXPERIMENTS["estimation-quality"]
        >>> write_command("estimation-quality", experiment, experiment.config(seeds=3))
        'mibounds reproduce estimation-quality --seeds 3'
    """
    words = ["mibounds", "reproduce", name, *(["--quick"] if quick else [])]
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


# --- computing -----------------------------------------------------------------------------------


Finished = list[tuple[Cell, list[Row], float, dict[str, str]]]


@dataclass(frozen=True)
class _Success:
    finished: Finished


@dataclass(frozen=True)
class _Failure:
    cells: str
    error: str
    finished: Finished = dataclasses.field(default_factory=list)


_ONE = threading.Lock()  # torch's random numbers and settings belong to the process


def _work(
    experiment: Experiment[Any], config: Config, cells: Sequence[Cell]
) -> _Success | _Failure:
    """Compute a group of cells, wherever this runs. Gives errors back, which every backend can."""
    import torch

    with _ONE:
        threads = torch.get_num_threads()
        torch.set_num_threads(1)  # small tensors, and the same sums on every machine
        start = time.perf_counter()
        try:
            rows = experiment.run(config, cells)
            if len(rows) != len(cells):
                raise ValueError(
                    f"Expected rows for each of {len(cells)} cells but got {len(rows)}."
                )
        except Exception as error:
            if os.environ.get("MIBOUNDS_TRACEBACK"):
                traceback.print_exc()
            names = ", ".join(cell.name for cell in cells)
            return _Failure(names, f"{type(error).__name__}: {error}")
        finally:
            torch.set_num_threads(threads)
        seconds = (time.perf_counter() - start) / len(cells)
    versions = _versions(config)
    return _Success(
        [(cell, each, seconds, versions) for cell, each in zip(cells, rows, strict=True)]
    )


def _versions(config: Config) -> dict[str, str]:
    import numpy
    import torch

    import mibounds

    device = pick_device(config.device)
    kind = torch.cuda.get_device_name() if device == "cuda" else platform.machine()
    return {
        "mibounds": mibounds.__version__,
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "python": platform.python_version(),
        "device": f"{device} ({kind})",
    }


def pick_device(device: str) -> str:
    """The device that "auto" stands for here.

    Example:
        >>> pick_device("cpu")
        'cpu'
    """
    import torch

    return (
        "cuda" if device == "auto" and torch.cuda.is_available() else device.replace("auto", "cpu")
    )


def _compute(
    experiment: Experiment[Any], config: Config, groups: Sequence[Sequence[Cell]], options: Options
) -> Iterator[_Success | _Failure]:
    """What comes of each group, in the order of completion."""
    if not groups:
        return
    try:
        import joblib
    except ImportError:
        raise ImportError(
            "experiments need joblib; install it with: pip install 'mibounds[experiments]'"
        ) from None
    jobs = options.jobs or (1 if pick_device(config.device) == "cuda" else -1)
    calls = (joblib.delayed(_work)(experiment, config, group) for group in groups)
    parallel: Any = functools.partial(joblib.Parallel, batch_size=1)
    with _backend(options) as settings, joblib.parallel_config(**settings, n_jobs=jobs):
        if options.backend == "ray":  # gives nothing before all is done: so a few at a time
            size = max(1, joblib.effective_n_jobs(jobs))
            while some := list(islice(calls, size)):
                yield from parallel()(some)
        else:
            yield from parallel(return_as="generator_unordered")(calls)


@contextlib.contextmanager
def _backend(options: Options) -> Iterator[dict[str, Any]]:
    """The settings of joblib, with the cluster connected."""
    if options.backend == "loky":
        if options.scheduler:
            raise ValueError(
                f"Expected --backend dask or ray with --scheduler but got loky; "
                f"add --backend dask to use {options.scheduler}."
            )
        yield {"backend": "loky"}
        return
    if options.backend == "dask":
        if not options.scheduler:
            raise ValueError(
                "Expected --scheduler ADDRESS with --backend dask but got none; "
                "start one with: dask scheduler"
            )
        try:
            from distributed import Client
        except ImportError:
            raise ImportError(
                "--backend dask needs distributed; install it with: pip install 'mibounds[dask]'"
            ) from None
        try:
            client = Client(options.scheduler, timeout=10, set_as_default=False)
        except (OSError, TimeoutError) as error:
            raise ValueError(
                f"Expected a dask scheduler at --scheduler {options.scheduler} but got "
                f"{type(error).__name__}: {error}; start one with: dask scheduler"
            ) from None
        with client:
            yield {"backend": "dask", "client": client, "wait_for_workers_timeout": 60}
        return
    try:
        import ray  # pyright: ignore[reportMissingImports]
        from ray.util.joblib import register_ray  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise ImportError(
            "--backend ray needs ray; install it with: pip install 'ray[default]'"
        ) from None
    ray.init(address=options.scheduler or "auto")
    try:
        register_ray()
        yield {"backend": "ray"}
    finally:
        ray.shutdown()


def _follow(
    outcomes: Iterable[_Success | _Failure],
    groups: Sequence[Sequence[Cell]],
    progress: Progress | None,
) -> Iterator[_Success | _Failure]:
    """Tell the progress over the cells."""
    total = sum(map(len, groups))
    done = 0
    if progress and total:
        progress(0.0, f"0 of {total} cells")
    for outcome in outcomes:
        yield outcome
        done += len(outcome.finished)
        if progress:
            progress(done / total, f"{done} of {total} cells")


# --- results -------------------------------------------------------------------------------------


def _publish(
    name: str, experiment: Experiment[Any], config: Config, records: Records, command: str
) -> str:
    """Write the summary, the table and the figures of all that is finished."""
    done = records.read(config)
    cells = experiment.cells(config)
    finished = [done[cell] for cell in cells if cell in done]
    if not finished:
        return ""
    values = [(r.cell.mode, r.cell.method, r.cell.seed, r.rows) for r in finished]
    summary = summarise(values, experiment.paper)
    text = _describe(name, experiment, finished, len(cells), summary, command)
    _write(records.folder / "summary.json", _dump(summary))
    _write(records.folder / "table.md", text)
    for stem, figure in experiment.draw(config, finished, summary).items():
        _save(figure, records.folder / stem)
    return text


def _save(figure: Figure, path: Path) -> None:
    """As PNG and as SVG, the same bytes for the same figure."""
    from matplotlib import rc_context

    with replacing(path.with_name(f"{path.name}.png")) as temporary:
        figure.savefig(temporary, dpi=150)
    with (
        rc_context({"svg.hashsalt": path.name}),
        replacing(path.with_name(f"{path.name}.svg")) as temporary,
    ):
        figure.savefig(temporary, metadata={"Date": None})


def _dump(summary: Sequence[Summary]) -> str:
    lines = [json.dumps(dataclasses.asdict(each)) for each in summary]
    return "[\n" + ",\n".join(lines) + "\n]\n"


def _describe(
    name: str,
    experiment: Experiment[Any],
    finished: Sequence[Record],
    cells: int,
    summary: Sequence[Summary],
    command: str,
) -> str:
    versions = sorted({json.dumps(record.versions, sort_keys=True) for record in finished})
    hours = sum(record.seconds for record in finished)
    lines = [f"# {name}", "", f"{experiment.makes}.", "", f"    {command}", ""]
    lines += [f"{len(finished)} of {cells} cells, {hours:.0f} s of computing, by"]
    for text in versions:
        lines += [", ".join(f"{key} {value}" for key, value in json.loads(text).items())]
    lines += ["", "Mean ± standard deviation over seeds, and the paper's value in brackets.", ""]
    lines += [tabulate(summary)]
    if experiment.notes:
        lines += ["", experiment.notes.strip()]
    return "\n".join(lines) + "\n"


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
