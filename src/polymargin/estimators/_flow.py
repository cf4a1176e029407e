"""The flow of ``fit`` and ``predict`` that all estimators of dichotomies share.

data ──► kernel ──► codebook ──► machines ──► outputs ──► decoder ──► probabilities, labels
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import wraps
from itertools import pairwise
from numbers import Integral
from typing import Any, ClassVar, TypeVar, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from polymargin._accelerator import Accelerator, accelerated
from polymargin._progress import Count, Progress, notes, shown
from polymargin._threads import blas_threads_for, threads
from polymargin.cluster import is_dask
from polymargin.codebooks import (
    Codebook,
    Train,
    adaptive_coding,
    default_coding,
    grow_codebook,
    resolve_codebook,
)
from polymargin.decoders import Decoder, Hamming, ProbabilisticDecoder, resolve_decoder
from polymargin.decoders._base import can_read, fit_decoder, one_per_class
from polymargin.estimators._arrays import device_name, same_kind_of_array, to_numpy
from polymargin.estimators._available import available_if
from polymargin.estimators._base import KernelClassifier
from polymargin.estimators._dask import fit_on_cluster, lazy_on_dask
from polymargin.estimators._growth import SINGLE, TwoSides
from polymargin.estimators._soft_labels import decoder_rows
from polymargin.estimators._validation import check_finite, resolve_priors
from polymargin.kernels import Kernel
from polymargin.machines import TrainingRows
from polymargin.machines._workspace import SharedWork
from polymargin.outputs import Outputs

Array = NDArray[Any]
Method = TypeVar("Method", bound=Callable[..., Any])

#: The parameters in which estimators that share their work may differ.
_MAY_DIFFER = ("coding", "decoding")


def in_own_threads(method: Method) -> Method:
    """Let as many threads as ``n_jobs`` says share the rows of a prediction, as they share the work of a fit.

    Parameters
    ----------
    method : callable (self, X) -> ndarray
        A method of an estimator.

    Returns
    -------
    callable
    """

    @wraps(method)
    def run(self: Any, X: Any) -> Any:
        data = getattr(getattr(self, "bank_", None), "data", None)
        n_rows = 0 if data is None else data.class_index.size
        with threads(getattr(self, "n_jobs", None), most_rows=n_rows), blas_threads_for(n_rows or np.inf):
            return method(self, X)

    return cast(Method, run)


def _gives_probabilities(estimator: Any) -> bool:
    """Return True if the decoder is probabilistic; else raise the AttributeError that `available_if` shows.

    Also where it would be after another fit, which the method then asks for.
    """
    fitted = getattr(estimator, "decoder_", None)
    if fitted is not None and fitted.probabilistic:
        return True
    if not resolve_decoder(estimator._decoding).probabilistic:
        raise AttributeError(f"{estimator._decoding_in_words} gives no probabilities; {estimator._advice}")
    return True


class DichotomyClassifier(KernelClassifier):
    """Base class of the classifiers that divide K classes into L dichotomies and decode them."""

    #: The loss of the machines.
    _loss: ClassVar[str] = "squared"
    #: With what a model without probabilities was fitted.
    _without_probabilities: ClassVar[str] = "a decoding that gives none"

    coding: Any
    decoding: Any
    priors: Any
    verbose: int

    #: The GPU on which the training rows were, if they were on one.
    _rows_on: str | None = None

    bank_: Any
    coding_: Any
    codebook_: Codebook
    decoder_: Decoder

    @abstractmethod
    def _fit_machines(
        self,
        data: TrainingRows,
        codebook: Codebook,
        decoder: Decoder,
        shared: SharedWork,
        progress: Progress | None = None,
    ) -> None:
        """Train one machine per column and set the fitted attributes."""

    @abstractmethod
    def _training_outputs(
        self, *, honest: bool, shared: SharedWork, progress: Progress | None = None
    ) -> Outputs:
        """Return the outputs of the training rows: honest (out-of-sample) or in-sample."""

    @abstractmethod
    def _outputs(self, X: Any, *, variances: bool) -> Outputs:
        """Return the outputs of the machines for new rows, which are validated already."""

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        groups: ArrayLike | None = None,
    ) -> Any:
        """Fit the machines and the decoder.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Training rows; the square Gram matrix for ``kernel="precomputed"``. `LSSVMClassifier` also takes Dask arrays
            and dataframes, with `y` and `sample_weight` of the same kind, and leaves their rows on the cluster.
        y : array-like of shape (n_samples,)
            Class labels.
        sample_weight : array-like of shape (n_samples,), default=None
            Row weights, which multiply the losses of the rows; a row of weight zero does not count.
        groups : array-like of shape (n_samples,), default=None
            The group of every row, such as the patient or the session it comes from, or the row it is a copy of. Rows
            of one group are one observation: leave-one-out leaves all of them out, and folds keep them together.
            None: every row is a group of its own, unless rows are likely copies of each other, which is reported by a
            warning.

        Returns
        -------
        self : estimator
            The fitted estimator.
        """
        if is_dask(X) and hasattr(self, "_fit_source"):
            return fit_on_cluster(self, X, y, sample_weight, groups)
        self._rows_on = device_name(X)
        X, y, sample_weight, groups = map(to_numpy, (X, y, sample_weight, groups))
        return self._fit(X, y, sample_weight, groups, SharedWork(keep=False))

    def _fit(self, X: Any, y: Any, sample_weight: Any, groups: Any, shared: SharedWork) -> Any:
        """Fit, with a cache that other fits to the same rows share."""
        # An interrupted fit must not leave an estimator that passes for fitted.
        self.__dict__.pop("decoder_", None)
        data = self._training_rows(X, y, sample_weight, groups)
        decoder = resolve_decoder(self._decoding, self._loss)
        with shown(self.verbose) as progress:
            with blas_threads_for(data.class_index.size):
                codebook = self._resolved_codebook(data, progress)
            decoder.check(codebook)
            counts = np.bincount(data.class_index, minlength=codebook.n_classes)
            decoder = self._planned(counts, data.X.shape[1], codebook, decoder)
            n_rows = self._matrix_rows(data, codebook)
            most_rows, operations = float(n_rows.max()), float((n_rows**3).sum())
            workers = threads(getattr(self, "n_jobs", None), float(n_rows.mean()), most_rows, operations)
            with workers, blas_threads_for(most_rows), accelerated(self._accelerator):
                self._fit_machines(data, codebook, decoder, shared, progress)
                self.codebook_ = codebook
                self.decoder_ = self._fit_decoder(decoder, data, shared, progress)
        return self

    @property
    def _accelerator(self) -> Accelerator | None:
        """What the solvers of the decoder may use beside the CPU."""
        return None

    def _planned(self, class_counts: Array, n_features: int, codebook: Codebook, decoder: Decoder) -> Decoder:
        """Decide how the fit is divided, where there is a choice; return the decoder that goes with it."""
        return decoder

    def _matrix_rows(self, data: TrainingRows, codebook: Codebook) -> Array:
        """Return the number of rows of the matrices with which the machines are trained."""
        return np.array([float(data.class_index.size)])

    def _fit_decoder(
        self,
        decoder: Decoder,
        data: TrainingRows,
        shared: SharedWork,
        progress: Progress | None,
        priors: Array | None = None,
    ) -> Decoder:
        """Fit the decoder on outputs of the training rows, if it learns; `priors` replaces ``self.priors``."""
        outputs = None
        if decoder.learns:
            outputs = self._training_outputs(honest=not decoder.in_sample, shared=shared, progress=progress)
        rows = decoder_rows(data, outputs)
        if priors is None and self.priors is not None:
            priors = resolve_priors(self.priors, data.class_weights(self.classes_.size), self.classes_)
        with blas_threads_for(0):  # a decoder's matrices are thin
            return fit_decoder(
                decoder,
                self.codebook_,
                rows.outputs,
                rows.class_index,
                priors=priors,
                # Equal weights are not passed on: stacked classifiers may not accept weights.
                sample_weight=None if (rows.weights == 1.0).all() else rows.weights,
            )

    @same_kind_of_array
    @lazy_on_dask
    @in_own_threads
    def predict(self, X: ArrayLike) -> Array:
        """Return the label of every row: the class of the largest probability, or score where there are none.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Rows; their kernel values with the training rows for ``kernel="precomputed"``.

        Returns
        -------
        ndarray of shape (n_samples,)
            The labels, which agree with `predict_proba`, rounding included.
        """
        check_is_fitted(self)
        return self.classes_[self._label_scores(self._new_outputs(X)).argmax(axis=1)]

    @same_kind_of_array
    @lazy_on_dask
    @in_own_threads
    def decision_function(self, X: ArrayLike) -> Array:
        """Return the scores of the classes, by which rows can be ranked.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Rows; their kernel values with the training rows for ``kernel="precomputed"``.

        Returns
        -------
        ndarray of shape (n_samples, K), or (n_samples,) for two classes
            What the decoder maximises: log-probabilities where there are probabilities, else votes or negative losses.
            For two classes the score of the second less the one of the first, or the margin of the only machine where
            the decoder does not learn.
        """
        check_is_fitted(self)
        return self._ranking_scores(self._new_outputs(X))

    @available_if(_gives_probabilities)
    @same_kind_of_array
    @lazy_on_dask
    @in_own_threads
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
        check_is_fitted(self)
        if not isinstance(self.decoder_, ProbabilisticDecoder):  # the parameters have been changed since
            raise NotFittedError(
                f"predict_proba is not available when fitted with {self._without_probabilities}: call fit again"
            )
        outputs = self._new_outputs(X)
        return one_per_class(self.decoder_, self.decoder_.log_proba(outputs), outputs)

    @available_if(_gives_probabilities)
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
    @in_own_threads
    def margins(self, X: ArrayLike) -> Array:
        """Return the output of every machine.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Rows; their kernel values with the training rows for ``kernel="precomputed"``.

        Returns
        -------
        ndarray of shape (n_samples, L)
            The margins, a column for each column of ``codebook_``; with ``scale="both"`` first those of the leaves,
            then those of the landmarks.
        """
        check_is_fitted(self)
        return self._outputs(self._new_rows(X), variances=False).margins

    @property
    def _decoding(self) -> Any:
        """The decoding, also where it follows from other parameters."""
        return self.decoding

    @property
    def _decoding_in_words(self) -> str:
        """The parameter that asks for the decoding."""
        return f"decoding={self.decoding!r}"

    @property
    def _advice(self) -> str:
        """How to have probabilities."""
        return 'set decoding="coupled-softmax", or another that does'

    def _label_scores(self, outputs: Outputs) -> Array:
        """Return scores of which the largest gives the label, shape (n, K)."""
        scores = one_per_class(self.decoder_, self.decoder_.scores(outputs), outputs)
        # exp() may make scores equal: labels must agree with the probabilities, ties included.
        return np.exp(scores) if self.decoder_.probabilistic else scores

    def _ranking_scores(self, outputs: Outputs) -> Array:
        """Return the decision function, shape (n, K), or (n,) for two classes."""
        fixed = not (self.decoder_.probabilistic or self.decoder_.learns)
        if self.codebook_.matrix.shape == (2, 1) and fixed:
            # The margin of the only machine ranks rows, which its vote does not.
            return outputs.margins[:, 0] * self.codebook_.matrix[1, 0]
        scores = one_per_class(self.decoder_, self.decoder_.scores(outputs), outputs)
        return scores[:, 1] - scores[:, 0] if self.classes_.size == 2 else scores

    def _new_outputs(self, X: ArrayLike) -> Outputs:
        with np.errstate(over="ignore", invalid="ignore"):
            outputs = self._outputs(self._new_rows(X), variances=self.decoder_.needs_variances)
        check_finite(outputs.margins)
        return outputs

    @property
    def kernel_(self) -> Kernel:
        """The kernel, fitted to the training rows."""
        return self.bank_.kernel

    def _resolved_codebook(self, data: TrainingRows, progress: Progress | None = None) -> Codebook:
        """Set the coding; return its codebook, grown with the estimator's own machines if it is adaptive."""
        self.coding_ = self._chosen_coding(self.classes_.size)
        adaptive = adaptive_coding(self.coding_)
        if adaptive is None:
            return resolve_codebook(self.coding_, self.classes_.size, self.random_state)
        # All columns are trained with the gamma of all rows.
        machine = clone(self).set_params(gamma=self._resolved_gamma(data.kernel.scaled(data.X), data.weights))
        train = self._column_trainer(machine, data, notes(progress))
        machines = Count(progress, "growing the codebook", "machines", total=None)

        def counted(column: Array) -> Array:
            margins = train(column)
            machines.advance()
            return margins

        return grow_codebook(counted, data.class_index, self.classes_.size, adaptive, weights=data.weights)

    def _chosen_coding(self, n_classes: int) -> Any:
        """Return the coding; if none was given, the default for so many classes, or the one the decoder can read."""
        if self.coding is not None:
            return self.coding
        decoder = resolve_decoder(self._decoding, self._loss)
        chosen = default_coding(n_classes)
        if can_read(decoder, resolve_codebook(chosen, n_classes, None)):
            return chosen
        (other,) = {"one-vs-one", "one-vs-all"} - {chosen}
        return other if can_read(decoder, resolve_codebook(other, n_classes, None)) else chosen

    def _column_trainer(self, machine: Any, data: TrainingRows, progress: Progress | None) -> Train:
        """Return a function that trains a column of a growing codebook with a clone of the estimator."""
        return lambda column: machine._dichotomy_margins(data, column)

    def _dichotomy_margins(self, data: TrainingRows, column: Array) -> Array:
        """Train on one column of a codebook; return its honest margins for all rows, shape (n,)."""
        sides = TwoSides.of(data, column)
        shared = SharedWork(keep=False)
        self._fit_machines(sides.rows, SINGLE, Hamming(), shared)
        outputs = self._training_outputs(honest=True, shared=shared)
        honest = (outputs.margins if outputs.exact is None else outputs.exact)[:, 0]
        return sides.margins(honest, lambda new: self._outputs(new, variances=False).margins)

    def __sklearn_is_fitted__(self) -> bool:
        """Return whether a fit was completed: the decoder is stored last."""
        return hasattr(self, "decoder_")


