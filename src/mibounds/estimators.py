"""Estimators: a conditional or a critic, together with a bound.

Each has two verbs. ``estimator(x, y)`` is the bound on a batch of samples, in nats, and can be
differentiated; it changes nothing. ``estimator.learning_loss(x, y)`` is what to minimise to fit the
conditional or critic; in training mode it also lets them see the scale of the data.

Each states a fact: ``bound`` is "upper", "lower" or "neither", and ``condition`` says under which
condition. For q(y|x) it matters which variable is which: x is what q is given, y what it predicts.
A model of x given y is the same estimator with the arguments swapped.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor, nn
from torch.distributions import Distribution

from mibounds import bounds, functional
from mibounds.bounds import Draw, Negatives
from mibounds.conditionals import Bernoulli, Categorical, Conditional, Gaussian, GaussianMixture
from mibounds.critics import ConcatCritic, Critic, score_pairs
from mibounds.densities import check_distribution, log_prob
from mibounds.nn import MLP, Hidden, Standardizer
from mibounds.samples import check_pair, check_real

if TYPE_CHECKING:
    from jaxtyping import Float, Int, Shaped

Side = Literal["upper", "lower", "neither"]

# --- with a conditional -----------------------------------------------------------------------------


class ConditionalEstimator(nn.Module, ABC):
    """A bound that needs q(y|x), or the known p(y|x).

    Args:
        x_dim: columns of x.
        y_dim: columns of y.
        hidden: hidden units of the default conditional, a diagonal :class:`Gaussian`.
        conditional: instead of those three, a module or any callable from x to a Distribution with
            batch shape (n,). With a plain callable there is nothing to learn.
    """

    bound: Side
    condition: str

    def __init__(
        self,
        x_dim: int | None = None,
        y_dim: int | None = None,
        hidden: Hidden = 64,
        *,
        conditional: Callable[[Tensor], Distribution] | None = None,
    ):
        super().__init__()
        if conditional is None:
            conditional = Gaussian(*_check_dims(self, "conditional", x_dim, y_dim), hidden)
        else:
            _check_no_dims(self, "conditional", conditional, x_dim, y_dim)
        self.conditional = conditional

    @abstractmethod
    def forward(self, x: Shaped[Tensor, "n *x"], y: Shaped[Tensor, "n *y"]) -> Float[Tensor, ""]:
        """The bound on a batch of samples, in nats."""

    def loglikeli(self, x: Shaped[Tensor, "n *x"], y: Shaped[Tensor, "n *y"]) -> Float[Tensor, ""]:
        """Mean log-likelihood of the samples, 1/N Σ log q(y_i|x_i), in nats."""
        return log_prob(*self._distribution(x, y)).mean()

    def learning_loss(
        self, x: Shaped[Tensor, "n *x"], y: Shaped[Tensor, "n *y"]
    ) -> Float[Tensor, ""]:
        """Negative log-likelihood: what to minimise to fit q. A constant where p(y|x) is known."""
        check_pair(x, y)
        if self.training and isinstance(self.conditional, Conditional):
            self.conditional.observe(x, y)
        loss = -self.loglikeli(x, y)
        return loss if isinstance(self.conditional, nn.Module) else loss.detach()

    def _distribution(self, x: Tensor, y: Tensor) -> tuple[Distribution, Tensor]:
        """The conditional at x, and y in the shape of its events."""
        check_pair(x, y)
        if isinstance(self.conditional, Conditional):
            y = self.conditional.check_y(y)
        p = self.conditional(x)
        check_distribution(p, y)
        return p, y


class CLUB(ConditionalEstimator):
    """Contrastive log-ratio upper bound over all pairs; see :func:`mibounds.bounds.club`.

    Something to *minimise*: as a number it lies above MI, the further the better q is. For d
    Gaussian pairs the exact conditional gives d (exp(2 MI/d) - 1).

    Args:
        x_dim: columns of x.
        y_dim: columns of y.
        hidden: hidden units of the default conditional, a diagonal :class:`Gaussian`.
        conditional: learnt or known conditional, instead of the default.
        negatives: "others" for the unbiased sum, "all" for the paper's 1/N².

    Example:
        >>> estimator = CLUB(3, 2, 16)
        >>> x, y = torch.randn(64, 3), torch.randn(64, 2)
        >>> estimator.learning_loss(x, y).backward()  # fit q with an optimiser of its own ...
        >>> nats = estimator(x, y)  # ... then measure, or minimise
    """

    bound = "upper"
    condition = "q is p(y|x), or nearer to p(x, y) than to p(x) p(y) (CLUB, Theorem 3.2)"

    def __init__(
        self,
        x_dim: int | None = None,
        y_dim: int | None = None,
        hidden: Hidden = 64,
        *,
        conditional: Callable[[Tensor], Distribution] | None = None,
        negatives: Negatives = "others",
    ):
        super().__init__(x_dim, y_dim, hidden, conditional=conditional)
        self.negatives: Negatives = negatives

    def forward(self, x: Shaped[Tensor, "n *x"], y: Shaped[Tensor, "n *y"]) -> Float[Tensor, ""]:
        """The bound on a batch of samples, in nats."""
        return functional.club(*self._distribution(x, y), negatives=self.negatives)


class CLUBSample(ConditionalEstimator):
    """CLUB with k sampled negatives a sample; see :func:`mibounds.bounds.club_sample`.

    Args:
        x_dim: columns of x.
        y_dim: columns of y.
        hidden: hidden units of the default conditional, a diagonal :class:`Gaussian`.
        conditional: learnt or known conditional, instead of the default.
        k: negatives a sample.
        draw: how to draw them, see :func:`mibounds.bounds.draw_negatives`; "uniform" is the paper's.

    Example:
        >>> estimator = CLUBSample(3, 2, 16, k=4)
        >>> nats = estimator(torch.randn(64, 3), torch.randn(64, 2))
    """

    bound = "upper"
    condition = CLUB.condition

    def __init__(
        self,
        x_dim: int | None = None,
        y_dim: int | None = None,
        hidden: Hidden = 64,
        *,
        conditional: Callable[[Tensor], Distribution] | None = None,
        k: int = 1,
        draw: Draw = "derangement",
    ):
        super().__init__(x_dim, y_dim, hidden, conditional=conditional)
        self.k = k
        self.draw: Draw = draw

    def forward(
        self,
        x: Shaped[Tensor, "n *x"],
        y: Shaped[Tensor, "n *y"],
        *,
        generator: torch.Generator | None = None,
        index: Int[Tensor, "n k"] | None = None,
    ) -> Float[Tensor, ""]:
        """The bound on a batch of samples, in nats.

        Args:
            x: samples.
            y: samples.
            generator: source of randomness; torch's global one if left out.
            index: negatives drawn already, for a value that can be repeated.
        """
        p, y = self._distribution(x, y)
        return functional.club_sample(
            p, y, k=self.k, draw=self.draw, generator=generator, index=index
        )


class L1Out(ConditionalEstimator):
    """Leave-one-out upper bound; see :func:`mibounds.bounds.l1out`.

    Args:
        x_dim: columns of x.
        y_dim: columns of y.
        hidden: hidden units of the default conditional, a diagonal :class:`Gaussian`.
        conditional: learnt or known conditional, instead of the default.

    Example:
        >>> nats = L1Out(3, 2, 16)(torch.randn(64, 3), torch.randn(64, 2))
    """

    bound = "upper"
    condition = "q is p(y|x), or nearer to it than its mean over x is to p(y) (CLUB, Theorem C.2)"

    def forward(self, x: Shaped[Tensor, "n *x"], y: Shaped[Tensor, "n *y"]) -> Float[Tensor, ""]:
        """The bound on a batch of samples, in nats."""
        return functional.l1out(*self._distribution(x, y))


class VUB(ConditionalEstimator):
    """Variational upper bound; see :func:`mibounds.bounds.vub` and :func:`mibounds.bounds.vub_kl`.

    Args:
        x_dim: columns of x.
        y_dim: columns of y.
        hidden: hidden units of the default conditional, a diagonal :class:`Gaussian`.
        conditional: learnt or known conditional, instead of the default.
        marginal: stand-in r(y) for the marginal: "standard" is the paper's N(0, I), "learned" a
            Gaussian that is fitted too; or a fixed Distribution of one y; or any conditional on
            nothing, such as ``GaussianMixture(0, y_dim)``, which is then fitted.
        form: "sampled" for log-densities at the samples, "kl" for the divergence in closed form,
            which holds only where the conditional is the known one that y was drawn from.

    Example:
        >>> nats = VUB(3, 2, 16)(torch.randn(64, 3), torch.randn(64, 2))
    """

    bound = "upper"
    condition = "q is p(y|x), or nearer to it than r(y) is to p(y) (CLUB, Theorem C.1)"

    def __init__(
        self,
        x_dim: int | None = None,
        y_dim: int | None = None,
        hidden: Hidden = 64,
        *,
        conditional: Callable[[Tensor], Distribution] | None = None,
        marginal: Literal["standard", "learned"] | Distribution | Conditional = "standard",
        form: Literal["sampled", "kl"] = "sampled",
    ):
        super().__init__(x_dim, y_dim, hidden, conditional=conditional)
        if form not in ("sampled", "kl"):
            raise ValueError(f'Expected form to be "sampled" or "kl" but got {form!r}.')
        if isinstance(marginal, str) and marginal == "learned":
            marginal = _marginal_for(self.conditional, Gaussian)
        elif isinstance(marginal, str) and marginal != "standard":
            raise ValueError(
                'Expected marginal to be "standard", "learned", a Distribution '
                f"or a conditional on nothing but got {marginal!r}."
            )
        self.marginal = None if isinstance(marginal, str) else marginal
        self.form = form

    def forward(self, x: Shaped[Tensor, "n *x"], y: Shaped[Tensor, "n *y"]) -> Float[Tensor, ""]:
        """The bound on a batch of samples, in nats."""
        p, y = self._distribution(x, y)
        r = self.marginal
        if isinstance(r, Conditional):
            r = _at_nothing(r, y)
        return functional.vub(p, y if self.form == "sampled" else None, r)

    def learning_loss(
        self, x: Shaped[Tensor, "n *x"], y: Shaped[Tensor, "n *y"]
    ) -> Float[Tensor, ""]:
        """Negative log-likelihood of q, and of r(y) where that is learnt."""
        loss = super().learning_loss(x, y)
        if isinstance(self.marginal, Conditional):
            loss = loss + _marginal_loss(self.marginal, y, self.training)
        return loss


class BA(ConditionalEstimator):
    """Barber-Agakov bound; see :func:`mibounds.bounds.ba`.

    Args:
        x_dim: columns of x.
        y_dim: columns of y.
        hidden: hidden units of the default conditional, a diagonal :class:`Gaussian`.
        conditional: learnt or known conditional, instead of the default.
        entropy: H(y) in nats, where it is known. If left out, that of a Gaussian fitted to the batch
            (of the frequencies, for labels): then it is no bound any more.

    Example:
        >>> BA(3, 2, entropy=2.84).bound, BA(3, 2).bound
        ('lower', 'neither')
    """

    bound = "lower"
    condition = "always, if the entropy given is the true one"

    def __init__(
        self,
        x_dim: int | None = None,
        y_dim: int | None = None,
        hidden: Hidden = 64,
        *,
        conditional: Callable[[Tensor], Distribution] | None = None,
        entropy: float | None = None,
    ):
        super().__init__(x_dim, y_dim, hidden, conditional=conditional)
        self.entropy = entropy
        if entropy is None:
            self.bound: Side = "neither"
            self.condition = "the entropy is estimated"

    def forward(self, x: Shaped[Tensor, "n *x"], y: Shaped[Tensor, "n *y"]) -> Float[Tensor, ""]:
        """The bound on a batch of samples, in nats."""
        return functional.ba(*self._distribution(x, y), entropy=self.entropy)


class DoE(ConditionalEstimator):
    """Difference of entropies, both densities learnt; see :func:`mibounds.bounds.doe`.

    Args:
        x_dim: columns of x.
        y_dim: columns of y.
        hidden: hidden units of the default conditional, a diagonal :class:`Gaussian`.
        conditional: learnt or known conditional, instead of the default.
        marginal: model of the marginal, a conditional on nothing; a mixture of Gaussians if left out.

    Example:
        >>> nats = DoE(3, 2, 16)(torch.randn(64, 3), torch.randn(64, 2))
    """

    bound = "neither"
    condition = "a difference of two upper bounds"

    def __init__(
        self,
        x_dim: int | None = None,
        y_dim: int | None = None,
        hidden: Hidden = 64,
        *,
        conditional: Callable[[Tensor], Distribution] | None = None,
        marginal: Conditional | None = None,
    ):
        super().__init__(x_dim, y_dim, hidden, conditional=conditional)
        self.marginal = marginal or _marginal_for(self.conditional, GaussianMixture)

    def forward(self, x: Shaped[Tensor, "n *x"], y: Shaped[Tensor, "n *y"]) -> Float[Tensor, ""]:
        """The estimate on a batch of samples, in nats."""
        p, y = self._distribution(x, y)
        return bounds.doe(log_prob(p, y), log_prob(_at_nothing(self.marginal, y), y))

    def learning_loss(
        self, x: Shaped[Tensor, "n *x"], y: Shaped[Tensor, "n *y"]
    ) -> Float[Tensor, ""]:
        """Negative log-likelihoods of q(y|x) and of r(y)."""
        return super().learning_loss(x, y) + _marginal_loss(self.marginal, y, self.training)


# --- with a critic ----------------------------------------------------------------------------------


class CriticEstimator(nn.Module, ABC):
    """A bound that needs a critic f(x, y).

    Args:
        x_dim: columns of x.
        y_dim: columns of y.
        hidden: hidden units of the default critic, :class:`ConcatCritic`.
        critic: instead of those three, a module or any callable from n pairs to n scores.
        negatives: "others" leaves the pairs (x_i, y_i) out of the product of the marginals; "all"
            keeps them, which caps the value at log N (InfoNCE has no such choice: always "all").
    """

    bound: Side
    condition: str

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
        if critic is None:
            critic = ConcatCritic(*_check_dims(self, "critic", x_dim, y_dim), hidden)
        else:
            _check_no_dims(self, "critic", critic, x_dim, y_dim)
        self.critic = critic
        self.negatives: Negatives = negatives

    @abstractmethod
    def forward(self, x: Shaped[Tensor, "n *x"], y: Shaped[Tensor, "n *y"]) -> Float[Tensor, ""]:
        """The bound on a batch of samples, in nats."""

    def learning_loss(
        self, x: Shaped[Tensor, "n *x"], y: Shaped[Tensor, "n *y"]
    ) -> Float[Tensor, ""]:
        """What to minimise to fit the critic: minus the bound, unless said otherwise."""
        self._observe(x, y)
        return -self(x, y)

    def _observe(self, x: Tensor, y: Tensor) -> None:
        check_pair(x, y)
        if self.training and isinstance(self.critic, Critic):
            self.critic.observe(x, y)

    def _scores(self, x: Tensor, y: Tensor) -> Tensor:
        check_pair(x, y)
        return score_pairs(self.critic, x, y)


class DV(CriticEstimator):
    """Donsker-Varadhan bound; see :func:`mibounds.bounds.dv`.

    Example:
        >>> nats = DV(3, 2, 16)(torch.randn(64, 3), torch.randn(64, 2))
    """

    bound = "lower"
    condition = "with many negatives: the logarithm of a sample mean is biased upwards"

    def forward(self, x: Shaped[Tensor, "n *x"], y: Shaped[Tensor, "n *y"]) -> Float[Tensor, ""]:
        """The bound on a batch of samples, in nats."""
        return bounds.dv(self._scores(x, y), self.negatives)


class MINE(CriticEstimator):
    """Donsker-Varadhan bound, learnt with a less biased gradient; see :func:`mibounds.bounds.mine`.

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

    bound = "lower"
    condition = DV.condition
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
            raise ValueError(f"Expected 0 < rate <= 1 but got {rate}.")
        self.rate = rate
        self.register_buffer("log_average", torch.tensor(-math.inf))

    def forward(self, x: Shaped[Tensor, "n *x"], y: Shaped[Tensor, "n *y"]) -> Float[Tensor, ""]:
        """The bound on a batch of samples, in nats."""
        return bounds.dv(self._scores(x, y), self.negatives)

    def learning_loss(
        self, x: Shaped[Tensor, "n *x"], y: Shaped[Tensor, "n *y"]
    ) -> Float[Tensor, ""]:
        """Minus the bound, with the gradient of the moving average; moves that average."""
        self._observe(x, y)
        scores = self._scores(x, y)
        now = bounds.log_mean_exp(scores.detach(), None, self.negatives)
        old = self.log_average.to(now.dtype)
        if self.rate < 1:
            moved = torch.logaddexp(old + math.log1p(-self.rate), now + math.log(self.rate))
            now = torch.where(old.isneginf(), now, moved)
        if self.training:
            self.log_average = now
        return -bounds.mine(scores, now, self.negatives)


