"""Gradients of kernel expansions: how steep machines are along every column, in the mean over rows.

The mean of the squares of ∂f/∂x_j is the diagonal of the average gradient outer product (Radhakrishnan, Beaglehole,
Pandit and Belkin 2024, Mechanism for feature learning in neural networks and backpropagation-free machine learning
models, Science 383).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from polymargin._memory import block_rows
from polymargin._threads import in_threads
from polymargin.kernels import RBF, Blend, Exponential, Kernel, Laplacian, Linear, Polynomial
from polymargin.kernels._base import weighted_moments
from polymargin.solvers._sign_sums import subtract_sign_sums

__all__ = ["KINK", "mean_squared_gradients"]

Array = NDArray[Any]

#: The distance, and the difference of a column, have a kink where two rows, or two values, are equal: the derivative
#: jumps from -1 to +1. Within this part of the root mean squared distance of two rows (of the column's standard
#: deviation) it is replaced by a straight line through zero. Rows that are equal but for 1e-9 of their values then
#: change their share of a gradient by some 1e-6 of it. Of two rows by chance, 0.06 % are so near in a column.
KINK = 1e-3
#: The largest number of rows of a block: more do not make the matrix products faster, and leave the cache.
_BLOCK_ROWS = 256
#: Signs of more pairs of rows than this, times columns, are summed by a compiled loop. NumPy takes 0.012 s for as many,
#: the loop 0.002 s; but to import numba takes 0.4 s, to compile the loop for the first time 1.2 s, and a fit with
#: learned metrics takes gradients some twelve times.
_MANY_SIGNS = 1e7
#: One over the width of a kink, at most: an infinite factor would make NaN of equal values.
_STEEPEST = 1e300

#: How a part of a kernel depends on rows x and z, up to a factor φ for every two rows: its gradient in z is
#: φ (x - z), -φ sign(z - x), or φ (x - centre).
_DIFFERENCES, _SIGNS, _ROWS = range(3)


def mean_squared_gradients(
    kernel: Kernel,
    X: Any,
    coefficients: Array,
    gamma: float | Array,
    *,
    Z: Any = None,
    weights: Array | None = None,
    kink: float = KINK,
) -> Array:
    """Return the mean squares of the partial derivatives of f_l(z) = Σ_i a_il k(x_i, z), shape (L, d).

    Entry (l, j) is Σ_m w_ml (∂f_l/∂z_j at z_m)² / Σ_m w_ml.

    Parameters
    ----------
    kernel : Kernel
        "rbf", "exponential", "laplacian", "blend", "poly" or "linear", as it was fitted.
    X : array or sparse matrix of shape (n, d)
        The rows of the expansion.
    coefficients : array of shape (n, L)
        A column for every machine, zero for rows that it has not seen.
    gamma : float or array of shape (L,)
        The parameter of the kernel, of every machine if they differ.
    Z : array or sparse matrix of shape (m, d), optional
        The rows at which gradients are taken; X itself if None.
    weights : array of shape (m,) or (m, L), optional
        The weights of these rows, for every machine if they differ; equal ones if None.
    kink : float
        Where two rows of an "exponential" kernel are nearer than this part of the root mean squared distance, or two
        values of a "laplacian" kernel than this part of their column's standard deviation, the derivative of the
        distance is a straight line through zero; 0: a jump, with zero for equal ones.

    Returns
    -------
    ndarray of shape (L, d)

    Notes
    -----
    L machines of n rows cost 2n²(L + 1)d operations for m = n, beside the kernel's values; those of the Laplacian
    kernel as many, in a loop that is compiled if there are many. For 3000 rows of 50 columns, in factorisations of the
    n × n matrix: 0.6 for one machine and 1.5 for ten with the exponential kernel, 1.5 and 2.9 with the Laplacian.

    Examples
    --------
    >>> X = np.array([[0.0, 0.0], [1.0, 2.0]])
    >>> mean_squared_gradients(Linear(), X, np.array([[5.0], [3.0]]), 1.0)
    array([[ 9., 36.]])
    """
    X, Z = _as_doubles(X), None if Z is None else _as_doubles(Z)
    Z = X if Z is None else Z
    coefficients = np.asarray(coefficients, dtype=np.float64)
    n_machines = coefficients.shape[1]
    gammas = np.broadcast_to(np.asarray(gamma, dtype=np.float64), (n_machines,))
    shares = np.ones(Z.shape[0]) if weights is None else np.asarray(weights, dtype=np.float64)
    shares = np.broadcast_to(shares[:, np.newaxis] if shares.ndim == 1 else shares, (Z.shape[0], n_machines))
    expansion = _Expansion(kernel, X, coefficients, gammas, kink)
    # A machine is looked at where its weights are positive, in blocks that hold the base matrix with what is made of
    # it, and the gradients with their squares. Blocks and sums do not depend on the number of threads.
    tasks = []
    for group in expansion.groups:
        looked_at = np.flatnonzero(shares[:, group.machines].any(axis=1))
        per_row = 8 * (4 * kernel.base_numbers * group.rows.size + 2 * group.machines.size * X.shape[1])
        step = min(block_rows(per_row), _BLOCK_ROWS)
        tasks += [(group, looked_at[start : start + step]) for start in range(0, looked_at.size, step)]

    signs = sum(rows.size * group.rows.size for group, rows in tasks) * X.shape[1]
    if signs > _MANY_SIGNS and isinstance(kernel, (Laplacian, Blend)):
        from polymargin.solvers import _sign_sums_compiled  # numba takes long to import

        expansion.subtract_sign_sums = _sign_sums_compiled.subtract_sign_sums

    def sums(task: tuple[_Machines, Array]) -> Array:
        group, rows = task
        return expansion.sums_of_squares(group, Z[rows], shares[np.ix_(rows, group.machines)])

    total = np.zeros((n_machines, X.shape[1]))
    for (group, _), part in zip(tasks, in_threads(sums, tasks), strict=True):
        total[group.machines] += part
    return total / shares.sum(axis=0)[:, np.newaxis]


@dataclass(frozen=True)
class _Machines:
    """Machines that have a gamma and the rows with coefficients in common, and what computes their base matrix."""

    gamma: float
    machines: Array
    rows: Array
    base_to: Callable[[Any], Array]


class _Expansion:
    """Machines Σ_i a_il k(x_i, ·), in groups."""

    def __init__(self, kernel: Kernel, X: Any, coefficients: Array, gammas: Array, kink: float) -> None:
        self.kernel, self.X, self.coefficients = kernel, X, coefficients
        self.subtract_sign_sums = subtract_sign_sums
        mean, variance = weighted_moments(X, np.ones(X.shape[0]))
        # A shift changes no difference of two rows, but saves the digits that a common mean would cost.
        self.centre = mean
        if isinstance(kernel, (Linear, Polynomial)):
            self.centre = np.zeros(X.shape[1]) if kernel.centre is None else kernel.centre
        self.near = kink * float(np.sqrt(2.0 * variance.sum()))
        with np.errstate(divide="ignore"):
            self.steepness = np.minimum(1.0 / (kink * np.sqrt(variance)), _STEEPEST)
        found: dict[tuple[float, bytes], list[int]] = {}
        for machine, gamma in enumerate(gammas.tolist()):
            seen = np.packbits(coefficients[:, machine] != 0.0).tobytes()
            found.setdefault((gamma, seen), []).append(machine)
        self.groups = []
        for (gamma, _), machines in found.items():
            rows = np.flatnonzero(coefficients[:, machines[0]])
            if rows.size:
                self.groups.append(_Machines(gamma, np.array(machines), rows, kernel.to_rows(X[rows])))

    def sums_of_squares(self, group: _Machines, Z: Any, weights: Array) -> Array:
        """Return Σ_m w_ml (∂f_l/∂z_j at z_m)² of the machines of a group, shape (l, d)."""
        rows = _dense(Z) - self.centre
        gradients = np.zeros((group.machines.size, *rows.shape))
        for kind, factors in self._factors(group.base_to(Z), group.gamma):
            self._add(gradients, kind, factors, rows, group)
        np.square(gradients, out=gradients)
        return np.einsum("lmd,ml->ld", gradients, weights)

    def _factors(self, base: Array, gamma: float) -> Iterator[tuple[int, Array]]:
        """Yield the parts of the kernel's gradient, and of each the factor φ for every two rows, shape (m, n)."""
        match self.kernel:
            case RBF():
                yield _DIFFERENCES, 2.0 * gamma * self.kernel.apply(base, gamma)
            case Exponential():
                factors = self.kernel.apply(base, gamma)
                factors *= gamma
                np.divide(factors, np.maximum(base, self.near), out=factors, where=base > 0.0)
                # Of equal rows the difference is zero; it need not be multiplied with anything large.
                factors[base == 0.0] = 0.0
                yield _DIFFERENCES, factors
            case Laplacian():
                yield _SIGNS, gamma * self.kernel.apply(base, gamma)
            case Blend(share=share, ratio=ratio):
                yield _SIGNS, gamma * ratio * share * np.exp(-gamma * base[..., 0])
                yield _DIFFERENCES, 2.0 * gamma * (1.0 - share) * np.exp(-gamma * base[..., 1])
            case Polynomial(degree=degree, coef0=coef0):
                yield _ROWS, degree * gamma * np.power(gamma * base + coef0, degree - 1.0)
            case Linear():
                yield _ROWS, np.ones_like(base)
            case _:
                raise NotImplementedError(f"{self.kernel!r} does not say its gradient")

    def _add(self, gradients: Array, kind: int, factors: Array, Z: Array, group: _Machines) -> None:
        """Add the part's gradients at the rows Z to those of the machines of a group."""
        d = Z.shape[1]
        step = block_rows(8.0 * (d + 1) * group.machines.size)
        for start in range(0, group.rows.size, step):
            some = slice(start, start + step)
            X, phi = _dense(self.X[group.rows[some]]) - self.centre, factors[:, some]
            a = self.coefficients[np.ix_(group.rows[some], group.machines)]
            if kind == _SIGNS:
                columns_first = np.ascontiguousarray(X.T), np.ascontiguousarray(a.T)
                self.subtract_sign_sums(
                    gradients, np.ascontiguousarray(phi), Z, *columns_first, self.steepness
                )
                continue
            # One product for all of these machines: φ (a₁X, a₁, a₂X, a₂, …).
            scaled = np.empty((X.shape[0], a.shape[1], d + 1))
            np.multiply(a[:, :, np.newaxis], X[:, np.newaxis], out=scaled[:, :, :d])
            scaled[:, :, d] = a
            sums = (phi @ scaled.reshape(X.shape[0], -1)).reshape(Z.shape[0], a.shape[1], d + 1)
            for machine in range(a.shape[1]):
                gradients[machine] += sums[:, machine, :d]
                if kind == _DIFFERENCES:
                    gradients[machine] -= sums[:, machine, d:] * Z


def _as_doubles(X: Any) -> Any:
    """Return rows as float64, sparse ones in CSR format."""
    if sparse.issparse(X):
        return X.tocsr().astype(np.float64, copy=False)
    return np.asarray(X, dtype=np.float64)


def _dense(X: Any) -> Array:
    """Return rows as a dense array."""
    return X.toarray() if sparse.issparse(X) else X
