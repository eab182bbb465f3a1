"""What single estimators promise; the laws that all of them obey are in test_laws.py."""

import math

import pytest
import torch
from torch import nn

import mibounds as mb
from mibounds.estimators.from_conditionals import ConditionalEstimator
from mibounds.samples.pairs import Pairs

X, Y, N = 4, 3, 24


def samples(n=N):
    x = torch.randn(n, X)
    return x, x[:, :Y] + torch.randn(n, Y)


def test_ba_is_a_lower_bound_only_with_the_true_entropy():
    assert (mb.BA.side, mb.BA(X, Y, entropy=1.0).side, mb.BA(X, Y).side) == (
        "lower",
        "lower",
        "neither",
    )
    x, y = samples(500)
    q = mb.Gaussian(X, Y)
    given = mb.BA(conditional=q, entropy=2.0).eval()
    estimated = mb.BA(conditional=q)
    torch.testing.assert_close(given(x, y), given.loglikeli(x, y) + 2.0)
    d, log_det = Y, torch.cov(y.T, correction=0).logdet()
    entropy = 0.5 * (d * (1 + math.log(2 * math.pi)) + log_det)
    torch.testing.assert_close(
        estimated(x, y), given.loglikeli(x, y) + entropy, rtol=1e-4, atol=1e-4
    )


def test_mine_keeps_an_average_of_the_partition_function():
    estimator = mb.MINE(X, Y, 8, rate=0.25)
    averages = []
    for step in range(3):
        x, y = samples()
        estimator.learning_loss(x, y)
        with torch.no_grad():
            scores = estimator.critic.pairs(x, y)
        now = Pairs.of(scores).log_mean_exp(None, "others").exp()
        averages.append(now if step == 0 else 0.75 * averages[-1] + 0.25 * now)
        torch.testing.assert_close(estimator.log_average.exp(), averages[-1])


def test_learnt_marginals_learn_and_fixed_ones_do_not():
    x, y = samples(300)
    y = 5 * y + 10
    fixed = mb.VUB(X, Y, 8)
    learnt = mb.VUB(X, Y, 8, marginal="learned")
    mixture = mb.VUB(X, Y, 8, marginal=mb.GaussianMixture(0, Y))
    given = mb.VUB(X, Y, 8, marginal=torch.distributions.Independent(
        torch.distributions.Normal(torch.full((Y,), 10.0), torch.full((Y,), 7.0)), 1
    ))  # fmt: skip
    for estimator in (fixed, learnt, mixture, given):
        mb.fit(estimator, x, y, steps=150, batch_size=64)
    assert fixed(x, y) > 100  # N(0, I) is a poor stand-in for this marginal
    for estimator in (learnt, mixture, given):
        assert 0 < estimator(x, y) < 4


def test_vub_in_kl_form_is_the_expectation_of_the_sampled_form():
    x = torch.randn(1600, X)
    q = mb.Gaussian(X, Y, 8)
    for family in (q, mb.FullGaussian(X, Y, 8), mb.LowRankGaussian(X, Y, 8)):
        kl = mb.VUB(conditional=family, form="kl")(x, torch.zeros(1600, Y))
        draws = [mb.VUB(conditional=family)(x, family(x).sample()) for _ in range(50)]
        draws = torch.stack(draws)
        assert (draws.mean() - kl).abs() < 5 * draws.std() / 50**0.5


@pytest.mark.parametrize("name", [n for n, c in mb.ESTIMATORS.items() if c.has_conditional])
def test_labels(name):
    x = torch.randn(1000, X)
    y = (x[:, 0] > 0).long() + (x[:, 1] > 1).long()
    cls = mb.ESTIMATORS[name]
    estimator = cls(conditional=mb.Categorical(X, 3), **cls.for_any_y)
    mb.fit(estimator, x, y, steps=200, batch_size=256)
    frequencies = torch.bincount(y) / 1000
    entropy = -(frequencies * frequencies.log()).sum()  # the mutual information
    assert estimator(x, y) > 0.6 * entropy
    if estimator.side != "upper":
        assert estimator(x, y) < 1.1 * entropy
    assert estimator(x, y[torch.randperm(1000)]) < 0.3


def test_doe_models_the_marginal_of_labels_by_labels():
    assert isinstance(mb.DoE(conditional=mb.Categorical(X, 3)).marginal, mb.Categorical)


def test_with_a_known_conditional_nothing_is_learnt_and_gradients_flow_through_it():
    encoder = nn.Linear(X, 2 * Y)

    def posterior(x):
        loc, raw = encoder(x).chunk(2, -1)
        normal = torch.distributions.Normal(loc, raw.exp())
        return torch.distributions.Independent(normal, 1)

    x, _ = samples()
    for cls in (mb.CLUB, mb.CLUBSample, mb.L1Out, mb.VUB, mb.BA):
        estimator = cls(conditional=posterior)
        assert list(estimator.parameters()) == []
        y = posterior(x).rsample()
        assert not estimator.learning_loss(x, y).requires_grad
        encoder.zero_grad()
        estimator(x, y).backward()
        assert encoder.weight.grad.abs().sum() > 0
        assert mb.fit(estimator, x, y.detach()) == []


