"""Multinomial logistic regression with a ridge, on arrays: the convex problem behind the decoders with a softmax.

Over B (d×K), b (K) and, where there is an anchor W (n×K), a scale s, it minimises

    Σ_i w_i H(t_i, softmax(z_i)) + ½ Σ λ_jk B_jk² + ½ λ_b ‖b‖² + ½ λ_s (s − 1)²,    z_i = s W_i + x_i B + b,

where H is the cross-entropy. The Newton steps of small problems are solved directly, those of large ones by conjugate
gradients, which need only products with X; they are preconditioned with one Cholesky factor that all classes share, so
neither the scale nor the correlation of the features matters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polymargin._threads import in_threads
from polymargin.solvers._softmax_steps import NewtonSteps
from polymargin.solvers.line_search import backtrack, rounding_of
from polymargin.solvers.status import Status

Array = NDArray[Any]

#: Sufficient decrease of the line search, as a share of the slope. A good Newton step gains one half; one that gains
#: much less has reached saturated probabilities, from where the next step would be much too long.
_SUFFICIENT = 0.2
#: A feature whose root mean square is below this is treated as zero.
_ZERO = 1e-100


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
    status : Status
        How the fit ended.
    gradient_norm : float
        The largest entry of the gradient, per unit of sample weight and in units of the features' root mean
        squares.
    objective : float
        The value that was minimised.
    n_iter : int
        Newton steps.

    See Also
    --------
    fit_softmax : The fit.

    Examples
    --------
    >>> fit = fit_softmax(np.array([[-1.0], [0.0], [1.0]]), np.array([0, 0, 1]))
    >>> fit.status.name, fit.coef.shape, fit.scale
    ('CONVERGED', (1, 2), None)
    """

    coef: Array
    intercept: Array
    scale: float | None
    status: Status
    gradient_norm: float
    objective: float
    n_iter: int

    @property
    def converged(self) -> bool:
        """Whether the gradient is as small as was asked for."""
        return self.status is Status.CONVERGED

    def logits(self, features: Array, anchor: Array | None = None) -> Array:
        """Return s W + X B + b, shape (n, K).

        Parameters
        ----------
        features : ndarray of shape (n, d)
            X.
        anchor : ndarray of shape (n, K) or None
            W; None if the fit has no anchor.

        Returns
        -------
        ndarray of shape (n, K)
        """
        logits = features @ self.coef + self.intercept
        if self.scale is not None:
            if anchor is None:
                raise ValueError("this fit has an anchor: give the anchor of these rows too")
            logits += self.scale * anchor
        return logits

    def log_proba(self, features: Array, anchor: Array | None = None) -> Array:
        """Return the logarithms of the class probabilities, shape (n, K).

        Parameters
        ----------
        features, anchor
            As for `logits`.

        Returns
        -------
        ndarray of shape (n, K)
        """
        return log_softmax(self.logits(features, anchor))


def mean_fit(fits: Sequence[SoftmaxFit]) -> SoftmaxFit:
    """Return the mean of fits to parts of the rows, from where the fit to all rows is not far.

    Parameters
    ----------
    fits : sequence of SoftmaxFit
        Fits with the same features and classes.

    Returns
    -------
    SoftmaxFit
        Its certificate is that of the first fit.
    """
    scales = [1.0 if fit.scale is None else fit.scale for fit in fits]
    coef, intercept = (
        sum(parts) / len(fits) for parts in zip(*((f.coef, f.intercept) for f in fits), strict=True)
    )
    return replace(fits[0], coef=coef, intercept=intercept, scale=sum(scales) / len(fits))


def log_softmax(logits: Array) -> Array:
    """Return the logits less the logarithm of the sum of their exponentials, row by row.

    `scipy.special.log_softmax` has the same bits and takes 1.1 to 3.2 times as long, from 2000 rows of ten classes down
    to a single row.

    Parameters
    ----------
    logits : ndarray of shape (n, K)
        The logits.

    Returns
    -------
    ndarray of shape (n, K)
    """
    shifted = logits - logits.max(axis=1, keepdims=True)
    shifted -= np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return shifted


