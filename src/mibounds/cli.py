"""The command line: ``mibounds estimate``, ``tasks``, ``methods``, ``reproduce``, ``data``.

A command is a frozen dataclass with a method ``run``; its fields are its flags and its docstring is
their help. A new command is one class and one line in `COMMANDS`.

What is asked for goes to standard output, everything else (progress, errors) to standard error, and
an error is one line. The exit code is 0, or 2 for input that cannot be used, 1 if the computation
or the writing of its results failed, 130 after Ctrl-C. Set MIBOUNDS_TRACEBACK=1 to see where an
error came from.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, make_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Union

import mibounds
from mibounds.commands import Command, Failure
from mibounds.files import check_target, replacing
from mibounds.tables import check_apart, read_names, read_table, select
from mibounds.terminal import one_line_of, progress_bar, remark, say, say_table

__all__ = ["COMMANDS", "main"]


@dataclass(frozen=True)
class EstimateCommand(Command):
    """Estimate the mutual information of columns of a file, with an interval.

    Columns are names, ranges (a:d, in the order of the file), arrays of an NPZ file (emb) or
    patterns (pixel_*), with commas between them.

    Attributes:
        file: CSV, TSV, Parquet, NPZ or NPY file.
        x: columns of x; if left out, those named x.
        y: columns of y; if left out, those named y.
        given: columns z, for the mutual information of x and y given z.
        method: names of methods with commas between them, see "mibounds methods".
        budget: seconds (fast), or a minute or two (default).
        discrete: columns that are labels although they hold numbers.
        continuous: columns that are measurements although they look like labels.
        permutations: shuffles of y for a p-value; 0 for none.
        level: how often the interval is to hold the truth.
        seed: seed of all that is random.
        block: rows that hang together in time, which the interval takes as one.
        threads: of the processor; more than one gains little, and loses much on a busy machine.
        drop_missing: leave out rows with missing values.
        json: print JSON instead of a table.
        plot: picture to write; its ending (.png, .svg, .pdf) says which kind.
        report: HTML page to write.
        out: JSON file to write.
    """

    file: str
    x: str = ""
    y: str = ""
    given: str = ""
    method: str = "default"
    budget: Literal["fast", "default"] = "default"
    discrete: str = ""
    continuous: str = ""
    permutations: int = 0
    level: float = 0.95
    seed: int = 0
    block: int = 1
    threads: int = 1
    drop_missing: bool = False
    json: bool = False
    plot: str = ""
    report: str = ""
    out: str = ""

    def run(self) -> None:
        """Read, estimate, print, write."""
        self._check_targets()
        if self.threads < 1:
            raise ValueError(
                f"Expected --threads of at least 1 but got {self.threads}; leave it out for 1."
            )
        names = read_names(self.file)
        sides = {"--x": self._side(names, "x"), "--y": self._side(names, "y")}
        if self.given:
            sides["--given"] = select(names, self.given)
        check_apart(sides)
        used = [name for side in sides.values() for name in side]
        declared = {
            "--discrete": self._declared(names, used, "discrete"),
            "--continuous": self._declared(names, used, "continuous"),
        }
        check_apart(declared)
        discrete, continuous = map(frozenset, declared.values())
        whole = read_table(self.file, used, discrete=discrete, continuous=continuous)
        table = whole.complete(drop=self.drop_missing)

        from mibounds.estimation import estimate

        x, y, given = (sides.get(flag, []) for flag in ("--x", "--y", "--given"))
        with _computing_with(self.threads), progress_bar() as progress:
            result = estimate(
                table.take(x),
                table.take(y),
                given=table.take(given) if given else None,
                methods=self._methods(),
                x_kinds=table.kinds(x, discrete, continuous),
                y_kinds=table.kinds(y, discrete, continuous),
                given_kinds=table.kinds(given, discrete, continuous),
                budget=self.budget,
                level=self.level,
                permutations=self.permutations,
                block=self.block,
                seed=self.seed,
                progress=progress,
            )
        for flag, side in sides.items():
            constant = table.take(side).constant()
            if constant:
                remark(
                    f"{len(constant)} of {len(side)} columns of {flag} ({_shown(constant)}) hold "
                    "the same value in every row and count for nothing; leave them out"
                )
        record = {
            "file": self.file,
            "x": x,
            "y": y,
            "given": given,
            "dropped": whole.rows - table.rows,
            **json.loads(result.to_json()),
        }
        text = json.dumps(record, indent=2, ensure_ascii=False)
        if self.out:
            with _writing(self.out) as path:
                path.write_text(text + "\n", encoding="utf-8")
        title = f"{Path(self.file).name}, {table.rows} rows: {_formula(sides)}"
        dropped = (
            f" ({record['dropped']} with missing values left out)" if record["dropped"] else ""
        )
        try:
            say(text if self.json else f"{title}{dropped}\n\n{result}")
        finally:  # the files too where nobody reads on
            self._draw(result, table, x, y, title)

    def _draw(self, result: Any, table: Any, x: list[str], y: list[str], title: str) -> None:
        if self.plot:
            with _writing(self.plot) as path:
                _save_plot(result, path)
        if self.report:
            from mibounds.report import write_report

            with _writing(self.report) as path:
                write_report(
                    path, result, table.array(x), table.array(y), names=(x, y), title=title
                )

    def _check_targets(self) -> None:
        """All that can be wrong with the files to write, said before anything is computed."""
        seen = {Path(self.file).resolve(): "the data"}
        for flag, path in (("--out", self.out), ("--plot", self.plot), ("--report", self.report)):
            if path:
                target = check_target(path, flag)
                if target in seen:
                    raise ValueError(
                        f"Expected a file of its own for {flag} but got {path!r}, "
                        f"which is that of {seen[target]}; name another file."
                    )
                seen[target] = flag
        if self.plot:
            _check_plot(self.plot)
        if self.report and Path(self.report).suffix.lower() not in (".html", ".htm"):
            raise ValueError(
                f"Expected --report to end in .html but got {self.report!r}; "
                "name it report.html, for example."
            )

    def _side(self, names: Sequence[str], side: str) -> list[str]:
        pattern = getattr(self, side)
        try:
            return select(names, pattern or side)
        except ValueError as error:
            if pattern:
                raise
            raise ValueError(
                f"Expected --{side}, the columns of {side}: {error}; "
                f"name some with --{side} NAME,NAME"
            ) from None

    def _declared(self, names: Sequence[str], used: Sequence[str], kind: str) -> list[str]:
        pattern = getattr(self, kind)
        chosen = select(names, pattern) if pattern else []
        kept = [name for name in chosen if name in set(used)]
        if pattern and not kept:
            raise ValueError(
                f"Expected --{kind} to name columns that are used but got {pattern!r}; "
                "choose among those of --x, --y and --given."
            )
        return kept

    def _methods(self) -> str | list[str]:
        names = [name.strip() for name in self.method.split(",")]
        return "default" if names == ["default"] else names


@contextlib.contextmanager
def _computing_with(threads: int) -> Iterator[None]:
    """So many threads of torch for now. Those of small networks mostly wait for each other."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@dataclass(frozen=True)
