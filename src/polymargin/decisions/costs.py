"""Decisions of least expected cost, and the refusal to decide.

With costs c[k, d] of deciding d where the class is k, the decision of least expected cost is argmin_d Σ_k p_k c[k, d].
With probabilities p̂ in place of the true ones p, its expected cost is above the least by at most
(max c − min c) Σ|p̂ − p|.
"""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

#: Expected costs that differ by less, relative to the largest cost, are equal but for rounding.
_ROUNDING = 1e-12


@dataclass(frozen=True)
class CostMatrix:
    """What every decision costs for every class.

    Attributes
    ----------
    values : ndarray of shape (K, D)
        The costs: a line for every true class, a column for every decision.
    decisions : ndarray of shape (D,)
        The names of the decisions.
    class_of : ndarray of int, shape (D,)
        The class that each decision is the name of, -1 if of none.
    """

    values: Array
    decisions: Array
    class_of: Array

    @classmethod
    def of(cls, costs: Any, classes: Array) -> CostMatrix:
        """Read a matrix of costs.

        Parameters
        ----------
        costs : array-like of shape (K, K), or DataFrame
            ``costs[i, j]`` is the cost of deciding for class j where class i is true, both in the order of `classes`.
            A DataFrame has the true classes as index and the decisions as columns, in any order; decisions need not be
            classes. The lines of a table without an index, of polars or pyarrow, are in the order of `classes`.
        classes : ndarray of shape (K,)
            The class labels.

        Returns
        -------
        CostMatrix

        Examples
        --------
        >>> import pandas as pd
        >>> costs = pd.DataFrame({"well": [0, 9], "ill": [1, 0], "ask": [0.3, 0.3]}, index=["well", "ill"])
        >>> CostMatrix.of(costs, np.array(["ill", "well"])).values
        array([[9. , 0. , 0.3],
               [0. , 1. , 0.3]])
        """
        K = classes.size
        if hasattr(costs, "columns"):
            values, decisions = _aligned(costs, classes)
        else:
            values, decisions = _numbers(costs), classes
            if values.shape != (K, K):
                raise ValueError(
                    f"costs must have a line for every true class and a column for every class that may be decided, "
                    f"shape ({K}, {K}), not {values.shape}; for other decisions give a pandas DataFrame with the "
                    "classes as index and the decisions as columns"
                )
        if not np.isfinite(values).all():
            raise ValueError(
                "costs must be finite numbers: give a decision that is to be avoided a large cost"
            )
        place = {label: k for k, label in enumerate(classes.tolist())}
        return cls(values, decisions, np.array([place.get(name, -1) for name in decisions.tolist()]))


def _numbers(costs: Any) -> Array:
    """Return a matrix of numbers."""
    if np.iscomplexobj(costs):
        raise ValueError("costs must be real numbers, not complex ones")
    try:
        values = np.asarray(costs, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"costs must be a matrix of numbers, not {costs!r}") from None
    if values.ndim != 2:
        raise ValueError(f"costs must be a matrix of numbers, not an array of shape {values.shape}")
    return values


def _aligned(costs: Any, classes: Array) -> tuple[Array, Array]:
    """Return the costs of a DataFrame, with its lines in the order of the classes, and the names of its columns."""
    known, names = classes.tolist(), list(getattr(costs, "column_names", costs.columns))
    if hasattr(costs, "index") and hasattr(costs, "iloc"):
        lines, values = list(costs.index), costs.to_numpy()
    elif len(costs) == len(known):
        # A table of polars or Arrow: its lines have no names, and those of its columns are texts.
        lines, values = known, np.stack([np.asarray(costs[name]) for name in names], axis=1)
        of_text = {str(label): label for label in known}
        names = [of_text.get(name, name) for name in names]
    else:
        raise ValueError(f"costs must have a line for each of the classes {known}, in this order")
    for what, given in (("lines", lines), ("columns", names)):
        if len(set(given)) < len(given):
            raise ValueError(f"costs has two {what} of the same name: {given}")
    if set(lines) != set(known):
        raise ValueError(f"the lines of costs must be the classes {known}, not {lines}")
    if not names:
        raise ValueError("costs must have a column for every decision, and has none")
    if names == list(range(len(names))) and not set(names) <= set(known):
        raise ValueError(
            f"the columns of costs have no names, only numbers from 0 on: name them after the decisions, such as the "
            f"classes, with pd.DataFrame(costs, index={known}, columns={known})"
        )
    decisions = np.array(names)
    if decisions.tolist() != names:  # numbers and texts: NumPy would make texts of all
        decisions = np.array(names, dtype=object)
    return _numbers(values)[[lines.index(label) for label in known]], decisions


