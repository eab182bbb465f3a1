"""A call that ``torch.compile`` leaves alone.

In a file of its own, imported where something is being compiled: the decorator imports the
compiler, which takes longer than all of mibounds.
"""

from collections.abc import Callable
from typing import Any

import torch


@torch.compiler.disable
def call(function: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """Call a function outside of the graph that is being compiled."""
    return function(*args, **options)
