"""Settings of torch that others change, and other threads, change no number."""

import threading
from contextlib import contextmanager

import numpy as np
import pytest
import torch

import mibounds as mb
from mibounds.samples.seeds import drawing

rng = np.random.default_rng(0)
X = rng.normal(size=(150, 2))
Y = X[:, :1] + rng.normal(size=(150, 2))
LABELS = (Y[:, 0] > 0).astype(int)
OTHERS = (X[:, 1] > 0) ^ LABELS


def estimate(*sides, **options):
    found = mb.estimate(*sides, budget="fast", **options)
    return found.nats, found.interval, found.p_value, found.warnings


MEASURES = {
    "copula_model": lambda: estimate(X, Y, methods="copula_model", permutations=3),
    "labels": lambda: estimate(X, LABELS, methods="copula_model"),
    "given": lambda: estimate(X[:, 0], LABELS, given=X[:, 1], permutations=5),
    "codes": lambda: estimate(X, Y, methods="codes"),
    "ksg": lambda: estimate(X, Y, methods="ksg", permutations=3),
    "gaussian": lambda: estimate(X, Y, methods="gaussian", permutations=3),
    "plug_in": lambda: estimate(LABELS, OTHERS, permutations=3),
    **{
        name: lambda name=name: estimate(X, Y, methods=name, permutations=2)
        for name in ("club_sample", "mine")
    },
    "club of labels": lambda: estimate(X, LABELS, methods="club"),
    "rank": lambda: mb.rank(np.hstack([X, Y]), LABELS, given="selected").columns,
    "rank by numbers": lambda: mb.rank(Y, X[:, 0], given="selected").columns,
    "matrix": lambda: mb.matrix(np.column_stack([X, Y, LABELS])).nats.tolist(),
    "lags": lambda: mb.lags(X[:, 0], Y[:, 0], max_lag=1, permutations=9, transfer=True).rows,
    "entropy": lambda: mb.entropy(np.hstack([X, Y])),
    "decompose": lambda: mb.decompose(X[:, 0], X[:, 1], LABELS, budget="fast"),
    "interaction": lambda: mb.interaction(X[:, 0], X[:, 1], Y, budget="fast"),
    "total_correlation": lambda: mb.total_correlation(X, Y, budget="fast"),
    **{
        name: lambda name=name: mb.CLASSICAL[name]()(X[:, 0], Y[:, 0])
        for name in ("mlmi", "kde")
        if name in mb.CLASSICAL
    },
}
usual: dict[str, str] = {}


@pytest.fixture(autouse=True)
def _tiny(tiny_effort):
    """Every fit is quick and poor."""


def value(name):
    torch.manual_seed(7)
    before = torch.get_rng_state()
    found = repr(MEASURES[name]())
    assert torch.equal(before, torch.get_rng_state())  # the caller's
    return found


def expected(name):
    if name not in usual:
        usual[name] = value(name)
    return usual[name]


@contextmanager
def double_by_default():
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


@contextmanager
def on_meta_by_default():
    torch.set_default_device("meta")
    try:
        yield
    finally:
        torch.set_default_device(None)


@contextmanager
def without_digits_or_gradients():
    with torch.inference_mode(), torch.autocast("cpu", dtype=torch.bfloat16):
        yield


@pytest.mark.parametrize("name", MEASURES)
@pytest.mark.parametrize(
    "context", [double_by_default, on_meta_by_default, without_digits_or_gradients]
)
def test_settings_of_torch_change_nothing(context, name):
    found = expected(name)
    with context():
        if context is on_meta_by_default:  # whose generator has no state
            assert repr(MEASURES[name]()) == found
        else:
            assert value(name) == found


@pytest.mark.parametrize("name", ["copula_model", "labels", "club_sample", "mine", "decompose"])
def test_threads_do_not_meet(name):
    found, start = [], threading.Barrier(4)

    def work():
        start.wait()
        found.append(repr(MEASURES[name]()))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [expected(name)] * 4


def test_modules_are_drawn_from_a_seed_alone():
    for estimator in mb.ESTIMATORS.values():
        torch.manual_seed(3)
        plain = estimator(3, 2, 8).state_dict()
        before = torch.get_rng_state()
        with on_meta_by_default(), double_by_default(), drawing(3):
            drawn = estimator(3, 2, 8).state_dict()
        assert torch.equal(before, torch.get_rng_state())
        for key, tensor in drawn.items():
            torch.testing.assert_close(tensor, plain[key], rtol=0, atol=0, equal_nan=True)
