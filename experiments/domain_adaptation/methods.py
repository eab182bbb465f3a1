"""The methods of domain adaptation: their networks, and the losses of a step.

All of them have the content encoder and the classifier, and what can be added to any method:
entropy and balance of the target's predictions, virtual adversarial training, an averaged teacher.
A step sees labels of the source only.

The framework of the paper adds a domain encoder with a discriminator, and the mutual information of
the two embeddings, by `MIPenalty`. Batches are joined: first images of the source, then as many of
the target.
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

from experiments.domain_adaptation import losses
from experiments.domain_adaptation.as_published import PUBLISHED_ESTIMATORS
from experiments.domain_adaptation.config import BOUNDS, DomainAdaptationConfig, Transfer
from experiments.domain_adaptation.networks import ConvEncoder, Decoder, head
from mibounds import conditionals
from mibounds.estimators import ESTIMATORS, NWJ, ConditionalEstimator
from mibounds.minimise.penalty import MIPenalty, PenaltyWarning

if TYPE_CHECKING:
    from jaxtyping import Float, Int

BETAS = (0.5, 0.999)  # of every Adam
RECONSTRUCTION, DIFFERENCE, SIMILARITY = 0.01, 0.075, 0.25  # weights of DSN, for digits
ROUNDS = 4  # of MCD's third step
CONDITIONALS: dict[str, Any] = {
    "gaussian": conditionals.Gaussian,
    "unit": conditionals.UnitGaussian,
    "low-rank": conditionals.LowRankGaussian,
    "mixture": conditionals.GaussianMixture,
    "student": conditionals.StudentT,
}


@dataclass(frozen=True, eq=False)
class StepInputs:
    """What a step is given; no label of the target is in it.

    Args:
        x: images, source and target joined.
        labels: of the source.
        again: the same images augmented anew, for a teacher; x where there is none.
        ramp: current strength of the reversed gradient, from 0 to 1.
        mi_weight: current weight of the mutual information.
    """

    x: Float[Tensor, "n 3 h w"]
    labels: Int[Tensor, " m"]
    again: Float[Tensor, "n 3 h w"]
    ramp: Float[Tensor, ""]
    mi_weight: Float[Tensor, ""]


Phase = tuple[Tensor, Sequence[str]]  # a loss, and the networks that minimise it


class Adaptation:
    """Source only: the networks that all methods share, and what can be added to any of them.

    Args:
        method: name.
        config: settled.
        transfer: sizes of images, number of classes.
        bf16: whether encoders compute in bfloat16.
        seed: of the negatives that are drawn.

    Example:
        >>> from experiments.domain_adaptation.config import settle
        >>> config = settle(DomainAdaptationConfig(widths=(4, 4, 4)))
        >>> model = Adaptation("source", config, Transfer("mnist", "usps"))
        >>> model.logits(torch.randn(6, 3, 28, 28)).shape
        torch.Size([6, 10])
    """

    domain_embedding = False  # whether there is one

    def __init__(
        self,
        method: str,
        config: DomainAdaptationConfig,
        transfer: Transfer,
        bf16: bool = False,
        seed: int = 0,
    ):
        self.method, self.config, self.transfer, self.bf16 = method, config, transfer, bf16
        self.width = config.widths[-1]
        self.nets = nn.ModuleDict(
            {
                "content": self.make_encoder(config.statistics == "split"),
                "classifier": self.make_classifier(),
            }
        )
        self.penalty: MIPenalty | None = None
        self.add_networks(seed)
        self.nets.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
        self.teacher: nn.ModuleDict | None = None
        if config.teacher:
            shared = {name: self.nets[name] for name in ("content", "classifier")}
            self.teacher = copy.deepcopy(nn.ModuleDict(shared)).eval().requires_grad_(False)

    def make_encoder(self, split: bool = False, widths: Sequence[int] | None = None) -> ConvEncoder:
        """Another encoder, by default like that of the content."""
        c = self.config
        return ConvEncoder(widths or c.widths, c.dropout, c.noise, split, self.bf16)

    def make_classifier(self) -> nn.Module:
        """From content embeddings to classes."""
        return head(self.width, self.transfer.classes)

    def make_discriminator(self, width: int) -> nn.Module:
        """From embeddings to the two domains; 64 hidden units in the paper, 128 as published."""
        return head(width, 2, min(width, 128))

    def add_networks(self, seed: int) -> None:
        """The further networks of a method."""

    def to(self, device: str | torch.device) -> Adaptation:
        """Move everything to a device."""
        for each in (self.nets, self.teacher, self.penalty):
            if each is not None:
                each.to(device)
        return self

    # --- the losses of a step

    def phases(self, inputs: StepInputs) -> Iterator[Phase]:
        """The losses of a step in turn: each sees the networks as the one before left them.

        Args:
            inputs: images of both domains, labels of the source.

        Yields:
            A loss, and the names of the networks that minimise it.
        """
        z = self.nets["content"](inputs.x)
        logits = self.nets["classifier"](z)
        loss = F.cross_entropy(logits.chunk(2)[0], inputs.labels)
        yield loss + self.terms(inputs, z) + self.additions(inputs, logits), tuple(self.nets)

    def terms(self, inputs: StepInputs, z: Tensor) -> Tensor:
        """What a method adds to the cross-entropy."""
        return z.new_zeros(())

    def additions(self, inputs: StepInputs, logits: Tensor) -> Tensor:
        """What can be added to every method."""
        c = self.config
        _, target = logits.chunk(2)
        total = logits.new_zeros(())
        if c.entropy:
            total = total + c.entropy * losses.conditional_entropy(target)
        if c.balance:
            total = total + c.balance * losses.imbalance(target)
        if self.teacher is not None:
            with torch.no_grad():
                taught = self.teacher["classifier"](self.teacher["content"](inputs.again))
            _, taught = taught.chunk(2)
            total = total + c.teacher * losses.consistency(target, taught, c.teacher_threshold)
        if c.vat_source or c.vat_target:
            on_source, on_target = self.resist(inputs.x)
            total = total + c.vat_source * on_source + c.vat_target * on_target
        return total

    def resist(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Losses of virtual adversarial training on each domain, through networks without noise."""
        c = self.config
        self.nets.eval()  # or else the noise would change the predictions
        with torch.no_grad():
            logits = self.logits(x)
        change = losses.find_adversary(
            self.logits, x, logits, torch.randn_like(x), c.vat_step, c.vat_radius
        )
        source, target = losses.divergence(logits, self.logits(x + change)).chunk(2)
        self.nets.train()
        return source.mean(), target.mean()

    # --- what tests use

    def logits(self, x: Tensor) -> Tensor:
        """Predictions of the networks as they are now."""
        return self.nets["classifier"](self.nets["content"](x))

    def embed_domain(self, nets: nn.ModuleDict, x: Tensor, target: bool) -> Tensor:
        """The domain embedding by given networks, of images of one domain."""
        return nets["domain"](x)