class TasksCommand(Command):
    """List the distributions with known mutual information.

    Attributes:
        json: print JSON instead of a table.
    """

    json: bool = False

    def run(self) -> None:
        """Print one task a line."""
        from mibounds.tasks import TASKS

        rows = [
            {
                "name": name,
                "x_dim": task.x_dim,
                "y_dim": task.y_dim,
                "classes": task.classes,
                "nats": task.mutual_information,
                "error": task.mutual_information_error,
            }
            for name, task in TASKS.items()
        ]
        if self.json:
            say(json.dumps(rows, indent=2))
            return
        say_table(
            ("name", "x", "y", "nats"),
            [
                (
                    row["name"],
                    row["x_dim"],
                    f"{row['classes']} labels" if row["classes"] else row["y_dim"],
                    f"{row['nats']:.4f}",
                )
                for row in rows
            ],
        )


@dataclass(frozen=True)
class MethodsCommand(Command):
    """List the methods of estimation, on which side of the truth they lie, and what they cost.

    Attributes:
        json: print JSON instead of a table.
    """

    json: bool = False

    def run(self) -> None:
        """Print one method a line."""
        from mibounds.classical import CLASSICAL
        from mibounds.estimators import ESTIMATORS

        rows = [
            {
                "name": name,
                "kind": kind,
                "side": method.bound,
                "condition": method.condition,
                "cost": method.cost,
                "reference": method.reference,
            }
            for kind, registry in (("network", ESTIMATORS), ("classical", CLASSICAL))
            for name, method in registry.items()
        ]
        rows.insert(0, _BRIDGE)
        if self.json:
            say(json.dumps(rows, indent=2, ensure_ascii=False))
            return
        columns = ("name", "kind", "side", "cost", "reference")
        say_table(columns, [[row[column] for column in columns] for row in rows])


# A method of `estimate` that is in neither registry: no bound, and not without a network.
_BRIDGE = {
    "name": "bridge",
    "kind": "network",
    "side": "neither",
    "condition": "the closed form of the Gaussian copula and learned corrections to it",
    "cost": "N",
    "reference": "mibounds.bridges; Ince et al. 2017 for the closed form",
}


@dataclass(frozen=True)
class ReproduceCommand(Command):
    """List the experiments of the paper, or with a name run one: its rows, table and figures."""

    def run(self) -> None:
        """Print one experiment a line."""
        from mibounds.experiments import EXPERIMENTS

        rows = [(name, each.makes, each.costs) for name, each in EXPERIMENTS.items()]
        say_table(("name", "makes", "costs"), rows)
        say("\nRun one with: mibounds reproduce NAME; its flags: mibounds reproduce NAME --help")


