"""The training of one method on one transfer: its steps, and what is tested on the way.

A step, with all its losses, updates and averages and with the fitting of the estimator in it, is
one CUDA graph on a GPU. Everything that changes from step to step therefore lives in tensors that
stay where they are, the number of the step among them. A round of the trainer is a block of steps.
"""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from experiments.domain_adaptation.config import (
    TRANSFERS,
    DomainAdaptationConfig,
    settle,
    split_method,
)
from experiments.domain_adaptation.evaluation import NetworkEvaluation, read_labels, spread
from experiments.domain_adaptation.images import Augmentation, Domain, Normaliser
from experiments.domain_adaptation.methods import BETAS, StepInputs, make_adaptation
from experiments.runner.base import Cell
from experiments.runner.states import name_state
from experiments.training import Block, Training, seed_round
from mibounds.estimators.cuda_graphs import record_cuda_graph
from mibounds.estimators.stacked_training import EPS, cosine

BLOCK = 100  # steps whose random numbers are drawn at once
EVERY = 20  # blocks between two states on disk
MEASURES = 3  # how often mutual information is measured after training has begun
MEASURED = 1500  # held-out images of each domain by which it is measured
VALIDATION = 2000  # target training images by whose labels the oracle picks; as many of the source
SIDES = ("source", "target")


