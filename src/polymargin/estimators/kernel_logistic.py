"""KernelLogisticClassifier: multinomial kernel logistic regression."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_softmax
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from polymargin import _memory
from polymargin._progress import Count, Progress, shown
from polymargin._threads import blas_threads_for
from polymargin._warnings import warn
from polymargin.estimators._base import KernelClassifier, ProbabilisticMixin
from polymargin.estimators._dask import lazy_on_dask
from polymargin.estimators._decisions import calibration_rows
from polymargin.estimators._validation import check_finite, check_positive
from polymargin.machines import TrainingRows
from polymargin.machines._gram import check_base
from polymargin.rows import content_rank
from polymargin.selection import log_loss
from polymargin.solvers.kernel_logistic import (
    LogisticSolution,
    Observations,
    fit_kernel_logistic,
    leave_one_out_logits,
    matrices_needed,
)
from polymargin.solvers.status import Status

Array = NDArray[Any]


class KernelLogisticClassifier(ProbabilisticMixin, KernelClassifier):
    """Multinomial kernel logistic regression, with C and gamma chosen inside ``fit``.

    All classes are learned at once, without dichotomies: with the Gram matrix G it minimises

        Σᵢ sᵢ CE(yᵢ, softmax(fᵢ)) + (1/2C) tr(αᵀGα),     f = Gα + b,

    CE the cross-entropy and b unregularised, by Newton's method. The approximate leave-one-out probabilities of all
    training rows come from one more factorisation. gamma is that of the least leave-one-out log-loss, and C the
    smallest one whose log-loss is within one standard error of the least, so that little is learned from noise. Every
    training row is part of the solution, and a Newton step takes about (K + 1) m³ operations, m³/3 for two classes,
    where m is the number of different rows: it is for some thousands of these.

    Scale the features first, for example with ``StandardScaler``: kernels compare distances.

    Parameters
    ----------
    C : float or None, default=None
        Regularisation, the larger the less. None: selected inside ``fit``.
    kernel : {"linear", "poly", "rbf", "laplacian", "exponential", "blend", "precomputed"} or callable, default="rbf"
        The kernel. A callable takes two arrays of rows and returns the matrix of kernel values.
    gamma : float, "scale", "auto" or None, default=None
        Coefficient of "rbf", "laplacian", "exponential", "blend" and "poly". None: selected inside ``fit``.
    degree : float, default=3
        Degree of "poly", (gamma x·z + coef0)^degree.
    coef0 : float, default=1.0
        Constant of "poly".
    class_weight : dict, "balanced" or None, default=None
        Factors of the weights of every class's rows, one for classes that a dict does not name. "balanced" is
        n / (K n_k), where n is the number of rows and n_k the number of those in the class; soft labels divide their
        rows among the classes.
    classes : array-like of shape (K,) or None, default=None
        The class labels of the columns of y if `fit` is given soft labels; None for the names of a DataFrame's columns,
        else 0, …, K−1. With labels in y, None, or the labels that y has.
    tol : float, default=1e-9
        The gradient's norm over the root of the number of rows (their weight) at which Newton's method stops.
    max_iter : int, default=100
        Limit on Newton's steps, -1 for none.
    verbose : int, default=0
        Whether ``fit`` shows the progress of the selection: a bar with the time left if stderr is a terminal, otherwise
        messages of the logger "polymargin" at level INFO.
    random_state : int, RandomState instance or None, default=None
        For the sample of rows that C and gamma are selected on, where there are more than 500 different rows (150 for
        the coarse search). None is the same as 0.

    Attributes
    ----------
    classes_ : ndarray of shape (K,)
        The class labels.
    kernel_ : Kernel
        The kernel.
    C_, gamma_ : float
        The regularisation and the kernel's parameter.
    dual_coef_ : ndarray of shape (K, n_support)
        α, the coefficients of every class's kernel expansion. Those of a row are C s (y − p), and sum to zero.
    intercept_ : ndarray of shape (K,)
        The biases; they sum to zero.
    support_ : ndarray of int
        The training rows of the kernel expansions: all those of positive weight.
    loo_log_proba_ : ndarray of shape (n_support, K)
        Leave-one-out log-probabilities of the training rows, approximated by one Newton step. A row is left out with
        all of its weight and with its group; other rows that are equal to it are not left out.
    objective_, gradient_norm_ : float
        What was minimised, and the norm of its gradient at the solution: the objective is at most about half the square
        of the norm above the optimum.
    n_iter_ : int
        Newton's steps.
    status_ : str
        How the solver ended.
    n_features_in_, feature_names_in_
        As in scikit-learn.

    See Also
    --------
    LSSVMClassifier : Least-squares dichotomies, tuned and calibrated by leave-one-out outputs.
    AutoKernelClassifier : Several least-squares classifiers, pooled by their log-loss on rows held out.
    PosteriorSVMClassifier : Hinge loss with soft labels, for noisy labels.

    Notes
    -----
    The Hessian couples the classes of a row, but needs matrices of m rows only: one factorisation for every class and
    one for their sum. Leave-one-out probabilities are approximate, where those of least squares are exact: the terms
    of all other rows are approximated quadratically about the solution.

    References
    ----------
    .. [1] Zhu, J. and Hastie, T. (2005). Kernel Logistic Regression and the Import Vector Machine. Journal of
       Computational and Graphical Statistics 14, 185-205.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from sklearn.model_selection import train_test_split
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> from polymargin import KernelLogisticClassifier
    >>> X_train, X_test, y_train, y_test = train_test_split(*load_wine(return_X_y=True), random_state=0)
    >>> model = make_pipeline(StandardScaler(), KernelLogisticClassifier()).fit(X_train, y_train)
    >>> model.score(X_test, y_test)
    1.0
    """

    takes_soft_labels = True

    def __init__(
        self,
        C: float | None = None,
        *,
        kernel: Any = "rbf",
        gamma: float | str | None = None,
        degree: float = 3,
        coef0: float = 1.0,
        class_weight: Any = None,
        classes: Any = None,
        tol: float = 1e-9,
        max_iter: int = 100,
        verbose: int = 0,
        random_state: Any = None,
    ):
        self.C = C
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.class_weight = class_weight
        self.classes = classes
        self.tol = tol
        self.max_iter = max_iter
        self.verbose = verbose
        self.random_state = random_state

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        groups: ArrayLike | None = None,
    ) -> KernelLogisticClassifier:
        """Choose C and gamma where they are None, and fit.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Training rows; the square Gram matrix for ``kernel="precomputed"``.
        y : array-like of shape (n_samples,) or (n_samples, K)
            Class labels; or soft labels, floating-point class probabilities that sum to one in every row.
        sample_weight : array-like of shape (n_samples,), default=None
            Row weights: with a given C, a row of weight two is equivalent to the row twice, and a row of weight zero to
            no row. All weights times a constant are the same as C times that constant, and change nothing where C is
            selected.
        groups : array-like of shape (n_samples,), default=None
            The group of every row, such as the patient or the session it comes from, or the row it is a copy of. Rows
            of one group are one observation: leave-one-out leaves all of them out. None: every row is a group of its
            own, except likely copies of a row, which form one group, with a warning.

        Returns
        -------
        self : KernelLogisticClassifier
            The fitted estimator.
        """
        # After an interrupted fit the estimator is not fitted, even if it was before.
        self.__dict__.pop("dual_coef_", None)
        if self.C is not None:
            check_positive("C", self.C, "or None to have it selected")
        check_positive("tol", self.tol, "for example 1e-9")
        data = self._training_rows(X, y, sample_weight, groups)
        # Weights are scaled to a mean of one, and C is multiplied by the mean in return.
        scale = float(data.weights.mean())
        targets = (
            np.eye(self.classes_.size)[data.class_index] if data.soft_labels is None else data.soft_labels
        )
        first, cell = _cells(data)
        rows = Observations(cell, targets, data.weights / scale, data.groups)
        _memory.require(
            8.0 * (matrices_needed(self.classes_.size) * first.size**2 + rows.left_out_numbers),
            f"the Hessian of {first.size} rows and {self.classes_.size} classes",
            "fit fewer rows, or choose LSSVMClassifier, which needs less",
        )
        with blas_threads_for(first.size):
            with np.errstate(over="ignore", invalid="ignore"):
                base = data.kernel.base_among(data.X, first)
            check_base(base, data.kernel)
            with shown(self.verbose) as progress:
                C, gamma = self._chosen(data, base, rows, scale, progress)
            with np.errstate(over="ignore", invalid="ignore"):
                gram = data.kernel.apply(base, gamma)
            solution, loo_logits = self._solved(gram, rows, C * scale)
        self.C_, self.gamma_ = C, gamma
        self.kernel_, self._rows = data.kernel, None if data.kernel.precomputed else data.X
        self.loo_log_proba_ = log_softmax(loo_logits, axis=1)
        self._kept_calibration = calibration_rows(
            self, data, self.loo_log_proba_, np.zeros(self.classes_.size)
        )
        self.intercept_ = solution.intercept
        self.objective_ = scale * solution.objective
        self.gradient_norm_ = float(np.sqrt(scale) * solution.gradient_norm)
        self.n_iter_ = solution.n_iter
        self.status_ = solution.status.value
        self.dual_coef_ = C * scale * _divided(solution.a, rows).T
        return self

    def _solved(self, gram: Array, rows: Observations, C: float) -> tuple[LogisticSolution, Array]:
        """Return the solution and its leave-one-out logits; warn if it has not converged."""
        if not np.isfinite(gram).all():
            raise ValueError(
                "the kernel matrix holds infinite or undefined values; scale the features, for example with "
                "StandardScaler"
            )
        targets, weights = rows.merged()
        try:
            solution = fit_kernel_logistic(gram, targets, weights, C, tol=self.tol, max_iter=self.max_iter)
            loo_logits = leave_one_out_logits(gram, targets, weights, C, solution, rows)
        except np.linalg.LinAlgError as error:
            raise ValueError(
                f"the kernel matrix times C={C:.3g} is not positive semi-definite to the digits that a computer "
                "keeps: lower C, scale the features, or use another kernel"
            ) from error
        if solution.status is not Status.CONVERGED:
            warn(
                f"{solution.status.value} (tol={self.tol}, max_iter={self.max_iter}, gradient norm "
                f"{solution.gradient_norm:.3g})",
                ConvergenceWarning,
            )
        return solution, loo_logits

    def _chosen(
        self, data: TrainingRows, base: Array, rows: Observations, scale: float, progress: Progress | None
    ) -> tuple[float, float]:
        """Return C and gamma, selected where they are None."""
        gamma = self._resolved_gamma(data.X, data.weights) if data.kernel.tunable else 1.0
        if self.C is not None and gamma is not None:
            return float(self.C), float(gamma)
        unit = data.kernel.unit_gamma(data.X, rows.weights)
        count = Count(progress, "choosing C and gamma", "kernels")
        count.expect(log_loss.N_KERNELS if gamma is None else 2)
        small, large = (self._sample(data, base, rows, size) for size in log_loss.SAMPLED)
        choice = log_loss.choose(
            data.kernel,
            small,
            large,
            gammas=(lambda point: unit * 2.0 ** (point / 2)) if gamma is None else gamma,
            C=None if self.C is None else float(self.C) * scale,
            count=count,
        )
        return 1.0 / choice.ridge / scale if self.C is None else float(self.C), choice.gamma

    def _sample(self, data: TrainingRows, base: Array, rows: Observations, size: int) -> log_loss.SampledRows:
        """Return a stratified sample of the rows, all of them if no more than `size` differ."""
        if len(base) <= size:
            return log_loss.SampledRows(base, rows)
        share = size / data.class_index.size
        kept = data.deal.sample(share)
        while not rows.targets[kept].any(axis=0).all():  # a class that is rare in all of its groups
            share *= 2.0
            kept = data.deal.sample(share)
        cells, sample = rows.take(kept)
        return log_loss.SampledRows(base[np.ix_(cells, cells)], sample)

    def decision_function(self, X: ArrayLike) -> Array:
        """Return the logits f of the classes, by which rows can be ranked.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Rows; their kernel values with the training rows for ``kernel="precomputed"``.

        Returns
        -------
        ndarray of shape (n_samples, K), or (n_samples,) for two classes
            The logits; for two classes the one of the second less the one of the first.
        """
        logits = self._logits(X)
        return logits[:, 1] - logits[:, 0] if self.classes_.size == 2 else logits

    @lazy_on_dask
    def predict_log_proba(self, X: ArrayLike) -> Array:
        """Return the logarithms of the class probabilities.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Rows; their kernel values with the training rows for ``kernel="precomputed"``.

        Returns
        -------
        ndarray of shape (n_samples, K)
            The log-probabilities, in the order of ``classes_``.
        """
        return np.asarray(log_softmax(self._logits(X), axis=1))

    def _logits(self, X: ArrayLike) -> Array:
        """Return f of new rows, shape (n_samples, K), in blocks of rows."""
        check_is_fitted(self, "dual_coef_")
        kernel, rows = self.kernel_, self._new_rows(X)
        size = _memory.block_rows(16.0 * self.dual_coef_.shape[1])
        logits = np.empty((rows.shape[0], self.classes_.size))
        for first in range(0, rows.shape[0], size):
            block = rows[first : first + size]
            with np.errstate(over="ignore", invalid="ignore"):
                values = block if kernel.precomputed else kernel.gram(block, self._rows, self.gamma_)
                logits[first : first + size] = values @ self.dual_coef_.T + self.intercept_
        check_finite(logits)
        return logits


def _cells(data: TrainingRows) -> tuple[Array, Array]:
    """Return a row for every cell of equal rows, shape (m,), and the cell of every row, shape (n,)."""
    n = data.class_index.size
    if not data.kernel.precomputed:  # else the rows are not known
        _, first, cell = np.unique(content_rank(data.X), return_index=True, return_inverse=True)
        if first.size < n:
            return first, cell
    return np.arange(n), np.arange(n)


def _divided(a: Array, rows: Observations) -> Array:
    """Return the coefficients of the rows, shape (n, K), from those of their cells: a = s(y − p) for both."""
    targets, weights = rows.merged()
    shares = (rows.weights / weights[rows.cell])[:, np.newaxis]
    return rows.weights[:, np.newaxis] * (rows.targets - targets[rows.cell]) + shares * a[rows.cell]