class NWJ(CriticEstimator):
    """Nguyen-Wainwright-Jordan bound; see :func:`mibounds.bounds.nwj`.

    Example:
        >>> nats = NWJ(3, 2, 16)(torch.randn(64, 3), torch.randn(64, 2))
    """

    bound = "lower"
    condition = "always"

    def forward(self, x: Shaped[Tensor, "n *x"], y: Shaped[Tensor, "n *y"]) -> Float[Tensor, ""]:
        """The bound on a batch of samples, in nats."""
        return bounds.nwj(self._scores(x, y), self.negatives)


class InfoNCE(CriticEstimator):
    """InfoNCE, at most log N; see :func:`mibounds.bounds.infonce`.

    Args:
        x_dim: columns of x.
        y_dim: columns of y.
        hidden: hidden units of the default critic.
        critic: learnt or known critic, instead of the default.

    Example:
        >>> nats = InfoNCE(3, 2, 16)(torch.randn(64, 3), torch.randn(64, 2))
    """

    bound = "lower"
    condition = "always, and never above log N"

    def __init__(
        self,
        x_dim: int | None = None,
        y_dim: int | None = None,
        hidden: Hidden = 64,
        *,
        critic: Callable[[Tensor, Tensor], Tensor] | None = None,
    ):
        super().__init__(x_dim, y_dim, hidden, critic=critic, negatives="all")

    def forward(self, x: Shaped[Tensor, "n *x"], y: Shaped[Tensor, "n *y"]) -> Float[Tensor, ""]:
        """The bound on a batch of samples, in nats."""
        return bounds.infonce(self._scores(x, y))


