"""What the command line prints: lines, tables, a progress bar."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from typing import Any

from mibounds.progress import progress_bar

__all__ = ["one_line_of", "progress_bar", "remark", "say", "say_table"]


def say(text: str) -> None:
    """Print, even if the terminal's encoding lacks a character.

    Example:
        >>> say("ρ")
        ρ
    """
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    print(text.encode(encoding, "backslashreplace").decode(encoding))


def remark(text: str) -> None:
    """Print to standard error, apart from the results.

    Example:
        >>> remark("a cell is computed again")
    """
    print(f"mibounds: {text}", file=sys.stderr)


def say_table(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print aligned columns.

    Example:
        >>> say_table(("name", "nats"), [("gaussian-2", 2.0)])
        name        nats
        gaussian-2  2.0
    """
    cells = [[str(cell) for cell in row] for row in [header, *rows]]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for row in cells:
        say("  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip())


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
