"""`lags`, tests, decompositions and entropies where the truth is known in closed form.

    python benchmarks/series.py lags         autoregressive series, ten seeds
    python benchmarks/series.py tests        size and power of the tests under autocorrelation
    python benchmarks/series.py warnings     how often estimate says that rows look like a series
    python benchmarks/series.py parts        redundancy, synergy, total correlation
    python benchmarks/series.py entropies    entropies of labels and of numbers
    python benchmarks/series.py peers        other packages on the same series
    python benchmarks/series.py pictures     the curves of growth and unemployment

All lagged mutual informations and transfer entropies of a Gaussian autoregression follow from its
autocovariances, which solve a Lyapunov equation. Settings were chosen with other seeds and, but for
the autocorrelation 0.9, with other coefficients. Each finished cell is a line of
results/measure/series_NAME.jsonl at once; a second start skips those. `peers` and `pictures` need
an environment of their own:

    python3 -m venv .venv-peers
    .venv-peers/bin/pip install torch==2.13.0 infomeasure tigramite statsmodels scipy pandas rich
    .venv-peers/bin/pip install jaxtyping matplotlib
    PYTHONPATH=src .venv-peers/bin/python benchmarks/series.py peers
"""

from __future__ import annotations

import argparse
import contextlib
import io
import math
import os
import statistics
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from measurements import complete_rows, write

FIRST_SEED = 100_000  # those below chose settings
SIZES = (200, 1000, 5000)
BURN_IN = 1000
MAX_LAG = 8
Place = tuple[int, int]  # column and time


