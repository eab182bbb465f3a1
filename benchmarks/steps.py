"""Time and memory of one step of each estimator, against the equation as it is written.

    python benchmarks/steps.py --device cpu
    python benchmarks/steps.py --device cuda

A step is the value and its gradient with respect to x, y and the parameters. "naive" is the same
value through a tensor with an entry for every pair and dimension (conditionals) or every pair and
hidden unit (critics), as the published code has it. What is compared is timed in turns in one run;
the ratio is what counts, for machines differ. On the CPU one thread works, and times are the CPU
time of the process, which other work on the machine disturbs less than the time on the wall.

Peak memory is that of a process which takes the one step: forked from one that has imported all
that is needed, it takes a step with few samples (torch loads some of its parts only then), makes
the inputs, and counts how far the step lifts the peak of its resident memory (VmHWM) above what it
was. On a GPU it is what torch has allocated.

The C library gives the memory of large tensors back to the system at once and asks for it anew,
which the system answers page by page. That is part of the times, of the naive form and of CLUB from
N = 2^19 on; "kept" has CLUB in a process that was told to keep its memory.

Results go to results/bench/steps_DEVICE.json and .svg. A run that was interrupted goes on
where it ended. Where a step would take too long or too much memory, the row says so.
"""

import argparse
import copy
import ctypes
import itertools
import json
import math
import os
import platform
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from measurements import KeptRows, find, in_child, resident_mib, summary, time_in_turns
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeElapsedColumn
from rich.table import Table
from torch import Tensor
from torch.nn import functional as F

import mibounds as mb
from mibounds.files import replacing

DIM, HIDDEN = 20, 64
LINEAR = tuple(name for name, cls in mb.ESTIMATORS.items() if cls.linear)  # so measured further
CONDITIONAL = tuple(name for name, cls in mb.ESTIMATORS.items() if cls.has_conditional)
# those with a naive form in `naive_value`
PAIRS = ("club", "l1out", "dv", "mine", "nwj", "infonce", "tuba", "js", "smile", "flo")
# What the goals below need is measured however long it takes.
REQUIRED_NAIVE = {("club", 4096), ("l1out", 4096)}
REQUIRED_MEMORY = [("l1out", 32768, HIDDEN), ("infonce", 8192, 256)]
COMPILED = ("infonce", "nwj")
GIB = 2**30
Row = dict[str, Any]


# --- the equations as they are written -----------------------------------------------------------


def naive_value(name: str, estimator: Any, x: Tensor, y: Tensor) -> Tensor:
    """The value by way of every pair, one by one."""
    n = len(x)
    own = torch.eye(n, dtype=torch.bool, device=x.device)
    if name == "club":  # as published; others than the own one make the factor
        q = estimator.conditional(x)
        mean, variance = q.mean, q.variance
        positive = -((y - mean) ** 2) / 2 / variance
        negative = -((y[None] - mean[:, None]) ** 2).mean(1) / 2 / variance
        return (positive - negative).sum(-1).mean() * n / (n - 1)
    if name == "l1out":
        q = estimator.conditional(x)
        mean, variance = q.mean[:, None], q.variance[:, None]
        square = ((y[None] - mean) ** 2 / variance).sum(-1)
        s = -0.5 * (square + (2 * math.pi * variance).log().sum(-1))
        return (s.diagonal() - s.masked_fill(own, -math.inf).logsumexp(0)).mean() + math.log(n - 1)
    s = naive_scores(estimator.critic, x, y)
    if name == "infonce":
        return (s.diagonal() - s.logsumexp(1)).mean() + math.log(n)
    if name == "flo":
        u = estimator.potential(x, y)
        contrast = (s - s.diagonal()[:, None]).exp().masked_fill(own, 0.0).sum(1) / (n - 1)
        return (1 - u - (-u).exp() * contrast).mean()
    if name in ("nwj", "tuba", "js"):
        baseline = {
            "nwj": lambda: torch.ones(n, device=x.device),
            "tuba": lambda: estimator.log_baseline(y),
            "js": lambda: torch.zeros(n, device=x.device),
        }[name]()
        ratio = s - baseline
        return 1 + ratio.diagonal().mean() - ratio.exp().masked_fill(own, 0.0).sum() / n / (n - 1)
    clipped = s.clamp(-estimator.clip, estimator.clip) if name == "smile" else s
    others = clipped.masked_fill(own, -math.inf).flatten().logsumexp(0)
    return s.diagonal().mean() - others + math.log(n * (n - 1))


