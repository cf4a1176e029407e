"""What changes nothing about the data changes no probability: the last bits, the unit, the order, the names.

With 250 rows every perturbation is tried by itself, and all at once with four more seeds; with 1500 and 3000 rows all
are applied at once. Fits take long, above all those of the pool: ``make test`` has every set, estimator and seed, but
not all of their combinations. ``make test-long`` has them, with every perturbation by itself.
"""

import os
from functools import partial

import numpy as np
import pytest
from sklearn.preprocessing import StandardScaler

from polymargin import AutoKernelClassifier, LSSVMClassifier
from polymargin.datasets import load, make_r4, make_waveform

ESTIMATORS = {
    "LSSVM": LSSVMClassifier,
    "exponential": partial(LSSVMClassifier, kernel="exponential"),
    "ranks": partial(LSSVMClassifier, kernel="laplacian", columns="ranks"),
    "AutoKernel": AutoKernelClassifier,
}
N_TEST = 200
TOLERANCE = 1e-6


def satimage(n, random_state):
    if not os.environ.get("POLYMARGIN_DATA"):
        pytest.skip("set POLYMARGIN_DATA to the folder of datasets")
    data = load("satimage")
    rows = np.random.default_rng(random_state).permutation(len(data.y))[:n]
    return data.X[rows].astype(float), np.unique(data.y, return_inverse=True)[1][rows]


def sine(n, random_state):
    """Return rows whose class depends on two of 17 columns: the pool learns metrics, from some of 1500 rows."""
    rng = np.random.default_rng(random_state)
    X = rng.normal(size=(n, 17))
    return X, (np.sin(2.0 * X[:, 0]) + X[:, 1] + 0.3 * rng.normal(size=n) > 0).astype(int)


DATA = {
    "waveform": make_waveform,
    "r4": make_r4,
    "satimage": satimage,
    "sine": sine,
}  # 21 columns, 2 noisy ones, 36, 17; 3, 3, 6, 2 classes


def problem(name, n, seed):
    """Return training rows, labels 0 to K - 1, and test rows, standardised."""
    X, y = DATA[name](n + N_TEST, random_state=seed)
    scaler = StandardScaler().fit(X[:n])
    return scaler.transform(X[:n]), y[:n], scaler.transform(X[n:])


def last_bits(X, y, X_test, rng):
    return X * (1.0 + 1e-9 * rng.normal(size=X.shape)), y, X_test, np.arange(y.max() + 1)


def unit(X, y, X_test, rng):
    return 3.0 * X, y, 3.0 * X_test, np.arange(y.max() + 1)


def order(X, y, X_test, rng):
    rows = rng.permutation(y.size)
    return X[rows], y[rows], X_test, np.arange(y.max() + 1)


def names(X, y, X_test, rng):
    """Rename the classes so that their sorted order changes; the last value is the old class of every new one."""
    old = rng.permutation(y.max() + 1)
    new = np.argsort(old)
    texts = np.array([f"class {letter}" for letter in "abcdefghij"])
    return X, texts[new[y]], X_test, old


def everything(X, y, X_test, rng):
    for change in (last_bits, unit, order):
        X, y, X_test, _ = change(X, y, X_test, rng)
    return names(X, y, X_test, rng)


def largest_change(estimator, name, n, seed, changes):
    X, y, X_test = problem(name, n, seed)
    model = ESTIMATORS[estimator]().fit(X, y)
    if name == "sine":  # else nothing here says that learned metrics change as little
        assert any(member.metric_ is not None for member in model.members_)
    before = model.predict_proba(X_test)
    moved = {}
    for change in changes:
        X_new, y_new, X_test_new, old = change(X, y, X_test, np.random.default_rng(100 + seed))
        after = ESTIMATORS[estimator]().fit(X_new, y_new).predict_proba(X_test_new)
        moved[change.__name__] = float(np.abs(after - before[:, old]).max())
    return moved


ALONE = (last_bits, unit, order, names)
SETS = ("waveform", "r4", "satimage")
COMBINATIONS = [
    *((estimator, name, seed) for estimator in ("LSSVM", "AutoKernel") for name in SETS for seed in range(5)),
    *(("AutoKernel", "sine", seed) for seed in range(2)),
]
#: The pool, which takes longer, has fewer seeds of every set.
WITH_250_ROWS = [
    *(case for case in COMBINATIONS if case[0] == "LSSVM" or case[2] < 2),
    *((estimator, name, 0) for estimator in ("exponential", "ranks") for name in SETS),
]
WITH_1500_ROWS = [*(("LSSVM", name, k) for k, name in enumerate(SETS)), ("AutoKernel", "r4", 1)]
WITH_3000_ROWS = [("LSSVM", "waveform", 0), ("LSSVM", "r4", 1)]


@pytest.mark.parametrize(("estimator", "name", "seed"), WITH_250_ROWS)
def test_250_rows(estimator, name, seed):
    moved = largest_change(estimator, name, 250, seed, ALONE if seed == 0 else (everything,))
    assert max(moved.values()) <= TOLERANCE, moved


def test_rows_that_become_nearly_equal():
    """Distances of equal rows, zero before, are 1e-9 afterwards, and no more than that."""
    X, y, X_test = problem("r4", 150, 0)
    rng = np.random.default_rng(0)
    X, y = np.vstack([X, X]), np.append(y, np.where(rng.random(150) < 0.3, rng.integers(0, 3, 150), y))
    before, after = (
        ESTIMATORS["exponential"]().fit(rows, y, groups=np.arange(300))
        for rows in (X, last_bits(X, y, X_test, rng)[0])
    )
    new = np.vstack([X_test, X])
    assert np.abs(after.predict_proba(new) - before.predict_proba(new)).max() <= TOLERANCE


@pytest.mark.parametrize(("estimator", "name", "seed"), WITH_1500_ROWS)
def test_1500_rows(estimator, name, seed):
    moved = largest_change(estimator, name, 1500, seed, (everything,))
    assert max(moved.values()) <= TOLERANCE, moved


@pytest.mark.parametrize(("estimator", "name", "seed"), WITH_3000_ROWS)
def test_3000_rows(estimator, name, seed):
    moved = largest_change(estimator, name, 3000, seed, (everything,))
    assert max(moved.values()) <= TOLERANCE, moved


@pytest.mark.long
@pytest.mark.parametrize("n", [250, 1500, 3000])
@pytest.mark.parametrize(("estimator", "name", "seed"), COMBINATIONS)
def test_whole_grid(estimator, name, n, seed, record_property):
    moved = largest_change(estimator, name, n, seed, (*ALONE, everything))
    record_property("largest change", max(moved.values()))
    assert max(moved.values()) <= TOLERANCE, moved
