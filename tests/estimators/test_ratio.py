"""The classifier's log-ratio: against known ratios, on spread samples, and what it refuses."""

import copy
import math

import pytest
import torch

import mibounds as mb
from mibounds.estimators import ratio as module
from mibounds.estimators.ratio import MOMENTUM, NEIGHBOURS, RARE, exchange

RHO = 0.8


def gaussians(n, seed, dtype=torch.float32):
    """x of three columns and y of two, pairwise correlated."""
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 3, generator=g, dtype=dtype)
    noise = torch.randn(n, 2, generator=g, dtype=dtype)
    return x, RHO * x[:, :2] + math.sqrt(1 - RHO**2) * noise


def log_ratio_of_gaussians(x, y, rho=RHO):
    x, rest = x[:, :2], 1 - rho**2
    square = (rho**2 * (x**2 + y**2) - 2 * rho * x * y) / rest
    return -0.5 * (math.log(rest) + square).sum(1)


def clusters(n, seed):
    """Labels 0, 1, 2, the last rare, and x around a centre for each."""
    g = torch.Generator().manual_seed(seed)
    y = torch.multinomial(torch.tensor([0.5, 0.4, 0.1]), n, replacement=True, generator=g)
    centres = torch.tensor([[0.0, 0.0, 0.0], [1.5, 0.0, 0.0], [0.0, 2.0, 0.0]])
    return centres[y] + torch.randn(n, 3, generator=g), y


def log_ratio_of_clusters(x, y):
    centres = torch.tensor([[0.0, 0.0, 0.0], [1.5, 0.0, 0.0], [0.0, 2.0, 0.0]])
    scores = -0.5 * torch.cdist(x, centres) ** 2
    weighted = scores + torch.tensor([0.5, 0.4, 0.1]).log()
    return scores.gather(1, y[:, None])[:, 0] - weighted.logsumexp(1)


def with_third(n, seed, real):
    """x and y that share only a third variable."""
    g = torch.Generator().manual_seed(seed)
    third = torch.randn(n, 1, generator=g) if real else torch.randint(3, (n,), generator=g)
    shift = 2 * third.view(n, 1).float()
    x, y = (shift + torch.randn(n, d, generator=g) for d in (3, 2))
    return x, y, third


def fit(ratio, draw, steps=120, n=256, rate=1e-2):
    optimizer = torch.optim.Adam(ratio.parameters(), lr=rate)
    rates = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    generator = torch.Generator().manual_seed(1)
    for step in range(steps):
        optimizer.zero_grad()
        ratio.learning_loss(*draw(n, step), generator=generator).backward()
        optimizer.step()
        rates.step()
    return ratio.eval()


def own_log_ratios(ratio, *sides):
    with torch.no_grad():
        return ratio.log_ratios(*ratio.standardise(*ratio.check(*sides)))


def correlation(a, b):
    return torch.corrcoef(torch.stack([a, b]))[0, 1]


# --- known ratios --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def fitted():
    torch.manual_seed(0)
    return fit(mb.Ratio(3, 2, (32, 32)), gaussians, steps=250)


def test_real_samples(fitted):
    x, y = gaussians(4000, 1000)
    got, want = own_log_ratios(fitted, x, y, None), log_ratio_of_gaussians(x, y)
    assert correlation(got, want) > 0.9
    assert fitted(x, y).item() == pytest.approx(want.mean().item(), abs=0.15)
    torch.testing.assert_close(fitted(x, y), got.mean())
    apart = own_log_ratios(fitted, x, y.roll(1, 0), None)
    assert correlation(apart, log_ratio_of_gaussians(x, y.roll(1, 0))) > 0.8
    assert apart.mean() < -0.5


def test_the_ratio_of_spread_samples_is_another_one(fitted):
    x, y = gaussians(4000, 1000)
    sigma = 0.5
    spread = x + sigma * torch.randn(x.shape, generator=torch.Generator().manual_seed(1))
    sides = fitted.standardise(*fitted.check(spread, y, None))
    size = torch.full((4000, 1), 1 - 2 * math.log(sigma) / math.log(fitted.spread))
    told, untold = fitted.log_ratios(*sides, size=size), fitted.log_ratios(*sides)
    scale = math.sqrt(1 + sigma**2)
    want = log_ratio_of_gaussians(spread / scale, y, RHO / scale)
    assert told.mean().item() == pytest.approx(want.mean().item(), abs=0.15)
    assert correlation(told, want) > 0.95
    assert untold.mean() < told.mean() - 0.1  # it is too sure of samples that are not spread


