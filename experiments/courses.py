"""The training of one method on one task: steps, tests, and states to go on from.

A step, with all its losses, updates and averages and with the fitting of the estimator in it, is
one CUDA graph on a GPU. Everything that changes from step to step therefore lives in tensors that
stay where they are, the number of the step among them. All that is random in a block of steps comes
from generators that are seeded by the seed of the cell and the number of the block, so that an
interrupted training goes on as if nothing had happened.
"""

from __future__ import annotations

import copy
import hashlib
import math
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from experiments.adaptations import BETAS, Batch, make_adaptation
from experiments.domains import TASKS, Domain, Normaliser
from experiments.encoders import Encoder, collecting, forget_statistics
from experiments.ingredients import (
    DomainAdaptationConfig,
    ramp,
    settle,
    split_method,
)
from experiments.runner.base import Cell
from experiments.states import SUFFIX, read_state, write_state
from experiments.views import Views
from mibounds.estimators.cuda_graphs import record_cuda_graph
from mibounds.estimators.stacked_training import EPS, cosine
from mibounds.measure.estimation import estimate

BLOCK = 100  # steps whose random numbers are drawn at once
EVERY = 20  # blocks between two states on disk
CALIBRATION = 500  # training images of a domain that give the batch statistics of a test
TEST_BATCH = 500
VALIDATION = 2000  # target training images by whose labels the oracle picks; as many of the source
MEASURED = 1500  # held-out images of each domain by which mutual information is measured
MEASURES = 4  # how often that is done
RIDGE = 1e-3  # of the classifier that reads labels from domain embeddings
SIDES = ("source", "target")
DONE = "blocks done"  # where a state keeps their number


