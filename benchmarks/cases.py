"""Samples for trust.py: pairs with a common cause, and data such as people bring along."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Samples = tuple[np.ndarray, np.ndarray, np.ndarray]


@dataclass(frozen=True)
class Conditional:
    """x and y with a common cause z, and perhaps more.

    Args:
        draw: x, y and z of so many rows.
        dependent: whether x and y are dependent given z.
    """

    draw: Callable[[int, np.random.Generator], Samples]
    dependent: bool = False


def _line(n, rng, effect=0.0):
    z, e, f = rng.normal(size=(3, n))
    return z + e, -z + effect * e + f, z


def _waves(n, rng, effect=0.0):
    z, e, f = rng.normal(size=(3, n))
    return np.sin(3 * z) + 0.4 * e, np.cos(3 * z) + np.sin(3 * z) + 0.4 * (effect * e + f), z


def _kinks(n, rng, effect=0.0):
    z, e, f = rng.normal(size=(3, n))
    x = np.abs(z) + (0.2 + z**2 / 2) * e
    return x, 2 * np.maximum(z, 0) + (1 + np.abs(z)) * (effect * (e**2 - 1) + f) / 2, z


def _columns(n, rng, effect=0.0):
    z, e = rng.normal(size=(n, 4)), rng.normal(size=(n, 3))
    x = np.stack([z[:, 0] * z[:, 1] + e[:, 0] / 2, np.sin(2 * z[:, 2]) + e[:, 1] / 2], 1)
    return x, z[:, 2] + z[:, 0] * z[:, 1] + (effect * e[:, 0] + e[:, 2]) / 2, z


def _tails(n, rng, effect=0.0):
    z, e, f = rng.standard_t(2, size=(3, n))
    return z + e, z + effect * e + f, z


def _label(n, rng, effect=0.0):
    z, (e, f) = rng.integers(5, size=n), rng.normal(size=(2, n))
    return z + e, (z - 2) ** 2 + effect * e + f, z


def _mixed(n, rng, effect=0.0):
    label, (z, e, f) = rng.integers(2, size=n), rng.normal(size=(3, n))
    x = np.where(label, z, -z) + e
    return x, np.where(label, z**2, z) + effect * e * np.sign(z) + f, np.stack([label, z], 1)


def _with(draw, effect):
    return Conditional(lambda n, rng: draw(n, rng, effect), effect != 0)


CONDITIONAL = {
    "line": _with(_line, 0.0),
    "waves": _with(_waves, 0.0),
    "kinks, noise that grows": _with(_kinks, 0.0),
    "four columns": _with(_columns, 0.0),
    "heavy tails": _with(_tails, 0.0),
    "label of 5": _with(_label, 0.0),
    "label and number": _with(_mixed, 0.0),
    "line, and 0.3 of x": _with(_line, 0.3),
    "waves, and 0.3 of x": _with(_waves, 0.3),
    "kinks, and a square of x": _with(_kinks, 0.3),
    "four columns, and 0.3 of x": _with(_columns, 0.3),
    "label of 5, and 0.3 of x": _with(_label, 0.3),
    "label and number, and a sign": _with(_mixed, 0.5),
}


@dataclass(frozen=True)
class Stranger:
    """Data such as people bring along.

    Args:
        draw: x and y of so many rows.
        rows: how many.
        nats: what they share, or at least share where the truth is not known.
        known: whether it is the truth.
        budget: of the estimate.
    """

    draw: Callable[[int, np.random.Generator], tuple[np.ndarray, np.ndarray]]
    rows: int
    nats: float
    known: bool = True
    budget: str = "default"


def _ages(n, rng):
    return rng.integers(18, 90, size=n), rng.integers(2, size=n)


def _rounded(correlation):
    def draw(n, rng):
        x, noise = rng.normal(size=(2, n))
        y = correlation * x + np.sqrt(1 - correlation**2) * noise
        return x.round(2), y.round(2)

    return draw


def _weak(n, rng):
    x, noise = rng.normal(size=(2, n))
    return x, 0.3 * x + noise


def _unlikely_label(n, rng):
    label = (rng.random(n) < 0.37).astype(int)
    return label[:, None] * 1.0 + rng.normal(size=(n, 4)), label


def _code(n, rng):
    label = rng.integers(2, size=n)
    turn = np.linalg.qr(np.random.default_rng(0).normal(size=(16, 16)))[0]
    return (
        0.75 * (2 * label - 1)[:, None] * np.eye(16)[0] + rng.normal(size=(n, 16))
    ) @ turn, label


def _digits(n, rng):
    from sklearn.datasets import load_digits

    digits: Any = load_digits()
    pixels = digits.data.astype(int).reshape(-1, 8, 8)[rng.permutation(1797)[:n]]
    return pixels[:, :, :4].reshape(n, 32), pixels[:, :, 4:].reshape(n, 32)


def _two_clouds(p: float, distance: float) -> float:
    """Nats between a label of probability p and a normal whose mean it moves by a distance."""
    x = np.linspace(-12, 12 + distance, 100_001)
    parts = np.stack([(1 - p) * np.exp(-(x**2) / 2), p * np.exp(-((x - distance) ** 2) / 2)])
    parts /= np.sqrt(2 * np.pi)
    whole = parts.sum(0)
    entropy = -p * np.log(p) - (1 - p) * np.log(1 - p)
    terms = np.where(parts > 0, parts * np.log(np.maximum(parts, 1e-300) / whole), 0.0)
    return float(entropy + terms.sum() * (x[1] - x[0]))


STRANGERS = {
    "age against an independent coin": Stranger(_ages, 500, 0.0),
    "two decimals, independent": Stranger(_rounded(0.0), 569, 0.0),
    "two decimals, correlation 0.75": Stranger(
        _rounded(0.75), 569, float(-0.5 * np.log(1 - 0.75**2))
    ),
    "a label of 37 % and four columns": Stranger(_unlikely_label, 1000, _two_clouds(0.37, 2.0)),
    "a code of 16 columns and a label, fast": Stranger(
        _code, 1000, _two_clouds(0.5, 1.5), budget="fast"
    ),
    "0.3 x and noise": Stranger(_weak, 300, float(0.5 * np.log(1.09))),
    "digits, left and right half": Stranger(_digits, 1797, 1.55, known=False),
    "digits, left and right half, fast": Stranger(_digits, 1797, 1.55, known=False, budget="fast"),
}
