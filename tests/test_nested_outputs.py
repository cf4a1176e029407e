"""Nested outputs of a bank: the margins of machines trained without every fold, against refits."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import naive
from conftest import blobs
from polymargin import Codebook, LSSVMClassifier
from polymargin.codebooks import one_vs_all, one_vs_one
from polymargin.dealing import Deal
from polymargin.decoders import CoupledSoftmax
from polymargin.kernels import RBF, Blend, Linear, Polynomial, Precomputed
from polymargin.machines import TrainingRows, fit_lssvm_bank
from polymargin.outputs import Nested, Outputs

X, Y = blobs(n=40, K=3, seed=4)
X = X[:, :2]
KERNELS = {
    "rbf": (RBF(), {"kind": "rbf", "gamma": 0.4}),
    "blend": (Blend(0.3), {"kind": "blend", "gamma": 0.4, "share": 0.3}),
    "poly by features": (Polynomial(2, 0.7), {"kind": "poly", "gamma": 0.4, "degree": 2, "coef0": 0.7}),
    "linear": (Linear(), {"kind": "linear"}),
}
CODINGS = {
    "one-vs-one": one_vs_one(3),
    "one-vs-all": one_vs_all(3),
    "mixed": Codebook([[-1, 0, 1], [1, -1, 1], [0, 1, -1]]),
}
WEIGHTS = {"ones": np.ones(40), "any": np.random.default_rng(2).uniform(0.2, 3.0, 40)}
GROUPS = {None: None, "groups": np.random.default_rng(3).integers(0, 22, 40)}


def bank_for(name, coding, weighting="ones", grouping=None, C=3.0, n_folds=4, **more):
    kernel, oracle = KERNELS[name]
    data = TrainingRows(kernel, X, Y, WEIGHTS[weighting], groups=GROUPS[grouping])
    gamma = 1.0 if name == "linear" else 0.4
    return fit_lssvm_bank(
        data, CODINGS[coding], C=C, gamma=gamma, keep_factors=False, n_folds=n_folds, **more
    ), naive.kernel_matrix(X=X, Z=X, **oracle)


def expected_margins(bank, K, C, weights, groups):
    """Fold by fold and column by column, with the shift of the mean of the targets that is left out of all outputs."""
    numbers = bank.nested.numbers
    matrix = bank.codebook.matrix
    expected = np.empty_like(bank.nested.margins)
    for column in range(matrix.shape[1]):
        sides = matrix[Y, column].astype(float)
        used = np.flatnonzero(sides)
        own = None if groups is None else groups[used]
        part = naive.lssvm_nested_margins(
            K[np.ix_(used, used)], sides[used], C, numbers[used], weights[used], own
        )
        for fold in range(len(expected)):
            kept = numbers[used] != fold
            expected[fold, used, column] = part[fold] + naive.shift_of_the_mean(
                sides[used], weights[used], own, kept
            )
            rest, rows = np.setdiff1d(np.arange(len(Y)), used), used[kept]
            a, b = naive.lssvm_solve(K[np.ix_(rows, rows)], sides[rows], C, weights[rows])
            expected[fold, rest, column] = naive.lssvm_predict(K[np.ix_(rest, rows)], a, b)
    return expected


@pytest.mark.parametrize("grouping", GROUPS)
@pytest.mark.parametrize("weighting", WEIGHTS)
@pytest.mark.parametrize("coding", CODINGS)
@pytest.mark.parametrize("name", KERNELS)
def test_nested_outputs_are_those_of_refits(name, coding, weighting, grouping):
    bank, K = bank_for(name, coding, weighting, grouping)
    assert (bank.expansion is not None) == (name in ("linear", "poly by features"))
    assert bank.nested is not None
    assert_array_equal(bank.nested.numbers, bank.data.deal.fold_numbers(4))
    expected = expected_margins(bank, K, 3.0, WEIGHTS[weighting], GROUPS[grouping])
    assert_allclose(bank.nested.margins, expected, atol=1e-7)


@pytest.mark.parametrize("C", [0.01, 200.0])
@pytest.mark.parametrize("name", ["rbf", "poly by features"])
def test_nested_outputs_with_much_and_little_regularisation(name, C):
    bank, K = bank_for(name, "one-vs-one", "any", "groups", C=C)
    expected = expected_margins(bank, K, C, WEIGHTS["any"], GROUPS["groups"])
    assert_allclose(bank.nested.margins, expected, atol=1e-6)


def test_nested_outputs_of_a_precomputed_kernel():
    K = naive.kernel_matrix("rbf", X, X, gamma=0.4)
    data = TrainingRows(Precomputed(), K, Y, WEIGHTS["any"])
    bank = fit_lssvm_bank(data, one_vs_one(3), C=3.0, gamma=None, keep_factors=False, n_folds=4)
    assert_allclose(bank.nested.margins, expected_margins(bank, K, 3.0, WEIGHTS["any"], None), atol=1e-7)


def test_nested_outputs_with_factors_kept_and_with_ridges_of_their_own():
    kept, K = bank_for("rbf", "one-vs-all")
    data = TrainingRows(RBF(), X, Y, np.ones(40))
    again = fit_lssvm_bank(data, one_vs_all(3), C=3.0, gamma=0.4, keep_factors=True, n_folds=4)
    assert_allclose(again.nested.margins, kept.nested.margins, atol=1e-9)
    Cs = np.array([0.5, 3.0, 3.0])
    own = fit_lssvm_bank(data, one_vs_all(3), C=Cs, gamma=0.4, keep_factors=False, n_folds=4)
    for column, C in enumerate(Cs):
        expected = expected_margins(own, K, C, np.ones(40), None)[:, :, column]
        assert_allclose(own.nested.margins[:, :, column], expected, atol=1e-7)


def test_nothing_of_a_folds_labels_is_in_its_outputs():
    """Other labels in a fold change neither the margins of its rows nor the others' that a decoder learns from."""
    bank, _ = bank_for("rbf", "one-vs-all")
    for fold in range(4):
        held = bank.nested.numbers == fold
        y = Y.copy()
        y[held] = (y[held] + 1) % 3
        data = TrainingRows(RBF(), X, y, np.ones(40), dealt=bank.data.deal)
        other = fit_lssvm_bank(data, one_vs_all(3), C=3.0, gamma=0.4, keep_factors=False, n_folds=4)
        assert_array_equal(other.nested.numbers, bank.nested.numbers)
        assert_allclose(other.nested.margins[fold], bank.nested.margins[fold], atol=1e-9)
        rest = [number for number in range(4) if number != fold]
        assert np.abs(other.nested.margins[rest] - bank.nested.margins[rest]).max() > 0.1


