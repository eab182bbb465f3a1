"""Unsupervised domain adaptation: Table 2.

Labels of a source, images of a target, and the question how many of the target's test images are
classified rightly.

config       transfers, methods and modes; each setting once
images       source and target: loaded, normalised, augmented
networks     the encoder and what stands on top of it
losses       pure functions
methods      the networks of each method, and the losses of a step
evaluation   accuracies, and what embeddings tell
training     the steps, and what is tested on the way
experiment   cells, tables, figures
"""

from __future__ import annotations

from experiments.domain_adaptation.experiment import DomainAdaptation

__all__ = ["DomainAdaptation"]
