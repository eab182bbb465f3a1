"""Progress bars."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator

__all__ = ["Progress", "check_progress", "progress_bar", "showing"]

Progress = Callable[[float, str], None]


@contextlib.contextmanager
def progress_bar(
    what: str = "estimating", period: float = 30.0, always: bool = False
) -> Iterator[Progress | None]:
    """A progress bar on a terminal; nothing if standard error is not one.

    Args:
        what: the first word beside the bar.
        period: seconds of progress from which the remaining time is estimated.
        always: draw it elsewhere too, such as in a notebook, and name what it needs.

    Yields:
        A function of the share of the work that is done and a word about it; None without a bar.

    Example:
        >>> with progress_bar() as progress:
        ...     print(progress)  # the output of this example is no terminal
        None
    """
    if not (always or sys.stderr.isatty()):
        yield None
        return
    try:
        from rich.console import Console
        from rich.markup import escape
        from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar
    except ImportError as error:
        if always:
            raise ImportError(
                "progress=True needs the package rich, which is not installed; "
                "install it with: pip install 'mibounds[plot]'"
            ) from error
        yield None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(),
    )
    console = Console(stderr=True)
    with Bar(*columns, console=console, transient=True, speed_estimate_period=period) as bar:
        task = bar.add_task(escape(what), total=1.0)
        yield lambda done, what: bar.update(task, completed=done, description=escape(what))


def check_progress(progress: object) -> None:
    """Check that progress can be told, or is not asked for."""
    if progress is not None and not callable(progress):
        raise ValueError(
            f"Expected progress to be a function of a share and a word but got {progress!r}; "
            "leave it out."
        )


@contextlib.contextmanager
def showing(progress: bool | Progress) -> Iterator[Progress | None]:
    """What a ``progress=`` of a call stands for: a bar for True, none for False, or itself."""
    if progress is True:
        with progress_bar(always=True) as report:
            yield report
    else:
        check_progress(progress or None)
        yield progress or None
