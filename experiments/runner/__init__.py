"""What an experiment is, and what computes its cells, keeps them and makes tables of them."""

from __future__ import annotations

from experiments.runner.base import Cell, Config, Experiment, Record
from experiments.runner.records import read_records
from experiments.runner.reproduction import Failed, Options, reproduce

__all__ = [
    "Cell",
    "Config",
    "Experiment",
    "Failed",
    "Options",
    "Record",
    "read_records",
    "reproduce",
]
