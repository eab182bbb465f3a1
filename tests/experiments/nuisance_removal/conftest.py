"""Small settings, and MNIST made up of a few digits."""

import numpy as np
import pytest

from experiments.nuisance_removal.config import NuisanceConfig

SMALL = {
    "seeds": 1, "steps": 8, "batch_size": 16, "z_dim": 6, "table_z_dim": 4, "width": 2,
    "hidden": 8, "rows": 240, "probe_steps": 20, "audited": 60, "device": "cpu",
}  # fmt: skip


@pytest.fixture
def small():
    """Settings of a training in a moment."""
    return NuisanceConfig(**SMALL)


@pytest.fixture
def mnist(tmp_path, monkeypatch):
    """MNIST of 600 training and 300 test images: a bright square, whose place is the label."""
    pytest.importorskip("filelock", reason="the data sets need it")
    arrays = {}
    for split, n in (("train", 600), ("test", 300)):
        labels = np.arange(n) % 10
        images = np.zeros((n, 28, 28), np.uint8)
        for image, label in zip(images, labels, strict=True):
            image[2 * label : 2 * label + 8, 8:20] = 255
        arrays |= {f"{split}_images": images, f"{split}_labels": labels.astype(np.uint8)}
    np.savez(tmp_path / "mnist.npz", **arrays)
    monkeypatch.setenv("MIBOUNDS_DATA", str(tmp_path))
    monkeypatch.setenv("MIBOUNDS_CACHE", str(tmp_path / "cache"))
    return arrays
