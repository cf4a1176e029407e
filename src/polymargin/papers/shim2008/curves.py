"""Leave-one-out curves: how the error of one-vs-all least-squares machines depends on gamma (Shim et al. 2008, §4)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_X_y
from sklearn.utils.multiclass import check_classification_targets

from polymargin import _memory
from polymargin.kernels import resolve_kernel
from polymargin.plots._matplotlib import matplotlib_part
from polymargin.selection.press import unbiased_inverse
from polymargin.solvers.centring import centre

Array = NDArray[Any]

__all__ = ["LeaveOneOutCurves", "leave_one_out_curves"]

_NO_KERNEL = (
    "the kernel matrix is infinite or not positive semi-definite; "
    "scale the features, for example with StandardScaler"
)
_LABELS = {"cv": "CV", "gcv": "GCV", "press": "PRESS"}
#: CV solid and GCV dashed, as in the paper.
_STYLES = {"cv": "-", "gcv": "--", "press": ":"}


@dataclass(frozen=True)
class LeaveOneOutCurves:
    """What `leave_one_out_curves` found.

    Attributes
    ----------
    gammas : ndarray of shape (m,)
        Where.
    C : float
        The regularisation.
    cv : ndarray of shape (m,)
        Eq. (4.4): the mean squared leave-one-out residual of every row in the column of its own class.
    gcv : ndarray of shape (m,)
        Eq. (4.5): the same with every row's leverage replaced by their mean.
    press : ndarray of shape (m,)
        As ``cv``, over all columns: the mean over the rows of the sum over the classes.
    """

    gammas: Array
    C: float
    cv: Array
    gcv: Array
    press: Array

    def best_gamma(self, criterion: Literal["cv", "gcv", "press"] = "gcv") -> float:
        """Return the gamma of the least value; the largest of equals."""
        if criterion not in _LABELS:
            raise ValueError(f'unknown criterion {criterion!r}; choose "cv", "gcv" or "press"')
        values = getattr(self, criterion)
        return float(self.gammas[values == values.min()].max())

    def plot(
        self, ax: Any = None, *, criteria: tuple[str, ...] = ("cv", "gcv"), bandwidth: bool = False
    ) -> Any:
        """Draw the curves, with a dot where each is least.

        Parameters
        ----------
        ax : matplotlib axes or None
            Where to draw; None for new axes.
        criteria : tuple of {"cv", "gcv", "press"}
            Which curves.
        bandwidth : bool
            Whether σ² = 1/gamma runs along the axis, evenly, instead of gamma, logarithmically.

        Returns
        -------
        matplotlib axes
        """
        if ax is None:
            ax = matplotlib_part("figure").Figure(figsize=(6.0, 4.0), layout="constrained").subplots()
        where = 1.0 / self.gammas if bandwidth else self.gammas
        order = np.argsort(where)
        for criterion in criteria:
            values = getattr(self, criterion)
            (line,) = ax.plot(
                where[order], values[order], linestyle=_STYLES[criterion], label=_LABELS[criterion]
            )
            best = self.best_gamma(criterion)  # type: ignore[arg-type]
            ax.plot(1.0 / best if bandwidth else best, values.min(), "o", color=line.get_color())
        if bandwidth:
            ax.set_xlabel("σ²")
        else:
            ax.set(xscale="log", xlabel="gamma")
        ax.set_ylabel("leave-one-out error")
        ax.legend(frameon=False)
        return ax


def leave_one_out_curves(
    X: ArrayLike,
    y: ArrayLike,
    *,
    gammas: ArrayLike,
    C: float = 10.0,
    kernel: Any = "rbf",
    degree: float = 3,
    coef0: float = 1.0,
) -> LeaveOneOutCurves:
    """Return leave-one-out criteria of one-vs-all least-squares machines along gamma, exact and without refits.

    With the inverse A₂₂ of the kernel matrix plus I/C, the biases projected out, the coefficients are α = A₂₂Y, the
    residuals α/C, the leverages 1 − h = diag(A₂₂)/C, and the residuals of machines trained without the row
    α/diag(A₂₂).

    Parameters
    ----------
    X : array-like of shape (n, d)
        Rows; scale the features first.
    y : array-like of shape (n,)
        Class labels.
    gammas : array-like of shape (m,)
        The kernel's parameters to try; the paper's σ² are 1/gamma.
    C : float
        Regularisation; the paper's γ.
    kernel, degree, coef0
        As in `polymargin.LSSVMClassifier`; the kernel must have a gamma.

    Returns
    -------
    LeaveOneOutCurves

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import load_iris
    >>> from polymargin.papers.shim2008.curves import leave_one_out_curves
    >>> curves = leave_one_out_curves(*load_iris(return_X_y=True), gammas=1 / np.arange(0.5, 5.0, 0.5))
    >>> 1 / curves.best_gamma("cv")
    2.0
    """
    machine = resolve_kernel(kernel, degree, coef0)
    if not machine.tunable:
        raise ValueError(
            f'kernel={kernel!r} has no gamma; choose "rbf", "laplacian", "exponential", "blend" or "poly"'
        )
    X, y = check_X_y(X, y, dtype=np.float64, accept_sparse="csr", ensure_min_samples=2)
    check_classification_targets(y)
    along = np.asarray(gammas, dtype=np.float64)
    if along.ndim != 1 or along.size == 0 or not (np.isfinite(along) & (along > 0.0)).all():
        raise ValueError("gammas must be a list of positive numbers")
    if not (np.isfinite(C) and C > 0.0):
        raise ValueError(f"C must be a positive number, not {C!r}")
    classes, own = np.unique(y, return_inverse=True)
    if classes.size < 2:
        raise ValueError(f"y holds only one class, {classes.tolist()[0]!r}; a classifier needs two or more")
    n = own.size
    _memory.require(32.0 * n**2, f"the kernel matrix of {n} rows", "take a sample of the rows")
    targets = np.where(own[:, np.newaxis] == np.arange(classes.size), 1.0, -1.0)
    machine = machine.fitted(X, np.ones(n))
    base = machine.base(X)
    with np.errstate(over="ignore", invalid="ignore"):  # `_criteria` refuses what comes of it
        found = np.array([_criteria(machine.apply(base, gamma), targets, own, C) for gamma in along])
    return LeaveOneOutCurves(along, float(C), *found.T)


def _criteria(K: Array, targets: Array, own: Array, C: float) -> tuple[float, float, float]:
    """Return CV, GCV and PRESS for one kernel matrix, which is overwritten."""
    n = own.size
    if not np.isfinite(K).all():
        raise ValueError(_NO_KERNEL)
    centring, A = centre(K, np.ones(n))
    try:
        inverse = unbiased_inverse(A, centring, 1.0 / C)
    except np.linalg.LinAlgError as error:
        raise ValueError(_NO_KERNEL) from error
    diagonal = np.diagonal(inverse)
    coefficients = inverse @ centring.targets(targets)[0]
    left_out = coefficients / diagonal[:, np.newaxis]
    own_residuals = coefficients[np.arange(n), own] / C
    cv = float(np.mean(np.square(left_out[np.arange(n), own])))
    gcv = float(n * np.sum(np.square(own_residuals)) / (diagonal.sum() / C) ** 2)
    return cv, gcv, float(np.mean(np.square(left_out).sum(axis=1)))
