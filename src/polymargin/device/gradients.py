"""Gradients of kernel expansions on a device: those of `polymargin.solvers.gradients`, for the learned metric."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polymargin.device.arrays import Device, resolve_device, with_memory_errors
from polymargin.device.kernels import DeviceKernel, DeviceRows
from polymargin.kernels import RBF, Blend, Exponential, Kernel, Laplacian, Linear, Polynomial
from polymargin.solvers.gradients import KINK

Array = NDArray[Any]

#: One over the width of a kink, at most: an infinite factor would make NaN of equal values.
_STEEPEST = 1e300
#: How a part of a kernel depends on rows x and z, up to a factor φ for every two rows: its gradient in z is
#: φ (x - z), -φ sign(z - x), or φ (x - centre).
_DIFFERENCES, _SIGNS, _ROWS = range(3)


@with_memory_errors
def mean_squared_gradients(
    kernel: Kernel,
    X: Any,
    coefficients: Array,
    gamma: float | Array,
    device: str | Device | None = None,
    *,
    Z: Any = None,
    weights: Array | None = None,
    kink: float = KINK,
) -> Array:
    """Return the mean squares of the partial derivatives of f_l(z) = Σ_i a_il k(x_i, z), shape (L, d).

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
    device : str, Device or None, default=None
        The device, see `resolve_device`.
    Z : array or sparse matrix of shape (m, d), optional
        The rows at which gradients are taken; X itself if None.
    weights : array of shape (m,) or (m, L), optional
        The weights of these rows, for every machine if they differ; equal ones if None.
    kink : float
        Within which part of the spread derivatives have no jump, as in `polymargin.solvers.gradients`.

    Returns
    -------
    ndarray of shape (L, d)

    See Also
    --------
    polymargin.solvers.gradients.mean_squared_gradients : The same on the CPU.

    Examples
    --------
    >>> X = np.array([[0.0, 0.0], [1.0, 2.0]])
    >>> mean_squared_gradients(Linear(), X, np.array([[5.0], [3.0]]), 1.0)
    array([[ 9., 36.]])
    """
    expansion = _Expansion(kernel, X, resolve_device(device), kink)
    at = expansion.kernel.training if Z is None else expansion.kernel.rows(Z)
    coefficients = np.asarray(coefficients, dtype=np.float64)
    n_machines = coefficients.shape[1]
    gammas = np.broadcast_to(np.asarray(gamma, dtype=np.float64), (n_machines,))
    shares = np.ones(len(at)) if weights is None else np.asarray(weights, dtype=np.float64)
    shares = np.broadcast_to(shares[:, np.newaxis] if shares.ndim == 1 else shares, (len(at), n_machines))
    total = np.zeros((n_machines, at.values.shape[1]))
    # Machines share the kernel values of all rows, also of those that some have not seen: a device computes large
    # matrices faster than many small ones.
    for value in np.unique(gammas).tolist():
        machines = np.flatnonzero(gammas == value)
        rows = np.flatnonzero(coefficients[:, machines].any(axis=1))
        if rows.size:
            total[machines] = expansion.sums_of_squares(
                value, rows, coefficients[np.ix_(rows, machines)], at, shares[:, machines]
            )
    return total / shares.sum(axis=0)[:, np.newaxis]


class _Expansion:
    """The kernel on a device, and how near is near."""

    def __init__(self, kernel: Kernel, X: Any, device: Device, kink: float):
        self.device, self.kernel = device, DeviceKernel(kernel, X, device)
        rows = self.kernel.training.values
        variance = device.to_numpy(device.xp.var(rows, axis=0))
        self._near = kink * float(np.sqrt(2.0 * variance.sum()))
        with np.errstate(divide="ignore"):
            steepness = np.minimum(1.0 / (kink * np.sqrt(variance)), _STEEPEST)
        self._steepness = device.to_device(steepness)

    def sums_of_squares(
        self, gamma: float, rows: Array, coefficients: Array, at: DeviceRows, weights: Array
    ) -> Array:
        """Return Σ_m w_ml (∂f_l/∂z_j at z_m)² of machines with one gamma and the same rows, shape (l, d)."""
        device, xp = self.device, self.device.xp
        training = self.kernel.training
        X = training if rows.size == len(training) else self.kernel.take(rows)
        a, shares = device.to_device(coefficients), device.to_device(weights)
        total = xp.zeros((a.shape[1], X.values.shape[1]), dtype=xp.float64, device=device.device)
        # Beside the blocks of the kernel there are the gradients, L × d numbers for every row.
        for block in self.kernel.blocks(len(at), len(X) + 2 * a.shape[1] * X.values.shape[1]):
            Z = at[block].values
            gradients = xp.zeros((Z.shape[0], a.shape[1], Z.shape[1]), dtype=xp.float64, device=device.device)
            for kind, factors in self._factors(self.kernel.parts(at[block], X), gamma):
                self._add(gradients, kind, factors, Z, X.values, a)
            total += xp.sum(shares[block, :][:, :, None] * gradients * gradients, axis=0)
        return device.to_numpy(total)

    def _factors(self, parts: list[Any], gamma: float) -> Iterator[tuple[int, Any]]:
        """Yield the parts of the kernel's gradient, and of each the factor φ for every two rows, shape (m, n)."""
        xp, base = self.device.xp, parts[0]
        match self.kernel.kernel:
            case RBF():
                yield _DIFFERENCES, 2.0 * gamma * self.kernel.values(parts, gamma)
            case Exponential():
                apart = xp.where(base > self._near, base, xp.full_like(base, self._near))
                factors = (
                    gamma * self.kernel.values(parts, gamma) / xp.where(base > 0.0, apart, xp.ones_like(base))
                )
                # Of equal rows the difference is zero; it need not be multiplied with anything large.
                yield _DIFFERENCES, xp.where(base > 0.0, factors, xp.zeros_like(base))
            case Laplacian():
                yield _SIGNS, gamma * self.kernel.values(parts, gamma)
            case Blend(share=share, ratio=ratio):
                yield _SIGNS, gamma * ratio * share * xp.exp(-gamma * ratio * base)
                yield _DIFFERENCES, 2.0 * gamma * (1.0 - share) * xp.exp(-gamma * parts[1])
            case Polynomial(degree=degree, coef0=coef0):
                yield _ROWS, degree * gamma * (gamma * base + float(coef0)) ** (degree - 1.0)
            case Linear():
                yield _ROWS, xp.ones_like(base)
            case _:
                raise NotImplementedError(f"{self.kernel.kernel!r} does not say its gradient")

    def _add(self, gradients: Any, kind: int, factors: Any, Z: Any, X: Any, a: Any) -> None:
        """Add the part's gradients at the rows Z to those of every machine, shape (m, l, d)."""
        xp = self.device.xp
        if kind == _SIGNS:
            # Several columns at a time, as the memory of a block allows.
            step = max(1, int(self.device.block_bytes() / (24.0 * max(1, Z.shape[0] * X.shape[0]))))
            for start in range(0, Z.shape[1], step):
                some = slice(start, min(start + step, Z.shape[1]))
                rows, others = Z[:, some].T, X[:, some].T  # shapes (c, m) and (c, n)
                signs = (rows[:, :, None] - others[:, None, :]) * self._steepness[some][:, None, None]
                signs = factors[None, :, :] * xp.clip(signs, min=-1.0, max=1.0)
                gradients[:, :, some] = gradients[:, :, some] - xp.permute_dims(signs @ a, (1, 2, 0))
            return
        # Several machines at a time, as the memory of a block allows.
        step = max(1, int(self.device.block_bytes() / (24.0 * max(1, X.shape[0] * X.shape[1]))))
        for start in range(0, a.shape[1], step):
            few = slice(start, min(start + step, a.shape[1]))
            products = xp.reshape(a[:, few][:, :, None] * X[:, None, :], (X.shape[0], -1))
            part = xp.reshape(factors @ products, (Z.shape[0], -1, Z.shape[1]))
            if kind == _DIFFERENCES:
                part = part - (factors @ a[:, few])[:, :, None] * Z[:, None, :]
            gradients[:, few, :] = gradients[:, few, :] + part
