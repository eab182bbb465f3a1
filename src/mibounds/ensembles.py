"""Many estimators fitted at once: seeds, tasks or columns, side by side.

A small network keeps neither a core nor a GPU busy: most of a step is the calling of operations.
Estimators of one architecture can share the calls. Every tensor of their states is stacked along a
new first dimension, and ``torch.func.vmap`` runs ``learning_loss`` once for all of them. They
stay independent: the sum of their losses has for each one's parameters the gradient of its own
loss, and Adam works element by element, so that one Adam over the stack is as many Adams. Each
draws its batches from a generator of its own. So the numbers are those of fitting one by one.

On a GPU even the shared calls cost more than the work, so the whole step is recorded in a CUDA
graph and replayed. Everything that changes from step to step therefore lives in tensors that stay
where they are, the number of the step among them.
"""

from __future__ import annotations

import functools
import math
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.distributions import Distribution
from torch.func import functional_call, vmap

from mibounds.conditionals import Bernoulli, Categorical
from mibounds.critics import BilinearCritic, SeparableCritic
from mibounds.densities import check_distribution
from mibounds.estimation import fit
from mibounds.estimators import CriticEstimator, Estimator
from mibounds.nn import check_size
from mibounds.samples import check_finite, check_pair

if TYPE_CHECKING:
    from jaxtyping import Float, Int, Shaped

__all__ = ["fit_many"]

BETAS, EPS = (0.9, 0.999), 1e-8  # torch's Adam, as `fit` has it
BLOCK = 100  # steps between two looks at the loss
CACHE = 2**22  # bytes of one layer's values, over all estimators, beyond which a CPU gets slower
WORTH = 8  # estimators at once on a CPU that are worth the overhead


