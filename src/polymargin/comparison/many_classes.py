"""What is fitted where one-vs-one coding would need thousands of machines."""

from __future__ import annotations

from typing import Any

from polymargin.codebooks import CODINGS
from polymargin.estimators import LSSVMClassifier
from polymargin.kernels import Polynomial

__all__ = ["affordable_codings", "needs_many_machines", "pool_members"]

#: Machines of one-vs-one coding: those of 45 classes have 990. With 120 classes of 12 rows, which need 7140, the
#: default does not end within ten minutes, and one-vs-all coding takes 25 seconds of one core.
MOST_MACHINES = 1000


def needs_many_machines(n_classes: int) -> bool:
    """Tell whether one-vs-one coding has more machines than are trained without being asked for.

    Examples
    --------
    >>> needs_many_machines(26), needs_many_machines(120)
    (False, True)
    """
    return n_classes * (n_classes - 1) // 2 > MOST_MACHINES


def affordable_codings(n_classes: int) -> list[str]:
    """Return the names of the codings that so many classes can afford.

    Parameters
    ----------
    n_classes : int
        The number of classes.

    Examples
    --------
    >>> affordable_codings(120)
    ['one-vs-all', 'minimal', 'ecoc']
    """
    return [name for name in CODINGS if name != "one-vs-one" or not needs_many_machines(n_classes)]


def pool_members(n_classes: int, metric: str | None = "learned") -> list[Any] | None:
    """Return the members of an `AutoKernelClassifier`: its own, all with one-vs-all coding if classes are many.

    Parameters
    ----------
    n_classes : int
        The number of classes.
    metric : "learned" or None
        The parameter of the pool.

    Returns
    -------
    members : list of LSSVMClassifier, or None
        None stands for the default members.
    """
    if not needs_many_machines(n_classes):
        return None
    return [
        LSSVMClassifier(kernel="blend", coding="one-vs-all", metric=metric),
        LSSVMClassifier(kernel=Polynomial(2, centred=True), coding="one-vs-all"),
        LSSVMClassifier(kernel="laplacian", coding="one-vs-all", columns="ranks", metric=metric),
    ]
