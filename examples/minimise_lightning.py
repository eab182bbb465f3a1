"""The penalty in Lightning: beside the model, in every checkpoint, out of the optimiser.

    python examples/minimise_lightning.py

The task of `minimise.py`: a measurement v mixes a wanted signal a with a nuisance s, and z = W v
is to tell a and to share nothing with s. Trained without the penalty, with it, and with it again,
interrupted half-way and resumed from the checkpoint by a new trainer: the last two have to end at
the same parameters, bit for bit.
"""

import argparse
import json
import logging
import tempfile
import warnings
from pathlib import Path

import lightning as L
import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from torch.nn.functional import mse_loss
from torch.utils.data import DataLoader, TensorDataset

import mibounds as mb

A, S, V, Z, NOISE = 4, 3, 16, 8, 0.5


class Encoder(nn.Module):
    """z, and what it tells of a."""

    def __init__(self):
        super().__init__()
        self.encode, self.tell = nn.Linear(V, Z), nn.Linear(Z, A)

    def forward(self, v: Tensor) -> tuple[Tensor, Tensor]:
        """Both."""
        z = self.encode(v)
        return z, self.tell(z)


class Task(L.LightningModule):
    """Tells a from v, with a penalty on I(z; s).

    The penalty is a sibling of the model. Lightning then moves it to the device, puts it into
    evaluation mode for validation (where it does not learn) and writes it into the checkpoint: its
    ``state_dict`` holds its own optimiser too, so there is nothing to add for a resumed run.
    """

    def __init__(self, weight: float):
        super().__init__()
        self.model = Encoder()
        self.penalty = mb.MIPenalty(Z, S)
        self.weight = weight

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Only for the model, by naming it.

        ``self.parameters()`` would list the penalty's as well. They never get a gradient from the
        loss, so most optimisers would pass over them; but they have no business there.
        """
        return torch.optim.Adam(self.model.parameters(), lr=1e-3)

    def training_step(self, batch: list[Tensor], _: int) -> Tensor:
        """One line more than without."""
        v, a, s = batch
        z, told = self.model(v)
        return mse_loss(told, a) + self.weight * self.penalty(z, s)

    def validation_step(self, batch: list[Tensor], _: int) -> None:
        """The value alone: in evaluation mode the penalty does not learn."""
        v, a, s = batch
        z, told = self.model(v)
        self.log_dict({"error of a": mse_loss(told, a), "penalty": self.penalty(z, s)})


def sample(n: int, seed: int) -> TensorDataset:
    """Measurements v, with the signals a and the nuisances s in them."""
    mixing = torch.randn(A + S, V, generator=torch.Generator().manual_seed(0)) / (A + S) ** 0.5
    generator = torch.Generator().manual_seed(seed)
    sources = torch.randn(n, A + S, generator=generator)
    v = sources @ mixing + NOISE * torch.randn(n, V, generator=generator)
    return TensorDataset(v, sources[:, :A], sources[:, A:])


def trainer(epochs: int) -> L.Trainer:
    """A quiet one. Several devices: pass ``group=torch.distributed.group.WORLD`` to the penalty."""
    quiet = ("logger", "enable_progress_bar", "enable_model_summary", "enable_checkpointing")
    return L.Trainer(max_epochs=epochs, devices=1, **dict.fromkeys(quiet, False))


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=50)
    parser.add_argument("--weight", type=float, default=0.1, help="of the penalty, per nat")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="file for the rows")
    parser.add_argument("--quick", action="store_true", help="a run of seconds, for a first look")
    args = parser.parse_args()
    if args.quick:
        args.epochs = 4
    torch.set_num_threads(1)
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", ".*does not have many workers.*")
    # Not shuffled: the rows have no order, and a resumed run is to see the same batches.
    train = DataLoader(sample(40 * 256, args.seed + 1), batch_size=256)
    test = DataLoader(held_out := sample(2000, args.seed + 2), batch_size=2000)

    rows, after = [], None
    for name, weight in (("no penalty", 0.0), ("penalty", args.weight), ("resumed", args.weight)):
        L.seed_everything(args.seed, verbose=False)
        task, checkpoint = Task(weight), None
        with tempfile.TemporaryDirectory() as folder:
            if name == "resumed":
                checkpoint = Path(folder) / "half.ckpt"
                (half := trainer(args.epochs // 2)).fit(task, train, test)
                half.save_checkpoint(checkpoint)
                task = Task(weight)  # starts elsewhere: all that counts is in the checkpoint
            (whole := trainer(args.epochs)).fit(task, train, test, ckpt_path=checkpoint)
        values = {key: value.item() for key, value in whole.callback_metrics.items()}
        v, _, s = held_out.tensors
        audit = task.penalty.audit(task.model.cpu()(v)[0], s, budget="fast")
        rows.append({"run": name, **values, "audit": audit.nats})
        before, after = after, nn.utils.parameters_to_vector(task.parameters())
    table = Table(*rows[0], title="A nuisance s taken out of z, in nats")
    for row in rows:
        table.add_row(*(f"{v:.4f}" if isinstance(v, float) else v for v in row.values()))
    Console().print(table)
    rows[-1]["same parameters"] = same = torch.equal(before, after)
    print(f"resumed: {'the same parameters, bit for bit' if same else 'other parameters'}")
    if args.json:
        args.json.write_text(json.dumps(rows, indent=2))


if __name__ == "__main__":
    main()
