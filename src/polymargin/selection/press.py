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

#: The ridge is not less than this times the trace before centring: what centring takes away leaves its rounding behind.
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
    """Return the PRESS of every column, shape (L,), and the slopes of their sum in log gamma and log ε, shape (2,).

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
        Where.
    copies : ndarray of shape (n,) or None
        How many equal rows, of equal weight, each stands for, one of which is left out; None: one.
    left_out : LeftOut or None
        The groups of rows that are left out together; None: every row by itself.
    with_gamma : bool
        Whether the slope in log gamma is wanted, which takes as much as half of the rest; zero if not.
    least_ridge : float
        A ridge below this multiple of the mean eigenvalue is refused, with LinAlgError.
    """
    K = kernel.apply(base, gamma)
    magnitude = float(weights @ np.abs(np.diagonal(K)))
    slope = kernel.slope(base, K, gamma) if with_gamma else None
    centring, A = centre(K, weights)
    _check_ridge(ridge, least_ridge, centring.lift, magnitude)
    centred, _ = centring.targets(targets)
    P = unbiased_inverse(A, centring, ridge)
    roots = centring.roots[:, np.newaxis]
    solution = P @ centred
    diagonal = np.diagonal(P)
    if left_out is not None:
        return _press_of_groups(P, solution, left_out, slope, centring, ridge)
    value, pull, push = _left_out(weights, copies, ridge * solution, ridge * diagonal)
    pulled = P @ pull
    squares = np.einsum("ij,ij->i", P, P)
    slopes = np.zeros(2)
    slopes[1] = ridge * (np.vdot(pull - ridge * pulled, solution) - push @ (diagonal - ridge * squares))
    if slope is not None:
        # P takes out the bias direction, so the slope of K need not be centred.
        slope *= roots
        slope *= centring.roots
        # P moves by -P slope P, so what counts of it is tr(P diag(push) P slope). No push is negative, and NumPy
        # multiplies a matrix by its own transpose for half the price.
        pushed = P * np.sqrt(push)
        slopes[0] = ridge * (np.vdot(pushed @ pushed.T, slope) - np.vdot(pulled, slope @ solution))
    return value, slopes


def _press_of_groups(
    P: Array,
    solution: Array,
    left_out: LeftOut,
    slope: Array | None,
    centring: Centring,
    ridge: float,
) -> tuple[Array, Array]:
    """Return what `press` does where groups of rows are left out.

    With e = P_GG⁻¹ ã_G of every group and the adjoint u = 2 P_GG⁻¹ e, a change dP moves the sum of the squares by
    uᵀ(dã − dP_GG e), where dã = dP t.
    """
    blocks = left_out.blocks_of(P)
    errors = left_out.errors(blocks, solution)
    value = np.einsum("nl,nl->l", errors, errors)
    slopes = np.zeros(2)
    adjoint = 2.0 * left_out.errors(blocks, errors)
    pulled = P @ adjoint
    pushed = left_out.outer(errors, adjoint) @ P
    slopes[1] = ridge * (np.vdot(P, pushed) - np.vdot(pulled, solution))
    if slope is not None:
        slope *= centring.roots[:, np.newaxis]
        slope *= centring.roots
        slopes[0] = np.vdot(P @ pushed, slope) - np.vdot(pulled, slope @ solution)
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
    """Return what `press` does, from the features of the rows where there are fewer of them.

    With εP = 1 − GM⁻¹Gᵀ − qqᵀ (`polymargin.solvers.thin`), its derivatives in log ε and log gamma are εVVᵀ and
    −εV diag(order) Vᵀ, where V = GM⁻¹.
    """
    weights, rows = matrix.weights, matrix.rows
    _check_ridge(ridge, least_ridge, matrix.lift(gamma), matrix.magnitude(gamma))
    shares = weights / matrix.total
    centred = np.sqrt(weights)[:, np.newaxis] * (targets - shares @ targets)
    explained = rows @ leverage_products(matrix, gamma, ridge)  # V, its columns multiplied by the scales
    weighed = rows.T @ centred
    residuals = centred - explained @ weighed
    rest = 1.0 - np.einsum("nd,nd->n", explained, rows) - shares
    value, pull, push = _left_out(weights, copies, residuals, rest)
    of_features = np.einsum("dl,dl->d", explained.T @ pull, explained.T @ centred)
    of_features -= push @ np.square(explained)
    of_features *= ridge / matrix.powers(gamma)
    return value, np.array([-(matrix.orders @ of_features), of_features.sum()])


def _left_out(
    weights: Array, copies: Array | None, residuals: Array, rest: Array
) -> tuple[Array, Array, Array]:
    """Return the PRESS of every column, shape (L,), and how it rises with the residuals and falls with the rest.

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
    """
    copies = np.ones_like(weights) if copies is None else copies
    rest = (copies - 1.0 + rest)[:, np.newaxis]
    if not rest.min() > 0.0:
        raise np.linalg.LinAlgError("the ridge is too small for this matrix")
    enlarged = (copies / np.sqrt(weights))[:, np.newaxis] / rest
    errors = enlarged * residuals
    weighted = weights[:, np.newaxis] * errors
    push = 2.0 * np.einsum("nl,nl->n", weighted, errors) / rest[:, 0]
    return np.einsum("nl,nl->l", weighted, errors), 2.0 * weighted * enlarged, push


def _check_ridge(ridge: float, least_ridge: float, lift: float, magnitude: float) -> None:
    """Refuse, with LinAlgError, a ridge at which rounding decides."""
    if least_ridge and ridge < 0.5 * max(least_ridge * lift, CANCELLED * magnitude):
        raise np.linalg.LinAlgError("the ridge is too small for this matrix")


def unbiased_inverse(A: Array, centring: Centring, ridge: float) -> Array:
    """Return P, the inverse of A + ε without the bias direction; A is overwritten."""
    A[np.diag_indices_from(A)] += ridge
    if not _lapack.factor(A):
        raise np.linalg.LinAlgError("the ridge is too small for this matrix")
    P = symmetric_inverse(A)
    add_outer(P, -1.0 / (centring.lift + ridge), centring.bias_direction)
    return P
