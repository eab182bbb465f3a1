"""The gate: evidence opens it, noise does not, and one bad batch does neither."""

import copy
import math

import pytest
import torch

from mibounds.minimise.gates import FADES, LEAST, OPENS, RATE, SHUTS, Gate

LONG = 50 * round(1 / RATE)  # calls, after which the first ones count for nothing
NOISE = 0.02  # nats, as between batches


def noise(*shape, seed=0):
    g = torch.Generator().manual_seed(seed)
    return NOISE * torch.randn(*shape, generator=g)


def shut(*shape, seed=1):
    """A gate that has seen nothing but noise for long."""
    gate = Gate(*shape, fades=0.0)
    for found in noise(LONG, *shape, seed=seed):
        gate(found)
    return gate


def hold(errors, *, opened):
    """A gate whose mean is so many standard errors above zero, for good."""
    gate = Gate(1, fades=0.0)
    error = NOISE * math.sqrt(RATE / (2 - RATE))
    gate.means.fill_(errors * error)
    gate.variances.fill_(NOISE**2)
    gate.seen.fill_(LONG)
    gate.opened.fill_(opened)
    step = NOISE / math.sqrt(1 - RATE)  # keeps the variance
    mean = gate.means.clone()
    value = gate(mean + step)
    torch.testing.assert_close(gate.variances, torch.full((1,), NOISE**2))
    return gate, value


def test_much_evidence_opens_it_and_nothing_left_shuts_it():
    gate = shut(2)
    assert not gate.opened
    assert gate.last == 0
    values = [gate(torch.tensor([0.0, 0.5])) for _ in range(round(1 / RATE))]
    assert values[-1] > 0.5  # one of the witnesses is enough
    for found in noise(LONG, 2, seed=3):
        value = gate(found)
    assert value == 0
    assert not gate.opened


def test_it_begins_open():
    """What is there at first need not wait for evidence."""
    gate = Gate(2)
    assert gate.opened
    assert gate(torch.tensor([0.3, 0.0])) > 0.99
    for found in noise(20, 2):
        assert gate(found + torch.tensor([0.3, 0.0])) > 0.5


def test_noise_leaves_it_shut_for_thousands_of_calls():
    gate = Gate(2, 100)
    for found in noise(LONG, 2, 100):  # 100 gates side by side
        gate(found)
    through, opened = [], []
    for found in noise(3000, 2, 100, seed=2):
        through.append(gate(found).mean())
        opened.append(gate.opened.float().mean())
    assert torch.stack(opened).mean() < 0.01
    assert torch.stack(through).mean() < 0.01
    for _ in range(round(-math.log(LEAST) * FADES) + 1):
        value = gate(noise(2, 100) - 100 * NOISE)
    assert value.max() == 0


def test_faint_evidence_opens_it_in_the_long_run():
    """A mean of half the noise of a batch: no batch shows it, many do."""
    gate = shut(2, 50)
    for found in noise(300, 2, 50, seed=3):
        value = gate(found + torch.tensor([[0.5 * NOISE], [-NOISE]]))
    assert (value > 0).float().mean() > 0.8


def test_thresholds_can_be_chosen():
    """Calmer: with higher ones less evidence counts as nothing."""
    found = noise(LONG, 2, seed=4) + 0.5 * NOISE
    usual, calm = Gate(2), Gate(2, opens=100.0, shuts=99.0)
    for each in found:
        values = usual(each), calm(each)
    assert values[0] > 0
    assert values[1] == 0
    half = Gate(2, half=1e3)
    for each in found:
        slow = half(each)
    assert 0 < slow < 0.5 * values[0]


def test_between_two_thresholds_it_stays_as_it_is():
    between = (SHUTS + OPENS) / 2
    assert SHUTS < between < OPENS
    assert hold(between, opened=True)[0].opened
    gate, value = hold(between, opened=False)
    assert not gate.opened
    assert value == 0
    assert hold(OPENS + 1, opened=False)[0].opened
    gate, value = hold(SHUTS - 1, opened=True)
    assert not gate.opened
    assert value == 0


