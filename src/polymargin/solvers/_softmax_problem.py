"""The objective of a softmax fit, in units of its features; `polymargin.solvers.softmax` minimises it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from polymargin._threads import in_threads
from polymargin.solvers._softmax_steps import NewtonSteps

Array = NDArray[Any]

#: A feature whose root mean square is below this is treated as zero.
_ZERO = 1e-100


@dataclass(frozen=True)
class SoftmaxData:
    """What defines a problem: NumPy arrays of one precision, and ridges.

    Attributes
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

    features: Array
    targets: Array
    weights: Array
    ridge: float | Array
    intercept_ridge: float
    anchor: Array | None
    scale_ridge: float
    offset: Array | None = None

    def __post_init__(self) -> None:
        n = self.features.shape[0]
        if self.targets.shape[0] != n or self.weights.shape != (n,):
            raise ValueError(f"{n} rows of features need as many targets and weights")
        if self.anchor is not None and self.anchor.shape != self.targets.shape:
            raise ValueError(
                f"the anchor must have the shape {self.targets.shape} of the targets, not {self.anchor.shape}"
            )
        if np.min(self.ridge, initial=0.0) < 0.0 or self.intercept_ridge < 0.0 or self.scale_ridge < 0.0:
            raise ValueError("a ridge cannot be negative")
        if not self.weights.sum() > 0.0:
            raise ValueError("some row must have a positive weight")

    @property
    def operations(self) -> float:
        """The multiplications of a product with the features and intercepts, n K (d + 1)."""
        return float(self.targets.size) * (self.features.shape[1] + 1)


class Units:
    """The units of features and anchor: powers of two, which round nothing, near their root mean squares.

    Parameters
    ----------
    data : SoftmaxData
        The problem.
    sizes : ndarray of shape (d + 1,)
        The root mean squares of the features, and one for the intercept.
    anchor_size : float or None
        That of the anchor's deviations from its row means; None if there is no anchor.

    Attributes
    ----------
    of_features : ndarray of shape (d + 1,)
        The units.
    of_anchor : float
        The anchor's unit, one if there is none.
    rest : ndarray of shape (d + 1,)
        The sizes in these units.
    anchor_rest : float
        The anchor's size in its unit.
    ridge : ndarray of shape (K, d + 1)
        λ of coefficients and intercepts in these units.
    scale_ridge : float
        λ of the anchor's scale in its unit.
    """

    def __init__(self, data: SoftmaxData, sizes: Array, anchor_size: float | None):
        self.of_features, self.rest = _powers_of_two(sizes)
        self.ridge = np.empty((data.targets.shape[1], sizes.size))
        self.ridge[:, :-1], self.ridge[:, -1] = np.transpose(data.ridge), data.intercept_ridge
        self.ridge /= self.of_features**2
        self.of_anchor, self.anchor_rest = 1.0, 1.0
        self._anchored = anchor_size is not None
        if anchor_size is not None:
            unit, rest = _powers_of_two(anchor_size)
            self.of_anchor, self.anchor_rest = float(unit), float(rest)
        self.scale_ridge = data.scale_ridge / self.of_anchor**2

    def theta(self, coef: Array | None, intercept: Array | None, scale: float) -> Array:
        """Return θ, one vector of the coefficients and intercepts, class by class, and of the anchor's scale.

        Parameters
        ----------
        coef : ndarray of shape (d, K) or None
            The coefficients; None for zeros.
        intercept : ndarray of shape (K,) or None
            The intercepts; None for zeros.
        scale : float
            The anchor's scale.

        Returns
        -------
        ndarray of shape (K (d + 1) + 1,)
        """
        B = np.zeros(self.ridge.shape)
        if coef is not None:
            B[:, :-1] = coef.T
        if intercept is not None:
            B[:, -1] = intercept
        return np.append((B * self.of_features).ravel(), scale * self.of_anchor)

    def coefficients(self, theta: Array) -> tuple[Array, Array, float | None]:
        """Return coefficients, shape (d, K), intercepts, shape (K,), and the scale, None if there is no anchor.

        Parameters
        ----------
        theta : ndarray of shape (K (d + 1) + 1,)
            θ.

        Returns
        -------
        coef, intercept, scale
        """
        B = (theta[:-1].reshape(self.ridge.shape) / self.of_features).T
        scale = float(theta[-1]) / self.of_anchor if self._anchored else None
        return B[:-1].copy(), B[-1].copy(), scale


