"""Each equation as it is written, with loops and N x N x D tensors: the judge of the fast paths.

`EQUATIONS` has one for each name in `mibounds.ESTIMATORS`. It takes the scores of all pairs, the
estimator and the samples. A new bound adds its equation here; the laws that tests check find it.
"""

import inspect
import math

import torch


def scores(estimator, x, y):
    """[i, j] = log q(y_j|x_i), or the critic's f(x_i, y_j), one y after the other."""
    if estimator.has_conditional:
        p = estimator.conditional(x)
        return torch.stack([p.log_prob(each.expand_as(y)) for each in y], 1)
    return torch.stack([estimator.critic(x, each.expand_as(y)) for each in y], 1)


def equation(estimator, x, y):
    """The estimator's value by the equation of its name."""
    return EQUATIONS[estimator.name](scores(estimator, x, y), estimator, x, y)


def next_ones(n):
    """Negatives that leave nothing to chance: the sample that follows."""
    return ((torch.arange(n) + 1) % n)[:, None]


def fixed_value(estimator, x, y, index=None):
    """The estimator's value, with these negatives where it would draw some."""
    if "index" in inspect.signature(estimator.forward).parameters:
        return estimator(x, y, index=next_ones(len(y)) if index is None else index)
    return estimator(x, y)


def log_normal(y, mu, var):
    """log N(y_j | mu_i, var_i), [i, j], through the N x N x D tensor."""
    square = (y[None, :, :] - mu[:, None, :]) ** 2 / var[:, None, :]
    return (-0.5 * square - 0.5 * var.log()[:, None, :] - 0.5 * math.log(2 * math.pi)).sum(-1)


def off_diagonal(s):
    n = len(s)
    return [s[i, j] for i in range(n) for j in range(n) if i != j]


def pool(s, negatives):
    return torch.stack(off_diagonal(s)) if negatives == "others" else s.flatten()


def club(s, negatives):
    n = len(s)
    total = sum(s[i, i] - s[i, j] for i in range(n) for j in range(n))
    return total / (n * (n - 1) if negatives == "others" else n * n)


def club_sample(s, index):
    n, k = index.shape
    return sum(s[i, i] - s[i, index[i, j]] for i in range(n) for j in range(k)) / (n * k)


def l1out(s):
    n = len(s)
    total = 0.0
    for i in range(n):
        mixture = sum(s[j, i].exp() for j in range(n) if j != i) / (n - 1)
        total = total + s[i, i] - mixture.log()
    return total / n


def dv(s, negatives):
    return s.diagonal().mean() - pool(s, negatives).exp().mean().log()


def nwj(s, negatives):
    return s.diagonal().mean() - (pool(s, negatives) - 1).exp().mean()


def infonce(s):
    n = len(s)
    return sum(s[i, i] - s[i].exp().mean().log() for i in range(n)) / n


def tuba(s, log_a, negatives):
    ratio = s - log_a[None, :]
    return 1 + ratio.diagonal().mean() - pool(ratio, negatives).exp().mean()


def tuba_interpolated(s, log_a, alpha):
    """K = N - 1 in both terms; in the joint one, every choice of the x left out in turn."""
    n = len(s)
    e, a = s.exp(), log_a.exp()
    joint = product = 0.0
    for j in range(n):
        for k in (k for k in range(n) if k != j):
            m = sum(e[i, j] for i in range(n) if i != k) / (n - 1)
            joint = joint + s[j, j] - (alpha * m + (1 - alpha) * a[j]).log()
        m = sum(e[i, j] for i in range(n) if i != j) / (n - 1)
        for i in (i for i in range(n) if i != j):
            product = product + e[i, j] / (alpha * m + (1 - alpha) * a[j])
    return 1 + (joint - product) / (n * (n - 1))


def js(s, negatives):
    positive = (1 / (1 + (-s.diagonal()).exp())).log().mean()
    return positive - (1 + pool(s, negatives).exp()).log().mean()


def smile(s, clip, negatives):
    return s.diagonal().mean() - pool(s, negatives).clamp(-clip, clip).exp().mean().log()


def flo(s, u, negatives):
    n = len(s)
    total = 0.0
    for i in range(n):
        others = [j for j in range(n) if negatives == "all" or j != i]
        contrast = sum((s[i, j] - s[i, i]).exp() for j in others) / len(others)
        total = total + 1 - u[i] - (-u[i]).exp() * contrast
    return total / n


def fitted_entropy(y):
    """Of the Gaussian of maximum likelihood."""
    return 0.5 * (y.shape[1] * (1 + math.log(2 * math.pi)) + torch.cov(y.T, correction=0).logdet())


def log_standard_normal(y):
    return -0.5 * (y.square() + math.log(2 * math.pi)).sum(1)


def log_marginal(marginal, y):
    return marginal(y.new_zeros(len(y), 0)).log_prob(y)


EQUATIONS = {
    "club": lambda s, e, x, y: club(s, e.negatives),
    "club_sample": lambda s, e, x, y: club_sample(s, next_ones(len(s))),
    "l1out": lambda s, e, x, y: l1out(s),
    "vub": lambda s, e, x, y: (s.diagonal() - log_standard_normal(y)).mean(),
    "ba": lambda s, e, x, y: s.diagonal().mean() + fitted_entropy(y),
    "doe": lambda s, e, x, y: (s.diagonal() - log_marginal(e.marginal, y)).mean(),
    "dv": lambda s, e, x, y: dv(s, e.negatives),
    "mine": lambda s, e, x, y: dv(s, e.negatives),
    "nwj": lambda s, e, x, y: nwj(s, e.negatives),
    "infonce": lambda s, e, x, y: infonce(s),
    "tuba": lambda s, e, x, y: tuba(s, e.log_baseline(y), e.negatives),
    "js": lambda s, e, x, y: nwj(1 + s, e.negatives),
    "smile": lambda s, e, x, y: smile(s, e.clip, e.negatives),
    "flo": lambda s, e, x, y: flo(s, e.potential(x, y), e.negatives),
}
