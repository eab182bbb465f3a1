"""The numbers on the pages are those of the committed results."""

import json
import re
import shlex
import subprocess
import sys
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from types import SimpleNamespace

import numpy as np
import pytest

import mibounds as mb
from experiments.domain_adaptation import AS_PUBLISHED, LOWER
from experiments.domains import SHARED
from experiments.ingredients import BOUNDS, METHODS, DomainAdaptationConfig, settle
from experiments.runner import Cell, read_records
from mibounds.cli import _parse
from mibounds.cli.commands import Command

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results"
CLUBS = ("club", "club_sample", "vclub", "vclub_sample")


def lines_of(page):
    text = (ROOT / "docs" / page).read_text()
    return [line for line in text.splitlines() if line.startswith("| ")]


def cells(line):
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_the_simulation_study():
    summary = json.loads((RESULTS / "estimation-quality" / "summary.json").read_text())
    found = {(e["mode"], e["method"], e["task"], e["metric"]): e for e in summary}
    table = (RESULTS / "estimation-quality" / "table.md").read_text().splitlines()
    speed = json.loads((RESULTS / "bench" / "seeds_cpu.json").read_text())["rows"]
    ratios = {(row["mode"], row["method"]): f"{row['ratio']:.1f} x" for row in speed}
    checked = 0
    head = []
    for line in lines_of("simulation.md"):
        row = cells(line)
        if row[0] in ("method", "task"):
            head = row
        elif head[0] == "task":  # against the floor
            assert line in table
            checked += 1
        elif head[1] == "mode":
            for task, text in zip(head[2:], row[2:], strict=True):
                each = found[row[1], row[0], task, "mse"]
                paper = f" ({each['paper']:g})" if row[1] == "as-published" else ""
                assert text == f"{each['mean']:.2f}{paper}"
                assert each["seeds"] == 10
                checked += 1
        else:
            for mode, text in zip(head[1:], row[1:], strict=True):
                assert text == ratios.get((mode, row[0]), "")
                checked += 1
    assert checked == 15 + 15 * 4 + 15 * 2


def test_the_best_estimator_is_within_twice_the_floor():
    """In all ten cells of the paper, over ten seeds."""
    text = (RESULTS / "estimation-quality" / "table.md").read_text()
    start = text.index("against the floor")
    rows = [cells(line) for line in text[start:].splitlines() if line.startswith("| ")]
    ratios = {row[0]: float(row[3]) for row in rows if row[0] != "task" and row[4]}
    assert len(ratios) == 10
    assert max(ratios.values()) <= 2


