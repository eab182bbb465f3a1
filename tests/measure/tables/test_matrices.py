"""Matrices: symmetry, resuming, processes and clusters, what they print, draw and write."""

import importlib.util
import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from matplotlib.figure import Figure

import mibounds as mb
from mibounds.measure.tables import blocks
from mibounds.measure.tables.plots import order_of
from mibounds.measure.tables.scales import convert
from mibounds.measure.tables.significance import correct

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def frame():
    rng = np.random.default_rng(0)
    n = 400
    frame = pd.DataFrame({"a": rng.normal(size=n), "kind": rng.choice(list("xyz"), n)})
    frame["b"] = frame.a**2 + 0.5 * rng.normal(size=n)
    frame["c"] = (frame.a + rng.normal(size=n) > 0).astype(int)
    frame["half"] = np.round(2 * frame.a + rng.normal(size=n)) / 2
    frame.loc[rng.random(n) < 0.2, "half"] = np.nan
    frame.loc[rng.random(n) < 0.1, "kind"] = None
    return frame


@pytest.fixture(scope="module")
def found(frame):
    return mb.matrix(frame)


def same(a, b):
    names = ("nats", "below", "above", "p_values", "corrected", "rows", "methods")
    return all(np.array_equal(getattr(a, n), getattr(b, n), equal_nan=True) for n in names)


def test_it_is_symmetric_to_the_last_digit(found):
    for name in ("nats", "below", "above", "p_values", "corrected", "rows", "methods"):
        values = getattr(found, name)
        assert np.array_equal(values, values.T, equal_nan=True), name
    assert found.left == found.right == ("a", "kind", "b", "c", "half")
    assert found.left_kinds == ("continuous", "discrete", "continuous", "discrete", "continuous")


def test_the_diagonal_holds_entropies(found):
    assert found.nats[1, 1] == pytest.approx(math.log(3), abs=0.01)
    assert math.isinf(found.nats[0, 0])
    assert np.diag(found.values("normalised")).tolist() == [1.0] * 5


def test_units(found, unchecked):
    assert found.values("bits")[0, 2] == pytest.approx(found.nats[0, 2] / math.log(2))
    normalised = found.values("normalised")
    assert normalised[0, 2] == pytest.approx(math.sqrt(1 - math.exp(-2 * found.nats[0, 2])))
    assert normalised[0, 3] == pytest.approx(found.nats[0, 3] / found.nats[3, 3])
    rho = np.array([0.2, 0.9])
    same = convert(-0.5 * np.log(1 - rho**2), "normalised", np.full(2, np.inf))
    assert same == pytest.approx(rho)  # the correlation of normal variables
    with pytest.raises(ValueError, match=r"^Expected unit to be one of nats, bits, normalised but"):
        found.values("digits")


def test_two_tables_give_a_part_of_the_whole_one(frame):
    x, y = frame[["a", "kind"]], frame[["b", "c", "half"]]
    part, whole = mb.matrix(x, y), mb.matrix(frame)
    assert part.nats.shape == (2, 3)
    places = [0, 1], [2, 3, 4]
    assert part.nats == pytest.approx(whole.nats[np.ix_(*places)], abs=0.01)  # other noise in ties
    turned = mb.matrix(y, x)
    assert pytest.approx(part.nats, abs=0.01) == turned.nats.T
    assert not part.symmetric


def test_processes_change_nothing(frame, found, monkeypatch):
    pytest.importorskip("joblib")
    monkeypatch.setattr(blocks, "PAIRS", 4 * len(frame))  # several blocks
    monkeypatch.setattr(blocks, "_blocks", small_blocks)
    assert same(mb.matrix(frame, n_jobs=2), mb.matrix(frame))
    assert same(mb.matrix(frame, n_jobs=2, backend="threading"), found)


def small_blocks(left, right, rows, symmetric):
    starts = range(0, left, 2), range(0, right, 2)
    return [
        (range(i, min(i + 2, left)), range(j, min(j + 2, right)))
        for i in starts[0]
        for j in starts[1]
        if not symmetric or i <= j
    ]


def test_blocks_cover_each_pair_once():
    for symmetric, right in ((True, 150), (False, 70)):
        seen = np.zeros((150, right), int)
        for rows, columns in blocks._blocks(150, right, 1000, symmetric):
            seen[np.ix_(rows, columns)] += 1
        assert (seen[np.triu_indices(150)] == 1).all() if symmetric else (seen == 1).all()


