"""The classes of the CLUB authors' file, by its names: to move over, change the import.

    from mi_estimators import CLUB              # before
    from mibounds.mi_estimators import CLUB     # after

Arguments, methods and parameters have the names of that file; with the same seed networks start
from the same numbers; old checkpoints load. Values are its values, from the closed forms of
`mibounds.bounds`: in linear time for `CLUB`, and without the tensor of all pairs for `NWJ` and
`InfoNCE`. Where that file is wrong, the right value comes, and a warning says so once:

- its L1Out *is* its CLUB, since a mask has one dimension too many;
- its VUB is averaged over the columns of y instead of summed: too small by their number.

All take more than the file does: sequences, of one x (B, x_dim) with a sequence y (B, T, y_dim), or
both (B, T, ...); ``mask``, True for the frames that count; ``w``, weights of the samples. Negatives
are then the y of other sequences at the same time. An empty batch gives zero, not NaN.

For new code the estimators of `mibounds` are the better choice: they standardise, so that the scale
of the data does not matter, their log-variance is not confined to [-1, 1], and their loss is the
likelihood. Reference: Cheng et al. 2020.
"""

from __future__ import annotations

import math
import warnings
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mibounds.bounds import from_distributions
from mibounds.bounds.exponential_families import club_columns, club_sample_columns
from mibounds.conditionals.base import diagonal
from mibounds.critics.concat import score_hidden
from mibounds.samples.checks import weighted_mean, zero_of
from mibounds.samples.pairs import Pairs

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int

__all__ = [
    "CLUB",
    "MINE",
    "NWJ",
    "CLUBForCategorical",
    "CLUBMean",
    "CLUBSample",
    "CLUBSample_group",
    "CLUBSample_reshape",
    "InfoNCE",
    "L1OutUB",
    "VarUB",
]

Width = int | float  # a float is cut
PADDING = -100  # the label that `torch.nn.functional.cross_entropy` leaves out


class _Estimator(nn.Module):
    """What all of them have: a second name for the value, and a word about batches with nothing."""

    warned = False

    def mi_est(self, *args: Tensor, **kwargs: Tensor | None) -> Float[Tensor, ""]:
        """The value on a batch, as `forward` gives it, by the name that later copies use."""
        return self(*args, **kwargs)

    def _nothing(self, *samples: Tensor) -> Tensor:
        """Zero with a gradient of zero, for a batch without a pair to compare."""
        if not self.warned:
            self.warned = True
            warnings.warn(
                f"{type(self).__name__} got a batch of {len(samples[0])} samples, which tells "
                "nothing: its value is 0, with a gradient of 0; pass drop_last=True to the "
                "DataLoader, or ignore this where groups can be empty.",
                RuntimeWarning,
                stacklevel=3,
            )
        return zero_of(*samples, *self.parameters())


