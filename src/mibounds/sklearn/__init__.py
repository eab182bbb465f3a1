"""Parts for scikit-learn: score functions for its selectors, and a selector of its own.

    SelectKBest(mibounds.sklearn.classification_scores, k=10)
    make_pipeline(mibounds.sklearn.InformationSelector(), LogisticRegression())

Score functions return the mutual information with the target in nats and its p-value for each
column, so that `SelectFdr`, `SelectFpr` and `SelectFwe` take them too. The package scikit-learn is
needed for the selector alone: the extra ``sklearn``.

selectors     InformationSelector
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mibounds.measure.tables.rankings import rank
from mibounds.samples.arrays import to_array

if TYPE_CHECKING:
    from jaxtyping import Float

    from mibounds.sklearn.selectors import InformationSelector as InformationSelector

__all__ = ["InformationSelector", "classification_scores", "regression_scores"]


def classification_scores(
    X: Any, y: Any
) -> tuple[Float[np.ndarray, " d"], Float[np.ndarray, " d"]]:
    """Mutual information of each column with labels y.

    Args:
        X: numbers, (n, d). Whole numbers of few values are labels.
        y: labels, (n,).

    Returns:
        Nats and p-values, not corrected for the number of columns.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> X = rng.normal(size=(300, 3))
        >>> nats, p = classification_scores(X, X[:, 1] + rng.normal(size=300) > 0)
        >>> int(nats.argmax()), (p < 0.01).tolist()
        (1, [False, True, False])
    """
    return _scores(X, y, "discrete")


def regression_scores(X: Any, y: Any) -> tuple[Float[np.ndarray, " d"], Float[np.ndarray, " d"]]:
    """Mutual information of each column with numbers y.

    Args:
        X: numbers, (n, d). Whole numbers of few values are labels.
        y: numbers, (n,).

    Returns:
        Nats and p-values, not corrected for the number of columns.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> X = rng.normal(size=(300, 3))
        >>> nats, p = regression_scores(X, X[:, 1] ** 2 + rng.normal(size=300))
        >>> int(nats.argmax()), (p < 0.01).tolist()
        (1, [False, True, False])
    """
    return _scores(X, y, "continuous")


def _scores(X: Any, y: Any, kind: str) -> tuple[np.ndarray, np.ndarray]:
    names = [str(j) for j in range(np.shape(X)[1])]
    found = rank(X, to_array("y", y), target_kind=kind, correction="none", names=names)
    by_name = {column.name: column for column in found.columns}
    nats = np.array([by_name[name].nats for name in names])
    return nats, np.array([by_name[name].p_value for name in names])


def __getattr__(name: str) -> Any:
    if name == "InformationSelector":
        from mibounds.sklearn.selectors import InformationSelector

        return InformationSelector
    raise AttributeError(
        f"Expected a name of mibounds.sklearn but got {name!r}; see its __all__ for all of them."
    )
