"""Run by torchrun: a penalty in a DistributedDataParallel loop, against one process with all rows.

Every process starts with a different q, which must make no difference.
"""

import sys
import warnings

import torch

# Imported before there is a group: else it holds the group and the exit may abort (pytorch 190489).
import torch._dynamo
import torch.distributed as dist
from penalties import EVERY
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import mibounds as mb

V, Z, S, N = 5, 3, 2, 8
SPREAD = ("vub",)


def samples(step):
    g = torch.Generator().manual_seed(step)
    v = torch.randn(2 * N, V, generator=g, dtype=torch.float64)
    return v, v[:, :S] + torch.randn(2 * N, S, generator=g, dtype=torch.float64)


def make(name, seed):
    torch.manual_seed(0)
    net = nn.Linear(V, Z).double()
    torch.manual_seed(seed)
    if name == "default":
        penalty = mb.MIPenalty(mb.Ratio(Z, S, (8, 8)), clip=1.0)
    else:
        # Noise belongs to a place in the joined batch, and a replay changes the order of its rows.
        noise = {"spread": 0.1} if name in SPREAD else {"spread": None, "replay": 1, "average": 0.5}
        penalty = mb.MIPenalty(mb.ESTIMATORS[name](Z, S, 8), clip=1.0, **noise)
    return net, penalty.double()


def train(net, penalty, rows, group):
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    values = []
    for step in range(5):
        v, s = (part[rows] for part in samples(step))
        z = net(v)
        value = penalty(z, s, group=group)
        optimizer.zero_grad()
        (z.square().mean() + value).backward()
        optimizer.step()
        values.append(value.detach())
    return torch.stack(values)


def compare(name, rank):
    """The largest difference; on return nothing holds the group any more, so that it can end."""
    one, alone = make(name, seed=0)
    want = train(one, alone, slice(None), None)
    net, penalty = make(name, seed=rank)
    rows = slice(rank * N, (rank + 1) * N)
    got = train(DistributedDataParallel(net), penalty, rows, dist.group.WORLD)
    pairs = [(got, want), *zip(net.parameters(), one.parameters(), strict=True)]
    pairs += zip(penalty.parameters(), alone.parameters(), strict=True)
    worst = max(((a - b).abs() / (1 + b.abs())).max().item() for a, b in pairs)
    assert worst < 1e-8, f"{name} differs by {worst}"
    return worst


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    warnings.simplefilter("ignore", mb.PenaltyWarning)
    worst = max(compare(name, rank) for name in EVERY)
    if rank == 0:
        print(f"worst difference {worst:.1e}")
    dist.destroy_process_group()


if __name__ == "__main__":
    sys.exit(main())
