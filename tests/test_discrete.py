"""Equal rows of a discrete table are independent observations: probabilities are the cells' frequencies.

Least squares and logistic regression see frequencies: in every cell of at least 25 rows an exact binomial test at the
level of four standard errors must not tell the probabilities from the counts, the smaller cells together. The outputs
of hinge-loss machines tell which class prevails in a cell and little of how much, so that on tables of many cells
their probabilities can only be right over all cells of the same label, up to the machines that the folds of the decoder
lack (0.1), and their log-loss is held to that of the best probabilities that know each cell's label.
"""

from functools import partial

import numpy as np
import pytest
from numpy.testing import assert_allclose

from polymargin import (
    AutoKernelClassifier,
    KernelLogisticClassifier,
    LSSVMClassifier,
    PosteriorSVMClassifier,
    SVMClassifier,
)
from tables_of_cells import (
    FOUR_SIGMA,
    binary_feature,
    furthest,
    furthest_by_label,
    led7,
    titanic,
    two_columns,
)

SMOOTH = {
    "LSSVM": LSSVMClassifier,
    "AutoKernel": AutoKernelClassifier,
    "KernelLogistic": KernelLogisticClassifier,
}
HINGE = {
    "SVM": lambda: SVMClassifier(decoding="coupled-softmax"),
    "PosteriorSVM": PosteriorSVMClassifier,
}
ALL = SMOOTH | HINGE
STATED = 0.05  # how far the stated log-loss may be from the true one, where there are ENOUGH_ROWS
ENOUGH_ROWS = 3000


def check_stated_log_loss(model, y, true, luck=0.0):
    """Compare what the model states of its log-loss on new rows, if it does, with the truth.

    With fewer than 3000 rows the difference may also be two standard errors of the mean of the rows' losses.
    """
    if not hasattr(model, "loo_log_proba_"):
        assert not hasattr(model, "loo_log_loss_")
        return
    losses = -model.loo_log_proba_[np.arange(y.size), y]
    stated = getattr(model, "loo_log_loss_", losses.mean())
    sampling = 2 * losses.std(ddof=1) / np.sqrt(y.size) if y.size < ENOUGH_ROWS else 0.0
    assert stated - luck == pytest.approx(true, abs=max(STATED, sampling))


def expected_excess(table, n):
    """Return what maximum likelihood on n rows loses to the truth in expectation: 1/(2n) for each free number."""
    return table.n_free / (2 * n)


@pytest.mark.parametrize(
    ("name", "n"),
    [
        pytest.param(name, n, marks=[pytest.mark.long] if (name, n) == ("AutoKernel", 3000) else [])
        for name in ALL
        for n in (100, 1000, 3000)
    ],
)
def test_one_binary_feature(name, n):
    table = binary_feature()
    cell, y = table.exact(n)
    model = ALL[name]().fit(table.X[cell], y)
    proba = model.predict_proba(table.X)
    assert furthest(proba, cell, y) > FOUR_SIGMA, proba
    assert table.log_loss(proba) - table.entropy < 3 * expected_excess(table, n) + 0.002
    check_stated_log_loss(model, y, table.log_loss(proba))


def check_smooth(name, table, cell, y):
    model = SMOOTH[name]().fit(table.X[cell], y)
    proba = model.predict_proba(table.X)
    true = table.log_loss(proba)
    assert furthest(proba, cell, y) > FOUR_SIGMA
    assert true - table.entropy < 3 * expected_excess(table, y.size) + 0.01
    assert hasattr(model, "loo_log_proba_")
    check_stated_log_loss(model, y, true, table.luck(cell, y))


def check_hinge(name, table, cell, y):
    proba = HINGE[name]().fit(table.X[cell], y).predict_proba(table.X)
    assert furthest_by_label(proba, cell, y) < 0.1
    assert table.log_loss(proba) < table.most_that_labels_tell() + 0.02


@pytest.mark.parametrize("coding", ["one-hot", "integers"])
@pytest.mark.parametrize("name", ALL)
def test_sixteen_cells(name, coding):
    table = two_columns(coding == "one-hot")
    cell, y = table.draw(1600, seed=2)
    (check_smooth if name in SMOOTH else check_hinge)(name, table, cell, y)


@pytest.mark.parametrize(
    "name", [*HINGE, "LSSVM", pytest.param("AutoKernel", marks=pytest.mark.long), "KernelLogistic"]
)
def test_led7(name):
    table = led7()
    cell, y = table.draw(
        500 if name == "KernelLogistic" else 2000, seed=0
    )  # ten classes: Newton steps take 11 n³
    (check_smooth if name in SMOOTH else check_hinge)(name, table, cell, y)


