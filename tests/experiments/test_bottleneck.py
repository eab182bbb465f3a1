"""The information bottleneck: the bounds in it, resumed training, the command."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch

import mibounds as mb
from experiments import EXPERIMENTS, Cell, bottlenecks, lanes
from experiments import information_bottleneck as ib
from experiments.states import read_state, write_state
from experiments.trainings import Training, cycle
from mibounds.estimators import cuda_graphs as recordings
from mibounds.estimators.stacked_training import StackedTraining

pytest.importorskip("pooch")

GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
CONFIG = ib.BottleneckConfig(
    seeds=2, epochs=3, scan_epochs=2, batch_size=20, lr=3e-3, average=0.9, holdout=40, samples=2,
    hidden=16, width=4, estimator_hidden=8,
)  # fmt: skip


@pytest.fixture
def digits():
    """Ten blurred prototypes with noise, as bytes."""
    g = torch.Generator().manual_seed(0)
    prototypes = 255 * (torch.rand(10, 784, generator=g) < 0.2)
    labels = torch.arange(240) % 10
    noise = 60 * torch.randn(240, 784, generator=g)
    images = (prototypes[labels] + noise).clamp(0, 255).to(torch.uint8)
    return ib.Digits(images[:160], labels[:160], images[160:], labels[160:], "made up")


def runs(*methods, mode="correct", seeds=(0, 1), beta=1e-3):
    return [ib.Run(Cell(mode, "mnist", m, seed), beta) for m in methods for seed in seeds]


def same(a, b):
    assert a.keys() == b.keys()
    for name in a:
        np.testing.assert_allclose(a[name], b[name], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("mode", "method"),
    [("correct", m) for m in ib.CORRECT]
    + [("recipe", m) for m in ib.RECIPE]
    + [("as-published", m) for m in ib.AS_PUBLISHED],
)
def test_every_bound_trains(mode, method, digits):
    some = runs(method, mode=mode, beta=1e-6)  # few digits, few steps, and I(x; z) is large
    outcomes = ib.train(replace(CONFIG, epochs=8), some, digits, 8)
    for outcome in outcomes:
        assert len(outcome["curve"]) == 8
        assert outcome["curve"][-1] < min(60, outcome["curve"][0])  # chance is 90
        assert outcome["y"][-1] > 0.3
        assert outcome["x_lower"][-1] <= outcome["x_upper"][-1] + 1e-4
    assert outcomes[0]["curve"] != outcomes[1]["curve"]


def test_side_by_side_is_one_at_a_time(digits):
    some = runs("club", "vclub_sample", "nwj")
    together = ib.train(CONFIG, some, digits, 3)
    for run, outcome in zip(some, together, strict=True):
        (alone,) = ib.train(CONFIG, [run], digits, 3)
        same(alone, outcome)


def model(method, mode="correct", **options):
    torch.manual_seed(0)
    return bottlenecks.Bottleneck(mode, method, 0.5, 16, 4, 8, **options)


def test_the_bounds_are_those_of_the_library():
    torch.manual_seed(1)
    x, uniform = torch.randn(12, 784), torch.rand(12)
    for method in ("club", "l1out", "vub", "club_sample"):
        m = model(method)
        p = m.encode(x)
        z = p.sample()
        value = m.information(p, x, z, uniform)
        if method == "vub":
            expected = mb.vub(p)
        elif method == "club_sample":
            expected = mb.club_sample(p, z, index=cycle(uniform)[:, None])
        else:
            expected = getattr(mb, method)(p, z)
        torch.testing.assert_close(value, expected)
        if method == "club":
            published = model(method, "as-published")
            p = published.encode(x)
            twice = published.information(p, x, z, uniform)
            torch.testing.assert_close(twice, 2 * mb.club(p, z))


@pytest.mark.parametrize("method", ["vclub", "mine"])
def test_the_encoder_alone_minimises_and_the_estimator_alone_learns(method):
    torch.manual_seed(1)
    m = model(method)
    x, noise, uniform = torch.randn(12, 784), torch.randn(12, 4), torch.rand(12)
    p = m.encode(x)
    m.information(p, x, p.mean + p.stddev * noise, uniform).backward()
    assert all(w.grad is None for w in m.estimator.parameters())
    m.zero_grad()
    pixels, labels = (255 * torch.rand(12, 784)).to(torch.uint8), torch.arange(12) % 10
    loss, entropy, _ = m(pixels, labels, noise, uniform)
    loss.backward()
    reached = m.encoder.layers[0].weight.grad.clone()
    learnt = [w.grad.clone() for w in m.estimator.parameters()]
    m.zero_grad()
    x = bottlenecks.scale_pixels(pixels)
    z = m.encode(x).mean + m.encode(x).stddev * noise
    m.estimator.learning_loss(x, z.detach()).backward()
    for mine, w in zip(learnt, m.estimator.parameters(), strict=True):
        torch.testing.assert_close(mine, w.grad, rtol=1e-3, atol=1e-5)
    # And the encoder: by the classifier and by beta times the bound, not by what q learns.
    m.zero_grad()
    p = m.encode(x)
    z = p.mean + p.stddev * noise
    own = torch.nn.functional.cross_entropy(m.decoder(z), labels)
    torch.testing.assert_close(entropy, own)
    (own + 0.5 * m.information(p, x, z, uniform)).backward()
    torch.testing.assert_close(reached, m.encoder.layers[0].weight.grad, rtol=1e-3, atol=1e-4)


def test_q_learns_through_noise_on_its_inputs():
    torch.manual_seed(1)
    m = model("vclub")
    pixels, labels = (255 * torch.rand(12, 784)).to(torch.uint8), torch.arange(12) % 10
    noise, uniform, jitter = torch.randn(12, 4), torch.rand(12), torch.randn(12, 784)
    without, _, _ = m(pixels, labels, noise, uniform)
    through, _, _ = m(pixels, labels, noise, uniform, jitter)
    x = bottlenecks.scale_pixels(pixels)
    z = (m.encode(x).mean + m.encode(x).stddev * noise).detach()
    learn = m.estimator.learning_loss
    expected = learn(x + bottlenecks.JITTER * jitter, z) - learn(x, z)
    assert abs(expected.item()) > 1e-3
    torch.testing.assert_close(through - without, expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("method", ["club", "vclub", "none"])
def test_the_recipe_learns_from_noisy_digits_and_is_tested_with_clean_ones(method, digits):
    torch.manual_seed(1)
    pixels, labels = torch.full((12, 784), 100, dtype=torch.uint8), torch.arange(12) % 10
    given = pixels, labels, torch.randn(12, 4), torch.rand(12), torch.randn(12, 784)
    noisy = model(method, "recipe", noise=0.4)(*given)
    # The same on pixels that have the noise already.
    x = bottlenecks.scale_pixels(pixels) + 0.4 * given[-1]
    plain = model(method)
    expected = plain(127.5 * (x + 1), *given[1:4])
    torch.testing.assert_close(noisy[0], expected[0], rtol=1e-4, atol=1e-4)
    # A test has none: averaged weights are those of the beginning, whatever the mode.
    lane, other = (
        lanes.Lane(CONFIG, runs("none", mode=mode), digits, 1) for mode in ("correct", "recipe")
    )
    lane.test()
    other.test()
    assert torch.equal(lane.found["curve"][0], other.found["curve"][0])
    assert len(next(other.blocks(0))) == len(next(lane.blocks(0))) + 1
    assert (lane.model.noise, other.model.noise) == (0.0, CONFIG.noise)


@pytest.mark.parametrize("method", ["club", "mine", "vclub"])
def test_the_recipe_without_its_noise_is_correct(method, digits):
    config = replace(CONFIG, noise=0.0)
    outcomes = [
        ib.train(config, runs(method, mode=mode), digits, 3) for mode in ("correct", "recipe")
    ]
    assert outcomes[0] == outcomes[1]
    with_noise = ib.train(CONFIG, runs(method, mode="recipe"), digits, 3)
    assert with_noise != outcomes[1]


@pytest.mark.parametrize("noise", [-0.1, math.nan])
def test_a_negative_noise_is_refused(noise):
    with pytest.raises(ValueError, match=f"--noise of at least 0 but got {noise}; leave it out"):
        replace(CONFIG, noise=noise)


def test_the_noise_of_the_recipe_makes_other_cells_of_the_recipe_alone():
    for mode in ("as-published", "correct", "recipe"):
        cell = Cell(mode, "mnist", "club", 0)
        one, other = (replace(CONFIG, noise=v).settings_of(cell) for v in (0.1, 0.2))
        assert (one == other) == (mode != "recipe")


def test_the_estimator_has_a_rate_of_its_own():
    training = Training([model("vclub")], [0.01], estimator_rate=3.0)
    before = training.vector.clone()
    training.update(torch.ones_like(before))  # the first step of Adam is the rate
    (own, _), (estimator, _) = training.parts
    assert before[own].shape[0] > 0
    assert before[estimator].shape[0] > 0
    moved = before - training.vector
    torch.testing.assert_close(moved[own], torch.full_like(moved[own], 0.01), rtol=0, atol=1e-5)
    three = torch.full_like(moved[estimator], 0.03)
    torch.testing.assert_close(moved[estimator], three, rtol=0, atol=1e-5)


def test_every_epoch_has_an_order_of_its_own_and_every_seed(digits):
    lane = lanes.Lane(CONFIG, runs("none"), digits, 3)
    (first,), (again,), (second,) = (
        [torch.cat([part.flatten().double() for block in lane.blocks(e) for part in block])]
        for e in (0, 0, 1)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, second)


def test_the_error_is_that_of_the_last_epoch():
    outcome = {"curve": [3.0, 1.0, 2.0], "x_lower": [1.0], "x_upper": [2.0], "y": [1.0]}
    rows = {r["metric"]: r["value"] for r in ib._rows(runs("club")[0], {}, outcome, "made up")}
    assert rows["error"] == 2.0
    assert rows["error_oracle"] == 1.0


def test_a_lower_bound_below_zero_pulls_no_more():
    m = model("nwj")
    x = torch.randn(12, 784)
    p = m.encode(x)
    with torch.no_grad():
        m.estimator.critic.head.offset.add_(-50.0)  # scores so low that the bound is below zero
    z = p.rsample()
    z.retain_grad()
    value = m.information(p, x, z, torch.rand(12))
    value.backward()
    assert value.item() == 0
    assert z.grad.abs().max().item() == 0


def rehearse(stack, required):
    """What recording does on a GPU: a step that is taken back."""
    with recordings.restored(list(stack.tensors().values()), ()):
        stack.step()
    return stack.step


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=GPU)])
def test_interrupted_training_goes_on(device, digits, tmp_path, monkeypatch):
    monkeypatch.setattr(lanes, "EVERY", 2)
    if device == "cpu":
        monkeypatch.setattr(StackedTraining, "record", rehearse)
    arrays = (digits.x, digits.y, digits.x_test, digits.y_test)
    digits = ib.Digits(*(each.to(device) for each in arrays), digits.origin)
    config = replace(CONFIG, checkpoints=str(tmp_path))
    some = runs("club", "mine")
    whole = ib.train(CONFIG, some, digits, 5)
    test = lanes.Lane.test

    def break_off(lane):
        test(lane)
        if lane.epoch == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(lanes.Lane, "test", break_off)
    with pytest.raises(KeyboardInterrupt):
        ib.train(config, some, digits, 5)
    assert len(list(tmp_path.iterdir())) == 2
    seen = []
    monkeypatch.setattr(lanes.Lane, "test", lambda lane: (seen.append(lane.epoch), test(lane)))
    resumed = ib.train(config, some, digits, 5)
    assert min(seen) == 2
    for a, b in zip(whole, resumed, strict=True):
        assert a == b


def test_the_plane_does_not_depend_on_how_many_digits_are_measured_at_a_time(digits, monkeypatch):
    found = []
    for part in (lanes.PART, 7):
        monkeypatch.setattr(lanes, "PART", part)
        lane = lanes.Lane(CONFIG, runs("club"), digits, 1)
        lane.test()
        found.append([lane.found[name][0] for name in ("x_lower", "x_upper")])
    torch.testing.assert_close(*found)


def test_what_was_published_has_a_clipped_scale(digits):
    for mode, scale in (("correct", "shifted"), ("as-published", "clipped")):
        config = replace(CONFIG, scale="shifted")
        assert lanes.Lane(config, runs("club", mode=mode), digits, 1).model.scale == scale
    rho = torch.cat([torch.zeros(3, 2), torch.full((3, 2), 9.0)], 1)
    sizes = 4, 2, 4
    shifted = bottlenecks.Bottleneck("correct", "club", 1e-3, *sizes, "shifted").code(rho)[1]
    clipped = bottlenecks.Bottleneck("correct", "club", 1e-3, *sizes, "clipped").code(rho)[1]
    torch.testing.assert_close(shifted, torch.full((3, 2), math.log1p(math.exp(4.0))))
    torch.testing.assert_close(clipped, torch.full((3, 2), math.log1p(math.exp(1.1))))


def test_states_are_read_without_executing_them(digits, tmp_path):
    config = replace(CONFIG, checkpoints=str(tmp_path))
    lane = lanes.Lane(config, runs("none"), digits, 3)
    lane.test()
    lane._save(lane.path)
    arrays = dict(np.load(lane.path))
    arrays["vector"] = np.array([{"a": 1}], object)
    np.savez(lane.path, **arrays)
    with pytest.raises(ValueError, match="allow_pickle"):
        lanes.Lane(config, runs("none"), digits, 3)


def test_beta_is_chosen_without_the_test_digits(digits, monkeypatch):
    seen = []
    # Of four epochs the last counts; by the others or by one seed the choice would be another.
    curves = {
        (1e-2, 0): [0, 0, 0, math.nan],
        (1e-2, 1): [0, 0, 0, 1.0],
        (1e-4, 0): [9, 9, 9, 1.0],
        (1e-4, 1): [9, 9, 9, 4.0],
        (1e-3, 0): [9, 9, 9, 2.0],
        (1e-3, 1): [9, 9, 9, 2.5],
    }

    def train(config, some, given, epochs):
        seen.append((given, epochs))
        return [{"curve": curves[run.beta, run.cell.seed]} for run in some]

    monkeypatch.setattr(ib, "train", train)
    cells = [run.cell for run in runs("none", "club", seeds=(0, 1))]
    cells += [run.cell for run in runs("club", mode="as-published", seeds=(0,))]
    scans = ib.scan_betas(replace(CONFIG, scan_epochs=4, scan_seeds=2), cells, digits)
    assert list(scans) == [("correct", "club")]
    scan = scans["correct", "club"]
    assert scan[1e-4] == 2.5
    assert scan[1e-3] == 2.25
    betas = [ib.choose_beta(c, scans.get((c.mode, c.method), {})) for c in cells]
    assert betas == [0.0, 0.0, 1e-3, 1e-3, 1e-3]
    ((given, epochs),) = seen
    assert epochs == 4
    assert torch.equal(given.x, digits.x[:-40])
    assert torch.equal(given.x_test, digits.x[-40:])


def test_with_one_beta_nothing_is_scanned(digits, monkeypatch):
    monkeypatch.setattr(ib, "train", None)
    (cell,) = (run.cell for run in runs("club", seeds=(0,)))
    scans = ib.scan_betas(replace(CONFIG, betas=(0.5,)), [cell], digits)
    assert ib.choose_beta(cell, scans["correct", "club"]) == 0.5


@pytest.mark.parametrize("holdout", [0, 160])
def test_a_part_to_hold_out_is_needed(digits, holdout):
    with pytest.raises(ValueError, match=f"--holdout between 1 and 159 but got {holdout}"):
        digits.split(holdout)


def test_published_cells_are_those_whose_code_was_public():
    cells = EXPERIMENTS["information-bottleneck"].cells(CONFIG)
    published = {cell.method for cell in cells if cell.mode == "as-published"}
    assert published == {"club", "club_sample", "vclub", "vclub_sample"}
    for mode, count in (("correct", 10), ("recipe", 7)):
        assert len({cell.method for cell in cells if cell.mode == mode}) == count


def test_quick_through_the_command(digits, tmp_path, run_quick):
    images = torch.cat([digits.x, digits.x_test])
    labels = torch.cat([digits.y, digits.y_test])
    arrays = {}
    for split in ("train", "test"):
        arrays[f"{split}_images"] = images.view(-1, 28, 28).repeat(2, 1, 1)[:300].numpy()
        arrays[f"{split}_labels"] = labels.repeat(2)[:300].numpy()
    np.savez(tmp_path / "mnist.npz", **arrays)
    folder, shown = run_quick("information-bottleneck")
    summary = json.loads((folder / "summary.json").read_text())
    seen = {(e["mode"], e["method"], e["metric"]) for e in summary}
    assert len(seen) == (10 + 7 + 4) * 2
    assert {e["task"] for e in summary} == {"mnist"}
    (club,) = (
        e
        for e in summary
        if (e["mode"], e["method"], e["metric"]) == ("correct", "club", "error_oracle")
    )
    assert club["paper"] == 1.12
    assert club["seeds"] == 2
    assert "plain arrays: unknown content" in shown
    assert not (folder / "checkpoints").exists()
    assert (folder / "information-bottleneck-correct.svg").exists()


def test_a_damaged_state_is_named_and_changes_nothing(tmp_path):
    path, weight = tmp_path / "one.state.npz", torch.zeros(3)
    write_state(path, {"weight": torch.ones(3)}, {"epoch": np.array(2)})
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match=r"state.npz' but got .*; remove the file to begin anew"):
        read_state(path, {"weight": weight})
    path.write_bytes(whole)
    for other in ({"weight": weight, "bias": weight}, {"weight": torch.zeros(4)}):
        with pytest.raises(ValueError, match="Expected the state of this training"):
            read_state(path, other)
    assert weight.tolist() == [0, 0, 0]
    assert read_state(path, {"weight": weight})["epoch"] == 2
    assert weight.tolist() == [1, 1, 1]


@pytest.mark.parametrize("name", ["epochs", "scan_epochs", "scan_seeds", "batch_size", "samples"])
def test_nothing_to_train_is_refused(name):
    flag = name.replace("_", "-")
    with pytest.raises(ValueError, match=f"--{flag} of at least 1 but got 0; leave it out"):
        replace(CONFIG, **{name: 0})
