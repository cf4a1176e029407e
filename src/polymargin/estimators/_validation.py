"""Validation of the arguments of ``fit``, the same for all estimators; errors name the estimator that was called."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils import check_array
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, validate_data

from polymargin._warnings import warn
from polymargin.cluster import is_dask
from polymargin.estimators._copies import find_copies
from polymargin.estimators._soft_labels import (
    are_soft,
    check_learnable,
    check_named_classes,
    check_soft_labels,
)
from polymargin.kernels._base import weighted_moments
from polymargin.rows import content_rank

Array = NDArray[Any]
Settings = TypeVar("Settings")

#: With fewer groups, fits without one of them know much less than the model of all rows: a warning says so.
_FEW_GROUPS = 10


@dataclass(frozen=True)
class CheckedRows:
    """Training rows that have been checked, those of weight zero left out.

    Attributes
    ----------
    X : array or sparse matrix of shape (n, d)
        The rows; of a precomputed kernel the square matrix among them.
    class_index : ndarray of int, shape (n,)
        The classes of the rows; of soft labels the most probable ones.
    classes : ndarray of shape (K,)
        The class labels, sorted.
    weights : ndarray of shape (n,)
        Positive weights.
    soft_labels : ndarray of shape (n, K) or None
        Class probabilities, if these were given.
    support : ndarray of int, shape (n,)
        Which of the given rows these are; of exact copies in one group, the first.
    groups : ndarray of int, shape (n,), or None
        The numbers of the groups that were given, or of the rows that others are likely copies of; None: every row is
        an observation of its own.
    """

    X: Any
    class_index: Array
    classes: Array
    weights: Array
    soft_labels: Array | None
    support: Array
    groups: Array | None = None


def check_rows(
    estimator: Any,
    X: Any,
    y: Any,
    sample_weight: Any,
    groups: Any = None,
    *,
    precomputed: bool,
    soft_labels: bool = True,
    class_weight: Any = None,
    copy: bool = True,
) -> CheckedRows:
    """Check training rows, labels and weights; set the estimator's ``n_features_in_`` and ``feature_names_in_``.

    Parameters
    ----------
    estimator : estimator
        The estimator that was called, named in errors. Its ``classes`` names the columns of soft labels.
    X : array-like or sparse matrix of shape (n, d)
        The rows; the square Gram matrix for a precomputed kernel.
    y : array-like of shape (n,) or (n, K)
        Labels, or soft labels.
    sample_weight : array-like of shape (n,) or None
        Row weights.
    groups : array-like of shape (n,) or None
        The group of every row; None to detect copies of rows.
    precomputed : bool
        Whether X is a Gram matrix.
    soft_labels : bool
        Whether the estimator takes soft labels.
    class_weight : dict, "balanced" or None
        Factors of the weights of the rows, by class.
    copy : bool
        Whether to copy the rows, so that later changes to the caller's array have no effect. Gram matrices are not
        copied.

    Returns
    -------
    CheckedRows
    """
    if is_dask(X):
        raise TypeError(
            f"{type(estimator).__name__} cannot be fitted to Dask collections, LSSVMClassifier and "
            "AutoKernelClassifier can: use one of these, or X.compute() if the rows fit into memory"
        )
    if precomputed and sparse.issparse(X):
        raise TypeError("Sparse precomputed kernel matrices are not supported: give X.toarray()")
    accepted = {
        "accept_sparse": False if precomputed else "csr",
        "copy": copy and not precomputed,
        "dtype": np.float64,
        "ensure_min_samples": 2,
    }
    probabilities = None
    soft, named = are_soft(y), getattr(estimator, "classes", None)
    if soft and not soft_labels:
        raise ValueError(
            f"{type(estimator).__name__} takes one label for every row: y should be a 1d array. Soft labels, a matrix "
            "of class probabilities, are for LSSVMClassifier, PosteriorSVMClassifier, KernelLogisticClassifier and "
            "AutoKernelClassifier"
        )
    if soft:
        with _advising_of_frames(X):
            X = validate_data(estimator, X, **accepted)
        probabilities, classes = check_soft_labels(y, X.shape[0], named)
        # Ties go to the class that is more probable over all rows, so that the names of the classes do not matter.
        class_index = (probabilities + 1e-9 * probabilities.mean(axis=0)).argmax(axis=1)
    else:
        check_labels(y)
        with _advising_of_frames(X):
            X, y = validate_data(estimator, X, y, **accepted)
        check_classification_targets(y)
        classes, class_index = np.unique(y, return_inverse=True)
        if named is not None:
            check_named_classes(named, classes)
    if precomputed and X.shape[0] != X.shape[1]:
        raise ValueError(f"a precomputed kernel matrix must be square, not {X.shape}")
    weights = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
    if class_weight is not None:
        weights = weights * _row_factors(class_weight, classes, class_index, probabilities, weights > 0.0)
    numbers = None if groups is None else _group_numbers(groups, weights.size)
    support = np.flatnonzero(weights)
    if support.size == 0:
        raise ValueError("all sample weights are zero; at least two rows of different classes must count")
    if probabilities is None:
        if classes.size < 2:
            raise ValueError(
                f"y holds only one class, {classes.tolist()[0]!r}; a classifier needs two or more"
            )
        absent = np.bincount(class_index[support], minlength=classes.size) == 0
        if absent.any():
            raise ValueError(
                f"class {classes[absent].tolist()[0]!r} has no row with a positive sample weight"
            )
    else:
        check_learnable(probabilities[support], classes)
    if support.size < weights.size:
        X = X[np.ix_(support, support)] if precomputed else X[support]
        class_index, weights = class_index[support], weights[support]
        probabilities = None if probabilities is None else probabilities[support]
    if numbers is not None:
        numbers = np.unique(numbers[support], return_inverse=True)[1]
        if int(numbers.max()) == 0:
            raise ValueError(
                "all rows belong to one group, so that none can be left out: give two groups or more"
            )
        if int(numbers.max()) + 1 == support.size:
            numbers = None
        else:
            if probabilities is None:
                _check_groups_of_classes(numbers, class_index, classes)
            n_groups = int(numbers.max()) + 1
            if n_groups < _FEW_GROUPS:
                warn(
                    f"there are only {n_groups} groups: probabilities and parameters are learned from fits that leave "
                    f"a group out, which with fewer than {_FEW_GROUPS} groups know much less than the model of all "
                    "rows, so that labels and probabilities can be much worse than they need to be; give more groups, "
                    "or leave groups out if the rows are independent"
                )
    elif probabilities is None and not precomputed:
        numbers = find_copies(X, class_index)
    checked = CheckedRows(X, class_index, classes, weights, probabilities, support, numbers)
    return checked if numbers is None or precomputed or probabilities is not None else _merged(checked)


def _merged(rows: CheckedRows) -> CheckedRows:
    """Return the rows with exact copies in one group, of the same class, merged into one row of their weight.

    They are one observation, so the fit is the same with less work; if every row was copied, the original table
    remains.
    """
    assert rows.groups is not None
    content = content_rank(rows.X)
    keys = np.stack([rows.groups, content, rows.class_index], axis=1)
    first, inverse = np.unique(keys, axis=0, return_index=True, return_inverse=True)[1:]
    if first.size == rows.support.size:
        return rows
    order = np.argsort(first)
    place = np.empty_like(order)
    place[order] = np.arange(order.size)
    kept = first[order]
    groups = np.unique(rows.groups[kept], return_inverse=True)[1]
    return replace(
        rows,
        X=rows.X[kept],
        class_index=rows.class_index[kept],
        weights=np.bincount(place[inverse.ravel()], rows.weights),
        support=rows.support[kept],
        groups=None if int(groups.max()) + 1 == kept.size else groups,
    )


def _row_factors(
    class_weight: Any, classes: Array, class_index: Array, probabilities: Array | None, counted: Array
) -> Array:
    """Return the factor of ``class_weight`` for every row, shape (n,)."""
    if probabilities is None:
        counts = np.bincount(class_index[counted], minlength=classes.size)
        return class_factors(class_weight, classes, counts)[class_index]
    return probabilities @ class_factors(class_weight, classes, probabilities[counted].sum(axis=0))


def class_factors(class_weight: Any, classes: Array, counts: Array) -> Array:
    """Return the factor of ``class_weight`` for every class.

    Parameters
    ----------
    class_weight : dict, "balanced" or None
        A factor for every class that is named; "balanced" is n / (K n_k).
    classes : ndarray of shape (K,)
        The class labels.
    counts : ndarray of shape (K,)
        n_k, the number of rows of every class.

    Returns
    -------
    factors : ndarray of shape (K,)

    Examples
    --------
    >>> class_factors("balanced", np.array(["a", "b"]), np.array([30, 10]))
    array([0.66666667, 2.        ])
    >>> class_factors({"b": 5.0}, np.array(["a", "b"]), np.array([30, 10]))
    array([1., 5.])
    """
    if class_weight is None:
        return np.ones(classes.size)
    if hasattr(class_weight, "items"):
        given = dict(class_weight.items())
        unknown = set(given) - set(classes.tolist())
        if unknown:
            raise ValueError(
                f"class_weight names {sorted(unknown, key=str)}, which are not among the classes {classes.tolist()}"
            )
        try:
            factors = np.array([float(given.get(label, 1.0)) for label in classes.tolist()])
        except (TypeError, ValueError):
            raise ValueError(f"the weights of class_weight must be numbers: {class_weight!r}") from None
    elif isinstance(class_weight, str) and class_weight == "balanced":
        factors = counts.sum() / (classes.size * np.maximum(counts, 1e-300))
    else:
        raise ValueError(f'class_weight must be None, "balanced" or a dict of weights, not {class_weight!r}')
    if not np.isfinite(factors).all() or (factors <= 0.0).any():
        raise ValueError(
            f"class_weight must be positive and finite for every class, not {class_weight!r}: leave out the rows of a "
            "class that is not to count"
        )
    return factors


@contextmanager
def _advising_of_frames(X: Any) -> Iterator[None]:
    """Add to an error about texts or missing values in a frame what makes numbers of them."""
    try:
        yield
    except ValueError as error:
        # scikit-learn's checks of estimators read the message, so that it stays as it is.
        if hasattr(X, "columns") and any(sign in str(error) for sign in ("could not convert", "NaN")):
            error.add_note(
                "polymargin.prepare(frame) is a first step of a pipeline, which makes features of texts, dates and "
                "missing values: make_pipeline(polymargin.prepare(frame), classifier)"
            )
        raise


def _group_numbers(groups: Any, n_rows: int) -> Array:
    """Return the groups as numbers, shape (n,)."""
    names = np.asarray(groups)
    if names.ndim != 1 or names.size != n_rows:
        raise ValueError(
            f"groups must name one group for each of the {n_rows} rows; their shape is {names.shape}"
        )
    if names.dtype.kind == "f" and not np.isfinite(names).all():
        raise ValueError("groups must not contain NaN or infinity: give every row a group")
    if names.dtype == object:
        check_labels(names, "groups")
    return np.unique(names, return_inverse=True)[1]


def _check_groups_of_classes(numbers: Array, class_index: Array, classes: Array) -> None:
    """Raise ValueError if every class is in a single group, as where ``groups=y``; warn if some class is.

    Machines trained without that group know nothing of the class, so that out-of-sample outputs say nothing of it.
    """
    pairs = np.unique(np.column_stack([numbers, class_index]), axis=0)
    single = np.bincount(pairs[:, 1], minlength=classes.size) == 1
    if single.all():
        raise ValueError(
            "every class has all of its rows in one group, so that no group can be left out without its class: groups "
            "are what rows have in common besides their label, such as the patient or the session; leave them out if "
            "all rows are independent"
        )
    several = np.bincount(class_index, minlength=classes.size) > 1
    if (single & several).any():
        names = ", ".join(repr(label) for label in classes[single & several].tolist())
        warn(
            f"all rows of class {names} belong to one group: without it the class is unknown, so that probabilities "
            "and stated log-losses, which are learned from rows left out with their group, cannot be right for it; "
            "give rows of more groups"
        )


def check_labels(y: Any, name: str = "y") -> None:
    """Raise ValueError for labels that are missing, or of types that cannot be sorted, such as numbers and texts.

    Examples
    --------
    >>> check_labels(["a", "b", None])
    Traceback (most recent call last):
    ...
    ValueError: the label of row 2 is missing (None): leave such rows out
    >>> check_labels(["a", "b", 3])  # NumPy makes this three texts
    >>> check_labels(np.array(["a", "b", 3], dtype=object))
    Traceback (most recent call last):
    ...
    ValueError: y mixes labels of different types, int and str, which cannot be sorted: make them all of one type, ...
    """
    labels = np.asarray(y)
    if labels.dtype != object or labels.ndim != 1:
        return
    values = labels.tolist()
    for row, label in enumerate(values):
        # Missing values of pandas do not compare equal to themselves, or not to True or False.
        if label is None or type(label).__name__ in ("NAType", "NaTType") or _is_nan(label):
            what = "the label" if name == "y" else "the group"
            raise ValueError(f"{what} of row {row} is missing ({label}): leave such rows out")
    try:
        sorted(set(values))
    except TypeError:
        types = " and ".join(sorted({type(label).__name__ for label in values}))
        raise ValueError(
            f"{name} mixes labels of different types, {types}, which cannot be sorted: make them all of one type, for "
            "example np.asarray(y).astype(str)"
        ) from None


def _is_nan(label: Any) -> bool:
    return isinstance(label, float | np.floating) and bool(np.isnan(label))


def check_finite(outputs: Array) -> None:
    """Raise ValueError for new rows whose outputs, shape (n, L), are not finite."""
    undefined = ~np.isfinite(outputs).all(axis=1)
    if undefined.any():
        row = int(np.flatnonzero(undefined)[0])
        raise ValueError(
            f"row {row} of X is so far from the training rows that the kernel overflows; check the units of its "
            "features"
        )


def scale_gamma(X: Any, weights: Array) -> float:
    """Return gamma="scale": one over the number of features times the variance of X; 1 if all values are the same."""
    if X.max() == X.min():
        return 1.0
    with np.errstate(over="ignore", invalid="ignore"):
        mean, variances = weighted_moments(X, weights)
        variance = float(variances.mean() + mean.var())
        gamma = 1.0 / (X.shape[1] * variance) if variance > 0.0 else np.inf
    if not np.isfinite(gamma) or gamma == 0.0:
        raise ValueError(
            f"the values of X, up to {max(abs(X.max()), abs(X.min())):.3g}, are too "
            f"{'small' if variance < 1.0 else 'large'} for their squares; scale the features, for example with "
            "StandardScaler"
        )
    return gamma


def resolve_priors(priors: Any, class_weights: Array, classes: Array) -> Array | None:
    """Return an estimator's ``priors`` as an array in the order of the classes, or None if they are as in training."""
    n_classes = class_weights.size
    if priors is None:
        return None
    if isinstance(priors, str):
        match priors:
            case "uniform":
                return np.full(n_classes, 1.0 / n_classes)
            case "empirical":
                return class_weights / class_weights.sum()
        raise ValueError(f'unknown priors {priors!r}; choose "uniform", "empirical", or give an array')
    if hasattr(priors, "items"):  # a dict, or a Series, which may have the classes in any order
        priors = dict(priors.items())
        if set(priors) != set(classes.tolist()):
            raise ValueError(f"priors must name the classes {classes.tolist()}, not {list(priors)}")
        priors = [priors[label] for label in classes.tolist()]
    try:
        given = np.asarray(priors, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"priors must be numbers, one for each class; not {priors!r}") from None
    if given.shape != (n_classes,):
        raise ValueError(f"priors must hold one probability for each of the {n_classes} classes")
    if not (given > 0).all() or not np.isclose(given.sum(), 1.0):
        raise ValueError(f"priors must be positive and sum to one; these sum to {given.sum():g}")
    return given


