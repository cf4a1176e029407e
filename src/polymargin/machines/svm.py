"""The bank of support vector machines.

For every column l of the codebook a machine f_l(x) = Σ βᵢ K(x, xᵢ) + b minimises ½|w|² + C Σ sᵢ max(0, 1 − yᵢ f(xᵢ))
over the rows whose class takes part. With soft labels P the target y = Σₖ Mₖₗ Pₖ lies between −1 and +1 (in
one-vs-all coding it is 2P − 1), and the loss of a row is C s max(0, |y| − sign(y) f(x))/|y| (Gönen, Tanuğur and
Alpaydın 2008, eq. 6); a row with y = 0 takes no part. All machines are solved by SMO on one shared source of Gram
rows, and evaluated together on the union of their support vectors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polymargin._progress import Count, Progress
from polymargin.codebooks import Codebook
from polymargin.folds import fold_numbers, training_folds
from polymargin.machines._expansion import ExpansionBank, assemble
from polymargin.machines._hinge import HingeRows, SolverOptions, solve_paths, weight_norms
from polymargin.machines._soft import SoftLabels
from polymargin.outputs import Outputs
from polymargin.rows import TrainingRows
from polymargin.solvers.smo import Solution
from polymargin.solvers.smo_expansion import KernelExpansion
from polymargin.solvers.status import Status

Array = NDArray[Any]

__all__ = ["SVMBank", "SolverOptions", "fit_svm_bank"]


@dataclass(frozen=True)
class _Training:
    """The data and options to train the machines again without some of the rows."""

    data: TrainingRows
    codebook: Codebook
    box_weights: Array
    labels: SoftLabels | None
    options: SolverOptions
    cv: Any
    random_state: Any


@dataclass(frozen=True)
class SVMBank(ExpansionBank):
    """Fitted support vector machines, one per column of the codebook.

    Attributes
    ----------
    kernel : Kernel
        The kernel.
    support : ndarray of int, shape (S,)
        The union of the machines' support vectors, as training rows, ascending. One of several copies of a row
        stands for all of them.
    vectors : array or sparse matrix of shape (S, d), or None
        The support vectors; None for a precomputed kernel.
    intercept, norms, C, gamma : ndarray of shape (L,)
        The bias, the norm of the weights, the regularisation and the kernel's parameter of every machine.
    status : list of L Status
        How the solver ended; the value is advice.
    kkt_violation, duality_gap, n_iter : ndarray of shape (L,)
        The largest violation of the optimality conditions, the primal minus the dual objective, and the number of
        steps, of every machine.

    See Also
    --------
    fit_svm_bank : Trains the machines.
    SingleMachineBank : All classes in one machine.
    """

    status: list[Status]
    kkt_violation: Array
    duality_gap: Array
    n_iter: Array
    _training: _Training | None

    def training_outputs(self, *, honest: bool, progress: Progress | None = None) -> Outputs:
        """Return the outputs of the training rows.

        A row that a dichotomy does not use (a don't care) is out-of-sample for its machine, and needs no fold.

        Parameters
        ----------
        honest : bool
            True for out-of-sample outputs (out-of-fold, which takes a fit per fold), False for in-sample ones.
        progress : callable or None
            Called with every step, see `polymargin._progress`.

        Returns
        -------
        outputs : Outputs
            With provenance "out_of_fold" or "in_sample".
        """
        training = self._known_training
        margins = self.margins(training.data.X)
        if not honest:
            return Outputs(margins, "in_sample", norms=self.norms)
        for fold, bank in self.held_out_banks(progress=progress):
            known = training.codebook.targets(training.data.class_index[fold]) != 0
            margins[fold] = np.where(known, bank.margins(training.data.X[fold]), margins[fold])
        return Outputs(margins, "out_of_fold", norms=self.norms, dealt=training.data.deal)

    def held_out_banks(
        self, *, start: Sequence[Array] | None = None, progress: Progress | None = None
    ) -> list[tuple[Array, SVMBank]]:
        """Return the rows of every fold, and the machines trained without them.

        Parameters
        ----------
        start : sequence of ndarray of shape (L, n), or None
            A warm start for every fold, see `fit_svm_bank`.
        progress : callable or None
            Called with every step, see `polymargin._progress`.

        Returns
        -------
        banks : list of (ndarray of int, SVMBank)
            The rows of every fold, and the machines trained without them.
        """
        training = self._known_training
        data = training.data
        folds = training_folds(data, training.cv, training.random_state)
        rows = HingeRows(data, training.codebook, training.box_weights, fold_numbers(folds), training.labels)
        count = Count(progress, "out-of-fold machines")
        banks = _train(data, rows, self.C, self.gamma, folds, start, training.options, count)
        return list(zip(folds, banks, strict=True))

    def without_training(self) -> SVMBank:
        """Return the bank without the training data, which only `training_outputs` needs.

        Returns
        -------
        SVMBank
        """
        return replace(self, _training=None)

    @property
    def _known_training(self) -> _Training:
        if self._training is None:
            raise ValueError("this bank no longer has its training rows")
        return self._training


def fit_svm_bank(
    data: TrainingRows,
    codebook: Codebook,
    *,
    C: ArrayLike,
    gamma: ArrayLike = 1.0,
    box_weights: Array | None = None,
    labels: SoftLabels | None = None,
    options: SolverOptions | None = None,
    cv: Any = 5,
    random_state: Any = None,
    start: Array | None = None,
    progress: Progress | None = None,
) -> SVMBank:
    """Train the machines of every column of the codebook.

    Parameters
    ----------
    data : TrainingRows
        The training rows.
    codebook : Codebook
        The dichotomies.
    C, gamma : float or array of shape (L,)
        The regularisation and the kernel's parameter, of all machines or of each.
    box_weights : ndarray of shape (n,) or None
        The box of every row in multiples of C; by default the row weights.
    labels : SoftLabels or None
        Soft labels, for a codebook without don't cares; None for the classes of the rows.
    options : SolverOptions or None
        Tolerance, limit of steps and number of threads.
    cv : int, splitter or iterable of splits
        The folds of out-of-fold training outputs, see `polymargin.folds.training_folds`.
    random_state : int, RandomState instance or None
        For the folds.
    start : ndarray of shape (L, n) or None
        Warm start: dual coefficients of the training rows in multiples of C, as those of a similar problem. They must
        be feasible: the sign of the row's side or zero, at most the row's box weight, with sum zero. The result is the
        same up to the tolerance.
    progress : callable or None
        Called with every step, see `polymargin._progress`.

    Returns
    -------
    SVMBank
        The fitted machines.

    See Also
    --------
    fit_lssvm_bank : The same with the squared loss.
    cross_validate_svm : Selects C and gamma.

    Examples
    --------
    >>> from polymargin.codebooks import one_vs_one
    >>> from polymargin.kernels import Linear
    >>> rows = TrainingRows(Linear(), np.array([[0.0], [1.0], [3.0]]), np.array([0, 1, 2]), np.ones(3))
    >>> bank = fit_svm_bank(rows, one_vs_one(3), C=10.0)
    >>> bank.margins(np.array([[0.0], [2.0]])).round(3)
    array([[-1. , -1. , -2. ],
           [ 3. ,  0.333,  0. ]])
    """
    options = SolverOptions() if options is None else options
    box_weights = data.weights if box_weights is None else box_weights
    n_columns = codebook.n_columns
    C = np.broadcast_to(np.asarray(C, dtype=np.float64), (n_columns,)).copy()
    gamma = np.broadcast_to(np.asarray(gamma if data.kernel.tunable else 1.0, dtype=np.float64), (n_columns,))
    count = Count(progress, "machines")
    rows = HingeRows(data, codebook, box_weights, labels=labels)
    (bank,) = _train(data, rows, C, gamma, [None], None if start is None else [start], options, count)
    return replace(bank, _training=_Training(data, codebook, box_weights, labels, options, cv, random_state))


def _train(
    data: TrainingRows,
    rows: HingeRows,
    C: Array,
    gamma: Array,
    held_out: Sequence[Array | None],
    starts: Sequence[Array] | None,
    options: SolverOptions,
    count: Count,
) -> list[SVMBank]:
    """Train the machines without each of several sets of held-out rows; all share the sources of Gram rows."""
    count.expect(len(held_out) * C.size)
    solutions: list[dict[int, Solution]] = [{} for _ in held_out]
    norms = np.zeros((len(held_out), C.size))
    parts: list[list[tuple[float, Array, KernelExpansion]]] = [[] for _ in held_out]
    for value in np.unique(gamma):
        columns = np.flatnonzero(gamma == value)
        problems = [
            rows.dichotomies(C, columns, without, None if starts is None else starts[number])
            for number, without in enumerate(held_out)
        ]
        together = [problem for of_set in problems for problem in of_set]
        paths = solve_paths(rows.source(float(value)), together, [1.0], options, count)
        found = (solution for (solution,) in paths)
        for number, of_set in enumerate(problems):
            own = [next(found) for _ in of_set]
            solutions[number].update(zip(columns.tolist(), own, strict=True))
            norms[number, columns] = weight_norms(own, of_set)
            parts[number].append((float(value), columns, KernelExpansion.join(rows.first.size, of_set, own)))
    banks = []
    for number, by_column in enumerate(solutions):
        assembly = assemble(rows, data, parts[number])
        done = [by_column[column] for column in range(C.size)]
        banks.append(
            SVMBank(
                kernel=data.kernel,
                support=assembly.support,
                vectors=assembly.vectors,
                intercept=np.array([solution.intercept for solution in done]),
                norms=norms[number],
                C=C,
                gamma=gamma.copy(),
                status=[solution.status for solution in done],
                kkt_violation=np.array([solution.kkt_violation for solution in done]),
                duality_gap=np.array([solution.duality_gap for solution in done]),
                n_iter=np.array([solution.n_iter for solution in done]),
                _groups=assembly.groups,
                _training=None,
                _n_threads=options.n_threads,
            )
        )
    return banks
