"""Fill the fields of a page."""

from __future__ import annotations

import re
from importlib import import_module

from pages.results import ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
FIELD = re.compile(r"<!-- (\w+)\.(\w+)\(([^)]*)\)(?::(\S+))? -->(.*?)<!-- end -->", re.DOTALL)
MARK = re.compile(r"<!-- (?:\w+\.\w+\(|end -->)")


def fill(text: str, page: str = "") -> str:
    """Write into each field what its function returns.

    Args:
        text: Markdown.
        page: its name, for messages.

    Returns:
        The same with fresh values.

    Example:
        >>> fill("CLUB is <!-- classes.exact_club(2):.2f -->0<!-- end --> there.")
        'CLUB is <!-- classes.exact_club(2):.2f -->4.43<!-- end --> there.'
    """

    def value(field: re.Match[str]) -> str:
        module, function, arguments, spec, _ = field.groups()
        words = [word.strip() for word in arguments.split(",") if word.strip()]
        new = format(getattr(import_module(f"pages.{module}"), function)(*words), spec or "")
        start = field[0][: field.start(5) - field.start()]
        if "\n" in new:
            return f"{start}\n{new}\n\n<!-- end -->"  # a table ends with an empty line
        if field.start() == 0 or text[field.start() - 1] == "\n":
            raise ValueError(
                f"Expected words before {start} in {page} but got the beginning of a line, where "
                "a comment ends the paragraph; move the line break."
            )
        return f"{start}{new}<!-- end -->"

    filled, count = FIELD.subn(value, text)
    if len(MARK.findall(text)) != 2 * count:
        raise ValueError(
            f"Expected fields <!-- module.function(words):format -->...<!-- end --> in {page} but "
            f"got {len(MARK.findall(text))} comments for {count} fields; look for one that is "
            "not closed."
        )
    return filled