class ProblemLike(Protocol):
    """A problem in arrays of any library: θ, logits and probabilities are as its methods return them."""

    def theta(self, coef: Array | None, intercept: Array | None, scale: float) -> Any:
        """Return θ, see `Units.theta`."""

    def coefficients(self, theta: Any) -> tuple[Array, Array, float | None]:
        """Return coefficients, intercepts and the scale, see `Units.coefficients`."""

    def logits(self, theta: Any) -> Any:
        """Return the logits without the offset, which are linear in θ, shape (K, n)."""

    def value(self, theta: Any, logits: Any) -> tuple[float, Any]:
        """Return cross-entropy plus penalty, and the class probabilities, shape (K, n), from θ and its `logits`."""

    def gradient(self, theta: Any, P: Any) -> tuple[Any, float]:
        """Return the gradient of the value, and its norm, see `SoftmaxFit.gradient_norm`."""

    def step(self, P: Any, gradient: Any, forcing: float) -> Any:
        """Return a Newton step, see `NewtonSteps`."""


class Problem:
    """The problem in NumPy arrays.

    The rows of the data run last: probabilities have the shape (K, n), so that sums over classes add long vectors.

    Parameters
    ----------
    data : SoftmaxData
        The problem.
    """

    def __init__(self, data: SoftmaxData):
        n, d = data.features.shape
        weights = data.weights
        self.kind = data.features.dtype
        self.total = float(weights.sum())
        # Targets need not sum to one exactly, because of rounding or of partial rows.
        self.targets = np.ascontiguousarray(data.targets.T) * weights
        self.mass = self.targets.sum(axis=0)
        self.A = np.empty((d + 1, n), self.kind)
        self.A[:-1], self.A[-1] = data.features.T, 1.0
        sizes = np.sqrt(np.square(self.A) @ weights / self.total).astype(np.float64)
        anchor_size = None
        if data.anchor is not None:
            spread = data.anchor - data.anchor.mean(axis=1, keepdims=True)
            anchor_size = float(np.sqrt(np.mean(spread**2, dtype=np.float64)))
        self.units = units = Units(data, sizes, anchor_size)
        self.A /= units.of_features.astype(self.kind)[:, np.newaxis]
        self.W = None
        if data.anchor is not None:
            self.W = np.ascontiguousarray(data.anchor.T) / self.kind.type(units.of_anchor)
        self.offset = None if data.offset is None else data.offset[:, np.newaxis]
        self.step = NewtonSteps(self.A, self.W, self.mass, units.ridge, units.scale_ridge, self.total)
        self.theta, self.coefficients = units.theta, units.coefficients

    def logits(self, theta: Array) -> Array:
        """Return the logits without the offset, see `ProblemLike`."""
        B = theta[:-1].reshape(self.units.ridge.shape).astype(self.kind, copy=False)
        logits = np.empty((B.shape[0], self.A.shape[1]), self.kind)

        def of_part(rows: slice) -> None:
            np.matmul(B, self.A[:, rows], out=logits[:, rows])
            if self.W is not None:
                logits[:, rows] += self.kind.type(theta[-1]) * self.W[:, rows]

        in_threads(of_part, self.step.parts)
        return logits

    def value(self, theta: Array, logits: Array) -> tuple[float, Array]:
        """Return the value and the class probabilities, see `ProblemLike`."""
        if self.offset is not None:
            logits = logits + self.offset
        shifted = logits - logits.max(axis=0)
        P = np.exp(shifted)
        sums = P.sum(axis=0)
        P /= sums
        loss = float(self.mass @ np.log(sums) - np.vdot(self.targets, shifted))
        units = self.units
        B = theta[:-1].reshape(units.ridge.shape)
        scale_penalty = units.scale_ridge * (theta[-1] - units.of_anchor) ** 2
        return loss + 0.5 * float(np.vdot(units.ridge, B * B) + scale_penalty), P

    def gradient(self, theta: Array, P: Array) -> tuple[Array, float]:
        """Return the gradient and its norm, see `ProblemLike`."""
        units = self.units
        residuals = self.mass * P
        residuals -= self.targets
        gradient = np.empty(theta.size)
        B = gradient[:-1].reshape(units.ridge.shape)  # a view
        np.multiply(units.ridge, theta[:-1].reshape(units.ridge.shape), out=B)
        for part in in_threads(lambda rows: residuals[:, rows] @ self.A[:, rows].T, self.step.parts):
            B += part
        scale_gradient = 0.0 if self.W is None else float(np.vdot(self.W, residuals))
        gradient[-1] = scale_gradient + units.scale_ridge * (theta[-1] - units.of_anchor)
        largest = max((np.abs(B).max(axis=0) / units.rest).max(), abs(gradient[-1]) / units.anchor_rest)
        return gradient, float(largest / self.total)


def _powers_of_two(sizes: Any) -> tuple[Any, Any]:
    """Return the powers of two near sizes, and what sizes are in these units; zeros stay as they are."""
    nonzero = sizes > _ZERO
    units = np.exp2(np.rint(np.log2(np.where(nonzero, sizes, 1.0))))
    return units, np.where(nonzero, sizes, 1.0) / units
