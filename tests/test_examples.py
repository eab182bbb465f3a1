"""The examples and benchmarks, run as a user runs them."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def run(*command):
    result = subprocess.run(
        [sys.executable, *command], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_demo(tmp_path):
    out = run("examples/demo.py", "--quick", "--out", str(tmp_path / "new"))
    for word in ("club_sample", "infonce", "truth", "estimate", "side", "seconds", "1.50"):
        assert word in out
    figure = tmp_path / "new" / "demo.png"
    assert figure.read_bytes().startswith(b"\x89PNG")
    assert figure.stat().st_size > 10_000


def test_bench(tmp_path):
    run("benchmarks/steps.py", "--sizes", "24", "--seconds", "0", "--out", str(tmp_path))
    result = json.loads((tmp_path / "steps.json").read_text())
    assert len({row["method"] for row in result["rows"]}) == 14
    assert all(row["ms"] > 0 for row in result["rows"])
    assert not list(tmp_path.glob("*.part"))
