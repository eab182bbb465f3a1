"""The examples, each run once as a user runs it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def run(run_script):
    def run(*command):
        result = run_script(*command)
        assert result.returncode == 0, result.stderr
        return result.stdout

    return run


def test_demo(run, tmp_path):
    out = run("examples/demo.py", "--quick", "--out", str(tmp_path / "new"))
    for word in ("club_sample", "infonce", "truth", "estimate", "side", "seconds", "1.50"):
        assert word in out
    figure = tmp_path / "new" / "demo.png"
    assert figure.read_bytes().startswith(b"\x89PNG")
    assert figure.stat().st_size > 10_000


@pytest.fixture
def results(run, tmp_path):
    """The rows that an example writes beside its table."""

    def results(*command):
        path = tmp_path / "rows.json"
        run(*command, "--quick", "--json", path)
        return json.loads(path.read_text())

    return results


def test_minimise(results):
    plain, penalty, by_hand = results("examples/minimise.py")
    for row in (penalty, by_hand):
        assert row["true I(z; s)"] < 0.6 * plain["true I(z; s)"]
        assert row["error of a"] < plain["error of a"] + 0.1
    assert abs(penalty["true I(z; s)"] - by_hand["true I(z; s)"]) < 0.3
    for row in (plain, penalty, by_hand):
        assert abs(row["estimate"] - row["true I(z; s)"]) < 0.2


def test_minimise_lightning(results):
    plain, whole, resumed = results("examples/minimise_lightning.py")
    assert whole["audit"] < 0.5 * plain["audit"]
    assert resumed["same parameters"] is True
    for key in ("error of a", "penalty", "audit"):
        assert resumed[key] == whole[key]


def test_minimise_ddp(results, tmp_path):
    """Two processes of Accelerate take the steps of the plain loop in one."""
    command = ["examples/minimise_ddp.py", "--double"]
    before, one = results(*command)
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    path = tmp_path / "two.json"
    subprocess.run(
        [sys.executable, *launch, *command, "--accelerate", "--quick", "--json", path],
        cwd=ROOT, check=True,
    )  # fmt: skip
    _, two = json.loads(path.read_text())
    assert one["audit"] < 0.6 * before["audit"]
    assert one["error of a"] < 0.6 * before["error of a"]
    assert two["error of a"] == pytest.approx(one["error of a"], rel=1e-6)
    assert two["audit"] == pytest.approx(one["audit"], rel=1e-3)


def test_disentangle(results):
    plain, penalty = results("examples/disentangle.py")
    assert penalty["I(content; style)"] < 0.3 * plain["I(content; style)"]
    assert penalty["I(style; pattern)"] < 0.3 * plain["I(style; pattern)"]
    assert penalty["accuracy"] > 0.95


def test_fairness(results):
    plain, penalty, given = results("examples/fairness.py")
    assert penalty["I(z; s)"] < 0.5 * plain["I(z; s)"]
    assert penalty["gap"] < 0.7 * plain["gap"]
    assert 0.7 < penalty["accuracy"] < plain["accuracy"]  # nothing is free here
    assert given["I(z; s | y)"] < plain["I(z; s | y)"]
    assert penalty["accuracy"] < given["accuracy"]  # what y itself tells of s may stay


def test_total_correlation(results):
    rows = results("examples/total_correlation.py")
    plain, penalty = (row for row in rows if row["term"] == "TC")
    assert penalty["true"] < 0.5 * plain["true"]
    for total in (plain, penalty):
        terms = [r for r in rows if r["weight"] == total["weight"] and r["term"] != "TC"]
        assert len(terms) == 3
        assert total["true"] == pytest.approx(sum(term["true"] for term in terms))
        assert abs(total["audit"] - total["true"]) < 0.15


@pytest.mark.parametrize("name", ["measure", "minimise"])
def test_notebooks(name, run, tmp_path):
    """All cells in their order; they assert what they claim."""
    notebook = json.loads((ROOT / "examples" / f"{name}.ipynb").read_text())
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert all(
        cell["outputs"] or cell["source"][0].startswith(("import", "def", "for")) for cell in cells
    )
    script = tmp_path / f"{name}.py"
    code = "\n\n".join("".join(cell["source"]) for cell in cells)
    script.write_text(f"import matplotlib\n\nmatplotlib.use('Agg')\n{code}\nprint('done')\n")
    assert run(script).endswith("done\n")
