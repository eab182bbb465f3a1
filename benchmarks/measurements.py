"""How the benchmarks measure: times in turns, the peak memory of a process, results on disk."""

import hashlib
import json
import multiprocessing
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from rich.progress import Progress

from mibounds.files import replacing

Clock = Callable[[], float]


def time_in_turns(
    calls: Mapping[str, Callable[[], object]],
    seconds: float,
    rounds: int = 3,
    patience: float = 2.0,
    clock: Clock = time.process_time,
) -> dict[str, list[float]]:
    """Milliseconds of each call, in turns, so that a change of the machine's load meets them all.

    A turn lasts a share of the seconds, at least one call. A first call that takes less than half a
    second is taken as warming up; a longer one counts.

    Args:
        calls: what to time.
        seconds: time for each of them.
        rounds: how many turns each has, unless patience ends first (after one turn).
        patience: seconds after which no further round is begun.
        clock: what to read before and after; the CPU time of this process if left out, which for
            one thread is what a machine without other work would take.
    """
    times: dict[str, list[float]] = {name: [] for name in calls}

    def call(name: str) -> float:
        start = clock()
        calls[name]()
        times[name].append(1e3 * (clock() - start))
        return times[name][-1]

    begin = time.perf_counter()
    for name in calls:
        if call(name) < 500:
            times[name].clear()
    done = min(1, min(map(len, times.values())))
    while done < rounds and (not done or time.perf_counter() - begin < patience):
        for name in calls:
            end = time.perf_counter() + seconds / rounds
            while True:
                call(name)
                if time.perf_counter() >= end:
                    break
        done += 1
    return times


def summary(times: list[float], prefix: str = "") -> dict[str, float | int]:
    """Median and number of times, as parts of a row."""
    return {f"{prefix}ms": round(statistics.median(times), 4), f"{prefix}runs": len(times)}


def resident_mib(key: str = "VmHWM") -> float | None:
    """Resident memory of this process in MiB: its peak (VmHWM), now (VmRSS), or now and without
    the pages of files (RssAnon); None where the system does not say.

    Not ru_maxrss: that begins with the peak of the process that started this one.
    """
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith(f"{key}:"):
                return int(line.split()[1]) / 1024
    return None


def megabytes(mib: float | None) -> float | None:
    """Millions of bytes."""
    return None if mib is None else round(mib * 2**20 / 1e6, 1)


def in_child(function: Callable[..., Any], *args: Any, preload: str = "mibounds") -> Any:
    """What a function gives in a process of its own, forked from one that has only imported."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([preload])
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=_send, args=(sender, function, args))
    child.start()
    sender.close()
    try:
        kind, value = receiver.recv()
    except EOFError:
        kind, value = "failed", "the process ended without a result, perhaps for want of memory"
    except BaseException:
        child.terminate()
        raise
    finally:
        child.join()
    if kind == "failed":
        raise RuntimeError(f"{function.__name__}{args}: {value}")
    return value


def _send(sender: Connection, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
    try:
        sender.send(("value", function(*args)))
    except Exception as error:
        sender.send(("failed", repr(error)))


def write(path: Path, result: dict[str, Any] | str) -> None:
    """Write a result, or a text, as a whole or not at all."""
    text = result if isinstance(result, str) else json.dumps(result, indent=1) + "\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as part:
        part.write_text(text)


def read_rows(path: Path, fields: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Finished rows, a line each; a last line that an interrupted run left unfinished is dropped.

    Args:
        path: of the file; no rows if there is none.
        fields: that each row has. A file with other lines is somebody else's, and is refused
            before it is written again without them.
    """
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    rows = []
    for number, line in enumerate(lines, 1):
        with suppress(json.JSONDecodeError):
            row = json.loads(line)
            if isinstance(row, dict) and row.keys() >= set(fields):
                rows.append(row)
                continue
        unfinished = number == len(lines) and line.startswith("{") and not line.endswith("\n")
        if not unfinished:
            raise ValueError(
                f"Expected a row with {', '.join(fields) or 'its fields'} in line {number} of "
                f"{path} but got {line[:40]!r}; remove the line, or name another file."
            )
    return rows


def write_rows(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    """Write rows, a line each."""
    write(path, "".join(json.dumps(row) + "\n" for row in rows))


def complete_rows(
    path: Path,
    fields: Sequence[str],
    cells: Sequence[tuple[Any, ...]],
    measure: Callable[..., dict[str, Any]],
    jobs: int,
) -> list[dict[str, Any]]:
    """The rows of a file in the order of their cells, after those that are missing were measured.

    Args:
        path: of the file, in which each row stands as soon as it is there.
        fields: of a row, whose values are its cell.
        cells: those that are wanted.
        measure: from the values of a cell to its row.
        jobs: processes that measure.
    """

    def cell_of(row: dict[str, Any]) -> tuple[Any, ...]:
        return tuple(row[name] for name in fields)

    rows = read_rows(path, fields)
    write_rows(path, rows)
    done = set(map(cell_of, rows))
    todo = [cell for cell in cells if cell not in done]
    with Progress() as bar, ProcessPoolExecutor(jobs) as pool, path.open("a") as file:
        work = bar.add_task(path.stem, total=len(todo))
        for future in as_completed([pool.submit(measure, *cell) for cell in todo]):
            rows.append(future.result())
            file.write(json.dumps(rows[-1]) + "\n")
            file.flush()
            bar.advance(work)
    order = {cell: i for i, cell in enumerate(cells)}
    rows.sort(key=lambda row: order.get(cell_of(row), len(order)))
    write_rows(path, rows)
    return rows


class KeptRows:
    """Rows that survive an interruption: kept in ``NAME.SETTINGS.part.json`` until all are there.

    Args:
        path: where the finished result will be.
        settings: what the rows depend on; rows of other settings have a file of their own.
    """

    def __init__(self, path: Path, settings: dict[str, Any]):
        digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:8]
        self.path, self.part = path, path.with_suffix(f".{digest}.part.json")
        self.settings = settings
        self.sections: dict[str, list[dict[str, Any]]] = {}
        self.begin = time.perf_counter()
        with suppress(OSError, ValueError, KeyError, TypeError):
            kept = json.loads(self.part.read_text())
            if kept["settings"] == settings:
                self.begin -= kept["seconds"]
                self.sections = kept["sections"]

    @property
    def seconds(self) -> float:
        """Time on the wall so far, without that between an interruption and going on."""
        return round(time.perf_counter() - self.begin, 1)

    def rows(self, section: str) -> list[dict[str, Any]]:
        """The rows of a section so far."""
        return self.sections.setdefault(section, [])

    def find(self, section: str, **key: Any) -> dict[str, Any] | None:
        """The row with these entries, if there is one."""
        return find(self.rows(section), **key)

    def add(self, section: str, row: dict[str, Any]) -> None:
        """A new row, on disk at once."""
        self.rows(section).append(row)
        kept = {"settings": self.settings, "seconds": self.seconds, "sections": self.sections}
        write(self.part, kept)

    def finish(self, result: dict[str, Any]) -> None:
        """Put the result in the place of the rows."""
        write(self.path, result)
        self.part.unlink(missing_ok=True)


def find(rows: list[dict[str, Any]], **key: Any) -> dict[str, Any] | None:
    """The first row with these entries, if there is one."""
    return next((row for row in rows if key.items() <= row.items()), None)
