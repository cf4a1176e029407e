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

from polymargin._accelerator import accelerator
from polymargin.solvers._softmax_problem import Problem, ProblemLike, SoftmaxData
from polymargin.solvers.line_search import backtrack, rounding_of
from polymargin.solvers.status import Status

Array = NDArray[Any]

#: Sufficient decrease of the line search, as a share of the slope. A good Newton step gains one half; one that gains
#: much less has reached saturated probabilities, from where the next step would be much too long.
_SUFFICIENT = 0.2


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
    data = SoftmaxData(
        features.astype(kind, copy=False),
        targets.astype(kind, copy=False),
        np.ones(len(targets), kind) if sample_weight is None else np.asarray(sample_weight, kind),
        ridge,
        intercept_ridge,
        None if anchor is None else np.asarray(anchor, kind),
        scale_ridge,
        None if offset is None else np.asarray(offset, kind),
    )

    def on_cpu() -> SoftmaxFit:
        return newton(Problem(data), start, tol, max_iter)

    device = accelerator()
    fit = on_cpu() if device is None else device.fit_softmax(data, start, tol, max_iter, on_cpu)
    return fit if back is None else replace(fit, coef=back @ fit.coef)


def newton(problem: ProblemLike, start: SoftmaxFit | None, tol: float, max_iter: int) -> SoftmaxFit:
    """Minimise by Newton steps, solved directly or just well enough by conjugate gradients, with a line search.

    Parameters
    ----------
    problem : ProblemLike
        The problem, in arrays of any library: what is computed here are sums and products with numbers.
    start, tol, max_iter
        As for `fit_softmax`.

    Returns
    -------
    SoftmaxFit
    """
    if start is None:
        theta = problem.theta(None, None, 1.0)
    else:
        theta = problem.theta(start.coef, start.intercept, 1.0 if start.scale is None else start.scale)
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
    return SoftmaxFit(*problem.coefficients(theta), status, norm, value, iteration)
