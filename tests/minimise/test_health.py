"""Health checks: each fault is found, and is not found where there is none."""

import math
import warnings
from dataclasses import replace

import pytest
import torch
from penalties import S, Z, features, make, samples
from torch.distributions import Independent, Normal

import mibounds as mb
from mibounds.minimise._faults import Facts, find_faults


def test_audit_sees_what_a_gaussian_q_does_not():
    g = torch.Generator().manual_seed(0)
    z = torch.randn(600, 2, generator=g)
    s = z.square().sum(1, keepdim=True) + 0.3 * torch.randn(600, 1, generator=g)
    penalty = mb.MIPenalty(mb.CLUB(2, 1, ()), lr=0.01, check_every=0)  # a linear q
    for _ in range(30):
        penalty(z, s)
    assert penalty.bound(z, s) < 0.1
    result = penalty.audit(z.requires_grad_(), s, budget="fast")
    assert isinstance(result, mb.Estimate)
    assert result.interval[0] > 0.5


def test_audit_of_labels_and_sequences():
    z = torch.randn(10, 40, 2)
    labels = (z[..., 0] > 0).long() + 2 * (z[..., 1] > 0).long()
    mask = torch.rand(10, 40) < 0.9
    for what in ({"labels": 4}, {"conditional": mb.Categorical(2, 4)}):
        penalty = mb.MIPenalty(2, **what) if "labels" in what else mb.MIPenalty(mb.CLUB(**what))
        result = penalty.audit(z, labels, mask=mask, budget="fast")
        assert result.config["y_kinds"] == ["discrete"]
        assert result.n == mask.sum()
        assert 0.9 < result.nats < 1.6  # log 4


def test_a_healthy_penalty_reports_only_what_is_left():
    penalty = make(check_every=10, lr=0.02)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for seed in range(40):
            penalty(*features(seed, 256))
    report = penalty.report()
    assert report.calls == 40
    assert codes(penalty) == ["left"]  # this encoder does not learn
    assert report.left > 0.3
    assert report.value > 0
    assert report.gain > 0.1
    assert report.at_limit == 0
    assert report.spread == pytest.approx((1, math.sqrt(1.25)), rel=0.1)
    assert "value" in str(report)
    assert str(make().report()) == "after 0 calls: not checked yet; no faults"


def codes(penalty):
    return [advice.code for advice in penalty.report().warnings]


def test_samples_without_a_gradient_are_reported_once():
    penalty = make(check_every=1, lr=0.02)
    z, s = samples(0, 256)
    with pytest.warns(mb.PenaltyWarning, match="no-gradient: Neither x nor y"):
        penalty(z, s)
    penalty(z, s)  # not again
    assert "no-gradient" in codes(penalty)
    with torch.no_grad():
        penalty(z, s)  # asked for
    assert "no-gradient" not in codes(penalty)
    penalty(*features(0, 256))
    assert "no-gradient" not in codes(penalty)


def test_labels_as_numbers_are_reported():
    g = torch.Generator().manual_seed(0)
    z = torch.randn(200, 3, generator=g)
    labels = (z[:, :1] > 0).float()
    penalty = mb.MIPenalty(mb.CLUB(3, 1, 8))
    assert "labels-as-numbers" in [w.code for w in penalty.report(z, labels).warnings]
    few = penalty.report(z, z[:, :1].round(decimals=1))  # rounded measurements are no labels
    assert "labels-as-numbers" not in [w.code for w in few.warnings]
    as_bits = mb.MIPenalty(mb.CLUB(conditional=mb.Bernoulli(3, 1, 8)))
    assert "labels-as-numbers" not in [w.code for w in as_bits.report(z, labels).warnings]


def test_q_worse_than_the_marginal_is_reported_once():
    penalty = make(check_every=1, inner_steps=1, lr=1e-9)
    penalty(*features(0, 256))
    with torch.no_grad():
        penalty.estimator.conditional.net.offset[0] += 5  # a q that is certain of the wrong thing
    with pytest.warns(mb.PenaltyWarning, match="predicts a new batch worse than the marginal of y"):
        penalty(*features(1, 256))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        penalty(*features(2, 256))  # the same fault is not reported again
    assert codes(penalty) == ["q-worse-than-marginal", "left"]
    assert "Raise inner_steps" in str(penalty.report())


