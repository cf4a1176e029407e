"""Groups in support vector machines and kernel logistic regression: the rows of a group are one observation."""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.special import softmax
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import GroupKFold

from conftest import blobs
from polymargin import (
    AutoKernelClassifier,
    KernelLogisticClassifier,
    LSSVMClassifier,
    PosteriorSVMClassifier,
    SVMClassifier,
)
from polymargin.solvers.kernel_logistic import (
    Observations,
    fit_and_leave_one_out,
    fit_kernel_logistic,
    leave_one_out_logits,
)

X, Y = blobs(n=120, K=3, d=3, seed=5, spread=1.5)
X_NEW = blobs(n=50, K=3, d=3, seed=6, spread=1.5)[0]
#: Machines for copied rows: of k copies each with C/k is that of the rows with C.
MACHINES = {
    "SVM": lambda C=1.0, **options: SVMClassifier(
        C, gamma=0.2, decoding="coupled-softmax", tol=1e-7, **options
    ),
    "PosteriorSVM": lambda C=1.0, **options: PosteriorSVMClassifier(
        C, gamma=0.2, density=None, tol=1e-9, **options
    ),
    "KernelLogistic": lambda C=1.0, **options: KernelLogisticClassifier(C, gamma=0.2, **options),
}


def noisy_copies(n=80, times=5):
    """Return near-copies of random rows, whose labels say nothing but are the same for all copies."""
    rng = np.random.default_rng(0)
    rows, y = rng.normal(size=(n, 2)), rng.integers(0, 2, n)
    number = rng.permutation(np.repeat(np.arange(n), times))
    return rows[number] + 1e-3 * rng.normal(size=(number.size, 2)), y[number], number


EVERY_ESTIMATOR = [
    LSSVMClassifier,
    AutoKernelClassifier,
    KernelLogisticClassifier,
    SVMClassifier,
    PosteriorSVMClassifier,
]


@pytest.mark.parametrize("make", EVERY_ESTIMATOR)
def test_groups_that_are_the_classes_are_refused(make):
    for groups in (Y, np.array(["a", "b", "b"])[Y]):
        with pytest.raises(ValueError, match="every class has all of its rows in one group"):
            make().fit(X, Y, groups=groups)


@pytest.mark.parametrize("make", EVERY_ESTIMATOR)
def test_a_class_in_a_single_group_is_warned_of_once(make):
    with pytest.warns(UserWarning, match="all rows of class 2 belong to one group") as caught:
        make().fit(X, Y, groups=np.where(Y == 2, -1, np.arange(Y.size) % 20))
    assert [warning.filename for warning in caught] == [__file__]


@pytest.mark.filterwarnings("error")
def test_groups_that_determine_the_class_are_those_of_copies():
    LSSVMClassifier().fit(X, Y, groups=10 * Y + np.arange(Y.size) % 10)
    LSSVMClassifier().fit(np.eye(3), np.arange(3), groups=np.arange(3))


# What nothing can be learned from ----------------------------------------------------------------------------


@pytest.mark.parametrize("cv", [5, GroupKFold(5)], ids=["number", "splitter"])
def test_selection_by_cross_validation_holds_groups_out(cv):
    rows, y, number = noisy_copies()
    model = SVMClassifier(None, gamma=None, cv=cv).fit(rows, y, groups=number)
    assert model.selection_.best_score[0] < 0.75  # of many C and gamma the luckiest; a leaking copy gives 1
    leaking = SVMClassifier(None, gamma=None, cv=cv if cv == 5 else 5).fit(rows, y, groups=np.arange(y.size))
    assert leaking.selection_.best_score[0] > 0.95


@pytest.mark.parametrize("name", MACHINES)
def test_probabilities_are_not_learned_from_copies(name):
    rows, y, number = noisy_copies()
    model = MACHINES[name](C=1e4).fit(rows, y, groups=number)
    leaking = MACHINES[name](C=1e4).fit(rows, y, groups=np.arange(y.size))
    new = np.random.default_rng(1).normal(size=(300, 2))
    if name == "KernelLogistic":  # whose C is given: here it states what it is worth
        right = np.arange(y.size), y
        assert -model.loo_log_proba_[right].mean() > 1.0
        assert -leaking.loo_log_proba_[right].mean() < 0.5
    else:
        assert model.predict_proba(new).max(axis=1).mean() < 0.7
        assert leaking.predict_proba(new).max(axis=1).mean() > 0.75


def test_kernel_logistic_regression_selects_by_groups():
    rows, y, number = noisy_copies()
    model = KernelLogisticClassifier().fit(rows, y, groups=number)
    assert np.ptp(model.predict_proba(rows)[:, 1]) < 0.3
    right = np.arange(y.size), y
    assert -model.loo_log_proba_[right].mean() == pytest.approx(np.log(2), abs=0.1)


