"""Estimators with a critic f(x, y): lower bounds, and two that are learnt by Jensen-Shannon."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from mibounds import bounds
from mibounds.bounds.from_critics import LIMIT, check_limit
from mibounds.critics import ConcatCritic, Critic
from mibounds.critics.base import score_pairs
from mibounds.estimators.base import Estimator, dims_or_part
from mibounds.networks import MLP, Hidden, Standardiser
from mibounds.samples.batches import Batch
from mibounds.samples.checks import Group, check_pair, check_real
from mibounds.samples.pairs import Negatives, Pairs, check_negatives

if TYPE_CHECKING:
    from jaxtyping import Float, Shaped


class CriticEstimator(Estimator):
    """A bound that needs a critic f(x, y).

    Args:
        x_dim: columns of x.
        y_dim: columns of y.
        hidden: hidden units of the default critic, `ConcatCritic`.
        critic: instead of those three, a module or any callable from n pairs to n scores.
        negatives: "others" leaves the pairs (x_i, y_i) out of the product of the marginals; "all"
            keeps them, which caps the value at log N (not that of SMILE; InfoNCE is always "all");
            "sequences" takes only parts of other sequences.
    """

    has_conditional = False
    weighted = True

    def __init__(
        self,
        x_dim: int | None = None,
        y_dim: int | None = None,
        hidden: Hidden = 64,
        *,
        critic: Callable[[Tensor, Tensor], Tensor] | None = None,
        negatives: Negatives = "others",
    ):
        super().__init__()
        dims = dims_or_part(type(self).__name__, x_dim, y_dim, "critic", critic)
        self.critic = critic or ConcatCritic(*dims, hidden)
        self.negatives: Negatives = check_negatives(negatives)

    def forward(
        self,
        x: Shaped[Tensor, "n *x"],
        y: Shaped[Tensor, "n *y"],
        *,
        group: Group = None,
    ) -> Float[Tensor, ""]:
        """The bound on a batch of samples, in nats."""
        return self.from_scores(self.scores(x, y, group), x, y)

    def loss(
        self,
        x: Shaped[Tensor, "n *x"],
        y: Shaped[Tensor, "n *y"],
        *,
        group: Group = None,
    ) -> Float[Tensor, ""]:
        """What to minimise to fit the critic: minus the bound, unless said otherwise."""
        self.observe(x, y, group)
        return -self.forward(x, y, group=group)

    def ceiling(self, n: int) -> float:
        """Log n where the given pairs stand among the negatives of a capped bound."""
        return math.log(n) if self.capped and self.negatives == "all" else math.inf

    @abstractmethod
    def from_scores(self, scores: Pairs, x: Tensor, y: Tensor) -> Tensor:
        """The bound from the scores of all pairs."""

    def compile(self, *args: object, **kwargs: object) -> None:
        """Compile what is worth it, the scoring of all pairs; value and gradient stay the same."""
        if isinstance(self.critic, nn.Module):
            self.critic.compile(*args, **kwargs)

    def observe(self, x: Tensor, y: Tensor, group: Group) -> None:
        """Let the learnable parts see the scale of the data, while training."""
        batch = check_pair(x, y, group)
        if self.training and isinstance(self.critic, Critic):
            self.critic.observe(x, y, batch)

    def scores(
        self,
        x: Shaped[Tensor, "n *x"],
        y: Shaped[Tensor, "n *y"],
        group: Group = None,
    ) -> Pairs:
        """Scores of all pairs, [i, j] = f(x_i, y_j), as `from_scores` takes them."""
        return score_pairs(self.critic, x, y, check_pair(x, y, group))


class DV(CriticEstimator):
    """Donsker-Varadhan bound; see [`mibounds.bounds.dv`][].

    Example:
        >>> nats = DV(3, 2, 16)(torch.randn(64, 3), torch.randn(64, 2))
    """

    name = "dv"
    side = "lower"
    condition = 'negatives="all", or many: the logarithm of a sample mean is biased upwards'
    cost = "N² H"
    equation = "3"
    reference = "Donsker and Varadhan 1983"
    exploding = True
    capped = True

    def from_scores(self, scores: Pairs, x: Tensor, y: Tensor) -> Tensor:
        return bounds.dv(scores, self.negatives)


class MINE(CriticEstimator):
    """Donsker-Varadhan bound, learnt with a less biased gradient; see [`mibounds.bounds.mine`][].

    Args:
        x_dim: columns of x.
        y_dim: columns of y.
        hidden: hidden units of the default critic.
        critic: learnt or known critic, instead of the default.
        negatives: whether the diagonal stands among the negatives.
        rate: weight of a new batch in the moving average.

    Example:
        >>> nats = MINE(3, 2, 16)(torch.randn(64, 3), torch.randn(64, 2))
    """

    name = "mine"
    side = "lower"
    condition = DV.condition
    cost = "N² H"
    equation = "3"
    reference = "Belghazi et al. 2018, equation 12 and section 3.2"
    exploding = True
    capped = True
    log_average: Tensor

    def __init__(
        self,
        x_dim: int | None = None,
        y_dim: int | None = None,
        hidden: Hidden = 64,
        *,
        critic: Callable[[Tensor, Tensor], Tensor] | None = None,
        negatives: Negatives = "others",
        rate: float = 0.01,
    ):
        super().__init__(x_dim, y_dim, hidden, critic=critic, negatives=negatives)
        if not 0 < rate <= 1:
            raise ValueError(f"Expected 0 < rate <= 1 but got {rate}; leave it out for 0.01.")
        self.rate = rate
        self.register_buffer("log_average", torch.tensor(-math.inf))

    def from_scores(self, scores: Pairs, x: Tensor, y: Tensor) -> Tensor:
        return bounds.dv(scores, self.negatives)

    def loss(
        self,
        x: Shaped[Tensor, "n *x"],
        y: Shaped[Tensor, "n *y"],
        *,
        group: Group = None,
    ) -> Float[Tensor, ""]:
        """Minus the bound, with the gradient of the moving average; moves that average."""
        self.observe(x, y, group)
        scores = self.scores(x, y, group)
        value, log_average = bounds.mine(scores, self.log_average, self.rate, self.negatives)
        if self.training:  # one bad batch must not spoil the average
            old = self.log_average.to(log_average.dtype)
            self.log_average = torch.where(log_average.isfinite(), log_average, old)
        return -value


class NWJ(CriticEstimator):
    """Nguyen-Wainwright-Jordan bound; see [`mibounds.bounds.nwj`][].

    Args:
        x_dim: columns of x.
        y_dim: columns of y.
        hidden: hidden units of the default critic.
        critic: learnt or known critic, instead of the default.
        negatives: whether the diagonal stands among the negatives.
        limit: from which on the gradient grows no more; 3 for calmer learning.

    Example:
        >>> nats = NWJ(3, 2, 16, limit=3.0)(torch.randn(64, 3), torch.randn(64, 2))
    """

    name = "nwj"
    side = "lower"
    condition = "always"
    cost = "N² H"
    equation = "4"
    reference = "Nguyen, Wainwright and Jordan 2010"
    exploding = True
    capped = True

    def __init__(
        self,
        x_dim: int | None = None,
        y_dim: int | None = None,
        hidden: Hidden = 64,
        *,
        critic: Callable[[Tensor, Tensor], Tensor] | None = None,
        negatives: Negatives = "others",
        limit: float = LIMIT,
    ):
        super().__init__(x_dim, y_dim, hidden, critic=critic, negatives=negatives)
        check_limit(limit)
        self.limit = limit

    def from_scores(self, scores: Pairs, x: Tensor, y: Tensor) -> Tensor:
        return bounds.nwj(scores, self.negatives, self.limit)


class InfoNCE(CriticEstimator):
    """InfoNCE, at most log N; see [`mibounds.bounds.infonce`][].

    Args:
        x_dim: columns of x.
        y_dim: columns of y.
        hidden: hidden units of the default critic.
        critic: learnt or known critic, instead of the default.

    Example:
        >>> nats = InfoNCE(3, 2, 16)(torch.randn(64, 3), torch.randn(64, 2))
    """

    name = "infonce"
    side = "lower"
    condition = "always, and never above log N"
    cost = "N² H"
    equation = "5"
    reference = "van den Oord et al. 2018"
    capped = True
    weighted = False

    def __init__(
        self,
        x_dim: int | None = None,
        y_dim: int | None = None,
        hidden: Hidden = 64,
        *,
        critic: Callable[[Tensor, Tensor], Tensor] | None = None,
    ):
        super().__init__(x_dim, y_dim, hidden, critic=critic, negatives="all")

    def from_scores(self, scores: Pairs, x: Tensor, y: Tensor) -> Tensor:
        return bounds.infonce(scores)


class TUBA(CriticEstimator):
    """TUBA and its interpolation with InfoNCE; see [`mibounds.bounds.tuba`][].

    Args:
        x_dim: columns of x.
        y_dim: columns of y.
        hidden: hidden units of the default critic and of the default baseline.
        critic: learnt or known critic, instead of the default.
        negatives: whether the diagonal stands among the negatives; only with ``alpha=0``.
        alpha: 0 for TUBA, 1 for InfoNCE, anything between for
            [`mibounds.bounds.tuba_interpolated`][].
        log_baseline: log a(y), a callable from n samples y to n numbers. If left out it is learnt;
            beside a critic that is a plain callable it is 0.

    Example:
        >>> nats = TUBA(3, 2, 16, alpha=0.5)(torch.randn(64, 3), torch.randn(64, 2))
    """

    name = "tuba"
    side = "lower"
    condition = "always"
    cost = "N² H"
    reference = "Poole et al. 2019, sections 2.2 and 2.4"
    exploding = True
    capped = True

    def __init__(
        self,
        x_dim: int | None = None,
        y_dim: int | None = None,
        hidden: Hidden = 64,
        *,
        critic: Callable[[Tensor, Tensor], Tensor] | None = None,
        negatives: Negatives = "others",
        alpha: float = 0.0,
        log_baseline: Callable[[Tensor], Tensor] | None = None,
    ):
        super().__init__(x_dim, y_dim, hidden, critic=critic, negatives=negatives)
        if not 0 <= alpha <= 1:
            raise ValueError(
                f"Expected 0 <= alpha <= 1 but got {alpha}; pass 0 for TUBA, 1 for InfoNCE."
            )
        if alpha > 0 and negatives != "others":
            raise ValueError(
                f'Expected negatives="others" with alpha > 0 but got {negatives!r}; '
                "leave negatives or alpha out."
            )
        self.alpha = alpha
        self.weighted = alpha == 0
        if log_baseline is None and isinstance(self.critic, Critic):
            log_baseline = _Baseline(self.critic.y_dim, hidden)
        self.log_baseline = log_baseline

    def from_scores(self, scores: Pairs, x: Tensor, y: Tensor) -> Tensor:
        if self.log_baseline is None:
            log_baseline = torch.zeros_like(scores.diagonal)
        else:
            log_baseline = _vector("log_baseline", self.log_baseline(y), len(y))
        log_baseline = scores.batch.gather(log_baseline)
        if self.alpha > 0:
            return bounds.tuba_interpolated(scores, log_baseline, self.alpha)
        return bounds.tuba(scores, log_baseline, self.negatives)

    def observe(self, x: Tensor, y: Tensor, group: Group) -> None:
        super().observe(x, y, group)
        if self.training and isinstance(self.log_baseline, _Baseline):
            self.log_baseline.observe(y, check_pair(x, y, group))


class _Baseline(nn.Module):
    """log a(y) of TUBA."""

    def __init__(self, y_dim: int, hidden: Hidden):
        super().__init__()
        self.y_dim = y_dim
        self.y_standard = Standardiser(y_dim)
        self.net = MLP(y_dim, hidden, 1)

    def forward(self, y: Tensor) -> Tensor:
        return self.net(self.y_standard(self._check(y))).squeeze(-1)

    def observe(self, y: Tensor, batch: Batch) -> None:
        self.y_standard.observe(self._check(y), batch)

    def _check(self, y: Tensor) -> Tensor:
        return check_real("y", y, self.y_dim, self.y_standard.mean)


class JS(CriticEstimator):
    """A critic learnt by the Jensen-Shannon objective, its log-ratio put into NWJ.

    Reference: [`mibounds.bounds.js`][] for learning, [`mibounds.bounds.nwj`][] of 1 + f for the
    value; Poole, section 2.6.

    Example:
        >>> nats = JS(3, 2, 16)(torch.randn(64, 3), torch.randn(64, 2))
    """

    name = "js"
    side = "lower"
    condition = "always"
    cost = "N² H"
    reference = "Nowozin et al. 2016, table 6; Hjelm et al. 2019, equation 4"
    exploding = True
    capped = True

    def from_scores(self, scores: Pairs, x: Tensor, y: Tensor) -> Tensor:
        nothing = scores.diagonal.new_zeros(scores.batch.size)
        return bounds.tuba(scores, nothing, self.negatives)  # with baseline 1: NWJ of 1 + f

    def loss(
        self,
        x: Shaped[Tensor, "n *x"],
        y: Shaped[Tensor, "n *y"],
        *,
        group: Group = None,
    ) -> Float[Tensor, ""]:
        """Minus the Jensen-Shannon objective, which is not the value."""
        self.observe(x, y, group)
        return -bounds.js(self.scores(x, y, group), self.negatives)


class SMILE(CriticEstimator):
    """A critic learnt by the Jensen-Shannon objective, with a clipped partition function.

    Reference: [`mibounds.bounds.js`][] for learning, [`mibounds.bounds.smile`][] for the value.

    Args:
        x_dim: columns of x.
        y_dim: columns of y.
        hidden: hidden units of the default critic.
        critic: learnt or known critic, instead of the default.
        negatives: whether the diagonal stands among the negatives.
        clip: where to clip.

    Example:
        >>> nats = SMILE(3, 2, 16)(torch.randn(64, 3), torch.randn(64, 2))
    """

    name = "smile"
    side = "neither"
    condition = "clipping makes the partition function too small or too large"
    cost = "N² H"
    reference = "Song and Ermon 2020, section 5"

    def __init__(
        self,
        x_dim: int | None = None,
        y_dim: int | None = None,
        hidden: Hidden = 64,
        *,
        critic: Callable[[Tensor, Tensor], Tensor] | None = None,
        negatives: Negatives = "others",
        clip: float = 5.0,
    ):
        super().__init__(x_dim, y_dim, hidden, critic=critic, negatives=negatives)
        if not clip > 0:
            raise ValueError(
                f"Expected clip > 0 but got {clip}; leave it out for 5, or pass math.inf for none."
            )
        self.clip = clip

    def from_scores(self, scores: Pairs, x: Tensor, y: Tensor) -> Tensor:
        return bounds.smile(scores, self.clip, self.negatives)

    loss = JS.loss


class FLO(CriticEstimator):
    """Fenchel-Legendre bound with a second critic; see [`mibounds.bounds.flo`][].

    Args:
        x_dim: columns of x.
        y_dim: columns of y.
        hidden: hidden units of the default critic and of the default potential.
        critic: learnt or known critic, instead of the default.
        negatives: whether the diagonal stands among the negatives.
        potential: u(x, y), a callable from n pairs to n numbers. If left out it is learnt; beside a
            critic that is a plain callable it is -f, the best where f is the log-ratio.

    Example:
        >>> nats = FLO(3, 2, 16)(torch.randn(64, 3), torch.randn(64, 2))
    """

    name = "flo"
    side = "lower"
    condition = "always"
    cost = "N² H"
    reference = "Guo et al. 2022, section 3"
    exploding = True
    capped = True

    def __init__(
        self,
        x_dim: int | None = None,
        y_dim: int | None = None,
        hidden: Hidden = 64,
        *,
        critic: Callable[[Tensor, Tensor], Tensor] | None = None,
        negatives: Negatives = "others",
        potential: Callable[[Tensor, Tensor], Tensor] | None = None,
    ):
        super().__init__(x_dim, y_dim, hidden, critic=critic, negatives=negatives)
        if potential is None and isinstance(self.critic, Critic):
            potential = ConcatCritic(self.critic.x_dim, self.critic.y_dim, hidden)
        self.potential = potential

    def from_scores(self, scores: Pairs, x: Tensor, y: Tensor) -> Tensor:
        if self.potential is None:
            u = -scores.diagonal
        else:
            u = _vector("potential", self.potential(x, y), len(x))
        return bounds.flo(scores, u, self.negatives)

    def observe(self, x: Tensor, y: Tensor, group: Group) -> None:
        super().observe(x, y, group)
        if self.training and isinstance(self.potential, Critic):
            self.potential.observe(x, y, check_pair(x, y, group))


def _vector(name: str, values: Tensor, n: int) -> Tensor:
    """One number per sample, also where a network gives them as a column."""
    if values.shape not in ((n,), (n, 1)):
        raise ValueError(
            f"Expected {name} to give one number for each of {n} samples, shape ({n},), "
            f"but got {tuple(values.shape)}; return a tensor with one number per row."
        )
    return values.flatten()
