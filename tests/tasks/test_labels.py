import math

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from scipy.stats import entropy

from mibounds.tasks import DiscreteTable, LabelledUniform

ZEROS = ((0.25, 0.0, 0.15), (0.0, 0.4, 0.2))


def direct_sum(table) -> float:
    p = np.array(table)
    total = 0.0
    for i, j in np.ndindex(p.shape):
        if p[i, j] > 0:
            total += p[i, j] * math.log(p[i, j] / (p[i].sum() * p[:, j].sum()))
    return total


@pytest.mark.parametrize(
    "table", [ZEROS, ((0.25, 0.25), (0.25, 0.25)), ((1.0,),), ((0.1, 0.2, 0.3), (0.2, 0.1, 0.1))]
)
def test_table_against_direct_sum(table):
    task = DiscreteTable(table)
    p = np.array(table)
    assert task.mutual_information == pytest.approx(direct_sum(table), abs=1e-12)
    by_entropy = entropy(p.sum(0)) + entropy(p.sum(1)) - entropy(p.ravel())
    assert task.mutual_information == pytest.approx(by_entropy, abs=1e-12)
    assert (task.x_dim, task.classes) == p.shape


def test_table_frequencies():
    x, y = DiscreteTable(ZEROS).sample(100_000, 0)
    assert torch.equal(x.sum(1), torch.ones(len(x)))
    cells = x.argmax(1) * 3 + y
    frequencies = torch.bincount(cells, minlength=6).reshape(2, 3) / len(x)
    np.testing.assert_allclose(frequencies, ZEROS, atol=0.008)
    assert frequencies[0, 1] == 0


def test_table_keeps_zeros():
    task = DiscreteTable(ZEROS)
    x = torch.eye(2, dtype=torch.float64)
    p = task.conditional(x)
    expected = torch.tensor([[0.625, 0.0, 0.375], [0.0, 2 / 3, 1 / 3]], dtype=torch.float64)
    torch.testing.assert_close(p.probs, expected)
    assert p.probs[0, 1] == 0
    assert p.log_prob(torch.tensor([1, 0])).tolist() == [-math.inf, -math.inf]
    assert p.entropy().isfinite().all()
    assert task.log_ratio(x, torch.tensor([1, 0])).tolist() == [-math.inf, -math.inf]
    assert task.log_ratio(x, torch.tensor([0, 1]))[0] == pytest.approx(math.log(0.25 / 0.4 / 0.25))


def test_table_is_normalised():
    task = DiscreteTable(((0.5 + 4e-7, 0.0), (0.0, 0.5)))
    assert task.mutual_information == pytest.approx(math.log(2), abs=1e-12)


def test_table_allows_empty_rows_and_columns():
    task = DiscreteTable(((0.5, 0.0, 0.0), (0.0, 0.5, 0.0), (0.0, 0.0, 0.0)))
    assert task.mutual_information == pytest.approx(math.log(2))
    p = task.conditional(torch.eye(3))
    torch.testing.assert_close(p.probs[2], torch.full((3,), 1 / 3))
    assert task.log_ratio(torch.eye(3)[2], torch.tensor(2)).item() == -math.inf


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (
            ((0.6, 0.6), (-0.2, 0.0)),
            "Expected probabilities to be non-negative but got a smallest entry of -0.2; give",
        ),
        (
            ((0.6, 0.6),),
            "Expected probabilities to sum to 1 within 1e-6 but got a sum of 1.2; divide the table",
        ),
        (((0.5, 0.5), (0.0,)), "Expected probabilities to be finite numbers nested 2 deep"),
        ((0.5, 0.5), "Expected probabilities to be finite numbers nested 2 deep"),
        (((math.nan, 1.0),), "Expected probabilities to be finite numbers nested 2 deep"),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_table_errors(table, message):
    with pytest.raises(ValueError, match=message):
        DiscreteTable(table)


@pytest.mark.parametrize("m", [1, 2, 5, 20])
def test_labelled_uniform_against_quadrature(m):
    """I = h(x) - log 2, x being uniform on [y, y + 2] for a known y."""

    def integrand(x: float) -> float:
        p = sum(0.5 / m for j in range(m) if j <= x <= j + 2)
        return -p * math.log(p)

    h = sum(quad(integrand, k, k + 1)[0] for k in range(m + 1))
    task = LabelledUniform(m)
    assert task.mutual_information == pytest.approx(h - math.log(2), abs=1e-9)
    assert (task.x_dim, task.y_dim, task.classes) == (1, 0, m)


def test_labelled_uniform_posterior():
    task = LabelledUniform(3)
    x = torch.tensor([[0.5], [1.5], [2.5], [3.5]])
    expected = [[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.0, 0.5, 0.5], [0.0, 0.0, 1.0]]
    assert task.conditional(x).probs.tolist() == expected
    ratio = task.log_ratio(x[:, None].double(), torch.arange(3)[None])
    with np.errstate(divide="ignore"):
        np.testing.assert_allclose(ratio, np.log(3 * np.array(expected)), rtol=1e-12)


def test_labelled_uniform_samples():
    x, y = LabelledUniform(4).sample(100_000, 0)
    offset = x[:, 0] - y
    assert 0 <= offset.min() < 0.01
    assert 1.99 < offset.max() <= 2
    np.testing.assert_allclose(torch.bincount(y) / len(y), 0.25, atol=0.008)


def test_labelled_uniform_error():
    message = (
        "Expected classes to be an integer of at least 1 but got 0; give classes as a positive"
    )
    with pytest.raises(ValueError, match=message):
        LabelledUniform(0)
