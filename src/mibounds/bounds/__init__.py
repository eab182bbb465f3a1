"""Bounds on mutual information as pure functions: log-densities or scores in, nats out.

One convention holds throughout. A matrix ``scores`` has

    scores[i, j] = score(x_i, y_j),

where the score is log q(y|x) for the bounds that need a conditional, and f(x, y) for those that
need a critic. The diagonal holds the pairs of the *joint* distribution, everything else pairs of
the *product of the marginals*. ``log_prob`` is only that diagonal, log q(y_i|x_i).

Two choices are common to most bounds.

*Which axis.* CLUB and InfoNCE contrast y_i with other y's for a fixed x_i (along a row); L1Out,
TUBA and its interpolation contrast x_i with other x's for a fixed y_i (along a column).

*Which negatives.* ``negatives="others"`` leaves the diagonal out: x_i and y_j are then independent
and sample means over them are unbiased. ``negatives="all"`` keeps it. For CLUB this is the paper's
1/N² form, too small by the factor 1 - 1/N. For a critic bound the positive pair then stands in its
own denominator, and the estimate can *never exceed log N* (4.16 nats at N = 64), whatever the
truth: log mean_j exp f(x_i, y_j) >= f(x_i, y_i) - log N. InfoNCE has this ceiling by definition;
SMILE, which clips its denominator, has none in either case.

Wherever a matrix of scores is taken, a `mibounds.samples.pairs.Pairs` may stand in its place: the
scores are then computed in blocks, and may be spread over processes.

Names of equations: "CLUB" is Cheng et al., *CLUB: A Contrastive Log-ratio Upper Bound of Mutual
Information*, ICML 2020; "Poole" is Poole et al., *On Variational Bounds of Mutual Information*,
ICML 2019. A bound is a statement about expectations: the value on one batch scatters around it.
"""

from mibounds.bounds.from_conditionals import (
    Draw,
    ba,
    club,
    club_sample,
    doe,
    draw_negatives,
    l1out,
    vub,
    vub_kl,
)
from mibounds.bounds.from_critics import (
    dv,
    flo,
    infonce,
    js,
    mine,
    nwj,
    smile,
    tuba,
    tuba_interpolated,
)

__all__ = [
    "Draw",
    "ba",
    "club",
    "club_sample",
    "doe",
    "draw_negatives",
    "dv",
    "flo",
    "infonce",
    "js",
    "l1out",
    "mine",
    "nwj",
    "smile",
    "tuba",
    "tuba_interpolated",
    "vub",
    "vub_kl",
]