class TUBA(CriticEstimator):
    """TUBA and its interpolation with InfoNCE; see :func:`mibounds.bounds.tuba`.

    Args:
        x_dim: columns of x.
        y_dim: columns of y.
        hidden: hidden units of the default critic and of the default baseline.
        critic: learnt or known critic, instead of the default.
        negatives: whether the diagonal stands among the negatives; only with ``alpha=0``.
        alpha: 0 for TUBA, 1 for InfoNCE, anything between for
            :func:`mibounds.bounds.tuba_interpolated`.
        log_baseline: log a(y), a callable from n samples y to n numbers. If left out it is learnt;
            beside a critic that is a plain callable it is 0.

    Example:
        >>> nats = TUBA(3, 2, 16, alpha=0.5)(torch.randn(64, 3), torch.randn(64, 2))
    """

    bound = "lower"
    condition = "always"

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
            raise ValueError(f"Expected 0 <= alpha <= 1 but got {alpha}.")
        if alpha > 0 and negatives != "others":
            raise ValueError(f'Expected negatives="others" with alpha > 0 but got {negatives!r}.')
        self.alpha = alpha
        if log_baseline is None and isinstance(self.critic, Critic):
            log_baseline = _Baseline(self.critic.y_dim, hidden)
        self.log_baseline = log_baseline

    def forward(self, x: Shaped[Tensor, "n *x"], y: Shaped[Tensor, "n *y"]) -> Float[Tensor, ""]:
        """The bound on a batch of samples, in nats."""
        scores = self._scores(x, y)
        if self.log_baseline is None:
            log_baseline = scores.new_zeros(len(y))
        else:
            log_baseline = self.log_baseline(y)
        if self.alpha > 0:
            return bounds.tuba_interpolated(scores, log_baseline, self.alpha)
        return bounds.tuba(scores, log_baseline, self.negatives)

    def _observe(self, x: Tensor, y: Tensor) -> None:
        super()._observe(x, y)
        if self.training and isinstance(self.log_baseline, _Baseline):
            self.log_baseline.observe(y)


