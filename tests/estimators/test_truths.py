"""Numbers that are known without any training: exact conditionals, exact critics, chosen q's."""

import itertools
import math
import warnings

import naive
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from naive import fixed_value
from torch.distributions import Independent, MultivariateNormal, Normal
from torch.func import vmap

import mibounds as mb
from mibounds import bounds
from mibounds.samples.pairs import Pairs
from mibounds.tasks import TASKS, CorrelatedGaussian, DiscreteTable, JointGaussian, UniformNoise

DIM = 20
LEVELS = (2, 4, 6, 8, 10)


def gaussian(mi):
    return CorrelatedGaussian.from_mutual_information(DIM, float(mi))


def batches(task, n, count):
    x, y = task.sample(n * count, seed=7, dtype=torch.float64)
    return x.view(count, n, -1), y.view(count, n, -1)


def mean_and_error(values):
    return values.mean().item(), (values.std() / len(values) ** 0.5).item()


def over_batches(estimator, task, n, count):
    """Mean value on so many batches of n samples, and its standard error."""
    value = vmap(lambda x, y: fixed_value(estimator, x, y), chunk_size=100)
    return mean_and_error(value(*batches(task, n, count)))


def normal(loc, scale):
    """Without a look at values, so that it takes many batches at once."""
    return Independent(Normal(loc, scale, validate_args=False), 1, validate_args=False)


def known(task):
    """The conditional of a `CorrelatedGaussian`."""
    rho = task.correlation
    return lambda x: normal(rho * x, math.sqrt(1 - rho**2))


# --- the table of closed forms: d = 20, exact conditional ----------------------------------------


@pytest.mark.parametrize(
    ("mi", "club"), [(2, 4.43), (4, 9.84), (6, 16.44), (8, 24.51), (10, 34.37)]
)
def test_club_with_the_exact_conditional(mi, club):
    task = gaussian(mi)
    x, y = task.sample(40_000, seed=1, dtype=torch.float64)
    assert task.club == pytest.approx(club, abs=0.006)
    for negatives in ("others", "all"):
        estimator = mb.CLUB(conditional=task.conditional, negatives=negatives)
        assert estimator(x, y).item() == pytest.approx(club, rel=0.02)
    assert mb.CLUBSample(conditional=task.conditional)(x, y).item() == pytest.approx(club, rel=0.03)


@pytest.mark.parametrize("mi", LEVELS)
def test_vub_with_the_exact_conditional_is_mi(mi):
    task = gaussian(mi)
    x, y = task.sample(40_000, seed=1, dtype=torch.float64)
    for form in ("sampled", "kl"):
        value = mb.VUB(conditional=task.conditional, form=form)(x, y)
        assert value.item() == pytest.approx(mi, rel=0.02)


@pytest.mark.parametrize(
    ("mi", "l1out"), [(2, 2.16), (4, 4.74), (6, 7.85), (8, 11.64), (10, 16.22)]
)
def test_leave_one_out_at_64_samples(mi, l1out):
    task = gaussian(mi)
    mean, error = over_batches(mb.L1Out(conditional=known(task)), task, 64, 600)
    assert error < 0.01 * l1out
    assert mean == pytest.approx(l1out, rel=0.03)


def test_the_published_leave_one_out_was_club_and_ours_is_not():
    """On random tensors at N = 64, d = 20 the masked sum of the authors' code equals CLUB."""
    mu, log_var, y = torch.randn(3, 64, DIM, dtype=torch.float64)
    s = naive.log_normal(y, mu, log_var.tanh().exp())
    p = Independent(Normal(mu, (0.5 * log_var.tanh()).exp()), 1)
    torch.testing.assert_close(mb.l1out(p, y), naive.l1out(s))
    assert (mb.club(p, y) - mb.l1out(p, y)).abs() > 1


def test_the_one_over_n_squared_form_is_too_small_by_its_factor():
    task = gaussian(4)
    x, y = task.sample(16, seed=1, dtype=torch.float64)
    p = task.conditional(x)
    torch.testing.assert_close(
        mb.club(p, y, negatives="all"), (1 - 1 / 16) * mb.club(p, y, negatives="others")
    )
    mean, error = over_batches(mb.CLUB(conditional=known(task)), task, 16, 4000)
    assert abs(mean - task.club) < 4 * error  # unbiased at any N


@pytest.mark.parametrize("n", [64, 1024])
@pytest.mark.parametrize("mi", [2, 10])
def test_infonce_with_the_exact_critic_stays_below_log_n(n, mi):
    task = gaussian(mi)
    estimator = mb.InfoNCE(critic=task.log_ratio)
    for x, y in zip(*batches(task, n, 2), strict=True):
        assert estimator(x, y) <= math.log(n)