def test_functions_take_the_distribution_itself():
    x, y = samples()
    q = mb.Gaussian(X, Y)
    p = q(x)
    pairs = (
        (mb.club(p, y), mb.CLUB(conditional=q)),
        (mb.club(p, y, negatives="all"), mb.CLUB(conditional=q, negatives="all")),
        (mb.l1out(p, y), mb.L1Out(conditional=q)),
        (mb.vub(p, y), mb.VUB(conditional=q)),
        (mb.vub(p), mb.VUB(conditional=q, form="kl")),
        (mb.ba(p, y), mb.BA(conditional=q)),
        (mb.ba(p, y, entropy=1.0), mb.BA(conditional=q, entropy=1.0)),
    )
    for value, estimator in pairs:
        torch.testing.assert_close(value, estimator(x, y))
    draws = [torch.Generator().manual_seed(5) for _ in range(2)]
    torch.testing.assert_close(
        mb.club_sample(p, y, k=2, seed=draws[0]),
        mb.CLUBSample(conditional=q, k=2)(x, y, seed=draws[1]),
    )


def test_the_authors_pattern_works_as_it_stands():
    """Two losses and two optimisers by hand, positional sizes, the authors' method names."""
    for cls in (mb.CLUB, mb.CLUBSample, mb.L1Out, mb.VUB, mb.MINE, mb.NWJ, mb.InfoNCE):
        estimator = cls(X, Y, 16)
        optimizer = torch.optim.Adam(estimator.parameters(), lr=1e-3)
        x, y = samples()
        estimator.train()
        loss = estimator.learning_loss(x, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        estimator.eval()
        assert isinstance(estimator(x, y).item(), float)
        if isinstance(estimator, ConditionalEstimator):
            loglikeli = estimator.loglikeli(x, y)
            torch.testing.assert_close(
                mb.CLUB(conditional=estimator.conditional).eval().learning_loss(x, y), -loglikeli
            )


# --- bad input -----------------------------------------------------------------------------------


@pytest.mark.usefixtures("unchecked")
def test_labels_out_of_range_are_named():
    estimator = mb.CLUB(conditional=mb.Categorical(X, 3))
    for bad in (3, -1):
        with pytest.raises(ValueError, match=rf"labels 0 ... 2\) but got y\[1\] = {bad}"):
            estimator(torch.zeros(3, X), torch.tensor([0, bad, 1]))
        with pytest.raises(ValueError, match=rf"labels 0 ... 2\) but got y\[1\] = {bad}"):
            estimator.learning_loss(torch.zeros(3, X), torch.tensor([0, bad, 1]))


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: mb.CLUB(), r"CLUB\(x_dim, y_dim\) or CLUB\(conditional=...\) but got x_dim=None"),
        (lambda: mb.NWJ(3), r"NWJ\(x_dim, y_dim\) or NWJ\(critic=...\) .* y_dim=None"),
        (lambda: mb.CLUB(3, 2, conditional=mb.Gaussian(3, 2)), r"dimensions or conditional="),
        (lambda: mb.CLUB(conditional=3), r"conditional to be a module or a callable but got int"),
        (lambda: mb.DV(3, 2, critic=lambda x, y: x), r"either dimensions or critic= for DV"),
        (lambda: mb.VUB(3, 2, form="exact"), r'form to be "sampled" or "kl" but got \'exact\''),
        (lambda: mb.VUB(3, 2, marginal="gauss"), r"conditional without x but got 'gauss'"),
        (lambda: mb.MINE(3, 2, rate=0.0), r"0 < rate <= 1 but got 0.0"),
        (lambda: mb.TUBA(3, 2, alpha=1.5), r"0 <= alpha <= 1 but got 1.5"),
        (lambda: mb.TUBA(3, 2, alpha=0.5, negatives="all"), r'negatives="others" with alpha > 0'),
        (lambda: mb.DoE(conditional=lambda x: None), r"Expected marginal= beside a conditional"),
        (
            lambda: mb.CLUB(conditional=lambda x: x)(torch.zeros(4, 3), torch.zeros(4, 2)),
            r"torch.distributions.Distribution but got Tensor",
        ),
        (
            lambda: mb.vub(mb.StudentT(3, 2)(torch.zeros(4, 3))),
            r"closed form but got Independent and Independent; pass samples y",
        ),
    ],
)
def test_bad_construction_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("negatives", ["others", "all"])
def test_club_in_pieces_is_club(negatives, monkeypatch):
    estimator = mb.CLUB(3, 2, negatives=negatives).double()
    x, y = torch.randn(100, 3).double() + 5, torch.randn(100, 2).double() - 7
    estimator.learning_loss(x, y)
    x.requires_grad_()
    y.requires_grad_()
    leaves = [x, y, *estimator.parameters()]
    whole = estimator(x, y)
    want = torch.autograd.grad(whole, leaves)
    monkeypatch.setattr("mibounds.estimators.from_conditionals.PIECE", 16)
    pieces = estimator(x, y)
    torch.testing.assert_close(pieces, whole, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(torch.autograd.grad(pieces, leaves), want, rtol=1e-10, atol=1e-12)
    with torch.no_grad():
        torch.testing.assert_close(estimator(x, y), whole, rtol=1e-12, atol=1e-12)
