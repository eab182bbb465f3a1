"""Where cells are computed: on the cores of this machine, or on a cluster that is running.

joblib's backends distribute them. A worker sends its rows back and writes nothing, so that it needs
no shared disk.
"""

from __future__ import annotations

import contextlib
import os
import platform
import threading
import time
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from experiments.runner.base import Cell, Config, Experiment
from experiments.runner.summaries import CellRow


@dataclass(frozen=True)
class GroupOutcome:
    """The result of a group of cells.

    Args:
        cells: the group.
        rows: of each cell; empty if it failed.
        seconds: time of each cell: an equal share.
        versions: of the packages on the worker, and its device.
        error: why it failed; "" if it did not.

    Example:
        >>> GroupOutcome((Cell("correct", "gaussian", "club", 0),), error="OverflowError: ...").rows
        ()
    """

    cells: tuple[Cell, ...]
    rows: tuple[list[CellRow], ...] = ()
    seconds: float = 0.0
    versions: dict[str, str] = field(default_factory=dict)
    error: str = ""


PATIENCE = 10.0  # seconds for a scheduler to answer
WAIT = 30  # seconds for the first worker of a cluster
_ONE = threading.Lock()  # torch's random numbers and settings belong to the process


def _work(experiment: Experiment[Any], config: Config, cells: Sequence[Cell]) -> GroupOutcome:
    """Compute a group of cells in the worker. Returns errors, since not every backend raises."""
    import torch

    with _ONE:
        threads = torch.get_num_threads()
        torch.set_num_threads(1)  # tensors are small, and sums are the same on every machine
        start = time.perf_counter()
        try:
            rows = experiment.run(config, cells)
            if len(rows) != len(cells):
                raise ValueError(
                    f"Expected rows for each of {len(cells)} cells but got {len(rows)}; "
                    "return one list per cell from the experiment's run."
                )
        except Exception as error:
            if os.environ.get("MIBOUNDS_TRACEBACK"):
                traceback.print_exc()
            return GroupOutcome(tuple(cells), error=f"{type(error).__name__}: {error}")
        finally:
            torch.set_num_threads(threads)
    seconds = (time.perf_counter() - start) / len(cells)
    return GroupOutcome(tuple(cells), tuple(rows), seconds, _versions(config))


def _versions(config: Config) -> dict[str, str]:
    import numpy
    import torch

    import mibounds

    device = pick_device(config.device)
    on_gpu = device.startswith("cuda")
    kind = torch.cuda.get_device_name(device) if on_gpu else platform.machine()
    return {
        "mibounds": mibounds.__version__,
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "python": platform.python_version(),
        "device": f"{device} ({kind})",
    }


def pick_device(device: str) -> str:
    """The device that "auto" means on this machine.

    Example:
        >>> pick_device("cpu")
        'cpu'
    """
    import torch

    if device != "auto":
        return device
    return "cuda" if torch.cuda.is_available() else "cpu"


def set_queues(jobs: int) -> None:
    """Set, before the GPU is first used, from how many queues it takes the work of a process.

    One process that trains many networks side by side needs more than the default of 8. Processes
    that share a GPU (MPS) need fewer each, or some get none.

    Args:
        jobs: number of processes.
    """
    os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "4" if jobs > 1 else "32")


