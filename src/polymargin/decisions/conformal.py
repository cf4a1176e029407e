"""Conformal prediction sets from out-of-sample probabilities.

A conformity score s(x, y) tells how strange the label y is for the row x by the probabilities of a classifier. The set
of a row is { y : s(x, y) ≤ q }, where q is the ⌈(n + 1) coverage⌉-th smallest score of n rows and their true labels. If
the scores of these rows and of a new one are exchangeable, as where the classifier has not seen any of them, the set
holds the label of the new row with at least that probability, whatever the distribution and however bad the
probabilities are; and with at most 1/(n + 1) more, if no scores are equal.

References
----------
.. [1] Vovk, V., Gammerman, A. and Shafer, G. (2005). Algorithmic Learning in a Random World. Springer.
.. [2] Sadinle, M., Lei, J. and Wasserman, L. (2019). Least Ambiguous Set-Valued Classifiers with Bounded Error Levels.
       Journal of the American Statistical Association 114, 223-234.
.. [3] Romano, Y., Sesia, M. and Candès, E. (2020). Classification with Valid and Adaptive Coverage. NeurIPS 33.
.. [4] Barber, R. F., Candès, E. J., Ramdas, A. and Tibshirani, R. J. (2021). Predictive Inference with the Jackknife+.
       Annals of Statistics 49, 486-507.
"""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polymargin.outputs import wrong_sum

Array = NDArray[Any]

#: The names of the conformity scores.
SCORES = ("lac", "aps")
#: What a sum of weights may be off by through rounding, relative to the number of rows.
_ROUNDING = 1e-9


def conformity_scores(log_proba: Array, score: str = "lac") -> Array:
    """Return the conformity scores of all classes, shape (n, K): the larger, the stranger is the class for the row.

    Parameters
    ----------
    log_proba : array-like of shape (n, K)
        Log-probabilities of the classes.
    score : {"lac", "aps"}, default="lac"
        "lac": -log p of the class, which orders classes as 1 - p does. "aps": the probability of all classes that are
        more probable; that of the most probable class is 0.

    Returns
    -------
    ndarray of shape (n, K)

    Examples
    --------
    >>> conformity_scores(np.log([[0.2, 0.7, 0.1]]), "aps").round(3)
    array([[0.7, 0. , 0.9]])
    """
    if score not in SCORES:
        raise ValueError(f'unknown score {score!r}; choose "lac" or "aps"')
    log_proba = check_log_proba(log_proba)
    if score == "lac":
        return -log_proba
    order = np.argsort(-log_proba, axis=1, kind="stable")
    proba = np.exp(np.take_along_axis(log_proba, order, axis=1))
    before = np.cumsum(proba, axis=1) - proba
    # Classes of the same probability have the score of the first of them.
    first = np.ones(proba.shape, dtype=bool)
    first[:, 1:] = proba[:, 1:] < proba[:, :-1]
    before = np.maximum.accumulate(np.where(first, before, 0.0), axis=1)
    scores = np.empty_like(before)
    np.put_along_axis(scores, order, before, axis=1)
    return scores