def naive_scores(critic: Any, x: Tensor, y: Tensor) -> Tensor:
    """[i, j] = f(x_i, y_j), the perceptron applied to N² pairs side by side, as published."""
    n = len(x)
    x, y = critic.x_standard(x), critic.y_standard(y)
    pairs = torch.cat([x[:, None].expand(-1, n, -1), y[None].expand(n, -1, -1)], -1)
    weight = torch.cat([critic.x_layer.weight, critic.y_layer.weight], 1)
    return critic.head(F.linear(pairs, weight, critic.x_layer.bias).relu()).squeeze(-1)


def naive_gib(name: str, n: int) -> float:
    """About what the naive form needs; the factors were measured."""
    numbers = 6 * DIM if name in CONDITIONAL else 4 * DIM + 2.5 * HIDDEN
    return 4 * numbers * n**2 / GIB


# --- one step ------------------------------------------------------------------------------------


class Case:
    """An estimator and its inputs.

    Args:
        name: of the estimator.
        n: samples.
        device: "cpu" or "cuda".
        hidden: hidden units.
    """

    def __init__(self, name: str, n: int, device: str, hidden: int = HIDDEN):
        torch.manual_seed(0)
        self.name, self.device = name, device
        self.estimator = mb.ESTIMATORS[name](DIM, DIM, hidden).to(device)
        self.x, self.y = (torch.randn(n, DIM, device=device, requires_grad=True) for _ in range(2))

    def value(self, form: str = "fast") -> Tensor:
        """The value in nats, differentiable."""
        if form == "naive":
            return naive_value(self.name, self.estimator, self.x, self.y)
        return self.estimator(self.x, self.y)

    def step(self, form: str = "fast") -> None:
        """Value and gradients."""
        inputs = [self.x, self.y, *self.estimator.parameters()]
        torch.autograd.grad(self.value(form), inputs, allow_unused=True)
        if self.device == "cuda":
            torch.cuda.synchronize()

    def compiled(self) -> "Case":
        """The same with compiled scoring, ready to run."""
        other = copy.copy(self)
        other.estimator = copy.deepcopy(self.estimator)
        other.estimator.compile()
        for _ in range(3):
            other.step()
        return other


def peak_on_cpu(name: str, n: int, hidden: int, form: str) -> Row:
    """Memory of a step, to be run in a process of its own."""
    torch.set_num_threads(1)
    Case(name, 160, "cpu", hidden).step()  # enough for more than one tile
    Case(name, 32, "cpu", hidden).step(form)
    case = Case(name, n, "cpu", hidden)
    before, start = resident_mib(), time.perf_counter()
    case.step(form)
    seconds, after = time.perf_counter() - start, resident_mib()
    if before is None or after is None:
        return {"skipped": "this system does not tell the peak of resident memory"}
    return {
        "MiB": round(after - before, 2),
        "process_MiB": round(after, 2),
        "seconds": round(seconds, 3),
    }


def peak_on_gpu(name: str, n: int, hidden: int, form: str) -> Row:
    """Memory of a step, of what torch allocates on the GPU."""
    case = Case(name, n, "cuda", hidden)
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before, start = torch.cuda.memory_allocated(), time.perf_counter()
    case.step(form)
    return {
        "MiB": round((torch.cuda.max_memory_allocated() - before) / 2**20, 2),
        "process_MiB": round(torch.cuda.max_memory_allocated() / 2**20, 2),
        "seconds": round(time.perf_counter() - start, 3),
    }


# --- what to measure -----------------------------------------------------------------------------


def sizes_of(name: str, quick: bool) -> list[int]:
    """Numbers of samples, doubling."""
    last = 7 if quick else 20 if name in LINEAR else 16
    return [2**k for k in range(5, last + 1)]


def predicted_seconds(rows: list[Row], n: int, key: str) -> float:
    """From the two sizes before, as a power that is at least linear and at most cubic; else 0."""
    done = [(row["n"], row[key] / 1e3) for row in rows if row.get(key)][-2:]
    if len(done) < 2:
        return 0.0
    (n0, t0), (n1, t1) = done
    power = min(max(math.log(t1 / t0) / math.log(n1 / n0), 1.0), 3.0)
    return t1 * (n / n1) ** power


