"""Everything that draws says it the same way: an integer, a generator, or None for torch's own."""

import pytest
import torch
from torch.distributions import Normal

import mibounds as mb
from mibounds import bounds
from mibounds.samples.seeds import make_generator

X = torch.randn(40, 2, generator=torch.Generator().manual_seed(0))
P = torch.distributions.Independent(Normal(X, 1.0), 1)


def fitted(fit):
    torch.manual_seed(5)
    estimator = mb.CLUB(2, 2, 4)
    fit(estimator)
    return torch.cat([p.detach().flatten() for p in estimator.parameters()])


DRAWS = {
    "draw_negatives": lambda seed: bounds.draw_negatives(40, seed=seed),
    "club_sample": lambda seed: mb.club_sample(P, X, seed=seed),
    "CLUBSample": lambda seed: mb.CLUBSample(conditional=lambda x: P)(X, X, seed=seed),
    "fit": lambda seed: fitted(
        lambda e: mb.fit(e, X, X, steps=2, batch_size=4, seed=seed)
    ),
    "fit_many": lambda seed: fitted(
        lambda e: mb.fit_many([e], X, X, steps=2, batch_size=4, seeds=[seed])
    ),
    "evaluate": lambda seed: torch.tensor(
        mb.evaluate(mb.CLUB(conditional=mb.StudentT(2, 2, 4)), (X, X), seed=seed).nats
    ),
    "sample": lambda seed: mb.TASKS["gaussian-2"].sample(3, seed=seed)[0],
}  # fmt: skip


@pytest.mark.parametrize("draw", DRAWS)
def test_a_seed_is_a_new_generator(draw):
    def value(seed):
        torch.manual_seed(9)
        return DRAWS[draw](seed)

    generator = torch.Generator().manual_seed(1)
    first = value(1)
    torch.testing.assert_close(value(generator), first, rtol=0, atol=0)
    torch.testing.assert_close(value(1), first, rtol=0, atol=0)
    for other in (2, generator, None):  # the generator has moved on
        assert not torch.equal(value(other), first)


def test_other_seeds_are_refused(unchecked):
    with pytest.raises(ValueError, match=r"Expected seed to be an integer, .* but got float; pass"):
        make_generator(0.5)
