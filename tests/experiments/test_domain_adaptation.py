"""Domain adaptation: what may see which labels, resumed training, the command."""

import json
from dataclasses import fields, replace
from functools import partial

import numpy as np
import pytest
import torch
from made_up import CONFIG, course, write_sets
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from experiments import EXPERIMENTS, Cell, courses
from experiments.courses import Course, project, read_labels
from experiments.domain_adaptation import _difference, _same_every_time, _worst
from experiments.domains import TASKS, Domain
from experiments.ingredients import (
    ABLATIONS,
    BOUNDS,
    METHODS,
    OBJECTS,
    PRESETS,
    DomainAdaptationConfig,
    Settings,
    ramp,
    settle,
    split_method,
)
from mibounds.estimators.cuda_graphs import restored

pytest.importorskip("pooch")


def values(course):
    return {
        name: tensor.detach().clone()
        for name, tensor in course.tensors().items()
        if name not in ("penalty values", "penalty spread")  # for reports alone
    }


def same(a, b):
    assert a.keys() == b.keys()
    for name in a:
        assert torch.equal(a[name], b[name]), name


# --- training ------------------------------------------------------------------------------------

ALL = [("correct", m) for m in METHODS]
ALL += [("recipe", m) for m in ("source", "club_sample", "mcd")]
ALL += [("as-published", m) for m in ("mine", "club_sample")]
ALL += [("recipe", "club_sample-with-entropy-and-vat")]


@pytest.mark.parametrize(("mode", "method"), ALL)
def test_a_step_can_be_taken_back(mode, method, domains):
    """All that a step writes is known, and stays where it is: else no graph could hold it."""
    c = course(domains, method, mode)
    c.given = c.draw(0)
    places = {name: tensor.data_ptr() for name, tensor in c.tensors().items()}
    before, taken = values(c), []
    for _ in range(2):
        with torch.no_grad():
            for name, tensor in c.tensors().items():
                if name in before:
                    tensor.copy_(before[name])
        torch.manual_seed(1)
        if c.model.penalty is not None:
            c.model.penalty.generator.manual_seed(1)
        c.step()
        taken.append(values(c))
    same(*taken)
    assert {name: tensor.data_ptr() for name, tensor in c.tensors().items()} == places
    assert c.number.item() == c.place.item() == 1
    for name in c.model.nets:
        assert any(not torch.equal(before[k], taken[0][k]) for k in before if k.startswith(name))
    assert all(tensor.isfinite().all() for tensor in taken[0].values() if tensor.ndim)


def test_a_step_changes_the_networks_of_its_phase_alone(domains):
    c = course(domains, "mcd")
    c.given = {k: v[:1] for k, v in c.draw(0).items()}
    before = values(c)
    z = c.model.nets["content"](torch.randn(4, 3, 8, 8))
    c.update(c.model.nets["classifier"](z).square().mean(), ("classifier",), torch.tensor(0.1))
    after = values(c)
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed
    assert all("classifier" in name for name in changed)


def test_recording_a_step_does_not_take_it(domains, monkeypatch):
    """With a stand-in for the GPU, which takes the step twice and back, as for a real graph."""
    plain = course(domains)
    expected = plain.run()
    recorded = []

    def record(step, state, generators):
        for _ in range(2):
            with restored(state, generators):
                step()
        recorded.append(len(generators))
        return step

    monkeypatch.setattr(courses, "record_cuda_graph", record)
    monkeypatch.setattr(courses, "_on_gpu", lambda device: True)
    c = course(domains)
    found = c.run()
    assert recorded == [1]
    assert c.captured
    same(values(plain), values(c))
    assert found == expected
    monkeypatch.setattr(courses, "record_cuda_graph", lambda *_: RuntimeError("waits"))
    c = course(domains)
    with pytest.warns(UserWarning, match="not recorded, which is slow: waits"):
        c.run()
    same(values(plain), values(c))
    assert not c.captured


