"""The methods of domain adaptation: their networks, and the losses of a step.

All share the content encoder and the classifier, and what can be added to any of them: entropy and
balance of the target's predictions, virtual adversarial training, an averaged teacher. A step is
given the labels of the source alone.

The framework of the paper adds a domain encoder with a discriminator, and the mutual information of
the two embeddings, which is `MIPenalty`. Batches are joined: first the images of the
source, then as many of the target.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from experiments import objectives
from experiments.domains import Task
from experiments.encoders import Decoder, Encoder, head
from experiments.estimation.as_published import ADAPTATION
from experiments.ingredients import BOUNDS, Settings
from mibounds import conditionals
from mibounds.estimators import ESTIMATORS, NWJ, ConditionalEstimator
from mibounds.minimise.penalty import MIPenalty, PenaltyWarning

if TYPE_CHECKING:
    from jaxtyping import Float, Int

BETAS = (0.5, 0.999)  # of every Adam
RECONSTRUCTION, DIFFERENCE, SIMILARITY = 0.01, 0.075, 0.25  # weights of DSN, for digits
ROUNDS = 4  # of MCD's third step
FAMILIES: dict[str, Any] = {
    "gaussian": conditionals.Gaussian,
    "unit": conditionals.UnitGaussian,
    "low-rank": conditionals.LowRankGaussian,
    "mixture": conditionals.GaussianMixture,
    "student": conditionals.StudentT,
}


@dataclass(frozen=True, eq=False)
class Batch:
    """What a step is given; no label of the target is in it.

    Args:
        x: images, source and target joined.
        labels: of the source.
        again: the same images augmented once more, for a teacher; x where none is needed.
        ramp: how strong the reversed gradient is by now, from 0 to 1.
        mi_weight: weight of the mutual information by now.
    """

    x: Float[Tensor, "n 3 h w"]
    labels: Int[Tensor, " m"]
    again: Float[Tensor, "n 3 h w"]
    ramp: Float[Tensor, ""]
    mi_weight: Float[Tensor, ""]


Phase = tuple[Tensor, Sequence[str]]  # a loss, and the networks that are to make it smaller


class Adaptation:
    """Source only: the networks that all methods share, and what can be added to any of them.

    Args:
        method: name.
        settings: of the ingredients.
        task: sizes of images and labels.
        bf16: whether encoders compute in bfloat16.
        seed: of the negatives that are drawn.

    Example:
        >>> model = Adaptation("source", Settings(widths=(4, 4, 4)), Task("mnist", "usps"))
        >>> model.logits(torch.randn(6, 3, 28, 28)).shape
        torch.Size([6, 10])
    """

    domain_embedding = False  # whether there is one

    def __init__(
        self, method: str, settings: Settings, task: Task, bf16: bool = False, seed: int = 0
    ):
        self.method, self.settings, self.task, self.bf16 = method, settings, task, bf16
        self.width = settings.widths[-1]
        self.nets = nn.ModuleDict(
            {
                "content": self.encoder(settings.statistics == "split"),
                "classifier": self.make_classifier(),
            }
        )
        self.penalty: MIPenalty | None = None
        self.add_networks(seed)
        self.nets.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
        self.teacher: nn.ModuleDict | None = None
        if settings.teacher:
            shared = {name: self.nets[name] for name in ("content", "classifier")}
            self.teacher = copy.deepcopy(nn.ModuleDict(shared)).eval().requires_grad_(False)

    def encoder(self, split: bool = False, widths: Sequence[int] | None = None) -> Encoder:
        """One more encoder, like that of the content or of other widths."""
        s = self.settings
        return Encoder(widths or s.widths, s.dropout, s.noise, split, self.bf16)

    def make_classifier(self) -> nn.Module:
        """From content embeddings to classes."""
        return head(self.width, self.task.classes)

    def discriminator(self, width: int) -> nn.Module:
        """From embeddings to the two domains; 64 hidden units in the paper, 128 as published."""
        return head(width, 2, min(width, 128))

    def add_networks(self, seed: int) -> None:
        """What a method has besides."""

    def to(self, device: str | torch.device) -> Adaptation:
        """Move everything to a device."""
        for each in (self.nets, self.teacher, self.penalty):
            if each is not None:
                each.to(device)
        return self

    # --- the losses of a step

    def phases(self, batch: Batch) -> Iterator[Phase]:
        """The losses of a step one after the other: each sees the networks as the last left them.

        Args:
            batch: of both domains.

        Yields:
            A loss, and the names of the networks that are to make it smaller.
        """
        z = self.nets["content"](batch.x)
        logits = self.nets["classifier"](z)
        loss = F.cross_entropy(logits.chunk(2)[0], batch.labels)
        yield loss + self.terms(batch, z) + self.additions(batch, logits), tuple(self.nets)

    def terms(self, batch: Batch, z: Tensor) -> Tensor:
        """What a method adds to the cross-entropy."""
        return z.new_zeros(())

    def additions(self, batch: Batch, logits: Tensor) -> Tensor:
        """What can be added to every method."""
        s = self.settings
        _, target = logits.chunk(2)
        total = logits.new_zeros(())
        if s.entropy:
            total = total + s.entropy * objectives.conditional_entropy(target)
        if s.balance:
            total = total + s.balance * objectives.imbalance(target)
        if self.teacher is not None:
            with torch.no_grad():
                taught = self.teacher["classifier"](self.teacher["content"](batch.again))
            _, taught = taught.chunk(2)
            total = total + s.teacher * objectives.consistency(target, taught, s.teacher_threshold)
        if s.vat_source or s.vat_target:
            on_source, on_target = self.resist(batch.x)
            total = total + s.vat_source * on_source + s.vat_target * on_target
        return total

    def resist(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Virtual adversarial training on each domain, through the networks without their noise."""
        s = self.settings
        self.nets.eval()  # else the noise would be what changes a prediction
        with torch.no_grad():
            logits = self.logits(x)
        change = objectives.find_adversary(
            self.logits, x, logits, torch.randn_like(x), s.vat_step, s.vat_radius
        )
        source, target = objectives.divergence(logits, self.logits(x + change)).chunk(2)
        self.nets.train()
        return source.mean(), target.mean()

    # --- what is measured

    def logits(self, x: Tensor) -> Tensor:
        """Predictions, by whatever networks there are now."""
        return self.nets["classifier"](self.nets["content"](x))

    def embed_domain(self, nets: nn.ModuleDict, x: Tensor, target: bool) -> Tensor:
        """The domain embedding by given networks, of images of one domain."""
        return nets["domain"](x)


