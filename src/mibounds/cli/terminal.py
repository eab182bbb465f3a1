"""What the command line prints: lines, tables, a progress bar."""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

Progress = Callable[[float, str], None]


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


@contextlib.contextmanager
def progress_bar(what: str = "estimating", period: float = 30.0) -> Iterator[Progress | None]:
    """A progress bar on a terminal; nothing if standard error is not one.

    Args:
        what: the first word beside the bar.
        period: seconds of progress from which the remaining time is estimated.

    Yields:
        A function of the share of the work that is done and a word about it; None without a bar.

    Example:
        >>> with progress_bar() as progress:
        ...     print(progress)  # the output of this example is no terminal
        None
    """
    if not sys.stderr.isatty():
        yield None
        return
    try:
        from rich.console import Console
        from rich.markup import escape
        from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar
    except ImportError:
        yield None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(),
    )
    console = Console(stderr=True)
    with Bar(*columns, console=console, transient=True, speed_estimate_period=period) as bar:
        task = bar.add_task(escape(what), total=1.0)
        yield lambda done, what: bar.update(task, completed=done, description=escape(what))
