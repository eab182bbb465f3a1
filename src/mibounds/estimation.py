"""Exit 1 of the flow, a number: fit an estimator to samples."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from mibounds.estimators import Estimator
from mibounds.samples import check_finite, check_pair

if TYPE_CHECKING:
    from jaxtyping import Shaped

__all__ = ["fit"]


def fit(
    estimator: Estimator,
    x: Shaped[Tensor, "n *x"],
    y: Shaped[Tensor, "n *y"],
    *,
    steps: int = 1000,
    batch_size: int = 128,
    lr: float = 3e-3,
    generator: torch.Generator | None = None,
    on_step: Callable[[int, float], None] | None = None,
) -> list[float]:
    """Fit an estimator's conditional or critic by Adam on random batches.

    The rate falls to zero along a cosine. Evaluate the fitted estimator on *other* samples than
    these. An estimator with nothing to learn is left as it is.

    Args:
        estimator: what to fit, in place; it is in training mode meanwhile.
        x: samples.
        y: samples.
        steps: number of batches.
        batch_size: samples a batch.
        lr: rate at the start.
        generator: source of the batches; torch's global one if left out.
        on_step: called after each step with its number and the loss (which costs a look at the
            value in every step).

    Returns:
        The learning loss every 10 steps.

    Example:
        >>> import mibounds as mb
        >>> g = torch.Generator().manual_seed(0)
        >>> x = torch.randn(512, 3, generator=g)
        >>> history = fit(mb.CLUB(3, 2), x, x[:, :2], steps=50, generator=g)
        >>> history[-1] < history[0]
        True
    """
    n = check_pair(x, y).size
    check_finite("x", x)
    check_finite("y", y)
    parameters = [p for p in estimator.parameters() if p.requires_grad]
    if not parameters:
        return []
    optimizer = torch.optim.Adam(parameters, lr=lr)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    training = estimator.training
    estimator.train()
    history: list[float] = []
    where = generator.device if generator is not None else x.device
    try:
        for step in range(steps):
            i = torch.randint(n, (min(batch_size, n),), generator=generator, device=where)
            i = i.to(x.device)
            loss = estimator.learning_loss(x[i], y[i])
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
    finally:
        estimator.train(training)
    return history
