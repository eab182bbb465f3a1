"""Bounds on mutual information, to measure it and to minimise it.

samples -> (conditional q(y|x) | critic f(x, y)) -> bound -> estimate (nats) | penalty (a loss)

The public names stand in ``__init__.pyi``, each with its room. A room is imported when one of its
names is first asked for, so that ``mibounds --help`` does not wait for torch.
"""

import ast
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

__version__ = "0.2.0"

_STUB = ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
_ROOMS = {
    alias.name: line.module
    for line in _STUB.body
    if isinstance(line, ast.ImportFrom) and line.module
    for alias in line.names
}
__all__ = sorted(_ROOMS)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> object:
    """Import a public name, or a room, when it is first used."""
    if name in _ROOMS:
        value = globals()[name] = getattr(import_module(str(_ROOMS[name])), name)
        return value
    if find_spec(f"mibounds.{name}") and not name.startswith("_"):
        return import_module(f"mibounds.{name}")
    raise AttributeError(
        f"Expected a public name of mibounds but got {name!r}; see dir(mibounds) for all of them."
    )


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
