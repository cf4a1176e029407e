"""Members of a pool: kernel classifiers, which hold out rows by themselves, and any others, which are fitted in folds.

An `LSSVMClassifier` comes with leave-one-out outputs. Any other classifier, a pipeline with an `LSSVMClassifier` at its
end included, is fitted once more for every fold, without the fold, and then to all rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.pipeline import Pipeline
from sklearn.utils import get_tags
from sklearn.utils.validation import has_fit_parameter

from polymargin.decoders import resolve_decoder
from polymargin.decoders._base import FOLDS
from polymargin.estimators.lssvm import LSSVMClassifier
from polymargin.kernels import Polynomial
from polymargin.rows import TrainingRows

Array = NDArray[Any]

#: The kernels that can be given by name.
NAMES = ("blend", "poly", "laplacian", "exponential", "rbf", "linear")


def resolve_member(given: Any) -> Any:
    """Return a fresh classifier for a name or a classifier.

    Parameters
    ----------
    given : str or classifier
        The name of a kernel, for an `LSSVMClassifier` ("poly": of degree 2, about the mean of the rows), or a
        classifier with ``predict_proba``, which is cloned.

    Returns
    -------
    classifier

    Examples
    --------
    >>> resolve_member("laplacian"), resolve_member("poly").kernel.name
    (LSSVMClassifier(kernel='laplacian'), 'poly, degree 2')
    """
    if isinstance(given, str):
        if given not in NAMES:
            raise ValueError(f"unknown member {given!r}; the names are default, {', '.join(NAMES)}")
        return LSSVMClassifier(kernel=Polynomial(2, centred=True) if given == "poly" else given)
    if isinstance(given, type) or not hasattr(given, "fit") or not hasattr(given, "get_params"):
        raise TypeError(
            f"members must be classifiers with predict_proba, such as LSSVMClassifier(), or names of kernels; not "
            f"{given!r}"
        )
    member = clone(given)
    if isinstance(member, LSSVMClassifier):
        if not resolve_decoder(member.decoding).learns_probabilities:
            raise ValueError(
                f"a pool needs members whose decoding is learned and gives probabilities, such as "
                f'"coupled-softmax", "softmax" or "coupling"; not {member.decoding!r}'
            )
    elif not hasattr(member, "predict_proba"):
        raise TypeError(
            f"members must have predict_proba, which {given!r} has not; CalibratedClassifierCV of scikit-learn adds it "
            "to a classifier"
        )
    return member


def takes_gram(member: Any) -> bool:
    """Return whether a member takes a precomputed kernel matrix in place of rows."""
    if isinstance(member, LSSVMClassifier):
        return member._kernels[0].precomputed
    return bool(get_tags(member).input_tags.pairwise)


def seed(member: Any, random_state: int) -> None:
    """Give every part of a member that is random and has no random state this one, so that a fit can be repeated."""
    unset = [
        name
        for name, value in member.get_params().items()
        if value is None and (name == "random_state" or name.endswith("__random_state"))
    ]
    member.set_params(**dict.fromkeys(unset, random_state))


def fit_by_folds(
    member: Any, rows: TrainingRows, labels: Array, groups: Array, *, weighted: bool
) -> tuple[Any, Array]:
    """Fit a member to all rows; return it with the log-probabilities of every row by fits without the row's fold.

    Parameters
    ----------
    member : classifier
        A classifier with ``predict_proba``.
    rows : TrainingRows
        The training rows.
    labels : ndarray of shape (n,)
        The labels of the rows.
    groups : ndarray of shape (n,)
        The groups, for members whose ``fit`` has such a parameter.
    weighted : bool
        Whether the member must take weights. If not, rows may still differ in weight because exact copies have been
        merged: a member that takes no weights has each of them once.

    Returns
    -------
    member : classifier
        The fitted member.
    log_proba : ndarray of shape (n, K)
        Its out-of-fold log-probabilities.
    """
    if weighted and not _takes(member, "sample_weight"):
        raise ValueError(f"the rows are weighted, but fit of the member {member!r} takes no sample_weight")
    given = dict.fromkeys(_parameters(member, "groups"), groups)
    if np.ptp(rows.weights) > 0.0:
        given |= dict.fromkeys(_parameters(member, "sample_weight"), rows.weights)
    classes, weights = np.unique(labels), rows.effective_weights
    numbers = rows.deal.fold_numbers(FOLDS)
    log_p = np.empty((labels.size, classes.size))
    for fold in np.unique(numbers):
        held, kept = np.flatnonzero(numbers == fold), np.flatnonzero(numbers != fold)
        prior = Prior.of(rows.class_index[kept], weights[kept], classes.size)
        if np.ptp(rows.class_index[kept]) == 0:  # no classifier learns from one class
            log_p[held] = np.log(prior.shares)
            continue
        parameters = {name: values[kept] for name, values in given.items()}
        fitted = clone(member).fit(rows.take(kept).X, labels[kept], **parameters)
        X = rows.X[held][:, kept] if rows.kernel.precomputed else rows.X[held]
        log_p[held] = smoothed_log_proba(fitted, X, classes, prior)
    return member.fit(rows.X, labels, **given), log_p


@dataclass(frozen=True)
class Prior:
    """The class frequencies, and the number of rows that they come from.

    Attributes
    ----------
    shares : ndarray of shape (K,)
        The shares of the classes, with half a row more of every class.
    n_rows : float
        The number of rows, as many as their weights are worth.
    """

    shares: Array
    n_rows: float

    @classmethod
    def of(cls, class_index: Array, weights: Array, n_classes: int) -> Prior:
        """Count weighted rows."""
        counts = np.bincount(class_index, weights, minlength=n_classes) + 0.5
        return cls(counts / counts.sum(), float(weights.sum()))


def smoothed_log_proba(member: Any, X: Any, classes: Array, prior: Prior) -> Array:
    """Return the log-probabilities of new rows by a fitted member, shape (n, K); all are finite.

    Parameters
    ----------
    member : classifier
        The fitted member.
    X : array or sparse matrix of shape (n, d)
        Rows.
    classes : ndarray of shape (K,)
        The classes of the pool. One that was missing where the member was fitted has its share in the class
        frequencies.
    prior : Prior
        The class frequencies of the rows that the member was fitted to.

    Returns
    -------
    log_proba : ndarray of shape (n, K)
        The logarithms of (n p + π)/(n + 1). Trees and neighbours say that a class is impossible, p = 0, once none of a
        few rows has it, and a single such row would have an infinite loss. What n rows have never shown may still
        happen about once in n + 1 rows, so one row more is counted, divided as the class frequencies π are. (Of pools
        with a forest on 12 development sets, the mean log-loss moves by 1 % between half a row and ten.)
    """
    known = np.isin(classes, getattr(member, "classes_", classes))
    found = np.asarray(member.predict_proba(X), dtype=np.float64)
    if found.shape != (X.shape[0], int(known.sum())):
        raise ValueError(
            f"predict_proba of the member {member!r} must give a number for each of {X.shape[0]} rows and "
            f"{int(known.sum())} classes; its shape is {found.shape}"
        )
    if not (np.isfinite(found).all() and (found >= 0.0).all() and (found.sum(axis=1) > 0.0).all()):
        raise ValueError(
            f"predict_proba of the member {member!r} gives undefined or negative numbers, or zero for every class"
        )
    p = np.tile(prior.shares, (X.shape[0], 1))
    p[:, known] = found / found.sum(axis=1, keepdims=True) * (1.0 - prior.shares[~known].sum())
    return np.log((prior.n_rows * p + prior.shares) / (prior.n_rows + 1.0))


def _parameters(member: Any, name: str) -> list[str]:
    """Return the parameters of ``fit`` that pass weights or groups on to every step of a member that takes them."""
    if not isinstance(member, Pipeline):
        return [name] if has_fit_parameter(member, name) else []
    return [
        f"{step}__{inner}"
        for step, part in member.steps
        if part is not None and not isinstance(part, str)
        for inner in _parameters(part, name)
    ]


def _takes(member: Any, name: str) -> bool:
    """Return whether ``fit`` of a member, or of the end of a pipeline, has a parameter."""
    while isinstance(member, Pipeline):
        member = member.steps[-1][1]
    return has_fit_parameter(member, name)
