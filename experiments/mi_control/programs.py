"""The steps of cells side by side: one program, and on a GPU one CUDA graph for a step.

An update draws samples, asks the method for nats, and moves the correlations by their gradient. The
true mutual information after each update is kept; nothing waits for the GPU.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from experiments.mi_control.config import FRESH, MIControlConfig, Task
from experiments.mi_control.draws import CellDraws, Draws, JointDraws
from experiments.mi_control.methods import make_method
from experiments.mi_control.networks import quiet_steps
from experiments.mi_control.worlds import Batch, World
from experiments.runner.base import Cell

if TYPE_CHECKING:
    from jaxtyping import Float64
    from torch import Tensor

TRIALS = 3  # updates before the graph is recorded: libraries initialise themselves in the first
QUEUED = 200  # updates of a GPU to queue before waiting for them


@dataclass(frozen=True, eq=False)
class Traces:
    """How cells went.

    Args:
        nats: the true mutual information after each update, on the CPU.
        seconds: time of all cells together.
    """

    nats: Float64[Tensor, "cells steps"]
    seconds: float


class Program:
    """Cells that share the goal, the method and the dimension; equal families side by side.

    Args:
        cells: which ones.
        config: the settings.
        device: where.
        draws: the random numbers; those of the device if left out.
    """

    def __init__(
        self,
        cells: Sequence[Cell],
        config: MIControlConfig,
        device: str = "cpu",
        draws: Draws | None = None,
    ):
        tasks = [Task.of(cell.task) for cell in cells]
        seeds = [cell.seed for cell in cells]
        self.up, self.config = tasks[0].goal == "maximise", config
        if draws is None:
            on_gpu = torch.device(device).type == "cuda"
            draws = JointDraws(len(cells), device) if on_gpu else CellDraws(seeds)
        self.draws = draws
        dim, method = tasks[0].dim, cells[0].method
        self.world = World(
            [task.family for task in tasks],
            [task.correlation == "shared" for task in tasks],
            seeds,
            dim,
            config.low if self.up else config.high,
            device,
        )
        self.method = make_method(method, tasks[0].goal, seeds, dim, config, device)
        self.coupled = "coupled" in method
        self.fresh = self._draw_fresh if method.endswith(FRESH) else None
        raw = self.world.raw
        self.optimizer = torch.optim.Adam([raw], lr=config.rate, capturable=raw.is_cuda)
        self.nats = torch.zeros(config.steps, len(cells), dtype=torch.float64, device=device)
        self.count = torch.zeros(1, dtype=torch.long, device=device)
        self.arrived = torch.zeros(len(cells), 1, dtype=torch.bool, device=device)

    def update(self) -> None:
        """Move the correlations once. Where the target has been reached, they stay."""
        raw = self.world.raw
        batch = self.world.sample(self.config.batch_size, self.draws, self.coupled)
        value = self.method.step(batch, self.draws, self.fresh).sum()
        (raw.grad,) = torch.autograd.grad(-value if self.up else value, raw)
        before = raw.detach().clone()
        with quiet_steps():
            self.optimizer.step()
        with torch.no_grad():
            raw.copy_(torch.where(self.arrived, before, raw))
            nats = self.world.nats()
            self.nats.index_copy_(0, self.count, nats[None])
            if self.up:
                self.arrived |= (nats >= self.config.target)[:, None]
            self.count += 1

    @property
    def done(self) -> bool:
        """Whether all cells have reached the target. Waits for the GPU."""
        return self.up and bool(self.arrived.all())

    def traces(self) -> Float64[Tensor, "cells steps"]:
        """The true mutual information after each update; cells that have arrived stay."""
        taken = int(self.count)
        self.nats[taken:] = self.nats[taken - 1]
        return self.nats.T.cpu()

    def _draw_fresh(self) -> Batch:
        with torch.no_grad():
            return self.world.sample(self.config.batch_size, self.draws)


def simulate(
    cells: Sequence[Cell],
    config: MIControlConfig,
    device: str = "cpu",
    graph: bool = True,
    draws: Draws | None = None,
) -> Traces:
    """Take all steps of some cells, or until all of them have reached the target.

    Args:
        cells: of one goal, method and dimension.
        config: the settings.
        device: where.
        graph: whether to record an update in a CUDA graph, on a GPU.
        draws: the random numbers; those of the device if left out.

    Example:
        >>> config = MIControlConfig(steps=2, last=1, batch_size=16, hidden=4, high=2.0)
        >>> cells = [Cell("correct", f"minimise-cubic-{c}-3", "js", 0) for c in ("shared", "pairs")]
        >>> simulate(cells, config).nats.shape
        torch.Size([2, 2])
    """
    start = time.perf_counter()
    order = sorted(range(len(cells)), key=lambda i: Task.of(cells[i].task).family)
    torch.manual_seed(cells[order[0]].seed)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")  # no TF32: what is left is small
    try:
        program = Program([cells[i] for i in order], config, device, draws)
        if graph and torch.device(device).type == "cuda":
            _replay(program, config.steps)
        else:
            for _ in range(config.steps):
                program.update()
                if program.done:
                    break
        nats = program.traces()
    finally:
        torch.set_float32_matmul_precision(before)
    ordered = torch.empty_like(nats)
    ordered[order] = nats
    return Traces(ordered, time.perf_counter() - start)


def _replay(program: Program, steps: int) -> None:
    """Take the first steps one by one, then record one and repeat it."""
    device = program.world.raw.device
    with torch.cuda.device(device):
        trial = torch.cuda.Stream()
        trial.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(trial):
            for _ in range(min(TRIALS, steps)):
                program.update()
        torch.cuda.current_stream().wait_stream(trial)
        torch.cuda.synchronize()
        if steps <= TRIALS:
            return
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            program.update()
        for i in range(steps - TRIALS):
            graph.replay()
            if i % QUEUED == 0:
                torch.cuda.synchronize()
                if program.done:
                    break
