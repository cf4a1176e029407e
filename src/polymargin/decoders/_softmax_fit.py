"""Multinomial logistic regression with a ridge, on arrays: the convex problem behind the decoders with a softmax.

Over B (d×K), b (K) and, where there is an anchor W (n×K), a scale s, it minimises

    Σ_i w_i H(t_i, softmax(z_i)) + ½ Σ λ_jk B_jk² + ½ λ_b ‖b‖² + ½ λ_s (s − 1)²,    z_i = s W_i + x_i B + b,

where H is the cross-entropy. The Newton steps of small problems are solved directly (`_softmax_hessian`), those of
large ones by conjugate gradients, which need only products with X; they are preconditioned with one Cholesky factor
that all classes share, so neither the scale nor the correlation of the features matters.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack
from scipy.special import logsumexp

from polymargin.decoders._softmax_hessian import LARGEST, newton_step

Array = NDArray[Any]

#: Steps of the conjugate gradients within one Newton step, at most.
_MAX_INNER = 250
#: What a line search must gain of what the gradient promises. A good Newton step gains one half; one that gains much
#: less has run into saturated probabilities, from where the next would be wild.
_ARMIJO = 0.2


@dataclass(frozen=True)
class SoftmaxFit:
    """A fitted map from features to the logits of the classes, and its certificate.

    Attributes
    ----------
    coef : ndarray of shape (d, K)
        B.
    intercept : ndarray of shape (K,)
        b.
    scale : float or None
        s, the scale of the anchor; None if there is no anchor.
    status : {"converged", "stalled", "max_iter"}
        "stalled": no step gains anything within rounding, though the gradient is above the tolerance.
    gradient_norm : float
        The largest entry of the gradient, per unit of sample weight and in units of the features' root mean
        squares.
    objective : float
        The value that was minimised.
    n_iter : int
        Newton steps.
    """

    coef: Array
    intercept: Array
    scale: float | None
    status: Literal["converged", "stalled", "max_iter"]
    gradient_norm: float
    objective: float
    n_iter: int

    @property
    def converged(self) -> bool:
        """Whether the gradient is as small as was asked for."""
        return self.status == "converged"

    def logits(self, features: Array, anchor: Array | None = None) -> Array:
        """Return s W + X B + b, shape (n, K)."""
        logits = features @ self.coef + self.intercept
        if self.scale is not None:
            if anchor is None:
                raise ValueError("this fit has an anchor: give the anchor of these rows too")
            logits += self.scale * anchor
        return logits

    def log_proba(self, features: Array, anchor: Array | None = None) -> Array:
        """Return the logarithms of the class probabilities, shape (n, K)."""
        return log_softmax(self.logits(features, anchor))


def log_softmax(logits: Array) -> Array:
    """Return the logits less the logarithm of the sum of their exponentials, row by row."""
    return logits - logsumexp(logits, axis=1, keepdims=True)


def smooth_targets(class_index: Array, n_classes: int, mass: float = 0.0) -> Array:
    """Return n×K targets that leave 1 − mass with a row's own class and spread mass evenly over the others.

    Examples
    --------
    >>> smooth_targets(np.array([2, 0]), 3, 0.1)
    array([[0.05, 0.05, 0.9 ],
           [0.9 , 0.05, 0.05]])
    """
    targets = np.full((class_index.size, n_classes), mass / (n_classes - 1))
    targets[np.arange(class_index.size), class_index] = 1.0 - mass
    return targets


def few_features(features: Array) -> tuple[Array, Array]:
    """Return no more features than rows, Y (n×r), and V (d×r) with orthonormal columns such that X = Y Vᵀ.

    A map C of Y is the map V C of X, with the same logits and the same norm; no other map of X with these logits is
    smaller, so that with one ridge for all coefficients the problem in Y is the problem in X.
    """
    left, sizes, right = np.linalg.svd(features, full_matrices=False)
    return left * sizes, right.T


def fit_softmax(
    features: Array,
    targets: Array,
    *,
    n_classes: int | None = None,
    sample_weight: Array | None = None,
    ridge: float | Array = 1.0,
    intercept_ridge: float = 0.0,
    anchor: Array | None = None,
    scale_ridge: float = 0.0,
    start: SoftmaxFit | None = None,
    tol: float = 1e-7,
    max_iter: int = 100,
) -> SoftmaxFit:
    """Solve the ridged multinomial logistic problem of this module.

    Parameters
    ----------
    features : ndarray of shape (n, d)
        X; d may be 0. Products with features in single precision are taken in single precision, which is twice as
        fast and good for gradient norms down to about 1e-6.
    targets : ndarray of int, shape (n,), or of float, shape (n, K)
        Classes, or for every row a distribution over the classes.
    n_classes : int or None, default=None
        K where the targets are classes; None: the largest one plus one.
    sample_weight : ndarray of shape (n,) or None
        w; weight two counts like the row twice.
    ridge : float or array that broadcasts to (d, K), default=1.0
        λ: one number, one per feature as shape (d, 1), or one per coefficient.
    intercept_ridge : float, default=0.0
        λ_b.
    anchor : ndarray of shape (n, K) or None
        W, such as the log-probabilities of a first decoder.
    scale_ridge : float, default=0.0
        λ_s, which pulls the anchor's scale to one; with zero it is free.
    start : SoftmaxFit or None
        Where to start, such as the fit with another ridge; None: B = 0, b = 0, s = 1.
    tol : float, default=1e-7
        The gradient norm to reach, see `SoftmaxFit.gradient_norm`.
    max_iter : int, default=100
        Newton steps, at most.

    Examples
    --------
    >>> fit = fit_softmax(np.array([[0.0], [1.0], [2.0], [3.0]]), np.array([0, 1, 0, 1]), ridge=1e-3)
    >>> fit.converged, np.exp(fit.log_proba(np.array([[1.5]]))).round(3)
    (True, array([[0.5, 0.5]]))
    """
    targets = np.asarray(targets)
    if targets.ndim == 1:
        n_classes = int(targets.max()) + 1 if n_classes is None else n_classes
        targets = smooth_targets(targets, n_classes)
    features = np.asarray(features)
    if np.ndim(ridge) == 0 and features.shape[1] > 1.5 * features.shape[0]:
        features, back = few_features(features)
        start = None if start is None else replace(start, coef=back.T @ start.coef)
    else:
        back = None
    kind = np.float32 if features.dtype == np.float32 else np.float64
    problem = _Problem(
        features.astype(kind, copy=False),
        targets.astype(kind, copy=False),
        np.ones(len(targets), kind) if sample_weight is None else np.asarray(sample_weight, kind),
        ridge,
        intercept_ridge,
        None if anchor is None else np.asarray(anchor, kind),
        scale_ridge,
    )
    fit = _newton(problem, problem.start(start), tol, max_iter)
    return fit if back is None else replace(fit, coef=back @ fit.coef)


class _Problem:
    """The objective, its gradient, products with its Hessian, and a preconditioner; θ = (B; b, s) in one vector."""

    def __init__(
        self,
        features: Array,
        targets: Array,
        weights: Array,
        ridge: float | Array,
        intercept_ridge: float,
        anchor: Array | None,
        scale_ridge: float,
    ):
        n, d = features.shape
        self.K = targets.shape[1]
        if targets.shape[0] != n or weights.shape != (n,):
            raise ValueError(f"{n} rows of features need as many targets and weights")
        if anchor is not None and anchor.shape != targets.shape:
            raise ValueError(
                f"the anchor must have the shape {targets.shape} of the targets, not {anchor.shape}"
            )
        if np.min(ridge, initial=0.0) < 0.0 or intercept_ridge < 0.0 or scale_ridge < 0.0:
            raise ValueError("a ridge cannot be negative")
        self.total = float(weights.sum())
        if not self.total > 0.0:
            raise ValueError("some row must have a positive weight")
        self.A = np.column_stack([features, np.ones(n, features.dtype)])
        self.T, self.w, self.W = targets, weights[:, np.newaxis], anchor
        # Targets need not sum to one exactly: rounding, or rows that count for less.
        self.mass = self.w * targets.sum(axis=1, keepdims=True)
        self.ridge = np.empty((d + 1, self.K))
        self.ridge[:-1] = ridge
        self.ridge[-1] = intercept_ridge
        self.scale_ridge = scale_ridge
        # Root mean squares: the units in which the gradient is measured.
        units = np.sqrt(np.einsum("ij,ij,i->j", self.A, self.A, weights) / self.total)
        self.units = np.where(units > 0.0, units, 1.0)[:, np.newaxis]
        self.anchor_unit = 1.0
        if anchor is not None:
            spread = anchor - anchor.mean(axis=1, keepdims=True)
            self.anchor_unit = float(np.sqrt(np.mean(spread**2))) or 1.0

    def start(self, fit: SoftmaxFit | None) -> Array:
        if fit is None:
            theta = np.zeros(self.ridge.size + 1)
            theta[-1] = 1.0
            return theta
        scale = 1.0 if fit.scale is None else fit.scale
        return np.concatenate([fit.coef.ravel(), fit.intercept, [scale]])

    def coefficients(self, theta: Array) -> Array:
        return theta[:-1].reshape(-1, self.K)

    def along(self, theta: Array) -> Array:
        """Return the logits, which are linear in θ, shape (n, K)."""
        logits = self.A @ self.coefficients(theta).astype(self.A.dtype, copy=False)
        if self.W is not None:
            logits += self.A.dtype.type(theta[-1]) * self.W
        return logits

    def back(self, residuals: Array) -> Array:
        """Return the transpose of `along` times residuals."""
        product = np.zeros(self.ridge.size + 1)
        product[:-1] = (self.A.T @ residuals).ravel()
        if self.W is not None:
            product[-1] = np.vdot(self.W, residuals)
        return product

    def penalty(self, theta: Array) -> float:
        B = self.coefficients(theta)
        return 0.5 * float(np.sum(self.ridge * B**2) + self.scale_ridge * (theta[-1] - 1.0) ** 2)

    def penalty_gradient(self, theta: Array) -> Array:
        B = self.coefficients(theta)
        return np.append((self.ridge * B).ravel(), self.scale_ridge * (theta[-1] - 1.0))

    def loss(self, logits: Array) -> tuple[float, Array]:
        """Return the cross-entropy and the class probabilities."""
        shifted = logits - logits.max(axis=1, keepdims=True)
        exponentials = np.exp(shifted)
        sums = exponentials.sum(axis=1, keepdims=True)
        value = np.vdot(self.mass, np.log(sums)) - np.vdot(self.w * self.T, shifted)
        exponentials /= sums
        return float(value), exponentials

    def gradient(self, theta: Array, P: Array) -> Array:
        return self.back(self.mass * P - self.w * self.T) + self.penalty_gradient(theta)

    def curvature(self, P: Array, v: Array) -> Array:
        """Return the Hessian times v."""
        U = self.along(v)
        U -= np.einsum("ik,ik->i", P, U)[:, np.newaxis]
        U *= P
        U *= self.mass
        product = self.back(U)
        product[:-1] += self.ridge.ravel() * v[:-1]
        product[-1] += self.scale_ridge * v[-1]
        return product

    def direct_step(self, P: Array, gradient: Array) -> Array | None:
        """Return the Newton step if the problem is small, else None."""
        if self.ridge.size > LARGEST or self.A.dtype != np.float64:
            return None
        return newton_step(self.A, self.W, self.mass, self.ridge, self.scale_ridge, P, gradient)

    def measure(self, gradient: Array) -> float:
        """Return the gradient's largest entry per unit of weight, in the features' units."""
        largest = np.abs(self.coefficients(gradient) / self.units).max()
        return float(max(largest, abs(gradient[-1]) / self.anchor_unit) / self.total)

    def preconditioner(self, P: Array) -> _Preconditioner:
        """Return the inverse of the Hessian's mean over the classes, shared by all of them."""
        variances = self.mass[:, 0] * np.mean(P * (1.0 - P), axis=1)
        mean = (self.A.T @ (variances[:, np.newaxis] * self.A)).astype(np.float64, copy=False)
        mean[np.diag_indices_from(mean)] += self.ridge.mean(axis=1)
        scale = self.scale_ridge
        if self.W is not None:
            spread = np.einsum("ik,ik->i", P, self.W**2) - np.einsum("ik,ik->i", P, self.W) ** 2
            scale += float(self.mass[:, 0] @ np.maximum(spread, 0.0))
        return _Preconditioner(mean, scale, self.K, 1e-8 if self.A.dtype == np.float64 else 1e-5)


