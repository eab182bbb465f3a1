"""Fit many estimators at once: seeds, tasks or columns, side by side.

A small network keeps neither a core nor a GPU busy. Estimators of one architecture can share the
overhead of a step (`mibounds.estimators.stacked_training`) and stay independent: each draws its own
batches, and the numbers are those of fitting one by one.
"""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from mibounds.bounds.densities import check_distribution
from mibounds.conditionals import Bernoulli, Categorical
from mibounds.critics import BilinearCritic, SeparableCritic
from mibounds.estimators import CriticEstimator, Estimator
from mibounds.estimators.base import check_estimator
from mibounds.estimators.fitting import check_learnable, check_rate, fit
from mibounds.estimators.ratio import Ratio
from mibounds.estimators.stacked_training import StackedTraining, cosine, draw_batches
from mibounds.samples.checks import check_finite, check_pair, check_size, check_tensor
from mibounds.samples.precision import undisturbed
from mibounds.samples.seeds import Seed, make_generator

if TYPE_CHECKING:
    from jaxtyping import Float, Shaped

__all__ = ["fit_many"]

CACHE = 2**22  # bytes of one layer's values, over all estimators, above which a CPU slows down
WORTH = 8  # estimators at once that are worth the overhead on a CPU


@undisturbed
def fit_many(
    estimators: Sequence[Estimator],
    x: Shaped[Tensor, "..."],
    y: Shaped[Tensor, "..."],
    *,
    steps: int = 1000,
    batch_size: int = 128,
    lr: float = 3e-3,
    seeds: Sequence[Seed] | None = None,
    graph: bool | None = None,
    at_once: int | None = None,
) -> Float[Tensor, "m k"]:
    """Fit many independent estimators of one architecture at once, each as `fit` would.

    The numbers are those of ``fit(estimators[j], x, y, seed=seeds[j])`` one by one, up to
    rounding. The estimators may differ in their parameters and statistics, and for `BA` in the
    entropy, but not in type, sizes or settings. Estimators with nothing to learn are left as they
    are. If one of them explodes, the others keep what they have learnt so far.

    It saves the overhead of many small steps: most with small networks and batches. On a CPU it
    saves little for the default critic, which is busy with all pairs.

    Args:
        estimators: what to fit, in place; they are in training mode meanwhile.
        x: samples that all estimators share, (n, x_dim), or those of each, (m, n, x_dim).
        y: samples, shared or not, independently of x; labels have shape (n,) or (m, n).
        steps: number of batches.
        batch_size: samples per batch, for each estimator.
        lr: learning rate at the start, which falls to zero along a cosine.
        seeds: of each one's batches, see `mibounds.samples.seeds`; generators are fastest on the
            CPU, wherever the samples are. From a common generator, torch's global one if left out,
            each takes all its batches before the next.
        graph: whether to record the step as a CUDA graph; if left out, wherever the estimators are
            on a GPU and nothing in the step waits for it.
        at_once: how many to fit at once, group after group; if left out, all of them on a GPU, and
            on a CPU no more than fit its cache, if need be one by one with `fit`. Changes time and
            memory, not the numbers.

    Returns:
        The learning loss of each estimator every 10 steps, on the CPU.

    Example:
        >>> import mibounds as mb
        >>> g = torch.Generator().manual_seed(0)
        >>> x = torch.randn(512, 3, generator=g)
        >>> estimators = [mb.CLUB(3, 1) for _ in range(3)]  # one for each column of y = x
        >>> history = fit_many(estimators, x, x.T[..., None], steps=50)
        >>> history.shape, bool((history[:, -1] < history[:, 0]).all())
        (torch.Size([3, 5]), True)
    """
    estimators = list(estimators)
    m = len(estimators)
    if not m:
        raise ValueError(
            "Expected at least one estimator but got none; pass [mb.CLUB(x_dim, y_dim)]."
        )
    for j, estimator in enumerate(estimators):
        check_estimator(f"estimators[{j}]", estimator)
    if seeds is not None and len(seeds) != m:
        raise ValueError(
            f"Expected a seed for each of {m} estimators but got {len(seeds)}; "
            "leave them out to use torch's global generator."
        )
    generators = [make_generator(seed) for seed in seeds or [None] * m]
    check_size("steps", steps, at_least=0)
    check_size("batch_size", batch_size)
    check_rate(lr)
    n, own_x, own_y = _check_data(estimators[0], x, y, m)
    if not any(p.requires_grad for e in estimators for p in e.parameters()):
        return torch.empty(m, 0)
    check_learnable(p for e in estimators for p in e.parameters())
    _check_alike(estimators)
    _check_placement(estimators[0], x, y, graph)
    batch_size = min(batch_size, n)
    if isinstance(estimators[0], Ratio):  # draws in each step, from a generator of its own
        at_once = 1
    if at_once is None:
        at_once = _group_size(estimators[0], batch_size)
    check_size("at_once", at_once)
    size = math.ceil(m / math.ceil(m / at_once))  # groups as even as can be

    history = []
    modes = [estimator.training for estimator in estimators]
    for estimator in estimators:
        estimator.train()
    try:
        for first in range(0, m, size):
            group = estimators[first : first + size]
            sources = generators[first : first + size]
            if len(group) == 1 and (not x.is_cuda or isinstance(group[0], Ratio)):
                data = x[first] if own_x else x, y[first] if own_y else y
                losses = _fit_alone(group[0], *data, steps, batch_size, lr, sources[0], first)
            else:
                losses = _fit_together(
                    group, x, y, (own_x, own_y), steps, batch_size, lr, sources, graph, first
                )
            history.append(losses)
    finally:
        for estimator, mode in zip(estimators, modes, strict=True):
            estimator.train(mode)
    return torch.cat(history)