def test_dask(frame, found):
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=2, processes=False, dashboard_address=None
    ) as cluster:
        address = cluster.scheduler_address
        with distributed.Client(cluster):
            assert same(mb.matrix(frame, n_jobs=2, backend="dask"), found)
        assert same(mb.matrix(frame, n_jobs=2, backend="dask", scheduler=address), found)


def test_dask_without_a_client(frame):
    pytest.importorskip("distributed")
    with pytest.raises(ValueError, match=r"^Expected a running dask client, .* make one with"):
        mb.matrix(frame, n_jobs=2, backend="dask")


def test_ray(frame, found):
    ray = pytest.importorskip("ray", reason="it needs an environment of its own")
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        assert same(mb.matrix(frame, n_jobs=2, backend="ray"), found)
    finally:
        ray.shutdown()


def test_ray_that_is_missing_is_named(frame, monkeypatch):
    pytest.importorskip("joblib")
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ImportError, match=r"needs the package ray, .* pip install ray"):
        mb.matrix(frame, backend="ray")


@pytest.mark.parametrize(
    ("module", "settings", "extra"),
    [
        ("joblib", {"n_jobs": 2}, "parallel"),
        ("distributed", {"backend": "dask"}, "dask"),
        ("rich.console", {"progress": True}, "plot"),
    ],
)
def test_what_is_missing_is_named(frame, monkeypatch, module, settings, extra):
    monkeypatch.setattr(blocks, "_blocks", small_blocks)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=rf"pip install 'mibounds\[{extra}\]'"):
        mb.matrix(frame, **settings)


def test_without_scipy_it_says_what_is_missing(frame, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda n: None if n == "scipy" else find(n))
    found = mb.matrix(frame[["a", "b"]])
    assert [w.code for w in found.warnings] == ["no-neighbours"]
    assert found.pairs()[0].method == "series"
    assert found.high[0, 1] > 0.7 > found.nats[0, 1]  # the interval knows what a series misses


# --- going on ------------------------------------------------------------------------------------


def test_finished_blocks_are_not_measured_again(frame, found, tmp_path, monkeypatch):
    monkeypatch.setattr(blocks, "_blocks", small_blocks)
    out = tmp_path / "out"
    whole = mb.matrix(frame, out=out)
    assert same(whole, found)
    assert len(list(out.glob("block-*.npy"))) == 6
    (out / "block-000003.npy").unlink()
    (out / "block-000004.npy").write_bytes(b"torn")
    measured = []
    measure = blocks._measure
    monkeypatch.setattr(blocks, "_measure", lambda *c: measured.append(c[0]) or measure(*c))
    assert same(mb.matrix(frame, out=out), whole)
    assert measured == [3, 4]
    shares = []
    mb.matrix(frame, out=out, progress=lambda share, word: shares.append(share))
    assert shares == [1.0]


def test_a_bar_is_drawn_when_asked_for(frame, capsys, monkeypatch):
    pytest.importorskip("rich", reason="the bar is made by rich")
    monkeypatch.setenv("FORCE_COLOR", "1")
    mb.matrix(frame)
    assert capsys.readouterr().err == ""
    mb.matrix(frame, progress=True)
    assert "pairs" in capsys.readouterr().err


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")
def test_a_gpu_gives_the_same(frame, found):
    on_gpu = mb.matrix(frame, device="cuda")
    assert on_gpu.nats == pytest.approx(found.nats, abs=1e-5)
    assert on_gpu.p_values == pytest.approx(found.p_values, rel=1e-3, nan_ok=True)


def test_a_folder_belongs_to_one_table_and_its_settings(frame, tmp_path):
    out = tmp_path / "out"
    mb.matrix(frame, out=out)
    other = frame.copy()
    other.loc[0, "a"] += 1e-9
    for table, settings in ((other, {}), (frame, {"budget": "default"}), (frame, {"seed": 1})):
        with pytest.raises(ValueError, match=r"^Expected blocks of this table .* name another"):
            mb.matrix(table, out=out, **settings)
    (out / "table.json").write_text("{")
    with pytest.raises(ValueError, match=r"^Expected blocks of this table .* name another"):
        mb.matrix(frame, out=out)
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(ValueError, match=r"^Expected a folder for out but .* is a file; name a"):
        mb.matrix(frame, out=file)


