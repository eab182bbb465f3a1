"""Tables, spans and spreads in Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import SimpleNamespace


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A Markdown table.

    Example:
        >>> print(table(["q", "nats"], [["q(y|x)", 2]]))
        | q | nats |
        |---|---|
        | q(y\\|x) | 2 |
    """
    lines = [list(head), *([str(cell) for cell in row] for row in rows)]
    if len({len(line) for line in lines}) > 1:
        raise ValueError("Expected rows as long as the head but got others; fill empty cells.")
    texts = ["| " + " | ".join(c.replace("|", "\\|") for c in line) + " |" for line in lines]
    return "\n".join([texts[0], "|---" * len(head) + "|", *texts[1:]])


def span(values: Iterable[float], spec: str = ".1f") -> str:
    """The least and the largest.

    Example:
        >>> span([3.14, 1, 2])
        '1.0 to 3.1'
    """
    values = list(values)
    return f"{min(values):{spec}} to {max(values):{spec}}"


def spread(entry: SimpleNamespace | None, spec: str = ".1f") -> str:
    """Mean ± standard deviation over the seeds; the mean where there is one seed.

    Example:
        >>> spread(SimpleNamespace(mean=1.25, sd=0.5))
        '1.2 ± 0.5'
    """
    if entry is None:
        return ""
    if entry.sd is None:
        return f"{entry.mean:{spec}}"
    return f"{entry.mean:{spec}} ± {entry.sd:{spec}}"
