"""An interior point for the single-machine dual where cycles and Newton steps on faces are slow.

That is the case when the Gram matrix has a low rank and C is large: many variables are free that will not
stay so. Mehrotra's predictor–corrector finds the face in 20 to 40 systems

    (H + Θ) x = r    with a diagonal Θ > 0,

which are solved through a factor K = VVᵀ of rank r (a system of size rK, Fine and Scheinberg 2001) or, where
that is larger, directly in the n(K−1) variables.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cho_factor, cho_solve
from scipy.linalg.lapack import dpstrf

from polymargin._memory import available
from polymargin.solvers._single_machine_kernels import fill_hessian

Array = NDArray[np.float64]
Index = NDArray[np.intp]
Solve = Callable[[Array], Array]

#: Pivots of the factor, relative to the largest K_ii, below which the Gram matrix counts as zero.
_PIVOT = 1e-11
#: The largest system that is worth it.
_LARGEST = 4000
#: Part of the way to the boundary that a step may go.
_DAMPING = 0.995


class InteriorPoint:
    """The interior point for one Gram matrix, one assignment of rows to classes, and one box.

    Arrays are in the solver's order, of shape (K, n) where they belong to variables; entries that are no
    variables, α_iz, are zero.
    """

    def __init__(self, gram: Array, order: Index, starts: Index, classes: Index, upper: Array) -> None:
        self.gram, self.order, self.starts, self.classes, self.upper = gram, order, starts, classes, upper
        K, n = starts.size - 1, classes.size
        self.own = (classes, np.arange(n))
        filled = np.bincount(classes[upper > 0.0], minlength=K) > 0
        # An empty box, and flow to a class that sends none out, leave no interior.
        is_variable = (np.arange(K)[:, None] != classes) & filled[:, None] & (upper > 0.0)
        self.others, self.rows = np.nonzero(is_variable)
        self.filled = np.flatnonzero(filled)
        size = self.rows.size
        # A copy of the Gram matrix for the pivoting, or the largest system and its factor.
        fits = 8.0 * max(n * n, 2 * min(size, _LARGEST) ** 2) < available()
        self.V = self._factor(min(_LARGEST, size) // K) if fits else None
        self.is_possible = fits and self.filled.size > 1 and (self.V is not None or size <= _LARGEST)

    def _factor(self, largest: int) -> Array | None:
        """Return V of shape (n, r), K = VVᵀ up to rounding, or None if r would exceed ``largest``."""
        n = self.order.size
        scale = float(self.gram.diagonal().max(initial=0.0))
        factor, pivots, rank, _ = dpstrf(self.gram, tol=_PIVOT * scale, lower=1)
        if rank > largest:
            return None
        V = np.empty((n, rank))
        V[pivots - 1] = np.tril(factor)[:, :rank]
        return V[self.order]

    def _beta(self, x: Array) -> Array:
        """Return β(x): −x, and the sum over the other classes in the row's own."""
        beta = -x
        beta[self.own] = x.sum(axis=0)
        return beta

    def _hessian(self, x: Array) -> Array:
        """Return H x."""
        beta = self._beta(x)
        if self.V is not None:
            return self._differences((beta @ self.V) @ self.V.T)
        spread = np.empty_like(beta)
        spread[:, self.order] = beta
        return self._differences((self.gram @ spread.T).T[:, self.order])

    def _differences(self, F: Array) -> Array:
        """Return F_iz − F_im for the variables."""
        result = np.zeros_like(F)
        result[self.others, self.rows] = F[self.classes[self.rows], self.rows] - F[self.others, self.rows]
        return result

    def _system(self, theta: Array) -> Solve:
        """Factorise H + Θ and return the solver of its systems."""
        return self._direct(theta) if self.V is None else self._low_rank(theta, self.V)

    def _direct(self, theta: Array) -> Solve:
        """Work with the n(K−1) variables themselves."""
        at = (self.others, self.rows)
        size = self.rows.size
        H = np.empty((size, size))
        fill_hessian(self.gram, self.order[self.rows], self.classes[self.rows], self.others, 0.0, H)
        H[np.arange(size), np.arange(size)] += theta[at]
        factor = cho_factor(H.T, lower=False, overwrite_a=True, check_finite=False)

        def solve(r: Array) -> Array:
            x = np.zeros_like(r)
            x[at] = cho_solve(factor, r[at], check_finite=False)
            return x

        return solve

    def _low_rank(self, theta: Array, V: Array) -> Solve:
        """Work with I + BΘ⁻¹Bᵀ, where H = BᵀB and B x = β(x) V; its blocks are classes by classes."""
        K, r = theta.shape[0], V.shape[1]
        phi = np.zeros_like(theta)
        phi[self.others, self.rows] = 1.0 / theta[self.others, self.rows]
        diagonal = phi.copy()
        diagonal[self.own] = phi.sum(axis=0)
        M = np.empty((K, r, K, r))
        block = [slice(a, b) for a, b in zip(self.starts[:-1], self.starts[1:], strict=True)]
        for a in range(K):
            M[a, :, a] = (V.T * diagonal[a]) @ V
            M[a, np.arange(r), a, np.arange(r)] += 1.0
            for b in range(a):
                in_a, in_b = block[a], block[b]
                M[a, :, b] = -((V[in_a].T * phi[b, in_a]) @ V[in_a]) - (V[in_b].T * phi[a, in_b]) @ V[in_b]
        factor: Any = cho_factor(M.reshape(K * r, K * r), lower=True, overwrite_a=True, check_finite=False)

        def solve_once(x: Array) -> Array:
            inner = cho_solve(factor, (self._beta(phi * x) @ V).ravel(), check_finite=False)
            return phi * (x - self._differences(inner.reshape(K, r) @ V.T))

        def solve(x: Array) -> Array:
            first = solve_once(x)
            return first + solve_once(x - theta * first - self._hessian(first))  # one refinement

        return solve

    def maximise(self, d: Array, tol: float, max_iter: int = 60) -> Array:
        """Return α on, or next to, the optimal face, its variables near a bound set to it.

        It satisfies the box; the class equalities hold as well as the interior point has met them.
        """
        is_variable = np.zeros(d.shape, dtype=bool)
        is_variable[self.others, self.rows] = True
        box = np.where(is_variable, self.upper, 1.0)
        equalities = self.filled[:-1]  # the last one follows from the others
        alpha = 0.5 * box * is_variable
        room = 0.5 * box
        b = np.zeros(d.shape[0])
        unit = float(np.abs(d).max(initial=0.0)) or 1.0
        lower_dual = np.where(is_variable, unit, 0.0)
        upper_dual = lower_dual.copy()
        count = 2.0 * is_variable.sum()

        def reach(*pairs: tuple[Array, Array]) -> float:
            """Return the longest step, at most one, that keeps every x + t dx ≥ 0."""
            steps = [float((-x[dx < 0.0] / dx[dx < 0.0]).min(initial=np.inf)) for x, dx in pairs]
            return min(1.0, _DAMPING * min(steps))

        for _ in range(max_iter):
            hessian_alpha = self._hessian(alpha)
            dual_residual = np.where(is_variable, hessian_alpha - d + b[self.classes] - b[:, None], 0.0)
            dual_residual += upper_dual - lower_dual
            imbalance = self._beta(alpha).sum(axis=1)
            mu = float((alpha * lower_dual + room * upper_dual * is_variable).sum()) / count
            value = abs(float((alpha * d).sum() - 0.5 * (alpha * hessian_alpha).sum()))
            small = tol * max(value, 1e-300)
            if mu * count <= small and np.abs(alpha * dual_residual).sum() <= small:
                break
            positive = np.where(is_variable, alpha, 1.0)
            theta = np.where(is_variable, lower_dual / positive + upper_dual / room, 1.0)
            try:
                solve = self._system(theta)
            except LinAlgError:
                break
            columns = np.stack([
                solve(np.where(is_variable, (self.classes == m) * 1.0 - (np.arange(d.shape[0]) == m)[:, None], 0.0))
                for m in equalities
            ])  # fmt: skip
            schur = np.stack([self._beta(column).sum(axis=1)[equalities] for column in columns], axis=1)

            def direction(
                first: Array, second: Array, residual: Array = dual_residual, start: Array = positive,
                solve: Solve = solve, columns: Array = columns, schur: Array = schur, balance: Array = imbalance,
                low: Array = lower_dual, high: Array = upper_dual, left: Array = room,
            ) -> tuple[Array, Array, Array, Array]:  # fmt: skip
                """Return the Newton step towards αs = first, (C − α)t = second (less what they are now)."""
                free = solve(np.where(is_variable, -residual + first / start - second / left, 0.0))
                change = np.zeros(d.shape[0])
                change[equalities] = np.linalg.lstsq(
                    schur, (self._beta(free).sum(axis=1) + balance)[equalities], rcond=None
                )[0]
                step = free - np.tensordot(change[equalities], columns, axes=1)
                return step, change, (first - low * step) / start, (second + high * step) / left

            now_low, now_high = -alpha * lower_dual, -room * upper_dual * is_variable
            step, _, low_step, high_step = direction(now_low, now_high)
            t = reach((alpha, step), (room, -step), (lower_dual, low_step), (upper_dual, high_step))
            ahead = (alpha + t * step) * (lower_dual + t * low_step)
            ahead += (room - t * step) * (upper_dual + t * high_step) * is_variable
            target = mu * (float(ahead.sum()) / count / mu) ** 3
            step, change, low_step, high_step = direction(
                np.where(is_variable, target + now_low - step * low_step, 0.0),
                np.where(is_variable, target + now_high + step * high_step, 0.0),
            )
            t = reach((alpha, step), (room, -step), (lower_dual, low_step), (upper_dual, high_step))
            alpha, room = alpha + t * step, room - t * step
            lower_dual, upper_dual = lower_dual + t * low_step, upper_dual + t * high_step
            b = b + t * change
        # A variable is at the bound whose multiplier has outgrown the distance from it.
        at_zero = alpha / box * unit < lower_dual
        at_upper = is_variable & (room / box * unit < upper_dual)
        return np.where(
            at_zero | ~is_variable, 0.0, np.where(at_upper, self.upper, np.clip(alpha, 0.0, self.upper))
        )