def time_row(name: str, n: int, before: list[Row], args: argparse.Namespace) -> Row:
    """Time of a step, and of the naive one beside it."""
    row: Row = {"method": name, "n": n, "ms": None, "naive_ms": None}
    required = (name, n) in REQUIRED_NAIVE and not args.quick
    seconds = predicted_seconds(before, n, "ms")
    if seconds > args.limit and name != "club":
        return row | {"skipped": f"predicted {seconds:.0f} s"}
    case = Case(name, n, args.device)
    calls: dict[str, Callable[[], object]] = {"fast": case.step}
    naive_seconds = predicted_seconds(before, n, "naive_ms")
    if name not in PAIRS:
        row["naive_skipped"] = "linear as it is written" if name in LINEAR else "not written here"
    elif naive_gib(name, n) > args.memory:
        row["naive_skipped"] = f"predicted {naive_gib(name, n):.0f} GiB"
    elif naive_seconds > args.limit and not required:
        row["naive_skipped"] = f"predicted {naive_seconds:.0f} s"
    else:
        calls["naive"] = lambda: case.step("naive")
    patience = math.inf if required else 2.0
    times = time_in_turns(calls, args.seconds, patience=patience, clock=args.clock)
    row |= summary(times["fast"])
    if "naive" in times:
        row |= summary(times["naive"], "naive_")
        row["ratio"] = round(row["naive_ms"] / row["ms"], 3)
        if n <= 1024:  # the same value?
            row["difference_nats"] = abs(case.value("naive").item() - case.value().item())
    return row


def compiled_row(name: str, n: int, args: argparse.Namespace) -> Row:
    """Naive, plain and compiled in turns."""
    row: Row = {"method": name, "n": n}
    case = Case(name, n, args.device)
    try:
        compiled = case.compiled()
    except Exception as error:  # no compiler on this machine
        return row | {"skipped": f"cannot compile: {type(error).__name__}"}
    calls = {"": case.step, "naive_": lambda: case.step("naive"), "compiled_": compiled.step}
    times = time_in_turns(calls, 3 * args.seconds, 5, math.inf, clock=args.clock)
    for prefix, values in times.items():
        row |= summary(values, prefix)
    row["ratio"] = round(row["naive_ms"] / row["ms"], 3)
    row["compiled_ratio"] = round(row["naive_ms"] / row["compiled_ms"], 3)
    return row


def sampled_row(n: int, args: argparse.Namespace) -> Row:
    """Exact against sampled CLUB in turns."""
    names = {"exact_": "club", "sampled_": "club_sample"}
    calls = {prefix: Case(name, n, args.device).step for prefix, name in names.items()}
    times = time_in_turns(calls, 4 * args.seconds, 12, math.inf, clock=args.clock)
    row: Row = {"n": n}
    for prefix, values in times.items():
        row |= summary(values, prefix)
    row["ratio"] = round(row["exact_ms"] / row["sampled_ms"], 3)
    return row


def kept_row(n: int, seconds: float) -> Row:
    """CLUB without the cost of asking for memory again and again, in a process of its own."""
    torch.set_num_threads(1)
    row: Row = {"method": "club", "n": n}
    try:
        change = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return row | {"skipped": "no mallopt in the C library"}
    m_trim_threshold, m_mmap_max = -1, -4
    change(m_mmap_max, 0)
    change(m_trim_threshold, 2**31 - 1)
    case = Case("club", n, "cpu")
    calls: dict[str, Callable[[], object]] = {"": case.step}
    if ("club", n) in REQUIRED_NAIVE:
        case.step("naive")  # the memory has to come from somewhere
        calls["naive_"] = lambda: case.step("naive")
    for prefix, values in time_in_turns(calls, seconds, patience=math.inf).items():
        row |= summary(values, prefix)
    if "naive_ms" in row:
        row["ratio"] = round(row["naive_ms"] / row["ms"], 3)
    return row


def memory_cells(record: KeptRows, quick: bool) -> list[tuple[str, int, int, str]]:
    """Estimator, size, hidden units and form: sizes by fours, as far as a step was timed."""
    cells = []
    for name in ("club", "infonce") if quick else mb.ESTIMATORS:
        for row in record.rows("steps"):
            n = row["n"]
            wanted = [128] if quick else [4**k for k in range(4 + (name not in PAIRS), 11)]
            if row["method"] == name and n in wanted:
                cells += [
                    (name, n, HIDDEN, form)
                    for form, key in (("fast", "ms"), ("naive", "naive_ms"))
                    if row[key] is not None
                ]
    if not quick:
        cells += [(*cell, "fast") for cell in REQUIRED_MEMORY]
    return cells


