"""All pairs of two lists of columns, in blocks: over processes or a cluster, and once each.

A block is the pairs of some columns of one list with some of the other. What the blocks are depends
on the columns alone, so that any number of processes, and any interruption, gives the same numbers.
With a folder each finished block is a file in it, written whole or not at all; the folder belongs
to one table and one choice of settings, which it knows by their hash.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from mibounds.files import UNREADABLE, check_folder, replacing
from mibounds.measure.tables.values import FIELDS, measure_pairs
from mibounds.measure.tables.variables import Rows, Variable
from mibounds.samples.checks import check_jobs
from mibounds.samples.precision import find_device

if TYPE_CHECKING:
    from jaxtyping import Float

__all__ = ["BACKENDS", "measure_blocks"]

BACKENDS = ("loky", "threading", "dask", "ray")
FORM = 2  # of the numbers in a folder; another one wherever they change
PAIRS = 4e6  # rows times pairs of a block, some seconds of work
SETTINGS = "table.json"


def measure_blocks(
    left: Sequence[Variable],
    right: Sequence[Variable] | None = None,
    *,
    fast: bool = True,
    device: str | torch.device | None = None,
    n_jobs: int = 1,
    backend: str = "loky",
    scheduler: str = "",
    out: str | os.PathLike[str] | None = None,
    progress: Callable[[float, str], None] | None = None,
) -> Float[np.ndarray, "6 L R"]:
    """All pairs of left and right, or of left with itself.

    Args:
        left: columns.
        right: others; the pairs within left if left out, each of which is measured once.
        fast: see `measure_pairs`.
        device: of the series.
        n_jobs: processes; -1 for one per core.
        backend: of joblib.
        scheduler: address of a dask or ray cluster; that of the running client if left out.
        out: folder for finished blocks.
        progress: called with the share that is done, and a word.

    Returns:
        The fields of `measure_pairs`, with NaN on the diagonal where right is left out.
    """
    check_jobs(n_jobs)
    same = right is None
    others = left if right is None else right
    found = np.full((len(FIELDS), len(left), len(others)), math.nan)
    blocks = _blocks(len(left), len(others), len(left[0].values), same)
    store = _Store(out, left, others, same, fast) if out is not None else None
    todo = []
    total = sum(_pairs(*b, same) for b in blocks)
    done = 0
    for number, (rows, columns) in enumerate(blocks):
        kept = store.read(number, (len(FIELDS), len(rows), len(columns))) if store else None
        if kept is None:
            todo.append(number)
        else:
            _place(found, rows, columns, kept, same)
            done += _pairs(rows, columns, same)
    if progress is not None:
        progress(done / max(total, 1), "pairs")
    kind = find_device(device)
    calls = (
        (number, [left[i] for i in blocks[number][0]], [others[j] for j in blocks[number][1]],
         same and blocks[number][0] == blocks[number][1], fast, str(kind))
        for number in todo
    )  # fmt: skip
    for number, part in _run(calls, min(n_jobs, len(todo)), backend, scheduler):
        if store:
            store.write(number, part)
        rows, columns = blocks[number]
        _place(found, rows, columns, part, same)
        done += _pairs(rows, columns, same)
        if progress is not None:
            progress(done / total, "pairs")
    return found


def _blocks(left: int, right: int, rows: int, same: bool) -> list[tuple[range, range]]:
    size = int(min(max(math.sqrt(PAIRS / rows), 4), 64))
    starts = range(0, left, size), range(0, right, size)
    return [
        (range(i, min(i + size, left)), range(j, min(j + size, right)))
        for i in starts[0]
        for j in starts[1]
        if not same or i <= j
    ]


def _pairs(rows: range, columns: range, same: bool) -> int:
    if same and rows == columns:
        return len(rows) * (len(rows) - 1) // 2
    return len(rows) * len(columns)


def _place(found: np.ndarray, rows: range, columns: range, part: np.ndarray, same: bool) -> None:
    if same and rows == columns:
        i, j = np.triu_indices(len(rows), 1)
        upper = part[:, i, j]
        i, j = i + rows.start, j + rows.start
        found[:, i, j] = found[:, j, i] = upper
        return
    found[:, rows.start : rows.stop, columns.start : columns.stop] = part
    if same:
        turned = part.transpose(0, 2, 1)
        found[:, columns.start : columns.stop, rows.start : rows.stop] = turned


def _measure(
    number: int, left: list[Variable], right: list[Variable], same: bool, fast: bool, device: str
) -> tuple[int, np.ndarray]:
    """A block, on one thread, so that sums are the same on every machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    kept = Rows()
    part = np.full((len(FIELDS), len(left), len(right)), math.nan)
    try:
        with torch.inference_mode():
            for i, x in enumerate(left):
                first = i + 1 if same else 0
                if first < len(right):
                    part[:, i, first:] = measure_pairs(
                        x, right[first:], kept, fast, torch.device(device)
                    )
    finally:
        torch.set_num_threads(threads)
    return number, part


# --- over processes ------------------------------------------------------------------------------