def test_the_bottleneck():
    folder = RESULTS / "information-bottleneck"
    summary = json.loads((folder / "summary.json").read_text())
    found = {(e["mode"], e["method"], e["metric"]): e for e in summary}
    rows = [cells(line) for line in lines_of("bottleneck.md")]
    middle = next(i for i, row in enumerate(rows) if row[0] == "beta")
    for beta, rate, *texts in rows[middle + 1 :]:
        of_rate = RESULTS / "estimator-rate" / f"beta-{beta}-rate-{rate}" / folder.name
        ((_, config, values),) = read_rows(of_rate)
        assert config["estimator_rate"] == float(rate)
        assert values["beta"] == float(beta)
        assert texts == [f"{nats:.1f}" for nats in values["x_upper"][-2:]]
    rows = rows[:middle]
    assert [row[:2] for row in rows[1:]] == [list(k[:2]) for k in found if k[2] == "error"]
    for mode, method, *texts, paper in rows[1:]:
        for metric, text in zip(("error", "error_oracle"), texts, strict=True):
            each = found[mode, method, metric]
            assert text == f"{each['mean']:.2f} ± {each['sd']:.2f}"
            assert each["seeds"] == 3
        assert paper == ("" if each["paper"] is None else f"{each['paper']:.2f}")
    # And what the page says of the codes, at the end of a training.
    changes, gaps = [], []
    for cell, _, values in read_rows(folder):
        lower, upper = values["x_lower"][-1], values["x_upper"][-1]
        late = values["curve"][100:]
        changes += [abs(b - a) for a, b in pairwise(late)]
        gaps.append(fmean(late) - min(values["curve"]))
        match cell.mode, cell.method:
            case "correct", "none":
                assert upper > 1000
                assert lower > 7.59
            case "correct", "nwj":
                assert upper > 50
            case "correct", "mine":
                assert upper > 250
            case "correct", "infonce":
                assert 11 < upper < 12.5
            case "correct", _:
                assert 2.6 < lower < upper < 5.5
                assert 2.15 < values["y"][-1] < 2.25
            case "as-published", "vclub" | "vclub_sample":
                assert upper > 100
                assert lower > 7.59
            case "as-published", _:
                assert upper < 3
            case "recipe", "none":
                assert upper > 500
            case "recipe", "vub" | "l1out":
                assert 11 < upper < 13
            case "recipe", _:
                assert round(upper) == 7
    page = (ROOT / "docs" / "bottleneck.md").read_text()
    assert f"by {fmean(changes):.2f} points in the mean" in page
    assert f"200 epochs lies {fmean(gaps):.2f} points below" in page
    best = {k[:2]: e for k, e in found.items() if k[2] == "error_oracle"}
    above = {k: e["mean"] - e["paper"] for k, e in best.items() if e["paper"] is not None}
    over = [above["correct", method] for method in CLUBS]
    assert f"The CLUB rows are {min(over):.2f} to {max(over):.2f} points above" in page
    assert max(above["correct", "vub"], above["correct", "infonce"]) < 0
    assert max(gap for (mode, _), gap in above.items() if mode == "recipe") < 0
    last = {k[:2]: e["mean"] for k, e in found.items() if k[2] == "error"}
    for method in ("nwj", "mine"):
        assert last["correct", method] > last["correct", "none"] - 0.01
    club, sampled, none = (f"{last['recipe', m]:.2f}" for m in ("club", "club_sample", "none"))
    assert f"CLUB to {club} and\nsampled CLUB to {sampled} by the last epoch" in page
    assert f"the same noise gives {none}." in page
    readme = (ROOT / "README.md").read_text()
    picked = [best[mode, "club_sample"]["mean"] for mode in ("correct", "recipe")]
    assert "{:.2f} with the paper's settings and {:.2f} with noise".format(*picked) in readme
    assert f"by the last epoch of training {sampled}" in readme
    timed = json.loads((RESULTS / "bench" / "trainings_cuda.json").read_text())
    seconds = {(r["experiment"], r["method"]): r["seconds"] for r in timed["rows"]}
    assert f"takes {seconds['information-bottleneck', 'club']:.0f} s" in page


def tables_of(page):
    """Lists of rows, one for each table."""
    blocks = re.findall(r"(?:^\|.*\n)+", (ROOT / page).read_text(), re.M)
    return [
        [cells(line) for i, line in enumerate(block.splitlines()) if i != 1] for block in blocks
    ]


def read_rows(folder):
    """Cells, their settings, and their values by metric."""
    for record in read_records(RESULTS / folder):
        values = {row["metric"]: row["value"] for row in record.rows}
        yield record.cell, record.config, values


ADAPTATION = json.loads((RESULTS / "domain-adaptation" / "summary.json").read_text())
TASKS = ["mnist-mnistm", "mnist-usps", "usps-mnist", "svhn-mnist", "cifar10-stl10", "stl10-cifar10"]


def adapted(mode, metric="accuracy"):
    """Means by method and task, and the whole entries."""
    found = {
        (e["method"], e["task"]): e
        for e in ADAPTATION
        if (e["mode"], e["metric"]) == (mode, metric)
    }
    return {key: e["mean"] for key, e in found.items()}, found


def trained(mode, task, method="club_sample", **settings):
    """What came of seed 0 with some settings, in trials or results."""
    return [
        values
        for folder in ("domain-adaptation-trials", "domain-adaptation")
        for cell, config, values in read_rows(folder)
        if (cell.mode, cell.task, cell.method, cell.seed) == (mode, task, method, 0)
        if all(config[name] == value for name, value in settings.items())
    ]