# Copies in groups change nothing -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", MACHINES)
def test_copies_in_groups_change_nothing(name):
    number = np.random.default_rng(0).permutation(np.repeat(np.arange(120), 3))
    one = MACHINES[name](C=1.0).fit(X, Y)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        other = MACHINES[name](C=1.0 / 3.0).fit(X[number], Y[number], groups=number)
    assert_allclose(other.predict_proba(X_NEW), one.predict_proba(X_NEW), atol=1e-4)


def test_copies_in_groups_do_not_change_what_kernel_logistic_regression_selects():
    number = np.random.default_rng(0).permutation(np.repeat(np.arange(120), 3))
    one = KernelLogisticClassifier().fit(X, Y)
    other = KernelLogisticClassifier().fit(X[number], Y[number], groups=number)
    assert_allclose([other.C_, other.gamma_], [one.C_ / 3.0, one.gamma_])
    assert_allclose(other.predict_proba(X_NEW), one.predict_proba(X_NEW), atol=1e-6)
    assert_allclose(other.loo_log_proba_, one.loo_log_proba_[number[other.support_]], atol=1e-6)


@pytest.mark.parametrize("name", MACHINES)
def test_the_names_of_groups_and_the_order_of_rows_do_not_matter(name):
    groups = np.random.default_rng(0).integers(0, 30, 120)
    order = np.random.default_rng(1).permutation(120)
    one = MACHINES[name]().fit(X, Y, groups=groups)
    names = np.array([f"session {number}" for number in groups])[order]
    other = MACHINES[name]().fit(X[order], Y[order], groups=names)
    assert_allclose(other.predict_proba(X_NEW), one.predict_proba(X_NEW), atol=1e-4)


@pytest.mark.parametrize("name", MACHINES)
@pytest.mark.parametrize("groups", [np.arange(119), np.zeros(120), np.r_[np.nan, np.ones(119)]])
def test_groups_that_cannot_be_used_are_refused_in_words(name, groups):
    with pytest.raises(ValueError, match="group"):
        MACHINES[name]().fit(X, Y, groups=groups)


