"""Which outcome gives the value."""

import math

import numpy as np
import pytest

from mibounds.measure.choice import choose, keep_possible, look_at_certificate
from mibounds.measure.results import MethodResult
from mibounds.measure.runs import Outcome
from mibounds.samples.columns import as_columns


def outcome(name, nats, error=0.01, side="neither", lower=None, **options):
    rows = [MethodResult(name, side, "", nats, error, 0.0)]
    if lower is not None:
        rows.append(MethodResult(f"{name}-infonce", "lower", "", lower, error, 0.0))
    return Outcome(rows, error, "made up", **options)


def test_the_first_counts_unless_more_is_certified():
    first = outcome("copula_model", 0.30, lower=0.25)
    assert choose([first, outcome("codes", 0.31, side="lower")]) == (first, [])
    assert choose([first, outcome("codes", 0.90, side="neither")]) == (first, [])  # certifies none
    codes = outcome("codes", 0.40, side="lower")
    head, (advice,) = choose([first, codes])
    assert head.rows[0].method == "codes"
    assert advice.code == "copula_model-contradicted"
    assert "codes certifies 0.380" in advice.message
    noisy = outcome("codes", 0.40, error=0.06, side="lower")
    assert choose([first, noisy])[0] is first


def test_with_many_columns_only_the_certificate_counts():
    first = outcome("copula_model", 26.0, lower=0.0, wide=True)
    codes = outcome("codes", 0.33, side="lower")
    assert choose([first, codes])[0].rows[0].method == "codes"
    nothing = outcome("codes", 0.0, side="lower")
    head, advice = choose([outcome("copula_model", 0.2, lower=-3.0, wide=True), nothing])
    assert (head.rows[0].method, advice) == ("codes", [])
    surer = outcome("copula_model", 3.0, lower=2.5, wide=True)
    assert choose([surer, codes]) == (surer, [])


def test_a_method_can_contradict_itself():
    head, (advice,) = choose([outcome("copula_model", 0.1, lower=0.5)])
    assert [row.method for row in head.rows] == ["copula_model-infonce", "copula_model"]
    assert advice.code == "copula_model-contradicted"


def test_what_is_not_finite_is_not_chosen():
    bad, good = outcome("copula_model", math.nan), outcome("codes", 0.2, side="lower")
    assert choose([bad, good])[0].rows[0].method == "codes"
    assert choose([bad])[0] is bad


@pytest.mark.parametrize(("nats", "kept"), [(-0.3, 0.0), (0.4, 0.4), (4.7, 0.69), (math.inf, 0.69)])
def test_values_are_possible(nats, kept):
    assert keep_possible(outcome("ksg", nats), 0.69).rows[0].nats == kept
    assert math.isnan(keep_possible(outcome("ksg", math.nan), 0.69).rows[0].nats)


def test_the_certificate_of_the_copula_model():
    values = np.random.default_rng(0).normal(size=(2, 5000, 3))
    x, y = as_columns("x", values[0]), as_columns("y", values[1])

    def codes(nats, lower, paired=1000):
        found = outcome("copula_model", nats, lower=lower, paired=paired)
        return [a.code for a in look_at_certificate(found, x, y)]

    assert codes(2.0, 1.9) == []
    assert codes(2.0, 1.2) == ["copula_model-overconfident"]
    assert codes(6.0, 4.0) == ["copula_model-uncertified"]
    assert codes(2.0, 1.2, paired=0) == []
    assert look_at_certificate(outcome("ksg", 2.0, lower=0.1, paired=1000), x, y) == []
