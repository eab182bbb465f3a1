"""The penalty on a batch that is spread over processes, with gradient accumulation.

    torchrun --nproc-per-node 2 examples/minimise_ddp.py    # or plain python, for one process
    torchrun --nproc-per-node 2 examples/minimise_ddp.py --accelerate

The task of `minimise.py`: a measurement v mixes a wanted signal a with a nuisance s, and z = W v
is to tell a and to share nothing with s. ``group=`` joins the batches of all processes in the
penalty, so that any number of them takes the steps of one process, and what the penalty learns is
the same in each. NCCL on GPUs, gloo without. In single precision Adam lets rounding grow over some
hundred steps; --double shows that there is no other difference.
"""

import argparse
import copy
import json
import os
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import torch

# Any optimiser imports this at its first step. If a process group exists by then, it is held for
# ever, its threads outlive destroy_process_group, and the exit may abort (pytorch issue 190489).
import torch._dynamo
import torch.distributed as dist
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from torch.nn.functional import mse_loss
from torch.nn.parallel import DistributedDataParallel

import mibounds as mb

A, S, V, Z, NOISE = 4, 3, 16, 8, 0.5
BATCH, PARTS = 256, 2  # samples of a step over all processes, and the parts that they come in


class Encoder(nn.Module):
    """z, and what it tells of a."""

    def __init__(self):
        super().__init__()
        self.encode, self.tell = nn.Linear(V, Z), nn.Linear(Z, A)

    def forward(self, v: Tensor) -> tuple[Tensor, Tensor]:
        """Both, as the wrapper has to see every use of a parameter."""
        z = self.encode(v)
        return z, self.tell(z)


def sample(n: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Measurements v, with the signals a and the nuisances s in them."""
    mixing = torch.randn(A + S, V, generator=torch.Generator().manual_seed(0)) / (A + S) ** 0.5
    sources = torch.randn(n, A + S, generator=generator)
    v = sources @ mixing + NOISE * torch.randn(n, V, generator=generator)
    return v, sources[:, :A], sources[:, A:]


def batches(steps: int, seed: int, like: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """This process's share of each part of each batch, on the device of the model."""
    rank, processes = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps * PARTS):
        yield tuple(v.chunk(processes)[rank].to(like) for v in sample(BATCH // PARTS, generator))


def train(model: nn.Module, penalty: mb.MIPenalty, args) -> None:
    """With DistributedDataParallel around the model, and nothing around the penalty."""
    group = dist.group.WORLD if dist.is_initialized() else None
    if group is not None:
        model = DistributedDataParallel(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for i, (v, a, s) in enumerate(batches(args.steps, args.seed, next(model.parameters())), 1):
        last = i % PARTS == 0
        # The processes exchange the model's gradients once a step, the samples at every part.
        with nullcontext() if last or group is None else model.no_sync():
            z, told = model(v)
            loss = mse_loss(told, a) + args.weight * penalty(z, s, group=group)
            (loss / PARTS).backward()
        if last:
            optimizer.step()
            optimizer.zero_grad()


def train_accelerate(model: nn.Module, penalty: mb.MIPenalty, accelerator, args) -> None:
    """The same through Accelerate: the penalty is registered, not prepared."""
    group = dist.group.WORLD if dist.is_initialized() else None
    model, optimizer = accelerator.prepare(model, torch.optim.Adam(model.parameters(), lr=1e-3))
    accelerator.register_for_checkpointing(penalty)  # for save_state and load_state
    for v, a, s in batches(args.steps, args.seed, next(model.parameters())):
        with accelerator.accumulate(model):
            z, told = model(v)
            accelerator.backward(mse_loss(told, a) + args.weight * penalty(z, s, group=group))
            optimizer.step()
            optimizer.zero_grad()
    accelerator.free_memory()  # nothing may hold the group when it goes


def look(model: nn.Module, penalty: mb.MIPenalty, seed: int) -> dict[str, float]:
    """What is left, on samples that were not seen."""
    like = next(model.parameters())
    v, a, s = (side.to(like) for side in sample(2000, torch.Generator().manual_seed(seed)))
    with torch.no_grad():
        z, told = model(v)
    audit = penalty.audit(z, s, budget="fast")
    return {"error of a": mse_loss(told, a).item(), "audit": audit.nats}


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--weight", type=float, default=0.1, help="of the penalty, per nat")
    parser.add_argument("--accelerate", action="store_true", help="train through Accelerate")
    parser.add_argument("--double", action="store_true", help="double precision")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="file for the row")
    parser.add_argument("--quick", action="store_true", help="a run of seconds, for a first look")
    args = parser.parse_args()
    if args.quick:
        args.steps = 100
    torch.set_num_threads(1)
    gpu = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0))) if gpu else "cpu"
    if args.accelerate:
        from accelerate import Accelerator

        # Without cpu=True processes on CPUs would silently train models of their own.
        accelerator = Accelerator(cpu=not gpu, gradient_accumulation_steps=PARTS)
    elif "RANK" in os.environ:  # torchrun
        if gpu:
            torch.cuda.set_device(device)
        dist.init_process_group("nccl" if gpu else "gloo")
    torch.manual_seed(args.seed)
    dtype = torch.float64 if args.double else torch.float32
    model = Encoder().to(device, dtype)
    penalty = mb.MIPenalty(Z, S).to(device, dtype)
    encoders = {"as it was": copy.deepcopy(model), "trained": model}
    if args.accelerate:
        train_accelerate(model, penalty, accelerator, args)
    else:
        train(model, penalty, args)
    processes = dist.get_world_size() if dist.is_initialized() else 1
    if dist.is_initialized():
        dist.destroy_process_group()
    if int(os.environ.get("RANK", 0)) == 0:
        rows = [
            {"encoder": name, **look(encoder, penalty, args.seed + 1)}
            for name, encoder in encoders.items()
        ]
        table = Table(*rows[0], title=f"z without s, in nats; processes: {processes}")
        for row in rows:
            table.add_row(*(f"{v:.3f}" if isinstance(v, float) else v for v in row.values()))
        Console().print(table)
        if args.json:
            args.json.write_text(json.dumps(rows, indent=2))


if __name__ == "__main__":
    main()
