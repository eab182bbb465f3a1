"""The data sets: images with labels, checked and cached, which say where they come from.

    mnist = load("mnist", "train")  # images (60000, 28, 28) uint8, labels (60000,) int64
    mnist.origin                    # to report beside any result

`DATASETS` lists them with their sources and licences; ``python -m experiments data`` lists, fetches
and checks them.
"""

from __future__ import annotations

from experiments.data.datasets import Dataset, Images, Unavailable
from experiments.data.loaders import load
from experiments.data.mnist_m import blend
from experiments.data.sources import DATASETS
from experiments.data.stl10 import reduce_by_means, reduce_by_picking

__all__ = [
    "DATASETS",
    "Dataset",
    "Images",
    "Unavailable",
    "blend",
    "load",
    "reduce_by_means",
    "reduce_by_picking",
]
