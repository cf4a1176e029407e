"""The machines of a factorised block: coefficients, bias, evidence and exact leave-one-out margins.

The block's matrix may be on the CPU or on a device: what is asked of it are solutions and a diagonal.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polymargin.machines._folds_out import FoldsOut
from polymargin.machines._gram import GroupGram
from polymargin.machines.lssvm import FactorisedBlock, factorised
from polymargin.selection import evidence
from polymargin.solvers.ridge import InvertibleFactor, left_out_errors, unbiased_diagonal
from polymargin.solvers.thin import ThinFactor

Array = NDArray[Any]

#: What `SolvedBlock` and `LSSVMBank` know of every machine, one number each.
_OF_MACHINES = ("intercept", "norms", "mu", "zeta", "log_evidence")
#: Margins smaller than this times the targets count as zero: their relative error is not estimated.
_NEGLIGIBLE = 1e-6
#: Machines whose margins vary by less than this part of the targets have learned next to nothing.
_NOTHING_LEARNED = 0.01
#: What a machine has learned, the variation of its margins, must be this many times the rounding errors: else not one
#: digit of it is right. (Equal rows with different labels have had 1.2.)
LEAST_SIGNAL = 10.0


@dataclass(frozen=True)
class SolvedBlock:
    """The machines of a block of m rows and l columns; see `LSSVMBank` for the quantities.

    Attributes
    ----------
    rows, columns : ndarray of int, shape (m,) and (l,)
        The training rows and the columns of the codebook.
    coef : ndarray of shape (l, m)
        The coefficients of the kernel expansions.
    intercept, norms, mu, zeta, log_evidence : ndarray of shape (l,)
        One value per machine.
    loo_margins : ndarray of shape (m, l)
        The leave-one-out margins of the rows.
    rounding_error : float
        The relative error in the margins of the worst machine that one rounding of the kernel matrix causes.
    folds : FoldsOut or None
        The machines refitted without each fold, if requested and numerically possible.
    block : FactorisedBlock or None
        The factorisation, if it is kept.
    """

    rows: Array
    columns: Array
    coef: Array
    intercept: Array
    norms: Array
    mu: Array
    zeta: Array
    log_evidence: Array
    loo_margins: Array
    rounding_error: float
    folds: FoldsOut | None
    block: FactorisedBlock | None


def joined(parts: Sequence[SolvedBlock], n_rows: int, n_columns: int) -> tuple[dict[str, Any], Array]:
    """Join the machines of blocks, which together have all columns.

    Parameters
    ----------
    parts : sequence of SolvedBlock
        The machines of every block.
    n_rows, n_columns : int
        The number n of training rows and L of columns.

    Returns
    -------
    fields : dict of str to ndarray
        Arguments of `LSSVMBank`: coefficients, leave-one-out margins, and what it knows of every machine.
    unused : ndarray of bool, shape (n, L)
        Whether a dichotomy does not use a row, which is out-of-sample for its machine then.
    """
    dual_coef, loo_margins = np.zeros((n_columns, n_rows)), np.zeros((n_rows, n_columns))
    unused = np.ones((n_rows, n_columns), dtype=bool)
    of_machines = {name: np.empty(n_columns) for name in _OF_MACHINES}
    for part in parts:
        dual_coef[np.ix_(part.columns, part.rows)] = part.coef
        loo_margins[np.ix_(part.rows, part.columns)] = part.loo_margins
        unused[np.ix_(part.rows, part.columns)] = False
        for name, values in of_machines.items():
            values[part.columns] = getattr(part, name)
    return {"dual_coef": dual_coef, "loo_margins": loo_margins, **of_machines}, unused


def solve_group(
    group: GroupGram,
    C: Array,
    gamma: Array,
    folds: Array | None,
    *,
    keep_factors: bool = False,
    gram: Array | None = None,
) -> Iterator[SolvedBlock]:
    """Yield the machines of a group of rows, block by block.

    Parameters
    ----------
    group : GroupGram
        The rows and targets.
    C, gamma : ndarray of shape (l,)
        The parameters of the group's columns.
    folds : ndarray of int, shape (n,), or None
        The fold of every training row, if machines refitted without each fold are wanted.
    keep_factors : bool
        Whether the factorisations are kept.
    gram : ndarray of shape (n, n) or None
        The kernel matrix of all rows, if groups take their part of it.

    Yields
    ------
    SolvedBlock
    """
    ridges = 1.0 / C
    for block in factorised(group, gamma, ridges, whole=keep_factors, gram=gram):
        places = np.searchsorted(group.columns, block.columns)
        yield solve_block(group, block, ridges[places], folds, keep_factors)


def solve_block(
    group: GroupGram, block: FactorisedBlock, ridges: Array, folds: Array | None, keep_factor: bool
) -> SolvedBlock:
    """Return the machines of a block.

    Parameters
    ----------
    group : GroupGram
        The rows and targets of the columns that share the block's rows.
    block : FactorisedBlock
        The factorisation.
    ridges : ndarray of shape (l,)
        The ridge 1/C of every column of the block.
    folds : ndarray of int, shape (n,), or None
        The fold of every training row, if machines refitted without each fold are wanted.
    keep_factor : bool
        Whether the factorisation is kept.

    Returns
    -------
    SolvedBlock
    """
    centring, columns, factor = block.centring, block.columns, block.factor
    places = np.searchsorted(group.columns, columns)
    Y = group.targets[:, places]
    centred, means = centring.targets(Y)
    solution = factor.solve(centred)
    # Solutions are orthogonal to the bias direction. A rounding error along it would be multiplied by the mean of the
    # kernel matrix in every margin, and swamp the margin if all rows are far from the origin.
    bias = centring.bias_direction[:, np.newaxis]
    solution -= bias * (bias.T @ solution)
    roots = np.sqrt(group.weights)[:, np.newaxis]
    coef = roots * solution

    # The leave-one-out residual is the residual over one minus the leverage (Shim et al. 2008, §4). The inverse
    # with the bias direction projected out gives both: residual ε ã/√s, leverage 1 − ε Pᵢᵢ. The row is left out with
    # its full weight, and with it the other rows of its group.
    shifted_bias = centring.bias_eigenvalue + ridges
    without = None
    whole = None
    if folds is not None and isinstance(factor, InvertibleFactor):
        whole = factor.unbiased_inverse(centring, float(ridges[0]))
    if folds is not None and whole is not None:
        inverse = np.repeat(whole.diagonal[:, np.newaxis], columns.size, axis=1)
        without = FoldsOut.from_inverse(group, block, folds, solution, whole)
    else:
        inverse = unbiased_diagonal(factor, centring, ridges)
        if folds is not None and isinstance(factor, ThinFactor):
            without = FoldsOut.by_features(group, block, folds, float(ridges[0]))
    errors = left_out_errors(factor, solution, centring, ridges, group.left_out, inverse)

    fit = np.einsum("nl,nl->l", centred, solution)
    squared_norms = fit - ridges * np.einsum("nl,nl->l", solution, solution)
    mu, zeta, log_evidence = (np.full(columns.size, np.nan) for _ in range(3))
    if centring.total > 1.0:  # else no degree of freedom is left to infer hyperparameters from
        repeated = centring.total - block.rows.size
        logs = factor.log_determinants() - np.log(shifted_bias) + repeated * np.log(ridges)
        mu = (centring.total - 1.0) / fit
        zeta = mu / ridges
        log_evidence = evidence.log_evidence(
            centring.total, ridges, fit, logs, inverse.sum(axis=0) + repeated / ridges
        )
    norms = np.sqrt(np.maximum(squared_norms, 0.0))
    loo_margins = Y - errors / roots
    # The expected length of the rounding errors of every machine's margins. Rounding the kernel's values changes the
    # matrix by E, as large as a rounding of its trace; the margins Aã change by A(A + ε)⁻¹Eã, which is no longer than
    # Eã. This is a closer bound than the condition number of A + ε, which is that of the worst targets. (On 1152 random
    # fits, compared with exact arithmetic, about twice the largest error.) Features are centred before they are
    # multiplied, kernel matrices afterwards.
    trace = centring.centred_trace if isinstance(factor, ThinFactor) else centring.trace
    rounding = np.asarray(0.5 * np.finfo(np.float64).eps * trace * np.linalg.norm(solution, axis=0))
    variation = np.square(centred - ridges * solution).sum(axis=0)
    learned = np.sqrt(variation)
    constant = np.flatnonzero(learned <= LEAST_SIGNAL * rounding)
    if constant.size:
        # Nothing but rounding tells the rows apart, as where all of them are equal: the machine is the mean of the
        # targets. A decoder that learns the scale of the outputs would take their last digits for a signal.
        coef[:, constant] = norms[constant] = 0.0
        # There is nothing to warn of unless they were to learn something.
        rounding = np.where(learned <= _NOTHING_LEARNED * np.linalg.norm(centred, axis=0), 0.0, rounding)
        shift = group.group.shift(np.ones(block.rows.size, dtype=bool))[:, places]
        loo_margins[:, constant] = means[constant] - shift[:, constant]
        without = None if without is None else without.with_constants(group.group, block, folds, constant)
    squares = np.square(centred).sum(axis=0)
    relative = relative_rounding(rounding, variation, squares, centring.total * np.square(means))
    return SolvedBlock(
        block.rows,
        columns,
        coef.T,
        means - centring.row_means @ coef,
        norms,
        mu,
        zeta,
        log_evidence,
        loo_margins,
        float(relative.max()),
        without,
        block if keep_factor else None,
    )


def relative_rounding(rounding: Array, variation: Array, squares: Array, shared: Array) -> Array:
    """Return the rounding errors of machines relative to the size of their margins.

    Parameters
    ----------
    rounding : ndarray
        The rounding errors of the margins of every machine.
    variation, squares : ndarray of the same shape
        The sums of the squares of its centred margins and of its centred targets.
    shared : ndarray of the same shape
        What the mean of the targets adds to both.

    Returns
    -------
    ndarray of the same shape
    """
    sizes = np.maximum(np.sqrt(variation + shared), _NEGLIGIBLE * np.sqrt(squares + shared))
    return np.divide(rounding, sizes, out=np.zeros_like(rounding), where=sizes > 0.0)
