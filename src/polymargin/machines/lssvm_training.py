"""Training of the bank of least-squares support vector machines.

Columns that use the same rows, kernel and C share one factorisation, which also gives their exact leave-one-out margins
and, with the inverse, the machines trained without a fold of the rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polymargin import _memory
from polymargin._processes import can_be_sent, processes
from polymargin._progress import Count, Progress
from polymargin._threads import FEW_ROWS, in_threads, n_processes, n_threads
from polymargin.codebooks import Codebook
from polymargin.kernels._features import FeatureExpansion, Features
from polymargin.machines._folds_out import nested_outputs
from polymargin.machines._gram import DichotomyGroup, GroupGram, Selection, group_grams
from polymargin.machines._parameters import select_parameters
from polymargin.machines._workspace import KEPT_BYTES, Workspace
from polymargin.machines.lssvm import LSSVMBank, constant_diagonal
from polymargin.machines.solved import SolvedBlock, joined, solve_group
from polymargin.rows import TrainingRows
from polymargin.selection.settings import DEFAULT, SearchSettings

Array = NDArray[Any]


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
    training = BankTraining.of(
        data,
        codebook,
        C=C,
        gamma=gamma,
        selection=selection,
        pools=pools,
        settings=settings,
        noise_floor=noise_floor,
        keep_factors=keep_factors,
        n_folds=n_folds,
        keep_fold_coef=keep_fold_coef,
        progress=progress,
        workspace=workspace,
    )
    (bank,) = train_together([training])
    return bank


def train_together(trainings: list[BankTraining]) -> list[LSSVMBank]:
    """Train several banks: threads or processes, if there are some, share the groups of rows of all of them.

    Parameters
    ----------
    trainings : list of BankTraining
        The banks, with their parameters. It is emptied: the matrices of banks that are trained are not kept.

    Returns
    -------
    list of LSSVMBank
    """
    banks = []
    while trainings:
        # Large matrices are worked on one after the other anyway.
        largest = max(group.rows.size for training in trainings for group in training.groups)
        together = n_threads() > 1 and largest <= FEW_ROWS
        some = [trainings.pop(0) for _ in range(len(trainings) if together else 1)]
        enough = 1 < n_processes() <= sum(len(training.groups) for training in some)
        apart = together and enough and all(training.apart for training in some)
        found = _solved_by_processes(some) if apart else _solved_by_threads(some)
        banks += [training.bank(list(chain(*parts))) for training, parts in zip(some, found, strict=True)]
    return banks


def _solved_by_threads(trainings: Sequence[BankTraining]) -> list[list[list[SolvedBlock]]]:
    """Return the machines of every group of every bank; threads share the groups, if there are some."""
    grams = [training.gram() for training in trainings]
    tasks = [(*pair, group) for pair in zip(trainings, grams, strict=True) for group in pair[0].groups]
    sizes = [group.rows.size for *_, group in tasks]
    found = iter(in_threads(lambda task: task[0].solved(task[2], task[1]), tasks, sizes))
    return [[next(found) for _ in training.groups] for training in trainings]


def _solved_by_processes(trainings: Sequence[BankTraining]) -> list[list[list[SolvedBlock]]]:
    """Return the machines of every group of every bank; processes share the groups."""
    owners = [training for training in trainings for _ in training.groups]
    tasks = [task for training in trainings for task in training.tasks()]

    def count(place: int, blocks: list[SolvedBlock]) -> None:
        owners[place].machines.advance(sum(block.columns.size for block in blocks))

    with processes() as shared:
        operations = [float(task.group.rows.size) ** 3 for task in tasks]
        found = iter(shared.each(GroupTask.solved, tasks, operations, count))
    return [[next(found) for _ in training.groups] for training in trainings]


@dataclass(frozen=True)
class GroupTask:
    """A group of rows whose machines another process trains.

    Attributes
    ----------
    rows : TrainingRows
        The kernel and the rows.
    group : DichotomyGroup
        The group.
    C, gamma : ndarray of shape (l,)
        The parameters of the group's columns.
    folds : ndarray of int, shape (n,), or None
        The fold of every row, for nested outputs.
    """

    rows: TrainingRows
    group: DichotomyGroup
    C: Array
    gamma: Array
    folds: Array | None

    def solved(self) -> list[SolvedBlock]:
        """Return the machines of the group.

        Returns
        -------
        list of SolvedBlock
        """
        # The base matrix is computed from the rows of the group, as where this process was asked.
        group = GroupGram(self.group, Workspace(self.rows, keeps_base=False))
        return list(solve_group(group, self.C, self.gamma, self.folds))


@dataclass(frozen=True)
class BankTraining:
    """A bank whose parameters are known, and whose machines are still to be trained, group by group.

    Attributes
    ----------
    data, codebook, keep_factors, keep_fold_coef, workspace
        See `fit_lssvm_bank`.
    C, gamma : ndarray of shape (L,)
        The parameters.
    groups : list of GroupGram
        The groups of rows that columns share.
    folds : ndarray of int, shape (n,), or None
        The fold of every row, for nested outputs.
    machines : Count
        Counts the machines that are trained.
    """

    data: TrainingRows
    codebook: Codebook
    C: Array
    gamma: Array
    groups: list[GroupGram]
    folds: Array | None
    keep_factors: bool
    keep_fold_coef: bool
    workspace: Workspace
    machines: Count

    @classmethod
    def of(
        cls,
        data: TrainingRows,
        codebook: Codebook,
        *,
        C: float | Array | None,
        gamma: float | Array | None,
        selection: Selection = "evidence",
        pools: Sequence[Array] | None = None,
        settings: SearchSettings = DEFAULT,
        noise_floor: float | None = None,
        keep_factors: bool = False,
        n_folds: int = 0,
        keep_fold_coef: bool = False,
        progress: Progress | None = None,
        workspace: Workspace | None = None,
        check_memory: bool = True,
    ) -> BankTraining:
        """Check the memory, and select the parameters that are not given; for the arguments see `fit_lssvm_bank`."""
        workspace = Workspace(data) if workspace is None else workspace
        inferred = C is None or (gamma is None and data.kernel.tunable)
        by_evidence = inferred and selection == "evidence"
        groups = group_grams(workspace, codebook, selection, by_matrix=keep_factors or by_evidence)
        if by_evidence or keep_factors:
            _check_weights(groups)
        if check_memory:
            _require_memory_of(groups, data, keep_factors)
        pools = _one_by_one(codebook) if pools is None else pools
        Cs, gammas = select_parameters(
            data, groups, C, gamma, selection, pools, settings, progress, noise_floor
        )
        folds = data.deal.fold_numbers(n_folds) if n_folds else None
        machines = Count(progress, "machines")
        machines.expect(codebook.n_columns)
        return cls(
            data, codebook, Cs, gammas, groups, folds, keep_factors, keep_fold_coef, workspace, machines
        )

    @property
    def by_features(self) -> bool:
        """Whether some groups are solved in the explicit feature map of the kernel."""
        return any(group.by_features for group in self.groups)

    @property
    def apart(self) -> bool:
        """Whether the machines of a group can be trained by another process: from its own rows, and returned whole.

        Factors would take longer to return than to compute.
        """
        shared = self.by_features or self.workspace.keeps_base or self.data.kernel.untrusted
        return not (shared or self.keep_factors) and can_be_sent(self.data.kernel)

    def tasks(self) -> list[GroupTask]:
        """Return the groups as other processes get them.

        Returns
        -------
        list of GroupTask
        """
        # Machines whose parameters are known do not depend on what else is known of the rows.
        rows = replace(self.data, soft_labels=None, groups=None, dealt=None)
        return [
            GroupTask(rows, group.group, self.C[group.columns], self.gamma[group.columns], self.folds)
            for group in self.groups
        ]

    def gram(self) -> Array | None:
        """Return the kernel matrix of all rows, if it is small enough to be kept and groups take their part of it.

        Returns
        -------
        ndarray of shape (n, n) or None
        """
        if self.by_features or self.data.kernel.untrusted or np.unique(self.gamma).size > 1:
            return None
        return self.workspace.gram(float(self.gamma[0]))

    def solved(self, group: GroupGram, gram: Array | None) -> list[SolvedBlock]:
        """Return the machines of a group of rows.

        Parameters
        ----------
        group : GroupGram
            The group.
        gram : ndarray of shape (n, n) or None
            What `gram` returns.

        Returns
        -------
        list of SolvedBlock
        """
        found = []
        for part in solve_group(
            group,
            self.C[group.columns],
            self.gamma[group.columns],
            self.folds,
            keep_factors=self.keep_factors,
            gram=gram,
        ):
            found.append(part)
            self.machines.advance(part.columns.size)
        return found

    def bank(self, parts: Sequence[SolvedBlock]) -> LSSVMBank:
        """Return the bank of the machines of all groups.

        Parameters
        ----------
        parts : sequence of SolvedBlock
            The machines.

        Returns
        -------
        LSSVMBank
        """
        data, codebook, workspace = self.data, self.codebook, self.workspace
        if self.keep_factors and data.kernel.precomputed:
            constant_diagonal(data)
        fields, unused = joined(parts, data.class_index.size, codebook.n_columns)
        # The rounding error of the largest kernel parameter is a bound for all.
        roundings = data.kernel.roundings(data.X, float(self.gamma.max()))
        bank = LSSVMBank(
            data=data,
            codebook=codebook,
            C=self.C,
            gamma=self.gamma,
            blocks=[part.block for part in parts if part.block is not None] if self.keep_factors else None,
            rounding_error=roundings * max(part.rounding_error for part in parts),
            **fields,
        )
        if self.by_features:
            bank = replace(bank, expansion=_expansion(bank, workspace.features, self.groups))
        if self.folds is not None:
            groups = [group.group for group in self.groups]
            sums = partial(bank.kernel_sums, workspace=workspace)
            nested = nested_outputs(sums, bank.gamma, self.folds, groups, parts, self.keep_fold_coef)
            bank = replace(bank, nested=nested)
        if unused.any():
            np.copyto(bank.loo_margins, bank.training_margins(workspace), where=unused)
        return bank


def require_memory(
    workspace: Workspace, codebook: Codebook, selection: Selection, *, keep_factors: bool, by_matrix: bool
) -> None:
    """Raise MemoryError if the machines of all rows would not fit into memory: before a search, which takes long.

    Parameters
    ----------
    workspace : Workspace
        The training rows, with the kernel.
    codebook : Codebook
        The dichotomies.
    selection : {"evidence", "loo", "gcv"}
        The criterion by which C and gamma are selected.
    keep_factors : bool
        Whether the factorisations are kept for variances.
    by_matrix : bool
        Whether kernel matrices are used where features could take their place.
    """
    groups = group_grams(workspace, codebook, selection, by_matrix=by_matrix or keep_factors)
    _require_memory_of(groups, workspace.rows, keep_factors)


def _require_memory_of(groups: list[GroupGram], data: TrainingRows, keep_factors: bool) -> None:
    """Raise MemoryError if the kernel matrices, or the features used in their place, do not fit into memory."""
    by_features = any(group.by_features for group in groups)
    sizes = np.sort([group.rows.size for group in groups if not group.by_features])[::-1].astype(np.float64)
    # Matrices of many rows are factorised one after the other, others at once.
    small = sizes[sizes <= FEW_ROWS]
    largest = max(float((some**2).sum()) for some in (sizes[:1], small[: n_threads()]))
    n_features = data.kernel.n_features(data.X.shape[1]) if by_features else None
    n_rows = data.X.shape[0]
    entry = 8.0 * data.kernel.base_numbers  # bytes of the base matrix
    factorised = (32.0 + entry) * largest
    kept = 8.0 * float((sizes**2).sum()) if keep_factors else 0.0
    if n_features is None:
        shared = 2.0 * min(entry * n_rows**2, KEPT_BYTES)
        purpose = f"the kernel matrix of {sizes[0]:.0f} rows with its factorisations"
    else:
        shared = 8.0 * n_features * n_rows * (1 + 5 * min(n_threads(), len(groups)))
        purpose = f"{n_features} features of {n_rows} rows, with what is computed of them,"
    remedy = 'fit fewer rows, or let the estimator divide them, as scale="auto" does'
    if len(groups) == 1 and groups[0].columns.size > 1:  # of several classes
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