def test_labels():
    ratio = fit(mb.Ratio(3, labels=3, hidden=(32,)), clusters)
    x, y = clusters(4000, 1000)
    got, want = own_log_ratios(ratio, x, y, None), log_ratio_of_clusters(x, y)
    assert correlation(got, want) > 0.9
    assert ratio(x, y).item() == pytest.approx(want.mean().item(), abs=0.1)
    torch.testing.assert_close(ratio(x, y[:, None]), ratio(x, y))  # a column of labels
    assert ratio(x, y.roll(1, 0)) < 0


def test_several_labels_are_one():
    def draw(n, seed):
        x, y = clusters(n, seed)
        return x, torch.stack([(y == 2).long(), y], 1)

    several = fit(mb.Ratio(3, labels=(2, 3), hidden=(32,)), draw)
    assert several.labels == 6
    x, y = draw(4000, 1000)
    want = log_ratio_of_clusters(*clusters(4000, 1000)).mean()
    assert several(x, y).item() == pytest.approx(want.item(), abs=0.1)
    joint = several.check(x, y, None)[1]
    assert torch.equal(joint, 3 * y[:, 0] + y[:, 1])
    never = several.frequencies[0, [2, 3, 4]]  # by the second label we know the first
    torch.testing.assert_close(never, torch.full((3,), RARE))


@pytest.mark.parametrize("real", [False, True])
def test_what_the_third_variable_explains_does_not_count(real):
    def draw(n, seed):
        return with_third(n, seed, real)

    def without(n, seed):
        return with_third(n, seed, real)[:2]

    options = {"given_dim": 1} if real else {"given_labels": 3}
    given = fit(mb.Ratio(3, 2, (32,), **options), draw, steps=80)
    x, y, third = draw(2000, 1000)
    assert given(x, y, third).abs() < 0.12
    assert fit(mb.Ratio(3, 2, (32,)), without, steps=80)(x, y) > 0.4


NOT_FITTED = pytest.mark.xfail(strict=True, reason="the gradients of the baseline cancel")


@pytest.mark.parametrize("real", [False, pytest.param(True, marks=NOT_FITTED)])
def test_a_label_that_the_third_variable_explains_does_not_count(real):
    def draw(n, seed):
        x, y, third = with_third(n, seed, real)
        return x, (y[:, 0] > 1).long(), third

    options = {"given_dim": 1} if real else {"given_labels": 3}
    given = fit(mb.Ratio(3, labels=2, hidden=(32,), **options), draw, steps=80)
    x, y, third = draw(2000, 1000)
    assert given(x, y, third).abs() < 0.06
    plain = fit(mb.Ratio(3, labels=2, hidden=(32,)), lambda *a: draw(*a)[:2], steps=80)
    assert plain(x, y) > 0.15
    # What it does not explain does.
    shared = fit(
        mb.Ratio(3, labels=2, hidden=(32,), **options),
        lambda *a: (draw(*a)[0], (draw(*a)[0][:, 0] > 1).long(), draw(*a)[2]),
        steps=80,
    )
    assert shared(x, (x[:, 0] > 1).long(), third) > 0.15


# --- the loss that it is fitted by ---------------------------------------------------------------


def test_the_loss_is_that_of_a_classifier(monkeypatch):
    monkeypatch.setattr(module, "exchange", lambda y, given, generator: y.roll(1, 0))
    ratio = mb.Ratio(3, 2, 8, spread=None)
    x, y = gaussians(20, 0)
    assert ratio.learning_loss(x, y).item() == pytest.approx(2 * math.log(2))  # it knows nothing
    with torch.no_grad():
        ratio.classifier.offset.add_(0.3)
        ratio.classifier.layers[-1].weight.normal_()
    ratio.eval()
    own = own_log_ratios(ratio, x, y, None).sigmoid()
    apart = own_log_ratios(ratio, x, y.roll(1, 0), None).sigmoid()
    want = -(own.log() + (1 - apart).log()).mean()
    torch.testing.assert_close(ratio.learning_loss(x, y), want)


