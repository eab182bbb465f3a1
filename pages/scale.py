"""The numbers of large batches and many estimators."""

from __future__ import annotations

from typing import Any

from pages.results import read
from pages.texts import table


def _bench(name: str) -> Any:
    return read(f"bench/{name}.json")


def speedup() -> float:
    """How much faster all-pairs CLUB is than the equation as written, at N = 4096."""
    (found,) = (
        row["measured"]
        for row in _bench("steps_cpu")["acceptance"]
        if row["what"].startswith("CLUB, N = 4096")
    )
    return found


def steps() -> str:
    """Steps on one core against the equation as written."""
    return table(
        ["what", "measured"],
        [
            [row["what"], f"{row['measured']:.{_digits(row)}g} {row['unit']}".strip()]
            for row in _bench("steps_cpu")["acceptance"]
            if row["what"] != "the same, memory kept"
        ],
    )


def _digits(row: dict[str, Any]) -> int:
    return 4 if row["measured"] > 1e3 else 3


def others() -> str:
    """What other commands measure."""
    (rival,) = (
        row["ratio"]
        for row in _bench("torch_mist")["rows"]
        if (row["method"], row["n"]) == ("club", 2048)
    )
    large = _bench("streaming")
    club, infonce = (
        next(row for row in _bench("gpu")["rows"] if (row["what"], row["n"]) == key)
        for key in (("club", 2**20), ("infonce", 8192))
    )
    cpu, cuda = (_bench(f"ensembles_{name}")["acceptance"][0] for name in ("cpu", "gpu"))
    return table(
        ["what", "measured", "command, results"],
        [
            [
                "a step of CLUB at N = 2048 in torch-mist over ours",
                f"{rival:.0f} x",
                "`benchmarks/rivals.py`, in an environment of its own; `torch_mist.json`",
            ],
            [
                f"CLUB of {large['rows'] / 1e6:.0f} million rows, {large['data_MB']:.0f} MB on "
                "disk: peak memory, seconds",
                f"{large['streaming']['peak_MB']:.0f} MB, {large['streaming']['seconds']:.1f} s",
                "`benchmarks/streaming.py`; `streaming.json`",
            ],
            [
                "its relative difference to the value in memory",
                f"{large['relative_difference']:.1e}",
                "",
            ],
            [
                "CLUB of 2^20 rows on an H200: over a copy of the data",
                f"{club['times_ideal']:.1f} x",
                "`benchmarks/gpu.py`; `gpu.json`",
            ],
            [
                f"InfoNCE, N = {infonce['n']}, hidden {infonce['hidden']}, on an H200: eager over "
                "Triton",
                f"{infonce['ratio']:.1f} x",
                "",
            ],
            [
                "64 fits at once over one by one, batches of 64, one core: the least of all "
                "conditionals",
                f"{cpu['measured']:.1f} x",
                "`benchmarks/ensembles.py --device cpu`; `ensembles_cpu.json`",
            ],
            [
                "the same on an H200: the least of all estimators",
                f"{cuda['measured']:.0f} x",
                "`benchmarks/ensembles.py --device cuda`; `ensembles_gpu.json`",
            ],
        ],
    )
