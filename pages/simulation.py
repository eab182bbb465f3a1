"""The numbers of the simulation study."""

from __future__ import annotations

from pages.results import read, section, summary
from pages.texts import table

SHOWN = "gaussian-2", "gaussian-10", "cubic-2", "cubic-10"
BEST = "doe_copula"


def errors() -> str:
    """Mean squared errors of the paper's methods and of the best one here, as published and not."""
    found = summary("estimation-quality")
    methods = {m for (_, m, _, metric), each in found.items() if metric == "mse" and each.paper}
    rows = {}
    for mode, method, task, metric in found:
        if metric == "mse" and task == SHOWN[0] and method in methods | {BEST}:
            cells = [found[mode, method, each, "mse"] for each in SHOWN]
            rows[method, mode] = [
                f"{c.mean:.2f}" + (f" ({c.paper:g})" if mode == "as-published" else "")
                for c in cells
            ]
    order = list(dict.fromkeys(method for method, _ in rows))
    return table(
        ["method", "mode", *SHOWN],
        [[*key, *rows[key]] for key in sorted(rows, key=lambda key: (order.index(key[0]), key[1]))],
    )


def floors() -> str:
    """The best estimator here against what is possible at all."""
    return section("estimation-quality/table.md", f"{BEST} against the floor")


def against_paper() -> str:
    """The same for the README, beside the best of the paper."""
    rows = [line.strip("| ").split(" | ") for line in floors().splitlines()]
    return table(
        ["task", "paper, best of seven", "here", "floor"],
        [
            [task, paper, f"{float(mse):.2f}", f"{float(floor):.2f}"]
            for task, mse, floor, _, paper in (row for row in rows if row[0] in SHOWN)
        ],
    )


def seeds() -> int:
    """How many there are of every cell."""
    (count,) = {each.seeds for each in summary("estimation-quality").values()}
    return count


def seeds_at_once() -> str:
    """How much faster all seeds are at once than one after the other."""
    modes = "as-published", "correct"
    found: dict[str, dict[str, str]] = {}
    for row in read("bench/seeds_cpu.json")["rows"]:
        found.setdefault(row["method"], {})[row["mode"]] = f"{row['ratio']:.1f} x"
    return table(
        ["method", *modes],
        [[method, *(own.get(mode, "") for mode in modes)] for method, own in found.items()],
    )
