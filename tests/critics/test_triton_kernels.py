"""The Triton kernels against the plain equation: on a GPU, or in Triton's interpreter."""

import os
import subprocess
import sys
from contextlib import nullcontext
from importlib.util import find_spec
from types import SimpleNamespace

import pytest
import torch

from mibounds.critics import concat

PROGRAM = """
import sys, torch
from mibounds.critics._triton_kernels import concat_scores

device = sys.argv[1]
for n, m, h in ((70, 45, 37), (3, 130, 64), (64, 64, 1)):
    make = dict(dtype=torch.float64, device=device, requires_grad=True)
    a, b = torch.randn(n, h, **make), torch.randn(m, h, **make)
    w, c = torch.randn(h, **make), torch.randn(1, **make)
    scores = concat_scores(a, b, w, c)
    plain = ((a[:, None] + b[None]).relu() * w).sum(-1) + c
    torch.testing.assert_close(scores, plain, rtol=1e-10, atol=1e-10)
    g = torch.randn_like(plain)
    got, want = (torch.autograd.grad(s, (a, b, w, c), g) for s in (scores, plain))
    torch.testing.assert_close(got, want, rtol=1e-10, atol=1e-10)
    (alone,) = torch.autograd.grad(concat_scores(a.detach(), b, w.detach(), c), b, g)
    torch.testing.assert_close(alone, want[1], rtol=1e-10, atol=1e-10)
print("same")
"""


@pytest.mark.skipif(find_spec("triton") is None, reason="needs triton, which is only for Linux")
def test_kernels_give_the_value_and_gradients_of_the_equation():
    device = "cuda" if torch.cuda.is_available() else "cpu"
    environment = {**os.environ, "TRITON_INTERPRET": "0" if device == "cuda" else "1"}
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM, device],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.stdout.strip() == "same", result.stderr


@pytest.mark.parametrize("installed", [True, False])
def test_where_triton_cannot_build_torch_takes_over(installed, monkeypatch):
    module = SimpleNamespace(concat_scores=fail) if installed else None
    monkeypatch.setattr(concat, "find_spec", lambda _: "a spec" if installed else None)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setitem(sys.modules, "mibounds.critics._triton_kernels", module)
    monkeypatch.setattr(torch, "ones", lambda *size, device: torch.zeros(size))
    warned = pytest.warns(UserWarning, match="no compiler; install a C compiler")
    with warned if installed else nullcontext():
        assert not concat.triton_builds.__wrapped__()


def fail(*_):
    raise RuntimeError("no compiler")
