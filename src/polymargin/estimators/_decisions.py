"""Prediction sets and decisions of the classifiers, by their probabilities and the honest ones of training rows."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from polymargin._warnings import warn
from polymargin.cluster import is_dask
from polymargin.decisions.conformal import (
    SCORES,
    CalibrationRows,
    check_coverage,
    check_flag,
    prediction_sets,
    rows_needed,
)
from polymargin.decisions.costs import CostMatrix, check_reject, decided_labels
from polymargin.decoders import CoupledSoftmax, Decoder, resolve_decoder
from polymargin.decoders._base import reweighted
from polymargin.estimators._arrays import same_kind_of_array
from polymargin.estimators._available import available_if
from polymargin.estimators._validation import class_factors
from polymargin.inspection.members import kernel_members, training_rows
from polymargin.rows import TrainingRows

Array = NDArray[Any]


def _has_honest_probabilities(estimator: Any) -> bool:
    """Return True if fits keep out-of-sample probabilities; else raise the AttributeError that `available_if` shows."""
    if not hasattr(estimator, "decoding"):  # a pool, or kernel logistic regression
        return True
    decoder: Decoder = getattr(estimator, "decoder_", None) or resolve_decoder(estimator._decoding)
    said = estimator._decoding_in_words
    if not decoder.learns_probabilities:
        raise AttributeError(
            f"{said} learns no probabilities, from which prediction sets are made; {estimator._advice}"
        )
    if decoder.in_sample:
        raise AttributeError(
            f"{said} learns from in-sample outputs; prediction sets need those of rows held "
            "out: leave in_sample=False"
        )
    if not (estimator._keeps_cross_fits or isinstance(decoder, CoupledSoftmax)):
        raise AttributeError(
            f"{said} of {type(estimator).__name__} keeps no probabilities of rows held out, "
            'from which prediction sets are made; choose decoding="coupled-softmax"'
        )
    return True


def _has_probabilities(estimator: Any) -> bool:
    """Return True if there are probabilities; else raise the AttributeError that says how to get some."""
    try:
        return callable(estimator.predict_log_proba)
    except AttributeError as error:
        raise AttributeError(f"decisions are made by probabilities: {error.__cause__ or error}") from error


class DecisionsMixin:
    """Prediction sets and decisions under costs, for classifiers with probabilities."""

    classes_: Array
    decoder_: Any
    predict_log_proba: Callable[[Any], Any]

    #: Whether every decoder that learns probabilities is cross-fitted, or only those that cross-fit themselves.
    _keeps_cross_fits = True
    #: The rows by which sets are calibrated, where an estimator keeps no training rows; None: made when asked for.
    _kept_calibration: CalibrationRows | None = None

    @available_if(_has_honest_probabilities)
    def predict_set(
        self,
        X: ArrayLike,
        coverage: float = 0.9,
        *,
        per_class: bool = False,
        score: str = "lac",
        allow_empty: bool = False,
    ) -> Array:
        """Return for every row the set of classes that holds its label with a given probability.

        The sets are conformal. Their threshold comes from the out-of-sample probabilities of the training rows that
        every fit has, so that nothing is fitted again and no rows are set aside. See Notes for what is guaranteed.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Rows; their kernel values with the training rows for ``kernel="precomputed"``.
        coverage : float, default=0.9
            The probability with which the set of a new row is to hold its label, between 0 and 1.
        per_class : bool, default=False
            Whether the coverage is to hold for the rows of every class by themselves, as where a rare class matters.
            False: over all rows, of which those of some class may be covered less often than others. A class of fewer
            than ``coverage / (1 - coverage)`` rows is in every set, with a warning.
        score : {"lac", "aps"}, default="lac"
            What a class is judged by. "lac": its probability, which gives the smallest sets on average. "aps": the
            probability of the classes that are more probable, which gives larger sets to rows that are hard and covers
            these more evenly.
        allow_empty : bool, default=False
            Whether a set may be empty. False: the label that `predict` returns is in every set, so that the coverage is
            at least the accuracy, even where less is asked for. True: a row for which no class is probable enough has
            none.

        Returns
        -------
        ndarray of bool, shape (n_samples, K)
            Whether a class is in the set of a row, in the order of ``classes_``.

        See Also
        --------
        decide : One class for every row, under costs or with a reject.
        polymargin.decisions.predict_set : The same for pipelines.
        polymargin.decisions.CalibrationRows : Sets from rows that were set aside, for any classifier.

        Notes
        -----
        The threshold is the ⌈(n + 1) coverage⌉-th smallest score of the training rows, each by machines and decoder
        that have not seen it. Were the scores of a new row exchangeable with these, its set would hold its label with
        at least the probability asked for, and with at most 1/(n + 1) more if no scores are equal. They are
        exchangeable but for one difference: new rows are judged by the model of all rows, training rows by models of
        most of the rows. This is the jackknife (cross-validation) form of conformal prediction: its coverage is right
        as far as the model hardly changes when some rows are left out, and not guaranteed for every distribution. Forms
        that are (jackknife+ and CV+) guarantee 2 coverage - 1, that is 0.8 for 0.9. Rows set aside give the exact
        guarantee.

        Sample weights count: coverage is that of the weighted rows. ``class_weight`` does not, as it is no statement
        about the rows to come; ``priors`` are one, and coverage is then that of rows with these class frequencies. Rows
        of one group count as one observation. Soft labels count as labels drawn from them.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from polymargin import LSSVMClassifier
        >>> X, y = load_iris(return_X_y=True)
        >>> model = LSSVMClassifier(kernel="rbf").fit(X, y)
        >>> model.predict_set(X[[0, 70]], coverage=0.98)
        array([[ True, False, False],
               [False,  True,  True]])
        """
        check_is_fitted(self)
        coverage, allow_empty = check_coverage(coverage), check_flag("allow_empty", allow_empty)
        if score not in SCORES:
            raise ValueError(f'unknown score {score!r}; choose "lac" or "aps"')
        rows = self.calibration_rows_
        thresholds = rows.thresholds(coverage, per_class=per_class, score=score)
        self._warn_of_too_few_rows(rows, thresholds, coverage, per_class)
        sets = partial(prediction_sets, thresholds=thresholds, score=score, allow_empty=allow_empty)
        return _row_by_row(self, X, sets, np.empty((0, self.classes_.size), dtype=bool))

    @available_if(_has_probabilities)
    def decide(
        self, X: ArrayLike, *, costs: Any = None, reject: float | None = None, rejected: Any = None
    ) -> Array:
        """Return the decision of least expected cost for every row, or none where the model is not sure enough.

        `predict` always returns the most probable class, so that labels and probabilities agree. This is for what
        follows from the probabilities where errors differ in their costs, or where no answer is better than a doubtful
        one.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Rows; their kernel values with the training rows for ``kernel="precomputed"``.
        costs : array-like of shape (K, K), DataFrame or None, default=None
            ``costs[i, j]`` is the cost of deciding for class j where class i is true, in the order of ``classes_``. A
            pandas DataFrame has the true classes as index and the decisions as columns, in any order; the rows of a
            polars DataFrame, which has no index, are in the order of ``classes_``. Decisions need not be classes: a
            column "ask" of cost 0.1 in every line is Chow's reject. Negative costs are gains. None: all errors cost
            the same.
        reject : float or None, default=None
            Rows whose largest probability is less are rejected. Not with `costs`, which may have a column for that.
        rejected : object, default=None
            What is returned for rejected rows, only with `reject`; it must not be a class.

        Returns
        -------
        ndarray of shape (n_samples,)
            The decisions. Without costs and reject they are those of `predict`. The dtype is that of the labels, or of
            the names of the decisions; with `reject` it depends on `rejected`: object if this is of another kind than
            the labels, as None is, and otherwise one that holds both.

        See Also
        --------
        predict_set : Several classes for rows that are not sure.
        polymargin.decisions.decide : The same for pipelines.

        Notes
        -----
        Of decisions with the same expected cost, but for rounding, the one for the most probable class is taken. The
        decision is the best one for the probabilities that `predict_proba` states: its expected cost is above that of
        the best decision by at most (largest - least cost) Σ|p̂ - p|, with p the true probabilities. Among the rows that
        `reject` leaves, at least that share is right on average, as far as the probabilities are calibrated.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from polymargin import LSSVMClassifier
        >>> X, y = load_iris(return_X_y=True)
        >>> model = LSSVMClassifier(kernel="rbf").fit(X, y)
        >>> model.decide(X[[0, 70]], reject=0.9)
        array([0, None], dtype=object)
        >>> model.predict(X[[0, 70]]), model.decide(X[[0, 70]], costs=[[0, 1, 1], [1, 0, 1], [5, 5, 0]])
        (array([0, 1]), array([0, 2]))
        """
        check_is_fitted(self)
        reject = check_reject(reject, rejected, costs, self.classes_)
        matrix = None if costs is None else CostMatrix.of(costs, self.classes_)
        none = np.empty((0, self.classes_.size))
        rule = partial(decided_labels, classes=self.classes_, costs=matrix, reject=reject, rejected=rejected)
        return _row_by_row(self, X, lambda log_proba: rule(np.exp(log_proba)), rule(none))

    @property
    def calibration_rows_(self) -> CalibrationRows:
        """The training rows with their out-of-sample probabilities, by which sets are made."""
        check_is_fitted(self)
        _has_honest_probabilities(self)
        if self._kept_calibration is not None:
            return self._kept_calibration
        data = training_rows(self)
        log_proba = getattr(self, "loo_log_proba_", None)
        if data is None or log_proba is None:
            raise AttributeError(
                f"this {type(self).__name__} keeps no probabilities of rows held out, perhaps because it was saved by "
                "an older version: fit it again, or use polymargin.decisions.CalibrationRows with rows set aside"
            )
        banks: list[Any] = [getattr(member, "bank_", None) for member in kernel_members(self)]
        leaks = [bank.leak for bank in banks if getattr(bank, "leak", None) is not None]
        owner = self if hasattr(self, "prior_shift_") else self.decoder_
        shift = getattr(owner, "prior_shift_", np.zeros(log_proba.shape[1]))  # none: it does not use priors
        return calibration_rows(self, data, log_proba, shift, np.logical_or.reduce(leaks) if leaks else None)

    def _warn_of_too_few_rows(
        self, rows: CalibrationRows, thresholds: Array, coverage: float, per_class: bool
    ) -> None:
        """Warn of classes that are in all sets."""
        always = np.isinf(thresholds)
        if not always.any():
            return
        needed = f"a coverage of {coverage:g} needs {rows_needed(coverage)} rows or more"
        if per_class:
            names = ", ".join(map(repr, self.classes_[always].tolist()))
            told = f"these classes are in all sets: {names}; with per_class=True {needed} of every class"
            told += " that were held out"
            told += "" if rows.groups is None else ", and rows of one group count as one"
        else:
            n = rows.class_index.size if rows.groups is None else np.unique(rows.groups).size
            told = f"all classes are in all sets: {needed} that were held out, and there are {n}"
            told += "" if rows.groups is None else ", as rows of one group count as one"
            if rows.effective_size < n - 0.5:
                told += f", which by their weights are worth {rows.effective_size:.3g}"
        more = "rows" if rows.groups is None else "groups of rows"
        warn(f"{told}; ask for less coverage, or fit to more {more}", UserWarning)


def calibration_rows(
    estimator: Any, data: TrainingRows, log_proba: Array, shift: Array, leak: Array | None = None
) -> CalibrationRows:
    """Return training rows with their out-of-sample probabilities, and weights by which they stand for new rows.

    Parameters
    ----------
    estimator : classifier
        Fitted.
    data : TrainingRows
        Its training rows, with the weights by which it was fitted.
    log_proba : ndarray of shape (n, K)
        The out-of-sample log-probabilities of the rows.
    shift : ndarray of shape (K,)
        What re-weights them to the priors, log(priors / training priors); zero if there are none.
    leak : ndarray of bool, shape (n,), or None
        Rows that a metric was learned from, whose probabilities are not out-of-sample.

    Returns
    -------
    CalibrationRows
        A row with a soft label is there once for every class of positive probability, in a group of its own.
    """
    labels = np.eye(log_proba.shape[1])[data.class_index] if data.soft_labels is None else data.soft_labels
    weights = data.weights
    if shift.any():  # the priors replace the class frequencies, also those of class_weight
        weights = weights * (labels @ np.exp(shift))
    else:
        weights = weights / (labels @ _class_factors(estimator, labels))
    if leak is not None:
        weights = weights * data.shares_without(leak)
    log_proba = reweighted(log_proba, shift)
    if data.soft_labels is None:
        return CalibrationRows(log_proba, data.class_index, weights, data.groups)
    groups = np.arange(len(labels)) if data.groups is None else data.groups
    rows, classes = np.nonzero(labels)
    return CalibrationRows(log_proba[rows], classes, labels[rows, classes] * weights[rows], groups[rows])


def _class_factors(estimator: Any, labels: Array) -> Array:
    """Return the factors of the weights of every class by ``class_weight``, up to one that is common, shape (K,)."""
    counts = labels.sum(axis=0)
    for each in kernel_members(estimator):  # of many rows there is a sample only
        plan = getattr(each, "plan_", None)
        counts = counts if plan is None or plan.scale == "exact" else getattr(each, "_class_counts", counts)
    return class_factors(getattr(estimator, "class_weight", None), estimator.classes_, counts)


def _row_by_row(estimator: Any, X: Any, rule: Callable[[Array], Array], example: Array) -> Any:
    """Return what a rule makes of log-probabilities: an array of the library and device of X, lazy for Dask."""

    @same_kind_of_array
    def applied(estimator: Any, X: Any) -> Any:
        log_proba = estimator.predict_log_proba(X)
        if not is_dask(X):
            return rule(log_proba)
        dropped = [1] if example.ndim == 1 else None
        return log_proba.map_blocks(rule, dtype=example.dtype, meta=example, drop_axis=dropped)

    return applied(estimator, X)
