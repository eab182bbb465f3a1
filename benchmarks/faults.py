"""What goes wrong around the library, on purpose: damaged files, odd arguments, full disks, kills.

    python benchmarks/faults.py run --budget 8000 --seed 0     some minutes, in two processes
    python benchmarks/faults.py run --kinds files,kills        only some kinds
    python benchmarks/faults.py one files 17 --seed 0          a single case again, with its outcome

A case is known by its kind, its index and the seed. It runs in a process of its own kind with a
limit of time and of memory, so that a crash, a loop or a greedy case is counted and no other case
is lost. It holds if it ends in the right number, in a number with a warning, or in one clear line.
It fails if something is lost, if code of the data is executed, if a number is wrong and nothing is
said ("silent"), if an error is no clear line ("traceback"), or at a limit.

Finished cases are kept on the way, and a second start goes on from there. The counts are in
results/bench/faults.json, by kind, with every failure.
"""

# Odd values have wrong types on purpose, and tests/support is on no path that pyright knows.
# pyright: reportMissingImports=false, reportArgumentType=false, reportOptionalMemberAccess=false

import argparse
import contextlib
import copy
import html.parser
import io
import json
import math
import multiprocessing
import os
import platform
import random
import re
import resource
import shutil
import signal
import stat
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import numpy as np
import torch
from measurements import KeptRows, resident_mib

import mibounds as mb
from mibounds.cli import main as mibounds_main
from mibounds.cli.tables import read_table
from mibounds.files import replacing
from mibounds.measure.tables import blocks

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))
import odd_values
from broken_files import broken_files, damaged, pickled_files, read_plainly, whole_files
from odd_values import SURROUNDINGS, Broken, check_message, check_value, expect

HELD = ("number", "warning", "line")
FAILED = ("lost", "executed", "silent", "traceback", "memory", "time-out", "crash")
CHUNK = 200  # cases between two writings
GROWTH = 400  # MiB that a case may need beyond what its process has
ADDRESSES = 3 << 30  # bytes of addresses beyond those of a process that has imported everything


# --- the command line ----------------------------------------------------------------------------


def command(*arguments: str) -> tuple[int, str, str]:
    """Exit code, output and errors of ``mibounds`` in this process."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = mibounds_main(list(arguments))
    return code, out.getvalue(), err.getvalue()


def check_printed(code: int, err: str) -> None:
    """Errors are one line each, in words, and tell the terminal nothing."""
    expect("Traceback" not in err, err, "traceback")
    raw = re.search(r"error: (\w+(Error|Exception|Warning|Iteration)\b.*)", err)
    expect(not (raw and re.match(r"\w+: ", raw[1])), err, "traceback")
    expect(not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", err), ascii(err))
    errors = [line for line in err.splitlines() if line.startswith("mibounds: error: ")]
    expect(all(line.startswith("mibounds: ") for line in err.splitlines()), err, "traceback")
    expect(len(errors) == (code != 0), (code, err), "silent")
    expect(code in (0, 1, 2), (code, err), "traceback")


def check_record(text: str) -> bool:
    """Whether there are warnings in what ``--json`` has printed, whose numbers have to be some."""
    record = json.loads(text, parse_constant=lambda name: expect(False, f"{name} in JSON"))
    if "nats" in record and isinstance(record["nats"], float):
        check_value(record["nats"], *map(_number, record["interval"]))
    return bool(record.get("warnings"))


def _number(value: Any) -> float:
    return float(value) if value is not None else math.inf


COMMANDS = {
    "estimate": ["--method", "gaussian"],
    "rank": [],
    "matrix": [],
    "lags": ["--max-lag", "1", "--permutations", "19", "--method", "gaussian"],
}


def run_file(name: str, data: bytes, which: str, folder: Path) -> str:
    """What a command makes of a file, beside what other readers make of it."""
    path = folder / name
    path.write_bytes(data)
    x, y = ("0", "1") if name.endswith(".npy") else ("x", "y")
    columns = {"estimate": ["--x", x, "--y", y], "rank": ["--target", y], "matrix": []}
    arguments = [*columns.get(which, columns["estimate"]), *COMMANDS[which], "--json"]
    code, out, err = command(which, str(path), *arguments)
    check_printed(code, err)
    expect(path.read_bytes() == data, "the file was changed", "lost")
    expect([each.name for each in folder.iterdir()] == [name], list(folder.iterdir()), "executed")
    if code:
        expect(not out, out)
        return "line"
    warned = check_record(out) or bool(err)
    compare_values(path, name, data, [x, y])
    return "warning" if warned else "number"


def compare_values(path: Path, name: str, data: bytes, names: Sequence[str]) -> None:
    """The columns that were used are those that other readers find, where these read the file."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            plain = read_plainly(name, data)
            wanted = [list(plain[each]) for each in names]
    except Exception:
        return  # they refuse it, or call the columns otherwise
    table = read_table(path, list(names))
    for each, values in zip(names, wanted, strict=True):
        column = table.columns[each]
        expect(len(values) == table.rows, f"{table.rows} rows of {len(values)}", "lost")
        if column.labels is not None:
            continue
        for row, (got, value) in enumerate(zip(column.values.tolist(), values, strict=True)):
            with contextlib.suppress(TypeError, ValueError):
                want = float(value)
                same = math.isclose(got, want, rel_tol=1e-12) or (
                    math.isnan(got) and math.isnan(want)
                )
                expect(same, f"{each}, row {row}: {got} for {value!r}")


