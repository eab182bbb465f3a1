"""What goes into a domain adaptation: the settings of each mode, and what can be left out.

`as-published` has the settings of the authors' code, errors included; `correct` is the framework of
the paper by its equations; `recipe` adds what later work did, one setting for all digits and one
for objects, where the network is larger, as Shu et al. 2018 have it. A flag that is given replaces
the setting of its name in all modes; one that is left out is what the mode says.

A method of the recipe with an ending, such as "club_sample-without-teacher", is the same method
with one ingredient changed (`ABLATIONS`).
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from experiments.domains import TASKS, Division, Normalisation, Reduction
from experiments.runner.base import Cell, Config

BOUNDS = ("nwj", "mine", "infonce", "vub", "l1out", "club", "club_sample")
OTHERS = ("dann", "dsn", "mcd")
METHODS = ("source", *BOUNDS, *OTHERS)
NARROW, WIDE = (64, 64, 64), (96, 192, 192)

Statistics = Literal["joined", "split"]
Tested = Literal["joined", "split", "batch"]
Schedule = Literal["constant", "ramp", "fall"]
Rates = Literal["constant", "cosine"]
Inverted = Literal["images", "channels"]
Encoders = Literal["content", "domain", "both"]
Direction = Literal["forward", "backward", "both"]
Family = Literal["gaussian", "unit", "low-rank", "mixture", "student", "published"]


@dataclass(frozen=True)
class Settings:
    """All that a training depends on; the fields are those of `DomainAdaptationConfig`.

    Example:
        >>> settle(DomainAdaptationConfig(mi_weight=0.3), Cell("correct", "", "club", 0)).mi_weight
        0.3
        >>> settle(DomainAdaptationConfig(), Cell("as-published", "", "club", 0)).widths
        (96, 192, 192)
    """

    steps: int = 6000
    widths: tuple[int, ...] = NARROW
    domain_widths: tuple[int, ...] | None = None  # those of the content encoder
    dropout: float = 0.5
    noise: float = 1.0
    normalisation: Normalisation = "domain"
    reduction: Reduction = "means"
    division: Division = "pooled"
    shift: int = 0
    warp: float = 0.0
    inversion: float = 0.0
    inverted: Inverted = "images"
    background: float = 0.0
    batch_size: int = 64
    lr: float = 1e-3
    rates: Rates = "cosine"
    average: float = 0.998
    statistics: Statistics = "joined"
    domain_statistics: Statistics = "joined"
    test_statistics: Tested = "split"
    domain_weight: float = 1.0
    mi_weight: float = 0.01
    mi_schedule: Schedule = "constant"
    mi_gradient: Encoders = "content"
    mi_direction: Direction = "forward"
    mi_lr: float = 1e-3
    inner_steps: int = 1
    q: Family = "gaussian"
    q_hidden: tuple[int, ...] = (64,)
    entropy: float = 0.0
    balance: float = 0.0
    vat_source: float = 0.0
    vat_target: float = 0.0
    vat_radius: float = 3.5
    vat_step: float = 1.0
    teacher: float = 0.0
    teacher_threshold: float = 0.95
    teacher_average: float = 0.99

    @property
    def both_widths(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Those of the content encoder, and of the domain encoder."""
        return self.widths, self.domain_widths or self.widths

    @property
    def two_views(self) -> bool:
        """Whether a step needs each image twice, augmented apart."""
        return self.teacher > 0


PRESETS: dict[str, Settings] = {
    "as-published": Settings(
        widths=WIDE,
        normalisation="raw",
        reduction="picked",
        rates="constant",
        average=0.0,
        test_statistics="batch",
        mi_weight=0.1,
        q="published",
        q_hidden=(192,),
    ),
    "correct": Settings(),
    "recipe": Settings(
        steps=10000,
        normalisation="instance",
        shift=2,
        inversion=0.5,
        inverted="channels",
        background=1.0,
        balance=0.5,
        teacher=3.0,
    ),
}

