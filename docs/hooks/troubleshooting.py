"""Fill docs/troubleshooting.md from the source: every message, and what to do about it.

mkdocs calls `on_page_markdown` for every page. The messages are those of the source, so that the
page cannot fall behind it. A message in a form that is not read here stops the build.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

SOURCE = Path(__file__).parents[2] / "src" / "mibounds"
EXPERIMENTS = Path(__file__).parents[2] / "experiments"
# Kinds and texts that only appear inside another message, which says what to do.
PARTS = {"_Broken", "Damaged", "Unreachable", "EOFError", "tensors of other shapes"}
# Words in front of another message, which says what to do.
PREFIXES = {"…: …", "…, …: …", "Estimator …: …"}
# Kinds that have another name on the page.
KINDS = {"FormatError": "ValueError", "Failure": "failed command", "Failed": "failed command"}
TITLES = {
    "bounds/from_conditionals": "Bounds from a conditional",
    "bounds/from_critics": "Bounds from a critic",
    "bounds/from_distributions": "Bounds of a Distribution",
    "cli": "The command line",
    "cli/_arrow_formats": "CSV, TSV and Parquet files",
    "cli/_detection": "Files that are read",
    "cli/formats": "Damaged files",
    "cli/_numpy_formats": "NPZ and NPY files",
    "cli/tables": "Tables",
    "conditionals": "Conditionals",
    "critics": "Critics",
    "estimators/base": "Making an estimator",
    "estimators/ensembles": "Many estimators at once",
    "estimators/evaluation": "evaluate()",
    "estimators/fitting": "fit()",
    "estimators/from_conditionals": "Estimators with a conditional",
    "estimators/from_critics": "Estimators with a critic",
    "estimators/_jackknife": "Sums over pairs",
    "estimators/stacked_training": "Recorded steps",
    "files": "Files that are written",
    "measure/classical": "Without a network",
    "measure/copula_model": "The copula model",
    "measure/diagnostics": "Warnings of an estimate",
    "measure/estimation": "estimate()",
    "measure/methods": "Choosing a method",
    "measure/plots": "Plots",
    "measure/report": "Reports",
    "measure/results": "Estimates, to and from JSON",
    "measure/runs": "Running a method",
    "measure/sample_plots": "Plots of samples",
    "measure/splits": "Blocks of rows",
    "measure/tables": "rank() and matrix()",
    "minimise/alternation": "Checkpoints of MIPenalty",
    "minimise/_recorded_calls": "Recorded calls of MIPenalty",
    "minimise/health": "Warnings of MIPenalty",
    "minimise/penalty": "MIPenalty",
    "networks": "Parts of estimators",
    "samples/batches": "Several processes",
    "samples/checks": "Samples",
    "samples/columns": "Columns of samples",
    "samples/pairs": "Pairs of samples",
    "samples/streams": "Rows for evaluate()",
    "progress": "Progress bars",
    "sklearn": "Parts for scikit-learn",
    "tasks": "Tasks",
}


class Message(NamedTuple):
    """What users read, with … for what changes.

    Attributes:
        path: the file, from the root of the package.
        line: where in it.
        kind: of the exception, or "warning".
        text: what is wrong.
        remedy: what to do; "" if the message does not say.
    """

    path: str
    line: int
    kind: str
    text: str
    remedy: str


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Put the tables in their place."""
    if page.file.src_uri != "troubleshooting.md":
        return markdown
    return markdown.replace("<!-- messages -->", tabulate(find_messages()))


def find_messages(source: Path = SOURCE) -> list[Message]:
    """All messages, in the order of the files and of the lines in them."""
    found = []
    for path in sorted(source.rglob("*.py")):
        name = path.relative_to(source).as_posix()
        mine = _find(ast.parse(path.read_text(encoding="utf-8")), name)
        found += sorted(mine, key=lambda message: message.line)
    return found


def tabulate(messages: list[Message]) -> str:
    """A heading and a table for each module, or for a whole room, that `TITLES` names."""
    parts: dict[str, list[str]] = {}
    for message in messages:
        own = message.path.removesuffix(".py")
        while own not in TITLES and "/" in own:
            own = own.rpartition("/")[0]
        if re.search(r"\w", message.text):
            row = f"| `{message.text}` | {message.kind} | {message.remedy} |"
            parts.setdefault(own, []).append(row)
    lines = []
    for own, rows in parts.items():
        title = TITLES.get(own, own.replace("_", " ").capitalize())
        lines += [f"### {title}", "", "| message | kind | what to do |", "|---|---|---|"]
        lines += [*dict.fromkeys(rows), ""]
    return "\n".join(lines)


