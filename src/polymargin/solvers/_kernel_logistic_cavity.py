"""Leave-one-out logits of kernel logistic regression from the Hessian at the optimum.

All other cells are approximated quadratically, those of the row that is left out, or of the rows of a group, are not.
With Σ the block of these cells in (Q⁻¹ + Λ)⁻¹, biases included, f their logits at the optimum, s their weights,
a = s(y − p) and Λ = s(diag(p) − ppᵀ), the logits f + Δ without the row or the group minimise

    ½ Δᵀ(Σ⁻¹ − Λ)Δ + a·Δ + s' logsumexp(f + Δ) − c'·(f + Δ),

where s' and c' are the weights and the class counts of the rows that are left in the cells. Where none are left this is
one Newton step of the problem without the row or the group, Δ = −(I − ΣΛ)⁻¹Σa. (In a cell of several rows one step
would be far too short where the row is the last one of its class.)
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp, softmax

from polymargin.solvers._kernel_logistic_hessian import Hessian
from polymargin.solvers.line_search import backtrack_rows

Array = NDArray[Any]

__all__ = ["Observations", "left_out_logits"]

#: The Newton steps within cells, the gradient at which they end, and the halvings of a step. (Where nothing but the
#: cell's own rows determines its logits, that of a class whose last row is left out falls by one with every step.)
_STEPS, _TOL, _HALVINGS = 30, 1e-9, 20
#: What rounding may add to the objective, relatively.
_ROUNDING = 1e-12


@dataclass(frozen=True)
class LeftOut:
    """What is left out: parts of cells, one or, if a group has rows in several cells, more at a time.

    Attributes
    ----------
    cell : ndarray of int, shape (P,)
        The cell of every part.
    counts : ndarray of shape (P, K)
        The weight of every class in the part.
    sets : list of ndarray of int, shape (M, S)
        The parts that are left out together; for every size S of such sets one array.
    of_row : ndarray of int, shape (N,)
        The part that every row belongs to.
    """

    cell: Array
    counts: Array
    sets: list[Array]
    of_row: Array


@dataclass(frozen=True)
class Observations:
    """The training rows behind the cells of a problem: the rows of a cell are equal in X.

    Attributes
    ----------
    cell : ndarray of int, shape (N,)
        The cell of every row; none of the n cells is empty.
    targets : ndarray of shape (N, K)
        Class probabilities.
    weights : ndarray of shape (N,)
        Positive row weights.
    groups : ndarray of int, shape (N,), or None
        Rows of one group are left out together.
    """

    cell: Array
    targets: Array
    weights: Array
    groups: Array | None = None

    @cached_property
    def counts(self) -> Array:
        """The weight of every class in every cell, shape (n, K)."""
        return self._counts(self.cell)

    def _counts(self, part: Array) -> Array:
        sums = [np.bincount(part, self.weights * column) for column in self.targets.T]
        return np.stack(sums, axis=1)

    def merged(self) -> tuple[Array, Array]:
        """Return the targets (n, K) and the weights (n,) of the cells."""
        weights = np.bincount(self.cell, self.weights)
        return self.counts / weights[:, np.newaxis], weights

    def take(self, rows: Array) -> tuple[Array, Observations]:
        """Return the cells that some of the rows are in, and these rows."""
        cells, cell = np.unique(self.cell[rows], return_inverse=True)
        groups = None if self.groups is None else self.groups[rows]
        return cells, Observations(cell, self.targets[rows], self.weights[rows], groups)

    @cached_property
    def n_independent(self) -> int:
        """The number of groups, of rows where there are none."""
        return int(np.unique(np.arange(self.cell.size) if self.groups is None else self.groups).size)

    @cached_property
    def left_out(self) -> LeftOut:
        """What is left out: every row, but equal ones only once; every group."""
        if self.groups is None:
            first, of_row = self._kinds()
            counts = self.weights[first, np.newaxis] * self.targets[first]
            return LeftOut(self.cell[first], counts, [np.arange(first.size)[:, np.newaxis]], of_row)
        n_cells = int(self.cell.max()) + 1
        pairs, of_row = np.unique(self.groups * n_cells + self.cell, return_inverse=True)
        group, cell = np.divmod(pairs, n_cells)
        _, start, size = np.unique(group, return_index=True, return_counts=True)
        sets = [start[size == S, np.newaxis] + np.arange(S) for S in np.unique(size)]
        return LeftOut(cell, self._counts(of_row), sets, of_row)

    @property
    def left_out_numbers(self) -> float:
        """How many numbers the matrices of what is left out have together, where there are groups."""
        if self.groups is None:
            return 0.0
        # The covariances, the system to solve and a copy of it.
        return (
            3.0
            * sum(float(parts.size * parts.shape[1]) for parts in self.left_out.sets)
            * self.targets.shape[1] ** 2
        )

    def _kinds(self) -> tuple[Array, Array]:
        """Return the first of the rows that have cell, target and weight in common, and the kind of every row."""
        if self.counts.shape[0] == self.cell.size:
            every = np.arange(self.cell.size)
            return every, every
        keys = np.column_stack([self.cell, self.weights, self.targets])
        as_bytes = np.ascontiguousarray(keys).view(np.dtype((np.void, keys.itemsize * keys.shape[1]))).ravel()
        _, first, inverse = np.unique(as_bytes, return_index=True, return_inverse=True)
        return first, inverse.ravel()


def left_out_logits(hessian: Hessian, logits: Array, rows: Observations) -> Array:
    """Return the logits of every row without it, or without its group, shape (N, K), up to a constant per row.

    Parameters
    ----------
    hessian : Hessian
        At or near the optimum; its factors are overwritten.
    logits : ndarray of shape (n, K)
        Of the cells, at the optimum.
    rows : Observations
        The rows.
    """
    out = rows.left_out
    curvatures = rows.counts.sum(axis=1)[:, np.newaxis, np.newaxis] * _curvatures(hessian.P)
    blocks = hessian.covariances([out.cell[parts] for parts in out.sets])
    found = logits[out.cell]
    for parts, covariances in zip(out.sets, blocks, strict=True):
        cells = out.cell[parts]
        problem = _WithoutParts(
            covariances=covariances,
            curvatures=curvatures[cells],
            logits=logits[cells],
            counts=rows.counts[cells],
            left=np.maximum(rows.counts[cells] - out.counts[parts], 0.0),
        )
        found[parts] += problem.solved()
    return found[out.of_row]


def _curvatures(P: Array) -> Array:
    """Return diag(p) − ppᵀ of every row, shape (…, K, K)."""
    found = -P[..., :, np.newaxis] * P[..., np.newaxis, :]
    k = np.arange(P.shape[-1])
    found[..., k, k] += P
    return found


@dataclass(frozen=True)
class _WithoutParts:
    """The problems of S cells without a part of each; all arrays have one entry for each of M problems.

    Attributes
    ----------
    covariances : ndarray of shape (M, S K, S K)
        Σ of the whole cells.
    curvatures : ndarray of shape (M, S, K, K)
        Λ of the whole cells.
    logits, counts : ndarray of shape (M, S, K)
        The logits at the optimum, and the weights of the classes.
    left : ndarray of shape (M, S, K)
        The weights of the classes without the parts.
    """

    covariances: Array
    curvatures: Array
    logits: Array
    counts: Array
    left: Array

    def solved(self) -> Array:
        """Return Δ = Σu, by Newton's method in u with halved steps."""
        weight = self.left.sum(axis=2, keepdims=True)
        residuals = self.counts - self.counts.sum(axis=2, keepdims=True) * softmax(self.logits, axis=2)
        # The first step is that of the problem without the parts, which ends it where the cells have no others.
        step = self._step(self.left - weight * softmax(self.logits, axis=2) - residuals, weight, self.logits)
        delta = self._spread(step)
        if not weight.any():
            return delta
        u, value = np.zeros_like(step), self._objective(np.zeros_like(step), residuals, weight)
        for _ in range(_STEPS):
            lengths, value = self._lengths(u, step, value, residuals, weight)
            u = u + lengths[:, np.newaxis, np.newaxis] * step
            delta = self._spread(u)
            f = self.logits + delta
            rest = self._bent(delta) + self.left - weight * softmax(f, axis=2) - residuals - u
            unsolved = np.abs(rest).max(axis=(1, 2)) > _TOL * np.maximum(weight.max(axis=(1, 2)), 1.0)
            if not (unsolved & (lengths > 0.0)).any():
                break
            step = self._step(rest, weight, f)
        return delta

    def _lengths(
        self, u: Array, step: Array, value: Array, residuals: Array, weight: Array
    ) -> tuple[Array, Array]:
        """Return how far to go along the steps, and the objectives there; none may rise beyond rounding."""
        lengths = np.zeros(len(u))

        def along(length: float, rows: Array) -> Array:
            lengths[rows] = length
            return self._objective(u + lengths[:, np.newaxis, np.newaxis] * step, residuals, weight)[rows]

        slack = _ROUNDING * np.abs(value)
        return backtrack_rows(along, value, np.zeros_like(value), slack=slack, trials=_HALVINGS)

    def _step(self, rest: Array, weight: Array, f: Array) -> Array:
        """Return Newton's step in u from the gradient's remainder at the logits f."""
        n_problems, n_cells, n_classes = f.shape
        size = n_cells * n_classes
        bend = weight[..., np.newaxis] * _curvatures(softmax(f, axis=2)) - self.curvatures
        system = bend @ self.covariances.reshape(n_problems, n_cells, n_classes, size)
        system = np.eye(size) + system.reshape(n_problems, size, size)
        return np.linalg.solve(system, rest.reshape(n_problems, size, 1)).reshape(f.shape)

    def _objective(self, u: Array, residuals: Array, weight: Array) -> Array:
        delta = self._spread(u)
        f = self.logits + delta
        quadratic = 0.5 * np.einsum("isk,isk->i", u - self._bent(delta), delta)
        loss = (weight[:, :, 0] * logsumexp(f, axis=2)).sum(axis=1) - np.einsum("isk,isk->i", self.left, f)
        return quadratic + np.einsum("isk,isk->i", residuals, delta) + loss

    def _spread(self, u: Array) -> Array:
        """Return Σu."""
        return (self.covariances @ u.reshape(len(u), -1, 1)).reshape(u.shape)

    def _bent(self, delta: Array) -> Array:
        """Return ΛΔ."""
        return np.einsum("iskl,isl->isk", self.curvatures, delta)