# What is other where the images are objects: they take longer to learn, and more channels; and
# the colours of an object, unlike those of a digit, say what it is.
OBJECTS: dict[str, Mapping[str, Any]] = {
    "as-published": {"steps": 12000},
    "correct": {"steps": 12000},
    "recipe": {
        "steps": 16000,
        "widths": WIDE,
        "domain_widths": NARROW,  # enough to tell two domains apart
        "noise": 0.0,
        "normalisation": "domain",
        "batch_size": 128,
        "q_hidden": (192,),
        "shift": 4,
        "warp": 0.05,
        "inversion": 0.0,
        "background": 0.0,
        "teacher": 1.0,
        "teacher_threshold": 0.9,
    },
}

ABLATIONS: dict[str, Mapping[str, Any]] = {
    "without-mi": {"mi_weight": 0.0},
    "without-teacher": {"teacher": 0.0},
    "without-balance": {"balance": 0.0},
    "without-instance-norm": {"normalisation": "domain"},
    "with-instance-norm": {"normalisation": "instance"},
    "without-shifts": {"shift": 0},
    "without-warps": {"warp": 0.0},
    "with-warps": {"warp": 0.05},
    "without-inversion": {"inversion": 0.0},
    "without-backgrounds": {"background": 0.0},
    "without-average": {"average": 0.0},
    "without-cosine": {"rates": "constant"},
    "with-entropy-and-vat": {"entropy": 0.1, "vat_target": 0.1, "vat_source": 1.0},
    "both-gradients": {"mi_gradient": "both"},
    "equal-encoders": {"domain_widths": None},
    "split-statistics": {"statistics": "split"},
    "picked-pixels": {"reduction": "picked"},
}
ABLATED = "club_sample"  # the method whose ingredients are changed
CHANGED = (
    *(f"{ABLATED}-{change}" for change in ABLATIONS),
    "source-without-teacher",
    *(f"{bound}-both-gradients" for bound in BOUNDS if bound != ABLATED),
)


