import dataclasses
import math
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import digamma
from scipy.stats import gaussian_kde, multivariate_normal

import mibounds as mb
from mibounds.measure.classical import CLASSICAL, counts, gaussians, kernels
from mibounds.measure.classical.interfaces import as_numbers
from mibounds.samples.columns import normal_scores
from mibounds.tasks import TASKS, CorrelatedGaussian, JointGaussian, UniformNoise

NUMBERS = [name for name in CLASSICAL if name != "plug_in"]
DENSE = JointGaussian.dense(x_dim=2, y_dim=1, correlation=0.6)
ENTRIES = [pytest.param(cls(), id=name) for name, cls in CLASSICAL.items()] + [
    pytest.param(mb.KSG(k=4, form=2), id="ksg-2"),
    pytest.param(mb.PlugIn(correction="panzeri-treves"), id="plug_in-pt"),
    pytest.param(mb.Binning(bins=3, correction="none"), id="binning-none"),
    pytest.param(mb.KDE(width="scott"), id="kde-scott"),
    pytest.param(mb.KDE(width=0.5), id="kde-0.5"),
    pytest.param(mb.CCA(unbiased=False), id="gaussian-plain"),
]


def samples_for(estimator, n=200, seed=0):
    """Dependent x of two columns and y of one, of a kind that the estimator handles."""
    x, y = DENSE.sample(n, seed, dtype=torch.float64)
    x, y = x.numpy(), y.numpy()
    return (x.round(), y.round()) if estimator.handles == "discrete" else (x, y)


# --- laws over the registry ----------------------------------------------------------------------


@pytest.mark.parametrize("estimator", ENTRIES)
def test_the_mean_of_the_pointwise_values_is_the_estimate(estimator):
    x, y = samples_for(estimator)
    values = estimator.influence(x, y)
    assert values.shape == (200,)
    assert values.dtype == np.float64
    assert isinstance(estimator(x, y), float)
    assert estimator(x, y) == pytest.approx(values.mean(), abs=1e-12)
    assert values.std() > 0.05


@pytest.mark.parametrize("estimator", ENTRIES)
def test_the_pointwise_values_belong_to_their_rows(estimator):
    """Values in the wrong order would not correlate with the exact log-ratio."""
    x, y = samples_for(estimator, n=1000)
    values = estimator.influence(x, y)
    exact = DENSE.log_ratio(torch.tensor(x), torch.tensor(y)).numpy()
    assert np.corrcoef(values, exact)[0, 1] > 0.4


@pytest.mark.parametrize("estimator", ENTRIES)
def test_it_is_deterministic_and_changes_nothing(estimator):
    x, y = samples_for(estimator)
    before = x.copy(), y.copy()
    state = torch.get_rng_state()
    assert estimator(x, y) == estimator(x, y)
    assert (x == before[0]).all()
    assert (y == before[1]).all()
    assert (state == torch.get_rng_state()).all()


@pytest.mark.parametrize("estimator", ENTRIES)
def test_x_and_y_can_be_swapped(estimator):
    x, y = samples_for(estimator)
    symmetric = getattr(estimator, "correction", None) != "panzeri-treves"
    same = estimator(y, x) == pytest.approx(estimator(x, y), abs=1e-9)
    assert same == symmetric


@pytest.mark.parametrize("estimator", ENTRIES)
def test_the_order_of_rows_does_not_matter(estimator):
    x, y = samples_for(estimator)
    order = np.random.default_rng(1).permutation(len(x))
    tolerance = 0.05 if isinstance(estimator, mb.MLMI) else 1e-9  # it draws centres by row
    assert estimator(x[order], y[order]) == pytest.approx(estimator(x, y), abs=tolerance)


@pytest.mark.parametrize("scale", [1e-200, 3.0, 1e150])
@pytest.mark.parametrize("estimator", ENTRIES)
def test_shift_and_scale_of_a_column_do_not_matter(estimator, scale):
    x, y = samples_for(estimator)
    value = estimator(x, y)
    assert estimator(x * [scale, 1.0], y * scale) == pytest.approx(value, abs=1e-9)
    assert estimator(x + np.array([0.0, 8.0]), y + 8.0) == pytest.approx(value, abs=1e-9)