def measure(record: KeptRows, args: argparse.Namespace) -> Iterator[tuple[str, int]]:
    """Measure all that is not there yet; yields what comes next and how many cells are to come."""
    steps = [(name, n) for name in mb.ESTIMATORS for n in sizes_of(name, args.quick)]
    compiled = [] if args.quick else [(name, 1024) for name in COMPILED]
    sampled = [2**k for k in (range(9, 11) if args.quick else range(9, 17))]
    kept = [] if args.quick or args.device == "cuda" else [2**12, *(2**k for k in range(14, 21))]
    left = len(steps) + len(compiled) + len(sampled) + len(kept)
    for name in ("club", "infonce"):  # whatever is made ready at the first use
        Case(name, 32, args.device).step()
    for name, n in steps:
        yield f"{name}, N = {n}", left
        left -= 1
        if not record.find("steps", method=name, n=n):
            before = [row for row in record.rows("steps") if row["method"] == name]
            record.add("steps", time_row(name, n, before, args))
    for name, n in compiled:
        yield f"{name} compiled, N = {n}", left
        left -= 1
        if not record.find("compiled", method=name, n=n):
            record.add("compiled", compiled_row(name, n, args))
    for n in sampled:
        yield f"club against club_sample, N = {n}", left
        left -= 1
        if not record.find("sampled", n=n):
            record.add("sampled", sampled_row(n, args))
    for n in kept:
        yield f"club, memory kept, N = {n}", left
        left -= 1
        if not record.find("kept", n=n):
            record.add("kept", in_child(kept_row, n, args.seconds))
    cells = memory_cells(record, args.quick)
    for done, (name, n, hidden, form) in enumerate(cells):
        yield f"memory of {name}, {form}, N = {n}", len(cells) - done
        key = {"method": name, "n": n, "hidden": hidden, "form": form}
        if not record.find("memory", **key):
            if args.device == "cuda":
                row = peak_on_gpu(name, n, hidden, form)
            else:
                row = in_child(peak_on_cpu, name, n, hidden, form)
            record.add("memory", key | row)


# --- what the rows say ---------------------------------------------------------------------------


def exponents(result: Row) -> list[Row]:
    """Growth of time and memory as a power of N: a straight line through the logarithms.

    Time: from 2^14 on for what is linear, the four largest sizes for the rest. Memory: the same,
    without what is below 8 MiB, where the allocator decides.
    """
    fits: list[Row] = []
    for name, (form, key) in itertools.product(
        mb.ESTIMATORS, (("fast", "ms"), ("naive", "naive_ms"))
    ):
        least, last = (2**14, 99) if name in LINEAR and form == "fast" else (0, 4)
        rows = [row for row in result["rows"] if row["method"] == name]
        points = [(row["n"], row[key]) for row in rows if row[key] and row["n"] >= least]
        fits += _fit({"method": name, "form": form, "what": "time"}, points[-last:])
        kept = [
            (row["n"], row["MiB"])
            for row in result["memory"]
            if (row["method"], row["form"], row["hidden"]) == (name, form, HIDDEN)
            and row.get("MiB", 0) >= 8
        ]
        fits += _fit({"method": name, "form": form, "what": "memory"}, sorted(kept)[-last:])
    kept = [(row["n"], row["ms"]) for row in result["kept"] if row["n"] >= 2**14 and "ms" in row]
    return fits + _fit({"method": "club", "form": "kept", "what": "time"}, kept)


def _fit(key: Row, points: list[tuple[int, float]]) -> list[Row]:
    if len(points) < 3:
        return []
    x, y = ([math.log(value) for value in values] for values in zip(*points, strict=True))
    x_mean, y_mean = sum(x) / len(x), sum(y) / len(y)
    slope = sum((a - x_mean) * (b - y_mean) for a, b in zip(x, y, strict=True)) / sum(
        (a - x_mean) ** 2 for a in x
    )
    span = {"from": points[0][0], "to": points[-1][0], "points": len(points)}
    return [key | span | {"exponent": round(slope, 3)}]