class _Baseline(nn.Module):
    """log a(y) of TUBA."""

    def __init__(self, y_dim: int, hidden: Hidden):
        super().__init__()
        self.y_dim = y_dim
        self.y_standard = Standardizer(y_dim)
        self.net = MLP(y_dim, hidden, 1)

    def forward(self, y: Tensor) -> Tensor:
        return self.net(self.y_standard(self._check(y))).squeeze(-1)

    def observe(self, y: Tensor) -> None:
        self.y_standard.observe(self._check(y))

    def _check(self, y: Tensor) -> Tensor:
        return check_real("y", y, self.y_dim, self.y_standard.mean.dtype)


class JS(CriticEstimator):
    """A critic learnt by the Jensen-Shannon objective, its log-ratio put into NWJ.

    Reference: :func:`mibounds.bounds.js` for learning, :func:`mibounds.bounds.nwj` of 1 + f for the
    value; Poole, section 3.

    Example:
        >>> nats = JS(3, 2, 16)(torch.randn(64, 3), torch.randn(64, 2))
    """

    bound = "lower"
    condition = "always"

    def forward(self, x: Shaped[Tensor, "n *x"], y: Shaped[Tensor, "n *y"]) -> Float[Tensor, ""]:
        """The bound on a batch of samples, in nats."""
        return bounds.nwj(1 + self._scores(x, y), self.negatives)

    def learning_loss(
        self, x: Shaped[Tensor, "n *x"], y: Shaped[Tensor, "n *y"]
    ) -> Float[Tensor, ""]:
        """Minus the Jensen-Shannon objective, which is not the value."""
        self._observe(x, y)
        return -bounds.js(self._scores(x, y), self.negatives)


