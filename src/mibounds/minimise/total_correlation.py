"""The total correlation of several codes as a penalty.

    TC(z_1, ..., z_k) = I(z_1; z_2) + I(z_1, z_2; z_3) + ... + I(z_1, ..., z_{k-1}; z_k)

Reference: Watanabe 1960, equation 8; as a sum of bounds, Bai et al. 2023, section 3.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from mibounds.minimise.health import PenaltyReport
from mibounds.minimise.penalty import MIPenalty

if TYPE_CHECKING:
    from jaxtyping import Float

__all__ = ["TCPenalty"]


class TCPenalty(nn.Module):
    """What several codes share, as a term of a loss: one `MIPenalty` for each term of the sum.

    Args:
        dims: columns of each code, two or more.
        **options: of each penalty, such as ``inner_steps`` or ``given_labels``.

    Example:
        >>> penalty = TCPenalty([4, 3, 2])
        >>> codes = [torch.randn(64, d, requires_grad=True) for d in (4, 3, 2)]
        >>> penalty(*codes).backward()
        >>> len(penalty.penalties), codes[2].grad.shape
        (2, torch.Size([64, 2]))
    """

    def __init__(self, dims: Sequence[int], **options: Any):
        super().__init__()
        if len(dims) < 2:
            raise ValueError(
                f"Expected the dims of two or more codes but got {list(dims)}; "
                "pass one number of columns for each code, such as [16, 16, 8]."
            )
        self.dims = tuple(dims)
        self.penalties = nn.ModuleList(
            MIPenalty(sum(self.dims[:i]), self.dims[i], **options) for i in range(1, len(dims))
        )

    def forward(self, *codes: Float[Tensor, "n _"], **options: Any) -> Float[Tensor, ""]:
        """Fit, in training mode, and return the sum of the penalties.

        Args:
            *codes: as many as ``dims``, with one row per sample.
            **options: of each call, such as ``given`` or ``group``.
        """
        if len(codes) != len(self.dims):
            raise ValueError(
                f"Expected {len(self.dims)} codes, of {', '.join(map(str, self.dims))} columns, "
                f"but got {len(codes)}; pass penalty(z1, z2, ...), one tensor for each of them."
            )
        values = [
            penalty(torch.cat(codes[:i], -1), codes[i], **options)
            for i, penalty in enumerate(self.penalties, 1)
        ]
        return torch.stack(values).sum()

    def reports(self) -> list[PenaltyReport]:
        """The report of each term of the sum; see `MIPenalty.report`."""
        return [p.report() for p in self.penalties if isinstance(p, MIPenalty)]
