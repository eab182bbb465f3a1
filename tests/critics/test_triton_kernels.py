"""The Triton kernels against the plain equation: on a GPU, or in Triton's interpreter."""

import os
import subprocess
import sys
from contextlib import nullcontext
from importlib.util import find_spec
from types import SimpleNamespace

import pytest
import torch

from mibounds.critics import compilers

PROGRAM = """
import sys, torch
from torch.nn import functional as F
from mibounds.estimators import stacked_training as stacks
from experiments import encoder_kernels
from experiments.adam_kernel import take_adam_step
from experiments.encoder_kernels import convolve, normalise, pool
from mibounds.critics.triton_kernels import concat_scores

device = sys.argv[1]
torch.backends.cudnn.allow_tf32 = False  # the convolutions of torch, for which it is the default
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
for n in (1, 1000, 5003):
    two = []
    for step in (take_adam_step, stacks.take_adam_step):
        torch.manual_seed(n)
        vector, gradient, mean = (torch.randn(n, device=device) for _ in range(3))
        state = vector, gradient, mean, torch.rand(n, device=device)
        step(*state, *torch.tensor([0.3, 0.7], device=device), (0.5, 0.9))
        two.append(state)
    torch.testing.assert_close(*two)
encoder_kernels.PROGRAMS = 3  # so that a part has several tiles
for n, c, h in ((6, 4, 5), (40, 6, 16), (3, 96, 4), (9, 64, 28), (2, 192, 7)):
    x = (3 + 2 * torch.randn(n, c, h, h, device=device)).to(memory_format=torch.channels_last)
    w, b = 1 + 0.3 * torch.randn(c, device=device), torch.randn(c, device=device)
    g = torch.randn(n, c, h, h, device=device)  # not channels last
    two = []
    for fused in (True, False):
        given = [t.clone().requires_grad_() for t in (x, w, b)]
        if fused:
            out = normalise(*given, 1e-5, 0.1)
        else:
            out = F.batch_norm(given[0], None, None, *given[1:], training=True, eps=1e-5)
            out = F.leaky_relu(out, 0.1)
        two.append((out, *torch.autograd.grad(out, given, g)))
    torch.testing.assert_close(*two, rtol=1e-4, atol=2e-4)
for shape in ((3, 64, 8, 6), (2, 96, 5, 7), (5, 6, 2, 2), (1, 192, 4, 4)):
    x = torch.randint(4, shape, device=device).float().to(memory_format=torch.channels_last)
    g = torch.randn(*shape[:2], shape[2] // 2, shape[3] // 2, device=device)
    two = []
    for pooled in (pool, lambda x: F.max_pool2d(x, 2)):
        given = x.clone().requires_grad_()
        out = pooled(given)
        two.append((out, *torch.autograd.grad(out, given, g)))
    torch.testing.assert_close(*two, rtol=0, atol=0)
for n, c, h, w in ((3, 64, 8, 6), (2, 96, 5, 7), (1, 20, 3, 3), (5, 192, 12, 12)):
    x = torch.randn(n, 3, h, w, device=device)
    weight = torch.randn(c, 3, 3, 3, device=device).to(memory_format=torch.channels_last)
    g = torch.randn(n, c, h, w, device=device)
    two = []
    for convolved in (convolve, lambda x, weight, _: F.conv2d(x, weight, padding=1)):
        given = weight.clone().requires_grad_()
        out = convolved(x, given, torch.float32)
        two.append((out, *torch.autograd.grad(out, given, g)))
    torch.testing.assert_close(*two, rtol=1e-4, atol=1e-4)
print("same")
"""


@pytest.mark.skipif(find_spec("triton") is None, reason="needs triton, which is for Linux alone")
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
    monkeypatch.setattr(compilers, "find_spec", lambda _: "a spec" if installed else None)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setitem(sys.modules, "mibounds.critics.triton_kernels", module)
    monkeypatch.setattr(torch, "ones", lambda *size, device: torch.zeros(size))
    warned = pytest.warns(UserWarning, match="no compiler; install a C compiler")
    with warned if installed else nullcontext():
        assert not compilers.triton_builds.__wrapped__()


def fail(*_):
    raise RuntimeError("no compiler")
