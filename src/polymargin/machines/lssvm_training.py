"""Training of the bank of least-squares support vector machines.

Columns that use the same rows, kernel and C share one factorisation, which also gives their exact leave-one-out margins
and, with the inverse, the machines trained without a fold of the rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polymargin import _memory
from polymargin._progress import Count, Progress
from polymargin._threads import in_threads, n_threads
from polymargin.codebooks import Codebook
from polymargin.kernels._features import FeatureExpansion, Features
from polymargin.machines._folds_out import FoldsOut, nested_outputs
from polymargin.machines._gram import GroupGram, Selection, group_grams
from polymargin.machines._parameters import select_parameters
from polymargin.machines._workspace import KEPT_BYTES, Workspace
from polymargin.machines.lssvm import FactorisedBlock, LSSVMBank, constant_diagonal, factorised
from polymargin.rows import TrainingRows
from polymargin.selection import evidence
from polymargin.selection.settings import DEFAULT, SearchSettings
from polymargin.solvers.centring import add_outer
from polymargin.solvers.ridge import CholeskyFactor, left_out_errors, symmetric_inverse, unbiased_diagonal
from polymargin.solvers.thin import ThinFactor

Array = NDArray[Any]

#: What `_Solved` and `LSSVMBank` know of every machine, one number each.
_OF_MACHINES = ("intercept", "norms", "mu", "zeta", "log_evidence")
#: Margins smaller than this times the targets count as zero: their relative error is not estimated.
_NEGLIGIBLE = 1e-6
#: Machines whose margins vary by less than this part of the targets have learned next to nothing.
_NOTHING_LEARNED = 0.01
#: What a machine has learned, the variation of its margins, must be this many times the rounding errors: else not one
#: digit of it is right. (Equal rows with different labels have had 1.2.)
_LEAST_SIGNAL = 10.0


def select(
    workspace: Workspace,
    codebook: Codebook,
    *,
    C: float | None,
    gamma: float | None,
    selection: Selection,
    pools: Sequence[Array] | None,
    settings: SearchSettings,
    noise_floor: float | None = None,
    progress: Progress | None = None,
) -> tuple[Array, Array]:
    """Return C and gamma of every column as `fit_lssvm_bank` selects them, shape (L,) each, without training."""
    groups = group_grams(workspace, codebook, selection)
    pools = _one_by_one(codebook) if pools is None else pools
    return select_parameters(
        workspace.rows, groups, C, gamma, selection, pools, settings, progress, noise_floor
    )


def _one_by_one(codebook: Codebook) -> list[Array]:
    """Return pools in which every column is alone."""
    return [np.array([column]) for column in range(codebook.n_columns)]


def fit_lssvm_bank(
    data: TrainingRows,
    codebook: Codebook,
    *,
    C: float | Array | None,
    gamma: float | Array | None,
    selection: Selection = "evidence",
    pools: Sequence[Array] | None = None,
    settings: SearchSettings = DEFAULT,
    noise_floor: float | None = None,
    keep_factors: bool = True,
    n_folds: int = 0,
    keep_fold_coef: bool = False,
    progress: Progress | None = None,
    workspace: Workspace | None = None,
) -> LSSVMBank:
    """Train the machines of every column of the codebook.

    Parameters
    ----------
    data : TrainingRows
        The training rows.
    codebook : Codebook
        The dichotomies.
    C, gamma : float, ndarray of shape (L,), or None
        The regularisation and the kernel's parameter, for all columns or for each; None to select them.
    selection : {"evidence", "loo", "gcv"}
        The criterion: the evidence, the leave-one-out errors or generalised cross-validation.
    pools : sequence of ndarray of int, or None
        The columns that share inferred parameters; every column belongs to one pool. None: each has its own.
    settings : SearchSettings
        Width and budget of a selection by leave-one-out errors.
    noise_floor : float or None
        The least noise of a selection by the evidence, see `polymargin.selection.evidence.best_ridge`.
    keep_factors : bool
        Whether the factorisations are kept for variances.
    n_folds : int
        The number of folds of nested outputs, see `polymargin.outputs.Nested`; zero for none.
    keep_fold_coef : bool
        Whether nested outputs keep the coefficients of the machines.
    progress : callable or None
        Called with every step, see `polymargin._progress`.
    workspace : Workspace or None
        The cache of these rows, if other machines are fitted to them as well; None for a temporary one.

    Returns
    -------
    LSSVMBank
        The fitted machines.

    See Also
    --------
    fit_svm_bank : The same with the hinge loss.

    Examples
    --------
    >>> from polymargin.codebooks import one_vs_one
    >>> from polymargin.kernels import Linear
    >>> rows = TrainingRows(Linear(), np.array([[0.0], [1.0], [3.0]]), np.array([0, 1, 2]), np.ones(3))
    >>> bank = fit_lssvm_bank(rows, one_vs_one(3), C=1e6, gamma=None, keep_factors=False)
    >>> bank.margins(np.array([[0.0], [2.0]])).round(3)
    array([[-1.   , -1.   , -2.   ],
           [ 3.   ,  0.333,  0.   ]])
    """
    workspace = Workspace(data) if workspace is None else workspace
    inferred = C is None or (gamma is None and data.kernel.tunable)
    by_evidence = inferred and selection == "evidence"
    groups = group_grams(workspace, codebook, selection, by_matrix=keep_factors or by_evidence)
    if by_evidence or keep_factors:
        _check_weights(groups)
    by_features = any(group.by_features for group in groups)
    _require_memory(data, groups, keep_factors, by_features)
    pools = _one_by_one(codebook) if pools is None else pools
    Cs, gammas = select_parameters(data, groups, C, gamma, selection, pools, settings, progress, noise_floor)
    folds = data.deal.fold_numbers(n_folds) if n_folds else None
    gram = None
    if not (by_features or data.kernel.untrusted) and np.unique(gammas).size == 1:
        gram = workspace.gram(float(gammas[0]))
    machines = Count(progress, "machines")
    machines.expect(codebook.n_columns)

    def solved(group: GroupGram) -> list[_Solved]:
        found = []
        ridges = 1.0 / Cs[group.columns]
        for block in factorised(group, gammas[group.columns], ridges, whole=keep_factors, gram=gram):
            found.append(_solve(group, block, 1.0 / Cs[block.columns], folds, keep_factors))
            machines.advance(block.columns.size)
        return found

    parts = [part for of_group in in_threads(solved, groups) for part in of_group]
    if keep_factors and data.kernel.precomputed:
        constant_diagonal(data)
    n, n_columns = data.class_index.size, codebook.n_columns
    dual_coef, loo_margins = np.zeros((n_columns, n)), np.zeros((n, n_columns))
    of_machines: dict[str, Any] = {name: np.empty(n_columns) for name in _OF_MACHINES}
    for part in parts:
        dual_coef[np.ix_(part.columns, part.rows)] = part.coef
        loo_margins[np.ix_(part.rows, part.columns)] = part.loo_margins
        for name, values in of_machines.items():
            values[part.columns] = getattr(part, name)
    # The rounding error of the largest kernel parameter is a bound for all.
    roundings = data.kernel.roundings(data.X, float(gammas.max()))
    bank = LSSVMBank(
        data=data,
        codebook=codebook,
        dual_coef=dual_coef,
        C=Cs,
        gamma=gammas,
        loo_margins=loo_margins,
        blocks=[part.block for part in parts if part.block is not None] if keep_factors else None,
        rounding_error=roundings * max(part.rounding_error for part in parts),
        **of_machines,
    )
    if by_features:
        bank = replace(bank, expansion=_expansion(bank, workspace.features, groups))
    if folds is not None and all(part.folds is not None for part in parts):
        without = [(part.rows, part.columns, part.folds) for part in parts if part.folds is not None]
        nested = nested_outputs(bank, workspace, folds, [group.group for group in groups], without)
        if nested is not None and not keep_fold_coef:
            nested = replace(nested, coef=None)
        bank = replace(bank, nested=nested)
    unused = np.ones(loo_margins.shape, dtype=bool)
    for group in groups:
        unused[np.ix_(group.rows, group.columns)] = False
    if unused.any():  # a row that a dichotomy does not use is out-of-sample for its machine
        np.copyto(loo_margins, bank.training_margins(workspace), where=unused)
    return bank


def _require_memory(
    data: TrainingRows, groups: list[GroupGram], keep_factors: bool, by_features: bool
) -> None:
    """Raise MemoryError if the kernel matrices, or the features used in their place, do not fit into memory."""
    squares = [float(group.rows.size) ** 2 for group in groups if not group.by_features]
    n_features = data.kernel.n_features(data.X.shape[1]) if by_features else None
    n_rows = data.X.shape[0]
    at_once = min(n_threads(), len(groups))
    entry = 8.0 * data.kernel.base_numbers  # bytes of the base matrix
    factorised = (32.0 + entry) * max(squares, default=0.0) * at_once
    kept = 8.0 * sum(squares) if keep_factors else 0.0
    if n_features is None:
        shared = 2.0 * min(entry * n_rows**2, KEPT_BYTES)
        purpose = f"the kernel matrix of {max(squares) ** 0.5:.0f} rows with its factorisations"
    else:
        shared = 8.0 * n_features * n_rows * (1 + 5 * at_once)
        purpose = f"{n_features} features of {n_rows} rows, with what is computed of them,"
    remedy = "fit fewer rows"
    if len(groups) == 1:
        remedy += ', or choose coding="one-vs-one", whose machines see two classes at a time'
    _memory.require(factorised + kept + shared, purpose, remedy)


def _expansion(bank: LSSVMBank, features: Features, groups: Sequence[GroupGram]) -> FeatureExpansion:
    """Return the machines in feature space: each predicts the mean of its targets at the mean of its rows."""
    weights = np.empty((features.orders.size, bank.intercept.size))
    constant = np.empty(bank.intercept.size)
    for group in groups:
        # Centring the features makes the rounding error of Σα = 0 harmless.
        shares = group.weights / group.total
        own = features.of(group.rows)
        mean = shares @ own.values
        own.values[...] -= mean
        coef = bank.dual_coef[np.ix_(group.columns, group.rows)].T
        found = own.weights(coef, bank.gamma[group.columns])
        weights[:, group.columns] = found
        constant[group.columns] = shares @ group.targets - mean @ found
    return FeatureExpansion(weights, constant, features.unit)


def _check_weights(groups: Sequence[GroupGram]) -> None:
    """Raise ValueError if weights sum to less than two rows: too few to infer hyperparameters."""
    total = min(float(group.weights.sum()) for group in groups)
    if total < 2.0 - 1e-9:
        raise ValueError(
            f"the sample weights of the rows of a dichotomy sum to {total:.3g}, but the evidence and the variances "
            "need at least 2: a weight is a number of rows; scale the weights, for example to a mean of one"
        )


@dataclass(frozen=True)
class _Solved:
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


def _solve(
    group: GroupGram, block: FactorisedBlock, ridges: Array, folds: Array | None, keep_factor: bool
) -> _Solved:
    """Return the block's machines: coefficients, bias, evidence and leave-one-out margins."""
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
    if folds is not None and isinstance(factor, CholeskyFactor):
        P = symmetric_inverse(np.array(factor.lower, order="F"))
        add_outer(P, -1.0 / float(shifted_bias[0]), centring.bias_direction)
        inverse = np.repeat(np.diagonal(P)[:, np.newaxis], columns.size, axis=1)
        without = FoldsOut.from_inverse(group, block, folds, solution, P)
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
    constant = np.flatnonzero(learned <= _LEAST_SIGNAL * rounding)
    if constant.size:
        # Nothing but rounding tells the rows apart, as where all of them are equal: the machine is the mean of the
        # targets. A decoder that learns the scale of the outputs would take their last digits for a signal.
        coef[:, constant] = norms[constant] = 0.0
        # There is nothing to warn of unless they were to learn something.
        rounding = np.where(learned <= _NOTHING_LEARNED * np.linalg.norm(centred, axis=0), 0.0, rounding)
        shift = group.group.shift(np.ones(block.rows.size, dtype=bool))[:, places]
        loo_margins[:, constant] = means[constant] - shift[:, constant]
        without = None if without is None else without.with_constants(group.group, block, folds, constant)
    # Relative to the size of the margins.
    shared = centring.total * np.square(means)
    targets = np.sqrt(np.square(centred).sum(axis=0) + shared)
    sizes = np.maximum(np.sqrt(variation + shared), _NEGLIGIBLE * targets)
    relative = np.divide(rounding, sizes, out=np.zeros_like(rounding), where=sizes > 0.0)
    return _Solved(
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