def test_without_folds_there_are_none():
    assert bank_for("rbf", "one-vs-one", n_folds=0)[0].nested is None


# Outputs ---------------------------------------------------------------------------------------------------


def some_outputs(nested=True):
    random = np.random.default_rng(0)
    index = np.r_[0, np.repeat([1, 2, 3], [8, 9, 10])]
    deal = Deal.of(random.normal(size=(28, 2)), index)
    margins = random.normal(size=(28, 6))
    more = Nested(deal.fold_numbers(5), random.normal(size=(5, 28, 6))) if nested else None
    return Outputs(margins, "leave_one_out", exact=margins + 1, dealt=deal, nested=more), index


@pytest.mark.parametrize("nested", [True, False])
def test_held_out_yields_every_row_but_the_only_one_of_its_class(nested):
    outputs, index = some_outputs(nested)
    seen = []
    for fold, (held, kept, rows) in enumerate(outputs.held_out(index, 5)):
        assert_array_equal(np.flatnonzero(~kept), rows)
        assert_array_equal(held.margins, outputs.nested.margins[fold] if nested else outputs.margins)
        assert held.nested is None
        assert held.exact is None
        assert set(index[kept]) == {0, 1, 2, 3}
        seen.extend(rows)
    assert sorted(seen) == list(range(1, 28))


def test_parts_and_rows_of_outputs_keep_their_nested_outputs():
    outputs, _ = some_outputs()
    rows = np.array([3, 20, 7])
    some = outputs.rows(rows)
    assert_array_equal(some.nested.margins, outputs.nested.margins[:, rows])
    assert_array_equal(some.nested.numbers, outputs.nested.numbers[rows])
    assert_array_equal(some.exact, outputs.exact[rows])
    assert_array_equal(some.dealt.place, outputs.dealt.place[rows])


def test_stated_probabilities_are_of_the_nested_outputs():
    """The estimator's cross-fitted probabilities are learned from machines trained without the row's fold.

    The estimator does not keep the nested outputs, so its machines are trained once more.
    """
    base = LSSVMClassifier(C=2.0, gamma=0.3, kernel="rbf", coding="one-vs-all").fit(X, Y)
    assert base.bank_.nested is None
    data = TrainingRows(RBF(), X, Y, np.ones(40), dealt=base.bank_.data.deal)
    bank = fit_lssvm_bank(data, base.codebook_, C=2.0, gamma=0.3, keep_factors=False, n_folds=5)
    assert bank.nested.numbers.max() == 4
    outputs = bank.training_outputs(honest=True)
    log_p = CoupledSoftmax().cross_fit(base.codebook_, outputs, Y)
    assert_allclose(base.loo_log_proba_, log_p, atol=1e-6)
    plain = CoupledSoftmax().cross_fit(base.codebook_, replace(outputs, nested=None), Y)
    assert np.abs(plain - log_p).max() > 1e-2