class SMILE(CriticEstimator):
    """A critic learnt by the Jensen-Shannon objective, with a clipped partition function.

    Reference: :func:`mibounds.bounds.js` for learning, :func:`mibounds.bounds.smile` for the value.

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

    bound = "neither"
    condition = "clipping makes the partition function too small or too large"

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
        self.clip = clip

    def forward(self, x: Shaped[Tensor, "n *x"], y: Shaped[Tensor, "n *y"]) -> Float[Tensor, ""]:
        """The estimate on a batch of samples, in nats."""
        return bounds.smile(self._scores(x, y), self.clip, self.negatives)

    learning_loss = JS.learning_loss


class FLO(CriticEstimator):
    """Fenchel-Legendre bound with a second critic; see :func:`mibounds.bounds.flo`.

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

    bound = "lower"
    condition = "always"

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

    def forward(self, x: Shaped[Tensor, "n *x"], y: Shaped[Tensor, "n *y"]) -> Float[Tensor, ""]:
        """The bound on a batch of samples, in nats."""
        scores = self._scores(x, y)
        u = -scores.diagonal() if self.potential is None else self.potential(x, y)
        return bounds.flo(scores, u, self.negatives)

    def _observe(self, x: Tensor, y: Tensor) -> None:
        super()._observe(x, y)
        if self.training and isinstance(self.potential, Critic):
            self.potential.observe(x, y)


