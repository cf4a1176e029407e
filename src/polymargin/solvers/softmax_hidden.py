"""A softmax network with one hidden layer of M linear units: logits of rank M, on arrays.

The hidden layer multiplies out, Z = X T U + c with T (d×M) and U (M×K), so it does nothing but bound the rank of
B = T U. The ridge is on B: what is minimised is `polymargin.solvers.softmax`'s objective over matrices of rank
at most M. From M = K − 1 on the bound is idle, because a constant in all logits of a row does not matter.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular
from scipy.optimize import minimize

from polymargin.solvers.softmax import SoftmaxFit, fit_softmax
from polymargin.solvers.status import Status

Array = NDArray[Any]


@dataclass(frozen=True)
class HiddenFit:
    """The two layers and the map they multiply out to.

    See Also
    --------
    fit_hidden, train_epochs : The fits.

    Examples
    --------
    >>> X = np.array([[-1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.0, -1.0]])
    >>> network = fit_hidden(X, np.eye(4), np.ones(4), 0.1, 2, tol=1e-6, max_iter=100)
    >>> int(np.linalg.matrix_rank(network.fit.coef)), np.allclose(network.inward @ network.outward, network.fit.coef)
    (2, True)
    """

    inward: Array  #: T, shape (d, M)
    outward: Array  #: U, shape (M, K)
    fit: SoftmaxFit  #: coef = T U


def fit_hidden(
    features: Array, targets: Array, weights: Array, ridge: float, hidden: int, tol: float, max_iter: int
) -> HiddenFit:
    """Train to convergence, from the convex problem's solution cut down to M directions of its logits.

    Parameters
    ----------
    features : ndarray of shape (n, d)
        X.
    targets : ndarray of shape (n, K)
        For every row a distribution over the classes.
    weights : ndarray of shape (n,)
        Row weights.
    ridge : float
        λ, on B = T U.
    hidden : int
        M.
    tol : float
        The gradient norm to reach.
    max_iter : int
        Iterations, at most.

    Returns
    -------
    HiddenFit

    See Also
    --------
    train_epochs : Training that is stopped early.
    polymargin.solvers.softmax.fit_softmax : The convex problem without a bound on the rank.

    References
    ----------
    .. [1] C. Bravo, G. L'Huillier, J. L. Lobato and R. Weber, "Probability Estimation for Multiclass Problems
           Combining SVMs and Neural Networks", Neural Network World, 2010.
    """
    whole = fit_softmax(features, targets, sample_weight=weights, ridge=ridge, tol=tol)
    # The directions in which the logits vary most.
    logits = features @ whole.coef
    _, directions = np.linalg.eigh((logits * weights[:, np.newaxis]).T @ logits)
    outward = directions[:, ::-1][:, :hidden].T
    inward = whole.coef @ outward.T
    n_units = outward.shape[0]
    if n_units < hidden:  # more units than classes: the others are silent
        outward = np.vstack([outward, np.zeros((hidden - n_units, outward.shape[1]))])
        inward = np.hstack([inward, np.zeros((inward.shape[0], hidden - n_units))])
    if hidden >= targets.shape[1] - 1:
        return HiddenFit(inward, outward, whole)
    metric = features.T @ ((0.25 * weights)[:, np.newaxis] * features)
    metric[np.diag_indices_from(metric)] += ridge + 1e-6 * max(float(np.trace(metric)) / len(metric), 1e-12)
    network = _Network(features, targets, weights, ridge, hidden, np.linalg.cholesky(metric))
    found = minimize(
        network.value,
        network.pack(inward, outward, whole.intercept),
        jac=True,
        hessp=network.curvature,
        method="trust-ncg",
        # A norm of all entries where the certificate takes the largest.
        options={"gtol": tol, "maxiter": max_iter},
    )
    return network.result(found, tol)


def train_epochs(
    features: Array, targets: Array, weights: Array, ridge: float, hidden: int, epochs: int, random: Any
) -> HiddenFit:
    """Train for a given number of passes over the data, from small random weights (early stopping).

    Parameters
    ----------
    features, targets, weights, ridge, hidden
        As for `fit_hidden`.
    epochs : int
        Iterations of L-BFGS, each a pass over the data.
    random : numpy.random.RandomState
        For the first weights.

    Returns
    -------
    HiddenFit

    See Also
    --------
    fit_hidden : Training to convergence.
    """
    d, n_classes = features.shape[1], targets.shape[1]
    inward = random.normal(size=(d, hidden)) / np.sqrt(max(d, 1))
    outward = random.normal(size=(hidden, n_classes)) / np.sqrt(hidden)
    network = _Network(features, targets, weights, ridge, hidden, None)
    start = network.pack(inward, outward, np.zeros(n_classes))
    options = {"maxiter": epochs, "gtol": 0.0, "ftol": 0.0}
    return network.result(minimize(network.value, start, jac=True, method="L-BFGS-B", options=options), 0.0)


class _Network:
    """The mean objective over θ = (T, U, c), its gradient and products with its Hessian.

    ``metric`` is a Cholesky factor R Rᵀ in whose units the first layer is searched: θ holds Rᵀ T.
    """

    def __init__(
        self, features: Array, targets: Array, weights: Array, ridge: float, hidden: int, metric: Array | None
    ):
        self.X, self.Y, self.w, self.ridge = features, targets, weights[:, np.newaxis], ridge
        self.total = weights.sum()
        self.shape = features.shape[1], hidden, targets.shape[1]
        self.metric = metric

    def pack(self, T: Array, U: Array, c: Array) -> Array:
        first = T if self.metric is None else self.metric.T @ T
        return np.concatenate([first.ravel(), U.ravel(), c])

    def unpack(self, theta: Array) -> tuple[Array, Array, Array]:
        d, M, K = self.shape
        T, U = theta[: d * M].reshape(d, M), theta[d * M : d * M + M * K].reshape(M, K)
        if self.metric is not None:
            T = solve_triangular(self.metric, T, lower=True, trans="T")
        return T, U, theta[d * M + M * K :]

    def _pack_gradient(self, G_T: Array, G_U: Array, G_c: Array) -> Array:
        if self.metric is not None:
            G_T = solve_triangular(self.metric, G_T, lower=True)
        return np.concatenate([G_T.ravel(), G_U.ravel(), G_c]) / self.total

    def _forward(self, theta: Array) -> tuple[float, Array]:
        T, U, c = self.unpack(theta)
        B = T @ U
        logits = self.X @ B + c
        logits -= logits.max(axis=1, keepdims=True)
        P = np.exp(logits)
        sums = P.sum(axis=1, keepdims=True)
        P /= sums
        loss = np.vdot(self.w, np.log(sums)) - np.vdot(self.w * self.Y, logits)
        return float(loss + 0.5 * self.ridge * np.sum(B**2)), P

    def value(self, theta: Array) -> tuple[float, Array]:
        """Return the mean objective and its gradient."""
        loss, P = self._forward(theta)
        T, U, _ = self.unpack(theta)
        residuals = self.w * (P - self.Y)
        G = self.X.T @ residuals + self.ridge * (T @ U)
        return loss / self.total, self._pack_gradient(G @ U.T, T.T @ G, residuals.sum(axis=0))

    def curvature(self, theta: Array, v: Array) -> Array:
        """Return the Hessian times v."""
        _, P = self._forward(theta)
        T, U, _ = self.unpack(theta)
        G = self.X.T @ (self.w * (P - self.Y)) + self.ridge * (T @ U)
        dT, dU, dc = self.unpack(v)
        dB = dT @ U + T @ dU
        change = self.X @ dB + dc
        change -= np.einsum("ik,ik->i", P, change)[:, np.newaxis]
        change *= self.w * P
        dG = self.X.T @ change + self.ridge * dB
        return self._pack_gradient(dG @ U.T + G @ dU.T, T.T @ dG + dT.T @ G, change.sum(axis=0))

    def result(self, found: Any, tol: float) -> HiddenFit:
        """Return what `scipy.optimize.minimize` found."""
        T, U, c = self.unpack(found.x)
        norm = float(np.abs(found.jac).max())
        status = Status.CONVERGED
        if norm > tol:
            status = Status.ITERATION_LIMIT if found.status == 1 else Status.NO_PROGRESS
        value = float(found.fun * self.total)
        return HiddenFit(T, U, SoftmaxFit(T @ U, c, None, status, norm, value, int(found.nit)))
