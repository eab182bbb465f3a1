"""Recorded calls, with a stand-in for the GPU: its "graph" takes the recorded step anew."""

import copy

import pytest
import torch
from penalties import EVERY, N, make, parameters, same, samples

from mibounds.minimise._recorded_calls import MOST


@pytest.fixture
def gpu(monkeypatch):
    """A switch for the stand-in; lists what was recorded."""
    recorded = []

    def record(step, state, generators):
        recorded.append(generators)
        return step

    def switch(on):
        monkeypatch.setattr("mibounds.minimise._recorded_calls._on_gpu", lambda x: on)

    monkeypatch.setattr("mibounds.minimise._recorded_calls.record_cuda_graph", record)
    switch(True)
    return switch, recorded


@pytest.mark.parametrize("name", EVERY)
def test_a_recorded_call_is_a_call(name, gpu):
    switch, recorded = gpu
    plain, fast = make(name), make(name)
    for seed in range(8):
        n = 16 if seed == 5 else N  # another size comes between
        z, s = (v.requires_grad_() for v in samples(seed, n))
        switch(False)
        a = plain(z, s)
        switch(seed > 0)
        b = fast(z, s)
        torch.testing.assert_close(a, b, rtol=0, atol=0)
        for want, got in zip(*(torch.autograd.grad(3 * v, (z, s)) for v in (a, b)), strict=True):
            torch.testing.assert_close(want, got)
        assert fast.calls == seed + 1
        assert same(parameters(plain), parameters(fast))
        assert plain.fits == fast.fits
        fast.eval()
        if name != "club_sample":
            torch.testing.assert_close(fast.bound(z, s), plain.bound(z, s))
        fast.train()
        if seed == 1:
            places = [v.data_ptr() for *_, v in fast.alternation.statistics()]
    assert places == [v.data_ptr() for *_, v in fast.alternation.statistics()]  # a graph's memory
    assert recorded == [[] if name == "mine" else [fast.generator]]
    assert len(fast.recorded_calls) == 1
    assert len(copy.deepcopy(fast).recorded_calls) == 0  # a graph cannot be copied
    fast.load_state_dict(plain.state_dict())
    assert len(fast.recorded_calls) == 0


def test_a_recording_has_the_gradients_that_are_asked_for(gpu):
    penalty = make()
    z, s = samples(0)
    for _ in range(3):
        assert not penalty(z, s).requires_grad
    z.requires_grad_()
    for _ in range(3):
        first, second = penalty(z, s), penalty(2 * z, s)  # before the first goes backwards
    (a,) = torch.autograd.grad(first, z, retain_graph=True)
    (b,) = torch.autograd.grad(second, z)
    assert not torch.allclose(a, b)
    with pytest.raises(RuntimeError, match="pass graph=False to MIPenalty"):
        torch.autograd.grad(first, z, create_graph=True)


def test_where_nothing_can_be_recorded(gpu, monkeypatch):
    switch, recorded = gpu
    switch(False)
    with pytest.raises(ValueError, match=r"Expected samples on a GPU.*leave graph out"):
        make(graph=True)(*samples(0))
    switch(True)
    changing = make()
    for _ in range(2):
        for n in range(10, 25):
            changing(*samples(0, n))
    assert len(changing.recorded_calls) == len(recorded) == MOST < 15
    attempts = []

    def refuse(*_):
        attempts.append(1)
        return RuntimeError("waits")

    monkeypatch.setattr("mibounds.minimise._recorded_calls.record_cuda_graph", refuse)
    penalty, required = make(), make(graph=True)
    for seed in range(4):
        assert penalty(*samples(seed)).isfinite()
    assert len(attempts) == 1  # and not in every call
    assert len(penalty.recorded_calls) == 0
    required(*samples(0))
    with pytest.raises(ValueError, match=r"Expected a call that never waits.*got RuntimeError"):
        required(*samples(1))


@pytest.mark.parametrize("options", [{"replay": 1}, {"average": 0.5}, {"graph": False}])
def test_settings_that_rule_out_a_recording(options, gpu):
    penalty = make(**options)
    for seed in range(3):
        penalty(*samples(seed))
    assert gpu[1] == []