@pytest.mark.parametrize("side", [0, 1])
def test_what_is_spread_keeps_the_size_of_its_noise(side, monkeypatch):
    monkeypatch.setattr(module, "exchange", lambda v, given, generator: v.roll(1, 0))
    ratio = mb.Ratio(3, 2, 8)
    ratio.noisy = side
    with torch.no_grad():
        ratio.classifier.layers[-1].weight.normal_()
    x, y, size = ratio.blur(*gaussians(20, 0))
    others = (x.roll(1, 0), y) if side else (x, y.roll(1, 0))
    own, apart = ratio.log_ratios(x, y, size=size), ratio.log_ratios(*others, size=size)
    want = -(own.sigmoid().log() + (1 - apart.sigmoid()).log())
    torch.testing.assert_close(ratio.losses(x, y, size), want)


def test_the_loss_of_labels_is_their_log_likelihood():
    ratio = mb.Ratio(3, labels=3, hidden=8, spread=None)
    x, y = clusters(40, 0)
    with torch.no_grad():
        ratio.classifier.layers[-1].weight.normal_()
    value = ratio.learning_loss(x, y)
    scores = ratio.classifier(ratio.standards[0](x)).log_softmax(1)
    counts = torch.bincount(y, minlength=3) / 40
    torch.testing.assert_close(ratio.frequencies[0], counts.clamp_min(RARE))
    torch.testing.assert_close(value, (counts[y].log() - scores.gather(1, y[:, None])[:, 0]).mean())


def test_what_an_encoder_descends_is_least_where_x_tells_nothing():
    ratio = fit(mb.Ratio(3, labels=3, hidden=(16,)), clusters, steps=40)
    x, y = clusters(50, 1000)
    sides = ratio.standardise(*ratio.check(x, y, None))
    q = ratio.of_labels(sides[0]) + ratio.frequencies[0].log()
    torch.testing.assert_close(q.exp().sum(1), torch.ones(50))
    want = torch.distributions.kl_divergence(
        torch.distributions.Categorical(logits=q),
        torch.distributions.Categorical(ratio.frequencies[0].expand(50, 3)),
    )
    torch.testing.assert_close(ratio.descent(*sides), want, rtol=1e-3, atol=1e-4)
    assert (want > 0).all()
    real = mb.Ratio(3, 2, 8)
    x, y = gaussians(20, 0)
    assert torch.equal(real.descent(x, y), real.log_ratios(x, y))


def test_what_it_is_worth_on_new_samples(fitted, monkeypatch):
    """The bound of Donsker and Varadhan, and four times what the loss is below 2 log 2."""
    monkeypatch.setattr(module, "exchange", lambda y, given, generator: y.roll(1, 0))
    x, y = gaussians(2000, 1000)
    sides = fitted.standardise(*fitted.check(x, y, None))[:2]
    own, apart = (fitted.log_ratios(sides[0], v) for v in (sides[1], sides[1].roll(1, 0)))
    bound, known = fitted.judge(own, *sides, None)
    torch.testing.assert_close(bound, own.mean() - apart.exp().mean().log())
    entropies = own.sigmoid().log().mean() + (1 - apart.sigmoid()).log().mean()
    torch.testing.assert_close(known, 4 * (2 * math.log(2) + entropies))
    truth = log_ratio_of_gaussians(x, y).mean()
    assert truth - 0.3 < bound < truth + 0.1
    assert 0 < known < 8 * math.log(2)
    labels = mb.Ratio(3, labels=3, hidden=8)
    own = labels.log_ratios(*clusters(20, 0))
    assert [v.item() for v in labels.judge(own, *clusters(20, 0), None)] == 2 * [own.mean().item()]


def test_the_value_depends_on_the_given_pairs_only(fitted):
    """The gradient of a row is that of its own log-ratio, whatever the other rows are."""
    x, y = gaussians(30, 0)
    other = torch.cat([x[:1], x[1:].flip(1)]), torch.cat([y[:1], y[1:].flip(1)])
    gradients = []
    for pair in ((x, y), other, (x[:2], y[:2])):
        pair = [v.clone().requires_grad_() for v in pair]
        found = torch.autograd.grad(fitted(*pair) * len(pair[0]), pair)
        gradients.append([g[0] for g in found])
    for each in gradients[1:]:
        torch.testing.assert_close(each, gradients[0])
    assert all(g.abs().sum() > 0 for g in gradients[0])


