"""Run marked blocks of code, and put what they print and draw below them.

The blocks of a page share their names. Each page has a process and a folder of its own, and pages
run in parallel:

- ```` ```python run ````: its output, the value of its last expression and its figures are shown;
- ```` ```python file=NAME ````: is written to that file;
- ```` ```sh run ````: is run by the shell, and its output is shown;
- ``<!-- check`` ... ``-->``: Python that is run and not shown, which asserts what the text says.

An exception, a warning or a failed command stops the build, with the page and the line. What a page
gave is kept in out/cookbook until the page, the library or this file changes.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import html
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import traceback
import warnings
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from mibounds.files import replacing

ROOT = Path(__file__).parents[2]
KEPT = ROOT / "out" / "cookbook"
STYLE = Path(__file__).with_name("matplotlibrc")
INK = "#123456"  # of text and axes in STYLE; on a page, the colour of its text
BLOCK = re.compile(
    r"^```(?:python (?P<run>run)|python file=(?P<file>\S+)|(?P<shell>sh) run)\n(?P<code>.*?)^```$"
    r"|^<!-- check\n(?P<check>.*?)^-->$",
    re.DOTALL | re.MULTILINE,
)

_started: dict[str, Future[list[Output]]] = {}


class Output(NamedTuple):
    """What a block gave: text, and figures as SVG."""

    text: str
    figures: list[str]


class Broken(Exception):
    """A page whose code does not run."""


def on_files(files: Any, **_: Any) -> None:
    """Start all pages that have such blocks, as many at once as there are cores."""
    pool = ThreadPoolExecutor(len(os.sched_getaffinity(0)))
    for file in files.documentation_pages():
        if BLOCK.search(file.content_string):
            _started[file.src_uri] = pool.submit(run, Path(file.abs_src_path))
    pool.shutdown(wait=False)


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Put the outputs in their places."""
    if page.file.src_uri not in _started:
        return markdown
    from mkdocs.exceptions import PluginError

    try:
        return show(markdown, _started.pop(page.file.src_uri).result())
    except Broken as error:
        raise PluginError(str(error)) from None


