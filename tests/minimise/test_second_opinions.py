"""Second opinions: below the truth, not fooled, and asked for often at first."""

import math

import pytest
import torch

from mibounds.minimise import second_opinions as module
from mibounds.minimise.second_opinions import FEWEST, HELD_OUT, WIDEST, SecondOpinions, ask

N, MANY = 1600, 4096
HELD = round(HELD_OUT * N)


def gaussians(rho, seed=0, n=N):
    """x of three columns and y of two, with two correlations."""
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 3, generator=g)
    return x, rho * x[:, :2] + math.sqrt(1 - rho**2) * torch.randn(n, 2, generator=g)


# --- what is certified ---------------------------------------------------------------------------


@pytest.mark.parametrize("rho", [0.4, 0.7, 0.97])
def test_of_gaussians_it_certifies_most_and_no_more_than_there_is(rho):
    truth = -math.log(1 - rho**2)
    opinion = ask(*gaussians(rho, n=MANY))
    assert 0.5 * truth < opinion.nats < truth
    assert opinion.rows == round(HELD_OUT * MANY)


def test_where_nothing_is_left_it_certifies_nothing():
    assert [ask(*gaussians(0, seed)).nats for seed in range(3)] == [0, 0, 0]


def test_a_dependence_without_correlation():
    x, noise = gaussians(0, n=MANY)
    y = torch.stack([x[:, 0] * x[:, 1], noise[:, 1]], 1) + 0.2 * noise
    assert torch.corrcoef(torch.cat([x, y], 1).T)[:3, 3:].abs().max() < 0.05
    given = -0.5 * ((y[:, :1] - x[:, 0] * x[:, 1]) / 0.2) ** 2  # log p(y_i | x_j), for all j
    truth = (given.diagonal() - given.logsumexp(1) + math.log(MANY)).mean()
    assert 0.6 * truth < ask(x, y).nats < truth


def test_small_differences_of_columns():
    """Two columns that are nearly equal: what they know is in the difference."""
    common, s = gaussians(0)
    x = common[:, :1] + torch.cat([0 * s[:, :1], 1e-2 * s[:, :1]], 1)
    assert ask(x, s).nats > 1


def test_correlations_among_many_columns():
    """So many that a classifier learns its rows by heart."""
    g = torch.Generator().manual_seed(0)
    x, y = torch.randn(N, 60, generator=g), torch.randn(N, 40, generator=g)
    y[:, :3] = 0.8 * x[:, :3] + 0.6 * y[:, :3]
    truth = -3 / 2 * math.log(1 - 0.8**2)
    turned = x @ torch.linalg.qr(torch.randn(60, 60, generator=g))[0]
    assert 0.6 * truth < ask(turned, y).nats < truth
    assert ask(turned, y.roll(1, 0)).nats == 0


def moving(rows, columns, nats, batch=128, seed=0):
    """Batches whose y tells of x along other columns each time: models learn the mean, nothing."""
    g = torch.Generator().manual_seed(seed)
    x, y = torch.randn(rows, 4, generator=g), torch.randn(rows, columns, generator=g)
    size = (2 * nats / 4 / columns) ** 0.5
    for own in torch.arange(rows).split(batch):
        y[own] += x[own] @ (size * torch.randn(4, columns, generator=g))
    return x, y


def test_kernels_see_what_moves_too_much_to_be_learnt():
    x, y = moving(8192, 128, 0.4)
    found = ask(x, y)
    assert found.nats < 0.02
    assert 0.1 < found.kernels < 0.4
    independent = ask(x, y[torch.randperm(8192, generator=torch.Generator().manual_seed(1))])
    assert independent.kernels < 0.02
    assert ask(x[:896], y[:896]).kernels == 0  # too few parts for an error


def test_kernels_count_the_one_x_of_a_sequence_once():
    """Frames of a sequence are alike, whatever its x is: they are no independent samples."""
    g = torch.Generator().manual_seed(0)
    x, content = torch.randn(512, 2, generator=g), torch.randn(512, 3, generator=g)
    x = x.repeat_interleave(32, 0)
    y = content.repeat_interleave(32, 0) + 0.1 * torch.randn(len(x), 3, generator=g)
    assert ask(x, y).kernels == 0  # 512 sequences, too few


