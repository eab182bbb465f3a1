"""The names of the authors' file: values by its equations, and loops as users have them.

The shapes and settings of the loops are those of public projects; no code of theirs is here.
"""

import copy
import math
import warnings

import pytest
import torch
from torch import nn

from mibounds import mi_estimators as names
from mibounds.mi_estimators import (
    CLUB,
    MINE,
    NWJ,
    CLUBForCategorical,
    CLUBMean,
    CLUBSample,
    CLUBSample_group,
    CLUBSample_reshape,
    InfoNCE,
)

N, X, Y = 12, 5, 3
QS = [CLUB, CLUBSample, CLUBMean]


def samples(n=N):
    x = torch.randn(n, X)
    return x, x[:, :Y] + torch.randn(n, Y) + 1


def quiet(kind, *args, **kwargs):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return kind(*args, **kwargs)


def contrast(mu, logvar, y, other):
    """log q(y|x) - log q(y'|x), from the squares."""
    variance = torch.as_tensor(logvar, dtype=y.dtype).exp()
    return (((other - mu) ** 2 - (y - mu) ** 2) / (2 * variance)).sum(-1)


def all_pairs(mu, logvar, y):
    """The 1/N² sum, negative after negative."""
    return torch.stack([contrast(mu, logvar, y, other.expand_as(y)) for other in y]).mean()


def descend(estimator, x, y, verb="learning_loss", steps=3, rate=1e-3, clip=None, **kwargs):
    """A loop with an optimiser of its own, as users have it."""
    optimizer = torch.optim.Adam(estimator.parameters(), lr=rate)
    for _ in range(steps):
        value = getattr(estimator, verb)(x.detach(), y.detach(), **kwargs)
        loss = -value if verb == "loglikeli" else value
        optimizer.zero_grad()
        loss.backward()
        if clip:
            nn.utils.clip_grad_norm_(estimator.parameters(), clip)
        optimizer.step()
    return loss.item()


# --- values ---------------------------------------------------------------------------------------


def test_values_of_conditionals_are_those_of_the_equations():
    x, y = samples()
    club = CLUB(X, Y, hidden_size=16)
    mu, logvar = club.get_mu_logvar(x)
    torch.testing.assert_close(club(x, y), all_pairs(mu, logvar, y))
    likelihood = (-((mu - y) ** 2) / logvar.exp() - logvar).sum(1).mean()
    torch.testing.assert_close(club.loglikeli(x, y), likelihood)
    torch.testing.assert_close(club.learning_loss(x, y), -likelihood)
    mean = CLUBMean(X, Y)
    mu, zero = mean.get_mu_logvar(x)
    assert zero == 0
    torch.testing.assert_close(mean(x, y), all_pairs(mu, 0.0, y))
    torch.testing.assert_close(mean.loglikeli(x, y), -((mu - y) ** 2).sum(1).mean())
    drawn = CLUBSample(X, Y, 16)
    torch.manual_seed(3)
    index = torch.randperm(N)
    torch.manual_seed(3)
    expected = contrast(*drawn.get_mu_logvar(x), y, y[index]).mean()
    torch.testing.assert_close(drawn.mi_est(x, y), expected)


def test_gradients_are_those_of_the_equations():
    x, y = (v.double() for v in samples())
    y.requires_grad_()
    club = CLUB(X, Y, 16).double()
    wanted = torch.autograd.grad(all_pairs(*club.get_mu_logvar(x), y), [y, *club.parameters()])
    found = torch.autograd.grad(club(x, y), [y, *club.parameters()])
    for a, b in zip(found, wanted, strict=True):
        torch.testing.assert_close(a, b)


def test_values_of_critics_are_those_of_the_equations():
    x, y = samples()
    mine, nwj, infonce = MINE(X, Y, 8), NWJ(X, Y, 8), InfoNCE(X, Y, 8)
    every = torch.cat([x.repeat(N, 1), y.repeat_interleave(N, 0)], 1)  # y_i with each x_j
    joint = torch.cat([x, y], 1)
    scores = nwj.F_func(every).view(N, N)
    value = nwj.F_func(joint).mean() - (scores - 1).exp().mean()
    torch.testing.assert_close(nwj(x, y), value)
    torch.testing.assert_close(nwj.learning_loss(x, y), -value)
    scores = infonce.F_func(every).view(N, N)
    value = infonce.F_func(joint).mean() - scores.logsumexp(1).mean() + math.log(N)
    torch.testing.assert_close(infonce.mi_est(x, y), value)
    torch.manual_seed(1)
    index = torch.randint(N, (N,))
    torch.manual_seed(1)
    other = mine.T_func(torch.cat([x, y[index]], 1)).exp().mean().log()
    torch.testing.assert_close(mine(x, y), mine.T_func(joint).mean() - other)


