"""The statistics of tests of independence, also given a third variable."""

import numpy as np
import pytest

from mibounds.measure import independence
from mibounds.measure.independence import _take_off, dependence_given, kernel_statistic
from mibounds.samples.columns import as_columns


def sides(x, y):
    return as_columns("x", x).scored(), as_columns("y", y).scored()


def plain_kernel(v):
    squares = ((v[:, None] - v[None]) ** 2).sum(-1)
    kernel = np.exp(-squares / (2 * np.median(squares[np.triu_indices(len(v), 1)])))
    centre = np.eye(len(v)) - 1 / len(v)
    kernel = centre @ kernel @ centre
    return kernel / np.linalg.norm(kernel)


def test_it_is_the_correlation_of_centred_kernels_also_of_whitened_columns():
    rng = np.random.default_rng(0)
    x, y = sides(rng.normal(size=(30, 2)) @ [[1, 1], [0, 0.1]], rng.normal(size=30))
    v, order = x.inputs(), rng.permutation(30)
    k = plain_kernel(v) + plain_kernel(v @ np.linalg.cholesky(np.linalg.inv(np.cov(v.T))))
    want = (k * plain_kernel(y.inputs())[order][:, order]).sum()
    assert kernel_statistic(x, y, np.arange(30))(order) == pytest.approx(want)


@pytest.mark.parametrize("kind", ["line", "circle", "label", "many columns", "small difference"])
def test_it_sees_dependence_of_any_kind(kind):
    rng = np.random.default_rng(1)
    t, noise = rng.uniform(0, 2 * np.pi, 300), rng.normal(size=300)
    x, y = {
        "line": (t, t + 3 * noise),
        "circle": (np.cos(t), np.sin(t) + 0.1 * noise),
        "label": (t, (t + noise > 3).astype(int)),
        "small difference": (np.stack([t, t + 0.02 * noise], 1), noise > 0),
        "many columns": (t[:, None] + rng.normal(size=(300, 20)), np.cos(t) + 0.2 * noise),
    }[kind]
    statistic = kernel_statistic(*sides(x, y), np.arange(300))
    null = [statistic(rng.permutation(300)) for _ in range(99)]
    assert statistic(np.arange(300)) > max(null)


def p_given(x, y, z, block=1, seed=0, times=99):
    x, y, z = (as_columns(n, v).scored() for n, v in (("x", x), ("y", y), ("given", z)))
    rows, rng = np.arange(len(x)), np.random.default_rng(seed)
    value, null = dependence_given(x, y, z, rows, block, times, rng)
    return (1 + (null >= value).sum()) / (1 + times)


def test_a_common_cause_is_no_dependence_given_it():
    """60 seeds at 10 %: 14 and more are 1 in 1000. Without z each p-value is the smallest."""
    p = []
    for seed in range(60):
        z, *noise = np.random.default_rng(seed).normal(size=(4, 200))
        x = np.stack([np.cos(2 * z), z], 1) + 0.3 * np.stack(noise[:2], 1)
        p.append(p_given(x, np.cos(2 * z) + 0.3 * noise[2], z, seed=seed))
    assert np.mean(np.array(p) <= 0.1) < 14 / 60
    x, y = sides(x, np.cos(2 * z) + 0.3 * noise[2])
    statistic = kernel_statistic(x, y, np.arange(200))
    rng = np.random.default_rng(0)
    assert statistic(np.arange(200)) > max(statistic(rng.permutation(200)) for _ in range(99))


@pytest.mark.parametrize("kind", ["line", "square", "sign that changes with z", "label of y"])
def test_dependence_beside_a_common_cause_is_seen(kind):
    z, e, f = np.random.default_rng(2).normal(size=(3, 400))
    y = {
        "line": z**2 + e / 2 + f,
        "square": z + e**2 / 2 + f,
        "sign that changes with z": z + 0.7 * e * np.sign(z) + f,
        "label of y": (z + e + f / 2 > 0).astype(int),
    }[kind]
    assert p_given(z**2 + e if kind == "line" else z + e, y, z) == 0.01