def test_the_tables_of_domain_adaptation():
    last, picked, weights, published, beyond, settings, shares = tables_of("docs/adaptation.md")
    for table, metric in ((last, "accuracy"), (picked, "accuracy_oracle")):
        (_, *tasks), *rows = table
        assert tasks == TASKS
        assert {row[0] for row in rows} == set(METHODS)
        for method, *texts in rows:
            for task, text in zip(tasks, texts, strict=True):
                each = adapted("correct", metric)[1][method, task]
                several = method in ("source", "club", "club_sample")
                assert each["seeds"] == (3 if several else 1)
                spread = f" ± {each['sd']:.1f}" if several else ""
                paper = f" ({each['paper']:.1f})" if each["paper"] and table is picked else ""
                assert text == f"{each['mean']:.1f}{spread}{paper}"
    (_, *tasks), first, second, source, paper, *_ = beyond
    assert tasks == TASKS
    for (_, *texts), metric in ((first, "accuracy"), (second, "accuracy_oracle")):
        for task, text in zip(tasks, texts, strict=True):
            each = adapted("recipe", metric)[1]["club_sample", task]
            assert text == f"{each['mean']:.1f} ± {each['sd']:.1f}"
            assert each["seeds"] == 3
            assert each["paper"] == float(paper[tasks.index(task) + 1])
    for task, text in zip(tasks, source[1:], strict=True):
        each = adapted("recipe")[1]["source", task]
        spread = f" ± {each['sd']:.1f}" if each["seeds"] == 3 else ""
        assert text == f"{each['mean']:.1f}{spread}"
    made = (RESULTS / "domain-adaptation" / "table.md").read_text().splitlines()
    assert all(f"| {' | '.join(row)} |" in made for row in shares)
    assert {row[0] for row in published[1:]} == set(AS_PUBLISHED)
    for method, *texts in published[1:]:
        ends = [
            adapted("as-published", m)[1][method, tasks[0]] for m in ("accuracy", "accuracy_oracle")
        ]
        assert texts == [f"{v:.1f}" for v in (*(e["mean"] for e in ends), ends[0]["paper"])]
    for weight, *texts in weights[1:]:
        for task, text in zip(weights[0][1:], texts, strict=True):
            own = trained("correct", task, mi_weight=float(weight), domain_widths=None)
            assert text == (f"{own[0]['accuracy']:.1f}" if own else "")
            assert len(own) < 2
    digits, objects = (
        settle(DomainAdaptationConfig(), Cell("recipe", task, "club_sample", 0))
        for task in ("svhn-mnist", "cifar10-stl10")
    )
    for row, *texts in settings[1:]:
        for s, text in zip((digits, objects), texts, strict=True):
            shown = {
                "steps": s.steps,
                "channels of the content encoder": " ".join(map(str, s.widths)),
                "images of each domain a step": s.batch_size,
                "normalised by": s.normalisation,
                "random shifts, and flips of objects": s.shift,
                "random warps": f"{s.warp:g}",
                "random signs of channels, smooth colours": f"{s.inversion:g}, {s.background:g}",
                "weight of the averaged teacher": f"{s.teacher:g}",
                "probability from which it is believed": s.teacher_threshold,
                "weight of equal shares of the classes": s.balance,
                "weight of the mutual information": s.mi_weight,
            }
            assert text == str(shown[row]), row
    for cell, config, _ in read_rows("domain-adaptation"):
        expected = DomainAdaptationConfig().settings_of(cell)
        assert config == expected, "a cell of other settings than the modes have now"
        if cell.mode == "correct":  # as the page says it
            own = config["mi_weight"], config["batch_size"], config["widths"]
            assert own == (0.01, 64, [64] * 3)
            assert config["steps"] == (12000 if "stl10" in cell.task else 6000)
    (readme,) = (t for t in tables_of("README.md") if t[0][1:] == TASKS)
    for (_, *texts), (mode, method) in zip(
        readme[1:5],
        (
            ("correct", "source"),
            ("correct", "club_sample"),
            ("recipe", "club_sample"),
            ("recipe", "source"),
        ),
        strict=True,
    ):
        assert texts == [f"{adapted(mode)[0][method, task]:.1f}" for task in TASKS]
    assert readme[5][1:] == paper[1:]
    gains = [
        adapted("correct")[0]["club_sample", t] - adapted("correct")[0]["source", t] for t in TASKS
    ]
    assert f"By itself CLUB gives up to {max(gains):.0f} points" in (ROOT / "README.md").read_text()