def test_sequences_by_the_equations():
    x, y = torch.randn(6, 4, X), torch.randn(6, 4, Y) + 2
    both, group = CLUBSample_reshape(X, Y, 16), CLUBSample_group(X, Y, 16)
    for club, given in (
        (both, x),
        (group, x[:, 0]),
        (CLUB(X, Y, 16), x),
        (CLUB(X, Y, 16), x[:, 0]),
    ):
        mu, logvar = club.get_mu_logvar(given)
        if given.ndim == 2:
            mu, logvar = (v[:, None].expand(-1, 4, -1) for v in (mu, logvar))
        torch.manual_seed(0)
        index = torch.randperm(6)
        torch.manual_seed(0)
        sampled = isinstance(club, CLUBSample)
        wanted = contrast(mu, logvar, y, y[index]).mean() if sampled else all_pairs(mu, logvar, y)
        torch.testing.assert_close(club.mi_est(given, y), wanted, rtol=1e-4, atol=1e-5)
        likelihood = (-((mu - y) ** 2) / logvar.exp() - logvar).sum(-1).mean()
        torch.testing.assert_close(club.loglikeli(given, y), likelihood * club.factor)


@pytest.mark.parametrize("kind", [CLUB, CLUBSample, CLUBSample_group, names.VarUB, names.L1OutUB])
def test_a_mask_leaves_padding_out(kind):
    club = quiet(kind, X, Y, 16)
    x, y = torch.randn(6, X), torch.randn(6, 4, Y)
    mask = torch.arange(4).expand(6, 4) < 3
    values = []
    for frames, which in ((y[:, :3], None), (y, mask)):
        torch.manual_seed(0)
        options = {} if which is None else {"mask": which}
        values.append((club(x, frames, **options), club.loglikeli(x, frames, **options)))
    for short, masked in zip(*values, strict=True):
        torch.testing.assert_close(masked, short)


@pytest.mark.parametrize("kind", [CLUB, CLUBMean, names.VarUB])
def test_weights_count_samples_as_often_as_they_say(kind):
    x, y = samples()
    counts = torch.randint(1, 4, (N,))
    club = quiet(kind, X, Y, 16)
    often = [v.repeat_interleave(counts, 0) for v in (x, y)]
    torch.testing.assert_close(club(x, y, w=counts.float()), club(*often))
    torch.testing.assert_close(
        club.learning_loss(x, y, w=counts.float()), club.learning_loss(*often)
    )


# --- what is wrong there --------------------------------------------------------------------------


def test_l1out_is_the_right_one_and_says_so():
    x, y = samples()
    with pytest.warns(RuntimeWarning, match="value of CLUB.*use CLUB") as told:
        l1out = names.L1OutUB(X, Y, 16)
    mu, logvar = l1out.get_mu_logvar(x)
    s = -0.5 * ((y - mu[:, None]) ** 2 / logvar.exp()[:, None] + logvar[:, None]).sum(-1)
    others = s.clone().fill_diagonal_(-math.inf).logsumexp(0) - math.log(N - 1)
    torch.testing.assert_close(l1out(x, y), (s.diag() - others).mean())
    assert len(told) == 1


def test_vub_is_summed_and_says_so():
    x, y = samples()
    with pytest.warns(RuntimeWarning, match=r"y_dim times.*divide its weight in the loss by 3"):
        vub = names.VarUB(X, Y, 16)
    mu, logvar = vub.get_mu_logvar(x)
    as_published = 0.5 * (mu**2 + logvar.exp() - 1 - logvar).mean()
    torch.testing.assert_close(vub(x, y), Y * as_published)


# --- names and checkpoints ------------------------------------------------------------------------

TWO = ["0.weight", "0.bias", "2.weight", "2.bias"]


@pytest.mark.parametrize(
    ("kind", "parts", "layers"),
    [
        (CLUB, ["p_mu", "p_logvar"], TWO),
        (CLUBSample, ["p_mu", "p_logvar"], TWO),
        (CLUBMean, ["p_mu"], TWO),
        (names.L1OutUB, ["p_mu", "p_logvar"], TWO),
        (names.VarUB, ["p_mu", "p_logvar"], TWO),
        (MINE, ["T_func"], TWO),
        (NWJ, ["F_func"], TWO),
        (InfoNCE, ["F_func"], TWO),
        (CLUBSample_group, ["p_mu", "p_logvar"],
         [f"{i}.{name}" for i in (0, 2, 4, 6) for name in ("weight", "bias")]),
    ],
)  # fmt: skip
def test_parameters_have_their_names(kind, parts, layers):
    state = quiet(kind, X, Y, 16).state_dict()
    assert list(state) == [f"{part}.{layer}" for part in parts for layer in layers]
    halved = 16 // 2 if "p_logvar" in parts else 16
    assert state[f"{parts[0]}.0.weight"].shape[0] == halved


