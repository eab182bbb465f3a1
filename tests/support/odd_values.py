"""Odd columns, odd arguments, and what any result has to keep, whatever it was made from."""

import contextlib
import datetime
import decimal
import io
import math
import re
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd
import torch

import mibounds as mb

Column = Callable[[np.random.Generator, int], Any]


class Broken(Exception):
    """What a result or a message lacks.

    Args:
        what: the kind of failure.
        detail: what was seen.
    """

    def __init__(self, what: str, detail: str):
        super().__init__(what, detail)
        self.what, self.detail = what, detail


def expect(holds: bool, detail: object, what: str = "silent") -> None:
    """Raise `Broken` where something does not hold."""
    if not holds:
        raise Broken(what, str(detail))


# --- columns -------------------------------------------------------------------------------------


def _with(value: Any, share: float = 0.1) -> Column:
    def make(rng: np.random.Generator, n: int) -> np.ndarray:
        return np.where(rng.random(n) < share, value, rng.normal(size=n))

    return make


def _pick(*values: Any) -> Column:
    def make(rng: np.random.Generator, n: int) -> np.ndarray:
        array = np.empty(len(values), object)
        array[:] = values
        return array[rng.integers(len(values), size=n)]

    return make


COLUMNS: dict[str, Column] = {
    "normal": lambda rng, n: rng.normal(size=n),
    "float32": lambda rng, n: rng.normal(size=n).astype(np.float32),
    "float16": lambda rng, n: rng.normal(size=n).astype(np.float16),
    "rounded": lambda rng, n: rng.normal(size=n).round(1),
    "few": lambda rng, n: rng.integers(3, size=n),
    "int8": lambda rng, n: rng.integers(-128, 127, size=n).astype(np.int8),
    "bool": lambda rng, n: rng.random(n) < 0.3,
    "rare": lambda rng, n: (np.arange(n) == rng.integers(n)).astype(int),
    "constant": lambda rng, n: np.full(n, 7.0),
    "one text": lambda rng, n: np.full(n, "same", object),
    "rows": lambda rng, n: np.arange(n),
    "names of rows": lambda rng, n: np.array([f"id{i}" for i in range(n)], object),
    "large whole": lambda rng, n: 2**60 + rng.integers(4, size=n),
    "unsigned": lambda rng, n: 2**63 + rng.integers(4, size=n).astype(np.uint64),
    "huge": lambda rng, n: 1e300 * rng.normal(size=n),
    "largest": lambda rng, n: np.where(rng.random(n) < 0.5, -1, 1) * np.finfo(float).max,
    "tiny": lambda rng, n: 1e-300 * rng.normal(size=n),
    "denormal": lambda rng, n: 5e-324 * rng.integers(9, size=n),
    "far off": lambda rng, n: 1e9 + 1e-6 * rng.normal(size=n),
    "far out": lambda rng, n: np.where(np.arange(n) == n // 2, 1e200, rng.normal(size=n)),
    "cauchy": lambda rng, n: rng.standard_cauchy(size=n),
    "powers": lambda rng, n: 10.0 ** rng.uniform(-300, 300, size=n),
    "zeros and one": lambda rng, n: np.where(np.arange(n) == 0, 1.0, 0.0),
    "negative zero": lambda rng, n: np.where(rng.random(n) < 0.5, -0.0, 0.0),
    "missing": _with(math.nan),
    "mostly missing": _with(math.nan, 0.95),
    "all missing": _with(math.nan, 1.1),
    "infinite": _with(math.inf),
    "text": _pick("a", "b", "c"),
    "odd text": _pick("", " ", "\x1b[2J", "<b>", "nan", "\u202e", "0", "é"),
    "text and missing": _pick("a", "b", None, math.nan),
    "mixed": _pick(1, "1", 1.0, True),
    "decimal": _pick(decimal.Decimal("0.1"), decimal.Decimal("1e30"), decimal.Decimal("-2")),
    "dates": lambda rng, n: np.datetime64("2020-01-01") + rng.integers(99, size=n),
    "days": _pick(datetime.date(2020, 1, 1), datetime.date(1, 1, 1), datetime.date(9999, 12, 31)),
    "category": lambda rng, n: pd.Categorical.from_codes(rng.integers(3, size=n), list("abc")),
    "category with missing": lambda rng, n: pd.Categorical.from_codes(
        rng.integers(-1, 3, size=n), list("abc")
    ),
    "nullable": lambda rng, n: pd.array(np.where(rng.random(n) < 0.2, None, 1.0), "Float64"),
    "nullable whole": lambda rng, n: pd.array(rng.integers(9, size=n), "Int64"),
    "lists": _pick([1], [2, 3]),
    "objects": lambda rng, n: np.array([object() for _ in range(n)], object),
    "complex": lambda rng, n: rng.normal(size=n) + 1j,
}


REFUSED = ("infinite", "lists", "objects", "complex", "all missing")
USABLE = tuple(kind for kind in COLUMNS if kind not in REFUSED)


def frame(kinds: list[str], copies: list[int], n: int, seed: int) -> pd.DataFrame:
    """A table with a column of each kind, some of them replaced by copies of the first ones."""
    rng = np.random.default_rng(seed)
    columns: dict[str, Any] = {}
    for k, kind in enumerate(kinds):
        columns[f"c{k}"] = COLUMNS[kind](rng, n)
    for k in copies:
        columns[f"c{len(kinds)}_{k}"] = columns[f"c{k % len(kinds)}"]
    return pd.DataFrame(columns)


# --- what has to hold ----------------------------------------------------------------------------


def check_message(error: BaseException) -> None:
    """An error has to be one clear line, of a kind that callers expect."""
    text = str(error)
    clear = isinstance(error, ValueError | ImportError) and len(text) < 1500
    clear = clear and bool(text) and "\n" not in text.strip()
    # What this package says ends with what to do; others' messages do not.
    clear = clear and bool(re.search(r"[;:,.] ?\S|\) ", text))
    expect(clear and not re.search(r"[\x00-\x1f\x7f-\x9f]", text), repr(error), "traceback")


def _equal(a: Any, b: Any) -> bool:
    return repr(a) == repr(b)


def check_value(nats: float, low: float, high: float, most: float = math.inf) -> None:
    """A value is finite, not below zero, not above what there is to know, and in its interval.

    The interval of a copy has no upper end.
    """
    expect(math.isfinite(nats) and math.isfinite(low) and high > -math.inf, (nats, low, high))
    expect(0 <= nats <= most + 1e-9, (nats, most))
    expect(low - 1e-9 <= nats <= high + 1e-9, (low, nats, high))


def check_estimate(table: pd.DataFrame) -> str:
    """Estimate the first column and the rest."""

    def call() -> Any:
        return mb.estimate(
            table.iloc[:, :1], table.iloc[:, 1:], budget="fast", drop_missing=True, seed=1
        )

    found = call()
    labels = found.config.get("entropy")
    check_value(found.nats, *found.interval, labels if labels else math.inf)
    again = call()
    expect(_equal((found.nats, found.interval), (again.nats, again.interval)), (found, again))
    return "warning" if found.warnings else "number"


def check_rank(table: pd.DataFrame) -> str:
    """Rank the columns but the last for the last."""
    target = table.columns[-1]
    found = mb.rank(table, target, seed=1, correction="none")
    expect(len(found.columns) == table.shape[1] - 1, found.names, "lost")
    for column in found.columns:
        _check_cell(column.nats, column.low, column.high, column.p_value, column.method)
        if found.entropy is not None and math.isfinite(column.nats):
            expect(column.nats <= found.entropy + 1e-9, (column, found.entropy))
    again = mb.rank(table, target, seed=1, correction="none")
    expect(_equal(found.columns, again.columns), "another ranking")
    return "warning" if found.warnings else "number"


def check_matrix(table: pd.DataFrame) -> str:
    """Measure all pairs."""
    found = mb.matrix(table, seed=1, correction="none")
    d = table.shape[1]
    expect(found.nats.shape == (d, d), found.nats.shape, "lost")
    expect(np.array_equal(found.nats, found.nats.T, equal_nan=True), "not symmetric")
    for pair in found.pairs():
        _check_cell(pair.nats, pair.low, pair.high, pair.p_value, pair.method)
    entropies = found.left_entropy
    for k in range(d):
        if math.isfinite(entropies[k]):
            own = np.delete(found.nats[k], k)
            expect(not (own > entropies[k] + 1e-9).any(), (own, entropies[k]))
    again = mb.matrix(table, seed=1, correction="none")
    expect(np.array_equal(found.nats, again.nats, equal_nan=True), "another matrix")
    return "warning" if found.warnings else "number"


def _check_cell(nats: float, low: float, high: float, p: float, method: str) -> None:
    """A cell is a value, or says by its method that there is none."""
    if math.isnan(nats):
        expect(method.startswith("too "), (nats, method))
        return
    check_value(nats, low, high)
    expect(math.isnan(p) or 0 <= p <= 1, p)


def check_table(table: pd.DataFrame, call: Callable[[pd.DataFrame], str]) -> str:
    """What comes of a table: a number, a number with a warning, or one clear line."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return call(table)
    except Broken:
        raise
    except Exception as error:
        check_message(error)
        return "line"


CALLS = {"estimate": check_estimate, "rank": check_rank, "matrix": check_matrix}


# --- arguments -----------------------------------------------------------------------------------


class _Raises:
    """An object that raises whatever is done with it."""

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)

    def __len__(self) -> int:
        raise OverflowError("no length")


def odd_arguments() -> dict[str, Callable[[], Any]]:
    """What may stand where samples are expected, by its name."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 2))
    t = torch.as_tensor(x, dtype=torch.float32)

    def quietly(call: Callable[[], Any]) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return call()

    def sparse(kind: str) -> Any:
        import scipy.sparse

        return getattr(scipy.sparse, kind)(x)

    def loop() -> Any:
        found: list = []
        found.append(found)
        return found

    return {
        "None": lambda: None,
        "nothing": lambda: [],
        "no rows": lambda: x[:0],
        "no columns": lambda: x[:, :0],
        "one row": lambda: x[:1],
        "two rows": lambda: x[:2],
        "fewer rows": lambda: x[:-1],
        "a number": lambda: 3.0,
        "a text": lambda: "x",
        "bytes": lambda: b"x" * 60,
        "a dict": lambda: {"a": x[:, 0].tolist()},
        "a set": lambda: set(x[:, 0].tolist()),
        "a generator": lambda: (row for row in x),
        "a range": lambda: range(60),
        "a function": lambda: len,
        "a class": lambda: dict,
        "an object": object,
        "one that raises": _Raises,
        "a list of itself": loop,
        "ragged": lambda: [[1.0], [1.0, 2.0]] * 30,
        "nested": lambda: [[[1.0], [2.0]]] * 60,
        "three axes": lambda: x.reshape(60, 2, 1),
        "NaN": lambda: np.full((60, 2), math.nan),
        "one NaN": lambda: np.where(np.arange(60) == 3, math.nan, x[:, 0]),
        "infinite": lambda: np.where(np.arange(60) == 3, math.inf, x[:, 0]),
        "complex": lambda: x + 1j,
        "objects": lambda: np.array([object() for _ in range(60)], object),
        "pd.NA": lambda: pd.DataFrame({"a": pd.array([None, *range(59)], "Int64")}),
        "a frame of no columns": lambda: pd.DataFrame(index=range(60)),
        "a frame with one name twice": lambda: pd.DataFrame(x, columns=["a", "a"]),
        "named fields": lambda: np.zeros(60, [("a", float), ("b", int)]),
        "masked": lambda: np.ma.masked_array(x, x > 1),
        "matrix": lambda: quietly(lambda: np.matrix(x)),
        "raw bytes": lambda: np.zeros(60, "V3"),
        "times": lambda: np.arange(60).astype("datetime64[s]"),
        "no times": lambda: np.full(60, np.datetime64("NaT")),
        "read-only": lambda: _read_only(x),
        "strided": lambda: x[::-1, ::-1],
        "other bytes": lambda: x.astype(">f8"),
        "longdouble": lambda: x.astype(np.longdouble),
        "csr": lambda: sparse("csr_array"),
        "coo": lambda: sparse("coo_matrix"),
        "sparse tensor": lambda: t.to_sparse(),
        "sparse rows": lambda: quietly(t.to_sparse_csr),
        "nested tensor": lambda: quietly(lambda: torch.nested.nested_tensor([t[:5], t[5:]])),
        "meta tensor": lambda: t.to("meta"),
        "tensor with a gradient": lambda: t.clone().requires_grad_(),
        "half": lambda: t.half(),
        "quantised": lambda: quietly(lambda: torch.quantize_per_tensor(t, 0.1, 0, torch.qint8)),
        "inference tensor": _inference_tensor,
        "arrow": _arrow,
        "an open file": lambda: io.BytesIO(b"x"),
        "an iterator": lambda: iter(x.tolist()),
        "Decimal": lambda: [decimal.Decimal(1), decimal.Decimal(2)] * 30,
        "strings": lambda: ["a", "b"] * 30,
        "bytes in a list": lambda: [b"a", b"b"] * 30,
        "tuples of text": lambda: [("a", "b")] * 60,
        "large": lambda: np.full((60, 2), 1e308),
        "constant": lambda: np.ones((60, 2)),
    }


def _read_only(x: np.ndarray) -> np.ndarray:
    copy = x.copy()
    copy.flags.writeable = False
    return copy


def _inference_tensor() -> torch.Tensor:
    with torch.inference_mode():
        return torch.randn(60, 2, generator=torch.Generator().manual_seed(0))


def _arrow() -> Any:
    import pyarrow

    return pyarrow.table({"a": [*range(59), None]})


ODD_SETTINGS: dict[str, tuple[Any, ...]] = {
    "seed": (-1, None, 1.5, "0", 2**200, math.nan, True, [], object()),
    "level": (0, 1, -0.1, 2, math.nan, "0.95", None, [0.9], 95),
    "budget": ("", "slow", None, 3, [], object()),
    "progress": (3, "x", object()),
}
ESTIMATE_SETTINGS: dict[str, tuple[Any, ...]] = {
    **ODD_SETTINGS,
    "methods": ("", "nothing", [], [3], None, 3, ["gaussian", "gaussian"], "gaussian,ksg", {}),
    "folds": (0, 1, -2, 2.5, "3", math.inf, 10**9),
    "permutations": (-1, 2.5, "3", None, math.nan, math.inf),
    "block": (0, -1, 2.5, "3", None, 10**9, math.nan),
    "groups": ([], "g", 3, [1], range(59), np.ones(60), np.full(60, math.nan), object()),
    "x_kinds": ("", "number", ["continuous"] * 9, [3], 3, {}),
    "device": ("", "cuda", "cuda:99", "nothing", 3, object(), "meta"),
    "drop_missing": (3, "yes", None),
}
TABLE_SETTINGS: dict[str, tuple[Any, ...]] = {
    **ODD_SETTINGS,
    "kinds": ("", "number", ["continuous"] * 9, [3], 3, {}),
    "correction": ("", "fisher", None, 3, []),
    "n_jobs": (0, 2.5, "2", None, math.nan),
    "backend": ("", "nothing", None, 3),
    "device": ("", "cuda", "cuda:99", "nothing", 3, object()),
    "names": ([], ["a"], "ab", [1, 2], ["a", "a"], 3),
    "out": (3, "", "\0", "/dev/full", "/dev/null", "/no/such/folder/below/another"),
}
LAG_SETTINGS: dict[str, tuple[Any, ...]] = {
    "seed": ODD_SETTINGS["seed"],
    "level": ODD_SETTINGS["level"],
    "max_lag": (-1, 2.5, "3", None, 10**9, math.nan),
    "given_past": (-1, "x", 2.5, None, 10**9),
    "permutations": (-1, 2.5, "3", None, math.nan),
    "method": ("", "nothing", None, 3),
}


# --- surroundings --------------------------------------------------------------------------------


@contextlib.contextmanager
def _double() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


@contextlib.contextmanager
def _elsewhere() -> Iterator[None]:
    torch.set_default_device("meta")
    try:
        yield
    finally:
        torch.set_default_device(None)


@contextlib.contextmanager
def _deterministic() -> Iterator[None]:
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


@contextlib.contextmanager
def _warnings_as_errors() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


@contextlib.contextmanager
def _two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextlib.contextmanager
def _no_grad_and_autocast() -> Iterator[None]:
    with torch.inference_mode(), torch.autocast("cpu", dtype=torch.bfloat16):
        yield


SURROUNDINGS: dict[str, Callable[[], Any]] = {
    "float64 by default": _double,
    "another device by default": _elsewhere,
    "autocast to bfloat16": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    "autocast to float16": lambda: torch.autocast("cpu", dtype=torch.float16),
    "no gradients": torch.no_grad,
    "inference mode": torch.inference_mode,
    "inference mode and autocast": _no_grad_and_autocast,
    "deterministic algorithms": _deterministic,
    "anomaly detection": lambda: torch.autograd.set_detect_anomaly(True),
    "warnings as errors": _warnings_as_errors,
    "numpy raises": lambda: np.errstate(all="raise"),
    "two threads of torch": _two_threads,
}


def in_threads(call: Callable[[], Any], count: int = 4) -> list[Any]:
    """What a call gives in several threads at once."""
    found: list[Any] = []
    start = threading.Barrier(count)

    def work() -> None:
        start.wait()
        try:
            found.append(call())
        except Exception as error:  # told by the caller, who compares
            found.append(error)

    threads = [threading.Thread(target=work) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found