def fit_many(
    estimators: Sequence[Estimator],
    x: Shaped[Tensor, "..."],
    y: Shaped[Tensor, "..."],
    *,
    steps: int = 1000,
    batch_size: int = 128,
    lr: float = 3e-3,
    generators: Sequence[torch.Generator] | None = None,
    graph: bool | None = None,
    at_once: int | None = None,
) -> Float[Tensor, "m k"]:
    """Fit many independent estimators of one architecture at once, each as `fit` would.

    The numbers are those of ``fit(estimators[j], x, y, generator=generators[j])`` one by one, up to
    rounding. The estimators may differ in their parameters and statistics, and for `BA` in the
    entropy, but not in type, sizes or settings. Those with nothing to learn are left as they are.
    Should one of them explode, the others keep what they have learnt by then.

    What it gains is the overhead of many small steps: most with small networks and batches. On a
    CPU the default critic, which is busy with all pairs, gains little.

    Args:
        estimators: what to fit, in place; they are in training mode meanwhile.
        x: samples that all estimators share, (n, x_dim), or those of each, (m, n, x_dim).
        y: likewise, also of other kind than x; labels have shape (n,) or (m, n).
        steps: number of batches.
        batch_size: samples a batch, of each estimator.
        lr: rate at the start, which falls to zero along a cosine.
        generators: source of each one's batches, fastest on the CPU wherever the samples are; if
            left out, torch's global one, of which each takes all its batches before the next.
        graph: whether to record the step in a CUDA graph and replay it; if left out, wherever the
            estimators are on a GPU and nothing in the step waits for it.
        at_once: how many to fit at once, group after group; if left out, all of them on a GPU, and
            no more than fit its cache on a CPU, if need be one by one with `fit`. Changes time and
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
        raise ValueError("Expected at least one estimator but got none.")
    if generators is not None and len(generators) != m:
        raise ValueError(
            f"Expected a generator for each of {m} estimators but got {len(generators)}; "
            "leave them out to use torch's global one."
        )
    check_size("steps", steps, at_least=0)
    check_size("batch_size", batch_size)
    n, own_x, own_y = _check_data(estimators[0], x, y, m)
    if not any(p.requires_grad for e in estimators for p in e.parameters()):
        return torch.empty(m, 0)
    _check_alike(estimators)
    _check_placement(estimators[0], x, y, graph)
    batch_size = min(batch_size, n)
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
            sources = generators[first : first + size] if generators else [None] * len(group)
            if len(group) == 1 and not x.is_cuda:  # nothing to share
                data = x[first] if own_x else x, y[first] if own_y else y
                losses = _fit_alone(group[0], *data, steps, batch_size, lr, sources[0], first)
            else:
                blocks = _draw_batches(n, batch_size, steps, sources, x.device)
                ensemble = _Ensemble(group, x, y, (own_x, own_y), steps, lr, first)
                losses = ensemble.fit(blocks, graph)
            history.append(losses)
    finally:
        for estimator, mode in zip(estimators, modes, strict=True):
            estimator.train(mode)
    return torch.cat(history)


class _Learner(nn.Module):
    """An estimator whose forward is a step of learning: the loss, and the buffers afterwards.

    Statistics are *replaced* in ``learning_loss``, and `functional_call` puts back what was there
    before; so they have to leave as results.
    """

    def __init__(self, estimator: Estimator):
        super().__init__()
        self.estimator = estimator

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        loss = self.estimator.learning_loss(x, y)
        return loss, dict(self.named_buffers())


class _Ensemble:
    """Estimators side by side, and all that a step of their fit reads or writes.

    Args:
        estimators: what to fit, alike.
        x: samples, with a leading dimension of all estimators where each has its own.
        y: samples, likewise.
        own: whether each estimator has its own x, and its own y.
        steps: number of steps, for the rates.
        lr: rate at the start.
        first: number of the first of these estimators among all.
    """

    def __init__(
        self,
        estimators: Sequence[Estimator],
        x: Tensor,
        y: Tensor,
        own: tuple[bool, bool],
        steps: int,
        lr: float,
        first: int = 0,
    ):
        self.x, self.y, self.own, self.first = x, y, own, first
        self.learners = learners = [_Learner(estimator) for estimator in estimators]
        named = [dict(learner.named_parameters()) for learner in learners]
        stacked = {k: torch.stack([each[k].detach() for each in named]) for k in named[0]}
        learnt = [k for k, p in named[0].items() if p.requires_grad]
        # Views of one vector, so that Adam needs a few calls in all and not a few for each of them.
        self.vector = torch.cat([stacked[k].flatten() for k in learnt])
        parts = self.vector.split([stacked[k].numel() for k in learnt])
        self.parameters = {
            k: part.view_as(stacked[k]).detach().requires_grad_()
            for k, part in zip(learnt, parts, strict=True)
        }
        self.frozen = {k: p for k, p in stacked.items() if k not in self.parameters}
        named = [dict(learner.named_buffers()) for learner in learners]
        self.buffers = {k: torch.stack([each[k].detach() for each in named]) for k in named[0]}
        self.mean, self.square = torch.zeros_like(self.vector), torch.zeros_like(self.vector)
        self.losses = self.vector.new_zeros(BLOCK, len(learners))
        device = self.vector.device
        wide = torch.promote_types(self.vector.dtype, torch.float32)
        self.rates = torch.tensor(_adam_rates(steps, lr), dtype=wide, device=device)
        self.rows = torch.arange(first, first + len(learners), device=device)[:, None]
        self.number = torch.zeros(1, dtype=torch.int64, device=device)
        self.index = torch.zeros(0, dtype=torch.int64, device=device)

    def fit(
        self, blocks: Iterator[Int[Tensor, "block m b"]], graph: bool | None
    ) -> Float[Tensor, "m k"]:
        """Take a step for each batch, and give every estimator what it has learnt.

        Args:
            blocks: the batches as numbers of samples, `BLOCK` steps at a time.
            graph: whether to record the step; None for wherever that is possible.

        Returns:
            The losses every 10 steps.
        """
        history = [torch.empty(len(self.learners), 0, dtype=self.losses.dtype)]
        step: Callable[[], object] | None = None
        try:
            with _no_validation():
                for number, block in enumerate(blocks):
                    if step is None:
                        self.index = block.to(self.vector.device, copy=True)
                        step = self.step if graph is False else self.record(required=graph is True)
                    self.index[: len(block)].copy_(block)
                    for _ in range(len(block)):
                        step()
                    losses = self.losses[: len(block) : 10].T.to("cpu", copy=True)
                    _check_losses(losses, self.first, number * BLOCK)
                    history.append(losses)
        finally:
            self.write_back()
        return torch.cat(history, 1)

    def step(self) -> None:
        """One step of all estimators. Nothing in it depends on a value that the CPU has to see."""
        now = self.number % BLOCK
        i = self.index.index_select(0, now).squeeze(0)
        x, y = (self._take(v, own, i) for v, own in zip((self.x, self.y), self.own, strict=True))
        learn = vmap(self._learn, randomness="different")
        losses, buffers = learn(self.parameters, self.frozen, self.buffers, x, y)
        gradients = torch.autograd.grad(
            losses.sum(), list(self.parameters.values()), allow_unused=True, materialize_grads=True
        )
        with torch.no_grad():
            gradient = torch.cat([g.flatten() for g in gradients])
            # Of no dimension, so that a wider dtype does not spread.
            rate, spread = self.rates.index_select(0, self.number).flatten().unbind()
            self.mean.lerp_(gradient, 1 - BETAS[0])
            self.square.mul_(BETAS[1]).addcmul_(gradient, gradient, value=1 - BETAS[1])
            scale = self.square.sqrt().div_(spread).add_(EPS)
            self.vector.sub_(torch.div(self.mean, scale, out=scale).mul_(rate))
            for name, buffer in self.buffers.items():  # where they are, for the graph
                buffer.copy_(buffers[name])
            self.losses.index_copy_(0, now, losses.detach().to(self.losses.dtype)[None])
            self.number.add_(1)

    def record(self, required: bool) -> Callable[[], object]:
        """Record the step as a CUDA graph.

        Args:
            required: whether it is an error if that is impossible.

        Returns:
            The replay of the graph; off the GPU, and where it is impossible, the plain step.
        """
        device = self.vector.device
        if device.type != "cuda":
            return self.step
        with torch.cuda.device(device):
            # Libraries set themselves up in their first calls, which a graph must not contain, and
            # autograd remembers streams: so the first steps go to a stream aside.
            main, aside = torch.cuda.current_stream(), torch.cuda.Stream()
            aside.wait_stream(main)
            with torch.cuda.stream(aside):
                with self.unchanged():
                    self.step()
                waits = self.waits()
            main.wait_stream(aside)
            if waits is not None:
                if required:
                    raise ValueError(
                        "Expected a step that never waits for the GPU, to record it in a graph, "
                        f"but got {type(waits).__name__}: {waits}; pass graph=False."
                    ) from waits
                return self.step
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                self.step()
        return graph.replay

    def waits(self) -> RuntimeError | None:
        """What in a step makes the CPU wait for the GPU, as some of torch's distributions do."""
        before = torch.cuda.get_sync_debug_mode()
        with self.unchanged(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch calls this mode a prototype
            torch.cuda.set_sync_debug_mode("error")
            try:
                self.step()
            except RuntimeError as error:
                return error
            finally:
                torch.cuda.set_sync_debug_mode(before)
        return None

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        """Put everything that a step writes back to what it was."""
        state = [self.vector, self.mean, self.square, self.losses, self.number]
        state += self.buffers.values()
        before = [value.clone() for value in state]
        try:
            yield
        finally:
            for value, old in zip(state, before, strict=True):
                value.copy_(old)

    @torch.no_grad()
    def write_back(self) -> None:
        """Give every estimator its parameters and buffers."""
        for j, learner in enumerate(self.learners):
            for name, parameter in learner.named_parameters():
                if name in self.parameters:
                    parameter.copy_(self.parameters[name][j])
            for name, buffer in list(learner.named_buffers()):
                new = self.buffers[name][j]
                if not torch.equal(new, buffer):  # replaced, as in learning_loss
                    owner, _, leaf = name.rpartition(".")
                    setattr(learner.get_submodule(owner), leaf, new.clone())

    def _learn(
        self,
        parameters: dict[str, Tensor],
        frozen: dict[str, Tensor],
        buffers: dict[str, Tensor],
        x: Tensor,
        y: Tensor,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        return functional_call(self.learners[0], (parameters, frozen, buffers), (x, y))

    def _take(self, value: Tensor, own: bool, i: Tensor) -> Tensor:
        """The samples i of each estimator, (m, b, ...)."""
        if own:
            return value[self.rows, i]
        return value.index_select(0, i.flatten()).unflatten(0, i.shape)


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
        losses = fit(
            estimator, x, y, steps=steps, batch_size=batch_size, lr=lr, generator=generator
        )
    except FloatingPointError as error:
        raise FloatingPointError(f"Estimator {number}: {error}") from None
    return torch.tensor([losses], dtype=next(estimator.parameters()).dtype)


def _adam_rates(steps: int, lr: float) -> list[tuple[float, float]]:
    """Factor of the first moment and divisor of the root of the second, in each step of Adam.

    The rate follows a cosine down to zero; both correct for moments that start at zero.
    """
    return [
        (
            lr * (1 + math.cos(math.pi * t / steps)) / 2 / (1 - BETAS[0] ** (t + 1)),
            math.sqrt(1 - BETAS[1] ** (t + 1)),
        )
        for t in range(steps)
    ]


def _draw_batches(
    n: int,
    batch_size: int,
    steps: int,
    generators: Sequence[torch.Generator | None],
    device: torch.device,
) -> Iterator[Int[Tensor, "block m b"]]:
    """The batches that `fit` would draw for each estimator, `BLOCK` steps at a time."""

    def draw(count: int, generator: torch.Generator | None) -> Tensor:
        where = generator.device if generator is not None else device
        if where.type == "cpu":  # draws one number after the other: one call or many are the same
            return torch.randint(n, (count, batch_size), generator=generator).to(device)
        each = [
            torch.randint(n, (batch_size,), generator=generator, device=where) for _ in range(count)
        ]
        return torch.stack(each).to(device)

    if len(set(map(id, generators))) == len(generators):
        for start in range(0, steps, BLOCK):
            count = min(BLOCK, steps - start)
            yield torch.stack([draw(count, g) for g in generators], 1)
    elif steps:  # from a common source each takes all its batches before the next one
        yield from torch.stack([draw(steps, g) for g in generators], 1).split(BLOCK)


def _group_size(estimator: Estimator, batch_size: int) -> int:
    """How many estimators to fit at once: on a CPU, those whose values stay in its cache."""
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


@contextmanager
def _no_validation() -> Iterator[None]:
    """Without torch's checks of distributions, which look at values: vmap cannot."""
    before = Distribution._validate_args
    Distribution.set_default_validate_args(False)
    try:
        yield
    finally:
        Distribution.set_default_validate_args(before)


# --- checks --------------------------------------------------------------------------------------


FACTS = {"bound", "condition", "entropy"}  # settings that concern the value, not the learning


def _check_alike(estimators: Sequence[Estimator]) -> None:
    """Check that estimators differ in the values of their parameters and buffers alone."""
    owner: dict[int, int] = {}
    first = _describe(estimators[0])
    for j, estimator in enumerate(estimators):
        for name, parameter in estimator.named_parameters():
            if parameter.requires_grad and owner.setdefault(id(parameter), j) != j:
                raise ValueError(
                    f"Expected independent estimators but got one {name} in both estimator "
                    f"{owner[id(parameter)]} and {j}; make copies with copy.deepcopy."
                )
        other = _describe(estimator)
        for name in {**first, **other}:
            a, b = first.get(name), other.get(name)
            if not _same(a, b):
                a, b = (v.__name__ if isinstance(v, type) else repr(v) for v in (a, b))
                raise ValueError(
                    f"Expected estimators of one architecture but got {name} {a} "
                    f"in estimator 0 and {b} in estimator {j}; fit those apart."
                )


def _describe(estimator: Estimator) -> dict[str, object]:
    """All that may not differ between estimators: types, settings, and kinds of tensors."""
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
    """Whether two settings are equal, whatever they are."""
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
                f"each of m = {m} estimators, but got {tuple(value.shape)}."
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


def _check_losses(losses: Float[Tensor, "m k"], first: int, step: int) -> None:
    """Refuse losses that are not finite, those every 10 steps from a step on."""
    bad = (~losses.isfinite()).nonzero().tolist()
    if bad:
        j, k = min(bad, key=lambda where: where[1])
        raise FloatingPointError(
            f"Estimator {first + j}: Expected a finite learning loss but got "
            f"{losses[j, k].item()} in step {step + 10 * k}; "
            "lower lr, or look for extreme values in x and y."
        )
