"""Cross-validation of support vector machines against brute force with scikit-learn."""

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.model_selection import GridSearchCV, KFold, LeaveOneGroupOut, StratifiedKFold
from sklearn.svm import SVC

from conftest import blobs
from polymargin import SVMClassifier
from polymargin.codebooks import CODINGS
from polymargin.folds import training_folds
from polymargin.kernels import Linear
from polymargin.machines import TrainingRows, cross_validate_svm, cross_validation
from polymargin.machines._hinge import solve_paths
from polymargin.papers._codings import Hinge, compare_codings


@pytest.fixture(scope="module")
def problem():
    return blobs(n=150, K=4, d=5, seed=3)


GRID = {"C": [0.1, 1.0, 10.0, 100.0], "gamma": [0.003, 0.03, 0.3]}


@pytest.mark.parametrize("kernel", ["rbf", "poly"])
def test_cross_validation_agrees_with_grid_search(kernel):
    X, y = blobs(n=120, K=2, d=4, seed=2, spread=1.6)
    folds = KFold(6, shuffle=True, random_state=0)
    theirs = GridSearchCV(SVC(kernel=kernel, tol=1e-5), GRID, cv=folds).fit(X, y)
    ours = cross_validate_svm(X, y, kernel=kernel, cv=folds, max_extensions=0, tol=1e-5, **GRID)
    table = ours.to_table()
    for c, g, *scores in zip(table["param_C"], table["param_gamma"], *fold_columns(table), strict=True):
        match = [point == {"C": c, "gamma": g} for point in theirs.cv_results_["params"]].index(True)
        expected = [theirs.cv_results_[f"split{k}_test_score"][match] for k in range(6)]
        np.testing.assert_allclose(scores, expected)
    assert ours.best_score == pytest.approx(theirs.best_score_)
    assert table["rank_test_score"].min() == 1
    assert theirs.best_score_ == pytest.approx(table["mean_test_score"].max())


def fold_columns(table):
    return [table[f"split{k}_test_score"] for k in range(6)]


@pytest.mark.parametrize("coding", ["one-vs-one", "one-vs-all"])
def test_every_machine_chooses_as_a_grid_search_of_its_own(coding, problem):
    X, y = problem
    folds = list(StratifiedKFold(5, shuffle=True, random_state=0).split(X, y))
    ours = cross_validate_svm(
        X, y, coding=coding, shared_parameters=False, cv=folds, max_extensions=0, tol=1e-5, **GRID
    )
    book = CODINGS[coding](4, 0)
    for column, targets in enumerate(book.targets(y).T):
        right = np.zeros((3, 4))
        for train, test in folds:
            train, test = train[targets[train] != 0], test[targets[test] != 0]
            for g, c in np.ndindex(3, 4):
                machine = SVC(C=GRID["C"][c], gamma=GRID["gamma"][g], tol=1e-5).fit(X[train], targets[train])
                right[g, c] += (machine.predict(X[test]) == targets[test]).sum()
        np.testing.assert_allclose(ours.scores[column, 0], right / (targets != 0).sum())
        assert ours.best_score[column] == ours.scores[column].max()


def test_selection_inside_fit(problem):
    X, y = problem
    model = SVMClassifier(None, gamma=None, random_state=0).fit(X, y)
    assert model.selection_.best_score[0] == model.selection_.scores.max()
    assert (model.selection_.best_C == model.C_).all()
    assert (model.gamma_ == model.selection_.best_gamma).all()
    threads = SVMClassifier(None, gamma=None, n_jobs=2, random_state=0).fit(X, y)
    np.testing.assert_array_equal(threads.selection_.fold_scores, model.selection_.fold_scores)
    np.testing.assert_array_equal(threads.margins(X), model.margins(X))

    own = SVMClassifier(None, gamma=None, shared_parameters=False, random_state=0).fit(X, y)
    assert own.selection_.best_C.shape == (6,)
    assert np.unique(own.C_).size > 1
    only_C = SVMClassifier(None, kernel="linear").fit(X, y)
    assert only_C.selection_.gamma.tolist() == [1.0]
    assert SVMClassifier().fit(X, y).selection_ is None