def smooth_targets(class_index: Array, n_classes: int, mass: float = 0.0) -> Array:
    """Return n×K targets that leave 1 − mass with a row's own class and spread mass evenly over the others.

    Parameters
    ----------
    class_index : ndarray of int, shape (n,)
        The classes.
    n_classes : int
        K.
    mass : float, default=0.0
        The total target of the other classes.

    Returns
    -------
    ndarray of shape (n, K)

    Examples
    --------
    >>> smooth_targets(np.array([2, 0]), 3, 0.1)
    array([[0.05, 0.05, 0.9 ],
           [0.9 , 0.05, 0.05]])
    """
    targets = np.full((class_index.size, n_classes), mass / (n_classes - 1))
    targets[np.arange(class_index.size), class_index] = 1.0 - mass
    return targets


def reduced_features(features: Array) -> tuple[Array, Array]:
    """Return no more features than rows, Y (n×r), and V (d×r) with orthonormal columns such that X = Y Vᵀ.

    A map C of Y is the map V C of X, with the same logits and the same norm; no other map of X with these logits is
    smaller, so that with one ridge for all coefficients the problem in Y is the problem in X.

    Parameters
    ----------
    features : ndarray of shape (n, d)
        X.

    Returns
    -------
    Y : ndarray of shape (n, r)
    V : ndarray of shape (d, r)
    """
    left, sizes, right = np.linalg.svd(features, full_matrices=False)
    # Directions whose singular values are rounding errors, such as the one that centring removes, are dropped.
    kept = sizes > np.finfo(sizes.dtype).eps * max(features.shape) * sizes.max(initial=0.0)
    return (left * sizes)[:, kept], right[kept].T


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
    offset: Array | None = None,
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
        λ_s, which shrinks the anchor's scale towards one; zero for no penalty.
    offset : ndarray of shape (K,) or None
        A constant that is added to the logits, such as the logarithms of the class frequencies, towards which the ridge
        of the intercept then shrinks. It is not included in the result.
    start : SoftmaxFit or None
        Warm start, such as the fit with another ridge; None: B = 0, b = 0, s = 1.
    tol : float, default=1e-7
        The gradient norm to reach, see `SoftmaxFit.gradient_norm`.
    max_iter : int, default=100
        Newton steps, at most.

    Returns
    -------
    SoftmaxFit
        The map and its certificate.

    See Also
    --------
    polymargin.solvers.softmax_hidden.fit_hidden : Logits of bounded rank.

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
        features, back = reduced_features(features)
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
        offset,
    )
    if start is None:
        B, b, scale = np.zeros((features.shape[1], targets.shape[1])), np.zeros(targets.shape[1]), 1.0
    else:
        B, b, scale = start.coef, start.intercept, 1.0 if start.scale is None else start.scale
    theta = np.append((np.vstack([B, b]).T * problem.units).ravel(), scale * problem.anchor_unit)
    fit = _newton(problem, theta, tol, max_iter)
    return fit if back is None else replace(fit, coef=back @ fit.coef)


def _newton(problem: _Problem, theta: Array, tol: float, max_iter: int) -> SoftmaxFit:
    """Minimise by Newton steps, solved directly or just well enough by conjugate gradients, with a line search."""
    logits = problem.logits(theta)
    value, P = found = problem.value(theta, logits)
    gradient, norm = problem.gradient(theta, P)

    def along_step(length: float) -> float:
        nonlocal found
        found = problem.value(theta + length * step, logits + length * along)
        return found[0]

    status = Status.ITERATION_LIMIT
    iteration = 0
    while True:
        if norm <= tol:
            status = Status.CONVERGED
            break
        if iteration == max_iter:
            break
        iteration += 1
        step = problem.step(P, gradient, max(min(0.3, norm**0.5), 0.03 * tol / norm))
        along = problem.logits(step)
        slope, rounding = float(gradient @ step), float(rounding_of(value))
        length = backtrack(along_step, value, slope, slack=rounding, sufficient=_SUFFICIENT)
        # Near the minimum the gain is below the rounding of the value: trust the gradient instead.
        no_gain = length == 0.0 or -slope <= rounding
        if length == 0.0:
            along_step(length := 1.0)
        new_gradient, new_norm = problem.gradient(theta + length * step, found[1])
        if no_gain and new_norm >= 0.9 * norm:
            status = Status.NO_PROGRESS
            break
        theta, logits = theta + length * step, logits + length * along
        (value, P), gradient, norm = found, new_gradient, new_norm
    B = (theta[:-1].reshape(problem.ridge.shape) / problem.units).T
    scale = None if problem.W is None else float(theta[-1]) / problem.anchor_unit
    return SoftmaxFit(B[:-1].copy(), B[-1].copy(), scale, status, norm, value, iteration)


