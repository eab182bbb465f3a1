"""The numbers of domain adaptation. Tasks, methods and modes are called as in the results."""

from __future__ import annotations

from statistics import fmean
from types import SimpleNamespace
from typing import Any

import numpy as np

from experiments import EXPERIMENTS
from experiments.domain_adaptation.images import SHARED
from experiments.runner import Cell
from pages import results
from pages.results import cells, section, summary
from pages.texts import span, spread, table

NAME, TRIALS = "domain-adaptation", "domain-adaptation-trials"
CLUB = "club_sample"
TRANSFERS = (
    "mnist-mnistm",
    "mnist-usps",
    "usps-mnist",
    "svhn-mnist",
    "cifar10-stl10",
    "stl10-cifar10",
)
LOWER = "nwj", "mine", "infonce"
BOUNDS = *LOWER, "vub", "l1out", "club", CLUB
OTHERS = "dann", "dsn", "mcd"
MOST = TRANSFERS[0], TRANSFERS[3]  # where there is most to gain

# VADA and DIRT-T as Shu et al. 2018 report them, without and with instance-normalised input; the
# last two rows at second hand: French et al. 2018, and the highest value found in later papers.
LATER = {
    "VADA": ("97.7", "", "", "97.9", "80.0", "73.5"),
    "VADA, instance norm": ("95.7", "", "", "94.5", "78.3", "71.4"),
    "DIRT-T": ("98.9", "", "", "99.4", "", "75.3"),
    "DIRT-T, instance norm": ("98.7", "", "", "99.4", "", "73.3"),
    "self-ensembling": ("", "98.2", "99.5", "99.3", "80.1", "69.9"),
    "best found since": (
        "99.5 (RCA)",
        "99.5 (DTA)",
        "99.2",
        "99.6 (GADA)",
        "82.6 (DTA)",
        "77.8 (RCA)",
    ),
}


def entry(mode: str, method: str, task: str, metric: str = "accuracy") -> SimpleNamespace:
    """Mean, sd, seeds and the paper's value."""
    return summary(NAME)[mode, method, task, metric]


def accuracy(mode: str, method: str, task: str, metric: str = "accuracy") -> float:
    """In percent of the target's test images, the mean over the seeds."""
    return entry(mode, method, task, metric).mean


def paper(method: str, task: str) -> float:
    """The same in the paper's Table 2."""
    return entry("correct", method, task).paper


def gain(task: str, metric: str = "accuracy", mode: str = "correct") -> float:
    """Of sampled CLUB over source-only."""
    return accuracy(mode, CLUB, task, metric) - accuracy(mode, "source", task, metric)


def trained(mode: str, task: str, method: str = CLUB, **settings: object) -> list[SimpleNamespace]:
    """Cells of seed 0 with some settings, in the trials or in the results."""
    return [
        cell
        for folder in (TRIALS, NAME)
        for cell in cells(folder)
        if (cell.mode, cell.task, cell.method, cell.seed) == (mode, task, method, 0)
        if all(cell.config[name] == value for name, value in settings.items())
    ]


# --- tables --------------------------------------------------------------------------------------


def last_step() -> str:
    """Accuracies after the last step, by the equations."""
    rows = [[m, *(spread(entry("correct", m, t)) for t in TRANSFERS)] for m in _methods()]
    return table(["last step", *TRANSFERS], rows)


def picked() -> str:
    """The same where labels of the target pick the step, and the paper's."""

    def text(method: str, task: str) -> str:
        own = entry("correct", method, task, "accuracy_oracle")
        return spread(own) + (f" ({own.paper:.1f})" if own.paper else "")

    rows = [[method, *(text(method, task) for task in TRANSFERS)] for method in _methods()]
    return table(["picked (paper)", *TRANSFERS], rows)


def weights() -> str:
    """Other weights of the mutual information, as far as they were tried."""
    kept = "mnist-mnistm", "mnist-usps", "cifar10-stl10", "stl10-cifar10"

    def text(method: str, task: str, weight: float) -> str:
        own = trained("correct", task, method, mi_weight=weight, domain_widths=None)
        if len(own) > 1:
            raise ValueError(f"Expected one training of {task} but got several; choose one.")
        return f"{own[0].values['accuracy']:.1f}" if own else ""

    tried = [(CLUB, 0.01), (CLUB, 0.02), *((m, 0.1) for m in (CLUB, "vub", "nwj", "infonce"))]
    rows = [[method, w, *(text(method, task, w) for task in kept)] for method, w in tried]
    return table(["method", "weight", *kept], rows)


