"""Parts for scikit-learn, and what is said without it."""

import subprocess
import sys

import numpy as np
import pytest

import mibounds as mb
from mibounds.sklearn import classification_scores, regression_scores


@pytest.fixture(scope="module")
def selectors():
    return pytest.importorskip("sklearn.feature_selection", reason="not installed here")


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 6))
    x[:, 3] = x[:, 1] + 0.1 * rng.normal(size=300)
    return x, x[:, 1] + 0.8 * x[:, 4] + 0.5 * rng.normal(size=300)


def test_scores_are_those_of_a_ranking(table):
    x, y = table
    for scores, target in ((regression_scores, y), (classification_scores, y > 0)):
        nats, p = scores(x, target)
        kind = "continuous" if target is y else "discrete"
        found = mb.rank(x, target, target_kind=kind, correction="none")
        assert {c.name: c.nats for c in found.columns} == dict(zip("012345", nats, strict=True))
        assert {c.name: c.p_value for c in found.columns} == dict(zip("012345", p, strict=True))


def test_it_names_what_it_needs():
    code = (
        "import sys; sys.modules['sklearn'] = None; sys.modules['sklearn.base'] = None\n"
        "import mibounds.sklearn\n"
        "try: mibounds.sklearn.InformationSelector\n"
        "except ImportError as error: print(error)\n"
        "try: mibounds.sklearn.Selector\n"
        "except AttributeError as error: print(error)"
    )
    shown = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    assert "pip install 'mibounds[sklearn]'" in shown
    assert "Expected a name of mibounds.sklearn but got 'Selector'" in shown


def test_it_passes_the_checks_of_scikit_learn(selectors):
    from sklearn.utils.estimator_checks import check_estimator

    results = check_estimator(mb.sklearn.InformationSelector(), on_fail=None, on_skip=None)
    failed = [r["check_name"] for r in results if r["status"] not in ("passed", "skipped")]
    assert failed == []
    assert sum(r["status"] == "passed" for r in results) > 40


@pytest.mark.parametrize("given", [None, "selected"])
def test_it_selects(selectors, table, given):
    x, y = table
    selector = mb.sklearn.InformationSelector(2, given=given).fit(x, y)
    chosen = set(np.flatnonzero(selector.get_support()).tolist())
    assert chosen == ({1, 3} if given is None else {*chosen & {1, 3}, 4})
    assert selector.transform(x).shape == (300, 2)
    assert selector.ranking_.target_kind == "continuous"
    share = mb.sklearn.InformationSelector(0.5, given=given).fit(x, y > 0)
    assert share.get_support().sum() == 3
    assert share.ranking_.target_kind == "discrete"
    alone = mb.sklearn.InformationSelector("significant", given=given).fit(x, y)
    assert alone.get_support().tolist() == (
        [False, True, False, True, True, False]
        if given is None
        else [j in chosen for j in range(6)]
    )


def test_names_of_columns_survive(selectors, table):
    pandas = pytest.importorskip("pandas")
    x, y = table
    frame = pandas.DataFrame(x, columns=list("abcdef"))
    selector = mb.sklearn.InformationSelector(2).set_output(transform="pandas").fit(frame, y)
    assert list(selector.transform(frame).columns) == ["b", "d"]
    assert selector.get_feature_names_out().tolist() == ["b", "d"]


def test_pipelines_and_grids(selectors, table):
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GridSearchCV
    from sklearn.pipeline import make_pipeline

    x, y = table
    model = make_pipeline(mb.sklearn.InformationSelector(), LogisticRegression())
    grid = {"informationselector__n_features": [1, 2], "informationselector__given": ["selected"]}
    search = GridSearchCV(model, grid, cv=3).fit(x, y > 0)
    assert search.best_params_["informationselector__n_features"] == 2
    assert search.best_score_ > 0.85


def test_selectors_of_scikit_learn_take_the_scores(selectors, table):
    x, y = table
    best = selectors.SelectKBest(regression_scores, k=3).fit(x, y)
    assert best.get_support().tolist() == [False, True, False, True, True, False]
    fdr = selectors.SelectFdr(classification_scores, alpha=0.01).fit(x, y > 0)
    assert fdr.get_support().tolist() == [False, True, False, True, True, False]


@pytest.mark.parametrize("n", [0, True, 1.5, "all", None])
def test_numbers_of_columns_that_are_none(selectors, table, n):
    with pytest.raises(ValueError, match=r"^Expected n_features to be a number of columns, .*;"):
        mb.sklearn.InformationSelector(n).fit(*table)


@pytest.mark.usefixtures("selectors")
def test_what_is_masked_is_missing():
    from mibounds.sklearn import InformationSelector

    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(200, 2)), rng.normal(size=200)
    X[:, 0] += y
    mask = rng.random((200, 2)) < 0.2
    gaps = np.where(mask, np.nan, X)
    masked = np.ma.MaskedArray(np.where(mask, 1e6, X), mask)
    for scores in (regression_scores, classification_scores):
        target = y if scores is regression_scores else y > 0
        assert scores(masked, target)[0].tolist() == scores(gaps, target)[0].tolist()
        hidden = np.ma.MaskedArray(target, mask[:, 0])
        kept = scores(gaps[~mask[:, 0]], target[~mask[:, 0]])[0]
        assert scores(masked, hidden)[0] == pytest.approx(kept, abs=0.02)
    found = InformationSelector(1).fit(masked, y).scores_
    assert found.tolist() == InformationSelector(1).fit(gaps, y).scores_.tolist()
    with pytest.raises(ValueError, match="NaN"):
        InformationSelector(1).fit(X, np.ma.MaskedArray(y, mask[:, 0]))


@pytest.mark.usefixtures("selectors")
def test_large_whole_numbers_stay_apart():
    from mibounds.sklearn import InformationSelector

    rng = np.random.default_rng(0)
    y = rng.integers(2, size=200)
    found = InformationSelector(1).fit((2**53 + y)[:, None], y)
    assert found.scores_[0] > 0.6
