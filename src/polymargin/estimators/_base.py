"""Base classes of the classifiers: validation of rows, the kernel and its parameter, labels from probabilities."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import validate_data

from polymargin.estimators._arrays import same_kind_of_array
from polymargin.estimators._dask import lazy_on_dask
from polymargin.estimators._decisions import DecisionsMixin
from polymargin.estimators._soft_labels import SoftScoreMixin
from polymargin.estimators._validation import check_positive, check_rows, scale_gamma
from polymargin.inspection.html import ChoicesMixin
from polymargin.kernels import Kernel, Precomputed, Scaled, resolve_kernel
from polymargin.machines import TrainingRows

Array = NDArray[Any]


class KernelClassifier(DecisionsMixin, ChoicesMixin, SoftScoreMixin, ClassifierMixin, BaseEstimator):
    """Base class of the classifiers with a kernel, which keep their training rows."""

    #: Whether `fit` takes an n×K matrix of class probabilities for y; their columns are named by ``classes``.
    takes_soft_labels: ClassVar[bool] = False
    #: Whether the machines apply ``class_weight`` themselves, separately from the row weights.
    class_weight_in_box: ClassVar[bool] = False

    kernel: Any
    gamma: Any
    degree: Any
    coef0: float
    random_state: Any
    #: The widths by which columns are scaled, "learned" where a classifier can learn them, or None.
    metric: Any = None
    #: "ranks" where rows are compared by the ranks of their columns, or None.
    columns: Any = None

    classes_: Array
    support_: Array
    _trained_rows: Array

    @property
    def _kernels(self) -> list[Kernel]:
        """The candidate kernels, not fitted: the one that the parameters name."""
        return [self._with_metric(resolve_kernel(self.kernel, self.degree, self.coef0))]

    def _with_columns(self, kernel: Kernel) -> Kernel:
        """Return the kernel of ranks, if these are to be compared."""
        return kernel if self.columns is None else Scaled(kernel, columns=self.columns)

    def _with_metric(self, kernel: Kernel) -> Kernel:
        """Return the kernel of the columns, or of their ranks, scaled by a metric that is given."""
        if isinstance(self.metric, str):
            raise ValueError(
                f"metric={self.metric!r}: only LSSVMClassifier learns a metric; give its metric_, an array with a "
                "width for every column, or None"
            )
        kernel = self._with_columns(kernel)
        return kernel if self.metric is None else Scaled(kernel, self.metric)

    def _training_rows(self, X: Any, y: Any, sample_weight: Any, groups: Any = None) -> TrainingRows:
        """Validate the input; set ``classes_`` and ``support_``, the rows of positive weight."""
        kernel = self._kernels[0]
        checked = check_rows(
            self,
            X,
            y,
            sample_weight,
            groups,
            precomputed=kernel.precomputed,
            soft_labels=self.takes_soft_labels,
            class_weight=None if self.class_weight_in_box else getattr(self, "class_weight", None),
        )
        self.classes_ = checked.classes
        self.support_ = self._trained_rows = checked.support
        rows = TrainingRows(
            kernel.fitted(checked.X, checked.weights),
            checked.X,
            checked.class_index,
            checked.weights,
            checked.soft_labels,
            checked.groups,
        )
        return rows.shuffled(self.random_state)

    def _new_rows(self, X: ArrayLike) -> Any:
        """Validate new rows; of a precomputed kernel, keep the columns of the training rows of positive weight."""
        # The fitted kernel, not the parameter, which may have been changed since.
        precomputed = self.kernel_.precomputed
        rows = validate_data(
            self, X, accept_sparse=False if precomputed else "csr", dtype=np.float64, reset=False
        )
        return rows[:, self._trained_rows] if precomputed else rows

    def _resolved_gamma(self, X: Any, weights: Array) -> float | None:
        """Return gamma as a number, or None if it is to be selected."""
        gamma = self.gamma
        if gamma == "scale":
            return scale_gamma(X, weights)
        if gamma == "auto":
            return 1.0 / X.shape[1]
        if gamma is not None:
            check_positive("gamma", gamma, 'or "scale", "auto", or None to have it selected')
        return gamma

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        pairwise = self.kernel == "precomputed" or isinstance(self.kernel, Precomputed)
        tags.input_tags.sparse = not pairwise
        tags.input_tags.pairwise = pairwise
        return tags


class ProbabilisticMixin:
    """Probabilities, labels and scores of a classifier from its log-probabilities."""

    classes_: Array

    @abstractmethod
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

    @same_kind_of_array
    def predict_proba(self, X: ArrayLike) -> Array:
        """Return the class probabilities.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Rows; their kernel values with the training rows for ``kernel="precomputed"``.

        Returns
        -------
        ndarray of shape (n_samples, K)
            The probabilities, in the order of ``classes_``.
        """
        return np.exp(self.predict_log_proba(X))

    @same_kind_of_array
    @lazy_on_dask
    def predict(self, X: ArrayLike) -> Array:
        """Return the most probable class of every row.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Rows; their kernel values with the training rows for ``kernel="precomputed"``.

        Returns
        -------
        ndarray of shape (n_samples,)
            The labels, which agree with `predict_proba`, rounding included.
        """
        index = self.predict_proba(X).argmax(axis=1)
        return self.classes_[index]

    @same_kind_of_array
    def decision_function(self, X: ArrayLike) -> Array:
        """Return the scores of the classes, by which rows can be ranked: their log-probabilities.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Rows; their kernel values with the training rows for ``kernel="precomputed"``.

        Returns
        -------
        ndarray of shape (n_samples, K), or (n_samples,) for two classes
            The log-probabilities; for two classes the one of the second less the one of the first.
        """
        log_p = self.predict_log_proba(X)
        return log_p[:, 1] - log_p[:, 0] if self.classes_.size == 2 else log_p