def test_what_is_said_of_domain_adaptation():
    page = " ".join((ROOT / "docs" / "adaptation.md").read_text().split())
    last, found = adapted("correct")
    picked, _ = adapted("correct", "accuracy_oracle")
    paper = {key: e["paper"] for key, e in found.items()}
    spread = {task: found["club_sample", task]["sd"] for task in TASKS}
    gains = [last["club_sample", task] - last["source", task] for task in TASKS]
    assert min(gains) > 0
    within = [task for task, gain in zip(TASKS, gains, strict=True) if gain < spread[task]]
    assert within == ["mnist-usps"]
    assert f"from MNIST to USPS, {gains[1]:.1f} points, it is within the spread" in page
    assert (
        "by {:.1f} points on MNIST to MNIST-M and {:.1f} on SVHN to MNIST, by {:.1f} and {:.1f} on "
        "the objects".format(gains[0], *gains[3:])
        in page
    )
    below = {
        (method, task): paper[method, task] - picked[method, task]
        for method in ("club", "club_sample")
        for task in TASKS
    }
    near = [gap for (_, task), gap in below.items() if "usps" in task]
    far = [gap for (_, task), gap in below.items() if "usps" not in task]
    assert f"within {max(near):.1f} points of the paper's" in page
    assert f"they are {min(far):.1f} to {max(far):.1f} below" in page
    most = "mnist-mnistm", "svhn-mnist"
    own, theirs = (
        [values[method, task] - values["source", task] for method in LOWER for task in most]
        for values in (last, paper)
    )
    assert f"at most {max(own):.1f} points above source-only" in page
    assert f"In the paper they are {min(theirs):.1f} to {max(theirs):.1f} above it" in page
    tenfold = [
        trained("correct", most[0], method, mi_weight=0.1)[0]["accuracy"]
        for method in ("nwj", "infonce", "vub")
    ]
    words = "NWJ and InfoNCE end at {:.1f} and {:.1f} on MNIST-M, VUB at {:.1f} (one seed)"
    assert words.format(*tenfold) in page
    assert min(tenfold[:2]) > last["source", most[0]] + 15
    for task in TASKS[4:]:
        (own,) = trained("correct", task, mi_weight=0.1, domain_widths=None)
        assert own["accuracy"] > last["source", task]
    told = [
        trained("correct", TASKS[5], method, mi_weight=weight, domain_widths=None)[0]
        for method, weight in (("club_sample", 0.01), ("club_sample", 0.1), ("dann", 0.01))
    ]
    words = (
        "falls from {:.1f} to {:.1f} % on STL to CIFAR, where 50 is chance and DANN leaves {:.1f}"
    )
    assert words.format(*(own["domain_in_content"] for own in told)) in page
    behind = [paper["club", task] - paper["vub", task] for task in most]
    assert "{:.1f} and {:.1f} points behind CLUB".format(*behind) in page
    for task in TASKS:
        assert last["vub", task] > last["club_sample", task] - spread[task]
        assert last["l1out", task] < last["club_sample", task]
        two = [found[method, task] for method in ("club", "club_sample")]
        assert abs(two[0]["mean"] - two[1]["mean"]) < max(each["sd"] for each in two)
    others = [
        abs(last[method, task] - last["club_sample", task])
        for method in ("dann", "dsn")
        for task in TASKS[1:]
    ]
    assert f"within {max(others):.1f} points of sampled CLUB, and little for MNIST-M" in page
    assert max(last[method, most[0]] for method in ("dann", "dsn")) < last["source", most[0]] + 5
    lower = [
        picked[method, task] - value
        for (method, task), value in paper.items()
        if method in ("dann", "dsn") and value and task in TASKS[1:4]
    ]
    assert f"are {min(lower):.1f} to {max(lower):.1f} points lower on USPS and SVHN" in page
    back = "source", "usps-mnist"
    assert f"source-only loses {picked[back] - last[back]:.1f} points" in page
    oracle = picked["club_sample", "usps-mnist"] - picked[back]
    assert f"by the oracle is {oracle:.1f} points, by the last step {gains[2]:.1f}" in page
    nats = defaultdict(list)
    for cell, _, values in read_rows("domain-adaptation"):
        if cell.mode == "correct" and cell.method in BOUNDS:
            nats[cell.method, cell.task].append(values["mi"])
    before, after = ([curve[i] for curves in nats.values() for curve in curves] for i in (0, -1))
    spans = (
        f"from {min(before):.0f} to {max(before):.0f} nats before training to {min(after):.1f} to"
    )
    assert f"{spans} {max(after):.1f} after it" in page
    end = {key: fmean(curve[-1] for curve in curves) for key, curves in nats.items()}
    lower = [fmean(end[m, task] for m in LOWER) - end["club_sample", task] for task in TASKS]
    assert f"ends lower by {min(lower):.2f} to {max(lower):.2f} nats" in page
    timed = json.loads((RESULTS / "bench" / "trainings_cuda.json").read_text())
    (each,) = (
        r for r in timed["rows"] if r["experiment"] == "domain-adaptation" and "whole" in r["from"]
    )
    assert f"takes {each['seconds']:.0f} s" in page


