"""The bank of the single machine: one discriminant for every class, all trained at once (Weston and Watkins).

With hard labels it minimises ½ Σₘ|wₘ|² + C Σᵢ sᵢ Σ_{m≠z} max(0, 2 − (F_z − F_m)(xᵢ)), z the class of row i. Soft labels
P ask for a margin of 2(P_z − P_m) instead of 2 (Gönen, Tanuğur and Alpaydın 2008, eqs. 7 and 12). The discriminants
enter the flow as the outputs of one-vs-all machines. Those of two classes differ in sign only, so there is one output
then, which with hard labels is that of the two-class support vector machine with the same C.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polymargin._progress import Count, Progress
from polymargin.codebooks import Codebook, one_vs_all
from polymargin.folds import training_folds
from polymargin.machines._expansion import ExpansionBank, assemble
from polymargin.machines._hinge import (
    HingeRows,
    SolverOptions,
    announce_compilation,
    check_scale,
    dense_gram,
)
from polymargin.machines._soft import SoftLabels
from polymargin.outputs import Outputs
from polymargin.rows import TrainingRows
from polymargin.solvers import _single_machine_kernels
from polymargin.solvers.single_machine import SingleMachineSolution, required_margins, solve
from polymargin.solvers.smo_expansion import CoefficientBlock, KernelExpansion
from polymargin.solvers.smo_gram import DenseGram
from polymargin.solvers.status import Status

Array = NDArray[Any]

__all__ = ["SingleMachineBank", "fit_single_bank"]


@dataclass(frozen=True)
class _Training:
    """The data and options to train the machine again without some of the rows."""

    data: TrainingRows
    codebook: Codebook
    C: float
    gamma: float
    labels: SoftLabels | None
    options: SolverOptions
    cv: Any
    random_state: Any

    def rows(self) -> HingeRows:
        rows = HingeRows(self.data, self.codebook, self.data.weights, labels=self.labels)
        # Four matrices: the Gram matrix, its base, and copies for a fold or for the solver's Newton steps.
        rows.require_gram(4, 'fit fewer rows, or choose machine="one-vs-all"')
        return rows

    def gram(self, rows: HingeRows) -> Array:
        return dense_gram(self.data.kernel, rows.base(), self.gamma).K


@dataclass(frozen=True)
class SingleMachineBank(ExpansionBank):
    """The fitted single machine.

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
        The bias, the norm of the weights, the regularisation and the kernel's parameter of every discriminant; L is K,
        or one if there are two classes.
    status : list of one Status
        How the solver ended; the value is advice.
    n_iter : ndarray of shape (1,)
        The number of steps.
    duality_gap : float
        The primal minus the dual objective.
    relative_gap : float
        The same divided by the primal objective: the quantity that the tolerance bounds.
    kkt_violation : float
        The largest mean gain of a cycle of classes.

    See Also
    --------
    fit_single_bank : Trains the machine.
    SVMBank : One machine per dichotomy.

    References
    ----------
    .. [1] J. Weston and C. Watkins, "Support Vector Machines for Multi-Class Pattern Recognition", ESANN, 1999.
    .. [2] M. Gönen, A. G. Tanuğur and E. Alpaydın, "Multiclass Posterior Probability Support Vector Machines", IEEE
           Transactions on Neural Networks 19, 2008.
    """

    status: list[Status]
    n_iter: Array
    duality_gap: float
    relative_gap: float
    kkt_violation: float
    _training: _Training | None

    def training_outputs(self, *, honest: bool, progress: Progress | None = None) -> Outputs:
        """Return the outputs of the training rows.

        The machines of all folds are trained on parts of one Gram matrix, with soft labels estimated without the fold.

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
        data = training.data
        if not honest:
            return Outputs(self.margins(data.X), "in_sample", norms=self.norms)
        rows = training.rows()
        gram = training.gram(rows)
        folds = training_folds(data, training.cv, training.random_state)
        count = Count(progress, "out-of-fold machines")
        count.expect(len(folds))
        margins = np.empty((data.class_index.size, self.intercept.size))
        for fold in folds:
            members, solution = _solve(gram, rows, training, fold)
            values = gram[np.ix_(rows.inverse[fold], members)] @ solution.beta + solution.biases
            margins[fold] = _columns(values)
            count.advance()
        return Outputs(margins, "out_of_fold", norms=self.norms, dealt=data.deal)

    def without_training(self) -> SingleMachineBank:
        """Return the bank without the training data, which only `training_outputs` needs.

        Returns
        -------
        SingleMachineBank
        """
        return replace(self, _training=None)

    @property
    def _known_training(self) -> _Training:
        if self._training is None:
            raise ValueError("this bank no longer has its training rows")
        return self._training