@pytest.mark.parametrize("estimator", ENTRIES)
def test_arrays_tensors_and_sequences_are_the_same(estimator):
    x, y = samples_for(estimator)
    value = estimator(x, y)
    assert estimator(torch.tensor(x, requires_grad=True), torch.tensor(y)) == value
    assert estimator(x.tolist(), y[:, 0]) == value
    half = estimator(torch.tensor(x).bfloat16(), torch.tensor(y, dtype=torch.float32))
    assert half == pytest.approx(value, abs=0.1)


@pytest.mark.parametrize("name", CLASSICAL)
def test_independent_samples_have_little_information(name):
    estimator = CLASSICAL[name]()
    x, y = samples_for(estimator, n=1000)
    y = np.random.default_rng(2).permutation(y)
    assert abs(estimator(x, y)) < 0.06


@pytest.mark.parametrize("name", CLASSICAL)
def test_an_entry_states_its_facts_and_is_what_its_fields_say(name):
    cls = CLASSICAL[name]
    assert cls.side in ("upper", "lower", "neither")
    assert cls.handles in ("continuous", "discrete", "mixed")
    assert cls.condition
    assert cls.cost.startswith("N")
    assert cls.most_rows or not cls.local  # neighbourhoods take time
    assert any(c.isdigit() for c in cls.reference)
    assert cls() == cls()
    assert hash(cls()) == hash(cls())
    assert repr(cls()).startswith(f"{cls.__name__}(")
    with pytest.raises(dataclasses.FrozenInstanceError):
        cls().k = 7
    assert getattr(mb, cls.__name__) is cls


# --- truths --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("binning", 0.08),
        ("ksg", 0.05),
        ("ksg_mixed", 0.05),
        ("kde", 0.06),
        ("mlmi", 0.06),
        ("gaussian", 0.04),
        ("gaussian_copula", 0.04),
    ],
)
@pytest.mark.parametrize("nats", [0.1, 1.0])
def test_one_gaussian_pair(name, error, nats):
    task = CorrelatedGaussian.from_mutual_information(1, nats)
    x, y = task.sample(2000, 3)
    assert CLASSICAL[name]()(x, y) == pytest.approx(nats, abs=error)


@pytest.mark.parametrize(
    "estimator",
    [mb.KSG(), mb.KSG(k=10, form=2), mb.MixedKSG(), mb.CCA(), mb.GCMI(), mb.KDE()],
)
def test_gaussians_of_two_columns_and_one(estimator):
    x, y = DENSE.sample(3000, 3)
    assert estimator(x, y) == pytest.approx(DENSE.mutual_information, abs=0.06)


@pytest.mark.parametrize("estimator", [mb.KSG(), mb.KSG(form=2), mb.MixedKSG(), mb.MLMI()])
def test_uniform_noise(estimator):
    task = UniformNoise(0.75)
    x, y = task.sample(2000, 3)
    assert estimator(x, y) == pytest.approx(task.mutual_information, abs=0.05)


def test_neighbours_see_relations_that_are_not_monotone():
    rng = np.random.default_rng(0)
    x = rng.normal(size=1000)
    y = x**2 + 0.1 * rng.normal(size=1000)
    assert mb.KSG()(x, y) > 1
    assert mb.KDE()(x, y) > 0.5
    assert mb.MLMI()(x, y) > 0.5
    assert mb.Binning()(x, y) > 0.8
    assert abs(mb.GCMI()(x, y)) < 0.05


def test_increasing_maps_change_nothing_for_ranks():
    x, y = DENSE.sample(500, 0, dtype=torch.float64)
    for estimator in (mb.GCMI(), mb.Binning(), mb.Binning(bins=4)):
        assert estimator(x.exp(), y**3) == pytest.approx(estimator(x, y), abs=1e-12)
    assert mb.CCA()(x.exp(), y**3) < mb.CCA()(x, y) - 0.1