def test_what_is_said_of_the_recipe():
    page = " ".join((ROOT / "docs" / "adaptation.md").read_text().split())
    _, found = adapted("recipe")
    own = [found["club_sample", task] for task in TASKS]
    past = [each["mean"] - each["paper"] for each in own]
    assert f"by the last step, by {min(past):.1f} to {max(past):.1f} points: least from" in page
    assert past.index(min(past)) == TASKS.index("mnist-usps")
    *_, beyond, _, shares = tables_of("docs/adaptation.md")
    rows = {row[0]: [float(text) if text else None for text in row[1:]] for row in beyond[5:]}
    assert all(a["mean"] > b for a, b in zip(own, rows["VADA"], strict=True) if b)
    ahead = [b - a["mean"] for a, b in zip(own, rows["DIRT-T"], strict=True) if b]
    assert ahead[2] < 0
    assert "it is ahead by {:.1f} and {:.1f} points".format(*ahead) in page
    counts = defaultdict(list)
    for cell, _, values in read_rows("domain-adaptation"):
        if (cell.mode, cell.method) == ("recipe", "club_sample"):
            counts[cell.task].append(np.array(values["confusion"]))
    sums = {task: sum(each) for task, each in counts.items()}
    wrong = {task: each.sum() - each.trace() for task, each in sums.items()}
    usps = sums["mnist-usps"].sum() / 3
    assert f"where {wrong['mnist-usps'] / 3:.0f} of {usps:.0f} test images" in page
    right = sums["cifar10-stl10"].diagonal() / sums["cifar10-stl10"].sum(1)
    pair = [SHARED.index(name) for name in ("cat", "dog")]
    assert set(right.argsort()[:2]) == set(pair)
    shares = [
        100 * (sums[task][*pair] + sums[task][*pair[::-1]]) / wrong[task]
        for task in ("cifar10-stl10", "stl10-cifar10")
    ]
    assert "{:.0f} % there and {:.0f} % on STL to CIFAR".format(*shares) in page


def test_what_is_said_of_the_share_of_each_ingredient():
    page = " ".join((ROOT / "docs" / "adaptation.md").read_text().split())
    mean, found = adapted("recipe")
    gaps = [mean["source", task] - mean["club_sample", task] for task in TASKS]
    spread = [found["club_sample", task]["sd"] for task in TASKS]
    assert all(gap > -sd for gap, sd in zip(gaps[:5], spread[:5], strict=True))
    assert (
        f"on five tasks, by {gaps[3]:.1f} points on SVHN to MNIST, and {-gaps[5]:.1f} lower" in page
    )
    *_, shares = tables_of("docs/adaptation.md")
    share = {row[0]: [float(text) if text else None for text in row[1:]] for row in shares[1:]}
    without = share["without-mi"]
    assert f"on all six, seed for seed, by {min(without):.1f} to {max(without):.1f} points" in page
    assert max(without) == without[3]
    lost = [-gap for gap in share["without-teacher"] if gap]
    assert "without it {:.1f}, {:.1f} and {:.1f} points are lost".format(*lost) in page
    (own,) = trained("recipe", "svhn-mnist", "club_sample-without-balance", mi_gradient="content")
    nines = 100 * own["confusion"][9][9] / sum(own["confusion"][9])
    assert f"Without them {nines:.1f} % of the nines" in page
    signs = share["without-inversion"]
    assert f"worth {-signs[0]:.1f} points on MNIST-M and cost {signs[3]:.1f} on SVHN" in page
    assert share["without-backgrounds"][0] < -1 < 1 < share["without-backgrounds"][3]
    seeds = defaultdict(dict)
    for cell, _, values in read_rows("domain-adaptation"):
        if cell.mode == "recipe":
            seeds[cell.method, cell.task][cell.seed] = values
    for (method, task), own in seeds.items():
        if method.startswith("club_sample-"):
            several = {"both-gradients": 3, "without-mi": 2 if task == "mnist-mnistm" else 1}
            assert len(own) == several.get(method.partition("-")[2], 1)
    told = {
        method: fmean(values["domain_in_content"] for values in own.values())
        for (method, task), own in seeds.items()
        if task == "mnist-mnistm" and method.startswith("club_sample-")
    }
    free = told.pop("club_sample-without-mi")
    spans = f"for {free:.1f} % of the images, with it for {min(told.values()):.1f}"
    assert f"{spans} to {max(told.values()):.1f} %" in page
    early = {}
    for method in ("club_sample", "source"):
        own = seeds[method, "svhn-mnist"].values()
        early[method] = fmean(each["curve"][each["steps"].index(2000)] for each in own)
    words = "After 2000 steps sampled CLUB is {:.1f} points above source-only with the same"
    assert words.format(early["club_sample"] - early["source"]) in page
    assert f"after all 10000 steps {gaps[3]:.1f} below" in page
    both = [seeds["club_sample-both-gradients", "svhn-mnist"][k] for k in range(3)]
    ends = [values["accuracy"] for values in both]
    assert "two seeds of SVHN end at {:.1f} and {:.1f}".format(*ends) in page
    assert f"loses the nines and ends at {ends[2]:.1f}" in page
    assert np.argmin(np.diagonal(both[2]["confusion"])) == 9
    others = [
        [mean[f"{bound}-both-gradients", task] for bound in ("nwj", "infonce", "vub", "club")]
        for task in ("mnist-mnistm", "svhn-mnist")
    ]
    words = "{:.1f}, {:.1f}, {:.1f} and {:.1f} on"
    assert f"at {words.format(*others[0])} MNIST-M, at {words.format(*others[1])} SVHN" in page
    by_instance = mean["club_sample-with-instance-norm", "stl10-cifar10"]
    assert f"on STL to CIFAR, for {by_instance:.1f}" in page


