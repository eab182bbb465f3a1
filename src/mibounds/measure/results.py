"""What a measurement of mutual information found: numbers, diagnostics, and what they mean.

A `Measurement` holds data and computes nothing. The point value with its interval comes first. The
bracket between the best lower and the tightest upper bound is independent evidence: it does not
depend on the model behind the point value. The warnings say in words where the data or a fit are
outside what the methods can do. `Estimate`, what `estimate` returns, also prints and draws itself.

A warning whose code begins with the name of a method and a hyphen ("infonce-ceiling") concerns that
method; one that begins with "q-" concerns the methods whose value stands or falls with a fitted
q(y|x). If the point value comes from another method, the warning weakens a side of the bracket and
leaves the number as it is: `Measurement.verdict` distinguishes these cases.
"""

from __future__ import annotations

import dataclasses
import json
import math
from dataclasses import dataclass
from typing import Any, TypeVar

from mibounds.measure.canonical_codes import CanonicalCodes
from mibounds.measure.methods import METHODS

__all__ = ["Advice", "FitRecord", "HistoryPoint", "Measurement", "MethodResult"]

M = TypeVar("M", bound="Measurement")

HARMLESS = "constant-columns"
# Ends of codes of what the interval accounts for, or what only says how to read the value.
ACCOUNTED = (
    "-subsampled", "-growing", "-uncertified", "-linear", "codes-ceiling", "-not-used",
    "constant-columns", "upper-under-lower",
)  # fmt: skip


@dataclass(frozen=True)
class Advice:
    """A diagnostic: what is wrong, and what to do about it.

    Args:
        code: a short name; begins with a method's name if it concerns only that method.
        message: what is wrong, with numbers.
        remedy: what to do about it.

    Example:
        >>> print(Advice("few-samples", "30 samples in 40 dimensions.", "Collect more samples."))
        few-samples: 30 samples in 40 dimensions. Collect more samples.
    """

    code: str
    message: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.code}: {self.message} {self.remedy}"


@dataclass(frozen=True)
class MethodResult:
    """The value of one method.

    Args:
        method: its name in `METHODS`, or that name with the name of a bound on the same fit.
        side: "upper", "lower" or "neither".
        condition: under which condition it is a bound; "" if there is none.
        nats: the value.
        error: its standard error in nats, if it has one.
        seconds: the time it took.

    Example:
        >>> MethodResult("infonce", "lower", "", 0.65, 0.01, 2.5).bits > 0.65
        True
    """

    method: str
    side: str
    condition: str
    nats: float
    error: float | None
    seconds: float

    @property
    def bits(self) -> float:
        """The value in bits."""
        return self.nats / math.log(2)


@dataclass(frozen=True)
class HistoryPoint:
    """One point of a training curve.

    Args:
        method: what was trained.
        fold: on which part of the data, counted from 0.
        step: after how many steps.
        loss: the training loss at that step.
        held_out: the same loss on held-out samples.

    Example:
        >>> HistoryPoint("club", fold=0, step=100, loss=1.25, held_out=1.5).held_out
        1.5
    """

    method: str
    fold: int
    step: int
    loss: float
    held_out: float


@dataclass(frozen=True)
class FitRecord:
    """What became of one fit.

    Args:
        method: what was fitted, as in the training curves.
        fold: on which part of the data, counted from 0.
        corrects: the model without networks that it is a correction of; "" for none.
        steps: after how many it stopped; 0 if there were no networks to fit.
        used: False if it was dropped, since on held-out rows it was no better than that model.

    Example:
        >>> FitRecord("copula_model q(y | x)", 0, "the Gaussian", 80, False).used
        False
    """

    method: str
    fold: int
    corrects: str
    steps: int
    used: bool


