"""Exit 2 of the flow, a loss: the bound as a term in anybody's training loop.

Algorithm 1 of the CLUB paper alternates: fit q(y|x) to the samples as the encoder makes them now,
then take a step of the encoder down the bound, in which q stands still. `MIPenalty` is that
alternation in one line. It keeps apart what is easily mixed up:

- q is fitted on *detached* samples by an optimiser of its own: no step of it reaches the encoder;
- the bound is computed with *copies* of q's parameters, which need no gradient: no backward pass
  reaches q. It does not matter when the user's loss goes backwards, how often the penalty was
  called before that, or which parameters the user's optimiser was given;
- a known conditional has nothing to fit and is not touched: the gradients of an encoder inside
  log p(y|x) stay.

The penalty lives beside the user's model, not inside it. Inside, its parameters would turn up in
``model.parameters()``, in weight decay and gradient clipping, in the buckets of
DistributedDataParallel, in the checkpoints of the deployed model, and ``model.eval()`` for one
validation batch would decide about the fitting of q.

Reference: Cheng et al. 2020, Algorithm 1 and section 3.3.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from numbers import Real
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.func import functional_call
from torch.optim import Optimizer

from mibounds.conditionals import Bernoulli, Categorical
from mibounds.estimators import CLUBSample, Estimator
from mibounds.measure.estimation import estimate
from mibounds.measure.results import Estimate
from mibounds.minimise.cuda_graph import Replay, start_optimizer
from mibounds.minimise.health import DETACHED, PenaltyReport, look_at_penalty, look_at_sides
from mibounds.samples.batches import Batch
from mibounds.samples.checks import check_size, lay_out_samples, without_check
from mibounds.samples.precision import full_precision

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Shaped

__all__ = ["MIPenalty", "PenaltyWarning"]

WINDOW = 100  # values of the bound that a report looks back on
MOST = 8  # kinds of batches to record


class PenaltyWarning(UserWarning):
    """Something that makes the value of a penalty, or the use of it, doubtful.

    Example:
        >>> import warnings
        >>> import mibounds as mb
        >>> with warnings.catch_warnings():
        ...     warnings.simplefilter("ignore", PenaltyWarning)
        ...     penalty = mb.MIPenalty(mb.InfoNCE(3, 2))  # a lower bound, to see how it fares
    """


class MIPenalty(nn.Module):
    """Mutual information as a penalty: fits q on the batch, then gives the bound to minimise.

    In training mode each call fits first; in evaluation mode it only evaluates. Put it beside the
    model, not into it, and save its ``state_dict()`` with the model's: it holds the optimiser, the
    replay and the random numbers too, so that a resumed run goes on as if nothing had happened.

    Reference: Cheng et al. 2020, Algorithm 1.

    Args:
        estimator: the bound, with q(y|x) or a critic to fit, or with a known conditional. A module
            given to it as ``conditional`` is taken for q and fitted; a known one that is a module
            goes in as a plain function (``encoder.forward``).
        backward: an estimator of the other direction, called with (y, x). The penalty is then the
            mean of the two.
        lr: rate of the Adam that fits q.
        inner_steps: steps of q a call.
        warmup: calls at the beginning that fit q alone; the penalty is 0 meanwhile.
        weight: factor of the bound, or a function from the number of the call to it.
        replay: batches before this one that are kept, to fit q on them too.
        average: weight of the past in an average of q's parameters that stands in the bound for a
            calmer value, such as 0.9; 0 for q as it is.
        clip: largest norm of the gradient that q is fitted with; None for any. The gradient that
            the encoder gets is never clipped here: do that where it has its final scale.
        clamp: whether to report a value below zero as zero. The gradient stays that of the bound.
        optimizer: from a list of parameters to an optimiser, instead of Adam with ``lr``.
        graph: whether to record a call as a CUDA graph and replay it, which on a GPU takes most of
            its cost away; None for wherever that is possible. Second derivatives need False.
        watch_every: calls between two looks at whether the value means anything (`report`), which
            cost a little, and on a GPU a wait; 0 for never.
        seed: of the negatives that `CLUBSample` draws.
        capturable: whether a call keeps all that it writes where it is (`tensors`), so that a whole
            training step with the call in it can be captured in a CUDA graph of one's own. What
            Python counts then stands still while the graph is replayed: ``calls`` and `report`.

    Example:
        >>> import mibounds as mb
        >>> encoder = torch.nn.Linear(8, 3)
        >>> penalty = mb.MIPenalty(mb.CLUB(3, 2), inner_steps=5)
        >>> optimizer = torch.optim.Adam(encoder.parameters())
        >>> v, s = torch.randn(64, 8), torch.randn(64, 2)
        >>> loss = encoder(v).square().mean() + 0.1 * penalty(encoder(v), s)
        >>> loss.backward()
        >>> optimizer.step()
    """

    values: Tensor
    spread: Tensor

    def __init__(
        self,
        estimator: Estimator,
        *,
        backward: Estimator | None = None,
        lr: float = 5e-3,
        inner_steps: int = 5,
        warmup: int = 0,
        weight: float | Callable[[int], float] = 1.0,
        replay: int = 0,
        average: float = 0.0,
        clip: float | None = None,
        clamp: bool = False,
        optimizer: Callable[[list[nn.Parameter]], Optimizer] | None = None,
        graph: bool | None = None,
        watch_every: int = 200,
        seed: int = 0,
        capturable: bool = False,
    ):
        super().__init__()
        for name, value in (("estimator", estimator), ("backward", backward)):
            if not (isinstance(value, Estimator) or (name == "backward" and value is None)):
                raise ValueError(
                    f"Expected {name} to be an estimator such as mb.CLUB(x_dim, y_dim) "
                    f"but got {value if isinstance(value, type) else type(value).__name__}; "
                    "pass mb.CLUB(x.shape[1], y.shape[1]), for example."
                )
        check_size("inner_steps", inner_steps)
        for name, value in (("warmup", warmup), ("replay", replay), ("watch_every", watch_every)):
            check_size(name, value, at_least=0)
        if not callable(weight):
            _check_weight(weight)
        if not lr > 0:
            raise ValueError(f"Expected lr > 0 but got {lr}; leave it out for the default.")
        if not 0 <= average < 1:
            raise ValueError(
                f"Expected average in [0, 1) but got {average}; leave it out for no average."
            )
        if clip is not None and not clip > 0:
            raise ValueError(
                f"Expected clip > 0, or None for no clipping, but got {clip}; "
                "leave it out for none."
            )
        if capturable and (warmup or replay or average or graph or callable(weight)):
            raise ValueError(
                "Expected no warmup, replay, average, graph or function as weight with "
                "capturable=True, for a graph of your own repeats what it did when it was "
                f"captured, but got warmup={warmup}, replay={replay}, average={average}, "
                f"graph={graph} and weight={weight}; multiply the penalty by a tensor that changes."
            )
        if capturable:
            graph, watch_every = False, 0
        self.capturable = capturable
        self.estimators = nn.ModuleList(e for e in (estimator, backward) if e is not None)
        self.inner_steps, self.warmup, self.weight = inner_steps, warmup, weight
        self.replay, self.average, self.clip, self.clamp = replay, average, clip, clamp
        self.graph, self.watch_every = graph, watch_every
        self.calls = self.fits = 0
        self.register_buffer("values", torch.full((WINDOW,), torch.nan))
        self.register_buffer("spread", torch.full((2,), torch.nan))
        self._learnt = [p for p in self.estimators.parameters() if p.requires_grad]
        for p in self._learnt:  # outside of a fit nobody's gradient is to reach them
            p.requires_grad_(False)
        self.optimizer: Optimizer | None = None
        self._own_optimizer = optimizer is None
        if self._learnt:
            make = optimizer or (lambda ps: torch.optim.Adam(ps, lr=lr, fused=True))
            self.optimizer = make(self._learnt)
            if capturable:
                start_optimizer(self.optimizer)
        self._averages = [f"average_{i}" for i in range(len(self._learnt) if average else 0)]
        for name, p in zip(self._averages, self._learnt, strict=False):
            self.register_buffer(name, p.detach().clone())
        self._frozen: list[dict[str, Tensor]] | None = None
        self._recent: list[tuple[Tensor, Tensor]] = []
        self._joined = False
        self._recordings: dict[tuple[Any, ...], Replay | bool] = {}
        self._seed = seed
        self._generator: torch.Generator | None = None
        sides = [e.side for e in (estimator, backward) if e is not None]
        self._sides = look_at_sides(sides)
        self._facts = PenaltyReport(warnings=self._sides)
        for advice in self._sides:
            warnings.warn(str(advice), PenaltyWarning, stacklevel=2)

    @property
    def estimator(self) -> Estimator:
        """The estimator of the forward direction."""
        return self.estimators[0]  # pyright: ignore[reportReturnType]

    @property
    def generator(self) -> torch.Generator:
        """Where the negatives of `CLUBSample` come from, to register it with a graph or reseed."""
        return self._randomness(self.values.device)

    def tensors(self) -> dict[str, Tensor]:
        """All that a call writes and the next one reads, by name; for ``capturable=True``.

        The tensors themselves: a graph has to put them back after trial runs, and a plain archive
        of arrays can hold them.

        Example:
            >>> import mibounds as mb
            >>> names = mb.MIPenalty(mb.CLUB(3, 2, 4), capturable=True).tensors()
            >>> "moment 0 exp_avg" in names
            True
        """
        found = {**dict(self.named_parameters()), **dict(self.named_buffers())}
        states = [] if self.optimizer is None else [self.optimizer.state[p] for p in self._learnt]
        for i, state in enumerate(states):
            found |= {f"moment {i} {k}": v for k, v in state.items() if isinstance(v, Tensor)}
        return found

    def forward(
        self,
        x: Shaped[Tensor, "n *x"],
        y: Shaped[Tensor, "n *y"],
        *,
        mask: Bool[Tensor, "batch time"] | None = None,
        group: dist.ProcessGroup | None = None,
    ) -> Float[Tensor, ""]:
        """Fit q (in training mode), then the bound times its weight.

        Args:
            x: samples, (n, x_dim), or sequences of them, (batch, time, x_dim).
            y: samples or labels, as many.
            mask: True for the samples that count, (batch, time); padding is left out.
            group: processes whose batches are joined, see `mibounds.samples.batches`.

        Returns:
            The penalty in nats, to be added to a loss.
        """
        if torch.compiler.is_compiling():  # a fit within a graph is none
            from mibounds.minimise import uncompiled as eager

            return eager.call(self._penalise, x, y, mask, group)  # pyright: ignore[reportCallIssue]
        return self._penalise(x, y, mask, group)

    def _penalise(
        self, x: Tensor, y: Tensor, mask: Tensor | None, group: dist.ProcessGroup | None
    ) -> Tensor:
        x, y = self._samples(x, y, mask)
        weight = 0.0 if self.calls < self.warmup else self.weight
        if callable(weight):
            weight = weight(self.calls)
            _check_weight(weight)
        fitting = self.training and not torch.is_inference_mode_enabled()
        due = fitting and self.watch_every and (self.calls + 1) % self.watch_every == 0
        recording, value = None, None
        if fitting:
            if due:  # before the fit, while q has not seen this batch
                attached = x.requires_grad or y.requires_grad or not self._learnt
                self._watch(x.detach(), y.detach(), attached or not torch.is_grad_enabled())
            recording = self._recording(x, y, group)
            if recording is None:
                self._fit(x, y, self.inner_steps, group)
            else:
                value = recording(x, y)
            self.calls += 1
        if weight == 0 and self._learnt:
            return _zero(x, y)
        if value is None:
            value = self._bound(x, y, group)
        if fitting and self.watch_every and not (due or _on_gpu(x) or value.isfinite()):
            self._watch(x.detach(), y.detach())  # at once, where asking for the value stalls no GPU
        if fitting:
            self.values[(self.calls - 1) % WINDOW] = value.detach()
        if self.clamp:
            value = value + (value.clamp_min(0) - value).detach()
        return value if weight == 1 else weight * value

    def bound(
        self,
        x: Shaped[Tensor, "n *x"],
        y: Shaped[Tensor, "n *y"],
        *,
        mask: Bool[Tensor, "batch time"] | None = None,
        group: dist.ProcessGroup | None = None,
    ) -> Float[Tensor, ""]:
        """The bound alone, in nats: no fit, weight or clamp; gradients to x and y, none to q."""
        return self._bound(*self._samples(x, y, mask), group)

    def fit(
        self,
        x: Shaped[Tensor, "n *x"],
        y: Shaped[Tensor, "n *y"],
        *,
        steps: int | None = None,
        mask: Bool[Tensor, "batch time"] | None = None,
        group: dist.ProcessGroup | None = None,
    ) -> None:
        """Fit q alone, for whoever wants to do so at other times than the penalty's own.

        Args:
            x: samples, as in `forward`; they are detached.
            y: samples.
            steps: steps of q; ``inner_steps`` if left out.
            mask: True for the samples that count.
            group: processes whose batches are joined.
        """
        self._fit(
            *self._samples(x, y, mask),
            self.inner_steps if steps is None else steps,
            group,
        )

    def audit(
        self,
        x: Shaped[Tensor, "n *x"],
        y: Shaped[Tensor, "n *y"],
        *,
        mask: Bool[Tensor, "batch time"] | None = None,
        **options: Any,
    ) -> Estimate:
        """Is it really gone? A fresh and stronger estimate, from samples that q was not fitted to.

        A Gaussian q that says zero may only be blind to what is left, or lag behind the encoder.
        [`mibounds.estimate`][] starts from nothing and evaluates every row with models that have
        not seen it.

        Args:
            x: held-out samples, as many as there are.
            y: held-out samples or labels.
            mask: True for the samples that count.
            **options: of `mibounds.estimate`, such as ``budget="fast"`` or ``permutations=99``.

        Returns:
            The estimate, with its interval and its own warnings.

        Example:
            >>> import mibounds as mb
            >>> g = torch.Generator().manual_seed(0)
            >>> z = torch.randn(500, 1, generator=g)
            >>> s = z.abs() + 0.1 * torch.randn(500, 1, generator=g)  # uncorrelated, yet dependent
            >>> mb.MIPenalty(mb.CLUB(1, 1)).audit(z, s, budget="fast").nats > 1
            True
        """
        x, y = self._samples(x, y, mask)
        conditional = getattr(self.estimator, "conditional", None)
        if isinstance(conditional, Categorical | Bernoulli):
            options.setdefault("y_kinds", "discrete")
        x, y = (v.detach().flatten(1) if v.ndim > 2 else v.detach() for v in (x, y))
        return estimate(x.cpu(), y.cpu(), **options)

    def report(
        self, x: Shaped[Tensor, "n *x"] | None = None, y: Shaped[Tensor, "n *y"] | None = None
    ) -> PenaltyReport:
        """Whether the value means anything: what the last look found, with a remedy for each fault.

        Args:
            x: samples to look at now; if left out, the last look counts, which was at a batch that
                q had not seen.
            y: samples, with x.

        Returns:
            What was found; ``print`` it.
        """
        if x is not None and y is not None:
            self._look(*(v.detach() for v in self._samples(x, y, None)))
        return self._facts

    # --- the two halves of a step ----------------------------------------------------------------

    def _fit(self, x: Tensor, y: Tensor, steps: int, group: dist.ProcessGroup | None) -> None:
        """Steps of q on detached samples, in full precision, whatever surrounds the call."""
        if not self._learnt:
            return
        x, y = x.detach(), y.detach()
        if group is not None and not self._joined:
            self._join(x, group)
        pool = [*self._recent, (x, y)]
        if self.replay:
            self._recent = pool[-self.replay :]
        if len(pool) > 1:
            x, y = (torch.cat(side) for side in zip(*pool, strict=True))
        places = list(self._places()) if self.capturable else []
        self._learn(x, y, steps, group)
        for owner, leaf, place in places:  # statistics are replaced: put them back
            setattr(owner, leaf, place.copy_(getattr(owner, leaf).detach()))
        self.fits += steps
        if self._averages:
            self._follow()
        self._freeze()

    def _learn(self, x: Tensor, y: Tensor, steps: int, group: dist.ProcessGroup | None) -> None:
        with torch.enable_grad(), full_precision(x), self._learning():
            for _ in range(steps):
                losses = [
                    e.learning_loss(*sides, group=group) for e, sides in self._directions(x, y)
                ]
                self._step(sum(losses[1:], losses[0]), group)

    def _step(self, loss: Tensor, group: dist.ProcessGroup | None) -> None:
        """One step of the optimiser, unless the gradient is not finite."""
        gradients = torch.autograd.grad(
            loss, self._learnt, allow_unused=True, materialize_grads=True
        )
        flat = torch.cat([g.flatten() for g in gradients])
        if group is not None:
            dist.all_reduce(flat, group=group)
            flat = flat / dist.get_world_size(group)
        norm = flat.norm()
        if self.clip is not None:
            flat = flat * (self.clip / norm.clamp_min(self.clip))
        # One bad batch, as an overflow in half precision makes them, must not spoil q. Asking for
        # the value would stall a GPU: a gradient of zeros does nearly the same.
        flat = torch.where(norm - norm == 0, flat, 0.0)
        assert self.optimizer is not None
        capturing = flat.is_cuda and torch.cuda.is_current_stream_capturing()
        if self.capturable:  # outside of a capture torch warns of it
            for options in self.optimizer.param_groups:
                options["capturable"] = capturing
        for p, g in zip(self._learnt, flat.split([p.numel() for p in self._learnt]), strict=True):
            p.grad = g.view_as(p)
        self.optimizer.step()
        for p in self._learnt:
            p.grad = None

    def _bound(self, x: Tensor, y: Tensor, group: dist.ProcessGroup | None) -> Tensor:
        """The bound, in which q stands still."""
        if self._frozen is None:
            self._freeze()
        assert self._frozen is not None
        return self._evaluate(x, y, self._frozen, group)

    def _evaluate(
        self, x: Tensor, y: Tensor, qs: list[dict[str, Tensor]], group: dist.ProcessGroup | None
    ) -> Tensor:
        """The bound with these parameters of q, each estimator's own where there are none."""
        values = []
        with full_precision(x), without_check():
            for (e, sides), q in zip(self._directions(x, y), qs, strict=True):
                options: dict[str, Any] = {"group": group}
                if isinstance(e, CLUBSample):
                    options["generator"] = self._randomness(x.device)
                values.append(functional_call(e, q, sides, options))
        return values[0] if len(values) == 1 else sum(values[1:], values[0]) / len(values)

    @torch.no_grad()
    def _follow(self) -> None:
        """Take q's parameters into their average, which at first is the plain mean."""
        weight = 1 - min(self.average, self.fits / (10 + self.fits))
        for name, p in zip(self._averages, self._learnt, strict=True):
            setattr(self, name, torch.lerp(getattr(self, name), p, weight))

    def _freeze(self) -> None:
        """Take what the bound is to be computed with: q's parameters as they are, or the average.

        New tensors each time: a graph that was built with the old ones can still go backwards.
        """
        if self._averages:
            values = [getattr(self, name) for name in self._averages]
        else:
            values = [p.detach().clone() for p in self._learnt]
        of = {id(p): value for p, value in zip(self._learnt, values, strict=True)}
        self._frozen = [
            {name: of[id(p)] for name, p in e.named_parameters() if id(p) in of}
            for e in self.estimators
        ]

    def _places(self) -> Iterator[tuple[nn.Module, str, Tensor]]:
        """Where the statistics of the estimators are."""
        for module in self.estimators.modules():
            for leaf, buffer in module.named_buffers(recurse=False):
                yield module, leaf, buffer

    # --- the same, recorded ----------------------------------------------------------------------

    def _recording(self, x: Tensor, y: Tensor, group: dist.ProcessGroup | None) -> Replay | None:
        """The recorded call for samples like these, if there is one or can be one."""
        plain = not (group or self.replay or self.average) and self._own_optimizer
        if self.graph is False or not (_on_gpu(x) and plain and self._learnt):
            if self.graph:
                raise ValueError(
                    "Expected samples on a GPU, q to fit, and no group, replay, average or "
                    f"optimizer of your own with graph=True but got samples on {x.device} and "
                    f"group={group}; leave graph out."
                )
            return None
        assert self.optimizer is not None
        kinds = tuple((v.shape, v.dtype, v.requires_grad) for v in (x, y))
        rates = tuple(group["lr"] for group in self.optimizer.param_groups)
        key = (*kinds, torch.is_grad_enabled(), rates)
        found = self._recordings.get(key)
        if found is None and len(self._recordings) < MOST:  # else they change all the time
            self._recordings[key] = True  # the first of its kind may be the only one
        elif found is True:
            found = self._recordings[key] = Replay.of(self, x, y) or False
        return found if isinstance(found, Replay) else None

    @contextmanager
    def _learning(self) -> Iterator[None]:
        """Estimators in training mode, their parameters open to gradients."""
        self.estimators.train()
        for p in self._learnt:
            p.requires_grad_(True)
        try:
            yield
        finally:
            self.estimators.eval()
            for p in self._learnt:
                p.requires_grad_(False)

    def _directions(
        self, x: Tensor, y: Tensor
    ) -> Iterator[tuple[Estimator, tuple[Tensor, Tensor]]]:
        """Each estimator with its two sides."""
        for e, sides in zip(self.estimators, ((x, y), (y, x)), strict=False):
            assert isinstance(e, Estimator)
            yield e, sides

    def _join(self, x: Tensor, group: dist.ProcessGroup) -> None:
        """Start on every process from the q of the first."""
        batch = Batch(len(x), group, x.device)
        with torch.no_grad():
            for value in (*self.parameters(), *self.buffers()):
                value.copy_(batch.from_first(value))
        self._joined = True

    def _randomness(self, device: torch.device) -> torch.Generator:
        if self._generator is None or self._generator.device.type != device.type:
            self._generator = torch.Generator(device).manual_seed(self._seed)
        return self._generator

    def _samples(self, x: Tensor, y: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """One sample a row; a known conditional may take sequences as they are."""
        return lay_out_samples(x, y, mask, sequences=bool(self._learnt))

    # --- watching --------------------------------------------------------------------------------

    def _watch(self, x: Tensor, y: Tensor, attached: bool = True) -> None:
        """Look, and warn of what was not there at the last look."""
        before = {advice.code for advice in self._facts.warnings}
        self._look(x, y)
        if not attached:
            self._facts = replace(self._facts, warnings=(*self._facts.warnings, DETACHED))
        for advice in self._facts.warnings:
            if advice.code not in before:
                warnings.warn(str(advice), PenaltyWarning, stacklevel=6)

    @torch.no_grad()
    def _look(self, x: Tensor, y: Tensor) -> None:
        with full_precision(x):
            facts = look_at_penalty(self.estimator, x, y, self.values, self.spread, self.calls)
        self._facts = replace(facts, warnings=(*self._sides, *facts.warnings))
        if self._facts.spread is not None and not self.spread.isfinite().all():
            self.spread = self.spread.new_tensor(self._facts.spread)

    # --- what a state_dict holds besides parameters and buffers -----------------------------------

    def get_extra_state(self) -> dict[str, Any]:
        """Counts, optimiser, replay and random numbers, for ``state_dict``."""
        device, generator = self._random_state()
        return {
            "calls": self.calls,
            "fits": self.fits,
            "optimizer": None if self.optimizer is None else self.optimizer.state_dict(),
            "recent": list(self._recent),
            "device": device,
            "generator": generator,
        }

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Go on from a ``state_dict``."""
        self.calls, self.fits = state["calls"], state["fits"]
        if self.optimizer is not None:
            self.optimizer.load_state_dict(state["optimizer"])
        where = self.values.device
        self._recent = [(x.to(where), y.to(where)) for x, y in state["recent"]]
        self._recordings.clear()
        same = state["device"] == where.type  # a GPU's random numbers are others than a CPU's
        self._generator = _generator_from(state["device"], state["generator"]) if same else None
        self._frozen = None

    def _random_state(self) -> tuple[str | None, Tensor | None]:
        generator = self._generator
        if generator is None:
            return None, None
        return generator.device.type, generator.get_state()

    def __getstate__(self) -> dict[str, Any]:
        """For copies and pickles: without recordings, and with a source of its own."""
        state = {**super().__getstate__(), "_recordings": {}, "_generator": None}
        return {**state, "_random": self._random_state()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        random = state.pop("_random")
        super().__setstate__(state)
        self._generator = _generator_from(*random)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> MIPenalty:
        """Move or convert everything, the optimiser's state and the replay included."""
        super()._apply(fn, recurse)
        if self.optimizer is not None:
            for p, state in self.optimizer.state.items():
                for key, value in state.items():
                    if isinstance(value, Tensor):
                        kind = value.dtype if key == "step" else p.dtype
                        state[key] = value.to(p.device, kind)
        self._recordings.clear()
        self._recent = [(fn(x), fn(y)) for x, y in self._recent]
        self._frozen = None
        return self


def _generator_from(device: str | None, state: Tensor | None) -> torch.Generator | None:
    if device is None or state is None:
        return None
    generator = torch.Generator(device)
    generator.set_state(state.cpu())
    return generator


def _check_weight(weight: Any) -> None:
    """A number that is one; a tensor is not asked, for that may have to wait for a GPU."""
    if not (isinstance(weight, Tensor) or (isinstance(weight, Real) and math.isfinite(weight))):
        raise ValueError(
            "Expected weight to be a finite number, or a function from the number of the call to "
            f"one, but got {weight!r}; pass weight=0.1, for example."
        )


def _on_gpu(x: Tensor) -> bool:
    return x.is_cuda


def _zero(x: Tensor, y: Tensor) -> Tensor:
    """Zero that still hangs on x and y, so that every parameter of the encoder gets a gradient."""
    parts = [v.sum() * 0 for v in (x, y) if v.is_floating_point()]
    return sum(parts[1:], parts[0])