def test_what_is_said_of_training_as_published():
    page = " ".join((ROOT / "docs" / "adaptation.md").read_text().split())
    own = {
        method: trained("as-published", "mnist-mnistm", method)[0]
        for method in ("source", "mine", "infonce", "club_sample")
    }
    assert f"**{own['club_sample']['accuracy']:.1f} comes out, not 94.6.**" in page
    errata = " ".join((ROOT / "docs" / "errata.md").read_text().split())
    assert f"MNIST to MNIST-M comes to {own['club_sample']['accuracy']:.1f}, not to 94.6" in errata
    assert own["mine"]["curve"] == own["infonce"]["curve"]
    told = [own[method]["domain_in_content"] for method in ("club_sample", "source")]
    assert "rightly for {:.1f} % of the images, {:.1f} % with source-only".format(*told) in page
    assert own["source"]["settings"]["steps"] == 6000


def test_what_is_said_of_trials():
    page = " ".join((ROOT / "docs" / "adaptation.md").read_text().split())

    def ends(task, **settings):
        (one,) = {values["accuracy"] for values in trained("recipe", task, **settings)}
        return one

    svhn = [ends("svhn-mnist", warp=0.0, balance=balance) for balance in (0.05, 0.5)]
    assert "SVHN to MNIST ended at {:.1f}, so it ends at {:.1f}".format(*svhn) in page
    warped = [
        ends(task, balance=0.5, warp=0.05) - ends(task, balance=0.5, warp=0.0)
        for task in ("svhn-mnist", "mnist-mnistm")
    ]
    assert f"give it {warped[0]:.1f} points more, and cost {-warped[1]:.1f} on MNIST-M" in page
    long = [
        ends("cifar10-stl10", normalisation="domain", warp=0.0, steps=steps)
        for steps in (12000, 20000)
    ]
    assert "{:.1f} after 12000 steps and {:.1f} after 20000".format(*long) in page
    assert long[0] > ends("cifar10-stl10", normalisation="instance", warp=0.0)
    before = ends("stl10-cifar10", normalisation="instance")
    assert before > ends("stl10-cifar10", normalisation="domain", warp=0.05, steps=16000)
    assert f"which ended at {before:.1f} before" in page


def test_a_normalising_layer():
    rows = json.loads((RESULTS / "bench" / "normalise.json").read_text())["rows"]
    (table,) = (t for t in tables_of("docs/minimise.md") if "error of the task" in t[0])
    for variant, *texts in table[1:]:
        own = [row for row in rows if row["variant"] == variant]
        left = [max(row["left"], 0.0) for row in own]
        assert texts[0] == ", ".join(f"{v:.2f}" for v in left)
        assert texts[1] == ", ".join(f"{row['error']:.3f}" for row in own)
        assert all(("growing" in row["warnings"]) == (variant == "penalty") for row in own)
    by = {(row["variant"], row["seed"]): row["left"] for row in rows}
    assert all(by["penalty", k] > by["no penalty", k] for k in range(3))


def test_figures_are_there():
    for figure in (ROOT / "docs" / "figures").iterdir():
        assert figure.resolve().is_relative_to(RESULTS)
        assert figure.exists()


def test_the_architecture_is_drawn_from_the_imports(hook):
    architecture = hook("architecture")
    imports = architecture.find_imports()
    assert "distributed" in imports["nn"]
    assert imports["sums"] == set()
    levels = architecture.find_levels(imports)
    assert all(levels[other] < levels[name] for name in imports for other in imports[name])
    page = SimpleNamespace(file=SimpleNamespace(src_uri="architecture.md"))
    text = architecture.on_page_markdown("<!-- diagram --> <!-- modules -->", page=page)
    for name in imports.keys() - {"__main__"}:
        assert f">{name}</text>" in text
    assert "- **`pairs.py`** " in text
    assert "- **`bounds/`** " in text
    assert "\n    - **`from_critics.py`** Bounds from a critic" in text
    other = SimpleNamespace(file=SimpleNamespace(src_uri="index.md"))
    assert architecture.on_page_markdown("<!-- diagram -->", page=other) == "<!-- diagram -->"