def test_labels_and_a_number_around_them():
    task = TASKS["labelled-uniform"]
    x, y = task.sample(2000, 0)
    assert mb.MixedKSG()(x, y) == pytest.approx(task.mutual_information, abs=0.03)
    one_hot = torch.nn.functional.one_hot(y)
    assert mb.MixedKSG()(x, one_hot) == pytest.approx(task.mutual_information, abs=0.03)


@pytest.mark.parametrize("name", ["table", "table-identity"])
def test_discrete_tables(name):
    task = TASKS[name]
    x, y = task.sample(2000, 0)
    for estimator in (mb.PlugIn(), mb.PlugIn("panzeri-treves"), mb.MixedKSG()):
        assert estimator(x, y) == pytest.approx(task.mutual_information, abs=0.04)


@pytest.mark.parametrize("name", ["table", "table-identity"])
def test_frequencies_equal_to_probabilities_give_the_exact_value(name):
    task = TASKS[name]
    number = (np.array(task.probabilities) * 100).round().astype(int)
    i, j = (np.repeat(a.ravel(), number.ravel()) for a in np.indices(number.shape))
    plain = mb.PlugIn(correction="none")
    assert plain(i, j) == pytest.approx(task.mutual_information, abs=1e-12)
    letters = np.array(["a", "b", "c", "d"])
    assert plain(letters[i], [("z", int(k)) for k in j]) == plain(i, j)
    objects = np.array([None, 1, "b", (2, 3)], dtype=object)  # with no order among them
    assert plain(objects[i], j) == pytest.approx(plain(i, j), abs=1e-12)
    assert plain(np.stack([i // 2, i % 2], 1), j) == pytest.approx(plain(i, j), abs=1e-12)


def test_an_interval_from_the_pointwise_values_covers_the_truth_as_often_as_it_says():
    inside = 0
    for seed in range(200):
        x, y = DENSE.sample(300, seed)
        values = mb.CCA().influence(x, y)
        error = values.std() / len(values) ** 0.5
        inside += abs(values.mean() - DENSE.mutual_information) < 1.96 * error
    assert 180 <= inside <= 198  # 95 % +- 3 standard deviations: 181 ... 199


# --- each against its equation -------------------------------------------------------------------


def ksg(x, y, k, form):
    """Equations 8 and 9 of Kraskov et al. 2004 with loops, columns scaled to variance 1."""
    x, y = x / x.std(0), y / y.std(0)
    n = len(x)
    terms = []
    for i in range(n):
        d_x, d_y = np.abs(x - x[i]).max(1), np.abs(y - y[i]).max(1)
        d = np.maximum(d_x, d_y)
        others = [j for j in range(n) if j != i]
        near = sorted(others, key=lambda j, d=d: d[j])[:k]
        if form == 1:
            n_x = sum(d_x[j] < d[near[-1]] for j in others)
            n_y = sum(d_y[j] < d[near[-1]] for j in others)
            terms.append(digamma(k) - digamma(n_x + 1) - digamma(n_y + 1) + digamma(n))
        else:
            n_x = sum(d_x[j] <= max(d_x[near]) for j in others)
            n_y = sum(d_y[j] <= max(d_y[near]) for j in others)
            terms.append(digamma(k) - 1 / k - digamma(n_x) - digamma(n_y) + digamma(n))
    return np.array(terms)


@pytest.mark.parametrize("form", [1, 2])
@pytest.mark.parametrize(("n", "k", "columns"), [(80, 1, (1, 1)), (60, 4, (3, 2)), (5, 4, (1, 2))])
def test_ksg_against_the_equation(n, k, columns, form):
    rng = np.random.default_rng(n)
    x, y = (rng.normal(size=(n, d)) for d in columns)
    y[:, 0] += x[:, 0]
    np.testing.assert_allclose(mb.KSG(k=k, form=form).influence(x, y), ksg(x, y, k, form))


def test_ksg_counts_strictly_on_a_grid_despite_rounding():
    """All distances are multiples of one step, so many are equal to that of the neighbour."""
    rng = np.random.default_rng(0)
    x, y = rng.permutation(64) - 31.5, rng.permutation(64) - 31.5
    values = mb.KSG(k=1).influence(x / 3, y / 7)
    terms = []
    for i in range(64):
        d_x, d_y = np.abs(x - x[i]), np.abs(y - y[i])
        rho = np.sort(np.maximum(d_x, d_y))[1]
        terms.append(-digamma([(d_x < rho).sum(), (d_y < rho).sum()]).sum())
    np.testing.assert_allclose(values, digamma(1) + digamma(64) + terms)


def test_threads_change_nothing():
    x, y = DENSE.sample(500, 0)
    assert mb.KSG(workers=2)(x, y) == mb.KSG()(x, y)
    assert mb.MixedKSG(workers=2)(x, y) == mb.MixedKSG()(x, y)


def test_ksg_in_scikit_learn():
    sklearn = pytest.importorskip("sklearn.feature_selection")
    x, y = DENSE.sample(500, 0, dtype=torch.float64)
    x = x[:, :1]
    for k in (3, 7):
        other = sklearn.mutual_info_regression(x.numpy(), y[:, 0].numpy(), n_neighbors=k)
        assert mb.KSG(k=k)(x, y) == pytest.approx(other[0], abs=1e-3)


def mixed_ksg(x, y, k, strict=True):
    """Algorithm 1 of Gao et al. 2017 with loops; strictly in ψ, or not in log."""
    x, y = as_numbers(x, y, constants=True)  # the same distances, bit for bit
    terms = []
    for i in range(len(x)):
        d_x, d_y = np.abs(x - x[i]).max(1), np.abs(y - y[i]).max(1)
        d = np.maximum(d_x, d_y)
        rho = np.sort(d)[k] * (1 - 1e-10 * strict)
        count = k if rho > 0 else (d == 0).sum() - (not strict)
        n_x, n_y = (d_x <= rho).sum(), (d_y <= rho).sum()
        f = digamma if strict else np.log
        terms.append(digamma(count) + np.log(len(x)) - f(n_x) - f(n_y))
    return np.array(terms)


@pytest.mark.parametrize("k", [1, 5])
def test_mixed_ksg_against_the_equation(k):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(150, 2)) * (rng.random((150, 1)) < 0.7)  # exactly 0 for some
    y = np.where(rng.random((150, 1)) < 0.5, x[:, :1], rng.integers(3, size=(150, 1)))
    assert len(np.unique(x, axis=0)) < 120
    np.testing.assert_allclose(mb.MixedKSG(k=k).influence(x, y), mixed_ksg(x, y, k))
    constant = np.ones((150, 1))
    np.testing.assert_allclose(mb.MixedKSG(k=k).influence(x, constant), mixed_ksg(x, constant, k))


def test_mixed_ksg_is_ksg_for_continuous_samples():
    x, y = DENSE.sample(500, 0)
    difference = mb.MixedKSG(k=3)(x, y) - mb.KSG(k=3)(x, y)
    assert difference == pytest.approx(math.log(500) - digamma(500), abs=1e-9)


def test_counts_in_logarithms_are_too_small_for_a_label():
    x, y = TASKS["labelled-uniform"].sample(500, 0, dtype=torch.float64)
    x, y = x.numpy(), y[:, None].numpy().astype(float)
    bias = mixed_ksg(x, y, 5, strict=False).mean() - mixed_ksg(x, y, 5).mean()
    assert bias == pytest.approx(-0.2, abs=0.05)


def test_ties_are_broken_the_same_way_in_every_call():
    rng = np.random.default_rng(0)
    x = rng.integers(4, size=3000)
    y = np.where(rng.random(3000) < 0.7, x, rng.integers(4, size=3000))
    value = mb.KSG()(x, y)
    assert value == mb.KSG()(x, y)
    assert value == pytest.approx(mb.PlugIn()(x, y), abs=0.06)
    with pytest.raises(ValueError, match=r"fewer than 4 equal samples .* row \d+; use MixedKSG"):
        mb.KSG(jitter=0)(x, y)
    smooth = rng.normal(size=(300, 2))
    assert mb.KSG(jitter=0)(*smooth.T) == mb.KSG(jitter=1.0)(*smooth.T)  # nothing to break


@pytest.mark.parametrize("width", ["silverman", "scott"])
def test_kde_against_scipy(width):
    """scipy divides the covariance by n - 1 and leaves nothing out, so compare one density."""
    rng = np.random.default_rng(0)
    z = rng.normal(size=(60, 3)) @ rng.normal(size=(3, 3))
    z = z - z.mean(0)
    estimator = mb.KDE(width=width)
    ours = estimator._log_density("z", z, "")
    kde = gaussian_kde(z.T, bw_method=width)
    covariance = np.cov(z.T, bias=True) * kde.factor**2
    for i in (0, 17, 59):
        others = [multivariate_normal(z[j], covariance).pdf(z[i]) for j in range(60) if j != i]
        assert ours[i] == pytest.approx(math.log(np.mean(others)), abs=1e-9)
    number = mb.KDE(width=float(kde.factor))._log_density("z", z, "")
    np.testing.assert_allclose(number, ours)


def test_kde_in_blocks_is_the_same(monkeypatch):
    x, y = DENSE.sample(100, 0)
    whole = mb.KDE().influence(x, y)
    monkeypatch.setattr(kernels, "NUMBERS", 701)
    np.testing.assert_allclose(mb.KDE().influence(x, y), whole)


def test_kde_is_invariant_to_linear_maps():
    x, y = DENSE.sample(200, 0, dtype=torch.float64)
    a = torch.tensor([[2.0, 1.0], [-3.0, 0.5]], dtype=torch.float64)
    for estimator in (mb.KDE(), mb.CCA()):
        assert estimator(x @ a, y) == pytest.approx(estimator(x, y), abs=1e-9)


@pytest.mark.parametrize("width", [0.2, 0.5, 1.0])
def test_the_ratio_of_mlmi_has_mean_one_over_all_pairs_and_the_largest_likelihood(width):
    x, y = (a.numpy() for a in DENSE.sample(150, 0, dtype=torch.float64))
    at = kernels._exponents(x, y, x[:30], y[:30])
    ratio = kernels._fit_ratio(*at, width, tolerance=1e-4)
    log_r = [ratio.log(at[0], np.roll(at[1], shift, axis=0)) for shift in range(150)]
    assert np.exp(log_r).mean() == pytest.approx(1, abs=1e-9)
    assert ratio.weights.min() >= 0
    best = ratio.log(*at).mean()
    rng = np.random.default_rng(0)
    for _ in range(200):  # no other weights are better by more than the tolerance
        other = rng.dirichlet(np.full(30, 0.3))
        mixed = 0.9 * ratio.weights + 0.1 * other
        for weights in (other, mixed):
            assert dataclasses.replace(ratio, weights=weights).log(*at).mean() < best + 1e-4


@pytest.mark.parametrize("columns", [(1, 3), (5, 2)])
def test_widths_of_mlmi_are_in_units_of_the_distance_between_samples(columns):
    """The mean of |x - x'|² / 2 s² is 1/2 at width 1, whatever the number of columns."""
    rng = np.random.default_rng(0)
    x, y = as_numbers(rng.normal(size=(50, columns[0])), rng.uniform(size=(50, columns[1])))
    for exponents in kernels._exponents(x, y, x, y):
        assert exponents.mean() == pytest.approx(-0.5)


def test_mlmi_survives_samples_that_no_kernel_reaches():
    x, y = TASKS["student-3"].sample(2000, 0)
    assert -0.01 < mb.MLMI()(x, y) < TASKS["student-3"].mutual_information


def test_mlmi_chooses_a_width_by_the_samples_left_out():
    x, y = CorrelatedGaussian.from_mutual_information(1, 1.0).sample(400, 0)
    chosen = mb.MLMI()(x, y)
    assert mb.MLMI(widths=(2.0,))(x, y) < chosen - 0.3  # too wide
    noise = torch.randn(400, 5), torch.randn(400, 5)
    assert mb.MLMI(widths=(0.2, 2.0))(*noise) < 0.1  # not the one that overfits
    with pytest.raises(ValueError, match=r"all samples but got \(0.2,\); add wider ones, or short"):
        mb.MLMI(widths=(0.2,))(*noise)


@pytest.mark.parametrize("columns", [(1, 1), (3, 2), (5, 1)])
def test_cca_is_the_ratio_of_determinants(columns):
    rng = np.random.default_rng(0)
    x, y = (rng.normal(size=(40, d)) for d in columns)
    y += x[:, :1]
    log_det = [np.linalg.slogdet(np.atleast_2d(np.cov(a.T)))[1] for a in (x, y, np.hstack([x, y]))]
    plain = 0.5 * (log_det[0] + log_det[1] - log_det[2])
    assert mb.CCA(unbiased=False)(x, y) == pytest.approx(plain, abs=1e-10)


@pytest.mark.parametrize(("n", "columns"), [(12, (3, 2)), (30, (10, 4)), (6, (3, 2))])
def test_the_bias_of_cca_is_exact(n, columns):
    task = JointGaussian.dense(*columns, correlation=0.5)
    data = [task.sample(n, seed) for seed in range(400)]
    values = np.array([mb.CCA()(x, y) for x, y in data])
    error = values.std() / len(values) ** 0.5
    bias = gaussians._bias(n, *columns)
    assert bias > 5 * error  # or there would be nothing to see
    assert abs(values.mean() - task.mutual_information) < 3 * error
    assert mb.CCA(unbiased=False)(*data[0]) - mb.CCA()(*data[0]) == pytest.approx(bias)


def test_the_copula_is_cca_of_normal_scores():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 2)).round(1)  # some are equal
    y = x[:, :1] ** 3 + rng.normal(size=(60, 1))
    scores = (np.stack([normal_scores(column) for column in side.T], 1) for side in (x, y))
    np.testing.assert_allclose(mb.GCMI().influence(x, y), mb.CCA().influence(*scores))


