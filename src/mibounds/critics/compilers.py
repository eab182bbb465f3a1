"""Whether Triton can build kernels here."""

from __future__ import annotations

import warnings
from functools import cache
from importlib.util import find_spec

import torch


@cache
def triton_builds() -> bool:
    """Whether Triton is installed and builds a kernel for the GPU, which takes a C compiler.

    Where it is installed and fails, a warning says why; torch's own operations take over.

    Example:
        >>> isinstance(triton_builds(), bool)
        True
    """
    if find_spec("triton") is None or not torch.cuda.is_available():
        return False
    try:
        from mibounds.critics.triton_kernels import concat_scores

        concat_scores(*(torch.ones(1, 1, device="cuda") for _ in range(2)),
                      *(torch.ones(1, device="cuda") for _ in range(2)))  # fmt: skip
    except Exception as error:
        warnings.warn(
            "Triton cannot build kernels here, and torch's own operations are used, which are "
            f"slower: {error}; install a C compiler and the headers of Python, or let it be.",
            stacklevel=2,
        )
        return False
    return True
