"""Sequences, masks and weights, with every estimator, against the rows that they stand for."""

import copy
import inspect

import pytest
import torch

import mibounds as mb
from mibounds.bounds.densities import repeat
from mibounds.bounds.from_conditionals import draw_sequences
from mibounds.samples.layouts import lay_out

B, T, X, Y = 5, 6, 4, 3
SIDES = ["both", "single"]
WEIGHTED = [name for name in mb.ESTIMATORS if name not in ("infonce", "ba")]
CONDITIONALS = [
    mb.Gaussian, mb.UnitGaussian, mb.FullGaussian, mb.LowRankGaussian, mb.GaussianMixture,
    mb.StudentT, mb.Flow, mb.Copula,
]  # fmt: skip


@pytest.fixture(params=sorted(mb.ESTIMATORS))
def name(request):
    return request.param


def make(name, **options):
    kind = mb.ESTIMATORS[name]
    return kind(X, Y, 8, **options).double()


def sequences(side="both"):
    x = torch.randn(B, T, X, dtype=torch.float64)
    y = x[..., :Y] + torch.randn(B, T, Y, dtype=torch.float64)
    return (x if side == "both" else x[:, 0]), y


def flat(x, y):
    rows = x if x.ndim == 3 else x[:, None].expand(-1, T, -1)
    return rows.flatten(0, 1), y.flatten(0, 1)


def value(estimator, *args, **kwargs):
    torch.manual_seed(0)
    return estimator(*args, **kwargs)


def test_sequences_are_their_parts(name):
    x, y = sequences()
    estimator = make(name)
    torch.testing.assert_close(value(estimator, x, y), value(estimator, *flat(x, y)))
    alike = copy.deepcopy(estimator)
    torch.testing.assert_close(estimator.learning_loss(x, y), alike.learning_loss(*flat(x, y)))


@pytest.mark.parametrize("side", SIDES)
def test_padding_is_left_out(name, side):
    x, y = sequences(side)
    mask = torch.zeros(B, T, dtype=torch.bool)
    mask[:, : T - 2] = True
    padded = y.masked_fill(~mask[..., None], torch.nan)
    short = x if side == "single" else x[:, : T - 2]
    estimator = make(name)
    torch.testing.assert_close(
        value(estimator, x, padded, mask=mask), value(estimator, short, y[:, : T - 2])
    )
    estimator.eval()
    torch.testing.assert_close(
        estimator.learning_loss(x, padded, mask=mask),
        estimator.learning_loss(short, y[:, : T - 2]),
    )


def apart(s, ids):
    return s[ids[:, None] != ids]


def test_negatives_of_other_sequences():
    x, y = sequences()
    rows_x, rows_y = flat(x, y)
    ids = torch.arange(B).repeat_interleave(T)
    for given in (x, x[:, 0]):
        club = make("club", negatives="sequences")
        club.learning_loss(given, y)
        p = club.conditional(flat(given, y)[0])
        s = torch.stack([p.log_prob(each.expand_as(rows_y)) for each in rows_y], 1)
        torch.testing.assert_close(club(given, y), s.diag().mean() - apart(s, ids).mean())
        others = mb.CLUB(conditional=club.conditional)(given, y)
        assert (others == club(given, y)) == (given.ndim == 2)
    nwj = make("nwj", negatives="sequences")
    s = nwj.critic.pairs(rows_x, rows_y)
    torch.testing.assert_close(nwj(x, y), s.diag().mean() - (apart(s, ids) - 1).exp().mean())
    smile = make("smile", negatives="sequences")
    s = smile.critic.pairs(rows_x, rows_y)
    product = apart(s, ids).clamp(-5, 5).exp().mean().log()
    torch.testing.assert_close(smile(x, y), s.diag().mean() - product)