class _Gaussian(_Estimator):
    """q(y|x): a mean and a log-variance from two networks, the latter through tanh.

    Args:
        x_dim: columns of x.
        y_dim: columns of y.
        hidden_size: twice the hidden units of each network; None for linear maps. A float is cut.
        depth: hidden layers of each network.
    """

    hidden_layers: ClassVar[int] = 1
    factor: ClassVar[float] = 1.0  # of the log-likelihood: 1 is twice the real one

    def __init__(
        self,
        x_dim: int,
        y_dim: int,
        hidden_size: Width | None = None,
        *,
        depth: int | None = None,
    ):
        super().__init__()
        depth = self.hidden_layers if depth is None else depth
        width = None if hidden_size is None else int(hidden_size) // 2
        self.p_mu = nn.Sequential(*_layers(x_dim, width, y_dim, depth))
        self.p_logvar = nn.Sequential(*_layers(x_dim, width, y_dim, depth), nn.Tanh())

    def get_mu_logvar(
        self, x_samples: Float[Tensor, "*n x_dim"]
    ) -> tuple[Float[Tensor, "*n y_dim"], Float[Tensor, "*n y_dim"]]:
        """Mean and log-variance of y given x."""
        return self.p_mu(x_samples), self.p_logvar(x_samples)

    def loglikeli(
        self,
        x_samples: Float[Tensor, "*b x_dim"],
        y_samples: Float[Tensor, "*n y_dim"],
        mask: Bool[Tensor, "*n"] | None = None,
        w: Float[Tensor, "..."] | None = None,
    ) -> Float[Tensor, ""]:
        """Twice the mean log-likelihood, less a constant (`CLUBSample_group`: the mean itself)."""
        if not y_samples.numel():
            return self._nothing(x_samples, y_samples)
        mu, logvar = self.get_mu_logvar(x_samples)
        weights, variance, y = _join(mask, w, y_samples), 0.0, y_samples
        if y.ndim == mu.ndim + 1 and weights is None:  # one x for each sequence
            mean = y.mean(1)
            variance, y = (y - mean.unsqueeze(1)).square().mean(1), mean
        elif y.ndim == mu.ndim + 1:
            mu, logvar = (v.unsqueeze(1) if isinstance(v, Tensor) else v for v in (mu, logvar))
        each = (mu - y).square() + variance
        if isinstance(logvar, Tensor):
            each = torch.addcmul(logvar, each, (-logvar).exp())
        each = each.sum(-1).flatten()
        return -self.factor * weighted_mean(each, None if weights is None else weights.flatten())

    def learning_loss(
        self,
        x_samples: Float[Tensor, "*b x_dim"],
        y_samples: Float[Tensor, "*n y_dim"],
        mask: Bool[Tensor, "*n"] | None = None,
        w: Float[Tensor, "..."] | None = None,
    ) -> Float[Tensor, ""]:
        """What to minimise to fit q: minus `loglikeli`."""
        return -self.loglikeli(x_samples, y_samples, mask, w)


class CLUB(_Gaussian):
    """CLUB over all pairs, by its 1/N² sum, in linear time.

    Args:
        x_dim: columns of x.
        y_dim: columns of y.
        hidden_size: twice the hidden units of each network; None for linear maps.
        depth: hidden layers of each network.

    Example:
        >>> club = CLUB(3, 2, hidden_size=16)
        >>> x_samples, y_samples = torch.randn(64, 3), torch.randn(64, 2)
        >>> club.learning_loss(x_samples, y_samples).backward()
        >>> club(x_samples=x_samples, y_samples=y_samples).shape
        torch.Size([])

    Reference: CLUB, equation 15.
    """

    def forward(
        self,
        x_samples: Float[Tensor, "*b x_dim"],
        y_samples: Float[Tensor, "*n y_dim"],
        mask: Bool[Tensor, "*n"] | None = None,
        w: Float[Tensor, "..."] | None = None,
    ) -> Float[Tensor, ""]:
        """The bound in nats.

        Args:
            x_samples: samples, (B, x_dim) or (B, T, x_dim).
            y_samples: samples, (B, y_dim) or (B, T, y_dim).
            mask: True for the frames that count.
            w: weights of the samples, (B,) or (B, T).
        """
        if not y_samples.numel():
            return self._nothing(x_samples, y_samples)
        mu, logvar = self.get_mu_logvar(x_samples)
        precision = (-logvar).exp() if isinstance(logvar, Tensor) else mu.new_ones(())
        return club_columns(mu, precision, y_samples, _join(mask, w, y_samples))