@given(st.integers(2, 9), st.integers(20, 60), st.integers(0, 10**6))
@settings(max_examples=50, deadline=None)
def test_bins_are_of_equal_mass(bins, n, seed):
    x = np.random.default_rng(seed).normal(size=(n, 2))
    for column in counts._bin(x, bins).T:
        mass = np.bincount(column, minlength=bins)
        assert len(mass) == bins
        assert mass.max() - mass.min() <= 1


def test_equal_numbers_share_a_bin():
    x = np.array([[0.0, 0, 0, 0, 0, 1, 2, 3]]).T
    assert counts._bin(x, 4)[:, 0].tolist() == [0, 0, 0, 0, 0, 2, 3, 3]


def test_binning_is_plug_in_of_the_bins():
    x, y = DENSE.sample(400, 0, dtype=torch.float64)
    codes = counts._bin(x.numpy(), 3), counts._bin(y.numpy(), 3)
    for correction in ("none", "miller-madow", "panzeri-treves"):
        binned = mb.Binning(bins=3, correction=correction)(x, y)
        assert binned == pytest.approx(mb.PlugIn(correction)(*codes), abs=1e-12)
    assert mb.Binning()(x, y) == mb.Binning(bins=4)(x, y)  # 4^3 cells of 400 / 4^3 > 5 samples