@pytest.mark.parametrize("kind", CONDITIONALS)
def test_one_x_for_a_sequence(kind):
    """By every conditional: CLUB with negatives of other sequences, and q evaluated once."""
    x, y = sequences("single")
    q = kind(X, Y, 8).double()
    seen = []
    if kind is not mb.Flow:
        q.net.register_forward_hook(lambda _, inputs, __: seen.append(len(inputs[0])))
    rows_x, rows_y = flat(x, y)
    p = q(rows_x)
    s = torch.stack([p.log_prob(each.expand_as(rows_y)) for each in rows_y], 1)
    ids = torch.arange(B).repeat_interleave(T)
    wanted = s.diag().mean() - apart(s, ids).mean()
    seen.clear()
    torch.testing.assert_close(mb.CLUB(conditional=q)(x, y), wanted)
    if kind not in (mb.Flow, mb.Copula):
        assert seen == [B]
    mask = torch.rand(B, T) > 0.3
    kept = ids[mask.flatten()]
    s = s[mask.flatten()][:, mask.flatten()]
    each = torch.stack([row[kept != own].mean() for row, own in zip(s, kept, strict=True)])
    found = mb.CLUB(conditional=q)(x, y, mask=mask)
    torch.testing.assert_close(found, (s.diag() - each).mean())


def test_drawn_negatives_are_whole_sequences():
    ids = torch.tensor([0, 0, 0, 1, 1, 2, 2, 2, 2])
    for seed in range(5):
        index = draw_sequences(ids, 2, seed=seed)
        assert (ids[index] != ids[:, None]).all()
        assert (ids[index[:, 0]] != ids[index[:, 1]]).all()
    club = make("club_sample", draw="sequences", k=2)
    x, y = sequences()
    full = make("club_sample", draw="sequences", k=B - 1)
    full.load_state_dict(club.state_dict())
    s = club.conditional(flat(x, y)[0])
    rows = flat(x, y)[1].view(B, T, Y)
    same_time = torch.stack(
        [s.log_prob(rows[torch.arange(B).roll(-k)].flatten(0, 1)) for k in range(1, B)]
    )
    wanted = s.log_prob(flat(x, y)[1]).mean() - same_time.mean()
    torch.testing.assert_close(full(x, y), wanted)
    assert club(x, y).isfinite()


@pytest.mark.parametrize("name", WEIGHTED)
def test_weights_count_samples(name):
    """A weight of 0 leaves a sample out, and equal weights change nothing."""
    x, y = flat(*sequences())
    estimator = make(name).eval()
    same = torch.full((len(x),), 0.7, dtype=torch.float64)
    torch.testing.assert_close(value(estimator, x, y, weights=same), value(estimator, x, y))
    torch.testing.assert_close(
        estimator.learning_loss(x, y, weights=same), estimator.learning_loss(x, y)
    )
    some = (torch.arange(len(x)) % 3 > 0).double()
    kept = some > 0
    torch.testing.assert_close(
        value(estimator, x, y, weights=some), value(estimator, x[kept], y[kept])
    )


@pytest.mark.parametrize("name", ["club", "vub", "dv", "nwj", "smile", "js"])
def test_weights_are_numbers_of_copies(name):
    x, y = flat(*sequences())
    counts = torch.randint(1, 4, (len(x),))
    options = {"negatives": "all"} if name != "vub" else {}
    estimator = make(name, **options).eval()
    often = [v.repeat_interleave(counts, 0) for v in (x, y)]
    weights = counts.double()
    torch.testing.assert_close(estimator(x, y, weights=weights), estimator(*often))
    torch.testing.assert_close(
        estimator.learning_loss(x, y, weights=weights), estimator.learning_loss(*often)
    )


def test_weights_of_l1out_weigh_the_mixture():
    x, y = flat(*sequences())
    w = torch.rand(len(x), dtype=torch.float64) + 0.1
    l1out = make("l1out")
    p = l1out.conditional(x)
    s = torch.stack([p.log_prob(each.expand_as(y)) for each in y], 1)
    off = 1 - torch.eye(len(x), dtype=torch.float64)
    mixture = (off * w[:, None] * s.exp()).sum(0) / (off * w[:, None]).sum(0)
    wanted = (w * (s.diag() - mixture.log())).sum() / w.sum()
    torch.testing.assert_close(l1out(x, y, weights=w), wanted)