class CLUBMean(CLUB):
    """CLUB with a variance of 1: half the squared distance of other y from the predicted one.

    Args:
        x_dim: columns of x.
        y_dim: columns of y.
        hidden_size: hidden units; None for a linear map. A float is cut.
        depth: hidden layers.

    Example:
        >>> CLUBMean(3, 2).p_mu
        Linear(in_features=3, out_features=2, bias=True)
    """

    def __init__(self, x_dim: int, y_dim: int, hidden_size: Width | None = None, *, depth: int = 1):
        _Estimator.__init__(self)
        width = None if hidden_size is None else int(hidden_size)
        layers = _layers(x_dim, width, y_dim, depth)
        self.p_mu = layers[0] if len(layers) == 1 else nn.Sequential(*layers)

    def get_mu_logvar(self, x_samples: Tensor) -> tuple[Tensor, Any]:
        """Mean of y given x, and 0."""
        return self.p_mu(x_samples), 0


class CLUBSample(_Gaussian):
    """CLUB with one drawn negative per sample, by a random permutation of the batch.

    Args:
        x_dim: columns of x.
        y_dim: columns of y.
        hidden_size: twice the hidden units of each network; None for linear maps.
        depth: hidden layers of each network.

    Example:
        >>> club = CLUBSample(3, 2, hidden_size=16)
        >>> x, y = torch.randn(8, 5, 3), torch.randn(8, 5, 2)
        >>> mask = torch.arange(5) < torch.tensor([5, 4, 3, 5, 5, 2, 1, 5])[:, None]
        >>> club.mi_est(x, y, mask=mask).shape
        torch.Size([])

    Reference: CLUB, section 3.3.
    """

    def forward(
        self,
        x_samples: Float[Tensor, "*b x_dim"],
        y_samples: Float[Tensor, "*n y_dim"],
        mask: Bool[Tensor, "*n"] | None = None,
        w: Float[Tensor, "..."] | None = None,
    ) -> Float[Tensor, ""]:
        """The bound in nats; see `CLUB`. Sequences are permuted as a whole."""
        if not y_samples.numel():
            return self._nothing(x_samples, y_samples)
        mu, logvar = self.get_mu_logvar(x_samples)
        index = torch.randperm(len(y_samples)).to(y_samples.device)
        weights = _join(mask, w, y_samples)
        return club_sample_columns(mu, (-logvar).exp(), y_samples, index, weights)


class CLUBSample_reshape(CLUBSample):
    """`CLUBSample` of sequences on both sides, (B, T, x_dim) and (B, T, y_dim).

    Args:
        x_dim: columns of x.
        y_dim: columns of y.
        hidden_size: twice the hidden units of each network.
        depth: hidden layers of each network, three if left out.

    Example:
        >>> club = CLUBSample_reshape(3, 2, 16)
        >>> club.mi_est(torch.randn(8, 5, 3), torch.randn(8, 5, 2)).shape
        torch.Size([])
    """

    hidden_layers = 3


class CLUBSample_group(CLUBSample):
    """`CLUBSample` of one x (B, x_dim) with a sequence y (B, T, y_dim); q is evaluated once each.

    Args:
        x_dim: columns of x.
        y_dim: columns of y.
        hidden_size: twice the hidden units of each network.
        depth: hidden layers of each network, three if left out.

    Example:
        >>> club = CLUBSample_group(3, 2, 16)
        >>> club.mi_est(torch.randn(8, 3), torch.randn(8, 5, 2)).shape
        torch.Size([])
    """

    hidden_layers, factor = 3, 0.5


