"""Results: printed, and written to files.

Files are checked before any work is done, and written whole or not at all. What is asked for is
printed and written even if another part of it fails.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from mibounds.cli.commands import Failure
from mibounds.cli.terminal import remark, say
from mibounds.files import check_target, replacing

__all__ = ["as_picture", "as_text", "check_targets", "deliver"]


def check_targets(data: str, targets: Mapping[str, str]) -> None:
    """Check the files to write before anything is computed.

    Args:
        data: the file that is read.
        targets: path by flag; "" for none. Those of ``--plot`` and ``--network`` are pictures, that
            of ``--report`` is HTML.
    """
    seen = {Path(os.path.realpath(data)): "the data"}
    for flag, path in targets.items():
        if path:
            target = check_target(path, flag)
            if target in seen:
                raise ValueError(
                    f"Expected a separate file for {flag} but got {path!r}, "
                    f"which is that of {seen[target]}; name another file."
                )
            seen[target] = flag
    for flag in ("--plot", "--network"):
        if targets.get(flag):
            _check_picture(targets[flag], flag)
    report = targets.get("--report", "")
    if report:
        _import_figure("--report")
        if Path(report).suffix.lower() not in (".html", ".htm"):
            raise ValueError(
                f"Expected --report to end in .html but got {report!r}; "
                "name it report.html, for example."
            )


def deliver(text: str, files: dict[str, Callable[[Path], object]]) -> None:
    """Print a result and write its files, each even if another cannot be printed or written.

    Args:
        text: what to print.
        files: by path, what writes it; a path "" stands for none.
    """
    failures: list[Exception] = []

    def write(path: str, fill: Callable[[Path], object]) -> None:
        try:
            with _writing(path) as part:
                fill(part)
        except (Failure, ImportError) as error:
            failures.append(error)

    with contextlib.ExitStack() as stack:  # runs backwards, each even if the one before it fails
        stack.callback(_report, failures)
        for path, fill in reversed(files.items()):
            if path:
                stack.callback(write, path, fill)
        say(text)


def _report(failures: Sequence[Exception]) -> None:
    for failure in failures[:-1]:
        remark(f"error: {failure}")
    if failures:
        raise failures[-1]


@contextlib.contextmanager
def _writing(path: str) -> Iterator[Path]:
    """Write a file whole or not at all; a failure is not reported as bad input."""
    try:
        with replacing(path) as temporary:
            yield temporary
    except Exception as error:
        if isinstance(error, ImportError):
            raise
        raise Failure(
            f"{path} could not be written: {error}; make room, or name a file in another folder"
        ) from error


def as_text(text: str) -> Callable[[Path], object]:
    """What writes a text to a file, as ``files`` of `deliver`."""
    return lambda path: path.write_text(text + "\n", encoding="utf-8")


def as_picture(
    draw: Callable[[Any], object], size: tuple[float, float] | None = (6.4, 4.0)
) -> Callable[[Path], object]:
    """What writes a picture to a file, as ``files`` of `deliver`.

    Args:
        draw: draws into axes; or, with ``size=None``, makes its own and returns them.
        size: in inches.
    """

    def write(path: Path) -> None:
        from matplotlib.figure import Figure

        if size is None:
            axes: Any = draw(None)
            figure = axes.figure
        else:
            figure = Figure(figsize=size, layout="constrained")
            draw(figure.subplots())
        figure.savefig(path, dpi=150)

    return write


def _check_picture(path: str, flag: str) -> None:
    known = _import_figure(flag)().canvas.get_supported_filetypes()
    if Path(path).suffix[1:].lower() not in known:
        raise ValueError(
            f"Expected {flag} to end in one of .{', .'.join(sorted(known))} but got {path!r}; "
            "name it plot.png, for example."
        )


def _import_figure(flag: str) -> Any:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ImportError(
            f"{flag} needs matplotlib; install it with: pip install 'mibounds[plot]'"
        ) from None
    return Figure
