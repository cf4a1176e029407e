"""The single-machine multiclass SVM of Weston and Watkins, with hard or soft labels.

Solves (Gönen, Tanuğur and Alpaydın 2008, eqs. 7, 12 and 13)

    minimise     ½ Σ_m |w_m|² + Σ_i C_i Σ_{m ≠ z_i} ξ_im,    ξ ≥ 0,
    subject to   F_iz − F_im ≥ d_im − ξ_im,    d_im = 2 (P_iz − P_im),

where F_im = w_m·φ(x_i) + b_m, z_i is the class of row i, and P its soft label; hard labels have d = 2. The
biases are not regularised. The dual is

    maximise     D = Σ α_im d_im − ½ Σ_m β_mᵀ K β_m    with β_im = −α_im (m ≠ z_i), β_iz = Σ_m α_im,
    subject to   0 ≤ α_im ≤ C_i,    Σ_i β_im = 0 for every class m;

then F_m(x) = Σ_i β_im K(x_i, x) + b_m.

Where the soft label favours another class than z_i, d_im is negative, and the constraint, taken as printed, only
requires that F_im must not lead by more than −d_im. Contrary to the paper's statement, this is not the soft-label SVM
of its eq. (6) for two classes, which puts such a row on the other side of the boundary, and at another cost.

The solver follows cycles of classes (SMO), takes Newton steps on the free variables when these become slow,
tries an interior point when both are slow, and stops on the duality gap. Cycle steps need 32 nK bytes
beside the Gram matrix, Newton steps 8f² for f free variables. The loops are in
`polymargin.solvers._single_machine_kernels`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polymargin.solvers import _single_machine_kernels as kernels
from polymargin.solvers._single_machine_graph import circulation
from polymargin.solvers._single_machine_interior import InteriorPoint
from polymargin.solvers._single_machine_newton import newton_on_face
from polymargin.solvers._single_machine_solution import (
    Margins,
    SingleMachineSolution,
    relative_gap,
    required_margins,
)
from polymargin.solvers.status import Status, default_step_limit

__all__ = ["Margins", "SingleMachineSolution", "required_margins", "solve", "solve_path"]

Array = NDArray[np.float64]

#: Relative to the largest K_ii, the least curvature of a step.
_TAU = 1e-12
#: The cycle steps are held to this mean gain, relative to the largest d, at first; it shrinks by the factor.
_FIRST_TOL, _SHRINK = 0.05, 0.25
#: E is recomputed before the gap is accepted if its rounding error may exceed this share of tol.
_DRIFT = 1e-3
#: Cycle steps per variable before the first Newton steps, and between Newton steps.
_NEWTON_FIRST, _NEWTON_AGAIN = 1.0, 0.5
#: Newton steps need memory for f² numbers: f is at most n, or this.
_FACE = 3000
#: Rounds of Newton steps before the interior point is tried, for a Gram matrix of low rank and otherwise.
_INTERIOR_AFTER, _DIRECT_AFTER = 4, 24
#: Rounds without progress before giving up.
_PATIENCE = 8


def solve(
    gram: ArrayLike,
    labels: ArrayLike | Margins,
    C: float,
    *,
    tol: float = 1e-3,
    max_iter: int = -1,
    alpha0: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
) -> SingleMachineSolution:
    """Solve one problem.

    Parameters
    ----------
    gram : array of shape (n, n)
        Symmetric positive semidefinite (if it is not, the result is a stationary point). It is not copied if it
        is float64 and contiguous.
    labels : array of shape (n, K) or Margins
        Soft labels, one-hot rows for hard ones, or what `required_margins` makes of them.
    C : float
        Cost of a unit of slack.
    tol : float
        Largest relative duality gap.
    max_iter : int
        Limit on cycle steps; −1 for `polymargin.solvers.status.default_step_limit`.
    alpha0 : array of shape (n, K), optional
        Where to start, for instance the solution for other labels or another C. It is made feasible: clipped
        to the box, reduced where a class sends out more than it receives, and scaled to the best multiple.
    sample_weight : array of shape (n,), optional
        C_i = C · weight_i.

    Returns
    -------
    SingleMachineSolution

    See Also
    --------
    solve_path : Several C.
    polymargin.solvers.smo.solve : Two classes.

    References
    ----------
    .. [1] J. Weston and C. Watkins, "Multi-class Support Vector Machines", CSD-TR-98-04, Royal Holloway, University of
           London, 1998.
    .. [2] M. Gönen, A. G. Tanuğur and E. Alpaydın, "Multiclass Posterior Probability Support Vector Machines", IEEE
           Transactions on Neural Networks 19, 2008.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.array([-2.0, -1.0, 0.0, 0.5, 2.0, 3.0])
    >>> solution = solve(np.outer(x, x) + x[:, None] ** 2 * x**2, np.eye(3)[[0, 0, 1, 1, 2, 2]], C=10.0, tol=1e-6)
    >>> solution.is_optimal(1e-6), solution.support
    (True, array([1, 2, 4]))
    """
    return _Solver(gram, labels, sample_weight).run(C, tol, max_iter, alpha0)


def solve_path(
    gram: ArrayLike,
    labels: ArrayLike | Margins,
    C: Sequence[float],
    *,
    tol: float = 1e-3,
    max_iter: int = -1,
    sample_weight: ArrayLike | None = None,
) -> list[SingleMachineSolution]:
    """Solve the same problem for several C, each from the solution before.

    It is fastest for ascending C. The parameters are those of `solve`, ``max_iter`` is for each C.

    Parameters
    ----------
    gram, labels, tol, max_iter, sample_weight
        As in `solve`.
    C : sequence of float
        The costs of a unit of slack.

    Returns
    -------
    list of SingleMachineSolution
        One for each C.

    See Also
    --------
    solve : One C.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.array([-2.0, -1.0, 1.0, 3.0])
    >>> path = solve_path(np.outer(x, x), np.eye(2)[[0, 0, 1, 1]], [0.25, 10.0], tol=1e-6)
    >>> [float(solution.alpha.sum()) for solution in path]
    [0.5, 1.0]
    """
    solver = _Solver(gram, labels, sample_weight)
    solutions: list[SingleMachineSolution] = []
    for i, value in enumerate(C):
        start = None if i == 0 else solutions[-1].alpha * min(1.0, value / C[i - 1])
        solutions.append(solver.run(value, tol, max_iter, start))
    return solutions


class _Solver:
    """One problem, its working arrays, and the recipe that the jitted loops are the steps of.

    The arrays are in the order and layout of `_single_machine_kernels`: rows by class, shape (K, n).
    """

    def __init__(self, gram: ArrayLike, labels: ArrayLike | Margins, sample_weight: ArrayLike | None) -> None:
        # A read-only matrix would be another type to the compiler.
        self.gram = np.require(gram, dtype=np.float64, requirements=["C", "A", "W"])
        n = self.gram.shape[0]
        if self.gram.shape != (n, n):
            raise ValueError(f"a Gram matrix is square; this one has shape {self.gram.shape}")
        d, z = labels if isinstance(labels, Margins) else required_margins(labels)
        if d.shape[0] != n or z.shape != (n,) or z.min(initial=0) < 0 or z.max(initial=0) >= d.shape[1]:
            raise ValueError(
                f"labels are for {d.shape[0]} rows and K = {d.shape[1]}, the Gram matrix has {n} rows"
            )
        weight = np.ones(n) if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
        if weight.shape != (n,) or not ((weight >= 0.0) & np.isfinite(weight)).all():
            raise ValueError(f"sample_weight must be {n} finite values, none of them negative")
        K = d.shape[1]
        self.order = np.argsort(z, kind="stable").astype(np.int64)
        self.classes = np.asarray(z, dtype=np.int64)[self.order]
        self.starts = np.searchsorted(self.classes, np.arange(K + 1)).astype(np.int64)
        self.d = np.ascontiguousarray(d[self.order].T, dtype=np.float64)
        self.own = (self.classes, np.arange(n))
        self.d[self.own] = 0.0
        self.weight = weight[self.order]
        self.diagonal = self.gram.diagonal()[self.order]
        self.tau = _TAU * float(self.diagonal.max(initial=0.0)) or _TAU
        self.arcs, self.places = np.empty((2, K, K)), np.zeros((2, K, K), dtype=np.int64)
        self.scratch = np.empty((K, n))

    def run(self, C: float, tol: float, max_iter: int, alpha0: ArrayLike | None) -> SingleMachineSolution:
        """Solve for one C, from a start that need not be feasible."""
        if not (C > 0.0 and np.isfinite(C)):
            raise ValueError(f"C must be positive, not {C}")
        self.upper = C * self.weight
        self._start(alpha0)
        status, n_iter = self._maximise(tol, max_iter)
        return self._certify(status, n_iter)

    def _start(self, alpha0: ArrayLike | None) -> None:
        """Set α and E: to zero, or to the best feasible multiple of what is given."""
        self.alpha = np.zeros_like(self.d)
        self.E = self.d.copy()
        self.steps_since_refresh = 0
        if alpha0 is None:
            return
        given = np.asarray(alpha0, dtype=np.float64)
        if given.shape != self.d.T.shape:
            raise ValueError(f"alpha0 must have shape {self.d.T.shape}, not {given.shape}")
        np.clip(given[self.order].T, 0.0, self.upper, out=self.alpha)
        self.alpha[self.own] = 0.0
        self._conserve()
        self._refresh()
        linear = float((self.alpha * self.d).sum())
        quadratic = float((self.alpha * (self.E[self.own] - self.E + self.d)).sum())
        peak = float((self.alpha / np.where(self.upper > 0.0, self.upper, 1.0)).max(initial=0.0))
        if peak > 0.0:
            best = linear / quadratic if quadratic > 0.0 else np.inf
            factor = min(max(best, 0.0), 1.0 / peak)
            self.alpha *= factor
            # What comes to a bound but for rounding is there.
            np.copyto(self.alpha, self.upper, where=self.alpha > (1.0 - 1e-14) * self.upper)
            self.E += (factor - 1.0) * (self.E - self.d)

    def _conserve(self) -> None:
        """Reduce α where a class sends out more than it receives."""
        flow = self._flow(self.alpha)
        ratio = circulation(flow) / np.where(flow > 0.0, flow, 1.0)
        self.alpha *= ratio[self.classes].T

    def _flow(self, values: Array) -> Array:
        """Return the sums of α, or of what else belongs to the variables, over the rows of class z, shape (K, K)."""
        return np.stack([block.sum(axis=1) for block in np.split(values, self.starts[1:-1], axis=1)])

    def _balance(self) -> None:
        """Mend a small imbalance of the classes by the free variables, those with the most room most."""
        room = np.minimum(self.alpha, self.upper - self.alpha) ** 2
        room[self.own] = 0.0
        flow, weight = self._flow(self.alpha), self._flow(room)
        weight += weight.T
        laplacian = np.diag(weight.sum(axis=1)) - weight
        price = np.linalg.lstsq(laplacian, flow.sum(axis=0) - flow.sum(axis=1), rcond=1e-12)[0]
        self.alpha += room * (price[self.classes] - price[:, None])
        np.clip(self.alpha, 0.0, self.upper, out=self.alpha)
        flow = self._flow(self.alpha)
        if np.abs(flow.sum(axis=0) - flow.sum(axis=1)).max() > 1e-12 * flow.sum():
            self._conserve()

    def _beta(self) -> Array:
        """Return β of shape (K, n), columns in the order of the Gram matrix."""
        beta = 0.0 - self.alpha  # no −0
        beta[self.own] = self.alpha.sum(axis=0)
        result = np.empty_like(beta)
        result[:, self.order] = beta
        return result

    def _refresh(self) -> None:
        """Recompute E = d + Kβ."""
        np.add(self.d, (self._beta() @ self.gram)[:, self.order], out=self.E)
        self.steps_since_refresh = 0

    def _bounds(self) -> tuple[float, float, float, Array]:
        """Return the dual and the primal objective, the largest mean gain of a cycle, and the biases."""
        dual, primal, mean, b = kernels.bounds(
            self.alpha, self.E, self.d, self.upper, self.starts, self.arcs, self.places
        )
        if primal <= self._rounding() and not self.alpha.any():
            primal = 0.0  # biases alone satisfy all margins, as where all rows have the same soft label
        return dual, primal, mean, b

    def _rounding(self) -> float:
        """Return the rounding error of the primal objective of a machine of biases alone."""
        K = self.d.shape[0]
        unit = 8.0 * float(np.finfo(np.float64).eps) * float(np.abs(self.d).max(initial=0.0))
        return unit * K * (K - 1) * float(self.upper.sum())

    def _drift(self) -> float:
        """Return how much of the duality gap may be rounding, from the steps since E was computed.

        D starts at zero or above and never falls, so that βᵀKβ ≤ 2 Σ αd, and |G_im| ≤ √(K_ii βᵀKβ) limits E. A step
        rounds E once and its change, which is at most twice as large, twice, by half a unit each: 2.5 units. E enters
        the slacks twice, by F_z − F_m, and the norm in either objective once: four times.
        """
        unit = float(np.finfo(np.float64).eps)
        largest, total = float(np.abs(self.d).max(initial=0.0)), (len(self.d) - 1) * float(self.upper.sum())
        limit = largest + float(np.sqrt(2.0 * self.diagonal.max(initial=0.0) * largest * total))
        return 4.0 * total * 2.5 * unit * limit * self.steps_since_refresh

    def _ascend(self, tol: float, limit: int) -> int:
        """Take cycle steps; E follows, up to rounding."""
        steps = int(
            kernels.ascend(self.gram, self.order, self.starts, self.classes, self.diagonal, self.upper, self.alpha,
                           self.E, self.arcs, self.places, self.scratch, self.tau, tol, limit)
        )  # fmt: skip
        self.steps_since_refresh += steps
        return steps

    def _newton(self) -> None:
        """Go to the maximum on the face of the free variables, as far as the box allows."""
        face = max(self.alpha.shape[1], _FACE)
        if newton_on_face(self.gram, self.order, self.classes, self.upper, self.alpha, self.E, face):
            self._refresh()

    def _jump(self, tol: float, rounds: int) -> bool:
        """Go on from where an interior point and a Newton step on its face lead, if that is higher.

        Nothing is done, and False returned, if this is not the round for it or it would cost too much.
        """
        if rounds not in (_INTERIOR_AFTER, _DIRECT_AFTER):
            return False
        interior = InteriorPoint(self.gram, self.order, self.starts, self.classes, self.upper)
        if not interior.is_possible or (interior.V is None and rounds < _DIRECT_AFTER):
            return False
        old = self.alpha.copy(), self.E.copy(), self.steps_since_refresh
        dual = self._bounds()[0]
        self.alpha[:] = interior.maximise(self.d, max(1e-3 * tol, 1e-9))
        self._balance()
        self._refresh()
        self._newton()
        if self._bounds()[0] < dual:
            self.alpha, self.E, self.steps_since_refresh = old
        return True

    def _maximise(self, tol: float, max_iter: int) -> tuple[Status, int]:
        """Alternate cycle steps and Newton steps until the gap satisfies tol, whatever the rounding of E."""
        K, n = self.d.shape
        variables = n * (K - 1)
        inner_tol = _FIRST_TOL * float(np.abs(self.d).max(initial=0.0))
        n_iter = idle = rounds = 0
        newton_at = _NEWTON_FIRST * variables
        chunk = 100 + variables // 4
        best_gap, best_dual = np.inf, -np.inf
        most = default_step_limit(variables) if max_iter < 0 else max_iter
        while True:
            limit = min(chunk, most - n_iter)
            steps = self._ascend(inner_tol, limit)
            n_iter += steps
            dual, primal, mean, _ = self._bounds()
            if relative_gap(primal - dual, primal) <= tol or mean <= 0.0:
                if self._drift() > _DRIFT * tol * primal:
                    self._refresh()
                    dual, primal, mean, _ = self._bounds()
                if relative_gap(primal - dual, primal) <= tol:
                    return Status.CONVERGED, n_iter
            if n_iter >= most:
                return Status.STEP_LIMIT if max_iter < 0 else Status.ITERATION_LIMIT, n_iter
            gained = dual - best_dual
            progress = gained > 1e-6 * (primal - dual) + 1e-13 * abs(dual) or primal - dual < 0.9 * best_gap
            idle = 0 if progress else idle + 1
            if idle >= _PATIENCE:
                self._refresh()
                return Status.NO_PROGRESS, n_iter
            best_gap, best_dual = min(best_gap, primal - dual), max(best_dual, dual)
            if steps < limit:
                inner_tol = _SHRINK * (min(inner_tol, mean) if mean > 0.0 else inner_tol)
            if n_iter >= newton_at or steps == 0:
                rounds += 1
                if not self._jump(tol, rounds):
                    self._newton()
                newton_at = n_iter + _NEWTON_AGAIN * variables

    def _certify(self, status: Status, n_iter: int) -> SingleMachineSolution:
        """Return the solution with its biases, objectives and violation."""
        dual, primal, mean, b = self._bounds()
        alpha = np.empty(self.alpha.T.shape)
        alpha[self.order] = self.alpha.T
        return SingleMachineSolution(
            alpha=alpha,
            beta=np.ascontiguousarray(self._beta().T),
            biases=b,
            status=status,
            n_iter=n_iter,
            objective=dual,
            primal_objective=primal,
            kkt_violation=max(0.0, mean),
        )