# --- statistics ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["real", "labels", "given"])
def test_a_value_changes_no_state(kind):
    sides = {"real": gaussians, "labels": clusters, "given": lambda *a: with_third(*a, False)}[kind]
    options = {
        "real": {"y_dim": 2}, "labels": {"labels": 3}, "given": {"y_dim": 2, "given_labels": 3}
    }[kind]  # fmt: skip
    ratio = mb.Ratio(3, hidden=8, **options)
    state = copy.deepcopy(ratio.state_dict())
    before = torch.random.get_rng_state()
    ratio(*sides(40, 0))
    assert torch.equal(torch.random.get_rng_state(), before)
    assert str(ratio.state_dict()) == str(state)
    ratio.eval()
    ratio.learning_loss(*sides(40, 0))
    assert str(ratio.state_dict()) == str(state)
    held = dict(ratio.named_buffers())
    copies = {name: v.clone() for name, v in held.items()}
    ratio.train()
    ratio.learning_loss(*sides(40, 0))
    assert str(ratio.state_dict()) != str(state)
    assert all(torch.equal(held[name], copies[name]) for name in held)  # replaced, not altered


def test_the_scale_of_a_column_does_not_matter():
    x, y = gaussians(256, 0)
    values = []
    for shift, factor in ((0.0, 1.0), (100.0, 1e3)):
        torch.manual_seed(0)
        ratio = mb.Ratio(3, 2, 8, spread=None)
        stretched = shift + factor * x
        fit(ratio, lambda n, seed, x=stretched: (x, y), steps=40, rate=0.03)
        values.append(ratio(stretched, y).item())
    assert values[0] > 0.1
    assert values[1] == pytest.approx(values[0], rel=0.05)


def test_frequencies_follow_the_labels_of_each_group():
    ratio = mb.Ratio(3, labels=2, hidden=4, given_labels=3)
    x = torch.zeros(4, 3)
    torch.testing.assert_close(ratio.frequencies, torch.full((3, 2), 0.5))
    ratio.observe(x, torch.tensor([0, 0, 0, 1]), torch.tensor([0, 0, 1, 1]))
    first = torch.tensor([[1.0, RARE], [0.5, 0.5], [0.5, 0.5]])  # nobody is of the last group
    torch.testing.assert_close(ratio.frequencies, first)
    ratio.observe(x, torch.tensor([1, 1, 1, 1]), torch.tensor([0, 0, 0, 0]))
    torch.testing.assert_close(ratio.frequencies[0], torch.tensor([0.5, (1 + RARE) / 2]))
    torch.testing.assert_close(ratio.frequencies[1:], first[1:])
    ratio.batches = torch.tensor(10 / MOMENTUM)
    ratio.observe(x, torch.tensor([0, 0, 0, 0]), torch.tensor([0, 0, 0, 0]))
    assert ratio.frequencies[0, 0].item() == pytest.approx(0.5 + 0.5 * MOMENTUM)


# --- spread samples ------------------------------------------------------------------------------


@pytest.mark.parametrize("side", [0, 1])
def test_samples_are_spread_by_the_size_that_is_told(side):
    ratio = mb.Ratio(3, 2, 8, spread=0.02)
    ratio.noisy = side
    pair = gaussians(5000, 0)
    *spread, size = ratio.blur(*pair, torch.Generator().manual_seed(0))
    assert torch.equal(spread[1 - side], pair[1 - side])
    assert -1 <= size.min() < -0.99
    assert 0.99 < size.max() <= 1
    assert size.mean().abs() < 0.05  # log-uniform
    sigma = ((1 - size) / 2 * math.log(0.02)).exp()
    assert sigma.min().item() == pytest.approx(0.02, rel=0.05)
    standard = (spread[side] - pair[side]) / sigma
    assert standard.std().item() == pytest.approx(1, abs=0.03)
    for part in standard.split(1000):
        assert part.std().item() == pytest.approx(1, abs=0.06)
    again = ratio.blur(*pair, torch.Generator().manual_seed(0))
    assert torch.equal(again[side], spread[side])