def test_a_share_of_the_images_is_inverted(domains):
    plain, none, some, every = (
        course(domains, "source", "recipe", background=0.0, inversion=share, inverted="images")
        for share in (0.0, 1e-9, 0.5, 1.0)
    )
    x = plain._images({k: v[0] for k, v in plain.draw(0).items()}, 0)
    for c, share in ((none, 0.0), (every, 1.0)):
        given = {k: v[0] for k, v in c.draw(0).items()}
        torch.testing.assert_close(c._images(given, 0), (1 - 2 * share) * x)
    signs = some.draw(0)["signs"]
    assert set(signs.unique().tolist()) == {-1.0, 1.0}
    apart = course(domains, "source", "recipe", background=0.0, inversion=0.5, inverted="channels")
    given = {k: v[0] for k, v in apart.draw(0).items()}
    torch.testing.assert_close(apart._images(given, 0).abs(), x.abs())
    changed = (given["signs"][0] < 0).sum(2)  # channels of an image
    assert set(changed.unique().tolist()) >= {0, 1, 2}


def test_backgrounds_are_smooth_and_apart_for_each_image_and_view(domains):
    plain, other = (
        course(domains, "source", "recipe", inversion=0.0, background=share) for share in (0.0, 0.5)
    )
    x = plain._images({k: v[0] for k, v in plain.draw(0).items()}, 0)
    given = {k: v[0] for k, v in other.draw(0).items()}
    added = other._images(given, 0) - x
    noise = torch.cat([*given["backgrounds"][0]])
    enlarge = partial(F.interpolate, mode="bicubic")
    torch.testing.assert_close(added, enlarge(noise, x.shape[2:]), rtol=1e-4, atol=1e-4)
    assert 0.45 < noise.std() < 0.55
    smooth = enlarge(noise, (28, 28))
    steps = (smooth[..., 1:] - smooth[..., :-1]).square().mean()
    assert steps < 0.3 * smooth.square().mean()  # neighbours differ less than strangers
    assert not torch.allclose(added[0], added[1])
    assert not torch.equal(given["backgrounds"][0], given["backgrounds"][1])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize(("mode", "method"), ALL)
def test_on_a_gpu_a_step_is_one_graph(mode, method, domains, monkeypatch):
    moved = [
        Domain(*(v.cuda() for v in (d.images, d.labels, d.test_images, d.test_labels)), d.origin)
        for d in domains
    ]
    calm = {"noise": 0.0, "dropout": 0.0}
    first, second = (course(moved, method, mode, **calm) for _ in range(2))
    with _same_every_time():
        first.run(), second.run()
    assert first.captured
    same(values(first), values(second))
    assert all(tensor.isfinite().all() for tensor in values(first).values())
    monkeypatch.setattr(courses, "_on_gpu", lambda device: False)
    plain = course(moved, method, mode, **calm)
    plain.run()
    assert not plain.captured
    for name, tensor in values(plain).items():
        if name.startswith("content"):
            torch.testing.assert_close(tensor, values(first)[name], rtol=0.05, atol=0.02)


class Looks(TorchDispatchMode):
    """Notes what would make the CPU wait for a GPU, or bring it values: no graph could hold it."""

    waits = ("_local_scalar_dense", "nonzero", "equal", "is_nonzero", "masked_select", "lift_fresh",
             "unique", "item")  # fmt: skip

    def __init__(self):
        super().__init__()
        self.seen = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        if name in self.waits or name.startswith(("unique", "_unique")):
            self.seen.add(name)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(("mode", "method"), ALL)
def test_nothing_in_a_step_looks_at_a_value(mode, method, domains, monkeypatch):
    for module in ("densities", "from_distributions", "exponential_families"):
        name = f"mibounds.bounds.{module}.must_not_look"
        monkeypatch.setattr(name, lambda y: True, raising=False)  # as on a GPU
    c = course(domains, method, mode)
    c.given = c.draw(0)
    with Looks() as looks:
        c.step()
    assert looks.seen == set()


