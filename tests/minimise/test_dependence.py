"""The kernel statistic: against its plain form, unbiased, and with the gradient of that form."""

import math

import pytest
import torch

from mibounds.minimise import dependence
from mibounds.minimise.dependence import keep_scale, kernel_nats, standardise_batch, ucentre, whiten
from mibounds.samples.batches import Batch


def plain_kernel(v):
    """The mean of Gaussian kernels, pair by pair."""
    n = len(v)
    distances = torch.stack([(v[i] - v[j]).square().sum() for i in range(n) for j in range(n)])
    width = torch.stack([row.median() for row in distances.detach().view(n, n)]).median()
    kernels = [(-distances / (w * width)).exp() for w in dependence.WIDTHS]
    return (sum(kernels) / len(kernels)).view(n, n)


def plain_ucentre(kernel):
    """Székely and Rizzo 2014, equation 2."""
    n = len(kernel)
    kernel = kernel - torch.diag(kernel.diagonal())
    rows = kernel.sum(1)
    total = rows.sum()
    out = torch.zeros_like(kernel)
    for i in range(n):
        for j in range(n):
            if i != j:
                out[i, j] = (
                    kernel[i, j] - (rows[i] + rows[j]) / (n - 2) + total / ((n - 1) * (n - 2))
                )
    return out


def plain_statistic(x, y, residual=None):
    """One view of the statistic, from its formula."""
    kernels = [plain_kernel(v) for v in (x, y)]
    if residual is not None:
        kernels = [residual @ k @ residual.T for k in kernels]
    a, b = (plain_ucentre(k) for k in kernels)
    h = (a * b).sum() / ((a * a).sum() * (b * b).sum()).sqrt()

    def effective(v):
        c = (v.T @ v).detach()
        return c.trace() ** 2 / (c * c).sum()

    return -0.5 * (effective(x) * effective(y)).sqrt() * (1 - h).log()


def pair(n=14, seed=0):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 3, generator=g, dtype=torch.float64)
    y = x[:, :2].square() + torch.randn(n, 2, generator=g, dtype=torch.float64)
    return x.requires_grad_(), y.requires_grad_()


@pytest.mark.parametrize("given", [False, True])
def test_value_and_gradient_are_those_of_the_formula(given, monkeypatch):
    monkeypatch.setattr(dependence, "FEWEST_FREED", 0)
    x, y = pair()
    third = torch.randn(len(x), 1, dtype=torch.float64) if given else None
    residual = None
    if third is not None:
        near = plain_kernel(standardise_batch(third))
        residual = dependence._residual(near)
    views = [standardise_batch(v) for v in (x, y)]
    want = (
        plain_statistic(*views, residual)
        + plain_statistic(*(whiten(v) for v in views), residual)
    ) / 2  # fmt: skip
    got = kernel_nats(x, y, third)
    torch.testing.assert_close(got, want)
    for a, b in zip(
        torch.autograd.grad(got, (x, y)), torch.autograd.grad(want, (x, y)), strict=True
    ):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-7)


def test_within_groups_it_is_that_of_each_group():
    groups = torch.tensor([0] * 6 + [1] * 5 + [2] * 3)  # the last is too small to count
    kernel = plain_kernel(torch.randn(14, 2, dtype=torch.float64))
    centred = ucentre(kernel, groups[:, None] == groups)
    for label, n in ((0, 6), (1, 5)):
        own = groups == label
        torch.testing.assert_close(centred[own][:, own], plain_ucentre(kernel[own][:, own]))
        assert centred[own][:, ~own].abs().max() == 0, n
    assert centred[groups == 2].abs().max() == 0
    torch.testing.assert_close(ucentre(kernel), plain_ucentre(kernel))


