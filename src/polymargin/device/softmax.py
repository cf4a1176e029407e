"""The softmax problem of `polymargin.solvers.softmax` on a device: all its arrays stay there, the host sees numbers."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polymargin.device import _adaptors
from polymargin.device.arrays import Device, resolve_device, with_memory_errors
from polymargin.solvers._softmax_problem import SoftmaxData, Units
from polymargin.solvers._softmax_steps import MAX_INNER, SLOW, step_kind
from polymargin.solvers.softmax import SoftmaxFit, newton

Array = NDArray[Any]

#: Up to this many coefficients the Hessian itself is factorised. Its products are one large matrix product and its
#: factor takes milliseconds, where each of the conjugate gradients, of which badly conditioned problems take a hundred,
#: starts thirty operations that take some microseconds each, however small they are.
_LARGEST = 1000


@with_memory_errors
def fit_softmax(
    data: SoftmaxData,
    start: SoftmaxFit | None = None,
    *,
    tol: float = 1e-7,
    max_iter: int = 100,
    device: str | Device | None = None,
) -> SoftmaxFit:
    """Solve a softmax problem on a device.

    Parameters
    ----------
    data : SoftmaxData
        The problem.
    start : SoftmaxFit or None
        A warm start.
    tol : float, default=1e-7
        The gradient norm to reach.
    max_iter : int, default=100
        Newton steps, at most.
    device : str, Device or None, default=None
        The device, see `resolve_device`.

    Returns
    -------
    SoftmaxFit

    See Also
    --------
    polymargin.solvers.softmax.fit_softmax : The same on the CPU.
    """
    return newton(DeviceProblem(data, resolve_device(device)), start, tol, max_iter)


class DeviceProblem:
    """A `polymargin.solvers._softmax_problem.ProblemLike` in arrays of a device.

    Parameters
    ----------
    data : SoftmaxData
        The problem.
    device : Device
        The device.
    """

    def __init__(self, data: SoftmaxData, device: Device):
        self.device = device
        self.xp = xp = device.xp
        self.kind = data.features.dtype
        n, n_classes = data.targets.shape
        self._total = float(data.weights.sum())
        weights = self._of_kind(data.weights)
        self._targets = self._of_kind(data.targets).T * weights
        self._mass = xp.sum(self._targets, axis=0)
        A = xp.concat([self._of_kind(data.features).T, self._of_kind(np.ones((1, n)))], axis=0)
        sizes = np.sqrt(device.to_numpy((A * A) @ weights) / self._total).astype(np.float64)
        self._W, anchor_size = None, None
        if data.anchor is not None:
            W = self._of_kind(data.anchor).T
            spread = W - xp.mean(W, axis=0, keepdims=True)
            anchor_size = float(xp.mean(spread * spread)) ** 0.5
        self.units = units = Units(data, sizes, anchor_size)
        self._A = A / self._of_kind(units.of_features)[:, None]
        if data.anchor is not None:
            self._W = W / units.of_anchor
        self._offset = None if data.offset is None else self._of_kind(data.offset)[:, None]
        self._ridge = device.to_device(units.ridge.ravel())
        self._rest = device.to_device(np.append(np.tile(units.rest, n_classes), units.anchor_rest))
        self._steps: _ConjugateGradients | None = None

    def _of_kind(self, values: Array) -> Any:
        return self.device.to_device(values, self.kind.name)

    def theta(self, coef: Array | None, intercept: Array | None, scale: float) -> Any:
        """Return θ, see `Units.theta`."""
        return self.device.to_device(self.units.theta(coef, intercept, scale))

    def coefficients(self, theta: Any) -> tuple[Array, Array, float | None]:
        """Return coefficients, intercepts and the scale, see `Units.coefficients`."""
        return self.units.coefficients(self.device.to_numpy(theta))

    def logits(self, theta: Any) -> Any:
        """Return the logits without the offset, see `ProblemLike`."""
        xp = self.xp
        theta = xp.astype(theta, self._A.dtype)
        logits = xp.reshape(theta[:-1], self.units.ridge.shape) @ self._A
        return logits if self._W is None else logits + theta[-1] * self._W

    def value(self, theta: Any, logits: Any) -> tuple[float, Any]:
        """Return the value and the class probabilities, see `ProblemLike`."""
        xp = self.xp
        if self._offset is not None:
            logits = logits + self._offset
        shifted = logits - xp.max(logits, axis=0, keepdims=True)
        P = xp.exp(shifted)
        sums = xp.sum(P, axis=0)
        entropies = self._mass * xp.log(sums) - xp.sum(self._targets * shifted, axis=0)
        scale_penalty = self.units.scale_ridge * (theta[-1] - self.units.of_anchor) ** 2
        penalty = 0.5 * (xp.sum(self._ridge * theta[:-1] ** 2) + scale_penalty)
        return float(xp.sum(entropies, dtype=xp.float64) + penalty), P / sums

    def gradient(self, theta: Any, P: Any) -> tuple[Any, float]:
        """Return the gradient and its norm, see `ProblemLike`."""
        xp = self.xp
        residuals = self._mass * P - self._targets
        products = xp.astype(residuals @ self._A.T, xp.float64)
        of_scale = self.units.scale_ridge * (theta[-1:] - self.units.of_anchor)
        if self._W is not None:
            of_scale = of_scale + xp.sum(self._W * residuals, dtype=xp.float64)
        gradient = xp.concat([self._ridge * theta[:-1] + xp.reshape(products, (-1,)), of_scale])
        return gradient, float(xp.max(xp.abs(gradient) / self._rest)) / self._total

    def step(self, P: Any, gradient: Any, forcing: float) -> Any:
        """Return a Newton step: an exact one where the Hessian is small, and positive definite in spite of rounding."""
        if self.units.ridge.size <= _LARGEST and self.kind == np.float64:
            step = self._exact_step(P, gradient)
            if step is not None:
                return step
        if self._steps is None:
            kind = step_kind(self.kind, self.units.ridge, self.units.scale_ridge, self._total)
            self._steps = _ConjugateGradients(
                self.device, self._A, self._W, self._mass, self.units, kind.name
            )
        return self._steps(P, gradient, forcing)

    def _exact_step(self, P: Any, gradient: Any) -> Any:
        """Return −H⁻¹ g; None where H has no Cholesky factor."""
        device, xp = self.device, self.xp
        H = self._hessian(P)
        # A small addition to the diagonal: without a ridge, H is singular in the direction of a constant added to all
        # logits.
        diagonal = xp.linalg.diagonal(H)
        more = xp.where(diagonal > 0.0, 1e-12 * diagonal, 1.0 - diagonal)
        H = H + xp.eye(H.shape[0], dtype=H.dtype, device=device.device) * more
        lower = _cholesky(xp, H)
        if lower is None:
            return None
        half = _adaptors.solve_triangle(xp, lower, -gradient[:, None])
        step = _adaptors.solve_triangle(xp, lower, half, transposed=True)[:, 0]
        # Not every library raises an error.
        return step if bool(xp.all(xp.isfinite(step))) else None

    def _hessian(self, P: Any) -> Any:
        """Return H: Σ_i m_i (p_ik δ_kl − p_ik p_il) a_i a_iᵀ and the ridges, and the scale's row and column."""
        device, xp = self.device, self.xp
        K, D = self.units.ridge.shape
        zeros = xp.zeros(K * D, dtype=xp.float64, device=device.device)
        H, own = zeros[:, None] + zeros, xp.reshape(zeros, (K, D, 1, 1)) * zeros[:D]
        roots = xp.sqrt(self._mass)
        for rows in self._parts:
            A = roots[rows] * self._A[:, rows]
            outer = xp.reshape(P[:, None, rows] * A, (K * D, -1))
            own = own + xp.reshape(outer @ A.T, (K, D, 1, D))
            H = H - outer @ outer.T
        same = xp.eye(K, dtype=xp.float64, device=device.device)[:, None, :, None]
        H = H + xp.reshape(own * same, H.shape)
        H = H + xp.eye(K * D, dtype=xp.float64, device=device.device) * self._ridge
        column, corner = xp.reshape(zeros, (K, D)), zeros[:1] + self.units.scale_ridge
        if self._W is not None:
            of_scale = self._mass * P * (self._W - xp.sum(P * self._W, axis=0))
            column, corner = of_scale @ self._A.T, corner + xp.sum(of_scale * self._W)
        column = xp.reshape(column, (-1, 1))
        border = xp.concat([column.T, corner[:, None]], axis=1)
        return xp.concat([xp.concat([H, column], axis=1), border], axis=0)

    @cached_property
    def _parts(self) -> list[slice]:
        """Rows of which probabilities times features are computed together."""
        n = self._A.shape[1]
        step = max(1, int(self.device.block_bytes() / (8.0 * self.units.ridge.size)))
        return [slice(start, min(start + step, n)) for start in range(0, n, step)]