@pytest.mark.parametrize(("mode", "method"), ALL)
def test_target_labels_change_no_weight(mode, method, domains):
    source, target = domains
    other = replace(
        target, labels=(target.labels + 3) % 10, test_labels=(target.test_labels + 5) % 10
    )
    found = []
    for each in (target, other):
        c = course((source, each), method, mode)
        c.run()
        found.append((values(c), c.found["mi"]))
    same(found[0][0], found[1][0])
    np.testing.assert_array_equal(found[0][1], found[1][1])


@pytest.mark.parametrize(("mode", "method"), ALL)
def test_interrupted_training_goes_on(mode, method, domains, tmp_path, monkeypatch):
    monkeypatch.setattr(courses, "BLOCK", 2)
    monkeypatch.setattr(courses, "EVERY", 1)
    whole = course(domains, method, mode)
    expected = whole.run()
    broken = course(domains, method, mode, checkpoints=str(tmp_path))
    take_block = broken.take_block

    def break_off():
        if broken.done == 2:
            raise KeyboardInterrupt
        take_block()

    monkeypatch.setattr(broken, "take_block", break_off)
    with pytest.raises(KeyboardInterrupt):
        broken.run()
    assert len(list(tmp_path.iterdir())) == 1
    torch.manual_seed(99)
    resumed = course(domains, method, mode, checkpoints=str(tmp_path))
    monkeypatch.setattr(resumed, "draw", lambda block: (seen.append(block), draw(block))[1])
    seen, draw = [], Course.draw.__get__(resumed)
    found = resumed.run()
    assert seen == [2]
    same(values(whole), values(resumed))
    assert found.keys() == expected.keys()
    for name in found:
        np.testing.assert_array_equal(found[name], expected[name])
    assert not list(tmp_path.iterdir())  # states of what is finished are of no use


def test_states_are_read_without_executing_them(domains, tmp_path):
    c = course(domains)
    c.test()
    c.save(tmp_path / "one.state.npz")
    arrays = dict(np.load(tmp_path / "one.state.npz"))
    arrays["number"] = np.array([{"a": 1}], object)
    np.savez(tmp_path / "one.state.npz", **arrays)
    with pytest.raises(ValueError, match="allow_pickle"):
        course(domains).load(tmp_path / "one.state.npz")


def test_random_numbers_depend_on_seed_and_block_alone(domains):
    c = course(domains, mode="recipe", shift=4, warp=0.1)
    a, b = c.draw(0), c.draw(0)
    same(a, b)
    assert a["shifts"].shape == (6, 2, 2, 6, 2)  # two views of both domains
    assert a["shifts"].abs().max() <= 4
    assert a["matrices"].shape == (6, 2, 2, 6, 2, 2)
    torch.testing.assert_close(a["matrices"].mean((0, 1, 2, 3)), torch.eye(2), rtol=0, atol=0.1)
    assert 0.05 < a["matrices"].std((0, 1, 2, 3)).mean() < 0.15
    assert not a["flips"].any()  # of digits
    assert not torch.equal(a["source"], course(domains, mode="recipe", seed=1).draw(0)["source"])
    before = torch.get_rng_state()
    c.run()
    assert torch.equal(before, torch.get_rng_state())


