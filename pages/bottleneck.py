"""The numbers of the information bottleneck."""

from __future__ import annotations

from itertools import pairwise
from statistics import fmean

from pages import results
from pages.results import cells, summary
from pages.texts import span, spread, table

NAME = "information-bottleneck"


def _mean(mode: str, method: str, metric: str) -> float:
    """Over the seeds, at the end of training."""
    own = [c.values[metric][-1] for c in cells(NAME) if (c.mode, c.method) == (mode, method)]
    return fmean(own)


def errors() -> str:
    """Errors in percent, and what the code holds at the end."""
    found = summary(NAME)
    rows = []
    for mode, method, task, metric in found:
        if metric == "error":
            last, best = (found[mode, method, task, m] for m in ("error", "error_oracle"))
            nats = [f"{_mean(mode, method, m):.1f}" for m in ("x_lower", "x_upper", "y")]
            paper = "" if best.paper is None else f"{best.paper:.2f}"
            rows.append([mode, method, spread(last, ".2f"), spread(best, ".2f"), paper, *nats])
    head = ["mode", "method", "last epoch", "best epoch", "paper"]
    return table([*head, "I(x; z) at least", "at most", "I(y; z)"], rows)


def error(mode: str, metric: str = "error") -> float:
    """Of sampled CLUB in percent, in the last epoch or in the best one (error_oracle)."""
    return summary(NAME)[mode, "club_sample", "mnist", metric].mean


def paper() -> float:
    """The same in the paper, in its best epoch."""
    return summary(NAME)["correct", "club_sample", "mnist", "error"].paper


def above_paper() -> str:
    """How far the best epochs of the four forms of CLUB are above the paper's."""
    found = summary(NAME)
    forms = "club", "club_sample", "vclub", "vclub_sample"
    best = [found["correct", method, "mnist", "error_oracle"] for method in forms]
    return span((each.mean - each.paper for each in best), ".2f")


def change() -> float:
    """Mean change of the error from one epoch to the next, late in all trainings."""
    return fmean(abs(b - a) for c in cells(NAME) for a, b in pairwise(c.values["curve"][100:]))


def luck() -> float:
    """Mean distance from the second hundred epochs to the best one."""
    return fmean(fmean(c.values["curve"][100:]) - min(c.values["curve"]) for c in cells(NAME))


def paper_range() -> float:
    """Between the upper bounds of the paper's table."""
    names = "vub", "club", "club_sample", "vclub", "vclub_sample"
    own = [summary(NAME)["correct", method, "mnist", "error"].paper for method in names]
    return max(own) - min(own)


def rates() -> str:
    """What leave-one-out allows the code of vCLUB, by beta and by the rate of q."""
    rows = []
    for beta, rate in (("0.001", "1"), ("0.002", "1"), ("0.002", "10")):
        (cell,) = cells(f"estimator-rate/beta-{beta}-rate-{rate}/{NAME}")
        if (cell.values["beta"], cell.config["estimator_rate"]) != (float(beta), float(rate)):
            raise ValueError(f"Expected beta {beta} and rate {rate} but got others; run it again.")
        rows.append([beta, rate, *(f"{nats:.1f}" for nats in cell.values["x_upper"][-2:])])
    head = ["beta", "rate of q, in terms of the encoder's", "after 5 epochs", "after 10"]
    return table(head, rows)


def seconds() -> float:
    """A training with CLUB on a GPU."""
    return results.seconds(NAME)
