"""The objective of `polymargin.solvers.softmax`, its gradient, and its Newton steps."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from polymargin.solvers._softmax_steps import NewtonSteps

Array = NDArray[Any]

#: A feature whose root mean square is below this is treated as zero.
_ZERO = 1e-100


class Problem:
    """The objective over θ, one vector of the coefficients and intercepts, class by class, and of the anchor's scale.

    Inside, the rows of the data run last: probabilities have the shape (K, n), so that sums over classes add long
    vectors. Features and the anchor are in units near their root mean squares; the units are powers of two, which round
    nothing.

    Parameters
    ----------
    features : ndarray of shape (n, d)
        X, whose precision is that of all products with it.
    targets : ndarray of shape (n, K)
        For every row a distribution over the classes.
    weights : ndarray of shape (n,)
        Row weights.
    ridge : float or array that broadcasts to (d, K)
        λ of the coefficients.
    intercept_ridge : float
        λ of the intercepts.
    anchor : ndarray of shape (n, K) or None
        W.
    scale_ridge : float
        λ of the anchor's scale.
    offset : ndarray of shape (K,) or None
        A constant added to the logits of every row.
    """

    def __init__(
        self,
        features: Array,
        targets: Array,
        weights: Array,
        ridge: float | Array,
        intercept_ridge: float,
        anchor: Array | None,
        scale_ridge: float,
        offset: Array | None = None,
    ):
        n, d = features.shape
        n_classes = targets.shape[1]
        _check(features, targets, weights, ridge, intercept_ridge, anchor, scale_ridge)
        self.kind = features.dtype
        self.total = float(weights.sum())
        # Targets need not sum to one exactly, because of rounding or of partial rows.
        self.targets = np.ascontiguousarray(targets.T) * weights
        self.mass = self.targets.sum(axis=0)
        self.A = np.empty((d + 1, n), self.kind)
        self.A[:-1], self.A[-1] = features.T, 1.0
        sizes = np.sqrt(np.square(self.A) @ weights / self.total).astype(np.float64)
        self.units, self.rest = _powers_of_two(sizes)
        self.A /= self.units.astype(self.kind)[:, np.newaxis]
        self.ridge = np.empty((n_classes, d + 1))
        self.ridge[:, :-1], self.ridge[:, -1] = np.transpose(ridge), intercept_ridge
        self.ridge /= self.units**2
        self.W, self.anchor_unit, self.anchor_rest = None, 1.0, 1.0
        if anchor is not None:
            spread = anchor - anchor.mean(axis=1, keepdims=True)
            unit, rest = _powers_of_two(np.sqrt(np.mean(spread**2, dtype=np.float64)))
            self.anchor_unit, self.anchor_rest = float(unit), float(rest)
            self.W = np.ascontiguousarray(anchor.T) / self.kind.type(unit)
        self.offset = None if offset is None else np.asarray(offset, self.kind)[:, np.newaxis]
        self.scale_ridge = scale_ridge / self.anchor_unit**2
        self.step = NewtonSteps(self.A, self.W, self.mass, self.ridge, self.scale_ridge, self.total)

    def pack(self, coef: Array, intercept: Array, scale: float) -> Array:
        """Return θ."""
        B = np.vstack([coef, intercept]).T * self.units
        return np.append(B.ravel(), scale * self.anchor_unit)

    def unpack(self, theta: Array) -> tuple[Array, Array, float | None]:
        """Return coefficients, shape (d, K), intercepts, shape (K,), and the anchor's scale, if there is an anchor."""
        B = (self.coefficients(theta) / self.units).T
        scale = None if self.W is None else float(theta[-1]) / self.anchor_unit
        return B[:-1].copy(), B[-1].copy(), scale

    def coefficients(self, theta: Array) -> Array:
        """Return the coefficients of the features and the intercepts in θ, shape (K, d + 1), a view."""
        return theta[:-1].reshape(self.ridge.shape)

    def along(self, theta: Array) -> Array:
        """Return the logits, which are linear in θ, shape (K, n)."""
        logits = self.coefficients(theta).astype(self.kind, copy=False) @ self.A
        if self.W is not None:
            logits += self.kind.type(theta[-1]) * self.W
        return logits

    def loss(self, logits: Array) -> tuple[float, Array]:
        """Return the cross-entropy and the class probabilities; the offset is not part of the logits."""
        if self.offset is not None:
            logits = logits + self.offset
        shifted = logits - logits.max(axis=0)
        P = np.exp(shifted)
        sums = P.sum(axis=0)
        P /= sums
        return float(self.mass @ np.log(sums) - np.vdot(self.targets, shifted)), P

    def penalty(self, theta: Array) -> float:
        """Return the ridge penalty."""
        B = self.coefficients(theta)
        return 0.5 * float(
            np.vdot(self.ridge, B * B) + self.scale_ridge * (theta[-1] - self.anchor_unit) ** 2
        )

    def gradient(self, theta: Array, P: Array) -> Array:
        """Return the gradient of cross-entropy and penalty."""
        residuals = self.mass * P
        residuals -= self.targets
        gradient = np.empty(theta.size)
        B = self.coefficients(gradient)
        np.multiply(self.ridge, self.coefficients(theta), out=B)
        B += residuals @ self.A.T
        scale_gradient = 0.0 if self.W is None else float(np.vdot(self.W, residuals))
        gradient[-1] = scale_gradient + self.scale_ridge * (theta[-1] - self.anchor_unit)
        return gradient

    def measure(self, gradient: Array) -> float:
        """Return the gradient's largest entry per unit of weight, in the features' root mean squares."""
        largest = (np.abs(self.coefficients(gradient)).max(axis=0) / self.rest).max()
        return float(max(largest, abs(gradient[-1]) / self.anchor_rest) / self.total)


def _powers_of_two(sizes: Any) -> tuple[Any, Any]:
    """Return the powers of two near sizes, and what sizes are in these units; silence is left alone."""
    heard = sizes > _ZERO
    units = np.exp2(np.rint(np.log2(np.where(heard, sizes, 1.0))))
    return units, np.where(heard, sizes, 1.0) / units


def _check(
    features: Array,
    targets: Array,
    weights: Array,
    ridge: float | Array,
    intercept_ridge: float,
    anchor: Array | None,
    scale_ridge: float,
) -> None:
    """Validate shapes, weights and ridges."""
    n = len(features)
    if targets.shape[0] != n or weights.shape != (n,):
        raise ValueError(f"{n} rows of features need as many targets and weights")
    if anchor is not None and anchor.shape != targets.shape:
        raise ValueError(f"the anchor must have the shape {targets.shape} of the targets, not {anchor.shape}")
    if np.min(ridge, initial=0.0) < 0.0 or intercept_ridge < 0.0 or scale_ridge < 0.0:
        raise ValueError("a ridge cannot be negative")
    if not weights.sum() > 0.0:
        raise ValueError("some row must have a positive weight")