def test_the_update_is_adam(domains):
    c = course(domains, "source", average=0.9)
    twin = Course(c.config, c.cell, *domains)
    optimizer = torch.optim.Adam(twin.model.nets.parameters(), lr=1e-3, betas=(0.5, 0.999))
    x = torch.randn(4, 3, 8, 8)
    for _ in range(3):
        for each in (c, twin):
            each.model.nets.eval()
        c.update(c.model.logits(x).square().mean(), tuple(c.model.nets), torch.tensor(1e-3))
        optimizer.zero_grad()
        twin.model.logits(x).square().mean().backward()
        optimizer.step()
    for a, b in zip(c.model.nets.parameters(), twin.model.nets.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def test_weights_are_averaged_and_the_plain_mean_comes_first(domains):
    c = course(domains, "source", average=0.9, steps=30)
    torch.testing.assert_close(c.tables["average"][[0, 29]], torch.tensor([0.9, 0.23076922]))
    c = course(domains, "source", average=0.9, steps=300)
    assert c.tables["average"][-1].item() == pytest.approx(0.1)
    plain = course(domains, "source", average=0.0)
    plain.run()
    for a, b in zip(plain.averaged.parameters(), plain.model.nets.parameters(), strict=True):
        torch.testing.assert_close(a, b)
    c.given = c.draw(0)
    old, before = c.averaged["classifier"].weight.clone(), c.model.nets["classifier"].weight.clone()
    assert torch.equal(old, before)
    c.step()
    new = c.model.nets["classifier"].weight
    torch.testing.assert_close(c.averaged["classifier"].weight, old + 0.9 * (new - old))


def test_schedules(domains):
    c = course(domains, mi_schedule="ramp", mi_weight=0.2, rates="cosine", lr=0.5, steps=10)
    torch.testing.assert_close(c.tables["mi_weight"][5].item(), 0.2 * ramp(0.5))
    assert c.tables["rate"][0] == 0.5
    torch.testing.assert_close(c.tables["rate"][5].item(), 0.25)
    falling = course(domains, mi_schedule="fall", mi_weight=0.2, steps=10)
    weights = [0.1 * (1 + np.cos(np.pi * t / 10)) for t in range(10)]
    torch.testing.assert_close(falling.tables["mi_weight"].tolist(), weights, rtol=1e-6, atol=0.0)
    flat = course(domains, mi_weight=0.2, steps=10)
    assert (flat.tables["mi_weight"] == flat.tables["mi_weight"][0]).all()
    assert flat.tables["ramp"][0] == 0


@pytest.mark.parametrize("method", ["source", "club_sample", "dann"])
def test_it_learns(method, domains):
    easy = {"noise": 0.0, "dropout": 0.0, "average": 0.9, "lr": 5e-3, "mi_weight": 0.01}
    c = course(domains, method, steps=120, points=1, batch_size=16, widths=(8, 8, 8), **easy)
    found = c.run()
    assert found["steps"][-1] == 120
    assert found["source_curve"][-1] > 80 > 40 > found["source_curve"][0]
    assert found["curve"][-1] > 50


# --- the experiment ------------------------------------------------------------------------------


def test_settings_are_those_of_the_mode_unless_a_flag_is_given():
    names = {field.name for field in fields(Settings)}
    assert names <= {field.name for field in fields(DomainAdaptationConfig)}
    for mode, preset in PRESETS.items():
        assert settle(DomainAdaptationConfig(), Cell(mode, "", "club", 0)) == preset
        given = settle(DomainAdaptationConfig(mi_weight=7.0, noise=0.0), Cell(mode, "", "club", 0))
        assert given == replace(preset, mi_weight=7.0, noise=0.0)
    for change, changed in ABLATIONS.items():
        cell = Cell("recipe", "", f"club_sample-{change}", 0)
        assert settle(DomainAdaptationConfig(), cell) == replace(PRESETS["recipe"], **changed)
    cells = EXPERIMENTS["domain-adaptation"].cells(DomainAdaptationConfig(seeds=1))
    seen = {(cell.task, split_method(cell.method)[1]) for cell in cells if cell.mode == "recipe"}
    assert {change for _, change in seen} == {"", *ABLATIONS}
    methods = {cell.method for cell in cells if cell.mode == "recipe"}
    assert methods >= {"source", "source-without-teacher"}
    assert methods >= {f"{bound}-both-gradients" for bound in BOUNDS}
    assert ("mnist-usps", "without-inversion") in seen
    assert ("stl10-cifar10", "without-inversion") not in seen  # where nothing is inverted
    assert ("stl10-cifar10", "without-warps") in seen
    assert ("stl10-cifar10", "equal-encoders") in seen
    assert ("mnist-usps", "equal-encoders") not in seen  # where they are
    still = EXPERIMENTS["domain-adaptation"].cells(DomainAdaptationConfig(seeds=1, warp=0.0))
    assert not any(cell.method.endswith("-without-warps") for cell in still)
    objects = settle(DomainAdaptationConfig(), Cell("recipe", "stl10-cifar10", "club", 0))
    assert objects == replace(PRESETS["recipe"], **OBJECTS["recipe"])
    given = DomainAdaptationConfig(batch_size=7)
    cell = Cell("recipe", "stl10-cifar10", "club", 0)
    assert settle(given, cell) == replace(objects, batch_size=7)
    published = PRESETS["as-published"]
    assert (published.q, published.mi_gradient, published.normalisation) == (
        "published", "content", "raw",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"widths": (64, 64)}, "--widths of three blocks, each at least 1, but got 64 64; give"),
        ({"domain_widths": (4, 0, 4)}, "--domain-widths of three blocks, .* but got 4 0 4; give"),
        ({"steps": 0}, "--steps of at least 1 but got 0"),
        ({"warp": -0.1}, "--warp of at least 0 but got -0.1"),
        ({"inversion": -0.5}, "--inversion of at least 0 but got -0.5"),
        ({"background": -1.0}, "--background of at least 0 but got -1.0"),
        ({"background": float("nan")}, "--background of at least 0 but got nan"),
        ({"batch_size": 1}, "--batch-size of at least 2 but got 1"),
    ],
)
def test_settings_that_make_no_sense(changes, message):
    with pytest.raises(ValueError, match=message):
        DomainAdaptationConfig(**changes)


