"""The training of domain adaptation: its step, what may see which labels, resuming."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from made_up import adaptation
from torch.utils._python_dispatch import TorchDispatchMode

from experiments.domain_adaptation import training
from experiments.domain_adaptation.config import METHODS
from experiments.domain_adaptation.experiment import _same_every_time
from experiments.domain_adaptation.images import Domain
from experiments.domain_adaptation.training import AdaptationTraining, ramp
from experiments.training import train
from mibounds.estimators.cuda_graphs import restored
from mibounds.minimise.outliers import _far_out


def values(c):
    return {
        name: tensor.detach().clone()
        for name, tensor in c.tensors().items()
        if name not in ("penalty values", "penalty spread")  # only for reports
    }


def same(a, b):
    assert a.keys() == b.keys()
    for name in a:
        assert torch.equal(a[name], b[name]), name


ALL = [("correct", m) for m in METHODS]
ALL += [("recipe", m) for m in ("source", "club_sample", "mcd")]
ALL += [("as-published", m) for m in ("mine", "club_sample")]
ALL += [("recipe", "club_sample-with-entropy-and-vat")]


@pytest.mark.parametrize(("mode", "method"), ALL)
def test_a_step_can_be_taken_back(mode, method, domains):
    """All that a step writes is known, and stays where it is: else no graph could hold it."""
    c = adaptation(domains, method, mode)
    (c.inputs,) = c.draw(0)
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
    assert c.number.item() == c.number_in_block.item() == 1
    for name in c.model.nets:
        assert any(not torch.equal(before[k], taken[0][k]) for k in before if k.startswith(name))
    assert all(tensor.isfinite().all() for tensor in taken[0].values() if tensor.ndim)


def test_a_step_changes_only_the_networks_of_its_phase(domains):
    c = adaptation(domains, "mcd")
    c.inputs = {k: v[:1] for k, v in next(c.draw(0)).items()}
    before = values(c)
    z = c.model.nets["content"](torch.randn(4, 3, 8, 8))
    c.update(c.model.nets["classifier"](z).square().mean(), ("classifier",), torch.tensor(0.1))
    after = values(c)
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed
    assert all("classifier" in name for name in changed)


def test_capturing_a_step_does_not_take_it(domains, monkeypatch):
    """With a stand-in for the GPU that takes the step twice and takes it back, like a capture."""
    plain = adaptation(domains)
    train([plain])
    recorded = []

    def record(step, state, generators):
        for _ in range(2):
            with restored(state, generators):
                step()
        recorded.append(len(generators))
        return step

    monkeypatch.setattr(training, "record_cuda_graph", record)
    monkeypatch.setattr(training, "_on_gpu", lambda device: True)
    c = adaptation(domains)
    train([c])
    assert recorded == [1]
    assert c.captured
    same(values(plain), values(c))
    assert c.results() == plain.results()
    monkeypatch.setattr(training, "record_cuda_graph", lambda *_: RuntimeError("waits"))
    c = adaptation(domains, embedded=0)
    with pytest.warns(UserWarning, match="no CUDA graph of the step, which makes it slow: waits"):
        train([c])
    same(values(plain), values(c))
    assert not c.captured


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize(("mode", "method"), ALL)
def test_on_a_gpu_a_step_is_one_graph(mode, method, domains, monkeypatch):
    moved = [
        Domain(*(v.cuda() for v in (d.images, d.labels, d.test_images, d.test_labels)), d.origin)
        for d in domains
    ]
    calm = {"noise": 0.0, "dropout": 0.0}
    first, second = (adaptation(moved, method, mode, **calm) for _ in range(2))
    with _same_every_time():
        train([first]), train([second])
    assert first.captured
    same(values(first), values(second))
    assert all(tensor.isfinite().all() for tensor in values(first).values())
    monkeypatch.setattr(training, "_on_gpu", lambda device: False)
    plain = adaptation(moved, method, mode, **calm)
    train([plain])
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
    short = "mibounds.conditionals._small_batches.works"  # a way that only a CPU takes
    monkeypatch.setattr(short, lambda q, x, y: False)

    def move_none(values):  # a GPU does not look at whether any are far out, and here none are
        if values.is_floating_point():
            _far_out(values.detach())
        return values

    monkeypatch.setattr("mibounds.minimise.alternation.draw_in", move_none)
    c = adaptation(domains, method, mode)
    (c.inputs,) = c.draw(0)
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
        c = adaptation((source, each), method, mode, embedded=0)
        train([c])
        found.append((values(c), c.found["mi"]))
    same(found[0][0], found[1][0])
    np.testing.assert_array_equal(found[0][1], found[1][1])


@pytest.mark.parametrize(("mode", "method"), ALL)
def test_interrupted_training_resumes(mode, method, domains, tmp_path, monkeypatch):
    monkeypatch.setattr(training, "BLOCK", 2)
    monkeypatch.setattr(training, "EVERY", 1)
    # drawing the embeddings takes longest: of one and of two kinds of them
    changes = {} if method in ("source", "club_sample") else {"embedded": 0}
    whole = adaptation(domains, method, mode, **changes)
    train([whole])
    broken = adaptation(domains, method, mode, checkpoints=str(tmp_path), **changes)
    take_steps = broken.take_steps

    def break_off(block):
        if broken.done == 2:
            raise KeyboardInterrupt
        take_steps(block)

    monkeypatch.setattr(broken, "take_steps", break_off)
    with pytest.raises(KeyboardInterrupt):
        train([broken])
    assert list(tmp_path.iterdir()) == [broken.path]
    torch.manual_seed(99)
    resumed = adaptation(domains, method, mode, checkpoints=str(tmp_path), **changes)
    monkeypatch.setattr(resumed, "draw", lambda number: (seen.append(number), draw(number))[1])
    seen, draw = [], AdaptationTraining.draw.__get__(resumed)
    train([resumed])
    assert seen == [2]
    same(values(whole), values(resumed))
    found, expected = resumed.results(), whole.results()
    assert found.keys() == expected.keys()
    for name in found:
        np.testing.assert_array_equal(found[name], expected[name])


def test_random_numbers_depend_on_seed_and_block_alone(domains):
    c = adaptation(domains, mode="recipe", shift=4, warp=0.1)
    (a,), (b,) = c.draw(0), c.draw(0)
    same(a, b)
    assert a["shifts"].shape == (6, 2, 2, 6, 2)  # two views of both domains
    assert a["shifts"].abs().max() <= 4
    assert a["matrices"].shape == (6, 2, 2, 6, 2, 2)
    torch.testing.assert_close(a["matrices"].mean((0, 1, 2, 3)), torch.eye(2), rtol=0, atol=0.1)
    assert 0.05 < a["matrices"].std((0, 1, 2, 3)).mean() < 0.15
    assert not a["flips"].any()  # of digits
    other = adaptation(domains, mode="recipe", seed=1)
    assert not torch.equal(a["source"], next(other.draw(0))["source"])
    before = torch.get_rng_state()
    train([c])
    assert torch.equal(before, torch.get_rng_state())


def test_the_update_is_adam(domains):
    c = adaptation(domains, "source", average=0.9)
    twin = AdaptationTraining(c.config, c.cell, *domains)
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
    c = adaptation(domains, "source", average=0.9, steps=30)
    torch.testing.assert_close(c.schedules["average"][[0, 29]], torch.tensor([0.9, 0.23076922]))
    c = adaptation(domains, "source", average=0.9, steps=300)
    assert c.schedules["average"][-1].item() == pytest.approx(0.1)
    plain = adaptation(domains, "source", average=0.0, embedded=0)
    train([plain])
    for a, b in zip(plain.averaged.parameters(), plain.model.nets.parameters(), strict=True):
        torch.testing.assert_close(a, b)
    (c.inputs,) = c.draw(0)
    old, before = c.averaged["classifier"].weight.clone(), c.model.nets["classifier"].weight.clone()
    assert torch.equal(old, before)
    c.step()
    new = c.model.nets["classifier"].weight
    torch.testing.assert_close(c.averaged["classifier"].weight, old + 0.9 * (new - old))


def test_schedules(domains):
    c = adaptation(domains, mi_schedule="ramp", mi_weight=0.2, rates="cosine", lr=0.5, steps=10)
    torch.testing.assert_close(c.schedules["mi_weight"][5].item(), 0.2 * ramp(0.5))
    assert c.schedules["rate"][0] == 0.5
    torch.testing.assert_close(c.schedules["rate"][5].item(), 0.25)
    falling = adaptation(domains, mi_schedule="fall", mi_weight=0.2, steps=10)
    weights = [0.1 * (1 + np.cos(np.pi * t / 10)) for t in range(10)]
    torch.testing.assert_close(
        falling.schedules["mi_weight"].tolist(), weights, rtol=1e-6, atol=0.0
    )
    flat = adaptation(domains, mi_weight=0.2, steps=10)
    assert (flat.schedules["mi_weight"] == flat.schedules["mi_weight"][0]).all()
    assert flat.schedules["ramp"][0] == 0


@pytest.mark.parametrize("method", ["source", "club_sample", "dann"])
def test_it_learns(method, domains):
    easy = {"noise": 0.0, "dropout": 0.0, "average": 0.9, "lr": 5e-3, "mi_weight": 0.01}
    easy |= {"points": 1, "batch_size": 16, "widths": (8, 8, 8), "embedded": 0}
    c = adaptation(domains, method, steps=120, **easy)
    train([c])
    found = c.found
    assert found["steps"][-1] == 120
    assert found["source_curve"][-1] > 80 > 40 > found["source_curve"][0]
    assert found["curve"][-1] > 50
