"""How an iterative solver's run ended: one type for all solvers."""

from __future__ import annotations

from enum import Enum
from typing import Any


class Status(Enum):
    """How a run ended: the value is advice to the user, the name is what model files hold.

    What ``tol`` bounds is a matter of the solver: the largest violation of the optimality conditions, the duality gap
    or the norm of the gradient.

    Examples
    --------
    >>> Status("NO_PROGRESS") is Status.NO_PROGRESS
    True
    >>> Status.CONVERGED.value
    'converged: the tolerance tol is reached'
    """

    CONVERGED = "converged: the tolerance tol is reached"
    ITERATION_LIMIT = (
        "stopped by max_iter before tol was reached: raise max_iter, lower C, or scale the features"
    )
    STEP_LIMIT = (
        "stopped by the default limit of steps before tol was reached: scale the features, lower C, raise tol, or set "
        "max_iter to allow more steps"
    )
    NO_PROGRESS = (
        "stopped because rounding leaves no better step: raise tol, lower C, or scale the features; "
        "if the Gram matrix was given, check that it is positive semidefinite and in float64"
    )

    @classmethod
    def _missing_(cls, value: object) -> Any:
        # By name too: the wording of the advice may change.
        return cls.__members__.get(value) if isinstance(value, str) else None

    def __reduce__(self) -> tuple[type, tuple[str]]:
        return type(self), (self.name,)


def default_step_limit(n_variables: int) -> int:
    """Return the largest number of steps that a solver takes where no limit is given.

    Most problems take some tens of steps per variable. Linear kernels with a large C take many more on classes that
    overlap: the 1000 scaled rows of german_numeric 3e6 steps with C = 100 and 6e7 with C = 1000, in 11 seconds.

    Parameters
    ----------
    n_variables : int
        The number of variables of the problem.

    Returns
    -------
    int

    Examples
    --------
    >>> default_step_limit(10), default_step_limit(500_000)
    (100000000, 500000000)
    """
    return max(100_000_000, 1000 * n_variables)