def test_miller_madow_is_one_half_for_each_degree_of_freedom():
    x = np.array([0, 0, 1, 1, 2, 2, 2, 2])
    y = np.array([0, 1, 0, 1, 0, 0, 1, 1])
    assert mb.PlugIn("none")(x, y) == pytest.approx(0)
    assert mb.PlugIn("miller-madow")(x, y) == pytest.approx(-(3 - 1) * (2 - 1) / (2 * 8))


def test_panzeri_treves_is_miller_madow_where_no_cell_is_empty_by_chance():
    x, y = np.indices((5, 3)).reshape(2, 15).repeat(40, axis=1)
    assert mb.PlugIn("panzeri-treves")(x, y) == pytest.approx(mb.PlugIn("miller-madow")(x, y))
    y = np.where(x == 0, 0, y)  # one row has one cell, and not by chance
    assert mb.PlugIn("panzeri-treves")(x, y) == pytest.approx(mb.PlugIn("miller-madow")(x, y))


@pytest.mark.parametrize(("share", "truth"), [(0.0, 0.0), (0.5, 0.495)])
def test_corrections_reduce_the_bias_of_few_counts(share, truth):
    rng = np.random.default_rng(0)
    data = []
    for _ in range(200):
        x, y = rng.integers(6, size=80), rng.integers(8, size=80)
        data.append((x, np.where(rng.random(80) < share, x, y)))
    none, madow, panzeri = (
        np.mean([mb.PlugIn(correction)(x, y) for x, y in data]) - truth
        for correction in ("none", "miller-madow", "panzeri-treves")
    )
    assert none > 0.2
    assert 0 < madow < 0.7 * none
    assert 0 < panzeri < 0.65 * madow