def test_given_labels_only_rows_of_one_label_change_places():
    rng = np.random.default_rng(3)
    z = rng.integers(4, size=100)
    noise = rng.normal(size=100)
    assert p_given(noise, z + noise + rng.normal(size=100), z) == 0.01
    p = [p_given(z + rng.normal(size=100), z + rng.normal(size=100), z, seed=k) for k in range(60)]
    assert 0.3 < np.mean(p) < 0.7
    # One row for each label: there is no other order.
    assert p_given(noise, noise, np.char.mod("%d", np.arange(100))) == 1


def test_signs_of_a_block_are_one():
    """Rows that are copies of their neighbours are no evidence of anything."""
    p = {1: [], 5: []}
    for seed in range(30):
        z, e, f = np.repeat(np.random.default_rng(seed).normal(size=(3, 60)), 5, axis=1)
        for block, found in p.items():
            found.append(p_given(e, f, np.sin(z), block, seed))
    assert np.mean(np.array(p[1]) <= 0.1) > 0.3
    assert np.mean(np.array(p[5]) <= 0.1) < 0.3


def test_what_z_determines_is_taken_off():
    z, e = np.random.default_rng(4).normal(size=(2, 300))
    features = np.stack([np.sin(3 * z), e], 1)
    rest, leverage = _take_off(features, z[:, None], 1.0, 1, np.random.default_rng(0))
    assert rest[:, 0].var() < 1e-3 * features[:, 0].var()
    assert rest[:, 1].var() > 0.9 * e.var()
    assert leverage.shape == (300,)
    assert ((leverage >= 0) & (leverage < 0.9)).all()


def test_x_that_z_determines_is_independent_of_y_given_z():
    z = np.random.default_rng(5).normal(size=200)
    assert p_given(2 * z, z, z) > 0.05


def test_blocks_are_left_out_as_a_whole(monkeypatch):
    """The loss that chooses a ridge is that of regressions on the rows of other blocks."""
    rng = np.random.default_rng(6)
    z, features = rng.normal(size=(40, 2)), rng.normal(size=(40, 1))
    monkeypatch.setattr(independence, "WIDTHS", (1.0,))
    monkeypatch.setattr(independence, "WAVES_GIVEN", 0)
    losses = []
    for ridge in (0.01, 1.0):
        g = z - z.mean(0)
        g = np.hstack([g / np.sqrt((g**2).mean()), np.ones((40, 1))])
        f = features - features.mean(0)
        loss = 0.0
        for k in range(8):
            out = np.arange(5 * k, 5 * k + 5)
            a, b = np.delete(g, out, 0), np.delete(f, out, 0)
            slope = np.linalg.solve(a.T @ a + 40 * ridge * np.eye(3), a.T @ b)
            loss += ((f[out] - g[out] @ slope) ** 2).sum() / 40
        losses.append(loss)
        whole = f - g @ np.linalg.solve(g.T @ g + 40 * ridge * np.eye(3), g.T @ f)
        monkeypatch.setattr(independence, "RIDGES", np.array([ridge]))
        rest, leverage = _take_off(features, z, 1.0, 5, rng)
        assert rest == pytest.approx(whole)
        hat = g @ np.linalg.solve(g.T @ g + 40 * ridge * np.eye(3), g.T)
        assert leverage[0] == pytest.approx(np.linalg.eigvalsh(hat[:5, :5])[-1])
    monkeypatch.setattr(independence, "RIDGES", np.array([0.01, 1.0]))
    rest, _ = _take_off(features, z, 1.0, 5, rng)
    best = [0.01, 1.0][int(np.argmin(losses))]
    assert rest == pytest.approx(f - g @ np.linalg.solve(g.T @ g + 40 * best * np.eye(3), g.T @ f))
