"""Run by torchrun: every estimator on a joined batch, against one process with all the samples.

Each process holds its own, unequal part of the samples. Values, losses, statistics and, after
averaging, parameter gradients must be those of one process; input gradients W times those.
"""

import inspect
import sys

import pytest
import torch
import torch.distributed as dist

import mibounds as mb
from mibounds.networks import Standardiser
from mibounds.samples.batches import Batch

X, Y = 3, 2
SIZES = [5, 1, 6]  # samples of each process
FAMILIES = (mb.FullGaussian, mb.LowRankGaussian, mb.StudentT, mb.GaussianMixture, mb.Copula)


def cases():
    """Name of the case, name of the estimator, its options."""
    for name, cls in mb.ESTIMATORS.items():
        yield name, name, {}
        if "negatives" in inspect.signature(cls).parameters:
            yield f"{name}, all", name, {"negatives": "all"}
        if cls.has_conditional:
            options = {"conditional": lambda: mb.Categorical(X, 3, 4), **cls.for_any_y}
            yield f"{name}, labels", name, options
    for q in FAMILIES:
        for name in ("club", "l1out", "doe"):
            yield f"{name}, {q.__name__}", name, {"conditional": lambda q=q: q(X, Y, 4)}
    for name in ("club_sample", "vub", "ba"):
        yield f"{name}, mixture", name, {"conditional": lambda: mb.GaussianMixture(X, Y, 4)}
    yield "vub, learnt marginal", "vub", {"marginal": "learned"}
    yield "tuba, interpolated", "tuba", {"alpha": 0.4}
    yield "infonce, separable", "infonce", {"critic": lambda: mb.SeparableCritic(X, Y, 4)}
    yield "vub, kl", "vub", {"form": "kl"}


def make(name, options):
    torch.manual_seed(1)
    options = {k: v() if callable(v) else v for k, v in options.items()}
    if "conditional" in options or "critic" in options:
        return mb.ESTIMATORS[name](**options).double()
    return mb.ESTIMATORS[name](X, Y, 4, **options).double()


def run(estimator, x, y, group):
    """Two rounds of loss and value; everything that may be compared."""
    x = x.clone().requires_grad_()
    out = {}
    for step in range(2):
        out[f"loss {step}"] = estimator.learning_loss(x, y, group=group)
        draw = {}
        if "seed" in inspect.signature(estimator.forward).parameters:
            draw = {"seed": torch.Generator().manual_seed(step)}
        out[f"value {step}"] = estimator(x, y, group=group, **draw)
    sum(out.values()).backward()
    gradients = {k: p.grad for k, p in estimator.named_parameters() if p.grad is not None}
    return out, gradients, x.grad


def main():
    dist.init_process_group("gloo")
    rank, world, sizes = dist.get_rank(), dist.get_world_size(), SIZES
    g = torch.Generator().manual_seed(0)
    x = torch.randn(sum(sizes), X, generator=g, dtype=torch.float64)
    real = x[:, :Y] + torch.randn(sum(sizes), Y, generator=g, dtype=torch.float64)
    labels = torch.randint(3, (sum(sizes),), generator=g)
    worst = 0.0
    count = 0
    for case, name, options in cases():
        y = labels if "labels" in case else real
        alone, joined = make(name, options), make(name, options)
        want, gradients, x_gradient = run(alone, x, y, None)
        parts = x.split(sizes)[rank], y.split(sizes)[rank]
        got, local, x_local = run(joined, *parts, dist.group.WORLD)
        pairs = [(k, got[k].detach(), want[k].detach()) for k in want]
        assert set(local) == set(gradients), case
        for k, gradient in local.items():
            dist.all_reduce(gradient)
            pairs.append((f"gradient of {k}", gradient / world, gradients[k]))
        pairs.append(("gradient of x", x_local / world, x_gradient.split(sizes)[rank]))
        mine, theirs = joined.state_dict(), alone.state_dict()
        pairs += [(f"state {k}", mine[k].double(), theirs[k].double()) for k in theirs]
        for k, a, b in pairs:
            difference = ((a - b).abs() / (1 + b.abs())).max().item() if a.numel() else 0.0
            assert difference < 1e-10, f"{case}: {k} differs by {difference}"
            worst = max(worst, difference)
        count += 1
    far = torch.cat([torch.full_like(x[:, :1], 0.1), 1e6 + x[:, 1:2]], 1).float()
    standard, own = Standardiser(2), far.split(sizes)[rank]
    standard.observe(own, Batch(len(own), dist.group.WORLD))
    assert standard.variance[0] == 0, "a constant column is not known as such"
    want = far[:, 1].double().var(correction=0)
    assert abs(standard.variance[1] / want - 1) < 0.01, "a large offset spoils the variance"
    n = 2 * (rank > 0)  # nothing on the first process: all of them have to refuse that
    with pytest.raises(ValueError, match="at least 1 sample on every process"):
        mb.CLUB(X, Y).double()(x[:n], real[:n], group=dist.group.WORLD)
    if rank == 0:
        print(f"{count} cases, worst difference {worst:.1e}")
    dist.destroy_process_group()


if __name__ == "__main__":
    sys.exit(main())
