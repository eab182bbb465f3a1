"""Fill docs/architecture.md from the source: a diagram of the rooms, and a line for each module.

A room is a folder of the package, or a module beside the folders. mkdocs calls `on_page_markdown`
for every page. What is drawn is what is imported, so that the page cannot fall behind the tree.
"""

from __future__ import annotations

import ast
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).parents[2] / "src" / "mibounds"
WIDTH, ROW, BOX = 760, 62, 26


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Put the diagram and the modules in their places."""
    if page.file.src_uri != "architecture.md":
        return markdown
    imports = find_imports()
    del imports["__main__"]  # one call
    markdown = markdown.replace("<!-- diagram -->", draw(imports))
    return markdown.replace("<!-- modules -->", describe(imports))


def find_imports() -> dict[str, set[str]]:
    """What each room imports of the others, anywhere in it and for type checkers too."""
    found: dict[str, set[str]] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        own = path.relative_to(SOURCE).parts[0].removesuffix(".py")
        if own == "__init__":
            continue
        mine = found.setdefault(own, set())
        tree = ast.parse(path.read_text())
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                names = [node.module]
                if node.module == "mibounds":
                    names = [f"mibounds.{alias.name}" for alias in node.names]
                mine |= {n.split(".")[1] for n in names if n.startswith("mibounds.")} - {own}
    return {own: {each for each in mine if each in found} for own, mine in found.items()}


def find_levels(imports: dict[str, set[str]]) -> dict[str, int]:
    """The row of each room: below all that it imports, and as near as possible to what needs it."""
    order = list(TopologicalSorter(imports).static_order())
    levels: dict[str, int] = {}
    for name in order:
        levels[name] = 1 + max((levels[other] for other in imports[name]), default=-1)
    for name in reversed(order):
        users = [levels[other] for other in imports if name in imports[other]]
        levels[name] = min(users, default=1 + levels[name]) - 1
    return levels


def draw(imports: dict[str, set[str]]) -> str:
    """An inline SVG: one row per level, what is imported above what imports it."""
    levels = find_levels(imports)
    rows: list[list[str]] = [[] for _ in range(1 + max(levels.values()))]
    for name in sorted(imports, key=lambda name: _place(name, imports)):
        rows[levels[name]].append(name)
    place = {
        name: (WIDTH * (j + 0.5) / len(row), ROW * (i + 0.5))
        for i, row in enumerate(rows)
        for j, name in enumerate(row)
    }
    reach = {name: _reach(name, imports) for name in imports}
    lines, boxes = [], []
    for name, (x, y) in place.items():
        near = {o for o in imports[name] if not any(o in reach[p] for p in imports[name] - {o})}
        for other in sorted(near):  # to its column within one row, then straight down
            a, start = place[other][0], place[other][1] + BOX / 2
            middle, end = start + (ROW - BOX) / 2, start + ROW - BOX
            lines.append(
                f'<path d="M{a:.0f} {start:.0f} C{a:.0f} {middle:.0f} {x:.0f} {middle:.0f} '
                f'{x:.0f} {end:.0f} V{y - BOX / 2:.0f}" fill="none" stroke="#9ab"/>'
            )
        half = 4.2 * len(name) + 8
        boxes.append(
            f'<rect x="{x - half:.0f}" y="{y - BOX / 2:.0f}" width="{2 * half:.0f}" height="{BOX}" '
            'rx="5" fill="#eef3fb" stroke="#456"/>'
            f'<text x="{x:.0f}" y="{y + 5:.0f}" text-anchor="middle" font-size="14" '
            f'font-family="monospace" fill="#123">{name}</text>'
        )
    size = f'viewBox="0 0 {WIDTH} {ROW * len(rows)}" width="100%"'
    title = "<title>Rooms of mibounds, and what each imports</title>"
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size}>{title}{"".join(lines + boxes)}</svg>'


def _reach(name: str, imports: dict[str, set[str]]) -> set[str]:
    found: set[str] = set()
    for other in imports[name]:
        found |= {other} | _reach(other, imports)
    return found


def describe(imports: dict[str, set[str]]) -> str:
    """A line for each room in the order of the flow, its modules below it."""
    lines = []
    for name in sorted(imports, key=lambda name: _place(name, imports)):
        folder = SOURCE / name
        if folder.is_dir():
            lines.append(f"- **`{name}/`** {_first_paragraph(folder / '__init__.py')}")
            for path in sorted(each for each in folder.iterdir() if each.name[0].isalpha()):
                inside = path if path.suffix == ".py" else path / "__init__.py"
                ending = "" if path.suffix else "/"
                lines.append(f"    - `{path.name}{ending}` {_first_paragraph(inside)}")
        else:
            lines.append(f"- **`{name}.py`** {_first_paragraph(folder.with_suffix('.py'))}")
    return "\n".join(lines)


def _place(name: str, imports: dict[str, set[str]]) -> tuple[bool, int, str]:
    """Folders before modules; public rooms in the order of ``__init__.pyi``, others around them."""
    stub = ast.parse((SOURCE / "__init__.pyi").read_text())
    public = [
        n.module.split(".")[1] for n in stub.body if isinstance(n, ast.ImportFrom) and n.module
    ]
    imported = any(name in others for others in imports.values())
    place = public.index(name) if name in public else -1 if imported else len(public)
    return (SOURCE / f"{name}.py").exists(), place, name


def _first_paragraph(path: Path) -> str:
    text = ast.get_docstring(ast.parse(path.read_text())) or ""
    return " ".join(text.split("\n\n")[0].split())
