"""What the compiled paths reach on a GPU, against the eager ones and against the memory's speed.

    python benchmarks/gpu.py --out results/bench

CLUB alone: mean, log-variance and y are given, value and gradients of all three are wanted; in the
best case each is read once and each gradient written once, at the measured speed of a copy.
InfoNCE: a step with the concat critic, compiled against eager.
"""

import argparse
import json
import platform
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from measurements import write
from torch import Tensor
from torch.distributions import Independent, Normal

import mibounds as mb


def milliseconds(run: Callable[[], object], repeats: int = 10) -> float:
    """Best time of a call on the GPU."""
    for _ in range(3):
        run()
    times = []
    for _ in range(repeats):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        run()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end))
    return min(times)


def club(mean: Tensor, log_variance: Tensor, y: Tensor) -> Tensor:
    """CLUB of a diagonal Gaussian that is given by its parameters."""
    normal = Normal(mean, (0.5 * log_variance).exp(), validate_args=False)
    return mb.club(Independent(normal, 1, validate_args=False), y)


def step(value: Callable[..., Tensor], inputs: list[Tensor]) -> Callable[[], object]:
    """Value and gradients."""
    return lambda: torch.autograd.grad(value(*inputs), inputs)


def club_row(n: int, d: int) -> dict:
    """CLUB alone against a copy."""
    inputs = [torch.randn(n, d, device="cuda", requires_grad=True) for _ in range(3)]
    compiled = torch.compile(club, mode="max-autotune-no-cudagraphs")
    eager_value, value = club(*inputs).item(), compiled(*inputs).item()
    source = torch.empty(2**30 // 4, device="cuda")
    target = torch.empty_like(source)
    copy = milliseconds(lambda: target.copy_(source))
    bandwidth = 2 * source.numel() * 4 / copy * 1e3  # bytes a second, read and written
    del source, target
    ideal = 6 * n * d * 4 / bandwidth * 1e3
    row = {
        "what": "club",
        "n": n,
        "d": d,
        "copy_GB_per_s": bandwidth / 1e9,
        "ideal_ms": ideal,
        "eager_ms": milliseconds(step(club, inputs)),
        "compiled_ms": milliseconds(step(compiled, inputs)),
        "relative_difference": abs(value - eager_value) / abs(eager_value),
    }
    row["times_ideal"] = row["compiled_ms"] / ideal
    return row


def critic_row(n: int, hidden: int, d: int = 20) -> dict:
    """InfoNCE with the concat critic, compiled against eager."""
    torch.manual_seed(0)
    estimator = mb.InfoNCE(d, d, hidden).cuda()
    inputs = [torch.randn(n, d, device="cuda", requires_grad=True) for _ in range(2)]
    parameters = list(estimator.parameters())

    def run() -> tuple[Tensor, ...]:
        return torch.autograd.grad(estimator(*inputs), [*inputs, *parameters])

    row = {"what": "infonce", "n": n, "hidden": hidden}
    value, gradients = estimator(*inputs).item(), run()
    torch.cuda.reset_peak_memory_stats()
    row["eager_ms"] = milliseconds(run, 3)
    row["eager_GiB"] = torch.cuda.max_memory_allocated() / 2**30
    estimator.compile()
    row["relative_difference"] = abs(estimator(*inputs).item() - value) / abs(value)
    row["gradient_difference"] = max(
        ((a - b).norm() / (b.norm() + 1e-12)).item()
        for a, b in zip(run()[:3], gradients[:3], strict=True)
    )
    torch.cuda.reset_peak_memory_stats()
    row["compiled_ms"] = milliseconds(run, 3)
    row["compiled_GiB"] = torch.cuda.max_memory_allocated() / 2**30
    row["ratio"] = row["eager_ms"] / row["compiled_ms"]
    return row


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("results/bench"))
    args = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("benchmarks/gpu.py needs a CUDA device, and there is none here.")
    result = {
        "command": "python benchmarks/gpu.py",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name(),
        "rows": [club_row(2**20, 64), critic_row(1024, 64), critic_row(8192, 256)],
    }
    write(args.out / "gpu.json", result)
    print(json.dumps(result["rows"], indent=1))


if __name__ == "__main__":
    main()