def as_published() -> str:
    """MNIST to MNIST-M with the settings of the authors' code."""
    rows = []
    for mode, method, task, metric in summary(NAME):
        if (mode, metric) == ("as-published", "accuracy"):
            last, best = (entry(mode, method, task, m) for m in (metric, "accuracy_oracle"))
            rows.append([method, f"{last.mean:.1f}", f"{best.mean:.1f}", f"{last.paper:.1f}"])
    return table(["MNIST to MNIST-M", "last step", "picked", "paper"], rows)


def recipe() -> str:
    """The recipe beside the paper and later work."""
    rows = [
        ["sampled CLUB", *(spread(entry("recipe", CLUB, t)) for t in TRANSFERS)],
        ["sampled CLUB, picked"]
        + [spread(entry("recipe", CLUB, t, "accuracy_oracle")) for t in TRANSFERS],
        ["source, the same additions", *(spread(entry("recipe", "source", t)) for t in TRANSFERS)],
        _paper(),
        *([name, *values] for name, values in LATER.items()),
    ]
    return table(["last step", *TRANSFERS], rows)


def in_short() -> str:
    """For the README."""
    modes = {
        "without adaptation": ("correct", "source"),
        "sampled CLUB by the equations": ("correct", CLUB),
        "sampled CLUB, with what later work adds": ("recipe", CLUB),
        "what later work adds, without CLUB": ("recipe", "source"),
    }
    rows = [[title, *(f"{accuracy(*m, t):.1f}" for t in TRANSFERS)] for title, m in modes.items()]
    return table(["", *TRANSFERS], [*rows, _paper()])


def settings() -> str:
    """The settings of the recipe, for digits and for objects."""
    config = EXPERIMENTS[NAME].config()
    digits, objects = (
        SimpleNamespace(**config.settings_of(Cell("recipe", task, CLUB, 0)))
        for task in TRANSFERS[3:5]
    )
    rows = {
        "steps": lambda s: s.steps,
        "channels of the content encoder": lambda s: " ".join(map(str, s.widths)),
        "images of each domain per step": lambda s: s.batch_size,
        "normalised by": lambda s: s.normalisation,
        "random shifts, and flips of objects": lambda s: s.shift,
        "random warps": lambda s: f"{s.warp:g}",
        "random signs of channels, smooth colours": lambda s: f"{s.inversion:g}, {s.background:g}",
        "weight of the averaged teacher": lambda s: f"{s.teacher:g}",
        "probability from which it is believed": lambda s: s.teacher_threshold,
        "weight of equal shares of the classes": lambda s: s.balance,
        "weight of the mutual information": lambda s: s.mi_weight,
    }
    return table(
        ["setting", "digits", "objects"],
        [[name, read(digits), read(objects)] for name, read in rows.items()],
    )


def shares() -> str:
    """What one change makes of the recipe."""
    return section(f"{NAME}/table.md", f"What each ingredient gives {CLUB}")


def _methods() -> list[str]:
    return ["source", *BOUNDS, *OTHERS]


def _paper() -> list[str]:
    values = [entry("correct", CLUB, task).paper for task in TRANSFERS]
    return ["sampled CLUB in the paper", *(f"{value:.1f}" for value in values)]


# --- numbers in the text -------------------------------------------------------------------------


def largest_gain() -> float:
    """Of sampled CLUB over source-only, over all tasks."""
    return max(map(gain, TRANSFERS))


def below_paper(*which: str) -> list[float]:
    """How far both forms of CLUB, picked, are below the paper's; with a word, where it stands."""
    own = [
        entry("correct", method, task, "accuracy_oracle")
        for method in ("club", CLUB)
        for task in TRANSFERS
        if ("usps" in task) == ("usps" in which)
    ]
    return [each.paper - each.mean for each in own]


def most_below_on_usps() -> float:
    """The largest of these distances, with USPS on one side."""
    return max(below_paper("usps"))


def below_elsewhere() -> str:
    """Their span on the other tasks."""
    return span(below_paper())


def lower_bounds(where: str) -> str:
    """Gains of the lower bounds where there is most to gain, here or in the paper."""
    own = [
        (entry("correct", method, task), entry("correct", "source", task))
        for method in LOWER
        for task in MOST
    ]
    if where == "paper":
        return span(bound.paper - source.paper for bound, source in own)
    return f"{max(bound.mean - source.mean for bound, source in own):.1f}"


def domain_read(task: str, method: str, weight: str) -> float:
    """How often a linear classifier reads the domain from the content, in percent."""
    own = trained("correct", task, method, mi_weight=float(weight), domain_widths=None)
    return own[0].values["domain_in_content"]


def domain_read_as_published(method: str) -> float:
    """The same with the settings of the authors' code."""
    return trained("as-published", TRANSFERS[0], method)[0].values["domain_in_content"]