def test_no_hidden_layer_and_a_width_that_is_no_integer():
    assert list(CLUBMean(X, Y, None).state_dict()) == ["p_mu.weight", "p_mu.bias"]
    assert CLUBMean(X, Y, 8 * math.sqrt(2)).p_mu[0].out_features == 11
    assert CLUB(X, Y, hidden_size=9 * math.sqrt(3)).p_mu[0].out_features == 7
    assert list(CLUB(X, Y).state_dict()) == [
        "p_mu.0.weight", "p_mu.0.bias", "p_logvar.0.weight", "p_logvar.0.bias",
    ]  # fmt: skip
    assert len(CLUBSample(X, Y, 16, depth=3).p_mu) == 7
    assert list(CLUBForCategorical(X, 4).state_dict()) == [
        "variational_net.weight", "variational_net.bias",
    ]  # fmt: skip


def test_the_same_seed_gives_the_networks_of_the_file():
    torch.manual_seed(7)
    club = CLUB(X, Y, 16)
    torch.manual_seed(7)
    first = [nn.Linear(X, 8), nn.Linear(8, Y), nn.Linear(X, 8), nn.Linear(8, Y)]
    for a, b in zip(
        club.parameters(), (p for layer in first for p in layer.parameters()), strict=True
    ):
        assert torch.equal(a, b)


# --- batches with nothing -------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [*QS, MINE, NWJ, InfoNCE, names.L1OutUB, names.VarUB])
def test_an_empty_batch_is_zero(kind):
    estimator = quiet(kind, X, Y, 16)
    x, y = (v[:0].requires_grad_() for v in samples())
    with pytest.warns(RuntimeWarning, match="0 samples, which tells nothing.*drop_last"):
        value = estimator(x, y)
    value = value + estimator.learning_loss(x, y)  # it warns once
    value.backward()
    assert value == 0
    assert all((p.grad == 0).all() for p in estimator.parameters())


@pytest.mark.parametrize("kind", QS)
def test_a_single_row_is_zero_as_there(kind):
    x, y = samples(1)
    estimator = kind(X, Y, 16)
    x.requires_grad_()
    estimator(x, y).backward()
    assert estimator(x, y) == 0
    assert (x.grad == 0).all()
    assert estimator.learning_loss(x, y).isfinite()


# --- loops of public projects ---------------------------------------------------------------------


def test_voice_conversion():
    speaker, content, pitch = torch.randn(8, 256), torch.randn(8, 16, 64), torch.randn(8, 16, 1)
    content.requires_grad_()
    pairs = [
        (CLUBSample_group(256, 64, 512), speaker, content),
        (CLUBSample_reshape(1, 64, 512), pitch, content),
        (CLUBSample_group(256, 1, 512), speaker, pitch),
    ]
    total = torch.zeros(())
    for net, x, y in pairs:
        with torch.autocast("cpu", torch.bfloat16):
            descend(net, x, y, "loglikeli", steps=5, rate=3e-4)
            total = total + 0.01 * net.mi_est(x, y)
    total.backward()
    assert content.grad.isfinite().all()
    assert content.grad.abs().sum() > 0
    again = CLUBSample_group(256, 64, 512)
    again.load_state_dict(copy.deepcopy(pairs[0][0].state_dict()))
    torch.manual_seed(0)
    value = again.mi_est(speaker, content)
    torch.manual_seed(0)
    torch.testing.assert_close(value, pairs[0][0].mi_est(speaker, content))


def test_singing():
    x, y = torch.randn(2, 10, 128), torch.randn(2, 10, 128)
    mask = torch.arange(10) < torch.tensor([10, 6])[:, None]
    net = CLUBSample(128, 128, 512)
    descend(net, x, y, steps=5, rate=3e-4, clip=1.0, mask=mask)
    assert net(x, y, mask=mask).isfinite()


def test_multimodal():
    x, y = torch.randn(6, 7, 256).double(), torch.randn(6, 7, 512).double()
    nets = nn.ModuleList(CLUB(x_dim=256, y_dim=512, hidden_size=256) for _ in range(4)).double()
    for net in nets:
        descend(net, x, y, steps=2)
        mu, logvar = net.get_mu_logvar(x)
        torch.testing.assert_close(net(x_samples=x, y_samples=y), all_pairs(mu, logvar, y))


