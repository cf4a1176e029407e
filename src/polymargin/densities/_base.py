"""What the two density estimators share."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from polymargin.densities._neighbours import Sample
from polymargin.inspection.html import ChoicesMixin

Array = NDArray[Any]


class DensityClassifier(ChoicesMixin, ClassifierMixin, BaseEstimator):
    """Class probabilities by counting the training rows near a row."""

    classes_: Array
    class_prior_: Array
    _sample: Sample

    def fit(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> Any:
        """Store the training rows.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Training rows.
        y : array-like of shape (n_samples,)
            Class labels.
        sample_weight : array-like of shape (n_samples,), default=None
            Row weights: weight two counts like the row twice, weight zero like no row.

        Returns
        -------
        self : estimator
            The fitted estimator.
        """
        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=np.float64, ensure_min_samples=2)
        check_classification_targets(y)
        weights = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        if not weights.any():
            raise ValueError("all sample weights are zero; at least one row must count")
        self.classes_, class_index = np.unique(y, return_inverse=True)
        missing = np.bincount(class_index, weights) == 0
        if missing.any():
            raise ValueError(
                f"class {self.classes_[missing].tolist()[0]!r} has no row with a positive sample weight"
            )
        kept = weights > 0.0
        sample = Sample.of(X[kept], class_index[kept], weights[kept], self.classes_.size)
        self._fit_neighbourhood(sample)
        self._sample, self._kept, self._not_kept = sample, kept, X[~kept]
        self._class_index = class_index[kept]
        self.class_prior_ = sample.frequencies
        return self

    def predict_proba(self, X: ArrayLike) -> Array:
        """Return the class probabilities of new rows.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n_samples, K)
            The probabilities, in the order of ``classes_``.
        """
        check_is_fitted(self)
        rows = validate_data(self, X, accept_sparse="csr", dtype=np.float64, reset=False)
        return self._new_posteriors(self._sample, self._sample.centred(rows))

    def predict(self, X: ArrayLike) -> Array:
        """Return the most probable class of every row, of equal ones the first.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n_samples,)
            The labels.
        """
        proba = self.predict_proba(X)
        return self.classes_[proba.argmax(axis=1)]

    def training_proba(self) -> Array:
        """Return the soft labels of the training rows.

        A row counts itself. (A row that had weight zero is none of the training rows, and gets what `predict_proba`
        says of it.)

        Returns
        -------
        ndarray of shape (n_samples, K)
            The probabilities, in the order of ``classes_``.
        """
        check_is_fitted(self)
        proba = np.empty((self._kept.size, self.classes_.size))
        proba[self._kept] = self._training_posteriors(self._sample, self._class_index)
        if not self._kept.all():
            proba[~self._kept] = self._new_posteriors(self._sample, self._sample.centred(self._not_kept))
        return proba

    def soft_labels(self, X: Any, class_index: Array, weights: Array, n_classes: int) -> Array:
        """Return the soft labels of rows that are validated already, from those of positive weight.

        Nothing is stored. Where the rows are fewer than the neighbours that are asked for, all of them are the
        neighbours.

        Parameters
        ----------
        X : array or sparse matrix of shape (n, d)
            Rows.
        class_index : ndarray of int, shape (n,)
            Their classes.
        weights : ndarray of shape (n,)
            Their weights.
        n_classes : int
            K.

        Returns
        -------
        ndarray of shape (n, K)
            The probabilities; zeros for rows of weight zero, and for classes that have no row.
        """
        kept = np.flatnonzero(weights)
        sample = Sample.of(X[kept], class_index[kept], weights[kept], n_classes)
        labels = np.zeros((weights.size, n_classes))
        labels[kept] = self._training_posteriors(sample, class_index[kept])
        return labels

    def __sklearn_is_fitted__(self) -> bool:
        """Say that a fit came to its end."""
        return hasattr(self, "class_prior_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    @abstractmethod
    def _fit_neighbourhood(self, sample: Sample) -> None:
        """Check the parameter against the training set and store what follows from it."""

    @abstractmethod
    def _new_posteriors(self, sample: Sample, queries: Any) -> Array:
        """Return the class probabilities of new rows, centred, shape (b, K)."""

    @abstractmethod
    def _training_posteriors(self, sample: Sample, class_index: Array) -> Array:
        """Return the class probabilities of the training rows, shape (n, K), themselves counted."""
