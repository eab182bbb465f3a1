"""What the command line prints: lines, tables, a progress bar."""

from __future__ import annotations

import contextlib
import json
import re
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from mibounds.cli.commands import Failure
from mibounds.progress import progress_bar

__all__ = [
    "as_json",
    "flush",
    "one_line_of",
    "printable",
    "progress_bar",
    "remark",
    "say",
    "say_table",
]


def printable(text: str) -> str:
    r"""The same without characters that a terminal would act on, other than the end of a line.

    Example:
        >>> printable("ρ\x1b[31m")
        'ρ\\x1b[31m'
    """
    return re.sub(r"[^\n -~]", lambda c: c[0] if c[0].isprintable() else ascii(c[0])[1:-1], text)


def as_json(record: Any) -> str:
    r"""A record as JSON that any parser and any terminal takes: ASCII, no NaN, no infinity.

    Example:
        >>> print(as_json({"name": "λ"}))
        {
          "name": "\u03bb"
        }
    """
    return json.dumps(record, indent=2, allow_nan=False)


def say(text: str) -> None:
    """Print, even if the terminal's encoding lacks a character.

    Example:
        >>> say("ρ")
        ρ
    """
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    with _printing():
        print(printable(text).encode(encoding, "backslashreplace").decode(encoding), flush=True)


def flush() -> None:
    """Print what has not been printed yet."""
    with _printing():
        sys.stdout.flush()


@contextlib.contextmanager
def _printing() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:  # the reader has seen enough
        raise
    except OSError as error:
        raise Failure(
            f"the output could not be printed: {error.strerror}; make room, or print elsewhere"
        ) from error


def remark(text: str) -> None:
    """Print one line to standard error, apart from the results.

    Example:
        >>> remark("a cell is computed again")
    """
    with contextlib.suppress(OSError):  # where nobody reads it, the exit code still tells
        print(f"mibounds: {printable(' '.join(text.split()))}", file=sys.stderr, flush=True)


def say_table(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print aligned columns.

    Example:
        >>> say_table(("name", "nats"), [("gaussian-2", 2.0)])
        name        nats
        gaussian-2  2.0
    """
    cells = [[printable(str(cell)) for cell in row] for row in [header, *rows]]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ("  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) for row in cells)
    say("\n".join(line.rstrip() for line in lines))


def one_line_of(box: str) -> str:
    """A boxed message of tyro on one line, without the help below the rule.

    Example:
        >>> one_line_of("╭─ Error ─╮\\n│ No such │\\n│ flag    │\\n│ ─────── │\\n│ See -h  │")
        'No such flag'
    """
    plain = re.sub(r"\x1b\[[0-9;]*m", "", box)
    lines = [line.strip().strip("│|").strip() for line in plain.splitlines()]
    parts: list[list[str]] = [[]]
    for line in lines[1:]:  # the first is the title
        if re.fullmatch(r"[─╰╯=+-]{3,}", line):
            parts.append([])
        else:
            parts[-1].append(line)
    told = [" ".join(part) for part in parts if part]
    kept = told[:1] + [t for t in told[1:] if t.startswith(("Perhaps", "Available"))]
    return "; ".join(kept).removeprefix("Error parsing ") or " ".join(plain.split())
