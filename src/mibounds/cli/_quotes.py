"""Quotes in text files: where cells in quotes begin and end, and what speaks of a stray quote.

A quote opens a cell only at the beginning of it, and is text elsewhere (5" pipe). In quotes, two of
them stand for one, and a cell ends where a quote is followed by a delimiter or the end of a line.
pyarrow reads files in this way, too, but it goes on silently where a quote is followed by text, or
closed many rows later.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

__all__ = ["Cells", "find_cells"]

QUOTE = ord('"')
FEW = 3  # delimiters between rows in one cell, up to which they may be there by chance


class Cells(NamedTuple):
    """The cells in quotes of a text that begins with a row.

    Attributes:
        starts: places of the opening quotes.
        ends: places of the closing quotes; the length of the text for one that is not closed.
        bad: place of the first quote that closes a cell before more text; -1 if none does.
        broken: numbers of the cells with an end of line in them.
        line_ends: places of the ends of lines outside of them.
    """

    starts: np.ndarray
    ends: np.ndarray
    bad: int
    broken: np.ndarray
    line_ends: np.ndarray

    def swallowing(self, text: bytes, delimiter: bytes, columns: int) -> int | None:
        """The first cell that holds whole rows, as it does between two stray quotes."""
        for k in self.broken:
            lines = text[self.starts[k] + 1 : self.ends[k]].splitlines()
            counts = [line.count(delimiter) for line in lines]
            whole = counts[1:-1]
            sums = {*whole, counts[0] + counts[-1]}  # the outer two are parts of one row each
            if sum(whole) >= FEW and sums == {columns - 1}:
                return int(k)
        return None


def find_cells(text: bytes, delimiters: bytes) -> Cells:
    """Find the cells in quotes.

    Args:
        text: begins with a row, and may end within one.
        delimiters: each of which ends a cell.

    Example:
        >>> cells = find_cells(b'a,"b\\nc",5" pipe\\n', b",")
        >>> cells.starts, cells.ends, cells.line_ends
        (array([2]), array([6]), array([15]))
    """
    codes = np.frombuffer(text, np.uint8)
    quotes = np.flatnonzero(codes == QUOTE)
    edge = np.zeros(256, bool)
    edge[list(delimiters + b"\r\n")] = True
    # What follows the last character is unknown: if that is a quote, it may close a cell.
    opens = edge[codes[quotes - 1]] | (quotes == 0)
    last = quotes == len(text) - 1
    closes = edge[codes[np.where(last, 0, quotes + 1)]] | last
    twin, again = np.zeros((2, len(quotes)), bool)
    twin[:-1] = again[1:] = np.diff(quotes) == 1  # whether a quote comes right after it, before it
    first, second = slice(0, None, 2), slice(1, None, 2)
    if (opens | again)[first].all() and (closes | twin)[second].all():
        # Every other quote opens, and every other one closes; two in a row stay inside.
        starts, ends, bad = quotes[first][~again[first]], quotes[second][~twin[second]], -1
    else:
        starts, ends, bad = _walk(quotes, opens, closes, twin)
    ends = np.append(ends, [len(text)] * (len(starts) - len(ends))).astype(int)
    line_ends = np.flatnonzero((codes == ord("\n")) | (codes == ord("\r")))
    if not len(starts):
        return Cells(starts, ends, bad, starts, line_ends)
    cell = np.searchsorted(starts, line_ends) - 1
    outside = (cell < 0) | (line_ends > ends[cell])
    return Cells(starts, ends, bad, np.unique(cell[~outside]), line_ends[outside])


def _walk(
    quotes: np.ndarray, opens: np.ndarray, closes: np.ndarray, twin: np.ndarray
) -> tuple[np.ndarray, np.ndarray, int]:
    """The same one quote after the other, where some of them are text."""
    starts: list[int] = []
    ends: list[int] = []
    inside, k = False, 0
    places, can_open, can_close, twins = (each.tolist() for each in (quotes, opens, closes, twin))
    while k < len(places):
        if not inside:
            if can_open[k]:
                inside = True
                starts.append(places[k])
        elif twins[k]:
            k += 1
        elif can_close[k]:
            inside = False
            ends.append(places[k])
        else:
            return np.array(starts, int), np.array(ends, int), places[k]
        k += 1
    return np.array(starts, int), np.array(ends, int), -1
