"""LAPACK through ctypes, against NumPy and SciPy."""

import threading
import time

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.linalg import lapack

from polymargin._threads import threads
from polymargin.solvers import _lapack


def positive_definite(n, seed=0):
    X = np.random.default_rng(seed).normal(size=(n, n + 2))
    return np.asfortranarray(X @ X.T)


@pytest.mark.parametrize("n", [1, 2, 63, 64, 65, 200])
def test_everything_about_one_matrix(n):
    A = positive_definite(n)
    lower = A.copy(order="F")
    assert _lapack.factor(lower)
    assert_array_equal(np.triu(lower, 1), 0.0)
    assert_allclose(lower @ lower.T, A, atol=1e-12 * np.abs(A).max())
    assert_array_equal(lower, lapack.dpotrf(A, lower=1, clean=1)[0])

    Y = np.random.default_rng(1).normal(size=(n, 3))
    kept = Y.copy()
    assert_allclose(A @ _lapack.solve_factored(lower, Y), Y, atol=1e-8)
    assert_array_equal(Y, kept)
    for transposed in (False, True):
        solved = _lapack.solve_triangle(lower, Y, transposed=transposed)
        assert_array_equal(solved, lapack.dtrtrs(lower, Y, lower=1, trans=int(transposed))[0])
        assert_allclose((lower.T if transposed else lower) @ solved, Y, atol=1e-10)
    assert_array_equal(Y, kept)

    for kind in (np.float64, np.float32):
        small = A.astype(kind, order="F")
        assert _lapack.factor_small(small)
        potrf = lapack.dpotrf if kind is np.float64 else lapack.spotrf
        assert_array_equal(np.tril(small), potrf(A.astype(kind), lower=1, clean=1)[0])
        solved = _lapack.solve_factored(small, Y)
        assert solved.dtype == kind
        potrs = lapack.dpotrs if kind is np.float64 else lapack.spotrs
        assert_array_equal(solved, potrs(small, Y.astype(kind), lower=1)[0])

    half, solution = np.asfortranarray(np.tril(A)), Y[:, 0].copy()  # above the diagonal nothing is looked at
    assert _lapack.solve_positive(half, solution)
    assert_allclose(A @ solution, Y[:, 0], atol=1e-8)

    triangle = lower.copy(order="F")
    _lapack.invert_triangle(triangle)
    assert_allclose(triangle @ lower, np.eye(n), atol=1e-8)

    inverse = lower.copy(order="F")
    _lapack.invert_factored(inverse)
    assert_allclose(np.tril(inverse), np.tril(np.linalg.inv(A)), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("n", [301, 512, 640])
def test_tiles_of_large_matrices(n, monkeypatch):
    """By tiles it is the same factor, and to the last bit the same for any number of threads."""
    A = positive_definite(n)
    expected = lapack.dpotrf(A, lower=1, clean=1)[0]
    for name, size in (("FEW_ROWS", 100), ("_PANEL", 32), ("_TILE_ROWS", 96), ("_TILE_COLUMNS", 128)):
        monkeypatch.setattr(_lapack, name, size)
    found = []
    for n_jobs in (1, 2, 3):
        with threads(n_jobs):
            lower = A.copy(order="F")
            assert _lapack.factor(lower)
            inverse, both = lower.copy(order="F"), lower.copy(order="F")
            _lapack.invert_triangle(inverse)
            _lapack.invert_factored(both)
        found.append((lower, inverse, both))
    assert_array_equal(np.triu(lower, 1), 0.0)
    assert_allclose(lower, expected, atol=1e-10 * np.abs(expected).max())
    assert_allclose(inverse @ lower, np.eye(n), atol=1e-8)
    assert_array_equal(np.triu(both, 1), 0.0)
    assert_allclose(np.tril(both), np.tril(np.linalg.inv(A)), rtol=1e-6, atol=1e-9)
    for each in found[1:]:
        assert_array_equal(each, found[0])
    A[n - 1, n - 1] = -1.0
    assert not _lapack.factor(A)


def test_nothing_to_factor_or_to_solve():
    """As for a fold without rows of a group."""
    nothing = np.empty((0, 0), order="F")
    assert _lapack.factor(nothing)
    assert _lapack.solve_triangle(nothing, np.empty((0, 3))).shape == (0, 3)
    assert _lapack.solve_triangle(np.eye(2, order="F"), np.empty((2, 0))).shape == (2, 0)


def test_what_is_not_positive_definite():
    assert not _lapack.factor(np.asfortranarray([[1.0, 2.0], [2.0, 1.0]]))
    with pytest.raises(np.linalg.LinAlgError, match="singular"):
        _lapack.invert_triangle(np.asfortranarray([[1.0, 0.0], [2.0, 0.0]]))
    assert not _lapack.solve_positive(np.asfortranarray(-np.eye(3)), np.ones(3))


@pytest.mark.parametrize(
    "A",
    [
        np.eye(3, dtype=np.float32),
        np.arange(9.0).reshape(3, 3),
        np.zeros((2, 3), order="F"),
        np.zeros(3),
        np.broadcast_to(1.0, (1, 1)),
    ],
    ids=["single precision", "C order", "not square", "a vector", "read-only"],
)
def test_what_would_corrupt_memory_is_refused(A):
    with pytest.raises(ValueError, match="LAPACK needs"):
        _lapack.factor(A)


@pytest.mark.parametrize("solve", [_lapack.solve_factored, _lapack.solve_triangle])
def test_right_hand_sides_of_another_size_are_refused(solve):
    lower = np.eye(3, order="F")
    with pytest.raises(ValueError, match="3 rows"):
        solve(lower, np.ones((4, 1)))


def test_vectors_of_another_kind_are_refused():
    for y in (np.ones(2), np.ones(3, dtype=np.float32), np.ones(6)[::2]):
        with pytest.raises(ValueError, match="vector of as many doubles"):
            _lapack.solve_positive(np.eye(3, order="F"), y)


@pytest.mark.parametrize("routine", ["factor", "solve_triangle"])
def test_threads_work_at_once(routine):
    """While one thread is inside LAPACK, another runs Python: that is what these wrappers are for."""
    A = positive_definite(1500)

    def python_runs_meanwhile():
        arguments = [A.copy(order="F")] if routine == "factor" else [A, A]
        began, ended, ticks = [], [], []

        def work():
            began.append(time.perf_counter())
            getattr(_lapack, routine)(*arguments)
            ended.append(time.perf_counter())

        thread = threading.Thread(target=work)
        thread.start()
        while not ended:
            ticks.append(time.perf_counter())
        thread.join()
        # Not at the edges, where the thread is in Python too.
        quarter = (ended[0] - began[0]) / 4
        return any(began[0] + quarter < tick < ended[0] - quarter for tick in ticks)

    # A busy machine may not let the other thread run within these milliseconds.
    assert any(python_runs_meanwhile() for _ in range(20))