def test_the_number_of_relevant_cells_lies_between_the_occupied_and_all():
    assert counts._relevant(np.array([5, 5, 5]), 3) == 3
    assert counts._relevant(np.array([50, 50, 50]), 10) == 3  # none would have stayed empty
    assert counts._relevant(np.array([1, 1, 1]), 10) > 5
    assert 3 < counts._relevant(np.array([2, 2, 2]), 10) < counts._relevant(np.array([1, 1, 1]), 10)


# --- messages ------------------------------------------------------------------------------------

X, Y = (a.numpy() for a in DENSE.sample(30, 0, dtype=torch.float64))


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("estimator", ENTRIES)
def test_invalid_samples_are_refused(estimator):
    with pytest.raises(ValueError, match=r"as many samples of x as of y but got 30 and 29"):
        estimator(X, Y[1:])
    with pytest.raises(ValueError, match=r"at least 2 samples .* but got 1"):
        estimator(X[:1], Y[:1])
    with pytest.raises(ValueError, match=r"x of shape \(n,\) or \(n, d\) but got \(30, 2, 1\)"):
        estimator(X[:, :, None], Y)
    with pytest.raises(ValueError, match=r"y of shape .* but got \(30, 0\)"):
        estimator(X, Y[:, :0])
    with pytest.raises(ValueError, match=r"x with one sample per row but got a single float64"):
        estimator(np.float64(3.0), Y)
    for value in (math.nan, math.inf):
        bad = Y.copy()
        bad[7] = value
        with pytest.raises(ValueError, match=r"finite y but got NaN .* first in row 7"):
            estimator(X, bad)


