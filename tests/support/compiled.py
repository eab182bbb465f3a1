"""Run on its own: every estimator under torch.compile has the value and gradient of a plain call.

On its own because the tests' check of shapes cannot be traced. All estimators have to be a single
graph; those named in `DIFFERENTIATED` go through the compiler's own backward pass too.
"""

import naive
import torch

import mibounds as mb

DIFFERENTIATED = ("club", "l1out", "tuba")  # a closed form, all pairs, all pairs of a critic
X, Y, N = 4, 3, 24


def value_and_gradient(value, x, y):
    nats = value(x, y)
    return nats, torch.autograd.grad(nats, x)[0]


def main():
    torch.manual_seed(0)
    x = torch.randn(N, X)
    y = x[:, :Y] + torch.randn(N, Y)
    for name in mb.ESTIMATORS:
        estimator = mb.ESTIMATORS[name](X, Y, 8)
        estimator.learning_loss(x, y)
        backend = "aot_eager" if name in DIFFERENTIATED else "eager"

        def value(x, y, estimator=estimator):
            return naive.fixed_value(estimator, x, y)

        plain = value_and_gradient(value, x.requires_grad_(), y)
        torch.compiler.reset()
        compiled = torch.compile(value, backend=backend, fullgraph=True)
        found = value_and_gradient(compiled, x, y)
        torch.testing.assert_close(found, plain, rtol=1e-4, atol=1e-5, msg=f"{name} differs")
    print(f"{len(mb.ESTIMATORS)} estimators")


if __name__ == "__main__":
    main()
