"""Record a step as a CUDA graph, to run it in one call.

For small networks, launching the operations costs more than the work in them. A CUDA graph runs a
recorded sequence of operations at once, always in the same memory: whatever changes from one run to
the next has to live in tensors that stay where they are.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor


def record_cuda_graph(
    step: Callable[[], object],
    state: Sequence[Tensor],
    generators: Sequence[torch.Generator] = (),
) -> Callable[[], None] | RuntimeError:
    """Record a step without taking it.

    Args:
        step: what to record. Nothing in it may depend on a value that the CPU has to read.
        state: every tensor that the step writes and that outlives it, all on one GPU.
        generators: sources of its random numbers.

    Returns:
        The recorded step, to be called; or the reason why there can be none, such as a step that
        waits for the GPU.
    """
    with torch.cuda.device(state[0].device):
        # Libraries initialise themselves in their first calls, which a graph must not contain, and
        # autograd remembers streams: so the trial steps run on a stream of their own.
        main, trial = torch.cuda.current_stream(), torch.cuda.Stream()
        trial.wait_stream(main)
        with torch.cuda.stream(trial):
            with restored(state, generators):
                step()
            with restored(state, generators):
                reason = _find_wait(step)
        main.wait_stream(trial)
        if reason is not None:
            return reason
        graph = torch.cuda.CUDAGraph()
        for generator in generators:
            graph.register_generator_state(generator)
        with _own_workspace(), torch.cuda.graph(graph):
            step()
    return graph.replay


class Branch:
    """Work that need not wait for what comes between: in a recorded graph it runs beside that.

    What is done in it starts from where the branch was made, however late it is entered. Outside of
    a recording everything runs in the order in which it is written.

    Args:
        device: where.

    Example:
        >>> x = torch.ones(2)
        >>> branch = Branch(x.device)
        >>> y = x + 1  # beside the next line
        >>> with branch:
        ...     z = x + 2
        >>> branch.join()  # from here on z is known
    """

    def __init__(self, device: torch.device):
        self._main: torch.cuda.Stream | None = None
        self._entered: contextlib.AbstractContextManager[Any] = contextlib.nullcontext()
        if device.type == "cuda" and torch.cuda.is_current_stream_capturing():
            self._main, self._side = torch.cuda.current_stream(), torch.cuda.Stream()
            self._side.wait_stream(self._main)
            self._entered = torch.cuda.stream(self._side)

    def __enter__(self) -> None:
        self._entered.__enter__()

    def __exit__(self, *error: Any) -> None:
        self._entered.__exit__(*error)

    def join(self) -> None:
        """Make what follows wait for the branch."""
        if self._main is not None:
            self._main.wait_stream(self._side)


@contextmanager
def restored(state: Sequence[Tensor], generators: Sequence[torch.Generator] = ()) -> Iterator[None]:
    """Restore everything that a trial step writes.

    Args:
        state: tensors that it writes.
        generators: sources of its random numbers.

    Example:
        >>> x = torch.ones(2)
        >>> with restored([x]):
        ...     x.add_(1)
        tensor([2., 2.])
        >>> x
        tensor([1., 1.])
    """
    before = [value.clone() for value in state]
    random = [generator.get_state() for generator in generators]
    try:
        yield
    finally:
        with torch.no_grad():
            for value, old in zip(state, before, strict=True):
                value.copy_(old)
        for generator, old in zip(generators, random, strict=True):
            generator.set_state(old)


def _find_wait(step: Callable[[], object]) -> RuntimeError | None:
    """Take a step, and find what in it makes the CPU wait, as some of torch's distributions do."""
    before = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch calls this mode a prototype
        torch.cuda.set_sync_debug_mode("error")
        try:
            step()
        except RuntimeError as error:
            return error
        finally:
            torch.cuda.set_sync_debug_mode(before)
    return None


@contextmanager
def _own_workspace() -> Iterator[None]:
    """Give a graph scratch memory of its own for its matrix products.

    Otherwise all graphs share that of the stream they were recorded on, and two of them that run
    at the same time overwrite each other's.
    """
    torch._C._cuda_clearCublasWorkspaces()
    try:
        yield
    finally:
        torch._C._cuda_clearCublasWorkspaces()