def test_labels_have_a_marginal_too():
    z = torch.randn(300, Z)
    labels = (z[:, 0] > 0).long()
    for conditional, y in (
        (mb.Categorical(Z, 2), labels),
        (mb.Bernoulli(Z, 2), torch.stack([labels, 1 - labels], 1)),
    ):
        penalty = mb.MIPenalty(mb.CLUB(conditional=conditional), lr=0.02, check_every=0)
        for _ in range(20):
            penalty(z, y)
        report = penalty.report(z, y)
        assert report.gain > 0.3
        assert report.at_limit is None
        with torch.no_grad():
            conditional.net.layers[-1].weight.neg_().mul_(3)
        assert penalty.report(z, y).warnings[0].code == "q-worse-than-marginal"


def test_q_is_judged_on_samples_as_it_sees_them():
    """Columns that nearly repeat: q has learnt what they share from whitened ones."""
    penalty = make(check_every=0, lr=0.02)
    for seed in range(60):
        z, s = features(seed, 256)
        z = torch.cat([z[:, :1], z[:, :1] + 0.01 * z[:, 1:]], 1) * 1e3
        penalty(z, s)
    assert penalty.report(z, s).gain > 0.1


def test_a_value_below_zero_beyond_noise_is_reported():
    penalty = make(check_every=0)
    penalty(*samples(0))
    penalty.values[:] = -0.5 + 0.01 * torch.randn(100)
    report = penalty.report(*samples(1))
    assert "below-zero" in [advice.code for advice in report.warnings]
    penalty.values[:] = -0.5 + 10 * torch.linspace(-1, 1, 100)  # within the noise
    assert "below-zero" not in [a.code for a in penalty.report(*samples(1)).warnings]


@pytest.mark.parametrize(
    ("value", "left", "own", "settled", "code"),
    [
        (0.01, 0.3, False, True, "contradicted"),
        (0.25, 0.3, False, True, "contradicted"),
        (0.31, 0.3, False, True, "left"),
        (0.01, 0.3, False, False, "left"),
        (0.01, 0.3, True, True, "contradicted"),
        (0.01, 0.3, True, False, "left"),
        (
            0.1,
            0.3,
            True,
            True,
            "left",
        ),  # a classifier of noisy samples certifies less than there is
        (0.01, 0.04, True, True, "left"),
        (0.01, 0.04, False, True, "left"),
        (0.01, 0.015, True, True, None),
        (0.01, None, False, True, None),
    ],
)
def test_a_value_that_fresh_models_contradict(value, left, own, settled, code):
    facts = Facts(value=value, error=0.01, settled=settled, left=left, rows=900, own=own)
    assert [fault.code for fault in find_faults(facts)] == ([code] if code else [])


def test_what_only_kernels_see_is_reported():
    """In the report, and without a warning: the penalty still works on it."""
    seen = Facts(value=0.01, error=0.01, left=0.0, kernels=0.12, rows=900, own=True)
    (fault,) = find_faults(seen)
    assert fault.code == "left"
    assert "kernels see about 0.12" in fault.message
    assert not find_faults(replace(seen, kernels=0.01))
    (fault,) = find_faults(replace(seen, left=0.3))
    assert "kernels" not in fault.message


@pytest.mark.parametrize("given", [False, True])
def test_samples_that_are_passed_are_what_is_judged(given):
    """The last batches shared something, and the samples do not; or the other way round."""
    third = torch.randint(2, (4000,))
    penalty = mb.MIPenalty(Z, S, given_labels=2 if given else 0, check_every=200)
    for related in (True, False):
        for seed in range(4):
            z, s = samples(seed, 1000)
            s = z[:, :S] if related else torch.randn_like(s)
            options = {"given": third[:1000]} if given else {}
            penalty(z.requires_grad_(), s, **options)
        z = torch.randn(4000, Z)
        s = torch.randn(4000, S) if related else z[:, :S] + torch.randn(4000, S)
        options = {"given": third} if given else {}
        left = penalty.report(z, s, **options).left
        assert left == 0 if related else left > 0.2


