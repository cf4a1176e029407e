"""`predict_set` and `decide` of pipelines and searches, which pass on only the methods that scikit-learn knows."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

Array = NDArray[Any]


def predict_set(
    model: Any,
    X: Any,
    coverage: float = 0.9,
    *,
    per_class: bool = False,
    score: str = "lac",
    allow_empty: bool = False,
) -> Array:
    """Return prediction sets by a classifier, or by the classifier at the end of a pipeline.

    Parameters
    ----------
    model : classifier, Pipeline or search
        Fitted.
    X : array-like of shape (n_samples, n_features)
        Rows, as the model takes them.
    coverage : float, default=0.9
        The probability with which a set is to hold the label.
    per_class : bool, default=False
        Whether the coverage is to hold for the rows of every class by themselves.
    score : {"lac", "aps"}, default="lac"
        What a class is judged by; see `LSSVMClassifier.predict_set`.
    allow_empty : bool, default=False
        Whether a set may be empty. False: the label that the model predicts is in every set.

    Returns
    -------
    ndarray of bool, shape (n_samples, K)
        The classes of every set, in the order of ``classes_``.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> from polymargin import LSSVMClassifier
    >>> X, y = load_wine(return_X_y=True)
    >>> model = make_pipeline(StandardScaler(), LSSVMClassifier()).fit(X[:, :4], y)
    >>> predict_set(model, X[38:40, :4], coverage=0.95)
    array([[ True,  True, False],
           [ True, False, False]])
    """
    return _method(model, "predict_set")(
        last_rows(model, X), coverage, per_class=per_class, score=score, allow_empty=allow_empty
    )


def decide(
    model: Any, X: Any, *, costs: Any = None, reject: float | None = None, rejected: Any = None
) -> Array:
    """Return decisions by a classifier, or by the classifier at the end of a pipeline.

    Parameters
    ----------
    model : classifier, Pipeline or search
        Fitted.
    X : array-like of shape (n_samples, n_features)
        Rows, as the model takes them.
    costs : array-like of shape (K, K), DataFrame or None, default=None
        ``costs[i, j]`` is the cost of deciding for class j where class i is true; see `LSSVMClassifier.decide`.
    reject : float or None, default=None
        Rows whose largest probability is less are rejected. Not with `costs`.
    rejected : object, default=None
        What is returned for rejected rows; only with `reject`.

    Returns
    -------
    ndarray of shape (n_samples,)
        The decisions. With `reject`, an array of objects if `rejected` is of another kind than the labels, as None is.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> from polymargin import LSSVMClassifier
    >>> X, y = load_wine(return_X_y=True)
    >>> model = make_pipeline(StandardScaler(), LSSVMClassifier()).fit(X[:, :4], y)
    >>> decide(model, X[38:40, :4], reject=0.8, rejected=-1)
    array([-1,  0])
    """
    return _method(model, "decide")(last_rows(model, X), costs=costs, reject=reject, rejected=rejected)


def _method(model: Any, name: str) -> Any:
    """Return a method of the classifier at the end of a pipeline; the error tells why it is not there."""
    step = last_step(model)
    try:
        return getattr(step, name)
    except AttributeError as error:
        raise AttributeError(f"no {name}: {error.__cause__ or _reason(step, name)}") from error


#: What can be had of classifiers of other libraries.
_OF_OTHERS = {
    "predict_set": "prediction sets can be made from rows set aside: polymargin.decisions.CalibrationRows",
    "decide": "decisions can be made from their predict_proba: polymargin.decisions.decided_labels",
}


def _reason(step: Any, name: str) -> str:
    kind = type(step).__name__
    if hasattr(step, "refit"):
        return f"this {kind} has no best_estimator_; fit it with refit=True"
    return f"{kind} is no classifier of polymargin; of others, {_OF_OTHERS[name]}"


def last_step(model: Any) -> Any:
    """Return the classifier at the end of a pipeline or inside a search.

    Parameters
    ----------
    model : classifier, Pipeline or search
        Fitted.

    Returns
    -------
    estimator
    """
    if hasattr(model, "best_estimator_"):
        return last_step(model.best_estimator_)
    return last_step(model.steps[-1][1]) if hasattr(model, "steps") else model


def last_rows(model: Any, X: Any) -> Any:
    """Return rows as the classifier at the end of a pipeline or inside a search takes them.

    Parameters
    ----------
    model : classifier, Pipeline or search
        Fitted.
    X : array-like of shape (n_samples, n_features)
        Rows, as the model takes them.

    Returns
    -------
    array-like
    """
    if hasattr(model, "best_estimator_"):
        return last_rows(model.best_estimator_, X)
    if not hasattr(model, "steps"):
        return X
    return last_rows(model.steps[-1][1], model[:-1].transform(X) if len(model.steps) > 1 else X)
