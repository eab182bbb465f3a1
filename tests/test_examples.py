"""The examples and benchmarks, run as a user runs them."""

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