@pytest.mark.parametrize("labels", [5, 17])
def test_too_few_rows_for_the_values_of_a_label(labels):
    penalty = mb.MIPenalty(Z, labels=labels, check_every=0)
    z, y = torch.randn(64, Z), torch.arange(64) % labels
    penalty(z.requires_grad_(), y)
    assert [a.code for a in penalty.report(z, y).warnings] == (["few-rows"] if labels > 16 else [])


def test_without_a_bound_what_is_certified_is_not_below_zero():
    penalty = mb.MIPenalty(Z, S, check_every=0)
    penalty(*samples(0))
    penalty.values[:] = -0.5
    report = penalty.report(*samples(1))
    assert report.value == 0
    assert report.warnings == ()


@pytest.mark.parametrize("published", [False, True])
def test_a_log_variance_at_its_limit_is_reported(published):
    kind = mb.AsPublishedGaussian if published else mb.Gaussian
    penalty = mb.MIPenalty(mb.CLUB(conditional=kind(Z, S)), check_every=0)
    penalty(*samples(0))
    assert penalty.report(*samples(0)).at_limit == 0
    q = penalty.estimator.conditional
    with torch.no_grad():
        if published:
            q.net_log_variance.offset.fill_(9.0)
        else:
            q.net.offset[S:] = 100.0
    assert penalty.report(*samples(0)).at_limit == 1
    assert "log-variance-limit" in codes(penalty)


def test_collapsed_features_are_reported():
    penalty = make(check_every=0)
    z, s = samples(0)
    penalty.report(z, s)
    assert codes(penalty) == []
    assert "collapsed" in [a.code for a in penalty.report(1e-4 * z, s).warnings]
    constant = make(check_every=0)
    report = constant.report(5 + 1e-6 * z, s)
    (advice,) = [a for a in report.warnings if a.code == "collapsed"]
    assert advice.message.startswith("Hardly any variation is left in x:")


def test_features_that_run_away_are_reported():
    penalty = make(check_every=0)
    z, s = samples(0)
    penalty.report(z, s)
    assert "growing" not in [a.code for a in penalty.report(3 * z, s).warnings]
    (advice,) = [a for a in penalty.report(9 * z, s).warnings if a.code == "growing"]
    assert advice.message.startswith("x spreads 9 times as far")
    (advice,) = [a for a in penalty.report(z, 6 * s).warnings if a.code == "growing"]
    assert advice.message.startswith("y spreads 6 times as far")


def test_a_known_conditional_survives_a_bad_batch():
    def known(x):
        return Independent(Normal(x, 1.0, validate_args=False), 1, validate_args=False)

    penalty = mb.MIPenalty(mb.CLUB(conditional=known))
    x, y = torch.randn(16, 3), torch.randn(16, 3, requires_grad=True)
    x[2, 1] = math.nan
    with pytest.warns(mb.PenaltyWarning, match="not-finite"):
        assert penalty(x, y).isnan()


def test_samples_that_are_not_finite_are_reported():
    penalty = make(check_every=1)
    z, s = samples(0)
    z[0, 0] = math.nan
    with pytest.warns(mb.PenaltyWarning, match="There is NaN or infinity in x:"):
        penalty(z.requires_grad_(), s)
    assert codes(penalty) == ["not-finite"]


@pytest.mark.parametrize("name", ["club", "nwj", "doe"])  # upper, lower, neither
def test_a_bound_on_the_wrong_side_is_reported_at_once(name):
    estimator = mb.ESTIMATORS[name](Z, S)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        penalty = mb.MIPenalty(estimator, check_every=1)
        penalty(*samples(0))  # and not again
    assert ("wrong-side" in codes(penalty)) == (estimator.side != "upper")
    said = [str(w.message) for w in caught if "wrong-side" in str(w.message)]
    assert len(said) == (estimator.side != "upper")
    for text in said:
        assert "take an upper bound" in text


def test_a_flow_has_no_limit():
    penalty = mb.MIPenalty(mb.CLUBSample(conditional=mb.Flow(Z, S, 8)), inner_steps=1)
    penalty(*samples(0))
    assert penalty.report(*samples(0)).at_limit is None
