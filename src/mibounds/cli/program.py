"""Runs one of several commands: arguments in, exit code out.

Results go to standard output, everything else (progress, errors) to standard error, and an error is
one line. The exit code is 0, or 2 for input that cannot be used, 1 if the computation or the
writing of its results failed, 130 after Ctrl-C. Set MIBOUNDS_TRACEBACK=1 to see where an error was
raised.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
import warnings
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Union

import mibounds
from mibounds.cli.commands import Command, Failure
from mibounds.cli.terminal import flush, one_line_of, remark, say


def run(prog: str, commands: Mapping[str, type[Command]], argv: Sequence[str] | None = None) -> int:
    """Run the command that the arguments name.

    Args:
        prog: the name of the program, for the help.
        commands: by name.
        argv: the arguments; those of this process if left out.

    Returns:
        The exit code.
    """
    _open_standard_files()
    if sys.stdout is None:  # before any work is done whose result nobody would see
        return _fail("error: standard output is closed; send it to a file, or to /dev/null", 1)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = lambda message, *_, **__: remark(str(message))
            return _run(prog, commands, list(sys.argv[1:] if argv is None else argv))
    except KeyboardInterrupt:
        return _fail("interrupted", 130)
    except BrokenPipeError:  # the reader of the output has stopped, as `head` does
        return 141
    except Exception as error:
        if os.environ.get("MIBOUNDS_TRACEBACK"):
            raise
        if isinstance(error, ValueError | FileNotFoundError):
            return _fail(f"error: {error}", 2)
        if isinstance(error, ImportError | Failure):
            return _fail(f"error: {error}", 1)
        return _fail(f"error: {type(error).__name__}: {error}", 1)
    finally:
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except OSError:  # what cannot be printed now cannot be printed as Python ends either
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _run(prog: str, commands: Mapping[str, type[Command]], arguments: list[str]) -> int:
    code = 0
    try:
        if arguments[:1] == ["--version"]:
            say(f"mibounds {mibounds.__version__}")
        else:
            parse(prog, commands, arguments).run()
    except SystemExit as end:  # after --help
        code = int(end.code or 0)
    flush()
    return code


def _open_standard_files() -> None:
    """Put the null device where a standard file is closed.

    Otherwise the next file that is opened would get its number, and what is printed.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest number that is free
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115


def parse(prog: str, commands: Mapping[str, type[Command]], arguments: list[str]) -> Command:
    """The command that the arguments name, with its flags set.

    Raises:
        ValueError: if the command or one of its flags is unknown.
        SystemExit: after showing the help.
    """
    try:
        import tyro
    except ImportError:
        raise ImportError(
            "the command line needs tyro; install it with: pip install 'mibounds[cli]'"
        ) from None
    choices = tuple(
        Annotated[command, tyro.conf.subcommand(name, prefix_name=False)]
        for name, command in commands.items()
    )
    choice: Any = Union[choices]  # noqa: UP007 (made from a tuple)
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            return tyro.cli(
                choice,
                prog=prog,
                description="Bounds on mutual information. The version: mibounds --version.",
                args=arguments or ["--help"],
                config=(
                    tyro.conf.PositionalRequiredArgs,
                    tyro.conf.PositionalMetavarFromFieldName,
                    tyro.conf.FlagCreatePairsOff,
                ),
            )
    except SystemExit as end:
        if end.code:
            text = _expected_number(one_line_of(said.getvalue()).rstrip("."))
            hint = ""
            if arguments[0] in commands:
                prog = f"{prog} {arguments[0]}"
                hint = _hint(commands[arguments[0]], arguments, text)
            raise ValueError(f"{text}; {hint}see {prog} --help") from None
        raise


def _expected_number(text: str) -> str:
    """Reword Python's messages about numbers."""
    text = text.replace("invalid literal for int() with base 10:", "expected a whole number, got")
    return text.replace("could not convert string to float:", "expected a number, got")


def _hint(command: type[Command], arguments: list[str], text: str) -> str:
    """What else to try after an unknown option."""
    if not text.startswith("Unrecognized options"):
        return ""
    names = getattr(command, "__dataclass_fields__", {})
    flags = {f"-{name.replace('_', '-')}" for name in names}
    for argument in arguments:
        if argument.split("=")[0] in flags:
            return f"write -{argument.split('=')[0]}, with two dashes, or "
    return command.unknown_flag


def _fail(message: str, code: int) -> int:
    remark(" ".join(message.split())[:1000])
    return code
