"""Rows and groups left out, and folds left out, from one inverse: against machines that are trained again."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import naive
from conftest import blobs
from polymargin.selection.press import unbiased_inverse
from polymargin.solvers.centring import centre
from polymargin.solvers.leave_out import LeftOut, inverse_blocks, leave_fold_out
from polymargin.solvers.ridge import cholesky, left_out_errors, spectral

X, Y = blobs(n=26, K=3, seed=1)
K = naive.kernel_matrix("rbf", X, X, gamma=0.3)
TARGETS = np.random.default_rng(0).normal(size=(26, 3)) + np.eye(3)[Y]
WEIGHTS = {"ones": np.ones(26), "any": np.random.default_rng(2).uniform(0.1, 5.0, 26)}
GROUPS = {
    "single": np.arange(26),
    "pairs": np.arange(26) // 2,
    "sizes 1 to 6": np.repeat(np.arange(8), [1, 1, 2, 2, 3, 5, 6, 6]),
    "scattered": np.random.default_rng(4).integers(0, 9, 26),
    "two": np.arange(26) % 2,
}
every_weighting = pytest.mark.parametrize("weighting", WEIGHTS)
every_grouping = pytest.mark.parametrize("grouping", GROUPS)
every_ridge = pytest.mark.parametrize("ridge", [1e-3, 0.5, 40.0])


def inverse_and_solution(weights, ridge):
    """P and ã."""
    centring, A = centre(K.copy(), weights)
    P = unbiased_inverse(A, centring, ridge)
    return centring, P, P @ centring.targets(TARGETS)[0]


# Groups ----------------------------------------------------------------------------------------------------


@every_grouping
def test_blocks_hold_the_rows_of_every_group(grouping):
    groups = GROUPS[grouping]
    names = np.array([f"group {number}" for number in groups])  # names of any kind
    for given in (groups, names, 3 * groups - 7):
        left_out = LeftOut.of(given)
        assert left_out.n_rows == 26
        sizes = [block.shape[1] for block in left_out.blocks]
        assert sizes == sorted(set(np.unique(groups, return_counts=True)[1]))
        found = {frozenset(rows) for block in left_out.blocks for rows in block.tolist()}
        assert found == {frozenset(np.flatnonzero(groups == name).tolist()) for name in np.unique(groups)}
        assert left_out.single == (grouping == "single")


@every_ridge
@every_weighting
@every_grouping
def test_errors_are_those_of_refits_without_the_group(grouping, weighting, ridge):
    weights, groups = WEIGHTS[weighting], GROUPS[grouping]
    centring, P, solution = inverse_and_solution(weights, ridge)
    left_out = LeftOut.of(groups)
    expected = np.sqrt(weights)[:, None] * (
        TARGETS - naive.lssvm_loo_margins(K, TARGETS, 1 / ridge, weights, groups)
    )
    size = np.abs(expected).max()
    errors = left_out.errors(left_out.blocks_of(P), solution)
    assert_allclose(errors, expected, atol=1e-7 * size)
    # The factorisations give the same, with one ridge and with several.
    A = centre(K.copy(), weights)[1]
    factor = cholesky(A, ridge, 3)
    y = centring.targets(TARGETS)[0]
    found = left_out_errors(factor, factor.solve(y), centring, np.array([ridge]), left_out)
    assert_allclose(found, expected, atol=1e-7 * size)
    ridges = ridge * np.array([1.0, 3.0, 0.5])
    many = spectral(A, ridges)
    found = left_out_errors(many, many.solve(y), centring, ridges, left_out)
    for column, own in enumerate(ridges):
        margins = naive.lssvm_loo_margins(K, TARGETS[:, column], 1 / own, weights, groups)
        refits = np.sqrt(weights) * (TARGETS[:, column] - margins)
        assert_allclose(found[:, column], refits, atol=1e-7 * np.abs(refits).max())


def test_a_group_of_one_is_the_residual_over_one_minus_the_leverage():
    _, P, solution = inverse_and_solution(WEIGHTS["any"], 0.5)
    left_out = LeftOut.of(np.arange(26))
    errors = left_out.errors(left_out.blocks_of(P), solution)
    assert_allclose(errors, solution / np.diagonal(P)[:, None], rtol=1e-12)


@every_grouping
def test_blocks_of_an_inverse_triangle(grouping):
    random = np.random.default_rng(0)
    root = random.normal(size=(26, 30))
    matrix = root @ root.T
    lower = np.linalg.cholesky(matrix)
    left_out = LeftOut.of(GROUPS[grouping])
    whole = np.linalg.inv(matrix)
    blocks = inverse_blocks(np.linalg.inv(lower), left_out)
    for found, expected in zip(blocks, left_out.blocks_of(whole), strict=True):
        assert_allclose(found, expected, atol=1e-10 * np.abs(whole).max())


@every_grouping
def test_outer_products_are_within_groups(grouping):
    groups = GROUPS[grouping]
    random = np.random.default_rng(0)
    errors, adjoint = random.normal(size=(2, 26, 3))
    expected = errors @ adjoint.T
    expected = np.where(groups[:, None] == groups, 0.5 * (expected + expected.T), 0.0)
    assert_allclose(LeftOut.of(groups).outer(errors, adjoint).toarray(), expected, atol=1e-13)


# Folds -----------------------------------------------------------------------------------------------------


def fold_of(groups, n_folds=4, seed=0):
    """A fold that divides no group."""
    names, member = np.unique(groups, return_inverse=True)
    return (np.random.default_rng(seed).permutation(names.size) % n_folds == 0)[member]


@every_ridge
@every_weighting
@pytest.mark.parametrize("grouping", [None, *GROUPS])
def test_a_fold_left_out_is_a_refit_without_it(grouping, weighting, ridge):
    weights = WEIGHTS[weighting]
    groups = np.arange(26) if grouping is None else GROUPS[grouping]
    held = np.arange(26) < 9 if grouping == "two" else fold_of(groups)
    if grouping == "two":  # which has nothing left to leave out if one of the two groups is held
        groups = np.where(held, 2, groups)
    left_out = None if grouping is None else LeftOut.of(groups)
    _, P, solution = inverse_and_solution(weights, ridge)
    before = P.copy(), solution.copy()
    without, errors = leave_fold_out(P, solution, held, left_out)
    assert_array_equal(P, before[0])
    assert_array_equal(solution, before[1])
    kept = np.flatnonzero(~held)
    a, b = naive.lssvm_solve(K[np.ix_(kept, kept)], TARGETS[kept], 1 / ridge, weights[kept])
    roots = np.sqrt(weights)[:, None]
    assert_array_equal(without[held], 0.0)
    assert_allclose((roots * without)[kept], a, atol=1e-7 * np.abs(a).max())
    margins = np.empty_like(TARGETS)
    margins[held] = naive.lssvm_predict(K[np.ix_(held, ~held)], a, b)
    margins[kept] = naive.lssvm_loo_margins(
        K[np.ix_(kept, kept)], TARGETS[kept], 1 / ridge, weights[kept], groups[kept]
    )
    expected = roots * (TARGETS - margins)
    assert_allclose(errors, expected, atol=1e-7 * np.abs(expected).max())


def test_no_fold_leaves_all_as_it_is():
    _, P, solution = inverse_and_solution(WEIGHTS["any"], 0.5)
    without, errors = leave_fold_out(P, solution, np.zeros(26, dtype=bool))
    assert_allclose(without, solution)
    assert_allclose(errors, solution / np.diagonal(P)[:, None])