class ExperimentCommand(Command):
    """Run an experiment; a subclass for each has its Config and the options as fields."""

    name: str
    config: Any
    options: Any

    def run(self) -> None:
        """Compute what is missing, write the results, print the table."""
        from mibounds.experiments import EXPERIMENTS, Failed, reproduce

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
    """List the data sets, or fetch, find and check them: mibounds data list, get, where, check."""

    def run(self) -> None:
        """Print one data set a line."""
        _data_commands()["list"]().run()


COMMANDS: dict[str, type[Command]] = {
    "estimate": EstimateCommand,
    "tasks": TasksCommand,
    "methods": MethodsCommand,
    "reproduce": ReproduceCommand,
    "data": DataCommand,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command.

    Args:
        argv: the arguments; those of this process if left out.

    Returns:
        The exit code.

    Example:
        >>> main(["--version"])
        mibounds ...
        0
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        if arguments[:1] == ["--version"]:
            say(f"mibounds {mibounds.__version__}")
        else:
            _parse(arguments).run()
        sys.stdout.flush()
    except SystemExit as end:  # after --help
        return int(end.code or 0)
    except KeyboardInterrupt:
        return _fail("interrupted", 130)
    except BrokenPipeError:  # whoever read the output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except Exception as error:
        if os.environ.get("MIBOUNDS_TRACEBACK"):
            raise
        if isinstance(error, ValueError | FileNotFoundError):
            return _fail(f"error: {error}", 2)
        if isinstance(error, ImportError | Failure):
            return _fail(f"error: {error}", 1)
        return _fail(f"error: {type(error).__name__}: {error}", 1)
    return 0


def _parse(arguments: list[str]) -> Command:
    try:
        import tyro
    except ImportError:
        raise ImportError(
            "the command line needs tyro; install it with: pip install 'mibounds[cli]'"
        ) from None
    prog, commands = "mibounds", COMMANDS
    if arguments[:1] == ["reproduce"] and arguments[1:]:
        prog, commands, arguments = "mibounds reproduce", _experiment_commands(), arguments[1:]
    elif arguments[:1] == ["data"] and arguments[1:]:
        prog, commands, arguments = "mibounds data", _data_commands(), arguments[1:]
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
    """A message of Python's about a number, in words."""
    text = text.replace("invalid literal for int() with base 10:", "expected a whole number, got")
    return text.replace("could not convert string to float:", "expected a number, got")


def _hint(command: type[Command], arguments: list[str], text: str) -> str:
    """What else to do about options that are not known."""
    if not text.startswith("Unrecognized options"):
        return ""
    names = getattr(command, "__dataclass_fields__", {})
    flags = {f"-{name.replace('_', '-')}" for name in names}
    for argument in arguments:
        if argument.split("=")[0] in flags:
            return f"write -{argument.split('=')[0]}, with two dashes, or "
    return "put commas between the names of columns, or " if command is EstimateCommand else ""


def _experiment_commands() -> dict[str, type[Command]]:
    """A command for each experiment, whose flags are the fields of its Config and the options."""
    import tyro

    from mibounds.experiments import EXPERIMENTS, Options

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


def _data_commands() -> dict[str, type[Command]]:
    from mibounds.datasets.commands import DATA_COMMANDS

    return DATA_COMMANDS


def _fail(message: str, code: int) -> int:
    line = " ".join(message.split())
    line = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in line)
    print(f"mibounds: {line[:1000]}", file=sys.stderr)
    return code


def _formula(sides: dict[str, list[str]]) -> str:
    given = f" | {_shown(sides['--given'])}" if "--given" in sides else ""
    return f"I({_shown(sides['--x'])}; {_shown(sides['--y'])}{given})"


def _shown(names: list[str]) -> str:
    return ", ".join(names if len(names) <= 4 else [*names[:2], "...", names[-1]])


@contextlib.contextmanager
def _writing(path: str) -> Iterator[Path]:
    """Write a result: whole or not at all, and a failure is not the input's."""
    try:
        with replacing(path) as temporary:
            yield temporary
    except Exception as error:
        if isinstance(error, ImportError):
            raise
        raise Failure(
            f"{path} could not be written: {error}; make room, or name a file in another folder"
        ) from error


def _check_plot(path: str) -> None:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ImportError(
            "--plot needs matplotlib; install it with: pip install 'mibounds[plot]'"
        ) from None
    known = Figure().canvas.get_supported_filetypes()
    if Path(path).suffix[1:].lower() not in known:
        raise ValueError(
            f"Expected --plot to end in one of .{', .'.join(sorted(known))} but got {path!r}; "
            "name it plot.png, for example."
        )


def _save_plot(result: Any, path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    result.plot(figure.subplots())
    figure.savefig(path, dpi=150)