def test_left_out_the_size_is_the_least(fitted):
    x, y = gaussians(10, 0)
    least = torch.full((10, 1), -1.0)
    assert torch.equal(fitted.log_ratios(x, y), fitted.log_ratios(x, y, size=least))
    assert not torch.allclose(fitted.log_ratios(x, y), fitted.log_ratios(x, y, size=-least))


def test_without_a_spread_samples_stay_as_they_are():
    ratio = mb.Ratio(3, 2, 8, spread=None)
    x, y = gaussians(10, 0)
    same_x, same_y, size = ratio.blur(x, y)
    assert same_x is x
    assert same_y is y
    assert size is None
    told = mb.Ratio(3, 2, 8)
    inputs = [r.classifier.layers[0].in_features for r in (ratio, told)]
    assert inputs == [5, 6]


# --- exchanges -----------------------------------------------------------------------------------


def test_an_exchange_is_a_random_permutation_that_leaves_no_sample_its_own():
    y = torch.arange(7)
    seen = torch.zeros(7, 7)
    for seed in range(300):
        other = exchange(y, generator=torch.Generator().manual_seed(seed))
        assert torch.equal(other.sort().values, y)
        seen[y, other] += 1
    assert (seen.diagonal() == 0).all()
    assert seen[~torch.eye(7, dtype=torch.bool)].min() > 20  # of 50
    a, b = (exchange(y, generator=torch.Generator().manual_seed(4)) for _ in range(2))
    assert torch.equal(a, b)


def test_an_exchange_within_a_label():
    given = torch.tensor([2, 0, 2, 1, 0, 2, 0, 0])
    y = torch.arange(8.0)[:, None].expand(8, 2)
    seen = torch.zeros(8, 8)
    for seed in range(200):
        other = exchange(y, given, torch.Generator().manual_seed(seed))
        assert other.shape == y.shape
        seen[torch.arange(8), other[:, 0].long()] += 1
    same = given[:, None] == given
    own = torch.eye(8, dtype=torch.bool)
    assert (seen[~same] == 0).all()
    assert seen[3, 3] == 200  # alone in its group
    assert (seen.diagonal()[given != 1] == 0).all()
    assert (seen[same & ~own] > 30).all()


@pytest.mark.parametrize("n", [60, 5])
def test_an_exchange_among_the_nearest(n):
    g = torch.Generator().manual_seed(0)
    given = torch.randn(n, 2, generator=g)
    given[1] = given[0]  # two in one place
    near = (
        torch.cdist(given, given).fill_diagonal_(math.inf).argsort(1)[:, : min(NEIGHBOURS, n - 1)]
    )
    seen = torch.zeros(n, n)
    for seed in range(150):
        other = exchange(torch.arange(n), given, torch.Generator().manual_seed(seed))
        seen[torch.arange(n), other] += 1
    assert (seen.diagonal() == 0).all()
    allowed = torch.zeros(n, n).scatter_(1, near, 1.0).bool()
    assert (seen[~allowed] == 0).all()
    assert (seen[allowed] > 0).all()


# --- precision, and what is refused --------------------------------------------------------------


def test_double_precision():
    ratio = mb.Ratio(3, 2, (8, 8)).double()
    x, y = gaussians(6, 0, torch.float64)
    with torch.no_grad():
        ratio.classifier.layers[-1].weight.normal_()
    assert ratio.learning_loss(x, y).dtype == torch.float64
    assert ratio(x.float(), y).dtype == torch.float64  # the narrower side is widened
    assert torch.autograd.gradcheck(ratio, (x.requires_grad_(), y.requires_grad_()))


