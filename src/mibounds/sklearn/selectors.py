"""A selector of columns for scikit-learn, in a module of its own that needs that package."""

from __future__ import annotations

import math
from numbers import Integral
from typing import Any

import numpy as np

from mibounds.measure.tables.rankings import rank
from mibounds.samples.arrays import to_array

try:
    from sklearn.base import BaseEstimator
    from sklearn.feature_selection import SelectorMixin
    from sklearn.utils.multiclass import type_of_target
    from sklearn.utils.validation import (
        check_is_fitted,
        validate_data,
    )
except ImportError as error:
    raise ImportError(
        "InformationSelector needs the package scikit-learn, which is not installed; "
        "install it with: pip install 'mibounds[sklearn]'"
    ) from error

__all__ = ["InformationSelector"]


class InformationSelector(SelectorMixin, BaseEstimator):
    """Select columns by their mutual information with the target.

    Unlike `SelectKBest` it can choose columns one after the other, each by what it adds to those
    before, so that of several copies of a column one is taken; and it can take as many as are
    significant.

    Args:
        n_features: how many; a share of all columns, as a float up to 1; or "significant" for all
            that depend on the target.
        given: "selected" to choose columns one after the other, by what each adds.
        target_kind: "discrete" for labels or "continuous" for numbers; as scikit-learn sees y if
            None.
        correction: of the p-values for the number of columns, see `mibounds.rank`.
        level: of the corrected p-values, for "significant".
        budget: "default", or "fast" to look at neighbours only where it is needed.
        n_jobs: processes; None for one.
        random_state: seed of the noise that tells equal numbers apart, an integer; None for 0.

    Attributes:
        ranking_: the `mibounds.Ranking`, with intervals.
        scores_: mutual information of each column in nats.
        p_values_: of independence, corrected.
        n_features_in_: columns that were seen.

    Example:
        >>> from sklearn.linear_model import LogisticRegression
        >>> from sklearn.pipeline import make_pipeline
        >>> rng = np.random.default_rng(0)
        >>> X = rng.normal(size=(300, 5))
        >>> y = X[:, 1] + X[:, 3] > 0
        >>> model = make_pipeline(InformationSelector(2), LogisticRegression()).fit(X, y)
        >>> model[0].get_support().tolist(), model.score(X, y) > 0.9
        ([False, True, False, True, False], True)
    """

    def __init__(
        self,
        n_features: int | float | str = 10,
        *,
        given: str | None = None,
        target_kind: str | None = None,
        correction: str = "holm",
        level: float = 0.05,
        budget: str = "default",
        n_jobs: int | None = None,
        random_state: int | None = None,
    ):
        self.n_features = n_features
        self.given = given
        self.target_kind = target_kind
        self.correction = correction
        self.level = level
        self.budget = budget
        self.n_jobs = n_jobs
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> InformationSelector:
        """Rank the columns of X by what they tell of y.

        Args:
            X: numbers, (n, d); NaN where a value is missing.
            y: labels or numbers, (n,).
        """
        # scikit-learn takes what is masked for values.
        X, y = (to_array(n, v) if np.ma.isMaskedArray(v) else v for n, v in (("X", X), ("y", y)))
        X, y = validate_data(
            self, X, y, dtype="numeric", ensure_all_finite="allow-nan", multi_output=False,
            y_numeric=False,
        )  # fmt: skip
        columns = X.shape[1]
        most = self._most(columns)
        kind = self.target_kind
        if kind is None:
            kind = "continuous" if type_of_target(y).startswith("continuous") else "discrete"
        names = [str(j) for j in range(columns)]
        given: Any = self.given
        settings: Any = {"correction": self.correction, "budget": self.budget}
        self.ranking_ = rank(
            X, y, target_kind=kind, names=names, given=given, most=most or columns,
            n_jobs=self.n_jobs or 1, seed=self.random_state or 0, **settings,
        )  # fmt: skip
        order = {c.name: c for c in self.ranking_.columns}
        self.scores_ = np.array([order[name].nats for name in names])
        self.p_values_ = np.array([order[name].p_value for name in names])
        if most is None:
            able = [c for c in self.ranking_.columns if c.p_value <= self.level]
            taken = [c for c in able if c.chosen] if self.given else able
        else:
            taken = list(self.ranking_.columns[:most])
        self.support_ = np.isin(names, [c.name for c in taken])
        return self

    def _most(self, columns: int) -> int | None:
        """How many to take; None for those that are significant."""
        n = self.n_features
        if n == "significant":
            return None
        if isinstance(n, Integral) and not isinstance(n, bool) and int(n) >= 1:
            return min(int(n), columns)
        if isinstance(n, float) and 0 < n <= 1:
            return max(1, math.ceil(n * columns))
        raise ValueError(
            "Expected n_features to be a number of columns, a share of them or "
            f'"significant" but got {n!r}; pass 10, 0.5 or "significant", for example.'
        )

    def _get_support_mask(self) -> Any:
        check_is_fitted(self)
        return self.support_

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.input_tags.allow_nan = True
        return tags