def compute(
    experiment: Experiment[Any],
    config: Config,
    groups: Sequence[Sequence[Cell]],
    backend: str = "loky",
    scheduler: str = "",
    jobs: int = 0,
) -> Iterator[GroupOutcome]:
    """Compute groups of cells.

    Args:
        experiment: what to run.
        config: its settings.
        groups: cells to compute together.
        backend: "loky", "dask" or "ray".
        scheduler: address of the cluster.
        jobs: number of processes; 0 for one per core, or for a single one on a GPU.

    Yields:
        The outcome of each group, in the order of completion.

    Example:
        >>> from experiments import EXPERIMENTS
        >>> list(compute(EXPERIMENTS["estimation-quality"], Config(), []))
        []
    """
    if not groups:
        return
    try:
        import joblib
    except ImportError:
        raise ImportError(
            "experiments need joblib; install it with: pip install -e '.[experiments]'"
        ) from None
    if backend == "loky":
        on_gpu = pick_device(config.device).startswith("cuda")
        _check_device(on_gpu, config.device)
        jobs = jobs or (1 if on_gpu or experiment.serial else -1)
    calls = (joblib.delayed(_work)(experiment, config, group) for group in groups)
    parallel: Any = joblib.Parallel
    with (
        _connect(backend, scheduler) as settings,
        joblib.parallel_config(**settings, n_jobs=jobs or -1),
    ):
        if backend == "ray":  # returns only when all are done: so a few at a time
            size = max(1, joblib.effective_n_jobs(jobs or -1))
            while some := list(islice(calls, size)):
                yield from parallel(batch_size=1)(some)
        else:
            yield from parallel(batch_size=1, return_as="generator_unordered")(calls)


def _check_device(on_gpu: bool, device: str) -> None:
    import torch

    if on_gpu and not torch.cuda.is_available():
        raise ValueError(
            f"Expected a GPU for --device {device} but torch finds none here; "
            "leave --device out to use the CPU."
        )


@contextlib.contextmanager
def _connect(backend: str, scheduler: str) -> Iterator[dict[str, Any]]:
    """The settings of joblib, with the cluster connected."""
    if backend == "loky":
        if scheduler:
            raise ValueError(
                f"Expected --backend dask or ray with --scheduler but got loky; "
                f"add --backend dask to use {scheduler}."
            )
        yield {"backend": "loky"}
        return
    if backend == "dask":
        with _dask_client(scheduler) as client:
            yield {"backend": "dask", "client": client}
        return
    try:
        import ray  # pyright: ignore[reportMissingImports]
        from ray.util.joblib import register_ray  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise ImportError("--backend ray needs ray; install it with: pip install ray") from None
    try:
        ray.init(address=scheduler or "auto", log_to_driver=False)
    except (ConnectionError, ValueError) as error:
        raise ValueError(
            f"Expected a ray cluster at --scheduler {scheduler or 'auto'} but got "
            f"{type(error).__name__}: {error}; start one with: ray start --head"
        ) from None
    try:
        register_ray()
        yield {"backend": "ray"}
    finally:
        ray.shutdown()


def _dask_client(address: str) -> Any:
    """A client of a scheduler whose workers are up and can do the work.

    Checked first, because joblib waits for ever for a worker that cannot load its task.
    """
    if not address:
        raise ValueError(
            "Expected --scheduler ADDRESS with --backend dask but got no address; "
            "start one with: dask scheduler"
        )
    try:
        from distributed import Client
    except ImportError:
        raise ImportError(
            "--backend dask needs distributed; install it with: pip install -e '.[dask]'"
        ) from None
    try:
        client = Client(address, timeout=PATIENCE, set_as_default=False)
    except (OSError, TimeoutError, ValueError) as error:
        raise ValueError(
            f"Expected a dask scheduler at --scheduler {address} but got "
            f"{type(error).__name__}: {error}; start one with: dask scheduler"
        ) from None
    try:
        _check_workers(client, address)
    except BaseException:
        client.close()
        raise
    return client


def _check_workers(client: Any, address: str) -> None:
    with contextlib.suppress(TimeoutError):
        client.wait_for_workers(1, timeout=WAIT)
    threads = sum(client.nthreads().values())
    if threads < 2:  # with one, joblib would compute here
        raise ValueError(
            f"Expected workers with at least 2 threads in all at {address} but got {threads}; "
            f"start more with: dask worker {address}"
        )
    try:
        found = client.run(_version)
    except ImportError as error:
        found = {"a worker": f"{type(error).__name__}: {error}"}
    for worker, version in found.items():
        if version != _version():
            raise ValueError(
                f"Expected mibounds {_version()} on every worker but got {version} on {worker}; "
                "install the same version there."
            )


def _version() -> str:
    import mibounds

    return mibounds.__version__