class Disentangling(Adaptation):
    """The framework of the paper: a domain encoder, and mutual information as a penalty.

    Reference: Cheng et al. 2020, section 4.4.

    Example:
        >>> model = Disentangling("club", Settings(widths=(4, 4, 4)), Task("mnist", "usps"))
        >>> list(model.nets)
        ['content', 'classifier', 'domain', 'discriminator']
    """

    domain_embedding = True

    def add_networks(self, seed: int) -> None:
        _, widths = self.settings.both_widths
        self.nets["domain"] = self.encoder(self.settings.domain_statistics == "split", widths)
        self.nets["discriminator"] = self.discriminator(widths[-1])
        self.penalty = make_penalty(self.method, self.settings, seed)

    def terms(self, batch: Batch, z: Tensor) -> Tensor:
        z_d = self.nets["domain"](batch.x)
        loss = objectives.domain_loss(self.nets["discriminator"](z_d))
        return self.settings.domain_weight * loss + batch.mi_weight * self.information(z, z_d)

    def information(self, content: Tensor, domain: Tensor) -> Tensor:
        """Fit the estimator, then the bound with gradients to the encoders that are to change."""
        assert self.penalty is not None
        s = self.settings
        if s.mi_gradient == "content":
            domain = domain.detach()
        elif s.mi_gradient == "domain":
            content = content.detach()
        sides = (domain, content) if s.mi_direction == "backward" else (content, domain)
        value = self.penalty(*sides)
        if self.penalty.estimator.side == "lower" and s.q != "published":
            # Below zero a lower bound says nothing more: to push it on would be to fool the critic.
            return value.clamp_min(0.0)
        return value


def make_penalty(method: str, settings: Settings, seed: int) -> MIPenalty:
    """The library's penalty, such that a whole step with it can be captured in a graph.

    Args:
        method: name of the estimator.
        settings: its family, capacity, rate and steps.
        seed: of the negatives.

    Example:
        >>> make_penalty("club_sample", Settings(q="student"), 0).estimator.conditional.x_dim
        64
    """
    s = settings
    content, domain = (widths[-1] for widths in s.both_widths)

    def make(x_dim: int, y_dim: int) -> Any:
        if s.q == "published" and method in ADAPTATION:
            return ADAPTATION[method](x_dim, y_dim, s.q_hidden)
        if method == "nwj":
            return NWJ(x_dim, y_dim, s.q_hidden, limit=3.0)
        family = ESTIMATORS[method]
        if issubclass(family, ConditionalEstimator) and s.q in FAMILIES:
            return family(conditional=FAMILIES[s.q](x_dim, y_dim, s.q_hidden))
        return family(x_dim, y_dim, s.q_hidden)

    forward, backward = (content, domain), (domain, content)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PenaltyWarning)  # lower bounds are here to be seen to fail
        return MIPenalty(
            make(*(backward if s.mi_direction == "backward" else forward)),
            backward=make(*backward) if s.mi_direction == "both" else None,
            inner_steps=s.inner_steps,
            optimizer=lambda ps: torch.optim.Adam(ps, lr=s.mi_lr, betas=BETAS, fused=True),
            seed=seed,
            capturable=True,
        )