def settings_of(name: str, given: Any, default: Settings) -> Settings:
    """Return settings, the default ones for None; raise ValueError if they are not of this class.

    Parameters
    ----------
    name : str
        The parameter that holds them.
    given : object
        Its value.
    default : settings
        Those for None.

    Returns
    -------
    settings
    """
    if given is None:
        return default
    kind = type(default)
    if not isinstance(given, kind):
        raise ValueError(f"{name} must be a {kind.__name__}(...) or None, not a {type(given).__name__}")
    return given


def check_positive(name: str, value: Any, otherwise: str) -> None:
    """Raise ValueError unless `value` is a finite positive number."""
    number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    if not number or not np.isfinite(value) or value <= 0:
        instead = ": pass a large number such as 1e6" if number and name == "C" and value == np.inf else ""
        raise ValueError(f"{name} must be a positive number, {otherwise}; not {value!r}{instead}")


def check_landmarks(given: Any, n_columns: int) -> Any:
    """Return the landmarks of ``n_landmarks=``, if it holds rows; None if it is a number or None."""
    if np.ndim(given) != 2:
        return None
    rows = check_array(given, accept_sparse="csr", dtype=np.float64, input_name="n_landmarks")
    if rows.shape[1] != n_columns:
        raise ValueError(f"the landmarks have {rows.shape[1]} columns, but X has {n_columns}")
    return rows