def run(page: Path, kept: Path = KEPT) -> list[Output]:
    """What each block of a page gives, from a process of its own or as it is kept.

    Args:
        page: a Markdown file.
        kept: folder for outputs.

    Returns:
        One output per block.

    Raises:
        Broken: if some code does not run, with the page and the line.
    """
    text = page.read_text(encoding="utf-8")
    name = f"{page.parent.name}-{page.stem}"
    path = kept / f"{name}-{_key(text)}.json"
    if not path.exists():
        kept.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as folder:
            environment = os.environ | {
                "MATPLOTLIBRC": str(STYLE),
                "MPLBACKEND": "agg",
                "OMP_NUM_THREADS": "1",
                "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            }
            result = Path(folder) / "result.json"
            (work := Path(folder) / "work").mkdir()
            done = subprocess.run(
                [sys.executable, __file__, str(page.resolve()), str(result)],
                cwd=work, env=environment, capture_output=True, text=True,
            )  # fmt: skip
            if done.returncode:
                raise Broken(done.stderr.strip())
            for old in kept.glob(f"{name}-{'?' * 16}.json"):
                old.unlink(missing_ok=True)
            with replacing(path) as part:
                part.write_bytes(result.read_bytes())
    return [Output(*each) for each in json.loads(path.read_text(encoding="utf-8"))]


def show(markdown: str, outputs: list[Output]) -> str:
    """The page as it is read: without checks, each block with its output."""
    rest = iter(outputs)

    def place(block: re.Match[str]) -> str:
        output = next(rest)
        if block["check"] is not None:
            return ""
        heading = "sh" if block["shell"] else "python"
        if block["file"]:
            heading += f' title="{block["file"]}"'
        parts = [f"```{heading}\n{block['code']}```"]
        if output.text:
            parts.append(f"``` {{ .text .no-copy .result }}\n{output.text.rstrip()}\n```")
        parts += [f'<figure class="drawn">{figure}</figure>' for figure in output.figures]
        return "\n\n".join(parts)

    return BLOCK.sub(place, markdown)


def _key(text: str) -> str:
    """Changes with the code of the page, with the library and with this file."""
    digest = hashlib.sha256(sys.version.encode())
    for block in BLOCK.finditer(text):
        digest.update(f"{_line(block)} {block[0]}".encode())
    for path in [Path(__file__), STYLE, *sorted((ROOT / "src" / "mibounds").rglob("*.py*"))]:
        if path.suffix != ".pyc":
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _line(block: re.Match[str]) -> int:
    """Where its code begins; the first line of a page is 1."""
    return block.string.count("\n", 0, block.start()) + 2


# --- in the process of the page ------------------------------------------------------------------


def main(page: str, result: str) -> None:
    """Run one page, and write what its blocks give."""
    text = Path(page).read_text(encoding="utf-8")
    names: dict[str, Any] = {"__name__": "__main__"}
    # Warnings that a reader would see are errors here.
    warnings.simplefilter("error")
    for hidden in (DeprecationWarning, PendingDeprecationWarning, ImportWarning, ResourceWarning):
        warnings.simplefilter("ignore", hidden)
    outputs = [_run_block(page, block, names) for block in BLOCK.finditer(text)]
    Path(result).write_text(json.dumps(outputs), encoding="utf-8")


def _run_block(page: str, block: re.Match[str], names: dict[str, Any]) -> Output:
    code, line = block["code"] or block["check"], _line(block)
    if block["file"]:
        Path(block["file"]).write_text(code, encoding="utf-8")
    elif block["shell"]:
        done = subprocess.run(["bash", "-euc", code], capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{page}:{line}: exit code {done.returncode}\n{done.stderr.strip()}")
        return Output(done.stdout, [])
    else:
        try:
            return _run_python(page, code, line, names)
        except Exception as error:
            frames = traceback.extract_tb(error.__traceback__)
            at = next((f.lineno for f in reversed(frames) if f.filename == page), line)
            at = error.lineno or line if isinstance(error, SyntaxError) else at
            sys.exit(f"{page}:{at}: {''.join(traceback.format_exception_only(error)).strip()}")
    return Output("", [])


def _run_python(page: str, code: str, line: int, names: dict[str, Any]) -> Output:
    tree = ast.parse("\n" * (line - 1) + code, page)  # the lines of the page
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, page, "exec"), names)
        value = None
        if last:
            value = eval(compile(ast.Expression(last.value), page, "eval"), names)  # type: ignore
    figures = _collect_figures(value)
    if value is not None and not figures:
        printed.write(f"{value!r}\n")
    return Output(printed.getvalue(), [_svg(figure) for figure in figures])


def _collect_figures(value: object) -> list[Any]:
    """The figure of the last expression, or else those that pyplot has open; they are closed."""
    if "matplotlib.figure" not in sys.modules:
        return []
    from matplotlib import pyplot
    from matplotlib.figure import Figure

    of_value = value if isinstance(value, Figure) else getattr(value, "figure", None)
    figures = [pyplot.figure(number) for number in pyplot.get_fignums()]
    pyplot.close("all")
    return [of_value] if isinstance(of_value, Figure) else figures


def _svg(figure: Any) -> str:
    """A figure whose text and axes have the colour of the text around it, light or dark."""
    from matplotlib import rc_context

    words = [each for ax in figure.axes for each in (ax.get_title(), ax.get_xlabel())]
    with rc_context({"svg.hashsalt": "cookbook"}):
        figure.savefig(buffer := io.StringIO(), format="svg", metadata={"Date": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :].replace(INK, "currentColor")
    # A style inside a page would be one of the whole page.
    text = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>|\s*\n\s*", " ", text, flags=re.S)
    label = html.escape(", ".join(dict.fromkeys(word for word in words if word)))
    return text.replace("<svg ", f'<svg role="img" aria-label="{label}" ', 1)


if __name__ == "__main__":
    main(*sys.argv[1:])
