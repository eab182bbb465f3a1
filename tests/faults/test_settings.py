"""Settings of another type are refused in one line, wherever they are used."""

import numpy as np
import pytest
import torch

import mibounds as mb

pytestmark = pytest.mark.usefixtures("unchecked")

X = np.random.default_rng(0).normal(size=(120, 2))
Y = X[:, 0] + np.random.default_rng(1).normal(size=120)
T = torch.from_numpy(X).float()
LIST = "to be a list but got 3; put it into brackets, or leave it out"
FUNCTION = "Expected progress to be a function of a share and a word but got 3; leave it out"
JOBS = "Expected n_jobs to be a whole number but got '2'; pass 1, or -1 for one per core"
CALLS = {
    "methods": (lambda: mb.estimate(X, Y, methods=3), f"methods {LIST}"),
    "x_kinds": (lambda: mb.estimate(X, Y, x_kinds=3), f"kinds {LIST}"),
    "kinds": (lambda: mb.rank(X, Y, kinds=3), f"kinds {LIST}"),
    "names": (lambda: mb.matrix(X, names=3), f"names {LIST}"),
    "budget": (lambda: mb.estimate(X, Y, budget=[]), r'a budget "default" or "fast" but got \[\]'),
    "progress": (lambda: mb.estimate(X, Y, progress=3), FUNCTION),
    "progress of lags": (lambda: mb.lags(X[:, 0], Y, progress=3), FUNCTION),
    "progress of a ranking": (lambda: mb.rank(X, Y, progress=3), FUNCTION),
    "jobs": (lambda: mb.matrix(X, n_jobs="2"), JOBS),
    "jobs of a ranking": (lambda: mb.rank(X, Y, n_jobs="2"), JOBS),
    "a number for a folder": (lambda: mb.matrix(X, out=3), "a path for out but '3' cannot be"),
    "a zero byte": (lambda: mb.matrix(X, out="\0"), "a path for out but .* cannot be reached"),
    "a device": (lambda: mb.matrix(X, out="/dev/null"), "a folder for out but '/dev/null' is a"),
    "past": (
        lambda: mb.lags(X[:, 0], Y, given_past=10**9),
        "Expected given_past of at most half of the 120 rows but got 1000000000; pass fewer",
    ),
    "quantised": (
        lambda: mb.CLUB(2, 2, 8)(torch.quantize_per_tensor(T, 0.1, 0, torch.qint8), T),
        r"Expected x to be plain numbers but got torch.qint8; call x.dequantize\(\)",
    ),
}


@pytest.mark.filterwarnings("ignore:.*quantiz")
@pytest.mark.parametrize("name", CALLS)
def test_settings_of_another_type_are_refused(name):
    call, message = CALLS[name]
    with pytest.raises(ValueError, match=message) as error:
        call()
    assert "\n" not in str(error.value)


def test_sparse_sides_are_refused_by_an_evaluation():
    sparse = pytest.importorskip("scipy.sparse").csr_array(X)
    with pytest.raises(ValueError, match="Expected"):
        mb.evaluate(mb.CLUB(2, 2, 8), (sparse, T), progress=False)
