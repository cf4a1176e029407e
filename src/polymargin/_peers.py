"""The classifiers that `bench` and `compare` put beside each other: ours, and common ones with class probabilities."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["METHODS", "fit_method", "log_proba_of"]

Array = NDArray[Any]

C_GRID = 2.0 ** np.arange(-3, 10, 2)
#: Times one over the number of features and their variance.
GAMMA_FACTORS = 2.0 ** np.arange(-6, 5, 2)


def fit_method(method: str, X: Array, y: Array, seed: int) -> Any:
    """Return a fitted classifier with `predict_proba`, tuned and calibrated by its own method.

    Parameters
    ----------
    method : str
        One of `METHODS`.
    X : ndarray of shape (n, d)
        Standardised features.
    y : ndarray of int, shape (n,)
        Class numbers.
    seed : int
        For methods that draw at random.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of peers that stop early or will change a default
        return METHODS[method](X, y, seed)


def log_proba_of(model: Any, X: Array) -> Array:
    """Return a classifier's log-probabilities; a probability of zero, which a forest can give, is made positive.

    Parameters
    ----------
    model : classifier
        Fitted, with ``predict_proba``.
    X : ndarray of shape (n, d)
        Rows.

    Returns
    -------
    log_proba : ndarray of shape (n, K)
        Their log-loss is finite.
    """
    proba = model.predict_proba(X)
    return np.log(np.clip(proba / proba.sum(axis=1, keepdims=True), np.finfo(float).eps, 1.0))


def _folds(y: Array) -> int:
    """Return the number of folds of a peer's own cross-validation."""
    folds = int(min(5, np.bincount(y).min()))
    if folds < 2:
        raise ValueError(
            "a class has a single row to train on, too few to tune and to calibrate SVC and logistic regression with; "
            "leave these out, or the class"
        )
    return folds


def _auto(X: Array, y: Array, seed: int) -> Any:
    from polymargin import AutoKernelClassifier

    return AutoKernelClassifier(random_state=seed).fit(X, y)


def _ls_svm(X: Array, y: Array, seed: int) -> Any:
    from polymargin import LSSVMClassifier

    return LSSVMClassifier(random_state=seed).fit(X, y)


def _svc(X: Array, y: Array, seed: int) -> Any:
    """Tune by cross-validated accuracy on a grid; probabilities are SVC's own as long as scikit-learn has them.

    ``probability=True`` is deprecated since scikit-learn 1.9, but its probabilities are better than those of
    `CalibratedClassifierCV`, which takes its place: on digits with 300 rows the log-loss is 0.38, against 0.48 with a
    temperature and 0.55 with sigmoids.
    """
    from sklearn.calibration import CalibratedClassifierCV
    from sklearn.model_selection import GridSearchCV
    from sklearn.svm import SVC

    folds = _folds(y)
    grid = {"C": C_GRID, "gamma": GAMMA_FACTORS / (X.shape[1] * max(X.var(), 1e-12))}
    best = GridSearchCV(SVC(cache_size=500), grid, cv=folds, refit=False).fit(X, y).best_params_
    if "probability" in SVC().get_params():
        return SVC(cache_size=500, probability=True, random_state=seed, **best).fit(X, y)
    tuned = SVC(cache_size=500, **best)
    return CalibratedClassifierCV(tuned, method="temperature", cv=folds, ensemble=False).fit(X, y)


def _logistic(X: Array, y: Array, seed: int) -> Any:
    from sklearn.linear_model import LogisticRegressionCV

    return LogisticRegressionCV(Cs=10, cv=_folds(y), scoring="neg_log_loss", max_iter=2000).fit(X, y)


def _forest(X: Array, y: Array, seed: int) -> Any:
    from sklearn.ensemble import RandomForestClassifier

    return RandomForestClassifier(500, random_state=seed).fit(X, y)


def _frequencies(X: Array, y: Array, seed: int) -> Any:
    """Fit the baseline, which predicts the class frequencies for every row."""
    from sklearn.dummy import DummyClassifier

    return DummyClassifier(strategy="prior").fit(X, y)


#: Every method by name; ours first, the baseline last.
METHODS: Mapping[str, Callable[[Array, Array, int], Any]] = {
    "AutoKernelClassifier": _auto,
    "LSSVMClassifier": _ls_svm,
    "SVC, tuned and calibrated": _svc,
    "logistic regression": _logistic,
    "random forest": _forest,
    "class frequencies (baseline)": _frequencies,
}