def fit_single_bank(
    data: TrainingRows,
    n_classes: int,
    *,
    C: float,
    gamma: float = 1.0,
    labels: SoftLabels | None = None,
    options: SolverOptions | None = None,
    cv: Any = 5,
    random_state: Any = None,
    progress: Progress | None = None,
) -> SingleMachineBank:
    """Train the single machine.

    Parameters
    ----------
    data : TrainingRows
        The training rows; ``class_index`` is z.
    n_classes : int
        The number of classes K.
    C, gamma : float
        The regularisation and the kernel's parameter.
    labels : SoftLabels or None
        Soft labels; None for the classes of the rows.
    options : SolverOptions or None
        Tolerance (of the relative duality gap) and limit of steps.
    cv : int, splitter or iterable of splits
        The folds of out-of-fold training outputs, see `polymargin.folds.training_folds`.
    random_state : int, RandomState instance or None
        For the folds.
    progress : callable or None
        Called with every step, see `polymargin._progress`.

    Returns
    -------
    SingleMachineBank
        The fitted machine.

    See Also
    --------
    polymargin.PosteriorSVMClassifier : The estimator.

    Examples
    --------
    >>> from polymargin.kernels import Linear
    >>> X = np.array([[-2.0], [-1.0], [0.0], [0.5], [2.0], [3.0]])
    >>> rows = TrainingRows(Linear(), X, np.array([0, 0, 1, 1, 2, 2]), np.ones(6))
    >>> bank = fit_single_bank(rows, 3, C=10.0, options=SolverOptions(tol=1e-6))
    >>> bank.margins(X).argmax(axis=1)
    array([0, 0, 1, 1, 2, 2])
    """
    options = SolverOptions() if options is None else options
    codebook = one_vs_all(n_classes)
    training = _Training(data, codebook, C, gamma, labels, options, cv, random_state)
    rows = training.rows()
    gram = training.gram(rows)
    count = Count(progress, "machines")
    count.expect(1)
    announce_compilation(_single_machine_kernels, "ascend", progress)
    members, solution = _solve(gram, rows, training)
    count.advance()
    beta = np.zeros((rows.first.size, n_classes))
    beta[members] = solution.beta
    squares = np.einsum("ij,ij->j", beta, gram @ beta)
    support = np.flatnonzero(beta.any(axis=1))
    columns = np.arange(codebook.n_columns)
    intercept = _columns(solution.biases[np.newaxis])[0]
    block = CoefficientBlock(slice(0, support.size), columns, np.ascontiguousarray(_columns(beta[support])))
    assembly = assemble(rows, data, [(gamma, columns, KernelExpansion(support, intercept, [block]))])
    return SingleMachineBank(
        kernel=data.kernel,
        support=assembly.support,
        vectors=assembly.vectors,
        intercept=intercept,
        norms=np.sqrt(np.maximum(_columns(squares[np.newaxis])[0], 0.0)),
        C=np.full(columns.size, C),
        gamma=np.full(columns.size, gamma),
        _groups=assembly.groups,
        _n_threads=options.n_threads,
        status=[solution.status],
        n_iter=np.array([solution.n_iter]),
        duality_gap=solution.duality_gap,
        relative_gap=solution.relative_gap,
        kkt_violation=solution.kkt_violation,
        _training=training,
    )


def _solve(
    gram: Array, rows: HingeRows, training: _Training, held_out: Array | None = None
) -> tuple[Array, SingleMachineSolution]:
    """Return the indices of the distinct rows that are not held out, and the solution on them."""
    box, labels = rows.boxes(held_out), rows.soft_labels(held_out)
    n_classes = training.codebook.n_classes
    if labels is None:
        labels = np.eye(n_classes)[rows.class_index]
    members = np.flatnonzero(box > 0.0)
    check_scale(training.C * float(box.max(initial=0.0)), DenseGram(gram).largest)
    solution = solve(
        gram if members.size == box.size else gram[np.ix_(members, members)],
        required_margins(labels[members], rows.class_index[members]),
        training.C,
        tol=training.options.tol,
        max_iter=training.options.max_iter,
        sample_weight=box[members],
    )
    return members, solution


def _columns(values: Array) -> Array:
    """Return the columns of the codebook from those of the classes: of two, which are opposite, only the second."""
    return values[:, 1:] if values.shape[1] == 2 else values
