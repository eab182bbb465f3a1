"""The penalty's own way to remove information: two witnesses, and a gate that both can open.

A game of an encoder against a critic leaves information behind, or creates it: the critic lags, and
the encoder runs away from it. So

- the *kernels* of a batch (`mibounds.minimise.dependence`) act at once, without anything learnt;
- a *classifier* (`mibounds.estimators.Ratio`) finds what they are too faint for. It is learnt from
  the rows of several batches, judged on each batch *before* it learns from it. Its gradient neither
  shifts nor stretches a column: that would change what the classifier sees, and no information;
- a *gate* (`mibounds.minimise.gates`) scales both by what is found: by the kernels, or by the
  classifier on batches that were new to it. Where nothing is found any more the penalty is silent:
  otherwise its noise would be what moves the encoder.

The value is what the classifier certifies on the new batch. The gradient is that of the sum.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.func import functional_call

from mibounds.estimators.cuda_graphs import Branch
from mibounds.estimators.ratio import Ratio
from mibounds.minimise.alternation import Alternation, OptimizerFactory, put_back
from mibounds.minimise.dependence import keep_scale, kernel_nats
from mibounds.minimise.gates import Gate
from mibounds.minimise.memory import Memory
from mibounds.samples.checks import check_pair, check_shapes
from mibounds.samples.precision import full_precision

if TYPE_CHECKING:
    from collections.abc import Callable

    from jaxtyping import Float, Shaped

Row = tuple[Tensor, Tensor, Tensor | None]  # x, y, given of a batch

KERNELS = 8.0  # weight of the kernels beside the classifier
MOST = 1024  # samples that the kernels compare


class Removal(Alternation):
    """Learns a `Ratio`, and evaluates what the encoder is to minimise.

    Args:
        estimator: the classifier.
        make_optimizer: from its parameters to the optimiser that fits it.
        clip: largest norm of its gradient.
        memory: number of batches that it learns from.
        maximise: whether the information is to grow: the classifier alone then, without a gate.
        seed: of its noise and its negatives.

    Example:
        >>> removal = Removal(Ratio(3, 2), torch.optim.Adam)
        >>> x, y = torch.randn(64, 3, requires_grad=True), torch.randn(64, 2)
        >>> removal.step(x, y, steps=5).backward()
        >>> x.grad.shape
        torch.Size([64, 3])
    """

    def __init__(
        self,
        estimator: Ratio,
        make_optimizer: OptimizerFactory,
        *,
        clip: float | None = 10.0,
        memory: int = 8,
        maximise: bool = False,
        seed: int = 0,
    ):
        super().__init__(nn.ModuleList([estimator]), make_optimizer, clip=clip, seed=seed)
        self.estimator, self.maximise = estimator, maximise
        self.memory = Memory(batches=memory)
        self.gate = Gate(2)  # for the kernels, and for the classifier

    def check(self, x: Tensor, y: Tensor, given: Tensor | None = None) -> None:
        """Refuse samples that the classifier cannot take, before anything changes."""
        check_shapes(x, y)
        self.estimator.check(x, y, given)

    def step(
        self,
        x: Shaped[Tensor, "n *x"],
        y: Shaped[Tensor, "n *y"],
        steps: int,
        group: dist.ProcessGroup | None = None,
        given: Shaped[Tensor, "n *g"] | None = None,
    ) -> Float[Tensor, ""]:
        """Judge a batch, then learn from it.

        Args:
            x: samples.
            y: samples or labels.
            steps: steps of the classifier.
            group: processes whose batches are joined: each of them learns from the joined batch.
            given: the third variable, if there is one.

        Returns:
            The value in nats, with the gradient to minimise; to maximise with ``maximise``.
        """
        with full_precision(x):
            x, y, given = self._gather(x, y, given, group)
            self.estimator.noisy = int(y.requires_grad and not x.requires_grad)
            self._fixed_parameters()  # copies, so that learning need not wait until it is judged
            branch = Branch(x.device)
            value = self._judge(x, y, given)
            with branch:
                self._remember(x, y, given)
                self._learn(len(x), steps)
            branch.join()
        self.fits += steps
        return value

    def learn(
        self,
        x: Shaped[Tensor, "n *x"],
        y: Shaped[Tensor, "n *y"],
        steps: int,
        group: dist.ProcessGroup | None = None,
        given: Shaped[Tensor, "n *g"] | None = None,
    ) -> None:
        """Only learn from a batch; see `step`."""
        with full_precision(x):
            x, y, given = self._gather(x.detach(), y.detach(), given, group)
            self._remember(x, y, given)
        self._learn(len(x), steps)
        self.fits += steps

    def recordable(
        self,
        x: Shaped[Tensor, "n *x"],
        y: Shaped[Tensor, "n *y"],
        steps: int,
        given: Shaped[Tensor, "n *g"] | None = None,
    ) -> Float[Tensor, ""]:
        """A `step` that writes only into tensors that stay where they are."""
        statistics, fits = self.statistics(), self.fits
        with torch.enable_grad():
            value = self.step(x, y, steps, given=given)
        put_back(statistics)
        self.fits = fits  # counted where the recorded call is run
        return value

    def _gather(
        self, x: Tensor, y: Tensor, given: Tensor | None, group: dist.ProcessGroup | None
    ) -> Row:
        """Checked samples, of all processes."""
        batch = check_pair(x, y, group)
        sides = [v for v in self.estimator.check(x, y, given) if v is not None]
        if group is not None and not self._joined:
            self._join(x, group)
        if self.gate.means.device != x.device:
            self.move(lambda v: v.to(x.device))
        x, y, *third = self.draw_in(*(batch.gather(v) for v in sides))
        return x, y, third[0] if third else None

    # --- judge ------------------------------------------------------------------------------------

    def _judge(self, x: Tensor, y: Tensor, given: Tensor | None) -> Tensor:
        """What two witnesses say of a batch that is new to both."""
        generator, branch = self.generator(x.device), Branch(x.device)
        sides = self.estimator.standardise(x, y, given)
        x_side, y_side = (keep_scale(v) if v.requires_grad else v for v in sides[:2])
        blurred = self.estimator.blur(x_side, y_side, generator)
        fixed = {f"ratio.{name}": value for name, value in self._fixed_parameters()[0].items()}
        pairs = (*blurred[:2], sides[2], blurred[2])
        own, descent = functional_call(_Views(self.estimator), fixed, pairs)
        if self.maximise:
            return own.mean()
        # Taken outside of the branch: the gradient of x then comes from the stream where x is.
        some: Any = [None if v is None else v[:MOST] for v in (x, y, given)]
        with branch:
            kernels = kernel_nats(*some)
        branch.join()
        value, known = self.estimator.judge(own.detach(), *blurred, sides[2], generator)
        gate = self.gate(torch.stack([kernels.detach(), known]))
        loss = gate * (KERNELS * kernels + descent.mean())
        return value + (loss - loss.detach())

    # --- learn ------------------------------------------------------------------------------------

    @torch.no_grad()
    def _remember(self, x: Tensor, y: Tensor, given: Tensor | None) -> None:
        """Keep a batch to learn from; what is not finite is no sample."""
        x, y, given = (None if v is None else _finite(v) for v in (x, y, given))  # pyright: ignore
        self.estimator.observe(x, y, given)
        self.memory.add(x, y, given)

    def _learn(self, n: int, steps: int) -> None:
        """Take steps of the classifier, each from rows of all batches that are kept."""
        ratio, generator = self.estimator, self.generator(self.gate.means.device)
        rows: Any = self.memory.sample(n * steps, generator)
        x, y, given = ratio.standardise(*rows)
        x, y, size = ratio.blur(x, y, generator)
        if ratio.labels or given is not None:
            sides: Any = (x, y, size, given)
            parts = ([None] * steps if v is None else v.split(n) for v in sides)
            losses = [partial(ratio.losses, *part, generator) for part in zip(*parts, strict=True)]
        else:
            pairs = ratio.pairs(x, y, size, generator=generator, shuffled=True)
            losses = [partial(ratio.losses_of_pairs, part) for part in pairs.split(n)]
        with torch.enable_grad(), full_precision(self.gate.means), self._learning():
            for loss in losses:
                self._take_step(loss().mean(), None)
        self._fixed = None

    # --- what is kept -----------------------------------------------------------------------------

    @property
    def draws(self) -> bool:
        """Whether an evaluation draws random numbers."""
        return True

    def written(self) -> list[Tensor]:
        """All tensors that a call writes and the next one reads."""
        return [*super().written(), *self.gate.tensors(), *self.memory.tensors()]

    def state(self) -> dict[str, Any]:
        """What a checkpoint holds besides the parameters and buffers of the estimator."""
        return {**super().state(), "gate": self.gate.state(), "memory": self.memory.state()}

    def check_state(self, state: object) -> None:
        """Refuse a state of something else, without a change; see `load_state`."""
        super().check_state(state)
        assert isinstance(state, dict)
        if not (self.gate.fits(state["gate"]) and self.memory.fits(state["memory"])):
            raise ValueError(
                "Expected the state of a penalty with a gate of two witnesses and a memory of "
                "samples but got one in which they are damaged; load another checkpoint."
            )

    def load_state(self, state: dict[str, Any], device: torch.device) -> None:
        """Continue from a `state`, on a device."""
        super().load_state(state, device)
        self.gate.load_state(state["gate"], device)
        self.memory.load_state(state["memory"], device)

    def move(self, convert: Callable[[Tensor], Tensor]) -> None:
        """Move or convert what hangs on the parameters after these have been."""
        super().move(convert)
        self.gate.move(convert)
        self.memory.move(convert)


class _Views(nn.Module):
    """What a `Ratio` says of pairs, as the forward of a module, for `functional_call`."""

    def __init__(self, estimator: Ratio):
        super().__init__()
        self.ratio = estimator

    def forward(self, *pairs: Tensor | None) -> tuple[Tensor, Tensor]:
        x, y, given, size = pairs
        assert x is not None
        assert y is not None
        own = self.ratio.log_ratios(x, y, given, size)
        return own, self.ratio.descent(x, y, given, size) if self.ratio.labels else own


def _finite(values: Tensor) -> Tensor:
    values = values.detach()
    if not values.is_floating_point():
        return values
    return torch.nan_to_num(values, 0.0, 0.0, 0.0)
