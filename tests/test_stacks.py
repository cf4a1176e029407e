"""Stacks of groups on a device, against the same groups one by one."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose

from polymargin import Codebook
from polymargin.codebooks import ecoc, one_vs_one
from polymargin.device import bank as device_bank
from polymargin.device import fit_device_bank, press_path, search, stacks
from polymargin.device.groups import device_groups
from polymargin.device.kernels import DeviceKernel
from polymargin.kernels import RBF, Blend, Laplacian, Scaled
from polymargin.machines import TrainingRows
from polymargin.solvers.ridge import NotPositiveDefinite

#: Classes of different sizes, so that stacks are padded, and one that is too small for the others' stack.
SIZES = (15, 17, 16, 14, 6)


@pytest.fixture
def solved(monkeypatch):
    """Count the groups that are solved as stacks."""
    found = []

    def counted(groups, *args):
        machines = stacks.solve_stack(groups, *args)
        found.append(0 if machines is None else len(groups))
        return machines

    monkeypatch.setattr(device_bank, "solve_stack", counted)
    return found


def rows(kernel, weighted=False, seed=0):
    rng = np.random.default_rng(seed)
    y = np.repeat(np.arange(len(SIZES)), SIZES)
    X = rng.normal(size=(y.size, 3)) + 1.5 * rng.normal(size=(len(SIZES), 3))[y]
    order = rng.permutation(y.size)
    weights = rng.uniform(0.3, 3.0, y.size) if weighted else np.ones(y.size)
    return TrainingRows(kernel, X[order], y[order], weights)


def assert_same_banks(found, expected):
    for name in ("dual_coef", "intercept", "norms", "mu", "zeta", "log_evidence", "loo_margins"):
        assert_allclose(getattr(found, name), getattr(expected, name), rtol=1e-8, atol=1e-9, err_msg=name)
    assert found.rounding_error == pytest.approx(expected.rounding_error, rel=1e-6)
    if expected.nested is not None:
        assert_allclose(found.nested.margins, expected.nested.margins, atol=1e-8)
        assert_allclose(found.nested.coef, expected.nested.coef, atol=1e-8)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kernel", [RBF(), Blend(), Laplacian(), Scaled(Blend(), np.array([1.0, 0.2, 0.0]))])
def test_stacks_are_the_groups_one_by_one(device, kernel, weighted, solved, monkeypatch):
    data, codebook = rows(kernel, weighted), one_vs_one(len(SIZES))
    fit = {"C": 3.0, "gamma": 0.3, "device": device, "n_folds": 3, "keep_fold_coef": True}
    found = fit_device_bank(data, codebook, **fit)
    assert sum(solved) == codebook.n_columns  # all pairs, those of the small class in a stack of their own
    assert len(solved) > 1
    monkeypatch.setattr(device_bank, "stacked", lambda *args: [])
    assert_same_banks(found, fit_device_bank(data, codebook, **fit))


def test_groups_of_several_columns_and_parameters_of_their_own(device, solved, monkeypatch):
    """Columns of a group have C and gamma in common, or the group is in no stack; groups may differ in C."""
    # Two groups of two columns each, and one of a single column.
    codebook = Codebook(
        np.array([[1, 1, 0, 0, 1], [-1, 1, 1, 1, 0], [1, -1, -1, 1, 0], [0, 0, 1, -1, -1], [0, 0, 0, 0, 0]])[
            :4
        ]
    )
    data = rows(RBF())
    kept = np.flatnonzero(data.class_index < 4)
    data = TrainingRows(data.kernel, data.X[kept], data.class_index[kept], data.weights[kept])
    Cs, gammas = np.array([1.0, 1.0, 5.0, 5.0, 2.0]), np.full(5, 0.3)
    fit = {"device": device, "n_folds": 2, "keep_fold_coef": True}
    found = fit_device_bank(data, codebook, Cs, gammas, **fit)
    assert solved
    assert solved[0] >= 2
    other = fit_device_bank(data, codebook, np.array([1.0, 4.0, 5.0, 5.0, 2.0]), gammas, **fit)
    monkeypatch.setattr(device_bank, "stacked", lambda *args: [])
    assert_same_banks(found, fit_device_bank(data, codebook, Cs, gammas, **fit))
    assert_same_banks(
        other, fit_device_bank(data, codebook, np.array([1.0, 4.0, 5.0, 5.0, 2.0]), gammas, **fit)
    )


def test_dense_codings_have_no_stacks(device, solved):
    """One group has all rows."""
    fit_device_bank(rows(RBF()), ecoc(len(SIZES), random_state=0), 1.0, 0.3, device)
    assert not solved


def test_a_stack_takes_no_more_memory_than_a_few_blocks(device, monkeypatch):
    data, codebook = rows(RBF()), one_vs_one(len(SIZES))
    kernel = DeviceKernel(data.kernel, data.X, device)
    groups = device_groups(data, codebook, device, "float64", kernel)
    ones = np.ones(codebook.n_columns)
    whole = stacks.stacked(groups, kernel, ones, ones)
    most = (
        2.5 * 8.0 * max(group.rows.size for group in groups) ** 2
    )  # bytes: two and a half of the largest matrices
    monkeypatch.setattr(type(device), "block_bytes", lambda self: most * stacks._MATRICES / stacks._BLOCKS)
    parts = stacks.stacked(groups, kernel, ones, ones)
    assert len(parts) > len(whole)
    for stack in parts:
        assert 8.0 * len(stack) * max(groups[place].rows.size for place in stack) ** 2 <= most


def test_without_the_matrices_of_all_rows_there_are_no_stacks(device, solved, monkeypatch):
    monkeypatch.setattr(DeviceKernel, "keep_parts", lambda self: None)
    fit_device_bank(rows(RBF()), one_vs_one(len(SIZES)), 1.0, 0.3, device)
    assert not solved


def test_machines_that_learn_nothing_are_solved_one_by_one(device, solved, monkeypatch):
    """A pair of classes whose rows are all equal: its machine is the mean of the targets."""
    data = rows(RBF())
    X = data.X.copy()
    X[data.class_index < 2] = 1.0
    data = replace(data, X=X)
    found = fit_device_bank(data, one_vs_one(len(SIZES)), 1.0, 0.3, device)
    assert 0 in solved
    monkeypatch.setattr(device_bank, "stacked", lambda *args: [])
    assert_same_banks(found, fit_device_bank(data, one_vs_one(len(SIZES)), 1.0, 0.3, device))


def test_a_matrix_without_a_factor_raises_as_always(device, solved):
    data = rows(RBF())
    with pytest.raises(NotPositiveDefinite, match="too large"):
        fit_device_bank(data, one_vs_one(len(SIZES)), 1e19, 1e-9, device)
    assert solved[0] == 0


def test_a_fold_that_leaves_too_few_rows(device, solved, monkeypatch):
    """What a stack cannot leave out is left out of the groups one by one, if that is possible."""
    data, codebook = rows(RBF()), one_vs_one(len(SIZES))
    fit = {"C": 1.0, "gamma": 0.3, "device": device, "n_folds": 2, "keep_fold_coef": True}
    expected = fit_device_bank(data, codebook, **fit)
    monkeypatch.setattr(stacks.Stack, "_without", lambda self, P, held: None)
    assert_same_banks(fit_device_bank(data, codebook, **fit), expected)
    assert solved[-1] == 0


@pytest.mark.parametrize("weighted", [False, True])
def test_press_of_stacks(device, weighted, monkeypatch):
    """PRESS of several C; one that is too large for some matrices counts as infinite there alone."""
    data, codebook = rows(RBF(), weighted), one_vs_one(len(SIZES))
    Cs = [0.1, 3.0, 1e19]
    found = press_path(data, codebook, 0.3, Cs, device)
    monkeypatch.setattr(search, "stacked", lambda *args: [])
    assert_allclose(found, press_path(data, codebook, 0.3, Cs, device), rtol=1e-8)
