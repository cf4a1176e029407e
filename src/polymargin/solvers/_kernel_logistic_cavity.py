"""Leave-one-out logits of kernel logistic regression from the Hessian at the optimum.

All other cells are approximated quadratically, the row's own cell is not. With Σ the K×K block of the cell in
(Q⁻¹ + Λ)⁻¹, biases included, f its logits at the optimum, s its weight, a = s(y − p) and Λ = s(diag(p) − ppᵀ), the
logits f + Δ without one of its rows minimise

    ½ Δᵀ(Σ⁻¹ − Λ)Δ + a·Δ + s' logsumexp(f + Δ) − c'·(f + Δ),

where s' and c' are the weight and the class counts of the rows that are left. In a cell of one row this is one Newton
step of the problem without the row, Δ = −(I − ΣΛ)⁻¹Σa. (In a cell of several rows one step would be far too short where
the row is the last one of its class.)
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp, softmax

from polymargin.solvers._kernel_logistic_hessian import Hessian

Array = NDArray[Any]

__all__ = ["Observations", "left_out_logits"]

#: The Newton steps within cells, the gradient at which they end, and the halvings of a step. (Where nothing but the
#: cell's own rows determines its logits, that of a class whose last row is left out falls by one with every step.)
_STEPS, _TOL, _HALVINGS = 30, 1e-9, 20
#: What rounding may add to the objective, relatively.
_ROUNDING = 1e-12


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
    """

    cell: Array
    targets: Array
    weights: Array

    @cached_property
    def counts(self) -> Array:
        """The weight of every class in every cell, shape (n, K)."""
        sums = [np.bincount(self.cell, self.weights * column) for column in self.targets.T]
        return np.stack(sums, axis=1)

    def merged(self) -> tuple[Array, Array]:
        """Return the targets (n, K) and the weights (n,) of the cells."""
        weights = np.bincount(self.cell, self.weights)
        return self.counts / weights[:, np.newaxis], weights

    @cached_property
    def kinds(self) -> tuple[Array, Array]:
        """The different rows by cell, target and weight: the first of each, and the kind of every row."""
        if self.counts.shape[0] == self.cell.size:
            every = np.arange(self.cell.size)
            return every, every
        keys = np.column_stack([self.cell, self.weights, self.targets])
        as_bytes = np.ascontiguousarray(keys).view(np.dtype((np.void, keys.itemsize * keys.shape[1]))).ravel()
        _, first, inverse = np.unique(as_bytes, return_index=True, return_inverse=True)
        return first, inverse.ravel()


def left_out_logits(hessian: Hessian, logits: Array, rows: Observations) -> Array:
    """Return the logits of every row without it, shape (N, K), up to a constant per row.

    Parameters
    ----------
    hessian : Hessian
        At or near the optimum; its factors are overwritten.
    logits : ndarray of shape (n, K)
        Of the cells, at the optimum.
    rows : Observations
        The rows.
    """
    first, kind = rows.kinds
    cell, weights = rows.cell[first], rows.weights[first, np.newaxis]
    problem = _WithoutRow(
        covariances=hessian.covariances()[cell],
        curvatures=rows.counts.sum(axis=1)[cell, np.newaxis, np.newaxis] * _curvatures(hessian.P)[cell],
        logits=logits[cell],
        counts=rows.counts[cell],
        left=np.maximum(rows.counts[cell] - weights * rows.targets[first], 0.0),
    )
    return (logits[cell] + problem.solved())[kind]


def _curvatures(P: Array) -> Array:
    """Return diag(p) − ppᵀ of every row, shape (n, K, K)."""
    found = -P[:, :, np.newaxis] * P[:, np.newaxis, :]
    k = np.arange(P.shape[1])
    found[:, k, k] += P
    return found


@dataclass(frozen=True)
class _WithoutRow:
    """The problems of the cells without one of their rows; all arrays have one entry for each problem.

    Attributes
    ----------
    covariances, curvatures : ndarray of shape (M, K, K)
        Σ and Λ of the whole cell.
    logits, counts : ndarray of shape (M, K)
        The logits at the optimum, and the weights of the classes.
    left : ndarray of shape (M, K)
        The weights of the classes without the row.
    """

    covariances: Array
    curvatures: Array
    logits: Array
    counts: Array
    left: Array

    def solved(self) -> Array:
        """Return Δ = Σu, by Newton's method in u with halved steps."""
        weight = self.left.sum(axis=1, keepdims=True)
        pull = self.counts - self.counts.sum(axis=1, keepdims=True) * softmax(self.logits, axis=1)
        # The first step is that of the problem without the row, which ends it where the cell has no other.
        step = self._step(self.left - weight * softmax(self.logits, axis=1) - pull, weight, self.logits)
        delta = self._times(self.covariances, step)
        if not weight.any():
            return delta
        u, value = np.zeros_like(step), self._objective(np.zeros_like(step), pull, weight)
        for _ in range(_STEPS):
            for _ in range(_HALVINGS):
                reached = self._objective(u + step, pull, weight)
                worse = reached > value + _ROUNDING * np.abs(value)
                if not worse.any():
                    break
                step[worse] *= 0.5
            step[worse] = 0.0
            u, value = u + step, np.where(worse, value, reached)
            delta = self._times(self.covariances, u)
            f = self.logits + delta
            bent = self._times(self.curvatures, delta)
            rest = bent + self.left - weight * softmax(f, axis=1) - pull - u
            open_rows = np.abs(rest).max(axis=1) > _TOL * np.maximum(weight[:, 0], 1.0)
            if not (open_rows & ~worse).any():
                break
            step = self._step(rest, weight, f)
        return delta

    def _step(self, rest: Array, weight: Array, f: Array) -> Array:
        """Return Newton's step in u from the gradient's remainder at the logits f."""
        bend = weight[:, :, np.newaxis] * _curvatures(softmax(f, axis=1)) - self.curvatures
        system = np.eye(f.shape[1]) + bend @ self.covariances
        return np.linalg.solve(system, rest[:, :, np.newaxis])[:, :, 0]

    def _objective(self, u: Array, pull: Array, weight: Array) -> Array:
        delta = self._times(self.covariances, u)
        f = self.logits + delta
        quadratic = 0.5 * np.einsum("ik,ik->i", u - self._times(self.curvatures, delta), delta)
        loss = weight[:, 0] * logsumexp(f, axis=1) - np.einsum("ik,ik->i", self.left, f)
        return quadratic + np.einsum("ik,ik->i", pull, delta) + loss

    @staticmethod
    def _times(matrices: Array, vectors: Array) -> Array:
        return np.einsum("ikl,il->ik", matrices, vectors)