def test_range_grows_where_the_best_lies_on_its_edge(problem):
    X, y = problem
    narrow = {"C": [1e-4, 1e-3], "gamma": [1e-3, 1e-2]}
    stuck = cross_validate_svm(X, y, max_extensions=0, **narrow)
    assert stuck.on_edge.any()
    assert stuck.C.size == stuck.gamma.size == 2
    grown = cross_validate_svm(X, y, max_extensions=4, **narrow)
    assert grown.C.size > 2
    assert grown.best_score > stuck.best_score
    np.testing.assert_allclose(np.diff(np.log10(grown.C)), 1.0)
    # Extended for one machine, unknown to another that did not ask.
    each = cross_validate_svm(X, y, max_extensions=4, shared_parameters=False, **narrow)
    assert not np.isnan(each.best_score).any()
    fixed = cross_validate_svm(X, y, C=[1.0], gamma=[0.1])
    assert not fixed.on_edge.any()


@pytest.mark.parametrize("shared", [True, False])
def test_larger_C_are_left_out_where_a_machine_gave_up(problem, shared, monkeypatch):
    X, y = problem
    grid = {"C": 10.0 ** np.arange(-2, 5), "gamma": [0.03, 0.3, 3.0]}
    options = {"kernel": "poly", "shared_parameters": shared, "max_extensions": 0, **grid}
    whole = cross_validate_svm(X, y, **options)
    assert not np.isnan(whole.scores).any()
    n_steps = 0

    def counted(*arguments):
        nonlocal n_steps
        paths = solve_paths(*arguments)
        n_steps = max(n_steps, max(solution.n_iter for path in paths for solution in path))
        return paths

    monkeypatch.setattr(cross_validation, "solve_paths", counted)
    monkeypatch.setattr(cross_validation, "STEPS", 300)
    monkeypatch.setattr(cross_validation, "STEPS_PER_ROW", 0)
    limited = cross_validate_svm(X, y, **options)
    assert n_steps == 300
    known = ~np.isnan(limited.scores)
    assert known[..., 0].all()
    assert not known.all()
    # Once left out, all larger C are; what is known is what it is without a limit, but for the C where it was reached.
    assert (np.diff(known.astype(int), axis=-1) <= 0).all()
    next_known = np.concatenate([known[..., 1:], known[..., -1:]], axis=-1)
    reached = np.nonzero(known & next_known)
    np.testing.assert_array_equal(limited.scores[reached], whole.scores[reached])
    assert not np.isnan(limited.best_score).any()
    # A limit that the user gives leaves nothing out.
    assert not np.isnan(cross_validate_svm(X, y, max_iter=300, **options).scores).any()


def test_a_range_is_not_extended_where_a_machine_gave_up(problem, monkeypatch):
    X, y = problem
    monkeypatch.setattr(cross_validation, "STEPS", 300)
    monkeypatch.setattr(cross_validation, "STEPS_PER_ROW", 0)
    result = cross_validate_svm(X, y, kernel="poly", C=[1e-4, 1e-3], gamma=[0.01, 1.0], max_extensions=3)
    assert (result.C[-1], result.gamma[-1]) == pytest.approx((0.1, 100.0))
    # gamma = 100 gave up at the least C, gamma = 1 at 0.01, which was added.
    known = np.array([[1, 1, 1, 1], [1, 1, 1, 0], [1, 0, 0, 0]], dtype=bool)
    np.testing.assert_array_equal(~np.isnan(result.scores[0, 0]), known)
    table = result.to_table()
    np.testing.assert_array_equal(np.isnan(table["std_test_score"]), ~known.ravel())
    assert (table["rank_test_score"][~known.ravel()] == known.sum() + 1).all()
    assert table["rank_test_score"][known.ravel()].max() <= known.sum()