def test_groups_that_hide_a_rare_class_from_the_sample():
    """A class of few rows that is nowhere the commonest of its group is still among the rows of the search."""
    rng = np.random.default_rng(0)
    y = np.where(np.isin(np.arange(700), (3, 500)), 2, rng.integers(0, 2, 700))
    rows = rng.normal(size=(700, 2)) + y[:, None]
    model = KernelLogisticClassifier(gamma=0.2).fit(rows, y, groups=np.arange(700) // 7)
    assert np.isfinite(model.loo_log_proba_).all()


# Leave-one-out of kernel logistic regression -----------------------------------------------------------------


def refitted(K, targets, groups, C):
    """Return the logits of every row by a fit without its group."""
    logits = np.zeros(targets.shape)
    for group in np.unique(groups):
        out, rest = groups == group, groups != group
        fit = fit_kernel_logistic(K[np.ix_(rest, rest)], targets[rest], np.ones(rest.sum()), C)
        logits[out] = C * K[np.ix_(out, rest)] @ fit.a + fit.intercept
    return logits


@pytest.mark.parametrize("n_groups", [2, 5, 12, 60])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_leave_one_out_leaves_the_group_out(n_classes, n_groups):
    rows, y = X[n_classes > Y], Y[n_classes > Y]
    groups = np.random.default_rng(0).integers(0, n_groups, y.size)
    K, targets = rbf_kernel(rows, gamma=0.2), np.eye(n_classes)[y]
    observations = Observations(np.arange(y.size), targets, np.ones(y.size), groups)
    _, logits = fit_and_leave_one_out(K, observations, 1.0)
    expected = refitted(K, targets, groups, 1.0)
    assert_allclose(softmax(logits, axis=1), softmax(expected, axis=1), atol=0.05)
    alone = Observations(np.arange(y.size), targets, np.ones(y.size))
    _, by_row = fit_and_leave_one_out(K, alone, 1.0)
    if n_groups <= 12:  # the test can tell a group from its rows
        assert np.abs(softmax(by_row, axis=1) - softmax(expected, axis=1)).max() > 0.05


@pytest.mark.parametrize("n_classes", [2, 3])
def test_leaving_a_group_out_is_a_newton_step(n_classes):
    """From the optimum of all rows, one step of the problem without the group: by dense matrices."""
    rows, y = blobs(n=14, K=n_classes, d=2, seed=6, spread=1.5)
    K, T, C, out = rbf_kernel(rows, gamma=0.4), np.eye(n_classes)[y], 5.0, [1, 4, 9]
    found = fit_kernel_logistic(K, T, np.ones(14), C)
    values, vectors = np.linalg.eigh(K)
    features = np.column_stack([vectors * np.sqrt(np.maximum(values, 0.0)), np.ones(14)])
    P = softmax(found.logits, axis=1)
    H = np.kron(np.diag([1.0 / C] * 14 + [1e-12]), np.eye(n_classes))
    gradient = np.zeros(15 * n_classes)
    for j in range(14):
        if j in out:  # the gradient of the rest at the optimum is minus that of the group
            gradient -= np.kron(features[j], P[j] - T[j])
        else:
            H += np.kron(np.outer(features[j], features[j]), np.diag(P[j]) - np.outer(P[j], P[j]))
    moved = np.linalg.lstsq(H, -gradient, rcond=1e-13)[0].reshape(15, n_classes)
    expected = (found.logits + features @ moved)[out]
    groups = np.where(np.isin(np.arange(14), out), 14, np.arange(14))
    ones = np.ones(14)
    observations = Observations(np.arange(14), T, ones, groups)
    logits = leave_one_out_logits(K, T, ones, C, found, observations)[out]
    assert_allclose(softmax(logits, axis=1), softmax(expected, axis=1), atol=1e-6)


@pytest.mark.parametrize("C", [0.1, 10.0, 1e4])
def test_leaving_a_group_out_takes_the_other_rows_of_its_cells_exactly(C):
    # Cells far apart know nothing of each other but for the biases.
    counts = np.array([[30, 2, 4], [5, 20, 2], [3, 3, 40]])
    cell = np.repeat(np.arange(3), counts.sum(axis=1))
    y = np.concatenate([np.repeat(np.arange(3), row) for row in counts])
    groups = np.random.default_rng(0).integers(0, 20, cell.size)
    rows = Observations(cell, np.eye(3)[y], np.ones(cell.size), groups)
    _, logits = fit_and_leave_one_out(np.eye(3), rows, C)
    for group in range(0, 20, 3):
        rest = groups != group
        left = Observations(cell[rest], rows.targets[rest], rows.weights[rest])
        refit = fit_kernel_logistic(np.eye(3), *left.merged(), C)
        expected = softmax(refit.logits[cell[~rest]], axis=1)
        assert_allclose(softmax(logits[~rest], axis=1), expected, atol=0.02)


# class_weight ------------------------------------------------------------------------------------------------


def test_class_weight_counts_in_the_accuracy_that_selects():
    """With "balanced" it is the mean recall of the classes."""
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1], [180, 20])
    rows = rng.normal(size=(200, 2)) + 1.5 * y[:, None]
    model = SVMClassifier(None, gamma=0.2, class_weight="balanced").fit(rows, y)
    plain = SVMClassifier(None, gamma=0.2).fit(rows, y)
    assert plain.selection_.best_score[0] >= 0.9  # as good as always the larger class
    assert model.selection_.best_score[0] < 0.9
    given = SVMClassifier(None, gamma=0.2).fit(rows, y, sample_weight=np.where(y == 1, 5.0, 5.0 / 9.0))
    assert_allclose(model.selection_.scores, given.selection_.scores)


@pytest.mark.parametrize("name", MACHINES)
def test_class_weight_may_be_a_series_and_must_be_positive(name):
    pd = pytest.importorskip("pandas")
    one = MACHINES[name](class_weight={1: 3.0}).fit(X, Y)
    other = MACHINES[name](class_weight=pd.Series([3.0], index=[1])).fit(X, Y)
    assert_allclose(one.predict_proba(X_NEW), other.predict_proba(X_NEW))
    for refused in ({0: 0.0}, {0: np.nan}, {0: "much"}, 3.0, np.ones(3)):
        with pytest.raises(ValueError, match="class_weight"):
            MACHINES[name](class_weight=refused).fit(X, Y)


@pytest.mark.parametrize("make", EVERY_ESTIMATOR)
def test_few_groups_are_warned_of_once(make):
    rng = np.random.default_rng(0)
    rows, y = rng.normal(size=(60, 2)), np.arange(60) % 3
    with pytest.warns(UserWarning, match="there are only 4 groups: .* give more groups, or leave") as caught:
        make().fit(rows, y, groups=np.arange(60) // 15)
    assert [warning.filename for warning in caught] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        make().fit(rows, y, groups=np.arange(60) // 6)


def test_sets_from_few_groups_speak_of_groups():
    rows, y = np.random.default_rng(0).normal(size=(60, 2)), np.arange(60) % 3
    given = {"kernel": "rbf", "C": 1.0, "gamma": 1.0}
    with pytest.warns(UserWarning, match="only 2 groups"):
        model = LSSVMClassifier(**given).fit(rows, y, groups=np.arange(60) // 30)
    with pytest.warns(UserWarning, match="needs 9 rows .* there are 2, as rows of one group count as one"):
        model.predict_set(rows)
    weighted = LSSVMClassifier(**given).fit(rows, y, np.r_[np.full(3, 1e6), np.ones(57)])
    with pytest.warns(UserWarning, match="there are 60, which by their weights are worth 3;"):
        weighted.predict_set(rows)
