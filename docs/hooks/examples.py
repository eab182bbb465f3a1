"""Show the example of a docstring as code: griffe only knows the heading "Examples:"."""

from __future__ import annotations

from typing import Any

import griffe


class Examples(griffe.Extension):
    """Reads the heading "Example:" as the one that griffe knows."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rename it before the docstring is read."""
        if obj.docstring:
            obj.docstring.value = obj.docstring.value.replace("\nExample:\n", "\nExamples:\n")
