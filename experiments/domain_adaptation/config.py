"""What is trained: from which data set to which, by which method, with which settings.

`as-published` has the settings of the authors' code, errors included; `correct` is the framework of
the paper by its equations; `recipe` adds what later work did, with one setting for all digits and
one for objects, where the network is larger, as in Shu et al. 2018.

Each setting is listed once, as a field of `DomainAdaptationConfig` with its default; `MODES` and
`OBJECTS` have what differs from the defaults. A flag overrides all of them. A method of the recipe
with an ending, such as "club_sample-without-teacher", has one setting changed (`ABLATIONS`).
"""

# ruff: noqa: RUF009 (`setting` makes a field, as `dataclasses.field` does)

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from experiments.runner.base import Cell, Config

BOUNDS = ("nwj", "mine", "infonce", "vub", "l1out", "club", "club_sample")
OTHERS = ("dann", "dsn", "mcd")
METHODS = ("source", *BOUNDS, *OTHERS)
NARROW, WIDE = (64, 64, 64), (96, 192, 192)

Normalisation = Literal["raw", "domain", "instance"]
Reduction = Literal["means", "picked"]
Division = Literal["pooled", "own"]


@dataclass(frozen=True)
class Transfer:
    """From which data set to which.

    Args:
        source: the data set with labels.
        target: the data set without.
        side: pixels of a side.
        classes: how many.
        objects: whether the images show objects, which may be mirrored, rather than digits.
    """

    source: str
    target: str
    side: int = 28
    classes: int = 10
    objects: bool = False


TRANSFERS: dict[str, Transfer] = {
    "mnist-mnistm": Transfer("mnist", "mnist-m"),
    "mnist-usps": Transfer("mnist", "usps"),
    "usps-mnist": Transfer("usps", "mnist"),
    "svhn-mnist": Transfer("svhn", "mnist"),
    "cifar10-stl10": Transfer("cifar10", "stl10", 32, 9, objects=True),
    "stl10-cifar10": Transfer("stl10", "cifar10", 32, 9, objects=True),
}

T = TypeVar("T")
if TYPE_CHECKING:
    Setting = Annotated[T, "a T once `settle` has filled it in"]
else:
    Setting = T | None


def setting(default: Any) -> Any:
    """A field that is None until its flag is given or `settle` fills it in."""
    return dataclasses.field(default=None, metadata={"default": default})


