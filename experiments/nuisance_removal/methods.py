"""The methods: what each adds to the cross-entropy of a step to remove s from z.

    none             nothing
    adversary        a classifier of s on z behind a reversed gradient, learning in the same step
    adversary-given  the same, and the classifier is given the label
    hsic             the normalised Hilbert-Schmidt independence criterion of z and s
    club             the library's penalty with CLUB
    club_sample      the library's penalty with CLUBSample
    default          the library's penalty as it is where nothing is chosen
    default-given    the same, and the label is given: for I(z; s | y) rather than I(z; s)

References: Ganin et al. 2016, section 4.2 (reversed gradient); Gretton et al. 2005 (HSIC), with the
normalisation of Cortes et al. 2012.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import mibounds as mb
from experiments.domain_adaptation.losses import reverse
from experiments.nuisance_removal.config import GIVEN, WEIGHTS

if TYPE_CHECKING:
    from jaxtyping import Float, Int

EPS = 1e-8


class Removal(ABC):
    """A method: a term of the loss, and what it needs to compute it.

    Args:
        z_dim: columns of z.
        classes: of the label.
        values: of the nuisance.
        given: whether the label is given: to remove I(z; s | y).

    Attributes:
        learnt: parameters that descend the same loss as the model's.
        penalty: of the library, if it is one.
    """

    def __init__(self, z_dim: int, classes: int, values: int, given: bool = False):
        self.classes, self.values, self.given = classes, values, given
        self.learnt: list[nn.Parameter] = []
        self.penalty: mb.MIPenalty | None = None

    @abstractmethod
    def term(
        self,
        z: Float[Tensor, "n z"],
        s: Int[Tensor, " n"],
        y: Int[Tensor, " n"],
        weight: float,
    ) -> Float[Tensor, ""]:
        """What to add to the loss.

        Args:
            z: codes of a batch, with their gradient.
            s: values of the nuisance.
            y: labels.
            weight: current weight of the method.
        """

    def to(self, device: str | torch.device) -> Removal:
        """Move everything to a device, before an optimiser gets `learnt`."""
        return self


class Nothing(Removal):
    """No removal."""

    def term(self, z: Tensor, s: Tensor, y: Tensor, weight: float) -> Tensor:
        return z.new_zeros(())


class Adversary(Removal):
    """A classifier of s that learns, from z whose gradient is reversed; the weight is that of it.

    Args:
        z_dim: columns of z.
        classes: of the label.
        values: of the nuisance.
        given: whether the classifier sees the label too.
        hidden: hidden units of the classifier.

    Example:
        >>> adversary = Adversary(4, 3, 2, given=True)
        >>> z, y = torch.randn(6, 4, requires_grad=True), torch.arange(6) % 3
        >>> adversary.term(z, torch.arange(6) % 2, y, 0.0).backward()
        >>> z.grad.abs().sum().item(), bool(adversary.learnt[0].grad.abs().sum() > 0)
        (0.0, True)
    """

    def __init__(
        self, z_dim: int, classes: int, values: int, given: bool = False, hidden: int = 128
    ):
        super().__init__(z_dim, classes, values, given)
        inputs = z_dim + (classes if given else 0)
        self.classifier = nn.Sequential(
            nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, values)
        )
        self.learnt = list(self.classifier.parameters())

    def term(self, z: Tensor, s: Tensor, y: Tensor, weight: float) -> Tensor:
        z = reverse(z, torch.tensor(weight))
        if self.given:
            z = torch.cat([z, F.one_hot(y, self.classes)], 1)
        return F.cross_entropy(self.classifier(z), s)

    def to(self, device: str | torch.device) -> Removal:
        self.classifier.to(device)
        return self


class HSIC(Removal):
    """The normalised HSIC of z and s, which is between 0 and 1."""

    def term(self, z: Tensor, s: Tensor, y: Tensor, weight: float) -> Tensor:
        return weight * normalised_hsic(z, F.one_hot(s, self.values).to(z.dtype))


class Penalty(Removal):
    """A penalty of the library.

    Args:
        method: which.
        z_dim: columns of z.
        classes: of the label.
        values: of the nuisance.
        given: whether to remove I(z; s | y).
        seed: of the negatives that a penalty draws.
    """

    def __init__(
        self, method: str, z_dim: int, classes: int, values: int, given: bool = False, seed: int = 0
    ):
        super().__init__(z_dim, classes, values, given)
        self.penalty = make_penalty(method, z_dim, classes, values, given, seed)

    def term(self, z: Tensor, s: Tensor, y: Tensor, weight: float) -> Tensor:
        assert self.penalty is not None
        options = {"given": y} if self.given else {}
        return weight * self.penalty(z, s, **options)

    def to(self, device: str | torch.device) -> Removal:
        assert self.penalty is not None
        self.penalty.to(device)
        return self


def make_penalty(
    method: str, z_dim: int, classes: int, values: int, given: bool = False, seed: int = 0
) -> mb.MIPenalty:
    """The library's penalty of a method.

    Args:
        method: "club", "club_sample", or "default" for what the library does by itself.
        z_dim: columns of z.
        classes: of the label.
        values: of the nuisance, which q(s|z) predicts.
        given: whether the penalty is called with the label as given.
        seed: of what it draws.

    Example:
        >>> type(make_penalty("club_sample", 4, 10, 10).estimator).__name__
        'CLUBSample'
        >>> make_penalty("default", 4, 10, 3, given=True).estimator.given_labels
        10
    """
    if method == "default":
        own = mb.Ratio(z_dim, labels=values, given_labels=classes if given else 0)
        return mb.MIPenalty(own, seed=seed)
    if given:
        raise ValueError(
            f"Expected no label given to {method} but got one; "
            f"name the method {method!r}, or 'default{GIVEN}'."
        )
    estimators = {"club": mb.CLUB, "club_sample": mb.CLUBSample}
    if method not in estimators:
        raise ValueError(
            f"Expected a method among none, {', '.join(WEIGHTS)} but got {method!r}; name one."
        )
    q = mb.Categorical(z_dim, values)
    return mb.MIPenalty(estimators[method](conditional=q), seed=seed)


def make_removal(
    method: str, z_dim: int, classes: int, values: int, hidden: int = 128, seed: int = 0
) -> Removal:
    """The method of a name, which may end in "-given".

    Args:
        method: without its weight.
        z_dim: columns of z.
        classes: of the label.
        values: of the nuisance.
        hidden: hidden units of an adversary.
        seed: of the negatives that a penalty draws.

    Example:
        >>> make_removal("adversary-given", 4, 10, 10).given
        True
    """
    name, given = method.removesuffix(GIVEN), method.endswith(GIVEN)
    sizes = z_dim, classes, values
    match name:
        case "none":
            return Nothing(*sizes)
        case "adversary":
            return Adversary(*sizes, given, hidden)
        case "hsic":
            return HSIC(*sizes)
        case _:
            return Penalty(name, *sizes, given, seed)


# --- HSIC ----------------------------------------------------------------------------------------


def normalised_hsic(z: Float[Tensor, "n z"], one_hot: Float[Tensor, "n k"]) -> Float[Tensor, ""]:
    """<K, L> / (|K| |L|) of the centred kernels of z and s: Gaussian of z, equality of s.

    The width of the Gaussian is the median distance in the batch. A Gaussian kernel of one-hot rows
    is an affine function of their inner products, and the centring and the normalisation remove it.

    Example:
        >>> s = torch.arange(60) % 3
        >>> one_hot = torch.eye(3)[s]
        >>> round(normalised_hsic(one_hot, one_hot).item(), 3)
        1.0
        >>> bool(normalised_hsic(torch.randn(60, 3), one_hot) < 0.2)
        True
    """
    squares = z.square().sum(1)
    distances = (squares[:, None] + squares - 2 * z @ z.T).clamp_min(0)
    width = distances.detach().median().clamp_min(EPS)
    k, ell = _centre((-distances / (2 * width)).exp()), _centre(one_hot @ one_hot.T)
    return (k * ell).sum() / (k.norm() * ell.norm() + EPS)


def _centre(kernel: Tensor) -> Tensor:
    kernel = kernel - kernel.mean(0)
    return kernel - kernel.mean(1, keepdim=True)