@pytest.mark.parametrize("name", ALL)
def test_titanic(name):
    table = titanic()
    assert table.X.shape == (14, 8)
    cell, y = table.draw(800, seed=0) if name == "KernelLogistic" else table.exact(2201)
    (check_smooth if name in SMOOTH else check_hinge)(name, table, cell, y)


SELECTIONS = {
    f"LSSVM, {selection}, {kernel}": partial(LSSVMClassifier, selection=selection, kernel=kernel)
    for selection in ("evidence", "gcv")
    for kernel in ("rbf", "poly")
}
EQUAL_ROWS = ALL | SELECTIONS


@pytest.mark.parametrize("counts", [[30, 50, 20], [35, 65]])
@pytest.mark.parametrize("name", EQUAL_ROWS)
def test_all_rows_equal(name, counts):
    """Nothing but the class frequencies can be learned, in whatever order the rows come."""
    y = np.random.default_rng(0).permutation(np.repeat(np.arange(len(counts)), counts))
    X = np.full((y.size, 2), 3.7)
    frequencies = np.array(counts) / y.size
    model = EQUAL_ROWS[name]().fit(X, y)
    proba = model.predict_proba(X)
    assert np.ptp(proba, axis=0).max() < 1e-12
    assert_allclose(proba[0], frequencies, atol=0.05)
    assert_allclose(EQUAL_ROWS[name]().fit(X, np.sort(y)).predict_proba(X[:1]), proba[:1], atol=1e-6)
    check_stated_log_loss(model, y, -(frequencies * np.log(proba[0])).sum())


@pytest.mark.parametrize("decoding", ["coupled-softmax", "softmax", "coupling"])
@pytest.mark.parametrize("name", SELECTIONS)
def test_all_rows_equal_but_one(name, decoding):
    y = np.random.default_rng(1).permutation(np.repeat([0, 1, 2], [30, 50, 20]))
    X = np.full((y.size, 2), 3.7)
    X[0] = 5.0
    proba = SELECTIONS[name](decoding=decoding).fit(X, y).predict_proba(X[1:])
    assert np.ptp(proba, axis=0).max() < 1e-12
    assert_allclose(proba[0], np.bincount(y[1:]) / (y.size - 1), atol=0.03)


@pytest.mark.parametrize("name", ALL)
def test_two_distinct_rows_in_many_columns(name):
    """The number of columns does not matter, only the cells: twenty copies of one binary feature."""
    table = binary_feature()
    cell, y = table.exact(200)
    X = np.repeat(table.X, 20, axis=1)
    proba = ALL[name]().fit(X[cell], y).predict_proba(X)
    assert furthest(proba, cell, y) > FOUR_SIGMA, proba


@pytest.mark.parametrize("make", [LSSVMClassifier, AutoKernelClassifier])
def test_classes_with_the_same_rows_beside_one_that_is_apart(make):
    """The separable pairs drive C up; the pair of equal rows must not learn from the last digits."""
    y = np.repeat([0, 1, 2], [60, 70, 40])
    X = (y > 0).astype(float)[:, np.newaxis]
    model = make().fit(X, y)
    alone, together = model.predict_proba(X[[0, 100]]), model.predict_proba(X)[[0, 100]]
    assert_allclose(alone, together, atol=1e-9)
    assert_allclose(alone, [[1.0, 0.0, 0.0], [0.0, 70 / 110, 40 / 110]], atol=0.03)
    truth = -(70 * np.log(70 / 110) + 40 * np.log(40 / 110)) / 170
    assert model.loo_log_loss_ == pytest.approx(truth, abs=0.05)


@pytest.mark.parametrize("decoding", ["coupled-softmax", "softmax", "coupling"])
def test_shared_patterns_give_the_frequencies_of_their_cells(decoding):
    for seed in (5, 21, 55, 90):
        rng = np.random.default_rng(seed)
        y = rng.integers(0, 4, 173)
        X = np.array([[0.0, 1.0], [2.0, 0.0], [2.0, 0.0], [2.0, 0.0]])[y]
        model = LSSVMClassifier(decoding=decoding).fit(X, y)
        proba = model.predict_proba(X)
        assert_allclose(
            np.vstack([model.predict_proba(row[np.newaxis]) for row in X[:20]]), proba[:20], atol=1e-9
        )
        cell = np.bincount(y[y > 0], minlength=4) / (y > 0).sum()
        assert_allclose(proba[y > 0], np.tile(cell, ((y > 0).sum(), 1)), atol=0.05)
