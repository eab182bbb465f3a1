"""Critics f(x, y): modules that score pairs.

``critic(x, y)`` scores given pairs, row by row; ``critic.pairs(x, y)`` scores every x against every
y, [i, j] = f(x_i, y_j). Any callable of the first kind can stand in for a critic, such as a known
log-ratio. All of these standardise x and y themselves, by what they have observed.
"""

from mibounds.critics.base import Critic
from mibounds.critics.concat import ConcatCritic
from mibounds.critics.separable import BilinearCritic, SeparableCritic

__all__ = [
    "BilinearCritic",
    "ConcatCritic",
    "Critic",
    "SeparableCritic",
]