@pytest.mark.slow_without_jit
def test_cubic_kernels_of_classes_that_overlap_take_few_steps():
    """In the whole grid the machine of the class in the middle would take minutes."""
    X, y = load_iris(return_X_y=True)
    model = SVMClassifier(C=None, gamma=None, kernel="poly", coding="one-vs-all", random_state=0).fit(X, y)
    unknown = np.isnan(model.selection_.scores[0, 0])
    assert not unknown[0].any()
    assert unknown[-1].any()
    assert model.score(X, y) > 0.95


def test_degrees_and_constants_can_be_searched(problem):
    X, y = problem
    result = cross_validate_svm(
        X, y, kernel="poly", C=[1.0], gamma=[0.1], degree=[1, 2, 3], coef0=[0.0, 1.0], cv=3
    )
    assert result.scores.shape == (1, 6, 1, 1)
    assert result.best_kernel[0] in result.kernels
    table = result.to_table()
    assert table["param_degree"].tolist() == [1, 1, 2, 2, 3, 3]
    assert table["param_coef0"].tolist() == [0.0, 1.0] * 3


def test_given_splits_number_the_rows_of_X(problem):
    X, y = problem
    weights = (np.arange(y.size) % 7 > 0).astype(float)
    splits = list(StratifiedKFold(4).split(X, y))
    kept = np.flatnonzero(weights)
    renumbered = [tuple(np.flatnonzero(np.isin(kept, part)) for part in split) for split in splits]
    dropped = SVMClassifier(None, gamma=0.1, cv=splits).fit(X, y, weights)
    gone = SVMClassifier(None, gamma=0.1, cv=renumbered).fit(X[kept], y[kept])
    np.testing.assert_array_equal(dropped.selection_.scores, gone.selection_.scores)


def folds_of(y, cv, groups=None):
    rows = np.random.default_rng(0).normal(size=(y.size, 2))
    return training_folds(TrainingRows(Linear(), rows, y, np.ones(y.size), groups=groups), cv)


def test_folds():
    y = np.array([0] * 7 + [1] * 5 + [2])
    folds = folds_of(y, 5)
    assert sorted(np.concatenate(folds)) == list(range(13))
    for fold in folds:
        assert 1 <= (y[fold] == 0).sum() <= 2
        assert (y[fold] == 1).sum() == 1
    assert len(folds_of(np.array([0, 1, 1]), 10)) == 2
    with pytest.raises(ValueError, match="at least 2 folds"):
        folds_of(y, 1)
    with pytest.raises(ValueError, match="exactly once"):
        folds_of(y, [([0, 1], [2, 3])])
    with pytest.raises(ValueError, match="a number of folds"):
        folds_of(y, None)
    with pytest.raises(ValueError, match="every class has only one row"):
        folds_of(np.arange(3), 2)
    with pytest.raises(ValueError, match="every class has only one group"):
        folds_of(y, 2, groups=y)


def test_no_more_folds_than_groups():
    y, groups = np.arange(60) % 3, np.arange(60) // 20
    folds = folds_of(y, 5, groups=groups)
    assert sorted(groups[fold].tolist() for fold in folds) == [[k] * 20 for k in range(3)]


def test_splitters_are_given_the_groups():
    y, groups = np.arange(60) % 3, np.random.default_rng(0).integers(0, 12, 60)
    folds = folds_of(y, LeaveOneGroupOut(), groups=groups)
    assert len(folds) == np.unique(groups).size
    assert all(np.unique(groups[fold]).size == 1 for fold in folds)


@pytest.mark.parametrize("shared", [True, False])
def test_comparison_trains_hinge_machines(shared):
    X, y = load_iris(return_X_y=True)
    train = np.arange(150) % 3 > 0
    machines = Hinge(cv=4, C=[0.1, 1.0, 10.0], gamma_factors=[0.1, 1.0], max_extensions=0, random_state=0)
    scores = compare_codings(
        X[train],
        y[train],
        X[~train],
        y[~train],
        decodings=["hamming", "loss"],
        machines=machines,
        shared_parameters=shared,
        random_state=0,
    )
    assert len(scores) == 8
    assert min(score.accuracy for score in scores) > 0.9
    assert all(score.log_loss is None for score in scores)