def test_blocks_of_somebody_else_are_no_results(frame, tmp_path):
    np.save(tmp_path / "block-000000.npy", np.zeros(3))
    with pytest.raises(ValueError, match=r"Expected no blocks .* but got block-000000.npy; name"):
        mb.matrix(frame, out=tmp_path)
    assert [each.name for each in tmp_path.iterdir()] == ["block-000000.npy"]


CODE = """
import sys, numpy as np, mibounds as mb
from mibounds.measure.tables import blocks
blocks.PAIRS = 20_000  # small blocks
x = np.random.default_rng(0).normal(size=(200, 40))
x[:, 1::2] += x[:, ::2]
found = mb.matrix(x, budget="default", out=sys.argv[1])
np.save(sys.argv[2], found.nats)
"""


def test_killed_and_resumed_it_gives_the_same_table(tmp_path):
    def run(out, result):
        return subprocess.Popen(
            [sys.executable, "-c", CODE, str(tmp_path / out), str(tmp_path / result)], cwd=ROOT
        )

    assert run("once", "once.npy").wait(120) == 0
    total = len(list((tmp_path / "once").glob("block-*")))
    killed = run("twice", "twice.npy")
    end = time.monotonic() + 60
    while time.monotonic() < end and len(list((tmp_path / "twice").glob("block-*"))) < 2:
        time.sleep(0.002)
    os.kill(killed.pid, signal.SIGKILL)
    killed.wait(60)
    assert 2 <= len(list((tmp_path / "twice").glob("block-*"))) < total
    assert not (tmp_path / "twice.npy").exists()
    assert run("twice", "twice.npy").wait(120) == 0
    once, twice = (np.load(tmp_path / f"{name}.npy") for name in ("once", "twice"))
    assert np.array_equal(once, twice)


# --- significance --------------------------------------------------------------------------------


def test_corrections_are_those_of_their_papers():
    p = np.array([0.001, 0.008, 0.039, 0.041, 0.042, 0.06, np.nan])
    m, known = 6, p[:6]
    assert correct(p, "none")[:6].tolist() == known.tolist()
    holm = [max((m - j) * known[j] for j in range(i + 1)) for i in range(m)]
    assert correct(p, "holm")[:6] == pytest.approx(np.minimum(holm, 1))
    bh = [min(m * known[j] / (j + 1) for j in range(i, m)) for i in range(m)]
    assert correct(p, "benjamini-hochberg")[:6] == pytest.approx(np.minimum(bh, 1))
    harmonic = sum(1 / (i + 1) for i in range(m))
    by = np.minimum(np.array(bh) * harmonic, 1)
    assert correct(p, "benjamini-yekutieli")[:6] == pytest.approx(by)
    assert all(np.isnan(correct(p, c)[6]) for c in ("holm", "none"))
    shuffled = correct(p[[3, 1, 6, 0, 2, 5, 4]], "holm")
    assert np.array_equal(shuffled, correct(p, "holm")[[3, 1, 6, 0, 2, 5, 4]], equal_nan=True)
    with pytest.raises(ValueError, match=r"^Expected correction to be one of holm, .* choose"):
        correct(p, "fisher")


def test_few_discoveries_are_false():
    """20 of 780 pairs are dependent; the rest of what is found is at most one in twenty."""
    wrong = right = 0
    for seed in range(5):
        x = np.random.default_rng(seed).normal(size=(300, 40))
        x[:, 20:] += x[:, :20]
        found = mb.matrix(x).significant()
        true = np.zeros((40, 40), bool)
        true[np.arange(20), np.arange(20, 40)] = True
        wrong += int((found & ~(true | true.T)).sum()) // 2
        right += int((found & true).sum())
    assert right == 100
    assert wrong <= 5


# --- what is shown -------------------------------------------------------------------------------


def test_frames(found):
    wide = found.to_frame("bits")
    assert list(wide.columns) == list(wide.index) == list(found.left)
    assert wide.loc["a", "b"] == pytest.approx(found.nats[0, 2] / math.log(2))
    long = found.pairs_frame("normalised")
    assert len(long) == 10
    assert long.value.is_monotonic_decreasing
    assert (long.low <= long.nats).all()
    assert (long.nats <= long.high).all()
    row = long[(long.left == "a") & (long.right == "b")].iloc[0]
    assert (row.rows, row.method) == (400, "neighbours")