@dataclass(frozen=True)
class CalibrationRows:
    """Rows with labels, and log-probabilities by a classifier that has not seen the label of the row.

    Attributes
    ----------
    log_proba : array-like of shape (n, K)
        The log-probabilities of the classes.
    class_index : array-like of int, shape (n,)
        The classes of the rows, as columns of `log_proba`: 0, …, K - 1.
    weights : array-like of shape (n,) or None
        How much the rows count; None: all the same.
    groups : array-like of shape (n,) or None
        Rows of one group are one observation; None: every row by itself.

    Examples
    --------
    Rows that are kept apart from training make the guarantee exact, for any classifier:

    >>> from sklearn.datasets import load_iris
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.model_selection import train_test_split
    >>> X, y = load_iris(return_X_y=True)
    >>> X, X_kept, y, y_kept = train_test_split(X[:, :2], y, test_size=60, random_state=0)
    >>> model = LogisticRegression().fit(X, y)
    >>> kept = CalibrationRows(model.predict_log_proba(X_kept), y_kept)
    >>> q = kept.thresholds(coverage=0.9)
    >>> prediction_sets(model.predict_log_proba([[5.0, 3.4], [6.2, 2.8]]), q)
    array([[ True, False, False],
           [False,  True,  True]])
    """

    log_proba: Array
    class_index: Array
    weights: Array | None = None
    groups: Array | None = None

    def __post_init__(self) -> None:
        checked: dict[str, Any] = {"log_proba": check_log_proba(self.log_proba)}
        n, K = checked["log_proba"].shape
        checked["class_index"] = index = np.asarray(self.class_index)
        if index.dtype.kind not in "iu" or (index.size and (index.min() < 0 or index.max() >= K)):
            raise ValueError(
                f"class_index must hold the columns of log_proba that the labels stand for, whole numbers from 0 to "
                f"{K - 1}; for labels give np.searchsorted(model.classes_, y)"
            )
        for name in ("weights", "groups"):
            if getattr(self, name) is not None:
                checked[name] = np.asarray(getattr(self, name))
        for name, values in checked.items():
            if values.shape[:1] != (n,) or (name != "log_proba" and values.ndim > 1):
                raise ValueError(
                    f"{name} must have one value for each of the {n} rows of log_proba; its shape is {values.shape}"
                )
            object.__setattr__(self, name, values)
        weights = checked.get("weights")
        if weights is not None and (
            weights.dtype.kind not in "biuf" or not np.isfinite(weights).all() or (weights < 0.0).any()
        ):
            raise ValueError("weights must be finite numbers of at least zero")

    def thresholds(self, coverage: float = 0.9, *, per_class: bool = False, score: str = "lac") -> Array:
        """Return the largest score of a class that is still in a set, shape (K,).

        Parameters
        ----------
        coverage : float, default=0.9
            The probability with which a set is to hold the label.
        per_class : bool, default=False
            Whether it is to do so for the rows of every class by themselves, each with a threshold of its own from the
            rows of the class; False: for all rows taken together, with one threshold.
        score : {"lac", "aps"}, default="lac"
            See `conformity_scores`.

        Returns
        -------
        ndarray of shape (K,)
            Infinite where there are too few rows: ``coverage / (1 - coverage)`` are needed.
        """
        coverage, per_class = check_coverage(coverage), check_flag("per_class", per_class)
        rows = np.arange(self.class_index.size)
        own = conformity_scores(self.log_proba, score)[rows, self.class_index]
        K = self.log_proba.shape[1]
        if not per_class:
            return np.full(K, self._quantile(own, rows, coverage))
        return np.array(
            [self._quantile(own, np.flatnonzero(self.class_index == k), coverage) for k in range(K)]
        )

    def _quantile(self, own: Array, rows: Array, coverage: float) -> float:
        weights = None if self.weights is None else self.weights[rows]
        return score_quantile(
            own[rows], coverage, weights, None if self.groups is None else self.groups[rows]
        )

    @property
    def effective_size(self) -> float:
        """The number of independent observations of equal weight that the rows are worth."""
        weights = np.ones(self.class_index.size) if self.weights is None else self.weights
        return _effective_size(weights, self.groups)


def score_quantile(
    scores: Array, coverage: float, weights: Array | None = None, groups: Array | None = None
) -> float:
    """Return the ⌈(n + 1) coverage⌉-th smallest of n scores; infinity if that is more than n.

    With weights or groups, n is the effective number of independent observations, (ΣW)²/ΣW² with W the total weight of
    each group (Kish's effective sample size), and a score counts as its share of n.

    Parameters
    ----------
    scores : ndarray of shape (n,)
        The scores.
    coverage : float
        Between 0 and 1.
    weights : ndarray of shape (n,) or None
        Their weights; rows of weight zero do not count. None: all the same.
    groups : ndarray of int, shape (n,), or None
        Their groups; None: every score by itself.

    Returns
    -------
    float

    Examples
    --------
    >>> score_quantile(np.arange(1.0, 10.0), 0.8), score_quantile(np.arange(1.0, 9.0), 0.9)
    (8.0, inf)
    """
    weights = np.ones(scores.size) if weights is None else weights
    counted = weights > 0.0
    if not counted.any():
        return np.inf
    n = _effective_size(weights, groups)
    order = np.argsort(scores[counted], kind="stable")
    reached = np.cumsum(weights[counted][order])
    reached *= n / reached[-1]
    place = int(np.searchsorted(reached, (n + 1.0) * coverage - _ROUNDING * n))
    return float(scores[counted][order[place]]) if place < order.size else np.inf


