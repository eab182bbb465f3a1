"""``python -m experiments``: the experiments of the paper and the data sets that they need.

python -m experiments                       what there is
python -m experiments NAME [flags]          run one: rows, table and figures
python -m experiments data list|get|where|check
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, make_dataclass
from typing import Any

from experiments import EXPERIMENTS, Failed, Options, reproduce
from mibounds.cli.commands import Command, Failure
from mibounds.cli.program import run
from mibounds.cli.terminal import progress_bar, remark, say, say_table

PROG = "python -m experiments"


@dataclass(frozen=True)
class ListExperimentsCommand(Command):
    """List the experiments of the paper."""

    def run(self) -> None:
        """Print one experiment per line."""
        rows = [(name, each.makes, each.costs) for name, each in EXPERIMENTS.items()]
        say_table(("name", "makes", "costs"), rows)
        say(f"\nRun one with: {PROG} NAME; its flags: {PROG} NAME --help")


class ExperimentCommand(Command):
    """Run an experiment; each has a subclass with its Config and the options as fields."""

    name: str
    config: Any
    options: Any

    def run(self) -> None:
        """Compute the missing cells, write the results, print the tables."""
        experiment = EXPERIMENTS[self.name]
        with progress_bar(self.name, period=1e6) as progress:
            try:
                text = reproduce(self.name, experiment, self.config, self.options, progress, remark)
            except Failed as error:
                raise Failure(str(error)) from None
        if text:
            say(text)


@dataclass(frozen=True)
class DataCommand(Command):
    """List the data sets, or fetch, find and check them: data list, get, where, check."""

    def run(self) -> None:
        """Print one data set per line."""
        data_commands()["list"]().run()


def data_commands() -> dict[str, type[Command]]:
    """The commands that may follow ``data``."""
    from experiments.data.commands import DATA_COMMANDS  # needs tyro

    return DATA_COMMANDS


def experiment_commands() -> dict[str, type[Command]]:
    """One command per experiment; its flags are the fields of its Config and the options."""
    import tyro

    flat = tyro.conf.OmitArgPrefixes
    return {
        name: make_dataclass(
            f"{type(each).__name__}Command",
            [
                ("config", flat[each.config], field(default=each.config())),
                ("options", flat[Options], field(default=Options())),
            ],
            bases=(ExperimentCommand,),
            namespace={"name": name, "__doc__": f"{each.makes}. Costs: {each.costs}."},
            frozen=True,
        )
        for name, each in EXPERIMENTS.items()
    }


def choose(argv: Sequence[str]) -> tuple[str, Mapping[str, type[Command]], list[str]]:
    """The words typed so far, the commands that may follow, and the remaining arguments.

    Example:
        >>> choose(["data", "get", "mnist"])[0]
        'python -m experiments data'
    """
    arguments = list(argv) or ["list"]
    if arguments[0] == "data" and arguments[1:]:
        return f"{PROG} data", data_commands(), arguments[1:]
    commands = {"list": ListExperimentsCommand, "data": DataCommand, **experiment_commands()}
    return PROG, commands, arguments


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command.

    Args:
        argv: the arguments; those of this process if left out.

    Returns:
        The exit code.
    """
    try:
        import tyro  # noqa: F401
    except ImportError:
        remark("error: the experiments need tyro; install it with: pip install -e '.[experiments]'")
        return 1
    return run(*choose(sys.argv[1:] if argv is None else argv))


if __name__ == "__main__":
    sys.exit(main())