def others_apart() -> float:
    """How far DANN and DSN are from sampled CLUB at most, MNIST-M left out."""
    return max(
        abs(accuracy("correct", method, task) - accuracy("correct", CLUB, task))
        for method in ("dann", "dsn")
        for task in TRANSFERS[1:]
    )


def _nats() -> list[SimpleNamespace]:
    return [cell for cell in cells(NAME) if cell.mode == "correct" and cell.method in BOUNDS]


def information(when: str) -> str:
    """Mutual information of the embeddings with any bound, before or after training."""
    ends = [cell.values["mi"][0 if when == "before" else -1] for cell in _nats()]
    return span(ends, ".0f" if when == "before" else ".1f")


def information_lower() -> str:
    """How much lower it ends with sampled CLUB than with the lower bounds, over the tasks."""

    def end(method: str, task: str) -> float:
        return fmean(c.values["mi"][-1] for c in _nats() if (c.method, c.task) == (method, task))

    return span((fmean(end(m, t) for m in LOWER) - end(CLUB, t) for t in TRANSFERS), ".2f")


def past_paper() -> str:
    """How far the recipe is above the paper."""
    own = [entry("recipe", CLUB, task) for task in TRANSFERS]
    return span(each.mean - each.paper for each in own)


def confusion(task: str) -> np.ndarray:
    """Test images by class and prediction, over the seeds of the recipe."""
    own = [c for c in cells(NAME) if (c.mode, c.method, c.task) == ("recipe", CLUB, task)]
    return np.sum([cell.values["confusion"] for cell in own], 0)


def cats_and_dogs(task: str) -> float:
    """The share of one taken for the other among all errors, in percent."""
    counts = confusion(task)
    cat, dog = SHARED.index("cat"), SHARED.index("dog")
    return 100 * (counts[cat, dog] + counts[dog, cat]) / (counts.sum() - counts.trace())


def trial(task: str, *words: str) -> float:
    """Accuracy of the recipe, or of a trial of it, with settings such as steps=12000."""
    pairs = (word.split("=") for word in words)
    own: dict[str, Any] = {name: v if v.isalpha() else float(v) for name, v in pairs}
    (found,) = {cell.values["accuracy"] for cell in trained("recipe", task, **own)}
    return found


def warps(task: str) -> float:
    """What random warps give on a task, in points."""
    return trial(task, "balance=0.5", "warp=0.05") - trial(task, "balance=0.5", "warp=0")


def nines() -> float:
    """Recognised from SVHN to MNIST without equal shares, in percent."""
    method = f"{CLUB}-without-balance"
    (own,) = trained("recipe", "svhn-mnist", method, mi_gradient="content")
    counts = np.array(own.values["confusion"])[9]
    return 100 * counts[9] / counts.sum()


def domain_read_by_change(mutual_information: str) -> str:
    """How often the domain of MNIST-M is read with one change, with or without a bound."""
    seeds: dict[str, list[float]] = {}
    for cell in cells(NAME):
        if (
            cell.mode == "recipe"
            and cell.task == TRANSFERS[0]
            and cell.method.startswith(f"{CLUB}-")
        ):
            seeds.setdefault(cell.method, []).append(cell.values["domain_in_content"])
    found = {method: fmean(values) for method, values in seeds.items()}
    without = found.pop(f"{CLUB}-without-mi")
    return f"{without:.1f}" if mutual_information == "without" else span(found.values())


def early_gain(step: str) -> float:
    """Of the recipe over source-only with its additions, from SVHN to MNIST after some steps."""
    found = []
    for method in (CLUB, "source"):
        own = [
            cell.values
            for cell in cells(NAME)
            if (cell.mode, cell.method, cell.task) == ("recipe", method, "svhn-mnist")
        ]
        found.append(fmean(v["curve"][v["steps"].index(int(step))] for v in own))
    return found[0] - found[1]


def both_gradients() -> str:
    """Where the seeds of SVHN to MNIST end if both encoders get the gradient."""
    own = {
        cell.seed: f"{cell.values['accuracy']:.1f}"
        for cell in cells(NAME)
        if (cell.mode, cell.method) == ("recipe", f"{CLUB}-both-gradients")
        and cell.task == "svhn-mnist"
    }
    return f"{own[0]}, {own[1]} and {own[2]}"


def other_bounds_apart() -> float:
    """How far the other bounds are from source-only at most, with that gradient to both."""
    return max(
        abs(accuracy("recipe", f"{bound}-both-gradients", t) - accuracy("recipe", "source", t))
        for bound in ("nwj", "infonce", "vub", "club")
        for t in MOST
    )


def seconds() -> float:
    """A training with sampled CLUB on a GPU."""
    return results.seconds(NAME)