def test_it_closes_no_faster_than_it_may():
    """By a fixed share per call, until it is so small that it is nothing; and it opens at once."""
    gate, slow = Gate(1), Gate(1, fades=2 * FADES)
    for _ in range(10):
        first = gate(torch.ones(1)), slow(torch.ones(1))
    assert min(first) > 0.99
    nothing = torch.tensor([-1e6])  # no evidence from here on
    values = [(gate(nothing).item(), slow(nothing).item()) for _ in range(round(FADES))]
    assert not gate.opened
    assert values[-1][0] == pytest.approx(first[0].item() / math.e, rel=0.01)
    assert values[-1][1] == pytest.approx(first[1].item() / math.sqrt(math.e), rel=0.01)
    left = round(-math.log(LEAST) * FADES) - len(values)
    later = [gate(nothing).item() for _ in range(left + 2)]
    assert later == sorted(later, reverse=True)
    assert later[left - 2] > 0 == later[-1]
    at_once = Gate(1, fades=0.0)
    at_once(torch.ones(1))
    assert at_once(nothing) == 0


def test_it_closes_gradually():
    values = [hold(SHUTS + e, opened=True)[1].item() for e in (0.1, 1, 3, 10, 100, 1e4)]
    assert values == sorted(values)
    assert 0 < values[0] < 0.2
    assert 0.2 < values[3] < 0.8
    assert values[-1] > 0.99


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_one_bad_batch_neither_opens_nor_shuts_it(bad):
    for evidence in (0.0, 0.5):
        gate = Gate(2)
        for found in noise(LONG, 2):
            before = gate(found + evidence)
        means = gate.means.clone()
        after = gate(torch.tensor([bad, 0.01 + evidence]))
        assert torch.equal(gate.means[0], means[0])
        assert gate.means[1] != means[1]  # the other witness counts
        assert abs(after - before) < 0.1
        assert (after > 0) == bool(evidence)
        assert abs(gate(torch.tensor([bad, bad])) - before) < 0.1
        assert gate.means.isfinite().all()
        assert gate.variances.isfinite().all()


def test_side_by_side_they_are_what_they_are_one_by_one():
    found = noise(200, 2, 3) + torch.tensor([[0.0, 0.5, 0.005], [0.02, 0.0, -NOISE]])
    found[50, 0, 1] = math.nan
    together, alone = Gate(2, 3, fades=5.0), [Gate(2, fades=5.0) for _ in range(3)]
    shut_at_times = torch.zeros(3)
    for each in found:
        values = torch.stack([gate(part) for gate, part in zip(alone, each.unbind(1), strict=True)])
        torch.testing.assert_close(together(each), values, rtol=0, atol=0)
        shut_at_times += values == 0
    assert torch.equal(together.opened, torch.stack([gate.opened for gate in alone]))
    assert shut_at_times[1] == 0 < shut_at_times[2]


def test_it_goes_on_from_a_state(tmp_path):
    gate = Gate(2)
    for found in noise(30, 2):
        gate(found + 0.004)
    torch.save(gate.state(), tmp_path / "gate.pt")
    again = Gate(2)
    again.load_state(torch.load(tmp_path / "gate.pt"), torch.device("cpu"))
    shared = Gate(2)
    state = gate.state()
    shared.load_state(state, torch.device("cpu"))
    for found in noise(100, 2, seed=3):
        assert torch.equal(gate(found + 0.004), again(found + 0.004))
    assert torch.equal(gate.opened, again.opened)
    older = {name: v for name, v in state.items() if name != "last"}  # from before it faded
    fresh = Gate(2)
    fresh.load_state(older, torch.device("cpu"))
    assert fresh.last == 0
    assert torch.equal(fresh.means, gate.means)
    assert shared.seen == 30 < gate.seen  # it holds copies


def test_a_call_writes_in_place_and_into_nothing_else():
    gate = Gate(2)
    before = [(v, v.clone()) for v in gate.tensors()]
    gate(torch.tensor([0.1, 0.2]))
    gate(torch.tensor([-3.0, -4.0]))
    now = gate.tensors()
    assert all(v is old for v, (old, _) in zip(now, before, strict=True))
    assert not any(torch.equal(v, copied) for v, copied in before)
    assert set(gate.state()) == {name for name, v in vars(gate).items() if torch.is_tensor(v)}


def test_a_conversion_leaves_it_a_gate():
    gate = Gate(2)
    gate(torch.tensor([0.5, 0.0]))
    wide = copy.deepcopy(gate)
    wide.move(lambda v: v.double())
    assert [v.dtype for v in wide.tensors()] == [*3 * [torch.float64], torch.bool, torch.float64]
    wide.move(lambda v: v.float())
    assert torch.equal(wide(torch.tensor([0.4, 0.0])), gate(torch.tensor([0.4, 0.0])))


def test_no_gradient_goes_through_it():
    found = torch.tensor([0.5, 0.1], requires_grad=True)
    assert not Gate(2)(found).requires_grad