def run_damaged(index: int, rng: np.random.Generator, folder: Path) -> str:
    """A file after one to three damages."""
    names = list(whole_files())
    name = names[index % len(names)]
    data, what = damaged(name, whole_files()[name], rng)
    which = list(COMMANDS)[index // len(names) % len(COMMANDS)]
    with telling(f"{which} {name}: {what}"):
        return run_file(name, data, which, folder)


def run_corpus(index: int, rng: np.random.Generator, folder: Path) -> str:
    """A file of the corpus."""
    names = list(broken_files())
    name = names[index % len(names)]
    which = list(COMMANDS)[index // len(names) % len(COMMANDS)]
    with telling(f"{which} {name}"):
        return run_file(name, broken_files()[name], which, folder)


@contextlib.contextmanager
def telling(what: str) -> Iterator[None]:
    """Say in a failure what was run."""
    try:
        yield
    except Broken as error:
        raise Broken(error.what, f"{what}: {error.detail}") from None


# --- pickles -------------------------------------------------------------------------------------


def run_pickle(index: int, rng: np.random.Generator, folder: Path) -> str:
    """A file with a pickle in it, read as a table, as a state or as a cache."""
    marker = Path(tempfile.gettempdir(), f"executed-{os.getpid()}")
    found = pickled_files(marker)
    name = list(found)[index % len(found)]
    which = list(COMMANDS)[index // len(found) % len(COMMANDS)]
    try:
        with telling(f"{which} {name}"):
            path = folder / name
            path.write_bytes(found[name])
            names = ["0", "1"] if name.endswith(".npy") else ["x", "y"]
            sides = {"estimate": ["--x", names[0], "--y", names[1]], "matrix": []}
            target = sides.get(which, ["--target", names[1]] if which == "rank" else None)
            target = sides["estimate"] if target is None else target
            code, out, err = command(which, str(path), *target, *COMMANDS[which], "--json")
            expect(not marker.exists(), "the pickle was loaded", "executed")
            check_printed(code, err)
            if code == 0:
                return "warning" if check_record(out) else "number"
            return "line"
    finally:
        marker.unlink(missing_ok=True)


# --- names that are markup, or tell a terminal what to do -----------------------------------------

EVIL = (
    "<script>alert(1)</script>", "<img src=x onerror=alert(1)>", "</title><script>x</script>",
    "</style><b>", '"><svg onload=alert(1)>', "' onmouseover='x", "&lt;b&gt;", "-->", "<!--",
    "]]>", "javascript:alert(1)", "\x1b[2J\x1b[31m", "\x1b]0;title\x07", "\x9b2J", "a\rb", "a\x08b",
    "\u202eabc", "a\u2028b", "\ufeff", "$\\frac{1}{2}$", "$x", "\\n", "%s%n", "{0}{x}", "| a | b |",
    "`rm -rf`", "a\tb", "\ud7ff\ue000", "e\u0301", "=cmd|' /C calc'!A0", "x" * 3000, "__class__",
)  # fmt: skip


class _Page(html.parser.HTMLParser):
    """Collects what a page could do."""

    def __init__(self) -> None:
        super().__init__()
        self.bad: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in ("script", "iframe", "object", "embed", "link", "base", "form", "foreignobject"):
            self.bad.append(tag)
        for key, value in attrs:
            if key.startswith("on"):
                self.bad.append(f"{tag} {key}")
            outside = key in ("src", "href", "xlink:href", "action")
            if outside and not (value or "").startswith(("#", "data:")):
                self.bad.append(f"{tag} {key}={value}")


def run_name(index: int, rng: np.random.Generator, folder: Path) -> str:
    """A column, a label or a file with such a name, printed and in a report."""
    evil = EVIL[index % len(EVIL)]
    which = list(COMMANDS)[index // len(EVIL) % len(COMMANDS)]
    place = ("column", "label", "file")[index // len(EVIL) // len(COMMANDS) % 3]
    x = rng.normal(size=90)
    y = x + rng.normal(size=90)
    label = np.where(x > 0, evil if place == "label" else "yes", "no")
    name = evil if place == "column" else "a"
    file = evil.replace("/", "_").replace("\0", "")[:60] if place == "file" else "data"
    path = folder / f"{file}.csv"
    quoted = [f'"{text}"' for text in (name.replace('"', '""'), "y")]
    cells = [str(text).replace('"', '""') for text in label]
    rows = [f'{a},{b},"{c}"' for a, b, c in zip(x, y, cells, strict=True)]
    path.write_text("\n".join([",".join([*quoted, "label"]), *rows]) + "\n", newline="")
    other = "label" if place == "label" else "y"
    sides = ["--x", "0", "--y", other]
    if which == "estimate" and other == "label":
        sides += ["--budget", "fast"]
    if which == "lags" and other == "label":
        sides += ["--method", "neighbours"]
    arguments = {"rank": ["--target", other], "matrix": []}.get(which, sides)
    first = [] if "--method" in arguments or other == "label" else COMMANDS[which]
    page = folder / "page.html"
    with telling(f"{which} with {evil[:60]!r} as a {place}"):
        flags = ["--report", str(page)] if index % 2 else []
        if which == "lags":
            first = ["--max-lag", "1", "--permutations", "19"]
        code, out, err = command(which, str(path), *arguments, *first, *flags)
        check_printed(code, err)
        expect(not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", out), ascii(out))
        if code:
            return "line"
        if flags:
            parser = _Page()
            parser.feed(page.read_text(encoding="utf-8"))
            expect(not parser.bad, parser.bad, "executed")
    return "warning" if err else "number"


# --- surroundings --------------------------------------------------------------------------------


@cache
def samples() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """x and y of two columns, and a label."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(120, 2))
    y = x[:, :1] + rng.normal(size=(120, 2))
    return x, y, (y[:, 0] > 0).astype(int)


def _estimated(*sides: Any, **options: Any) -> Any:
    found = mb.estimate(*sides, budget="fast", **options)
    return found.nats, found.interval, found.p_value, [w.code for w in found.warnings]


def _learnt(name: str) -> Any:
    """A fit, an evaluation and both values of an estimator."""
    estimator = copy.deepcopy(_made(name))
    x, y = (torch.from_numpy(side).float() for side in samples()[:2])
    history = mb.fit(estimator, x, y, steps=4, batch_size=30, seed=0)
    found = [*history]
    if name != "ratio":
        found.append(mb.evaluate(estimator, (x, y), seed=0, progress=False).nats)
    return found


@cache
def _made(name: str) -> Any:
    """An estimator or a penalty, made with nothing around."""
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore", mb.PenaltyWarning)
        torch.manual_seed(3)
        if name == "MIPenalty":
            return mb.MIPenalty(2, 2)
        if name == "TCPenalty":
            return mb.TCPenalty([2, 2])
        if name == "MIPenalty of CLUB":
            return mb.MIPenalty(mb.CLUB(2, 2, 8))
        return mb.Ratio(2, 2, 8) if name == "ratio" else mb.ESTIMATORS[name](2, 2, 8)


def _penalised(name: str) -> Any:
    """Values of a penalty that learns between them, though not within inference mode.

    Where gradients are off, it cannot know that x comes from an encoder.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", mb.PenaltyWarning)
        penalty = copy.deepcopy(_made(name)).train("inference" not in "".join(_without))
        x, y = (torch.from_numpy(side).float() for side in samples()[:2])
        found = []
        for _ in range(3):
            z = x.clone().requires_grad_(not _without)
            value = penalty(z, y)
            found.append(value.item())
            if value.requires_grad:
                value.backward()
                expect(bool(z.grad.isfinite().all()), z.grad)
    return found


def measures() -> dict[str, Callable[[], Any]]:
    """What is run in odd surroundings, by its name."""
    x, y, label = samples()
    both = np.column_stack([x, y, label])
    return {
        "estimate": lambda: _estimated(x, y),
        "estimate of a label": lambda: _estimated(x, label, permutations=3),
        "estimate given": lambda: _estimated(x[:, 0], y, given=x[:, 1]),
        **{
            f"estimate by {name}": partial(_estimated, x, y, methods=name)
            for name in ("gaussian", "ksg", "codes", "copula_model")
        },
        "estimate of two labels": lambda: _estimated(x[:, 0] > 0, label, permutations=3),
        "rank": lambda: mb.rank(np.hstack([x, y]), label, given="selected").columns,
        "rank for numbers": lambda: mb.rank(y, x[:, 0]).columns,
        "matrix": lambda: mb.matrix(both).nats.tolist(),
        "lags": lambda: mb.lags(x[:, 0], y[:, 0], max_lag=1, permutations=9, transfer=True).rows,
        "entropy": lambda: mb.entropy(x),
        "decompose": lambda: repr(mb.decompose(x[:, 0], x[:, 1], label, budget="fast")),
        **{f"fit of {name}": partial(_learnt, name) for name in (*mb.ESTIMATORS, "ratio")},
        **{
            name: partial(_penalised, name)
            for name in ("MIPenalty", "MIPenalty of CLUB", "TCPenalty")
        },
    }


_plain: dict[tuple[str, str], str] = {}
_without: list[str] = []  # gradients, or learning: as where a number is to be compared


def surroundings() -> list[tuple[str, str]]:
    """Every pair of what is run and where."""
    places = (*SURROUNDINGS, "four threads at once", "a forked process")
    return [(name, place) for place in places for name in measures()]


def run_surrounded(index: int, rng: np.random.Generator, folder: Path) -> str:
    """A measure whose number must be that without anything around, to the last digit."""
    name, place = surroundings()[index % len(surroundings())]
    call = measures()[name]
    with telling(f"{name}, {place}"):
        off = "Penalty" in name and re.search("inference|no gradients", place)
        still = off[0] if off else ""
        if (name, still) not in _plain:
            _without[:] = [still] * bool(still)
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                _plain[name, still] = repr(call())
            _without.clear()
        plain = _plain[name, still]
        state = torch.get_rng_state()
        if place == "four threads at once":
            found = odd_values.in_threads(lambda: repr(call()))
        elif place == "a forked process":
            found = [forked(lambda: repr(call()), folder)]
        else:
            try:
                with SURROUNDINGS[place]():
                    found = [repr(call())]
            except Exception as error:
                check_message(error)
                return "line"
        if place == "two threads of torch" or off:  # torch may add in another order there
            found = [_rounded(text) for text in found]
            expect(found == [_rounded(plain)], (found, plain))
        else:
            expect(found == [plain] * len(found), (found, plain))
        expect(torch.equal(state, torch.get_rng_state()), "the caller's generator has moved")
    return "number"


def _rounded(text: str) -> list[str]:
    return [f"{float(n):.4f}" for n in re.findall(r"-?\d+\.\d+(?:e-?\d+)?", text)]


# --- odd arguments -------------------------------------------------------------------------------


@cache
def questions() -> dict[str, Callable[[Any], Any]]:
    """Calls that are given an odd argument in place of samples."""
    x, y, label = samples()
    x, y, label = x[:60], y[:60], label[:60]
    a, b = (torch.from_numpy(side).float() for side in (x, y))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        penalty, trained = mb.MIPenalty(2, 2), mb.CLUB(2, 2, 8)
    fast = partial(mb.estimate, budget="fast")
    return {
        "estimate x": lambda v: fast(v, y),
        "estimate y": lambda v: fast(x, v),
        "estimate both": lambda v: fast(v, v),
        "estimate given": lambda v: fast(x, y, given=v),
        "estimate groups": lambda v: fast(x, y, groups=v, methods="gaussian"),
        "rank table": lambda v: mb.rank(v, y[:, 0]),
        "rank target": lambda v: mb.rank(x, v),
        "matrix": lambda v: mb.matrix(v),
        "matrix right": lambda v: mb.matrix(x, v),
        "lags x": lambda v: mb.lags(v, y[:, 0], max_lag=1, permutations=9),
        "lags y": lambda v: mb.lags(x[:, 0], v, max_lag=1, permutations=9),
        "entropy": lambda v: mb.entropy(v),
        "total_correlation": lambda v: mb.total_correlation(v, y, budget="fast"),
        "decompose": lambda v: mb.decompose(x[:, 0], v, label, budget="fast"),
        **{
            f"{name}": partial(lambda name, v: mb.CLASSICAL[name]()(v, y), name)
            for name in mb.CLASSICAL
        },
        **{
            f"value of {name}": partial(_value_of, name, b)
            for name in mb.ESTIMATORS
        },
        "fit x": lambda v: mb.fit(copy.deepcopy(trained), v, b, steps=2),
        "fit y": lambda v: mb.fit(copy.deepcopy(trained), a, v, steps=2),
        "evaluate": lambda v: mb.evaluate(trained, (v, b), progress=False),
        "penalty x": lambda v: _penalty_of(penalty, v, b),
        "penalty y": lambda v: _penalty_of(penalty, a, v),
    }  # fmt: skip


def _value_of(name: str, b: torch.Tensor, v: Any) -> Any:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return mb.ESTIMATORS[name](2, 2, 8)(v, b)


def _penalty_of(penalty: Any, x: Any, y: Any) -> Any:
    penalty = copy.deepcopy(penalty)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", mb.PenaltyWarning)
        value = penalty(x, y)
    expect(all(p.isfinite().all() for p in penalty.parameters()), "weights that are no numbers")
    return value


@cache
def arguments() -> list[tuple[str, str, Any]]:
    """Every call with every odd argument and every odd setting."""
    x, y, _ = samples()
    found: list[tuple[str, str, Any]] = [
        (name, kind, None) for name in questions() for kind in odd_values.odd_arguments()
    ]
    settings: dict[str, tuple[Callable[..., Any], dict[str, tuple[Any, ...]]]] = {
        "estimate": (lambda **o: mb.estimate(x, y, **{"budget": "fast"} | o),
                     odd_values.ESTIMATE_SETTINGS),
        "rank": (lambda **o: mb.rank(x, y[:, 0], **o), odd_values.TABLE_SETTINGS),
        "matrix": (lambda **o: mb.matrix(x, **o), odd_values.TABLE_SETTINGS),
        "lags": (lambda **o: mb.lags(x[:, 0], y[:, 0], **{"permutations": 9, "max_lag": 1} | o),
                 odd_values.LAG_SETTINGS),
    }  # fmt: skip
    for name, (call, odd) in settings.items():
        for key, values in odd.items():
            found += [
                (name, f"{key}={value!r:.60}", partial(call, **{key: value})) for value in values
            ]
    return found


def run_argument(index: int, rng: np.random.Generator, folder: Path) -> str:
    """A call with something odd: a result that can be, or one clear line."""
    name, kind, call = arguments()[index % len(arguments())]
    if call is None:
        call = partial(questions()[name], odd_values.odd_arguments()[kind]())
    with telling(f"{name} of {kind}"), _elsewhere(folder):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                found = call()
        except Broken:
            raise
        except Exception as error:
            check_message(error)
            return "line"
        if isinstance(found, mb.Estimate):
            check_value(found.nats, *found.interval)
        elif isinstance(found, torch.Tensor | float):
            expect(math.isfinite(found), found)
        return "warning" if getattr(found, "warnings", ()) else "number"


@contextlib.contextmanager
def _elsewhere(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def run_table(index: int, rng: np.random.Generator, folder: Path) -> str:
    """Columns of odd kinds side by side."""
    n = int(rng.choice([5, 12, 21, 40, 90], p=[0.05, 0.05, 0.3, 0.3, 0.3]))
    usable = odd_values.USABLE
    kinds = [usable[int(k)] for k in rng.integers(len(usable), size=rng.integers(2, 6))]
    if rng.random() < 0.1:
        kinds[0] = odd_values.REFUSED[int(rng.integers(len(odd_values.REFUSED)))]
    copies = [int(k) for k in rng.integers(len(kinds), size=rng.integers(2))]
    which = list(odd_values.CALLS)[index % len(odd_values.CALLS)]
    with telling(f"{which} of {n} rows of {kinds} and copies of {copies}"):
        table = odd_values.frame(kinds, copies, n, int(rng.integers(2**32)))
        return odd_values.check_table(table, odd_values.CALLS[which])


# --- outputs and streams -------------------------------------------------------------------------

TARGETS = (
    "new", "existing", "read-only", "in a read-only folder", "a folder", "no folder", "/dev/full",
    "/dev/null", "/dev/stdout", "a link to itself", "a link to nothing", "a link", "a pipe",
    "the data", "too long", "no ending", "a zero byte", "0 bytes free", "300 bytes free",
    "5000 bytes free",
)  # fmt: skip
FLAGS = {
    "estimate": ("--out", "--report", "--plot"),
    "rank": ("--out", "--report", "--plot"),
    "lags": ("--out", "--report", "--plot"),
    "matrix": ("--out", "--report", "--plot", "--network"),
}
ENDINGS = {"--out": ".json", "--report": ".html", "--plot": ".png", "--network": ".svg"}


def run_output(index: int, rng: np.random.Generator, folder: Path) -> str:
    """An output that cannot be written, or may not be: printed all the same, and nothing lost."""
    cases = [(t, c, f) for t in TARGETS for c, flags in FLAGS.items() for f in flags]
    target, which, flag = cases[index % len(cases)]
    return forked(partial(_output, target, which, flag, folder), folder, nobody=True)


def _output(target: str, which: str, flag: str, folder: Path) -> str:
    data, end = folder / "data.csv", ENDINGS[flag]
    data.write_bytes(whole_files()["data.csv"])
    kept = folder / f"kept{end}"
    kept.write_text("of before")
    kept.chmod(0o640)
    closed = folder / "closed"
    closed.mkdir()
    paths = {
        "new": folder / f"new{end}", "existing": kept, "read-only": kept,
        "in a read-only folder": closed / f"new{end}", "a folder": closed,
        "no folder": folder / "none" / f"new{end}", "a link to itself": folder / f"loop{end}",
        "a link to nothing": folder / f"link{end}", "a link": folder / f"link{end}",
        "a pipe": folder / f"pipe{end}", "the data": data, "too long": folder / ("a" * 300 + end),
        "no ending": folder / "plain", "a zero byte": folder / f"a\0{end}",
    }  # fmt: skip
    path = paths.get(target, Path(target) if target.startswith("/") else kept)
    if target == "read-only":
        kept.chmod(0o440)
    if target == "in a read-only folder":
        closed.chmod(0o555)
    if target == "a link to itself":
        path.symlink_to(path)
    if target in ("a link", "a link to nothing"):
        path.symlink_to(kept if target == "a link" else folder / f"none{end}")
    if target == "a pipe":
        os.mkfifo(path)
    limited = re.match(r"(\d+) bytes", target)
    before = {each: each.read_bytes() for each in (data, kept)}
    if limited:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(limited[1]), -1))
    sides = {"rank": ["--target", "y"], "matrix": []}.get(which, ["--x", "x", "--y", "y"])
    with telling(f"{which} {flag}: {target}"):
        code, out, err = command(
            which, str(data), *sides, *COMMANDS[which], "--json", flag, str(path)
        )
        if limited:
            resource.setrlimit(resource.RLIMIT_FSIZE, (-1, -1))
        check_printed(code, err)
        written = path in before or target == "a link"
        for each, text in before.items():
            own = code == 0 and written and each in (path, kept)
            expect(own or each.read_bytes() == text, f"{each.name} was changed", "lost")
        if code != 2:
            check_record(out)  # printed in any case
        if target == "read-only":
            expect(code != 0, "a read-only file was replaced", "lost")
        if target == "existing" and code == 0:
            expect(stat.S_IMODE(kept.stat().st_mode) == 0o640, "other permissions", "lost")
        if code == 0 and target in ("new", "existing", "a link", "a link to nothing"):
            expect(path.exists() and path.stat().st_size > 100, "nothing was written", "lost")
        leftovers = [each.name for each in folder.rglob(".*.part*")]
        expect(not leftovers, leftovers, "lost")
        return "number" if code == 0 else "line"


STREAMS = ("file", "closed", "full", "broken")


def run_stream(index: int, rng: np.random.Generator, folder: Path) -> str:
    """Standard files that are closed, full or broken."""
    lines = {
        "tasks": ["tasks"], "help": ["--help"], "bad": ["estimate", "no such file"],
        **{which: [which, "data.csv", *sides, *COMMANDS[which], "--out", "out"]
           for which, sides in {"estimate": ["--x", "x", "--y", "y"], "rank": ["--target", "y"],
                                "matrix": [], "lags": ["--x", "x", "--y", "y"]}.items()},
    }  # fmt: skip
    cases = [(i, o, e, k) for i in STREAMS[:2] for o in STREAMS for e in STREAMS for k in lines]
    stdin, stdout, stderr, which = cases[index % len(cases)]
    (folder / "data.csv").write_bytes(whole_files()["data.csv"])
    with telling(f"{which} with stdin {stdin}, stdout {stdout}, stderr {stderr}"):
        code = forked(partial(_streamed, lines[which], (stdin, stdout, stderr), folder), folder)
        out, err = ((folder / name).read_text() for name in ("stdout", "stderr"))
        expect("Traceback" not in err and "Exception ignored" not in err, err, "traceback")
        expect(len(err.splitlines()) <= 1, err, "traceback")
        expect(code in (0, 1, 2, 141), code, "traceback")
        if stdout in ("closed", "full"):
            expect(code != 0, f"exit code {code} although nothing was printed", "lost")
        if stdout == "file" and which != "bad":
            expect(code == 0 and len(out) > 100, (code, out, err), "lost")
        if which in COMMANDS and stdout != "closed":  # noticed before any work is done
            expect((folder / "out").exists(), "--out was not written", "lost")
    return "number" if code == 0 else "line"


def _streamed(line: list[str], streams: Sequence[str], folder: Path) -> int:
    """The exit code of a command whose standard files are these, as Python finds them."""
    os.chdir(folder)
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        target = os.open(folder / name, os.O_RDWR | os.O_CREAT)
        if streams[number] == "full":
            target = os.open("/dev/full", os.O_WRONLY)
        if streams[number] == "broken":
            end, target = os.pipe()
            os.close(end)
        os.dup2(target, number)
        os.close(target)
        mode = "r" if number == 0 else "w"
        setattr(sys, name, open(number, mode, closefd=False))  # noqa: SIM115
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if streams[number] == "closed":
            os.close(number)
            setattr(sys, name, None)
    code = mibounds_main(line)
    try:  # as Python does at its end
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:
        return 120
    return code


# --- kills ---------------------------------------------------------------------------------------


def run_kill(index: int, rng: np.random.Generator, folder: Path) -> str:
    """Killed one to three times, or run by two at once: in the end the same result."""
    jobs = {"matrix": _matrix_job, "experiment": _experiment_job, "file": _file_job}
    name = list(jobs)[index % len(jobs)]
    way = "two at once" if index // len(jobs) % 3 == 2 else "killed"
    job = jobs[name]
    with telling(f"{name}, {way}"):
        begin = time.perf_counter()
        whole = forked(partial(job, folder / "whole"), folder)
        seconds = time.perf_counter() - begin
        for _ in range(int(rng.integers(1, 4))):
            child = start(partial(job, folder / "again"))
            other = start(partial(job, folder / "again")) if way == "two at once" else None
            time.sleep(float(rng.uniform(0, seconds)))
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            if other is not None:
                expect(os.waitpid(other, 0)[1] == 0, "the other one failed", "lost")
        again = forked(partial(job, folder / "again"), folder)
        expect(again == whole, (again, whole), "lost")
    return "number"


def _matrix_job(folder: Path) -> Any:
    blocks.PAIRS = 4_000
    x = np.random.default_rng(0).normal(size=(100, 24))
    x[:, 1::2] += x[:, ::2]
    found = mb.matrix(x, budget="default", out=folder)
    return found.nats.tolist(), found.p_values.tolist()


def _experiment_job(folder: Path) -> Any:
    from experiments import Config, Experiment, Options, reproduce
    from experiments.runner import Cell, read_records

    class Toy(Experiment[Config]):
        """Multiplies the seed."""

        config, makes, costs, quick, paper, notes = Config, "numbers", "nothing", {}, {}, ""

        def cells(self, config: Any) -> list[Cell]:
            return [Cell("correct", f"t{k}", "club", seed) for k in range(6) for seed in range(4)]

        def run(self, config: Any, cells: Sequence[Cell]) -> list[list[dict[str, Any]]]:
            time.sleep(0.005 * len(cells))
            return [[{"task": c.task, "metric": "mse", "value": float(c.seed)}] for c in cells]

        def draw(self, config: Any, records: Any, summary: Any) -> dict[str, Any]:
            return {}

    options = Options(out=str(folder), jobs=1)
    text = reproduce("toy", Toy(), Config(device="cpu"), options, None, lambda text: None)
    lines = [line for line in text.splitlines() if "s of computing" not in line]
    return lines, [(r.cell.name, r.rows) for r in read_records(folder / "toy")]


def _file_job(folder: Path) -> Any:
    """Writes a file again and again; whenever it ends, one of them is there, whole."""
    folder.mkdir(exist_ok=True)
    path = folder / "out.json"
    for k in range(200):
        if path.exists():
            found = json.loads(path.read_text())
            expect(found == [found[0]] * 2000, "half a file", "lost")
        with replacing(path) as part:
            part.write_text(json.dumps([k] * 2000))
    return json.loads(path.read_text())


def start(call: Callable[[], Any]) -> int:
    """Run something in a process that is forked from this one; its number."""
    child = os.fork()
    if not child:
        code = 1
        with contextlib.suppress(BaseException):
            signal.setitimer(signal.ITIMER_REAL, 60)
            close_pipe()
            call()
            code = 0
        os._exit(code)
    return child


def forked(call: Callable[[], Any], folder: Path, nobody: bool = False) -> Any:
    """What a call gives in a process that is forked from this one."""
    answer = Path(tempfile.mkdtemp(dir=folder.parent)) / "answer"
    if nobody:
        for each in (folder, folder.parent, answer.parent):
            each.chmod(0o777)

    def work() -> None:
        with contextlib.suppress(PermissionError):
            if nobody and os.geteuid() == 0:  # to whom no file is read-only
                os.setresuid(65534, 65534, 65534)
        try:
            found = ["value", call()]
        except Broken as error:
            found = ["broken", [error.what, error.detail]]
        except Exception as error:
            found = ["broken", ["traceback", repr(error)]]
        answer.write_text(json.dumps(found))

    child = start(work)
    status = os.waitpid(child, 0)[1]
    try:
        expect(status == 0, f"ended with status {status}", "crash")
        kind, value = json.loads(answer.read_text())
    finally:
        shutil.rmtree(answer.parent)
    if kind == "broken":
        raise Broken(*value)
    return value


# --- records and states --------------------------------------------------------------------------


def run_records(index: int, rng: np.random.Generator, folder: Path) -> str:
    """Damaged records of an experiment: no other number comes back, no other file is touched."""
    from experiments import Config
    from experiments.runner import Cell, Record
    from experiments.runner.records import Records

    out, bystander = folder / "out", folder / "bystander.json"
    bystander.write_text("mine")
    said: list[str] = []
    records, config = Records(out, said.append), Config()
    whole = []
    for seed in range(6):
        cell = Cell("correct", "one", "club", seed)
        row = {"task": "one", "metric": "mse", "value": float(rng.normal())}
        whole.append(Record(cell, config.settings_of(cell), (row,), 1.0, "command", {"torch": "2"}))
        records.write(whole[-1])
    apart = bool(index % 2)
    if not apart:
        records.join([record.cell for record in whole])
    files = sorted(path for path in out.rglob("*.json*") if path.is_file())
    path = files[int(rng.integers(len(files)))]
    data, what = damaged(path.name, path.read_bytes(), rng)
    path.write_bytes(data)
    with telling(f"{path.name}: {what}"):
        found = Records(out, said.append).read(config)
        known = {record.cell: record for record in whole}
        for cell, record in found.items():
            expect(cell in known, f"another cell, {cell}")
            expect(record.rows == known[cell].rows, f"{record.rows} for {known[cell].rows}")
        lines = {record.to_json() for record in whole}
        if apart:
            expect(len(found) >= 5, "a cell of another file is missing", "lost")
        else:
            there = [line for line in data.decode(errors="replace").split("\n") if line in lines]
            expect(len(found) >= len(set(there)), "a whole line is missing", "lost")
        other = Records(out, said.append)
        other.join([record.cell for record in whole])
        expect(len(Records(out, said.append).read(config)) == len(found), "joined", "lost")
        expect(bystander.read_text() == "mine", "another file was touched", "lost")
        expect(all("\n" not in text and len(text) < 2000 for text in said), said, "traceback")
    return "number" if len(found) == 6 else "warning"


def run_state(index: int, rng: np.random.Generator, folder: Path) -> str:
    """A changed state of a penalty: refused and nothing changed, or numbers come of it."""
    kinds = ("default", "club", "club_sample", "mine")
    kind = kinds[index % len(kinds)]
    x, y = (torch.from_numpy(side).float() for side in samples()[:2])

    def make(seed: int) -> Any:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            penalty = mb.MIPenalty(2, 2) if kind == "default" else mb.MIPenalty(
                mb.ESTIMATORS[kind](2, 2, 8))  # fmt: skip
            for _ in range(3):
                penalty(x, y)
        return penalty

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", mb.PenaltyWarning)
        state = copy.deepcopy(make(0).state_dict())
        what = _change(state, rng)
        other = make(1)
        before = str(other.state_dict())
        with telling(f"{kind}: {what}"):
            try:
                other.load_state_dict(state)
            except Exception as error:
                if not isinstance(error, RuntimeError):  # what torch says of keys and shapes
                    check_message(error)
                expect(str(other.state_dict()) == before, f"changed by {error}", "lost")
                return "line"
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                try:
                    values = [float(other(x, y)) for _ in range(3)]
                except Exception as error:
                    check_message(error)
                    return "line"
            expect(all(map(math.isfinite, values)) or caught, f"{values} without a word")
    return "warning" if caught else "number"


ODD = (None, -1, 0, 10**12, math.nan, math.inf, "x", [], {}, torch.zeros(1), torch.tensor(math.nan),
       torch.zeros(2, 3, 4), torch.full((100,), math.inf), True, b"x", (1, 2))  # fmt: skip


def _change(state: Any, rng: np.random.Generator) -> str:
    """Change one entry of a state, anywhere in it."""
    where = state
    path = []
    while True:
        keys = list(where) if isinstance(where, dict) else list(range(len(where)))
        key = keys[int(rng.integers(len(keys)))]
        path.append(str(key))
        inner = where[key]
        if isinstance(inner, dict | list) and len(inner) and rng.random() < 0.85:
            where = inner
            continue
        way = int(rng.integers(3))
        if way == 0 and isinstance(where, dict):
            del where[key]
            return f"without {'/'.join(path)}"
        if way == 1 and isinstance(inner, torch.Tensor) and inner.is_floating_point():
            where[key] = torch.where(torch.rand_like(inner) < 0.5, math.nan, inner)
            return f"NaN in {'/'.join(path)}"
        where[key] = ODD[int(rng.integers(len(ODD)))]
        return f"{'/'.join(path)} = {where[key]!r:.40}"


# --- outliers ------------------------------------------------------------------------------------


def run_outlier(index: int, rng: np.random.Generator, folder: Path) -> str:
    """Rows far out in one batch of a training: the penalty stays a number, learns and warns."""
    sizes = (1e4, 1e5, 1e6, -1e6, 1e10, 1e20, 3e38, math.inf, -math.inf, math.nan)
    kinds = ("default", "club", "club_sample", "mine", "total correlation")
    size = sizes[index % len(sizes)]
    kind = kinds[index // len(sizes) % len(kinds)]
    side = index // len(sizes) // len(kinds) % 2
    rows = rng.choice(128, size=int(rng.integers(1, 3)), replace=False)
    g = torch.Generator().manual_seed(int(rng.integers(2**31)))

    def make() -> Any:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            if kind == "total correlation":
                return mb.TCPenalty([2, 2], inner_steps=3)
            if kind == "default":
                return mb.MIPenalty(2, 2, inner_steps=3)
            return mb.MIPenalty(mb.ESTIMATORS[kind](2, 2, 16), inner_steps=3, lr=5e-3)

    one, twin = make(), make()
    far = int(rng.integers(5, 25))
    values: list[tuple[float, float]] = []
    with telling(f"{kind}: {size:g} in {len(rows)} rows of {'xy'[side]} in step {far}"):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for step in range(60):
                x = torch.randn(128, 2, generator=g)
                y = x + 0.5 * torch.randn(128, 2, generator=g)
                bad = [x.clone(), y.clone()]
                if step == far:
                    bad[side][rows, 0] = size
                z = bad[0].requires_grad_()
                value = one(z, bad[1])
                value.backward()
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    values.append((float(value), float(twin(x, y))))
                if math.isfinite(size):
                    expect(math.isfinite(values[-1][0]), f"{value} in step {step}")
                    expect(bool(z.grad.isfinite().all()), f"no gradient in step {step}")
        said = [str(each.message) for each in caught]
        expect(bool(said), "no word of it")
        for text in said:
            expect("\n" not in text and len(text) < 600, text, "traceback")
        own, usual = (np.mean([v[k] for v in values[-10:]]) for k in (0, 1))
        expect(bool(np.isfinite(own)), f"{own} at the end")
        expect(own > 0.5 * usual - 0.05, f"{own:.3f} at the end, {usual:.3f} without it")
    return "warning"


# --- all kinds -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Kind:
    """Cases of one kind.

    Args:
        title: in the table.
        run: from the index of a case, its generator and an empty folder to how it ended.
        share: of the budget.
        count: cases that there are; as many as are asked for if left out.
        limit: seconds of a case.
    """

    title: str
    run: Callable[[int, np.random.Generator, Path], str]
    share: float
    count: Callable[[], int] | None = None
    limit: float = 10.0

    def indices(self, budget: int, seed: int) -> list[int]:
        """The cases of a study: a random choice where there are more."""
        asked = math.ceil(budget * self.share)
        if self.count is None:
            return list(range(asked))
        there = list(range(self.count()))
        random.Random(seed).shuffle(there)
        return there[:asked]


KINDS = {
    "files": Kind("damaged files of 13 kinds, read by four commands", run_damaged, 1.0),
    "corpus": Kind(
        "the corpus of broken files", run_corpus, 0.1, lambda: 4 * len(broken_files())
    ),
    "pickles": Kind("pickles in files that are read", run_pickle, 0.05,
                    lambda: 4 * len(pickled_files(Path("marker")))),
    "names": Kind("markup and terminal escapes in names and labels", run_name, 0.05,
                  lambda: 12 * len(EVIL), 20.0),
    "surroundings": Kind("float64 or another device by default, autocast, threads, ...",
                         run_surrounded, 0.08, lambda: len(surroundings()), 60.0),
    "arguments": Kind("odd samples and settings in Python", run_argument, 0.25,
                      lambda: len(arguments()), 30.0),
    "tables": Kind("odd columns side by side", run_table, 0.15, None, 30.0),
    "outputs": Kind("outputs that cannot be written", run_output, 0.04,
                    lambda: len(TARGETS) * sum(map(len, FLAGS.values())), 30.0),
    "streams": Kind("standard files that are closed, full or broken", run_stream, 0.03,
                    lambda: 32 * 7, 30.0),
    "kills": Kind("kill -9 and two writers, then once more", run_kill, 0.01, None, 60.0),
    "records": Kind("damaged records of experiments", run_records, 0.1),
    "states": Kind("changed states of a penalty", run_state, 0.05),
    "outliers": Kind("rows far out in a batch of a penalty", run_outlier, 0.02, None, 60.0),
}  # fmt: skip


# --- cases in processes of their own -------------------------------------------------------------

_pipe: list[Connection] = []


def close_pipe() -> None:
    """Let go of the pipe to the study, which a forked process has, too."""
    for pipe in _pipe:
        pipe.close()
    _pipe.clear()


def run_case(kind: str, index: int, seed: int) -> tuple[str, str]:
    """How a case ends, and what was seen where it fails."""
    rng = np.random.default_rng([seed, list(KINDS).index(kind), index])
    with tempfile.TemporaryDirectory(prefix="faults-") as parent:
        folder = Path(parent, "case")
        folder.mkdir()
        before = _reset_peak()
        try:
            outcome = KINDS[kind].run(index, rng, folder)
            expect(outcome in HELD, outcome)
        except Broken as error:
            return error.what, error.detail.replace(str(folder), "FOLDER")[:2000]
        except Exception as error:
            if os.environ.get("MIBOUNDS_TRACEBACK"):
                raise
            return "traceback", repr(error).replace(str(folder), "FOLDER")[:2000]
        finally:
            for each in Path(parent).rglob("closed"):
                each.chmod(0o755)
        grown = (resident_mib() or 0) - before
        if grown > GROWTH:
            return "memory", f"{grown:.0f} MiB"
    return outcome, ""


def _reset_peak() -> float:
    """Forget the peak of the memory of this process; what it has now, in MiB."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    return resident_mib("VmRSS") or 0


def _work(pipe: Connection, kind: str, indices: Sequence[int], seed: int) -> None:
    _pipe.append(pipe)
    # What the library prints by itself belongs to nobody.
    for stream in (sys.stdout, sys.stderr):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    have = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (have + ADDRESSES, -1))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    torch.set_num_threads(1)  # else threads race to mend torch's pool, which a fork leaves broken
    for index in indices:
        signal.setitimer(signal.ITIMER_REAL, KINDS[kind].limit)  # ends the process, even in C
        found = run_case(kind, index, seed)
        signal.setitimer(signal.ITIMER_REAL, 0)
        pipe.send((index, *found))


def study(
    todo: Sequence[tuple[str, Sequence[int]]],
    seed: int,
    jobs: int,
    keep: Callable[[str, dict[int, tuple[str, str]]], None],
) -> None:
    """Run chunks of cases in processes.

    Args:
        todo: kind and indices of each chunk.
        seed: of all cases.
        jobs: processes at once.
        keep: called with the outcomes of each finished chunk.
    """
    context = multiprocessing.get_context("fork")
    waiting = [(kind, list(indices), {}) for kind, indices in todo]
    waiting.reverse()
    running: dict[Connection, tuple[Any, str, list[int], dict[int, tuple[str, str]]]] = {}
    while waiting or running:
        while waiting and len(running) < jobs:
            kind, indices, done = waiting.pop()
            here, there = context.Pipe(duplex=False)
            process = context.Process(target=_work, args=(there, kind, indices, seed))
            process.start()
            there.close()
            running[here] = process, kind, indices, done
        for here in wait(list(running)):
            assert isinstance(here, Connection)
            process, kind, indices, done = running[here]
            try:
                index, *found = here.recv()
                done[index] = tuple(found)
                indices.remove(index)
                continue
            except EOFError:
                pass
            process.join()
            here.close()
            del running[here]
            if indices:  # it ended within a case
                late = process.exitcode == -signal.SIGALRM
                what = "time-out" if late else "crash"
                done[indices.pop(0)] = what, f"exit code {process.exitcode}"
            if indices:
                waiting.append((kind, indices, done))
            else:
                keep(kind, done)


def count(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Tried, held and failed by kind.

    Args:
        rows: with a kind and the number of cases by outcome.
    """
    found = []
    for kind in dict.fromkeys(row["kind"] for row in rows):
        outcomes: Counter[str] = Counter()
        for row in rows:
            if row["kind"] == kind:
                outcomes.update(row["outcomes"])
        held = {name: outcomes[name] for name in HELD}
        failed = {name: outcomes[name] for name in FAILED if outcomes[name]}
        found.append({
            "kind": kind, "title": KINDS[kind].title, "tried": outcomes.total(),
            "held": sum(held.values()), "failed": sum(failed.values()), **held, "failures": failed,
        })  # fmt: skip
    order = list(KINDS)
    return sorted(found, key=lambda row: order.index(row["kind"]))


def run(budget: int, seed: int, jobs: int, kinds: Sequence[str], out: Path) -> dict[str, Any]:
    """Run what is missing of a study, and write its counts."""
    chosen = " ".join(["", "--kinds", ",".join(kinds)]) if list(kinds) != list(KINDS) else ""
    settings = {
        "command": f"python benchmarks/faults.py run --budget {budget} --seed {seed}{chosen}",
        "budget": budget, "seed": seed, "kinds": list(kinds), "mibounds": mb.__version__,
        "python": platform.python_version(), "torch": torch.__version__, "numpy": np.__version__,
    }  # fmt: skip
    kept = KeptRows(out / "faults.json", settings)
    chunks = []
    for kind in kinds:
        size = max(2, CHUNK if KINDS[kind].limit < 15 else CHUNK // 4)
        indices = KINDS[kind].indices(budget, seed)
        for first in range(0, len(indices), size):
            if kept.find("chunks", kind=kind, first=first) is None:
                chunks.append((kind, first, indices[first : first + size]))

    firsts = {(kind, tuple(sorted(indices))): first for kind, first, indices in chunks}

    def keep(kind: str, done: dict[int, tuple[str, str]]) -> None:
        failures = [
            {"index": index, "outcome": what, "detail": detail}
            for index, (what, detail) in sorted(done.items()) if what not in HELD
        ]  # fmt: skip
        kept.add("chunks", {
            "kind": kind, "first": firsts[kind, tuple(sorted(done))],
            "outcomes": Counter(what for what, _ in done.values()), "failures": failures,
        })  # fmt: skip
        print(
            f"{kept.seconds:6.0f} s  {kind}: {len(done)} tried, {len(failures)} failed", flush=True
        )
        for failure in failures[:20]:
            print(f"    {failure['index']} {failure['outcome']}: {failure['detail'][:300]}")

    study([(kind, indices) for kind, _, indices in chunks], seed, jobs, keep)
    rows = kept.rows("chunks")
    failures = [{"kind": row["kind"], **each} for row in rows for each in row["failures"]]
    failures.sort(key=lambda each: (list(kinds).index(each["kind"]), each["index"]))
    result = {**settings, "seconds": kept.seconds, "rows": count(rows), "failures": failures}
    kept.finish(result)
    return result


def prepare(pages: bool = True) -> None:
    """Import and make once what the forked processes share.

    Args:
        pages: also draw, since a process without rights may not read the fonts.
    """
    import scipy.special  # noqa: F401

    import experiments  # noqa: F401

    torch.set_num_threads(1)
    for make in (whole_files, broken_files, samples):
        make()
    for which, flags in FLAGS.items():
        with tempfile.TemporaryDirectory() as folder:
            for flag in flags if pages else ():
                _output("new", which, flag, Path(tempfile.mkdtemp(dir=folder)))


def main() -> None:
    """Parse the command, and run it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("command", choices=["run", "one"])
    parser.add_argument("case", nargs="*", help="kind and index of one case")
    parser.add_argument("--budget", type=int, default=8000, help="damaged files")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--out", type=Path, default=Path("results/bench"))
    options = parser.parse_args()
    prepare("outputs" in (*options.kinds.split(","), *options.case[:1]))
    if options.command == "one":
        kind, index = options.case
        print(*run_case(kind, int(index), options.seed), sep="\n")
        return
    found = run(options.budget, options.seed, options.jobs, options.kinds.split(","), options.out)
    for row in found["rows"]:
        print(f"{row['title']}: {row['tried']} tried, {row['held']} held, {row['failed']} failed")


if __name__ == "__main__":
    main()
