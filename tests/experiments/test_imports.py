"""Which room of the experiments may import which."""

import ast
from graphlib import TopologicalSorter
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "experiments"


def find_imports():
    """What each room imports of the others, anywhere in it and for type checkers too."""
    found = {}
    for path in sorted(SOURCE.rglob("*.py")):
        own = path.relative_to(SOURCE).parts[0].removesuffix(".py")
        if own in ("__init__", "__main__"):
            continue
        names = set()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module == "experiments":
                names |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                first, _, rest = node.module.partition(".")
                names |= {rest.split(".")[0]} if first == "experiments" else set()
            elif isinstance(node, ast.Import):
                assert not any(alias.name.startswith("experiments") for alias in node.names)
        found.setdefault(own, set()).update(names - {own})
    return found


def test_rooms_import_one_way():
    imports = find_imports()
    assert set().union(*imports.values()) <= set(imports)
    tuple(TopologicalSorter(imports).static_order())  # raises CycleError


def test_the_runner_and_the_data_know_no_experiment():
    imports = find_imports()
    assert not imports["runner"]
    assert not imports["data"]
