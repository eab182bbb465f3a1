"""Estimators with a conditional q(y|x): upper bounds, Barber-Agakov, difference of entropies."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar, Literal, NoReturn, TypeGuard

import torch
from torch import Tensor, nn
from torch.distributions import Distribution, Normal
from torch.utils.checkpoint import checkpoint

from mibounds import bounds
from mibounds.bounds import Draw, from_distributions
from mibounds.bounds.densities import (
    check_distribution,
    log_prob,
    log_prob_same,
    repeat,
    standard_normal,
)
from mibounds.bounds.exponential_families import (
    club_columns,
    club_of_sums,
    club_sample_columns,
    find_centre,
    sum_normal,
    unwrap,
)
from mibounds.bounds.from_conditionals import leave_out_own, log_ratio
from mibounds.conditionals import Bernoulli, Categorical, Conditional, Gaussian, GaussianMixture
from mibounds.conditionals import _small_batches as small_batches
from mibounds.conditionals.copulas import Copula
from mibounds.estimators.base import Estimator, Side, dims_or_part
from mibounds.networks import Hidden
from mibounds.samples.batches import Batch
from mibounds.samples.checks import Group, check_pair, check_shapes, check_size
from mibounds.samples.layouts import once_per_x
from mibounds.samples.pairs import Negatives, check_negatives
from mibounds.samples.seeds import Seed

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int, Shaped

PIECE = 2**15  # rows that CLUB holds at once on a CPU


class ConditionalEstimator(Estimator):
    """A bound that needs q(y|x), or the known p(y|x).

    Args:
        x_dim: columns of x.
        y_dim: columns of y.
        hidden: hidden units of the default conditional, a diagonal `Gaussian`.
        conditional: instead of those three, a module or any callable from x to a Distribution with
            batch shape (n,). With a plain callable there is nothing to learn.

    Example:
        >>> class LogLikelihood(ConditionalEstimator):
        ...     side, linear = "neither", True
        ...
        ...     def terms(self, x, y):
        ...         return log_prob(*self.distribution(x, y))
        >>> nats = LogLikelihood(3, 2, 16)(torch.randn(64, 3), torch.randn(64, 2))
    """

    has_conditional = True
    weighted = True

    def __init__(
        self,
        x_dim: int | None = None,
        y_dim: int | None = None,
        hidden: Hidden = 64,
        *,
        conditional: Callable[[Tensor], Distribution] | None = None,
    ):
        super().__init__()
        dims = dims_or_part(type(self).__name__, x_dim, y_dim, "conditional", conditional)
        self.conditional = conditional or Gaussian(*dims, hidden)

    def forward(
        self,
        x: Shaped[Tensor, "n *x"],
        y: Shaped[Tensor, "n *y"],
        *,
        group: Group = None,
    ) -> Float[Tensor, ""]:
        """The bound on a batch of samples, in nats: the mean of `terms`, unless redefined."""
        value = check_pair(x, y, group).mean(self.terms(x, y))
        if self.side != "upper":
            return value
        return from_distributions.warn_if_infinite(type(self).__name__, value)

    def loglikeli(
        self,
        x: Shaped[Tensor, "b *x"],
        y: Shaped[Tensor, "b *y"],
        *,
        mask: Bool[Tensor, "b *t"] | None = None,
        weights: Float[Tensor, "b *w"] | None = None,
        group: Group = None,
    ) -> Float[Tensor, ""]:
        """Mean log-likelihood of the samples, 1/N Σ log q(y_i|x_i), in nats.

        Minus this is a loss to fit q with, as `learning_loss` is: in training mode, unless
        gradients are off, q sees the scale of the data here too.

        Args:
            x: samples, or sequences of them.
            y: samples or labels.
            mask: True for the samples that count.
            weights: how much each sample counts.
            group: processes whose batches are joined.
        """
        rows = self._lay_out(x, y, mask, weights, group, learning=True)
        if getattr(rows.y, "ndim", 0) and len(rows.y) < 2 and self._passes_over(rows):
            return self.pass_over(rows)
        observe = self.training and torch.is_grad_enabled()
        return -self._fit_of_q(rows.x, rows.y, rows.group, observe)

    def loss(
        self, x: Shaped[Tensor, "n *x"], y: Shaped[Tensor, "n *y"], *, group: Group = None
    ) -> Float[Tensor, ""]:
        """Negative log-likelihood: what to minimise to fit q. A constant where p(y|x) is known."""
        loss = self._fit_of_q(x, y, group, self.training)
        return loss if isinstance(self.conditional, nn.Module) else loss.detach()

    def _fit_of_q(self, x: Tensor, y: Tensor, group: Group, observe: bool) -> Tensor:
        """Negative log-likelihood of q, which may see the scale of the data first."""
        q = self.conditional
        if group is None and _is_plain(q) and small_batches.works(q, x, y):
            value = small_batches.negative_log_likelihood(q, x, y, observe)
            if value is not None:
                return value
        batch = check_pair(x, y, group)
        if observe and isinstance(q, Conditional):
            q.observe(x, y, batch)
        return -batch.mean(log_prob(*self.distribution(x, y)))

    def distribution(self, x: Tensor, y: Tensor) -> tuple[Distribution, Tensor]:
        """The conditional at x, and y in the shape of its events."""
        check_shapes(x, y)
        if isinstance(self.conditional, Conditional):
            y = self.conditional.check_y(y)
        once, p = once_per_x(x), None
        if once is not None:
            p = repeat(self.conditional(once[0]), *once[1:])
        if p is None:
            p = self.conditional(x)
        check_distribution(p, y)
        return p, y

    def _in_small_units(
        self, x: Tensor, y: Tensor, group: Group
    ) -> tuple[Tensor, Tensor, Tensor] | None:
        """Mean and precision of a diagonal Gaussian q, and y, where the short way works."""
        q = self.conditional
        if group is None and _is_plain(q) and small_batches.works(q, x, y):
            return small_batches.parameters_in_units(q, x, y)
        return None


class CLUB(ConditionalEstimator):
    """Contrastive log-ratio upper bound over all pairs; see [`mibounds.bounds.club`][].

    Something to *minimise*: as a number it lies above MI even with the exact conditional, which for
    d Gaussian pairs gives d (exp(2 MI/d) - 1). A q that is fitted less well may give less.

    Args:
        x_dim: columns of x.
        y_dim: columns of y.
        hidden: hidden units of the default conditional, a diagonal `Gaussian`.
        conditional: learnt or known conditional, instead of the default.
        negatives: "others" for the unbiased sum, "all" for the paper's 1/N²; "sequences" for the
            y of other sequences only.

    Example:
        >>> estimator = CLUB(3, 2, 16)
        >>> x, y = torch.randn(64, 3), torch.randn(64, 2)
        >>> estimator.learning_loss(x, y).backward()  # fit q with an optimiser of its own ...
        >>> nats = estimator(x, y)  # ... then measure, or minimise
    """

    name = "club"
    side = "upper"
    condition = "q is p(y|x), or nearer to p(x, y) than to p(x) p(y) (CLUB, Theorem 3.2)"
    cost = "N D for exponential families, else N² D"
    equation = "13, 15"
    reference = "Cheng et al. 2020"
    linear = True

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
        self.negatives: Negatives = check_negatives(negatives)

    def forward(
        self,
        x: Shaped[Tensor, "n *x"],
        y: Shaped[Tensor, "n *y"],
        *,
        group: Group = None,
    ) -> Float[Tensor, ""]:
        if (units := self._in_small_units(x, y, group)) is not None:
            value = leave_out_own(club_columns(*units), len(y), self.negatives)
            if math.isfinite(value.item()):
                return value
        check_shapes(x, y)
        q, whole = self.conditional, isinstance(group, Batch)
        if len(x) > PIECE and not x.is_cuda and _is_plain(q) and not whole:
            return self._in_pieces(q, x, y, group)
        return from_distributions.club(
            *self.distribution(x, y), negatives=self.negatives, group=group
        )

    def _in_pieces(self, q: Gaussian, x: Tensor, y: Tensor, group: Group) -> Tensor:
        """The same, some rows at a time, which are computed again for the gradient.

        The sums over a batch are all that CLUB needs of it. On a CPU new memory for a large batch
        takes longer than the computation in it.
        """
        batch = check_pair(x, y, group)
        y = q.check_y(y)
        centre = find_centre(y, batch)

        def sums(x: Tensor, y: Tensor) -> Tensor:
            base, _ = unwrap(q(x))
            assert isinstance(base, Normal)
            return sum_normal(base, y, centre)

        parts = [
            checkpoint(sums, *part, use_reentrant=False, preserve_rng_state=False)
            for part in zip(x.split(PIECE), y.split(PIECE), strict=True)
        ]
        value = club_of_sums(torch.stack(parts).sum(0), len(y), batch).to(y.dtype)
        value = leave_out_own(value, batch.size, self.negatives)
        return from_distributions.warn_if_infinite("CLUB", value)


class CLUBSample(ConditionalEstimator):
    """CLUB with k sampled negatives per sample; see [`mibounds.bounds.club_sample`][].

    Args:
        x_dim: columns of x.
        y_dim: columns of y.
        hidden: hidden units of the default conditional, a diagonal `Gaussian`.
        conditional: learnt or known conditional, instead of the default.
        k: negatives per sample.
        draw: how to draw them, see [`mibounds.bounds.draw_negatives`][]; the paper's is
            "uniform". "sequences" for the y of other sequences at the same time.

    Example:
        >>> estimator = CLUBSample(3, 2, 16, k=4)
        >>> nats = estimator(torch.randn(64, 3), torch.randn(64, 2))
    """

    name = "club_sample"
    side = "upper"
    condition = CLUB.condition
    cost = "k N D"
    equation = "section 3.3"
    reference = "Cheng et al. 2020"
    linear = True

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
        check_size("k", k)
        bounds.draw_negatives(k + 1, k, draw)  # refuses what it cannot draw
        self.k = k
        self.draw: Draw = draw

    def forward(
        self,
        x: Shaped[Tensor, "n *x"],
        y: Shaped[Tensor, "n *y"],
        *,
        seed: Seed = None,
        index: Int[Tensor, "n k"] | None = None,
        group: Group = None,
    ) -> Float[Tensor, ""]:
        """The bound on a batch of samples, in nats.

        Args:
            x: samples.
            y: samples.
            seed: of the negatives, see `mibounds.samples.seeds`.
            index: negatives drawn already, for a value that can be repeated.
            group: processes whose batches are joined; the first one draws.
        """
        short = self.k == 1 and index is None
        if short and (units := self._in_small_units(x, y, group)) is not None:
            drawn = bounds.draw_negatives(len(y), 1, self.draw, seed, y.device)
            value = club_sample_columns(*units, drawn[:, 0])
            if math.isfinite(value.item()):
                return value
            index = drawn
        p, y = self.distribution(x, y)
        return from_distributions.club_sample(
            p, y, k=self.k, draw=self.draw, seed=seed, index=index, group=group
        )


class L1Out(ConditionalEstimator):
    """Leave-one-out upper bound; see [`mibounds.bounds.l1out`][].

    Args:
        x_dim: columns of x.
        y_dim: columns of y.
        hidden: hidden units of the default conditional, a diagonal `Gaussian`.
        conditional: learnt or known conditional, instead of the default.

    Example:
        >>> nats = L1Out(3, 2, 16)(torch.randn(64, 3), torch.randn(64, 2))
    """

    name = "l1out"
    side = "upper"
    condition = "q is p(y|x), or nearer to it than its mean over x is to p(y) (CLUB, Theorem C.2)"
    cost = "N² D"
    equation = "7, 9"
    reference = "Poole et al. 2019, section 2.5"

    def forward(
        self,
        x: Shaped[Tensor, "n *x"],
        y: Shaped[Tensor, "n *y"],
        *,
        group: Group = None,
    ) -> Float[Tensor, ""]:
        return from_distributions.l1out(*self.distribution(x, y), group=group)


class VUB(ConditionalEstimator):
    """Variational upper bound; see [`mibounds.bounds.vub`][] and [`mibounds.bounds.vub_kl`][].

    Args:
        x_dim: columns of x.
        y_dim: columns of y.
        hidden: hidden units of the default conditional, a diagonal `Gaussian`.
        conditional: learnt or known conditional, instead of the default.
        marginal: stand-in r(y) for the marginal: "standard" is the paper's N(0, I), "learned" a
            Gaussian that is fitted too; or a fixed Distribution of one y; or any conditional on
            nothing, such as ``GaussianMixture(0, y_dim)``, which is then fitted.
        form: "sampled" for log-densities at the samples, "kl" for the divergence in closed form,
            which holds only where the conditional is the known one that y was drawn from.

    Example:
        >>> nats = VUB(3, 2, 16)(torch.randn(64, 3), torch.randn(64, 2))
    """

    name = "vub"
    side = "upper"
    condition = "q is p(y|x), or nearer to it than r(y) is to p(y) (CLUB, Theorem C.1)"
    cost = "N D"
    equation = "6, 8"
    reference = "Alemi et al. 2017, equation 14"
    linear = True
    for_any_y: ClassVar = {"marginal": "learned"}  # N(0, I) speaks of the unit of y

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
            raise ValueError(
                f'Expected form to be "sampled" or "kl" but got {form!r}; '
                'leave it out for "sampled".'
            )
        if isinstance(marginal, str) and marginal == "learned":
            marginal = _marginal_for(self.conditional, Gaussian)
        elif isinstance(marginal, str) and marginal != "standard":
            raise ValueError(
                'Expected marginal to be "standard", "learned", a Distribution '
                f"or a conditional without x but got {marginal!r}; "
                'leave it out for "standard".'
            )
        elif not isinstance(marginal, str | Distribution | Conditional):
            _refuse_marginal(marginal)
        self.marginal = None if isinstance(marginal, str) else marginal
        self.form = form
        if form == "kl":
            self.condition = "q is p(y|x), the conditional that y was drawn from"
            if isinstance(self.conditional, Conditional):
                self.side: Side = "neither"

    def terms(self, x: Shaped[Tensor, "n *x"], y: Shaped[Tensor, "n *y"]) -> Float[Tensor, " n"]:
        p, y = self.distribution(x, y)
        if isinstance(self.marginal, Conditional):
            if self.form == "kl":
                r = self.marginal(_nothing(self.marginal, len(y)))
                return from_distributions.divergence(p, r)
            return log_ratio(log_prob(p, y), _log_learnt_marginal(self.marginal, y))
        r = standard_normal(p, y) if self.marginal is None else self.marginal
        if self.form == "kl":
            return from_distributions.divergence(p, r)
        return log_ratio(log_prob(p, y), from_distributions.log_marginal(r, y))

    def loss(
        self,
        x: Shaped[Tensor, "n *x"],
        y: Shaped[Tensor, "n *y"],
        *,
        group: Group = None,
    ) -> Float[Tensor, ""]:
        """Negative log-likelihood of q, and of r(y) where that is learnt."""
        loss = super().loss(x, y, group=group)
        if isinstance(self.marginal, Conditional):
            loss = loss + _marginal_loss(self.marginal, y, self.training, group)
        return loss


class BA(ConditionalEstimator):
    """Barber-Agakov bound; see [`mibounds.bounds.ba`][].

    Args:
        x_dim: columns of x.
        y_dim: columns of y.
        hidden: hidden units of the default conditional, a diagonal `Gaussian`.
        conditional: learnt or known conditional, instead of the default.
        entropy: H(y) in nats, where it is known. If left out, that of a Gaussian fitted to the
            batch (of the frequencies, for labels): then it is no bound any more.

    Example:
        >>> BA(3, 2, entropy=2.84).side, BA(3, 2).side
        ('lower', 'neither')
    """

    name = "ba"
    side = "lower"
    condition = "always, if the entropy given is the true one"
    cost = "N D"
    equation = "2"
    reference = "Barber and Agakov 2003"
    linear = True

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
        if not isinstance(entropy, int | float | None):
            raise ValueError(
                f"Expected entropy to be a number of nats or None but got {entropy!r}; "
                "pass float(entropy), or leave it out to have it estimated."
            )
        self.entropy = entropy
        if entropy is None:
            self.side: Side = "neither"
            self.condition = "the entropy is estimated"
            self.linear = self.weighted = False

    def forward(
        self,
        x: Shaped[Tensor, "n *x"],
        y: Shaped[Tensor, "n *y"],
        *,
        group: Group = None,
    ) -> Float[Tensor, ""]:
        if self.entropy is None:
            return from_distributions.ba(*self.distribution(x, y), group=group)
        return super().forward(x, y, group=group)

    def terms(self, x: Shaped[Tensor, "n *x"], y: Shaped[Tensor, "n *y"]) -> Float[Tensor, " n"]:
        if self.entropy is None:
            return super().terms(x, y)
        return log_prob(*self.distribution(x, y)) + self.entropy


class DoE(ConditionalEstimator):
    """Difference of entropies, both densities learnt; see [`mibounds.bounds.doe`][].

    Args:
        x_dim: columns of x.
        y_dim: columns of y.
        hidden: hidden units of the default conditional, a diagonal `Gaussian`.
        conditional: learnt or known conditional, instead of the default.
        marginal: model of the marginal, a conditional without x; if left out, a mixture of
            Gaussians (of the same kind as the conditional, for discrete y and for a `Copula`).

    Example:
        >>> nats = DoE(3, 2, 16)(torch.randn(64, 3), torch.randn(64, 2))
    """

    name = "doe"
    side = "neither"
    condition = "a difference of two upper bounds"
    cost = "N D"
    reference = "McAllester and Stratos 2020, section 5"
    linear = True

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
        if marginal is None:
            marginal = _marginal_for(self.conditional, GaussianMixture)
        if not isinstance(marginal, Conditional):
            _refuse_marginal(marginal)
        self.marginal = marginal

    def terms(self, x: Shaped[Tensor, "n *x"], y: Shaped[Tensor, "n *y"]) -> Float[Tensor, " n"]:
        p, y = self.distribution(x, y)
        return log_prob(p, y) - _log_learnt_marginal(self.marginal, y)

    def loss(
        self,
        x: Shaped[Tensor, "n *x"],
        y: Shaped[Tensor, "n *y"],
        *,
        group: Group = None,
    ) -> Float[Tensor, ""]:
        """Negative log-likelihoods of q(y|x) and of r(y)."""
        loss = super().loss(x, y, group=group)
        return loss + _marginal_loss(self.marginal, y, self.training, group)


def _is_plain(q: object) -> TypeGuard[Gaussian]:
    """Whether this is the diagonal Gaussian itself: a subclass may have another density."""
    return type(q) is Gaussian


def _marginal_for(conditional: object, family: type[Conditional]) -> Conditional:
    """A model of the marginal of the y that a conditional is about."""
    if isinstance(conditional, Categorical | Bernoulli | Copula):
        return type(conditional)(0, conditional.y_dim)
    if isinstance(conditional, Conditional):
        return family(0, conditional.y_dim)  # pyright: ignore[reportCallIssue]
    raise ValueError(
        "Expected marginal= beside a conditional whose y_dim is not known but got none; "
        "pass, for example, marginal=GaussianMixture(0, y_dim)."
    )


def _refuse_marginal(marginal: object) -> NoReturn:
    raise ValueError(
        "Expected marginal to be a conditional without x, such as GaussianMixture(0, y_dim), "
        f"but got {type(marginal).__name__}; pass a fixed Distribution to VUB."
    )


def _nothing(marginal: Conditional, n: int) -> Tensor:
    """As many x's of a conditional without x."""
    return marginal.x_standard.mean.new_zeros(n, 0)


def _log_learnt_marginal(marginal: Conditional, y: Tensor) -> Tensor:
    """Log r(y_i) of the learnt marginal: one Distribution, made once, for all samples."""
    return log_prob_same(marginal(_nothing(marginal, 1)), marginal.check_y(y))


def _marginal_loss(marginal: Conditional, y: Tensor, training: bool, group: Group) -> Tensor:
    """Negative log-likelihood of the learnt marginal, which sees y while it trains."""
    batch = check_pair(y, y, group)
    if training:
        marginal.observe(_nothing(marginal, len(y)), y, batch)
    return -batch.mean(_log_learnt_marginal(marginal, y))