def acceptance(result: Row) -> list[Row]:
    """The goals, and whether the rows reach them; None where they were not measured.

    The goals were set for one core of a CPU. On a GPU, where small steps wait for the launch of
    kernels, those that compare times are given without a goal. Nor is there one for the lines
    with memory kept: these tell how much of a time was spent on asking for memory.
    """
    on_cpu = result["device_type"] == "cpu"

    def entry(
        what: str, sign: str, goal: float | None, unit: str, measured: Any, both: bool = False
    ) -> Row:
        holds, text = None, None
        if goal is not None and (on_cpu or both):
            text = f"{sign} {goal:g} {unit}".strip()
            if measured is not None:
                holds = measured >= goal if sign == ">=" else measured <= goal
        return {"what": what, "goal": text, "measured": measured, "unit": unit, "holds": holds}

    def look(section: str, key: str, **where: Any) -> Any:
        return (find(result[section], **where) or {}).get(key)

    def gib(name: str, n: int, hidden: int) -> float | None:
        mib = look("memory", "MiB", method=name, n=n, hidden=hidden, form="fast")
        return None if mib is None else round(mib / 1024, 4)

    def ratio(section: str, name: str) -> Any:
        return look(section, "ratio", method=name, n=4096)

    def exponent(form: str) -> Any:
        span = {"from": 2**14, "to": 2**20}
        return look("exponents", "exponent", method="club", form=form, what="time", **span)

    entries = [
        entry("CLUB, N = 4096: naive over exact", ">=", 1000, "x", ratio("rows", "club")),
        entry("the same, memory kept", ">=", None, "x", ratio("kept", "club")),
        entry("CLUB, N = 2^14 ... 2^20: exponent of time", "<=", 1.2, "", exponent("fast"), True),
        entry("the same, memory kept", "<=", None, "", exponent("kept")),
        entry("L1Out, N = 4096: naive over tiled", ">=", 10, "x", ratio("rows", "l1out")),
        entry("L1Out, N = 32768: peak memory", "<=", 2, "GiB", gib("l1out", 32768, HIDDEN), True),
    ]
    for name in COMPILED:
        label = mb.ESTIMATORS[name].__name__
        for what, key, goal in (("plain", "ratio", 6), ("compiled", "compiled_ratio", 15)):
            measured = look("compiled", key, method=name, n=1024)
            entries.append(
                entry(f"{label}, N = 1024: naive over {what}", ">=", goal, "x", measured)
            )
    largest = max((row["ratio"] for row in result["sampled"]), default=None)
    return [
        *entries,
        entry("InfoNCE, N = 8192, hidden 256: peak memory", "<=", 2, "GiB",
              gib("infonce", 8192, 256), True),
        entry("exact over sampled CLUB, N >= 512: largest ratio", "<=", 1.2, "x", largest),
    ]  # fmt: skip


def table(entries: list[Row]) -> Table:
    """The goals for a reader."""
    shown = Table(title="goals")
    for column in ("what", "goal", "measured", "holds"):
        shown.add_column(column)
    for row in entries:
        value, unit = row["measured"], row["unit"]
        measured = "not measured" if value is None else f"{value:.4g} {unit}"
        holds = {True: "yes", False: "NO", None: "-"}[row["holds"]]
        shown.add_row(row["what"], row["goal"] or "-", measured, holds)
    return shown


