"""Fill docs/architecture.md from the source: a diagram of the imports, and a word on each module.

mkdocs calls `on_page_markdown` for every page; what is drawn is what is imported, so that the page
cannot fall behind the tree.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).parents[2] / "src" / "mibounds"
WIDTH, ROW, BOX = 1000, 62, 26


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Put the diagram and the modules in their places."""
    if page.file.src_uri != "architecture.md":
        return markdown
    imports = find_imports()
    del imports["__main__"]  # a call, and nothing to see
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
    """How far each is from those that import nothing, along the longest way."""
    levels: dict[str, int] = {}

    def level(name: str) -> int:
        if name not in levels:
            levels[name] = 1 + max((level(other) for other in imports[name]), default=-1)
        return levels[name]

    for name in imports:
        level(name)
    return levels


def draw(imports: dict[str, set[str]]) -> str:
    """An inline SVG: a row a level, what is imported above what imports it."""
    levels = find_levels(imports)
    rows: list[list[str]] = [[] for _ in range(1 + max(levels.values()))]
    for name, level in levels.items():
        rows[level].append(name)
    place: dict[str, tuple[float, float]] = {}

    def middle(name: str) -> float:
        return sum(place[other][0] for other in imports[name]) / (len(imports[name]) or 1)

    for i, row in enumerate(rows):
        row.sort(key=middle)  # below what they import, as far as there is room
        for j, name in enumerate(row):
            place[name] = (WIDTH * (j + 0.5) / len(row), ROW * (i + 0.5))
    reach = {name: _reach(name, imports) for name in imports}
    lines, boxes = [], []
    for name, (x, y) in place.items():
        near = {o for o in imports[name] if not any(o in reach[p] for p in imports[name] - {o})}
        for other in sorted(near):
            a, b = place[other]
            lines.append(
                f'<path d="M{a:.0f} {b + BOX / 2:.0f} C{a:.0f} {y - 25:.0f} {x:.0f} {b + 45:.0f} '
                f'{x:.0f} {y - BOX / 2:.0f}" fill="none" stroke="#9ab" stroke-width="1"/>'
            )
        half = 4.2 * len(name) + 8
        boxes.append(
            f'<rect x="{x - half:.0f}" y="{y - BOX / 2:.0f}" width="{2 * half:.0f}" height="{BOX}" '
            'rx="5" fill="#eef3fb" stroke="#456"/>'
            f'<text x="{x:.0f}" y="{y + 5:.0f}" text-anchor="middle" font-size="14" '
            f'font-family="monospace" fill="#123">{name}</text>'
        )
    size = f'viewBox="0 0 {WIDTH} {ROW * len(rows)}" width="100%"'
    title = "<title>Modules of mibounds, and what each imports</title>"
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size}>{title}{"".join(lines + boxes)}</svg>'


def _reach(name: str, imports: dict[str, set[str]]) -> set[str]:
    found: set[str] = set()
    for other in imports[name]:
        found |= {other} | _reach(other, imports)
    return found


def describe(imports: dict[str, set[str]]) -> str:
    """A paragraph a module, from its docstring; the modules of a package below it."""
    levels = find_levels(imports)
    lines = []
    for name in sorted(imports, key=lambda name: (levels[name], name)):
        folder = SOURCE / name
        if folder.is_dir():
            lines.append(f"- **`{name}/`** {_first_paragraph(folder / '__init__.py')}")
            for path in sorted(folder.glob("[a-z]*.py")):
                lines.append(f"    - **`{path.name}`** {_first_paragraph(path)}")
        else:
            lines.append(f"- **`{name}.py`** {_first_paragraph(folder.with_suffix('.py'))}")
    return "\n".join(lines)


def _first_paragraph(path: Path) -> str:
    text = ast.get_docstring(ast.parse(path.read_text())) or ""
    return " ".join(text.split("\n\n")[0].split())
