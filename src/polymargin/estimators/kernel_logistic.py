"""KernelLogisticClassifier: multinomial kernel logistic regression."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from polymargin import _memory
from polymargin._html import ChoicesMixin
from polymargin._progress import Count, Progress, shown
from polymargin.estimators._flow import check_positive
from polymargin.estimators._soft_labels import are_soft, check_learnable, check_soft_labels
from polymargin.kernels import Kernel, Precomputed, resolve_kernel
from polymargin.kernels._base import weighted_moments
from polymargin.machines import TrainingRows
from polymargin.machines._gram import check_base
from polymargin.selection import log_loss
from polymargin.solvers.kernel_logistic import (
    Solution,
    Status,
    fit_kernel_logistic,
    leave_one_out_logits,
    matrices_needed,
)

Array = NDArray[Any]


class KernelLogisticClassifier(ChoicesMixin, ClassifierMixin, BaseEstimator):
    """Multinomial kernel logistic regression, with C and gamma chosen inside ``fit``.

    All classes are learned at once, without dichotomies: with the Gram matrix G it minimises

        Σᵢ sᵢ CE(yᵢ, softmax(fᵢ)) + (1/2C) tr(αᵀGα),     f = Gα + b,

    CE the cross-entropy and b unregularised, by Newton's method. The approximate leave-one-out probabilities of all
    training rows come from one more factorisation; C and gamma are those of the least leave-one-out log-loss. Every
    training row is part of the solution, and a Newton step takes about (K + 1) n³ operations: it is for some thousands
    of rows.

    Scale the features first, for example with ``StandardScaler``: kernels compare distances.

    Parameters
    ----------
    C : float or None, default=None
        Regularisation, the larger the less. None: selected inside ``fit``.
    kernel : {"linear", "poly", "rbf", "laplacian", "blend", "precomputed"} or callable, default="rbf"
        The kernel. A callable gets two arrays of rows and returns the matrix of kernel values.
    gamma : float, "scale", "auto" or None, default=None
        Coefficient of "rbf", "laplacian", "blend" and "poly". None: selected inside ``fit``.
    degree : float, default=3
        Degree of "poly", (gamma x·z + coef0)^degree.
    coef0 : float, default=1.0
        Constant of "poly".
    classes : array-like of shape (K,) or None, default=None
        The names of the columns where `fit` is given soft labels; None for 0, …, K−1.
    tol : float, default=1e-9
        The gradient's norm over the root of the number of rows (their weight) at which Newton's method stops.
    max_iter : int, default=100
        Limit on Newton's steps, -1 for none.
    verbose : int, default=0
        Whether ``fit`` shows the progress of the selection: a bar on stderr with the time left, or, where that is no
        terminal, a line now and then in the log ("polymargin", level INFO).
    random_state : int, RandomState instance or None, default=None
        For the rows that the selection looks at, where there are more than 500 (150 for the coarse search). None is the
        same as 0.

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
        The training rows that carry the machine: all those of positive weight.
    loo_log_proba_ : ndarray of shape (n_support, K)
        The logarithms of the probabilities that each training row would have been given had it not been there, by one
        Newton step. (Of a row of weight s > 1, which counts as s rows, one is left out.)
    objective_, gradient_norm_ : float
        What was minimised, and the norm of its gradient at the solution: the objective is at most about half the square
        of the norm above the optimum.
    n_iter_ : int
        Newton's steps.
    status_ : str
        How the solver ended.
    n_features_in_, feature_names_in_
        As in scikit-learn.

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

    classes_: Array

    def __init__(
        self,
        C: float | None = None,
        *,
        kernel: Any = "rbf",
        gamma: float | str | None = None,
        degree: float = 3,
        coef0: float = 1.0,
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
        self.classes = classes
        self.tol = tol
        self.max_iter = max_iter
        self.verbose = verbose
        self.random_state = random_state

    def fit(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> KernelLogisticClassifier:
        """Choose C and gamma where they are None, and fit.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Training rows; the square Gram matrix for ``kernel="precomputed"``.
        y : array-like of shape (n_samples,) or (n_samples, K)
            Class labels; or soft labels, floating-point class probabilities that sum to one in every row.
        sample_weight : array-like of shape (n_samples,), default=None
            Row weights: weight two counts like the row twice, weight zero like no row.

        Returns
        -------
        self : KernelLogisticClassifier
            The fitted estimator.
        """
        # A fit that is interrupted leaves nothing that passes for fitted, neither new nor old.
        self.__dict__.pop("dual_coef_", None)
        if self.C is not None:
            check_positive("C", self.C, "or None to have it selected")
        check_positive("tol", self.tol, "for example 1e-9")
        data = self._training_rows(X, y, sample_weight)
        n, n_classes = data.class_index.size, self.classes_.size
        _memory.require(
            8.0 * matrices_needed(n_classes) * n**2,
            f"the Hessian of {n} rows and {n_classes} classes",
            "fit fewer rows, or choose LSSVMClassifier, which needs less",
        )
        targets = np.eye(n_classes)[data.class_index] if data.soft_labels is None else data.soft_labels
        base = data.kernel.base_among(data.X, np.arange(n))
        check_base(base, data.kernel)
        with shown(self.verbose) as progress:
            C, gamma = self._chosen(data, base, targets, progress)
        with np.errstate(over="ignore", invalid="ignore"):
            gram = data.kernel.apply(base, gamma)
        self.C_, self.gamma_ = C, gamma
        solution, loo_logits = self._solved(gram, targets, data.weights)
        self.kernel_, self._rows = data.kernel, None if data.kernel.precomputed else data.X.copy()
        self.loo_log_proba_ = log_softmax(loo_logits, axis=1)
        self.intercept_ = solution.intercept
        self.objective_, self.gradient_norm_ = solution.objective, solution.gradient_norm
        self.n_iter_ = solution.n_iter
        self.status_ = solution.status.value
        self.dual_coef_ = C * solution.a.T
        return self

    def _solved(self, gram: Array, targets: Array, weights: Array) -> tuple[Solution, Array]:
        """Return the solution and its leave-one-out logits; warn if it has not converged."""
        if not np.isfinite(gram).all():
            raise ValueError(
                "the kernel matrix holds infinite or undefined values; scale the features, for example with "
                "StandardScaler"
            )
        try:
            solution = fit_kernel_logistic(
                gram, targets, weights, self.C_, tol=self.tol, max_iter=self.max_iter
            )
            loo_logits = leave_one_out_logits(gram, targets, weights, self.C_, solution)
        except np.linalg.LinAlgError as error:
            raise ValueError(
                f"the kernel matrix times C={self.C_:.3g} is not positive semi-definite to the digits that a computer "
                "keeps: lower C, scale the features, or use another kernel"
            ) from error
        if solution.status is not Status.CONVERGED:
            warnings.warn(
                f"{solution.status.value} (tol={self.tol}, max_iter={self.max_iter}, gradient norm "
                f"{solution.gradient_norm:.3g})",
                ConvergenceWarning,
                stacklevel=3,
            )
        return solution, loo_logits

    def _chosen(
        self, data: TrainingRows, base: Array, targets: Array, progress: Progress | None
    ) -> tuple[float, float]:
        """Return C and gamma, selected where they are None."""
        gamma = self._given_gamma(data)
        if self.C is not None and gamma is not None:
            return float(self.C), gamma
        unit = data.kernel.unit_gamma(data.X, data.weights)
        count = Count(progress, "choosing C and gamma", "kernels")
        count.expect(log_loss.KERNELS if gamma is None else 2)
        few, more = (self._part(data, base, targets, size) for size in log_loss.SAMPLED)
        choice = log_loss.choose(
            data.kernel,
            few,
            more,
            gammas=(lambda point: unit * 2.0 ** (point / 2)) if gamma is None else gamma,
            C=None if self.C is None else float(self.C),
            count=count,
        )
        return 1.0 / choice.ridge if self.C is None else float(self.C), choice.gamma

    def _part(self, data: TrainingRows, base: Array, targets: Array, size: int) -> log_loss.Part:
        """Return a sample of the different rows, stratified; all rows if there are no more.

        It does not depend on the order of the rows, and copies of a row are one row of their weight.
        """
        if data.class_index.size <= size:
            return log_loss.Part(base, targets, data.weights)
        rows = data.distinct
        weights = np.bincount(rows.inverse, data.weights)
        kept = np.arange(rows.first.size)
        if kept.size > size:
            generator = check_random_state(0 if self.random_state is None else self.random_state)
            order = generator.permutation(kept.size)
            classes = data.class_index[rows.first]
            # By the place within its class: every class gives its first rows, as many as its share and one at least.
            order = order[np.argsort(classes[order], kind="stable")]
            counts = np.bincount(classes)
            place = np.arange(kept.size) - np.repeat(np.cumsum(counts) - counts, counts)
            kept = np.sort(order[place < np.ceil(counts * size / kept.size)[classes[order]]])
        first = rows.first[kept]
        return log_loss.Part(base[np.ix_(first, first)], targets[first], weights[kept])

    def _given_gamma(self, data: TrainingRows) -> float | None:
        """Return gamma as a number, or None if it is to be selected."""
        gamma = self.gamma
        if not data.kernel.tunable:
            return 1.0
        if gamma is None:
            return None
        if gamma == "auto":
            return 1.0 / data.X.shape[1]
        if gamma == "scale":
            mean, variances = weighted_moments(data.X, data.weights)
            variance = float(variances.mean() + mean.var())
            return 1.0 / (data.X.shape[1] * variance) if variance > 0 else 1.0
        check_positive("gamma", gamma, 'or "scale", "auto", or None to have it selected')
        return float(gamma)

    def _training_rows(self, X: Any, y: Any, sample_weight: Any) -> TrainingRows:
        """Check what came in; set ``classes_`` and ``support_``, the rows of positive weight."""
        kernel = self._kernel
        accepted = False if kernel.precomputed else "csr"
        soft_labels = None
        if are_soft(y):
            X = validate_data(self, X, accept_sparse=accepted, dtype=np.float64, ensure_min_samples=2)
            soft_labels, classes = check_soft_labels(y, X.shape[0], self.classes)
            class_index = soft_labels.argmax(axis=1)
        else:
            X, y = validate_data(self, X, y, accept_sparse=accepted, dtype=np.float64, ensure_min_samples=2)
            check_classification_targets(y)
            classes, class_index = np.unique(y, return_inverse=True)
        if kernel.precomputed and X.shape[0] != X.shape[1]:
            raise ValueError(f"a precomputed kernel matrix must be square, not {X.shape}")
        weights = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        kept = np.flatnonzero(weights)
        if kept.size == 0:
            raise ValueError("all sample weights are zero; at least two rows of different classes must count")
        if soft_labels is not None:
            soft_labels = soft_labels[kept]
            check_learnable(soft_labels, classes)
        else:
            _check_classes(classes, class_index[kept])
        if kept.size < weights.size:
            X = X[np.ix_(kept, kept)] if kernel.precomputed else X[kept]
        self.classes_, self.support_ = classes, kept
        kernel = kernel.fitted(X, weights[kept])
        return TrainingRows(kernel, X, class_index[kept], weights[kept], soft_labels)

    def decision_function(self, X: ArrayLike) -> Array:
        """Return the classes' logits, shape (n_samples, K); for two classes the difference, shape (n_samples,)."""
        logits = self._logits(X)
        return logits[:, 1] - logits[:, 0] if self.classes_.size == 2 else logits

    def predict_log_proba(self, X: ArrayLike) -> Array:
        """Return the logarithms of the class probabilities, shape (n_samples, K)."""
        return np.asarray(log_softmax(self._logits(X), axis=1))

    def predict_proba(self, X: ArrayLike) -> Array:
        """Return the class probabilities, shape (n_samples, K), in the order of ``classes_``."""
        return np.exp(self.predict_log_proba(X))

    def predict(self, X: ArrayLike) -> Array:
        """Return the label of every row, shape (n_samples,): the class of the largest probability."""
        # Rounding included, label and probability agree.
        index = self.predict_proba(X).argmax(axis=1)
        return self.classes_[index]

    def _logits(self, X: ArrayLike) -> Array:
        """Return f of new rows, shape (n_samples, K), in blocks of rows."""
        check_is_fitted(self, "dual_coef_")
        kernel = self.kernel_
        accepted = False if kernel.precomputed else "csr"
        rows = validate_data(self, X, accept_sparse=accepted, dtype=np.float64, reset=False)
        size = _memory.block_rows(16.0 * self.dual_coef_.shape[1])
        logits = np.empty((rows.shape[0], self.classes_.size))
        for first in range(0, rows.shape[0], size):
            block = rows[first : first + size]
            if kernel.precomputed:
                values = block[:, self.support_]
            else:
                values = kernel.gram(block, self._rows, self.gamma_)
            logits[first : first + size] = values @ self.dual_coef_.T + self.intercept_
        return logits

    @property
    def _kernel(self) -> Kernel:
        return resolve_kernel(self.kernel, self.degree, self.coef0)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        pairwise = self.kernel == "precomputed" or isinstance(self.kernel, Precomputed)
        tags.input_tags.sparse = not pairwise
        tags.input_tags.pairwise = pairwise
        return tags


def _check_classes(classes: Array, class_index: Array) -> None:
    """Refuse fewer than two classes, and a class whose rows do not count."""
    if classes.size < 2:
        raise ValueError(f"y holds only one class, {classes.tolist()[0]!r}; a classifier needs two or more")
    missing = np.bincount(class_index, minlength=classes.size) == 0
    if missing.any():
        raise ValueError(f"class {classes[missing].tolist()[0]!r} has no row with a positive sample weight")