@dataclass(frozen=True)
class DomainAdaptationConfig(Config):
    """Unsupervised domain adaptation: what is left at None is what the mode says.

    Attributes:
        seeds: number of seeds, which are 0, 1, 2, ...
        points: how often the target accuracy is looked at on the way.
        images: how many images of each part to use; 0 for all.
        embedded: images of each domain whose embeddings are shown, for the first seed.
        precision: of the convolutions on a GPU; elsewhere it is float32.
        steps: of training, the same for all methods of a column.
        widths: channels of the three blocks, 64 64 64 in the paper and 96 192 192 in the code.
        domain_widths: those of the domain encoder, where they are others.
        dropout: share of values dropped between the blocks.
        noise: deviation of the noise added there.
        normalisation: raw bytes, or by mean and deviation of the domain or of each instance.
        reduction: how STL-10 is made smaller, by means of 3x3 pixels or by picking the middle one.
        division: of USPS into training and test images, pooled and divided anew as in the paper, or
            its own.
        shift: pixels by which images are moved at random; objects are then flipped too.
        warp: deviation of the random part of the matrices that turn, stretch and shear images.
        inversion: share of images, or of their channels, whose normalised pixels change sign.
        inverted: whether images are so changed as a whole, or each of their channels by itself.
        background: deviation of smooth random colours that are added to normalised images.
        batch_size: images of each domain a step.
        lr: rate of Adam, whose beta1 is 0.5.
        rates: constant rates, or falling to zero along a cosine.
        average: weight of the old average of the weights in each step; 0 for no average.
        statistics: of the content encoder's batches, both domains joined or split.
        domain_statistics: likewise of the domain encoder; split ones destroy the classifier.
        test_statistics: of the content encoder in a test, those of training images of the same
            domain (split) or as in training (joined); or of the batch that is tested, as published.
        domain_weight: weight of the discriminator's loss in the framework of the paper.
        mi_weight: weight of the mutual information of the two embeddings.
        mi_schedule: constant, rising from 0 as the reversed gradient of DANN does, or falling to 0
            along a cosine.
        mi_gradient: which encoders the mutual information is to change: both in the paper's
            objective, that of the content in the authors' code.
        mi_direction: forward for q(domain | content), backward for the other, or both.
        mi_lr: rate of the Adam that fits q or the critic.
        inner_steps: steps of q or the critic for each step of the encoders.
        q: family of q; published has the authors' likelihood, without its log-variance.
        q_hidden: hidden units of q or the critic.
        entropy: weight of the entropy of target predictions.
        balance: weight of the divergence of equal shares from the mean target prediction.
        vat_source: weight of virtual adversarial training on source images.
        vat_target: weight of it on target images.
        vat_radius: how far an adversary may move an image, in normalised pixels.
        vat_step: how far away its direction is looked for; much nearer, bfloat16 rounds it away.
        teacher: weight of the consistency with an averaged teacher.
        teacher_threshold: probability from which on the teacher is believed.
        teacher_average: weight of the old teacher in each step.
    """

    seeds: int = 3
    points: int = 20
    images: int = 0
    embedded: int = 150
    precision: Literal["bf16", "float32"] = "bf16"
    steps: int | None = None
    widths: tuple[int, ...] | None = None
    domain_widths: tuple[int, ...] | None = None
    dropout: float | None = None
    noise: float | None = None
    normalisation: Normalisation | None = None
    reduction: Reduction | None = None
    division: Division | None = None
    shift: int | None = None
    warp: float | None = None
    inversion: float | None = None
    inverted: Inverted | None = None
    background: float | None = None
    batch_size: int | None = None
    lr: float | None = None
    rates: Rates | None = None
    average: float | None = None
    statistics: Statistics | None = None
    domain_statistics: Statistics | None = None
    test_statistics: Tested | None = None
    domain_weight: float | None = None
    mi_weight: float | None = None
    mi_schedule: Schedule | None = None
    mi_gradient: Encoders | None = None
    mi_direction: Direction | None = None
    mi_lr: float | None = None
    inner_steps: int | None = None
    q: Family | None = None
    q_hidden: tuple[int, ...] | None = None
    entropy: float | None = None
    balance: float | None = None
    vat_source: float | None = None
    vat_target: float | None = None
    vat_radius: float | None = None
    vat_step: float | None = None
    teacher: float | None = None
    teacher_threshold: float | None = None
    teacher_average: float | None = None

    def settings_of(self, cell: Cell) -> dict[str, Any]:
        """What the mode says is part of it: other presets make other cells."""
        own = super().settings_of(cell) | dataclasses.asdict(settle(self, cell))
        return json.loads(json.dumps(own))

    def __post_init__(self) -> None:
        for flag, widths in (("widths", self.widths), ("domain-widths", self.domain_widths)):
            if widths is not None and (len(widths) != 3 or min(widths) < 1):
                raise ValueError(
                    f"Expected --{flag} of three blocks, each at least 1, but got "
                    f"{' '.join(map(str, widths))}; give --{flag} 64 64 64."
                )
        for name, least in (("steps", 1), ("points", 1), ("batch_size", 2), ("shift", 0),
                            ("warp", 0), ("inversion", 0), ("background", 0)):  # fmt: skip
            value = getattr(self, name)
            if value is not None and not value >= least:
                raise ValueError(
                    f"Expected --{name.replace('_', '-')} of at least {least} but got {value}; "
                    "leave it out for that of the mode."
                )


def split_method(method: str) -> tuple[str, str]:
    """A method and what is changed in it.

    Example:
        >>> split_method("club_sample-without-teacher"), split_method("dann")
        (('club_sample', 'without-teacher'), ('dann', ''))
    """
    base, _, change = method.partition("-")
    return base, change


def settle(config: DomainAdaptationConfig, cell: Cell) -> Settings:
    """The settings of a cell: of its mode, with the flags that were given, and what it changes."""
    fields = [field.name for field in dataclasses.fields(Settings)]
    given = {k: v for k in fields if (v := getattr(config, k)) is not None}
    _, change = split_method(cell.method)
    objects = cell.task in TASKS and TASKS[cell.task].flips
    own = OBJECTS.get(cell.mode, {}) if objects else {}
    changes = {**own, **given, **ABLATIONS.get(change, {})}
    return dataclasses.replace(PRESETS[cell.mode], **changes)


def ramp(part: float) -> float:
    """From 0 to 1 over a training, as the reversed gradient of DANN.

    Reference: Ganin et al. 2016, section 5.2.2.

    Example:
        >>> ramp(0.0), round(ramp(0.5), 3)
        (0.0, 0.987)
    """
    return 2 / (1 + math.exp(-10 * part)) - 1
