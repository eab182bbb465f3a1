"""Each equation as it is written, with loops and N x N x D tensors: the judge of the fast paths."""

import math

import torch


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
