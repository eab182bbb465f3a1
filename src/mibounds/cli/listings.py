"""``mibounds tasks`` and ``mibounds methods``: lists to choose from."""

from __future__ import annotations

from dataclasses import dataclass

from mibounds.cli.commands import Command
from mibounds.cli.terminal import as_json, say, say_table


@dataclass(frozen=True)
class TasksCommand(Command):
    """List the distributions with known mutual information.

    Attributes:
        json: print JSON instead of a table.
    """

    json: bool = False

    def run(self) -> None:
        """Print one task per line."""
        from mibounds.tasks import TASKS

        rows = [
            {
                "name": name,
                "x_dim": task.x_dim,
                "y_dim": task.y_dim,
                "classes": task.classes,
                "nats": task.mutual_information,
                "error": task.mutual_information_error,
            }
            for name, task in TASKS.items()
        ]
        if self.json:
            say(as_json(rows))
            return
        say_table(
            ("name", "x", "y", "nats"),
            [
                (
                    row["name"],
                    row["x_dim"],
                    f"{row['classes']} labels" if row["classes"] else row["y_dim"],
                    f"{row['nats']:.4f}",
                )
                for row in rows
            ],
        )


@dataclass(frozen=True)
class MethodsCommand(Command):
    """List the methods of estimation with their side of the truth and their cost.

    Attributes:
        json: print JSON instead of a table.
    """

    json: bool = False

    def run(self) -> None:
        """Print one method per line."""
        from mibounds.measure.classical import ClassicalEstimator
        from mibounds.measure.methods import METHODS

        rows = [
            {
                "name": name,
                "kind": "classical" if issubclass(method, ClassicalEstimator) else "network",
                "side": method.side,
                "condition": method.condition,
                "cost": method.cost,
                "reference": method.reference,
            }
            for name, method in METHODS.items()
        ]
        if self.json:
            say(as_json(rows))
            return
        columns = ("name", "kind", "side", "cost", "reference")
        say_table(columns, [[row[column] for column in columns] for row in rows])
