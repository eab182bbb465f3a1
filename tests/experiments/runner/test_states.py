"""States on disk: damaged ones are named, and change nothing."""

import numpy as np
import pytest
import torch

from experiments.runner.states import read_state, write_state


def test_a_damaged_state_is_named_and_changes_nothing(tmp_path):
    path, weight = tmp_path / "one.state.npz", torch.zeros(3)
    write_state(path, {"weight": torch.ones(3)}, {"epoch": np.array(2)})
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match=r"state.npz' but got .*; remove the file to start again"):
        read_state(path, {"weight": weight})
    path.write_bytes(whole)
    for other in ({"weight": weight, "bias": weight}, {"weight": torch.zeros(4)}):
        with pytest.raises(ValueError, match="Expected the state of this training"):
            read_state(path, other)
    assert weight.tolist() == [0, 0, 0]
    assert read_state(path, {"weight": weight})["epoch"] == 2
    assert weight.tolist() == [1, 1, 1]
