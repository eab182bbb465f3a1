"""States of long trainings on disk, from which an interrupted one resumes.

A state is a plain archive of arrays, written whole or not at all; reading one executes nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from mibounds.files import UNREADABLE, remove_files, remove_leftovers, replacing

SUFFIX = ".state.npz"  # of every file that `write_state` writes, and of no other
_MORE = "more "  # before the names of the arrays that are kept beside the tensors


def name_state(folder: str, stem: str, facts: object) -> Path | None:
    """The path of a training's state.

    Args:
        folder: for states; "" for none.
        stem: beginning of the name.
        facts: everything on which the state depends, in a form that prints the same every time.

    Example:
        >>> name_state("states", "club", {"steps": 3}) == name_state("states", "club", {"steps": 4})
        False
    """
    if not folder:
        return None
    name = hashlib.sha256(str(facts).encode()).hexdigest()[:16]
    return Path(folder) / f"{stem}_{name}{SUFFIX}"


def write_state(path: Path, tensors: Mapping[str, Tensor], more: Mapping[str, np.ndarray]) -> None:
    """Write tensors, and arrays to keep beside them.

    Args:
        path: of the file, which ends in `SUFFIX`; its folder is created.
        tensors: by name.
        more: by name.
    """
    assert path.name.endswith(SUFFIX)
    arrays = {name: tensor.detach().cpu().numpy() for name, tensor in tensors.items()}
    arrays |= {f"{_MORE}{name}": value for name, value in more.items()}
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary, temporary.open("wb") as file:
        np.savez(file, allow_pickle=False, **arrays)


@torch.no_grad()
def read_state(path: Path, tensors: Mapping[str, Tensor]) -> dict[str, np.ndarray]:
    """Copy a state into tensors: into all of them or, if it cannot be read, into none.

    Args:
        path: of the file.
        tensors: with the names and shapes that were written.

    Returns:
        The arrays that were kept beside them.

    Example:
        >>> path = getfixture("tmp_path") / "one.state.npz"
        >>> write_state(path, {"weight": torch.ones(2)}, {"epoch": np.array(3)})
        >>> weight = torch.zeros(2)
        >>> read_state(path, {"weight": weight})["epoch"].item(), weight
        (3, tensor([1., 1.]))
    """
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        found = {name: torch.from_numpy(arrays[name]) for name in tensors}
        shapes = {name: tuple(found[name].shape) for name in tensors}
        if shapes != {name: tuple(tensor.shape) for name, tensor in tensors.items()}:
            raise ValueError("tensors of other shapes")
    except UNREADABLE as error:
        raise ValueError(
            f"Expected the state of this training in {str(path)!r} but got {error}; "
            "remove the file to start again."
        ) from error
    for name, tensor in tensors.items():
        tensor.copy_(found[name])
    return {k.removeprefix(_MORE): v for k, v in arrays.items() if k.startswith(_MORE)}


def remove_states(folder: Path) -> None:
    """Remove the states in a folder, and what a killed process left of one.

    Example:
        >>> folder = getfixture("tmp_path") / "states"
        >>> write_state(folder / "one.state.npz", {}, {})
        >>> remove_states(folder)
        >>> folder.exists()
        False
    """
    remove_leftovers(folder)
    remove_files(folder, [path.name for path in folder.glob(f"*{SUFFIX}")])