def test_errors_of_measuring():
    methods = json.loads((RESULTS / "measure" / "tasks.json").read_text())["methods"]
    found = {f"`{m['method']}`": m for m in methods}
    checked = 0
    for row in map(cells, lines_of("measure.md")):
        if row[0] in found and len(row) == 6:
            m = found[row[0]]
            numbers = (
                f"{m['mae']:.3f}",
                f"{m['mae_below_2']:.3f}",
                m["budget"],
                f"{m['seconds']:.0f}",
            )
            assert row[1:] == [str(m["tasks"]), *numbers]
            checked += 1
    assert checked == len(methods)


def test_formulas_are_set(hook):
    formulas = hook("formulas")
    page = "Put $`\\log u \\le u / a`$ here:\n\n```math\n\\frac{1}{N} \\sum_{i=1}^{N} y_i\n```\n"
    text = formulas.on_page_markdown(page)
    assert text.count("<math") == 2
    assert "<mfrac><mrow><mn>1</mn></mrow><mrow><mi>N</mi></mrow></mfrac>" in text
    assert "$" not in text
    with pytest.raises(ValueError, match="some command in it is unknown"):
        formulas.render(r"\nosuchcommand{x}", "block")


def test_no_page_shows_the_source_of_a_formula(hook):
    formulas = hook("formulas")
    pages = list((ROOT / "docs").rglob("*.md"))
    assert any("```math" in page.read_text() for page in pages)
    for page in pages:
        text = formulas.on_page_markdown(page.read_text())
        assert "```math" not in text, page
        assert "$`" not in text, page


def test_the_page_on_measuring_shows_what_was_measured():
    page = (ROOT / "docs" / "measure.md").read_text()
    coverage = (RESULTS / "measure" / "coverage.md").read_text()
    assert coverage.strip() in page
    labels = (RESULTS / "measure" / "labels.md").read_text()
    assert labels.strip() in page
    cells = json.loads((RESULTS / "measure" / "labels.json").read_text())["cells"]
    assert [c["warned"] for c in cells] == [0] * 7 + [1] * 2
    assert all(c["mean"] < c["truth"] - 3 * c["sd"] for c in cells[7:])
    large = json.loads((RESULTS / "measure" / "large.json").read_text())
    low, high = large["interval"]
    said = (
        f"with {large['rows']} rows",
        f"with one thread {large['seconds']:.0f} s, at most {large['peak_MB'] / 1000:.1f} GB",
        f"{large['nats']:.3f} nats where the truth is {large['truth']:.3f}.",
        f"{low:.3f} to {high:.3f}",
    )
    words = " ".join(page.split())
    assert [part for part in said if part not in words] == []


def test_the_page_on_minimising_shows_what_was_measured():
    words = " ".join((ROOT / "docs" / "minimise.md").read_text().split())
    summary = json.loads((RESULTS / "minimisation" / "summary.json").read_text())
    rows = [e for e in summary if e["task"] == "gaussian-10" and e["metric"] == "error"]
    assert len(rows) == len(mb.ESTIMATORS)
    for e in rows:
        assert f"| `{e['method']}` |" in words
        assert f"| {e['mean']:.3f} ± {e['sd']:.3f} |" in words
    for name in ("cpu", "cuda"):
        result = json.loads((RESULTS / "bench" / f"penalty_{name}.json").read_text())
        for row in result["rows"][1:]:
            assert f"{100 * (row['over_without'] - 1):.1f} %" in words
    soak = json.loads((RESULTS / "bench" / "penalty_soak.json").read_text())
    assert soak["steps"] == 100_000
    assert soak["steps_not_finite"] == 0
    assert soak["parameters_finite"] is True
    memory = [row["resident_mib"] for row in soak["rows"]]
    assert max(memory[1:]) - memory[1] < 10, "memory is not flat"


def test_the_readme_shows_what_was_measured():
    words = (ROOT / "README.md").read_text()
    table = (RESULTS / "estimation-quality" / "table.md").read_text().splitlines()
    floors = [cells(line) for line in table if len(cells(line)) == 5 and cells(line)[0] != "task"]
    checked = 0
    for task, mse, floor, _, paper in floors:
        if f"| {task} |" in words:
            assert f"| {task} | {paper} | {float(mse):.2f} | {float(floor):.2f} |" in words
            checked += 1
    assert checked == 4
    steps = json.loads((RESULTS / "bench" / "steps_cpu.json").read_text())
    (ratio,) = (
        row["measured"] for row in steps["acceptance"] if row["what"].startswith("CLUB, N = 4096")
    )
    assert f"at N = 4096 takes 1/{ratio:.0f} of the time" in words


