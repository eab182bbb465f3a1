"""The benchmarks, run as a user runs them, and what they make of their rows."""

import copy
import importlib.util
import json
import math
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import mibounds as mb

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def run(run_script):
    def run(*command):
        result = run_script(*command)
        assert result.returncode == 0, result.stderr
        return result

    return run


@pytest.fixture
def load(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module


@pytest.fixture(scope="module")
def folder(run, tmp_path_factory):
    """Results of a quick run of the steps."""
    out = tmp_path_factory.mktemp("bench")
    shown = run("benchmarks/steps.py", "--quick", "--out", out).stdout
    assert "L1Out, N = 32768" in shown
    return out


@pytest.fixture
def result(folder):
    return json.loads((folder / "steps_cpu.json").read_text())


def test_steps_are_measured(load, result):
    rows, pairs = result["rows"], load("steps").PAIRS
    assert [row["method"] for row in rows] == [name for name in mb.ESTIMATORS for _ in range(3)]
    assert {row["n"] for row in rows} == {32, 64, 128}
    assert all(row["ms"] > 0 for row in rows)
    for row in rows:
        naive = row["method"] in pairs
        assert (row["naive_ms"] is not None) == naive == ("naive_skipped" not in row)
        if naive:
            assert row["ratio"] == pytest.approx(row["naive_ms"] / row["ms"], rel=1e-2)
            assert row["difference_nats"] < 1e-4
    assert {(row["method"], row["form"]) for row in result["memory"]} == {
        (name, form) for name in ("club", "infonce") for form in ("fast", "naive")
    }
    assert [row["n"] for row in result["sampled"]] == [512, 1024]
    assert result["command"] == "python benchmarks/steps.py --device cpu --quick"


def test_steps_leave_a_figure_and_nothing_half_done(folder):
    assert sorted(path.name for path in folder.iterdir()) == ["steps_cpu.json", "steps_cpu.svg"]
    assert (folder / "steps_cpu.svg").read_bytes().startswith(b"<?xml")
    text = (folder / "steps_cpu.json").read_text() + (folder / "steps_cpu.svg").read_text()
    assert str(ROOT) not in text
    assert str(folder) not in text


@pytest.mark.parametrize("line", ["a,b\n", "[1, 2]\n", '{"seed": 1}\n', '{"task": "o', "thesis"])
def test_a_file_of_somebody_else_is_not_written_over(line, load, tmp_path):
    measurements, path = load("measurements"), tmp_path / "rows.jsonl"
    whole = '{"task": "one", "seed": 0}\n'
    path.write_text(line + whole)
    with pytest.raises(ValueError, match=r"Expected a row with task, seed in line 1 of .* but got"):
        measurements.complete_rows(path, ("task", "seed"), [], dict, 1)
    assert path.read_text() == line + whole
    path.write_text(whole + '{"task": "o')  # which an interrupted run leaves
    assert measurements.read_rows(path, ("task", "seed")) == [{"task": "one", "seed": 0}]


def test_kept_rows_of_other_settings_stay(load, tmp_path):
    kept = load("measurements").KeptRows
    first = kept(tmp_path / "steps.json", {"n": 1})
    first.add("steps", {"ms": 1.0})
    second = kept(tmp_path / "steps.json", {"n": 2})
    assert second.rows("steps") == []
    second.add("steps", {"ms": 2.0})
    second.finish({})
    assert kept(tmp_path / "steps.json", {"n": 1}).rows("steps") == [{"ms": 1.0}]


def test_steps_go_on_after_an_interruption(run, load, folder, result, tmp_path):
    keys = ("command", "python", "torch", "mibounds", "device_type", "device", "dim", "hidden")
    settings = {key: result[key] for key in keys}
    sections = {
        "steps": copy.deepcopy(result["rows"]),
        "sampled": result["sampled"][:1],
        "memory": result["memory"],
    }
    sections["steps"][0]["ms"] = 12345.0
    part = load("measurements").KeptRows(tmp_path / "steps_cpu.json", settings).part
    part.write_text(json.dumps({"settings": settings, "seconds": 1000, "sections": sections}))
    run("benchmarks/steps.py", "--quick", "--out", tmp_path)
    again = json.loads((tmp_path / "steps_cpu.json").read_text())
    assert not part.exists()
    assert again["rows"] == sections["steps"]  # kept, not measured anew
    assert again["seconds"] > 1000
    assert len(again["sampled"]) == 2
    assert again["sampled"][0] == result["sampled"][0]


def test_goals_follow_from_the_rows(load, result):
    steps = load("steps")
    assert result["acceptance"] == steps.acceptance(result)
    sampled = result["acceptance"][-1]
    assert sampled["measured"] == max(row["ratio"] for row in result["sampled"])
    assert all(row["holds"] is None for row in result["acceptance"][:-1])  # not in a quick run

    span = {"from": 2**14, "to": 2**20}

    def holds(device, ratio, exponent, mib):
        fit = {"method": "club", "form": "fast", "what": "time", "exponent": exponent}
        changed = result | {
            "rows": [{"method": m, "n": 4096, "ratio": ratio} for m in ("club", "l1out")],
            "exponents": [fit | span],
            "compiled": [
                {"method": m, "n": 1024, "ratio": ratio, "compiled_ratio": ratio}
                for m in ("infonce", "nwj")
            ],
            "kept": [{"method": "club", "n": 4096, "ratio": ratio}],
            "sampled": [{"n": 512, "ratio": 1.0}, {"n": 1024, "ratio": exponent}],
            "memory": [
                {"method": "l1out", "n": 32768, "hidden": 64, "form": "fast", "MiB": mib},
                {"method": "infonce", "n": 8192, "hidden": 256, "form": "fast", "MiB": mib},
            ],
        }
        entries = steps.acceptance(changed | {"device_type": device})
        assert len(entries) == len(result["acceptance"]) == 12
        assert [entry["goal"] is None for entry in entries[:4]] == (
            [False, True, False, True] if device == "cpu" else [True, True, False, True]
        )
        return [entry["holds"] for entry in entries if entry["goal"] is not None]

    assert holds("cpu", 1001.0, 1.19, 2047.0) == [True] * 10
    assert holds("cpu", 5.9, 1.21, 2049.0) == [False] * 10
    assert holds("cuda", 5.9, 1.21, 2047.0) == [False, True, True]  # growth and memory alone


def test_exponents_are_those_of_the_rows(load):
    steps = load("steps")
    rows = [
        {"method": "club", "n": 2**k, "ms": 2.0**k / 1000 + 5 * (k < 14), "naive_ms": None}
        for k in range(5, 21)
    ]
    rows += [
        {"method": "l1out", "n": 2**k, "ms": 4.0**k, "naive_ms": 8.0**k if k < 9 else None}
        for k in range(5, 13)
    ]
    memory = [
        {"method": "l1out", "n": 4**k, "hidden": 64, "form": "fast", "MiB": 4.0**k}
        for k in range(1, 6)
    ]
    kept = [{"method": "club", "n": 2**k, "ms": 3.0**k} for k in (12, 14, 15, 16)]
    fits = {
        (fit["method"], fit["form"], fit["what"]): (fit["exponent"], fit["from"], fit["to"])
        for fit in steps.exponents({"rows": rows, "memory": memory, "kept": kept})
    }
    assert fits == {
        ("club", "fast", "time"): (1.0, 2**14, 2**20),
        ("club", "kept", "time"): (1.585, 2**14, 2**16),
        ("l1out", "fast", "time"): (2.0, 2**9, 2**12),
        ("l1out", "naive", "time"): (3.0, 2**5, 2**8),
        ("l1out", "fast", "memory"): (1.0, 16, 1024),
    }


def test_predictions(load):
    steps = load("steps")
    rows = [{"n": 32, "ms": 7.0}, {"n": 64, "ms": 1000.0}, {"n": 128, "ms": 4000.0}]
    assert steps.predicted_seconds(rows, 256, "ms") == pytest.approx(16)
    assert steps.predicted_seconds(rows, 512, "ms") == pytest.approx(64)
    assert steps.predicted_seconds(rows[:1], 512, "ms") == 0
    flat = [{"n": 32, "ms": 1000.0}, {"n": 64, "ms": 1000.0}]
    assert steps.predicted_seconds(flat, 128, "ms") == pytest.approx(2)  # linear at least


def test_a_child_reports_or_fails(load):
    measurements = load("measurements")
    assert measurements.in_child(divmod, 7, 2) == (3, 1)
    with pytest.raises(RuntimeError, match=r"divmod.*ZeroDivisionError"):
        measurements.in_child(divmod, 7, 0)


def test_streaming(run, tmp_path):
    samples = tmp_path / "samples"
    samples.mkdir()
    out = tmp_path / "out"
    run("benchmarks/streaming.py", "--quick", "--folder", samples, "--out", out)
    result = json.loads((out / "streaming.json").read_text())
    assert result["streaming"]["samples"] == result["rows"] == 200_000
    assert result["streaming"]["exact"]
    a, b = result["streaming"]["nats"], result["in_memory"]["nats"]
    memory, difference = result["acceptance"]
    assert difference["measured"] == result["relative_difference"] == abs(a - b) / b < 1e-6
    assert memory["measured"] == result["streaming"]["peak_MB"]
    assert memory["holds"] == (memory["measured"] < 600)
    assert difference["holds"]
    assert not list(samples.iterdir())
    assert [path.name for path in out.iterdir()] == ["streaming.json"]


def test_streaming_removes_its_samples_when_stopped(tmp_path):
    command = [sys.executable, "benchmarks/streaming.py", "--rows", "20000000"]
    process = subprocess.Popen(
        [*command, "--folder", str(tmp_path), "--out", str(tmp_path / "out")],
        cwd=ROOT,
        stderr=subprocess.PIPE,
    )
    try:
        end = time.monotonic() + 60
        while not list(tmp_path.glob("*/x.npy")) and time.monotonic() < end:
            time.sleep(0.05)
        assert list(tmp_path.glob("*/x.npy"))
        process.send_signal(signal.SIGTERM)
        _, error = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 1
    assert b"interrupted" in error
    assert not list(tmp_path.iterdir())


def test_classes_of_a_file_are_measured_beside_ours(run, tmp_path):
    stand_in = tmp_path / "mi_estimators.py"
    stand_in.write_text("from mibounds.mi_estimators import *\n")
    options = ("--quick", "--sequences", stand_in, "--out", tmp_path)
    run("benchmarks/moving.py", stand_in, *options)
    result = json.loads((tmp_path / "moving.json").read_text())
    assert {(r["d"], r["n"]) for r in result["speed"]} == {
        (d, n) for d in (20, 256) for n in (32, 64, 128)
    }
    assert {r["kind"] for r in result["sequences"]} == {"CLUBSample_group", "CLUBSample_reshape"}
    assert all(r["names_ratio"] > 0 and r["library_ratio"] > 0 for r in result["speed"])
    ends = {(r["kind"], r["whose"], r["seed"]): r["left"] for r in result["left"]}
    assert len(ends) == 21
    for kind in ("CLUB", "CLUBSample"):
        for seed in range(3):  # the same class
            assert ends[kind, "theirs", seed] == pytest.approx(ends[kind, "names", seed], rel=1e-5)


def test_rivals_say_what_is_missing(run_script):
    if importlib.util.find_spec("torch_mist"):
        pytest.skip("torch-mist is here")
    shown = run_script("benchmarks/rivals.py", "--quick")
    assert shown.returncode == 1
    assert "torch-mist is not installed" in shown.stderr


@pytest.mark.parametrize("name", ["tasks", "labels"])
def test_measure_keeps_the_rows_that_are_there_and_adds_the_others(name, run, load, tmp_path):
    cells = load("measure").cells(name, quick=True)
    kept = [
        {"task": task, "method": method, "seed": seed, "n": 300, "budget": "fast", "truth": 1.0,
         "nats": 1.25, "interval": [0.5, 1.5], "by": method, "warnings": [], "seconds": 1234.5}
        for task, method, seed in cells[:2]
    ]  # fmt: skip
    lines = [json.dumps(row) for row in kept]
    path = tmp_path / f"{name}.jsonl"
    path.write_text("\n".join(lines) + '\n{"task": "torn')
    run("benchmarks/measure.py", name, "--quick", "--jobs", "1", "--out", tmp_path)
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert rows[:2] == kept
    assert [(row["task"], row["method"], row["seed"]) for row in rows] == cells
    summary = json.loads((tmp_path / f"{name}.json").read_text())
    assert summary["command"] == f"python benchmarks/measure.py {name}"
    assert all(set(a) == {"what", "goal", "measured", "holds"} for a in summary["acceptance"])
    assert not list(tmp_path.glob("*.part"))


def test_trust_keeps_the_rows_that_are_there_and_adds_the_others(run, load, tmp_path):
    wanted = load("trust").cells("others", quick=True)
    kept = {
        "task": wanted[0][0], "n": 100, "seed": wanted[0][2], "truth": 1.0, "nats": 1.25,
        "interval": [0.5, 1.5], "lower": 0.2, "verdict": "believe", "method": "ksg",
        "warnings": [], "seconds": 1234.5,
    }  # fmt: skip
    path = tmp_path / "trust_others.jsonl"
    path.write_text(json.dumps(kept) + '\n{"task": "torn')
    run("benchmarks/trust.py", "others", "--quick", "--jobs", "1", "--out", tmp_path)
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert rows[0] == kept
    assert [(row["task"], row["n"], row["seed"]) for row in rows] == wanted
    assert all(row["nats"] >= 0 for row in rows)
    summary = json.loads((tmp_path / "trust_others.json").read_text())
    assert summary["all"]["cells"] == len(wanted)
    assert "| 100 | 3 |" in (tmp_path / "trust_others.md").read_text()


@pytest.mark.parametrize("name", ["given", "strangers"])
def test_trust_of_other_kinds(name, run, tmp_path):
    run("benchmarks/trust.py", name, "--quick", "--jobs", "1", "--out", tmp_path)
    rows = [
        json.loads(line) for line in (tmp_path / f"trust_{name}.jsonl").read_text().splitlines()
    ]
    assert all(0 < row["p"] <= 1 for row in rows)
    summary = json.loads((tmp_path / f"trust_{name}.json").read_text())
    assert summary["command"] == f"python benchmarks/trust.py {name}"
    assert rows[0]["task"] in (tmp_path / f"trust_{name}.md").read_text()


def test_what_is_believed_and_wrong(load):
    is_wrong = load("trust").is_wrong
    row = {
        "interval": [0.1, 0.3], "nats": 0.2, "truth": 0.25, "known": True, "verdict": "believe",
        "entropy": 0.69, "upper": 0.4,
    }  # fmt: skip
    assert not is_wrong(row)
    assert is_wrong(row | {"truth": 0.4})
    assert not is_wrong(row | {"truth": 0.4, "verdict": "care"})
    assert not is_wrong(row | {"truth": 0.05, "known": False})
    assert is_wrong(row | {"truth": 0.4, "known": False})
    assert is_wrong(row | {"upper": 0.7, "verdict": "doubt"})
    assert is_wrong(row | {"interval": [-0.1, 0.3], "verdict": "doubt"})


def test_causes_and_strangers_are_what_they_say(load):
    cases = load("cases")
    rng = np.random.default_rng(0)
    for one in cases.CONDITIONAL.values():
        x, y, z = one.draw(50, rng)
        assert len(x) == len(y) == len(z) == 50
    for p, distance in ((0.5, 1.5), (0.37, 2.0)):  # by sampling
        label = rng.random(200_000) < p
        x = label * distance + rng.normal(size=200_000)
        ratio = np.exp(distance * x - distance**2 / 2)  # of both densities
        own = np.where(label, ratio, 1.0) / (p * ratio + 1 - p)
        assert cases._two_clouds(p, distance) == pytest.approx(np.log(own).mean(), abs=5e-3)
    # Four columns that move alike are one that moves by twice as much.
    x, y = cases._unlikely_label(50_000, rng)
    assert (x[y == 1].sum(1).mean() - x[y == 0].sum(1).mean()) / 2 == pytest.approx(2, abs=0.05)
    x, y = cases._code(50_000, rng)
    assert np.linalg.norm(x[y == 1].mean(0) - x[y == 0].mean(0)) == pytest.approx(1.5, abs=0.05)


def test_autoregressions_have_the_moments_that_they_claim(load):
    series = load("series")
    one = series.SERIES["0.9 and 0.5, x leads by 3"]
    z = np.stack(one.sample(200_000, seed=0), 1)
    for h, truth in enumerate(one.covariances(4)):
        found = z[h:].T @ z[: len(z) - h] / (len(z) - h)
        assert found == pytest.approx(truth, abs=0.15)
    rho = np.corrcoef(z[:-3, 0], z[3:, 1])[0, 1]
    assert one.at_lag(3, 0) == pytest.approx(-0.5 * math.log(1 - rho**2), rel=0.03)
    assert one.at_lag(-1, 2) == pytest.approx(0, abs=1e-9)
    assert one.transfer(0, 3, 1) > 0.1 > one.transfer(1, 3, 2) == pytest.approx(0, abs=1e-9)
    with pytest.raises(ValueError, match="stationary"):
        series.Autoregression((((1.0, 0.0), (0.0, 0.5)),)).covariances(1)


@pytest.mark.parametrize("name", ["lags", "tests", "warnings", "parts", "entropies"])
def test_series_keep_the_rows_that_are_there_and_add_the_others(name, run, load, tmp_path):
    fields, wanted = load("series").cells(name, quick=True)
    run("benchmarks/series.py", name, "--quick", "--jobs", "1", "--out", tmp_path)
    path = tmp_path / f"series_{name}.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert [tuple(row[field] for field in fields) for row in rows] == wanted
    kept = path.read_text()
    run("benchmarks/series.py", name, "--quick", "--jobs", "1", "--out", tmp_path)
    assert path.read_text() == kept
    table = (tmp_path / f"series_{name}.md").read_text()
    assert table.count("\n|") >= 2
    assert json.loads((tmp_path / f"series_{name}.json").read_text())["rows"] == len(wanted)


def test_peers_that_are_missing_say_why(run, tmp_path):
    options = ("--quick", "--methods", "mibounds", "latentmi", "--out", tmp_path)
    if importlib.util.find_spec("latentmi"):
        pytest.skip("latentmi is here")
    shown = run("benchmarks/peers.py", *options)
    rows = [json.loads(line) for line in (tmp_path / "peers.jsonl").read_text().splitlines()]
    assert [row["method"] for row in rows] == ["mibounds", "latentmi"] * 2
    assert all("latentmi" in row["why"] for row in rows[1::2])
    assert "| mibounds | tasks | 2 |" in shown.stdout


def test_tables_are_measured(run, tmp_path):
    run("benchmarks/tables.py", "chance", "--quick", "--out", tmp_path)
    rows = json.loads((tmp_path / "tables_chance.json").read_text())["rows"]
    assert len(rows) == 8
    assert all(0 <= row["at_0.05"] < 0.3 for row in rows)


def test_tables_beside_scikit_learn(run, load, tmp_path):
    pytest.importorskip("sklearn", reason="it is what they are compared with")
    tables = load("tables")
    names = list(tables.known())[::9]
    kept = {"pair": names[0], "group": "smooth", "n": 200, "seed": tables.FIRST_SEED, "truth": 0.0}
    kept |= {way: {"nats": 0.5, "interval": [0.0, 1.0]} for way in ("default", "fast")}
    kept["scikit-learn"] = {"nats": 0.25}
    path = tmp_path / "tables_truths.jsonl"
    path.write_text(json.dumps(kept) + '\n{"pair": "torn')
    run("benchmarks/tables.py", "truths", "--quick", "--jobs", "1", "--out", tmp_path)
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert rows[0] == kept
    assert [row["pair"] for row in rows] == names
    groups = json.loads((tmp_path / "tables_truths.json").read_text())["groups"]
    assert sum(g["cells"] for g in groups if g["group"] == "all") == len(names)


def test_pairs_whose_value_is_known(load):
    """Each beside the value of many rows; and a rounded column beside its table of counts."""
    tables = load("tables")
    for name in ("square", "Student 2", "four labels", "stripes, 0.85", "steps of 0.8"):
        pair = tables.known()[name]
        x, y = pair.sample(20_000, np.random.default_rng(0))
        kind = "discrete" if pair.group == "labels" else "continuous"
        (found,) = mb.rank(x, y, kinds="continuous", target_kind=kind).columns
        assert found.nats == pytest.approx(pair.nats, abs=0.025), name
    pair = tables.rounded(0.7, 1.0, both=True)
    x, y = pair.sample(200_000, np.random.default_rng(0))
    assert mb.PlugIn()(x.astype(int), y.astype(int)) == pytest.approx(pair.nats, abs=0.005)


def test_a_channel_lets_through_what_it_should(load):
    trust = load("trust")
    for labels, nats in ((2, 0.36), (10, 1.2), (5, 0.0)):
        right = trust._keep_probability(labels, nats)
        wrong = (1 - right) / (labels - 1)
        parts = [right] + (labels - 1) * [wrong]
        assert math.log(labels) + sum(p * math.log(p) for p in parts if p) == pytest.approx(nats)
    factor = trust.Factor(50, 0.3)
    x, y = factor.sample(200_000, seed=0)
    rho = np.corrcoef(x.mean(1), y.mean(1))[0, 1]
    assert factor.mutual_information == pytest.approx(-0.5 * math.log(1 - rho**2), rel=0.02)


def test_a_large_file_is_measured(run, tmp_path):
    run("benchmarks/measure.py", "large", "--quick", "--out", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["large.json"]
    result = json.loads((tmp_path / "large.json").read_text())
    assert result["nats"] == pytest.approx(result["truth"], abs=0.1)
    assert result["interval"][0] < result["nats"] < result["interval"][1]
    seconds, memory = result["acceptance"]
    assert seconds["measured"] == result["seconds"] > 0
    assert memory["measured"] == result["peak_MB"] > result["before_MB"]


def test_a_soak_of_the_penalty(run, tmp_path):
    run("benchmarks/penalty.py", "soak", "--steps", "60", "--out", tmp_path)
    result = json.loads((tmp_path / "penalty_soak.json").read_text())
    assert result["steps_not_finite"] == 0
    assert result["parameters_finite"] is True
    assert [row["step"] for row in result["rows"]] == list(range(3, 61, 3))


def test_trainings_are_timed(run, sets, tmp_path):
    command = ("benchmarks/trainings.py", "--device", "cpu", "--quick", "--out", tmp_path)
    run(*command, "--methods", "none", "club", "club_sample")
    result = json.loads((tmp_path / "trainings_cpu.json").read_text())
    rows = {(row["experiment"], row["method"]): row for row in result["rows"]}
    assert list(rows) == [
        *(("information-bottleneck", m) for m in ("none", "club", "club_sample")),
        *(("domain-adaptation", m) for m in ("club", "club_sample")),
    ]
    whole = [key for key, row in rows.items() if row["from"] == "the whole training"]
    assert whole == [("information-bottleneck", "club"), ("domain-adaptation", "club_sample")]
    assert [each["measured"] for each in result["acceptance"]] == [
        rows[key]["seconds"] for key in whole
    ]


def test_timings_that_are_broken_off_keep_what_they_have(load, tmp_path, monkeypatch, capsys):
    trainings = load("trainings")

    def measure(name, method, args):
        if method == "club_sample":
            raise KeyboardInterrupt
        return {"experiment": name, "method": method, "seconds": 1.0, "from": "nothing"}

    monkeypatch.setattr(trainings, "measure", measure)
    command = ["trainings.py", "--device", "cpu", "--out", str(tmp_path), "--methods"]
    monkeypatch.setattr("sys.argv", [*command, "club", "club_sample"])
    with pytest.raises(KeyboardInterrupt):
        trainings.main()
    result = json.loads((tmp_path / "trainings_cpu.json").read_text())
    assert [row["method"] for row in result["rows"]] == ["club"]
    monkeypatch.setattr("sys.argv", [*command, "clubs"])
    with pytest.raises(SystemExit):
        trainings.main()
    assert "but got clubs; leave it out for all" in capsys.readouterr().err


def test_a_training_that_takes_too_long_misses_its_goal(load):
    trainings = load("trainings")
    rows = [{"experiment": "information-bottleneck", "method": m, "seconds": s}
            for m, s in (("club", 60.5), ("vub", 99.0))]  # fmt: skip
    (goal,) = trainings.accept(rows)
    assert not goal["holds"]
    rows[0]["seconds"] = 59.5
    assert trainings.accept(rows)[0]["holds"]
