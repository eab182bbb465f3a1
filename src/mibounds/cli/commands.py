"""The base class of commands, and their error."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

__all__ = ["Command", "Failure"]


class Command(ABC):
    """A command: its fields are its flags, its docstring is their help.

    Attributes:
        unknown_flag: what else to try after an unknown flag; ends with ", or ".
    """

    unknown_flag: ClassVar[str] = ""

    @abstractmethod
    def run(self) -> None:
        """Run the command. A ValueError means bad input, any other exception a failure."""


class Failure(Exception):
    """A failure whose message is written for the user."""