@pytest.mark.parametrize("name", NUMBERS)
def test_values_other_than_numbers_are_refused(name):
    estimator = CLASSICAL[name]()
    with pytest.raises(ValueError, match=r"x to hold real numbers but got <U1; give labels"):
        estimator(["a", "b"] * 15, Y)
    with pytest.raises(ValueError, match=r"y to hold real numbers but got complex128"):
        estimator(X, Y + 1j)


@pytest.mark.parametrize("name", CLASSICAL)
def test_constant_columns_are_refused_where_they_have_no_scale(name):
    estimator = CLASSICAL[name]()
    if estimator.handles == "continuous":
        with pytest.raises(ValueError, match=r"column of x to vary but got column 1 with the same"):
            estimator(X * [1, 0] + 0.1, Y)
    else:
        x = DENSE.sample(200, 0)[0].sign()
        assert abs(estimator(x, np.full(200, 0.1))) < 0.01


@pytest.mark.parametrize(
    ("estimator", "n", "message"),
    [
        (mb.KSG(k=30), 30, r"k < n, the number of samples, but got k = 30 and n = 30"),
        (mb.MixedKSG(k=3), 3, r"k < n, .* k = 3 and n = 3"),
        (mb.KDE(), 3, r"at least 4 samples for 2 \+ 1 columns but got 3"),
        (mb.CCA(), 3, r"at least 4 samples for 2 \+ 1 columns but got 3"),
        (mb.GCMI(), 3, r"at least 4 samples for 2 \+ 1 columns but got 3"),
        (mb.MLMI(folds=4), 7, r"at least 2 samples per fold, 8, but got 7"),
        (mb.Binning(), 30, r"at least 40 samples for two bins in each of 3 columns but got 30"),
        (mb.Binning(bins=4), 30, r"one cell per sample, 30, but got 4 bins .* 3 columns, 64 cells"),
        (mb.PlugIn(), 30, r"discrete x, whose values repeat, but got 30 different ones; use KSG"),
        (mb.MLMI(widths=(1e-3,)), 30, r"kernels reach all samples but got \(0.001,\); add wider"),
    ],
)
def test_too_few_samples_are_refused(estimator, n, message):
    with pytest.raises(ValueError, match=message):
        estimator(X[:n], Y[:n])


