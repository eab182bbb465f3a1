"""The statistic of permutation tests."""

import numpy as np
import pytest

from mibounds.measure.independence import kernel_statistic
from mibounds.samples.columns import as_columns


def sides(x, y):
    return as_columns("x", x).scored(), as_columns("y", y).scored()


def test_it_is_the_correlation_of_centred_kernels():
    rng = np.random.default_rng(0)
    x, y = sides(rng.normal(size=(30, 2)), rng.normal(size=30))
    rows = np.arange(30)
    kernels = []
    for side in (x, y):
        v = side.inputs()
        squares = ((v[:, None] - v[None]) ** 2).sum(-1)
        kernel = np.exp(-squares / (2 * np.median(squares[np.triu_indices(30, 1)])))
        centre = np.eye(30) - 1 / 30
        kernels.append(centre @ kernel @ centre)
    order = rng.permutation(30)
    other = kernels[1][order][:, order]
    want = (kernels[0] * other).sum() / np.prod([np.linalg.norm(k) for k in kernels])
    assert kernel_statistic(x, y, rows)(order) == pytest.approx(want)


@pytest.mark.parametrize("kind", ["line", "circle", "label", "many columns"])
def test_it_sees_dependence_of_any_kind(kind):
    rng = np.random.default_rng(1)
    t, noise = rng.uniform(0, 2 * np.pi, 300), rng.normal(size=300)
    x, y = {
        "line": (t, t + 3 * noise),
        "circle": (np.cos(t), np.sin(t) + 0.1 * noise),
        "label": (t, (t + noise > 3).astype(int)),
        "many columns": (t[:, None] + rng.normal(size=(300, 20)), np.cos(t) + 0.2 * noise),
    }[kind]
    statistic = kernel_statistic(*sides(x, y), np.arange(300))
    null = [statistic(rng.permutation(300)) for _ in range(99)]
    assert statistic(np.arange(300)) > max(null)