class AdaptationTraining(Training):
    """One cell.

    Args:
        config: the flags that are given.
        cell: with its mode, transfer, method and seed.
        source: images with labels.
        target: images; their labels are for tests only.
    """

    def __init__(self, config: DomainAdaptationConfig, cell: Cell, source: Domain, target: Domain):
        self.config = c = settle(config, cell)
        self.cell, self.domains, self.transfer = cell, (source, target), TRANSFERS[cell.task]
        device = source.images.device
        sizes = [len(domain.images) for domain in self.domains]
        facts = c.settings_of(cell), sizes, device.type
        path = name_state(c.checkpoints, cell.name, facts)
        super().__init__(device, -(-c.steps // BLOCK), path, EVERY)
        bf16 = c.precision == "bf16" and device.type == "cuda"
        method, _ = split_method(cell.method)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(cell.seed)
            self.model = make_adaptation(method, c, self.transfer, bf16, cell.seed)
        self.model.to(device)
        self.averaged = copy.deepcopy(self.model.nets).eval().requires_grad_(False)
        self.augmentation = Augmentation(c, self.transfer, device)
        self.normalisers = [Normaliser(domain, c.normalisation) for domain in self.domains]
        self.parameters = {name: list(net.parameters()) for name, net in self.model.nets.items()}
        self.moments: dict[Tensor, tuple[Tensor, Tensor, Tensor]] = {
            p: (torch.zeros_like(p), torch.zeros_like(p), torch.zeros((), device=device))
            for p in self.model.nets.parameters()
        }
        self.number = torch.zeros(1, dtype=torch.int64, device=device)  # of the step
        self.number_in_block = torch.zeros_like(self.number)
        self.schedules = make_schedules(c, device)
        self.inputs: dict[str, Tensor] = {}  # of the steps of a block
        self.take_step: Callable[[], object] | None = None
        self.captured = False

    # --- a step

    def step(self) -> None:
        """One step. Nothing in it depends on a value that the CPU has to read."""
        now = {k: v.index_select(0, self.number).squeeze(0) for k, v in self.schedules.items()}
        place = self.number_in_block
        drawn = {k: v.index_select(0, place).squeeze(0) for k, v in self.inputs.items()}
        x = self.augment(drawn, 0)
        again = self.augment(drawn, 1) if self.config.two_views else x
        labels = self.domains[0].labels.index_select(0, drawn["source"])
        inputs = StepInputs(x, labels, again, now["ramp"], now["mi_weight"])
        for loss, names in self.model.phases(inputs):
            self.update(loss, names, now["rate"])
        with torch.no_grad():
            _follow(self.averaged, self.model.nets, now["average"])
            if self.model.teacher is not None:
                _follow(self.model.teacher, self.model.nets, now["teacher"])
            self.number.add_(1)
            self.number_in_block.add_(1)

    def augment(self, drawn: dict[str, Tensor], view: int) -> Tensor:
        """A view of the joined batch, as an encoder reads it: the source's images come first."""
        changes = {name: each for name, each in drawn.items() if name not in SIDES}
        parts = [
            self.augmentation.apply(domain.images, drawn[name], normalise, changes, view, i)
            for i, (name, domain, normalise) in enumerate(
                zip(SIDES, self.domains, self.normalisers, strict=True)
            )
        ]
        return torch.cat(parts).contiguous(memory_format=torch.channels_last)

    def update(self, loss: Tensor, names: Sequence[str], rate: Tensor) -> None:
        """A step of Adam for some of the networks."""
        parameters: list[Tensor] = [p for name in names for p in self.parameters[name]]
        gradients = torch.autograd.grad(loss, parameters, allow_unused=True, materialize_grads=True)
        with torch.no_grad():
            laid = [_lay_out(g, p) for g, p in zip(gradients, parameters, strict=True)]
            means, squares, counts = zip(*(self.moments[p] for p in parameters), strict=True)
            foreach: Any = torch  # its functions over lists have no public names
            foreach._foreach_add_(counts, 1)
            foreach._fused_adam_(
                parameters,
                laid,
                list(means),
                list(squares),
                [],
                list(counts),
                lr=rate,  # a tensor, which a graph reads anew in each run
                beta1=BETAS[0],
                beta2=BETAS[1],
                weight_decay=0.0,
                eps=EPS,
                amsgrad=False,
                maximize=False,
            )

    def tensors(self) -> dict[str, Tensor]:
        """Everything that a step writes and the next step reads."""
        found = {"number": self.number, "number_in_block": self.number_in_block}
        for name, p in self.model.nets.named_parameters():
            mean, square, count = self.moments[p]
            found |= {name: p, f"mean {name}": mean, f"square {name}": square}
            found[f"count {name}"] = count
        copies = {"averaged": self.averaged, "teacher": self.model.teacher}
        for kind, nets in copies.items():
            if nets is not None:
                found |= {f"{kind} {name}": p for name, p in nets.named_parameters()}
        if self.model.penalty is not None:
            found |= {f"penalty {k}": v for k, v in self.model.penalty.tensors().items()}
        return found

    # --- a block of steps

    def draw(self, number: int) -> Iterator[Block]:
        """Which images the steps of a block see, and how they are changed."""
        c = self.config
        g = torch.Generator(self.device).manual_seed(self._seed(number))
        count = min(BLOCK, c.steps - number * BLOCK)
        index = {
            name: torch.randint(len(d.images), (count, c.batch_size), generator=g, device=g.device)
            for name, d in zip(SIDES, self.domains, strict=True)
        }
        yield index | self.augmentation.draw(count, g)

    def take_steps(self, block: Block) -> None:
        """Take the steps of a block, by the graph of a step where there is one."""
        if self.take_step is None:
            self.inputs = {name: each.clone() for name, each in block.items()}
            self.number_in_block.zero_()
            self.take_step = self._capture()
        for name, each in block.items():
            self.inputs[name][: len(each)].copy_(each)
        self.number_in_block.zero_()
        seed = self._seed(self.done)
        torch.manual_seed(seed)  # of dropout and noise, on every device
        if self.model.penalty is not None:
            self.model.penalty.generator.manual_seed(seed)
        for _ in range(len(block["source"])):
            self.take_step()

    def _seed(self, number: int) -> int:
        return seed_round(1 + self.cell.seed, number)

    def _capture(self) -> Callable[[], object]:
        if not _on_gpu(self.device):
            return self.step
        penalty = self.model.penalty
        generators = [] if penalty is None else [penalty.generator]
        recorded = record_cuda_graph(self.step, list(self.tensors().values()), generators)
        if isinstance(recorded, RuntimeError):
            warnings.warn(
                f"no CUDA graph of the step, which makes it slow: {recorded}; "
                "take out of the step what waits for the GPU, or accept it.",
                stacklevel=2,
            )
            return self.step
        self.captured = True
        return recorded

    def load(self, path: Path) -> None:
        """Read the state."""
        super().load(path)
        if self.model.penalty is not None:
            self.model.penalty.calls = int(self.number)

    # --- tests

    def evaluate(self) -> NetworkEvaluation:
        """What the averaged weights are worth now."""
        return NetworkEvaluation(self.model, self.averaged, self.domains, self.normalisers)

    @torch.no_grad()
    def test(self) -> None:
        """Accuracies of the averaged weights; at times the mutual information; more at the end."""
        measure = self.is_due(MEASURES)
        if not (measure or self.is_due(self.config.points)):
            return
        now, (source, target) = self.evaluate(), self.domains
        step = min(self.done * BLOCK, self.config.steps)
        self.keep("steps", step)
        self.keep("curve", now.accuracy(target.test_images, target.test_labels, True))
        rows = spread(len(target.images), VALIDATION, self.device)
        self.keep("picking", now.accuracy(target.images[rows], target.labels[rows], True))
        images, labels = source.test_images[:VALIDATION], source.test_labels[:VALIDATION]
        self.keep("source_curve", now.accuracy(images, labels, False))
        if measure:
            self.keep("mi_steps", step)
            self.keep("mi", now.measure(MEASURED))
        if self.done == self.rounds:
            self.keep_end(now)
        drawn = self.config.embedded and self.cell.seed == 0
        if drawn and self.done in (0, self.rounds):
            for name, points in now.project(self.config.embedded).items():
                self.keep(name, points)

    def keep_end(self, now: NetworkEvaluation) -> None:
        """What is only tested after the last step."""
        source, target = self.domains
        given = target.test_images, target.test_labels, True
        self.keep("as_trained", now.accuracy(*given, as_trained=True))
        self.keep("confusion", now.confuse(*given).tolist())
        (z,) = now.embed_both(("content",), MEASURED, as_trained=True)
        self.keep("domain_in_content", read_labels(z, now.sides(MEASURED)))
        if self.model.domain_embedding:
            z = now.embed("domain", source.test_images[:VALIDATION], False)
            self.keep("labels_in_domain", read_labels(z, source.test_labels[:VALIDATION]))


def make_schedules(config: DomainAdaptationConfig, device: torch.device) -> dict[str, Tensor]:
    """What depends on the number of the step only: learning rate and weights, each (steps,)."""
    c, steps = config, config.steps
    ramps = [ramp(t / steps) for t in range(steps)]
    rates = list(cosine(steps, c.lr)) if c.rates == "cosine" else [c.lr] * steps
    parts = {"constant": [1.0] * steps, "ramp": ramps, "fall": list(cosine(steps, 1.0))}
    columns = {
        "rate": rates,
        "ramp": ramps,
        "mi_weight": [c.mi_weight * part for part in parts[c.mi_schedule]],
        # At first the plain mean of all steps: the beginning should not be remembered for long.
        "average": [1 - min(c.average, (1 + t) / (10 + t)) for t in range(steps)],
        "teacher": [1 - min(c.teacher_average, (1 + t) / (10 + t)) for t in range(steps)],
    }
    return {
        name: torch.tensor(column, dtype=torch.float32, device=device)
        for name, column in columns.items()
    }


def ramp(part: float) -> float:
    """From 0 to 1 over a training, as the reversed gradient of DANN.

    Reference: Ganin et al. 2016, section 5.2.2.

    Example:
        >>> ramp(0.0), round(ramp(0.5), 3)
        (0.0, 0.987)
    """
    return 2 / (1 + math.exp(-10 * part)) - 1


def _on_gpu(device: torch.device) -> bool:
    return device.type == "cuda"


def _follow(copies: nn.Module, nets: nn.ModuleDict, weight: Tensor) -> None:
    """Move averaged parameters towards those of the same names, in a few calls for all."""
    own = dict(nets.named_parameters())
    names, olds = zip(*copies.named_parameters(), strict=True)
    foreach: Any = torch  # its functions over lists have no public names
    changes = foreach._foreach_sub([own[name] for name in names], olds)
    foreach._foreach_mul_(changes, weight)
    foreach._foreach_add_(olds, changes)


def _lay_out(gradient: Tensor, parameter: Tensor) -> Tensor:
    """A gradient laid out in memory like its parameter, as the fused Adam needs it."""
    if gradient.stride() == parameter.stride():
        return gradient
    return torch.empty_like(parameter).copy_(gradient)