class Course:
    """One training.

    Args:
        config: its settings.
        cell: which.
        source: images with labels.
        target: images; their labels are for tests alone.
    """

    def __init__(self, config: DomainAdaptationConfig, cell: Cell, source: Domain, target: Domain):
        self.config, self.cell, self.domains = config, cell, (source, target)
        self.device = source.images.device
        self.settings = s = settle(config, cell)
        self.task = TASKS[cell.task]
        self.steps = s.steps
        bf16 = config.precision == "bf16" and self.device.type == "cuda"
        method, _ = split_method(cell.method)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(cell.seed)
            self.model = make_adaptation(method, s, self.task, bf16, cell.seed)
        self.model.to(self.device)
        self.averaged = copy.deepcopy(self.model.nets).eval().requires_grad_(False)
        self.views = Views(s, self.task.flips, self.task.side, self.device)
        self.normalisers = [Normaliser(domain, s.normalisation) for domain in self.domains]
        self.parts = {name: list(net.parameters()) for name, net in self.model.nets.items()}
        self.moments: dict[Tensor, tuple[Tensor, Tensor, Tensor]] = {
            p: (torch.zeros_like(p), torch.zeros_like(p), torch.zeros((), device=self.device))
            for parameters in self.parts.values()
            for p in parameters
        }
        self.number = torch.zeros(1, dtype=torch.int64, device=self.device)  # of the step, of all
        self.place = torch.zeros_like(self.number)  # of the step, in its block
        self.tables = self._tables()
        self.given: dict[str, Tensor] = {}
        self.replay: Callable[[], object] | None = None
        self.captured = False
        self.blocks = -(-self.steps // BLOCK)
        self.done = 0  # blocks
        # Whose batch statistics are in use.
        self.collected: tuple[int, str, bool | None] | None = None
        self.found: dict[str, list[Any]] = {}

    def _tables(self) -> dict[str, Tensor]:
        """What depends on the number of the step alone."""
        s, steps = self.settings, self.steps
        ramps = [ramp(t / steps) for t in range(steps)]
        rates = list(cosine(steps, s.lr)) if s.rates == "cosine" else [s.lr] * steps
        schedules = {"constant": [1.0] * steps, "ramp": ramps, "fall": list(cosine(steps, 1.0))}
        columns = {
            "rate": rates,
            "ramp": ramps,
            "mi_weight": [s.mi_weight * part for part in schedules[s.mi_schedule]],
            # At first the plain mean of all steps: the beginning is not to be remembered for long.
            "average": [1 - min(s.average, (1 + t) / (10 + t)) for t in range(steps)],
            "teacher": [1 - min(s.teacher_average, (1 + t) / (10 + t)) for t in range(steps)],
        }
        return {
            name: torch.tensor(column, dtype=torch.float32, device=self.device)
            for name, column in columns.items()
        }

    # --- a step

    def step(self) -> None:
        """One step. Nothing in it depends on a value that the CPU has to see."""
        now = {k: v.index_select(0, self.number).squeeze(0) for k, v in self.tables.items()}
        given = {k: v.index_select(0, self.place).squeeze(0) for k, v in self.given.items()}
        x = self._images(given, 0)
        labels = self.domains[0].labels.index_select(0, given["source"])
        again = self._images(given, 1) if self.settings.two_views else x
        batch = Batch(x, labels, again, now["ramp"], now["mi_weight"])
        for loss, names in self.model.phases(batch):
            self.update(loss, names, now["rate"])
        with torch.no_grad():
            _follow(self.averaged, self.model.nets, now["average"])
            if self.model.teacher is not None:
                _follow(self.model.teacher, self.model.nets, now["teacher"])
            self.number.add_(1)
            self.place.add_(1)

    def _images(self, given: dict[str, Tensor], view: int) -> Tensor:
        """The joined batch: of the source, then of the target."""
        drawn = {name: each for name, each in given.items() if name not in SIDES}
        parts = [
            self.views.make(domain.images, given[name], normalise, drawn, view, i)
            for i, (name, domain, normalise) in enumerate(
                zip(SIDES, self.domains, self.normalisers, strict=True)
            )
        ]
        return torch.cat(parts).contiguous(memory_format=torch.channels_last)

    def update(self, loss: Tensor, names: Sequence[str], rate: Tensor) -> None:
        """A step of Adam for some of the networks."""
        parameters: list[Tensor] = [p for name in names for p in self.parts[name]]
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
                lr=rate,  # a tensor, which a graph can read anew in each replay
                beta1=BETAS[0],
                beta2=BETAS[1],
                weight_decay=0.0,
                eps=EPS,
                amsgrad=False,
                maximize=False,
            )

    def tensors(self) -> dict[str, Tensor]:
        """All that a step writes and the next one reads."""
        found = {"number": self.number, "place": self.place}
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

    # --- blocks of steps

    def draw(self, block: int) -> dict[str, Tensor]:
        """What the steps of a block are given; it depends on seed and block alone."""
        s, seed = self.settings, _seed(self.cell.seed, block)
        g = torch.Generator(self.device).manual_seed(seed)
        count = min(BLOCK, self.steps - block * BLOCK)
        index = {
            name: torch.randint(len(d.images), (count, s.batch_size), generator=g, device=g.device)
            for name, d in zip(SIDES, self.domains, strict=True)
        }
        return index | self.views.draw(count, g)

    def take_block(self) -> None:
        """Take the steps of the next block."""
        drawn = self.draw(self.done)
        if self.replay is None:
            self.given = {name: each.clone() for name, each in drawn.items()}
            self.place.zero_()
            self.replay = self._record()
        for name, each in drawn.items():
            self.given[name][: len(each)].copy_(each)
        self.place.zero_()
        seed = _seed(self.cell.seed, self.done)
        torch.manual_seed(seed)  # of dropout and noise, on every device
        if self.model.penalty is not None:
            self.model.penalty.generator.manual_seed(seed)
        for _ in range(len(drawn["source"])):
            self.replay()
        self.done += 1

    def _record(self) -> Callable[[], object]:
        if not _on_gpu(self.device):
            return self.step
        penalty = self.model.penalty
        generators = [] if penalty is None else [penalty.generator]
        replay = record_cuda_graph(self.step, list(self.tensors().values()), generators)
        if isinstance(replay, RuntimeError):
            warnings.warn(
                f"the step is not recorded, which is slow: {replay}; "
                "let it run, or take out of the step what waits for the GPU.",
                stacklevel=2,
            )
            return self.step
        self.captured = True
        return replay

    def run(self) -> dict[str, list[Any]]:
        """Train and test, from the last state on disk if there is one.

        Returns:
            Lists by name, as long as there were tests or measurements.
        """
        path = self._path()
        devices = [self.device] if self.device.type == "cuda" else []
        with torch.random.fork_rng(devices=devices):
            if path is not None and path.exists():
                self.load(path)
            else:
                self.test()
            while self.done < self.blocks:
                self.take_block()
                if self._due(self.config.points) or self._due(MEASURES - 1):
                    self.test()
                if path is not None and self.done % EVERY == 0 and self.done < self.blocks:
                    self.save(path)
        if path is not None:
            path.unlink(missing_ok=True)
        return self.found

    def _due(self, times: int) -> bool:
        """Whether something that is done so often is to be done after this block."""
        before, after = ((self.done - k) * times // self.blocks for k in (1, 0))
        return after > before or self.done == self.blocks

    # --- tests

    @torch.no_grad()
    def test(self) -> None:
        """Accuracy on the target, by averaged weights; and at times the mutual information."""
        step = min(self.done * BLOCK, self.steps)
        source, target = self.domains
        rows = _spread(len(target.images), VALIDATION, self.device)
        self._keep("steps", step)
        given = target.test_images, target.test_labels, True
        self._keep("curve", self.accuracy(*given))
        if self.done == self.blocks:
            self._keep("as_trained", self.accuracy(*given, as_trained=True))
            self._keep("confusion", self.confuse(*given).tolist())
            (z,) = self._embed_both(("content",), MEASURED, as_trained=True)
            self._keep("domain_in_content", read_labels(z, self._sides(MEASURED)))
            if self.model.domain_embedding:
                z = self.embed("domain", source.test_images[:VALIDATION], False)
                self._keep("labels_in_domain", read_labels(z, source.test_labels[:VALIDATION]))
        self._keep("picking", self.accuracy(target.images[rows], target.labels[rows], True))
        images, labels = source.test_images[:VALIDATION], source.test_labels[:VALIDATION]
        self._keep("source_curve", self.accuracy(images, labels, False))
        if not self.done or self._due(MEASURES - 1):
            self._keep("mi_steps", step)
            self._keep("mi", self.measure())
        if self.config.embedded and self.cell.seed == 0 and self.done in (0, self.blocks):
            for name, points in self.project().items():
                self._keep(name, points)

    def _keep(self, name: str, value: Any) -> None:
        self.found.setdefault(name, []).append(value)

    def accuracy(
        self, images: Tensor, labels: Tensor, target: bool, as_trained: bool = False
    ) -> float:
        """Percentage of images that are classified rightly; arguments as those of `embed`."""
        right = self.predict(images, target, as_trained) == labels
        return 100 * right.float().mean().item()

    def confuse(self, images: Tensor, labels: Tensor, target: bool) -> Tensor:
        """How many images of each class, in rows, are taken for which class, in columns."""
        classes = self.task.classes
        places = labels * classes + self.predict(images, target)
        return places.bincount(minlength=classes**2).view(classes, classes)

    def predict(self, images: Tensor, target: bool, as_trained: bool = False) -> Tensor:
        """The likeliest classes; arguments as those of `embed`."""
        z = self.embed("content", images, target, as_trained)
        return self.averaged["classifier"](z).argmax(1)

    @torch.no_grad()
    def embed(self, kind: str, images: Tensor, target: bool, as_trained: bool = False) -> Tensor:
        """Content or domain embeddings of images of one domain, by averaged weights.

        Args:
            kind: "content" or "domain".
            images: as bytes.
            target: whether they are of the target.
            as_trained: whether batch statistics are those of training rather than of a test.
        """
        nets, normalise = self.averaged, self.normalisers[int(target)]

        def through(x: Tensor) -> Tensor:
            if kind == "content":
                return nets["content"](x)
            return self.model.embed_domain(nets, x, target)

        self._collect(target, as_trained)
        return torch.cat([through(normalise(part)) for part in images.split(TEST_BATCH)])

    def _embed_both(
        self, kinds: Sequence[str], count: int, as_trained: bool = False
    ) -> list[Tensor]:
        """Embeddings of each kind of so many held-out images of the source, then of the target."""
        sides = [
            [self.embed(kind, each.test_images[:count], bool(i), as_trained) for kind in kinds]
            for i, each in enumerate(self.domains)
        ]
        return [torch.cat(parts) for parts in zip(*sides, strict=True)]

    def _sides(self, count: int) -> Tensor:
        """Which domain each row is of, of what `_embed_both` gives."""
        counts = [min(count, len(domain.test_images)) for domain in self.domains]
        return torch.arange(2).repeat_interleave(torch.tensor(counts))

    def _collect(self, target: bool, as_trained: bool) -> None:
        """Put batch statistics of training images to use, unless they are already."""
        s = self.settings
        how = s.statistics if as_trained or s.test_statistics == "joined" else s.test_statistics
        split = {"content": how, "domain": s.domain_statistics}
        wanted = self.done, how, target if "split" in split.values() else None
        if wanted == self.collected:
            return
        x = [
            normalise(domain.images[_spread(len(domain.images), CALIBRATION, self.device)])
            for domain, normalise in zip(self.domains, self.normalisers, strict=True)
        ]
        for name, net in self.averaged.items():
            if isinstance(net, Encoder):
                forget_statistics(net)
                own = split.get(name, "split")
                side = int(name == "private_target") if name.startswith("private") else int(target)
                if own != "batch":
                    with collecting(net):
                        net(x[side] if own == "split" else torch.cat(x))
        self.collected = wanted

    def measure(self) -> float:
        """Mutual information of the two embeddings on held-out images, by a Gaussian copula."""
        if not self.model.domain_embedding:
            return math.nan
        content, domain = self._embed_both(("content", "domain"), MEASURED, as_trained=True)
        try:
            result = estimate(content.cpu(), domain.cpu(), methods="gaussian_copula", budget="fast")
        except ValueError:  # too few images for so many columns, or values that are not finite
            return math.nan
        return result.nats

    def project(self) -> dict[str, list[float]]:
        """The embeddings of some held-out images in two dimensions."""
        count = self.config.embedded
        kinds = ["content", *(["domain"] if self.model.domain_embedding else [])]
        found = {}
        for kind, z in zip(kinds, self._embed_both(kinds, count), strict=True):
            points = project(z.cpu())
            points = 100 * points / points.abs().max().clamp_min(EPS)  # few digits are enough
            found[f"plane_{kind}"] = [round(v, 1) for v in points.flatten().tolist()]
        return found

    # --- states

    def _path(self) -> Path | None:
        if not self.config.checkpoints:
            return None
        sizes = [len(domain.images) for domain in self.domains]
        what = f"{self.config.settings_of(self.cell)} {sizes} {self.device.type}"
        name = hashlib.sha256(what.encode()).hexdigest()[:16]
        return Path(self.config.checkpoints) / f"{self.cell.name}_{name}{SUFFIX}"

    def save(self, path: Path) -> None:
        """Write the state."""
        found = {name: np.array(values) for name, values in self.found.items()}
        write_state(path, self.tensors(), {DONE: np.array(self.done), **found})

    def load(self, path: Path) -> None:
        """Go on from a state."""
        found = read_state(path, self.tensors())
        self.done = int(found.pop(DONE))
        self.found = {name: values.tolist() for name, values in found.items()}
        if self.model.penalty is not None:
            self.model.penalty.calls = int(self.number)


def _on_gpu(device: torch.device) -> bool:
    return device.type == "cuda"


def _seed(seed: int, block: int) -> int:
    return 1_000_003 * (seed + 1) + block


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


def _spread(n: int, count: int, device: torch.device) -> Tensor:
    """So many row numbers, evenly over all."""
    return torch.linspace(0, n - 1, min(n, count), device=device).round().long()


def read_labels(z: Tensor, labels: Tensor) -> float:
    """Percentage of labels that a linear classifier reads rightly from embeddings.

    It is fitted to every other one of them by least squares, and tested on the rest.

    Example:
        >>> labels = torch.arange(60) % 3
        >>> read_labels(torch.eye(3)[labels] + 0.1 * torch.randn(60, 3), labels)
        100.0
    """
    z, labels = z.double().cpu(), labels.cpu()
    z = F.pad((z - z.mean(0)) / (z.std(0) + EPS), (0, 1), value=1.0)
    known, wanted = z[::2], F.one_hot(labels)[::2].double()
    ridge = RIDGE * len(known) * torch.eye(z.shape[1], dtype=z.dtype)
    weights = torch.linalg.solve(known.T @ known + ridge, known.T @ wanted)
    right = (z[1::2] @ weights).argmax(1) == labels[1::2]
    return 100 * right.double().mean().item()


def project(z: Tensor) -> Tensor:
    """Points in two dimensions: by t-SNE where scikit-learn is installed, else by PCA.

    Example:
        >>> project(torch.randn(20, 5)).shape
        torch.Size([20, 2])
    """
    z = torch.nan_to_num(z.double())
    try:
        from sklearn.manifold import TSNE  # pyright: ignore[reportMissingImports]
    except ImportError:
        centred = z - z.mean(0)
        _, _, directions = torch.linalg.svd(centred, full_matrices=False)
        return centred @ directions[:2].T
    perplexity = min(30.0, (len(z) - 1) / 3)
    points = TSNE(init="pca", perplexity=perplexity, random_state=0).fit_transform(z.numpy())
    return torch.from_numpy(np.asarray(points))
