import pytest
import torch

import mibounds as mb
from mibounds.critics.base import score_pairs

X, Y, N = 3, 2, 6
CRITICS = {
    "concat": lambda: mb.ConcatCritic(X, Y, 8),
    "concat, two layers": lambda: mb.ConcatCritic(X, Y, (8, 5)),
    "separable": lambda: mb.SeparableCritic(X, Y, 8, embedding=4),
    "bilinear": lambda: mb.BilinearCritic(X, Y),
}


@pytest.fixture(params=CRITICS)
def critic(request):
    critic = CRITICS[request.param]().double()
    critic.observe(torch.randn(50, X).double() * 3 + 1, torch.randn(50, Y).double() - 2)
    return critic


def test_all_pairs_are_the_given_pairs_one_by_one(critic):
    x, y = torch.randn(N, X).double(), torch.randn(N + 2, Y).double()
    scores = critic.pairs(x, y)
    assert scores.shape == (N, N + 2)
    for j in range(N + 2):
        torch.testing.assert_close(scores[:, j], critic(x, y[j].expand(N, Y)))
    # and so does the way for critics that have no fast path
    y = y[:N]
    plain, fast = score_pairs(lambda a, b: critic(a, b), x, y), score_pairs(critic, x, y)
    torch.testing.assert_close(plain.block(y), scores[:, :N])
    torch.testing.assert_close(fast.block(fast.columns, *fast.rows), scores[:, :N])
    for pairs in (plain, fast):
        torch.testing.assert_close(pairs.diagonal, scores.diagonal())


def test_the_fast_path_has_the_gradient_of_the_plain_one(critic):
    x, y = torch.randn(N, X).double().requires_grad_(), torch.randn(N, Y).double().requires_grad_()
    weights = torch.randn(N, N).double()
    inputs = [x, y, *critic.parameters()]
    fast = torch.autograd.grad((critic.pairs(x, y) * weights).sum(), inputs)
    plain = torch.autograd.grad(
        (score_pairs(lambda a, b: critic(a, b), x, y).block(y) * weights).sum(), inputs
    )
    for a, b in zip(fast, plain, strict=True):
        torch.testing.assert_close(a, b)


def test_the_fast_path_has_a_second_derivative(critic):
    x, y = torch.randn(4, X).double().requires_grad_(), torch.randn(5, Y).double().requires_grad_()
    assert torch.autograd.gradcheck(critic.pairs, (x, y))
    assert torch.autograd.gradgradcheck(critic.pairs, (x, y))


def test_concat_is_a_perceptron_on_the_concatenation():
    critic = mb.ConcatCritic(X, Y, 8)
    x, y = torch.randn(N, X), torch.randn(N, Y)
    w = torch.cat([critic.x_layer.weight, critic.y_layer.weight], 1)
    hidden = (torch.cat([x, y], 1) @ w.T + critic.x_layer.bias).relu()
    torch.testing.assert_close(critic(x, y), critic.head.layers[-1](hidden).squeeze(1))


@pytest.mark.parametrize("name", CRITICS)
def test_the_scale_does_not_matter(name):
    x, y = torch.randn(N, X), torch.randn(N, Y)

    def scores(x, y):
        torch.manual_seed(1)
        critic = CRITICS[name]()
        critic.observe(x, y)
        return critic.pairs(x, y)

    torch.testing.assert_close(
        scores(1e12 * x + 1e12, 1e-12 * y), scores(x, y), rtol=1e-3, atol=1e-3
    )


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: mb.ConcatCritic(0, 2), r"x_dim to be an integer >= 1 but got 0"),
        (lambda: mb.ConcatCritic(2, 2, ()), r"hidden to be an integer >= 1 but got 0"),
        (lambda: mb.BilinearCritic(2, "3"), r"y_dim to be an integer >= 1 but got '3'"),
        (
            lambda: mb.ConcatCritic(X, Y).pairs(torch.zeros(4, X), torch.zeros(4, X)),
            r"y of shape \(n, 2\) but got \(4, 3\)",
        ),
        (
            lambda: mb.ConcatCritic(X, Y).pairs(torch.zeros(4, X), torch.zeros(4).long()),
            r"y to be floating point but got torch.int64; for labels as y use conditional=",
        ),
        (
            lambda: score_pairs(lambda x, y: x @ y.T, torch.zeros(4, X), torch.zeros(4, X)),
            r"one score for each of 4 pairs, shape \(4,\), but got \(4, 4\)",
        ),
        (
            lambda: score_pairs(lambda x, y: 0.0, torch.zeros(2, X), torch.zeros(2, X)),
            r"but got float",
        ),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
