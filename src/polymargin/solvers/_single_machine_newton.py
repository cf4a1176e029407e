"""Newton steps of the single-machine solver on the face of the free variables 0 < α_im < C_i.

On the face the dual is a quadratic function under the class equalities A δ = 0:

    H δ + Aᵀλ = g,    A δ = 0.

H is factorised once. A step that meets a bound stops there, and the variables that are in the way are held
fixed from then on; that is one more equality each, so it needs the one factorisation and a larger Schur
complement.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cho_factor, cho_solve, cholesky, solve_triangular

from polymargin.solvers._single_machine_kernels import fill_hessian

Array = NDArray[np.float64]
Index = NDArray[np.intp]

#: Relative to the mean diagonal of H. It only shortens steps: the limit is the solution without it.
RIDGE = 1e-10
#: The share of the variables that a full step would move out of the box that is held fixed at once.
HELD_AT_ONCE = 0.05
#: The face is left when this part of its variables is held fixed.
HELD_AT_MOST = 0.5


def newton_on_face(
    gram: Array, order: Index, classes: Index, upper: Array, alpha: Array, E: Array, largest: int
) -> bool:
    """Move α in place to the maximum on its face, or as far towards it as the box allows.

    Arrays are in the solver's order, α and E of shape (K, n); E is out of date afterwards. Nothing is done, and
    False returned, if there are no free variables or more than ``largest``.
    """
    others, rows = np.nonzero((alpha > 0.0) & (alpha < upper))
    if rows.size < 2 or rows.size > largest:
        return False
    owner, size = classes[rows], rows.size
    value, limit = alpha[others, rows], upper[rows]
    slope = E[others, rows] - E[owner, rows]
    factor = _factorise(gram, order[rows], owner, others)
    if factor is None:
        return False

    def forward(columns: Array) -> Array:
        return solve_triangular(factor, columns, trans=1, lower=False, check_finite=False)

    equalities = np.zeros((size, alpha.shape[0]))
    equalities[np.arange(size), owner] = 1.0
    equalities[np.arange(size), others] -= 1.0
    constraints, held = forward(equalities), np.zeros(size, dtype=bool)
    schur = constraints.T @ constraints
    moved = False
    residual = forward(slope)  # L⁻¹g, with H = LLᵀ and L the transpose of the factor
    while True:
        multipliers = _multipliers(constraints, schur, residual)
        whitened = residual - constraints @ multipliers  # Lᵀδ
        delta = solve_triangular(factor, whitened, lower=False, check_finite=False)
        delta[held] = 0.0
        # Rounding in an ill-conditioned H must not cost flow conservation.
        open_ = equalities * ~held[:, None]
        delta -= open_ @ np.linalg.lstsq(open_.T @ open_, equalities.T @ delta, rcond=1e-12)[0]
        with np.errstate(divide="ignore", invalid="ignore"):
            reach = np.where(
                delta > 0.0, (limit - value) / delta, np.where(delta < 0.0, -value / delta, np.inf)
            )
        step = min(1.0, float(reach.min()))
        at_bound = reach <= step
        value = np.where(
            at_bound, np.where(delta > 0.0, limit, 0.0), np.clip(value + step * delta, 0.0, limit)
        )
        residual -= step * whitened
        moved = moved or step > 0.0
        crossing = np.flatnonzero(reach < 1.0)
        if crossing.size == 0:
            break
        crossing = crossing[np.argsort(reach[crossing])][: max(1, int(HELD_AT_ONCE * crossing.size))]
        new = np.union1d(crossing, np.flatnonzero(at_bound & ~held))
        held[new] = True
        if held.sum() > HELD_AT_MOST * size:
            break
        unit = np.zeros((size, new.size))
        unit[new, np.arange(new.size)] = 1.0
        more = forward(unit)
        corner = constraints.T @ more
        schur = np.block([[schur, corner], [corner.T, more.T @ more]])
        constraints = np.hstack([constraints, more])
    alpha[others, rows] = value
    return moved


def _factorise(gram: Array, rows: Index, owner: Index, others: Index) -> Any:
    """Return the upper triangular factor of the Hessian on the face, or None where rounding forbids it."""
    size = rows.size
    H = np.empty((size, size))
    ridge = RIDGE * 2.0 * float(gram[rows, rows].mean())
    for _ in range(3):
        fill_hessian(gram, rows, owner, others, ridge, H)
        try:
            # The lower triangle in C order is the upper one in LAPACK's.
            return cholesky(H.T, lower=False, overwrite_a=True, check_finite=False)
        except LinAlgError:
            ridge *= 1e3
    return None


def _multipliers(constraints: Array, schur: Array, residual: Array) -> Array:
    """Return the λ with the least |L⁻¹g − constraints λ|, by the normal equations and one refinement.

    Where an equality follows from the others, the shift keeps λ from being large.
    """
    size = schur.shape[0]
    try:
        factor = cho_factor(schur + 1e-13 * np.trace(schur) / size * np.eye(size), check_finite=False)
    except LinAlgError:
        return np.asarray(np.linalg.lstsq(constraints, residual, rcond=1e-12)[0], dtype=np.float64)
    first = cho_solve(factor, constraints.T @ residual, check_finite=False)
    rest = constraints.T @ (residual - constraints @ first)
    return np.asarray(first + cho_solve(factor, rest, check_finite=False), dtype=np.float64)