class _Preconditioner:
    """One Cholesky factor for the coefficients of all classes, one number for the scale of the anchor."""

    def __init__(self, mean: Array, scale: float, n_classes: int, rounding: float):
        diagonal = np.diag_indices_from(mean)
        largest = max(float(mean[diagonal].max()), np.finfo(np.float64).tiny)
        # A unit diagonal first, because features may come in any units.
        self.roots = np.sqrt(np.where(mean[diagonal] > 0.0, mean[diagonal], largest))[:, np.newaxis]
        mean /= self.roots
        mean /= self.roots.T
        # Features that are constant, repeated or more than the rows leave directions without curvature.
        mean[diagonal] = 1.0 + rounding
        factor, info = lapack.dpotrf(mean, lower=1)
        # Without a factor the diagonal alone will do.
        self.factor = factor if info == 0 else None
        self.scale = scale if scale > 0.0 else 1.0
        self.K = n_classes

    def __call__(self, v: Array) -> Array:
        B = v[:-1].reshape(-1, self.K) / self.roots
        if self.factor is not None:
            B = lapack.dpotrs(self.factor, B, lower=1)[0]
        return np.append((B / self.roots).ravel(), v[-1] / self.scale)


def _newton(problem: _Problem, theta: Array, tol: float, max_iter: int) -> SoftmaxFit:
    """Minimise by Newton steps, solved directly or just well enough by conjugate gradients, with a line search."""
    logits = problem.along(theta)
    loss, P = problem.loss(logits)
    value = loss + problem.penalty(theta)
    gradient = problem.gradient(theta, P)
    norm = problem.measure(gradient)
    status: Literal["converged", "stalled", "max_iter"] = "max_iter"
    iteration = 0
    while True:
        if norm <= tol:
            status = "converged"
            break
        if iteration == max_iter:
            break
        iteration += 1
        step = problem.direct_step(P, gradient)
        if step is None:
            step = _conjugate_gradients(problem, P, gradient, min(0.3, np.sqrt(norm)))
        along = problem.along(step)
        slope = float(gradient @ step)
        length, gained = 1.0, False
        for _ in range(40):
            candidate = theta + length * step
            loss, trial_P = problem.loss(logits + length * along)
            trial = loss + problem.penalty(candidate)
            if trial <= value + _ARMIJO * length * slope:
                gained = True
                break
            length *= 0.5
        if not gained:
            # Near the minimum the gain is below the rounding of the value: trust the gradient instead.
            candidate = theta + step
            loss, trial_P = problem.loss(logits + along)
            trial = loss + problem.penalty(candidate)
            if problem.measure(problem.gradient(candidate, trial_P)) >= 0.9 * norm:
                status = "stalled"
                break
            length = 1.0
        theta, P, value = candidate, trial_P, trial
        logits = logits + length * along
        gradient = problem.gradient(theta, P)
        norm = problem.measure(gradient)
    B = problem.coefficients(theta)
    scale = None if problem.W is None else float(theta[-1])
    return SoftmaxFit(B[:-1].copy(), B[-1].copy(), scale, status, norm, value, iteration)


def _conjugate_gradients(problem: _Problem, P: Array, gradient: Array, forcing: float) -> Array:
    """Return a step with H step ≈ −gradient; the residual falls by the factor ``forcing``."""
    precondition = problem.preconditioner(P)
    step = np.zeros_like(gradient)
    residual = -gradient
    z = precondition(residual)
    direction = z.copy()
    rho = rho_first = float(residual @ z)
    for _ in range(_MAX_INNER):
        product = problem.curvature(P, direction)
        bend = float(direction @ product)
        if bend <= 1e-14 * rho:  # no curvature left along this direction
            break
        alpha = rho / bend
        step += alpha * direction
        residual -= alpha * product
        z = precondition(residual)
        rho_next = float(residual @ z)
        if rho_next <= forcing**2 * rho_first:
            break
        direction *= rho_next / rho
        direction += z
        rho = rho_next
    return step if step.any() else direction