class Disentangling(Adaptation):
    """The framework of the paper: a domain encoder, and mutual information as a penalty.

    Reference: Cheng et al. 2020, section 4.4.
    """

    domain_embedding = True

    def add_networks(self, seed: int) -> None:
        _, widths = self.config.both_widths
        self.nets["domain"] = self.make_encoder(self.config.domain_statistics == "split", widths)
        self.nets["discriminator"] = self.make_discriminator(widths[-1])
        self.penalty = make_penalty(self.method, self.config, seed)

    def terms(self, inputs: StepInputs, z: Tensor) -> Tensor:
        z_d = self.nets["domain"](inputs.x)
        loss = losses.domain_loss(self.nets["discriminator"](z_d))
        return self.config.domain_weight * loss + inputs.mi_weight * self.information(z, z_d)

    def information(self, content: Tensor, domain: Tensor) -> Tensor:
        """Fit the estimator, then the bound with gradients to the encoders that minimise it."""
        assert self.penalty is not None
        c = self.config
        if c.mi_gradient == "content":
            domain = domain.detach()
        elif c.mi_gradient == "domain":
            content = content.detach()
        sides = (domain, content) if c.mi_direction == "backward" else (content, domain)
        value = self.penalty(*sides)
        if self.penalty.estimator.side == "lower" and c.q != "published":
            # Below zero a lower bound says nothing: pushing it further down only fools the critic.
            return value.clamp_min(0.0)
        return value


def make_penalty(method: str, config: DomainAdaptationConfig, seed: int) -> MIPenalty:
    """The library's penalty, such that a CUDA graph can capture a whole step with it.

    Args:
        method: name of the estimator.
        config: its q, hidden units, learning rate and steps.
        seed: of the negatives.

    Example:
        >>> from experiments.domain_adaptation.config import settle
        >>> config = settle(DomainAdaptationConfig(q="student"))
        >>> make_penalty("club_sample", config, 0).estimator.conditional.x_dim
        64
    """
    c = config
    content, domain = (widths[-1] for widths in c.both_widths)

    def make(x_dim: int, y_dim: int) -> Any:
        if c.q == "published" and method in PUBLISHED_ESTIMATORS:
            return PUBLISHED_ESTIMATORS[method](x_dim, y_dim, c.q_hidden)
        if method == "nwj":
            return NWJ(x_dim, y_dim, c.q_hidden, limit=3.0)
        estimator = ESTIMATORS[method]
        if issubclass(estimator, ConditionalEstimator) and c.q in CONDITIONALS:
            return estimator(conditional=CONDITIONALS[c.q](x_dim, y_dim, c.q_hidden))
        return estimator(x_dim, y_dim, c.q_hidden)

    forward, backward = (content, domain), (domain, content)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PenaltyWarning)  # lower bounds may fail here
        return MIPenalty(
            make(*(backward if c.mi_direction == "backward" else forward)),
            backward=make(*backward) if c.mi_direction == "both" else None,
            inner_steps=c.inner_steps,
            optimizer=lambda ps: torch.optim.Adam(ps, lr=c.mi_lr, betas=BETAS, fused=True),
            seed=seed,
            adapt=False,
            capturable=True,
        )


