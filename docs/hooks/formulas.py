"""Set the formulas of the pages as MathML, which browsers draw by themselves, without a script.

They are written as GitHub reads them too: a fence of the language ``math``, or ``$`...`$`` in a
line.
"""

from __future__ import annotations

import re
from typing import Any

from latex2mathml.converter import convert

BLOCK = re.compile(r"^```math\n(.*?)\n```$", re.DOTALL | re.MULTILINE)
OPERATOR = '<mo lspace="0.17em" rspace="0.17em">log</mo>'
INLINE = re.compile(r"\$`([^`]+)`\$")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Put a formula in the place of its source."""
    markdown = BLOCK.sub(lambda found: f"\n{render(found[1], 'block')}\n", markdown)
    # Within a line: Markdown would take a tag "math" at the start of one for a block.
    return INLINE.sub(lambda found: f"<span>{render(found[1], 'inline')}</span>", markdown)


def render(latex: str, display: str) -> str:
    """MathML of one formula; a command that is unknown stays as text, and is an error here."""
    formula = convert(" ".join(latex.split()), display=display)
    if "\\" in formula:
        raise ValueError(f"Expected a formula but got {latex!r}; some command in it is unknown.")
    return formula.replace("<mi>log</mi>", OPERATOR)
