"""The base class of commands, their error, and checks of their flags."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

__all__ = ["Command", "Failure", "check_numbers"]


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


LEAST = {"block": 1, "max_lag": 1, "most": 1, "permutations": 0, "rows": 1, "seed": 0, "threads": 1}


def check_numbers(command: object) -> None:
    """Check the flags of a command that are numbers, before any file is read."""
    for name, value in vars(command).items():
        default = getattr(type(command), name, None)
        if name in LEAST and value != default and value < LEAST[name]:
            raise ValueError(
                f"Expected --{name.replace('_', '-')} of at least {LEAST[name]} but got {value}; "
                "leave it out for its default."
            )
        if name == "level" and not 0 < value < 1:
            raise ValueError(
                f"Expected --level between 0 and 1 but got {value}; leave it out for {default}."
            )
