"""PRESS, the sum of the squared leave-one-out residuals, and its slopes in the kernel's parameter and in the ridge."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from polymargin.kernels import Kernel
from polymargin.solvers import _lapack
from polymargin.solvers.centring import Centring, add_outer, centre
from polymargin.solvers.leave_out import LeftOut
from polymargin.solvers.ridge import symmetric_inverse
from polymargin.solvers.thin import ThinMatrix, leverage_products

Array = NDArray[Any]

#: The ridge is at least this multiple of the trace before centring, because of the rounding error of centring.
CANCELLED = 1e-12


def press(
    kernel: Kernel,
    base: Array,
    weights: Array,
    targets: Array,
    gamma: float,
    ridge: float,
    *,
    copies: Array | None = None,
    left_out: LeftOut | None = None,
    with_gamma: bool = True,
    least_ridge: float = 0.0,
) -> tuple[Array, Array]:
    """Return the PRESS of every column, and the slopes of their sum in log gamma and log ε.

    Parameters
    ----------
    kernel : Kernel
        The kernel.
    base : ndarray of shape (n, n)
        Its base matrix.
    weights : ndarray of shape (n,)
        Row weights.
    targets : ndarray of shape (n, L)
        The targets.
    gamma, ridge : float
        The point (gamma, ε).
    copies : ndarray of shape (n,) or None
        The number of equal rows, of equal weight, that each row represents, one of which is left out; None: one.
    left_out : LeftOut or None
        The groups of rows that are left out together; None: every row by itself.
    with_gamma : bool
        Whether the slope in log gamma is computed, which takes half as long as the rest; zero if not.
    least_ridge : float
        A ridge below this multiple of the mean eigenvalue is refused.

    Returns
    -------
    press : ndarray of shape (L,)
        PRESS.
    slopes : ndarray of shape (2,)
        The derivatives of its sum.

    Raises
    ------
    LinAlgError
        If the ridge is too small for the matrix.
    """
    K = kernel.apply(base, gamma)
    magnitude = float(weights @ np.abs(np.diagonal(K)))
    slope = kernel.slope(base, K, gamma) if with_gamma else None
    centring, A = centre(K, weights)
    _check_ridge(ridge, least_ridge, centring.bias_eigenvalue, magnitude)
    centred, _ = centring.targets(targets)
    P = unbiased_inverse(A, centring, ridge)
    solution = P @ centred
    diagonal = np.diagonal(P)
    if left_out is not None:
        return _press_of_groups(P, solution, left_out, slope, centring, ridge)
    value, adjoint, leverage_adjoint = _left_out(weights, copies, ridge * solution, ridge * diagonal)
    P_adjoint = P @ adjoint
    squares = np.einsum("ij,ij->i", P, P)
    slopes = np.zeros(2)
    slopes[1] = ridge * (
        np.vdot(adjoint - ridge * P_adjoint, solution) - leverage_adjoint @ (diagonal - ridge * squares)
    )
    if slope is not None:
        # P projects out the bias direction, so the derivative of K need not be centred.
        roots = np.sqrt(weights)
        slope *= roots[:, np.newaxis]
        slope *= roots
        # The derivative of P is -P slope P, so the leverages contribute tr(P diag(leverage_adjoint) P slope). The
        # adjoint is not negative, and NumPy multiplies a matrix by its own transpose for half the price.
        scaled = P * np.sqrt(leverage_adjoint)
        slopes[0] = ridge * (np.vdot(scaled @ scaled.T, slope) - np.vdot(P_adjoint, slope @ solution))
    return value, slopes


def _press_of_groups(
    P: Array,
    solution: Array,
    left_out: LeftOut,
    slope: Array | None,
    centring: Centring,
    ridge: float,
) -> tuple[Array, Array]:
    """Return PRESS and its slopes as `press` does, where groups of rows are left out together.

    With e = P_GG⁻¹ ã_G of every group and the adjoint u = 2 P_GG⁻¹ e, a change dP changes the sum of the squares by
    uᵀ(dã − dP_GG e), where dã = dP t.
    """
    blocks = left_out.blocks_of(P)
    errors = left_out.errors(blocks, solution)
    value = np.einsum("nl,nl->l", errors, errors)
    slopes = np.zeros(2)
    adjoint = 2.0 * left_out.errors(blocks, errors)
    P_adjoint = P @ adjoint
    outer_P = left_out.outer(errors, adjoint) @ P
    slopes[1] = ridge * (np.vdot(P, outer_P) - np.vdot(P_adjoint, solution))
    if slope is not None:
        slope *= centring.roots[:, np.newaxis]
        slope *= centring.roots
        slopes[0] = np.vdot(P @ outer_P, slope) - np.vdot(P_adjoint, slope @ solution)
    return value, slopes


def press_of_features(
    matrix: ThinMatrix,
    targets: Array,
    gamma: float,
    ridge: float,
    *,
    copies: Array | None = None,
    least_ridge: float = 0.0,
) -> tuple[Array, Array]:
    """Return PRESS and its slopes as `press` does, computed in feature space, for fewer features than rows.

    With εP = 1 − GM⁻¹Gᵀ − qqᵀ (`polymargin.solvers.thin`), its derivatives in log ε and log gamma are εVVᵀ and
    −εV diag(order) Vᵀ, where V = GM⁻¹.
    """
    weights, rows = matrix.weights, matrix.rows
    _check_ridge(ridge, least_ridge, matrix.bias_eigenvalue(gamma), matrix.magnitude(gamma))
    shares = weights / matrix.total
    centred = np.sqrt(weights)[:, np.newaxis] * (targets - shares @ targets)
    explained = rows @ leverage_products(matrix, gamma, ridge)  # V, its columns multiplied by the scales
    weighed = rows.T @ centred
    residuals = centred - explained @ weighed
    rest = 1.0 - np.einsum("nd,nd->n", explained, rows) - shares
    value, adjoint, leverage_adjoint = _left_out(weights, copies, residuals, rest)
    of_features = np.einsum("dl,dl->d", explained.T @ adjoint, explained.T @ centred)
    of_features -= leverage_adjoint @ np.square(explained)
    of_features *= ridge / matrix.powers(gamma)
    return value, np.array([-(matrix.orders @ of_features), of_features.sum()])


def _left_out(
    weights: Array, copies: Array | None, residuals: Array, rest: Array
) -> tuple[Array, Array, Array]:
    """Return the PRESS of every column, shape (L,), and the derivatives of their sum.

    Parameters
    ----------
    weights : ndarray of shape (n,)
        Row weights s.
    copies : ndarray of shape (n,) or None
        How many equal rows each stands for; None: one.
    residuals : ndarray of shape (n, L)
        ε ã, the residuals times √s.
    rest : ndarray of shape (n,)
        ε Pᵢᵢ, one minus the leverages.

    Returns
    -------
    press : ndarray of shape (L,)
        PRESS.
    adjoint : ndarray of shape (n, L)
        The derivatives of its sum in the residuals.
    leverage_adjoint : ndarray of shape (n,)
        The derivatives in the leverages, not negative.
    """
    copies = np.ones_like(weights) if copies is None else copies
    rest = (copies - 1.0 + rest)[:, np.newaxis]
    if not rest.min() > 0.0:
        raise np.linalg.LinAlgError("the ridge is too small for this matrix")
    enlarged = (copies / np.sqrt(weights))[:, np.newaxis] / rest
    errors = enlarged * residuals
    weighted = weights[:, np.newaxis] * errors
    leverage_adjoint = 2.0 * np.einsum("nl,nl->n", weighted, errors) / rest[:, 0]
    return np.einsum("nl,nl->l", weighted, errors), 2.0 * weighted * enlarged, leverage_adjoint


def _check_ridge(ridge: float, least_ridge: float, bias_eigenvalue: float, magnitude: float) -> None:
    """Raise LinAlgError for a ridge so small that rounding errors dominate."""
    if least_ridge and ridge < 0.5 * max(least_ridge * bias_eigenvalue, CANCELLED * magnitude):
        raise np.linalg.LinAlgError("the ridge is too small for this matrix")


def unbiased_inverse(A: Array, centring: Centring, ridge: float) -> Array:
    """Return P, the inverse of A + ε with the bias direction projected out; A is overwritten."""
    A[np.diag_indices_from(A)] += ridge
    if not _lapack.factor(A):
        raise np.linalg.LinAlgError("the ridge is too small for this matrix")
    P = symmetric_inverse(A)
    add_outer(P, -1.0 / (centring.bias_eigenvalue + ridge), centring.bias_direction)
    return P
