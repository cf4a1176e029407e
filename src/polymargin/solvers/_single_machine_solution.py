"""What the single-machine solver is asked and what it answers; `polymargin.solvers.single_machine` exports it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polymargin.solvers.status import Status

Array = NDArray[np.float64]


class Margins(NamedTuple):
    """What the machine is asked for: d_im (n, K), by how much F_iz shall exceed F_im, and z_i (n,)."""

    required: Array
    classes: NDArray[np.intp]


def required_margins(soft_labels: ArrayLike, classes: ArrayLike | None = None) -> Margins:
    """Return d_im = 2 (P_iz − P_im) and z.

    Parameters
    ----------
    soft_labels : array of shape (n, K)
        P, with rows that sum to one.
    classes : array of shape (n,), optional
        z as class indices: in the paper the observed class, which P need not favour. If not given, the class
        with the largest P, the first one of equals.

    Examples
    --------
    >>> required_margins([[0.75, 0.25], [0.5, 0.5]], classes=[1, 0])
    Margins(required=array([[-1.,  0.], [ 0.,  0.]]), classes=array([1, 0]))
    """
    P = np.asarray(soft_labels, dtype=np.float64)
    if P.ndim != 2 or P.shape[1] < 2:
        raise ValueError(f"soft labels have shape (n, K) with K ≥ 2, not {P.shape}; encode classes one-hot")
    if not ((P >= 0.0).all() and np.allclose(P.sum(axis=1), 1.0, atol=1e-6)):
        raise ValueError("soft labels are probabilities: not negative, and every row sums to one")
    z = P.argmax(axis=1) if classes is None else np.asarray(classes)
    if z.shape != P.shape[:1] or z.dtype.kind not in "iu" or ((z < 0) | (z >= P.shape[1])).any():
        raise ValueError(f"classes must be {P.shape[0]} whole numbers from 0 to {P.shape[1] - 1}")
    return Margins(2.0 * (np.take_along_axis(P, z[:, None], axis=1) - P), z)


@dataclass(frozen=True)
class SingleMachineSolution:
    """A solution and its certificate.

    Attributes
    ----------
    alpha : array of shape (n, K)
        Dual variables, 0 ≤ alpha_im ≤ C_i, exact at the bounds; zero for m = z_i.
    beta : array of shape (n, K)
        Coefficients of F_m(x) = Σ_i beta_im K(x_i, x) + b_m; every column sums to zero up to rounding.
    biases : array of shape (K,)
        b; only differences matter, they sum to zero.
    status : Status
    n_iter : int
        Cycle steps taken.
    objective : float
        The dual objective D, which is maximised.
    primal_objective : float
        The least primal objective of the machines s(F_1, …, F_K) over the scale s, to a thousandth of the gap.
    kkt_violation : float
        The largest mean gain of a cycle of classes, zero if none gains. With two classes and hard labels it is
        LIBSVM's violation.
    """

    alpha: Array
    beta: Array
    biases: Array
    status: Status
    n_iter: int
    objective: float
    primal_objective: float
    kkt_violation: float

    @property
    def duality_gap(self) -> float:
        """Primal minus dual objective, never negative up to rounding."""
        return self.primal_objective - self.objective

    @property
    def relative_gap(self) -> float:
        """The duality gap over the primal objective."""
        return relative_gap(self.duality_gap, self.primal_objective)

    @property
    def support(self) -> NDArray[np.intp]:
        """Indices of the support vectors, the rows with a coefficient."""
        return np.flatnonzero(self.beta.any(axis=1))

    def is_optimal(self, eps: float = 1e-3) -> bool:
        """Tell whether the relative duality gap is at most eps."""
        return self.relative_gap <= eps


def relative_gap(gap: float, primal: float) -> float:
    """Return gap / primal, where a primal of zero stands for a problem solved by the machine 0."""
    return gap / primal if primal > 0.0 else 0.0