def _run(
    calls: Iterator[tuple[Any, ...]], n_jobs: int, backend: str, scheduler: str
) -> Iterator[tuple[int, np.ndarray]]:
    if backend not in BACKENDS:
        raise ValueError(
            f"Expected backend to be one of {', '.join(BACKENDS)} but got {backend!r}; "
            "leave it out for processes on this machine."
        )
    if scheduler and backend not in ("dask", "ray"):
        raise ValueError(
            f"Expected backend dask or ray with scheduler but got {backend!r}; "
            'add backend="dask", for example.'
        )
    if n_jobs in (0, 1) and backend in ("loky", "threading"):
        yield from (_measure(*call) for call in calls)
        return
    try:
        import joblib
    except ImportError as error:
        raise ImportError(
            "More than one process needs the package joblib, which is not installed; "
            "install it with: pip install 'mibounds[parallel]'"
        ) from error
    tasks = (joblib.delayed(_measure)(*call) for call in calls)
    parallel: Any = joblib.Parallel
    with (
        _connect(backend, scheduler) as settings,
        joblib.parallel_config(**settings, n_jobs=n_jobs),
    ):
        if backend == "ray":  # it returns only when all are done: so a few at a time
            size = 2 * max(1, joblib.effective_n_jobs(n_jobs))
            while some := list(islice(tasks, size)):
                yield from parallel(batch_size=1)(some)
        else:
            yield from parallel(batch_size=1, return_as="generator_unordered")(tasks)


@contextlib.contextmanager
def _connect(backend: str, scheduler: str) -> Iterator[dict[str, Any]]:
    """The settings of joblib, with a cluster connected."""
    if backend == "dask":
        try:
            from distributed import Client, get_client
        except ImportError as error:
            raise ImportError(
                'backend="dask" needs the package distributed, which is not installed; '
                "install it with: pip install 'mibounds[dask]'"
            ) from error
        if scheduler:
            with Client(scheduler, timeout=10, set_as_default=False) as client:
                yield {"backend": "dask", "client": client}
            return
        try:
            client = get_client()
        except ValueError as error:
            raise ValueError(
                "Expected a running dask client, or the address of a scheduler, with "
                'backend="dask" but got neither; make one with distributed.Client().'
            ) from error
        yield {"backend": "dask", "client": client}
    elif backend == "ray":
        try:
            import ray  # pyright: ignore[reportMissingImports]
            from ray.util.joblib import register_ray  # pyright: ignore[reportMissingImports]
        except ImportError as error:
            raise ImportError(
                'backend="ray" needs the package ray, which is not installed; '
                "install it with: pip install ray"
            ) from error
        own = not ray.is_initialized()
        if own:
            ray.init(address=scheduler or None, log_to_driver=False)
        try:
            register_ray()
            yield {"backend": "ray"}
        finally:
            if own:
                ray.shutdown()
    else:
        yield {"backend": backend}


# --- on disk -------------------------------------------------------------------------------------


class _Store:
    """A folder of finished blocks."""

    def __init__(
        self,
        folder: str | os.PathLike[str],
        left: Sequence[Variable],
        right: Sequence[Variable],
        same: bool,
        fast: bool,
    ):
        self.folder = check_folder(folder, "out")
        mine = {"form": FORM, "hash": _hash(left, right, same, fast), "fast": fast}
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / SETTINGS
        if path.exists():
            try:
                there = json.loads(path.read_text(encoding="utf-8"))
            except UNREADABLE:
                there = None
            if there != mine:
                raise ValueError(
                    f"Expected blocks of this table and these settings in {str(folder)!r} but got "
                    "those of others; name another folder, or remove this one."
                )
            return
        if strangers := sorted(each.name for each in self.folder.glob("block-*.npy")):
            raise ValueError(
                f"Expected no blocks in {str(folder)!r} without {SETTINGS}, which says what they "
                f"belong to, but got {strangers[0]}; name another folder."
            )
        with replacing(path) as part:
            part.write_text(json.dumps(mine) + "\n", encoding="utf-8")

    def read(self, number: int, shape: tuple[int, ...]) -> np.ndarray | None:
        """A finished block; None if it is not there, or damaged."""
        with contextlib.suppress(*UNREADABLE):
            part = np.load(self._path(number), allow_pickle=False)
            if part.shape == shape:
                return part
        return None

    def write(self, number: int, part: np.ndarray) -> None:
        """A finished block, whole or not at all."""
        with replacing(self._path(number)) as temporary:
            np.save(temporary, part)

    def _path(self, number: int) -> Path:
        return self.folder / f"block-{number:06d}.npy"


def _hash(left: Sequence[Variable], right: Sequence[Variable], same: bool, fast: bool) -> str:
    """Of all that the numbers depend on."""
    digest = hashlib.blake2b(repr((FORM, same, fast, torch.__version__)).encode(), digest_size=16)
    for v in (*left, *right):
        digest.update(repr((v.name, v.kind, v.place)).encode())
        for array in (v.values, v.present, v.noise):
            digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