@dataclass(frozen=True)
class Measurement:
    """The mutual information of two variables by several methods, as data.

    Args:
        nats: the point value.
        interval: its lower and upper end in nats.
        level: how often such an interval covers the truth.
        interval_method: how the interval was computed, in words.
        lower: the best lower bound measured, if any was.
        upper: the tightest upper bound measured, if any was.
        method: the method behind ``nats``.
        rows: the value of each method.
        history: points of the training curves.
        warnings: reasons to distrust the numbers.
        p_value: of independence, by permutations; None if not asked for.
        null: the values under permutation; () if there are none.
        n: number of samples.
        x_dim: columns of x.
        y_dim: columns of y.
        seed: reproduces it.
        seconds: the time it took.
        config: all settings, of types that JSON has.
        fits: which models were fitted, used and dropped.
    """

    nats: float
    interval: tuple[float, float]
    level: float
    interval_method: str
    lower: float | None
    upper: float | None
    method: str
    rows: tuple[MethodResult, ...]
    history: tuple[HistoryPoint, ...]
    warnings: tuple[Advice, ...]
    p_value: float | None
    null: tuple[float, ...]
    n: int
    x_dim: int
    y_dim: int
    seed: int
    seconds: float
    config: dict[str, Any]
    fits: tuple[FitRecord, ...] = ()

    @property
    def formula(self) -> str:
        """What was measured: "I(x; y)", or "I(x; y | z)" where something was given."""
        return "I(x; y | z)" if self.config.get("given") else "I(x; y)"

    @property
    def share(self) -> float | None:
        """The value as a share of the entropy of the label; None if both sides have numbers."""
        entropy = self.config.get("entropy")
        return self.nats / entropy if entropy else None

    @property
    def bits(self) -> float:
        """The point value in bits."""
        return self.nats / math.log(2)

    @property
    def interval_bits(self) -> tuple[float, float]:
        """The interval in bits."""
        return self.interval[0] / math.log(2), self.interval[1] / math.log(2)

    @property
    def verdict(self) -> str:
        """Whether to believe the number: "believe", "care" or "doubt".

        "doubt" if a warning concerns the data or the method behind the number, or if the number is
        not finite; "care" if warnings concern only other methods, or if the number is a bound.
        """
        if not math.isfinite(self.nats) or any(self.concerns(w) for w in self.warnings):
            return "doubt"
        read = any(w.code != HARMLESS for w in self.warnings)
        return "care" if read or self.side != "neither" else "believe"

    @property
    def side(self) -> str:
        """On which side of the truth the number lies, if the method behind it is a bound."""
        own = next((row.side for row in self.rows if row.method == self.method), "")
        return own if own in ("upper", "lower") else "neither"

    def concerns(self, warning: Advice) -> bool:
        """Whether a warning is about the number itself, not only about another method."""
        if warning.code == "few-samples" and self.method == CanonicalCodes.name:
            return False  # a certificate holds for any number of rows and columns
        methods = {row.method for row in self.rows} | {self.method}
        about = [m for m in methods if warning.code.startswith(f"{m}-")]
        if warning.code.startswith("q-"):
            return self.method in METHODS and METHODS[self.method].has_conditional
        if warning.code.endswith(ACCOUNTED):
            return False
        return not about or max(about, key=len) == self.method

    def to_json(self, indent: int | None = None) -> str:
        """The fields by their names and the value in bits, as JSON.

        JSON has no infinite numbers: they become the strings "Infinity", "-Infinity" and "NaN",
        which `from_json` reads as numbers again, except in ``config``, where they stay strings.

        Args:
            indent: spaces per level; everything on one line if left out.
        """
        fields: dict[str, Any] = {"nats": self.nats, "bits": self.bits}
        fields |= dataclasses.asdict(self)
        return json.dumps(_encode(fields), indent=indent, allow_nan=False, ensure_ascii=False)

    @classmethod
    def from_json(cls: type[M], text: str) -> M:
        """Read what `to_json` has written.

        Unknown fields are ignored, so that later versions may add some.
        """
        data = json.loads(text)  # its error is a ValueError that says where
        rows = _read_all(MethodResult, _of(data, "rows", list), "rows")
        history = _read_all(HistoryPoint, _of(data, "history", list), "history")
        advice = _read_all(Advice, _of(data, "warnings", list), "warnings")
        # Estimates of earlier versions have no fits.
        fits = _read_all(FitRecord, _of(data, "fits", list) if "fits" in data else [], "fits")
        ends = _of(data, "interval", list)
        if len(ends) != 2:
            raise ValueError(
                f"Expected interval to have 2 ends but got {len(ends)}; pass the output of to_json."
            )
        rest = {
            "interval": (_float(ends[0], "interval"), _float(ends[1], "interval")),
            "rows": rows,
            "history": history,
            "warnings": advice,
            "null": tuple(_float(value, "null") for value in _of(data, "null", list)),
            "config": _of(data, "config", dict),
            "fits": fits,
        }
        return _read(cls, data, "", rest)

    def to_frame(self) -> Any:
        """The rows as a pandas DataFrame, one line per method.

        Needs the extra ``tables``.
        """
        try:
            import pandas
        except ImportError as error:
            raise ImportError(
                "to_frame() needs the package pandas, which is not installed; "
                "install it with: pip install 'mibounds[tables]'"
            ) from error
        names = [field.name for field in dataclasses.fields(MethodResult)]
        frame = pandas.DataFrame([dataclasses.asdict(row) for row in self.rows], columns=names)
        frame.insert(names.index("nats") + 1, "bits", [row.bits for row in self.rows])
        return frame.astype({name: float for name in ("nats", "bits", "error", "seconds")})


# --- to and from JSON ----------------------------------------------------------------------------


def _encode(value: Any) -> Any:
    """The same, with strings in place of the numbers that JSON does not have."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {key: _encode(item) for key, item in value.items()}
    return [_encode(item) for item in value] if isinstance(value, list | tuple) else value


def _of(data: Any, name: str, kind: type) -> Any:
    """The field of that name, checked for its type."""
    if not isinstance(data, dict):
        raise ValueError(
            f"Expected a JSON object but got {type(data).__name__}; pass the output of to_json."
        )
    if name not in data:
        raise ValueError(
            f"Expected the field {name!r} of an estimate but got none; pass the output of to_json."
        )
    if not isinstance(data[name], kind) or isinstance(data[name], bool) != (kind is bool):
        got = type(data[name]).__name__
        raise ValueError(
            f"Expected {name!r} to be of type {kind.__name__} but got {got}; "
            "pass the output of to_json."
        )
    return data[name]


def _float(value: Any, name: str) -> float:
    if isinstance(value, bool) or not (
        isinstance(value, int | float) or value in ("NaN", "Infinity", "-Infinity")
    ):
        raise ValueError(
            f"Expected {name!r} to be a number but got {value!r}; pass the output of to_json."
        )
    return float(value)


def _read(cls: Any, data: Any, where: str, given: dict[str, Any] | None = None) -> Any:
    """An instance of a dataclass from a JSON object."""
    values = dict(given or {})
    for field in dataclasses.fields(cls):
        name, kind = field.name, str(field.type)
        if name in values:
            continue
        if kind.endswith("| None") and isinstance(data, dict) and data.get(name, 0) is None:
            values[name] = None
        elif kind.startswith("float"):
            values[name] = _float(_of(data, name, object), where + name)
        elif kind == "bool":
            values[name] = bool(_of(data, name, bool))
        else:
            values[name] = _of(data, name, {"str": str, "int": int}[kind])
    return cls(**values)


def _read_all(cls: Any, items: list[Any], where: str) -> tuple[Any, ...]:
    return tuple(_read(cls, item, f"{where}.") for item in items)
