"""The information bottleneck on MNIST: Table 1.

config       the settings
model        encoder, classifier and bound
training     the digits, and runs of one method side by side
experiment   the choice of beta, the table, the figures
"""

from __future__ import annotations

from experiments.information_bottleneck.experiment import InformationBottleneck

__all__ = ["InformationBottleneck"]