def test_cells_and_published_numbers():
    experiment = EXPERIMENTS["domain-adaptation"]
    cells = experiment.cells(DomainAdaptationConfig(seeds=1))
    assert {c.task for c in cells} == set(TASKS)
    for mode, methods in (("correct", METHODS), ("as-published", METHODS[:1])):
        assert set(methods) <= {c.method for c in cells if c.mode == mode}
    assert "dann" not in {c.method for c in cells if c.mode == "as-published"}
    assert len({c.name for c in cells}) == len(cells)
    paper = experiment.paper
    assert paper["mnist-mnistm", "club_sample", "accuracy"] == 94.6
    assert paper["stl10-cifar10", "mcd", "accuracy_oracle"] == 69.2
    assert ("cifar10-stl10", "vub", "accuracy") not in paper
    assert len(paper) == 2 * (66 - 2 - 2 - 1 - 2 - 3)


def test_the_oracle_picks_by_labels_of_the_target(sets, monkeypatch):
    found = {"picking": [10.0, 60.0, 50.0], "curve": [1.0, 55.0, 70.0], "source_curve": [0.0] * 3,
             "as_trained": [3.0], "steps": [0, 1, 2], "mi": [0.0],
             "mi_steps": [0]}  # fmt: skip
    monkeypatch.setattr(Course, "run", lambda course: found)
    experiment = EXPERIMENTS["domain-adaptation"]
    config = replace(CONFIG, device="cpu")
    (rows,) = experiment.run(config, [Cell("correct", "mnist-usps", "source", 0)])
    values = {row["metric"]: row["value"] for row in rows}
    assert values["accuracy"] == 70.0
    assert values["accuracy_oracle"] == 55.0
    assert values["accuracy_as_trained"] == 3.0
    assert rows[0]["origin"] == ["plain arrays: unknown content"] * 2