@pytest.mark.parametrize("name", ["infonce", "ba"])
def test_weights_are_refused_where_the_value_is_no_weighted_mean(name):
    x, y = flat(*sequences())
    with pytest.raises(ValueError, match=r"no weights for .*torch.multinomial"):
        make(name)(x, y, weights=torch.ones(len(x)))
    with pytest.raises(ValueError, match=r"no weights for Ratio"):
        mb.Ratio(X, Y).double().learning_loss(x, y, weights=torch.ones(len(x)))


@pytest.mark.parametrize("shape", [(0,), (1,), (0, T), (1, T), (B, 0)])
def test_a_batch_with_nothing_to_compare_is_zero_in_training(name, shape):
    negatives = "negatives" in inspect.signature(mb.ESTIMATORS[name]).parameters
    sampled = {"draw": "sequences"} if name == "club_sample" else {}
    estimator = make(name, **({"negatives": "sequences"} if negatives else sampled))
    x = torch.randn(*shape, X, dtype=torch.float64, requires_grad=True)
    y = torch.randn(*shape, Y, dtype=torch.float64)
    if shape == (1, T) and not (negatives or sampled):
        assert estimator(x, y).isfinite()  # parts of one sequence are negatives of each other
        return
    with pytest.warns(RuntimeWarning, match="tells nothing.*drop_last"):
        total = estimator(x, y)
    if shape != (1, T):
        total = total + estimator.learning_loss(x, y)
    total.backward()  # it warns once
    assert total == 0
    assert (x.grad == 0).all()
    assert all(p.grad is None or (p.grad == 0).all() for p in estimator.parameters())
    with pytest.raises(ValueError, match=r"at least 2|at least 1|Expected"):
        estimator.eval()(x, y)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mask": torch.ones(B, T)}, r"mask to be of torch.bool.*mask.bool\(\)"),
        ({"mask": torch.ones(B, T - 1).bool()}, r"mask of the leading shape.*\(5, 6\).*\(5, 5\)"),
        ({"weights": torch.ones(B, T - 1)}, r"weights of the leading shape.*got \(5, 5\)"),
        ({"weights": torch.ones(B, T).long()}, r"weights to be floating point.*weights.float"),
        ({"weights": -torch.ones(B, T)}, r"finite weights of 0 or more but got -1 to -1"),
    ],
)
def test_bad_masks_and_weights_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        make("club")(*sequences(), **options)


def test_samples_that_do_not_fit_are_named():
    x, y = sequences()
    with pytest.raises(ValueError, match=r"one x for each sequence y.*expand"):
        make("club")(x, y[:, 0])


def test_an_x_of_one_column_may_come_without_it():
    x, y = torch.randn(B, T), torch.randn(B, T, Y)
    club = mb.CLUB(1, Y, 8)
    torch.testing.assert_close(club(x, y), club(x[..., None], y))


def test_labels_of_sequences():
    x, labels = torch.randn(B, T, X), torch.randint(3, (B, T))
    club = mb.CLUB(conditional=mb.Categorical(X, 3, 8))
    torch.testing.assert_close(club(x, labels), club(x.flatten(0, 1), labels.flatten()))
    mask = torch.rand(B, T) > 0.4
    torch.testing.assert_close(club(x, labels, mask=mask), club(x[mask], labels[mask]))
    assert club(x[:, 0], labels, mask=mask).isfinite()


def test_only_types_that_are_known_are_repeated():
    assert repeat(torch.distributions.Gamma(torch.ones(3), 1.0), torch.tensor([0])) is None
    rows = lay_out(torch.randn(2, X), torch.randn(2, T, Y))
    assert rows.samples == 2
