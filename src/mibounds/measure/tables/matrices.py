"""`matrix`: the mutual information of all pairs of columns."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch

from mibounds.measure.tables.blocks import measure_blocks
from mibounds.measure.tables.checks import check_rows, check_settings, look_at
from mibounds.measure.tables.pages import (
    matrix_html,
    matrix_text,
    matrix_title,
    write_matrix,
)
from mibounds.measure.tables.plots import plot_matrix, plot_network
from mibounds.measure.tables.results import MatrixData
from mibounds.measure.tables.scales import Unit
from mibounds.measure.tables.significance import Correction, correct
from mibounds.measure.tables.variables import read_variables
from mibounds.progress import showing
from mibounds.samples.precision import undisturbed

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Matrix", "matrix"]


@dataclass(frozen=True, eq=False)
class Matrix(MatrixData):
    """Mutual information of pairs of columns, as `matrix` returns it.

    It prints as a table of plain text and displays itself as one in a notebook. The fields are
    those of `MatrixData`.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> x = rng.normal(size=(500, 3))
        >>> x[:, 1] += x[:, 0]
        >>> found = matrix(x, names=["a", "b", "c"])
        >>> print(found)
        Mutual information of 3 columns, 3 pairs, in nats
        <BLANKLINE>
              a      b      c
        a      ∞  0.369  0.000
        b  0.369      ∞  0.000
        c  0.000  0.000      ∞
        <BLANKLINE>
        1 pair is dependent at 0.05 (p-values corrected by benjamini-yekutieli):
        a – b  0.369 nats, 95 % interval 0.293 ... 0.449, normalised 0.72
        >>> Matrix.from_json(found.to_json()).nats[0, 1] == found.nats[1, 0]
        np.True_
    """

    def __str__(self) -> str:
        return matrix_text(self)

    def _repr_html_(self) -> str:
        return matrix_html(self)

    def plot(self, ax: Axes | None = None, unit: Unit = "normalised", cluster: bool = True) -> Axes:
        """Draw a heat map, with similar columns next to each other.

        Args:
            ax: where to draw; a new figure if left out.
            unit: "nats", "bits" or "normalised".
            cluster: whether to order the columns by similarity.
        """
        return plot_matrix(self, ax, unit, cluster)

    def plot_network(self, ax: Axes | None = None, edges: int = 30, level: float = 0.05) -> Axes:
        """Draw the strongest pairs that are dependent as a network.

        Args:
            ax: where to draw; a new figure if left out.
            edges: how many pairs at most.
            level: for their corrected p-values.
        """
        return plot_network(self, ax, edges, level)

    def write_report(self, path: str | os.PathLike[str], title: str = "") -> None:
        """Write the matrix as one self-contained HTML file.

        Args:
            path: of the file, in a folder that exists.
            title: of the page.
        """
        write_matrix(path, self, title or matrix_title(self))


@undisturbed
def matrix(
    left: Any,
    right: Any = None,
    *,
    kinds: Sequence[str | None] | str | None = None,
    right_kinds: Sequence[str | None] | str | None = None,
    names: Sequence[str] | None = None,
    right_names: Sequence[str] | None = None,
    budget: Literal["default", "fast"] = "fast",
    level: float = 0.95,
    correction: Correction = "benjamini-yekutieli",
    n_jobs: int = 1,
    backend: str = "loky",
    scheduler: str = "",
    device: str | torch.device | None = None,
    out: str | os.PathLike[str] | None = None,
    seed: int = 0,
    progress: bool | Callable[[float, str], None] = False,
) -> Matrix:
    """Mutual information of all pairs of columns of a table, or of two tables.

    Numbers and labels may be mixed, and values may be missing: each pair has the rows that are
    complete in it. How a pair is measured is told in `mibounds.measure.tables`. Each pair of a
    single table is measured once, so that the matrix is symmetric to the last digit.

    Args:
        left: data frame, array or tensor; one sample per row.
        right: the same with as many rows; all pairs within ``left`` if left out.
        kinds: "continuous" or "discrete" for the columns of left; recognised if left out.
        right_kinds: the same for right.
        names: of the columns of left, where they have none.
        right_names: the same for right.
        budget: "fast", or "default" to look at the neighbours of every pair of numbers too, which
            takes about ten times as long and finds dependence that no smooth series sees.
        level: of the intervals.
        correction: of the p-values for the number of pairs: "benjamini-yekutieli", "holm",
            "benjamini-hochberg" or "none" (`mibounds.measure.tables.significance`).
        n_jobs: processes, for which the extra ``parallel`` is needed; -1 for one per core.
        backend: "loky" for processes of this machine, "threading", "dask" or "ray".
        scheduler: address of a dask or ray cluster, if none is connected.
        device: of the smooth series, such as "cuda"; neighbours stay on the CPU.
        out: folder for finished blocks; a later call with the same table goes on from there.
        seed: of the noise that tells equal numbers apart.
        progress: True for a progress bar with the time left, for which the extra ``plot`` is
            needed; or a function of the share that is done and a word.

    Returns:
        The matrix, in nats.

    Raises:
        ValueError: for a table or settings that cannot be used, with what to do.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> x = rng.normal(size=(400, 2))
        >>> y = (x[:, :1] + rng.normal(size=(400, 1)) > 0).astype(int)
        >>> found = matrix(x, y)
        >>> found.nats.shape, found.significant()[:, 0].tolist()
        ((2, 1), [True, False])
    """
    start = time.perf_counter()
    check_settings(budget, level, correction, seed)
    columns = read_variables("left", left, kinds, seed, names)
    others = columns if right is None else read_variables("right", right, right_kinds, seed,
                                                          right_names)  # fmt: skip
    check_rows({"left": columns, "right": others})
    with showing(progress) as report:
        found = measure_blocks(
            columns,
            None if right is None else others,
            fast=budget == "fast",
            device=device,
            n_jobs=n_jobs,
            backend=backend,
            scheduler=scheduler,
            out=out,
            progress=report,
        )
    entropies = [np.array([v.entropy for v in vs]) for vs in (columns, others)]
    nats, below, above, p = found[:4]
    rows = np.nan_to_num(found[4]).astype(np.int64)
    methods = np.nan_to_num(found[5], nan=3).astype(np.int64)
    if right is None:
        np.fill_diagonal(nats, entropies[0])
        np.fill_diagonal(below, 0.0)
        np.fill_diagonal(above, 0.0)
        np.fill_diagonal(rows, [int(v.present.sum()) for v in columns])
    once = np.triu_indices(len(columns), 1) if right is None else np.nonzero(np.ones_like(p))
    corrected = np.full_like(p, math.nan)
    corrected[once] = correct(p[once], correction)
    if right is None:
        corrected.T[once] = corrected[once]
    return Matrix(
        left=tuple(v.name for v in columns),
        right=tuple(v.name for v in others),
        left_kinds=tuple(v.kind for v in columns),
        right_kinds=tuple(v.kind for v in others),
        symmetric=right is None,
        nats=nats,
        below=below,
        above=above,
        p_values=p,
        corrected=corrected,
        rows=rows,
        methods=methods,
        left_entropy=entropies[0],
        right_entropy=entropies[1],
        level=level,
        correction=correction,
        warnings=look_at(found[:, once[0], once[1]]),
        seconds=time.perf_counter() - start,
        config={"budget": budget, "seed": seed, "torch": torch.__version__},
    )
