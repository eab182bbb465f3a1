"""``mibounds tasks`` and ``mibounds methods``: what there is to choose from."""

from __future__ import annotations

import json
from dataclasses import dataclass

from mibounds.cli.commands import Command
from mibounds.cli.terminal import say, say_table


@dataclass(frozen=True)
class TasksCommand(Command):
    """List the distributions with known mutual information.

    Attributes:
        json: print JSON instead of a table.
    """

    json: bool = False

    def run(self) -> None:
        """Print one task a line."""
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
            say(json.dumps(rows, indent=2))
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
    """List the methods of estimation, on which side of the truth they lie, and what they cost.

    Attributes:
        json: print JSON instead of a table.
    """

    json: bool = False

    def run(self) -> None:
        """Print one method a line."""
        from mibounds.estimators import ESTIMATORS
        from mibounds.measure.classical import CLASSICAL

        rows = [
            {
                "name": name,
                "kind": kind,
                "side": method.side,
                "condition": method.condition,
                "cost": method.cost,
                "reference": method.reference,
            }
            for kind, registry in (("network", ESTIMATORS), ("classical", CLASSICAL))
            for name, method in registry.items()
        ]
        rows.insert(0, _BRIDGE)
        if self.json:
            say(json.dumps(rows, indent=2, ensure_ascii=False))
            return
        columns = ("name", "kind", "side", "cost", "reference")
        say_table(columns, [[row[column] for column in columns] for row in rows])


# A method of `estimate` that is in neither registry: no bound, and not without a network.
_BRIDGE = {
    "name": "bridge",
    "kind": "network",
    "side": "neither",
    "condition": "the closed form of the Gaussian copula and learned corrections to it",
    "cost": "N",
    "reference": "mibounds.measure.copula_model; Ince et al. 2017 for the closed form",
}