def _effective_size(weights: Array, groups: Array | None) -> float:
    """Return Kish's effective number of observations, (ΣW)²/ΣW²; the weights are not all zero."""
    W = weights if groups is None else np.bincount(np.unique(groups, return_inverse=True)[1], weights)
    return float(W.sum()) ** 2 / float(np.square(W).sum())


def prediction_sets(
    log_proba: Array, thresholds: Array, *, score: str = "lac", allow_empty: bool = False
) -> Array:
    """Return the classes whose scores are at most their thresholds, shape (n, K).

    Parameters
    ----------
    log_proba : array-like of shape (n, K)
        Log-probabilities of new rows.
    thresholds : array-like of shape (K,)
        See `CalibrationRows.thresholds`.
    score : {"lac", "aps"}, default="lac"
        The score that the thresholds are of.
    allow_empty : bool, default=False
        False: the most probable class of a row is in its set, whatever its score.

    Returns
    -------
    ndarray of bool, shape (n, K)

    Examples
    --------
    >>> prediction_sets(np.log([[0.5, 0.4, 0.1], [0.34, 0.33, 0.33]]), np.full(3, -np.log(0.35)))
    array([[ True,  True, False],
           [ True, False, False]])
    """
    scores, limits = conformity_scores(log_proba, score), np.asarray(thresholds, dtype=np.float64)
    if limits.shape != scores.shape[1:] or np.isnan(limits).any():
        raise ValueError(
            f"thresholds must be a number for each of the {scores.shape[1]} classes, not {thresholds!r}; take them "
            "from CalibrationRows.thresholds"
        )
    sets = scores <= limits
    if not check_flag("allow_empty", allow_empty):
        # exp() may make probabilities equal: the set must hold what `predict` says, ties included.
        sets[np.arange(len(sets)), np.exp(np.asarray(log_proba)).argmax(axis=1)] = True
    return sets


def check_log_proba(log_proba: Any) -> Array:
    """Return log-probabilities as an array; raise ValueError for what is none.

    Parameters
    ----------
    log_proba : array-like of shape (n, K)
        What was given.

    Returns
    -------
    ndarray of shape (n, K)
    """
    values = np.asarray(log_proba, dtype=np.float64)
    if values.ndim != 2:
        raise ValueError(f"log_proba must be of shape (n rows, K classes), not {values.shape}")
    wrong = wrong_sum(values)
    if wrong is not None:
        row, total = wrong
        said = f"the probabilities of row {row} sum to {total:.6g}, not 1"
        if (values >= 0.0).all():
            said += "; these look like probabilities: give np.log of them, or predict_log_proba of the model"
        raise ValueError(f"log_proba must hold the logarithms of class probabilities: {said}")
    return values


def check_flag(name: str, value: Any) -> bool:
    """Return an argument that is True or False; raise ValueError if it is not.

    Parameters
    ----------
    name : str
        The argument.
    value : object
        What was given.

    Returns
    -------
    bool
    """
    if not isinstance(value, bool | np.bool_):
        raise ValueError(f"{name} must be True or False, not {value!r}")
    return bool(value)


def check_coverage(coverage: float) -> float:
    """Return the coverage as a float; raise ValueError unless it is a number between 0 and 1.

    Parameters
    ----------
    coverage : float
        What was given.

    Returns
    -------
    float
    """
    if not isinstance(coverage, Real) or isinstance(coverage, bool) or not 0.0 < coverage < 1.0:
        raise ValueError(f"coverage must be a number between 0 and 1, such as 0.9; not {coverage!r}")
    return float(coverage)


def rows_needed(coverage: float) -> int:
    """Return how many rows a threshold needs, of each class if it is the threshold of a class.

    Parameters
    ----------
    coverage : float
        The coverage.

    Returns
    -------
    int

    Examples
    --------
    >>> rows_needed(0.9), rows_needed(0.95)
    (9, 19)
    """
    return int(np.ceil(coverage / (1.0 - coverage) - _ROUNDING))