Estimator = ConditionalEstimator | CriticEstimator

ESTIMATORS: dict[str, type[ConditionalEstimator] | type[CriticEstimator]] = {
    "club": CLUB,
    "club_sample": CLUBSample,
    "l1out": L1Out,
    "vub": VUB,
    "ba": BA,
    "dv": DV,
    "mine": MINE,
    "nwj": NWJ,
    "infonce": InfoNCE,
    "tuba": TUBA,
    "js": JS,
    "smile": SMILE,
    "flo": FLO,
    "doe": DoE,
}

# --- shared -----------------------------------------------------------------------------------------


def _check_dims(
    estimator: nn.Module, part: str, x_dim: int | None, y_dim: int | None
) -> tuple[int, int]:
    if x_dim is None or y_dim is None:
        name = type(estimator).__name__
        raise ValueError(
            f"Expected {name}(x_dim, y_dim) or {name}({part}=...) "
            f"but got x_dim={x_dim} and y_dim={y_dim}."
        )
    return x_dim, y_dim


def _check_no_dims(
    estimator: nn.Module, part: str, value: object, x_dim: int | None, y_dim: int | None
) -> None:
    if not callable(value):
        raise ValueError(
            f"Expected {part} to be a module or a callable but got {type(value).__name__}."
        )
    if x_dim is not None or y_dim is not None:
        raise ValueError(
            f"Expected either dimensions or {part}= for {type(estimator).__name__} but got both; "
            f"the {part} has its dimensions already."
        )


def _marginal_for(conditional: object, family: type[Conditional]) -> Conditional:
    """A model of the marginal of the y that a conditional is about."""
    if isinstance(conditional, Categorical | Bernoulli):
        return type(conditional)(0, conditional.y_dim)
    if isinstance(conditional, Conditional):
        return family(0, conditional.y_dim)  # pyright: ignore[reportCallIssue]
    raise ValueError(
        "Expected marginal= beside a conditional whose y_dim is not known but got none; "
        "pass, for example, marginal=GaussianMixture(0, y_dim)."
    )


def _at_nothing(marginal: Conditional, y: Tensor) -> Distribution:
    """The learnt marginal as a Distribution with batch shape (n,)."""
    r = marginal(_nothing(marginal, y))
    check_distribution(r, y)
    return r


def _nothing(marginal: Conditional, y: Tensor) -> Tensor:
    return marginal.x_standard.mean.new_zeros(len(y), 0)


def _marginal_loss(marginal: Conditional, y: Tensor, training: bool) -> Tensor:
    """Negative log-likelihood of the learnt marginal, which is let see y while it trains."""
    if training:
        marginal.observe(_nothing(marginal, y), y)
    y = marginal.check_y(y)
    return -log_prob(_at_nothing(marginal, y), y).mean()