def test_under_autocast_the_value_is_finite_and_near():
    ratio = fit(mb.Ratio(3, 2, 16), gaussians, steps=20)
    x, y = gaussians(200, 1)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        half = ratio(x, y)
    assert half.dtype == torch.float32
    assert half.item() == pytest.approx(ratio(x, y).item(), abs=0.02)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"x_dim": 0, "y_dim": 2}, "Expected x_dim to be an integer >= 1 but got 0"),
        ({"x_dim": 3, "y_dim": 0}, "Expected y_dim to be an integer >= 1 but got 0"),
        ({"x_dim": 3}, "either y_dim or labels but got y_dim=None and labels=None"),
        (
            {"x_dim": 3, "y_dim": 2, "labels": 2},
            r"got y_dim=2 and labels=2; pass y_dim=s.shape\[1\]",
        ),
        ({"x_dim": 3, "labels": 1}, "Expected labels to be an integer >= 2 but got 1"),
        ({"x_dim": 3, "labels": (4, 1)}, "Expected labels to be an integer >= 2 but got 1"),
        ({"x_dim": 3, "y_dim": 2, "given_dim": -1}, "Expected given_dim to be an integer >= 0"),
        ({"x_dim": 3, "y_dim": 2, "given_labels": 1.5}, "Expected given_labels to be an integer"),
        (
            {"x_dim": 3, "y_dim": 2, "given_dim": 1, "given_labels": 2},
            "one of given_dim and given_labels but got 1 and 2; pass a label among real columns",
        ),
        ({"x_dim": 3, "y_dim": 2, "spread": 0.0}, r"spread in \(0, 1\), or None .* but got 0.0"),
        ({"x_dim": 3, "y_dim": 2, "spread": 1.0}, r"but got 1.0; leave it out for 0.01 standard"),
        ({"x_dim": 3, "y_dim": 2, "hidden": 0}, "Expected hidden to be an integer >= 1 but got 0"),
    ],
)
def test_invalid_sizes_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        mb.Ratio(**arguments)


@pytest.mark.usefixtures("unchecked")
def test_invalid_samples_are_refused():
    x, y = gaussians(10, 0)
    labels = torch.arange(10) % 3
    real, of_labels, several = mb.Ratio(3, 2), mb.Ratio(3, labels=3), mb.Ratio(3, labels=(3, 2))
    cases = [
        (real, (y, y), r"Expected x of shape \(n, 3\) but got \(10, 2\)"),
        (real, (x, x), r"Expected y of shape \(n, 2\) but got \(10, 3\)"),
        (real, (x, y[:9]), "the same number of samples but got 10 and 9"),
        (real, (x, labels), "Expected y to be floating point but got torch.int64"),
        (real, (x.double(), y), "Expected x in torch.float32, .* but got torch.float64"),
        (of_labels, (x, y[:, 0]), r"integers below 3, but got torch.float32; pass y.long\(\) if"),
        (several, (x, y), r"integers below 3, 2, but got torch.float32"),
        (several, (x, labels), r"Expected y to have 2 column\(s\) of labels but got 1; pass as"),
        (of_labels, (x, labels + 1), "Expected labels in y from 0 to 2 but got 1 to 3; number"),
        (of_labels, (x, labels - 1), "Expected labels in y from 0 to 2 but got -1 to 1"),
        (
            several,
            (x, torch.stack([labels, labels], 1)),
            "Expected labels in y from 0 to 1 but got 0 to 2",
        ),
    ]
    for ratio, sides, message in cases:
        for call in (ratio, ratio.learning_loss):
            with pytest.raises(ValueError, match=message):
                call(*sides)


@pytest.mark.usefixtures("unchecked")
def test_an_invalid_third_variable_is_refused():
    x, y = gaussians(10, 0)
    labels = torch.arange(10) % 3
    real, of_labels = mb.Ratio(3, 2, given_dim=2), mb.Ratio(3, 2, given_labels=2)
    cases = [
        (mb.Ratio(3, 2), y, "got given_dim=0, given_labels=0 and a given; make the two agree"),
        (real, None, "got given_dim=2, given_labels=0 and no given; make the two agree"),
        (of_labels, None, "got given_dim=0, given_labels=2 and no given"),
        (real, x, r"Expected given of shape \(n, 2\) but got \(10, 3\).*given_dim=3"),
        (real, labels, "Expected given to be floating point but got torch.int64"),
        (of_labels, y[:, 0], r"Expected given to hold labels.*pass given.long\(\)"),
        (of_labels, labels, "Expected labels in given from 0 to 1 but got 0 to 2"),
    ]
    for ratio, given, message in cases:
        for call in (ratio, ratio.learning_loss):
            with pytest.raises(ValueError, match=message):
                call(x, y, given)