@pytest.mark.parametrize("estimator", [mb.KDE(), mb.CCA()])
def test_linear_relations_are_refused(estimator):
    with pytest.raises(ValueError, match=r"3 independent columns in x but got 2; drop"):
        estimator(np.hstack([X, X[:, :1] - 2 * X[:, 1:]]), Y)
    with pytest.raises(ValueError, match=r"mutual information is infinite"):
        estimator(X, X @ [[1.0], [2.0]])


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("cls", "settings", "message"),
    [
        (mb.KSG, {"k": 0}, r"k >= 1 but got 0"),
        (mb.KSG, {"form": 3}, r"form to be one of \[1, 2\] but got 3"),
        (mb.KSG, {"jitter": -1.0}, r"jitter >= 0 but got -1.0"),
        (mb.KSG, {"jitter": math.nan}, r"jitter >= 0 but got nan"),
        (mb.MixedKSG, {"k": -1}, r"k >= 1 but got -1"),
        (mb.Binning, {"bins": 1}, r"bins >= 2 but got 1"),
        (mb.Binning, {"correction": "jackknife"}, r"one of \['none', .*\] but got 'jackknife'"),
        (mb.PlugIn, {"correction": "nsb"}, r"correction to be one of .* but got 'nsb'"),
        (mb.KDE, {"width": "wide"}, r"one of \['silverman', 'scott'\] but got 'wide'"),
        (mb.KDE, {"width": 0.0}, r"width > 0 but got 0.0"),
        (mb.MLMI, {"centres": 0}, r"centres >= 1 but got 0"),
        (mb.MLMI, {"folds": 1}, r"folds >= 2 but got 1"),
        (mb.MLMI, {"widths": ()}, r"widths, all > 0, but got \(\)"),
        (mb.MLMI, {"widths": (1.0, -1.0)}, r"widths, all > 0, but got \(1.0, -1.0\)"),
    ],
)
def test_invalid_settings_are_refused(cls, settings, message):
    with pytest.raises(ValueError, match=message):
        cls(**settings)


def test_only_neighbours_need_scipy_and_say_where_it_comes_from(monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy.spatial", None)
    for cls in (mb.KSG, mb.MixedKSG):
        with pytest.raises(ImportError, match=rf"{cls.__name__} needs .*mibounds\[classical\]"):
            cls()(X, Y)
    for cls in (mb.KDE, mb.CCA, mb.GCMI, mb.MLMI):
        assert math.isfinite(cls()(X, Y))
