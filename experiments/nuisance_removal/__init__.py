"""Removing a nuisance from a representation: how much is left, and what the removal costs.

A label agrees with a nuisance (a colour, a background, an attribute) in training but not in use. A
network is trained to predict the label from z, with a term that is to remove the nuisance from z.

config       tasks, methods, weights, settings
samples      the three data sets: training, validation and test parts
networks     the encoder and the linear head
methods      what each method adds to the loss of a step
training     the steps
evaluation   accuracies, and what probes read from z
experiment   cells, the choice of the weight, tables, the figure
"""

from __future__ import annotations

from experiments.nuisance_removal.experiment import NuisanceRemoval

__all__ = ["NuisanceRemoval"]
