"""Leave-one-out curves against refits and the explicit hat matrix."""

import sys

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse

import naive
from conftest import blobs
from polymargin.papers.shim2008.curves import leave_one_out_curves

X, Y = blobs(n=30, K=3, d=2, seed=4)
GAMMAS = np.array([0.05, 0.4, 3.0])


def coded(y):
    return np.where(y[:, None] == np.unique(y), 1.0, -1.0)


@pytest.mark.parametrize(
    ("kernel", "parameters"), [("rbf", {}), ("laplacian", {}), ("exponential", {}), ("poly", {"degree": 2})]
)
@pytest.mark.parametrize("C", [0.3, 10.0])
def test_cv_and_press_are_those_of_refits(kernel, parameters, C):
    curves = leave_one_out_curves(X, Y, gammas=GAMMAS, C=C, kernel=kernel, **parameters)
    T = coded(Y)
    for number, gamma in enumerate(GAMMAS):
        K = naive.kernel_matrix(kernel, X, X, gamma, **parameters)
        residuals = T - naive.lssvm_loo_margins(K, T, C)
        assert_allclose(curves.cv[number], np.mean(residuals[np.arange(30), Y] ** 2), rtol=1e-8)
        assert_allclose(curves.press[number], np.mean((residuals**2).sum(axis=1)), rtol=1e-8)


@pytest.mark.parametrize("K", [2, 4])
def test_gcv_is_its_definition(K):
    rows, y = blobs(n=25, K=K, d=2, seed=5)
    C, n, T = 10.0, 25, coded(y)
    curves = leave_one_out_curves(rows, y, gammas=GAMMAS, C=C)
    for number, gamma in enumerate(GAMMAS):
        gram = naive.kernel_matrix("rbf", rows, rows, gamma)
        # The hat matrix column by column: what is said of the rows if one target is one and the others are zero.
        H = np.column_stack([gram @ a + b for a, b in (naive.lssvm_solve(gram, e, C) for e in np.eye(n))])
        own = (H @ T)[np.arange(n), y]
        assert_allclose(curves.gcv[number], n * np.sum((1 - own) ** 2) / (n - np.trace(H)) ** 2, rtol=1e-8)


def test_best_gamma():
    gammas = np.geomspace(1e-3, 1e3, 13)
    curves = leave_one_out_curves(X, Y, gammas=gammas)
    for criterion in ("cv", "gcv", "press"):
        values = getattr(curves, criterion)
        assert curves.best_gamma(criterion) == gammas[values.argmin()]
    assert curves.C == 10.0
    assert curves.best_gamma() == curves.best_gamma("gcv")
    assert 1e-3 < curves.best_gamma("press") < 1e3
    with pytest.raises(ValueError, match="unknown criterion"):
        curves.best_gamma("loo")


def test_sparse_rows_and_names_as_labels():
    plain = leave_one_out_curves(X, Y, gammas=GAMMAS)
    thin = leave_one_out_curves(sparse.csr_matrix(X), np.array(list("abc"))[Y], gammas=GAMMAS)
    assert_allclose(thin.gcv, plain.gcv, rtol=1e-8)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"kernel": "linear"}, "has no gamma"),
        ({"gammas": []}, "gammas must be a list of positive numbers"),
        ({"gammas": [1.0, -1.0]}, "gammas must be a list of positive numbers"),
        ({"C": 0.0}, "C must be a positive number"),
        ({"y": np.zeros(30)}, "only one class"),
        ({"X": 1e150 * X, "kernel": "poly"}, "scale the features"),
    ],
)
def test_bad_input(parameters, message):
    with pytest.raises(ValueError, match=message):
        leave_one_out_curves(**{"X": X, "y": Y, "gammas": GAMMAS, **parameters})


@pytest.mark.parametrize("bandwidth", [False, True])
def test_plot(bandwidth):
    pytest.importorskip("matplotlib")
    curves = leave_one_out_curves(X, Y, gammas=GAMMAS)
    axes = curves.plot(criteria=("cv", "gcv", "press"), bandwidth=bandwidth)
    lines = [line for line in axes.get_lines() if line.get_label() in ("CV", "GCV", "PRESS")]
    assert [line.get_linestyle() for line in lines] == ["-", "--", ":"]
    where = 1 / GAMMAS if bandwidth else GAMMAS
    order = np.argsort(where)
    assert_allclose(lines[1].get_xdata(), where[order])
    assert_allclose(lines[1].get_ydata(), curves.gcv[order])
    assert curves.plot(ax=axes) is axes


def test_without_matplotlib_the_message_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r"install polymargin with its plot extra"):
        leave_one_out_curves(X, Y, gammas=GAMMAS).plot()