def fit_together(
    estimators: Sequence[DichotomyClassifier],
    X: ArrayLike,
    y: ArrayLike,
    sample_weight: ArrayLike | None = None,
    groups: ArrayLike | None = None,
) -> None:
    """Fit estimators to the same rows; those that differ in coding or decoding only share their work.

    Each is fitted as by its own ``fit``: the results are the same, bit for bit.

    Parameters
    ----------
    estimators : sequence of LSSVMClassifier, or of SVMClassifier
        The estimators, which must have the same parameters but for ``coding`` and ``decoding``, and a number or None
        as ``random_state``.
    X : array-like or sparse matrix of shape (n, d)
        Rows; the Gram matrix for a precomputed kernel.
    y : array-like of shape (n,) or (n, K)
        Class labels, or soft labels where ``fit`` accepts them.
    sample_weight : array-like of shape (n,) or None
        Row weights.
    groups : array-like of shape (n,) or None
        The group of every row, where ``fit`` accepts them.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from polymargin import LSSVMClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> models = [LSSVMClassifier(decoding=name) for name in ("coupled-softmax", "coupling")]
    >>> fit_together(models, X, y)
    >>> bool((models[1].predict_proba(X) == LSSVMClassifier(decoding="coupling").fit(X, y).predict_proba(X)).all())
    True
    """
    estimators = list(estimators)
    for estimator in estimators:
        random_state = getattr(estimator, "random_state", None)
        if random_state is not None and not isinstance(random_state, Integral):
            raise ValueError(
                "random_state must be a number or None for estimators that are fitted together, so that all have the "
                f"same folds: not {random_state!r}, which each of them would draw from"
            )
    for one, other in pairwise(estimators):
        known, own = (
            {
                name: value
                for name, value in each.get_params().items()
                if name.split("__")[0] not in _MAY_DIFFER
            }
            for each in (one, other)
        )
        if type(one) is not type(other) or repr(known) != repr(own):
            raise ValueError("estimators that are fitted together must differ in coding and decoding only")
    shared = SharedWork()
    for estimator in estimators:
        estimator._fit(X, y, sample_weight, groups, shared)