@pytest.mark.parametrize("kind", ["real", "labels", "given labels"])
def test_independent_samples_give_zero_on_average(kind):
    values = []
    for seed in range(200):
        g = torch.Generator().manual_seed(seed)
        third = torch.randint(3, (40,), generator=g)
        x = torch.randn(40, 3, generator=g)
        y = torch.randn(40, 2, generator=g)
        if kind == "labels":
            y = torch.randint(3, (40,), generator=g)
        if kind == "given labels":  # both depend on the third variable only
            x, y = x + 3 * third[:, None], y - 3 * third[:, None]
            values.append(kernel_nats(x, y, third))
            assert kernel_nats(x, y) > 0.3
        else:
            values.append(kernel_nats(x, y))
    values = torch.stack(values)
    error = values.std() / math.sqrt(len(values))
    assert values.mean().abs() < 4 * error


def test_what_a_real_third_variable_explains_does_not_count():
    g = torch.Generator().manual_seed(0)
    near = torch.randn(400, 1, generator=g)
    x, y = (near + torch.randn(400, d, generator=g) for d in (3, 2))
    assert kernel_nats(x, y) > 0.08
    assert kernel_nats(x, y, near).abs() < 0.03
    assert kernel_nats(x, y + x[:, :2], near) > 0.1
    assert kernel_nats(x[:100], y[:100], near[:100]) == 0  # too few to tell


def test_a_dependence_is_seen_given_a_third_variable():
    g = torch.Generator().manual_seed(0)
    third = torch.randint(3, (300,), generator=g)
    x = torch.randn(300, 2, generator=g) + third[:, None]
    y = x[:, :1] + 0.3 * torch.randn(300, 1, generator=g)
    assert kernel_nats(x, y, third) > 0.3
    assert kernel_nats(x, (y > 0).long()[:, 0], third) > 0.1


def test_small_differences_of_columns_are_seen(monkeypatch):
    g = torch.Generator().manual_seed(0)
    s = torch.randn(256, 1, generator=g)
    common = torch.randn(256, 1, generator=g)
    x = torch.cat([common, common + 0.1 * s], 1)
    assert kernel_nats(x, s) > 0.2
    monkeypatch.setattr(dependence, "whiten", lambda columns: columns)
    assert kernel_nats(x, s) < 0.05


def test_whitening_leaves_independent_columns_alone():
    g = torch.Generator().manual_seed(0)
    x = standardise_batch(torch.randn(256, 100, generator=g))
    assert (whiten(x) - x).abs().mean() < 0.02  # though sample correlations are far from zero
    torch.testing.assert_close(whiten(x[:, :1]), x[:, :1])


def test_batches_side_by_side_are_batches_one_by_one():
    x, y = torch.randn(4, 30, 5), torch.randn(4, 30, 2)
    y = y + x[..., :2]
    together = kernel_nats(x, y)
    alone = torch.stack([kernel_nats(a, b) for a, b in zip(x, y, strict=True)])
    torch.testing.assert_close(together, alone, rtol=1e-4, atol=1e-5)


def test_few_and_constant_samples_give_no_nan():
    x = torch.zeros(8, 2, requires_grad=True)
    value = kernel_nats(x, torch.randn(8, 1))
    value.backward()
    assert value == 0
    assert (x.grad == 0).all()
    assert kernel_nats(torch.randn(3, 2), torch.randn(3, 1)) == 0


def test_a_gradient_that_keeps_the_scale_neither_shifts_nor_stretches():
    x = torch.randn(50, 3, dtype=torch.float64, requires_grad=True)
    g = torch.randn(50, 3, dtype=torch.float64)
    (got,) = torch.autograd.grad((keep_scale(x) * g).sum(), x)
    columns = standardise_batch(x.detach())
    assert got.mean(0).abs().max() < 1e-12
    assert (got * columns).mean(0).abs().max() < 1e-6
    rest = g - got  # only shifts and stretches are missing
    shift_and_stretch = torch.stack([torch.ones(50, dtype=torch.float64), columns[:, 0]], 1)
    fit = torch.linalg.lstsq(shift_and_stretch, rest[:, :1])
    assert (rest[:, :1] - shift_and_stretch @ fit.solution).abs().max() < 1e-6


def test_standardised_over_a_batch_object_of_one_process():
    x = torch.randn(20, 3)
    torch.testing.assert_close(standardise_batch(x, Batch(20)), standardise_batch(x))
    columns = standardise_batch(x)
    torch.testing.assert_close(whiten(columns, Batch(20)), whiten(columns))
