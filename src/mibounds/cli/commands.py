"""What a command of the command line is, and how it fails."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

__all__ = ["Command", "Failure"]


class Command(ABC):
    """What the command line can do: flags as fields, and what to do with them."""

    unknown_flag: ClassVar[str] = ""  # what else to do about a flag that is not known

    @abstractmethod
    def run(self) -> None:
        """Do it. A ValueError is taken for bad input, any other exception for a failure."""


class Failure(Exception):
    """A failure that is worded for the user already."""