class DANN(Adaptation):
    """Domain-adversarial training: a discriminator whose gradient is reversed.

    Reference: Ganin et al. 2016, section 4.2.

    Example:
        >>> list(DANN("dann", Settings(widths=(4, 4, 4)), Task("mnist", "usps")).nets)
        ['content', 'classifier', 'discriminator']
    """

    def add_networks(self, seed: int) -> None:
        self.nets["discriminator"] = self.discriminator(self.width)

    def terms(self, batch: Batch, z: Tensor) -> Tensor:
        reversed_z = objectives.reverse(z, batch.ramp)
        return objectives.domain_loss(self.nets["discriminator"](reversed_z))


class DSN(Adaptation):
    """Domain separation networks: private encoders, a shared decoder, an adversary.

    Reference: Bousmalis et al. 2016, section 3; the similarity is that of DANN.

    Example:
        >>> nets = DSN("dsn", Settings(widths=(4, 4, 4)), Task("mnist", "usps")).nets
        >>> "private_source" in nets, "decoder" in nets
        (True, True)
    """

    domain_embedding = True

    def add_networks(self, seed: int) -> None:
        self.nets["discriminator"] = self.discriminator(self.width)
        self.nets["private_source"] = self.encoder()
        self.nets["private_target"] = self.encoder()
        self.nets["decoder"] = Decoder(self.width, self.task.side, min(self.width, 32))

    def terms(self, batch: Batch, z: Tensor) -> Tensor:
        halves = batch.x.chunk(2)
        private = [
            self.nets[name](x)
            for name, x in zip(("private_source", "private_target"), halves, strict=True)
        ]
        difference = z.new_zeros(())
        for shared, own in zip(z.chunk(2), private, strict=True):
            difference = difference + objectives.difference_loss(shared, own)
        rebuilt = self.nets["decoder"](z + torch.cat(private))
        reconstruction = 2 * objectives.reconstruction_loss(batch.x, rebuilt)  # a sum over domains
        reversed_z = objectives.reverse(z, batch.ramp)
        similarity = objectives.domain_loss(self.nets["discriminator"](reversed_z))
        return RECONSTRUCTION * reconstruction + DIFFERENCE * difference + SIMILARITY * similarity

    def embed_domain(self, nets: nn.ModuleDict, x: Tensor, target: bool) -> Tensor:
        return nets["private_target" if target else "private_source"](x)


class _Two(nn.Module):
    """Two classifiers whose mean is the prediction."""

    def __init__(self, width: int, classes: int):
        super().__init__()
        self.first, self.second = (head(width, classes, width) for _ in range(2))

    def both(self, z: Tensor) -> tuple[Tensor, Tensor]:
        return self.first(z), self.second(z)

    def forward(self, z: Tensor) -> Tensor:
        first, second = self.both(z)
        return (first + second) / 2


class MCD(Adaptation):
    """Maximum classifier discrepancy: two classifiers disagree, and the encoder makes them agree.

    Three steps: all networks on the source; the classifiers on the source and for a larger
    discrepancy on the target; the encoder for a smaller one, four times.

    Reference: Saito et al. 2018, section 3.3, steps A, B and C.

    Example:
        >>> list(MCD("mcd", Settings(widths=(4, 4, 4)), Task("mnist", "usps")).nets)
        ['content', 'classifier']
    """

    def make_classifier(self) -> nn.Module:
        return _Two(self.width, self.task.classes)

    def phases(self, batch: Batch) -> Iterator[Phase]:
        loss, _, logits = self.losses(batch)
        yield loss + self.additions(batch, logits), ("content", "classifier")
        loss, disagreement, _ = self.losses(batch)
        yield loss - disagreement, ("classifier",)
        for _ in range(ROUNDS):
            _, disagreement, _ = self.losses(batch)
            yield disagreement, ("content",)

    def losses(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """Cross-entropies on the source, discrepancy on the target, and the logits."""
        both = self.nets["classifier"].both(self.nets["content"](batch.x))  # pyright: ignore
        loss = sum(F.cross_entropy(each.chunk(2)[0], batch.labels) for each in both)
        disagreement = objectives.discrepancy(*(each.chunk(2)[1] for each in both))
        return loss, disagreement, (both[0] + both[1]) / 2  # pyright: ignore[reportReturnType]


def make_adaptation(
    method: str, settings: Settings, task: Task, bf16: bool = False, seed: int = 0
) -> Adaptation:
    """The method of a name.

    Example:
        >>> task = Task("mnist", "usps")
        >>> type(make_adaptation("nwj", Settings(widths=(4, 4, 4)), task)).__name__
        'Disentangling'
    """
    kinds: dict[str, type[Adaptation]] = {"dann": DANN, "dsn": DSN, "mcd": MCD}
    kind = Disentangling if method in BOUNDS else kinds.get(method, Adaptation)
    return kind(method, settings, task, bf16, seed)
