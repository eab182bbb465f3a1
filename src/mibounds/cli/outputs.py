"""Files that commands write: checked before any work is done, and written whole or not at all."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from mibounds.cli.commands import Failure
from mibounds.files import check_target, replacing

__all__ = ["check_targets", "save_plot", "writing"]


def check_targets(data: str, targets: Mapping[str, str]) -> None:
    """Check the files to write before anything is computed.

    Args:
        data: the file that is read.
        targets: path by flag; "" for none. That of ``--plot`` is a picture, of ``--report`` HTML.
    """
    seen = {Path(data).resolve(): "the data"}
    for flag, path in targets.items():
        if path:
            target = check_target(path, flag)
            if target in seen:
                raise ValueError(
                    f"Expected a file of its own for {flag} but got {path!r}, "
                    f"which is that of {seen[target]}; name another file."
                )
            seen[target] = flag
    if targets.get("--plot"):
        _check_plot(targets["--plot"])
    report = targets.get("--report", "")
    if report and Path(report).suffix.lower() not in (".html", ".htm"):
        raise ValueError(
            f"Expected --report to end in .html but got {report!r}; "
            "name it report.html, for example."
        )


@contextlib.contextmanager
def writing(path: str) -> Iterator[Path]:
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


def save_plot(
    draw: Callable[[Any], object], path: str, size: tuple[float, float] | None = (6.4, 4.0)
) -> None:
    """Write a picture.

    Args:
        draw: draws into axes; or, with ``size=None``, makes its own and returns them.
        path: of the picture; its ending decides the format.
        size: in inches.
    """
    from matplotlib.figure import Figure

    if size is None:
        axes: Any = draw(None)
        figure = axes.figure
    else:
        figure = Figure(figsize=size, layout="constrained")
        draw(figure.subplots())
    with writing(path) as part:
        figure.savefig(part, dpi=150)


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