def _fit_alone(
    estimator: Estimator,
    x: Tensor,
    y: Tensor,
    steps: int,
    batch_size: int,
    lr: float,
    generator: torch.Generator | None,
    number: int,
) -> Float[Tensor, "1 k"]:
    """`fit` for one of many."""
    try:
        losses = fit(estimator, x, y, steps=steps, batch_size=batch_size, lr=lr, seed=generator)
    except FloatingPointError as error:
        raise FloatingPointError(f"Estimator {number}: {error}") from None
    return torch.tensor([losses], dtype=next(estimator.parameters()).dtype)


def _fit_together(
    estimators: Sequence[Estimator],
    x: Tensor,
    y: Tensor,
    own: tuple[bool, bool],
    steps: int,
    batch_size: int,
    lr: float,
    generators: Sequence[torch.Generator | None],
    graph: bool | None,
    first: int,
) -> Float[Tensor, "m k"]:
    """A group of the estimators of `fit_many`; ``first`` is the number of its first one."""
    n = x.shape[own[0]]
    rows = torch.arange(first, first + len(estimators), device=x.device)[:, None]

    def gather(i: Tensor) -> tuple[Tensor, ...]:
        """The samples i of each estimator, (m, b, ...)."""
        return tuple(
            value[rows, i] if its_own else value.index_select(0, i.flatten()).unflatten(0, i.shape)
            for value, its_own in zip((x, y), own, strict=True)
        )

    history = [torch.empty(len(estimators), 0, dtype=next(estimators[0].parameters()).dtype)]

    def keep_losses(losses: Tensor) -> None:
        step = 10 * sum(each.shape[1] for each in history)
        history.append(losses[:, ::10])
        _check_losses(history[-1], first, step)

    training = StackedTraining([_Learner(e) for e in estimators], cosine(steps, lr), gather)
    batches = draw_batches(n, batch_size, steps, generators, x.device)
    training.fit(((block,) for block in batches), graph, keep_losses)
    return torch.cat(history, 1)


class _Learner(nn.Module):
    """An estimator whose forward is a step of learning."""

    def __init__(self, estimator: Estimator):
        super().__init__()
        self.estimator = estimator

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        loss = self.estimator.learning_loss(x, y)
        return loss, loss.detach(), dict(self.named_buffers())


def _check_losses(losses: Float[Tensor, "m k"], first: int, step: int) -> None:
    """Check that the losses of every tenth step, from a step on, are finite."""
    bad = (~losses.isfinite()).nonzero().tolist()
    if bad:
        j, k = min(bad, key=lambda where: where[1])
        raise FloatingPointError(
            f"Estimator {first + j}: Expected a finite learning loss but got "
            f"{losses[j, k].item()} in step {step + 10 * k}; "
            "lower lr, or look for extreme values in x and y."
        )


def _group_size(estimator: Estimator, batch_size: int) -> int:
    """How many estimators to fit at once: on a CPU, no more than fit its cache."""
    parameters = [p for p in estimator.parameters() if p.requires_grad]
    if parameters[0].is_cuda:
        return sys.maxsize
    width = max(len(p) if p.ndim else 1 for p in parameters)
    values = batch_size * width
    if isinstance(estimator, CriticEstimator):
        matrix = isinstance(estimator.critic, SeparableCritic | BilinearCritic)
        values = max(values, batch_size**2 * (1 if matrix else width))
    size = CACHE // (values * parameters[0].element_size())
    return size if size >= WORTH else 1


# --- checks --------------------------------------------------------------------------------------


# What concerns the value and not the learning: the declared facts, and the entropy that `BA`'s
# depend on.
FACTS = {*Estimator.__annotations__, "entropy"}