# --- reading the source --------------------------------------------------------------------------


def _find(tree: ast.Module, path: str) -> Iterator[Message]:
    functions = {f.name: f for f in ast.walk(tree) if isinstance(f, ast.FunctionDef)}
    for node, scope in _walk(tree, tree):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and node.exc.args:
            kind = ast.unparse(node.exc.func).split(".")[-1]
            if kind in PARTS or getattr(scope, "name", "") == "expect":
                continue
            argument = node.exc.args[0]
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "warnings.warn":
            kind, argument = "warning", node.args[0]
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "expect":
            expected, got, remedy = (_words(each) or "…" for each in node.args[1:4])
            yield Message(
                path, node.lineno, "ValueError", f"Expected {expected} but got {got}", _tidy(remedy)
            )
            continue
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "Advice":
            code, text, remedy = (_words(each) or "…" for each in node.args)
            yield Message(path, node.lineno, "warning", f"{code}: {text}", _tidy(remedy))
            continue
        else:
            continue
        if isinstance(argument, ast.Call) and ast.unparse(argument.func) == "str":
            continue  # another message, as it is
        texts = _texts(argument, scope, functions)
        if not texts:
            raise ValueError(
                f"{path}:{node.lineno}: expected a message in a form that is read here"
            )
        for text in texts:
            if text not in PREFIXES | PARTS:
                yield _split(path, node.lineno, KINDS.get(kind, kind), text)


def _walk(node: ast.AST, scope: ast.AST) -> Iterator[tuple[ast.AST, ast.AST]]:
    """Every node, with the function that it is in."""
    for child in ast.iter_child_nodes(node):
        yield child, scope
        yield from _walk(child, child if isinstance(child, ast.FunctionDef) else scope)


def _texts(node: ast.expr, scope: ast.AST, functions: dict[str, ast.FunctionDef]) -> list[str]:
    """What an argument may say: it is written there, or returned by a function, or gathered."""
    words = _words(node)
    if words is not None:
        return [words]
    sources: list[ast.expr] = []
    if isinstance(node, ast.Call) and ast.unparse(node.func) in functions:
        function = functions[ast.unparse(node.func)]
        own = [each for each, inner in _walk(function, function) if inner is function]
        sources = [each.value for each in own if isinstance(each, ast.Return) and each.value]
    elif isinstance(node, ast.Name):
        sources = _given(node.id, scope)
    found = [_texts(each, scope, functions) for each in sources]
    return [text for texts in found for text in texts] if all(found) else []


def _given(name: str, scope: ast.AST) -> list[ast.expr]:
    """What a name stands for in a function: what it is set to, or what a list is filled with."""
    found = []
    for each in ast.walk(scope):
        if isinstance(each, ast.Assign) and ast.unparse(each.targets[0]) == name:
            found.append(each.value)
        elif isinstance(each, ast.For) and ast.unparse(each.target) == name:
            fill = f"{ast.unparse(each.iter)}.append"
            calls = [call for call in ast.walk(scope) if isinstance(call, ast.Call)]
            found += [call.args[0] for call in calls if ast.unparse(call.func) == fill]
    return found


def _words(node: ast.expr) -> str | None:
    """The text of a string, with … for what is put in; None if it is no string."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.JoinedStr):
        return "".join(_words(part) or "…" for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = _words(node.left), _words(node.right)
        return None if left is None and right is None else (left or "…") + (right or "…")
    return None


def _split(path: str, line: int, kind: str, text: str) -> Message:
    """The remedy is what comes after the last semicolon."""
    head, _, remedy = text.rpartition("; ")
    if not re.search(r"\w", remedy) or not head:
        head, remedy = text, ""
    return Message(path, line, kind, " ".join(head.split()), _tidy(remedy))


def _tidy(remedy: str) -> str:
    """As a sentence without its stop, and with none of it read as Markdown."""
    remedy = " ".join(remedy.split()).removesuffix(".").lstrip("…")
    return re.sub(r"([*_|\[\]])", r"\\\1", remedy).replace("<", "&lt;")
