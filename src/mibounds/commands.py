"""What a command of the command line is, and how it fails."""

from __future__ import annotations

from abc import ABC, abstractmethod

__all__ = ["Command", "Failure"]


class Command(ABC):
    """What the command line can do: flags as fields, and what to do with them."""

    @abstractmethod
    def run(self) -> None:
        """Do it. A ValueError is taken for bad input, any other exception for a failure."""


class Failure(Exception):
    """A failure that is worded for the user already."""
