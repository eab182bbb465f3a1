"""Record what runs over and over on a GPU, to replay it in one call.

For small networks the calls of operations cost more than the work in them. A CUDA graph replays a
recorded sequence of them at once, always in the same memory: whatever changes from one replay to
the next has to live in tensors that stay where they are.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor


def record_cuda_graph(
    step: Callable[[], object],
    state: Sequence[Tensor],
    generators: Sequence[torch.Generator] = (),
) -> Callable[[], None] | RuntimeError:
    """Record a step as a CUDA graph; recording it does not take the step.

    Args:
        step: what to record. Nothing in it may depend on a value that the CPU has to see.
        state: every tensor that it writes and that outlives it, all on one GPU.
        generators: sources of its random numbers.

    Returns:
        The replay; or why there can be none, as where a step waits for the GPU.
    """
    with torch.cuda.device(state[0].device):
        # Libraries set themselves up in their first calls, which a graph must not contain, and
        # autograd remembers streams: so the first steps go to a stream aside.
        main, aside = torch.cuda.current_stream(), torch.cuda.Stream()
        aside.wait_stream(main)
        with torch.cuda.stream(aside):
            with _unchanged(state, generators):
                step()
            with _unchanged(state, generators):
                waits = _waits(step)
        main.wait_stream(aside)
        if waits is not None:
            return waits
        graph = torch.cuda.CUDAGraph()
        for generator in generators:
            graph.register_generator_state(generator)
        with _own_workspace(), torch.cuda.graph(graph):
            step()
    return graph.replay


@contextmanager
def _own_workspace() -> Iterator[None]:
    """Have a graph keep the scratch memory of its matrix products to itself.

    Otherwise all graphs share that of the stream they are recorded on, and two of them that are
    replayed at once write over each other's.
    """
    torch._C._cuda_clearCublasWorkspaces()
    try:
        yield
    finally:
        torch._C._cuda_clearCublasWorkspaces()


def _waits(step: Callable[[], object]) -> RuntimeError | None:
    """What in a step makes the CPU wait for the GPU, as some of torch's distributions do."""
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
def _unchanged(state: Sequence[Tensor], generators: Sequence[torch.Generator]) -> Iterator[None]:
    """Put everything that a step writes back to what it was."""
    before = [value.clone() for value in state]
    seeds = [generator.get_state() for generator in generators]
    try:
        yield
    finally:
        with torch.no_grad():
            for value, old in zip(state, before, strict=True):
                value.copy_(old)
        for generator, seed in zip(generators, seeds, strict=True):
            generator.set_state(seed)