@given(
    st.integers(2, 12),
    st.floats(-50, 50),
    st.floats(0, 100),
    st.integers(0, 2**31),
)
@settings(max_examples=200, deadline=None)
def test_infonce_never_exceeds_log_n_whatever_the_scores(n, shift, scale, seed):
    g = torch.Generator().manual_seed(seed)
    scores = shift + scale * torch.randn(n, n, generator=g, dtype=torch.float64)
    scores += scale * torch.eye(n, dtype=torch.float64)
    assert bounds.infonce(scores) <= math.log(n) + 1e-9


ONE_NAT = gaussian(1)


@pytest.fixture(scope="module")
def samples():
    """Batches, and the true log-ratio of all pairs of each."""
    x, y = batches(ONE_NAT, 128, 150)
    return x, y, ONE_NAT.log_ratio(x[:, :, None], y[:, None])


def values_of(name, samples):
    """On each batch, with the exact model first and then with worse ones."""
    cls = mb.ESTIMATORS[name]
    x, y, ratio = samples
    if not cls.has_conditional:
        estimator = cls(critic=ONE_NAT.log_ratio)
        value = vmap(lambda s, x, y: estimator.from_scores(Pairs.of(s), x, y))
        return [value(scores, x, y) for scores in (ratio, 1 + ratio, ratio / 2)]
    q, poor = known(ONE_NAT), known(CorrelatedGaussian(DIM, 0.1))
    standard, wide = (normal(torch.zeros(DIM), torch.full((DIM,), scale)) for scale in (1.0, 1.5))
    entropy = DIM / 2 * math.log(2 * math.pi * math.e)
    choices = {
        "ba": [{"entropy": entropy}, {"entropy": entropy, "conditional": poor}],
        "vub": [{"marginal": standard}, {"marginal": wide}],
        "doe": [{"marginal": mb.UnitGaussian(0, DIM).double()}],  # N(0, I) before it is fitted
    }
    estimators = [cls(**{"conditional": q, **options}) for options in choices.get(name, [{}])]
    return [vmap(lambda x, y, e=e: fixed_value(e, x, y))(x, y) for e in estimators]


@pytest.mark.parametrize("name", [n for n, c in mb.ESTIMATORS.items() if c.side != "neither"])
def test_every_bound_is_on_its_side_within_its_monte_carlo_error(name, samples):
    found = [mean_and_error(values) for values in values_of(name, samples)]
    side = mb.ESTIMATORS[name].side
    if side == "upper":
        assert all(mean > 1.0 - 4 * error for mean, error in found)
    if side == "lower":
        assert all(mean < 1.0 + 4 * error for mean, error in found)
        assert max(found)[0] > 0.9  # nearly tight with the best of critics


LOWER = [n for n, c in mb.ESTIMATORS.items() if c.side == "lower" and not c.has_conditional]


@pytest.mark.parametrize("name", ["vub", "ba", *LOWER])
def test_a_worse_model_makes_a_bound_looser(name, samples):
    exact, *_, worst = (values.mean() for values in values_of(name, samples))
    assert (worst - exact) * {"upper": 1, "lower": -1}[mb.ESTIMATORS[name].side] > 0.1


@pytest.mark.parametrize("name", ["doe", "smile"])
def test_on_neither_side_the_exact_model_comes_near_the_truth(name, samples):
    assert abs(values_of(name, samples)[0].mean() - 1.0) < 0.1


@pytest.mark.parametrize("alpha", [0.01, 0.3, 1.0])
def test_the_interpolated_bound_holds_at_a_small_batch_and_high_mi(alpha):
    """Where the shortcut with unequal numbers of x's in the two terms would not."""
    task = gaussian(3)
    mean, error = over_batches(mb.TUBA(critic=task.log_ratio, alpha=alpha), task, 8, 400)
    assert mean < 3.0 + 4 * error
    assert mean <= 1 + math.log(7 / alpha)


def test_exact_conditionals_of_many_tasks_give_upper_bounds():
    """Theorem 3.1 beyond the Gaussian pairs: any task whose conditional is known."""
    tried = 0
    for name, task in TASKS.items():
        x, y = task.sample(2000, seed=3, dtype=torch.float64)
        try:
            p = task.conditional(x)
        except NotImplementedError:
            continue
        if name.startswith(("gaussian-", "cubic-")) and not name.endswith("-2"):
            continue  # the same law at five levels
        tried += 1
        with warnings.catch_warnings():  # some conditionals have zeros, and the bound is infinite
            warnings.simplefilter("ignore", RuntimeWarning)
            value = mb.club(p, y)
        assert value > task.mutual_information - 0.1, name
    assert tried >= 8