class DANN(Adaptation):
    """Domain-adversarial training: a discriminator whose gradient is reversed.

    Reference: Ganin et al. 2016, section 4.2.
    """

    def add_networks(self, seed: int) -> None:
        self.nets["discriminator"] = self.make_discriminator(self.width)

    def terms(self, inputs: StepInputs, z: Tensor) -> Tensor:
        reversed_z = losses.reverse(z, inputs.ramp)
        return losses.domain_loss(self.nets["discriminator"](reversed_z))


class DSN(Adaptation):
    """Domain separation networks: private encoders, a shared decoder, an adversary.

    Reference: Bousmalis et al. 2016, section 3; the similarity is that of DANN.
    """

    domain_embedding = True

    def add_networks(self, seed: int) -> None:
        self.nets["discriminator"] = self.make_discriminator(self.width)
        self.nets["private_source"] = self.make_encoder()
        self.nets["private_target"] = self.make_encoder()
        self.nets["decoder"] = Decoder(self.width, self.transfer.side, min(self.width, 32))

    def terms(self, inputs: StepInputs, z: Tensor) -> Tensor:
        halves = inputs.x.chunk(2)
        private = [
            self.nets[name](x)
            for name, x in zip(("private_source", "private_target"), halves, strict=True)
        ]
        difference = z.new_zeros(())
        for shared, own in zip(z.chunk(2), private, strict=True):
            difference = difference + losses.difference_loss(shared, own)
        rebuilt = self.nets["decoder"](z + torch.cat(private))
        reconstruction = 2 * losses.reconstruction_loss(inputs.x, rebuilt)  # a sum over domains
        reversed_z = losses.reverse(z, inputs.ramp)
        similarity = losses.domain_loss(self.nets["discriminator"](reversed_z))
        return RECONSTRUCTION * reconstruction + DIFFERENCE * difference + SIMILARITY * similarity

    def embed_domain(self, nets: nn.ModuleDict, x: Tensor, target: bool) -> Tensor:
        return nets["private_target" if target else "private_source"](x)


class TwoClassifiers(nn.Module):
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
    """

    def make_classifier(self) -> nn.Module:
        return TwoClassifiers(self.width, self.transfer.classes)

    def phases(self, inputs: StepInputs) -> Iterator[Phase]:
        loss, _, logits = self.compare(inputs)
        yield loss + self.additions(inputs, logits), ("content", "classifier")
        loss, disagreement, _ = self.compare(inputs)
        yield loss - disagreement, ("classifier",)
        for _ in range(ROUNDS):
            _, disagreement, _ = self.compare(inputs)
            yield disagreement, ("content",)

    def compare(self, inputs: StepInputs) -> tuple[Tensor, Tensor, Tensor]:
        """Cross-entropies on the source, discrepancy on the target, and the logits."""
        both = self.nets["classifier"].both(self.nets["content"](inputs.x))  # pyright: ignore
        loss = sum(F.cross_entropy(each.chunk(2)[0], inputs.labels) for each in both)
        disagreement = losses.discrepancy(*(each.chunk(2)[1] for each in both))
        return loss, disagreement, (both[0] + both[1]) / 2  # pyright: ignore[reportReturnType]


def make_adaptation(
    method: str,
    config: DomainAdaptationConfig,
    transfer: Transfer,
    bf16: bool = False,
    seed: int = 0,
) -> Adaptation:
    """The method of a name, without what is changed in it; arguments as those of `Adaptation`.

    Example:
        >>> from experiments.domain_adaptation.config import settle
        >>> config = settle(DomainAdaptationConfig(widths=(4, 4, 4)))
        >>> for method in ("source", "club", "dann", "mcd"):
        ...     print(*make_adaptation(method, config, Transfer("mnist", "usps")).nets)
        content classifier
        content classifier domain discriminator
        content classifier discriminator
        content classifier
    """
    kinds: dict[str, type[Adaptation]] = {"dann": DANN, "dsn": DSN, "mcd": MCD}
    kind = Disentangling if method in BOUNDS else kinds.get(method, Adaptation)
    return kind(method, config, transfer, bf16, seed)