@dataclass(frozen=True)
class Autoregression:
    """z_t = sum_j A_j z_{t-j} + e_t with independent normal noise e.

    Args:
        matrices: A_1, A_2, ...; the first column of z is x, the second y.
        noise: variance of e in each column.
    """

    matrices: tuple[tuple[tuple[float, ...], ...], ...]
    noise: tuple[float, ...] = (1.0, 1.0)

    def covariances(self, most: int) -> np.ndarray:
        """Cov(z_{t+h}, z_t) for h = 0 ... most, from the companion form S = F S F' + Q."""
        d, p = len(self.noise), len(self.matrices)
        f, q = np.zeros((d * p, d * p)), np.zeros((d * p, d * p))
        f[:d] = np.hstack([np.array(a) for a in self.matrices])
        f[d:, :-d] = np.eye(d * (p - 1))
        q[:d, :d] = np.diag(self.noise)
        if np.abs(np.linalg.eigvals(f)).max() >= 1:
            raise ValueError("Expected a stationary series but got another one; shrink it.")
        s = np.linalg.solve(np.eye(f.size) - np.kron(f, f), q.ravel()).reshape(f.shape)
        found = []
        for _ in range(most + 1):
            found.append(s[:d, :d])
            s = f @ s
        return np.array(found)

    def information(self, left: list[Place], right: list[Place], given: list[Place]) -> float:
        """I(left; right | given) of columns at times, in nats."""
        places = left + right + given
        times = [t for _, t in places]
        gamma = self.covariances(max(times) - min(times))

        def log_det(some: list[Place]) -> float:
            if not some:
                return 0.0
            s = [[gamma[a[1] - b[1]][a[0], b[0]] if a[1] >= b[1] else gamma[b[1] - a[1]][b[0], a[0]]
                  for b in some] for a in some]  # fmt: skip
            return float(np.linalg.slogdet(np.array(s))[1])

        terms = log_det(left + given) + log_det(right + given) - log_det(given) - log_det(places)
        return max(0.0, 0.5 * terms)

    def at_lag(self, lag: int, past: int) -> float:
        """What `lags` estimates at a lag."""
        source, target = (0, 1) if lag >= 0 else (1, 0)
        given = [(target, abs(lag) - j) for j in range(1, past + 1)]
        return self.information([(source, 0)], [(target, abs(lag))], given)

    def transfer(self, source: int, own: int, past: int) -> float:
        """The transfer entropy with so many rows of either past."""
        target = 1 - source
        return self.information(
            [(source, -j) for j in range(1, own + 1)],
            [(target, 0)],
            [(target, -j) for j in range(1, past + 1)],
        )

    def sample(self, n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """x and y, after a time in which the start is forgotten."""
        rng = np.random.default_rng(seed)
        z = rng.normal(size=(n + BURN_IN, len(self.noise))) * np.sqrt(self.noise)
        matrices = [np.array(a) for a in self.matrices]
        for t in range(len(matrices), len(z)):
            for j, a in enumerate(matrices):
                z[t] += a @ z[t - j - 1]
        return z[BURN_IN:, 0], z[BURN_IN:, 1]


NONE = ((0.0, 0.0), (0.0, 0.0))
SERIES = {
    "white, x leads by 2": Autoregression((NONE, ((0.0, 0.0), (0.6, 0.0)))),
    "0.6, x leads by 4": Autoregression(
        (((0.6, 0.0), (0.0, 0.6)), NONE, NONE, ((0.0, 0.0), (0.5, 0.0)))
    ),
    "0.9 and 0.5, x leads by 3": Autoregression(
        (((0.9, 0.0), (0.0, 0.5)), NONE, ((0.0, 0.0), (0.4, 0.0)))
    ),
    "0.9, weak, y leads by 2": Autoregression(
        (((0.9, 0.0), (0.0, 0.9)), ((0.0, 0.08), (0.0, 0.0)))
    ),
    "both ways": Autoregression((((0.7, 0.2), (-0.3, 0.6)),)),
    "0.9, independent": Autoregression((((0.9, 0.0), (0.0, 0.9)),)),
}
PEER_SERIES = ("0.6, x leads by 4", "0.9, independent")


# --- lags ----------------------------------------------------------------------------------------


def measure_lags(name: str, n: int, seed: int) -> dict[str, Any]:
    """Values and intervals at all lags, with and without a past, and transfer entropies."""
    import mibounds as mb

    series = SERIES[name]
    x, y = series.sample(n, seed)
    row: dict[str, Any] = {"task": name, "n": n, "seed": seed}
    start = time.perf_counter()
    found = mb.lags(x, y, max_lag=MAX_LAG, permutations=0)
    row["seconds"] = time.perf_counter() - start
    given = mb.lags(x, y, max_lag=MAX_LAG, given_past=2, transfer=True, permutations=0)
    for key, result in (("plain", found), ("given", given)):
        truth = [series.at_lag(r.lag, result.given_past) for r in result.rows]
        row[key] = {
            "best": result.best.lag,
            "true_best": result.rows[int(np.argmax(truth))].lag,
            "truth": truth,
            "nats": [r.nats for r in result.rows],
            "intervals": [list(r.interval) for r in result.rows],
            "method": result.method,
        }
    truth = [
        series.transfer(int(t.source == "y"), t.source_past, t.target_past) for t in given.transfers
    ]
    row["transfer"] = {
        "truth": truth,
        "nats": [t.nats for t in given.transfers],
        "intervals": [list(t.interval) for t in given.transfers],
        "pasts": [[t.source_past, t.target_past] for t in given.transfers],
    }
    return _rounded(row)


def _rounded(value: Any) -> Any:
    """Numbers with six decimals, for small files."""
    if isinstance(value, dict):
        return {key: _rounded(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_rounded(each) for each in value]
    return round(value, 6) if isinstance(value, float) else value


def _held(part: dict[str, Any]) -> list[bool]:
    pairs = zip(part["intervals"], part["truth"], strict=True)
    return [low - 1e-6 <= truth <= high + 1e-6 for (low, high), truth in pairs]


def _errors(part: dict[str, Any]) -> list[float]:
    return [abs(a - b) for a, b in zip(part["nats"], part["truth"], strict=True)]


def summarise_lags(rows: list[dict[str, Any]]) -> str:
    """By series and rows: the right lag, errors, and coverage."""
    lines = [
        "| series | rows | right lag | right lag given the past | mean absolute error | covered | "
        "covered given the past | transfer: error | covered | s |",
        "|---" * 10 + "|",
    ]
    for name in SERIES:
        for n in dict.fromkeys(r["n"] for r in rows):
            own = [r for r in rows if (r["task"], r["n"]) == (name, n)]
            if not own:
                continue
            right = [
                "" if max(own[0][key]["truth"]) == 0 else
                f"{statistics.mean(r[key]['best'] == r[key]['true_best'] for r in own):.0%}"
                for key in ("plain", "given")
            ]  # fmt: skip

            def mean(of: Callable[[dict[str, Any]], list[Any]], key: str, own: Any = own) -> float:
                return statistics.mean(v for r in own for v in of(r[key]))

            seconds = statistics.mean(r["seconds"] for r in own)
            lines.append(
                f"| {name} | {n} | {right[0]} | {right[1]} | {mean(_errors, 'plain'):.3f} | "
                f"{mean(_held, 'plain'):.0%} | {mean(_held, 'given'):.0%} | "
                f"{mean(_errors, 'transfer'):.3f} | {mean(_held, 'transfer'):.0%} | "
                f"{seconds:.2f} |"
            )
    return "\n".join(lines)


# --- tests ---------------------------------------------------------------------------------------


def _sticky(n: int, rng: np.random.Generator) -> np.ndarray:
    """A label of three that stays with probability 0.9."""
    label = rng.integers(3, size=n)
    stays = rng.random(n) < 0.9
    for t in range(1, n):
        if stays[t]:
            label[t] = label[t - 1]
    return label


def _coupled(strength: float) -> Autoregression:
    return Autoregression((((0.9, 0.0), (0.0, 0.9)), ((0.0, 0.0), (strength, 0.0))))


TESTED: dict[str, Callable[[int, int], tuple[np.ndarray, np.ndarray]]] = {
    "independent, 0.9": _coupled(0.0).sample,
    "independent, 0.5": Autoregression((((0.5, 0.0), (0.0, 0.5)),)).sample,
    "independent, heavy tails, 0.9": lambda n, seed: _heavy(n, seed),
    "independent labels, 0.9": lambda n, seed: (
        _sticky(n, np.random.default_rng([seed, 0])),
        _sticky(n, np.random.default_rng([seed, 1])),
    ),
    "y drives x": Autoregression((((0.6, 0.4), (0.0, 0.8)),)).sample,
    "x drives y by 0.1": _coupled(0.1).sample,
    "x drives y by 0.2": _coupled(0.2).sample,
    "x drives y by its square": lambda n, seed: _squared(n, seed),
}

# Of these, the ones that are also asked with more rows.
LONG = [name for name in TESTED if name == "independent, 0.9" or "by 0.1" in name]


def _heavy(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    x, y = _coupled(0.0).sample(n, seed)
    return np.sinh(2 * x), np.sinh(2 * y)


def _squared(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    x, y = _coupled(0.0).sample(n, seed)
    x = x / x.std()
    return x, y + 0.7 * np.r_[np.zeros(2), x[:-2] ** 2] * y.std()


def measure_tests(name: str, n: int, seed: int) -> dict[str, Any]:
    """The smallest p-value over all lags, and those of both transfer entropies."""
    import mibounds as mb

    x, y = TESTED[name](n, seed)
    method = "default" if "label" in name else "gaussian"  # the tests are the same with any
    found = mb.lags(x, y, max_lag=3, transfer=True, permutations=99, seed=seed, method=method)
    given = mb.lags(x, y, max_lag=3, given_past=1, permutations=99, seed=seed, method=method)
    assert all(t.p_value is not None for t in found.transfers)
    return {
        "task": name,
        "n": n,
        "seed": seed,
        "plain": min(r.p_value or 1.0 for r in found.rows),
        "given": min(r.p_value or 1.0 for r in given.rows),
        "ahead": found.transfers[0].p_value,
        "back": found.transfers[1].p_value,
    }


def summarise_tests(rows: list[dict[str, Any]]) -> str:
    """How often each test says that there is a relation, at 5 %."""
    lines = [
        "| series | rows | seeds | any lag | any lag given the past | x to y | y to x |",
        "|---" * 7 + "|",
    ]
    for name in TESTED:
        for n in dict.fromkeys(r["n"] for r in rows):
            own = [r for r in rows if (r["task"], r["n"]) == (name, n)]
            if own:
                shares = " | ".join(
                    f"{statistics.mean(r[key] <= 0.05 for r in own):.1%}"
                    for key in ("plain", "given", "ahead", "back")
                )
                lines.append(f"| {name} | {n} | {len(own)} | {shares} |")
    return "\n".join(lines)


# --- warnings ------------------------------------------------------------------------------------


def _shuffled(series: Autoregression) -> Callable[[int, int], tuple[np.ndarray, np.ndarray]]:
    def draw(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
        x, y = series.sample(n, seed)
        order = np.random.default_rng([seed, 2]).permutation(n)
        return x[order], y[order]

    return draw


WARNED = {
    "shuffled": _shuffled(SERIES["0.9 and 0.5, x leads by 3"]),
    "autocorrelation 0.5": Autoregression((((0.5, 0.0), (0.0, 0.5)),)).sample,
    "autocorrelation 0.9": _coupled(0.0).sample,
    "random walks": lambda n, seed: tuple(
        np.cumsum(np.random.default_rng(seed).normal(size=(2, n)), 1)
    ),
}


def measure_warnings(name: str, n: int, seed: int) -> dict[str, Any]:
    """Whether rows look like a series to `estimate`, and what it then says."""
    from mibounds.measure.diagnostics import look_at_order
    from mibounds.samples.columns import as_columns

    x, y = WARNED[name](n, seed)
    sides = as_columns("x", x).scored(), as_columns("y", y).scored()
    row = {"task": name, "n": n, "seed": seed, "warned": bool(look_at_order(*sides, 1))}
    if name == "random walks" and seed < FIRST_SEED + 10 and n == 1000:
        import mibounds as mb

        found = mb.estimate(x, y, permutations=99, seed=seed)
        walks = mb.lags(np.diff(x), np.diff(y), seed=seed)
        row |= {"nats": found.nats, "p": found.p_value, "verdict": found.verdict}
        row |= {"differences": min(r.p_value or 1.0 for r in walks.rows)}
    return row


def summarise_warnings(rows: list[dict[str, Any]]) -> str:
    """How often it warns."""
    sizes = list(dict.fromkeys(r["n"] for r in rows))
    lines = [f"| rows in order | {' | '.join(f'{n} rows' for n in sizes)} | seeds |"]
    lines.append("|---" * (2 + len(sizes)) + "|")
    for name in WARNED:
        own = [r for r in rows if r["task"] == name]
        if own:
            shares = [statistics.mean(r["warned"] for r in own if r["n"] == n) for n in sizes]
            shown = " | ".join(f"{share:.1%}" for share in shares)
            lines.append(f"| {name} | {shown} | {len(own) // len(sizes)} |")
    return "\n".join(lines)


# --- parts ---------------------------------------------------------------------------------------


def _h(*p: float) -> float:
    return -sum(each * math.log(each) for each in p if each)


LN2 = math.log(2)
ALONE = _h(0.25, 0.75) - 0.5 * LN2  # I(x1; x1 and x2)
LINEAR = (0.5 * math.log(3 / 2), 0.5 * math.log(3.0))  # of y = x1 + x2 + e: alone, both
CORRELATED = 0.5  # of two sources
# Redundancy by mmi, unique parts and synergy, in nats.
PARTS = {
    "xor": (0.0, 0.0, 0.0, LN2),
    "and": (ALONE, 0.0, 0.0, _h(0.25, 0.75) - ALONE),
    "copy (x1, x2)": (LN2, 0.0, 0.0, LN2),
    "rdn": (LN2, 0.0, 0.0, 0.0),
    "unq": (0.0, LN2, 0.0, 0.0),
    "noisy xor": (0.0, 0.0, 0.0, LN2 - _h(0.1, 0.9)),
    "x1 + x2 + e": (LINEAR[0], 0.0, 0.0, LINEAR[1] - LINEAR[0]),
    "2 x1 + x2 + e, correlated": (),
}


def _correlated() -> tuple[float, ...]:
    """mmi of y = 2 x1 + x2 + e, where both sources have a correlation."""
    r = CORRELATED
    variance = 4 + 1 + 4 * r + 1
    one, two = ((c**2) / variance for c in (2 + r, 1 + 2 * r))
    a, b = (-0.5 * math.log(1 - share) for share in (one, two))
    both = 0.5 * math.log(variance)
    return b, a - b, 0.0, both - a


def _draw_parts(name: str, n: int, rng: np.random.Generator) -> list[np.ndarray]:
    a, b = rng.integers(2, size=(2, n))
    flips = rng.random(n) < 0.1
    u, v, e = rng.normal(size=(3, n))
    w = CORRELATED * u + math.sqrt(1 - CORRELATED**2) * v
    return {
        "xor": [a, b, a ^ b],
        "and": [a, b, a & b],
        "copy (x1, x2)": [a, b, 2 * a + b],
        "rdn": [a, a, a],
        "unq": [a, b, a],
        "noisy xor": [a, b, (a ^ b) ^ flips],
        "x1 + x2 + e": [u, v, u + v + e],
        "2 x1 + x2 + e, correlated": [u, w, 2 * u + w + e],
    }[name]


def measure_parts(name: str, method: str, n: int, seed: int) -> dict[str, Any]:
    """The four parts, the interaction and the total correlation."""
    import mibounds as mb

    x1, x2, y = _draw_parts(name, n, np.random.default_rng(seed))
    found = mb.decompose(x1, x2, y, method=method, budget="fast")
    parts = PARTS[name] or _correlated()
    all_three = mb.total_correlation(x1, x2, y, method=method, budget="fast")
    sources = LN2 if name == "rdn" else -0.5 * math.log(1 - CORRELATED**2) * ("corr" in name)
    truth = [*parts, parts[3] - parts[0], sources + sum(parts)]
    rows = [found.redundancy, found.unique_x1, found.unique_x2, found.synergy]
    rows += [found.interaction, all_three]
    return {
        "task": name, "method": method, "n": n, "seed": seed, "truth": truth,
        "nats": [r.nats for r in rows], "intervals": [list(r.interval) for r in rows],
    }  # fmt: skip


def summarise_parts(rows: list[dict[str, Any]]) -> str:
    """Truths, means, errors and coverage."""
    lines = [
        "| target | method | rows | truth: redundancy, unique, unique, synergy | means | "
        "mean absolute error | covered | interaction covered | total correlation covered |",
        "|---" * 9 + "|",
    ]
    for name, method, n in dict.fromkeys((r["task"], r["method"], r["n"]) for r in rows):
        own = [r for r in rows if (r["task"], r["method"], r["n"]) == (name, method, n)]
        means = np.mean([r["nats"] for r in own], 0)
        held = np.mean([_held(r) for r in own], 0)
        error = np.mean([_errors(r)[:4] for r in own])
        shown = [", ".join(f"{abs(v):.3f}" for v in each[:4]) for each in (own[0]["truth"], means)]
        lines.append(
            f"| {name} | {method} | {n} | {shown[0]} | {shown[1]} | {error:.3f} | "
            f"{held[:4].mean():.0%} | {held[4]:.0%} | {held[5]:.0%} |"
        )
    return "\n".join(lines)


# --- entropies -----------------------------------------------------------------------------------


def _zipf(labels: int) -> np.ndarray:
    p = 1 / np.arange(1, labels + 1)
    return p / p.sum()


LABELS = {
    "uniform, 6": np.ones(6) / 6,
    "uniform, 100": np.ones(100) / 100,
    "uniform, 1000": np.ones(1000) / 1000,
    "Zipf, 50": _zipf(50),
    "Zipf, 1000": _zipf(1000),
    "geometric, 0.9": 0.1 * 0.9 ** np.arange(300),
}
LABELS["geometric, 0.9"] /= LABELS["geometric, 0.9"].sum()
MIXING = np.eye(8) + 0.5 * np.tri(8)
NUMBERS: dict[str, tuple[Callable[[np.random.Generator, int], np.ndarray], float]] = {
    "normal": (lambda rng, n: rng.normal(size=n), 0.5 * math.log(2 * math.pi * math.e)),
    "uniform": (lambda rng, n: rng.random(n), 0.0),
    "exponential": (lambda rng, n: rng.exponential(size=n), 1.0),
    "Student's t, 3": (lambda rng, n: rng.standard_t(3, size=n), 1.7734776),
    "normal, 3 columns": (
        lambda rng, n: rng.normal(size=(n, 3)) @ MIXING[:3, :3].T,
        1.5 * math.log(2 * math.pi * math.e) + math.log(np.linalg.det(MIXING[:3, :3])),
    ),
    "normal, 8 columns": (
        lambda rng, n: rng.normal(size=(n, 8)) @ MIXING.T,
        4 * math.log(2 * math.pi * math.e) + math.log(np.linalg.det(MIXING)),
    ),
}
ESTIMATES = ("chao_wang_jost", "miller", "grassberger", "chao_shen", "plug_in")


def measure_entropies(name: str, n: int, seed: int) -> dict[str, Any]:
    """The value of each estimate, and the interval of the default."""
    import mibounds as mb

    rng = np.random.default_rng(seed)
    if name in LABELS:
        p = LABELS[name]
        x, truth = rng.choice(len(p), size=n, p=p), _h(*p)
        kinds, names = "discrete", ESTIMATES
    else:
        draw, truth = NUMBERS[name]
        x, kinds, names = draw(rng, n), "continuous", ("default",)
    every = [mb.entropy(x, kinds=kinds, method=each) for each in names]
    return {
        "task": name, "n": n, "seed": seed, "truth": truth,
        "nats": {each: q.nats for each, q in zip(names, every, strict=True)},
        "interval": list(every[0].interval),
    }  # fmt: skip


def summarise_entropies(rows: list[dict[str, Any]]) -> str:
    """Mean absolute errors of each estimate, and the coverage of the default."""
    lines = [
        f"| of | rows | truth | {' | '.join(ESTIMATES)} | numbers | covered |",
        "|---" * (5 + len(ESTIMATES)) + "|",
    ]
    for name in [*LABELS, *NUMBERS]:
        for n in dict.fromkeys(r["n"] for r in rows):
            own = [r for r in rows if (r["task"], r["n"]) == (name, n)]
            if not own:
                continue
            errors = [
                f"{statistics.mean(abs(r['nats'][each] - r['truth']) for r in own):.3f}"
                if each in own[0]["nats"]
                else ""
                for each in (*ESTIMATES, "default")
            ]
            ends = [(*r["interval"], r["truth"]) for r in own]
            held = statistics.mean(bool(low <= truth <= high) for low, high, truth in ends)
            lines.append(
                f"| {name} | {n} | {own[0]['truth']:.3f} | {' | '.join(errors)} | {held:.0%} |"
            )
    return "\n".join(lines)


# --- peers ---------------------------------------------------------------------------------------


def by_mibounds(x: np.ndarray, y: np.ndarray) -> tuple[float, float, float]:
    """T(x -> y) by 4 rows of x given 1 of y with its p-value, and the p-value of any lag."""
    from mibounds.measure.series.pairs import SeriesPair, transfer_window
    from mibounds.measure.series.surrogates import p_values
    from mibounds.samples.columns import as_columns

    pair = SeriesPair(as_columns("x", x).scored(), as_columns("y", y).scored(), 0)
    window = transfer_window(len(x), True, 4, 1)
    value = pair.shares(pair.choose([window]), window).nats
    (p,), _ = p_values(*pair.test_transfer(True, 1, 99), 0.95)
    (lag,), _ = p_values(*pair.test([0], 0, 99), 0.95)
    return value, float(p), float(lag)


def by_infomeasure(x: np.ndarray, y: np.ndarray) -> tuple[float, float, float]:
    """The same by neighbours, with its permutation tests."""
    im = import_module("infomeasure")
    settings = {"approach": "metric", "base": "e"}
    found = im.estimator(
        x, y, measure="transfer_entropy", src_hist_len=4, dest_hist_len=1, **settings
    )
    p = found.statistical_test(n_tests=99, method="permutation_test").p_value
    pair = im.estimator(x, y, measure="mutual_information", **settings)
    lag = pair.statistical_test(n_tests=99, method="permutation_test").p_value
    return float(found.result()), float(p), float(lag)


def by_tigramite(x: np.ndarray, y: np.ndarray) -> tuple[float, float, float]:
    """The same by CMIknn, with shuffles among neighbours."""
    test = import_module("tigramite.independence_tests.cmiknn").CMIknn
    data = import_module("tigramite.data_processing").DataFrame(np.stack([x, y], 1))
    found = test(significance="shuffle_test", sig_samples=99, workers=1)
    found.set_dataframe(data)
    source = [(0, -j) for j in range(1, 5)]
    value, p = found.run_test(X=source, Y=[(1, 0)], Z=[(1, -1)])[:2]
    _, lag = found.run_test(X=[(0, 0)], Y=[(1, 0)], Z=[])[:2]
    return float(value), float(p), float(lag)


PEERS = {"mibounds": by_mibounds, "infomeasure": by_infomeasure, "tigramite": by_tigramite}


@cache
def _warm(method: str) -> None:
    """Import and compile what a package needs, before anything is timed."""
    with contextlib.suppress(Exception):
        PEERS[method](*np.random.default_rng(0).normal(size=(2, 100)))


def measure_peers(method: str, name: str, n: int, seed: int) -> dict[str, Any]:
    """One transfer entropy and its p-value, or why there is none."""
    series = SERIES[name]
    x, y = series.sample(n, seed)
    row = {"method": method, "task": name, "n": n, "seed": seed}
    silent = contextlib.redirect_stdout(io.StringIO())
    with warnings.catch_warnings(), silent:
        warnings.simplefilter("ignore")
        _warm(method)
    start = time.perf_counter()
    with warnings.catch_warnings(), silent:
        warnings.simplefilter("ignore")
        try:
            nats, p, lag = PEERS[method](x, y)
        except Exception as error:  # of any package; the reason stands in its row
            return row | {"why": f"{type(error).__name__}: {error}"}
    seconds = time.perf_counter() - start
    truth = series.transfer(0, 4, 1)
    return row | {"truth": truth, "nats": nats, "p": p, "lag": lag, "seconds": seconds}


def summarise_peers(rows: list[dict[str, Any]]) -> str:
    """Errors, and how often each says that there is a relation."""
    lines = [
        "| package | series | seeds | truth | mean | mean absolute error | p of transfer <= 0.05 | "
        "p of lag 0 <= 0.05 | s |",
        "|---" * 9 + "|",
    ]
    for name in PEER_SERIES:
        for method in PEERS:
            own = [r for r in rows if (r["method"], r["task"]) == (method, name) and "nats" in r]
            if own:
                error = statistics.mean(abs(r["nats"] - r["truth"]) for r in own)
                shares = [statistics.mean(r[key] <= 0.05 for r in own) for key in ("p", "lag")]
                mean = statistics.mean(r["nats"] for r in own)
                lines.append(
                    f"| {method} | {name} | {len(own)} | {own[0]['truth']:.3f} | {mean:.3f} | "
                    f"{error:.3f} | {shares[0]:.0%} | {shares[1]:.0%} | "
                    f"{statistics.mean(r['seconds'] for r in own):.2f} |"
                )
    return "\n".join(lines)


# --- pictures ------------------------------------------------------------------------------------


def growth_and_unemployment() -> tuple[np.ndarray, np.ndarray]:
    """United States by quarter, 1959 to 2009: growth of GDP, and the change of unemployment.

    Public-domain data of the Federal Reserve Bank of St. Louis and the Bureau of Labor Statistics,
    as statsmodels ships them.
    """
    table = import_module("statsmodels.datasets.macrodata").load_pandas().data
    gdp, rate = (table[name].to_numpy() for name in ("realgdp", "unemp"))
    return 100 * np.diff(np.log(gdp)), np.diff(rate)


def draw_pictures(folder: Path) -> None:
    """The curves of growth and unemployment, without and with the follower's own past."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    import mibounds as mb
    from mibounds.files import replacing

    growth, unemployment = growth_and_unemployment()
    with rc_context({"svg.hashsalt": "series", "svg.fonttype": "none"}):
        figure = Figure(figsize=(9, 3.4), layout="constrained")
        for ax, past in zip(figure.subplots(1, 2), (0, 1), strict=True):
            mb.lags(growth, unemployment, max_lag=8, given_past=past).plot(ax)
            ax.set_xlabel("lag (quarters); growth leads on the right")
            ax.set_title("given the quarter before" if past else "nothing given")
        folder.mkdir(parents=True, exist_ok=True)
        with replacing(folder / "series_lags.svg") as path:
            figure.savefig(path, metadata={"Date": None})


# --- all of these --------------------------------------------------------------------------------


def cells(name: str, quick: bool) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
    """The fields of a cell, and every cell."""

    def seeds(count: int) -> range:
        return range(FIRST_SEED, FIRST_SEED + (1 if quick else count))

    def some(names: Any) -> list[str]:
        return list(names)[:2] if quick else list(names)

    sizes = (200,) if quick else SIZES
    task = ("task", "n", "seed")
    if name == "lags":
        return task, [
            (t, n, s) for n in sizes for t in some(SERIES) for s in seeds(10 if n > 1000 else 40)
        ]
    if name == "tests":
        return task, [
            (t, n, s)
            for n in sizes[:2]
            for t in some(TESTED if n < 1000 else LONG)
            for s in seeds(50 if t.startswith("x drives y") else 200)
        ]
    if name == "warnings":
        return task, [(t, n, s) for n in sizes[:2] for t in some(WARNED) for s in seeds(1000)]
    if name == "parts":
        numbers = list(PARTS)[6:]
        found = [
            (t, "counts", n, s)
            for n in (200, 2000)
            for t in some(list(PARTS)[:6])
            for s in seeds(100)
        ]
        found += [(t, "gaussian", 1000, s) for t in some(numbers) for s in seeds(100)]
        found += [(t, "copula_model", 1000, s) for t in some(numbers)[:2] for s in seeds(10)]
        return ("task", "method", "n", "seed"), found
    if name == "entropies":
        return task, [
            (t, n, s)
            for n in (100, 1000)
            for t in [*some(LABELS), *some(NUMBERS)]
            for s in seeds(10 if t == "normal, 8 columns" else 100)
        ]
    return ("method", "task", "n", "seed"), [
        (m, t, 200 if quick else 500, s) for s in seeds(12) for t in PEER_SERIES for m in PEERS
    ]


COMMANDS = {
    "lags": (measure_lags, summarise_lags),
    "tests": (measure_tests, summarise_tests),
    "warnings": (measure_warnings, summarise_warnings),
    "parts": (measure_parts, summarise_parts),
    "entropies": (measure_entropies, summarise_entropies),
    "peers": (measure_peers, summarise_peers),
}


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("name", choices=(*COMMANDS, "pictures"))
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--out", type=Path, default=Path("results/measure"))
    parser.add_argument("--quick", action="store_true", help="few cells, few rows")
    args = parser.parse_args()
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[name] = "1"  # of the processes
    if args.name == "pictures":
        draw_pictures(args.out)
        return
    measure, summarise = COMMANDS[args.name]
    path = args.out / f"series_{args.name}.jsonl"
    fields, wanted = cells(args.name, args.quick)
    rows = complete_rows(path, fields, wanted, measure, args.jobs)
    table = summarise(rows)
    write(path.with_suffix(".md"), table + "\n")
    import mibounds

    command = f"python benchmarks/series.py {args.name}"
    about = {"command": command, "mibounds": mibounds.__version__, "rows": len(rows)}
    write(path.with_suffix(".json"), about)
    print(table)


if __name__ == "__main__":
    main()
