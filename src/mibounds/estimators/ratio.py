"""A classifier's log-ratio: the estimator that is made for minimising."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mibounds.estimators.base import Estimator
from mibounds.networks import MLP, Hidden, Standardiser, observe
from mibounds.samples.checks import Group, check_pair, check_real, check_size, check_tensor

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Shaped

MOMENTUM = 0.02  # weight of a batch in the statistics that standardise
FAR = 30.0  # median distances, and standard deviations, from which on a value counts as no more
RARE = 1e-4  # frequency that a label has at least
NEIGHBOURS = 8  # samples nearest in a real third variable, among which y is exchanged


class Ratio(Estimator):
    """log p(x, y) / p(x) p(y) by classification; the value is its mean over the given pairs.

    A classifier tells given pairs from pairs in which y belongs to another sample; its logit is the
    log-ratio. For a label it is simpler: log q(y|x) minus the log-frequency of the label.

    Learnt on *spread* samples, x + σ e with σ log-uniform in [``spread``, 1] standard deviations,
    the classifier is told σ. Where a code is a function of its input, or takes few values, the
    log-ratio has no useful gradient without that. I(x + σ e; y) <= I(x; y).

    With a third variable, given to every call, it is the log-ratio p(x, y|g) / p(x|g) p(y|g).

    Args:
        x_dim: columns of x.
        y_dim: columns of y, unless it is a label.
        hidden: hidden units of the classifier, in each of its layers.
        labels: number of values of y, the integers 0, 1, ...; a sequence for several labels at
            once, one column each.
        given_dim: columns of a real third variable.
        given_labels: number of values of a third variable that is a label.
        spread: the smallest σ; None to learn on the samples as they are.

    Attributes:
        noisy: 0 if x is spread, 1 if y is.

    Example:
        >>> ratio = Ratio(3, labels=4)
        >>> nats = ratio(torch.randn(64, 3), torch.randint(4, (64,)))

    Reference: Yu et al. 2026; the classifier: Sugiyama et al. 2012, section 4.
    """

    name = "ratio"
    side = "neither"
    condition = "the classifier may be too sure, or not sure enough"
    cost = "N H"
    reference = "Yu et al. 2026, section 3"
    has_conditional = False
    frequencies: Tensor
    batches: Tensor
    signs: Tensor  # of the scores of a given pair and of a product pair in the loss

    def __init__(
        self,
        x_dim: int,
        y_dim: int | None = None,
        hidden: Hidden = (128, 128),
        *,
        labels: int | tuple[int, ...] | list[int] | None = None,
        given_dim: int = 0,
        given_labels: int = 0,
        spread: float | None = 0.01,
    ):
        super().__init__()
        _check_sizes(x_dim, y_dim, labels, given_dim, given_labels, spread)
        self.sizes = (labels,) if isinstance(labels, int) else tuple(labels or ())
        self.labels = math.prod(self.sizes) if self.sizes else 0
        self.given_dim, self.given_labels, self.spread = given_dim, given_labels, spread
        self.noisy = 0
        self.dims = (x_dim, 0 if self.labels else y_dim or 0, given_dim)
        self.standards = nn.ModuleList(Standardiser(dim, MOMENTUM) for dim in self.dims)
        inputs = sum(self.dims) + given_labels + (spread is not None)
        self.classifier = MLP(inputs, hidden, self.labels or 1, nn.SiLU)
        assert self.classifier.layers is not None
        nn.init.zeros_(self.classifier.layers[-1].weight)  # pyright: ignore[reportArgumentType]
        nn.init.zeros_(self.classifier.offset)
        self.by_label = bool(self.labels) and not given_dim
        if self.labels and given_dim:  # the frequencies of y depend on what is given
            self.baseline = MLP(given_dim, hidden, self.labels, nn.SiLU)
        self.register_buffer(
            "frequencies", torch.full((max(1, given_labels), max(1, self.labels)), 1.0)
        )
        self.frequencies /= max(1, self.labels)
        self.register_buffer("batches", torch.zeros(()))
        self.register_buffer("signs", torch.tensor([-1.0, 1.0]), persistent=False)

    def forward(
        self,
        x: Shaped[Tensor, "n *x"],
        y: Shaped[Tensor, "n *y"],
        given: Shaped[Tensor, "n *g"] | None = None,
        *,
        group: Group = None,
    ) -> Float[Tensor, ""]:
        """The mean log-ratio of the given pairs, in nats."""
        batch = check_pair(x, y, group)
        x, y, given = self.check(x, y, given)
        return batch.mean(self.log_ratios(*self.standardise(x, y, given)))

    def learning_loss(
        self,
        x: Shaped[Tensor, "n *x"],
        y: Shaped[Tensor, "n *y"],
        given: Shaped[Tensor, "n *g"] | None = None,
        *,
        mask: Bool[Tensor, "n *t"] | None = None,
        weights: Float[Tensor, "n *w"] | None = None,
        group: Group = None,
        generator: torch.Generator | None = None,
    ) -> Float[Tensor, ""]:
        """The classifier's loss on spread samples; the value does not minimise it.

        Args:
            x: samples.
            y: samples or labels.
            given: the third variable, if there is one.
            mask: True for the samples that count.
            weights: refused.
            group: processes whose batches are joined.
            generator: source of the noise and of the exchanges.
        """
        rows = self._lay_out(x, y, mask, weights, group, learning=True)
        if rows.samples < 2 and self._passes_over(rows):
            return self.pass_over(rows)
        if rows.y is not y and given is not None:
            given = self._lay_out(x, given, mask, None, None).y
        x, y, group, _ = rows
        batch = check_pair(x, y, group)
        x, y, given = self.check(x, y, given)
        if self.training:
            third = None if given is None else batch.gather(given)
            self.observe(batch.gather(x), batch.gather(y), third)
        x, y, given = self.standardise(x, y, given)
        return batch.mean(self.losses(*self.blur(x, y, generator), given, generator))

    # --- the parts of a call, on checked samples --------------------------------------------------

    def check(
        self, x: Tensor, y: Tensor, given: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Bring all sides to shape (n, columns), and labels to shape (n,)."""
        if given is not None:
            check_tensor("given", given)
        x = self._real("x", x, 0)
        y = _one_label("y", y, self.sizes) if self.labels else self._real("y", y, 1)
        if (given is None) != (not (self.given_dim or self.given_labels)):
            raise ValueError(
                "Expected given= in every call if and only if the estimator was made with "
                f"given_dim= or given_labels=, but got given_dim={self.given_dim}, "
                f"given_labels={self.given_labels} and {'no ' if given is None else 'a '}given; "
                "make the two agree."
            )
        if given is not None and len(given) != len(x):
            raise ValueError(
                f"Expected as many rows of given as of x but got {len(given)} and {len(x)}; "
                "pass rows that belong together."
            )
        if given is not None and self.given_labels:
            given = _one_label("given", given, (self.given_labels,))
        elif given is not None:
            given = self._real("given", given, 2)
        return x, y, given

    def _real(self, name: str, value: Tensor, which: int) -> Tensor:
        return check_real(name, value, self.dims[which], self.frequencies)

    @torch.no_grad()
    def observe(self, x: Tensor, y: Tensor, given: Tensor | None) -> None:
        """Update the statistics that standardise, and the frequencies of labels."""
        sides = zip(self.standards, (x, y, given), strict=True)
        real: Any = [(s, v.detach()) for s, v in sides if len(s.mean) and v is not None]  # pyright: ignore
        near = _near(torch.cat([v for _, v in real], 1)).split([v.shape[1] for _, v in real], 1)
        observe([(s, v) for (s, _), v in zip(real, near, strict=True)])
        if self.by_label:
            shown = F.one_hot(y, self.labels).to(self.frequencies.dtype)
            rows = shown.new_ones(len(y), 1)
            if given is not None:
                rows = F.one_hot(given, self.given_labels).to(shown.dtype)
            counts = rows.T @ shown
            seen = counts.sum(1, keepdim=True)
            weight = (self.batches + 1).reciprocal().clamp_min(MOMENTUM) * (seen > 0)
            new = torch.lerp(self.frequencies, counts / seen.clamp_min(1), weight)
            self.frequencies = new.clamp_min(RARE)
        self.batches = self.batches + 1

    def standardise(
        self, x: Tensor, y: Tensor, given: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Standardise what is real; what lies very far out is moved nearer."""
        x = _limit(self.standards[0](x))
        y = y if self.labels else _limit(self.standards[1](y))
        real = given is not None and self.given_dim
        return x, y, _limit(self.standards[2](given)) if real else given

    def blur(
        self, x: Tensor, y: Tensor, generator: torch.Generator | None = None
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Spread one side of standardised samples; log σ comes third, scaled to [-1, 1]."""
        if self.spread is None:
            return x, y, None
        noise, log_size = draw_noise(len(x), y if self.noisy else x, self.spread, generator)
        x, y = (x, y + noise) if self.noisy else (x + noise, y)
        return x, y, 1 - 2 * log_size / min(math.log(self.spread), -1e-3)

    def log_ratios(
        self, x: Tensor, y: Tensor, given: Tensor | None = None, size: Tensor | None = None
    ) -> Float[Tensor, " n"]:
        """The log-ratio of each given pair.

        Args:
            x: standardised samples.
            y: standardised samples, or labels.
            given: standardised samples of the third variable, or labels.
            size: how far each is spread, from `blur`; as little as possible if left out.
        """
        if self.labels:
            return self.of_labels(x, given, size).gather(1, y[:, None])[:, 0]
        return self._scores([x, y], given, size).squeeze(1)

    def of_labels(
        self, x: Tensor, given: Tensor | None = None, size: Tensor | None = None
    ) -> Float[Tensor, "n labels"]:
        """The log-ratio of each sample with every label; see `log_ratios`."""
        scores = self._scores([x], given, size).log_softmax(1)
        if self.by_label:
            return scores - self.frequencies[0 if given is None else given].log()
        return scores - self.baseline(given).log_softmax(1)

    def descent(
        self, x: Tensor, y: Tensor, given: Tensor | None = None, size: Tensor | None = None
    ) -> Float[Tensor, " n"]:
        """What an encoder descends, for each sample; see `log_ratios`.

        The log-ratio of the given pairs; for labels its mean under q(y|x), which is the divergence
        of q(y|x) from the frequencies. Descending the former, an encoder that goes too far ends at
        another label; the latter has its minimum where x tells nothing.
        """
        if not self.labels:
            return self.log_ratios(x, y, given, size)
        ratios = self.of_labels(x, given, size)
        return (self._scores([x], given, size).softmax(1) * ratios).sum(1)

    def _scores(self, parts: list[Tensor], given: Tensor | None, size: Tensor | None) -> Tensor:
        return self.classifier(self._see(parts, given, size))

    def _see(self, parts: list[Tensor], given: Tensor | None, size: Tensor | None) -> Tensor:
        """What the classifier sees: the columns of all parts side by side."""
        x = parts[0]
        if given is not None and self.given_labels:
            parts.append(F.one_hot(given, self.given_labels).to(x.dtype))
        elif given is not None:
            parts.append(given)
        if self.spread is not None:
            parts.append(x.new_full((len(x), 1), -1.0) if size is None else size)
        return torch.cat(parts, 1)

    def losses(
        self,
        x: Tensor,
        y: Tensor,
        size: Tensor | None,
        given: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> Float[Tensor, " n"]:
        """The classifier's loss of each sample, after `blur`."""
        if not self.labels:
            return self.losses_of_pairs(self.pairs(x, y, size, given, generator))
        own = self.log_ratios(x, y, given, size)
        if self.by_label:
            return -own
        assert given is not None
        baseline = F.cross_entropy(self.baseline(given), y, reduction="none")
        return baseline - (own - baseline.detach())

    def pairs(
        self,
        x: Tensor,
        y: Tensor,
        size: Tensor | None,
        given: Tensor | None = None,
        generator: torch.Generator | None = None,
        *,
        shuffled: bool = False,
    ) -> Float[Tensor, "n 2 inputs"]:
        """What the classifier sees of each given pair, and of a product pair; y is no label.

        Args:
            x: standardised samples, after `blur`.
            y: standardised samples.
            size: how far each is spread.
            given: the third variable, if there is one.
            generator: source of the exchanges.
            shuffled: whether the samples are in random order, so that the next one is any other.
        """
        joint = self._see([x, y], given, size)
        product = self._exchange(x, y, given, generator, shuffled)
        return torch.stack([joint, self._see([*product], given, size)], 1)

    def losses_of_pairs(self, pairs: Float[Tensor, "n 2 inputs"]) -> Float[Tensor, " n"]:
        """The classifier's loss of each given pair with its product pair."""
        scores = self.classifier(pairs.flatten(0, 1)).view(-1, 2)
        return F.softplus(scores * self.signs).sum(1)

    def _exchange(
        self,
        x: Tensor,
        y: Tensor,
        given: Tensor | None,
        generator: torch.Generator | None,
        shuffled: bool = False,
    ) -> tuple[Tensor, Tensor]:
        """Product pairs. What is spread stays with the size of its noise."""
        side, simple = x if self.noisy else y, shuffled and given is None
        side = side.roll(1, 0) if simple else exchange(side, given, generator)
        return (side, y) if self.noisy else (x, side)

    @torch.no_grad()
    def judge(
        self,
        own: Tensor,
        x: Tensor,
        y: Tensor,
        size: Tensor | None,
        given: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
        """What the classifier is worth on samples that it has not learnt from.

        Args:
            own: its log-ratios of the given pairs.
            x: standardised samples, after `blur`.
            y: standardised samples, or labels.
            size: how far each is spread.
            given: the third variable, if there is one.
            generator: source of the exchanges.

        Returns:
            A lower bound in nats: for labels the mean log-ratio, otherwise that of Donsker and
            Varadhan. And what the classifier knows, in nats: the same for labels, and otherwise
            what its loss is below that of one which knows nothing; it has less noise.
        """
        if self.labels:
            return own.mean(), own.mean()
        others = self.log_ratios(*self._exchange(x, y, given, generator), given, size)
        known = 2 * math.log(2) - (F.softplus(-own) + F.softplus(others)).mean()
        return own.mean() - others.logsumexp(0) + math.log(len(own)), 4 * known


def draw_noise(
    n: int, like: Tensor, spread: float, generator: torch.Generator | None = None
) -> tuple[Float[Tensor, "n d"], Float[Tensor, "n 1"]]:
    """Normal noise of a random size σ for each row, with log σ uniform in [log spread, 0].

    Args:
        n: number of rows.
        like: samples, for columns, dtype and device.
        spread: the smallest σ.
        generator: source of the random numbers.

    Returns:
        The noise, and log σ.

    Example:
        >>> noise, log_size = draw_noise(1000, torch.zeros(1, 3), 0.01)
        >>> noise.shape, bool((log_size <= 0).all() and (log_size >= -4.7).all())
        (torch.Size([1000, 3]), True)
    """
    options: Any = {"generator": generator, "device": like.device, "dtype": like.dtype}
    log_size = math.log(spread) * torch.rand(n, 1, **options)
    return log_size.exp() * torch.randn(n, *like.shape[1:], **options), log_size


def exchange(
    y: Shaped[Tensor, "n *y"],
    given: Shaped[Tensor, "n *g"] | None = None,
    generator: torch.Generator | None = None,
) -> Shaped[Tensor, "n *y"]:
    """Give each sample the y of another one, which is alike in the third variable.

    Args:
        y: samples.
        given: labels, within which y is exchanged; or real samples: among the nearest.
        generator: source of the exchanges.

    Example:
        >>> y = torch.arange(4)
        >>> bool((exchange(y) == y).any())
        False
    """
    n = len(y)
    options = {"generator": generator, "device": y.device}
    order = torch.rand(n, dtype=torch.float32, **options).argsort()
    if given is None:
        other = torch.empty_like(order)
        other[order] = order.roll(1)
        return y[other]
    if given.is_floating_point():
        distances = torch.cdist(given, given)
        distances.fill_diagonal_(math.inf)
        near = distances.topk(min(NEIGHBOURS, n - 1), largest=False).indices
        pick = torch.randint(near.shape[1], (n, 1), **options)
        return y[near.gather(1, pick)[:, 0]]
    order = order[given[order].argsort(stable=True)]  # by label, in random order within each
    groups = given[order]
    first = torch.searchsorted(groups, groups)
    last = torch.searchsorted(groups, groups, right=True)
    place = torch.arange(n, device=y.device)
    after = torch.where(place + 1 < last, place + 1, first)
    other = torch.empty_like(order)
    other[order] = order[after]
    return y[other]


def _near(columns: Tensor) -> Tensor:
    """Columns without outliers, which would make all else look constant for many batches."""
    centre = columns.median(0).values
    off = columns - centre
    reach = FAR * off.abs().median(0).values
    reach = torch.where(reach > 0, reach, torch.inf)  # most values are the same
    return centre + off.clamp(-reach, reach)


def _limit(columns: Tensor) -> Tensor:
    """Standardised columns, of which an outlier is no more than that; infinity becomes NaN."""
    return columns + (columns.clamp(-FAR, FAR) - columns)


def _one_label(name: str, labels: Tensor, sizes: tuple[int, ...]) -> Tensor:
    """One label for each sample, from one or several columns of them."""
    if labels.is_floating_point():
        raise ValueError(
            f"Expected {name} to hold labels, integers below {', '.join(map(str, sizes))}, but got "
            f"{labels.dtype}; pass {name}.long() if they are labels, or {name}_dim= if not."
        )
    labels = labels.reshape(len(labels), -1).long()
    if labels.shape[1] != len(sizes):
        raise ValueError(
            f"Expected {name} to have {len(sizes)} column(s) of labels but got "
            f"{labels.shape[1]}; pass as many numbers of values as columns."
        )
    if not labels.is_cuda and len(labels):
        for column, size in zip(labels.unbind(1), sizes, strict=True):
            low, high = int(column.min()), int(column.max())
            if low < 0 or high >= size:
                raise ValueError(
                    f"Expected labels in {name} from 0 to {size - 1} but got {low} to {high}; "
                    "number them from 0, or pass the actual number of values."
                )
    joint = labels[:, 0]
    for column, size in zip(labels.unbind(1)[1:], sizes[1:], strict=True):
        joint = joint * size + column
    return joint


def _check_sizes(
    x_dim: int,
    y_dim: int | None,
    labels: int | tuple[int, ...] | list[int] | None,
    given_dim: int,
    given_labels: int,
    spread: float | None,
) -> None:
    check_size("x_dim", x_dim)
    if (y_dim is None) == (labels is None):
        raise ValueError(
            f"Expected either y_dim or labels but got y_dim={y_dim} and labels={labels}; pass "
            "y_dim=s.shape[1] for real columns, labels=k for integers from 0 to k - 1."
        )
    if labels is None:
        assert y_dim is not None
        check_size("y_dim", y_dim)
    for size in (labels,) if isinstance(labels, int) else tuple(labels or ()):
        check_size("labels", size, at_least=2)
    check_size("given_dim", given_dim, at_least=0)
    check_size("given_labels", given_labels, at_least=0)
    if given_dim and given_labels:
        raise ValueError(
            f"Expected one of given_dim and given_labels but got {given_dim} and {given_labels}; "
            "pass a label among real columns as zeros and ones."
        )
    if spread is not None and not 0 < spread < 1:
        raise ValueError(
            f"Expected spread in (0, 1), or None for none, but got {spread}; "
            "leave it out for 0.01 standard deviations."
        )