def test_a_bijection_of_y_changes_no_bound_with_the_exact_conditional():
    """The Jacobian depends on y alone and cancels: CLUB and L1Out are invariant, like MI."""
    plain, cubic = TASKS["gaussian-4"], TASKS["cubic-4"]
    x, y = plain.sample(64, seed=2, dtype=torch.float64)
    x3, y3 = cubic.sample(64, seed=2, dtype=torch.float64)
    torch.testing.assert_close(x3, x)
    torch.testing.assert_close(mb.club(cubic.conditional(x3), y3), mb.club(plain.conditional(x), y))
    torch.testing.assert_close(
        mb.l1out(cubic.conditional(x3), y3), mb.l1out(plain.conditional(x), y)
    )


def test_a_known_conditional_of_x_given_y_is_the_same_with_the_arguments_swapped():
    task = JointGaussian.dense(x_dim=3, y_dim=2, correlation=0.6)
    x, y = task.sample(50_000, seed=1, dtype=torch.float64)
    s = torch.tensor(task.covariance, dtype=torch.float64)
    gain = s[:3, 3:] @ torch.linalg.inv(s[3:, 3:])
    rest = s[:3, :3] - gain @ s[3:, :3]

    def x_given_y(y):
        return MultivariateNormal(y @ gain.T, covariance_matrix=rest)

    for cls in (mb.CLUB, mb.CLUBSample):
        assert cls(conditional=x_given_y)(y, x) > task.mutual_information
    entropy = 0.5 * (3 * math.log(2 * math.pi * math.e) + torch.logdet(s[:3, :3]).item())
    value = mb.BA(conditional=x_given_y, entropy=entropy)(y, x)  # equation 2, as the paper has it
    assert value.item() == pytest.approx(task.mutual_information, abs=0.02)


# --- theorems with a known p and a chosen q ------------------------------------------------------

RHO = 0.8


class Chosen:
    """x and y standard normal with correlation RHO; q(y|x) = N(a x, s²), r(y) = N(0, t²)."""

    mi = -0.5 * math.log(1 - RHO**2)

    def __init__(self, a, s, t=1.0):
        self.a, self.s, self.t = a, s, t

    def q(self, x):
        return normal(self.a * x, self.s)

    @property
    def club(self):
        return self.a * RHO / self.s**2

    @property
    def kl_joint(self):
        """KL(p(x,y) || q(y|x) p(x)) = KL(p(y|x) || q(y|x))"""
        noise = 1 - RHO**2
        square = noise + (RHO - self.a) ** 2
        return 0.5 * (square / self.s**2 - 1 - math.log(noise / self.s**2))

    @property
    def kl_product(self):
        """KL(p(x) p(y) || q(y|x) p(x))"""
        return 0.5 * ((1 + self.a**2) / self.s**2 - 1 + 2 * math.log(self.s))

    @property
    def kl_marginal(self):
        """KL(p(y) || r(y))"""
        return 0.5 * (1 / self.t**2 - 1 + 2 * math.log(self.t))

    def sample(self, n, seed=5, dtype=torch.float64):
        return CorrelatedGaussian(1, RHO).sample(n, seed, dtype)


CHOICES = [(0.8, 0.6), (0.8, 1.0), (0.4, 0.7), (0.1, 1.2), (0.05, 1.0), (-0.3, 0.9), (1.5, 0.5)]


@pytest.mark.parametrize(("a", "s"), CHOICES)
def test_theorem_3_2_vclub_is_above_mi_just_when_q_is_nearer_to_the_joint(a, s):
    c = Chosen(a, s)
    value = mb.CLUB(conditional=c.q)(*c.sample(200_000)).item()
    assert value == pytest.approx(c.club, abs=0.02 * (1 + abs(c.club)))
    # the identity of the proof, and so the theorem in both directions
    assert c.club - c.mi == pytest.approx(c.kl_product - c.kl_joint)
    assert (c.club >= c.mi) == (c.kl_joint <= c.kl_product)


def test_theorem_3_1_equality_only_under_independence():
    independent = CorrelatedGaussian(3, 0.0)
    x, y = independent.sample(50_000, seed=1, dtype=torch.float64)
    assert abs(mb.club(independent.conditional(x), y).item()) < 1e-9
    assert Chosen(RHO, math.sqrt(1 - RHO**2)).club > Chosen.mi
    # under independence vCLUB is exact for any q, not only for the true conditional
    noise = torch.randn(200_000, 1, dtype=torch.float64)
    x = torch.randn(200_000, 1, dtype=torch.float64)
    assert abs(mb.CLUB(conditional=Chosen(0.9, 0.5).q)(x, noise).item()) < 0.05


