"""`predict_set` and `decide` of pipelines and searches, which pass on only the methods that scikit-learn knows."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

Array = NDArray[Any]


def predict_set(model: Any, X: Any, coverage: float = 0.9, **options: Any) -> Array:
    """Return prediction sets by a classifier, or by the classifier at the end of a pipeline.

    Parameters
    ----------
    model : classifier, Pipeline or search
        Fitted.
    X : array-like of shape (n_samples, n_features)
        Rows, as the model takes them.
    coverage : float, default=0.9
        The probability with which a set is to hold the label.
    **options : dict
        The other arguments of `LSSVMClassifier.predict_set`.

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
    return _method(model, "predict_set")(last_rows(model, X), coverage, **options)


def decide(model: Any, X: Any, **options: Any) -> Array:
    """Return decisions by a classifier, or by the classifier at the end of a pipeline.

    Parameters
    ----------
    model : classifier, Pipeline or search
        Fitted.
    X : array-like of shape (n_samples, n_features)
        Rows, as the model takes them.
    **options : dict
        The arguments of `LSSVMClassifier.decide`: costs, reject and rejected.

    Returns
    -------
    ndarray of shape (n_samples,)
        The decisions.

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
    return _method(model, "decide")(last_rows(model, X), **options)


def _method(model: Any, name: str) -> Any:
    """Return a method of the classifier at the end of a pipeline; the error tells why it is not there."""
    step = last_step(model)
    try:
        return getattr(step, name)
    except AttributeError as error:
        reason = error.__cause__ or (
            f"{type(step).__name__} is no classifier of polymargin; of others, prediction sets can be made from rows "
            "set aside: polymargin.decisions.CalibrationRows"
        )
        raise AttributeError(f"no {name}: {reason}") from error


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
