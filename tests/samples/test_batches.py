"""Joined batches over several processes, started as a user starts them: by torchrun."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import mibounds as mb
from mibounds.samples.batches import Batch


def test_every_estimator_gives_the_value_and_gradient_of_the_joined_batch():
    script = Path(__file__).parents[1] / "support" / "processes.py"
    result = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=3",
         str(script)],
        capture_output=True, text=True, check=False, timeout=300,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert result.returncode == 0, result.stderr[-3000:]
    assert int(result.stdout.split()[0]) >= len(mb.ESTIMATORS) + 30


def test_without_a_group_nothing_is_exchanged():
    batch = Batch(3)
    v = torch.tensor([1.0, 2.0, 6.0])
    assert batch.gather(v) is v
    assert batch.local(v) is v
    assert batch.sum(v) is v
    assert batch.logsumexp(v) is v
    assert batch.average(v) is v
    assert batch.mean(v) == 3
    assert batch.from_all(v).tolist() == [[1.0, 2.0, 6.0]]
    assert (batch.size, batch.offset) == (3, 0)
    with pytest.raises(ValueError, match=r"at least 2 samples .* but got 1"):
        Batch(1)
