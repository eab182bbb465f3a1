"""Exit 2 of the flow, a loss: mutual information as a term in any training loop.

`MIPenalty` is one line, with a weight, a warm-up, health checks and recorded calls. What it
minimises is its own (`mibounds.minimise.removal`), or a bound (`mibounds.minimise.alternation`).

The penalty lives beside the user's model, not inside it. Inside, its parameters would turn up in
``model.parameters()``, in weight decay and gradient clipping, in the buckets of
DistributedDataParallel, in the checkpoints of the deployed model; and ``model.eval()`` for one
validation batch would decide whether q is fitted.

Reference: Cheng et al. 2020, Algorithm 1 and section 3.3.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._C._functorch import is_functorch_wrapped_tensor
from torch.optim import Optimizer

from mibounds.conditionals import Bernoulli
from mibounds.estimators.base import Estimator, check_estimator
from mibounds.estimators.ratio import Ratio
from mibounds.measure.estimation import Estimate, estimate
from mibounds.minimise._faults import QUIET, SLACK, Facts
from mibounds.minimise._recorded_calls import RecordedCalls
from mibounds.minimise._settings import (
    check_capturable,
    check_removal,
    check_seed,
    check_settings,
    check_weight,
    make_estimator,
)
from mibounds.minimise.alternation import Alternation, OptimizerFactory
from mibounds.minimise.health import (
    PenaltyReport,
    check_side,
    collect_facts,
    count_labels,
    summarise,
)
from mibounds.minimise.removal import Removal
from mibounds.minimise.second_opinions import SecondOpinions
from mibounds.samples.checks import Group, check_tensor
from mibounds.samples.layouts import Layout, lay_out
from mibounds.samples.precision import full_precision

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Shaped

__all__ = ["MIPenalty", "PenaltyWarning"]

RATE = 6e-4  # of the Adam that fits q
RATE_OF_RATIO, DECAY, CLIP = 1e-3, 0.1, 10.0  # of the AdamW that fits a classifier
MEMORY = 8  # batches that a classifier learns from
WINDOW = 100  # values of the bound that a report averages


class PenaltyWarning(UserWarning):
    """A reason to distrust the value of a penalty, or the way it is used.

    Example:
        >>> import warnings
        >>> import mibounds as mb
        >>> with warnings.catch_warnings():
        ...     warnings.simplefilter("ignore", PenaltyWarning)
        ...     penalty = mb.MIPenalty(mb.InfoNCE(3, 2))  # a lower bound
    """


class MIPenalty(nn.Module):
    """Mutual information as a penalty: learns from the batch, then returns what to minimise.

    ``MIPenalty(x_dim, y_dim)``, or ``MIPenalty(x_dim, labels=k)`` where y is a label, needs no
    other choice (`mibounds.minimise.removal`). ``MIPenalty(mb.CLUB(x_dim, y_dim))`` is Algorithm 1
    of the CLUB paper with a bound of your own choice (`mibounds.minimise.alternation`).

    In training mode each call fits; in evaluation mode it only evaluates. Put it beside the
    model, not into it, and save its ``state_dict()`` with the model's: it includes the optimiser,
    the replay and the random numbers, so that a resumed run continues as if it had never stopped.

    Reference: Cheng et al. 2020, Algorithm 1; Yu et al. 2026, section 3 (the spread classifier).

    Args:
        estimator: columns of x; or a bound with q(y|x) or a critic to fit, or with a known
            conditional. A module passed to it as ``conditional`` counts as q and is fitted; pass a
            known one that is a module as a plain function (``encoder.forward``).
        y_dim: columns of y, with columns of x.
        labels: instead of ``y_dim``, number of values of y, the integers 0, 1, ...; a sequence for
            several labels at once, one column each.
        given_dim: columns of a real third variable: what x and y share given it is minimised, and
            every call takes ``given=``.
        given_labels: number of values of a third variable that is a label.
        maximise: whether the information is to grow: the penalty is then minus the value. An
            upper bound is refused.
        backward: an estimator of the other direction, called with (y, x). The penalty is then the
            mean of the two.
        lr: learning rate of the Adam that fits q; if left out 6e-4 for a bound, 1e-3 without one.
        inner_steps: steps of q per call.
        warmup: number of first calls that only fit q; the penalty is 0 meanwhile.
        weight: factor of the bound, or a function from the number of the call to the factor.
        replay: number of earlier batches that are kept, to fit q to them too; without a bound 8.
        average: weight of the past in an average of q's parameters that the bound is evaluated
            with, such as 0.9, for a calmer value; 0 for the parameters themselves.
        clip: largest norm of the gradient that q is fitted with; None for no limit, or without a
            bound for 10. The encoder's gradient is never clipped here: do that where it has its
            final scale.
        clamp: whether to report a value below zero as zero. The gradient stays that of the bound.
        adapt: whether q sees the samples of an encoder whitened by the batch, through SiLU units in
            place of ReLU, which can die; False for the estimator as it is.
        spread: in training q also sees noise on an x of an encoder, of a random size between this
            many standard deviations and one; None for no noise. The value is that of noisy samples.
        optimizer: from a list of parameters to an optimiser, instead of Adam with ``lr``.
        graph: whether to record calls as CUDA graphs, which on a GPU removes most of their cost;
            None for wherever that is possible. Second derivatives need False.
        check_every: calls between two health checks (`report`), which cost a little, and on a GPU
            a wait; 0 for never.
        seed: of all random numbers, and of the first parameters of what is made of dimensions; an
            estimator that is passed has its own.
        capturable: whether a call writes only into tensors that stay where they are (`tensors`), so
            that you can capture a whole training step in a CUDA graph of your own. Runs of that
            graph do not change what Python counts: ``calls`` and `report` stand still.

    Attributes:
        calls: calls in training mode so far.
        alternation: what fits q and evaluates the bound.
        recorded_calls: the calls that are recorded as CUDA graphs.

    Example:
        >>> import mibounds as mb
        >>> encoder = torch.nn.Linear(8, 3)
        >>> penalty = mb.MIPenalty(3, 2)
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
        estimator: Estimator | int,
        y_dim: int | None = None,
        *,
        labels: int | Sequence[int] | None = None,
        given_dim: int = 0,
        given_labels: int = 0,
        maximise: bool = False,
        backward: Estimator | None = None,
        lr: float | None = None,
        inner_steps: int = 5,
        warmup: int = 0,
        weight: float | Callable[[int], float] = 1.0,
        replay: int = 0,
        average: float = 0.0,
        clip: float | None = None,
        clamp: bool = False,
        adapt: bool = True,
        spread: float | None = 0.01,
        optimizer: OptimizerFactory | None = None,
        graph: bool | None = None,
        check_every: int = 200,
        seed: int = 0,
        capturable: bool = False,
    ):
        super().__init__()
        seed = check_seed(seed)
        forward = make_estimator(estimator, y_dim, labels, given_dim, given_labels, spread, seed)
        both = [forward]
        if backward is not None:
            both.append(check_estimator("backward", backward))
        removes = isinstance(forward, Ratio)
        if lr is None:
            lr = RATE_OF_RATIO if removes else RATE
        check_settings(lr, inner_steps, warmup, weight, replay, average, clip, check_every, spread)
        if capturable:
            check_capturable(warmup, replay, average, graph, weight)
            graph, check_every = False, 0
        self.estimators = nn.ModuleList(both)
        if isinstance(forward, Ratio):
            check_removal(backward, average, capturable)
            self.alternation: Alternation = Removal(
                forward,
                optimizer or partial(torch.optim.AdamW, lr=lr, weight_decay=DECAY, fused=True),
                clip=clip or CLIP,
                memory=replay or MEMORY,
                maximise=maximise,
                seed=seed,
            )
        else:
            self.alternation = Alternation(
                self.estimators,
                optimizer or partial(torch.optim.Adam, lr=lr, fused=True),
                average=average,
                clip=clip,
                adapt=adapt,
                spread=spread,
                in_place=capturable,
                seed=seed,
            )
        self.maximise = maximise
        self.inner_steps, self.warmup, self.weight = inner_steps, warmup, weight
        self.replay, self.clamp, self.check_every = replay, clamp, check_every
        self.capturable = capturable
        self.calls = 0
        self.register_buffer("values", torch.full((WINDOW,), torch.nan))
        self.register_buffer("spread", torch.full((2,), torch.nan))
        self._earlier: list[tuple[Tensor, Tensor]] = []  # batches
        plain = optimizer is None and (removes or not (replay or average))
        self.recorded_calls = RecordedCalls(self.alternation, graph, plain)
        self._opinions = SecondOpinions(check_every)
        self._side = check_side(both, maximise)
        self._facts: Facts | None = None
        self._report = PenaltyReport(warnings=self._side)
        for advice in self._side:
            warnings.warn(str(advice), PenaltyWarning, stacklevel=2)
        self.register_load_state_dict_pre_hook(_find_averages)
        self.register_load_state_dict_pre_hook(_check_state)

    @property
    def estimator(self) -> Estimator:
        """The estimator of the forward direction."""
        return self.estimators[0]  # pyright: ignore[reportReturnType]

    @property
    def optimizer(self) -> Optimizer | None:
        """The optimiser of q; None if there is nothing to fit."""
        return self.alternation.optimizer

    @property
    def fits(self) -> int:
        """Steps of q so far."""
        return self.alternation.fits

    @property
    def generator(self) -> torch.Generator:
        """The source of `CLUBSample`'s negatives, to register it with a graph or to reseed it."""
        return self.alternation.generator(self.values.device)

    def tensors(self) -> dict[str, Tensor]:
        """All that a call writes and the next one reads, by name; for ``capturable=True``.

        The tensors themselves, not copies: a graph has to restore them after trial runs.

        Example:
            >>> import mibounds as mb
            >>> names = mb.MIPenalty(mb.CLUB(3, 2, 4), capturable=True).tensors()
            >>> "moment 0 exp_avg" in names
            True
        """
        own = {**dict(self.named_parameters()), **dict(self.named_buffers())}
        return own | self.alternation.moments()

    def forward(
        self,
        x: Shaped[Tensor, "n *x"],
        y: Shaped[Tensor, "n *y"],
        *,
        given: Shaped[Tensor, "n *g"] | None = None,
        mask: Bool[Tensor, "batch time"] | None = None,
        group: dist.ProcessGroup | None = None,
    ) -> Float[Tensor, ""]:
        """Fit q (in training mode), then return the bound times its weight.

        Args:
            x: samples, (n, x_dim), or sequences of them, (batch, time, x_dim), or one sample for
                each sequence of y.
            y: as many samples or labels.
            given: a third variable, for what is shared given it; see ``given_dim``.
            mask: True for the samples that count, (batch, time); padding is left out.
            group: processes whose batches are joined, see `mibounds.samples.batches`.

        Returns:
            The penalty in nats, to be added to a loss.
        """
        if torch.compiler.is_compiling():  # the fit cannot be part of a compiled graph
            eager: Any = torch.compiler.disable(self._penalise)
            return eager(x, y, given, mask, group)
        return self._penalise(x, y, given, mask, group)

    def _penalise(
        self,
        x: Tensor,
        y: Tensor,
        given: Tensor | None,
        mask: Tensor | None,
        group: dist.ProcessGroup | None,
    ) -> Tensor:
        given = self._lay_out_given(x, given, mask)
        rows = self._lay_out(x, y, mask, group)
        if rows.samples < 2 and self.training and rows.group is None:
            return self.estimator.pass_over(rows)
        x, y = rows.x, rows.y
        self.alternation.batch = rows.group if rows.group is not group else None
        weight = 0.0 if self.calls < self.warmup else self.weight
        if callable(weight):
            weight = weight(self.calls)
            check_weight(weight)
        fitting = self.training and not torch.is_inference_mode_enabled()
        if fitting and any(is_functorch_wrapped_tensor(v) for v in (x, y)):
            raise ValueError(
                "Expected samples outside of torch.func while a penalty learns but got some within "
                "its grad or vmap; call loss.backward() or torch.autograd.grad, or penalty.eval()."
            )
        due = fitting and self.check_every and (self.calls + 1) % self.check_every == 0
        value = None
        self.alternation.check(x, y, given)
        if fitting:
            if torch.is_grad_enabled():
                self.alternation.note_gradients(x, y)
            self._opinions.keep(x, y, given)
            if due and self._opinions.is_due(self.calls + 1):
                self._opinions.refresh(self.calls + 1)
            if due:  # before the fit, while q has not seen this batch
                attached = x.requires_grad or y.requires_grad or not self.alternation.learnt
                self._check_health(x, y, attached or not torch.is_grad_enabled())
            whole = self.alternation.batch is None
            recorded = whole and self.recorded_calls.find(x, y, self.inner_steps, group, given)
            if recorded:
                value = recorded(x, y, given)
            elif isinstance(self.alternation, Removal):
                value = self.alternation.step(x, y, self.inner_steps, group, given)
            else:
                self._fit(x, y, self.inner_steps, group)
            self.calls += 1
        if weight == 0 and self.alternation.learnt:
            return _zero(x, y)
        if value is None:
            value = self.alternation.evaluate(x, y, group, given, spread=fitting)
        if fitting:
            self.values[(self.calls - 1) % WINDOW] = value.detach()
        odd = fitting and self.check_every and not (due or x.is_cuda)
        if odd and (self.alternation.far_out or not self._is_possible(value)):
            self._check_health(x, y)  # at once, where reading the value stalls no GPU
        if self.clamp:
            value = value + (value.clamp_min(0) - value).detach()
        if self.maximise:
            value = -value
        return value if weight == 1 else weight * value

    def bound(
        self,
        x: Shaped[Tensor, "n *x"],
        y: Shaped[Tensor, "n *y"],
        *,
        given: Shaped[Tensor, "n *g"] | None = None,
        mask: Bool[Tensor, "batch time"] | None = None,
        group: dist.ProcessGroup | None = None,
    ) -> Float[Tensor, ""]:
        """Only the bound, in nats: no fit, weight or clamp. Gradients reach x and y, but not q."""
        given = self._lay_out_given(x, given, mask)
        rows = self._lay_out(x, y, mask, group)
        self.alternation.check(rows.x, rows.y, given)
        self.alternation.batch = rows.group if rows.group is not group else None
        return self.alternation.evaluate(rows.x, rows.y, group, given)

    def fit(
        self,
        x: Shaped[Tensor, "n *x"],
        y: Shaped[Tensor, "n *y"],
        *,
        steps: int | None = None,
        given: Shaped[Tensor, "n *g"] | None = None,
        mask: Bool[Tensor, "batch time"] | None = None,
        group: dist.ProcessGroup | None = None,
    ) -> None:
        """Only fit q, at other times than the penalty's own.

        Args:
            x: samples, as in `forward`; they are detached.
            y: samples.
            steps: steps of q; ``inner_steps`` if left out.
            given: a third variable, as in `forward`.
            mask: True for the samples that count.
            group: processes whose batches are joined.
        """
        steps = self.inner_steps if steps is None else steps
        given = self._lay_out_given(x, given, mask)
        rows = self._lay_out(x, y, mask, group)
        x, y = rows.x, rows.y
        self.alternation.check(x, y, given)
        self.alternation.batch = rows.group if rows.group is not group else None
        if isinstance(self.alternation, Removal):
            self.alternation.learn(x, y, steps, group, given)
        else:
            self._fit(x, y, steps, group)

    def audit(
        self,
        x: Shaped[Tensor, "n *x"],
        y: Shaped[Tensor, "n *y"],
        *,
        mask: Bool[Tensor, "batch time"] | None = None,
        **options: Any,
    ) -> Estimate:
        """Is it really gone? A fresh and stronger estimate, from samples that q was not fitted to.

        A Gaussian q that says zero may be blind to what is left, or lag behind the encoder.
        [`mibounds.estimate`][] starts from scratch and evaluates every row with models that have
        not seen it.

        Args:
            x: held-out samples, as many as you have.
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
        x, y = self._lay_out(x, y, mask)[:2]
        discrete = isinstance(getattr(self.estimator, "conditional", None), Bernoulli)
        if discrete or count_labels(self.estimator):
            options.setdefault("y_kinds", "discrete")
        x, y = (v.detach().flatten(1) if v.ndim > 2 else v.detach() for v in (x, y))
        return estimate(x.cpu(), y.cpu(), **options)

    def report(
        self,
        x: Shaped[Tensor, "n *x"] | None = None,
        y: Shaped[Tensor, "n *y"] | None = None,
        *,
        given: Shaped[Tensor, "n *g"] | None = None,
    ) -> PenaltyReport:
        """Whether the value means anything: the last health check, with a remedy for each fault.

        Fresh models judge what is left: at most once in ``check_every`` calls on rows of the last
        batches, or on the samples that are passed. These come from one encoder, while that of the
        last batches kept moving: so they show more. Pass some thousand at the end of a training.

        Args:
            x: samples to check now, which q has not seen; if left out, the last check counts.
            y: samples, with x.
            given: a third variable, with x.

        Returns:
            The report; ``print`` it.
        """
        if x is not None and y is not None:
            given = self._lay_out_given(x, given, None)
            x, y = self._lay_out(x, y, None)[:2]
            self._opinions.judge(x, y, given, self.calls)
            self._check(x, y)
            return self._report
        self._opinions.refresh(self.calls)
        if self._facts is not None and self._opinions.asked == self.calls:
            self._summarise()
        return self._report

    # --- the parts of a call ---------------------------------------------------------------------

    def _lay_out(self, x: Tensor, y: Tensor, mask: Tensor | None, group: Group = None) -> Layout:
        """One sample per row; a known conditional may take sequences as they are."""
        flat, apart = bool(self.alternation.learnt), self.estimator.apart
        return lay_out(x, y, mask, None, group, flat=flat, apart=apart)

    def _lay_out_given(self, x: Tensor, given: Tensor | None, mask: Tensor | None) -> Tensor | None:
        """The third variable, a row for each row of x and y."""
        if given is None:
            return None
        check_tensor("given", given)
        if not isinstance(self.alternation, Removal):
            raise ValueError(
                "Expected given= with an estimator that has a third variable but got "
                f"{type(self.estimator).__name__}; make the penalty as "
                "mb.MIPenalty(x_dim, y_dim, given_dim=...) or (..., given_labels=...)."
            )
        return self._lay_out(x, given, mask)[1]

    def _fit(self, x: Tensor, y: Tensor, steps: int, group: dist.ProcessGroup | None) -> None:
        """Fit q to a batch, and to the earlier ones that are kept."""
        if self.replay and self.alternation.learnt:
            batches = [*self._earlier, (x.detach(), y.detach())]
            self._earlier = batches[-self.replay :]
            x, y = (torch.cat(side) for side in zip(*batches, strict=True))
        self.alternation.fit(x, y, steps, group)

    def _is_possible(self, value: Tensor) -> bool:
        """Whether a value can be one of mutual information, as far as the last check told."""
        if any(advice.code == "above-entropy" for advice in self._report.warnings):
            return bool(value.isfinite())
        labels = count_labels(self.estimator)
        most = math.log(labels) if labels else math.inf
        return bool(value.isfinite() & (value <= most + SLACK))

    def _check_health(self, x: Tensor, y: Tensor, attached: bool = True) -> None:
        """Check, and warn of the faults that the last check did not find."""
        before = {*QUIET, *(advice.code for advice in self._report.warnings)}
        self._check(x, y, attached)
        for advice in self._report.warnings:
            if advice.code not in before:  # the warning points at who called the penalty
                warnings.warn(str(advice), PenaltyWarning, stacklevel=6)

    def _check(self, x: Tensor, y: Tensor, attached: bool = True) -> None:
        x, y = x.detach(), y.detach()
        with full_precision(x):
            shown = self.alternation.show(x, y)
            facts = collect_facts(self.estimator, x, y, shown, self.spread)
        self._facts = replace(facts, detached=not attached)
        if self._facts.spread is not None and not self.spread.isfinite().all():
            self.spread = self.spread.new_tensor(self._facts.spread)
        self._summarise()

    def _summarise(self) -> None:
        assert self._facts is not None
        latest = self.values[(self.calls - 1) % WINDOW].item()
        found = summarise(self._facts, self.values, latest, self.calls, self._opinions.last)
        self._report = replace(found, warnings=(*self._side, *found.warnings))

    # --- what a state_dict holds besides parameters and buffers -----------------------------------

    def get_extra_state(self) -> dict[str, Any]:
        """Counts, optimiser, averages, replay and random numbers, for ``state_dict``."""
        return {"calls": self.calls, "recent": list(self._earlier), **self.alternation.state()}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Continue from a ``state_dict``."""
        device = self.values.device
        self.calls = state["calls"]
        self._earlier = [(x.to(device), y.to(device)) for x, y in state["recent"]]
        self.alternation.load_state(state, device)
        self.recorded_calls.clear()

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> MIPenalty:
        """Move or convert everything, including the optimiser's state and the replay."""
        super()._apply(fn, recurse)
        self.alternation.move(fn)
        self._earlier = [(fn(x), fn(y)) for x, y in self._earlier]
        self.recorded_calls.clear()
        return self