def test_the_readme_lists_every_estimator():
    lines = (ROOT / "README.md").read_text().splitlines()
    rows = {cells(line.replace("\\|", "/"))[0]: line for line in lines if line.startswith("| `")}
    assert set(rows) == {f"`{name}`" for name in mb.ESTIMATORS}
    for name, kind in mb.ESTIMATORS.items():
        _, own, side, _, _, paper = cells(rows[f"`{name}`"].replace("\\|", "/"))
        assert own == f"`{kind.__name__}`"
        assert kind.side in side or side.startswith("as ")
        assert paper.split()[0] in kind.reference


def test_the_picture_of_the_readme_is_that_of_the_results(tmp_path):
    pytest.importorskip("matplotlib")
    command = [sys.executable, str(ROOT / "benchmarks" / "overview.py")]
    subprocess.run([*command, "--out", str(tmp_path / "overview.svg")], check=True)
    assert (tmp_path / "overview.svg").read_text() == (RESULTS / "overview.svg").read_text()


def test_the_page_on_scale_shows_what_was_measured():
    words = " ".join((ROOT / "docs" / "scale.md").read_text().split())

    def result(name):
        return json.loads((RESULTS / "bench" / f"{name}.json").read_text())

    said = [
        f"| {row['what']} | {row['measured']:.{4 if row['measured'] > 1e3 else 3}g} {row['unit']}"
        for row in result("steps_cpu")["acceptance"]
        if row["what"] != "the same, memory kept"
    ]
    (rival,) = (
        row["ratio"]
        for row in result("torch_mist")["rows"]
        if row["method"] == "club" and row["n"] == 2048
    )
    streaming, gpu = result("streaming"), result("gpu")["rows"]
    cpu, cuda = (result(f"ensembles_{name}")["acceptance"][0] for name in ("cpu", "gpu"))
    said += [
        f"over ours | {rival:.0f} x |",
        f"| {streaming['streaming']['peak_MB']:.0f} MB, {streaming['streaming']['seconds']:.1f} s",
        f"| {streaming['relative_difference']:.1e} |",
        f"| {gpu[0]['times_ideal']:.1f} x |",
        f"eager over Triton | {gpu[-1]['ratio']:.1f} x |",
        f"the least of all conditionals | {cpu['measured']:.1f} x |",
        f"the least of all estimators | {cuda['measured']:.0f} x |",
    ]
    assert gpu[-1]["n"] == 8192
    assert len(said) == 17
    assert [part for part in said if part.strip() not in words] == []


def test_every_command_on_the_pages_is_one():
    pytest.importorskip("tyro", reason="the command line needs it")
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    text = "\n".join(page.read_text() for page in pages)
    lines = [line.split(" #")[0] for line in re.findall(r"^ *(mibounds .*)", text, re.MULTILINE)]
    assert len(lines) > 30
    lines += re.findall(r"`(mibounds [^`]+)`", text)
    for line in lines:
        words = [word.replace("$SLURM_ARRAY_TASK_ID", "1") for word in shlex.split(line)[1:]]
        if words[-1] not in ("--version", "--help"):
            assert isinstance(_parse(words), Command), line


def test_the_page_on_choosing_shows_what_was_measured():
    columns = {name: max(task.x_dim, task.y_dim) for name, task in mb.TASKS.items()}
    lines = (RESULTS / "measure" / "tasks.jsonl").read_text().splitlines()
    errors = defaultdict(list)
    for row in map(json.loads, lines):
        wide = (columns[row["task"]] > 2) + (columns[row["task"]] > 5)
        if row["nats"] is not None:
            errors[row["method"], wide].append(abs(row["nats"] - row["truth"]))
    page = [cells(line) for line in lines_of("choose.md")]
    rows = [row for row in page if len(row) == 5 and row[0].startswith("`")]
    assert len(rows) == 20
    for method, side, *values in rows:
        name = method.strip("`")
        if name in mb.ESTIMATORS:
            assert side == mb.ESTIMATORS[name](2, 2).side
        elif name in mb.CLASSICAL:
            assert side == mb.CLASSICAL[name].side
        else:
            assert side == "neither"
        for wide, value in enumerate(values):
            found = errors[name, wide]
            assert value == (f"{sum(found) / len(found):.3f}" if found else "")