def test_corollary_3_3_otherwise_the_error_is_below_the_misfit_of_q():
    tried = 0
    for a, s in itertools.product((-0.2, 0.0, 0.05, 0.1, 0.2), (0.8, 1.0, 1.3)):
        c = Chosen(a, s)
        if c.kl_joint > c.kl_product:
            tried += 1
            value = mb.CLUB(conditional=c.q)(*c.sample(100_000)).item()
            assert abs(value - c.mi) < c.kl_joint + 0.01
    assert tried >= 5


@pytest.mark.parametrize("t", [0.7, 1.0, 1.5])
@pytest.mark.parametrize(("a", "s"), CHOICES)
def test_theorem_c_1_on_vvub(a, s, t):
    c = Chosen(a, s, t)
    r = Independent(Normal(torch.zeros(1).double(), torch.full((1,), t).double()), 1)
    value = mb.VUB(conditional=c.q, marginal=r)(*c.sample(200_000)).item()
    # the identity of the proof: the gap is the misfit of r minus the misfit of q
    gap = c.kl_marginal - c.kl_joint
    assert value - c.mi == pytest.approx(gap, abs=0.02 * (1 + abs(gap)))
    if c.kl_joint <= c.kl_marginal:
        assert value >= c.mi - 0.02


@pytest.mark.parametrize(("a", "s"), CHOICES)
def test_theorem_c_2_on_vl1out(a, s):
    n, count = 5, 20_000
    c = Chosen(a, s)
    mean, error = over_batches(mb.L1Out(conditional=c.q), c, n, 500)
    # E KL(p(y) || mean of q over N - 1 independent x's), by fresh samples
    x = torch.randn(count, n - 1, 1, dtype=torch.float64)
    y = torch.randn(count, 1, dtype=torch.float64)
    log_q = Normal(c.a * x, c.s).log_prob(y[:, None]).sum(-1)
    log_p = Normal(0.0, 1.0).log_prob(y).sum(-1)
    kl = log_p - (log_q.logsumexp(1) - math.log(n - 1))
    misfit, misfit_error = kl.mean().item(), kl.std().item() / count**0.5
    tolerance = 5 * (error + misfit_error)
    assert mean - c.mi == pytest.approx(misfit - c.kl_joint, abs=tolerance)
    if c.kl_joint <= misfit:
        assert mean >= c.mi - tolerance


def test_sampled_club_is_unbiased_and_sampled_l1out_is_not():
    """Over *all* draws of one negative a sample, exactly: linear in log q, or not."""
    n = 4
    s = torch.randn(n, n, dtype=torch.float64) * 2
    draws = list(itertools.product(range(n), repeat=n))
    sampled = [bounds.club_sample(s.diagonal(), s[range(n), d][:, None]) for d in draws]
    torch.testing.assert_close(
        torch.stack(sampled).mean(), bounds.club(s.diagonal(), s.mean(1), "all")
    )
    others = [d for d in draws if all(d[i] != i for i in range(n))]
    sampled = [bounds.club_sample(s.diagonal(), s[range(n), d][:, None]) for d in others]
    torch.testing.assert_close(
        torch.stack(sampled).mean(), bounds.club(s.diagonal(), s.mean(1), "others")
    )
    l1out = [(s.diagonal() - s[d, range(n)]).mean() for d in others]
    assert torch.stack(l1out).mean() > bounds.l1out(s) + 0.1  # Jensen: the logarithm is concave


# --- zero probabilities --------------------------------------------------------------------------


def test_club_is_infinite_with_a_warning_where_a_pair_is_impossible():
    for task in (UniformNoise(0.1), DiscreteTable(((0.5, 0.0), (0.25, 0.25)))):
        x, y = task.sample(100, seed=0)
        for cls in (mb.CLUB, mb.CLUBSample):
            with pytest.warns(RuntimeWarning, match=r"is \+inf: the conditional gives some y_j"):
                value = cls(conditional=task.conditional)(x, y)
            assert value.item() == math.inf
        assert mb.L1Out(conditional=task.conditional)(x, y).isfinite()


def test_a_table_without_reachable_zeros_is_finite():
    task = DiscreteTable(((0.5, 0.0, 0.1), (0.2, 0.0, 0.2)))  # class 1 never occurs: 0 log 0
    x, y = task.sample(1000, seed=0)
    value = mb.CLUB(conditional=task.conditional)(x, y)
    assert value.isfinite()
    assert value > task.mutual_information - 0.05
