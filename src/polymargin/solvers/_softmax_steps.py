"""Newton steps of a softmax problem: solved directly where it is small, by conjugate gradients where it is large."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from polymargin._threads import in_threads, row_parts
from polymargin.solvers import _lapack

Array = NDArray[Any]

#: Up to this many coefficients the Hessian is cheaper than conjugate gradients.
_LARGEST = 100
#: With more coefficients the Hessian is taken after a step with more products than this share of their number: it takes
#: as long as a product for every eight to ten (300 to 900 coefficients), and later steps take more than earlier ones.
#: (With 301 the fits of covtype, of 80 products a step, take half the time; letter, of 15, has no such step.)
_PATIENCE = 0.15
#: The most numbers of the products of features from which it is made: 128 MB.
_PRODUCTS = 2**24
#: Steps of the conjugate gradients within one Newton step, at most.
MAX_INNER = 250
#: After more steps than this the preconditioner is renewed.
SLOW = 30
#: Single precision will do for a Newton step, which need not be exact, where the ridges are at least this share of the
#: weight, and no more than its inverse: then they bound the condition of the Hessian.
_WELL_POSED = 1e-5
#: How much longer than those of other products the parts that threads share are: each takes several steps, after any of
#: which a thread waits for the interpreter, and only the two matrix products take long.
_LONGER = 3.0


class NewtonSteps:
    """Steps −H⁻¹ g, where H is the Hessian of Σ_i m_i log Σ_k exp z_ik + ½ Σ λ_kj B_kj² + ½ λ_s s², z = B A + s W.

    Parameters
    ----------
    A : ndarray of shape (D, n)
        Features, none of them far from one in size.
    W : ndarray of shape (K, n) or None
        The anchor.
    mass : ndarray of shape (n,)
        Row weights m.
    ridge : ndarray of shape (K, D)
        λ of the coefficients B.
    scale_ridge : float
        λ_s of the anchor's scale.
    total : float
        The weight of all rows.
    """

    def __init__(
        self, A: Array, W: Array | None, mass: Array, ridge: Array, scale_ridge: float, total: float
    ):
        self.kind = step_kind(A.dtype, ridge, scale_ridge, total)
        self.A = A.astype(self.kind, copy=False)
        self.W = None if W is None else W.astype(self.kind, copy=False)
        self.mass = mass.astype(self.kind, copy=False)
        self.ridge, self.scale_ridge = ridge.astype(self.kind, copy=False), scale_ridge
        n_products = A.shape[1] * ridge.shape[1] * (ridge.shape[1] + 1) / 2
        may_be_exact = A.dtype == np.float64 and n_products <= _PRODUCTS
        self._patience = _PATIENCE * ridge.size if may_be_exact else np.inf
        self.parts = step_parts(A.shape[1], ridge.size)
        self.exact = _ExactSteps(self) if may_be_exact and ridge.size <= _LARGEST else None
        self.inverse: _SharedInverse | None = None

    def __call__(self, P: Array, gradient: Array, forcing: float) -> Array:
        """Return a step for the class probabilities P, shape (K, n).

        It is exact where H is small, and positive definite in spite of rounding. Otherwise conjugate gradients go on
        until the residual has fallen by the factor ``forcing``.
        """
        P = P.astype(self.kind, copy=False)
        if self.exact is not None:
            exact = self.exact(P, gradient)
            if exact is not None:
                return exact
        # One factor does for many steps: from where a fit starts, probabilities do not change that much.
        if self.inverse is None:
            self.inverse = _SharedInverse(self, P)
        residual = (-gradient).astype(self.kind)
        step, n_inner = _conjugate_gradients(_Hessian(self, P), self.inverse, residual, forcing)
        if n_inner > SLOW:
            self.inverse = None
        if n_inner > self._patience and self.exact is None:
            self.exact = _ExactSteps(self)
        return step.astype(np.float64, copy=False)


def step_parts(n_rows: int, n_coefficients: int) -> list[slice]:
    """Return the parts of the rows that threads share in products with so many coefficients."""
    return row_parts(n_rows, n_coefficients / _LONGER)


def step_kind(given: np.dtype[Any], ridge: Array, scale_ridge: float, total: float) -> np.dtype[Any]:
    """Return the precision of the conjugate gradients: the one that is given, or single precision where it will do."""
    smallest, largest = ridge.min(), max(ridge.max(), scale_ridge)
    tame = _WELL_POSED * total <= smallest and _WELL_POSED * largest <= total
    return np.dtype(np.float32) if tame else given


class _Pairs(NamedTuple):
    """Pairs of features and pairs of classes, each taken once, and where in H they belong."""

    n_features: int  # pairs of features, the first with itself and all others, and so on
    first: Array
    second: Array
    same: Array  # (pairs of classes, 1), one where both are the same
    places: Array  # (K D, K D), indices into a flat array of pairs of features by pairs of classes


@lru_cache(maxsize=16)
def _pairs(n_classes: int, n_features: int) -> _Pairs:
    """Return the pairs of so many classes and features; H is the same for many problems but for its numbers."""
    left, right = np.triu_indices(n_features)
    first, second = np.triu_indices(n_classes)
    features = np.empty((n_features, n_features), dtype=np.intp)
    features[left, right] = features[right, left] = np.arange(left.size)
    classes = np.empty((n_classes, n_classes), dtype=np.intp)
    classes[first, second] = classes[second, first] = np.arange(first.size)
    places = features[:, np.newaxis] * first.size + classes[:, np.newaxis, :, np.newaxis]
    size = n_classes * n_features
    same = (first == second).astype(np.float32)[:, np.newaxis]
    return _Pairs(left.size, first, second, same, places.reshape(size, size))


class _ExactSteps:
    """Steps from the Hessian itself."""

    def __init__(self, steps: NewtonSteps):
        self.steps, self.pairs = steps, _pairs(*steps.ridge.shape)
        self.products = np.empty((self.pairs.n_features, steps.A.shape[1]), steps.kind)
        end = 0
        for first, own in enumerate(steps.mass * steps.A):
            start, end = end, end + len(steps.A) - first
            np.multiply(steps.A[first:], own, out=self.products[start:end])
        # Threads share the pairs of features.
        self.parts = step_parts(len(self.products), self.pairs.first.size * steps.A.shape[1])

    def __call__(self, P: Array, gradient: Array) -> Array | None:
        """Return −H⁻¹ g; None if H is not positive definite because of rounding."""
        steps, pairs = self.steps, self.pairs
        size = steps.ridge.size
        H = np.zeros((size + 1, size + 1))
        # Σ_i m_i p_ik (δ_kl − p_il) a_i a_iᵀ for all pairs of classes, and of features, at once.
        curvatures = (P[pairs.first] * (pairs.same - P[pairs.second])).T
        if len(self.parts) > 1:
            sums = np.concatenate(in_threads(lambda some: self.products[some] @ curvatures, self.parts))
        else:
            sums = self.products @ curvatures
        H[:size, :size] = sums.take(pairs.places)
        diagonal = H.ravel()[:: size + 2]  # a view
        diagonal[:size] += steps.ridge.ravel()
        if steps.W is not None:
            scale_column = steps.mass * P * (steps.W - np.einsum("ki,ki->i", P, steps.W))
            H[:size, size] = (scale_column @ steps.A.T).ravel()
            diagonal[size] = steps.scale_ridge + np.vdot(scale_column, steps.W)
        # A small addition to the diagonal: without a ridge, H is singular in the direction of a constant added to
        # all logits.
        diagonal[:] = np.where(diagonal > 0.0, (1.0 + 1e-12) * diagonal, 1.0)
        step = -gradient
        # The upper triangle, by rows, is the lower one by columns.
        return step if _lapack.solve_positive(H.T, step) else None


class _Hessian:
    """Products with H."""

    def __init__(self, steps: NewtonSteps, P: Array):
        self.A, self.W, self.P, self.weighted = steps.A, steps.W, P, steps.mass * P
        self.ridge, self.scale_ridge, self.parts = steps.ridge, steps.scale_ridge, steps.parts

    def __call__(self, v: Array) -> Array:
        B = v[:-1].reshape(self.ridge.shape)

        def of_part(rows: slice) -> tuple[Array, float]:
            A, W = self.A[:, rows], None if self.W is None else self.W[:, rows]
            U = B @ A
            if W is not None:
                U += v[-1] * W
            U -= np.einsum("ki,ki->i", self.P[:, rows], U)
            U *= self.weighted[:, rows]
            return U @ A.T, 0.0 if W is None else float(np.vdot(W, U))

        product = np.empty_like(v)
        inside = product[:-1].reshape(B.shape)
        np.multiply(self.ridge, B, out=inside)
        product[-1] = self.scale_ridge * v[-1]
        for of_coefficients, of_scale in in_threads(of_part, self.parts):
            inside += of_coefficients
            product[-1] += of_scale
        return product


class _SharedInverse:
    """Products with the inverse of H's mean over the classes, one Cholesky factor for all; the scale is apart."""

    def __init__(self, steps: NewtonSteps, P: Array):
        variances = steps.mass * (P - P * P).mean(axis=0)
        roots = np.sqrt(np.maximum(variances, 0.0))

        def product(rows: slice) -> Array:
            scaled = roots[rows] * steps.A[:, rows]
            return scaled @ scaled.T

        first, *others = in_threads(product, steps.parts)
        mean = sum(others, first)
        diagonal = np.diag_indices_from(mean)
        mean[diagonal] += steps.ridge.mean(axis=0)
        # Features that are constant, repeated or more than the rows leave directions without curvature.
        single = mean.dtype == np.float32
        curvatures = mean[diagonal] * (1.0 + (1e-5 if single else 1e-8))
        self.diagonal = mean[diagonal] = np.where(curvatures > 0.0, curvatures, 1.0)
        # Symmetric: by columns it is what it is by rows. Without a factor the diagonal alone will do.
        self.factor = mean.T if _lapack.factor_small(mean.T) else None
        self.shape, self.scale = steps.ridge.shape, steps.scale_ridge
        if steps.W is not None:
            scale_column = P * (steps.W - np.einsum("ki,ki->i", P, steps.W))
            self.scale += float(steps.mass @ np.einsum("ki,ki->i", scale_column, steps.W))
        if not self.scale > 0.0:
            self.scale = 1.0

    def __call__(self, v: Array) -> Array:
        B = v[:-1].reshape(self.shape)
        B = B / self.diagonal if self.factor is None else _lapack.solve_factored(self.factor, B.T).T
        out = np.empty_like(v)
        out[:-1] = B.ravel()
        out[-1] = v[-1] / self.scale
        return out


def _conjugate_gradients(
    hessian: _Hessian, inverse: _SharedInverse, residual: Array, forcing: float
) -> tuple[Array, int]:
    """Return a step with H step ≈ residual, and how many products it took.

    The residual is overwritten; in the end it has fallen by the factor ``forcing``.
    """
    step = np.zeros_like(residual)
    direction = inverse(residual)
    rho = rho_first = float(residual @ direction)
    n_inner = 0
    while n_inner < MAX_INNER:
        n_inner += 1
        product = hessian(direction)
        bend = float(direction @ product)
        if bend <= 1e-14 * rho:  # no curvature left along this direction
            break
        step += (rho / bend) * direction
        residual -= (rho / bend) * product
        z = inverse(residual)
        rho_next = float(residual @ z)
        if rho_next <= forcing**2 * rho_first:
            break
        direction *= rho_next / rho
        direction += z
        rho = rho_next
    return (step if step.any() else direction), n_inner
