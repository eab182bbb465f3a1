"""The command line: ``mibounds estimate``, ``rank``, ``matrix``, ``lags``, ``tasks``, ``methods``.

A command is a frozen dataclass with a method ``run``; its fields are its flags and its docstring is
their help. A new command is one class and one line in `COMMANDS`.

commands         the base class of commands, their error, and checks of their flags
program          arguments in, exit code out
estimation       mibounds estimate
rankings         mibounds rank, mibounds matrix
lag_curves       mibounds lags
listings         mibounds tasks, mibounds methods
tables           columns of files, by name
_detection       which format a file has
_quotes          cells in quotes, and stray quotes
formats          the base class of formats; _arrow_formats and _numpy_formats derive from it
terminal         what is printed
outputs          files that are written
"""

from __future__ import annotations

from collections.abc import Sequence

from mibounds.cli.commands import Command
from mibounds.cli.estimation import EstimateCommand
from mibounds.cli.lag_curves import LagsCommand
from mibounds.cli.listings import MethodsCommand, TasksCommand
from mibounds.cli.program import run
from mibounds.cli.rankings import MatrixCommand, RankCommand

__all__ = ["COMMANDS", "main"]

COMMANDS: dict[str, type[Command]] = {
    "estimate": EstimateCommand,
    "rank": RankCommand,
    "matrix": MatrixCommand,
    "lags": LagsCommand,
    "tasks": TasksCommand,
    "methods": MethodsCommand,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command of ``mibounds``.

    Args:
        argv: the arguments; those of this process if left out.

    Returns:
        The exit code.

    Example:
        >>> main(["--version"])
        mibounds ...
        0
    """
    return run("mibounds", COMMANDS, argv)
