"""Fit an estimator's conditional or critic to samples."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from numbers import Real
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import torch
from torch import Tensor

from mibounds.estimators.ratio import Ratio
from mibounds.samples.checks import check_finite, check_pair, check_size
from mibounds.samples.precision import undisturbed
from mibounds.samples.seeds import Seed, make_generator

if TYPE_CHECKING:
    from jaxtyping import Float, Shaped

__all__ = ["fit"]

CHECK_EVERY = 25  # steps between two evaluations on held-out samples
AVERAGE = 0.98  # weight of the past in the averaged parameters that are evaluated


@runtime_checkable
class Learner(Protocol):
    """A module with a loss to minimise."""

    training: bool

    def learning_loss(self, x: Tensor, y: Tensor) -> Float[Tensor, ""]: ...
    def parameters(self) -> Iterator[torch.nn.Parameter]: ...
    def buffers(self) -> Iterator[Tensor]: ...
    def train(self, mode: bool = True) -> object: ...


@undisturbed
@torch.enable_grad()  # even if the caller, about to evaluate something, has turned it off
def fit(
    estimator: Learner,
    x: Shaped[Tensor, "n *x"],
    y: Shaped[Tensor, "n *y"],
    *,
    steps: int = 1000,
    batch_size: int = 128,
    lr: float = 3e-3,
    seed: Seed = None,
    on_step: Callable[[int, float], None] | None = None,
    held_out: tuple[Tensor, Tensor] | None = None,
    patience: int = 300,
    to_beat: float = math.inf,
    on_check: Callable[[int, float, float], None] | None = None,
) -> list[float]:
    """Fit an estimator's conditional or critic by Adam on random batches.

    The learning rate falls to zero along a cosine. Evaluate the fitted estimator on *other* samples
    than these. An estimator with nothing to learn is left as it is.

    With held-out samples the fit stops early: every 25 steps it evaluates the learning loss of the
    averaged parameters on them, and in the end it keeps the parameters with the lowest.

    Args:
        estimator: what to fit, in place; it is in training mode meanwhile.
        x: samples.
        y: samples.
        steps: number of batches.
        batch_size: samples per batch.
        lr: learning rate at the start.
        seed: of the batches, see `mibounds.samples.seeds`.
        on_step: called after each step with its number and the loss; reading the loss in every
            step makes a GPU wait.
        held_out: further samples x and y, which decide when to stop.
        patience: steps without a lower held-out loss after which to stop.
        to_beat: held-out loss above which the fit is worth nothing; it has half the patience to
            get below it.
        on_check: called after each evaluation on the held-out samples with the number of the step,
            the loss of its batch and the held-out loss.

    Returns:
        The learning loss every 10 steps.

    Example:
        >>> import mibounds as mb
        >>> g = torch.Generator().manual_seed(0)
        >>> x = torch.randn(512, 3, generator=g)
        >>> history = fit(mb.CLUB(3, 2), x, x[:, :2], steps=50, seed=0)
        >>> history[-1] < history[0]
        True
    """
    if not isinstance(estimator, Learner) or isinstance(estimator, type):
        raise ValueError(
            "Expected an estimator such as mb.CLUB(x_dim, y_dim), or a module with a learning_loss,"
            f" but got {estimator if isinstance(estimator, type) else type(estimator).__name__}; "
            "pass mb.CLUB(x.shape[1], y.shape[1])."
        )
    check_size("steps", steps, at_least=0)
    check_size("batch_size", batch_size)
    check_size("patience", patience)
    check_rate(lr)
    n = check_pair(x, y).size
    check_finite("x", x)
    check_finite("y", y)
    if held_out is not None:
        check_pair(*held_out)
        check_finite("held-out x", held_out[0])
        check_finite("held-out y", held_out[1])
    parameters = [p for p in estimator.parameters() if p.requires_grad]
    check_learnable(parameters)
    if not parameters:
        return []
    optimizer = torch.optim.Adam(parameters, lr=lr)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    training = estimator.training
    estimator.train()
    history: list[float] = []
    generator = make_generator(seed)
    where = generator.device if generator is not None else x.device
    learn: Callable[[Tensor, Tensor], Tensor] = estimator.learning_loss
    if isinstance(estimator, Ratio) and generator is not None:  # which draws, too
        own = int(torch.randint(2**62, (), generator=generator, device=where))
        learn = partial(
            estimator.learning_loss, generator=torch.Generator(x.device).manual_seed(own)
        )
    best = None if held_out is None else _BestAverage(estimator, parameters, held_out, learn)
    try:
        for step in range(steps):
            i = torch.randint(n, (min(batch_size, n),), generator=generator, device=where)
            i = i.to(x.device)
            loss = learn(x[i], y[i])
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            schedule.step()
            if step % 10 == 0 or step == steps - 1 or on_step is not None:
                value = loss.item()
                if not value - value == 0:  # NaN or infinite
                    raise FloatingPointError(
                        f"Expected a finite learning loss but got {value} in step {step}; "
                        "lower lr, or look for extreme values in x and y."
                    )
                if step % 10 == 0:
                    history.append(value)
                if on_step is not None:
                    on_step(step, value)
            if best is not None:
                best.average(step)
                if (step + 1) % CHECK_EVERY == 0 or step == steps - 1:
                    held_out_loss = best.check(step)
                    if on_check is not None:
                        on_check(step, loss.item(), held_out_loss)
                    if step - best.step >= patience:
                        break
                    if best.loss >= to_beat and step >= patience // 2:
                        break
        if best is not None:
            best.restore()
    finally:
        estimator.train(training)
    return history


def check_rate(lr: float) -> None:
    """Check that a learning rate is a positive, finite number."""
    if not isinstance(lr, Real) or not 0 < lr < math.inf:
        raise ValueError(
            f"Expected lr to be a finite number > 0 but got {lr!r}; leave it out for the default."
        )


def check_learnable(parameters: Iterable[Tensor]) -> None:
    """Check that parameters are no inference tensors, which nothing can learn."""
    if any(p.is_inference() for p in parameters):
        raise ValueError(
            "Expected parameters that can be learnt but got some that were made in "
            "torch.inference_mode(); make the estimator outside of it."
        )


class _BestAverage:
    """The averaged parameters of a learner, and those with the lowest loss on held-out samples.

    Args:
        learner: what is being fitted.
        parameters: its learnt parameters.
        held_out: samples x and y.
        learn: gives the loss on samples.
    """

    def __init__(
        self,
        learner: Learner,
        parameters: list[torch.nn.Parameter],
        held_out: tuple[Tensor, Tensor],
        learn: Callable[[Tensor, Tensor], Tensor],
    ):
        self.learner, self.parameters, self.held_out = learner, parameters, held_out
        self.learn = learn
        self.averages = [p.detach().clone() for p in parameters]
        self.best: list[Tensor] | None = None
        self.kept: list[Tensor] = []
        self.step, self.loss = 0, float("inf")

    @torch.no_grad()
    def average(self, step: int) -> None:
        """Update the average with the parameters after a step."""
        weight = 1 - min(AVERAGE, (1 + step) / (10 + step))
        for average, p in zip(self.averages, self.parameters, strict=True):
            average.lerp_(p.detach(), weight)

    def check(self, step: int) -> float:
        """The loss of the averages on the held-out samples; keeps the best."""
        current = self._exchange(self.averages)
        self.learner.train(False)
        with torch.no_grad():
            loss = self.learn(*self.held_out).item()
        self.learner.train(True)
        if loss < self.loss or self.best is None:
            self.loss, self.step = loss, step
            self.best = [a.clone() for a in self.averages]
            self.kept = [b.detach().clone() for b in self.learner.buffers()]
        self._exchange(current)
        return loss

    @torch.no_grad()
    def restore(self) -> None:
        """Give the learner the best averages, and the statistics of that step."""
        if self.best is not None:
            self._exchange(self.best)
            for buffer, value in zip(self.learner.buffers(), self.kept, strict=True):
                buffer.copy_(value)

    @torch.no_grad()
    def _exchange(self, values: list[Tensor]) -> list[Tensor]:
        before = [p.detach().clone() for p in self.parameters]
        for p, value in zip(self.parameters, values, strict=True):
            p.copy_(value)
        return before