def test_lip_reading():
    x, y = torch.randn(3, 75, 512), torch.randn(3, 75, 512)
    net = CLUBSample_reshape(512, 512, 512)
    first = descend(net, x, y, "loglikeli", steps=1, clip=1.0)
    assert descend(net, x, y, "loglikeli", steps=5, clip=1.0) < first


def test_knowledge_graphs():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.factors = nn.Linear(10, 4 * 8)
            self.mi = nn.ModuleList(CLUBSample(8, 8, 16) for _ in range(3))

        def forward(self, v):
            k = self.factors(v).view(-1, 4, 8)
            value = sum(net(k[:, i], k[:, i + 1]) for i, net in enumerate(self.mi))
            fit = sum(
                net.learning_loss(k[:, i].detach(), k[:, i + 1].detach())
                for i, net in enumerate(self.mi)
            )
            return value, fit

    model = Model()
    optimizer = torch.optim.Adam(model.parameters())
    value, fit = model(torch.randn(32, 10))
    optimizer.zero_grad()
    (0.1 * value + fit).backward()
    optimizer.step()
    assert "mi.0.p_mu.0.weight" in model.state_dict()
    Model().load_state_dict(model.state_dict())


def test_fair_recommendation():
    users, labels = torch.randn(50, 64), torch.arange(50) % 3
    nets = [CLUB(64, 64, 256) for _ in range(4)]
    total = torch.zeros(())
    for label, net in enumerate(nets[:3]):
        group = users[labels == label]
        descend(net, group, group, steps=3)
        total = total + 0.1 * net(group, group).clamp_min(0)
    nobody = users[labels == 3]
    with pytest.warns(RuntimeWarning, match="0 samples"):
        descend(nets[3], nobody, nobody, steps=3)
    assert nets[3](nobody, nobody) == 0
    assert total.isfinite()


def test_labels_in_text():
    hidden, labels = torch.randn(4, 9, 16), torch.randint(5, (4, 9))
    labels[2, 5:] = -100  # padding
    net = CLUBForCategorical(16, 5, hidden_size=32)
    loss = net.learning_loss(inputs=hidden, labels=labels)
    flat = nn.functional.cross_entropy(net.variational_net(hidden).flatten(0, 1), labels.flatten())
    torch.testing.assert_close(loss, flat)
    counts = labels != -100
    log_p = net.variational_net(hidden[counts]).log_softmax(-1)
    every = log_p[:, labels[counts]]
    value = net(inputs=hidden, labels=labels)
    torch.testing.assert_close(value, every.diag().mean() - every.mean())


def test_total_correlation():
    parts = torch.randn(20, 4, 6)
    nets = [CLUBMean(6 * (i + 1), 6, h) for i, h in enumerate((None, 15 * math.sqrt(2), 20.0))]
    total = sum(
        net(x_samples=parts[:, : i + 1].flatten(1), y_samples=parts[:, i + 1])
        for i, net in enumerate(nets)
    )
    losses = [
        net.learning_loss(x_samples=parts[:, : i + 1].flatten(1), y_samples=parts[:, i + 1])
        for i, net in enumerate(nets)
    ]
    sum(losses).backward()
    assert total.isfinite()


def test_text_generation():
    x, y, w = *samples(), torch.rand(N)
    net = CLUBSample(X, Y, 16)
    mu, logvar = net.get_mu_logvar(x)
    each = (-((mu - y) ** 2) / logvar.exp() - logvar).sum(1)
    torch.testing.assert_close(net.learning_loss(x, y, w=w), -(w * each).sum() / w.sum())
    torch.manual_seed(0)
    index = torch.randperm(N)
    torch.manual_seed(0)
    pairs = w * w[index]
    wanted = (pairs * contrast(mu, logvar, y, y[index])).sum() / pairs.sum()
    torch.testing.assert_close(net(x, y, w=w), wanted)


def test_survival():
    image, genes, clinic = torch.randn(16, 128), torch.randn(16, 128), torch.randn(16, 128)
    first, second = CLUBMean(128, 128, 64), CLUBMean(256, 128, 64)
    encoder = nn.Linear(128, 128)
    everything = [*first.parameters(), *second.parameters(), *encoder.parameters()]
    optimizer = torch.optim.Adam(everything)
    z = encoder(image)
    given = torch.cat([z, clinic], 1)
    loss = first(z, genes) - second(given, genes)
    fit = first.learning_loss(z.detach(), genes) + second.learning_loss(given.detach(), genes)
    optimizer.zero_grad()
    (loss + fit).backward()
    optimizer.step()
    mu, _ = second.get_mu_logvar(given)
    torch.testing.assert_close(second(given, genes), all_pairs(mu, 0.0, genes))