class CLUBForCategorical(_Estimator):
    """CLUB over all pairs for labels y = 0, 1, ..., in linear time.

    Args:
        input_dim: columns of x.
        label_num: number of labels.
        hidden_size: hidden units; None for a linear map. A float is cut.

    Example:
        >>> club = CLUBForCategorical(input_dim=3, label_num=4)
        >>> club(inputs=torch.randn(64, 3), labels=torch.randint(4, (64,))).shape
        torch.Size([])
    """

    def __init__(self, input_dim: int, label_num: int, hidden_size: Width | None = None):
        super().__init__()
        width = None if hidden_size is None else int(hidden_size)
        layers = _layers(input_dim, width, label_num, 1)
        self.variational_net = layers[0] if len(layers) == 1 else nn.Sequential(*layers)

    def forward(
        self,
        inputs: Float[Tensor, "*n x_dim"],
        labels: Int[Tensor, "*n"],
        w: Float[Tensor, "..."] | None = None,
    ) -> Float[Tensor, ""]:
        """The bound in nats.

        Args:
            inputs: samples, or sequences of them.
            labels: a label each; -100 for padding.
            w: weights of the samples.
        """
        inputs, labels, weights = self._lay_out(inputs, labels, w)
        if not len(labels):
            return self._nothing(inputs)
        log_p = self.variational_net(inputs).log_softmax(-1)
        shown = F.one_hot(labels, log_p.shape[-1]).to(log_p.dtype)
        own = weighted_mean((log_p * shown).sum(-1), weights)
        return own - weighted_mean(log_p, weights) @ weighted_mean(shown, weights)

    def loglikeli(
        self,
        inputs: Float[Tensor, "*n x_dim"],
        labels: Int[Tensor, "*n"],
        w: Float[Tensor, "..."] | None = None,
    ) -> Float[Tensor, ""]:
        """Mean log-likelihood of the labels, in nats."""
        inputs, labels, weights = self._lay_out(inputs, labels, w)
        if not len(labels):
            return self._nothing(inputs)
        logits = self.variational_net(inputs)
        return -weighted_mean(F.cross_entropy(logits, labels, reduction="none"), weights)

    def learning_loss(
        self,
        inputs: Float[Tensor, "*n x_dim"],
        labels: Int[Tensor, "*n"],
        w: Float[Tensor, "..."] | None = None,
    ) -> Float[Tensor, ""]:
        """What to minimise to fit q: minus `loglikeli`."""
        return -self.loglikeli(inputs, labels, w)

    @staticmethod
    def _lay_out(
        inputs: Tensor, labels: Tensor, w: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """One sample per row, without padding."""
        inputs, labels = inputs.reshape(-1, inputs.shape[-1]), labels.reshape(-1)
        w = None if w is None else w.reshape(-1)
        counts = labels != PADDING
        if counts.all():
            return inputs, labels, w
        return inputs[counts], labels[counts], None if w is None else w[counts]


class L1OutUB(_Gaussian):
    """Leave-one-out upper bound; that of the file is CLUB.

    Args:
        x_dim: columns of x.
        y_dim: columns of y.
        hidden_size: twice the hidden units of each network; None for linear maps.
        depth: hidden layers of each network.

    Example:
        >>> import pytest
        >>> with pytest.warns(RuntimeWarning, match="leave-one-out"):
        ...     l1out = L1OutUB(3, 2, 16)
        >>> nats = l1out(torch.randn(64, 3), torch.randn(64, 2))

    Reference: CLUB, equation 9.
    """

    def __init__(
        self,
        x_dim: int,
        y_dim: int,
        hidden_size: Width | None = None,
        *,
        depth: int | None = None,
    ):
        super().__init__(x_dim, y_dim, hidden_size, depth=depth)
        warnings.warn(
            "L1OutUB of the authors' file gives the value of CLUB, because its mask cancels; here "
            "it is the leave-one-out bound, which is lower; use CLUB for the value of the file.",
            RuntimeWarning,
            stacklevel=2,
        )

    def forward(
        self,
        x_samples: Float[Tensor, "*b x_dim"],
        y_samples: Float[Tensor, "*n y_dim"],
        mask: Bool[Tensor, "*n"] | None = None,
    ) -> Float[Tensor, ""]:
        """The bound in nats, over all frames of all sequences."""
        keep = slice(None) if mask is None else mask.flatten()
        rows = y_samples.reshape(-1, y_samples.shape[-1])[keep]
        if len(rows) < 2:
            return self._nothing(x_samples, y_samples)
        mu, logvar = self.get_mu_logvar(x_samples)
        if y_samples.ndim > mu.ndim:
            mu, logvar = (v.unsqueeze(1).expand_as(y_samples) for v in (mu, logvar))
        mu, logvar = (v.reshape(-1, v.shape[-1])[keep] for v in (mu, logvar))
        return from_distributions.l1out(diagonal(mu, (0.5 * logvar).exp()), rows)


class VarUB(_Gaussian):
    """Divergence of q(y|x) from N(0, I), summed over the columns; that of the file is their mean.

    Args:
        x_dim: columns of x.
        y_dim: columns of y.
        hidden_size: twice the hidden units of each network; None for linear maps.
        depth: hidden layers of each network.

    Example:
        >>> import pytest
        >>> with pytest.warns(RuntimeWarning, match="y_dim times"):
        ...     vub = VarUB(3, 2, 16)
        >>> nats = vub(torch.randn(64, 3), torch.randn(64, 2))

    Reference: CLUB, equation 6.
    """

    def __init__(
        self,
        x_dim: int,
        y_dim: int,
        hidden_size: Width | None = None,
        *,
        depth: int | None = None,
    ):
        super().__init__(x_dim, y_dim, hidden_size, depth=depth)
        warnings.warn(
            "VarUB of the authors' file is averaged over the columns of y, and so no bound; here "
            f"it is their sum, y_dim times as large; divide its weight in the loss by {y_dim} "
            "for the gradients of the file.",
            RuntimeWarning,
            stacklevel=2,
        )

    def forward(
        self,
        x_samples: Float[Tensor, "*b x_dim"],
        y_samples: Float[Tensor, "*n y_dim"],
        mask: Bool[Tensor, "*n"] | None = None,
        w: Float[Tensor, "..."] | None = None,
    ) -> Float[Tensor, ""]:
        """The bound in nats; y plays no part in it."""
        if not y_samples.numel():
            return self._nothing(x_samples, y_samples)
        mu, logvar = self.get_mu_logvar(x_samples)
        each = 0.5 * (mu.square() + logvar.exp() - 1 - logvar).sum(-1)
        weights = _join(mask, w, y_samples)
        if weights is None:
            return each.mean()
        each = each.unsqueeze(1) if weights.ndim > each.ndim else each
        return weighted_mean(each.expand_as(weights).flatten(), weights.flatten())


class _Critic(_Estimator):
    """A perceptron with one hidden layer on x and y side by side."""

    def learning_loss(
        self, x_samples: Float[Tensor, "*n x_dim"], y_samples: Float[Tensor, "*n y_dim"]
    ) -> Float[Tensor, ""]:
        """What to minimise to fit the critic: minus the bound."""
        return -self(x_samples, y_samples)


class MINE(_Critic):
    """Donsker-Varadhan bound with one drawn negative per sample, with replacement.

    Args:
        x_dim: columns of x.
        y_dim: columns of y.
        hidden_size: hidden units. A float is cut.

    Example:
        >>> MINE(3, 2, 16)(torch.randn(64, 3), torch.randn(64, 2)).shape
        torch.Size([])

    Reference: CLUB, equation 3.
    """

    def __init__(self, x_dim: int, y_dim: int, hidden_size: Width):
        super().__init__()
        self.T_func = nn.Sequential(*_layers(x_dim + y_dim, int(hidden_size), 1, 1))

    def forward(
        self, x_samples: Float[Tensor, "*n x_dim"], y_samples: Float[Tensor, "*n y_dim"]
    ) -> Float[Tensor, ""]:
        """The bound in nats."""
        if not len(y_samples):
            return self._nothing(x_samples, y_samples)
        index = torch.randint(len(y_samples), (len(y_samples),)).to(y_samples.device)
        joint = self.T_func(torch.cat([x_samples, y_samples], -1))
        product = self.T_func(torch.cat([x_samples, y_samples[index]], -1)).flatten()
        return joint.mean() - product.logsumexp(0) + math.log(len(product))


class NWJ(_Critic):
    """Nguyen-Wainwright-Jordan bound; the pairs (x_i, y_i) are among the negatives.

    Args:
        x_dim: columns of x.
        y_dim: columns of y.
        hidden_size: hidden units. A float is cut.

    Example:
        >>> NWJ(3, 2, 16)(torch.randn(64, 3), torch.randn(64, 2)).shape
        torch.Size([])

    Reference: CLUB, equation 4.
    """

    ends: ClassVar[list[nn.Module]] = []

    def __init__(self, x_dim: int, y_dim: int, hidden_size: Width):
        super().__init__()
        self.F_func = nn.Sequential(*_layers(x_dim + y_dim, int(hidden_size), 1, 1), *self.ends)

    def forward(
        self, x_samples: Float[Tensor, "n x_dim"], y_samples: Float[Tensor, "n y_dim"]
    ) -> Float[Tensor, ""]:
        """The bound in nats."""
        if len(y_samples) < 2:
            return self._nothing(x_samples, y_samples)
        scores = self._scores(x_samples, y_samples)
        return scores.diagonal.mean() - (scores.log_mean_exp(None, "all") - 1).exp()

    def _scores(self, x: Tensor, y: Tensor) -> Pairs:
        """F(x_i, y_j), the part of x and that of y in the first layer computed once for each."""
        first, last = self.F_func[0], self.F_func[2]
        assert isinstance(first, nn.Linear)
        assert isinstance(last, nn.Linear)
        a = F.linear(x, first.weight[:, : x.shape[-1]], first.bias)
        b = F.linear(y, first.weight[:, x.shape[-1] :])

        def block(b: Tensor, a: Tensor) -> Tensor:
            return self._end(score_hidden(a, b, last.weight[0], last.bias))

        own = self._end(F.linear((a + b).relu(), last.weight, last.bias).squeeze(-1))
        parameters = list(self.F_func.parameters())
        return Pairs(b, block, own, a.shape[1], rows=[a], parameters=parameters)

    def _end(self, scores: Tensor) -> Tensor:
        return scores


class InfoNCE(NWJ):
    """InfoNCE with positive scores, over the x's for a fixed y; at most log N.

    Args:
        x_dim: columns of x.
        y_dim: columns of y.
        hidden_size: hidden units. A float is cut.

    Example:
        >>> bool(InfoNCE(3, 2, 16)(torch.randn(64, 3), torch.randn(64, 2)) < 4.16)
        True

    Reference: CLUB, equation 5.
    """

    ends: ClassVar[list[nn.Module]] = [nn.Softplus()]

    def forward(
        self, x_samples: Float[Tensor, "n x_dim"], y_samples: Float[Tensor, "n y_dim"]
    ) -> Float[Tensor, ""]:
        """The bound in nats."""
        if len(y_samples) < 2:
            return self._nothing(x_samples, y_samples)
        scores = self._scores(x_samples, y_samples)
        return (scores.diagonal - scores.log_mean_exp(0, "all")).mean()

    def _end(self, scores: Tensor) -> Tensor:
        return F.softplus(scores)


def _layers(in_dim: int, width: int | None, out_dim: int, depth: int) -> list[nn.Module]:
    """Linear maps with ReLU between them; a single one where no width is given."""
    widths = [in_dim, *([] if width is None else [width] * depth), out_dim]
    layers: list[nn.Module] = []
    for a, b in pairwise(widths):
        layers += [nn.Linear(a, b), nn.ReLU()]
    return layers[:-1]


def _join(mask: Tensor | None, w: Tensor | None, y: Tensor) -> Tensor | None:
    """One weight for each frame of y, from a mask and weights of frames or of samples."""
    if mask is None and w is None:
        return None
    weights = y.new_ones(y.shape[:-1])
    if mask is not None:
        weights = weights * mask
    if w is not None:
        weights = weights * w.reshape(*w.shape, *[1] * (weights.ndim - w.ndim))
    return weights