def test_labels_are_read_from_embeddings_that_hold_them():
    torch.manual_seed(0)
    labels = torch.randint(4, (400,))
    told, silent = torch.eye(4)[labels] @ torch.randn(4, 6), torch.randn(400, 6)
    assert read_labels(told + 0.1 * silent, labels) > 95
    assert read_labels(silent, labels) < 45  # chance is 25
    half = torch.where((labels < 2)[:, None], told, silent)
    assert read_labels(half, labels) < read_labels(told, labels)


def test_what_is_taken_for_what(domains):
    c = course(domains, "source")
    c.run()
    target = c.domains[1]
    (found,) = c.found["confusion"]
    counts = torch.tensor(found)
    assert torch.equal(counts.sum(1), target.test_labels.bincount(minlength=10))
    predicted = c.predict(target.test_images, True)
    assert torch.equal(counts.sum(0), predicted.bincount(minlength=10))
    right = 100 * counts.diagonal().sum() / len(predicted)
    assert right.item() == pytest.approx(c.found["curve"][-1], abs=1e-3)
    taken = (target.test_labels == 3) & (predicted == 5)
    assert counts[3, 5] == taken.sum()
    assert _worst({"confusion": [[8, 2], [1, 3]]}) == 75.0


def test_domains_are_read_from_contents_that_hold_them(domains, monkeypatch):
    c = course(domains, "source")
    assert c._sides(3).tolist() == [0, 0, 0, 1, 1, 1]
    told = torch.eye(2)[c._sides(courses.MEASURED)].repeat(1, 3)
    for z, right in ((told, 100.0), (torch.zeros_like(told), 50.0)):
        monkeypatch.setattr(c, "_embed_both", lambda *_, z=z, **__: [z])
        c.done = c.blocks
        c.test()
        assert c.found["domain_in_content"][-1] == right


def test_an_ingredient_is_judged_by_the_seeds_that_have_it():
    """A seed that happens to be a good one is no gain of what was changed."""
    full = {0: 90.0, 1: 80.0, 2: 70.0}
    assert _difference({1: 80.5}, full) == "+0.50"
    assert _difference({0: 88.0, 2: 69.0}, full) == "-1.50"
    assert _difference({0: None, 1: 79.0, 7: 5.0}, full) == "-1.00"
    assert _difference({}, full) == _difference({3: 1.0}, full) == ""


def test_points_in_a_plane():
    torch.manual_seed(0)
    z = torch.randn(50, 1) @ torch.randn(1, 6) + 0.01 * torch.randn(50, 6)
    points = project(z)
    assert points.shape == (50, 2)
    assert points.isfinite().all()


def test_quick_through_the_command(tmp_path, run_quick):
    write_sets(tmp_path)
    folder, shown = run_quick("domain-adaptation")
    summary = json.loads((folder / "summary.json").read_text())
    seen = {(e["mode"], e["method"]) for e in summary}
    assert {m for mode, m in seen if mode == "correct"} == set(METHODS)
    assert {m for mode, m in seen if mode == "recipe"} >= {"source", *BOUNDS}
    assert {m for mode, m in seen if mode == "as-published"} == {
        "source", "mine", "infonce", "club", "club_sample",
    }  # fmt: skip
    kinds = {"accuracy", "accuracy_oracle", "accuracy_as_trained"}
    assert {e["metric"] for e in summary} == kinds
    assert all(0 <= e["mean"] <= 100 for e in summary)
    for stem in ("correct", "correct-mi", "correct-mnist-usps", "recipe"):
        assert (folder / f"domain-adaptation-{stem}.svg").exists(), stem
    assert "What each ingredient gives club_sample" in shown
    assert "Labels that can be read from the domain embedding" in shown
    assert "| correct | club |" in shown
    _, _, rest = shown.partition("Labels that can")
    labels, _, domains = rest.partition("Domains that can")
    assert "| correct | dann |" not in labels  # has no such embedding
    assert "| correct | dann |" in domains
    assert "The class that is recognised worst" in shown
    assert "usps: plain arrays: unknown content" in shown
    assert not (folder / "checkpoints").exists()