def _find_averages(_: nn.Module, state: dict[str, Any], prefix: str, *__: object) -> None:
    """Read a checkpoint from when the averages of q's parameters were buffers."""
    names = [f"{prefix}average_{i}" for i in range(len(state))]
    found = [state.pop(name) for name in names if name in state]
    if found:
        key = f"{prefix}_extra_state"
        state[key] = {**state[key], "averages": found}


def _check_state(penalty: nn.Module, state: dict[str, Any], prefix: str, *_: object) -> None:
    """Refuse a state that does not fit before any of it is loaded.

    Where there is nothing of a penalty, as in the checkpoint of a model alone, torch decides.
    """
    assert isinstance(penalty, MIPenalty)
    own = {k: v for k, v in penalty.state_dict().items() if isinstance(v, Tensor)}
    new = {k.removeprefix(prefix): v for k, v in state.items() if k.startswith(prefix)}
    if not new:
        return
    extra = new.pop("_extra_state", None)
    if own.keys() != new.keys() or extra is None:
        wrong = [*sorted(own.keys() ^ new.keys()), "_extra_state"]
        raise ValueError(
            "Expected the state of a penalty with the same estimator and settings but got one "
            f"where {wrong[0]} is too much or missing; make the penalty as the one that was saved."
        )
    for name, value in new.items():
        if getattr(value, "shape", None) != own[name].shape:
            raise ValueError(
                f"Expected {name} of shape {tuple(own[name].shape)} in the state of a penalty but "
                f"got {tuple(getattr(value, 'shape', ()))}; make the penalty with the sizes that it"
                " was saved with."
            )
    learnt = dict(penalty.named_parameters())
    for name, value in new.items():
        lost = ~value.isfinite() if name.startswith("estimators.") else value.new_zeros(1).bool()
        if lost.any() and (name in learnt or value.ndim):  # an average of nothing yet is NaN
            raise ValueError(
                f"Expected finite numbers in {name} in the state of a penalty but got NaN or "
                "infinity; load the state of an earlier step."
            )
    penalty.alternation.check_state(extra)


def _zero(x: Tensor, y: Tensor) -> Tensor:
    """Zero that depends on x and y, so that every parameter of the encoder gets a gradient."""
    parts = [v.sum() * 0 for v in (x, y) if v.is_floating_point()]
    return sum(parts[1:], parts[0])