def expected_costs(proba: Array, costs: Array) -> Array:
    """Return the expected cost of every decision, shape (n, D).

    Parameters
    ----------
    proba : ndarray of shape (n, K)
        Class probabilities.
    costs : ndarray of shape (K, D)
        The cost of every decision for every true class.

    Returns
    -------
    ndarray of shape (n, D)

    Examples
    --------
    >>> expected_costs(np.array([[0.8, 0.2]]), np.array([[0.0, 1.0], [9.0, 0.0]]))
    array([[1.8, 0.8]])
    """
    return proba @ costs


def least_cost(proba: Array, costs: CostMatrix) -> Array:
    """Return the decision of least expected cost of every row, as a place among the decisions, shape (n,).

    Of decisions with equal costs, but for rounding, the one for the most probable class is taken, then the first. So
    the costs of 0 for the true class and 1 for all others give the most probable class, ties included.

    Parameters
    ----------
    proba : ndarray of shape (n, K)
        Class probabilities.
    costs : CostMatrix
        The costs.

    Returns
    -------
    ndarray of int, shape (n,)

    Examples
    --------
    >>> costs = CostMatrix.of([[0, 1], [9, 0]], np.array(["ill", "well"]))
    >>> costs.decisions[least_cost(np.array([[0.05, 0.95], [0.95, 0.05]]), costs)]
    array(['well', 'ill'], dtype='<U4')
    """
    expected = expected_costs(proba, costs.values)
    least = expected.min(axis=1, keepdims=True)
    tied = expected <= least + _ROUNDING * max(float(np.abs(costs.values).max()), 1e-300)
    # The probability of the class that a decision is for; decisions that are no class come after these.
    known = costs.class_of >= 0
    probable = np.where(known, proba[:, np.where(known, costs.class_of, 0)], -1.0)
    return np.where(tied, probable, -np.inf).argmax(axis=1)


def decided_labels(
    proba: Array,
    classes: Array,
    *,
    costs: CostMatrix | None = None,
    reject: float | None = None,
    rejected: Any = None,
) -> Array:
    """Return the decision of every row, shape (n,).

    Parameters
    ----------
    proba : ndarray of shape (n, K)
        Class probabilities.
    classes : ndarray of shape (K,)
        The class labels.
    costs : CostMatrix or None
        The costs; None: the most probable class is decided for.
    reject : float or None
        Rows whose largest probability is less are rejected.
    rejected : object
        What is returned for these.

    Returns
    -------
    ndarray of shape (n,)
        Of the kind of the labels, or of objects if `rejected` is of another kind.

    Examples
    --------
    >>> decided_labels(np.array([[0.9, 0.1], [0.4, 0.6]]), np.array(["a", "b"]), reject=0.8)
    array(['a', None], dtype=object)
    """
    if costs is not None:
        return costs.decisions[least_cost(proba, costs)]
    labels = classes[proba.argmax(axis=1)]
    if reject is None:
        return labels
    unsure = proba.max(axis=1) < reject
    value = np.asarray(rejected)
    kinds = {value.dtype.kind, classes.dtype.kind}
    same_kind = value.ndim == 0 and (len(kinds) == 1 or kinds == {"i", "u"})
    labels = labels.astype(np.promote_types(labels.dtype, value.dtype) if same_kind else object)
    labels[unsure] = rejected
    return labels


def check_reject(reject: float | None, rejected: Any, costs: Any, classes: Array) -> float | None:
    """Return the confidence below which rows are rejected; raise ValueError for what cannot be.

    Parameters
    ----------
    reject : float or None
        The confidence.
    rejected : object
        What stands for rejected rows.
    costs : object
        The costs, or None.
    classes : ndarray of shape (K,)
        The class labels.

    Returns
    -------
    float or None
    """
    if reject is None:
        if rejected is not None:
            raise ValueError(
                f"rejected={rejected!r} has no effect without reject, the probability below which rows are rejected, "
                "such as reject=0.8"
            )
        return None
    if costs is not None:
        raise ValueError(
            "reject is for decisions without costs; with costs, give them a further column with the cost of not "
            "deciding, such as costs['ask'] = 0.1 of a pandas DataFrame"
        )
    if not isinstance(reject, Real) or isinstance(reject, bool) or not 0.0 <= reject <= 1.0:
        raise ValueError(f"reject must be a probability, such as 0.8, or None; not {reject!r}")
    if np.ndim(rejected) > 0:
        raise ValueError(f"rejected must be a single value, not {rejected!r}")
    if rejected in classes.tolist():
        raise ValueError(
            f"rejected={rejected!r} is a class: rows that are rejected must differ from those of a class; "
            "choose another value"
        )
    return float(reject)