def _check_alike(estimators: Sequence[Estimator]) -> None:
    """Check that estimators differ only in facts and in the values of parameters and buffers."""
    owner: dict[int, int] = {}
    first = _describe(estimators[0])
    for j, estimator in enumerate(estimators):
        for name, parameter in estimator.named_parameters():
            if parameter.requires_grad and owner.setdefault(id(parameter), j) != j:
                raise ValueError(
                    f"Expected independent estimators but got the same {name} in estimators "
                    f"{owner[id(parameter)]} and {j}; make copies with copy.deepcopy."
                )
        other = _describe(estimator)
        for name in {**first, **other}:
            a, b = first.get(name), other.get(name)
            if not _same(a, b):
                a, b = (v.__name__ if isinstance(v, type) else repr(v) for v in (a, b))
                raise ValueError(
                    f"Expected estimators of one architecture but got {name} {a} "
                    f"in estimator 0 and {b} in estimator {j}; fit those separately."
                )


def _describe(estimator: Estimator) -> dict[str, object]:
    """All that must not differ between estimators: types, settings, and kinds of tensors."""
    facts: dict[str, object] = {}
    internal = {*vars(nn.Module()), "_compiled_call_impl"}
    for name, module in estimator.named_modules():
        facts[f"{name} type".lstrip()] = type(module)
        path = f"{name}." if name else ""
        for key, value in vars(module).items():
            if key not in internal and not (module is estimator and key in FACTS):
                facts[f"{path}{key}"] = value
    for name, value in [*estimator.named_parameters(), *estimator.named_buffers()]:
        facts[name] = tuple(value.shape), value.dtype, str(value.device)
        facts[f"{name} requires_grad"] = value.requires_grad
    return facts


def _same(a: object, b: object) -> bool:
    """Whether two settings are equal, whatever their types."""
    if a is b:
        return True
    if type(a) is not type(b):
        return False
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return torch.equal(a, b)
    if isinstance(a, functools.partial) and isinstance(b, functools.partial):
        return _same((a.func, a.args, a.keywords), (b.func, b.args, b.keywords))
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(map(_same, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_same(a[k], b[k]) for k in a)
    try:
        return bool(a == b)
    except (RuntimeError, TypeError, ValueError):  # such as arrays
        return False


def _check_data(estimator: Estimator, x: Tensor, y: Tensor, m: int) -> tuple[int, bool, bool]:
    """Check the samples of m estimators.

    Args:
        estimator: one of them.
        x: samples, shared or not.
        y: samples, shared or not.
        m: number of estimators.

    Returns:
        Number of samples, whether each estimator has its own x, and its own y.
    """
    check_tensor("x", x)
    check_tensor("y", y)
    conditional = getattr(estimator, "conditional", None)
    own_x = isinstance(x, Tensor) and x.ndim > 2
    own_y = isinstance(y, Tensor) and y.ndim > 2
    if isinstance(y, Tensor) and y.ndim == 2 and isinstance(x, Tensor) and x.ndim:
        n = x.shape[own_x]
        shared = len(y) == n and not (isinstance(conditional, Categorical) and y.shape[1] > 1)
        own_y = not shared and y.shape[1] == n  # labels
    for name, value, own in (("x", x, own_x), ("y", y, own_y)):
        if own and len(value) != m:
            raise ValueError(
                f"Expected {name} of shape (n, ...) to share, or (m, n, ...) with a data set for "
                f"each of m = {m} estimators, but got {tuple(value.shape)}; "
                f"pass {name}[0] to share it, or as many estimators as data sets."
            )
    first_x, first_y = x[0] if own_x else x, y[0] if own_y else y
    check_pair(first_x, first_y)
    n = len(first_x)
    for name, value, own in (("x", x, own_x), ("y", y, own_y)):
        if not own:
            check_finite(name, value)
        elif not value.isfinite().all():
            for j, each in enumerate(value):
                check_finite(f"{name}[{j}]", each)
    if isinstance(conditional, Categorical | Bernoulli):
        with torch.no_grad():
            p = conditional(first_x[:1])
        for each in y if own_y else [y]:
            check_distribution(p.expand((n,)), conditional.check_y(each))
    return n, own_x, own_y


def _check_placement(estimator: Estimator, x: Tensor, y: Tensor, graph: bool | None) -> None:
    """Check devices and dtypes."""
    kinds = {(p.dtype, p.device) for p in estimator.parameters() if p.requires_grad}
    if len(kinds) > 1:
        raise ValueError(
            "Expected parameters of one dtype on one device "
            f"but got {sorted(f'{dtype} on {device}' for dtype, device in kinds)}; "
            "move them together with .to(...), or fit one by one."
        )
    ((_, device),) = kinds
    for name, value in (("x", x), ("y", y)):
        if value.device != device:
            raise ValueError(
                f"Expected {name} on {device}, where the estimators are, but got {value.device}; "
                f"call {name}.to({str(device)!r})."
            )
    if graph and device.type != "cuda":
        raise ValueError(
            f"Expected estimators on a GPU with graph=True but got {device}; leave graph out."
        )
