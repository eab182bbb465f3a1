"""Algorithm 1 of the CLUB paper: fit q to a batch, then evaluate the bound with q held fixed.

q stands for whatever the estimators learn: a conditional q(y|x), a marginal or a critic. The two
halves never reach each other's parameters:

- q is fitted on *detached* samples, by an optimiser of its own: none of its steps reaches the
  encoder;
- the bound is evaluated with *copies* of q's parameters that need no gradient: no backward pass
  reaches q. It does not matter when the user's loss goes backwards, how often the penalty was
  called before that, or which parameters the user's optimiser was given;
- a known conditional has nothing to fit and is not touched: the gradients of an encoder inside
  log p(y|x) stay.

An encoder can escape q: it stretches its columns, or hides what it knows in small differences of
them. No such linear map changes the mutual information. So q(y|x) sees x and y whitened by the
batch, each if it comes from an encoder. And in training it sees such an x with noise of a size
drawn for each row: I(x + σ e; y) <= I(x; y). Without noise q has no useful gradient where a code is
a function of its input.

Reference: Cheng et al. 2020, Algorithm 1 and section 3.3.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.func import functional_call
from torch.optim import Optimizer

from mibounds.conditionals import Conditional
from mibounds.critics import Critic
from mibounds.estimators import CLUBSample, Estimator
from mibounds.estimators.fitting import check_learnable
from mibounds.estimators.ratio import draw_noise
from mibounds.minimise.dependence import standardise_batch, whiten
from mibounds.minimise.outliers import draw_in
from mibounds.networks import use_units_that_live
from mibounds.samples.batches import Batch
from mibounds.samples.checks import Group, check_shapes, without_check
from mibounds.samples.precision import full_precision

if TYPE_CHECKING:
    from jaxtyping import Float, Shaped

OptimizerFactory = Callable[[list[nn.Parameter]], Optimizer]


class Alternation:
    """Fits q, and evaluates the bound with q held fixed.

    It owns the learnt parameters of the estimators: outside of a fit they need no gradient.

    Args:
        estimators: one; or two, of which the second is called with (y, x). The bound is then the
            mean of both.
        make_optimizer: from q's parameters to the optimiser that fits them.
        average: weight of the past in an average of q's parameters that the bound is evaluated
            with; 0 for the parameters themselves.
        clip: largest norm of q's gradient; None for no limit.
        adapt: whether q sees the samples of an encoder whitened, through units that cannot die.
        spread: smallest size of the noise on an x that is whitened, where 1 is the largest; None
            for no noise.
        in_place: whether the optimiser's state exists before the first fit, and statistics stay in
            the tensors that hold them now. A CUDA graph needs both.
        seed: of the negatives that `CLUBSample` draws.

    Attributes:
        learnt: parameters of q; empty if the conditional is known.
        optimizer: of those; None if there are none.
        fits: steps of q so far.
        moving: whether x and whether y come from an encoder, as far as the last call told.
        far_out: whether the last samples had values far out; on a GPU that is not looked at.
        batch: what the samples of this call make up, if they are parts of sequences.

    Example:
        >>> import mibounds as mb
        >>> alternation = Alternation(nn.ModuleList([mb.CLUB(3, 2)]), torch.optim.Adam)
        >>> x, y = torch.randn(64, 3, requires_grad=True), torch.randn(64, 2)
        >>> alternation.fit(x, y, steps=5)
        >>> alternation.evaluate(x, y).backward()
        >>> x.grad.shape, any(p.requires_grad for p in alternation.learnt)
        (torch.Size([64, 3]), False)
    """

    def __init__(
        self,
        estimators: nn.ModuleList,
        make_optimizer: OptimizerFactory,
        *,
        average: float = 0.0,
        clip: float | None = None,
        adapt: bool = False,
        spread: float | None = None,
        in_place: bool = False,
        seed: int = 0,
    ):
        if adapt:
            use_units_that_live(estimators)
        self.estimators, self.adapt, self.spread = estimators, adapt, spread
        self.moving = (False, False)
        self.batch: Group = None
        self.far_out = False
        self.average, self.clip, self.in_place = average, clip, in_place
        self.fits = 0
        self.learnt = [p for p in estimators.parameters() if p.requires_grad]
        check_learnable(self.learnt)
        for p in self.learnt:
            p.requires_grad_(False)
        self.optimizer = make_optimizer(self.learnt) if self.learnt else None
        if in_place and self.optimizer is not None:
            start_optimizer(self.optimizer)
        self._averages = [p.detach().clone() for p in self.learnt] if average else []
        self._fixed: list[dict[str, Tensor]] | None = None
        self._joined = False
        self._seed = seed
        self._generator: torch.Generator | None = None

    def check(self, x: Tensor, y: Tensor, given: Tensor | None = None) -> None:
        """Refuse samples that the estimators cannot take, before anything changes.

        Args:
            x: samples.
            y: samples.
            given: a third variable, if there is one.
        """
        check_shapes(x, y)
        for e, sides in zip(self.estimators, ((x, y), (y, x)), strict=False):
            part = getattr(e, "conditional", None) or getattr(e, "critic", None)
            if isinstance(part, Conditional):
                part.check_x(sides[0])
                part.check_y(sides[1])
            elif isinstance(part, Critic):
                part.check(*sides)

    # --- the first half: fit q -------------------------------------------------------------------

    def fit(
        self,
        x: Shaped[Tensor, "n *x"],
        y: Shaped[Tensor, "n *y"],
        steps: int,
        group: dist.ProcessGroup | None = None,
    ) -> None:
        """Take steps of q; what is evaluated next, is evaluated with q as it is then.

        Args:
            x: samples; they are detached.
            y: samples.
            steps: number of steps.
            group: processes whose batches are joined.
        """
        if not self.learnt:
            return
        if group is not None and not self._joined:
            self._join(x, group)
        self.take_steps(x.detach(), y.detach(), steps, group, self.in_place)
        self.fits += steps
        if self.average:
            self._update_averages()
        self._fixed = None

    def take_steps(
        self,
        x: Shaped[Tensor, "n *x"],
        y: Shaped[Tensor, "n *y"],
        steps: int,
        group: dist.ProcessGroup | None = None,
        in_place: bool = False,
    ) -> None:
        """Take steps of q and nothing else: what a CUDA graph can record of `fit`.

        In full precision, whatever surrounds the call.
        """
        statistics = self.statistics() if in_place else []
        with torch.enable_grad(), full_precision(x), self._learning():
            directions = list(self._directions(x, y, group, self.spread))
            for _ in range(steps):
                losses = [
                    e.learning_loss(*sides, group=self._joined_as(sides[0], group))
                    for e, sides in directions
                ]
                self._take_step(sum(losses[1:], losses[0]), group)
        put_back(statistics)

    def recordable(
        self,
        x: Shaped[Tensor, "n *x"],
        y: Shaped[Tensor, "n *y"],
        steps: int,
        given: Shaped[Tensor, "n *g"] | None = None,
    ) -> Float[Tensor, ""]:
        """A whole call, which writes only into tensors that stay where they are.

        Args:
            x: samples.
            y: samples.
            steps: steps of q.
            given: a third variable, for an estimator that takes one.

        Returns:
            The bound, whose gradient has to be taken before the next call.
        """
        self.take_steps(x.detach(), y.detach(), steps, in_place=True)
        with torch.enable_grad():
            return self.evaluate(x, y, given=given, copies=False, spread=True)

    def count_recorded(self, steps: int) -> None:
        """Count steps that a CUDA graph has taken."""
        self.fits += steps
        self._fixed = None  # copies of parameters that have changed since

    def _take_step(self, loss: Tensor, group: dist.ProcessGroup | None) -> None:
        """One step of the optimiser, unless the gradient is not finite."""
        assert self.optimizer is not None
        gradients = torch.autograd.grad(
            loss, self.learnt, allow_unused=True, materialize_grads=True
        )
        flat = torch.cat([g.flatten() for g in gradients])
        if group is not None:
            dist.all_reduce(flat, group=group)
            flat = flat / dist.get_world_size(group)
        norm = flat.norm()
        # A bad batch, such as an overflow in half precision, must not spoil q. A branch on the
        # value would stall a GPU: a gradient of zeros has nearly the same effect.
        if self.clip is None:
            flat = torch.where(norm - norm == 0, flat, 0.0)
        else:  # a share of 0 or NaN leaves nothing of any number
            share = self.clip / norm.clamp_min(self.clip)
            flat = torch.nan_to_num(flat * share, 0.0, 0.0, 0.0)
        for p, g in zip(self.learnt, flat.split([p.numel() for p in self.learnt]), strict=True):
            p.grad = g.view_as(p)
        with _capturable(self.optimizer, flat.is_cuda and torch.cuda.is_current_stream_capturing()):
            self.optimizer.step()
        for p in self.learnt:
            p.grad = None

    @contextmanager
    def _learning(self) -> Iterator[None]:
        """Estimators in training mode, with gradients for their parameters."""
        self.estimators.train()
        for p in self.learnt:
            p.requires_grad_(True)
        try:
            yield
        finally:
            self.estimators.eval()
            for p in self.learnt:
                p.requires_grad_(False)

    def _join(self, x: Tensor, group: dist.ProcessGroup) -> None:
        """Start on every process from the q of the first."""
        batch = Batch(len(x), group, x.device)
        with torch.no_grad():
            for value in (
                *self.estimators.parameters(), *self.estimators.buffers(), *self._averages
            ):  # fmt: skip
                value.copy_(batch.from_first(value))
        self._joined = True

    # --- the second half: evaluate the bound -----------------------------------------------------

    def evaluate(
        self,
        x: Shaped[Tensor, "n *x"],
        y: Shaped[Tensor, "n *y"],
        group: dist.ProcessGroup | None = None,
        given: Shaped[Tensor, "n *g"] | None = None,
        *,
        copies: bool = True,
        spread: bool = False,
    ) -> Float[Tensor, ""]:
        """The bound, with gradients to x and y but none to q.

        Args:
            x: samples.
            y: samples.
            group: processes whose batches are joined.
            given: a third variable, for an estimator that takes one.
            copies: whether to use copies of q's parameters, so that a later fit does not disturb
                the backward pass. A CUDA graph, which goes backwards at once, needs none.
            spread: whether q sees noise, as in training.

        Returns:
            The bound in nats.
        """
        qs = self._fixed_parameters() if copies else [{} for _ in self.estimators]
        values = []
        with full_precision(x), without_check():
            directions = self._directions(x, y, group, self.spread if spread else None)
            for (e, sides), q in zip(directions, qs, strict=True):
                options: dict[str, Any] = {"group": self._joined_as(sides[0], group)}
                if given is not None:
                    options["given"] = draw_in(given)
                if isinstance(e, CLUBSample):
                    options["seed"] = self.generator(x.device)
                values.append(functional_call(e, q, sides, options))
        return values[0] if len(values) == 1 else sum(values[1:], values[0]) / len(values)

    def _joined_as(self, x: Tensor, group: dist.ProcessGroup | None) -> Group:
        """The batch of these samples, unless earlier ones have been joined to them."""
        return self.batch if isinstance(self.batch, Batch) and self.batch.n == len(x) else group

    @torch.no_grad()
    def _update_averages(self) -> None:
        """Average q's parameters over the steps: at first the plain mean."""
        weight = 1 - min(self.average, self.fits / (10 + self.fits))
        self._averages = [
            torch.lerp(a, p, weight) for a, p in zip(self._averages, self.learnt, strict=True)
        ]

    def _fixed_parameters(self) -> list[dict[str, Tensor]]:
        """Copies of q's parameters, or their averages, by estimator and name; until the next fit.

        New tensors after each fit: a graph built with the old ones can still go backwards.
        """
        if self._fixed is None:
            values = self._averages or [p.detach().clone() for p in self.learnt]
            copies = {id(p): value for p, value in zip(self.learnt, values, strict=True)}
            self._fixed = [
                {name: copies[id(p)] for name, p in e.named_parameters() if id(p) in copies}
                for e in self.estimators
            ]
        return self._fixed

    def note_gradients(self, x: Tensor, y: Tensor) -> None:
        """Note which of x and y come from an encoder."""
        self.moving = (x.requires_grad, y.requires_grad)

    def _directions(
        self, x: Tensor, y: Tensor, group: dist.ProcessGroup | None, spread: float | None
    ) -> Iterator[tuple[Estimator, tuple[Tensor, Tensor]]]:
        """Each estimator with its two arguments, as q is to see them.

        Of two moving sides only the first is whitened: whitened too, the second would get a small
        gradient where its columns are large, and what is shared would stay.
        """
        q = getattr(self.estimators[0], "conditional", None)
        if self.learnt and isinstance(q, Conditional | None):  # a known one sees what there is
            x, y = self.draw_in(x, y)
        sides = tuple(zip((x, y), self.moving, strict=True))
        for e, (own, other) in zip(self.estimators, (sides, sides[::-1]), strict=False):
            assert isinstance(e, Estimator)
            other = other[0], other[1] and not own[1]
            yield e, (self._show(e, *own, group, spread), self._show(e, *other, group, None))

    def draw_in(self, *sides: Tensor) -> list[Tensor]:
        """Samples without values far out; notes whether there were any, where that is seen."""
        near = [draw_in(v) for v in sides]
        self.far_out = any(a is not b and a.is_cpu for a, b in zip(near, sides, strict=True))
        return near

    def _show(
        self,
        estimator: Estimator,
        values: Tensor,
        moving: bool,
        group: dist.ProcessGroup | None,
        spread: float | None,
    ) -> Tensor:
        """Samples as q is to see them."""
        adapts = moving and self._adapts(estimator)
        if not (adapts and values.ndim == 2 and values.is_floating_point()):
            return values
        batch = Batch(len(values), group, values.device)
        white = whiten(standardise_batch(values.to(self.learnt[0].dtype), batch), batch)
        if spread is None:
            return white
        noise = draw_noise(batch.size, white, spread, self.generator(white.device))[0]
        return white + batch.local(noise)

    def show(
        self, x: Shaped[Tensor, "n *x"], y: Shaped[Tensor, "n *y"]
    ) -> tuple[Shaped[Tensor, "n *x"], Shaped[Tensor, "n *y"]]:
        """Both sides as the q of the forward direction sees them, without noise.

        Args:
            x: samples.
            y: samples.
        """
        return next(sides for _, sides in self._directions(x, y, None, None))

    def _adapts(self, estimator: nn.Module) -> bool:
        """Whether an estimator has a q that is to see samples whitened."""
        q = getattr(estimator, "conditional", None)
        return self.adapt and bool(self.learnt) and isinstance(q, Conditional)

    # --- what a call writes, and the next one reads ----------------------------------------------

    @property
    def draws(self) -> bool:
        """Whether a call draws random numbers."""
        sides = zip(self.estimators, self.moving, strict=False)
        spreads = any(moving and self._adapts(e) for e, moving in sides)
        sampled = any(isinstance(e, CLUBSample) for e in self.estimators)
        return sampled or (spreads and self.spread is not None)

    def generator(self, device: torch.device) -> torch.Generator:
        """The source of the negatives on a device."""
        if self._generator is None or self._generator.device.type != device.type:
            self._generator = torch.Generator(device).manual_seed(self._seed)
        return self._generator

    def statistics(self) -> list[tuple[nn.Module, str, Tensor]]:
        """The buffers of the estimators, each with its module and its name there."""
        return [
            (module, name, buffer)
            for module in self.estimators.modules()
            for name, buffer in module.named_buffers(recurse=False)
        ]

    def written(self) -> list[Tensor]:
        """All tensors that a call writes and the next one reads."""
        buffers = (buffer for *_, buffer in self.statistics())
        return [*self.learnt, *buffers, *self.moments().values()]

    def moments(self) -> dict[str, Tensor]:
        """The optimiser's state, by parameter and name."""
        states = [] if self.optimizer is None else [self.optimizer.state[p] for p in self.learnt]
        return {
            f"moment {i} {name}": value
            for i, state in enumerate(states)
            for name, value in state.items()
            if isinstance(value, Tensor)
        }

    def state(self) -> dict[str, Any]:
        """What a checkpoint holds besides the parameters and buffers of the estimators."""
        device, generator = self._generator_state()
        return {
            "fits": self.fits,
            "optimizer": None if self.optimizer is None else self.optimizer.state_dict(),
            "averages": list(self._averages),
            "moving": self.moving,
            "device": device,
            "generator": generator,
        }

    def check_state(self, state: object) -> None:
        """Refuse a state of something else, without a change; see `load_state`."""
        fields = {"calls", "recent", *self.state()} - {"averages", "moving"}  # newer than others
        missing = sorted(fields - state.keys() if isinstance(state, dict) else fields)
        if missing or not isinstance(state, dict):
            raise ValueError(
                f"Expected the state of a penalty with {', '.join(sorted(fields))} but got none of "
                f"{', '.join(missing)}; make the penalty as the one that was saved."
            )
        averages = state.get("averages", [])
        recent, moving = state["recent"], state.get("moving", ())
        whole = {
            "calls": isinstance(state["calls"], int),
            "fits": isinstance(state["fits"], int),
            "recent": isinstance(recent, list | tuple) and all(map(_are_tensors, recent)),
            "averages": _are_tensors(averages),
            "moving": isinstance(moving, list | tuple),
            "device": isinstance(state["device"], str | None),
            "generator": state["generator"] is None or _are_bytes(state["generator"]),
        }
        if not all(whole.values()):
            raise ValueError(
                "Expected the whole state of a penalty but got one in which "
                f"{', '.join(name for name in whole if not whole[name])} is of another type; "
                "load another checkpoint."
            )
        if [v.shape for v in averages] != [v.shape for v in self._averages]:
            raise ValueError(
                f"Expected a checkpoint with {len(self._averages)} averages of q's parameters but "
                f"got {len(averages)}; pass the average= that the penalty was saved with."
            )
        if not self._can_continue(state["optimizer"]):
            raise ValueError(
                f"Expected the state of {type(self.optimizer).__name__} with {len(self.learnt)} "
                "parameters of the same shapes but got that of another optimiser; "
                "pass the estimator and the optimizer= that the penalty was saved with."
            )

    def _can_continue(self, state: Any) -> bool:
        """Whether a state is one of the optimiser; copies of it tell."""
        if self.optimizer is None or state is None:
            return self.optimizer is state
        usual, other = copy.deepcopy(self.optimizer), copy.deepcopy(self.optimizer)
        start_optimizer(usual)
        try:
            other.load_state_dict(copy.deepcopy(state))
        except (AttributeError, IndexError, KeyError, TypeError, ValueError):
            return False
        pairs = zip(usual.param_groups, other.param_groups, strict=True)
        kinds = zip(_kinds_of_moments(usual), _kinds_of_moments(other), strict=True)
        return all(a.keys() <= b.keys() for a, b in pairs) and all(b in ({}, a) for a, b in kinds)

    def load_state(self, state: dict[str, Any], device: torch.device) -> None:
        """Continue from a `state`, on a device."""
        self.fits = state["fits"]
        if self.optimizer is not None:
            self.optimizer.load_state_dict(state["optimizer"])
        self._averages = [
            new.to(own, copy=True)
            for own, new in zip(self._averages, state.get("averages", []), strict=True)
        ]
        self.moving = tuple(state.get("moving", (False, False)))
        same = state["device"] == device.type  # random numbers of a GPU differ from those of a CPU
        self._generator = _make_generator(state["device"], state["generator"]) if same else None
        self._fixed = None

    def move(self, convert: Callable[[Tensor], Tensor]) -> None:
        """Move or convert what hangs on the parameters after these have been."""
        if self.optimizer is not None:
            for p, state in self.optimizer.state.items():
                for name, value in state.items():
                    if isinstance(value, Tensor):
                        dtype = value.dtype if name == "step" else p.dtype
                        state[name] = value.to(p.device, dtype)
        self._averages = [convert(a) for a in self._averages]
        self._fixed = None

    def _generator_state(self) -> tuple[str | None, Tensor | None]:
        if self._generator is None:
            return None, None
        return self._generator.device.type, self._generator.get_state()

    def __getstate__(self) -> dict[str, Any]:
        """For copies and pickles, which get a generator of their own."""
        return {**self.__dict__, "_generator": self._generator_state()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update({**state, "_generator": _make_generator(*state["_generator"])})


def put_back(statistics: Sequence[tuple[nn.Module, str, Tensor]]) -> None:
    """Write statistics that were replaced into the tensors that held them before.

    ``learning_loss`` replaces statistics, and a CUDA graph reads them where they were.

    Args:
        statistics: from `Alternation.statistics`, before they were replaced.
    """
    with torch.no_grad():
        for module, name, place in statistics:
            now = getattr(module, name)
            if now is not place:
                setattr(module, name, place.copy_(now))


def start_optimizer(optimizer: Optimizer) -> None:
    """Make an optimiser's state exist before its first step, where a graph can find it.

    Example:
        >>> p = torch.nn.Parameter(torch.ones(2))
        >>> adam = torch.optim.Adam([p])
        >>> start_optimizer(adam)
        >>> adam.state[p].get("exp_avg"), adam.state[p].get("step")
        (tensor([0., 0.]), tensor(0.))
        >>> p.tolist()
        [1.0, 1.0]
    """
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    before = [p.detach().clone() for p in parameters]
    for p in parameters:
        p.grad = torch.zeros_like(p)
    optimizer.step()
    with torch.no_grad():
        for p, old in zip(parameters, before, strict=True):
            p.copy_(old)
            p.grad = None
            for value in optimizer.state[p].values():
                if isinstance(value, Tensor):
                    value.zero_()


def _are_bytes(value: object) -> bool:
    return isinstance(value, Tensor) and value.dtype == torch.uint8


def _are_tensors(values: object) -> bool:
    return isinstance(values, list | tuple) and all(isinstance(v, Tensor) for v in values)


def _kinds_of_moments(optimizer: Optimizer) -> list[dict[str, torch.Size]]:
    """The shapes of what an optimiser keeps of each parameter, by name."""
    return [
        {k: v.shape for k, v in optimizer.state.get(p, {}).items() if isinstance(v, Tensor)}
        for group in optimizer.param_groups
        for p in group["params"]
    ]


@contextmanager
def _capturable(optimizer: Optimizer, capturing: bool) -> Iterator[None]:
    """Tell an optimiser that a graph is being captured; outside of a capture it would warn."""
    groups = optimizer.param_groups if capturing else []
    for options in groups:
        options["capturable"] = True
    try:
        yield
    finally:
        for options in groups:
            options["capturable"] = False


def _make_generator(device: str | None, state: Tensor | None) -> torch.Generator | None:
    if device is None or state is None:
        return None
    generator = torch.Generator(device)
    generator.set_state(state.cpu())
    return generator
