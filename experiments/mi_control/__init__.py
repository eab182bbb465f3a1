"""Bringing a known mutual information down to nothing, or up, by the gradient of an estimator.

The protocol of Yu et al. 2026: two vectors whose mutual information is known in closed form at each
step, and a few correlations that learn to lower or to raise it. Hundreds of cells are one program:
each tensor has a leading dimension of cells.

config       tasks, methods, settings
draws        random numbers for all cells
worlds       the samples, and their true mutual information
networks     networks side by side, and what fits them
ratios       the methods with a classifier of joint and product pairs
methods      the other methods, and the table of all
programs     the steps
experiment   cells, rows, tables
figures      the figure
"""

from __future__ import annotations

from experiments.mi_control.experiment import MIControl

__all__ = ["MIControl"]