class _Problem:
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
        if targets.shape[0] != n or weights.shape != (n,):
            raise ValueError(f"{n} rows of features need as many targets and weights")
        if anchor is not None and anchor.shape != targets.shape:
            raise ValueError(
                f"the anchor must have the shape {targets.shape} of the targets, not {anchor.shape}"
            )
        if np.min(ridge, initial=0.0) < 0.0 or intercept_ridge < 0.0 or scale_ridge < 0.0:
            raise ValueError("a ridge cannot be negative")
        if not weights.sum() > 0.0:
            raise ValueError("some row must have a positive weight")
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

    def logits(self, theta: Array) -> Array:
        """Return the logits without the offset, which are linear in θ, shape (K, n)."""
        B = theta[:-1].reshape(self.ridge.shape).astype(self.kind, copy=False)
        logits = np.empty((B.shape[0], self.A.shape[1]), self.kind)

        def of_part(rows: slice) -> None:
            np.matmul(B, self.A[:, rows], out=logits[:, rows])
            if self.W is not None:
                logits[:, rows] += self.kind.type(theta[-1]) * self.W[:, rows]

        in_threads(of_part, self.step.parts)
        return logits

    def value(self, theta: Array, logits: Array) -> tuple[float, Array]:
        """Return cross-entropy plus penalty, and the class probabilities, shape (K, n), from θ and its `logits`."""
        if self.offset is not None:
            logits = logits + self.offset
        shifted = logits - logits.max(axis=0)
        P = np.exp(shifted)
        sums = P.sum(axis=0)
        P /= sums
        loss = float(self.mass @ np.log(sums) - np.vdot(self.targets, shifted))
        B = theta[:-1].reshape(self.ridge.shape)
        scale_penalty = self.scale_ridge * (theta[-1] - self.anchor_unit) ** 2
        return loss + 0.5 * float(np.vdot(self.ridge, B * B) + scale_penalty), P

    def gradient(self, theta: Array, P: Array) -> tuple[Array, float]:
        """Return the gradient of the value, and its norm, see `SoftmaxFit.gradient_norm`."""
        residuals = self.mass * P
        residuals -= self.targets
        gradient = np.empty(theta.size)
        B = gradient[:-1].reshape(self.ridge.shape)  # a view
        np.multiply(self.ridge, theta[:-1].reshape(self.ridge.shape), out=B)
        for part in in_threads(lambda rows: residuals[:, rows] @ self.A[:, rows].T, self.step.parts):
            B += part
        scale_gradient = 0.0 if self.W is None else float(np.vdot(self.W, residuals))
        gradient[-1] = scale_gradient + self.scale_ridge * (theta[-1] - self.anchor_unit)
        largest = max((np.abs(B).max(axis=0) / self.rest).max(), abs(gradient[-1]) / self.anchor_rest)
        return gradient, float(largest / self.total)


def _powers_of_two(sizes: Any) -> tuple[Any, Any]:
    """Return the powers of two near sizes, and what sizes are in these units; zeros stay as they are."""
    nonzero = sizes > _ZERO
    units = np.exp2(np.rint(np.log2(np.where(nonzero, sizes, 1.0))))
    return units, np.where(nonzero, sizes, 1.0) / units