def test_json_holds_everything(found):
    again = mb.Matrix.from_json(found.to_json(indent=1))
    assert same(again, found)
    assert again.pairs() == found.pairs()
    assert json.loads(found.to_json())["nats"][0][0] == "Infinity"
    with pytest.raises(ValueError, match=r"^Expected the fields of a matrix but got none called"):
        mb.Matrix.from_json("{}")


def test_it_prints_the_strongest_pairs(found):
    text = str(found)
    assert text.startswith("Mutual information of 5 columns, 10 pairs, in nats\n")
    assert "a – b  " in text
    assert "a – kind" not in text
    html = found._repr_html_()
    assert html.count("<tr>") == 6
    assert html.count("<svg") == 1
    many = mb.matrix(np.random.default_rng(0).normal(size=(30, 14)))
    assert "... and 2 more; see to_frame()" in str(many)
    assert "No pair is dependent" in str(many)


def test_notebooks_do_without_matplotlib(found, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert "<svg" not in found._repr_html_()


def test_clusters_bring_similar_columns_together():
    rng = np.random.default_rng(1)
    x = rng.normal(size=(300, 8))
    for group in ((1, 4, 6), (0, 3, 7)):
        x[:, group] += 2 * rng.normal(size=(300, 1))
    order = order_of(mb.matrix(x))[0].tolist()
    assert sorted(order) == list(range(8))
    for group in ((1, 4, 6), (0, 3, 7)):
        places = sorted(order.index(j) for j in group)
        assert places[2] - places[0] == 2


def test_pictures(found, frame):
    ax = found.plot()
    assert [t.get_text() for t in ax.get_xticklabels()] == [
        found.right[j] for j in order_of(found)[1]
    ]
    assert found.plot(Figure().subplots(), "nats", cluster=False).images[0].get_array().shape == (
        5,
        5,
    )
    drawn = ax.images[0].get_array()
    assert np.ma.masked_invalid(drawn).mask.sum() == 5  # the diagonal
    wide = mb.matrix(frame[["a"]], frame[["b", "c"]])
    assert wide.plot().images[0].get_array().shape == (1, 2)
    network = found.plot_network(edges=2)
    assert len(network.lines) == 2
    assert len(wide.plot_network().lines) == 2
    empty = mb.matrix(np.random.default_rng(0).normal(size=(30, 3))).plot_network()
    assert "no pair is dependent" in [t.get_text() for t in empty.texts]


def test_a_report(found, tmp_path):
    path = tmp_path / "report.html"
    found.write_report(path, title="<b>a & b</b>")
    text = path.read_text()
    assert "<h1>&lt;b&gt;a &amp; b&lt;/b&gt;</h1>" in text
    assert text.count("<svg") == 2
    assert "<script" not in text
    assert "benjamini-yekutieli" in text
    found.write_report(path)
    assert "<h1>Mutual information of 5 columns, 10 pairs</h1>" in path.read_text()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"budget": "slow"}, r'Expected budget to be "default" or "fast" but got'),
        ({"level": 1.0}, r"Expected a level between 0 and 1 but got 1.0"),
        ({"correction": "x"}, r"Expected correction to be one of"),
        ({"backend": "x"}, r"Expected backend to be one of loky, threading, dask, ray but got"),
        ({"scheduler": "x"}, r"Expected backend dask or ray with scheduler but got 'loky'"),
        ({"names": ["a"]}, r"Expected a name for each of 5 columns of left but got 1"),
        ({"names": list("aabcd")}, r"Expected different names of the columns of left but got 'a'"),
        ({"kinds": [None]}, r"Expected a kind for each of 5 columns of left but got 1"),
        ({"right": np.zeros((3, 2))}, r"Expected as many rows of right as of left but got 3 and"),
        ({"device": "cuda"}, r"Expected a device that is there but got 'cuda'"),
    ],
)
def test_what_cannot_be_used_is_said(frame, settings, message, monkeypatch, unchecked):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(ValueError, match=f"^{message}.*;"):
        mb.matrix(frame, **settings)


def test_tables_that_are_too_small():
    with pytest.raises(ValueError, match=r"^Expected at least 10 rows but got 9; give one sample"):
        mb.matrix(np.zeros((9, 2)))
    with pytest.raises(ValueError, match=r"^Expected left to have rows and columns but got none;"):
        mb.matrix(np.zeros((0, 2)))