def test_labels():
    g = torch.Generator().manual_seed(0)
    labels = torch.randint(3, (N,), generator=g)
    x = torch.randn(N, 3, generator=g)
    x[:, 0] += 3 * (labels == 1)
    truth = math.log(3) - 2 / 3 * math.log(2)  # of whether it is the second
    two = torch.stack([labels // 2, labels % 2], 1)
    for y in (labels, 7 * labels[:, None] - 5, two):  # any integers, in any columns
        assert 0.6 * truth < ask(x, y).nats < truth
    assert ask(x, labels[torch.randperm(N, generator=g)]).nats == 0


@pytest.mark.parametrize("third", [False, True])
def test_labels_in_many_columns(third):
    """So many that a classifier learns its rows by heart; a third variable shifts all of them."""
    g = torch.Generator().manual_seed(0)
    labels, given = (torch.randint(3, (MANY,), generator=g) for _ in range(2))
    x = torch.randn(MANY, 128, generator=g)
    x[:, 0] += 2 * (labels == 1)
    if third:
        x = x + 3 * given[:, None]
    options = (given,) if third else ()
    assert 0.15 < ask(x, labels, *options).nats < math.log(3) - 2 / 3 * math.log(2)
    assert ask(x, labels[torch.randperm(MANY, generator=g)], *options).nats == 0


def test_given_labels_only_what_they_do_not_explain_counts():
    g = torch.Generator().manual_seed(0)
    third = torch.randint(3, (N,), generator=g)
    x, y = (third[:, None] + 0.5 * torch.randn(N, d, generator=g) for d in (3, 2))
    assert ask(x, y).nats > 0.4
    assert ask(x, y, third).nats == 0
    assert ask(x, y + x[:, :2], 10 * third[:, None]).nats > 0.15
    labels = (y[:, 0] > 1).long()
    assert ask(x, labels).nats > 0.1
    assert ask(x, labels, third).nats == 0


# --- samples as they are -------------------------------------------------------------------------


def test_constant_and_repeated_columns_do_not_matter():
    x, y = gaussians(0.7)
    more = torch.cat([torch.full((N, 1), 7.0), x, x[:, :1], 1e6 + x[:, 1:2]], 1)
    assert ask(more, y).nats == pytest.approx(ask(x, y).nats, abs=0.1)
    for constant in (torch.zeros(N, 2), torch.full((N, 2), 1e6)):
        assert ask(constant, y).nats == 0
        assert ask(x, constant).nats == 0
    assert ask(x, torch.full((N,), 3)).nats == 0  # one label


def test_one_outlier_does_not_decide():
    x, y = gaussians(0)
    x[700], y[700] = 1e4, 1e4  # among the rows to learn from
    x[10], y[10] = 1e4, 1e4  # among those held out
    assert ask(x, y).nats < 0.02


def test_rows_that_are_not_finite_are_left_out():
    x, y = gaussians(0.7)
    x[::10, 1] = math.nan
    y[5::10, 0] = math.inf
    opinion = ask(x, y)
    assert opinion.rows == 0.8 * HELD
    assert 0.2 < opinion.nats < -math.log(1 - 0.7**2)


@pytest.mark.parametrize("seed", range(2))
def test_a_full_batch_over_and_over_does_not_fool_it(seed):
    """Every call has the same rows: those held out are so in every call."""
    x, y = (v.repeat(16, 1) for v in gaussians(0, seed, n=100))
    place = torch.linspace(0, 1, 100).repeat(16)
    assert ask(x, y).nats > 0.1  # half of what is there is learnt by heart
    opinion = ask(x, y, place=place)
    assert opinion.nats == 0
    assert opinion.rows == HELD


def test_the_same_opinion_twice_and_no_random_number_of_the_users():
    before = torch.random.get_rng_state()
    a, b = (ask(*gaussians(0.5)) for _ in range(2))
    assert a == b
    assert torch.equal(torch.random.get_rng_state(), before)
    assert ask(*gaussians(0.5), seed=1) != a


def test_within_no_grad_and_autocast_and_of_samples_with_a_gradient():
    x, y = gaussians(0.7)
    plain = ask(x, y)
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        assert ask(x.requires_grad_(), y) == plain
    assert x.grad is None
    assert ask(x.double(), y[:, None]).nats == pytest.approx(plain.nats, abs=1e-3)


@pytest.mark.parametrize("why", ["few", "labels for x", "real given", "wide", "bad"])
def test_where_there_is_no_opinion(why):
    x, y = gaussians(0.5)
    given = None
    if why == "few":
        n = round(FEWEST / HELD_OUT) - 4
        x, y = x[:n], y[:n]
    elif why == "labels for x":
        x = torch.arange(N) % 3
    elif why == "real given":
        given = y[:, :1]
    elif why == "wide":
        x = torch.zeros(N, WIDEST - 1)
    else:
        y = y.clone()
        y[HELD + FEWEST - 1 :, 1] = math.nan
    assert ask(x, y, given) is None


def test_the_bound_is_less_two_standard_errors():
    g = torch.Generator().manual_seed(0)
    own, others = (torch.randn(s, generator=g).double() for s in ((400,), (8, 400)))
    weights = others.exp()
    means = weights.mean(0)
    error = (own.var() / 400 + means.var() / (weights.mean() ** 2 * 400)).sqrt()
    want = own.mean() - weights.mean().log() - 2 * error
    assert module._bound(own, others, torch.arange(400)) == pytest.approx(want.item())
    far = torch.full((400,), 50.0)
    one_by_one = torch.arange(400)
    assert module._bound(far, torch.zeros(8, 400), one_by_one) == module.CLIP  # and f is clipped


def test_rows_that_repeat_count_once():
    g = torch.Generator().manual_seed(0)
    values, once = torch.randn(50, generator=g).double(), torch.arange(50)
    again = module._variance(values.repeat(16), once.repeat(16))
    assert again == pytest.approx(module._variance(values, once).item())
    assert module._variance(values.repeat(16), torch.arange(800)) < again / 10


# --- when ----------------------------------------------------------------------------------------


def test_it_is_asked_often_at_first_and_then_seldom():
    opinions = SecondOpinions(every=10)
    due = [calls // 10 for calls in range(0, 970, 10) if opinions.is_due(calls)]
    assert due == [1, 2, 4, 8, 16, 32, 48, 64, 80, 96]
    assert not SecondOpinions(every=0).is_due(0)
    assert not SecondOpinions(every=0).is_due(64)


@pytest.fixture
def asked(monkeypatch):
    """What `ask` is asked, in place of an answer."""
    calls = []

    def ask(*sides):
        calls.append(sides)
        return module.SecondOpinion(float(len(calls)), 50)

    monkeypatch.setattr(module, "ask", ask)
    return calls


def test_the_last_rows_are_kept_with_their_place(asked):
    opinions = SecondOpinions(every=10)
    opinions.refresh(calls=10)
    assert opinions.last is None  # of nothing
    labels = torch.arange(60) % 3
    for seed in range(2):
        opinions.keep(*gaussians(0, seed, n=60), labels)
    opinions.refresh(calls=10)
    x, y, given, place, recent = asked[0]
    assert recent.all()
    assert x.shape == (120, 3)
    assert torch.equal(y[60:], gaussians(0, 1, n=60)[1])
    assert torch.equal(given, labels.repeat(2))
    assert given.dtype == labels.dtype
    assert torch.equal(place, torch.linspace(0, 1, 60).repeat(2))


def test_only_the_newest_rows_judge(monkeypatch):
    """Most of the rows to learn from show a dependence, and the newest ones do not."""
    monkeypatch.setattr(module, "JUDGED", 400)
    opinions = SecondOpinions(every=10)
    for seed in range(4):
        opinions.keep(*gaussians(0.8 * (seed < 3), seed, n=400))
    opinions.refresh(calls=10)
    assert opinions.last.nats == 0
    assert opinions.last.rows == 100
    assert ask(*gaussians(0.8, 1, n=400)).nats > 0.2


@pytest.mark.parametrize(("name", "most"), [("ROWS", 60), ("BATCHES", 3), ("NUMBERS", 5 * 60)])
def test_no_more_rows_are_kept_than(name, most, asked, monkeypatch):
    monkeypatch.setattr(module, name, most)
    opinions = SecondOpinions(every=10)
    for seed in range(5):
        opinions.keep(*gaussians(0, seed, n=20))
    opinions.refresh(calls=10)
    assert len(asked[0][0]) == 60


def test_an_opinion_that_is_young_is_not_asked_for_again(asked):
    opinions = SecondOpinions(every=10)
    opinions.keep(*gaussians(0))
    for calls, count in ((5, 0), (10, 1), (11, 1), (19, 1), (20, 2), (20, 2), (100, 3)):
        opinions.refresh(calls)
        assert len(asked) == count
        assert (opinions.last.nats if count else 0) == count
    assert opinions.asked == 100


def test_what_there_can_be_no_opinion_on_is_not_kept():
    x, y = gaussians(0, n=8)
    for every, sides in (
        (0, (x, y)),
        (10, (torch.arange(8), y)),
        (10, (x, y[:4])),
        (10, (torch.zeros(8, WIDEST - 1), y)),
    ):
        opinions = SecondOpinions(every)
        opinions.keep(*sides)
        opinions.refresh(calls=100)
        assert opinions.memory.sides == ()
        assert opinions.last is None
    opinions = SecondOpinions(10)
    opinions.keep(torch.zeros(8, WIDEST - 2), y)
    assert len(opinions.memory.sides[0]) == min(8 * module.BATCHES, module.NUMBERS // WIDEST)