class _ConjugateGradients:
    """Newton steps of many coefficients, see `polymargin.solvers._softmax_steps.NewtonSteps`.

    Parameters
    ----------
    device : Device
        The device.
    A : array of shape (D, n)
        Features.
    W : array of shape (K, n) or None
        The anchor.
    mass : array of shape (n,)
        Row weights.
    units : Units
        With the ridges.
    kind : {"float64", "float32"}
        The precision.
    """

    def __init__(self, device: Device, A: Any, W: Any, mass: Any, units: Units, kind: str):
        self.device, self.xp, self.shape = device, device.xp, units.ridge.shape
        self.dtype = getattr(self.xp, kind)
        self.A, self.mass = (self._cast(each) for each in (A, mass))
        self.W = None if W is None else self._cast(W)
        self.ridge, self.scale_ridge = device.to_device(units.ridge.ravel(), kind), units.scale_ridge
        self._eye = device.to_device(np.eye(self.shape[1]), kind)
        self._mean_ridge = device.to_device(units.ridge.mean(axis=0), kind)
        self._inverse: tuple[Any, Any] | None = None

    def _cast(self, array: Any) -> Any:
        return self.xp.astype(array, self.dtype, copy=False)

    def __call__(self, P: Any, gradient: Any, forcing: float) -> Any:
        """Return a step whose residual is the gradient times ``forcing``, or less."""
        xp, device = self.xp, self.device
        P = self._cast(P)
        if self._inverse is None:
            self._inverse = self._shared_inverse(P)
        weighted = self.mass * P
        residual = -self._cast(gradient)
        step, direction = None, self._preconditioned(residual)
        rho = rho_first = float(residual @ direction)
        n_inner = 0
        while n_inner < MAX_INNER:
            n_inner += 1
            product = self._product(direction, P, weighted)
            bend = direction @ product
            length = rho / bend
            following = residual - length * product
            z = self._preconditioned(following)
            # Both numbers at once: the host waits for the device but once in every step.
            bend_here, rho_next = device.to_numpy(xp.stack([bend, following @ z])).tolist()
            if bend_here <= 1e-14 * rho:  # no curvature left along this direction
                break
            residual = following
            step = length * direction if step is None else step + length * direction
            if rho_next <= forcing**2 * rho_first:
                break
            direction = z + (rho_next / rho) * direction
            rho = rho_next
        if n_inner > SLOW:
            self._inverse = None
        return xp.astype(direction if step is None else step, xp.float64, copy=False)

    def _product(self, v: Any, P: Any, weighted: Any) -> Any:
        """Return H v."""
        xp = self.xp
        U = xp.reshape(v[:-1], self.shape) @ self.A
        if self.W is not None:
            U = U + v[-1] * self.W
        U = weighted * (U - xp.sum(P * U, axis=0))
        of_scale = self.scale_ridge * v[-1:]
        if self.W is not None:
            of_scale = of_scale + xp.sum(self.W * U)
        return xp.concat([self.ridge * v[:-1] + xp.reshape(U @ self.A.T, (-1,)), of_scale])

    def _shared_inverse(self, P: Any) -> tuple[Any, Any]:
        """Return L⁻¹, where LLᵀ is H's mean over the classes, and the scale's curvature."""
        xp = self.xp
        variances = self.mass * xp.mean(P - P * P, axis=0)
        scaled = xp.sqrt(xp.where(variances > 0.0, variances, xp.zeros_like(variances))) * self.A
        mean = scaled @ scaled.T + self._eye * self._mean_ridge
        # Features that are constant, repeated or more than the rows leave directions without curvature.
        diagonal = xp.linalg.diagonal(mean) * (1.0 + (1e-5 if self.dtype == xp.float32 else 1e-8))
        diagonal = xp.where(diagonal > 0.0, diagonal, xp.ones_like(diagonal))
        lower = _cholesky(xp, mean + self._eye * (diagonal - xp.linalg.diagonal(mean)))
        half = None if lower is None else _adaptors.solve_triangle(xp, lower, self._eye)
        if half is None or not bool(xp.all(xp.isfinite(half))):
            half = self._eye / xp.sqrt(diagonal)  # the diagonal alone will do
        curvature = xp.sum(self._eye[:1, 0]) * self.scale_ridge
        if self.W is not None:
            of_scale = P * (self.W - xp.sum(P * self.W, axis=0))
            curvature = curvature + xp.sum(self.mass * xp.sum(of_scale * self.W, axis=0))
        return half, xp.where(curvature > 0.0, curvature, xp.ones_like(curvature))

    def _preconditioned(self, v: Any) -> Any:
        """Return the shared inverse times v."""
        xp = self.xp
        assert self._inverse is not None
        half, curvature = self._inverse
        # Two products with the inverse triangle take less than two solutions with the triangle.
        B = (xp.reshape(v[:-1], self.shape) @ half.T) @ half
        return xp.concat([xp.reshape(B, (-1,)), v[-1:] / curvature])


def _cholesky(xp: Any, matrix: Any) -> Any:
    """Return the lower Cholesky factor; None where a library says that there is none."""
    try:
        return xp.linalg.cholesky(matrix)
    except Exception as error:
        if not _adaptors.is_not_positive_definite(error):
            raise
    return None