def draw(result: Row, path: Path, rival: Row | None) -> None:
    """Time and memory against N, the naive form dashed."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "mibounds"
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(2, 2, figsize=(11, 8), sharex=True, sharey="row")
    kinds = {
        "with a conditional q(y|x)": CONDITIONAL,
        "with a critic f(x, y)": tuple(n for n in mb.ESTIMATORS if n not in CONDITIONAL),
    }
    rivals = rival["rows"] if rival else []
    for column, (title, names) in enumerate(kinds.items()):
        for index, name in enumerate(names):
            look = {"color": f"C{index}", "lw": 1.5, "markersize": 3.5}
            rows = [row for row in result["rows"] if row["method"] == name]
            peaks = [r for r in result["memory"] if r["method"] == name and r["hidden"] == HIDDEN]
            for ax, points, style in (
                (axes[0, column], [(r["n"], r["ms"]) for r in rows], "o-"),
                (axes[0, column], [(r["n"], r["naive_ms"]) for r in rows], "o--"),
                (axes[0, column], [(r["n"], r["torch_mist_ms"]) for r in rivals
                                   if r["method"] == name and r.get("torch_mist_ms")], "x:"),
                (axes[1, column], [(r["n"], r.get("MiB")) for r in peaks
                                   if r["form"] == "fast"], "o-"),
                (axes[1, column], [(r["n"], r.get("MiB")) for r in peaks
                                   if r["form"] == "naive"], "o--"),
            ):  # fmt: skip
                shown = sorted((n, value) for n, value in points if value)
                if shown:
                    label = name if style == "o-" else None
                    ax.plot(*zip(*shown, strict=True), style, label=label, **look)
        axes[0, column].set_title(title)
        for style, label in (("--", "naive"), (":", "torch-mist")):
            if label == "naive" or any(row["method"] in names for row in rivals):
                axes[0, column].plot([], [], style, color="0.4", label=label)
        axes[0, column].legend(ncols=2, fontsize=9, loc="lower right")
        axes[1, column].set_xlabel("samples N")
    axes[0, 0].set_ylabel("milliseconds a step")
    axes[1, 0].set_ylabel("peak memory of a step, MiB")
    for ax in axes.flat:
        ax.set_xscale("log", base=2)
        ax.set_yscale("log")
        ax.grid(alpha=0.3)
        ax.autoscale_view()
    for row, bottom in zip(axes, (0.1, 1.0), strict=True):  # room for the legend; no noise
        row[0].set_ylim(bottom=bottom)
    figure.suptitle(
        f"One step (value and gradients), d = {DIM}, hidden {HIDDEN}: {result['device']}"
    )
    figure.tight_layout()
    with replacing(path) as part:
        figure.savefig(part, metadata={"Date": None})
    plt.close(figure)


def processor() -> str:
    """The name of the CPU."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.machine()


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--limit", type=float, default=10, help="most seconds a step may take")
    parser.add_argument("--memory", type=float, default=8, help="most GiB the naive form may take")
    parser.add_argument("--seconds", type=float, default=0.3, help="for each measurement")
    parser.add_argument("--quick", action="store_true", help="a few small sizes, as a check")
    parser.add_argument("--out", type=Path, default=Path("results/bench"))
    args = parser.parse_args()
    args.seconds = 0.01 if args.quick else args.seconds
    command = f"python benchmarks/steps.py --device {args.device}"
    for name in ("limit", "memory", "seconds"):
        if not args.quick and getattr(args, name) != parser.get_default(name):
            command += f" --{name} {getattr(args, name):g}"
    command += " --quick" * args.quick
    if args.device == "cuda" and not torch.cuda.is_available():
        sys.exit("--device cuda needs a CUDA device, and there is none here.")
    os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"  # of the children
    torch.set_num_threads(1)
    on_cpu = args.device == "cpu"
    args.clock = time.process_time if on_cpu else time.perf_counter
    settings = {
        "command": command,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "mibounds": mb.__version__,
        "device_type": args.device,
        "device": f"{processor()}, 1 thread" if on_cpu else torch.cuda.get_device_name(),
        "dim": DIM,
        "hidden": HIDDEN,
    }
    path = args.out / f"steps_{args.device}.json"
    record = KeptRows(path, settings)
    columns = ("{task.description}", BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    try:
        with Progress(*columns, console=Console(stderr=True)) as progress:
            task, done = progress.add_task("", total=None), -1
            for done, (what, left) in enumerate(measure(record, args)):
                progress.update(task, description=what, completed=done, total=done + left)
            progress.update(task, description="done", completed=done + 1)
    except KeyboardInterrupt:
        sys.exit("interrupted; the same command goes on from here")
    result = settings | {
        "measures": {
            "ms": "median of a step, "
            + ("CPU time of the process" if on_cpu else "time on the wall, synchronised"),
            "MiB": "peak above what there was before the step, "
            + ("resident memory of its own process" if on_cpu else "allocated by torch"),
            "process_MiB": "the peak itself",
            "difference_nats": "between naive and fast value",
        },
        "seconds": record.seconds,
        "load": [round(load, 2) for load in os.getloadavg()],
        "rows": record.rows("steps"),
        "compiled": record.rows("compiled"),
        "sampled": record.rows("sampled"),
        "kept": record.rows("kept"),
        "memory": record.rows("memory"),
    }
    result["exponents"] = exponents(result)
    result["acceptance"] = acceptance(result)
    rival = None
    with suppress(OSError):
        rival = json.loads((args.out / "torch_mist.json").read_text()) if on_cpu else None
    draw(result, path.with_suffix(".svg"), rival)
    record.finish(result)
    Console().print(table(result["acceptance"]))
    print(f"rows: {path.name}, figure: {path.stem}.svg")


if __name__ == "__main__":
    main()
