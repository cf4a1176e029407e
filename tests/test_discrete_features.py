"""Probabilities on discrete features, where the frequencies of the classes in every cell are the answer."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from polymargin import PosteriorSVMClassifier, SVMClassifier

#: The passengers of the Titanic (Dawson 1995): class, sex and age, how many died and how many survived.
TITANIC = {
    ("1st", "male", "child"): (0, 5),
    ("1st", "male", "adult"): (118, 57),
    ("1st", "female", "child"): (0, 1),
    ("1st", "female", "adult"): (4, 140),
    ("2nd", "male", "child"): (0, 11),
    ("2nd", "male", "adult"): (154, 14),
    ("2nd", "female", "child"): (0, 13),
    ("2nd", "female", "adult"): (13, 80),
    ("3rd", "male", "child"): (35, 13),
    ("3rd", "male", "adult"): (387, 75),
    ("3rd", "female", "child"): (17, 14),
    ("3rd", "female", "adult"): (89, 76),
    ("crew", "male", "adult"): (670, 192),
    ("crew", "female", "adult"): (3, 20),
}
VALUES = ["1st", "2nd", "3rd", "crew", "male", "female", "child", "adult"]


@pytest.fixture(scope="module")
def titanic():
    """Return the cells, one-hot, shape (14, 8), the counts, shape (14, 2), and all 2201 rows and labels."""
    cells = np.array([[float(value in cell) for value in VALUES] for cell in TITANIC])
    counts = np.array(list(TITANIC.values()))
    X = np.repeat(np.repeat(cells, 2, axis=0), counts.ravel(), axis=0)
    y = np.repeat(np.tile([0, 1], len(cells)), counts.ravel())
    assert y.size == 2201
    order = np.random.default_rng(0).permutation(y.size)
    return cells, counts, X[order], y[order]


def log_loss(counts, p):
    """Return the mean log-loss of the rows, given the probability of class 1 in every cell."""
    return -(counts * np.log(np.column_stack([1.0 - p, p]))).sum() / counts.sum()


def standard_errors(counts):
    """Return the standard error of the frequency in every cell, by a prior of one row of each class."""
    n = counts.sum(axis=1) + 2.0
    p = (counts[:, 1] + 1.0) / n
    return np.sqrt(p * (1.0 - p) / n)


@pytest.mark.parametrize("n", [100, 1000, 3000])
@pytest.mark.parametrize(
    "model",
    [
        PosteriorSVMClassifier(),
        PosteriorSVMClassifier(machine="one-vs-all"),
        PosteriorSVMClassifier(density=None),
        SVMClassifier(decoding="coupled-softmax"),
        SVMClassifier(decoding="softmax"),
    ],
    ids=["posterior", "posterior one-vs-all", "posterior hard", "coupled-softmax", "softmax"],
)
def test_one_binary_feature(model, n):
    rng = np.random.default_rng(n)
    x = rng.integers(0, 2, n)
    y = (rng.random(n) < np.where(x, 0.8, 0.2)).astype(int)
    counts = np.array([np.bincount(y[x == value], minlength=2) for value in (0, 1)])
    p = model.fit(x[:, np.newaxis].astype(float), y).predict_proba([[0.0], [1.0]])[:, 1]
    assert (np.abs(p - counts[:, 1] / counts.sum(axis=1)) < 0.5 * standard_errors(counts)).all()


def test_soft_labels_give_the_frequencies_of_the_cells(titanic):
    cells, counts, X, y = titanic
    model = PosteriorSVMClassifier().fit(X, y)
    p, frequency = model.predict_proba(cells)[:, 1], counts[:, 1] / counts.sum(axis=1)
    assert (np.abs(p - frequency) < 2.5 * standard_errors(counts)).all()
    bound = log_loss(counts, np.clip(frequency, 1e-9, 1 - 1e-9))
    assert log_loss(counts, p) < bound + 0.005
    assert model.score(X, y) > 0.78


def test_hard_labels_give_the_frequencies_of_the_cells_that_the_machine_does_not_separate(titanic):
    cells, counts, X, y = titanic
    model = SVMClassifier(decoding="coupled-softmax").fit(X, y)
    # The hinge loss asks for the likelier class only: its outputs are −1 and +1, whatever the frequency.
    margins = model.margins(cells)[:, 0]
    assert_allclose(np.abs(margins), 1.0, atol=1e-2)
    p = model.predict_proba(cells)[:, 1]
    for side in (margins < 0, margins > 0):
        pooled = counts[side].sum(axis=0, keepdims=True)
        assert_allclose(p[side], pooled[0, 1] / pooled.sum(), atol=2 * standard_errors(pooled)[0])
    assert model.score(X, y) > 0.78


@pytest.mark.parametrize(
    "model",
    [
        PosteriorSVMClassifier(),
        SVMClassifier(decoding="coupled-softmax"),
        SVMClassifier(None, decoding="softmax"),
    ],
    ids=["posterior", "coupled-softmax", "selected"],
)
def test_neither_the_order_of_rows_nor_noise_matters(model, titanic):
    cells, _, X, y = titanic
    X, y = X[:600], y[:600]
    rng = np.random.default_rng(1)
    expected = model.fit(X, y).predict_proba(cells)
    order = rng.permutation(y.size)
    assert_allclose(model.fit(X[order], y[order]).predict_proba(cells), expected, atol=1e-4)
    noisy = X + 1e-9 * rng.normal(size=X.shape)
    assert_allclose(model.fit(noisy, y).predict_proba(cells), expected, atol=0.02)