@dataclass(frozen=True)
class DomainAdaptationConfig(Config):
    """Unsupervised domain adaptation: a setting left at None is what the mode says.

    Example:
        >>> DomainAdaptationConfig(mi_weight=0.3).settings_of(
        ...     Cell("as-published", "mnist-usps", "club", 0)
        ... )["widths"]
        [96, 192, 192]
    """

    seeds: int = 3
    """number of seeds, which are 0, 1, 2, ..."""
    points: int = 20
    """how often the target accuracy is measured in a training."""
    images: int = 0
    """how many images of each part to use; 0 for all."""
    embedded: int = 150
    """images of each domain whose embeddings are drawn, for the first seed."""
    precision: Literal["bf16", "float32"] = "bf16"
    """of the convolutions on a GPU; elsewhere it is float32."""

    steps: Setting[int] = setting(6000)
    """of a training, the same for all methods of a column."""
    widths: Setting[tuple[int, ...]] = setting(NARROW)
    """channels of the three blocks, 64 64 64 in the paper and 96 192 192 in the code."""
    domain_widths: Setting[tuple[int, ...] | None] = setting(None)
    """those of the domain encoder; the same if left out."""
    dropout: Setting[float] = setting(0.5)
    """share of the values dropped between the blocks."""
    noise: Setting[float] = setting(1.0)
    """standard deviation of the noise added there."""
    normalisation: Setting[Normalisation] = setting("domain")
    """raw bytes, or by mean and standard deviation of the domain or of each image."""
    reduction: Setting[Reduction] = setting("means")
    """how STL-10 is made smaller: by means of 3x3 pixels, or by picking the middle one."""
    division: Setting[Division] = setting("pooled")
    """of USPS into training and test images: its own, or pooled and divided anew (paper)."""
    shift: Setting[int] = setting(0)
    """pixels by which images are shifted at random; objects are then flipped too."""
    warp: Setting[float] = setting(0.0)
    """deviation of the random part of the matrices that turn, stretch and shear images."""
    inversion: Setting[float] = setting(0.0)
    """share of images, or of their channels, whose normalised pixels change sign."""
    inverted: Setting[Literal["images", "channels"]] = setting("images")
    """whether a sign is that of a whole image or of one of its channels."""
    background: Setting[float] = setting(0.0)
    """standard deviation of smooth random colours that are added to normalised images."""
    batch_size: Setting[int] = setting(64)
    """images of each domain per step."""
    lr: Setting[float] = setting(1e-3)
    """learning rate of Adam, whose beta1 is 0.5."""
    rates: Setting[Literal["constant", "cosine"]] = setting("cosine")
    """constant learning rates, or falling to zero along a cosine."""
    average: Setting[float] = setting(0.998)
    """weight of the old average of the weights in each step; 0 for no average."""
    statistics: Setting[Literal["joined", "split"]] = setting("joined")
    """batch statistics of the content encoder: of both domains joined, or of each."""
    domain_statistics: Setting[Literal["joined", "split"]] = setting("joined")
    """the same of the domain encoder; split ones destroy the classifier."""
    test_statistics: Setting[Literal["joined", "split", "batch"]] = setting("split")
    """of the content encoder in a test: those of training images of the same domain (split) or of
    both (joined); or of the batch that is tested, as published."""
    domain_weight: Setting[float] = setting(1.0)
    """weight of the discriminator's loss in the framework of the paper."""
    mi_weight: Setting[float] = setting(0.01)
    """weight of the mutual information of the two embeddings."""
    mi_schedule: Setting[Literal["constant", "ramp", "fall"]] = setting("constant")
    """of that weight: constant, rising from 0 like the reversed gradient of DANN, or falling to 0
    along a cosine."""
    mi_gradient: Setting[Literal["content", "domain", "both"]] = setting("content")
    """which encoders minimise the mutual information: both in the paper's objective, the content
    encoder in the authors' code."""
    mi_direction: Setting[Literal["forward", "backward", "both"]] = setting("forward")
    """forward for q(domain | content), backward for q(content | domain), or both."""
    mi_lr: Setting[float] = setting(1e-3)
    """learning rate of the Adam that fits q or the critic."""
    inner_steps: Setting[int] = setting(1)
    """steps of q or the critic for each step of the encoders."""
    q: Setting[Literal["gaussian", "unit", "low-rank", "mixture", "student", "published"]] = (
        setting("gaussian")
    )
    """which conditional q is; published has the authors' likelihood, without its log-variance."""
    q_hidden: Setting[tuple[int, ...]] = setting((64,))
    """hidden units of q or the critic."""
    entropy: Setting[float] = setting(0.0)
    """weight of the entropy of target predictions."""
    balance: Setting[float] = setting(0.0)
    """weight of the divergence of equal shares from the mean target prediction."""
    vat_source: Setting[float] = setting(0.0)
    """weight of virtual adversarial training on source images."""
    vat_target: Setting[float] = setting(0.0)
    """weight of virtual adversarial training on target images."""
    vat_radius: Setting[float] = setting(3.5)
    """how far an adversary may move an image, in normalised pixels."""
    vat_step: Setting[float] = setting(1.0)
    """how far away its direction is looked for; much nearer, bfloat16 rounds it away."""
    teacher: Setting[float] = setting(0.0)
    """weight of the consistency with an averaged teacher."""
    teacher_threshold: Setting[float] = setting(0.95)
    """probability from which on the teacher is believed."""
    teacher_average: Setting[float] = setting(0.99)
    """weight of the old teacher in each step."""

    def settings_of(self, cell: Cell) -> dict[str, Any]:
        """What the mode says counts too: other settings of a mode make other cells."""
        return super(DomainAdaptationConfig, settle(self, cell)).settings_of(cell)

    @property
    def both_widths(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Those of the content encoder, and of the domain encoder."""
        return self.widths, self.domain_widths or self.widths

    @property
    def two_views(self) -> bool:
        """Whether a step needs each image twice, augmented independently."""
        return self.teacher > 0

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


DEFAULTS = {
    field.name: field.metadata["default"]
    for field in dataclasses.fields(DomainAdaptationConfig)
    if "default" in field.metadata
}

MODES: dict[str, Mapping[str, Any]] = {
    "as-published": {
        "widths": WIDE,
        "normalisation": "raw",
        "reduction": "picked",
        "rates": "constant",
        "average": 0.0,
        "test_statistics": "batch",
        "mi_weight": 0.1,
        "q": "published",
        "q_hidden": (192,),
    },
    "correct": {},
    "recipe": {
        "steps": 10000,
        "normalisation": "instance",
        "shift": 2,
        "inversion": 0.5,
        "inverted": "channels",
        "background": 1.0,
        "balance": 0.5,
        "teacher": 3.0,
    },
}

# What differs where the images show objects: they take longer to learn, and more channels; and the
# colours of an object, unlike those of a digit, say what it is.
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
ABLATED = "club_sample"  # the method whose settings are changed
CHANGED = (
    *(f"{ABLATED}-{change}" for change in ABLATIONS),
    "source-without-teacher",
    *(f"{bound}-both-gradients" for bound in BOUNDS if bound != ABLATED),
)


def split_method(method: str) -> tuple[str, str]:
    """A method and what is changed in it.

    Example:
        >>> split_method("club_sample-without-teacher"), split_method("dann")
        (('club_sample', 'without-teacher'), ('dann', ''))
    """
    base, _, change = method.partition("-")
    return base, change


def settle(config: DomainAdaptationConfig, cell: Cell | None = None) -> DomainAdaptationConfig:
    """Fill in every setting.

    An ablation overrides the flags that are given, those override the mode, and that overrides the
    defaults.

    Args:
        config: with the flags that are given.
        cell: whose mode, task and method count; if left out, the mode is "correct".

    Example:
        >>> settle(DomainAdaptationConfig(steps=7)).steps, settle(DomainAdaptationConfig()).steps
        (7, 6000)
    """
    cell = cell or Cell("correct", "", "", 0)
    given = {name: v for name in DEFAULTS if (v := getattr(config, name)) is not None}
    objects = cell.task in TRANSFERS and TRANSFERS[cell.task].objects
    _, change = split_method(cell.method)
    settings = {
        **DEFAULTS,
        **MODES[cell.mode],
        **(OBJECTS[cell.mode] if objects else {}),
        **given,
        **ABLATIONS.get(change, {}),
    }
    return dataclasses.replace(config, **settings)
