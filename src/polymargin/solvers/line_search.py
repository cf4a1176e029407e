"""Backtracking line search, for one problem or for many at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

#: The share of the decrease that the slope promises which a step must reach (Armijo's rule): a usual value.
SUFFICIENT = 1e-4
#: The steps that are tried, each half as long as the one before.
TRIALS = 40


def rounding_of(value: Any) -> Any:
    """Return the rounding error of the values of an objective: a few units in the last place.

    Near a minimum the decrease is smaller than that, and the full Newton step is as good as any.

    Parameters
    ----------
    value : float or ndarray
        The values.

    Returns
    -------
    float or ndarray

    Examples
    --------
    >>> bool(rounding_of(1.0) < 1e-14)
    True
    """
    return 4.0 * np.finfo(np.float64).eps * (1.0 + np.abs(value))


def backtrack(
    objective: Callable[[float], float],
    value: float,
    slope: float,
    *,
    slack: float = 0.0,
    sufficient: float = SUFFICIENT,
    trials: int = TRIALS,
) -> float:
    """Return the first of the lengths 1, ½, ¼, … that lowers the objective enough, zero if none does.

    Parameters
    ----------
    objective : callable (length) -> float
        The objective, as a function of the length of the step. The last call is that with the length returned, if it is
        not zero.
    value : float
        The objective at the length zero.
    slope : float
        Its derivative there, along the step.
    slack : float, default=0.0
        How far rounding may raise the objective.
    sufficient : float, default=1e-4
        A step of the length t must reach value + sufficient · t · slope + slack.
    trials : int, default=40
        The number of lengths to try.

    Returns
    -------
    float

    See Also
    --------
    backtrack_rows : Many independent problems at once.

    References
    ----------
    .. [1] J. Nocedal and S. J. Wright, "Numerical Optimization", 2nd edition, Springer, 2006, algorithm 3.1.

    Examples
    --------
    From x = 1 the step −3 would pass the minimum of x² and end higher; half of it does not.

    >>> backtrack(lambda length: (1.0 - 3.0 * length) ** 2, value=1.0, slope=-6.0)
    0.5
    """
    length = 1.0
    for _ in range(trials):
        if objective(length) <= value + sufficient * length * slope + slack:
            return length
        length *= 0.5
    return 0.0


def backtrack_rows(
    objective: Callable[[float, Array], Array],
    values: Array,
    slopes: Array,
    *,
    slack: Array | float = 0.0,
    sufficient: float = SUFFICIENT,
    trials: int = TRIALS,
) -> tuple[Array, Array]:
    """Do what `backtrack` does for many problems at once, each with a length of its own.

    Parameters
    ----------
    objective : callable (length, rows) -> ndarray
        The objectives of the problems ``rows``, an index array, at one length of their steps.
    values, slopes : ndarray of shape (n,)
        The objectives at the length zero, and their derivatives there.
    slack : float or ndarray of shape (n,), default=0.0
        How far rounding may raise the objectives.
    sufficient, trials
        As for `backtrack`.

    Returns
    -------
    lengths : ndarray of shape (n,)
        The lengths, zero where none is good enough.
    reached : ndarray of shape (n,)
        The objectives there.

    See Also
    --------
    backtrack : One problem.

    Examples
    --------
    >>> starts, steps = np.array([1.0, 1.0, 1.0]), np.array([-1.0, -3.0, 1.0])
    >>> backtrack_rows(
    ...     lambda length, rows: (starts[rows] + length * steps[rows]) ** 2, starts**2, 2 * starts * steps
    ... )
    (array([1. , 0.5, 0. ]), array([0.  , 0.25, 1.  ]))
    """
    lengths, reached = np.zeros(len(values)), values.copy()
    allowed = values + slack
    rows = np.arange(len(values))
    length = 1.0
    for _ in range(trials):
        found = objective(length, rows)
        good = found <= allowed[rows] + sufficient * length * slopes[rows]
        taken = rows[good]
        lengths[taken], reached[taken] = length, found[good]
        rows = rows[~good]
        if not rows.size:
            break
        length *= 0.5
    return lengths, reached
